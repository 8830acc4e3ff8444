"""The batch around the grader: who counts, what is judged once, whose failure costs what.

The grader here is one that runs answers in this process or fails on purpose; the real one is
tried in test_grade_cli.py.
"""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
from in_process import AT, HALF, RIGHT, graded, results_folder

from autograder import feedback, graders, intake
from autograder.build import learner_notebook
from autograder.classroom import Plan, Summary, grade
from autograder.course import Chapter
from autograder.intake import take_in
from autograder.marks import read_turned
from autograder.problems import UsageError
from autograder.results import Graded
from autograder.submission import Handed


class Near:
    """A grader in this process. calls: whom it judged; fails_for: whose code breaks it."""

    calls: ClassVar[list[str]] = []
    fails_for: ClassVar[str] = ""
    closed: ClassVar[int] = 0

    def __init__(self, chapter: Chapter, told: object = None) -> None:
        self.chapter = chapter

    def __enter__(self) -> "Near":
        return self

    def __exit__(self, *exception: object) -> None:
        type(self).closed += 1

    def grade(self, handed: Handed) -> Graded:
        self.calls.append(handed.student)
        if self.fails_for and self.fails_for in handed.answers["9.1"]:
            raise RuntimeError("the engine\nbroke")
        return graded(self.chapter, handed)


@pytest.fixture
def near(monkeypatch: pytest.MonkeyPatch) -> type[Near]:
    monkeypatch.setattr(Near, "calls", [])
    monkeypatch.setattr(Near, "closed", 0)
    monkeypatch.setattr(graders, "Grader", Near)
    return Near


@pytest.fixture(scope="module")
def laid_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the first test leaves its folder for the others."""
    return tmp_path_factory.mktemp("laid out") / "once"


@pytest.fixture
def out(tiny: Chapter, tmp_path: Path, laid_out: Path) -> Path:
    return results_folder(tiny, laid_out, tmp_path / "out")


@pytest.fixture
def folder(tiny: Chapter, tmp_path: Path) -> Path:
    (tmp_path / "class").mkdir()
    return tmp_path / "class"


def hand_in(tiny: Chapter, path: Path, answer: str = "", **more: str) -> Path:
    data = json.loads(json.dumps(learner_notebook(tiny)))
    for cell in data["cells"]:
        if cell["id"] == "answer-9-1" and answer:
            cell["source"] = answer
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(data) if not more else more["text"])
    return path


def verdicts(summary: Summary) -> dict[str, list[str]]:
    return {
        each.graded.submission.student: [a.verdict for a in each.graded.assessments.values()]
        for each in summary.marked
    }


def test_identical_submissions_are_judged_once(
    tiny: Chapter, folder: Path, near: type[Near], out: Path
) -> None:
    for student in ("ada", "bob", "cyd"):
        hand_in(tiny, folder / student / "x.ipynb", RIGHT)
    hand_in(tiny, folder / "dan" / "x.ipynb", HALF)
    told = []
    summary = grade([folder], out, told=lambda marked, of: told.append(of))
    assert len(near.calls) == 2
    assert verdicts(summary) == {
        "ada": ["full", "unanswered"],
        "bob": ["full", "unanswered"],
        "cyd": ["full", "unanswered"],
        "dan": ["partial", "unanswered"],
    }
    assert told == [4] * 4
    assert {path.parent.name for path in out.glob("feedback/*/*.html")} == {
        "ada", "bob", "cyd", "dan",
    }  # fmt: skip


def test_a_failure_of_the_grader_costs_that_submission_only(
    tiny: Chapter, folder: Path, near: type[Near], out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(near, "fails_for", "float(total")
    hand_in(tiny, folder / "ada" / "x.ipynb", RIGHT)
    hand_in(tiny, folder / "bob" / "x.ipynb", HALF)
    hand_in(tiny, folder / "cyd" / "x.ipynb", f"# mine\n{RIGHT}")
    summary = grade([folder], out, Plan(workers=1))
    assert verdicts(summary)["bob"] == ["error", "error"]
    assert verdicts(summary)["ada"] == verdicts(summary)["cyd"] == ["full", "unanswered"]
    assert summary.person == [("bob", "09_tiny", "the grader failed: RuntimeError: the engine")]
    turned = {each.student: (each.judged, each.person) for each in read_turned(out)}
    assert turned == {
        "ada": (True, ""),
        "bob": (False, "the grader failed: RuntimeError: the engine"),
        "cyd": (True, ""),
    }
    assert near.closed == 3  # one that broke, its successor that broke as well, and the next


def test_a_failure_of_reading_or_writing_costs_that_submission_only(
    tiny: Chapter, folder: Path, near: type[Near], out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for student in ("ada", "bob", "cyd"):
        hand_in(tiny, folder / student / "x.ipynb", RIGHT)
    read, write = intake.read, feedback.write

    def breaks(found: Any, only: Any) -> Handed:
        return 1 / 0 if found.student == "bob" else read(found, only)  # type: ignore[return-value]

    def spills(known: Graded, *where: Any) -> Path:
        return 1 / 0 if known.submission.student == "cyd" else write(known, *where)  # type: ignore[return-value]

    monkeypatch.setattr(intake, "read", breaks)
    monkeypatch.setattr(feedback, "write", spills)
    summary = grade([folder], out)
    assert [(student, why.split(":")[0]) for student, _, why in summary.person] == [
        ("bob", "The grader failed to read it"),
        ("cyd", "its marks could not be written"),
    ]
    assert verdicts(summary)["ada"] == ["full", "unanswered"]


def test_a_grader_that_can_not_start_is_a_usage_error_and_leaves_nothing(
    tiny: Chapter, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(chapter: Chapter, told: object) -> Near:
        raise RuntimeError("no JAX here")

    monkeypatch.setattr(graders, "Grader", broken)
    hand_in(tiny, folder / "ada.ipynb")
    with pytest.raises(UsageError, match="the grader can't start: no JAX here"):
        grade([folder], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_interrupt_ends_the_graders_and_writes_no_marks(
    tiny: Chapter, folder: Path, near: type[Near], out: Path
) -> None:
    for number in range(3):
        hand_in(tiny, folder / f"s{number}" / "x.ipynb", f"# {number}\n{RIGHT}")

    def interrupt(*told: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        grade([folder], out, Plan(workers=1), interrupt)
    assert near.closed
    assert not (out / "marks.csv").exists()


# --- what is kept --------------------------------------------------------------------------------


@pytest.fixture
def four(tiny: Chapter, folder: Path) -> Path:
    """Four submissions with different code."""
    for student in ("ada", "bob", "cyd", "dan"):
        hand_in(tiny, folder / student / "x.ipynb", f"# {student}\n{RIGHT}")
    return folder


def test_a_run_that_was_stopped_goes_on_where_it_stopped(
    four: Path, near: type[Near], out: Path
) -> None:
    def stop_at_the_second(marked: object, of: int) -> None:
        seen.append(marked)
        if len(seen) == 2:
            raise KeyboardInterrupt

    seen: list[object] = []
    with pytest.raises(KeyboardInterrupt):
        grade([four], out, Plan(workers=1), stop_at_the_second)
    before = len(near.calls)  # the third may have been begun, and lost
    summary = grade([four], out, Plan(workers=1))
    assert summary.kept == 2
    assert len(near.calls) - before == 2
    assert set(verdicts(summary)) == {"ada", "bob", "cyd", "dan"}
    assert len((out / "marks.csv").read_text().splitlines()) == 1 + 4 * 2


def test_what_is_kept_is_graded_anew_only_when_asked_for(
    four: Path, near: type[Near], out: Path
) -> None:
    first = grade([four], out)
    second = grade([four], out)
    assert (second.kept, len(near.calls)) == (4, 4)
    assert second.marked == first.marked
    third = grade([four], out, Plan(again=True))
    assert (third.kept, len(near.calls)) == (0, 8)


def test_another_secret_of_the_course_forgets_what_is_kept(
    four: Path, near: type[Near], out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grade([four], out)
    monkeypatch.setenv("COURSE_SECRET", "of another year")
    assert grade([four], out).kept == 0
    assert len(near.calls) == 8


def test_parts_of_a_class_are_disjoint_and_are_merged_without_grading(
    tiny: Chapter, four: Path, near: type[Near], out: Path, laid_out: Path, tmp_path: Path
) -> None:
    hand_in(tiny, four / "eva" / "x.ipynb", text='{"cells": [{"source": "x = 1"}]}')
    places = [results_folder(tiny, laid_out, tmp_path / f"part{i}") for i in (1, 2, 3)]
    parts = [grade([four], place, Plan(shard=(i, 3))) for i, place in enumerate(places, 1)]
    students = sorted(name for part in parts for name in verdicts(part))
    assert students == ["ada", "bob", "cyd", "dan", "eva"]
    assert len(near.calls) == 4
    merged = grade([four], out, Plan(parts=places))
    assert len(near.calls) == 4
    assert merged.kept == 4
    assert verdicts(merged) == {n: v for part in parts for n, v in verdicts(part).items()}


def test_a_part_without_verdicts_is_a_usage_error_and_gets_no_file(
    four: Path, near: type[Near], out: Path, tmp_path: Path
) -> None:
    (tmp_path / "no part").mkdir()
    with pytest.raises(UsageError, match=r"no part has no verdicts\.db"):
        grade([four], out, Plan(parts=[tmp_path / "no part"]))
    assert list((tmp_path / "no part").iterdir()) == []


def test_a_file_of_verdicts_that_is_none_is_a_usage_error_and_stays(
    four: Path, near: type[Near], out: Path
) -> None:
    (out / "verdicts.db").write_text("mine" * 1000)
    with pytest.raises(UsageError, match="can't be read"):
        grade([four], out)
    assert (out / "verdicts.db").read_text() == "mine" * 1000


# --- who counts ----------------------------------------------------------------------------------


def test_of_two_notebooks_the_later_counts_and_the_other_is_named(
    tiny: Chapter, folder: Path, tmp_path: Path
) -> None:
    hand_in(tiny, folder / "ada_attempt_2026-01-02-00-00-00_x.ipynb", RIGHT)
    hand_in(tiny, folder / "hw_ada_attempt_2026-01-02-00-00-00_x.ipynb", RIGHT)
    hand_in(tiny, folder / "hw_ada_attempt_2026-01-01-00-00-00_y.ipynb", AT)
    turns, aside = take_in([folder], tmp_path / "out")
    latest = next(turn.handed for turn in turns if turn.handed.student == "ada")
    assert "mask.any()" in latest.answers["9.1"]
    name = "hw_ada_attempt_2026-01-01-00-00-00_y.ipynb"
    assert f"`{name}` was set aside: a later one was handed in." in latest.notes
    assert aside == [f"ada: {name}: a later one was handed in"]


def test_a_readable_notebook_counts_before_one_that_is_not(
    tiny: Chapter, folder: Path, tmp_path: Path
) -> None:
    hand_in(tiny, folder / "ada" / "a.ipynb", RIGHT)
    hand_in(tiny, folder / "ada" / "b.ipynb", text='{"cells": [{"source": "x = 1"}]}')
    (turn,), aside = take_in([folder], tmp_path / "out")
    assert turn.handed.problem == ""
    assert len(aside) == 1


def test_a_chapters_folders_are_left_out_when_another_is_asked_for(
    tiny: Chapter, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from helpers import exercises

    monkeypatch.setitem(exercises.CHAPTERS, 8, "other")
    hand_in(tiny, folder / "submitted" / "ada" / "09_tiny" / "09_tiny.ipynb", RIGHT)
    hand_in(tiny, folder / "submitted" / "ada" / "08_other" / "08_other.ipynb", RIGHT)
    (turn,), aside = take_in([folder], tmp_path / "out", "tiny")
    assert (turn.chapter.slug, aside) == ("09_tiny", [])


def test_results_inside_the_searched_folder_are_not_handed_in(
    tiny: Chapter, folder: Path, near: type[Near], laid_out: Path
) -> None:
    hand_in(tiny, folder / "ada.ipynb", RIGHT)
    results = results_folder(tiny, laid_out, folder / "out")
    first = grade([folder], results)
    again = grade([folder], results)
    assert verdicts(again) == verdicts(first) == {"ada": ["full", "unanswered"]}


def test_a_gradebook_of_another_version_of_the_chapter_is_a_usage_error(
    tiny: Chapter, folder: Path, near: type[Near], out: Path
) -> None:
    hand_in(tiny, folder / "ada.ipynb", RIGHT)
    grade([folder], out)
    text = tiny.source.read_text()
    tiny.source.write_text(
        text.replace("# # 09", '# # 09\n# %% tags=["given"]\nnew = 1\n# %% [markdown]\n#', 1)
    )
    with pytest.raises(UsageError, match="nbgrader can't release 09_tiny"):
        grade([folder], out)


def test_summaries_are_sorted_by_student(
    tiny: Chapter, folder: Path, near: type[Near], out: Path
) -> None:
    for student in ("zoe", "ada"):
        hand_in(tiny, folder / student / "x.ipynb", f"# {student}\n{RIGHT}")
    summary = grade([folder], out)
    assert list(verdicts(summary)) == ["ada", "zoe"]
    assert replace(summary, aside=[]).out == out
