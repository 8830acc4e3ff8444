"""Whether the course's figures can be read: contrast, colour blindness, light and dark pages."""

import itertools
import struct
from dataclasses import asdict

import matplotlib as mpl
import numpy as np
import pytest
from wcag import contrast, linear

from helpers.plotting import (
    COLORS,
    course_style,
    describe,
    figure,
    label_line,
    png,
    use_course_style,
)

PAGES = ("#ffffff", "#111111")

# What a reader without one kind of cone sees, in linear RGB: Machado, Oliveira and Fernandes 2009.
EYES = {
    "full colour vision": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}


@pytest.fixture(autouse=True)
def _own_style():
    with mpl.rc_context():
        yield


def oklab(rgb):
    """Björn Ottosson's OKLab of a linear RGB colour; 0.02 is about the least one can notice."""
    cones = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    lab = np.array(
        [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ]
    )
    return lab @ np.cbrt(np.clip(cones @ np.clip(rgb, 0, 1), 0, None))


def drawn():
    fig, ax = figure("A finding", "size", "time (ms)")
    (line,) = ax.plot([1, 2, 3], [1, 4, 9], color=COLORS.wrong)
    return fig, ax, line


def test_the_measure_of_contrast_is_right():
    assert contrast("#ffffff", "#000000") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("page", PAGES)
def test_every_colour_stands_out_on_a_light_and_on_a_dark_page(page):
    for name, color in asdict(COLORS).items():
        assert contrast(color, page) >= 3, name
    for key, color in course_style().items():
        if key.endswith("color") and color != "none":
            assert contrast(color, page) >= 3, key
    assert contrast(COLORS.ink, page) >= 4.3


@pytest.mark.parametrize("eye", EYES)
def test_any_two_colours_stay_apart_for_every_eye(eye):
    palette = {name: color for name, color in asdict(COLORS).items() if name != "ink"}
    seen = {name: oklab(EYES[eye] @ linear(color)) for name, color in palette.items()}
    for one, other in itertools.combinations(seen, 2):
        assert np.linalg.norm(seen[one] - seen[other]) >= 0.09, (one, other)


def test_a_figure_has_its_title_its_labels_and_a_transparent_background():
    fig, ax, _ = drawn()
    assert (ax.get_title(loc="left"), ax.get_xlabel(), ax.get_ylabel()) == (
        "A finding",
        "size",
        "time (ms)",
    )
    assert fig.get_facecolor()[3] == ax.get_facecolor()[3] == 0
    assert ax.xaxis.label.get_color() == COLORS.ink


def test_the_style_is_one_that_matplotlib_knows():
    use_course_style()
    for key, value in course_style().items():
        assert mpl.rcParams[key] == value


def test_a_line_is_named_at_its_end_in_its_own_colour():
    _, _, line = drawn()
    label = label_line(line, "naive", dy=4)
    assert label.get_text() == "naive"
    assert label.xy == (3, 9)
    assert label.get_color() == COLORS.wrong


def test_a_line_in_no_axes_cannot_be_named():
    with pytest.raises(AssertionError, match="draw the line first"):
        label_line(mpl.lines.Line2D([0, 1], [0, 1]), "nowhere")


def test_a_label_beyond_the_axes_is_inside_the_picture():
    fig, _, line = drawn()
    label = label_line(line, "a name of some length")
    fig.draw_without_rendering()
    assert label.get_window_extent().x1 <= fig.bbox.x1


def test_the_picture_is_the_same_when_it_is_drawn_anew():
    first, second = png(drawn()[0]), png(drawn()[0])
    assert first == second
    assert first.startswith(b"\x89PNG")
    assert struct.unpack(">II", first[16:24]) == (1280, 720)


def test_a_described_figure_carries_its_text(monkeypatch):
    shown = []
    monkeypatch.setattr(
        "IPython.display.display", lambda data, metadata, raw: shown.append((data, metadata, raw))
    )
    fig, _, _ = drawn()
    describe(fig, "Time grows with the square of the size.")
    ((data, metadata, raw),) = shown
    assert raw
    assert data["text/plain"] == "Time grows with the square of the size."
    assert data["image/png"].startswith("iVBOR")
    assert metadata["image/png"] == {
        "width": 640,
        "height": 360,
        "alt": "Time grows with the square of the size.",
    }
