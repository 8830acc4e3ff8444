"""The course's figures: one style that reads on a white page and on a dark one.

A figure states a finding in its title and names each line at its end. It does without pyplot, so
nothing is shown twice and nothing stays open; everything else is plain matplotlib.
"""

import base64
import io
from dataclasses import dataclass
from typing import Any

import numpy as np
from cycler import cycler
from matplotlib import style
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Annotation


@dataclass(frozen=True)
class Colors:
    """What each colour means.

    Every one has a contrast of at least 3:1 against white and against #111111 (WCAG 2.2, 1.4.11),
    and any two stay apart in the three forms of colour blindness; a test computes both. `ink`, for
    text and axes, is as near as a grey can be to 4.5:1 on both: 4.3:1.
    """

    right: str = "#2a62d0"
    wrong: str = "#b63d08"
    reference: str = "#797979"
    third: str = "#2fa53a"
    fourth: str = "#d765b8"
    ink: str = "#797979"


COLORS = Colors()


def course_style() -> dict[str, Any]:
    """The style as matplotlib's rcParams, for `plt.rc_context(course_style())`."""
    return {
        "axes.edgecolor": COLORS.ink,
        "axes.facecolor": "none",
        "axes.grid": False,
        "axes.labelcolor": COLORS.ink,
        "axes.prop_cycle": cycler(
            color=[COLORS.right, COLORS.wrong, COLORS.third, COLORS.fourth, COLORS.reference]
        ),
        "axes.spines.right": False,
        "axes.spines.top": False,
        "axes.titlecolor": COLORS.ink,
        "axes.titlelocation": "left",
        "axes.titlepad": 10.0,
        "axes.titlesize": 12.0,
        "axes.titleweight": "bold",
        "figure.dpi": 100.0,
        "figure.constrained_layout.h_pad": 0.08,
        "figure.edgecolor": "none",
        "figure.facecolor": "none",
        "font.size": 10.0,
        "grid.alpha": 0.3,
        "grid.color": COLORS.ink,
        "image.cmap": "cividis",
        "legend.frameon": False,
        "legend.labelcolor": COLORS.ink,
        "lines.linewidth": 2.0,
        "lines.markersize": 5.0,
        "savefig.edgecolor": "none",
        "savefig.facecolor": "none",
        "text.color": COLORS.ink,
        "xtick.color": COLORS.ink,
        "ytick.color": COLORS.ink,
    }


def use_course_style() -> None:
    """Makes the style matplotlib's own for the rest of the process."""
    style.use(course_style())


def figure(
    title: str, xlabel: str, ylabel: str, size: tuple[float, float] = (6.4, 3.6)
) -> tuple[Figure, Axes]:
    """A figure with one pair of axes, in the course's style, which stays on afterwards.

    Args:
        title: the finding, as a sentence without a final stop: "Padding without a mask moves the
            loss".
        xlabel, ylabel: what is drawn, with its unit: "time per call (ms)".
        size: width and height in inches.
    """
    use_course_style()
    fig = Figure(figsize=size, layout="constrained")
    ax = fig.add_subplot()
    ax.set(title=title, xlabel=xlabel, ylabel=ylabel)
    ax.spines[["left", "bottom"]].set_position(("outward", 6.0))
    return fig, ax


def label_line(line: Line2D, text: str, dy: float = 0.0) -> Annotation:
    """Writes the name of a line at its right end, in its colour, in place of a legend.

    dy: moves the text up by so many points, for lines that end close together.
    """
    ax = line.axes
    assert isinstance(ax, Axes), "draw the line first"
    x, y = (np.asarray(data)[-1] for data in line.get_data(orig=False))
    return ax.annotate(
        text,
        (x, y),
        xytext=(6.0, dy),
        textcoords="offset points",
        color=line.get_color(),
        fontweight="bold",
        va="center",
        annotation_clip=False,
    )


def png(fig: Figure, scale: float = 2.0) -> bytes:
    """The figure as a PNG with a transparent background; the same bytes whenever it is built anew.

    scale: pixels for each point of the page, 2 for a sharp picture on a dense screen.
    """
    buffer = io.BytesIO()
    fig.savefig(
        buffer, format="png", dpi=100 * scale, transparent=True, metadata={"Software": None}
    )
    return buffer.getvalue()


def describe(fig: Figure, alt: str) -> None:
    """Shows the figure as the cell's output, with a description for those who can't see it.

    The description is the output's plain text, which is all that a terminal, a diff or a check
    sees, and the picture's `alt` in the output's metadata. nbconvert's classic template exports
    that to HTML; its lab template and JupyterLab 4 have no place for it.

    alt: what a reader takes from the picture, in a sentence or two.
    """
    from IPython.display import display  # only where there is a notebook

    width, height = (round(100 * inches) for inches in fig.get_size_inches())
    display(
        {"image/png": base64.b64encode(png(fig)).decode("ascii"), "text/plain": alt},
        metadata={"image/png": {"width": width, "height": height, "alt": alt}},
        raw=True,
    )
