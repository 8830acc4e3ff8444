"""Marks as other systems take them: tables for Canvas and Moodle, a zip for Gradescope, plain CSV.

They come from the results folder's gradebook, so that late penalties and what a person changed in
formgrader are in them. Nothing is sent anywhere. Sources of the formats: tests/test_export.py.
"""

import csv
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nbgrader.api import Gradebook, SubmittedAssignment

from autograder import recorded, roster
from autograder.build import write as write_whole
from autograder.gradebook import DATABASE
from autograder.gradescope import result, test, write_zip
from autograder.problems import UsageError
from autograder.roster import Roster, Row
from autograder.wording import number

System = Literal["csv", "canvas", "moodle", "gradescope"]
"""Who takes the marks."""


@dataclass(frozen=True)
class Part:
    """One exercise of a mark: points, and what was said about it, by a person if one did."""

    exercise: str
    points: float
    max_points: float
    comment: str


@dataclass(frozen=True)
class Mark:
    """A student's mark in a chapter. points: what is left after the penalty for being late."""

    student: str
    chapter: str
    points: float
    max_points: float
    penalty: float
    parts: Sequence[Part]

    @property
    def feedback(self) -> str:
        """All parts in a paragraph, and the penalty."""
        said = [f"{part.exercise}: {part.comment}" for part in self.parts if part.comment]
        late = [f"Late: −{number(self.penalty)}."] if self.penalty else []
        return " ".join([*said, *late])


@dataclass(frozen=True)
class Exported:
    """files: what was written. left: one sentence on everybody who is on one side only."""

    files: Sequence[Path]
    left: Sequence[str]


@dataclass(frozen=True)
class Entry:
    """A line of a table: our name, the person's row in the roster, the marks by chapter."""

    student: str
    row: Row
    marks: Mapping[str, Mark]


def export(folder: Path, system: System, to: Path, people: Path | None = None) -> Exported:
    """Writes a results folder's marks for a system, into the folder `to`.

    people: the system's own list of its class; by default our names are taken for logins there.
    Marks of students who are not in the list go to unmatched.csv. Raises UsageError and OSError.
    """
    by_student: dict[str, dict[str, Mark]] = {}
    for mark in marks(folder):
        by_student.setdefault(mark.student, {})[mark.chapter] = mark
    if people:
        listed = roster.read(people)
        _require_columns(people, listed, system)
        found = roster.match(by_student, listed)
    else:
        listed = Roster(list(_login(system, "")), [])
        found = roster.Match({s: _login(system, s) for s in by_student}, {}, [])
    entries = [Entry(s, row, by_student[s]) for s, row in sorted(found.rows.items())]
    files = WRITERS[system](to, entries, listed) if entries else []
    unmatched = [Entry(s, {}, by_student[s]) for s in sorted(found.unknown)]
    if unmatched:
        files.append(_table(to / "unmatched.csv", _by_student(unmatched, Roster([], []))))
    left = [f"{student} {why}: see unmatched.csv" for student, why in found.unknown.items()]
    left += [f"{roster.called(listed, row)} has no marks" for row in found.absent]
    return Exported(files, left)


def marks(folder: Path) -> list[Mark]:
    """The marks in a results folder. Raises UsageError."""
    path = folder / DATABASE
    if not path.is_file():
        raise UsageError(f"{folder} has no {DATABASE}: name a results folder of `autograder grade`")
    with Gradebook(f"sqlite:///{path}") as book:
        found = [_mark(each) for chapter in book.assignments for each in chapter.submissions]
    if not found:
        raise UsageError(f"{folder} has no marks yet: `autograder grade` makes them")
    return found


def _mark(submission: SubmittedAssignment) -> Mark:
    parts = []
    for notebook in submission.notebooks:
        said = {comment.name: comment.comment or "" for comment in notebook.comments}
        for grade in notebook.grades:
            comment = said.get(grade.name.replace("check-", "answer-"), "")
            exercise = grade.name.removeprefix("check-").replace("-", ".")
            parts.append(Part(exercise, grade.score, grade.max_score, comment))
    penalty = submission.late_submission_penalty or 0.0
    return Mark(
        submission.student.id,
        submission.name,
        max(0.0, submission.score - penalty),
        submission.max_score,
        penalty,
        sorted(parts, key=lambda part: [int(n) for n in re.findall(r"\d+", part.exercise)]),
    )


# --- who is who ----------------------------------------------------------------------------------

NEEDED: Mapping[System, Sequence[Sequence[str]]] = {
    "csv": (),
    "canvas": (("Student", "LastName"), ("ID",), ("Section",)),
    "moodle": (("Username", "ID number", "Email address"),),
    "gradescope": (("Email", "Email address"),),
}
"""Columns that a roster must have: one of each group."""


def _require_columns(path: Path, listed: Roster, system: System) -> None:
    for group in NEEDED[system]:
        if not any(listed.column(name) for name in group):
            names = " or ".join(f"“{name}”" for name in group)
            raise UsageError(f"{path}: no column {names}: export it from {system.capitalize()}")


def _login(system: System, student: str) -> Row:
    """A person of whom nothing is known but what we call them."""
    return {
        "csv": {},
        "canvas": {
            "Student": student,
            "ID": "",
            "SIS User ID": "",
            "SIS Login ID": student,
            "Section": "",
        },
        "moodle": {"Username": student},
        "gradescope": {"Email": student},
    }[system]


# --- the files -----------------------------------------------------------------------------------


def _plain(to: Path, entries: Sequence[Entry], listed: Roster) -> list[Path]:
    return [_table(to / "students.csv", _by_student(entries, listed))]


def _by_student(entries: Sequence[Entry], listed: Roster) -> list[list[str]]:
    """One row a student, a column a chapter, and the total."""
    about, chapters = listed.about(), _chapters(entries)
    rows = [["student", *about, *chapters, "total"]]
    for entry in entries:
        points = [_points(entry, chapter) for chapter in chapters]
        total = number(sum(mark.points for mark in entry.marks.values()))
        rows.append([entry.student, *(entry.row[c] for c in about), *points, total])
    return rows


def _canvas(to: Path, entries: Sequence[Entry], listed: Roster) -> list[Path]:
    """The roster's own columns up to Section, then assignments.

    One that the roster has already keeps its name, "01_recompilation (1234)", by which Canvas knows
    it, and its cell where there is no mark.
    """
    lead = list(listed.columns[: listed.columns.index(listed.column("Section")) + 1])
    chapters = _chapters(entries)
    theirs = {chapter: _assignment(listed, chapter) for chapter in chapters}
    possible = {slug: mark.max_points for entry in entries for slug, mark in entry.marks.items()}
    blank = [""] * (len(lead) - 1)
    rows = [
        [*lead, *theirs.values()],
        ["    Points Possible", *blank, *(number(possible[slug]) for slug in chapters)],
    ]
    for entry in entries:
        points = [
            _points(entry, slug) or entry.row.get(column, "") for slug, column in theirs.items()
        ]
        rows.append([*(entry.row[column] for column in lead), *points])
    return [_table(to / "canvas.csv", rows)]


def _assignment(listed: Roster, chapter: str) -> str:
    known = (c for c in listed.columns if re.fullmatch(rf"{re.escape(chapter)} \(\d+\)", c))
    return next(known, chapter)


def _moodle(to: Path, entries: Sequence[Entry], listed: Roster) -> list[Path]:
    """A file a chapter, with those who handed it in: an empty cell would delete a grade."""
    about = listed.about()
    files = []
    for chapter in _chapters(entries):
        rows = [[*about, chapter, f"{chapter} feedback"]]
        for entry in entries:
            if mark := entry.marks.get(chapter):
                who = (entry.row[column] for column in about)
                rows.append([*who, number(mark.points), mark.feedback])
        files.append(_table(to / f"moodle_{chapter}.csv", rows))
    return files


def _gradescope(to: Path, entries: Sequence[Entry], listed: Roster) -> list[Path]:
    """A zip a chapter, whose `run_autograder` looks the submitter's marks up by the address.

    By nothing else: everybody may call themselves as they like there.
    """
    column = listed.column("Email") or listed.column("Email address")
    files = []
    for chapter in _chapters(entries):
        by_email: dict[str, list[dict[str, Any]]] = {}
        for entry in entries:
            if mark := entry.marks.get(chapter):
                email = entry.row[column].strip().casefold()
                by_email.setdefault(email, []).append(_result(mark))
        unique = {email: found[0] for email, found in by_email.items() if len(found) == 1}
        members = {
            "marks.json": json.dumps(unique, ensure_ascii=False, indent=1),
            "run_autograder": Path(recorded.__file__).read_text(encoding="utf-8"),
            "setup.sh": "#!/usr/bin/env bash\napt-get update && apt-get install -y python3\n",
        }
        files.append(write_zip(to / f"gradescope_{chapter}.zip", members))
    return files


def _result(mark: Mark) -> dict[str, Any]:
    tests = [test(p.exercise, "", p.points, p.max_points, p.comment) for p in mark.parts]
    late = f"Late: −{number(mark.penalty)}." if mark.penalty else ""
    return result(mark.points, tests, late)


WRITERS: Mapping[System, Callable[[Path, Sequence[Entry], Roster], list[Path]]] = {
    "csv": _plain,
    "canvas": _canvas,
    "moodle": _moodle,
    "gradescope": _gradescope,
}


def _chapters(entries: Sequence[Entry]) -> list[str]:
    return sorted({chapter for entry in entries for chapter in entry.marks})


def _points(entry: Entry, chapter: str) -> str:
    """Points in the chapter, "" where nothing was handed in."""
    return number(entry.marks[chapter].points) if chapter in entry.marks else ""


def _table(path: Path, rows: Sequence[Sequence[str]]) -> Path:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    write_whole(path, text.getvalue())
    return path
