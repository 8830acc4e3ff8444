"""Chapter 01 · Recompilation: the cases that learners don't see.

Each asks what a shallow answer gets wrong: other sizes, other values, an edge. They reuse the
public shapes, so that a right answer compiles next to nothing for them.
"""

from collections.abc import Iterator

import numpy as np

from helpers.exercise import Case
from helpers.exercises.recompilation import (
    WRONG_SHAPES,
    AheadOfTimeTable,
    CompileBudgetTest,
    LearningRateLoop,
    MaskedMeanLoss,
    StaticConfig,
    line,
    logits,
    regression,
)


class HiddenMaskedMeanLoss(MaskedMeanLoss):
    """Other batch sizes, 1 and 15 among them, and the gradient of a full bucket."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        sizes = [4, 6, 10, 1, *(int(n) for n in rng.permutation([3, 5, 12, 13, 14, 15]))]
        later = "count", *regression(rng, sizes), 3, False
        yield Case("other batch sizes", *later, about=["value", "compiles"])
        grad = "grad", *regression(rng, [4, 0])
        yield Case("a full bucket, differentiated", *grad, about=["gradient", "empty"])


class HiddenCompileBudgetTest(CompileBudgetTest):
    """A limit of 0 with a late excess, then with none, and other requests."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        late = {"sizes": [1, 2, 3, 4], "padded": [2, 2, 2, 4], "compiled": [1], "limits": [0, 4]}
        yield Case("one late excess, and then none", "budget", [late], about=["over", "within"])
        requests = [int(n) for n in rng.permutation([2, 4, 7, 10, 13, 15])]
        inputs = logits(rng, requests), requests, False
        yield Case("other requests", "serve", *inputs, about=["scores", "served"])


class HiddenStaticConfig(StaticConfig):
    """Settings that differ in one place only, and those that were left out."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        width, scale = int(rng.integers(2, 9)), float(rng.integers(3, 9))
        scales = [scale, -1.0, scale, -3.0]
        settings: list[list[object]] = [
            [width, "relu", "tuple", scales],
            [width + 1, "relu", "tuple", scales],
            [width, "relu", "tuple", scales],
        ]
        yield Case("another width", "call", settings, about=["value", "once", "apart"])
        lists = [[width, None, kind, scales] for kind in ("tuple", "list")]
        yield Case("a tuple and a list", "call", lists, about=["once"])
        changed = [[width, "relu", "tuple", []]]
        yield Case("attempts to change one without scales", "change", changed, about=["frozen"])


class HiddenLearningRateLoop(LearningRateLoop):
    """A bias that is not 0, a longer schedule, many steps, and none at all."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        plans = [[float(rate) for rate in rng.uniform(0.01, 0.1, steps)] for steps in (2, 5, 1)]
        problem = line(rng, float(rng.uniform(0.5, 1.5)))
        yield Case("other trainings", *problem, plans, False)
        long = [plans[0], plans[1][:1], int(rng.integers(33, 44)) * plans[0]]
        yield Case("a long one", *problem, long, None, about=["value"])
        yield Case("no step", *problem, [[]], None, about=["value"])


class HiddenAheadOfTimeTable(AheadOfTimeTable):
    """A function with one result a row, and buckets in another order."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        sizes = [int(n) for n in rng.permutation([1, 2, 3, 4])]
        x = rng.standard_normal((sum(sizes), 3)).astype(np.float32)
        yield Case("buckets in another order", "squares", [2, 4], x, sizes, WRONG_SHAPES)


HIDDEN = [
    HiddenMaskedMeanLoss,
    HiddenCompileBudgetTest,
    HiddenStaticConfig,
    HiddenLearningRateLoop,
    HiddenAheadOfTimeTable,
]
