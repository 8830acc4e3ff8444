"""Who is who: the students of a results folder among those of a learning management system.

The system's own export of its class is read, whatever columns it has besides; nothing is guessed.
"""

import csv
import io
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from autograder.problems import UsageError

IDENTIFIERS = (
    "ID",
    "SIS User ID",
    "SIS Login ID",
    "Integration ID",
    "ID number",
    "Username",
    "Email address",
    "Email",
    "SID",
)
"""Columns of Canvas, Moodle and Gradescope that name one person each."""

NAMES = (
    ("Student",),
    ("Name",),
    ("Full name",),
    ("First name", "Last name"),
    ("First name", "Surname"),
    ("FirstName", "LastName"),
)
"""Columns that hold a name, whole or in two parts."""

NOBODY = {"pointspossible", "studenttest"}
"""What Canvas calls the row of maximal points, and the student that it tests with."""

Row = Mapping[str, str]
"""A person: the cells of a roster by the names of their columns."""


@dataclass(frozen=True)
class Roster:
    """A class as its system exports it. columns: in the file's order."""

    columns: Sequence[str]
    rows: Sequence[Row]

    def column(self, name: str) -> str:
        """The column as the file spells it, "" if there is none."""
        return next((c for c in self.columns if c.casefold() == name.casefold()), "")

    def about(self) -> list[str]:
        """The columns that say who somebody is, in the file's order."""
        names = {name for group in NAMES for name in group}
        wanted = {name.casefold() for name in (*IDENTIFIERS, *names)}
        return [column for column in self.columns if column.casefold() in wanted]


@dataclass(frozen=True)
class Match:
    """Our students in a roster.

    rows: by our name. unknown: those that are not in it, with why. absent: rows without a student.
    """

    rows: Mapping[str, Row]
    unknown: Mapping[str, str]
    absent: Sequence[Row]


def plain(text: str) -> str:
    """What is left of a name, address or number when only letters and digits count."""
    parts = unicodedata.normalize("NFKD", text.casefold())
    return "".join(c for c in parts if c.isalnum())


def read(path: Path) -> Roster:
    """The roster in a CSV file: commas, semicolons or tabs. Raises UsageError."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: is not UTF-8: export it as CSV in UTF-8") from None
    first = text.partition("\n")[0]
    delimiter = max(",;\t", key=first.count)
    table = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, restval="")
    columns = [column.strip() for column in table.fieldnames or ()]
    table.fieldnames = columns
    roster = Roster(columns, list(table))
    if not roster.about():
        known = ", ".join(IDENTIFIERS)
        raise UsageError(f"{path}: has no column that says who is who, such as {known}")
    called = ((row, keys(roster, row)) for row in roster.rows)
    return Roster(columns, [row for row, names in called if names and not names & NOBODY])


def match(students: Iterable[str], roster: Roster) -> Match:
    """Each student's row, where exactly one row fits and no other student has it."""
    known: dict[str, list[int]] = {}
    for place, row in enumerate(roster.rows):
        for key in keys(roster, row):
            known.setdefault(key, []).append(place)
    taken: dict[int, list[str]] = {}
    unknown: dict[str, str] = {}
    for student in students:
        fits = next((known[key] for key in _spellings(student, roster) if key in known), [])
        if len(fits) == 1:
            taken.setdefault(fits[0], []).append(student)
        else:
            several = f"fits {len(fits)} people of the roster" if fits else "is not in the roster"
            unknown[student] = several
    for twins in taken.values():
        if len(twins) > 1:
            unknown |= {s: f"is one person of the roster with {_others(s, twins)}" for s in twins}
    rows = {twins[0]: roster.rows[place] for place, twins in taken.items() if len(twins) == 1}
    absent = [row for place, row in enumerate(roster.rows) if place not in taken]
    return Match(rows, unknown, absent)


def _others(student: str, twins: Sequence[str]) -> str:
    return " and ".join(twin for twin in twins if twin != student)


def keys(roster: Roster, row: Row) -> set[str]:
    """All that a person may be called: identifiers, addresses without their host, names."""
    found = [row[column] for name in IDENTIFIERS if (column := roster.column(name))]
    found += [cell.partition("@")[0] for cell in found if "@" in cell]
    found += [f"{first} {last}" for first, last in _names(roster, row)]
    found += [f"{last} {first}" for first, last in _names(roster, row)]
    return {key for key in map(plain, found) if key}


def called(roster: Roster, row: Row) -> str:
    """How to name the person in a message."""
    return " · ".join(filter(None, (row[column].strip() for column in roster.about())))


def _names(roster: Roster, row: Row) -> Iterator[tuple[str, str]]:
    """(first, last) names; the whole name counts as the last one where nothing divides it."""
    for group in NAMES:
        cells = [row[column] for name in group if (column := roster.column(name))]
        if len(cells) < len(group):
            continue
        if len(cells) == 2:
            yield cells[0], cells[1]
        else:
            last, _, first = cells[0].partition(",")
            yield first, last


def _spellings(student: str, roster: Roster) -> Iterator[str]:
    """What to look a student up by, best first: downloads are called name_number.

    Canvas's number is the person's; Moodle's is the submission's, and says nothing.
    """
    named = re.fullmatch(r"(.+)_(\d+)", student)
    if named and roster.column("SIS Login ID"):
        yield named[2]
    yield plain(student)
    if named:
        yield plain(named[1])
