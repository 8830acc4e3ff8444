"""The course on disk: its chapters, their sources, exercises, hidden cases and banks of answers.

Paths and parsing only: nothing here builds, runs or grades.
"""

import functools
import hashlib
import importlib
import importlib.util
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal

import numpy as np

from helpers.exercise import Exercise
from helpers.exercises import CHAPTERS, exercises_of

ROOT = Path(__file__).resolve().parent.parent
"""The checkout: `chapters/`, `solutions/`, `helpers/` lie here."""

SECRET = "COURSE_SECRET"
"""Environment variable that seeds the hidden cases; a course that matters sets its own."""


class UnknownChapter(ValueError):
    """No chapter has that name; the message lists those that there are."""


@dataclass(frozen=True)
class Answer:
    """One cell of a bank of answers.

    kind: "right" earns all points, "wrong" must lose some and be diagnosed as itself.
    name: how it is written, or the misconception. hint, see: what a learner who made it is told.
    """

    exercise: str
    kind: Literal["right", "wrong"]
    name: str
    source: str
    hint: str = ""
    see: str = ""


@dataclass(frozen=True)
class Chapter:
    """One chapter: a number, a name, and everything that follows from them."""

    number: int
    name: str

    @property
    def slug(self) -> str:
        """`01_recompilation`: the notebook's stem, and nbgrader's assignment and notebook name."""
        return f"{self.number:02d}_{self.name}"

    @property
    def notebook(self) -> Path:
        """The released notebook, committed with its outputs."""
        return ROOT / "chapters" / f"{self.slug}.ipynb"

    @property
    def source(self) -> Path:
        """The author's percent-format source."""
        return ROOT / "solutions" / self.name / "chapter.py"

    @property
    def public_bank(self) -> Path:
        """Fingerprints of known mistakes in the public cases, shipped to learners."""
        return ROOT / "helpers" / "exercises" / f"{self.name}.json"

    @property
    def public_sections(self) -> Path:
        """Titles of its sections, for the self-check's links; shipped to learners."""
        return self.public_bank.with_suffix(".sections.json")

    @property
    def preloaded(self) -> tuple[str, ...]:
        """Modules beyond JAX that its answers need: imported once for all learners."""
        module = importlib.import_module(f"helpers.exercises.{self.name}")
        return tuple(getattr(module, "PRELOADED", ()))

    def lacks(self) -> str:
        """The library that it needs and that is not installed, with what to do; "" if none."""
        for name in dict.fromkeys(module.partition(".")[0] for module in self.preloaded):
            if not importlib.util.find_spec(name):
                return f"{self.slug} needs {name}: `uv run noxfile.py -s {name}` adds it"
        return ""

    def require_libraries(self) -> None:
        """Raises RuntimeError where a library is missing, with what to do."""
        if lacks := self.lacks():
            raise RuntimeError(lacks)

    @functools.cached_property
    def exercises(self) -> dict[str, Exercise]:
        """Public exercises by id."""
        return exercises_of(self.name)

    @functools.cached_property
    def hidden(self) -> dict[str, Exercise]:
        """Exercises with their hidden cases, by id: subclasses in `hidden.py`, else the public."""
        module = _load(ROOT / "solutions" / self.name / "hidden.py")
        return self.exercises | {exercise.id: exercise for exercise in (c() for c in module.HIDDEN)}

    @functools.cached_property
    def answers(self) -> list[Answer]:
        """The bank: right answers written differently, and wrong ones."""
        path = ROOT / "solutions" / self.name / "answers.py"
        return list(parse_answers(path.read_text(encoding="utf-8")))


def chapters() -> list[Chapter]:
    """All chapters, in order."""
    return [Chapter(number, name) for number, name in CHAPTERS.items()]


def chapter(name: str) -> Chapter:
    """The chapter called "1", "01", "recompilation" or "01_recompilation".

    Raises UnknownChapter.
    """
    for known in chapters():
        if name in (str(known.number), f"{known.number:02d}", known.name, known.slug):
            return known
    there = ", ".join(known.slug for known in chapters())
    raise UnknownChapter(f"there is no chapter {name!r}; there are {there}")


def hidden_rng(exercise_id: str, secret: str | None = None) -> np.random.Generator:
    """The generator of hidden cases: the course's secret and the exercise decide."""
    key = secret if secret is not None else os.environ.get(SECRET, "a course that matters sets one")
    digest = hashlib.sha256(f"{key}/{exercise_id}".encode()).digest()
    return np.random.default_rng(list(digest))


def parse_answers(text: str) -> Iterator[Answer]:
    """The cells of an `answers.py`.

    A cell is `# %% 1.1 wrong: title`, then for a wrong answer comment lines with the explanation
    and one `# see: 1.4`, then code. Raises ValueError where a heading can't be read.
    """
    for block in re.split(r"^# %%", text, flags=re.MULTILINE)[1:]:
        heading, _, body = block.partition("\n")
        parsed = re.fullmatch(r"\s*(\d+\.\d+) (right|wrong): (.+)", heading)
        if not parsed:
            raise ValueError(f"can't read the heading {heading!r}: write `# %% 1.1 wrong: title`")
        exercise, kind, name = parsed.groups()
        comment = re.match(r"(?:#.*\n)*", body)
        lines = [
            line.lstrip("# ").rstrip() for line in (comment[0] if comment else "").splitlines()
        ]
        see = "".join(
            line.removeprefix("see:").strip() for line in lines if line.startswith("see:")
        )
        hint = " ".join(line for line in lines if not line.startswith("see:"))
        code = body[comment.end() :] if comment and kind == "wrong" else body
        yield Answer(
            exercise,
            "right" if kind == "right" else "wrong",
            name.strip(),
            code.strip() + "\n",
            hint if kind == "wrong" else "",
            see if kind == "wrong" else "",
        )


def _load(path: Path) -> ModuleType:
    """A module of `solutions/`, which is no package: learners' code could import a package."""
    spec = importlib.util.spec_from_file_location(f"solutions_{path.parent.name}", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
