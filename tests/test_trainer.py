"""Tests of the trainer: each feature against float64, or bit for bit against the run without it."""

import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from helpers import CompileBudget, assert_close, assert_equal, to64
from helpers import trainer as t
from helpers.buffers import deleted
from helpers.checkpoints import open_checkpoints, restore, restore_weights, save, saving
from helpers.optim import adam, chain, clip_by_global_norm, sgd
from helpers.trees import Tree, global_norm

X = np.random.default_rng(0).normal(size=(24, 3)).astype(np.float32)
Y = (X @ np.float32([1, -2, 3]) + 0.5).astype(np.float32)
DATA = {"x": X, "y": Y, "real": np.ones(24, bool)}
PARAMS = {"w": np.float32([0.1, 0.2, -0.3]), "b": np.float32(0.0)}
DESCENT = sgd(0.1, momentum=0.9)
ADAM = chain(clip_by_global_norm(1.0), adam(0.05))


def loss(params: Tree, batch: Tree) -> t.Sums:
    error = batch["x"] @ params["w"] + params["b"] - batch["y"]
    return jnp.sum(jnp.where(batch["real"], error**2, 0.0)), jnp.sum(batch["real"])


def noisy_loss(params: Tree, batch: Tree, rng: jax.Array) -> t.Sums:
    return loss(params, batch | {"x": batch["x"] * jax.random.bernoulli(rng, 0.5, (3,))})


def exact(params: Tree, batch: Tree) -> tuple[float, Tree]:
    """Mean loss and gradient in float64."""
    rows = batch["real"]
    x, y = batch["x"][rows].astype(np.float64), batch["y"][rows].astype(np.float64)
    error = x @ params["w"].astype(np.float64) + float(params["b"]) - y
    return float(np.mean(error**2)), {"w": 2 * error @ x / len(y), "b": 2 * np.mean(error)}


def cut(batch: Tree, count: int) -> Tree:
    return jax.tree.map(lambda leaf: leaf.reshape(count, -1, *leaf.shape[1:]), batch)


def begin(seed: int = 0, **options: Any) -> t.Run:
    return t.start(PARAMS, ADAM, jax.random.key(seed), **options)


def bits(tree: Tree) -> list[bytes]:
    return [
        np.array(x if isinstance(x.dtype, np.dtype) else jax.random.key_data(x)).tobytes()
        for x in jax.tree.leaves(tree)
    ]


@pytest.mark.parametrize("count", [1, 3, 8])
def test_accumulated_is_the_large_batch(count: int) -> None:
    keys = jax.random.split(jax.random.key(0), count)
    value, grads = t.accumulated(loss, PARAMS, cut(DATA, count), keys)
    want, want_grads = exact(PARAMS, DATA)
    assert_close(value, want, rtol=1e-5)
    assert_close(grads, want_grads, rtol=1e-5, atol=1e-6)


def test_micro_batches_weigh_what_is_real_in_them() -> None:
    some = DATA | {"real": np.arange(24) < 13}
    keys = jax.random.split(jax.random.key(0), 3)
    value, grads = t.accumulated(loss, PARAMS, cut(some, 3), keys)
    want, want_grads = exact(PARAMS, some)
    assert_close(value, want, rtol=1e-5)
    assert_close(grads, want_grads, rtol=1e-5, atol=1e-6)


def test_a_batch_of_nothing_is_a_loss_of_zero() -> None:
    nothing = DATA | {"real": np.zeros(24, bool)}
    value, grads = t.accumulated(
        loss, PARAMS, cut(nothing, 1), jax.random.split(jax.random.key(0), 1)
    )
    assert float(value) == 0 and float(global_norm(grads)) == 0


def test_a_power_of_two_costs_no_bit() -> None:
    keys = jax.random.split(jax.random.key(0), 2)
    program = jax.jit(lambda scale: t.accumulated(loss, PARAMS, cut(DATA, 2), keys, scale))
    assert bits(program(1.0)) == bits(program(2.0**12))


def test_one_step_is_float64s_and_reuses_all_buffers() -> None:
    run = t.start(PARAMS, DESCENT, jax.random.key(0))
    after, logs = t.run_step(loss, run, cut(DATA, 1))
    value, grads = exact(PARAMS, DATA)
    want = jax.tree.map(lambda p, g: p - 0.1 * g, to64(PARAMS), grads)
    assert_close(after.train.params, want, rtol=1e-5, atol=1e-6)
    assert_close(logs["loss"], value, rtol=1e-5)
    assert_close(logs["grad_norm"], np.sqrt(np.sum(grads["w"] ** 2) + grads["b"] ** 2), rtol=1e-5)
    assert all(deleted(run))


@pytest.mark.parametrize("fault", [np.nan, np.inf])
def test_a_broken_batch_moves_nothing_but_the_place(fault: float) -> None:
    broken = DATA | {"x": np.where(np.arange(24)[:, None] == 5, np.float32(fault), X)}
    run = begin(average=0.9, scale=t.loss_scale(8.0))
    run, _ = t.run_step(loss, run, cut(DATA, 1))
    before = bits((run.train, run.average))
    run, logs = t.run_step(loss, run, cut(broken, 1))
    assert bits((run.train, run.average)) == before
    assert not bool(logs["finite"]) and (int(run.batches), float(run.scale.value)) == (2, 4.0)  # type: ignore[union-attr]


def test_the_scale_follows_its_rule_and_stays_in_its_range() -> None:
    scale, seen = t.loss_scale(4.0, interval=2), []
    for finite in (True, True, False, False, False, False, True, False, True, True):
        scale = t.adjusted(scale, jnp.bool_(finite))
        seen.append(float(scale.value))
    assert seen == [4, 8, 4, 2, 1, 1, 1, 1, 1, 2]
    top = t.loss_scale(2.0**24, interval=1)
    assert float(t.adjusted(top, jnp.bool_(True)).value) == 2.0**24


@pytest.mark.parametrize("decay", [0.5, 0.9, 0.999])
def test_the_average_is_a_weighted_mean(decay: float) -> None:
    path = np.random.default_rng(1).normal(size=(7, 2)).astype(np.float32)
    average = t.average_of({"w": path[0]}, decay)
    for point in path:
        average = t.averaged(average, {"w": jnp.asarray(point)})
    shares = decay ** np.arange(6, -1, -1.0)
    want = shares @ path.astype(np.float64) / shares.sum()
    assert_close(t.corrected(average)["w"], want, rtol=1e-4, atol=1e-5)


def test_weights_are_copies_in_the_dtypes_of_the_parameters() -> None:
    half = {"w": jnp.ones(3, jnp.bfloat16)}
    run = t.start(half, DESCENT, jax.random.key(0), average=0.9)
    first = t.weights(run)
    assert first["w"].dtype == jnp.bfloat16
    assert_equal(first["w"], np.ones(3))
    run, _ = t.run_step(
        lambda params, batch: (jnp.sum(params["w"] * batch), 1), run, np.ones((1, 3))
    )
    assert not any(deleted(first))


def test_a_stream_reads_again_and_begins_anywhere() -> None:
    assert list(itertools.islice(t.stream([1, 2, 3], 2), 5)) == [3, 1, 2, 3, 1]
    assert list(itertools.islice(t.stream(lambda n: n * n, 2), 3)) == [4, 9, 16]


def test_a_generator_is_no_endless_stream() -> None:
    with pytest.raises(t.OutOfData, match="after 3 batches"):
        list(itertools.islice(t.stream(n for n in range(3)), 5))
    with pytest.raises(t.OutOfData, match="after 0 batches"):
        next(t.stream([]))


def test_shuffled_deals_each_row_once_an_epoch_by_number() -> None:
    batch = t.shuffled(np.arange(12), 3, seed=4)
    epochs = [np.concatenate([batch(4 * e + i) for i in range(4)]) for e in range(3)]
    assert all(sorted(epoch) == list(range(12)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert_equal(t.shuffled(np.arange(12), 3, seed=4)(7), epochs[1][9:])
    with pytest.raises(ValueError, match="10 examples"):
        t.shuffled(np.arange(10), 3)


def numbers(count: int, made: list[int]) -> Iterator[int]:
    for number in range(count):
        made.append(number)
        yield number


def test_prefetch_runs_ahead_by_a_fixed_number_and_ends_its_thread() -> None:
    made: list[int] = []
    items = t.prefetch(numbers(50, made), 3, place=lambda x: x)
    assert next(items) == 0
    deadline = time.monotonic() + 10
    while len(made) < 4 and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.05)
    assert made == [0, 1, 2, 3]
    items.close()  # type: ignore[attr-defined]
    assert not any(thread.name.startswith("prefetch") for thread in threading.enumerate())


@pytest.mark.parametrize("ahead", [0, 1, 4])
def test_prefetch_keeps_order_and_raises_where_the_item_would_have_come(ahead: int) -> None:
    assert list(t.prefetch(range(6), ahead, place=lambda x: -x)) == [0, -1, -2, -3, -4, -5]

    def failing() -> Iterator[int]:
        yield 1
        raise OSError("gone")

    items = t.prefetch(failing(), ahead, place=lambda x: x)
    assert next(items) == 1
    with pytest.raises(OSError, match="gone"):
        next(items)


def metrics(params: Tree, batch: Tree) -> dict[str, t.Sums]:
    return {"loss": loss(params, batch)}


def test_evaluation_over_unequal_batches_is_that_of_all_rows() -> None:
    rows = (slice(0, 10), slice(10, 20), slice(20, 24))
    parts = [{name: leaf[some] for name, leaf in DATA.items()} for some in rows]
    assert t.evaluate(metrics, PARAMS, parts)["loss"] == pytest.approx(exact(PARAMS, DATA)[0])
    with pytest.raises(ValueError, match="no example"):
        t.evaluate(metrics, PARAMS, [])


def test_a_whole_run_is_one_compilation_and_callbacks_read_it() -> None:
    losses: list[float] = []
    best = t.Best("eval/loss")
    jax.clear_caches()
    with CompileBudget(1, only="run_step"):
        t.fit(
            begin(average=0.8),
            loss,
            t.shuffled(DATA, 6),
            20,
            accumulate=2,
            callbacks=[
                lambda report: losses.append(float(report.logs["loss"])),
                t.every(5, t.evaluation(metrics, [DATA])),
                best,
            ],
        )
    assert len(losses) == 20 and losses[-1] < losses[0]
    assert (
        best.step in (5, 10, 15, 20)
        and best.value == t.evaluate(metrics, best.params, [DATA])["loss"]
    )


def test_a_callback_that_returns_true_ends_the_run_after_all_were_told() -> None:
    told: list[int] = []
    run = t.fit(
        begin(), loss, [DATA], 9, callbacks=[lambda r: r.step == 4, lambda r: told.append(r.step)]
    )
    assert told == [1, 2, 3, 4] and int(run.batches) == 4


def test_nan_is_never_the_best() -> None:
    best = t.Best("m", better=max)
    run = begin()
    for step, value in enumerate([np.nan, 1.0, np.nan, 3.0, 3.0, 2.0], 1):
        best(t.Report(step, run, {"m": value}))
        assert best.step != 1 and (best.params is None) == (step == 1)
    assert (best.value, best.step) == (3.0, 4)


class Reshuffles:
    """Draws a new order each time it is read."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(5)

    def __iter__(self) -> Iterator[Tree]:
        order = self.rng.permutation(24).reshape(4, 6)
        return iter([{name: leaf[rows] for name, leaf in DATA.items()} for rows in order])


@pytest.mark.parametrize("data", [lambda: t.shuffled(DATA, 6), Reshuffles])
def test_resumed_equals_uninterrupted_bit_for_bit(data: Any, tmp_path: Any) -> None:
    def fresh(seed: int = 0) -> t.Run:
        return begin(seed, average=0.9, scale=t.loss_scale(64.0, interval=3))

    whole = t.fit(fresh(), noisy_loss, data(), 11, accumulate=2)
    with open_checkpoints(tmp_path / "run") as manager:
        t.fit(fresh(), noisy_loss, data(), 7, accumulate=2, callbacks=[t.every(7, saving(manager))])
    with (
        open_checkpoints(tmp_path / "run", resume=True) as manager,
        CompileBudget(0, only="run_step"),
    ):
        back = t.fit(restore(manager, fresh(9)), noisy_loss, data(), 11, accumulate=2)
    assert bits(back) == bits(whole)


def test_a_used_directory_is_resumed_on_purpose_only(tmp_path: Any) -> None:
    with open_checkpoints(tmp_path, wait=True) as manager:
        save(manager, begin(), 3)
    with pytest.raises(FileExistsError, match="up to step 3"):
        open_checkpoints(tmp_path)
    with open_checkpoints(tmp_path, resume=True) as manager:
        assert manager.latest_step() == 3


def test_the_latest_is_kept_beside_the_best(tmp_path: Any) -> None:
    with open_checkpoints(tmp_path, keep=1, best="m") as manager:
        for step, value in enumerate([3.0, 1.0, 2.0, 2.5], 1):
            save(manager, begin(), step, metrics={"m": value})
        manager.wait_until_finished()
        assert list(manager.all_steps()) == [2, 4]


def test_weights_alone_can_be_used_and_not_resumed(tmp_path: Any) -> None:
    run = begin(average=0.9)
    run, _ = t.run_step(loss, run, cut(DATA, 1))
    with open_checkpoints(tmp_path, wait=True) as manager:
        save(manager, run, 1, weights_only=True)
        assert bits(restore_weights(manager, PARAMS)) == bits(t.weights(run))
        with pytest.raises(FileNotFoundError, match="weights only"):
            restore(manager, begin(average=0.9))
        with pytest.raises(FileNotFoundError, match="no checkpoint of step 5"):
            restore(manager, begin(average=0.9), step=5)


def test_what_is_saved_is_the_run_as_it_was(tmp_path: Any) -> None:
    run, _ = t.run_step(loss, begin(), cut(DATA, 1))
    before = bits(run)
    with open_checkpoints(tmp_path) as manager:
        save(manager, run, 1)
        for _ in range(4):
            run, _ = t.run_step(loss, run, cut(DATA, 1))
        manager.wait_until_finished()
        assert bits(restore(manager, begin(5))) == before != bits(run)


def test_a_mesh_of_one_gives_what_one_device_gives() -> None:
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("data",))
    alone = t.fit(begin(), noisy_loss, t.shuffled(DATA, 6), 4)
    meshed = t.fit(
        t.replicated(begin(), mesh), noisy_loss, t.shuffled(DATA, 6), 4, place=t.split_over(mesh)
    )
    assert bits(meshed) == bits(alone)
