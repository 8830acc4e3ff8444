"""Chapter 06 · Donation: the public cases, probe and judge of each exercise, and the quiz.

What became of a buffer is observed where it lies, in the learner's process: addresses are compared
there and never leave it. JAX is imported inside probes only.
"""

import functools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from helpers import expect
from helpers.exercise import Case, Exercise, Property, Row
from helpers.quiz import Question

Array = npt.NDArray[Any]
Tree = Any
Path = Sequence[str | int]
"""Keys of dicts and places of lists, from the outside in."""

ONCE = "The first call compiles one program; two small conversions beside it are tolerated."


# --- observing -----------------------------------------------------------------------------------


@functools.cache
def programs() -> tuple[Callable[[Tree], Tree], Callable[[Tree], Tree]]:
    """A program whose results lie in buffers of XLA's own, and one that adds 1 and donates.

    Both get the leaves alone: nests of equal leaves share a program.
    """
    import jax

    def of_leaves(program: Callable[[list[Any]], list[Any]]) -> Callable[[Tree], Tree]:
        def run(tree: Tree) -> Tree:
            leaves, structure = jax.tree.flatten(tree)
            return jax.tree.unflatten(structure, program(leaves))

        return run

    same = jax.jit(lambda leaves: [x + 0 for x in leaves])
    add_one = jax.jit(lambda leaves: [x + 1 for x in leaves], donate_argnums=0)
    return of_leaves(same), of_leaves(add_one)


def owned(tree: Tree) -> Tree:
    """NumPy arrays as JAX arrays, none of which looks into NumPy's memory."""
    return programs()[0](tree)


def copies(tree: Tree) -> Tree:
    """Each array as NumPy, copied: a view would keep a donation back. For NumPy's own dtypes."""
    import jax

    return jax.tree.map(lambda x: np.array(x, copy=True), tree)


def dtypes(tree: Tree) -> list[str]:
    """Dtype and shape of each leaf, "float32(4, 3)"; the type of one that is no array: "int"."""
    import jax

    return [
        f"{np.dtype(x.dtype).name}{tuple(x.shape)}" if hasattr(x, "dtype") else type(x).__name__
        for x in jax.tree.leaves(tree)
    ]


def places(tree: Tree) -> list[int | None]:
    """The address of each leaf; None for one that is no JAX array, or that is gone."""
    import jax

    from helpers.buffers import addresses

    leaves = jax.tree.leaves(tree)
    readable = [isinstance(x, jax.Array) and not x.is_deleted() for x in leaves]
    return [addresses(x)[0] if ok else None for x, ok in zip(leaves, readable, strict=True)]


def watched(step: Callable[..., Any], state: Tree, *inputs: Any) -> tuple[Any, dict[str, int]]:
    """The result of `step(state, *inputs)`, and what became of the buffers of the state.

    The new state is the result, or its first element where it is a tuple. "leaves": how many the
    old one had; "gone": how many of these are deleted; "reused": in how many the new state lies.
    """
    from helpers.buffers import deleted

    before = places(state)
    result = step(state, *inputs)
    after = places(result[0] if type(result) is tuple else result)
    reused = len({*before} & {*after} - {None})
    return result, {"leaves": len(before), "gone": sum(deleted(state)), "reused": reused}


def counted(steps: Sequence[Callable[[], Any]]) -> dict[str, Any]:
    """Runs each step; how many programs each compiled, and how often JAX could not use a donation.

    Python warns once a place and program, so warnings are counted with all filters off.
    """
    from helpers.compiles import CompileCounter

    compilations = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in steps:
            with CompileCounter() as counter:
                step()
            compilations.append(counter.count)
    unusable = sum("donated buffers were not usable" in str(each.message) for each in caught)
    return {"compilations": compilations, "unusable": unusable}


def above(limit: float, used: int) -> int:
    """Bytes that break the limit, 0 for any number within it.

    What fits is one thing whatever it takes, so that a mistake elsewhere is known for what it is.
    """
    return used if used > limit else 0


# --- judging -------------------------------------------------------------------------------------


def tally(key: str, seen: Any, want: int, thing: str, rest: str, **why: str) -> Row:
    """A row on an exact count: "1 warning of …", "0 warnings of …"."""

    def words(number: Any) -> str:
        return f"{number} {thing}{'' if number == 1 else 's'} {rest}"

    passed = expect.equal(key, seen, want).passed
    return expect.true(key, passed, seen=words(seen)[:120], expected=words(want), **why)


def all_reused(key: str, fates: Sequence[Mapping[str, int]], what: str = "step") -> Iterator[Row]:
    """Rows that say whether every buffer of the state went into the next one."""
    for number, fate in enumerate(fates, 1):
        of = f"of {fate['leaves']} buffers"
        hint = f"That is {what} {number}."
        for verb in ("reused", "gone"):
            yield expect.equal(key, fate[verb], fate["leaves"], unit=f"{of} {verb}", hint=hint)


def compiled_once(key: str, compilations: Sequence[int], fresh: bool) -> Iterator[Row]:
    """Rows that say whether everything was compiled in the first call; fresh: something was."""
    first, *later = compilations
    if fresh:
        yield expect.at_least(key, first, 1, unit="compiled at first")
        yield expect.at_most(key, first, 3, unit="compiled at first", hint=ONCE)
    for number, count in enumerate(later, 2):
        yield expect.equal(key, count, 0, unit=f"compiled in call {number}")


def not_refused(keys: Iterable[str], refused: Sequence[str]) -> Iterator[Row]:
    """Rows that fail, one for each key, where a step broke a rule of donation."""
    for said in refused[:1]:
        for key in keys:
            seen = f"a step that JAX refuses: a buffer was {said}"
            yield expect.true(key, False, seen=seen, expected="no error")


def of_types(key: str, seen: Any, want: Sequence[tuple[str, str]], hint: str) -> Row:
    """A row that says whether all leaves have the wanted types; it shows the first that has not.

    want: name and type of each leaf, in the order of a pytree's leaves.
    """
    if not isinstance(seen, list) or len(seen) != len(want):
        return expect.true(key, False, seen="another structure", expected=f"{len(want)} leaves")
    differ = [(got, *wanted) for got, wanted in zip(seen, want, strict=True) if got != wanted[1]]
    got, name, wanted = differ[0] if differ else ("", "", "")
    return expect.true(key, not differ, seen=f"{got} for {name}", expected=wanted, hint=hint)


def clear_programs(fresh: bool) -> None:
    """Forgets what was compiled, so that a second check counts what the first did."""
    import jax

    if fresh:
        jax.clear_caches()


# --- 6.1 -----------------------------------------------------------------------------------------


class NothingShared(Exercise):
    """A state that a donating step accepts, and that leaves the caller's arrays alone."""

    id = "6.1"
    title = "A state with no shared buffers"
    answer = "fresh_state"
    properties = {
        "value": Property("starts from the given params, with moments of zero", 1, see="6.6"),
        "apart": Property("keeps each of its leaves in a buffer of its own", 2, see="6.6"),
        "caller": Property("leaves the caller's params alive", 1, see="6.6"),
    }
    points = 4
    difficulty = 1
    importance = 3
    minutes = 15

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case("a float16 embedding and two layers", network(rng), [])
        params = network(rng)
        ties: list[list[Path]] = [[[2, "w"], [1, "w"]]]
        nest = [params["embed"], *params["layers"]]
        shared = "a list, in which the two layers share their weights"
        yield Case(shared, nest, ties, about=["value"])

    def probe(
        self, fresh_state: Callable[..., Any], params: Tree, ties: Sequence[Sequence[Path]]
    ) -> Mapping[str, Any]:
        import jax

        from helpers.buffers import deleted, refusal, shared

        given = owned(params)
        tie(given, ties)
        state = fresh_state(given)
        kinds = [isinstance(x, jax.Array) for x in jax.tree.leaves(state)]
        seen = {
            "state": copies(state),
            "dtypes": dtypes(state),
            "no JAX array": kinds.count(False),
            "shared": shared(state) if all(kinds) else [],
            "the caller's": len({*places(state)} & {*places(given)} - {None}),
        }
        step = programs()[1]
        seen["refused"] = refusal(lambda: step(state))
        seen["caller's gone"] = sum(deleted(given))
        return seen

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        params, ties = case
        tie(params, ties)
        state = seen["state"]
        for part in ("params", "ema", "mu", "nu"):
            for path, leaf in flat(params):
                want = leaf if part in ("params", "ema") else np.zeros_like(leaf)
                got = at(state[part], path)
                yield expect.close("value", got, want, rtol=1e-6, hint=f"That is {part}{path}.")
        yield expect.equal("value", int(state["count"]), 0, unit="steps at first")
        types = [("['count']", "int32()")]
        for part in ("ema", "mu", "nu", "params"):
            for path, leaf in sorted_flat(params):
                name = "".join(f"[{key!r}]" for key in (part, *path))
                types.append((name, f"{leaf.dtype}{leaf.shape}"))
        hint = "Moments and averages have the dtype of their parameter, and the count is int32."
        yield of_types("value", seen["dtypes"], types, hint)
        unit = f"of {len(seen['dtypes'])} leaves that are no JAX arrays"
        yield expect.equal("apart", seen["no JAX array"], 0, unit=unit)
        together = " and ".join(seen["shared"][0]) if seen["shared"] else ""
        yield expect.true(
            "apart",
            not seen["shared"],
            seen=f"in one buffer: {together}"[:200],
            expected="a buffer for each leaf",
            hint=f"Buffers that hold more than one leaf: {len(seen['shared'])}.",
        )
        yield from not_refused(["apart"], [seen["refused"]] if seen["refused"] else [])
        unit = "of the caller's buffers in the state"
        yield expect.equal("caller", seen["the caller's"], 0, unit=unit)
        unit = "of the caller's arrays deleted by a step that donates the state"
        yield expect.equal("caller", seen["caller's gone"], 0, unit=unit)


def network(rng: np.random.Generator) -> dict[str, Any]:
    """Params for exercise 6.1: "embed" (4, 3) float16, two layers w (4, 3), b (3,) float32."""

    def numbers(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    layers = [{"w": numbers(4, 3), "b": numbers(3)} for _ in range(2)]
    return {"embed": numbers(4, 3).astype(np.float16), "layers": layers}


def tie(tree: Tree, ties: Sequence[Sequence[Path]]) -> None:
    """Puts at the first path of each pair the very array that is at the second."""
    for target, origin in ties:
        at(tree, target[:-1])[target[-1]] = at(tree, origin)


def flat(tree: Tree, path: Path = ()) -> Iterator[tuple[Path, Array]]:
    """The arrays of nested dicts and lists with their paths."""
    if isinstance(tree, np.ndarray):
        yield path, tree
        return
    entries: Iterable[tuple[str | int, Tree]]
    entries = tree.items() if isinstance(tree, Mapping) else enumerate(tree)
    for key, child in entries:
        yield from flat(child, (*path, key))


def sorted_flat(tree: Tree) -> list[tuple[Path, Array]]:
    """`flat` in the order of a pytree's leaves: dicts by key."""
    return sorted(flat(tree), key=lambda entry: [str(key) for key in entry[0]])


def at(tree: Tree, path: Path) -> Any:
    """The entry of a nest at a path."""
    for key in path:
        tree = tree[key]
    return tree


# --- 6.2 -----------------------------------------------------------------------------------------


class TrainingStep(Exercise):
    """Momentum on a linear model, in the memory of one state."""

    id = "6.2"
    title = "The training step"
    answer = "momentum_step"
    properties = {
        "value": Property("gives float64's numbers, also the loss before the step", 1.5, "6.8"),
        "donated": Property("reuses every buffer of the state", 2.5, "6.8"),
        "bad": Property("moves nothing if any entry of any slope is not finite", 1, "6.5"),
        "batch": Property("leaves the batch alive, and donates nothing in vain", 0.5, "6.4"),
        "once": Property("compiles once, whatever the rate", 0.5, "6.8"),
    }
    points = 6
    difficulty = 2
    importance = 3
    minutes = 25

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        about = ["value", "donated", "batch", "once"]
        yield Case(
            "four steps, each at its own rate; b is float16", *descent(rng), True, about=about
        )
        for label, what in ((np.nan, "a NaN"), (np.inf, "an infinity")):
            spoiled = *descent(rng, label=label), False
            yield Case(f"{what} among the labels of batch 2", *spoiled, about=["bad", "donated"])
        yield Case("one slope too large for float32", *steep(rng), False, about=["bad", "donated"])
        yield Case("a loss too large for float32, of slopes that are not", *far(rng), False,
                   about=["bad", "donated"])  # fmt: skip

    def probe(
        self, momentum_step: Callable[..., Any], w: Array, b: Array, x: Array, ys: Array,
        rates: Sequence[float], fresh: bool,
    ) -> Mapping[str, Any]:  # fmt: skip
        import jax

        from helpers.buffers import deleted, refusal

        clear_programs(fresh)
        zeros = {"w": np.zeros_like(w), "b": np.zeros_like(b)}
        state = owned({"params": {"w": w, "b": b}, "step": np.int32(0), "trace": zeros})
        batches = [jax.device_put((x, y)) for y in ys]
        losses: list[Any] = []
        fates: list[Mapping[str, int]] = []
        refused: list[str] = []

        def one(batch: Tree, rate: float) -> None:
            nonlocal state
            (state, loss), fate = watched(momentum_step, state, *batch, np.float32(rate))
            losses.append(loss)
            fates.append(fate)

        def noted(step: Callable[[], None]) -> None:
            refused.append(refusal(step))

        steps = [functools.partial(one, *each) for each in zip(batches, rates, strict=True)]
        seen = counted([functools.partial(noted, step) for step in steps])
        return seen | {
            "refused": [said for said in refused if said][:1],
            "fates": fates,
            "losses": losses,
            "state": read(state),
            "types": dtypes(state),
            "batches gone": sum(deleted(batches)),
        }

    def counted(self, seen: Mapping[str, Any]) -> int | None:
        return expect.total(seen["compilations"])

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        w, b, x, ys, rates, fresh = case
        yield from not_refused(case.about or (), seen["refused"])
        yield from all_reused("donated", seen["fates"])
        names = ("b of the params", "w of the params", "step", "b of the trace", "w of the trace")
        types = [f"{b.dtype}()", f"{w.dtype}{w.shape}"]
        wanted = list(zip(names, [*types, "int32()", *types], strict=True))
        hint = "A result of another dtype can't lie in the old buffer: cast it to the leaf's own."
        yield of_types("donated", seen["types"], wanted, hint)
        losses, want = momentum_descent(w, b, x, ys, rates)
        key = "bad" if "bad" in (case.about or ()) else "value"
        for name, got, exact in zip(names, seen["state"], want, strict=True):
            hint = f"That is {name} after {len(rates)} steps."
            yield expect.close(key, got, exact, rtol=2e-2, atol=2e-2, hint=hint)
        if key == "bad":
            return
        for number, (loss, exact) in enumerate(zip(seen["losses"], losses, strict=True), 1):
            hint = f"That is the loss of step {number}, before it moves the params."
            yield expect.close("value", loss, exact, rtol=2e-2, atol=2e-2, hint=hint)
        yield expect.equal("batch", seen["batches gone"], 0, unit="of the batches' arrays deleted")
        hint = "JAX warns of each program that can't use a donation."
        rest = "of donated buffers that were not usable"
        yield tally("batch", seen["unusable"], 0, "warning", rest, hint=hint)
        yield from compiled_once("once", seen["compilations"], fresh)


def descent(rng: np.random.Generator, label: float = 0.0) -> tuple[Any, ...]:
    """Inputs of exercise 6.2, for four steps.

    w (5,) float32, b () float16, x (5, 5) and ys (4, 5) float32, and the rates. A label other than
    0 replaces one in the second batch.
    """
    w = rng.uniform(-1.0, 1.0, 5).astype(np.float32)
    b = np.array(rng.uniform(0.5, 1.0), np.float16)
    x = (rng.uniform(0.1, 1.0, (5, 5)) * rng.choice([-1, 1], (5, 5))).astype(np.float32)
    ys = rng.uniform(2.0, 4.0, (4, 5)).astype(np.float32)
    if label:
        ys[1, 2] = label
    rates = [float(rate) for rate in rng.permutation([0.02, 0.05, 0.08, 0.11])]
    return w, b, x, ys, rates


def steep(rng: np.random.Generator) -> tuple[Any, ...]:
    """Inputs of exercise 6.2 whose loss and slopes are moderate but for the slope of w[0].

    Column 0 of x is nearly float32's largest number, and w[0] is 0.
    """
    w, b, x, ys, rates = descent(rng)
    w[0], x[:, 0] = 0.0, 3e38
    return w, b, x, ys, rates


def far(rng: np.random.Generator) -> tuple[Any, ...]:
    """Inputs of exercise 6.2 whose slopes are finite, and neither their squares nor the loss.

    A label is 1e20, and b is float32, which has room for its slope.
    """
    w, b, x, ys, rates = descent(rng, label=1e20)
    return w, b.astype(np.float32), x, ys, rates


def momentum_descent(
    w: Array, b: Array, x: Array, ys: Array, rates: Sequence[float]
) -> tuple[list[float], list[Any]]:
    """The loss before each step, and what the last state holds in the order of leaves; float64."""
    w, b, x, ys = (a.astype(np.float64) for a in (w, b, x, ys))
    trace_w, trace_b = np.zeros_like(w), np.zeros_like(b)
    losses = []
    for y, rate in zip(ys, rates, strict=True):
        error = x @ w + b - y
        with np.errstate(invalid="ignore"):
            losses.append(float(np.mean(error**2)))
            slope_w, slope_b = 2 * (error @ x) / len(y), 2 * np.mean(error)
        if np.all(np.abs([*slope_w, slope_b]) < np.finfo(np.float32).max):
            trace_w = 0.9 * trace_w + slope_w
            trace_b = 0.9 * trace_b + slope_b
            w, b = w - rate * trace_w, b - rate * trace_b
    return losses, [b, w, len(rates), trace_b, trace_w]


# --- 6.3 -----------------------------------------------------------------------------------------


class Snapshot(Exercise):
    """A copy at the right moment, and nothing but a copy."""

    id = "6.3"
    title = "A snapshot that neither dies nor blocks donation"
    answer = "snapshot"
    properties = {
        "value": Property("has the structure, shapes, dtypes and numbers of the state", 1, "6.9"),
        "alive": Property("still reads the same after the steps that follow", 2, see="6.9"),
        "free": Property("keeps no later step from reusing every buffer", 2, see="6.10"),
    }  # fmt: skip
    points = 4
    difficulty = 1
    importance = 3
    minutes = 10

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        state = {
            "params": [integers(rng, 2, 4), integers(rng, 4)],
            "ema": None,
            "step": np.array(rng.integers(1, 50), np.int32),
        }
        yield Case("three snapshots, a step after each", state, "bfloat16")

    def probe(self, snapshot: Callable[..., Any], state: Tree, narrow: str) -> Mapping[str, Any]:
        import jax.numpy as jnp

        from helpers.buffers import refusal

        w, b = state["params"]
        state = owned(state | {"params": (w, b.astype(jnp.dtype(narrow)))})
        step = programs()[1]
        taken, first_read, fates, kinds = [], [], [], []
        refused = ""

        def one() -> None:
            nonlocal state
            state, fate = watched(step, state)
            fates.append(fate)

        for _ in range(3):
            kept = snapshot(state)
            taken.append(kept)
            first_read.append(read(kept))
            kinds.append(form(kept, state))
            refused = refusal(one)
            if refused:
                break
        return {
            "at once": first_read,
            "later": [read(kept) for kept in taken],
            "form": kinds,
            "fates": fates,
            "refused": refused,
        }

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        state, narrow = case
        leaves = [state["params"][0], state["params"][1], np.asarray(state["step"])]
        dtypes = leaves[0].dtype.name, narrow, leaves[2].dtype.name
        names = "params[0]", "params[1]", "step"
        types = [
            (name, f"{dtype}{leaf.shape}")
            for name, dtype, leaf in zip(names, dtypes, leaves, strict=True)
        ]
        for number, (kind, got) in enumerate(zip(seen["form"], seen["at once"], strict=True)):
            yield expect.true("value", kind["same structure"], seen="another structure")
            yield of_types("value", kind["types"], types, "A snapshot can be loaded back.")
            for value, leaf in zip(got, leaves, strict=True):
                yield expect.close("value", value, leaf + number, hint="Read as soon as taken.")
        kept = True
        for number, got in enumerate(seen["later"]):
            hint = f"That is snapshot {number + 1}, read after the last step."
            for value, leaf in zip(got, leaves, strict=True):
                row = expect.close("alive", value, leaf + number, hint=hint)
                kept = kept and row.passed
                yield row
        seen_text = "snapshots that were not kept, which can't keep anything back"
        yield expect.true("free", kept, seen=seen_text, expected="buffers reused all the same")
        yield from not_refused(["alive", "free"], [seen["refused"]] if seen["refused"] else [])
        yield from all_reused("free", seen["fates"])


GONE = "deleted"
"""What `read` says of an array that a donation took."""


def integers(rng: np.random.Generator, *shape: int) -> Array:
    """Whole numbers that bfloat16 holds exactly, as float32."""
    return rng.integers(-60, 60, shape).astype(np.float32)


def read(tree: Tree) -> list[Any]:
    """Each leaf as a copy in NumPy's own dtypes, or that it is gone.

    NumPy has no bfloat16. It asks JAX for one, and JAX 0.11 then keeps what it gave, which blocks
    the buffer for good; so such a leaf is copied by JAX first.
    """
    import jax
    import jax.numpy as jnp

    found: list[Any] = []
    for leaf in jax.tree.leaves(tree):
        ours = isinstance(leaf, jax.Array)
        if ours and leaf.is_deleted():
            found.append(GONE)
        else:
            strange = ours and leaf.dtype.kind == "V"
            copy = np.array(jnp.copy(leaf) if strange else leaf, copy=True)
            found.append(copy.astype(np.float32) if copy.dtype.kind == "V" else copy)
    return found


def form(kept: Tree, state: Tree) -> dict[str, Any]:
    """How a snapshot looks beside its state: structure, types, and what it took over as it was."""
    import jax

    old, new = jax.tree.leaves(state), jax.tree.leaves(kept)
    structures: list[Any] = [jax.tree.structure(tree) for tree in (state, kept)]
    return {
        "same structure": structures[0] == structures[1],
        "types": dtypes(kept),
        "the state itself": kept is state,
        "same arrays": sum(any(a is b for b in old) for a in new),
        "same buffers": len({*places(kept)} & {*places(state)} - {None}),
    }


# --- 6.4 -----------------------------------------------------------------------------------------


class RingBuffer(Exercise):
    """A cache that takes new rows where the oldest were, in the memory that it has."""

    id = "6.4"
    title = "A ring buffer (KV cache) updated in place"
    answer = "append"
    properties = {
        "rows": Property("puts row number n into slot n mod length and no other", 2, "6.11"),
        "donated": Property("reuses every buffer of the cache", 1.5, "6.11"),
        "place": Property("makes no copy of the cache on the side", 1, "6.11"),
        "once": Property("compiles once for each number of new rows", 0.5, "6.11"),
    }  # fmt: skip
    points = 5
    difficulty = 3
    importance = 2
    minutes = 25

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case("five times 5 rows into 16 slots", *cache(rng, 0), rows_for(rng, 5, 5), True)
        single, full = rows_for(rng, 2, 1), rows_for(rng, 2, 16)
        yield Case("twice 1 row", *cache(rng, 15), single, False, about=["rows"])
        yield Case("twice as many rows as slots", *cache(rng, 3), full, False, about=["rows"])

    def probe(
        self, append: Callable[..., Any], k: Array, v: Array, count: int, rows: Array, fresh: bool
    ) -> Mapping[str, Any]:
        clear_programs(fresh)
        state = owned({"k": k, "v": v, "count": np.int32(count)})
        contents, fates = [], []

        def one(new: Array) -> None:
            nonlocal state
            state, fate = watched(append, state, *new)
            fates.append(fate)

        def then_read(new: Array) -> None:
            one(new)
            contents.append(copies(state))

        seen = counted([functools.partial(then_read, new) for new in rows])
        side = beside(append, state, k.nbytes // 2, *rows[0]) if fresh else {}
        return seen | {"contents": contents, "fates": fates} | side

    def counted(self, seen: Mapping[str, Any]) -> int | None:
        return expect.total(seen["compilations"])

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        k, v, count, rows, fresh = case
        want = {"k": k.copy(), "v": v.copy()}
        for number, (got, new) in enumerate(zip(seen["contents"], rows, strict=True), 1):
            slots = (count + np.arange(new.shape[1])) % len(k)
            hint = f"That is append {number}: rows from number {count}, slots {slots[0]} on."
            for name, written in zip(("k", "v"), new, strict=True):
                want[name][slots] = written
                yield expect.equal("rows", got[name], want[name], hint=f"{hint} ({name})")
            count += new.shape[1]
            yield expect.equal("rows", int(got["count"]), count, unit="rows counted", hint=hint)
        yield from all_reused("donated", seen["fates"], "append")
        if fresh:
            said = f"{seen['traced']} under jit"
            yield expect.true("place", not seen["traced"], seen=said, expected="no error")
            unit = "bytes of temporary memory"
            yield expect.at_most("place", seen["temporary"], k.nbytes // 2, unit=unit)
        yield from compiled_once("once", seen["compilations"], fresh)


def cache(rng: np.random.Generator, count: int) -> tuple[Array, Array, int]:
    """A cache of 16 slots of 64 numbers, k and v (16, 64), in which `count` rows were written."""
    k, v = rng.standard_normal((2, 16, 64)).astype(np.float32)
    return k, v, count


def rows_for(rng: np.random.Generator, appends: int, rows: int) -> Array:
    """New rows: float32 of shape (appends, 2, rows, 64), k and v of each append."""
    return rng.standard_normal((appends, 2, rows, 64)).astype(np.float32)


def beside(
    append: Callable[..., Any], state: Tree, limit: int, k: Array, v: Array
) -> dict[str, Any]:
    """Temporary memory above the limit of a program that only appends, or why there is none."""
    import jax

    try:
        program = jax.jit(lambda state, k, v: append(state, k, v), donate_argnums=0)
        memory: Any = program.lower(state, k, v).compile().memory_analysis()
    except Exception as error:
        return {"temporary": -1, "traced": type(error).__name__}
    return {"temporary": above(limit, memory.temp_size_in_bytes), "traced": ""}


# --- 6.5 -----------------------------------------------------------------------------------------


class FrozenLayers(Exercise):
    """Two fine-tunings from one set of pretrained weights, of which there is only one copy."""

    id = "6.5"
    title = "Frozen layers with a donated state"
    answer = ("start", "finetune_step")
    properties = {
        "value": Property("trains the head as float64 does, from the pretrained one", 1.5, "6.12"),
        "kept": Property("leaves the pretrained params alive and as they were", 1, "6.12"),
        "single": Property("keeps the frozen layers once, and not in the state", 1, "6.12"),
        "donated": Property("reuses every buffer of the state, donates nothing else", 1.5, "6.12"),
        "once": Property("compiles once for all trainings, whatever is frozen", 1, "6.12"),
    }  # fmt: skip
    points = 5
    difficulty = 2
    importance = 2
    minutes = 25

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case("two trainings from one model, then one from another", *tuning(rng), True)

    def probe(
        self, start: Callable[..., Any], finetune_step: Callable[..., Any],
        models: Sequence[Mapping[str, Any]], batches: Sequence[Array], fresh: bool,
    ) -> Mapping[str, Any]:  # fmt: skip
        import jax

        from helpers.buffers import deleted, refusal, shared

        clear_programs(fresh)
        # Each training has a copy of its own, so that one which takes it over harms no other.
        sources = [owned(models[which]) for which in MODEL_OF]
        data = [jax.device_put((batch[:, :-1], batch[:, -1])) for batch in batches]
        runs: list[tuple[Tree, Tree]] = []
        losses: list[list[Any]] = [[], [], []]
        together: list[list[str]] = []
        fates, refused = [], []

        def begin() -> None:
            for model in sources:
                state, frozen = start(model)
                if all(isinstance(x, jax.Array) for x in jax.tree.leaves(state)):
                    together.extend(shared(state))
                    state = owned(state) if shared(state) else state
                runs.append((state, frozen))

        def one(run: int) -> None:
            state, frozen = runs[run]
            (state, loss), fate = watched(finetune_step, state, frozen, *data[run])
            runs[run] = state, frozen
            losses[run].append(loss)
            fates.append(fate)

        def noted(call: Callable[[], None]) -> None:
            refused.append(refusal(call))

        calls: list[Callable[[], None]] = [begin]
        calls += [functools.partial(one, run) for _ in range(3) for run in range(3)]
        seen = counted([functools.partial(noted, call) for call in calls])
        begun, first, *later = seen["compilations"]
        extra = []
        for model, (_, frozen) in zip(sources, runs, strict=True):
            alien = {*places(frozen)} - {*places(model)}
            leaves = zip(jax.tree.leaves(frozen), places(frozen), strict=True)
            extra.append(bytes_of(x for x, place in leaves if place in alien))
        sizes = [bytes_of(jax.tree.leaves(state)) for state, _ in runs]
        return seen | {
            "compilations": [min(begun + first, 1), *later],
            "losses": losses,
            "heads": [read(state["head"]) for state, _ in runs],
            "fates": [WHOLE if len({*fate.values()}) == 1 else fate for fate in fates],
            "together": together[:1],
            "frozen bytes copied": extra,
            "state bytes": [above(room(models[0]), size) for size in sizes],
            "refused": [said for said in refused if said],
            "gone": [sum(deleted(model)) for model in sources],
            "pretrained": [read(model) for model in sources],
            "batches gone": sum(deleted(data)),
        }

    def counted(self, seen: Mapping[str, Any]) -> int | None:
        return expect.total(seen["compilations"])

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        models, batches, fresh = case
        yield from not_refused(["value", "donated", "once"], seen["refused"])
        sources = [models[which] for which in MODEL_OF]
        for run, (model, batch) in enumerate(zip(sources, batches, strict=True)):
            if seen["refused"]:
                break
            losses, head = tuned(model, batch)
            hint = f"That is training {run + 1} of three that take turns."
            got = [*seen["losses"][run], *seen["heads"][run]]
            for value, exact in zip(got, [*losses, head["b"], head["w"]], strict=True):
                yield expect.close("value", value, exact, rtol=5e-3, atol=5e-3, hint=hint)
        for model, gone, now in zip(sources, seen["gone"], seen["pretrained"], strict=True):
            yield expect.equal("kept", gone, 0, unit="of the pretrained arrays deleted")
            for value, (_, leaf) in zip(now, sorted_flat(model), strict=True):
                if not isinstance(value, str):
                    yield expect.equal("kept", value, leaf, hint="That is a pretrained array.")
        for copied in seen["frozen bytes copied"]:
            yield expect.equal("single", copied, 0, unit="bytes of frozen layers copied")
        hint = "That is a head, something as large, and 16 bytes more."
        for size in seen["state bytes"]:
            limit = room(models[0])
            yield expect.at_most("single", size, limit, unit="bytes in the state", hint=hint)
        for leaves in seen["together"]:
            said = f"in one buffer: {' and '.join(leaves)}"
            yield expect.true("donated", False, seen=said[:200], expected="a buffer for each leaf")
        yield from all_reused("donated", seen["fates"])
        rest = "of donated buffers that were not usable"
        yield tally("donated", seen["unusable"], 0, "warning", rest)
        yield expect.equal("donated", seen["batches gone"], 0, unit="of the batches deleted")
        first, *later = seen["compilations"]
        if fresh:
            yield expect.at_least("once", first, 1, unit="compiled at first")
        for number, count in enumerate(later, 2):
            yield expect.equal("once", count, 0, unit=f"compiled in step {number} of nine")


MODEL_OF = 0, 0, 1
"""Which of two models each training of exercise 6.5 starts from."""

WHOLE = {"leaves": 1, "gone": 1, "reused": 1}
"""What becomes of a state that is reused in full, of however many buffers it consists."""


def room(model: Mapping[str, Any]) -> int:
    """The bytes that a state of exercise 6.5 may take: two heads and 16 more."""
    return 2 * sum(leaf.nbytes for _, leaf in flat(model["head"])) + 16


def bytes_of(leaves: Iterable[Any]) -> int:
    """What the arrays among the leaves take; functions and Python's numbers take nothing."""
    return sum(getattr(leaf, "nbytes", 0) for leaf in leaves)


def tuning(rng: np.random.Generator) -> tuple[list[dict[str, Any]], list[Array]]:
    """Inputs of exercise 6.5: two models, and a batch for each of three trainings.

    A model is {"body": {"w": (4, 6), "b": (6,)}, "head": {"w": (6,), "b": ()}}; a batch (8, 5),
    features and target. All are float32.
    """

    def numbers(*shape: int) -> Array:
        return rng.standard_normal(shape).astype(np.float32)

    models = [
        {
            "body": {"w": numbers(4, 6), "b": numbers(6)},
            "head": {"w": numbers(6), "b": np.array(rng.uniform(1, 2), np.float32)},
        }
        for _ in range(2)
    ]
    return models, [numbers(8, 5) for _ in range(3)]


def tuned(model: Mapping[str, Any], batch: Array) -> tuple[list[float], dict[str, Any]]:
    """The loss before each of three momentum steps on the head, and the last head, in float64."""
    x, y = batch[:, :-1].astype(np.float64), batch[:, -1].astype(np.float64)
    body = {name: leaf.astype(np.float64) for name, leaf in model["body"].items()}
    hidden = np.tanh(x @ body["w"] + body["b"])
    head, losses = model["head"], []
    w, b = head["w"].astype(np.float64), head["b"].astype(np.float64)
    trace_w, trace_b = np.zeros_like(w), np.zeros_like(b)
    for _ in range(3):
        error = hidden @ w + b - y
        losses.append(float(np.mean(error**2)))
        trace_w = 0.9 * trace_w + 2 * (error @ hidden) / len(y)
        trace_b = 0.9 * trace_b + 2 * np.mean(error)
        w, b = w - 0.1 * trace_w, b - 0.1 * trace_b
    return losses, {"w": w, "b": b}


EXERCISES = [NothingShared, TrainingStep, Snapshot, RingBuffer, FrozenLayers]


# --- quiz ----------------------------------------------------------------------------------------


def doubling() -> tuple[Any, Any]:
    """A program that doubles its donated argument, and an array for it."""
    import jax

    return jax.jit(lambda x: 2 * x, donate_argnums=0), owned(np.ones(4, np.float32))


def what_is_left() -> str:
    """Question 6.a."""
    from helpers.buffers import refusal

    double, x = doubling()
    double(x)
    numbers, shape = refusal(lambda: np.array(x)), refusal(lambda: x.shape)
    return {(False, False): "a", (True, False): "b", (True, True): "c"}[bool(numbers), bool(shape)]


def donated_to_a_sum() -> str:
    """Question 6.b."""
    import jax
    import jax.numpy as jnp

    x = owned(np.ones(4, np.float32))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        jax.jit(lambda x: jnp.sum(x), donate_argnums=0)(x)
    return {(True, 0): "a", (False, 1): "b", (False, 0): "c"}.get(
        (x.is_deleted(), len(caught)), "?"
    )


def copies_of_sgd() -> str:
    """Question 6.c."""
    import jax

    def descend(params: Any, grads: Any) -> Any:
        return params - 0.1 * grads

    x = jax.ShapeDtypeStruct((1024,), np.float32)
    memory: Any = jax.jit(descend, donate_argnums=0).lower(x, x).compile().memory_analysis()
    bytes_needed = memory.argument_size_in_bytes + memory.output_size_in_bytes
    return {1: "a", 2: "b", 3: "c"}.get((bytes_needed - memory.alias_size_in_bytes) // 4096, "?")


def one_average_too_many() -> str:
    """Question 6.d."""
    import jax

    from helpers.buffers import TWICE, refusal

    x = owned(np.ones(4, np.float32))
    step = jax.jit(lambda params, ema: (params + 1, ema + 2), donate_argnums=(0, 1))
    said = refusal(lambda: step(x, x))
    return {"": "a", TWICE: "c"}.get(said, "?") if not x.is_deleted() else "b"


def donated_inside() -> str:
    """Question 6.e."""
    import jax

    double, x = doubling()
    jax.jit(lambda x: double(x) + 1)(x)
    return "b" if x.is_deleted() else "a"


def half_donated() -> str:
    """Question 6.f."""
    import jax

    x = owned(np.ones(4, np.float16))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        jax.jit(lambda w, rate: w - rate * w, donate_argnums=0)(x, np.float32(0.1))
    return {(True, 0): "a", (False, 1): "b", (False, 0): "c"}.get(
        (x.is_deleted(), len(caught)), "?"
    )


def safe_copy() -> str:
    """Question 6.g: which of three copies lives on and lets the step reuse the buffer."""
    import jax.numpy as jnp

    ways: dict[str, Any] = {"a": jnp.asarray, "b": np.asarray, "c": jnp.copy}
    for letter, take in ways.items():
        double, x = doubling()
        copy = take(x)
        double(x)
        alive = isinstance(copy, np.ndarray) or not copy.is_deleted()
        on_every_device = letter != "b"  # an accelerator has no memory for NumPy to look into
        if alive and x.is_deleted() and on_every_device:
            return letter
    return "?"


def readable_history() -> str:
    """Question 6.h."""
    double, x = doubling()
    history = [x]
    for _ in range(9):
        history.append(double(history[-1]))
    return {10: "a", 1: "b", 0: "c"}.get(sum(not each.is_deleted() for each in history), "?")


QUIZ = [
    Question(
        "6.a",
        "`y = double(x)` has donated `x`. What can you still get from `x`?",
        {
            "a": "everything, until it is collected",
            "b": "its shape and dtype",
            "c": "nothing: it is gone",
        },
        "b",
        "The Python object lives on and knows what it was; only its buffer went away.",
        "6.5",
        what_is_left,
    ),
    Question(
        "6.b",
        "`total = jax.jit(lambda x: jnp.sum(x), donate_argnums=0)`. What does `total(x)` do to an"
        " `x` of a million numbers?",
        {"a": "deletes it", "b": "warns, and leaves it alive", "c": "leaves it alive, in silence"},
        "b",
        "The only result is one number, and no result has a use for the million.",
        "6.4",
        donated_to_a_sum,
    ),
    Question(
        "6.c",
        "Plain gradient descent takes params and gradients, and donates the params. How many times"
        " the params does the step keep in memory?",
        {"a": "1", "b": "2: params and gradients", "c": "3: params, gradients, new params"},
        "b",
        "The new params lie where the old ones were; without donation it would be 3.",
        "6.1",
        copies_of_sgd,
    ),
    Question(
        "6.d",
        "`ema = params`, and `step(params, ema)` donates both. What happens?",
        {
            "a": "it runs, and the two are one from then on",
            "b": "the params are deleted, the average lives on",
            "c": "an error, and both are as they were",
        },
        "c",
        "One buffer can't take two results; JAX looks before it runs anything.",
        "6.6",
        one_average_too_many,
    ),
    Question(
        "6.e",
        "`double` donates its argument. What becomes of `x` in"
        " `jax.jit(lambda x: double(x) + 1)(x)`?",
        {"a": "it stays alive", "b": "it is donated, as `double` says"},
        "a",
        "Inside the outer jit there are tracers and no buffers; the outer jit donates nothing.",
        "6.3",
        donated_inside,
    ),
    Question(
        "6.f",
        "`jax.jit(lambda w, rate: w - rate * w, donate_argnums=0)` gets a float16 `w` and"
        " `np.float32(0.1)`. What becomes of the donation?",
        {
            "a": "it happens",
            "b": "a warning says that it can't",
            "c": "nothing, and nobody says so",
        },
        "c",
        "The result is float32 and has no use for a float16 buffer; for these dtypes JAX leaves the"
        " choice to XLA and does not warn.",
        "6.4",
        half_donated,
    ),
    Question(
        "6.g",
        "Which copy of `x` survives the next step, and on every device lets it reuse the buffer?",
        {"a": "`jnp.asarray(x)`", "b": "`np.asarray(x)`", "c": "`jnp.copy(x)`"},
        "c",
        "The first is `x` itself, the second looks into its buffer on a CPU, the third copies.",
        "6.10",
        safe_copy,
    ),
    Question(
        "6.h",
        "A list starts as `[state]`. Nine times: `state = step(state)`, which donates, then"
        " `states.append(state)`. How many of the ten states in the list can be read afterwards?",
        {"a": "10", "b": "1: the last", "c": "0"},
        "b",
        "The nine before it were donated, each to its successor; a list holds names, not numbers.",
        "6.9",
        readable_history,
    ),
]
