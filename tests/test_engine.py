"""The engine on answers to chapter 01, honest and hostile: what one does stays with it."""

import os
import subprocess
import time
from pathlib import Path

import pytest

from autograder import course, diagnose
from autograder.assembly import reference_answers
from autograder.course import chapter
from autograder.deadline import Deadline, crowding
from autograder.grade import Grader
from autograder.results import Graded, Submission
from autograder.sandbox import WarmParent
from autograder.session import Asking, Session
from helpers.exercise import assess

CHAPTER = chapter("recompilation")
RIGHT = reference_answers(CHAPTER)
FIRST, *OTHERS = CHAPTER.exercises


@pytest.fixture(scope="module")
def grader():
    with Grader(CHAPTER) as ready:
        yield ready


def grade(grader: Grader, first: str, **more: object) -> Graded:
    """Grades reference answers to all exercises but the first, which gets this answer."""
    answers = {**RIGHT, FIRST: first}
    return grader.grade(Submission("student", CHAPTER.name, Path("nb"), answers, **more))


def assert_only_the_first_suffers(graded: Graded, verdict: str) -> None:
    assert graded.assessments[FIRST].verdict == verdict
    assert graded.assessments[FIRST].points == 0
    assert {key: graded.assessments[key].verdict for key in OTHERS} == dict.fromkeys(OTHERS, "full")


def test_the_references_earn_everything(grader):
    graded = grade(grader, RIGHT[FIRST])
    assert {a.verdict for a in graded.assessments.values()} == {"full"}
    assert graded.points == graded.max_points
    assert not graded.person


@pytest.mark.parametrize("each", course.chapters(), ids=lambda each: each.slug)
def test_the_references_of_a_chapter_earn_everything_in_the_sandbox(each):
    if each.lacks():
        pytest.skip(each.lacks())
    with WarmParent(each.preloaded) as parent:
        session = Session(
            parent, Asking(each), Submission("s", each.name, Path("nb"), reference_answers(each))
        )
        found = {key: assess(each.hidden[key], session.observe(key)) for key in each.exercises}
        session.close()
    assert {key: (a.points, a.message) for key, a in found.items()} == {
        key: (exercise.points, "") for key, exercise in each.exercises.items()
    }


def test_grading_twice_gives_the_same_assessments(grader):
    wrong = next(a.source for a in CHAPTER.answers if a.exercise == FIRST and a.kind == "wrong")
    assert grade(grader, wrong).assessments == grade(grader, wrong).assessments


def test_an_empty_submission_is_unanswered_throughout(grader):
    graded = grader.grade(Submission("student", CHAPTER.name, Path("nb")))
    assert {a.verdict for a in graded.assessments.values()} == {"unanswered"}
    assert graded.points == 0


@pytest.mark.parametrize("wrong", [a for a in CHAPTER.answers if a.kind == "wrong"], ids=str)
def test_a_wrong_answer_of_the_bank_loses_points_and_is_diagnosed_as_itself(grader, wrong):
    alone = Submission("student", CHAPTER.name, Path("nb"), {wrong.exercise: wrong.source})
    graded = grader.grade(alone)
    assessment = graded.assessments[wrong.exercise]
    assert assessment.points < assessment.max_points
    assert graded.diagnoses[wrong.exercise].name == wrong.name


@pytest.mark.parametrize("right", [a for a in CHAPTER.answers if a.kind == "right"], ids=str)
def test_a_right_answer_of_the_bank_earns_everything(grader, right):
    alone = Submission("student", CHAPTER.name, Path("nb"), {right.exercise: right.source})
    assessment = grader.grade(alone).assessments[right.exercise]
    assert assessment.verdict == "full", assessment


CRASHES = {
    "os._exit": "import os\nos._exit(0)",
    "a null pointer": "import ctypes\nctypes.string_at(0)",
    "closing every descriptor": "import os\nos.closerange(0, 256)",
    "killing itself": "import os\nos.kill(os.getpid(), 9)",
    "half a frame": "import os\nos.write(3, b'xx')\nos._exit(0)",
}


@pytest.mark.parametrize("source", CRASHES.values(), ids=CRASHES.keys())
def test_a_crashed_answer_costs_only_its_own_exercise(grader, source):
    assert_only_the_first_suffers(grade(grader, source), "crash")


ERRORS = {
    "a syntax error": "def f(:",
    "an exception": "raise ValueError('no')",
    "SystemExit": "raise SystemExit(0)",
    "a name that exists nowhere": "nothing_of_that_name + 1",
    "endless recursion": "def f(): return f()\nf()",
}


@pytest.mark.parametrize("source", ERRORS.values(), ids=ERRORS.keys())
def test_an_answer_that_raises_costs_only_its_own_exercise(grader, source):
    graded = grade(grader, source)
    assert_only_the_first_suffers(graded, "error")
    assert graded.assessments[FIRST].message


@pytest.fixture
def impatient(grader, monkeypatch):
    monkeypatch.setattr(type(CHAPTER.exercises[FIRST]), "seconds", 2.0)
    return grader


@pytest.mark.parametrize(("load", "longer"), [(0.0, 1.0), (1.0, 1.0), (2.5, 2.5), (40.0, 4.0)])
def test_a_deadline_is_longer_where_the_processors_have_other_work(monkeypatch, load, longer):
    of_all = load * (os.cpu_count() or 1)
    monkeypatch.setattr(os, "getloadavg", lambda: (of_all, 0.0, 0.0))
    assert crowding() == pytest.approx(longer)


def test_a_deadline_grows_when_others_come_while_it_runs(monkeypatch):
    now, load = [0.0], [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    monkeypatch.setattr(os, "getloadavg", lambda: (load[0] * (os.cpu_count() or 1), 0.0, 0.0))
    deadline = Deadline(10)
    now[0], load[0] = 9.0, 3.0
    assert deadline.left() == pytest.approx(1)
    now[0] = 12.0
    assert deadline.left() == pytest.approx(18)
    now[0], load[0] = 31.0, 0.0
    assert deadline.left() == 0


HANGS = {
    "a loop": "while True: pass",
    "a loop that swallows interrupts": "import signal\nsignal.signal(15, lambda *a: None)\n"
    "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "sleep": "import time\ntime.sleep(1e6)",
    "a stop signal": "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)",
    "waiting for input that never comes": "import threading\nthreading.Event().wait()",
    "an endless reply": "import os\nimport struct\nos.write(3, struct.pack('>I', 200_000))\n"
    "while True: os.write(3, b' ')",
}


@pytest.mark.parametrize("source", HANGS.values(), ids=HANGS.keys())
def test_a_hung_answer_costs_only_its_own_exercise(impatient, source):
    graded = grade(impatient, source)
    assert graded.assessments[FIRST].verdict in ("timeout", "crash", "tampered")
    assert_only_the_first_suffers(graded, graded.assessments[FIRST].verdict)


def test_killing_every_process_in_sight_reaches_no_parent(grader):
    shoot = (
        "import os\nfor pid in (os.getppid(), 1, -1):\n    try: os.kill(pid, 9)\n"
        "    except OSError: pass\n"
    )
    graded = grade(grader, shoot + RIGHT[FIRST])
    assert {a.verdict for a in graded.assessments.values()} == {"full"}


def test_memory_has_a_limit(impatient):
    graded = grade(impatient, "hoard = []\nwhile True: hoard.append(bytearray(1 << 26))")
    assert graded.assessments[FIRST].points == 0
    assert graded.peak_mb < 3500


def test_what_an_answer_leaves_running_is_gone_with_its_marks(grader):
    sleeper = "sleeper-of-the-engine-test"
    leave = (
        "import os, sys, time\n"
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        f"        os.execvp('sleep', ['{sleeper}', '600'])\n    os._exit(0)\n"
    )
    grade(grader, leave + RIGHT[FIRST])
    listed = subprocess.run(["pgrep", "-f", sleeper], capture_output=True, text=True)
    assert listed.stdout == ""


def test_files_that_an_answer_leaves_are_gone_for_the_next(grader):
    grade(grader, "open('note', 'w').write('for the next one')\n" + RIGHT[FIRST])
    found = "import os\nassert not os.listdir('.'), os.listdir('.')\n" + RIGHT[FIRST]
    assert grade(grader, found).assessments[FIRST].verdict == "full"


def test_the_judges_environment_is_not_the_learners(monkeypatch):
    monkeypatch.setenv("COURSE_SECRET", "hidden")
    monkeypatch.setattr(diagnose, "bank", lambda asking, told: [])
    answer = "import os\nassert 'COURSE_SECRET' not in os.environ\n" + RIGHT[FIRST]
    with Grader(CHAPTER) as fresh:
        assert grade(fresh, answer).assessments[FIRST].verdict == "full"


def test_the_learner_holds_one_descriptor_beside_the_silent_three(grader):
    count = (
        "import os\nfound = [fd for fd in range(256) if os.path.lexists(f'/proc/self/fd/{fd}')]\n"
        "assert len(found) == 4, found\n"
    )
    assert grade(grader, count + RIGHT[FIRST]).assessments[FIRST].verdict == "full"


def test_a_megabyte_of_print_and_a_warning_on_stderr_cost_nothing(grader):
    noise = "import sys\nprint('x' * 1_000_000)\nprint('careful', file=sys.stderr)\n"
    assert grade(grader, noise + RIGHT[FIRST]).assessments[FIRST].verdict == "full"


TAMPERINGS = {
    "numpy": "import numpy\nnumpy.asarray = lambda *a, **k: 0\n",
    "jax.jit": "import jax\njax.jit = lambda f, **k: f\n",
    "jax.grad": "import jax\n_g = jax.grad\njax.grad = lambda *a, **k: _g(*a, **k)\n",
    "builtins": "import builtins\nbuiltins.abs = lambda x: 0\n",
    "the listener's registration": "import jax\n"
    "jax.monitoring.register_event_duration_secs_listener = lambda f: None\n",
    "the compile counter": "import helpers.compiles as c\n"
    "c.CompileCounter.count = property(lambda self: 1)\n",
    "the compile counter's code": "import helpers.compiles as c\n"
    "c.CompileCounter._record.__code__ = (lambda self, event, seconds, **d: None).__code__\n",
    "observe": "import helpers.exercise as e\ne.observe = None\n",
    "the probe": "import helpers.exercises.recompilation as r\n"
    "for c in r.EXERCISES: c.probe = lambda self, *a: {}\n",
    "bytes that are no frame": "import os\nos.write(3, b'x' * 64)\n",
    "the harness": "import autograder.student as s\ns._framed = lambda reply: b''\n",
}


@pytest.mark.parametrize("patch", TAMPERINGS.values(), ids=TAMPERINGS.keys())
def test_a_submission_that_patches_the_checks_earns_nothing_there_and_is_flagged(grader, patch):
    graded = grade(grader, patch + RIGHT[FIRST])
    assert graded.assessments[FIRST].verdict == "tampered"
    assert graded.assessments[FIRST].points == 0
    assert any(why.startswith(f"{FIRST} tampers") for why in graded.person)
    # an exercise that uses the patched module, too, has the patch in its slice
    assert {graded.assessments[key].verdict for key in OTHERS} <= {"full", "tampered"}


def test_errors_in_hidden_cases_say_their_kind_and_no_text(grader):
    tell = "def {name}(*args, **kwargs):\n    raise ValueError(str(args))"
    name = CHAPTER.exercises[FIRST].names[0]
    asked = grader.asking.cases[FIRST]
    session_cases = [each for each in asked if each.hidden]
    assert session_cases
    graded = grade(grader, tell.format(name=name))
    public = [f for f in graded.assessments[FIRST].findings if not f.hidden and not f.passed]
    hidden = [f for f in graded.assessments[FIRST].findings if f.hidden]
    assert public and all(f.seen == "ValueError" for f in hidden)


def test_what_an_answer_breaks_for_those_after_it_is_mended_by_a_new_process(grader):
    first = "import threading\nthreading.Timer(0.5, lambda: __import__('os')._exit(0)).start()\n"
    graded = grade(grader, first + RIGHT[FIRST])
    assert [graded.assessments[key].verdict for key in OTHERS] == ["full"] * len(OTHERS)


@pytest.mark.parametrize(
    ("cell", "name"),
    [
        ("exec('made_by_exec = np.float32(1)')", "made_by_exec"),
        ("from math import *", "isqrt"),
        ("this does not parse", "np"),
    ],
    ids=["exec", "import *", "beside a broken cell"],
)
def test_a_name_that_a_slice_misses_comes_from_the_learners_cells_whole(grader, cell, name):
    graded = grade(grader, f"{name}\n" + RIGHT[FIRST], extra=(cell,))
    assert graded.assessments[FIRST].verdict == "full"


def test_a_warm_parent_that_cannot_start_says_so(monkeypatch):
    from autograder import sandbox

    monkeypatch.setattr(sandbox.sys, "executable", "/bin/false")
    with pytest.raises(RuntimeError, match="did not start"):
        sandbox.WarmParent()


def test_one_submission_costs_little(grader):
    started = time.monotonic()
    graded = grade(grader, RIGHT[FIRST])
    assert graded.cpu_seconds > 0 and graded.peak_mb > 50
    assert time.monotonic() - started < 60
    assert os.path.isdir(grader.parent.scratch)
