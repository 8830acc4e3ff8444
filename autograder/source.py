"""An author's `chapter.py` as cells that know their role and line, with library code quoted.

Reading only: `autograder.build` turns the cells into a notebook, `autograder.lint` judges them.
"""

import ast
import importlib.util
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import jupytext

from autograder import course
from autograder.course import Chapter
from autograder.slicing import parse_python

ROLES = ("setup", "given", "claim", "figure", "starter", "selfcheck", "quiz")
"""What a code cell can be for; each has exactly one role, in its tags."""

LOCKED = ("setup", "given", "claim", "figure")
"""Roles of the course's own code, which graders restore whatever a learner made of it."""

TIMED = "nbval-ignore-output"
"""The tag of a cell that prints times: its output differs from run to run."""

SOLUTION = re.compile(
    r"(?<=### BEGIN SOLUTION\n).*?(?=^ *### END SOLUTION)", re.DOTALL | re.MULTILINE
)
"""What stands in place of a stub."""

QUOTE = re.compile(r"^# quote: *(\S+) *$")


class SourceError(ValueError):
    """The author's source can't be built; the message names the file and the line."""


@dataclass(frozen=True)
class Cell:
    """One cell of the source.

    line: where its `# %%` stands. exercise, question: the ids that it carries, "" for none.
    """

    kind: Literal["markdown", "code"]
    text: str
    path: Path
    line: int
    tags: tuple[str, ...] = ()
    exercise: str = ""
    question: str = ""

    @property
    def roles(self) -> tuple[str, ...]:
        """Its role; the lint complains where there is none or more than one."""
        return tuple(tag for tag in self.tags if tag in ROLES)

    @property
    def role(self) -> str:
        """The only role of a code cell, "" for prose. Raises SourceError."""
        if self.kind == "markdown":
            return ""
        if len(self.roles) != 1:
            has = " and ".join(self.roles) or "no role"
            raise SourceError(f"{self.at}: the cell has {has}: give it one tag of {list(ROLES)}")
        return self.roles[0]

    @property
    def at(self) -> str:
        """Its file and line, as an error message names them."""
        return f"{short(self.path)}:{self.line}"


def short(path: Path) -> str:
    """The path as a reader of messages wants it: from the checkout's root."""
    return str(path.relative_to(course.ROOT)) if path.is_relative_to(course.ROOT) else str(path)


def read(chapter: Chapter) -> list[Cell]:
    """The cells of a chapter as they were written. Raises SourceError."""
    path = chapter.source
    if not path.exists():
        raise SourceError(f"{short(path)}: there is no such file")
    text = path.read_text(encoding="utf-8")
    lines = [number for number, line in enumerate(text.splitlines(), 1) if line.startswith("# %%")]
    nodes = jupytext.reads(text, fmt="py:percent").cells
    if len(nodes) != len(lines):
        raise SourceError(f"{short(path)}:1: text before the first `# %%`: start a cell for it")
    return [_cell(node, path, line) for node, line in zip(nodes, lines, strict=True)]


def _cell(node: dict, path: Path, line: int) -> Cell:
    metadata = node["metadata"]
    return Cell(
        "code" if node["cell_type"] == "code" else "markdown",
        node["source"].rstrip(),
        path,
        line,
        tuple(metadata.get("tags", ())),
        metadata.get("exercise", ""),
        metadata.get("question", ""),
    )


def sections(cells: Sequence[Cell]) -> dict[str, str]:
    """Titles of the numbered sections, by number: `## 1.4 Buckets` → {"1.4": "Buckets"}."""
    found: dict[str, str] = {}
    for cell in cells:
        if cell.kind == "markdown":
            found.update(re.findall(r"^## (\d+\.\d+) (.+)$", cell.text, re.MULTILINE))
    return found


def prose(cells: Iterable[Cell]) -> Iterator[tuple[Cell, int, str]]:
    """Cell, line in the file and text of each line of prose; fenced code is none."""
    for cell in cells:
        fenced = False
        for number, text in enumerate(cell.text.splitlines(), cell.line + 1):
            fence = text.lstrip().startswith(("```", "~~~"))
            fenced ^= fence
            if cell.kind == "markdown" and not fenced and not fence:
                yield cell, number, text


# --- quotes --------------------------------------------------------------------------------------


def with_quotes(cell: Cell) -> Cell:
    """The cell with each `# quote: package.module.Name` line replaced by that definition."""
    lines = cell.text.split("\n")
    for number, line in enumerate(lines):
        directive = QUOTE.match(line)
        if directive:
            try:
                lines[number] = definition(directive[1])
            except LookupError as error:
                at = f"{short(cell.path)}:{cell.line + 1 + number}"
                raise SourceError(f"{at}: can't quote {directive[1]}: {error.args[0]}") from None
    return replace(cell, text="\n".join(lines))


def definition(name: str) -> str:
    """Source of `package.module.Name` or `package.module.Class.method`, decorators included.

    Nothing but packages is imported. Raises LookupError that says what is missing.
    """
    path, inside = _module_file(name)
    text = path.read_text(encoding="utf-8")
    body: Sequence[ast.stmt] = parse_python(text).body
    for part in inside:
        node = next((node for node in body if part in _defines(node)), None)
        if node is None:
            raise LookupError(f"{short(path)} defines no {'.'.join(inside)}")
        body = getattr(node, "body", ())
    assert node is not None
    first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
    return textwrap.dedent("\n".join(text.splitlines()[first - 1 : node.end_lineno]))


def _module_file(name: str) -> tuple[Path, list[str]]:
    """The file of the longest prefix of `name` that is a module, and the rest of the name."""
    parts = name.split(".")
    for length in range(len(parts) - 1, 0, -1):
        try:
            spec = importlib.util.find_spec(".".join(parts[:length]))
        except ModuleNotFoundError:  # a prefix that is a module, not a package
            continue
        if spec and spec.origin:
            return Path(spec.origin), parts[length:]
    raise LookupError("there is no such module")


def _defines(node: ast.stmt) -> list[str]:
    """Names that a statement of a module or class body defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    if isinstance(node, ast.AnnAssign):
        targets = [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]
