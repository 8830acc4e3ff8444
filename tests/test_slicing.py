"""Which statements an answer needs: enough of them, in order, and none that only cost time."""

import gc
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autograder.slicing import names, needed, statements

SETUP = (
    "import jax\nimport jax.numpy as jnp\nfrom helpers import use_course_style\nuse_course_style()"
)


def test_an_answer_brings_the_imports_that_it_uses_and_no_others():
    assert needed("def f(x):\n    return jnp.sum(x)", [], [SETUP]) == ["import jax.numpy as jnp"]


def test_an_import_of_several_names_is_cut_to_those_in_use():
    many = "from numpy import (\n    array,\n    zeros as nothing,\n)\nimport os, sys"
    assert needed("f = lambda: nothing(3), sys", [], [many]) == [
        "from numpy import zeros as nothing",
        "import sys",
    ]


def test_definitions_are_followed_through_definitions():
    given_cells = [SETUP, "WIDTH = 4", "def scale(x):\n    return jnp.dot(x, x) * WIDTH"]
    sliced = needed("def f(x):\n    return scale(x)", [], given_cells)
    assert [line.splitlines()[0] for line in sliced] == [
        "import jax.numpy as jnp",
        "WIDTH = 4",
        "def scale(x):",
    ]


def test_a_learners_own_helper_wins_over_the_courses_for_the_learners_cells():
    sliced = needed("def f(x):\n    return half(x)", ["def half(x): return x / 2"], ["half = None"])
    assert sliced == ["def half(x):\n    return x / 2"]


def test_the_courses_cells_keep_the_courses_definitions():
    given_cells = ["SIZE = 3", "def area(): return SIZE ** 2"]
    sliced = needed("f = lambda: area()", ["SIZE = 'mine'"], given_cells)
    assert sliced == ["SIZE = 3", "def area():\n    return SIZE ** 2"]


def test_changes_behind_a_definition_come_with_it():
    given_cells = ["table = {}\ntable['a'] = 1\nprint(table)"]
    assert needed("f = lambda: table", [], given_cells) == ["table = {}", "table['a'] = 1"]


def test_what_is_made_from_its_old_self_comes_with_it():
    cell = "def f(x): return f\nold = f\nf = jax.jit(f)\nf = wrapped(f)"
    assert needed("g = lambda: f", [cell], []) == [
        "def f(x):\n    return f",
        "f = jax.jit(f)",
        "f = wrapped(f)",
    ]
    assert needed("g = lambda: f", ["f = 1\nf = 2\ndef f(x): return f(x - 1)"], []) == [
        "def f(x):\n    return f(x - 1)"
    ]
    long = "x = 0\n" + "x = x + 1\n" * 5000
    assert len(needed("g = lambda: x", [long], [])) == 5001


def test_a_class_comes_with_its_registration_as_a_pytree():
    cell = "class State: pass\njax.tree_util.register_pytree_node(State, None, None)\nprint(State)"
    assert needed("def f(): return State()", [cell], ["import jax"]) == [
        "import jax",
        "class State:\n    pass",
        "jax.tree_util.register_pytree_node(State, None, None)",
    ]


def test_a_function_comes_with_the_derivative_that_it_was_given():
    rules = "@root.defjvp\ndef rule(x, dx): return root(*x), dx[0]", "root.defjvps(None)"
    cell = "@jax.custom_jvp\ndef root(x): return x\n" + "\n".join(rules) + "\nprint(root)"
    sliced = needed("def f(x): return root(x)", [cell], [SETUP])
    assert [line.splitlines()[0] for line in sliced] == [
        "import jax",
        "@jax.custom_jvp",
        "@root.defjvp",
        "root.defjvps(None)",
    ]


def test_what_one_answer_does_to_a_module_is_not_in_anothers_slice():
    patch = "import jax\njax.jit = None\ndef g(x): return x"
    assert needed("def f(x): return jax.jit(x)", [patch], [SETUP]) == ["import jax"]


def test_the_last_definition_counts():
    assert needed("f = lambda: n", [], ["n = 1", "n = 2"]) == ["n = 2"]


def test_decorators_defaults_and_annotations_are_reads():
    source = "@deco\ndef f(x: Kind = base) -> Result:\n    return x"
    assert names(source)[1] >= {"deco", "Kind", "base", "Result"}


def test_names_bound_inside_a_function_are_not_reads():
    source = (
        "def f(x):\n    y = x\n    def g():\n        return y\n    return g() + len([z for z in y])"
    )
    assert names(source) == (frozenset({"f"}), frozenset())


def test_recursion_and_mutual_recursion_end():
    given_cells = [
        "def even(n): return n == 0 or odd(n - 1)",
        "def odd(n): return n and even(n - 1)",
    ]
    assert len(needed("f = even", [], given_cells)) == 2


@given(st.text(max_size=200))
def test_no_text_breaks_the_slicer(text):
    statements(text)
    assert isinstance(needed(text, [text], [SETUP]), list)


@pytest.fixture
def hesitant_gc():
    """A collector that lets other threads in, as JAX's callback does."""

    def hesitate(*_):
        time.sleep(0)

    gc.callbacks.append(hesitate)
    yield
    gc.callbacks.remove(hesitate)


@pytest.mark.usefixtures("hesitant_gc")
def test_threads_can_slice_at_the_same_time():
    nested = "def f(x):\n    return " + "-(" * 20 + "x" + ")" * 20 + "\n"
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: len(statements(nested * 30 + f"# {n}")), range(200)))
    assert found == [30] * 200
