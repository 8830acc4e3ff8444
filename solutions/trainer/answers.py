"""Right and wrong answers to the exercises of chapter 09; parsed, never imported."""
# ruff: noqa


# %% 9.1 right: a scan over full micro-batches, then the rest
def accumulated_grad(loss, params, batch, rows):
    n = len(jax.tree.leaves(batch)[0])
    full = n // rows

    def add(sums, part):
        size = len(jax.tree.leaves(part)[0])
        value, grads = jax.value_and_grad(loss)(params, part)
        grads = jax.tree.map(lambda g: size * g.astype(jnp.float32), grads)
        return jax.tree.map(jnp.add, sums, (size * value.astype(jnp.float32), grads)), None

    sums = (jnp.float32(0), jax.tree.map(lambda p: jnp.zeros(p.shape), params))
    parts = jax.tree.map(lambda x: x[: full * rows].reshape(full, rows, *x.shape[1:]), batch)
    sums, _ = jax.lax.scan(add, sums, parts)
    if n % rows:
        sums, _ = add(sums, jax.tree.map(lambda x: x[full * rows :], batch))
    value, grads = jax.tree.map(lambda s: s / n, sums)
    return value, jax.tree.map(lambda g, p: g.astype(p.dtype), grads, params)


# %% 9.1 right: a fori_loop over slices, in any order
def accumulated_grad(loss, params, batch, rows):
    n = jax.tree.leaves(batch)[0].shape[0]
    rest = n % rows

    def part(start, size):
        cut = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, start, size), batch)
        value, grads = jax.value_and_grad(loss)(params, cut)
        return jax.tree.map(lambda g: g.astype("float32") * (size / n), (value, grads))

    total = (jnp.zeros(()), jax.tree.map(lambda p: jnp.zeros(p.shape, "float32"), params))
    if rest:
        total = part(0, rest)
    if n >= rows:
        total = jax.lax.fori_loop(
            0,
            n // rows,
            lambda i, t: jax.tree.map(jnp.add, t, part(rest + i * rows, rows)),
            total,
        )
    return total[0], jax.tree.map(lambda g, p: g.astype(p.dtype), total[1], params)


# %% 9.1 right: the gradient of a mean whose parts are recomputed
def accumulated_grad(loss, params, batch, rows):
    n = len(jax.tree.leaves(batch)[0])
    wide = jax.tree.map(lambda p: p.astype(jnp.float32), params)
    whole = n - n % rows

    def mean(wide):
        narrow = lambda: jax.tree.map(lambda w, p: w.astype(p.dtype), wide, params)

        @jax.checkpoint
        def one(part):
            return jnp.float32(loss(narrow(), part))

        head = jax.tree.map(lambda x: x[:whole].reshape(-1, rows, *x.shape[1:]), batch)
        total = rows * jnp.sum(jax.lax.map(one, head)) if whole else 0.0
        if n > whole:
            total += (n - whole) * one(jax.tree.map(lambda x: x[whole:], batch))
        return total / n

    value, grads = jax.value_and_grad(mean)(wide)
    return value, jax.tree.map(lambda g, p: g.astype(p.dtype), grads, params)


# %% 9.1 wrong: the mean of the micro-batches' means
# The rest has fewer rows and weighs as much as a full micro-batch. Weigh each mean with its rows, and
# divide by all of them once.
# see: 9.3
def accumulated_grad(loss, params, batch, rows):
    n = len(jax.tree.leaves(batch)[0])
    full = n // rows

    def add(sums, part):
        value, grads = jax.value_and_grad(loss)(params, part)
        grads = jax.tree.map(lambda g: g.astype(jnp.float32), grads)
        return jax.tree.map(jnp.add, sums, (value.astype(jnp.float32), grads)), None

    sums = (jnp.float32(0), jax.tree.map(lambda p: jnp.zeros(p.shape), params))
    parts = jax.tree.map(lambda x: x[: full * rows].reshape(full, rows, *x.shape[1:]), batch)
    sums, _ = jax.lax.scan(add, sums, parts)
    if n % rows:
        sums, _ = add(sums, jax.tree.map(lambda x: x[full * rows :], batch))
    value, grads = jax.tree.map(lambda s: s / -(-n // rows), sums)
    return value, jax.tree.map(lambda g, p: g.astype(p.dtype), grads, params)


# %% 9.1 wrong: leaves the rest out
# `n // rows` micro-batches do not hold the last rows of the batch. They count too.
# see: 9.3
def accumulated_grad(loss, params, batch, rows):
    full = len(jax.tree.leaves(batch)[0]) // rows

    def add(sums, part):
        value, grads = jax.value_and_grad(loss)(params, part)
        grads = jax.tree.map(lambda g: g.astype(jnp.float32), grads)
        return jax.tree.map(jnp.add, sums, (value.astype(jnp.float32), grads)), None

    sums = (jnp.float32(0), jax.tree.map(lambda p: jnp.zeros(p.shape), params))
    parts = jax.tree.map(lambda x: x[: full * rows].reshape(full, rows, *x.shape[1:]), batch)
    sums, _ = jax.lax.scan(add, sums, parts)
    value, grads = jax.tree.map(lambda s: s / full if full else s, sums)
    return value, jax.tree.map(lambda g, p: g.astype(p.dtype), grads, params)


# %% 9.1 wrong: adds up and never divides
# The sum over the micro-batches is as many times too long as there are micro-batches, and so is the
# step. Divide by the rows once, at the end.
# see: 9.3
def accumulated_grad(loss, params, batch, rows):
    n = len(jax.tree.leaves(batch)[0])
    full = n // rows

    def add(sums, part):
        value, grads = jax.value_and_grad(loss)(params, part)
        grads = jax.tree.map(lambda g: g.astype(jnp.float32), grads)
        return jax.tree.map(jnp.add, sums, (value.astype(jnp.float32), grads)), None

    sums = (jnp.float32(0), jax.tree.map(lambda p: jnp.zeros(p.shape), params))
    parts = jax.tree.map(lambda x: x[: full * rows].reshape(full, rows, *x.shape[1:]), batch)
    sums, _ = jax.lax.scan(add, sums, parts)
    if n % rows:
        sums, _ = add(sums, jax.tree.map(lambda x: x[full * rows :], batch))
    value, grads = sums
    return value, jax.tree.map(lambda g, p: g.astype(p.dtype), grads, params)


# %% 9.1 wrong: pads the rest with zeros
# Rows of zeros have a loss of their own, and a mean over them is another mean. Without a mask in the
# loss there is nothing to pad with: call it with the rows that are left.
# see: 9.3
def accumulated_grad(loss, params, batch, rows):
    n = len(jax.tree.leaves(batch)[0])
    full = -(-n // rows)

    def padded(x):
        x = jnp.pad(x, [(0, full * rows - n)] + [(0, 0)] * (x.ndim - 1))
        return x.reshape(full, rows, *x.shape[1:])

    def add(sums, part):
        value, grads = jax.value_and_grad(loss)(params, part)
        grads = jax.tree.map(lambda g: g.astype(jnp.float32), grads)
        return jax.tree.map(jnp.add, sums, (value.astype(jnp.float32), grads)), None

    sums = (jnp.float32(0), jax.tree.map(lambda p: jnp.zeros(p.shape), params))
    sums, _ = jax.lax.scan(add, sums, jax.tree.map(padded, batch))
    value, grads = jax.tree.map(lambda s: s / full, sums)
    return value, jax.tree.map(lambda g, p: g.astype(p.dtype), grads, params)


# %% 9.1 wrong: pads, and divides by the real rows
# Divided by the right number, but the rows of zeros are still in the sum: the loss of a row of zeros is
# not 0, nor is its gradient. Call the loss with the rows that are left.
# see: 9.3
def accumulated_grad(loss, params, batch, rows):
    n = len(jax.tree.leaves(batch)[0])
    full = -(-n // rows)

    def padded(x):
        x = jnp.pad(x, [(0, full * rows - n)] + [(0, 0)] * (x.ndim - 1))
        return x.reshape(full, rows, *x.shape[1:])

    def add(sums, part):
        value, grads = jax.value_and_grad(loss)(params, part)
        found = jax.tree.map(lambda g: rows * g.astype(jnp.float32), (value, grads))
        return jax.tree.map(jnp.add, sums, found), None

    sums = (jnp.float32(0), jax.tree.map(lambda p: jnp.zeros(p.shape), params))
    sums, _ = jax.lax.scan(add, sums, jax.tree.map(padded, batch))
    value, grads = jax.tree.map(lambda s: s / n, sums)
    return value, jax.tree.map(lambda g, p: g.astype(p.dtype), grads, params)


# %% 9.1 wrong: lets the last slice be clamped
# `dynamic_slice` moves a slice that would stick out back until it fits, so some rows are counted
# twice. The rest needs a slice of its own length.
# see: 9.3
def accumulated_grad(loss, params, batch, rows):
    n = len(jax.tree.leaves(batch)[0])
    size = min(rows, n)
    full = -(-n // size)

    def add(i, sums):
        part = jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, i * size, size), batch)
        value, grads = jax.value_and_grad(loss)(params, part)
        grads = jax.tree.map(lambda g: g.astype(jnp.float32), grads)
        return jax.tree.map(jnp.add, sums, (value.astype(jnp.float32), grads))

    sums = (jnp.float32(0), jax.tree.map(lambda p: jnp.zeros(p.shape), params))
    value, grads = jax.tree.map(lambda s: s / full, jax.lax.fori_loop(0, full, add, sums))
    return value, jax.tree.map(lambda g, p: g.astype(p.dtype), grads, params)


# %% 9.1 wrong: a Python loop
# Under jit a Python loop is unrolled: the loss is traced, compiled and stored once for each
# micro-batch. `lax.scan` and `fori_loop` trace it once for all of them.
# see: 9.3
def accumulated_grad(loss, params, batch, rows):
    n = len(jax.tree.leaves(batch)[0])
    total = jnp.float32(0)
    sums = jax.tree.map(lambda p: jnp.zeros(p.shape), params)
    for start in range(0, n, rows):
        part = jax.tree.map(lambda x: x[start : start + rows], batch)
        share = min(rows, n - start) / n
        value, grads = jax.value_and_grad(loss)(params, part)
        total += share * value.astype(jnp.float32)
        sums = jax.tree.map(lambda s, g: s + share * g.astype(jnp.float32), sums, grads)
    return total, jax.tree.map(lambda s, p: s.astype(p.dtype), sums, params)


# %% 9.1 wrong: vmap over the micro-batches
# `vmap` does all micro-batches at once: the rows are cut up and all of them are in memory again.
# A loop on the device holds one micro-batch at a time.
# see: 9.3
def accumulated_grad(loss, params, batch, rows):
    n = len(jax.tree.leaves(batch)[0])
    whole = n - n % rows
    values, grads = [], []
    if whole:
        parts = jax.tree.map(lambda x: x[:whole].reshape(-1, rows, *x.shape[1:]), batch)
        value, grad = jax.vmap(jax.value_and_grad(loss), (None, 0))(params, parts)
        values.append(rows * jnp.sum(value.astype(jnp.float32)))
        grads.append(jax.tree.map(lambda g: rows * jnp.sum(g.astype(jnp.float32), 0), grad))
    if n > whole:
        rest = jax.tree.map(lambda x: x[whole:], batch)
        value, grad = jax.value_and_grad(loss)(params, rest)
        values.append((n - whole) * value.astype(jnp.float32))
        grads.append(jax.tree.map(lambda g: (n - whole) * g.astype(jnp.float32), grad))
    mean = jax.tree.map(lambda p, *gs: (sum(gs) / n).astype(p.dtype), params, *grads)
    return sum(values) / n, mean


# %% 9.1 wrong: a gradient of each micro-batch
# `lax.map` returns the gradients of all micro-batches, stacked, and they are added up at the end: as many
# copies of the parameters as there are micro-batches. Add up in the carry of a scan.
# see: 9.3
def accumulated_grad(loss, params, batch, rows):
    n = len(jax.tree.leaves(batch)[0])
    whole = n - n % rows

    def one(part):
        found = jax.value_and_grad(loss)(params, part)
        return jax.tree.map(lambda f: rows * f.astype(jnp.float32), found)

    sums = (jnp.float32(0), jax.tree.map(lambda p: jnp.zeros(p.shape), params))
    if whole:
        parts = jax.tree.map(lambda x: x[:whole].reshape(-1, rows, *x.shape[1:]), batch)
        sums = jax.tree.map(lambda stack: jnp.sum(stack, axis=0), jax.lax.map(one, parts))
    if n > whole:
        rest = jax.value_and_grad(loss)(params, jax.tree.map(lambda x: x[whole:], batch))
        sums = jax.tree.map(lambda s, f: s + (n - whole) * f.astype(jnp.float32), sums, rest)
    value, grads = jax.tree.map(lambda s: s / n, sums)
    return value, jax.tree.map(lambda g, p: g.astype(p.dtype), grads, params)


# %% 9.1 wrong: differentiates the loop
# The gradient of a scanned loss is right. But to go backward through a scan JAX keeps what each turn of it
# computed: the activations of all micro-batches. Take the gradient inside the loop.
# see: 9.3
def accumulated_grad(loss, params, batch, rows):
    n = len(jax.tree.leaves(batch)[0])
    whole = n - n % rows

    def mean(wide):
        narrow = jax.tree.map(lambda w, p: w.astype(p.dtype), wide, params)
        total = jnp.float32(0)
        if whole:
            parts = jax.tree.map(lambda x: x[:whole].reshape(-1, rows, *x.shape[1:]), batch)

            def add(total, part):
                return total + rows * loss(narrow, part).astype(jnp.float32), None

            total, _ = jax.lax.scan(add, total, parts)
        if n > whole:
            rest = jax.tree.map(lambda x: x[whole:], batch)
            total += (n - whole) * loss(narrow, rest).astype(jnp.float32)
        return total / n

    wide = jax.tree.map(lambda p: p.astype(jnp.float32), params)
    value, grads = jax.value_and_grad(mean)(wide)
    return value, jax.tree.map(lambda g, p: g.astype(p.dtype), grads, params)


# %% 9.1 wrong: a batch is a dict with an x
# Nothing says that the batch has an "x": it is a pytree, which may be one array, a tuple, or a dict with
# other keys. Any of its leaves knows the number of rows.
# see: 9.3
def accumulated_grad(loss, params, batch, rows):
    n = len(batch["x"])
    full = n // rows

    def add(sums, part):
        share = len(part["x"]) / n
        found = jax.value_and_grad(loss)(params, part)
        return jax.tree.map(lambda s, x: s + share * x.astype(s.dtype), sums, found), None

    sums = (jnp.zeros(()), jax.tree.map(lambda p: jnp.zeros(p.shape), params))
    parts = jax.tree.map(lambda x: x[: full * rows].reshape(full, rows, *x.shape[1:]), batch)
    sums, _ = jax.lax.scan(add, sums, parts)
    if n % rows:
        sums, _ = add(sums, jax.tree.map(lambda x: x[full * rows :], batch))
    return sums[0], jax.tree.map(lambda g, p: g.astype(p.dtype), sums[1], params)


# %% 9.1 wrong: the whole batch at once
# The numbers are right, and all rows are in memory together, which is what had to be avoided.
# see: 9.3
def accumulated_grad(loss, params, batch, rows):
    return jax.value_and_grad(loss)(params, batch)


# %% 9.1 wrong: adds up in float16
# A sum in float16 has eleven bits: what is smaller than its last bit is lost, however often it comes.
# Add up in float32 and cast once, at the end.
# see: 9.3
def accumulated_grad(loss, params, batch, rows):
    n = len(jax.tree.leaves(batch)[0])
    full = n // rows

    def add(sums, part):
        share = len(jax.tree.leaves(part)[0]) / n
        value, grads = jax.value_and_grad(loss)(params, part)
        return jax.tree.map(
            lambda s, x: s + (share * x).astype(s.dtype), sums, (value, grads)
        ), None

    dtype = jax.tree.leaves(params)[0].dtype
    sums = (jnp.zeros((), dtype), jax.tree.map(jnp.zeros_like, params))
    parts = jax.tree.map(lambda x: x[: full * rows].reshape(full, rows, *x.shape[1:]), batch)
    sums, _ = jax.lax.scan(add, sums, parts)
    if n % rows:
        sums, _ = add(sums, jax.tree.map(lambda x: x[full * rows :], batch))
    return sums


# %% 9.1 wrong: returns the float32 sums as they are
# A gradient has the dtype of its parameter. In float32 it promotes a float16 state in the next step.
# see: 9.3
def accumulated_grad(loss, params, batch, rows):
    n = len(jax.tree.leaves(batch)[0])
    full = n // rows

    def add(sums, part):
        share = len(jax.tree.leaves(part)[0]) / n
        value, grads = jax.value_and_grad(loss)(params, part)
        return jax.tree.map(lambda s, x: s + share * x.astype(s.dtype), sums, (value, grads)), None

    sums = (jnp.zeros(()), jax.tree.map(lambda p: jnp.zeros(p.shape), params))
    parts = jax.tree.map(lambda x: x[: full * rows].reshape(full, rows, *x.shape[1:]), batch)
    sums, _ = jax.lax.scan(add, sums, parts)
    if n % rows:
        sums, _ = add(sums, jax.tree.map(lambda x: x[full * rows :], batch))
    return sums


# %% 9.1 wrong: the loss of the last micro-batch
# The gradient is that of the whole batch, and the loss that is returned that of its last rows. Carry
# both through the loop.
# see: 9.3
def accumulated_grad(loss, params, batch, rows):
    n = len(jax.tree.leaves(batch)[0])
    full = n // rows

    def add(sums, part):
        share = len(jax.tree.leaves(part)[0]) / n
        value, grads = jax.value_and_grad(loss)(params, part)
        sums = jax.tree.map(lambda s, g: s + share * g.astype(jnp.float32), sums, grads)
        return sums, value

    sums = jax.tree.map(lambda p: jnp.zeros(p.shape), params)
    parts = jax.tree.map(lambda x: x[: full * rows].reshape(full, rows, *x.shape[1:]), batch)
    sums, values = jax.lax.scan(add, sums, parts)
    if n % rows:
        sums, value = add(sums, jax.tree.map(lambda x: x[full * rows :], batch))
    else:
        value = values[-1]
    return value, jax.tree.map(lambda g, p: g.astype(p.dtype), sums, params)


# %% 9.2 right: counts both series
def start_scale(initial):
    return {"scale": jnp.float32(initial), "good": jnp.int32(0), "bad": jnp.int32(0)}


def next_scale(state, finite, interval, patience):
    good = jnp.where(finite, state["good"] + 1, 0)
    bad = jnp.where(finite, 0, state["bad"] + 1)
    up, down = good >= interval, bad >= patience
    scale = jnp.where(up, 2 * state["scale"], jnp.where(down, state["scale"] / 2, state["scale"]))
    return {
        "scale": jnp.clip(scale, 1.0, 2.0**24),
        "good": jnp.where(up, 0, good),
        "bad": jnp.where(down, 0, bad),
    }


def unscale(state, grads):
    fair = jax.tree.map(lambda g: g.astype(jnp.float32) / state["scale"], grads)
    finite = jnp.all(jnp.array([jnp.isfinite(g).all() for g in jax.tree.leaves(fair)]))
    return jax.tree.map(lambda g: jnp.where(finite, g, 0), fair), finite


# %% 9.2 right: one signed counter and a cond
def start_scale(initial):
    return {"scale": jnp.array(initial, "float32"), "series": jnp.array(0)}


def next_scale(state, finite, interval, patience):
    series = state["series"]
    series = jnp.where(finite, jnp.maximum(series, 0) + 1, jnp.minimum(series, 0) - 1)
    factor = jax.lax.cond(series >= interval, lambda: 2.0, lambda: 1.0)
    factor = jax.lax.cond(-series >= patience, lambda: 0.5, lambda: factor)
    scale = jnp.minimum(jnp.maximum(state["scale"] * factor, 1), 2**24)
    return {"scale": scale, "series": jnp.where(factor == 1, series, 0)}


def unscale(state, grads):
    leaves, form = jax.tree.flatten(grads)
    finite = functools_reduce([jnp.all(jnp.abs(g) < jnp.inf) for g in leaves])
    leaves = [jnp.where(finite, jnp.float32(g), 0) * (1 / state["scale"]) for g in leaves]
    return form.unflatten(leaves), finite


def functools_reduce(flags):
    all_true = flags[0]
    for flag in flags[1:]:
        all_true &= flag
    return all_true


# %% 9.2 right: an exponent in place of a scale
def start_scale(initial):
    return {"scale": jnp.float32(initial), "runs": jnp.zeros(2, jnp.int32)}


def next_scale(state, finite, interval, patience):
    flags = jnp.array([finite, ~finite])
    runs = (state["runs"] + 1) * flags
    due = runs >= jnp.array([interval, patience])
    scale = state["scale"] * jnp.exp2(jnp.float32(due[0]) - jnp.float32(due[1]))
    return {"scale": jnp.clip(scale, 1, 2**24), "runs": runs * ~due}


def unscale(state, grads):
    finite = ~jax.tree.reduce(
        lambda bad, g: bad | ~jnp.isfinite(g).all(), grads, jnp.zeros((), bool)
    )
    return jax.lax.cond(
        finite,
        lambda: jax.tree.map(lambda g: g.astype("float32") / state["scale"], grads),
        lambda: jax.tree.map(lambda g: jnp.zeros(g.shape), grads),
    ), finite


# %% 9.2 wrong: a fault does not end the finite series
# After a fault the finite steps before it still count. `interval` of them must come in a row, for the
# scale is raised only when it has proved good.
# see: 9.5
def start_scale(initial):
    return {"scale": jnp.float32(initial), "good": jnp.int32(0), "bad": jnp.int32(0)}


def next_scale(state, finite, interval, patience):
    good = jnp.where(finite, state["good"] + 1, state["good"])
    bad = jnp.where(finite, 0, state["bad"] + 1)
    up, down = good >= interval, bad >= patience
    scale = jnp.where(up, 2 * state["scale"], jnp.where(down, state["scale"] / 2, state["scale"]))
    return {
        "scale": jnp.clip(scale, 1.0, 2.0**24),
        "good": jnp.where(up, 0, good),
        "bad": jnp.where(down, 0, bad),
    }


def unscale(state, grads):
    fair = jax.tree.map(lambda g: g.astype(jnp.float32) / state["scale"], grads)
    finite = jnp.all(jnp.array([jnp.isfinite(g).all() for g in jax.tree.leaves(fair)]))
    return jax.tree.map(lambda g: jnp.where(finite, g, 0), fair), finite


# %% 9.2 wrong: halves at every fault
# `patience` is not looked at: a single odd batch halves the scale.
# see: 9.5
def start_scale(initial):
    return {"scale": jnp.float32(initial), "good": jnp.int32(0)}


def next_scale(state, finite, interval, patience):
    good = jnp.where(finite, state["good"] + 1, 0)
    up = good >= interval
    scale = jnp.where(up, 2 * state["scale"], jnp.where(finite, 1.0, 0.5) * state["scale"])
    return {"scale": jnp.clip(scale, 1.0, 2.0**24), "good": jnp.where(up, 0, good)}


def unscale(state, grads):
    fair = jax.tree.map(lambda g: g.astype(jnp.float32) / state["scale"], grads)
    finite = jnp.all(jnp.array([jnp.isfinite(g).all() for g in jax.tree.leaves(fair)]))
    return jax.tree.map(lambda g: jnp.where(finite, g, 0), fair), finite


# %% 9.2 wrong: faults need not come in a row
# A finite step in between ends the series of faults. Counted over the whole run, rare faults drive
# the scale down to 1.
# see: 9.5
def start_scale(initial):
    return {"scale": jnp.float32(initial), "good": jnp.int32(0), "bad": jnp.int32(0)}


def next_scale(state, finite, interval, patience):
    good = jnp.where(finite, state["good"] + 1, 0)
    bad = jnp.where(finite, state["bad"], state["bad"] + 1)
    up, down = good >= interval, bad >= patience
    scale = jnp.where(up, 2 * state["scale"], jnp.where(down, state["scale"] / 2, state["scale"]))
    return {
        "scale": jnp.clip(scale, 1.0, 2.0**24),
        "good": jnp.where(up, 0, good),
        "bad": jnp.where(down, 0, bad),
    }


def unscale(state, grads):
    fair = jax.tree.map(lambda g: g.astype(jnp.float32) / state["scale"], grads)
    finite = jnp.all(jnp.array([jnp.isfinite(g).all() for g in jax.tree.leaves(fair)]))
    return jax.tree.map(lambda g: jnp.where(finite, g, 0), fair), finite


# %% 9.2 wrong: goes on doubling once it has begun
# The count of finite steps is not started anew, so after `interval` of them the scale doubles at every
# step and is at its limit within a moment.
# see: 9.5
def start_scale(initial):
    return {"scale": jnp.float32(initial), "good": jnp.int32(0), "bad": jnp.int32(0)}


def next_scale(state, finite, interval, patience):
    good = jnp.where(finite, state["good"] + 1, 0)
    bad = jnp.where(finite, 0, state["bad"] + 1)
    up, down = good >= interval, bad >= patience
    scale = jnp.where(up, 2 * state["scale"], jnp.where(down, state["scale"] / 2, state["scale"]))
    return {
        "scale": jnp.clip(scale, 1.0, 2.0**24),
        "good": good,
        "bad": jnp.where(down, 0, bad),
    }


def unscale(state, grads):
    fair = jax.tree.map(lambda g: g.astype(jnp.float32) / state["scale"], grads)
    finite = jnp.all(jnp.array([jnp.isfinite(g).all() for g in jax.tree.leaves(fair)]))
    return jax.tree.map(lambda g: jnp.where(finite, g, 0), fair), finite


# %% 9.2 wrong: no limits
# Without an upper limit the scale grows to infinity where everything is finite, and every gradient
# after that is NaN. Without a lower one it goes below 1, where it makes gradients smaller still.
# see: 9.5
def start_scale(initial):
    return {"scale": jnp.float32(initial), "good": jnp.int32(0), "bad": jnp.int32(0)}


def next_scale(state, finite, interval, patience):
    good = jnp.where(finite, state["good"] + 1, 0)
    bad = jnp.where(finite, 0, state["bad"] + 1)
    up, down = good >= interval, bad >= patience
    scale = jnp.where(up, 2 * state["scale"], jnp.where(down, state["scale"] / 2, state["scale"]))
    return {"scale": scale, "good": jnp.where(up, 0, good), "bad": jnp.where(down, 0, bad)}


def unscale(state, grads):
    fair = jax.tree.map(lambda g: g.astype(jnp.float32) / state["scale"], grads)
    finite = jnp.all(jnp.array([jnp.isfinite(g).all() for g in jax.tree.leaves(fair)]))
    return jax.tree.map(lambda g: jnp.where(finite, g, 0), fair), finite


# %% 9.2 wrong: refuses a change that would leave the range
# A scale of 1.5 that is to be halved goes to 1, the end of the range, and does not stay where it is.
# see: 9.5
def start_scale(initial):
    return {"scale": jnp.float32(initial), "good": jnp.int32(0), "bad": jnp.int32(0)}


def next_scale(state, finite, interval, patience):
    good = jnp.where(finite, state["good"] + 1, 0)
    bad = jnp.where(finite, 0, state["bad"] + 1)
    up, down = good >= interval, bad >= patience
    scale = jnp.where(up, 2 * state["scale"], jnp.where(down, state["scale"] / 2, state["scale"]))
    return {
        "scale": jnp.where((scale >= 1) & (scale <= 2.0**24), scale, state["scale"]),
        "good": jnp.where(up, 0, good),
        "bad": jnp.where(down, 0, bad),
    }


def unscale(state, grads):
    fair = jax.tree.map(lambda g: g.astype(jnp.float32) / state["scale"], grads)
    finite = jnp.all(jnp.array([jnp.isfinite(g).all() for g in jax.tree.leaves(fair)]))
    return jax.tree.map(lambda g: jnp.where(finite, g, 0), fair), finite


# %% 9.2 wrong: if on a traced value
# Inside a jitted step `finite` is a tracer, and `if` needs a bool: TracerBoolConversionError. Choose
# with `jnp.where`, on the device.
# see: 9.5
def start_scale(initial):
    return {"scale": jnp.float32(initial), "good": jnp.int32(0), "bad": jnp.int32(0)}


def next_scale(state, finite, interval, patience):
    scale, good, bad = state["scale"], state["good"], state["bad"]
    if finite:
        good, bad = good + 1, 0
    else:
        good, bad = 0, bad + 1
    if good >= interval:
        scale, good = min(2 * scale, 2.0**24), 0
    if bad >= patience:
        scale, bad = max(scale / 2, 1.0), 0
    return {"scale": scale, "good": good, "bad": bad}


def unscale(state, grads):
    fair = jax.tree.map(lambda g: g.astype(jnp.float32) / state["scale"], grads)
    finite = jnp.all(jnp.array([jnp.isfinite(g).all() for g in jax.tree.leaves(fair)]))
    return jax.tree.map(lambda g: jnp.where(finite, g, 0), fair), finite


# %% 9.2 wrong: withholds by multiplying with zero
# 0 · NaN is NaN, and 0 · ∞ too: a broken gradient goes through a product with zero. `jnp.where`
# chooses.
# see: 9.5
def start_scale(initial):
    return {"scale": jnp.float32(initial), "good": jnp.int32(0), "bad": jnp.int32(0)}


def next_scale(state, finite, interval, patience):
    good = jnp.where(finite, state["good"] + 1, 0)
    bad = jnp.where(finite, 0, state["bad"] + 1)
    up, down = good >= interval, bad >= patience
    scale = jnp.where(up, 2 * state["scale"], jnp.where(down, state["scale"] / 2, state["scale"]))
    return {
        "scale": jnp.clip(scale, 1.0, 2.0**24),
        "good": jnp.where(up, 0, good),
        "bad": jnp.where(down, 0, bad),
    }


def unscale(state, grads):
    fair = jax.tree.map(lambda g: g.astype(jnp.float32) / state["scale"], grads)
    finite = jnp.all(jnp.array([jnp.isfinite(g).all() for g in jax.tree.leaves(fair)]))
    return jax.tree.map(lambda g: g * finite, fair), finite


# %% 9.2 wrong: mends the broken entries
# With zeros in place of the NaN the step is taken all the same, in a direction that is no gradient,
# and `finite` is true. One broken entry withholds all of it.
# see: 9.5
def start_scale(initial):
    return {"scale": jnp.float32(initial), "good": jnp.int32(0), "bad": jnp.int32(0)}


def next_scale(state, finite, interval, patience):
    good = jnp.where(finite, state["good"] + 1, 0)
    bad = jnp.where(finite, 0, state["bad"] + 1)
    up, down = good >= interval, bad >= patience
    scale = jnp.where(up, 2 * state["scale"], jnp.where(down, state["scale"] / 2, state["scale"]))
    return {
        "scale": jnp.clip(scale, 1.0, 2.0**24),
        "good": jnp.where(up, 0, good),
        "bad": jnp.where(down, 0, bad),
    }


def unscale(state, grads):
    fair = jax.tree.map(lambda g: jnp.nan_to_num(g.astype(jnp.float32) / state["scale"]), grads)
    finite = jnp.all(jnp.array([jnp.isfinite(g).all() for g in jax.tree.leaves(fair)]))
    return fair, finite


# %% 9.2 wrong: divides in float16
# Divided in float16, the gradient vanishes again: that was the reason to scale it. Go to float32 first.
# see: 9.5
def start_scale(initial):
    return {"scale": jnp.float32(initial), "good": jnp.int32(0), "bad": jnp.int32(0)}


def next_scale(state, finite, interval, patience):
    good = jnp.where(finite, state["good"] + 1, 0)
    bad = jnp.where(finite, 0, state["bad"] + 1)
    up, down = good >= interval, bad >= patience
    scale = jnp.where(up, 2 * state["scale"], jnp.where(down, state["scale"] / 2, state["scale"]))
    return {
        "scale": jnp.clip(scale, 1.0, 2.0**24),
        "good": jnp.where(up, 0, good),
        "bad": jnp.where(down, 0, bad),
    }


def unscale(state, grads):
    fair = jax.tree.map(lambda g: (g / state["scale"].astype(g.dtype)).astype("float32"), grads)
    finite = jnp.all(jnp.array([jnp.isfinite(g).all() for g in jax.tree.leaves(fair)]))
    return jax.tree.map(lambda g: jnp.where(finite, g, 0), fair), finite


# %% 9.2 wrong: tells by the norm
# The norm of a gradient of 1e25 is infinite in float32, for it is squared on the way: a finite gradient
# is thrown away. Look at the entries themselves.
# see: 9.5
def start_scale(initial):
    return {"scale": jnp.float32(initial), "good": jnp.int32(0), "bad": jnp.int32(0)}


def next_scale(state, finite, interval, patience):
    good = jnp.where(finite, state["good"] + 1, 0)
    bad = jnp.where(finite, 0, state["bad"] + 1)
    up, down = good >= interval, bad >= patience
    scale = jnp.where(up, 2 * state["scale"], jnp.where(down, state["scale"] / 2, state["scale"]))
    return {
        "scale": jnp.clip(scale, 1.0, 2.0**24),
        "good": jnp.where(up, 0, good),
        "bad": jnp.where(down, 0, bad),
    }


def unscale(state, grads):
    fair = jax.tree.map(lambda g: g.astype(jnp.float32) / state["scale"], grads)
    finite = jnp.isfinite(sum(jnp.sum(g**2) for g in jax.tree.leaves(fair)))
    return jax.tree.map(lambda g: jnp.where(finite, g, 0), fair), finite


# %% 9.2 wrong: tells by the sum
# Two entries of 3e38 are finite, and their sum is not: a finite gradient is thrown away. Look at the
# entries themselves.
# see: 9.5
def start_scale(initial):
    return {"scale": jnp.float32(initial), "good": jnp.int32(0), "bad": jnp.int32(0)}


def next_scale(state, finite, interval, patience):
    good = jnp.where(finite, state["good"] + 1, 0)
    bad = jnp.where(finite, 0, state["bad"] + 1)
    up, down = good >= interval, bad >= patience
    scale = jnp.where(up, 2 * state["scale"], jnp.where(down, state["scale"] / 2, state["scale"]))
    return {
        "scale": jnp.clip(scale, 1.0, 2.0**24),
        "good": jnp.where(up, 0, good),
        "bad": jnp.where(down, 0, bad),
    }


def unscale(state, grads):
    fair = jax.tree.map(lambda g: g.astype(jnp.float32) / state["scale"], grads)
    finite = jnp.isfinite(sum(jnp.sum(g) for g in jax.tree.leaves(fair)))
    return jax.tree.map(lambda g: jnp.where(finite, g, 0), fair), finite


# %% 9.2 wrong: looks at the last leaf
# Each turn of the loop writes over what the one before found out. Only the last leaf is looked at.
# see: 9.5
def start_scale(initial):
    return {"scale": jnp.float32(initial), "good": jnp.int32(0), "bad": jnp.int32(0)}


def next_scale(state, finite, interval, patience):
    good = jnp.where(finite, state["good"] + 1, 0)
    bad = jnp.where(finite, 0, state["bad"] + 1)
    up, down = good >= interval, bad >= patience
    scale = jnp.where(up, 2 * state["scale"], jnp.where(down, state["scale"] / 2, state["scale"]))
    return {
        "scale": jnp.clip(scale, 1.0, 2.0**24),
        "good": jnp.where(up, 0, good),
        "bad": jnp.where(down, 0, bad),
    }


def unscale(state, grads):
    fair = jax.tree.map(lambda g: g.astype(jnp.float32) / state["scale"], grads)
    finite = all_finite(jax.tree.leaves(fair)[-1])
    return jax.tree.map(lambda g: jnp.where(finite, g, 0), fair), finite


# %% 9.2 wrong: leaf by leaf
# Only the leaf with the fault is set to zero. The others come from the same broken backward pass, and
# a step with half of a gradient is no step of gradient descent.
# see: 9.5
def start_scale(initial):
    return {"scale": jnp.float32(initial), "good": jnp.int32(0), "bad": jnp.int32(0)}


def next_scale(state, finite, interval, patience):
    good = jnp.where(finite, state["good"] + 1, 0)
    bad = jnp.where(finite, 0, state["bad"] + 1)
    up, down = good >= interval, bad >= patience
    scale = jnp.where(up, 2 * state["scale"], jnp.where(down, state["scale"] / 2, state["scale"]))
    return {
        "scale": jnp.clip(scale, 1.0, 2.0**24),
        "good": jnp.where(up, 0, good),
        "bad": jnp.where(down, 0, bad),
    }


def unscale(state, grads):
    fair = jax.tree.map(lambda g: g.astype(jnp.float32) / state["scale"], grads)
    finite = jnp.all(jnp.array([jnp.isfinite(g).all() for g in jax.tree.leaves(fair)]))
    return jax.tree.map(lambda g: jnp.where(jnp.isfinite(g).all(), g, 0), fair), finite


# %% 9.3 right: a total and a weight
def start_average(params):
    total = jax.tree.map(
        lambda p: jnp.zeros(p.shape) if jnp.issubdtype(p.dtype, jnp.floating) else p, params
    )
    return {"total": total, "weight": jnp.float32(0), "start": params}


def update_average(state, params, decay, used):
    def one(t, p):
        if not jnp.issubdtype(p.dtype, jnp.floating):
            return jnp.where(used, p, t)
        return jnp.where(used, decay * t + (1 - decay) * p.astype(jnp.float32), t)

    weight = jnp.where(used, decay * state["weight"] + 1 - decay, state["weight"])
    return state | {"total": jax.tree.map(one, state["total"], params), "weight": weight}


def read_average(state):
    weight = state["weight"]

    def one(t, s):
        if not jnp.issubdtype(s.dtype, jnp.floating):
            return t
        return jnp.where(weight > 0, t / jnp.where(weight > 0, weight, 1), s.astype(jnp.float32))

    return jax.tree.map(one, state["total"], state["start"])


# %% 9.3 right: keeps the mean itself
class _Mean(NamedTuple):
    mean: Any
    left: Any  # what the weights lack of 1


def start_average(params):
    wide = lambda p: p.astype(jnp.float32) if jnp.issubdtype(p.dtype, jnp.floating) else p
    return _Mean(jax.tree.map(wide, params), jnp.ones(()))


def update_average(state, params, decay, used):
    left = decay * state.left
    rate = (1 - decay) / (1 - left)

    def one(m, p):
        new = m + rate * (p.astype(m.dtype) - m) if m.dtype == jnp.float32 else p
        return jnp.where(used, new, m)

    mean = jax.tree.map(one, state.mean, params)
    return _Mean(mean, jnp.where(used, left, state.left))


def read_average(state):
    return state.mean


# %% 9.3 right: a cond around the update, leaves as a list
def start_average(params):
    leaves, form = jax.tree.flatten(params)
    self = {"sum": [0.0 * p.astype("float32") for p in leaves], "last": params}
    return self | {"one": jnp.zeros(())}


def update_average(state, params, decay, used):
    def go(state):
        leaves = [p.astype("float32") for p in jax.tree.leaves(params)]
        pairs = zip(state["sum"], leaves, strict=True)
        return {
            "sum": [decay * s + (1 - decay) * p for s, p in pairs],
            "last": params,
            "one": decay * state["one"] + (1 - decay),
        }

    return jax.lax.cond(used, go, lambda state: state, state)


def read_average(state):
    last, form = jax.tree.flatten(state["last"])
    read = []
    for s, p in zip(state["sum"], last, strict=True):
        mean = jnp.where(state["one"] == 0, p.astype("float32"), s / state["one"])
        read.append(mean if jnp.issubdtype(p.dtype, jnp.inexact) else p)
    return form.unflatten(read)


# %% 9.3 wrong: starts at the params
# The first parameters keep a weight of all decays together: after nine steps at 0.9 that is 0.39, for
# numbers that nobody has trained. Start from nothing, and divide by what the weights add up to.
# see: 9.6
def start_average(params):
    return jax.tree.map(
        lambda p: p.astype(jnp.float32) if jnp.issubdtype(p.dtype, jnp.floating) else p, params
    )


def update_average(state, params, decay, used):
    def one(t, p):
        new = decay * t + (1 - decay) * p.astype(jnp.float32) if t.dtype == jnp.float32 else p
        return jnp.where(used, new, t)

    return jax.tree.map(one, state, params)


def read_average(state):
    return state


# %% 9.3 wrong: starts at zero and stays near it
# The weights of t updates add up to 1 − decayᵗ: the average is too small by that factor. Divide.
# see: 9.6
def start_average(params):
    total = jax.tree.map(
        lambda p: jnp.zeros(p.shape) if jnp.issubdtype(p.dtype, jnp.floating) else p, params
    )
    return {"total": total, "weight": jnp.float32(0), "start": params}


def update_average(state, params, decay, used):
    def one(t, p):
        if not jnp.issubdtype(p.dtype, jnp.floating):
            return jnp.where(used, p, t)
        return jnp.where(used, decay * t + (1 - decay) * p.astype(jnp.float32), t)

    weight = jnp.where(used, 1.0, state["weight"])
    return state | {"total": jax.tree.map(one, state["total"], params), "weight": weight}


def read_average(state):
    weight = state["weight"]
    return jax.tree.map(
        lambda t, s: jnp.where(weight > 0, t, s.astype(t.dtype)), state["total"], state["start"]
    )


# %% 9.3 wrong: corrects with the latest decay
# 1 − decayᵗ is the sum of the weights when all decays are equal. When they change it is one minus
# their product: carry the sum of the weights along.
# see: 9.6
def start_average(params):
    total = jax.tree.map(
        lambda p: jnp.zeros(p.shape) if jnp.issubdtype(p.dtype, jnp.floating) else p, params
    )
    return {"total": total, "t": jnp.int32(0), "decay": jnp.float32(0.5), "start": params}


def update_average(state, params, decay, used):
    def one(t, p):
        if not jnp.issubdtype(p.dtype, jnp.floating):
            return jnp.where(used, p, t)
        return jnp.where(used, decay * t + (1 - decay) * p.astype(jnp.float32), t)

    return state | {
        "total": jax.tree.map(one, state["total"], params),
        "t": state["t"] + used,
        "decay": jnp.where(used, decay, state["decay"]),
    }


def read_average(state):
    weight = 1 - state["decay"] ** state["t"]

    def one(t, s):
        if not jnp.issubdtype(s.dtype, jnp.floating):
            return t
        return jnp.where(state["t"] > 0, t / jnp.where(weight > 0, weight, 1), s.astype(t.dtype))

    return jax.tree.map(one, state["total"], state["start"])


# %% 9.3 wrong: decay and its complement exchanged
# A decay of 0.9 keeps nine tenths of the average. Exchanged, it forgets nine tenths at each update and
# is hardly smoother than the parameters.
# see: 9.6
def start_average(params):
    total = jax.tree.map(
        lambda p: jnp.zeros(p.shape) if jnp.issubdtype(p.dtype, jnp.floating) else p, params
    )
    return {"total": total, "weight": jnp.float32(0), "start": params}


def update_average(state, params, decay, used):
    decay = 1 - decay

    def one(t, p):
        if not jnp.issubdtype(p.dtype, jnp.floating):
            return jnp.where(used, p, t)
        return jnp.where(used, decay * t + (1 - decay) * p.astype(jnp.float32), t)

    weight = jnp.where(used, decay * state["weight"] + 1 - decay, state["weight"])
    return state | {"total": jax.tree.map(one, state["total"], params), "weight": weight}


def read_average(state):
    weight = state["weight"]

    def one(t, s):
        if not jnp.issubdtype(s.dtype, jnp.floating):
            return t
        return jnp.where(weight > 0, t / jnp.where(weight > 0, weight, 1), s.astype(jnp.float32))

    return jax.tree.map(one, state["total"], state["start"])


# %% 9.3 wrong: averages in the params' dtype
# bfloat16 has eight bits: an update of a few percent is rounded to almost nothing, at a decay of 0.999
# to nothing at all. Keep the average in float32.
# see: 9.6
def start_average(params):
    total = jax.tree.map(
        lambda p: jnp.zeros_like(p) if jnp.issubdtype(p.dtype, jnp.floating) else p, params
    )
    return {"total": total, "weight": jnp.float32(0), "start": params}


def update_average(state, params, decay, used):
    def one(t, p):
        if not jnp.issubdtype(p.dtype, jnp.floating):
            return jnp.where(used, p, t)
        return jnp.where(used, (decay * t + (1 - decay) * p).astype(p.dtype), t)

    weight = jnp.where(used, decay * state["weight"] + 1 - decay, state["weight"])
    return state | {"total": jax.tree.map(one, state["total"], params), "weight": weight}


def read_average(state):
    weight = state["weight"]

    def one(t, s):
        if not jnp.issubdtype(s.dtype, jnp.floating):
            return t
        wide = t.astype(jnp.float32) / jnp.where(weight > 0, weight, 1)
        return jnp.where(weight > 0, wide, s.astype(jnp.float32))

    return jax.tree.map(one, state["total"], state["start"])


# %% 9.3 wrong: weighs unused steps with zero
# 0 · NaN is NaN: parameters that are not to be used still spoil the average by a product. Choose the
# old average with `jnp.where`.
# see: 9.6
def start_average(params):
    total = jax.tree.map(
        lambda p: jnp.zeros(p.shape) if jnp.issubdtype(p.dtype, jnp.floating) else p, params
    )
    return {"total": total, "weight": jnp.float32(0), "start": params}


def update_average(state, params, decay, used):
    rate = (1 - decay) * used

    def one(t, p):
        if not jnp.issubdtype(p.dtype, jnp.floating):
            return jnp.where(used, p, t)
        return (1 - rate) * t + rate * p.astype(jnp.float32)

    weight = (1 - rate) * state["weight"] + rate
    return state | {"total": jax.tree.map(one, state["total"], params), "weight": weight}


def read_average(state):
    weight = state["weight"]

    def one(t, s):
        if not jnp.issubdtype(s.dtype, jnp.floating):
            return t
        return jnp.where(weight > 0, t / jnp.where(weight > 0, weight, 1), s.astype(jnp.float32))

    return jax.tree.map(one, state["total"], state["start"])


# %% 9.3 wrong: counts unused steps
# The total is left alone by a step that is not used, and the sum of the weights is not: the average is
# divided by too much. Both belong together.
# see: 9.6
def start_average(params):
    total = jax.tree.map(
        lambda p: jnp.zeros(p.shape) if jnp.issubdtype(p.dtype, jnp.floating) else p, params
    )
    return {"total": total, "weight": jnp.float32(0), "start": params}


def update_average(state, params, decay, used):
    def one(t, p):
        if not jnp.issubdtype(p.dtype, jnp.floating):
            return jnp.where(used, p, t)
        return jnp.where(used, decay * t + (1 - decay) * p.astype(jnp.float32), t)

    weight = decay * state["weight"] + 1 - decay
    return state | {"total": jax.tree.map(one, state["total"], params), "weight": weight}


def read_average(state):
    weight = state["weight"]

    def one(t, s):
        if not jnp.issubdtype(s.dtype, jnp.floating):
            return t
        return jnp.where(weight > 0, t / jnp.where(weight > 0, weight, 1), s.astype(jnp.float32))

    return jax.tree.map(one, state["total"], state["start"])


# %% 9.3 wrong: averages the integers too
# The mean of a step count is no step count, and of a class index no class. Integers are taken as they
# come.
# see: 9.6
def start_average(params):
    total = jax.tree.map(lambda p: jnp.zeros(p.shape), params)
    return {"total": total, "weight": jnp.float32(0), "start": params}


def update_average(state, params, decay, used):
    def one(t, p):
        return jnp.where(used, decay * t + (1 - decay) * p.astype(jnp.float32), t)

    weight = jnp.where(used, decay * state["weight"] + 1 - decay, state["weight"])
    return state | {"total": jax.tree.map(one, state["total"], params), "weight": weight}


def read_average(state):
    weight = state["weight"]

    def one(t, s):
        mean = jnp.where(weight > 0, t / jnp.where(weight > 0, weight, 1), s.astype(jnp.float32))
        return mean if jnp.issubdtype(s.dtype, jnp.floating) else mean.astype(s.dtype)

    return jax.tree.map(one, state["total"], state["start"])


# %% 9.3 wrong: 0 / 0 before the first update
# With no update yet, total and weight are both zero. Whoever evaluates before the first step gets NaN;
# give the start in that case.
# see: 9.6
def start_average(params):
    total = jax.tree.map(
        lambda p: jnp.zeros(p.shape) if jnp.issubdtype(p.dtype, jnp.floating) else p, params
    )
    return {"total": total, "weight": jnp.float32(0)}


def update_average(state, params, decay, used):
    def one(t, p):
        if not jnp.issubdtype(p.dtype, jnp.floating):
            return jnp.where(used, p, t)
        return jnp.where(used, decay * t + (1 - decay) * p.astype(jnp.float32), t)

    weight = jnp.where(used, decay * state["weight"] + 1 - decay, state["weight"])
    return {"total": jax.tree.map(one, state["total"], params), "weight": weight}


def read_average(state):
    def one(t):
        return t / state["weight"] if jnp.issubdtype(t.dtype, jnp.floating) else t

    return jax.tree.map(one, state["total"])


# %% 9.4 right: a dataclass
@dataclass
class EarlyStopping:
    metric: str
    patience: int
    margin: float = 0.0
    mode: str = "min"
    best: float | None = None
    step: int = 0
    waited: int = 0
    kept: Any = None

    def __call__(self, report):
        if self.metric not in report.logs:
            return False
        value = float(report.logs[self.metric])
        if self._improves(value):
            self.best, self.step, self.waited = value, report.step, 0
            self.kept = jax.tree.map(jnp.copy, report.run)
        else:
            self.waited += 1
        return self.waited >= self.patience

    def _improves(self, value):
        if self.best is None:
            return value == value
        gain = self.best - value if self.mode == "min" else value - self.best
        return gain > self.margin

    def state(self):
        return {"best": self.best, "step": self.step, "waited": self.waited}

    def restore(self, state):
        self.best, self.step, self.waited = state["best"], state["step"], state["waited"]


# %% 9.4 right: signs and infinities
class EarlyStopping:
    def __init__(self, metric, patience, margin=0.0, mode="min"):
        self.metric, self.patience, self.margin = metric, patience, margin
        self.sign = {"min": 1.0, "max": -1.0}[mode]
        self.lowest, self.step, self.failures, self.kept = float("inf"), 0, 0, None

    @property
    def best(self):
        return self.sign * self.lowest

    def __call__(self, report):
        value = report.logs.get(self.metric)
        if value is None:
            return None
        value = self.sign * np.asarray(value, np.float64).item()
        self.failures += 1
        if value < self.lowest - self.margin:
            self.lowest, self.step, self.failures = value, report.step, 0
            self.kept = jax.tree.map(lambda x: x.copy(), report.run)
        return self.failures == self.patience

    def state(self):
        return {"lowest": str(self.lowest), "step": self.step, "failures": self.failures}

    def restore(self, state):
        self.lowest = float(state["lowest"])
        self.step, self.failures = state["step"], state["failures"]


# %% 9.4 right: remembers all that it saw
class EarlyStopping:
    def __init__(self, metric, patience, margin=0.0, mode="min"):
        self.metric, self.patience, self.margin, self.mode = metric, patience, margin, mode
        self.seen = []
        self.kept = None
        self.copying = jax.jit(lambda run: run)

    def _judge(self):
        best, step, since = None, 0, 0
        for when, value in self.seen:
            gain = None
            if best is not None and value is not None:
                gain = (value - best) if self.mode == "max" else (best - value)
            if value is not None and (gain is None or gain > self.margin):
                best, step, since = value, when, 0
            else:
                since += 1
        return best, step, since

    best = property(lambda self: self._judge()[0])
    step = property(lambda self: self._judge()[1])

    def __call__(self, report):
        if self.metric in report.logs:
            value = float(report.logs[self.metric])
            self.seen.append((report.step, None if np.isnan(value) else value))
            if self.step == report.step:
                self.kept = self.copying(report.run)
            return bool(self._judge()[2] >= self.patience)

    def state(self):
        return {"seen": [list(pair) for pair in self.seen]}

    def restore(self, state):
        self.seen = [tuple(pair) for pair in state["seen"]]


# %% 9.4 wrong: every step takes patience
# Steps without an evaluation say nothing about it: they are neither better nor worse. Only a report
# that has the metric counts.
# see: 9.8
@dataclass
class EarlyStopping:
    metric: str
    patience: int
    margin: float = 0.0
    mode: str = "min"
    best: float | None = None
    step: int = 0
    waited: int = 0
    kept: Any = None

    def __call__(self, report):
        value = float(report.logs.get(self.metric, np.nan))
        gain = None
        if self.best is not None:
            gain = self.best - value if self.mode == "min" else value - self.best
        if (gain is None and not np.isnan(value)) or (gain is not None and gain > self.margin):
            self.best, self.step, self.waited = value, report.step, 0
            self.kept = jax.tree.map(jnp.copy, report.run)
        else:
            self.waited += 1
        return self.waited >= self.patience

    def state(self):
        return {"best": self.best, "step": self.step, "waited": self.waited}

    def restore(self, state):
        self.best, self.step, self.waited = state["best"], state["step"], state["waited"]


# %% 9.4 wrong: patience in steps
# Patience counts evaluations, and an evaluation may come every ten steps or every thousand. Count the
# reports that have the metric, not the distance of their steps.
# see: 9.8
@dataclass
class EarlyStopping:
    metric: str
    patience: int
    margin: float = 0.0
    mode: str = "min"
    best: float | None = None
    step: int = 0
    kept: Any = None

    def __call__(self, report):
        if self.metric not in report.logs:
            return False
        value = float(report.logs[self.metric])
        gain = None
        if self.best is not None:
            gain = self.best - value if self.mode == "min" else value - self.best
        if (gain is None and not np.isnan(value)) or (gain is not None and gain > self.margin):
            self.best, self.step = value, report.step
            self.kept = jax.tree.map(jnp.copy, report.run)
        return report.step - self.step >= self.patience

    def state(self):
        return {"best": self.best, "step": self.step}

    def restore(self, state):
        self.best, self.step = state["best"], state["step"]


# %% 9.4 wrong: as good counts as better
# A plateau repeats its value and would go on for ever. Better means better by more than `margin`, also
# where that is 0.
# see: 9.8
@dataclass
class EarlyStopping:
    metric: str
    patience: int
    margin: float = 0.0
    mode: str = "min"
    best: float | None = None
    step: int = 0
    waited: int = 0
    kept: Any = None

    def __call__(self, report):
        if self.metric not in report.logs:
            return False
        value = float(report.logs[self.metric])
        gain = None
        if self.best is not None:
            gain = self.best - value if self.mode == "min" else value - self.best
        if (gain is None and not np.isnan(value)) or (gain is not None and gain >= self.margin):
            self.best, self.step, self.waited = value, report.step, 0
            self.kept = jax.tree.map(jnp.copy, report.run)
        else:
            self.waited += 1
        return self.waited >= self.patience

    def state(self):
        return {"best": self.best, "step": self.step, "waited": self.waited}

    def restore(self, state):
        self.best, self.step, self.waited = state["best"], state["step"], state["waited"]


# %% 9.4 wrong: one evaluation too late
# With patience 3 the third evaluation in a row that is no better ends the run. `>` waits for a fourth.
# see: 9.8
@dataclass
class EarlyStopping:
    metric: str
    patience: int
    margin: float = 0.0
    mode: str = "min"
    best: float | None = None
    step: int = 0
    waited: int = 0
    kept: Any = None

    def __call__(self, report):
        if self.metric not in report.logs:
            return False
        value = float(report.logs[self.metric])
        gain = None
        if self.best is not None:
            gain = self.best - value if self.mode == "min" else value - self.best
        if (gain is None and not np.isnan(value)) or (gain is not None and gain > self.margin):
            self.best, self.step, self.waited = value, report.step, 0
            self.kept = jax.tree.map(jnp.copy, report.run)
        else:
            self.waited += 1
        return self.waited > self.patience

    def state(self):
        return {"best": self.best, "step": self.step, "waited": self.waited}

    def restore(self, state):
        self.best, self.step, self.waited = state["best"], state["step"], state["waited"]


# %% 9.4 wrong: patience is never given back
# A better evaluation starts the count anew. Without that it counts the bad evaluations of the whole
# run, and a noisy one ends early.
# see: 9.8
@dataclass
class EarlyStopping:
    metric: str
    patience: int
    margin: float = 0.0
    mode: str = "min"
    best: float | None = None
    step: int = 0
    waited: int = 0
    kept: Any = None

    def __call__(self, report):
        if self.metric not in report.logs:
            return False
        value = float(report.logs[self.metric])
        gain = None
        if self.best is not None:
            gain = self.best - value if self.mode == "min" else value - self.best
        if (gain is None and not np.isnan(value)) or (gain is not None and gain > self.margin):
            self.best, self.step = value, report.step
            self.kept = jax.tree.map(jnp.copy, report.run)
        else:
            self.waited += 1
        return self.waited >= self.patience

    def state(self):
        return {"best": self.best, "step": self.step, "waited": self.waited}

    def restore(self, state):
        self.best, self.step, self.waited = state["best"], state["step"], state["waited"]


# %% 9.4 wrong: compares with the evaluation before
# A run that goes up and down around a plateau is better than the time before every other time. Compare
# with the best.
# see: 9.8
@dataclass
class EarlyStopping:
    metric: str
    patience: int
    margin: float = 0.0
    mode: str = "min"
    best: float | None = None
    last: float | None = None
    step: int = 0
    waited: int = 0
    kept: Any = None

    def __call__(self, report):
        if self.metric not in report.logs:
            return False
        value = float(report.logs[self.metric])
        gain = None
        if self.last is not None:
            gain = self.last - value if self.mode == "min" else value - self.last
        self.last = value if not np.isnan(value) else self.last
        if (gain is None and not np.isnan(value)) or (gain is not None and gain > self.margin):
            self.best, self.step, self.waited = value, report.step, 0
            self.kept = jax.tree.map(jnp.copy, report.run)
        else:
            self.waited += 1
        return self.waited >= self.patience

    def state(self):
        return {"best": self.best, "last": self.last, "step": self.step, "waited": self.waited}

    def restore(self, state):
        self.best, self.step, self.waited = state["best"], state["step"], state["waited"]
        self.last = state["last"]


# %% 9.4 wrong: takes NaN for the best
# Every comparison with NaN is false, so `if not worse` takes it in, and after that nothing is ever
# better. Ask whether the value is better, not whether it isn't worse.
# see: 9.8
@dataclass
class EarlyStopping:
    metric: str
    patience: int
    margin: float = 0.0
    mode: str = "min"
    best: float | None = None
    step: int = 0
    waited: int = 0
    kept: Any = None

    def __call__(self, report):
        if self.metric not in report.logs:
            return False
        value = float(report.logs[self.metric])
        worse = False
        if self.best is not None:
            gain = self.best - value if self.mode == "min" else value - self.best
            worse = gain <= self.margin
        if not worse:
            self.best, self.step, self.waited = value, report.step, 0
            self.kept = jax.tree.map(jnp.copy, report.run)
        else:
            self.waited += 1
        return self.waited >= self.patience

    def state(self):
        return {"best": self.best, "step": self.step, "waited": self.waited}

    def restore(self, state):
        self.best, self.step, self.waited = state["best"], state["step"], state["waited"]


# %% 9.4 wrong: NaN is no evaluation
# A run whose loss is NaN again and again gets no better: each is an evaluation that takes patience. Left
# out of the count, such a run goes on for ever.
# see: 9.8
@dataclass
class EarlyStopping:
    metric: str
    patience: int
    margin: float = 0.0
    mode: str = "min"
    best: float | None = None
    step: int = 0
    waited: int = 0
    kept: Any = None

    def __call__(self, report):
        if self.metric not in report.logs:
            return False
        value = float(report.logs[self.metric])
        if np.isnan(value):
            return False
        gain = None
        if self.best is not None:
            gain = self.best - value if self.mode == "min" else value - self.best
        if gain is None or gain > self.margin:
            self.best, self.step, self.waited = value, report.step, 0
            self.kept = jax.tree.map(jnp.copy, report.run)
        else:
            self.waited += 1
        return self.waited >= self.patience

    def state(self):
        return {"best": self.best, "step": self.step, "waited": self.waited}

    def restore(self, state):
        self.best, self.step, self.waited = state["best"], state["step"], state["waited"]


# %% 9.4 wrong: the mode is not looked at
# An accuracy gets better upwards. With `mode="max"` a value is better if it is higher.
# see: 9.8
@dataclass
class EarlyStopping:
    metric: str
    patience: int
    margin: float = 0.0
    mode: str = "min"
    best: float | None = None
    step: int = 0
    waited: int = 0
    kept: Any = None

    def __call__(self, report):
        if self.metric not in report.logs:
            return False
        value = float(report.logs[self.metric])
        gain = None
        if self.best is not None:
            gain = self.best - value
        if (gain is None and not np.isnan(value)) or (gain is not None and gain > self.margin):
            self.best, self.step, self.waited = value, report.step, 0
            self.kept = jax.tree.map(jnp.copy, report.run)
        else:
            self.waited += 1
        return self.waited >= self.patience

    def state(self):
        return {"best": self.best, "step": self.step, "waited": self.waited}

    def restore(self, state):
        self.best, self.step, self.waited = state["best"], state["step"], state["waited"]


# %% 9.4 wrong: keeps the run itself
# The next step donates the run, and what was kept is a handle on deleted arrays. Copy each leaf.
# see: 9.7
@dataclass
class EarlyStopping:
    metric: str
    patience: int
    margin: float = 0.0
    mode: str = "min"
    best: float | None = None
    step: int = 0
    waited: int = 0
    kept: Any = None

    def __call__(self, report):
        if self.metric not in report.logs:
            return False
        value = float(report.logs[self.metric])
        gain = None
        if self.best is not None:
            gain = self.best - value if self.mode == "min" else value - self.best
        if (gain is None and not np.isnan(value)) or (gain is not None and gain > self.margin):
            self.best, self.step, self.waited = value, report.step, 0
            self.kept = report.run
        else:
            self.waited += 1
        return self.waited >= self.patience

    def state(self):
        return {"best": self.best, "step": self.step, "waited": self.waited}

    def restore(self, state):
        self.best, self.step, self.waited = state["best"], state["step"], state["waited"]


# %% 9.4 wrong: copies by way of NumPy
# NumPy has no arrays of keys, and a run of this course carries one. `jnp.copy` copies any array of
# JAX.
# see: 9.7
@dataclass
class EarlyStopping:
    metric: str
    patience: int
    margin: float = 0.0
    mode: str = "min"
    best: float | None = None
    step: int = 0
    waited: int = 0
    kept: Any = None

    def __call__(self, report):
        if self.metric not in report.logs:
            return False
        value = float(report.logs[self.metric])
        gain = None
        if self.best is not None:
            gain = self.best - value if self.mode == "min" else value - self.best
        if (gain is None and not np.isnan(value)) or (gain is not None and gain > self.margin):
            self.best, self.step, self.waited = value, report.step, 0
            self.kept = jax.tree.map(np.array, report.run)
        else:
            self.waited += 1
        return self.waited >= self.patience

    def state(self):
        return {"best": self.best, "step": self.step, "waited": self.waited}

    def restore(self, state):
        self.best, self.step, self.waited = state["best"], state["step"], state["waited"]


# %% 9.4 wrong: a margin in shares of the best
# The margin is a difference, not a share: of a loss of 8, a margin of 0.125 is not a whole 1.
# see: 9.8
@dataclass
class EarlyStopping:
    metric: str
    patience: int
    margin: float = 0.0
    mode: str = "min"
    best: float | None = None
    step: int = 0
    waited: int = 0
    kept: Any = None

    def __call__(self, report):
        if self.metric not in report.logs:
            return False
        value = float(report.logs[self.metric])
        gain = None
        if self.best is not None:
            gain = self.best - value if self.mode == "min" else value - self.best
        if (gain is None and not np.isnan(value)) or (
            gain is not None and gain > self.margin * abs(self.best)
        ):
            self.best, self.step, self.waited = value, report.step, 0
            self.kept = jax.tree.map(jnp.copy, report.run)
        else:
            self.waited += 1
        return self.waited >= self.patience

    def state(self):
        return {"best": self.best, "step": self.step, "waited": self.waited}

    def restore(self, state):
        self.best, self.step, self.waited = state["best"], state["step"], state["waited"]


# %% 9.4 wrong: keeps the latest run
# What is kept is the run of the last evaluation, and with patience that is never the best one. Copy
# only where the value is better.
# see: 9.7
@dataclass
class EarlyStopping:
    metric: str
    patience: int
    margin: float = 0.0
    mode: str = "min"
    best: float | None = None
    step: int = 0
    waited: int = 0
    kept: Any = None

    def __call__(self, report):
        if self.metric not in report.logs:
            return False
        value = float(report.logs[self.metric])
        gain = None
        if self.best is not None:
            gain = self.best - value if self.mode == "min" else value - self.best
        if (gain is None and not np.isnan(value)) or (gain is not None and gain > self.margin):
            self.best, self.step, self.waited = value, report.step, 0
        else:
            self.waited += 1
        self.kept = jax.tree.map(jnp.copy, report.run)
        return self.waited >= self.patience

    def state(self):
        return {"best": self.best, "step": self.step, "waited": self.waited}

    def restore(self, state):
        self.best, self.step, self.waited = state["best"], state["step"], state["waited"]


# %% 9.4 wrong: best moves on every small gain
# A gain below the margin is no improvement, so the best stays where it was. If it moves, many small
# gains, which together are large, never count.
# see: 9.8
@dataclass
class EarlyStopping:
    metric: str
    patience: int
    margin: float = 0.0
    mode: str = "min"
    best: float | None = None
    step: int = 0
    waited: int = 0
    kept: Any = None

    def __call__(self, report):
        if self.metric not in report.logs:
            return False
        value = float(report.logs[self.metric])
        gain = None
        if self.best is not None:
            gain = self.best - value if self.mode == "min" else value - self.best
        if (gain is None and not np.isnan(value)) or (gain is not None and gain > 0):
            self.waited = 0 if gain is None or gain > self.margin else self.waited + 1
            self.best, self.step = value, report.step
            self.kept = jax.tree.map(jnp.copy, report.run)
        else:
            self.waited += 1
        return self.waited >= self.patience

    def state(self):
        return {"best": self.best, "step": self.step, "waited": self.waited}

    def restore(self, state):
        self.best, self.step, self.waited = state["best"], state["step"], state["waited"]


# %% 9.4 wrong: the margin is not looked at
# Any gain counts, be it noise in the last digit, and the run creeps on.
# see: 9.8
@dataclass
class EarlyStopping:
    metric: str
    patience: int
    margin: float = 0.0
    mode: str = "min"
    best: float | None = None
    step: int = 0
    waited: int = 0
    kept: Any = None

    def __call__(self, report):
        if self.metric not in report.logs:
            return False
        value = float(report.logs[self.metric])
        gain = None
        if self.best is not None:
            gain = self.best - value if self.mode == "min" else value - self.best
        if (gain is None and not np.isnan(value)) or (gain is not None and gain > 0):
            self.best, self.step, self.waited = value, report.step, 0
            self.kept = jax.tree.map(jnp.copy, report.run)
        else:
            self.waited += 1
        return self.waited >= self.patience

    def state(self):
        return {"best": self.best, "step": self.step, "waited": self.waited}

    def restore(self, state):
        self.best, self.step, self.waited = state["best"], state["step"], state["waited"]


# %% 9.4 wrong: the state forgets how long it has waited
# A resumed run starts its patience anew: restarted often enough, it never stops. What decides is part
# of the state.
# see: 9.8
@dataclass
class EarlyStopping:
    metric: str
    patience: int
    margin: float = 0.0
    mode: str = "min"
    best: float | None = None
    step: int = 0
    waited: int = 0
    kept: Any = None

    def __call__(self, report):
        if self.metric not in report.logs:
            return False
        value = float(report.logs[self.metric])
        gain = None
        if self.best is not None:
            gain = self.best - value if self.mode == "min" else value - self.best
        if (gain is None and not np.isnan(value)) or (gain is not None and gain > self.margin):
            self.best, self.step, self.waited = value, report.step, 0
            self.kept = jax.tree.map(jnp.copy, report.run)
        else:
            self.waited += 1
        return self.waited >= self.patience

    def state(self):
        return {"best": self.best, "step": self.step}

    def restore(self, state):
        self.best, self.step = state["best"], state["step"]


# %% 9.4 wrong: infinity in the state
# Before the first evaluation the best is infinite, and JSON has no infinity: strict writers refuse it
# and strict readers too. Use None, or a string.
# see: 9.8
@dataclass
class EarlyStopping:
    metric: str
    patience: int
    margin: float = 0.0
    mode: str = "min"
    best: float = float("inf")
    step: int = 0
    waited: int = 0
    kept: Any = None

    def __post_init__(self):
        if self.mode == "max":
            self.best = -self.best

    def __call__(self, report):
        if self.metric not in report.logs:
            return False
        value = float(report.logs[self.metric])
        gain = self.best - value if self.mode == "min" else value - self.best
        if gain > self.margin:
            self.best, self.step, self.waited = value, report.step, 0
            self.kept = jax.tree.map(jnp.copy, report.run)
        else:
            self.waited += 1
        return self.waited >= self.patience

    def state(self):
        return {"best": self.best, "step": self.step, "waited": self.waited}

    def restore(self, state):
        self.best, self.step, self.waited = state["best"], state["step"], state["waited"]


# %% 9.4 wrong: attributes of the class
# What is set on the class belongs to all its objects: a second one, for another run, starts with what
# the first has seen. Set it on `self`.
# see: 9.8
class EarlyStopping:
    seen = {"best": None, "step": 0, "waited": 0}
    kept = None

    def __init__(self, metric, patience, margin=0.0, mode="min"):
        self.metric, self.patience, self.margin, self.mode = metric, patience, margin, mode

    best = property(lambda self: self.seen["best"])
    step = property(lambda self: self.seen["step"])

    def __call__(self, report):
        if self.metric not in report.logs:
            return False
        value, best = float(report.logs[self.metric]), self.seen["best"]
        gain = None
        if best is not None:
            gain = best - value if self.mode == "min" else value - best
        if (gain is None and not np.isnan(value)) or (gain is not None and gain > self.margin):
            self.seen.update(best=value, step=report.step, waited=0)
            self.kept = jax.tree.map(jnp.copy, report.run)
        else:
            self.seen["waited"] += 1
        return self.seen["waited"] >= self.patience

    def state(self):
        return dict(self.seen)

    def restore(self, state):
        self.seen = dict(state)


# %% 9.5 right: leaves by number, bits as integers
def rows_of(seed, number, n, size):
    places = number * size + np.arange(size)
    orders = {e: np.random.default_rng([seed, e]).permutation(n) for e in set(places // n)}
    return np.array([orders[place // n][place % n] for place in places])


def pack(run):
    return {str(i): _plain(leaf) for i, leaf in enumerate(jax.tree.leaves(run))}


def unpack(arrays, like):
    leaves, form = jax.tree.flatten(like)
    return form.unflatten([_like(arrays[str(i)], leaf) for i, leaf in enumerate(leaves)])


def _plain(leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if leaf.dtype == jnp.bfloat16:
        leaf = jax.lax.bitcast_convert_type(leaf, jnp.uint16)
    return np.array(leaf)


def _like(array, leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf))
    if leaf.dtype == jnp.bfloat16:
        return jax.lax.bitcast_convert_type(jnp.asarray(array), jnp.bfloat16)
    return jnp.asarray(array)


# %% 9.5 right: leaves by path, bfloat16 by way of float32
def rows_of(seed, number, n, size):
    first, last = number * size // n, ((number + 1) * size - 1) // n
    orders = [np.random.default_rng((seed, 17, e)).permutation(n) for e in range(first, last + 1)]
    begin = number * size - first * n
    return np.concatenate(orders)[begin : begin + size]


def pack(run):
    packed = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(run):
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        elif leaf.dtype == jnp.bfloat16:
            leaf = leaf.astype(jnp.float32)
        packed[jax.tree_util.keystr(path)] = np.array(leaf, copy=True)
    return packed


def unpack(arrays, like):
    def one(path, leaf):
        array = jnp.array(arrays[jax.tree_util.keystr(path)])
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.wrap_key_data(array, impl=str(jax.random.key_impl(leaf)))
        return array.astype(leaf.dtype)

    return jax.tree_util.tree_map_with_path(one, like)


# %% 9.5 right: JAX deals the rows, all in one array of bytes
def rows_of(seed, number, n, size):
    key = jax.random.key(seed)
    rows = []
    for place in range(number * size, number * size + size):
        order = jax.random.permutation(jax.random.fold_in(key, place // n), n)
        rows.append(int(order[place % n]))
    return np.array(rows)


def pack(run):
    parts = []
    for leaf in jax.tree.leaves(run):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        parts.append(np.frombuffer(np.array(leaf).tobytes(), np.uint8))
    return {"bytes": np.concatenate(parts), "ends": np.cumsum([len(part) for part in parts])}


def unpack(arrays, like):
    leaves, form = jax.tree.flatten(like)
    parts = np.split(arrays["bytes"], arrays["ends"][:-1])
    read = []
    for part, leaf in zip(parts, leaves, strict=True):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        model = jax.random.key_data(leaf) if is_key else leaf
        array = jnp.asarray(np.frombuffer(part.tobytes(), model.dtype).reshape(model.shape))
        impl = jax.random.key_impl(leaf) if is_key else None
        read.append(jax.random.wrap_key_data(array, impl=impl) if is_key else array)
    return form.unflatten(read)


# %% 9.5 wrong: one order for all epochs
# The order hangs on the seed alone: each epoch deals the rows in the same order, and the same rows are
# together in a batch every time.
# see: 9.10
def rows_of(seed, number, n, size):
    order = np.random.default_rng(seed).permutation(n)
    return order[(number * size + np.arange(size)) % n]


def pack(run):
    return {str(i): _plain(leaf) for i, leaf in enumerate(jax.tree.leaves(run))}


def unpack(arrays, like):
    leaves, form = jax.tree.flatten(like)
    return form.unflatten([_like(arrays[str(i)], leaf) for i, leaf in enumerate(leaves)])


def _plain(leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if leaf.dtype == jnp.bfloat16:
        leaf = jax.lax.bitcast_convert_type(leaf, jnp.uint16)
    return np.array(leaf)


def _like(array, leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf))
    if leaf.dtype == jnp.bfloat16:
        return jax.lax.bitcast_convert_type(jnp.asarray(array), jnp.bfloat16)
    return jnp.asarray(array)


# %% 9.5 wrong: seed plus epoch
# Epoch 1 of seed 0 is epoch 0 of seed 1: two runs that should be independent see the same orders, one
# epoch apart. Give the generator both numbers, `default_rng([seed, epoch])`.
# see: 9.10
def rows_of(seed, number, n, size):
    places = number * size + np.arange(size)
    orders = {e: np.random.default_rng(seed + e).permutation(n) for e in set(places // n)}
    return np.array([orders[place // n][place % n] for place in places])


def pack(run):
    return {str(i): _plain(leaf) for i, leaf in enumerate(jax.tree.leaves(run))}


def unpack(arrays, like):
    leaves, form = jax.tree.flatten(like)
    return form.unflatten([_like(arrays[str(i)], leaf) for i, leaf in enumerate(leaves)])


def _plain(leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if leaf.dtype == jnp.bfloat16:
        leaf = jax.lax.bitcast_convert_type(leaf, jnp.uint16)
    return np.array(leaf)


def _like(array, leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf))
    if leaf.dtype == jnp.bfloat16:
        return jax.lax.bitcast_convert_type(jnp.asarray(array), jnp.bfloat16)
    return jnp.asarray(array)


# %% 9.5 wrong: seed times epoch
# Seed 0 has one order for all epochs, and each epoch of seed 2 is one of seed 1 as well. Give the
# generator both numbers, `default_rng([seed, epoch])`.
# see: 9.10
def rows_of(seed, number, n, size):
    places = number * size + np.arange(size)
    orders = {e: np.random.default_rng(seed * (e + 1)).permutation(n) for e in set(places // n)}
    return np.array([orders[place // n][place % n] for place in places])


def pack(run):
    return {str(i): _plain(leaf) for i, leaf in enumerate(jax.tree.leaves(run))}


def unpack(arrays, like):
    leaves, form = jax.tree.flatten(like)
    return form.unflatten([_like(arrays[str(i)], leaf) for i, leaf in enumerate(leaves)])


def _plain(leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if leaf.dtype == jnp.bfloat16:
        leaf = jax.lax.bitcast_convert_type(leaf, jnp.uint16)
    return np.array(leaf)


def _like(array, leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf))
    if leaf.dtype == jnp.bfloat16:
        return jax.lax.bitcast_convert_type(jnp.asarray(array), jnp.bfloat16)
    return jnp.asarray(array)


# %% 9.5 wrong: each epoch begins with a new batch
# The rows that are left at the end of an epoch are dropped, and with n smaller than a batch nothing is
# left at all. Go on with the next epoch's rows in the same batch.
# see: 9.10
def rows_of(seed, number, n, size):
    per_epoch = max(n // size, 1)
    epoch, place = divmod(number, per_epoch)
    order = np.random.default_rng([seed, epoch]).permutation(n)
    return order[place * size : (place + 1) * size]


def pack(run):
    return {str(i): _plain(leaf) for i, leaf in enumerate(jax.tree.leaves(run))}


def unpack(arrays, like):
    leaves, form = jax.tree.flatten(like)
    return form.unflatten([_like(arrays[str(i)], leaf) for i, leaf in enumerate(leaves)])


def _plain(leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if leaf.dtype == jnp.bfloat16:
        leaf = jax.lax.bitcast_convert_type(leaf, jnp.uint16)
    return np.array(leaf)


def _like(array, leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf))
    if leaf.dtype == jnp.bfloat16:
        return jax.lax.bitcast_convert_type(jnp.asarray(array), jnp.bfloat16)
    return jnp.asarray(array)


# %% 9.5 wrong: draws each batch by itself
# Rows drawn for each batch alone come twice in one epoch and not at all in another. An epoch is one
# permutation, of which the batches are pieces.
# see: 9.10
def rows_of(seed, number, n, size):
    return np.random.default_rng([seed, number]).integers(0, n, size)


def pack(run):
    return {str(i): _plain(leaf) for i, leaf in enumerate(jax.tree.leaves(run))}


def unpack(arrays, like):
    leaves, form = jax.tree.flatten(like)
    return form.unflatten([_like(arrays[str(i)], leaf) for i, leaf in enumerate(leaves)])


def _plain(leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if leaf.dtype == jnp.bfloat16:
        leaf = jax.lax.bitcast_convert_type(leaf, jnp.uint16)
    return np.array(leaf)


def _like(array, leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf))
    if leaf.dtype == jnp.bfloat16:
        return jax.lax.bitcast_convert_type(jnp.asarray(array), jnp.bfloat16)
    return jnp.asarray(array)


# %% 9.5 wrong: a generator that lives on
# The order of an epoch depends on how many were dealt before. A resumed process begins with a fresh
# generator and deals others. Make a generator for each epoch, from seed and epoch.
# see: 9.10
_generators = {}


def rows_of(seed, number, n, size):
    places = number * size + np.arange(size)
    generator = _generators.setdefault(seed, np.random.default_rng(seed))
    orders = {e: generator.permutation(n) for e in sorted(set(places // n))}
    return np.array([orders[place // n][place % n] for place in places])


def pack(run):
    return {str(i): _plain(leaf) for i, leaf in enumerate(jax.tree.leaves(run))}


def unpack(arrays, like):
    leaves, form = jax.tree.flatten(like)
    return form.unflatten([_like(arrays[str(i)], leaf) for i, leaf in enumerate(leaves)])


def _plain(leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if leaf.dtype == jnp.bfloat16:
        leaf = jax.lax.bitcast_convert_type(leaf, jnp.uint16)
    return np.array(leaf)


def _like(array, leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf))
    if leaf.dtype == jnp.bfloat16:
        return jax.lax.bitcast_convert_type(jnp.asarray(array), jnp.bfloat16)
    return jnp.asarray(array)


# %% 9.5 wrong: packs the params alone
# Parameters are a third of what decides the next step: momentum, key and the place in the data were
# taken from `like`, which is another run. Pack every leaf.
# see: 9.10
def rows_of(seed, number, n, size):
    places = number * size + np.arange(size)
    orders = {e: np.random.default_rng([seed, e]).permutation(n) for e in set(places // n)}
    return np.array([orders[place // n][place % n] for place in places])


def pack(run):
    return {str(i): _plain(leaf) for i, leaf in enumerate(jax.tree.leaves(run["params"]))}


def unpack(arrays, like):
    leaves, form = jax.tree.flatten(like["params"])
    read = form.unflatten([_like(arrays[str(i)], leaf) for i, leaf in enumerate(leaves)])
    return like | {"params": read}


def _plain(leaf):
    if leaf.dtype == jnp.bfloat16:
        leaf = jax.lax.bitcast_convert_type(leaf, jnp.uint16)
    return np.array(leaf)


def _like(array, leaf):
    if leaf.dtype == jnp.bfloat16:
        return jax.lax.bitcast_convert_type(jnp.asarray(array), jnp.bfloat16)
    return jnp.asarray(array)


# %% 9.5 wrong: leaves the key out
# NumPy does not take typed keys, so this one stayed behind, and the resumed run draws other numbers:
# other dropout, another end. `jax.random.key_data` gives its numbers, `wrap_key_data` takes them.
# see: 9.10
def rows_of(seed, number, n, size):
    places = number * size + np.arange(size)
    orders = {e: np.random.default_rng([seed, e]).permutation(n) for e in set(places // n)}
    return np.array([orders[place // n][place % n] for place in places])


def _is_key(leaf):
    return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def pack(run):
    leaves = enumerate(jax.tree.leaves(run))
    return {str(i): _plain(leaf) for i, leaf in leaves if not _is_key(leaf)}


def unpack(arrays, like):
    leaves, form = jax.tree.flatten(like)
    read = [leaf if _is_key(leaf) else _like(arrays[str(i)], leaf) for i, leaf in enumerate(leaves)]
    return form.unflatten(read)


def _plain(leaf):
    if leaf.dtype == jnp.bfloat16:
        leaf = jax.lax.bitcast_convert_type(leaf, jnp.uint16)
    return np.array(leaf)


def _like(array, leaf):
    if leaf.dtype == jnp.bfloat16:
        return jax.lax.bitcast_convert_type(jnp.asarray(array), jnp.bfloat16)
    return jnp.asarray(array)


# %% 9.5 wrong: starts the data at the beginning
# The count of batches was not restored: the resumed run sees the first batches of the epoch again and
# the last ones never. The place in the data is part of the run.
# see: 9.10
def rows_of(seed, number, n, size):
    places = number * size + np.arange(size)
    orders = {e: np.random.default_rng([seed, e]).permutation(n) for e in set(places // n)}
    return np.array([orders[place // n][place % n] for place in places])


def pack(run):
    return {str(i): _plain(leaf) for i, leaf in enumerate(jax.tree.leaves(run))}


def unpack(arrays, like):
    leaves, form = jax.tree.flatten(like)
    run = form.unflatten([_like(arrays[str(i)], leaf) for i, leaf in enumerate(leaves)])
    if "batch" in run:
        run["batch"] = jnp.int32(0)
    return run


def _plain(leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if leaf.dtype == jnp.bfloat16:
        leaf = jax.lax.bitcast_convert_type(leaf, jnp.uint16)
    return np.array(leaf)


def _like(array, leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf))
    if leaf.dtype == jnp.bfloat16:
        return jax.lax.bitcast_convert_type(jnp.asarray(array), jnp.bfloat16)
    return jnp.asarray(array)


# %% 9.5 wrong: bfloat16 as NumPy gives it
# bfloat16 is no dtype of NumPy's own: saved, it becomes two bytes without a meaning ("V2"), and no one
# can read them as numbers. Pack it as float32, which holds it exactly, or its bits as uint16.
# see: 9.10
def rows_of(seed, number, n, size):
    places = number * size + np.arange(size)
    orders = {e: np.random.default_rng([seed, e]).permutation(n) for e in set(places // n)}
    return np.array([orders[place // n][place % n] for place in places])


def pack(run):
    return {str(i): _plain(leaf) for i, leaf in enumerate(jax.tree.leaves(run))}


def unpack(arrays, like):
    leaves, form = jax.tree.flatten(like)
    return form.unflatten([_like(arrays[str(i)], leaf) for i, leaf in enumerate(leaves)])


def _plain(leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.array(leaf)


def _like(array, leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf))
    return jnp.asarray(array, leaf.dtype)


# %% 9.5 wrong: bfloat16 by way of float16
# A float16 has more digits than a bfloat16, and far less range: above 65504 it is infinite, and small
# numbers are zero. float32 holds every bfloat16 exactly.
# see: 9.10
def rows_of(seed, number, n, size):
    places = number * size + np.arange(size)
    orders = {e: np.random.default_rng([seed, e]).permutation(n) for e in set(places // n)}
    return np.array([orders[place // n][place % n] for place in places])


def pack(run):
    packed = {}
    for i, leaf in enumerate(jax.tree.leaves(run)):
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        packed[str(i)] = np.array(leaf.astype(jnp.float16) if leaf.dtype == jnp.bfloat16 else leaf)
    return packed


def unpack(arrays, like):
    leaves, form = jax.tree.flatten(like)
    return form.unflatten([_like(arrays[str(i)], leaf) for i, leaf in enumerate(leaves)])


def _like(array, leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf))
    return jnp.asarray(array).astype(leaf.dtype)


# %% 9.5 wrong: comes back in float32
# A bfloat16 leaf was packed as float32 and not turned back. The numbers are the same; the next step
# computes in another precision and compiles again. Give each leaf the dtype of `like`.
# see: 9.10
def rows_of(seed, number, n, size):
    places = number * size + np.arange(size)
    orders = {e: np.random.default_rng([seed, e]).permutation(n) for e in set(places // n)}
    return np.array([orders[place // n][place % n] for place in places])


def pack(run):
    return {str(i): _plain(leaf) for i, leaf in enumerate(jax.tree.leaves(run))}


def unpack(arrays, like):
    leaves, form = jax.tree.flatten(like)
    return form.unflatten([_like(arrays[str(i)], leaf) for i, leaf in enumerate(leaves)])


def _plain(leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.array(leaf.astype(jnp.float32) if leaf.dtype == jnp.bfloat16 else leaf)


def _like(array, leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf))
    return jnp.asarray(array)


# %% 9.5 wrong: names leaves by their last key
# "w" of the params and "w" of the trace have the same last key, and the second overwrites the first.
# Use the whole path, or number the leaves.
# see: 9.10
def rows_of(seed, number, n, size):
    places = number * size + np.arange(size)
    orders = {e: np.random.default_rng([seed, e]).permutation(n) for e in set(places // n)}
    return np.array([orders[place // n][place % n] for place in places])


def pack(run):
    leaves = jax.tree_util.tree_leaves_with_path(run)
    return {str(path[-1]): _plain(leaf) for path, leaf in leaves}


def unpack(arrays, like):
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: _like(arrays[str(path[-1])], leaf), like
    )


def _plain(leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if leaf.dtype == jnp.bfloat16:
        leaf = leaf.astype(jnp.float32)
    return np.array(leaf)


def _like(array, leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf))
    return jnp.asarray(array, leaf.dtype)


# %% 9.5 wrong: joins the path with slashes
# {"a": {"b": …}} and {"a/b": …} get the same name: a slash is a legal character in a key. `keystr`
# with its brackets keeps them apart, and numbers have no such trouble.
# see: 9.10
def rows_of(seed, number, n, size):
    places = number * size + np.arange(size)
    orders = {e: np.random.default_rng([seed, e]).permutation(n) for e in set(places // n)}
    return np.array([orders[place // n][place % n] for place in places])


def _name(path):
    return jax.tree_util.keystr(path, simple=True, separator="/")


def pack(run):
    leaves = jax.tree_util.tree_leaves_with_path(run)
    return {_name(path): _plain(leaf) for path, leaf in leaves}


def unpack(arrays, like):
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: _like(arrays[_name(path)], leaf), like
    )


def _plain(leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if leaf.dtype == jnp.bfloat16:
        leaf = leaf.astype(jnp.float32)
    return np.array(leaf)


def _like(array, leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf))
    return jnp.asarray(array, leaf.dtype)


# %% 9.5 wrong: joins the path with dots
# {"a": {"b": …}} and {"a.b": …} get the same name: a dot is a legal character in a key. `keystr` with its
# brackets keeps them apart, and numbers have no such trouble.
# see: 9.10
def rows_of(seed, number, n, size):
    places = number * size + np.arange(size)
    orders = {e: np.random.default_rng([seed, e]).permutation(n) for e in set(places // n)}
    return np.array([orders[place // n][place % n] for place in places])


def _name(path):
    return jax.tree_util.keystr(path, simple=True, separator=".")


def pack(run):
    leaves = jax.tree_util.tree_leaves_with_path(run)
    return {_name(path): _plain(leaf) for path, leaf in leaves}


def unpack(arrays, like):
    return jax.tree_util.tree_map_with_path(
        lambda path, leaf: _like(arrays[_name(path)], leaf), like
    )


def _plain(leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if leaf.dtype == jnp.bfloat16:
        leaf = leaf.astype(jnp.float32)
    return np.array(leaf)


def _like(array, leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(array), impl=jax.random.key_impl(leaf))
    return jnp.asarray(array, leaf.dtype)


# %% 9.5 wrong: takes it for a key of the default kind
# `wrap_key_data` without `impl` makes a threefry key. Data of another kind have another shape, or worse:
# the same. `jax.random.key_impl(like)` knows the kind.
# see: 9.10
def rows_of(seed, number, n, size):
    places = number * size + np.arange(size)
    orders = {e: np.random.default_rng([seed, e]).permutation(n) for e in set(places // n)}
    return np.array([orders[place // n][place % n] for place in places])


def pack(run):
    return {str(i): _plain(leaf) for i, leaf in enumerate(jax.tree.leaves(run))}


def unpack(arrays, like):
    leaves, form = jax.tree.flatten(like)
    return form.unflatten([_like(arrays[str(i)], leaf) for i, leaf in enumerate(leaves)])


def _plain(leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    if leaf.dtype == jnp.bfloat16:
        leaf = leaf.astype(jnp.float32)
    return np.array(leaf)


def _like(array, leaf):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return jax.random.wrap_key_data(jnp.asarray(array))
    return jnp.asarray(array, leaf.dtype)
