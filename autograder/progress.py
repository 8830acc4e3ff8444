"""What a person sees of a batch in the terminal: a line a submission, then tables.

Marks and pages are files; nothing here decides anything.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from autograder import diagnose
from autograder.classroom import Marked, Summary, Told
from autograder.course import Chapter
from autograder.wording import BADGES, clean, number

STYLES = {"good": "green", "half": "yellow", "bad": "red", "none": "dim", "odd": "magenta"}


def bars(console: Console) -> Progress:
    """Bars of long work, each with a count and its time, where there is a terminal."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


@contextmanager
def shown(console: Console) -> Iterator[tuple[Told, diagnose.Told]]:
    """What to call with news of a batch: bars, where there is a terminal, a line a submission."""
    with bars(console) as progress:
        learning = progress.add_task("known mistakes", total=None, visible=False)
        task = progress.add_task("submissions", total=None)
        legend = "  ".join(f"{badge.sign} {verdict}" for verdict, badge in BADGES.items())
        started = False

        def tell(marked: Marked, of: int) -> None:
            nonlocal started
            if not started:
                console.print(legend, style="dim", highlight=False, soft_wrap=True)
                started = True
            progress.update(task, total=of, advance=1)
            console.print(line(marked), soft_wrap=True)

        def learned(done: int, of: int) -> None:
            if done == 1:
                console.print(f"first, once a course: how {of} known mistakes behave", style="dim")
            progress.update(learning, completed=done, total=of, visible=done < of)

        yield tell, learned


def line(marked: Marked) -> Text:
    """One submission: who, how many points, a sign an exercise, seconds, whether it needs one."""
    graded = marked.graded
    text = Text(f"{graded.submission.student:<20} {marked.chapter.name:<14} ")
    of = number(graded.max_points)
    text.append(f"{number(graded.points):>6} of {of}  ", "bold")
    for key, assessment in graded.assessments.items():
        badge = BADGES[assessment.verdict]
        text.append(f" {key} {badge.sign:<2}", STYLES[badge.tone])
    text.append(f" {sum(graded.seconds.values()):5.1f} s", "dim")
    if graded.person:
        text.append("  needs a person", "bold magenta")
    return text


def report(summary: Summary, console: Console) -> None:
    """The tables at the end, and where everything is."""
    for chapter in dict.fromkeys(each.chapter for each in summary.marked):
        console.print(exercises(summary, chapter))
    if summary.aside:
        console.print(_list("set aside, as another file counts", summary.aside))
    if summary.person:
        console.print(person(summary))
    count = len(summary.marked)
    console.print(
        f"{count} submission{'' if count == 1 else 's'} graded{_before(summary)}. Results:"
    )
    for what, where in (
        ("marks", "marks.csv"),
        ("feedback pages", "feedback"),
        ("gradebook", "gradebook.db (formgrader and `nbgrader export` work in this folder)"),
    ):
        console.print(f"  {what:<16}{summary.out}/{where}", soft_wrap=True, highlight=False)


def _before(summary: Summary) -> str:
    if not summary.kept:
        return ""
    return f", {summary.kept} of them by an earlier run (--again grades those anew)"


def exercises(summary: Summary, chapter: Chapter) -> Table:
    """How a class did in each exercise of a chapter."""
    graded = [each.graded for each in summary.marked if each.chapter == chapter]
    counts = {
        key: Counter(each.assessments[key].verdict for each in graded) for key in chapter.exercises
    }
    met = [verdict for verdict in BADGES if any(count[verdict] for count in counts.values())]
    table = _table(f"{chapter.slug}: {len(graded)} submissions")
    table.add_column("ex.", no_wrap=True)
    table.add_column("mean", justify="right", no_wrap=True)
    for verdict in met:
        table.add_column(verdict, justify="right", no_wrap=True)
    for key, exercise in chapter.exercises.items():
        mean = sum(each.assessments[key].points for each in graded) / len(graded)
        cells = [str(counts[key][verdict] or "·") for verdict in met]
        table.add_row(key, f"{number(mean)} of {exercise.points}", *cells)
    mean = sum(each.points for each in graded) / len(graded)
    table.add_row("all", f"{number(mean)} of {number(graded[0].max_points)}", style="bold")
    return table


def person(summary: Summary) -> Table:
    """What needs a person, and why."""
    table = _table("needs a person")
    for name in ("student", "chapter", "why"):
        table.add_column(name, overflow="fold")
    for student, chapter, why in summary.person:
        table.add_row(Text(student), chapter, Text(clean(why)))
    return table


def _list(title: str, rows: list[str]) -> Table:
    table = _table(title, show_header=False)
    for row in rows:
        table.add_row(Text(clean(row)))
    return table


def _table(title: str, show_header: bool = True) -> Table:
    return Table(
        title=f"\n{title}",
        title_justify="left",
        title_style="bold",
        box=box.SIMPLE_HEAD,
        show_header=show_header,
        show_edge=False,
        pad_edge=False,
        collapse_padding=True,
    )
