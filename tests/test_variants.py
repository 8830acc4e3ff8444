"""Right answers written otherwise: what each change makes, and that exercises accept it."""

import datetime

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from autograder import course, variants
from autograder.variants import CHANGES, DOES_NOT_FIT, FLOAT64, check_variants, rejected
from helpers.exercise import Case, observe

FEWEST = 3
"""Variants beyond the bank's right answers that each exercise must accept."""

EXERCISES = [(chapter, key) for chapter in course.chapters() for key in chapter.exercises]
TODAY = datetime.date.today().toordinal()
PAIRS = [(*exercise, change) for change in CHANGES for exercise in EXERCISES]
SAMPLE = [PAIRS[(4 * TODAY + i) * 23 % len(PAIRS)] for i in range(4)]
"""Others each day; `-s banks` tries all."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chapter", "key", "change"), SAMPLE, ids=[f"{key} {change}" for _, key, change in SAMPLE]
)
def test_an_exercise_accepts_its_right_answers_written_otherwise(chapter, key, change):
    if chapter.lacks():
        pytest.skip(chapter.lacks())
    problems = list(rejected(chapter, key, [change]))
    assert not problems, "\n".join(str(problem) for problem in problems)


@pytest.mark.slow
def test_a_chapter_is_tried_in_processes_one_of_them_with_float64(monkeypatch):
    chapter = course.chapter("pytrees")
    monkeypatch.setitem(vars(chapter), "exercises", {"7.3": chapter.exercises["7.3"]})
    monkeypatch.setattr(variants, "CHANGES", {"in a class": variants.in_a_class})
    assert check_variants(chapter) == []


def test_enough_changes_fit_each_exercise_and_each_exception_has_a_reason():
    known = {key for _, key in EXERCISES}
    for change, reasons in DOES_NOT_FIT.items():
        assert change in CHANGES | FLOAT64
        assert reasons.keys() <= known
        assert all(len(reason) > 20 for reason in reasons.values())
    always = (CHANGES | FLOAT64).keys() - {"with dataclasses"}
    for key in known:
        assert sum(key not in DOES_NOT_FIT.get(change, {}) for change in always) >= FEWEST, key


# --- one planted fault each ----------------------------------------------------------------------


def said(chapter: course.Chapter, key: str, *changes: str) -> list[str]:
    return [str(problem) for problem in rejected(chapter, key, changes)]


def test_right_answers_of_the_made_up_chapter_stay_right(tiny):
    assert said(tiny, "9.1", *(CHANGES.keys() - {"jitted", "from JAX arrays"})) == []
    assert said(tiny, "9.2", *(CHANGES.keys() - {"jitted"})) == []


def test_a_check_that_is_too_strict_is_reported_with_what_to_do(tiny):
    module = course.ROOT / "helpers" / "exercises" / "tiny.py"
    text = module.read_text()
    module.write_text(text.replace('{"mean": safe', '{"mean": safe_mean.__name__ and safe'))
    problems = said(course.Chapter(9, "tiny"), "9.1", "in a class", "in two cells")
    assert len(problems) == 3
    assert "solutions/tiny/answers.py:1: 9.1 right “with NumPy's own mean”: " in problems[1]
    assert "written otherwise (in a class) it earns 0 of 4" in problems[1]
    assert "mend the check, or say in the task" in problems[1]


def test_an_exception_silences_its_change_and_one_without_need_is_reported(tiny, monkeypatch):
    monkeypatch.setitem(DOES_NOT_FIT, "jitted", {"9.2": "looks at its numbers in Python"})
    monkeypatch.setitem(DOES_NOT_FIT, "renamed", {"9.1": "no reason at all"})
    assert said(tiny, "9.2", "jitted") == []
    assert said(tiny, "9.1", "renamed") == [
        "autograder/variants.py: 9.1: “renamed” earns all points: "
        "take the exercise out of DOES_NOT_FIT"
    ]


# --- what the changes make -----------------------------------------------------------------------

ANSWER = """
from typing import NamedTuple

class State(NamedTuple):
    count: int

def at(values, index):
    step = helper(index)
    def inner(index):
        match [step]:
            case [found]:
                return found
    return values[inner(index)], State(step)._replace(count=3)

def helper(index):
    return jnp.asarray(index) + GIVEN
"""


@pytest.fixture
def namespace(tiny):
    """Runs the cells of a variant of ANSWER; returns what they define."""

    def run(change: str) -> dict:
        found = {"jnp": jnp, "GIVEN": 1}
        for cell in (CHANGES | FLOAT64)[change](ANSWER, tiny.exercises["9.2"]):
            exec(cell, found)
        return found

    return run


@pytest.mark.parametrize("change", CHANGES | FLOAT64)
def test_a_variant_does_what_the_answer_did(namespace, change):
    value, state = namespace(change)["at"](np.arange(5), np.array(2))
    assert (int(value), state.count) == (3, 3)


def test_a_variant_is_written_as_its_change_says(namespace):
    values, index = np.arange(5), np.array(2)
    assert not hasattr(namespace("in a class")["at"], "__name__")
    assert not hasattr(namespace("called by name")["at"], "__wrapped__")
    assert isinstance(namespace("from JAX arrays")["at"](values, index)[0], jax.Array)
    assert isinstance(namespace("to NumPy")["at"](jnp.arange(5), index)[0], np.ndarray)
    assert isinstance(namespace("jitted")["at"](values, index)[0], jax.Array)
    assert jax.tree.leaves(namespace("with dataclasses")["at"](values, index)[1]) == [3]
    assert not isinstance(namespace("with dataclasses")["State"](3), tuple)
    assert namespace("in two cells")["own_at"] is not namespace("in two cells")["at"]


def test_renaming_leaves_alone_what_others_know():
    assert variants.own_names(ANSWER) == {"State", "at", "step", "inner", "found", "helper"}


def test_an_answer_without_a_state_or_names_of_its_own_has_no_such_variant(tiny):
    code = "def at(values, index):\n    return values[index]"
    assert variants.renamed(code, tiny.exercises["9.2"]) == []
    assert variants.with_dataclasses(code, tiny.exercises["9.2"]) == []


def test_an_exercise_observes_in_default_precision_whatever_a_notebook_has_set(tiny):
    answers = {"safe_mean": lambda values, mask: str(jnp.zeros(3).dtype)}
    case = Case("any", np.zeros(3), np.ones(3, bool))
    jax.config.update("jax_enable_x64", True)
    try:
        seen = observe(tiny.exercises["9.1"], answers, case)
        assert jnp.zeros(3).dtype == jnp.float64
    finally:
        jax.config.update("jax_enable_x64", False)
    assert seen.values == {"mean": "float32"}
