"""Right and wrong answers to the exercises of chapter 01; parsed, never imported."""
# ruff: noqa


# %% 1.1 right: slots of a preallocated array
def bucketed_loss(w, b, x, y):
    n = len(y)
    rows = min(size for size in BUCKETS if size >= n)
    xs, ys = np.zeros((rows, x.shape[1]), np.float32), np.zeros(rows, np.float32)
    xs[:n], ys[:n] = x, y
    return _slots_loss(w, b, xs, ys, np.arange(rows) < n)


@jax.jit
def _slots_loss(w, b, x, y, real):
    return jnp.vdot(real, (x @ w + b - y) ** 2) / jnp.maximum(real.sum(), 1)


# %% 1.1 right: the count goes in as an array, and jit makes the mask
@jax.jit
def _counted_loss(w, b, x, y, count):
    error = jnp.where(jnp.arange(x.shape[0]) < count, x @ w + b - y, 0.0)
    return (error @ error) / jnp.where(count > 0, count, 1)


def bucketed_loss(w, b, x, y):
    n = len(y)
    extra = BUCKETS[int(np.searchsorted(BUCKETS, n))] - n
    x, y = np.pad(x, ((0, extra), (0, 0))), np.pad(y, (0, extra))
    return _counted_loss(w, b, x, y, np.int32(n))


# %% 1.1 right: weights that sum to one
class BucketedLoss:
    def __init__(self, buckets):
        self.buckets = sorted(buckets)
        self.compiled = jax.jit(lambda w, b, x, y, weights: weights @ (x @ w + b - y) ** 2)

    def __call__(self, w, b, x, y):
        n = y.shape[0]
        rows = next(size for size in self.buckets if n <= size)
        weights = np.zeros(rows, np.float32)
        weights[:n] = 1 / max(n, 1)
        x = np.concatenate([x, np.ones((rows - n, x.shape[1]), np.float32)])
        return self.compiled(w, b, x, np.resize(y, rows) if n else np.zeros(rows), weights)


bucketed_loss = BucketedLoss(BUCKETS)


# %% 1.1 wrong: pads without a mask
# The padded rows are predictions too: each of them adds b² to the sum and 1 to the count. A mask
# has to keep them out of both.
# see: 1.5
@jax.jit
def _loss(w, b, x, y):
    return jnp.mean((x @ w + b - y) ** 2)


def bucketed_loss(w, b, x, y):
    n = len(y)
    extra = next(size for size in BUCKETS if n <= size) - n
    return _loss(w, b, np.pad(x, ((0, extra), (0, 0))), np.pad(y, (0, extra)))


# %% 1.1 wrong: masks the numerator only
# The sum is right, but `jnp.mean` still divides by the size of the bucket. Divide by the number of
# real rows.
# see: 1.5
@jax.jit
def _loss(w, b, x, y, mask):
    return jnp.mean(jnp.where(mask, (x @ w + b - y) ** 2, 0.0))


def bucketed_loss(w, b, x, y):
    n = len(y)
    rows = next(size for size in BUCKETS if n <= size)
    x, y = np.pad(x, ((0, rows - n), (0, 0))), np.pad(y, (0, rows - n))
    return _loss(w, b, x, y, np.arange(rows) < n)


# %% 1.1 wrong: masks the denominator only
# The count is right, but the sum still holds b² for each padded row. Zeros in x are not zeros in
# the loss: mask the squared errors before they are summed.
# see: 1.5
@jax.jit
def _loss(w, b, x, y, count):
    return jnp.sum((x @ w + b - y) ** 2) / jnp.maximum(count, 1)


def bucketed_loss(w, b, x, y):
    n = len(y)
    extra = next(size for size in BUCKETS if n <= size) - n
    return _loss(w, b, np.pad(x, ((0, extra), (0, 0))), np.pad(y, (0, extra)), np.int32(n))


# %% 1.1 wrong: jit without buckets
# jit alone compiles a program for every batch size that arrives, and the mean of no rows is NaN.
# Pad to a bucket first.
# see: 1.1
@jax.jit
def bucketed_loss(w, b, x, y):
    return jnp.mean((x @ w + b - y) ** 2)


# %% 1.1 wrong: the number of real rows is static
# The arrays have a bucket's shape, but the count is part of the cache key: every new count is a new
# program. Pass it as an array, or pass the mask.
# see: 1.8
@partial(jax.jit, static_argnames="count")
def _loss(w, b, x, y, count):
    error = x[:count] @ w + b - y[:count]
    return jnp.sum(error**2) / max(count, 1)


def bucketed_loss(w, b, x, y):
    n = len(y)
    extra = next(size for size in BUCKETS if n <= size) - n
    return _loss(w, b, np.pad(x, ((0, extra), (0, 0))), np.pad(y, (0, extra)), count=n)


# %% 1.1 wrong: pads with jnp outside jit
# Outside jit, `jnp.pad` is a program of its own, compiled for each size. The loss compiles once a
# bucket, the padding once a batch size. Pad with NumPy.
# see: 1.5
@jax.jit
def _loss(w, b, x, y, mask):
    return jnp.sum(jnp.where(mask, (x @ w + b - y) ** 2, 0.0)) / jnp.maximum(mask.sum(), 1)


def bucketed_loss(w, b, x, y):
    n = len(y)
    rows = next(size for size in BUCKETS if n <= size)
    x, y = jnp.pad(x, ((0, rows - n), (0, 0))), jnp.pad(y, (0, rows - n))
    return _loss(w, b, x, y, np.arange(rows) < n)


# %% 1.1 wrong: jit inside the function
# `jax.jit` returns a new function, with an empty cache, each time it is called. Make it once, at
# module level.
# see: 1.8
def bucketed_loss(w, b, x, y):
    @jax.jit
    def loss(w, b, x, y, mask):
        return jnp.sum(jnp.where(mask, (x @ w + b - y) ** 2, 0.0)) / jnp.maximum(mask.sum(), 1)

    n = len(y)
    rows = next(size for size in BUCKETS if n <= size)
    x, y = np.pad(x, ((0, rows - n), (0, 0))), np.pad(y, (0, rows - n))
    return loss(w, b, x, y, np.arange(rows) < n)


# %% 1.1 wrong: takes zeros for padding
# A label can be 0 in a real row. The mask must come from the number of rows, never from the values.
# see: 1.5
@jax.jit
def _loss(w, b, x, y):
    mask = y != 0
    return jnp.sum(jnp.where(mask, (x @ w + b - y) ** 2, 0.0)) / jnp.maximum(mask.sum(), 1)


def bucketed_loss(w, b, x, y):
    n = len(y)
    extra = next(size for size in BUCKETS if n <= size) - n
    return _loss(w, b, np.pad(x, ((0, extra), (0, 0))), np.pad(y, (0, extra)))


# %% 1.1 wrong: no bucket for a batch that fills the largest
# A batch of exactly 16 rows fits into the bucket of 16: compare with <=, not with <.
# see: 1.5
@jax.jit
def _loss(w, b, x, y, mask):
    return jnp.sum(jnp.where(mask, (x @ w + b - y) ** 2, 0.0)) / jnp.maximum(mask.sum(), 1)


def bucketed_loss(w, b, x, y):
    n = len(y)
    rows = next(size for size in BUCKETS if n < size)
    x, y = np.pad(x, ((0, rows - n), (0, 0))), np.pad(y, (0, rows - n))
    return _loss(w, b, x, y, np.arange(rows) < n)


# %% 1.1 wrong: 0 / 0 for an empty batch
# With no real row the count is 0, and 0 / 0 is NaN. §1.5 keeps the denominator from being 0.
# see: 1.5
@jax.jit
def _loss(w, b, x, y, mask):
    return jnp.sum(jnp.where(mask, (x @ w + b - y) ** 2, 0.0)) / mask.sum()


def bucketed_loss(w, b, x, y):
    n = len(y)
    rows = next(size for size in BUCKETS if n <= size)
    x, y = np.pad(x, ((0, rows - n), (0, 0))), np.pad(y, (0, rows - n))
    return _loss(w, b, x, y, np.arange(rows) < n)


# %% 1.1 wrong: a Python float
# `float(…)` needs a value, and under `jax.grad` there is only a tracer. Return what jit returns.
# see: 1.5
@jax.jit
def _loss(w, b, x, y, mask):
    return jnp.sum(jnp.where(mask, (x @ w + b - y) ** 2, 0.0)) / jnp.maximum(mask.sum(), 1)


def bucketed_loss(w, b, x, y):
    n = len(y)
    rows = next(size for size in BUCKETS if n <= size)
    x, y = np.pad(x, ((0, rows - n), (0, 0))), np.pad(y, (0, rows - n))
    return float(_loss(w, b, x, y, np.arange(rows) < n))


# %% 1.2 right: counts, then asserts; two buckets
def assert_budget(serve, requests, limit):
    with CompileCounter() as counter:
        for request in requests:
            serve(request)
    assert counter.count <= limit, f"{counter.names} compiled, {limit} allowed"


_row_scores = jax.jit(lambda x: jax.nn.logsumexp(x, axis=1))


def serve(x):
    padded = np.zeros((4 if len(x) <= 4 else 16, 3), np.float32)
    padded[: len(x)] = x
    return np.asarray(_row_scores(padded))[: len(x)]


# %% 1.2 right: stops at the first request over budget; one bucket, scores written out
def assert_budget(serve, requests, limit):
    compiled = 0
    for number, request in enumerate(requests):
        compiled += count_compiles(serve, request)
        if compiled > limit:
            raise AssertionError(f"request {number} was one compilation too many")


@jax.jit
def _sixteen_scores(x):
    top = jnp.max(x, axis=1, keepdims=True)
    return jnp.log(jnp.exp(x - top).sum(axis=1)) + top[:, 0]


def serve(x):
    everything = _sixteen_scores(np.resize(x, (16, 3)))
    return np.array(everything)[: x.shape[0]]


# %% 1.2 right: the decorator; a table of programs
def assert_budget(serve, requests, limit):
    @compile_budget(limit, label="serve")
    def all_of_them():
        return [serve(request) for request in requests]

    all_of_them()


_table = {
    rows: jax.jit(jax.vmap(jax.scipy.special.logsumexp))
    .lower(jax.ShapeDtypeStruct((rows, 3), jnp.float32))
    .compile()
    for rows in (8, 16)
}


def serve(x):
    rows = 8 if len(x) <= 8 else 16
    return np.asarray(_table[rows](np.pad(x, ((0, rows - len(x)), (0, 0)))))[: len(x)].tolist()


# %% 1.2 wrong: the limit itself is too much
# "At most `limit`" includes the limit: fail on more than it, not on as much.
# see: 1.6
def assert_budget(serve, requests, limit):
    with CompileCounter() as counter:
        for request in requests:
            serve(request)
    assert counter.count < limit


_row_scores = jax.jit(lambda x: jax.nn.logsumexp(x, axis=1))


def serve(x):
    return np.asarray(_row_scores(np.pad(x, ((0, 16 - len(x)), (0, 0)))))[: len(x)]


# %% 1.2 wrong: warms up before it counts
# Every request has been served, and compiled for, before the budget starts to count, so nothing is
# left that could exceed it. Count from the first request on.
# see: 1.6
def assert_budget(serve, requests, limit):
    for request in requests:
        serve(request)
    with CompileBudget(limit):
        for request in requests:
            serve(request)


_row_scores = jax.jit(lambda x: jax.nn.logsumexp(x, axis=1))


def serve(x):
    return np.asarray(_row_scores(np.pad(x, ((0, 16 - len(x)), (0, 0)))))[: len(x)]


# %% 1.2 wrong: a budget for each request
# Each request gets a fresh budget, and one compilation fits into it every time. Put one budget
# around all requests.
# see: 1.6
def assert_budget(serve, requests, limit):
    for request in requests:
        with CompileBudget(limit):
            serve(request)


_row_scores = jax.jit(lambda x: jax.nn.logsumexp(x, axis=1))


def serve(x):
    return np.asarray(_row_scores(np.pad(x, ((0, 16 - len(x)), (0, 0)))))[: len(x)]


# %% 1.2 wrong: tries the first request only
# The first request always compiles. What recompilation costs shows in the requests behind it, so
# serve them all.
# see: 1.6
def assert_budget(serve, requests, limit):
    with CompileBudget(limit):
        serve(requests[0])


_row_scores = jax.jit(lambda x: jax.nn.logsumexp(x, axis=1))


def serve(x):
    return np.asarray(_row_scores(np.pad(x, ((0, 16 - len(x)), (0, 0)))))[: len(x)]


# %% 1.2 wrong: only warns
# A warning does not fail a test. Leave `on_excess` at "raise".
# see: 1.6
def assert_budget(serve, requests, limit):
    with CompileBudget(limit, on_excess="warn"):
        for request in requests:
            serve(request)


_row_scores = jax.jit(lambda x: jax.nn.logsumexp(x, axis=1))


def serve(x):
    return np.asarray(_row_scores(np.pad(x, ((0, 16 - len(x)), (0, 0)))))[: len(x)]


# %% 1.2 wrong: returns the verdict
# A test that returns False passes: nobody looks at what it returns. Assert.
# see: 1.6
def assert_budget(serve, requests, limit):
    with CompileCounter() as counter:
        for request in requests:
            serve(request)
    return counter.count <= limit


_row_scores = jax.jit(lambda x: jax.nn.logsumexp(x, axis=1))


def serve(x):
    return np.asarray(_row_scores(np.pad(x, ((0, 16 - len(x)), (0, 0)))))[: len(x)]


# %% 1.2 wrong: counts shapes, not programs
# Three request sizes are one program where they are padded to one shape, and the test must not care
# how. Count what was compiled.
# see: 1.4
def assert_budget(serve, requests, limit):
    shapes = set()
    for request in requests:
        serve(request)
        shapes.add(request.shape)
    assert len(shapes) <= limit


_row_scores = jax.jit(lambda x: jax.nn.logsumexp(x, axis=1))


def serve(x):
    return np.asarray(_row_scores(np.pad(x, ((0, 16 - len(x)), (0, 0)))))[: len(x)]


# %% 1.2 wrong: asks the jit cache of a function that has none
# `_cache_size` belongs to what `jax.jit` returns. A serving function is plain Python around several
# programs: count events instead.
# see: 1.4
def assert_budget(serve, requests, limit):
    for request in requests:
        serve(request)
    assert serve._cache_size() <= limit


@jax.jit
def _row_scores(x):
    return jax.nn.logsumexp(x, axis=1)


def serve(x):
    return np.asarray(_row_scores(np.pad(x, ((0, 16 - len(x)), (0, 0)))))[: len(x)]


# %% 1.2 wrong: serves with a bare jit
# Each request size is a new shape, so each is a new program. Pad to one of two buckets.
# see: 1.1
def assert_budget(serve, requests, limit):
    with CompileBudget(limit):
        for request in requests:
            serve(request)


@jax.jit
def serve(x):
    return jax.nn.logsumexp(x, axis=1)


# %% 1.2 wrong: cuts the padding off with jnp
# `scores[:n]` of a JAX array, outside jit, is a small program for each n. Bring the scores to NumPy,
# then cut.
# see: 1.5
def assert_budget(serve, requests, limit):
    with CompileBudget(limit):
        for request in requests:
            serve(request)


_row_scores = jax.jit(lambda x: jax.nn.logsumexp(x, axis=1))


def serve(x):
    rows = 4 if len(x) <= 4 else 16
    return _row_scores(np.pad(x, ((0, rows - len(x)), (0, 0))))[: len(x)]


# %% 1.2 wrong: pads with jnp
# `jnp.pad` outside jit is a program for each size that comes in. Pad with NumPy.
# see: 1.5
def assert_budget(serve, requests, limit):
    with CompileBudget(limit):
        for request in requests:
            serve(request)


_row_scores = jax.jit(lambda x: jax.nn.logsumexp(x, axis=1))


def serve(x):
    rows = 4 if len(x) <= 4 else 16
    padded = jnp.pad(x, ((0, rows - len(x)), (0, 0)))
    return np.asarray(_row_scores(padded))[: len(x)]


# %% 1.2 wrong: returns the padding too
# The rows that you added come back as scores that nobody asked for. Cut them off, in NumPy.
# see: 1.5
def assert_budget(serve, requests, limit):
    with CompileBudget(limit):
        for request in requests:
            serve(request)


_row_scores = jax.jit(lambda x: jax.nn.logsumexp(x, axis=1))


def serve(x):
    return np.asarray(_row_scores(np.pad(x, ((0, 16 - len(x)), (0, 0)))))


# %% 1.2 wrong: three buckets
# Each bucket is a program, and the budget is two programs for all requests together.
# see: 1.5
def assert_budget(serve, requests, limit):
    with CompileBudget(limit):
        for request in requests:
            serve(request)


_row_scores = jax.jit(lambda x: jax.nn.logsumexp(x, axis=1))


def serve(x):
    rows = next(rows for rows in (4, 8, 16) if len(x) <= rows)
    return np.asarray(_row_scores(np.pad(x, ((0, rows - len(x)), (0, 0)))))[: len(x)]


# %% 1.2 wrong: a bucket for each power of two
# Buckets of 1, 2, 4, 8 and 16 rows waste little padding, but they are five programs, and the budget
# is two.
# see: 1.5
def assert_budget(serve, requests, limit):
    with CompileBudget(limit):
        for request in requests:
            serve(request)


_row_scores = jax.jit(lambda x: jax.nn.logsumexp(x, axis=1))


def serve(x):
    rows = 1 << (len(x) - 1).bit_length()
    return np.asarray(_row_scores(np.pad(x, ((0, rows - len(x)), (0, 0)))))[: len(x)]


# %% 1.3 right: a NamedTuple
class _Settings(NamedTuple):
    width: int
    activation: str
    scales: tuple


def make_config(width, activation="tanh", scales=()):
    return _Settings(width, activation, tuple(scales))


# %% 1.3 right: a frozen dataclass that freezes its own list
@dataclass(frozen=True)
class _Frozen:
    width: int
    activation: str = "tanh"
    scales: tuple = ()

    def __post_init__(self):
        object.__setattr__(self, "scales", tuple(float(scale) for scale in self.scales))


make_config = _Frozen


# %% 1.3 right: eq and hash by hand, behind properties
class _ByHand:
    __slots__ = ("_key",)

    def __init__(self, *key):
        self._key = key

    width = property(lambda self: self._key[0])
    activation = property(lambda self: self._key[1])
    scales = property(lambda self: self._key[2])

    def __eq__(self, other):
        return isinstance(other, _ByHand) and self._key == other._key

    def __hash__(self):
        return hash(self._key)


def make_config(width, activation="tanh", scales=()):
    return _ByHand(width, activation, tuple(scales))


# %% 1.3 wrong: a plain class
# Without `__eq__` and `__hash__` a class compares by identity: two configs with the same settings
# are two keys. Make it a frozen dataclass.
# see: 1.7
class _Config:
    def __init__(self, width, activation, scales):
        self.width = width
        self.activation = activation
        self.scales = tuple(scales)


def make_config(width, activation="tanh", scales=()):
    return _Config(width, activation, scales)


# %% 1.3 wrong: a dataclass that is not frozen
# `@dataclass` writes `__eq__`, and Python then removes `__hash__`: jit refuses what it can't look
# up. Write `@dataclass(frozen=True)`.
# see: 1.7
@dataclass
class _Config:
    width: int
    activation: str
    scales: tuple


def make_config(width, activation="tanh", scales=()):
    return _Config(width, activation, tuple(scales))


# %% 1.3 wrong: a frozen dataclass that holds a list
# A frozen dataclass hashes its fields, and a list has no hash. It can also be changed from inside.
# Store a tuple.
# see: 1.7
@dataclass(frozen=True)
class _Config:
    width: int
    activation: str
    scales: list


def make_config(width, activation="tanh", scales=()):
    return _Config(width, activation, list(scales))


# %% 1.3 wrong: keeps the list that it was given
# A list has no hash, and the caller still holds it. Turn it into a tuple.
# see: 1.7
@dataclass(frozen=True)
class _Config:
    width: int
    activation: str
    scales: tuple


def make_config(width, activation="tanh", scales=()):
    return _Config(width, activation, scales)


# %% 1.3 wrong: goes through a set
# A set drops what occurs twice, and has an order of its own. The scales are a sequence.
# see: 1.7
@dataclass(frozen=True)
class _Config:
    width: int
    activation: str
    scales: tuple


def make_config(width, activation="tanh", scales=()):
    return _Config(width, activation, tuple(set(scales)))


# %% 1.3 wrong: sorts the scales
# Two configs whose scales differ in order are two settings: what is computed may depend on it.
# see: 1.7
@dataclass(frozen=True)
class _Config:
    width: int
    activation: str
    scales: tuple


def make_config(width, activation="tanh", scales=()):
    return _Config(width, activation, tuple(sorted(scales)))


# %% 1.3 wrong: another default
# The task says what is used where nothing is given: "tanh", and no scales.
# see: 1.7
@dataclass(frozen=True)
class _Config:
    width: int
    activation: str
    scales: tuple


def make_config(width, activation="relu", scales=()):
    return _Config(width, activation, tuple(scales))


# %% 1.3 wrong: equal, with a hash of its own
# Objects that are equal must have equal hashes. Where they don't, a dict or a cache finds one of them
# or not, as it happens; some versions of JAX compare first and notice nothing.
# see: 1.7
@dataclass(frozen=True)
class _Config:
    width: int
    activation: str
    scales: tuple

    __hash__ = object.__hash__


def make_config(width, activation="tanh", scales=()):
    return _Config(width, activation, tuple(scales))


# %% 1.3 wrong: hashable, but not frozen
# `unsafe_hash=True` lets jit look the config up, and lets anybody change it afterwards: the key in
# the cache then no longer says what was compiled. Freeze it.
# see: 1.7
@dataclass(unsafe_hash=True)
class _Config:
    width: int
    activation: str
    scales: tuple


def make_config(width, activation="tanh", scales=()):
    return _Config(width, activation, tuple(scales))


# %% 1.3 wrong: a new class at every call
# The class statement runs at each call, and two classes never compare equal, whatever their fields
# hold. Define the class once, at module level.
# see: 1.7
def make_config(width, activation="tanh", scales=()):
    @dataclass(frozen=True)
    class Config:
        width: int
        activation: str
        scales: tuple

    return Config(width, activation, tuple(scales))


# %% 1.3 wrong: equal when the hashes are equal
# Different values may share a hash: hash(-1.0) and hash(-2.0) do. `__eq__` must compare the values,
# or jit runs a program that was compiled for others.
# see: 1.7
class _Config:
    __slots__ = ("_key",)

    def __init__(self, *key):
        self._key = key

    width = property(lambda self: self._key[0])
    activation = property(lambda self: self._key[1])
    scales = property(lambda self: self._key[2])

    def __hash__(self):
        return hash(self._key)

    def __eq__(self, other):
        return hash(self) == hash(other)


def make_config(width, activation="tanh", scales=()):
    return _Config(width, activation, tuple(scales))


# %% 1.3 wrong: leaves a setting out of the comparison
# The activation decides what is computed, so it must be part of the key. Left out, jit runs the
# program of another activation and says nothing.
# see: 1.7
from dataclasses import field


@dataclass(frozen=True)
class _Config:
    width: int
    activation: str = field(compare=False)
    scales: tuple = ()


def make_config(width, activation="tanh", scales=()):
    return _Config(width, activation, tuple(scales))


# %% 1.3 wrong: a hash, but no equality
# A hash finds the place in the cache, equality decides whether it is the same key. Without `__eq__`
# it never is.
# see: 1.7
class _Config:
    def __init__(self, width, activation, scales):
        self.width = width
        self.activation = activation
        self.scales = tuple(scales)

    def __hash__(self):
        return hash((self.width, self.activation, self.scales))


def make_config(width, activation="tanh", scales=()):
    return _Config(width, activation, scales)


# %% 1.3 wrong: a dict
# A dict has no attributes to read, and no hash to look up.
# see: 1.7
def make_config(width, activation="tanh", scales=()):
    return {"width": width, "activation": activation, "scales": tuple(scales)}


# %% 1.4 right: a step at module level
@jax.jit
def _sgd(w, b, x, y, rate):
    def loss(w, b):
        return jnp.mean((x @ w + b - y) ** 2)

    slope_w, slope_b = jax.grad(loss, (0, 1))(w, b)
    return w - rate * slope_w, b - rate * slope_b


def train(w, b, x, y, rates):
    b = jnp.asarray(b, jnp.float32)
    for rate in rates:
        w, b = _sgd(w, b, x, y, rate)
    return w, b


# %% 1.4 right: parameters in a dict, gradient by hand, rates as NumPy
@jax.jit
def _update(params, rate, x, y):
    error = x @ params["w"] + params["b"] - y
    slopes = {"w": 2 * error @ x / y.size, "b": 2 * error.mean()}
    return jax.tree.map(lambda p, slope: p - rate * slope, params, slopes)


def train(w, b, x, y, rates):
    params = {"w": w, "b": np.float32(b)}
    for rate in np.asarray(rates, np.float32):
        params = _update(params, rate, x, y)
    return params["w"], params["b"]


# %% 1.4 right: blocks of 16 rates, each through a padded loop
@jax.jit
def _block(w, b, x, y, rates, steps):
    def step(i, params):
        slopes = jax.grad(lambda w, b: jnp.mean(jnp.square(x @ w + b - y)), (0, 1))(*params)
        return params[0] - rates[i] * slopes[0], params[1] - rates[i] * slopes[1]

    return jax.lax.fori_loop(0, steps, step, (w, b))


def train(w, b, x, y, rates):
    b = np.float32(b)
    for start in range(0, len(rates), 16):
        block = np.array(rates[start : start + 16], np.float32)
        w, b = _block(w, b, x, y, np.resize(block, 16), len(block))
    return w, b


# %% 1.4 wrong: pads the rates to 32
# The 33rd rate has no place. Padding fixes a shape at the price of a limit, and the task has none: call
# a step from Python, or go on with the next 32.
# see: 1.8
@jax.jit
def _padded(w, b, x, y, rates):
    def step(params, rate):
        slopes = jax.grad(lambda w, b: jnp.mean((x @ w + b - y) ** 2), (0, 1))(*params)
        return (params[0] - rate * slopes[0], params[1] - rate * slopes[1]), None

    return jax.lax.scan(step, (w, b), rates)[0]


def train(w, b, x, y, rates):
    padded = np.zeros(32, np.float32)
    padded[: len(rates)] = rates
    return _padded(jnp.asarray(w), np.float32(b), x, y, padded)


# %% 1.4 wrong: starts from the first rate
# With no rate there is no first one. A loop over the rates needs no special first step.
# see: 1.8
@jax.jit
def _sgd(w, b, x, y, rate):
    slopes = jax.grad(lambda w, b: jnp.mean((x @ w + b - y) ** 2), (0, 1))(w, b)
    return w - rate * slopes[0], b - rate * slopes[1]


def train(w, b, x, y, rates):
    first, *others = rates
    w, b = _sgd(w, np.float32(b), x, y, first)
    for rate in others:
        w, b = _sgd(w, b, x, y, rate)
    return w, b


# %% 1.4 wrong: the rate is static
# A static argument is part of the cache key, so each new rate is a new program. Leave it dynamic:
# a Python float goes in like any array.
# see: 1.8
@partial(jax.jit, static_argnames="rate")
def _sgd(w, b, x, y, rate):
    slopes = jax.grad(lambda w, b: jnp.mean((x @ w + b - y) ** 2), (0, 1))(w, b)
    return w - rate * slopes[0], b - rate * slopes[1]


def train(w, b, x, y, rates):
    b = np.float32(b)
    for rate in rates:
        w, b = _sgd(w, b, x, y, rate=rate)
    return w, b


# %% 1.4 wrong: a jit in each step
# Every pass through the loop makes a new function with an empty cache. Make the step once, at
# module level, and pass the rate to it.
# see: 1.8
def train(w, b, x, y, rates):
    b = np.float32(b)
    for rate in rates:

        @jax.jit
        def step(w, b):
            slopes = jax.grad(lambda w, b: jnp.mean((x @ w + b - y) ** 2), (0, 1))(w, b)
            return w - rate * slopes[0], b - rate * slopes[1]

        w, b = step(w, b)
    return w, b


# %% 1.4 wrong: a jit in each training
# The step is compiled once a training, because each call of `train` makes it anew. Make it at module
# level.
# see: 1.8
def train(w, b, x, y, rates):
    @jax.jit
    def step(w, b, rate):
        slopes = jax.grad(lambda w, b: jnp.mean((x @ w + b - y) ** 2), (0, 1))(w, b)
        return w - rate * slopes[0], b - rate * slopes[1]

    b = np.float32(b)
    for rate in rates:
        w, b = step(w, b, rate)
    return w, b


# %% 1.4 wrong: the rate of the first step, for ever
# The rate is a Python name that the trace read once: its value is now a constant of the program.
# Whatever changes must be an argument.
# see: 1.8
_rate = 0.0


@jax.jit
def _sgd(w, b, x, y):
    slopes = jax.grad(lambda w, b: jnp.mean((x @ w + b - y) ** 2), (0, 1))(w, b)
    return w - _rate * slopes[0], b - _rate * slopes[1]


def train(w, b, x, y, rates):
    global _rate
    b = np.float32(b)
    for _rate in rates:
        w, b = _sgd(w, b, x, y)
    return w, b


# %% 1.4 wrong: b starts out weakly typed
# The first step gets `b` as a Python float, the second as the float32 array that the first one
# returned. The two differ in their weak type, so there are two programs. Make b float32 first.
# see: 1.8
@jax.jit
def _sgd(w, b, x, y, rate):
    error = x @ w + b - y
    return w - rate * 2 * error @ x / len(y), b - rate * 2 * error.mean()


def train(w, b, x, y, rates):
    for rate in rates:
        w, b = _sgd(w, b, x, y, rate)
    return w, b


# %% 1.4 wrong: a scan over the rates
# The rates go in as one array, and its length is part of the program's shape: a training of another
# length compiles again. Call a step from Python, or send blocks of one length.
# see: 1.8
@jax.jit
def _scanned(w, b, x, y, rates):
    def step(params, rate):
        slopes = jax.grad(lambda w, b: jnp.mean((x @ w + b - y) ** 2), (0, 1))(*params)
        return (params[0] - rate * slopes[0], params[1] - rate * slopes[1]), None

    return jax.lax.scan(step, (w, b), rates)[0]


def train(w, b, x, y, rates):
    return _scanned(jnp.asarray(w), np.float32(b), x, y, np.asarray(rates, np.float32))


# %% 1.4 wrong: no jit at all
# Without jit each operation is a program of its own, and each is started from Python. Compile the
# step as a whole.
# see: 1.8
def train(w, b, x, y, rates):
    w, b = jnp.asarray(w), jnp.float32(b)
    for rate in rates:
        slopes = jax.grad(lambda w, b: jnp.mean((x @ w + b - y) ** 2), (0, 1))(w, b)
        w, b = w - rate * slopes[0], b - rate * slopes[1]
    return w, b


# %% 1.4 wrong: takes the rates out of a JAX array
# Going through a JAX array in a Python loop cuts it up with programs compiled for its length. Go
# through the list, or through a NumPy array.
# see: 1.8
@jax.jit
def _sgd(w, b, x, y, rate):
    slopes = jax.grad(lambda w, b: jnp.mean((x @ w + b - y) ** 2), (0, 1))(w, b)
    return w - rate * slopes[0], b - rate * slopes[1]


def train(w, b, x, y, rates):
    b = np.float32(b)
    for rate in jnp.asarray(rates):
        w, b = _sgd(w, b, x, y, rate)
    return w, b


# %% 1.4 wrong: forgets the factor 2
# The derivative of a square is twice the error. Let `jax.grad` take it.
# see: 1.8
@jax.jit
def _sgd(w, b, x, y, rate):
    error = x @ w + b - y
    return w - rate * error @ x / len(y), b - rate * error.mean()


def train(w, b, x, y, rates):
    b = np.float32(b)
    for rate in rates:
        w, b = _sgd(w, b, x, y, rate)
    return w, b


# %% 1.5 right: a class
class _Server:
    def __init__(self, fn, buckets, features):
        self.features = features
        self.table = {}
        for rows in sorted(buckets):
            spec = jax.ShapeDtypeStruct((rows, features), jnp.float32)
            self.table[rows] = jax.jit(fn).lower(spec).compile()

    def __call__(self, x):
        fits = [rows for rows in self.table if rows >= len(x)]
        if x.ndim != 2 or x.shape[1] != self.features or not fits:
            raise TypeError(f"can't serve shape {x.shape}")
        padded = np.zeros((fits[0], self.features), np.float32)
        padded[: len(x)] = x
        return np.asarray(self.table[fits[0]](padded))[: len(x)]


make_server = _Server


# %% 1.5 right: jit, warmed up by calls
def make_server(fn, buckets, features):
    fn = jax.jit(fn)
    for rows in buckets:
        fn(np.zeros((rows, features), np.float32))

    def serve(x):
        n, width = x.shape
        if width != features or n > max(buckets):
            raise ValueError(x.shape)
        rows = min(rows for rows in buckets if rows >= n)
        return np.asarray(fn(np.resize(x, (rows, features))))[:n]

    return serve


# %% 1.5 right: the compiled program refuses by itself
def make_server(fn, buckets, features):
    def compiled(rows):
        return jax.jit(fn).trace(np.zeros((rows, features), np.float32)).lower().compile()

    table = [(rows, compiled(rows)) for rows in sorted(buckets)]

    def serve(x):
        for rows, program in table:
            if len(x) <= rows:
                extra = np.zeros((rows - len(x), *x.shape[1:]), x.dtype)
                return np.asarray(program(np.concatenate([x, extra])))[: len(x)]
        raise ValueError(f"{len(x)} rows are more than {table[-1][0]}")

    return serve


# %% 1.5 wrong: jit compiles at the first request
# `jax.jit` compiles nothing until it is called, so the first requests pay. Lower and compile each
# bucket when the server is made.
# see: 1.9
def make_server(fn, buckets, features):
    fn = jax.jit(fn)

    def serve(x):
        if x.ndim != 2 or x.shape[1] != features or len(x) > max(buckets):
            raise ValueError(x.shape)
        rows = min(rows for rows in buckets if rows >= len(x))
        return np.asarray(fn(np.pad(x, ((0, rows - len(x)), (0, 0)))))[: len(x)]

    return serve


# %% 1.5 wrong: lowered, not compiled
# `lower` stops before XLA: there is no program yet, and the first request of each bucket waits for
# it. Call `.compile()` when the server is made; a call of the jitted function is not refused, either.
# see: 1.4
def make_server(fn, buckets, features):
    fn = jax.jit(fn)
    table = {
        rows: fn.lower(jax.ShapeDtypeStruct((rows, features), jnp.float32)) for rows in buckets
    }

    def serve(x):
        rows = min(rows for rows in table if rows >= len(x))
        extra = np.zeros((rows - len(x), *x.shape[1:]), np.float32)
        return np.asarray(table[rows].compile()(np.concatenate([x, extra])))[: len(x)]

    return serve


# %% 1.5 wrong: falls back to jit
# What is not in the table goes to the jitted function, which compiles whatever it is given: the
# server no longer refuses anything, and one odd request is slow in silence. Raise instead.
# see: 1.9
def make_server(fn, buckets, features):
    jitted = jax.jit(fn)
    table = {
        rows: jitted.lower(jax.ShapeDtypeStruct((rows, features), jnp.float32)).compile()
        for rows in buckets
    }

    def serve(x):
        if x.ndim != 2 or x.shape[1] != features or len(x) > max(buckets):
            return np.asarray(jitted(np.atleast_2d(x)))
        rows = min(rows for rows in table if rows >= len(x))
        return np.asarray(table[rows](np.pad(x, ((0, rows - len(x)), (0, 0)))))[: len(x)]

    return serve


# %% 1.5 wrong: pads and cuts with jnp
# The table is complete, but `jnp.pad` and `[:n]` outside it are programs too, one for each size.
# Do both in NumPy.
# see: 1.5
def make_server(fn, buckets, features):
    table = {
        rows: jax.jit(fn).lower(jax.ShapeDtypeStruct((rows, features), jnp.float32)).compile()
        for rows in buckets
    }

    def serve(x):
        if x.ndim != 2 or x.shape[1] != features or len(x) > max(buckets):
            raise ValueError(x.shape)
        rows = min(rows for rows in table if rows >= len(x))
        return table[rows](jnp.pad(x, ((0, rows - len(x)), (0, 0))))[: len(x)]

    return serve


# %% 1.5 wrong: cuts with jnp
# The programs are all there, but `[:n]` of a JAX array is one more, for each n. Bring the results to
# NumPy first, then cut.
# see: 1.5
def make_server(fn, buckets, features):
    table = {
        rows: jax.jit(fn).lower(jax.ShapeDtypeStruct((rows, features), jnp.float32)).compile()
        for rows in buckets
    }

    def serve(x):
        if x.ndim != 2 or x.shape[1] != features or len(x) > max(buckets):
            raise ValueError(x.shape)
        rows = min(rows for rows in table if rows >= len(x))
        return table[rows](np.pad(x, ((0, rows - len(x)), (0, 0))))[: len(x)]

    return serve


# %% 1.5 wrong: takes the last bucket for the largest
# The buckets come in any order. Sort them, or ask for the largest.
# see: 1.9
def make_server(fn, buckets, features):
    table = {
        rows: jax.jit(fn).lower(jax.ShapeDtypeStruct((rows, features), jnp.float32)).compile()
        for rows in buckets
    }

    def serve(x):
        if x.ndim != 2 or x.shape[1] != features or len(x) > buckets[-1]:
            raise ValueError(x.shape)
        rows = min(rows for rows in table if rows >= len(x))
        return np.asarray(table[rows](np.pad(x, ((0, rows - len(x)), (0, 0)))))[: len(x)]

    return serve


# %% 1.5 wrong: takes every result for one number
# `fn` may give k numbers for a row. Cut along the first axis, and leave the others alone.
# see: 1.9
def make_server(fn, buckets, features):
    table = {
        rows: jax.jit(fn).lower(jax.ShapeDtypeStruct((rows, features), jnp.float32)).compile()
        for rows in buckets
    }

    def serve(x):
        if x.ndim != 2 or x.shape[1] != features or len(x) > max(buckets):
            raise ValueError(x.shape)
        rows = min(rows for rows in table if rows >= len(x))
        results = np.zeros(len(x), np.float32)
        results[:] = np.asarray(table[rows](np.pad(x, ((0, rows - len(x)), (0, 0)))))[: len(x)]
        return results

    return serve


# %% 1.5 wrong: returns the padding too
# A request of 3 rows gets 4 results. Cut the padded rows off before you return, in NumPy.
# see: 1.5
def make_server(fn, buckets, features):
    table = {
        rows: jax.jit(fn).lower(jax.ShapeDtypeStruct((rows, features), jnp.float32)).compile()
        for rows in buckets
    }

    def serve(x):
        if x.ndim != 2 or x.shape[1] != features or len(x) > max(buckets):
            raise ValueError(x.shape)
        rows = min(rows for rows in table if rows >= len(x))
        return np.asarray(table[rows](np.pad(x, ((0, rows - len(x)), (0, 0)))))

    return serve


# %% 1.5 wrong: lets NumPy broadcast a wrong request
# `padded[:n] = x` fits a single column, or a single row without its axis, by repeating it: a wrong
# request is answered with numbers. Compare the shape before you copy.
# see: 1.9
def make_server(fn, buckets, features):
    table = {
        rows: jax.jit(fn).lower(jax.ShapeDtypeStruct((rows, features), jnp.float32)).compile()
        for rows in buckets
    }

    def serve(x):
        if len(x) > max(buckets):
            raise ValueError(x.shape)
        rows = min(rows for rows in table if rows >= len(x))
        padded = np.zeros((rows, features), np.float32)
        padded[: len(x)] = x
        return np.asarray(table[rows](padded))[: len(x)]

    return serve


# %% 1.5 wrong: cuts a wrong request to fit
# Rows and columns that don't fit are dropped without a word. A server that can't serve a request has
# to say so.
# see: 1.9
def make_server(fn, buckets, features):
    table = {
        rows: jax.jit(fn).lower(jax.ShapeDtypeStruct((rows, features), jnp.float32)).compile()
        for rows in buckets
    }

    def serve(x):
        x = np.atleast_2d(x)[: max(buckets), :features]
        rows = min(rows for rows in table if rows >= len(x))
        padded = np.zeros((rows, features), np.float32)
        padded[: len(x), : x.shape[1]] = x
        return np.asarray(table[rows](padded))[: len(x)]

    return serve


# %% 1.5 wrong: one program for the largest bucket
# Everything is padded to the largest bucket, so a request of one row costs as much as the biggest.
# Compile one program for each bucket, and take the smallest that fits.
# see: 1.9
def make_server(fn, buckets, features):
    most = max(buckets)
    program = jax.jit(fn).lower(jax.ShapeDtypeStruct((most, features), jnp.float32)).compile()

    def serve(x):
        if x.ndim != 2 or x.shape[1] != features or len(x) > most:
            raise ValueError(x.shape)
        return np.asarray(program(np.pad(x, ((0, most - len(x)), (0, 0)))))[: len(x)]

    return serve


# %% 1.5 wrong: `next` runs out of buckets
# `next(...)` on a request that fits nowhere raises StopIteration, which a generator further up takes
# for its own end: the request vanishes. Give `next` a default and raise ValueError.
# see: 1.9
def make_server(fn, buckets, features):
    table = {
        rows: jax.jit(fn).lower(jax.ShapeDtypeStruct((rows, features), jnp.float32)).compile()
        for rows in sorted(buckets)
    }

    def serve(x):
        rows = next(rows for rows in table if rows >= len(x))
        extra = np.zeros((rows - len(x), *x.shape[1:]), np.float32)
        return np.asarray(table[rows](np.concatenate([x, extra])))[: len(x)]

    return serve
