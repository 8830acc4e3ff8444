"""The language exercises are written in: what to ask, what to observe, how to judge.

One class an exercise serves the notebook's self-check, the tests and the grader. This module runs
no sandbox and prints nothing: `helpers.selfcheck` shows an assessment to a learner, and the grader
calls the same `assess` on observations made in another process.
"""

import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

import numpy as np

STUB = "your answer"
"""The message of the NotImplementedError that stands in every unanswered starter."""

NOT_YET = "not answered yet"
"""The message of an observation whose answer is still the starter."""

Fault = Literal["", "unanswered", "error", "timeout", "crash", "tampered"]
Verdict = Literal["full", "partial", "zero", "unanswered", "error", "timeout", "crash", "tampered"]


class Case:
    """One call of the probe: a name that a learner may read, and the inputs.

    about: the keys of the properties that this case decides; None means all of them.
    """

    def __init__(self, name: str, *inputs: Any, about: Iterable[str] | None = None) -> None:
        self.name = name
        self.inputs = inputs
        self.about = None if about is None else tuple(about)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.inputs)

    def __repr__(self) -> str:
        return f"Case({self.name!r})"


@dataclass(frozen=True)
class Property:
    """Something that must hold in every case that is about it; the unit of partial credit.

    text: completes "the answer …". weight: its share of the points; where an exercise's weights add
    up to its points, a weight is what the property earns. see: the section to reread.
    """

    text: str
    weight: float = 1.0
    see: str = ""


@dataclass(frozen=True)
class Row:
    """What `expect` found out about one property in one case."""

    key: str
    passed: bool
    seen: str = ""
    expected: str = ""
    hint: str = ""
    see: str = ""


@dataclass(frozen=True)
class Observation:
    """What the probe saw in one case: plain values, or the fault that kept it from seeing any."""

    values: Mapping[str, Any] = field(default_factory=dict)
    fault: Fault = ""
    message: str = ""


class Exercise:
    """Ask, observe, judge. Subclass it once an exercise; instances hold no state.

    Attributes:
        id: chapter and number, "1.2".
        title: one line, no final stop.
        answer: the name, or names, that the learner defines.
        properties: what the check looks at, by key.
        points: earned in full when every property holds.
        difficulty, importance: 1 to 3. minutes: for a learner who has read the section.
        seconds: wall-clock deadline of the whole exercise in the grader, loading included; longer
            on a machine that has other work (`autograder.deadline`).
        quiet_seconds: CPU time that a case takes at most in which nothing is compiled (`counted`);
            by default time is no evidence, only new machine code is.
    """

    id: str
    title: str
    answer: str | tuple[str, ...]
    properties: Mapping[str, Property]
    points: int = 4
    difficulty: int = 1
    importance: int = 2
    minutes: int = 10
    seconds: float = 10.0
    quiet_seconds: float = math.inf

    @property
    def names(self) -> tuple[str, ...]:
        """The names that the learner defines, as a tuple."""
        return (self.answer,) if isinstance(self.answer, str) else tuple(self.answer)

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        """What to try. The judge's side: the same generator seed gives the same cases."""
        raise NotImplementedError(f"{type(self).__name__}.cases")

    def probe(self, *answers_then_inputs: Any) -> Mapping[str, Any]:
        """Runs beside the learner's code: the answers, then the case's inputs.

        Returns plain values by name: arrays, numbers, strings, exact counts, or nests of these.
        """
        raise NotImplementedError(f"{type(self).__name__}.probe")

    def counted(self, seen: Mapping[str, Any]) -> int | None:
        """How many compilations the probe counted in a case; None for a case without a count.

        For probes that count whatever is compiled. The grader compares it with what it sees from
        outside: machine code that nobody compiled is a count that somebody forged.
        """
        return None

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        """NumPy float64 on the judge's side, never where a learner's code runs: yields rows."""
        raise NotImplementedError(f"{type(self).__name__}.judge")

    def told_by(self, case: Case, seen: Mapping[str, Any]) -> Mapping[str, Any]:
        """What of an observation a known mistake is told by; on the judge's side, plain data.

        All of it. Where right answers may differ, in what they draw or in how many programs they
        compile, so may wrong ones: such an exercise leaves that out, or a mistake is known in one
        wording only.
        """
        return seen


def public_rng(exercise: Exercise) -> np.random.Generator:
    """The generator of the public cases: the same for everybody, on every day."""
    chapter, number = exercise.id.split(".")
    return np.random.default_rng([int(chapter), int(number)])


# --- observing -----------------------------------------------------------------------------------


def plain(value: Any, depth: int = 6) -> Any:
    """The value as plain data: None, bool, int, float, str, NumPy arrays, lists and dicts of these.

    Arrays of JAX and NumPy become NumPy arrays (bfloat16 and other extended floats: float32, which
    holds them exactly); tuples become lists. Raises TypeError for anything else, with its type.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if depth == 0:
        raise TypeError("the result is nested too deeply")
    if isinstance(value, Mapping):
        return {str(key): plain(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item, depth - 1) for item in value]
    if hasattr(value, "__array__") or isinstance(value, complex):
        array = np.asarray(value)
        if array.dtype.kind in "biufc" and array.dtype.itemsize in (1, 2, 4, 8, 16):
            return array
        if array.dtype.kind == "V" and "float" in array.dtype.name:
            return array.astype(np.float32)
    raise TypeError(f"expected arrays and numbers, got {type(value).__name__}")


def is_stub(error: BaseException) -> bool:
    """Whether the error is the starter's own: the exercise is not answered yet."""
    return isinstance(error, NotImplementedError) and str(error) == STUB


def error_name(run: Callable[[], Any]) -> str:
    """Class name of the exception that `run` raises, "" when it returns.

    For probes that observe a refusal. An unanswered starter's error goes through.
    """
    try:
        run()
    except Exception as error:
        if is_stub(error):
            raise
        return type(error).__name__
    return ""


def one_line(error: BaseException, limit: int = 200) -> str:
    """`TypeError: first line of its text`, cut after a word where it exceeds `limit` characters."""
    text = re.sub(" at 0x[0-9a-f]+", "", (str(error).strip().splitlines() or [""])[0])
    whole = f"{type(error).__name__}: {text}".rstrip(": ")
    if len(whole) <= limit:
        return whole
    cut = whole[: limit - 2]
    words = cut.rpartition(" ")[0]
    return f"{words if len(words) > limit // 2 else cut} …"


def observe(exercise: Exercise, namespace: Mapping[str, Any], case: Case) -> Observation:
    """Runs the probe on the answers found in the namespace. Never raises for what they do.

    It runs in JAX's default precision, so that a notebook in which `jax_enable_x64` is on is told
    what the grader says. KeyboardInterrupt passes: a learner who stops a hanging answer wants it
    stopped.
    """
    missing = [name for name in exercise.names if name not in namespace]
    if missing:
        return Observation(fault="unanswered", message=f"`{missing[0]}` is not defined yet")
    try:
        answers = [namespace[name] for name in exercise.names]
        with _default_precision():
            return Observation(values=plain(dict(exercise.probe(*answers, *case))))
    except (Exception, SystemExit) as error:
        if is_stub(error):
            return Observation(fault="unanswered", message=NOT_YET)
        return Observation(fault="error", message=one_line(error))


def _default_precision() -> AbstractContextManager[Any]:
    jax = sys.modules.get("jax")
    return jax.enable_x64(False) if jax and jax.config.jax_enable_x64 else nullcontext()


# --- judging -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """One property of an assessment: whether it held and, where it failed, the first case of it.

    hidden: the failing case was hidden, so `expected` and `hint`, which may speak of its inputs,
    are withheld.
    """

    key: str
    text: str
    weight: float
    passed: bool
    case: str = ""
    seen: str = ""
    expected: str = ""
    hint: str = ""
    see: str = ""
    hidden: bool = False


@dataclass(frozen=True)
class Assessment:
    """The verdict on one exercise, with a finding for each property."""

    id: str
    title: str
    verdict: Verdict
    points: float
    max_points: int
    findings: tuple[Finding, ...]
    message: str = ""


@dataclass(frozen=True)
class Tried:
    """A case, what was observed, and whether the learner may see its expectations."""

    case: Case
    observation: Observation
    hidden: bool = False


MOST_ROWS = 10_000
"""Of one case. What takes more was made to hold the judge up."""


def rows(exercise: Exercise, tried: Tried) -> list[Row]:
    """The judge's rows for one case; a fault fails every property that the case is about."""
    seen = tried.observation
    about = tried.case.about or tuple(exercise.properties)
    if seen.fault:
        return [Row(key, False, seen=seen.message or seen.fault) for key in about]
    found: list[Row] = []
    try:
        found.extend(islice(exercise.judge(tried.case, seen.values), MOST_ROWS + 1))
        if len(found) > MOST_ROWS:
            raise ValueError(f"more than {MOST_ROWS} things to compare")
    except Exception as error:  # a judge that can't digest what it got: the answer's shape is off
        said = {row.key for row in found if len(found) <= MOST_ROWS}
        text = f"a result of unexpected form ({one_line(error)})"
        found.extend(Row(key, False, seen=text) for key in about if key not in said)
    return found


def assess(exercise: Exercise, attempts: Iterable[Tried]) -> Assessment:
    """Turns observations into points: the weighted share of the properties that held throughout.

    A property holds when some case was about it and no row of any case says otherwise.
    """
    attempts = list(attempts)
    failed: dict[str, Finding] = {}
    judged: set[str] = set()
    for tried in attempts:
        for row in rows(exercise, tried):
            judged.add(row.key)
            if not row.passed and row.key not in failed:
                failed[row.key] = _finding(exercise, row, tried)
    findings = tuple(
        failed.get(key) or Finding(key, prop.text, prop.weight, passed=key in judged, see=prop.see)
        for key, prop in exercise.properties.items()
    )
    held = sum(finding.weight for finding in findings if finding.passed)
    share = held / sum(finding.weight for finding in findings)
    verdict = _verdict(share, [tried.observation.fault for tried in attempts])
    earned = 0.0 if verdict == "tampered" else round(exercise.points * share, 2)
    message = next((t.observation.message for t in attempts if t.observation.fault == verdict), "")
    return Assessment(
        exercise.id, exercise.title, verdict, earned, exercise.points, findings, message
    )


def _finding(exercise: Exercise, row: Row, tried: Tried) -> Finding:
    prop = exercise.properties[row.key]
    return Finding(
        row.key,
        prop.text,
        prop.weight,
        passed=False,
        case=tried.case.name,
        seen=row.seen,
        expected="" if tried.hidden else row.expected,
        hint="" if tried.hidden else row.hint,
        see=row.see or prop.see,
        hidden=tried.hidden,
    )


def _verdict(share: float, faults: list[Fault]) -> Verdict:
    if "tampered" in faults:
        return "tampered"
    if faults and all(fault == "unanswered" for fault in faults):
        return "unanswered"
    if share == 1.0:
        return "full"
    if share > 0.0:
        return "partial"
    worst: tuple[Verdict, ...] = ("timeout", "crash", "error")
    return next((fault for fault in worst if fault in faults), "zero")
