"""The length of a pytree of arrays, and shortening it: what optimizers and privacy share.

Everything else that is done to trees is one call to `jax.tree` and stands where it is used.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

Tree = Any
"""A pytree of floating arrays: nested dicts, lists, tuples and registered dataclasses."""


def global_norm(tree: Tree) -> Array:
    """Euclidean length of all the numbers in the tree, taken as one long vector.

    Returns a scalar, 0 for an empty tree; float32 or wider also where the leaves are narrower,
    unlike `optax.tree.norm`, whose float16 norm is infinite from 256 up. Like optax's, its own
    gradient is NaN at zero: it measures gradients and is not meant to be differentiated.
    """

    def squares(leaf: Array) -> Array:
        return jnp.sum(jnp.square(leaf.astype(jnp.promote_types(leaf.dtype, jnp.float32))))

    return jnp.sqrt(sum(map(squares, jax.tree.leaves(tree)), jnp.zeros(())))


def clip_to_norm(tree: Tree, max_norm: ArrayLike) -> Tree:
    """The tree, scaled down to length `max_norm` if it is longer.

    The direction stays, and so does a tree within the limit, exactly; a tree of zeros stays zero,
    also for `max_norm=0`, where `max_norm / norm` would be 0 / 0. An infinite or NaN entry makes
    NaN: clipping does not mend a gradient that is broken.

    Args:
        tree: leaves of any shape and floating dtype, which they keep.
        max_norm: scalar ≥ 0.

    Source: Pascanu et al. 2013, "On the difficulty of training recurrent neural networks".
    """
    norm = global_norm(tree)
    too_long = ~(norm <= max_norm)  # a NaN norm is not within the limit
    factor = jnp.where(too_long, max_norm / jnp.where(too_long, norm, 1.0), 1.0)
    return jax.tree.map(lambda leaf: (leaf * factor).astype(leaf.dtype), tree)
