"""Mutants: what each operator changes, what none touches, and ids that stay."""

import ast

import pytest

from autograder.mutants import mutants

CHANGES = {
    "arithmetic": ("a * b - -c", {"a / b - -c", "a * b + -c", "a * b - c"}),
    "comparison": ("a < b", {"a <= b", "a >= b"}),
    "boolean": ("(a and not b, True)", {"(a or not b, True)", "(a and b, True)", None}),
    "constant": ("(0, 1, 7, 0.5, 1e-8)", {"(1, 1, 7, 0.5, 1e-8)", "(0, 0, 7, 0.5, 1e-8)", None}),
    "dropped call": ("lax.stop_gradient(a) + b.astype(c)", {"a + b.astype(c)", None}),
    "dropped where": ("jnp.where(a, b / a, 0.0)", {"b / a"}),
    "dropped mask": ("a / jnp.sum(mask)", {"a / jnp.size(mask)"}),
    "dropped correction": ("a / (1 - b**c)", {"a"}),
    "swapped": ("f(a, b, c)", {"f(b, a, c)"}),
    "axes": (
        "(f(a, axis=-1), vmap(f, in_axes=(None, 0)))",
        {"(f(a, axis=0), vmap(f, in_axes=(None, 0)))", "(f(a, axis=-1), vmap(f, in_axes=(0, 0)))"}
        | {None},
    ),
    "off by one": (
        "(range(a), b[c:a])",
        {"(range(a - 1), b[c:a])", "(range(a), b[c:a - 1])", None},
    ),
    "dtype": ("f(a, jnp.float32)", {"f(a, jnp.float16)"}),
    "dropped argument": ("jax.jit(f, donate_argnums=0)", {"jax.jit(f)"}),
}
"""An expression, and what the operator makes of it; None: and more."""


@pytest.mark.parametrize("operator", CHANGES)
def test_an_operator_changes_one_thing_and_keeps_the_rest_of_the_text(operator):
    expression, wanted = CHANGES[operator]
    source = f"def g(a, b, c, f):\n    # − as it was\n    return {expression}  # …\n"
    found = {
        each.source.splitlines()[2].removeprefix("    return ").removesuffix("  # …")
        for each in mutants(source)
        if each.id.startswith(f"g: {operator}: ")
    }
    assert found >= wanted - {None}
    assert found == wanted or None in wanted
    assert all(each.source.splitlines()[:2] == source.splitlines()[:2] for each in mutants(source))


def test_an_assignment_is_dropped_where_the_function_runs_without_it():
    source = "def f(x, y):\n    x = x * y\n    z = x\n    z += y\n    return z\n"
    dropped = [each.id for each in mutants(source) if "dropped statement" in each.id]
    assert dropped == [
        "f: dropped statement: x = x * y → pass",
        "f: dropped statement: z += y → pass",
    ]


UNTOUCHED = """
weights = np.random.default_rng(0).standard_normal(8)

def f(x: Float["2"], y: int = None) -> Literal[1]:
    '''Adds 1.'''
    rng = np.random.default_rng(3)
    print(x, 1 + 1)
    ax.plot(x, 2 * x)
    if y is None:
        raise ValueError(f"{x + 1} is not 1", 2)
    assert y, x + 1
    return zip(x, strict=True)

class A:
    def __repr__(self):
        return "A" * 2
"""


def test_data_annotations_messages_figures_and_seeds_are_left_alone():
    assert [each.id for each in mutants(UNTOUCHED)] == ["f: comparison: y is None → y is not None"]


def test_a_function_made_by_a_transformation_is_a_definition():
    found = mutants("step = jax.jit(lambda x: x + 1, donate_argnums=0)\n")
    assert "step: dropped argument" in " ".join(each.id for each in found)
    assert {name for each in found for name in each.names} == {"step"}


def test_an_id_says_what_became_of_what_and_stays_when_other_code_comes():
    inner = "class A:\n    def f(self, x):\n        return (x + 1) * (x + 1)\n"
    ids = [each.id for each in mutants(inner)]
    assert ids[:3] == [
        "A.f: arithmetic: (x + 1) * (x + 1) → (x + 1) / (x + 1)",
        "A.f: arithmetic: x + 1 → x - 1",
        "A.f: constant: 1 → 0",
    ]
    assert "A.f: arithmetic: x + 1 → x - 1 #2" in ids
    assert [each.id for each in mutants(f"def g():\n    return {{}}\n\n\n{inner}")] == ids


def test_all_mutants_are_python_and_differ():
    source = "def f(x, n):\n    return -x ** 2 / (1 - n ** 2) if not n else max(x, n) @ x[1:n]\n"
    found = [ast.dump(ast.parse(each.source)) for each in mutants(source)]
    assert len(found) > 10
    assert len({ast.dump(ast.parse(source)), *found}) == len(found) + 1


def test_a_diff_shows_the_changed_line_between_its_neighbours():
    (mutant,) = mutants("def f(x):\n    y = x\n    return y - x\n")
    assert mutant.diff == "@@ -2,2 +2,2 @@\n     y = x\n-    return y - x\n+    return y + x"
