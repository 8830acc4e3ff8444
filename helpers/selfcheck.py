"""`check("1.2")` in a notebook: judges the learner's answer on the public cases, and remembers.

What it shows is the same on every run; it never raises, and knows no hidden case.
"""

import contextlib
import io
import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import platformdirs

from helpers import card, diagnosis
from helpers.exercise import (
    NOT_YET,
    Assessment,
    Exercise,
    Finding,
    Tried,
    assess,
    observe,
    public_rng,
)
from helpers.exercises import CHAPTERS, exercises_of, find

MARKS = {"full": "✅", "unanswered": "✍️"}
PRINTED_LINES = 8
"""How many lines of what an answer prints are shown."""
PATIENCE = 30.0
"""Seconds after which a check says that it is still running."""


def check(exercise_id: str, namespace: Mapping[str, Any] | None = None) -> None:
    """Judges the answer to an exercise and shows one line for each of its properties.

    exercise_id: "1.2". namespace: where the answer's names are looked up; the notebook's own by
    default, and only those are remembered: what else is tried is no progress. Whatever an answer
    does becomes a line of the report; a keyboard interrupt stops the check, not the kernel.
    """
    where = vars(sys.modules["__main__"]) if namespace is None else namespace
    try:
        chapter, exercise = find(exercise_id)
    except KeyError as error:
        print(f"🧪 {error.args[0]}")
        return
    printed = io.StringIO()
    try:
        with (
            _word_after(PATIENCE, exercise),
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
        ):
            tried = try_public_cases(exercise, where)
    except KeyboardInterrupt:
        print(f"🧪 {exercise.id} stopped by hand before it had a verdict.")
        return
    assessment = assess(exercise, tried)
    known = diagnosis.recognised(exercise, tried, public_bank(chapter, exercise))
    known = known if assessment.verdict not in MARKS else None
    html = card.assessed(assessment, known, card.sections(chapter))
    card.show(card.Report(report(assessment, known), html))
    lines = printed.getvalue().splitlines()
    if lines:
        more = len(lines) - PRINTED_LINES
        print("your answer printed:", *lines[:PRINTED_LINES], sep="\n    ")
        print(f"    … and {more} lines more" if more > 0 else "", end="\n" if more > 0 else "")
    if namespace is None:
        remember(assessment)


@contextlib.contextmanager
def _word_after(seconds: float, exercise: Exercise) -> Iterator[None]:
    """Says in the meantime that a check takes long: nothing can stop a program inside XLA."""
    text = (
        f"🧪 {exercise.id} is still running after {seconds:g} s. A loop that never ends, or one in "
        "Python that jit unrolls to thousands of steps? Interrupt the kernel; if that does not "
        "help, restart it."
    )
    timer = threading.Timer(seconds, print, [text], {"file": sys.stdout, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def try_public_cases(exercise: Exercise, namespace: Mapping[str, Any]) -> list[Tried]:
    """The public cases and what the probe observes in each."""
    cases = exercise.cases(public_rng(exercise))
    return [Tried(case, observe(exercise, namespace, case)) for case in cases]


def public_bank(chapter: str, exercise: Exercise) -> list[diagnosis.Misconception]:
    """Known mistakes in this exercise, as they behave in the public cases."""
    bank = diagnosis.load(Path(__file__).parent / "exercises" / f"{chapter}.json")
    return [known for known in bank if known.exercise == exercise.id]


def report(assessment: Assessment, known: diagnosis.Misconception | None = None) -> str:
    """The lines that a learner reads."""
    mark = MARKS.get(assessment.verdict, "❌")
    head = f"🧪 {assessment.id} {assessment.title}: {_score(assessment)} {mark}"
    if assessment.verdict == "unanswered":
        why = "" if assessment.message == NOT_YET else f": {assessment.message}"
        return f"{head}\n   {NOT_YET}{why}"
    lines = [head, *(_line(finding) for finding in assessment.findings)]
    if known:
        lines.append(f"   💡 This looks like “{known.name}”. {known.hint}{_see(known.see)}")
    return "\n".join(lines)


def _score(assessment: Assessment) -> str:
    return f"{assessment.points:g} of {assessment.max_points} points"


def _line(finding: Finding) -> str:
    if finding.passed:
        return f"   ✅ {finding.text}"
    seen = f"{finding.seen or 'not reached'}"
    wanted = f", expected {finding.expected}" if finding.expected else ""
    where = f" in “{finding.case}”" if finding.case else ""
    hint = f"\n      {finding.hint}" if finding.hint else ""
    return f"   ❌ {finding.text}\n      saw {seen}{wanted}{where}{hint}{_see(finding.see)}"


def _see(section: str) -> str:
    return f" → §{section}" if section else ""


# --- progress ------------------------------------------------------------------------------------


def progress_file() -> Path:
    """Where progress is kept: `$COURSE_PROGRESS`, else a file in the user's data folder."""
    chosen = os.environ.get("COURSE_PROGRESS")
    return (
        Path(chosen) if chosen else platformdirs.user_data_path("practical-jax") / "progress.json"
    )


def remember(assessment: Assessment) -> None:
    """Keeps the latest and the best points of an exercise, where the file can be written."""
    known = _remembered()
    before = known.get(assessment.id, {})
    known[assessment.id] = {
        "points": assessment.points,
        "best": max(assessment.points, before.get("best", 0.0)),
        "verdict": assessment.verdict,
        "when": time.strftime("%Y-%m-%d %H:%M:%S"),
    }
    path = progress_file()
    if path.exists() and not path.is_file():  # /dev/null stays what it is
        return
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps(known, indent=1), encoding="utf-8")
        fresh.replace(path)


def progress() -> None:
    """Shows, chapter by chapter, the points that `check` has seen so far, and what comes next."""
    known = _remembered()
    chapters = {
        f"{number:02d} {chapter}": [
            _row(exercise, known.get(key)) for key, exercise in exercises_of(chapter).items()
        ]
        for number, chapter in CHAPTERS.items()
    }
    told = list(_news(known, [row for rows in chapters.values() for row in rows]))
    lines = []
    for name, rows in chapters.items():
        lines.append(f"{name}: {sum(row.got for row in rows):g} of {sum(row.of for row in rows)}")
        lines += [f"   {row.mark} {row.id} {row.title}: {row.state}" for row in rows]
    card.show(card.Report("\n".join([*lines, *told]), card.listed(chapters, told)))


def _row(exercise: Exercise, entry: Mapping[str, Any] | None) -> card.Row:
    about = exercise.id, exercise.title
    if entry is None:
        return card.Row("·", *about, 0.0, exercise.points, "not tried")
    mark = MARKS.get(entry["verdict"], "❌")
    state = f"{entry['points']:g} of {exercise.points}"
    return card.Row(mark, *about, entry["points"], exercise.points, state)


def _news(known: Mapping[str, Any], rows: Sequence[card.Row]) -> Iterator[str]:
    """What was tried last, and the first exercise that is not complete."""
    here = {row.id: row for row in rows}
    tried = [(entry["when"], key) for key, entry in known.items() if key in here]
    if tried:
        when, key = max(tried)
        yield f"last: {key} {here[key].title}, {here[key].state}, {when}"
    left = next((row for row in rows if row.mark != MARKS["full"]), None)
    yield f"next: {left.id} {left.title}" if left else "all complete"


def _remembered() -> dict[str, Any]:
    try:
        known = json.loads(progress_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}
