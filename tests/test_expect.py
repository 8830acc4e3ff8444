"""What a judge may expect: each function says yes or no, and says why in words."""

import numpy as np
import pytest

from helpers import expect

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("seen", "want", "passed"),
    [
        (1.0, 1.0, True),
        (1.0 + 1e-7, 1.0, True),
        (1.001, 1.0, False),
        (np.float32(3), 3, True),
        ([1.0, 2.0], [1.0, 2.0], True),
        (np.array([1, 2]), [1.0, 2.0], True),
        (np.array([[1.0]]), [1.0], False),
        (NAN, NAN, True),
        (NAN, 1.0, False),
        (1.0, NAN, False),
        (INF, INF, True),
        (INF, -INF, False),
        (INF, 1.0, False),
        (None, 1.0, False),
        ("1.0", 1.0, False),
        (np.array(1 + 0j), 1.0, False),
        ({"a": 1}, 1.0, False),
        (np.zeros(0), np.zeros(0), True),
    ],
)
def test_close(seen, want, passed):
    assert expect.close("k", seen, want).passed is passed


def test_close_reports_the_worst_element_and_how_many_are_off():
    row = expect.close("k", np.array([1.0, 2.5, 9.0]), [1.0, 2.0, 3.0])
    assert row.seen == "9 at index (2,) (2 of 3 elements are off)"
    assert row.expected == "3"


def test_close_puts_a_nan_before_any_error():
    row = expect.close("k", np.array([NAN, 99.0]), [1.0, 2.0])
    assert row.seen.startswith("nan at index (0,)")


@pytest.mark.parametrize(
    ("seen", "want", "passed"),
    [
        (3, 3, True),
        (3.0, 3, True),
        (np.array(3), 3, True),
        (4, 3, False),
        ("a", "a", True),
        ("a", "b", False),
        (None, 3, False),
        (True, True, True),
        ([1, "a"], [1, "a"], True),
        ([1], [1, 2], False),
        (np.array([1, 2]), np.array([1, 2]), True),
        (np.array([1, 2, 3]), np.array([1, 2]), False),
        (10**400, 3, False),
    ],
)
def test_equal(seen, want, passed):
    try:
        assert expect.equal("k", seen, want).passed is passed
    except OverflowError:
        pytest.fail("a huge integer broke the judge")


def test_an_array_that_differs_is_told_by_the_first_place_where_it_does():
    row = expect.equal("k", np.array([[1, 0], [0, 5], [7, 7]]), np.array([[1, 0], [0, 2], [7, 0]]))
    assert row.seen == "5 at index (1, 1) (2 of 6 elements are off)"
    assert row.expected == "2"


def test_one_of_a_thing_is_singular():
    said = [expect.equal("k", n, 0, unit="leaves of the state").seen for n in (1, 2)]
    assert said == ["1 leaf of the state", "2 leaves of the state"]


def test_counts_are_told_with_their_unit():
    row = expect.equal("k", 3, 1, unit="compilations")
    assert (row.seen, row.expected) == ("3 compilations", "1 compilation")


def test_bounds_refuse_what_is_no_number():
    assert expect.at_most("k", 1, 2).passed and not expect.at_most("k", 3, 2).passed
    assert expect.at_least("k", 2, 2).passed and not expect.at_least("k", 1, 2).passed
    for seen in (NAN, None, "0", np.zeros(2)):
        assert not expect.at_most("k", seen, 2).passed
        assert not expect.at_least("k", seen, 0).passed


def test_finite_counts_the_elements_that_are_not():
    assert expect.finite("k", np.ones(2)).passed and expect.finite("k", 1.0).passed
    assert expect.finite("k", np.array([1.0, INF])).seen.startswith("1 of 2 not finite")
    assert not expect.finite("k", None).passed and not expect.finite("k", "1").passed


def test_raises_compares_class_names():
    assert expect.raises("k", "TypeError", ("TypeError", "ValueError")).passed
    row = expect.raises("k", "", "TypeError")
    assert not row.passed and row.seen == "no error was raised"


def test_long_arrays_are_cut_and_say_their_shape():
    assert expect.short(np.arange(100)) == "[0, 1, 2, 3, 4, 5, …] of shape (100,)"
    assert expect.short(np.float32(0.1)) == "0.1"


def test_a_total_takes_counts_alone():
    assert expect.total(1, [2, 3], []) == 6
    for no_count in (np.zeros(3), [True], 1.0, [[1]], None):
        with pytest.raises(TypeError):
            expect.total(0, no_count)
