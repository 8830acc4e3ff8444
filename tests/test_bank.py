"""The bank of answers: each chapter's may ship, and each kind of fault in one is reported."""

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

from autograder import bank, course
from autograder.bank import check_bank, public_cases, run_answer
from autograder.course import Chapter
from helpers.diagnosis import save
from helpers.exercise import assess

SEEDS = 3
"""Enough for the made-up chapter. The real ones are tried on two here, compiled as the grader does;
on ten by `-s banks`, compiled as in a notebook."""


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    with bank.processes(2, as_graded=True) as pool:
        yield pool


@pytest.mark.slow
@pytest.mark.parametrize("chapter", course.chapters(), ids=lambda chapter: chapter.slug)
def test_the_bank_of_a_chapter_may_ship(chapter, pool):
    if chapter.lacks():
        pytest.skip(chapter.lacks())
    problems = check_bank(chapter, 2, pool, as_graded=True)
    assert not problems, "\n".join(str(problem) for problem in problems)


def test_the_made_up_bank_may_ship(tiny):
    assert check_bank(tiny, SEEDS) == []


# --- one planted fault each ----------------------------------------------------------------------


@pytest.fixture
def report(tiny: Chapter) -> Callable[..., list[str]]:
    """Plants a fault in a file of the made-up chapter; returns what is said about the bank."""

    def plant(name: str, old: str, new: str) -> list[str]:
        folder = course.ROOT / ("helpers/exercises" if name == "tiny.py" else "solutions/tiny")
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))
        return [str(problem) for problem in check_bank(Chapter(9, "tiny"), SEEDS)]

    return plant


FAULTS = {
    "a starter that earns points": (
        "chapter.py",
        "    ### BEGIN SOLUTION\n    if index < 0:",
        "    if index < 0:\n        raise IndexError\n    ### BEGIN SOLUTION\n    if index < 0:",
        "the unanswered starter of 9.2 is “partial”: 1 points",
    ),
    "a reference that is wrong": (
        "chapter.py",
        "max(int(mask.sum()), 1)",
        "len(values)",
        "9.1 the reference: earns 1 of 4 on seed 0: value in “some are selected”",
    ),
    "a right answer that is wrong": (
        "answers.py",
        "if mask.any() else 0.0",
        "if mask.any() else 1.0",
        "9.1 right “with NumPy's own mean”: earns 3 of 4 on seed 0: empty in “none is selected”",
    ),
    "a wrong answer that is right": (
        "answers.py",
        "int(values[max(index, 0)])",
        "int(values[index] if index >= 0 else [][0])",
        "9.2 wrong “clips”: keeps all points on 3 of 3 seeds (seed 0)",
    ),
    "a wrong answer that answers nothing": (
        "answers.py",
        "def at(values, index):\n    return int(values[max(index, 0)])",
        "def att(values, index):\n    return int(values[max(index, 0)])",
        "9.2 wrong “clips”: counts as unanswered: define at in it",
    ),
    "two wrong answers that behave alike": (
        "answers.py",
        "values[max(index, 0)]",
        "values[index]",
        "9.2 wrong “clips”: behaves like “counts from the end” in the public cases",
    ),
    "too few right answers": (
        "answers.py",
        "# %% 9.2 right: by iterating",
        "# %% 9.1 right: by iterating",
        "exercise 9.2 has 1 right answers: write at least 2",
    ),
    "too few wrong answers": (
        "answers.py",
        "# %% 9.2 wrong: clips",
        "# %% 9.1 wrong: clips",
        "exercise 9.2 has 4 wrong answers: write at least 5",
    ),
    "two wrong answers of one name": (
        "answers.py",
        "wrong: clips",
        "wrong: off by one",
        "exercise 9.2 has 2 wrong answers called “off by one”",
    ),
    "an answer to no exercise": (
        "answers.py",
        "# %% 9.2 wrong: clips",
        "# %% 9.7 wrong: clips",
        "9.7 wrong “clips”: there is no exercise 9.7",
    ),
    "a wrong answer without an explanation": (
        "answers.py",
        "# Clipping hides the mistake.\n",
        "",
        "9.2 wrong “clips”: has no explanation",
    ),
    "a wrong answer that sends nowhere": (
        "answers.py",
        "# Clipping hides the mistake.\n# see: 9.2\n",
        "# Clipping hides the mistake.\n",
        "9.2 wrong “clips”: sends to no section",
    ),
    "a section that does not exist": (
        "tiny.py",
        'Property("returns the element", see="9.2")',
        'Property("returns the element", see="9.3")',
        "9.2, property 'value': sends to §9.3, which is no section: write `see=` with one of 9.1,",
    ),
    "a question that sends nowhere": (
        "tiny.py",
        'see="9.1",\n        run',
        'see="9.8",\n        run',
        "question 9.a: sends to §9.8",
    ),
    "a question whose measurement disagrees": (
        "tiny.py",
        'answer="b"',
        'answer="a"',
        "question 9.a: measured here, the answer is 'b', not 'a'",
    ),
    "a question whose answer is no option": (
        "tiny.py",
        'answer="b"',
        'answer="c"',
        "question 9.a: its answer 'c' is no option",
    ),
    "a hidden probe": (
        "hidden.py",
        "class HiddenSafeMean(SafeMean):",
        "class HiddenSafeMean(SafeMean):\n    def probe(self, f, x, m):\n        return {}\n",
        "hidden.py: HiddenSafeMean has a probe of its own",
    ),
    "hidden points": (
        "hidden.py",
        "class HiddenSafeMean(SafeMean):",
        "class HiddenSafeMean(SafeMean):\n    points = 8\n",
        "HiddenSafeMean.points is not what learners are told",
    ),
    "a hidden exercise that is none": (
        "hidden.py",
        "class HiddenSafeMean(SafeMean):",
        "class HiddenSafeMean(SafeMean):\n    id = '9.9'\n",
        "hidden.py: there is no exercise 9.9",
    ),
    "two cases of one name": (
        "hidden.py",
        '"all are selected"',
        '"some are selected"',
        "2 hidden cases are called 'some are selected'",
    ),
    "a case about no property": (
        "tiny.py",
        'about=["refuses"]',
        'about=["refusal"]',
        "9.2: a case or the judge speaks of ['refusal'], no property: write one of value, refuses",
    ),
    "a property that no public case decides": (
        "tiny.py",
        'about=["refuses"]',
        'about=["value"]',
        "no public case is about the property 'refuses'",
    ),
    "cases that the seed does not decide": (
        "tiny.py",
        "values = rng.integers(1, 9, size=4)",
        "values = np.random.default_rng().integers(1, 10**6, size=4)",
        "9.2: the same seed gives other cases: draw from `rng` alone",
    ),
    "a count that is not always there": (
        "tiny.py",
        "class Bounds(Exercise):",
        "class Bounds(Exercise):\n    def counted(self, seen):\n        return seen['count']\n",
        "tiny.py: 9.2: `counted` fails in “inside” (KeyError: 'count'): return None where",
    ),
    "a judge with a key of its own": (
        "tiny.py",
        'yield expect.raises("refuses"',
        'yield expect.raises("refusal"',
        "9.2: a case or the judge speaks of ['refusal'], no property: write one of value, refuses",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_reported_with_what_to_do(report, fault):
    name, old, new, said = FAULTS[fault]
    problems = report(name, old, new)
    assert any(said in problem for problem in problems), "\n".join(problems)


def test_an_answer_that_behaves_otherwise_than_in_the_committed_bank_is_reported(tiny, report):
    save(tiny.public_bank, bank.public_bank(tiny))
    assert check_bank(tiny, SEEDS) == []
    assert report("answers.py", "values[index - 1]", "values[index - 2]") == [
        "helpers/exercises/tiny.json: “off by one” (9.2) behaves differently now: "
        "run `autograder build tiny`"
    ]


# --- running answers -----------------------------------------------------------------------------


def test_an_answer_that_can_t_be_run_faults_every_case(tiny):
    exercise = tiny.exercises["9.1"]
    tried = run_answer([], "def safe_mean(:", exercise, public_cases(exercise))
    assert assess(exercise, tried).verdict == "error"
    assert all(each.observation.message.startswith("SyntaxError") for each in tried)


def test_an_answer_gets_the_given_code_that_it_uses_and_no_more(tiny):
    exercise = tiny.exercises["9.1"]
    given = ["def total(x):\n    return x.sum()", "raise SystemExit", "def other(:"]
    answer = "def safe_mean(values, mask):\n    return total(values[mask])"
    tried = run_answer(given, answer, exercise, public_cases(exercise))
    assert [each.observation.fault for each in tried] == ["", ""]


def test_what_an_answer_prints_and_warns_of_stays_in_it(tiny, capfd):
    exercise = tiny.exercises["9.1"]
    answer = "import warnings\ndef safe_mean(v, m):\n    print(1); warnings.warn('x'); return 0.0"
    run_answer([], answer, exercise, public_cases(exercise))
    assert capfd.readouterr() == ("", "")


def test_the_public_bank_holds_every_wrong_answer_as_it_behaves(tiny):
    known = bank.public_bank(tiny)
    assert [each.name for each in known if each.exercise == "9.2"] == [
        "counts from the end",
        "another error",
        "returns None",
        "off by one",
        "clips",
    ]
    assert known[0].fingerprint[1] == {"mean": 0.0}


def test_inputs_that_a_learners_process_would_not_get_are_reported():
    deep = 1
    for _ in range(20):
        deep = [deep]
    assert "can't be sent" in bank._lost_on_the_way([deep])
    assert bank._lost_on_the_way([np.ones(2, np.float32), {"a": (1, None, "x")}]) == ""
