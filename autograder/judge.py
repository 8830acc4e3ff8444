"""Observations to verdicts: asks a learner's process case by case, and judges where it can't reach.

Nothing here runs a learner's code. Inputs go out one case at a time; hidden cases, references and
seeds stay.
"""

import builtins
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autograder.course import Chapter, hidden_rng
from autograder.deadline import Deadline
from autograder.sandbox import Learner, LearnerForged, LearnerGone, LearnerLate, Look
from helpers.exercise import Case, Exercise, Observation, Tried, public_rng

CHANNEL = "it wrote into the grader's channel"
CODE = "nothing is said to have been compiled, but new machine code was made"
TIME = "nothing is said to have been compiled, but it took the time of a compilation"
PROCESSES = "it leaves processes running, whose compilations nobody counts"
REPLACED = "something that the check rests on was replaced"
"""What is said of tampering: all but the last were seen from outside the learner's process."""


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
    exercise: Exercise,
    cells: Sequence[tuple[str, str]],
    asked: Sequence[Asked],
) -> tuple[list[Tried], bool]:
    """Loads the cells, the answer's last, and asks the cases within the exercise's deadline.

    Returns what was tried, and whether a name was missing, as in a slice that is too small. After a
    timeout, a crash or tampering nothing more is asked: the remaining cases share the fault, and
    the learner's process is of no further use (`spoiled`).
    """
    deadline = Deadline(exercise.seconds)
    tried: list[Tried] = []
    said: list[str] = []
    try:
        errors = learner.load(cells, deadline)
        said.extend(errors.values())
        before, compiling = learner.look(), 0.0
        for each in asked:
            seen = learner.observe(exercise.id, each.case.inputs, deadline)
            seen = _told_why(seen, errors.get(cells[-1][0], ""))
            said.append(seen.message)
            after = learner.look()
            seen = _witnessed(exercise, seen, before, after, compiling)
            if seen.fault != "tampered" and _counted(exercise, seen):
                compiling = max(compiling, after.cpu_seconds - before.cpu_seconds)
            tried.append(_discreet(Tried(each.case, seen, each.hidden)))
            if seen.fault == "tampered":
                return _ended(tried, asked, seen), False
            before = after
    except LearnerLate:
        late = f"no answer within {exercise.seconds:g} seconds"
        return _ended(tried, asked, Observation(fault="timeout", message=late)), False
    except LearnerForged:
        return _ended(tried, asked, Observation(fault="tampered", message=CHANNEL)), False
    except LearnerGone:
        gone = Observation(fault="crash", message="the Python process ended")
        return _ended(tried, asked, gone), False
    return tried, any(text.startswith("NameError") for text in said)


def _ended(tried: Sequence[Tried], asked: Sequence[Asked], seen: Observation) -> list[Tried]:
    """What was tried, and the fault that ended it for the cases that were not asked any more."""
    rest = asked[len(tried) :]
    return [*tried, *(_discreet(Tried(each.case, seen, each.hidden)) for each in rest)]


def _told_why(seen: Observation, error: str) -> Observation:
    """Where a name is missing since the answer's own cell raised, that error is the reason.

    A cell that raises behind its definitions has answered all the same, as in a notebook.
    """
    if seen.fault == "unanswered" and error:
        return Observation(fault="error", message=error)
    return seen


def spoiled(tried: Sequence[Tried]) -> bool:
    """Whether the learner's process must be started again."""
    return any(t.observation.fault in ("timeout", "crash", "tampered") for t in tried)


def _witnessed(
    exercise: Exercise, seen: Observation, before: Look, after: Look, compiling: float
) -> Observation:
    """The observation, unless what was seen from outside contradicts it.

    A program that XLA makes is memory made executable and takes tens of milliseconds of CPU time,
    which a process can't hide from the kernel. Where none is said to have been compiled, there must
    be no new code, and no time that only a compiler takes.

    compiling: CPU seconds of the longest case of this exercise in which something was compiled. It
    is the yardstick for time, on a slow machine as on a fast one; without it time says nothing.
    """
    try:
        counted = _counted(exercise, seen)
    except Exception:  # values that no probe returns
        return Observation(fault="tampered", message=CHANNEL)
    if counted is None:
        return seen
    took = after.cpu_seconds - before.cpu_seconds
    if after.processes > before.processes:
        found = PROCESSES
    elif counted <= 0 and after.programs > before.programs:
        found = CODE
    elif counted <= 0 and compiling and took > max(exercise.quiet_seconds, compiling / 3):
        found = TIME
    else:
        return seen
    return Observation(fault="tampered", message=found)


def _counted(exercise: Exercise, seen: Observation) -> int | None:
    if seen.fault:
        return None
    return exercise.counted(seen.values)


def _discreet(tried: Tried) -> Tried:
    """A fault in a hidden case says its kind only: its text could carry the inputs out."""
    seen = tried.observation
    if not tried.hidden or not seen.fault:
        return tried
    if seen.fault == "tampered":
        told = seen.message if seen.message in (CHANNEL, CODE, TIME, PROCESSES) else REPLACED
    elif seen.fault == "error":
        name = seen.message.split(":")[0]
        told = name if name in _KINDS else "an error of its own kind"
    else:
        told = seen.message
    return replace(tried, observation=replace(seen, values={}, message=told))


_KINDS = frozenset(name for name in dir(builtins) if re.search("Error|Exception|Exit", name)) | {
    "ConcretizationTypeError",
    "JaxRuntimeError",
    "KeyReuseError",
    "LinAlgError",
    "NonConcreteBooleanIndexError",
    "NonHashableStaticArgumentsError",
    "TracerArrayConversionError",
    "TracerBoolConversionError",
    "TracerIntegerConversionError",
    "UnexpectedTracerError",
    "XlaRuntimeError",
}
"""Errors whose names say what happened and no more; a class of one's own may be called anything."""
