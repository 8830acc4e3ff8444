"""Chapter 04 · Per-example gradients: the cases that learners don't see.

Each asks what a shallow answer gets wrong: other sizes, other values, an edge.
"""

from collections.abc import Iterator

import numpy as np

from helpers.exercise import Case
from helpers.exercises.per_example import (
    ALL_ROWS,
    FLIPPED,
    ChunkedNorms,
    ClippedSum,
    DenseNorms,
    DiagonalFisher,
    FindFlipped,
    classifier,
    flipped_labels,
    network,
    regression,
    resting,
    spoil,
    without_last_class,
)


class HiddenChunkedNorms(ChunkedNorms):
    """Another chunk, and sizes just beside its multiples."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        sizes = [2, *(int(n) for n in rng.permutation([0, 5, 6, 9, 11, 12]))]
        inputs = *regression(rng, sum(sizes)), sizes, 3, False
        yield Case("a first batch below the chunk, then others", *inputs)


class HiddenClippedSum(ClippedSum):
    """Other limits, one row alone, and none at all."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        layer, x, y = regression(rng, 6)
        y = resting(layer, x, y)
        every, one, none = np.ones(6, bool), np.arange(6) == rng.integers(1, 5), np.zeros(6, bool)
        limit = float(rng.uniform(0.3, 0.8))
        calls = [
            [x, every, limit],
            [x, every, np.inf],
            [spoil(x, one), one, limit],
            [spoil(x, none), none, limit],
        ]
        about = ["clipped", "whole", "masked"]
        yield Case("other limits, one row, no row", "values", layer, y, calls, about=about)


class HiddenFindFlipped(FindFlipped):
    """Another data set."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        inputs = *flipped_labels(rng), FLIPPED
        yield Case("another data set", *inputs, about=["found", "order"])
        inputs = *flipped_labels(rng), ALL_ROWS
        yield Case("all of another data set", *inputs, about=["all"])


class HiddenDiagonalFisher(DiagonalFisher):
    """Another network."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        params, x = classifier(rng)
        yield Case("another network", params, x, about=["value"])
        yield Case("another impossible class", without_last_class(params), x, about=["sharp"])


class HiddenDenseNorms(DenseNorms):
    """Other numbers, and a single layer."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case("other numbers", "values", *network(rng, [4, 3, 3], 5), about=["value"])
        yield Case("a single layer", "values", *network(rng, [4, 3], 5), about=["depth"])


HIDDEN = [
    HiddenChunkedNorms,
    HiddenClippedSum,
    HiddenFindFlipped,
    HiddenDiagonalFisher,
    HiddenDenseNorms,
]
