"""How strong is the course? Changes what it teaches, and counts the changes that it notices.

Text: taught definitions are changed one at a time, and the cells that use them run again; an
assertion must fail. Checks: reference solutions are changed; they must lose points. What can't be
noticed, since it means the same, is listed with a reason in `solutions/NAME/equivalent.toml`.
"""

import functools
import multiprocessing
import random
import tempfile
import time
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from autograder import assembly, bank, course, forked, rerun, source
from autograder.assertions import asserts
from autograder.course import Chapter
from autograder.judge import cases_of
from autograder.mutants import Mutant, mutants
from autograder.problems import UsageError
from autograder.rerun import Cell, Ran
from autograder.sandbox import xla_flags
from autograder.slicing import all_statements
from helpers.exercise import assess

Part = Literal["text", "checks"]
WANTED: Mapping[Part, float] = {"text": 0.92, "checks": 0.97}
"""The share of mutants that must be killed: of a chapter's text, of the course's checks."""

Verdict = Literal["assertion", "timeout", "crash", "output", "survived"]
KILLED = ("assertion", "timeout", "crash")
"""A changed output alone is weak: a reader may not notice, and only nbval compares it."""


@dataclass(frozen=True)
class Tried:
    """A mutant, and what became of it. by: which assertion killed it. ran: the cells that did."""

    mutant: Mutant
    verdict: Verdict
    by: str
    ran: tuple[str, ...]
    equivalent: str = ""

    @property
    def killed(self) -> bool:
        """Whether something failed."""
        return self.verdict in KILLED


@dataclass
class Report:
    """One part of a chapter. problems: what must be mended before the numbers mean anything."""

    chapter: Chapter
    part: Part
    tried: list[Tried] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def count(self, verdict: Verdict) -> int:
        """How many mutants ended so; those that are listed as equivalent apart."""
        return sum(each.verdict == verdict and not each.equivalent for each in self.tried)

    @property
    def equivalent(self) -> int:
        """How many are listed as equivalent."""
        return sum(bool(each.equivalent) for each in self.tried)

    @property
    def killed(self) -> int:
        """How many were killed, of those that are not equivalent."""
        return sum(each.killed and not each.equivalent for each in self.tried)

    @property
    def counted(self) -> int:
        """How many are not equivalent."""
        return len(self.tried) - self.equivalent

    @property
    def survivors(self) -> list[Tried]:
        """Those that nothing killed and nobody listed."""
        return [each for each in self.tried if not each.killed and not each.equivalent]


# --- what to try ---------------------------------------------------------------------------------


def chapter_cells(chapter: Chapter) -> list[tuple[Cell, str]]:
    """The chapter's own code cells and their roles, answered by the references."""
    answers = {f"answer-{assembly.dashed(key)}": key for key in chapter.exercises}
    found = []
    for node, _ in assembly.assembled(chapter):
        role = assembly.role_of(node)
        if key := answers.get(node["id"]):
            answered = (chapter.name, key)
            found.append((Cell(node["id"], node.source, asserts=True, exercise=answered), role))
        elif role in source.LOCKED:
            compared = role != "figure" and source.TIMED not in node.metadata.tags
            proves = role in ("given", "claim", "figure") and asserts(node.source)
            found.append((Cell(node["id"], node.source, proves, role == "setup", compared), role))
    return found


def text_trials(chapter: Chapter) -> list[tuple[Mutant, Any]]:
    """The mutants of what a chapter teaches, with the places of their cells."""
    return [
        (mutant, place)
        for place, (cell, role) in enumerate(chapter_cells(chapter))
        if role == "given"
        for mutant in mutants(cell.code)
    ]


def check_trials(chapter: Chapter) -> list[tuple[Mutant, Any]]:
    """The mutants of the reference solutions, with their exercises."""
    return [
        (_named(mutant, key), key)
        for key, code in assembly.reference_answers(chapter).items()
        for mutant in mutants(code)
    ]


def _named(mutant: Mutant, key: str) -> Mutant:
    return replace(mutant, id=f"{key} {mutant.id}")


@dataclass(frozen=True)
class Choice:
    """Which mutants to try: those with a text in their ids; so many of them, chosen by a seed."""

    only: str = ""
    sample: int | None = None
    seed: int = 0

    def of(self, trials: Sequence[tuple[Mutant, Any]], what: str) -> list[tuple[Mutant, Any]]:
        """The chosen ones, in order. what: draws differ for each chapter and part."""
        left = [trial for trial in trials if self.only in trial[0].id]
        if self.sample is None or self.sample >= len(left):
            return left
        rng = random.Random(f"{self.seed} {what}")
        return [left[place] for place in sorted(rng.sample(range(len(left)), self.sample))]


def equivalent(chapter: Chapter, part: Part) -> dict[str, str]:
    """Ids of mutants that mean the same, and why. Raises UsageError where the file is no TOML."""
    path = equivalent_file(chapter)
    if not path.exists():
        return {}
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8")).get(part, {})
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{source.short(path)}: {error}") from None
    return {str(key): str(reason) for key, reason in found.items()}


def equivalent_file(chapter: Chapter) -> Path:
    """The reviewed list of a chapter's equivalent mutants."""
    return chapter.source.parent / "equivalent.toml"


# --- trying --------------------------------------------------------------------------------------

T = TypeVar("T")
Pool = ProcessPoolExecutor
Told = Callable[[int, int], None]
"""Is told how many mutants are done, of how many."""


def measure(
    chapter: Chapter,
    part: Part,
    choice: Choice = Choice(),
    workers: int = 1,
    told: Told = lambda done, of: None,
) -> Report:
    """Tries the chosen mutants of one part of a chapter. Raises UsageError where it can't run."""
    listed = equivalent(chapter, part)
    trials = text_trials(chapter) if part == "text" else check_trials(chapter)
    places = {mutant.id: place for place, (mutant, _) in enumerate(trials)}
    chosen = choice.of(trials, f"{chapter.slug} {part}")
    report = Report(chapter, part)
    if chosen:
        for tried in _tried(chapter, part, chosen, report.problems, workers, told):
            report.tried.append(replace(tried, equivalent=_reason(listed, tried)))
    report.tried.sort(key=lambda tried: places[tried.mutant.id])
    where = source.short(equivalent_file(chapter))
    report.problems += [f"{where}: {said}" for said in _stale(listed, places, report.tried)]
    return report


def _tried(
    chapter: Chapter,
    part: Part,
    chosen: Sequence[tuple[Mutant, Any]],
    problems: list[str],
    workers: int,
    told: Told,
) -> Iterator[Tried]:
    """What becomes of the mutants, in any order. problems: grows by what can't be tried."""
    run = _run_text if part == "text" else _run_checks
    with tempfile.TemporaryDirectory() as programs:
        if part == "checks":
            settings = _settings(programs)[0]  # compiled as the grader does
        else:
            settings = _fastest(chapter, programs) if len(chosen) > FEW else {}
        with _pool(chapter, workers, settings) as pool:
            yield from run(chapter, chosen, pool, problems, told)


def _reason(listed: Mapping[str, str], tried: Tried) -> str:
    """Why the mutant counts as equivalent, "" if it does not.

    A name that ends in `*` stands for all mutants that begin so and survive, as those of the sizes
    of example data.
    """
    if tried.mutant.id in listed:
        return listed[tried.mutant.id]
    groups = (reason for name, reason in listed.items() if _covers(name, tried.mutant.id))
    return "" if tried.killed else next(groups, "")


def _covers(name: str, mutant: str) -> bool:
    return name.endswith("*") and mutant.startswith(name[:-1])


def _stale(
    listed: Mapping[str, str], known: Collection[str], tried: Sequence[Tried]
) -> Iterator[str]:
    """What is wrong with the list of equivalent mutants."""
    killed = {each.mutant.id: each.by for each in tried if each.killed}
    for name, reason in listed.items():
        covered = [mutant for mutant in known if _covers(name, mutant)]
        if name not in known and not covered:
            yield f"no mutant is called {name!r} now: take it out"
        elif covered and all(mutant in killed for mutant in covered):
            yield f"{name!r}: all of them are killed: take it out"
        elif name in killed:
            yield f"{name!r} is killed by {killed[name]}: take it out"
        elif not reason:
            yield f"{name!r} has no reason: write it, or take it out"


def _run_text(
    chapter: Chapter,
    chosen: Sequence[tuple[Mutant, int]],
    pool: Pool,
    problems: list[str],
    told: Told,
) -> Iterator[Tried]:
    cells = [cell for cell, _ in chapter_cells(chapter)]
    targets = dict.fromkeys((place, mutant.names) for mutant, place in chosen)
    plans = {
        (place, names): pool.submit(rerun.unchanged, cells, place, names)
        for place, names in targets
    }
    jobs: dict[Future, tuple[Mutant, Ran]] = {}
    for mutant, place in chosen:
        needed, before = plans[place, mutant.names].result()
        if before.how != "passed":
            problem = f"{cells[place].id} can't be tried: unchanged, {before.by}"
            problems.extend([problem] if problem not in problems else [])
            continue
        changed = [
            replace(cell, code=mutant.source) if cell.id == cells[place].id else cell
            for cell in needed
        ]
        job = pool.submit(rerun.run, changed, *rerun.limits(before.cpu_seconds))
        jobs[job] = mutant, before
    for (mutant, before), ran in _as_they_end(jobs, told):
        yield _verdict(mutant, before, ran)


def _as_they_end(jobs: Mapping[Future, T], told: Told) -> Iterator[tuple[T, Any]]:
    """What each job was for, and its result."""
    for done, job in enumerate(as_completed(jobs), 1):
        told(done, len(jobs))
        yield jobs[job], job.result()


def _verdict(mutant: Mutant, before: Ran, now: Ran) -> Tried:
    if now.how != "passed":
        return Tried(mutant, now.how, now.by, now.ran)
    other = [cell for cell in now.outputs if now.outputs[cell] != before.outputs.get(cell)]
    verdict: Verdict = "output" if other else "survived"
    return Tried(mutant, verdict, f"output of {', '.join(other)}" if other else "", now.ran)


# --- checks --------------------------------------------------------------------------------------


def _run_checks(
    chapter: Chapter,
    chosen: Sequence[tuple[Mutant, str]],
    pool: Pool,
    problems: list[str],
    told: Told,
) -> Iterator[Tried]:
    answers = assembly.reference_answers(chapter)
    keys = dict.fromkeys(key for _, key in chosen)
    before = {key: pool.submit(graded, chapter.name, key, answers[key], 120.0) for key in keys}
    jobs: dict[Future, tuple[Mutant, str]] = {}
    for mutant, key in chosen:
        how, by, used = before[key].result()
        if how != "survived":
            problem = f"the reference of {key} can't be tried: unchanged, {by}"
            problems.extend([problem] if problem not in problems else [])
            continue
        jobs[pool.submit(graded, chapter.name, key, mutant.source, used)] = mutant, key
    for (mutant, key), (how, by, _) in _as_they_end(jobs, told):
        yield Tried(mutant, how, by, (f"exercise {key}",))


def graded(name: str, key: str, answer: str, cpu_seconds: float) -> tuple[Verdict, str, float]:
    """Whether an answer loses points, in what, and the CPU seconds that it took."""
    chapter, given = _warm_chapter(name)

    def run(tell: forked.Tell) -> None:
        exercise = chapter.hidden[key]
        tried = bank.run_answer(given, answer, exercise, cases_of(chapter, key, "seed 0"))
        verdict = assess(exercise, tried)
        failed = next((each for each in verdict.findings if not each.passed), None)
        by = f"{failed.key} in “{failed.case}”" if failed else verdict.message
        tell([verdict.verdict == "full", by, time.process_time()])

    messages, end = forked.in_child(run, *rerun.limits(cpu_seconds))
    if end or not messages:
        return ("crash" if end != "timeout" else "timeout"), end or "crash", 0.0
    full, by, used = messages[0]
    return ("survived", "", used) if full else ("assertion", by, used)


@functools.lru_cache(maxsize=1)
def _warm_chapter(name: str) -> tuple[Chapter, list[str]]:
    """A chapter with its hidden cases loaded, and its own code: once for all forks."""
    chapter = course.chapter(name)
    assert chapter.hidden
    return chapter, bank.course_code(chapter)


# --- workers -------------------------------------------------------------------------------------


@contextmanager
def _pool(chapter: Chapter, workers: int, settings: Mapping[str, str]) -> Iterator[Pool]:
    """Warm processes that have imported what the chapter imports, and fork for each mutant."""
    imports = [
        statement.source
        for cell, _ in chapter_cells(chapter)
        for statement in all_statements(cell.code)
        if statement.source.startswith(("import ", "from "))
    ]
    modules = ("IPython.display", f"helpers.exercises.{chapter.name}", *chapter.preloaded)
    imports += [f"import {module}" for module in modules]
    spawn = multiprocessing.get_context("spawn")
    with (
        forked.environment(settings),
        ProcessPoolExecutor(workers, spawn, forked.warm, (imports,)) as pool,
    ):
        yield pool


def _settings(programs: str) -> list[dict[str, str]]:
    """Ways to compile, the cheapest first: little optimized and kept on disk, as JAX does.

    What was compiled before counts as compiled all the same.
    """
    quick = {"XLA_FLAGS": xla_flags()}
    kept = {
        "JAX_COMPILATION_CACHE_DIR": programs,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    return [quick | kept, quick, kept, {}]


def _fastest(chapter: Chapter, programs: str) -> dict[str, str]:
    """The cheapest settings under which the chapter runs through, twice. Raises UsageError."""
    cells = [cell for cell, _ in chapter_cells(chapter)]
    said = ""
    for settings in _settings(programs):
        with _pool(chapter, 1, settings) as pool:
            runs = [pool.submit(rerun.run, cells, *rerun.limits(200)).result() for _ in range(2)]
        if all(ran.how == "passed" for ran in runs):
            return settings
        said = said or next(ran.by for ran in runs if ran.how != "passed")
    raise UsageError(f"{chapter.slug} does not run: {said}")


FEW = 30
"""So many mutants are tried before it pays to look for the fastest settings."""
