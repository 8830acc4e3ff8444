"""Observations to verdicts: asks a learner's process case by case, and judges where it can't reach.

Nothing here runs a learner's code. Inputs go out one case at a time; hidden cases, references and
seeds stay.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autograder.course import Chapter, hidden_rng
from autograder.sandbox import Learner, LearnerGone, LearnerLate
from helpers.exercise import Case, Observation, Tried, public_rng


@dataclass(frozen=True)
class Asked:
    """A case of an exercise, and whether only the judge knows it."""

    case: Case
    hidden: bool


def cases_of(chapter: Chapter, exercise_id: str, secret: str | None = None) -> list[Asked]:
    """The public cases, then the same questions and more from the course's secret."""
    public, hidden = chapter.exercises[exercise_id], chapter.hidden[exercise_id]
    asked = [Asked(case, hidden=False) for case in public.cases(public_rng(public))]
    secret_cases = hidden.cases(hidden_rng(exercise_id, secret))
    return asked + [Asked(case, hidden=True) for case in secret_cases]


def interview(
    learner: Learner,
    exercise_id: str,
    cells: Sequence[tuple[str, str]],
    asked: Sequence[Asked],
    seconds: float,
) -> tuple[list[Tried], bool]:
    """Loads the cells, the answer's last, and asks the cases within one deadline.

    Returns what was tried, and whether a name was missing, as in a slice that is too small. After a
    timeout, a crash or tampering nothing more is asked: the remaining cases share the fault, and
    the learner's process is of no further use (`spoiled`).
    """
    deadline = time.monotonic() + seconds
    tried: list[Tried] = []
    try:
        errors = learner.load(cells, deadline)
        for each in asked:
            seen = learner.observe(exercise_id, each.case.inputs, deadline)
            seen = _told_why(seen, errors.get(cells[-1][0], ""))
            tried.append(Tried(each.case, seen, each.hidden))
            if seen.fault == "tampered":
                tried += _all(asked[len(tried) :], seen)
                break
    except LearnerLate:
        gone = Observation(fault="timeout", message=f"no answer within {seconds:g} seconds")
        tried += _all(asked[len(tried) :], gone)
    except LearnerGone:
        gone = Observation(fault="crash", message="the Python process ended, or broke the protocol")
        tried += _all(asked[len(tried) :], gone)
    else:
        said = [*errors.values(), *(each.observation.message for each in tried)]
        return [_discreet(each) for each in tried], any(s.startswith("NameError") for s in said)
    return tried, False


def spoiled(tried: Sequence[Tried]) -> bool:
    """Whether the learner's process must be started again."""
    return any(t.observation.fault in ("timeout", "crash", "tampered") for t in tried)


def _told_why(seen: Observation, error: str) -> Observation:
    """Where a name is missing since the answer's own cell raised, that error is the reason.

    A cell that raises behind its definitions has answered all the same, as in a notebook.
    """
    if seen.fault == "unanswered" and error:
        return Observation(fault="error", message=error)
    return seen


def _discreet(tried: Tried) -> Tried:
    """An error in a hidden case says its kind only: its text could carry the inputs out."""
    seen = tried.observation
    if not tried.hidden or seen.fault != "error":
        return tried
    return replace(tried, observation=replace(seen, message=seen.message.split(":")[0]))


def _all(asked: Sequence[Asked], seen: Observation) -> list[Tried]:
    return [Tried(each.case, seen, each.hidden) for each in asked]
