"""The bank of answers: runs it on the exercises, and says where answers and exercises disagree.

Authors' code only, in this process: what learners hand in never comes here.
"""

import contextlib
import functools
import io
import multiprocessing
import os
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from autograder import assembly, course, nbgrader_course, source, wire
from autograder.course import Answer, Chapter
from autograder.judge import Asked, cases_of
from autograder.problems import Problem
from autograder.sandbox import portable, xla_flags
from autograder.slicing import needed
from autograder.source import short
from helpers.diagnosis import Misconception, alike, failures, fingerprint, load, match
from helpers.exercise import (
    Assessment,
    Exercise,
    Fault,
    Observation,
    Tried,
    assess,
    is_stub,
    observe,
    one_line,
    public_rng,
    rows,
)
from helpers.quiz import questions_of

SEEDS = 10
FEWEST = {"right": 2, "wrong": 5}
"""How many answers of each kind an exercise needs."""


# --- running answers -----------------------------------------------------------------------------


def course_code(chapter: Chapter) -> list[str]:
    """The chapter's own cells: what an answer may build on."""
    return [text for _, text, _ in assembly.given_cells(chapter)]


def public_cases(exercise: Exercise) -> list[Asked]:
    """The cases that a learner sees."""
    return [Asked(case, hidden=False) for case in exercise.cases(public_rng(exercise))]


def run_answer(
    given: Sequence[str],
    answer: str,
    exercise: Exercise,
    asked: Sequence[Asked],
    own: Sequence[str] = (),
) -> list[Tried]:
    """What the probe observes of an answer in a fresh namespace, with the code that it needs.

    given: the course's cells. own: other cells of the author's. An answer that can't be run faults
    every case.
    """
    with _quietly():
        namespace: dict[str, Any] = {"__name__": "__main__"}
        try:
            for code in (*needed(answer, own, given), answer):
                exec(compile(code, f"<answer to {exercise.id}>", "exec"), namespace)
        except (Exception, SystemExit) as error:
            fault: Fault = "unanswered" if is_stub(error) else "error"
            broken = Observation(fault=fault, message=one_line(error))
            return [Tried(each.case, broken, each.hidden) for each in asked]
        return [
            Tried(each.case, observe(exercise, namespace, each.case), each.hidden) for each in asked
        ]


@contextlib.contextmanager
def _quietly() -> Iterator[None]:
    """What answers print and warn of is theirs."""
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        warnings.catch_warnings(action="ignore"),
    ):
        yield


@contextlib.contextmanager
def compiling_once() -> Iterator[None]:
    """What was compiled is kept on disk until the end: a right answer of ten is compiled once.

    Compilations are counted all the same, for JAX announces what it finds there too. Never for
    learners: a program in this store is a reference that they could load.
    """
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    settings = {
        "jax_compilation_cache_dir": None,
        "jax_persistent_cache_min_compile_time_secs": 0.0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in settings}
    with tempfile.TemporaryDirectory() as folder:
        for name, value in (settings | {"jax_compilation_cache_dir": folder}).items():
            jax.config.update(name, value)
        compilation_cache.reset_cache()
        try:
            yield
        finally:
            for name, value in before.items():
                jax.config.update(name, value)
            compilation_cache.reset_cache()


def public_bank(chapter: Chapter) -> list[Misconception]:
    """The chapter's known mistakes, as they behave in the public cases."""
    given = course_code(chapter)
    found = []
    for answer in chapter.answers:
        if answer.kind == "wrong" and answer.exercise in chapter.exercises:
            exercise = chapter.exercises[answer.exercise]
            tried = run_answer(given, answer.source, exercise, public_cases(exercise))
            found.append(misconception(answer, exercise, tried))
    return found


def misconception(answer: Answer, exercise: Exercise, tried: Sequence[Tried]) -> Misconception:
    """A wrong answer and how it behaved, for diagnosis."""
    about = answer.exercise, answer.name, answer.hint, answer.see
    return Misconception(*about, fingerprint(exercise, tried), failures(exercise, tried))


# --- checking a chapter's bank -------------------------------------------------------------------


def processes(workers: int, as_graded: bool = False) -> ProcessPoolExecutor:
    """Processes for `check_bank`. as_graded: they compile as the grader does, in half the time."""
    settings = {"XLA_FLAGS": xla_flags()} if as_graded else {}
    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(workers, spawn, _prepare, (settings,))


def _prepare(settings: Mapping[str, str]) -> None:
    os.environ.update(settings)


def check_bank(
    chapter: Chapter,
    seeds: int = SEEDS,
    pool: ProcessPoolExecutor | None = None,
    as_graded: bool = False,
) -> list[Problem]:
    """All that is wrong with the exercises of a chapter and its bank; nothing if it may ship.

    pool: `processes` that share the exercises; without any they run here. as_graded: they are of
    that kind; of the committed bank, which tells how mistakes behave in a notebook, no numbers are
    compared then.
    """
    problems = [*_words(chapter), *_hidden_classes(chapter), *_quiz(chapter)]
    for key in chapter.exercises:
        problems += _counts(chapter, key)
        problems += _cases(chapter, key)
    trials = [(chapter.name, key, seeds, as_graded) for key in chapter.exercises]
    if pool is None:
        return problems + [found for trial in trials for found in run_trial(*trial)]
    jobs = [pool.submit(run_trial, *trial) for trial in trials]
    return problems + [found for job in jobs for found in job.result()]


def run_trial(name: str, key: str, seeds: int, as_graded: bool) -> list[Problem]:
    """All answers to one exercise of the chapter called `name`, on so many seeds."""
    with compiling_once():
        return list(Trial(course.chapter(name), key, seeds, as_graded).problems())


class Trial:
    """One exercise's answers, run on the cases of many seeds.

    The first seed is run as the grader runs an answer, public cases first, in one namespace. Public
    cases are the same on every seed, so the others run their hidden cases alone, in a fresh one. A
    wrong answer that fails in public loses points on every seed: it runs on the first one only.
    """

    def __init__(self, chapter: Chapter, key: str, seeds: int, as_graded: bool) -> None:
        self.chapter = chapter
        self.as_graded = as_graded
        self.key = key
        self.exercise = chapter.hidden[key]
        self.given = course_code(chapter)
        self.public = public_cases(chapter.exercises[key])
        secret = [cases_of(chapter, key, secret=f"seed {seed}") for seed in range(seeds)]
        self.hidden = [[each for each in asked if each.hidden] for asked in secret]

    def problems(self) -> Iterator[Problem]:
        """What the answers show of the exercise, and it of them."""
        reference = assembly.reference_answers(self.chapter)[self.key]
        by_seed = self._on_all_seeds(reference, self._on_first_seed(reference))
        unknown = self._unknown_keys(by_seed[0])
        if unknown:  # nothing can be assessed
            yield Problem(
                f"helpers/exercises/{self.chapter.name}.py: {self.key}",
                f"a case or the judge speaks of {sorted(unknown)}, no property",
                f"write one of {', '.join(self.exercise.properties)}",
            )
            return
        yield from self._uncountable(by_seed[0])
        yield from self._starter()
        yield from self._right(Answer(self.key, "right", "the reference", reference), by_seed)
        for answer in self.chapter.answers:
            if self._is(answer, "right"):
                first = self._on_first_seed(answer.source)
                yield from self._right(answer, self._on_all_seeds(answer.source, first))
        prints = {}
        for answer in self.chapter.answers:
            if self._is(answer, "wrong"):
                first = self._on_first_seed(answer.source)
                yield from self._uncountable(first)
                fails = self._fails_in_public(first)
                by_seed = [first] if fails else self._on_all_seeds(answer.source, first)
                yield from self._wrong(answer, by_seed)
                yield from self._committed(answer, first)
                prints[answer] = self._prints(by_seed)
        yield from self._diagnoses(prints)

    def _is(self, answer: Answer, kind: str) -> bool:
        return answer.exercise == self.key and answer.kind == kind

    def _on_first_seed(self, code: str) -> list[Tried]:
        asked = [*self.public, *self.hidden[0]]
        return run_answer(self.given, code, self.exercise, asked)

    def _on_all_seeds(self, code: str, first: list[Tried]) -> list[list[Tried]]:
        """What an answer does in the public and hidden cases of each seed, given the first's."""
        run = functools.partial(run_answer, self.given, code, self.exercise)
        seen = first[: len(self.public)]
        return [first, *([*seen, *run(hidden)] for hidden in self.hidden[1:])]

    def _fails_in_public(self, tried: Sequence[Tried]) -> bool:
        public = tried[: len(self.public)]
        return any(not row.passed for each in public for row in rows(self.exercise, each))

    def _unknown_keys(self, tried: Sequence[Tried]) -> set[str]:
        about = {key for each in tried for key in each.case.about or ()}
        judged = {row.key for each in tried for row in rows(self.exercise, each)}
        return (about | judged) - set(self.exercise.properties)

    def _uncountable(self, tried: Sequence[Tried]) -> Iterator[Problem]:
        """The grader takes an observation that `counted` can't read for a forged one."""
        for each in tried:
            try:
                if not each.observation.fault:
                    self.exercise.counted(each.observation.values)
            except Exception as error:
                yield Problem(
                    f"helpers/exercises/{self.chapter.name}.py: {self.key}",
                    f"`counted` fails in “{each.case.name}” ({one_line(error)})",
                    "return None where the probe counted nothing",
                )

    def _starter(self) -> Iterator[Problem]:
        code = starters(self.chapter)[self.key]
        verdict = assess(self.exercise, run_answer(self.given, code, self.exercise, self.public))
        if verdict.verdict != "unanswered":
            yield Problem(
                short(self.chapter.source),
                f"the unanswered starter of {self.key} is “{verdict.verdict}”: "
                f"{verdict.points:g} points",
                "put the solution markers so that the stub is reached in every public case",
            )

    def _right(self, answer: Answer, by_seed: Sequence[Sequence[Tried]]) -> Iterator[Problem]:
        for seed, tried in enumerate(by_seed):
            verdict = assess(self.exercise, tried)
            if verdict.verdict != "full":
                yield Problem(
                    place_of(self.chapter, answer),
                    f"earns {verdict.points:g} of {verdict.max_points} on seed {seed}: "
                    f"{first_failure(verdict)}",
                    "mend the answer, or the judge that is too strict",
                )
                return

    def _wrong(self, answer: Answer, by_seed: Sequence[Sequence[Tried]]) -> Iterator[Problem]:
        verdicts = [assess(self.exercise, tried).verdict for tried in by_seed]
        if "full" in verdicts:
            yield Problem(
                place_of(self.chapter, answer),
                f"keeps all points on {verdicts.count('full')} of {len(verdicts)} seeds "
                f"(seed {verdicts.index('full')})",
                "add a case on which it always fails; delete it if it is right",
            )
        elif "unanswered" in verdicts:
            yield Problem(
                place_of(self.chapter, answer),
                "counts as unanswered",
                f"define {' and '.join(self.exercise.names)} in it",
            )

    def _committed(self, answer: Answer, first: Sequence[Tried]) -> Iterator[Problem]:
        """The bank that learners have must hold how the answer behaves now.

        The numbers of a mistake may be the compiler's doing: as the grader compiles, only which
        properties fail in which cases is compared.
        """
        public = self.chapter.exercises[self.key]
        now = misconception(answer, public, first[: len(self.public)])
        for known in load(self.chapter.public_bank):
            same = (known.exercise, known.name) == (self.key, answer.name)
            if same and not self._behave_alike(now, known):
                yield Problem(
                    short(self.chapter.public_bank),
                    f"“{answer.name}” ({self.key}) behaves differently now",
                    f"run `autograder build {self.chapter.name}`",
                )

    def _behave_alike(self, now: Misconception, known: Misconception) -> bool:
        if self.as_graded:
            now_fails, known_fails = (
                [[key for key, _ in case] for case in each.failures] for each in (now, known)
            )
            return now_fails == known_fails
        return alike([now.fingerprint, now.failures], [known.fingerprint, known.failures])

    def _prints(self, by_seed: Sequence[Sequence[Tried]]) -> dict[str, list[Any]]:
        """Fingerprints by where they were taken; public ones only where the answer fails."""
        prints = {
            f"on seed {i}": fingerprint(self.exercise, tried) for i, tried in enumerate(by_seed)
        }
        if self._fails_in_public(by_seed[0]):
            public = fingerprint(self.exercise, by_seed[0][: len(self.public)])
            prints = {"in the public cases": public} | prints
        return prints

    def _diagnoses(self, prints: Mapping[Answer, Mapping[str, list[Any]]]) -> Iterator[Problem]:
        """Mistakes that behave like another: learners would be told the wrong one."""
        for answer, mine in prints.items():
            for place, seen in mine.items():
                known = [
                    Misconception(self.key, other.name, "", "", theirs[place], [])
                    for other, theirs in prints.items()
                    if place in theirs
                ]
                found = match(seen, known)
                if found and found.name != answer.name:
                    yield Problem(
                        place_of(self.chapter, answer),
                        f"behaves like “{found.name}” {place}",
                        "add a case, or a value to the probe, that tells the two apart",
                    )
                    break


def starters(chapter: Chapter) -> dict[str, str]:
    """The unanswered starter of each exercise, by id."""
    released = nbgrader_course.released(assembly.solution_notebook(chapter), chapter.slug)
    by_id = {cell["id"]: cell.source for cell in released.cells}
    return {key: by_id[f"answer-{assembly.dashed(key)}"] for key in chapter.exercises}


# --- what can be seen without running an answer --------------------------------------------------


def _counts(chapter: Chapter, key: str) -> Iterator[Problem]:
    for kind, fewest in FEWEST.items():
        names = [a.name for a in chapter.answers if (a.exercise, a.kind) == (key, kind)]
        if len(names) < fewest:
            yield Problem(
                _answers_file(chapter),
                f"exercise {key} has {len(names)} {kind} answers",
                f"write at least {fewest}, each in its own way",
            )
        for name, times in Counter(names).items():
            if times > 1:
                yield Problem(
                    _answers_file(chapter),
                    f"exercise {key} has {times} {kind} answers called “{name}”",
                    "give each a name of its own",
                )


def _words(chapter: Chapter) -> Iterator[Problem]:
    """Explanations, and the sections that they send a learner to."""
    known = source.sections(source.read(chapter))
    for answer in chapter.answers:
        where = place_of(chapter, answer)
        if answer.exercise not in chapter.exercises:
            yield Problem(
                where,
                f"there is no exercise {answer.exercise}",
                f"write one of {', '.join(chapter.exercises)}",
            )
        if answer.kind == "wrong" and not answer.hint:
            yield Problem(
                where, "has no explanation", "write it in comment lines under the heading"
            )
        if answer.kind == "wrong" and answer.see not in known:
            yield _no_section(where, answer.see, known, "`# see: 1.4`")
    module = f"helpers/exercises/{chapter.name}.py"
    for key, exercise in chapter.exercises.items():
        for name, prop in exercise.properties.items():
            if prop.see not in known:
                yield _no_section(f"{module}: {key}, property {name!r}", prop.see, known, "`see=`")
    for key, question in questions_of(chapter.name).items():
        if question.see not in known:
            yield _no_section(f"{module}: question {key}", question.see, known, "`see=`")


def _no_section(where: str, see: str, known: Mapping[str, str], how: str) -> Problem:
    what = f"sends to §{see}, which is no section" if see else "sends to no section"
    return Problem(where, what, f"write {how} with one of {', '.join(known)}")


def _hidden_classes(chapter: Chapter) -> Iterator[Problem]:
    where = f"{short(chapter.source.parent)}/hidden.py"
    for key, hidden in chapter.hidden.items():
        public = chapter.exercises.get(key)
        if public is None:
            yield Problem(
                where, f"there is no exercise {key}", f"write one of {', '.join(chapter.exercises)}"
            )
            continue
        if type(hidden).probe is not type(public).probe:
            yield Problem(
                where,
                f"{type(hidden).__name__} has a probe of its own",
                "observe in the public class: learners' processes load nothing hidden",
            )
        for fact in ("answer", "points", "properties", "seconds", "title"):
            if getattr(hidden, fact) != getattr(public, fact):
                yield Problem(
                    where,
                    f"{type(hidden).__name__}.{fact} is not what learners are told",
                    "change it in the public class",
                )


def _cases(chapter: Chapter, key: str) -> Iterator[Problem]:
    """Names and properties of the cases; learners read them in their reports."""
    exercise = chapter.exercises[key]
    asked = cases_of(chapter, key, secret="seed 0")
    again = cases_of(chapter, key, secret="seed 0")
    where = f"helpers/exercises/{chapter.name}.py: {key}"
    if [repr(each.case.inputs) for each in asked] != [repr(each.case.inputs) for each in again]:
        yield Problem(where, "the same seed gives other cases", "draw from `rng` alone")
    for each in asked:
        if lost := _lost_on_the_way(each.case.inputs):
            yield Problem(where, f"the inputs of {each.case.name!r} {lost}", "make them plainer")
    for hidden in (False, True):
        names = Counter(each.case.name for each in asked if each.hidden is hidden)
        side = "hidden" if hidden else "public"
        if not names:
            yield Problem(where, f"there is no {side} case", "yield one")
        for name, times in names.items():
            if not name.strip() or times > 1:
                yield Problem(
                    where,
                    f"{times} {side} cases are called {name!r}",
                    "say in a few words what each tries",
                )
    public = (each.case for each in asked if not each.hidden)
    about = {key for case in public for key in case.about or exercise.properties}
    for key in sorted(set(exercise.properties) - about):
        yield Problem(
            where, f"no public case is about the property {key!r}", "add a case that decides it"
        )


def _lost_on_the_way(inputs: Sequence[Any]) -> str:
    """Why a learner's process would not get these inputs; "" if it does."""
    try:
        frame = io.BytesIO(wire.encode({"inputs": portable(list(inputs))}))
        wire.decode(frame.read)
    except (wire.WireError, TypeError, ValueError) as error:
        return f"can't be sent to a learner's process: {error}"
    return ""


def _quiz(chapter: Chapter) -> Iterator[Problem]:
    for key, question in questions_of(chapter.name).items():
        where = f"helpers/exercises/{chapter.name}.py: question {key}"
        if question.answer not in question.options:
            yield Problem(where, f"its answer {question.answer!r} is no option", "mend `answer=`")
        elif question.run:
            with _quietly():
                measured = question.run()
            if measured != question.answer:
                yield Problem(
                    where,
                    f"measured here, the answer is {measured!r}, not {question.answer!r}",
                    "mend the question, or what it measures",
                )


def _answers_file(chapter: Chapter) -> str:
    return f"{short(chapter.source.parent)}/answers.py"


def place_of(chapter: Chapter, answer: Answer) -> str:
    """`solutions/recompilation/answers.py:12`, or a description where it stands elsewhere."""
    path = chapter.source.parent / "answers.py"
    heading = f"# %% {answer.exercise} {answer.kind}: {answer.name}"
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.rstrip() == heading:
            return f"{short(path)}:{number}: {answer.exercise} {answer.kind} “{answer.name}”"
    return f"{short(chapter.source)}: {answer.exercise} {answer.name}"


def first_failure(verdict: Assessment) -> str:
    """The first property that does not hold, and what was seen."""
    failed = next((each for each in verdict.findings if not each.passed), None)
    if failed is None:
        return verdict.message
    seen = f"saw {failed.seen}, expected {failed.expected or '(hidden)'}"
    return f"{failed.key} in “{failed.case}”: {seen}" if failed.case else f"{failed.key}: no case"
