"""The mangled bank is graded as one class, by the command line: right answers keep their points.

What is in the bank, and what each case must earn, is in `mangled/cases.py`.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_line import Ran, checkout_with_grader, look, run
from conftest import made_up_course
from mangled.cases import CASES, Case, perfect
from notebooks import Notebook

READABLE = [case for case in CASES if not case.problem]
UNREADABLE = [case for case in CASES if case.problem]
BY_STUDENT = {"ids": lambda case: case.student}


@dataclass(frozen=True)
class Graded:
    """The class after one run. needs: the reason by student, where a person is asked for."""

    ran: Ran
    pages: dict[str, str]
    needs: dict[str, str]


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Graded]:
    place = tmp_path_factory.mktemp("mangled")
    with made_up_course(place / "checkout") as tiny:
        for case in CASES:
            write(place / "class", case, Notebook(tiny))
        paths = sorted((place / "class").iterdir())
        done = run(checkout_with_grader(), *paths, "--out", place / "out", columns=400)
        ran = look(done, place / "out")
        pages = {name: page(place / "out" / "feedback" / name / "tiny.html") for name in ran.marks}
        yield Graded(ran, pages, reasons(done.stdout))


def write(folder: Path, case: Case, notebook: Notebook) -> None:
    for place, data in case.files(perfect(notebook)).items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def page(path: Path) -> str:
    """What a learner reads, "" where there is no page."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", text)).split())


def reasons(stdout: str) -> dict[str, str]:
    """The table at the end of what the command prints."""
    table = stdout.partition("\nneeds a person")[2]
    rows = re.findall(r"^(.+?) +09_tiny +(.+?) *$", table, re.MULTILINE)
    return {student.strip(): why for student, why in rows}


def test_the_bank_is_large_and_everybody_in_it_is_somebody_else() -> None:
    assert len(CASES) >= 40
    assert len({case.student for case in CASES}) == len(CASES)


def test_nothing_stops_the_class_and_nobody_is_lost_or_made_up(graded: Graded) -> None:
    ran = graded.ran
    assert (ran.done.returncode, ran.done.stderr) == (1, "")  # 1: some need a person
    students = {case.student for case in CASES}
    assert set(ran.marks) == students
    assert set(ran.scores) == students
    for student in students:
        assert f"feedback/{student}/tiny.html" in ran.files
        assert f"autograded/{student}/09_tiny/09_tiny.ipynb" in ran.files


@pytest.mark.parametrize("case", CASES, **BY_STUDENT)
def test_right_answers_keep_their_points(graded: Graded, case: Case) -> None:
    rows = [graded.ran.marks[case.student][key] for key in ("9.1", "9.2")]
    assert tuple(row["verdict"] for row in rows) == case.verdicts, case.what
    assert tuple(float(row["points"]) for row in rows) == case.points
    assert graded.ran.scores[case.student] == sum(case.points)


@pytest.mark.parametrize("case", [case for case in CASES if case.told], **BY_STUDENT)
def test_what_was_mended_or_missed_is_told_on_the_page(graded: Graded, case: Case) -> None:
    for words in case.told:
        assert words in graded.pages[case.student], case.what


@pytest.mark.parametrize("case", UNREADABLE, **BY_STUDENT)
def test_what_can_not_be_read_is_named_for_a_person_and_says_what_to_do(
    graded: Graded, case: Case
) -> None:
    why = graded.needs[case.student]
    assert case.problem in why
    assert re.search(r"\b([Hh]and (it )?in|download)\b", why)
    assert why.endswith(".")


def test_what_can_be_read_needs_no_person(graded: Graded) -> None:
    assert set(graded.needs) == {case.student for case in UNREADABLE}


def test_an_attempt_that_does_not_count_is_named(graded: Graded) -> None:
    aside = graded.ran.done.stdout.partition("set aside")[2]
    assert "turing: HW 9_turing_attempt_2026-01-01-12-00-00_09_tiny.ipynb" in aside
    assert "later_attempt_broken: 09_tiny (1).ipynb: The file breaks off in the middle" in aside


@pytest.mark.parametrize("case", [case for case in READABLE if not case.told], **BY_STUDENT)
def test_what_needed_no_mending_is_not_remarked_on(graded: Graded, case: Case) -> None:
    assert "What was mended" not in graded.pages[case.student], case.what
