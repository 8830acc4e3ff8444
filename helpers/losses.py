"""What a classifier is trained on and judged by: one number an example, and the mean over some.

The safe exponentials are in `helpers.numerics`.
"""

import jax.numpy as jnp
from jax import Array

from helpers.numerics import log_softmax


def masked_mean(values: Array, mask: Array) -> Array:
    """Mean of the values whose mask is true.

    values, mask: shape (n,), or any other shape that both have; the mask is bool. Returns a scalar;
    0 when nothing is selected, with a finite gradient. A NaN that is not selected is left out of
    the mean, but whatever computed it may still make NaN of its gradient: mask its inputs as well.
    """
    count = jnp.sum(mask)
    return jnp.sum(jnp.where(mask, values, 0.0)) / jnp.maximum(count, 1)


def cross_entropy(logits: Array, labels: Array) -> Array:
    """−log softmax(logits)[label] for each example, in nats.

    Args:
        logits: floating, shape (..., classes).
        labels: integers in [0, classes), shape (...). Others are not detected: −1 is the last
            class, as in NumPy, and classes and above give NaN.

    Returns:
        Shape (...), in the dtype of the logits, ≥ 0. The gradient of the mean over a batch of B is
        (softmax(logits) − onehot(labels)) / B, finite for logits of any finite size. The same as
        `optax.softmax_cross_entropy_with_integer_labels`.
    """
    log_probs = log_softmax(logits)
    return -jnp.take_along_axis(log_probs, labels[..., None], axis=-1)[..., 0]


def accuracy(logits: Array, labels: Array) -> Array:
    """Share of the examples whose largest logit is the label's; the first of equals counts.

    logits: (..., classes). labels: integers, (...). Returns a float32 scalar.
    """
    return jnp.mean(jnp.argmax(logits, axis=-1) == labels)
