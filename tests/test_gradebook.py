"""Marks as nbgrader reads them: its API, its command line, its rule on outputs."""

import csv
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import nbformat
import pytest
from in_process import AT, HALF, RIGHT, graded, handed_in, results_folder
from nbgrader.api import Gradebook as NbGraderBook
from nbgrader.api import MissingEntry
from nbgrader.utils import determine_grade
from typer.testing import CliRunner

from autograder import gradebook
from autograder.cli import app
from autograder.collect import Found
from autograder.course import Chapter
from autograder.gradebook import Gradebook, autograded
from autograder.graders import without_verdict
from autograder.intake import Turn
from autograder.submission import Own

NAME = "09_tiny"


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first test leaves its folder for the others."""
    return tmp_path_factory.mktemp("laid out") / "once"


@pytest.fixture
def out(tiny: Chapter, tmp_path: Path, laid_out: Path) -> Path:
    return results_folder(tiny, laid_out, tmp_path / "out")


@pytest.fixture
def book(tiny: Chapter, out: Path) -> Iterator[Gradebook]:
    with Gradebook(out, [tiny]) as opened:
        yield opened


def grades(out: Path, student: str) -> dict[str, Any]:
    with NbGraderBook(f"sqlite:///{out}/gradebook.db") as book:
        notebook = book.find_submission_notebook(NAME, NAME, student)
        return {grade.name: grade.to_dict() for grade in notebook.grades}


def submission(out: Path, student: str) -> dict[str, Any]:
    with NbGraderBook(f"sqlite:///{out}/gradebook.db") as book:
        found = book.find_submission(NAME, student)
        notebook = found.notebooks[0]
        comments = {each.name: each.comment for each in notebook.comments}
        return {**found.to_dict(), "flagged": notebook.flagged, "comments": comments}


def test_nbgrader_reads_back_the_points(tiny: Chapter, book: Gradebook, out: Path) -> None:
    book.record(graded(tiny, handed_in(tiny, {"9.1": HALF, "9.2": AT})), tiny)
    found = grades(out, "ada")
    assert {key: grade["auto_score"] for key, grade in found.items()} == {
        "check-9-1": 3.0,
        "check-9-2": 2.0,
    }
    assert not any(grade["needs_manual_grade"] for grade in found.values())
    whole = submission(out, "ada")
    assert (whole["score"], whole["max_score"]) == (5.0, 6.0)
    assert not whole["needs_manual_grade"]
    assert not whole["flagged"]


def test_comments_say_the_verdict_and_the_mistake(
    tiny: Chapter, book: Gradebook, out: Path
) -> None:
    book.record(graded(tiny, handed_in(tiny, {"9.1": HALF})), tiny)
    assert submission(out, "ada")["comments"] == {
        "answer-9-1": "Partly right: 3 of 4 points. This looks like “divides by nothing”. "
        "An empty selection has no count to divide by.",
        "answer-9-2": "Not answered: 0 of 2 points.",
    }


def test_grading_again_replaces(tiny: Chapter, book: Gradebook, out: Path) -> None:
    book.record(graded(tiny, handed_in(tiny, {"9.1": HALF}), person=("why",)), tiny)
    assert submission(out, "ada")["flagged"]
    book.record(graded(tiny, handed_in(tiny, {"9.1": RIGHT})), tiny)
    whole = submission(out, "ada")
    assert (whole["score"], whole["flagged"]) == (4.0, False)
    assert whole["comments"]["answer-9-1"] == "Complete: 4 of 4 points."


def test_a_persons_own_mark_and_comment_stay(tiny: Chapter, book: Gradebook, out: Path) -> None:
    book.record(graded(tiny, handed_in(tiny, {"9.1": HALF})), tiny)
    with NbGraderBook(f"sqlite:///{out}/gradebook.db") as theirs:
        theirs.find_grade("check-9-1", NAME, NAME, "ada").manual_score = 3.5
        theirs.find_comment("answer-9-1", NAME, NAME, "ada").manual_comment = "Nearly!"
        theirs.db.commit()
    with Gradebook(out, [tiny]) as again:
        again.record(graded(tiny, handed_in(tiny, {"9.1": RIGHT})), tiny)
    grade = grades(out, "ada")["check-9-1"]
    assert (grade["auto_score"], grade["manual_score"]) == (4.0, 3.5)
    assert grade["needs_manual_grade"]
    assert submission(out, "ada")["comments"]["answer-9-1"] == "Nearly!"


def test_a_grade_is_committed_whole_or_not_at_all(
    tiny: Chapter, book: Gradebook, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book.record(graded(tiny, handed_in(tiny, {"9.1": RIGHT}, student="bob")), tiny)

    def interrupted(found: Any, key: str) -> str:
        if key == "9.2":
            raise KeyboardInterrupt
        return "half"

    monkeypatch.setattr(gradebook, "_comment", interrupted)
    for student in ("ada", "bob"):
        with pytest.raises(KeyboardInterrupt):
            book.record(graded(tiny, handed_in(tiny, {"9.1": HALF}, student=student)), tiny)
    with pytest.raises(MissingEntry):
        submission(out, "ada")
    assert submission(out, "bob")["score"] == 4.0
    monkeypatch.undo()


def test_the_time_of_handing_in_is_kept_where_it_is_known(
    tiny: Chapter, book: Gradebook, out: Path
) -> None:
    for student, stamped in (("ada", True), ("bob", False)):
        found = Found(student, Path("x"), when=1769860800.0, stamped=stamped)
        book.record(graded(tiny, handed_in(tiny, {}, student=student, found=found)), tiny)
    assert submission(out, "ada")["timestamp"] == "2026-01-31T12:00:00"
    assert submission(out, "bob")["timestamp"] is None


def test_an_unreadable_submission_has_a_grade_and_a_notebook_that_says_why(
    tiny: Chapter, book: Gradebook, out: Path
) -> None:
    handed = handed_in(tiny, {}, problem="The file is empty.")
    book.record(without_verdict(Turn(handed, tiny), handed.problem, handed.problem), tiny)
    whole = submission(out, "ada")
    assert (whole["score"], whole["flagged"]) == (0.0, True)
    path = out / "autograded" / "ada" / NAME / f"{NAME}.ipynb"
    assert "The file is empty." in json.loads(path.read_text())["cells"][0]["source"]


PENALTY = """
from nbgrader.plugins import LateSubmissionPlugin

class APointAnHour(LateSubmissionPlugin):
    def late_submission_penalty(self, student_id, score, total_seconds_late):
        return total_seconds_late / 3600

c.AssignLatePenalties.plugin_class = APointAnHour
"""


def test_a_late_submission_gets_the_penalty_that_the_instructors_plugin_says(
    tiny: Chapter, book: Gradebook, out: Path
) -> None:
    noon = 1769860800.0

    def penalties(due: str) -> dict[str, float]:
        book.book.update_or_create_assignment(NAME, duedate=due)
        for student, when in (("ada", noon), ("bob", noon - 7200)):
            found = Found(student, Path("x"), when=when, stamped=True)
            handed = handed_in(tiny, {"9.1": RIGHT}, student=student, found=found)
            book.record(graded(tiny, handed), tiny)
        all_of_them = book.book.assignment_submissions(NAME)
        return {each.student.id: each.late_submission_penalty for each in all_of_them}

    due = "2026-01-31 10:30:00 UTC"
    assert penalties(due) == {"ada": 0.0, "bob": 0.0}
    with (out / "nbgrader_config.py").open("a") as settings:
        settings.write(PENALTY)
    with Gradebook(out, [tiny]) as book:
        assert penalties("2026-01-31 12:00:00 UTC") == {"ada": 0.0, "bob": 0.0}
        assert penalties(due) == {"ada": 1.5, "bob": 0.0}
    nbgrader(out, "export")
    with (out / "grades.csv").open(newline="") as stream:
        rows = {row["student_id"]: row for row in csv.DictReader(stream)}
    assert (rows["ada"]["raw_score"], rows["ada"]["score"]) == ("4.0", "2.5")
    assert (rows["bob"]["raw_score"], rows["bob"]["score"]) == ("4.0", "4.0")


def test_what_was_handed_in_is_there_to_be_graded_again_and_nobodys_file_is_lost(
    tiny: Chapter, book: Gradebook, out: Path
) -> None:
    path = out / "submitted" / "ada" / NAME / f"{NAME}.ipynb"
    for answer in (HALF, RIGHT):
        book.record(graded(tiny, handed_in(tiny, {"9.1": answer}), person=("why",)), tiny)
        found = {cell["id"]: cell for cell in json.loads(path.read_text())["cells"]}
        assert found["answer-9-1"]["source"] == answer
        assert found["check-9-1"]["outputs"] == []
        assert "grader-remarks" not in found
    for mine in ('{"metadata": {}, "cells": []}', "[]", "no notebook"):
        path.write_text(mine)
        book.record(graded(tiny, handed_in(tiny, {"9.1": HALF})), tiny)
        assert path.read_text() == mine


# --- the autograded notebook ---------------------------------------------------------------------


def cells(tiny: Chapter, answers: dict[str, str], **more: Any) -> dict[str, Any]:
    """The cells of the autograded notebook by id, as a valid notebook has them."""
    text = json.dumps(autograded(graded(tiny, handed_in(tiny, answers, **more)), tiny))
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    found = {cell["id"]: cell for cell in notebook.cells}
    assert len(found) == len(notebook.cells)
    return found


def test_nbgraders_own_rule_reads_the_same_points(tiny: Chapter) -> None:
    found = cells(tiny, {"9.1": HALF, "9.2": AT})
    assert determine_grade(found["check-9-1"]) == (3.0, 4.0)
    assert determine_grade(found["check-9-2"]) == (2.0, 2.0)
    assert determine_grade(cells(tiny, {})["check-9-1"]) == (0.0, 4.0)


def test_the_verdict_stands_below_the_self_check(tiny: Chapter) -> None:
    said = cells(tiny, {"9.1": HALF})["check-9-1"].outputs[0].text
    assert said.startswith("◐ Partly right: 3 of 4 points\n  ✅ is the mean of the selected")
    assert "❌ is 0 when nothing is selected (1 point)\n    saw nan in none is selected" in said
    assert "This looks like “divides by nothing”." in said


def test_no_line_of_a_verdict_is_longer_than_formgrader_shows(tiny: Chapter) -> None:
    long = HALF.replace("return", "raise ValueError('word ' * 100) #")
    said = cells(tiny, {"9.1": long})["check-9-1"].outputs[0].text
    assert max(map(len, said.splitlines())) <= 90
    assert "ValueError: word word" in said


def test_answers_are_the_learners_and_locked_cells_the_courses(tiny: Chapter) -> None:
    found = cells(tiny, {"9.1": HALF, "9.2": AT})
    assert found["answer-9-1"].source == HALF
    assert found["given-total"].source.startswith("def total(values")
    assert found["check-9-1"].source == 'check("9.1")'
    assert found["check-9-1"].metadata.nbgrader.points == 4
    assert all(
        not c.outputs for k, c in found.items() if c.cell_type == "code" and "check" not in k
    )


def test_own_cells_stand_where_they_stood(tiny: Chapter) -> None:
    own = (Own("", "markdown", "Hello"), Own("check-9-1", "code", "a = 1"))
    found = list(cells(tiny, {"9.1": HALF}, own=own, edited={"quiz-9-a": 'quiz("9.a", "b")'}))
    assert found.index("own-1") == 0
    assert found.index("own-2") == found.index("check-9-1") + 1


def test_a_learners_prose_can_not_run_anything_in_formgrader(tiny: Chapter) -> None:
    evil = "<script>alert(1)</script> 1 < 2 <img src=x onerror=alert(1)>"
    own = (Own("", "markdown", evil), Own("", "raw", evil))
    found = cells(tiny, {}, own=own, edited={"text-9-1-1": evil}, notes=(evil,))
    for label in ("own-1", "own-2", "text-9-1-1", "grader-remarks"):
        assert "<script" not in found[label].source
        assert "<img" not in found[label].source
    assert "1 < 2" in found["own-1"].source


# --- nbgrader's command line ---------------------------------------------------------------------


def nbgrader(out: Path, *arguments: str) -> str:
    """Runs nbgrader in the results folder with the checkout's own modules."""
    environment = os.environ | {
        "PYTHONPATH": str(Path(gradebook.__file__).parent.parent),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
    }
    command = [sys.executable, "-m", "nbgrader", *arguments]
    done = subprocess.run(command, cwd=out, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def test_nbgraders_commands_work_in_the_results_folder(
    tiny: Chapter, book: Gradebook, out: Path
) -> None:
    for student, answers in (("ada", {"9.1": HALF}), ("bob", {"9.1": RIGHT, "9.2": AT})):
        book.record(graded(tiny, handed_in(tiny, answers, student=student)), tiny)
    nbgrader(out, "export")
    rows = [line.split(",") for line in (out / "grades.csv").read_text().splitlines()]
    assert [(row[0], row[3], row[9], row[10]) for row in rows[1:]] == [
        (NAME, "ada", "3.0", "6.0"),
        (NAME, "bob", "6.0", "6.0"),
    ]
    nbgrader(out, "generate_feedback", NAME)
    page = (out / "feedback" / "ada" / NAME / f"{NAME}.html").read_text()
    assert "Partly right: 3 of 4 points" in page


def test_a_folder_without_a_gradebook_is_not_served(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["serve", str(tmp_path)])
    assert done.exit_code == 2
    todo = f"`autograder grade PATH... --out {tmp_path}` writes it"
    assert done.output == f"{tmp_path} has no gradebook.db: {todo}\n"


def test_an_instructors_settings_stay(tiny: Chapter, out: Path) -> None:
    with Gradebook(out, [tiny]):
        pass
    settings = out / "nbgrader_config.py"
    settings.write_text(settings.read_text() + "\n# mine\n")
    with Gradebook(out, [tiny]) as book:
        book.record(replace(graded(tiny, handed_in(tiny, {})), person=()), tiny)
    assert settings.read_text().endswith("# mine\n")
