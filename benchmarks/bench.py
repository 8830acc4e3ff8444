"""What grading costs: `autograder grade` beside plain `nbgrader autograde`, in one run.

CPU seconds are those of all child processes, as the kernel counts them. Both sides are warmed by
one submission before the clock starts. `python benchmarks/bench.py [STUDENT…]`; run by
`nox -s bench`.
"""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from autograder.course import ROOT, chapter
from autograder.grade import Grader
from autograder.nbgrader_course import lay_out
from autograder.submission import read

CHAPTER = chapter("recompilation")
SUBMITTED = ROOT / "tests" / "sample_class" / "submitted"
STUDENTS = ["ada", "bela", "carl", "emil", "gus"]
"""Honest submissions: plain nbgrader does not survive the others."""


@dataclass(frozen=True)
class Cost:
    """What one way of grading took, for one submission."""

    cpu_seconds: float
    wall_seconds: float
    peak_mb: float


def measured(run: Callable[[], object], submissions: int) -> Cost:
    """CPU of this process and its children, wall time, and peak memory of the largest child."""
    before, started = _cpu(), time.perf_counter()
    run()
    wall = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return Cost((_cpu() - before) / submissions, wall / submissions, peak)


def _cpu() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def ours(students: list[str]) -> Cost:
    """The engine, sandbox included; its one-off costs (warm parent, fingerprints) beforehand."""
    paths = [SUBMITTED / student for student in students]
    grader = Grader(CHAPTER)
    grader.grade(read(paths[0], CHAPTER))
    graded = []
    cost = measured(lambda: graded.extend(grader.grade(read(p, CHAPTER)) for p in paths), 1)
    learners = sum(each.cpu_seconds for each in graded)
    peak = max(each.peak_mb for each in graded)
    grader.parent.close()
    n = len(students)
    return Cost((cost.cpu_seconds + learners) / n, cost.wall_seconds / n, peak)


def plain_nbgrader(students: list[str]) -> Cost:
    """`nbgrader autograde` with its own executor: one command for all, kernel starts included."""
    with tempfile.TemporaryDirectory() as scratch:
        course = Path(scratch)
        lay_out(course, [CHAPTER], engine=False)
        for student in students:
            shutil.copytree(SUBMITTED / student, course / "submitted" / student)
        command = ["nbgrader", "autograde", CHAPTER.slug]
        environment = {**os.environ, "COURSE_PROGRESS": str(course / "progress.json")}
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])

        def run() -> None:
            subprocess.run(
                command, cwd=course, env={**environment, "PATH": path}, check=True,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip

        return measured(run, len(students))


def main(students: list[str]) -> int:
    """Prints the table; 1 where a promise of the issue is not kept."""
    engine, plain = ours(students), plain_nbgrader(students)
    table = Table(title=f"{CHAPTER.slug}, {len(students)} submissions, each")
    for heading in ("", "CPU seconds", "wall seconds", "peak MB"):
        table.add_column(heading, justify="right")
    for name, cost in (("autograder grade", engine), ("nbgrader autograde", plain)):
        numbers = (f"{cost.cpu_seconds:.2f}", f"{cost.wall_seconds:.2f}", f"{cost.peak_mb:.0f}")
        table.add_row(name, *numbers)
    ratio = plain.cpu_seconds / engine.cpu_seconds
    console = Console()
    console.print(table)
    console.print(f"nbgrader takes {ratio:.0f} times the CPU seconds.")
    promises = {
        "at least 10 times fewer CPU seconds": ratio >= 10,
        "at most 1.5 CPU seconds a submission": engine.cpu_seconds <= 1.5,
        "at most 700 MB a worker": engine.peak_mb <= 700,
    }
    for promise, kept in promises.items():
        console.print(f"{'✅' if kept else '❌'} {promise}")
    return 0 if all(promises.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or STUDENTS))
