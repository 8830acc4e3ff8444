"""A class as two tables: `marks.csv`, a row an exercise, and `submissions.csv`, a row a submission.

Whoever makes something of a graded class reads these, as a person would.
"""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from autograder.build import write as write_whole
from autograder.course import Chapter
from autograder.problems import UsageError
from autograder.results import Graded
from autograder.wording import BADGES, clean
from helpers.exercise import Verdict

MARKS, SUBMISSIONS = "marks.csv", "submissions.csv"

COLUMNS = (
    "student",
    "chapter",
    "exercise",
    "points",
    "max_points",
    "verdict",
    "diagnosis",
    "seconds",
)

TURNS = ("student", "chapter", "judged", "cpu_seconds", "peak_mb", "person")
"""Columns of submissions.csv. person: why one should look at it, "" if none needs to."""

Row = tuple[str, ...]


@dataclass(frozen=True)
class Mark:
    """A row of marks.csv. seconds: wall-clock."""

    student: str
    chapter: str
    exercise: str
    points: float
    max_points: float
    verdict: Verdict
    diagnosis: str
    seconds: float


@dataclass(frozen=True)
class Turned:
    """A row of submissions.csv. judged: whether its answers were run; if not, person says why."""

    student: str
    chapter: str
    judged: bool
    cpu_seconds: float
    peak_mb: float
    person: str


def rows(graded: Iterable[tuple[Graded, Chapter]]) -> list[Row]:
    """The rows of all submissions, sorted by student, chapter and exercise."""
    found = [
        ((each.submission.student, chapter.number, _order(key)), _row(each, chapter, key))
        for each, chapter in graded
        for key in each.assessments
    ]
    return [row for _, row in sorted(found)]


def write(folder: Path, graded: Iterable[tuple[Graded, Chapter]]) -> None:
    """Writes both tables, each whole or not at all."""
    graded = list(graded)
    write_whole(folder / MARKS, table(COLUMNS, rows(graded)))
    turned = sorted(graded, key=lambda each: (each[0].submission.student, each[1].number))
    write_whole(folder / SUBMISSIONS, table(TURNS, (_turn(*each) for each in turned)))


def table(columns: Sequence[str], rows: Iterable[Row]) -> str:
    """The rows below their columns, as CSV."""
    text = io.StringIO()
    written = csv.writer(text, lineterminator="\n")
    written.writerow(columns)
    written.writerows(rows)
    return text.getvalue()


def _turn(graded: Graded, chapter: Chapter) -> Row:
    return (
        graded.submission.student,
        chapter.name,
        "yes" if graded.judged else "no",
        f"{graded.cpu_seconds:.2f}",
        f"{graded.peak_mb:.0f}",
        "; ".join(clean(why) for why in graded.person),
    )


def _row(graded: Graded, chapter: Chapter, key: str) -> Row:
    assessment, known = graded.assessments[key], graded.diagnoses.get(key)
    return (
        graded.submission.student,
        chapter.name,
        key,
        f"{assessment.points:g}",
        f"{assessment.max_points:g}",
        assessment.verdict,
        known.name if known else "",
        f"{graded.seconds.get(key, 0.0):.2f}",
    )


def _order(exercise: str) -> tuple[int, ...]:
    return tuple(int(part) for part in exercise.split("."))


# --- reading -------------------------------------------------------------------------------------


T = TypeVar("T")


def read_marks(folder: Path) -> list[Mark]:
    """The rows of a results folder's marks.csv. Raises UsageError."""

    def mark(row: dict[str, str]) -> Mark:
        verdict = row["verdict"]
        if verdict not in BADGES:
            raise ValueError(f"there is no verdict {verdict!r}")
        return Mark(
            row["student"],
            row["chapter"],
            row["exercise"],
            float(row["points"]),
            float(row["max_points"]),
            verdict,
            row["diagnosis"],
            float(row["seconds"]),
        )

    return _read(folder / MARKS, COLUMNS, mark)


def read_turned(folder: Path) -> list[Turned]:
    """The rows of a results folder's submissions.csv. Raises UsageError."""

    def turned(row: dict[str, str]) -> Turned:
        return Turned(
            row["student"],
            row["chapter"],
            row["judged"] == "yes",
            float(row["cpu_seconds"]),
            float(row["peak_mb"]),
            row["person"],
        )

    return _read(folder / SUBMISSIONS, TURNS, turned)


def _read(path: Path, columns: Sequence[str], make: Callable[[dict[str, str]], T]) -> list[T]:
    line = 1
    try:
        with path.open(newline="", encoding="utf-8-sig") as stream:
            table = csv.DictReader(stream)
            if lost := [name for name in columns if name not in (table.fieldnames or ())]:
                raise ValueError(f"the column {lost[0]} is not there")
            found = []
            for row in table:
                line = table.line_num
                found.append(make(row))
            return found
    except OSError as error:
        why = f"{path}: {error.strerror}"
        raise UsageError(
            f"{why}: `autograder grade PATH... --out {path.parent}` writes it"
        ) from None
    except (ValueError, TypeError, csv.Error) as error:  # TypeError: float(None), a short row
        raise UsageError(f"{path}, line {line}: {error}") from None
