# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # 02 · NaN safety
#
# The loss goes down for two days, and then it is NaN, for ever. No error was raised. The log shows
# when the loss broke, which is too late: what broke it happened one step earlier, in one example of
# one batch, in the *gradient* of an operation whose value was perfectly fine.
#
# Afterwards you can
#
# - name the operations that make NaN, and those that make the infinities which become NaN;
# - guard a function so that its value *and* its gradient are right at the edge, and unchanged
#   everywhere else;
# - write softmax, logsumexp and cross-entropy that survive any logits, masks and padding;
# - give a function a derivative of your own that is safe, and prove it;
# - find the operation that made a NaN, and know which of JAX's tools would have missed it.
#
# Reading and running takes about an hour, the five exercises not quite two. You need `jax.grad`,
# `jax.jit` and `jax.vmap`. Every statement with a number in it is asserted in a cell beside it.
#
# | mark | means |
# |---|---|
# | ❌ | a mistake, and what it costs |
# | ✅ | the way to do it, and the proof |
# | ✍️ | your turn |
# | 🧪 | a check, or a question of the quiz |
# | 💡 | a rule to keep |

# %% tags=["setup"]
import contextlib
import io
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.experimental import checkify
from jax.test_util import check_grads
from jax.typing import ArrayLike

from helpers import (
    COLORS,
    assert_close,
    assert_equal,
    assert_finite,
    check,
    describe,
    figure,
    label_line,
    quiz,
    show_error,
)
from helpers.numerics import Axis, entropy, logit, sinc

# %% [markdown]
# ## 2.1 One bad row
#
# Here is a model that learns a distance. It gets pairs of points and how far apart they are, and
# looks for a matrix `w` such that the length of `(a − b) w` is that distance.


# %% tags=["given"]
def distances(w, a, b):
    """Learned distance of each pair. w: (3, 2), a and b: (n, 3); returns (n,)."""
    return jnp.linalg.norm((a - b) @ w, axis=-1)


def distance_loss(w, a, b, target):
    """Mean squared error of the learned distances."""
    return jnp.mean((distances(w, a, b) - target) ** 2)


def pairs_of_points(n, duplicate, seed):
    """n pairs with their true distances; in the pair at `duplicate` both points are the same."""
    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((2, n, 3)).astype(np.float32)
    if duplicate is not None:
        b[duplicate] = a[duplicate]
    true_w = np.array([[1.0, 0.5], [-0.5, 1.0], [0.3, -0.8]], np.float32)
    return a, b, np.linalg.norm((a - b) @ true_w, axis=1)


# %% [markdown]
# In one of 64 pairs the two points are the same: a duplicate in the data. Its distance is 0, the
# model says 0, and its error is 0. It is the one pair that is predicted perfectly. The loss is a
# finite number.

# %% tags=["claim"]
w = np.eye(3, 2, dtype=np.float32)
a, b, target = pairs_of_points(64, duplicate=7, seed=0)
loss, slope = jax.value_and_grad(distance_loss)(w, a, b, target)
stepped = w - 0.1 * slope

exact = np.linalg.norm((a - b).astype(np.float64) @ w, axis=1)
print(f"error of the duplicate: {float(distances(w, a, b)[7] - target[7])}")
print(f"loss: {float(loss):.4f}")
print("parameters after one step:", stepped.ravel())
assert distances(w, a, b)[7] == target[7] == 0.0
assert_close(loss, np.mean((exact - target) ** 2), rtol=1e-5)
assert np.all(np.isnan(stepped)) and stepped.size == 6

# %% [markdown]
# ❌ After one step all 6 parameters are NaN, and they stay so: whatever is added to NaN is NaN. To
# see who did it, take the gradient of each pair by itself. 63 of them are fine. The gradient of
# the batch is their mean, and a mean with one NaN in it is NaN.


# %% tags=["claim"]
def pair_loss(w, a, b, target):
    return distance_loss(w, a[None], b[None], target[None])


slopes = jax.vmap(jax.grad(pair_loss), (None, 0, 0, 0))(w, a, b, target)
broken = np.isnan(slopes).any(axis=(1, 2))

print(f"{broken.sum()} of {len(broken)} gradients is NaN: that of pair {np.flatnonzero(broken)[0]}")
assert list(np.flatnonzero(broken)) == [7]
assert (~broken).sum() == 63
assert np.isnan(distance_loss(stepped, a, b, target))

# %% [markdown]
# The loss shows nothing until the *next* step, which computes with NaN parameters. So the batch
# that you look at, because the log points to it, is innocent; the guilty one went by before. And in
# the guilty one the value that misbehaves is right: the length of the zero vector is zero, without
# any rounding error. What it lacks is a slope.
#
# 💡 **Check gradients, not losses: a NaN gradient behind a finite loss is the usual case.**

# %% [markdown]
# ## 2.2 Where float32 ends
#
# NaN is not an accident of the hardware. It is the answer to a question that has none, such as ∞ −
# ∞, and there are few of these. If you know them, you can read a formula and say where it breaks.


# %% tags=["claim"]
zero, infinity = jnp.float32(0), jnp.float32(np.inf)
questions_without_answer = {
    "0 / 0": zero / zero,
    "∞ − ∞": infinity - infinity,
    "0 · ∞": zero * infinity,
    "∞ / ∞": infinity / infinity,
    "√−1": jnp.sqrt(zero - 1),
    "log −1": jnp.log(zero - 1),
    "sin ∞": jnp.sin(infinity),
}
for question, answer in questions_without_answer.items():
    print(f"{question:7} = {answer}")
    assert np.isnan(answer)

# %% [markdown]
# Two of them ask for a negative number; your formula would look wrong to you. The others need a 0
# or an ∞ first. Zeros are everywhere: padding, dead units, duplicates. Where does ∞ come from?
# Mostly from `exp`. The largest float32 is about 3.4e38, and `exp` passes it between 88.72283 and
# 88.72284. In float16, which ends at 65504, exp(12) is too much already; bfloat16 has the range of
# float32.

# %% tags=["claim"]
below, above = np.float32(88.72283), np.float32(88.72284)
assert np.isfinite(jnp.exp(below)) and np.isinf(jnp.exp(above))
assert 3.4e38 < float(jnp.finfo(jnp.float32).max) < 3.41e38

assert jnp.finfo(jnp.float16).max == 65504
assert np.isfinite(jnp.exp(jnp.float16(11))) and np.isinf(jnp.exp(jnp.float16(12)))
assert np.isfinite(jnp.exp(jnp.bfloat16(88))) and np.isinf(jnp.exp(jnp.bfloat16(89)))

print("exp(89): float32", jnp.exp(jnp.float32(89)), " bfloat16", jnp.exp(jnp.bfloat16(89)))

# %% [markdown]
# At the other end numbers fade to 0. The smallest *normal* float32 is about 1.2e-38. Below it there
# are denormal numbers with fewer and fewer digits, down to 1.4e-45, and NumPy's `exp` uses them
# until −103.97. Accelerators, and XLA on most CPUs, *flush* them to 0: then `exp` is 0 from −87.34
# on, and a positive number may not be greater than 0. This is what your machine does:

# %% tags=["claim", "nbval-ignore-output"]
tiny = jnp.float32(1e-40)
print(
    f"NumPy: exp(−100) = {np.exp(np.float32(-100)):.3g}, and 1e-40 > 0 is {np.float32(1e-40) > 0}"
)
print(f"JAX:   exp(−100) = {jnp.exp(-100.0):.3g}, and 1e-40 > 0 is {bool(tiny > 0)}")

assert 1.1e-38 < float(np.finfo(np.float32).tiny) < 1.2e-38
assert 1.3e-45 < float(np.finfo(np.float32).smallest_subnormal) < 1.5e-45
assert np.exp(np.float32(-103.97)) > 0 and np.exp(np.float32(-103.98)) == 0
assert jnp.exp(jnp.float32(-87.33)) > 0 and jnp.exp(jnp.float32(-104.0)) == 0
if not tiny > 0:
    assert jnp.exp(jnp.float32(-87.34)) == 0

# %% [markdown]
# A value can be harmless where its **slope** is not. √x, log x and ‖x‖ are all defined, or −∞ at
# worst, at 0; their slopes are ∞, ∞ and 0 / 0. The chain rule multiplies slopes, and in a network
# with padding there is always a 0 to multiply with.

# %% tags=["claim"]
edges = {
    "√x at 0": jax.value_and_grad(jnp.sqrt)(0.0),
    "log x at 0": jax.value_and_grad(jnp.log)(0.0),
    "√(x²) at 0": jax.value_and_grad(lambda x: jnp.sqrt(x * x))(0.0),
}
for edge, (value, slope) in edges.items():
    print(f"{edge:11} value {value!s:5} slope {slope}")

assert [float(slope) for _, slope in edges.values()][:2] == [np.inf, np.inf]
assert np.isnan(edges["√(x²) at 0"][1])

# %% [markdown]
# Once there, NaN spreads. Sums, means and maxima are NaN; of a matrix product one row. Every
# comparison by `<`, `>` or `==` is False, also with itself, and `!=` is True: `loss < best` simply
# stops being true. And `argmax` takes it for the largest number.

# %% tags=["claim"]
x = jnp.array([1.0, jnp.nan, 3.0])
assert np.isnan(jnp.sum(x)) and np.isnan(jnp.mean(x)) and np.isnan(jnp.max(x))
assert not (x[1] < 5) and not (x[1] > 5) and not (x[1] == x[1]) and x[1] != x[1]
assert jnp.argmax(x) == 1

matrix = jnp.ones((4, 4)).at[2, 1].set(jnp.nan)
rows = np.isnan(matrix @ jnp.ones((4, 4))).any(axis=1)
print("rows of the product with NaN:", np.flatnonzero(rows))
assert list(np.flatnonzero(rows)) == [2]

# %% [markdown]
# 💡 **Before NaN there is a zero or an infinity. Ask of each division, root, logarithm and
# exponential what makes its value or its slope infinite.**

# %% [markdown]
# ## 2.3 Both branches of a `where`
#
# The obvious guard: where x is positive take the root, otherwise 0. ❌ The value is right. The
# gradient is NaN, as if the guard weren't there.


# %% tags=["claim"]
def guarded_root(x):
    return jnp.where(x > 0, jnp.sqrt(x), 0.0)


value, slope = jax.value_and_grad(guarded_root)(0.0)
print(f"at 0: value {value}, slope {slope}")
assert value == 0.0
assert np.isnan(slope)

# %% [markdown]
# `where` is a function of three arrays. Both branches are computed, in full, before it selects; on
# an accelerator that is cheaper than branching. The same is true on the way back. Reverse mode
# starts from the slope of the result, which is 1, and `where` hands it to the branch that was
# selected; the other one gets a 0. Then the root, which was not selected, multiplies *its* slope
# with that 0. By hand:

# %% tags=["claim"]
_, back_through_where = jax.vjp(lambda root, zero: jnp.where(False, root, zero), 0.0, 0.0)
to_root, to_zero = back_through_where(1.0)
_, back_through_root = jax.vjp(jnp.sqrt, 0.0)
(to_x,) = back_through_root(to_root)

print(f"the where sends {to_root} to the root, {to_zero} to the other branch")
print(f"the root sends {to_root} · ∞ = {to_x} to x")
assert (to_root, to_zero) == (0.0, 1.0)
assert np.isnan(to_x)

# %% [markdown]
# So it is a matter of order: reverse mode selects first and multiplies afterwards. Forward mode
# does it the other way round, multiplies by ∞ and then throws that away, and is fine. A test with
# `jax.jvp` or `jacfwd` does not see this bug.

# %% tags=["claim"]
_, forward = jax.jvp(guarded_root, (0.0,), (1.0,))
reverse = jax.grad(guarded_root)(0.0)
print(f"forward mode: {forward}, reverse mode: {reverse}")
assert forward == 0.0
assert np.isnan(reverse)


def zero_or_infinite(x):
    return jnp.where(x > 0, 0.0, x * jnp.inf)


assert zero_or_infinite(1.0) == 0.0
assert np.isnan(jax.grad(zero_or_infinite)(1.0))

# %% [markdown]
# The second function is the shortest example that there is. At 1 it selects a constant; its
# gradient is NaN because of a product that nobody asked for.
#
# ✅ The cure is one more `where`, **inside**: the number that would break the operation never gets
# to it. The inner one picks a harmless number to compute with, the outer one the value to return.
# Reverse mode now multiplies its 0 by the slope at a harmless point, which is finite, and the
# inner `where` sends the 0 on to x. This is the **double where**, and this is how the course's
# library takes the length of a vector:

# %% tags=["given"]
# quote: helpers.numerics.safe_norm

# %% [markdown]
# Three proofs for one function. Its values are those of float64. At ordinary points its gradient is
# the analytic one, x / ‖x‖. At zero the gradient is 0, where `jnp.linalg.norm` has NaN.

# %% tags=["claim"]
vectors = np.array([[3.0, -4.0, 12.0], [1e-8, 0.0, 0.0], [0.0, 0.0, 0.0]], np.float32)
values, slopes = jax.jit(jax.vmap(jax.value_and_grad(safe_norm)))(vectors)

exact = vectors.astype(np.float64)
lengths = np.linalg.norm(exact, axis=1)
assert_close(values, lengths, rtol=1e-6)
assert_close(safe_norm(vectors, axis=1, keepdims=True), lengths[:, None], rtol=1e-6)
assert_close(slopes[:2], exact[:2] / lengths[:2, None], rtol=1e-6)
assert_equal(slopes[2], np.zeros(3))
assert np.all(np.isnan(jax.grad(jnp.linalg.norm)(vectors[2])))
print(np.asarray(slopes).round(4))

# %% [markdown]
# With it, the distances of §2.1 can be learned. The same 60 batches, of which one, at step 30, has
# a duplicate in it: with the plain norm the run is over, with the safe one it ends below 0.001.


# %% tags=["given"]
def run(length, steps=60):
    """Losses of a training with one duplicate, at step 30, and `length` for the norm."""

    def loss(w, a, b, target):
        return jnp.mean((length((a - b) @ w, axis=-1) - target) ** 2)

    both = jax.jit(jax.value_and_grad(loss))
    w, losses = np.eye(3, 2, dtype=np.float32), []
    for step in range(steps):
        batch = pairs_of_points(64, duplicate=7 if step == 30 else None, seed=step)
        value, slope = both(w, *batch)
        w = w - 0.04 * np.asarray(slope)
        losses.append(float(value))
    return np.array(losses)


# %% tags=["claim"]
plain, safe = run(jnp.linalg.norm), run(safe_norm)
first_nan = int(np.argmax(np.isnan(plain)))

print(f"plain norm: first NaN loss at step {first_nan}, {np.isnan(plain).sum()} in all")
print(f"safe norm:  the last loss is below 0.001: {safe[-1] < 1e-3}")
assert len(plain) == len(safe) == 60
assert_close(safe[0], distance_loss(w, *pairs_of_points(64, None, seed=0)), rtol=1e-5)
assert np.isfinite(plain[30]) and first_nan == 31
assert np.all(np.isnan(plain[31:]))
assert_finite(safe)
assert safe[-1] < 1e-3

# %% tags=["figure"]
fig, ax = figure(
    "One duplicate ends the run; a double where carries on", "step", "loss (log scale)"
)
(good,) = ax.semilogy(safe, color=COLORS.right)
(bad,) = ax.semilogy(plain, color=COLORS.wrong)
ax.plot(30, plain[30], "o", color=COLORS.wrong, markersize=8)
ax.annotate(
    "a duplicate in the batch;\nfrom the next step on, NaN",
    (30, plain[30]),
    xytext=(12, 16),
    textcoords="offset points",
    color=COLORS.wrong,
)
label_line(good, "safe norm")
ax.annotate("plain norm", (12, plain[12]), xytext=(8, 8), textcoords="offset points",
            color=COLORS.wrong, fontweight="bold")  # fmt: skip
describe(
    fig,
    "Loss of two trainings. Both fall alike until step 30, whose batch has a duplicate; then the "
    "one with the plain norm is NaN, and the one with the safe norm goes on falling.",
)

# %% [markdown]
# Norm is one of many. Here are four functions as one would guard them first, each with a single
# `where`, and each against the library's version of itself: `sinc`, `entropy` and `logit` are
# written like `safe_norm`, with two.


# %% tags=["given"]
def norm_once(x):
    squares = jnp.sum(x * x)
    return jnp.where(squares > 0, jnp.sqrt(squares), 0.0)


def sinc_once(x):
    return jnp.where(x == 0, 1.0, jnp.sin(x) / x)


def entropy_once(p):
    return -jnp.sum(jnp.where(p > 0, p * jnp.log(p), 0.0))


def logit_once(p):
    return jnp.where(p > 0, jnp.log(p) - jnp.log1p(-p), -jnp.inf)


FOUR = {  # one where, two, an ordinary point, the edge, the exact value and slope at the point
    "norm": (norm_once, safe_norm, [0.3, -0.4], [0.0, 0.0], 0.5, [0.6, -0.8]),
    "sinc": (sinc_once, sinc, 2.0, 0.0, np.sin(2) / 2, np.cos(2) / 2 - np.sin(2) / 4),
    "entropy": (entropy_once, entropy, [0.5, 0.5], [1.0, 0.0], np.log(2), [np.log(2) - 1] * 2),
    "logit": (logit_once, logit, 0.2, 0.0, np.log(0.2 / 0.8), 1 / (0.2 * 0.8)),
}

# %% [markdown]
# Forward they agree at both points, the edge included. At the ordinary one both have the analytic
# slope. At the edge one gradient is NaN and the other finite.
#
# Finite, not true: the slope of `logit` at 0 is ∞, which the next zero would turn into NaN. The
# library says 0, so a probability of exactly 0 stays where it is, and the others go on learning.
# Where that would be a dead end, a large finite slope is better: §2.8 ends with such a function.

# %% tags=["claim"]
print("         value at the edge    slope, one where    slope, two")
for name, (once, twice, point, edge, value, slope) in FOUR.items():
    once, twice = jax.jit(jax.value_and_grad(once)), jax.jit(jax.value_and_grad(twice))
    point, edge = np.float32(point), np.float32(edge)
    for function in (once, twice):
        assert_close(function(point), (value, np.asarray(slope)), rtol=1e-5, label=name)
    (at_edge, broken), (safely, mended) = once(edge), twice(edge)
    print(f"{name:8} {at_edge!s:20} {broken!s:19} {mended}")
    assert_equal(at_edge, safely, label=name)
    assert np.isnan(broken).any()
    assert_finite(mended, label=name)

# %% [markdown]
# A second look at `sinc`. The library guards not only 0 but all of |x| < 0.3, where it sums a
# series. At 0.001 nothing is NaN any more, but the slope (x cos x − sin x) / x² is the difference
# of two numbers that agree in nearly all digits: ❌ it is off by more than 1 %, and at 0.0001 by
# more than its own size. The series is off by less than 1e-6.

# %% tags=["claim"]
x = np.logspace(-4, 0.4, 45).astype(np.float32)
wide = x.astype(np.float64)
series = -wide / 3 * (1 - wide**2 / 10 * (1 - wide**2 / 28))
exact = np.where(wide < 0.01, series, (wide * np.cos(wide) - np.sin(wide)) / wide**2)

error_once = np.abs(jax.jit(jax.vmap(jax.grad(sinc_once)))(x) / exact - 1)
error_series = np.abs(jax.jit(jax.vmap(jax.grad(sinc)))(x) / exact - 1)
assert error_once[x < 1.05e-4].max() > 1
assert error_once[(x > 5e-4) & (x < 2e-3)].max() > 0.01
assert error_series[x < 0.3].max() < 1e-6
assert error_series.max() < 5e-6
print(f"at x = {x[0]:.4f} the quotient's slope is off by more than itself: {error_once[0] > 1}")

# %% tags=["figure"]
fig, ax = figure(
    "Beside the edge there is no NaN, and no digits either", "x", "relative error of the slope"
)
ax.loglog(x, np.maximum(error_once, 3e-8), "o", color=COLORS.wrong)
ax.loglog(x, np.maximum(error_series, 3e-8), "o", color=COLORS.right)
ax.annotate("sin(x) / x", (4e-3, 0.1), color=COLORS.wrong, fontweight="bold")
ax.annotate("a series below 0.3", (1e-3, 5e-7), color=COLORS.right, fontweight="bold")
ax.axvline(0.3, color=COLORS.reference, linewidth=1, linestyle=":")
describe(
    fig,
    "Relative error of the derivative of sinc on log axes. The quotient's error grows from 1e-7 at "
    "1 to more than 1 at 0.0001; the series stays below 1e-6.",
)

# %% [markdown]
# <details><summary>I don't understand why a tiny number under the root isn't simpler.</summary>
#
# `sqrt(x² + 1e-12)` has no edge, and it is what most code does. It has another value than √x², and
# another slope, for every x that is not large against `1e-6`. Where you know that your numbers are
# of order one, take it. Where you don't, you have moved the bug from a place that raises NaN to one
# that is silently wrong; §2.5 measures it.
#
# </details>
#
# 💡 **Two wheres: the inner one keeps the bad number out, the outer one puts the right value in.**

# %% [markdown]
# ## 2.4 `where`, `select` and `cond`
#
# If both branches are the problem, why not take only one? `jax.lax.cond` does. `jnp.where` and
# `jax.lax.select` are the same thing and compute both; `cond` runs the branch that is chosen,
# forward and backward, and never meets the other.


# %% tags=["claim"]
def by_where(x):
    return jnp.where(x > 0, jnp.sqrt(x), jnp.zeros_like(x))


def by_select(x):
    return jax.lax.select(x > 0, jnp.sqrt(x), jnp.zeros_like(x))


def by_cond(x):
    return jax.lax.cond(x > 0, jnp.sqrt, jnp.zeros_like, x)


zero = np.float32(0)
slopes = {f.__name__: float(jax.grad(f)(zero)) for f in (by_where, by_select, by_cond)}
print(slopes)
assert np.isnan(slopes["by_where"]) and np.isnan(slopes["by_select"])
assert slopes["by_cond"] == 0.0

# %% [markdown]
# `cond` takes one scalar decision. Over a batch each example wants its own, so `vmap` has no
# choice: it turns the `cond` into a selection between two branches, both of which are computed. One
# would expect the NaN to come back. It doesn't, and the reason is worth a look:

# %% tags=["claim"]
batch = np.array([0.0, 4.0], np.float32)
batched = jax.make_jaxpr(jax.vmap(by_cond))(batch)
operations = [equation.primitive.name for equation in batched.eqns]

print(*[name for name in operations if name not in ("convert_element_type", "eq", "gt")])
assert "cond" not in operations
assert "sqrt" in operations
assert operations.count("select_n") >= 2
assert_close(jax.grad(lambda x: jax.vmap(by_cond)(x).sum())(batch), [0.0, 0.25], rtol=1e-6)

# %% [markdown]
# There is a `select_n` *before* the root as well as behind it: JAX puts in a double where. Its
# inner branch is not a constant but `stop_gradient(x)`: the same number, through which no slope
# flows. You can do that by hand where no harmless number comes to mind. The bad number is computed
# with, and its NaN slope is thrown away before it gets to x.


# %% tags=["claim"]
def without_a_constant(x):
    good = x > 0
    root = jnp.sqrt(jnp.where(good, x, jax.lax.stop_gradient(x)))
    return jnp.where(good, root, 0.0)


slopes = jax.vmap(jax.grad(without_a_constant))(np.array([-1.0, 0.0, 4.0], np.float32))
print("slopes at −1, 0 and 4:", slopes)
assert_equal(slopes, [0.0, 0.0, 0.25])

# %% [markdown]
# Then what is wrong with `cond`? Under `vmap` it saves nothing: both branches are computed, and the
# selection comes on top. There is also a root of −1 in it for checkify (§2.10) to report, where a
# double where has nothing to show. A Python `if` is no way out at all: under `jit` and `vmap` there
# is no number to look at.


# %% tags=["claim"]
def by_if(x):
    return jnp.sqrt(x) if x > 0 else jnp.zeros_like(x)


assert by_if(zero) == 0.0
assert jax.grad(by_if)(zero) == 0.0  # grad alone knows the number; jit and vmap don't
for transformed, x in ((jax.jit(by_if), zero), (jax.vmap(by_if), batch)):
    show_error(transformed, x, expect=jax.errors.TracerBoolConversionError)

# %% [markdown]
# 💡 **Use `cond` to save work, a double where to stay finite.**

# %% [markdown]
# ## 2.5 Lengths, angles and means
#
# You have not written a root for weeks, and still there is one in your gradient. These come from
# functions that hide it, or hide a quotient. Values first: all of them are as they should be.


# %% tags=["given"]
def length_squared(x):
    return jnp.linalg.norm(x) ** 2


def length_of_scaled(scale):
    return jnp.linalg.norm(scale * jnp.array([1.0, 2.0, 2.0]))


def angle(x):
    return jnp.where(x == 0, 0.0, jnp.arctan2(x, x))


def mean_square(x):
    return jnp.nanmean(x**2)


# %% tags=["claim"]
hidden_roots = {
    "norm(x)² at 0": (length_squared, np.zeros(3, np.float32), 0.0),
    "norm(s · v) at s = 0": (length_of_scaled, np.float32(0), 0.0),
    "arctan2(x, x) at 0": (angle, np.float32(0), 0.0),
    "nanmean(x²) of 1, NaN, 3": (mean_square, np.float32([1, np.nan, 3]), 5.0),
}
for name, (function, x, exact) in hidden_roots.items():
    value, slope = jax.jit(jax.value_and_grad(function))(x)
    print(f"{name:25} value {value}  slope {slope}")
    assert value == exact
    assert np.isnan(slope).any()
ordinary = length_squared(np.float32([1, 2, 2])), length_of_scaled(2.0), angle(1.0)
assert_close(ordinary, (9.0, 6.0, np.pi / 4), rtol=1e-6)

# %% [markdown]
# ❌ Each is an old friend. The square takes back the root, but its slope 2‖x‖ = 0 meets the norm's
# 0 / 0 first. At s = 0 the whole vector is zero. `arctan2` divides by x² + y², and the `where`
# around it is one where too few. `nanmean` drops the NaN, but behind the square: in front of it
# waits a slope of 2 · NaN, to be multiplied by 0.
#
# ✅ The cures are as different as the causes. Don't take a root that you square again. Give the
# norm its double where, and `arctan2` a harmless point. And take a missing value out **before**
# anything is computed with it, which makes `nanmean` unnecessary.


# %% tags=["claim"]
def angle_mended(x):
    some = x != 0
    return jnp.where(some, jnp.arctan2(jnp.where(some, x, 1.0), jnp.where(some, x, 1.0)), 0.0)


def mean_square_mended(x):
    known = ~jnp.isnan(x)
    return jnp.sum(jnp.where(known, x, 0.0) ** 2) / jnp.sum(known)


two = np.float32(2)
assert_equal(jax.grad(lambda x: jnp.sum(x**2))(np.zeros(3, np.float32)), np.zeros(3))
assert jax.grad(lambda s: safe_norm(s * jnp.array([1.0, 2.0, 2.0])))(np.float32(0)) == 0.0
assert_close(jax.value_and_grad(angle_mended)(zero), (0.0, 0.0), rtol=0)
assert_close(jax.value_and_grad(angle_mended)(two), (np.pi / 4, 0.0), rtol=1e-6, atol=1e-7)

value, slope = jax.value_and_grad(mean_square_mended)(np.float32([1, np.nan, 3]))
print(f"mean of the squares {value}, slope {slope}")
assert_close((value, slope), (5.0, np.array([1.0, 0.0, 3.0])), rtol=1e-6)

# %% [markdown]
# ❌ The popular cure is a small number: `sqrt(x² + 1e-12)`, `x / (norm + 1e-8)`, `maximum(norm,
# 1e-6)`. The value is finite everywhere, and wrong wherever x is not large against it: here is a
# vector of length 1e-7, scaled to unit length, which should have length 1. And behind a norm the
# small number comes too late for the slope: at 0 the norm has made a NaN of it.

# %% tags=["claim"]
v, zeros = np.float32([0.6e-7, 0.8e-7]), np.zeros(2, np.float32)
units = {
    "v / sqrt(‖v‖² + 1e-12)": lambda v: v / jnp.sqrt(v @ v + 1e-12),
    "v / (‖v‖ + 1e-8)": lambda v: v / (jnp.linalg.norm(v) + 1e-8),
    "v / maximum(‖v‖, 1e-6)": lambda v: v / jnp.maximum(jnp.linalg.norm(v), 1e-6),
    "v / safe_norm(v), guarded": lambda v: v / jnp.where(jnp.any(v), safe_norm(v), 1.0),
}
lengths, slopes = [], []
for name, unit in units.items():
    lengths.append(float(np.linalg.norm(unit(v))))
    slopes.append("NaN" if np.all(np.isnan(jax.jacrev(unit)(zeros))) else "finite")
    print(f"{name:25} has length {lengths[-1]:.3f}, and slopes at 0 are {slopes[-1]}")
assert_close(lengths, [0.1 / np.sqrt(1.01), 1 / 1.1, 0.1, 1.0], rtol=1e-5)
assert slopes == ["finite", "NaN", "NaN", "finite"]
assert all(np.all(np.isfinite(unit(zeros))) for unit in units.values())

# %% [markdown]
# Is `1e-7` a number that occurs? Gradients are that small, and so are the variances of quiet
# channels and the probabilities of rare words. A layer norm with `1e-5` under its root is a choice
# that somebody made for activations of order one; it is no guard for everything.
#
# 💡 **An ε changes every value a little, and small values a lot. A `where` changes the edge
# alone.**

# %% [markdown] exercise="2.1"
# Write `cosine(a, b)`, the cosine of the angle between two vectors: `a @ b / (‖a‖ · ‖b‖)`.
#
# - `a` and `b` are float32 arrays of shape (n,). Their lengths are 0, or anything from 1e-8 to 1e8.
# - It returns a scalar. If `a` or `b` is the zero vector, or both are, it is 0.
# - Its gradient with respect to `a` and `b` is that of the cosine; where `a` or `b` is zero, both
#   gradients are 0.
# - It works under `jit`, `vmap` and `grad`.


# %% tags=["starter"] exercise="2.1"
def cosine(a, b):
    """Cosine of the angle between a and b, both (n,); 0 with a gradient of 0 if one is zero."""
    ### BEGIN SOLUTION
    product = safe_norm(a) * safe_norm(b)
    both = product > 0
    return jnp.where(both, a @ b / jnp.where(both, product, 1.0), 0.0)
    ### END SOLUTION


# %% [markdown]
# ## 2.6 Softmax and its mask
#
# Attention, classifiers and policies all take exponentials of numbers that they have no control
# over. ❌ The formula from the textbook ends at a logit of 89, where `exp` is ∞ and the quotient ∞
# / ∞.


# %% tags=["given"]
def softmax_textbook(x):
    return jnp.exp(x) / jnp.sum(jnp.exp(x))


def softmax_shifted(x):
    exps = jnp.exp(x - jax.lax.stop_gradient(jnp.max(x)))
    return exps / jnp.sum(exps)


# %% tags=["claim"]
logits = np.array([1.0, 88.0, 89.0], np.float32)
print("textbook:", softmax_textbook(logits))
print("shifted: ", np.asarray(softmax_shifted(logits)).round(4))
assert np.isnan(softmax_textbook(logits)[2])
exact = np.exp(logits.astype(np.float64) - 89)
assert_close(softmax_shifted(logits), exact / exact.sum(), rtol=1e-5, atol=1e-37)

# %% [markdown]
# ✅ Subtract the same number from all logits and nothing changes, except that `exp` sees other
# numbers. If it is the largest logit, every exponential is at most 1, and the sum is at least 1:
# no overflow, no division by 0.
#
# The `stop_gradient` is not a trick to fool the derivative. The maximum cancels in the result, so
# its slope does as well, and there is no need to compute it: the gradient is the same and its
# program is shorter.


# %% tags=["claim"]
def log_total(x, shift):
    return shift + jnp.log(jnp.sum(jnp.exp(x - shift)))


def through_max(x):
    return log_total(x, jnp.max(x))


def around_max(x):
    return log_total(x, jax.lax.stop_gradient(jnp.max(x)))


x = np.array([1.0, 5.0, 5.0, -2.0], np.float32)
exact = np.exp(x.astype(np.float64)) / np.exp(x.astype(np.float64)).sum()
sizes = [len(jax.make_jaxpr(jax.grad(f))(x).eqns) for f in (through_max, around_max)]
assert_close(jax.grad(through_max)(x), exact, rtol=1e-6)
assert_close(jax.grad(around_max)(x), exact, rtol=1e-6)
print("operations in the gradient: fewer without the maximum:", sizes[1] < sizes[0])
assert sizes[1] < sizes[0]

# %% [markdown]
# Now the mask. Some entries must not take part: padding, the future, an action that is not
# allowed. The usual way is to overwrite them with −∞, whose exponential is 0. That works until
# there is a row in which *everything* is masked, a sentence of padding alone. ❌ Then the maximum
# is −∞, and −∞ − (−∞) is NaN. `jax.nn.logsumexp` gets the value of such a row right, −∞, and its
# gradient wrong.

# %% tags=["claim"]
everything_masked = np.full(3, -np.inf, np.float32)
value, slope = jax.value_and_grad(jax.nn.logsumexp)(everything_masked)

print("softmax:  ", jax.nn.softmax(everything_masked))
print("logsumexp:", value, " gradient:", slope)
assert np.all(np.isnan(jax.nn.softmax(everything_masked)))
assert value == -np.inf
assert np.all(np.isnan(slope))

# %% [markdown]
# ❌ So people take the most negative finite number, `finfo.min`. There is no NaN any more, and
# that is the trouble: where all entries are equal, they are equally *likely*. A row with nothing
# in it attends to its padding, a third to each of three. And two masks that are added, one for
# padding and one for the future, are −∞ again.

# %% tags=["claim"]
lowest = jnp.full(3, jnp.finfo(jnp.float32).min)

print("finfo.min everywhere:", np.asarray(jax.nn.softmax(lowest)).round(4))
print("two such masks added:", jax.nn.softmax(lowest + lowest))
assert_close(jax.nn.softmax(lowest), np.full(3, 1 / 3), rtol=1e-6)
assert np.all(np.isneginf(lowest + lowest))
assert np.all(np.isnan(jax.nn.softmax(lowest + lowest)))

# %% [markdown]
# ✅ Don't encode the mask in the numbers; pass it. With a boolean mask, what is not selected never
# enters the maximum, the sum or the gradient, and "nothing is selected" is a case that can be
# written down. The library's softmax is this. Read `shifted` closely: each of its `where` guards
# another edge.

# %% tags=["given"]
# quote: helpers.numerics.shifted


# quote: helpers.numerics.softmax

# %% [markdown]
# Five rows, one for each way in which a mask can hurt. What is masked holds NaN and ∞ on purpose.

# %% tags=["claim"]
nan, inf = np.nan, np.inf
rows = np.float32([[1, 2, 3], [1000, nan, 999], [4, 5, inf], [nan, inf, -inf], [-inf, -inf, 1]])
mask = np.array([[1, 1, 1], [1, 0, 1], [1, 0, 0], [0, 0, 0], [1, 1, 0]], bool)
pull = np.float32([1, 2, 4])

probs = jax.jit(softmax)(rows, mask)
slopes = jax.jit(jax.grad(lambda x: jnp.sum(softmax(x, mask) * pull)))(rows)
shares = np.zeros((5, 3))
for row in range(3):
    selected = rows[row, mask[row]].astype(np.float64)
    shares[row, mask[row]] = np.exp(selected - np.logaddexp.reduce(selected))
inward = np.where(mask, pull - np.sum(shares * pull, axis=1, keepdims=True), 0.0)

print(np.asarray(probs).round(4))
differences = [[-2, -1, 0], [0, 0, -1], [0, 0, 0], [0, 0, 0], [-inf, -inf, 0]]
assert_equal(shifted(rows, mask), differences)
assert_close(probs, shares, rtol=1e-6)
assert_close(slopes, shares * inward, rtol=1e-4, atol=1e-6)

# %% [markdown]
# The last two rows are all zeros, with a gradient of zeros: nothing was selected, or nothing that
# is possible. If you would rather have such a row raise a flag, this is the place to count it; NaN
# is a poor flag.
#
# 💡 **Subtract the maximum of what is selected; pass the mask as a mask; decide what an empty row
# means.**

# %% [markdown] exercise="2.2"
# Write `masked_logsumexp(x, mask)`: for each row, the logarithm of the sum of the exponentials of
# the selected numbers.
#
# - `x` is float32 and `mask` bool, both of shape (rows, n). It returns shape (rows,).
# - A selected number is finite, of any size that float32 holds, or −∞, which counts as exp(x) = 0.
#   What is not selected may be anything, NaN and ±∞ included.
# - Where nothing is selected, or nothing but −∞, the result is −∞.
# - The derivative with respect to `x` is the softmax of what is selected, and 0 for everything
#   else; in a row whose result is −∞ it is 0 throughout. That holds in forward mode (`jax.jvp`) and
#   in reverse mode (`jax.grad`).


# %% tags=["starter"] exercise="2.2"
def masked_logsumexp(x, mask):
    """Logsumexp of the selected numbers of each row. x, mask: (rows, n); returns (rows,)."""
    ### BEGIN SOLUTION
    kept = mask & (x > -jnp.inf)
    some = jnp.any(kept, axis=1)
    lowest = jnp.finfo(x.dtype).min
    top = jax.lax.stop_gradient(jnp.max(x, axis=1, where=kept, initial=lowest))
    total = jnp.sum(jnp.where(kept, jnp.exp(jnp.where(kept, x - top[:, None], 0.0)), 0.0), axis=1)
    return jnp.where(some, top + jnp.log(jnp.where(some, total, 1.0)), -jnp.inf)
    ### END SOLUTION


# %% [markdown]
# ## 2.7 Cross-entropy
#
# The loss of a classifier is −log of the probability that it gives to the right class. The most
# natural way to write it is in two steps, `log(softmax(x))`. ❌ If the right class is far behind,
# its probability is too small for float32, and so is 0. Then the loss is ∞, and its gradient, in
# the very case where the network is most wrong, is NaN.


# %% tags=["claim"]
def loss_by_log(x):
    return -jnp.log(jax.nn.softmax(x))[0]


def loss_by_log_softmax(x):
    return -jax.nn.log_softmax(x)[0]


x = np.array([0.0, 120.0, 0.0], np.float32)
for loss in (loss_by_log, loss_by_log_softmax):
    value, slope = jax.value_and_grad(loss)(x)
    print(f"{loss.__name__:20} loss {value:5}  gradient {slope}")
assert np.isposinf(loss_by_log(x)) and np.all(np.isnan(jax.grad(loss_by_log)(x)))
assert_close(loss_by_log_softmax(x), 120.0, rtol=1e-6)
assert_close(jax.grad(loss_by_log_softmax)(x), [-1.0, 1.0, 0.0], rtol=1e-6)

# %% [markdown]
# ✅ The logarithm and the exponential cancel on paper, so don't compute either for the right
# class: log softmax(x) is x − max − log Σ exp(x − max). The library's version, with a mask, and
# the loss that is made of it:

# %% tags=["given"]
# quote: helpers.numerics.log_softmax


# quote: helpers.losses.cross_entropy

# %% [markdown]
# With the five rows of §2.6 it is −∞ where the mask says no, and no gradient is NaN, not even where
# nothing is selected.

# %% tags=["claim"]
logs = jax.jit(log_softmax)(rows, mask)
slopes = jax.jit(jax.grad(lambda x: jnp.sum(jnp.where(mask, log_softmax(x, mask), 0.0))))(rows)

print(np.asarray(logs).round(4))
assert_close(logs[:3][mask[:3]], np.log(shares[:3][mask[:3]]), rtol=1e-6)
assert np.all(np.isneginf(logs[~mask]))
assert np.all(np.isneginf(logs[3:]))
assert_finite(slopes)

# %% [markdown]
# Without a mask all numbers take part, along the last axis of however many there are:

# %% tags=["claim"]
cube = np.random.default_rng(1).standard_normal((2, 3, 4)).astype(np.float32)
exact = cube - np.log(np.sum(np.exp(cube, dtype=np.float64), axis=-1, keepdims=True))

assert_equal(shifted(cube), cube - cube.max(axis=-1, keepdims=True))
assert_close(softmax(cube), np.exp(exact), rtol=1e-5)
assert_close(log_softmax(cube), exact, rtol=1e-5)

# %% [markdown]
# The proof of the loss is a formula that every classifier relies on: the gradient of the batch mean
# is (softmax − onehot) / B. No entry of it is larger than 1 / B, whatever the logits are. Here they
# go up to 10,000.

# %% tags=["claim"]
rng = np.random.default_rng(2)
logits = (rng.standard_normal((8, 5)) * 10.0 ** rng.integers(0, 5, (8, 1))).astype(np.float32)
labels = rng.integers(0, 5, 8)
slopes = jax.jit(jax.grad(lambda x: jnp.mean(cross_entropy(x, labels))))(logits)

wide = logits.astype(np.float64)
exps = np.exp(wide - wide.max(axis=1, keepdims=True))
exact = (exps / exps.sum(axis=1, keepdims=True) - np.eye(5)[labels]) / 8
assert_close(slopes, exact, rtol=1e-4, atol=1e-7)
assert np.abs(logits).max() > 1e4
assert np.abs(slopes).max() <= 1 / 8
print(f"largest logit above 10,000, largest gradient {np.abs(slopes).max():.4f}")

# %% [markdown]
# How far behind may the right class be? By logarithm of the softmax until `exp` gives up, at 87 or
# at 104 (§2.2), and a float16 model much earlier. By `log_softmax` without limit.

# %% tags=["claim", "nbval-ignore-output"]
gaps = np.linspace(0, 160, 81).astype(np.float32)
behind = np.stack([np.zeros_like(gaps), gaps], axis=1)
by_log = jax.jit(jax.vmap(loss_by_log))(behind)
by_log_softmax = jax.jit(jax.vmap(loss_by_log_softmax))(behind)

last = float(gaps[np.isfinite(by_log)].max())
print(f"log(softmax) is finite up to a gap of {last:g} on this machine")
assert 86 <= last <= 104
assert_close(by_log_softmax, np.logaddexp(0.0, gaps.astype(np.float64)), rtol=1e-6)
assert np.all(np.isposinf(by_log[gaps > 104]))

# %% tags=["figure"]
fig, ax = figure(
    "log(softmax) ends where the class is most wrong",
    "how far the right class is behind (logits)",
    "loss",
)
(good,) = ax.plot(gaps, by_log_softmax, color=COLORS.right)
(bad,) = ax.plot(
    gaps, np.where(np.isfinite(by_log), by_log, np.nan), color=COLORS.wrong, linewidth=5
)
ax.plot(last, last, "o", color=COLORS.wrong, markersize=9)
ax.annotate("log(softmax):\n∞ from here on", (last, last), xytext=(10, -26),
            textcoords="offset points", color=COLORS.wrong, fontweight="bold")  # fmt: skip
label_line(good, "log_softmax")
describe(
    fig,
    "Loss against the gap between the right class and the best one. Both ways agree up to a gap of "
    "about 90; there log(softmax) becomes infinite, and log_softmax goes on along a straight line.",
)

# %% [markdown]
# **Rows that don't count.** A batch is padded, and padded rows get a weight of 0. ❌ 0 · NaN is
# NaN. A padded row needs only a label that isn't a class, here 7 of 3, and the weighted loss is
# NaN. Its gradient is *finite*: the row sends back zeros. So the training goes on, correctly,
# while the log says NaN; or somebody's guard that skips steps with a NaN loss skips them all.


# %% tags=["claim"]
def weighted_loss(x, labels, weights):
    return jnp.sum(weights * cross_entropy(x, labels)) / jnp.sum(weights)


x = np.float32([[1, 2, 3], [0, 1, 0]])
labels, weights = np.array([0, 7]), np.float32([1, 0])
loss, slope = jax.jit(jax.value_and_grad(weighted_loss))(x, labels, weights)

print(f"loss {loss}, gradient")
print(np.asarray(slope).round(4))
assert np.isnan(loss)
assert_finite(slope)
assert_close(slope[0], np.exp([-2.0, -1, 0]) / np.exp([-2.0, -1, 0]).sum() - [1, 0, 0], rtol=1e-5)

# %% [markdown]
# ❌ The reverse happens too: with one `where` on the losses the loss is fine, and if the padded
# logits hold NaN the gradient is not (§2.3). ✅ `where` on both sides: harmless numbers go into
# the loss of a padded row, and its result is dropped as well.


# %% tags=["claim"]
def loss_one_where(x, labels, real):
    return jnp.sum(jnp.where(real, cross_entropy(x, labels), 0.0)) / jnp.sum(real)


def loss_two_wheres(x, labels, real):
    return loss_one_where(jnp.where(real[:, None], x, 0.0), jnp.where(real, labels, 0), real)


x[1], real = np.nan, weights > 0
for loss in (loss_one_where, loss_two_wheres):
    value, slope = jax.jit(jax.value_and_grad(loss))(x, labels, real)
    print(f"{loss.__name__:16} loss {value:.4f}, NaN in the gradient: {np.isnan(slope).sum()}")
    assert_close(value, np.log(np.exp([-2.0, -1, 0]).sum()) + 2, rtol=1e-5)
    assert np.isnan(slope).sum() == (3 if loss is loss_one_where else 0)

# %% [markdown]
# <details><summary>I multiplied by a mask and got 0, not NaN. Why?</summary>
#
# Because your mask was boolean, and XLA may rewrite a product of a converted mask and an array into
# a selection. Whether it does depends on the version, the device and what stands around the
# product. A mask that arrives as float32 is multiplied, and 0 · NaN is NaN again. The next cell
# shows both on your machine; the first line is a courtesy of the compiler, the second a rule of
# arithmetic.
#
# </details>

# %% tags=["claim", "nbval-ignore-output"]
numbers, keep = np.float32([1, np.nan]), np.array([True, False])
total = jax.jit(lambda x, mask: jnp.sum(x * mask))

print("boolean mask:", total(numbers, keep), " float mask:", total(numbers, np.float32(keep)))
assert np.isnan(total(numbers, np.float32(keep)))
assert jnp.sum(jnp.where(keep, numbers, 0.0)) == 1.0

# %% [markdown]
# 💡 **Never form a probability whose logarithm you want, and never multiply by a mask.**

# %% [markdown] exercise="2.3"
# Write `padded_cross_entropy(logits, labels, real_rows, real_classes)`: the mean cross-entropy over
# the rows that are real, of a softmax over the classes that are real.
#
# - `logits` (B, C) is float32, `labels` (B,) int32, `real_rows` (B,) and `real_classes` (C,) are
#   bool. The label of a real row is a real class; at least one class is real.
# - It returns a scalar: the mean over the real rows of −log softmax(row)[label], where padded
#   classes have no probability. If no row is real it is 0.
# - Logits of real rows and classes are finite, of any size. Padded rows and columns of `logits` may
#   hold anything, NaN and ±∞ included, and padded labels any integer, negative or huge.
# - Its gradient with respect to the logits is (softmax − onehot) / (number of real rows) for real
#   rows and classes, and 0 for all others.


# %% tags=["starter"] exercise="2.3"
def padded_cross_entropy(logits, labels, real_rows, real_classes):
    """Mean cross-entropy over real rows and classes; 0 if there are no real rows.

    logits: (B, C), labels and real_rows: (B,), real_classes: (C,). Returns a scalar.
    """
    ### BEGIN SOLUTION
    real = real_rows[:, None] & real_classes
    log_probs = log_softmax(jnp.where(real, logits, 0.0), where=real_classes)
    chosen = jnp.where(real_rows, labels, jnp.argmax(real_classes))
    losses = -jnp.take_along_axis(log_probs, chosen[:, None], axis=1)[:, 0]
    return jnp.sum(jnp.where(real_rows, losses, 0.0)) / jnp.maximum(jnp.sum(real_rows), 1)
    ### END SOLUTION


# %% [markdown]
# ## 2.8 A derivative of your own
#
# Some functions can't be guarded from outside: the formula is fine and its derivative isn't, or
# there is none that one could learn from. Take softplus, log(1 + eˣ). ❌ As it stands it is ∞ at
# 89 and its slope NaN. The well-known stable form, max(x, 0) + log1p(e^−|x|), has the right value
# everywhere, and for once something worse than NaN: at 0 its slope is 0 instead of ½, because
# neither the maximum nor |x| has a derivative there, and JAX's two choices don't add up.


# %% tags=["given"]
def softplus_textbook(x):
    return jnp.log(1 + jnp.exp(x))


def softplus_stable(x):
    return jnp.maximum(x, 0.0) + jnp.log1p(jnp.exp(-jnp.abs(x)))


# %% tags=["claim"]
for x in (0.0, 89.0):
    for function in (softplus_textbook, softplus_stable):
        value, slope = jax.value_and_grad(function)(x)
        print(f"{function.__name__:18} at {x:4}: value {value:7.4f}  slope {slope:.4f}")

assert np.isposinf(softplus_textbook(89.0)) and np.isnan(jax.grad(softplus_textbook)(89.0))
assert_close(softplus_textbook(0.0), np.log(2), rtol=1e-6)
x = np.float32([-89, 0, 89])
assert_close(softplus_stable(x), np.logaddexp(0.0, x.astype(np.float64)), rtol=1e-6, atol=1e-37)
assert jax.grad(softplus_stable)(0.0) == 0.0  # the logistic function at 0 is 0.5
assert_close(jax.grad(softplus_stable)(1e-3), 1 / (1 + np.exp(-1e-3)), rtol=1e-6)

# %% [markdown]
# `jax.custom_jvp` lets you state the derivative. The rule gets the arguments (*primals*) and how
# they move (*tangents*), and returns the value and how that moves. It serves forward and reverse
# mode, and it replaces what JAX would have derived. ❌ It is also just code, and can be as unsafe
# as any. The derivative of softplus is eˣ / (1 + eˣ), as one finds it in the textbook:


# %% tags=["claim"]
@jax.custom_jvp
def softplus_unsafe(x):
    return softplus_stable(x)


@softplus_unsafe.defjvp
def softplus_unsafe_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    return softplus_unsafe(x), jnp.exp(x) / (1 + jnp.exp(x)) * dx


slopes = [float(jax.grad(softplus_unsafe)(x)) for x in (0.0, 88.0, 89.0)]
print("slopes at 0, 88 and 89:", slopes)
assert slopes[:2] == [0.5, 1.0]
assert np.isnan(slopes[2])

# %% [markdown]
# ✅ The same function, written so that nothing overflows, is the logistic function. A rule is
# differentiated in its turn when somebody asks for a second derivative, so it must be safe in
# that respect as well: `jax.nn.sigmoid` is.

# %% tags=["given"]
# quote: helpers.numerics.softplus


# quote: helpers.numerics.softplus_jvp

# %% tags=["claim"]
x = np.float32([-1e4, -89, -2, 0, 2, 89, 1e4])
wide = np.clip(x.astype(np.float64), -700, 700)
logistic = 1 / (1 + np.exp(-wide))
slope, curvature = jax.grad(softplus), jax.grad(jax.grad(softplus))

assert_close(jax.jit(softplus)(x), np.logaddexp(0.0, x.astype(np.float64)), rtol=1e-6, atol=1e-37)
assert_close(jax.jit(jax.vmap(slope))(x), logistic, rtol=1e-6, atol=1e-37)
assert_close(jax.jit(jax.vmap(curvature))(x), logistic * (1 - logistic), rtol=1e-5, atol=1e-37)
value, moved = softplus_jvp((np.float32(2),), (np.float32(3),))  # the rule, called by hand
assert_close((value, moved), (np.logaddexp(0.0, 2.0), 3 / (1 + np.exp(-2.0))), rtol=1e-6)
print("value, slope and curvature agree with float64 from −10,000 to 10,000")
assert np.abs(x).max() == 10_000

# %% [markdown]
# Three more ways to get a rule wrong, on a root with a slope of 0 at 0. A rule with one `where`
# gives a right first derivative and a NaN second one. A rule that forgets to multiply by the
# tangent returns the same whatever comes in; reverse mode finds that nothing depends on the tangent
# and says 0, without an error. And the *value* that a rule returns is the one that counts under
# differentiation: if it is not the function's own, `f(x)` and `value_and_grad(f)(x)` disagree.


# %% tags=["given"]
def root_with(rule):
    """√x for x ≥ 0 with the given rule: (x, dx) → (value, tangent)."""
    root = jax.custom_jvp(lambda x: jnp.sqrt(x))
    root.defjvp(lambda primals, tangents: rule(*primals, *tangents))
    return root


def inverse_root(x):
    """1 / (2√x), and 0 at 0, by a double where."""
    return jnp.where(x > 0, 0.5 / jnp.sqrt(jnp.where(x > 0, x, 1.0)), 0.0)


one_where = root_with(lambda x, dx: (jnp.sqrt(x), jnp.where(x > 0, 0.5 / jnp.sqrt(x), 0.0) * dx))
no_tangent = root_with(lambda x, dx: (jnp.sqrt(x), inverse_root(x)))
other_value = root_with(lambda x, dx: (x, inverse_root(x) * dx))
right_rule = root_with(lambda x, dx: (jnp.sqrt(x), inverse_root(x) * dx))


# %% tags=["claim"]
def second(f):
    return jax.grad(jax.grad(f))


print("one where:    slope at 0", jax.grad(one_where)(0.0), " second", second(one_where)(0.0))
print("no tangent:   slope at 4", jax.grad(no_tangent)(4.0))
print("other value: ", other_value(9.0), "or", jax.value_and_grad(other_value)(9.0)[0])
assert jax.grad(one_where)(0.0) == 0.0 and np.isnan(second(one_where)(0.0))
assert jax.value_and_grad(no_tangent)(4.0) == (2.0, 0.0)
assert other_value(9.0) == 3.0 and jax.value_and_grad(other_value)(9.0)[0] == 9.0
for rule in (one_where, right_rule):
    assert jax.value_and_grad(rule)(0.25) == (0.5, 1.0)
assert jax.grad(right_rule)(0.0) == second(right_rule)(0.0) == 0.0

# %% [markdown]
# JAX's own rules are not exempt. `jax.scipy.special.xlogy(x, y)` is x · log y with the convention
# that it is 0 at x = 0, for use in entropies. It has a rule of its own, and that rule contains x /
# y. This is what your version says at (0, 0):

# %% tags=["claim", "nbval-ignore-output"]
value, slopes = jax.value_and_grad(jax.scipy.special.xlogy, (0, 1))(0.0, 0.0)
print(f"xlogy(0, 0) = {value}, slopes {slopes[0]} and {slopes[1]}")
assert value == 0.0
ours = jax.value_and_grad(entropy)(np.float32([0.0, 1.0]))
assert_close(ours, (0.0, np.array([0.0, -1.0])), rtol=1e-6)  # the library's edge, by a double where

# %% [markdown]
# **A test for a rule** is a comparison with differences, and `jax.test_util.check_grads` does it in
# both modes and to any order. It finds the slope that is silently 0 at 0. Two things to know: near
# an edge differences are worthless, and in float32 it tolerates a lot. A rule that is off by one
# part in a thousand passes, one that is off by 3 % doesn't.


# %% tags=["claim"]
def sine_off_by(factor):
    sine = jax.custom_jvp(lambda x: jnp.sin(x))
    sine.defjvp(lambda x, dx: (jnp.sin(x[0]), factor * jnp.cos(x[0]) * dx[0]))
    return sine


x = np.float32(0.7)
check_grads(softplus, (np.float32(0),), order=2)
check_grads(sine_off_by(1.0), (x,), order=2)
check_grads(sine_off_by(1.001), (x,), order=1)  # passes, though it is wrong
show_error(check_grads, sine_off_by(1.03), (x,), order=1, expect=AssertionError)
show_error(check_grads, softplus_stable, (np.float32(0),), order=1, expect=AssertionError)
assert_close(jax.grad(sine_off_by(1.001))(x), 1.001 * np.cos(0.7), rtol=1e-6)

# %% [markdown]
# So use it for the coarse mistakes, a sign or a forgotten factor, and a closed form in float64 for
# the fine ones.
#
# **Straight through.** Sometimes the true derivative is the problem. Rounding is flat between its
# steps: its slope is 0 almost everywhere, and nothing can be learnt through it. The
# **straight-through estimator** rounds on the way forward and pretends on the way back that it did
# not. It needs no rule, only a `stop_gradient` around the difference:

# %% tags=["given"]
# quote: helpers.numerics.round_straight_through


def train_rounded(rounding, steps=30):
    """Losses while whole-number weights are learnt: the sum of (rounding(w) − target)²."""
    target = np.float32([3, -2, 1, 4])
    both = jax.jit(jax.value_and_grad(lambda w: jnp.sum((rounding(w) - target) ** 2)))
    w, losses = np.float32([0.3, 0.2, -0.4, 0.1]), []
    for _ in range(steps):
        loss, slope = both(w)
        w = w - 0.07 * np.asarray(slope)
        losses.append(float(loss))
    return np.array(losses)


# %% [markdown]
# ❌ Through `jnp.round` four weights don't move at all in 30 steps. ✅ Straight through they
# arrive.

# %% tags=["claim"]
flat, straight = train_rounded(jnp.round), train_rounded(round_straight_through)
x = np.float32([-1.5, -0.2, 0.5, 2.7])

print(f"round:            loss {flat[0]:g} at first, {flat[-1]:g} after {len(flat)} steps")
print(f"straight through: loss {straight[0]:g} at first, {straight[-1]:g}")
assert np.all(flat == 30.0) and len(flat) == 30
assert straight[0] == 30.0 and straight[-1] == 0.0
assert_equal(round_straight_through(x), np.round(x))
assert_equal(jax.vmap(jax.grad(round_straight_through))(x), np.ones(4))
assert jax.grad(jnp.round)(1.3) == 0.0

# %% tags=["figure"]
fig, ax = figure("Through a plain round nothing is learnt", "step", "loss")
(bad,) = ax.plot(flat, color=COLORS.wrong)
(good,) = ax.plot(straight, color=COLORS.right)
label_line(bad, "round")
label_line(good, "straight through")
describe(
    fig,
    "Loss of learning four whole-number weights. With round it stays at 30; with the "
    "straight-through estimator it falls in steps to 0.",
)

# %% [markdown]
# 💡 **A rule is code that will be differentiated: linear in the tangent, safe at the edge,
# twice.**

# %% [markdown] exercise="2.4"
# The angle between two rotations, or two unit vectors, is the arccos of a number that should lie in
# [−1, 1], and that rounding makes 1.0000001. Its slope −1 / √(1 − x²) is −∞ at the edges. A slope
# of 0 there would be a dead end: an angle of exactly 0 could never grow again.
#
# Write `safe_arccos(x)` with a rule of its own (`jax.custom_jvp`).
#
# - `x` is a float32 array of any shape. The value is arccos(x), elementwise; 0 for x > 1 and π for
#   x < −1.
# - The slope is −1 / √(1 − x²) as long as that is no steeper than −100, and −100 everywhere else:
#   near the edges, on them and beyond. (It gets there where 1 − x² = 1e-4.)
# - The second derivative is that of the slope: −x / (1 − x²)^1.5 where the slope is the true one, 0
#   where it is −100.
# - Forward mode, reverse mode, reverse mode twice, `vmap` and `jit` work, and the value under
#   differentiation is the value.


# %% tags=["starter"] exercise="2.4"
def safe_arccos(x):
    """arccos with x clipped to [−1, 1] and a slope no steeper than −100; any shape."""
    ### BEGIN SOLUTION
    return _arccos(x)


@jax.custom_jvp
def _arccos(x):
    return jnp.arccos(jnp.clip(x, -1.0, 1.0))


@_arccos.defjvp
def _arccos_jvp(primals, tangents):
    (x,), (dx,) = primals, tangents
    return _arccos(x), -dx / jnp.sqrt(jnp.maximum(1 - x * x, 1e-4))
    ### END SOLUTION


# %% [markdown]
# ## 2.9 What `jax_debug_nans` sees
#
# JAX has a switch for all this: `JAX_DEBUG_NANS=1`, or `jax.config.update("jax_debug_nans", True)`.
# Every result is checked, and the first NaN raises FloatingPointError. When it works, the answer
# comes at once. It is also the tool that people trust when it says nothing, so it is worth knowing
# when that means nothing. The two kinds of call below are all that we need: a logarithm of 2 and
# one of −1.

# %% tags=["given"]
good, bad = np.float32(2), np.float32(-1)


def verdict(fn, *args):
    """ "found" if JAX raises FloatingPointError for the call, "missed" if the call returns."""
    with contextlib.redirect_stdout(io.StringIO()):  # JAX announces a NaN there
        try:
            fn(*args)
        except FloatingPointError:
            return "found"
    return "missed"


def with_switch_on(fn, *args):
    """Runs `fn(*args)` in a thread of its own while the global switch is on."""
    jax.config.update("jax_debug_nans", True)
    try:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(fn, *args).result()
    finally:
        jax.config.update("jax_debug_nans", False)


# %% [markdown]
# A script first. It turns the switch on as the manual says, calls a jitted function with a good
# number and then with a bad one. In between, or not, it does something that a thousand programs do:
# it maps `2 * x` over a batch.

# %% tags=["claim"]
SCRIPT = """
import jax, jax.numpy as jnp

for between in (lambda: None, lambda: jax.vmap(lambda x: 2 * x)(jnp.ones(3))):
    log = jax.jit(lambda x: jnp.log(x))
    log(2.0)
    between()
    try:
        print("the bad call returns", log(-1.0))
    except FloatingPointError as error:
        print("the bad call raises:", error)
"""
switched_on = os.environ | {"JAX_DEBUG_NANS": "1", "JAX_PLATFORMS": "cpu"}
done = subprocess.run(
    [sys.executable, "-c", SCRIPT], env=switched_on, capture_output=True, text=True, check=True
)
said = [line for line in done.stdout.splitlines() if line.startswith("the bad call")]
print(*said, sep="\n")
assert said[0].startswith("the bad call raises: invalid value (nan)")
assert said[1] == "the bad call returns nan"

# %% [markdown]
# ❌ After the `vmap` the switch is still on, and blind. Nothing says so. (JAX also announces each
# find on *stdout*, and this cell had to filter that: mind it, if your script's output is data.)
#
# The first call of a program goes through Python and is checked there. Later calls take a fast path
# in C++, which calls a **hook** when it is done. The switch sets the hook of the process, the
# context manager `jax.debug_nans(...)` that of the current *thread*, and the thread's wins.
# Whenever a thread *leaves* such a context, its own hook is set to "none", which hides the one of
# the process from then on. JAX itself enters and leaves the context in many places, to keep the
# check away from its own harmless NaNs.
#
# If that is the reason, anything that leaves a context blinds the thread, and a thread that never
# did can see. So each trial gets a thread of its own.


# %% tags=["given"]
def after(trigger, *calls):
    """A good call, the trigger, more calls, a bad one, of one program: is the last one found?"""
    log = jax.jit(lambda x: jnp.log(x))
    log(good)
    trigger()
    for x in calls:
        log(x)
    return verdict(log, bad)


def leave_context(enabled):
    with jax.debug_nans(enabled):
        pass


def leave_and_clear():
    leave_context(True)
    jax.clear_caches()


x3, eye = np.float32([1, 2, 3]), np.eye(3, dtype=np.float32)
TRIGGERS = {
    "nothing": lambda: None,
    "vmap of lax.sin": lambda: jax.vmap(jax.lax.sin)(x3),
    "vmap of 2 * x": lambda: jax.vmap(lambda x: 2 * x)(x3),
    "jnp.linalg.solve": lambda: jnp.linalg.solve(eye, x3),
    "jax.hessian": lambda: jax.hessian(lambda x: jnp.sum(jnp.sin(x)))(x3),
    "with debug_nans(True)": lambda: leave_context(True),
}

# %% tags=["claim"]
jax.clear_caches()  # what was traced before would not be traced, nor blind the thread, again
outcomes = {name: with_switch_on(after, trigger) for name, trigger in TRIGGERS.items()}
for name, outcome in outcomes.items():
    print(f"{name:23} {outcome}")

assert list(outcomes.values()) == ["found", "found", "missed", "missed", "missed", "missed"]
assert with_switch_on(after, leave_and_clear) == "found"
assert with_switch_on(after, leave_and_clear, good) == "missed"

# %% [markdown]
# The last line is the mechanism itself, and an irony: a block with the *safe* form of the check,
# which did its work, leaves the thread blind to the global one.
#
# <details><summary>Which functions do it? And doesn't it help to clear the caches?</summary>
#
# Inside a `vmap` it depends on whether the mapped function contains a jit of its own: `2 * x` and
# most of `jnp` do, bare `lax` operations don't. It happens while such a function is traced, so once
# in a program is enough.
#
# `jax.clear_caches()`, as one is often advised, sends the *next* call of each program back through
# Python, where it is checked. After one good call the fast path is there again, and blind: the last
# two assertions.
#
# </details>
#
# ✅ The context manager doesn't have this problem. Inside `with jax.debug_nans(True):` the
# thread's own hook is the one that checks, and whatever leaves a context inside it puts that hook
# back. All triggers, in this thread, which has left many a context in this chapter:

# %% tags=["claim"]
jax.clear_caches()
with jax.debug_nans(True):
    in_context = [after(trigger) for trigger in TRIGGERS.values()]

print(f"found {in_context.count('found')} of {len(in_context)}")
assert in_context == ["found"] * 6

# %% [markdown]
# Even so it sees *results* of programs only. Four ways to have a NaN and no report: it is dropped
# inside a jitted function; it is dropped inside a scan, jitted or not; it decides a comparison, and
# the result is a bool; it is the position of a maximum. And there is a false alarm: outside jit
# each operation is a program, so a logarithm that is guarded by a `where`, and harmless, raises. A
# double where is silent, as it should be.


# %% tags=["given"]
def guarded_log(x):
    return jnp.where(x > 0, jnp.log(x), 0.0)


def sum_of_logs(x):
    def add(total, x):
        return total + guarded_log(x), None

    return jax.lax.scan(add, 0.0, jnp.stack([x, x]))[0]


UNSEEN = {
    "dropped under jit": jax.jit(guarded_log),
    "dropped in a scan": sum_of_logs,
    "a bool": jax.jit(lambda x: jnp.log(x) > 0),
    "an argmax": jax.jit(lambda x: jnp.argmax(jnp.stack([x, jnp.log(x)]))),
}

# %% tags=["claim"]
with jax.debug_nans(True):
    unseen = {name: verdict(fn, bad) for name, fn in UNSEEN.items()}
    alarms = {
        "a guarded log": verdict(guarded_log, bad),
        "a double where": verdict(safe_norm, np.zeros(3, np.float32)),
    }

for name, outcome in unseen.items():
    print(f"{name:18} {outcome}")
for name, outcome in alarms.items():
    print(f"{name:18} {outcome}, without jit; there is nothing wrong with it")
assert list(unseen.values()) == ["missed"] * 4
assert list(alarms.values()) == ["found", "missed"]
assert_close(guarded_log(np.float32([-1, 0, 0.5])), [0.0, 0.0, np.log(0.5)], rtol=1e-6)
assert_close(sum_of_logs(good), 2 * np.log(2), rtol=1e-6)

# %% [markdown]
# Two more surprises. A program that was compiled ahead of time raises *another* error, of a class
# that isn't public and is no FloatingPointError, so the handler that you wrote doesn't catch it.
# And a function that is first called under the check never donates its buffers (chapter 6), not
# even when the check is over: what was an update in place needs a second copy, while you look for
# something else.

# %% tags=["claim"]
compiled = jax.jit(lambda x: jnp.log(x)).lower(bad).compile()
with jax.debug_nans(True):
    error = show_error(compiled, bad, expect=Exception, contains="nan")
assert not isinstance(error, FloatingPointError)

update = jax.jit(lambda x: x + 1, donate_argnums=0)
with jax.debug_nans(True):
    first = jnp.ones(4)
    update(first)
print("donated under the check:", first.is_deleted())
assert not first.is_deleted()
second = jnp.ones(4)
update(second)
print("and when it is over:    ", second.is_deleted())
assert not second.is_deleted()
fresh, again = jax.jit(lambda x: x + 1, donate_argnums=0), jnp.ones(4)
fresh(again)
assert again.is_deleted()

# %% [markdown]
# 💡 **Wrap the step that fails in `with jax.debug_nans(True):`. The global switch may be blind,
# and silence from either is no proof.**

# %% [markdown]
# ## 2.10 Infinities, and checkify
#
# NaN is the second act. `jax.debug_infs(True)` raises for the first one: an `exp` that overflows, a
# slope that is ∞. It checks results in the same way and has the same gaps, and it takes every −∞ in
# a mask for a fault, which makes it useless in code that has such masks.

# %% tags=["claim"]
with jax.debug_infs(True):
    infinite = {
        "exp(100)": verdict(jnp.exp, np.float32(100)),
        "slope of √x at 0": verdict(jax.grad(jnp.sqrt), np.float32(0)),
        "1 / exp(100), jitted": verdict(jax.jit(lambda x: 1 / jnp.exp(x)), np.float32(100)),
        "a mask of −∞": verdict(jnp.full, 3, -np.inf),
    }
for name, outcome in infinite.items():
    print(f"{name:21} {outcome}")
assert list(infinite.values()) == ["found", "found", "missed", "found"]

# %% [markdown]
# ✅ **checkify** looks inside. `checkify.checkify(f, errors=checkify.float_checks)` rewrites a
# function so that *each operation* in it is followed by a check, and the outcome is returned
# beside the result, as data. So it works under `jit`, `vmap`, `grad` and `scan`, with no switch
# and no hook, and reports from the middle of a program. `float_checks` are two: NaN, and division
# by zero. Overflow to ∞ is neither.


# %% tags=["given"]
def report(fn, *args):
    """What checkify says of the call: the first line of its report, "" if there is none."""
    error, _ = jax.jit(checkify.checkify(fn, errors=checkify.float_checks))(*args)
    return (error.get() or "").split("\n")[0]


# %% tags=["claim"]
reports = {name: report(fn, bad) for name, fn in UNSEEN.items()} | {
    "under vmap": report(jax.vmap(guarded_log), np.float32([2, -1])),
    "a cond under vmap": report(jax.vmap(by_cond), np.float32([-1, 4])),
    "1 / x at 0": report(lambda x: 1 / x, np.float32(0)),
    "gradient of √x": report(jax.grad(jnp.sqrt), np.float32(0)),
    "… of safe_norm": report(jax.grad(safe_norm), np.zeros(3, np.float32)),
    "exp(100)": report(jnp.exp, np.float32(100)),
}
for name, text in reports.items():
    print(f"{name:18} {text or 'nothing'}")
made_nan = [name for name, text in reports.items() if text.startswith("nan generated by")]
assert made_nan == [*UNSEEN, "under vmap", "a cond under vmap"]
assert reports["1 / x at 0"] == reports["gradient of √x"] == "division by zero"
assert reports["… of safe_norm"] == reports["exp(100)"] == ""

# %% [markdown]
# All four that §2.9 could not see are there. Note the price: the guarded logarithm is reported
# although nobody ever sees its NaN, and so is the `cond` that `vmap` has turned into a selection.
# In code that is written with double wheres there is nothing to report, not even in the gradient of
# `safe_norm` at zero. Your own conditions go in the same way, with `checkify.check`, and are
# ordinary arithmetic in the program:


# %% tags=["claim"]
def careful_log(x):
    checkify.check(jnp.all(x > 0), "expected positive numbers, the smallest is {low}", low=x.min())
    return jnp.log(x)


checked = jax.jit(checkify.checkify(careful_log))
error, logs = checked(np.float32([1, 2]))
assert error.get() is None
assert_close(logs, np.log([1.0, 2.0]), rtol=1e-6, atol=1e-7)
error, _ = checked(np.float32([1, -3]))
print(error.get().split(" (")[0])
assert error.get().startswith("expected positive numbers, the smallest is -3.0")
error = show_error(error.throw, expect=Exception, contains="the smallest is -3.0")

# %% [markdown]
# Now all tools on all cases: the global switch in a thread that is blind to it, the two context
# managers, checkify, and the plainest of all, a look at whether the result is finite.


# %% tags=["given"]
def root_slope(x):
    return jax.grad(jnp.sqrt)(x)


def guarded_root_slope(x):
    return jax.grad(guarded_root)(x)


CASES = {  # the function, a good number and a bad one
    "log of a negative number": (jnp.log, 2, -1),
    "… dropped by a where": (guarded_log, 2, -1),
    "… dropped in a scan": (sum_of_logs, 2, -1),
    "… turned into a bool": (lambda x: jnp.log(x) > 0, 2, -1),
    "exp(100)": (jnp.exp, 1, 100),
    "1 / exp(100)": (lambda x: 1 / jnp.exp(x), 1, 100),
    "∞ in a gradient": (root_slope, 1, 0),
    "NaN in a gradient": (guarded_root_slope, 1, 0),
}


def blinded(fn, good, bad):
    """As `after`, for any function, in a thread that has left a context."""
    fn(good)
    leave_context(True)
    return verdict(fn, bad)


# %% tags=["claim"]
found = {}
for name, (fn, ok, wrong) in CASES.items():
    ok, wrong, jitted = np.float32(ok), np.float32(wrong), jax.jit(lambda x, fn=fn: fn(x))
    row = [with_switch_on(blinded, jitted, ok, wrong)]
    for context in (jax.debug_nans, jax.debug_infs):
        with context(True):
            row.append(verdict(jitted, wrong))
    row.append("found" if report(fn, wrong) else "missed")
    row.append("missed" if np.isfinite(jitted(wrong)).all() else "found")
    found[name] = [outcome == "found" for outcome in row]

table = np.array(list(found.values()))
for name, row in found.items():
    print(f"{name:25}", *["found  " if yes else "missed " for yes in row])
assert not table[:, 0].any()
assert list(table.sum(axis=0)) == [0, 2, 2, 6, 4]
assert not table[list(CASES).index("1 / exp(100)")].any()

# %% tags=["figure"]
tools = ["global switch,\nblinded", "debug_nans\n(context)", "debug_infs\n(context)",
         "checkify", "isfinite\nof the result"]  # fmt: skip
fig, ax = figure("No tool finds everything, a blinded switch nothing", "", "", size=(7.2, 4.2))
for row, each in enumerate(reversed(table.tolist())):
    for column, yes in enumerate(each):
        ax.scatter(column, row, s=160, color=COLORS.right if yes else "none",
                   edgecolors=COLORS.right if yes else COLORS.wrong, linewidths=1.5)  # fmt: skip
ax.set_xticks(range(5), tools)
ax.set_yticks(range(8), list(reversed(CASES)))
ax.set(xlim=(-0.5, 4.5), ylim=(-0.6, 8.2))
ax.tick_params(length=0)
ax.annotate("filled: found", (4.4, 7.75), ha="right", color=COLORS.ink)
describe(
    fig,
    "Eight cases against five tools. The blinded global switch finds none, each context "
    "manager two, checkify six, a look at the result four. Nothing finds the overflow in "
    "1 / exp(100).",
)

# %% [markdown]
# The blinded switch finds none of the eight. The context managers find two each, a look at the
# result four, checkify six. The two that checkify misses are the overflows. Nothing at all finds 1
# / exp(100), whose value is 0, within rounding the right one. But try its gradient:

# %% tags=["claim"]
unnoticed, _, overflowing = CASES["1 / exp(100)"]
value, slope = jax.value_and_grad(unnoticed)(np.float32(overflowing))
print(f"1 / exp(100) = {value}, slope {slope}")
assert value == 0.0
assert np.isnan(slope)
assert_close(jax.value_and_grad(lambda x: jnp.exp(-x))(np.float32(80)),
             (np.exp(-80.0), -np.exp(-80.0)), rtol=1e-5)  # fmt: skip

# %% [markdown]
# 💡 **checkify to look inside, debug_infs for overflow, isfinite on loss and gradient at every
# step.**

# %% [markdown]
# ## 2.11 Back to where it was made
#
# A tool has said "NaN, in mul", and points to the line with `jax.grad` on it: the backward pass has
# no lines of its own. Here is a network to practise on. It scores a clip of sound: the energy in
# each frame, a hidden layer, then statistics over all frames, so that clips of any length give one
# vector, and a score.


# %% tags=["given"]
def clip_score(w, v, x):
    """Score of a clip. w: (3, 4), v: (8,), x: (frames, 3); returns a scalar > 0."""
    energy = jnp.log1p(x * x)
    hidden = jnp.tanh(energy @ w)
    pooled = jnp.concatenate([jnp.mean(hidden, axis=0), jnp.std(hidden, axis=0)])
    return jnp.logaddexp(pooled @ v, 0.0)


rng = np.random.default_rng(5)
clip_w = rng.standard_normal((3, 4)).astype(np.float32)
clip_v = rng.standard_normal(8).astype(np.float32)
noise = rng.standard_normal((8, 3)).astype(np.float32)
silence = np.zeros((8, 3), np.float32)

# %% tags=["claim"]
score_and_slopes = jax.jit(jax.value_and_grad(clip_score, (0, 1, 2)))
for name, clip in {"noise": noise, "silence": silence}.items():
    score, slopes = score_and_slopes(clip_w, clip_v, clip)
    broken = [part for part, slope in zip("wvx", slopes, strict=True) if np.isnan(slope).any()]
    print(f"{name:8} score {score:.4f}, NaN in the gradient of: {', '.join(broken) or 'nothing'}")
    assert np.isfinite(score)
    assert bool(broken) == (name == "silence")
assert_close(score, np.log(2), rtol=1e-6)  # of silence: softplus(0)
with jax.debug_nans(True):
    assert verdict(score_and_slopes, clip_w, clip_v, silence) == "found"

# %% [markdown]
# Which of its operations is it? Logarithms, exponentials, means: any could be. Reading helps
# little, and commenting out halves changes the network. There is a method.
#
# Cut the function into **stages**, each a function of the previous one's result. Run them forward
# and look at each value: the first that isn't finite was made by its stage. If all are finite, go
# **backward**. `jax.vjp` gives a stage's value and a function that takes a slope through it, from
# its output to its input. Start with 1 and look at each slope. Take √(x²) at 0, in two stages:

# %% tags=["claim"]
square, back_through_square = jax.vjp(jnp.square, 0.0)
root, back_through_root = jax.vjp(jnp.sqrt, square)
(after_root,) = back_through_root(1.0)
(after_square,) = back_through_square(after_root)

print(f"forward:  square {square}, root {root}")
print(f"backward: 1.0, through the root {after_root}, through the square {after_square}")
assert square == root == 0.0
assert np.isposinf(after_root)
assert np.isnan(after_square)

# %% [markdown]
# The NaN *appears* in the square, whose slope is zero there, and this is what a NaN detector
# reports: a multiplication. It was *made* by the root, which turned a one into ∞. So look for the
# first number that isn't finite, in the order in which the numbers are computed; on the way back
# that is from the last stage to the first. Who mends the square mends nothing.
#
# 💡 **Forward to the first value that isn't finite; if there is none, backward to the first
# slope.**

# %% [markdown] exercise="2.5"
# Make the method a function, and use it on the network.
#
# **`culprit(stages, x)`.** `stages` is a list of pairs (name, function), to be applied one after
# another, starting with `x`, a float32 array of any shape. Return the name of the first stage
# whose *output* holds a number that isn't finite (NaN or ±∞). If all outputs are finite, take the
# gradient of the sum of the last output back through the stages, from the last to the first, and
# return the name of the first stage that hands on a slope which isn't finite. If there is none
# either, return `None`. `x` is finite; `culprit` itself need not work under jit.
#
# **`mended_score(w, v, x)`.** Cut `clip_score` into stages (as functions of the clip, with `clip_w`
# and `clip_v` fixed), find the culprit for `silence`, and write the network without the fault.
#
# - `w` (3, 4), `v` (8,) and `x` (frames, 3) are float32. Clips may be as quiet as 1e-3 or silent,
#   and a hidden unit may be idle (0 in all frames) while the others are not.
# - It has the scores of `clip_score` for all clips, and its gradients with respect to `w`, `v` and
#   `x` wherever these are finite.
# - Where they are NaN, the part of the operation that has no slope counts as having slope 0;
#   everything else keeps its own.


# %% tags=["starter"] exercise="2.5"
def culprit(stages, x):
    """Name of the stage that makes the first number that isn't finite, or None.

    stages: list of (name, function), applied in order. x: any shape, finite.
    """
    ### BEGIN SOLUTION
    backs = []
    for name, stage in stages:
        x, back = jax.vjp(stage, x)
        if not jnp.isfinite(x).all():
            return name
        backs.append((name, back))
    slope = jnp.ones_like(x)
    for name, back in reversed(backs):
        (slope,) = back(slope)
        if not jnp.isfinite(slope).all():
            return name
    return None
    ### END SOLUTION


def mended_score(w, v, x):
    """As `clip_score`, with finite gradients for silence and idle units too."""
    ### BEGIN SOLUTION
    hidden = jnp.tanh(jnp.log1p(x * x) @ w)
    mean = jnp.mean(hidden, axis=0)
    std = safe_norm(hidden - mean, axis=0) / np.sqrt(len(x))
    return jnp.logaddexp(jnp.concatenate([mean, std]) @ v, 0.0)
    ### END SOLUTION


# %% [markdown]
# ## 2.12 What to keep
#
# 💡 **Guard the input, then the output: two wheres.** One keeps the value right and the gradient
# NaN; an ε keeps the value finite, small numbers wrong, and behind a norm the gradient NaN.
#
# 💡 **Stay in logarithms, pass masks as masks, and select instead of multiplying.**
#
# 💡 **Watch gradients, not losses; look inside with checkify or a context manager; and go back to
# the first infinity, not to the first NaN.**
#
# ### 🧪 Quiz
#
# Put a letter in place of the dots and run the cell. The answers are measured on your machine.

# %% tags=["quiz"] question="2.a"

# %% tags=["quiz"] question="2.b"

# %% tags=["quiz"] question="2.c"

# %% tags=["quiz"] question="2.d"

# %% tags=["quiz"] question="2.e"

# %% tags=["quiz"] question="2.f"

# %% tags=["quiz"] question="2.g"

# %% tags=["quiz"] question="2.h"

# %% [markdown]
# ### Cheat sheet
#
# | to | write |
# |---|---|
# | guard an operation | `jnp.where(ok, f(jnp.where(ok, x, 1.0)), edge)` |
# | … without a harmless number | `jnp.where(ok, x, jax.lax.stop_gradient(x))` inside |
# | import what is below | `from helpers import losses, numerics` |
# | take a length | `numerics.safe_norm(x, axis)` |
# | run one branch only | `jax.lax.cond(ok, f, g, x)`; not `lax.select`, which is `where` |
# | take a masked softmax | `numerics.softmax(x, mask)`, or `jax.nn.softmax(x, where=mask)` |
# | take the log of a softmax | `numerics.log_softmax(x, mask)`; never `jnp.log(softmax(x))` |
# | take a loss | `losses.cross_entropy(logits, labels)`, and `losses.masked_mean` of it |
# | leave rows out | `where` on their inputs *and* on their losses; divide by `maximum(count, 1)` |
# | state a derivative | `@jax.custom_jvp`; `@f.defjvp`: `(primals, tangents) → (value, tangent)` |
# | pass a gradient straight through | `x + jax.lax.stop_gradient(g(x) - x)` |
# | test a derivative | `jax.test_util.check_grads(f, (x,), order=2)`, and a closed form |
# | find a NaN | `with jax.debug_nans(True): step(...)`; not the global switch |
# | find an ∞ | `with jax.debug_infs(True): step(...)` |
# | look inside a program | `jax.jit(checkify.checkify(f, errors=checkify.float_checks))` |
# | check a condition of yours | `checkify.check(ok, "text {x}", x=x)`, then `error.throw()` |
# | take a slope through a stage | `y, back = jax.vjp(stage, x)`, then `(slope,) = back(slope)` |
# | see where float32 ends | `jnp.finfo(jnp.float32).max`, `.tiny`, `.min` |
