"""Which known mistake behaves like this answer: fingerprints of observations, and their comparison.

A fingerprint is small JSON: what each public or hidden case let the probe see, floats to be
compared with a tolerance. The same mistake in other words may differ where it is right, in its own
draws or in how often it compiles; so an answer without a twin is compared by its failures alone.
The bank of a chapter's public cases ships in `helpers/exercises/`; the grader makes one of hidden
cases for itself. Neither holds an answer's code.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from helpers.exercise import Exercise, Row, Tried, rows

SAMPLE = 8
"""Elements of an array that its fingerprint keeps, evenly spaced."""


@dataclass(frozen=True)
class Misconception:
    """A mistake that people make, what to tell them, and how it behaves.

    fingerprint: of the observations that a wrong answer with this mistake gave, case by case.
    failures: for each case the properties that failed in it and what was seen.
    """

    exercise: str
    name: str
    hint: str
    see: str
    fingerprint: list[Any]
    failures: list[Any]


def recognised(
    exercise: Exercise, attempts: Iterable[Tried], bank: Iterable[Misconception]
) -> Misconception | None:
    """The known mistake that an answer behaves like, None if there is none.

    It is the first of the bank that let the same be seen in every case; failing that, the only one
    that fails in the same cases, the same properties and the same way.
    """
    attempts, bank = list(attempts), list(bank)
    if twin := match(fingerprint(exercise, attempts), bank):
        return twin
    mine = failures(exercise, attempts)
    same = [known for known in bank if any(mine) and alike(mine, known.failures)]
    return same[0] if len(same) == 1 else None


def failures(exercise: Exercise, attempts: Iterable[Tried]) -> list[Any]:
    """For each case the failed properties, each with what was seen as a list of words and numbers.

    Of an exception only the class counts.
    """
    return [
        sorted(
            (_of_failure(exercise, row, tried) for row in rows(exercise, tried) if not row.passed),
            key=itemgetter(0),  # an exercise may speak of its properties in any order
        )
        for tried in attempts
    ]


def fingerprint(exercise: Exercise, attempts: Iterable[Tried]) -> list[Any]:
    """The fingerprint of observations, in the order of their cases."""
    return [_of_attempt(exercise, tried) for tried in attempts]


def match(prints: list[Any], bank: Iterable[Misconception]) -> Misconception | None:
    """The first misconception of the bank that behaves the same in every case."""
    return next((known for known in bank if alike(prints, known.fingerprint)), None)


def alike(a: Any, b: Any, rtol: float = 1e-3, atol: float = 1e-6) -> bool:
    """Equal structure and text, numbers within the tolerance, NaN like NaN."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(alike(a[key], b[key], rtol, atol) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(alike(x, y, rtol, atol) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) or isinstance(b, float):
        numbers = isinstance(a, int | float) and isinstance(b, int | float)
        return numbers and bool(np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=True))
    return type(a) is type(b) and a == b


def save(path: Path, bank: Iterable[Misconception]) -> None:
    """Writes a bank as JSON, one misconception a line, so that a change is a readable diff."""
    lines = [json.dumps(asdict(known), ensure_ascii=False) for known in bank]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def load(path: Path) -> list[Misconception]:
    """Reads a bank; an absent file is an empty bank."""
    if not path.exists():
        return []
    return [Misconception(**entry) for entry in json.loads(path.read_text(encoding="utf-8"))]


def _of_failure(exercise: Exercise, row: Row, tried: Tried) -> list[Any]:
    if tried.observation.fault:
        return [row.key, _of_attempt(exercise, tried)]
    words = re.split(r"(-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)", row.seen)
    return [row.key, [float(word) if number % 2 else word for number, word in enumerate(words)]]


def _of_attempt(exercise: Exercise, tried: Tried) -> Any:
    seen = tried.observation
    if seen.fault:
        kind = seen.message.split(":")[0] if seen.fault == "error" else ""
        return {"fault": seen.fault, "error": kind}
    try:
        values = exercise.told_by(tried.case, seen.values)
    except Exception:  # a result of unexpected form tells what it can
        values = seen.values
    return {name: _of_value(value) for name, value in values.items()}


def _of_value(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        flat = value.ravel()
        picked = flat[np.linspace(0, flat.size - 1, min(flat.size, SAMPLE)).astype(int)]
        return {"shape": list(value.shape), "items": [_number(x) for x in picked]}
    if isinstance(value, Mapping):
        return {name: _of_value(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_of_value(item) for item in value]
    return _number(value) if isinstance(value, float) else value


def _number(value: Any) -> Any:
    if isinstance(value, bool | np.bool_ | int | np.integer):
        return int(value)
    return float(f"{float(np.real(value)):.5g}")
