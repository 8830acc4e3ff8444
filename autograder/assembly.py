"""From an author's cells to nbgrader's source notebook: tasks, self-checks, quiz, ids, metadata.

Solutions and hidden tests are still inside. Nothing is run, written or released here: see
`autograder.build`.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from autograder import source
from autograder.course import Chapter
from autograder.slicing import names
from autograder.source import Cell, SourceError, short
from helpers.exercise import Exercise
from helpers.quiz import Question, questions_of

METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}
"""Of every notebook: nothing that differs between two machines."""


def solution_notebook(chapter: Chapter) -> NotebookNode:
    """nbgrader's source notebook, with solutions and hidden tests. Raises SourceError."""
    nodes = [node for node, _ in assembled(chapter)]
    notebook = new_notebook(cells=nodes, metadata=nbformat.from_dict(METADATA))
    nbformat.validate(notebook)
    return notebook


def given_cells(chapter: Chapter) -> list[tuple[str, str, str]]:
    """(grade_id, source, role) of the code cells that are the course's own, in order.

    Their roles are setup, given, claim and figure; a learner's changes to them don't count.
    """
    locked = [node for node, _ in assembled(chapter) if role_of(node) in source.LOCKED]
    return [(node["id"], node.source, role_of(node)) for node in locked]


def reference_answers(chapter: Chapter) -> dict[str, str]:
    """The reference solution of each exercise by its id: the answer cells of the source."""
    cells = {node["id"]: node.source for node, _ in assembled(chapter)}
    return {key: cells[f"answer-{dashed(key)}"] for key in chapter.exercises}


def role_of(node: NotebookNode) -> str:
    """The role of a notebook's cell, "" for prose."""
    return next((tag for tag in node.metadata.get("tags", ()) if tag in source.ROLES), "")


def assembled(chapter: Chapter) -> list[tuple[NotebookNode, Cell]]:
    """The source notebook's cells, each with the source cell that it comes from."""
    cells = source.read(chapter)
    _require_each_exercise_once(chapter, cells)
    triples = [(node, wanted, cell) for cell in cells for node, wanted in _expanded(chapter, cell)]
    _name([(node, wanted) for node, wanted, _ in triples])
    return [(node, cell) for node, _, cell in triples]


# --- what a source cell becomes ------------------------------------------------------------------


def _expanded(chapter: Chapter, cell: Cell) -> Iterator[tuple[NotebookNode, str]]:
    """The one or two notebook cells that a source cell stands for, with the ids they ask for.

    The id is "" where the cell's place decides.
    """
    if cell.kind == "markdown" and cell.exercise:
        exercise = _exercise(chapter, cell)
        yield new_markdown_cell(_task(exercise, cell.text)), f"task-{dashed(exercise.id)}"
    elif cell.kind == "markdown":
        yield new_markdown_cell(cell.text), ""
    elif cell.role == "starter":
        exercise = _exercise(chapter, cell)
        text = source.with_quotes(cell).text
        yield _code(text, cell.tags, _graded(solution=True)), f"answer-{dashed(exercise.id)}"
        yield _self_check(exercise), f"check-{dashed(exercise.id)}"
    elif cell.role == "quiz":
        question = _question(chapter, cell)
        yield new_markdown_cell(_question_text(question)), f"question-{dashed(question.id)}"
        call = f'quiz("{question.id}", answer=...)'
        yield _code(call, cell.tags, None), f"quiz-{dashed(question.id)}"
    else:
        text = source.with_quotes(cell).text
        yield _code(text, cell.tags, _graded(locked=True)), _defined(text, cell.role)


def _task(exercise: Exercise, text: str) -> str:
    """The task as a learner reads it, around the author's text."""
    facts = (
        f"difficulty {_dots(exercise.difficulty)}",
        f"importance {_dots(exercise.importance)}",
        f"{exercise.minutes} minutes",
        f"{exercise.points} points",
    )
    total = sum(prop.weight for prop in exercise.properties.values())
    looks_at = (
        f"- {prop.text} ({_points(exercise.points * prop.weight / total)})"
        for prop in exercise.properties.values()
    )
    parts = (
        f"### ✍️ Exercise {exercise.id} · {exercise.title}",
        " · ".join(facts),
        text,
        "**The check looks at** whether the answer",
        "\n".join(looks_at),
    )
    return "\n\n".join(parts)


def _dots(level: int) -> str:
    return "●" * level + "○" * (3 - level)


def _points(number: float) -> str:
    return "1 point" if number == 1 else f"{number:.3g} points"


def _question_text(question: Question) -> str:
    options = "\n".join(f"- **{letter}** · {text}" for letter, text in question.options.items())
    return f"**🧪 Question {question.id}** · {question.text}\n\n{options}"


def _self_check(exercise: Exercise) -> NotebookNode:
    """The learner's check and, for plain nbgrader, the hidden one: its value is the points."""
    lines = (
        f'check("{exercise.id}")',
        "### BEGIN HIDDEN TESTS",
        "from autograder import hidden_tests",
        "",
        f'hidden_tests.points("{exercise.id}")',
        "### END HIDDEN TESTS",
    )
    graded = _graded(grade=True, locked=True, points=exercise.points)
    return _code("\n".join(lines), ("selfcheck",), graded)


def _code(text: str, tags: Sequence[str], nbgrader: dict[str, Any] | None) -> NotebookNode:
    metadata: dict[str, Any] = {"tags": list(tags)}
    if nbgrader:
        metadata["nbgrader"] = nbgrader
    return new_code_cell(text, metadata=metadata)


def _graded(
    *, grade: bool = False, solution: bool = False, locked: bool = False, **more: int
) -> dict[str, Any]:
    """nbgrader's metadata of a cell, but for its grade_id. Locked: graders restore the source."""
    kinds = {"grade": grade, "solution": solution, "locked": locked, "task": False}
    return kinds | {"schema_version": 3} | more


def _exercise(chapter: Chapter, cell: Cell) -> Exercise:
    if cell.exercise not in chapter.exercises:
        there = ", ".join(chapter.exercises) or "none"
        raise SourceError(f"{cell.at}: there is no exercise {cell.exercise!r}; there are {there}")
    return chapter.exercises[cell.exercise]


def _question(chapter: Chapter, cell: Cell) -> Question:
    known = questions_of(chapter.name)
    if cell.question not in known:
        there = ", ".join(known) or "none"
        raise SourceError(f"{cell.at}: there is no question {cell.question!r}; there are {there}")
    return known[cell.question]


def _require_each_exercise_once(chapter: Chapter, cells: Sequence[Cell]) -> None:
    for kind, what in (("markdown", "task"), ("code", "starter")):
        found = Counter(cell.exercise for cell in cells if cell.kind == kind and cell.exercise)
        for exercise in chapter.exercises:
            if found[exercise] != 1:
                raise SourceError(
                    f"{short(chapter.source)}:1: exercise {exercise} has {found[exercise]} {what}"
                    f' cells: write exactly one, with exercise="{exercise}"'
                )


# --- ids -----------------------------------------------------------------------------------------


def dashed(text: str) -> str:
    """The text with nothing in it but what nbformat and nbgrader allow in an id."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text)


def _defined(text: str, role: str) -> str:
    """`given-masked_mean`, after the first name that a given cell defines; else ""."""
    defined = sorted(names(text)[0], key=lambda name: (text.find(name), name))
    return f"given-{dashed(defined[0])}" if role == "given" and defined else ""


def _name(nodes: Sequence[tuple[NotebookNode, str]]) -> None:
    """Gives each cell an id that stays when others come and go; nbgrader's grade_id is the same.

    A cell that asks for no id of its own is called by role, section and place in the section.
    """
    used: Counter[str] = Counter()
    section = "0"
    for node, wanted in nodes:
        heading = re.search(r"^## (\d+\.\d+) ", node.source, re.MULTILINE)
        if node.cell_type == "markdown" and heading:
            section = heading[1]
        stem = wanted or f"{role_of(node) or 'text'}-{dashed(section)}"
        used[stem] += 1
        number = "" if wanted and used[stem] == 1 else f"-{used[stem]}"
        node["id"] = stem[: 64 - len(number)] + number
        if "nbgrader" in node.metadata:
            node.metadata.nbgrader["grade_id"] = node["id"]
