"""The lint of a chapter: cell roles, assertions behind claims and numbers, headings, outputs.

It reads the source and the committed notebook and runs nothing. Each rule is a function from what
it reads to problems; `SOURCE_RULES` and `NOTEBOOK_RULES` list them.
"""

import ast
import base64
import io
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import nbformat
from matplotlib.image import imread
from nbformat import NotebookNode
from nbformat.v4 import new_notebook

from autograder import course, source
from autograder.assertions import asserts, called, parsed
from autograder.course import Chapter
from autograder.interfaces import tasks_state_the_interface
from autograder.numbers import numbers_are_backed
from autograder.problems import Problem
from autograder.slicing import Statement, names, parse_python, statements
from autograder.source import SOLUTION, TIMED, Cell, SourceError, prose, short

LONGEST = 30
"""Lines of a code cell as a learner sees it: a quoted definition or a solution counts as one."""

MARKS = "❌✅✍🧪💡"
"""The only pictures in prose; each has one meaning throughout the course."""


def lint(chapter: Chapter) -> list[Problem]:
    """All rules, on the source and on the committed notebook."""
    try:
        cells = source.read(chapter)
        quoted = [source.with_quotes(cell) for cell in cells]
    except SourceError as error:
        return [source_problem(error)]
    found = [problem for rule in SOURCE_RULES for problem in rule(cells)]
    found += definitions_are_reached(quoted)
    found += answers_keep_their_names(chapter, quoted)
    found += headings_are_numbered(chapter, cells)
    found += nothing_is_left_to_write(chapter)
    notebook = new_notebook()
    if chapter.notebook.exists():
        text = chapter.notebook.read_text(encoding="utf-8")
        notebook = nbformat.reads(text, as_version=4)
        for rule in NOTEBOOK_RULES:
            found += rule(chapter.notebook, notebook)
    found += numbers_are_backed(chapter, quoted, compared_output(notebook))
    return found


def source_problem(error: SourceError) -> Problem:
    """The row for a source that can't be built."""
    where, _, what = str(error).partition(": ")
    return Problem(where, what, "mend the source")


# --- cells ---------------------------------------------------------------------------------------


def one_role_each(cells: Sequence[Cell]) -> Iterator[Problem]:
    """Each code cell has exactly one role."""
    for cell in cells:
        if cell.kind == "code" and len(cell.roles) != 1:
            has = " and ".join(f"`{role}`" for role in cell.roles) or "no role"
            yield Problem(cell.at, f"the cell has {has}", f"tag it with one of {', '.join(ROLES)}")
        unknown = set(cell.tags) - {*source.ROLES, TIMED}
        if unknown:
            yield Problem(
                cell.at, f"unknown tags {sorted(unknown)}", "mend the spelling, or take them out"
            )


ROLES = tuple(role for role in source.ROLES if role != "selfcheck")
"""Roles that an author writes; the build adds the self-checks."""


def code_parses(cells: Sequence[Cell]) -> Iterator[Problem]:
    """Each code cell is Python: magics would run in a notebook only."""
    for cell in cells:
        if cell.kind == "code":
            try:
                parse_python(cell.text)
            except SyntaxError as error:
                line = cell.line + (error.lineno or 0)
                yield Problem(f"{short(cell.path)}:{line}", f"{error.msg}", "write plain Python")


def claims_assert(cells: Sequence[Cell]) -> Iterator[Problem]:
    """A claim cell asserts something."""
    for cell in cells:
        if "claim" in cell.roles and not asserts(cell.text):
            yield Problem(
                cell.at,
                "a claim cell that asserts nothing",
                "assert what it shows: `assert`, `assert_close`, `show_error(expect=…)`, "
                "`with CompileBudget(…)`",
            )


def cells_are_short(cells: Sequence[Cell]) -> Iterator[Problem]:
    """No code cell is longer than a screen; nobody reads imports."""
    for cell in cells:
        lines = len(SOLUTION.sub("", cell.text).splitlines())
        if cell.kind == "code" and "setup" not in cell.roles and lines > LONGEST:
            yield Problem(
                cell.at,
                f"{lines} lines in a cell, {LONGEST} at most",
                "split it, or move the code to a module of helpers and quote it",
            )


def figures_say_what_they_show(cells: Sequence[Cell]) -> Iterator[Problem]:
    """A figure has a title and both labels."""
    for cell in cells:
        if "figure" in cell.roles:
            missing = [what for what in ("title", "xlabel", "ylabel") if what not in _labels(cell)]
            if missing:
                yield Problem(
                    cell.at,
                    f"a figure without {' and '.join(missing)}",
                    "use `figure(title, xlabel, ylabel)` or `ax.set(…)`",
                )


def definitions_are_reached(quoted: Sequence[Cell]) -> Iterator[Problem]:
    """What a given cell defines is used, at whatever remove, by a cell that asserts.

    quoted: cells with their quotes expanded. A starter asserts: its check does.
    """
    parsed = {cell: statements(cell.text) for cell in quoted if cell.kind == "code"}
    known = [statement for each in parsed.values() for statement in each]
    for place, cell in enumerate(quoted):
        if "given" in cell.roles and not asserts(cell.text):
            later = [c for c in quoted[place + 1 :] if _proves(c)]
            reached = _closure({name for c in later for name in names(c.text)[1]}, known)
            for name in _definitions(cell.text):
                if name not in reached:
                    yield Problem(
                        cell.at,
                        f"no later assertion reaches `{name}`",
                        "use it in a claim cell behind it, or take it out",
                    )


def answers_keep_their_names(chapter: Chapter, quoted: Sequence[Cell]) -> Iterator[Problem]:
    """No cell of the course binds the name of an answer: run behind it, it would replace it."""
    asked = {name: key for key, exercise in chapter.exercises.items() for name in exercise.names}
    for cell in quoted:
        if cell.kind == "code" and set(cell.roles) & set(source.LOCKED):
            bound = {name for statement in statements(cell.text) for name in statement.binds}
            for name in sorted(bound & asked.keys()):
                yield Problem(
                    cell.at,
                    f"binds `{name}`, which is the answer to {asked[name]}",
                    "call it something else",
                )


def _proves(cell: Cell) -> bool:
    return cell.kind == "code" and ("starter" in cell.roles or asserts(cell.text))


def _closure(wanted: set[str], known: Iterable[Statement]) -> set[str]:
    """The names, and all that their definitions read, transitively."""
    statements_by_name: dict[str, list[Statement]] = {}
    for statement in known:
        for name in statement.binds | statement.changes:
            statements_by_name.setdefault(name, []).append(statement)
    reached, waiting = set(wanted), list(wanted)
    while waiting:
        for statement in statements_by_name.get(waiting.pop(), ()):
            fresh = statement.reads - reached
            reached |= fresh
            waiting.extend(fresh)
    return reached


def _definitions(text: str) -> list[str]:
    body = parsed(text).body
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return [node.name for node in body if isinstance(node, kinds)]


def _labels(cell: Cell) -> set[str]:
    """Which of title, xlabel and ylabel the code sets."""
    found: set[str] = set()
    for node in ast.walk(parsed(cell.text)):
        if isinstance(node, ast.Call):
            name = called(node)
            found.add(name.removeprefix("set_"))
            if name in ("set", "figure"):
                found.update(keyword.arg or "" for keyword in node.keywords)
            if name == "figure":
                found.update(("title", "xlabel", "ylabel")[: len(node.args)])
    return found


# --- prose ---------------------------------------------------------------------------------------


def headings_are_numbered(chapter: Chapter, cells: Sequence[Cell]) -> Iterator[Problem]:
    """`# 01 · Title` once, then `## 1.1 Title`, `## 1.2 Title`, … with no gap; references exist."""
    titles, number = 0, 0
    for cell, line, text in prose(cells):
        where = f"{short(cell.path)}:{line}"
        if text.startswith("# "):
            titles += 1
            if not text.startswith(f"# {chapter.number:02d} · ") or titles > 1:
                yield Problem(
                    where, "not the chapter's one title", f"write `# {chapter.number:02d} · Title`"
                )
        if text.startswith("## "):
            number += 1
            if not text.startswith(f"## {chapter.number}.{number} "):
                yield Problem(
                    where,
                    f"the heading {text!r} has not the number that is next",
                    f"write `## {chapter.number}.{number} Title`",
                )
    known = source.sections(cells)
    for cell, line, text in prose(cells):
        for section in re.findall(rf"§({chapter.number}\.\d+)", text):
            if section not in known:
                yield Problem(
                    f"{short(cell.path)}:{line}",
                    f"§{section} is no section",
                    f"write one of {', '.join(known)}",
                )


def only_known_marks(cells: Sequence[Cell]) -> Iterator[Problem]:
    """Pictures in prose are the five that have a meaning."""
    for cell, line, text in prose(cells):
        strange = sorted({mark for mark in text if _is_picture(mark)} - set(MARKS))
        if strange:
            yield Problem(
                f"{short(cell.path)}:{line}",
                f"the mark {' '.join(strange)}",
                f"use words, or one of {' '.join(MARKS)}",
            )


def _is_picture(character: str) -> bool:
    code = ord(character)
    return 0x1F000 <= code < 0x20000 or 0x2600 <= code < 0x27C0 or 0x2B00 <= code < 0x2C00


def nothing_is_left_to_write(chapter: Chapter) -> Iterator[Problem]:
    """No comment that begins with ✍️, as in the files that `autograder new` makes."""
    module = course.ROOT / "helpers" / "exercises" / f"{chapter.name}.py"
    for path in (module, *sorted(chapter.source.parent.glob("*.py"))):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if left := re.match(r"\s*# ✍️ (.*)", line):
                yield Problem(
                    f"{short(path)}:{number}",
                    f"still to write: {left[1].rstrip('.')}",
                    "write it, and take the mark away",
                )


# --- the built notebook --------------------------------------------------------------------------


def outputs_are_clean(path: Path, notebook: NotebookNode) -> Iterator[Problem]:
    """No error, nothing on stderr, no address, no path of the author's machine in any output."""
    for cell, output in _outputs(notebook):
        where = f"{short(path)}: cell `{cell['id']}`"
        if output.output_type == "error":
            yield Problem(where, f"ends in {output.ename}", "mend it, or use `show_error`")
        if output.get("name") == "stderr":
            yield Problem(
                where, f"writes to stderr: {output.text.strip()[:60]!r}", "stop it from warning"
            )
        for name, pattern in UNCLEAN.items():
            found = pattern.search(_text(output))
            if found:
                yield Problem(where, f"prints {name}: {found[0]!r}", "print something stable")


UNCLEAN = {
    "a memory address": re.compile(r"\b0x[0-9a-fA-F]{6,}"),
    "a path of one machine": re.compile(
        "|".join(re.escape(str(path)) for path in (course.ROOT, Path.home(), "/tmp/"))
    ),
}


def times_are_tagged(path: Path, notebook: NotebookNode) -> Iterator[Problem]:
    """A cell that prints times says so with a tag: its output can't be compared."""
    for cell, output in _outputs(notebook):
        found = TIME.search(_text(output))
        if found and TIMED not in cell.metadata.get("tags", ()):
            yield Problem(
                f"{short(path)}: cell `{cell['id']}`",
                f"prints the time {found[0]!r}, and its output is compared",
                f"tag it with {TIMED}, or print no time",
            )


TIME = re.compile(r"\b\d+(?:\.\d+)?\s?(?:ns|µs|μs|us|ms)\b|\b\d+\.\d+\s?s\b")


def figures_are_whole(path: Path, notebook: NotebookNode) -> Iterator[Problem]:
    """Nothing is drawn on the rim of a transparent picture: what reaches it was cut off."""
    for cell, output in _outputs(notebook):
        if encoded := output.get("data", {}).get("image/png"):
            alpha = imread(io.BytesIO(base64.b64decode(encoded)))[..., -1]
            if max(rim.max() for rim in (alpha[0], alpha[-1], alpha[:, 0], alpha[:, -1])) > FAINT:
                yield Problem(
                    f"{short(path)}: cell `{cell['id']}`",
                    "a picture that is cut off at its rim",
                    "shorten the text there, or write it on two lines",
                )


FAINT = 0.2
"""Opacity below which nobody sees a line."""


def figures_are_described(path: Path, notebook: NotebookNode) -> Iterator[Problem]:
    """Each picture carries a description for those who can't see it."""
    for cell, output in _outputs(notebook):
        if "image/png" in output.get("data", {}):
            about = output.get("metadata", {}).get("image/png", {})
            if not about.get("alt"):
                yield Problem(
                    f"{short(path)}: cell `{cell['id']}`",
                    "a picture without a description",
                    'show it with `describe(fig, "what a reader takes from it")`',
                )


def ids_are_unique(path: Path, notebook: NotebookNode) -> Iterator[Problem]:
    """Graders find cells by their ids."""
    for name, times in Counter(cell["id"] for cell in notebook.cells).items():
        if times > 1:
            yield Problem(short(path), f"{times} cells with the id `{name}`", "build it again")


def compared_output(notebook: NotebookNode) -> dict[str, str]:
    """The text that a code cell prints, by its source, where every run must print the same."""
    found: dict[str, str] = {}
    for cell, output in _outputs(notebook):
        if TIMED not in cell.metadata.get("tags", ()):
            found[cell.source] = f"{found.get(cell.source, '')}\n{_text(output)}"
    return found


def _outputs(notebook: NotebookNode) -> Iterator[tuple[NotebookNode, NotebookNode]]:
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            yield cell, output


def _text(output: NotebookNode) -> str:
    """All of an output that is text."""
    data = output.get("data", {})
    texts = [data[kind] for kind in ("text/plain", "text/html", "text/markdown") if kind in data]
    return "\n".join([output.get("text", ""), *texts, *output.get("traceback", ())])


SOURCE_RULES = (
    one_role_each,
    code_parses,
    claims_assert,
    cells_are_short,
    figures_say_what_they_show,
    only_known_marks,
    tasks_state_the_interface,
)
NOTEBOOK_RULES = (
    outputs_are_clean,
    times_are_tagged,
    figures_are_whole,
    figures_are_described,
    ids_are_unique,
)
