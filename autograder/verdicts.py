"""Verdicts, kept by all that they depend on: a run that was killed goes on where it stopped.

One SQLite file in each results folder. What is in it is never graded again, by whichever run; parts
of a class that were graded elsewhere are merged by copying their rows.
"""

import functools
import hashlib
import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from autograder.problems import UsageError
from autograder.results import Graded, Submission
from autograder.sandbox import missing
from autograder.session import Asking
from helpers.diagnosis import Misconception
from helpers.exercise import Assessment, Finding

NAME = "verdicts.db"


def key(asking: Asking, submission: Submission) -> str:
    """The same for the same code, until the course, the grader or the isolation changes."""
    code = sorted(submission.answers.items()), submission.extra
    what = version(asking), missing(), code
    return hashlib.sha256(repr(what).encode()).hexdigest()


def version(asking: Asking) -> str:
    """A digest of the chapter, its cases, and the grader's own source."""
    return f"{asking.key}-{_grader()}"


@functools.cache
def _grader() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


class Verdicts:
    """The verdicts kept in one results folder; each is on disk when `keep` returns.

    A context manager. Raises sqlite3.Error where the file can't be read or written.
    """

    def __init__(self, folder: Path) -> None:
        self.table = sqlite3.connect(folder / NAME)
        self.table.execute("CREATE TABLE IF NOT EXISTS verdicts (key TEXT PRIMARY KEY, found TEXT)")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.table.close()

    def kept(self, key: str, submission: Submission) -> Graded | None:
        """The verdicts under a key, as those on this submission; None where there are none."""
        row = self.table.execute("SELECT found FROM verdicts WHERE key = ?", [key]).fetchone()
        return _read(json.loads(row[0]), submission) if row else None

    def keep(self, key: str, graded: Graded) -> None:
        """Writes verdicts under their key."""
        with self.table:
            row = [key, json.dumps(_written(graded))]
            self.table.execute("INSERT OR REPLACE INTO verdicts VALUES (?, ?)", row)

    def take_over(self, parts: Sequence[Path]) -> None:
        """Copies the verdicts of other results folders. Raises UsageError where one has none."""
        for part in parts:
            if not (part / NAME).is_file():
                raise UsageError(f"{part} has no {NAME}: name the results folder of a part")
            with sqlite3.connect(part / NAME) as other, self.table:
                rows = other.execute("SELECT key, found FROM verdicts")
                self.table.executemany("INSERT OR REPLACE INTO verdicts VALUES (?, ?)", rows)
            other.close()

    def forget(self) -> None:
        """Deletes all: everything is graded anew."""
        with self.table:
            self.table.execute("DELETE FROM verdicts")


def _written(graded: Graded) -> dict[str, Any]:
    kept = asdict(graded)
    del kept["submission"]  # the same code may come from another learner
    return kept


def _read(kept: Mapping[str, Any], submission: Submission) -> Graded:
    assessments = {
        key: Assessment(**{**each, "findings": tuple(Finding(**one) for one in each["findings"])})
        for key, each in kept["assessments"].items()
    }
    diagnoses = {key: Misconception(**each) for key, each in kept["diagnoses"].items()}
    rest = {"assessments": assessments, "diagnoses": diagnoses, "person": tuple(kept["person"])}
    return Graded(submission, **{**kept, **rest})
