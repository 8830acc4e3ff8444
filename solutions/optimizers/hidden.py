"""Chapter 05 · Optimizers by hand: the cases that learners don't see.

Other numbers at the public shapes, which run the programs that the public cases compiled, and a
few that a shallow answer has not thought of.
"""

from collections.abc import Iterator

import numpy as np

from helpers.exercise import Case
from helpers.exercises.optimizers import (
    Accumulate,
    FactoredMoment,
    Lion,
    PerLabel,
    StableDecay,
    factored_inputs,
    labelled,
    lion_inputs,
    points,
    windows,
)


class HiddenLion(Lion):
    """Other numbers."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        about = ["direction", "decay", "narrow", "memory"]
        yield Case("other numbers", *lion_inputs(rng, "constant"), False, about=about)
        yield Case("other numbers on a schedule", *lion_inputs(rng, "schedule"), False,
                   about=["schedule"])  # fmt: skip


class HiddenFactoredMoment(FactoredMoment):
    """Other numbers."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case("other numbers", factored_inputs(rng), False)


class HiddenStableDecay(StableDecay):
    """Other stages, and a rate that grows at the end."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        warmup, stable, decay = (int(n) for n in rng.integers(3, 8, 3))
        stages = (float(rng.uniform(0.2, 2)), warmup, stable, decay, float(rng.uniform(3, 4)))
        yield Case("other stages, and an end above the peak", stages, points(range(24)),
                   about=["value", "array"])  # fmt: skip
        yield Case("a decay alone", (0.5, 0, 0, 7, 0.1), points(range(24)), about=["edges"])
        yield Case("a plateau of fewer than 0 steps", (0.5, 1, -1, 4, 0.0), None, about=["refuses"])


class HiddenAccumulate(Accumulate):
    """Other numbers, all of them good, and bad gradients elsewhere."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        bad = [(0, 3, "b"), (1, 0, "w"), (1, 1, "w"), (1, 2, "b"), (1, 3, "b"), (4, 3, "w")]
        bad += [(3, call, "w") for call in (0, 1, 3)]  # one is left
        about = ["value", "waits", "narrow"]
        yield Case("other numbers", *windows(rng, 4, []), 4, False, about=about)
        yield Case("other numbers, bad gradients elsewhere", *windows(rng, 4, bad), 4, False,
                   about=["broken"])  # fmt: skip


class HiddenPerLabel(PerLabel):
    """Other numbers."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        about = ["value", "apart", "memory"]
        yield Case("other numbers", *labelled(rng), "tree", False, about=about)
        yield Case("other numbers, labels as a function", *labelled(rng), "function", False,
                   about=["function"])  # fmt: skip


HIDDEN = [HiddenLion, HiddenFactoredMoment, HiddenStableDecay, HiddenAccumulate, HiddenPerLabel]
