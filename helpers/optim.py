"""Optimizers as pairs of functions that compose: optax's protocol in a page, and optax's numbers.

A transformation turns gradients into updates that `apply_updates` adds to the parameters. Its
functions are pure: what they remember is in a state that goes in and comes out, so all of it may be
jitted, scanned and donated. Optax's transformations fit into `chain` here, and these into optax's.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.typing import ArrayLike

from helpers.trees import Tree, clip_to_norm

Schedule = Callable[[ArrayLike], Array]
"""From the number of steps done (an integer scalar, 0 at the first step) to a float32 scalar."""

Mask = Tree | Callable[[Tree], Tree]
"""A tree of Python bools with the structure of the parameters, or a function that makes it."""


class GradientTransformation(NamedTuple):
    """A pair of pure functions.

    init: params → state. update: (updates, state, params) → (updates, state), where all updates
    are trees like the params. Unlike optax's, `update` always takes the params.
    """

    init: Callable[[Tree], Tree]
    update: Callable[[Tree, Tree, Tree], tuple[Tree, Tree]]


def chain(*transformations: GradientTransformation) -> GradientTransformation:
    """Applies the transformations one after the other; its state is the tuple of theirs."""

    def init(params: Tree) -> Tree:
        return tuple(t.init(params) for t in transformations)

    def update(updates: Tree, state: Tree, params: Tree) -> tuple[Tree, Tree]:
        new = []
        for t, s in zip(transformations, state, strict=True):
            updates, s = t.update(updates, s, params)
            new.append(s)
        return updates, tuple(new)

    return GradientTransformation(init, update)


def apply_updates(params: Tree, updates: Tree) -> Tree:
    """params + updates; every parameter keeps its dtype."""
    return jax.tree.map(lambda p, u: (p + u).astype(p.dtype), params, updates)


def stateless(fn: Callable[[Tree, Tree], Tree]) -> GradientTransformation:
    """A transformation that remembers nothing, from a function (updates, params) → updates."""

    def update(updates: Tree, state: Tree, params: Tree) -> tuple[Tree, Tree]:
        return fn(updates, params), state

    return GradientTransformation(lambda params: (), update)


# --- scaling -------------------------------------------------------------------------------------


def scale(factor: ArrayLike) -> GradientTransformation:
    """Multiplies the updates by a number: −learning rate makes them go downhill."""
    return stateless(
        lambda updates, params: jax.tree.map(lambda u: jnp.asarray(factor, u.dtype) * u, updates)
    )


class ScaleByScheduleState(NamedTuple):
    """What `scale_by_schedule` remembers."""

    steps: Array  # shape (), int32: updates so far


def scale_by_schedule(schedule: Schedule) -> GradientTransformation:
    """Multiplies the updates by `schedule(updates so far)`: the first one by `schedule(0)`.

    The number of steps is an array in the state. As a Python number it would be a constant of the
    compiled program, and each step would compile a new one.
    """

    def init(params: Tree) -> ScaleByScheduleState:
        return ScaleByScheduleState(steps=jnp.zeros((), jnp.int32))

    def update(
        updates: Tree, state: ScaleByScheduleState, params: Tree
    ) -> tuple[Tree, ScaleByScheduleState]:
        factor = schedule(state.steps)
        updates = jax.tree.map(lambda u: jnp.asarray(factor, u.dtype) * u, updates)
        return updates, ScaleByScheduleState(steps=state.steps + 1)

    return GradientTransformation(init, update)


def scale_by_learning_rate(learning_rate: ArrayLike | Schedule) -> GradientTransformation:
    """Multiplies by −learning rate, a number or a schedule: the last link of an optimizer."""
    if callable(learning_rate):
        return scale_by_schedule(lambda steps: -learning_rate(steps))
    return scale(-1.0 * learning_rate)


def warmup_cosine(
    peak: float, warmup_steps: int, total_steps: int, start: float = 0.0, end: float = 0.0
) -> Schedule:
    """A straight line from `start` to `peak`, then half a cosine wave down to `end`.

    It is `start` at step 0, `peak` at `warmup_steps`, and `end` from `total_steps` on; the warm-up
    is part of the total. With `warmup_steps=0` it begins at the peak. The same numbers as
    `optax.warmup_cosine_decay_schedule`.

    Raises:
        ValueError: unless 0 ≤ warmup_steps < total_steps.

    Source: Loshchilov and Hutter 2017, "SGDR", for the cosine.
    """
    if not 0 <= warmup_steps < total_steps:
        raise ValueError(f"needs 0 ≤ warmup_steps < total_steps, got {warmup_steps}, {total_steps}")

    def schedule(steps: ArrayLike) -> Array:
        rising = start + (peak - start) * jnp.divide(steps, max(warmup_steps, 1))
        done = jnp.divide(jnp.subtract(steps, warmup_steps), total_steps - warmup_steps)
        falling = end + (peak - end) * 0.5 * (1.0 + jnp.cos(jnp.pi * jnp.clip(done, 0.0, 1.0)))
        return jnp.where(jnp.less(steps, warmup_steps), rising, falling)

    return schedule


# --- directions ----------------------------------------------------------------------------------


class TraceState(NamedTuple):
    """What `trace` remembers."""

    trace: Tree  # like the params: the decayed sum of all updates so far


def trace(decay: ArrayLike, nesterov: bool = False) -> GradientTransformation:
    """Momentum: t ← g + decay · t, and t is the new update.

    Not an average: for a constant gradient the trace grows to g / (1 − decay). With `nesterov` the
    update looks one step ahead: g + decay · t, with the t that was just computed.

    Source: Sutskever et al. 2013, "On the importance of initialization and momentum".
    """

    def init(params: Tree) -> TraceState:
        return TraceState(trace=jax.tree.map(jnp.zeros_like, params))

    def update(updates: Tree, state: TraceState, params: Tree) -> tuple[Tree, TraceState]:
        def follow(g: Array, t: Array) -> Array:
            return g + jnp.asarray(decay, g.dtype) * t

        new = jax.tree.map(follow, updates, state.trace)
        return (jax.tree.map(follow, updates, new) if nesterov else new), TraceState(trace=new)

    return GradientTransformation(init, update)


class ScaleByAdamState(NamedTuple):
    """What `scale_by_adam` remembers."""

    steps: Array  # shape (), int32: updates so far
    mu: Tree  # like the params: moving average of the gradients
    nu: Tree  # like the params: moving average of their squares


def scale_by_adam(b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8) -> GradientTransformation:
    """Adam's direction: the mean of past gradients over the root of the mean of their squares.

    Both averages start at zero and so are too small at first, by the factor 1 − bᵗ at step t;
    dividing by it mends them. Without that the first step is √10 = 3.16 times as long.

    In float32, 1 − 0.999 is off by 1.3e-5 of itself: the first updates are right to 7e-6 of their
    size only, here as in optax.

    Source: Kingma and Ba 2015, "Adam", algorithm 1.
    """

    def init(params: Tree) -> ScaleByAdamState:
        return ScaleByAdamState(
            steps=jnp.zeros((), jnp.int32),
            mu=jax.tree.map(jnp.zeros_like, params),
            nu=jax.tree.map(jnp.zeros_like, params),
        )

    def update(
        updates: Tree, state: ScaleByAdamState, params: Tree
    ) -> tuple[Tree, ScaleByAdamState]:
        steps = state.steps + 1
        mu = jax.tree.map(lambda g, m: b1 * m + (1 - b1) * g, updates, state.mu)
        nu = jax.tree.map(lambda g, n: b2 * n + (1 - b2) * g**2, updates, state.nu)

        def direction(m: Array, n: Array) -> Array:
            m_hat = m / (1 - b1**steps).astype(m.dtype)
            n_hat = n / (1 - b2**steps).astype(n.dtype)
            return m_hat / (jnp.sqrt(n_hat) + eps)

        return jax.tree.map(direction, mu, nu), ScaleByAdamState(steps, mu, nu)

    return GradientTransformation(init, update)


# --- decay and clipping --------------------------------------------------------------------------


def add_decayed_weights(
    weight_decay: ArrayLike, mask: Mask | None = None
) -> GradientTransformation:
    """Adds weight_decay · parameter to each update whose mask is true.

    Where it stands decides what it is: behind `scale_by_adam` it is AdamW's decoupled decay, before
    it an L2 penalty, which Adam then scales along with the gradient. Either way it stands before
    the learning rate, which scales it too.

    Args:
        mask: default: all. A mask is looked at while tracing, so its leaves are Python bools.

    Source: Loshchilov and Hutter 2019, "Decoupled weight decay regularization".
    """

    def decayed(updates: Tree, params: Tree) -> Tree:
        chosen = mask(params) if callable(mask) else mask
        if chosen is None:
            chosen = jax.tree.map(lambda p: True, params)
        return jax.tree.map(
            lambda u, p, on: u + jnp.asarray(weight_decay, u.dtype) * p if on else u,
            updates,
            params,
            chosen,
        )

    return stateless(decayed)


def matrices(params: Tree) -> Tree:
    """The usual mask for weight decay: true for leaves of two axes or more, false for biases."""
    return jax.tree.map(lambda p: jnp.ndim(p) >= 2, params)


def clip_by_global_norm(max_norm: ArrayLike) -> GradientTransformation:
    """Scales all updates together so that their common length is at most `max_norm`.

    See `trees.clip_to_norm`. Optax's gives NaN for updates of zero and a `max_norm` of 0.
    """
    return stateless(lambda updates, params: clip_to_norm(updates, max_norm))


# --- whole optimizers ----------------------------------------------------------------------------


def sgd(
    learning_rate: ArrayLike | Schedule, momentum: float | None = None, nesterov: bool = False
) -> GradientTransformation:
    """Gradient descent, with (Nesterov) momentum if it is given."""
    last = scale_by_learning_rate(learning_rate)
    return last if momentum is None else chain(trace(momentum, nesterov), last)


def adam(
    learning_rate: ArrayLike | Schedule, b1: float = 0.9, b2: float = 0.999, eps: float = 1e-8
) -> GradientTransformation:
    """`scale_by_adam`, then the learning rate."""
    return chain(scale_by_adam(b1, b2, eps), scale_by_learning_rate(learning_rate))


def adamw(
    learning_rate: ArrayLike | Schedule,
    b1: float = 0.9,
    b2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 1e-4,
    mask: Mask | None = None,
) -> GradientTransformation:
    """Adam with decoupled weight decay: p ← p − lr · (Adam's direction + weight_decay · p)."""
    return chain(
        scale_by_adam(b1, b2, eps),
        add_decayed_weights(weight_decay, mask),
        scale_by_learning_rate(learning_rate),
    )
