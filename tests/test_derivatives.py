"""Hessian-vector products, gradients of single examples, and private ones."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from helpers import CompileCounter, derivatives, nn, per_example, privacy, trees
from helpers.losses import cross_entropy
from helpers.oracle import assert_close, assert_equal, to64

init = jax.jit(nn.init_mlp, static_argnums=1)
norms = jax.jit(jax.vmap(trees.global_norm))
all_gradients = jax.jit(per_example.grads, static_argnums=0)

HVPS = [
    derivatives.hvp_forward_over_reverse,
    derivatives.hvp_reverse_over_forward,
    derivatives.hvp_reverse_over_reverse,
]


def test_the_product_is_that_with_the_analytic_hessian():
    rng = np.random.default_rng(0)
    a = rng.normal(size=(9, 5)).astype(np.float32)
    x, v = rng.normal(size=(2, 5)).astype(np.float32)

    def logistic(w):
        return jnp.sum(jax.nn.softplus(a @ w))

    p = 1 / (1 + np.exp(-to64(a) @ to64(x)))
    hessian = to64(a).T @ (to64(a) * (p * (1 - p))[:, None])
    with jax.default_matmul_precision("highest"):
        got = jax.jit(lambda x, v: [hvp(logistic, x, v) for hvp in HVPS])(x, v)
    assert_close(got, [hessian @ to64(v)] * 3, rtol=1e-5, atol=1e-6)


def test_the_three_agree_on_a_tree():
    params = init(jax.random.key(0), (2, 4, 3))
    x, labels = np.float32([[0.3, -1.0], [2.0, 0.5]]), np.int32([0, 2])
    v = jax.tree.map(np.cos, params)

    def loss(params):
        return jnp.mean(cross_entropy(nn.apply_mlp(params, x), labels))

    first, *others = jax.jit(lambda p, v: [hvp(loss, p, v) for hvp in HVPS])(params, v)
    assert jax.tree.structure(first) == jax.tree.structure(params)
    for other in others:
        assert_close(other, to64(first), rtol=1e-4, atol=1e-6)


# --- per example ---------------------------------------------------------------------------------


def example_loss(params, x, label):
    return cross_entropy(nn.apply_mlp(params, x), label)


def batch(n=7):
    params = init(jax.random.key(1), (2, 4, 3))
    rng = np.random.default_rng(2)
    return params, rng.normal(size=(n, 2)).astype(np.float32), rng.integers(0, 3, n)


def test_each_gradient_is_the_one_of_its_example_and_their_mean_that_of_the_batch():
    params, x, labels = batch()
    got = jax.tree.map(np.asarray, all_gradients(example_loss, params, x, labels))
    alone = jax.jit(jax.grad(example_loss))
    for i in range(len(x)):
        one = alone(params, x[i], labels[i])
        assert_close(jax.tree.map(lambda g, i=i: g[i], got), to64(one), rtol=1e-5, atol=1e-6)

    def batch_loss(params):
        return jnp.mean(cross_entropy(nn.apply_mlp(params, x), labels))

    whole = jax.jit(jax.grad(batch_loss))(params)
    assert_close(jax.tree.map(lambda g: np.mean(g, axis=0), got), to64(whole), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("chunk", [3, 7, 100])
def test_norms_in_chunks_are_the_norms(chunk):
    params, x, labels = batch()
    want = norms(all_gradients(example_loss, params, x, labels))
    got = per_example.grad_norms(example_loss, params, x, labels, chunk=chunk)
    assert_close(got, to64(want), rtol=1e-5)


# --- private -------------------------------------------------------------------------------------


def gradients(seed=0, n=6):
    rng = np.random.default_rng(seed)
    return {
        "b": rng.normal(size=(n, 3)).astype(np.float32),
        "w": rng.normal(size=(n, 2, 3)).astype(np.float32),
    }


private_mean = jax.jit(privacy.private_mean)
KEY = jax.random.key(0)


@pytest.mark.parametrize("limit", [0.7, 2.5, 1e6])
def test_without_noise_it_is_the_mean_of_the_clipped_gradients(limit):
    g = gradients()
    flat = np.concatenate([to64(leaf).reshape(6, -1) for leaf in g.values()], axis=1)
    factor = np.minimum(1.0, limit / np.linalg.norm(flat, axis=1))
    want = {
        name: np.mean(to64(leaf) * factor.reshape(6, *[1] * (leaf.ndim - 1)), axis=0)
        for name, leaf in g.items()
    }
    assert_close(private_mean(KEY, g, limit, 0.0), want, rtol=1e-5, atol=1e-6)
    theirs = optax.contrib.differentially_private_aggregate(limit, 0.0, key=KEY)
    other = jax.jit(lambda g: theirs.update(g, theirs.init(None))[0])(g)
    assert_close(private_mean(KEY, g, limit, 0.0), to64(other), rtol=1e-5, atol=1e-6)


def test_no_gradient_is_longer_than_the_limit_and_short_ones_are_untouched():
    g = gradients()
    before = np.asarray(norms(g))
    clipped = jax.tree.map(np.asarray, jax.jit(privacy.clip_each)(g, 2.5))
    assert_close(norms(clipped), np.minimum(to64(before), 2.5), rtol=1e-6)
    short = before <= 2.5
    assert 0 < short.sum() < 6
    for name in g:
        assert_equal(clipped[name][short], g[name][short])


def test_the_noise_on_the_mean_has_the_deviation_of_the_sum_over_b():
    g = {"a": np.zeros((4, 20_000), np.float32), "b": np.zeros((4, 20_000), np.float32)}
    noise = to64(private_mean(KEY, g, 3.0, 2.0))
    for leaf in noise.values():
        assert_close(np.std(leaf), 3.0 * 2.0 / 4, rtol=0.03)
        assert abs(np.mean(leaf)) < 0.05
    assert abs(np.corrcoef(noise["a"], noise["b"])[0, 1]) < 0.03


def test_keys_decide_the_noise_and_its_size_is_not_compiled_in():
    g = gradients(n=5)
    with CompileCounter(only="private_mean") as counter:
        draws = [private_mean(jax.random.key(k), g, 1.0, 1.0) for k in (5, 5, 6)]
        private_mean(KEY, g, 2.0, 0.5)
    assert counter.count == 1
    assert_equal(draws[0], draws[1])
    assert not np.allclose(draws[0]["w"], draws[2]["w"])


def test_dtypes_stay():
    g = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), gradients())
    out = jax.eval_shape(privacy.private_mean, KEY, g, 1.0, 1.0)
    assert jax.tree.map(lambda x: (x.shape, x.dtype.name), out) == {
        "b": ((3,), "bfloat16"),
        "w": ((2, 3), "bfloat16"),
    }
