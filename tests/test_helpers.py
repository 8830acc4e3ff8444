"""The package `helpers`: what it offers, and what importing it costs."""

import subprocess
import sys
from pathlib import Path

import pytest

import helpers


def test_every_public_name_can_be_imported():
    for name in sorted({"expect", *helpers._MODULE}):
        namespace = {}
        exec(f"from helpers import {name}", namespace)
        assert name in dir(helpers)


def test_an_unknown_name_is_refused():
    with pytest.raises(AttributeError, match="module 'helpers' has no attribute 'assert_near'"):
        _ = helpers.assert_near


def test_quiz_is_the_function_whatever_was_imported_before():
    program = "import helpers.quiz; from helpers import quiz; assert callable(quiz), quiz"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize("module", ["exercise", "expect", "oracle", "selfcheck", "quiz"])
def test_the_judges_modules_import_no_jax(module):
    program = f"import sys, helpers.{module}; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_names_for_type_checkers_are_those_that_are_loaded():
    source = Path(helpers.__file__).read_text(encoding="utf-8")
    for name, module in helpers._MODULE.items():
        assert f"    from helpers.{module} import {name} as {name}\n" in source
