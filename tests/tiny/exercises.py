"""Exercises of a made-up chapter 09 on which the author's tools are tested."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from helpers import expect
from helpers.exercise import Case, Exercise, Property, Row, error_name
from helpers.quiz import Question


def total(values: np.ndarray) -> np.float64:
    """Sum in float64."""
    return np.sum(values, dtype=np.float64)


class SafeMean(Exercise):
    """9.1 · The mean that an empty selection can't break."""

    id = "9.1"
    title = "A mean that survives an empty selection"
    answer = "safe_mean"
    points = 4
    properties = {
        "value": Property("is the mean of the selected numbers", weight=3, see="9.1"),
        "empty": Property("is 0 when nothing is selected", see="9.1"),
    }

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        values = rng.normal(size=5) + 3
        yield Case("some are selected", values, np.arange(5) < 3, about=["value"])
        yield Case("none is selected", values, np.zeros(5, bool), about=["empty"])

    def probe(self, safe_mean: Any, values: np.ndarray, mask: np.ndarray) -> Mapping[str, Any]:
        return {"mean": safe_mean(values, mask)}

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        values, mask = case
        want = values[mask].mean() if mask.any() else 0.0
        key = "value" if mask.any() else "empty"
        yield expect.close(key, seen["mean"], want, hint="count what is selected")


class Bounds(Exercise):
    """9.2 · Refuse what is out of bounds."""

    id = "9.2"
    title = "A look-up that refuses"
    answer = "at"
    points = 2
    properties = {
        "value": Property("returns the element", see="9.2"),
        "refuses": Property("raises IndexError for a negative index", see="9.2"),
    }

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        values = rng.integers(1, 9, size=4)
        yield Case("inside", values, 2, about=["value"])
        yield Case("outside", values, -1, about=["refuses"])

    def probe(self, at: Any, values: np.ndarray, index: int) -> Mapping[str, Any]:
        error = error_name(lambda: at(values, index))
        return {"value": None if error else at(values, index), "error": error}

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        values, index = case
        if index >= 0:
            yield expect.equal("value", seen["value"], int(values[index]))
        else:
            yield expect.raises("refuses", seen["error"], "IndexError")


EXERCISES = [SafeMean, Bounds]
QUIZ = [
    Question(
        "9.a",
        "What is the mean of no numbers in NumPy?",
        {"a": "0", "b": "NaN"},
        answer="b",
        why="0 divided by 0 is NaN.",
        see="9.1",
        run=lambda: "b" if np.isnan(np.float64(0) / np.float64(1) * np.nan) else "a",
    )
]
