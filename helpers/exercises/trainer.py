"""Chapter 09 · The trainer: the public cases, probe and judge of each exercise, and the quiz.

Nothing here writes to disk: what an answer packs goes through NumPy's format in memory. JAX is
imported inside probes only.
"""

import functools
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from helpers import expect
from helpers.exercise import Case, Exercise, Property, Row
from helpers.quiz import Question

Array = npt.NDArray[Any]
Tree = Any


def floats(rng: np.random.Generator, *shape: int) -> Array:
    """Normal numbers in float32."""
    return rng.standard_normal(shape).astype(np.float32)


# --- 9.1 -----------------------------------------------------------------------------------------


class Accumulation(Exercise):
    """The gradient of a large batch, a few rows at a time."""

    id = "9.1"
    title = "A large batch, a few rows at a time"
    answer = "accumulated_grad"
    properties = {
        "value": Property("gives the loss and gradient of the whole batch", 2, "9.3"),
        "rest": Property("gives them also where n is no multiple of `rows`", 1.5, "9.3"),
        "half": Property("adds float16 gradients up in float32", 1, "9.3"),
        "memory": Property("holds no more than `rows` rows at a time", 1, "9.3"),
        "traces": Property("traces the loss no more often for many micro-batches", 0.5, "9.3"),
    }
    points = 6
    difficulty = 2
    importance = 3
    minutes = 25

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        about = ["value", "memory", "traces"]
        yield Case("96 rows, 8 at a time", *regression(rng, 96), 8, about=about)
        yield Case("100 rows, 8 at a time", *regression(rng, 100), 8, about=["rest", "traces"])
        yield Case("5 rows, 8 at a time", *regression(rng, 5), 8, about=["rest"])
        params = {"w": floats(rng, 8)}
        yield Case("a batch that is one array", params, floats(rng, 16, 8), 8, about=["value"])
        yield Case("float16, one large gradient", *swamped(0.6), 4, about=["half"])

    def probe(
        self, accumulated_grad: Callable[..., Any], params: Tree, batch: Tree, rows: int
    ) -> Mapping[str, Any]:
        import jax
        import jax.numpy as jnp

        met: list[int] = []
        together: list[int] = []

        def loss(params: Tree, batch: Tree) -> Any:
            x = batch["x"] if "out" in params else batch
            met.append(len(x))
            together.append(int(np.size(getattr(x, "val", x)) // np.size(x)))
            if "out" not in params:
                return jnp.mean(x @ params["w"])
            hidden = jnp.tanh(x @ params["w"] + 0.5)  # so that a row of zeros is not nothing
            return jnp.mean((hidden @ params["out"] - batch["y"]) ** 2)

        def whole(params: Tree, batch: Tree) -> Any:
            return accumulated_grad(loss, params, batch, rows)

        program = jax.jit(whole).lower(params, batch).compile()
        value, grads = program(params, batch)
        memory: Any = program.memory_analysis()
        return {
            "loss": value,
            "grads": dict(grads),
            "dtypes": sorted({str(leaf.dtype) for leaf in jax.tree.leaves(grads)}),
            "most rows": max(met, default=0),
            "batches at once": max(together, default=0),
            "traces": max(FEW_TRACES, len(met)),
            "layers": math.ceil(memory.temp_size_in_bytes / hidden_bytes(params, batch)),
        }

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        params, batch, rows = case
        about = case.about or ()
        value, grads = mean_gradient(params, batch)
        key = about[0]
        tolerance = 2e-3 if key == "half" else 2e-5
        hint = "That is the mean loss of all rows."
        yield expect.close(key, seen["loss"], value, rtol=tolerance, atol=1e-6, hint=hint)
        yield expect.equal(key, sorted(seen["grads"]), sorted(grads))
        for name, want in grads.items():
            hint = f"That is the gradient of {name}."
            got = seen["grads"].get(name)
            yield expect.close(key, got, want, rtol=tolerance, atol=1e-6, hint=hint)
        hint = "A gradient has the dtype of its parameter."
        dtypes = ", ".join(seen["dtypes"])
        yield expect.equal(key, dtypes, str(params["w"].dtype), hint=hint)
        if "memory" in about:
            most = seen["most rows"]
            yield expect.at_most("memory", most, rows, unit="rows in one call of the loss")
            unit = "hidden layers for all rows in temporary memory, rounded up"
            yield expect.at_most("memory", seen["layers"], 1, unit=unit)
        if "traces" in about:
            n = -(-len(batch["x"]) // rows)
            hint = f"There are {n} micro-batches. A Python loop traces the loss for each of them."
            yield expect.at_most("traces", seen["traces"], FEW_TRACES, unit="traces", hint=hint)

    def told_by(self, case: Case, seen: Mapping[str, Any]) -> Mapping[str, Any]:
        """Everything, but counts that are within their limit or not judged in this case."""
        judged = {"memory": [("most rows", case.inputs[-1]), ("layers", 1)],
                  "traces": [("traces", FEW_TRACES)]}  # fmt: skip
        counts = {
            name: seen[name] if key in (case.about or ()) and seen[name] > limit else 0
            for key, limits in judged.items()
            for name, limit in limits
        }
        return {**seen, **counts}


FEW_TRACES = 8
"""Traces that two programs may need, for a scan may trace its body twice."""


def hidden_bytes(params: Mapping[str, Array], batch: Any) -> int:
    """What a hidden layer takes for all rows of exercise 9.1."""
    x = batch["x"] if "out" in params else batch
    return int(4 * len(x) * params["w"].shape[-1])


def regression(rng: np.random.Generator, n: int) -> tuple[dict[str, Array], dict[str, Array]]:
    """Params and a batch for exercise 9.1: n examples, a hidden layer of 96 units.

    A dozen copies of the gradient are more than a hidden layer of 96 rows.
    """
    params = {"w": floats(rng, 8, 96) / 2, "out": floats(rng, 96) / 10}
    return params, {"x": floats(rng, n, 8), "y": floats(rng, n)}


def swamped(small: float) -> tuple[dict[str, Array], Array]:
    """A linear loss in float16: the first 4 of 160 rows have slopes of 2048, all others small."""
    x = np.full((160, 2), small, np.float16)
    x[:4] = 2048.0
    return {"w": np.zeros(2, np.float16)}, x


def mean_gradient(params: Mapping[str, Array], batch: Any) -> tuple[float, Any]:
    """Loss and gradient of exercise 9.1's models in float64; the linear one's batch is an array."""
    w = params["w"].astype(np.float64)
    if "out" not in params:
        x = batch.astype(np.float64)
        return float(np.mean(x @ w)), {"w": np.mean(x, axis=0)}
    x, y = batch["x"].astype(np.float64), batch["y"].astype(np.float64)
    out = params["out"].astype(np.float64)
    hidden = np.tanh(x @ w + 0.5)
    error = hidden @ out - y
    slope = 2 * error[:, None] * out * (1 - hidden**2) / len(x)
    return float(np.mean(error**2)), {"w": x.T @ slope, "out": 2 * error @ hidden / len(x)}


# --- 9.2 -----------------------------------------------------------------------------------------


class ScaleMachine(Exercise):
    """A loss scale with patience, and gradients that are unscaled or withheld."""

    id = "9.2"
    title = "The loss-scale state machine"
    answer = ("start_scale", "next_scale", "unscale")
    properties = {
        "grows": Property("doubles the scale after `interval` finite steps in a row", 1, "9.5"),
        "backs off": Property("halves it after `patience` others in a row", 1, "9.5"),
        "bounds": Property("keeps it between 1 and 2²⁴", 1, "9.5"),
        "unscaled": Property("unscales in float32, with no finite gradient lost", 1, "9.5"),
        "withheld": Property("lets no part of a broken gradient through", 1, "9.5"),
    }
    points = 5
    difficulty = 2
    importance = 3
    minutes = 25

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        good = [1] * 24
        yield Case("all steps are finite", good, 256.0, 4, 2, None, about=["grows"])
        flags = [1, 1, 0, 1, 1, 1, 1, 0, 1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1]
        yield Case("single faults", flags, 256.0, 4, 2, None, about=["grows", "backs off"])
        flags = [0] * 8 + [1, 0] * 8
        yield Case("a bad start", flags, 4096.0, 3, 2, None, about=["backs off"])
        yield Case("nothing works", [0] * 24, 12.0, 3, 1, None, about=["bounds"])
        yield Case("everything works", good, 3 * 2.0**20, 3, 1, None, about=["bounds"])
        yield Case("small and large slopes", good, 2.0**12, 3, 1, slopes(), about=["unscaled"])
        yield Case("large slopes, a scale of 1", good, 1.0, 3, 1, slopes(), about=["unscaled"])
        broken = slopes(np.nan)
        yield Case("a NaN in one leaf", good, 2.0**12, 3, 1, broken, about=["withheld"])
        broken = slopes(first=np.inf)
        yield Case("infinity in the other", good, 2.0**12, 3, 1, broken, about=["withheld"])

    def probe(
        self, start_scale: Any, next_scale: Any, unscale: Any, flags: Sequence[int],
        initial: float, interval: int, patience: int, grads: Tree,
    ) -> Mapping[str, Any]:  # fmt: skip
        import jax
        import jax.numpy as jnp

        state = start_scale(initial)
        if grads is None:
            scales = scale_history(next_scale)(
                state, np.array(flags, bool), np.int32(interval), np.int32(patience)
            )
            return {"first": jnp.asarray(state["scale"], jnp.float32), "scales": scales}
        fair, finite = unscaler(unscale)(state, grads)
        return {
            "grads": dict(fair),
            "finite": finite,
            "dtypes": [str(leaf.dtype) for leaf in jax.tree.leaves(fair)],
        }

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        flags, initial, interval, patience, grads = case
        about = case.about or ()
        if grads is None:
            want = scales_of(flags, initial, interval, patience)
            for key in about:
                yield expect.close(key, seen["first"], initial, rtol=0)
                hint = f"interval {interval}, patience {patience}; finite: {flags}"
                got = np.asarray(seen["scales"], np.float64)
                if got.shape != want.shape:
                    yield expect.close(key, got, want, hint="That is the scale after each step.")
                    continue
                first = int(np.argmax(got != want))
                hint = f"That is the scale after step {first + 1}; {hint}"
                yield expect.close(key, got[first], want[first], rtol=0, hint=hint)
            return
        key = about[0]
        fine = all(np.all(np.isfinite(leaf)) for leaf in grads.values())
        yield expect.equal(key, bool(seen["finite"]), fine, hint="That is the second result.")
        dtypes = ", ".join(sorted(set(seen["dtypes"])))
        yield expect.equal(key, dtypes, "float32", hint="That is the dtype of all leaves.")
        for name, leaf in grads.items():
            want = leaf.astype(np.float64) / initial if fine else np.zeros(leaf.shape)
            hint = f"That is the gradient {name!r}, divided by the scale, or zeros."
            yield expect.close(key, seen["grads"].get(name), want, rtol=1e-6, hint=hint)


@functools.lru_cache(maxsize=8)
def scale_history(next_scale: Callable[..., Any]) -> Callable[..., Any]:
    """The answer scanned over a series of steps: the scale after each."""
    import jax

    def history(state: Tree, flags: Any, interval: Any, patience: Any) -> Any:
        def one(state: Tree, finite: Any) -> tuple[Tree, Any]:
            state = next_scale(state, finite, interval, patience)
            return state, state["scale"]

        return jax.lax.scan(one, state, flags)[1]

    return jax.jit(history)


@functools.lru_cache(maxsize=8)
def unscaler(unscale: Callable[..., Any]) -> Callable[..., Any]:
    """The answer, jitted once for all cases."""
    import jax

    return jax.jit(lambda state, grads: unscale(state, grads))


def slopes(fault: float = 1.0, first: float = 3.0) -> dict[str, Array]:
    """Gradients for exercise 9.2: float16 with subnormal numbers, and large ones in float32.

    Two of these add up to infinity. fault: an entry of the last leaf. first: one of the first leaf.
    """
    half = np.array([6e-8, 1e-4, first, 6e4], np.float16)
    single = np.array([[1e25, -2.0, 3e38], [fault, 1e-30, 3e38]], np.float32)
    return {"a": half, "b": single}


def scales_of(flags: Sequence[int], scale: float, interval: int, patience: int) -> Array:
    """The scale after each step, by the rules of exercise 9.2."""
    good = bad = 0
    history = []
    for finite in flags:
        good, bad = (good + 1, 0) if finite else (0, bad + 1)
        if good == interval:
            scale, good = min(2 * scale, 2.0**24), 0
        if bad == patience:
            scale, bad = max(scale / 2, 1.0), 0
        history.append(scale)
    return np.array(history)


# --- 9.3 -----------------------------------------------------------------------------------------


class FairAverage(Exercise):
    """A moving average whose decay moves too."""

    id = "9.3"
    title = "A moving average without a start"
    answer = ("start_average", "update_average", "read_average")
    properties = {
        "mean": Property("reads the mean with weights that add up to 1", 2, "9.6"),
        "decays": Property("does so when the decay changes from step to step", 1.5, "9.6"),
        "narrow": Property("averages bfloat16 in float32", 1, "9.6"),
        "unused": Property("is not touched by steps that are not used", 1, "9.6"),
        "others": Property("takes integers as they come, and reads the start at first", 0.5, "9.6"),
    }
    points = 6
    difficulty = 2
    importance = 2
    minutes = 25

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yes = np.ones(STEPS, bool)
        steady = np.full(STEPS, 0.9, np.float32)
        yield Case("a steady decay", *walk(rng), steady, yes, about=["mean", "narrow"])
        yield Case("one step", *walk(rng), steady, yes & (np.arange(STEPS) < 1), about=["mean"])
        warm = warming()
        yield Case("a decay that warms up", *walk(rng), warm, yes, about=["decays"])
        start, path = walk(rng)
        path["w"][[2, 5]] = np.nan
        yield Case("two broken steps", start, path, steady, without(2, 5), about=["unused"])
        yield Case("no step yet", *walk(rng), steady, ~yes, about=["others"])
        yield Case("the integer leaf", *walk(rng), steady, without(8), about=["others"])

    def probe(
        self, start_average: Any, update_average: Any, read_average: Any, start: Tree, path: Tree,
        decays: Array, used: Array,
    ) -> Mapping[str, Any]:  # fmt: skip
        import jax

        program = averaging(start_average, update_average, read_average)
        result = program(narrowed(start), narrowed(path), decays, used)
        return {
            "average": dict(result),
            "dtypes": [str(leaf.dtype) for leaf in jax.tree.leaves(result)],
        }

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        start, path, decays, used = case
        about = case.about or ()
        leaves = {"b": about[0]} if about[0] != "others" or not np.any(used) else {}
        if "narrow" in about:
            leaves["w"] = "narrow"
        for name, key in leaves.items():
            want = weighted_mean(start[name], path[name], decays, used)
            hint = f"That is the average of {name!r} in float32."
            got = seen["average"].get(name)
            yield expect.close(key, got, want, rtol=1e-4, atol=1e-5, hint=hint)
        kinds = dict(zip("bnw", seen["dtypes"], strict=False))
        if "narrow" in about:
            hint = "That is the dtype in which a bfloat16 leaf is read."
            yield expect.equal("narrow", kinds.get("w"), "float32", hint=hint)
        if "others" in about:
            hint = "That is the dtype in which an integer leaf is read."
            yield expect.equal("others", kinds.get("n"), "int32", hint=hint)
            last = path["n"][used][-1] if np.any(used) else start["n"]
            hint = "An integer is that of the latest params that were used."
            yield expect.equal("others", seen["average"].get("n"), np.array(last), hint=hint)


STEPS = 9
"""Updates in each case of exercise 9.3."""


@functools.lru_cache(maxsize=8)
def averaging(start: Any, update: Any, read: Any) -> Callable[..., Any]:
    """The three answers to exercise 9.3 as one program: averages a path of parameters."""
    import jax

    def run(params: Tree, path: Tree, decays: Any, used: Any) -> Tree:
        def one(state: Tree, each: tuple[Tree, Any, Any]) -> tuple[Tree, None]:
            return update(state, *each), None

        return read(jax.lax.scan(one, start(params), (path, decays, used))[0])

    return jax.jit(run)


def walk(rng: np.random.Generator) -> tuple[dict[str, Any], dict[str, Any]]:
    """Start and path of params for exercise 9.3; "w" holds numbers that bfloat16 has."""

    def rounded(*shape: int) -> Array:
        bits = floats(rng, *shape).view(np.uint32) & np.uint32(0xFFFF0000)
        return bits.view(np.float32)

    start = {"b": floats(rng, 2), "n": np.int32(7), "w": rounded(3, 2)}
    numbers = rng.integers(10, 99, STEPS).astype(np.int32)
    return start, {"b": floats(rng, STEPS, 2), "n": numbers, "w": rounded(STEPS, 3, 2)}


def narrowed(params: Tree) -> Tree:
    """The same with "w" in bfloat16."""
    import jax.numpy as jnp

    return params | {"w": jnp.asarray(params["w"], jnp.bfloat16)}


def warming() -> Array:
    """Decays that grow from 0.5 to 0.98, as in many recipes."""
    t = np.arange(STEPS)
    return np.minimum(0.98, (1 + t) / (2 + t) + 0.05 * (t > 4)).astype(np.float32)


def without(*steps: int) -> Array:
    """All steps are used but these."""
    return ~np.isin(np.arange(STEPS), steps)


def weighted_mean(start: Array, path: Array, decays: Array, used: Array) -> Array:
    """What an average of exercise 9.3 reads, from its definition, in float64."""
    total, weight = np.zeros(start.shape), 0.0
    for leaf, decay, use in zip(path, decays.astype(np.float64), used, strict=True):
        if use:
            total = decay * total + (1 - decay) * leaf.astype(np.float64)
            weight = decay * weight + (1 - decay)
    return total / weight if weight else start.astype(np.float64)


# --- 9.4 -----------------------------------------------------------------------------------------


class Stopping(Exercise):
    """Stop a run that gets no better, and keep the best of it."""

    id = "9.4"
    title = "An early-stopping callback"
    answer = "EarlyStopping"
    properties = {
        "stops": Property("stops at the evaluation at which patience runs out", 1.5, "9.8"),
        "better": Property("counts as better what is better by more than `margin`", 1, "9.8"),
        "nan": Property("takes no NaN for an improvement", 0.75, "9.8"),
        "kept": Property("keeps a copy of the best run that later steps don't delete", 0.75, "9.7"),
        "resumes": Property("goes on from its state as if nothing had happened", 1, "9.8"),
    }
    points = 5
    difficulty = 1
    importance = 2
    minutes = 20

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        losses = [3.0, 2.0, None, 2.5, None, None, 1.5, 1.6, 1.7, None, 1.8, 0.1]
        yield Case("a loss, patience 3", losses, 3, {}, -1, 10, about=["stops"])
        accuracies, upwards = [0.1, 0.3, 0.3, 0.4, 0.2, 0.4, 0.9], {"mode": "max"}
        yield Case("an accuracy, patience 2", accuracies, 2, upwards, -1, 10, about=["stops"])
        jumpy = [1.0, 1.2, 1.1, 1.3, 1.15, 0.5]
        yield Case("up and down, patience 3", jumpy, 3, {}, -1, 1, about=["stops"])
        dense = [value for value in losses if value is not None]
        yield Case("the best run", dense, 3, {}, -1, 1, about=["kept"])
        creeping = [8.0, 7.9, 7.85, 7.8, 7.79, 7.78, 7.6]
        yield Case("small gains", creeping, 2, {"margin": 0.125}, -1, 1, about=["better"])
        broken = [np.nan, 2.0, np.nan, 1.0, np.nan, np.nan, np.nan]
        yield Case("NaN among the losses", broken, 2, {}, -1, 1, about=["nan"])
        yield Case("saved while it waits", dense, 3, {}, 5, 1, about=["resumes"])
        early = [None, *broken[1:]]
        yield Case("saved before any evaluation", early, 2, {}, 1, 1, about=["resumes"])

    def probe(
        self, EarlyStopping: Any, values: Sequence[float | None], patience: int,
        options: Mapping[str, Any], saved: int, apart: int,
    ) -> Mapping[str, Any]:  # fmt: skip
        import jax

        from helpers.trainer import Report

        step_on = next_run()
        bystander = EarlyStopping("loss", 1)
        nothing: Any = {}
        bystander(Report(1, nothing, {"loss": np.float32(-9)}))
        stopper, twin = (EarlyStopping("eval/x", patience, **options) for _ in range(2))
        w = jax.device_put(np.full(2, -1.0, np.float32))
        run = step_on({"w": w, "key": jax.random.key(0)})
        stopped = 0
        for number, value in enumerate(values, 1):
            run, step = step_on(run), apart * number
            logs: dict[str, Any] = {"loss": np.float32(0)}
            if value is not None:
                logs["eval/x"] = np.float32(value)
            if stopper(Report(step, run, logs)) is True:
                stopped = step
                break
            gain = np.float32(100 * number if "mode" in options else -100 * number)
            twin(Report(step, run, {"eval/x": gain}))
            if number == saved:
                text = json.dumps(stopper.state(), allow_nan=False)
                stopper = EarlyStopping("eval/x", patience, **options)
                stopper.restore(json.loads(text))
        step_on(run)
        kept: Any = None
        try:
            kept = None if saved > 0 else np.array(stopper.kept["w"], copy=True)
        except RuntimeError:
            kept = "a run that a later step has deleted"
        except TypeError:
            kept = "no run"
        return {
            "stopped": stopped,
            "best": float(stopper.best) if stopper.best is not None else None,
            "step": stopper.step,
            "kept": kept,
        }

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        values, patience, options, _, apart = case
        key = (case.about or ("stops",))[0]
        stopped, best, best_step = stopping(values, patience, **options)
        hint = f"patience {patience}, {options or 'no margin'}; values in reports"
        hint += f" {apart}, {2 * apart}, … are {values}"
        right = type(seen["stopped"]) is int and seen["stopped"] == apart * stopped
        said, wanted = ending(seen["stopped"]), ending(apart * stopped)
        yield expect.true(key, right, seen=said, expected=wanted, hint=hint)
        yield expect.close(key, seen["best"], best, rtol=1e-6, hint="That is `best`.")
        yield expect.equal(key, seen["step"], apart * best_step, hint="That is `step`.")
        if key == "kept":
            hint = "The run of each report holds its number in all places: 1, 2, …"
            want = np.full(2, float(best_step))
            yield expect.close("kept", seen["kept"], want, rtol=0, hint=hint)


@functools.cache
def next_run() -> Callable[[Tree], Tree]:
    """A step that donates its run."""
    import jax

    return jax.jit(lambda run: run | {"w": run["w"] + 1}, donate_argnums=0)


def ending(step: Any) -> str:
    """The end of a run in words."""
    return f"stopped at step {step}" if step else "never stopped"


def stopping(
    values: Sequence[float | None], patience: int, margin: float = 0.0, mode: str = "min"
) -> tuple[int, float, int]:
    """Last report (0: never stopped), best value and its report, by the rules of exercise 9.4."""
    sign = 1.0 if mode == "min" else -1.0
    best, best_step, waited = math.inf, 0, 0
    for step, value in enumerate(values, 1):
        if value is None:
            continue
        if sign * np.float32(value) < best - margin:
            best, best_step, waited = float(sign * np.float32(value)), step, 0
        else:
            waited += 1
        if waited == patience:
            return step, sign * best, best_step
    return 0, sign * best, best_step


# --- 9.5 -----------------------------------------------------------------------------------------


class ExactResume(Exercise):
    """Batches by their number, and a run as plain arrays: all that a resume needs."""

    id = "9.5"
    title = "A resume that equals never having stopped"
    answer = ("rows_of", "pack", "unpack")
    seconds = 20.0
    properties = {
        "epochs": Property("deals every row once an epoch, in full batches", 1, "9.10"),
        "orders": Property("has an order of its own for each epoch and seed", 1, "9.10"),
        "number": Property("gives a number the same rows, whatever was asked before", 1, "9.10"),
        "plain": Property("packs a run as arrays that NumPy saves without pickle", 1, "9.10"),
        "same": Property("unpacks every leaf bit for bit, in its dtype and form", 1, "9.10"),
        "resumed": Property("ends after a break where it would have ended without", 1, "9.10"),
    }
    points = 6
    difficulty = 3
    importance = 3
    minutes = 30

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        about = ["epochs", "orders", "number"]
        yield Case("7 rows, 3 in a batch", "rows", 7, 3, int(rng.integers(1, 99)), about=about)
        yield Case("8 rows, 4 in a batch, seed 0", "rows", 8, 4, 0, about=about)
        yield Case("3 rows, 5 in a batch", "rows", 3, 5, 0, about=["epochs", "number"])
        seed = int(rng.integers(1, 99))
        yield Case("a break after 3 of 6 steps", "resume", 3, 0, seed, about=["plain", "resumed"])
        yield Case("a run of many dtypes", "pack", 0, 0, seed, about=["plain", "same"])

    def probe(
        self, rows_of: Any, pack: Any, unpack: Any, what: str, n: int, size: int, seed: int
    ) -> Mapping[str, Any]:
        if what == "rows":
            count = 3 * n
            dealt = [np.asarray(rows_of(seed, number, n, size)) for number in range(count)]
            again = [np.asarray(rows_of(seed, k, n, size)) for k in reversed(range(count))]
            others = sorted({seed + 1, 2 * seed} - {seed})
            other = [np.asarray(rows_of(s, k, n, size)) for s in others for k in range(count)]
            return {
                "sizes": [len(rows) for rows in dealt],
                "rows": np.concatenate(dealt),
                "again": np.concatenate(again[::-1]),
                "other": np.concatenate(other),
            }
        if what == "resume":
            end = resumable(seed, 0)
            for _ in range(6):
                end = train(end, rows_of, seed)
            run = resumable(seed, 0)
            for _ in range(n):
                run = train(run, rows_of, seed)
            arrays, odd = through_numpy(pack(run))
            run = unpack(arrays, resumable(seed + 1, 1))
            for _ in range(6 - n):
                run = train(run, rows_of, seed)
            return {"odd": odd, **compared(run, end)}
        import jax

        run, like = motley(seed, 0, n), motley(seed, 1, n)
        arrays, odd = through_numpy(pack(run))
        back = unpack(arrays, like)
        forms: list[Any] = [jax.tree.structure(tree) for tree in (back, run)]
        alike = str(forms[0] == forms[1])
        return {"odd": odd, "structure": alike, **compared(back, run)}

    def told_by(self, case: Case, seen: Mapping[str, Any]) -> Mapping[str, Any]:
        """Which rows failed, for each answer draws in its own way, and the first leaf that differs.

        What is not plain is told without the name that an answer gave it.
        """
        failed = {f"{row.key}: {row.hint}" for row in self.judge(case, seen) if not row.passed}
        return {"failed": sorted(failed), "differs": seen.get("differs", "")}

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        what, n, size, _ = case
        if what == "rows":
            yield from judge_rows(case.about or (), n, size, seen)
            return
        hint = (
            "An array of numbers, bools or bytes. bfloat16 comes back from `np.load` as raw bytes,"
            " and a key is no NumPy array at all."
        )
        yield expect.equal("plain", seen["odd"], "", hint=hint)
        key = "resumed" if what == "resume" else "same"
        yield expect.equal(key, seen.get("structure", "True"), "True", hint="That is the form.")
        hint = "It is the first leaf that differs from the run that was not interrupted."
        if what == "pack":
            hint = "It is the first leaf that differs from the one that was packed."
        yield expect.equal(key, seen["differs"], "", hint=hint)


def judge_rows(about: Sequence[str], n: int, size: int, seen: Mapping[str, Any]) -> Iterator[Row]:
    """The rows for the order of the data in exercise 9.5."""
    rows = np.asarray(seen["rows"])
    for got in sorted({*seen["sizes"]}, key=lambda length: length == size)[:1]:
        yield expect.equal("epochs", got, size, unit="rows in a batch")
    epochs = rows[: len(rows) // n * n].reshape(-1, n)
    whole = [sorted(epoch.tolist()) == list(range(n)) for epoch in epochs]
    hint = f"Batches in a row, cut after each {n} rows, are the epochs."
    unit = f"of {len(whole)} epochs have each row once"
    yield expect.equal("epochs", sum(whole), len(whole), unit=unit, hint=hint)
    hint = "The same numbers were asked for again, the last one first."
    yield expect.equal("number", seen["again"], rows, hint=hint)
    if "orders" in about:
        others = np.asarray(seen["other"])
        others = others[: len(others) // n * n].reshape(-1, n)
        hint = f"That is the number of different orders among the first {len(epochs)} epochs."
        different = len({tuple(epoch) for epoch in epochs.tolist()})
        yield expect.at_least("orders", different, len(epochs) - 1, hint=hint)
        common = {tuple(e) for e in epochs.tolist()} & {tuple(e) for e in others.tolist()}
        hint = "Orders that it shares with the next seed, or with twice the seed, in any epochs."
        yield expect.at_most("orders", len(common), 1, hint=hint)


def through_numpy(arrays: Any) -> tuple[dict[str, Array], str]:
    """The arrays after NumPy has saved and loaded them, and what was not plain: "" if nothing.

    Arrays that are not all plain come back as they are: what they lose on the way is known.
    """
    if not isinstance(arrays, dict):
        return {}, f"{type(arrays).__name__} instead of a dict"
    odd = ""
    for name, array in arrays.items():
        if not (type(name) is str and type(array) is np.ndarray and array.dtype.kind in "biufcSU"):
            kind = getattr(array, "dtype", type(array).__name__)
            odd = odd or f"{type(array).__name__} of {kind} under {name!r:.40}"
    if odd:
        return arrays, odd
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **{f"a{i}": a for i, a in enumerate(arrays.values())})
    buffer.seek(0)
    with np.load(buffer, allow_pickle=False) as loaded:
        return {name: loaded[f"a{i}"] for i, name in enumerate(arrays)}, odd


def resumable(seed: int, shift: int) -> Tree:
    """A run for exercise 9.5: params, momentum, key and the number of the next batch."""
    import jax
    import jax.numpy as jnp

    w = np.random.default_rng([seed, shift]).standard_normal(3).astype(np.float32)
    return {
        "params": {"w": jnp.asarray(w), "b": jnp.asarray(w[0], jnp.bfloat16)},
        "trace": {"w": jnp.asarray(w / 9), "b": jnp.asarray(w[1] / 9, jnp.bfloat16)},
        "key": jax.random.key(seed + shift),
        "batch": jnp.asarray(40 * shift, jnp.int32),
        "average": None,
    }


def train(run: Tree, rows_of: Callable[..., Any], seed: int) -> Tree:
    """One step of exercise 9.5 on the batch whose turn it is."""
    x = np.random.default_rng(seed).standard_normal((7, 3)).astype(np.float32)
    rows = np.asarray(rows_of(seed, int(run["batch"]), 7, 3))
    return dropout_step()(run, x[np.resize(rows, 3)])


@functools.cache
def dropout_step() -> Callable[[Tree, Any], Tree]:
    """A momentum step with dropout that splits its key."""
    import jax
    import jax.numpy as jnp

    def step(run: Tree, x: Any) -> Tree:
        key, now = jax.random.split(run["key"])

        def loss(params: Tree) -> Any:
            kept = jax.random.bernoulli(now, 0.5, x.shape)
            return jnp.mean(jnp.tanh((x * kept) @ params["w"] + params["b"]) ** 2)

        grads = jax.grad(loss)(run["params"])
        trace = jax.tree.map(lambda t, g: (0.5 * t + g).astype(t.dtype), run["trace"], grads)
        params = jax.tree.map(lambda p, t: (p - t).astype(p.dtype), run["params"], trace)
        return run | {"params": params, "trace": trace, "key": key, "batch": run["batch"] + 1}

    return jax.jit(step)


def motley(seed: int, shift: int, impl: int) -> Tree:
    """A tree of many kinds of leaves for exercise 9.5. impl: 1 for keys of another kind."""
    import jax
    import jax.numpy as jnp

    from helpers.optim import ScaleByAdamState

    rng = np.random.default_rng([seed, shift, 5])
    w = floats(rng, 2, 3)
    moments = ({"w": jnp.asarray(w / 3)}, {"w": jnp.asarray(w**2, jnp.float16)})
    return {
        "params": [{"w": jnp.asarray(w)}, {"w": jnp.asarray(w * [1, 1e9, 1e-9], jnp.bfloat16)}],
        "params/0/w": jnp.asarray(w[0] > 0),
        "a": {"b": jnp.asarray(w[0])},
        "a.b": jnp.asarray(w[1]),
        "adam": ScaleByAdamState(jnp.asarray(3 + shift, jnp.int32), *moments),
        "key": jax.random.key(seed + shift, impl="rbg" if impl else None),
        "none": None,
    }


def compared(run: Tree, want: Tree) -> dict[str, str]:
    """The path of the first leaf that is not the same, bit for bit; "" for none."""
    import jax

    got, expected = (jax.tree_util.tree_leaves_with_path(tree) for tree in (run, want))
    if [path for path, _ in got] != [path for path, _ in expected]:
        return {"differs": "another form"}
    for (path, a), (_, b) in zip(got, expected, strict=True):
        if not isinstance(a, jax.Array) or (a.dtype, a.shape) != (b.dtype, b.shape):
            kind = f"{getattr(a, 'dtype', type(a).__name__)}{getattr(a, 'shape', '')}"
            return {"differs": f"{jax.tree_util.keystr(path)} is {kind}"}
        if not isinstance(b.dtype, np.dtype):  # a typed key
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        if np.array(a).tobytes() != np.array(b).tobytes():
            return {"differs": jax.tree_util.keystr(path)}
    return {"differs": ""}


EXERCISES = [Accumulation, ScaleMachine, FairAverage, Stopping, ExactResume]


# --- quiz ----------------------------------------------------------------------------------------


def mean_of_means() -> str:
    """Question 9.a."""
    batches = [np.array([2.0, 2.0, 2.0]), np.array([6.0])]
    by_batch = float(np.mean([np.mean(batch) for batch in batches]))
    return {2.0: "a", 3.0: "b", 4.0: "c"}.get(by_batch, "?")


def smallest_half() -> str:
    """Question 9.b: what is left of a gradient of 1e-8 in float16, bare and scaled by 2**15."""
    bare = float(np.float16(1e-8))
    scaled = float(np.float16(1e-8 * 2**15)) / 2**15
    return {(True, True): "a", (False, True): "b", (False, False): "c"}[
        (abs(bare / 1e-8 - 1) < 0.01, abs(scaled / 1e-8 - 1) < 0.01)
    ]


def clipped_while_scaled() -> str:
    """Question 9.c: the length of a gradient of 3 that is clipped to 1 while scaled by 1024."""
    import jax.numpy as jnp

    from helpers.trees import clip_to_norm, global_norm

    grad = clip_to_norm(jnp.array([3.0 * 1024]), 1.0)
    length = float(global_norm(grad)) / 1024
    return "a" if length == 1 else "c" if length < 0.01 else "b"


def after_one_update() -> str:
    """Question 9.d: an average with decay 0.9 from zero, after one update with params of 5."""
    raw = 0.9 * 0.0 + (1 - 0.9) * 5.0
    return {0.5: "a", 4.5: "b", 5.0: "c"}.get(round(raw, 6), "?")


def generator_twice() -> str:
    """Question 9.e."""
    from helpers.trainer import OutOfData, stream

    taken = 0
    try:
        for _ in stream(batch for batch in range(10)):
            taken += 1
            if taken == 25:
                return "a"
    except OutOfData:
        return "c"
    return "b"


def read_next_step() -> str:
    """Question 9.f: a callback keeps `report.run`; the next step comes."""
    import jax
    import jax.numpy as jnp

    step = jax.jit(lambda run: run + 1, donate_argnums=0)
    kept = step(jnp.zeros(3))
    step(kept)
    return "b" if kept.is_deleted() else "a"


def micro_batches_in_a_step() -> str:
    """Question 9.g: programs for a run whose last micro-batch is smaller."""
    import jax
    import jax.numpy as jnp

    from helpers.compiles import CompileCounter

    def mean_square(x: Any) -> Any:
        return jnp.mean(x**2)

    program = jax.jit(mean_square)
    with CompileCounter(only="mean_square") as counter:
        for rows in (4, 4, 4, 2, 4, 4, 4, 2):
            program(np.ones(rows, np.float32))
    return {1: "a", 2: "b", 8: "c"}.get(counter.count, "?")


QUIZ = [
    Question(
        "9.a",
        "One micro-batch has three examples with a loss of 2, the other a single one with 6. What"
        " does the mean of the two mean losses come to?",
        {"a": "2", "b": "3, the mean of all", "c": "4"},
        "c",
        "The single example weighs as much as the three together; the mean of all four is 3.",
        "9.3",
        mean_of_means,
    ),
    Question(
        "9.b",
        "A gradient is 1e-8. What does float16 keep of it, bare, and multiplied by 2¹⁵?",
        {
            "a": "all of it, both times",
            "b": "nothing bare, nearly all of it scaled",
            "c": "nothing, both times",
        },
        "b",
        "The smallest number of float16 is 6e-8; scaled up, the gradient lies in its normal range.",
        "9.5",
        smallest_half,
    ),
    Question(
        "9.c",
        "A gradient of length 3 is scaled by 1024, clipped to length 1, and then unscaled. How long"
        " is it now?",
        {"a": "1", "b": "3", "c": "less than 0.01"},
        "c",
        "The limit was applied to the scaled gradient: unscale first, then look, then clip.",
        "9.5",
        clipped_while_scaled,
    ),
    Question(
        "9.d",
        "An average with decay 0.9 starts from zero. The parameter has been 5 all the time. What is"
        " the uncorrected average after one update?",
        {"a": "0.5", "b": "4.5", "c": "5"},
        "a",
        "Its weights add up to 0.1 only; dividing by that gives 5.",
        "9.6",
        after_one_update,
    ),
    Question(
        "9.e",
        "The data are a generator of 10 batches, and the run asks for 25. What does `fit` do?",
        {"a": "reads it three times", "b": "ends after 10, in silence", "c": "raises OutOfData"},
        "c",
        "A generator can be read once; the trainer notices when a second reading gives nothing.",
        "9.2",
        generator_twice,
    ),
    Question(
        "9.f",
        "A callback puts `report.run` into a list. What is in the list after the next step?",
        {"a": "the run as it was", "b": "a run whose arrays are deleted"},
        "b",
        "The next step donates it. `weights(report.run)` and `jnp.copy` make copies.",
        "9.7",
        read_next_step,
    ),
    Question(
        "9.g",
        "An epoch has three batches of 4 rows and one of 2. How many programs does a jitted loss"
        " compile in two epochs?",
        {"a": "1", "b": "2", "c": "8"},
        "b",
        "One for each shape: pad the small batch and count its real rows, and it is 1.",
        "9.8",
        micro_batches_in_a_step,
    ),
]
