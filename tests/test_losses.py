"""Losses of a classifier, against NumPy float64 and optax."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from helpers import losses
from helpers.oracle import assert_close, assert_equal, to64

F32 = np.float32
cross_entropy = jax.jit(losses.cross_entropy)
mean_gradient = jax.jit(jax.grad(lambda z, labels: jnp.mean(losses.cross_entropy(z, labels))))
optax_cross_entropy = jax.jit(optax.softmax_cross_entropy_with_integer_labels)
masked_mean = jax.jit(jax.value_and_grad(losses.masked_mean))


def batch(seed, scale=3.0, shape=(7, 4)):
    rng = np.random.default_rng(seed)
    logits = rng.normal(0.0, scale, shape).astype(F32)
    return logits, rng.integers(0, shape[-1], shape[:-1], dtype=np.int32)


def reference(logits, labels):
    """Losses and gradient of their mean, in float64."""
    z = to64(logits)
    z = z - np.max(z, axis=-1, keepdims=True)
    logs = z - np.log(np.sum(np.exp(z), axis=-1, keepdims=True))
    onehot = np.eye(z.shape[-1])[labels]
    return -np.sum(logs * onehot, axis=-1), (np.exp(logs) - onehot) / labels.size


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_cross_entropy_and_its_gradient_match_float64_and_optax(scale):
    for seed in range(5):
        logits, labels = batch(seed, scale)
        want, want_gradient = reference(logits, labels)
        got = cross_entropy(logits, labels)
        assert_close(got, want, rtol=1e-6, atol=1e-6)
        assert_close(got, to64(optax_cross_entropy(logits, labels)), rtol=1e-6, atol=1e-6)
        gradient = mean_gradient(logits, labels)
        assert_close(gradient, want_gradient, rtol=1e-5 * scale, atol=1e-7)


def test_extreme_logits_give_exact_losses_and_finite_gradients():
    logits = np.asarray([[1e4, -1e4], [-1e4, 1e4], [0.0, 0.0], [1e4, 1e4], [-1e4, -1e4]], F32)
    labels = np.zeros(5, np.int32)
    want, want_gradient = reference(logits, labels)
    assert_close(cross_entropy(logits, labels), want, rtol=1e-6)
    assert_close(mean_gradient(logits, labels), want_gradient, rtol=1e-6)


def test_leading_axes_are_any_and_vmap_agrees():
    logits, labels = batch(0, shape=(2, 3, 5))
    got = cross_entropy(logits, labels)
    assert got.shape == (2, 3)
    assert_close(got, reference(logits, labels)[0], rtol=1e-6, atol=1e-6)
    assert_close(jax.jit(jax.vmap(losses.cross_entropy))(logits, labels), to64(got), rtol=1e-6)
    assert_close(cross_entropy(logits[0, 0], labels[0, 0]), to64(got)[0, 0], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_the_dtype_is_that_of_the_logits(dtype):
    logits = jax.ShapeDtypeStruct((7, 4), dtype)
    labels = jax.ShapeDtypeStruct((7,), "int32")
    mask = jax.ShapeDtypeStruct((7, 4), "bool")
    assert jax.eval_shape(losses.cross_entropy, logits, labels).dtype == dtype
    assert jax.eval_shape(losses.masked_mean, logits, mask).dtype == dtype


def test_wrong_labels_do_what_the_docstring_says():
    logits, _ = batch(0)
    last = cross_entropy(logits, np.full(7, 3, np.int32))
    assert_equal(cross_entropy(logits, np.full(7, -1, np.int32)), last)
    assert np.all(np.isnan(cross_entropy(logits, np.full(7, 4, np.int32))))


def test_a_masked_mean_is_the_mean_of_what_is_selected():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        values = rng.normal(size=9).astype(F32)
        mask = rng.random(9) < 0.5
        mask[0] = True
        want = np.mean(to64(values)[mask]), mask / np.sum(mask)
        assert_close(masked_mean(values, mask), want, rtol=1e-5, atol=1e-7)


def test_a_mean_over_nothing_is_zero_with_a_gradient_of_zero():
    values = np.full(9, np.nan, F32)
    assert_equal(masked_mean(values, np.zeros(9, bool)), (0.0, np.zeros(9)))
    assert_equal(masked_mean(values[:0], np.zeros(0, bool)), (0.0, np.zeros(0)))


def test_accuracy_is_the_share_of_right_answers():
    logits = np.asarray([[2.0, 1.0], [0.0, 3.0], [1.0, 1.0], [5.0, -5.0]], F32)
    got = jax.jit(losses.accuracy)(logits, np.asarray([0, 0, 0, 1]))
    assert_equal(got, 0.5)
    assert got.dtype == jnp.float32
