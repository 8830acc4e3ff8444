"""The command line; each command's work is in its module."""

import json
import os
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer
from rich.console import Console

from autograder import course as course_files
from autograder.course import Chapter, UnknownChapter

if TYPE_CHECKING:
    from autograder.classroom import Plan, Summary

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Builds the course's notebooks, checks them, and grades submissions.",
)
console = Console()
SAMPLE_CLASS = course_files.ROOT / "tests" / "sample_class" / "submitted"
SAMPLE_RESULTS = course_files.ROOT / "build" / "class"
Name = Annotated[
    str | None, typer.Argument(metavar="[CHAPTER]", help="1, 01, or its name; all by default.")
]


@app.command()
def build(
    chapter: Name = None,
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; say what is stale.")
    ] = False,
) -> None:
    """Build and execute the notebooks of the chapters from their sources."""
    from autograder import build as builder
    from autograder.source import SourceError

    stale = 0
    for one in chosen(chapter):
        try:
            if check:
                for problem in builder.stale(one):
                    stale += 1
                    typer.echo(str(problem), err=True)
            else:
                for path in builder.build(one):
                    typer.echo(f"wrote {path}")
        except SourceError as error:
            fail(str(error), code=1)
    raise typer.Exit(1 if stale else 0)


@app.command()
def check(
    chapter: Name = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many hidden draws to try.")] = 10,
) -> None:
    """Check the chapters' exercises against their banks of answers, and lint their cells.

    Each right answer is tried as it stands on all draws, and rewritten in several ways on one.
    """
    from autograder.bank import check_bank, processes
    from autograder.lint import lint, source_problem
    from autograder.problems import table
    from autograder.source import SourceError
    from autograder.variants import check_variants

    problems = []
    workers = os.cpu_count() or 1
    with processes(workers) if workers > 1 else nullcontext() as pool:
        for one in chosen(chapter):
            with console.status(f"checking {one.slug}"):
                found = lint(one)
                if lacks := one.lacks():
                    console.print(f"its bank is not tried: {lacks}", style="yellow")
                else:
                    try:
                        found += check_bank(one, seeds, pool) + check_variants(one, workers)
                    except SourceError as error:
                        found.append(source_problem(error))
            told = f"{len(found)} to mend" if found else "nothing to mend"
            console.print(f"{'❌' if found else '✅'} {one.slug}: {told}")
            problems += found
    if problems:
        console.print(table(problems))
        raise typer.Exit(1)


@app.command()
def strength(
    chapter: Name = None,
    text: Annotated[bool, typer.Option("--text", help="Only the taught code.")] = False,
    checks: Annotated[bool, typer.Option("--checks", help="Only the reference answers.")] = False,
    only: Annotated[
        str, typer.Option(metavar="TEXT", help="Only mutants with this in their ids.")
    ] = "",
    sample: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Only so many of each chapter and part.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Which sample.")] = 0,
    workers: Annotated[
        int | None, typer.Option(min=1, help="How many at a time; one a processor by default.")
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the results there, too.")
    ] = None,
) -> None:
    """Change the taught code and the reference answers; count the changes that go unnoticed."""
    from autograder import strength as measuring
    from autograder import strength_report as reporting
    from autograder.problems import UsageError

    parts = [part for part in reporting.PARTS if {"text": text, "checks": checks}[part]]
    choice = measuring.Choice(only, sample, seed)
    reports = []
    for one in chosen(chapter):
        if lacks := one.lacks():
            console.print(f"not tried: {lacks}", style="yellow")
            continue
        for part in parts or reporting.PARTS:
            try:
                with reporting.shown(console, f"{one.slug} {part}") as told:
                    count = workers or os.cpu_count() or 1
                    report = measuring.measure(one, part, choice, count, told)
            except UsageError as error:
                fail(str(error))
            reports.append(report)
            for line in reporting.survivors(report):
                console.print(line, markup=False, highlight=False, soft_wrap=True)
    if only and not any(report.tried for report in reports):
        fail(f"no mutant has {only!r} in its id: ids begin with the name of a definition")
    console.print(reporting.table(reports))
    if json_file:
        write_json(json_file, reporting.as_data(reports))
    faults = [problem for report in reports for problem in report.problems]
    faults += reporting.weak(reports)
    for fault in faults:
        console.print(fault, style="red", markup=False, highlight=False, soft_wrap=True)
    raise typer.Exit(1 if faults else 0)


def write_json(path: Path, data: object) -> None:
    """Writes a file; one that can't be written ends the command with code 2."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        fail(f"can't write {path}: {error.strerror}")


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="CHAPTER", help="Small letters: `buffers`.")],
    number: Annotated[
        int | None, typer.Option(min=0, max=99, help="By default the next one.")
    ] = None,
) -> None:
    """Make the files of a new chapter, with one exercise that works."""
    from autograder import scaffold

    made(lambda: scaffold.new_chapter(name, number), name)


@app.command("new-exercise")
def new_exercise(
    chapter: Annotated[str, typer.Argument(metavar="CHAPTER", help="1, 01, or its name.")],
    exercise: Annotated[str, typer.Argument(metavar="ID", help="As in 1.6.")],
    answer: Annotated[str, typer.Option(help="The name that learners define.")] = "weighted_mean",
) -> None:
    """Add an exercise that works, and a section for it, at the end of a chapter's files."""
    from autograder import scaffold

    (one,) = chosen(chapter)
    made(lambda: scaffold.new_exercise(one, exercise, answer), one.name)


def made(files: Callable[[], list[Path]], chapter: str) -> None:
    """Says which files were written, and how to go on."""
    from autograder.problems import UsageError
    from autograder.source import SourceError

    try:
        for path in files():
            typer.echo(f"wrote {path}")
    except UsageError as error:
        fail(str(error))
    except SourceError as error:
        fail(str(error), code=1)
    typer.echo(f"write where there is a ✍️; `autograder check {chapter}` names what is left")


@app.command()
def release(
    out: Annotated[Path, typer.Option(help="The zip to write.")] = Path("practical-jax.zip"),
) -> None:
    """Pack what learners get: chapters, helpers, set-up files; no solution and no grader."""
    from autograder import release as packer
    from autograder.problems import UsageError

    try:
        names = packer.release(out)
    except UsageError as error:
        fail(str(error), code=1)
    except OSError as error:
        fail(f"can't write {error.filename or out}: {error.strerror}")
    typer.echo(f"wrote {out}: {len(names)} files")


@app.command()
def course(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Made if it isn't there.")],
    chapter: Annotated[str | None, typer.Option(help="One chapter; all by default.")] = None,
    engine: Annotated[
        bool, typer.Option(help="Whether `nbgrader autograde` grades with the course's engine.")
    ] = True,
) -> None:
    """Lay out a folder in which nbgrader's commands and formgrader work."""
    from autograder.nbgrader_course import CourseFolderError, lay_out
    from autograder.source import SourceError

    try:
        for path in lay_out(directory, chosen(chapter), engine=engine):
            typer.echo(f"wrote {path}")
    except (CourseFolderError, SourceError) as error:
        fail(str(error), code=1)
    except OSError as error:
        fail(f"can't write {error.filename or directory}: {error.strerror}")


@app.command()
def grade(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Folders, notebooks, zips.")
    ],
    chapter: Annotated[
        str | None, typer.Option(help="Only this one; by default each notebook says itself.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="How many at a time; one a processor by default.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder for marks and pages.")] = Path("graded"),
    again: Annotated[
        bool, typer.Option("--again", help="Grade anew what this folder has the verdicts of.")
    ] = False,
    shard: Annotated[
        str, typer.Option(metavar="I/N", help="Only the I-th of N parts, from 1.")
    ] = "1/1",
    parts: Annotated[
        list[Path] | None,
        typer.Option("--part", metavar="DIR", help="Take over this folder's verdicts. Repeatable."),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="A Dask scheduler whose workers grade.")
    ] = None,
) -> None:
    """Grade what was handed in: marks, feedback pages, nbgrader's gradebook.

    A run that was stopped goes on where it was when it is started again.
    """
    from autograder.classroom import Plan

    plan = Plan(chapter, workers, part(shard), parts or (), again, cluster)
    summary = graded(paths, out, plan)
    raise typer.Exit(1 if summary.person else 0)


def graded(paths: Sequence[Path], out: Path, plan: "Plan | None" = None) -> "Summary":
    """Grades and shows it; what can't be graded at all ends the command with code 2."""
    from autograder import classroom, progress
    from autograder.problems import UsageError
    from autograder.sandbox import missing

    if missing():
        typer.secho(f"NOT ISOLATED: {missing()}. See SECURITY.md.", err=True, fg="red", bold=True)
    try:
        with progress.shown(console) as (told, learned):
            summary = classroom.grade(paths, out, plan or classroom.Plan(), told, learned)
    except UsageError as error:
        fail(str(error))
    progress.report(summary, console)
    return summary


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(metavar="OUT", help="A results folder of `grade`.")],
    to: Annotated[
        Literal["csv", "canvas", "moodle", "gradescope"],
        typer.Option("--format", help="Who takes the files."),
    ] = "csv",
    roster: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The class as that system exports it, CSV."),
    ] = None,
    files: Annotated[
        Path | None,
        typer.Option("--to", metavar="DIR", help="Where the files go; OUT/export by default."),
    ] = None,
) -> None:
    """Write the marks for Canvas, Moodle or Gradescope, or as one plain table.

    The exit code is 1 where somebody is in the marks or in the roster only; each is named.
    """
    from autograder import export as exporter
    from autograder.problems import UsageError

    try:
        done = exporter.export(folder, to, files or folder / "export", roster)
    except UsageError as error:
        fail(str(error))
    except OSError as error:
        fail(f"can't write {error.filename}: {error.strerror}")
    for path in done.files:
        typer.echo(f"wrote {path}")
    for sentence in done.left:
        typer.echo(sentence, err=True)
    raise typer.Exit(1 if done.left else 0)


@app.command()
def gradescope(
    chapter: Annotated[str, typer.Argument(metavar="CHAPTER", help="1, 01, or its name.")],
    out: Annotated[
        Path | None, typer.Option(metavar="ZIP", help="The zip; CHAPTER_gradescope.zip by default.")
    ] = None,
) -> None:
    """Pack a chapter as an autograder zip for Gradescope, solutions included."""
    from autograder import gradescope as packer
    from autograder.source import SourceError

    (one,) = chosen(chapter)
    try:
        path = packer.pack(one, out or Path(f"{one.slug}_gradescope.zip"))
    except SourceError as error:
        fail(str(error), code=1)
    except OSError as error:
        fail(f"can't write {error.filename}: {error.strerror}")
    typer.echo(f"wrote {path}: it holds solutions, so it is for Gradescope alone")


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(metavar="OUT", help="What `autograder grade` wrote.")],
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The page; OUT/report.html by default.")
    ] = None,
) -> None:
    """Write one page on a graded class, and a CSV of its exercises beside it."""
    from autograder import report as page
    from autograder.problems import UsageError
    from autograder.source import SourceError

    try:
        for path in page.write(folder, to):
            typer.echo(f"wrote {path}")
    except UsageError as error:
        fail(str(error))
    except SourceError as error:
        fail(str(error), code=1)
    except OSError as error:
        fail(f"can't write {error.filename or to or folder}: {error.strerror}")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def serve(
    context: typer.Context,
    folder: Annotated[
        Path | None,
        typer.Argument(metavar="[OUT]", help="What `autograder grade` wrote; the sample class."),
    ] = None,
) -> None:
    """Open formgrader on a graded class: comment, change marks. Ctrl-C ends it.

    Further options go to JupyterLab, as in `--no-browser` or `--port 9000`.
    """
    from autograder import serve as server
    from autograder.gradebook import DATABASE
    from autograder.problems import UsageError

    options = list(context.args)
    if folder and str(folder).startswith("-"):  # an option, where OUT was left out
        options, folder = [str(folder), *options], None
    if folder is None and not (SAMPLE_RESULTS / DATABASE).exists():
        graded([SAMPLE_CLASS], SAMPLE_RESULTS)
    try:
        server.serve(folder or SAMPLE_RESULTS, options)
    except UsageError as error:
        fail(str(error))


def part(shard: str) -> tuple[int, int]:
    """("3/8") → (3, 8); anything else ends the command with code 2."""
    number, slash, of = shard.partition("/")
    if not (slash and number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        fail(f"--shard {shard}: write I/N with I from 1 to N, as in 3/8")
    return int(number), int(of)


def chosen(name: str | None) -> list[Chapter]:
    """The chapter of that name, or all; an unknown one ends the command with code 2."""
    try:
        return [course_files.chapter(name)] if name else course_files.chapters()
    except UnknownChapter as error:
        fail(str(error))


def fail(message: str, code: int = 2) -> NoReturn:
    """Ends the command with one line; 2 is for what the user typed."""
    typer.echo(message, err=True)
    raise typer.Exit(code)
