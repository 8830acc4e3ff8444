"""Chapter 05 · Optimizers by hand: the public cases, probe and judge of each exercise, the quiz.

JAX is imported inside probes only, so that the judge's side needs nothing but NumPy.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from helpers import expect
from helpers.exercise import Case, Exercise, Property, Row, error_name, is_stub
from helpers.quiz import Question

Array = npt.NDArray[Any]
Leaves = Mapping[str, Any]
"""Arrays by name, or dicts of these."""


# --- what all exercises share --------------------------------------------------------------------


def normal(rng: np.random.Generator, *shape: int) -> Array:
    """Standard normal numbers, float32."""
    return rng.standard_normal(shape).astype(np.float32)


def bfloat16(x: Array) -> Array:
    """Cut to the digits that a bfloat16 has; still float32."""
    return (np.asarray(x, np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


def exact(tree: Any) -> Any:
    """The same dicts with float64 arrays."""
    if isinstance(tree, dict):
        return {name: exact(leaf) for name, leaf in tree.items()}
    return np.asarray(tree, np.float64)


_KEPT: dict[str, tuple[Any, Any]] = {}


def kept(key: str, answer: Any, fresh: bool, build: Callable[[], Any]) -> Any:
    """What `build` returns, or returned before for the same answer and key. For probes.

    Compiling is what costs. A case that is not fresh runs the programs of the one before it; a
    fresh one builds them anew, for a learner may have changed what the answer calls.
    """
    before = _KEPT.get(key)
    if fresh or before is None or before[0] is not answer:
        _KEPT[key] = before = answer, build()
    return before[1]


def programs(optimizer: Any) -> tuple[Any, Any]:
    """Its init, and one step, jitted. For probes.

    The step: (params, state, gradients) → (updates, state, params).
    """
    import jax

    from helpers.optim import apply_updates

    def step(params: Any, state: Any, gradients: Any) -> Any:
        updates, state = optimizer.update(gradients, state, params)
        return updates, state, apply_updates(params, updates)

    return optimizer.init, jax.jit(step)


def walk(
    made: tuple[Any, Any], params: Any, gradients: Sequence[Any]
) -> tuple[Any, list[Any], dict[str, Any]]:
    """Takes one step a gradient. For probes: first state, all updates, and what was compiled."""
    import jax

    from helpers.compiles import CompileCounter

    init, step = made
    first = state = init(params)
    found = []
    with CompileCounter(only="step") as counter:
        for gradient in gradients:
            updates, state, params = step(params, state, gradient)
            found.append(updates)
    found = jax.tree.map(np.asarray, jax.device_get(found))
    return first, found, {"compiled": counter.count}


def stacked(updates: Sequence[Leaves]) -> dict[str, Any]:
    """One array a leaf, with an axis for the steps in front. For probes."""
    import jax

    return jax.tree.map(lambda *leaves: np.stack(leaves), *updates)


def bytes_of(tree: Any) -> int:
    """What the arrays of a state take. For probes."""
    import jax

    return sum(int(getattr(leaf, "nbytes", 0)) for leaf in jax.tree.leaves(tree))


def wide_numbers(tree: Any) -> int:
    """How many numbers of a state are float32, or wider. For probes."""
    import jax

    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]
    return sum(leaf.size for leaf in leaves if leaf.dtype.kind == "f" and leaf.itemsize >= 4)


# --- 5.1 -----------------------------------------------------------------------------------------

LION_STEPS = 26
LION_RATE, LION_DECAY = 0.01, 0.5
LION_BETAS = {"constant": (0.5, 0.999), "schedule": (0.9, 0.6), "no mask": (0.9, 0.99)}
"""b1 and b2. The first pair keeps a bfloat16 moment where it is, the second one moves it much."""

NEAR_FLIP = 4
"""Steps around the flip of the bfloat16 leaf on which rounding may decide."""


class Lion(Exercise):
    """A sign, one moment, and two decay rates that are easily mixed up."""

    id = "5.1"
    title = "Lion"
    answer = "lion"
    properties = {
        "direction": Property("moves by the rate in the direction of the blend's sign", 1.5,
                              see="5.4"),
        "decay": Property("decays what the mask chooses, beside the sign", 1.25, see="5.6"),
        "schedule": Property("takes a schedule and a mask that are functions", 1, see="5.8"),
        "narrow": Property("keeps a float32 moment for bfloat16 parameters", 1.25, see="5.5"),
        "memory": Property("remembers one float32 number for each parameter, and no more", 1,
                           see="5.4"),
    }  # fmt: skip
    points = 6
    difficulty = 1
    importance = 2
    minutes = 20

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        about = ["direction", "decay", "narrow", "memory"]
        yield Case(f"{LION_STEPS} steps, a constant rate and a tree of bools",
                   *lion_inputs(rng, "constant"), True, about=about)  # fmt: skip
        yield Case(f"{LION_STEPS} steps, a schedule and a mask function",
                   *lion_inputs(rng, "schedule"), True, about=["schedule"])  # fmt: skip
        yield Case("no mask", *lion_inputs(rng, "no mask"), True, about=["decay"])

    def probe(
        self, lion: Callable[..., Any], params: Leaves, gradients: Leaves, kind: str, fresh: bool
    ) -> Mapping[str, Any]:
        import jax
        import jax.numpy as jnp

        def narrowed(tree: Leaves) -> dict[str, Any]:
            return {**tree, "half": np.asarray(tree["half"]).astype(jnp.bfloat16)}

        def make() -> Any:
            rate = lion_schedule if kind == "schedule" else LION_RATE
            masks = {
                "constant": {"b": False, "half": False, "w": True},
                "schedule": lambda params: jax.tree.map(lambda p: p.ndim > 1, params),
                "no mask": None,
            }
            return programs(lion(rate, *LION_BETAS[kind], LION_DECAY, masks[kind]))

        made = kept(f"5.1 {kind}", lion, fresh, make)
        each = [
            narrowed({name: leaf[t] for name, leaf in gradients.items()}) for t in range(LION_STEPS)
        ]
        first, updates, _ = walk(made, narrowed(params), each)
        return {
            "updates": stacked(updates),
            "dtypes": {name: str(leaf.dtype) for name, leaf in updates[0].items()},
            "state bytes": bytes_of(first),
            "wide numbers": wide_numbers(first),
        }

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        params, gradients, kind, _ = case
        rate = lion_schedule if kind == "schedule" else lambda t: LION_RATE
        decayed = ("b", "half", "w") if kind == "no mask" else ("w",)
        want = lion_updates(exact(params), exact(gradients), rate, LION_BETAS[kind], decayed)
        got = seen["updates"]
        keys = {
            "constant": ("direction", "decay"),
            "schedule": ("schedule", "schedule"),
            "no mask": ("decay", "decay"),
        }
        for key, name in zip(keys[kind], ("b", "w"), strict=True):
            hint = f"Leaf “{name}”; index 0 counts the steps."
            yield expect.close(key, got[name], want[name], rtol=1e-4, atol=1e-6, hint=hint)
        if kind == "schedule":
            return
        close = partial(expect.close, rtol=0.02, atol=0.02 * LION_RATE)
        if kind == "no mask":
            hint = "Leaf “half” is bfloat16."
            yield close("decay", got["half"], want["half"], hint=hint)
            return
        flip = int(np.argmax(want["half"][1:, 0] > 0)) + 1
        sure = np.abs(np.arange(LION_STEPS) - flip) >= NEAR_FLIP
        hint = (
            f"Leaf “half”, but for the steps around {flip}: there its sign flips, "
            "for the slope turns after a steep first step."
        )
        yield close("narrow", got["half"][sure], want["half"][sure], hint=hint)
        yield expect.equal("narrow", seen["dtypes"]["half"], "bfloat16",
                           hint="An update has the dtype of its parameter.")  # fmt: skip
        numbers = sum(leaf.size for leaf in params.values())
        hint = "That is the state which `init` returns."
        yield expect.at_least("narrow", seen["wide numbers"], numbers, unit="float32 numbers",
                              hint=hint)  # fmt: skip
        hint = f"There are {numbers} parameters; 8 bytes are for a count of steps."
        yield expect.at_most("memory", seen["state bytes"], lion_bytes(params), unit="bytes",
                             hint=hint)  # fmt: skip

    def told_by(self, case: Case, seen: Mapping[str, Any]) -> Mapping[str, Any]:
        """Everything, of the state whether it is too large, and whether its moment is narrow."""
        params = case.inputs[0]
        narrow = seen["wide numbers"] < sum(leaf.size for leaf in params.values())
        large = seen["state bytes"] > lion_bytes(params)
        return {**seen, "state bytes": large, "wide numbers": narrow}


def lion_bytes(params: Leaves) -> int:
    """What the state may take: a float32 for each parameter, and a count."""
    return 4 * sum(leaf.size for leaf in params.values()) + 8


def lion_schedule(steps: Any) -> Any:
    """0.01, and less by a tenth of it at each step: works on numbers and on tracers."""
    return 0.01 / (1.0 + 0.1 * steps)


def lion_inputs(
    rng: np.random.Generator, kind: str
) -> tuple[dict[str, Array], dict[str, Array], str]:
    """Params w (2, 3), b (3,) and half (3,), a gradient of each for every step, and the kind.

    No blend comes near zero, where rounding would decide. All entries of `half` see the same
    slopes: one long step, then small ones the other way, between which a bfloat16 moment is stuck.
    """
    while True:
        params = {"b": normal(rng, 3), "half": bfloat16(normal(rng, 3)), "w": normal(rng, 2, 3)}
        gradients = {"b": normal(rng, LION_STEPS, 3), "w": normal(rng, LION_STEPS, 2, 3)}
        moment = 2.0**-4 * rng.uniform(1.06, 1.16)
        half = np.full((LION_STEPS, 3), -0.985 * moment)
        half[0] = moment / (1 - LION_BETAS["constant"][1])
        gradients["half"] = bfloat16(half)
        if lion_margin(exact(gradients), LION_BETAS[kind]) > 2e-3:
            return params, gradients, kind


def lion_blends(gradients: Array, betas: tuple[float, float]) -> Array:
    """b1 · moment + (1 − b1) · gradient before each step."""
    b1, b2 = betas
    moment = np.zeros_like(gradients[0])
    blends = []
    for g in gradients:
        blends.append(b1 * moment + (1 - b1) * g)
        moment = b2 * moment + (1 - b2) * g
    return np.array(blends)


def lion_margin(gradients: Leaves, betas: tuple[float, float]) -> float:
    """The smallest size of a blend of w and b."""
    return min(float(np.min(np.abs(lion_blends(gradients[name], betas)))) for name in ("b", "w"))


def lion_updates(
    params: Leaves,
    gradients: Leaves,
    rate: Callable[[int], float],
    betas: tuple[float, float],
    decayed: Sequence[str],
) -> dict[str, Array]:
    """The updates of every step, in float64. decayed: the names of the leaves that are."""
    found = {}
    for name, p in params.items():
        updates = []
        for t, blend in enumerate(lion_blends(gradients[name], betas)):
            updates.append(-rate(t) * (np.sign(blend) + LION_DECAY * p * (name in decayed)))
            p = p + updates[-1]
        found[name] = np.array(updates)
    return found


# --- 5.2 -----------------------------------------------------------------------------------------

FACTORED_STEPS = 28
FACTORED_B2 = 0.7


class FactoredMoment(Exercise):
    """Adafactor's second moment: a row and a column in place of a matrix."""

    id = "5.2"
    title = "A second moment of rows and columns"
    answer = "scale_by_factored_rms"
    properties = {
        "matrix": Property("divides a matrix by the root of the factored moment", 1.5,
                           see="5.4"),
        "first": Property("corrects the bias: the first steps are as long as the later ones", 0.75,
                          see="5.4"),
        "vector": Property("keeps the whole moment of vectors and scalars", 0.75, see="5.4"),
        "stack": Property("factors each matrix of a stack by itself", 0.75, see="5.4"),
        "tiny": Property("is right for gradients of 1e-12, and 0 for gradients of 0", 1.25,
                         see="5.4"),
        "memory": Property("remembers rows and columns, never a matrix", 1, see="5.4"),
    }  # fmt: skip
    points = 6
    difficulty = 3
    importance = 2
    minutes = 35

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case(f"{FACTORED_STEPS} steps of b2 = {FACTORED_B2}", factored_inputs(rng), True)

    def probe(
        self, scale_by_factored_rms: Callable[..., Any], gradients: Leaves, fresh: bool
    ) -> Mapping[str, Any]:
        def make() -> Any:
            return programs(scale_by_factored_rms(FACTORED_B2, 1e-30))

        made = kept("5.2", scale_by_factored_rms, fresh, make)
        params = {name: np.ones_like(leaf[0]) for name, leaf in gradients.items()}
        each = [{name: leaf[t] for name, leaf in gradients.items()} for t in range(FACTORED_STEPS)]
        first, updates, _ = walk(made, params, each)
        return {"updates": stacked(updates), "state bytes": bytes_of(first)}

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        gradients, _ = case
        got = seen["updates"]
        want = {name: factored_updates(leaf) for name, leaf in exact(gradients).items()}
        keys = {"matrix": "matrix", "vector": "vector", "scalar": "vector", "stack": "stack",
                "tiny": "tiny", "dead": "tiny"}  # fmt: skip
        early, late = slice(0, 4), slice(20, None)
        yield expect.close("first", np.asarray(got["matrix"])[early], want["matrix"][early],
                           rtol=1e-3, atol=1e-5, hint="These are steps 1 to 4.")  # fmt: skip
        for name, key in keys.items():
            hint = (
                f"Leaf “{name}”, gradients of shape {gradients[name].shape[1:]}, from step 21 on."
            )
            yield expect.close(key, np.asarray(got[name])[late], want[name][late],
                               rtol=1e-3, atol=1e-5, hint=hint)  # fmt: skip
        most = factored_bytes(gradients)
        hint = f"All rows, columns and vectors together take {most - 8} bytes, a count 8 at most."
        yield expect.at_most("memory", seen["state bytes"], most, unit="bytes", hint=hint)
        yield expect.at_least("memory", seen["state bytes"], most - 8, unit="bytes", hint=hint)

    def told_by(self, case: Case, seen: Mapping[str, Any]) -> Mapping[str, Any]:
        """Everything, of the state's bytes whether they are too many, or too few."""
        most = factored_bytes(case.inputs[0])
        bytes_seen = seen["state bytes"]
        return {**seen, "state bytes": [bytes_seen > most, bytes_seen < most - 8]}


def factored_bytes(gradients: Leaves) -> int:
    """What the state may take: rows, columns and vectors in float32, and a count."""
    return 4 * sum(factors_of(leaf.shape[1:]) for leaf in gradients.values()) + 8


def factored_inputs(rng: np.random.Generator) -> dict[str, Array]:
    """Gradients for every step; rows and columns are of different sizes."""

    def uneven(*shape: int) -> Array:
        rows = 10.0 ** rng.uniform(-1, 1, (*shape[:-1], 1))
        return (normal(rng, FACTORED_STEPS, *shape) * rows).astype(np.float32)

    return {
        "dead": np.zeros((FACTORED_STEPS, 3, 4), np.float32),
        "matrix": uneven(3, 5),
        "scalar": normal(rng, FACTORED_STEPS),
        "stack": uneven(4, 3, 2),
        "tiny": np.float32(1e-12) * uneven(3, 4),
        "vector": normal(rng, FACTORED_STEPS, 5),
    }


def factors_of(shape: Sequence[int]) -> int:
    """How many numbers stand for a leaf of this shape."""
    if len(shape) < 2:
        return int(np.prod(shape))
    stack = int(np.prod(shape[:-2]))
    return stack * (shape[-2] + shape[-1])


def factored_updates(gradients: Array, eps: float = 1e-30) -> Array:
    """The update of every step, in float64."""
    rows = columns = moment = np.float64(0)
    found = []
    for t, g in enumerate(gradients, 1):
        squares = g**2 + eps
        mend = 1 - FACTORED_B2**t
        if g.ndim < 2:
            moment = FACTORED_B2 * moment + (1 - FACTORED_B2) * squares
            found.append(g / np.sqrt(moment / mend))
            continue
        rows = FACTORED_B2 * rows + (1 - FACTORED_B2) * squares.mean(axis=-1)
        columns = FACTORED_B2 * columns + (1 - FACTORED_B2) * squares.mean(axis=-2)
        share = rows / rows.mean(axis=-1, keepdims=True)
        found.append(g / np.sqrt(share[..., :, None] * (columns / mend)[..., None, :]))
    return np.array(found)


# --- 5.3 -----------------------------------------------------------------------------------------

Stages = tuple[float, int, int, int, float]
"""peak, warm-up, stable and decay steps, end."""


class StableDecay(Exercise):
    """A schedule of three stages, with the edges where they meet."""

    id = "5.3"
    title = "Warm-up, stable, decay"
    answer = "warmup_stable_decay"
    properties = {
        "value": Property("is right in the three stages, and behind them", 1.5, see="5.8"),
        "edges": Property("may have stages of no steps", 1, see="5.8"),
        "late": Property("is exact to one step also after two billion", 1, see="5.8"),
        "array": Property("takes step counts of any shape, and gives float32", 0.75, see="5.8"),
        "refuses": Property("refuses a negative number of steps with a ValueError", 0.75,
                            see="5.8"),
    }  # fmt: skip
    points = 5
    difficulty = 2
    importance = 2
    minutes = 20

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        around = np.arange(-1, 6, dtype=np.int32)
        yield Case("5, 7 and 9 steps, an end of 0.1", (0.5, 5, 7, 9, 0.1), points(range(24)),
                   about=["value", "array"])  # fmt: skip
        yield Case("no warm-up", (0.5, 0, 4, 6, 0.0), points(range(24)), about=["edges"])
        yield Case("no stable stage and no decay", (0.5, 4, 0, 0, 0.125), points(range(24)),
                   about=["edges"])  # fmt: skip
        yield Case("a plateau and no decay", (0.5, 2, 5, 0, 0.125), points(range(24)),
                   about=["edges"])  # fmt: skip
        start = 2**31 - 100
        yield Case("a decay of 8 steps after two billion", (0.5, 1000, start - 1000, 8, 0.0),
                   points(chain([0, 999], *(start + around + 6 * i for i in range(3)))),
                   about=["late"])  # fmt: skip
        for name, stages in (
            ("a warm-up", (0.5, -1, 4, 4, 0.0)),
            ("a decay", (0.5, 1, 4, -4, 0.0)),
        ):
            yield Case(f"{name} of fewer than 0 steps", stages, None, about=["refuses"])

    def probe(
        self, warmup_stable_decay: Callable[..., Any], stages: Stages, steps: Array | None
    ) -> Mapping[str, Any]:
        import jax

        if steps is None:
            made: list[Any] = []
            error = error_name(lambda: made.append(warmup_stable_decay(*stages)))
            late = error or error_name(lambda: jax.eval_shape(made[0], np.int32(0)))
            return {"error": error, "called": late}
        schedule = warmup_stable_decay(*stages)
        one = jax.eval_shape(schedule, jax.ShapeDtypeStruct((), np.int32))
        return {
            "rates": jax.jit(schedule)(steps),
            "dtype": str(one.dtype),
            "shape": list(one.shape),
        }

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        stages, steps = case
        (key, *_) = case.about or ("value",)
        if steps is None:
            hint = "The schedule was made, and not called."
            yield expect.raises("refuses", seen["error"], "ValueError", hint=hint)
            return
        want = stable_decay(stages, steps)
        hint = f"peak, warm-up, stable, decay, end = {stages}. The steps are a (4, 6) array."
        yield expect.close(key, seen["rates"], want, rtol=1e-4, atol=1e-5, hint=hint)
        if key == "value":
            shape = np.asarray(seen["rates"]).shape
            yield expect.equal("array", list(shape), list(steps.shape),
                               hint="That is the shape for steps of shape (4, 6).")  # fmt: skip
            yield expect.equal("array", seen["shape"], [], hint="That is for a single step.")
            yield expect.equal("array", seen["dtype"], "float32")


def points(steps: Any) -> Array:
    """24 numbers of steps as a (4, 6) array of int32, the last ones repeated."""
    numbers = [*steps]
    numbers += [numbers[-1]] * (24 - len(numbers))
    return np.array(numbers, np.int64).astype(np.int32).reshape(4, 6)


def stable_decay(stages: Stages, steps: Array) -> Array:
    """The schedule, step by step, in float64."""
    peak, warmup, stable, decay, end = stages

    def rate(t: int) -> float:
        if t < warmup:
            return peak * t / warmup
        if t < warmup + stable:
            return peak
        if t < warmup + stable + decay:
            return peak + (end - peak) * np.sqrt((t - warmup - stable) / decay)
        return end

    flat = [rate(int(t)) for t in np.asarray(steps).ravel()]
    return np.array(flat, np.float64).reshape(np.shape(steps))


# --- 5.4 -----------------------------------------------------------------------------------------

ACCUMULATED_WINDOWS = 5
RATE, MOMENTUM, DECAY = 0.1, 0.9, 0.2


class Accumulate(Exercise):
    """Several gradients, one step, whatever optimizer takes it."""

    id = "5.4"
    title = "Gradient accumulation around any optimizer"
    answer = "accumulate"
    properties = {
        "value": Property("takes the optimizer's step on the mean of the gradients", 1.5,
                          see="5.10"),
        "waits": Property("gives zeros in all calls between", 0.75, see="5.10"),
        "narrow": Property("adds up bfloat16 gradients in float32", 1.25, see="5.5"),
        "broken": Property("leaves out a gradient that is not finite, in all leaves", 1.5,
                           see="5.10"),
        "once": Property("is one program for all calls, which may be scanned", 1, see="5.8"),
    }  # fmt: skip
    points = 6
    difficulty = 3
    importance = 3
    minutes = 35

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        about = ["value", "waits", "narrow", "once"]
        yield Case("windows of 4, all of them good", *windows(rng, 4, []), 4, True, about=about)
        bad = [(1, 2, "b"), (2, 0, "w"), (2, 1, "b"), (2, 2, "w"), (2, 3, "w"), (3, 0, "w")]
        yield Case("windows of 4; in the second, one gradient is bad, in the third all are",
                   *windows(rng, 4, bad), 4, False, about=["broken"])  # fmt: skip

    def probe(
        self, accumulate: Callable[..., Any], params: Leaves, gradients: Leaves, every: int,
        fresh: bool,
    ) -> Mapping[str, Any]:  # fmt: skip
        import jax
        import jax.numpy as jnp

        from helpers import optim

        def narrowed(tree: Leaves) -> dict[str, Any]:
            return {**tree, "b": np.asarray(tree["b"]).astype(jnp.bfloat16)}

        def make() -> Any:
            given: list[str] = []

            def noted(gradients: Leaves, params: Leaves) -> Leaves:
                given.append(", ".join(f"{name} {g.dtype}" for name, g in gradients.items()))
                return gradients

            inner = optim.chain(
                optim.stateless(noted),
                optim.trace(MOMENTUM),
                optim.add_decayed_weights(DECAY),
                optim.scale(-RATE),
            )
            wrapped = accumulate(inner, every)
            return programs(wrapped), wrapped, given

        made, wrapped, given = kept(f"5.4 {every}", accumulate, fresh, make)
        calls = every * ACCUMULATED_WINDOWS
        each = [narrowed({name: leaf[t] for name, leaf in gradients.items()}) for t in range(calls)]
        _, updates, counts = walk(made, narrowed(params), each)
        found = {"updates": stacked(updates), "compiled": counts["compiled"]}
        if fresh:
            shapes = jax.eval_shape(wrapped.init, each[0])
            _, after = jax.eval_shape(wrapped.update, each[0], shapes, each[0])
            found["scans"] = kinds(shapes) == kinds(after)
            found["given"] = sorted(set(given))
        return found

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        params, gradients, every, fresh = case
        got = {name: np.asarray(leaf, np.float64) for name, leaf in seen["updates"].items()}
        good = np.all([finite_rows(leaf) for leaf in gradients.values()], axis=0)
        want = accumulated(exact(params), exact(gradients), good, every)
        last = np.arange(len(good)) % every == every - 1
        broken = not np.all(good)
        for name, leaf in want.items():
            key = "broken" if broken else {"w": "value", "b": "narrow"}[name]
            tolerance = {"w": 1e-4, "b": 0.03}[name]
            hint = f"Leaf “{name}”, the last call of each window of {every}."
            yield expect.close(key, got[name][last], leaf[last], rtol=tolerance, atol=tolerance / 4,
                               hint=hint)  # fmt: skip
            key = "broken" if broken else "waits"
            hint = f"Leaf “{name}”, the calls between."
            yield expect.close(key, got[name][~last], leaf[~last], atol=0.0, rtol=0.0, hint=hint)
        if fresh:
            hint = "That is the mean, as the optimizer gets it."
            yield expect.equal("narrow", seen["given"], ["b bfloat16, w float32"], hint=hint)
            unit = f"compiled in {len(good)} calls"
            yield expect.equal("once", seen["compiled"], 1, unit=unit)
            yield expect.equal("once", seen["scans"], True, hint=(
                "A scan needs a state that comes back with the same structure, shapes and dtypes."
            ))  # fmt: skip

    def told_by(self, case: Case, seen: Mapping[str, Any]) -> Mapping[str, Any]:
        """Everything, of the programs whether there are more than one."""
        return {**seen, "compiled": seen["compiled"] > 1}


def kinds(tree: Any) -> list[str]:
    """Structure, shapes and dtypes. For probes."""
    import jax

    leaves, structure = jax.tree.flatten(tree)
    return [str(structure), *(f"{leaf.shape} {leaf.dtype}" for leaf in leaves)]


def windows(
    rng: np.random.Generator, every: int, bad: Sequence[tuple[int, int, str]]
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Params w (2, 3) float32 and b (3,) of bfloat16 digits; a gradient of each for every call.

    The gradients of b all but cancel in each window, so that a sum in bfloat16 loses what is left.
    bad: (window, call in it, leaf) of gradients that get an entry which is not finite.
    """
    params = {"b": bfloat16(rng.uniform(1, 2, 3)), "w": normal(rng, 2, 3)}
    calls = every * ACCUMULATED_WINDOWS
    b = rng.uniform(1.0, 2.0, (ACCUMULATED_WINDOWS, every, 3))
    large = 256.0 * rng.integers(2, 5, (ACCUMULATED_WINDOWS, 3))
    spoiled = {window for window, _, _ in bad}
    for window in range(ACCUMULATED_WINDOWS):
        if window not in spoiled and every > 2:  # no half of a pair may be left out
            b[window, 0], b[window, 2] = large[window], -large[window]
    gradients = {"b": bfloat16(b.reshape(calls, 3)), "w": normal(rng, calls, 2, 3)}
    for number, (window, call, leaf) in enumerate(bad):
        flat = gradients[leaf][window * every + call].reshape(-1)
        flat[int(rng.integers(flat.size))] = (np.nan, np.inf, -np.inf)[number % 3]
    return params, gradients


def finite_rows(leaf: Array) -> Array:
    """For each call whether all its numbers are finite."""
    good = np.isfinite(leaf).reshape(len(leaf), -1)
    return np.array([row.all() for row in good])


def accumulated(params: Leaves, gradients: Leaves, good: Array, every: int) -> dict[str, Array]:
    """The update of every call, in float64."""
    found = {}
    for name, p in params.items():
        trace, updates = np.zeros_like(p), []
        for t in range(len(good)):
            update = np.zeros_like(p)
            window = range(t + 1 - every, t + 1)
            used = [gradients[name][i] for i in window if good[i]]
            if (t + 1) % every == 0 and used:
                trace = MOMENTUM * trace + np.mean(used, axis=0)
                update = -RATE * (trace + DECAY * p)
            p = p + update
            updates.append(update)
        found[name] = np.array(updates)
    return found


# --- 5.5 -----------------------------------------------------------------------------------------

LABELLED_STEPS = 5
GROUPS = {
    "tree": {"body": {"b": "slow", "w": "slow"}, "head": {"b": "frozen", "w": "decayed"}},
    "function": {"body": {"b": "slow", "w": "decayed"}, "head": {"b": "frozen", "w": "slow"}},
}
"""Two ways to label the leaves."""

LIMIT = 0.5


class PerLabel(Exercise):
    """Different parameters, different optimizers, one transformation."""

    id = "5.5"
    title = "One optimizer for each label"
    answer = "per_label"
    properties = {
        "value": Property("moves each leaf as the optimizer of its label does", 1.5, see="5.11"),
        "apart": Property("shows an optimizer no leaf of another label", 1.25, see="5.11"),
        "memory": Property("remembers for each leaf what its own optimizer needs, and no more",
                           1.25, see="5.11"),
        "function": Property("takes labels as a function of the parameters", 1, see="5.11"),
        "typos": Property("refuses labels and optimizers that have no partner", 1, see="5.11"),
    }  # fmt: skip
    points = 6
    difficulty = 2
    importance = 2
    minutes = 30

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case("labels as a tree", *labelled(rng), "tree", True,
                   about=["value", "apart", "memory"])  # fmt: skip
        yield Case("labels as a function", *labelled(rng), "function", True, about=["function"])
        for what in ("a label that no optimizer has", "an optimizer that no leaf has"):
            yield Case(what, *labelled(rng), what, True, about=["typos"])

    def probe(
        self, per_label: Callable[..., Any], params: Leaves, gradients: Sequence[Leaves], kind: str,
        fresh: bool,
    ) -> Mapping[str, Any]:  # fmt: skip
        import jax

        if kind not in GROUPS:
            labels: Any = GROUPS["tree"]
            if kind.startswith("a label"):
                labels = {"head": {"b": "frzoen", "w": "frozen"}}
                labels["body"] = {"b": "slow", "w": "decayed"}
            optimizers = group_optimizers()
            if kind.startswith("an optimizer"):
                optimizers["frzoen"] = optimizers["slow"]
            try:
                made = per_label(optimizers, labels)
                jax.eval_shape(made.init, params)
            except Exception as error:
                if is_stub(error):
                    raise
                return {"error": type(error).__name__, "names it": "frzoen" in str(error)}
            try:
                _, updates, _ = walk(programs(made), params, gradients[:1])  # what it does instead
            except Exception as error:
                said = f"{type(error).__name__} in update, not in init"
                return {"error": said, "names it": "frzoen" in str(error)}
            return {"error": "", "names it": False, "updates": updates[0]}

        def make() -> Any:
            labels: Any = GROUPS[kind]
            if kind != "tree":
                labels = label_function(labels)
            return programs(per_label(group_optimizers(), labels))

        first, updates, _ = walk(kept(f"5.5 {kind}", per_label, fresh, make), params, gradients)
        return {"updates": stacked(updates), "state bytes": bytes_of(first)}

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        params, gradients, kind, _ = case
        if kind not in GROUPS:
            unit = "is raised"
            yield expect.raises("typos", seen["error"], "ValueError", hint=f"That is {kind}.")
            said = "its message names it" if seen["names it"] else "its message does not name it"
            yield expect.true("typos", seen["names it"], seen=said, expected=f"the name {unit}",
                              hint=f"That is {kind}.")  # fmt: skip
            return
        groups = flat(GROUPS[kind])
        got, start = flat(seen["updates"]), flat(params)
        slopes = [flat(gradient) for gradient in gradients]
        want = grouped_updates(start, slopes, groups)
        for name, group in groups.items():
            key = {"slow": "apart"}.get(group, "value") if kind == "tree" else "function"
            hint = f"Leaf “{name}”, labelled “{group}”."
            yield expect.close(key, got[name], want[name], rtol=1e-3, atol=1e-6, hint=hint)
        if kind == "tree":
            hint = (
                "That is momentum for “slow”, two moments for “decayed”, and 16 bytes for counts."
            )
            yield expect.at_most("memory", seen["state bytes"], grouped_bytes(params, kind),
                                 unit="bytes", hint=hint)  # fmt: skip

    def told_by(self, case: Case, seen: Mapping[str, Any]) -> Mapping[str, Any]:
        """Everything, of the state's bytes whether they are too many."""
        params, _, kind, _ = case
        if "state bytes" not in seen:
            return seen
        return {**seen, "state bytes": seen["state bytes"] > grouped_bytes(params, kind)}


def grouped_bytes(params: Leaves, kind: str) -> int:
    """What the state may take: momentum for "slow", two moments for "decayed", and counts."""
    start, per_number = flat(params), {"slow": 1, "decayed": 2, "frozen": 0}
    numbers = [per_number[group] * start[name].size for name, group in flat(GROUPS[kind]).items()]
    return 4 * sum(numbers) + 16


def group_optimizers() -> dict[str, Any]:
    """Clipped momentum, AdamW and none; not in the order of the alphabet. For probes."""
    import jax
    import jax.numpy as jnp

    from helpers import optim

    return {
        "slow": optim.chain(optim.clip_by_global_norm(LIMIT), optim.sgd(0.1, momentum=0.9)),
        "decayed": optim.adamw(0.01, b1=0.8, b2=0.9, weight_decay=0.5),
        "frozen": optim.stateless(lambda updates, _: jax.tree.map(jnp.zeros_like, updates)),
    }


def label_function(labels: Any) -> Callable[[Any], Any]:
    """The labels as a function that looks at its argument: at shapes, paths, and nothing else."""
    import jax

    def labelled(params: Any) -> Any:
        return jax.tree.map(lambda label, leaf: label if leaf.shape else "", labels, params)

    return labelled


def labelled(rng: np.random.Generator) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Params and the gradients of every step."""

    def draw() -> dict[str, Any]:
        return {
            "body": {"b": normal(rng, 3), "w": normal(rng, 2, 3)},
            "head": {"b": normal(rng, 2), "w": normal(rng, 3, 2)},
        }

    return draw(), [draw() for _ in range(LABELLED_STEPS)]


def flat(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Leaves of a nest of two levels by path."""
    return {f"{top}/{name}": leaf for top, inner in tree.items() for name, leaf in inner.items()}


def grouped_updates(
    params: Leaves, gradients: Sequence[Leaves], groups: Mapping[str, str]
) -> dict[str, Array]:
    """The updates of every step by path, in float64."""
    p = {name: np.asarray(leaf, np.float64) for name, leaf in params.items()}
    m = {name: np.zeros_like(leaf) for name, leaf in p.items()}
    v = {name: np.zeros_like(leaf) for name, leaf in p.items()}
    found: dict[str, list[Array]] = {name: [] for name in p}
    for t, gradient in enumerate(gradients, 1):
        g = {name: np.asarray(leaf, np.float64) for name, leaf in gradient.items()}
        slow = np.sqrt(sum(np.sum(g[name] ** 2) for name in g if groups[name] == "slow"))
        for name, group in groups.items():
            if group == "slow":
                m[name] = 0.9 * m[name] + g[name] * min(1.0, LIMIT / slow)
                update = -0.1 * m[name]
            elif group == "decayed":
                m[name] = 0.8 * m[name] + 0.2 * g[name]
                v[name] = 0.9 * v[name] + 0.1 * g[name] ** 2
                size = np.sqrt(v[name] / (1 - 0.9**t)) + 1e-8
                update = -0.01 * (m[name] / (1 - 0.8**t) / size + 0.5 * p[name])
            else:
                update = np.zeros_like(p[name])
            p[name] = p[name] + update
            found[name].append(update)
    return {name: np.array(updates) for name, updates in found.items()}


EXERCISES = [Lion, FactoredMoment, StableDecay, Accumulate, PerLabel]


# --- quiz ----------------------------------------------------------------------------------------


def walked(optimizer: Any, gradients: Sequence[float], start: float = 0.0) -> Array:
    """A single parameter after each step, from `start`."""
    x = np.float32(start)
    path = []
    state = optimizer.init(x)
    for gradient in gradients:
        updates, state = optimizer.update(np.float32(gradient), state, x)
        x = x + updates
        path.append(float(x))
    return np.array(path)


def adam_of_a_thousand() -> str:
    """Question 5.a."""
    from helpers import optim

    moved = -walked(optim.adam(0.01), [1000.0])[0]
    near = {"a": 10.0, "b": 0.01, "c": 0.00001}
    return next((letter for letter, x in near.items() if abs(moved / x - 1) < 0.05), "?")


def penalty_of_a_dead_unit() -> str:
    """Question 5.b."""
    from helpers import optim

    ends = [
        1 - walked(optim.chain(optim.add_decayed_weights(d), optim.adam(0.01)), [0.0] * 5, 1.0)[-1]
        for d in (0.01, 0.02)
    ]
    near = {"a": 2.0, "b": 1.0}
    ratio = ends[1] / ends[0]
    return next((letter for letter, x in near.items() if abs(ratio - x) < 0.05), "?")


def steps_of_momentum() -> str:
    """Question 5.c."""
    from helpers import optim

    path = walked(optim.sgd(0.1, momentum=0.9), [1.0] * 100)
    length = path[-2] - path[-1]
    near = {"a": 0.1, "b": 1.0, "c": 0.09}
    return next((letter for letter, x in near.items() if abs(length / x - 1) < 0.01), "?")


def masked_descent() -> str:
    """Question 5.d."""
    import optax

    optimizer = optax.masked(optax.sgd(0.1), {"body": False, "head": True})
    ones = {"body": np.ones(1, np.float32), "head": np.ones(1, np.float32)}
    updates, _ = optimizer.update(ones, optimizer.init(ones), ones)
    near = {"a": 0.0, "b": -0.1, "c": 1.0}
    return next((k for k, x in near.items() if abs(float(updates["body"][0]) - x) < 1e-3), "?")


def first_step_of_a_warm_up() -> str:
    """Question 5.e."""
    from helpers import optim

    moved = -walked(optim.adam(optim.warmup_cosine(0.1, 10, 100)), [1.0])[0]
    near = {"a": 0.1, "b": 0.01, "c": 0.0}
    return next((letter for letter, x in near.items() if abs(moved - x) < 1e-4), "?")


def moment_in_bfloat16() -> str:
    """Question 5.f."""
    import jax
    import jax.numpy as jnp

    from helpers import optim

    adam, one = optim.scale_by_adam(), jnp.ones((), jnp.bfloat16)

    def step(state: Any, _: Any) -> Any:
        return adam.update(one, state, one)[1], None

    run = jax.jit(lambda: jax.lax.scan(step, adam.init(one), length=3000)[0].nu)
    near = {"a": 0.0, "b": 0.5, "c": 0.95}
    return next((letter for letter, x in near.items() if abs(float(run()) - x) < 0.01), "?")


def weight_of_a_short_part() -> str:
    """Question 5.g."""
    sizes = np.array([8, 8, 8, 1])
    weights = 1 / (len(sizes) * sizes)  # of one row, in the mean of the parts' means
    return {1: "a", 8: "b"}.get(round(weights[-1] / weights[0]), "?")


def third_bad_step() -> str:
    """Question 5.h."""
    import optax

    one = np.float32(1)
    optimizer = optax.apply_if_finite(optax.sgd(0.1), 2)
    state = optimizer.init(one)
    bad = 0
    for _ in range(4):
        update, state = optimizer.update(np.float32(np.nan), state, one)
        bad += not np.isfinite(update)
    return "b" if bad else "a"


QUIZ = [
    Question(
        "5.a",
        "The first gradient is 1000, and Adam's rate 0.01. How far does the parameter move?",
        {"a": "10", "b": "0.01", "c": "0.00001"},
        "b",
        "The gradient is divided by its own size: what is left is its sign, times the rate.",
        "5.4",
        adam_of_a_thousand,
    ),
    Question(
        "5.b",
        "`chain(add_decayed_weights(λ), adam(0.01))`, and a parameter whose gradient is always 0."
        " λ is doubled. The parameter shrinks",
        {"a": "twice as fast", "b": "as fast as before"},
        "b",
        "Before Adam it is a penalty; here it is the whole gradient, and Adam divides by its size.",
        "5.6",
        penalty_of_a_dead_unit,
    ),
    Question(
        "5.c",
        "`sgd(0.1, momentum=0.9)` sees a gradient of 1 for a long time. How long is a step then?",
        {"a": "0.1", "b": "1.0", "c": "0.09"},
        "b",
        "The trace is a sum: it grows to 1 / (1 − 0.9) = 10 gradients.",
        "5.3",
        steps_of_momentum,
    ),
    Question(
        "5.d",
        '`optax.masked(optax.sgd(0.1), {"body": False, "head": True})`, and all gradients are 1.'
        " What is the update of the body?",
        {"a": "0", "b": "−0.1", "c": "1"},
        "c",
        "What the mask leaves out is passed on as it came: the raw gradient, uphill.",
        "5.11",
        masked_descent,
    ),
    Question(
        "5.e",
        "`adam(warmup_cosine(peak=0.1, warmup_steps=10, total_steps=100))`. How far does the first"
        " step go?",
        {"a": "0.1", "b": "0.01", "c": "nowhere"},
        "c",
        "The first update has the rate of step 0, and a warm-up starts at 0 there.",
        "5.8",
        first_step_of_a_warm_up,
    ),
    Question(
        "5.f",
        "Adam's state is bfloat16, `b2` is 0.999, and all gradients are 1. Where is the second"
        " moment after 3000 steps?",
        {"a": "at 0: it never moved", "b": "at 0.5: it got stuck", "c": "at 0.95, nearly there"},
        "b",
        "Near zero the numbers are close enough together, from 0.5 on they are not.",
        "5.5",
        moment_in_bfloat16,
    ),
    Question(
        "5.g",
        "A batch is computed in parts of 8, 8, 8 and 1 rows, and the four mean gradients are"
        " averaged. What does the single row count, compared with one of the others?",
        {"a": "as much", "b": "8 times as much"},
        "b",
        "Each part counts a quarter, and this row has a quarter for itself.",
        "5.10",
        weight_of_a_short_part,
    ),
    Question(
        "5.h",
        "`optax.apply_if_finite(optimizer, 2)` gets four NaN gradients in a row. What becomes of"
        " the parameters?",
        {"a": "they stay as they are", "b": "they become NaN"},
        "b",
        "After two bad steps it lets the next one through: it was told to give up then.",
        "5.10",
        third_bad_step,
    ),
]
