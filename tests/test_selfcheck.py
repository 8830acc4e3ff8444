"""`check` in a notebook: one line a property, never an exception, progress remembered."""

import json
import subprocess
import sys
import time
from dataclasses import replace
from html import unescape

import pytest
from IPython.core.formatters import DisplayFormatter

from helpers import card, selfcheck
from helpers.diagnosis import Misconception
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


def test_a_check_that_takes_long_says_so_meanwhile(capsys, monkeypatch):
    monkeypatch.setattr(selfcheck, "PATIENCE", 0.05)
    selfcheck.check("0.0", {"relative_error": lambda got, want: time.sleep(0.1) or abs(got - want)})
    out = capsys.readouterr().out
    assert "0.0 is still running after 0.05 s" in out and "points" in out


def test_a_check_that_is_quick_says_nothing_meanwhile(capsys):
    selfcheck.check("0.0", {})
    assert "still running" not in capsys.readouterr().out


# --- cards ---------------------------------------------------------------------------------------


TITLES = {"1.4": "Buckets & a mask"}
KNOWN = Misconception("1.1", "counts <padding>", "Sum the mask.", "1.4", [], [])


def test_a_card_says_all_that_the_text_says():
    html = unescape(card.assessed(assessment(), KNOWN, TITLES))
    for word in ("1.1 Masked mean", "2 of 4 points", "equals float64", "twenty sizes", "pad first"):
        assert word in html
    assert html.count("✅") == 1 and html.count("❌") == 2  # each property, and the whole


def test_a_card_links_to_the_heading_and_folds_the_hint():
    html = card.assessed(assessment(), KNOWN, TITLES)
    assert "href='#1.4-Buckets-&amp;-a-mask'" in html
    assert "<details" in html and "pad first</details>" in html
    assert "href" not in card.assessed(assessment(), KNOWN, {})


def test_what_an_answer_says_is_no_html_of_ours():
    said = "<script>alert(1)</script>"
    finding = Finding("a", "equals float64", 1.0, False, said, said, said, said, "1.4")
    report = Assessment("1.1", "Masked mean", "zero", 0.0, 4, (finding,), said)
    for one in (report, replace(report, verdict="unanswered")):
        html = card.assessed(one, KNOWN, TITLES)
        assert "<script" not in html and "&lt;script&gt;" in html
    assert "&lt;padding&gt;" in card.assessed(report, KNOWN, TITLES)


def test_a_notebook_gets_the_card_and_a_terminal_the_text(capsys):
    report = card.Report("plain", "<b>rich</b>")
    assert DisplayFormatter().format(report)[0] == {
        "text/plain": "plain",
        "text/html": "<b>rich</b>",
    }
    card.show(report)
    assert capsys.readouterr().out == "plain\n"


def test_progress_says_what_was_tried_last_and_what_comes_next(capsys):
    selfcheck.progress()
    assert "next: 0.1" in capsys.readouterr().out
    selfcheck.remember(replace(assessment(points=4.0, verdict="full"), id="0.1"))
    selfcheck.progress()
    said = capsys.readouterr().out
    assert "last: 0.1" in said and "next: 0.2" in said


def test_the_terminal_shows_progress_too(tmp_path):
    said = subprocess.run(
        [sys.executable, "-m", "helpers"], capture_output=True, text=True, cwd=tmp_path, check=True
    )
    assert "next: 0.1" in said.stdout
