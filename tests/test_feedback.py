"""The feedback page: what it says, what it keeps to itself, and that it is a good page."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from html_page import Page
from in_process import AT, BROKEN, HALF, RIGHT, graded, handed_in
from wcag import TEXT, contrast

from autograder import feedback
from autograder.course import Chapter
from autograder.graders import without_verdict
from autograder.intake import Turn
from autograder.judge import cases_of
from autograder.wording import MAX_CODE, clean, clean_code, number, points
from helpers.exercise import Assessment

EVIL = '<script>alert("x")</script><img src=https://evil.example/x>'


def page(tiny: Chapter, answers: dict[str, str], **more: object) -> Page:
    return Page(feedback.page(graded(tiny, handed_in(tiny, answers, **more)), tiny))


def test_it_says_what_was_asked_seen_and_expected(tiny: Chapter) -> None:
    text = page(tiny, {"9.1": HALF, "9.2": AT}).text
    assert "Feedback for ada 09 · Tiny 5 of 6 points" in text
    assert "1 of 2 exercises complete. Nearest to done: 9.1" in text
    assert "9.1 A mean that survives an empty selection ◐ Partly right 3 of 4 points" in text
    assert "✓ is the mean of the selected numbers 3 points" in text
    assert (
        "✗ is 0 when nothing is selected 1 point asked none is selected seen nan expected 0 "
        "count what is selected → §9.1 Means" in text
    )
    assert "This looks like “divides by nothing” An empty selection has no count" in text
    assert "What you handed in def safe_mean(values, mask):" in text


def test_an_unanswered_exercise_is_not_a_list_of_failures(tiny: Chapter) -> None:
    text = page(tiny, {}).text
    assert "– Not answered 0 of 4 points There is no answer yet." in text
    assert "✗" not in text


def test_an_error_is_told_once(tiny: Chapter) -> None:
    text = page(tiny, {"9.1": BROKEN}).text
    assert text.count("SyntaxError") == 1
    assert "nobody could see whether your answer … – is the mean of" in text


def test_a_complete_chapter_is_praised(tiny: Chapter) -> None:
    assert "Every exercise is complete. Well done." in page(tiny, {"9.1": RIGHT, "9.2": AT}).text


def test_of_a_hidden_case_neither_name_nor_input_nor_expectation_is_told(tiny: Chapter) -> None:
    text = page(tiny, {"9.1": RIGHT.replace("float(", "99.25 if mask.all() else float(")}).text
    assert "asked a hidden case seen 99.25" in text
    (hidden,) = (each for each in cases_of(tiny, "9.1", "a secret") if "all" in each.case.name)
    assert hidden.case.name not in text
    assert "expected" not in text
    assert f"{hidden.case.inputs[0].mean():.6g}" not in text


def test_an_unreadable_notebook_gets_a_page_that_says_why(tiny: Chapter) -> None:
    handed = handed_in(tiny, {}, problem="The file is empty.")
    turned = without_verdict(Turn(handed, tiny), handed.problem, handed.problem)
    text = Page(feedback.page(turned, tiny)).text
    assert "This notebook could not be graded The file is empty." in text
    assert text.count("The file is empty.") == 1


def test_what_was_mended_and_why_a_person_looks_is_told(tiny: Chapter) -> None:
    handed = handed_in(tiny, {"9.1": HALF}, notes=("Lines were left out, such as `%time`.",))
    html = feedback.page(graded(tiny, handed, person=("1.1 tampers",)), tiny)
    assert "Lines were left out, such as <code>%time</code>." in html
    assert "A person will look at this 1.1 tampers" in Page(html).text


def test_everything_from_a_learner_is_escaped(tiny: Chapter) -> None:
    handed = handed_in(
        tiny, {"9.1": f"raise ValueError('''{EVIL}''')"}, student=EVIL, notes=(EVIL, f"`{EVIL}`")
    )
    known = graded(tiny, handed, person=(EVIL,))
    first = known.assessments["9.1"]
    findings = tuple(
        replace(finding, passed=False, seen=EVIL, expected=EVIL, hint=EVIL, case=EVIL)
        for finding in first.findings
    )
    known.assessments["9.1"] = replace(first, findings=findings)  # type: ignore[index]
    html = feedback.page(known, tiny)
    assert "<script" not in html
    assert "<img" not in html
    assert EVIL in Page(html).text.replace("“", '"')


def test_control_characters_are_removed_and_lengths_capped(tiny: Chapter) -> None:
    source = f"# \x1b[31m\u202e\x00{'x' * 100_000}\ndef safe_mean(values, mask): return 0"
    html = feedback.page(graded(tiny, handed_in(tiny, {"9.1": source})), tiny)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", html)
    assert len(html) < 60_000


@pytest.mark.parametrize("answers", [{}, {"9.1": HALF, "9.2": AT}, {"9.1": BROKEN}])
def test_it_is_well_formed_and_asks_nothing_of_the_network(
    tiny: Chapter, answers: dict[str, str]
) -> None:
    found = page(tiny, answers, notes=("mended",))
    assert found.wrong == []
    links = [value for _, name, value in found.attributes if name in ("href", "src", "action")]
    assert links
    assert all(link.startswith(("#", "data:,")) for link in links)
    ids = [value for _, name, value in found.attributes if name == "id"]
    assert len(set(ids)) == len(ids)
    assert {link[1:] for link in links if link.startswith("#")} <= set(ids)
    html = feedback.page(graded(tiny, handed_in(tiny, answers)), tiny)
    assert not re.search(r"https?:|url\(|@import|<script|javascript:", html)
    assert "default-src 'none'" in html


def test_it_is_written_where_it_belongs(tiny: Chapter, tmp_path: Path) -> None:
    path = feedback.write(graded(tiny, handed_in(tiny, {})), tiny, tmp_path)
    assert path == tmp_path / "ada" / "tiny.html"
    assert [each.name for each in path.parent.iterdir()] == ["tiny.html"]


def test_points_are_said_in_words() -> None:
    assert [points(x) for x in (0, 1, 1.004, 2 / 3, 2.5)] == [
        "0 points",
        "1 point",
        "1 point",
        "0.67 points",
        "2.5 points",
    ]
    assert number(22) == "22"


def test_text_is_made_fit_to_be_shown() -> None:
    assert clean("a\nb\t\x1b[1m\u2028c\u202ed") == "a b [1m c�d"
    assert clean("y" * 1000) == "y" * 399 + "…"
    assert clean_code("a\r\n\tb\x07") == "a \n\tb"
    assert len(clean_code("y" * (MAX_CODE + 5))) == MAX_CODE + 2


def test_a_verdict_without_findings_has_a_card(tiny: Chapter) -> None:
    known = graded(tiny, handed_in(tiny, {"9.1": RIGHT}))
    known.assessments["9.1"] = Assessment("9.1", "t", "crash", 0.0, 4, (), "gone")  # type: ignore[index]
    assert "!! Crashed Python 0 of 4 points" in Page(feedback.page(known, tiny)).text


# --- contrast ------------------------------------------------------------------------------------


def schemes() -> list[dict[str, str]]:
    """The colours of all pages by name, light and dark."""
    style = (Path(feedback.__file__).parent / "templates" / "house.css").read_text()
    light, dark = style.split("@media screen and (prefers-color-scheme: dark)")
    return [dict(re.findall(r"--([\w-]+): (#\w+)", part)) for part in (light, dark.split("* {")[0])]


@pytest.mark.parametrize("colours", schemes(), ids=["light", "dark"])
def test_every_text_has_enough_contrast(colours: dict[str, str]) -> None:
    pairs = [
        (ink, paper) for ink in ("ink", "soft") for paper in ("paper", "card", "well", "idea-bg")
    ]
    pairs += [(tone, f"{tone}-bg") for tone in ("good", "half", "bad", "none", "odd", "idea")]
    pairs += [(tone, "card") for tone in ("good", "half", "bad", "none", "odd")]
    low = {pair: contrast(*(colours[name] for name in pair)) for pair in pairs}
    assert {pair: ratio for pair, ratio in low.items() if ratio < TEXT} == {}
