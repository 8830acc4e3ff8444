"""The marks of a class as one table, `marks.csv`: a row for each exercise of each submission."""

import csv
import io
from collections.abc import Iterable
from pathlib import Path

from autograder.build import write as write_whole
from autograder.course import Chapter
from autograder.results import Graded

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

Row = tuple[str, ...]


def rows(graded: Iterable[tuple[Graded, Chapter]]) -> list[Row]:
    """The rows of all submissions, sorted by student, chapter and exercise."""
    found = [
        ((each.submission.student, chapter.number, _order(key)), _row(each, chapter, key))
        for each, chapter in graded
        for key in each.assessments
    ]
    return [row for _, row in sorted(found)]


def write(path: Path, graded: Iterable[tuple[Graded, Chapter]]) -> None:
    """Writes the table, whole or not at all."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows(rows(graded))
    write_whole(path, text.getvalue())


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
