"""Chapter 01 · Recompilation: the public cases, probe and judge of each exercise, and the quiz.

JAX is imported inside probes only, so that the judge's side needs nothing but NumPy.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from helpers import expect
from helpers.exercise import Case, Exercise, Property, Row, error_name, is_stub
from helpers.quiz import Question

Array = npt.NDArray[Any]

QUIET = 0.06
"""CPU seconds that a few calls of these small programs take at most, when none is compiled."""


def rows_of(x: Array, sizes: Sequence[int]) -> list[Array]:
    """The first rows of `x`, cut into batches of the given sizes, one behind the other."""
    ends = np.cumsum([0, *sizes])
    return [x[start:end] for start, end in pairwise(ends)]


def plural(number: int, thing: str) -> str:
    """ "1 row", "2 rows"."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def count_later(
    call: Callable[[Any], Any], inputs: Sequence[Any], known: int, fresh: bool
) -> dict[str, Any]:
    """The result of each call; what the first `known` of them compile, and what the later ones do.

    fresh: forget first what has been compiled so far. Otherwise a second check, which finds all
    programs made by the first, would count nothing.
    """
    import jax

    from helpers.compiles import CompileCounter

    if fresh:
        jax.clear_caches()
    with CompileCounter() as first:
        results = [call(each) for each in inputs[:known]]
    with CompileCounter() as later:
        results += [call(each) for each in inputs[known:]]
    return {"results": results, "first": first.count, "later": later.count}


def none_later(key: str, seen: Mapping[str, Any], fresh: bool, hint: str) -> Iterator[Row]:
    """Rows on what `count_later` saw: something was compiled at first, and nothing later."""
    if fresh:
        yield expect.at_least(key, seen["first"], 1, unit="compiled at first")
    yield expect.equal(key, seen["later"], 0, unit="compiled", hint=hint)


# --- 1.1 -----------------------------------------------------------------------------------------


class MaskedMeanLoss(Exercise):
    """A mean over real rows only, at the shapes of three buckets."""

    id = "1.1"
    title = "Masked mean loss over buckets"
    answer = "bucketed_loss"
    properties = {
        "value": Property("is the mean over the real rows alone", 2, see="1.5"),
        "compiles": Property("compiles nothing for a new size in a bucket it knows", 2, see="1.5"),
        "gradient": Property("has the gradient of that mean", 1, see="1.5"),
        "empty": Property("is 0 for an empty batch, with a gradient of 0", 1, see="1.5"),
    }
    points = 4
    difficulty = 2
    importance = 3
    minutes = 20
    quiet_seconds = QUIET

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        sizes = [3, 8, 11, 4, 2, 16, 7, 2, 9]
        yield Case(
            "batches of 3, 8 and 11 rows, then of 4, 2, 16, 7, 2 and 9",
            "count", *regression(rng, sizes), 3, True,
            about=["value", "compiles"],
        )  # fmt: skip
        yield Case(
            "a batch of 3 rows and an empty one, differentiated",
            "grad", *regression(rng, [3, 0]),
            about=["gradient", "empty"],
        )  # fmt: skip

    def probe(
        self, bucketed_loss: Callable[..., Any], task: str, w: Array, b: Array, x: Array, y: Array,
        sizes: Sequence[int], *counting: Any,
    ) -> Mapping[str, Any]:  # fmt: skip
        batches = list(zip(rows_of(x, sizes), rows_of(y, sizes), strict=True))
        if task == "count":
            return count_later(lambda batch: bucketed_loss(w, b, *batch), batches, *counting)
        import jax

        both = jax.value_and_grad(bucketed_loss, (0, 1))
        found = [both(w, b, *batch) for batch in batches]
        return {
            "results": [loss for loss, _ in found],
            "slopes of w": [slopes[0] for _, slopes in found],
            "slopes of b": [slopes[1] for _, slopes in found],
        }

    def counted(self, seen: Mapping[str, Any]) -> int | None:
        return expect.total(seen["first"], seen["later"]) if "first" in seen else None

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        task, w, b, x, y, sizes = case.inputs[:6]
        batches = zip(rows_of(x, sizes), rows_of(y, sizes), strict=True)
        exact = [mean_squared_error(w, b, *batch) for batch in batches]
        for size, loss, (want, *_) in zip(sizes, seen["results"], exact, strict=True):
            if size:
                hint = f"That is a batch of {plural(size, 'row')}."
                yield expect.close("value", loss, want, rtol=1e-4, atol=1e-6, hint=hint)
        if task == "count":
            hint = "Whatever depends on the size must be done before JAX sees the arrays."
            yield from none_later("compiles", seen, case.inputs[-1], hint)
            return
        full_w, empty_w = seen["slopes of w"]
        full_b, empty_b = seen["slopes of b"]
        yield expect.close("gradient", full_w, exact[0][1], rtol=1e-4, atol=1e-5)
        yield expect.close("gradient", full_b, exact[0][2], rtol=1e-4, atol=1e-5)
        full, empty = seen["results"]
        spoiled = not np.all(np.isfinite([empty, empty_b]))
        hint = "0 / 0 is NaN, and so is its gradient." if spoiled else "Nothing may enter the sum."
        yield expect.close("empty", empty, 0.0, hint=hint)
        yield expect.close("empty", empty_w, np.zeros(w.shape), hint=hint)
        yield expect.close("empty", empty_b, 0.0, hint=hint)
        yield expect.true("empty", np.all(np.asarray(full) != 0), seen="0 for 3 real rows too")


def regression(rng: np.random.Generator, sizes: list[int]) -> tuple[Any, ...]:
    """Inputs of exercise 1.1: w (3,), b (), x (rows, 3), y (rows,), all float32, and the sizes.

    Labels are whole numbers, and each batch's first label is 0: a real row may well be labelled 0.
    """
    rows = sum(sizes)
    y = rng.integers(1, 4, rows).astype(np.float32)
    y[np.cumsum([0, *sizes])[:-1][np.array(sizes) > 0]] = 0.0
    x = rng.standard_normal((rows, 3)).astype(np.float32)
    w = rng.standard_normal(3).astype(np.float32)
    return w, np.array(rng.uniform(1.0, 2.0), np.float32), x, y, sizes


def mean_squared_error(w: Array, b: Array, x: Array, y: Array) -> tuple[Any, Array, Any]:
    """Loss, slope of w (3,) and slope of b of one batch in float64; NaN for an empty one."""
    error = x.astype(np.float64) @ w.astype(np.float64) + float(b) - y.astype(np.float64)
    n = len(error) or np.nan
    return np.sum(error**2) / n, 2 * (error @ x.astype(np.float64)) / n, 2 * np.sum(error) / n


# --- 1.2 -----------------------------------------------------------------------------------------


class CompileBudgetTest(Exercise):
    """A test that counts, and a function that passes it."""

    id = "1.2"
    title = "A compile-budget test, and the serving function that passes it"
    answer = ("assert_budget", "serve")
    properties = {
        "over": Property("`assert_budget` raises AssertionError above the limit", 1.5, see="1.6"),
        "within": Property("`assert_budget` lets pass what stays within it", 1, see="1.6"),
        "scores": Property("`serve` returns one right score for each row", 1, see="1.5"),
        "served": Property("`serve` compiles at most 2 programs in all", 1.5, see="1.5"),
    }
    points = 5
    difficulty = 2
    importance = 3
    minutes = 20
    quiet_seconds = QUIET

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case(
            "a function of 1 program, limits 2 and then 0; one of 2 programs, limits 1 and then 2",
            "budget",
            [
                {"sizes": [1, 2, 3], "padded": [4, 4, 4], "compiled": [], "limits": [2, 0]},
                {"sizes": [1, 2], "padded": [1, 2], "compiled": [], "limits": [1, 2]},
            ],
            about=["over", "within"],
        )
        sizes = [3, 16, 9, 1, 12, 5]
        yield Case(
            "requests of 3, 16, 9, 1, 12 and 5 rows",
            "serve", logits(rng, sizes), sizes, True,
            about=["scores", "served"],
        )  # fmt: skip

    def probe(
        self, assert_budget: Callable[..., Any], serve: Callable[..., Any], task: str, *inputs: Any
    ) -> Mapping[str, Any]:
        if task == "budget":
            return {"trials": [try_budget(assert_budget, **trial) for trial in inputs[0]]}
        x, sizes, fresh = inputs
        return count_later(serve, rows_of(x, sizes), len(sizes), fresh)

    def counted(self, seen: Mapping[str, Any]) -> int | None:
        return expect.total(seen["first"], seen["later"]) if "first" in seen else None

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        if case.inputs[0] == "budget":
            yield from judge_budget(case.inputs[1], seen["trials"])
            return
        _, x, sizes, _ = case
        right = True
        for size, batch, scores in zip(sizes, rows_of(x, sizes), seen["results"], strict=True):
            want = np.log(np.sum(np.exp(batch.astype(np.float64)), axis=1))
            hint = f"That is a request of {plural(size, 'row')}."
            row = expect.close("scores", scores, want, rtol=1e-5, atol=1e-5, hint=hint)
            right = right and row.passed
            yield row
        hint = (
            "Each bucket is a program: how many did you use? Padding or cutting outside jit is one"
            " for each size."
        )
        yield expect.at_most("served", seen["first"], 2, unit="compiled", hint=hint)
        yield expect.true("served", right, seen="wrong scores, whose programs don't count")


def logits(rng: np.random.Generator, sizes: Sequence[int]) -> Array:
    """Requests for exercise 1.2: float32 of shape (sum of sizes, 3)."""
    return rng.uniform(-3.0, 3.0, (sum(sizes), 3)).astype(np.float32)


OVER, WITHIN = "AssertionError", "no error"
"""What a test may say of a function, as `try_budget` reports it."""


def try_budget(
    assert_budget: Callable[..., Any],
    sizes: Sequence[int],
    padded: Sequence[int],
    compiled: Sequence[int],
    limits: Sequence[int],
) -> dict[str, Any]:
    """What a learner's test says of a function that compiles one program for each padded size.

    compiled: sizes that were served before. limits: the test is run with each of them, in turn.
    """
    import jax

    shape = dict(zip(sizes, padded, strict=True))
    program = jax.jit(lambda x: x + 1)
    calls = []

    def serving(x: Array) -> Array:
        calls.append(len(x))
        return np.asarray(program(np.zeros(shape[len(x)], np.float32)))[: len(x)]

    for size in compiled:
        serving(np.zeros((size, 3), np.float32))
    calls.clear()
    requests = [np.zeros((size, 3), np.float32) for size in sizes]
    outcomes, returned = [], []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for limit in limits:
            try:
                returned.append(type(assert_budget(serving, requests, limit)).__name__)
                outcomes.append(WITHIN)
            except AssertionError:
                outcomes.append(OVER)
            except Exception as error:
                if is_stub(error):
                    raise
                outcomes.append(type(error).__name__)
    return {
        "outcomes": outcomes,
        "returned": returned,
        "warned": bool(warned),
        "calls": len(calls),
    }


def judge_budget(
    trials: Sequence[Mapping[str, Any]], seen: Sequence[Mapping[str, Any]]
) -> Iterator[Row]:
    """Rows on what `try_budget` saw in each trial. A test that always says the same is no test."""
    said = {outcome for result in seen for outcome in result["outcomes"]}
    for trial, result in zip(trials, seen, strict=True):
        shape = dict(zip(trial["sizes"], trial["padded"], strict=True))
        programs = len({*trial["padded"]} - {shape[size] for size in trial["compiled"]})
        for limit, outcome in zip(trial["limits"], result["outcomes"], strict=True):
            key, want = ("over", OVER) if programs > limit else ("within", WITHIN)
            count = plural(programs, "program")
            hint = f"The requests compile {count}, and the limit is {limit}."
            yield expect.equal(key, outcome, want, hint=hint)
            yield expect.true(key, len(said) > 1, seen=f"{outcome}, whatever was compiled")
            programs = 0


# --- 1.3 -----------------------------------------------------------------------------------------


class StaticConfig(Exercise):
    """Settings that a jitted function can take as a static argument."""

    id = "1.3"
    title = "A static config that compares by value"
    answer = "make_config"
    properties = {
        "value": Property("carries the settings that it was given", 1, see="1.7"),
        "once": Property("compiles once for equal settings", 2, see="1.7"),
        "apart": Property("compiles again where one setting differs", 1, see="1.7"),
        "frozen": Property("can't change after it was made", 1, see="1.7"),
    }
    points = 4
    difficulty = 1
    importance = 3
    minutes = 15
    quiet_seconds = QUIET

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        width = int(rng.integers(2, 9))
        settings: list[list[Any]] = [
            [width, "tanh", "tuple", [2.0, -1.0, 2.0]],
            [width, "tanh", "tuple", [2.0, -1.0, 2.0]],
            [width, "relu", "tuple", [2.0, -1.0, 2.0]],
            [width, "tanh", "tuple", [2.0, -2.0, 2.0]],
            [width, "tanh", "tuple", []],
            [width, None, "tuple", [2.0, -1.0, 2.0]],
            [width, None, "", None],
        ]
        about = ["value", "once", "apart"]
        yield Case("tuples, with and without what has a default", "call", settings, about=about)
        lists = [[width, "tanh", kind, [2.0, -1.0, 2.0]] for kind in ("list", "tuple", "list")]
        yield Case("a list, a tuple and a list of the same", "call", lists, about=["once"])
        yield Case(
            "attempts to change it",
            "change",
            [[width, "tanh", "list", [2.0, -1.0, 2.0]]],
            about=["frozen"],
        )

    def probe(
        self, make_config: Callable[..., Any], task: str, settings: Sequence[Sequence[Any]]
    ) -> Mapping[str, Any]:
        if task == "change":
            return probe_changes(make_config, *settings[0])
        return probe_calls(make_config, settings)

    def counted(self, seen: Mapping[str, Any]) -> int | None:
        return expect.total(seen["compilations"]) if "compilations" in seen else None

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        task, settings = case
        if task == "change":
            width, activation, _, scales = settings[0]
            given = [width, activation, scales]
            for attempt, after in seen.items():
                same = expect.equal("frozen", after, given).passed
                hint = f"That is {attempt}."
                yield expect.true("frozen", same, seen=f"{after}", expected=f"{given}", hint=hint)
            return
        told_apart = [json_like(setting) for setting in settings]
        another_default: set[int] = set()
        for number, value in enumerate(seen["values"]):
            width, activation, scales = told_apart[number]
            act = np.tanh(0.5) if activation == "tanh" else 0.5
            want = width * act + sum(place * scale for place, scale in enumerate(scales, 1))
            hint = f"That is width {width}, {activation}, scales {scales}."
            if None in settings[number]:
                hint += " What was not given has its default."
            row = expect.close("value", value, want, rtol=1e-5, hint=hint)
            yield row
            if None in settings[number] and not row.passed:
                another_default.add(number)
        first = [told_apart.index(setting) for setting in told_apart]
        for number, (like, compiled) in enumerate(zip(first, seen["compilations"], strict=True)):
            if number in another_default:  # it is another setting than the one asked for
                continue
            if like == number:
                yield expect.equal("apart", compiled, 1, unit="compiled for new settings")
                continue
            hint = "A static argument is looked up by __hash__ and __eq__."
            unit = "compiled for settings seen before"
            yield expect.equal("once", compiled, 0, unit=unit, hint=hint)
            same = seen["hashes"][number] == seen["hashes"][like]
            said = "different hashes of equal settings"
            yield expect.true("once", same, seen=said, expected="equal hashes", hint=hint)


def json_like(setting: Sequence[Any]) -> tuple[Any, ...]:
    """What decides whether two settings of exercise 1.3 are equal: not list against tuple."""
    width, activation, _, scales = setting
    return width, activation or "tanh", tuple(scales or ())


def probe_calls(
    make_config: Callable[..., Any], settings: Sequence[Sequence[Any]]
) -> Mapping[str, Any]:
    """One call with a fresh config for each of the settings: its result, its compilations."""
    import jax
    import jax.numpy as jnp

    from helpers.compiles import CompileCounter

    def apply(config: Any, x: Any) -> Any:
        act = {"tanh": jnp.tanh, "relu": jax.nn.relu}[config.activation]
        places = enumerate(config.scales, 1)
        return config.width * act(x) + sum(place * scale for place, scale in places)

    program = jax.jit(apply, static_argnums=0)
    x = np.float32(0.5)
    values, compilations, configs = [], [], []
    for width, activation, kind, scales in settings:
        more = {} if activation is None else {"activation": activation}
        if scales is not None:
            more["scales"] = tuple(scales) if kind == "tuple" else list(scales)
        config = make_config(width, **more)
        with CompileCounter(only="apply") as counter:
            values.append(program(config, x))
        compilations.append(counter.count)
        configs.append(config)
    hashes = [hash(config) for config in configs]
    same = [hashes.index(each) for each in hashes]  # a hash itself differs from run to run
    return {"values": values, "compilations": compilations, "hashes": same}


def probe_changes(
    make_config: Callable[..., Any], width: int, activation: str, _: str, scales: Sequence[float]
) -> Mapping[str, Any]:
    """What the config says after each attempt to change it."""
    given = list(scales)
    config = make_config(width, activation, given)
    attempts = {
        "after the caller changed the list it had passed": lambda: given.append(9.0),
        "after config.width = 99": lambda: setattr(config, "width", 99),
        "after config.scales.append(9.0)": lambda: config.scales.append(9.0),
    }
    seen = {}
    for attempt, change in attempts.items():
        error_name(change)
        seen[attempt] = [config.width, config.activation, list(config.scales)]
    return seen


# --- 1.4 -----------------------------------------------------------------------------------------


class LearningRateLoop(Exercise):
    """Gradient descent whose rate changes at every step, in one program."""

    id = "1.4"
    title = "A learning-rate loop that compiles once"
    answer = "train"
    properties = {
        "value": Property("ends where float64 gradient descent ends", 2, see="1.8"),
        "first": Property("compiles the step in its first training", 1, see="1.8"),
        "later": Property("compiles nothing in later trainings, whatever the rates", 2, see="1.8"),
    }
    points = 4
    difficulty = 2
    importance = 3
    minutes = 15
    quiet_seconds = QUIET

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        plans = [[0.1], [0.1, 0.05, 0.02], [0.08, 0.04], [0.1, 0.05, 0.02]]
        yield Case("trainings of 1, 3, 2 and again 3 steps", *line(rng, 0.0), plans, True)
        long = *line(rng, 0.5), [[0.1], [0.1, 0.05], 50 * [0.1, 0.05]], None
        yield Case("a training of 100 steps", *long, about=["value"])
        yield Case("a training of no step", *line(rng, 0.5), [[]], None, about=["value"])

    def probe(
        self, train: Callable[..., Any], w: Array, b: float, x: Array, y: Array,
        plans: Sequence[Sequence[float]], fresh: bool | None,
    ) -> Mapping[str, Any]:  # fmt: skip
        """fresh: as in `count_later`; None where nothing is counted: many steps take their time."""
        import jax

        from helpers.compiles import CompileCounter

        if fresh:
            jax.clear_caches()
        elif fresh is False:
            train(w, b, x, y, plans[0])  # from here on nothing is the first
        ends: list[Any] = []
        compilations: list[int] = []
        for rates in plans:
            if len(rates) > MANY and any(compilations[1:]):
                break  # it might compile each step
            with CompileCounter() as counter:
                ends.append(list(train(w, b, x, y, rates)))
            compilations.append(counter.count)
        return {"ends": ends} if fresh is None else {"ends": ends, "compilations": compilations}

    def counted(self, seen: Mapping[str, Any]) -> int | None:
        return expect.total(seen["compilations"]) if "compilations" in seen else None

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        w, b, x, y, plans, fresh = case
        for rates, end in zip(plans, seen["ends"], strict=fresh is not None):
            want_w, want_b = descend(w, b, x, y, rates)
            hint = f"That is after {plural(len(rates), 'step')}."
            yield expect.close("value", end[0], want_w, rtol=1e-4, atol=1e-5, hint=hint)
            yield expect.close("value", end[1], want_b, rtol=1e-4, atol=1e-5, hint=hint)
        if fresh is None:
            return
        first, *later = seen["compilations"]
        if not fresh:
            yield expect.equal("later", first, 0, unit="compiled in training 1")
        else:
            unit = "compiled in the first training"
            hint = "One program for the whole step; two conversions beside it are tolerated."
            for key in ("first", "later"):
                yield expect.at_least(key, first, 1, unit=unit)
                yield expect.at_most(key, first, 3, unit=unit, hint=hint)
        hint = "`jax_explain_cache_misses` says what differed."
        lengths = [len(rates) for rates in plans]
        new = [length not in lengths[:i] for i, length in enumerate(lengths)]
        if [count > 0 for count in later] == new[1:]:
            hint = "It compiled for each new number of rates: the number of rates is a shape."
        for number, count in enumerate(later, 2):
            unit = f"compiled in training {number}"
            yield expect.equal("later", count, 0, unit=unit, hint=hint)


MANY = 32
"""More steps than this are not tried where short trainings went on compiling."""


def line(rng: np.random.Generator, b: float) -> tuple[Any, ...]:
    """A regression problem for exercise 1.4: w (2,), b, x (5, 2), y (5,); arrays are float32."""
    w = rng.standard_normal(2).astype(np.float32)
    x = rng.standard_normal((5, 2)).astype(np.float32)
    y = (x @ rng.standard_normal(2) + 1.0).astype(np.float32)
    return w, b, x, y


def descend(
    w: Array, b: float, x: Array, y: Array, rates: Sequence[float]
) -> tuple[Array, np.float64]:
    """Gradient descent on the mean squared error in float64: the last w and b."""
    w, b = w.astype(np.float64), np.float64(b)
    x, y = x.astype(np.float64), y.astype(np.float64)
    for rate in rates:
        error = x @ w + b - y
        w, b = w - rate * 2 * (error @ x) / len(y), b - rate * 2 * np.mean(error)
    return w, b


# --- 1.5 -----------------------------------------------------------------------------------------


class AheadOfTimeTable(Exercise):
    """Every program that will ever be needed, compiled before the first request."""

    id = "1.5"
    title = "An AOT table that serves with no compilation"
    answer = "make_server"
    properties = {
        "built": Property("compiles every bucket before the first request", 1, see="1.9"),
        "served": Property("compiles nothing while it serves", 1.5, see="1.9"),
        "value": Property("returns `fn` of each row, and no row more", 1.5, see="1.9"),
        "refused": Property("refuses a wrong shape with ValueError or TypeError", 1, see="1.9"),
    }
    points = 5
    difficulty = 2
    importance = 2
    minutes = 25
    quiet_seconds = QUIET

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        sizes = [1, 4, 3, 2, 1]
        x = rng.standard_normal((sum(sizes), 3)).astype(np.float32)
        two = "folded", [4, 2], x, sizes, WRONG_SHAPES
        yield Case("buckets of 4 and 2 rows of 3 numbers, two results a row", *two)
        yield Case(
            "a bucket of 2 rows, one result a row",
            "squares", [2], x[:3], [1, 2], {},
            about=["value"],
        )  # fmt: skip

    def probe(
        self,
        make_server: Callable[..., Any],
        rule: str,
        buckets: Sequence[int],
        x: Array,
        sizes: Sequence[int],
        wrong: Mapping[str, Sequence[int]],
    ) -> Mapping[str, Any]:
        import jax
        import jax.numpy as jnp

        from helpers.compiles import CompileCounter

        def squares(x: Any) -> Any:
            return jnp.sum(x * x, axis=1)

        def folded(x: Any) -> Any:
            return jnp.stack([jnp.max(x, axis=1), jnp.min(x, axis=1)], axis=1)

        fn = {"squares": squares, "folded": folded}[rule]
        jax.clear_caches()  # of what jnp compiled for another answer's padding
        with CompileCounter() as built:
            serve = make_server(fn, list(buckets), x.shape[1])
        with CompileCounter() as served:
            results = [result_or_error(partial(serve, batch)) for batch in rows_of(x, sizes)]
        with CompileCounter() as refused:
            refusals = {
                what: error_name(partial(serve, np.ones(shape, np.float32)))
                for what, shape in wrong.items()
            }
        return {
            "built": built.count,
            "served": served.count,
            "refused": refused.count,
            "results": results,
            "refusals": refusals,
        }

    def counted(self, seen: Mapping[str, Any]) -> int | None:
        return expect.total(seen["built"], seen["served"], seen["refused"])

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        rule, buckets, x, sizes, wrong = case
        yield expect.at_least(
            "built",
            seen["built"],
            len(buckets),
            unit="compiled before the first request",
            hint="Only `.compile()`, or a call, makes the program.",
        )
        hint = "Padding and cutting outside jit are programs too, one for each size."
        yield expect.equal("served", seen["served"], 0, unit="compiled while serving", hint=hint)
        yield expect.true("served", seen["built"], seen="no program to serve with")
        for size, batch, result in zip(sizes, rows_of(x, sizes), seen["results"], strict=True):
            exact = batch.astype(np.float64)
            folded = np.stack([exact.max(axis=1), exact.min(axis=1)], axis=1)
            want = np.sum(exact**2, axis=1) if rule == "squares" else folded
            hint = f"That is a request of {plural(size, 'row')}."
            if isinstance(result, str):
                yield expect.true(
                    "value", False, seen=f"{result} raised", expected=expect.short(want), hint=hint
                )
                continue
            yield expect.close("value", result, want, rtol=1e-5, atol=1e-6, hint=hint)
        for what in wrong:
            yield expect.raises(
                "refused",
                seen["refusals"][what],
                ("ValueError", "TypeError"),
                hint=f"That is {what}.",
            )


def result_or_error(run: Callable[[], Any]) -> Any:
    """What `run` returns, or the class of what it raises. An unanswered starter's goes through.

    Never the error's text: an answer could tell the inputs of a hidden case in it.
    """
    try:
        return run()
    except Exception as error:
        if is_stub(error):
            raise
        return type(error).__name__


WRONG_SHAPES = {
    "a request of more rows than the largest bucket": [5, 3],
    "a request with a column too many": [2, 4],
    "a request of one column, which NumPy would broadcast": [2, 1],
    "one row without its axis": [3],
}
"""Shapes that a server of buckets 2 and 4 and of 3 features must refuse (exercise 1.5)."""


EXERCISES = [MaskedMeanLoss, CompileBudgetTest, StaticConfig, LearningRateLoop, AheadOfTimeTable]


# --- the quiz ------------------------------------------------------------------------------------


def compiled(program: Callable[..., Any], *calls: tuple[Any, ...]) -> int:
    """How many programs the calls compile; each is a tuple of arguments."""
    from helpers.compiles import CompileCounter

    with CompileCounter() as counter:
        for arguments in calls:
            program(*arguments)
    return counter.count


def letter(by_count: Mapping[int, str], count: int) -> str:
    """The option that stands for a measured count; "?" if none does."""
    return by_count.get(count, "?")


def shapes_compile() -> str:
    """Question 1.a."""
    import jax

    x, y = np.ones(8, np.float32), np.ones(16, np.float32)
    count = compiled(jax.jit(lambda x: x + 1), (x,), (y,), (x,), (y,), (x,))
    return letter({1: "a", 2: "b", 5: "c"}, count)


def scalars_compile() -> str:
    """Question 1.b."""
    import jax

    x = np.ones(3, np.float32)
    count = compiled(jax.jit(lambda x, s: x * s), (x, 2.0), (x, 3.0), (x, np.float32(2.0)))
    return letter({1: "a", 2: "b", 3: "c"}, count)


def partials_compile() -> str:
    """Question 1.c."""
    import jax

    w = np.ones(3, np.float32)

    def update(w: Any, rate: float) -> Any:
        return w * rate

    count = sum(compiled(jax.jit(partial(update, rate=0.1)), (w,)) for _ in range(4))
    return letter({0: "a", 1: "b", 4: "c"}, count)


def lowering_compiles() -> str:
    """Question 1.d."""
    import jax

    x = np.ones(3, np.float32)
    ways = {
        "a": lambda: jax.eval_shape(lambda x: x + 1, x),
        "b": lambda: jax.make_jaxpr(lambda x: x + 1)(x),
        "c": lambda: jax.jit(lambda x: x + 1).lower(x),
    }
    return next((name for name, way in ways.items() if compiled(way, ())), "d")


def slices_compile() -> str:
    """Question 1.e."""
    import jax

    scores = jax.jit(lambda x: x + 1)(np.ones(64, np.float32))
    jax.clear_caches()
    count = compiled(lambda n: scores[:n], (1,), (2,), (3,), (4,), (5,))
    return letter({0: "a", 1: "b", 5: "c"}, count)


def structures_compile() -> str:
    """Question 1.f."""
    import jax

    a, b = np.float32(1), np.float32(2)
    trees = {"a": a, "b": b}, {"b": b, "a": a}, {"a": a, "b": None}
    count = compiled(jax.jit(lambda tree: tree["a"] + 1), *((tree,) for tree in trees))
    return letter({1: "a", 2: "b", 3: "c"}, count)


def half_masked_mean() -> str:
    """Question 1.g."""
    import jax.numpy as jnp

    losses, mask = np.full(8, 6.0, np.float32), np.arange(8) < 3
    mean = float(jnp.mean(jnp.where(mask, losses, 0.0)))
    return {6.0: "a", 2.25: "b", 16.0: "c"}.get(mean, "?")


def identity_compiles() -> str:
    """Question 1.h."""
    import jax

    class Config:
        def __init__(self, width: int) -> None:
            self.width = width

    program = jax.jit(lambda config, x: x * config.width, static_argnums=0)
    x = np.ones(3, np.float32)
    count = compiled(program, (Config(2), x), (Config(2), x), (Config(3), x))
    return letter({1: "a", 2: "b", 3: "c"}, count)


QUIZ = [
    Question(
        "1.a",
        "`f = jax.jit(lambda x: x + 1)` is called with float32 arrays of 8, 16, 8, 16 and 8"
        " elements. How many programs are compiled?",
        {"a": "1: it is one function", "b": "2: one for each shape", "c": "5: one for each call"},
        "b",
        "A program belongs to a shape, and stays in the cache when another shape comes between.",
        "1.2",
        shapes_compile,
    ),
    Question(
        "1.b",
        "`f = jax.jit(lambda x, s: x * s)` is called with the same `x` and `s = 2.0`, `s = 3.0` and"
        " `s = np.float32(2.0)`. How many programs are compiled?",
        {"a": "1: all are float32", "b": "2", "c": "3: one for each scalar"},
        "b",
        "Two Python floats are one weakly typed float32; np.float32 is float32 and not weak.",
        "1.3",
        scalars_compile,
    ),
    Question(
        "1.c",
        "A loop runs four times: `step = jax.jit(partial(update, rate=0.1))`, then `w = step(w)`."
        " How many programs are compiled?",
        {"a": "0: the loop is Python", "b": "1: the rate never changes", "c": "4: one a pass"},
        "c",
        "Each jit of a new partial starts with an empty cache, whatever it computes.",
        "1.8",
        partials_compile,
    ),
    Question(
        "1.d",
        "Which of these is the first to compile something?",
        {
            "a": "`jax.eval_shape(f, x)`",
            "b": "`jax.make_jaxpr(f)(x)`",
            "c": "`jax.jit(f).lower(x)`",
            "d": "none of them",
        },
        "d",
        "All three trace, and the third also writes StableHLO; XLA is not asked.",
        "1.4",
        lowering_compiles,
    ),
    Question(
        "1.e",
        "`scores` is a JAX array of 64 numbers. Outside jit, `scores[:n]` runs for n = 1, 2, 3, 4"
        " and 5. How many programs are compiled?",
        {"a": "0: slicing is indexing, not computing", "b": "1: n is an argument", "c": "5"},
        "c",
        "Outside jit each operation is a small program, and n decides the shape of its result.",
        "1.5",
        slices_compile,
    ),
    Question(
        "1.f",
        "`f` is jitted and gets `{'a': x, 'b': y}`, then `{'b': y, 'a': x}`, then"
        " `{'a': x, 'b': None}`. How many programs are compiled?",
        {"a": "1: the keys are the same", "b": "2", "c": "3: three different dicts"},
        "b",
        "A pytree sorts the keys of a dict, but None is part of its structure and no leaf.",
        "1.3",
        structures_compile,
    ),
    Question(
        "1.g",
        "A bucket of 8 holds 3 real rows, each with a loss of 6."
        " What is `jnp.mean(jnp.where(mask, losses, 0.0))`?",
        {"a": "6", "b": "2.25", "c": "16"},
        "b",
        "The sum is masked, but the mean still divides by 8: 18 / 8.",
        "1.5",
        half_masked_mean,
    ),
    Question(
        "1.h",
        "`Config` is a plain class with one field, and a static argument. The function is called"
        " with `Config(2)`, `Config(2)` and `Config(3)`. How many programs are compiled?",
        {"a": "1: they have one type", "b": "2: two different widths", "c": "3: three objects"},
        "c",
        "A class without __eq__ compares by identity, so no two objects are the same key.",
        "1.7",
        identity_compiles,
    ),
]
