"""Chapter 06 · Donation: the cases that learners don't see.

Each asks what a shallow answer gets wrong: another dtype, another start, other numbers. They reuse
the public shapes wherever they can, so that a right answer compiles next to nothing for them.
"""

from collections.abc import Iterator

import numpy as np

from helpers.exercise import Case
from helpers.exercises.donation import (
    FrozenLayers,
    NothingShared,
    RingBuffer,
    Snapshot,
    TrainingStep,
    cache,
    descent,
    integers,
    network,
    rows_for,
    steep,
    tuning,
)


class HiddenNothingShared(NothingShared):
    """Another nest, tied elsewhere."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        params = network(rng)
        left, right = params["layers"]
        nest = {"scales": [params["embed"]], "towers": {"left": left, "right": right}}
        places = ["towers", "left"], ["towers", "right"]
        ties = [[[*place, leaf] for place in places] for leaf in ("b", "w")]
        yield Case("another nest, tied elsewhere", nest, ties)


class HiddenTrainingStep(TrainingStep):
    """Other numbers, rates in another order, and a label that is infinite."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        about = ["value", "donated", "batch", "once"]
        yield Case("other numbers", *descent(rng), False, about=about)
        spoiled = descent(rng, label=np.inf)
        yield Case("an infinite label", *spoiled, False, about=["bad", "donated"])
        yield Case("a slope out of range", *steep(rng), False, about=["bad", "donated"])


class HiddenSnapshot(Snapshot):
    """Other numbers."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        step = np.array(rng.integers(50, 99), np.int32)
        params = [integers(rng, 2, 4), integers(rng, 4)]
        yield Case("other numbers", {"params": params, "ema": None, "step": step}, "bfloat16")


class HiddenRingBuffer(RingBuffer):
    """A start far behind the first round, one row, and as many rows as there are slots."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        late = cache(rng, 16 * int(rng.integers(100, 999)) + 14)
        yield Case("a late start, 5 rows at a time", *late, rows_for(rng, 4, 5), False)
        full = cache(rng, int(rng.integers(3, 14)))
        yield Case("16 rows at a time", *full, rows_for(rng, 2, 16), False, about=["rows"])
        single = *late, rows_for(rng, 3, 1)
        yield Case("a late start, 1 row at a time", *single, False, about=["rows"])


class HiddenFrozenLayers(FrozenLayers):
    """Other models and batches."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case("other models", *tuning(rng), False)


HIDDEN = [
    HiddenNothingShared,
    HiddenTrainingStep,
    HiddenSnapshot,
    HiddenRingBuffer,
    HiddenFrozenLayers,
]
