"""How a cell's code asserts: what the lint and the numbers of the prose rest on."""

import ast

from autograder.slicing import parse_python


def asserts(text: str) -> bool:
    """Whether the code asserts: a statement, an `assert_…` call, an expected error, a budget."""
    return any(is_assertion(node) for node in ast.walk(parsed(text)))


def is_assertion(node: ast.AST) -> bool:
    """Whether the node itself is one of these."""
    if isinstance(node, ast.With):
        return any(called(item.context_expr) in BUDGETS for item in node.items)
    if isinstance(node, ast.Call):
        expects = any(keyword.arg == "expect" for keyword in node.keywords)
        name = called(node)
        return name.startswith("assert_") or (name == "show_error" and expects)
    return isinstance(node, ast.Assert)


BUDGETS = ("CompileBudget", "raises")
"""Contexts that fail where what they expect does not happen."""


def called(node: ast.expr) -> str:
    """`f` of `f(…)` and of `module.f(…)`, else ""."""
    function = node.func if isinstance(node, ast.Call) else None
    if isinstance(function, ast.Name):
        return function.id
    return function.attr if isinstance(function, ast.Attribute) else ""


def parsed(text: str) -> ast.Module:
    """The code's tree, empty where it is no Python."""
    try:
        return parse_python(text)
    except SyntaxError:  # the lint's `code_parses` speaks of it
        return ast.Module([], [])
