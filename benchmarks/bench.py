"""What grading costs: `autograder grade` beside nbgrader, Otter and the bare answers, in one run.

CPU seconds are those of this process and all its children, as the kernel counts them. What is paid
once a class or a course is paid before the clock starts. `nox -s bench` runs it.
"""

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import results
from rich.console import Console
from rich.table import Table

from autograder.course import ROOT, chapter
from autograder.grade import Grader
from autograder.nbgrader_course import lay_out
from autograder.sandbox import xla_flags
from autograder.submission import read

CHAPTER = chapter("recompilation")
SUBMITTED = ROOT / "tests" / "sample_class" / "submitted"
STUDENTS = ["ada", "bela", "carl", "emil", "gus"]
"""Honest submissions: plain nbgrader does not survive the others."""
OTTER = str(ROOT / ".nox" / "otter" / "bin" / "otter")


@dataclass(frozen=True)
class Cost:
    """What one way of grading took, for one submission."""

    cpu_seconds: float
    wall_seconds: float
    peak_mb: float


def measured(run: Callable[[], object], submissions: int) -> Cost:
    """CPU of this process and its children, wall time, and peak memory of the largest child."""
    before, started = cpu(), time.perf_counter()
    run()
    wall = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    return Cost((cpu() - before) / submissions, wall / submissions, peak)


def cpu() -> float:
    """Seconds that this process and its children that have ended used."""
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
        return measured(
            lambda: command("nbgrader", "autograde", CHAPTER.slug, folder=course), len(students)
        )


OTTER_TEST = """
from otter.test_files import test_case

OK_FORMAT, name, points = False, "{key}", {points}

@test_case(hidden=True)
def earns_all(env):
    from autograder import hidden_tests
    assert hidden_tests.points("{key}", env) == {points}
"""
"""One exercise for Otter: what nbgrader's hidden tests ask, in Otter's own format."""


def otter(students: list[str]) -> Cost:
    """`otter run` on the same notebooks: one command each, which is how Otter runs without Docker.

    It has an environment of its own, `.nox/otter`, for it needs libraries that we don't.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "tests").mkdir()
        (folder / "otter_config.json").write_text("{}")
        (folder / "requirements.txt").touch()
        for key, exercise in CHAPTER.exercises.items():
            test = OTTER_TEST.format(key=key, points=exercise.points)
            (folder / "tests" / f"q{key.replace('.', '_')}.py").write_text(test)
        config = ["-t", "tests", "-c", "otter_config.json", "--no-environment"]
        command(OTTER, "generate", *config, "-o", "autograder.zip", folder=folder)

        def run() -> None:
            for student in students:
                (notebook,) = (SUBMITTED / student).rglob("*.ipynb")
                command(OTTER, "run", "-a", "autograder.zip", str(notebook), folder=folder)

        return measured(run, len(students))


def command(*args: str, folder: Path) -> None:
    """Runs one of the other graders' commands."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    own = {"COURSE_PROGRESS": str(folder / "progress.json"), "PATH": path}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.run(args, cwd=folder, env={**os.environ, **own}, check=True, **quiet)


def bound(students: list[str]) -> Cost:
    """The same answers in an already warm process, compiled as the engine compiles them."""
    paths = [str(path) for student in students for path in (SUBMITTED / student).rglob("*.ipynb")]
    env = {**os.environ, "XLA_FLAGS": xla_flags(), "OPENBLAS_NUM_THREADS": "1"}
    run = [sys.executable, str(ROOT / "benchmarks" / "bound.py"), *paths]
    costs = json.loads(subprocess.run(run, env=env, check=True, capture_output=True).stdout)
    cpu, wall, peak = zip(*costs, strict=True)
    return Cost(sum(cpu) / len(cpu), sum(wall) / len(wall), max(peak))


def main(students: list[str]) -> int:
    """Prints the table; 1 where a promise is not kept."""
    ways = {
        "autograder grade": ours,
        "nbgrader autograde": plain_nbgrader,
        "otter run": otter,
        "the answers alone": bound,
    }
    if not Path(OTTER).exists():
        del ways["otter run"]
    costs = {name: way(students) for name, way in ways.items()}
    table = Table(title=f"{CHAPTER.slug}, {len(students)} submissions, each")
    for heading in ("", "CPU seconds", "wall seconds", "peak MB", "CPU, ours = 1"):
        table.add_column(heading, justify="right")
    engine = costs["autograder grade"]
    times = {name: cost.cpu_seconds / engine.cpu_seconds for name, cost in costs.items()}
    for name, cost in costs.items():
        numbers = (f"{cost.cpu_seconds:.2f}", f"{cost.wall_seconds:.2f}", f"{cost.peak_mb:.0f}")
        table.add_row(name, *numbers, f"{times[name]:.2f}")
    console = Console()
    console.print(table)
    promises = {
        "at least 12 times fewer CPU seconds than nbgrader": times["nbgrader autograde"] >= 12,
        "at most 2.5 times those of the answers alone": times["the answers alone"] >= 1 / 2.5,
        "at most 1.5 CPU seconds a submission": engine.cpu_seconds <= 1.5,
        "at most 400 MB a worker": engine.peak_mb <= 400,
    }
    for promise, kept in promises.items():
        console.print(f"{'✅' if kept else '❌'} {promise}")
    ways_cost = {name: asdict(cost) for name, cost in costs.items()}
    results.save("bench", chapter=CHAPTER.slug, submissions=len(students), ways=ways_cost)
    return 0 if all(promises.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or STUDENTS))
