"""Ask, observe, judge: the language that exercises are written in."""

import jax.numpy as jnp
import numpy as np
import pytest

from helpers import expect
from helpers.exercise import (
    MOST_ROWS,
    STUB,
    Case,
    Exercise,
    Observation,
    Property,
    Tried,
    assess,
    error_name,
    observe,
    one_line,
    plain,
    rows,
)


class Square(Exercise):
    """A small exercise with two properties, one of them decided by the edge case alone."""

    id = "9.1"
    title = "Square"
    answer = "square"
    properties = {
        "value": Property("squares ordinary numbers", weight=3, see="9.2"),
        "empty": Property("accepts an empty array"),
    }

    def cases(self, rng):
        yield Case("three numbers", rng.standard_normal(3), about=["value"])
        yield Case("no numbers", np.zeros(0), about=["empty"])

    def probe(self, square, x):
        return {"y": square(x)}

    def judge(self, case, seen):
        (x,) = case
        yield expect.close(case.about[0], seen["y"], x**2, hint="multiply x by itself")


def try_answer(square, hidden=False):
    exercise = Square()
    cases = exercise.cases(np.random.default_rng(0))
    namespace = {} if square is None else {"square": square}
    return assess(exercise, [Tried(c, observe(exercise, namespace, c), hidden) for c in cases])


def stub(x):
    raise NotImplementedError(STUB)


def test_a_right_answer_earns_everything_however_it_is_written():
    for square in (lambda x: x**2, lambda x: jnp.square(x), lambda x: (x * x).astype(np.float32)):
        found = try_answer(square)
        assert (found.verdict, found.points) == ("full", 4.0)


def test_an_answer_that_is_missing_or_a_stub_is_unanswered_and_earns_nothing():
    for square in (None, stub):
        found = try_answer(square)
        assert (found.verdict, found.points) == ("unanswered", 0.0)
    assert "`square` is not defined" in try_answer(None).message


def test_partial_credit_is_the_weighted_share_of_the_properties_that_held():
    found = try_answer(lambda x: x**2 if x.size else None)
    assert (found.verdict, found.points) == ("partial", 3.0)
    failed = found.findings[1]
    assert failed.seen == "None: did the function return?"
    assert failed.case == "no numbers"


def test_a_judge_that_is_made_to_compare_without_an_end_stops():
    class Endless(Square):
        def judge(self, case, seen):
            while True:
                yield expect.true(case.about[0], True)

    exercise = Endless()
    case = next(iter(exercise.cases(np.random.default_rng(0))))
    found = rows(exercise, Tried(case, Observation({"y": 0})))
    assert len(found) == MOST_ROWS + 2
    assert not found[-1].passed and "things to compare" in found[-1].seen


def test_an_error_in_one_case_costs_the_properties_of_that_case_alone():
    found = try_answer(lambda x: x**2 / (1 if x.size else [][0]))
    assert (found.verdict, found.points) == ("partial", 3.0)
    assert found.findings[1].seen == "IndexError: list index out of range"


def test_an_answer_that_always_raises_is_an_error_and_says_which():
    found = try_answer(lambda x: x.nothing)
    assert (found.verdict, found.points) == ("error", 0.0)
    assert "AttributeError" in found.message


def test_jaxs_own_not_implemented_error_is_an_error_and_not_an_unanswered_exercise():
    def square(x):
        raise NotImplementedError("Differentiation rule for 'foo' not implemented")

    assert try_answer(square).verdict == "error"


def test_a_wrong_shape_is_named_before_any_number_is_compared():
    found = try_answer(lambda x: np.zeros((3, 1)) if x.size else x)
    assert found.findings[0].seen == "shape (3, 1), where (3,) is expected"


def test_the_first_failing_case_is_the_one_that_is_shown_with_its_hint_and_section():
    finding = try_answer(lambda x: 2 * x).findings[0]
    assert (finding.case, finding.hint, finding.see) == (
        "three numbers",
        "multiply x by itself",
        "9.2",
    )
    assert "(3 of 3 elements are off)" in finding.seen


def test_a_hidden_case_withholds_what_was_expected():
    assert try_answer(lambda x: 2 * x).findings[0].expected
    withheld = try_answer(lambda x: 2 * x, hidden=True).findings[0]
    assert not withheld.expected
    assert not withheld.hint


def test_a_property_that_no_case_reached_does_not_hold():
    found = assess(Square(), [])
    assert found.points == 0.0


def test_a_judge_that_cannot_digest_a_value_fails_the_row_and_not_the_grader():
    exercise = Square()
    case = Case("three numbers", np.zeros(3), about=["value"])
    found = assess(exercise, [Tried(case, Observation(values={"z": 1}))])
    assert "unexpected form" in found.findings[0].seen


def test_tampering_earns_nothing_whatever_else_held():
    exercise = Square()
    case = next(exercise.cases(np.random.default_rng(0)))
    good = Tried(case, Observation(values={"y": case.inputs[0] ** 2}))
    bad = Tried(case, Observation(fault="tampered", message="numpy.sum was replaced"))
    found = assess(exercise, [good, bad])
    assert (found.verdict, found.points) == ("tampered", 0.0)


@pytest.mark.parametrize("fault", ["timeout", "crash"])
def test_a_timeout_and_a_crash_are_told_apart(fault):
    exercise = Square()
    case = next(exercise.cases(np.random.default_rng(0)))
    assert assess(exercise, [Tried(case, Observation(fault=fault))]).verdict == fault


def test_a_keyboard_interrupt_stops_the_check():
    def square(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        try_answer(square)


def test_plain_turns_jax_arrays_and_nests_into_numpy_and_lists():
    got = plain({"a": (jnp.ones(2), 1), "b": jnp.bfloat16(1.5), "c": np.float32(2)})
    assert isinstance(got["a"], list) and isinstance(got["a"][0], np.ndarray)
    assert got["b"].dtype == np.float32 and got["b"] == 1.5
    assert got["c"].dtype == np.float32


@pytest.mark.parametrize("thing", [object(), np.array([object()]), b"x", {1, 2}])
def test_plain_refuses_what_is_no_data_with_its_type(thing):
    with pytest.raises(TypeError, match="expected arrays and numbers"):
        plain({"x": thing})


def test_plain_refuses_endless_nests():
    nest = []
    nest.append(nest)
    with pytest.raises(TypeError, match="deep"):
        plain(nest)


def test_a_long_error_ends_after_a_word_and_says_that_it_goes_on():
    said = one_line(ValueError("word " * 100))
    assert len(said) <= 200 and said.endswith("word …")
    assert one_line(ValueError("x" * 500)) == f"ValueError: {'x' * 186} …"
    assert one_line(KeyError()) == "KeyError"


def test_an_error_is_told_without_addresses_which_differ_from_run_to_run():
    error = TypeError("no argument for <function f at 0x7f0eed5f5d00>")
    assert one_line(error) == "TypeError: no argument for <function f>"


def test_error_name_tells_a_refusal_and_lets_the_stub_through():
    assert error_name(lambda: [][0]) == "IndexError"
    assert error_name(lambda: None) == ""
    with pytest.raises(NotImplementedError):
        error_name(lambda: stub(1))
