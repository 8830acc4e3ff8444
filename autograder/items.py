"""Item analysis: how hard an exercise is, and whether it tells the strong from the weak."""

import math
import statistics
from collections.abc import Sequence

FEWEST = 10
"""Submissions below which a correlation is not shown: its standard error is above 1/3."""


class Undefined(ValueError):
    """The correlation means nothing here; the message says why in a word or two."""


def difficulty(points: Sequence[float], max_points: float) -> float:
    """The difficulty index p: the mean share of the points, so a high one means an easy exercise.

    Also called facility index. With right and wrong only it is the share of right answers. points:
    one for each submission, 0 for no answer. Raises statistics.StatisticsError where there is none.
    """
    return statistics.fmean(points) / max_points


def discrimination(points: Sequence[float], totals: Sequence[float]) -> float:
    """The corrected item-total correlation: Pearson's r of the points and the total without them.

    Where an exercise is right or wrong only, this is the point-biserial correlation with the rest
    of the chapter. Taking the exercise out of the total keeps it from correlating with itself
    (Henrysson 1963, Psychometrika 28, 211-218). points, totals: of the same submissions, points
    rounded to two digits. Raises Undefined with few submissions, or where either is all the same.
    """
    if len(points) < FEWEST:
        raise Undefined("too few")
    rest = [round(total - own, 2) for own, total in zip(points, totals, strict=True)]
    if len(set(points)) == 1:
        raise Undefined("all alike")
    if len(set(rest)) == 1:
        raise Undefined("nothing to compare")
    return statistics.correlation(points, rest)


def standard_error(count: int) -> float:
    """Of a correlation of `count` unrelated pairs: 1/√(n − 1)."""
    return 1 / math.sqrt(count - 1)
