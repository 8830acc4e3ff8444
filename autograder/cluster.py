"""Grading on many machines: Dask workers grade, each in its own sandbox; results come back here.

A worker runs in a checkout of the same course, on a machine with bubblewrap. The scheduler's side
alone writes. What a worker had when it was lost goes to another one.
"""

import contextlib
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

from autograder.course import Chapter, chapter
from autograder.graders import Graders
from autograder.intake import Turn
from autograder.problems import UsageError
from autograder.results import Graded
from autograder.sandbox import missing
from autograder.session import Asking
from autograder.verdicts import version
from helpers.exercise import one_line

SECONDS = 30
"""How long to wait for the scheduler and its first worker."""


@contextlib.contextmanager
def workers(
    address: str, chapters: Iterable[Chapter]
) -> Iterator[Callable[[Turn], "Future[Graded]"]]:
    """What hands a submission to the workers of a Dask scheduler. Raises UsageError.

    Every worker must have these chapters and this grader as they are here, and bubblewrap.
    """
    try:
        from distributed import Client
    except ImportError:
        raise UsageError("--cluster needs Dask: `pip install distributed`") from None
    try:
        client = Client(address, timeout=SECONDS)
    except (OSError, TimeoutError, ValueError) as error:
        raise UsageError(f"no Dask scheduler answers at {address}: {error}") from error
    with client:
        try:
            client.wait_for_workers(1, timeout=SECONDS)
        except TimeoutError:
            raise UsageError(f"the Dask scheduler at {address} has no worker") from None
        _require_fit(client, [each.name for each in chapters])
        executor = client.get_executor(pure=False)
        yield functools.partial(executor.submit, grade_here)


def grade_here(turn: Turn) -> Graded:
    """On a worker: the verdicts, by a grader of its process."""
    return _graders().grade(turn)


@functools.cache
def _graders() -> Graders:
    return Graders((), lambda done, of: None)


def fitness(names: Sequence[str]) -> tuple[list[str], str]:
    """On a worker: the version of each chapter with its grader, and what isolation lacks."""
    return [version(Asking(chapter(name))) for name in names], missing()


def _require_fit(client: Any, names: Sequence[str]) -> None:
    here, _ = fitness(names)
    try:
        found = client.run(fitness, names)
    except Exception as error:  # whatever a worker raises that has no such course
        what = f"can't load the course ({one_line(error)}): start it in a checkout of it"
        raise UsageError(f"a worker {what}") from error
    for worker, (there, lacks) in found.items():
        if lacks:
            raise UsageError(f"the worker {worker} can't isolate learners' code: {lacks}")
        if there != here:
            what = "course, grader, JAX or COURSE_SECRET"
            raise UsageError(f"the worker {worker} has another {what} than this machine")
