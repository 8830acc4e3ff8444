"""Chapter 10 · The spiral: the cases that learners don't see.

Other numbers in the public shapes, so that a right answer compiles next to nothing for them. The
spiral of 10.4 is turned by another angle, and its test points exist in no learner's process.
"""

from collections.abc import Iterator

import numpy as np

from helpers.exercise import Case
from helpers.exercises.spiral import (
    Data,
    Epoch,
    Evaluation,
    HardExamples,
    Loss,
    State,
    by_hand,
    to_batch,
    to_evaluate,
    to_judge,
    to_learn,
    to_rank,
    to_split,
    to_start,
)


class HiddenData(Data):
    """Other labels, another number held out, other examples."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        held_out = int(rng.integers(3, 7))
        yield Case("another split", *to_split(rng, held_out), about=["once", "strata"])
        about = ["all", "padding", "order"]
        yield Case("other examples", *to_batch(rng, 13), about=about)
        yield Case("no rest", *to_batch(rng, 12), about=["padding"])


class HiddenState(State):
    """Another nest of params."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case("another nest", *to_start(rng, nested=True))


class HiddenLoss(Loss):
    """Other logits, and other amounts of smoothing."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        usual = ["value", "slope"]
        some = float(rng.uniform(0.15, 0.4))
        yield Case("more smoothing", *to_judge(rng, 3, some), about=usual)
        yield Case("one real row", *to_judge(rng, 5, some), about=usual)
        yield Case("large logits", *to_judge(rng, 1, some, 1e4), about=["large"])
        yield Case("nothing real", *to_judge(rng, 6, some, 1e4), about=["empty"])


class HiddenEpoch(Epoch):
    """Other numbers, and a spiral that is turned by another angle."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        about = ["params", "ema", "loss", "donated"]
        yield Case("other numbers", *by_hand(rng), 2, None, False, about=about)
        yield Case("another spiral", *to_learn(rng), False, about=["trained"])


class HiddenEvaluation(Evaluation):
    """Other numbers of points."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        sizes = [int(n) for n in rng.permutation([1, 4, 7, 18])]
        yield Case("other numbers of points", *to_evaluate(rng, *sizes), False)


class HiddenHardExamples(HardExamples):
    """Other examples, and fewer than fill a chunk."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        about = ["which", "norms", "once"]
        yield Case("other examples", *to_rank(rng, (17, 5), (7, 1)), False, about=about)
        yield Case("other equals", *to_rank(rng, (15, 8), tied=True), False, about=["ties"])
        yield Case("fewer than a chunk", *to_rank(rng, (3, 5)), False, about=["few"])


HIDDEN = [
    HiddenData,
    HiddenState,
    HiddenLoss,
    HiddenEpoch,
    HiddenEvaluation,
    HiddenHardExamples,
]
