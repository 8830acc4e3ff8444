"""The gradient of each example alone, and its length.

A loss here is that of one example: `loss(params, x, y)` with no batch axis, returning a scalar.
"""

from collections.abc import Callable
from functools import partial

import jax
from jax import Array

from helpers.trees import Tree, global_norm

ExampleLoss = Callable[..., Array]


def grads(loss: ExampleLoss, params: Tree, *batch: Tree) -> Tree:
    """One gradient an example, all at once: `vmap` of `grad`, over the batch but not the params.

    Args:
        loss: `loss(params, *example)`, a scalar.
        batch: arrays or trees of them, each with a leading axis of B examples.

    Returns:
        A tree like params whose leaves have the shape (B, *leaf.shape): B times the memory. Their
        mean over the first axis is the gradient of the mean loss.
    """
    in_axes = (None, *(0 for _ in batch))
    return jax.vmap(jax.grad(loss), in_axes)(params, *batch)


@partial(jax.jit, static_argnames=("loss", "chunk"))
def grad_norms(loss: ExampleLoss, params: Tree, *batch: Tree, chunk: int) -> Array:
    """Length of each example's gradient, with never more than `chunk` gradients in memory.

    The numbers are those of `vmap(global_norm)` over `grads`, up to rounding. A batch need not be
    a multiple of the chunk: `jax.lax.map` does the rest apart. Jitted: each loss, B and chunk is a
    program of its own.

    Returns:
        Shape (B,).
    """

    def norm_of_one(example: tuple[Tree, ...]) -> Array:
        return global_norm(jax.grad(loss)(params, *example))

    return jax.lax.map(norm_of_one, batch, batch_size=chunk)
