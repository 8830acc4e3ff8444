"""Hidden cases of the made-up chapter."""

from collections.abc import Iterator

import numpy as np

from helpers.exercise import Case
from helpers.exercises.tiny import SafeMean


class HiddenSafeMean(SafeMean):
    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield from super().cases(rng)
        yield Case("all are selected", rng.normal(size=3), np.ones(3, bool), about=["value"])


HIDDEN = [HiddenSafeMean]
