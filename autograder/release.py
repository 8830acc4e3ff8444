"""What learners get, as one zip: chapters, `helpers`, set-up files; no solution and no grader."""

import functools
import re
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from autograder import build, course
from autograder.assembly import reference_answers
from autograder.course import Chapter
from autograder.problems import UsageError

FOLDER = "practical-jax"
AS_THEY_ARE = (
    "LICENSE",
    "LICENSE-chapters.txt",
    "environment.yml",
    "noxfile.py",
    "requirements.lock",
    "requirements-kauldron.lock",
)
WHEN = (1980, 1, 1, 0, 0, 0)  # the same zip from the same files


def release(out: Path) -> list[str]:
    """Writes the zip and returns the names in it.

    Raises UsageError where a notebook is not what its source builds, or a file holds a reference
    solution.
    """
    stale = [problem for chapter in course.chapters() for problem in build.stale(chapter)]
    if stale:
        raise UsageError(f"not released: {stale[0]}")
    files = dict(sorted(bundle()))
    for name, text in files.items():
        for key in leaks(text):
            raise UsageError(f"not released: {name} holds the reference solution of {key}")
    out.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            entry = zipfile.ZipInfo(f"{FOLDER}/{name}", WHEN)
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, text, zipfile.ZIP_DEFLATED)
    return list(files)


def bundle() -> Iterator[tuple[str, str]]:
    """Names and texts of the files."""
    for name in AS_THEY_ARE:
        yield name, (course.ROOT / name).read_text(encoding="utf-8")
    yield "README.md", (course.ROOT / "docs" / "learner.md").read_text(encoding="utf-8")
    yield "pyproject.toml", _without_grader((course.ROOT / "pyproject.toml").read_text("utf-8"))
    for chapter in course.chapters():
        for path in (chapter.notebook, chapter.public_bank, chapter.public_sections):
            yield _name(path), path.read_text(encoding="utf-8")
    for path in (course.ROOT / "helpers").rglob("*.py"):
        yield _name(path), path.read_text(encoding="utf-8")


def leaks(text: str) -> Iterator[str]:
    """Exercises whose reference solution stands in a text, wherever its lines are indented to."""
    plain = _plain(text.replace("\\n", "\n").replace('\\"', '"'))
    for key, region in _solutions(tuple(course.chapters())):
        if region in plain:
            yield key


@functools.cache
def _solutions(chapters: Sequence[Chapter]) -> list[tuple[str, str]]:
    """Each solution region of the references, with its exercise."""
    return [
        (key, _plain(region))
        for chapter in chapters
        for key, source in reference_answers(chapter).items()
        for region in re.findall(r"### BEGIN SOLUTION\n(.*?)### END SOLUTION", source, re.DOTALL)
    ]


def _plain(text: str) -> str:
    """Without indentation, blank lines and the quotes of JSON."""
    lines = (line.strip().strip('",').strip() for line in text.splitlines())
    return "\n".join(line for line in lines if line)


def _name(path: Path) -> str:
    return path.relative_to(course.ROOT).as_posix()


def _without_grader(project: str) -> str:
    project = re.sub(r"\[project\.scripts\]\n.*?\n\n", "", project, flags=re.DOTALL)
    return project.replace('packages = ["helpers", "autograder"]', 'packages = ["helpers"]')
