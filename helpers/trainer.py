"""A training run out of parts: what is averaged, what is skipped, where it stands, who is told.

All that a run needs in order to go on is one pytree, `Run`, and one compiled step moves it. There
is no class with options here: a feature is on when its state is in the run or its callback in the
list. Writing a run to disk is the business of `helpers.checkpoints`.
"""

import inspect
import itertools
import math
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Any, Protocol, TextIO, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.typing import ArrayLike

from helpers.optim import GradientTransformation
from helpers.training import TrainState, descend, init_state
from helpers.trees import Tree, global_norm

T = TypeVar("T")

Sums = tuple[ArrayLike, ArrayLike]
"""A total over examples and the number of examples in it, two scalars. Means don't add up."""

Loss = Callable[..., Sums]
"""`loss(params, batch)`, or `loss(params, batch, rng)` if it draws. Static: define it once."""

Metrics = Callable[[Tree, Tree], Mapping[str, Sums]]
"""`metrics(params, batch)`: each quantity by its name. Define it once: it is static."""


# --- what a run remembers ------------------------------------------------------------------------


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LossScale:
    """The factor that keeps float16 gradients from vanishing, and what moves it."""

    value: Array  # shape (), float32: a power of two, so that it costs no bit
    good: Array  # shape (), int32: finite steps since it last changed
    interval: int = field(metadata={"static": True})


def loss_scale(initial: float = 2.0**15, interval: int = 2000) -> LossScale:
    """A scale before any step. interval: finite steps in a row after which it doubles."""
    return LossScale(jnp.float32(initial), jnp.int32(0), interval)


def adjusted(scale: LossScale, finite: Array) -> LossScale:
    """The scale after a step: halved by a gradient that was not finite, doubled by a good series.

    It stays between 1 and 2²⁴. Source: Micikevicius et al. 2018, "Mixed precision training".
    """
    good = jnp.where(finite, scale.good + 1, 0)
    grows = good >= scale.interval
    factor = jnp.where(finite, jnp.where(grows, 2.0, 1.0), 0.5)
    value = jnp.clip(scale.value * factor, 1.0, 2.0**24)
    return replace(scale, value=value, good=jnp.where(grows, 0, good))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Average:
    """An exponential moving average of parameters that starts from zero, as Adam's moments do."""

    total: Tree  # like the params, float32 or wider: bfloat16 has no room for 0.001 of a number
    updates: Array  # shape (), int32
    decay: float = field(metadata={"static": True})


def average_of(params: Tree, decay: float) -> Average:
    """An average of nothing yet. decay: how much of it stays at each update, in (0, 1)."""
    return Average(_wide_zeros(params), jnp.int32(0), decay)


def averaged(average: Average, params: Tree) -> Average:
    """The average with one more set of parameters in it."""
    old, new = average.decay, 1 - average.decay
    total = jax.tree.map(lambda a, p: old * a + new * p.astype(a.dtype), average.total, params)
    return replace(average, total=total, updates=average.updates + 1)


def corrected(average: Average) -> Tree:
    """The average without its start: Σ weight · params / Σ weight. NaN before the first update.

    The weights add up to 1 − decayᵗ, which float32 gets wrong by cancellation and `expm1` doesn't.
    """
    weight = -jnp.expm1(average.updates * math.log(average.decay))
    return jax.tree.map(lambda a: a / weight, average.total)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Run:
    """All that a run needs in order to go on, and nothing else. A step donates it.

    train.step counts the optimizer's steps, skipped ones not included; `batches` counts what was
    taken from the data, and so is the place in them.
    """

    train: TrainState
    key: Array  # shape (), a typed key: never changed, folded with the number of the batch
    batches: Array  # shape (), int32
    average: "Average | None" = None
    scale: "LossScale | None" = None


def start(
    params: Tree,
    optimizer: GradientTransformation,
    key: Array,
    *,
    average: float | None = None,
    scale: "LossScale | None" = None,
) -> Run:
    """A run before its first step. It holds copies: what the caller passed stays alive.

    They are committed to the first device, as a restored run is: both are stepped by one program.

    Args:
        average: decay of a moving average of the parameters; None for none.
        scale: from `loss_scale`, for a loss that computes in float16; None for none.
    """
    train = init_state(params, optimizer)
    mean = None if average is None else average_of(params, average)
    run = jax.tree.map(jnp.copy, Run(train, key, jnp.int32(0), mean, scale))
    return jax.device_put(run, jax.local_devices()[0])


@jax.jit
def weights(run: Run) -> Tree:
    """What to evaluate and to keep: the averaged parameters if there are any, else the parameters.

    In the dtypes of the parameters, and in buffers of their own: later steps leave them alone.
    """
    params = run.train.params
    if run.average is None:
        return params
    started = run.average.updates > 0
    return jax.tree.map(
        lambda a, p: jnp.where(started, a.astype(p.dtype), p), corrected(run.average), params
    )


def _wide_zeros(tree: Tree) -> Tree:
    return jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.promote_types(x.dtype, jnp.float32)), tree)


# --- one step ------------------------------------------------------------------------------------


def with_rng(loss: Loss) -> Loss:
    """The loss as a function of (params, batch, key), whether it has a parameter `rng` or not."""
    if "rng" in inspect.signature(loss).parameters:
        return lambda params, batch, key: loss(params, batch, rng=key)
    return lambda params, batch, key: loss(params, batch)


def accumulated(
    loss: Loss, params: Tree, micro_batches: Tree, keys: Array, scale: ArrayLike = 1.0
) -> tuple[Array, Tree]:
    """Mean loss over the examples of all micro-batches, and its gradient, as of one large batch.

    Only one micro-batch at a time is in memory. Totals and counts are added up, and divided once,
    so that micro-batches may count different numbers of examples.

    Args:
        micro_batches: leaves of shape (micro-batches, …).
        keys: shape (micro-batches,), one for each.
        scale: the total is differentiated times this; the gradient returned is free of it.

    Returns:
        The mean, 0 where nothing is counted, and a tree like the params, in their dtypes.
    """
    total_of = with_rng(loss)

    def scaled(params: Tree, batch: Tree, key: Array) -> tuple[Array, Sums]:
        total, count = total_of(params, batch, key)
        return jnp.asarray(total * scale), (total, count)

    def add(sums: Tree, each: tuple[Tree, Array]) -> tuple[Tree, None]:
        grads, (total, count) = jax.grad(scaled, has_aux=True)(params, *each)
        more = (total, count, grads)
        return jax.tree.map(lambda s, x: s + jnp.asarray(x, s.dtype), sums, more), None

    zero = jnp.zeros((), jnp.float32)
    nothing = (zero, zero, _wide_zeros(params))
    (total, count, grads), _ = jax.lax.scan(add, nothing, (micro_batches, keys))
    count = jnp.maximum(count, 1)
    mean = jax.tree.map(lambda g, p: (g / (count * scale)).astype(p.dtype), grads, params)
    return total / count, mean


def all_finite(tree: Tree) -> Array:
    """Whether no leaf holds an infinity or a NaN, as a bool scalar."""
    return jnp.all(jnp.array([jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(tree)]))


def select(condition: Array, yes: Tree, no: Tree) -> Tree:
    """One of two trees of the same form, whole."""
    return jax.tree.map(lambda a, b: jnp.where(condition, a, b), yes, no)


@partial(jax.jit, static_argnames="loss", donate_argnames="run")
def run_step(loss: Loss, run: Run, micro_batches: Tree) -> tuple[Run, dict[str, Array]]:
    """One step on one or more micro-batches, compiled once; the run's buffers are reused.

    A loss or gradient that is not finite moves neither parameters nor optimizer nor average. This
    is decided on the device: nobody waits for it.

    Returns:
        The run after the step; and "loss" before it, "grad_norm" (of the mean gradient, not
        clipped), "finite" and, where there is one, the "scale" that was used.
    """
    count = jax.tree.leaves(micro_batches)[0].shape[0]
    keys = jax.vmap(partial(jax.random.fold_in, run.key))(run.batches + jnp.arange(count))
    scale = 1.0 if run.scale is None else run.scale.value
    value, grads = accumulated(loss, run.train.params, micro_batches, keys, scale)
    finite = all_finite((value, grads))
    train = select(finite, descend(run.train, grads), run.train)
    new = replace(run, train=train, batches=run.batches + count)
    logs = {"loss": value, "grad_norm": global_norm(grads), "finite": finite}
    if run.average is not None:
        mean = averaged(run.average, train.params)
        new = replace(new, average=select(finite, mean, run.average))
    if run.scale is not None:
        new = replace(new, scale=adjusted(run.scale, finite))
        logs["scale"] = run.scale.value
    return new, logs


# --- data ----------------------------------------------------------------------------------------

Data = Iterable[Tree] | Callable[[int], Tree]
"""Batches that can be read again and again; or a function from a batch's number to the batch."""


class OutOfData(ValueError):
    """The data ended and gave nothing when they were read again."""


def shuffled(data: Tree, size: int, seed: int = 0) -> Callable[[int], Tree]:
    """Batches by their number, in a new order each epoch that depends on seed and epoch alone.

    Args:
        data: NumPy arrays with a leading axis of n examples each.
        size: rows of a batch; must divide n.

    Raises:
        ValueError: when n is not a multiple of the size.
    """
    n = len(jax.tree.leaves(data)[0])
    if n % size:
        raise ValueError(f"{n} examples can't be cut into batches of {size}")

    @lru_cache(maxsize=2)
    def order(epoch: int) -> np.ndarray:
        return np.random.default_rng([seed, epoch]).permutation(n)

    def batch(number: int) -> Tree:
        epoch, place = divmod(number, n // size)
        rows = order(epoch)[place * size : (place + 1) * size]
        return jax.tree.map(lambda leaf: leaf[rows], data)

    return batch


def stream(data: Data, begin: int = 0) -> Iterator[Tree]:
    """The batches from number `begin` on, without end: an iterable is read once more each epoch.

    A function is asked for the number `begin`. An iterable is read from its very start and the
    first `begin` batches are dropped; that takes time, and is exact also for one that reshuffles
    itself, if it was made with the same seed.

    Raises:
        OutOfData: an iterable was empty when it was read again, as a generator is.
    """
    if callable(data):
        return map(data, itertools.count(begin))
    return itertools.islice(_epochs(data), begin, None)


def _epochs(data: Iterable[Tree]) -> Iterator[Tree]:
    given = 0
    while True:
        before = given
        for batch in data:
            given += 1
            yield batch
        if given == before:
            raise OutOfData(
                f"the data ended after {given} batches and can't be read again: "
                "pass a list, a loader or a function, not a generator"
            )


def grouped(batches: Iterator[Tree], count: int) -> Iterator[Tree]:
    """Each `count` batches that follow each other as one tree, stacked on a new leading axis."""
    while True:
        group = [next(batches) for _ in range(count)]
        yield jax.tree.map(lambda *leaves: np.stack(leaves), *group)


def prefetch(
    items: Iterable[T], ahead: int = 2, place: Callable[[T], T] = jax.device_put
) -> Generator[T, None, None]:
    """The items, placed on a device; a thread makes the next `ahead` while this one is in use.

    With 0 nothing runs ahead and there is no thread. An error in the items is raised where the
    item would have come. Close the iterator (`contextlib.closing`) to end the thread.
    """
    end: Any = object()
    iterator = iter(items)

    def make() -> Any:
        item = next(iterator, end)
        return item if item is end else place(item)

    if ahead == 0:
        yield from iter(make, end)
        return
    pool = ThreadPoolExecutor(1, "prefetch")
    try:
        waiting = deque(pool.submit(make) for _ in range(ahead))
        while (item := waiting.popleft().result()) is not end:
            waiting.append(pool.submit(make))
            yield item
    finally:
        pool.shutdown(cancel_futures=True)


def split_over(mesh: Mesh) -> Callable[[Tree], Tree]:
    """A `place` that cuts the rows of each micro-batch over the first axis of a mesh."""
    rows = NamedSharding(mesh, PartitionSpec(None, mesh.axis_names[0]))
    return lambda batches: jax.device_put(batches, rows)


def replicated(run: Run, mesh: Mesh) -> Run:
    """The run with a copy of everything on each device of the mesh."""
    return jax.device_put(run, NamedSharding(mesh, PartitionSpec()))


# --- evaluation ----------------------------------------------------------------------------------


@partial(jax.jit, static_argnames="metrics")
def _measured(metrics: Metrics, params: Tree, batch: Tree) -> dict[str, Sums]:
    return dict(metrics(params, batch))


def evaluate(metrics: Metrics, params: Tree, batches: Iterable[Tree]) -> dict[str, float]:
    """Each metric over all examples: the totals of the batches over their counts.

    Batches may count different numbers of examples. Each shape of batch is a program of its own.

    Raises:
        ValueError: when nothing was counted.
    """
    sums: dict[str, tuple[float, float]] = {}
    for batch in batches:
        for name, (total, count) in _measured(metrics, params, batch).items():
            before = sums.get(name, (0.0, 0.0))
            sums[name] = before[0] + float(total), before[1] + float(count)
    if not sums or not all(count for _, count in sums.values()):
        raise ValueError("no example was counted: is the evaluation set a used-up generator?")
    return {name: total / count for name, (total, count) in sums.items()}


# --- the loop and those who are told -------------------------------------------------------------


@dataclass(frozen=True)
class Report:
    """What a callback gets after a step.

    run: after the step, all of it readable now; the next step donates it, so keep copies.
    logs: arrays and numbers by name. Callbacks may add to it: those behind them see it.
    """

    step: int
    run: Run
    logs: dict[str, Any]


Callback = Callable[[Report], object]
"""Called after each step; one that returns True ends the run."""


def fit(
    run: Run,
    loss: Loss,
    data: Data,
    steps: int,
    *,
    accumulate: int = 1,
    callbacks: Sequence[Callback] = (),
    ahead: int = 2,
    place: Callable[[Tree], Tree] = jax.device_put,
) -> Run:
    """Takes the run to step number `steps`, counted from its very beginning, and returns it.

    A run that was restored goes on where it stood, in the data too. The run that was passed in is
    donated. All callbacks are called after each step, in order, before any of them can end it.

    Args:
        accumulate: batches of equal shapes that make one step.
        ahead, place: see `prefetch`; `split_over` gives a place for several devices.

    Raises:
        OutOfData: see `stream`.
    """
    done = int(run.batches)
    groups = grouped(stream(data, done), accumulate)
    with closing(prefetch(groups, ahead, place)) as batches:
        for step in range(done // accumulate + 1, steps + 1):
            run, logs = run_step(loss, run, next(batches))
            report = Report(step, run, dict(logs))
            answers = [callback(report) for callback in callbacks]
            if any(answer is True for answer in answers):
                break
    return run


def every(steps: int, callback: Callback) -> Callback:
    """The callback after each `steps`-th step only; with the steps of an epoch, once an epoch."""
    return lambda report: callback(report) if report.step % steps == 0 else None


def evaluation(metrics: Metrics, batches: Iterable[Tree], prefix: str = "eval/") -> Callback:
    """Adds the metrics of `weights(run)` to the logs, under "eval/" and their names."""

    def measure(report: Report) -> None:
        found = evaluate(metrics, weights(report.run), batches)
        report.logs.update({prefix + name: value for name, value in found.items()})

    return measure


@dataclass
class Best:
    """Keeps the weights of the step at which a metric in the logs was best; NaN never is.

    better: `min` for a loss, `max` for an accuracy.
    """

    metric: str
    better: Callable[[float, float], float] = min
    value: float = math.nan
    step: int = 0
    params: Tree = None

    def __call__(self, report: Report) -> None:
        """Looks at a step in whose logs the metric is; others it ignores."""
        if self.metric not in report.logs:
            return
        value = float(report.logs[self.metric])
        if math.isnan(value):
            return
        if math.isnan(self.value) or self.better(self.value, value) != self.value:
            self.value, self.step, self.params = value, report.step, weights(report.run)


def progress_bar(steps: int, width: int = 20, out: TextIO | None = None) -> Callback:
    """Redraws one line with the step and the loss. It waits for the loss: wrap it in `every`."""

    def draw(report: Report) -> None:
        done = "█" * (width * report.step // steps)
        line = f"\r{done:·<{width}} {report.step}/{steps} loss {float(report.logs['loss']):.4f}"
        (out or sys.stdout).write(line + "\n" * (report.step == steps))

    return draw


class ScalarWriter(Protocol):
    """What `tensorboard` asks of a writer; `tensorboardX.SummaryWriter` is one, PyTorch's too."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> object:
        """Takes one point of a curve."""


def tensorboard(writer: ScalarWriter) -> Callback:
    """Writes every number in the logs. It stands behind the callbacks that add to them."""

    def write(report: Report) -> None:
        for name, value in report.logs.items():
            writer.add_scalar(name, float(value), report.step)

    return write
