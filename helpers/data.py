"""Data sets made on the spot from a key. Nothing here shuffles, splits or batches."""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike


@partial(jax.jit, static_argnames=("per_arm", "arms"))
def spiral(
    key: Array, per_arm: int = 240, arms: int = 3, noise: ArrayLike = 0.2
) -> tuple[Array, Array]:
    """Points on spiral arms that meet in the origin, and the arm each belongs to.

    Arm k starts at the angle 2πk / arms and turns by 4 radians on its way out. The noise is one
    of angle, so the arms stay apart except near the origin, where the angle means little.

    Args:
        key: from `jax.random.key`. Take different keys for training and test.
        per_arm: points of each arm; their radii are uniform in [0, 1).
        noise: standard deviation of the angle, in radians.

    Returns:
        x: float32 of shape (arms · per_arm, 2), and labels: int32 of shape (arms · per_arm,), one
        arm after the other. Compiled once for each number of points, whatever key and noise.

    Source: after the spiral of Stanford's CS231n, with random radii and evenly spaced arms.
    """
    radius_key, angle_key = jax.random.split(key)
    labels = jnp.repeat(jnp.arange(arms, dtype=jnp.int32), per_arm)
    radius = jax.random.uniform(radius_key, labels.shape)
    wobble = noise * jax.random.normal(angle_key, labels.shape)
    angle = 2 * jnp.pi * labels / arms + 4.0 * radius + wobble
    return radius[:, None] * jnp.stack([jnp.cos(angle), jnp.sin(angle)], axis=1), labels
