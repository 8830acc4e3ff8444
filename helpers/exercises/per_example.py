"""Chapter 04 · Per-example gradients: the public cases, probe and judge of each exercise, the quiz.

JAX is imported inside probes only, so that the judge's side needs nothing but NumPy.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from helpers import expect
from helpers.exercise import Case, Exercise, Property, Row, error_name
from helpers.quiz import Question

Array = npt.NDArray[Any]
Layer = Mapping[str, Array]
Examples = list[tuple[Array, Array]]
"""The gradient of each example, by layer: w of shape (B, inputs, outputs) and b (B, outputs)."""


def normal(rng: np.random.Generator, *shape: int) -> Array:
    """Standard normal numbers, float32."""
    return rng.standard_normal(shape).astype(np.float32)


def random_layer(rng: np.random.Generator, inputs: int, outputs: int) -> dict[str, Array]:
    """A dense layer: w (inputs, outputs) and b (outputs,), float32."""
    return {"w": normal(rng, inputs, outputs), "b": normal(rng, outputs)}


def shapes_of(sizes: Sequence[int]) -> list[dict[str, Any]]:
    """The layers of a network as shapes alone, for compiling without numbers. For probes."""
    import jax
    import jax.numpy as jnp

    def shape(*axes: int) -> Any:
        return jax.ShapeDtypeStruct(axes, jnp.float32)

    return [{"w": shape(i, o), "b": shape(o)} for i, o in pairwise(sizes)]


def above(limit: int, used: int) -> int:
    """Bytes that break the limit, 0 for any number within it. For probes.

    What fits is one thing whatever it takes, so that a mistake elsewhere is known for what it is.
    """
    return used if used > limit else 0


def temporaries(fn: Callable[..., Any], *shapes: Any) -> int:
    """Bytes that the compiled function needs beside its arguments and results. For probes."""
    import jax

    analysis = jax.jit(fn).lower(*shapes).compile().memory_analysis()
    assert analysis is not None, "this platform does not tell what a program allocates"
    return int(analysis.temp_size_in_bytes)


def exact(tree: Any) -> Any:
    """The same dicts and lists with float64 arrays."""
    if isinstance(tree, dict):
        return {name: exact(leaf) for name, leaf in tree.items()}
    if isinstance(tree, list):
        return [exact(leaf) for leaf in tree]
    return np.asarray(tree, np.float64)


# --- 4.1 -----------------------------------------------------------------------------------------


class ChunkedNorms(Exercise):
    """Norms of any number of gradients by one program that knows one size."""

    id = "4.1"
    title = "Norms in chunks, for any number of examples"
    answer = "chunked_norms"
    properties = {
        "value": Property("is the length of each example's gradient", 2, see="4.3"),
        "compiles": Property("compiles nothing for another number of examples", 2, see="4.3"),
        "at once": Property("differentiates `chunk` examples at once: not more, not fewer", 1.5,
                            see="4.3"),
        "edges": Property("copes with less than a chunk, with no example, with chunks of 1 and"
                          " with more axes", 1, see="4.3"),
    }  # fmt: skip
    points = 5
    difficulty = 2
    importance = 3
    minutes = 25

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        sizes = [100, 128, 64, 200, 5000]
        whole = *regression(rng, sum(sizes)), sizes, 64, True
        about = ["value", "compiles", "at once"]
        yield Case("batches of 100, 128, 64, 200 and 5000 in chunks of 64", *whole, about=about)
        few = *regression(rng, 68), [1, 63, 4], 64, False
        yield Case("batches of 1, 63 and 4 in chunks of 64", *few, about=["edges"])
        none = *regression(rng, 0), [0], 64, False
        yield Case("a batch of 0 examples", *none, about=["edges"])
        single = *regression(rng, 6, 2), [3, 1, 2], 1, False
        yield Case("chunks of 1, each x of shape (2, 3)", *single, about=["edges"])

    def probe(
        self, chunked_norms: Callable[..., Any], layer: Any, x: Array, y: Array,
        sizes: Sequence[int], chunk: int, fresh: bool,
    ) -> Mapping[str, Any]:  # fmt: skip
        import jax

        from helpers.compiles import CompileCounter

        loss, held = squared_error_that_counts()
        held.clear()
        if fresh:
            jax.clear_caches()  # of what another answer compiled outside its own functions
        ends = np.cumsum([0, *sizes])
        found, counts = [], []
        for number, (start, end) in enumerate(pairwise(ends)):
            scale = np.float32(1 + number)  # other parameters for each batch
            params = [{name: scale * leaf for name, leaf in layer.items()}]
            with CompileCounter() as counter:
                norms = chunked_norms(loss, params, x[start:end], y[start:end], chunk)
                found.append(jax.block_until_ready(norms))
            counts.append(counter.count)
        return {
            "norms": found,
            "first": counts[0],
            "later": sum(counts[1:]),
            "at once": max(held, default=0) // int(np.prod(x.shape[1:])),
        }

    def counted(self, seen: Mapping[str, Any]) -> int | None:
        return expect.total(seen["first"], seen["later"])

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        layer, x, y, sizes, chunk, fresh = case
        ends = np.cumsum([0, *sizes])
        for number, (start, end) in enumerate(pairwise(ends)):
            params = {name: (1.0 + number) * leaf for name, leaf in exact(layer).items()}
            want = example_norms([squared_error_gradients(params, x[start:end], y[start:end])])
            size = end - start
            key = "value" if size >= chunk > 1 else "edges"
            hint = f"That is a batch of {size} in chunks of {chunk}."
            yield expect.close(key, seen["norms"][number], want, rtol=1e-4, atol=1e-5, hint=hint)
        if fresh:
            yield expect.at_least("compiles", seen["first"], 1, unit="compiled at first")
            hint = "Without jit, each operation is a program of its own."
            yield expect.at_most("compiles", seen["first"], 3, unit="compiled at first", hint=hint)
        yield expect.equal(
            "compiles", seen["later"], 0, unit="compiled",
            hint="Whatever depends on the size must be done before JAX sees the arrays.",
        )  # fmt: skip
        if fresh or seen["at once"]:  # else the loss was not traced again
            yield expect.equal("at once", seen["at once"] or 1, chunk, unit="at once")


def regression(
    rng: np.random.Generator, rows: int, *axes: int
) -> tuple[dict[str, Array], Array, Array]:
    """A layer of 3 inputs and 2 outputs, x (rows, *axes, 3) and y (rows, *axes, 2)."""
    return random_layer(rng, 3, 2), normal(rng, rows, *axes, 3), normal(rng, rows, *axes, 2)


@cache
def squared_error_that_counts() -> tuple[Callable[..., Any], list[int]]:
    """Half the squared error of one example, and a list of how much of x each `vmap` held.

    For probes: a function that knows how it is vectorized is the way to see it from outside. Each
    trace under vmap notes the numbers in its x. There is one such loss, so that a program that was
    compiled for it in one case serves in the next.
    """
    import jax
    import jax.numpy as jnp

    held: list[int] = []

    @jax.custom_batching.custom_vmap
    def noted(x: Any) -> Any:
        return x

    def under_vmap(axis_size: int, in_batched: Any, x: Any) -> tuple[Any, bool]:
        held.append(x.size)
        return noted(x), True

    noted.def_vmap(under_vmap)

    def loss(params: Any, x: Any, y: Any) -> Any:
        x = noted(jax.lax.stop_gradient(x))
        return jnp.sum((x @ params[0]["w"] + params[0]["b"] - y) ** 2) / 2

    return loss, held


def squared_error_gradients(layer: Layer, x: Array, y: Array) -> tuple[Array, Array]:
    """Of sum((x @ w + b − y)²) / 2 for each example, in float64: w (B, d, k) and b (B, k)."""
    x, y = exact(x), exact(y)
    error = x @ layer["w"] + layer["b"] - y
    rows = [a.reshape(len(a), np.prod(a.shape[1:-1], dtype=int), a.shape[-1]) for a in (x, error)]
    return np.einsum("npi,npo->nio", *rows), rows[1].sum(axis=1)


def example_norms(gradients: Examples) -> Array:
    """Length of each example's gradient over all layers. Shape (B,)."""
    squares = [np.sum(w**2, axis=(1, 2)) + np.sum(b**2, axis=1) for w, b in gradients]
    return np.sqrt(np.sum(squares, axis=0))


# --- 4.2 -----------------------------------------------------------------------------------------


class ClippedSum(Exercise):
    """The first half of DP-SGD, in the memory of an ordinary gradient."""

    id = "4.2"
    title = "Clip and sum, without B gradients in memory"
    answer = "clipped_sum"
    properties = {
        "clipped": Property("is the sum of gradients clipped one by one", 2, see="4.4"),
        "whole": Property("leaves gradients within the limit as they are", 1, see="4.4"),
        "masked": Property("takes nothing from rows outside the mask, NaN or not", 1.5, see="4.4"),
        "memory": Property("needs less than a quarter of the memory of B gradients", 2, see="4.3"),
    }
    points = 6
    difficulty = 3
    importance = 3
    minutes = 30

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        layer, y, calls = clipping(rng, 1.5, [0, 1, 1, 0, 1, 1])
        yield Case(
            "6 rows: all with a limit of 1.5, all without a limit, 4 of 6, none of 6",
            "values", layer, y, calls,
            about=["clipped", "whole", "masked"],
        )  # fmt: skip
        yield Case("32 rows and three layers of 48", "memory", 32, [48, 48, 48], about=["memory"])

    def probe(self, clipped_sum: Callable[..., Any], task: str, *inputs: Any) -> Mapping[str, Any]:
        import jax
        import jax.numpy as jnp

        jitted = jax.jit(clipped_sum, static_argnums=0)
        if task == "memory":
            batch, sizes = inputs
            rows = jax.ShapeDtypeStruct((batch, sizes[0]), jnp.float32)
            mask = jax.ShapeDtypeStruct((batch,), jnp.bool_)
            limit = jax.ShapeDtypeStruct((), jnp.float32)
            shapes = shapes_of(sizes), rows, rows, mask, limit
            used = temporaries(partial(jitted, network_error), *shapes)
            return {"bytes": above(quarter_of_gradients(batch, sizes), used)}
        layer, y, calls = inputs
        found = [
            jitted(network_error, [layer], x, y, mask, np.float32(limit))
            for _, x, mask, limit in calls
        ]
        return {"sums": found}

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        if case.inputs[0] == "memory":
            _, batch, sizes = case
            limit = quarter_of_gradients(batch, sizes)
            hint = f"All {batch} gradients together are {4 * limit} bytes."
            yield expect.at_most("memory", seen["bytes"], limit, unit="bytes", hint=hint)
            return
        _, layer, y, calls = case
        for (key, x, mask, limit), found in zip(calls, seen["sums"], strict=True):
            hint = f"That is {int(mask.sum())} of {len(y)} rows, max_norm={limit}."
            for name, want in clipped_sum_of(exact(layer), x, y, mask, limit).items():
                yield expect.close(
                    key, found[0][name], want, rtol=1e-4, atol=1e-4, hint=f"{hint} Leaf “{name}”."
                )


def network_error(params: Any, x: Any, y: Any) -> Any:
    """Half the squared error of one example, through layers with tanh between them. For probes.

    Defined once: what `jax.jit` compiled for it in one case serves the next.
    """
    import jax.numpy as jnp

    for layer in params[:-1]:
        x = jnp.tanh(x @ layer["w"] + layer["b"])
    return jnp.sum((x @ params[-1]["w"] + params[-1]["b"] - y) ** 2) / 2


def quarter_of_gradients(batch: int, sizes: Sequence[int]) -> int:
    """A quarter of the bytes of `batch` gradients of a network of these sizes."""
    return batch * sum(i * o + o for i, o in pairwise(sizes))


def clipping(
    rng: np.random.Generator, limit: float, mask: npt.ArrayLike
) -> tuple[dict[str, Array], Array, list[list[Any]]]:
    """Inputs of exercise 4.2: a layer, labels y (6, 2), and calls: property, x, mask, max_norm.

    The first gradient is exactly 0 where all must stay whole, and only there; the last is within
    any limit tried. Masks are tried where nothing is clipped, so that each mistake costs its own
    property. Rows outside a mask are NaN.
    """
    layer, x, y = regression(rng, 6)
    y[0] = layer["b"]
    y[-1] = x[-1] @ layer["w"] + layer["b"] + np.float32(0.05)
    resting = x.copy()
    resting[0] = 0.0
    every, some, none = np.ones(6, bool), np.array(mask, bool), np.zeros(6, bool)
    calls = [
        ["clipped", x, every, limit],
        ["whole", resting, every, np.inf],
        ["whole", resting, every, 1e4],
        *(["masked", np.where(m[:, None], x, np.float32(np.nan)), m, 1e4] for m in (some, none)),
    ]
    return layer, y, calls


def clipped_sum_of(layer: Layer, x: Array, y: Array, mask: Array, limit: float) -> dict[str, Array]:
    """Sum over the masked rows of gradients clipped to the limit, in float64."""
    w, b = squared_error_gradients(layer, x[mask], y[mask])
    norms = example_norms([(w, b)])
    factors = np.minimum(1.0, limit / np.where(norms > 0, norms, 1.0))
    return {"w": np.einsum("n,nij->ij", factors, w), "b": factors @ b}


# --- 4.3 -----------------------------------------------------------------------------------------


class FindFlipped(Exercise):
    """Wrong labels, found by the harm that they do."""

    id = "4.3"
    title = "Find the flipped labels"
    answer = "find_flipped"
    properties = {
        "found": Property("names the examples whose labels were flipped", 2, see="4.6"),
        "order": Property("puts the most harmful first", 2, see="4.6"),
        "all": Property("names all when asked for all, and one for one", 1, see="4.6"),
    }
    points = 5
    difficulty = 2
    importance = 2
    minutes = 25

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        problem = flipped_labels(rng)
        for k, key in ((FLIPPED, ("found", "order")), (ALL_ROWS, ("all",)), (1, ("all",))):
            yield Case(
                f"{ALL_ROWS} examples, {FLIPPED} of them flipped, k = {k}", *problem, k, about=key
            )

    def probe(
        self, find_flipped: Callable[..., Any], params: Any, x: Array, y: Array,
        trusted_x: Array, trusted_y: Array, k: int,
    ) -> Mapping[str, Any]:  # fmt: skip
        import jax

        jitted = jax.jit(find_flipped, static_argnums=(0, 6))
        return {"indices": jitted(log_loss, params, x, y, trusted_x, trusted_y, k)}

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        *problem, k = case
        want = np.argsort(-harm(*problem))[:k]
        found = seen["indices"]
        if k != FLIPPED:
            yield expect.equal("all", found, want)
            return
        yield expect.equal("found", np.sort(np.asarray(found)), np.sort(want), hint=(
            "A hard example has a long gradient too, and may point the right way."
        ))  # fmt: skip
        yield expect.equal("order", found, want)


def log_loss(params: Any, x: Any, y: Any) -> Any:
    """Logistic loss of one example, x (3,) and y 0.0 or 1.0. For probes."""
    import jax.numpy as jnp

    logit = x @ params["w"] + params["b"]
    return jnp.logaddexp(0.0, logit) - y * logit


ALL_ROWS, FLIPPED = 24, 8
"""Training examples of exercise 4.3, and how many of them have a flipped label."""


def flipped_labels(rng: np.random.Generator) -> tuple[dict[str, Array], Array, Array, Array, Array]:
    """Params, x (24, 3), y (24,), trusted x (8, 3) and y (8,): a model halfway through training.

    Column 0 decides the class. The model leans on column 1, so that honest examples where the two
    disagree have long gradients and large losses. Inputs are large enough for a short step to bend
    the loss. Drawn again until the most harmful examples are the flipped ones, with gaps that
    float32 can't close, and shallower scores name others.
    """
    while True:
        params = {
            "w": np.array([0.1, 0.3, 0.03], np.float32),
            "b": np.array(rng.uniform(0.6, 0.9), np.float32),
        }
        x, y = points(rng, ALL_ROWS)
        trusted_x, trusted_y = points(rng, 8)
        order = rng.permutation(ALL_ROWS)
        flipped, hard = order[:FLIPPED], order[FLIPPED : FLIPPED + 5]
        x[flipped, 1] *= 0.2
        x[hard, 1] = -9.0 * np.sign(x[hard, 0])
        y[flipped] = 1 - y[flipped]
        problem = params, x, y, trusted_x, trusted_y
        if is_telling(problem, flipped):
            return problem


def points(rng: np.random.Generator, rows: int) -> tuple[Array, Array]:
    """x (rows, 3), and y (rows,), 1.0 where column 0 is positive, else 0.0."""
    x = 3 * normal(rng, rows, 3)
    x[:, 0] = rng.choice([-1.0, 1.0], rows) * rng.uniform(2.4, 6.0, rows)
    return x, (x[:, 0] > 0).astype(np.float32)


def logistic_gradients(params: Mapping[str, Array], x: Array, y: Array) -> Array:
    """Of each example's log loss in float64: shape (B, 4), the weights and the bias."""
    x = np.concatenate([exact(x), np.ones((len(x), 1))], axis=1)
    logit = x @ np.append(exact(params["w"]), exact(params["b"]))
    return (1 / (1 + np.exp(-logit)) - exact(y))[:, None] * x


def harm(params: Any, x: Array, y: Array, trusted_x: Array, trusted_y: Array) -> Array:
    """How fast the trusted loss rises along a step on each example. Shape (B,)."""
    trusted = np.mean(logistic_gradients(params, trusted_x, trusted_y), axis=0)
    return -logistic_gradients(params, x, y) @ trusted


def after_a_step(problem: tuple[Any, ...], length: float) -> Array:
    """The trusted loss after a step of this length on each example, in float64. Shape (B,)."""
    params, x, y, trusted_x, trusted_y = problem
    theta = np.append(exact(params["w"]), exact(params["b"]))
    moved = theta - length * logistic_gradients(params, x, y)
    logits = moved[:, :-1] @ exact(trusted_x).T + moved[:, -1:]
    return np.mean(np.logaddexp(0.0, logits) - exact(trusted_y) * logits, axis=1)


def is_telling(problem: tuple[Any, ...], flipped: Array) -> bool:
    """Whether harm, and nothing shallower, ranks the flipped examples first."""
    params, x, y, trusted_x, trusted_y = problem
    scores = harm(*problem)
    gradients = logistic_gradients(params, x, y)
    lengths = np.linalg.norm(gradients, axis=1)
    logit = exact(x) @ exact(params["w"]) + exact(params["b"])
    trusted = np.mean(logistic_gradients(params, trusted_x, trusted_y), axis=0)
    losses = np.logaddexp(0.0, logit) - exact(y) * logit
    others = [lengths, losses, -gradients @ gradients.mean(axis=0), np.abs(scores)]
    near = [scores / lengths, -gradients[:, :3] @ trusted[:3]]  # may find them, in another order
    near += [after_a_step(problem, length) for length in (0.1, 0.03, 0.01)]
    top = np.argsort(-scores)[:FLIPPED]
    return (
        set(top) == set(flipped)
        and bool(np.min(np.diff(np.sort(scores))) > 5e-3)
        and all(set(np.argsort(-other)[:FLIPPED]) != set(top) for other in others)
        and all(list(np.argsort(-other)[:FLIPPED]) != list(top) for other in near)
    )


# --- 4.4 -----------------------------------------------------------------------------------------


class DiagonalFisher(Exercise):
    """An expectation over the model's own labels, taken exactly."""

    id = "4.4"
    title = "The diagonal of the Fisher information"
    answer = "diagonal_fisher"
    properties = {
        "value": Property("is the mean square of the score over examples and labels", 3, see="4.7"),
        "sharp": Property("is right where a probability is tiny, and where it underflows to 0", 1.5,
                          see="4.7"),
    }  # fmt: skip
    points = 4
    difficulty = 3
    importance = 2
    minutes = 25

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        params, x = classifier(rng)
        yield Case("5 examples of 3 classes", params, x, about=["value"])
        for name, *shifts in (
            ("a class of probability 1e-14", 0.0, -32.0),
            ("two such classes", -32.0, -32.0),
            ("one of 0", 0.0, -200.0),
        ):
            yield Case(name, with_last_logits(params, *shifts), x, about=["sharp"])

    def probe(
        self, diagonal_fisher: Callable[..., Any], params: Any, x: Array
    ) -> Mapping[str, Any]:
        import jax

        return {"fisher": jax.jit(diagonal_fisher, static_argnums=0)(class_logits, params, x)}

    def told_by(self, case: Case, seen: Mapping[str, Any]) -> Mapping[str, Any]:
        """Everything, and which leaves are off: a tiny entry may be that looks like 0 to others."""
        off = {row.hint for row in self.judge(case, seen) if not row.passed}
        return {**seen, "off": sorted(off)}

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        params, x = case
        shift = params["out"]["b"][-1]
        key = "value" if shift > -20 else "sharp"
        rtol, atol = (1e-2, 0.0) if -100 < shift < -20 else (1e-3, 1e-6)
        for layer, want in fisher(exact(params), exact(x)).items():
            for name in want:
                found = seen["fisher"][layer][name]
                hint = f"Leaf “{layer}/{name}”."
                yield expect.close(key, found, want[name], rtol=rtol, atol=atol, hint=hint)


def class_logits(params: Any, x: Any) -> Any:
    """Logits (3,) of one example (2,). For probes."""
    import jax.numpy as jnp

    hidden, out = params["hidden"], params["out"]
    return jnp.tanh(x @ hidden["w"] + hidden["b"]) @ out["w"] + out["b"]


def classifier(rng: np.random.Generator, rows: int = 5) -> tuple[dict[str, Any], Array]:
    """Parameters of a network of 2 inputs, 3 hidden units and 3 classes, and x (rows, 2)."""
    params = {"hidden": random_layer(rng, 2, 3), "out": random_layer(rng, 3, 3)}
    return params, normal(rng, rows, 2)


def with_last_logits(params: dict[str, Any], second: float, last: float) -> dict[str, Any]:
    """The same network, with so much added to the logits of the second and the last class."""
    shifts = np.array([0.0, second, last], np.float32)
    return params | {"out": params["out"] | {"b": params["out"]["b"] + shifts}}


def fisher(params: Mapping[str, Any], x: Array) -> dict[str, dict[str, Array]]:
    """Mean over x of the expected square of each derivative of log p(label), in float64."""
    h = np.tanh(x @ params["hidden"]["w"] + params["hidden"]["b"])
    logits = h @ params["out"]["w"] + params["out"]["b"]
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    score = np.eye(p.shape[1]) - p[:, None, :]  # example, label, logit
    back = score @ params["out"]["w"].T * (1 - h**2)[:, None, :]
    weight = p / len(x)
    return {
        "out": {
            "w": np.einsum("nc,nh,nco->ho", weight, h**2, score**2),
            "b": np.einsum("nc,nco->o", weight, score**2),
        },
        "hidden": {
            "w": np.einsum("nc,ni,nch->ih", weight, x**2, back**2),
            "b": np.einsum("nc,nch->h", weight, back**2),
        },
    }


# --- 4.5 -----------------------------------------------------------------------------------------


class DenseNorms(Exercise):
    """Every example's gradient norm, from one backward pass."""

    id = "4.5"
    title = "Gradient norms of dense layers, without the gradients"
    answer = "mlp_grad_norms"
    properties = {
        "value": Property("is the length of each example's gradient over all layers", 3, see="4.8"),
        "depth": Property("is right for a network of another depth", 1, see="4.8"),
        "memory": Property("needs less memory than half of one weight matrix", 2, see="4.8"),
    }
    points = 6
    difficulty = 3
    importance = 2
    minutes = 35

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case("5 examples, layers of 4, 3 and 3", "values", *network(rng, [4, 3, 3], 5),
                   about=["value"])  # fmt: skip
        yield Case("three layers of one width", "values", *network(rng, [3, 3, 3, 3], 5),
                   about=["depth"])  # fmt: skip
        yield Case("a single layer", "values", *network(rng, [4, 3], 5), about=["depth"])
        yield Case("4 examples, layers of 128, 128 and 128", "memory", 4, [128, 128, 128],
                   about=["memory"])  # fmt: skip

    def probe(
        self, mlp_grad_norms: Callable[..., Any], task: str, *inputs: Any
    ) -> Mapping[str, Any]:
        import jax
        import jax.numpy as jnp

        if task == "memory":
            batch, sizes = inputs
            x = jax.ShapeDtypeStruct((batch, sizes[0]), jnp.float32)
            labels = jax.ShapeDtypeStruct((batch,), jnp.int32)
            used = temporaries(mlp_grad_norms, shapes_of(sizes), x, labels)
            return {"bytes": above(half_of_weights(sizes), used)}
        return {"norms": jax.jit(mlp_grad_norms)(*inputs)}

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        task, *inputs = case
        if task == "memory":
            batch, sizes = inputs
            limit = half_of_weights(sizes)
            hint = f"With {batch} examples, activations are small; a gradient is not."
            yield expect.at_most("memory", seen["bytes"], limit, unit="bytes", hint=hint)
            return
        layers, x, labels = inputs
        want = example_norms(network_gradients(exact(layers), exact(x), labels))
        key = "value" if len(layers) == 2 else "depth"
        yield expect.close(key, seen["norms"], want, rtol=1e-4, atol=1e-5)


def half_of_weights(sizes: Sequence[int]) -> int:
    """Half of the bytes of the first weight matrix of a network of these sizes."""
    return 4 * sizes[0] * sizes[1] // 2


def network(
    rng: np.random.Generator, sizes: Sequence[int], rows: int
) -> tuple[list[dict[str, Array]], Array, Array]:
    """Layers of the given sizes, x (rows, inputs) and int32 labels (rows,)."""
    layers = [random_layer(rng, i, o) for i, o in pairwise(sizes)]
    labels = rng.integers(0, sizes[-1], rows).astype(np.int32)
    return layers, normal(rng, rows, sizes[0]), labels


def network_gradients(layers: list[Layer], x: Array, labels: Array) -> Examples:
    """Each example's gradient of the cross-entropy through tanh layers, in float64."""
    inputs = [x]
    for layer in layers[:-1]:
        inputs.append(np.tanh(inputs[-1] @ layer["w"] + layer["b"]))
    logits = inputs[-1] @ layers[-1]["w"] + layers[-1]["b"]
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    delta = p / p.sum(axis=1, keepdims=True) - np.eye(logits.shape[1])[labels]
    found: Examples = []
    for layer, a in zip(reversed(layers), reversed(inputs), strict=True):
        found.append((a[:, :, None] * delta[:, None, :], delta))
        delta = delta @ layer["w"].T * (1 - a**2)
    return found[::-1]


EXERCISES = [ChunkedNorms, ClippedSum, FindFlipped, DiagonalFisher, DenseNorms]


# --- the quiz ------------------------------------------------------------------------------------


def line_error(params: Any, x: Any, y: Any) -> Any:
    """Half the squared error of one example, x (3,), for the questions."""
    return (x @ params["w"] + params["b"] - y) ** 2 / 2


def five_examples() -> tuple[Any, ...]:
    """Parameters of `line_error`, x (5, 3) and y (5,)."""
    rng = np.random.default_rng(0)
    return {"w": normal(rng, 3), "b": normal(rng)}, normal(rng, 5, 3), normal(rng, 5)


def leaf_shape() -> str:
    """Question 4.a."""
    from helpers.per_example import grads

    shape = grads(line_error, *five_examples())["w"].shape
    return {(3,): "a", (5,): "b", (5, 3): "c"}.get(shape, "?")


def mean_of_gradients() -> str:
    """Question 4.b."""
    import jax
    import jax.numpy as jnp

    from helpers.per_example import grads

    params, x, y = five_examples()
    mean = np.mean(grads(line_error, params, x, y)["w"], axis=0)
    for option, reduce in (("a", jnp.mean), ("b", jnp.sum)):

        def loss(p: Any, reduce: Callable[..., Any] = reduce) -> Any:
            return reduce(jax.vmap(line_error, (None, 0, 0))(p, x, y))

        if np.allclose(jax.grad(loss)(params)["w"], mean, rtol=1e-4):
            return option
    return "c"


def forgotten_axes() -> str:
    """Question 4.c."""
    import jax

    name = error_name(lambda: jax.vmap(jax.grad(line_error))(*five_examples()))
    return {"ValueError": "b", "": "a"}.get(name, "c")


def clipped_length() -> str:
    """Question 4.d."""
    from helpers.privacy import clip_each

    clipped = clip_each({"w": np.array([[0.5, 0], [3, 0], [1, 0]], np.float32)}, 1.0)
    length = round(float(np.sum(clipped["w"])), 3)
    return {1.0: "a", 2.5: "b", 3.0: "c"}.get(length, "?")


def noise_of_the_mean() -> str:
    """Question 4.e."""
    import jax

    from helpers.privacy import private_mean

    zeros = np.zeros((100, 2000), np.float32)
    spread = float(np.std(private_mean(jax.random.key(0), zeros, 2.0, 1.0)))
    return min({"a": 0.02, "b": 0.2, "c": 2.0}.items(), key=lambda o: abs(np.log(o[1] / spread)))[0]


def clipped_by_leaf() -> str:
    """Question 4.f."""
    from helpers.trees import clip_to_norm, global_norm

    leaves = [clip_to_norm(np.full(size, 9.0, np.float32), 1.0) for size in (3, 4, 5, 6)]
    length = round(float(global_norm(leaves)), 3)
    return {1.0: "a", 2.0: "b", 4.0: "c"}.get(length, "?")


def memory_of_norms_inside() -> str:
    """Question 4.g."""
    import jax

    from helpers.trees import global_norm

    def error(params: Any, x: Any, y: Any) -> Any:
        hidden = jax.numpy.tanh(x @ params[0]["w"] + params[0]["b"])
        return jax.numpy.sum((hidden @ params[1]["w"] + params[1]["b"] - y) ** 2)

    def norms(params: Any, x: Any, y: Any) -> Any:
        norm = lambda x, y: global_norm(jax.grad(error)(params, x, y))  # noqa: E731
        return jax.vmap(norm)(x, y)

    rows = jax.ShapeDtypeStruct((64, 48), np.float32)
    one = 4 * 2 * (48 * 48 + 48)
    return "b" if temporaries(norms, shapes_of([48, 48, 48]), rows, rows) > 30 * one else "a"


QUIZ = [
    Question(
        "4.a",
        "`loss(params, x, y)` takes one example with three inputs, and `params['w']` has shape"
        " (3,). For 5 examples, what is the shape of `w` in"
        " `jax.vmap(jax.grad(loss), (None, 0, 0))(params, x, y)`?",
        {"a": "(3,)", "b": "(5,)", "c": "(5, 3)"},
        "c",
        "Each leaf keeps its shape and gets the axis of examples in front.",
        "4.1",
        leaf_shape,
    ),
    Question(
        "4.b",
        "The mean over these per-example gradients is",
        {
            "a": "the gradient of the mean loss",
            "b": "the gradient of the summed loss",
            "c": "neither: a mean of gradients is not a gradient",
        },
        "a",
        "Differentiation is linear, and so is a mean.",
        "4.1",
        mean_of_gradients,
    ),
    Question(
        "4.c",
        "And `jax.vmap(jax.grad(loss))(params, x, y)`, with 5 examples, `w` of shape (3,) and `b`"
        " of shape ()?",
        {"a": "gives the same", "b": "raises ValueError", "c": "raises TypeError"},
        "b",
        "Without in_axes the parameters are mapped too, and here the sizes don't fit.",
        "4.2",
        forgotten_axes,
    ),
    Question(
        "4.d",
        "Three gradients point the same way, with lengths 0.5, 3 and 1. Clipped to 1 one by one"
        " and summed, they have the length",
        {"a": "1", "b": "2.5", "c": "3"},
        "b",
        "The short one keeps its length: 0.5 + 1 + 1.",
        "4.4",
        clipped_length,
    ),
    Question(
        "4.e",
        "B = 100, C = 2, σ = 1. The noise in each coordinate of the private *mean* has the standard"
        " deviation",
        {"a": "0.02", "b": "0.2", "c": "2"},
        "a",
        "σ·C = 2 on the sum, and the sum is divided by 100.",
        "4.5",
        noise_of_the_mean,
    ),
    Question(
        "4.f",
        "A model has four leaves, and the gradient of each leaf is clipped to 1 by itself. How long"
        " can an example's gradient be?",
        {"a": "1", "b": "2", "c": "4"},
        "b",
        "Squares add up: the root of 1 + 1 + 1 + 1.",
        "4.4",
        clipped_by_leaf,
    ),
    Question(
        "4.g",
        "`jax.vmap(lambda x, y: global_norm(jax.grad(loss)(params, x, y)))(x, y)` returns 64 norms."
        " How many gradients does it hold at once?",
        {"a": "one: each is measured as soon as it is made", "b": "64, more or less"},
        "b",
        "vmap gives each operation a batch axis; it is not a loop.",
        "4.3",
        memory_of_norms_inside,
    ),
    Question(
        "4.h",
        "A dense layer has 100 inputs and 50 outputs, and no bias. How many numbers of an example"
        " determine the norm of its gradient?",
        {"a": "5000", "b": "150", "c": "100"},
        "b",
        "The gradient is the outer product of a (100) and δ (50).",
        "4.8",
    ),
]
