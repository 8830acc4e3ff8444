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
    clipping,
    flipped_labels,
    network,
    regression,
    with_last_logits,
)


class HiddenChunkedNorms(ChunkedNorms):
    """Another chunk, and sizes just beside its multiples."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        sizes = [2, *(int(n) for n in rng.permutation([5, 6, 9, 11, 12]))]
        inputs = *regression(rng, sum(sizes), 2), sizes, 3, False
        yield Case("a first batch below the chunk, then others", *inputs)
        none = *regression(rng, 0, 2), [0], 3, False
        yield Case("no example at all", *none, about=["edges"])


class HiddenClippedSum(ClippedSum):
    """Another limit, one row alone, and none at all."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        one = np.arange(6) == rng.integers(1, 5)
        layer, y, calls = clipping(rng, float(rng.uniform(0.3, 0.8)), one)
        about = ["clipped", "whole", "masked"]
        yield Case("another limit, one row, no row", "values", layer, y, calls, about=about)


class HiddenFindFlipped(FindFlipped):
    """Another data set."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        inputs = *flipped_labels(rng), FLIPPED
        yield Case("another data set", *inputs, about=["found", "order"])
        inputs = *flipped_labels(rng), ALL_ROWS
        yield Case("all of another data set", *inputs, about=["all"])
        yield Case("one of another data set", *flipped_labels(rng), 1, about=["all"])


class HiddenDiagonalFisher(DiagonalFisher):
    """Another network."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        params, x = classifier(rng)
        yield Case("another network", params, x, about=["value"])
        shift = float(rng.uniform(-34.0, -22.0))
        yield Case("another tiny class", with_last_logits(params, 0.0, shift), x, about=["sharp"])
        shifts = shift, -32.0
        yield Case(
            "a class that is nearly sure", with_last_logits(params, *shifts), x, about=["sharp"]
        )
        yield Case(
            "another impossible class", with_last_logits(params, 0.0, -200.0), x, about=["sharp"]
        )


class HiddenDenseNorms(DenseNorms):
    """Other numbers at the public sizes."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case("other numbers", "values", *network(rng, [4, 3, 3], 5), about=["value"])
        yield Case("a deeper one", "values", *network(rng, [3, 3, 3, 3], 5), about=["depth"])
        yield Case("a layer alone", "values", *network(rng, [4, 3], 5), about=["depth"])


HIDDEN = [
    HiddenChunkedNorms,
    HiddenClippedSum,
    HiddenFindFlipped,
    HiddenDiagonalFisher,
    HiddenDenseNorms,
]
