"""Right and wrong answers to the exercises of chapter 04; parsed, never imported."""
# ruff: noqa


# %% 4.1 right: slots of one array, the last chunk padded with its own last example
def chunked_norms(loss, params, x, y, chunk):
    norms = np.empty(len(x), np.float32)
    for start in range(0, len(x), chunk):
        rows = np.minimum(np.arange(start, start + chunk), len(x) - 1)
        found = np.asarray(_chunk_of_norms(loss, params, x[rows], y[rows]))
        norms[start : start + chunk] = found[: len(x) - start]
    return norms


@partial(jax.jit, static_argnames="loss")
def _chunk_of_norms(loss, params, x, y):
    def norm(x, y):
        leaves = jax.tree.leaves(jax.grad(loss)(params, x, y))
        return jnp.linalg.norm(jnp.concatenate([leaf.ravel() for leaf in leaves]))

    return jax.vmap(norm)(x, y)


# %% 4.1 right: a program for each loss, gradients by jacrev of all losses
from functools import cache


@cache
def _program(loss):
    def norms(params, x, y):
        rows = jax.jacrev(lambda p: jax.vmap(lambda *e: loss(p, *e))(x, y))(params)
        squares = [jnp.sum(g.reshape(len(x), -1) ** 2, 1) for g in jax.tree.leaves(rows)]
        return jnp.sqrt(sum(squares))

    return jax.jit(norms)


def chunked_norms(loss, params, x, y, chunk):
    total = -(-len(x) // chunk) * chunk
    xs = np.zeros((total, *x.shape[1:]), x.dtype)
    ys = np.zeros((total, *y.shape[1:]), y.dtype)
    xs[: len(x)], ys[: len(y)] = x, y
    found = []
    for i in range(0, total, chunk):
        found += _program(loss)(params, xs[i : i + chunk], ys[i : i + chunk]).tolist()
    return np.array(found[: len(x)], np.float32)


# %% 4.1 right: windows that overlap at the end
@partial(jax.jit, static_argnums=(0, 4))
def _window(loss, params, x, y, chunk):
    assert len(x) == chunk
    gradients = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(params, x, y)
    return jnp.sqrt(
        jax.tree.reduce(jnp.add, jax.tree.map(lambda g: jnp.sum(g**2, range(1, g.ndim)), gradients))
    )


def chunked_norms(loss, params, x, y, chunk):
    if len(x) == 0:
        return np.array([], np.float32)
    if len(x) < chunk:
        rows = np.arange(chunk) % len(x)
        return np.asarray(_window(loss, params, x[rows], y[rows], chunk))[: len(x)]
    norms = np.zeros(len(x), np.float32)
    for start in [*range(0, len(x) - chunk, chunk), len(x) - chunk]:
        here = slice(start, start + chunk)
        norms[here] = _window(loss, params, x[here], y[here], chunk)
    return norms


# %% 4.1 wrong: lax.map with a batch size
# `jax.lax.map(batch_size=…)` holds one chunk at a time, but it is part of a program for exactly B
# examples: each new B compiles. Cut the batch into chunks before JAX sees it.
# see: 4.3
@partial(jax.jit, static_argnames=("loss", "chunk"))
def _mapped(loss, params, x, y, chunk):
    one = lambda example: global_norm(jax.grad(loss)(params, *example))
    return jax.lax.map(one, (x, y), batch_size=chunk)


def chunked_norms(loss, params, x, y, chunk):
    return np.asarray(_mapped(loss, params, x, y, chunk))


# %% 4.1 wrong: all examples at once
# One vmap over the whole batch holds B gradients at once, and is compiled for each B.
# see: 4.3
@partial(jax.jit, static_argnames="loss")
def _all_norms(loss, params, x, y):
    return jax.vmap(global_norm)(jax.vmap(jax.grad(loss), (None, 0, 0))(params, x, y))


def chunked_norms(loss, params, x, y, chunk):
    return np.asarray(_all_norms(loss, params, x, y))


# %% 4.1 wrong: pads to whole chunks, then one program for all of them
# The padded batch has as many rows as there are chunks times `chunk`, so each number of chunks is a
# program. Call a program for one chunk from a Python loop.
# see: 4.3
@partial(jax.jit, static_argnames=("loss", "chunk"))
def _padded(loss, params, x, y, chunk):
    one = lambda example: global_norm(jax.grad(loss)(params, *example))
    return jax.lax.map(one, (x, y), batch_size=chunk)


def chunked_norms(loss, params, x, y, chunk):
    extra = -len(x) % chunk
    xs = np.concatenate([x, np.zeros((extra, *x.shape[1:]), x.dtype)])
    ys = np.concatenate([y, np.zeros((extra, *y.shape[1:]), y.dtype)])
    if len(xs) == 0:
        return np.zeros(0, np.float32)
    return np.asarray(_padded(loss, params, xs, ys, chunk))[: len(x)]


# %% 4.1 wrong: the last chunk is short
# The rest of the batch is smaller than a chunk, and a smaller shape is another program. Pad it, and
# cut the result.
# see: 4.3
@partial(jax.jit, static_argnames="loss")
def _chunk_of_norms(loss, params, x, y):
    return jax.vmap(lambda *e: global_norm(jax.grad(loss)(params, *e)))(x, y)


def chunked_norms(loss, params, x, y, chunk):
    norms = [np.zeros(0, np.float32)]
    for i in range(0, len(x), chunk):
        norms.append(np.asarray(_chunk_of_norms(loss, params, x[i : i + chunk], y[i : i + chunk])))
    return np.concatenate(norms)


# %% 4.1 wrong: drops what does not fill a chunk
# The last examples, fewer than a chunk, get no norm. Pad the last chunk instead of dropping it.
# see: 4.3
@partial(jax.jit, static_argnames="loss")
def _chunk_of_norms(loss, params, x, y):
    return jax.vmap(lambda *e: global_norm(jax.grad(loss)(params, *e)))(x, y)


def chunked_norms(loss, params, x, y, chunk):
    norms = [np.zeros(0, np.float32)]
    for i in range(0, len(x) - chunk + 1, chunk):
        norms.append(np.asarray(_chunk_of_norms(loss, params, x[i : i + chunk], y[i : i + chunk])))
    return np.concatenate(norms)


# %% 4.1 wrong: returns the norms of the padding too
# The rows that fill the last chunk have gradients as well. Cut them off before you return.
# see: 4.3
@partial(jax.jit, static_argnames="loss")
def _chunk_of_norms(loss, params, x, y):
    return jax.vmap(lambda *e: global_norm(jax.grad(loss)(params, *e)))(x, y)


def chunked_norms(loss, params, x, y, chunk):
    extra = -len(x) % chunk
    x = np.concatenate([x, np.zeros((extra, *x.shape[1:]), x.dtype)])
    y = np.concatenate([y, np.zeros((extra, *y.shape[1:]), y.dtype)])
    norms = [np.zeros(0, np.float32)]
    for i in range(0, len(x), chunk):
        norms.append(np.asarray(_chunk_of_norms(loss, params, x[i : i + chunk], y[i : i + chunk])))
    return np.concatenate(norms)


# %% 4.1 wrong: joins and cuts with jnp
# Outside jit, `jnp.concatenate` of three chunks is a program, of four another, and so is each `[:n]`.
# Bring every chunk to NumPy first.
# see: 4.3
@partial(jax.jit, static_argnames="loss")
def _chunk_of_norms(loss, params, x, y):
    return jax.vmap(lambda *e: global_norm(jax.grad(loss)(params, *e)))(x, y)


def chunked_norms(loss, params, x, y, chunk):
    n, extra = len(x), -len(x) % chunk
    x = np.concatenate([x, np.zeros((extra, *x.shape[1:]), x.dtype)])
    y = np.concatenate([y, np.zeros((extra, *y.shape[1:]), y.dtype)])
    norms = [jnp.zeros(0)]
    for i in range(0, len(x), chunk):
        norms.append(_chunk_of_norms(loss, params, x[i : i + chunk], y[i : i + chunk]))
    return jnp.concatenate(norms)[:n]


# %% 4.1 wrong: pads every batch to one large size
# Whatever the size is, some batch exceeds it, and a batch of 3 costs as much as the largest. Cut the
# batch into chunks, and call a program for one chunk as often as needed.
# see: 4.3
@partial(jax.jit, static_argnames=("loss", "chunk"))
def _large(loss, params, x, y, chunk):
    one = lambda example: global_norm(jax.grad(loss)(params, *example))
    return jax.lax.map(one, (x, y), batch_size=chunk)


def chunked_norms(loss, params, x, y, chunk):
    xs = np.zeros((1024, *x.shape[1:]), x.dtype)
    ys = np.zeros((1024, *y.shape[1:]), y.dtype)
    xs[: len(x)], ys[: len(y)] = x, y
    return np.asarray(_large(loss, params, xs, ys, chunk))[: len(x)]


# %% 4.1 wrong: joins no norms where there is no example
# With B = 0 the loop runs no pass, and `np.concatenate` of an empty list raises. Start the list with an
# empty array, or fill a result that was made for B norms.
# see: 4.3
@partial(jax.jit, static_argnames="loss")
def _chunk_of_norms(loss, params, x, y):
    return jax.vmap(lambda *e: global_norm(jax.grad(loss)(params, *e)))(x, y)


def chunked_norms(loss, params, x, y, chunk):
    norms = []
    for start in range(0, len(x), chunk):
        rows = np.minimum(np.arange(start, start + chunk), len(x) - 1)
        norms.append(np.asarray(_chunk_of_norms(loss, params, x[rows], y[rows])))
    return np.concatenate(norms)[: len(x)]


# %% 4.1 wrong: takes every example for a vector
# An example may have any number of axes: (B, 2, 3) here. Pad along the first axis, and leave the others
# as they are.
# see: 4.3
@partial(jax.jit, static_argnames="loss")
def _chunk_of_norms(loss, params, x, y):
    return jax.vmap(lambda *e: global_norm(jax.grad(loss)(params, *e)))(x, y)


def chunked_norms(loss, params, x, y, chunk):
    extra = -len(x) % chunk
    xs = np.concatenate([x, np.zeros((extra, x.shape[1]), x.dtype)])
    ys = np.concatenate([y, np.zeros((extra, y.shape[1]), y.dtype)])
    norms = [np.zeros(0, np.float32)]
    for i in range(0, len(xs), chunk):
        norms.append(
            np.asarray(_chunk_of_norms(loss, params, xs[i : i + chunk], ys[i : i + chunk]))
        )
    return np.concatenate(norms)[: len(x)]


# %% 4.1 wrong: takes a chunk of 1 for no chunk at all
# A chunk may hold a single example: it is a chunk like any other.
# see: 4.3
@partial(jax.jit, static_argnames="loss")
def _chunk_of_norms(loss, params, x, y):
    return jax.vmap(lambda *e: global_norm(jax.grad(loss)(params, *e)))(x, y)


def chunked_norms(loss, params, x, y, chunk):
    assert chunk > 1 and x.ndim == 2
    norms = np.empty(len(x), np.float32)
    for start in range(0, len(x), chunk):
        rows = np.minimum(np.arange(start, start + chunk), len(x) - 1)
        found = np.asarray(_chunk_of_norms(loss, params, x[rows], y[rows]))
        norms[start : start + chunk] = found[: len(x) - start]
    return norms


# %% 4.1 wrong: one example at a time
# A program for one example fits any B, and wastes the machine: `chunk` examples at once cost little
# more than one. Use the room that you were given.
# see: 4.3
@partial(jax.jit, static_argnames="loss")
def _one_norm(loss, params, x, y):
    return global_norm(jax.grad(loss)(params, x, y))


def chunked_norms(loss, params, x, y, chunk):
    return np.array([_one_norm(loss, params, *e) for e in zip(x, y)], np.float32)


# %% 4.1 wrong: jit inside the function
# `jax.jit` of a new inner function starts with an empty cache, so every batch compiles again. Make it
# once, at module level.
# see: 4.3
def chunked_norms(loss, params, x, y, chunk):
    norm = lambda x, y: global_norm(jax.grad(loss)(params, x, y))
    program = jax.jit(jax.vmap(norm))
    n, extra = len(x), -len(x) % chunk
    x = np.concatenate([x, np.zeros((extra, *x.shape[1:]), x.dtype)])
    y = np.concatenate([y, np.zeros((extra, *y.shape[1:]), y.dtype)])
    norms = [np.zeros(0, np.float32)]
    for i in range(0, len(x), chunk):
        norms.append(np.asarray(program(x[i : i + chunk], y[i : i + chunk])))
    return np.concatenate(norms)[:n]


# %% 4.1 wrong: no jit
# Nothing compiles for a new B, because every operation of a chunk was compiled by itself, and each is
# started from Python. Jit the chunk as a whole.
# see: 4.3
def chunked_norms(loss, params, x, y, chunk):
    norms = np.empty(len(x), np.float32)
    for start in range(0, len(x), chunk):
        rows = np.minimum(np.arange(start, start + chunk), len(x) - 1)
        found = jax.vmap(global_norm)(per_example.grads(loss, params, x[rows], y[rows]))
        norms[start : start + chunk] = np.asarray(found)[: len(x) - start]
    return norms


# %% 4.1 wrong: keeps the parameters of the first call
# The program was built around the parameters of the first call: they are constants in it. Whatever
# changes must be an argument.
# see: 4.3
_programs = {}


def chunked_norms(loss, params, x, y, chunk):
    if loss not in _programs:
        _programs[loss] = jax.jit(jax.vmap(lambda *e: global_norm(jax.grad(loss)(params, *e))))
    n, extra = len(x), -len(x) % chunk
    x = np.concatenate([x, np.zeros((extra, *x.shape[1:]), x.dtype)])
    y = np.concatenate([y, np.zeros((extra, *y.shape[1:]), y.dtype)])
    norms = [np.zeros(0, np.float32)]
    for i in range(0, len(x), chunk):
        norms.append(np.asarray(_programs[loss](x[i : i + chunk], y[i : i + chunk])))
    return np.concatenate(norms)[:n]


# %% 4.1 wrong: adds up the norms of the leaves
# The length of a gradient is the root of the sum of all squares. Lengths of its parts don't add up.
# see: 4.3
@partial(jax.jit, static_argnames="loss")
def _chunk_of_norms(loss, params, x, y):
    def norm(x, y):
        return sum(jnp.linalg.norm(g) for g in jax.tree.leaves(jax.grad(loss)(params, x, y)))

    return jax.vmap(norm)(x, y)


def chunked_norms(loss, params, x, y, chunk):
    norms = np.empty(len(x), np.float32)
    for start in range(0, len(x), chunk):
        rows = np.minimum(np.arange(start, start + chunk), len(x) - 1)
        found = np.asarray(_chunk_of_norms(loss, params, x[rows], y[rows]))
        norms[start : start + chunk] = found[: len(x) - start]
    return norms


# %% 4.1 wrong: the norm of the chunk's gradient
# The gradient of a sum over examples is one gradient, and has one norm. Differentiate each example by
# itself.
# see: 4.1
@partial(jax.jit, static_argnames="loss")
def _chunk_norm(loss, params, x, y):
    total = lambda params: jnp.sum(jax.vmap(loss, (None, 0, 0))(params, x, y))
    return global_norm(jax.grad(total)(params))


def chunked_norms(loss, params, x, y, chunk):
    norms = np.empty(len(x), np.float32)
    for start in range(0, len(x), chunk):
        rows = np.minimum(np.arange(start, start + chunk), len(x) - 1)
        norms[start : start + chunk] = _chunk_norm(loss, params, x[rows], y[rows])
    return norms


# %% 4.2 right: a scan that carries the sum
def clipped_sum(loss, params, x, y, mask, max_norm):
    def add(total, example):
        x, y, real = example
        gradient = clip_to_norm(jax.grad(loss)(params, x, y), max_norm)
        return jax.tree.map(lambda t, g: t + jnp.where(real, g, 0), total, gradient), None

    return jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), (x, y, mask))[0]


# %% 4.2 right: norms first, then one gradient of a weighted loss
def clipped_sum(loss, params, x, y, mask, max_norm):
    x = jnp.where(mask[:, None], x, 0)
    norms = jax.lax.map(lambda e: global_norm(jax.grad(loss)(params, *e)), (x, y))
    weights = jnp.where(mask, jnp.minimum(1, max_norm / norms), 0)
    return jax.grad(lambda p: weights @ jax.vmap(loss, (None, 0, 0))(p, x, y))(params)


# %% 4.2 right: a loop over indices, with cond
def clipped_sum(loss, params, x, y, mask, max_norm):
    def clipped(i):
        gradient = jax.grad(loss)(params, x[i], y[i])
        leaves = jax.tree.leaves(gradient)
        norm = jnp.sqrt(sum(jnp.vdot(g, g) for g in leaves))
        return jax.tree.map(lambda g: g / jnp.maximum(1.0, norm / max_norm), gradient)

    def body(i, total):
        add = lambda total: jax.tree.map(jnp.add, total, clipped(i))
        return jax.lax.cond(mask[i], add, lambda total: total, total)

    return jax.lax.fori_loop(0, len(mask), body, jax.tree.map(jnp.zeros_like, params))


# %% 4.2 right: norms in small batches, then weights through a pullback
def clipped_sum(loss, params, x, y, mask, max_norm):
    x = jnp.where(mask[:, None], x, 1)
    y = jnp.where(mask[:, None], y, 1)
    norms = per_example.grad_norms(loss, params, x, y, chunk=2)
    weights = mask * jnp.where(norms > max_norm, max_norm / norms, 1)
    _, pull = jax.vjp(lambda p: jax.vmap(partial(loss, p))(x, y), params)
    return pull(weights)[0]


# %% 4.2 wrong: all gradients at once
# The numbers are right, but `vmap(grad)` holds B gradients, and then again their clipped copies.
# Add them up one by one, or find the norms first.
# see: 4.3
def clipped_sum(loss, params, x, y, mask, max_norm):
    clipped = privacy.clip_each(per_example.grads(loss, params, x, y), max_norm)

    def total(g):
        real = mask.reshape(-1, *[1] * (g.ndim - 1))
        return jnp.sum(jnp.where(real, g, 0), axis=0)

    return jax.tree.map(total, clipped)


# %% 4.2 wrong: norms from all gradients at once
# One weighted gradient needs no gradient of each example, but the norms were taken from B of them.
# Take the norms in chunks, and the two passes fit.
# see: 4.3
def clipped_sum(loss, params, x, y, mask, max_norm):
    x = jnp.where(mask[:, None], x, 0)
    norms = jax.vmap(global_norm)(per_example.grads(loss, params, x, y))
    weights = jnp.where(mask, jnp.minimum(1, max_norm / (norms + 1e-6)), 0)
    return jax.grad(lambda p: weights @ jax.vmap(loss, (None, 0, 0))(p, x, y))(params)


# %% 4.2 wrong: clips the sum
# A sum within the limit may still be one example's work. Each gradient must be clipped before it is
# added.
# see: 4.4
def clipped_sum(loss, params, x, y, mask, max_norm):
    x = jnp.where(mask[:, None], x, 0)

    def total(p):
        return jnp.sum(jnp.where(mask, jax.vmap(loss, (None, 0, 0))(p, x, y), 0))

    return clip_to_norm(jax.grad(total)(params), max_norm)


# %% 4.2 wrong: the mean in place of the sum
# The noise that follows is measured for a sum, which one example changes by at most `max_norm`. Divide
# after the noise, not before.
# see: 4.5
def clipped_sum(loss, params, x, y, mask, max_norm):
    def add(total, example):
        x, y, real = example
        gradient = clip_to_norm(jax.grad(loss)(params, x, y), max_norm)
        return jax.tree.map(lambda t, g: t + jnp.where(real, g, 0), total, gradient), None

    total = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), (x, y, mask))[0]
    return jax.tree.map(lambda t: t / jnp.maximum(mask.sum(), 1), total)


# %% 4.2 wrong: the mean over all rows
# Every row was counted, those outside the mask too, and a sum was asked for: the noise that follows is
# measured for what one example can change in a *sum*.
# see: 4.5
def clipped_sum(loss, params, x, y, mask, max_norm):
    def add(total, example):
        x, y, real = example
        gradient = clip_to_norm(jax.grad(loss)(params, x, y), max_norm)
        return jax.tree.map(lambda t, g: t + jnp.where(real, g, 0), total, gradient), None

    total = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), (x, y, mask))[0]
    return jax.tree.map(lambda t: t / len(mask), total)


# %% 4.2 wrong: divides by the number of rows in the mask, and multiplies again
# With no row in the mask, that is 0 / 0. A sum needs no count.
# see: 4.4
def clipped_sum(loss, params, x, y, mask, max_norm):
    def add(total, example):
        x, y, real = example
        gradient = clip_to_norm(jax.grad(loss)(params, x, y), max_norm)
        return jax.tree.map(lambda t, g: t + jnp.where(real, g, 0), total, gradient), None

    total = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), (x, y, mask))[0]
    count = mask.sum()
    return jax.tree.map(lambda t: t / count * count, total)


# %% 4.2 wrong: the shorter length over the norm
# min(n, C) / n is the right factor for every gradient but one: of length 0 it makes 0 / 0.
# see: 4.4
def clipped_sum(loss, params, x, y, mask, max_norm):
    def add(total, example):
        x, y, real = example
        gradient = jax.grad(loss)(params, x, y)
        norm = global_norm(gradient)
        factor = jnp.minimum(norm, max_norm) / norm
        return jax.tree.map(lambda t, g: t + jnp.where(real, factor * g, 0), total, gradient), None

    return jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), (x, y, mask))[0]


# %% 4.2 wrong: the limit over the longer length
# C / max(C, n) is the right factor for every limit but one: without a limit, it makes inf / inf.
# see: 4.4
def clipped_sum(loss, params, x, y, mask, max_norm):
    def add(total, example):
        x, y, real = example
        gradient = jax.grad(loss)(params, x, y)
        factor = max_norm / jnp.maximum(max_norm, global_norm(gradient))
        return jax.tree.map(lambda t, g: t + jnp.where(real, factor * g, 0), total, gradient), None

    return jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), (x, y, mask))[0]


# %% 4.2 wrong: clips in a loop, and keeps what the loop returns
# `lax.map` makes one gradient at a time and stacks them all, so B gradients are there in the end. Carry
# the sum through the loop.
# see: 4.3
def clipped_sum(loss, params, x, y, mask, max_norm):
    def clipped(example):
        x, y, real = example
        gradient = clip_to_norm(jax.grad(loss)(params, x, y), max_norm)
        return jax.tree.map(lambda g: jnp.where(real, g, 0), gradient)

    each = jax.lax.map(clipped, (x, y, mask))
    return jax.tree.map(lambda g: jnp.sum(g, axis=0), each)


# %% 4.2 wrong: clips each leaf by itself
# With two leaves, each as long as the limit, the gradient is √2 times as long as allowed. The length is
# that of all leaves together.
# see: 4.4
def clipped_sum(loss, params, x, y, mask, max_norm):
    def add(total, example):
        x, y, real = example
        clipped = jax.tree.map(lambda g: clip_to_norm(g, max_norm), jax.grad(loss)(params, x, y))
        return jax.tree.map(lambda t, g: t + jnp.where(real, g, 0), total, clipped), None

    return jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), (x, y, mask))[0]


# %% 4.2 wrong: clips each number by itself
# `jnp.clip` bends the gradient into another direction, and leaves it longer than the limit. Scale the
# whole gradient by one factor.
# see: 4.4
def clipped_sum(loss, params, x, y, mask, max_norm):
    def add(total, example):
        x, y, real = example
        gradient = jax.grad(loss)(params, x, y)
        clipped = jax.tree.map(lambda g: jnp.clip(g, -max_norm, max_norm), gradient)
        return jax.tree.map(lambda t, g: t + jnp.where(real, g, 0), total, clipped), None

    return jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), (x, y, mask))[0]


# %% 4.2 wrong: gives every gradient the length of the limit
# Clipping shortens what is too long. Multiplying by `max_norm / norm` also lengthens what is short, and
# makes NaN of a gradient that is 0.
# see: 4.4
def clipped_sum(loss, params, x, y, mask, max_norm):
    def add(total, example):
        x, y, real = example
        gradient = jax.grad(loss)(params, x, y)
        factor = max_norm / global_norm(gradient)
        return jax.tree.map(lambda t, g: t + jnp.where(real, factor * g, 0), total, gradient), None

    return jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), (x, y, mask))[0]


# %% 4.2 wrong: multiplies by the mask
# 0 times NaN is NaN, so one spoiled row outside the mask spoils the sum. Select with `jnp.where`. Where
# a loss is selected, its backward pass still runs through the row: replace what goes into it.
# see: 4.4
def clipped_sum(loss, params, x, y, mask, max_norm):
    def add(total, example):
        x, y, real = example
        gradient = clip_to_norm(jax.grad(loss)(params, x, y), max_norm)
        return jax.tree.map(lambda t, g: t + real * g, total, gradient), None

    return jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), (x, y, mask))[0]


# %% 4.2 wrong: ignores the mask
# Rows outside the mask are padding, or were not drawn. They must not contribute.
# see: 4.4
def clipped_sum(loss, params, x, y, mask, max_norm):
    def add(total, example):
        gradient = clip_to_norm(jax.grad(loss)(params, *example), max_norm)
        return jax.tree.map(jnp.nan_to_num, jax.tree.map(jnp.add, total, gradient)), None

    return jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), (x, y))[0]


# %% 4.2 wrong: differentiates the clipping factors too
# The factors are numbers to multiply with, not part of the loss. Here their own derivatives enter the
# gradient: compute them outside the function that is differentiated, or stop the gradient.
# see: 4.4
def clipped_sum(loss, params, x, y, mask, max_norm):
    x = jnp.where(mask[:, None], x, 0)

    def total(p):
        norms = jax.lax.map(lambda e: global_norm(jax.grad(loss)(p, *e)) + 1e-6, (x, y))
        weights = jnp.where(mask, jnp.minimum(1, max_norm / norms), 0)
        return weights @ jax.vmap(loss, (None, 0, 0))(p, x, y)

    return jax.grad(total)(params)


# %% 4.3 right: per-example gradients against the trusted one
def find_flipped(loss, params, x, y, trusted_x, trusted_y, k):
    trusted = jax.tree.map(
        lambda g: g.mean(0), per_example.grads(loss, params, trusted_x, trusted_y)
    )
    each = per_example.grads(loss, params, x, y)
    dots = sum(
        jnp.tensordot(g, t, axes=t.ndim)
        for g, t in zip(jax.tree.leaves(each), jax.tree.leaves(trusted))
    )
    return jnp.argsort(dots)[:k]


# %% 4.3 right: one jvp of all losses along the trusted gradient
def find_flipped(loss, params, x, y, trusted_x, trusted_y, k):
    all_losses = jax.vmap(loss, in_axes=(None, 0, 0))
    trusted = jax.grad(lambda p: jnp.mean(all_losses(p, trusted_x, trusted_y)))(params)
    _, slopes = jax.jvp(lambda p: all_losses(p, x, y), (params,), (trusted,))
    return jax.lax.top_k(-slopes, k)[1]


# %% 4.3 right: takes the step and differentiates by its length
def find_flipped(loss, params, x, y, trusted_x, trusted_y, k):
    def trusted_loss_after_step(rate, x, y):
        step = jax.grad(loss)(params, x, y)
        moved = jax.tree.map(lambda p, g: p - rate * g, params, step)
        return jnp.mean(jax.vmap(lambda a, b: loss(moved, a, b))(trusted_x, trusted_y))

    rises = jax.vmap(jax.grad(trusted_loss_after_step), (None, 0, 0))(0.0, x, y)
    return jnp.flip(jnp.argsort(rises))[:k]


# %% 4.3 wrong: the longest gradients
# A long gradient says that an example pulls hard, not that it pulls the wrong way: hard examples that
# are labelled rightly come out on top. Compare directions with the trusted gradient.
# see: 4.6
def find_flipped(loss, params, x, y, trusted_x, trusted_y, k):
    norms = jax.vmap(global_norm)(per_example.grads(loss, params, x, y))
    return jnp.argsort(-norms)[:k]


# %% 4.3 wrong: the largest losses
# A large loss may be the model's fault. Ask what a step on the example does to the trusted loss.
# see: 4.6
def find_flipped(loss, params, x, y, trusted_x, trusted_y, k):
    return jnp.argsort(-jax.vmap(loss, (None, 0, 0))(params, x, y))[:k]


# %% 4.3 wrong: the most helpful first
# Gradient descent moves *against* the gradient. A step on an example whose gradient points along the
# trusted one lowers the trusted loss, and such examples came out first.
# see: 4.6
def find_flipped(loss, params, x, y, trusted_x, trusted_y, k):
    all_losses = jax.vmap(loss, (None, 0, 0))
    trusted = jax.grad(lambda p: jnp.mean(all_losses(p, trusted_x, trusted_y)))(params)
    slopes = jax.jvp(lambda p: all_losses(p, x, y), (params,), (trusted,))[1]
    return jnp.argsort(-slopes)[:k]


# %% 4.3 wrong: against the mean of the noisy gradients
# The mean over the noisy examples is itself bent by the flipped ones. The measure is the trusted set.
# see: 4.6
def find_flipped(loss, params, x, y, trusted_x, trusted_y, k):
    all_losses = jax.vmap(loss, (None, 0, 0))
    mean = jax.grad(lambda p: jnp.mean(all_losses(p, x, y)))(params)
    slopes = jax.jvp(lambda p: all_losses(p, x, y), (params,), (mean,))[1]
    return jnp.argsort(slopes)[:k]


# %% 4.3 wrong: the angle alone
# A cosine drops the length, and a short gradient at a bad angle does little harm. The rate at which the
# trusted loss rises grows with the example's gradient.
# see: 4.6
def find_flipped(loss, params, x, y, trusted_x, trusted_y, k):
    all_losses = jax.vmap(loss, (None, 0, 0))
    trusted = jax.grad(lambda p: jnp.mean(all_losses(p, trusted_x, trusted_y)))(params)
    slopes = jax.jvp(lambda p: all_losses(p, x, y), (params,), (trusted,))[1]
    return jnp.argsort(slopes / jax.vmap(global_norm)(per_example.grads(loss, params, x, y)))[:k]


# %% 4.3 wrong: the loss after a step of a tenth
# A step of some length also feels how the loss bends, and ranks by that, too. Asked for is the rate at
# the start: a derivative by η, at η = 0.
# see: 4.6
def find_flipped(loss, params, x, y, trusted_x, trusted_y, k):
    def trusted_loss_after_step(x, y):
        moved = jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params, x, y))
        return jnp.mean(jax.vmap(lambda a, b: loss(moved, a, b))(trusted_x, trusted_y))

    return jnp.argsort(-jax.vmap(trusted_loss_after_step)(x, y))[:k]


# %% 4.3 wrong: the index alone for k = 1
# An array of k integers has the shape (1,) for k = 1. Don't squeeze.
# see: 4.6
def find_flipped(loss, params, x, y, trusted_x, trusted_y, k):
    all_losses = jax.vmap(loss, (None, 0, 0))
    trusted = jax.grad(lambda p: jnp.mean(all_losses(p, trusted_x, trusted_y)))(params)
    slopes = jax.jvp(lambda p: all_losses(p, x, y), (params,), (trusted,))[1]
    return jnp.squeeze(jnp.argsort(slopes)[:k])


# %% 4.3 wrong: without the sign
# The strongest influence may be a good one. Keep the sign of the inner product.
# see: 4.6
def find_flipped(loss, params, x, y, trusted_x, trusted_y, k):
    all_losses = jax.vmap(loss, (None, 0, 0))
    trusted = jax.grad(lambda p: jnp.mean(all_losses(p, trusted_x, trusted_y)))(params)
    slopes = jax.jvp(lambda p: all_losses(p, x, y), (params,), (trusted,))[1]
    return jnp.argsort(-jnp.abs(slopes))[:k]


# %% 4.3 wrong: one leaf of the gradient only
# The parameters are a tree, and its gradient is one long vector: add the inner products of all leaves.
# see: 4.6
def find_flipped(loss, params, x, y, trusted_x, trusted_y, k):
    trusted = per_example.grads(loss, params, trusted_x, trusted_y)
    each = per_example.grads(loss, params, x, y)
    return jnp.argsort(each["w"] @ jnp.mean(trusted["w"], axis=0))[:k]


# %% 4.3 wrong: the least harmful of the k first
# The right examples, in rising order of harm. The most harmful comes first.
# see: 4.6
def find_flipped(loss, params, x, y, trusted_x, trusted_y, k):
    all_losses = jax.vmap(loss, (None, 0, 0))
    trusted = jax.grad(lambda p: jnp.mean(all_losses(p, trusted_x, trusted_y)))(params)
    slopes = jax.jvp(lambda p: all_losses(p, x, y), (params,), (trusted,))[1]
    return jnp.argsort(-slopes)[len(x) - k :]


# %% 4.3 wrong: returns the harm
# The harm of each example ranks them; asked for are their indices, k of them.
# see: 4.6
def find_flipped(loss, params, x, y, trusted_x, trusted_y, k):
    all_losses = jax.vmap(loss, (None, 0, 0))
    trusted = jax.grad(lambda p: jnp.mean(all_losses(p, trusted_x, trusted_y)))(params)
    return jnp.sort(-jax.jvp(lambda p: all_losses(p, x, y), (params,), (trusted,))[1])[::-1][:k]


# %% 4.4 right: a Jacobian of log-probabilities for each example
def diagonal_fisher(logits, params, x):
    def one(x):
        log_probs = jax.nn.log_softmax(logits(params, x))
        scores = jax.jacrev(lambda p: jax.nn.log_softmax(logits(p, x)))(params)
        return jax.tree.map(lambda s: jnp.tensordot(jnp.exp(log_probs), s**2, 1), scores)

    return jax.tree.map(lambda f: jnp.mean(f, axis=0), jax.vmap(one)(x))


# %% 4.4 right: the variance of the logits' derivatives under the model
def diagonal_fisher(logits, params, x):
    def one(x):
        probs = jax.nn.softmax(logits(params, x))
        slopes = jax.jacfwd(logits)(params, x)

        def variance(s):
            centred = s - jnp.tensordot(probs, s, 1)
            return jnp.tensordot(probs, centred**2, 1)

        return jax.tree.map(variance, slopes)

    total = jax.lax.map(one, x)
    return jax.tree.map(lambda f: jnp.sum(f, axis=0) / len(x), total)


# %% 4.4 right: a Python loop over the labels
def diagonal_fisher(logits, params, x):
    def log_prob(params, x, label):
        return jax.nn.log_softmax(logits(params, x))[label]

    probs = jax.nn.softmax(jax.vmap(logits, (None, 0))(params, x))
    fisher = jax.tree.map(jnp.zeros_like, params)
    for label in range(probs.shape[1]):
        scores = jax.vmap(jax.grad(log_prob), (None, 0, None))(params, x, label)
        fisher = jax.tree.map(
            lambda f, s: f + jnp.tensordot(probs[:, label] / len(x), s**2, 1), fisher, scores
        )
    return fisher


# %% 4.4 wrong: the likeliest label only
# The expectation runs over all labels that the model could draw, each with its probability. The
# likeliest one alone leaves the rare labels out, which have the largest scores.
# see: 4.7
def diagonal_fisher(logits, params, x):
    def one(x):
        scores = jax.jacrev(lambda p: jax.nn.log_softmax(logits(p, x)))(params)
        label = jnp.argmax(logits(params, x))
        return jax.tree.map(lambda s: s[label] ** 2, scores)

    return jax.tree.map(lambda f: f.mean(0), jax.vmap(one)(x))


# %% 4.4 wrong: all labels count the same
# Labels are drawn with the model's probabilities. A plain mean over them is the Fisher information of
# no model.
# see: 4.7
def diagonal_fisher(logits, params, x):
    def one(x):
        scores = jax.jacrev(lambda p: jax.nn.log_softmax(logits(p, x)))(params)
        return jax.tree.map(lambda s: jnp.mean(s**2, 0), scores)

    return jax.tree.map(lambda f: f.mean(0), jax.vmap(one)(x))


# %% 4.4 wrong: the mean of squares, minus the square of the mean
# The scores are the logits' derivatives minus their mean, and this is their variance on paper. Where
# one label is nearly sure, both terms are nearly equal, and float32 leaves nothing of the difference.
# see: 4.7
def diagonal_fisher(logits, params, x):
    def one(x):
        slopes = jax.jacrev(lambda p: logits(p, x))(params)
        p = jax.nn.softmax(logits(params, x))

        def spread(s):
            return jnp.tensordot(p, s**2, 1) - jnp.tensordot(p, s, 1) ** 2

        return jax.tree.map(spread, slopes)

    return jax.tree.map(lambda f: f.mean(0), jax.vmap(one)(x))


# %% 4.4 wrong: the square of the mean
# Positive and negative scores cancel before they are squared: under the model their mean is exactly 0.
# Square first.
# see: 4.7
def diagonal_fisher(logits, params, x):
    def one(x):
        probs = jax.nn.softmax(logits(params, x))
        scores = jax.jacrev(lambda p: jax.nn.log_softmax(logits(p, x)))(params)
        return jax.tree.map(lambda s: jnp.tensordot(probs, s, 1), scores)

    return jax.tree.map(lambda m: m.mean(0) ** 2, jax.vmap(one)(x))


# %% 4.4 wrong: the batch's gradient, squared
# The mean over the examples was taken before the square, label by label. Each example has scores of its
# own: square them, then average.
# see: 4.7
def diagonal_fisher(logits, params, x):
    probs = jax.nn.softmax(jax.vmap(logits, (None, 0))(params, x))
    mean = lambda p: jnp.mean(jax.nn.log_softmax(jax.vmap(logits, (None, 0))(p, x)), axis=0)
    return jax.tree.map(lambda s: jnp.tensordot(probs.mean(0), s**2, 1), jax.jacrev(mean)(params))


# %% 4.4 wrong: derivatives of probabilities
# The score is the derivative of log p. That of p is smaller by the factor p.
# see: 4.7
def diagonal_fisher(logits, params, x):
    def one(x):
        probs = jax.nn.softmax(logits(params, x))
        slopes = jax.jacrev(lambda p: jax.nn.softmax(logits(p, x)))(params)
        return jax.tree.map(lambda s: jnp.tensordot(probs, s**2, 1), slopes)

    return jax.tree.map(lambda f: f.mean(0), jax.vmap(one)(x))


# %% 4.4 wrong: derivatives of logits
# The logits are not log-probabilities: what normalizes them depends on the parameters, too. Take
# log_softmax before you differentiate.
# see: 4.7
def diagonal_fisher(logits, params, x):
    def one(x):
        probs = jax.nn.softmax(logits(params, x))
        slopes = jax.jacrev(logits)(params, x)
        return jax.tree.map(lambda s: jnp.tensordot(probs, s**2, 1), slopes)

    return jax.tree.map(lambda f: f.mean(0), jax.vmap(one)(x))


# %% 4.4 wrong: the logarithm of a softmax
# A probability that underflowed is 0, its logarithm −inf and the gradient NaN, which a weight of 0 does
# not remove. Dividing by p ends the same way. §4.7 never takes the logarithm of a probability.
# see: 4.7
def diagonal_fisher(logits, params, x):
    def one(x):
        probs = jax.nn.softmax(logits(params, x))
        scores = jax.jacrev(lambda p: jnp.log(jax.nn.softmax(logits(p, x))))(params)
        return jax.tree.map(lambda s: jnp.tensordot(probs, s**2, 1), scores)

    return jax.tree.map(lambda f: f.mean(0), jax.vmap(one)(x))


# %% 4.4 wrong: the logarithm of a softmax and a little more
# The little keeps the logarithm finite, and takes the score from every label that is less likely than
# it. Those labels have the largest scores. A logarithm of a softmax has a form that needs no help.
# see: 4.7
def diagonal_fisher(logits, params, x):
    def one(x):
        probs = jax.nn.softmax(logits(params, x))
        scores = jax.jacrev(lambda p: jnp.log(jax.nn.softmax(logits(p, x)) + 1e-6))(params)
        return jax.tree.map(lambda s: jnp.tensordot(probs, s**2, 1), scores)

    return jax.tree.map(lambda f: f.mean(0), jax.vmap(one)(x))


# %% 4.4 wrong: one label drawn for each example
# A drawn label gives the right answer on average, with all the noise of a single throw. There are only C
# labels: take the expectation itself.
# see: 4.7
def diagonal_fisher(logits, params, x):
    labels = jax.random.categorical(jax.random.key(0), jax.vmap(logits, (None, 0))(params, x))

    def log_prob(params, x, label):
        return jax.nn.log_softmax(logits(params, x))[label]

    return jax.tree.map(
        lambda g: jnp.mean(g**2, axis=0), per_example.grads(log_prob, params, x, labels)
    )


# %% 4.4 wrong: the sum over the examples
# Fisher information here is a mean over the examples: divide by B.
# see: 4.7
def diagonal_fisher(logits, params, x):
    def one(x):
        log_probs = jax.nn.log_softmax(logits(params, x))
        scores = jax.jacrev(lambda p: jax.nn.log_softmax(logits(p, x)))(params)
        return jax.tree.map(lambda s: jnp.tensordot(jnp.exp(log_probs), s**2, 1), scores)

    return jax.tree.map(lambda f: f.sum(0), jax.vmap(one)(x))


# %% 4.5 right: offsets of zero, and the gradient by them
def mlp_grad_norms(params, x, labels):
    def total(offsets):
        inputs = [x]
        for layer, offset in zip(params, offsets):
            z = inputs[-1] @ layer["w"] + layer["b"] + offset
            inputs.append(jnp.tanh(z))
        return -jnp.sum(jax.nn.log_softmax(z)[jnp.arange(len(x)), labels]), inputs[:-1]

    offsets = [jnp.zeros((len(x), len(layer["b"]))) for layer in params]
    deltas, inputs = jax.grad(total, has_aux=True)(offsets)
    return jnp.sqrt(sum(jnp.sum(d**2, 1) * (1 + jnp.sum(a**2, 1)) for d, a in zip(deltas, inputs)))


# %% 4.5 right: backpropagation by hand
def mlp_grad_norms(params, x, labels):
    inputs = [x]
    for layer in params[:-1]:
        inputs.append(jnp.tanh(inputs[-1] @ layer["w"] + layer["b"]))
    logits = inputs[-1] @ params[-1]["w"] + params[-1]["b"]
    delta = jax.nn.softmax(logits) - jax.nn.one_hot(labels, logits.shape[1])
    squares = jnp.zeros(len(x))
    for layer, a in zip(params[::-1], inputs[::-1]):
        squares += jnp.einsum("bi,bi->b", delta, delta) * (jnp.einsum("bi,bi->b", a, a) + 1)
        delta = (delta @ layer["w"].T) * (1 - a * a)
    return squares**0.5


# %% 4.5 right: one example's two vectors a layer, then vmap
def mlp_grad_norms(params, x, labels):
    def norm(x, label):
        squares, pulls, a = 0.0, [], x
        for i, layer in enumerate(params):
            last = i == len(params) - 1
            act = (lambda z: z) if last else jnp.tanh
            z = a @ layer["w"] + layer["b"]
            pulls.append((a, jax.vjp(act, z)[1], layer["w"]))
            a = act(z)
        delta = jax.grad(losses.cross_entropy)(a, label)
        for a, pull, w in reversed(pulls):
            (delta,) = pull(delta)
            squares += (delta @ delta) * (a @ a + 1)
            delta = w @ delta
        return jnp.sqrt(squares)

    return jax.vmap(norm)(x, labels)


# %% 4.5 wrong: forms all gradients
# The numbers are right, but B gradients of every layer were in memory. Each is an outer product of two
# vectors, and the vectors are enough.
# see: 4.8
def mlp_grad_norms(params, x, labels):
    def loss(params, x, label):
        return losses.cross_entropy(nn.apply_mlp(params, x), label)

    return jax.vmap(global_norm)(per_example.grads(loss, params, x, labels))


# %% 4.5 wrong: forms one gradient at a time
# The memory no longer grows with the batch, but each example still fills a whole gradient, and waits for
# the one before it. The length of an outer product needs neither.
# see: 4.8
def mlp_grad_norms(params, x, labels):
    def loss(params, x, label):
        return losses.cross_entropy(nn.apply_mlp(params, x), label)

    return jax.lax.map(lambda e: global_norm(jax.grad(loss)(params, *e)), (x, labels))


# %% 4.5 wrong: forgets the biases
# The bias of a layer has a gradient too: it is δ itself, so each layer has ‖δ‖² · (‖a‖² + 1).
# see: 4.8
def mlp_grad_norms(params, x, labels):
    inputs = [x]
    for layer in params[:-1]:
        inputs.append(jnp.tanh(inputs[-1] @ layer["w"] + layer["b"]))
    logits = inputs[-1] @ params[-1]["w"] + params[-1]["b"]
    delta = jax.nn.softmax(logits) - jax.nn.one_hot(labels, logits.shape[1])
    squares = jnp.zeros(len(x))
    for layer, a in zip(params[::-1], inputs[::-1]):
        squares += jnp.sum(delta**2, 1) * jnp.sum(a**2, 1)
        delta = (delta @ layer["w"].T) * (1 - a * a)
    return jnp.sqrt(squares)


# %% 4.5 wrong: a first and a last layer
# A network of one layer has no first and last. Treat all layers alike: only the last has no tanh
# behind it.
# see: 4.8
def mlp_grad_norms(params, x, labels):
    first, *between, last = params
    inputs = [x, jnp.tanh(x @ first["w"] + first["b"])]
    for layer in between:
        inputs.append(jnp.tanh(inputs[-1] @ layer["w"] + layer["b"]))
    logits = inputs[-1] @ last["w"] + last["b"]
    delta = jax.nn.softmax(logits) - jax.nn.one_hot(labels, logits.shape[1])
    squares = jnp.zeros(len(x))
    for layer, a in zip(params[::-1], inputs[::-1]):
        squares += jnp.sum(delta**2, 1) * (jnp.sum(a**2, 1) + 1)
        delta = (delta @ layer["w"].T) * (1 - a * a)
    return jnp.sqrt(squares)


# %% 4.5 wrong: the mean loss in place of the sum
# Differentiate the *sum* of the losses: each example's δ is then that of its own loss. The mean divides
# all of them by B.
# see: 4.8
def mlp_grad_norms(params, x, labels):
    def mean(offsets):
        inputs = [x]
        for layer, offset in zip(params, offsets):
            z = inputs[-1] @ layer["w"] + layer["b"] + offset
            inputs.append(jnp.tanh(z))
        return jnp.mean(losses.cross_entropy(z, labels)), inputs[:-1]

    offsets = [jnp.zeros((len(x), len(layer["b"]))) for layer in params]
    deltas, inputs = jax.grad(mean, has_aux=True)(offsets)
    return jnp.sqrt(sum(jnp.sum(d**2, 1) * (1 + jnp.sum(a**2, 1)) for d, a in zip(deltas, inputs)))


# %% 4.5 wrong: adds up the norms of the layers
# Squares add up, lengths don't: take the root once, of the sum over all layers.
# see: 4.8
def mlp_grad_norms(params, x, labels):
    inputs = [x]
    for layer in params[:-1]:
        inputs.append(jnp.tanh(inputs[-1] @ layer["w"] + layer["b"]))
    logits = inputs[-1] @ params[-1]["w"] + params[-1]["b"]
    delta = jax.nn.softmax(logits) - jax.nn.one_hot(labels, logits.shape[1])
    norms = jnp.zeros(len(x))
    for layer, a in zip(params[::-1], inputs[::-1]):
        norms += jnp.sqrt(jnp.sum(delta**2, 1) * (jnp.sum(a**2, 1) + 1))
        delta = (delta @ layer["w"].T) * (1 - a * a)
    return norms


# %% 4.5 wrong: returns the squares
# A length is the root of the sum of squares.
# see: 4.8
def mlp_grad_norms(params, x, labels):
    inputs = [x]
    for layer in params[:-1]:
        inputs.append(jnp.tanh(inputs[-1] @ layer["w"] + layer["b"]))
    logits = inputs[-1] @ params[-1]["w"] + params[-1]["b"]
    delta = jax.nn.softmax(logits) - jax.nn.one_hot(labels, logits.shape[1])
    squares = jnp.zeros(len(x))
    for layer, a in zip(params[::-1], inputs[::-1]):
        squares += jnp.sum(delta**2, 1) * (jnp.sum(a**2, 1) + 1)
        delta = (delta @ layer["w"].T) * (1 - a * a)
    return squares


# %% 4.5 wrong: δ after the activation
# δ belongs to what goes *into* tanh, because that is what the weights make. On its way back it picks up
# the derivative of tanh, 1 − a².
# see: 4.8
def mlp_grad_norms(params, x, labels):
    inputs = [x]
    for layer in params[:-1]:
        inputs.append(jnp.tanh(inputs[-1] @ layer["w"] + layer["b"]))
    logits = inputs[-1] @ params[-1]["w"] + params[-1]["b"]
    delta = jax.nn.softmax(logits) - jax.nn.one_hot(labels, logits.shape[1])
    squares = jnp.zeros(len(x))
    for layer, a in zip(params[::-1], inputs[::-1]):
        squares += jnp.sum(delta**2, 1) * (jnp.sum(a**2, 1) + 1)
        delta = delta @ layer["w"].T
    return jnp.sqrt(squares)


# %% 4.5 wrong: pairs δ with what comes out of the layer
# The weights multiply what goes *into* the layer. Its output belongs to the next layer's gradient.
# see: 4.8
def mlp_grad_norms(params, x, labels):
    def total(offsets):
        a, outputs = x, []
        for layer, offset in zip(params, offsets):
            z = a @ layer["w"] + layer["b"] + offset
            a = jnp.tanh(z)
            outputs.append(a)
        return jnp.sum(losses.cross_entropy(z, labels)), outputs

    offsets = [jnp.zeros((len(x), len(layer["b"]))) for layer in params]
    deltas, outputs = jax.grad(total, has_aux=True)(offsets)
    return jnp.sqrt(sum(jnp.sum(d**2, 1) * (1 + jnp.sum(a**2, 1)) for d, a in zip(deltas, outputs)))


# %% 4.5 wrong: the last layer only
# The gradient runs through all layers. That of the last one is only its end.
# see: 4.8
def mlp_grad_norms(params, x, labels):
    a = x
    for layer in params[:-1]:
        a = jnp.tanh(a @ layer["w"] + layer["b"])
    logits = a @ params[-1]["w"] + params[-1]["b"]
    delta = jax.nn.softmax(logits) - jax.nn.one_hot(labels, logits.shape[1])
    return jnp.sqrt(jnp.sum(delta**2, 1) * (jnp.sum(a**2, 1) + 1))


# %% 4.5 wrong: tanh behind the last layer, too
# The logits come straight from the last layer. Squashed by tanh, they are those of another model.
# see: 4.8
def mlp_grad_norms(params, x, labels):
    def total(offsets):
        a, inputs = x, []
        for layer, offset in zip(params, offsets):
            inputs.append(a)
            a = jnp.tanh(a @ layer["w"] + layer["b"] + offset)
        return jnp.sum(losses.cross_entropy(a, labels)), inputs

    offsets = [jnp.zeros((len(x), len(layer["b"]))) for layer in params]
    deltas, inputs = jax.grad(total, has_aux=True)(offsets)
    return jnp.sqrt(sum(jnp.sum(d**2, 1) * (1 + jnp.sum(a**2, 1)) for d, a in zip(deltas, inputs)))
