"""Gradescope: a chapter as an autograder zip, and what the grader says there of one submission.

The zip holds one chapter's solutions, the grader and the lock. In Gradescope's container there may
be no isolation; the results say so to the instructor. Published format:
https://gradescope-autograders.readthedocs.io/en/latest/specs/
"""

import json
import os
import shlex
import shutil
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from autograder import assembly, course
from autograder.course import Chapter
from autograder.grade import Grader
from autograder.intake import take_in
from autograder.problems import UsageError
from autograder.results import Graded
from autograder.sandbox import missing
from autograder.wording import clean, report

WHEN = (1980, 1, 1, 0, 0, 0)  # the same zip from the same files
EXECUTABLE = ("setup.sh", "run_autograder")
HERE = Path(__file__).parent


# --- the zip -------------------------------------------------------------------------------------


def pack(chapter: Chapter, out: Path) -> Path:
    """Writes the zip to upload. Raises SourceError and OSError.

    The secret of the hidden cases goes along where the environment has one, so that the verdicts
    are those of `autograder grade`.
    """
    assembly.solution_notebook(chapter)  # can't be graded where it can't be assembled
    return write_zip(out, dict(_members(chapter)))


def write_zip(out: Path, members: Mapping[str, str]) -> Path:
    """Writes texts under their names; Gradescope's two scripts may be executed."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in sorted(members.items()):
            entry = zipfile.ZipInfo(name, WHEN)
            entry.external_attr = (0o755 if name in EXECUTABLE else 0o644) << 16
            archive.writestr(entry, text, zipfile.ZIP_DEFLATED)
    return out


def _members(chapter: Chapter) -> Iterator[tuple[str, str]]:
    kauldron = "kauldron" in chapter.preloaded
    lock = "requirements-kauldron.lock" if kauldron else "requirements.lock"
    settings = {"CHAPTER": chapter.name, "LOCK": lock, "EXTRA": "kauldron" if kauldron else ""}
    if secret := os.environ.get(course.SECRET):
        settings[course.SECRET] = secret
    lines = (f"export {name}={shlex.quote(value)}\n" for name, value in settings.items())
    yield "settings.sh", "".join(lines)
    yield "setup.sh", (HERE / "gradescope_setup.sh").read_text(encoding="utf-8")
    yield "run_autograder", (HERE / "gradescope_run.sh").read_text(encoding="utf-8")
    files = [course.ROOT / "pyproject.toml", course.ROOT / lock]
    files += sorted(chapter.source.parent.glob("*.py"))
    files += sorted(HERE.rglob("*.py"))
    files += [
        p for p in sorted((course.ROOT / "helpers").rglob("*")) if p.suffix in (".py", ".json")
    ]
    for path in files:
        yield path.relative_to(course.ROOT).as_posix(), path.read_text(encoding="utf-8")


# --- in the container ----------------------------------------------------------------------------


def prepare(chapter: Chapter) -> None:
    """Finds out how known mistakes behave while the image is built: it takes a while."""
    Grader(chapter).parent.close()


def grade(chapter: Chapter, root: Path) -> dict[str, Any]:
    """The results on what lies in root/submission, as Gradescope reads them."""
    started = time.monotonic()
    if missing():
        print(f"NOT ISOLATED: {missing()}. See SECURITY.md.")
    with tempfile.TemporaryDirectory() as scratch:
        # One submitter, whatever the files are called: nbgrader's folders say so.
        place = Path(scratch) / "submitted" / "submitter" / chapter.slug
        shutil.copytree(root / "submission", place)
        try:
            turns, _ = take_in([place.parent.parent], Path(scratch) / "out", chapter.name)
        except UsageError:
            return result(0.0, [], f"There is no notebook in it: hand in {chapter.slug}.ipynb.")
        (turn,) = turns
        if turn.handed.problem:
            return result(0.0, [], turn.handed.problem)
        with Grader(chapter) as grader:
            graded = grader.grade(turn.handed)
    return results(graded) | {"execution_time": round(time.monotonic() - started, 1)}


def results(graded: Graded) -> dict[str, Any]:
    """A test for each exercise, and one that only instructors see where a person is needed."""
    tests = [
        test(key, each.title, each.points, each.max_points, report(each, graded.diagnoses.get(key)))
        for key, each in graded.assessments.items()
    ]
    told = [clean(why) for why in graded.person]
    if missing():
        told.append(f"Not isolated: {missing()}.")
    if told:
        about = {"name": "For the instructor", "output": "\n".join(told), "visibility": "hidden"}
        tests.append(about)
    return result(graded.points, tests, "\n".join(graded.submission.notes))


def result(score: float, tests: Sequence[Mapping[str, Any]], output: str) -> dict[str, Any]:
    """Gradescope's results.json. score: counts, whatever its tests add up to."""
    about = {"output": output} if output else {}
    return {"score": score, **about, "tests": list(tests)}


def test(number: str, name: str, score: float, max_score: float, output: str) -> dict[str, Any]:
    """One of its tests, which a learner sees at once."""
    return {
        "number": number,
        "name": name,
        "score": score,
        "max_score": max_score,
        "output": output,
        "visibility": "visible",
    }


def main(task: str, name: str, root: str) -> None:
    """`prepare` or `grade`, the chapter, and Gradescope's folder."""
    chapter = course.chapter(name)
    if task == "prepare":
        prepare(chapter)
        return
    path = Path(root) / "results" / "results.json"
    found = grade(chapter, Path(root))
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(found, ensure_ascii=False, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
