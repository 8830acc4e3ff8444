"""Right and wrong answers to the exercises of chapter 05; parsed, never imported."""
# ruff: noqa


# %% 5.1 right: a chain of the course's links
def lion(learning_rate, b1=0.9, b2=0.99, weight_decay=0.0, mask=None):
    def init(params):
        return jax.tree.map(lambda p: jnp.zeros_like(p, dtype=jnp.float32), params)

    def update(gradients, moment, params):
        wide = jax.tree.map(lambda g: g.astype(jnp.float32), gradients)
        blend = jax.tree.map(lambda g, m: b1 * m + (1 - b1) * g, wide, moment)
        moment = jax.tree.map(lambda g, m: b2 * m + (1 - b2) * g, wide, moment)
        signs = jax.tree.map(lambda x, p: jnp.sign(x).astype(p.dtype), blend, params)
        return signs, moment

    return chain(
        GradientTransformation(init, update),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )


# %% 5.1 right: where in place of sign, a NamedTuple, flat leaves
class LionState(NamedTuple):
    done: Array
    moments: list


def lion(learning_rate, b1=0.9, b2=0.99, weight_decay=0.0, mask=None):
    def init(params):
        leaves = jax.tree.leaves(params)
        return LionState(jnp.int32(0), [jnp.zeros(p.shape, "float32") for p in leaves])

    def update(gradients, state, params):
        values, structure = jax.tree.flatten(params)
        slopes = jax.tree.leaves(gradients)
        if mask is None:
            on = [1.0] * len(values)
        else:
            on = [float(x) for x in jax.tree.leaves(mask(params) if callable(mask) else mask)]
        rate = learning_rate(state.done) if callable(learning_rate) else learning_rate
        updates, moments = [], []
        for g, m, p, decayed in zip(slopes, state.moments, values, on, strict=True):
            g = jnp.asarray(g, jnp.float32)
            blend = m + (1 - b1) * (g - m)
            step = jnp.where(blend > 0, 1.0, jnp.where(blend < 0, -1.0, 0.0))
            step = step + decayed * weight_decay * p.astype(jnp.float32)
            updates.append((-rate * step).astype(p.dtype))
            moments.append(m + (1 - b2) * (g - m))
        return structure.unflatten(updates), LionState(state.done + 1, moments)

    return GradientTransformation(init, update)


# %% 5.1 right: a class of static methods in the shape of a pair
class _Lion:
    def __init__(self, rate, b1, b2, decay, mask):
        self.rate, self.b1, self.b2, self.decay, self.mask = rate, b1, b2, decay, mask

    def init(self, params):
        return {
            "t": jnp.zeros([], jnp.int32),
            "m": jax.tree.map(lambda p: jnp.full(p.shape, 0.0), params),
        }

    def update(self, gradients, state, params):
        rate = self.rate(state["t"]) if callable(self.rate) else self.rate
        chosen = self.mask(params) if callable(self.mask) else self.mask
        chosen = jax.tree.map(lambda p: True, params) if chosen is None else chosen

        def direction(g, m, p, on):
            s = jnp.sign(self.b1 * m + (1 - self.b1) * g)
            if on:
                s = s + self.decay * p
            return jnp.asarray(-rate * s, p.dtype)

        updates = jax.tree.map(direction, gradients, state["m"], params, chosen)
        m = jax.tree.map(
            lambda g, m: jax.lax.add(self.b2 * m, ((1 - self.b2) * g).astype(jnp.float32)),
            gradients,
            state["m"],
        )
        return updates, {"t": state["t"] + 1, "m": m}


def lion(learning_rate, b1=0.9, b2=0.99, weight_decay=0.0, mask=None):
    return _Lion(learning_rate, b1, b2, weight_decay, mask)


# %% 5.1 wrong: takes the sign of the new moment
# The sign is of a blend of its own, b1 · m + (1 − b1) · g, with the moment from before the step.
# What b2 makes is for the next step.
# see: 5.4
def lion(learning_rate, b1=0.9, b2=0.99, weight_decay=0.0, mask=None):
    def init(params):
        return jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)

    def update(gradients, moment, params):
        moment = jax.tree.map(lambda g, m: b2 * m + (1 - b2) * g, gradients, moment)
        signs = jax.tree.map(lambda m, p: jnp.sign(m).astype(p.dtype), moment, params)
        return signs, moment

    return chain(
        GradientTransformation(init, update),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )


# %% 5.1 wrong: blends with the new moment
# The blend takes the moment from before the step. With the new one the gradient is counted twice.
# see: 5.4
def lion(learning_rate, b1=0.9, b2=0.99, weight_decay=0.0, mask=None):
    def init(params):
        return jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)

    def update(gradients, moment, params):
        moment = jax.tree.map(lambda g, m: b2 * m + (1 - b2) * g, gradients, moment)
        blend = jax.tree.map(lambda g, m: b1 * m + (1 - b1) * g, gradients, moment)
        signs = jax.tree.map(lambda x, p: jnp.sign(x).astype(p.dtype), blend, params)
        return signs, moment

    return chain(
        GradientTransformation(init, update),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )


# %% 5.1 wrong: b1 and b2 change places
# b1 is for the blend whose sign is taken, b2 for the moment that is kept. They differ for a reason:
# the moment remembers longer than the step does.
# see: 5.4
def lion(learning_rate, b1=0.9, b2=0.99, weight_decay=0.0, mask=None):
    def init(params):
        return jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)

    def update(gradients, moment, params):
        blend = jax.tree.map(lambda g, m: b2 * m + (1 - b2) * g, gradients, moment)
        moment = jax.tree.map(lambda g, m: b1 * m + (1 - b1) * g, gradients, moment)
        signs = jax.tree.map(lambda x, p: jnp.sign(x).astype(p.dtype), blend, params)
        return signs, moment

    return chain(
        GradientTransformation(init, update),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )


# %% 5.1 wrong: the moment has the dtype of the parameters
# `zeros_like` makes a bfloat16 moment for a bfloat16 parameter, and so does `optax.lion` without
# `mu_dtype`. A moment that changes by a thousandth of itself is rounded back to where it was. Make
# it float32.
# see: 5.5
def lion(learning_rate, b1=0.9, b2=0.99, weight_decay=0.0, mask=None):
    def init(params):
        return jax.tree.map(jnp.zeros_like, params)

    def update(gradients, moment, params):
        blend = jax.tree.map(lambda g, m: b1 * m + (1 - b1) * g, gradients, moment)
        moment = jax.tree.map(lambda g, m: b2 * m + (1 - b2) * g, gradients, moment)
        return jax.tree.map(jnp.sign, blend), moment

    return chain(
        GradientTransformation(init, update),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )


# %% 5.1 wrong: decay inside of the sign
# The decay was added to the gradient, so only its effect on a sign is left: it is a penalty, not a
# decay. Add it behind the sign.
# see: 5.6
def lion(learning_rate, b1=0.9, b2=0.99, weight_decay=0.0, mask=None):
    def init(params):
        return jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)

    def update(gradients, moment, params):
        blend = jax.tree.map(lambda g, m: b1 * m + (1 - b1) * g, gradients, moment)
        moment = jax.tree.map(lambda g, m: b2 * m + (1 - b2) * g, gradients, moment)
        signs = jax.tree.map(lambda x, p: jnp.sign(x).astype(p.dtype), blend, params)
        return signs, moment

    return chain(
        add_decayed_weights(weight_decay, mask),
        GradientTransformation(init, update),
        scale_by_learning_rate(learning_rate),
    )


# %% 5.1 wrong: decay without the rate
# The whole of sign and decay is multiplied by the rate: rate · (sign + weight_decay · p). Here the
# decay takes its full share at each step.
# see: 5.6
def lion(learning_rate, b1=0.9, b2=0.99, weight_decay=0.0, mask=None):
    def init(params):
        return jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)

    def update(gradients, moment, params):
        blend = jax.tree.map(lambda g, m: b1 * m + (1 - b1) * g, gradients, moment)
        moment = jax.tree.map(lambda g, m: b2 * m + (1 - b2) * g, gradients, moment)
        signs = jax.tree.map(lambda x, p: jnp.sign(x).astype(p.dtype), blend, params)
        return signs, moment

    return chain(
        GradientTransformation(init, update),
        scale_by_learning_rate(learning_rate),
        add_decayed_weights(-weight_decay, mask),
    )


# %% 5.1 wrong: decays everything
# The mask is not used. Biases, and whatever else it leaves out, are pulled to zero too.
# see: 5.6
def lion(learning_rate, b1=0.9, b2=0.99, weight_decay=0.0, mask=None):
    def init(params):
        return jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)

    def update(gradients, moment, params):
        blend = jax.tree.map(lambda g, m: b1 * m + (1 - b1) * g, gradients, moment)
        moment = jax.tree.map(lambda g, m: b2 * m + (1 - b2) * g, gradients, moment)
        signs = jax.tree.map(lambda x, p: jnp.sign(x).astype(p.dtype), blend, params)
        return signs, moment

    return chain(
        GradientTransformation(init, update),
        add_decayed_weights(weight_decay),
        scale_by_learning_rate(learning_rate),
    )


# %% 5.1 wrong: without a mask nothing is decayed
# No mask means that nothing is left out: all parameters are decayed.
# see: 5.6
def lion(learning_rate, b1=0.9, b2=0.99, weight_decay=0.0, mask=None):
    def init(params):
        return jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)

    def update(gradients, moment, params):
        blend = jax.tree.map(lambda g, m: b1 * m + (1 - b1) * g, gradients, moment)
        moment = jax.tree.map(lambda g, m: b2 * m + (1 - b2) * g, gradients, moment)
        signs = jax.tree.map(lambda x, p: jnp.sign(x).astype(p.dtype), blend, params)
        return signs, moment

    return chain(
        GradientTransformation(init, update),
        add_decayed_weights(weight_decay if mask else 0.0, mask),
        scale_by_learning_rate(learning_rate),
    )


# %% 5.1 wrong: leaves bfloat16 out of the decay
# Only the leaves that are float32 are decayed here. Without a mask all are, whatever their dtype.
# see: 5.6
def lion(learning_rate, b1=0.9, b2=0.99, weight_decay=0.0, mask=None):
    def init(params):
        return jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)

    def update(gradients, moment, params):
        blend = jax.tree.map(lambda g, m: b1 * m + (1 - b1) * g, gradients, moment)
        moment = jax.tree.map(lambda g, m: b2 * m + (1 - b2) * g, gradients, moment)
        return jax.tree.map(lambda x, p: jnp.sign(x).astype(p.dtype), blend, params), moment

    def wide(params):
        return jax.tree.map(lambda p: p.dtype == jnp.float32, params)

    return chain(
        GradientTransformation(init, update),
        add_decayed_weights(weight_decay, wide if mask is None else mask),
        scale_by_learning_rate(learning_rate),
    )


# %% 5.1 wrong: the schedule starts at step 1
# The first step has the rate of 0 steps done. Count after the rate was used.
# see: 5.8
def lion(learning_rate, b1=0.9, b2=0.99, weight_decay=0.0, mask=None):
    def init(params):
        return jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)

    def update(gradients, moment, params):
        blend = jax.tree.map(lambda g, m: b1 * m + (1 - b1) * g, gradients, moment)
        moment = jax.tree.map(lambda g, m: b2 * m + (1 - b2) * g, gradients, moment)
        signs = jax.tree.map(lambda x, p: jnp.sign(x).astype(p.dtype), blend, params)
        return signs, moment

    late = (lambda steps: learning_rate(steps + 1)) if callable(learning_rate) else learning_rate
    return chain(
        GradientTransformation(init, update),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(late),
    )


# %% 5.1 wrong: counts the steps in a closure
# Python runs `update` once, while it is traced: the count is a constant of the program, and the
# schedule stands still. Count in the state.
# see: 5.8
def lion(learning_rate, b1=0.9, b2=0.99, weight_decay=0.0, mask=None):
    done = [0]

    def init(params):
        return jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)

    def update(gradients, moment, params):
        rate = learning_rate(done[0]) if callable(learning_rate) else learning_rate
        done[0] += 1
        chosen = mask(params) if callable(mask) else mask
        if chosen is None:
            chosen = jax.tree.map(lambda p: True, params)
        updates = jax.tree.map(
            lambda g, m, p, on: (
                -rate * (jnp.sign(b1 * m + (1 - b1) * g) + on * weight_decay * p)
            ).astype(p.dtype),
            gradients,
            moment,
            params,
            chosen,
        )
        moment = jax.tree.map(lambda g, m: b2 * m + (1 - b2) * g, gradients, moment)
        return updates, moment

    return GradientTransformation(init, update)


# %% 5.1 wrong: a mask must be a tree
# A mask may be a function from the parameters to a tree. Call it if it is callable.
# see: 5.6
def lion(learning_rate, b1=0.9, b2=0.99, weight_decay=0.0, mask=None):
    def init(params):
        return jnp.int32(0), jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)

    def update(gradients, state, params):
        steps, moment = state
        rate = learning_rate(steps) if callable(learning_rate) else learning_rate
        chosen = jax.tree.map(lambda p: True, params) if mask is None else mask
        updates = jax.tree.map(
            lambda g, m, p, on: (
                -rate * (jnp.sign(b1 * m + (1 - b1) * g) + on * weight_decay * p)
            ).astype(p.dtype),
            gradients,
            moment,
            params,
            chosen,
        )
        moment = jax.tree.map(lambda g, m: b2 * m + (1 - b2) * g, gradients, moment)
        return updates, (steps + 1, moment)

    return GradientTransformation(init, update)


# %% 5.1 wrong: two moments, like Adam
# The state holds a second tree that nothing needs: a sign has no length to be divided by. One moment
# is what Lion is for.
# see: 5.4
def lion(learning_rate, b1=0.9, b2=0.99, weight_decay=0.0, mask=None):
    def init(params):
        zeros = jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)
        return zeros, jax.tree.map(jnp.copy, zeros)

    def update(gradients, state, params):
        moment, squares = state
        blend = jax.tree.map(lambda g, m: b1 * m + (1 - b1) * g, gradients, moment)
        moment = jax.tree.map(lambda g, m: b2 * m + (1 - b2) * g, gradients, moment)
        squares = jax.tree.map(lambda g, n: b2 * n + (1 - b2) * g**2, gradients, squares)
        signs = jax.tree.map(lambda x, p: jnp.sign(x).astype(p.dtype), blend, params)
        return signs, (moment, squares)

    return chain(
        GradientTransformation(init, update),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )


# %% 5.1 wrong: updates are float32
# A float32 moment makes a float32 update. Give each update the dtype of its parameter, or it widens
# whatever it is added to.
# see: 5.1
def lion(learning_rate, b1=0.9, b2=0.99, weight_decay=0.0, mask=None):
    def init(params):
        return jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)

    def update(gradients, moment, params):
        blend = jax.tree.map(lambda g, m: b1 * m + (1 - b1) * g, gradients, moment)
        moment = jax.tree.map(lambda g, m: b2 * m + (1 - b2) * g, gradients, moment)
        return jax.tree.map(jnp.sign, blend), moment

    return chain(
        GradientTransformation(init, update),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )


# %% 5.2 right: sums in place of means
def scale_by_factored_rms(b2=0.999, eps=1e-30):
    def init(params):
        def parts(p):
            if p.ndim < 2:
                return {"whole": jnp.zeros_like(p)}
            return {
                "rows": jnp.zeros(p.shape[:-1]),
                "columns": jnp.zeros(p.shape[:-2] + p.shape[-1:]),
            }

        return {"t": jnp.int32(0), "parts": jax.tree.map(parts, params)}

    def update(gradients, state, params):
        t = state["t"] + 1
        leaves, structure = jax.tree.flatten(gradients)
        parts = structure.flatten_up_to(state["parts"])
        mend = 1 - b2 ** t.astype(jnp.float32)
        updates, new = [], []
        for g, part in zip(leaves, parts):
            square = jnp.square(g) + eps
            if "whole" in part:
                part = {"whole": part["whole"] * b2 + square * (1 - b2)}
                root = jnp.sqrt(part["whole"] / mend)
            else:
                rows = part["rows"] * b2 + square.sum(-1) * (1 - b2)
                columns = part["columns"] * b2 + square.sum(-2) * (1 - b2)
                part = {"rows": rows, "columns": columns}
                total = rows.sum(-1)[..., None, None]
                root = jnp.sqrt(rows[..., None] / total) * jnp.sqrt(columns[..., None, :] / mend)
            updates.append(g / root)
            new.append(part)
        return structure.unflatten(updates), {"t": t, "parts": structure.unflatten(new)}

    return GradientTransformation(init, update)


# %% 5.2 right: three trees, corrected while it averages
class FactoredState(NamedTuple):
    t: Array
    rows: dict
    columns: dict


def scale_by_factored_rms(b2=0.999, eps=1e-30):
    nothing = jnp.zeros((0,))

    def init(params):
        rows = jax.tree.map(lambda p: jnp.zeros(p.shape if p.ndim < 2 else p.shape[:-1]), params)
        columns = jax.tree.map(
            lambda p: nothing if p.ndim < 2 else jnp.zeros((*p.shape[:-2], p.shape[-1])), params
        )
        return FactoredState(jnp.zeros((), jnp.int32), rows, columns)

    @jax.jit
    def update(gradients, state, params=None):
        t = state.t + 1
        share = (1 - b2) / (
            1 - b2**t
        )  # of the new one in an average that is corrected at each step

        def average(axis):
            def of(old, g):
                square = jnp.square(g) + eps
                if g.ndim < 2:
                    return old if axis == -2 else old + share * (square - old)
                return old + share * (square.mean(axis) - old)

            return of

        rows = jax.tree.map(average(-1), state.rows, gradients)
        columns = jax.tree.map(average(-2), state.columns, gradients)

        def divide(g, r, c):
            if g.ndim < 2:
                return g * jax.lax.rsqrt(r)
            r = r / jnp.mean(r, -1, keepdims=True)
            return g * jax.lax.rsqrt(r)[..., None] * jax.lax.rsqrt(c)[..., None, :]

        return jax.tree.map(divide, gradients, rows, columns), FactoredState(t, rows, columns)

    return GradientTransformation(init, update)


# %% 5.2 right: one matrix, and vmap over the stacks
def scale_by_factored_rms(b2=0.999, eps=1e-30):
    def of_matrix(square, mend, rows, columns):
        rows = b2 * rows + (1 - b2) * square.mean(1)
        columns = b2 * columns + (1 - b2) * square.mean(0)
        return jnp.outer(rows / rows.mean(), columns / mend), rows, columns

    def init(params):
        def parts(p):
            return (
                (jnp.zeros(p.shape),)
                if p.ndim < 2
                else (jnp.zeros(p.shape[:-1]), jnp.zeros(p.shape[:-2] + p.shape[-1:]))
            )

        return jnp.zeros(()), [parts(p) for p in jax.tree.leaves(params)]

    def update(gradients, state, params):
        t, moments = state
        t = t + 1
        mend = 1 - b2**t
        leaves, structure = jax.tree.flatten(gradients)
        updates, new = [], []
        for g, parts in zip(leaves, moments):
            square = g * g + eps
            if g.ndim < 2:
                whole = b2 * parts[0] + (1 - b2) * square
                updates.append(g / jnp.sqrt(whole / mend))
                new.append((whole,))
                continue
            each = of_matrix
            for _ in range(g.ndim - 2):
                each = jax.vmap(each, in_axes=(0, None, 0, 0))
            moment, *parts = each(square, mend, *parts)
            updates.append(g / jnp.sqrt(moment))
            new.append(tuple(parts))
        return structure.unflatten(updates), (t, new)

    return GradientTransformation(init, update)


# %% 5.2 wrong: keeps the whole moment
# This is RMSProp: it is right for vectors, and for matrices it keeps what the exercise is to save.
# Keep the means of rows and columns only.
# see: 5.4
def scale_by_factored_rms(b2=0.999, eps=1e-30):
    def init(params):
        return jnp.int32(0), jax.tree.map(jnp.zeros_like, params)

    def update(gradients, state, params):
        t, moments = state
        t = t + 1
        moments = jax.tree.map(lambda g, v: b2 * v + (1 - b2) * (g**2 + eps), gradients, moments)
        updates = jax.tree.map(lambda g, v: g / jnp.sqrt(v / (1 - b2**t)), gradients, moments)
        return updates, (t, moments)

    return GradientTransformation(init, update)


# %% 5.2 wrong: keeps the whole moment, and factors it to divide
# The matrix is put together from rows and columns, but the state still holds a whole one. The means
# of rows and columns can be averaged over time by themselves.
# see: 5.4
def scale_by_factored_rms(b2=0.999, eps=1e-30):
    def init(params):
        return jnp.int32(0), jax.tree.map(jnp.zeros_like, params)

    def update(gradients, state, params):
        t, moments = state
        t = t + 1
        moments = jax.tree.map(lambda g, v: b2 * v + (1 - b2) * (g**2 + eps), gradients, moments)

        def divide(g, v):
            v = v / (1 - b2**t)
            if g.ndim < 2:
                return g / jnp.sqrt(v)
            rows, columns = v.mean(-1, keepdims=True), v.mean(-2, keepdims=True)
            return g / jnp.sqrt(rows / rows.mean(-2, keepdims=True) * columns)

        return jax.tree.map(divide, gradients, moments), (t, moments)

    return GradientTransformation(init, update)


# %% 5.2 wrong: begins with a single zero
# A zero broadcasts, so the numbers are right. But the state grows in the first step: `update`
# compiles twice, and no scan can carry it. Make rows and columns as long as they will be.
# see: 5.1
def scale_by_factored_rms(b2=0.999, eps=1e-30):
    def init(params):
        return jnp.int32(0), [[jnp.zeros(()), jnp.zeros(())] for _ in jax.tree.leaves(params)]

    def divide(g, rows, columns, mend):
        squares = g**2 + eps
        if g.ndim < 2:
            rows = b2 * rows + (1 - b2) * squares
            return g / jnp.sqrt(rows / mend), [rows, columns]
        rows = b2 * rows + (1 - b2) * squares.mean(-1)
        columns = b2 * columns + (1 - b2) * squares.mean(-2)
        share = rows / rows.mean(-1, keepdims=True)
        return g / jnp.sqrt(share[..., None] * columns[..., None, :] / mend), [rows, columns]

    def update(gradients, state, params):
        steps, parts = state[0] + 1, state[1]
        leaves, structure = jax.tree.flatten(gradients)
        pairs = [divide(g, *part, 1 - b2**steps) for g, part in zip(leaves, parts)]
        return structure.unflatten([u for u, _ in pairs]), (steps, [part for _, part in pairs])

    return GradientTransformation(init, update)


# %% 5.2 wrong: no bias correction
# The averages start at zero, so the first steps divide by too little and are too long. Divide R and C
# by 1 − b2ᵗ.
# see: 5.4
def scale_by_factored_rms(b2=0.999, eps=1e-30):
    def init(params):
        return [
            (jnp.zeros(p.shape),)
            if p.ndim < 2
            else (jnp.zeros(p.shape[:-1]), jnp.zeros(p.shape[:-2] + p.shape[-1:]))
            for p in jax.tree.leaves(params)
        ]

    def update(gradients, state, params):
        leaves, structure = jax.tree.flatten(gradients)
        updates, new = [], []
        for g, parts in zip(leaves, state):
            square = g**2 + eps
            seen = (square,) if g.ndim < 2 else (square.mean(-1), square.mean(-2))
            parts = tuple(b2 * a + (1 - b2) * b for a, b in zip(parts, seen))
            new.append(parts)
            v = parts[0]
            if g.ndim > 1:
                rows = parts[0] / parts[0].mean(-1, keepdims=True)
                v = rows[..., None] * parts[1][..., None, :]
            updates.append(g / jnp.sqrt(v))
        return structure.unflatten(updates), new

    return GradientTransformation(init, update)


# %% 5.2 wrong: multiplies rows and columns first
# For small gradients R · C is below the smallest float32, and becomes 0: then the moment is 0, and the
# update infinite or NaN. Divide R by its mean first; what is left is of size 1.
# see: 5.4
def scale_by_factored_rms(b2=0.999, eps=1e-30):
    def init(params):
        return jnp.int32(0), [
            (jnp.zeros(p.shape),)
            if p.ndim < 2
            else (jnp.zeros(p.shape[:-1]), jnp.zeros(p.shape[:-2] + p.shape[-1:]))
            for p in jax.tree.leaves(params)
        ]

    def update(gradients, state, params):
        t, moments = state
        t = t + 1
        leaves, structure = jax.tree.flatten(gradients)
        updates, new = [], []
        for g, parts in zip(leaves, moments):
            square = g**2 + eps
            seen = (square,) if g.ndim < 2 else (square.mean(-1), square.mean(-2))
            parts = tuple(b2 * a + (1 - b2) * b for a, b in zip(parts, seen))
            new.append(parts)
            v = parts[0] / (1 - b2**t)
            if g.ndim > 1:
                rows, columns = (part / (1 - b2**t) for part in parts)
                v = rows[..., None] * columns[..., None, :] / rows.mean(-1)[..., None, None]
            updates.append(g / jnp.sqrt(v))
        return structure.unflatten(updates), (t, new)

    return GradientTransformation(init, update)


# %% 5.2 wrong: does not divide by the mean of the rows
# R · C counts the size of the gradient twice: it has the unit of g⁴. Divided by the mean of R it is a
# second moment.
# see: 5.4
def scale_by_factored_rms(b2=0.999, eps=1e-30):
    def init(params):
        return jnp.int32(0), [
            (jnp.zeros(p.shape),)
            if p.ndim < 2
            else (jnp.zeros(p.shape[:-1]), jnp.zeros(p.shape[:-2] + p.shape[-1:]))
            for p in jax.tree.leaves(params)
        ]

    def update(gradients, state, params):
        t, moments = state
        t = t + 1
        leaves, structure = jax.tree.flatten(gradients)
        updates, new = [], []
        for g, parts in zip(leaves, moments):
            square = g**2 + eps
            seen = (square,) if g.ndim < 2 else (square.mean(-1), square.mean(-2))
            parts = tuple(b2 * a + (1 - b2) * b for a, b in zip(parts, seen))
            new.append(parts)
            v = parts[0] / (1 - b2**t)
            if g.ndim > 1:
                rows, columns = (part / (1 - b2**t) for part in parts)
                v = rows[..., None] * columns[..., None, :]
            updates.append(g / jnp.sqrt(v))
        return structure.unflatten(updates), (t, new)

    return GradientTransformation(init, update)


# %% 5.2 wrong: makes one matrix of a stack
# A stack of matrices was laid out as one tall matrix, so all of them share the columns' means. Each
# matrix has its own: only the last two axes are a matrix.
# see: 5.4
def scale_by_factored_rms(b2=0.999, eps=1e-30):
    def init(params):
        return jnp.int32(0), [
            (jnp.zeros(p.shape),)
            if p.ndim < 2
            else (jnp.zeros(p.size // p.shape[-1]), jnp.zeros(p.shape[-1]))
            for p in jax.tree.leaves(params)
        ]

    def update(gradients, state, params):
        t, moments = state
        t = t + 1
        leaves, structure = jax.tree.flatten(gradients)
        updates, new = [], []
        for leaf, parts in zip(leaves, moments):
            g = leaf if leaf.ndim < 2 else leaf.reshape(-1, leaf.shape[-1])
            square = g**2 + eps
            seen = (square,) if g.ndim < 2 else (square.mean(-1), square.mean(-2))
            parts = tuple(b2 * a + (1 - b2) * b for a, b in zip(parts, seen))
            new.append(parts)
            v = parts[0] / (1 - b2**t)
            if g.ndim > 1:
                rows = parts[0] / parts[0].mean()
                v = rows[:, None] * (parts[1] / (1 - b2**t))
            updates.append((g / jnp.sqrt(v)).reshape(leaf.shape))
        return structure.unflatten(updates), (t, new)

    return GradientTransformation(init, update)


# %% 5.2 wrong: one mean of the rows for the whole stack
# The mean of R runs over the rows of one matrix. Taken over the whole stack, the loud matrices are
# divided by too much and the quiet ones by too little.
# see: 5.4
def scale_by_factored_rms(b2=0.999, eps=1e-30):
    def init(params):
        return jnp.int32(0), [
            (jnp.zeros(p.shape),)
            if p.ndim < 2
            else (jnp.zeros(p.shape[:-1]), jnp.zeros(p.shape[:-2] + p.shape[-1:]))
            for p in jax.tree.leaves(params)
        ]

    def update(gradients, state, params):
        t, moments = state
        t = t + 1
        leaves, structure = jax.tree.flatten(gradients)
        updates, new = [], []
        for g, parts in zip(leaves, moments):
            square = g**2 + eps
            seen = (square,) if g.ndim < 2 else (square.mean(-1), square.mean(-2))
            parts = tuple(b2 * a + (1 - b2) * b for a, b in zip(parts, seen))
            new.append(parts)
            v = parts[0] / (1 - b2**t)
            if g.ndim > 1:
                rows = parts[0] / parts[0].mean()
                v = rows[..., None] * (parts[1] / (1 - b2**t))[..., None, :]
            updates.append(g / jnp.sqrt(v))
        return structure.unflatten(updates), (t, new)

    return GradientTransformation(init, update)


# %% 5.2 wrong: squares the means
# The mean of the squares is wanted, not the square of the mean: in a row of +1 and −1 the mean is 0,
# and so would be what the gradient is divided by.
# see: 5.4
def scale_by_factored_rms(b2=0.999, eps=1e-30):
    def init(params):
        return jnp.int32(0), [
            (jnp.zeros(p.shape),)
            if p.ndim < 2
            else (jnp.zeros(p.shape[:-1]), jnp.zeros(p.shape[:-2] + p.shape[-1:]))
            for p in jax.tree.leaves(params)
        ]

    def update(gradients, state, params):
        t, moments = state
        t = t + 1
        leaves, structure = jax.tree.flatten(gradients)
        updates, new = [], []
        for g, parts in zip(leaves, moments):
            seen = (g**2 + eps,) if g.ndim < 2 else (g.mean(-1) ** 2 + eps, g.mean(-2) ** 2 + eps)
            parts = tuple(b2 * a + (1 - b2) * b for a, b in zip(parts, seen))
            new.append(parts)
            v = parts[0] / (1 - b2**t)
            if g.ndim > 1:
                rows = parts[0] / parts[0].mean(-1, keepdims=True)
                v = rows[..., None] * (parts[1] / (1 - b2**t))[..., None, :]
            updates.append(g / jnp.sqrt(v))
        return structure.unflatten(updates), (t, new)

    return GradientTransformation(init, update)


# %% 5.2 wrong: one number for a whole vector
# A vector has no second axis to share with: its moment is kept entry by entry. Here all entries are
# divided by the same number.
# see: 5.4
def scale_by_factored_rms(b2=0.999, eps=1e-30):
    def init(params):
        return jnp.int32(0), [
            (jnp.zeros(()),)
            if p.ndim < 2
            else (jnp.zeros(p.shape[:-1]), jnp.zeros(p.shape[:-2] + p.shape[-1:]))
            for p in jax.tree.leaves(params)
        ]

    def update(gradients, state, params):
        t, moments = state
        t = t + 1
        leaves, structure = jax.tree.flatten(gradients)
        updates, new = [], []
        for g, parts in zip(leaves, moments):
            square = g**2 + eps
            seen = (square.mean(),) if g.ndim < 2 else (square.mean(-1), square.mean(-2))
            parts = tuple(b2 * a + (1 - b2) * b for a, b in zip(parts, seen))
            new.append(parts)
            v = parts[0] / (1 - b2**t)
            if g.ndim > 1:
                rows = parts[0] / parts[0].mean(-1, keepdims=True)
                v = rows[..., None] * (parts[1] / (1 - b2**t))[..., None, :]
            updates.append(g / jnp.sqrt(v))
        return structure.unflatten(updates), (t, new)

    return GradientTransformation(init, update)


# %% 5.2 wrong: adds a large epsilon to the root
# With 1e-8 beside the root, as Adam has it, gradients of 1e-12 are divided by 1e-8 in place of their
# own size. Here `eps` belongs to g².
# see: 5.4
def scale_by_factored_rms(b2=0.999, eps=1e-30):
    def init(params):
        return jnp.int32(0), [
            (jnp.zeros(p.shape),)
            if p.ndim < 2
            else (jnp.zeros(p.shape[:-1]), jnp.zeros(p.shape[:-2] + p.shape[-1:]))
            for p in jax.tree.leaves(params)
        ]

    def update(gradients, state, params):
        t, moments = state
        t = t + 1
        leaves, structure = jax.tree.flatten(gradients)
        updates, new = [], []
        for g, parts in zip(leaves, moments):
            square = g**2 + eps
            seen = (square,) if g.ndim < 2 else (square.mean(-1), square.mean(-2))
            parts = tuple(b2 * a + (1 - b2) * b for a, b in zip(parts, seen))
            new.append(parts)
            v = parts[0] / (1 - b2**t)
            if g.ndim > 1:
                rows = parts[0] / parts[0].mean(-1, keepdims=True)
                v = rows[..., None] * (parts[1] / (1 - b2**t))[..., None, :]
            updates.append(g / (jnp.sqrt(v) + 1e-8))
        return structure.unflatten(updates), (t, new)

    return GradientTransformation(init, update)


# %% 5.2 wrong: leaves it to optax, with its defaults
# `optax.scale_by_factored_rms` factors only axes of 128 and more, and its decay grows with the step.
# Small matrices keep their whole moment there.
# see: 5.4
def scale_by_factored_rms(b2=0.999, eps=1e-30):
    import optax

    return optax.scale_by_factored_rms(decay_rate=b2, epsilon=eps)


# %% 5.3 right: where on each border
def warmup_stable_decay(peak, warmup_steps, stable_steps, decay_steps, end=0.0):
    for steps in (warmup_steps, stable_steps, decay_steps):
        if steps < 0:
            raise ValueError(f"needs 0 steps or more, got {steps}")

    def schedule(t):
        since = t - (warmup_steps + stable_steps)
        x = since / decay_steps if decay_steps else jnp.ones(jnp.shape(t))
        late = peak + (end - peak) * jnp.sqrt(jnp.where(x > 0, x, 0.0))
        late = jnp.where(jnp.greater_equal(since, decay_steps), end, late)
        early = peak * t / warmup_steps if warmup_steps else peak
        rate = jnp.where(jnp.less(t, warmup_steps), early, jnp.where(since < 0, peak, late))
        return jnp.asarray(rate, jnp.float32)

    return schedule


# %% 5.3 right: a select, jitted
def warmup_stable_decay(peak, warmup_steps, stable_steps, decay_steps, end=0.0):
    if warmup_steps < 0 or stable_steps < 0 or decay_steps < 0:
        raise ValueError("a stage of fewer than 0 steps")
    first, second = warmup_steps, warmup_steps + stable_steps
    third = second + decay_steps

    @jax.jit
    def schedule(t):
        t = jnp.asarray(t, jnp.int32)
        done = jnp.maximum(t - second, 0).astype(jnp.float32) / max(decay_steps, 1)
        return jnp.select(
            [t < first, t < second, t < third],
            [
                t.astype(jnp.float32) * (peak / max(first, 1)),
                jnp.full(t.shape, peak, jnp.float32),
                (1 - done**0.5) * peak + done**0.5 * end,
            ],
            jnp.float32(end),
        )

    return schedule


# %% 5.3 right: branches by lax.switch, one step at a time
def warmup_stable_decay(peak, warmup_steps, stable_steps, decay_steps, end=0.0):
    lengths = np.array([warmup_steps, stable_steps, decay_steps])
    if np.any(lengths < 0):
        raise ValueError(f"stages of {lengths} steps")
    borders = jnp.asarray(np.cumsum(lengths), jnp.int32)

    def one_step(t):
        stage = jnp.sum(t >= borders)
        branches = [
            lambda t: jnp.float32(peak) * t / max(warmup_steps, 1),
            lambda t: jnp.float32(peak),
            lambda t: (
                peak + (end - peak) * jnp.sqrt((t - borders[1]) / jnp.float32(max(decay_steps, 1)))
            ),
            lambda t: jnp.float32(end),
        ]
        return jax.lax.switch(stage, branches, t)

    return lambda steps: jnp.vectorize(one_step)(jnp.asarray(steps, jnp.int32))


# %% 5.3 wrong: branches with if
# A step that is traced has no value yet, so `if` can't decide; an array has several. Compute all
# stages and choose with `where`.
# see: 5.8
def warmup_stable_decay(peak, warmup_steps, stable_steps, decay_steps, end=0.0):
    if min(warmup_steps, stable_steps, decay_steps) < 0:
        raise ValueError("a stage of fewer than 0 steps")
    falls = warmup_steps + stable_steps

    def schedule(t):
        if t < warmup_steps:
            return jnp.float32(peak * t / warmup_steps)
        if t < falls:
            return jnp.float32(peak)
        if t < falls + decay_steps:
            return jnp.float32(peak + (end - peak) * ((t - falls) / decay_steps) ** 0.5)
        return jnp.float32(end)

    return schedule


# %% 5.3 wrong: counts from 1
# Step 0 is the first one, and has the rate 0; the peak is reached at `warmup_steps`. Here everything
# comes one step too early.
# see: 5.8
def warmup_stable_decay(peak, warmup_steps, stable_steps, decay_steps, end=0.0):
    if min(warmup_steps, stable_steps, decay_steps) < 0:
        raise ValueError("a stage of fewer than 0 steps")
    falls = warmup_steps + stable_steps

    def schedule(t):
        t = jnp.asarray(t) + 1
        done = jnp.clip(t - falls, 0, decay_steps) / max(decay_steps, 1)
        falling = peak + (end - peak) * jnp.sqrt(done)
        rate = jnp.where(t < warmup_steps, peak * t / max(warmup_steps, 1), falling)
        return jnp.where(t >= falls + decay_steps, end, rate).astype(jnp.float32)

    return schedule


# %% 5.3 wrong: goes on falling behind the end
# Behind the last stage the share of the decay grows past 1, and the rate falls below `end`, at last
# below zero: the run climbs. Clip the share.
# see: 5.8
def warmup_stable_decay(peak, warmup_steps, stable_steps, decay_steps, end=0.0):
    if min(warmup_steps, stable_steps, decay_steps) < 0:
        raise ValueError("a stage of fewer than 0 steps")
    falls = warmup_steps + stable_steps

    def schedule(t):
        t = jnp.asarray(t)
        done = jnp.maximum(t - falls, 0) / max(decay_steps, 1)
        falling = peak + (end - peak) * jnp.sqrt(done)
        rate = jnp.where(t < warmup_steps, peak * t / max(warmup_steps, 1), falling)
        return rate.astype(jnp.float32)

    return schedule


# %% 5.3 wrong: a straight line down
# The decay goes with the root of its share: it falls steeply at first and slowly at last.
# see: 5.8
def warmup_stable_decay(peak, warmup_steps, stable_steps, decay_steps, end=0.0):
    if min(warmup_steps, stable_steps, decay_steps) < 0:
        raise ValueError("a stage of fewer than 0 steps")
    falls = warmup_steps + stable_steps

    def schedule(t):
        t = jnp.asarray(t)
        done = jnp.clip(t - falls, 0, decay_steps) / max(decay_steps, 1)
        falling = peak + (end - peak) * done
        rate = jnp.where(t < warmup_steps, peak * t / max(warmup_steps, 1), falling)
        return jnp.where(t >= falls + decay_steps, end, rate).astype(jnp.float32)

    return schedule


# %% 5.3 wrong: the root of what is left
# √(1 − x) is not 1 − √x: it falls slowly at first and steeply at last.
# see: 5.8
def warmup_stable_decay(peak, warmup_steps, stable_steps, decay_steps, end=0.0):
    if min(warmup_steps, stable_steps, decay_steps) < 0:
        raise ValueError("a stage of fewer than 0 steps")
    falls = warmup_steps + stable_steps

    def schedule(t):
        t = jnp.asarray(t)
        done = jnp.clip(t - falls, 0, decay_steps) / max(decay_steps, 1)
        falling = end + (peak - end) * jnp.sqrt(1 - done)
        rate = jnp.where(t < warmup_steps, peak * t / max(warmup_steps, 1), falling)
        return jnp.where(t >= falls + decay_steps, end, rate).astype(jnp.float32)

    return schedule


# %% 5.3 wrong: the plateau includes the warm-up
# `stable_steps` are counted from the end of the warm-up, not from the start of the run. Here the
# decay begins too early.
# see: 5.8
def warmup_stable_decay(peak, warmup_steps, stable_steps, decay_steps, end=0.0):
    if min(warmup_steps, stable_steps, decay_steps) < 0:
        raise ValueError("a stage of fewer than 0 steps")
    falls = max(stable_steps, warmup_steps)

    def schedule(t):
        t = jnp.asarray(t)
        done = jnp.clip(t - falls, 0, decay_steps) / max(decay_steps, 1)
        falling = peak + (end - peak) * jnp.sqrt(done)
        rate = jnp.where(t < warmup_steps, peak * t / max(warmup_steps, 1), falling)
        return jnp.where(t >= falls + decay_steps, end, rate).astype(jnp.float32)

    return schedule


# %% 5.3 wrong: divides by zero steps
# A stage of 0 steps makes 0 / 0, and NaN times anything is NaN. Leave the stage out, or divide by at
# least 1.
# see: 5.8
def warmup_stable_decay(peak, warmup_steps, stable_steps, decay_steps, end=0.0):
    if min(warmup_steps, stable_steps, decay_steps) < 0:
        raise ValueError("a stage of fewer than 0 steps")
    falls = warmup_steps + stable_steps

    def schedule(t):
        t = jnp.asarray(t)
        done = jnp.clip(jnp.divide(t - falls, decay_steps), 0, 1)
        rising = jnp.clip(jnp.divide(t, warmup_steps), 0, 1)
        return (peak * rising + (end - peak) * jnp.sqrt(done)).astype(jnp.float32)

    return schedule


# %% 5.3 wrong: NaN on a plateau that no decay follows
# With no steps of decay, its share is 0 / 0 on the plateau as well, and NaN times anything is NaN.
# Divide by at least 1.
# see: 5.8
def warmup_stable_decay(peak, warmup_steps, stable_steps, decay_steps, end=0.0):
    if min(warmup_steps, stable_steps, decay_steps) < 0:
        raise ValueError("a stage of fewer than 0 steps")
    falls = warmup_steps + stable_steps

    def schedule(t):
        t = jnp.asarray(t)
        done = jnp.divide(jnp.clip(t - falls, 0, decay_steps), decay_steps)
        rate = peak + (end - peak) * jnp.sqrt(done)
        rate = jnp.where(t < warmup_steps, peak * jnp.divide(t, warmup_steps), rate)
        return jnp.where(t < falls + decay_steps, rate, end).astype(jnp.float32)

    return schedule


# %% 5.3 wrong: counts in float32
# From 16,777,216 on, float32 has no room for every whole number. Subtract while steps are integers,
# and make floats of what is left.
# see: 5.8
def warmup_stable_decay(peak, warmup_steps, stable_steps, decay_steps, end=0.0):
    if min(warmup_steps, stable_steps, decay_steps) < 0:
        raise ValueError("a stage of fewer than 0 steps")
    falls = float(warmup_steps + stable_steps)

    def schedule(t):
        t = jnp.asarray(t, jnp.float32)
        done = jnp.clip((t - falls) / max(decay_steps, 1), 0.0, 1.0)
        falling = peak + (end - peak) * jnp.sqrt(done)
        rate = jnp.where(t < warmup_steps, peak * t / max(warmup_steps, 1), falling)
        return jnp.where(t >= falls + decay_steps, end, rate)

    return schedule


# %% 5.3 wrong: refuses nothing
# A negative number of steps is a mistake of the caller: raise a ValueError when the schedule is made.
# Here it becomes some schedule that nobody asked for.
# see: 5.8
def warmup_stable_decay(peak, warmup_steps, stable_steps, decay_steps, end=0.0):
    falls = warmup_steps + stable_steps

    def schedule(t):
        t = jnp.asarray(t)
        done = jnp.clip(t - falls, 0, decay_steps) / max(decay_steps, 1)
        falling = peak + (end - peak) * jnp.sqrt(done)
        rate = jnp.where(t < warmup_steps, peak * t / max(warmup_steps, 1), falling)
        return jnp.where(t >= falls + decay_steps, end, rate).astype(jnp.float32)

    return schedule


# %% 5.3 wrong: refuses when it is called
# The schedule is made at the head of a run and called inside of a compiled step. A mistake of whoever makes
# it should be said there and then: raise the ValueError before you return.
# see: 5.8
def warmup_stable_decay(peak, warmup_steps, stable_steps, decay_steps, end=0.0):
    falls = warmup_steps + stable_steps

    def schedule(t):
        if min(warmup_steps, stable_steps, decay_steps) < 0:
            raise ValueError("a stage of fewer than 0 steps")
        t = jnp.asarray(t)
        done = jnp.clip(t - falls, 0, decay_steps) / max(decay_steps, 1)
        falling = peak + (end - peak) * jnp.sqrt(done)
        rate = jnp.where(t < warmup_steps, peak * t / max(warmup_steps, 1), falling)
        return jnp.where(t >= falls + decay_steps, end, rate).astype(jnp.float32)

    return schedule


# %% 5.3 wrong: refuses a warm-up of 0 steps
# A stage of no steps is left out, not refused.
# see: 5.8
def warmup_stable_decay(peak, warmup_steps, stable_steps, decay_steps, end=0.0):
    if min(warmup_steps, stable_steps, decay_steps) < 1:
        raise ValueError("a stage of fewer than 1 step")
    falls = warmup_steps + stable_steps

    def schedule(t):
        t = jnp.asarray(t)
        done = jnp.clip(t - falls, 0, decay_steps) / decay_steps
        falling = peak + (end - peak) * jnp.sqrt(done)
        rate = jnp.where(t < warmup_steps, peak * t / warmup_steps, falling)
        return jnp.where(t >= falls + decay_steps, end, rate).astype(jnp.float32)

    return schedule


# %% 5.3 wrong: end is a factor of the peak
# `end` is a rate, not a share of the peak.
# see: 5.8
def warmup_stable_decay(peak, warmup_steps, stable_steps, decay_steps, end=0.0):
    if min(warmup_steps, stable_steps, decay_steps) < 0:
        raise ValueError("a stage of fewer than 0 steps")
    falls = warmup_steps + stable_steps

    def schedule(t):
        t = jnp.asarray(t)
        done = jnp.clip(t - falls, 0, decay_steps) / max(decay_steps, 1)
        falling = peak * (1 + (end - 1) * jnp.sqrt(done))
        rate = jnp.where(t < warmup_steps, peak * t / max(warmup_steps, 1), falling)
        return jnp.where(t >= falls + decay_steps, peak * end, rate).astype(jnp.float32)

    return schedule


# %% 5.4 right: a running mean, and a cond
class AccumulateState(NamedTuple):
    mean: dict
    used: Array
    left: Array
    inner: tuple


def accumulate(optimizer, every):
    def init(params):
        mean = jax.tree.map(lambda p: jnp.zeros_like(p, dtype=jnp.float32), params)
        return AccumulateState(mean, jnp.int32(0), jnp.int32(every), optimizer.init(params))

    def update(gradients, state, params):
        finite = jax.tree.map(lambda g: jnp.isfinite(g).all(), gradients)
        good = jax.tree.reduce(jnp.logical_and, finite)
        used = state.used + good.astype(jnp.int32)

        def add(m, g):
            towards = m + (g.astype(jnp.float32) - m) / jnp.maximum(used, 1)
            return jnp.where(good, towards, m)

        mean = jax.tree.map(add, state.mean, gradients)
        left = state.left - 1

        def step(mean, inner):
            cast = jax.tree.map(lambda m, g: m.astype(g.dtype), mean, gradients)
            return optimizer.update(cast, inner, params)

        def wait(mean, inner):
            return jax.tree.map(jnp.zeros_like, params), inner

        updates, inner = jax.lax.cond((left == 0) & (used > 0), step, wait, mean, state.inner)
        again = left == 0
        return updates, AccumulateState(
            jax.tree.map(lambda m: jnp.where(again, 0.0, m), mean),
            jnp.where(again, 0, used),
            jnp.where(again, every, left),
            inner,
        )

    return GradientTransformation(init, update)


# %% 5.4 right: keeps the whole window
def accumulate(optimizer, every):
    def init(params):
        window = jax.tree.map(lambda p: jnp.zeros((every, *p.shape), p.dtype), params)
        return jnp.int32(0), window, jnp.zeros(every, bool), optimizer.init(params)

    @jax.jit
    def update(gradients, state, params):
        calls, window, good, inner = state
        place = calls % every
        window = jax.tree.map(lambda w, g: w.at[place].set(g), window, gradients)
        numbers = jnp.concatenate(
            [jnp.ravel(g).astype(jnp.float32) for g in jax.tree.leaves(gradients)]
        )
        good = good.at[place].set(jnp.isfinite(numbers).all())

        def mean(w):
            chosen = good.reshape(-1, *[1] * (w.ndim - 1))
            total = jnp.where(chosen, w.astype(jnp.float32), 0).sum(0)
            return (total / jnp.maximum(good.sum(), 1)).astype(w.dtype)

        updates, new = optimizer.update(jax.tree.map(mean, window), inner, params)
        steps = (place == every - 1) & good.any()
        updates = jax.tree.map(lambda u: jax.lax.select(steps, u, jnp.zeros_like(u)), updates)
        inner = jax.tree.map(lambda a, b: jnp.where(steps, a, b), new, inner)
        good = jnp.where(place == every - 1, jnp.zeros_like(good), good)
        return updates, (calls + 1, window, good, inner)

    return GradientTransformation(init, update)


# %% 5.4 right: a dict, where the bad ones become zeros before anything else
def accumulate(optimizer, every):
    def init(params):
        return {
            "sum": jax.tree.map(lambda p: jnp.zeros(p.shape, "float32"), params),
            "counts": jnp.zeros(2, jnp.int32),
            "inner": optimizer.init(params),
        }

    def update(gradients, state, params):
        worst = sum(jnp.sum(jnp.abs(g.astype(jnp.float32)) * 0) for g in jax.tree.leaves(gradients))
        good = worst == 0  # 0 · NaN and 0 · ∞ are NaN
        cleaned = jax.tree.map(lambda g: jnp.where(good, g, 0).astype("float32"), gradients)
        total = jax.tree.map(jnp.add, state["sum"], cleaned)
        counts = state["counts"] + jnp.stack([jnp.int32(1), good.astype(jnp.int32)])
        full, some = counts[0] == every, counts[1] > 0
        divisor = jnp.where(some, counts[1], 1).astype("float32")
        mean = jax.tree.map(lambda s, g: (s / divisor).astype(g.dtype), total, gradients)
        updates, inner = optimizer.update(mean, state["inner"], params)
        choose = lambda a, b: jax.tree.map(lambda x, y: jnp.where(full & some, x, y), a, b)
        state = {
            "sum": jax.tree.map(lambda s: jnp.where(full, 0, s), total),
            "counts": jnp.where(full, 0, counts),
            "inner": choose(inner, state["inner"]),
        }
        return choose(updates, jax.tree.map(jnp.zeros_like, updates)), state

    return GradientTransformation(init, update)


# %% 5.4 wrong: leaves it to MultiSteps
# `optax.MultiSteps` adds the NaN to its sum, and clears the sum by multiplying it with zero: it stays
# NaN for good.
# see: 5.10
def accumulate(optimizer, every):
    import optax

    return optax.MultiSteps(optimizer, every).gradient_transformation()


# %% 5.4 wrong: MultiSteps that skips
# `skip_not_finite` takes a bad call as one that was never made, so the window waits for one more. Here
# a window is `every` calls long, and the mean is over the good ones.
# see: 5.10
def accumulate(optimizer, every):
    import optax

    wrapped = optax.MultiSteps(optimizer, every, should_skip_update_fn=optax.skip_not_finite)
    return wrapped.gradient_transformation()


# %% 5.4 wrong: the sum in place of the mean
# The optimizer gets the sum of the window: for descent that is a rate `every` times as large. Divide
# by the number of gradients that were added.
# see: 5.10
def accumulate(optimizer, every):
    def init(params):
        total = jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)
        return jnp.int32(0), jnp.int32(0), total, optimizer.init(params)

    def update(gradients, state, params):
        calls, used, total, inner = state
        good = jnp.all(jnp.array([jnp.isfinite(g).all() for g in jax.tree.leaves(gradients)]))
        total = jax.tree.map(lambda s, g: s + jnp.where(good, g, 0.0), total, gradients)
        calls, used = calls + 1, used + good
        full = calls == every
        mean = jax.tree.map(lambda s, g: s.astype(g.dtype), total, gradients)
        updates, new = optimizer.update(mean, inner, params)
        steps = full & (used > 0)
        updates = jax.tree.map(lambda u: jnp.where(steps, u, jnp.zeros_like(u)), updates)
        inner = jax.tree.map(lambda a, b: jnp.where(steps, a, b), new, inner)
        total = jax.tree.map(lambda s: jnp.where(full, 0.0, s), total)
        return updates, (jnp.where(full, 0, calls), jnp.where(full, 0, used), total, inner)

    return GradientTransformation(init, update)


# %% 5.4 wrong: divides by the length of the window
# Gradients that were left out still count in the divisor, so the mean is too short. Divide by the
# number of those that were added.
# see: 5.10
def accumulate(optimizer, every):
    def init(params):
        total = jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)
        return jnp.int32(0), jnp.int32(0), total, optimizer.init(params)

    def update(gradients, state, params):
        calls, used, total, inner = state
        good = jnp.all(jnp.array([jnp.isfinite(g).all() for g in jax.tree.leaves(gradients)]))
        total = jax.tree.map(lambda s, g: s + jnp.where(good, g, 0.0), total, gradients)
        calls, used = calls + 1, used + good
        full = calls == every
        mean = jax.tree.map(lambda s, g: (s / every).astype(g.dtype), total, gradients)
        updates, new = optimizer.update(mean, inner, params)
        steps = full & (used > 0)
        updates = jax.tree.map(lambda u: jnp.where(steps, u, jnp.zeros_like(u)), updates)
        inner = jax.tree.map(lambda a, b: jnp.where(steps, a, b), new, inner)
        total = jax.tree.map(lambda s: jnp.where(full, 0.0, s), total)
        return updates, (jnp.where(full, 0, calls), jnp.where(full, 0, used), total, inner)

    return GradientTransformation(init, update)


# %% 5.4 wrong: lets the optimizer step on zeros
# Between the windows the optimizer was called with zeros, and its state went on: momentum and counts
# of steps move on as if there had been a gradient. Its state must stay as it is.
# see: 5.10
def accumulate(optimizer, every):
    def init(params):
        total = jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)
        return jnp.int32(0), jnp.int32(0), total, optimizer.init(params)

    def update(gradients, state, params):
        calls, used, total, inner = state
        good = jnp.all(jnp.array([jnp.isfinite(g).all() for g in jax.tree.leaves(gradients)]))
        total = jax.tree.map(lambda s, g: s + jnp.where(good, g, 0.0), total, gradients)
        calls, used = calls + 1, used + good
        full = calls == every
        steps = full & (used > 0)
        mean = jax.tree.map(
            lambda s, g: jnp.where(steps, s / jnp.maximum(used, 1), 0.0).astype(g.dtype),
            total,
            gradients,
        )
        updates, inner = optimizer.update(mean, inner, params)
        updates = jax.tree.map(lambda u: jnp.where(steps, u, jnp.zeros_like(u)), updates)
        total = jax.tree.map(lambda s: jnp.where(full, 0.0, s), total)
        return updates, (jnp.where(full, 0, calls), jnp.where(full, 0, used), total, inner)

    return GradientTransformation(init, update)


# %% 5.4 wrong: gives out updates between
# The optimizer got zeros between the windows, and its updates went out: decay and momentum move the
# parameters in every call. The updates between are zeros.
# see: 5.10
def accumulate(optimizer, every):
    def init(params):
        total = jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)
        return jnp.int32(0), jnp.int32(0), total, optimizer.init(params)

    def update(gradients, state, params):
        calls, used, total, inner = state
        good = jnp.all(jnp.array([jnp.isfinite(g).all() for g in jax.tree.leaves(gradients)]))
        total = jax.tree.map(lambda s, g: s + jnp.where(good, g, 0.0), total, gradients)
        calls, used = calls + 1, used + good
        full = calls == every
        mean = jax.tree.map(
            lambda s, g: jnp.where(full, s / jnp.maximum(used, 1), 0.0).astype(g.dtype),
            total,
            gradients,
        )
        updates, inner = optimizer.update(mean, inner, params)
        total = jax.tree.map(lambda s: jnp.where(full, 0.0, s), total)
        return updates, (jnp.where(full, 0, calls), jnp.where(full, 0, used), total, inner)

    return GradientTransformation(init, update)


# %% 5.4 wrong: adds up in the dtype of the gradients
# A bfloat16 sum of a large and a small gradient is the large one, and when a gradient of the other
# sign follows, nothing is left. Add up in float32.
# see: 5.5
def accumulate(optimizer, every):
    def init(params):
        total = jax.tree.map(jnp.zeros_like, params)
        return jnp.int32(0), jnp.int32(0), total, optimizer.init(params)

    def update(gradients, state, params):
        calls, used, total, inner = state
        good = jnp.all(jnp.array([jnp.isfinite(g).all() for g in jax.tree.leaves(gradients)]))
        total = jax.tree.map(
            lambda s, g: (s + jnp.where(good, g, jnp.zeros_like(g))).astype(s.dtype),
            total,
            gradients,
        )
        calls, used = calls + 1, used + good
        full = calls == every
        mean = jax.tree.map(
            lambda s, g: (s / jnp.maximum(used, 1)).astype(g.dtype), total, gradients
        )
        updates, new = optimizer.update(mean, inner, params)
        steps = full & (used > 0)
        updates = jax.tree.map(lambda u: jnp.where(steps, u, jnp.zeros_like(u)), updates)
        inner = jax.tree.map(lambda a, b: jnp.where(steps, a, b), new, inner)
        total = jax.tree.map(lambda s: jnp.where(full, jnp.zeros_like(s), s), total)
        return updates, (jnp.where(full, 0, calls), jnp.where(full, 0, used), total, inner)

    return GradientTransformation(init, update)


# %% 5.4 wrong: hands the optimizer a float32 mean
# The sum is float32, and its mean is too: an optimizer that keeps its moments in the dtype of the
# gradients gets others than without the wrapper. Cast the mean back.
# see: 5.5
def accumulate(optimizer, every):
    def init(params):
        total = jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)
        return jnp.int32(0), jnp.int32(0), total, optimizer.init(total)

    def update(gradients, state, params):
        calls, used, total, inner = state
        good = jnp.all(jnp.array([jnp.isfinite(g).all() for g in jax.tree.leaves(gradients)]))
        total = jax.tree.map(lambda s, g: s + jnp.where(good, g, 0.0), total, gradients)
        calls, used = calls + 1, used + good
        full = calls == every
        mean = jax.tree.map(lambda s: s / jnp.maximum(used, 1), total)
        updates, new = optimizer.update(mean, inner, params)
        steps = full & (used > 0)
        updates = jax.tree.map(
            lambda u, g: jnp.where(steps, u, jnp.zeros_like(u)).astype(g.dtype), updates, gradients
        )
        inner = jax.tree.map(lambda a, b: jnp.where(steps, a, b), new, inner)
        total = jax.tree.map(lambda s: jnp.where(full, 0.0, s), total)
        return updates, (jnp.where(full, 0, calls), jnp.where(full, 0, used), total, inner)

    return GradientTransformation(init, update)


# %% 5.4 wrong: looks for NaN leaf by leaf
# A gradient that is broken in one leaf was added in the others, so leaves are averaged over different
# micro-batches. Leave it out as a whole.
# see: 5.10
def accumulate(optimizer, every):
    def init(params):
        total = jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)
        used = jax.tree.map(lambda p: jnp.int32(0), params)
        return jnp.int32(0), used, total, optimizer.init(params)

    def update(gradients, state, params):
        calls, used, total, inner = state
        good = jax.tree.map(lambda g: jnp.isfinite(g).all(), gradients)
        total = jax.tree.map(lambda s, g, ok: s + jnp.where(ok, g, 0.0), total, gradients, good)
        used = jax.tree.map(lambda n, ok: n + ok, used, good)
        calls = calls + 1
        full = calls == every
        mean = jax.tree.map(
            lambda s, n, g: (s / jnp.maximum(n, 1)).astype(g.dtype), total, used, gradients
        )
        updates, new = optimizer.update(mean, inner, params)
        steps = full & jnp.any(jnp.array([n > 0 for n in jax.tree.leaves(used)]))
        updates = jax.tree.map(lambda u: jnp.where(steps, u, jnp.zeros_like(u)), updates)
        inner = jax.tree.map(lambda a, b: jnp.where(steps, a, b), new, inner)
        total = jax.tree.map(lambda s: jnp.where(full, 0.0, s), total)
        used = jax.tree.map(lambda n: jnp.where(full, 0, n), used)
        return updates, (jnp.where(full, 0, calls), used, total, inner)

    return GradientTransformation(init, update)


# %% 5.4 wrong: looks for NaN only
# An infinite gradient is as broken as a NaN: the mean is infinite, and the next difference NaN.
# `jnp.isfinite` finds both.
# see: 5.10
def accumulate(optimizer, every):
    def init(params):
        total = jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)
        return jnp.int32(0), jnp.int32(0), total, optimizer.init(params)

    def update(gradients, state, params):
        calls, used, total, inner = state
        good = ~jnp.any(jnp.array([jnp.isnan(g).any() for g in jax.tree.leaves(gradients)]))
        total = jax.tree.map(lambda s, g: s + jnp.where(good, g, 0.0), total, gradients)
        calls, used = calls + 1, used + good
        full = calls == every
        mean = jax.tree.map(
            lambda s, g: (s / jnp.maximum(used, 1)).astype(g.dtype), total, gradients
        )
        updates, new = optimizer.update(mean, inner, params)
        steps = full & (used > 0)
        updates = jax.tree.map(lambda u: jnp.where(steps, u, jnp.zeros_like(u)), updates)
        inner = jax.tree.map(lambda a, b: jnp.where(steps, a, b), new, inner)
        total = jax.tree.map(lambda s: jnp.where(full, 0.0, s), total)
        return updates, (jnp.where(full, 0, calls), jnp.where(full, 0, used), total, inner)

    return GradientTransformation(init, update)


# %% 5.4 wrong: steps on a mean of nothing
# When all gradients of a window were left out, the optimizer stepped on zeros: decay and momentum
# moved the parameters. There is nothing to step on; its state and the parameters stay.
# see: 5.10
def accumulate(optimizer, every):
    def init(params):
        total = jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)
        return jnp.int32(0), jnp.int32(0), total, optimizer.init(params)

    def update(gradients, state, params):
        calls, used, total, inner = state
        good = jnp.all(jnp.array([jnp.isfinite(g).all() for g in jax.tree.leaves(gradients)]))
        total = jax.tree.map(lambda s, g: s + jnp.where(good, g, 0.0), total, gradients)
        calls, used = calls + 1, used + good
        full = calls == every
        mean = jax.tree.map(
            lambda s, g: (s / jnp.maximum(used, 1)).astype(g.dtype), total, gradients
        )
        updates, new = optimizer.update(mean, inner, params)
        updates = jax.tree.map(lambda u: jnp.where(full, u, jnp.zeros_like(u)), updates)
        inner = jax.tree.map(lambda a, b: jnp.where(full, a, b), new, inner)
        total = jax.tree.map(lambda s: jnp.where(full, 0.0, s), total)
        return updates, (jnp.where(full, 0, calls), jnp.where(full, 0, used), total, inner)

    return GradientTransformation(init, update)


# %% 5.4 wrong: never clears the sum
# The second window starts with the sum of the first. Set sum and counts to zero when a window ends.
# see: 5.10
def accumulate(optimizer, every):
    def init(params):
        total = jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)
        return jnp.int32(0), jnp.int32(0), total, optimizer.init(params)

    def update(gradients, state, params):
        calls, used, total, inner = state
        good = jnp.all(jnp.array([jnp.isfinite(g).all() for g in jax.tree.leaves(gradients)]))
        total = jax.tree.map(lambda s, g: s + jnp.where(good, g, 0.0), total, gradients)
        calls, used = calls + 1, used + good
        full = calls == every
        mean = jax.tree.map(
            lambda s, g: (s / jnp.maximum(used, 1)).astype(g.dtype), total, gradients
        )
        updates, new = optimizer.update(mean, inner, params)
        steps = full & (used > 0)
        updates = jax.tree.map(lambda u: jnp.where(steps, u, jnp.zeros_like(u)), updates)
        inner = jax.tree.map(lambda a, b: jnp.where(steps, a, b), new, inner)
        return updates, (jnp.where(full, 0, calls), jnp.where(full, 0, used), total, inner)

    return GradientTransformation(init, update)


# %% 5.4 wrong: counts the calls in a closure
# Python runs `update` once, while it is traced; the count of that moment is a constant of the program,
# and no window ever ends. Count in the state.
# see: 5.8
def accumulate(optimizer, every):
    calls = 0

    def init(params):
        total = jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)
        return jnp.int32(0), total, optimizer.init(params)

    def update(gradients, state, params):
        nonlocal calls
        used, total, inner = state
        calls += 1
        good = jnp.all(jnp.array([jnp.isfinite(g).all() for g in jax.tree.leaves(gradients)]))
        total = jax.tree.map(lambda s, g: s + jnp.where(good, g, 0.0), total, gradients)
        used = used + good
        if calls % every:
            return jax.tree.map(jnp.zeros_like, params), (used, total, inner)
        mean = jax.tree.map(
            lambda s, g: (s / jnp.maximum(used, 1)).astype(g.dtype), total, gradients
        )
        updates, inner = optimizer.update(mean, inner, params)
        total = jax.tree.map(jnp.zeros_like, total)
        return updates, (jnp.zeros_like(used), total, inner)

    return GradientTransformation(init, update)


# %% 5.5 right: a flat dict for each group
def per_label(optimizers, labels):
    def names(params):
        tree = labels(params) if callable(labels) else labels
        found = jax.tree.leaves(tree)
        for name in set(found).symmetric_difference(optimizers):
            raise ValueError(f"nothing goes with the label {name!r}")
        return found

    def split(tree, found):
        parts = {name: {} for name in optimizers}
        for i, (leaf, name) in enumerate(zip(jax.tree.leaves(tree), found)):
            parts[name][str(i)] = leaf
        return parts

    def init(params):
        parts = split(params, names(params))
        return tuple(optimizer.init(parts[name]) for name, optimizer in optimizers.items())

    def update(gradients, states, params):
        found = names(params)
        g, p = split(gradients, found), split(params, found)
        merged, new = {}, []
        for (name, optimizer), state in zip(optimizers.items(), states):
            updates, state = optimizer.update(g[name], state, p[name])
            merged |= updates
            new.append(state)
        updates = [merged[str(i)] for i in range(len(found))]
        return jax.tree.structure(gradients).unflatten(updates), tuple(new)

    return GradientTransformation(init, update)


# %% 5.5 right: None in the place of other leaves
def per_label(optimizers, labels):
    def labelled(params):
        return labels(params) if callable(labels) else labels

    def only(tree, names, label):
        return jax.tree.map(lambda leaf, name: leaf if name == label else None, tree, names)

    def init(params):
        names = labelled(params)
        used = set(jax.tree.leaves(names))
        if used != set(optimizers):
            raise ValueError(f"{sorted(used)} are labels, {sorted(optimizers)} have optimizers")
        return {label: o.init(only(params, names, label)) for label, o in optimizers.items()}

    def update(gradients, states, params):
        names = labelled(params)
        results, new = [], {}
        for label, optimizer in optimizers.items():
            g, p = only(gradients, names, label), only(params, names, label)
            updates, new[label] = optimizer.update(g, states[label], p)
            results.append(updates)

        def first(*candidates):
            (chosen,) = [leaf for leaf in candidates if leaf is not None]
            return chosen

        return jax.tree.map(first, *results, is_leaf=lambda x: x is None), new

    return GradientTransformation(init, update)


# %% 5.5 right: optax's partition behind a check
def per_label(optimizers, labels):
    import optax

    inner = optax.partition(optimizers, labels)

    def init(params):
        there = set(jax.tree.leaves(labels(params) if callable(labels) else labels))
        missing = there - set(optimizers)
        idle = set(optimizers) - there
        if missing or idle:
            raise ValueError(f"no optimizer for {missing}, no leaf for {idle}")
        return inner.init(params)

    return GradientTransformation(init, inner.update)


# %% 5.5 wrong: leaves it to optax's partition
# `optax.partition` refuses a label without an optimizer, but not an optimizer that no leaf has. A typo
# in the key of an optimizer goes unnoticed.
# see: 5.11
def per_label(optimizers, labels):
    import optax

    return optax.partition(optimizers, labels)


# %% 5.5 wrong: runs all optimizers on all leaves
# Each optimizer ran on the whole tree, and its updates were chosen by label. A limit for the global
# norm then counts the other groups' gradients, and the state holds moments for every leaf and label.
# see: 5.11
def per_label(optimizers, labels):
    def names(params):
        tree = labels(params) if callable(labels) else labels
        lost = set(jax.tree.leaves(tree)) ^ set(optimizers)
        if lost:
            raise ValueError(f"without a partner: {lost}")
        return tree

    def init(params):
        names(params)
        return {label: optimizer.init(params) for label, optimizer in optimizers.items()}

    def update(gradients, states, params):
        results, new = {}, {}
        for label, optimizer in optimizers.items():
            results[label], new[label] = optimizer.update(gradients, states[label], params)
        order = list(optimizers)
        updates = jax.tree.map(
            lambda name, *u: u[order.index(name)], names(params), *[results[o] for o in order]
        )
        return updates, new

    return GradientTransformation(init, update)


# %% 5.5 wrong: zeros in the place of other gradients
# Gradients of other groups were set to zero and the updates of all optimizers added up. AdamW decays
# also where the gradient is zero, so one group's decay reaches the others.
# see: 5.11
def per_label(optimizers, labels):
    def names(params):
        tree = labels(params) if callable(labels) else labels
        lost = set(jax.tree.leaves(tree)) ^ set(optimizers)
        if lost:
            raise ValueError(f"without a partner: {lost}")
        return tree

    def init(params):
        names(params)
        return {label: optimizer.init(params) for label, optimizer in optimizers.items()}

    def update(gradients, states, params):
        tree = names(params)
        total, new = jax.tree.map(jnp.zeros_like, params), {}
        for label, optimizer in optimizers.items():
            g = jax.tree.map(lambda g, n: g if n == label else jnp.zeros_like(g), gradients, tree)
            updates, new[label] = optimizer.update(g, states[label], params)
            total = jax.tree.map(jnp.add, total, updates)
        return total, new

    return GradientTransformation(init, update)


# %% 5.5 wrong: a state of full size for each group
# Gradients and parameters of other groups are zeros, and the values come out right. But each
# optimizer still keeps moments for all leaves: with ten groups, ten times what is needed.
# see: 5.11
def per_label(optimizers, labels):
    def names(params):
        tree = labels(params) if callable(labels) else labels
        lost = set(jax.tree.leaves(tree)) ^ set(optimizers)
        if lost:
            raise ValueError(f"without a partner: {lost}")
        return tree

    def init(params):
        names(params)
        return {label: optimizer.init(params) for label, optimizer in optimizers.items()}

    def update(gradients, states, params):
        tree = names(params)
        total, new = jax.tree.map(jnp.zeros_like, params), {}
        for label, optimizer in optimizers.items():
            only = lambda x, n: x if n == label else jnp.zeros_like(x)
            g, p = jax.tree.map(only, gradients, tree), jax.tree.map(only, params, tree)
            updates, new[label] = optimizer.update(g, states[label], p)
            total = jax.tree.map(jnp.add, total, updates)
        return total, new

    return GradientTransformation(init, update)


# %% 5.5 wrong: a chain of masked optimizers
# `optax.masked` passes on what the mask leaves out, so each optimizer in the chain is right for its
# own leaves. But nothing here notices a label that has no optimizer: its leaves get their raw
# gradients.
# see: 5.11
def per_label(optimizers, labels):
    import optax

    def mask_of(label):
        def mask(params):
            tree = labels(params) if callable(labels) else labels
            return jax.tree.map(lambda name: name == label, tree)

        return mask

    return optax.chain(*[optax.masked(o, mask_of(label)) for label, o in optimizers.items()])


# %% 5.5 wrong: an optimizer for each leaf
# Each leaf got an optimizer of its own. What an optimizer does to all its leaves together, such as
# clipping by their global norm, is done to each by itself.
# see: 5.11
def per_label(optimizers, labels):
    def names(params):
        tree = jax.tree.leaves(labels(params) if callable(labels) else labels)
        lost = set(tree) ^ set(optimizers)
        if lost:
            raise ValueError(f"without a partner: {lost}")
        return tree

    def init(params):
        pairs = zip(jax.tree.leaves(params), names(params))
        return [optimizers[name].init(leaf) for leaf, name in pairs]

    def update(gradients, states, params):
        slopes, structure = jax.tree.flatten(gradients)
        updates, new = [], []
        for g, state, p, name in zip(slopes, states, jax.tree.leaves(params), names(params)):
            u, state = optimizers[name].update(g, state, p)
            updates.append(u)
            new.append(state)
        return structure.unflatten(updates), new

    return GradientTransformation(init, update)


# %% 5.5 wrong: labels must be a tree
# Labels may be a function from the parameters to a tree. Call it if it is callable.
# see: 5.11
def per_label(optimizers, labels):
    def split(tree):
        names = jax.tree.leaves(labels)
        lost = set(names) ^ set(optimizers)
        if lost:
            raise ValueError(f"without a partner: {lost}")
        leaves = jax.tree.leaves(tree)
        return names, {
            label: [leaf for leaf, name in zip(leaves, names, strict=True) if name == label]
            for label in optimizers
        }

    def init(params):
        _, parts = split(params)
        return {label: o.init(parts[label]) for label, o in optimizers.items()}

    def update(gradients, states, params):
        names, g = split(gradients)
        _, p = split(params)
        new, queues = {}, {}
        for label, o in optimizers.items():
            updates, new[label] = o.update(g[label], states[label], p[label])
            queues[label] = iter(updates)
        merged = [next(queues[name]) for name in names]
        return jax.tree.structure(gradients).unflatten(merged), new

    return GradientTransformation(init, update)


# %% 5.5 wrong: a leaf without an optimizer stays where it is
# A label that no optimizer has froze its leaves in silence: a typo looks like a layer that does not
# learn. Refuse it, and name it.
# see: 5.11
def per_label(optimizers, labels):
    def split(tree, params):
        names = jax.tree.leaves(labels(params) if callable(labels) else labels)
        leaves = jax.tree.leaves(tree)
        return names, {
            label: [leaf for leaf, name in zip(leaves, names) if name == label]
            for label in optimizers
        }

    def init(params):
        _, parts = split(params, params)
        return {label: o.init(parts[label]) for label, o in optimizers.items()}

    def update(gradients, states, params):
        names, g = split(gradients, params)
        _, p = split(params, params)
        new, queues = {}, {}
        for label, o in optimizers.items():
            updates, new[label] = o.update(g[label], states[label], p[label])
            queues[label] = iter(updates)
        leaves, structure = jax.tree.flatten(gradients)
        merged = [
            next(queues[name]) if name in queues else jnp.zeros_like(g)
            for g, name in zip(leaves, names)
        ]
        return structure.unflatten(merged), new

    return GradientTransformation(init, update)


# %% 5.5 wrong: a bare KeyError for a typo
# Looking the label up in the dict raises a KeyError, and an optimizer without a leaf raises nothing.
# Compare both sets of names, and raise a ValueError with what is missing.
# see: 5.11
def per_label(optimizers, labels):
    def split(tree, params):
        names = jax.tree.leaves(labels(params) if callable(labels) else labels)
        parts = {label: [] for label in optimizers}
        for leaf, name in zip(jax.tree.leaves(tree), names):
            parts[name].append(leaf)
        return names, parts

    def init(params):
        _, parts = split(params, params)
        return {label: o.init(parts[label]) for label, o in optimizers.items()}

    def update(gradients, states, params):
        names, g = split(gradients, params)
        _, p = split(params, params)
        new, queues = {}, {}
        for label, o in optimizers.items():
            updates, new[label] = o.update(g[label], states[label], p[label])
            queues[label] = iter(updates)
        merged = [next(queues[name]) for name in names]
        return jax.tree.structure(gradients).unflatten(merged), new

    return GradientTransformation(init, update)


# %% 5.5 wrong: refuses without a name
# The error says that something is wrong and not what. Put the label into its message.
# see: 5.11
def per_label(optimizers, labels):
    def split(tree, params):
        names = jax.tree.leaves(labels(params) if callable(labels) else labels)
        if set(names) != set(optimizers):
            raise ValueError("labels and optimizers do not match")
        leaves = jax.tree.leaves(tree)
        return names, {
            label: [leaf for leaf, name in zip(leaves, names) if name == label]
            for label in optimizers
        }

    def init(params):
        _, parts = split(params, params)
        return {label: o.init(parts[label]) for label, o in optimizers.items()}

    def update(gradients, states, params):
        names, g = split(gradients, params)
        _, p = split(params, params)
        new, queues = {}, {}
        for label, o in optimizers.items():
            updates, new[label] = o.update(g[label], states[label], p[label])
            queues[label] = iter(updates)
        merged = [next(queues[name]) for name in names]
        return jax.tree.structure(gradients).unflatten(merged), new

    return GradientTransformation(init, update)


# %% 5.5 wrong: gives the leaves back group by group
# The updates were put together in the order of the groups, not of the leaves: some leaf gets the
# update of another. Remember where each leaf came from.
# see: 5.11
def per_label(optimizers, labels):
    def split(tree, params):
        names = jax.tree.leaves(labels(params) if callable(labels) else labels)
        lost = set(names) ^ set(optimizers)
        if lost:
            raise ValueError(f"without a partner: {lost}")
        leaves = jax.tree.leaves(tree)
        return {
            label: [leaf for leaf, name in zip(leaves, names) if name == label]
            for label in sorted(optimizers)
        }

    def init(params):
        parts = split(params, params)
        return {label: o.init(parts[label]) for label, o in optimizers.items()}

    def update(gradients, states, params):
        g, p = split(gradients, params), split(params, params)
        new, merged = {}, []
        for label in g:
            updates, new[label] = optimizers[label].update(g[label], states[label], p[label])
            merged += updates
        return jax.tree.structure(gradients).unflatten(merged), new

    return GradientTransformation(init, update)
