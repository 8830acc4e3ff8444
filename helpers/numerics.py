"""Functions whose values and gradients stay finite at the edges where the textbook formula fails.

Each guards its own edge only: it does not mend a NaN that it is given.
"""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

Axis = int | tuple[int, ...] | None


# --- the double where ----------------------------------------------------------------------------


def safe_norm(x: Array, axis: Axis = None, keepdims: bool = False) -> Array:
    """Euclidean length, with gradient 0 at the zero vector.

    The inner `where` keeps the bad number away from `sqrt`, the outer one puts the right value
    back. With the outer one alone the value would be right and the gradient 0 · ∞ = NaN.

    Args:
        x: floating, any shape.
        axis: what to sum over, as in `jnp.sum`. Default: everything.

    Returns:
        The lengths, in the dtype of x. At ordinary points the gradient is x / ‖x‖.
        `jnp.linalg.norm` has the same values and a NaN gradient at 0.
    """
    squares = jnp.sum(jnp.square(x), axis=axis, keepdims=keepdims)
    positive = squares > 0
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, squares, 1.0)), 0.0)


def sinc(x: Array) -> Array:
    """sin(x) / x, and 1 at 0; any shape.

    For |x| < 0.3 it is the series 1 − x²/6 + x⁴/120 − x⁶/5040: at 0 the quotient has no value, and
    beside it the derivative (x cos x − sin x) / x² loses its digits. `jnp.sinc` is sin(πx) / (πx).
    """
    near = jnp.abs(x) < 0.3
    far = jnp.where(near, 1.0, x)
    x2 = jnp.square(jnp.where(near, x, 0.0))
    series = 1.0 - x2 / 6.0 * (1.0 - x2 / 20.0 * (1.0 - x2 / 42.0))
    return jnp.where(near, series, jnp.sin(far) / far)


def entropy(p: Array, axis: Axis = -1) -> Array:
    """−Σ p·log(p) in nats, where 0·log(0) counts as 0.

    Args:
        p: probabilities ≥ 0, shape (..., classes).

    Returns:
        Shape (...). Its gradient is −log(p) − 1 where p > 0. At p = 0 the true slope is infinite;
        here it is 0, so that a class that can't occur does not move.
    """
    positive = p > 0
    return -jnp.sum(jnp.where(positive, p * jnp.log(jnp.where(positive, p, 1.0)), 0.0), axis=axis)


def logit(p: Array) -> Array:
    """log(p / (1 − p)) for p in [0, 1]; any shape.

    −∞ at 0 and +∞ at 1, with gradient 0 there instead of an infinite one, which the next zero
    would turn into NaN. Outside of [0, 1] NaN, with gradient 0. At ordinary points the gradient is
    1 / (p (1 − p)).
    """
    inside = (p > 0) & (p < 1)
    q = jnp.where(inside, p, 0.5)
    edge = jnp.where(p == 0, -jnp.inf, jnp.where(p == 1, jnp.inf, jnp.nan))
    return jnp.where(inside, jnp.log(q) - jnp.log1p(-q), edge)


# --- the shifted exponential ---------------------------------------------------------------------


def shifted(x: Array, where: Array | bool = True, axis: int = -1) -> Array:
    """x minus the largest selected entry along the axis; 0 for entries not selected.

    So `exp` of it is at most 1 and never overflows. The maximum is a constant for derivatives
    (`stop_gradient`): it cancels in whatever is computed from the differences, and its own
    gradient would only add and take away the same numbers.

    Args:
        x: floating, any shape. What is not selected may be anything, NaN included.
        where: bool, broadcast against x. A row with nothing selected gives zeros, not NaN.
    """
    largest = jnp.max(x, axis=axis, keepdims=True, where=where, initial=-jnp.inf)
    largest = jax.lax.stop_gradient(jnp.where(largest == -jnp.inf, 0.0, largest))
    return jnp.where(where, x - largest, 0.0)


def softmax(x: Array, where: Array | bool = True, axis: int = -1) -> Array:
    """exp(x) / Σ exp(x), over the selected entries; 0 for the others.

    A row with nothing selected, or with −∞ everywhere, is all zeros and has gradient 0;
    `jax.nn.softmax` without a mask gives NaN for the latter. See `shifted` for the arguments.
    """
    exps = jnp.where(where, jnp.exp(shifted(x, where, axis)), 0.0)
    total = jnp.sum(exps, axis=axis, keepdims=True)
    return exps / jnp.where(total > 0, total, 1.0)


def log_softmax(x: Array, where: Array | bool = True, axis: int = -1) -> Array:
    """The logarithm of `softmax`, without the detour through it; −∞ where nothing is selected.

    `log(softmax(x))` is −∞ for a float32 x that is 104 below the maximum (88 where denormals are
    flushed), with a useless gradient; here it is x − max − log Σ exp(x − max). Its gradient is
    finite, and 0 for what is not selected.
    """
    below = shifted(x, where, axis)
    total = jnp.sum(jnp.where(where, jnp.exp(below), 0.0), axis=axis, keepdims=True)
    return jnp.where(where, below - jnp.log(jnp.where(total > 0, total, 1.0)), -jnp.inf)


# --- rules of their own --------------------------------------------------------------------------


@jax.custom_jvp
def softplus(x: ArrayLike) -> Array:
    """log(1 + exp(x)) without overflow; any shape. Its rule is `softplus_jvp`."""
    return jnp.maximum(x, 0.0) + jnp.log1p(jnp.exp(-jnp.abs(x)))


@softplus.defjvp
def softplus_jvp(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
    """The derivative is the logistic function.

    Differentiating the formula would meet |x| and max(x, 0) at 0, where neither has a derivative;
    the textbook's exp(x) / (1 + exp(x)) is ∞ / ∞ from x = 89 up.
    """
    (x,), (dx,) = primals, tangents
    return softplus(x), jax.nn.sigmoid(x) * dx


def round_straight_through(x: Array) -> Array:
    """Rounds to whole numbers (halves to even), and passes the gradient as if it did not.

    The true derivative of rounding is 0 almost everywhere, so nothing could be learnt through it.
    Source: Bengio et al. 2013, "Estimating or propagating gradients through stochastic neurons".
    """
    return x + jax.lax.stop_gradient(jnp.round(x) - x)
