"""Can those read it who see differently, or not at all? What can be known without a browser.

Pages as they are drawn are in test_book.py and test_browser.py, the figures' palette in
test_plotting.py, the feedback page's colours in test_feedback.py.
"""

import re
from dataclasses import asdict

import nbformat
import numpy as np
import pytest
from matplotlib.colors import to_rgb
from wcag import GRAPHICS, TEXT, contrast

from autograder import course
from autograder.course import ROOT, Chapter
from helpers import card
from helpers.exercise import Assessment, Finding
from helpers.plotting import COLORS

LIGHT, DARK, EDITOR = "#ffffff", "#121212", "#1e1e1e"
"""Grounds: of most pages; of the book in its dark mode; of dark editors that show notebooks."""

MARKS = "❌✅✍🧪💡"


# --- committed notebooks -------------------------------------------------------------------------


@pytest.mark.parametrize("chapter", course.chapters(), ids=lambda chapter: chapter.slug)
def test_every_picture_and_card_of_a_notebook_says_the_same_as_text(chapter: Chapter) -> None:
    notebook = nbformat.read(chapter.notebook, as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    pictures = [output for output in outputs if "image/png" in output.get("data", {})]
    assert pictures
    for output in pictures:
        alt = output.metadata["image/png"]["alt"]
        assert alt == output.data["text/plain"]
        assert len(alt.split()) >= 8, alt
    for output in outputs:
        if html := output.get("data", {}).get("text/html"):
            assert "<img" not in html
            assert marks(html) == marks(output.data["text/plain"])
            assert len(output.data["text/plain"].split()) >= 8
    text = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert not re.search(r"!\[\s*\]|<img", text)


def marks(text: str) -> set[str]:
    return set(MARKS) & set(text)


@pytest.mark.parametrize("chapter", course.chapters(), ids=lambda chapter: chapter.slug)
def test_a_mark_never_stands_alone(chapter: Chapter) -> None:
    notebook = nbformat.read(chapter.notebook, as_version=4)
    for cell in notebook.cells:
        printed = [str(output.get("text", "")) for output in cell.get("outputs", [])]
        for line in "\n".join([cell.source, *printed]).splitlines():
            if re.search("[❌✅]", line):
                assert re.search(r"\w", line), f"{cell.id}: {line}"


# --- cards ---------------------------------------------------------------------------------------


def test_a_card_in_black_and_white_tells_verdicts_apart() -> None:
    told = set()
    for verdict in ("full", "partial", "zero", "unanswered"):
        held = Finding("key", "is right", 1.0, passed=verdict == "full")
        html = card.assessed(Assessment("1.1", "t", verdict, 0, 4, (held,)), None, {})
        told.add(re.sub(r"<[^>]*>", " ", html))
    assert len(told) == 4


@pytest.mark.parametrize("ground", [LIGHT, EDITOR])
def test_the_colours_of_cards_stand_out_where_there_is_no_theme(ground: str) -> None:
    tones = [tone for _, _, tone in [*card.TONES.values(), card.WRONG]]
    for tone in tones:
        own = tone.rpartition(" ")[2]
        assert contrast(own, ground) >= GRAPHICS, tone


# --- the book ------------------------------------------------------------------------------------

STYLE = (ROOT / "book" / "static" / "book.css").read_text()
MODES = {"light": LIGHT, "dark": DARK}


def declared(mode: str, pattern: str) -> list[str]:
    """What the book's style says for a mode, where both have their own rule."""
    dark = re.findall(r'^html\[data-theme="dark"\][^{]*\{(.*?)\}', STYLE, re.M | re.S)
    light = re.findall(r"^html(?!\[data-theme=\"dark\")[^{]*\{(.*?)\}", STYLE, re.M | re.S)
    return re.findall(pattern, "\n".join(dark if mode == "dark" else light))


@pytest.mark.parametrize("mode", MODES)
def test_the_book_gives_cards_colours_that_stand_out(mode: str) -> None:
    colours = declared(mode, r"--jp-[\w-]+: (#\w+);")
    assert len(colours) == 5
    assert min(contrast(colour, MODES[mode]) for colour in colours) >= GRAPHICS


@pytest.mark.parametrize("mode", MODES)
def test_the_book_darkens_or_lightens_figures_until_their_text_can_be_read(mode: str) -> None:
    """No colour has 4.5:1 on white and on black; the book knows on which of them it stands."""
    (factor,) = declared(mode, r"filter: brightness\(([\d.]+)\);")
    for name, colour in asdict(COLORS).items():
        drawn = np.minimum(np.array(to_rgb(colour)) * float(factor), 1.0)
        assert contrast(drawn, MODES[mode]) >= TEXT, name
