# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # 05 · Optimizers by hand
#
# An optimizer is ten lines of arithmetic, and nobody notices when one of them is wrong. The loss
# still falls. It falls more slowly, or stops a little higher; weights that were meant to be frozen
# shrink; a run that was restarted takes another path. There is no error to search for.
#
# So this chapter builds the optimizers that everybody uses out of pieces of a few lines, and
# proves each piece twice at every step: against NumPy in float64, and against optax. Then it takes
# pieces out, one at a time, and measures what is missing.
#
# Afterwards you can
#
# - write an optimizer as a pair of pure functions that jit, scan and donate;
# - say what momentum does to the length of a step, and what bias correction does to the first;
# - tell weight decay from an L2 penalty, and know which one a line of code computes;
# - see where a bfloat16 state silently stops to move;
# - accumulate gradients, freeze layers, and give each group of parameters its own optimizer,
#   without the traps that lie there.
#
# Reading and running takes about an hour, the five exercises another two. You need `jax.jit` from
# chapter 01 and pytrees as far as `jax.tree.map`.
#
# | mark | means |
# |---|---|
# | ❌ | a mistake, and what it costs |
# | ✅ | the way to do it, and the proof |
# | ✍️ | your turn |
# | 🧪 | a check, or a question of the quiz |
# | 💡 | a rule to keep |

# %% tags=["setup"]
import re
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array
from jax.typing import ArrayLike

# %% tags=["setup"]
from helpers import (
    COLORS,
    CompileBudget,
    CompileCounter,
    assert_close,
    assert_equal,
    assert_finite,
    check,
    describe,
    figure,
    label_line,
    quiz,
    show_error,
    to64,
)
from helpers.trees import Tree

# %% [markdown]
# ## 5.1 A pair of functions
#
# Plain gradient descent needs no memory. Everything better does: momentum keeps a sum of past
# gradients, Adam two averages. Where does it live? In most frameworks, in an object that changes
# itself. ❌ Here is that object, with its step jitted:


# %% tags=["given"]
class Momentum:
    """Gradient descent with momentum, the way one would write it without JAX."""

    def __init__(self, rate, decay):
        self.rate, self.decay, self.trace = rate, decay, 0.0

    def step(self, params, gradient):
        self.trace = gradient + self.decay * self.trace
        return params - self.rate * self.trace


def three_steps(step):
    """Where three steps with a gradient of 1 lead from 0."""
    p, path = 0.0, []
    for _ in range(3):
        p = step(p, 1.0)
        path.append(float(p))
    return path


# %% tags=["claim"]
without_jit = three_steps(Momentum(0.1, 0.9).step)
optimizer = Momentum(0.1, 0.9)
with_jit = three_steps(jax.jit(optimizer.step))

print("without jit:", np.round(without_jit, 3))
print("with jit:   ", np.round(with_jit, 3))
assert_close(without_jit, -0.1 * np.cumsum([1, 1.9, 2.71]), rtol=1e-6)
assert_close(with_jit, [-0.1, -0.2, -0.3], rtol=1e-6)

try:
    optimizer.trace + 1
except jax.errors.UnexpectedTracerError as error:
    kind = type(error).__name__
print("its trace is now:", kind)
assert kind == "UnexpectedTracerError"

# %% [markdown]
# Under jit, the momentum is gone: each step is as long as the first. Python ran the method once,
# while it was traced, and the trace of that moment, zero, became a constant of the program. No
# error is raised until somebody looks at `optimizer.trace`, where a tracer is left.
#
# ✅ A program sees what goes in and gives back what comes out, so the memory has to do both. That
# makes an optimizer a pair of functions: `init` makes the first **state** from the parameters, and
# `update` turns gradients and a state into **updates** and the next state. It is the protocol of
# optax; the course's library has it in one page.

# %% tags=["given"]
# quote: helpers.optim.GradientTransformation


# quote: helpers.optim.apply_updates


# %% [markdown]
# `apply_updates` *adds*. An update is a step that is to be taken, so the minus sign of "downhill"
# is part of it. And each parameter keeps its dtype: a float32 rate would widen a bfloat16 model,
# and chapter 06 shows what that does to donation.
#
# Momentum, once more, as a pair:


# %% tags=["given"]
def momentum_pair(rate, decay):
    """The class from above as two pure functions."""

    def init(params):
        return jax.tree.map(jnp.zeros_like, params)

    def update(gradients, trace, params):
        trace = jax.tree.map(lambda g, t: g + decay * t, gradients, trace)
        return jax.tree.map(lambda t: -rate * t, trace), trace

    return GradientTransformation(init, update)


# %% tags=["claim"]
pair = momentum_pair(0.1, 0.9)
pair_update = jax.jit(pair.update)
p = np.float32(0)
state, path = pair.init(p), []
for _ in range(3):
    updates, state = pair_update(np.float32(1), state, p)
    p = apply_updates(p, updates)
    path.append(float(p))

print("as a pair, with jit:", np.round(path, 3))
assert_close(path, without_jit, rtol=1e-6)
assert apply_updates(jnp.ones(2, jnp.bfloat16), jnp.ones(2)).dtype == jnp.bfloat16

# %% [markdown]
# Two pure functions can be jitted, and also scanned. The next cell runs any optimizer over given
# gradients, all steps in one program, and returns the parameters after each. Beside it stand a
# small problem, a vector and a matrix with twelve gradients, and the assertion that this chapter
# lives by: **the same steps as optax and as float64, to within 1e-6.**


# %% tags=["given"]
@partial(jax.jit, static_argnums=0)
def follow(optimizer, params, gradients):
    """The parameters after each step. gradients: like the params, with an axis for the steps."""

    def step(carry, gradient):
        params, state = carry
        updates, state = optimizer.update(gradient, state, params)
        params = apply_updates(params, updates)
        return (params, state), params

    return jax.lax.scan(step, (params, optimizer.init(params)), gradients)[1]


def draw(rng, scale, *steps):
    """A vector "b" and a matrix "w" of normal numbers."""
    return {
        "b": (scale * rng.standard_normal((*steps, 3))).astype(np.float32),
        "w": (scale * rng.standard_normal((*steps, 2, 3))).astype(np.float32),
    }


rng = np.random.default_rng(5)
params, gradients = draw(rng, 1.0), draw(rng, 1.5, 12)


# %% tags=["given"]
def assert_same_steps(name, ours, theirs, by_hand):
    """Twelve steps of three implementations, each within 1e-6 of ours.

    by_hand: (leaf's name, its value, its gradients), in float64, → its values after each step.
    """
    got, want = follow(ours, params, gradients), follow(theirs, params, gradients)
    assert_close(got, to64(want), rtol=0, atol=1e-6, label="optax")
    exact = {leaf: by_hand(leaf, to64(params[leaf]), to64(gradients[leaf])) for leaf in params}
    assert_close(got, exact, rtol=0, atol=1e-6, label="float64")
    print(f"{name:22} {len(got['b'])} steps, within 1e-6 of float64 and of optax")


def descent64(p, gradients, rate=0.01, decay=0.0, nesterov=False):
    """Gradient descent with (Nesterov) momentum, one leaf in float64."""
    trace, path = 0.0, []
    for g in gradients:
        trace = g + decay * trace
        p = p - rate * (g + decay * trace if nesterov else trace)
        path.append(p)
    return np.array(path)


# %% tags=["claim"]
assert_same_steps(
    "momentum, as a pair",
    momentum_pair(0.01, 0.9),
    optax.sgd(0.01, momentum=0.9),
    lambda leaf, p, g: descent64(p, g, decay=0.9),
)

# %% [markdown]
# An assertion that can't fail proves nothing. Give one of the other two a decay of 0.89, and it
# says whose steps differ.


# %% tags=["claim"]
def complaint(decay_of_optax, decay_in_float64):
    """Whom the assertion finds to differ from momentum with a decay of 0.9."""
    try:
        assert_same_steps(
            "momentum",
            momentum_pair(0.01, 0.9),
            optax.sgd(0.01, momentum=decay_of_optax),
            lambda leaf, p, g: descent64(p, g, decay=decay_in_float64),
        )
    except AssertionError as error:
        return re.match(r"\w+", str(error))[0]


found = [complaint(0.89, 0.9), complaint(0.9, 0.89)]
print("a decay of 0.89 is noticed in", " and in ".join(found))
assert found == ["optax", "float64"]

# %% [markdown]
# 💡 **An optimizer remembers nothing by itself: its memory goes in, and comes out.**

# %% [markdown]
# ## 5.2 One after the other
#
# Clip, add momentum, decay, multiply by the rate: each of these turns updates into updates. So
# each can be a pair of its own, and a whole optimizer is a **chain** of them. Its state is the
# tuple of their states.

# %% tags=["given"]
# quote: helpers.optim.chain


# quote: helpers.optim.stateless


# quote: helpers.optim.scale


# %% [markdown]
# Gradient descent is then a chain with one link. The learning rate stands last, with the minus
# sign that makes it go downhill.

# %% tags=["claim"]
assert_same_steps(
    "descent",
    chain(scale(-0.01)),
    optax.sgd(0.01),
    lambda leaf, p, g: descent64(p, g),
)
assert chain(scale(2.0), scale(-0.01)).init(params) == ((), ())

# %% [markdown]
# ❌ Without the sign it climbs, and the first loss that you print does not show it. Here a bowl,
# x² / 2, whose gradient is x: five steps of 0.5, with and without.

# %% tags=["claim"]
ends = {}
for sign in (-1.0, 1.0):
    x = np.float32(1)
    for _ in range(5):
        updates, _ = scale(sign * 0.5).update(x, (), x)
        x = apply_updates(x, updates)
    ends[sign] = float(x)
print(f"with the sign: x = {ends[-1.0]:.4f}, without: x = {ends[1.0]:.4f}")
assert_close(ends[-1.0], 0.5**5, rtol=1e-6)
assert_close(ends[1.0], 1.5**5, rtol=1e-6)

# %% [markdown]
# The order of the links matters, and any order runs. Take a limit on the length of the update, 1,
# and a rate of 0.1. Before the rate, the limit is one for gradients, and no step is longer than
# 0.1. ❌ Behind it, the limit is one for steps, and a gradient ten times as long passes untouched.

# %% tags=["given"]
# quote: helpers.trees.global_norm


# quote: helpers.trees.clip_to_norm


# quote: helpers.optim.clip_by_global_norm


# %% tags=["claim"]
steep = {"b": np.float32([3, 0, 0]), "w": np.float32([[0, 4, 0], [0, 0, 0]])}
orders = {
    "clip, then rate": chain(clip_by_global_norm(1.0), scale(-0.1)),
    "rate, then clip": chain(scale(-0.1), clip_by_global_norm(1.0)),
}
lengths = {}
for name, optimizer in orders.items():
    updates, _ = optimizer.update(steep, optimizer.init(steep), steep)
    lengths[name] = float(global_norm(updates))
    print(f"{name}: a gradient of length 5 becomes a step of {lengths[name]:.1f}")
assert_close(global_norm(steep), 5.0, rtol=1e-6)
assert_close(list(lengths.values()), [0.1, 0.5], rtol=1e-6)
assert_equal(clip_to_norm(steep, 8.0), steep)

# %% [markdown]
# A tree within the limit stays as it is. A length is computed in float32 at least, for in float16
# the square of 300 is infinite; what is clipped keeps its dtype.

# %% tags=["claim"]
halves = np.full(4, 300, np.float16)
shorter = clip_to_norm(halves, 6.0)
print(f"length {float(global_norm(halves))}, clipped to 6: {np.array(shorter)}, {shorter.dtype}")
assert_equal(global_norm(halves), 600)
assert_equal(shorter, np.full(4, 3))
assert shorter.dtype == jnp.float16
assert jnp.isinf(jnp.square(halves)).all()

# %% [markdown]
# ✅ Read a chain as a sentence: what is done to the gradient comes first, the rate last. Because
# the protocol is optax's, links of both mix in one chain, in both directions:

# %% tags=["claim"]
mixed = chain(optax.clip_by_global_norm(1.0), scale(-0.01))
other = optax.chain(clip_by_global_norm(1.0), optax.scale(-0.01))
ours, theirs = follow(mixed, params, gradients), follow(other, params, gradients)
print("links of optax and ours mix:", np.allclose(ours["w"], theirs["w"], rtol=0, atol=1e-6))
assert_close(ours, to64(theirs), rtol=0, atol=1e-6)

# %% [markdown]
# 💡 **The rate is the last link, and it carries the minus.**

# %% [markdown]
# ## 5.3 Momentum is a sum
#
# In a long valley the gradient points mostly from wall to wall, and only a little along the
# bottom. What is added up over many steps cancels across the valley and grows along it. That is
# momentum: t ← g + decay · t. Nesterov's variant looks one step ahead, and uses g + decay · t with
# the new t.

# %% tags=["given"]
# quote: helpers.optim.TraceState


# quote: helpers.optim.trace


# %% tags=["claim"]
for name, nesterov in (("momentum", False), ("Nesterov", True)):
    assert_same_steps(
        name,
        chain(trace(0.9, nesterov), scale(-0.01)),
        optax.sgd(0.01, momentum=0.9, nesterov=nesterov),
        partial(
            lambda leaf, p, g, nesterov: descent64(p, g, 0.01, 0.9, nesterov), nesterov=nesterov
        ),
    )

# %% [markdown]
# ❌ The name "momentum" is also used for an average, (1 − decay) · g + decay · t. Whoever takes a
# rate from one text and the code from another is off by 1 / (1 − decay): a constant gradient g
# ends as a step of 10 g with a decay of 0.9, and of g with the average.

# %% tags=["claim"]
constant = np.ones(100, np.float32)
path = np.array(follow(chain(trace(0.9), scale(-1.0)), jnp.float32(0), constant))
steps_taken = -np.diff(path, prepend=0)
print("steps 1, 10, 100 for a gradient of 1:", np.round(steps_taken[[0, 9, 99]], 2))
assert_close(steps_taken, (1 - 0.9 ** np.arange(1, 101)) / (1 - 0.9), rtol=1e-3)

# %% [markdown]
# So is momentum gradient descent with a rate ten times as large? No, and this is the point of it.
# Take a bowl of curvature h, h · x² / 2. Plain descent multiplies x by 1 − rate · h at each step,
# and diverges when rate · h is over 2. Below, 200 steps are taken from x = 1 for each of many
# rates, and one program takes them for all: a rate may be traced like any other number.


# %% tags=["given"]
def distance(rate, momentum, nesterov):
    """|x| after 200 steps in a bowl of curvature 1, from x = 1."""
    links = [scale(-rate)] if momentum is None else [trace(momentum, nesterov), scale(-rate)]
    optimizer = chain(*links)

    def step(carry, _):
        x, state = carry
        updates, state = optimizer.update(x, state, x)
        return (apply_updates(x, updates), state), None

    start = jnp.ones(())
    (x, _), _ = jax.lax.scan(step, (start, optimizer.init(start)), length=200)
    return jnp.abs(x)


rates = np.linspace(0.02, 4.4, 220, dtype=np.float32)
methods = {"descent": (None, False), "momentum": (0.9, False), "Nesterov": (0.9, True)}
distances = {
    name: np.array(jax.jit(jax.vmap(partial(distance, momentum=m, nesterov=n)))(rates))
    for name, (m, n) in methods.items()
}

# %% tags=["claim"]
limits = {name: float(rates[found < 1].max()) for name, found in distances.items()}
for name, limit in limits.items():
    print(f"{name:9} comes nearer up to rate · h = {limit:.1f}")
exact = {"descent": 2.0, "momentum": 2 * (1 + 0.9), "Nesterov": 2 * (1 + 0.9) / (1 + 2 * 0.9)}
for name, limit in limits.items():
    assert_close(limit, exact[name], rtol=0, atol=0.08)
slow = rates < 2
exact_distance = np.abs(1 - to64(rates[slow])) ** 200
assert_close(distances["descent"][slow], exact_distance, rtol=1e-3, atol=1e-30)

# %% tags=["figure"]
fig, ax = figure(
    "Momentum tolerates longer steps, Nesterov shorter",
    "rate · curvature",
    "|x| after 200 steps (log scale)",
)
for (name, found), color in zip(
    distances.items(), (COLORS.reference, COLORS.right, COLORS.wrong), strict=True
):
    ax.semilogy(rates, np.clip(np.nan_to_num(found, nan=1e9), 1e-12, 1e9), color=color)
    side = ("left", 0.1) if name == "descent" else ("right", -0.08)
    ax.annotate(name, (exact[name] + side[1], 1e3), color=color, fontweight="bold", ha=side[0])
ax.axhline(1, color=COLORS.ink, linewidth=0.8, linestyle=":")
ax.set_ylim(1e-12, 2e4)
ax.set_yticks([1e-12, 1e-8, 1e-4, 1])
assert limits["Nesterov"] < limits["descent"] < limits["momentum"]
describe(
    fig,
    "Distance after 200 steps against rate times curvature: it passes 1 at 1.36 for Nesterov, at 2 "
    "for plain descent and at 3.8 for momentum.",
)

# %% [markdown]
# Momentum with 0.9 tolerates rates up to 3.8 / h, almost twice as large, while its steps along a
# gentle slope are ten times as long. Both together are why it gets through a valley. Nesterov's
# variant pays for its look ahead: it diverges from 1.36 / h on. A rate that was tuned for
# momentum may be too large when someone sets `nesterov=True`.

# %% tags=["claim"]
print(f"momentum up to {exact['momentum']:.2f} / h, Nesterov up to {exact['Nesterov']:.2f} / h")
assert_close(exact["momentum"], 3.8, rtol=1e-6)
assert_close(exact["Nesterov"], 1.36, rtol=0, atol=0.005)
assert_close(steps_taken[-1], 10, rtol=1e-3)

# %% [markdown]
# 💡 **Momentum is a sum: a steady gradient counts `1 / (1 - decay)` times.**

# %% [markdown]
# ## 5.4 Adam
#
# Layers differ: a gradient of 100 here, of 0.01 there, and one rate for both. **Adam** divides
# each entry's mean gradient by the root of its mean square. What is left is about 1 where the
# gradients agree in sign, and near 0 where they don't. Both means are moving averages, and both
# are arrays like the parameters.

# %% tags=["given"]
# quote: helpers.optim.ScaleByAdamState


# quote: helpers.optim.scale_by_adam


# %% tags=["given"]
def adam64(p, gradients, rate=0.01, b1=0.9, b2=0.999, eps=1e-8, decay=0.0):
    """Adam with decoupled decay, one leaf in float64. rate: a number, or one for each step."""
    m = v = 0.0
    path = []
    for t, g in enumerate(gradients, 1):
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g**2
        direction = (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
        p = p - np.broadcast_to(rate, len(gradients))[t - 1] * (direction + decay * p)
        path.append(p)
    return np.array(path)


# %% tags=["claim"]
assert_same_steps(
    "Adam",
    chain(scale_by_adam(), scale(-0.01)),
    optax.adam(0.01),
    lambda leaf, p, g: adam64(p, g),
)

# %% [markdown]
# The direction has no unit. Multiply all gradients by a thousand, and Adam takes the same steps;
# a loss that is summed in place of averaged changes nothing. So the rate of Adam is a length: how
# far a parameter moves in a step, whatever the gradient.

# %% tags=["claim"]
loud = jax.tree.map(lambda g: 1000 * g, gradients)
adam_only = chain(scale_by_adam(), scale(-0.01))
assert_close(follow(adam_only, params, loud), to64(follow(adam_only, params, gradients)), rtol=1e-5)

first = np.array(follow(adam_only, params, gradients)["w"][0]) - params["w"]
print("first step, in rates:", np.round(first.ravel() / 0.01, 3))
assert_close(np.abs(first), np.full((2, 3), 0.01), rtol=1e-4)

# %% [markdown]
# ❌ Now leave something out. The averages start at zero, so after one step they hold a tenth of
# the gradient and a thousandth of its square. The **bias correction** divides by what is missing,
# 1 − bᵗ. It looks like a detail of the first steps. Here is Adam without it:


# %% tags=["given"]
def scale_by_raw_adam(b1=0.9, b2=0.999, eps=1e-8):
    """Adam without bias correction."""
    adam = scale_by_adam(b1, b2, eps)

    def update(gradients, state, params):
        _, state = adam.update(gradients, state, params)
        raw = jax.tree.map(lambda m, n: m / (jnp.sqrt(n) + eps), state.mu, state.nu)
        return raw, state

    return GradientTransformation(adam.init, update)


def step_lengths(transformation, gradients):
    """How far each step goes with a rate of 1, for one parameter and gradients above 0."""
    return np.diff(to64(follow(transformation, jnp.zeros(()), gradients)), prepend=0)


# %% tags=["claim"]
ones = np.ones(5000, np.float32)
raw, corrected = (step_lengths(t, ones) for t in (scale_by_raw_adam(), scale_by_adam()))
worst = int(np.argmax(raw)) + 1
print(f"without correction, step 1 is {raw[0]:.2f} times as long as it should be,")
print(f"step {worst} is {raw.max():.2f} times, and step 1000 still {raw[999]:.2f} times")

t = np.arange(1, 5001)
assert_close(corrected, np.ones(5000), rtol=2e-3)
assert_close(raw, (1 - 0.9**t) / np.sqrt(1 - 0.999**t), rtol=2e-3)
assert_close(raw[0], np.sqrt(10), rtol=1e-3)
assert 10 <= worst <= 14 and 6.5 < raw.max() < 6.6 and raw[999] > 1.2

# %% tags=["figure"]
fig, ax = figure(
    "Without bias correction, steps first get longer still",
    "step (log scale)",
    "length of the step (rates)",
)
ax.set_xlim(1, 5000)
for drawn, name, color, dy in (
    (raw, "without", COLORS.wrong, 6),
    (corrected, "with", COLORS.right, -6),
):
    (line,) = ax.semilogx(t, drawn, color=color)
    label_line(line, name, dy)
ax.annotate("√10 at step 1", (1.3, 3.0), color=COLORS.wrong)
ax.annotate("6.57 at step 12", (17, raw.max()), color=COLORS.wrong, va="center")
ax.set_xticks([1, 10, 100, 1000], ["1", "10", "100", "1000"])
ax.set_yticks([1, 3, 5, 7])
assert round(float(raw.max()), 2) == 6.57 and worst == 12
describe(
    fig,
    "Length of Adam's steps for a constant gradient. Without bias correction: 3.16 at step 1, 6.57 "
    "at step 12, 1.26 at step 1000. With it: 1 throughout.",
)

# %% [markdown]
# The first step is √10 = 3.16 times too long, and that is the best of the first fifty. The mean
# of the gradients fills up a hundred times faster than the mean of their squares, so the ratio
# grows until step 12. A warm-up hides it: whoever trains with one may never notice that the
# correction is missing.

# %% tags=["claim"]
print("steps 2 to 50 longer than the first:", bool(np.all(raw[1:50] > raw[0])))
assert_close(raw[0], 3.16, rtol=1e-3)
assert np.all(raw[1:50] > raw[0])

# %% [markdown]
# The other constant, `eps`, is a threshold with the unit of a gradient. Far below it, Adam is no
# longer Adam: its steps shrink with the gradient. ❌ With gradients of 1e-10, as a loss averaged
# over very many tokens may have, the steps are 1 % of what they should be. Adam loses what was said
# about units above.

# %% tags=["claim"]
faint = step_lengths(scale_by_adam(), 1e-10 * np.ones(3, np.float32))
print("gradients of 1e-10: steps of", np.round(faint, 4), "rates")
path64 = adam64(0.0, np.full(3, 1e-10), rate=1.0)
assert_close(faint, -np.diff(path64, prepend=0), rtol=1e-3)
assert_close(faint, np.full(3, 1e-10 / (1e-10 + 1e-8)), rtol=1e-3)
assert_close(faint, np.full(3, 0.01), rtol=0.02)

# %% [markdown]
# And `eps` stands *outside* of the root. That matters to whoever differentiates through a step of
# Adam, to learn a learning rate or an initialization: at a gradient of zero the slope of the root
# is infinite, and the derivative NaN (chapter 02). Optax has a second constant for this inside of
# the root.


# %% tags=["claim"]
def first_update(gradient, **constants):
    """Adam's first update of a single parameter."""
    adam = optax.adam(0.1, **constants)
    return adam.update(gradient, adam.init(gradient), gradient)[0]


plain, mended = (
    jax.grad(partial(first_update, **constants))(0.0) for constants in ({}, {"eps_root": 1e-8})
)
print(f"slope at 0: {plain}, with eps_root: {'finite' if np.isfinite(mended) else mended}")
assert np.isnan(plain) and np.isfinite(mended)

# %% [markdown]
# 💡 **Adam's rate is the length of a step. What starts at zero needs its bias corrected.**

# %% [markdown]
# ## 5.5 An average that never moves
#
# A bfloat16 takes half the memory of a float32, and of the three arrays that a training with Adam
# keeps for each parameter, itself included, two are moments.
# But it has 8 significant bits: between 1 and 2 the next number is 1/128 away, and what is less
# than half of that is rounded off. A moving average with a decay of 0.999 moves by a thousandth of
# the distance. ❌ So it does not move:


# %% tags=["claim"]
@partial(jax.jit, static_argnums=0)
def averaged(dtype, target):
    """A moving average that starts at 1 and sees the target, a thousand times."""

    def step(average, _):
        return (0.999 * average + 0.001 * target.astype(dtype)).astype(dtype), None

    return jax.lax.scan(step, jnp.ones((), dtype), length=1000)[0]


ends = {dtype: float(averaged(dtype, np.float32(1.5))) for dtype in ("float32", "bfloat16")}
for dtype, end in ends.items():
    print(f"from 1 towards 1.5, after 1000 steps in {dtype:8}: {end:.4f}")
assert_close(ends["float32"], 1.5 - 0.5 * 0.999**1000, rtol=1e-4)
assert ends["bfloat16"] == 1.0
assert float(jnp.finfo(jnp.bfloat16).eps) == 1 / 128

# %% [markdown]
# ❌ The constant itself is lost, too. The bfloat16 numbers next to 0.999 are 0.996 and 1, and it is
# rounded to 1. What is multiplied by it never decays: an average that is to forget what it saw, and
# sees zeros for a thousand steps, forgets nothing.

# %% tags=["claim"]
decay = jnp.asarray(0.999, jnp.bfloat16)
below = np.nextafter(jnp.ones((), jnp.bfloat16), jnp.zeros((), jnp.bfloat16))
left = {dtype: float(averaged(dtype, np.float32(0))) for dtype in ("float32", "bfloat16")}
print(f"0.999 in bfloat16 is {float(decay)}, the number below {float(below):.3f}")
print(f"1 after 1000 zeros: {left['float32']:.3f} in float32, {left['bfloat16']} in bfloat16")
assert decay == 1 and float(below) == 1 - 2**-8
assert_close(left["float32"], 0.999**1000, rtol=1e-3)
assert left["bfloat16"] == 1.0

# %% [markdown]
# Adam's second moment is such an average. It starts at zero, where bfloat16 is fine, and climbs
# until its own spacing is larger than its steps. Then it stops, and every step that divides by it
# is too long. `zeros_like(params)` gives the moments the dtype of the parameters, here and in
# optax, so a bfloat16 model has bfloat16 moments unless somebody asks for others.


# %% tags=["given"]
@partial(jax.jit, static_argnums=0)
def second_moments(dtype):
    """Adam's second moment at each of 3000 steps with a gradient of 1."""
    adam = scale_by_adam()
    gradient = jnp.ones((), dtype)

    def step(state, _):
        _, state = adam.update(gradient, state, gradient)
        return state, state.nu

    return jax.lax.scan(step, adam.init(gradient), length=3000)[1]


wide, narrow = (np.array(second_moments(d)).astype(np.float64) for d in ("float32", "bfloat16"))

# %% tags=["claim"]
print(f"second moment after 3000 steps: {wide[-1]:.2f} in float32, {narrow[-1]:.2f} in bfloat16")
assert_close(wide, 1 - 0.999 ** np.arange(1, 3001), rtol=1e-3)
assert narrow[-1] == narrow[1000] == 0.5
narrow_one = jnp.ones(2, jnp.bfloat16)
state = scale_by_adam().init(narrow_one)
direction, state = scale_by_adam().update(narrow_one, state, narrow_one)
assert direction.dtype == state.nu.dtype == jnp.bfloat16
assert optax.adam(0.1).init(narrow_one)[0].nu.dtype == jnp.bfloat16

# %% tags=["figure"]
fig, ax = figure(
    "In bfloat16 Adam's second moment stops half-way",
    "step",
    "second moment of gradients of 1",
)
for moments, name, color in ((wide, "float32", COLORS.right), (narrow, "bfloat16", COLORS.wrong)):
    (line,) = ax.plot(np.arange(1, 3001), moments, color=color)
    label_line(line, name)
ax.set_xlim(0, 3000)
ax.set_ylim(0, 1.02)
ax.set_yticks([0, 0.5, 1])
assert narrow.max() == 0.5
describe(
    fig,
    "Second moment of a constant gradient over 3000 steps: in float32 it approaches 1, in bfloat16 "
    "it stays at 0.5.",
)

# %% [markdown]
# Parameters have the same problem. ❌ A weight of 1 and a step of 0.001: the sum is 1, in the
# first step and in all that follow. ✅ So whatever is changed a little, many times, is kept in
# float32: parameters, moments, averages. What is computed from them anew at each step, activations
# and gradients, may be narrow.

# %% tags=["claim"]
steps = np.full(1000, 0.001, np.float32)
ends = {}
for dtype in ("bfloat16", "float32"):
    path = follow(chain(scale(-1.0)), jnp.ones((), dtype), steps)
    ends[dtype] = float(path[-1])
    print(f"1 − 1000 · 0.001 in {dtype:8} = {ends[dtype]:.3f}")
assert ends["bfloat16"] == 1.0
assert abs(ends["float32"]) < 1e-4

# %% [markdown]
# 💡 **What changes a little at each step is float32. Only what is made anew may be narrow.**

# %% [markdown]
# ## 5.6 Decay is not a penalty
#
# **Weight decay** pulls each parameter towards zero by a fixed share of itself. For plain descent
# that is the same as adding a penalty, λ · p² / 2, to the loss, whose gradient is λ · p. So for
# years the two were one option with one name. With Adam they are two different things, and which
# of them you get depends on where one link stands.

# %% tags=["given"]
# quote: helpers.optim.Mask


# quote: helpers.optim.add_decayed_weights


# quote: helpers.optim.matrices


# %% [markdown]
# ❌ Before Adam, it is a penalty, and Adam divides it by the size of the gradient like everything
# else. Watch a parameter whose gradient is zero, a dead unit or an embedding that no text uses.
# The penalty is then the whole gradient, and Adam makes a full step of it. The strength of the
# penalty cancels:

# %% tags=["claim"]
nothing, start = np.zeros((10, 2), np.float32), np.float32([1.0, 5.0])
moved = {}
for strength in (0.0001, 0.1):
    penalty = chain(add_decayed_weights(strength), scale_by_adam(), scale(-0.01))
    decoupled = chain(scale_by_adam(), add_decayed_weights(strength), scale(-0.01))
    for name, optimizer in (("penalty", penalty), ("decay", decoupled)):
        moved[name, strength] = start - np.array(follow(optimizer, start, nothing)[-1])
        print(f"{name:8} of {strength:6}: 1 and 5 shrink by {moved[name, strength].round(5)}")

assert_close(moved["penalty", 0.0001], [0.1, 0.1], rtol=0.02)
assert_close(moved["penalty", 0.1], [0.1, 0.1], rtol=0.02)
for strength in (0.0001, 0.1):
    exact = to64(start) * (1 - (1 - 0.01 * strength) ** 10)
    assert_close(moved["decay", strength], exact, rtol=0.02, atol=3e-6)

# %% [markdown]
# A penalty of 0.0001 and one of 0.1 do the same, and take as much from 1 as from 5. ✅ Behind
# Adam, it is a decay: proportional to the parameter and to its strength. That chain is **AdamW**.
#
# The other way round it fails where gradients are large. Below, two parameters see noise without
# any direction, one of size 100 and one of size 0.001. Decay treats both alike. The penalty, 0.1
# of the parameter, is drowned in the loud one and rules the quiet one.

# %% tags=["claim"]
noise = np.random.default_rng(1).choice([-1.0, 1.0], 400)
sizes = np.array([100, 0.001])
noise = np.float32(np.repeat(noise, 2) * np.tile([1, -1], 400))[:, None] * np.float32(sizes)
kept = {}
for name, optimizer in (("penalty", penalty), ("decay", decoupled), ("neither", adam_only)):
    kept[name] = np.array(follow(optimizer, jnp.ones(2), noise)[-1])
    loud_end, quiet_end = kept[name]
    print(f"{name:8} of 0.1: the loud one ends at {loud_end:.2f}, the quiet one at {quiet_end:.2f}")

assert abs(kept["neither"][0] - kept["neither"][1]) < 0.02
assert abs(kept["decay"][0] - kept["decay"][1]) < 0.02
assert abs(kept["penalty"][0] - kept["neither"][0]) < 0.05 and abs(kept["penalty"][1]) < 0.1

# %% [markdown]
# Not every parameter should be decayed. Biases and the scales of normalization have a value of
# their own to keep; zero is nothing that they should tend to. The usual **mask** is by rank: decay
# matrices, leave vectors. A mask is a tree of Python bools, because it decides what the program
# is, or a function from parameters to such a tree.

# %% tags=["claim"]
print("decayed:", matrices(params))
assert matrices(params) == {"b": False, "w": True}

assert_same_steps(
    "AdamW with a mask",
    chain(scale_by_adam(), add_decayed_weights(0.1, mask=matrices), scale(-0.01)),
    optax.adamw(0.01, weight_decay=0.1, mask={"b": False, "w": True}),
    lambda leaf, p, g: adam64(p, g, decay=0.1 if leaf == "w" else 0.0),
)

# %% [markdown]
# ❌ The rule of rank has a hole. A model that scans over its layers holds their biases as one
# array of shape (layers, width), and that is a matrix by rank. Such a model needs a mask by name.

# %% tags=["claim"]
scanned = {"b": jnp.zeros((6, 3)), "w": jnp.zeros((6, 2, 3))}
print("six layers in one array, decayed:", matrices(scanned))
assert matrices(scanned) == {"b": True, "w": True}
assert len(scanned["b"]) == 6

# %% [markdown]
# One more thing is hidden in the chain: the rate stands behind the decay, so it scales it. A
# weight decay of 0.1 at a rate of 0.001 takes 0.0001 of a parameter at each step, and halving the
# rate halves the decay. It is so in optax and in PyTorch, and not so in the paper, where the decay
# follows the schedule but not the rate. Whoever tunes the rate tunes both.

# %% tags=["claim"]
for rate in (0.001, 0.0005):
    theirs = optax.adamw(rate, weight_decay=0.1)
    update, _ = theirs.update(np.zeros(1, np.float32), theirs.init(jnp.ones(1)), jnp.ones(1))
    print(f"rate {rate}: a weight of 1 loses {-float(update[0]):.5f}")
    assert_close(update, [-0.1 * rate], rtol=1e-6)
assert_close(0.1 * 0.001, 0.0001, rtol=1e-12)

# %% [markdown]
# 💡 **Behind Adam it is decay, before Adam a penalty. The rate scales both.**

# %% [markdown] exercise="5.1"
# **Lion** (Chen et al. 2023) keeps one moment, and all its steps have the same length: it takes the
# sign of a blend of moment and gradient. Write `lion(learning_rate, b1, b2, weight_decay, mask)`,
# which returns a `GradientTransformation`:
#
# - blend = b1 · m + (1 − b1) · g, with the moment *before* this step, which starts at zero;
# - update = −rate · (sign(blend) + weight_decay · p), the decay only where the mask is true;
# - then m ← b2 · m + (1 − b2) · g.
#
# `learning_rate` is a number, or a function from the number of steps done (0 at the first step) to
# a number. `mask` is a tree of Python bools like the parameters, a function from the parameters
# to such a tree, or None, which decays all of them.
#
# The moment is float32 whatever the parameters are, and each update has the dtype of its
# parameter. The state holds one float32 number for each parameter, and at most 8 bytes more. The
# check jits `update`; one of the leaves is bfloat16.


# %% tags=["starter"] exercise="5.1"
def lion(learning_rate, b1=0.9, b2=0.99, weight_decay=0.0, mask=None):
    """Lion, with decoupled decay and a float32 moment."""
    ### BEGIN SOLUTION

    def init(params):
        moment = jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)
        return jnp.zeros((), jnp.int32), moment

    def update(gradients, state, params):
        steps, moment = state
        rate = learning_rate(steps) if callable(learning_rate) else learning_rate
        chosen = mask(params) if callable(mask) else mask
        if chosen is None:
            chosen = jax.tree.map(lambda p: True, params)

        def move(g, m, p, decayed):
            direction = jnp.sign(b1 * m + (1 - b1) * g)
            return (-rate * (direction + decayed * weight_decay * p)).astype(p.dtype)

        updates = jax.tree.map(move, gradients, moment, params, chosen)
        moment = jax.tree.map(lambda g, m: b2 * m + (1 - b2) * g, gradients, moment)
        return updates, (steps + 1, moment)

    return GradientTransformation(init, update)
    ### END SOLUTION


# %% [markdown] exercise="5.2"
# Adam's second moment takes as much memory as the parameters. **Adafactor** (Shazeer and Stern
# 2018) keeps, for a matrix, only the means of its rows and columns, and puts the matrix together
# again when it divides. Write `scale_by_factored_rms(b2, eps)`, which returns a
# `GradientTransformation` without a learning rate. At step t = 1, 2, …, for each leaf:
#
# - With two axes or more, the last two are a matrix, and those before them count matrices, each of
#   which is treated by itself. R ← b2 · R + (1 − b2) · mean of (g² + eps) over the last axis, and
#   C likewise over the last but one. Both start at zero, and both are divided by 1 − b2ᵗ when they
#   are used. The moment is V = R · C / mean(R), row i times column j, where mean(R) is over the
#   rows of the matrix.
# - With one axis or none, V is the moving average of g² + eps itself, divided by 1 − b2ᵗ.
# - The update is g / √V.
#
# The gradients are float32, and so is all that is computed from them. It has to be right for
# gradients of size 1e-12, and exactly 0 for a leaf whose gradients are all 0, with `eps` = 1e-30.
# Mind what R · C is then. The state holds rows, columns and whole moments of vectors in float32,
# and at most 8 bytes more; never an array of a matrix's shape. The check jits `update`.


# %% tags=["starter"] exercise="5.2"
def scale_by_factored_rms(b2=0.999, eps=1e-30):
    """Divides by the root of a second moment that is kept as rows and columns."""
    ### BEGIN SOLUTION

    def start(p):
        if jnp.ndim(p) < 2:
            return [jnp.zeros(jnp.shape(p))]
        return [jnp.zeros(p.shape[:-1]), jnp.zeros((*p.shape[:-2], p.shape[-1]))]

    def init(params):
        return jnp.zeros((), jnp.int32), [start(p) for p in jax.tree.leaves(params)]

    def divide(g, parts, steps):
        squares = g**2 + eps
        seen = [squares] if g.ndim < 2 else [squares.mean(axis=-1), squares.mean(axis=-2)]
        parts = [b2 * old + (1 - b2) * new for old, new in zip(parts, seen, strict=True)]
        first, *rest = (part / (1 - b2**steps) for part in parts)
        if rest:
            first = (first / first.mean(axis=-1, keepdims=True))[..., None] * rest[0][..., None, :]
        return g / jnp.sqrt(first), parts

    def update(gradients, state, params):
        steps, leaves = state[0] + 1, jax.tree.leaves(gradients)
        pairs = [divide(g, parts, steps) for g, parts in zip(leaves, state[1], strict=True)]
        updates = jax.tree.unflatten(jax.tree.structure(gradients), [u for u, _ in pairs])
        return updates, (steps, [parts for _, parts in pairs])

    return GradientTransformation(init, update)
    ### END SOLUTION


# %% [markdown]
# ## 5.7 One bad batch
#
# Once in ten thousand steps, a batch has a gradient a thousand times as long as the others: a
# broken example, a rare token, an unlucky draw. Plain descent makes one jump. What does Adam do,
# whose steps don't grow with the gradient? It survives the step, and then hardly moves: the
# square of that gradient is in its second moment, and leaves it by a thousandth a step.
#
# ✅ Clipping in front of it takes care of both. `clip_to_norm` of §5.2 measures the length over all
# leaves together and scales them by one factor, which leaves the direction as it is.

# %% tags=["claim"]
spiky = np.ones(1500, np.float32)
spiky[100] = 1000
unclipped = step_lengths(scale_by_adam(), spiky)
clipped = step_lengths(chain(clip_by_global_norm(1.0), scale_by_adam()), spiky)
after = [99, 100, 150, 200, 1100]
print("steps 100, 101, 151, 201, 1101, without a limit:", np.round(unclipped[after], 3))
print("                                   with a limit:", np.round(clipped[after], 3))
assert unclipped[1100] < 0.05 and unclipped[150:1101].max() < 0.05
assert_close(clipped, np.ones(1500), rtol=1e-3)

# %% tags=["figure"]
fig, ax = figure(
    "After one long gradient, Adam's steps stay short",
    "step",
    "length of the step (rates)",
)
for lengths_drawn, name, color in (
    (unclipped, "Adam", COLORS.wrong),
    (clipped, "clipped, Adam", COLORS.right),
):
    (line,) = ax.plot(np.arange(1, 1501), lengths_drawn, color=color)
    label_line(line, name)
ax.annotate(
    "a gradient of 1000 in place of 1",
    (101, 0.5),
    xytext=(14, 0),
    textcoords="offset points",
    color=COLORS.ink,
    va="center",
)
ax.set_xlim(0, 1500)
ax.set_ylim(0, 1.05)
ax.set_yticks([0, 0.5, 1])
lowest, last = unclipped[101:].min(), unclipped[-1]
assert (round(lowest, 3), round(last, 3)) == (0.014, 0.056)
describe(
    fig,
    "Length of Adam's steps for gradients of 1, with one of 1000 at step 101. Without clipping it "
    "falls to 0.014 and is 0.056 at the end, 1400 steps later; with clipping it stays at 1.",
)

# %% [markdown]
# A thousand steps later, Adam still takes less than a twentieth of a step.
#
# ❌ Two things are called clipping that are not. Cutting each *entry* to ±1, or each *leaf* to a
# length of 1, turns the gradient: the loud parts are cut, the quiet ones are not. The cosine
# between what came and what went says how far.


# %% tags=["claim"]
def cosine(a, b):
    """Of the angle between two trees, as long vectors."""
    a, b = (np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(x)]) for x in (a, b))
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


uneven = {"b": np.float32([10, 0.1, 0.1]), "w": np.full((2, 3), 0.3, np.float32)}
ways = {
    "all together": clip_to_norm(uneven, 1.0),
    "leaf by leaf": {name: clip_to_norm(leaf, 1.0) for name, leaf in uneven.items()},
    "entry by entry": jax.tree.map(lambda g: jnp.clip(g, -1.0, 1.0), uneven),
}
turned = {name: cosine(uneven, clipped_tree) for name, clipped_tree in ways.items()}
for name, found in turned.items():
    print(f"{name:14} cosine to the gradient: {found:.2f}")
assert_close(turned["all together"], 1.0, rtol=1e-6)
assert turned["leaf by leaf"] < 0.9 and turned["entry by entry"] < 0.9
assert unclipped[1100] < 1 / 20

# %% [markdown]
# Nor does clipping mend what is broken. A gradient with a NaN in it has a NaN for its length, and
# what comes out is NaN in *every* leaf: one bad number has spread. Look for NaN before you clip.
# And the edge where all gradients are zero is one where libraries differ, because a limit of 0
# over a length of 0 is 0 / 0:

# %% tags=["claim"]
broken = {"b": np.float32([np.nan, 0, 0]), "w": np.ones((2, 3), np.float32)}
spread = clip_to_norm(broken, 1.0)
print("entries of w that are NaN:", int(np.isnan(spread["w"]).sum()), "of", spread["w"].size)
assert np.all(np.isnan(spread["w"]))

zeros = jax.tree.map(np.zeros_like, steep)
for limit in (0.0, 1.0):
    assert_equal(clip_to_norm(zeros, limit), zeros)

# %% tags=["claim", "nbval-ignore-output"]
theirs = optax.clip_by_global_norm(0.0)
found, _ = theirs.update(zeros, theirs.init(zeros))
print(f"optax {optax.__version__}, zeros clipped to 0:", np.array(found["b"]))
assert_finite(clip_to_norm(zeros, 0.0))

# %% [markdown]
# 💡 **Clip all leaves together, in front of everything that remembers.**

# %% [markdown]
# ## 5.8 A rate that changes
#
# Few runs keep one rate. A **schedule** is a function from the number of steps done to a rate.
# Who counts the steps?
#
# ❌ Python, outside, and the rate goes in as a constant of the program. Each rate is a program of
# its own (chapter 01). ❌ Or Python, inside: a counter in the closure. That one compiles once, and
# counts once; the schedule stands still. It is the mistake of §5.1 in another coat.


# %% tags=["given"]
def counting_in_python(schedule):
    """A schedule that counts its own calls."""
    steps_done = 0

    def update(updates, params):
        nonlocal steps_done
        rate = schedule(steps_done)
        steps_done += 1
        return jax.tree.map(lambda u: -rate * u, updates)

    return stateless(update)


def halving(steps):
    """1, 1/2, 1/4, …"""
    return 0.5**steps


@partial(jax.jit, static_argnums=0)
def constant_rate_step(rate, x):
    """One step with a rate that is part of the program."""
    return x - rate


# %% tags=["claim"]
x = np.float32(0)
with CompileCounter(only="constant_rate_step") as counter:
    for t in range(6):
        x = constant_rate_step(halving(t), x)
print("the rate as a constant: 6 steps,", counter.count, "programs")
assert counter.count == 6
assert_equal(x, -1.96875)

two = np.float32(2)
plain_update = counting_in_python(halving).update
plain = [float(plain_update(two, (), two)[0]) for _ in range(4)]
stuck_update = jax.jit(counting_in_python(halving).update)
stuck = [float(stuck_update(two, (), two)[0]) for _ in range(4)]
print("counted in a closure:  ", plain, "without jit,", stuck, "with it")
assert plain == [-2, -1, -0.5, -0.25] and stuck == [-2, -2, -2, -2]

# %% [markdown]
# ✅ The count is an array in the state.

# %% tags=["given"]
# quote: helpers.optim.Schedule


# quote: helpers.optim.ScaleByScheduleState


# quote: helpers.optim.scale_by_schedule


# quote: helpers.optim.scale_by_learning_rate


# %% tags=["claim"]
scheduled = scale_by_learning_rate(halving)


def scheduled_step(state, gradient):
    """One update with the rate of the schedule."""
    return scheduled.update(gradient, state, gradient)


scheduled_step = jax.jit(scheduled_step)
state, found = scheduled.init(two), []
with CompileBudget(1, only="scheduled_step"):
    for _ in range(4):
        update, state = scheduled_step(state, two)
        found.append(float(update))
print("counted in the state:  ", found)
assert found == [-2, -1, -0.5, -0.25]
assert scale_by_learning_rate(0.25).update(two, (), two)[0] == -0.5

# %% [markdown]
# The usual schedule starts with a **warm-up**, a straight line from zero, because Adam's second
# moment knows little at first and early gradients are wild. Then it falls as half a cosine wave.

# %% tags=["given"]
# quote: helpers.optim.warmup_cosine


# %% [markdown]
# A schedule gets a tracer, so it may not branch with `if`. Both branches are computed for every
# step, and `where` chooses; the clip keeps the one that is not chosen in its range.
#
# Look at the two ends. Step 0 has the rate `start`, which is 0 unless you say otherwise: the very
# first update of such a run is zero. It is so in optax, too.

# %% tags=["claim"]
rates_by_step = warmup_cosine(0.02, warmup_steps=4, total_steps=10, end=0.002)
theirs = optax.warmup_cosine_decay_schedule(0.0, 0.02, 4, 10, 0.002)
t = np.arange(13)
falling = 0.002 + 0.018 * 0.5 * (1 + np.cos(np.pi * np.clip((t - 4) / 6, 0, 1)))
exact = np.where(t < 4, 0.02 * t / 4, falling)
ours = jax.jit(rates_by_step)(t)
print("rates:", np.array(ours[:5]).round(4), "…", np.array(ours[-3:]).round(4))
assert_close(ours, exact, rtol=1e-5, atol=1e-9)
assert_close(ours, to64(jax.jit(theirs)(t)), rtol=1e-5, atol=1e-9)
assert ours[0] == 0.0

# %% [markdown]
# The warm-up is part of the total. Half-way through it the rate is half-way from `start` to the
# peak. Without one, the schedule begins at its peak; one that leaves nothing for the cosine is
# refused.

# %% tags=["claim"]
half_way = warmup_cosine(0.5, warmup_steps=4, total_steps=10, start=0.25)(2)
at_once = warmup_cosine(0.5, warmup_steps=0, total_steps=10)(0)
print(f"half-way from 0.25 to 0.5: {half_way}, without a warm-up: {at_once}")
show_error(warmup_cosine, 0.5, 10, 10, expect=ValueError, contains="warmup_steps < total_steps")
assert (half_way, at_once) == (0.375, 0.5)

# %% tags=["claim"]
assert_same_steps(
    "AdamW on a schedule",
    chain(
        scale_by_adam(),
        add_decayed_weights(0.1, mask=matrices),
        scale_by_learning_rate(rates_by_step),
    ),
    optax.adamw(theirs, weight_decay=0.1, mask=matrices),
    lambda leaf, p, g: adam64(p, g, rate=exact[:12], decay=0.1 if leaf == "w" else 0.0),
)

# %% [markdown]
# 💡 **Steps are counted by an array in the state; a schedule is arithmetic, without `if`.**

# %% [markdown] exercise="5.3"
# A cosine has to know in advance when the run ends. **Warm-up, stable, decay** does not: it stays
# at its peak, and whenever a good model is wanted, a short decay is added. Write
# `warmup_stable_decay(peak, warmup_steps, stable_steps, decay_steps, end)`, which returns a
# schedule, a function of the number of steps done, t:
#
# - for the first `warmup_steps` steps, peak · t / warmup_steps;
# - for the next `stable_steps` steps, peak;
# - for the next `decay_steps` steps, peak + (end − peak) · √x, where x is the share of the decay
#   that is done: 0 at its first step;
# - from then on, end.
#
# Any of the three may have 0 steps and is left out then. A negative number of steps is a
# `ValueError`, raised when the schedule is made.
#
# t is an int32 scalar or array of any shape, 0 ≤ t < 2³¹, perhaps traced; the result is float32 of
# the same shape. A run that counts tokens reaches two billion, where the next float32 is 128 away:
# a decay of 8 steps has to be right to the step there.


# %% tags=["starter"] exercise="5.3"
def warmup_stable_decay(peak, warmup_steps, stable_steps, decay_steps, end=0.0):
    """A straight line up, a plateau, and a decay by the square root of its progress."""
    ### BEGIN SOLUTION
    if min(warmup_steps, stable_steps, decay_steps) < 0:
        raise ValueError(
            f"stages can't be negative: {warmup_steps}, {stable_steps}, {decay_steps} steps"
        )
    falls = warmup_steps + stable_steps

    def schedule(steps):
        steps = jnp.asarray(steps)
        done = jnp.clip(steps - falls, 0, decay_steps) / max(decay_steps, 1)
        falling = peak + (end - peak) * jnp.sqrt(done)
        rate = jnp.where(steps < warmup_steps, peak * steps / max(warmup_steps, 1), falling)
        rate = jnp.where(steps >= falls + decay_steps, end, rate)
        return rate.astype(jnp.float32)

    return schedule
    ### END SOLUTION


# %% [markdown]
# ## 5.9 The race
#
# All pieces are there, so let them run. **Rosenbrock's** function is a curved valley with its
# lowest point at (1, 1): to find the valley is easy, to follow its bottom is not. The curvature
# across the valley is more than two thousand times that along it.


# %% tags=["given"]
def rosenbrock(p):
    """(1 − x)² + 100 (y − x²)², which is 0 at (1, 1)."""
    return (1 - p[0]) ** 2 + 100 * (p[1] - p[0] ** 2) ** 2


# %% tags=["claim"]
curvatures = np.linalg.eigvalsh(to64(jax.hessian(rosenbrock)(jnp.ones(2))))
print(f"curvatures at the lowest point: {curvatures[0]:.1f} and {curvatures[1]:.0f}")
assert curvatures[1] / curvatures[0] > 2000
assert (rosenbrock((1.0, 1.0)), rosenbrock((-1.5, 2.0))) == (0, 2.5**2 + 100 * 0.25**2)

# %% [markdown]
# Who wins a race depends on the rates, and a comparison at one rate for all says nothing. So each
# optimizer gets 25 rates between 1e-4 and 1, 3000 steps with each, and is judged by its best.
# That is 125 runs in five programs: the rate is traced, and `vmap` runs them side by side.


# %% tags=["given"]
def contestant(name, rate):
    """An optimizer by name; the rate may be a tracer."""
    last = scale_by_learning_rate(rate)
    if name == "Adam, warm-up, cosine":
        return chain(scale_by_adam(), scale_by_learning_rate(warmup_cosine(rate, 100, 3000)))
    links = {
        "descent": [],
        "momentum": [trace(0.9)],
        "Nesterov": [trace(0.9, nesterov=True)],
        "Adam": [scale_by_adam()],
    }
    return chain(*links[name], last)


@partial(jax.jit, static_argnums=0)
@partial(jax.vmap, in_axes=(None, 0))
def run_race(name, rate):
    """Losses before each of 3000 steps and behind the last, (3001,), and the places, (3000, 2)."""
    optimizer = contestant(name, rate)

    def step(carry, _):
        p, state = carry
        loss, gradient = jax.value_and_grad(rosenbrock)(p)
        updates, state = optimizer.update(gradient, state, p)
        return (apply_updates(p, updates), state), (loss, p)

    start = jnp.array([-1.5, 2.0])
    (p, _), (losses, places) = jax.lax.scan(step, (start, optimizer.init(start)), length=3000)
    return jnp.append(losses, rosenbrock(p)), places


# %% [markdown]
# ✅ Before they run, each contestant is compared with its namesake in optax, step by step.

# %% tags=["claim"]
warming_up = optax.warmup_cosine_decay_schedule(0.0, 0.01, 100, 3000)
namesakes = {
    "descent": (optax.sgd(0.01), descent64),
    "momentum": (optax.sgd(0.01, 0.9), partial(descent64, decay=0.9)),
    "Nesterov": (optax.sgd(0.01, 0.9, True), partial(descent64, decay=0.9, nesterov=True)),
    "Adam": (optax.adam(0.01), adam64),
    "Adam, warm-up, cosine": (optax.adam(warming_up), partial(adam64, rate=1e-4 * np.arange(12))),
}
for name, (theirs, exact64) in namesakes.items():
    by_hand = partial(lambda exact64, leaf, p, g: exact64(p, g), exact64)
    assert_same_steps(name, contestant(name, 0.01), theirs, by_hand)

# %% tags=["claim", "nbval-ignore-output"]
rates = np.logspace(-4, 0, 25, dtype=np.float32)
names = list(namesakes)
raced = {name: to64(run_race(name, rates)) for name in names}
races = {name: losses for name, (losses, _) in raced.items()}
finals = {name: np.where(np.isfinite(r[:, -1]), r[:, -1], np.inf) for name, r in races.items()}
best = {name: int(np.argmin(final)) for name, final in finals.items()}
usable = {name: int(np.sum(final < 1.0)) for name, final in finals.items()}
for name in names:
    print(f"{name:21} ends below 1 with {usable[name]:2} of {len(rates)} rates")
assert len(names) * len(rates) == 125
assert all(r.shape == (25, 3001) and np.all(r[:, 0] == 12.5) for r in races.values())
assert all(final.min() < 1e-2 for final in finals.values())
assert usable["descent"] < usable["Adam"]

# %% [markdown]
# First the paths: three of them at a rate that suits each, 600 steps.

# %% tags=["figure"]
fig, ax = figure("Descent creeps along the valley, momentum runs", "x", "y", size=(6.4, 4.0))
grid_x, grid_y = np.meshgrid(np.linspace(-1.9, 1.6, 200), np.linspace(-0.6, 2.6, 200))
heights = np.log10(rosenbrock((grid_x, grid_y)))
ax.contour(grid_x, grid_y, heights, levels=8, colors=COLORS.ink, linewidths=0.6, linestyles="-")
places = {
    "momentum": (6, COLORS.right),
    "Adam": (16, COLORS.wrong),
    "descent": (6, COLORS.third),
}
left = {}
for name, (which, color) in places.items():
    walked = raced[name][1][which][:600]
    left[name] = float(np.hypot(*(walked[-1] - 1)))
    ax.plot(*walked.T, color=color, linewidth=1.5)
    ax.plot(*walked[-1], "o", color=color)
    ax.annotate(name, walked[-1], xytext=(8, -12), textcoords="offset points", color=color,
                fontweight="bold")  # fmt: skip
ax.plot(1, 1, "+", color=COLORS.ink, markersize=12)
assert left["momentum"] < 0.2 and left["descent"] > 1
describe(
    fig,
    "Contours of Rosenbrock's valley and the paths of three optimizers over 600 steps: descent is "
    "still on the left side, momentum is at the lowest point, Adam is close behind.",
)

# %% [markdown]
# Then the race, each at its best rate:

# %% tags=["figure"]
fig, ax = figure(
    "At its best rate, plain descent is left far behind",
    "step",
    "loss (log scale)",
    size=(6.4, 4.0),
)
colors = [COLORS.reference, COLORS.right, COLORS.third, COLORS.wrong, COLORS.fourth]
ends_at = {}
for name, color in zip(names, colors, strict=True):
    losses = races[name][best[name]]
    stop = int(np.argmax(losses < 1e-10)) or len(losses) - 1
    ends_at[name] = stop
    (line,) = ax.semilogy(np.arange(stop + 1), np.maximum(losses[: stop + 1], 1e-11), color=color)
    if name != names[-1]:
        label_line(line, name, dy=6)
ax.annotate("on a schedule", (ends_at[names[-1]] - 60, 2e-10), color=colors[-1], ha="right",
            fontweight="bold")  # fmt: skip
ax.set_xlim(0, 3000)
ax.set_ylim(1e-10, 30)
ax.set_yticks([1e-10, 1e-8, 1e-6, 1e-4, 1e-2, 1])
ax.minorticks_off()
assert finals["descent"].min() > 1e-3
assert all(ends_at[name] < 3000 for name in names[1:])
describe(
    fig,
    "Loss on Rosenbrock's function over 3000 steps, each optimizer at its best rate: descent ends "
    "at 0.008; momentum, Nesterov, Adam and Adam on a schedule all fall below 1e-10.",
)

# %% [markdown]
# The other half of the story is how the rate was found. With more than half of the rates Adam
# ends below 1, and with a few less on a schedule: that goes through rates that are smaller still,
# so a rate that is too small becomes worse. What it mends is the other end. The next figure shows
# the last loss for all rates. Descent and momentum work up to a limit and diverge beyond it; the
# best rate lies next to the cliff. Adam never diverges, for its steps don't grow with the gradient.
# But with a large rate it has no way of taking small steps, and wanders about the minimum. The
# schedule takes the rate down at the end, and then *every* rate from 0.1 to 1 ends below 1e-6.

# %% tags=["claim"]
scheduled_name = names[-1]
assert len(rates) / 2 < usable[scheduled_name] < usable["Adam"]
small = rates < 1e-3
assert np.all(finals[scheduled_name][small] > finals["Adam"][small])

large = rates > 0.0999
print("the worst of the rates from 0.1 to 1:")
for name in names:
    end = finals[name][large].max()
    verdict = "diverges" if np.isinf(end) else "ends below 1e-6" if end < 1e-6 else "wanders"
    print(f"  {name:21} {verdict}")
assert np.all(finals["Adam, warm-up, cosine"][large] < 1e-6)
assert finals["Adam"][large].max() > 1e-3 and np.all(np.isfinite(finals["Adam"]))
assert all(np.all(np.isinf(finals[name][large])) for name in names[:3])

# %% tags=["figure"]
fig, ax = figure(
    "Descent diverges, Adam wanders, a schedule settles",
    "learning rate (log scale)",
    "loss after 3000 steps (log scale)",
    size=(6.4, 4.0),
)
for name, color in zip(names, colors, strict=True):
    shown = np.isfinite(finals[name])
    ax.loglog(rates[shown], np.maximum(finals[name][shown], 1e-14), "o-", color=color, markersize=3)
    if not shown.all():
        last = np.flatnonzero(shown)[-1]
        ax.plot(rates[last], max(finals[name][last], 1e-14), "x", color=color, markersize=9)
ax.annotate("descent", (2e-3, 5e-3), color=colors[0], fontweight="bold")
ax.annotate("diverges\nbeyond ×", (2.6e-3, 1e-11), color=COLORS.ink)
ax.annotate("momentum,\nNesterov", (1.1e-4, 1e-11), color=colors[1], fontweight="bold")
ax.annotate("Adam", (1.15, 0.1), color=colors[3], fontweight="bold", annotation_clip=False)
ax.annotate("on a schedule", (1.15, 1e-13), color=colors[4], fontweight="bold",
            annotation_clip=False)  # fmt: skip
ax.set_xlim(1e-4, 1)
ax.set_ylim(1e-14, 30)
ax.minorticks_off()
assert usable["descent"] < 10
describe(
    fig,
    "Loss after 3000 steps against the learning rate. Descent, momentum and Nesterov get better up "
    "to a rate of about 0.002 and diverge beyond it. Adam is best near 0.04 and worse again "
    "above; on a schedule it is good for all rates from 0.1 to 1.",
)

# %% [markdown]
# 💡 **Compare optimizers at the best rate of each. The schedule is half of the optimizer.**

# %% [markdown]
# ## 5.10 Many gradients, one step
#
# The batch that you want does not fit. So its gradient is computed in parts, **micro-batches**,
# and the optimizer steps once, on their mean. That is **gradient accumulation**. For parts of the
# same size the mean of the gradients is the gradient of the whole.


# %% tags=["given"]
@jax.jit
def slope(weights, x, y):
    """Gradient of the mean squared error of a linear model."""

    def loss(w):
        return jnp.mean((jnp.matmul(x, w, precision="highest") - y) ** 2)  # no TF32 on a GPU

    return jax.grad(loss)(weights)


draws = np.random.default_rng(10)
x, y = draws.standard_normal((32, 3)), draws.standard_normal(32)
x, y = x.astype(np.float32), y.astype(np.float32)
weights = np.ones(3, np.float32)


def slope64(rows):
    """The same in float64, on some of the 32 rows."""
    a, b = to64(x[rows]), to64(y[rows])
    return 2 * a.T @ (a @ np.ones(3) - b) / len(b)


# %% tags=["claim"]
parts = [slope(weights, x[i : i + 8], y[i : i + 8]) for i in range(0, 32, 8)]
mean_of_parts = np.mean(parts, axis=0)
print("mean of 4 parts:", mean_of_parts.round(4))
print("the whole:      ", slope64(slice(None)).round(4))
assert_close(mean_of_parts, slope64(slice(None)), rtol=1e-5)

# %% [markdown]
# ❌ Parts of different sizes are another matter, and few notice that theirs are: sequences are
# padded, the last batch is short. The mean of means gives a row in a small part more weight. Here
# the parts have 15, 15, 1 and 1 rows. ✅ What may be averaged are sums: add up the sums, and divide
# once, by the number of all rows.

# %% tags=["claim"]
rows = np.split(np.arange(32), [15, 30, 31])
parts = [slope(weights, x[part], y[part]) for part in rows]
sizes = np.array([len(part) for part in rows])
naive, weighted = np.mean(parts, axis=0), np.average(parts, axis=0, weights=sizes)
whole = slope64(slice(None))
error = np.linalg.norm(naive - whole) / np.linalg.norm(whole)
print("sizes:", sizes, " mean of means, off by more than a tenth:", bool(error > 0.1))
assert list(sizes) == [15, 15, 1, 1]
assert error > 0.1
assert_close(weighted, whole, rtol=1e-5)

# %% [markdown]
# The optimizer must not step in between. ❌ Not with a quarter of the gradient either: plain
# descent would hardly notice, but Adam's steps have the same length whatever the gradient, so four
# parts make four steps. ❌ And not with zeros: momentum goes on, decay goes on, the count of steps
# goes on, which makes the bias correction wrong.

# %% tags=["claim"]
steady = np.ones(4, np.float32)
four = {"one step": steady[:1], "four quarters": steady / 4, "then zeros": steady * (1, 0, 0, 0)}
moved = {}
for name, given_slopes in four.items():
    slopes = np.asarray(given_slopes, np.float32)
    moved[name] = -float(follow(adam_only, jnp.zeros(()), slopes)[-1]) / 0.01
    print(f"{name:14} moves by {moved[name]:.2f} rates")
assert_close(moved["one step"], 1.0, rtol=1e-3)
assert_close(moved["four quarters"], 4.0, rtol=1e-3)
assert moved["then zeros"] > 1.5

# %% [markdown]
# ✅ So accumulation is a wrapper: a transformation that holds another one, calls it every so many
# times, and gives out zeros in between. Optax has it as `MultiSteps`. Twelve gradients in windows
# of three, and four steps on their means:

# %% tags=["claim"]
inner = optax.adamw(0.01, weight_decay=0.1)
windows_of_three = optax.MultiSteps(inner, 3).gradient_transformation()
path = follow(windows_of_three, params, gradients)
means = jax.tree.map(lambda g: to64(g).reshape(4, 3, *g.shape[1:]).mean(axis=1), gradients)
for leaf in params:
    exact = adam64(to64(params[leaf]), means[leaf], decay=0.1)
    assert_close(path[leaf][2::3], exact, rtol=0, atol=1e-6)
moves = np.any(np.diff(to64(path["b"]), axis=0) != 0, axis=1)
print("moves after call 2 to 12:", moves.astype(int))
assert list(moves) == [False, True, False] * 3 + [False, True]

# %% [markdown]
# What about a micro-batch whose gradient is NaN? ❌ The mean is NaN, and so is the step. It gets
# worse if the wrapper clears its sum by multiplying it with zero, for 0 · NaN is NaN: then every
# window after it ends in NaN too. The next cell looks at what your version of optax does, eight
# calls in windows of two, with a NaN in the second call.


# %% tags=["claim", "nbval-ignore-output"]
def finite_updates(transformation, entries):
    """For each call whether its update is finite."""
    one = np.float32(1)
    transformation_update = jax.jit(transformation.update)
    state, found = transformation.init(one), []
    for entry in entries:
        update, state = transformation_update(np.float32(entry), state, one)
        found.append(bool(np.isfinite(update)))
    return found


entries = [1, np.nan, 1, 1, 1, 1, 1, 1]
two = optax.MultiSteps(optax.sgd(0.1), 2)
skipping = optax.MultiSteps(optax.sgd(0.1), 2, should_skip_update_fn=optax.skip_not_finite)
found = finite_updates(two, entries)
print(f"optax {optax.__version__}, finite updates: {np.array(found).astype(int)}")
assert len(entries) == 8 and not all(found)
assert all(finite_updates(skipping, entries))

# %% [markdown]
# ✅ With `skip_not_finite` the bad call is as if it had never been made: the window waits for one
# gradient more. Whether that is what you want depends on who else counts the calls. There is also
# `optax.apply_if_finite`, which skips bad steps of any optimizer. ❌ Its second argument is not the
# number of retries: after that many bad steps in a row it lets the next one *through*.

# %% tags=["claim"]
lenient = optax.apply_if_finite(optax.sgd(0.1), 2)
found = finite_updates(lenient, [1, np.nan, np.nan, np.nan, 1])
print("good, three NaN, good; finite updates:", found)
assert found == [True, True, True, False, True]

# %% [markdown]
# 💡 **Add up sums, in float32, look for NaN before adding, and let the optimizer see the mean
# only.**

# %% [markdown] exercise="5.4"
# Write `accumulate(optimizer, every)`, which returns a `GradientTransformation` around another one.
# Its calls come in windows of `every`, a Python int of at least 1.
#
# - In the last call of a window, it gives the optimizer's updates for the mean of the window's
#   gradients, with the params of that call. In all other calls it gives zeros, and the optimizer's
#   state stays as it is.
# - It adds up in float32, whatever the dtype of the gradients; the mean goes to the optimizer in
#   the dtype of the gradients.
# - A gradient with an entry that is NaN or infinite, in any leaf, is left out as a whole: the mean
#   is over the others. The window is still `every` calls long. If all of a window's gradients are
#   left out, its last call gives zeros too, and the optimizer's state stays as it is.
# - The check jits `update`: one program serves all calls. The state comes back with the
#   structure, shapes and dtypes that it had, so that it may be the carry of a scan.
#
# `optax.MultiSteps` does a part of this: it differs where gradients are not finite.


# %% tags=["starter"] exercise="5.4"
def accumulate(optimizer, every):
    """The optimizer's step on the mean of `every` gradients, and zeros in between."""
    ### BEGIN SOLUTION

    def init(params):
        total = jax.tree.map(lambda p: jnp.zeros(jnp.shape(p), jnp.float32), params)
        zero = jnp.zeros((), jnp.int32)
        return {"calls": zero, "used": zero, "total": total, "inner": optimizer.init(params)}

    def update(gradients, state, params):
        good = jnp.array([jnp.isfinite(g).all() for g in jax.tree.leaves(gradients)]).all()
        total = jax.tree.map(
            lambda s, g: s + jnp.where(good, g.astype(jnp.float32), 0.0), state["total"], gradients
        )
        used, calls = state["used"] + good, state["calls"] + 1
        last = calls == every
        mean = jax.tree.map(
            lambda s, g: (s / jnp.maximum(used, 1)).astype(g.dtype), total, gradients
        )
        updates, inner = optimizer.update(mean, state["inner"], params)
        steps = last & (used > 0)
        return jax.tree.map(lambda u: jnp.where(steps, u, jnp.zeros_like(u)), updates), {
            "calls": jnp.where(last, 0, calls),
            "used": jnp.where(last, 0, used),
            "total": jax.tree.map(lambda s: jnp.where(last, 0.0, s), total),
            "inner": jax.tree.map(partial(jnp.where, steps), inner, state["inner"]),
        }

    return GradientTransformation(init, update)
    ### END SOLUTION


# %% [markdown]
# ## 5.11 Not all parameters
#
# Freeze the body and train the head. Decay the matrices, and give the embedding a rate of its own.
# Optax's wrapper `masked` applies a transformation to some leaves. ❌ What does it do with the
# others? It passes them on as they came. For a transformation in a chain that is right. For a
# whole optimizer it means that the leaf gets its raw gradient as an update: not frozen, but
# climbing, with a rate of 1.

# %% tags=["claim"]
leaves = {"body": jnp.ones(2), "head": jnp.ones(2)}
slopes = {"body": jnp.ones(2), "head": jnp.ones(2)}
head_only, body_only = {"body": False, "head": True}, {"body": True, "head": False}


def first_updates(optimizer):
    """The updates of the first step, by leaf; the leaves are twice the same number."""
    updates, _ = optimizer.update(slopes, optimizer.init(leaves), leaves)
    return {name: round(float(leaf[0]), 3) for name, leaf in updates.items()}


raw_body = first_updates(optax.masked(optax.sgd(0.1), head_only))
print("masked(sgd) to freeze the body:", raw_body)
assert raw_body == {"body": 1.0, "head": -0.1}

# %% [markdown]
# ❌ The next try sets the gradient of the body to zero first, and then runs the optimizer over
# everything. With plain descent that freezes it. AdamW decays it: the weights of the frozen body
# shrink at every step. ✅ Behind the optimizer, zero is zero.

# %% tags=["claim"]
freeze_body = optax.masked(optax.set_to_zero(), body_only)
adamw = optax.adamw(0.1, weight_decay=0.1)
before = first_updates(optax.chain(freeze_body, adamw))
behind = first_updates(optax.chain(adamw, freeze_body))
print("zeros before AdamW:", before)
print("zeros behind AdamW:", behind)
assert before["body"] == -0.01
assert behind["body"] == 0.0 and behind["head"] == before["head"]

# %% [markdown]
# That is right, and still wasteful: Adam keeps two moments for a body that never moves. And a limit
# in front of it would be one for the length of all gradients, the body's with them. ✅ What is
# wanted is one optimizer for each group, which sees its own leaves and no others. Optax calls it
# `partition`: a label for each leaf, an optimizer for each label.

# %% tags=["claim"]
labels = {"body": "frozen", "head": "trained"}
by_group = optax.partition({"trained": adamw, "frozen": optax.set_to_zero()}, labels)


def moments_kept(optimizer):
    """Numbers in the state, the counts of steps left out."""
    return sum(leaf.size for leaf in jax.tree.leaves(optimizer.init(leaves)) if leaf.ndim)


print("by group:", first_updates(by_group))
print("numbers kept:", moments_kept(optax.chain(adamw, freeze_body)), "and", moments_kept(by_group))
assert first_updates(by_group) == behind
assert (moments_kept(optax.chain(adamw, freeze_body)), moments_kept(by_group)) == (8, 4)

# %% [markdown]
# A limit inside of a group is one for the group. Here the body's gradient is a hundred times as
# long as the head's; clipped together, the head gets a hundredth of what it would have gotten
# alone.

# %% tags=["claim"]
slopes = {"body": 100 * jnp.ones(2), "head": jnp.ones(2)}
limited = optax.chain(optax.clip_by_global_norm(1.0), optax.sgd(1.0))
alone = optax.partition({"trained": limited, "frozen": optax.set_to_zero()}, labels)
together = first_updates(limited)["head"]
apart = first_updates(alone)["head"]
print(f"the head's update, clipped together: {together}, by itself: {apart}")
assert_close(apart, -np.sqrt(0.5), rtol=1e-2)
assert_close(together, apart / 100, rtol=0.02)

# %% [markdown]
# ❌ And what of a typo? A label without an optimizer is refused. An optimizer without a label is
# not: whoever writes `"haed"` has an optimizer that nobody uses. The exercise asks for more.


# %% tags=["claim"]
def refused(labels, *groups):
    """Whether optax refuses these labels and groups."""
    try:
        optax.partition(dict.fromkeys(groups, adamw), labels).init(leaves)
    except ValueError:
        return True
    return False


print("a label without an optimizer is refused:", refused(labels, "frozen"))
print("an optimizer without a label is refused:", refused(labels, "frozen", "trained", "haed"))
assert refused(labels, "frozen")
assert not refused(labels, "frozen", "trained", "haed")

# %% [markdown]
# 💡 **To freeze is to set the update to zero, behind everything else. Groups have optimizers of
# their own.**

# %% [markdown] exercise="5.5"
# Write `per_label(optimizers, labels)`, which returns a `GradientTransformation`.
#
# - `optimizers` is a dict from label to transformation. `labels` is a tree like the parameters with
#   a string in place of each leaf, or a function from the parameters to such a tree.
# - Each leaf moves as the optimizer of its label moves it. The updates have the structure of the
#   parameters.
# - An optimizer sees the leaves of its label and no others, neither gradients nor parameters: a
#   limit for the global norm is one for the group. It need not see them in a tree like the
#   parameters; the check's optimizers take any tree.
# - The state holds for each leaf what its own optimizer keeps, and nothing for the others.
# - A label that is no key of `optimizers`, and a key that no leaf is labelled with, are a
#   `ValueError` that names it: at the latest in `init`.
#
# The check jits `update`. Labels are strings, so they can't be part of the state.


# %% tags=["starter"] exercise="5.5"
def per_label(optimizers, labels):
    """Each leaf in the care of the optimizer that its label names."""
    ### BEGIN SOLUTION

    def split(tree, params):
        names = jax.tree.leaves(labels(params) if callable(labels) else labels)
        lost = set(names) ^ set(optimizers)
        if lost:
            raise ValueError(f"labels and optimizers without a partner: {', '.join(sorted(lost))}")
        groups = {label: [] for label in optimizers}
        for leaf, name in zip(jax.tree.leaves(tree), names, strict=True):
            groups[name].append(leaf)
        return names, groups

    def init(params):
        _, groups = split(params, params)
        return {label: optimizers[label].init(group) for label, group in groups.items()}

    def update(gradients, state, params):
        names, slopes = split(gradients, params)
        _, values = split(params, params)
        new, queues = {}, {}
        for label, optimizer in optimizers.items():
            updates, new[label] = optimizer.update(slopes[label], state[label], values[label])
            queues[label] = iter(updates)
        updates = [next(queues[name]) for name in names]
        return jax.tree.unflatten(jax.tree.structure(gradients), updates), new

    return GradientTransformation(init, update)
    ### END SOLUTION


# %% [markdown]
# ## 5.12 What to keep
#
# 💡 **An optimizer is a chain of pairs; what stands where in the chain is part of it.** Clip first,
# decay behind Adam, the rate last, zeros for what is frozen behind all.
#
# 💡 **Test it step by step against ten lines of float64.** A falling loss proves nothing: most
# mistakes in this chapter have one.
#
# 💡 **Whatever moves a little at a time is float32, and lives in the state.** The count of steps
# lives there, too.
#
# ### 🧪 Quiz
#
# Put a letter in place of the dots and run the cell. The answers are measured on your machine.

# %% tags=["quiz"] question="5.a"

# %% tags=["quiz"] question="5.b"

# %% tags=["quiz"] question="5.c"

# %% tags=["quiz"] question="5.d"

# %% tags=["quiz"] question="5.e"

# %% tags=["quiz"] question="5.f"

# %% tags=["quiz"] question="5.g"

# %% tags=["quiz"] question="5.h"

# %% [markdown]
# ### Cheat sheet
#
# | to | write |
# |---|---|
# | take a step | `updates, state = optimizer.update(grads, state, params)` |
# | add it to the parameters | `params = optax.apply_updates(params, updates)` |
# | put an optimizer together | `optax.chain(clip, direction, decay, rate)` |
# | rate, or schedule, with the minus | `optax.scale_by_learning_rate(rate)` |
# | momentum, Nesterov | `optax.trace(0.9)`, `optax.trace(0.9, nesterov=True)` |
# | Adam's direction | `optax.scale_by_adam(b1, b2, eps)` |
# | differentiate through it | `optax.adam(rate, eps_root=1e-8)` |
# | decay, matrices only | `optax.adamw(rate, weight_decay=0.1, mask=matrices)` |
# | that mask | `lambda params: jax.tree.map(lambda p: p.ndim > 1, params)` |
# | clip all leaves together | `optax.clip_by_global_norm(1.0)` |
# | warm-up, then cosine | `optax.warmup_cosine_decay_schedule(0.0, peak, warmup, total, end)` |
# | a rate that changes | a schedule in the chain; never a static argument |
# | accumulate | `optax.MultiSteps(optimizer, every)` |
# | skip what is not finite | `should_skip_update_fn=optax.skip_not_finite` |
# | freeze | `optax.chain(optimizer, optax.masked(optax.set_to_zero(), frozen))` |
# | one optimizer for each group | `optax.partition({"a": …, "b": …}, labels)` |
# | look at a state | `jax.tree.map(jnp.shape, optimizer.init(params))` |
# | the same, in one page of source | `helpers/optim.py` |
