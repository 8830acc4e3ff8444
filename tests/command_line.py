"""`autograder grade` in a process of its own, in a checkout of its own; and what it left."""

import csv
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nbgrader.api import Gradebook

from autograder import course

PACKAGE = Path(course.__file__).parent


@dataclass(frozen=True)
class Ran:
    """What a run of the command left."""

    done: subprocess.CompletedProcess[str]
    marks: dict[str, dict[str, dict[str, str]]]
    header: list[str]
    students: list[str]
    scores: dict[str, float]
    files: set[str]


def checkout_with_grader() -> Path:
    """The checkout whose only chapter is the made-up one, with the grader in it."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PACKAGE, course.ROOT / "autograder", ignore=ignored)
    return course.ROOT


def run(
    checkout: Path, *arguments: object, columns: int = 120, **more: Any
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "autograder", "grade", *map(str, arguments)]
    environment = os.environ | {
        "COLUMNS": str(columns),
        "XDG_CACHE_HOME": str(checkout.parent / "cache"),
        "PYTHONPATH": str(checkout),
    }
    return subprocess.run(
        command, cwd=checkout, env=environment, capture_output=True, text=True, **more
    )


def look(done: subprocess.CompletedProcess[str], out: Path) -> Ran:
    assert (out / "marks.csv").exists(), done.stderr
    with (out / "marks.csv").open(newline="", encoding="utf-8") as file:
        table = csv.DictReader(file)
        marks: dict[str, dict[str, dict[str, str]]] = {}
        students = []
        for row in table:
            students.append(row["student"])
            marks.setdefault(row["student"], {})[row["exercise"]] = row
        header = list(table.fieldnames or [])
    with Gradebook(f"sqlite:///{out}/gradebook.db") as book:
        scores = {s.student.id: s.score for s in book.assignment_submissions("09_tiny")}
    files = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
    return Ran(done, marks, header, students, scores, files)
