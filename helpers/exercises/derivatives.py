"""Chapter 03 · Choosing a derivative: the public cases, probe and judge of each exercise, the quiz.

JAX is imported inside probes only, so that the judge's side needs nothing but NumPy.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from helpers import expect
from helpers.exercise import Case, Exercise, Property, Row
from helpers.quiz import Question
from helpers.tracing import largest_array

Array = npt.NDArray[Any]
Answer = Callable[..., Any]

NEAR = {"rtol": 5e-3, "atol": 5e-3}
"""Tolerance for numbers of size 1: any sound float32 method is within it, TF32 products too."""


def beyond(count: int, limit: int) -> int:
    """A count that is beyond a limit; 0 within it, for there one sound way is as good as another.

    Known mistakes are told by what they do: this is none of it.
    """
    return count if count > limit else 0


def shapeless(n: int) -> Array:
    """A point of n different numbers, for programs that are traced and never run."""
    return np.linspace(0.5, 1.5, n, dtype=np.float32)


def times(a: Any, x: Any) -> Any:
    """a·x for a (m, n) and x (n,), in full float32 also on a GPU; it compiles faster than `@`."""
    import jax.numpy as jnp

    return jnp.sum(a * x, axis=1)


def quartic(q: Any, c: Any, x: Any) -> Any:
    """½·xᵀqx + c·Σx⁴/4 for x (n,)."""
    import jax.numpy as jnp

    return jnp.sum(times(q, x) * x) / 2 + c * jnp.sum(jnp.square(jnp.square(x))) / 4


def plural(number: int, thing: str) -> str:
    """ "1 input", "2 inputs"."""
    return f"{number} {thing}{'' if number == 1 else 's'}"


def scale_of(want: Array) -> float:
    """The size of the largest entry; 1 where all are 0."""
    return float(np.max(np.abs(want))) or 1.0


def near(key: str, seen: Any, want: Any, **why: str) -> Row:
    """Close to `want` on the scale of its largest entry."""
    want = np.asarray(want, np.float64)
    return expect.close(key, seen, want, rtol=5e-3, atol=5e-3 * scale_of(want), **why)


# --- 3.1 -----------------------------------------------------------------------------------------


class ModeFromShapes(Exercise):
    """A Jacobian whose functions tell which mode went through them."""

    id = "3.1"
    title = "A Jacobian that picks its mode from shapes alone"
    answer = "jacobian"
    properties = {
        "value": Property("is the Jacobian, of shape `f(x).shape + x.shape`", 1.5, see="3.2"),
        "mode": Property("goes forward for fewer inputs, in reverse for fewer outputs", 2, "3.3"),
        "numbers": Property("never runs `f` on numbers to learn its shape", 0.5, see="3.3"),
    }
    points = 4
    difficulty = 1
    importance = 3
    minutes = 10

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        shapes = [([2, 5], [8]), ([4], [2, 3]), ([], [3]), ([6], [2]), ([3], [])]
        yield Case("numbers, vectors, matrices", "tagged", functions(rng, shapes), about=TAGGED)
        loop = functions(rng, [([2], [5])])
        yield Case("a while_loop, traced", "loop", loop, about=["mode", "numbers"])

    def probe(
        self, jacobian: Answer, task: str, problems: Sequence[Mapping[str, Any]]
    ) -> Mapping[str, Any]:
        if task == "loop":
            return through_a_loop(jacobian, **problems[0])
        shapes = tuple(tuple(each["out"]) for each in problems)
        inputs = [(each["a"], each["x"]) for each in problems]
        return {"jacobians": tagged_program()(jacobian, shapes, inputs)}

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        task, problems = case
        if task == "loop":
            unit = "shape of a Jacobian that only forward mode reaches"
            yield expect.equal("mode", seen["shape"], [5, 2], unit=unit)
            hint = "`jax.eval_shape(f, x)` tells the shape and computes nothing."
            yield expect.equal("numbers", seen["calls on numbers"], 0, unit="calls", hint=hint)
            return
        for problem, found in zip(problems, seen["jacobians"], strict=True):
            x, out = problem["x"], problem["out"]
            want = slopes64(problem["a"], x).reshape(*out, *x.shape)
            hint = f"`f` maps shape {x.shape} to shape {tuple(out)}."
            forward = near("value", found, want, hint=hint)
            reverse = near("value", found, REVERSE * want, hint=hint)
            yield reverse if reverse.passed else forward
            used = "forward" if forward.passed else "reverse" if reverse.passed else "neither"
            cheap = "forward" if x.size < math.prod(out) else "reverse"
            hint = f"`f` has {plural(x.size, 'input')} and {plural(math.prod(out), 'output')}."
            yield expect.equal("mode", used, cheap, hint=hint)


TAGGED = ["value", "mode"]
REVERSE = 2.0
"""What the tagged functions of exercise 3.1 multiply their derivative by in reverse mode."""


def functions(rng: np.random.Generator, shapes: Sequence[Sequence[list[int]]]) -> list[Any]:
    """For each shape of input and output: a matrix between the two, and a point."""
    made = []
    for inputs, outputs in shapes:
        n, m = math.prod(inputs), math.prod(outputs)
        a = (rng.uniform(0.5, 1.5, (m, n)) * rng.choice([-1, 1], (m, n)) / n).astype(np.float32)
        x = np.asarray(rng.uniform(0.3, 1.0, inputs) * rng.choice([-1, 1], inputs), np.float32)
        made.append({"a": a, "x": x, "out": list(outputs)})
    return made


@functools.cache
def tagged_program() -> Callable[..., Any]:
    """One program for the Jacobians of several functions x ↦ (a·x)², tagged by mode."""
    import jax
    import jax.numpy as jnp

    def tag(y: Any) -> Any:
        """y itself; its derivative is the identity, and `REVERSE` times that when transposed."""
        return jax.lax.custom_linear_solve(lambda t: t, y, lambda _, t: t, lambda _, t: REVERSE * t)

    def all_jacobians(jacobian: Answer, outs: Sequence[tuple[int, ...]], inputs: Any) -> Any:
        def function(a: Any, out: tuple[int, ...]) -> Answer:
            return lambda x: tag(jnp.square(times(a, jnp.ravel(x)))).reshape(out)

        return [jacobian(function(a, out), x) for (a, x), out in zip(inputs, outs, strict=True)]

    return jax.jit(all_jacobians, static_argnums=(0, 1))


def through_a_loop(jacobian: Answer, a: Array, x: Array, out: Sequence[int]) -> Mapping[str, Any]:
    """Traces the Jacobian of a function that only forward mode goes through, and counts its calls.

    A call is one on numbers where nothing but this trace is around it: no placeholders, no mode.
    """
    import jax
    import jax.extend.core
    import jax.numpy as jnp

    around = functools.partial(jax.extend.core.get_opaque_trace_state, convention="nnx")
    states: list[Any] = []

    def f(x: Any) -> Any:
        states.append(around())
        start = (0, a @ x)
        return jax.lax.while_loop(lambda s: s[0] < 2, lambda s: (s[0] + 1, s[1] / 2), start)[1]

    point = jnp.asarray(x)
    outside = []

    def whole() -> Any:
        outside.append(around())
        return jacobian(f, point)

    (found,) = jax.make_jaxpr(whole)().out_avals
    return {"shape": list(found.shape), "calls on numbers": states.count(outside[0])}


def slopes64(a: Array, x: Array) -> Array:
    """Jacobian of (a·x)² in float64: a row for each output, a column for each input."""
    a = a.astype(np.float64)
    return 2.0 * (a @ np.ravel(x))[:, None] * a


# --- 3.2 -----------------------------------------------------------------------------------------


class NewtonByProducts(Exercise):
    """A linear solver that knows a matrix by its products only, and Newton's step with it."""

    id = "3.2"
    title = "Conjugate gradient and a Newton-CG step"
    answer = ("conjugate_gradient", "newton_cg_step")
    properties = {
        "best": Property("`conjugate_gradient` is at the best point of k products", 1.5, see="3.8"),
        "edges": Property("stays finite and right for b = 0, b tiny, and after the end", 1, "3.8"),
        "curvature": Property("stops where the curvature is not positive", 1, see="3.8"),
        "step": Property("`newton_cg_step` lands where float64 lands", 1.5, see="3.8"),
        "memory": Property("`newton_cg_step` never holds n² numbers", 1, see="3.7"),
    }
    points = 6
    difficulty = 3
    importance = 3
    minutes = 30

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case(
            "3 iterations on 6 unknowns",
            "solve", systems(rng), 3, about=["best", "edges", "curvature"],
        )  # fmt: skip
        yield Case(
            "Newton steps in a valley and on two saddles, 4 iterations each",
            "newton", landscapes(rng, 4), 4, about=["step", "curvature"],
        )  # fmt: skip
        yield Case("the program of a Newton step in 40 unknowns", "trace", {}, 3, about=["memory"])

    def probe(
        self, conjugate_gradient: Answer, newton_cg_step: Answer,
        task: str, problems: Mapping[str, Any], steps: int,
    ) -> Mapping[str, Any]:  # fmt: skip
        if task == "solve":
            a, b = problems["a"], problems["b"]
            found = list(np.asarray(solving_program()(conjugate_gradient, steps, a, b)))
            return {"solutions": found, "is 0": [bool(np.all(x == 0)) for x in found]}
        if task == "newton":
            q, c, x = problems["q"], problems["c"], problems["x"]
            return {"points": list(np.asarray(newton_program()(newton_cg_step, steps, q, c, x)))}
        x = shapeless(CHAIN)
        largest = largest_array(lambda x: newton_cg_step(chain_energy, x, steps), x)
        return {"largest": beyond(largest, CHAIN**2 - 1)}

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        task, problems, steps = case
        if task == "trace":
            yield expect.at_most(
                "memory", seen["largest"], CHAIN**2 - 1,
                unit="numbers in the largest array", hint=f"n² is {CHAIN**2} here.",
            )  # fmt: skip
        elif task == "solve":
            for (key, name), a, b, x in zip(
                problems["names"], problems["a"], problems["b"], seen["solutions"], strict=True
            ):
                yield near(key, x, cg64(a, b, steps)[0], hint=f"That is {name}.")
        else:
            for name, q, c, x, end in zip(
                *(problems[part] for part in ("names", "q", "c", "x")), seen["points"], strict=True
            ):
                step, _ = cg64(curvature64(q, c, x), -slope64(q, c, x), steps)
                went = np.asarray(end, np.float64) - x
                row = near("step", went, step, hint=f"That is the step in {name}.")
                yield row
                if name != VALLEY:
                    yield replace(row, key="curvature")


VALLEY = "a valley"
CHAIN = 40
"""Unknowns of the function whose Newton step is traced in exercise 3.2."""


def chain_energy(x: Any) -> Any:
    """A smooth function of x (n,) whose own program holds nothing larger than x."""
    import jax.numpy as jnp

    return jnp.sum(x**4) / 4 + jnp.sum((x - jnp.roll(x, 1)) ** 2) / 2


@functools.cache
def solving_program() -> Callable[..., Any]:
    """One program that solves several systems a·x = b, one behind the other."""
    import jax

    def solve_all(solver: Answer, steps: int, a: Any, b: Any) -> Any:
        return jax.lax.map(lambda ab: solver(lambda v: times(ab[0], v), ab[1], steps), (a, b))

    return jax.jit(solve_all, static_argnums=(0, 1))


@functools.cache
def newton_program() -> Callable[..., Any]:
    """One program for Newton steps on several functions ½·xᵀqx + c·Σx⁴/4."""
    import jax

    def step_all(newton_cg_step: Answer, steps: int, q: Any, c: Any, x: Any) -> Any:
        def step(problem: Any) -> Any:
            q, c, x = problem
            return newton_cg_step(lambda y: quartic(q, c, y), x, steps)

        return jax.lax.map(step, (q, c, x))

    return jax.jit(step_all, static_argnums=(0, 1))


def rotated(rng: np.random.Generator, eigenvalues: Sequence[float]) -> Array:
    """A symmetric float32 matrix with these eigenvalues, its eigenvectors drawn."""
    n = len(eigenvalues)
    axes, _ = np.linalg.qr(rng.standard_normal((n, n)))
    a = (axes * eigenvalues) @ axes.T
    return ((a + a.T) / 2).astype(np.float32)


def systems(rng: np.random.Generator) -> dict[str, Any]:
    """Ten systems in 6 unknowns for exercise 3.2: a (10, 6, 6), b (10, 6), float32.

    In one of them hardly anything is left after an iteration, but in directions of so little
    curvature that another iteration would carry x far away.
    """
    spread, three = [0.5, 0.8, 1.3, 2.0, 3.0, 4.0], [0.5, 0.5, 1.5, 1.5, 4.0, 4.0]
    b = rng.uniform(0.5, 1.5, (4, 6)) * rng.choice([-1, 1], (4, 6))
    made = [
        (("best", "a matrix with 6 different eigenvalues"), rotated(rng, spread), b[0]),
        (("best", "a matrix with 3 different eigenvalues"), rotated(rng, three), b[1]),
        (("edges", "2·I: solved after 1 iteration"), 2 * np.eye(6), np.round(b[2])),
        (
            ("edges", "nearly solved after 1 iteration"),
            np.diag(3 * [2] + 3 * [1e-8]),
            np.array(3 * [1] + 3 * [3e-8]) * b[2],
        ),
        (("edges", "b = 0"), rotated(rng, spread), np.zeros(6)),
        (("best", "a matrix with one small eigenvalue"), *hard_to_finish(rng)),
        (("edges", "b of size 1e-7"), rotated(rng, spread), 1e-7 * b[3]),
        (("curvature", "negative curvature at once"), *bent(rng, 0)),
        (("curvature", "negative curvature after a step"), *bent(rng, 1)),
        (("curvature", "no curvature along b"), np.diag(np.arange(6)), 1.5 * np.eye(6)[0]),
    ]
    order = rng.permutation(len(made))
    return {
        "names": [list(made[i][0]) for i in order],
        "a": np.array([made[i][1] for i in order], np.float32),
        "b": np.array([made[i][2] for i in order], np.float32),
    }


def hard_to_finish(rng: np.random.Generator) -> tuple[Array, Array]:
    """A system whose residual is 2e-4 of b after 2 iterations, where a tenth of x is missing."""
    axes, _ = np.linalg.qr(rng.standard_normal((6, 6)))
    small = 0.002
    parts = np.array([*rng.uniform(0.3, 0.6, 5), 2e-4]) * rng.choice([-1, 1], 6)
    return (axes * [2, 2, 2, 1, 1, small]) @ axes.T, axes @ parts


def bent(rng: np.random.Generator, after: int) -> tuple[Array, Array]:
    """An indefinite system that shows its negative curvature after so many good iterations."""
    while True:
        a = rotated(rng, [-1.5, 0.5, 1.0, 2.0, 3.0, 4.0])
        b = rng.uniform(-1.5, 1.5, 6).astype(np.float32)
        if plainly(cg64(a, b, 3)[1], after):
            return a, b


def plainly(curvatures: Sequence[float], after: int) -> bool:
    """Whether the first clearly negative curvature comes after so many clearly positive ones."""
    return (
        len(curvatures) == after + 1
        and curvatures[-1] < -0.2
        and all(each > 0.4 for each in curvatures[:-1])
    )


def landscapes(rng: np.random.Generator, steps: int) -> dict[str, Any]:
    """A convex function and two saddles for exercise 3.2: q (3, 6, 6), c (3,), x (3, 6)."""
    wanted = {VALLEY: None, "a saddle, downhill at once": 0, "a saddle, after a step": 1}
    q, c, x = [], [], []
    for after in wanted.values():
        low = 0.5 if after is None else -2.0
        while True:
            q_, c_ = rotated(rng, [low, 0.5, 1.0, 2.0, 3.0, 4.0]), np.float32(rng.uniform(0.1, 0.3))
            x_ = rng.uniform(-1.0, 1.0, 6).astype(np.float32)
            seen = cg64(curvature64(q_, c_, x_), -slope64(q_, c_, x_), steps)[1]
            if after is None or plainly(seen, after):
                break
        q.append(q_)
        c.append(c_)
        x.append(x_)
    return {"names": list(wanted), "q": np.array(q), "c": np.array(c), "x": np.array(x)}


def slope64(q: Array, c: Any, x: Array) -> Array:
    """Gradient of ½·xᵀqx + c·Σx⁴/4 in float64."""
    q, x = q.astype(np.float64), x.astype(np.float64)
    return q @ x + float(c) * x**3


def curvature64(q: Array, c: Any, x: Array) -> Array:
    """Hessian of ½·xᵀqx + c·Σx⁴/4 in float64."""
    return q.astype(np.float64) + np.diag(3 * float(c) * x.astype(np.float64) ** 2)


def cg64(a: Array, b: Array, steps: int) -> tuple[Array, list[float]]:
    """What exercise 3.2 asks for, in float64: the point, and the curvatures pᵀap / pᵀp met.

    The last of them is not positive where that is why it stopped.
    """
    a, b = a.astype(np.float64), b.astype(np.float64)
    x, r, p = np.zeros_like(b), b, b
    met: list[float] = []
    for step in range(steps):
        if np.linalg.norm(r) <= 1e-6 * np.linalg.norm(b):
            break
        product = a @ p
        met.append(float(p @ product / (p @ p)))
        if met[-1] <= 0:
            return (b if step == 0 else x), met
        alpha = (r @ r) / (p @ product)
        before, x, r = r @ r, x + alpha * p, r - alpha * product
        p = r + (r @ r) / before * p
    return x, met


# --- 3.3 -----------------------------------------------------------------------------------------


class GaussNewtonProduct(Exercise):
    """The curvature of a loss, seen through a model's first derivative."""

    id = "3.3"
    title = "Gauss–Newton vector product"
    answer = "gauss_newton_product"
    properties = {
        "squares": Property("is JᵀJ·v for half the sum of squares", 1, see="3.9"),
        "curved": Property("carries the loss's own Hessian where that is not I", 1.5, see="3.9"),
        "tree": Property("has the structure and the shapes of `w`", 1, see="3.9"),
        "memory": Property("forms none of J, JᵀJ and the loss's Hessian", 1.5, see="3.7"),
    }
    points = 5
    difficulty = 2
    importance = 2
    minutes = 15

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case("half the sum of squares", "run", layer(rng, "squares"), about=SQUARES)
        yield Case("cross-entropy of 5 rows", "run", layer(rng, "entropy"), about=CURVED)
        yield Case("64 weights, 48 outputs, traced", "trace", {}, about=["memory"])

    def probe(
        self, gauss_newton_product: Answer, task: str, problem: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        if task != "trace":
            product = layer_program()(gauss_newton_product, problem)
            return {"product": product, "type": type(product).__name__}
        w = shapeless(WEIGHTS)
        largest = largest_array(lambda w, v: gauss_newton_product(bent_line, log_cosh, w, v), w, w)
        return {"largest": beyond(largest, OUTPUTS**2 - 1)}

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        task, problem = case
        if task == "trace":
            yield expect.at_most(
                "memory", seen["largest"], OUTPUTS**2 - 1,
                unit="numbers in the largest array",
                hint=f"J has {OUTPUTS * WEIGHTS} here, the loss's Hessian {OUTPUTS**2}.",
            )  # fmt: skip
            return
        product = seen["product"]
        whole = isinstance(product, Mapping) and set(product) == {"w", "b"}
        form, like = expect.describe(product), "a dict of w and b, like `w`"
        if isinstance(product, list):  # what a tuple has become on its way here
            form = f"a {seen['type']} of {len(product)}"
        yield expect.true("tree", whole, seen=form, expected=like)
        key = "squares" if list(problem["mix"]) == MIXES["squares"] else "curved"
        if not whole:
            yield expect.true(key, False, seen=form, expected=like)
            return
        for name, want in product64(problem).items():
            part = product[name]
            hint = f"That is the part of {name!r}."
            yield near(key, part, want, hint=hint)
            shape = list(np.asarray(part).shape)
            yield expect.equal("tree", shape, list(want.shape), hint=hint)


SQUARES, CURVED = ["squares", "tree"], ["curved", "tree"]
MIXES = {"squares": [1.0, 0.0, 0.0], "entropy": [0.0, 1.0, 0.0], "fourth": [0.0, 0.5, 1.0]}
"""How much of half the sum of squares, of cross-entropy and of fourth powers is in a loss."""

WEIGHTS, OUTPUTS = 64, 48
"""Sizes of the model that is traced in exercise 3.3."""


def bent_line(w: Any) -> Any:
    """A model of 64 weights and 48 outputs whose program holds nothing larger than w."""
    import jax.numpy as jnp

    return jnp.tanh(w)[:OUTPUTS] * w[WEIGHTS - OUTPUTS :]


def log_cosh(z: Any) -> Any:
    """A loss whose Hessian is not the identity."""
    import jax.numpy as jnp

    return jnp.sum(jnp.log(jnp.cosh(z))) + jnp.sum(z) ** 2 / 2


def layer(rng: np.random.Generator, loss: str) -> dict[str, Any]:
    """A layer 2·tanh(x·w + b) from 3 to 2 numbers, 5 rows, labels, a loss, a direction; float32."""
    sizes = {"x": (5, 3), "w": (3, 2), "b": (2,), "vw": (3, 2), "vb": (2,)}
    drawn = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in sizes.items()}
    labels = np.eye(2, dtype=np.float32)[rng.integers(0, 2, 5)]
    return drawn | {"y": labels, "mix": np.array(MIXES[loss], np.float32)}


@functools.cache
def layer_program() -> Callable[..., Any]:
    """One program: the product for the layer of exercise 3.3 and any mix of the losses."""
    import jax
    import jax.numpy as jnp

    def product(answer: Answer, given: Mapping[str, Any]) -> Any:
        y, (squares, entropy, fourth) = given["y"], given["mix"]

        def predict(w: Mapping[str, Any]) -> Any:
            return 2 * jnp.tanh(jnp.sum(given["x"][:, :, None] * w["w"], axis=1) + w["b"])

        def loss(z: Any) -> Any:
            by_row = jnp.log(jnp.sum(jnp.exp(z), axis=1)) - jnp.sum(z * y, axis=1)
            off = (z - y) ** 2
            return jnp.sum(squares * off / 2 + fourth * off**2 / 4) + entropy * jnp.mean(by_row)

        w = {"w": given["w"], "b": given["b"]}
        v = {"w": given["vw"], "b": given["vb"]}
        return answer(predict, loss, w, v)

    return jax.jit(product, static_argnums=0)


def product64(given: Mapping[str, Any]) -> dict[str, Array]:
    """Jᵀ·(loss's Hessian)·J·v of the layer in float64."""
    x, w, b, vw, vb, y = (given[k].astype(np.float64) for k in ("x", "w", "b", "vw", "vb", "y"))
    squares, entropy, fourth = given["mix"].astype(np.float64)
    t = np.tanh(x @ w + b)
    z, slope = 2 * t, 2 * (1 - t**2)
    moved = slope * (x @ vw + vb)
    chance = np.exp(z) / np.sum(np.exp(z), axis=1, keepdims=True)
    mean = np.sum(chance * moved, axis=1, keepdims=True)
    curved = (squares + 3 * fourth * (z - y) ** 2) * moved
    curved += entropy * chance * (moved - mean) / len(z)
    back = slope * curved
    return {"w": x.T @ back, "b": np.sum(back, axis=0)}


# --- 3.4 -----------------------------------------------------------------------------------------


class HessianDiagonal(Exercise):
    """A diagonal that is estimated from products with random signs."""

    id = "3.4"
    title = "Hutchinson's estimate of a Hessian's diagonal, and so of its trace"
    answer = "hessian_diagonal"
    properties = {
        "exact": Property("is exact where the Hessian is diagonal", 1.5, see="3.10"),
        "unbiased": Property("is the diagonal on average", 1, see="3.10"),
        "spread": Property("varies as the mean of independent probes does", 1, see="3.10"),
        "random": Property("is decided by the key: another key, another estimate", 0.5, "3.10"),
        "memory": Property("never holds n² numbers", 1, see="3.7"),
    }
    points = 5
    difficulty = 2
    importance = 2
    minutes = 15

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield Case("a diagonal Hessian", "run", *bowl(rng, "diagonal"), about=["exact"])
        yield Case(
            "64 keys, pairs that depend on each other", "run", *bowl(rng, "pairs"), about=DRAWN
        )
        yield Case("64 unknowns and 4 probes, traced", "trace", about=["memory"])

    def probe(self, hessian_diagonal: Answer, task: str, *problem: Any) -> Mapping[str, Any]:
        if task == "run":
            return {"estimates": diagonal_program()(hessian_diagonal, *problem)}
        import jax

        def whole(x: Any, seed: Any) -> Any:
            return hessian_diagonal(chain_energy, x, jax.random.key(seed), 4)

        largest = largest_array(whole, shapeless(UNKNOWNS), np.uint32(0))
        return {"largest": beyond(largest, UNKNOWNS**2 - 1)}

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        task, *problem = case
        if task == "trace":
            yield expect.at_most(
                "memory", seen["largest"], UNKNOWNS**2 - 1,
                unit="numbers in the largest array", hint=f"n² is {UNKNOWNS**2} here.",
            )  # fmt: skip
            return
        q, c, x, seeds = problem
        hessian = curvature64(q, c, x.ravel())
        want = np.diag(hessian).reshape(x.shape)
        estimates = np.asarray(seen["estimates"], np.float64)
        if estimates.shape != (len(seeds), *x.shape):
            form = f"estimates of shape {estimates.shape[1:]}"
            for key in case.about or ():
                yield expect.true(key, False, seen=form, expected=f"shape {x.shape}, like `x`")
        elif "exact" in (case.about or ()):
            yield near("exact", estimates[0], want, hint="s·s is 1 for a sign s.")
        else:
            yield from judge_draws(estimates, want, hessian - np.diag(np.diag(hessian)))


DRAWN = ["unbiased", "spread", "random"]
PROBES, KEYS = 8, 64
"""Probes of one estimate, and estimates, in exercise 3.4. The last key is the first one again."""


def judge_draws(estimates: Array, want: Array, off: Array) -> Iterator[Row]:
    """Rows on the estimates for many keys; off: the Hessian without its diagonal."""
    draws = estimates[:-1].reshape(KEYS - 1, -1)
    variance = np.sum(off**2, axis=1) / PROBES
    atol = 6 * float(np.sqrt(np.max(variance) / len(draws)))
    hint = f"That is the mean of the estimates for {len(draws)} keys."
    mean = np.mean(estimates[:-1], axis=0)
    yield expect.close("unbiased", mean, want, rtol=5e-3, atol=atol, hint=hint)
    ratio = float(np.mean((draws - np.ravel(want)) ** 2 / variance))
    hint = f"With {PROBES} independent probes the variance is an {PROBES}th of that of one."
    unit = "times the variance of such a mean"
    yield expect.at_most("spread", round(ratio, 3), 1.6, unit=unit, hint=hint)
    ratio = float(np.mean(np.var(draws, axis=0, ddof=1) / variance))
    hint = f"So little is no mean of {PROBES} probes: it takes more products, or nothing is drawn."
    yield expect.at_least("spread", round(ratio, 3), 0.5, unit=unit, hint=hint)
    apart = float(np.min(np.ptp(draws, axis=0) / np.sqrt(variance)))
    unit = "standard deviations between the estimates furthest apart"
    yield expect.at_least("random", round(apart, 3), 0.5, unit=unit)
    yield near("random", estimates[-1], estimates[0], hint="The same key again.")


UNKNOWNS = 64
"""Size of the problem that is traced in exercise 3.4."""


def bowl(rng: np.random.Generator, kind: str) -> tuple[Array, Array, Array, Array]:
    """For exercise 3.4: q (6, 6), c and x (2, 3) of a function, float32, and the seeds of the keys.

    The function is ½·xᵀqx + c·Σx⁴/4, where q acts on x in one row. In "pairs", each unknown depends
    strongly on one other, so that no combination of signs hides it, and weakly on the rest.
    """
    q = np.diag(rng.uniform(1.0, 3.0, 6))
    if kind == "pairs":
        weak = rng.uniform(-0.05, 0.05, (6, 6))
        strong = np.kron(np.diag(rng.choice([-2.0, 2.0], 3)), [[0, 1], [1, 0]])
        order = rng.permutation(6)
        q = q + (strong + weak + weak.T)[np.ix_(order, order)]
    x = rng.uniform(0.5, 1.0, (2, 3)) * rng.choice([-1, 1], (2, 3))
    c = np.array(rng.uniform(0.3, 0.6), np.float32)
    seeds = rng.choice(10_000, KEYS, replace=False).astype(np.uint32)
    seeds[-1] = seeds[0]
    return q.astype(np.float32), c, x.astype(np.float32), seeds


@functools.cache
def diagonal_program() -> Callable[..., Any]:
    """One program: an estimate for each seed. Its generator is the one that compiles fastest."""
    import jax
    import jax.numpy as jnp

    def estimates(answer: Answer, q: Any, c: Any, x: Any, seeds: Any) -> Any:
        def estimate(seed: Any) -> Any:
            key = jax.random.key(seed, impl="unsafe_rbg")
            return answer(lambda y: quartic(q, c, jnp.ravel(y)), x, key, PROBES)

        return jax.lax.map(estimate, seeds)

    return jax.jit(estimates, static_argnums=0)


# --- 3.5 -----------------------------------------------------------------------------------------


class ImplicitFixedPoint(Exercise):
    """A solution that is differentiated by the equation that it solves."""

    id = "3.5"
    title = "Implicit differentiation of a fixed point"
    answer = "fixed_point"
    properties = {
        "value": Property("solves x = g(a, x) to 1e-4", 1, see="3.11"),
        "gradient": Property("has the gradient of the solution with respect to `a`", 2, see="3.11"),
        "start": Property("has it from any start, the solution too, and 0 for `x0`", 1, "3.11"),
        "memory": Property("keeps no iterates for the way back", 1, see="3.11"),
    }
    points = 5
    difficulty = 3
    importance = 2
    minutes = 25

    def cases(self, rng: np.random.Generator) -> Iterator[Case]:
        yield from self.equations(rng)
        yield Case("what `jax.vjp` keeps", "keep", *network(rng, 0.0), about=["memory"])

    def equations(self, rng: np.random.Generator) -> Iterator[Case]:
        """From a start far off, from the solution, and with a part that rests from the start."""
        a, x0, ct = network(rng, 3.0)
        about = ["value", "gradient", "start"]
        yield Case("a start far off", "solve", a, x0, ct, about=about)
        a, x0, ct = network(rng, 0.0)
        solution = solve64(a).astype(np.float32)
        yield Case("a start at the solution", "solve", a, solution, ct, about=about)
        a, x0, ct = network(rng, 3.0)
        a[-1], x0[-1] = 0.0, 0.0
        yield Case("a last entry that is 0 throughout, and a cotangent of 1e-7", "solve", a, x0,
                   1e-5 * ct, about=["value", "gradient"])  # fmt: skip

    def probe(
        self, fixed_point: Answer, task: str, a: Array, x0: Array, ct: Array
    ) -> Mapping[str, Any]:
        if task == "solve":
            x, for_a, for_start = fixed_point_program()(fixed_point, a, x0, ct)
            return {"x": x, "gradient": for_a, "gradient of x0": for_start}
        import jax

        def pullback(a: Any) -> Any:
            return jax.vjp(lambda a: fixed_point(squash, a, x0), a)[1]

        def both_ways(a: Any) -> Any:
            return jax.grad(lambda a: fixed_point(squash, a, x0).sum())(a)

        kept = jax.tree.leaves(jax.eval_shape(pullback, a))
        return {
            "kept": beyond(sum(math.prod(each.shape) for each in kept), KEPT),
            "largest": beyond(largest_array(both_ways, a), KEPT),
        }

    def judge(self, case: Case, seen: Mapping[str, Any]) -> Iterator[Row]:
        task, a, x0, ct = case
        if task == "keep":
            hint = f"`a` has {a.size} numbers, x has {x0.size}."
            unit = "numbers kept for the way back"
            yield expect.at_most("memory", seen["kept"], KEPT, unit=unit, hint=hint)
            unit = "numbers in one array on the way back"
            yield expect.at_most("memory", seen["largest"], KEPT, unit=unit, hint=hint)
            return
        x = solve64(a)
        yield expect.close("value", seen["x"], x, atol=1e-4)
        gradient = near("gradient", seen["gradient"], implicit64(a, x, ct))
        yield gradient
        yield expect.true("start", gradient.passed, seen="another gradient")
        hint = "Where the iteration began does not move the solution."
        yield expect.close("start", seen["gradient of x0"], np.zeros(4), atol=1e-4, hint=hint)


KEPT = 120
"""Numbers that may be kept in exercise 3.5: a few arrays like `a` and x, and no iterates."""


def squash(a: Any, x: Any) -> Any:
    """tanh(w·x + c), where a (n, n + 1) holds w and, in its last column, c."""
    import jax.numpy as jnp

    return jnp.tanh(times(a[:, :-1], x) + a[:, -1])


def network(rng: np.random.Generator, far: float) -> tuple[Array, Array, Array]:
    """For exercise 3.5: a (4, 5) that contracts slowly, a start (4,) so far off, a small cotangent.

    Along one direction an error shrinks by 0.88 to 0.9 a step and keeps its sign, so that what is
    left adds up; the start is far off along it.
    """
    rate = 0.0
    while not 0.88 < rate < 0.9:
        axes, turn = (np.linalg.qr(rng.standard_normal((n, n)))[0] for n in (4, 3))
        slow, fast = axes[:, :1], axes[:, 1:]
        w = 0.9 * slow @ slow.T + 0.6 * fast @ turn @ fast.T
        c = 0.01 * slow + fast @ rng.uniform(0.03, 0.12, (3, 1))
        a = np.concatenate([w, c], axis=1).astype(np.float32)
        slope = 1 - solve64(a) ** 2
        rate = np.max(np.linalg.eigvals(slope[:, None] * w).real)
    ct = rng.uniform(0.005, 0.015, 4).astype(np.float32)
    return a, (2 * far * slow[:, 0]).astype(np.float32), ct


@functools.cache
def fixed_point_program() -> Callable[..., Any]:
    """One program: the solution, and the cotangents of a and of the start."""
    import jax

    def solve(fixed_point: Answer, a: Any, x0: Any, ct: Any) -> Any:
        x, pull = jax.vjp(lambda a, x0: fixed_point(squash, a, x0), a, x0)
        return x, *pull(ct)

    return jax.jit(solve, static_argnums=0)


def solve64(a: Array) -> Array:
    """The fixed point of `squash` in float64."""
    w, c = a[:, :-1].astype(np.float64), a[:, -1].astype(np.float64)
    x = np.zeros(len(a))
    for _ in range(200):
        x = np.tanh(w @ x + c)
    return x


def implicit64(a: Array, x: Array, ct: Array) -> Array:
    """Cotangent of a, in float64, from that of the fixed point x."""
    w = a[:, :-1].astype(np.float64)
    slope = 1 - x**2
    u = np.linalg.solve((np.eye(len(x)) - slope[:, None] * w).T, ct.astype(np.float64))
    return np.outer(slope * u, [*x, 1.0])


EXERCISES = [
    ModeFromShapes,
    NewtonByProducts,
    GaussNewtonProduct,
    HessianDiagonal,
    ImplicitFixedPoint,
]


# --- quiz ----------------------------------------------------------------------------------------


def letter(by_value: Mapping[Any, str], value: Any) -> str:
    """The option that stands for a measured value; "?" if none does."""
    return by_value.get(value, "?")


def mode_of_jacobian() -> str:
    """Question 3.a."""
    import jax

    problem = functions(np.random.default_rng(0), [([2], [5])])[0]
    inputs = [(problem["a"], problem["x"])]
    (found,) = tagged_program()(lambda f, x: jax.jacobian(f)(x), ((5,),), inputs)
    forward = slopes64(problem["a"], problem["x"])
    ratio = float(np.median(np.asarray(found) / forward))
    return letter({1.0: "b", REVERSE: "a"}, round(ratio, 3))


def pulled_through_a_matrix() -> str:
    """Question 3.b."""
    import jax

    m = np.array([[1, 2, 0], [0, 1, 3], [4, 0, 1]], np.float32)
    v = np.array([1, 2, 4], np.float32)
    (pulled,) = jax.vjp(lambda x: m @ x, v)[1](v)
    ways = {"a": m @ v, "b": m.T @ v}
    return next((name for name, want in ways.items() if np.allclose(pulled, want)), "?")


def axes_of_a_jacobian() -> str:
    """Question 3.c."""
    import jax
    import jax.numpy as jnp

    x = np.ones((2, 3), np.float32)
    out = jax.eval_shape(jax.jacrev(lambda x: jnp.ones((4, 2)) @ x @ jnp.ones(3)), x)
    return letter({(4, 6): "a", (2, 3, 4): "b", (4, 2, 3): "c"}, out.shape)


def slopes_behind_where() -> str:
    """Question 3.d."""
    import jax
    import jax.numpy as jnp

    def root(x: Any) -> Any:
        return jnp.where(x > 0, jnp.sqrt(x), 0.0)

    forward = jax.jvp(root, (0.0,), (1.0,))[1]
    finite = bool(np.isfinite(forward)), bool(np.isfinite(jax.grad(root)(0.0)))
    return letter({(True, True): "a", (True, False): "b", (False, False): "c"}, finite)


def largest_in_a_product() -> str:
    """Question 3.e."""
    import jax

    x = shapeless(1000)
    largest = largest_array(lambda x, v: jax.jvp(jax.grad(chain_energy), (x,), (v,))[1], x, x)
    return letter({1000: "a", 2000: "b", 1_000_000: "c"}, largest)


def curvature_of_a_linear_model() -> str:
    """Question 3.f."""
    import jax

    x = np.array([[1, 2], [3, -1], [0, 1]], np.float32)

    def loss(z: Any) -> Any:
        return jax.nn.logsumexp(z) - z[0]

    @jax.jit
    def both(w: Any) -> Any:
        slopes = jax.jacfwd(lambda w: x @ w)(w)
        gauss_newton = slopes.T @ jax.hessian(loss)(x @ w) @ slopes
        return gauss_newton, jax.hessian(lambda w: loss(x @ w))(w)

    first, second = map(np.asarray, both(np.array([0.5, -0.3], np.float32)))
    return "c" if np.allclose(first, second, atol=1e-4) else "b"


def one_probe_of_signs() -> str:
    """Question 3.g."""
    import jax
    import jax.numpy as jnp

    x = np.array([1, 2, 3], np.float32)
    signs = np.array([1, -1, -1], np.float32)
    product = jax.jvp(jax.grad(lambda x: jnp.sum(x**4)), (x,), (signs,))[1]
    return "b" if np.allclose(signs * np.asarray(product), 12 * x**2) else "a"


def slope_of_a_warm_start() -> str:
    """Question 3.h."""
    import jax

    slope = jax.grad(lambda a, x: 0.5 * x + a)(1.0, 2.0)
    return letter({0.0: "a", 2.0: "b", 1.0: "c"}, float(slope))


QUIZ = [
    Question(
        "3.a",
        "`f` maps 2 numbers to 500. How many passes does `jax.jacobian(f)(x)` make?",
        {"a": "500", "b": "2: it takes the cheaper mode", "c": "502"},
        "a",
        "`jax.jacobian` chooses nothing: it is `jacrev`, with one pull for each output.",
        "3.3",
        mode_of_jacobian,
    ),
    Question(
        "3.b",
        "M is a square matrix that is not symmetric, and `f = lambda x: M @ x`. What is"
        " `jax.vjp(f, x)[1](v)[0]`?",
        {"a": "`M @ v`", "b": "`M.T @ v`", "c": "it depends on x"},
        "b",
        "A pull is vᵀJ. For a square matrix the shape does not give the mistake away.",
        "3.6",
        pulled_through_a_matrix,
    ),
    Question(
        "3.c",
        "`x` has the shape (2, 3), `f(x)` has the shape (4,). Which has `jax.jacrev(f)(x)`?",
        {"a": "(4, 6)", "b": "(2, 3, 4): it goes backwards", "c": "(4, 2, 3)"},
        "c",
        "The axes of the output come first, in both modes.",
        "3.2",
        axes_of_a_jacobian,
    ),
    Question(
        "3.d",
        "`f = lambda x: jnp.where(x > 0, jnp.sqrt(x), 0.0)`. What do `jax.jvp` along 1 and"
        " `jax.grad` say at 0?",
        {"a": "0 and 0", "b": "0 and NaN", "c": "NaN and NaN"},
        "b",
        "Forwards, `where` discards the infinite slope. Backwards it is multiplied by 0.",
        "3.5",
        slopes_behind_where,
    ),
    Question(
        "3.e",
        "`f` is a function of 1000 numbers made of sums and powers. How many numbers has the"
        " largest array in the program of `jax.jvp(jax.grad(f), (x,), (v,))[1]`?",
        {"a": "1000", "b": "2000", "c": "1,000,000: the Hessian is in there somewhere"},
        "a",
        "The push travels through the gradient beside the values; no table is formed.",
        "3.6",
        largest_in_a_product,
    ),
    Question(
        "3.f",
        "A linear model, `predict = lambda w: X @ w`, under a cross-entropy. What are its"
        " Gauss–Newton matrix and its Hessian?",
        {"a": "never the same", "b": "the same at a perfect fit only", "c": "the same, everywhere"},
        "c",
        "What G leaves out is the curvature of the model, and a linear model has none.",
        "3.9",
        curvature_of_a_linear_model,
    ),
    Question(
        "3.g",
        "`f` is `jnp.sum(x**4)`, and s a vector of random signs. What is `s * (H @ s)`, H being the"
        " Hessian?",
        {"a": "its diagonal on average", "b": "its diagonal, exactly", "c": "its trace"},
        "b",
        "H is diagonal, and the square of a sign is 1.",
        "3.10",
        one_probe_of_signs,
    ),
    Question(
        "3.h",
        "x = x/2 + a has the solution x = 2a. An iteration starts at the solution and stops after"
        " one step. What is dx/da, differentiated through that loop?",
        {"a": "0: nothing moved", "b": "2, which is exact", "c": "1"},
        "c",
        "The loop has seen a once. Only the equation knows that x moves along with a.",
        "3.11",
        slope_of_a_warm_start,
    ),
]
