"""Grades a class: everything that was handed in, on several workers, to marks and pages.

One submission's failure, the grader's own included, costs that submission only. How one is graded
is `autograder.grade`'s; what a person sees of the batch is `autograder.progress`'s.
"""

import contextlib
import os
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from autograder import course, diagnose, feedback, marks
from autograder.collect import Found, NothingThere, find
from autograder.course import Chapter, UnknownChapter
from autograder.grade import Grader
from autograder.gradebook import Gradebook
from autograder.nbgrader_course import CourseFolderError
from autograder.results import Graded
from autograder.source import SourceError
from autograder.submission import Handed, read
from helpers.exercise import Assessment, one_line


class UsageError(ValueError):
    """What was asked for can't be done, and nothing was done; the message is one line."""


@dataclass(frozen=True)
class Turn:
    """One student's submission to one chapter."""

    handed: Handed
    chapter: Chapter


@dataclass(frozen=True)
class Marked:
    """A graded submission."""

    graded: Graded
    chapter: Chapter


@dataclass(frozen=True)
class Summary:
    """A graded class. aside: files that did not count, each with why, one sentence a file."""

    marked: list[Marked]
    aside: list[str]
    out: Path

    @property
    def person(self) -> list[tuple[str, str, str]]:
        """(student, chapter, why) of what needs a person."""
        return [
            (each.graded.submission.student, each.chapter.slug, why)
            for each in self.marked
            for why in each.graded.person
        ]


Told = Callable[[Marked, int], None]
"""Is called with each graded submission and the number of all."""


def grade(
    paths: Sequence[Path],
    out: Path,
    chapter: str | None = None,
    workers: int | None = None,
    told: Told = lambda marked, of: None,
    learned: diagnose.Told = lambda done, of: None,
) -> Summary:
    """Grades what was handed in under the paths and writes the results folder.

    chapter: only this one; by default each notebook says itself. workers: processes of learners at
    a time, as many as there are processors by default. learned: is called while it is found out,
    once a course, how known mistakes behave. Raises UsageError.
    """
    turns, aside = take_in(paths, out, chapter)
    _require_writable(out)
    chapters = list(dict.fromkeys(turn.chapter for turn in turns))
    readable = {turn.chapter for turn in turns if not turn.handed.problem}
    try:
        with (
            Graders(readable, learned) as graders,
            _Batch(turns, graders, workers or processors()) as batch,
            _gradebook(out, chapters) as book,  # takes seconds, while grading goes on
        ):
            marked = []
            for one in batch.marked():
                marked.append(_written(one, book, out))
                told(marked[-1], len(turns))
    except UsageError:
        with contextlib.suppress(OSError):  # goes only if it is empty
            out.rmdir()
        raise
    marks.write(out / "marks.csv", ((each.graded, each.chapter) for each in marked))
    return Summary(sorted(marked, key=_place), aside, out)


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _place(marked: Marked) -> tuple[str, int]:
    return marked.graded.submission.student, marked.chapter.number


# --- taking in -----------------------------------------------------------------------------------


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


# --- grading -------------------------------------------------------------------------------------


class Graders:
    """One grader for each thread and chapter, made when it is first needed.

    A context manager. The first of each chapter is made at once, so that what keeps them from
    starting is known before anything is written: UsageError.
    """

    def __init__(self, chapters: Iterable[Chapter], learned: diagnose.Told) -> None:
        self._learned = learned
        self._mine = threading.local()
        self._lock = threading.Lock()
        self._all: list[Grader] = []
        try:
            self._spare = {chapter: [self._new(chapter)] for chapter in chapters}
        except (RuntimeError, OSError, SourceError) as error:
            raise UsageError(f"the grader can't start: {error}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all graders and their processes, what they are at included."""
        with self._lock:
            for grader in self._all:
                grader.__exit__(None, None, None)
            self._all.clear()

    def grade(self, turn: Turn) -> Graded:
        """The verdicts, on this thread's grader. Never raises for what goes wrong in it."""
        try:
            return self._own(turn.chapter).grade(turn.handed)
        except Exception as error:  # ours: the rest of the class goes on
            self._discard(turn.chapter)
            why = f"the grader failed: {one_line(error)}"
            return without_verdict(turn, why, person=why)

    def _own(self, chapter: Chapter) -> Grader:
        own: dict[Chapter, Grader] = self._mine.__dict__.setdefault("graders", {})
        if chapter not in own:
            with self._lock:
                spare = self._spare.get(chapter, [])
                grader = spare.pop() if spare else None
            own[chapter] = grader or self._new(chapter)
        return own[chapter]

    def _new(self, chapter: Chapter) -> Grader:
        grader = Grader(chapter, self._learned).__enter__()
        with self._lock:
            self._all.append(grader)
        return grader

    def _discard(self, chapter: Chapter) -> None:
        """The grader failed once, so another one takes over."""
        grader = self._mine.__dict__.get("graders", {}).pop(chapter, None)
        if grader:
            with self._lock:
                self._all.remove(grader)
            grader.__exit__(None, None, None)


def without_verdict(turn: Turn, message: str, person: str) -> Graded:
    """The result of a submission that nothing could be found out about."""
    assessments = {
        key: Assessment(key, each.title, "error", 0.0, each.points, (), message)
        for key, each in turn.chapter.exercises.items()
    }
    return Graded(turn.handed, assessments, person=(person,))


def _sameness(turn: Turn) -> object:
    """Equal for submissions with the same code, which are judged once."""
    handed = turn.handed
    return turn.chapter, tuple(sorted(handed.answers.items())), handed.extra


class _Batch:
    """All submissions on their way through the graders, those with the same code once.

    A context manager: whatever ends it early ends what is running and cancels what waits.
    """

    def __init__(self, turns: Sequence[Turn], graders: Graders, workers: int) -> None:
        self.graders = graders
        self.unreadable = [turn for turn in turns if turn.handed.problem]
        same: dict[object, list[Turn]] = {}
        for turn in turns:
            if not turn.handed.problem:
                same.setdefault(_sameness(turn), []).append(turn)
        self.pool = ThreadPoolExecutor(max_workers=max(1, min(workers, len(same))))
        self.jobs = {self.pool.submit(graders.grade, twins[0]): twins for twins in same.values()}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        if kind:
            for job in self.jobs:
                job.cancel()
            self.graders.close()
        self.pool.shutdown()

    def marked(self) -> Iterator[Marked]:
        """The submissions as they are done."""
        for turn in self.unreadable:
            problem = turn.handed.problem
            yield Marked(without_verdict(turn, problem, person=problem), turn.chapter)
        for job in as_completed(self.jobs):
            for turn in self.jobs[job]:
                yield Marked(replace(job.result(), submission=turn.handed), turn.chapter)


# --- writing -------------------------------------------------------------------------------------


def _written(marked: Marked, book: Gradebook, out: Path) -> Marked:
    """Writes one submission's page and grade; what can't be written needs a person."""
    try:
        feedback.write(marked.graded, marked.chapter, out / "feedback")
        book.record(marked.graded, marked.chapter)
        return marked
    except Exception as error:  # ours: the rest of the class goes on
        why = f"its marks could not be written: {one_line(error)}"
        graded = replace(marked.graded, person=(*marked.graded.person, why))
        return replace(marked, graded=graded)


def _require_writable(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()
    except OSError as error:
        raise UsageError(f"{out}: can't be written: {error.strerror}") from None


def _gradebook(out: Path, chapters: Iterable[Chapter]) -> Gradebook:
    try:
        return Gradebook(out, list(dict.fromkeys(chapters)))
    except CourseFolderError as error:
        raise UsageError(f"{out}: {error} (another --out starts afresh)") from error
    except SourceError as error:
        raise UsageError(str(error)) from error
    except OSError as error:
        raise UsageError(f"{out}: can't be written: {error.strerror}") from error
