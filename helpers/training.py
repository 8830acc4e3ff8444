"""A training loop in three functions: one step, one epoch of steps, and an evaluation.

The state is donated: after a call only the returned one is alive. No progress bar, no checkpoints.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array

from helpers.losses import accuracy, cross_entropy
from helpers.optim import GradientTransformation, apply_updates
from helpers.trees import Tree

Loss = Callable[..., Array]
"""`loss(params, *batch)`, a scalar. It is part of the cache key: define it once, outside loops."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    """What changes from one step to the next, and the optimizer, which does not.

    The optimizer is static: part of the structure and not a leaf, so another one, even one made by
    the same call, means another compilation.
    """

    params: Tree
    opt_state: Tree
    step: Array  # shape (), int32: steps done
    optimizer: GradientTransformation = field(metadata={"static": True})


def init_state(params: Tree, optimizer: GradientTransformation) -> TrainState:
    """The state before any step. It holds the params themselves: the first step donates them.

    A weakly typed parameter, such as `jnp.asarray(1.0)`, becomes an ordinary one: a step would
    return it as such, and the second step would be another program.
    """
    params = jax.tree.map(lambda p: jnp.asarray(p, p.dtype), params)
    return TrainState(params, optimizer.init(params), jnp.zeros((), jnp.int32), optimizer)


def descend(state: TrainState, grads: Tree) -> TrainState:
    """The state after the optimizer's step along these gradients. Not jitted."""
    updates, opt_state = state.optimizer.update(grads, state.opt_state, state.params)
    params = apply_updates(state.params, updates)
    return replace(state, params=params, opt_state=opt_state, step=state.step + 1)


def step(loss: Loss, state: TrainState, *batch: Tree) -> tuple[TrainState, Array]:
    """One step on a batch. Returns the next state, and the loss before the step. Not jitted."""
    value, grads = jax.value_and_grad(loss)(state.params, *batch)
    return descend(state, grads), value


@partial(jax.jit, static_argnames="loss", donate_argnames="state")
def train_step(loss: Loss, state: TrainState, *batch: Tree) -> tuple[TrainState, Array]:
    """`step`, compiled once for each loss, optimizer and shape; the state's buffers are reused."""
    return step(loss, state, *batch)


@partial(jax.jit, static_argnames=("loss", "batch_size"), donate_argnames="state")
def train_epoch(
    loss: Loss, state: TrainState, key: Array, data: tuple[Tree, ...], batch_size: int
) -> tuple[TrainState, Array]:
    """One step on each batch of the data in a new order, all in one compiled program.

    The order comes from the key and the steps done: one key serves all epochs, each of which has
    an order of its own, and a resumed run goes on with the order that it would have had.

    Args:
        data: arrays with a leading axis of n examples each; a batch is `loss(params, *rows)`.
        batch_size: must divide n, for a smaller last batch would need a program of its own.

    Returns:
        The next state, and the losses before each step, shape (n / batch_size,).

    Raises:
        ValueError: when n is not a multiple of the batch size.
    """
    n = jax.tree.leaves(data)[0].shape[0]
    if n % batch_size:
        raise ValueError(f"{n} examples can't be cut into batches of {batch_size}")
    order = jax.random.permutation(jax.random.fold_in(key, state.step), n)

    def next_step(state: TrainState, rows: Array) -> tuple[TrainState, Array]:
        return step(loss, state, *jax.tree.map(lambda leaf: leaf[rows], data))

    return jax.lax.scan(next_step, state, order.reshape(-1, batch_size))


@partial(jax.jit, static_argnames="predict")
def evaluate(
    predict: Callable[[Tree, Array], Array], params: Tree, x: Array, labels: Array
) -> dict[str, Array]:
    """Mean cross-entropy ("loss") and "accuracy" of a classifier on all examples at once.

    predict: (params, x) → logits of shape (n, classes). labels: integers, shape (n,).
    """
    logits = predict(params, x)
    return {
        "loss": jnp.mean(cross_entropy(logits, labels)),
        "accuracy": accuracy(logits, labels),
    }
