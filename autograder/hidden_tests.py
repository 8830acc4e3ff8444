"""Hidden tests for plain `nbgrader autograde`: what the region in a self-check cell calls.

In this mode the judge runs in the learner's own kernel, with nbgrader's trust model: a notebook
that means harm can read references and forge its points. `autograder grade`, and the engine inside
nbgrader, are for marks that count.
"""

import contextlib
import io
import sys
import warnings
from collections.abc import Mapping
from typing import Any

from autograder.course import chapter
from autograder.judge import cases_of
from helpers.exercise import Tried, assess, observe
from helpers.exercises import find


def points(exercise_id: str, namespace: Mapping[str, Any] | None = None) -> float:
    """The points that the notebook's answer earns in the public and hidden cases.

    It is the cell's last expression, and nbgrader takes a number there for partial credit. Nothing
    that an answer writes gets out, for nbgrader gives 0 to a cell with anything on stderr.
    """
    where = vars(sys.modules["__main__"]) if namespace is None else namespace
    name, _ = find(exercise_id)
    taught = chapter(name)
    exercise = taught.hidden[exercise_id]
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(action="ignore"),
    ):
        tried = [
            Tried(asked.case, observe(exercise, where, asked.case), asked.hidden)
            for asked in cases_of(taught, exercise_id)
        ]
    return float(assess(exercise, tried).points)
