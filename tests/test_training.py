"""The loop: one compilation, a state that is donated, and a spiral that is learnt."""

import subprocess
import sys
from dataclasses import FrozenInstanceError

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from helpers import CompileCounter, data, nn, optim, per_example, training
from helpers.losses import cross_entropy
from helpers.oracle import assert_close, assert_equal, to64


def loss(params, x, labels):
    return jnp.mean(cross_entropy(nn.apply_mlp(params, x), labels))


def example_loss(params, x, label):
    return cross_entropy(nn.apply_mlp(params, x), label)


def line_loss(w, x, y):
    return jnp.mean((x * w - y) ** 2)


init = jax.jit(nn.init_mlp, static_argnums=1)
OPTIMIZER = optim.chain(
    optim.clip_by_global_norm(1.0),
    optim.adamw(optim.warmup_cosine(0.02, 100, 1000), weight_decay=1e-3, mask=optim.matrices),
)
LINE = optim.sgd(0.1)


def line(n=6):
    x = np.arange(1, n + 1, dtype=np.float32)
    return x, 3 * x


def test_a_step_is_the_optimizer_s_and_returns_the_loss_before_it():
    x, y = line()
    state = training.init_state(jnp.asarray(1.0), LINE)
    state, value = training.train_step(line_loss, state, x, y)
    wide = to64(x)
    assert_close(value, np.mean((wide - 3 * wide) ** 2), rtol=1e-6)
    assert_close(state.params, 1.0 - 0.1 * np.mean(2 * (wide - 3 * wide) * wide), rtol=1e-6)
    assert_equal(state.step, 1)
    assert state.step.dtype == jnp.int32


def test_the_state_is_frozen_and_its_optimizer_no_leaf():
    state = training.init_state({"w": jnp.ones(2)}, LINE)
    assert len(jax.tree.leaves(state)) == 2
    with pytest.raises(FrozenInstanceError):
        state.step = 3
    other = training.init_state({"w": jnp.ones(2)}, optim.sgd(0.1))
    assert jax.tree.structure(state) != jax.tree.structure(other)


def test_steps_compile_once_and_the_old_state_is_gone():
    x, y = line()
    state = old = training.init_state(jnp.asarray(1.0), optim.sgd(0.1, momentum=0.5))
    with CompileCounter(only="train_step") as counter:
        for _ in range(3):
            state, _ = training.train_step(line_loss, state, x, y)
    assert counter.count == 1
    assert old.params.is_deleted() and not state.params.is_deleted()
    with pytest.raises((RuntimeError, ValueError), match="deleted"):
        training.train_step(line_loss, old, x, y)


def test_an_epoch_is_one_step_on_each_batch_and_sees_every_example_once():
    x, y = line(6)

    def sum_loss(seen, rows, _):
        """Its gradient marks the rows of the batch."""
        return -jnp.sum(seen[rows.astype(jnp.int32) - 1])

    state = old = training.init_state(jnp.zeros(6), optim.sgd(1.0))
    key = jax.random.key(0)
    for epoch in (1, 2):
        state, values = training.train_epoch(sum_loss, state, key, (x, y), 2)
        assert values.shape == (3,)
        assert_equal(state.params, np.full(6, epoch))
        assert_equal(state.step, 3 * epoch)
    assert old.params.is_deleted()


def batches_seen(key, steps_done):
    """The order in which an epoch of 8 examples, two at a time, comes."""
    state = training.init_state(jnp.asarray(0.0), LINE)
    state = training.replace(state, step=jnp.asarray(steps_done, jnp.int32))
    x = np.arange(8, dtype=np.float32)
    return np.asarray(training.train_epoch(first_of_batch, state, key, (x,), 2)[1]).tolist()


def first_of_batch(w, x):
    return x[0] + 0 * w


def test_the_order_depends_on_the_key_and_the_steps_done():
    first = batches_seen(jax.random.key(0), 0)
    assert batches_seen(jax.random.key(0), 0) == first
    assert batches_seen(jax.random.key(0), 4) != first
    assert batches_seen(jax.random.key(1), 0) != first


def test_a_batch_size_that_leaves_a_rest_is_refused():
    state = training.init_state(jnp.asarray(0.0), LINE)
    with pytest.raises(ValueError, match="7 examples can't be cut into batches of 2"):
        training.train_epoch(line_loss, state, jax.random.key(0), line(7), 2)


def test_evaluation_matches_float64():
    rng = np.random.default_rng(0)
    sizes = {"w": (2, 3), "b": (3,)}
    params = [{name: rng.normal(size=size).astype(np.float32) for name, size in sizes.items()}]
    x, labels = rng.normal(size=(20, 2)).astype(np.float32), rng.integers(0, 3, 20)
    with jax.default_matmul_precision("highest"):
        got = training.evaluate(nn.apply_mlp, params, x, labels)
    z = to64(x) @ to64(params[0]["w"]) + to64(params[0]["b"])
    logs = z - np.log(np.sum(np.exp(z), axis=1, keepdims=True))
    assert_close(got["loss"], -np.mean(logs[np.arange(20), labels]), rtol=1e-5)
    assert_close(got["accuracy"], np.mean(z.argmax(axis=1) == labels), rtol=1e-6)


def test_an_optimizer_of_optax_may_stand_in_for_ours():
    x, y = line()
    ends = []
    for optimizer in (optim.adam(0.1), optax.adam(0.1)):
        state = training.init_state(np.float32(1.0), optimizer)
        for _ in range(5):
            state, _ = training.train_step(line_loss, state, x, y)
        ends.append(state.params)
    assert_close(ends[0], to64(ends[1]), rtol=0, atol=1e-6)


def test_the_spiral_is_learnt_for_ten_seeds_with_one_compilation():
    hardest = []
    with CompileCounter(only="train_epoch") as counter:
        for seed in range(10):
            train, test, weights, order = jax.random.split(jax.random.key(seed), 4)
            x, labels = data.spiral(train)
            params = init(weights, (2, 32, 32, 3))
            state = training.init_state(params, OPTIMIZER)
            for _ in range(100):
                state, _ = training.train_epoch(loss, state, order, (x, labels), 72)
            for points in ((x, labels), data.spiral(test)):
                scores = training.evaluate(nn.apply_mlp, state.params, *points)
                assert scores["accuracy"] > 0.98, (seed, scores)
            norms = per_example.grad_norms(example_loss, state.params, x, labels, chunk=64)
            worst = np.argsort(np.asarray(norms))[-5:]
            hardest.append(np.linalg.norm(np.asarray(x)[worst], axis=1).max())
    assert counter.count == 1
    assert np.max(hardest) < 0.1, hardest  # where the arms meet


def test_the_library_imports_neither_optax_nor_flax():
    modules = "data derivatives losses nn numerics optim per_example privacy training trees"
    code = f"import sys\nfrom helpers import {', '.join(modules.split())}\n"
    code += "assert not {'optax', 'flax', 'matplotlib'} & set(sys.modules)\n"
    subprocess.run([sys.executable, "-c", code], check=True)
