"""What several test files share: a checkout of its own with one made-up chapter, 09 tiny."""

import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings

from autograder import course
from autograder.course import Chapter
from autograder.lint import lint
from helpers import exercises

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HERE = Path(__file__).parent
ROOT = HERE.parent

# how fast examples are made is the machine's business
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Chapter]:
    """The made-up chapter of `tests/tiny`, the only one of a course in a temporary folder."""
    with made_up_course(tmp_path / "checkout") as chapter:
        yield chapter


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """Chromium; not for longer than a module, for other tests have event loops of their own."""
    from chromium import launched

    with launched() as browser:
        yield browser


@pytest.fixture
def said(tiny: Chapter) -> Callable[[str, str], list[str]]:
    """Plants a fault in the made-up chapter's source; returns what the lint says."""

    def plant(old: str, new: str) -> list[str]:
        text = tiny.source.read_text()
        assert old in text
        tiny.source.write_text(text.replace(old, new, 1))
        return [str(problem) for problem in lint(tiny)]

    return plant


@contextmanager
def made_up_course(root: Path) -> Iterator[Chapter]:
    """The same for a longer time than a test."""
    no_banks = shutil.ignore_patterns("*.json", "__pycache__", ".ruff_cache")
    shutil.copytree(ROOT / "helpers", root / "helpers", ignore=no_banks)
    shutil.copy(HERE / "tiny" / "exercises.py", root / "helpers" / "exercises" / "tiny.py")
    with (root / "helpers" / "exercises" / "__init__.py").open("a") as table:
        table.write('\nCHAPTERS.clear()\nCHAPTERS[9] = "tiny"\n')
    for name in ("chapter.py", "hidden.py", "answers.py"):
        (root / "solutions" / "tiny").mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / "tiny" / name, root / "solutions" / "tiny" / name)
    only = mock.patch.dict(exercises.CHAPTERS, {9: "tiny"}, clear=True)  # puts the order back, too
    with pytest.MonkeyPatch.context() as patch, only:
        patch.setattr(course, "ROOT", root)
        patch.setattr(exercises, "__path__", [str(root / "helpers" / "exercises")])
        yield Chapter(9, "tiny")
    sys.modules.pop("helpers.exercises.tiny", None)
