"""What a person sees of the course's strength: a table, and each survivor with its diff."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from autograder.progress import bars
from autograder.strength import WANTED, Part, Report, Told


@contextmanager
def shown(console: Console, what: str) -> Iterator[Told]:
    """A bar while mutants are tried; where there is no terminal, ten lines."""
    with bars(console) as progress:
        task = progress.add_task(what, total=None)

        def told(done: int, of: int) -> None:
            progress.update(task, total=of, completed=done)
            if not console.is_terminal and done * 10 // of > (done - 1) * 10 // of:
                console.print(f"{what}: {done} of {of} mutants", soft_wrap=True)

        yield told


def share(reports: Sequence[Report]) -> float:
    """Killed mutants among those that are not equivalent; 1 where there is none."""
    counted = sum(report.counted for report in reports)
    return sum(report.killed for report in reports) / counted if counted else 1.0


def weak(reports: Sequence[Report]) -> list[str]:
    """Which shares are too low: of each chapter's text, of the checks of all together."""
    texts = [([report], report.chapter.slug) for report in reports if report.part == "text"]
    checks = [report for report in reports if report.part == "checks"]
    found = []
    for group, name in [*texts, *([(checks, "the checks")] if checks else [])]:
        wanted = WANTED[group[0].part]
        if share(group) < wanted:
            found.append(f"{name}: {share(group):.1%} killed, {wanted:.0%} wanted")
    return found


def survivors(report: Report) -> Iterator[str]:
    """Each survivor as plain text: its id as TOML writes it, its diff, and what ran."""
    for number, each in enumerate(report.survivors, 1):
        yield f"{number}. {json.dumps(each.mutant.id, ensure_ascii=False)}"
        yield from (f"    {line}" for line in each.mutant.diff.splitlines())
        yield f"    ran: {', '.join(each.ran)}"
        if each.by:
            yield f"    only seen in the {each.by}"
        yield ""


def table(reports: Sequence[Report]) -> Table:
    """A row for each part of each chapter: what ended how many, and the share that was killed.

    same: listed as equivalent. output: nothing failed, but a cell printed something else.
    """
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in ("chapter", "part"):
        shown.add_column(name, no_wrap=True)
    for name in ("mutants", "assert", "late", "died", "same", "output", "survive", "killed"):
        shown.add_column(name, justify="right", no_wrap=True)
    for report in reports:
        counts = [report.count(how) for how in ("assertion", "timeout", "crash")]
        shown.add_row(
            report.chapter.slug,
            report.part,
            *map(str, (len(report.tried), *counts, report.equivalent)),
            *map(str, (report.count("output"), report.count("survived"))),
            f"{share([report]):.1%}",
        )
    return shown


def as_data(reports: Sequence[Report]) -> list[dict[str, Any]]:
    """All of it as plain data."""
    return [
        {
            "chapter": report.chapter.slug,
            "part": report.part,
            "mutants": len(report.tried),
            "killed": report.killed,
            "equivalent": report.equivalent,
            "timeouts": report.count("timeout"),
            "output_only": report.count("output"),
            "survived": report.count("survived"),
            "share": round(share([report]), 4),
            "problems": report.problems,
            "survivors": [
                {"id": each.mutant.id, "diff": each.mutant.diff, "seen": each.by}
                for each in report.survivors
            ],
        }
        for report in reports
    ]


PARTS: tuple[Part, ...] = ("text", "checks")
