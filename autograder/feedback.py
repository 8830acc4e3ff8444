"""The page that a learner gets back: one HTML file that asks nothing of the network.

What may be said about a hidden case is decided in `autograder.wording`; here it only gets its
looks. Whatever a learner wrote is escaped, cut, and stripped of control characters.
"""

import functools
from dataclasses import dataclass
from pathlib import Path

import jinja2
from markupsafe import Markup, escape

from autograder import source
from autograder.build import write as write_whole
from autograder.course import Chapter
from autograder.results import Graded
from autograder.wording import (
    BADGES,
    Badge,
    Line,
    clean,
    clean_code,
    lines,
    number,
    points,
    score,
)
from helpers.exercise import Verdict


@dataclass(frozen=True)
class Card:
    """One exercise on the page.

    percent: of its points. message, fault: what kept the whole answer from being judged, in words
    and as it was observed. lines: its properties. code: what was handed in.
    """

    id: str
    title: str
    badge: Badge
    points: float
    max_points: float
    percent: float
    message: str
    fault: str
    lines: list[Line]
    mistake: str
    hint: str
    see: str
    code: str

    @property
    def unseen(self) -> bool:
        """Whether one fault kept every property from being seen."""
        return bool(self.fault) and all(line.seen == self.fault for line in self.lines)

    @property
    def anchor(self) -> str:
        """Where links to it lead."""
        return f"exercise-{self.id.replace('.', '-')}"


def page(graded: Graded, chapter: Chapter) -> str:
    """The page as HTML."""
    submission = graded.submission
    cards = [_card(graded, key) for key in graded.assessments]
    titles = _sections(chapter, str(chapter.source))
    return _template().render(
        student=clean(submission.student),
        chapter=f"{chapter.number:02d} · {titles.get('', chapter.name.capitalize())}",
        points=graded.points,
        max_points=graded.max_points,
        percent=_percent(graded.points, graded.max_points),
        lead=_lead(cards),
        cards=cards,
        problem=clean(submission.problem),
        person=[clean(why) for why in graded.person if why != submission.problem],
        notes=[clean(note) for note in submission.notes],
        titles=titles,
    )


def write(graded: Graded, chapter: Chapter, folder: Path) -> Path:
    """Writes <folder>/<student>/<chapter>.html, whole or not at all, and returns its path."""
    path = folder / graded.submission.student / f"{chapter.name}.html"
    write_whole(path, page(graded, chapter))
    return path


def _card(graded: Graded, key: str) -> Card:
    assessment, known = graded.assessments[key], graded.diagnoses.get(key)
    answered = assessment.verdict != "unanswered"
    return Card(
        id=key,
        title=assessment.title,
        badge=BADGES[assessment.verdict],
        points=assessment.points,
        max_points=assessment.max_points,
        percent=_percent(assessment.points, assessment.max_points),
        message=_MESSAGES.get(assessment.verdict, ""),
        fault=clean(assessment.message) if answered else "",
        lines=lines(assessment) if answered else [],
        mistake=known.name if known else "",
        hint=known.hint if known else "",
        see=known.see if known else "",
        code=clean_code(graded.submission.answers.get(key, "")) if answered else "",
    )


_MESSAGES: dict[Verdict, str] = {
    "unanswered": "There is no answer yet. Nothing is lost by trying: the self-check is patient.",
    "error": "It stopped with",
    "timeout": "It was stopped",
    "crash": "It could not be watched to the end",
    "tampered": "A person will look at it before it counts",
}
"""What introduces a fault."""


def _lead(cards: list[Card]) -> str:
    """One sentence on how far the learner is, and where to go on."""
    done = sum(card.badge.tone == "good" for card in cards)
    if done == len(cards):
        return "Every exercise is complete. Well done."
    open_ones = [card for card in cards if card.badge.tone != "good"]
    nearest = max(open_ones, key=lambda card: card.percent)
    start = f"{done} of {len(cards)} exercises complete."
    if nearest.percent:
        return f"{start} Nearest to done: {nearest.id}, {nearest.title}."
    return f"{start} A good next step: {open_ones[0].id}, {open_ones[0].title}."


def _percent(got: float, of: float) -> float:
    return round(100 * got / of, 1) if of else 0.0


@functools.lru_cache(maxsize=32)
def _sections(chapter: Chapter, _source: str) -> dict[str, str]:
    """Titles of the sections by number, and the chapter's own under ""."""
    cells = source.read(chapter)
    heading = next((c.text for c in cells if c.kind == "markdown" and c.text.startswith("# ")), "")
    title = heading.split("\n")[0].removeprefix("# ").split("·")[-1].strip()
    return source.sections(cells) | ({"": title} if title else {})


def code_spans(text: str) -> Markup:
    """The text escaped, with what stands between backticks set as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # an odd backtick at the end: leave it alone
        parts[-2:] = ["`".join(parts[-2:])]
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if number % 2 else escape(part)
        for number, part in enumerate(parts)
    )


@functools.lru_cache(maxsize=1)
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("autograder"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"points": points, "number": number, "code_spans": code_spans}
    environment.globals["score"] = score
    return environment.get_template("feedback.html")
