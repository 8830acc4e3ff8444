"""The learner's bundle: all that a learner needs, and nothing that answers an exercise."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autograder import course
from autograder.assembly import reference_answers
from autograder.cli import app
from autograder.problems import UsageError
from autograder.release import FOLDER, leaks, release


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real course's bundle, unpacked."""
    folder = tmp_path_factory.mktemp("bundle")
    release(folder / "b.zip")
    with zipfile.ZipFile(folder / "b.zip") as archive:
        archive.extractall(folder)
    return folder / FOLDER


def test_it_holds_chapters_helpers_and_set_up_files_and_nothing_else(bundle: Path) -> None:
    tops = {path.name for path in bundle.iterdir()}
    assert tops >= {"README.md", "chapters", "helpers", "noxfile.py", "requirements.lock"}
    assert not tops & {"solutions", "autograder", "tests"}
    names = {path.stem for path in bundle.glob("chapters/*")}
    assert names == {chapter.slug for chapter in course.chapters()}


def test_no_file_of_it_holds_a_reference_solution(bundle: Path) -> None:
    for path in bundle.rglob("*"):
        if path.is_file():
            assert list(leaks(path.read_text(encoding="utf-8"))) == [], path


def test_a_reference_is_found_indented_or_not_and_in_a_notebook() -> None:
    chapter = course.chapter("recompilation")
    answer = reference_answers(chapter)["1.5"]
    assert list(leaks(answer)) == ["1.5"]
    assert list(leaks("\n".join(f"        {line}" for line in answer.splitlines()))) == ["1.5"]
    cell = {"source": answer.splitlines(keepends=True)}
    assert list(leaks(json.dumps(cell, indent=1, ensure_ascii=False))) == ["1.5"]


@pytest.mark.slow
def test_a_chapter_runs_in_it_without_the_rest_of_the_course(bundle: Path, tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": str(bundle), "COURSE_PROGRESS": str(tmp_path / "p.json")}
    where = "import helpers; print(helpers.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", where], cwd=bundle, env=env, capture_output=True, text=True
    )
    assert done.stdout.startswith(str(bundle))
    notebook = "chapters/00_start_here.ipynb"
    command = [sys.executable, "-m", "pytest", "--nbval-lax", "-p", "no:cacheprovider", notebook]
    done = subprocess.run(command, cwd=bundle, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:]


def test_its_project_installs_helpers_alone(bundle: Path) -> None:
    project = (bundle / "pyproject.toml").read_text()
    assert 'packages = ["helpers"]' in project
    assert "autograder.cli" not in project


def test_a_stale_chapter_is_not_released(tiny, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not released"):
        release(tmp_path / "b.zip")
    result = CliRunner().invoke(app, ["release", "--out", str(tmp_path / "b.zip")])
    assert result.exit_code == 1
    assert "run `autograder build tiny`" in result.output
    assert not (tmp_path / "b.zip").exists()
