"""Right answers stay right: each is rewritten by rule, and must still earn all points.

A rule changes how an answer is written, never what it does. Where one can't fit an exercise,
`DOES_NOT_FIT` says why. Authors' code only, in this process: what learners hand in never comes
here.
"""

import ast
import multiprocessing
import symtable
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor

import jax

from autograder import assembly, bank, course
from autograder.course import Answer, Chapter
from autograder.judge import cases_of
from autograder.problems import Problem
from autograder.slicing import parse_python
from helpers.exercise import Exercise, assess

Change = Callable[[str, Exercise], list[str]]
"""From an answer's cell to the cells of its variant, the answer's last; none if nothing changes."""


# --- changes -------------------------------------------------------------------------------------


def in_a_class(code: str, exercise: Exercise) -> list[str]:
    """An object with `__call__` in place of the function: no name, no `__wrapped__`."""
    return [code + IN_A_CLASS + _each(exercise, "{0} = OtherAnswer({0})")]


IN_A_CLASS = """

class OtherAnswer:
    def __init__(self, function):
        self.function = function

    def __call__(self, *args, **kwargs):
        return self.function(*args, **kwargs)


"""


def by_name(code: str, exercise: Exercise) -> list[str]:
    """A partial object that passes all arguments on by name."""
    return [code + BY_NAME + _each(exercise, "{0} = other_by_name({0})")]


BY_NAME = """

import functools
import inspect


def other_by_name(function):
    signature = inspect.signature(function)
    if any(p.kind is p.VAR_POSITIONAL for p in signature.parameters.values()):
        return functools.partial(function)

    def call(*args, **kwargs):
        return function(**signature.bind(*args, **kwargs).arguments)

    return functools.partial(call)


"""


def jitted(code: str, exercise: Exercise) -> list[str]:
    """Compiled already; what holds no array is static."""
    return [code + JITTED + _each(exercise, "{0} = other_jitted({0})")]


JITTED = """

import jax
import numpy as np


def other_jitted(function):
    def holds_arrays(arg):
        return any(isinstance(leaf, jax.Array | np.ndarray) for leaf in jax.tree.leaves(arg))

    def call(*args, **kwargs):
        places = [place for place, arg in enumerate(args) if not holds_arrays(arg)]
        named = [name for name, arg in kwargs.items() if not holds_arrays(arg)]
        compiled = jax.jit(function, static_argnums=places, static_argnames=named)
        return compiled(*args, **kwargs)

    return call


"""


def from_jax_arrays(code: str, exercise: Exercise) -> list[str]:
    """Makes JAX arrays of the NumPy arrays that it gets."""
    return [code + FROM_JAX_ARRAYS + _each(exercise, "{0} = other_from_jax_arrays({0})")]


FROM_JAX_ARRAYS = """

import jax
import jax.numpy as jnp
import numpy as np


def other_from_jax_arrays(function):
    def own(leaf):
        return jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf

    def call(*args, **kwargs):
        return function(*jax.tree.map(own, args), **jax.tree.map(own, kwargs))

    return call


"""


def to_numpy(code: str, exercise: Exercise) -> list[str]:
    """Returns NumPy arrays, except where JAX is tracing."""
    return [code + TO_NUMPY + _each(exercise, "{0} = other_to_numpy({0})")]


def from_numpy(code: str, exercise: Exercise) -> list[str]:
    """Makes NumPy arrays of the JAX arrays that it gets, except where JAX is tracing."""
    return [code + TO_NUMPY + _each(exercise, "{0} = other_from_numpy({0})")]


TO_NUMPY = """

import jax
import numpy as np


def in_numpy(leaf):
    concrete = isinstance(leaf, jax.Array) and not isinstance(leaf, jax.core.Tracer)
    return np.asarray(leaf) if concrete and isinstance(leaf.dtype, np.dtype) else leaf


def other_to_numpy(function):
    return lambda *args, **kwargs: jax.tree.map(in_numpy, function(*args, **kwargs))


def other_from_numpy(function):
    def call(*args, **kwargs):
        return function(*jax.tree.map(in_numpy, args), **jax.tree.map(in_numpy, kwargs))

    return call


"""


def in_two_cells(code: str, exercise: Exercise) -> list[str]:
    """The work in a cell of one's own, and a cell that calls it."""
    classes = {node.name for node in parse_python(code).body if isinstance(node, ast.ClassDef)}
    called = "def {0}(*args, **kwargs):\n    return own_{0}(*args, **kwargs)\n\n"
    calls = ["{0} = own_{0}\n" if name in classes else called for name in exercise.names]
    answer = "\n".join(call.format(name) for call, name in zip(calls, exercise.names, strict=True))
    return [f"{code}\n\n{_each(exercise, 'own_{0} = {0}')}", answer]


def renamed(code: str, exercise: Exercise) -> list[str]:
    """All names that are the answer's own affair are others."""
    own = own_names(code) - set(exercise.names)
    if not own:
        return []
    return [ast.unparse(_Renamed({name: f"own_{name}" for name in own}).visit(parse_python(code)))]


def own_names(code: str) -> set[str]:
    """What an answer calls as it likes: its helpers and local variables.

    Parameters are no such names, nor fields of classes, nor what the course gave.
    """
    table = symtable.symtable(code, "answer", "exec")
    own = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_namespace()}
    taken = {s.get_name() for s in table.get_symbols() if s.is_imported()}
    local: set[str] = set()
    inner = list(table.get_children())
    while inner:
        scope = inner.pop()
        inner.extend(scope.get_children())
        for symbol in scope.get_symbols():
            name = symbol.get_name()
            if scope.get_type() == "class" or symbol.is_parameter() or symbol.is_imported():
                taken.add(name)
            elif symbol.is_global():
                taken |= {name} - own
            elif symbol.is_local():
                local.add(name)
    return (own | local) - taken


class _Renamed(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self.names.get(node.id, node.id)
        return node

    def generic_visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.ExceptHandler) and node.name:
            node.name = self.names.get(node.name, node.name)
        if isinstance(node, ast.Global | ast.Nonlocal):
            node.names = [self.names.get(name, name) for name in node.names]
        if isinstance(node, ast.MatchAs | ast.MatchStar) and node.name:
            node.name = self.names.get(node.name, node.name)
        return super().generic_visit(node)


def with_dataclasses(code: str, exercise: Exercise) -> list[str]:
    """Registered dataclasses in place of its NamedTuples."""
    tree, made = parse_python(code), parse_python(DATACLASS).body[0]
    assert isinstance(made, ast.ClassDef)
    states = [node for node in tree.body if isinstance(node, ast.ClassDef) and _is_named(node)]
    for node in states:
        node.bases, node.decorator_list = [], made.decorator_list
        node.body += made.body
    return ["import dataclasses\n\nimport jax\n\n" + ast.unparse(tree)] if states else []


DATACLASS = """
@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class State:
    def _replace(self, **fields):
        return dataclasses.replace(self, **fields)
"""


def _is_named(node: ast.ClassDef) -> bool:
    return [ast.unparse(base) for base in node.bases] == ["NamedTuple"]


def as_it_is(code: str, exercise: Exercise) -> list[str]:
    """For a change of what is around it."""
    return [code]


def _each(exercise: Exercise, line: str) -> str:
    return "\n".join(line.format(name) for name in exercise.names) + "\n"


CHANGES: dict[str, Change] = {
    "in a class": in_a_class,
    "called by name": by_name,
    "jitted": jitted,
    "in two cells": in_two_cells,
    "renamed": renamed,
    "from JAX arrays": from_jax_arrays,
    "from NumPy": from_numpy,
    "to NumPy": to_numpy,
    "with dataclasses": with_dataclasses,
}
"""What is tried in a process of JAX's defaults."""

FLOAT64: dict[str, Change] = {"in float64": as_it_is}
"""What is tried in a process in which `jax_enable_x64` is on."""

EAGER = "counts compilations: what is cut from a JAX array outside jit is a program each (§1.5)"
SIZES = "takes any number of rows: a program around the whole would be another for each"
DONATES = "donates buffers: NumPy arrays have none that a program could reuse"
INLINED = "donates buffers, which a jit inside another does not"
PAIR = "returns functions, which no program returns"
RESULT = "returns strings, configs or bools for Python, which no program returns"
CLASS = "asks for the class itself, whose methods and pickles find it by its name"

DOES_NOT_FIT: dict[str, dict[str, str]] = {
    "in a class": {"7.4": CLASS},
    "called by name": {"7.4": CLASS},
    "jitted": {
        "0.2": "counts ULPs in NumPy's float64, which no program has",
        "1.1": SIZES,
        "1.2": SIZES,
        "1.3": RESULT,
        "1.4": SIZES,
        "1.5": PAIR,
        "2.5": RESULT,
        "4.1": SIZES,
        "5.1": PAIR,
        "5.2": PAIR,
        "5.3": PAIR,
        "5.4": PAIR,
        "5.5": PAIR,
        "6.1": "asks for copies, which an answer may make by way of NumPy",
        "6.2": INLINED,
        "6.3": "asks for copies, which an answer may make by way of NumPy",
        "6.4": INLINED,
        "6.5": INLINED,
        "7.2": RESULT,
        "7.3": RESULT,
        "7.4": CLASS,
        "8.1": RESULT,
        "8.2": CLASS,
        "8.3": CLASS,
        "8.4": RESULT,
        "8.5": RESULT,
        "9.4": CLASS,
        "9.5": RESULT,
        "10.1": SIZES,
        "10.4": INLINED,
        "10.5": SIZES,
        "10.6": SIZES,
    },
    "from JAX arrays": {
        "1.1": EAGER,
        "1.2": EAGER,
        "1.4": EAGER,
        "4.1": EAGER,
        "7.4": CLASS,
        "8.4": "returns what stands in a config itself, not a copy of it",
        "10.5": EAGER,
        "10.6": EAGER,
    },
    "from NumPy": {"6.2": DONATES, "6.4": DONATES, "6.5": DONATES, "7.4": CLASS, "10.4": DONATES},
    "to NumPy": {
        "6.1": DONATES,
        "6.2": DONATES,
        "6.4": DONATES,
        "6.5": DONATES,
        "7.4": CLASS,
        "9.5": "asks for JAX arrays: its task says so",
        "10.2": DONATES,
        "10.4": DONATES,
    },
}
"""Why a change does not keep the answers to an exercise right: change → exercise → reason."""


# --- trying them ---------------------------------------------------------------------------------


def check_variants(chapter: Chapter, workers: int = 1) -> list[Problem]:
    """Right answers of a chapter that lose points when written otherwise; nothing if none does.

    workers: processes that share the exercises.
    """
    spawn = multiprocessing.get_context("spawn")
    problems: list[Problem] = []
    for changes, prepare in ((CHANGES, None), (FLOAT64, turn_on_float64)):
        with ProcessPoolExecutor(workers, spawn, prepare) as pool:
            tries = [(chapter.name, key, tuple(changes)) for key in chapter.exercises]
            jobs = [pool.submit(try_exercise, *each) for each in tries]
            problems += [found for job in jobs for found in job.result()]
    return problems


def turn_on_float64() -> None:
    """For a whole process, as a cell of a notebook does it."""
    jax.config.update("jax_enable_x64", True)


def try_exercise(name: str, key: str, changes: Sequence[str]) -> list[Problem]:
    """The changes to all right answers to an exercise of the chapter called `name`."""
    with bank.compiling_once():
        return list(rejected(course.chapter(name), key, changes))


def rejected(chapter: Chapter, key: str, changes: Sequence[str]) -> Iterator[Problem]:
    """Variants that lose points, and reasons in `DOES_NOT_FIT` that no longer hold."""
    asked = cases_of(chapter, key, secret="seed 0")
    exercise, given = chapter.hidden[key], bank.course_code(chapter)
    for change in changes:
        lost = []
        for answer in right_answers(chapter, key):
            cells = (CHANGES | FLOAT64)[change](answer.source, exercise)
            if cells:
                tried = bank.run_answer(given, cells[-1], exercise, asked, own=cells[:-1])
                verdict = assess(exercise, tried)
                if verdict.verdict != "full":
                    lost.append((answer, verdict))
        known = key in DOES_NOT_FIT.get(change, {})
        if known and not lost:
            yield Problem(
                f"autograder/variants.py: {key}",
                f"“{change}” earns all points",
                "take the exercise out of DOES_NOT_FIT",
            )
        for answer, verdict in () if known else lost:
            yield Problem(
                bank.place_of(chapter, answer),
                f"written otherwise ({change}) it earns {verdict.points:g} of "
                f"{verdict.max_points}: {bank.first_failure(verdict)}",
                "mend the check, or say in the task and in DOES_NOT_FIT why it is not right",
            )


def right_answers(chapter: Chapter, key: str) -> list[Answer]:
    """The reference and the bank's right answers to an exercise."""
    reference = assembly.reference_answers(chapter)[key]
    right = [a for a in chapter.answers if (a.exercise, a.kind) == (key, "right")]
    return [Answer(key, "right", "the reference", reference), *right]
