"""The page for whoever teaches a class: marks, exercises, mistakes, who needs a person, time.

It reads the tables of a results folder and asks nothing of the network. What it says of exercises
is `autograder.items`' to compute.
"""

import math
import os
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from autograder import course, items, marks, pages
from autograder.build import write as write_whole
from autograder.course import Chapter, UnknownChapter
from autograder.marks import Mark, Turned
from autograder.problems import UsageError
from autograder.wording import BADGES, Badge, clean
from helpers.exercise import Verdict

BINS = 10
"""Bars of a distribution: each a tenth of the points."""

COLUMNS = (
    "chapter",
    "exercise",
    "title",
    "max_points",
    "judged",
    "mean_points",
    "difficulty",
    "discrimination",
    *BADGES,
)


@dataclass(frozen=True)
class Entry:
    """A submission. link: to its feedback page, "" where there is none. seconds: wall-clock."""

    student: str
    chapter: str
    link: str
    judged: bool
    points: float
    max_points: float
    seconds: float
    cpu_seconds: float
    peak_mb: float
    person: str


@dataclass(frozen=True)
class Item:
    """An exercise as a class did it. discrimination: None where `undefined` says why."""

    id: str
    title: str
    max_points: float
    mean: float
    difficulty: float
    discrimination: float | None
    undefined: str
    verdicts: Mapping[Verdict, int]


@dataclass(frozen=True)
class Mistake:
    """A known mistake, and whose answers behave like it."""

    exercise: str
    name: str
    hint: str
    see: str
    section: str
    who: Sequence[Entry]


@dataclass(frozen=True)
class Part:
    """A chapter as a class did it."""

    name: str
    title: str
    entries: Sequence[Entry]
    items: Sequence[Item]
    mistakes: Sequence[Mistake]

    @property
    def judged(self) -> list[Entry]:
        """Submissions whose answers were run: only these count in the figures."""
        return [entry for entry in self.entries if entry.judged]

    @property
    def points(self) -> list[float]:
        """Of those."""
        return [entry.points for entry in self.judged]

    @property
    def bins(self) -> list[int]:
        """How many of them have how many tenths of the points."""
        counts = Counter(tenth(entry.points, entry.max_points) for entry in self.judged)
        return [counts[number] for number in range(BINS)]

    @property
    def told(self) -> str:
        """The bars in words."""
        step = 100 // BINS
        return ", ".join(
            f"{count} at {step * number} to {step * (number + 1)} percent"
            for number, count in enumerate(self.bins)
            if count
        )

    @property
    def met(self) -> dict[Verdict, Badge]:
        """The verdicts that occur."""
        found = {verdict for item in self.items for verdict, n in item.verdicts.items() if n}
        return {verdict: badge for verdict, badge in BADGES.items() if verdict in found}


def write(folder: Path, to: Path | None = None) -> list[Path]:
    """Writes the page, and a CSV of its exercises beside it; both whole or not at all.

    to: the page, <folder>/report.html by default. Returns both paths. Raises UsageError,
    SourceError and OSError.
    """
    to = to or folder / "report.html"
    table = to.with_suffix(".csv")
    if to == table:
        raise UsageError(f"{to}: that is where the table goes; name the page *.html")
    parts = read(folder, to.parent)
    write_whole(to, page(parts, table.name))
    write_whole(table, marks.table(COLUMNS, _rows(parts)))
    return [to, table]


def page(parts: Sequence[Part], table: str) -> str:
    """The page as HTML. table: where its CSV lies, as a link."""
    entries = [entry for part in parts for entry in part.entries]
    return pages.template("report.html").render(
        parts=parts,
        entries=entries,
        students=len({entry.student for entry in entries}),
        judged=sum(entry.judged for entry in entries),
        share=_mean_share(entries),
        person=[entry for entry in entries if entry.person],
        mistakes=sorted(
            (mistake for part in parts for mistake in part.mistakes),
            key=lambda mistake: -len(mistake.who),
        ),
        table=quote(table),
        fewest=items.FEWEST,
        standard_error=items.standard_error,
        badges=BADGES,
        mean=statistics.fmean,
        median=statistics.median,
        percent=pages.percent,
    )


def _mean_share(entries: Iterable[Entry]) -> float | None:
    """Of their points, in percent; None where nothing was judged."""
    shares = [pages.percent(e.points, e.max_points) for e in entries if e.judged]
    return statistics.fmean(shares) if shares else None


def tenth(points: float, of: float) -> int:
    """Which bar of a distribution a result stands in, from 0; all points stand in the last."""
    return min(math.floor(round(BINS * points / of, 6)), BINS - 1) if of else 0


def _rows(parts: Iterable[Part]) -> Iterator[marks.Row]:
    for part in parts:
        for item in part.items:
            yield (
                part.name,
                item.id,
                item.title,
                f"{item.max_points:g}",
                str(len(part.judged)),
                f"{item.mean:.4g}",
                f"{item.difficulty:.3f}",
                "" if item.discrimination is None else f"{item.discrimination:.3f}",
                *(str(item.verdicts.get(verdict, 0)) for verdict in BADGES),
            )


# --- reading -------------------------------------------------------------------------------------


def read(folder: Path, beside: Path) -> list[Part]:
    """The chapters of a results folder, in order. beside: where links start. Raises UsageError."""
    found = marks.read_marks(folder)
    turned = marks.read_turned(folder)
    if not turned:
        raise UsageError(f"{folder}: nothing was graded into it")
    given: dict[tuple[str, str], list[Mark]] = {(each.student, each.chapter): [] for each in turned}
    for mark in found:
        if (mark.student, mark.chapter) not in given:
            raise UsageError(
                f"{folder}: {mark.student}'s {mark.chapter} is in {marks.MARKS} and not in "
                f"{marks.SUBMISSIONS}: grade into it again (nothing is graded twice)"
            )
        given[mark.student, mark.chapter].append(mark)
    try:
        chapters = {each.chapter: course.chapter(each.chapter) for each in turned}
    except UnknownChapter as error:
        raise UsageError(f"{folder}: {error}") from None
    return [
        _part(
            chapter,
            [
                (_entry(each, given[each.student, name], folder, beside), given[each.student, name])
                for each in turned
                if each.chapter == name
            ],
        )
        for name, chapter in sorted(chapters.items(), key=lambda pair: pair[1].number)
    ]


def _entry(turned: Turned, given: Sequence[Mark], folder: Path, beside: Path) -> Entry:
    feedback = folder / "feedback" / turned.student / f"{turned.chapter}.html"
    link = Path(os.path.relpath(feedback, beside)).as_posix() if feedback.is_file() else ""
    return Entry(
        student=clean(turned.student),
        chapter=turned.chapter,
        link=quote(link),
        judged=turned.judged,
        points=round(sum(mark.points for mark in given), 2),
        max_points=sum(mark.max_points for mark in given),
        seconds=sum(mark.seconds for mark in given),
        cpu_seconds=turned.cpu_seconds,
        peak_mb=turned.peak_mb,
        person=clean(turned.person),
    )


Judged = Sequence[tuple[Entry, Sequence[Mark]]]
"""Submissions, each with its marks."""


def _part(chapter: Chapter, submissions: Judged) -> Part:
    judged = [(entry, given) for entry, given in submissions if entry.judged]
    titles = pages.sections(chapter)
    keys = dict.fromkeys(mark.exercise for _, given in judged for mark in given)
    return Part(
        chapter.name,
        titles[""],
        [entry for entry, _ in submissions],
        [_item(chapter, key, judged) for key in keys],
        list(_mistakes(chapter, titles, judged)),
    )


def _item(chapter: Chapter, key: str, judged: Judged) -> Item:
    found = [(mark, e.points) for e, given in judged for mark in given if mark.exercise == key]
    points, totals = [mark.points for mark, _ in found], [total for _, total in found]
    max_points = found[0][0].max_points
    discrimination, undefined = None, ""
    try:
        discrimination = items.discrimination(points, totals)
    except items.Undefined as why:
        undefined = str(why)
    return Item(
        id=key,
        title=chapter.exercises[key].title if key in chapter.exercises else "",
        max_points=max_points,
        mean=statistics.fmean(points),
        difficulty=items.difficulty(points, max_points),
        discrimination=discrimination,
        undefined=undefined,
        verdicts=Counter(mark.verdict for mark, _ in found),
    )


def _mistakes(chapter: Chapter, titles: Mapping[str, str], judged: Judged) -> Iterator[Mistake]:
    who: dict[tuple[str, str], list[Entry]] = {}
    for entry, given in judged:
        for mark in given:
            if mark.diagnosis:
                who.setdefault((mark.exercise, mark.diagnosis), []).append(entry)
    bank = {(answer.exercise, answer.name): answer for answer in chapter.answers}
    for (exercise, name), entries in who.items():
        known = bank.get((exercise, name))
        hint, see = (known.hint, known.see) if known else ("", "")
        yield Mistake(exercise, name, hint, see, titles.get(see, ""), entries)
