"""Small changes to taught code, each of which an assertion should notice.

Made here, run in `autograder.strength`. The usual operators, and those that JAX's own mistakes ask
for; kept mutation libraries have only the usual ones and mutate files, not single definitions.
"""

import ast
import copy
import difflib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from autograder.slicing import parse_python

Change = tuple[ast.AST, ast.AST]
"""A node of the code, and what stands there instead."""

Parents = dict[ast.AST, ast.AST]
"""The node above each node."""


@dataclass(frozen=True)
class Mutant:
    """One changed definition.

    id: the definition's name, the operator, what became of what, and a number that tells several
    of these apart. It holds no line numbers, so it stays when other code changes. source: the whole
    cell. names: what the changed top-level statement binds. diff: unified, a line around it.
    """

    id: str
    source: str
    names: frozenset[str]
    diff: str


def mutants(source: str) -> list[Mutant]:
    """All mutants of the definitions in a cell: functions, classes, and what was made by jit.

    Raises SyntaxError.
    """
    tree = parse_python(source)
    parents: Parents = {
        child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)
    }
    found: list[Mutant] = []
    seen = {ast.dump(tree)}
    numbers: Counter[str] = Counter()
    for statement in tree.body:
        for name, node in _nodes(statement):
            for operator, change in _changes(node):
                mutated = _spliced(source, tree, parents, change)
                if mutated is None or ast.dump(parse_python(mutated)) in seen:
                    continue
                seen.add(ast.dump(parse_python(mutated)))
                label = f"{name}: {operator}: {_brief(change[0])} → {_brief(change[1])}"
                numbers[label] += 1
                number = f" #{numbers[label]}" if numbers[label] > 1 else ""
                diff = _diff(source, mutated)
                found.append(Mutant(label + number, mutated, _binds(statement), diff))
    return found


# --- where ---------------------------------------------------------------------------------------

DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
TRANSFORMS = {
    "jit", "grad", "value_and_grad", "vmap", "jvp", "vjp", "jacfwd", "jacrev", "hessian", "partial",
    "checkpoint", "remat", "custom_jvp", "custom_vjp", "linearize", "shard_map",
}  # fmt: skip
"""What makes functions of functions: an assignment of their result is taught code, too."""

DRAWS = {"default_rng", "key", "PRNGKey"}
"""Calls whose arguments are seeds: any other is as good."""

SHOWS = {"print", "display", "describe", "figure", "label_line", "warn", "error", "info"}
"""Calls for people; the names of what figures are drawn on."""
DRAWN_ON = {"ax", "axes", "fig", "plt"}

TEXTS = ("__repr__", "__str__")


def _nodes(statement: ast.stmt) -> Iterator[tuple[str, ast.AST]]:
    """The nodes that may change, each with the name of its definition, as in `Adam.update`."""
    if isinstance(statement, DEFINITIONS):
        yield from _inside(statement, "")
    elif isinstance(statement, ast.Assign) and _makes_functions(statement.value):
        yield from _inside(statement, ", ".join(map(ast.unparse, statement.targets)))


def _makes_functions(value: ast.expr) -> bool:
    """Whether it is a function, or functions, and not what one returned."""
    if isinstance(value, ast.Tuple | ast.List):
        return any(map(_makes_functions, value.elts))
    if isinstance(value, ast.Dict):
        return any(map(_makes_functions, value.values))
    if isinstance(value, ast.Call):
        return _called(value) in TRANSFORMS or any(map(_makes_functions, value.args))
    return isinstance(value, ast.Lambda)


def _inside(node: ast.AST, name: str) -> Iterator[tuple[str, ast.AST]]:
    if isinstance(node, DEFINITIONS):
        if node.name in TEXTS:
            return
        name = f"{name}.{node.name}" if name else node.name
    yield name, node
    for child in _mutable_children(node):
        yield from _inside(child, name)


def _mutable_children(node: ast.AST) -> Iterator[ast.AST]:
    """Without annotations, messages, seeds, and what is drawn or printed."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "msg", "format_spec") or _is_shape_of(node, field):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_for_people(child):
                yield child


def _is_shape_of(node: ast.AST, field: str) -> bool:
    """Whether the field has an operator of its own, or holds seeds."""
    if isinstance(node, ast.keyword):
        return node.arg in AXES or node.arg == "strict"
    return isinstance(node, ast.Call) and field == "args" and _called(node) in DRAWS


def _is_for_people(node: ast.AST) -> bool:
    if isinstance(node, ast.Raise | ast.JoinedStr):
        return True
    if isinstance(node, ast.Expr):
        node = node.value
    if not isinstance(node, ast.Call):
        return False
    return _called(node) in SHOWS or _root(node.func) in DRAWN_ON


def _called(node: ast.AST) -> str:
    """`f` of `f(…)` and of `module.f(…)`, else ""."""
    function = node.func if isinstance(node, ast.Call) else None
    if isinstance(function, ast.Name):
        return function.id
    return function.attr if isinstance(function, ast.Attribute) else ""


def _root(node: ast.AST) -> str:
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _binds(statement: ast.stmt) -> frozenset[str]:
    if isinstance(statement, DEFINITIONS):
        return frozenset([statement.name])
    return frozenset(
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )


# --- what ----------------------------------------------------------------------------------------


def _changes(node: ast.AST) -> Iterator[tuple[str, Change]]:
    for operator, changes in OPERATORS.items():
        for change in changes(node):
            yield operator, change


def _with(node: ast.AST, **fields: object) -> Change:
    """The node, and a copy of it with other fields."""
    changed = copy.copy(node)
    for field, value in fields.items():
        setattr(changed, field, value)
    return node, changed


def arithmetic(node: ast.AST) -> Iterator[Change]:
    """`a + b` → `a - b`, `x += 1` → `x -= 1`, `-x` → `x`."""
    if isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in ARITHMETIC:
        yield _with(node, op=ARITHMETIC[type(node.op)]())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Invert):
        yield node, node.operand


ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}


def comparison(node: ast.AST) -> Iterator[Change]:
    """`a < b` → `a <= b` and `a >= b`; `==` → `!=`, `in` → `not in`, `is` → `is not`."""
    if isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            for other in COMPARISONS[type(operator)]:
                yield _with(node, ops=_put(node.ops, place, other()))


COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}


def boolean(node: ast.AST) -> Iterator[Change]:
    """`a and b` → `a or b`, `not a` → `a`, `True` → `False`, `if a` → `if not a`."""
    if isinstance(node, ast.BoolOp):
        yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node, node.operand
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield node, ast.Constant(not node.value)
    elif isinstance(node, ast.If | ast.IfExp | ast.While) and not isinstance(
        node.test, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant
    ):
        yield node.test, ast.UnaryOp(ast.Not(), node.test)


def constant(node: ast.AST) -> Iterator[Change]:
    """0 → 1, 1 → 0 and 2, n → n + 1, x → 2x; a number so small that it only guards: → 0."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        for other in _other_numbers(node.value):  # type: ignore[arg-type]
            yield node, ast.Constant(other)


def _other_numbers(value: float) -> tuple[float, ...]:
    if value == 0:
        return (type(value)(1),)
    if isinstance(value, int):
        return (0, 2) if value == 1 else (value + 1,)
    return (0.0,) if value < SMALL else (2 * value,)


SMALL = 1e-4


def dropped_call(node: ast.AST) -> Iterator[Change]:
    """`stop_gradient(x)` → `x`, `x.astype(t)` → `x`, `maximum(x, 1)` → `x`, and the like."""
    if not isinstance(node, ast.Call):
        return
    if _called(node) in ("astype", "block_until_ready") and isinstance(node.func, ast.Attribute):
        if _called(node) == "astype":
            yield node, node.func.value
    elif _called(node) in DROPPED and node.args and not isinstance(node.args[0], ast.Starred):
        yield node, node.args[0]


DROPPED = {
    "stop_gradient", "maximum", "minimum", "clip", "abs", "sqrt", "log", "exp", "checkpoint",
    "remat", "pmean", "psum", "conj", "transpose", "reversed", "sorted", "nan_to_num", "device_put",
    "float32", "float64", "reduce_precision", "optimization_barrier", "copy", "deepcopy",
}  # fmt: skip
"""Calls that are forgotten now and then, and whose first argument would do in their place."""


def dropped_where(node: ast.AST) -> Iterator[Change]:
    """`where(ok, a, b)` → `a`, or `b`: a branch that is no constant."""
    if _called(node) in ("where", "select") and isinstance(node, ast.Call) and len(node.args) == 3:
        branches = [each for each in node.args[1:] if not isinstance(each, ast.Constant)]
        for branch in branches:
            yield node, branch


def dropped_mask(node: ast.AST) -> Iterator[Change]:
    """`total / sum(mask)` → `total / size(mask)`, `x * mask` → `x`."""
    if not isinstance(node, ast.BinOp):
        return
    if isinstance(node.op, ast.Div):
        for inner in ast.walk(node.right):
            if isinstance(inner, ast.Call) and _called(inner) == "sum":
                size = ast.Attribute(ast.Name("jnp", ast.Load()), "size", ast.Load())
                array = inner.args[0] if inner.args else getattr(inner.func, "value", inner)
                yield inner, ast.Call(size, [array], [])
    if isinstance(node.op, ast.Mult):
        for masked, mask in ((node.left, node.right), (node.right, node.left)):
            if re.search(r"mask|real|valid", ast.unparse(mask)):
                yield node, masked


def dropped_correction(node: ast.AST) -> Iterator[Change]:
    """`m / (1 - b**t)` → `m`: Adam's bias correction."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        right = node.right
        if (
            isinstance(right, ast.BinOp)
            and isinstance(right.op, ast.Sub)
            and any(isinstance(each, ast.Pow) for each in ast.walk(right.right))
        ):
            yield node, node.left


def swapped(node: ast.AST) -> Iterator[Change]:
    """`f(a, b)` → `f(b, a)`, where both could stand in either place."""
    if isinstance(node, ast.Call) and len(node.args) > 1 and _called(node) not in NOT_SWAPPED:
        first, second, *rest = node.args
        if not isinstance(first, NO_EQUALS) and not isinstance(second, NO_EQUALS):
            yield _with(node, args=[second, first, *rest])


NOT_SWAPPED = TRANSFORMS | {
    "maximum", "minimum", "max", "min", "add", "multiply", "logical_and", "logical_or", "equal",
    "allclose", "array_equal", "vdot", "where", "select", "range", "isinstance", "getattr", "map",
    "scan", "islice", "asarray", "array", "split", "fold_in", "astype", "broadcast_to", "reshape",
}  # fmt: skip
"""Calls whose arguments are equals, or so different that any use of the mutant would fail: that
shows no more than that it was reached."""

NO_EQUALS = (ast.Starred, ast.Lambda, ast.Tuple, ast.List, ast.Dict, ast.JoinedStr)


def axes(node: ast.AST) -> Iterator[Change]:
    """`axis=0` → `axis=1`, `in_axes=(None, 0)` → `(0, 0)` and `(None, None)`."""
    if isinstance(node, ast.keyword) and node.arg in AXES:
        for value in _other_axes(node.value, node.arg != "axis"):
            yield _with(node, value=value)
    elif isinstance(node, ast.Call) and _called(node) == "vmap":
        for place, argument in enumerate(node.args[1:], 1):
            for value in _other_axes(argument, True):
                yield _with(node, args=_put(node.args, place, value))


AXES = ("axis", "in_axes", "out_axes")


def _other_axes(value: ast.expr, mapped: bool) -> Iterator[ast.expr]:
    """mapped: None stands for no axis, as in `vmap`."""
    if isinstance(value, ast.Tuple):
        for place, each in enumerate(value.elts):
            for other in _other_axes(each, mapped):
                yield ast.Tuple(_put(value.elts, place, other), ast.Load())
    elif isinstance(value, ast.UnaryOp):  # -1
        yield ast.Constant(0)
    elif isinstance(value, ast.Constant):
        yield ast.Constant(1 if value.value == 0 else 0)
        if mapped and value.value == 0:
            yield ast.Constant(None)


def off_by_one(node: ast.AST) -> Iterator[Change]:
    """`range(n)` → `range(n - 1)`, `x[i:n]` → `x[i + 1:n]` and `x[i:n - 1]`; numbers apart."""
    if isinstance(node, ast.Call) and _called(node) == "range" and len(node.args) in (1, 2):
        if not isinstance(node.args[-1], ast.Constant):
            yield _with(node, args=[*node.args[:-1], _plus(node.args[-1], ast.Sub())])
    elif isinstance(node, ast.Slice):
        if node.lower and not isinstance(node.lower, ast.Constant):
            yield _with(node, lower=_plus(node.lower, ast.Add()))
        if node.upper and not isinstance(node.upper, ast.Constant):
            yield _with(node, upper=_plus(node.upper, ast.Sub()))


def _plus(value: ast.expr, operator: ast.operator) -> ast.expr:
    return ast.BinOp(value, operator, ast.Constant(1))


def dtype(node: ast.AST) -> Iterator[Change]:
    """`jnp.float32` → `jnp.float16`, `"bfloat16"` → `"float32"`."""
    if isinstance(node, ast.Attribute) and node.attr in DTYPES:
        yield _with(node, attr=DTYPES[node.attr])
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in DTYPES:
        yield node, ast.Constant(DTYPES[node.value])


DTYPES = {
    "float64": "float32",
    "float32": "float16",
    "float16": "float32",
    "bfloat16": "float32",
    "int64": "int32",
    "int32": "float32",
    "int8": "float32",
    "uint32": "int32",
    "uint8": "float32",
    "complex64": "float32",
}


def dropped_argument(node: ast.AST) -> Iterator[Change]:
    """`jit(f, donate_argnums=0)` → `jit(f)`, and the like."""
    if isinstance(node, ast.Call):
        for place, keyword in enumerate(node.keywords):
            if keyword.arg in ARGUMENTS:
                yield _with(node, keywords=[*node.keywords[:place], *node.keywords[place + 1 :]])


ARGUMENTS = {
    "donate_argnums", "donate_argnames", "static_argnums", "static_argnames", "nondiff_argnums",
    "has_aux", "keepdims", "dtype", "weak_type", "is_leaf", "initial", "where", "unroll", "policy",
    "precision", "preferred_element_type", "mode",
}  # fmt: skip


def dropped_statement(node: ast.AST) -> Iterator[Change]:
    """An assignment of a function that it can do without: `pass` in its place."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return
    bound = {argument.arg for argument in ast.walk(node.args) if isinstance(argument, ast.arg)}
    for statement in _own_statements(node):
        if isinstance(statement, ast.AugAssign):
            yield statement, ast.Pass()
        elif isinstance(statement, ast.Assign):
            targets = [each for target in statement.targets for each in _targets(target)]
            new = {each.id for each in targets if isinstance(each, ast.Name)}
            if new <= bound:
                yield statement, ast.Pass()
            bound |= new


def _own_statements(node: ast.AST) -> Iterator[ast.stmt]:
    """The statements of a function, not those of functions in it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child
        if isinstance(child, ast.stmt | ast.ExceptHandler) and not isinstance(child, DEFINITIONS):
            yield from _own_statements(child)


def _targets(target: ast.expr) -> list[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        return [each for element in target.elts for each in _targets(element)]
    return [target]


def _put(items: Sequence[Any], place: int, item: Any) -> list[Any]:
    return [*items[:place], item, *items[place + 1 :]]


OPERATORS: dict[str, Callable[[ast.AST], Iterator[Change]]] = {
    "arithmetic": arithmetic,
    "comparison": comparison,
    "boolean": boolean,
    "constant": constant,
    "dropped where": dropped_where,
    "dropped mask": dropped_mask,
    "dropped correction": dropped_correction,
    "dropped call": dropped_call,
    "swapped": swapped,
    "axes": axes,
    "off by one": off_by_one,
    "dtype": dtype,
    "dropped argument": dropped_argument,
    "dropped statement": dropped_statement,
}
"""The operators by name, as ids tell of them. Where two make the same code, the first counts."""


# --- writing it ----------------------------------------------------------------------------------


def _spliced(source: str, tree: ast.Module, parents: Parents, change: Change) -> str | None:
    """The source with a node's text replaced, the rest as it was; None where that can't be."""
    node, changed = change
    wanted = _dump_with(tree, parents, node, changed)
    text = source.encode()
    starts = [0, *(found.end() for found in re.finditer(b"\n", text))]
    start = starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
    end = starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
    for new in _texts(text[start:end].decode(), node, changed):
        mutated = (text[:start] + new.encode() + text[end:]).decode()
        try:
            if ast.dump(parse_python(mutated)) == wanted:
                return mutated
        except SyntaxError:
            continue
    return None


def _dump_with(tree: ast.Module, parents: Parents, node: ast.AST, changed: ast.AST) -> str:
    """The tree, written out, with `changed` in place of `node`."""
    parent = parents[node]
    for field, value in ast.iter_fields(parent):
        if value is node:
            setattr(parent, field, changed)
        elif isinstance(value, list) and any(each is node for each in value):
            setattr(parent, field, [changed if each is node else each for each in value])
        else:
            continue
        dump = ast.dump(tree)
        setattr(parent, field, value)
        return dump
    raise LookupError("the node is not in its parent")


def _texts(before: str, node: ast.AST, changed: ast.AST) -> Iterator[str]:
    """Ways to write what stands there now: another sign in the same text, or all of it anew."""
    for old, new in zip(_signs(node), _signs(changed), strict=False):
        for found in re.finditer(re.escape(old), before) if old != new else ():
            yield before[: found.start()] + new + before[found.end() :]
    plain = ast.unparse(changed)
    yield plain
    yield f"({plain})"


def _signs(node: ast.AST) -> list[str]:
    """The operators of an expression as they are written: `+`, `<=`, `and`."""
    if isinstance(node, ast.BinOp | ast.AugAssign):
        return [_between(ast.BinOp(_A, node.op, _B))]
    if isinstance(node, ast.BoolOp):
        return [_between(ast.BoolOp(node.op, [_A, _B]))]
    if isinstance(node, ast.Compare):
        return [_between(ast.Compare(_A, [op], [_B])) for op in node.ops]
    return []


_A, _B = ast.Name("a", ast.Load()), ast.Name("b", ast.Load())


def _between(node: ast.expr) -> str:
    return ast.unparse(node)[1:-1].strip()


def _brief(node: ast.AST, longest: int = 60) -> str:
    """The code in one line, cut at the end."""
    line = " ".join(ast.unparse(node).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"


def _diff(before: str, after: str) -> str:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1)
    return "\n".join(list(lines)[2:])
