"""Chapter 02 · NaN safety: the cases that learners don't see.

Each asks what a shallow answer gets wrong: another place for the padding, an edge behind an edge.
"""

from collections.abc import Iterator

import numpy as np

from helpers.exercise import Case
from helpers.exercises.nan_safety import (
    CosineSimilarity,
    FindAndMend,
    MaskedLogSumExp,
    PaddedCrossEntropy,
    SafeArccos,
    batch,
    clip,
    far_below,
    huge,
    pairs,
    selection,
    weights,
)


class HiddenCosineSimilarity(CosineSimilarity):
    """Other vectors, in another order."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        a, b = pairs(rng)
        order = rng.permutation(len(a))
        yield Case("other pairs", b[order], a[order])


class HiddenMaskedLogSumExp(MaskedLogSumExp):
    """The largest number is masked, and other edges."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        m, _ = False, True
        a, b, c, d = rng.uniform(-3.0, 3.0, 4).astype(np.float32)
        rows = {
            "the largest number masked": ([a, 1e30, c, d], [_, m, _, _]),
            "logits around −1000": ([a - 1000, b - 1000, c, d - 999], [_, _, m, _]),
            "one selected": ([a, b, c, d], [m, m, _, m]),
            "equal numbers": ([b, b, b, b], [_, _, _, m]),
            "two times −1e8": ([-1e8, -1e8, c, d], [_, _, m, m]),
            "numbers as large as float32 holds": ([3e38, -3e38, a, 3e38], [_, _, _, _]),
            "NaN and ∞, nothing selected": ([np.nan, np.inf, -np.inf, a], [m, m, m, m]),
            "nothing but −∞, all selected": ([-np.inf] * 4, [_, _, _, _]),
            "NaN masked beside a selected −∞": ([np.nan, -np.inf, c, d], [m, _, _, _]),
        }
        names = [str(name) for name in rng.permutation(list(rows))]
        yield Case("nine other rows", *selection({name: rows[name] for name in names}))
        yield Case("other numbers down to −1e35", *far_below(rng), about=["value", "gradient"])


class HiddenPaddedCrossEntropy(PaddedCrossEntropy):
    """Padding elsewhere, and other things in it."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        batches = {
            "value": batch(rng, [0, 1, 1, 0], [0, 1, 1, 1, 0], fill=50.0, label=3),
            "value ": batch(rng, [0, 0, 1, 0], [1, 0, 1, 1, 1], fill=0.0, label=0),
            "value  ": huge(rng),
            "far": batch(rng, [1, 1, 0, 1], [1, 1, 1, 0, 1], fill=0.0, label=0, gap=1e4),
            "padding": batch(rng, [0, 1, 0, 1], [1, 0, 1, 1, 1], fill=np.inf, label=2**31 - 1),
            "padding ": batch(rng, [1, 0, 1, 1], [0, 1, 1, 1, 1], fill=np.nan, label=-100),
            "empty": batch(rng, [0, 0, 0, 0], [1, 1, 1, 1, 1], fill=-np.inf, label=5),
        }
        yield Case("seven other batches", batches)


class HiddenSafeArccos(SafeArccos):
    """Points closer to where the slope is capped."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        near = 1 - rng.uniform(2e-4, 4e-4)
        closer = 1 - rng.uniform(1e-6, 3e-5)
        inner = rng.uniform(0.1, 0.95)
        x = [near, -near, closer, -closer, inner, -inner, rng.uniform(1.0, 9.0), -1.0]
        yield Case("other numbers", np.array(x, np.float32), np.float32(-rng.uniform(1.5, 4.0)))


class HiddenFindAndMend(FindAndMend):
    """Two stages that break, and clips that are nearly steady."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        chains = [
            [["root", "shift", "log"], [0.0, 4.0, 9.0]],
            [["root", "square", "outer root"], [0.0, 4.0, 9.0]],
            [["square", "log", "shift"], [2.0, 0.0, -3.0]],
            [["shift", "root", "exp"], [2.0, 1.0, 9.0]],
            [["exp", "root", "shift"], [-1.0, 0.0, 2.0]],
        ]
        order = rng.permutation(len(chains))
        yield Case(
            "other chains",
            "culprit",
            [chains[number] for number in order],
            about=["forward", "backward", "none"],
        )
        steady = rng.uniform(0.5, 1.0, (1, 3)) + clip(rng, 1e-3)
        networks = [
            [*weights(rng), steady.astype(np.float32)],
            [*weights(rng), clip(rng, 3.0)],
            [*weights(rng, idle=True), clip(rng, 1e-2)],
            [*weights(rng, idle=True), clip(rng, 0.0)],
        ]
        yield Case("other clips", "mend", networks, about=["score", "gradient", "mended"])


HIDDEN = [
    HiddenCosineSimilarity,
    HiddenMaskedLogSumExp,
    HiddenPaddedCrossEntropy,
    HiddenSafeArccos,
    HiddenFindAndMend,
]
