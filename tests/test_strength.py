"""Strength: changed definitions are noticed, or reported; the real chapters by a sample."""

import datetime
import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest
from conftest import made_up_course
from typer.testing import CliRunner

from autograder import course, forked, rerun, strength, strength_report
from autograder.cli import app
from autograder.rerun import Cell, seen_by
from autograder.strength import Choice, measure

# --- which cells ---------------------------------------------------------------------------------


def cells(*sources: str) -> list[Cell]:
    return [Cell(str(n), source, asserts="assert" in source) for n, source in enumerate(sources)]


def codes(*sources: str, name: str = "f") -> list[str]:
    return [cell.code for cell in seen_by(cells(*sources), 0, frozenset([name]))]


F = "def f(x):\n    return x"


def test_only_cells_that_assert_and_can_see_the_change_run_again():
    assert codes(F, "assert f(1) == 1", "assert 2 == 2", "f(3)") == [F, "assert f(1) == 1"]


def test_what_uses_the_change_at_a_remove_runs_with_what_it_needs():
    found = codes(F, "def g(x):\n    return f(x)", "a, b = 1, 2\nc = 3", "assert g(b) == 2")
    assert found == [F, "def g(x):\n    return f(x)", "a, b = (1, 2)", "assert g(b) == 2"]


def test_a_name_that_was_bound_anew_is_another():
    assert codes(F, "f = abs", "assert f(1) == 1") == [F]


def test_what_functions_and_methods_change_in_place_is_needed():
    table = "table = {}\n\ndef note(x):\n    table[x] = f(x)"
    found = codes(
        F, table, "note(1)", "seen = []\nseen.append(f(2))", "assert table[1] in seen + [1]"
    )
    assert len(found) == 5


def test_a_function_finds_what_its_names_hold_when_it_is_called():
    found = codes(F, "def g():\n    return k", "k = f(1)", "assert g() == 1")
    assert found[2:] == ["k = f(1)", "assert g() == 1"]


# --- running them --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def worker():
    spawn = multiprocessing.get_context("spawn")
    with forked.environment({}), ProcessPoolExecutor(1, spawn, forked.warm, ([],)) as pool:
        yield lambda *sources, seconds=20: pool.submit(
            rerun.run, cells(*sources), seconds, 10 * seconds
        ).result()


def test_a_run_says_which_assertion_failed_and_what_ran(worker):
    ran = worker("x = 1", "assert x == 1\nassert x == 2, 'not two'", "print(x)")
    assert (ran.how, ran.ran) == ("assertion", ("0", "1"))
    assert ran.by == "1: assert x == 2, 'not two' (AssertionError: not two)"


def test_a_run_that_passes_gives_its_output_and_the_last_value(worker):
    ran = worker("print('a')", "'b'\n'c'", "x = 0x10")
    assert (ran.how, ran.outputs) == ("passed", {"0": "a\n", "1": "'c'\n", "2": ""})


def test_a_run_without_end_is_stopped_and_named(worker):
    ran = worker("x = 1", "while x: pass", seconds=2)
    assert (ran.how, ran.by) == ("timeout", "no end in 1")


def test_a_process_that_dies_is_named(worker):
    ran = worker("import os", "os.abort()")
    assert (ran.how, ran.by) == ("crash", "the process died in 1")


def test_each_run_starts_afresh_with_jax_not_started(worker):
    source = (
        "import jax, os\nassert 'X' not in os.environ\nos.environ['X'] = '1'\njax.numpy.ones(1)"
    )
    assert [worker(source).how for _ in range(2)] == ["passed", "passed"]


# --- a chapter -----------------------------------------------------------------------------------


SURVIVOR = "twice: dropped call: abs(y) → y"
KILLED = "twice: arithmetic: x + x → x - x"
TOTAL = "total: dtype: np.float64 → np.float32"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """Of the made-up chapter, which teaches one function more and asserts little about it."""
    root = tmp_path_factory.mktemp("course") / "checkout"
    with made_up_course(root) as tiny, pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(root))  # workers find the chapter there
        taught = (
            '# %% tags=["given"]\ndef twice(x):\n    y = x + x\n    return abs(y)\n\n\n'
            '# %% tags=["claim"]\nassert twice(2) == 4\nprint(twice(3))\n\n'
            "# %% [markdown]\n# ## 9.2 Bounds"
        )
        text = tiny.source.read_text()
        tiny.source.write_text(text.replace("# %% [markdown]\n# ## 9.2 Bounds", taught))
        listed = {TOTAL[:14] + "*": "small", KILLED: "a mistake", "gone*": "", SURVIVOR: ""}
        listed |= {"twice: arithmetic: *": "all killed"}
        lines = ["[text]", *(f'"{name}" = "{reason}"' for name, reason in listed.items())]
        strength.equivalent_file(tiny).write_text("\n".join(lines))
        return measure(tiny, "text")


def test_a_survivor_is_reported_with_its_diff_and_what_ran(report):
    survivor = report.survivors[-1]
    assert survivor.mutant.id == SURVIVOR
    assert survivor.ran[-2:] == ("given-twice", "claim-9-1-3")
    printed = list(strength_report.survivors(report))
    assert f'2. "{SURVIVOR}"' in printed
    assert "    +    return y" in printed


def test_what_killed_a_mutant_is_named(report):
    killed = {each.mutant.id: each.by for each in report.tried if each.killed}
    assert killed == {KILLED: "claim-9-1-3: assert twice(2) == 4 (AssertionError)"}


def test_an_equivalent_mutant_counts_no_more_and_bad_entries_are_problems(report):
    assert (report.killed, report.counted, report.equivalent) == (0, 2, 2)
    assert [problem.partition(": ")[2] for problem in report.problems] == [
        f"{KILLED!r} is killed by claim-9-1-3: assert twice(2) == 4 (AssertionError): take it out",
        "no mutant is called 'gone*' now: take it out",
        f"{SURVIVOR!r} has no reason: write it, or take it out",
        "'twice: arithmetic: *': all of them are killed: take it out",
    ]


def test_the_shares_are_told_and_a_weak_one_is_named(report):
    assert strength_report.weak([report]) == ["09_tiny: 0.0% killed, 92% wanted"]
    (told,) = strength_report.as_data([report])
    counts = {key: told[key] for key in ("mutants", "killed", "equivalent", "survived", "share")}
    assert counts == {"mutants": 4, "killed": 0, "equivalent": 2, "survived": 2, "share": 0.0}
    assert [each["id"] for each in told["survivors"]][-1] == SURVIVOR


def test_a_name_that_no_mutant_has_ends_the_command_with_one_line():
    ran = CliRunner().invoke(app, ["strength", "1", "--only", "nobody"])
    assert ran.exit_code == 2
    assert ran.stderr.splitlines() == [
        "no mutant has 'nobody' in its id: ids begin with the name of a definition"
    ]


# --- the course ----------------------------------------------------------------------------------

WEEK = datetime.date.today().isocalendar().week
"""The sample rotates, and is the same all week."""

TRAIN = ("kauldron_tour", "trainer", "spiral")
"""Chapters whose cells train for minutes: `nox -s strength` has them all the same."""


@pytest.mark.slow
@pytest.mark.parametrize("part", ["text", "checks"])
def test_a_sample_of_mutants_runs_and_some_are_killed(part):
    quick = [chapter for chapter in course.chapters()[1:] if chapter.name not in TRAIN]
    chapter = quick[WEEK % len(quick)]
    report = measure(chapter, part, Choice(sample=4, seed=WEEK), workers=2)
    assert not report.problems
    assert report.killed, report.survivors


@pytest.mark.slow
def test_the_capstone_runs_on_the_references_and_notices_a_change_of_what_holds_them_together():
    too_slow = Choice(only="assemble: constant: 9 → 10")
    report = measure(course.chapter("spiral"), "text", too_slow)
    (tried,) = report.tried
    assert not report.problems and tried.by.startswith("claim-10-10-1")
