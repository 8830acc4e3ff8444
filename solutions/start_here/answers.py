"""Right and wrong answers to the exercises of chapter 00; parsed, never imported."""
# ruff: noqa

# %% 0.1 right: the library's own
logistic = jax.nn.sigmoid


# %% 0.1 right: through the logarithm
def logistic(x):
    return jnp.exp(-jnp.logaddexp(0.0, -x))


# %% 0.1 right: one exponential, and a numerator that depends on the sign
@jax.jit
def logistic(x):
    small = jnp.exp(jnp.where(x >= 0, -x, x))
    return jnp.where(x >= 0, 1.0, small) / (1.0 + small)


# %% 0.1 right: a derivative of its own
@jax.custom_jvp
def logistic(x):
    small = jnp.exp(-jnp.abs(x))
    return jnp.where(x >= 0, 1 / (1 + small), small / (1 + small))


@logistic.defjvp
def _(primals, tangents):
    s = logistic(*primals)
    return s, s * (1 - s) * tangents[0]


# %% 0.1 wrong: the textbook formula
# exp(−x) is infinite from x = −89 down. The value survives, since 1/∞ is 0, but its slope is ∞ · 0
# = NaN. Give `exp` nothing positive.
# see: 0.6
def logistic(x):
    return 1 / (1 + jnp.exp(-x))


# %% 0.1 wrong: exp(x) above and below
# From x = 89 up both are infinite, and ∞/∞ is NaN. Where x is positive, use the form with exp(−x).
# see: 0.6
def logistic(x):
    return jnp.exp(x) / (1 + jnp.exp(x))


# %% 0.1 wrong: half of 1 + tanh
# Far to the left tanh is −1 to all its digits, so 1 + tanh is 0, where float64 says 2e-9. The
# absolute error is tiny, the relative one is 100 %: a small number must not be made by subtracting
# two that are near 1.
# see: 0.4
def logistic(x):
    return 0.5 * (1 + jnp.tanh(x / 2))


# %% 0.1 wrong: one minus the other side
# 1 − σ(−x) is right on paper. In float32 the other side is 1 to all its digits as soon as x is below
# −17, and the difference is 0.
# see: 0.4
def logistic(x):
    return 1 - 1 / (1 + jnp.exp(x))


# %% 0.1 wrong: clips its argument
# Clipping keeps `exp` finite and changes the answer: σ(−100) becomes σ(−30), which is 10³⁰ times as
# large, and the slope out there is 0.
# see: 0.4
def logistic(x):
    return 1 / (1 + jnp.exp(-jnp.clip(x, -30, 30)))


# %% 0.1 wrong: chooses behind exp
# `where` picks the good value, but both branches were computed, and the slope runs through both: 0 ·
# NaN is NaN. Choose the argument first, so that neither branch can overflow.
# see: 0.6
def logistic(x):
    return jnp.where(x >= 0, 1 / (1 + jnp.exp(-x)), jnp.exp(x) / (1 + jnp.exp(x)))


# %% 0.1 wrong: on the wrong side of the corner
# |x| has a corner at 0. JAX takes the slope to its right there, so 0 belongs to the branch of the
# positive numbers. With `x > 0` it falls into the other one, and the slope at 0 is −1/4.
# see: 0.6
def logistic(x):
    small = jnp.exp(-jnp.abs(x))
    return jnp.where(x > 0, 1.0, small) / (1.0 + small)


# %% 0.1 wrong: the smaller of x and −x
# That is −|x|, and never positive. At 0 the two are equal, and a minimum of two equal numbers gives
# half of the slope to each: here the halves are ½ and −½, they cancel, and the slope at 0 is 0. Choose
# with `where`, so that 0 belongs to one side.
# see: 0.6
def logistic(x):
    small = jnp.exp(jnp.minimum(x, -x))
    return jnp.where(x >= 0, 1.0, small) / (1.0 + small)


# %% 0.1 wrong: replaces the NaN
# `nan_to_num` repairs the value. The NaN stays in the derivative, where ∞ − ∞ was computed before it.
# see: 0.6
def logistic(x):
    return jnp.nan_to_num(jnp.exp(x) / (1 + jnp.exp(x)), nan=1.0)


# %% 0.1 wrong: computes in NumPy
# NumPy's float64 would be accurate enough, but JAX can neither compile nor differentiate it: while
# it traces, the argument has no numbers yet. Use jnp.
# see: 0.6
def logistic(x):
    return np.float32(1 / (1 + np.exp(-np.asarray(x, np.float64))))


# %% 0.1 wrong: a Python `if`
# `if x >= 0` asks for one truth value, and x is an array, or has no value yet because JAX is tracing.
# Use `jnp.where`.
# see: 0.6
def logistic(x):
    if x >= 0:
        return 1 / (1 + jnp.exp(-x))
    return jnp.exp(x) / (1 + jnp.exp(x))


# %% 0.2 right: in halves
import math


def ulps_off(total, x):
    want = math.fsum(np.asarray(x, np.float64))
    return abs(float(total) - want) / np.spacing(np.float32(abs(want)))


def careful_sum(x):
    while len(x) > 1:
        half = len(x) // 2
        rest = x[2 * half :]
        x = jnp.concatenate([x[:half] + x[half : 2 * half], rest])
    return x[0]


# %% 0.2 right: with what was lost, Neumaier's way
def ulps_off(total, x):
    exact = np.asarray(x).astype(np.float64).sum()
    gap = float(np.nextafter(np.float32(abs(exact)), np.float32(np.inf))) - float(
        np.float32(abs(exact))
    )
    return np.abs(np.float64(total) - exact) / gap


@jax.jit
def careful_sum(x):
    def add(state, number):
        total, lost = state
        new = total + number
        large, small = (
            jnp.where(jnp.abs(total) >= jnp.abs(number), total, number),
            jnp.where(jnp.abs(total) >= jnp.abs(number), number, total),
        )
        return (new, lost + ((large - new) + small)), None

    (total, lost), _ = jax.lax.scan(add, (jnp.zeros((), x.dtype), jnp.zeros((), x.dtype)), x)
    return total + lost


# %% 0.2 right: padded to a power of two, and the course's ruler
def ulps_off(total, x):
    return ulps(total, np.sum(to64(x)))


def careful_sum(x):
    levels = (x.size - 1).bit_length()
    x = jnp.pad(x, (0, 2**levels - x.size))
    for _ in range(levels):
        left, right = x.reshape(2, -1)
        x = left + right
    return x.reshape(())


# %% 0.2 right: an associative scan
def ulps_off(total, x):
    want = sum(float(number) for number in np.asarray(x))
    error = abs(to64(total) - want)
    return float(error / to64(np.spacing(np.float32(abs(want)))))


def careful_sum(x):
    return jax.lax.associative_scan(jnp.add, x)[-1]


# %% 0.2 wrong: compares with a float32 sum
# The reference was rounded in float32 as well, so two wrong numbers are compared, and the answer says
# how far they are apart. Convert first, then add: `to64(x).sum()`.
# see: 0.7
def ulps_off(total, x):
    want = np.float64(np.asarray(x).sum())
    return abs(float(total) - want) / np.spacing(np.float32(abs(want)))


def careful_sum(x):
    while len(x) > 1:
        x = jnp.pad(x, (0, len(x) % 2))
        x = x[::2] + x[1::2]
    return x[0]


# %% 0.2 wrong: asks `np.sum` of a JAX array for float64
# `np.sum(x, dtype=np.float64)` on a JAX array is JAX's own sum, and that is float32. Convert the
# array, not the sum: `to64(x).sum()`.
# see: 0.7
def ulps_off(total, x):
    want = float(np.sum(x, dtype=np.float64))
    return abs(float(total) - want) / np.spacing(np.float32(abs(want)))


def careful_sum(x):
    while len(x) > 1:
        x = jnp.pad(x, (0, len(x) % 2))
        x = x[::2] + x[1::2]
    return x[0]


# %% 0.2 wrong: subtracts in float32
# The reference is exact, but `total` is a JAX number, so the difference is taken in float32: the
# reference is rounded first, and up to half an ULP is lost. Convert `total` too: `to64(total)`.
# see: 0.7
def ulps_off(total, x):
    want = np.sum(to64(x))
    return abs(total - want) / np.spacing(np.float32(abs(want)))


def careful_sum(x):
    while len(x) > 1:
        x = jnp.pad(x, (0, len(x) % 2))
        x = x[::2] + x[1::2]
    return x[0]


# %% 0.2 wrong: eps times the sum is the unit
# eps · |sum| equals the gap only at powers of two; just below the next one it is twice as large. The
# gap itself is `np.spacing(np.float32(sum))`.
# see: 0.3
def ulps_off(total, x):
    want = np.sum(to64(x))
    return abs(float(total) - want) / (np.finfo(np.float32).eps * abs(want))


def careful_sum(x):
    while len(x) > 1:
        x = jnp.pad(x, (0, len(x) % 2))
        x = x[::2] + x[1::2]
    return x[0]


# %% 0.2 wrong: the unit of float64
# `np.spacing` of a float64 number is float64's gap, 2²⁹ times finer. Make the sum a float32 before you
# ask for its gap.
# see: 0.3
def ulps_off(total, x):
    want = np.sum(to64(x))
    return abs(float(total) - want) / np.spacing(abs(want))


def careful_sum(x):
    while len(x) > 1:
        x = jnp.pad(x, (0, len(x) % 2))
        x = x[::2] + x[1::2]
    return x[0]


# %% 0.2 wrong: the unit at the total
# The gap is taken at the total that is being judged. Above a power of two it is twice the gap below,
# so a total that is too large looks half as wrong. Take it at the exact sum.
# see: 0.3
def ulps_off(total, x):
    want = np.sum(to64(x))
    return abs(float(total) - want) / np.spacing(np.abs(np.float32(total)))


def careful_sum(x):
    while len(x) > 1:
        x = jnp.pad(x, (0, len(x) % 2))
        x = x[::2] + x[1::2]
    return x[0]


# %% 0.2 wrong: negative ULPs
# `np.spacing` of a negative number is negative, and so is the result. An error is a distance: take
# absolute values.
# see: 0.3
def ulps_off(total, x):
    want = np.sum(to64(x))
    return abs(float(total) - want) / np.spacing(np.float32(want))


def careful_sum(x):
    while len(x) > 1:
        x = jnp.pad(x, (0, len(x) % 2))
        x = x[::2] + x[1::2]
    return x[0]


# %% 0.2 wrong: adds in order
# Each step rounds the running total, and small numbers vanish in a large one. Add in pairs, or carry
# what was lost along.
# see: 0.7
def ulps_off(total, x):
    return ulps(total, np.sum(to64(x)))


def careful_sum(x):
    return jax.lax.scan(lambda total, number: (total + number, None), jnp.float32(0), x)[0]


# %% 0.2 wrong: trusts jnp.sum
# `jnp.sum` adds in blocks, and in order within one: better than in order throughout, and still 10
# ULPs off when a large number stands in a block of small ones. How it adds is the compiler's choice.
# Asking it for float64 changes nothing: under `jit` there is only float32 (§0.2).
# see: 0.7
def ulps_off(total, x):
    return ulps(total, np.sum(to64(x)))


def careful_sum(x):
    return jnp.sum(x)


# %% 0.2 wrong: sorted, then jnp.sum
# In rising order a large positive number comes last, which is fine; a large negative one comes first,
# and then it stands in a block of small ones again. Equal numbers stay where they were.
# see: 0.7
def ulps_off(total, x):
    return ulps(total, np.sum(to64(x)))


def careful_sum(x):
    return jnp.sum(jnp.sort(x))


# %% 0.2 wrong: sorted, then in order
# Small numbers first is a good rule against one large number. It does nothing for equal numbers, whose
# running total still rounds a thousand times in the same direction.
# see: 0.7
def ulps_off(total, x):
    return ulps(total, np.sum(to64(x)))


def careful_sum(x):
    x = x[jnp.argsort(jnp.abs(x))]
    return jax.lax.scan(lambda total, number: (total + number, None), jnp.float32(0), x)[0]


# %% 0.2 wrong: drops the odd one out
# With an odd count the last number has no partner, and slicing to pairs drops it. Pad with a zero, or
# carry it to the next round.
# see: 0.7
def ulps_off(total, x):
    return ulps(total, np.sum(to64(x)))


def careful_sum(x):
    while len(x) > 1:
        half = len(x) // 2
        x = x[:half] + x[half : 2 * half]
    return x[0]


# %% 0.2 wrong: adds the lost part again
# What `(new - total) - number` holds was added too much, not too little: it must be subtracted from
# the next number. With the sign turned round each error counts twice.
# see: 0.7
def ulps_off(total, x):
    return ulps(total, np.sum(to64(x)))


def careful_sum(x):
    def add(state, number):
        total, lost = state
        number = number + lost
        new = total + number
        return (new, (new - total) - number), None

    return jax.lax.scan(add, (jnp.float32(0), jnp.float32(0)), x)[0][0]


# %% 0.2 wrong: float64 in NumPy
# Adding in float64 and rounding once is the best of sums, and JAX can't compile it: under `jit` the
# array has no numbers yet. Write it with jnp or lax, in float32.
# see: 0.7
def ulps_off(total, x):
    return ulps(total, np.sum(to64(x)))


def careful_sum(x):
    return np.float32(np.sum(to64(x)))
