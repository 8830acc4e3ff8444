"""The chapters' exercises: one module a chapter, and this table of the chapters."""

import importlib

from helpers.exercise import Exercise

CHAPTERS: dict[int, str] = {
    0: "start_here",
    1: "recompilation",
    2: "nan_safety",
    3: "derivatives",
    4: "per_example",
    5: "optimizers",
    6: "donation",
    7: "pytrees",
    8: "kauldron_tour",
    9: "trainer",
    10: "spiral",
}
"""Number → name. The module here, the folder in solutions/ and the notebook follow from it."""


def exercises_of(chapter: str) -> dict[str, Exercise]:
    """Public exercises of a chapter by id, in the order in which they stand."""
    module = importlib.import_module(f"helpers.exercises.{chapter}")
    return {exercise.id: exercise for exercise in (cls() for cls in module.EXERCISES)}


def examples_of(chapter: str) -> dict[str, Exercise]:
    """Exercises on which a chapter shows what a check says, by id: not listed, worth nothing."""
    module = importlib.import_module(f"helpers.exercises.{chapter}")
    return {example.id: example for example in (cls() for cls in getattr(module, "EXAMPLES", ()))}


def find(exercise_id: str) -> tuple[str, Exercise]:
    """The chapter's name and the exercise, or example, "1.2".

    Raises KeyError with the ids that there are.
    """
    number = exercise_id.split(".")[0]
    chapter = CHAPTERS.get(int(number)) if number.isdecimal() else None
    known = exercises_of(chapter) if chapter else {}
    shown = examples_of(chapter) if chapter else {}
    if chapter is None or exercise_id not in known | shown:
        there = ", ".join(known) or ", ".join(f"{number}.…" for number in CHAPTERS)
        raise KeyError(f"there is no exercise {exercise_id!r}; there are {there}")
    return chapter, (known | shown)[exercise_id]
