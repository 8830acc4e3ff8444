"""What an answer's code holds that no answer needs, for a person to read: found without running it.

It costs no points and proves nothing; whoever wants to hide from it can. But code that takes the
grader's harness apart must reach it by some name, and these are the usual ones.
"""

import ast
from collections.abc import Iterator

from autograder.cells import tree

MODULES = frozenset(
    [
        "ctypes", "_ctypes", "cffi", "mmap", "signal", "socket", "subprocess", "multiprocessing",
        "pty", "importlib", "marshal", "autograder", "solutions", "helpers.exercise",
        "helpers.exercises", "builtins", "jax._src", "jaxlib",
    ]
)  # fmt: skip
"""Modules that reach below what the course teaches, with all that is in them."""

NAMES = frozenset(
    [
        "exec", "eval", "__import__", "__builtins__", "__globals__", "__code__", "__closure__",
        "__subclasses__", "__defaults__", "_getframe", "_current_frames", "currentframe",
        "f_back", "f_locals", "f_globals", "tb_frame", "gi_frame", "settrace", "setprofile",
        "addaudithook", "meta_path", "get_objects", "get_referrers", "get_referents", "fork",
        "forkpty", "_exit", "closerange", "execv", "execve", "execvp", "dup2", "CDLL",
        "clear_event_listeners", "get_event_duration_listeners",
    ]
)  # fmt: skip
"""Names and attributes; also as a string, which `getattr` could be given."""


def odd(source: str) -> list[str]:
    """What is odd about a cell, each in a few words, in the order in which it stands there."""
    parsed = tree(source)
    return list(dict.fromkeys(_found(parsed))) if parsed else []


def _found(parsed: ast.Module) -> Iterator[str]:
    modules = set(_imported(parsed))
    for node in ast.walk(parsed):
        for name in _mentioned(node):
            if name in NAMES:
                yield f"uses `{name}`"
            if any(name == module or name.startswith(f"{module}.") for module in MODULES):
                yield f"imports `{name}`"
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
            root = _root(node)
            if isinstance(root, ast.Name) and root.id in modules:
                yield f"changes `{ast.unparse(node)[:60]}`"
        if _dotted(node) == "sys.modules":
            yield "uses `sys.modules`"
        if (
            isinstance(node, ast.Call)
            and _dotted(node.func) in ("setattr", "delattr")
            and node.args
        ):
            root = _root(node.args[0])
            if isinstance(root, ast.Name) and root.id in modules:
                yield f"changes `{ast.unparse(node.args[0])[:60]}`"


def _mentioned(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name):
        yield node.id
    elif isinstance(node, ast.Attribute):
        yield node.attr
        if dotted := _dotted(node):
            yield dotted
    elif isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        yield from (f"{node.module or ''}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value.strip()


def _imported(parsed: ast.Module) -> Iterator[str]:
    """Names that imports bind, and those by which the course's notebooks know modules."""
    yield from ("jax", "jnp", "np", "helpers", "lax", "random")
    for node in ast.walk(parsed):
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from ((alias.asname or alias.name).split(".")[0] for alias in node.names)


def _root(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node


def _dotted(node: ast.AST) -> str:
    """`a.b.c` for such an expression, "" for any other."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (before := _dotted(node.value)):
        return f"{before}.{node.attr}"
    return ""
