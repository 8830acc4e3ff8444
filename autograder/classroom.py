"""Grades a class: everything that was handed in, on several workers, to marks and pages.

One submission's failure, the grader's own included, costs that submission only. A run that was
killed goes on where it stopped, by `autograder.verdicts`. How one is graded is for
`autograder.grade` to say, what a person sees of the batch for `autograder.progress`.
"""

import contextlib
import hashlib
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

from autograder import cluster, diagnose, feedback, marks
from autograder.course import Chapter
from autograder.gradebook import Gradebook
from autograder.graders import Graders, without_verdict
from autograder.intake import Turn, take_in
from autograder.nbgrader_course import CourseFolderError
from autograder.problems import UsageError
from autograder.results import Graded
from autograder.session import Asking
from autograder.source import SourceError
from autograder.verdicts import Verdicts
from autograder.verdicts import key as key_of
from helpers.exercise import one_line


@dataclass(frozen=True)
class Marked:
    """A graded submission."""

    graded: Graded
    chapter: Chapter


@dataclass(frozen=True)
class Summary:
    """A graded class. aside: files that did not count, each with why, one sentence a file.

    kept: how many verdicts an earlier run had left.
    """

    marked: list[Marked]
    aside: list[str]
    out: Path
    kept: int = 0

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

Submit = Callable[[Turn], "Future[Graded]"]
"""Has one submission graded, somewhere."""


@dataclass(frozen=True)
class Plan:
    """How a class is graded.

    chapter: only this one; by default each notebook says itself. workers: processes of learners at
    a time, as many as there are processors by default. shard: (i, n), the i-th of n parts only,
    from 1. parts: folders of results whose verdicts are taken over. again: forget what is kept.
    cluster: the address of a Dask scheduler whose workers grade.
    """

    chapter: str | None = None
    workers: int | None = None
    shard: tuple[int, int] = (1, 1)
    parts: Sequence[Path] = ()
    again: bool = False
    cluster: str | None = None


def grade(
    paths: Sequence[Path],
    out: Path,
    plan: Plan = Plan(),
    told: Told = lambda marked, of: None,
    learned: diagnose.Told = lambda done, of: None,
) -> Summary:
    """Grades what was handed in under the paths and writes the results folder.

    What the folder has the verdicts of is not graded again. learned: is called while it is found
    out, once a course, how known mistakes behave. Raises UsageError.
    """
    turns, aside = take_in(paths, out, plan.chapter)
    fresh = not out.exists()
    _require_writable(out)
    try:
        with _verdicts(out, plan) as verdicts:
            batch = _batch(turns, verdicts, plan)
            chapters = list(dict.fromkeys(turn.chapter for turn in batch.turns))
            with (
                _graders(batch, plan, learned) as submit,
                _gradebook(out, chapters) as book,  # takes seconds, while grading goes on
            ):
                marked = []
                for one in batch.marked(submit):
                    marked.append(_written(one, book, out))
                    told(marked[-1], len(batch.turns))
    except UsageError:
        if fresh:
            shutil.rmtree(out, ignore_errors=True)
        raise
    marks.write(out, ((each.graded, each.chapter) for each in marked))
    return Summary(sorted(marked, key=_place), aside, out, kept=batch.kept)


def processors() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _place(marked: Marked) -> tuple[str, int]:
    return marked.graded.submission.student, marked.chapter.number


# --- grading -------------------------------------------------------------------------------------


class Batch:
    """The submissions of a class, or of a part of it, those with the same code once.

    turns: all of them. pending: what no verdict is kept of, by the verdict's key.
    """

    def __init__(self, turns: Sequence[Turn], verdicts: Verdicts, shard: tuple[int, int]) -> None:
        self.verdicts = verdicts
        self.turns = [
            turn for turn in turns if turn.handed.problem and _in_shard(_name(turn), shard)
        ]
        self.unreadable = list(self.turns)
        self.pending: dict[str, list[Turn]] = {}
        self.found: list[Marked] = []
        for key, twins in _same_code(turns).items():
            if not _in_shard(key, shard):
                continue
            self.turns += twins
            if graded := verdicts.kept(key, twins[0].handed):
                self.found += _each(twins, graded)
            else:
                self.pending[key] = twins

    @property
    def kept(self) -> int:
        """How many submissions were graded by an earlier run."""
        return len(self.found)

    def marked(self, submit: Submit) -> Iterator[Marked]:
        """The submissions as they are done; the verdicts on each are kept before it is told."""
        jobs = {submit(twins[0]): key for key, twins in self.pending.items()}
        for turn in self.unreadable:
            problem = turn.handed.problem
            yield Marked(without_verdict(turn, problem, person=problem), turn.chapter)
        yield from self.found
        for job in as_completed(jobs):
            twins = self.pending[jobs[job]]
            try:
                graded = job.result()
            except Exception as error:  # ours: the rest of the class goes on
                why = f"the grader failed: {one_line(error)}"
                graded = without_verdict(twins[0], why, person=why)
            else:
                with contextlib.suppress(sqlite3.Error):  # it would be graded again, no more
                    self.verdicts.keep(jobs[job], graded)
            yield from _each(twins, graded)


def _each(twins: Iterable[Turn], graded: Graded) -> Iterator[Marked]:
    for turn in twins:
        yield Marked(replace(graded, submission=turn.handed), turn.chapter)


def _same_code(turns: Iterable[Turn]) -> dict[str, list[Turn]]:
    """Readable submissions by the key of their verdicts."""
    askings: dict[Chapter, Asking] = {}
    same: dict[str, list[Turn]] = {}
    for turn in turns:
        if not turn.handed.problem:
            if turn.chapter not in askings:
                askings[turn.chapter] = Asking(turn.chapter)
            same.setdefault(key_of(askings[turn.chapter], turn.handed), []).append(turn)
    return same


def _name(turn: Turn) -> str:
    return hashlib.sha256(f"{turn.handed.student}/{turn.chapter.slug}".encode()).hexdigest()


def _in_shard(key: str, shard: tuple[int, int]) -> bool:
    """Whether a submission belongs to a part: decided by its key, the same on every machine."""
    number, of = shard
    return int(key, 16) % of == number - 1


def _batch(turns: Sequence[Turn], verdicts: Verdicts, plan: Plan) -> Batch:
    try:
        return Batch(turns, verdicts, plan.shard)
    except SourceError as error:
        raise UsageError(f"the grader can't start: {error}") from error


@contextlib.contextmanager
def _graders(batch: Batch, plan: Plan, learned: diagnose.Told) -> Iterator[Submit]:
    """What to hand a submission to; whatever ends the block early ends what is being graded."""
    chapters = {twins[0].chapter for twins in batch.pending.values()}
    if plan.cluster:
        with cluster.workers(plan.cluster, chapters) as submit:
            yield submit
        return
    workers = max(1, min(plan.workers or processors(), len(batch.pending)))
    with Graders(chapters, learned) as graders:
        pool = ThreadPoolExecutor(workers)
        try:
            yield lambda turn: pool.submit(graders.grade, turn)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            graders.close()
            raise
        finally:
            pool.shutdown()


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


def _verdicts(out: Path, plan: Plan) -> Verdicts:
    """What earlier runs left, here and in the parts."""
    try:
        verdicts = Verdicts(out)
        if plan.again:
            verdicts.forget()
        verdicts.take_over(plan.parts)
    except sqlite3.Error as error:
        raise UsageError(f"verdicts kept in {out} or a part can't be read: {error}") from error
    return verdicts


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
