"""Gradescope's autograder zip, run as Gradescope runs it, in a folder of our own."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from command_line import checkout_with_grader, look, run
from conftest import ROOT, made_up_course
from gradescope_schema import validate
from in_process import HALF, RIGHT
from notebooks import Notebook
from typer.testing import CliRunner

from autograder import course
from autograder.cli import app
from autograder.course import Chapter
from autograder.gradescope import grade
from autograder.sandbox import missing

SECRET = "what only the instructor knows; it's quoted"


@dataclass(frozen=True)
class Place:
    """The made-up course, its autograder zip, and where the zip was unpacked."""

    chapter: Chapter
    checkout: Path
    archive: Path
    root: Path

    def submit(self, files: dict[str, bytes], **env: str) -> subprocess.CompletedProcess[str]:
        """Runs run_autograder on a submission as Gradescope does: a copy, in /autograder."""
        for name in ("submission", "results"):
            shutil.rmtree(self.root / name, ignore_errors=True)
        for name, data in files.items():
            path = self.root / "submission" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.root),
            "XDG_CACHE_HOME": str(self.checkout.parent / "cache"),
            "AUTOGRADER_ROOT": str(self.root),
            "AUTOGRADER_PYTHON": sys.executable,
            **env,
        }
        command = [str(self.root / "run_autograder")]
        return subprocess.run(
            command, cwd=self.root, env=environment, capture_output=True, text=True
        )

    def results(self) -> dict[str, Any]:
        """What it wrote, if Gradescope would take it."""
        found = json.loads((self.root / "results" / "results.json").read_text(encoding="utf-8"))
        validate(found)
        return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("gradescope")
    with made_up_course(folder / "checkout") as tiny, pytest.MonkeyPatch.context() as patch:
        checkout = checkout_with_grader()
        for name in ("pyproject.toml", "requirements.lock"):
            shutil.copy(ROOT / name, checkout / name)
        patch.setenv(course.SECRET, SECRET)
        patch.setattr("autograder.gradescope.HERE", checkout / "autograder")
        archive = folder / "tiny.zip"
        done = CliRunner().invoke(app, ["gradescope", "tiny", "--out", str(archive)])
        assert done.exit_code == 0, done.output
        root = folder / "autograder"
        unzip(archive, root / "source")
        shutil.copy(root / "source" / "run_autograder", root / "run_autograder")
        yield Place(tiny, checkout, archive, root)


def unzip(archive: Path, folder: Path) -> None:
    """With the members' modes, which `extractall` forgets."""
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(folder)
        for entry in opened.infolist():
            (folder / entry.filename).chmod(entry.external_attr >> 16)


def notebook(chapter: Chapter, **answers: str) -> bytes:
    """The released notebook with answers by number: one="…" is that to 9.1."""
    made = Notebook(chapter)
    for number, name in enumerate(("one", "two"), 1):
        if name in answers:
            made.put(f"answer-9-{number}", answers[name])
    return made.bytes()


def test_the_zip_has_both_scripts_at_its_root_and_they_run(place: Place) -> None:
    with zipfile.ZipFile(place.archive) as archive:
        modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
    assert modes["setup.sh"] == modes["run_autograder"] == 0o755
    assert "requirements.lock" in modes
    assert {n for n in modes if n.startswith("solutions/")} == {
        f"solutions/tiny/{name}.py" for name in ("answers", "chapter", "hidden")
    }
    for script in ("setup.sh", "run_autograder"):
        subprocess.run(["bash", "-n", str(place.root / "source" / script)], check=True)


@pytest.mark.slow
def test_a_submission_gets_the_verdict_that_autograder_grade_gives(
    place: Place, tmp_path: Path
) -> None:
    data = notebook(place.chapter, one=HALF)
    done = place.submit({"homework (2).ipynb": data})
    assert done.returncode == 0, done.stderr
    found = place.results()

    handed_in = tmp_path / "in" / "ada" / "homework.ipynb"
    handed_in.parent.mkdir(parents=True)
    handed_in.write_bytes(data)
    out = tmp_path / "out"
    marks = look(run(place.checkout, handed_in.parent.parent, "--out", out), out).marks["ada"]

    assert [(t["number"], t["score"], t["max_score"]) for t in found["tests"][:2]] == [
        (key, float(row["points"]), float(row["max_points"])) for key, row in marks.items()
    ]
    assert found["score"] == 3.0
    first, second = found["tests"][:2]
    assert first["name"] == "A mean that survives an empty selection"
    assert first["visibility"] == second["visibility"] == "visible"
    assert "This looks like “divides by nothing”." in first["output"]
    assert second["output"].startswith("– Not answered: 0 of 2 points")
    assert len(found["tests"]) == (3 if missing() else 2)


def test_without_bubblewrap_it_grades_and_tells_the_instructor(
    place: Place, tmp_path: Path
) -> None:
    for program in ("bash", "env"):
        (tmp_path / program).symlink_to(shutil.which(program) or "")
    done = place.submit({"x.ipynb": notebook(place.chapter, one=RIGHT)}, PATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("NOT ISOLATED: bubblewrap is missing")
    *tests, told = place.results()["tests"]
    assert [test["score"] for test in tests] == [4.0, 0.0]
    assert told["visibility"] == "hidden"
    assert told["output"].startswith("Not isolated: bubblewrap is missing")


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("essay.pdf", b"%PDF", "“essay.pdf” is no notebook: hand in the file that ends in .ipynb."),
        ("x.ipynb", b"{", "The file breaks off in the middle: hand it in again."),
    ],
)
def test_what_is_no_notebook_gets_nothing_and_is_told_why(
    place: Place, tmp_path: Path, name: str, data: bytes, said: str
) -> None:
    (tmp_path / "submission").mkdir()
    (tmp_path / "submission" / name).write_bytes(data)
    found = grade(place.chapter, tmp_path)
    validate(found)
    assert found == {"score": 0.0, "output": said, "tests": []}


def test_an_empty_submission_is_told_what_to_hand_in(place: Place, tmp_path: Path) -> None:
    (tmp_path / "submission").mkdir()
    assert "hand in 09_tiny.ipynb" in grade(place.chapter, tmp_path)["output"]


def test_a_grader_that_breaks_writes_no_mark(place: Place) -> None:
    hidden = place.root / "source" / "solutions" / "tiny" / "hidden.py"
    text = hidden.read_text()
    hidden.write_text("raise RuntimeError('ours')\n")
    try:
        done = place.submit({"x.ipynb": notebook(place.chapter, one=RIGHT)})
    finally:
        hidden.write_text(text)
    assert done.returncode == 1
    assert "RuntimeError: ours" in done.stderr
    assert not (place.root / "results" / "results.json").exists()


def test_a_chapter_that_is_not_there_is_one_line(place: Place) -> None:
    done = CliRunner().invoke(app, ["gradescope", "algebra"])
    assert (done.exit_code, done.output.count("\n")) == (2, 1)
