"""The guarded functions: values as in float64, gradients finite at every edge."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

from helpers import numerics
from helpers.oracle import assert_close, assert_equal, assert_finite, assert_ulps, to64

F32 = np.float32


@functools.cache
def program(f):
    """Jitted: the values of f, and the gradient of their sum."""
    return jax.jit(lambda x, *rest: (f(x, *rest), jax.grad(lambda x: jnp.sum(f(x, *rest)))(x)))


def both(f, x, *rest):
    return program(f)(x, *rest)


def rows(seed, scale=5.0):
    """x of shape (6, 5), and a mask whose first row selects nothing and whose second row all."""
    rng = np.random.default_rng(seed)
    mask = rng.random((6, 5)) < 0.6
    mask[0], mask[1] = False, True
    return rng.normal(0.0, scale, (6, 5)).astype(F32), mask


def softmax64(x, where):
    """Softmax of rows in float64; zeros where nothing is selected."""
    x = np.where(where, to64(x), -np.inf)
    top = np.max(x, axis=-1, keepdims=True)
    exps = np.exp(x - np.where(top == -np.inf, 0.0, top))
    return exps / np.maximum(np.sum(exps, axis=-1, keepdims=True), 1e-300)


# --- the double where ----------------------------------------------------------------------------


def row_norms(x):
    return numerics.safe_norm(x, axis=1)


def test_safe_norm_is_the_norm_and_its_gradient_the_direction():
    for seed in range(5):
        x = rows(seed)[0]
        x[2] = 0.0
        norms = np.linalg.norm(to64(x), axis=1)
        got, gradient = both(row_norms, x)
        assert_ulps(got, norms, 3)
        direction = to64(x) / np.where(norms > 0, norms, 1.0)[:, None]
        assert_close(gradient, direction, rtol=1e-5)
        assert_close(both(numerics.safe_norm, x)[0], np.linalg.norm(to64(x)), rtol=1e-6)
    keeping = jax.eval_shape(lambda x: numerics.safe_norm(x, axis=1, keepdims=True), x)
    assert keeping.shape == (6, 1)


def test_the_plain_norm_has_the_nan_that_safe_norm_avoids():
    zero = np.zeros(5, F32)
    assert np.all(np.isnan(both(jnp.linalg.norm, zero)[1]))
    assert_equal(both(numerics.safe_norm, zero), (0.0, zero))


def test_sinc_is_accurate_in_value_and_slope_on_both_sides_of_its_seam():
    x = np.concatenate([[0.0], np.geomspace(1e-30, 20.0, 200), -np.geomspace(1e-3, 20.0, 50)])
    x = x.astype(F32)
    wide = to64(x)
    with np.errstate(all="ignore"):
        value = np.where(wide == 0, 1.0, np.sin(wide) / wide)
        direct = (wide * np.cos(wide) - np.sin(wide)) / wide**2
    series = -wide / 3 * (1 - wide**2 / 10 * (1 - wide**2 / 28))
    got, gradient = both(numerics.sinc, x)
    assert_close(got, value, rtol=1e-6, atol=1e-7)
    assert_close(gradient, np.where(np.abs(wide) < 1e-2, series, direct), rtol=1e-5, atol=1e-6)


def test_entropy_counts_a_class_that_cannot_occur_as_nothing():
    p = np.asarray([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.2, 0.3, 0.5]], F32)
    logs = np.log(np.where(p > 0, to64(p), 1.0))
    got, gradient = both(numerics.entropy, p)
    assert_close(got, -np.sum(to64(p) * logs, axis=1), rtol=1e-6, atol=1e-7)
    assert_close(gradient, np.where(p > 0, -logs - 1.0, 0.0), rtol=1e-6, atol=1e-6)


def test_logit_is_infinite_at_the_ends_and_its_gradient_is_not():
    p = np.asarray([0.0, 1e-30, 1e-3, 0.4, 0.5, 0.999, 1.0, -0.1, 1.1, np.nan], F32)
    wide = to64(p)
    with np.errstate(all="ignore"):
        want = np.log(wide) - np.log1p(-wide)
        steep = np.where((wide > 0) & (wide < 1), 1 / (wide * (1 - wide)), 0.0)
    got, gradient = both(numerics.logit, p)
    assert_close(got, want, rtol=1e-6, atol=1e-7)
    assert_close(gradient, steep, rtol=1e-5)


# --- the shifted exponential ---------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
def test_softmax_and_its_logarithm_match_float64(scale):
    for seed in range(5):
        x, mask = rows(seed, scale)
        for where in (mask, np.ones_like(mask)):
            want = softmax64(x, where)
            # An ULP of the largest logit is this much of its exponential.
            rtol = 1e-6 + 2e-7 * np.max(np.abs(x))
            assert_close(both(numerics.softmax, x, where)[0], want, rtol=rtol, atol=1e-30)
            logs = np.asarray(both(numerics.log_softmax, x, where)[0])
            assert_equal(np.isneginf(logs), ~where)
            assert_close(np.exp(to64(logs)), want, rtol=rtol, atol=1e-30)


def test_log_softmax_goes_on_where_the_logarithm_of_softmax_is_infinite():
    x = np.asarray([[0.0, -104.0, -1e4]], F32)
    mask = np.ones((1, 3), bool)
    assert_equal(both(numerics.log_softmax, x, mask)[0], x)
    assert_equal(both(numerics.softmax, x, mask)[0], [[1.0, 0.0, 0.0]])


def weighted(x, mask, weights):
    return jnp.where(mask, numerics.log_softmax(x, mask), 0.0) * weights


def test_the_gradient_of_log_softmax_is_that_of_the_formula():
    for seed in range(5):
        x, mask = rows(seed)
        weights = np.random.default_rng(seed).normal(size=x.shape).astype(F32)
        w = np.where(mask, to64(weights), 0.0)
        want = w - softmax64(x, mask) * np.sum(w, axis=1, keepdims=True)
        assert_close(both(weighted, x, mask, weights)[1], want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("f", [numerics.softmax, numerics.log_softmax, numerics.shifted])
def test_what_is_not_selected_touches_neither_values_nor_derivatives(f):
    @jax.jit
    def all_of(x, mask):
        def squares(x):
            return jnp.where(mask, f(x, mask), 0.0) ** 2

        tangents = jax.jvp(squares, (x,), (jnp.ones_like(x),))[1]
        return squares(x), tangents, jax.grad(lambda x: jnp.sum(squares(x)))(x)

    x, mask = rows(0)
    clean = all_of(x, mask)
    assert_finite(clean)
    for rubbish in (np.nan, np.inf, -np.inf, 3e38):
        dirty = np.where(mask, x, F32(rubbish))
        assert_equal(all_of(dirty, mask), clean, label=str(rubbish))


def test_a_row_with_nothing_to_choose_from_has_no_nan_anywhere():
    empty = np.full((6, 5), -np.inf, F32)
    zeros = np.zeros((6, 5))
    assert np.all(np.isnan(both(jax.nn.softmax, empty)[0]))
    for where in (np.ones((6, 5), bool), np.zeros((6, 5), bool)):
        assert_equal(both(numerics.softmax, empty, where), (zeros, zeros))
        value, gradient = both(numerics.log_softmax, empty, where)
        assert_equal(value, empty)
        assert_finite(gradient)


def test_an_entry_of_minus_infinity_is_as_good_as_masked_and_the_mask_may_be_left_out():
    x, mask = rows(1)
    want = both(numerics.softmax, x, mask)[0]
    assert_equal(both(numerics.softmax, np.where(mask, x, F32(-np.inf)))[0], want)


def test_the_axis_may_be_any_and_the_mask_may_be_broadcast():
    x, mask = rows(2)
    by_columns = jax.jit(lambda x, where: numerics.softmax(x, where, axis=0))
    assert_equal(by_columns(x.T, mask.T), to64(both(numerics.softmax, x, mask)[0]).T)
    one_for_all = both(numerics.softmax, x, mask[3])[0]
    assert_equal(one_for_all, both(numerics.softmax, x, np.tile(mask[3], (6, 1)))[0])
    by_rows = jax.jit(jax.vmap(numerics.log_softmax))(x, mask)
    assert_equal(by_rows, both(numerics.log_softmax, x, mask)[0])


def test_the_maximum_is_a_constant_for_derivatives():
    """The gradient of `shifted` alone shows it: it is 1, not 1 − onehot."""
    assert_equal(both(numerics.shifted, np.arange(4, dtype=F32))[1], np.ones(4))


# --- rules of their own --------------------------------------------------------------------------


def test_softplus_and_its_rule_hold_from_minus_to_plus_ten_thousand():
    x = np.asarray([-1e4, -104.0, -50.0, -1.0, 0.0, 1.0, 50.0, 89.0, 1e4], F32)
    wide = to64(x)
    logistic = np.exp(-np.logaddexp(-wide, 0.0))
    want = np.logaddexp(wide, 0.0), logistic
    assert_close(both(numerics.softplus, x), want, rtol=1e-6, atol=1e-37)

    @jax.jit
    def more(x):
        second = jax.vmap(jax.grad(jax.grad(numerics.softplus)))
        return jax.jvp(numerics.softplus, (x,), (2 * x,))[1], second(x)

    want = 2 * wide * logistic, logistic * (1 - logistic)
    assert_close(more(x), want, rtol=1e-5, atol=1e-37)
    check_grads(jax.jit(numerics.softplus), (np.asarray([-2.0, 0.3, 4.0], F32),), 1, rtol=2e-2)


def test_rounding_straight_through_rounds_exactly_and_passes_the_gradient():
    x = np.concatenate([np.linspace(-3.3, 3.3, 67), [0.5, 1.5, 2.5, 8388607.5]]).astype(F32)
    assert_equal(both(numerics.round_straight_through, x), (np.round(x), np.ones(x.shape)))
    assert_equal(both(jnp.round, x)[1], np.zeros(x.shape))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_floats_stay_narrow_and_finite(dtype):
    functions = (
        numerics.safe_norm,
        numerics.sinc,
        numerics.entropy,
        numerics.softmax,
        numerics.log_softmax,
        numerics.softplus,
        numerics.round_straight_through,
        lambda p: numerics.logit(p)[1:],
    )

    @jax.jit
    def all_of(p):
        return [(f(p), jax.grad(lambda p, f=f: jnp.sum(f(p)))(p)) for f in functions]

    seen = all_of(np.asarray([0.0, 0.25, 0.75]).astype(jnp.dtype(dtype)))
    assert {leaf.dtype.name for leaf in jax.tree.leaves(seen)} == {dtype}
    assert_finite(seen)
