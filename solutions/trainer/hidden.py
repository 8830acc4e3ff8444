"""Chapter 09 · The trainer: the cases that learners don't see.

They reuse the public shapes, so that a right answer compiles next to nothing for them.
"""

from collections.abc import Iterator

import numpy as np

from helpers.exercise import Case
from helpers.exercises.trainer import (
    STEPS,
    Accumulation,
    ExactResume,
    FairAverage,
    ScaleMachine,
    Stopping,
    regression,
    slopes,
    walk,
    without,
)


class HiddenAccumulation(Accumulation):
    """One row over, and one micro-batch exactly."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case("one row over", *regression(rng, 97), 8, about=["rest"])
        yield Case("one micro-batch", *regression(rng, 8), 8, about=["value"])


class HiddenScaleMachine(ScaleMachine):
    """Other series of steps, other faults."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        mixed = [int(x) for x in rng.random(24) < 0.8]
        yield Case("a mixed series", mixed, 1024.0, 3, 2, None, about=["grows", "backs off"])
        poor = [int(x) for x in rng.random(24) < 0.4]
        yield Case("a poor series", poor, 2.0**20, 2, 3, None, about=["backs off"])
        up_and_down = [1] * 10 + [0] * 4 + [1] * 10
        yield Case("down from the top", up_and_down, 3 * 2.0**21, 2, 1, None, about=["bounds"])
        yield Case("other slopes", [1] * 24, 2.0**8, 3, 1, slopes(-0.5), about=["unscaled"])
        broken = slopes(np.inf)
        yield Case("an infinite slope", [1] * 24, 2.0**12, 3, 1, broken, about=["withheld"])
        broken = slopes(first=np.nan)
        yield Case("a NaN in the other", [1] * 24, 2.0**12, 3, 1, broken, about=["withheld"])


class HiddenFairAverage(FairAverage):
    """Other decays, and faults at both ends."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        decays = rng.uniform(0.3, 0.98, STEPS).astype(np.float32)
        yield Case("random decays", *walk(rng), decays, without(), about=["decays"])
        start, path = walk(rng)
        path["b"][[0, 8]] = np.inf
        yield Case("faults at both ends", start, path, decays, without(0, 8), about=["unused"])


class HiddenStopping(Stopping):
    """Ties, a late start, and a break while it waits."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        low = float(rng.integers(1, 9)) / 8
        ties = [low + 1, low, low, None, low, low - 0.5]
        yield Case("ties", ties, 2, {}, -1, 10, about=["stops"])
        waiting = [0.5, 0.25, 0.25, 0.5, 0.25, 0.75]
        upwards = {"margin": 0.125, "mode": "max"}
        yield Case("a break while it waits", waiting, 4, upwards, 3, 1, about=["resumes"])
        margins, upwards = (
            [0.0, 0.5, 0.625, 0.875, 0.75, 1.0625, 2.0],
            {"margin": 0.25, "mode": "max"},
        )
        yield Case("a margin upwards", margins, 2, upwards, -1, 1, about=["better"])
        lost = [2.0, np.nan, np.nan, np.nan, 1.0]
        yield Case("NaN only after the first", lost, 3, {}, -1, 1, about=["nan"])


class HiddenExactResume(ExactResume):
    """Another length, another break, keys of another kind."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        seed = int(rng.integers(100, 999))
        yield Case("9 rows, 4 in a batch", "rows", 9, 4, seed, about=["epochs", "orders", "number"])
        yield Case("a break after 5 of 6 steps", "resume", 5, 0, seed, about=["plain", "resumed"])
        yield Case("keys of another kind", "pack", 1, 0, seed, about=["plain", "same"])


HIDDEN = [
    HiddenAccumulation,
    HiddenScaleMachine,
    HiddenFairAverage,
    HiddenStopping,
    HiddenExactResume,
]
