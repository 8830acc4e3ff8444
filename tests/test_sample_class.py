"""The sample class: the same marks by command line, by nbgrader with our engine, by hand."""

import csv
import html
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from nbgrader.api import Gradebook

from autograder.assembly import dashed, reference_answers
from autograder.course import ROOT, chapter
from autograder.nbgrader_course import lay_out

HERE = ROOT / "tests" / "sample_class"
SUBMITTED = HERE / "submitted"
CHAPTER = chapter("recompilation")
STUDENTS = sorted(path.name for path in SUBMITTED.iterdir())


def run(*command: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    env = {**os.environ, "PATH": path, **environment}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def text_of(notebook: Path) -> str:
    """Sources and outputs, as a person reads them."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    outputs = (output for cell in cells for output in cell.get("outputs", ()))
    return "\n".join([*("".join(cell["source"]) for cell in cells), *map(str, outputs)])


def expected(student: str) -> dict[str, tuple[float, str, str]]:
    """Points, verdict and diagnosis by exercise, as written by hand."""
    return {
        row["exercise"]: (float(row["points"]), row["verdict"], row["diagnosis"])
        for row in rows(HERE / "expected" / f"{student}.csv")
    }


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """The results folder of one run of the command line over the whole class."""
    out = tmp_path_factory.mktemp("class")
    done = run(sys.executable, "-m", "autograder", "grade", str(SUBMITTED), "--out", str(out))
    return out, done


def test_the_committed_class_is_what_make_writes(tmp_path):
    spec = importlib.util.spec_from_file_location("make", HERE / "make.py")
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    make.make(tmp_path)
    fresh = {p.relative_to(tmp_path): p.read_bytes() for p in tmp_path.rglob("*.ipynb")}
    here = {p.relative_to(SUBMITTED): p.read_bytes() for p in SUBMITTED.rglob("*.ipynb")}
    assert fresh == here, "run `python tests/sample_class/make.py`"


def test_a_person_is_asked_for_and_named_and_the_exit_code_says_so(graded):
    _, done = graded
    assert done.returncode == 1, done.stderr
    assert "kim" in done.stdout


@pytest.mark.parametrize("student", STUDENTS)
def test_marks_are_the_expected_ones(graded, student):
    out, _ = graded
    found = {
        row["exercise"]: (float(row["points"]), row["verdict"], row["diagnosis"])
        for row in rows(out / "marks.csv")
        if row["student"] == student
    }
    assert found == expected(student)


def test_every_student_has_a_page_a_notebook_and_a_grade(graded):
    out, _ = graded
    with Gradebook(f"sqlite:///{out / 'gradebook.db'}") as book:
        for student in STUDENTS:
            assert (out / "feedback" / student / f"{CHAPTER.name}.html").exists()
            autograded = out / "autograded" / student / CHAPTER.slug / f"{CHAPTER.slug}.ipynb"
            assert autograded.exists()
            total = sum(points for points, _, _ in expected(student).values())
            assert book.find_submission(CHAPTER.slug, student).score == pytest.approx(total)


@pytest.mark.parametrize("student", STUDENTS)
def test_no_page_and_no_notebook_tells_a_reference_that_was_not_handed_in(graded, student):
    out, _ = graded
    (handed_in,) = (SUBMITTED / student / CHAPTER.slug).iterdir()
    (autograded,) = (out / "autograded" / student).rglob("*.ipynb")
    (page,) = (out / "feedback" / student).iterdir()
    told = html.unescape(page.read_text(encoding="utf-8")) + text_of(autograded)
    own = text_of(handed_in)
    for source in reference_answers(CHAPTER).values():
        inside = source.split("### BEGIN SOLUTION")[1].split("### END SOLUTION")[0]
        for line in (line.strip() for line in inside.splitlines()):
            assert len(line) < 30 or line in own or line not in told, line


def nbgrader_scores(course: Path, students: list[str]) -> dict[str, dict[str, float]]:
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}") as book:
        return {
            student: {
                key: book.find_grade(
                    f"check-{dashed(key)}", CHAPTER.slug, CHAPTER.slug, student
                ).auto_score
                for key in CHAPTER.exercises
            }
            for student in students
        }


def course_with(folder: Path, students: list[str], *, engine: bool) -> Path:
    lay_out(folder, [CHAPTER], engine=engine)
    for student in students:
        name = f"{CHAPTER.slug}.ipynb"
        (source,) = (SUBMITTED / student / CHAPTER.slug).iterdir()
        place = folder / "submitted" / student / CHAPTER.slug
        place.mkdir(parents=True)
        shutil.copy(source, place / name)
    return folder


def test_nbgrader_autograde_with_the_engine_gives_the_same_marks(tmp_path):
    students = [student for student in STUDENTS if student != "jo"]  # nbgrader wants its own names
    course = course_with(tmp_path / "course", students, engine=True)
    done = run("nbgrader", "autograde", CHAPTER.slug, cwd=course)
    assert done.returncode == 0, done.stderr[-2000:]
    want = {s: {key: mark[0] for key, mark in expected(s).items()} for s in students}
    assert nbgrader_scores(course, students) == want


def test_plain_nbgrader_works_through_the_hidden_test_regions(tmp_path):
    students = ["carl", "emil"]
    course = course_with(tmp_path / "course", students, engine=False)
    progress = str(tmp_path / "progress.json")
    done = run("nbgrader", "autograde", CHAPTER.slug, cwd=course, COURSE_PROGRESS=progress)
    assert done.returncode == 0, done.stderr[-2000:]
    want = {s: {key: mark[0] for key, mark in expected(s).items()} for s in students}
    assert nbgrader_scores(course, students) == want
