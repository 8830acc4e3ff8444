"""What people are told about a verdict: the same words on pages, in notebooks and in the terminal.

It decides what of a hidden case a learner may see, and makes text from learners fit to be shown.
"""

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from helpers.diagnosis import Misconception
from helpers.exercise import Assessment, Finding, Verdict

Tone = Literal["good", "half", "bad", "none", "odd"]

HIDDEN_CASE = "a hidden case"
MAX_TEXT, MAX_CODE = 400, 20_000
"""Characters that are shown of a line and of an answer."""


@dataclass(frozen=True)
class Badge:
    """A verdict in words, a sign that every font has, and how it feels."""

    words: str
    sign: str
    tone: Tone


BADGES: dict[Verdict, Badge] = {
    "full": Badge("Complete", "✓", "good"),
    "partial": Badge("Partly right", "◐", "half"),
    "zero": Badge("Not right yet", "✗", "bad"),
    "unanswered": Badge("Not answered", "–", "none"),
    "error": Badge("Stopped by an error", "!", "bad"),
    "timeout": Badge("Ran out of time", "…", "bad"),
    "crash": Badge("Crashed Python", "!!", "bad"),
    "tampered": Badge("Touched the checks", "?", "odd"),
}


@dataclass(frozen=True)
class Line:
    """One property of an answer, as a learner may see it.

    points: what it is worth. case: in which it failed. seen, expected, hint, see: "" for none.
    """

    passed: bool
    text: str
    points: float
    case: str = ""
    seen: str = ""
    expected: str = ""
    hint: str = ""
    see: str = ""


def lines(assessment: Assessment) -> list[Line]:
    """The properties of an assessment; of hidden cases neither name nor expectation."""
    total = sum(finding.weight for finding in assessment.findings) or 1.0
    return [
        _line(finding, assessment.max_points * finding.weight / total)
        for finding in assessment.findings
    ]


def _line(finding: Finding, points: float) -> Line:
    if finding.passed:
        return Line(True, finding.text, points, see=finding.see)
    return Line(
        False,
        finding.text,
        points,
        case=HIDDEN_CASE if finding.hidden else clean(finding.case),
        seen=clean(finding.seen),
        expected="" if finding.hidden else clean(finding.expected),
        hint=clean(finding.hint),
        see=finding.see,
    )


def report(assessment: Assessment, known: Misconception | None) -> str:
    """The verdict on one exercise as plain text."""
    return "\n".join(_report(assessment, known)) + "\n"


def _report(assessment: Assessment, known: Misconception | None) -> Iterator[str]:
    badge = BADGES[assessment.verdict]
    yield f"{badge.sign} {badge.words}: {score(assessment.points, assessment.max_points)}"
    if assessment.message:
        yield f"  {clean(assessment.message)}"
    if assessment.verdict != "unanswered":
        for line in lines(assessment):
            yield from _told(line)
    if known:
        yield f"  This looks like “{known.name}”. {known.hint}{_section(known.see)}"


def _told(line: Line) -> Iterator[str]:
    yield f"  {'✅' if line.passed else '❌'} {line.text} ({points(line.points)})"
    if not line.passed:
        where = f" in {line.case}" if line.case else ""
        wanted = f", expected {line.expected}" if line.expected else ""
        yield f"    saw {line.seen or 'nothing'}{where}{wanted}"
        if line.hint:
            yield f"    {line.hint}{_section(line.see)}"


def _section(see: str) -> str:
    return f" → §{see}" if see else ""


def score(got: float, of: float) -> str:
    """`2.5 of 4 points`."""
    return f"{number(got)} of {points(of)}"


def points(amount: float) -> str:
    """`1 point`, `2.5 points`."""
    return f"{number(amount)} point{'' if number(amount) == '1' else 's'}"


def number(amount: float) -> str:
    """At most two digits behind the point, and no zeros at the end."""
    return f"{amount:.2f}".rstrip("0").rstrip(".")


def clean(text: str, limit: int = MAX_TEXT) -> str:
    """Text on one line without control characters and marks that turn its direction, cut."""
    shown = " ".join("".join(map(_visible, text[: 4 * limit])).split())
    return shown if len(shown) <= limit else f"{shown[: limit - 1]}…"


def clean_code(source: str, limit: int = MAX_CODE) -> str:
    """Code with its lines, without control characters, cut."""
    shown = "".join(c if c in "\n\t" else _visible(c) for c in source[: limit + 1]).rstrip()
    return shown if len(shown) <= limit else f"{shown[:limit]}\n…"


def _visible(c: str) -> str:
    kind = unicodedata.category(c)
    if kind in ("Cc", "Zl", "Zp"):
        return " "
    return "�" if kind in ("Cf", "Cs", "Cn", "Co") and c != "\u200d" else c
