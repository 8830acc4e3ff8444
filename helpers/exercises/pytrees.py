"""Chapter 07 · Pytrees: the public cases, probe and judge of each exercise, and the quiz.

Trees with containers of their own can't cross to a learner's process: a case describes one in plain
lists, the probe builds it there, and the judge walks the description. JAX is imported inside probes
only.
"""

import fnmatch
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from helpers import expect
from helpers.exercise import Case, Exercise, Property, Row, error_name
from helpers.quiz import Question
from helpers.tracing import largest_array

Array = npt.NDArray[Any]
Tree = Any
Plan = Sequence[Any]
"""A tree in words: [kind, …] with "dict" and pairs of key and plan, "list", "tuple", "pair" (w, b),
"record" (w, b, static), "plain" (registered without keys) and plans, "none", or
["leaf", shape, dtype]."""

BYTES = {"bfloat16": 2}
"""Bytes of a number, where NumPy alone does not know the dtype."""


# --- trees in words ------------------------------------------------------------------------------


class Pair(NamedTuple):
    """Two leaves with names."""

    w: Any
    b: Any


class Plain:
    """A container that JAX knows, without names for what is in it."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts


class Record:
    """Two leaves with names, and a static label."""

    def __init__(self, w: Any, b: Any, label: str = "dense") -> None:
        self.w, self.b, self.label = w, b, label


@functools.cache
def register() -> None:
    """Makes `Plain` and `Record` known to JAX."""
    import jax

    jax.tree_util.register_pytree_node(Plain, lambda p: (p.parts, None), lambda _, p: Plain(*p))
    jax.tree_util.register_dataclass(Record, data_fields=["w", "b"], meta_fields=["label"])


def build(plan: Plan, leaf: Callable[[Sequence[int], str], Any]) -> Tree:
    """The tree that a plan describes; `leaf(shape, dtype)` makes its leaves. For probes."""
    register()
    kind, *rest = plan
    if kind == "leaf":
        return leaf(*rest)
    if kind == "none":
        return None
    if kind == "dict":
        return {key: build(child, leaf) for key, child in rest[0]}
    parts = [build(child, leaf) for child in rest[0]]
    makers: dict[str, Callable[..., Any]] = {"pair": Pair, "record": Record, "plain": Plain}
    if kind in makers:
        return makers[kind](*parts)
    return tuple(parts) if kind == "tuple" else parts


def walk(plan: Plan, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Plan]]:
    """Path and plan of each leaf, in the order of a pytree: dicts by key."""
    kind, *rest = plan
    if kind == "leaf":
        yield path, plan
    elif kind == "dict":
        for key, child in sorted(rest[0], key=lambda pair: pair[0]):
            yield from walk(child, (*path, str(key)))
    elif kind != "none":
        names = ("w", "b") if kind in ("pair", "record") else map(str, range(len(rest[0])))
        for name, child in zip(names, rest[0], strict=True):
            yield from walk(child, (*path, name))


def leaf(*shape: int, dtype: str = "float32") -> Plan:
    """The plan of one array."""
    return ["leaf", list(shape), dtype]


def dense(kind: str, inputs: int, outputs: int, dtype: str = "float32") -> Plan:
    """The plan of a layer: w (inputs, outputs) and b (outputs,) in a container of that kind."""
    w, b = leaf(inputs, outputs, dtype=dtype), leaf(outputs, dtype=dtype)
    return ["dict", [["w", w], ["b", b]]] if kind == "dict" else [kind, [w, b]]


def alike(a: Tree, b: Tree) -> bool | str:
    """Whether two trees have equal structures, or the error that comparing them raises."""
    import jax

    structures: list[Any] = [jax.tree.structure(a), jax.tree.structure(b)]
    try:
        return bool(structures[0] == structures[1])
    except Exception as error:
        return type(error).__name__


def form(tree: Tree) -> list[str]:
    """Dtype and shape of each leaf, "float32(4, 3)"; the type of one that is no array."""
    import jax

    return [
        f"{x.dtype}{tuple(x.shape)}" if hasattr(x, "dtype") else type(x).__name__
        for x in jax.tree.leaves(tree)
    ]


def paths(tree: Tree) -> list[str]:
    """The path of each leaf, its keys joined by "/"."""
    import jax

    with_path = jax.tree.leaves_with_path(tree)
    return [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in with_path]


def same_items(key: str, seen: Any, want: Sequence[Any], what: str, **why: str) -> Row:
    """A row that compares two lists of texts and shows where they first differ."""
    if not isinstance(seen, list):
        return expect.true(key, False, seen=expect.describe(seen), expected=f"a list of {what}")
    if len(seen) != len(want):
        return expect.true(
            key, False, seen=f"{len(seen)} {what}", expected=f"{len(want)} {what}", **why
        )
    pairs = zip(seen, want, strict=True)
    differ = [(n, got, wanted) for n, (got, wanted) in enumerate(pairs) if got != wanted]
    place, got, wanted = differ[0] if differ else (0, "", "")
    said = f"{str(got)[:60]!r} at place {place}" if differ else ""
    return expect.true(key, not differ, seen=said, expected=repr(wanted), **why)


def same_shape(key: str, seen: Sequence[int], want: Sequence[int], **why: str) -> Row:
    """A row that compares two shapes."""
    shown = [f"shape {tuple(each)}" for each in (seen, want)]
    return expect.true(key, list(seen) == list(want), seen=shown[0], expected=shown[1], **why)


def either(key: str, seen: Any, want: bool, yes: str, no: str, **why: str) -> Row:
    """A row on a yes or no, in the words for both; what is neither is shown as it is."""
    words = {True: yes, False: no}
    said = words[seen] if type(seen) is bool else str(seen)
    return expect.true(key, seen is want, seen=said, expected=words[want], **why)


# --- 7.1 -----------------------------------------------------------------------------------------

REFUSED = ("AttributeError", "FrozenInstanceError", "TypeError")
"""What classes that can't be changed raise on assignment."""

CENTS = 0.5
"""Learning rate of the public steps: large, so that float16 shows."""


class OwnTrainState(Exercise):
    """A state with an average, a key and static numbers."""

    id = "7.1"
    title = "A TrainState"
    answer = ("create_state", "apply_gradients")
    properties = {
        "leaves": Property("has the leaves of params, ema, step and key under their names, in this"
                           " order", 1.5, "7.8"),
        "static": Property("keeps rate and decay in its structure, which compares by value", 1.5,
                           "7.8"),
        "value": Property("takes float64's steps, every leaf in its dtype", 1.5, "7.9"),
        "holds": Property("can be created under `vmap`, and rebuilt around any leaves", 0.75,
                          "7.7"),
        "frozen": Property("can't be assigned to, and is not changed by a step", 0.75, "7.8"),
    }  # fmt: skip
    points = 6
    difficulty = 2
    importance = 3
    minutes = 25

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case("a new state", "form", *training(rng), about=["leaves"])
        yield Case("two states of equal rate and decay, and one of another decay", "static",
                   *training(rng), about=["static"])  # fmt: skip
        yield Case("three steps", "steps", *training(rng), about=["value"])
        yield Case("a vmap, and other leaves", "holds", *training(rng), about=["holds"])
        yield Case("an assignment, and a step", "frozen", *training(rng), about=["frozen"])

    def probe(
        self, create_state: Callable[..., Any], apply_gradients: Callable[..., Any], task: str,
        params: Tree, grads: Sequence[Tree], key_data: Array, rate: float, decay: float,
    ) -> Mapping[str, Any]:  # fmt: skip
        import jax

        from helpers.compiles import TraceCounter

        params = jax.device_put(params)
        key = jax.random.wrap_key_data(jax.device_put(key_data))

        def create(params: Tree, decay: float = decay) -> Any:
            return create_state(params, key, rate=rate, decay=decay)

        state = create(params)
        if task == "form":
            whole = {"paths": paths(state), "form": form(state)}
            return whole | read_state(state, key)
        if task == "static":
            return compared(state, create(params), create(params, decay / 2))
        if task == "steps":
            counter = TraceCounter(apply_gradients)
            step = jax.jit(counter)
            for each in grads:
                state = step(state, each)
            return {"form": form(state), "traces": counter.count} | read_state(state, key)
        if task == "frozen":
            before = [id(leaf) for leaf in jax.tree.leaves(state)]
            jax.eval_shape(lambda grads: apply_gradients(state, grads).params, grads[0])
            after = [id(leaf) for leaf in jax.tree.leaves(state)]
            refused = {
                name: error_name(functools.partial(setattr, state, name, 0))
                for name in ("step", "params", "decay")
            }
            return {"kept": before == after, "leaves": len(before), "refused": refused}
        stacked = jax.tree.map(lambda leaf: np.stack([leaf, leaf]), params)
        many = jax.eval_shape(jax.vmap(create), stacked)
        words = jax.tree.map(lambda leaf: "word", state)
        return {
            "stacked": form(many.params) + form(many.ema),
            "words": sum(leaf == "word" for leaf in jax.tree.leaves((words.params, words.ema))),
            "step": str(words.step),
            "same": alike(words, state),
        }

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        task, params, grads, _, rate, decay = case
        leaves = named(params)
        if task == "form":
            names = [f"params/{n}" for n, _ in leaves] + [f"ema/{n}" for n, _ in leaves]
            yield same_items("leaves", seen["paths"], [*names, "step", "key"], "leaves")
            hint = "The average is float32, whatever the params are; the step is an int32 array."
            yield same_items("leaves", seen["form"], forms(leaves), "leaves", hint=hint)
            yield from self.numbers("leaves", case, seen, steps=0)
        elif task == "static":
            words = "equal structures", "different structures"
            hint = "Both states came from equal numbers."
            yield either("static", seen["equal"], True, *words, hint=hint)
            hint = "The second state has another decay."
            yield either("static", seen["other"], False, *words, hint=hint)
            yield expect.equal("static", seen["traces"], 1, unit="traces for both states")
            yield expect.equal("static", seen["rates"], [rate, decay], unit="inside jit", hint=(
                "`state.rate` and `state.decay` are Python numbers there, not tracers."
            ))  # fmt: skip
        elif task == "steps":
            hint = "Gradients are float32; each parameter keeps its own dtype."
            yield same_items("value", seen["form"], forms(leaves), "leaves", hint=hint)
            yield from self.numbers("value", case, seen, steps=len(grads))
            hint = "A leaf that changes its dtype, or is weakly typed only at first, costs another."
            yield expect.equal("value", seen["traces"], 1, unit="traces in three steps", hint=hint)
        elif task == "frozen":
            yield expect.at_least("frozen", seen["leaves"], 4, unit="leaves")
            words = "the old state as it was", "a step changed the old state"
            yield either("frozen", seen["kept"], True, *words)
            for name, error in seen["refused"].items():
                yield expect.raises("frozen", error, REFUSED, hint=f"That is `state.{name} = 0`.")
        else:
            stacked = [(n, np.stack([leaf, leaf])) for n, leaf in leaves]
            yield same_items("holds", seen["stacked"], forms(stacked)[:-2], "leaves of two states")
            yield expect.equal("holds", seen["words"], 2 * len(leaves), unit="words for leaves")
            yield expect.equal("holds", seen["step"], "word")
            yield either("holds", seen["same"], True, "the same structure", "another structure")

    def numbers(self, key: str, case: Case, seen: Mapping[str, Any], steps: int) -> Iterator[Row]:
        """Rows on params, average, step and key after so many steps."""
        _, params, grads, key_data, rate, decay = case
        want = descent(params, grads[:steps], rate, decay)
        for part, trees, rtol, atol in (
            ("params", want[0], 2e-3, 2e-3),
            ("ema", want[1], 1e-5, 1e-6),
        ):
            for (name, exact), got in zip(trees, seen[part], strict=True):
                hint = f"That is {part}/{name}."
                if part == "ema":
                    hint += " It is an average of the params as they are kept, in float32."
                if (part, name) == ("params", "near"):
                    hint += " The last step cancels it almost: round once, after subtracting."
                    rtol, atol = 3e-3, 0.0
                yield expect.close(key, got, exact, rtol=rtol, atol=atol, hint=hint)
        yield expect.equal(key, int(seen["step"]), steps, unit="steps")
        yield expect.equal(key, seen["key"], key_data, hint="The key stays as it is.")


def training(rng: np.random.Generator, rate: float = CENTS) -> tuple[Any, ...]:
    """Params with float16 leaves, three float32 gradients, a key's data, the rate and a decay.

    The leaf "near" ends at what float16's spacing between 1/2 and 1 can't tell from its neighbours:
    it is lost where the step is rounded before it is subtracted.
    """

    def numbers(*shape: int) -> Array:
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)

    params = {
        "body": {"w": numbers(3, 2)},
        "b": numbers(2).astype(np.float16),
        "near": np.ones(2, np.float16),
    }
    rest = 2.0**-11 * (rng.integers(1, 4, 2) + rng.uniform(0.3, 0.7, 2))
    paths = np.stack([np.zeros(2), np.zeros(2), 1 - rest])
    grads = [
        {"body": {"w": numbers(3, 2)}, "b": numbers(2), "near": (step / rate).astype(np.float32)}
        for step in paths
    ]
    key_data = rng.integers(0, 2**32, 2, dtype=np.uint32)
    return params, grads, key_data, rate, 0.7


def named(tree: Tree, path: tuple[str, ...] = ()) -> list[tuple[str, Array]]:
    """Path and array of each leaf of nested dicts, by key."""
    if not isinstance(tree, Mapping):
        return [("/".join(path), np.asarray(tree))]
    return [each for key in sorted(tree) for each in named(tree[key], (*path, key))]


def forms(leaves: Sequence[tuple[str, Array]]) -> list[str]:
    """What `form` sees of a right state."""
    params = [f"{leaf.dtype}{leaf.shape}" for _, leaf in leaves]
    average = [f"float32{leaf.shape}" for _, leaf in leaves]
    return [*params, *average, "int32()", "key<fry>()"]


def read_state(state: Any, key: Any) -> dict[str, Any]:
    """The numbers in the four parts of a state; the key's data where it is one."""
    import jax

    typed = hasattr(state.key, "dtype") and state.key.dtype == key.dtype
    return {
        "params": [np.asarray(leaf) for leaf in jax.tree.leaves(state.params)],
        "ema": [np.asarray(leaf) for leaf in jax.tree.leaves(state.ema)],
        "step": np.asarray(state.step),
        "key": jax.random.key_data(state.key) if typed else np.asarray(0),
    }


def compared(state: Any, twin: Any, other: Any) -> dict[str, Any]:
    """How the structures of two equal states and a different one compare, and what jit makes."""
    import jax

    from helpers.compiles import TraceCounter

    rates: list[float] = []

    def look(state: Any) -> Any:
        rates[:] = [
            float(each) if isinstance(each, float | np.floating) else math.nan
            for each in (state.rate, state.decay)
        ]
        return state.step

    counter = TraceCounter(look)
    jitted = jax.jit(counter)
    failed = error_name(lambda: (jitted(state), jitted(twin)))
    return {
        "equal": alike(state, twin),
        "other": alike(state, other),
        "traces": failed or counter.count,
        "rates": rates,
    }


def descent(
    params: Tree, grads: Sequence[Tree], rate: float, decay: float
) -> tuple[list[tuple[str, Array]], list[tuple[str, Array]]]:
    """Params and average after the steps, in float64; params are rounded to their dtype."""
    now = {name: leaf.astype(np.float64) for name, leaf in named(params)}
    kinds = {name: leaf.dtype for name, leaf in named(params)}
    average = dict(now)
    for each in grads:
        for name, slope in named(each):
            moved = now[name] - rate * slope.astype(np.float64)
            now[name] = moved.astype(kinds[name]).astype(np.float64)
            average[name] = decay * average[name] + (1 - decay) * now[name]
    return list(now.items()), list(average.items())


# --- 7.2 -----------------------------------------------------------------------------------------


class ParameterTable(Exercise):
    """What is in a model, leaf by leaf and module by module."""

    id = "7.2"
    title = "A parameter table"
    answer = "parameter_table"
    properties = {
        "rows": Property("lists each leaf once, in the tree's order, with shape and dtype", 0.75,
                         "7.10"),
        "paths": Property("names each leaf by its path, whatever the containers", 0.75, "7.10"),
        "bytes": Property("counts bytes exactly, from shapes alone", 1.25, "7.10"),
        "shares": Property("gives each leaf its share, 0 where there are no bytes", 0.5, "7.10"),
        "subtotals": Property("adds up all that lies under each prefix, cut between keys", 1.75,
                              "7.10"),
    }  # fmt: skip
    points = 5
    difficulty = 2
    importance = 2
    minutes = 20

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case("dicts, lists, a NamedTuple and a dataclass", zoo(*rng.integers(2, 9, 3)), "jax")
        yield Case("shapes alone, one of them 70,000 × 70,000", giant(70_000), "shapes",
                   about=["bytes"])  # fmt: skip
        yield Case("keys that begin alike, or hold a slash", alike_keys(), "numpy")
        nothing = ["dict", [["a", leaf(0, 3)], ["b", ["list", [leaf(0)]]]]]
        yield Case("a tree without a byte", nothing, "numpy", about=["shares"])
        yield Case("one array alone", leaf(3, 2), "numpy", about=["paths", "subtotals"])
        empty = ["dict", [["a", ["none"]]]]
        yield Case("a tree without a leaf", empty, "numpy", about=["rows", "subtotals"])

    def probe(
        self, parameter_table: Callable[..., Any], plan: Plan, kind: str
    ) -> Mapping[str, Any]:
        import jax
        import jax.numpy as jnp

        def make(shape: Sequence[int], dtype: str) -> Any:
            if kind == "shapes":
                return jax.ShapeDtypeStruct(tuple(shape), jnp.dtype(dtype))
            array = np.zeros(shape, jnp.dtype(dtype))
            return jax.device_put(array) if kind == "jax" else array

        rows, subtotals = parameter_table(build(plan, make))
        return {
            "path": [row["path"] for row in rows],
            "shape": [list(row["shape"]) for row in rows],
            "dtype": [str(row["dtype"]) for row in rows],
            "bytes": [whole(row["bytes"]) for row in rows],
            "share": [float(row["share"]) for row in rows],
            "prefixes": sorted(str(prefix) for prefix in subtotals),
            "subtotals": {prefix: whole(size) for prefix, size in subtotals.items()},
        }

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        about = case.about or self.properties
        yield from (row for row in self.compared(case, seen) if row.key in about)

    def compared(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        """Rows on all properties."""
        plan, _ = case
        leaves = [(path, shape, dtype) for path, (_, shape, dtype) in walk(plan)]
        shapes = [f"{dtype}{shape}" for _, shape, dtype in leaves]
        found = [f"{d}{s}" for d, s in zip(seen["dtype"], seen["shape"], strict=True)]
        yield same_items("rows", found, shapes, "rows")
        wanted_paths = ["/".join(path) for path, *_ in leaves]
        yield same_items("paths", seen["path"], wanted_paths, "rows")
        sizes = [nbytes(shape, dtype) for _, shape, dtype in leaves]
        yield same_items("bytes", seen["bytes"], sizes, "rows")
        total = sum(sizes)
        shares = np.array([size / total if total else 0.0 for size in sizes])
        yield expect.close("shares", seen["share"], shares, rtol=1e-5, atol=1e-9)
        want: dict[str, int] = {"": 0}
        for (path, *_), size in zip(leaves, sizes, strict=True):
            for length in range(len(path) or 1):
                prefix = "/".join(path[:length])
                want[prefix] = want.get(prefix, 0) + size
        yield same_items("subtotals", seen["prefixes"], sorted(want), "prefixes", hint=(
            "A prefix is the path of a container: the first keys of a leaf's path, from none to"
            " all but the last."
        ))  # fmt: skip
        for prefix, size in want.items():
            hint = f"That is the prefix {prefix!r}."
            got = seen["subtotals"].get(prefix)
            yield expect.equal("subtotals", got, size, unit="bytes", hint=hint)


def whole(number: Any) -> int | float:
    """A count as a Python number; NaN for what is none."""
    value = float(number)
    return int(number) if value == int(value) else value


def nbytes(shape: Sequence[int], dtype: str) -> int:
    """Bytes of an array, in whole numbers of any size."""
    return math.prod(shape) * (BYTES.get(dtype) or np.dtype(dtype).itemsize)


def zoo(a: int, b: int, c: int) -> Plan:
    """The plan of a model in containers of every kind, with a scalar and a None."""
    a, b, c = int(a), int(b), int(c)
    layers = ["list", [dense("pair", a, b, "bfloat16"), ["none"], dense("pair", b, c)]]
    head = ["tuple", [dense("record", c, 2, "float16"), leaf(dtype="int32")]]
    return ["dict", [["layers", layers], ["embed", leaf(c, a, dtype="int8")], ["head", head]]]


def giant(n: int) -> Plan:
    """The plan of an embedding that has more numbers than an int32 can count."""
    return ["dict", [["embed", leaf(n, n)], ["head", dense("dict", 64, 3, "bfloat16")]]]


def alike_keys() -> Plan:
    """The plan of a dict whose keys make a mess of a path that is cut as text."""
    one, two = dense("dict", 2, 3), dense("dict", 4, 5)
    return ["dict", [["conv/1", one], ["conv", ["dict", [["2", two]]]], ["convex", leaf(7)]]]


# --- 7.3 -----------------------------------------------------------------------------------------


class MaskByPath(Exercise):
    """Which leaves an optimizer decays, freezes or hurries, said by name."""

    id = "7.3"
    title = "A mask by path pattern"
    answer = "mask_by_path"
    properties = {
        "first": Property("gives each leaf the value of the first pattern that fits its whole path",
                          1.75, "7.11"),
        "default": Property("gives `default` to all others, and takes False for a value", 1,
                            "7.11"),
        "structure": Property("has the structure of the params, with the values themselves for"
                              " leaves", 1, "7.11"),
        "unmatched": Property("refuses a pattern that fits no path, and only such a one", 1.25,
                              "7.11"),
    }  # fmt: skip
    points = 5
    difficulty = 2
    importance = 3
    minutes = 20

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        rules = [["*/b", False], ["norm*", False], ["*", True]]
        yield Case("biases and norms off, all else on", transformer(), rules, False)
        rules = [["layers/0/*", False], ["*/w", True]]
        yield Case(
            "the exception before the rule", transformer(), rules, True,
            about=["first", "default", "structure"],
        )  # fmt: skip
        rules = [
            ["*/W", "big"],
            ["head/?", "fast"],
            ["layers/?/w", "slow"],
            ["other/norm.1/*", "slow"],
        ]
        yield Case("labels, with `?`", transformer(), rules, "frozen")
        yield Case("no default given", transformer(), [["*/w", True]], None, about=["default"])
        rules = [["*", True], ["*/b", False]]
        yield Case(
            "a pattern in the shade of another", transformer(), rules, False, about=["unmatched"]
        )
        for pattern in ("*/bias", "w", "norm"):
            rules = [["*/w", True], [pattern, False]]
            yield Case(
                f"the pattern {pattern!r}, which fits nothing", transformer(), rules, False,
                about=["unmatched"],
            )  # fmt: skip

    def probe(
        self, mask_by_path: Callable[..., Any], plan: Plan, rules: Sequence[Any], default: Any
    ) -> Mapping[str, Any]:
        import jax
        import jax.numpy as jnp

        params = build(plan, lambda shape, dtype: jax.ShapeDtypeStruct(tuple(shape), dtype))
        found: dict[str, Any] = {}

        def run(params: Tree) -> Any:  # while tracing, as inside a jitted step
            pairs = [(pattern, value) for pattern, value in rules]
            more = () if default is None else (default,)
            try:
                mask = mask_by_path(params, pairs, *more)
            except (ValueError, KeyError, LookupError) as error:
                found["error"], found["text"] = type(error).__name__, str(error)[:500]
                return jnp.zeros(())
            leaves = jax.tree.leaves(mask)
            found["structure"] = alike(mask, params)
            found["values"] = [
                x if type(x) in (bool, str) else f"a {type(x).__name__}" for x in leaves
            ]
            return jnp.zeros(())

        jax.eval_shape(run, params)
        return found

    def told_by(self, case: Case, seen: Mapping[str, Any]) -> Mapping[str, Any]:
        """Everything, of an error's text whether it has the last pattern in it."""
        _, rules, _ = case
        return {**seen, "text": rules[-1][0] in seen.get("text", "")}

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        plan, rules, given = case
        default = False if given is None else given
        leaf_paths = ["/".join(path) for path, _ in walk(plan)]
        fits = {
            pattern: [fnmatch.fnmatchcase(path, pattern) for path in leaf_paths]
            for pattern, _ in rules
        }
        unmatched = [pattern for pattern, hits in fits.items() if not any(hits)]
        error = seen.get("error", "")
        if unmatched:
            yield expect.raises("unmatched", error, "ValueError")
            named_it = repr(unmatched[0]) in seen.get("text", "") or (
                unmatched[0] in seen.get("text", "")
            )
            yield expect.true(
                "unmatched", named_it, seen=seen.get("text", "")[:80],
                expected=f"a message with {unmatched[0]!r} in it",
            )  # fmt: skip
            return
        yield expect.true("unmatched", not error, seen=error, expected="no error")
        about = set(case.about or self.properties) - {"unmatched"}
        if error:
            for key in about:
                yield expect.true(key, False, seen=error, expected="no error")
            return
        words = "the structure of the params", "another structure"
        yield either("structure", seen["structure"], True, *words)
        values = seen["values"]
        if len(values) != len(leaf_paths):
            for key in about - {"structure"}:
                said = f"{len(values)} leaves"
                yield expect.true(key, False, seen=said, expected=f"{len(leaf_paths)} leaves")
            return
        for place, path in enumerate(leaf_paths):
            matching = [value for pattern, value in rules if fits[pattern][place]]
            key = "first" if matching else "default"
            want = matching[0] if matching else default
            got = values[place]
            if type(got) is type(want) or not str(got).startswith("a "):
                yield expect.equal(key, got, want, hint=f"That is {path}.")
            else:
                text = f"{got} at {path}"
                yield expect.true("structure", False, seen=text, expected="the value as given")
                yield expect.true(key, False, seen=text, expected="the value as given")


def transformer() -> Plan:
    """The plan of a model with norms, and names that differ in one character or in case."""
    norm = ["dict", [["scale", leaf(3)]]]
    layer = ["dict", [["w", leaf(3, 3)], ["b", leaf(3)], ["norm", norm]]]
    layers = ["list", [layer, ["none"], dense("record", 3, 3)]]
    other = ["dict", [["norm.1", norm], ["norm-1", norm], ["normal", leaf(3)], ["W", leaf(3)]]]
    return ["dict", [["layers", layers], ["head", dense("pair", 3, 2)], ["norm", norm],
                     ["other", other]]]  # fmt: skip


# --- 7.4 -----------------------------------------------------------------------------------------


class OwnContainer(Exercise):
    """A matrix of low rank that is a container for its two factors."""

    id = "7.4"
    title = "A container of your own, registered with keys"
    answer = "LowRank"
    properties = {
        "value": Property("multiplies as scale · left · right, also in gradients", 1, "7.12"),
        "thin": Property("multiplies factor by factor, and never makes the whole matrix", 1,
                         "7.12"),
        "leaves": Property("has two leaves, `left` and `right`, in this order", 0.5, "7.12"),
        "static": Property("keeps the scale in its structure, and nothing else", 1, "7.8"),
        "holds": Property("is rebuilt around whatever leaves: stacks, slices, words", 1.5, "7.12"),
        "refuses": Property("refuses factors that don't fit, where people call it", 1, "7.12"),
    }  # fmt: skip
    points = 6
    difficulty = 3
    importance = 2
    minutes = 25

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case("a product and its gradient", "value", *factors(rng), about=["value"])
        yield Case("a product at 50,000 × 70,000", "thin", *factors(rng), about=["thin"])
        yield Case("its leaves", "leaves", *factors(rng), about=["leaves"])
        yield Case("its structure", "static", *factors(rng), about=["static"])
        yield Case("a stack, a slice, and words", "holds", *factors(rng), about=["holds"])
        yield Case("factors that don't fit", "refuses", *factors(rng), about=["refuses"])

    def probe(
        self, low_rank: Callable[..., Any], task: str, left: Array, right: Array, x: Array,
        scale: float,
    ) -> Mapping[str, Any]:  # fmt: skip
        import jax

        matrix = low_rank(left, right, scale)
        if task == "value":
            (_, product), slopes = squared_product()(matrix, x)
            column = matrix @ x[:, :1]
            slopes_of = {"left": slopes.left, "right": slopes.right}
            return {"product": product, "column": column, **slopes_of}
        if task == "thin":
            shapes = (LARGE[0], 3), (3, LARGE[1]), (LARGE[1],)
            large = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
            made = largest_array(lambda left, right, x: low_rank(left, right, scale) @ x, *large)
            return {"whole": made >= math.prod(LARGE)}
        if task == "leaves":
            return {"paths": paths(matrix), "form": form(matrix), "shape": list(matrix.shape)}
        if task == "static":
            return compared_matrices(low_rank, left, right, scale)
        if task == "refuses":
            bad = {
                "ranks differ": (left, right[:-1]),
                "left has one axis": (left[0], right),
                "right has three axes": (left, right[:, :, None]),
                "both have three axes": (left[None], right[None]),
            }
            tries = {
                name: error_name(functools.partial(low_rank, *pair)) for name, pair in bad.items()
            }
            return {"tries": tries, "good": error_name(lambda: low_rank(left, right))}
        other = low_rank(2 * left, right - 1, scale)
        stack = jax.tree.map(lambda a, b: np.stack([a, b]), matrix, other)
        words = jax.tree.map(lambda leaf: "word", matrix)
        flat = jax.tree.map(np.ravel, matrix)
        half = jax.tree.unflatten(jax.tree.structure(matrix), [left[:2], right])
        return {
            "products": stacked_products()(stack, x[:, 0]),
            "words": [str(words.left), str(words.right)],
            "flat": [list(flat.left.shape), list(flat.right.shape)],
            "half": list(half.shape),
        }

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        task, left, right, x, scale = case
        left, right, x = (each.astype(np.float64) for each in (left, right, x))
        if task == "value":
            product = scale * left @ (right @ x)
            for name, want in (("product", product), ("column", product[:, :1])):
                hint = f"x is of shape {(len(x), want.shape[1])}."
                yield expect.close("value", seen[name], want, rtol=5e-3, atol=5e-3, hint=hint)
            slopes = {
                "left": 2 * scale * product @ (right @ x).T,
                "right": 2 * scale * left.T @ product @ x.T,
            }
            for name, want in slopes.items():
                hint = f"That is the gradient of {name}."
                yield expect.close("value", seen[name], want, rtol=1e-2, atol=5e-2, hint=hint)
        elif task == "thin":
            words = "an array of 50,000 × 70,000 numbers", "no array larger than a factor"
            yield either("thin", seen["whole"], False, *words)
        elif task == "leaves":
            yield same_items("leaves", seen["paths"], ["left", "right"], "leaves")
            want = [f"float32{left.shape}", f"float32{right.shape}"]
            yield same_items("leaves", seen["form"], want, "leaves")
            shape = [left.shape[0], right.shape[1]]
            yield same_shape("leaves", seen["shape"], shape)
        elif task == "static":
            for name, hint in STRUCTURES.items():
                words = "equal structures", "different structures"
                yield either("static", seen[name], name != "other scale", *words, hint=hint)
            hint = "Inside jit, `matrix.scale` is a Python number."
            yield expect.equal("static", seen["scale"], scale, hint=hint)
        elif task == "refuses":
            yield expect.equal("refuses", seen["good"], "")
            for name, error in seen["tries"].items():
                yield expect.raises("refuses", error, "ValueError", hint=f"That is: {name}.")
        else:
            other = scale * (2 * left) @ ((right - 1) @ x[:, 0])
            want = np.stack([scale * left @ (right @ x[:, 0]), other])
            yield expect.close("holds", seen["products"], want, rtol=5e-3, atol=2e-2)
            yield same_items("holds", seen["words"], ["word", "word"], "leaves")
            sizes = [[left.size], [right.size]]
            for got, size in zip(seen["flat"], sizes, strict=True):
                yield same_shape("holds", got, size, hint="Both factors were made flat.")
            hint = "Two rows of the left factor make a matrix of two rows."
            shape = [2, right.shape[1]]
            yield same_shape("holds", seen["half"], shape, hint=hint)


LARGE = 50_000, 70_000
"""Rows and columns of a matrix that only its factors fit into memory."""

STRUCTURES = {
    "twin": "Two matrices of equal scale have equal structures.",
    "smaller": "The structure does not know sizes: those are the leaves' own.",
    "other scale": "Another scale is another structure.",
    "no scale": "Where none is given, the scale is 1.",
}


def factors(rng: np.random.Generator) -> tuple[Array, Array, Array, float]:
    """left (4, 3), right (3, 5), x (5, 2) and a scale."""
    left, right, x = (
        rng.uniform(-1, 1, shape).astype(np.float32) for shape in ((4, 3), (3, 5), (5, 2))
    )
    return left, right, x, float(rng.integers(2, 5)) / 2


@functools.cache
def squared_product() -> Callable[..., Any]:
    """Jitted: sum of (matrix @ x)², with the product, and the slopes of the matrix."""
    import jax
    import jax.numpy as jnp

    def loss(matrix: Any, x: Any) -> tuple[Any, Any]:
        product = matrix @ x
        return jnp.sum(product**2), product

    return jax.jit(jax.value_and_grad(loss, has_aux=True))


@functools.cache
def stacked_products() -> Callable[..., Any]:
    """Jitted: each matrix of a stack times x."""
    import jax

    return jax.jit(jax.vmap(lambda matrix, x: matrix @ x, in_axes=(0, None)))


def compared_matrices(
    low_rank: Callable[..., Any], left: Array, right: Array, scale: float
) -> dict[str, Any]:
    """How the structures of like and unlike matrices compare, and the scale that a trace sees."""
    import jax
    import jax.numpy as jnp

    inside: list[float] = []

    def look(matrix: Any) -> Any:
        known = isinstance(matrix.scale, int | float | np.floating)
        inside.append(float(matrix.scale) if known else math.nan)
        return jnp.zeros(())

    matrix = low_rank(left, right, scale)
    jax.eval_shape(look, matrix)
    return {
        "twin": alike(matrix, low_rank(left + 1, right, float(str(scale)))),
        "smaller": alike(matrix, low_rank(left[:2], right[:, :2], scale)),
        "other scale": alike(matrix, low_rank(left, right, scale + 1)),
        "no scale": alike(low_rank(left, right), low_rank(left, right, 1.0)),
        "scale": inside[0],
    }


# --- 7.5 -----------------------------------------------------------------------------------------


class TreeToVector(Exercise):
    """The floating numbers of a tree as one vector, and back."""

    id = "7.5"
    title = "Tree to vector and back"
    answer = ("to_vector", "from_vector")
    properties = {
        "vector": Property("puts all floating leaves into one float32 vector, in the tree's order",
                           1.25, "7.13"),
        "back": Property("gives each floating leaf its shape, dtype and numbers back", 1.25,
                         "7.13"),
        "bfloat16": Property("takes bfloat16 for floating, on both ways", 1, "7.13"),
        "others": Property("leaves integers, bools and keys out, and takes them from `like`", 1.25,
                           "7.13"),
        "length": Property("refuses a vector that is too short or too long", 0.75, "7.13"),
        "slopes": Property("can be differentiated", 0.5, "7.13"),
    }  # fmt: skip
    points = 6
    difficulty = 2
    importance = 2
    minutes = 20

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case("floats of two widths, a step and a mask", numbers_of(rng, MIXED), False,
                   about=["vector", "back", "others", "length"])  # fmt: skip
        yield Case("a bfloat16 leaf", numbers_of(rng, ["m", "w"]), False, about=["bfloat16"])
        yield Case("a key", numbers_of(rng, ["key", "w"]), False, about=["others"])
        yield Case("a tree without a float", numbers_of(rng, ["step"]), False, about=["vector"])
        yield Case("a gradient", numbers_of(rng, ["w"]), True, about=["slopes"])

    def probe(
        self, to_vector: Callable[..., Any], from_vector: Callable[..., Any],
        arrays: Mapping[str, Array], slopes: bool,
    ) -> Mapping[str, Any]:  # fmt: skip
        import jax
        import jax.numpy as jnp

        tree = mixed_tree(arrays)
        vector = jax.jit(to_vector)(tree)
        if slopes:
            return {"slope": slope_of(from_vector)(vector, tree)}
        zeroed = {name: np.zeros_like(x) if name in FLOATS else x for name, x in arrays.items()}
        rebuilt = jax.jit(from_vector)(vector, mixed_tree(zeroed))
        size = vector.shape[0]
        return {
            "vector": vector,
            "dtype": str(vector.dtype),
            "form": form(rebuilt),
            "same": alike(rebuilt, tree),
            "leaves": [
                jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key)
                else np.asarray(x).astype(np.float64 if jnp.issubdtype(x.dtype, jnp.floating)
                                          else np.asarray(x).dtype)
                for x in jax.tree.leaves(rebuilt)
            ],
            "refused": {
                str(extra): error_name(functools.partial(
                    jax.eval_shape, from_vector,
                    jax.ShapeDtypeStruct((size + extra,), jnp.float32), tree,
                ))
                for extra in (-1, 1) if size
            },
        }  # fmt: skip

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        arrays, slopes = case
        floats = [arrays[name] for name in FLOATS if name in arrays]
        want = np.concatenate([leaf.astype(np.float64).ravel() for leaf in floats] or [np.zeros(0)])
        if slopes:
            hint = "That is the gradient of Σ v², taken through `from_vector`."
            yield expect.close("slopes", seen["slope"], 2 * want, rtol=1e-2, atol=1e-3, hint=hint)
            return
        about = case.about or self.properties
        yield from (row for row in self.both_ways(arrays, want, seen) if row.key in about)

    def both_ways(
        self, arrays: Mapping[str, Array], want: Array, seen: Mapping[str, Any]
    ) -> Iterator[Row]:
        """Rows on the vector, the tree made of it, and vectors of other lengths."""
        there, back = ("bfloat16", "bfloat16") if "m" in arrays else ("vector", "back")
        yield expect.equal(there, seen["dtype"], "float32")
        yield expect.close(there, seen["vector"], want, rtol=0)
        words = "the structure of `like`", "another structure"
        yield either("others", seen["same"], True, *words)
        expected = sorted_mixed(arrays)
        if len(seen["form"]) != len(expected):
            for key in (back, "others"):
                said = f"{len(seen['form'])} leaves"
                yield expect.true(key, False, seen=said, expected=f"{len(expected)} leaves")
            return
        for place, (name, kind, value) in enumerate(expected):
            key = back if name in FLOATS else "others"
            hint = f"That is the leaf “{name}”."
            yield expect.equal(key, seen["form"][place], kind, hint=hint)
            same = expect.close if name in FLOATS else expect.equal
            yield same(key, seen["leaves"][place], value, hint=hint)
        for extra, error in seen["refused"].items():
            hint = f"That vector is too {'short' if extra == '-1' else 'long'} by one."
            yield expect.raises("length", error, "ValueError", hint=hint)


FLOATS = {"a": "float16", "empty": "float32", "m": "bfloat16", "w": "float32"}
"""The floating leaves of exercise 7.5 in the tree's order, and their dtypes."""

LEAVES = ("a", "step", "empty", "key", "m", "on", "w")
"""All that may be in that tree, in its order."""

MIXED = ("a", "step", "empty", "on", "w")


def numbers_of(rng: np.random.Generator, names: Sequence[str]) -> dict[str, Array]:
    """Arrays of these names: "w" needs all digits of float32, "m" and "a" are exact in bfloat16.

    The key is its data.
    """

    def eighths(*shape: int) -> Array:
        return (rng.integers(-127, 128, shape) / 8).astype(np.float32)

    arrays = {
        "w": eighths(2, 3) + np.float32(2.0**-19),
        "m": eighths(4),
        "a": eighths(),
        "empty": eighths(0, 2),
        "step": np.array(2**24 + 1 + 2 * rng.integers(100), np.int32),
        "on": rng.integers(0, 2, 3).astype(bool),
        "key": rng.integers(0, 2**32, 2, dtype=np.uint32),
    }
    return {name: arrays[name] for name in names}


def mixed_tree(arrays: Mapping[str, Array]) -> Tree:
    """These JAX arrays in a nest of dicts and a list; None in the place of others. For probes."""
    import jax
    import jax.numpy as jnp

    def part(name: str) -> Any:
        if name not in arrays:
            return None
        if name == "key":
            return jax.random.wrap_key_data(jax.device_put(arrays[name]))
        dtype = jnp.dtype(FLOATS.get(name, arrays[name].dtype))
        return jax.device_put(np.asarray(arrays[name], dtype))

    return {
        "a": part("a"),
        "b": [part("step"), None, part("empty")],
        "key": part("key"),
        "layers": {name: part(name) for name in ("m", "on", "w")},
    }


def sorted_mixed(arrays: Mapping[str, Array]) -> list[tuple[str, str, Array]]:
    """Name, form and numbers of each leaf of `mixed_tree`, in its order."""

    def kind(name: str, array: Array) -> str:
        return "key<fry>()" if name == "key" else f"{FLOATS.get(name, array.dtype)}{array.shape}"

    there = [(name, np.asarray(arrays[name])) for name in LEAVES if name in arrays]
    return [(name, kind(name, array), array) for name, array in there]


@functools.cache
def slope_of(from_vector: Callable[..., Any]) -> Callable[..., Any]:
    """Jitted: the gradient of the sum of squares of all floating leaves, taken at a vector."""
    import jax
    import jax.numpy as jnp

    def squares(vector: Any, like: Tree) -> Any:
        leaves = [
            leaf.astype(jnp.float32)
            for leaf in jax.tree.leaves(from_vector(vector, like))
            if jnp.issubdtype(leaf.dtype, jnp.floating)
        ]
        return sum((jnp.sum(leaf**2) for leaf in leaves), jnp.zeros(()))

    return jax.jit(jax.grad(squares))


EXERCISES = [OwnTrainState, ParameterTable, MaskByPath, OwnContainer, TreeToVector]


# --- the quiz ------------------------------------------------------------------------------------


def leaves_with_none() -> str:
    """7.a, measured."""
    import jax

    return {2: "a", 3: "b"}.get(len(jax.tree.leaves([1, None, 1])), "?")


def zeros_of_shapes() -> str:
    """7.b, measured."""
    import jax

    found = jax.tree.map(np.zeros, {"w": (3, 4)})["w"]
    if isinstance(found, np.ndarray):
        return "a"
    return "b" if [part.shape for part in found] == [(3,), (4,)] else "?"


def order_of_layers() -> str:
    """7.c, measured."""
    import jax

    found = jax.tree.leaves({"layer9": 9, "layer10": 10, "layer1": 1})
    return {(9, 10, 1): "a", (1, 9, 10): "b", (1, 10, 9): "c"}.get(tuple(found), "?")


def leaves_of_a_stranger() -> str:
    """7.d, measured."""
    from dataclasses import make_dataclass

    import jax

    layer = make_dataclass("Layer", ["w", "b"])(1.0, 2.0)
    found = jax.tree.leaves(layer)
    return "b" if found == [layer] else "a" if found == [1.0, 2.0] else "?"


def programs_for_static() -> str:
    """7.e, measured."""
    from dataclasses import field, make_dataclass

    import jax

    from helpers.compiles import CompileCounter

    static = field(metadata={"static": True})
    fields: list[Any] = [("w", Any), ("epoch", int, static)]
    cls = jax.tree_util.register_dataclass(make_dataclass("State", fields))

    def weight(state: Any) -> Any:
        return state.w

    jitted = jax.jit(weight)
    with CompileCounter(only="weight") as counter:
        for epoch in range(5):
            jitted(cls(np.ones(2, np.float32), epoch))
    return {1: "a", 2: "b", 5: "c"}.get(counter.count, "?")


def none_in_the_second() -> str:
    """7.f, measured."""
    import jax

    try:
        found = jax.tree.map(lambda x, y: y, {"a": 1, "b": 2}, {"a": 1, "b": None})
    except ValueError:
        return "a"
    return "b" if found == {"a": 1, "b": None} else "?"


def checks_when_rebuilt() -> str:
    """7.g, measured."""
    from dataclasses import make_dataclass

    import jax

    def look(self: Any) -> None:
        if np.ndim(self.w) != 2:
            raise ValueError("w needs two axes")

    cls = make_dataclass("Layer", ["w"], namespace={"__post_init__": look})
    layer = jax.tree_util.register_dataclass(cls)(np.ones((2, 2)))
    try:
        jax.tree.map(np.sum, layer)
    except ValueError:
        return "b"
    return "a"


def ravelled_step() -> str:
    """7.h, measured."""
    import jax
    from jax.flatten_util import ravel_pytree

    tree = {
        "w": jax.device_put(np.ones(2, np.float32)),
        "step": jax.device_put(np.int32(2**24 + 1)),
    }
    vector, back = ravel_pytree(tree)
    step = int(back(vector)["step"])
    return {2**24 + 1: "a", 2**24: "b"}.get(step, "?")


QUIZ = [
    Question(
        "7.a",
        "How many leaves has `[1, None, 1]`?",
        {"a": "2", "b": "3"},
        "a",
        "`None` is a container with nothing in it: part of the structure, and no leaf.",
        "7.4",
        leaves_with_none,
    ),
    Question(
        "7.b",
        'What is `jax.tree.map(np.zeros, {"w": (3, 4)})["w"]`?',
        {"a": "an array of shape (3, 4)", "b": "a tuple of two vectors"},
        "b",
        "A tuple is a container; its leaves 3 and 4 are mapped one by one.",
        "7.4",
        zeros_of_shapes,
    ),
    Question(
        "7.c",
        "A dict was filled with `layer9`, `layer10`, `layer1`. In which order come its leaves?",
        {"a": "9, 10, 1", "b": "1, 9, 10", "c": "1, 10, 9"},
        "c",
        "Dicts are flattened by sorted keys, and texts sort by characters.",
        "7.6",
        order_of_layers,
    ),
    Question(
        "7.d",
        "`Layer` is a plain dataclass with fields w and b. What is `jax.tree.leaves(layer)`?",
        {"a": "w and b", "b": "the layer itself", "c": "an error"},
        "b",
        "Whatever JAX does not know as a container is a leaf; the error comes later, elsewhere.",
        "7.7",
        leaves_of_a_stranger,
    ),
    Question(
        "7.e",
        "A static field counts epochs. How often does a jitted step compile in five of them?",
        {"a": "once", "b": "twice", "c": "five times"},
        "c",
        "Static fields are structure, and structure is in the cache key.",
        "7.8",
        programs_for_static,
    ),
    Question(
        "7.f",
        '`jax.tree.map(lambda x, y: y, {"a": 1, "b": 2}, {"a": 1, "b": None})` gives',
        {"a": "an error", "b": '`{"a": 1, "b": None}`'},
        "b",
        "The first tree says where the leaves are; what others have there is handed over whole.",
        "7.5",
        none_in_the_second,
    ),
    Question(
        "7.g",
        "A registered dataclass refuses, in `__post_init__`, a w that hasn't two axes. What does"
        " `jax.tree.map(np.sum, layer)` do?",
        {"a": "gives a layer of sums", "b": "raises the dataclass's own error"},
        "b",
        "JAX rebuilds it by calling the class, so the check runs on whatever the leaves are now.",
        "7.12",
        checks_when_rebuilt,
    ),
    Question(
        "7.h",
        '`vector, back = ravel_pytree({"w": floats, "step": 16777217})`. What is'
        ' `back(vector)["step"]`?',
        {"a": "16777217", "b": "16777216"},
        "b",
        "One vector has one dtype, and float32 has 24 bits for an integer.",
        "7.13",
        ravelled_step,
    ),
]
