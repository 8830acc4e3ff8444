"""A notebook file's cells, whatever its format and however broken; and what their code defines.

Text in, text out: nothing here is executed, and nothing a file holds makes these functions raise
anything but Unreadable.
"""

import ast
import functools
import json
import re
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from autograder import scripts
from autograder.collect import MAX_BYTES, MEGABYTE, Unreadable, too_large
from autograder.slicing import parse_python
from helpers.exercise import is_stub

Kind = Literal["code", "markdown", "raw"]

MAX_MEMORY = 700 * MEGABYTE
"""What a parsed notebook may take; estimated from its bytes before they are parsed."""

MAX_REPAIRED = 10 * MEGABYTE
"""Characters of what is no JSON, but is looked at again."""

PYTHON_MAGICS = {"time", "timeit", "capture", "prun", "mprun", "memit", "debug", "python3"}
"""Cell magics behind which Python stands; the cells of others hold another language."""


@dataclass(frozen=True)
class Cell:
    """One cell as the file has it.

    labels: nbgrader's grade_id and the cell's id, whichever there are, in this order.
    """

    kind: Kind
    source: str
    labels: tuple[str, ...] = ()


# --- the file ------------------------------------------------------------------------------------


class Parsed(NamedTuple):
    """The cells of a file, and what had to be mended to read them, one sentence each."""

    cells: list[Cell]
    notes: list[str]


def parse(data: bytes) -> Parsed:
    """The cells of a notebook file of nbformat 1 to 5, or of a script. Raises Unreadable."""
    if len(data) > MAX_BYTES or _memory(data) > MAX_MEMORY:
        raise Unreadable(too_large(len(data)))
    text, notes = _text(data)
    try:
        cells = _from_json(text)
    except Unreadable:
        raise
    except (ValueError, RecursionError) as error:
        cells, mended = _otherwise(text, error)
        notes.append(mended)
    if not cells:
        raise Unreadable("The notebook has no cells. Save it in Jupyter and hand it in again.")
    return Parsed(cells, notes)


def _from_json(text: str) -> list[Cell]:
    return list(_cells_of(json.loads(text)))


def _otherwise(text: str, error: Exception) -> tuple[list[Cell], str]:
    """The cells of what is no JSON, and a sentence on what was mended. Raises Unreadable."""
    if len(text) < MAX_REPAIRED and (sides := _sides(text)):
        return _same_in(sides), "The marks of a merge conflict were left out: no cell had any."
    if len(text) < MAX_REPAIRED and not text.lstrip().startswith("{") and scripts.is_script(text):
        pieces = scripts.pieces(text.replace("\r\n", "\n"))
        cells = [Cell("code", _joined(each.source), each.labels) for each in pieces]
        return cells, "A Python script was handed in, not a notebook; its code was read."
    raise Unreadable(_not_json(text, error)) from error


def _sides(text: str) -> tuple[str, str] | None:
    """What Git's two sides of a text with conflicts were; None where there is no conflict."""
    ours: list[str] = []
    theirs: list[str] = []
    both = (ours, theirs)
    into: tuple[list[str], ...] = both
    for line in text.splitlines(keepends=True):
        mark = line[:8].rstrip()
        if mark == "<<<<<<<":
            into = (ours,)
        elif mark == "|||||||" and into is not both:
            into = ()
        elif mark == "=======" and into is not both:
            into = (theirs,)
        elif mark == ">>>>>>>":
            into = both
        else:
            for side in into:
                side.append(line)
    return ("".join(ours), "".join(theirs)) if "<<<<<<< " in text else None


def _same_in(sides: tuple[str, str]) -> list[Cell]:
    """The cells, where both sides of a conflict have the same. Raises Unreadable."""
    try:
        ours, theirs = map(_from_json, sides)
    except (ValueError, RecursionError):
        ours, theirs = [], []
    if not ours or [(c.kind, c.source) for c in ours] != [(c.kind, c.source) for c in theirs]:
        raise Unreadable(
            "The file holds the marks of a merge conflict: resolve it and hand it in again."
        )
    return ours


def _memory(data: bytes) -> int:
    """Bytes that the parsed file takes at most, from the number of its lists, dicts and items."""
    return 3 * len(data) + 240 * data.count(b"{") + 64 * data.count(b"[") + 60 * data.count(b",")


def _text(data: bytes) -> tuple[str, list[str]]:
    """The file as text, and a sentence if some of it is none."""
    if not data.strip(b"\x00 \t\r\n"):
        raise Unreadable("The file is empty. Save the notebook and hand it in again.")
    for start, what in _KINDS.items():
        if re.match(start, data.lstrip()[:300].lower(), re.DOTALL):
            raise Unreadable(f"The file is not a notebook but {what}.")
    encoding = _encoding(data)
    try:
        return data.decode(encoding), []
    except UnicodeDecodeError:
        text = data.decode(encoding, errors="replace")
        return text, ["The file held characters that could not be read; they became �."]


def _encoding(data: bytes) -> str:
    """UTF-8 if nothing says else; JSON begins with an ASCII character, so zeros tell UTF-16."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return "utf-16"
    zeros = data[:1] == b"\x00", data[1:2] == b"\x00"
    return {(False, True): "utf-16-le", (True, False): "utf-16-be"}.get(zeros, "utf-8-sig")


_KINDS = {
    b"%pdf": "a PDF: hand in the file that ends in .ipynb",
    rb"pk\x03\x04": "a zip or an office document: hand in the file that ends in .ipynb",
    b"<(?!<{6} )": "a web page: download the notebook itself",
    rb"\x1f\x8b|rar!|7z\xbc\xaf|.{257}ustar": "an archive: hand in the file that ends in .ipynb",
    b"\x89png": "a picture: hand in the file that ends in .ipynb",
    b"version https://git-lfs": "a pointer to one: hand in the file itself",
}
"""How files begin that are handed in by mistake, lower case, and what they are."""

_HAND_IN = "Hand in the file that ends in .ipynb."


def _not_json(text: str, error: Exception) -> str:
    if isinstance(error, json.JSONDecodeError) and text.lstrip().startswith("{"):
        if error.pos >= len(text.rstrip()) - 1 or "Unterminated" in error.msg:
            return "The file breaks off in the middle: hand it in again."
        where = f"its JSON makes no sense from line {error.lineno} on"
        return f"The file is a damaged notebook: {where}. Save it in Jupyter and hand it in again."
    return f"The file is not a notebook: it is no JSON. {_HAND_IN}"


def _cells_of(found: Any) -> Iterator[Cell]:
    """Cells in `cells` (nbformat 4 and later), or in `worksheets` (before)."""
    if not isinstance(found, dict):
        raise Unreadable(f"The file is not a notebook: it is JSON, but has no cells. {_HAND_IN}")
    sheets = [found, *(found["worksheets"] if _is_list(found, "worksheets") else ())]
    lists = [
        sheet["cells"] for sheet in sheets if isinstance(sheet, dict) and _is_list(sheet, "cells")
    ]
    if not lists:
        raise Unreadable(f"The file is not a notebook: it is JSON, but has no cells. {_HAND_IN}")
    for cells in lists:
        yield from (_cell(cell) for cell in cells if isinstance(cell, dict))


def _is_list(where: Mapping[str, Any], key: str) -> bool:
    return isinstance(where.get(key), list)


def _cell(cell: Mapping[str, Any]) -> Cell:
    kind = cell.get("cell_type")
    texts = (cell.get(key) for key in ("source", "input", "code", "text"))
    source = next((_joined(text) for text in texts if isinstance(text, str | list)), "")
    metadata = cell.get("metadata")
    nbgrader = metadata.get("nbgrader") if isinstance(metadata, dict) else None
    grade_id = nbgrader.get("grade_id") if isinstance(nbgrader, dict) else None
    labels = tuple(x for x in (grade_id, cell.get("id")) if isinstance(x, str))
    if kind in ("markdown", "heading", "html"):
        return Cell("markdown", source, labels)
    if kind == "raw":
        return Cell("raw", source, labels)
    return Cell("code", source, labels)


def _joined(text: str | Sequence[Any]) -> str:
    """A cell's text, which may be a list of lines, as characters that can be written again."""
    whole = text if isinstance(text, str) else "".join(x for x in text if isinstance(x, str))
    whole = whole.replace("\r\n", "\n").replace("\r", "\n").replace("\x00", "")
    return whole.encode("utf-8", errors="replace").decode("utf-8")


# --- code that is not quite Python ---------------------------------------------------------------


def unfenced(source: str) -> str:
    """The code between a text cell's fences, all of it where there are none."""
    found = re.findall(r"^```[^\n]*\n(.*?)^```", source, re.MULTILINE | re.DOTALL)
    return "\n".join(found).rstrip("\n") or source


def without_magics(source: str) -> tuple[str, list[str]]:
    """The source with IPython's own lines made comments, and these lines.

    Lines that start with % or ! inside brackets and strings are Python and stay.
    """
    lines = source.split("\n")
    first = next((i for i, line in enumerate(lines) if line.strip()), 0)
    magic = re.match(r"\s*%%(\w+)", lines[first])
    left_out: list[str] = []
    if magic:
        left_out.append(lines[first].strip())
        if magic[1] not in PYTHON_MAGICS:
            return "", left_out
        lines[first] = ""
    while len(left_out) < 200:
        at = error_line("\n".join(lines))
        if not 0 < at <= len(lines) or not _is_magic(lines[at - 1]):
            break
        line = lines[at - 1].strip()
        indent = " " * (len(lines[at - 1]) - len(lines[at - 1].lstrip()))
        timed = line.removeprefix("%time ").strip() if line.startswith("%time ") else ""
        if timed and definitions(timed):
            lines[at - 1] = indent + timed
        else:
            left_out.append(line)
            lines[at - 1] = f"{indent}pass  # {line}"
    source, of_colab = _without_colab("\n".join(lines))
    return source, [*left_out, *of_colab]


def _is_magic(line: str) -> bool:
    stripped = line.strip()
    return bool(
        re.match(r"[%!?]|[\w., ]+=\s*[%!]|(pip|conda|mamba|uv pip) (un)?install ", stripped)
        or re.fullmatch(r"[\w.]+\?{1,2}", stripped)
    )


def _without_colab(source: str) -> tuple[str, list[str]]:
    """The source without what only Colab has (its drive, its files), and the lines left out."""
    parsed = tree(source) if "google.colab" in source else None
    lines = source.split("\n")
    left_out: list[str] = []
    names: set[str] = set()
    for node in parsed.body if parsed else ():
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("google.colab"):
            names.update(_names_of(node))
        elif not (isinstance(node, ast.Expr) and _first_name(node.value) in names):
            continue
        start, end = _place(node)
        left_out.append(lines[start].strip())
        lines[start:end] = [f"pass  # {lines[start].strip()}", *[""] * (end - start - 1)]
    return "\n".join(lines), left_out


def _first_name(node: ast.expr) -> str:
    """`drive` of `drive.mount(…)`, "" for what is no such call."""
    while isinstance(node, ast.Call | ast.Attribute):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def error_line(source: str) -> int:
    """Line of the first syntax error; 0 if there is none or it has no line."""
    try:
        _parsed(source)
    except SyntaxError as error:
        return error.lineno or 0
    except (ValueError, RecursionError, MemoryError):
        return 0
    return 0


def tree(source: str) -> ast.Module | None:
    """The syntax tree, None where the source is no Python or too deep."""
    try:
        return _parsed(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


@functools.lru_cache(maxsize=1024)
def _parsed(source: str) -> ast.Module:
    with warnings.catch_warnings(action="ignore"):
        return parse_python(source)


def dedented(source: str) -> str:
    """The source without the indentation of its first line, as IPython reads it."""
    if source[:1] not in (" ", "\t", "\n") or tree(source) is not None:
        return source
    plain = textwrap.dedent(source)
    return plain if tree(plain) is not None else source


# --- what code defines ---------------------------------------------------------------------------


@functools.lru_cache(maxsize=2048)
def definitions(source: str) -> Mapping[str, bool]:
    """Names that a cell defines at top level, and whether what they hold is still the starter's.

    Statements inside `if`, `try`, `with` and loops count, those inside functions don't.
    """
    parsed = tree(source)
    found: dict[str, bool] = {}
    perhaps = "NotImplementedError" in source
    for node in _statements(parsed.body if parsed else ()):
        stub = perhaps and _has_stub(node)
        found.update(dict.fromkeys(_names_of(node), stub))
    return found


def additions(source: str, original: str, taken: frozenset[str]) -> str:
    """Statements of a changed cell that define new names, none of them `taken`."""
    parsed, before = tree(source), tree(original)
    if parsed is None or before is None:
        return ""
    known = {dump(node) for node in before.body}
    lines = source.split("\n")
    fresh = [
        "\n".join(lines[slice(*_place(node))])
        for node in parsed.body
        if dump(node) not in known and (names := _all_names(node)) and taken.isdisjoint(names)
    ]
    return "\n".join(fresh)


def shared(source: str, whose: Mapping[str, str]) -> tuple[str, frozenset[str]]:
    """The source without the statements that stand in cells of the course, and these cells.

    whose: the cell by the dump of a statement.
    """
    parsed = tree(source)
    theirs = {node: whose.get(dump(node)) for node in (parsed.body if parsed else ())}
    kept = {n for node, cell in theirs.items() if not cell for n in range(*_place(node))}
    lines = source.split("\n")
    for node, cell in theirs.items():
        for number in range(*_place(node)) if cell else ():
            if number not in kept:
                lines[number] = ""
    return "\n".join(lines).strip("\n"), frozenset(cell for cell in theirs.values() if cell)


def without(source: str, names: frozenset[str]) -> str:
    """The source without the top-level statements that define any of the names."""
    parsed = tree(source)
    if parsed is None:
        return source
    lines = source.split("\n")
    for node in parsed.body:
        if not names.isdisjoint(_all_names(node)):
            for number in range(*_place(node)):
                lines[number] = ""
    text = "\n".join(lines).strip("\n")
    left = tree(text)
    return text if left is None or left.body else ""


def _place(node: ast.stmt) -> tuple[int, int]:
    """The slice of lines that a statement takes, decorators included."""
    decorators = getattr(node, "decorator_list", ())
    start = min([node.lineno, *(each.lineno for each in decorators)])
    return start - 1, node.end_lineno or start


def same_code(a: str, b: str) -> bool:
    """Whether two cells differ in blank space and comments at most."""
    if stripped(a) == stripped(b):
        return True
    parsed = tree(a), tree(b)
    return None not in parsed and dump(parsed[0]) == dump(parsed[1])


def stripped(source: str) -> str:
    """The source without blank space at its ends and at the ends of its lines."""
    return "\n".join(line.rstrip() for line in source.strip().split("\n"))


def dump(node: ast.AST | None) -> str:
    """What a node says, without its place; "" where it is too deep."""
    try:
        return ast.dump(node) if node else ""
    except RecursionError:
        return ""


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a body and of the blocks in it, but not of functions and classes."""
    waiting = list(reversed(body))
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        blocks = [getattr(node, part, None) or [] for part in ("body", "orelse", "finalbody")]
        inner = [*getattr(node, "handlers", ()), *getattr(node, "cases", ())]
        blocks += [part.body for part in inner]
        waiting.extend(reversed([each for block in blocks for each in block]))


def _all_names(node: ast.stmt) -> set[str]:
    return {name for each in _statements([node]) for name in _names_of(each)}


def _names_of(node: ast.stmt) -> Iterator[str]:
    """Names that one statement binds."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        for alias in node.names:
            yield (alias.asname or alias.name).split(".")[0]
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _targets(target)
    elif isinstance(node, ast.AnnAssign | ast.AugAssign | ast.For | ast.AsyncFor):
        if not isinstance(node, ast.AnnAssign) or node.value:
            yield from _targets(node.target)
    elif isinstance(node, ast.With | ast.AsyncWith):
        for item in node.items:
            yield from _targets(item.optional_vars)


def _targets(node: ast.expr | None) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Tuple | ast.List):
        for each in node.elts:
            yield from _targets(each)
    elif isinstance(node, ast.Starred):
        yield from _targets(node.value)


def _has_stub(node: ast.stmt) -> bool:
    """Whether the starter's own error is still raised somewhere in the statement."""
    return any(
        isinstance(each, ast.Raise)
        and isinstance(each.exc, ast.Call)
        and isinstance(each.exc.func, ast.Name)
        and each.exc.func.id == "NotImplementedError"
        and len(each.exc.args) == 1
        and isinstance(each.exc.args[0], ast.Constant)
        and is_stub(NotImplementedError(each.exc.args[0].value))
        for each in ast.walk(node)
    )
