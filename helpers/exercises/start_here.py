"""Chapter 00 · Start here: the public cases, probe and judge of each exercise, and the quiz.

JAX is imported inside probes only, so that the judge's side needs nothing but NumPy.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from helpers import expect
from helpers.exercise import Case, Exercise, Property, Row, error_name
from helpers.quiz import Question

Array = npt.NDArray[Any]


# --- 0.0, the example on which the chapter shows what a check says --------------------------------


class RelativeError(Exercise):
    """How far off, measured by the size of the reference."""

    id = "0.0"
    title = "A relative error"
    answer = "relative_error"
    properties = {
        "size": Property("is |got − want| / |want|", see="0.4"),
        "sign": Property("is right for a negative reference too", see="0.4"),
    }
    points = 2
    minutes = 1

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case("got 3.0, want 2.0", 3.0, 2.0, about=["size"])
        yield Case("got 1.0, want 2.0", 1.0, 2.0, about=["size"])
        yield Case("got −1.0, want −2.0", -1.0, -2.0, about=["sign"])

    def probe(
        self, relative_error: Callable[..., Any], got: float, want: float
    ) -> Mapping[str, Any]:
        return {"error": relative_error(got, want)}

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        got, want = case
        key = "sign" if want < 0 else "size"
        hint = "Take the absolute value of the reference as well."
        yield expect.close(key, seen["error"], abs(got - want) / abs(want), rtol=1e-6, hint=hint)


# --- 0.1 -----------------------------------------------------------------------------------------


class Logistic(Exercise):
    """1 / (1 + exp(−x)), with nothing lost at either end."""

    id = "0.1"
    title = "A logistic function that matches float64 at ±100"
    answer = "logistic"
    properties = {
        "middle": Property(
            "is within 1e-5 of float64, relatively, between −10 and 10", 1, see="0.4"
        ),
        "ends": Property("is so far out too, in both directions", 1.5, see="0.4"),
        "slope": Property(
            "has a slope within 1e-6 of float64 everywhere, and never NaN", 1.5, see="0.6"
        ),
    }
    points = 4
    difficulty = 1
    importance = 3
    minutes = 10

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        near = float32([-10, -7.5, -3, -1, 0, 2, 6, 10])
        yield Case("8 numbers from −10 to 10", near, about=["middle", "slope"])
        far = float32([-100, -85, -60, -20, 20, 60, 85, 100])
        yield Case("8 numbers from −100 to 100", far, about=["ends", "slope"])

    def probe(self, logistic: Callable[..., Any], x: Array) -> Mapping[str, Any]:
        import jax
        import jax.numpy as jnp

        @jax.jit
        def value_and_slope(x: Any) -> tuple[Any, Any]:
            value, pull = jax.vjp(logistic, x)
            return value, None if value is None else pull(jnp.ones_like(value))[0]

        value, slope = value_and_slope(x)
        with np.errstate(all="ignore"):
            digits = np.log10(np.asarray(value, np.float64))
        return {"value": value, "slope": slope, "log10 of the value": digits}

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        (x,) = case
        value, slope = logistic64(x)
        key = "middle" if np.max(np.abs(x)) <= 10 else "ends"
        hint = "" if key == "middle" else "A tiny value needs its digits as much as a large one."
        yield expect.close(key, seen["value"], value, rtol=1e-5, atol=SMALLEST, hint=hint)
        hint = "A function with a corner has no slope there: JAX picks one."
        if expect.finite("slope", seen["slope"]).passed is False:
            hint = "`where` picks a value, but the slope runs through both of its branches."
        yield expect.close("slope", seen["slope"], slope, rtol=0.0, atol=1e-6, hint=hint)


SMALLEST = float(np.finfo(np.float32).tiny)
"""Below it, CPUs flush float32 to zero."""


def float32(numbers: Any) -> Array:
    """The numbers as a NumPy array of float32."""
    return np.asarray(numbers, np.float32)


def logistic64(x: Array) -> tuple[Array, Array]:
    """The logistic function and its slope in float64, accurate at both ends."""
    small = np.exp(-np.abs(x.astype(np.float64)))
    return np.where(x >= 0, 1.0, small) / (1.0 + small), small / (1.0 + small) ** 2


# --- 0.2 -----------------------------------------------------------------------------------------


class SumError(Exercise):
    """A ruler for sums, and a sum that it finds nothing wrong with."""

    id = "0.2"
    title = "The error of a float32 sum in ULPs, and a careful sum"
    answer = ("ulps_off", "careful_sum")
    properties = {
        "unit": Property("`ulps_off` counts in float32 gaps at the exact sum", 1, see="0.3"),
        "reference": Property(
            "`ulps_off` compares with the float64 sum, and in float64", 1, see="0.7"
        ),
        "sum": Property("`careful_sum` is off by 4 ULPs at most", 1.5, see="0.7"),
        "jit": Property("`careful_sum` runs under `jax.jit`, where all is float32", 0.5, see="0.7"),
    }
    points = 4
    difficulty = 2
    importance = 2
    minutes = 20

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        short = [almost_two(1.0), some_ulps_off(rng, -1.0), some_ulps_off(rng, 1.0)]
        yield Case(
            "2 or 3 numbers, with a total that is a few ULPs off", "off", short, about=["unit"]
        )
        long = [in_order(one_large(1.0)), in_order(a_drifting_constant(rng))]
        yield Case("1001 numbers that were added in order", "off", long, about=["reference"])
        sums = [one_large(1.0), one_large(-1.0), a_drifting_constant(rng), uneven(rng)]
        yield Case(
            "1001 numbers: one large among small ones, of either sign; a constant; random ones",
            "add", sums, about=["sum", "jit"],
        )  # fmt: skip

    def probe(
        self,
        ulps_off: Callable[..., Any],
        careful_sum: Callable[..., Any],
        task: str,
        inputs: Sequence[Any],
    ) -> Mapping[str, Any]:
        import jax
        import jax.numpy as jnp

        if task == "off":
            return {"ulps": [ulps_off(jnp.float32(total), jnp.asarray(x)) for total, x in inputs]}
        jitted = jax.jit(careful_sum)
        error = error_name(lambda: jitted(inputs[0]))
        add = careful_sum if error else jitted
        sums = [add(x) for x in inputs]
        off = [signed_ulps(total, x) for total, x in zip(sums, inputs, strict=True)]
        return {"sums": sums, "ULPs off": off, "error under jit": error}

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        task, inputs = case
        if task == "off":
            key = "unit" if all(len(x) <= 3 for _, x in inputs) else "reference"
            for (total, x), ulps in zip(inputs, seen["ulps"], strict=True):
                want = off_by(float(total), x)
                hint = f"The total is {total:.9g}, the exact sum {exact(x):.12g}."
                yield expect.close(key, ulps, want, rtol=1e-4, atol=1e-3, hint=hint)
            return
        for x, total in zip(inputs, seen["sums"], strict=True):
            yield judge_sum(x, total)
        hint = "Write it with jnp or lax: a traced array is no NumPy array, and never float64."
        yield expect.equal("jit", seen["error under jit"] or "no error", "no error", hint=hint)
        near = [abs(off) * gap(1.0) < 0.01 for off in seen["ULPs off"]]
        yield expect.true("jit", all(near), seen="a result that is no sum")


def judge_sum(x: Array, total: Any) -> Row:
    """The row on one sum; its error in ULPs where it is one number."""
    row = expect.close("sum", total, exact(x), rtol=0.0, atol=4 * gap(exact(x)))
    if row.passed or total is None or np.shape(total) != ():
        return row
    hint = (
        f"Adding in order is off by {in_order_error(x):.4g} ULPs here. XLA may make one sum of "
        "several `jnp.sum`; slices that you add stay as you wrote them."
    )
    return expect.at_most("sum", off_by(float(total), x), 4, unit="ULPs", hint=hint)


def exact(x: Array) -> float:
    """The sum of the numbers, rounded once, to float64."""
    return math.fsum(x.astype(np.float64))


def gap(number: float) -> float:
    """The float32 gap at a number: one ULP."""
    return float(np.spacing(np.float32(abs(number))))


def off_by(total: float, x: Array) -> float:
    """By how many float32 gaps a total is off."""
    return abs(total - exact(x)) / gap(exact(x))


def signed_ulps(total: Any, x: Array) -> float:
    """By how many gaps a total is too large; NaN where it is not one number."""
    try:
        return (float(total) - exact(x)) / gap(exact(x))
    except (TypeError, ValueError):
        return math.nan


def in_order(x: Array) -> tuple[np.float32, Array]:
    """The float32 total of adding the numbers one after the other, and the numbers."""
    return np.cumsum(x, dtype=np.float32)[-1], x


def in_order_error(x: Array) -> float:
    """By how many ULPs that total is off."""
    return off_by(float(in_order(x)[0]), x)


# Inputs: float32 arrays whose naive sums fail for different reasons.

COUNT = 1001


def almost_two(sign: float) -> tuple[np.float32, Array]:
    """A total just above 2 of numbers whose sum is just below: the gap there is half as large."""
    below = np.float32(1 - 2**-23)
    return np.float32(sign * (2 + 2**-22)), float32([sign, sign * below])


def some_ulps_off(rng: np.random.Generator, sign: float) -> tuple[np.float32, Array]:
    """Three numbers that add up exactly, and a total that is 3 to 40 ULPs from their sum."""
    x = float32(sign * rng.integers(9, 60, 3) / 8)
    off = int(rng.integers(3, 40)) * gap(exact(x))
    return np.float32(exact(x) + off), x


def one_large(scale: float, place: int = 0) -> Array:
    """2²⁴ among ones, each of which is lost when it is added to the large one. Times the scale."""
    x = np.ones(COUNT, np.float32)
    x[place] = 2**24
    return x * np.float32(scale)


def a_drifting_constant(rng: np.random.Generator, sign: float = 1.0) -> Array:
    """One number, repeated: the roundings of its running sum all go the same way.

    It is chosen so that the error is large and no whole number of ULPs.
    """
    while True:
        x = np.full(COUNT, sign * rng.uniform(0.1, 1.0), np.float32)
        error = in_order_error(x)
        if error > 100 and 0.1 < error % 1 < 0.4:
            return x


def uneven(rng: np.random.Generator) -> Array:
    """Random numbers of any sign and several sizes, with a sum that is not near zero."""
    return float32(rng.normal(size=COUNT) * 10.0 ** rng.integers(-3, 2, COUNT) + 5.0)


EXERCISES = [Logistic, SumError]
EXAMPLES = [RelativeError]


# --- quiz ----------------------------------------------------------------------------------------


def _next_after_2_24() -> str:
    total = int(np.float32(2**24) + np.float32(1))
    return {2**24: "a", 2**24 + 1: "b", 2**24 + 2: "c"}[total]


def _asked_for_float64() -> str:
    import warnings

    import jax.numpy as jnp

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        dtype = jnp.zeros(3, dtype=jnp.float64).dtype
    return "a" if dtype == np.float64 else "b" if said else "c"


def _half_an_ulp() -> str:
    from helpers.oracle import ulps

    error = float(ulps(np.float32(0.5), 0.5 + 2.0**-25))
    return {0.25: "a", 0.5: "b", 1.0: "c"}[error]


def _allclose_of_small() -> str:
    both = np.allclose(2e-9, 1e-9), np.allclose(2.0, 1.0)
    return {(True, True): "a", (True, False): "b", (False, False): "c"}[both]


def _infinite_reference() -> str:
    def passes(got: float, want: float = math.inf) -> bool:
        return abs(got - want) <= 1e-8 + 1e-5 * abs(want)

    return {(True, False): "a", (False, True): "b", (True, True): "c"}[
        passes(3.0), passes(math.inf)
    ]


def _nan_in_a_check() -> str:
    error = np.array([0.0, np.nan])
    first, second = not (error > 1e-6).any(), bool((error <= 1e-6).all())
    return {(True, False): "a", (False, True): "b", (False, False): "c"}[first, second]


def _most_accurate_sum() -> str:
    x = np.full(100_000, 0.1, np.float32)
    sums = {"a": np.cumsum(x)[-1], "b": np.cumsum(np.sort(x))[-1], "c": np.sum(x)}
    error = {letter: abs(float(total) - exact(x)) for letter, total in sums.items()}
    return min(error, key=lambda letter: error[letter])


QUIZ = [
    Question(
        "0.a",
        "What is `np.float32(2**24) + np.float32(1)`?",
        {"a": "16777216", "b": "16777217", "c": "16777218"},
        answer="a",
        why="From 2²⁴ up the gap is 2; halfway between two numbers, the even one wins.",
        see="0.3",
        run=_next_after_2_24,
    ),
    Question(
        "0.b",
        "You call `jnp.zeros(3, dtype=jnp.float64)` in a fresh Python, with no setting changed. "
        "You get",
        {"a": "float64", "b": "float32, and a warning", "c": "float32, without a word"},
        answer="b",
        why="JAX computes in 32 bits unless `jax_enable_x64` is on; the warning is easy to miss.",
        see="0.2",
        run=_asked_for_float64,
    ),
    Question(
        "0.c",
        "The gap at 0.5 is 2⁻²⁴ in float32. A result is 0.5, and float64 says 0.5 + 2⁻²⁵. By how "
        "many ULPs is it off?",
        {"a": "a quarter", "b": "half", "c": "one"},
        answer="b",
        why="Half a gap is what rounding alone costs; no float32 result can promise less.",
        see="0.3",
        run=_half_an_ulp,
    ),
    Question(
        "0.d",
        "Which of `np.allclose(2e-9, 1e-9)` and `np.allclose(2.0, 1.0)` are true?",
        {"a": "both", "b": "the first", "c": "neither"},
        answer="b",
        why="Below 1e-8 its default atol accepts anything, even twice the right value.",
        see="0.4",
        run=_allclose_of_small,
    ),
    Question(
        "0.e",
        "`abs(got - want) <= 1e-8 + 1e-5 * abs(want)`, and `want` is infinite. What passes?",
        {
            "a": "any finite `got`, and not the right one",
            "b": "only an infinite `got`",
            "c": "everything",
        },
        answer="a",
        why="∞ ≤ ∞ is true for a finite `got`; for the right one, ∞ − ∞ is NaN, and that is not.",
        see="0.4",
        run=_infinite_reference,
    ),
    Question(
        "0.f",
        "`error` holds a NaN. Which of `assert not (error > tol).any()` and "
        "`assert (error <= tol).all()` let it pass?",
        {"a": "the first", "b": "the second", "c": "neither"},
        answer="a",
        why="Every comparison with NaN is false, so ask for what you want, not for its opposite.",
        see="0.4",
        run=_nan_in_a_check,
    ),
    Question(
        "0.g",
        "Which float32 sum of 100 000 times 0.1 is the most accurate?",
        {"a": "in order", "b": "sorted, then in order", "c": "in pairs, as `np.sum` adds"},
        answer="c",
        why="Equal numbers are sorted already. In pairs, each is rounded 17 times, not 100 000.",
        see="0.7",
        run=_most_accurate_sum,
    ),
    Question(
        "0.h",
        "You changed your answer, and the self-check below says the same as before. What did you "
        "most likely forget?",
        {
            "a": "to run the answer's cell again",
            "b": "to save the notebook",
            "c": "to restart the kernel",
        },
        answer="a",
        why="The check looks up the name in the running kernel, not at what the page shows.",
        see="0.1",
    ),
]
