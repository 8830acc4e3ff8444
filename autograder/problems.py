"""What is wrong with the course's own files: one row a problem, and the table that shows them.

A problem always says where it is and what to do about it; who finds problems is no matter here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table


class UsageError(ValueError):
    """What was asked for can't be done, and nothing was done; the message is one line."""


@dataclass(frozen=True)
class Problem:
    """Something an author must mend.

    where: `file:line`, or a file and a cell. what: one sentence. todo: the way to mend it.
    """

    where: str
    what: str
    todo: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}: {self.todo}"


def table(problems: Sequence[Problem]) -> Table:
    """The problems as a table for a terminal."""
    shown = Table(show_lines=True)
    for heading in ("where", "what is wrong", "what to do"):
        shown.add_column(heading, overflow="fold")
    for problem in problems:
        shown.add_row(problem.where, problem.what, problem.todo)
    return shown
