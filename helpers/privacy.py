"""The gradient of differentially private SGD: clip each example's, sum, add noise, divide.

It makes the step and does no accounting: what ε a number of such steps costs is another matter.
"""

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from helpers.trees import Tree, clip_to_norm


def clip_each(grads: Tree, max_norm: ArrayLike) -> Tree:
    """Each example's gradient, scaled down to length `max_norm` if it is longer.

    grads: leaves of shape (B, ...), from `per_example.grads`; the length is that of one example's
    gradient over all leaves together. Returns the same shapes and dtypes.
    """
    return jax.vmap(clip_to_norm, (0, None))(grads, max_norm)


def add_noise(key: Array, tree: Tree, stddev: ArrayLike) -> Tree:
    """The tree plus independent normal noise: a key of its own for each leaf.

    One key for all leaves would give equal shapes equal noise, which a difference cancels.
    """
    leaves, structure = jax.tree.flatten(tree)
    keys = jax.tree.unflatten(structure, list(jax.random.split(key, len(leaves))))

    def noisy(k: Array, leaf: Array) -> Array:
        noise = jax.random.normal(k, leaf.shape, leaf.dtype)
        return leaf + jnp.asarray(stddev, leaf.dtype) * noise

    return jax.tree.map(noisy, keys, tree)


def private_mean(key: Array, grads: Tree, max_norm: ArrayLike, noise_multiplier: ArrayLike) -> Tree:
    """(Σ clipped gradients + noise) / B.

    One example moves the sum by at most `max_norm`, so the noise on the *sum* has the standard
    deviation noise_multiplier · max_norm. Noise of that size on the mean would be B times too
    much; noise meant for a mean but added to the sum would be B times too little to protect.

    Args:
        key: a fresh one for each step; a key used again repeats the noise.
        grads: leaves of shape (B, ...), as from `per_example.grads`, B ≥ 1.
        max_norm: the clipping length C.
        noise_multiplier: σ; 0 leaves the mean of the clipped gradients.

    Returns:
        A tree without the batch axis.

    Source: Abadi et al. 2016, "Deep learning with differential privacy", algorithm 1.
    `optax.contrib.differentially_private_aggregate` is the same with the key in its state.
    """
    batch = jax.tree.leaves(grads)[0].shape[0]
    total = jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), clip_each(grads, max_norm))
    noisy = add_noise(key, total, jnp.multiply(noise_multiplier, max_norm))
    return jax.tree.map(lambda leaf: leaf / batch, noisy)
