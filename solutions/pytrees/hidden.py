"""Chapter 07 · Pytrees: the cases that learners don't see.

Each asks what a shallow answer gets wrong: another nest, other keys, other numbers. Where something
is compiled they keep the public shapes.
"""

from collections.abc import Iterator

import numpy as np

from helpers.exercise import Case
from helpers.exercises.pytrees import (
    MIXED,
    MaskByPath,
    OwnContainer,
    OwnTrainState,
    ParameterTable,
    TreeToVector,
    dense,
    factors,
    leaf,
    numbers_of,
    training,
)


class HiddenOwnTrainState(OwnTrainState):
    """Other numbers, another rate, another nest."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        *inputs, rate, _ = training(rng, rate=0.25)
        yield Case("other numbers", "steps", *inputs, rate, 0.6, about=["value"])
        params, grads, key_data, rate, decay = training(rng)
        params = {"deep": {"nest": params}, "a": params["b"]}
        yield Case("another nest", "form", params, grads, key_data, rate, decay, about=["leaves"])
        yield Case("other leaves", "holds", params, grads, key_data, rate, decay, about=["holds"])
        yield Case("a smaller decay", "static", *inputs, 0.125, 0.75, about=["static"])


class HiddenParameterTable(ParameterTable):
    """Other sizes, containers without names, one array alone, layers beyond the ninth."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        a, b, c = (int(n) for n in rng.integers(2, 9, 3))
        yield Case("one array of float16 alone", leaf(a, b, dtype="float16"), "jax",
                   about=["paths", "bytes", "subtotals"])  # fmt: skip
        layers = [[f"layer{n}", dense("dict", a, c)] for n in rng.permutation(12)]
        yield Case("twelve layers in any order", ["dict", layers], "numpy")
        nest = ["list", [["plain", [leaf(a), dense("pair", b, c)]], ["record", [leaf(), leaf(b)]]]]
        yield Case("a container without names", nest, "numpy", about=["paths", "subtotals"])
        whole = ["dict", [["a", leaf(60_000, 50_000, dtype="bfloat16")], ["a/a", leaf(a)]]]
        yield Case("another giant", whole, "shapes", about=["bytes"])


class HiddenMaskByPath(MaskByPath):
    """Another model, and patterns that fit no more than a part of a path."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        width = int(rng.integers(2, 9))
        tower = ["list", [dense("record", width, 3), ["none"], dense("pair", 3, width)]]
        plan = ["dict", [["left", tower], ["right", tower], ["w", leaf(2)], ["bw", leaf(1)]]]
        rules = [["left/2/*", "a"], ["left/*", False], ["w", "b"], ["*/b", True]]
        yield Case("two towers", plan, rules, "rest")
        rules = [["*w", False], ["right/?/w", True]]
        yield Case("a pattern in the shade", plan, rules, True, about=["unmatched"])
        for pattern in ("left", "?/w", "*/W"):
            rules = [["*", True], [pattern, False]]
            yield Case(f"{pattern!r} fits nothing", plan, rules, False, about=["unmatched"])


class HiddenOwnContainer(OwnContainer):
    """Other numbers and another scale."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        *arrays, scale = factors(rng)
        yield Case("other numbers", "value", *arrays, -scale, about=["value"])
        yield Case("another product at 50,000 × 70,000", "thin", *arrays, scale, about=["thin"])
        yield Case("another stack", "holds", *arrays, scale / 4, about=["holds"])
        yield Case("another scale", "static", *arrays, scale / 8, about=["static"])


class HiddenTreeToVector(TreeToVector):
    """Other numbers."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case("other numbers", numbers_of(rng, MIXED), False,
                   about=["vector", "back", "others", "length"])  # fmt: skip
        yield Case("another bfloat16 leaf", numbers_of(rng, ["m", "w"]), False, about=["bfloat16"])
        yield Case("another key", numbers_of(rng, ["key", "w"]), False, about=["others"])
        yield Case("another gradient", numbers_of(rng, ["w"]), True, about=["slopes"])


HIDDEN = [
    HiddenOwnTrainState,
    HiddenParameterTable,
    HiddenMaskByPath,
    HiddenOwnContainer,
    HiddenTreeToVector,
]
