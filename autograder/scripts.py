"""A notebook that was exported as a Python script, cut into its code cells again.

Jupytext's percent and light formats, VS Code's, `jupyter nbconvert --to script`, or bare code. Text
cells are comments there, and left out. Nothing is executed.
"""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from autograder.slicing import parse_python

MARK = re.compile(
    r"# ?%%(?P<percent>\s.*)?"
    r"|# \+(?P<light>\s+(?:\[\w+\]|\{|[\w.]+=).*)?"
    r"|# -"
    r"|# In\[[ \d]*\]:"
)
"""The line above a cell; a light cell's `# -` stands below it."""


class Piece(NamedTuple):
    """The code of one cell, and nbgrader's label of it, where the script has one."""

    source: str
    labels: tuple[str, ...]


def is_script(text: str) -> bool:
    """Whether something is defined at the beginning of a line, as in no other kind of file."""
    return bool(re.search(r"^(def|class) \w+", text, re.MULTILINE))


def pieces(text: str) -> Iterator[Piece]:
    """The code cells of a script; the whole script where nothing marks cells."""
    header = ""
    lines: list[str] = []
    for line in text.split("\n"):
        mark = MARK.fullmatch(line.rstrip())
        if mark:
            yield from _piece(header, lines)
            header, lines = line, []
        else:
            lines.append(line)
    yield from _piece(header, lines)


def _piece(header: str, lines: list[str]) -> Iterator[Piece]:
    is_text = re.search(r"\[(markdown|md|raw)\]", header)
    if not is_text and any(line.strip() and not line.startswith("#") for line in lines):
        label = re.search(r'"grade_id": "([^"]+)"', header)
        yield Piece(_with_magics("\n".join(lines)), (label[1],) if label else ())


def _with_magics(source: str) -> str:
    """The source with the calls that nbconvert makes of IPython's own lines made lines again."""
    try:
        parsed = parse_python(source) if "get_ipython()" in source else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        parsed = None
    lines = source.split("\n")
    for node in reversed(parsed.body if parsed else []):
        if isinstance(node, ast.Expr | ast.Assign) and (line := _magic(node.value)):
            target = f"{ast.unparse(node.targets[0])} = " if isinstance(node, ast.Assign) else ""
            lines[node.lineno - 1 : node.end_lineno] = [target + line]
    return "\n".join(lines)


def _magic(call: ast.expr) -> str:
    """`%time f()` for `get_ipython().run_line_magic('time', 'f()')`, "" for other code."""
    if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)):
        return ""
    given = [each.value for each in call.args if isinstance(each, ast.Constant)]
    words = [each for each in given if isinstance(each, str)]
    if ast.unparse(call.func.value) != "get_ipython()" or len(words) < len(call.args):
        return ""
    match call.func.attr, words:
        case "run_line_magic", [name, line]:
            return f"%{name} {line}".rstrip()
        case "run_cell_magic", [name, line, body]:
            return f"%%{name} {line}".rstrip() + f"\n{body}"
        case "system" | "getoutput", [command]:
            return f"!{command}"
    return ""
