"""Chapter 02 · NaN safety: the public cases, probe and judge of each exercise, and the quiz.

JAX is imported inside probes only, so that the judge's side needs nothing but NumPy.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from helpers import expect
from helpers.exercise import Case, Exercise, Property, Row
from helpers.quiz import Question

Array = npt.NDArray[Any]
Inf, NaN = np.inf, np.nan


def program(answer: Any, make: Callable[[Any], Callable[..., Any]]) -> Callable[..., Any]:
    """`make(answer)`, jitted so that every device and compiler says the same of it.

    Matrix products are full float32. XLA may turn `x * mask` into a selection, which hides that
    0 · NaN is NaN, or not, as it pleases; here it may not. The hidden cases run the program that
    the public ones have compiled.
    """
    import jax

    if id(answer) not in _programs:
        options: Any = {"xla_disable_hlo_passes": "algsimp", "xla_backend_optimization_level": 0}
        _programs[id(answer)] = answer, jax.jit(make(answer), compiler_options=options)
    run = _programs[id(answer)][1]

    def precise(*inputs: Any) -> Any:
        with jax.default_matmul_precision("highest"):
            return run(*inputs)

    return precise


_programs: dict[int, tuple[Any, Any]] = {}
"""Answers with their programs. `forget` empties it before public cases: a learner may have changed
a function that the answer calls, which the program would not notice."""


def forget() -> None:
    """Before a check in a notebook: compile the answer again."""
    _programs.clear()


# --- 2.1 -----------------------------------------------------------------------------------------


class CosineSimilarity(Exercise):
    """A quotient of which both parts vanish at the zero vector."""

    id = "2.1"
    title = "Cosine similarity that survives a zero vector"
    answer = "cosine"
    properties = {
        "value": Property("is the cosine of the angle, for vectors of any length", see="2.5"),
        "zero": Property("is 0 where a vector is zero", see="2.3"),
        "gradient": Property("has the gradient of the cosine", see="2.3"),
        "zero gradient": Property("has a gradient of 0 where a vector is zero", see="2.3"),
    }
    points = 4
    difficulty = 1
    importance = 3
    minutes = 15

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        forget()
        yield Case("eight pairs at once, under jit, vmap and grad", *pairs(rng))

    def probe(self, cosine: Callable[..., Any], a: Array, b: Array) -> Mapping[str, Any]:
        (_, values), slopes = program(cosine, batched_cosine)(a, b)
        slopes_a, slopes_b = map(np.asarray, slopes)
        return {"values": values, "gradient of a": list(slopes_a), "gradient of b": list(slopes_b)}

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        a, b = (each.astype(np.float64) for each in case)
        values = np.asarray(seen["values"])
        if values.shape != (len(a),):
            yield from (expect.close(key, values, np.zeros(len(a))) for key in self.properties)
            return
        for row, (x, y) in enumerate(zip(a, b, strict=True)):
            want, slope_x, slope_y = cosine_and_slopes(x, y)
            lengths = np.linalg.norm(x), np.linalg.norm(y)
            where = "That is the pair of lengths {:.1g} and {:.1g}.".format(*lengths)
            got = [seen["gradient of a"][row], seen["gradient of b"][row]]
            if 0 in lengths:
                yield expect.close("zero", values[row], 0.0, hint=where)
                for name, slope in zip("ab", got, strict=True):
                    hint = f"{where} It is the gradient with respect to {name}."
                    yield expect.close("zero gradient", slope, np.zeros(len(x)), hint=hint)
            else:
                yield expect.close("value", values[row], want, atol=1e-4, rtol=0, hint=where)
                for slope, exact, length in zip(got, (slope_x, slope_y), lengths, strict=True):
                    tolerance = 1e-3 / float(length)
                    hint, see = where, ""
                    if not np.all(np.isfinite(slope)):  # where the value may be all right
                        hint += " The slope of 1/√y at y = 1e-32 is 1e48: no float32 holds it."
                        see = "2.2"
                    yield expect.close(
                        "gradient", slope, exact, atol=tolerance, rtol=0, hint=hint, see=see
                    )


def batched_cosine(cosine: Callable[..., Any]) -> Callable[..., Any]:
    """The cosines of all rows, and the gradients of their sum."""
    import jax

    def total(a: Any, b: Any) -> Any:
        values = jax.vmap(cosine)(a, b)
        return values.sum(), values

    return jax.value_and_grad(total, (0, 1), has_aux=True)


LENGTHS = ((1, 1), (0, 1), (3, 0), (0, 0), (1e-8, 1e-8), (1e8, 1e8), (1e-7, 1e7), (2, 1))
"""Of the pairs in exercise 2.1; in the last one each vector has a component of 0."""


def pairs(rng: np.random.Generator) -> tuple[Array, Array]:
    """Two float32 arrays of shape (8, 4), with |cos| between 0.2 and 0.98 in each ordinary row."""
    a, b = np.zeros((2, len(LENGTHS), 4))
    for row, (long_a, long_b) in enumerate(LENGTHS):
        while True:
            x, y = rng.uniform(0.2, 1.0, (2, 4)) * rng.choice([-1, 1], (2, 4))
            if row == len(LENGTHS) - 1:
                x[1] = y[2] = 0.0
            x, y = x / np.linalg.norm(x), y / np.linalg.norm(y)
            if 0.2 < abs(x @ y) < 0.98:
                break
        a[row], b[row] = long_a * x, long_b * y
    return a.astype(np.float32), b.astype(np.float32)


def cosine_and_slopes(x: Array, y: Array) -> tuple[Any, Array, Array]:
    """The cosine of two nonzero vectors and its two gradients in float64; zeros for a zero one."""
    long_x, long_y = np.linalg.norm(x), np.linalg.norm(y)
    if 0 in (long_x, long_y):
        return 0.0, np.zeros_like(x), np.zeros_like(y)
    u, v = x / long_x, y / long_y
    return u @ v, (v - (u @ v) * u) / long_x, (u - (u @ v) * v) / long_y


# --- 2.2 -----------------------------------------------------------------------------------------


class MaskedLogSumExp(Exercise):
    """A logsumexp over a selection, which may be empty."""

    id = "2.2"
    title = "Masked logsumexp, with rows in which nothing is selected"
    answer = "masked_logsumexp"
    properties = {
        "value": Property(
            "is the logsumexp of what is selected, for numbers of any size", see="2.6"
        ),
        "gradient": Property(
            "has the softmax of what is selected as its gradient, in both modes", see="2.6"
        ),
        "masked": Property("does not see what is not selected, NaN and ∞ included", see="2.6"),
        "empty": Property("is −∞ with a gradient of 0 where nothing is selected", see="2.6"),
        "infinite": Property("takes a selected −∞ for exp(x) = 0, with a gradient of 0", see="2.6"),
    }
    points = 5
    difficulty = 2
    importance = 3
    minutes = 20

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        forget()
        m, _ = False, True  # masked, selected
        a, b, c, d = rng.uniform(-2.0, 2.0, 4).astype(np.float32)
        rows: dict[str, tuple[Sequence[Any], Sequence[Any]]] = {
            "everything selected": ([a, b, c, d], [_, _, _, _]),
            "three times 1e8": ([1e8, 1e8, d, 1e8], [_, _, _, _]),
            "two selected": ([b, c, d, a], [_, m, m, _]),
            "logits around 1000": ([a + 1000, b + 1000, c - 1000, d], [_, _, _, _]),
            "nothing selected": ([d, c, b, a], [m, m, m, m]),
            "NaN masked": ([a, NaN, c, d], [_, m, _, m]),
            "∞ and −∞ masked": ([Inf, b, c, -Inf], [m, _, _, m]),
            "a selected −∞": ([a, -Inf, c, d], [_, _, _, m]),
            "nothing but −∞ selected": ([-Inf, b, -Inf, d], [_, m, _, m]),
        }
        yield Case("nine rows, one for each trap", *selection(rows))
        about = ["value", "gradient"]
        yield Case("nine rows of numbers down to −1e35", *far_below(rng), about=about)

    def probe(
        self, masked_logsumexp: Callable[..., Any], x: Array, mask: Array, names: Sequence[str]
    ) -> Mapping[str, Any]:
        values, slopes, moved = program(masked_logsumexp, both_modes)(x, mask, TANGENT)
        return {"values": values, "gradient": list(np.asarray(slopes)), "moved": moved}

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        x, mask, names = case
        values, slopes = np.asarray(seen["values"]), seen["gradient"]
        moved = np.asarray(seen["moved"])
        if values.shape != (len(x),):
            yield from (expect.close(key, values, np.zeros(len(x))) for key in self.properties)
            return
        for row, name in enumerate(names):
            want, slope = logsumexp_and_slope(x[row].astype(np.float64), mask[row])
            one, other = row_properties(x[row], mask[row])
            hint = f"That is the row with {name}."
            yield expect.close(one, values[row], want, rtol=1e-5, atol=1e-5, hint=hint)
            yield expect.close(other, slopes[row], slope, rtol=1e-4, atol=1e-5, hint=hint)
            hint += " That is its derivative in forward mode."
            yield expect.close(other, moved[row], slope @ TANGENT, rtol=1e-4, atol=2e-5, hint=hint)


TANGENT = np.array([0.5, -1.0, 2.0, 1.0], np.float32)
"""How the numbers of each row move, for the forward mode."""


def both_modes(masked_logsumexp: Callable[..., Any]) -> Callable[..., Any]:
    """The value of each row, the gradient of their sum, and how they move with the tangent."""
    import jax
    import jax.numpy as jnp

    def run(x: Any, mask: Any, tangent: Any) -> Any:
        tangents = jnp.broadcast_to(tangent, x.shape)
        values, moved = jax.jvp(lambda x: masked_logsumexp(x, mask), (x,), (tangents,))
        return values, jax.grad(lambda x: masked_logsumexp(x, mask).sum())(x), moved

    return run


def selection(rows: Mapping[str, tuple[Sequence[Any], Sequence[Any]]]) -> tuple[Any, ...]:
    """Inputs of exercise 2.2: float32 and bool arrays of shape (rows, 4), and the rows' names."""
    x = np.array([numbers for numbers, _ in rows.values()], np.float32)
    return x, np.array([mask for _, mask in rows.values()]), list(rows)


def far_below(rng: np.random.Generator) -> tuple[Any, ...]:
    """Inputs of exercise 2.2: in each row two or three numbers far below what is masked."""
    rows = {}
    for number in range(1, 10):
        mask = rng.permutation([True, True, number % 2 == 0, False])
        numbers = np.where(mask, -rng.uniform(1e34, 1e35, 4), rng.uniform(-2.0, 2.0, 4))
        rows[f"nothing above −1e34 selected (number {number})"] = list(numbers), list(mask)
    return selection(rows)


def row_properties(x: Array, mask: Array) -> tuple[str, str]:
    """Which properties of exercise 2.2 the value and the gradient of a row decide."""
    if not mask.any():
        return "empty", "empty"
    if np.isneginf(x[mask]).any():
        return "infinite", "infinite"
    if not np.isfinite(x).all() or np.abs(x[~mask]).max(initial=0) > 1e4:
        return "masked", "masked"
    return "value", "gradient"


def logsumexp_and_slope(x: Array, mask: Array) -> tuple[Any, Array]:
    """Logsumexp of the selected numbers in float64, and its gradient: their softmax."""
    chosen, slope = x[mask], np.zeros(len(x))
    top = chosen.max(initial=-np.inf)
    if np.isneginf(top):
        return top, slope
    exps = np.exp(chosen - top)
    slope[mask] = exps / exps.sum()
    return top + np.log(exps.sum()), slope


# --- 2.3 -----------------------------------------------------------------------------------------


class PaddedCrossEntropy(Exercise):
    """A mean over real rows of a softmax over real classes."""

    id = "2.3"
    title = "Cross-entropy of a batch with padded rows and padded classes"
    answer = "padded_cross_entropy"
    properties = {
        "value": Property(
            "is the mean over the real rows and classes, for logits of any size", see="2.7"
        ),
        "gradient": Property("has the gradient (softmax − onehot) / real rows", see="2.7"),
        "far": Property("stays finite where the label's logit is far below the largest", see="2.7"),
        "padding": Property("does not depend on what the padding holds", see="2.7"),
        "empty": Property("is 0 with a gradient of 0 if no row is real", see="2.7"),
    }
    points = 5
    difficulty = 2
    importance = 3
    minutes = 25

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        forget()
        plain = batch(rng, [1, 1, 1, 1], [1, 1, 1, 1, 1])
        zeros = batch(rng, [1, 1, 0, 1], [1, 1, 1, 1, 0], fill=0.0, label=0)
        far = batch(rng, [1, 1, 1, 0], [1, 1, 1, 1, 1], fill=0.0, label=0, gap=300.0)
        nans = batch(rng, [1, 0, 1, 1], [1, 1, 0, 1, 1], fill=NaN, label=-1)
        wide = batch(rng, [1, 1, 0, 1], [1, 1, 1, 0, 1], fill=-Inf, label=7)
        empty = batch(rng, [0, 0, 0, 0], [1, 1, 1, 1, 0], fill=NaN, label=-100)
        yield Case(
            "six batches, one for each kind of padding, and one of huge logits",
            {
                "value": plain,
                "value ": zeros,
                "value  ": huge(rng),
                "far": far,
                "padding": nans,
                "padding ": wide,
                "empty": empty,
            },
        )

    def probe(
        self, padded_cross_entropy: Callable[..., Any], batches: Mapping[str, Sequence[Any]]
    ) -> Mapping[str, Any]:
        import jax

        run = program(padded_cross_entropy, jax.value_and_grad)
        found = [run(*each) for each in batches.values()]
        return {
            "losses": [loss for loss, _ in found],
            "gradients": [list(np.asarray(slopes)) for _, slopes in found],
        }

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        (batches,) = case
        for key, each, loss, slopes in zip(
            batches, batches.values(), seen["losses"], seen["gradients"], strict=True
        ):
            key = key.strip()
            rows = int(each[2].sum())
            hint = f"That is a batch with {rows} real row{'' if rows == 1 else 's'}."
            largest = np.max(np.abs(each[0][each[2]][:, each[3]]), initial=0)
            hint += f" Its real logits go up to {largest:.0e} in size." if largest > 1e3 else ""
            want, exact = cross_entropy_and_slope(*each)
            yield expect.close(key, loss, want, rtol=1e-4, atol=1e-5, hint=hint)
            slope_key = "gradient" if key == "value" else key
            yield expect.close(slope_key, slopes, exact, rtol=1e-3, atol=1e-5, hint=hint)


def batch(
    rng: np.random.Generator,
    rows: Sequence[int],
    classes: Sequence[int],
    fill: float = 0.0,
    label: int = 0,
    gap: float = 0.0,
) -> tuple[Array, Array, Array, Array]:
    """A batch for exercise 2.3: logits, labels, and which rows and classes are real.

    fill, label: what the padding holds. gap: how far the first label's logit lies below the others.
    """
    real_rows, real_classes = np.array(rows, bool), np.array(classes, bool)
    logits = rng.uniform(-2.0, 2.0, (len(rows), len(classes)))
    labels = rng.choice(np.flatnonzero(real_classes), len(rows))
    logits[0, labels[0]] -= gap
    logits[~real_rows] = fill
    logits[:, ~real_classes] = fill
    labels[~real_rows] = label
    return logits.astype(np.float32), labels.astype(np.int32), real_rows, real_classes


def huge(rng: np.random.Generator) -> tuple[Array, Array, Array, Array]:
    """A batch for exercise 2.3 of logits so large that they have no digits behind the point.

    Their differences are whole numbers that float32 holds: 0 to 2 around 1e6, and ties at ±1e8.
    """
    logits, labels, rows, classes = batch(rng, [1, 1, 1, 0], [1, 0, 1, 1, 0], fill=NaN, label=9)
    real = np.flatnonzero(classes)
    logits[0, real] = 1e6 + rng.permutation(3)
    logits[1, real] = 1e8
    logits[2, real] = -1e8
    return logits, labels, rows, classes


def cross_entropy_and_slope(
    logits: Array, labels: Array, rows: Array, classes: Array
) -> tuple[Any, Array]:
    """The mean cross-entropy over real rows and classes and its gradient in float64."""
    loss, slopes = np.float64(0), np.zeros(logits.shape)
    for row in np.flatnonzero(rows):
        log_total, softmax = logsumexp_and_slope(logits[row].astype(np.float64), classes)
        loss += log_total - logits[row, labels[row]]
        slopes[row] = softmax
        slopes[row, labels[row]] -= 1
    count = max(int(rows.sum()), 1)
    return loss / count, slopes / count


# --- 2.4 -----------------------------------------------------------------------------------------


class SafeArccos(Exercise):
    """A rule of its own where the true slope is infinite."""

    id = "2.4"
    title = "An arccos whose rule is safe at the edge"
    answer = "safe_arccos"
    properties = {
        "value": Property("is arccos(x), and 0 or π beyond the edges", see="2.8"),
        "slope": Property("has the true slope where that is no steeper than 100", see="2.8"),
        "edge": Property("has the slope −100 near the edges, on them and beyond", see="2.8"),
        "linear": Property("has a rule that is linear in the tangent", see="2.8"),
        "second": Property("has the right second derivative, 0 where the slope is −100", see="2.8"),
    }
    points = 5
    difficulty = 2
    importance = 2
    minutes = 20

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        forget()
        x = np.array([-1.5, -1.0, -0.9, 0.6, 0.99992, 0.99999, 1.0, 1.0000001], np.float32)
        yield Case("eight numbers on both sides of the edges", x, np.float32(2.5))

    def probe(self, safe_arccos: Callable[..., Any], x: Array, tangent: Any) -> Mapping[str, Any]:
        names = "value", "value under jvp", "tangent", "slope", "second"
        found = program(safe_arccos, derivatives)(x, tangent)
        return dict(zip(names, found, strict=True))

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        x, tangent = case
        exact = x.astype(np.float64)
        inside, slope, second = capped_slopes(exact)
        want = np.arccos(np.clip(exact, -1, 1))
        for name in ("value", "value under jvp"):
            hint = "That is what the rule returns as the value." if "jvp" in name else ""
            yield expect.close("value", seen[name], want, rtol=1e-4, atol=2e-5, hint=hint)
        for number, at in enumerate(f"x = {each:.7g}" for each in x):
            key = "slope" if inside[number] else "edge"
            got = np.asarray(seen["slope"])[number], np.asarray(seen["second"])[number]
            hint = f"That is the slope at {at}."
            yield expect.close(key, got[0], slope[number], rtol=1e-3, hint=hint)
            hint = f"That is the second derivative at {at}."
            yield expect.close("second", got[1], second[number], rtol=2e-3, atol=1e-4, hint=hint)
        hint = f"The tangent that came in was {tangent}."
        slopes, moved = np.asarray(seen["slope"]), np.asarray(seen["tangent"])
        want = np.where(np.isfinite(slopes), slopes * tangent, moved)  # a NaN has its own property
        yield expect.close("linear", moved, want, rtol=1e-3, atol=1e-6, hint=hint)
        nothing = bool(np.all(moved[inside] == 0))
        yield expect.true("linear", not nothing, seen="0 for every tangent", hint=hint)


def derivatives(safe_arccos: Callable[..., Any]) -> Callable[..., Any]:
    """The value of an array; and of each number its value, tangent, slope and second derivative."""
    import jax

    def of_one(x: Any, tangent: Any) -> Any:
        slope = jax.grad(safe_arccos)
        value, moved = jax.jvp(safe_arccos, (x,), (tangent,))
        return value, moved, slope(x), jax.grad(slope)(x)

    return lambda x, tangent: (safe_arccos(x), *jax.vmap(of_one, (0, None))(x, tangent))


def capped_slopes(x: Array) -> tuple[Array, Array, Array]:
    """Where arccos is no steeper than 100; its slope, capped there; and the slope's own slope."""
    inside = np.abs(x) < 1
    radicand = np.where(inside, 1 - np.square(np.where(inside, x, 0.0)), 0.0)
    inside = radicand > 1e-4
    radicand = np.where(inside, radicand, 1e-4)
    return inside, -(radicand**-0.5), np.where(inside, -x * radicand**-1.5, 0.0)


# --- 2.5 -----------------------------------------------------------------------------------------


class FindAndMend(Exercise):
    """Where the first number that is not finite is made, and a network without it."""

    id = "2.5"
    title = "Find the operation that makes the NaN, and mend it"
    answer = ("culprit", "mended_score")
    properties = {
        "forward": Property("`culprit` finds the stage whose output breaks first", see="2.11"),
        "backward": Property(
            "`culprit` finds the stage whose gradient breaks first", 1.5, see="2.11"
        ),
        "none": Property("`culprit` returns None where nothing breaks", 0.5, see="2.11"),
        "score": Property("`mended_score` has the scores of `clip_score`", see="2.5"),
        "gradient": Property("`mended_score` has its gradients where they are finite", see="2.5"),
        "mended": Property("`mended_score` has finite, right ones where they are NaN", see="2.5"),
    }
    points = 6
    difficulty = 3
    importance = 3
    minutes = 30

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        forget()
        yield Case(
            "seven chains of stages",
            "culprit",
            [
                [["shift", "log", "square"], [3.0, 2.0, 0.5]],
                [["square", "shift", "root"], [1.0, 2.0, -3.0]],
                [["square", "root", "shift"], [0.0, 1.0, -2.0]],
                [["exp", "log", "shift"], [1.0, 100.0, 0.0]],
                [["shift", "square", "exp"], [1.0, 2.0, -2.0]],
                # each slope is finite, their product is not
                [["root", "log", "square"], [2e-38, 1.0, 4.0]],
                [["root", "outer root", "shift"], [0.0, 1.0, 4.0]],
            ],
            about=["forward", "backward", "none"],
        )
        yield Case(
            "an ordinary clip, a quiet one, one of silence, and a network with an idle unit",
            "mend",
            [
                [*weights(rng), clip(rng, 1.0)],
                [*weights(rng), clip(rng, 1e-3)],
                [*weights(rng), clip(rng, 0.0)],
                [*weights(rng, idle=True), clip(rng, 1.0)],
            ],
            about=["score", "gradient", "mended"],
        )

    def probe(
        self, culprit: Callable[..., Any], mended_score: Callable[..., Any], task: str, *inputs: Any
    ) -> Mapping[str, Any]:
        if task == "culprit":
            known = stage_functions()
            return {
                "found": [
                    culprit([(name, known[name]) for name in names], np.array(x, np.float32))
                    for names, x in inputs[0]
                ]
            }
        import jax

        run = program(mended_score, lambda score: jax.value_and_grad(score, (0, 1, 2)))
        found = [run(*each) for each in inputs[0]]
        return {
            "scores": [score for score, _ in found],
            "gradients": [
                {
                    name: list(np.atleast_2d(slope))
                    for name, slope in zip("wvx", slopes, strict=True)
                }
                for _, slopes in found
            ],
        }

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        if case.inputs[0] == "culprit":
            for (names, x), found in zip(case.inputs[1], seen["found"], strict=True):
                key, want = breaks(names, x)
                hint = f"The stages are {', '.join(names)}, and x is {x}."
                row = expect.equal(key, found, want, hint=hint)
                nothing = "None (nothing found)"
                yield replace(
                    row,
                    seen=nothing if found is None else row.seen,
                    expected=nothing if want is None else row.expected,
                )
            said = {str(found) for found in seen["found"]}
            yield expect.true("none", len(said) > 1, seen=f"{said.pop()}, whatever the stages are")
            return
        for (w, v, x), score, slopes in zip(
            case.inputs[1], seen["scores"], seen["gradients"], strict=True
        ):
            want, exact, constant = score_and_slopes(w, v, x)
            hint = f"The loudest number in the clip is {np.abs(x).max():.1g}."
            yield expect.close("score", score, want, rtol=1e-5, atol=1e-6, hint=hint)
            key = "mended" if constant else "gradient"
            for name, slope in exact.items():
                size = np.abs(slope).max()
                got = slopes[name] if slope.ndim == 2 else slopes[name][0]
                note = f"{hint} That is the gradient of {name}."
                yield expect.close(key, got, slope, rtol=0, atol=5e-3 * size + 1e-9, hint=note)


def stage_functions() -> dict[str, Callable[[Any], Any]]:
    """The stages of exercise 2.5 by name."""
    import jax.numpy as jnp

    return {
        "shift": lambda x: x - 1.0,
        "square": lambda x: x * x,
        "root": jnp.sqrt,
        "outer root": jnp.sqrt,
        "log": jnp.log,
        "exp": jnp.exp,
    }


def breaks(names: Sequence[str], x: Sequence[float]) -> tuple[str, str | None]:
    """Which pass breaks, "forward", "backward" or "none", and at which stage; float32 in NumPy."""
    known: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
        "shift": (lambda x: x - np.float32(1), np.ones_like),
        "square": (lambda x: x * x, lambda x: 2 * x),
        "root": (np.sqrt, lambda x: 0.5 / np.sqrt(x)),
        "outer root": (np.sqrt, lambda x: 0.5 / np.sqrt(x)),
        "log": (np.log, lambda x: 1 / x),
        "exp": (np.exp, np.exp),
    }
    value, slopes = np.array(x, np.float32), []
    with np.errstate(all="ignore"):
        for name in names:
            stage, slope = known[name]
            slopes.append((name, slope(value)))
            value = stage(value)
            if not np.isfinite(value).all():
                return "forward", name
        back = np.ones_like(value)
        for name, own in reversed(slopes):
            back = back * own
            if not np.isfinite(back).all():
                return "backward", name
    return "none", None


def weights(rng: np.random.Generator, idle: bool = False) -> tuple[Array, Array]:
    """w (3, 4) and v (8,) of `clip_score`, float32. idle: the second hidden unit gets no input."""
    w = rng.uniform(0.3, 0.9, (3, 4)) * rng.choice([-1, 1], (3, 4))
    v = rng.uniform(0.5, 1.0, 8) * rng.choice([-1, 1], 8)
    if idle:
        w[:, 1] = 0.0
    return w.astype(np.float32), v.astype(np.float32)


def clip(rng: np.random.Generator, loudness: float) -> Array:
    """A clip for `clip_score`: float32 of shape (8, 3), its numbers up to `loudness` in size."""
    return (loudness * rng.uniform(0.3, 1.0, (8, 3)) * rng.choice([-1, 1], (8, 3))).astype(
        np.float32
    )


def score_and_slopes(w: Array, v: Array, x: Array) -> tuple[Any, dict[str, Array], bool]:
    """`clip_score` in float64, its gradients, and whether a hidden unit is constant.

    The standard deviation of a constant counts as having slope 0.
    """
    w, v, x = (each.astype(np.float64) for each in (w, v, x))
    energy = np.log1p(x * x)
    hidden = np.tanh(energy @ w)
    mean, std = hidden.mean(axis=0), hidden.std(axis=0)
    constant = np.ptp(hidden, axis=0) == 0
    std[constant] = 0.0
    pooled = np.concatenate([mean, std])
    logit = pooled @ v
    to_logit = 1 / (1 + np.exp(-logit))
    to_pooled = to_logit * v
    spread = (hidden - mean) / np.where(constant, 1.0, std)
    to_hidden = (to_pooled[:4] + np.where(constant, 0.0, to_pooled[4:] * spread)) / len(x)
    to_product = to_hidden * (1 - hidden**2)
    slopes = {
        "w": energy.T @ to_product,
        "v": to_logit * pooled,
        "x": (to_product @ w.T) * 2 * x / (1 + x * x),
    }
    return np.logaddexp(logit, 0.0), slopes, bool(constant.any())


# --- quiz ----------------------------------------------------------------------------------------


def kind(number: Any) -> str:
    """What sort of number: "0", "finite", "∞" or "NaN"."""
    value = float(number)
    if np.isnan(value):
        return "NaN"
    return "∞" if np.isinf(value) else "finite" if value else "0"


def guarded(x: Any) -> Any:
    """A root behind one where."""
    import jax.numpy as jnp

    return jnp.where(x > 0, jnp.sqrt(x), 0.0)


def slope_behind_where() -> str:
    """Question 2.a."""
    import jax

    return {"0": "a", "∞": "b", "NaN": "c"}.get(kind(jax.grad(guarded)(0.0)), "?")


def tangent_behind_where() -> str:
    """Question 2.b."""
    import jax

    _, moved = jax.jvp(guarded, (0.0,), (1.0,))
    return {"0": "a", "∞": "b", "NaN": "c"}.get(kind(moved), "?")


def which_is_finite() -> str:
    """Question 2.c."""
    import jax
    import jax.numpy as jnp

    ways = {
        "a": lambda x: jnp.where(x > 0, jnp.log(x), 0.0),
        "b": lambda x: jax.lax.select(x > 0, jnp.log(x), jnp.zeros_like(x)),
        "c": lambda x: jax.lax.cond(x > 0, jnp.log, jnp.zeros_like, x),
        "d": lambda x: jnp.nan_to_num(jnp.log(x) * (x > 0)),
    }
    zero = np.float32(0)
    fine = [letter for letter, way in ways.items() if np.isfinite(jax.grad(way)(zero))]
    return fine[0] if len(fine) == 1 else "?"


def masked_row() -> str:
    """Question 2.d."""
    import jax
    import jax.numpy as jnp

    probs = np.asarray(jax.nn.softmax(jnp.full(4, jnp.finfo(jnp.float32).min)))
    if np.isnan(probs).all():
        return "a"
    return "b" if not probs.any() else "c" if np.allclose(probs, 0.25) else "?"


def smallest_loss() -> str:
    """Question 2.e."""
    import jax
    import jax.numpy as jnp

    logits = np.array([0.0, 200.0], np.float32)
    by_log = float(-jnp.log(jax.nn.softmax(logits))[0])
    slope = jax.grad(lambda x: -jnp.log(jax.nn.softmax(x))[0])(logits)
    return {("∞", "NaN"): "b", ("finite", "finite"): "a"}.get((kind(by_log), kind(slope[0])), "?")


def second_of_a_rule() -> str:
    """Question 2.f."""
    import jax
    import jax.numpy as jnp

    root = jax.custom_jvp(lambda x: jnp.sqrt(x))
    root.defjvp(lambda x, dx: (root(*x), jnp.where(x[0] > 0, 0.5 / jnp.sqrt(x[0]), 0.0) * dx[0]))
    found = kind(jax.grad(root)(0.0)), kind(jax.grad(jax.grad(root))(0.0))
    return {("0", "0"): "a", ("0", "NaN"): "b", ("NaN", "NaN"): "c"}.get(found, "?")


def after_a_context() -> str:
    """Question 2.g."""
    import contextlib
    import io
    from concurrent.futures import ThreadPoolExecutor

    import jax
    import jax.numpy as jnp

    def outcome() -> str:
        log = jax.jit(lambda x: jnp.log(x))
        log(np.float32(2))
        with jax.debug_nans(True):
            pass
        try:
            log(np.float32(-1))
        except FloatingPointError:
            return "a"
        return "b"

    jax.config.update("jax_debug_nans", True)
    try:
        with contextlib.redirect_stdout(io.StringIO()), ThreadPoolExecutor(1) as thread:
            return thread.submit(outcome).result()
    finally:
        jax.config.update("jax_debug_nans", False)


def which_tool() -> str:
    """Question 2.h."""
    import contextlib
    import io

    import jax
    import jax.numpy as jnp
    from jax.experimental import checkify

    def dropped(x: Any) -> Any:
        return jnp.where(x > 0, jnp.log(x), 0.0)

    bad, found = np.float32(-1), []
    for letter, context in (("a", jax.debug_nans), ("b", jax.debug_infs)):
        with contextlib.redirect_stdout(io.StringIO()), context(True):
            try:
                jax.jit(dropped)(bad)
            except FloatingPointError:
                found.append(letter)
    error, _ = jax.jit(checkify.checkify(dropped, errors=checkify.float_checks))(bad)
    found += ["c"] if error.get() else []
    return found[0] if len(found) == 1 else "?"


EXERCISES = [CosineSimilarity, MaskedLogSumExp, PaddedCrossEntropy, SafeArccos, FindAndMend]
QUIZ = [
    Question(
        "2.a",
        "What is the slope of `jnp.where(x > 0, jnp.sqrt(x), 0.0)` at 0, by `jax.grad`?",
        {"a": "0: the other branch is selected", "b": "∞: that of the root", "c": "NaN"},
        "c",
        "The where sends a 0 to the root, which multiplies it by its slope, ∞.",
        "2.3",
        slope_behind_where,
    ),
    Question(
        "2.b",
        "And its derivative by forward mode, `jax.jvp` with a tangent of 1?",
        {"a": "0", "b": "∞", "c": "NaN"},
        "a",
        "Forward mode multiplies first and selects afterwards, so the ∞ is thrown away.",
        "2.3",
        tangent_behind_where,
    ),
    Question(
        "2.c",
        "One of these has a finite gradient at x = 0. Which?",
        {
            "a": "`jnp.where(x > 0, jnp.log(x), 0.0)`",
            "b": "`jax.lax.select(x > 0, jnp.log(x), jnp.zeros_like(x))`",
            "c": "`jax.lax.cond(x > 0, jnp.log, jnp.zeros_like, x)`",
            "d": "`jnp.nan_to_num(jnp.log(x) * (x > 0))`",
        },
        "c",
        "cond runs the branch that is chosen, forward and backward; the others go through the log.",
        "2.4",
        which_is_finite,
    ),
    Question(
        "2.d",
        "All four entries of a row are masked with `jnp.finfo(jnp.float32).min`. What does"
        " `jax.nn.softmax` make of it?",
        {"a": "NaN", "b": "four zeros", "c": "a quarter each"},
        "c",
        "Equal logits are equal probabilities, however low: the row attends to its padding.",
        "2.6",
        masked_row,
    ),
    Question(
        "2.e",
        "The right class is 200 logits behind. What is `-jnp.log(jax.nn.softmax(x))` there, and its"
        " gradient?",
        {"a": "200, finite", "b": "∞, NaN", "c": "a large number, 0"},
        "b",
        "The probability is 0 in float32; log_softmax gives 200 and a gradient of −1.",
        "2.7",
        smallest_loss,
    ),
    Question(
        "2.f",
        "A root has a `custom_jvp` rule with the tangent"
        " `jnp.where(x > 0, 0.5 / jnp.sqrt(x), 0.0) * dx`. What are its first and second"
        " derivatives at 0?",
        {"a": "0 and 0", "b": "0 and NaN", "c": "NaN and NaN"},
        "b",
        "The rule itself is not differentiated for the first derivative; for the second it is.",
        "2.8",
        second_of_a_rule,
    ),
    Question(
        "2.g",
        "`jax_debug_nans` is on for the process, and a jitted log has been called with 2. A block"
        " `with jax.debug_nans(True):` is entered and left. Then the log gets −1. What happens?",
        {
            "a": "it raises: the switch is on",
            "b": "it returns NaN",
            "c": "it raises, but only if the block found nothing",
        },
        "b",
        "Leaving the block leaves the thread without a hook, and that hides the process's own.",
        "2.9",
        after_a_context,
    ),
    Question(
        "2.h",
        "Under jit, `jnp.where(x > 0, jnp.log(x), 0.0)` is called with −1. Which of these reports a"
        " NaN?",
        {
            "a": "`with jax.debug_nans(True):`",
            "b": "`with jax.debug_infs(True):`",
            "c": "`checkify.checkify(f, errors=checkify.float_checks)`",
        },
        "c",
        "checkify looks behind each operation; the others see results of whole programs.",
        "2.10",
        which_tool,
    ),
]
