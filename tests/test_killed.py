"""Grading goes on after kill -9: of the grader, of a warm parent, of a Dask worker. For real."""

import csv
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from distributed import LocalCluster

from autograder import cluster
from autograder.classroom import Marked, Plan, grade
from autograder.course import ROOT
from autograder.problems import UsageError
from autograder.verdicts import NAME

HERE = ROOT / "tests" / "sample_class"
STUDENTS = sorted(path.name for path in (HERE / "submitted").iterdir() if path.name != "ivan")
"""All but one who loops for ever, which `test_sample_class` waits for."""

pytestmark = pytest.mark.slow


def marks(path: Path) -> dict[tuple[str, str], tuple[float, str]]:
    """(student, exercise) → points and verdict."""
    with path.open(newline="", encoding="utf-8") as stream:
        return {
            (row.get("student", path.stem), row["exercise"]): (float(row["points"]), row["verdict"])
            for row in csv.DictReader(stream)
        }


EXPECTED = {k: v for n in STUDENTS for k, v in marks(HERE / "expected" / f"{n}.csv").items()}
SUBMITTED = [HERE / "submitted" / name for name in STUDENTS]


def start(out: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "autograder", "grade", *map(str, SUBMITTED), "--out", str(out)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def wait_for(grader: subprocess.Popen[str], submissions: int) -> None:
    """Reads the grader's lines until it has told of so many more submissions."""
    assert grader.stdout
    for line in grader.stdout:
        submissions -= any(line.startswith(f"{student} ") for student in STUDENTS)
        if submissions == 0:
            return
    pytest.fail("the grader ended early")


def children(pid: int) -> list[int]:
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for task in tasks for child in task.read_text().split()]


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_killed_grader_and_a_killed_warm_parent_change_no_mark(tmp_path):
    first = start(tmp_path)
    wait_for(first, 2)
    os.kill(children(first.pid)[0], signal.SIGKILL)  # a warm parent, with the learner in it
    wait_for(first, 2)
    first.kill()
    first.wait()
    with closing(sqlite3.connect(tmp_path / NAME)) as kept:
        done = dict(kept.execute("SELECT key, found FROM verdicts"))
    assert 4 <= len(done) < len(STUDENTS)
    assert not (tmp_path / "marks.csv").exists()

    second = start(tmp_path)
    said, _ = second.communicate(timeout=300)
    assert second.returncode == 1  # somebody is to look at kim
    assert f"{len(done)} of them by an earlier run" in said
    with closing(sqlite3.connect(tmp_path / NAME)) as kept:
        after = dict(kept.execute("SELECT key, found FROM verdicts"))
    assert done.items() <= after.items()  # nothing was graded twice
    assert marks(tmp_path / "marks.csv") == EXPECTED


def test_a_cluster_that_is_not_there_or_has_no_worker_is_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "SECONDS", 1)
    with pytest.raises(UsageError, match="no Dask scheduler answers at tcp://127"):
        grade(SUBMITTED, tmp_path / "a", Plan(cluster="tcp://127.0.0.1:1"))
    with (
        LocalCluster(n_workers=0, dashboard_address=None, silence_logs=50) as empty,
        pytest.raises(UsageError, match="has no worker"),
    ):
        grade(SUBMITTED, tmp_path / "b", Plan(cluster=empty.scheduler_address))
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="workers elsewhere refuse: no bubblewrap")
def test_a_cluster_that_loses_a_worker_gives_the_same_marks(tmp_path):
    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
    ) as workers:
        lost = []

        def lose_a_worker(marked: Marked, of: int) -> None:
            if not lost:
                lost.append(next(iter(workers.workers.values())).pid)
                os.kill(lost[0], signal.SIGKILL)

        summary = grade(SUBMITTED, tmp_path, Plan(cluster=workers.scheduler_address), lose_a_worker)
    assert lost
    assert len(summary.marked) == len(STUDENTS)
    assert marks(tmp_path / "marks.csv") == EXPECTED
