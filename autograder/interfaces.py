"""Whether a task states what a learner has to write: names, parameters, types and shapes.

It reads; whether the text is true, the bank and readers find out.
"""

import ast
import re
from collections.abc import Iterator, Sequence

from autograder.assertions import parsed
from autograder.problems import Problem
from autograder.source import SOLUTION, Cell


def tasks_state_the_interface(cells: Sequence[Cell]) -> Iterator[Problem]:
    """A task gives the starter's signature as code, and says what its parts and its result are."""
    starters = {cell.exercise: cell.text for cell in cells if "starter" in cell.roles}
    for cell in cells:
        if cell.kind == "markdown" and cell.exercise in starters:
            for what, todo in _unstated(cell.text, starters[cell.exercise]):
                yield Problem(cell.at, f"the task of {cell.exercise} {what}", todo)


def _unstated(task: str, starter: str) -> Iterator[tuple[str, str]]:
    """What a learner has to guess, and what to do about it."""
    spans = [" ".join(span.split()) for span in CODE.findall(task)]
    stated = [signature for span in spans if (signature := _signature(span))]
    for name, parameters in _interface(starter):
        if parameters is None:
            if name not in spans and name not in dict(stated):
                yield f"does not name `{name}`", "write the name of the class, as code"
        elif (name, parameters) not in stated:
            wanted = f"`{name}({', '.join(parameters)})`"
            yield f"does not state {wanted}", "write the starter's signature, as code"
    if not SHAPE.search(CODE.sub(lambda code: "" if _signature(code[1]) else code[1], task)):
        yield "gives no type or shape", "say what goes in and what comes out"


CODE = re.compile(r"`([^`]+)`")
SHAPE = re.compile(
    r"""\(\w*,[^)`]*\) | \(\)
    | \b(?:scalars?|arrays?|shapes?|vectors?|numbers?|lists?|tuples?|dicts?|pytrees?|functions?
        |strings?|texts?|booleans?|bools?|integers?|ints?|floats?\d*|objects?|class|keys?)\b""",
    re.VERBOSE,
)
"""Words and notations that say what something is."""

Signature = tuple[str, list[str]]
"""A name and its parameters."""


def _interface(starter: str) -> Iterator[tuple[str, list[str] | None]]:
    """What a starter defines, solutions cut out; None for a class without an `__init__`."""
    inside = {
        line
        for found in SOLUTION.finditer(starter)
        for line in range(*(starter.count("\n", 0, end) + 1 for end in found.span()))
    }
    for node in parsed(starter).body:
        if getattr(node, "lineno", 0) in inside:
            continue
        if isinstance(node, ast.FunctionDef):
            yield node.name, _parameters(node)
        if isinstance(node, ast.ClassDef):
            made = [each for each in node.body if isinstance(each, ast.FunctionDef)]
            calls = [_parameters(each)[1:] for each in made if each.name == "__init__"]
            yield node.name, calls[0] if calls else None


def _signature(span: str) -> Signature | None:
    """("f", ["x", "y"]) of `f(x, y=1)`; None of code that is nothing like it."""
    try:
        node = ast.parse(f"def {span}: ...").body[0]
    except (SyntaxError, ValueError):
        return None
    return (node.name, _parameters(node)) if isinstance(node, ast.FunctionDef) else None


def _parameters(node: ast.FunctionDef) -> list[str]:
    given = node.args
    rest = [each for each in (given.vararg, given.kwarg) if each]
    return [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs, *rest)]
