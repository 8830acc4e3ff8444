"""The bound: the answers of each submission run and asked in a warm process, without any isolation.

No grader that runs them in Python can be below. `python benchmarks/bound.py PATH…` prints CPU
seconds, wall seconds and peak megabytes of each as JSON.
"""

import json
import os
import sys
import time
from pathlib import Path

from autograder import student
from autograder.bank import run_answer
from autograder.course import chapter
from autograder.results import Submission
from autograder.session import Asking
from autograder.submission import read
from helpers.exercise import assess

CHAPTER = chapter("recompilation")


def grade(submission: Submission, asking: Asking) -> None:
    """Runs and judges one submission's answers in this process."""
    for key, answer in submission.answers.items():
        tried = run_answer(asking.given, answer, CHAPTER.exercises[key], asking.cases[key])
        assess(CHAPTER.hidden[key], tried)


def measured(submission: Submission, asking: Asking) -> tuple[float, float, float]:
    """CPU and wall seconds and peak megabytes of a fork that grades it; no backend is started."""
    started = time.perf_counter()
    child = os.fork()
    if child == 0:
        try:
            grade(submission, asking)
            os._exit(0)
        finally:
            os._exit(1)
    _, status, usage = os.wait4(child, 0)
    if status != 0:
        sys.exit(f"{submission.path}: its answers could not be run")
    wall = time.perf_counter() - started
    return usage.ru_utime + usage.ru_stime, wall, usage.ru_maxrss / 1024


def main(paths: list[str]) -> None:
    """Reads all of them first: that is not the answers' time."""
    student.preload()
    submissions, asking = [read(Path(path), CHAPTER) for path in paths], Asking(CHAPTER)
    print(json.dumps([measured(submission, asking) for submission in submissions]))


if __name__ == "__main__":
    main(sys.argv[1:])
