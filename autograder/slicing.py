"""Which statements of the notebook an answer needs: def–use over the source, nothing is run.

The unit is a top-level statement, so that an answer which uses `jnp` brings that import and not the
whole set-up cell. Calls made for their effect belong to no slice, except where they give a
function its derivative or make a class a pytree.
"""

import ast
import builtins
import functools
import symtable
import threading
from collections.abc import Sequence
from dataclasses import dataclass

BUILTINS = frozenset(dir(builtins))


@dataclass(frozen=True)
class Statement:
    """A top-level statement: its source, the names it binds or changes, and those it reads.

    renews: the names whose old value it reads to bind them anew, as in `f = jax.jit(f)`.
    """

    source: str
    binds: frozenset[str]
    changes: frozenset[str]
    reads: frozenset[str]
    renews: frozenset[str] = frozenset()


_one_at_a_time = threading.Lock()


def parse_python(source: str) -> ast.Module:
    """`ast.parse`, one thread at a time: in CPython 3.11 threads share its count of nesting.

    Without the lock it raises SystemError now and then, where two threads parse.
    """
    with _one_at_a_time:
        return ast.parse(source)


@functools.lru_cache(maxsize=4096)
def statements(source: str) -> tuple[Statement, ...]:
    """The statements of a cell that bind or change names; none if it does not parse."""
    return tuple(each for each in all_statements(source) if each.binds or each.changes)


@functools.lru_cache(maxsize=4096)
def all_statements(source: str) -> tuple[Statement, ...]:
    """The statements of a cell; none if it does not parse.

    Kept, since all submissions share the course's cells. An import of several names is several
    statements, so that an answer does not bring modules that it has no use for.
    """
    try:
        tree = parse_python(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    return tuple(_statement(node) for top in tree.body for node in _singly(top))


def _singly(node: ast.stmt) -> list[ast.stmt]:
    if isinstance(node, ast.Import):
        return [ast.Import([alias]) for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [ast.ImportFrom(node.module, [alias], node.level) for alias in node.names]
    return [node]


def names(source: str) -> tuple[frozenset[str], frozenset[str]]:
    """Names that a cell binds at top level, and those it reads anywhere from outside itself."""
    try:
        table = symtable.symtable(source, "cell", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset(), frozenset()
    binds = {
        s.get_name()
        for s in table.get_symbols()
        if s.is_assigned() or s.is_imported() or s.is_namespace()
    }
    reads = {s.get_name() for s in table.get_symbols() if s.is_referenced()}
    inner = list(table.get_children())
    while inner:
        scope = inner.pop()
        inner.extend(scope.get_children())
        reads |= {s.get_name() for s in scope.get_symbols() if s.is_global() and s.is_referenced()}
    return frozenset(binds), frozenset(reads - BUILTINS)


def needed(answer: str, own: Sequence[str], given: Sequence[str]) -> list[str]:
    """The sources to run before `answer`, in order: given statements first, then the learner's.

    own: the learner's other cells. given: the course's cells. A name that an own cell reads is
    looked up in own cells first, one that a given statement reads in given statements first.
    """
    sides = {
        "given": [statement for cell in given for statement in statements(cell)],
        "own": [statement for cell in own for statement in statements(cell)],
    }
    wanted = [(name, "own") for name in sorted(names(answer)[1])]
    met = set(wanted)
    chosen: set[int] = set()
    while wanted:
        name, reader = wanted.pop()
        for side in (reader, "given" if reader == "own" else "own"):
            found = definers(name, sides[side])
            for statement in found:
                chosen.add(id(statement))
                fresh = {(read, side) for read in statement.reads} - met
                met |= fresh
                wanted.extend(sorted(fresh))
            if found:
                break
    return [each.source for side in sides.values() for each in side if id(each) in chosen]


def definers(name: str, among: Sequence[Statement]) -> list[Statement]:
    """The last statement that binds the name, and those behind it that change what it holds.

    Where that one makes the new from the old, as `f = jax.jit(f)` does, what defines the old comes
    first. What is done to a module is no part of it: one answer's patch would be every other's.
    """
    bound = [place for place, each in enumerate(among) if name in each.binds]
    while len(bound) > 1 and name in among[bound[-1]].renews:
        bound.pop()
    if not bound:
        return []
    behind = among[bound[-1] :]
    module = behind[0].source.startswith("import ")
    return [each for each in behind if name in each.binds or (name in each.changes and not module)]


def _statement(node: ast.stmt) -> Statement:
    source = ast.unparse(node)
    binds, reads = names(source)
    changes = {
        root.id
        for target in ast.walk(node)
        if isinstance(target, ast.Subscript | ast.Attribute)
        and isinstance(target.ctx, ast.Store | ast.Del)
        and isinstance(root := _root(target), ast.Name)
    }
    top_level_only = not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    changes = (changes if top_level_only else set()) | _given_a_rule(node) | _registered(node)
    renews = binds & reads if isinstance(node, ast.Assign | ast.AugAssign) else frozenset()
    return Statement(source, binds, frozenset(changes), reads, frozenset(renews))


def _given_a_rule(node: ast.stmt) -> set[str]:
    """Functions that the statement gives a rule of their own: `@f.defjvp`, `f.defvjp(fwd, bwd)`."""
    said = list(getattr(node, "decorator_list", ()))
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        said.append(node.value.func)
    return {
        root.id
        for each in said
        if isinstance(each, ast.Attribute)
        and each.attr in ("defjvp", "defjvps", "defvjp", "def_vmap")
        and isinstance(root := _root(each), ast.Name)
    }


def _registered(node: ast.stmt) -> set[str]:
    """The class that the statement makes a pytree: `jax.tree_util.register_dataclass(State, …)`."""
    call = node.value if isinstance(node, ast.Expr) else None
    if isinstance(call, ast.Call) and call.args and isinstance(call.args[0], ast.Name):
        called = ast.unparse(call.func).rpartition(".")[2]
        if called.startswith(("register_pytree", "register_dataclass", "register_static")):
            return {call.args[0].id}
    return set()


def _root(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return node
