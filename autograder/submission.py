"""Reads what was handed in: which chapter, which cell answers which exercise, what was mended.

Cells are matched by their labels, then by what they define. Only code counts: outputs, metadata
and changed given cells don't. Nothing is executed; see `autograder.collect` for files and names.
"""

import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from autograder import cells as text
from autograder import course
from autograder.assembly import role_of
from autograder.build import learner_notebook
from autograder.cells import Cell, Kind
from autograder.collect import Found, NothingThere, Unreadable, find
from autograder.course import Chapter
from autograder.results import Submission
from autograder.source import LOCKED

__all__ = ["Found", "Handed", "NothingThere", "Own", "find", "match", "read", "template"]

MAX_CELL, MAX_CODE = 60_000, 120_000
"""Characters of code in one cell, and in all of the learner's cells: more is left out."""


@dataclass(frozen=True)
class Own:
    """A cell that is the learner's, and the course's cell that it stood behind ("" at the top)."""

    after: str
    kind: Kind
    source: str


@dataclass(frozen=True)
class Handed(Submission):
    """A submission, and what of the notebook is shown again beside the marks.

    own: cells that the learner added. edited: text of the course's cells that are free to be
    changed (prose, quiz), by id.
    found: the file, with the time it is from.
    """

    own: tuple[Own, ...] = ()
    edited: Mapping[str, str] = field(default_factory=dict)
    found: Found | None = None


def read(handed: Found | Path, chapter: Chapter | None = None) -> Handed:
    """The submission in a file; `problem` says why there is none in it. Never raises for its text.

    chapter: what it should be; None leaves that to its cells.
    """
    found = _found(handed) if isinstance(handed, Path) else handed
    named = next((each for each in course.chapters() if each.slug in found.folders), None)
    try:
        cells, mended = text.parse(found.read())
        this = chapter or recognise(cells) or named
        if this is None:
            raise Unreadable(
                "None of the notebook's cells belongs to a chapter of this course. "
                "Hand in this course's notebook."
            )
        matched = match(cells, this, found)
        return replace(matched, notes=(*mended, *matched.notes))
    except Unreadable as error:
        expected = chapter or named
        name = expected.name if expected else ""
        return Handed(found.student, name, found.path, problem=str(error), found=found)


def _found(path: Path) -> Found:
    try:
        return find([path])[0]
    except NothingThere as error:
        return Found(path.stem, path, problem=str(error))


def match(cells: Sequence[Cell], chapter: Chapter, found: Found) -> Handed:
    """A notebook's cells as a submission to the chapter. Raises Unreadable if it has none of it."""
    known = template(chapter)
    if not any(map(known.owns, cells)):
        other = recognise(cells)
        if other and other != chapter:
            raise Unreadable(
                f"This is the notebook of chapter {other.slug}: hand in that of {chapter.slug}."
            )
        raise Unreadable(
            f"None of the notebook's cells belongs to chapter {chapter.slug}: hand in its notebook."
        )
    items, notes = _identified(cells, known)
    matched = _Matched(known, _rejoined(items, notes), notes)
    answers = {key: answer for key in chapter.exercises if (answer := matched.answer(key))}
    extra = _capped(matched.extra(), notes)
    return Handed(
        found.student,
        chapter.name,
        found.path,
        answers=_short_enough(answers, notes),
        extra=tuple(extra),
        notes=tuple(dict.fromkeys(notes)),
        own=tuple(matched.own()),
        edited=matched.edited(),
        found=found,
    )


def recognise(cells: Sequence[Cell]) -> Chapter | None:
    """The chapter whose labels, code, names and self-checks the cells have most of."""
    scores = {chapter: template(chapter).likeness(cells) for chapter in course.chapters()}
    best = max(scores, key=lambda chapter: scores[chapter], default=None)
    return best if best and scores[best] else None


# --- the course's side ---------------------------------------------------------------------------


@dataclass(frozen=True)
class CourseCell:
    """A cell of the released notebook. exercise: whose starter or self-check it is, or ""."""

    id: str
    kind: Kind
    role: str
    source: str
    exercise: str
    defines: frozenset[str]

    @property
    def free(self) -> bool:
        """Whether learners may change it as they like: prose and quiz cells."""
        return self.kind != "code" or self.role == "quiz"


@dataclass(frozen=True)
class Template:
    """A chapter's released notebook, as submissions are compared with it.

    answers: the exercise by the names that answer it. taken: names that the course's cells define.
    """

    chapter: Chapter
    cells: tuple[CourseCell, ...]
    answers: Mapping[str, str]

    @functools.cached_property
    def by_id(self) -> dict[str, CourseCell]:
        """The cells by id."""
        return {cell.id: cell for cell in self.cells}

    @functools.cached_property
    def by_text(self) -> dict[tuple[Kind, str], CourseCell]:
        """The cells by what they say; of equal ones the first."""
        return {(cell.kind, text.stripped(cell.source)): cell for cell in reversed(self.cells)}

    @functools.cached_property
    def taken(self) -> frozenset[str]:
        """Names that the course's cells define, and that answers are called."""
        return frozenset(self.answers).union(*(cell.defines for cell in self.cells))

    @functools.cached_property
    def statements(self) -> dict[str, str]:
        """The id of the cell by what its statements say; answers are nobody's."""
        return {
            text.dump(node): cell.id
            for cell in reversed(self.cells)
            if cell.kind == "code" and cell.role != "starter"
            for parsed in [text.tree(cell.source)]
            for node in (parsed.body if parsed else ())
        }

    def owns(self, cell: Cell) -> bool:
        """Whether a cell can only be of this chapter: by its label, or as an answer or a check."""
        if any(label in self.by_id and _telling(label) for label in cell.labels):
            return True
        if cell.kind != "code":
            return False
        code = text.without_magics(cell.source)[0]
        checks = set(_checked(code)) & set(self.chapter.exercises)
        return bool(checks) or not self.answers.keys().isdisjoint(text.definitions(code))

    def likeness(self, cells: Sequence[Cell]) -> int:
        """How much of a notebook is of this chapter."""
        known = self.by_text
        return sum(
            ((cell.kind, text.stripped(cell.source)) in known) + 2 * self.owns(cell)
            for cell in cells
        )


def template(chapter: Chapter) -> Template:
    """What the course gave learners for a chapter, from its source."""
    return _template(chapter, str(chapter.source))


@functools.lru_cache(maxsize=32)
def _template(chapter: Chapter, _source: str) -> Template:
    answers = {name: key for key, each in chapter.exercises.items() for name in each.names}
    dashed = {key.replace(".", "-"): key for key in chapter.exercises}
    found = []
    for node in learner_notebook(chapter).cells:
        role = role_of(node)
        whose = node["id"].partition("-")[2] if role in ("starter", "selfcheck") else ""
        defines = (
            frozenset(text.definitions(node.source)) if node.cell_type == "code" else frozenset()
        )
        found.append(
            CourseCell(
                node["id"], node.cell_type, role, node.source, dashed.get(whose, ""), defines
            )
        )
    return Template(chapter, tuple(found), answers)


def _telling(label: str) -> bool:
    """Whether a label tells chapters apart; `setup-0` does not."""
    return bool(re.match(r"(answer|check|task|quiz|question)-\d", label))


def _checked(code: str) -> list[str]:
    return re.findall(r"\bcheck\(\s*[\"'](\d+\.\d+)[\"']", code)


# --- the learner's side --------------------------------------------------------------------------


@dataclass(frozen=True)
class Item:
    """One of the learner's cells: the course's cell that it is or was, and what it defines.

    untouched: its text is the course's. labelled: by its label, not its text. checks: exercises
    whose self-check it runs. merged: the course's cells that it held besides, left out of source.
    """

    kind: Kind
    source: str
    course: CourseCell | None
    untouched: bool
    labelled: bool
    defines: Mapping[str, bool]
    at: int = 0
    checks: tuple[str, ...] = ()
    merged: frozenset[str] = frozenset()

    def is_answer_cell(self, exercise: str) -> bool:
        """Whether it is, or was made from, the starter of the exercise."""
        starter = self.course is not None and self.course.role == "starter"
        return starter and self.course is not None and self.course.exercise == exercise

    @property
    def broken(self) -> bool:
        """Whether it is code that does not parse."""
        return self.kind == "code" and text.tree(self.source) is None


def _identified(cells: Sequence[Cell], known: Template) -> tuple[list[Item], list[str]]:
    notes: list[str] = []
    magics: list[str] = []
    items = []
    for at, cell in enumerate(cells):
        item, left_out = _item(cell, known, at)
        if item.kind == "code" and cell.kind != "code":
            notes.append(f"{_called(item)} had become a text cell; it was read as code.")
        if not item.untouched:
            magics += left_out
        items.append(item)
    if magics:
        example = magics[0][:60].replace("`", "'")
        notes.append(f"Lines that only a notebook understands were left out, such as `{example}`.")
    if any(item.merged for item in items):
        notes.append(
            "Several cells were merged into one; what was the course's in it was left out."
        )
    if not any(item.labelled for item in items):
        notes.append("The cells had lost their labels; they were told by what they define.")
    return items, notes


def _item(cell: Cell, known: Template, at: int) -> tuple[Item, list[str]]:
    same = known.by_text.get((cell.kind, text.stripped(cell.source)))
    label = next((label for label in cell.labels if label in known.by_id), None)
    labelled = known.by_id[label] if label else None
    whose = labelled if same is None or (labelled and labelled.source == same.source) else same
    kind, source = cell.kind, cell.source
    left_out: list[str] = []
    if kind != "code" and whose and whose.kind == "code" and cell.source.strip():
        kind, source = "code", text.unfenced(source)
    if kind == "code":
        source, left_out = text.without_magics(source)
    untouched = whose is not None and (
        whose is same or (kind == whose.kind == "code" and text.same_code(source, whose.source))
    )
    if kind == "code" and whose is not None and whose.kind != "code":
        whose = None
    checks = tuple(_checked(source)) if kind == "code" else ()
    merged: frozenset[str] = frozenset()
    if kind == "code" and not untouched:
        source, merged = _unmerged(source, known)
    if merged and whose and whose.role != "starter":
        whose = None
    defines = text.definitions(source) if kind == "code" else {}
    item = Item(kind, source, whose, untouched, labelled is not None, defines, at, checks, merged)
    return item, left_out


def _unmerged(source: str, known: Template) -> tuple[str, frozenset[str]]:
    """A cell's source without the course's code in it, if it has that of several cells.

    Set-up and given code alone says nothing: answers repeat an import, or quote a function.
    """
    rest, held = text.shared(source, known.statements)
    telling = [label for label in held if known.by_id[label].role not in ("setup", "given")]
    return (rest, held) if len(telling) > 1 else (source, frozenset())


def _rejoined(items: Sequence[Item], notes: list[str]) -> list[Item]:
    """The items, with cells that make sense only together put together again."""
    done: list[Item] = []
    for item in items:
        unfinished = done and done[-1].broken
        if item.kind == "code" and not item.untouched and (unfinished or _needs_more(item)):
            whole, parts = _with_previous(done, item)
            if parts:
                done[-parts:] = [whole]
                notes.append(f"{_called(whole)} had been cut in two; it was put together again.")
                continue
            source = text.dedented(item.source)
            item = replace(item, source=source, defines=text.definitions(source))
        done.append(item)
    return done


def _needs_more(item: Item) -> bool:
    return item.broken or item.source.lstrip("\n")[:1] in (" ", "\t")


def _with_previous(done: Sequence[Item], item: Item) -> tuple[Item, int]:
    """The item joined to as many cells before it as make it parse, up to four; how many."""
    for parts in range(1, 5):
        before = done[-parts:]
        if len(before) < parts or any(each.kind != "code" or _fixed(each) for each in before):
            break
        source = "\n".join([*(each.source.rstrip() for each in before), item.source])
        if text.tree(source) is not None:
            first = before[0]
            defines = text.definitions(source)
            whole = replace(first, source=source, untouched=False, defines=defines)
            return whole, parts
    return item, 0


def _fixed(item: Item) -> bool:
    """Whether it is a cell of the course that learners don't write in."""
    return item.untouched and item.course is not None and item.course.role != "starter"


def _called(item: Item) -> str:
    """What to call a cell in a note."""
    cell = item.course
    if cell and cell.role == "starter":
        return f"The answer cell of {cell.exercise}"
    if cell and cell.role == "selfcheck":
        return f"The self-check of {cell.exercise}"
    if cell and cell.defines:
        return f"The {_named(cell)}"
    if cell:
        return f"A given cell ({cell.role or 'text'})"
    named = f" with `{next(iter(item.defines))}`" if item.defines else ""
    return f"A cell of yours{named}"


def _named(cell: CourseCell) -> str:
    """`given cell with …`, of one that defines something."""
    return f"given cell with `{min(cell.defines, key=cell.source.find)}`"


class _Matched:
    """All cells of one notebook, and which of them answer what. Adds to `notes` as it goes."""

    def __init__(self, known: Template, items: list[Item], notes: list[str]) -> None:
        self.known = known
        self.items = items
        self.notes = notes
        self.chosen: set[int] = set()
        self.checks = {key: item.at for item in items for key in item.checks}
        self.changed: list[str] = []
        self.lost_labels = not any(item.labelled for item in items)

    def answer(self, exercise: str) -> str:
        """The source that answers the exercise, "" if no cell does.

        It is what the self-check would have seen: the last definition before it, or the last one
        in a cell with the exercise's label; failing these, the last anywhere.
        """
        own = [item for item in self.items if item.is_answer_cell(exercise)]
        names = self.known.chapter.exercises[exercise].names
        winners = {name: self._last(name, exercise) for name in names}
        cells = {item.at: item for item in winners.values() if item}
        real = {i.at: i for name, i in winners.items() if i and not i.defines[name]}
        broken = [item for item in own if item.broken]
        written = [item for item in own if item.source.strip()]
        if broken and len(real) < len(names):
            cells = real | {broken[-1].at: broken[-1]}
        elif written and not cells:
            cells = {written[-1].at: written[-1]}
        self._remark(exercise, own, cells)
        self.chosen |= cells.keys()
        return "\n\n\n".join(cells[at].source.strip("\n") for at in sorted(cells))

    def _last(self, name: str, exercise: str) -> Item | None:
        """The cell whose definition of the name counts."""
        definers = self._definers(name)
        real = [item for item in definers if not item.defines[name]]
        check = self.checks.get(exercise, -1)
        seen = [item for item in real if item.is_answer_cell(exercise) or item.at <= check]
        if len(real) > 1:
            which = "the last that its self-check saw" if seen else "the last"
            self.notes.append(f"`{name}` was defined in {len(real)} cells; {which} counts.")
        return next((pool[-1] for pool in (seen, real, definers) if pool), None)

    def _definers(self, name: str) -> list[Item]:
        """Cells that define the name and are the learner's; text cells only if no code does."""
        code = [
            item
            for item in self.items
            if name in item.defines
            and not (item.course and item.course.role != "starter" and name in item.course.defines)
        ]
        texts = (item for item in self.items if item.kind != "code" and not item.untouched)
        code_of = ((item, text.unfenced(item.source)) for item in texts)
        read = (
            replace(item, source=source, defines=text.definitions(source))
            for item, source in code_of
        )
        return code or [item for item in read if name in item.defines]

    def _remark(self, exercise: str, own: Sequence[Item], cells: Mapping[int, Item]) -> None:
        if len(cells) > 1:
            self.notes.append(f"The answer to {exercise} was split over {len(cells)} cells.")
        if cells and own and not any(item.at in cells for item in own):
            self.notes.append(f"The answer to {exercise} was found in another cell than its own.")
        if own or self.lost_labels:
            return
        where = "its answer was found in another cell" if cells else "no other cell answers it"
        self.notes.append(f"The answer cell of {exercise} was missing; {where}.")

    def extra(self) -> list[str]:
        """Code of the learner's that answers nothing by itself, in order."""
        names = frozenset(self.known.answers)
        found = []
        for item in self.items:
            if item.kind != "code" or item.untouched or item.at in self.chosen:
                continue
            if item.course and item.course.role != "starter":
                found.append(self._added(item, item.course))
            else:
                found.append(text.without(item.source, names))
        self._remark_changes()
        self._remark_missing()
        return [source for source in found if source]

    def _added(self, item: Item, cell: CourseCell) -> str:
        """What a changed cell of the course has besides what it should have."""
        added = text.additions(item.source, cell.source, self.known.taken)
        if cell.role in (*LOCKED, "selfcheck"):
            kept = " (what you added was kept)" if added else ""
            self.changed.append(f"{_called(item)}{kept}")
        return added

    def _remark_changes(self) -> None:
        if len(self.changed) == 1:
            self.notes.append(f"{self.changed[0]} was changed; the course's own was used.")
        elif self.changed:
            first = self.changed[0][0].lower() + self.changed[0][1:]
            count = len(self.changed)
            what = f"{count} given cells were changed, such as {first}"
            self.notes.append(f"{what}; the course's own were used.")

    def _remark_missing(self) -> None:
        """Names the given cells that are not there, where labels tell."""
        there = {item.course.id for item in self.items if item.course}
        there = there.union(*(item.merged for item in self.items))
        given = [
            cell for cell in self.known.cells if cell.role in ("setup", "given") and cell.defines
        ]
        missing = [] if self.lost_labels else [cell for cell in given if cell.id not in there]
        if len(missing) == 1:
            named = _named(missing[0])
            self.notes.append(f"The {named} was missing; the course's own was used.")
        elif missing:
            what = f"{len(missing)} given cells were missing, such as the {_named(missing[0])}"
            self.notes.append(f"{what}; the course's own were used.")

    def own(self) -> Iterator[Own]:
        """The learner's own cells, each behind the course's cell that it followed."""
        after = ""
        for item in self.items:
            if item.course:
                after = item.course.id
            lost = item.course is not None and item.course.role == "starter" and not item.untouched
            if (lost or not item.course) and item.source.strip() and item.at not in self.chosen:
                yield Own(after, item.kind, item.source)

    def edited(self) -> dict[str, str]:
        """Cells that learners may write in, answers apart, as they left them."""
        return {
            item.course.id: item.source
            for item in self.items
            if item.course and not item.untouched and item.course.free
        }


# --- limits --------------------------------------------------------------------------------------


def _size(source: str) -> int:
    """Characters that the source takes on its way to the learner's process."""
    return len(json.dumps(source))


def _short_enough(answers: Mapping[str, str], notes: list[str]) -> dict[str, str]:
    short = {key: source for key, source in answers.items() if _size(source) <= MAX_CELL}
    for key in answers.keys() - short.keys():
        kilobytes = _size(answers[key]) // 1000
        notes.append(f"The answer to {key} is too long: {kilobytes} kB of {MAX_CELL // 1000} kB.")
    return short


def _capped(extra: Sequence[str], notes: list[str]) -> list[str]:
    """The cells that fit, and a note on those that don't."""
    kept: list[str] = []
    left = MAX_CODE
    for source in extra:
        if _size(source) <= min(left, MAX_CELL):
            kept.append(source)
            left -= _size(source)
    if len(kept) < len(extra):
        notes.append(f"{len(extra) - len(kept)} cells of yours were left out: too much code.")
    return kept
