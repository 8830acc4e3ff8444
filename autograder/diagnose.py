"""How the bank's wrong answers behave in the cases that the grader asks: fingerprints, kept.

They are made once a course in the same sandbox as everybody's answers, and kept in the user's cache
under a key of all that they depend on.
"""

import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import platformdirs

from autograder.bank import misconception
from autograder.course import Answer
from autograder.results import Submission
from autograder.sandbox import WarmParent
from autograder.session import Asking, Session
from helpers import diagnosis

Told = Callable[[int, int], None]
"""Is called with how many wrong answers have been run, and how many there are."""

_one_at_a_time = threading.Lock()


def bank(asking: Asking, told: Told = lambda done, of: None) -> list[diagnosis.Misconception]:
    """The chapter's known mistakes with their fingerprints; runs them where they are not kept."""
    kept = platformdirs.user_cache_path("practical-jax") / "fingerprints" / f"{asking.key}.json"
    with _one_at_a_time:
        if not kept.exists():
            kept.parent.mkdir(parents=True, exist_ok=True)
            fresh = kept.with_suffix(f".{os.getpid()}")
            diagnosis.save(fresh, run(asking, told))
            fresh.replace(kept)
    return diagnosis.load(kept)


def run(asking: Asking, told: Told = lambda done, of: None) -> list[diagnosis.Misconception]:
    """Observes every wrong answer of the bank as a submission of its own, on all processors."""
    wrong = [answer for answer in asking.chapter.answers if answer.kind == "wrong"]
    parents: queue.SimpleQueue[WarmParent] = queue.SimpleQueue()
    workers = os.cpu_count() or 1

    def observe(answer: Answer) -> diagnosis.Misconception:
        parent = parents.get()
        try:
            return _behaviour(parent, asking, answer)
        finally:
            parents.put(parent)

    with ExitStack() as stack:
        for _ in range(workers):
            parents.put(stack.enter_context(WarmParent(asking.chapter.preloaded)))
        pool = stack.enter_context(ThreadPoolExecutor(workers))
        found = []
        for known in pool.map(observe, wrong):
            found.append(known)
            told(len(found), len(wrong))
        return found


def _behaviour(parent: WarmParent, asking: Asking, answer: Answer) -> diagnosis.Misconception:
    alone = {answer.exercise: answer.source}
    session = Session(parent, asking, Submission("bank", asking.chapter.name, Path(), alone))
    tried = session.observe(answer.exercise)
    session.close()
    return misconception(answer, asking.chapter.hidden[answer.exercise], tried)
