"""Graders for many submissions on many threads: made when needed, replaced when they break."""

import threading
from collections.abc import Iterable
from typing import Self

from autograder import diagnose
from autograder.course import Chapter
from autograder.grade import Grader
from autograder.intake import Turn
from autograder.problems import UsageError
from autograder.results import Graded
from autograder.source import SourceError
from helpers.exercise import Assessment


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
        """The verdicts, on this thread's grader; on another one if that breaks."""
        try:
            return self._own(turn.chapter).grade(turn.handed)
        except Exception:  # its processes may have been killed
            self._discard(turn.chapter)
        try:
            return self._own(turn.chapter).grade(turn.handed)
        except Exception:
            self._discard(turn.chapter)
            raise

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
