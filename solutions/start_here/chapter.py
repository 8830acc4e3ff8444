# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # 00 · Start here
#
# Welcome. This course is about JAX programs that run, and are wrong or slow without a word: the
# step that compiles again each time, the one example that turns all parameters into NaN, the
# gradient that is nearly right.
#
# It makes one promise. **A sentence that states a number or a comparison is checked by a cell
# beside it**, on your machine, with your version of JAX. If the cell runs, the sentence is true for
# you. If it ever stops being true, the cell fails.
#
# This chapter shows how to read the others, and gives you what all of them build on: a way to tell
# a right result from one that only looks right. Afterwards you can
#
# - say how far a float32 result is off, in the only unit that fits every size: the ULP;
# - pick a tolerance for a reason, and spot a check that a wrong answer passes;
# - read a self-check, and see which quirks your machine and your version of JAX have.
#
# Reading takes about twenty minutes, the two exercises half an hour. You need NumPy, and to have
# seen `jax.jit` and `jax.grad` before.

# %% tags=["setup"]
import platform
import sys
import warnings

import jax
import jax.numpy as jnp
import jaxlib
import numpy as np

from helpers import (
    COLORS,
    assert_close,
    assert_ulps,
    check,
    describe,
    figure,
    label_line,
    progress,
    quirks,
    quiz,
    show_error,
    to64,
    ulps,
)

# %% [markdown]
# ## 0.1 How to read this
#
# Each topic goes the same way: why it matters, how it works, the mistake, measured, the fix, the
# proof, the rule in one line. Five marks show where you are.
#
# | mark | means |
# |---|---|
# | ❌ | a mistake, and what it costs; in a check: this does not hold |
# | ✅ | the way to do it, and the proof; in a check: this holds |
# | ✍️ | your turn; in a check: not answered yet |
# | 🧪 | a check, or a question of the quiz |
# | 💡 | a rule to keep; in a check: a mistake that your answer behaves like |
#
# Here is a sentence of the kind that this course is made of: **add 0.1 ten times in float32, and
# you get 1.0000001.** The cell below proves it. Click into it and press **Shift + Enter**.

# %% tags=["claim"]
total = np.float32(0)
for _ in range(10):
    total += np.float32(0.1)

print(total)
assert total != 1
assert total == np.float32(1.0000001)

# %% [markdown]
# Now change `!=` to `==` and run it again. The `AssertionError` is what a false sentence looks like
# here; nothing below such a cell runs with *Run All*, so change it back. Apart from that, cells are
# there to be changed: a grader uses its own copy of all those that are not yours.
#
# Four things about JupyterLab:
#
# - *Run → Run All Cells* runs the chapter from top to bottom. It works with nothing answered.
# - The names live in the **kernel**, a Python process behind the page. A cell that you changed
#   means nothing until you run it; one that you deleted lives on in the kernel. *Kernel → Restart
#   Kernel and Run All Cells…* makes the page true again. Do it before you hand in.
# - A cell that never ends is stopped with ■ in the toolbar; nothing else is lost.
# - The list icon at the far left opens the table of contents.

# %% [markdown]
# ## 0.2 Versions and devices
#
# What is true of JAX depends on its version and on what it runs on. These are yours. The course
# holds on JAX 0.10 to 0.12, on a CPU or a GPU.

# %% tags=["claim", "nbval-ignore-output"]
print(f"Python  {platform.python_version()} on {platform.system()} {platform.machine()}")
print(f"JAX     {jax.__version__}, jaxlib {jaxlib.__version__}, NumPy {np.__version__}")
print(f"devices {', '.join(str(device) for device in jax.devices())}")

assert jax.__version_info__ >= (0, 10)
assert sys.version_info >= (3, 11)

# %% [markdown]
# One thing is the same everywhere. ❌ Ask JAX for float64, and you get **float32**, with a warning
# that is easily lost among others. Bits that aren't there can't be got back later.

# %% tags=["claim"]
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    asked = jnp.zeros(3, dtype=jnp.float64)

print(asked.dtype, "·", str(said[0].message).split(",")[0])
assert asked.dtype == jnp.float32
assert issubclass(said[0].category, UserWarning)

# %% [markdown]
# There is a reason: training seldom needs more digits, and always needs more memory. The setting
# `jax_enable_x64` would change it, for the whole process; the course leaves it alone.
#
# 💡 **JAX computes in float32, NumPy's float64 is the referee.**

# %% [markdown]
# ## 0.3 What float32 gives up
#
# A result is off by 0.001. Is that good? If it should be 16 million, it is better than float32 can
# hold; if it should be 0.002, half of it is wrong. You need a unit that grows with the number.
#
# Floating-point numbers are evenly spaced between two powers of two, and twice as far apart behind
# the next one. The gap between a number and its neighbour is called an **ULP**, a unit in the last
# place; `np.spacing` measures it. In float32 there are 2²³ gaps between 1 and 2, in float64 2⁵².

# %% tags=["claim"]
for number in (1e-6, 1.0, 1000.0, 2.0**24):
    gap32, gap64 = np.spacing(np.float32(number)), np.spacing(number)
    print(f"at {number:10.8g}: float32 {gap32:.1e}, float64 {gap64:.1e}")

assert 1 / np.spacing(np.float32(1)) == 2.0**23
assert 1 / np.spacing(np.float64(1)) == 2.0**52
assert np.spacing(np.float32(2**24)) == 2
assert np.float32(2**24) + np.float32(1) == 2**24
assert 1.17e-38 < np.finfo(np.float32).tiny < 1.2e-38

# %% [markdown]
# So at 2²⁴, about 17 million, the float32 gap is 2, and adding 1 changes nothing. A float32
# counter stops there. Relative to the number, the gap always lies between 2⁻²⁴ and 2⁻²³: seven
# digits, at any size above 1.2e-38, where the normal numbers end.

# %% tags=["figure"]
numbers = np.geomspace(1e-3, 1e9, 4001)
fig, ax = figure("The gap grows with the number, the digits stay the same", "number", "gap: 1 ULP")
for dtype, digits, color in [
    (jnp.bfloat16, 8, COLORS.wrong),
    (np.float32, 24, COLORS.right),
    (np.float64, 53, COLORS.reference),
]:
    rounded = numbers.astype(dtype)
    gaps = to64(np.spacing(rounded))
    (line,) = ax.loglog(numbers, gaps, color=color)
    label_line(line, np.dtype(dtype).name)
    share = gaps / to64(rounded)
    assert 2.0**-digits <= np.min(share) and np.max(share) <= 2.0 ** (1 - digits)
ax.axhline(1, color=COLORS.ink, linewidth=1, linestyle=":")
ax.annotate("a gap of 1", (1e-3, 1), xytext=(0, 4), textcoords="offset points")
describe(
    fig,
    "Gap against number, both on log scales: three parallel staircases. The one of float32 lies "
    "2¹⁶ times below that of bfloat16 and 2²⁹ times above that of float64, and reaches a gap of 1 "
    "at 8 million.",
)

# %% [markdown]
# Counted in ULPs, every result can be held to the same standard. A correctly rounded one is off by
# half an ULP at most, JAX's `exp` and `log` by no more than 4 in the cell below.
# `ulps(got, want)` counts them, with `want` in float64.

# %% tags=["claim"]
x = np.linspace(-87, 88, 2001).astype(np.float32)
positive = np.linspace(0.01, 1000, 2001).astype(np.float32)

assert_ulps(jnp.float32(0.1), 0.1, 0.5)
assert_ulps(jnp.exp(x), np.exp(to64(x)), 4)
assert_ulps(jnp.log(positive), np.log(to64(positive)), 4)
print("exp and log: all 4002 results within 4 ULPs")

# %% [markdown]
# `to64(x)` in there is more than a cast. It gives the reference *the same numbers* that JAX got.
# ❌ Without it, `exp` looks more than 40 ULPs wrong: `np.float32(87.3)` is not 87.3, and `exp`
# makes the difference 87 times as large. ✅ With the same input, it is off by less than 4.

# %% tags=["claim"]
got = jnp.exp(jnp.float32(87.3))
other_input = float(ulps(got, np.exp(87.3)))
same_input = float(ulps(got, np.exp(to64(np.float32(87.3)))))

print(f"another input for the reference: {other_input:.0f} ULPs off")
assert other_input > 40
assert same_input < 4

# %% [markdown]
# 💡 **Count errors in ULPs, against float64, from the same inputs.**

# %% [markdown]
# ## 0.4 How a cell asserts
#
# After many operations ULPs are too strict, and one allows a tolerance:
#
# $$|\text{got} - \text{want}| \le \text{atol} + \text{rtol} \cdot |\text{want}|$$
#
# `rtol` is a share of the right value, `atol` an amount. One often sees `np.allclose(got, want)`,
# with both left to NumPy. ❌ Look what passes. The logistic function 1 / (1 + exp(−x)) can also be
# written ½ (1 + tanh(x/2)); below −20 that gives 0, so **every element is 100 % wrong**.


# %% tags=["claim"]
def by_tanh(x):
    """The logistic function, on paper."""
    return 0.5 * (1 + jnp.tanh(x / 2))


x = np.linspace(-40, -20, 21).astype(np.float32)
got, want = by_tanh(x), 1 / (1 + np.exp(-to64(x)))

print(f"float64 says {want[-1]:.2e} at −20, float32 says {float(got[-1]):.0f}")
assert np.all(to64(got) == 0)
assert np.allclose(got, want)

# %% [markdown]
# The default `atol` is 1e-8: two numbers below that count as equal. Here it is a
# probability. Its logarithm is a loss, and the loss is now infinite.
#
# ✅ `assert_close` has no default. It wants an `rtol`, adds nothing unless you say so, and names
# the worst element.

# %% tags=["claim"]
refused = show_error(assert_close, got, want, rtol=1e-5, expect=AssertionError)
assert "21 of 21 elements" in str(refused) and "relative 1," in str(refused)
assert np.all(np.isinf(jnp.log(got))) and np.all(np.isfinite(np.log(want)))

# %% tags=["figure"]
x = np.linspace(-30, -3, 541).astype(np.float32)
want = 1 / (1 + np.exp(-to64(x)))
error = np.abs(to64(by_tanh(x)) - want)
title = "Left of −18.5, allclose accepts a curve that is 100 % wrong"
fig, ax = figure(title, "x", "error of ½ (1 + tanh(x/2))")
ax.semilogy(x, error / want, color=COLORS.wrong)
ax.text(-29.5, 3, "relative error", color=COLORS.wrong, weight="bold")
ax.semilogy(x, error, color=COLORS.right)
ax.text(-26.5, 1e-13, "absolute error", color=COLORS.right, weight="bold")
(allowed,) = ax.semilogy(x, 1e-8 + 1e-5 * want, "--", color=COLORS.reference)
label_line(allowed, "what allclose\nallows")
far = x < -18.5
assert np.all(error[far] <= 1e-8 + 1e-5 * want[far])
assert np.all((error / want)[far] > 0.99)
ax.set_ylim(1e-14, 100)
describe(
    fig,
    "Errors of the tanh form against x. Left of −18.5 the absolute error is below what allclose "
    "allows and sinks further, while the relative error is 1, which is 100 %.",
)

# %% [markdown]
# Three more checks that look strict, and let a wrong answer through.
#
# ❌ **An infinite reference.** `atol + rtol * inf` is infinite, and every finite number is within
# it. The right answer is not: ∞ − ∞ is NaN.
#
# ❌ **A NaN in a negated check.** `NaN > 1e-5` is false, so a NaN is never "too large".
#
# ❌ **Shapes that broadcast.** One number is compared with all of the reference, and agrees.

# %% tags=["claim"]
want = np.array([1.0, np.inf])
with np.errstate(invalid="ignore"):
    passes = [bool(np.all(abs(g - want) <= 1e-5 * abs(want))) for g in ([1, 3], [1, np.inf])]
assert passes == [True, False]

error = np.abs(np.array([1.0, np.nan]) - 1.0)
assert not (error > 1e-5).any()

assert np.allclose(0.5, np.full(5, 0.5))
print("3 passes for inf, NaN passes, one number passes for five")

# %% [markdown]
# ✅ `assert_close` refuses all three, and says why. (`np.allclose` gets the first two right.)

# %% tags=["claim"]
show_error(assert_close, [1.0, 3.0], [1.0, np.inf], rtol=1e-5, expect=AssertionError)
show_error(assert_close, [1.0, np.nan], [1.0, 1.0], rtol=1e-5, expect=AssertionError)
show_error(assert_close, 0.5, np.full(5, 0.5), rtol=1e-5, expect=AssertionError)
assert_close([1.0, np.inf], [1.0, np.inf], rtol=1e-5)
assert not np.allclose([1.0, 3.0], [1.0, np.inf]) and not np.allclose([1.0, np.nan], [1.0, 1.0])

# %% [markdown]
# Which tolerance, then? It follows from what the number is for.
#
# | use | when | typical for float32 |
# |---|---|---|
# | `assert_ulps(got, want, n)` | one operation, or a few | 1 to 4 |
# | `rtol` | many operations, and each number counts by itself | 1e-5: 100 gaps, roughly |
# | `atol` | it will be added to others of one size; or the reference is 0 | 1e-6 of that: 10 gaps |

# %% tags=["claim"]
for tolerance, about in ((1e-5, 100), (1e-6, 10)):
    gaps = [tolerance * x / float(np.spacing(np.float32(x))) for x in (1.0, 1.9)]
    print(f"{tolerance:g} is {gaps[0]:.0f} gaps at 1, {gaps[1]:.0f} at 1.9")
    assert about / 2 < gaps[0] < gaps[1] < 2 * about

# %% [markdown]
# 💡 **Give each tolerance a reason, compare shapes first, and ask for what you want (`<=`, all of
# them), never for the absence of its opposite.**

# %% [markdown]
# ## 0.5 How a self-check reads
#
# Behind each exercise stands a cell like `check("0.1")`. It runs your answer on a handful of cases
# and compares with float64. Let's try one on three stand-ins. The exercise: `relative_error(got,
# want)`, the error as a share of the reference. First with nothing defined, then with an answer
# that has no absolute value in the denominator, then with a right one.

# %% tags=["given"]
check("0.0", {})
print()
check("0.0", {"relative_error": lambda got, want: abs(got - want) / want})
print()
check("0.0", {"relative_error": lambda got, want: abs(got - want) / abs(want)})

# %% [markdown]
# The first line has the points: a weighted share of the properties that hold, so half an answer
# earns half. Then comes one line a property. It holds (✅) if it held in every case. Where it does
# not (❌) you read what your answer gave, what float64 says, in which case, a hint, and the section
# to reread. Not answered (✍️) is not an error, and stops nothing.
#
# Sometimes there is a last line, 💡: your answer behaves exactly like a mistake that we have seen.
# This is what the tanh form of §0.4 gets in the exercise that comes next:

# %% tags=["given"]
check("0.1", {"logistic": by_tanh})

# %% [markdown]
# Run a check as often as you like. The grader asks the same cases and others like them, with other
# numbers, so an answer that only returns what the self-check expects earns little. `progress()`
# shows your latest points in all chapters; they are kept in a file on this computer, and nothing is
# sent. Stand-ins, as above, are not counted.

# %% tags=["setup", "nbval-ignore-output"]
progress()

# %% [markdown]
# ## 0.6 Both ends of a function
#
# Functions are tried around zero and used far from it. float32 ends early: `exp` is infinite from
# 88.73 up. ❌ So exp(x) / (1 + exp(x)) is ∞/∞, which is NaN, at 100. The textbook's 1 / (1 +
# exp(−x)) seems to be fine at both ends, since 1/∞ is 0. But its slope at −100 is NaN.


# %% tags=["claim"]
def above_and_below(x):
    return jnp.exp(x) / (1 + jnp.exp(x))


def textbook(x):
    return 1 / (1 + jnp.exp(-x))


assert np.isfinite(jnp.exp(jnp.float32(88.72)))
assert np.isinf(jnp.exp(jnp.float32(88.73)))
assert np.isnan(above_and_below(100.0))
assert_close(textbook(jnp.float32([-100, 100])), [0, 1], rtol=0, atol=1e-30)
assert np.isnan(jax.grad(textbook)(-100.0))
print("value and slope of the textbook's:", textbook(-100.0), jax.grad(textbook)(-100.0))

# %% [markdown]
# Each form is good at one end, so one would like to choose. ❌ Choosing behind `exp` mends the
# value and not the slope: `where` computes both branches, and the slope is the sum of both, one
# of them times 0. The bad branch adds 0 · NaN, and that is NaN, now at both ends.


# %% tags=["claim"]
def chosen_behind(x):
    return jnp.where(x >= 0, textbook(x), above_and_below(x))


assert_close(chosen_behind(jnp.float32([-100, 100])), [0, 1], rtol=0, atol=1e-30)
assert np.isnan(jax.grad(chosen_behind)(-100.0))
assert np.isnan(jax.grad(chosen_behind)(100.0))
print("value and slope, chosen behind:", chosen_behind(-100.0), jax.grad(chosen_behind)(-100.0))

# %% [markdown]
# ✅ Choose *in front of* `exp`: put a number into it that is never positive, so that no branch can
# overflow. How, is your first exercise. One thing to mind: a function with a corner has no slope
# there, and JAX picks one. For |x| at 0 it is 1, the slope to the right. Of two *equal* numbers
# `minimum` and `maximum` give half of the slope to each; the smaller of x and −x is −|x|, and yet
# its slope at 0 comes out as ½ − ½ = 0.

# %% tags=["claim"]
slopes = {
    "|x|": jax.grad(jnp.abs)(0.0),
    "the smaller of x and −x": jax.grad(lambda x: jnp.minimum(x, -x))(0.0),
}
for corner, slope in slopes.items():
    print(f"slope at 0 of {corner}: {slope}")

assert list(slopes.values()) == [1, 0]
assert jax.grad(jnp.minimum, (0, 1))(0.0, 0.0) == (0.5, 0.5)

# %% [markdown]
# 💡 **Choose the argument, not the result: what `where` throws away still takes part in the
# slope.**
#
# Chapter 02 makes this into a method.

# %% [markdown] exercise="0.1"
# Write `logistic(x)`: 1 / (1 + exp(−x)), element by element.
#
# - `x`: float32, a JAX array of any shape, any finite numbers. Returns float32 of the same shape.
# - The value must be right *relatively*, to 1e-5, also where it is tiny. Below float32's smallest
#   normal number, 1.2e-38, it may be 0: that is at about −87.
# - It is called under `jax.jit`, and differentiated by JAX. The slope σ(x) (1 − σ(x)) is judged
#   absolutely, to 1e-6, because gradients are added to parameters of ordinary size. It is never
#   NaN, at 0 it is ¼.


# %% tags=["starter"] exercise="0.1"
def logistic(x):
    """1 / (1 + exp(−x)). x: float32, any shape; returns the same shape."""
    ### BEGIN SOLUTION
    rising = jnp.where(x >= 0, -x, 0.0)
    falling = jnp.where(x >= 0, 0.0, x)
    return jnp.where(x >= 0, 1 / (1 + jnp.exp(rising)), jnp.exp(falling) / (1 + jnp.exp(falling)))
    ### END SOLUTION


# %% [markdown]
# ## 0.7 A thousand small errors
#
# One rounding costs half an ULP at most. A sum of a thousand numbers rounds a thousand times, and
# a mean loss, a norm, a matrix product are sums. How much is lost depends on the order.
#
# ❌ In order, each number is added to a total that grows, and so does the gap at the total. A
# thousand times 0.1 is off by more than 100 ULPs, because the roundings all go one way. Behind a
# 2²⁴, a thousand ones vanish altogether. ✅ Added in pairs, then the sums in pairs, each number
# goes through 10 roundings, not a thousand. `np.sum` does nearly that: it stays within 4 ULPs for
# the first, and within 20 for the second.


# %% tags=["claim"]
def in_order(x):
    """float32 sum, one number after the other."""
    return np.cumsum(x, dtype=np.float32)[-1]


tenths = np.full(1000, 0.1, np.float32)
large_first = np.r_[2.0**24, np.ones(1000)].astype(np.float32)

for x in (tenths, large_first):
    off = [float(ulps(add(x), np.sum(to64(x)))) for add in (in_order, np.sum)]
    print(f"in order {off[0]:.0f} ULPs off")
    assert off[0] > 100
    assert off[1] < (4 if x is tenths else 20)
assert 2**10 > len(tenths)
grew = in_order(large_first) - large_first[0]
print(f"behind a 2²⁴, a thousand ones: grew by {grew:.0f}")
assert grew == 0

# %% tags=["figure"]
counts = np.unique(np.geomspace(10, 100_000, 200).astype(int))
many = np.full(100_000, 0.1, np.float32)
exact = to64(many[0]) * counts
running = ulps(np.cumsum(many, dtype=np.float32)[counts - 1], exact)
pairs = ulps(np.array([np.sum(many[:n]) for n in counts]), exact)
fig, ax = figure("Added in order the error grows, in pairs it stays small", "count", "ULPs off")
(bad,) = ax.loglog(counts, np.maximum(running, 0.1), color=COLORS.wrong)
label_line(bad, "in order")
(good,) = ax.loglog(counts, np.maximum(pairs, 0.1), color=COLORS.right)
label_line(good, "in pairs\n(np.sum)")
assert running[-1] > 1000
assert np.max(pairs) < 10
ax.set_yticks([0.1, 1, 10, 100, 1000], ["≤ 0.1", "1", "10", "100", "1000"])
describe(
    fig,
    "Error in ULPs of the float32 sum of n times 0.1. Added in order it grows to more than 1000 "
    "for 100 000 numbers; added in pairs it stays below 10 throughout.",
)

# %% [markdown]
# There is a second way: keep adding in order, and keep what was lost. Of two float32 numbers that
# are added, the rounding error is a float32 number itself, and `(new - total) - number` is exactly
# what was added too much, as long as the total is the larger one. Take it off the next number: that
# is **Kahan's sum**.

# %% tags=["claim"]
total, number = np.float32(2**24), np.float32(1.5)
new = total + number
too_much = (new - total) - number

print(f"added {number}, grew by {new - total}, too much: {too_much}")
assert to64(new) - to64(too_much) == to64(total) + to64(number)

# %% [markdown]
# To see such errors at all, the ruler must not bend. ❌ Two of them do. Asking `np.sum` of a *JAX*
# array for float64 calls JAX's own sum, which is float32. And a JAX number minus a float64 number
# is float32 again. ✅ `to64` first, then compute.

# %% tags=["claim"]
x = jnp.asarray(tenths)
with warnings.catch_warnings(record=True):
    warnings.simplefilter("always")
    bent = np.sum(x, dtype=np.float64)

straight = np.sum(to64(x))
assert bent.dtype == np.float32
assert (jnp.float32(100) - straight).dtype == np.float32
assert straight.dtype == np.float64
assert_close(straight, 1000 * to64(tenths[0]), rtol=1e-12)
print(f"asked of np.sum: float64, got: {bent.dtype}; of to64: {straight.dtype}")

# %% [markdown]
# 💡 **Add in pairs, or carry along what was lost; and convert before you measure.**

# %% [markdown] exercise="0.2"
# Write two functions: a ruler, and a sum that it finds next to nothing wrong with.
#
# - `ulps_off(total, x)`: by how many float32 gaps `total` is off, as a sum of `x`. `total` is a
#   float32 JAX scalar, `x` a float32 JAX array of shape (n,). Returns one number, not negative,
#   with its fraction. The reference is the sum of the same numbers in float64; the gap is the one
#   at that sum, rounded to float32. You may use whatever you like, also the course's functions.
# - `careful_sum(x)`: the float32 sum of `x`, a scalar, off by 4 ULPs at most. `x` is a float32
#   array of shape (n,), n ≥ 1, and n may be odd. It is called under `jax.jit`. The check adds 1001
#   numbers, so a Python loop over all of them would compile for minutes, which ■ does not stop.
#   `jnp.sum` may add in blocks on your machine, which is not enough, and XLA may make one sum of
#   several `jnp.sum` in a row. Slices that you add stay as you wrote them.


# %% tags=["starter"] exercise="0.2"
def ulps_off(total, x):
    """By how many float32 ULPs the total is off. total: float32 scalar, x: float32 (n,)."""
    ### BEGIN SOLUTION
    return ulps(total, np.sum(to64(x)))
    ### END SOLUTION


def careful_sum(x):
    """The float32 sum of x (n,), within 4 ULPs."""

    ### BEGIN SOLUTION
    def add(state, number):
        total, too_much = state
        number = number - too_much
        new = total + number
        return (new, (new - total) - number), None

    zero = jnp.zeros((), x.dtype)
    return jax.lax.scan(add, (zero, zero), x)[0][0]
    ### END SOLUTION


# %% [markdown]
# ## 0.8 What your machine does
#
# "Works on my machine" is a measurement. Below are eleven known quirks of platforms and versions,
# each run here and now. Present or absent, nothing fails: later chapters are written so that they
# hold either way, and where they can't, they measure again. So there is nothing to do for the
# course; what to do in your own work stands below.
#
# The probes are the course's own, in `helpers/quirks.py`. This is one of them; it looks for a
# **wrong** result of `jax.jit`, which jaxlib 0.10.2 returned on CPUs. Without jit the same lines
# are right, wherever you run them.

# %% tags=["given"]
# quote: helpers.quirks.jit_moves_rows

# %% [markdown]
# Four are about numbers. Five are about memory: JAX arrays can't be changed, so JAX and NumPy may
# share one buffer, until somebody does change it: NumPy in place, or JAX because you **donated**
# the array (chapter 06). One is about static arguments (chapter 01). The last one is about
# `jax_debug_nans`, which should stop at the first NaN (chapter 02).

# %% tags=["claim", "nbval-ignore-output"]
probes = quirks.PROBES | {"jit returns the wrong rows": jit_moves_rows}
found = {quirk: quirks.verdict(probe) for quirk, probe in probes.items()}
for quirk, here in found.items():
    print(f"{quirk:37} {here}")

with jax.disable_jit():
    assert not jit_moves_rows()
assert len(found) == 11
assert {here.split(":")[0] for here in found.values()} <= {"present", "absent", "can't tell"}

# %% [markdown]
# If it is present, for work of your own:
#
# | quirk | then |
# |---|---|
# | a sum over a constant is wrong | pass arrays to jitted functions as arguments |
# | jit returns the wrong rows | beyond 32 768 rows, which no chapter has: a newer jaxlib |
# | matrix products drop digits | `with jax.default_matmul_precision("highest"):` where it matters |
# | denormals count as zero | expect nothing below 1.2e-38, and don't divide by it: chapter 02 |
# | donation reuses memory | good: chapter 06 builds on it |
# | a view, or printing, blocks donation | copy with `np.array(x, copy=True)`: chapter 06 |
# | `np.asarray(x)` is a view | it keeps the whole buffer alive: copy what you keep |
# | `device_put(a)` is a view | don't change `a` any more, or use `jnp.array(a)`, which copies |
# | a static argument is stale | freeze static arguments: chapter 01 |
# | `jax_debug_nans` is blind | use `with jax.debug_nans(True):` or checkify: chapter 02 |
#
# 💡 **A quirk is a fact about a version and a machine. Measure it there.**

# %% [markdown]
# ## 0.9 Questions
#
# Put a letter in place of the dots: `answer="b"`. Most of them are answered by running the thing.

# %% tags=["quiz"] question="0.a"

# %% tags=["quiz"] question="0.b"

# %% tags=["quiz"] question="0.c"

# %% tags=["quiz"] question="0.d"

# %% tags=["quiz"] question="0.e"

# %% tags=["quiz"] question="0.f"

# %% tags=["quiz"] question="0.g"

# %% tags=["quiz"] question="0.h"

# %% [markdown]
# ## 0.10 To keep
#
# 1. **Measure against float64, from the same inputs, in a unit that you chose.** Convert first:
#    `to64(x)`.
# 2. **A check is as good as the wrong answers that fail it.** Try it on one.
# 3. **What depends on version or machine is measured, not believed.**
#
# | to | write |
# |---|---|
# | get the same numbers in float64 | `to64(tree)` |
# | see the gap at a float32 number | `np.spacing(np.float32(x))` |
# | count how far off a result is | `ulps(got, want)` |
# | assert a few ULPs | `assert_ulps(got, want, 4)` |
# | assert a tolerance | `assert_close(got, want, rtol=1e-5, atol=0)` |
# | show that something must fail | `show_error(f, *args, expect=ValueError)` |
# | choose without a NaN slope | `jnp.where` on the argument, in front of the function |
# | check your answer | `check("0.1")` |
# | see how far you are | `progress()` |
#
# On to chapter 01: a function that compiles when you don't expect it.
