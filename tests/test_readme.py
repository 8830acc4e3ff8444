"""The README's commands do what it says, in a fresh clone, with an empty cache, for a newcomer."""

import csv
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from autograder import course

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()


def commands() -> list[str]:
    """The README's first two code blocks, one command each: grade a class, run the tests."""
    return re.findall(r"^```sh\n(.*?)\n```$", README, re.M | re.S)[:2]


def git(*args: str) -> str:
    done = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def clone_into(folder: Path) -> None:
    """A clone of HEAD, with the changes of the working tree that git would add."""
    git("clone", "--quiet", str(ROOT), str(folder))
    for name in filter(None, git("ls-files", "-z", "--deleted").split("\0")):
        (folder / name).unlink(missing_ok=True)
    changed = git("ls-files", "-z", "--modified", "--others", "--exclude-standard")
    for name in filter(None, changed.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)


def newcomers_environment(home: Path) -> dict[str, str]:
    """This machine's settings for reaching packages; nothing of what the project left on it."""
    python = home / "python"
    venv.create(python, with_pip=True)  # what `pip install uv` installs into
    ours = ("NOX_", "PYTEST_", "COV_", "JUPYTER_", "IPYTHON", "XDG_")
    names = {"VIRTUAL_ENV", "PYTHONPATH", "PYENV_VERSION", "UV_PYTHON", "UV_PROJECT_ENVIRONMENT"}
    env = {k: v for k, v in os.environ.items() if k not in names and not k.startswith(ours)}
    path = [p for p in env["PATH"].split(os.pathsep) if Path(p) != Path(sys.prefix, "bin")]
    env |= {
        "HOME": str(home),
        "PATH": os.pathsep.join([str(python / "bin"), *path]),
        "UV_CACHE_DIR": str(home / "uv"),
        "PIP_CACHE_DIR": str(home / "pip"),
        "COURSE_README_TEST": "1",
    }
    # What pip, uv and pyenv would look for in the old home.
    old = {
        "PIP_CONFIG_FILE": Path.home() / ".config" / "pip" / "pip.conf",
        "UV_CONFIG_FILE": Path.home() / ".config" / "uv" / "uv.toml",
        "PYENV_ROOT": Path.home() / ".pyenv",
        "UV_PYTHON_INSTALL_DIR": Path.home() / ".local" / "share" / "uv" / "python",
    }
    return {name: str(path) for name, path in old.items() if path.exists()} | env


@pytest.fixture
def newcomer() -> Iterator[tuple[Path, dict[str, str]]]:
    # Not tmp_path: pytest would keep three of these, 2 GB each.
    with tempfile.TemporaryDirectory(prefix="readme-", ignore_cleanup_errors=True) as folder:
        home, clone = Path(folder, "home"), Path(folder, "clone")
        home.mkdir()
        clone_into(clone)
        yield clone, newcomers_environment(home)


def run(command: str, newcomer: tuple[Path, dict[str, str]]) -> str:
    clone, env = newcomer
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=clone,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=1500,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def test_the_readme_begins_with_its_two_commands_and_ci_runs_the_second() -> None:
    assert commands() == [
        "pip install uv && uv run noxfile.py -s grade",
        "uv run noxfile.py -s tests",
    ]
    assert (ROOT / ".ci" / "run").read_text().rstrip().splitlines()[-1] == commands()[1]


def test_the_readme_shows_what_grading_the_sample_class_prints() -> None:
    chapter = course.chapter("recompilation")
    known = sum(answer.kind == "wrong" for answer in chapter.answers)
    assert f"how {known} known mistakes behave" in README
    of = sum(exercise.points for exercise in chapter.exercises.values())
    shown = re.findall(rf"^(\w+) +recompilation +([\d.]+) of {of} ", README, re.MULTILINE)
    assert [student for student, _ in shown] == ["ada", "carl", "emil", "kim"]
    for student, points in shown:
        with (ROOT / f"tests/sample_class/expected/{student}.csv").open(newline="") as stream:
            assert sum(float(row["points"]) for row in csv.DictReader(stream)) == float(points)


@pytest.mark.readme
@pytest.mark.skipif(os.name == "nt", reason="the README's commands are written for a POSIX shell")
@pytest.mark.skipif("COURSE_README_TEST" in os.environ, reason="this is the clone")
def test_the_readme_commands_work_in_a_fresh_clone_with_an_empty_cache(
    newcomer: tuple[Path, dict[str, str]],
) -> None:
    grade, tests = commands()

    printed = run(grade, newcomer)
    assert "Session grade was successful" in printed
    clone = newcomer[0]
    marks: dict[str, list[tuple[str, ...]]] = {}
    with (clone / "build" / "class" / "marks.csv").open(newline="") as stream:
        for row in csv.DictReader(stream):
            marks.setdefault(row["student"], []).append(_mark(row))
    expected = clone / "tests" / "sample_class" / "expected"
    for path in expected.glob("*.csv"):
        with path.open(newline="") as stream:
            assert marks[path.stem] == [_mark(row) for row in csv.DictReader(stream)]
    assert len(marks) == len(list(expected.glob("*.csv"))) >= 10
    for student in marks:
        assert list((clone / "build" / "class" / "feedback" / student).glob("*.html")), student
    for name in ("marks.csv", "feedback/", "gradebook.db"):
        assert f"build/class/{name}" in printed, printed[-2000:]

    # In the clone the session runs lint and test_house.py alone: all of it is what runs this test.
    printed = run(tests, newcomer)
    assert "All checks passed!" in printed
    assert re.search(r"=+ \d+ passed", printed), printed[-2000:]
    assert "Session tests was successful" in printed


def _mark(row: dict[str, str]) -> tuple[str, ...]:
    return row["exercise"], f"{float(row['points']):g}", row["verdict"], row["diagnosis"]
