"""Verdicts on answers to the made-up chapter, found in this process: for tests of what is written.

The real assessment on real observations; only the sandbox is left out, as the answers are ours.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autograder.bank import course_code, misconception, run_answer
from autograder.course import Chapter
from autograder.judge import cases_of
from autograder.nbgrader_course import lay_out
from autograder.results import Graded, Submission
from autograder.submission import Handed
from helpers.diagnosis import Misconception, recognised
from helpers.exercise import Tried, assess

RIGHT = (
    "def safe_mean(values, mask):\n    return float(np.mean(values[mask])) if mask.any() else 0.0"
)
HALF = "def safe_mean(values, mask):\n    return float(total(values * mask) / mask.sum())"
STUB = 'def safe_mean(values, mask):\n    raise NotImplementedError("your answer")'
BROKEN = "def safe_mean(values, mask):\n    return values <b>bold</b>"
AT = """def at(values, index):
    if index < 0:
        raise IndexError
    return int(values[index])"""


def results_folder(chapter: Chapter, cache: Path, target: Path) -> Path:
    """A results folder as nbgrader wants it, copied from a first one: that takes it seconds."""
    if not cache.exists():
        lay_out(cache, [chapter])
    return Path(shutil.copytree(cache, target))


def handed_in(chapter: Chapter, answers: Mapping[str, str], **more: Any) -> Handed:
    return Handed(more.pop("student", "ada"), chapter.name, Path("x.ipynb"), answers, **more)


def graded(chapter: Chapter, submission: Submission, **more: Any) -> Graded:
    """What the grader would say of it."""
    assessments, diagnoses = {}, {}
    for key, exercise in chapter.hidden.items():
        tried = _tried(chapter, key, submission.answers.get(key, STUB))
        assessments[key] = assess(exercise, tried)
        known = recognised(exercise, tried, _bank(chapter, key))
        if known and assessments[key].verdict in ("partial", "zero"):
            diagnoses[key] = known
    return Graded(submission, assessments, diagnoses, dict.fromkeys(assessments, 0.25), **more)


def _tried(chapter: Chapter, key: str, source: str) -> list[Tried]:
    asked = cases_of(chapter, key, "a secret")
    return run_answer(course_code(chapter), source, chapter.exercises[key], asked)


def _bank(chapter: Chapter, key: str) -> list[Misconception]:
    return [
        misconception(a, chapter.hidden[key], _tried(chapter, key, a.source))
        for a in chapter.answers
        if (a.exercise, a.kind) == (key, "wrong")
    ]
