"""Reports as cards: HTML where a front end shows it, plain text everywhere else.

Marks and words carry the meaning; colours, the theme's own in JupyterLab, only repeat it.
"""

import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path

from helpers.diagnosis import Misconception
from helpers.exercise import NOT_YET, Assessment, Finding

TONES = {
    "full": ("✅", "Complete", "--jp-success-color1, #2e7d32"),
    "partial": ("❌", "Partly right", "--jp-warn-color1, #b26a00"),
    "unanswered": ("✍️", NOT_YET, "--jp-border-color1, #888"),
}
WRONG = ("❌", "Not right yet", "--jp-error-color1, #d32f2f")
"""Mark, words and colour of a verdict; of any other, WRONG."""

BOX = "border:1px solid var(--jp-border-color2, #8888); border-left:5px solid var({}); "
BOX += "border-radius:4px; padding:.6em 1em; max-width:46em; line-height:1.45"
SOFT = "color:var(--jp-ui-font-color2, inherit)"


@dataclass(frozen=True)
class Report:
    """What a notebook shows: both forms say the same."""

    text: str
    html: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html


def show(report: Report) -> None:
    """Displays a report in a notebook; prints its text elsewhere."""
    try:
        from IPython.display import display
    except ImportError:
        print(report.text)
    else:
        display(report)


def assessed(assessment: Assessment, known: Misconception | None, titles: Mapping[str, str]) -> str:
    """The card of a self-check. titles: of the chapter's sections, by number, for the links."""
    mark, words, tone = TONES.get(assessment.verdict, WRONG)
    points = f"{assessment.points:g} of {assessment.max_points} points"
    head = f"🧪 <strong>{escape(assessment.id)} {escape(assessment.title)}</strong>"
    rows = [f"<div>{head}<br>{mark} {words}: {points}</div>"]
    if assessment.verdict == "unanswered":
        if assessment.message != NOT_YET:
            rows.append(f"<div style='{SOFT}'>{escape(assessment.message)}</div>")
    else:
        items = "".join(_item(finding, titles) for finding in assessment.findings)
        rows.append(f"<ul style='list-style:none; margin:.5em 0 0; padding:0'>{items}</ul>")
        if known:
            named = f"💡 This looks like <strong>“{escape(known.name)}”</strong>."
            said = f"{named} {escape(known.hint)}{_link(known.see, titles)}"
            rows.append(f"<div style='margin-top:.6em'>{said}</div>")
    return f"<div style='{BOX.format(tone)}'>{''.join(rows)}</div>"


def _item(finding: Finding, titles: Mapping[str, str]) -> str:
    style = "margin:.25em 0"
    if finding.passed:
        return f"<li style='{style}'>✅ {escape(finding.text)}</li>"
    facts = [("saw", finding.seen or "not reached"), ("expected", finding.expected)]
    table = "".join(
        f"<div style='padding-left:1.7em'><span style='{SOFT}'>{name}</span> "
        f"<code>{escape(value)}</code></div>"
        for name, value in [*facts, ("in", finding.case)]
        if value
    )
    hint = ""
    if finding.hint:
        hint = (
            f"<details style='padding-left:1.7em'><summary>a hint</summary>"
            f"{escape(finding.hint)}</details>"
        )
    link = f"<div style='padding-left:1.7em'>{_link(finding.see, titles)}</div>"
    return f"<li style='{style}'>❌ {escape(finding.text)}{table}{hint}{link}</li>"


def _link(section: str, titles: Mapping[str, str]) -> str:
    """`→ §1.4`, which jumps to the heading in JupyterLab where its title is known."""
    if not section:
        return ""
    if section not in titles:
        return f" → §{escape(section)}"
    title = f"{section} {titles[section]}"
    return f" → <a href='#{escape(title.replace(' ', '-'))}'>§{escape(title)}</a>"


# --- sections ------------------------------------------------------------------------------------


def sections_file(chapter: str) -> Path:
    """Where the titles of a chapter's sections are kept; the build writes it."""
    return Path(__file__).parent / "exercises" / f"{chapter}.sections.json"


@functools.cache
def sections(chapter: str) -> dict[str, str]:
    """Titles of a chapter's sections by number, "1.4"; empty where nothing is known."""
    try:
        known = json.loads(sections_file(chapter).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(number): str(title) for number, title in known.items()}


# --- progress ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """An exercise in the list of all: mark, id, title, points so far ("" if not tried)."""

    mark: str
    id: str
    title: str
    got: float
    of: int
    state: str


def listed(chapters: Mapping[str, Iterable[Row]], told: Iterable[str]) -> str:
    """The card of all chapters: a bar each, its exercises in a fold. told: lines at the end."""
    parts = []
    for name, rows in chapters.items():
        rows = list(rows)
        got, of = sum(row.got for row in rows), sum(row.of for row in rows)
        bar = f"<progress value='{got:g}' max='{of}' aria-label='{escape(name)}'></progress>"
        lines = "".join(
            f"<div style='padding-left:1.7em'>{row.mark} {escape(row.id)} {escape(row.title)}: "
            f"{escape(row.state)}</div>"
            for row in rows
        )
        parts.append(
            f"<details><summary>{bar} {escape(name)}: {got:g} of {of}</summary>{lines}</details>"
        )
    parts += [f"<div style='margin-top:.5em'>{escape(line)}</div>" for line in told]
    return f"<div style='{BOX.format('--jp-brand-color1, #1976d2')}'>{''.join(parts)}</div>"
