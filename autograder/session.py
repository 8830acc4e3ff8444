"""One submission's run: the learner's process, what it has loaded, what its answers do."""

import hashlib
from collections.abc import Sequence
from functools import cached_property
from importlib.metadata import version

from autograder import course, judge
from autograder.build import given_cells
from autograder.course import Chapter
from autograder.results import Submission
from autograder.sandbox import Learner, WarmParent, environment
from autograder.slicing import all_statements, needed
from helpers.exercise import Observation, Tried

Cells = list[tuple[str, str]]


class Asking:
    """What every submission to a chapter is asked: its given cells, and the cases by exercise."""

    def __init__(self, chapter: Chapter) -> None:
        self.chapter = chapter
        self.given = [source for _, source, _ in given_cells(chapter)]
        self.cases = {key: judge.cases_of(chapter, key) for key in chapter.exercises}

    @cached_property
    def key(self) -> str:
        """A digest of all that an answer's behaviour depends on, but for the answer."""
        settings = version("jax"), environment(isolated=True, scratch="")
        digest = hashlib.sha256(repr(settings).encode())
        written = sorted(self.chapter.source.parent.glob("*.py"))
        for path in [*sorted((course.ROOT / "helpers").rglob("*.py")), *written]:
            digest.update(path.read_bytes())
        for cases in self.cases.values():
            for asked in cases:
                digest.update(repr(asked.case.inputs).encode())
        return f"{self.chapter.slug}-{digest.hexdigest()[:16]}"


class Session:
    """One submission on its way through a warm parent.

    cpu_seconds, peak_mb: of the processes that have ended, so complete after `close`.
    """

    def __init__(self, parent: WarmParent, asking: Asking, submission: Submission) -> None:
        self.parent = parent
        self.asking = asking
        self.submission = submission
        self.learner: Learner | None = None
        self.loaded: set[str] = set()
        self.cpu_seconds = 0.0
        self.peak_mb = 0.0

    def observe(self, key: str) -> list[Tried]:
        """What the answer to one exercise does in each of its cases."""
        asked = self.asking.cases[key]
        if key not in self.submission.answers:
            missing = Observation(fault="unanswered", message="no answer in the notebook")
            return [Tried(each.case, missing, each.hidden) for each in asked]
        tried, name_missing = self._interview(key, self._slice(key))
        if name_missing:
            self.close()
            tried, _ = self._interview(key, self._own_cells_whole(key))
            self.close()
        return tried

    def close(self) -> None:
        """Ends the learner's process and books what it cost."""
        if self.learner:
            usage = self.learner.close()
            self.cpu_seconds += usage.cpu_seconds
            self.peak_mb = max(self.peak_mb, usage.peak_mb)
            self.learner = None
        self.loaded.clear()

    def _interview(self, key: str, cells: Cells) -> tuple[list[Tried], bool]:
        used = self.learner is not None
        self.learner = self.learner or self.parent.start(self.asking.chapter.name)
        fresh = [cell for cell in cells[:-1] if cell[1] not in self.loaded]
        exercise, asked = self.asking.chapter.exercises[key], self.asking.cases[key]
        tried, name_missing = judge.interview(self.learner, exercise, [*fresh, cells[-1]], asked)
        self.loaded.update(source for _, source in cells)
        if judge.spoiled(tried):
            self.close()
            if used:  # by other answers, which may have left what broke it
                return self._interview(key, cells)
        return tried, name_missing

    def _slice(self, key: str) -> Cells:
        answer = self.submission.answers[key]
        own = [*self.submission.extra, *self._others(key)]
        return [*_named(needed(answer, own, self.asking.given)), (f"answer {key}", answer)]

    def _own_cells_whole(self, key: str) -> Cells:
        """The learner's cells as they are: a slice misses what `exec` or `import *` binds."""
        answer, extra = self.submission.answers[key], self.submission.extra
        reads = "\n".join(each.source for cell in (*extra, answer) for each in all_statements(cell))
        before = needed(reads, self._others(key), self.asking.given)
        return [*_named([*before, *extra]), (f"answer {key}", answer)]

    def _others(self, key: str) -> list[str]:
        return [source for other, source in self.submission.answers.items() if other != key]


def _named(sources: Sequence[str]) -> Cells:
    return [(f"cell {number}", source) for number, source in enumerate(sources, 1)]
