"""Chapter 03 · Choosing a derivative: the cases that learners don't see.

Each asks what a shallow answer gets wrong: other values, another shape, another loss. They
reuse the public shapes where they can, so that a right answer compiles next to nothing for them.
"""

from collections.abc import Iterator

import numpy as np

from helpers.exercise import Case
from helpers.exercises.derivatives import (
    CURVED,
    DRAWN,
    SQUARES,
    TAGGED,
    GaussNewtonProduct,
    HessianDiagonal,
    ImplicitFixedPoint,
    ModeFromShapes,
    NewtonByProducts,
    bowl,
    functions,
    landscapes,
    layer,
    systems,
)


class HiddenModeFromShapes(ModeFromShapes):
    """An axis of length 1, and other values."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        problems = functions(rng, [([1, 3, 4], [5])])
        yield Case("a first axis of length 1", "tagged", problems, about=TAGGED)
        loop = functions(rng, [([2], [5])])
        yield Case("another loop, traced", "loop", loop, about=["mode", "numbers"])


class HiddenNewtonByProducts(NewtonByProducts):
    """Other systems and other landscapes."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        solve = "solve", systems(rng), 3
        yield Case("other systems", *solve, about=["best", "edges", "curvature"])
        newton = "newton", landscapes(rng, 4), 4
        yield Case("other Newton steps", *newton, about=["step", "curvature"])
        yield Case("a longer program", "trace", {}, 5, about=["memory"])


class HiddenGaussNewtonProduct(GaussNewtonProduct):
    """Another loss, and other values."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case("other squares", "run", layer(rng, "squares"), about=SQUARES)
        yield Case("another cross-entropy", "run", layer(rng, "entropy"), about=CURVED)
        yield Case("a mixed loss", "run", layer(rng, "fourth"), about=CURVED)
        yield Case("the same program", "trace", {}, about=["memory"])


class HiddenHessianDiagonal(HessianDiagonal):
    """Other functions and other keys."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case("another diagonal Hessian", "run", *bowl(rng, "diagonal"), about=["exact"])
        yield Case("other pairs, other keys", "run", *bowl(rng, "pairs"), about=DRAWN)
        yield Case("the same program", "trace", about=["memory"])


class HiddenImplicitFixedPoint(ImplicitFixedPoint):
    """Other equations."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield from super().cases(rng)


HIDDEN = [
    HiddenModeFromShapes,
    HiddenNewtonByProducts,
    HiddenGaussNewtonProduct,
    HiddenHessianDiagonal,
    HiddenImplicitFixedPoint,
]
