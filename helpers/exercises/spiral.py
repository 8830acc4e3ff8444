"""Chapter 10 · The spiral: the public cases, probe and judge of each milestone, and the quiz.

A milestone is handed all that it needs of the others by its probe, so each stands alone. JAX is
imported inside probes only.
"""

import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from helpers import expect
from helpers.exercise import Case, Exercise, Property, Row, error_name
from helpers.exercises.donation import (
    all_reused,
    clear_programs,
    counted,
    not_refused,
    owned,
    places,
    read,
    watched,
)
from helpers.quiz import Question

Array = npt.NDArray[Any]
Tree = Any


@dataclass(frozen=True)
class Recipe:
    """How a run goes: numbers only, so that two equal recipes are the same recipe."""

    peak: float = 0.02
    warmup_steps: int = 100
    total_steps: int = 1000
    weight_decay: float = 1e-3
    max_norm: float = 1.0

    def schedule(self) -> Any:
        """The learning rate: from the number of steps done to a scalar."""
        from helpers import optim  # here, for a judge reads this module without JAX

        return optim.warmup_cosine(self.peak, self.warmup_steps, self.total_steps)

    def optimizer(self) -> Any:
        """A new GradientTransformation at every call: clipped AdamW that decays matrices only."""
        from helpers import optim

        return optim.chain(
            optim.clip_by_global_norm(self.max_norm),
            optim.adamw(self.schedule(), weight_decay=self.weight_decay, mask=optim.matrices),
        )


# --- spirals, in NumPy ---------------------------------------------------------------------------


def spiral_points(
    rng: np.random.Generator, per_arm: int, turn: float, mirror: int
) -> tuple[Array, Array]:
    """Points of `helpers.data.spiral`'s law, all turned by an angle, or mirrored (−1).

    x: (3 · per_arm, 2) float32, labels: (3 · per_arm,) int32, in random order.
    """
    labels = rng.permutation(np.repeat(np.arange(3, dtype=np.int32), per_arm))
    radius = rng.uniform(0.0, 1.0, labels.shape)
    wobble = 0.2 * rng.standard_normal(labels.shape)
    angle = mirror * (2 * np.pi * labels / 3 + 4.0 * radius + wobble) + turn
    x = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return x.astype(np.float32), labels


def keys(*seeds: int) -> list[Any]:
    """What `jax.random.key` makes of each seed, without the program that it compiles."""
    import jax

    numbers: list[Any] = [np.array([0, seed], np.uint32) for seed in seeds]
    return [jax.random.wrap_key_data(each) for each in numbers]


def whether(compilations: Sequence[int], most: int) -> list[bool]:
    """Whether more than so many programs were compiled at first, and whether any were later.

    How many too many depends on how an answer is written.
    """
    first, *later = compilations
    return [first > most, *(count > 0 for count in later)]


def at_first_only(key: str, compilations: Sequence[int], most: int, what: str) -> Iterator[Row]:
    """Rows that say whether at most so many programs were compiled at first, and later none."""
    first, *later = compilations
    yield expect.at_most(key, first, most, unit=f"compilations in the first {what}")
    for number, count in enumerate(later, 2):
        yield expect.equal(key, count, 0, unit=f"compilations in {what} {number}")


# --- 10.1 ----------------------------------------------------------------------------------------


class Data(Exercise):
    """A split that holds out the same number of each class, and batches that lose nothing."""

    id = "10.1"
    title = "Data: a stratified split, and batches of any number of examples"
    answer = ("split", "batches")
    properties = {
        "once": Property("puts every example on exactly one side of the split", 0.75, see="10.2"),
        "strata": Property("holds out as many as asked of each class, by the key", 1.25, "10.2"),
        "all": Property("batches every example once, with its own label", 1.25, see="10.3"),
        "padding": Property(
            "fills up with zeros, label −1 and mask False, and no more", 0.75, "10.3"
        ),
        "order": Property("mixes the batches anew for each key", 1, see="10.3"),
    }
    points = 5
    difficulty = 2
    importance = 3
    minutes = 25

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        about = ["once", "strata"]
        yield Case("31 examples, 4 of each class held out", *to_split(rng, 4), about=about)
        about = ["all", "padding", "order"]
        yield Case("13 examples in batches of 4", *to_batch(rng, 13), about=about)
        yield Case("12 examples in batches of 4", *to_batch(rng, 12), about=["padding"])

    def probe(
        self, split: Callable[..., Any], batches: Callable[..., Any],
        seeds: Sequence[int], x: Array, labels: Array, number: int,
    ) -> Mapping[str, Any]:  # fmt: skip
        import jax

        one, other = keys(*seeds)
        if not x.size:
            sides = [split(key, labels, number) for key in (one, other, one)]
            return {"sides": [[np.asarray(side) for side in each] for each in sides]}
        cut = jax.jit(batches, static_argnums=3)
        if len(x) % number == 0:  # its form says enough, and costs no compilation
            parts = jax.eval_shape(lambda *args: cut(*args, number), one, x, labels)
            return {"shapes": [list(part.shape) for part in parts]}
        made = [cut(key, x, labels, number) for key in (one, other)]
        return {
            "batches": [[np.asarray(part) for part in each] for each in made],
            "shapes": [list(part.shape) for part in made[0]],
            "types": [str(part.dtype) for part in made[0]],
        }

    def told_by(self, case: Case, seen: Mapping[str, Any]) -> Mapping[str, Any]:
        """Which rows failed: each answer draws in its own way."""
        failed = {f"{row.key}: {row.hint}" for row in self.judge(case, seen) if not row.passed}
        return {"failed": sorted(failed)}

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        _, x, labels, number = case
        if x.size:
            yield from judge_batches(x, labels, number, seen)
        else:
            yield from judge_split(labels, number, seen["sides"])


def to_split(rng: np.random.Generator, held_out: int) -> tuple[Any, ...]:
    """Inputs of exercise 10.1 for `split`: 31 labels in no order, of classes of 7, 12 and 12."""
    labels = rng.permutation(np.repeat(np.arange(3, dtype=np.int32), (7, 12, 12)))
    return two_seeds(rng), np.zeros((0, 2), np.float32), labels, held_out


def to_batch(rng: np.random.Generator, n: int) -> tuple[Any, ...]:
    """Inputs of exercise 10.1 for `batches`: n examples, told apart by their first coordinate."""
    x = np.stack([rng.permutation(n) + 1, rng.integers(1, 9, n)], axis=1).astype(np.float32)
    return two_seeds(rng), x, rng.integers(0, 3, n).astype(np.int32), 4


def two_seeds(rng: np.random.Generator) -> list[int]:
    """Two that differ."""
    first = int(rng.integers(0, 1000))
    return [first, first + int(rng.integers(1, 1000))]


def judge_split(labels: Array, held_out: int, sides: Any) -> Iterator[Row]:
    """Rows about (train, test) for one key, another, and the first key again."""
    everyone = np.arange(len(labels))
    if any(np.asarray(side).dtype == bool for each in sides for side in each):
        for key in ("once", "strata"):
            text = "boolean masks"
            yield expect.true(key, False, seen=text, expected="indices", hint="Masks, not indices.")
        return
    for train, test in sides:
        both = np.sort(np.concatenate([np.ravel(train), np.ravel(test)]))
        hint = "These are all indices of both sides, in order."
        yield expect.equal("once", both, everyone, hint=hint)
        hint = "So many different examples are held out."
        yield expect.equal("once", len(np.unique(test)), np.size(test), hint=hint)
        inside = np.all((test >= 0) & (test < len(labels))) and test.dtype.kind in "iu"
        counts = np.bincount(labels[test] if inside else labels[:0], minlength=3)
        hint = "So many of each class are held out."
        yield expect.equal("strata", counts, np.full(3, held_out), hint=hint)
    tests = [np.sort(np.ravel(test)) for _, test in sides]
    yield expect.equal("strata", tests[2], tests[0], hint="The same key gives the same split.")
    differ = not np.array_equal(tests[0], tests[1])
    hint = "Each key draws anew."
    yield expect.true("strata", differ, seen="the same examples for two keys", hint=hint)
    ranks = [np.flatnonzero(labels == c) for c in range(3)]
    places_of = [[np.flatnonzero(np.isin(rank, test)) for rank in ranks] for test in tests[:2]]
    twins = [np.array_equal(first, second) for _, first, second in places_of]
    text, hint = "the same places in two classes of equal size", "That is so for both keys."
    yield expect.true("strata", not all(twins), seen=text, expected="their own draws", hint=hint)
    windows = [np.all(np.diff(own) == 1) for each in places_of for own in each]
    text, hint = "neighbours, in every class", "Held out are a window of each class."
    yield expect.true("strata", not all(windows), seen=text, expected="random places", hint=hint)


def judge_batches(x: Array, labels: Array, size: int, seen: Mapping[str, Any]) -> Iterator[Row]:
    """Rows about (x, labels, mask) for two keys."""
    number = -(-len(x) // size)
    want = [[number, size, 2], [number, size], [number, size]]
    yield expect.true(
        "padding",
        seen["shapes"] == want,
        seen=f"shapes {seen['shapes']}",
        expected=f"{want}",
        hint=f"That is for {len(x)} examples in batches of {size}.",
    )
    if len(x) % size == 0:
        return
    label_of = dict(zip(x[:, 0].tolist(), labels.tolist(), strict=True))
    orders = []
    for xs, ys, mask in seen["batches"]:
        real = mask.astype(bool)
        rows = np.concatenate([xs, ys[..., None]], axis=-1)[real]
        wanted = np.concatenate([x, labels[:, None]], axis=1)
        hint = "These are the real rows, x and label, ordered by the first coordinate."
        yield expect.equal("all", by_first(rows), by_first(wanted), hint=hint)
        pairs = [label_of.get(float(first)) == label for first, _, label in rows]
        hint = "So many examples have their own label."
        yield expect.equal("all", int(sum(pairs)), len(x), unit="examples", hint=hint)
        hint = "So many places does the mask select."
        yield expect.equal("padding", int(real.sum()), len(x), unit="places", hint=hint)
        rest = np.abs(xs[~real]).sum() + np.abs(ys[~real] + 1).sum()
        hint = "That is how far the padding is from x of zeros and labels of −1."
        yield expect.equal("padding", float(rest), 0.0, hint=hint)
        orders.append([sorted(row[m, 0].tolist()) for row, m in zip(xs, real, strict=True)])
    hint = "The mask is bool, the others have the dtypes that they came with."
    types = ", ".join(seen["types"])
    good = types == "float32, int32, bool"
    yield expect.true("padding", good, seen=types, expected="float32, int32, bool", hint=hint)
    same = sorted(orders[0]) == sorted(orders[1])
    text, hint = "the same examples together in a batch", "That is so for two keys."
    yield expect.true("order", not same, seen=text, expected="another mixture", hint=hint)
    batch_of = [
        {first: number for number, batch in enumerate(order) for first in batch} for order in orders
    ]
    neighbours = list(pairwise(x[:, 0].tolist()))
    close = sum(places.get(a) == places.get(b) for places in batch_of for a, b in neighbours)
    unit = f"of {2 * len(neighbours)} pairs in one batch, for two keys"
    hint = "These are pairs of neighbours in the data."
    yield expect.at_most("order", close, 15, unit=unit, hint=hint)


def by_first(rows: Array) -> Array:
    """The rows in the order of their first column."""
    return rows[np.argsort(rows[:, 0], kind="stable")]


# --- 10.2 ----------------------------------------------------------------------------------------


@functools.cache
def bump() -> Callable[[list[Any]], list[Any]]:
    """A program that donates leaves and returns them with 1 added everywhere, keys moved on."""
    import jax
    from jax.random import key_data, wrap_key_data

    def more(x: Any) -> Any:
        is_key = jax.numpy.issubdtype(x.dtype, jax.dtypes.prng_key)
        return wrap_key_data(key_data(x) + 1) if is_key else x + 1

    return jax.jit(lambda leaves: [more(x) for x in leaves], donate_argnums=0)


def leaves_of(tree: Tree) -> list[Any]:
    """Each leaf as NumPy, a key as its data; what is neither array nor number by its type."""
    import jax

    found: list[Any] = []
    for leaf in jax.tree.leaves(tree):
        is_key = isinstance(leaf, jax.Array) and jax.numpy.issubdtype(
            leaf.dtype, jax.dtypes.prng_key
        )
        try:
            found.append(np.array(jax.random.key_data(leaf) if is_key else leaf, copy=True))
        except (TypeError, RuntimeError, ValueError) as error:
            found.append(type(error).__name__)
    return found


class State(Exercise):
    """A state that a whole run can be made of: donated, compiled once, described by value."""

    id = "10.2"
    title = "State: one that a run can donate, and that compares by value"
    answer = "new_state"
    properties = {
        "value": Property("starts from the params, with an average equal to them", 1, see="10.4"),
        "apart": Property("keeps each leaf in a buffer of its own", 1, see="10.4"),
        "caller": Property("leaves the caller's params and key alive", 1, see="10.4"),
        "static": Property("carries its recipe as a static part that compares by value", 1, "10.4"),
        "once": Property("compiles once for all steps of a run", 1, see="10.4"),
    }
    points = 5
    difficulty = 2
    importance = 3
    minutes = 25

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case("two layers and a weakly typed scale", *to_start(rng, nested=False))

    def probe(
        self, new_state: Callable[..., Any], params: Tree, seed: int, peak: float
    ) -> Mapping[str, Any]:
        import jax
        import jax.numpy as jnp

        from helpers.buffers import deleted, refusal

        leaves, nest = jax.tree.flatten(params)
        given = jax.tree.unflatten(nest, owned(leaves)) | {"scale": jnp.asarray(1.5)}
        (key,) = keys(seed)
        state = new_state(Recipe(peak), given, key)
        refused_by_jit = error_name(lambda: jax.eval_shape(lambda state: 0, state))
        if refused_by_jit:
            return {"refused by jit": refused_by_jit}
        seen = self.look(state, given, key)
        twin = new_state(Recipe(peak), given, key)
        other = new_state(Recipe(peak / 2), given, key)
        shapes: list[Any] = [jax.tree.structure(each) for each in (state, twin, other)]
        seen |= {"equal": shapes[0] == shapes[1], "unequal": shapes[0] != shapes[2]}
        seen["equal recipes"] = bool(state.recipe == twin.recipe)
        chain = [jax.tree.leaves(state)]
        refused: list[str] = []

        def step() -> None:
            refused.append(refusal(lambda: chain.append(bump()(chain[-1]))))

        def step_of_twin() -> None:
            refused.append(refusal(lambda: bump()(jax.tree.leaves(twin))))

        counts = counted([step, step, step_of_twin])["compilations"]
        return seen | {
            "refused": [said for said in refused if said][:1],
            "compilations": counts[1:],
            "gone": sum(deleted((given, key))),
        }

    @staticmethod
    def look(state: Any, given: Tree, key: Any) -> dict[str, Any]:
        """What can be seen of a new state before any step is taken."""
        import jax

        all_leaves = jax.tree.leaves(state)
        where = [place for place in places(state) if place is not None]
        inside: list[str] = []

        def look_inside(state: Any) -> Any:
            inside.append(type(state.recipe.peak).__name__)
            return state.step

        jax.eval_shape(look_inside, state)
        return {
            "params": leaves_of(state.params),
            "ema": leaves_of(state.ema),
            "opt_state": leaves_of(state.opt_state),
            "step": leaves_of(state.step),
            "key": leaves_of(state.key),
            "peak": state.recipe.peak,
            "peak inside": inside[0],
            "leaves": len(all_leaves),
            "arrays": len(where),
            "buffers": len(set(where)),
            "weak": sum(bool(getattr(x, "weak_type", False)) for x in all_leaves),
            "the caller's": len({*where} & {*places((given, key))}),
        }

    def told_by(self, case: Case, seen: Mapping[str, Any]) -> Mapping[str, Any]:
        """Everything, of the compilations whether there were any."""
        if "compilations" not in seen:
            return seen
        return {**seen, "compilations": [count > 0 for count in seen["compilations"]]}

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        params, seed, peak = case
        if "refused by jit" in seen:
            for key in self.properties:
                text = f"a state that jit refuses ({seen['refused by jit']})"
                hint = "Is its class registered, and its recipe static?"
                yield expect.true(key, False, seen=text, expected="a pytree of arrays", hint=hint)
            return
        wanted = [*tree_leaves(params), np.float32(1.5)]
        for name in ("params", "ema"):
            yield expect.equal("value", len(seen[name]), len(wanted), unit=f"leaves of {name}")
            for got, leaf in zip(seen[name], wanted, strict=False):
                yield expect.equal("value", got, np.asarray(leaf), hint=f"That is in the {name}.")
        shapes = [(), *2 * [np.asarray(x).shape for x in wanted], ()]
        zeros = [np.zeros(shape) for shape in shapes]
        count = len(seen["opt_state"])
        yield expect.equal("value", count, len(zeros), unit="leaves of the opt_state")
        for got, leaf in zip(seen["opt_state"], zeros, strict=False):
            yield expect.equal("value", got, leaf, hint="That is in the opt_state.")
        (step,), (key,) = seen["step"], seen["key"]
        good = isinstance(step, np.ndarray) and step.dtype == np.int32 and step == 0
        yield expect.true("value", good, seen=f"step {step!r}"[:60], expected="an int32 array of 0")
        yield expect.equal("value", key, np.array([0, seed], np.uint32), hint="The key's data.")
        unit = f"of {seen['leaves']} leaves are JAX arrays"
        yield expect.equal("apart", seen["arrays"], seen["leaves"], unit=unit)
        unit = f"buffers for {seen['arrays']} arrays"
        yield expect.equal("apart", seen["buffers"], seen["arrays"], unit=unit)
        yield from not_refused(["apart"], seen["refused"])
        yield expect.equal("caller", seen["the caller's"], 0, unit="of the caller's buffers in it")
        unit = "of the caller's arrays deleted by a step that donates the state"
        yield expect.equal("caller", seen["gone"], 0, unit=unit)
        yield expect.equal("static", seen["peak"], peak, hint="That is state.recipe.peak.")
        hint = "That is the type of state.recipe.peak inside a jitted function."
        yield expect.equal("static", seen["peak inside"], "float", hint=hint)
        text = "recipes that are not equal, in the states of two equal ones"
        yield expect.true("static", seen["equal recipes"], seen=text, expected="equal recipes")
        text = "states of equal recipes with structures that differ"
        yield expect.true("static", seen["equal"], seen=text, expected="one structure")
        text = "one structure for two recipes"
        yield expect.true("static", seen["unequal"], seen=text, expected="two structures")
        second, twin = seen["compilations"]
        yield expect.equal("once", second, 0, unit="compilations in the second step")
        yield expect.equal("once", twin, 0, unit="compilations for a run of an equal recipe")
        yield expect.equal("once", seen["weak"], 0, unit="weakly typed leaves")


def to_start(rng: np.random.Generator, nested: bool) -> tuple[Any, ...]:
    """Inputs of exercise 10.2: params of two layers w (3, 3), b (3,), a seed, a peak."""
    layers = [
        {
            "b": rng.standard_normal(3).astype(np.float32),
            "w": rng.standard_normal((3, 3)).astype(np.float32),
        }
        for _ in range(2)
    ]
    params = {"nets": {"a": layers[0], "b": layers[1]}} if nested else {"layers": layers}
    return params, int(rng.integers(1, 1000)), float(rng.integers(1, 50)) / 1000


def tree_leaves(tree: Tree) -> list[Array]:
    """The arrays of nested dicts, whose keys are in order, and lists."""
    if isinstance(tree, np.ndarray):
        return [tree]
    children = tree.values() if isinstance(tree, Mapping) else tree
    return [leaf for child in children for leaf in tree_leaves(child)]


# --- 10.3 ----------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=8)
def value_and_slope(loss: Callable[..., Any]) -> Callable[..., Any]:
    """The loss and its gradient with respect to the logits, compiled."""
    import jax

    return jax.jit(jax.value_and_grad(loss))


def as_written(fn: Callable[..., Any], *args: Any) -> Any:
    """What a function gives without XLA's algebra, which here and there mends a product with NaN.

    As an operation after the other would give it, at a tenth of the cost. For probes.
    """
    import jax

    return jax.jit(fn).lower(*args).compile({"xla_disable_hlo_passes": "algsimp"})(*args)


class Loss(Exercise):
    """Cross-entropy with smoothed labels over the rows that are real."""

    id = "10.3"
    title = "Loss: smoothed labels, padded rows, logits of any size"
    answer = "smoothed_loss"
    properties = {
        "value": Property("is the mean over the real rows, as in float64", 1.5, see="10.5"),
        "slope": Property("has float64's gradient, and zeros for the padding", 1, see="10.5"),
        "large": Property("stays right for logits of ±10,000", 1, see="10.5"),
        "empty": Property("is 0 with a gradient of 0 where no row is real", 0.5, see="10.5"),
    }
    points = 4
    difficulty = 1
    importance = 3
    minutes = 15

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        usual = ["value", "slope"]
        yield Case("six rows, two of them padding", *to_judge(rng, 2, 0.1), about=usual)
        yield Case("no smoothing", *to_judge(rng, 1, 0.0), about=usual)
        yield Case("logits of ±10,000", *to_judge(rng, 2, 0.1, 1e4), about=["large"])
        yield Case("…, and no smoothing", *to_judge(rng, 0, 0.0, 1e4), about=["large"])
        yield Case("nothing but padding", *to_judge(rng, 6, 0.1), about=["empty"])

    def probe(
        self, smoothed_loss: Callable[..., Any],
        logits: Array, labels: Array, mask: Array, smoothing: float,
    ) -> Mapping[str, Any]:  # fmt: skip
        import jax

        inputs = logits, labels, mask, np.float32(smoothing)
        value, slope = value_and_slope(smoothed_loss)(*inputs)
        seen = {"value": value, "slope": slope}
        if not mask.any():
            seen["slope as written"] = as_written(jax.grad(smoothed_loss), *inputs)
        return seen

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        value, slope = smoothed(*case)
        about = case.about or ()
        first, last = about[0], about[-1]
        hint = "That is the loss."
        yield expect.close(first, seen["value"], value, rtol=1e-4, atol=1e-5, hint=hint)
        hint = "That is its gradient with respect to the logits."
        yield expect.close(last, seen["slope"], slope, rtol=1e-3, atol=1e-5, hint=hint)
        if "slope as written" in seen:
            hint = "That is the gradient where XLA simplifies nothing: without jit, for instance."
            yield expect.close(last, seen["slope as written"], slope, atol=1e-5, hint=hint)


def to_judge(
    rng: np.random.Generator, padded: int, smoothing: float, size: float = 0.0
) -> tuple[Any, ...]:
    """Inputs of exercise 10.3: logits (6, 4), labels, mask (6,), the smoothing.

    Padding lies anywhere. size: that of all logits, of either sign, where it is not 0; one real row
    is then far below the others as a whole.
    """
    logits = 2 * rng.standard_normal((6, 4))
    if size:
        logits = size * np.stack([rng.permutation([1.0, 1.0, -1.0, -1.0]) for _ in range(6)])
    mask = rng.permutation(np.arange(6) >= padded)
    labels = np.where(mask, rng.integers(0, 4, 6), -1).astype(np.int32)
    if size and mask.any():  # one row is sure of the wrong class
        row = int(np.flatnonzero(mask)[0])
        labels[row] = int(np.argmin(logits[row]))
        logits[np.flatnonzero(mask)[-1]] = rng.permutation([0.0, 1.0, 2.0, 0.0]) - size
    return logits.astype(np.float32), labels, mask, smoothing


def smoothed(logits: Array, labels: Array, mask: Array, smoothing: float) -> tuple[float, Array]:
    """The loss of exercise 10.3 and its gradient, in float64."""
    z = logits.astype(np.float64)
    z = z - z.max(axis=1, keepdims=True)
    log_p = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    classes = z.shape[1]
    q = (1 - smoothing) * (labels[:, None] == np.arange(classes)) + smoothing / classes
    count = max(int(mask.sum()), 1)
    rows = -np.sum(q * log_p, axis=1)
    slope = (np.exp(log_p) - q) * mask[:, None] / count
    return float(np.sum(rows * mask) / count), slope


# --- 10.4 ----------------------------------------------------------------------------------------

DECAY = 0.9
"""Of the moving average in exercise 10.4."""


@dataclass(frozen=True)
class Momentum:
    """The recipe that exercise 10.4 is tried with."""

    rate: float = 0.3
    momentum: float = 0.9

    def optimizer(self) -> Any:
        """A new one at every call."""
        from helpers import optim

        return optim.sgd(self.rate, self.momentum)


@functools.cache
def run_class() -> Any:
    """The class of the states that exercise 10.4 is tried with."""
    import jax

    @dataclass(frozen=True)
    class Run:
        params: Tree
        ema: Tree
        opt_state: Tree
        step: Any
        key: Any
        recipe: Any

    names = ["params", "ema", "opt_state", "step", "key"]
    return jax.tree_util.register_dataclass(Run, names, ["recipe"])


def begin(params: Tree, seed: int) -> Any:
    """A state of exercise 10.4: nothing in it is shared, and nobody else holds any of it."""
    import jax

    recipe = Momentum()
    moments = jax.eval_shape(recipe.optimizer().init, params)
    zeros = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), moments)
    number = np.int32(0)
    parts = owned((params, params, zeros, number, np.array([0, seed], np.uint32)))
    *arrays, key = parts
    return run_class()(*arrays, jax.random.wrap_key_data(key), recipe)


def batch_loss(params: Tree, x: Any, labels: Any, mask: Any) -> Any:
    """Mean cross-entropy of a network of one layer over the real rows of a batch."""
    import jax
    import jax.numpy as jnp

    from helpers.losses import masked_mean

    logits = jnp.tanh(x @ params["in"]) @ params["out"]
    below = logits - jax.lax.stop_gradient(jnp.max(logits, axis=1, keepdims=True))
    own = jnp.sum(jnp.where(labels[:, None] == jnp.arange(3), below, 0.0), axis=1)
    return masked_mean(jnp.log(jnp.sum(jnp.exp(below), axis=1)) - own, mask)


class Epoch(Exercise):
    """A pass over all batches as one program, and a model that has learnt something by it."""

    id = "10.4"
    title = "Epoch: a pass over all batches, and the model that it trains"
    answer = "run_epoch"
    properties = {
        "params": Property("takes the optimizer's step on every batch, as float64 does", 2, "10.6"),
        "ema": Property("moves the average after each step", 1, see="10.6"),
        "loss": Property("returns the mean loss over all real rows", 1, see="10.6"),
        "donated": Property("reuses every buffer of the state, donates nothing else", 1.5, "10.6"),
        "once": Property("compiles once for a run", 1, see="10.6"),
        "trained": Property("names more than 95 % of hidden points after a run", 1.5, see="10.7"),
    }
    points = 8
    difficulty = 3
    importance = 3
    minutes = 35

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        about = ["params", "ema", "loss", "donated", "once"]
        yield Case("two epochs of three batches", *by_hand(rng), 2, None, True, about=about)
        yield Case("a spiral, a hundred epochs", *to_learn(rng), False, about=["trained"])

    def probe(
        self, run_epoch: Callable[..., Any], params: Tree, batches: Sequence[Array],
        epochs: int, law: Any, fresh: bool,
    ) -> Mapping[str, Any]:  # fmt: skip
        import jax

        from helpers.buffers import deleted, refusal

        clear_programs(fresh)
        state = begin(params, 7)
        data = jax.device_put(tuple(batches))
        step = functools.partial(run_epoch, batch_loss)
        losses: list[Any] = []
        fates: list[Mapping[str, int]] = []
        refused: list[str] = []

        def one() -> None:
            nonlocal state
            (state, loss), fate = watched(step, state, data)
            losses.append(loss)
            fates.append(fate)

        def noted() -> None:
            refused.append(refusal(one))

        seen = counted([noted] * min(epochs, 2))
        if not seen["compilations"][1]:  # a hundred compilations would be minutes
            for _ in range(epochs - 2):
                state, _ = step(state, data)
        return seen | {
            "losses": losses,
            "fates": fates,
            "refused": [said for said in refused if said][:1],
            "params": read(state.params),
            "ema": read(state.ema),
            "trace": read(state.opt_state),
            "step": read(state.step),
            "key": leaves_of(state.key),
            "batches gone": sum(deleted(data)),
        }

    def counted(self, seen: Mapping[str, Any]) -> int | None:
        return expect.total(seen["compilations"])

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        params, batches, epochs, law, _ = case
        if law is not None and seen["compilations"][1]:
            text = "a second epoch that compiles: the run was stopped there"
            yield expect.true("trained", False, seen=text, expected="one program for the run")
            return
        if law is not None:
            yield from learnt("trained", seen["params"], batches[0], *law)
            return
        yield from not_refused(case.about or (), seen["refused"])
        want = descent(params, batches, epochs)
        parts = {"params": "params", "trace": "params", "ema": "ema"}
        for part, key in parts.items():
            for name, got, exact in zip(("in", "out"), seen[part], want[part], strict=True):
                hint = f"That is {part}[{name!r}] after {epochs} epochs."
                yield expect.close(key, got, exact, rtol=1e-3, atol=1e-3, hint=hint)
        yield expect.equal("params", int(seen["step"][0]), want["step"], unit="steps counted")
        hint = "That is the state's key, which an epoch leaves alone."
        yield expect.equal("params", seen["key"][0], np.array([0, 7], np.uint32), hint=hint)
        for number, (got, exact) in enumerate(zip(seen["losses"], want["losses"], strict=True), 1):
            hint = f"That is epoch {number}."
            yield expect.close("loss", got, exact, rtol=1e-3, hint=hint)
        yield from all_reused("donated", seen["fates"], "epoch")
        yield expect.equal(
            "donated", seen["batches gone"], 0, unit="of the batches' arrays deleted"
        )
        unit = "warnings of donated buffers that were not usable"
        yield expect.equal("donated", seen["unusable"], 0, unit=unit)
        yield from at_first_only("once", seen["compilations"], 3, "epoch")

    def told_by(self, case: Case, seen: Mapping[str, Any]) -> Mapping[str, Any]:
        """Everything, of the compilations whether they were too many."""
        return {**seen, "compilations": whether(seen["compilations"], 3)}


def weights(rng: np.random.Generator) -> dict[str, Array]:
    """Params of exercise 10.4: "in" (3, 48), whose last row is the bias, and "out" (48, 3)."""
    inner = 1.7 * rng.standard_normal((3, 48))
    return {
        "in": inner.astype(np.float32),
        "out": (rng.standard_normal((48, 3)) / 7).astype(np.float32),
    }


def with_one(x: Array) -> Array:
    """x with a last column of ones, which stands for the bias. x: (n, 2)."""
    return np.concatenate([x, np.ones((len(x), 1), np.float32)], axis=1)


def by_hand(rng: np.random.Generator) -> tuple[Any, ...]:
    """Three batches of 100 rows; the last has 30 real ones, which are harder than the others."""
    x = rng.uniform(-1.0, 1.0, (3, 100, 3)).astype(np.float32)
    x[..., 2] = 1.0
    mask = np.ones((3, 100), bool)
    mask[2, 30:] = False
    params = weights(rng)
    scores = np.tanh(x @ params["in"]) @ params["out"]
    labels = np.argmax(scores + rng.gumbel(0.0, 0.3, scores.shape), axis=2)
    labels[2] = np.argmin(scores[2], axis=1)
    x[~mask], labels[~mask] = 0.0, -1
    return params, [x, labels.astype(np.int32), mask]


def to_learn(rng: np.random.Generator) -> tuple[Any, ...]:
    """A spiral of 290 points in the same shapes, a hundred epochs, and its turn and mirror."""
    law = float(rng.uniform(0.0, 2 * np.pi)), int(rng.choice([-1, 1]))
    points, names = spiral_points(rng, 97, *law)
    x = np.zeros((300, 3), np.float32)
    labels = np.full(300, -1, np.int32)
    x[:290], labels[:290] = with_one(points[:290]), names[:290]
    mask = labels >= 0
    shaped = [x.reshape(3, 100, 3), labels.reshape(3, 100), mask.reshape(3, 100)]
    return weights(rng), shaped, 100, law


def descent(params: Tree, batches: Sequence[Array], epochs: int) -> dict[str, Any]:
    """Momentum on `batch_loss` in float64: what exercise 10.4 asks for, slopes by hand."""
    recipe = Momentum()
    p = [params[name].astype(np.float64) for name in ("in", "out")]
    ema, trace = [leaf.copy() for leaf in p], [np.zeros_like(leaf) for leaf in p]
    losses, steps = [], 0
    for _ in range(epochs):
        total, count = 0.0, 0
        for x, labels, mask in zip(*batches, strict=True):
            x, labels = x[mask].astype(np.float64), labels[mask]
            hidden = np.tanh(x @ p[0])
            z = hidden @ p[1]
            z = z - z.max(axis=1, keepdims=True)
            log_p = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
            total -= float(np.sum(log_p[np.arange(len(x)), labels]))
            count += len(x)
            error = (np.exp(log_p) - np.eye(3)[labels]) / len(x)
            back = error @ p[1].T * (1 - hidden**2)
            slopes = [x.T @ back, hidden.T @ error]
            trace = [recipe.momentum * t + g for t, g in zip(trace, slopes, strict=True)]
            p = [leaf - recipe.rate * t for leaf, t in zip(p, trace, strict=True)]
            ema = [DECAY * e + (1 - DECAY) * leaf for e, leaf in zip(ema, p, strict=True)]
            steps += 1
        losses.append(total / count)
    return {"params": p, "trace": trace, "ema": ema, "step": steps, "losses": losses}


def learnt(key: str, params: Any, x: Array, turn: float, mirror: int) -> Iterator[Row]:
    """A row that says how many of 1,500 new points of the spiral the model names, in float64.

    The points are drawn here, on the judge's side, from a seed that the training points give.
    """
    digest = hashlib.sha256(np.ascontiguousarray(x).tobytes()).digest()
    rng = np.random.default_rng(list(digest[:8]))
    points, labels = spiral_points(rng, 500, turn, mirror)
    inner, outer = (np.asarray(leaf, np.float64) for leaf in params)
    logits = np.tanh(with_one(points).astype(np.float64) @ inner) @ outer
    share = (
        float(np.mean(np.argmax(logits, axis=1) == labels)) if np.isfinite(logits).all() else 0.0
    )
    yield expect.at_least(key, round(share, 4), 0.9501, unit="of 1,500 hidden points named")


# --- 10.5 ----------------------------------------------------------------------------------------

CHUNK = 4
"""Rows of a chunk in exercises 10.5 and 10.6."""

_rows_asked: list[int] = []


def predict_linear(params: Tree, x: Any) -> Any:
    """Logits of a linear model; it notes how many rows it was traced, or called, with."""
    _rows_asked.append(int(np.shape(x)[0]) if np.ndim(x) == 2 else -1)
    return x @ params["w"]


class Evaluation(Exercise):
    """Loss, accuracy and confusion of any number of points, by one program."""

    id = "10.5"
    title = "Evaluation: any number of points in chunks, compiled once"
    answer = "evaluate_in_chunks"
    properties = {
        "loss": Property("gives float64's mean cross-entropy over all points", 1, see="10.8"),
        "accuracy": Property("gives the share of points that are named rightly", 1, see="10.8"),
        "confusion": Property("counts each pair of label and prediction", 1.5, see="10.8"),
        "chunks": Property("predicts for a chunk at a time, compiled for one size", 1.5, "10.8"),
    }
    points = 5
    difficulty = 2
    importance = 2
    minutes = 20

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case("13, 8, 3 and 14 points, in chunks of 4", *to_evaluate(rng, 13, 8, 3, 14), True)

    def probe(
        self,
        evaluate_in_chunks: Callable[..., Any],
        w: Array,
        sets: Sequence[Sequence[Array]],
        fresh: bool,
    ) -> Mapping[str, Any]:
        import jax

        clear_programs(fresh)
        params = jax.device_put({"w": w})
        results: list[Any] = []
        _rows_asked.clear()

        def one(x: Array, labels: Array) -> None:
            results.append(evaluate_in_chunks(predict_linear, params, x, labels, CHUNK))

        seen = counted([functools.partial(one, *each) for each in sets])
        return {
            "results": results,
            "compilations": seen["compilations"],
            "most rows": max(_rows_asked, default=0),
            "fewest rows": min(_rows_asked, default=0),
        }

    def counted(self, seen: Mapping[str, Any]) -> int | None:
        return expect.total(seen["compilations"])

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        w, sets, _ = case
        for (x, labels), got in zip(sets, seen["results"], strict=True):
            want = evaluated(w, x, labels)
            hint = f"That is for {len(x)} points in chunks of {CHUNK}."
            yield expect.close("loss", got["loss"], want["loss"], rtol=1e-3, atol=1e-5, hint=hint)
            yield expect.close("accuracy", got["accuracy"], want["accuracy"], hint=hint)
            yield expect.equal("confusion", got["confusion"], want["confusion"], hint=hint)
        unit = "rows given to predict at once"
        yield expect.at_most("chunks", seen["most rows"], CHUNK, unit=unit)
        yield expect.at_least("chunks", seen["fewest rows"], 0, unit=unit)
        yield from at_first_only("chunks", seen["compilations"], 4, "call")

    def told_by(self, case: Case, seen: Mapping[str, Any]) -> Mapping[str, Any]:
        """Everything, of the compilations whether they were too many."""
        return {**seen, "compilations": whether(seen["compilations"], 4)}


def to_evaluate(rng: np.random.Generator, *sizes: int) -> tuple[Any, ...]:
    """Inputs of exercise 10.5: w (2, 3), and x (n, 2), labels (n,) for each n. Whole numbers.

    There are fewer classes than rows in a chunk, so that neither is taken for the other. Where
    there are enough points, one has logits of about ±1000, and one has equal logits.
    """
    w = rng.permutation(np.array([[3, -1, 2], [1, 4, -3]], np.float32), axis=1)
    sets = []
    for n in sizes:
        x = rng.integers(-3, 4, (n, 2)).astype(np.float32) / 2
        best = np.argmax(x @ w, axis=1)
        wrong = rng.integers(0, 3, n)
        labels = np.where(rng.random(n) < 0.5, best, wrong).astype(np.int32)
        if n > 12:
            x[0], x[1] = rng.permutation([300, -300]), 0
            labels[:2] = np.argmax(x[0] @ w), rng.integers(1, 3)
        sets.append([x, labels])
    return w, sets


def evaluated(w: Array, x: Array, labels: Array) -> dict[str, Any]:
    """What exercise 10.5 asks for, in float64."""
    z = x.astype(np.float64) @ w.astype(np.float64)
    named = np.argmax(z, axis=1)
    z = z - z.max(axis=1, keepdims=True)
    log_p = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
    confusion = np.zeros((3, 3), np.int64)
    np.add.at(confusion, (labels, named), 1)
    return {
        "loss": -float(np.mean(log_p[np.arange(len(x)), labels])),
        "accuracy": float(np.mean(named == labels)),
        "confusion": confusion,
    }


# --- 10.6 ----------------------------------------------------------------------------------------


_at_once: list[int] = []


def example_loss(params: Tree, x: Any, label: Any) -> Any:
    """Half the squared error of one example; it notes how many it stood for when traced."""
    _at_once.append(int(np.size(getattr(x, "val", x))) // 2)
    return 0.5 * (x @ params["w"] + params["b"] - label) ** 2


class HardExamples(Exercise):
    """The examples with the longest gradients, of any number, by one program."""

    id = "10.6"
    title = "Hard examples: the longest gradients of any number of examples"
    answer = "hardest"
    properties = {
        "which": Property("finds the examples with the longest gradients", 1.5, see="10.9"),
        "norms": Property("gives the lengths of their gradients", 1, see="10.9"),
        "ties": Property("puts the lower index first among equals", 0.5, see="10.9"),
        "few": Property("returns all of them where there are fewer than k", 0.5, see="10.9"),
        "chunks": Property("takes the gradients of a chunk at a time", 0.5, see="10.9"),
        "once": Property("compiles one program for any number of examples and any k", 1, "10.9"),
    }
    points = 5
    difficulty = 2
    importance = 2
    minutes = 20

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        about = ["which", "norms", "chunks", "once"]
        yield Case(
            "the 4 hardest of 13, the 2 of 10", *to_rank(rng, (13, 4), (10, 2)), True, about=about
        )
        yield Case("equal lengths", *to_rank(rng, (13, 6), tied=True), False, about=["ties"])
        yield Case("the 9 hardest of 6", *to_rank(rng, (6, 9)), False, about=["few"])

    def probe(
        self, hardest: Callable[..., Any], w: Array, b: Array,
        sets: Sequence[Sequence[Any]], fresh: bool,
    ) -> Mapping[str, Any]:  # fmt: skip
        import jax

        clear_programs(fresh)
        params = jax.device_put({"b": b, "w": w})
        found: list[Any] = []
        _at_once.clear()

        def one(x: Array, labels: Array, k: int) -> None:
            indices, norms = hardest(example_loss, params, x, labels, k, CHUNK)
            found.append([np.asarray(indices), np.asarray(norms)])

        seen = counted([functools.partial(one, *each) for each in sets])
        most = max(_at_once, default=0)
        return {"found": found, "compilations": seen["compilations"], "at once": most}

    def counted(self, seen: Mapping[str, Any]) -> int | None:
        return expect.total(seen["compilations"])

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        w, b, sets, fresh = case
        about = case.about or ()
        for (x, labels, k), (indices, norms) in zip(sets, seen["found"], strict=True):
            lengths = gradient_lengths(w, b, x, labels)
            order = np.lexsort((np.arange(len(x)), -lengths))[:k]
            hint = f"That is k = {k} of {len(x)} examples in chunks of {CHUNK}."
            yield expect.equal(about[0], indices, order, hint=hint)
            if "norms" in about:
                yield expect.close("norms", norms, lengths[order], rtol=1e-4, hint=hint)
        if fresh:
            unit = "gradients at once"
            yield expect.at_most("chunks", seen["at once"], CHUNK, unit=unit)
            yield from at_first_only("once", seen["compilations"], 4, "call")

    def told_by(self, case: Case, seen: Mapping[str, Any]) -> Mapping[str, Any]:
        """Everything, of what is counted whether it was too much."""
        compilations, at_once = whether(seen["compilations"], 4), seen["at once"] > CHUNK
        return {**seen, "compilations": compilations, "at once": at_once}


def gradient_lengths(w: Array, b: Array, x: Array, labels: Array) -> Array:
    """Length of each example's gradient of `example_loss`, in float64."""
    x = x.astype(np.float64)
    return np.abs(x @ w.astype(np.float64) + float(b) - labels) * np.sqrt(1 + np.sum(x**2, axis=1))


def to_rank(
    rng: np.random.Generator, *sizes: tuple[int, int], tied: bool = False
) -> tuple[Any, ...]:
    """Inputs of exercise 10.6: w (2,), b (), and x (n, 2), labels (n,), k for each (n, k).

    All are whole numbers, 1 + ‖x‖² a square, so every length is exact. A row of zeros with label 0
    would have one of the longest gradients. tied: many examples have the same length.
    """
    w = rng.integers(1, 4, 2).astype(np.float32)
    b = np.array(rng.integers(40, 60), np.float32)
    shapes = np.array([[0, 0], [2, 2], [2, -2], [-2, 2], [4, 8], [8, 4], [-4, 8]])
    sets = []
    for n, k in sizes:
        x = shapes[rng.integers(0, 4 if tied else 7, n)].astype(np.float32)
        errors = rng.permutation(np.arange(1, n + 1)) if not tied else rng.choice([-2, 2, -6, 6], n)
        labels = (x @ w + b - errors).astype(np.int32)
        sets.append([x, labels, k])
    return w, b, sets


EXERCISES = [Data, State, Loss, Epoch, Evaluation, HardExamples]


# --- quiz ----------------------------------------------------------------------------------------


def same_key_twice() -> str:
    """Question 10.a."""
    import jax

    from helpers import data

    key = jax.random.key(0)
    (train, _), (test, _) = data.spiral(key), data.spiral(key)
    return "c" if np.array_equal(train, test) else "a"


def labels_in_a_batch() -> str:
    """Question 10.b."""
    import jax

    from helpers import data

    _, labels = data.spiral(jax.random.key(0))
    return {1: "a", 2: "b", 3: "c"}[len(np.unique(np.asarray(labels)[:72]))]


def weight_of_a_row() -> str:
    """Question 10.c: what a row of the last batch counts, against one of the first."""
    sizes = [72] * 9 + [18]
    row = [1 / size / len(sizes) for size in sizes]
    return {1: "a", 4: "b", 10: "c"}.get(round(row[-1] / row[0]), "?")


def loss_of_a_guess() -> str:
    """Question 10.d."""
    from helpers import losses

    logits: Any = np.zeros((1, 3), np.float32)
    labels: Any = np.zeros(1, np.int32)
    value = float(losses.cross_entropy(logits, labels)[0])
    return {0.333: "a", 0.693: "b", 1.099: "c"}.get(round(value, 3), "?")


def two_optimizers() -> str:
    """Question 10.e: how many programs two runs with optimizers of their own compile."""
    from helpers import optim, training
    from helpers.compiles import CompileCounter

    params = np.ones(3, np.float32)
    with CompileCounter(only="train_step") as counter:
        for _ in range(2):
            state = training.init_state(owned(params), optim.sgd(0.1))
            training.train_step(sum_of_squares, state)
    return {1: "a", 2: "b"}.get(counter.count, "?")


def sum_of_squares(params: Any) -> Any:
    """A loss that needs no data."""
    return (params**2).sum()


def left_of_the_start() -> str:
    """Question 10.f."""
    average = 1.0
    for _ in range(100):
        average = 0.99 * average + 0.01 * 0.0
    return {0: "a", 37: "b", 99: "c"}.get(round(100 * average), "?")


def copy_of_a_weak_one() -> str:
    """Question 10.g."""
    import jax
    import jax.numpy as jnp

    seen: list[Any] = [
        jnp.copy(jnp.asarray(1.0)),
        jax.jit(lambda x: x + np.float32(0))(jnp.asarray(1.0)),
    ]
    copied, returned = (bool(x.weak_type) for x in seen)
    return {(True, False): "b", (False, False): "a"}.get((copied, returned), "?")


QUIZ = [
    Question(
        "10.a",
        "`train, test = spiral(key), spiral(key)`. What does the accuracy on `test` say?",
        {
            "a": "how the model does on new points",
            "b": "the same, a little too well",
            "c": "nothing that the accuracy on `train` does not",
        },
        "c",
        "A key is no generator that moves on: the same key draws the same points.",
        "10.2",
        same_key_twice,
    ),
    Question(
        "10.b",
        "The library's `spiral` is cut into batches of 72 without being mixed. How many of the"
        " three labels does the first batch hold?",
        {"a": "1", "b": "2", "c": "3"},
        "a",
        "It comes arm after arm, 240 points each.",
        "10.3",
        labels_in_a_batch,
    ),
    Question(
        "10.c",
        "666 examples in batches of 72, the last with 18. In a plain mean of the ten batch losses,"
        " what does an example of the last batch count, against one of the first?",
        {"a": "the same", "b": "4 times as much", "c": "10 times as much"},
        "b",
        "It shares its batch's tenth with 17 others and not with 71.",
        "10.6",
        weight_of_a_row,
    ),
    Question(
        "10.d",
        "A new model has logits near zero. Near what is its cross-entropy over three classes?",
        {"a": "1/3", "b": "0.69", "c": "1.10"},
        "c",
        "Each class has probability 1/3, and −log(1/3) is 1.10: the first number to look at.",
        "10.5",
        loss_of_a_guess,
    ),
    Question(
        "10.e",
        "A loop over two seeds calls `init_state(params, sgd(0.1))` and takes a `train_step`. How"
        " many programs are compiled for the step?",
        {"a": "1", "b": "2"},
        "b",
        "Each call makes an optimizer of new functions, and functions are compared by identity.",
        "10.4",
        two_optimizers,
    ),
    Question(
        "10.f",
        "A moving average with decay 0.99 starts at the first params. How much of these is still"
        " in it after 100 steps?",
        {"a": "less than 1 %", "b": "37 %", "c": "99 %"},
        "b",
        "0.99 to the power of 100; choose a decay that fits the length of the run.",
        "10.6",
        left_of_the_start,
    ),
    Question(
        "10.g",
        "`scale = jnp.asarray(1.0)` is weakly typed. A state holds `jnp.copy(scale)`, and a step"
        " adds a float32 to it. How many programs do many steps compile?",
        {"a": "1", "b": "2"},
        "b",
        "The copy is weakly typed too, and what comes out of the step is not.",
        "10.4",
        copy_of_a_weak_one,
    ),
]
