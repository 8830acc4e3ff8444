"""Who handed in what to which chapter, and which of several attempts counts."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autograder import course
from autograder.collect import Found, NothingThere, find
from autograder.course import Chapter, UnknownChapter
from autograder.problems import UsageError
from autograder.submission import Handed, read
from helpers.exercise import one_line


@dataclass(frozen=True)
class Turn:
    """One student's submission to one chapter."""

    handed: Handed
    chapter: Chapter


def take_in(
    paths: Sequence[Path], out: Path, chapter: str | None = None
) -> tuple[list[Turn], list[str]]:
    """One submission a student and chapter, and a sentence on each file that does not count.

    Raises UsageError.
    """
    try:
        only = course.chapter(chapter) if chapter else None
        found = find(paths, skip=out)
    except (UnknownChapter, NothingThere) as error:
        raise UsageError(str(error)) from None
    if only:
        found = [each for each in found if not each.folders or only.slug in each.folders]
    handed = [_read(each, only) for each in found]
    if not handed:
        raise UsageError(f"nothing was handed in to chapter {only.slug if only else ''}".rstrip())
    usual = only or _most_frequent(handed)
    groups: dict[tuple[str, str], list[Handed]] = {}
    for each in handed:
        each = replace(each, chapter=each.chapter or usual.name)
        groups.setdefault((each.student, each.chapter), []).append(each)
    _fold_in_unreadable(groups)
    turns, aside = [], []
    for attempts in groups.values():
        latest, left_out = _latest(attempts)
        turns.append(Turn(latest, course.chapter(latest.chapter)))
        aside += left_out
    return turns, aside


def _read(found: Found, only: Chapter | None) -> Handed:
    try:
        return read(found, only)
    except Exception as error:  # ours: the rest of the class goes on
        problem = f"The grader failed to read it: {one_line(error)}."
        return Handed(found.student, "", found.path, problem=problem, found=found)


def _most_frequent(handed: Sequence[Handed]) -> Chapter:
    """The chapter of most submissions: what one that can't be read is taken for."""
    counts = Counter(each.chapter for each in handed if each.chapter)
    if counts:
        return course.chapter(counts.most_common(1)[0][0])
    if len(course.chapters()) == 1:
        return course.chapters()[0]
    raise UsageError("no file is a notebook of this course: say which chapter with --chapter")


def _fold_in_unreadable(groups: dict[tuple[str, str], list[Handed]]) -> None:
    """Puts a file that can't be read with the readable ones of its student, if there are any."""
    for key, attempts in list(groups.items()):
        if all(each.problem for each in attempts):
            student = key[0]
            others = [
                each
                for each, theirs in groups.items()
                if each[0] == student and any(not one.problem for one in theirs)
            ]
            if others:
                groups[others[0]] += groups.pop(key)


def _latest(attempts: Sequence[Handed]) -> tuple[Handed, list[str]]:
    """The latest readable attempt, with notes on the others, and a sentence on each of these."""
    order = sorted(attempts, key=lambda each: (not each.problem, *_age(each)))
    *others, latest = order
    notes, aside = [], []
    for each in others:
        name = each.found.name if each.found else each.path.name
        why = each.problem or "a later one was handed in"
        notes.append(f"`{name}` was set aside: {why}".rstrip(".") + ".")
        aside.append(f"{each.student}: {name}: {why}")
    return replace(latest, notes=(*latest.notes, *notes)), aside


def _age(handed: Handed) -> tuple[float, bool, str]:
    """Earlier first; at the same time, the notebook with the course's name last."""
    if not handed.found:
        return 0.0, False, ""
    name = handed.found.name
    return handed.found.when, name.startswith(course.chapter(handed.chapter).slug + "."), name
