"""`autograder grade` as an instructor runs it: a process, its exit code, its lines, its files."""

import json
import os
from pathlib import Path

import pytest
from command_line import Ran, checkout_with_grader, look, run
from in_process import AT, HALF, RIGHT

from autograder.build import learner_notebook
from autograder.course import Chapter

CRASH = "import os\nos._exit(0)"


@pytest.fixture
def checkout(tiny: Chapter) -> Path:
    return checkout_with_grader()


def notebook(tiny: Chapter, **answers: str) -> bytes:
    """The released notebook with answers by number: one="…" is that to 9.1."""
    data = json.loads(json.dumps(learner_notebook(tiny)))
    for cell in data["cells"]:
        for number, name in enumerate(("one", "two"), 1):
            if cell["id"] == f"answer-9-{number}" and name in answers:
                cell["source"] = answers[name]
    return json.dumps(data).encode()


def drop(path: Path, data: bytes, when: float = 0.0) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    if when:
        os.utime(path, (when, when))


def the_class(tiny: Chapter, folder: Path) -> None:
    """A class as it comes."""
    perfect = notebook(tiny, one=RIGHT, two=AT)
    drop(folder / "ada" / "09_tiny.ipynb", perfect)
    drop(folder / "bob" / "homework (2).ipynb", notebook(tiny, one=HALF))
    drop(folder / "cyd" / "09_tiny.ipynb", notebook(tiny))
    drop(folder / "dan" / "09_tiny.ipynb", notebook(tiny, one=CRASH, two=AT))
    drop(folder / "eve" / "old.ipynb", notebook(tiny), when=1e9)
    drop(folder / "eve" / "new.ipynb", perfect, when=2e9)
    drop(folder / "fay" / "09_tiny.ipynb", b"")
    drop(folder / "gus" / "essay.docx", b"PK\x03\x04")
    drop(folder / "hal" / "09_tiny.ipynb", b'{"cells": [{"cell_type": "code", "source": "1"}]}')


@pytest.fixture(scope="module")
def memory() -> dict[str, Ran]:
    return {}


@pytest.fixture
def ran(checkout: Path, tiny: Chapter, tmp_path: Path, memory: dict[str, Ran]) -> Ran:
    """The class graded, once for all tests of this file."""
    if "class" not in memory:
        folder, out = tmp_path / "handed in", tmp_path / "out"
        the_class(tiny, folder)
        memory["class"] = look(run(checkout, folder, "--out", out, "--workers", 2), out)
    return memory["class"]


def test_marks_have_their_columns_and_are_sorted(ran: Ran) -> None:
    assert ran.header == [
        "student",
        "chapter",
        "exercise",
        "points",
        "max_points",
        "verdict",
        "diagnosis",
        "seconds",
    ]
    assert ran.students == sorted(ran.students)
    assert all(len(exercises) == 2 for exercises in ran.marks.values())


@pytest.mark.parametrize(
    ("student", "first", "second"),
    [
        ("ada", ("4", "full"), ("2", "full")),
        ("bob", ("3", "partial"), ("0", "unanswered")),
        ("cyd", ("0", "unanswered"), ("0", "unanswered")),
        ("dan", ("0", "crash"), ("2", "full")),
        ("eve", ("4", "full"), ("2", "full")),
        ("fay", ("0", "error"), ("0", "error")),
        ("gus", ("0", "error"), ("0", "error")),
        ("hal", ("0", "error"), ("0", "error")),
    ],
)
def test_every_submission_has_its_verdicts(
    ran: Ran, student: str, first: tuple[str, str], second: tuple[str, str]
) -> None:
    rows = ran.marks[student]
    assert [(rows[key]["points"], rows[key]["verdict"]) for key in ("9.1", "9.2")] == [
        first,
        second,
    ]
    assert ran.scores[student] == float(first[0]) + float(second[0])


def test_a_known_mistake_is_named(ran: Ran) -> None:
    assert ran.marks["bob"]["9.1"]["diagnosis"] == "divides by nothing"
    assert ran.marks["ada"]["9.1"]["diagnosis"] == ""


def test_every_submission_has_a_page_and_a_notebook(ran: Ran) -> None:
    for student in ran.marks:
        assert f"feedback/{student}/tiny.html" in ran.files
        assert f"autograded/{student}/09_tiny/09_tiny.ipynb" in ran.files


def test_what_needs_a_person_is_named_and_ends_in_code_1(ran: Ran) -> None:
    assert ran.done.returncode == 1
    assert ran.done.stderr == ""
    table = ran.done.stdout.split("\nneeds a person")[-1]
    assert "The file is empty." in table
    assert "“essay.docx” is no notebook" in table
    assert "None of the notebook's cells belongs to a chapter of this course." in table
    # dan's code calls os._exit, which is odd enough to be read
    assert [name for name in ran.marks if f"\n{name} " in table] == ["dan", "fay", "gus", "hal"]


def test_the_older_of_two_notebooks_is_named(ran: Ran) -> None:
    assert "eve: old.ipynb: a later one was handed in" in ran.done.stdout


def test_a_readable_class_ends_in_code_0_and_grading_it_again_changes_nothing(
    checkout: Path, tiny: Chapter, tmp_path: Path
) -> None:
    drop(tmp_path / "ada.ipynb", notebook(tiny, one=HALF, two=AT))
    out = tmp_path / "out"
    first = run(checkout, tmp_path / "ada.ipynb", "--out", out, "--chapter", "9")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "1 submission graded." in first.stdout
    before = look(first, out)
    again = look(run(checkout, tmp_path / "ada.ipynb", "--out", out), out)
    assert again.scores == before.scores == {"ada": 5.0}
    assert [row["verdict"] for row in again.marks["ada"].values()] == ["partial", "full"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere"], "nowhere: there is no such file or folder"),
        (["class", "--chapter", "77"], "there is no chapter '77'; there are 09_tiny"),
        (["class", "--out", "class/ada.ipynb"], "class/ada.ipynb: can't be written: File exists"),
        (["nothing"], "nothing: there is no notebook in it"),
    ],
)
def test_a_usage_error_is_one_line_and_code_2_and_writes_nothing(
    checkout: Path, tiny: Chapter, arguments: list[str], sentence: str
) -> None:
    drop(checkout / "class" / "ada.ipynb", notebook(tiny))
    (checkout / "nothing").mkdir()
    before = sorted(path for path in checkout.rglob("*") if "__pycache__" not in path.parts)
    done = run(checkout, *arguments)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"{sentence}\n")
    after = sorted(path for path in checkout.rglob("*") if "__pycache__" not in path.parts)
    assert after == before
