"""What grading one submission ends in: plain data that the writers of marks and pages share."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from helpers.diagnosis import Misconception
from helpers.exercise import Assessment


@dataclass(frozen=True)
class Submission:
    """A learner's notebook as it was read: only code counts, outputs and metadata don't.

    student: from the path. chapter: the chapter's name. path: where it was found.
    answers: the source of each exercise's answer cell by exercise id; absent means not found.
    extra: sources of the cells that the learner added, in order.
    notes: what was repaired or ignored, each one sentence for the learner.
    problem: why it can't be graded, "" if it can; then answers is empty and a person is needed.
    """

    student: str
    chapter: str
    path: Path
    answers: Mapping[str, str] = field(default_factory=dict)
    extra: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Graded:
    """The verdicts on one submission.

    assessments, diagnoses, seconds (wall): by exercise id; a missing diagnosis means none known.
    cpu_seconds, peak_mb: of the learner's processes, as their parent saw them.
    person: why a person should look at it, one sentence each; empty if none need to.
    """

    submission: Submission
    assessments: Mapping[str, Assessment]
    diagnoses: Mapping[str, Misconception] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    cpu_seconds: float = 0.0
    peak_mb: float = 0.0
    person: tuple[str, ...] = ()

    @property
    def judged(self) -> bool:
        """Whether the answers were run: not where the file or the grader was broken."""
        return bool(self.seconds)

    @property
    def points(self) -> float:
        """Points earned over the chapter."""
        return round(sum(a.points for a in self.assessments.values()), 2)

    @property
    def max_points(self) -> int:
        """Points that could be earned over the chapter."""
        return sum(a.max_points for a in self.assessments.values())
