"""Chapter 00 · Start here: the cases that learners don't see.

Other numbers, other signs, other sizes; an array with two axes, and one of a single number.
"""

from collections.abc import Iterator

import numpy as np

from helpers.exercise import Case
from helpers.exercises.start_here import (
    Logistic,
    SumError,
    a_drifting_constant,
    almost_two,
    float32,
    in_order,
    one_large,
    some_ulps_off,
    uneven,
)


class HiddenLogistic(Logistic):
    """Random numbers with 0 among them, and numbers beyond everything that `exp` can hold."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        near = float32([*rng.uniform(-9, 9, 7), 0.0])
        yield Case("other numbers between −10 and 10", near, about=["middle", "slope"])
        beyond = [-1e4, 1e4, -rng.uniform(89, 103), rng.uniform(89, 103)]
        far = float32([*rng.uniform(-86, -18, 2), *rng.uniform(18, 86, 2), *beyond])
        yield Case("8 large numbers in two rows", far.reshape(2, 4), about=["ends", "slope"])


class HiddenSumError(SumError):
    """Other sums of both signs, scaled up or down, and the sum of one number."""

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        sign = float(rng.choice([-1.0, 1.0]))
        scale, place = sign * 2.0 ** int(rng.integers(-30, 30)), 32 * int(rng.integers(2, 10))
        short = [almost_two(-1.0), some_ulps_off(rng, -1.0), some_ulps_off(rng, 1.0)]
        yield Case("short sums of both signs", "off", short, about=["unit"])
        long = [in_order(one_large(scale, place)), in_order(a_drifting_constant(rng, -sign))]
        yield Case("long sums of both signs", "off", long, about=["reference"])
        sums = [one_large(scale, place), a_drifting_constant(rng, -sign), uneven(rng)]
        yield Case("other sums of 1001 numbers", "add", sums, about=["sum", "jit"])
        one = float32(rng.normal(size=1))
        yield Case("a sum of one number", "add", [one], about=["sum", "jit"])


HIDDEN = [HiddenLogistic, HiddenSumError]
