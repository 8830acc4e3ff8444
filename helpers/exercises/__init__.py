"""The chapters' exercises: one module a chapter, and this table of the chapters."""

import importlib

from helpers.exercise import Exercise

CHAPTERS: dict[int, str] = {1: "recompilation"}
"""Number → name. The module here, the folder in solutions/ and the notebook follow from it."""


def exercises_of(chapter: str) -> dict[str, Exercise]:
    """Public exercises of a chapter by id, in the order in which they stand."""
    module = importlib.import_module(f"helpers.exercises.{chapter}")
    return {exercise.id: exercise for exercise in (cls() for cls in module.EXERCISES)}


def find(exercise_id: str) -> tuple[str, Exercise]:
    """The chapter's name and the exercise "1.2".

    Raises KeyError with the ids that there are.
    """
    chapter = CHAPTERS.get(int(exercise_id.split(".")[0])) if exercise_id[:1].isdigit() else None
    known = exercises_of(chapter) if chapter else {}
    if exercise_id not in known:
        there = ", ".join(known) or ", ".join(f"{number}.…" for number in CHAPTERS)
        raise KeyError(f"there is no exercise {exercise_id!r}; there are {there}")
    assert chapter is not None
    return chapter, known[exercise_id]
