"""`check` in a notebook: one line a property, never an exception, progress remembered."""

import json

import pytest

from helpers import selfcheck
from helpers.exercise import Assessment, Finding


@pytest.fixture(autouse=True)
def own_progress(tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "deep" / "progress.json"))


def assessment(verdict="partial", points=2.0):
    findings = (
        Finding("a", "equals float64", 1.0, passed=True),
        Finding("b", "compiles once", 1.0, False, "twenty sizes", "20", "1", "pad first", "1.4"),
    )
    return Assessment("1.1", "Masked mean", verdict, points, 4, findings)


def test_a_report_has_one_line_a_property_with_seen_expected_case_hint_and_section():
    text = selfcheck.report(assessment())
    assert "🧪 1.1 Masked mean: 2 of 4 points ❌" in text
    assert "✅ equals float64" in text
    assert "saw 20, expected 1 in “twenty sizes”" in text
    assert "pad first → §1.4" in text


def test_an_unknown_exercise_is_a_sentence_and_no_exception(capsys):
    selfcheck.check("7.9")
    selfcheck.check("nonsense")
    selfcheck.check("1st.2")
    out = capsys.readouterr().out
    assert "there is no exercise '7.9'" in out and "there is no exercise 'nonsense'" in out


def test_progress_keeps_the_latest_and_the_best():
    selfcheck.remember(assessment(points=4.0, verdict="full"))
    selfcheck.remember(assessment(points=1.0))
    entry = json.loads(selfcheck.progress_file().read_text())["1.1"]
    assert (entry["points"], entry["best"], entry["verdict"]) == (1.0, 4.0, "partial")


def test_a_progress_file_that_is_broken_or_cannot_be_written_stops_nobody(tmp_path, monkeypatch):
    selfcheck.progress_file().parent.mkdir(parents=True)
    selfcheck.progress_file().write_text("{not json")
    selfcheck.remember(assessment())
    assert json.loads(selfcheck.progress_file().read_text())["1.1"]["points"] == 2.0
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "deep" / "progress.json" / "no"))
    selfcheck.remember(assessment())


def test_stand_in_answers_are_judged_and_not_remembered(capsys):
    selfcheck.check("0.0", {"relative_error": lambda got, want: abs(got - want) / abs(want)})
    assert "2 of 2 points ✅" in capsys.readouterr().out
    assert not selfcheck.progress_file().exists()


def test_what_the_notebook_defines_is_remembered(monkeypatch, capsys):
    monkeypatch.setattr("__main__.relative_error", lambda got, want: 0.0, raising=False)
    selfcheck.check("0.0")
    assert json.loads(selfcheck.progress_file().read_text())["0.0"]["verdict"] == "zero"


def test_every_chapters_exercises_are_unanswered_in_an_empty_notebook(capsys):
    for chapter in selfcheck.CHAPTERS.values():
        for exercise_id in selfcheck.exercises_of(chapter):
            selfcheck.check(exercise_id, {})
            assert "not answered yet" in capsys.readouterr().out


def test_the_table_of_progress_names_every_exercise(capsys):
    selfcheck.remember(assessment())
    selfcheck.progress()
    out = capsys.readouterr().out
    for chapter in selfcheck.CHAPTERS.values():
        for exercise in selfcheck.exercises_of(chapter).values():
            assert exercise.title in out
