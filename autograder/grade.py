"""Grades one submission: read → slice → run → judge. What a batch does with many is elsewhere."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Self

from autograder import diagnose
from autograder.course import Chapter
from autograder.oddities import odd
from autograder.results import Graded, Submission
from autograder.sandbox import WarmParent
from autograder.session import Asking, Session
from helpers import diagnosis
from helpers.exercise import Assessment, Exercise, Tried, assess


class Grader:
    """Grades submissions to one chapter, one after the other, in a warm parent of its own.

    A context manager. told: see `diagnose.Told`; how known mistakes behave is found out once a
    course, which takes a while.
    """

    def __init__(self, chapter: Chapter, told: diagnose.Told = lambda done, of: None) -> None:
        chapter.require_libraries()
        self.chapter = chapter
        self.asking = Asking(chapter)
        self.bank = diagnose.bank(self.asking, told)
        self.parent = WarmParent(chapter.preloaded)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.parent.close()

    def grade(self, submission: Submission) -> Graded:
        """The verdicts on a readable submission; its processes are gone when this returns."""
        session = Session(self.parent, self.asking, submission)
        assessments: dict[str, Assessment] = {}
        diagnoses: dict[str, diagnosis.Misconception] = {}
        seconds: dict[str, float] = {}
        for key, exercise in self.chapter.hidden.items():
            started = time.monotonic()
            tried = session.observe(key)
            seconds[key] = round(time.monotonic() - started, 2)
            assessments[key] = assess(exercise, tried)
            known = self._diagnose(exercise, assessments[key], tried)
            if known:
                diagnoses[key] = known
        session.close()
        usage = session.cpu_seconds, session.peak_mb
        person = tuple(_for_a_person(submission, assessments))
        return Graded(submission, assessments, diagnoses, seconds, *usage, person)

    def _diagnose(
        self, exercise: Exercise, assessment: Assessment, tried: Sequence[Tried]
    ) -> diagnosis.Misconception | None:
        """The known mistake that behaves like this answer, if points were lost and one does."""
        if assessment.verdict not in ("partial", "zero", "error"):
            return None
        mine = [known for known in self.bank if known.exercise == assessment.id]
        return diagnosis.recognised(exercise, tried, mine)


def _for_a_person(submission: Submission, assessments: Mapping[str, Assessment]) -> Iterator[str]:
    """Why somebody should read the code: it tampered, or holds what no answer needs."""
    for key, found in assessments.items():
        if found.verdict == "tampered":
            yield f"{key} tampers with the check: {found.message}"
    named = [*submission.answers.items(), *(("a cell of its own", x) for x in submission.extra)]
    for name, source in named:
        if found_odd := odd(source):
            yield f"{name} {', '.join(found_odd[:4])}: read it"
