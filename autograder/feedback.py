"""The page that a learner gets back: one HTML file that asks nothing of the network.

What may be said about a hidden case is decided in `autograder.wording`; here it only gets its
looks. Whatever a learner wrote is escaped, cut, and stripped of control characters.
"""

from dataclasses import dataclass
from pathlib import Path

from autograder import pages
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
    titles = pages.sections(chapter)
    return pages.template("feedback.html").render(
        student=clean(submission.student),
        chapter=titles[""],
        points=graded.points,
        max_points=graded.max_points,
        percent=pages.percent(graded.points, graded.max_points),
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
        percent=pages.percent(assessment.points, assessment.max_points),
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
