"""Which cells of a chapter can see a changed definition, and what they say when they run again.

Plain data in and out, so that it runs in a warm process that knows the cells only.
"""

import ast
import functools
import io
import linecache
import re
import sys
import time
import traceback
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from typing import Literal

from autograder import forked
from autograder.slicing import Statement, all_statements, parse_python
from helpers.exercise import Exercise, Tried, assess, observe, public_rng
from helpers.exercises import exercises_of


@dataclass(frozen=True)
class Cell:
    """A code cell that may run.

    asserts: whether it can fail by itself. always: whether it runs before all others (set-up).
    compared: whether its output is the same in each run; not where it measures times. exercise: the
    one that it answers and its chapter, ("recompilation", "1.1"): its public check asserts.
    """

    id: str
    code: str
    asserts: bool = False
    always: bool = False
    compared: bool = True
    exercise: tuple[str, str] | None = None


# --- which cells ---------------------------------------------------------------------------------


def seen_by(cells: Sequence[Cell], first: int, names: frozenset[str]) -> list[Cell]:
    """The cells to run when the statement of cell `first` that binds the names is changed.

    It, and those behind it that assert and use what it binds at whatever remove; of the others
    only the statements that these need; all in order.
    """
    flow = _Flow(cells)
    changed = {
        number
        for number, (place, statement) in enumerate(flow.statements)
        if place == first and statement.binds & names
    }
    reached = {
        place
        for number, (place, _) in enumerate(flow.statements)
        if place > first and cells[place].asserts and changed & flow.needs(number)
    }
    return flow.with_needs({first, *reached, *(i for i, cell in enumerate(cells) if cell.always)})


class _Flow:
    """Def–use between the top-level statements of all cells, in order."""

    def __init__(self, cells: Sequence[Cell]) -> None:
        self.cells = cells
        self.statements: list[tuple[int, Statement]] = []
        effects: dict[str, frozenset[str]] = {}  # of functions, by name
        for place, cell in enumerate(cells):
            for each in all_statements(cell.code):
                changes = each.changes | _changed_in(each.source) & each.reads
                caused = changes.union(*(effects.get(name, ()) for name in each.reads))
                if _is_called_later(each):
                    effects |= dict.fromkeys(each.binds, caused)
                    caused = each.changes
                self.statements.append((place, replace(each, changes=caused)))
        self._needs: dict[int, frozenset[int]] = {}

    def needs(self, number: int) -> frozenset[int]:
        """Statements before this one that decide what it does.

        What functions read is looked up when they are called, so at this statement.
        """
        if number not in self._needs:
            found: set[int] = set()
            _, statement = self.statements[number]
            waiting, met = list(statement.reads), set(statement.reads)
            while waiting:
                for each in set(self._definers(waiting.pop(), number)) - found:
                    found |= {each, *self.needs(each)}
                    defined = self.statements[each][1]
                    fresh = defined.reads - met if _is_called_later(defined) else set()
                    met |= fresh
                    waiting.extend(fresh)
            self._needs[number] = frozenset(found)
        return self._needs[number]

    def with_needs(self, whole: set[int]) -> list[Cell]:
        """These cells, and the statements of others that they need."""
        needed: set[int] = set()
        for number, (place, _) in enumerate(self.statements):
            if place in whole:
                needed |= self.needs(number)
        parts: dict[int, list[str]] = {}
        for number, (place, statement) in enumerate(self.statements):
            if number in needed and place not in whole:
                parts.setdefault(place, []).append(statement.source)
        return [
            replace(cell, code="\n".join(parts[place]), compared=False, exercise=None)
            if place in parts
            else cell
            for place, cell in enumerate(self.cells)
            if place in whole or place in parts
        ]

    def _definers(self, name: str, before: int) -> Iterator[int]:
        """The last statement that binds the name, and those behind it that change what it holds."""
        for number in range(before - 1, -1, -1):
            _, statement = self.statements[number]
            if name in statement.binds:
                yield number
                if name not in statement.reads:  # else it adds to what there was
                    return
            elif name in statement.changes:
                yield number


def _is_called_later(statement: Statement) -> bool:
    return "lambda" in statement.source or statement.source.startswith(_DEFINES)


_DEFINES = ("def ", "async def ", "class ", "@")


@functools.lru_cache(maxsize=4096)
def _changed_in(source: str) -> frozenset[str]:
    """Names of what is changed in place: `x[k] = …`, `x.append(…)`, wherever in the statement."""
    found = set()
    for node in ast.walk(parse_python(source)):
        inside = None
        if isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            inside = node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            inside = node.func.value if node.func.attr in _IN_PLACE else None
        if isinstance(inside, ast.Name):
            found.add(inside.id)
    return frozenset(found)


_IN_PLACE = ("append", "extend", "add", "update", "clear", "pop", "setdefault", "defjvp", "defvjp")


# --- running them --------------------------------------------------------------------------------

How = Literal["passed", "assertion", "timeout", "crash"]


@dataclass(frozen=True)
class Ran:
    """What became of a run.

    ran: ids of the cells, the last of them where it ended. by: where and with what error.
    outputs: what the finished cells printed, by id.
    """

    how: How
    ran: tuple[str, ...]
    by: str
    outputs: Mapping[str, str]
    cpu_seconds: float


def run(cells: Sequence[Cell], cpu_seconds: float, wall_seconds: float) -> Ran:
    """Runs the cells in a fork of this process until one fails.

    One that measures times gets a second chance: a busy machine is no mutant.
    """
    ran = _run_once(cells, cpu_seconds, wall_seconds)
    timed = {cell.id for cell in cells if not cell.compared}
    if ran.how == "assertion" and ran.ran[-1] in timed:
        return _run_once(cells, cpu_seconds, wall_seconds)
    return ran


def _run_once(cells: Sequence[Cell], cpu_seconds: float, wall_seconds: float) -> Ran:
    messages, end = forked.in_child(lambda tell: _run(cells, tell), cpu_seconds, wall_seconds)
    started = tuple(each["started"] for each in messages if "started" in each)
    outputs = {each["finished"]: each["output"] for each in messages if "finished" in each}
    used = max((each["cpu"] for each in messages if "cpu" in each), default=0.0)
    failed = next((each["failed"] for each in messages if "failed" in each), "")
    how: How = end or ("assertion" if failed else "passed")
    where = started[-1] if started else "nothing"
    by = f"no end in {where}" if end == "timeout" else f"the process died in {where}"
    return Ran(how, started, by if end else failed, outputs, used)


def unchanged(
    cells: Sequence[Cell], place: int, names: frozenset[str]
) -> tuple[Sequence[Cell], Ran]:
    """The cells that see a definition, and how they run as they are.

    Where they don't, since one needs what no def–use shows: all cells.
    """
    needed = seen_by(cells, place, names)
    ran = run(needed, *limits(60))
    return (needed, ran) if ran.how == "passed" else (cells, run(cells, *limits(60)))


def limits(cpu_seconds: float) -> tuple[float, float]:
    """CPU and wall seconds for what takes so long unchanged: thrice that, and a machine's load."""
    limit = 3 * cpu_seconds + 5
    return limit, 60 + 10 * limit


def _run(cells: Iterable[Cell], tell: forked.Tell) -> None:
    notebook = types.ModuleType("__main__")
    sys.modules["__main__"] = notebook
    for cell in cells:
        tell({"started": cell.id})
        printed = io.StringIO()
        try:
            with redirect_stdout(printed):
                _execute(cell, vars(notebook))
        except BaseException as error:
            tell({"failed": _where(error, cell), "cpu": time.process_time()})
            return
        output = re.sub(r"0x[0-9a-f]+", "0x…", printed.getvalue()) if cell.compared else ""
        tell({"finished": cell.id, "output": output, "cpu": time.process_time()})


def _execute(cell: Cell, namespace: dict[str, object]) -> None:
    """Runs a cell as a notebook does: what its last expression gives is printed."""
    file = f"<{cell.id}>"
    linecache.cache[file] = (len(cell.code), None, cell.code.splitlines(keepends=True), file)
    tree = parse_python(cell.code)
    last = tree.body[-1:] if tree.body and isinstance(tree.body[-1], ast.Expr) else []
    exec(compile(ast.Module(tree.body[: -len(last) or None], []), file, "exec"), namespace)
    if last:
        exec(compile(ast.Interactive(last), file, "single"), namespace)
    if cell.exercise:
        _check(*cell.exercise, namespace)


class CheckFailed(AssertionError):
    """The public check of an exercise, which the reference no longer passes."""


def _check(chapter: str, key: str, namespace: Mapping[str, object]) -> None:
    exercise: Exercise = exercises_of(chapter)[key]
    cases = exercise.cases(public_rng(exercise))
    tried = [Tried(case, observe(exercise, namespace, case)) for case in cases]
    verdict = assess(exercise, tried)
    if verdict.verdict != "full":
        failed = next((each.text for each in verdict.findings if not each.passed), verdict.message)
        raise CheckFailed(f'check("{key}"): {failed}')


def _where(error: BaseException, cell: Cell) -> str:
    """`claim-1.5-2: assert counter.count == 3 (AssertionError)`: the cell's own line."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if frame.filename == f"<{cell.id}>"]
    text = str(error).strip().splitlines()
    said = f"{type(error).__name__}: {text[0][:80]}" if text else type(error).__name__
    return f"{cell.id}: {own[0].line} ({said})" if own else f"{cell.id}: {said}"
