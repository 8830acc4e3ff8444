"""New chapters and exercises: files that work as they are, with ✍️ where an author writes.

`autograder check` names each ✍️ that is left. Nothing that is there is overwritten.
"""

import ast
import keyword
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Template

from autograder import course, source
from autograder.build import write
from autograder.course import Chapter
from autograder.problems import UsageError

SKELETON = Path(__file__).with_name("skeleton")

TABLE = Path("helpers", "exercises", "__init__.py")

FRAMES: Mapping[str, str] = {
    "exercises": '''"""Exercises of chapter $number."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from helpers import expect
from helpers.exercise import Case, Exercise, Property, Row
from helpers.quiz import Question

EXERCISES = []

QUIZ: list[Question] = []
''',
    "hidden": '''"""Chapter $number: the cases that learners don't see."""

from collections.abc import Iterator

import numpy as np

from helpers.exercise import Case

HIDDEN = []
''',
    "chapter": """# %% [markdown]
# # $number · $title
#
# ✍️ What goes wrong without this chapter, and what a reader can do after it.

# %% tags=["setup"]
import jax.numpy as jnp
import numpy as np

from helpers import check
""",
    "answers": "",
}
"""What a chapter's files are before the first exercise."""

IMPORTS: Mapping[str, str] = {
    "Callable": "from collections.abc import Callable",
    "Iterator": "from collections.abc import Iterator",
    "Mapping": "from collections.abc import Mapping",
    "Any": "from typing import Any",
    "np": "import numpy as np",
    "expect": "from helpers import expect",
    "Case": "from helpers.exercise import Case",
    "Exercise": "from helpers.exercise import Exercise",
    "Property": "from helpers.exercise import Property",
    "Row": "from helpers.exercise import Row",
}
"""Where the names in a new exercise come from."""


def new_chapter(name: str, number: int | None = None) -> list[Path]:
    """Makes a chapter with one exercise. number: by default the next. Raises UsageError."""
    known = {chapter.number: chapter.name for chapter in course.chapters()}
    number = max(known, default=-1) + 1 if number is None else number
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name) or keyword.iskeyword(name):
        raise UsageError(f"{name!r} is no name for a chapter: small letters, digits, underscores")
    if number in known:
        raise UsageError(f"chapter {number} is there already, {known[number]}: take another number")
    chapter = Chapter(number, name)
    about = {"number": f"{number:02d}", "title": name.replace("_", " ").capitalize()}
    frames = {kind: Template(text).substitute(about) for kind, text in FRAMES.items()}
    texts = _with_exercise(chapter, frames, f"{number}.1", "weighted_mean", f"{number}.1")
    for path in texts:
        if path.exists():
            raise UsageError(f"{source.short(path)} is there already: take another name")
    table = course.ROOT / TABLE
    texts[table] = _with_chapter(table.read_text(encoding="utf-8"), chapter)
    return _written(texts)


def new_exercise(chapter: Chapter, exercise: str, answer: str) -> list[Path]:
    """Adds an exercise, and a section that teaches it, at the end of a chapter's files.

    exercise: its id. answer: the name that learners define. Raises UsageError and SourceError.
    """
    if not re.fullmatch(rf"{chapter.number}\.\d+", exercise):
        raise UsageError(f"{exercise!r} is no exercise of {chapter.slug}: {chapter.number}.…")
    if exercise in chapter.exercises:
        raise UsageError(f"exercise {exercise} is there already: take another number")
    if not answer.isidentifier() or keyword.iskeyword(answer):
        raise UsageError(f"{answer!r} is no name for a function")
    texts = {kind: path.read_text(encoding="utf-8") for kind, path in _files(chapter).items()}
    for text in texts.values():
        if re.search(rf"\b(def|class) ({answer}|{_class(answer)})\b", text):
            raise UsageError(f"{chapter.slug} defines {answer} already: say another with --answer")
    section = f"{chapter.number}.{len(source.sections(source.read(chapter))) + 1}"
    return _written(_with_exercise(chapter, texts, exercise, answer, section))


def _files(chapter: Chapter) -> dict[str, Path]:
    folder = chapter.source.parent
    module = course.ROOT / TABLE.parent / f"{chapter.name}.py"
    return {"exercises": module} | {k: folder / f"{k}.py" for k in ("hidden", "chapter", "answers")}


def _with_exercise(
    chapter: Chapter, texts: Mapping[str, str], exercise: str, answer: str, section: str
) -> dict[Path, str]:
    """The chapter's files with one more exercise in them."""
    name = _class(answer)
    words = {"id": exercise, "answer": answer, "cls": name, "section": section}
    parts = {
        kind: Template((SKELETON / f"{kind}.py.tmpl").read_text(encoding="utf-8")).substitute(words)
        for kind in texts
    }
    shared = f"from helpers.exercises.{chapter.name} import {name}"
    added = {
        "exercises": _with_class(texts["exercises"], parts["exercises"], "EXERCISES", name),
        "hidden": _with_class(
            texts["hidden"], parts["hidden"], "HIDDEN", f"Hidden{name}", {name: shared}
        ),
        "chapter": f"{texts['chapter'].rstrip()}\n\n{parts['chapter']}".lstrip(),
        "answers": f"{texts['answers'].rstrip()}\n\n\n{parts['answers']}".lstrip(),
    }
    return {path: added[kind] for kind, path in _files(chapter).items()}


def _class(answer: str) -> str:
    """weighted_mean → WeightedMean"""
    return "".join(part[:1].upper() + part[1:] for part in answer.split("_"))


def _written(texts: Mapping[Path, str]) -> list[Path]:
    for path, text in texts.items():
        write(path, text)
    return list(texts)


# --- edits of Python text ------------------------------------------------------------------------


def _with_class(
    text: str, block: str, list_name: str, name: str, more: Mapping[str, str] = {}
) -> str:
    """The module with the class above its list of classes, in that list, and its imports."""
    node = _assigned(text, list_name)
    assert isinstance(node.value, ast.List)
    text = _with_item(text, node.value, name)
    lines = text.splitlines(keepends=True)
    above, below = "".join(lines[: node.lineno - 1]), "".join(lines[node.lineno - 1 :])
    text = f"{above.rstrip()}\n\n\n{block}\n\n{below}"
    return _with_imports(text, list(_imports(text, block, {**IMPORTS, **more})))


def _imports(text: str, block: str, known: Mapping[str, str]) -> Iterator[str]:
    """Import statements for the names that the block uses and nothing in the module binds."""
    used = {node.id for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Name)}
    bound = {
        alias.asname or alias.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    yield from (line for name, line in known.items() if name in used - bound)


def _with_imports(text: str, imports: Sequence[str]) -> str:
    heads = [n for n in ast.parse(text).body if isinstance(n, ast.Import | ast.ImportFrom)]
    at = heads[-1].end_lineno or 0
    lines = text.splitlines(keepends=True)
    return "".join([*lines[:at], *(f"{line}\n" for line in imports), *lines[at:]])


def _with_chapter(text: str, chapter: Chapter) -> str:
    """The table of chapters with one more line."""
    table = _assigned(text, "CHAPTERS").value
    assert isinstance(table, ast.Dict)
    last = table.values[-1]
    return _inserted(text, _end(last), f',\n    {chapter.number}: "{chapter.name}"')


def _with_item(text: str, items: ast.List, name: str) -> str:
    if items.elts:
        return _inserted(text, _end(items.elts[-1]), f", {name}")
    return _inserted(text, (items.lineno, items.col_offset + 1), name)


def _end(node: ast.expr) -> tuple[int, int]:
    return node.end_lineno or 0, node.end_col_offset or 0


def _inserted(text: str, place: tuple[int, int], more: str) -> str:
    """The text with more in it. place: a line, from 1, and a column in bytes of UTF-8, from 0."""
    line, column = place
    lines = text.splitlines(keepends=True)
    whole = lines[line - 1].encode()
    lines[line - 1] = whole[:column].decode() + more + whole[column:].decode()
    return "".join(lines)


def _assigned(text: str, name: str) -> ast.Assign | ast.AnnAssign:
    """The module's statement that assigns the name."""
    for node in ast.parse(text).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.Assign | ast.AnnAssign) and any(
            isinstance(target, ast.Name) and target.id == name for target in targets
        ):
            return node
    raise UsageError(f"no list {name} = […] in the chapter's files: write it first")
