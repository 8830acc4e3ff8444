"""What an author starts from: new files that work, a page that is true, and a check that names."""

import ast
import importlib
import os
import re
import runpy
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import ROOT
from rich.console import Console
from typer.testing import CliRunner

from autograder import cli, course, scaffold
from autograder.bank import check_bank
from autograder.course import Chapter
from autograder.lint import lint
from autograder.problems import Problem
from autograder.variants import CHANGES, try_exercise
from helpers import exercises

PAGE = (ROOT / "docs" / "exercise.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+) ?(\S*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SEEDS = 2


@pytest.fixture
def run(
    tiny: Chapter, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str], tuple[int, str]]]:
    """Runs a command in a course of one chapter, in this process; says its exit code and output."""
    monkeypatch.setattr(os, "cpu_count", lambda: 1)  # no process that would import another course
    monkeypatch.setattr(cli, "console", Console(width=500))  # no line of a table is broken

    def command(line: str) -> tuple[int, str]:
        importlib.invalidate_caches()
        done = CliRunner().invoke(cli.app, line.split())
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code, done.output

    yield command
    for name in [name for name in sys.modules if name.startswith("helpers.exercises.")]:
        if not (ROOT / "helpers" / "exercises" / f"{name.rpartition('.')[2]}.py").exists():
            del sys.modules[name]


def problems(chapter: Chapter) -> list[Problem]:
    """What `autograder check` finds, rewritten answers apart, in this process."""
    importlib.invalidate_caches()
    return [*lint(chapter), *check_bank(chapter, SEEDS)]


def sources(name: str) -> list[Path]:
    module = course.ROOT / "helpers" / "exercises" / f"{name}.py"
    return [module, *sorted((course.ROOT / "solutions" / name).glob("*.py"))]


def places(name: str) -> int:
    return sum(path.read_text().count("# ✍️ ") for path in sources(name))


# --- new files -----------------------------------------------------------------------------------


def test_a_new_chapter_works_and_check_names_what_is_to_write(run) -> None:
    code, said = run("new buffers")
    assert code == 0
    assert said.count("wrote ") == 5
    exercises.CHAPTERS[10] = "buffers"  # a new process reads it from the table
    found = problems(Chapter(10, "buffers"))
    assert [each for each in found if not each.what.startswith("still to write: ")] == []
    assert len(found) == places("buffers") == 9
    assert try_exercise("buffers", "10.1", tuple(CHANGES)) == []


def test_a_new_exercise_works_in_a_chapter_that_exists(tiny: Chapter, run) -> None:
    code, said = run("new-exercise tiny 9.3 --answer running_mean")
    assert code == 0
    assert said.count("wrote ") == 4
    sys.modules.pop("helpers.exercises.tiny", None)
    found = problems(Chapter(9, "tiny"))
    assert [each for each in found if not each.what.startswith("still to write: ")] == []
    assert len(found) == places("tiny") == 8
    assert list(Chapter(9, "tiny").exercises) == ["9.1", "9.2", "9.3"]


def test_new_files_are_formatted_and_lint_free(run) -> None:
    run("new buffers")
    run("new-exercise tiny 9.3")
    options = ["--config", str(ROOT / "pyproject.toml"), "--no-cache"]
    for command, names in ((["format", "--check"], ("buffers", "tiny")), (["check"], ("buffers",))):
        paths = [str(path) for name in names for path in sources(name)]
        ruff = [sys.executable, "-m", "ruff", *command, *options, *paths]
        done = subprocess.run(ruff, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout


def test_the_table_of_chapters_gets_a_line() -> None:
    path = ROOT / scaffold.TABLE
    text = scaffold._with_chapter(path.read_text(encoding="utf-8"), Chapter(20, "buffers"))
    table = runpy.run_path(str(path))["CHAPTERS"]
    (line,) = set(text.splitlines()) - set(path.read_text(encoding="utf-8").splitlines())
    assert line == '    20: "buffers",'
    assert ast.parse(text)
    assert 20 not in table


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("new tiny", "tiny.py is there already: take another name"),
        ("new Buffers", "'Buffers' is no name for a chapter: small letters, digits, underscores"),
        ("new class", "'class' is no name for a chapter"),
        ("new ../up", "'../up' is no name for a chapter"),
        ("new buffers --number 9", "chapter 9 is there already, tiny: take another number"),
        ("new-exercise tiny 9.2", "exercise 9.2 is there already: take another number"),
        ("new-exercise tiny 1.7", "'1.7' is no exercise of 09_tiny: 9.…"),
        ("new-exercise tiny 9.3 --answer at", "09_tiny defines at already: say another with"),
        ("new-exercise tiny 9.3 --answer a-b", "'a-b' is no name for a function"),
        ("new-exercise algebra 9.3", "there is no chapter 'algebra'; there are 09_tiny"),
    ],
)
def test_what_is_there_is_not_overwritten(run, line: str, said: str) -> None:
    before = {path: path.read_bytes() for path in course.ROOT.rglob("*.py")}
    code, output = run(line)
    assert (code, output.count("\n")) == (2, 1)
    assert said in output
    assert {path: path.read_bytes() for path in course.ROOT.rglob("*.py")} == before


# --- the page ------------------------------------------------------------------------------------


def test_the_page_makes_an_exercise_with_nothing_to_mend(run) -> None:
    made, first, again, _ = (text.strip() for kind, _, text in BLOCKS if kind == "sh")
    assert run(made.removeprefix("autograder "))[0] == 0
    files = {name: text for kind, name, text in BLOCKS if kind == "python"}
    assert {course.ROOT / name for name in files} == set(sources("unit_vectors"))
    for name, text in files.items():
        (course.ROOT / name).write_text(text, encoding="utf-8")
    exercises.CHAPTERS[20] = "unit_vectors"
    assert first == again == "autograder check unit_vectors"
    assert problems(Chapter(20, "unit_vectors")) == []
    assert try_exercise("unit_vectors", "20.1", tuple(CHANGES)) == []


# --- what check names ----------------------------------------------------------------------------


TASK = "# Write `safe_mean(values, mask)`. Both are arrays of shape (n,); it returns a number."


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            TASK,
            "# Write a safe mean of an array.",
            "the task of 9.1 does not state `safe_mean(values, mask)`",
        ),
        (
            TASK,
            "# Write `safe_mean(values)`, of an array.",
            "the task of 9.1 does not state `safe_mean(values, mask)`",
        ),
        (
            "def safe_mean(values, mask):",
            "def safe_mean(mask, values):",
            "the task of 9.1 does not state `safe_mean(mask, values)`",
        ),
        (TASK, "# Write `safe_mean(values, mask)`.", "the task of 9.1 gives no type or shape"),
        (
            "def at(values, index):",
            "class at:\n    def __init__(self, place): ...\n\n\ndef at(values, index):",
            "the task of 9.2 does not state `at(place)`",
        ),
    ],
)
def test_a_task_without_its_interface_is_named(said, old: str, new: str, expected: str) -> None:
    (problem,) = said(old, new)
    assert problem.startswith("solutions/tiny/chapter.py:")
    assert expected in problem


def test_a_signature_may_have_defaults_and_break_its_line(said) -> None:
    wrapped = TASK.replace("`safe_mean(values, mask)`", "`safe_mean(values,\n# mask=None)`")
    assert said(TASK, wrapped) == []


def test_a_source_that_can_not_be_built_is_a_row_of_the_table(tiny: Chapter, run) -> None:
    text = tiny.source.read_text()
    tiny.source.write_text(text.replace('# %% [markdown] exercise="9.2"', "# %% [markdown]"))
    code, output = run("check tiny --seeds 1")
    assert code == 1
    assert "exercise 9.2 has 0 task cells" in output
