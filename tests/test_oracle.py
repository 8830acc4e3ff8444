"""What `helpers.oracle` accepts, what it refuses, and what it says."""

import subprocess
import sys
from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from helpers.oracle import assert_close, assert_equal, assert_finite, assert_ulps, to64, ulps

NAN, INF = float("nan"), float("inf")


class State(NamedTuple):
    mean: object
    count: object


@jax.tree_util.register_dataclass
@dataclass
class Model:
    weights: object
    bias: object


def refusal(check, *args, **kwargs):
    """The message of the AssertionError that the call must raise."""
    with pytest.raises(AssertionError) as caught:
        check(*args, **kwargs)
    return str(caught.value)


# --- to64 ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leaf", "dtype"),
    [
        (jnp.float32(0.1), np.float64),
        (jnp.bfloat16(0.1), np.float64),
        (np.float16(0.1), np.float64),
        (np.ones(2, ml_dtypes.float8_e4m3fn), np.float64),
        (0.1, np.float64),
        (jnp.int32(3), np.int64),
        (np.ones(2, np.uint8), np.int64),
        (np.ones(2, ml_dtypes.int4), np.int64),
        (3, np.int64),
        (np.uint64(2**63), np.uint64),
        (jnp.array([True]), np.bool_),
        (jnp.complex64(1j), np.complex128),
    ],
)
def test_every_dtype_is_widened_within_its_kind(leaf, dtype):
    wide = to64(leaf)
    assert isinstance(wide, np.ndarray)
    assert wide.dtype == dtype
    assert np.array_equal(wide, np.asarray(leaf))


def test_the_nest_keeps_its_structure():
    tree = {"b": [jnp.ones(2), (1, 2.5)], "a": State(jnp.zeros(3), None)}
    wide = to64(tree)
    assert jax.tree.structure(wide) == jax.tree.structure(tree)
    assert list(wide) == ["b", "a"]
    assert isinstance(wide["a"], State)
    assert wide["a"].count is None


def test_containers_registered_with_jax_keep_their_class():
    wide = to64({"model": Model(jnp.ones((2, 3)), [jnp.zeros(3)])})["model"]
    assert isinstance(wide, Model)
    assert wide.weights.dtype == wide.bias[0].dtype == np.float64
    ordered = to64(OrderedDict(b=jnp.ones(1), a=2))
    assert isinstance(ordered, OrderedDict)
    assert list(ordered) == ["b", "a"]
    assert ordered["a"] == 2


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({"w": ["abc"]}, r"expected numbers at \['w'\]\[0\], got str"),
        (State(object(), 1), r"expected numbers at \.mean, got object"),
        (jax.random.key(0), "expected numbers, got PRNGKeyArray"),
        (np.array([None]), r"expected numbers, got ndarray \(object\)"),
    ],
)
def test_what_is_no_number_is_refused_with_its_path(tree, message):
    with pytest.raises(TypeError, match=message):
        to64(tree)


# --- ulps ----------------------------------------------------------------------------------------


def test_the_next_number_is_one_ulp_away_in_every_dtype():
    for dtype in (np.float16, np.float32, np.float64):
        one = dtype(1)
        assert ulps(np.nextafter(one, dtype(2)), 1.0) == 1
        assert ulps(one - np.finfo(dtype).eps / 2, 1.0) == 0.5
    assert ulps(jnp.bfloat16(1.0078125), 1.0) == 1


def test_a_correctly_rounded_result_is_off_by_half_an_ulp_at_most():
    exact = np.random.default_rng(0).standard_normal(1000)
    for dtype in (np.float16, np.float32, ml_dtypes.bfloat16):
        errors = ulps(exact.astype(dtype), exact)
        assert errors.dtype == np.float64
        assert 0.45 < errors.max() <= 0.5


def test_the_unit_is_that_of_the_result_and_not_of_the_reference():
    assert ulps(np.float32(1.5), 1.5 + 2.0**-23) == 1
    assert ulps(1.5, 1.5 + 2.0**-23) == 2**29


def test_the_sign_does_not_matter():
    assert np.array_equal(ulps(np.float32([-1, 1]), [-1 - 2.0**-22, 1 + 2.0**-22]), [2, 2])


def test_near_zero_the_unit_is_the_smallest_denormal():
    assert ulps(np.float32(0), 2.0**-149) == 1
    assert ulps(np.float32(0), 0.0) == 0


def test_what_is_not_finite_is_the_same_or_infinitely_far():
    got = np.float32([NAN, INF, -INF, NAN, 1, INF, 1, INF, INF])
    want = np.array([NAN, INF, -INF, 1, NAN, 1, INF, -INF, 1e39])
    assert np.array_equal(ulps(got, want), [0, 0, 0, INF, INF, INF, INF, INF, 0])


def test_ulps_of_integers_and_of_unequal_shapes_are_refused():
    with pytest.raises(TypeError, match="ULPs need a floating dtype, got int32"):
        ulps(np.int32(1), 1.0)
    assert refusal(ulps, np.ones(3), np.ones(4)) == "expected shape (4,), got (3,)"


# --- assert_close --------------------------------------------------------------------------------


def test_what_is_within_the_tolerance_passes():
    assert_close(jnp.float32([1, 100]), [1.0000001, 100.00001], rtol=1e-6)
    assert_close(0.001, 0.0, rtol=0, atol=0.001)
    assert_close(np.float32([NAN, INF, -INF]), [NAN, INF, -INF], rtol=0)
    assert_close([], [], rtol=0)
    assert_close(np.ones((0, 3)), np.ones((0, 3)), rtol=0)
    assert_close(jnp.bfloat16(0.1), 0.1, rtol=0.01)


def test_the_shape_is_compared_first_and_nothing_is_broadcast():
    assert refusal(assert_close, np.ones((3, 4)), np.ones((4, 3)), rtol=1, label="logits") == (
        "logits: expected shape (4, 3), got (3, 4)"
    )
    assert refusal(assert_close, np.ones(1), 1.0, rtol=1) == "expected shape (), got (1,)"


def test_the_message_gives_the_worst_element_its_errors_and_how_many_fail():
    want = np.ones((2, 3))
    got = np.ones((2, 3), np.float32)
    got[0, 1], got[1, 2] = 1.0000001, 1.001
    got[1, 0] = 1.00001
    assert refusal(assert_close, got, want, rtol=1e-6, label="loss") == (
        "loss: 2 of 6 elements differ by more than rtol=1e-06, atol=0; the worst at (1, 2): "
        "expected 1, got 1.00100005 "
        "(absolute error 0.001, relative 0.001, 8389 ULP of float32)"
    )


@pytest.mark.parametrize(
    ("got", "want"),
    [(NAN, 1.0), (1.0, NAN), (INF, 1.0), (1.0, INF), (INF, -INF), (NAN, INF)],
)
def test_what_is_not_finite_differs_under_any_tolerance(got, want):
    message = refusal(assert_close, np.float32([1, got]), [1, want], rtol=10, atol=10)
    assert "1 of 2 elements" in message
    assert "the worst at (1,)" in message


def test_an_infinite_reference_accepts_no_finite_value():
    """`atol + rtol·|want|` is infinite there: a bare comparison would let anything pass."""
    refusal(assert_close, 1.0, INF, rtol=1e-6)
    with pytest.raises(AssertionError):
        assert_close(-INF, INF, rtol=1e-6)


def test_a_nan_is_the_worst_element():
    message = refusal(assert_close, np.array([5.0, NAN]), [1.0, 1.0], rtol=1e-6)
    assert "the worst at (1,): expected 1, got nan" in message


def test_integers_booleans_and_complex_numbers_are_compared_too():
    assert_close(np.arange(3), [0, 1, 2], rtol=0)
    assert_close(np.array([True]), [True], rtol=0)
    assert_close(1 + 1j, 1 + 1j, rtol=0)
    assert "expected 2, got 3 (absolute error 1, relative 0.5)" in refusal(
        assert_close, 3, 2, rtol=0
    )
    assert "expected False, got True" in refusal(assert_close, True, False, rtol=0)
    assert "expected 1+0j, got 1+1j (absolute error 1" in refusal(
        assert_close, 1 + 1j, 1 + 0j, rtol=0
    )
    refusal(assert_close, np.uint8(3), np.uint8(4), rtol=0)


def test_a_pytree_is_compared_leaf_by_leaf_and_the_path_is_named():
    want = {"layers": [Model(np.ones(2), 0.0), State(np.ones(3), 7)]}
    got = {"layers": [Model(jnp.ones(2), 0), State(np.ones(3), np.int32(7))]}
    assert_close(got, want, rtol=0)
    got["layers"][0].weights = jnp.float32([1, 2])
    message = refusal(assert_close, got, want, rtol=1e-6, label="params")
    assert message.startswith("params['layers'][0].weights: 1 of 2 elements differ")


@pytest.mark.parametrize(
    ("got", "want", "message"),
    [
        ({"a": 1}, {"b": 1}, "expected the entries ['b'], got ['a']"),
        ([1, 2], [1, 2, 3], "expected the entries [0], [1], [2], got [0], [1]"),
        ({"x": {}}, {"x": {"y": 1}}, "['x']: expected the entries ['y'], got none"),
    ],
)
def test_another_structure_is_told_by_its_entries(got, want, message):
    assert refusal(assert_close, got, want, rtol=0) == message


def test_a_list_against_an_array_counts_as_an_array():
    assert_close([1.0, 2.0], np.array([1.0, 2.0]), rtol=0)
    assert_close(jnp.float32([1, 2]), [1, 2], rtol=0)
    assert_close([jnp.float32(1), jnp.float32(2)], np.array([1.0, 2.0]), rtol=0)
    assert "at (1,)" in refusal(assert_close, [1.0, 2.0], np.array([1.0, 3.0]), rtol=0)


def test_none_where_numbers_are_expected_asks_about_the_return():
    with pytest.raises(TypeError, match=r"^expected numbers, got None: did the function return\?$"):
        assert_close(None, np.ones(3), rtol=0)
    with pytest.raises(TypeError, match=r"expected numbers at \['w'\], got None"):
        assert_close({"w": None}, {"w": np.ones(3)}, rtol=0)
    assert_close({"w": None}, {"w": None}, rtol=0)


def test_something_else_than_numbers_is_refused():
    with pytest.raises(TypeError, match="got dict"):
        assert_close({"w": 1}, np.ones(3), rtol=0)
    with pytest.raises(TypeError, match="got list"):
        assert_close([[1, 2], [3]], np.ones(3), rtol=0)


def test_a_gap_between_huge_values_gives_no_warning(recwarn):
    refusal(assert_close, 1e300, -1e300, rtol=0)
    refusal(assert_close, np.float32(1), 0.0, rtol=0)
    refusal(assert_close, jnp.bfloat16(1), INF, rtol=0)
    assert not recwarn.list


# --- assert_ulps, assert_equal, assert_finite ----------------------------------------------------


def test_ulps_are_asserted_against_a_bound():
    got = np.float32([1, 1 + 2.0**-22])
    assert_ulps(got, [1.0, 1.0], 2)
    assert_ulps({"a": [got]}, {"a": [np.ones(2)]}, 2)
    assert refusal(assert_ulps, got, [1.0, 1.0], 1.5, "sum") == (
        "sum: 1 of 2 elements differ by more than 1.5 ULP; the worst at (1,): "
        "expected 1, got 1.00000024 (absolute error 2.38e-07, relative 2.38e-07, 2 ULP of float32)"
    )


def test_equality_is_exact_and_ignores_the_dtype():
    assert_equal(jnp.float32([0.5, NAN]), [0.5, NAN])
    assert_equal(3, 3.0)
    assert_equal(0.0, -0.0)
    assert_equal({"name": "adam", "n": np.int32(3)}, {"name": "adam", "n": 3})
    assert "1 of 1 elements differ; the worst: expected 0.1" in refusal(
        assert_equal, jnp.float32(0.1), 0.1
    )
    assert refusal(assert_equal, {"name": "sgd"}, {"name": "adam"}, "config") == (
        "config['name']: expected 'adam', got 'sgd'"
    )


def test_equality_holds_for_integers_that_float64_cannot_tell_apart():
    message = refusal(assert_equal, np.int64(2**60 + 1), np.int64(2**60))
    assert "expected 1152921504606846976, got 1152921504606846977" in message


def test_every_number_of_a_tree_must_be_finite():
    assert_finite({"w": jnp.ones(3), "step": 3, "none": None, "key": jnp.bfloat16(1)})
    assert refusal(assert_finite, {"w": np.array([[1, NAN], [INF, 2]])}, "grads") == (
        "grads['w']: 2 of 4 elements are not finite; the first at (0, 1) is nan"
    )
    assert refusal(assert_finite, jnp.bfloat16(-INF)) == (
        "1 of 1 elements are not finite; the first is -inf"
    )


# --- the judge's process -------------------------------------------------------------------------


def test_the_oracle_works_without_jax():
    program = """
import sys
import numpy as np
from helpers import assert_close, to64
assert_close({"a": [1.0, (2.0, None)]}, to64({"a": [1.0, (2.0, None)]}), rtol=0)
assert "jax" not in sys.modules, "jax was imported"
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
