"""Right and wrong answers to the exercises of chapter 06; parsed, never imported."""
# ruff: noqa


# %% 6.1 right: copies and zeros, leaf by leaf
def fresh_state(params):
    def copy():
        return jax.tree.map(lambda p: jnp.array(p), params)

    def zeros():
        return jax.tree.map(lambda p: jnp.zeros(p.shape, p.dtype), params)

    return dict(params=copy(), ema=copy(), mu=zeros(), nu=zeros(), count=jnp.int32(0))


# %% 6.1 right: the outputs of one program
@jax.jit
def fresh_state(params):
    zeros = jax.tree.map(jnp.zeros_like, params)
    return {
        "params": params,
        "ema": params,
        "mu": zeros,
        "nu": zeros,
        "count": jnp.zeros((), jnp.int32),
    }


# %% 6.1 right: by way of NumPy
def fresh_state(params):
    leaves, structure = jax.tree.flatten(params)
    leaves = [np.array(leaf) for leaf in leaves]

    def tree(factor):
        return structure.unflatten([jnp.array(factor * leaf, leaf.dtype) for leaf in leaves])

    state = {"params": tree(1), "ema": tree(1), "mu": tree(0), "nu": tree(0)}
    return {**state, "count": jnp.array(0, "int32")}


# %% 6.1 wrong: the average is the params
# `ema = params` gives one buffer a second name. The step is asked to overwrite it twice, and refuses.
# Copy each leaf for each of its roles.
# see: 6.6
def fresh_state(params):
    params = jax.tree.map(jnp.copy, params)
    return {
        "params": params,
        "ema": params,
        "mu": jax.tree.map(jnp.zeros_like, params),
        "nu": jax.tree.map(jnp.zeros_like, params),
        "count": jnp.zeros((), jnp.int32),
    }


# %% 6.1 wrong: one tree of zeros for both moments
# Zeros are equal, and that doesn't make them one: mu and nu part ways at the first step. Make a tree
# of zeros for each.
# see: 6.6
def fresh_state(params):
    zeros = jax.tree.map(jnp.zeros_like, params)
    return {
        "params": jax.tree.map(jnp.copy, params),
        "ema": jax.tree.map(jnp.copy, params),
        "mu": zeros,
        "nu": zeros,
        "count": jnp.zeros((), jnp.int32),
    }


# %% 6.1 wrong: takes over the caller's params
# The state holds the caller's own arrays, and the first step that donates the state deletes them.
# Whoever passed the params can't read them any more. Copy them.
# see: 6.6
def fresh_state(params):
    return {
        "params": params,
        "ema": jax.tree.map(jnp.copy, params),
        "mu": jax.tree.map(jnp.zeros_like, params),
        "nu": jax.tree.map(jnp.zeros_like, params),
        "count": jnp.zeros((), jnp.int32),
    }


# %% 6.1 wrong: two names, no copy
# Nothing was copied, neither for the caller nor for the average: `params` written twice is one tree
# under two names. `jnp.asarray` of a JAX array, which gives it back as it is, makes no difference.
# see: 6.6
def fresh_state(params):
    return {
        "params": params,
        "ema": params,
        "mu": jax.tree.map(jnp.zeros_like, params),
        "nu": jax.tree.map(jnp.zeros_like, params),
        "count": jnp.zeros((), jnp.int32),
    }


# %% 6.1 wrong: takes the params for a dict
# A model may be a list of layers, too. `jax.tree.map` doesn't ask what stands at the top.
# see: 6.6
def fresh_state(params):
    def each(fn):
        return {name: jax.tree.map(fn, part) for name, part in params.items()}

    return {
        "params": each(jnp.copy),
        "ema": each(jnp.copy),
        "mu": each(jnp.zeros_like),
        "nu": each(jnp.zeros_like),
        "count": jnp.zeros((), jnp.int32),
    }


# %% 6.1 wrong: copy.deepcopy of the whole tree
# `copy.deepcopy` remembers what it has copied: an array that stands in two places is copied once and
# stands in two places again. Copy leaf by leaf.
# see: 6.6
def fresh_state(params):
    import copy

    return {
        "params": copy.deepcopy(params),
        "ema": copy.deepcopy(params),
        "mu": jax.tree.map(jnp.zeros_like, params),
        "nu": jax.tree.map(jnp.zeros_like, params),
        "count": jnp.zeros((), jnp.int32),
    }


# %% 6.1 wrong: one array of zeros for each shape
# Two leaves of one shape got the same array of zeros. It saves nothing: after the first step they
# hold different numbers, and need two buffers.
# see: 6.6
def fresh_state(params):
    shapes = {p.shape for p in jax.tree.leaves(params)}

    def moments():
        zeros = {shape: jnp.zeros(shape) for shape in shapes}
        return jax.tree.map(lambda p: zeros[p.shape].astype(p.dtype), params)

    return {
        "params": jax.tree.map(jnp.copy, params),
        "ema": jax.tree.map(jnp.copy, params),
        "mu": moments(),
        "nu": moments(),
        "count": jnp.zeros((), jnp.int32),
    }


# %% 6.1 wrong: forgets the dtype
# `jnp.zeros(shape)` is float32, whatever the parameter is. The first step promotes or casts, and a
# buffer of another dtype is of no use to the result. `jnp.zeros_like` keeps the dtype.
# see: 6.4
def fresh_state(params):
    return {
        "params": jax.tree.map(jnp.copy, params),
        "ema": jax.tree.map(jnp.copy, params),
        "mu": jax.tree.map(lambda p: jnp.zeros(p.shape), params),
        "nu": jax.tree.map(lambda p: jnp.zeros(p.shape), params),
        "count": jnp.zeros((), jnp.int32),
    }


# %% 6.1 wrong: a count that is a Python number
# A Python 0 has no buffer to donate, and it is weakly typed: the second step gets an array in its
# place and compiles again. Make it a JAX array of int32.
# see: 6.8
def fresh_state(params):
    return {
        "params": jax.tree.map(jnp.copy, params),
        "ema": jax.tree.map(jnp.copy, params),
        "mu": jax.tree.map(jnp.zeros_like, params),
        "nu": jax.tree.map(jnp.zeros_like, params),
        "count": 0,
    }


# %% 6.1 wrong: the average starts at zero
# An average that starts at zero needs Adam's correction, and the task asks for one that starts at
# the params.
# see: 6.6
def fresh_state(params):
    return {
        "params": jax.tree.map(jnp.copy, params),
        "ema": jax.tree.map(jnp.zeros_like, params),
        "mu": jax.tree.map(jnp.zeros_like, params),
        "nu": jax.tree.map(jnp.zeros_like, params),
        "count": jnp.zeros((), jnp.int32),
    }


# %% 6.1 wrong: knows one model only
# The params of the first example have "embed" and "layers"; others don't. `jax.tree.map` goes
# through whatever nest there is.
# see: 6.6
def fresh_state(params):
    def each(fn):
        layers = [{"w": fn(layer["w"]), "b": fn(layer["b"])} for layer in params["layers"]]
        return {"embed": fn(params["embed"]), "layers": layers}

    return {
        "params": each(jnp.copy),
        "ema": each(jnp.copy),
        "mu": each(jnp.zeros_like),
        "nu": each(jnp.zeros_like),
        "count": jnp.zeros((), jnp.int32),
    }


# %% 6.1 wrong: a state of NumPy arrays
# NumPy's arrays can't be donated: each step copies them to the device first. The state is JAX's from
# the start.
# see: 6.6
def fresh_state(params):
    return {
        "params": jax.tree.map(np.array, params),
        "ema": jax.tree.map(np.array, params),
        "mu": jax.tree.map(np.zeros_like, params),
        "nu": jax.tree.map(np.zeros_like, params),
        "count": np.zeros((), np.int32),
    }


# %% 6.2 right: slopes by hand, the state donated by name
@partial(jax.jit, donate_argnames="state")
def momentum_step(state, x, y, rate):
    p, t = state["params"], state["trace"]
    error = x @ p["w"].astype(x.dtype) + p["b"].astype(x.dtype) - y
    g = {"w": 2 * error @ x / len(y), "b": 2 * jnp.mean(error)}
    good = jnp.isfinite(g["w"]).all() & jnp.isfinite(g["b"])
    new_t = {name: jnp.where(good, 0.9 * t[name] + g[name], t[name]) for name in t}
    new_p = {name: jnp.where(good, p[name] - rate * new_t[name], p[name]) for name in p}
    new_p, new_t = (
        {name: leaf.astype(p[name].dtype) for name, leaf in tree.items()} for tree in (new_p, new_t)
    )
    return {"params": new_p, "step": state["step"] + 1, "trace": new_t}, jnp.mean(error**2)


# %% 6.2 right: plain Python around a jitted update, with a cond
def _update(params, trace, step, x, y, rate):
    value, slopes = jax.value_and_grad(squared_error)(params, x, y)
    total = sum(jnp.sum(jnp.abs(slope.astype(jnp.float32))) for slope in jax.tree.leaves(slopes))

    def move(params, trace):
        trace = jax.tree.map(lambda t, g: jnp.asarray(0.9 * t + g, t.dtype), trace, slopes)
        return jax.tree.map(lambda p, t: jnp.asarray(p - rate * t, p.dtype), params, trace), trace

    good = jnp.isfinite(total)
    params, trace = jax.lax.cond(good, move, lambda params, trace: (params, trace), params, trace)
    return params, trace, step + 1, value


_update = jax.jit(_update, donate_argnums=(0, 1, 2))


def momentum_step(state, x, y, rate):
    params, trace, step, loss = _update(state["params"], state["trace"], state["step"], x, y, rate)
    return {"params": params, "trace": trace, "step": step}, loss


# %% 6.2 right: the course's optimizer, in a class
class _Stepper:
    def __init__(self):
        self.compiled = jax.jit(self.one, donate_argnums=0)

    @staticmethod
    def one(state, x, y, rate):
        from helpers.optim import TraceState, apply_updates, trace

        params, old = state["params"], state["trace"]
        value, slopes = jax.value_and_grad(squared_error)(params, x, y)
        good = jax.tree.reduce(
            jnp.logical_and, jax.tree.map(lambda g: jnp.isfinite(g).all(), slopes)
        )
        slopes = jax.tree.map(lambda g: jnp.where(good, g, 0), slopes)
        updates, new = trace(0.9).update(slopes, TraceState(old), params)
        moved = apply_updates(
            params, jax.tree.map(lambda u: jnp.where(good, -rate * u, 0), updates)
        )
        kept = jax.tree.map(lambda n, o: jnp.where(good, n, o), new.trace, old)
        return {"params": moved, "trace": kept, "step": state["step"] + 1}, value

    def __call__(self, *args):
        return self.compiled(*args)


momentum_step = _Stepper()


# %% 6.2 wrong: donates nothing
# The old state and the new one are in memory together. Either nothing says `donate_argnums`, or an
# inner function says it, which another jit calls: there it is ignored without a word.
# see: 6.3
@jax.jit
def momentum_step(state, x, y, rate):
    loss, slopes = jax.value_and_grad(squared_error)(state["params"], x, y)
    good = jnp.all(jnp.array([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(slopes)]))
    trace = jax.tree.map(
        lambda t, g: jnp.where(good, 0.9 * t + g, t).astype(t.dtype), state["trace"], slopes
    )
    params = jax.tree.map(
        lambda p, t: jnp.where(good, p - rate * t, p).astype(p.dtype), state["params"], trace
    )
    return {"params": params, "step": state["step"] + 1, "trace": trace}, loss


# %% 6.2 wrong: donates the batch too
# No result has the batch's shape: JAX warns that the buffers were not usable, and the day that one
# has, the next epoch finds its batch deleted. Donate what comes back.
# see: 6.4
@partial(jax.jit, donate_argnums=(0, 1, 2))
def momentum_step(state, x, y, rate):
    loss, slopes = jax.value_and_grad(squared_error)(state["params"], x, y)
    good = jnp.all(jnp.array([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(slopes)]))
    trace = jax.tree.map(
        lambda t, g: jnp.where(good, 0.9 * t + g, t).astype(t.dtype), state["trace"], slopes
    )
    params = jax.tree.map(
        lambda p, t: jnp.where(good, p - rate * t, p).astype(p.dtype), state["params"], trace
    )
    return {"params": params, "step": state["step"] + 1, "trace": trace}, loss


# %% 6.2 wrong: donates the wrong argument
# `donate_argnums` counts from 0: 1 is the first half of the batch. The state is argument 0.
# see: 6.2
@partial(jax.jit, donate_argnums=1)
def momentum_step(state, x, y, rate):
    loss, slopes = jax.value_and_grad(squared_error)(state["params"], x, y)
    good = jnp.all(jnp.array([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(slopes)]))
    trace = jax.tree.map(
        lambda t, g: jnp.where(good, 0.9 * t + g, t).astype(t.dtype), state["trace"], slopes
    )
    params = jax.tree.map(
        lambda p, t: jnp.where(good, p - rate * t, p).astype(p.dtype), state["params"], trace
    )
    return {"params": params, "step": state["step"] + 1, "trace": trace}, loss


# %% 6.2 wrong: donates the params, not the trace
# The trace is as large as the params, and its old copy is still kept beside the new one. Donate the
# whole state.
# see: 6.8
@partial(jax.jit, donate_argnums=0)
def _update(params, trace, step, x, y, rate):
    loss, slopes = jax.value_and_grad(squared_error)(params, x, y)
    good = jnp.all(jnp.array([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(slopes)]))
    trace = jax.tree.map(
        lambda t, g: jnp.where(good, 0.9 * t + g, t).astype(t.dtype), trace, slopes
    )
    params = jax.tree.map(
        lambda p, t: jnp.where(good, p - rate * t, p).astype(p.dtype), params, trace
    )
    return params, trace, step + 1, loss


def momentum_step(state, x, y, rate):
    params, trace, step, loss = _update(state["params"], state["trace"], state["step"], x, y, rate)
    return {"params": params, "trace": trace, "step": step}, loss


# %% 6.2 wrong: counts the steps outside
# `state["step"] + 1` outside the program is a program of its own, and it does not donate: the old
# count stays. All of the state belongs into the one step.
# see: 6.8
@partial(jax.jit, donate_argnums=(0, 1))
def _update(params, trace, x, y, rate):
    loss, slopes = jax.value_and_grad(squared_error)(params, x, y)
    good = jnp.all(jnp.array([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(slopes)]))
    trace = jax.tree.map(
        lambda t, g: jnp.where(good, 0.9 * t + g, t).astype(t.dtype), trace, slopes
    )
    params = jax.tree.map(
        lambda p, t: jnp.where(good, p - rate * t, p).astype(p.dtype), params, trace
    )
    return params, trace, loss


def momentum_step(state, x, y, rate):
    params, trace, loss = _update(state["params"], state["trace"], x, y, rate)
    return {"params": params, "trace": trace, "step": state["step"] + 1}, loss


# %% 6.2 wrong: lets the rate promote the state
# A float32 rate times a float16 trace is float32, so the new params don't fit into the old buffer.
# JAX says nothing: the donation has no effect, and the next step compiles again. Cast each result
# to the dtype of its leaf.
# see: 6.4
@partial(jax.jit, donate_argnums=0)
def momentum_step(state, x, y, rate):
    loss, slopes = jax.value_and_grad(squared_error)(state["params"], x, y)
    good = jnp.all(jnp.array([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(slopes)]))
    trace = jax.tree.map(lambda t, g: jnp.where(good, 0.9 * t + g, t), state["trace"], slopes)
    params = jax.tree.map(lambda p, t: jnp.where(good, p - rate * t, p), state["params"], trace)
    return {"params": params, "step": state["step"] + 1, "trace": trace}, loss


# %% 6.2 wrong: a static rate
# A static argument is part of the key: each new rate compiles a new program. As an ordinary argument
# it costs nothing.
# see: 6.8
@partial(jax.jit, donate_argnums=0, static_argnums=3)
def _static(state, x, y, rate):
    loss, slopes = jax.value_and_grad(squared_error)(state["params"], x, y)
    good = jnp.all(jnp.array([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(slopes)]))
    trace = jax.tree.map(
        lambda t, g: jnp.where(good, 0.9 * t + g, t).astype(t.dtype), state["trace"], slopes
    )
    params = jax.tree.map(
        lambda p, t: jnp.where(good, p - rate * t, p).astype(p.dtype), state["params"], trace
    )
    return {"params": params, "step": state["step"] + 1, "trace": trace}, loss


def momentum_step(state, x, y, rate):
    return _static(state, x, y, float(rate))


# %% 6.2 wrong: jit inside the step
# `jax.jit` makes a new function with an empty cache each time it is called. Make it once, outside.
# see: 6.8
def _pure(state, x, y, rate):
    loss, slopes = jax.value_and_grad(squared_error)(state["params"], x, y)
    good = jnp.all(jnp.array([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(slopes)]))
    trace = jax.tree.map(
        lambda t, g: jnp.where(good, 0.9 * t + g, t).astype(t.dtype), state["trace"], slopes
    )
    params = jax.tree.map(
        lambda p, t: jnp.where(good, p - rate * t, p).astype(p.dtype), state["params"], trace
    )
    return {"params": params, "step": state["step"] + 1, "trace": trace}, loss


def momentum_step(state, x, y, rate):
    return jax.jit(lambda state: _pure(state, x, y, rate), donate_argnums=0)(state)


# %% 6.2 wrong: the loss after the step
# The loss was computed with the params that the step had just made. `jax.value_and_grad` gives the
# loss at the params that it differentiates, and costs nothing extra.
# see: 6.8
@partial(jax.jit, donate_argnums=0)
def momentum_step(state, x, y, rate):
    loss, slopes = jax.value_and_grad(squared_error)(state["params"], x, y)
    good = jnp.all(jnp.array([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(slopes)]))
    trace = jax.tree.map(
        lambda t, g: jnp.where(good, 0.9 * t + g, t).astype(t.dtype), state["trace"], slopes
    )
    params = jax.tree.map(
        lambda p, t: jnp.where(good, p - rate * t, p).astype(p.dtype), state["params"], trace
    )
    return {"params": params, "step": state["step"] + 1, "trace": trace}, squared_error(
        params, x, y
    )


# %% 6.2 wrong: reads the old state after the step
# The old state's buffers were given away in the line above: its params are deleted. Let the step
# return what you want to know, or ask before it.
# see: 6.5
@partial(jax.jit, donate_argnums=0)
def _update(state, x, y, rate):
    loss, slopes = jax.value_and_grad(squared_error)(state["params"], x, y)
    good = jnp.all(jnp.array([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(slopes)]))
    trace = jax.tree.map(
        lambda t, g: jnp.where(good, 0.9 * t + g, t).astype(t.dtype), state["trace"], slopes
    )
    params = jax.tree.map(
        lambda p, t: jnp.where(good, p - rate * t, p).astype(p.dtype), state["params"], trace
    )
    return {"params": params, "step": state["step"] + 1, "trace": trace}


def momentum_step(state, x, y, rate):
    new = _update(state, x, y, rate)
    return new, squared_error(state["params"], x, y)


# %% 6.2 wrong: moves by the old trace
# The params move by the trace of the step before, so the first step doesn't move them at all. Update
# the trace first, then move by it.
# see: 6.8
@partial(jax.jit, donate_argnums=0)
def momentum_step(state, x, y, rate):
    loss, slopes = jax.value_and_grad(squared_error)(state["params"], x, y)
    good = jnp.all(jnp.array([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(slopes)]))
    trace = jax.tree.map(
        lambda t, g: jnp.where(good, 0.9 * t + g, t).astype(t.dtype), state["trace"], slopes
    )
    params = jax.tree.map(
        lambda p, t: jnp.where(good, p - rate * t, p).astype(p.dtype),
        state["params"],
        state["trace"],
    )
    return {"params": params, "step": state["step"] + 1, "trace": trace}, loss


# %% 6.2 wrong: keeps a view of the params for a log
# On a CPU `np.asarray` looks into the params' own buffer, and as long as somebody looks, it can't be
# given away: the step copies instead, and says nothing. `jnp.copy` copies and lets go.
# see: 6.10
_log = []


@partial(jax.jit, donate_argnums=0)
def _update(state, x, y, rate):
    loss, slopes = jax.value_and_grad(squared_error)(state["params"], x, y)
    good = jnp.all(jnp.array([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(slopes)]))
    trace = jax.tree.map(
        lambda t, g: jnp.where(good, 0.9 * t + g, t).astype(t.dtype), state["trace"], slopes
    )
    params = jax.tree.map(
        lambda p, t: jnp.where(good, p - rate * t, p).astype(p.dtype), state["params"], trace
    )
    return {"params": params, "step": state["step"] + 1, "trace": trace}, loss


def momentum_step(state, x, y, rate):
    _log.append(np.asarray(state["params"]["w"]))
    return _update(state, x, y, rate)


# %% 6.2 wrong: no guard
# One NaN among the labels makes NaN of all params, for good. Decide inside the program, where the old
# and the new values are both at hand.
# see: 6.5
@partial(jax.jit, donate_argnums=0)
def momentum_step(state, x, y, rate):
    loss, slopes = jax.value_and_grad(squared_error)(state["params"], x, y)
    trace = jax.tree.map(lambda t, g: (0.9 * t + g).astype(t.dtype), state["trace"], slopes)
    params = jax.tree.map(lambda p, t: (p - rate * t).astype(p.dtype), state["params"], trace)
    return {"params": params, "step": state["step"] + 1, "trace": trace}, loss


# %% 6.2 wrong: decides after the step
# If the step was bad, go back to the old state: but that was donated, and there is nothing to go back
# to. Decide inside the program.
# see: 6.5
@partial(jax.jit, donate_argnums=0)
def _update(state, x, y, rate):
    loss, slopes = jax.value_and_grad(squared_error)(state["params"], x, y)
    trace = jax.tree.map(lambda t, g: (0.9 * t + g).astype(t.dtype), state["trace"], slopes)
    params = jax.tree.map(lambda p, t: (p - rate * t).astype(p.dtype), state["params"], trace)
    return {"params": params, "step": state["step"] + 1, "trace": trace}, loss


def momentum_step(state, x, y, rate):
    new, loss = _update(state, x, y, rate)
    if np.isfinite(loss):
        return new, loss
    return state | {"step": new["step"]}, loss


# %% 6.2 wrong: guards the params, not the trace
# The params stay, and the trace is NaN: the next step adds it to the params. Whatever the slope flows
# into has to stay.
# see: 6.5
@partial(jax.jit, donate_argnums=0)
def momentum_step(state, x, y, rate):
    loss, slopes = jax.value_and_grad(squared_error)(state["params"], x, y)
    good = jnp.all(jnp.array([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(slopes)]))
    trace = jax.tree.map(lambda t, g: (0.9 * t + g).astype(t.dtype), state["trace"], slopes)
    params = jax.tree.map(
        lambda p, t: jnp.where(good, p - rate * t, p).astype(p.dtype), state["params"], trace
    )
    return {"params": params, "step": state["step"] + 1, "trace": trace}, loss


# %% 6.2 wrong: looks for NaN only
# An infinite slope is not finite either, and the step after it makes NaN of it. `jnp.isfinite` finds
# both.
# see: 6.5
@partial(jax.jit, donate_argnums=0)
def momentum_step(state, x, y, rate):
    loss, slopes = jax.value_and_grad(squared_error)(state["params"], x, y)
    good = jnp.all(jnp.array([jnp.all(~jnp.isnan(g)) for g in jax.tree.leaves(slopes)]))
    trace = jax.tree.map(
        lambda t, g: jnp.where(good, 0.9 * t + g, t).astype(t.dtype), state["trace"], slopes
    )
    params = jax.tree.map(
        lambda p, t: jnp.where(good, p - rate * t, p).astype(p.dtype), state["params"], trace
    )
    return {"params": params, "step": state["step"] + 1, "trace": trace}, loss


# %% 6.2 wrong: looks at the loss only
# A slope can be too large for its dtype while the loss, or the slope of another parameter, is not. Every
# entry of every slope decides.
# see: 6.5
@partial(jax.jit, donate_argnums=0)
def momentum_step(state, x, y, rate):
    loss, slopes = jax.value_and_grad(squared_error)(state["params"], x, y)
    good = jnp.isfinite(loss)
    trace = jax.tree.map(
        lambda t, g: jnp.where(good, 0.9 * t + g, t).astype(t.dtype), state["trace"], slopes
    )
    params = jax.tree.map(
        lambda p, t: jnp.where(good, p - rate * t, p).astype(p.dtype), state["params"], trace
    )
    return {"params": params, "step": state["step"] + 1, "trace": trace}, loss


# %% 6.2 wrong: refuses slopes whose squares overflow
# A norm is infinite, and so is a loss, where no slope is: a square of 1e20 is out of float32's
# range. Ask each entry.
# see: 6.5
@partial(jax.jit, donate_argnums=0)
def momentum_step(state, x, y, rate):
    loss, slopes = jax.value_and_grad(squared_error)(state["params"], x, y)
    squares = [jnp.sum(jnp.square(g.astype(jnp.float32))) for g in jax.tree.leaves(slopes)]
    good = jnp.isfinite(jnp.sqrt(sum(squares)))
    trace = jax.tree.map(
        lambda t, g: jnp.where(good, 0.9 * t + g, t).astype(t.dtype), state["trace"], slopes
    )
    params = jax.tree.map(
        lambda p, t: jnp.where(good, p - rate * t, p).astype(p.dtype), state["params"], trace
    )
    return {"params": params, "step": state["step"] + 1, "trace": trace}, loss


# %% 6.2 wrong: decides entry by entry
# Where one entry of a slope is not finite, nothing may move: half a step is a step in another direction.
# One decision for all leaves.
# see: 6.5
@partial(jax.jit, donate_argnums=0)
def momentum_step(state, x, y, rate):
    loss, slopes = jax.value_and_grad(squared_error)(state["params"], x, y)

    def keep_or(new, old):
        return jnp.where(jnp.isfinite(new), new, old).astype(old.dtype)

    trace = jax.tree.map(lambda t, g: keep_or(0.9 * t + g, t), state["trace"], slopes)
    params = jax.tree.map(lambda p, t: keep_or(p - rate * t, p), state["params"], trace)
    return {"params": params, "step": state["step"] + 1, "trace": trace}, loss


# %% 6.2 wrong: a bad slope counts as 0
# With slopes of 0 the trace still decays, and the params still move along it. In a bad step both stay
# exactly as they were.
# see: 6.5
@partial(jax.jit, donate_argnums=0)
def momentum_step(state, x, y, rate):
    loss, slopes = jax.value_and_grad(squared_error)(state["params"], x, y)
    good = jnp.all(jnp.array([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(slopes)]))
    slopes = jax.tree.map(lambda g: jnp.where(good, g, 0), slopes)
    trace = jax.tree.map(lambda t, g: (0.9 * t + g).astype(t.dtype), state["trace"], slopes)
    params = jax.tree.map(lambda p, t: (p - rate * t).astype(p.dtype), state["params"], trace)
    return {"params": params, "step": state["step"] + 1, "trace": trace}, loss


# %% 6.2 wrong: nan_to_num of the slopes
# `jnp.nan_to_num` makes 0 of a NaN and the largest number of an infinity, and the step goes on with
# these. A bad step must not move anything.
# see: 6.5
@partial(jax.jit, donate_argnums=0)
def momentum_step(state, x, y, rate):
    loss, slopes = jax.value_and_grad(squared_error)(state["params"], x, y)
    slopes = jax.tree.map(jnp.nan_to_num, slopes)
    trace = jax.tree.map(lambda t, g: (0.9 * t + g).astype(t.dtype), state["trace"], slopes)
    params = jax.tree.map(lambda p, t: (p - rate * t).astype(p.dtype), state["params"], trace)
    return {"params": params, "step": state["step"] + 1, "trace": trace}, loss


# %% 6.2 wrong: does not count the bad step
# The task counts every step, the bad ones too: a schedule goes on, and the log has no gap. The count
# depends on no slope.
# see: 6.8
@partial(jax.jit, donate_argnums=0)
def momentum_step(state, x, y, rate):
    loss, slopes = jax.value_and_grad(squared_error)(state["params"], x, y)
    good = jnp.all(jnp.array([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(slopes)]))
    trace = jax.tree.map(
        lambda t, g: jnp.where(good, 0.9 * t + g, t).astype(t.dtype), state["trace"], slopes
    )
    params = jax.tree.map(
        lambda p, t: jnp.where(good, p - rate * t, p).astype(p.dtype), state["params"], trace
    )
    return {"params": params, "step": state["step"] + good.astype(jnp.int32), "trace": trace}, loss


# %% 6.3 right: copies in NumPy, made from copies in JAX
def snapshot(state):
    return jax.tree.map(lambda x: np.array(jnp.array(x, copy=True)), state)


# %% 6.3 right: another program's outputs
snapshot = jax.jit(lambda state: state)


# %% 6.3 right: deepcopy
def snapshot(state):
    from copy import deepcopy

    return deepcopy(state)


# %% 6.3 wrong: the state itself
# A second name for the state is no copy of it. The next step deletes the arrays, whatever they are
# called.
# see: 6.9
def snapshot(state):
    return state


# %% 6.3 wrong: new containers around the old arrays
# `jax.tree.map` builds new dicts and lists, but `lambda x: x`, `jnp.asarray`, `x[...]` and
# `jax.device_put` put the same buffers into them. Copy the arrays.
# see: 6.6
def snapshot(state):
    return jax.tree.map(lambda x: x, state)


# %% 6.3 wrong: a view, by np.asarray or jax.device_get
# On a CPU both look into the buffer instead of copying it. The snapshot is right and stays right,
# because no step dares to reuse the buffer while it lives: every one copies the whole state.
# `jnp.copy` copies.
# see: 6.10
def snapshot(state):
    return jax.tree.map(np.asarray, state)


# %% 6.3 wrong: everything in float32
# The snapshot can't be loaded back: a step counter has become a float, and bfloat16 float32. Keep
# each leaf's dtype.
# see: 6.9
def snapshot(state):
    return jax.tree.map(lambda x: np.array(jnp.copy(x), dtype=np.float32), state)


# %% 6.3 wrong: copies the matrices, not the scalars
# A scalar is an array like any other, with a buffer that is donated. The step counter of this
# snapshot is deleted by the next step.
# see: 6.9
def snapshot(state):
    return jax.tree.map(lambda x: jnp.copy(x) if x.ndim else x, state)


# %% 6.3 wrong: one set of buffers for all snapshots
# Each snapshot overwrites the one before, because all are the same NumPy arrays. That is fine for
# "the latest", and loses the history.
# see: 6.9
_kept = {}


def snapshot(state):
    leaves, structure = jax.tree.flatten(state)
    for i, leaf in enumerate(leaves):
        place = _kept.setdefault((i, leaf.shape, str(leaf.dtype)), np.empty(leaf.shape, leaf.dtype))
        place[...] = np.array(jnp.copy(leaf))
    places = [_kept[i, leaf.shape, str(leaf.dtype)] for i, leaf in enumerate(leaves)]
    return jax.tree.unflatten(structure, places)


# %% 6.3 wrong: donates the state to its snapshot
# A copy that donates its argument is a move: the snapshot is alive, and the state is gone. A
# snapshot must not donate.
# see: 6.5
_move = jax.jit(lambda state: jax.tree.map(lambda x: x + 0, state), donate_argnums=0)


def snapshot(state):
    return _move(state)


# %% 6.3 wrong: the params only
# A run that goes on from this snapshot starts with an empty optimizer and at step 0. Take the whole
# state.
# see: 6.9
def snapshot(state):
    return jax.tree.map(jnp.copy, state["params"])


# %% 6.4 right: a scatter with slots modulo the length
@partial(jax.jit, donate_argnames="cache")
def append(cache, k, v):
    length, new = cache["k"].shape[0], k.shape[0]
    slots = jnp.mod(cache["count"] + jax.lax.iota(jnp.int32, new), length)
    return dict(
        k=cache["k"].at[slots].set(k, unique_indices=True),
        v=cache["v"].at[slots].set(v, unique_indices=True),
        count=cache["count"] + new,
    )


# %% 6.4 right: row by row in a loop
@partial(jax.jit, donate_argnums=(0,))
def append(cache, k, v):
    length = len(cache["k"])

    def write(i, cache):
        slot = (cache["count"] % length, 0)
        row = {name: jax.lax.dynamic_slice_in_dim(a, i, 1) for name, a in (("k", k), ("v", v))}
        new = {n: jax.lax.dynamic_update_slice(cache[n], row[n], slot) for n in ("k", "v")}
        return new | {"count": cache["count"] + 1}

    return jax.lax.fori_loop(0, len(k), write, cache)


# %% 6.4 right: each slot picks its row
def _pick(cache, k, v):
    length, rows = cache["k"].shape[0], k.shape[0]
    behind = (jnp.arange(length) - cache["count"]) % length
    new = (behind < rows)[:, None]
    source = jnp.clip(behind, 0, rows - 1)
    return {
        "count": cache["count"] + rows,
        "k": jnp.where(new, jnp.asarray(k)[source], cache["k"]),
        "v": jnp.where(new, jnp.asarray(v)[source], cache["v"]),
    }


append = jax.jit(_pick, donate_argnums=0)


# %% 6.4 right: a scan over the rows
class _Appender:
    @staticmethod
    @partial(jax.jit, donate_argnums=0)
    def all_rows(cache, k, v):
        def one(cache, row):
            slot = cache["count"] % cache["k"].shape[0]
            k, v = cache["k"].at[slot].set(row[0]), cache["v"].at[slot].set(row[1])
            return {"k": k, "v": v, "count": cache["count"] + 1}, None

        return jax.lax.scan(one, cache, (k, v))[0]

    def __call__(self, cache, k, v):
        return self.all_rows(cache, k, v)


append = _Appender()


# %% 6.4 wrong: not donated
# The slots are right, but each append makes a new cache and copies all the old rows into it.
# see: 6.3
@jax.jit
def append(cache, k, v):
    slots = (cache["count"] + jnp.arange(len(k))) % len(cache["k"])
    return {
        "k": cache["k"].at[slots].set(k),
        "v": cache["v"].at[slots].set(v),
        "count": cache["count"] + len(k),
    }


# %% 6.4 wrong: a slice that is clamped at the end
# `dynamic_update_slice` does not wrap: a slice that would stick out is moved back until it fits, so
# the rows land in wrong slots and overwrite others. Work out a slot for each row.
# see: 6.11
@partial(jax.jit, donate_argnums=0)
def append(cache, k, v):
    start = cache["count"] % len(cache["k"])
    return {
        "k": jax.lax.dynamic_update_slice_in_dim(cache["k"], k, start, axis=0),
        "v": jax.lax.dynamic_update_slice_in_dim(cache["v"], v, start, axis=0),
        "count": cache["count"] + len(k),
    }


# %% 6.4 wrong: no modulo
# From row number `length` on the slots don't exist, and `.at[…].set` drops what has no slot, without
# an error. Take the slots modulo the length.
# see: 6.11
@partial(jax.jit, donate_argnums=0)
def append(cache, k, v):
    slots = cache["count"] + jnp.arange(len(k))
    return {
        "k": cache["k"].at[slots].set(k),
        "v": cache["v"].at[slots].set(v),
        "count": cache["count"] + len(k),
    }


# %% 6.4 wrong: only the start is taken modulo
# The first row has the right slot, and those that stick out at the end are dropped. The modulo
# belongs to each row's slot.
# see: 6.11
@partial(jax.jit, donate_argnums=0)
def append(cache, k, v):
    slots = cache["count"] % len(cache["k"]) + jnp.arange(len(k))
    return {
        "k": cache["k"].at[slots].set(k),
        "v": cache["v"].at[slots].set(v),
        "count": cache["count"] + len(k),
    }


# %% 6.4 wrong: shifts the old rows
# A window that moves has the newest row last, and moves every row at every append. In a ring a row
# stays in its slot until it is overwritten.
# see: 6.11
@partial(jax.jit, donate_argnums=0)
def append(cache, k, v):
    return {
        "k": jnp.concatenate([cache["k"][len(k) :], k]),
        "v": jnp.concatenate([cache["v"][len(v) :], v]),
        "count": cache["count"] + len(k),
    }


# %% 6.4 wrong: rolls the cache to write at the front
# The numbers are right and the buffer is donated, but each roll makes a copy of the whole cache on
# the side. A donation doesn't make a program work in place: look at its temporary memory.
# see: 6.11
@partial(jax.jit, donate_argnums=0)
def append(cache, k, v):
    start = cache["count"] % len(cache["k"])

    def put(buffer, rows):
        front = jnp.roll(buffer, -start, axis=0).at[: len(rows)].set(rows)
        return jnp.roll(front, start, axis=0)

    return {
        "k": put(cache["k"], k),
        "v": put(cache["v"], v),
        "count": cache["count"] + len(k),
    }


# %% 6.4 wrong: a program for each position
# The position was taken out of the array and made static, so that every append compiles anew. An
# index may be a traced number.
# see: 6.11
@partial(jax.jit, donate_argnums=0, static_argnums=3)
def _append_at(cache, k, v, start):
    slots = (start + np.arange(len(k))) % len(cache["k"])
    return {
        "k": cache["k"].at[slots].set(k),
        "v": cache["v"].at[slots].set(v),
        "count": cache["count"] + len(k),
    }


def append(cache, k, v):
    return _append_at(cache, k, v, cache["count"].item())


# %% 6.4 wrong: wraps the count
# The count is how many rows were ever written. Taken modulo the length it no longer says whether the
# cache is full. Only the slots wrap.
# see: 6.11
@partial(jax.jit, donate_argnums=0)
def append(cache, k, v):
    length = len(cache["k"])
    slots = (cache["count"] + jnp.arange(len(k))) % length
    return {
        "k": cache["k"].at[slots].set(k),
        "v": cache["v"].at[slots].set(v),
        "count": (cache["count"] + len(k)) % length,
    }


# %% 6.4 wrong: counts first
# The count went up before the slots were worked out, so every row lands too far on by the size of the
# append.
# see: 6.11
@partial(jax.jit, donate_argnums=0)
def append(cache, k, v):
    count = cache["count"] + len(k)
    slots = (count + jnp.arange(len(k))) % len(cache["k"])
    return {"k": cache["k"].at[slots].set(k), "v": cache["v"].at[slots].set(v), "count": count}


# %% 6.4 wrong: counts the rows outside the program
# The rows are written in place, but `cache["count"] + …` outside the program is a program of its own,
# which does not donate: the old count stays beside the new one.
# see: 6.8
@partial(jax.jit, donate_argnums=(0, 1))
def _write(keys, values, count, k, v):
    slots = (count + jnp.arange(len(k))) % len(keys)
    return keys.at[slots].set(k), values.at[slots].set(v)


def append(cache, k, v):
    count = cache["count"]
    keys, values = _write(cache["k"], cache["v"], count, k, v)
    return {"k": keys, "v": values, "count": count + len(k)}


# %% 6.4 wrong: knows one number of rows
# Any number of rows from 1 to the length may come. `jnp.squeeze` and broadcasting, or an assertion that
# there are several, take a single row for something else.
# see: 6.11
@partial(jax.jit, donate_argnums=0)
def append(cache, k, v):
    assert 1 < len(k) < len(cache["k"])
    slots = (cache["count"] + jnp.arange(len(k))) % len(cache["k"])
    return {
        "k": cache["k"].at[slots].set(k),
        "v": cache["v"].at[slots].set(v),
        "count": cache["count"] + len(k),
    }


# %% 6.4 wrong: reads the count in Python
# `int(cache["count"])` works as long as the count is an array. Under somebody else's jit it is a tracer,
# which has no value yet. Compute the slots with jnp.
# see: 6.11
@partial(jax.jit, donate_argnums=0)
def _put(cache, k, v, slots):
    return {
        "k": cache["k"].at[slots].set(k),
        "v": cache["v"].at[slots].set(v),
        "count": cache["count"] + len(k),
    }


def append(cache, k, v):
    slots = (int(np.array(cache["count"])) + np.arange(len(k))) % len(cache["k"])
    return _put(cache, k, v, slots)


# %% 6.4 wrong: goes through NumPy
# A cache that is copied to NumPy, changed there and copied back is never donated, and can't be part
# of a larger program.
# see: 6.11
def append(cache, k, v):
    keys, values = np.array(cache["k"]), np.array(cache["v"])
    count = cache["count"].item()
    slots = (count + np.arange(len(k))) % len(keys)
    keys[slots], values[slots] = k, v
    count = jnp.array(count + len(k), jnp.int32)
    return {"k": jnp.array(keys), "v": jnp.array(values), "count": count}


# %% 6.5 right: slopes by hand
def start(params):
    head = jax.tree.map(jnp.array, params["head"])
    trace = jax.tree.map(lambda p: jnp.zeros(p.shape, p.dtype), head)
    return {"head": head, "trace": trace, "step": jnp.zeros((), jnp.int32)}, params["body"]


@partial(jax.jit, donate_argnames="state")
def finetune_step(state, frozen, x, y):
    hidden = jnp.tanh(x @ frozen["w"] + frozen["b"])
    error = hidden @ state["head"]["w"] + state["head"]["b"] - y
    slope = {"w": 2 * error @ hidden / len(y), "b": 2 * jnp.mean(error)}
    trace = {name: 0.9 * state["trace"][name] + slope[name] for name in slope}
    head = {name: state["head"][name] - 0.1 * trace[name] for name in slope}
    return {"head": head, "trace": trace, "step": state["step"] + 1}, jnp.mean(error**2)


# %% 6.5 right: all params passed along, the head of the state in their place
@jax.jit
def _fresh(head):
    return {"head": head, "trace": jax.tree.map(jnp.zeros_like, head)}


def start(params):
    return _fresh(params["head"]), params


def _loss(head, params, x, y):
    params = params | {"head": head}
    hidden = jax.nn.tanh(jnp.dot(x, params["body"]["w"]) + params["body"]["b"])
    residual = hidden @ params["head"]["w"] + params["head"]["b"] - y
    return jnp.sum(residual**2) / y.size


@partial(jax.jit, donate_argnums=0)
def finetune_step(state, frozen, x, y):
    loss, slopes = jax.value_and_grad(_loss)(state["head"], frozen, x, y)
    trace = jax.tree.map(lambda t, g: g + 0.9 * t, state["trace"], slopes)
    head = jax.tree.map(lambda p, t: p - 0.1 * t, state["head"], trace)
    return {"head": head, "trace": trace}, loss


# %% 6.5 right: a tuple of leaves is frozen
def start(params):
    head = jax.tree.map(jnp.copy, params["head"])
    state = {"head": head, "momentum": [jnp.zeros_like(head["w"]), jnp.zeros_like(head["b"])]}
    return state, (params["body"]["w"], params["body"]["b"])


def _tuned(state, frozen, x, y):
    w, b = frozen
    features = jnp.tanh(jnp.einsum("ni,ih->nh", x, w) + b)
    loss, (gw, gb) = jax.value_and_grad(
        lambda w, b: jnp.mean((features @ w + b - y) ** 2), argnums=(0, 1)
    )(state["head"]["w"], state["head"]["b"])
    mw, mb = (0.9 * m + g for m, g in zip(state["momentum"], (gw, gb)))
    head = {"w": state["head"]["w"] - 0.1 * mw, "b": state["head"]["b"] - 0.1 * mb}
    return {"head": head, "momentum": [mw, mb]}, loss


finetune_step = jax.jit(_tuned, donate_argnums=[0])


# %% 6.5 wrong: donates the frozen layers too
# Nothing comes back that could lie in the frozen layers' buffers, so JAX warns that they were not
# usable; the day a result has their shape, they are gone, and with them all other trainings. Donate
# the state alone.
# see: 6.12
def start(params):
    head = jax.tree.map(jnp.copy, params["head"])
    return {"head": head, "trace": jax.tree.map(jnp.zeros_like, head)}, params["body"]


@partial(jax.jit, donate_argnums=(0, 1))
def finetune_step(state, frozen, x, y):
    def loss(head):
        hidden = jnp.tanh(x @ frozen["w"] + frozen["b"])
        return jnp.mean((hidden @ head["w"] + head["b"] - y) ** 2)

    value, slopes = jax.value_and_grad(loss)(state["head"])
    trace = jax.tree.map(lambda t, g: 0.9 * t + g, state["trace"], slopes)
    head = jax.tree.map(lambda p, t: p - 0.1 * t, state["head"], trace)
    return {"head": head, "trace": trace}, value


# %% 6.5 wrong: the pretrained head itself
# The state took over the pretrained head, and the first step deletes it: the second training can't
# start. What will be donated has to be copied first.
# see: 6.12
def start(params):
    head = params["head"]
    return {"head": head, "trace": jax.tree.map(jnp.zeros_like, head)}, params["body"]


@partial(jax.jit, donate_argnums=0)
def finetune_step(state, frozen, x, y):
    def loss(head):
        hidden = jnp.tanh(x @ frozen["w"] + frozen["b"])
        return jnp.mean((hidden @ head["w"] + head["b"] - y) ** 2)

    value, slopes = jax.value_and_grad(loss)(state["head"])
    trace = jax.tree.map(lambda t, g: 0.9 * t + g, state["trace"], slopes)
    head = jax.tree.map(lambda p, t: p - 0.1 * t, state["head"], trace)
    return {"head": head, "trace": trace}, value


# %% 6.5 wrong: copies the frozen layers for each training
# What is never donated needs no copy: ten trainings can read one and the same body. Here each of them
# holds its own.
# see: 6.12
def start(params):
    params = jax.tree.map(jnp.copy, params)
    head = params["head"]
    return {"head": head, "trace": jax.tree.map(jnp.zeros_like, head)}, params["body"]


@partial(jax.jit, donate_argnums=0)
def finetune_step(state, frozen, x, y):
    def loss(head):
        hidden = jnp.tanh(x @ frozen["w"] + frozen["b"])
        return jnp.mean((hidden @ head["w"] + head["b"] - y) ** 2)

    value, slopes = jax.value_and_grad(loss)(state["head"])
    trace = jax.tree.map(lambda t, g: 0.9 * t + g, state["trace"], slopes)
    head = jax.tree.map(lambda p, t: p - 0.1 * t, state["head"], trace)
    return {"head": head, "trace": trace}, value


# %% 6.5 wrong: carries the frozen layers through the state
# A body inside the donated state is one more copy for each training, in and out of every step, for
# numbers that never change. Pass it beside the state.
# see: 6.12
def start(params):
    state = jax.tree.map(jnp.copy, params)
    return state | {"trace": jax.tree.map(jnp.zeros_like, params["head"])}, ()


@partial(jax.jit, donate_argnums=0)
def finetune_step(state, frozen, x, y):
    def loss(head):
        hidden = jnp.tanh(x @ state["body"]["w"] + state["body"]["b"])
        return jnp.mean((hidden @ head["w"] + head["b"] - y) ** 2)

    value, slopes = jax.value_and_grad(loss)(state["head"])
    trace = jax.tree.map(lambda t, g: 0.9 * t + g, state["trace"], slopes)
    head = jax.tree.map(lambda p, t: p - 0.1 * t, state["head"], trace)
    return {"body": state["body"], "head": head, "trace": trace}, value


# %% 6.5 wrong: puts the pretrained body itself into the donated state
# The body was not copied, but it is donated with the rest of the state: the first step deletes the
# pretrained layers.
# see: 6.12
def start(params):
    head = jax.tree.map(jnp.copy, params["head"])
    state = {"head": head, "body": params["body"]}
    return state | {"trace": jax.tree.map(jnp.zeros_like, head)}, ()


@partial(jax.jit, donate_argnums=0)
def finetune_step(state, frozen, x, y):
    def loss(head):
        hidden = jnp.tanh(x @ state["body"]["w"] + state["body"]["b"])
        return jnp.mean((hidden @ head["w"] + head["b"] - y) ** 2)

    value, slopes = jax.value_and_grad(loss)(state["head"])
    trace = jax.tree.map(lambda t, g: 0.9 * t + g, state["trace"], slopes)
    head = jax.tree.map(lambda p, t: p - 0.1 * t, state["head"], trace)
    return {"body": state["body"], "head": head, "trace": trace}, value


# %% 6.5 wrong: trains the body too
# The body moves as well: the gradient was taken for all params. Differentiate with respect to the
# head alone.
# see: 6.12
def start(params):
    state = {"head": params["head"], "body": params["body"]}
    state = jax.tree.map(jnp.copy, state)
    return {"trace": jax.tree.map(jnp.zeros_like, state), **state}, ()


@partial(jax.jit, donate_argnums=0)
def finetune_step(state, frozen, x, y):
    def loss(params):
        hidden = jnp.tanh(x @ params["body"]["w"] + params["body"]["b"])
        return jnp.mean((hidden @ params["head"]["w"] + params["head"]["b"] - y) ** 2)

    params = {"head": state["head"], "body": state["body"]}
    value, slopes = jax.value_and_grad(loss)(params)
    trace = jax.tree.map(lambda t, g: 0.9 * t + g, state["trace"], slopes)
    params = jax.tree.map(lambda p, t: p - 0.1 * t, params, trace)
    return {"trace": trace, **params}, value


# %% 6.5 wrong: bakes the body into the program
# A step that reads the body from outside is traced with its numbers: they are constants of the
# program, in memory once more, and another body needs another program. Pass it as an argument.
# see: 6.12
def start(params):
    body = params["body"]

    @partial(jax.jit, donate_argnums=0)
    def step(state, x, y):
        def loss(head):
            hidden = jnp.tanh(x @ body["w"] + body["b"])
            return jnp.mean((hidden @ head["w"] + head["b"] - y) ** 2)

        value, slopes = jax.value_and_grad(loss)(state["head"])
        trace = jax.tree.map(lambda t, g: 0.9 * t + g, state["trace"], slopes)
        head = jax.tree.map(lambda p, t: p - 0.1 * t, state["head"], trace)
        return {"head": head, "trace": trace}, value

    head = jax.tree.map(jnp.copy, params["head"])
    return {"head": head, "trace": jax.tree.map(jnp.zeros_like, head)}, step


def finetune_step(state, frozen, x, y):
    return frozen(state, x, y)


# %% 6.5 wrong: keeps the body in a global name
# A module holds one body, and three trainings need two. The last one that started wins, and the
# others train their head on its features. Pass the body along with the state.
# see: 6.12
_body = None


def start(params):
    global _body
    _body = params["body"]
    head = jax.tree.map(jnp.copy, params["head"])
    return {"head": head, "trace": jax.tree.map(jnp.zeros_like, head)}, ()


@partial(jax.jit, donate_argnums=0)
def _tuned(state, body, x, y):
    def loss(head):
        hidden = jnp.tanh(x @ body["w"] + body["b"])
        return jnp.mean((hidden @ head["w"] + head["b"] - y) ** 2)

    value, slopes = jax.value_and_grad(loss)(state["head"])
    trace = jax.tree.map(lambda t, g: 0.9 * t + g, state["trace"], slopes)
    head = jax.tree.map(lambda p, t: p - 0.1 * t, state["head"], trace)
    return {"head": head, "trace": trace}, value


def finetune_step(state, frozen, x, y):
    return _tuned(state, _body, x, y)


# %% 6.5 wrong: donates nothing
# Nothing dies, and nothing is saved: the head and its trace are in memory twice during each step.
# see: 6.8
def start(params):
    head = jax.tree.map(jnp.copy, params["head"])
    return {"head": head, "trace": jax.tree.map(jnp.zeros_like, head)}, params["body"]


@jax.jit
def finetune_step(state, frozen, x, y):
    def loss(head):
        hidden = jnp.tanh(x @ frozen["w"] + frozen["b"])
        return jnp.mean((hidden @ head["w"] + head["b"] - y) ** 2)

    value, slopes = jax.value_and_grad(loss)(state["head"])
    trace = jax.tree.map(lambda t, g: 0.9 * t + g, state["trace"], slopes)
    head = jax.tree.map(lambda p, t: p - 0.1 * t, state["head"], trace)
    return {"head": head, "trace": trace}, value


# %% 6.5 wrong: starts from a new head
# The task is to go on from the pretrained head. A head of zeros throws away what it had learned.
# see: 6.12
def start(params):
    head = jax.tree.map(jnp.zeros_like, params["head"])
    return {"head": head, "trace": jax.tree.map(jnp.zeros_like, head)}, params["body"]


@partial(jax.jit, donate_argnums=0)
def finetune_step(state, frozen, x, y):
    def loss(head):
        hidden = jnp.tanh(x @ frozen["w"] + frozen["b"])
        return jnp.mean((hidden @ head["w"] + head["b"] - y) ** 2)

    value, slopes = jax.value_and_grad(loss)(state["head"])
    trace = jax.tree.map(lambda t, g: 0.9 * t + g, state["trace"], slopes)
    head = jax.tree.map(lambda p, t: p - 0.1 * t, state["head"], trace)
    return {"head": head, "trace": trace}, value


# %% 6.5 wrong: plain descent, without the trace
# No trace comes back changed, or there is none in the state: that is gradient descent without momentum.
# see: 6.12
def start(params):
    head = jax.tree.map(jnp.copy, params["head"])
    return {"head": head, "trace": jax.tree.map(jnp.zeros_like, head)}, params["body"]


@partial(jax.jit, donate_argnums=0)
def finetune_step(state, frozen, x, y):
    def loss(head):
        hidden = jnp.tanh(x @ frozen["w"] + frozen["b"])
        return jnp.mean((hidden @ head["w"] + head["b"] - y) ** 2)

    value, slopes = jax.value_and_grad(loss)(state["head"])
    head = jax.tree.map(lambda p, g: p - 0.1 * g, state["head"], slopes)
    return {"head": head, "trace": state["trace"]}, value


# %% 6.5 wrong: the loss after the step
# The loss was computed with the head that the step had just made. `jax.value_and_grad` gives the loss at
# the params that it differentiates.
# see: 6.8
def start(params):
    head = jax.tree.map(jnp.copy, params["head"])
    return {"head": head, "trace": jax.tree.map(jnp.zeros_like, head)}, params["body"]


@partial(jax.jit, donate_argnums=0)
def finetune_step(state, frozen, x, y):
    def loss(head):
        hidden = jnp.tanh(x @ frozen["w"] + frozen["b"])
        return jnp.mean((hidden @ head["w"] + head["b"] - y) ** 2)

    value, slopes = jax.value_and_grad(loss)(state["head"])
    trace = jax.tree.map(lambda t, g: 0.9 * t + g, state["trace"], slopes)
    head = jax.tree.map(lambda p, t: p - 0.1 * t, state["head"], trace)
    return {"head": head, "trace": trace}, loss(head)


# %% 6.5 wrong: one copy for the head and its trace
# A trace that starts as the head is no trace of zeros, and one copy under two names can't take two
# results: JAX refuses the first step. Each leaf of a donated state needs a buffer of its own.
# see: 6.6
def start(params):
    head = jax.tree.map(jnp.copy, params["head"])
    return {"head": head, "trace": head}, params["body"]


@partial(jax.jit, donate_argnums=0)
def finetune_step(state, frozen, x, y):
    def loss(head):
        hidden = jnp.tanh(x @ frozen["w"] + frozen["b"])
        return jnp.mean((hidden @ head["w"] + head["b"] - y) ** 2)

    value, slopes = jax.value_and_grad(loss)(state["head"])
    trace = jax.tree.map(lambda t, g: 0.9 * t + g, state["trace"], slopes)
    head = jax.tree.map(lambda p, t: p - 0.1 * t, state["head"], trace)
    return {"head": head, "trace": trace}, value
