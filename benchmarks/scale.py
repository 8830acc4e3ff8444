"""What a large class costs: is it flat, are processors busy, does a cluster give the same marks?

`python benchmarks/scale.py [N…] [--cluster]` grades classes of so many submissions (10 and 100),
no two with the same code, by `autograder.classroom`, which is what `autograder grade` runs. With
`--cluster` the last one is graded once more by two Dask workers, one of which is killed with -9.
"""

import argparse
import csv
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from pathlib import Path

import nbformat
import results
from bench import STUDENTS, SUBMITTED, cpu
from distributed import LocalCluster
from nbformat.v4 import new_code_cell
from rich.console import Console
from rich.table import Table

from autograder.classroom import Marked, Plan, grade, processors


@dataclass(frozen=True)
class Cost:
    """A class: CPU and wall seconds a submission, share of the processors, memory of the grader."""

    students: int
    cpu_seconds: float
    wall_seconds: float
    busy: float
    grader_mb: float


def make_class(folder: Path, students: int) -> None:
    """So many submissions, each with a cell of its own, in nbgrader's layout."""
    for number, name in enumerate(islice(cycle(STUDENTS), students)):
        (path,) = (SUBMITTED / name).rglob("*.ipynb")
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            if cell["id"].startswith("answer-"):
                cell.source += f"\nnumber = {number}"
        notebook.cells.append(new_code_cell("print('mine')", id="mine"))
        to = folder / f"{name}{number:04d}" / path.parent.name / path.name
        to.parent.mkdir(parents=True)
        nbformat.write(notebook, to)


def measured(folder: Path, out: Path) -> Cost:
    """Grades a class on all processors."""
    before, started = cpu(), time.perf_counter()
    learners: list[float] = []
    grade([folder], out, told=lambda marked, of: learners.append(marked.graded.cpu_seconds))
    wall, n = time.perf_counter() - started, len(learners)
    spent = cpu() - before + sum(learners)  # theirs goes with their pid namespace
    grader_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Cost(n, spent / n, wall / n, spent / wall / processors(), grader_mb)


def marks(out: Path) -> list[tuple[str, ...]]:
    """The table of marks without its times."""
    with (out / "marks.csv").open(newline="", encoding="utf-8") as stream:
        return [tuple(row[:-1]) for row in csv.reader(stream)]


def on_a_cluster(folder: Path, out: Path) -> None:
    """Grades a class on two Dask workers; one is killed when a third of the class is done."""
    done: list[str] = []
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as workers:

        def lose_a_worker(marked: Marked, of: int) -> None:
            done.append(marked.graded.submission.student)
            if len(done) == of // 3:
                os.kill(next(iter(workers.workers.values())).pid, signal.SIGKILL)

        grade([folder], out, Plan(cluster=workers.scheduler_address), lose_a_worker)


def main() -> int:
    """Prints the table; 1 where the marks differ."""
    parser = argparse.ArgumentParser(description="What a large class costs.")
    parser.add_argument("sizes", metavar="N", type=int, nargs="*", default=[10, 100])
    parser.add_argument("--cluster", action="store_true")
    wanted = parser.parse_args()
    console, costs, same = Console(), [], True
    with tempfile.TemporaryDirectory() as scratch:
        for size in [5, *wanted.sizes]:  # the first, once a course: how known mistakes behave
            folder, out = Path(scratch, f"class{size}"), Path(scratch, f"out{size}")
            make_class(folder, size)
            costs.append(measured(folder, out))
            console.print(f"{size} graded")
        if wanted.cluster:
            on_a_cluster(folder, Path(scratch, "cluster"))
            same = marks(out) == marks(Path(scratch, "cluster"))
        shutil.rmtree(scratch, ignore_errors=True)
    table = Table()
    for heading in ("submissions", "CPU s each", "wall s each", "processors busy", "grader MB"):
        table.add_column(heading, justify="right")
    for cost in costs[1:]:
        numbers = f"{cost.cpu_seconds:.2f}", f"{cost.wall_seconds:.2f}", f"{cost.busy:.0%}"
        table.add_row(str(cost.students), *numbers, f"{cost.grader_mb:.0f}")
    console.print(table)
    results.save("scale", classes=[asdict(cost) for cost in costs[1:]])
    if wanted.cluster:
        console.print(f"{'✅' if same else '❌'} two workers, one of them killed: the same marks")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
