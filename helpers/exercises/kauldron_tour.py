"""Chapter 08 · Kauldron: the public cases, probe and judge of each exercise, and the quiz.

Kauldron and JAX are imported inside probes only, and of Kauldron no more than `konfig`, `kontext`,
`metrics` and `losses`: these come without TensorFlow, start no thread and no backend.
"""

import copy
import functools
import json
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from helpers import expect
from helpers.exercise import Case, Exercise, Property, Row, error_name, is_stub
from helpers.quiz import Question

PRELOADED = (
    "optax",
    *(f"kauldron.{name}" for name in ("konfig", "kontext", "ktyping", "metrics", "losses")),
)
"""What a grader imports once for all learners; nothing of it starts a thread."""

Array = npt.NDArray[Any]
Nest = Any
"""Dicts and lists of plain values."""


# --- 8.1 -----------------------------------------------------------------------------------------


class FollowingConfig(Exercise):
    """A config in which three numbers decide a schedule, whenever they are changed."""

    id = "8.1"
    title = "A config whose schedule follows its step count"
    answer = "training_config"
    properties = {
        "built": Property("describes the schedule and the optimizer as it stands", 1, "8.2"),
        "follows": Property("follows each of the three numbers when it is changed", 1.5, "8.3"),
        "optimizer": Property("has an optimizer that uses this very schedule", 1, "8.3"),
        "fresh": Property("is a config of its own for each caller", 0.5, "8.3"),
    }
    points = 4
    difficulty = 1
    importance = 3
    minutes = 15

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        about = ["built", "optimizer"]
        yield Case("as it stands", [], check_steps(100, 0.1), False, about=about)
        edits = [["num_train_steps", 60], ["peak", 0.25], ["warmup", 0.3]]
        about = ["follows", "optimizer", "fresh"]
        yield Case("all three changed", edits, check_steps(60, 0.3), False, about=about)
        edits = [["num_train_steps", 130], ["warmup", 0.29]]
        about = ["follows", "optimizer"]
        yield Case(
            "two changed, then to JSON and back", edits, check_steps(130, 0.29), True, about=about
        )
        edits = [["schedule", {"__qualname__": "optax:constant_schedule", "value": 0.125}]]
        steps = check_steps(100, 0.1)
        yield Case("another schedule in its place", edits, steps, False, about=["optimizer"])

    def probe(
        self, training_config: Callable[[], Any], edits: Sequence[Sequence[Any]], steps: Array,
        through_json: bool,
    ) -> Mapping[str, Any]:  # fmt: skip
        import jax
        import jax.numpy as jnp
        from kauldron import konfig

        cfg, other = training_config(), training_config()
        before = json.dumps(numbers_of(other))
        for name, value in edits:
            cfg[name] = value
        seen = {"numbers": numbers_of(cfg), "other kept": json.dumps(numbers_of(other)) == before}
        if through_json:
            cfg = konfig.ConfigDict(json.loads(cfg.to_json()))
        schedule, optimizer = konfig.resolve(cfg.schedule), konfig.resolve(cfg.optimizer)

        @jax.jit
        def measured(counts: Any) -> Any:
            state = optimizer.init(jnp.float32(0))

            def rate(count: Any) -> Any:
                now = jax.tree.map(lambda x: count if x.dtype == count.dtype else x, state)
                return -optimizer.update(jnp.float32(1), now, jnp.float32(0))[0]

            return jax.vmap(schedule)(counts), jax.vmap(rate)(counts)

        seen["schedule"], seen["rate"] = measured(jnp.asarray(steps, jnp.int32))
        return seen

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        edits, steps, _ = case
        about = case.about or ()
        hint = f"Rates at the steps {', '.join(str(int(step)) for step in steps)}."
        near: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-6}
        if about[0] != "optimizer":
            want: dict[str, Any] = {"num_train_steps": 100, "peak": 0.1, "warmup": 0.1}
            want |= dict(edits)
            for name, value in want.items():
                said = f"That is cfg.{name}."
                yield expect.close(about[0], seen["numbers"][name], value, rtol=1e-6, hint=said)
            exact = warmup_cosine(steps, **want)
            yield expect.close(about[0], seen["schedule"], exact, **near, hint=hint)
        hint = f"{hint} Those of the config's own schedule are expected."
        yield expect.close("optimizer", seen["rate"], seen["schedule"], **near, hint=hint)
        if "fresh" in about:
            yield expect.true(
                "fresh",
                seen["other kept"],
                seen="an edit that shows in the config of another call",
                expected="two configs that share nothing",
            )


def numbers_of(cfg: Any) -> dict[str, float]:
    """The three numbers of a config of exercise 8.1."""
    return {name: float(cfg[name]) for name in ("num_train_steps", "peak", "warmup")}


def check_steps(total: int, warmup: float) -> Array:
    """Nine steps that tell schedules apart: in the warm-up, at its end, beyond, and at the end."""
    up = round(total * warmup)
    return np.array([0, 1, up - 1, up, up + 1, (up + total) // 2, total - 1, total, total + 9])


def warmup_cosine(steps: Array, num_train_steps: int, peak: float, warmup: float) -> Array:
    """The schedule of exercise 8.1 in float64."""
    up = round(num_train_steps * warmup)
    done = np.clip((steps - up) / (num_train_steps - up), 0, 1)
    down = peak * 0.5 * (1 + np.cos(np.pi * done))
    return np.where(steps < up, peak * steps / up, down)


# --- 8.2 -----------------------------------------------------------------------------------------


class Focal(Exercise):
    """A loss for Kauldron that is finite, with its gradient, at any logit."""

    id = "8.2"
    title = "A loss"
    answer = "FocalLoss"
    properties = {
        "value": Property("equals float64 in every element, also where a logit is ±200", 2, "8.6"),
        "slope": Property("has the right, finite gradient, whatever gamma is", 1.5, "8.6"),
        "convention": Property("leaves mask, mean and weight to its base class", 1, "8.6"),
        "shapes": Property("refuses labels of another shape than the logits", 0.5, "8.5"),
    }
    points = 5
    difficulty = 2
    importance = 2
    minutes = 20

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case("ordinary logits, gamma as it stands", *scored(rng, 3.0), None)
        for gamma in (0.0, 0.5):
            about = ["value", "slope"]
            yield Case(f"far out logits, gamma {gamma}", *scored(rng, 200.0), gamma, about=about)

    def probe(
        self, FocalLoss: Any, z: Array, labels: Array, mask: Array, gamma: float | None
    ) -> Mapping[str, Any]:
        import jax
        import jax.numpy as jnp

        keys = {"logits": "preds.score", "labels": "batch.label", "mask": "batch.mask"}
        loss = FocalLoss(**keys, weight=2.0, **({} if gamma is None else {"gamma": gamma}))

        @jax.jit
        def measured(z: Any, labels: Any, mask: Any) -> Any:
            def summed(z: Any) -> Any:
                values = loss.get_values(logits=z, labels=labels)
                return jnp.sum(values), values

            slopes, values = jax.grad(summed, has_aux=True)(z)
            batch = {"label": labels, "mask": mask}
            try:
                whole = {"step": 0, "preds": {"score": z}, "batch": batch}
                total = loss(context=whole) if gamma is None else None
            except ValueError:  # the base class can't apply the mask to such values
                total = jnp.float32(np.nan)
            return values, slopes, total

        def misfit() -> None:
            jax.eval_shape(lambda a, b: loss.get_values(logits=a, labels=b), z, labels[:, :1])

        values, slopes, total = measured(z, labels, mask)
        refused = error_name(misfit) if gamma is None else ""
        return {"values": values, "slopes": slopes, "total": total, "refused": refused}

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        z, labels, mask, gamma = case
        values, slopes = focal(z, labels, 2.0 if gamma is None else gamma)
        values, slopes = values.astype(np.float32), slopes.astype(np.float32)  # no 1e-87 is said
        hint = "One value for each logit, before any mean."
        yield expect.close("value", seen["values"], values, rtol=1e-3, atol=1e-6, hint=hint)
        yield expect.close("slope", seen["slopes"], slopes, rtol=1e-3, atol=1e-6)
        if gamma is not None:
            return
        total = 2.0 * np.sum(values * mask) / np.sum(mask)
        hint = "That is the mean over what the mask selects, times a weight of 2."
        yield expect.close("convention", seen["total"], total, rtol=1e-3, atol=1e-6, hint=hint)
        yield expect.true(
            "shapes",
            seen["refused"] != "",
            seen="no error for logits (4, 3) with labels (4, 1)",
            expected="an error that names the shapes",
        )

    def told_by(self, case: Case, seen: Mapping[str, Any]) -> Mapping[str, Any]:
        """Everything, of a refusal whether there was one."""
        return {**seen, "refused": seen["refused"] != ""}


def scored(rng: np.random.Generator, size: float) -> tuple[Array, Array, Array]:
    """Logits up to ±size, labels and a mask, all of shape (4, 3); both ends with both labels."""
    z = rng.uniform(-size, size, (4, 3))
    labels = rng.integers(0, 2, (4, 3))
    z[0], labels[0] = (size, -size, size), (0, 1, 1)
    z[1, 0], labels[1, 0] = -size, 0
    mask = np.ones((4, 3), np.float32)
    mask[rng.integers(4), rng.integers(3)] = 0
    return z.astype(np.float32), labels.astype(np.int32), mask


def focal(z: Array, labels: Array, gamma: float) -> tuple[Array, Array]:
    """Values and slopes of the focal loss in float64."""
    sign = np.where(labels == 1, 1.0, -1.0)
    u = sign * z.astype(np.float64)
    surprise, doubt = np.logaddexp(0, -u), np.exp(-np.logaddexp(0, u))
    values = doubt**gamma * surprise
    return values, sign * doubt**gamma * (-gamma * (1 - doubt) * surprise - doubt)


# --- 8.3 -----------------------------------------------------------------------------------------


class MergedSpread(Exercise):
    """A standard deviation from states that merge in any order and any split."""

    id = "8.3"
    title = "A metric whose states merge in any order and split"
    answer = "Spread"
    properties = {
        "value": Property("gives float64's deviation of one batch, whatever is masked", 1, "8.7"),
        "merged": Property("gives that of all batches, in any order and any grouping", 2, "8.7"),
        "offset": Property("keeps its precision where the values are far from zero", 1, "8.7"),
        "empty": Property("has an empty state that changes nothing", 1, "8.7"),
        "size": Property("keeps a state of at most eight numbers", 1, "8.7"),
    }
    points = 6
    difficulty = 3
    importance = 3
    minutes = 30

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        near = ["value", "merged", "empty", "size"]
        values = rng.uniform(-1, 1, (4, 8)) * np.array([[1], [3], [0.5], [2]])
        values += np.array([[0], [2], [-1], [1]])
        yield Case("four batches, no mask", values.astype(np.float32), None, about=near)
        mask = np.zeros((4, 8), np.float32)
        for row, chosen in enumerate((3, 8, 0, 1)):
            mask[row, :chosen] = 1
        rubbish = np.where(mask > 0, values, np.nan)
        yield Case(
            "unequal batches, NaN where masked", rubbish.astype(np.float32), mask, about=near
        )
        far = 1e4 + rng.uniform(-1, 1, (4, 8))
        yield Case("values near 10,000", far.astype(np.float32), None, about=["offset", "merged"])

    def probe(self, Spread: Any, values: Array, mask: Array | None) -> Mapping[str, Any]:
        import jax

        keys = {"values": "batch.v"} if mask is None else {"values": "batch.v", "mask": "batch.m"}
        metric = Spread(**keys)
        of_batch = jax.jit(metric.get_state_from_context)
        masks = [None] * len(values) if mask is None else list(mask)
        states = [
            of_batch({"batch": {"v": v} if m is None else {"v": v, "m": m}})
            for v, m in zip(values, masks, strict=True)
        ]
        merged = {name: merge(states) for name, merge in MERGES.items()}
        nothing = metric.empty()
        around = nothing.merge(metric.empty()).merge(merged["in order"]).merge(metric.empty())
        return {
            "one": number_in(states[0]),
            "merged": {name: number_in(state) for name, state in merged.items()},
            "around": number_in(around),
            "of nothing": number_in(nothing.merge(metric.empty())),
            "size": sum(np.size(leaf) for leaf in jax.tree.leaves(merged["in order"])),
        }

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        values, mask = case
        chosen = np.ones(values.shape, bool) if mask is None else mask > 0
        exact = values.astype(np.float64)
        everything = np.std(exact[chosen])
        about = case.about or ()
        if "value" in about:
            yield expect.close("value", seen["one"], np.std(exact[0][chosen[0]]), rtol=1e-3)
        for name, got in seen["merged"].items():
            hint = f"Merged {name}."
            rtol = 1e-2 if "offset" in about else 1e-3
            for key in ("merged", "offset"):
                if key in about:
                    yield expect.close(key, got, everything, rtol=rtol, hint=hint)
        if "empty" in about:
            hint = "That is with empty states merged before and behind."
            yield expect.close("empty", seen["around"], everything, rtol=1e-3, hint=hint)
            hint = "That is the deviation of nothing at all."
            yield expect.close("empty", seen["of nothing"], 0.0, hint=hint)
        if "size" in about:
            yield expect.at_most("size", seen["size"], 8, unit="numbers in the state")

    def told_by(self, case: Case, seen: Mapping[str, Any]) -> Mapping[str, Any]:
        """Everything, of the state's size whether it is too large."""
        return {**seen, "size": seen["size"] > 8}


def number_in(state: Any) -> float:
    """What a state comes to; NaN where that raises an error."""
    try:
        return float(state.finalize().compute())
    except (ArithmeticError, TypeError, ValueError):
        return float("nan")


def in_order(states: Sequence[Any]) -> Any:
    """The states merged from left to right."""
    return functools.reduce(lambda a, b: a.merge(b), states)


MERGES: dict[str, Callable[[Sequence[Any]], Any]] = {
    "in order": in_order,
    "from the last to the first": lambda states: in_order(states[::-1]),
    "in pairs": lambda states: in_order(states[:2]).merge(in_order(states[2:])),
    "the first into the rest": lambda states: states[0].merge(in_order(states[1:])),
}
"""Orders and groupings that must not matter."""


# --- 8.4 -----------------------------------------------------------------------------------------


class KeyPath(Exercise):
    """A resolver of key paths whose error says what there was."""

    id = "8.4"
    title = "A key-path resolver"
    answer = "lookup"
    properties = {
        "value": Property("finds what is there: keys, attributes and places", 1.5, "8.8"),
        "shadow": Property("prefers a key to a method of the same name", 1, "8.8"),
        "error": Property("raises KeyError for what is not there, and for nothing else", 1, "8.8"),
        "message": Property("names the path, the missing part, and all that was there", 1.5, "8.8"),
        "syntax": Property("raises ValueError for what is no path, and runs none of it", 1, "8.8"),
    }
    points = 6
    difficulty = 2
    importance = 2
    minutes = 30

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        context, (first, last), fields = sample_context(rng)
        batch, aux = context["batch"], context["aux"]
        there = {
            "step": context["step"],
            "batch.image[1]": batch["image"][1],
            "params.layers[-1].kernel": last["kernel"],
            "params['head.bias']": fields["head.bias"],
            'params.layers[0]["bias"]': first["bias"],
            "params.scale": fields["scale"],
            "batch.mask[0][1]": batch["mask"][0][1],
            "aux.nothing": None,
        }
        yield Expecting("what is there", context, there, about=["value"])
        shadows = {
            "batch.items": batch["items"],
            "values": context["values"],
            "params.layers[0].keys": first["keys"],
            "aux.get": aux["get"],
        }
        yield Expecting("keys that are also methods", context, shadows, about=["shadow"])
        missing = {
            "batch.imag": ("imag", *batch),
            "params.layers[2]": ("2", "2"),
            "aux.best.loss": ("loss", "step", "score"),
            "step.value": ("value",),
            "name[0]": ("0",),
            "batch.pop": ("pop", *batch),
        }
        yield Expecting("what is not there", context, missing, about=["error", "message"])
        broken = ["", "batch..image", "batch.", "params[", "params[layers]", "batch image"]
        broken += ["params.layers[1 - 1]", "params.layers[int(0)]"]
        yield Expecting("what is no path", context, dict.fromkeys(broken), about=["syntax"])

    def probe(
        self, lookup: Callable[..., Any], context: Nest, paths: Sequence[str]
    ) -> Mapping[str, Any]:
        context = living(context)
        found, errors, messages = [], [], []
        for path in paths:
            value, error, message = "no value", "", ""
            try:
                value = seen_as(lookup(context, path))
            except Exception as problem:
                if is_stub(problem):
                    raise
                error, message = kind(problem), text_of(problem)
            found.append(value)
            errors.append(error)
            messages.append(message)
        return {"found": found, "errors": errors, "messages": messages}

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        assert isinstance(case, Expecting)
        key = (case.about or ("value",))[0]
        observed = [seen[name] for name in ("found", "errors", "messages")]
        for (path, want), found, error, message in zip(case.want.items(), *observed, strict=True):
            hint = f"The path is {path!r}."
            if key in ("value", "shadow"):
                yield expect.equal(key, error, "", hint=hint)
                yield expect.equal(key, found, seen_as(want), hint=hint)
            elif key == "syntax":
                yield expect.raises(key, error, "ValueError", hint=hint)
            else:
                yield expect.raises("error", error, "KeyError", hint=hint)
                yield from holds("message", message, [path, *want], hint)

    def told_by(self, case: Case, seen: Mapping[str, Any]) -> Mapping[str, Any]:
        """Everything, of each message which of the words it has that are asked for."""
        assert isinstance(case, Expecting)
        asked = case.want.items() if "message" in (case.about or ()) else ()
        words = [[path, *words] for path, words in asked]
        return {**seen, "messages": words_in(seen["messages"], words)}


class Expecting(Case):
    """A case whose expectations stay with the judge: the probe is given their keys alone."""

    def __init__(
        self, name: str, about_what: Nest, want: Mapping[str, Any], about: Sequence[str]
    ) -> None:
        super().__init__(name, about_what, list(want), about=about)
        self.want = want


def kind(error: Exception) -> str:
    """The class of an error: the one that a task asks for, where it is a subclass of that."""
    asked = (cls.__name__ for cls in (KeyError, TypeError, ValueError) if isinstance(error, cls))
    return next(asked, type(error).__name__)


def text_of(error: Exception) -> str:
    """The message of a KeyError; that of any other is nobody's promise."""
    return " ".join(map(str, error.args))[:1000] if isinstance(error, KeyError) else ""


def words_in(messages: Sequence[str], asked: Sequence[Sequence[str]]) -> list[list[bool]]:
    """For each message, which of the words asked for are in it; nothing if none are asked for."""
    pairs = zip(messages, asked, strict=False)
    return [[word in message for word in words] for message, words in pairs]


def holds(key: str, message: str, words: Sequence[str], hint: str) -> Iterator[Row]:
    """Rows that say whether a message has all the words."""
    seen = f"the message {message[:120]!r}" if message else "no message"
    for word in words:
        yield expect.true(key, word in message, seen=seen, expected=f"{word!r} in it", hint=hint)


def sample_context(rng: np.random.Generator) -> tuple[Any, Any, Any]:
    """A context of exercise 8.4, its two layers, and the fields of its params.

    {"<object>": fields} stands for an object with these fields.
    """

    def number() -> int:
        return int(rng.integers(100, 1000))

    layers = [
        {"kernel": rng.integers(0, 99, (2, 2)), "bias": number(), "keys": number()},
        {"kernel": rng.integers(0, 99, (2, 2)), "bias": 0},
    ]
    fields = {"layers": layers, "head.bias": number(), "scale": 0}
    batch = {
        "image": rng.integers(0, 99, (3, 2)),
        "items": rng.integers(0, 99, 3),
        "mask": [[False, True]],
    }
    best = {"<object>": {"step": number(), "score": None}}
    aux = {"best": best, "get": number(), "nothing": None}
    context = {"step": number(), "values": number(), "batch": batch, "aux": aux, "name": "spiral"}
    return context | {"params": {"<object>": fields}}, layers, fields


def living(tree: Nest) -> Nest:
    """The nest with a real object for each {"<object>": fields}."""
    if isinstance(tree, Mapping):
        if list(tree) == ["<object>"]:
            return Fields(**{name: living(each) for name, each in tree["<object>"].items()})
        return {name: living(each) for name, each in tree.items()}
    if isinstance(tree, list):
        return [living(each) for each in tree]
    return tree


class Fields(types.SimpleNamespace):
    """An object with attributes, as a batch or a set of parameters may be."""


def seen_as(value: Any) -> Any:
    """What was found as plain data; the type's name of anything else."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    plain = value is None or isinstance(value, bool | int | float | str | list | tuple)
    return value if plain else f"a {type(value).__name__}"


# --- 8.5 -----------------------------------------------------------------------------------------


class Overrides(Exercise):
    """Command-line overrides of a config, with its types kept."""

    id = "8.5"
    title = "Overrides from `a.b=3` strings"
    answer = "override"
    properties = {
        "value": Property("sets what it is told to, and nothing else", 1.5, "8.10"),
        "types": Property("keeps the type of each field, or refuses with TypeError", 1.5, "8.10"),
        "unknown": Property("refuses with KeyError what is not there, and says what is", 1, "8.10"),
        "apart": Property("leaves the config that it was given alone", 1, "8.10"),
    }
    points = 5
    difficulty = 2
    importance = 3
    minutes = 25

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        width, cfg = int(rng.integers(33, 99)), sample_cfg(rng)
        tries: dict[str, Any] = {
            f"model.width={width}": [(("model", "width"), width)],
            "optimizer.peak=0.25, name=b, optimizer.peak=0.5": [
                (("optimizer", "peak"), 0.5),
                (("name",), "b"),
            ],
            "layers[1].width=7, layers[-1].act=relu": [
                (("layers", 1, "width"), 7),
                (("layers", 1, "act"), "relu"),
            ],
            "name=a=b, optimizer.clip=1.5": [(("name",), "a=b"), (("optimizer", "clip"), 1.5)],
            "model.sizes=[3,4]": [(("model", "sizes"), [3, 4])],
        }
        yield Expecting("what is there", cfg, tries, about=["value", "apart"])
        refused = ["model.width=2.5", "model.width=True", "model.bias=1", "model.width=wide"]
        tries = {
            "optimizer.peak=1": [(("optimizer", "peak"), 1.0)],
            "model.bias=False": [(("model", "bias"), False)],
            "name=12": [(("name",), "12")],
            "optimizer.clip=max(3,4)": [(("optimizer", "clip"), "max(3,4)")],
            "optimizer.clip=he normal": [(("optimizer", "clip"), "he normal")],
        }
        tries |= dict.fromkeys([*refused, "model=3", "model.sizes=[1]*2"], "TypeError")
        yield Expecting("types", cfg, tries, about=["types"])
        tries = {
            "model.widht=3": ("model.widht", *cfg["model"]),
            "optimizer.peak.value=1": ("optimizer.peak.value",),
            "layers[2].width=3": ("layers[2].width",),
            "nam=b": ("nam", *cfg),
            "model.width=5, model.hidden=1": ("model.hidden", *cfg["model"]),
        }
        yield Expecting("typing errors", cfg, tries, about=["unknown", "apart"])

    def probe(
        self, override: Callable[..., Any], cfg: Nest, tries: Sequence[str]
    ) -> Mapping[str, Any]:
        results, errors, messages, kept = [], [], [], []
        for assignments in tries:
            given = copy.deepcopy(cfg)
            result, error, message = "no config", "", ""
            try:
                result = said(override(given, assignments.split(", ")))
            except Exception as problem:
                if is_stub(problem):
                    raise
                error, message = kind(problem), text_of(problem)
            results.append(result)
            errors.append(error)
            messages.append(message)
            kept.append(said(given) == said(cfg))
        return {"results": results, "errors": errors, "messages": messages, "kept": kept}

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        assert isinstance(case, Expecting)
        cfg, _ = case
        about = case.about or ()
        key = about[0]
        observed = [seen[name] for name in ("results", "errors", "messages", "kept")]
        for (text, want), result, error, message, kept in zip(
            case.want.items(), *observed, strict=True
        ):
            hint = f"The assignments are {text!r}."
            if key == "unknown":
                yield expect.raises(key, error, "KeyError", hint=hint)
                yield from holds(key, message, want, hint)
            elif isinstance(want, str):
                yield expect.raises(key, error, want, hint=hint)
            else:
                yield expect.equal(key, error, "", hint=hint)
                yield same_config(key, result, changed(cfg, want), hint)
            if "apart" in about:
                saw = "a config that was changed in place"
                yield expect.true("apart", kept, seen=saw, expected="a new config", hint=hint)

    def told_by(self, case: Case, seen: Mapping[str, Any]) -> Mapping[str, Any]:
        """Everything, of each message which of the words it has that are asked for."""
        assert isinstance(case, Expecting)
        asked = [*case.want.values()] if "unknown" in (case.about or ()) else []
        return {**seen, "messages": words_in(seen["messages"], asked)}


def same_config(key: str, result: str, want: Nest, hint: str) -> Row:
    """A row that names the first field in which a config, as text, is not the wanted one."""
    try:
        got, wanted = fields_of(json.loads(result)), fields_of(want)
    except ValueError:
        got, wanted = {"the config": result}, {"the config": "a dict"}
    differ = [path for path in {**wanted, **got} if got.get(path) != wanted.get(path)]
    path = differ[0] if differ else ""
    seen, expected = (f"{path} is {each.get(path, 'missing')}" for each in (got, wanted))
    return expect.true(key, not differ, seen=seen, expected=expected, hint=hint)


def fields_of(cfg: Nest, path: str = "") -> dict[str, str]:
    """Path and value of each field of a config, values as in JSON."""
    if not isinstance(cfg, dict | list):
        return {path: json.dumps(cfg)}
    pairs = cfg.items() if isinstance(cfg, dict) else enumerate(cfg)
    found = {path or "the config": type(cfg).__name__}
    for name, child in pairs:
        inner = f"{path}[{name}]" if isinstance(cfg, list) else f"{path}.{name}".lstrip(".")
        found |= fields_of(child, inner)
    return found


def said(cfg: Nest) -> str:
    """A config as text in which 1, 1.0, True and '1' differ and the order of keys does not."""
    return json.dumps(cfg, sort_keys=True)


def sample_cfg(rng: np.random.Generator) -> dict[str, Any]:
    """A config of exercise 8.5, as `json.loads(cfg.to_json())` gives it."""
    return {
        "name": "a",
        "steps": int(rng.integers(100, 1000)),
        "model": {"__qualname__": "nets:MLP", "width": 16, "bias": True, "sizes": [1, 2]},
        "layers": [{"width": 4, "act": "tanh"}, {"width": 5, "act": "tanh"}],
        "optimizer": {"__qualname__": "optax:sgd", "peak": 0.1, "clip": None},
    }


def changed(cfg: Nest, changes: Sequence[tuple[Sequence[str | int], Any]]) -> Nest:
    """A copy of a config with other values in some places."""
    cfg = copy.deepcopy(cfg)
    for (*way, last), value in changes:
        functools.reduce(lambda place, part: place[part], way, cfg)[last] = value
    return cfg


EXERCISES = [FollowingConfig, Focal, MergedSpread, KeyPath, Overrides]


# --- quiz ----------------------------------------------------------------------------------------


def described_adam() -> str:
    """Question 8.a."""
    from kauldron import konfig

    with konfig.imports():
        import optax
    return {False: "a", True: "b"}[isinstance(optax.adam(1e-3), konfig.ConfigDict)]


def value_and_reference() -> str:
    """Question 8.b."""
    from kauldron import konfig

    cfg = konfig.ConfigDict({"n": 10})
    cfg.m = cfg.n * 2
    cfg.k = cfg.ref.n * 2
    cfg.n = 50
    return {(20, 20): "a", (20, 100): "b", (100, 100): "c"}.get((cfg.m, cfg.k), "?")


def reference_in_json() -> str:
    """Question 8.c."""
    from kauldron import konfig

    cfg = konfig.ConfigDict({"n": 10})
    cfg.k = cfg.ref.n * 2
    back = konfig.ConfigDict(json.loads(cfg.to_json()))
    back.n = 50
    return {100: "a", 20: "b"}.get(back.k, "?")


def misspelt_argument() -> str:
    """Question 8.d."""
    from kauldron import konfig

    with konfig.imports():
        import optax
    try:
        described = optax.adam(learning_rte=0.1)
    except TypeError:
        return "a"
    return "b" if error_name(lambda: konfig.resolve(described)) == "TypeError" else "c"


def merged_rate() -> str:
    """Question 8.e."""
    from kauldron import kd

    def state(wrong: int, of: int) -> Any:
        return kd.metrics.AverageState.from_values(np.arange(of, dtype=np.float32) < wrong)

    rate = float(state(1, 10).merge(state(15, 30)).compute())
    return {0.3: "a", 0.4: "b", 0.5: "c"}.get(round(rate, 3), "?")


def log_of_cosh() -> str:
    """Question 8.f."""
    import jax.numpy as jnp

    value = float(jnp.log(jnp.cosh(jnp.float32(100))))
    return "b" if value == np.inf else "c" if np.isnan(value) else "a"


def shadowed_key() -> str:
    """Question 8.g."""
    from kauldron import kontext

    found = kontext.get_by_path({"values": 1}, "values")
    return "b" if callable(found) else "a"


QUIZ = [
    Question(
        "8.a",
        "Under `with konfig.imports(): import optax`, what is `optax.adam(1e-3)`?",
        {"a": "an optimizer", "b": "a config that describes the call"},
        "b",
        "Nothing is imported or called until `konfig.resolve` does both.",
        "8.2",
        described_adam,
    ),
    Question(
        "8.b",
        "`cfg.n = 10`, `cfg.m = cfg.n * 2`, `cfg.k = cfg.ref.n * 2`, then `cfg.n = 50`. What are"
        " `cfg.m` and `cfg.k`?",
        {"a": "20 and 20", "b": "20 and 100", "c": "100 and 100"},
        "b",
        "`cfg.n * 2` is a number from then on; `cfg.ref.n * 2` is worked out at each reading.",
        "8.3",
        value_and_reference,
    ),
    Question(
        "8.c",
        "The same `cfg.k = cfg.ref.n * 2` with `n = 10` goes to JSON and comes back. Then"
        " `back.n = 50`. What is `back.k`?",
        {"a": "100", "b": "20", "c": "an error"},
        "b",
        "JSON has numbers and no references: what comes back is the value that `k` had.",
        "8.3",
        reference_in_json,
    ),
    Question(
        "8.d",
        "A config says `optax.adam(learning_rte=0.1)`. When do you hear of the typing error?",
        {
            "a": "at this line",
            "b": "when the config is resolved",
            "c": "never: the default is used",
        },
        "b",
        "A config takes any argument of any name; only the real function knows its own.",
        "8.4",
        misspelt_argument,
    ),
    Question(
        "8.e",
        "Of 10 examples 1 is wrong, of the next 30 it is 15. What does the merged state say?",
        {"a": "0.3", "b": "0.4", "c": "0.5"},
        "b",
        "16 of 40. The mean of the two rates, 0.3, counts each of the ten three times as much.",
        "8.7",
        merged_rate,
    ),
    Question(
        "8.f",
        "What is `jnp.log(jnp.cosh(x))` at `x = 100` in float32?",
        {"a": "99.3069", "b": "inf", "c": "nan"},
        "b",
        "cosh overflows beyond 89, though its logarithm is a small number.",
        "8.6",
        log_of_cosh,
    ),
    Question(
        "8.g",
        'What does `kontext.get_by_path({"values": 1}, "values")` return?',
        {"a": "1", "b": "the method `dict.values`"},
        "b",
        "A path of one name is tried as an attribute first, and a dict has one of that name.",
        "8.8",
        shadowed_key,
    ),
    Question(
        "8.h",
        "A Trainer with `num_train_steps=200` saves every 100 steps. Which is its last update, and"
        " which its last checkpoint?",
        {
            "a": "number 200, and it is in the checkpoint",
            "b": "number 201, and it is in no checkpoint",
            "c": "number 201, and it is in the checkpoint",
        },
        "b",
        "Step 200 is taken after it was saved: the state that you get is one update on.",
        "8.12",
    ),
]
