# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # 03 · Choosing a derivative
#
# The derivative of a function with n inputs and m outputs is a table of m times n numbers, and you
# hardly ever want the table. You want one row of it, which is a gradient; or one column, which is
# what a small push does; or the table times a vector; or its diagonal. JAX computes each of these
# directly, and it will also let you compute the whole table and throw nearly all of it away. No
# error tells you. The program is only slow, or out of memory, or, where a table was read in the
# wrong direction, wrong.
#
# Afterwards you can
#
# - choose among ten ways to differentiate, by what you want and by two numbers, n and m;
# - say how many passes through the function a derivative costs, and prove it with a count;
# - multiply by a Hessian of a million million numbers on a laptop, and solve equations with one;
# - recognise the NaN that only reverse mode sees, and the sign that only a symmetric table hides;
# - differentiate the answer of an iteration and not the iteration.
#
# Reading and running takes about an hour, the five exercises another hour and a half. You need
# `jax.grad`, `jax.vmap` and a little linear algebra. Every statement with a number in it is
# asserted in a cell beside it, on your machine, when you run it. The marks mean what they mean
# everywhere: ❌ a mistake and its cost, ✅ the way to do it, ✍️ your turn, 🧪 a check, 💡 a rule.

# %% tags=["setup"]
from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from helpers import (
    COLORS,
    CompileBudget,
    TraceCounter,
    assert_close,
    assert_equal,
    assert_faster,
    bench,
    check,
    describe,
    figure,
    label_line,
    quiz,
    show_error,
    to64,
)
from helpers.trees import Tree

jax.config.update("jax_default_matmul_precision", "highest")  # a GPU would take TF32

# %% [markdown]
# ## 3.1 Say what you want, and for which shape
#
# Two colleagues ask you to "differentiate this". One has a loss of ten million weights and wants to
# go downhill. The other has a simulator with three knobs and ten thousand readings, and wants to
# know what each knob does. Both call `jax.grad`. For one of them that is right; for the other it is
# not even possible, since `grad` takes functions with a scalar result.
#
# The whole chapter in one table. f goes from $\mathbb{R}^n$ to $\mathbb{R}^m$ and has the
# **Jacobian** J, m rows by n columns: row i holds the slopes of output i, column j what input j
# does to all outputs. For m = 1 the one row is the gradient, and the **Hessian** H, n by n, is the
# Jacobian of the gradient. A pass is one trip through f, forwards or backwards.
#
# | you want | its shape | write | passes |
# |---|---|---|---|
# | the gradient, m = 1 | n | `jax.grad(f)(x)` | 1 back |
# | the value with it | and 1 | `jax.value_and_grad(f)(x)` | 1 back |
# | what a push does: J·v | m | `jax.jvp(f, (x,), (v,))[1]` | 1 forward |
# | the same, one v after another | m | `y, push = jax.linearize(f, x)`, `push(v)` | 1 forward |
# | outputs weighed by u: uᵀJ | n | `y, pull = jax.vjp(f, x)`, `pull(u)[0]` | 1 back |
# | J, few inputs | m × n | `jax.jacfwd(f)(x)` | n forward |
# | J, few outputs | m × n | `jax.jacrev(f)(x)` | m back |
# | H·v, m = 1 | n | `jax.jvp(jax.grad(f), (x,), (v,))[1]` | 1 back, with 1 forward on top |
# | H, m = 1 | n × n | `jax.hessian(f)(x)` | n of those |
# | any of these at many points | one more axis | `jax.vmap(jax.grad(f))(xs)` | the same, batched |
#
# The table deserves a proof. This chapter's workhorse is a layer with an energy on top; all their
# derivatives can be written down.


# %% tags=["given"]
def layer(a, x):
    """tanh(a·x), m outputs of n inputs. a: (m, n), x: (n,)."""
    return jnp.tanh(a @ x)


def energy(a, x):
    """The sum of log(2·cosh(a·x)), a number; its slope in a·x is the layer."""
    return jnp.sum(jnp.logaddexp(a @ x, -(a @ x)))


def exact(a, x):
    """In float64: the layer's Jacobian (m, n), the energy's gradient (n,) and Hessian (n, n)."""
    a, x = to64((a, x))
    y = np.tanh(a @ x)
    jacobian = (1 - y**2)[:, None] * a
    return jacobian, a.T @ y, a.T @ jacobian


def drawn(*shapes, seed=0):
    """A float32 array of normal numbers for each shape."""
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape).astype(np.float32) for shape in shapes]


# %% [markdown]
# All ten rows at once, in one program, on 3 inputs and 5 outputs, against NumPy in float64; and at
# last what the second colleague sees, who asked for a gradient of several outputs:

# %% tags=["claim"]
a, x, v, u = drawn((5, 3), 3, 3, 5)


@jax.jit
def ten_ways(x, v, u):
    f, e = partial(layer, a), partial(energy, a)
    _, push = jax.linearize(f, x)
    _, pull = jax.vjp(f, x)
    return {
        "grad": jax.grad(e)(x), "value_and_grad": jax.value_and_grad(e)(x)[1],
        "jvp": jax.jvp(f, (x,), (v,))[1],
        "linearize": push(v),
        "vjp": pull(u)[0],
        "jacfwd": jax.jacfwd(f)(x), "jacrev": jax.jacrev(f)(x),
        "jvp of grad": jax.jvp(jax.grad(e), (x,), (v,))[1],
        "hessian": jax.hessian(e)(x),
        "vmap of grad": jax.vmap(jax.grad(e))(jnp.stack([x, -x])),
    }  # fmt: skip


J, g, H = exact(a, x)
want = {"grad": g, "value_and_grad": g, "jvp": J @ v, "linearize": J @ v, "vjp": u @ J}
want |= {"jacfwd": J, "jacrev": J, "jvp of grad": H @ v, "hessian": H}
want |= {"vmap of grad": [g, -g]}  # the energy is even
got = ten_ways(x, v, u)
for name in want:
    print(f"{name:15} shape {got[name].shape}")
assert_close(got, want, rtol=1e-5, atol=1e-6)
show_error(jax.grad(partial(layer, a)), x, expect=TypeError, contains="scalar", lines=0)
assert (x.dtype, J.dtype) == (np.float32, np.float64)

# %% [markdown]
# 💡 **First say which numbers you want, then count inputs and outputs; the function to call
# follows.**

# %% [markdown]
# ## 3.2 Columns forwards, rows backwards
#
# Why do some rows of the table say "n passes" and others "m"? Because there are only two things
# that JAX can do with a function at a point, and both are products with J.
#
# - **Forward mode**, `jvp`: give the input a push v and follow it through every operation. Out
#   comes J·v. The push travels along with the values, so nothing has to be remembered.
# - **Reverse mode**, `vjp`: run the function first and remember what its slopes depend on; then
#   give the *outputs* weights u and follow them back. Out comes uᵀJ.
#
# A push along the j-th axis gives column j; weights of 1 on output i and 0 elsewhere give row i.
# That is all there is to `jacfwd` and `jacrev`: a `vmap` of one or of the other over unit vectors.

# %% tags=["claim"]
f = partial(layer, a)


@jax.jit
def by_hand(x):
    columns = [jax.jvp(f, (x,), (axis,))[1] for axis in jnp.eye(3)]
    _, pull = jax.vjp(f, x)
    rows = [pull(axis)[0] for axis in jnp.eye(5)]
    return jnp.stack(columns, axis=1), jnp.stack(rows, axis=0)


for built in by_hand(x):
    assert_close(built, exact(a, x)[0], rtol=1e-5, atol=1e-6)
print("3 columns pushed, 5 rows pulled: the same 5 × 3 table")

# %% [markdown]
# What does one pass cost? XLA counts the arithmetic of a program when it compiles it. A push or a
# pull through a layer of 300 inputs and 400 outputs takes at most 4 times the arithmetic of the
# layer itself, and so does a gradient of the energy. That it is a small number for *every*
# function, whatever n and m are, is a theorem, the *cheap gradient principle*; without it nothing
# could be trained.


# %% tags=["given"]
def compiled(f, *args):
    """The program that `jit` makes of f for these arguments; it is not run."""
    return jax.jit(f).lower(*args).compile()


def flops(f, *args):
    """Arithmetic operations in that program, as XLA counts them."""
    return compiled(f, *args).cost_analysis()["flops"]


# %% tags=["claim"]
wide_a, x300, v300, u400 = drawn((400, 300), 300, 300, 400)

once = flops(layer, wide_a, x300)
passes = {
    "push": flops(lambda a, x, v: jax.jvp(partial(layer, a), (x,), (v,)), wide_a, x300, v300),
    "pull": flops(lambda a, x, u: jax.vjp(partial(layer, a), x)[1](u), wide_a, x300, u400),
    "gradient": flops(jax.grad(energy, 1), wide_a, x300),
}
for name, count in passes.items():
    print(f"{name:9} {count / once:.0f} times the arithmetic of the layer")
    assert 1 <= count / once <= 4

# %% [markdown]
# **Shapes.** Inputs and outputs need not be vectors. The Jacobian has the axes of the output first
# and those of the input behind them, `f(x).shape + x.shape`, in both modes.
#
# ❌ If you build it by hand, mind the axis. `vmap` puts the axis it maps over in *front*. For rows
# that is the place where they belong; columns come out as rows, and the table is transposed. With
# 5 outputs and 3 inputs the shape gives it away. For a square Jacobian nothing does: here an entry
# is off by more than the largest entry is large.

# %% tags=["claim"]
square, x4 = drawn((4, 4), 4, seed=3)
J = exact(square, x4)[0]


def pushed(axis):
    return jax.jvp(partial(layer, square), (x4,), (axis,))[1]


wrong = jax.jit(jax.vmap(pushed))(np.eye(4, dtype=np.float32))
right = jax.jit(jax.vmap(pushed, out_axes=1))(np.eye(4, dtype=np.float32))

error = np.abs(wrong - J).max()
print(f"columns as rows: off by up to {error:.2f}; the largest entry is {np.abs(J).max():.2f}")
assert wrong.shape == J.shape and error > np.abs(J).max()
assert_close(wrong, J.T, rtol=1e-5, atol=1e-6)
assert_close(right, J, rtol=1e-5, atol=1e-6)

# %% [markdown]
# ✅ `out_axes=1` puts each column where it belongs. Or leave it to `jacfwd`, and test on a function
# whose Jacobian is neither square nor symmetric.
#
# <details><summary>I don't understand why <code>pull(u)</code> returns a tuple.</summary>
#
# A function may have several arguments, and a pull has something to say to each of them. With one
# argument the tuple has one entry: write `(slopes,) = pull(u)`, or `pull(u)[0]`.
# </details>
#
# 💡 **A push makes a column, a pull makes a row; each costs a few times what f costs.**

# %% [markdown]
# ## 3.3 They cross where inputs equal outputs
#
# If a column costs a pass and a row costs a pass, a Jacobian is n passes forwards or m passes
# backwards. `jax.jacobian` sounds as if it chose between them. It does not; it is another name
# for `jacrev`.
#
# To see what is at stake, keep the size of the table fixed, at 16384 numbers, and change its
# shape, from 2048 rows of 8 to 8 rows of 2048.

# %% tags=["claim"]
SHAPES = [(16384 // n, n) for n in (8, 32, 128, 512, 2048)]
modes = {"forward": jax.jacfwd, "reverse": jax.jacrev}
problems = [drawn((m, n), n) for m, n in SHAPES]
problems = [(a / np.float32(np.sqrt(a.shape[1])), x) for a, x in problems]
programs = {
    name: [compiled(mode(layer, argnums=1), *problem) for problem in problems]
    for name, mode in modes.items()
}
work = {name: [p.cost_analysis()["flops"] for p in each] for name, each in programs.items()}

for each in programs.values():
    assert_close(each[2](*problems[2]), exact(*problems[2])[0], rtol=1e-4, atol=1e-5)
assert flops(jax.jacobian(layer, 1), *problems[0]) == work["reverse"][0]
for (m, n), forward, reverse in zip(SHAPES, *work.values(), strict=True):
    print(f"{n:4} inputs, {m:4} outputs: m / n is {m / n:g}")
    assert 0.8 < (reverse / forward) / (m / n) < 1.25
assert SHAPES[0][0] / SHAPES[0][1] == SHAPES[-1][1] / SHAPES[-1][0] == 256

# %% [markdown]
# Reverse mode does m/n times the arithmetic of forward mode, within a quarter: at each end the
# wrong choice costs about 256 times as much. That is a count, and it is much the same on every
# machine. Time is not, since a batch of 2000 pushes keeps a processor busier than a batch of 8, but
# the winner is: at each end the right mode is at least 3 times as fast.

# %% tags=["claim", "nbval-ignore-output"]
for end, fast, slow in ((0, "forward", "reverse"), (-1, "reverse", "forward")):
    ratio = assert_faster(
        lambda: programs[fast][end](*problems[end]),
        lambda: programs[slow][end](*problems[end]),
        by=3,
        label=f"{fast} at {SHAPES[end]}",
    )
    m, n = SHAPES[end]
    print(f"{n:4} inputs, {m:4} outputs: {fast} is {ratio:.0f} times as fast as {slow}")

# %% tags=["figure", "nbval-ignore-output"]
fig, ax = figure(
    "Forward for few inputs, reverse for few outputs",
    "inputs (a table of 16384 numbers)",
    "time (ms, log scale)",
)
inputs = [n for _, n in SHAPES]
for name, color in (("forward", COLORS.right), ("reverse", COLORS.third)):
    times = [
        1e3 * bench(program, *problem).best
        for program, problem in zip(programs[name], problems, strict=True)
    ]
    (drawn_line,) = ax.loglog(inputs, times, "o-", color=color)
    label_line(drawn_line, name)
ax.axvline(128, color=COLORS.ink, linewidth=0.8, linestyle=":")
ax.annotate("as many outputs", (128, max(times)), (6, -4), textcoords="offset points", va="top")
ax.set_xticks(inputs, [str(n) for n in inputs])
ax.minorticks_off()
describe(
    fig,
    "Time of a Jacobian of 16384 numbers against its number of inputs, both axes logarithmic. "
    "Forward mode rises, reverse mode falls; they cross near 128 inputs and 128 outputs.",
)

# %% [markdown]
# Memory follows the same rule, and it is the way in which people find out. Reverse mode with
# 2000 outputs starts 2000 pulls side by side, each with its own copy of everything on the way
# back.
#
# ❌ Three knobs, 2000 readings, each of them a sum over 2000 terms: `jacrev` needs more than 100
# times the temporary memory of `jacfwd`, for a table of 24 kilobytes.


# %% tags=["claim"]
def readings(knobs):
    """What 2000 sensors say. knobs: (3,); returns (2000,)."""
    return jnp.sum(jnp.sin(jnp.outer(jnp.arange(2000.0), knobs)), axis=1)


def temporaries(f, *args):
    """Bytes of temporary memory that the program of f needs."""
    return compiled(f, *args).memory_analysis().temp_size_in_bytes


knobs = np.ones(3, np.float32)
needs = {name: temporaries(mode(readings), knobs) for name, mode in modes.items()}
table = compiled(jax.jacfwd(readings), knobs).memory_analysis().output_size_in_bytes

print(f"jacrev needs over 100 times the memory: {needs['reverse'] > 100 * needs['forward']}")
assert needs["reverse"] > 100 * max(needs["forward"], table)
assert table == 2000 * 3 * 4 == 24_000

# %% [markdown]
# ✅ Both numbers that decide are in the shapes, and shapes cost nothing: `jax.eval_shape` traces
# the function with placeholders and computes nothing. (`f(x).shape` runs it.)

# %% tags=["claim"]
with CompileBudget(0, label="shapes"):
    out = jax.eval_shape(readings, knobs)

print(f"{knobs.size} inputs, {out.size} outputs")
assert (out.shape, out.size) == ((2000,), 2000)

# %% [markdown]
# Close to the crossing the choice matters little, and forward mode has the edge: it remembers
# nothing (§3.5).
#
# 💡 **Fewer inputs: forwards. Fewer outputs: backwards. Compare sizes, not lengths.**

# %% [markdown] exercise="3.1"
# Write `jacobian(f, x)`: the Jacobian of `f` at `x`, computed in the mode that needs fewer passes.
#
# - `f` takes one float32 array and returns one float32 array, each of any shape, `()` included.
#   `x` is a JAX array. The result has the shape `f(x).shape + x.shape`.
# - Forward mode where `x` has fewer numbers than `f(x)`, reverse mode where it has more; where they
#   have as many, either.
# - The shapes alone decide: `f` is never run on numbers to find out. `jacobian` also works inside
#   `jax.jit`.
#
# The functions in the check can tell how they were differentiated: going backwards through them
# doubles the derivative, on purpose.


# %% tags=["starter"] exercise="3.1"
def jacobian(f, x):
    """The Jacobian of f at x, of shape f(x).shape + x.shape, in the cheaper mode."""
    ### BEGIN SOLUTION
    outputs = jax.eval_shape(f, x).size
    mode = jax.jacfwd if x.size <= outputs else jax.jacrev
    return mode(f)(x)
    ### END SOLUTION


# %% [markdown]
# ## 3.4 One direction, or a hundred
#
# "How does the output react if all inputs drift a little, like *this*?" That is J·v: m numbers.
# Most people who meet the question have met the Jacobian first.
#
# ❌ `jax.jacfwd(f)(x) @ v` makes n columns in order to add them up. ✅ One `jvp` pushes their sum.
# With 1024 inputs the detour does over 100 times the arithmetic, needs over 100 times the memory,
# and takes at least 10 times as long. XLA does not see that you wanted a product.

# %% tags=["given"]
wide, x1024, v1024 = drawn((1024, 1024), 1024, 1024)
wide = (wide / 32).astype(np.float32)


def through_the_table(a, x, v):
    return jax.jacfwd(layer, argnums=1)(a, x) @ v


def one_push(a, x, v):
    return jax.jvp(partial(layer, a), (x,), (v,))[1]


# %% tags=["claim"]
table_program = compiled(through_the_table, wide, x1024, v1024)
push_program = compiled(one_push, wide, x1024, v1024)
ratios = [
    table_program.cost_analysis()["flops"] / push_program.cost_analysis()["flops"],
    table_program.memory_analysis().temp_size_in_bytes
    / max(push_program.memory_analysis().temp_size_in_bytes, 4096),
]

print(f"over 100 times the arithmetic and the memory: {min(ratios) > 100}")
assert min(ratios) > 100
want = exact(wide, x1024)[0] @ to64(v1024)
for program in (table_program, push_program):
    assert_close(program(wide, x1024, v1024), want, rtol=1e-4, atol=1e-4)

# %% tags=["claim", "nbval-ignore-output"]
ratio = assert_faster(
    lambda: push_program(wide, x1024, v1024),
    lambda: table_program(wide, x1024, v1024),
    by=10,
    repeats=3,
    label="one jvp",
)
print(f"one jvp is {ratio:.0f} times as fast as jacfwd(f)(x) @ v")

# %% [markdown]
# Now many directions at the *same* point. If you know them all beforehand, a `vmap` of the push is
# best. Often you don't: an iterative solver finds its next direction from the last answer. Then
# each `jvp` evaluates f again, at the point where it was evaluated before. ✅ `jax.linearize` runs
# f once, keeps its slopes, and returns the push as a function. Twenty directions, counted:

# %% tags=["claim"]
by_jvp, by_linearize = TraceCounter(partial(layer, a)), TraceCounter(partial(layer, a))
directions = drawn((20, 3), seed=5)[0]

slow = [jax.jvp(by_jvp, (x,), (direction,))[1] for direction in directions]
_, push = jax.linearize(by_linearize, x)
fast = [push(direction) for direction in directions]
at_once = jax.vmap(push)(directions)

print(f"evaluations of f: {by_jvp.count} by jvp, {by_linearize.count} by linearize")
assert (by_jvp.count, by_linearize.count) == (20, 1)
for products in (slow, fast, at_once):
    assert_close(np.stack(products), directions @ exact(a, x)[0].T, rtol=1e-5, atol=1e-6)

# %% [markdown]
# `vjp` is the same bargain for the other side: `pull` can be called as often as you like, and
# f runs once. What both keep is the price: slopes, for all operations of f (§3.5).
#
# ❌ And both belong to the point at which they were made. `push` after a step of the optimizer is
# the derivative at the *old* parameters. It raises nothing; here it is off by more than a tenth of
# the true product.

# %% tags=["claim"]
moved = (x + 0.3).astype(np.float32)
stale = push(v)
want = exact(a, moved)[0] @ v

off = np.abs(to64(stale) - want).max() / np.abs(want).max()
print(f"a push from the old point is off by {off:.0%}")
assert off > 0.1
assert_close(jax.jvp(partial(layer, a), (moved,), (v,))[1], want, rtol=1e-5, atol=1e-6)

# %% [markdown]
# 💡 **One direction: `jvp`. One after the other at one point: `linearize`. All known: `vmap` it.
# A table only for a reader who wants a table.**

# %% [markdown]
# ## 3.5 What only one mode can do
#
# So far the modes differed in price. There are four places where they differ in kind, and in two of
# them counting inputs and outputs is no help: you take the mode that works.
#
# **Loops of unknown length.** To go backwards through a loop you need what each round left behind,
# and for a `while_loop` nobody knows how many rounds there will be. Reverse mode refuses. A push
# goes through, since it travels with the values.


# %% tags=["claim"]
def halvings(x):
    """Halves x until it is below 1."""
    return jax.lax.while_loop(lambda x: x >= 1, lambda x: x / 2, x)


show_error(jax.grad(halvings), 5.0, expect=ValueError, contains="Reverse-mode", lines=0)
value, slope = jax.jvp(halvings, (5.0,), (1.0,))

print(f"5 becomes {value:.4f}; a push of 1 becomes {slope}")
assert (value, slope) == (0.625, 0.125)

# %% [markdown]
# **Rules for one way only.** `jax.custom_vjp` tells JAX how to pull through a function, and says
# nothing about pushes. Forward mode refuses; a library that uses it (many fused kernels do) cannot
# be pushed through at all. `jax.custom_jvp` serves both modes, because JAX turns a push around by
# itself: prefer it where you can.


# %% tags=["claim"]
@jax.custom_vjp
def doubled(x):
    return 2 * x


doubled.defvjp(lambda x: (2 * x, None), lambda _, u: (2 * u,))

show_error(jax.jvp, doubled, (1.0,), (1.0,), expect=TypeError, contains="custom_vjp", lines=0)
assert jax.grad(doubled)(1.0) == 2.0

# %% [markdown]
# **Memory.** Reverse mode remembers, forward mode does not. Through a recurrence of 1000 steps, the
# gradient's program keeps every state for the way back; the push keeps one. (`jax.checkpoint` buys
# some of it back with time.)


# %% tags=["claim"]
def recurrence(x, steps):
    """A state of 64 numbers after so many steps, summed up."""
    return jnp.sum(jax.lax.fori_loop(0, steps, lambda _, state: jnp.sin(state + 1.0), x))


state = np.ones(64, np.float32)
push_bytes, pull_bytes = (
    [temporaries(lambda x: way(partial(recurrence, steps=steps), x), state) for steps in (10, 1000)]
    for way in (lambda f, x: jax.jvp(f, (x,), (x,)), lambda f, x: jax.grad(f)(x))
)

print("100 times as many steps:")
print(f"  a push needs no more memory: {push_bytes[1] <= 2 * push_bytes[0]}")
print(f"  a pull keeps every state:    {pull_bytes[1] > 1000 * state.nbytes}")
assert push_bytes[1] <= 2 * push_bytes[0]
assert pull_bytes[1] > 1000 * state.nbytes > pull_bytes[0]

# %% [markdown]
# **NaN.** The length of a vector has no slope at 0: the formula is 0/0. So people guard it.
#
# ❌ A `where` *after* the norm gives the value that you want, and forward mode agrees: the slopes
# are 0. Reverse mode says NaN, for the same function at the same point.


# %% tags=["claim"]
def guarded_after(x):
    return jnp.where(jnp.all(x == 0), 0.0, jnp.linalg.norm(x))


def guarded_before(x):
    empty = jnp.all(x == 0)
    return jnp.where(empty, 0.0, jnp.linalg.norm(jnp.where(empty, 1.0, x)))


def both_modes(f, x):
    return [jax.jit(mode(f))(x) for mode in (jax.jacfwd, jax.jacrev)]


zero, ordinary = np.zeros(3, np.float32), np.array([1.0, -2.0, 2.0], np.float32)
for f in (guarded_after, guarded_before):
    forward, reverse = both_modes(f, zero)
    print(f"{f.__name__:14} at 0: jacfwd {forward}, jacrev {reverse}")
    for slopes in both_modes(f, ordinary):
        assert_close(slopes, ordinary / 3, rtol=1e-6)

assert_equal(both_modes(guarded_after, zero), [np.zeros(3), np.full(3, np.nan)])
assert_equal(both_modes(guarded_before, zero), [np.zeros(3), np.zeros(3)])

# %% [markdown]
# Forwards, the NaN arises in the branch that `where` then discards, and it is gone. Backwards,
# `where` comes first: it sends a zero into that branch, and zero times an infinite slope is NaN. A
# finite `jacfwd` does not prove that training is safe.
#
# ✅ Guard *before*: give the dangerous operation a harmless input. Chapter 02 tells the rest.
#
# 💡 **Forwards through loops of any length and with no memory; backwards for a rule of yours and
# for many inputs. Test for NaN in the mode that you train with.**

# %% [markdown]
# ## 3.6 A Hessian times a vector
#
# The Hessian tells how the gradient changes when you move: how long a step may be, whether a
# stationary point is a minimum, which weights matter. For a million weights it has 10¹² entries, so
# hardly anybody has seen one. But the question is mostly about *one* direction: how does the
# gradient change along v? That is H·v, a derivative of the gradient, and a derivative along one
# direction is one push.
#
# Gradient and direction can be nested in three ways, none of which forms H. These are the
# library's own functions:

# %% tags=["given"]
ScalarFunction = Callable[[Tree], Array]


# quote: helpers.derivatives.hvp_forward_over_reverse


# %% tags=["given"]
# quote: helpers.derivatives.hvp_reverse_over_forward


# quote: helpers.derivatives.hvp_reverse_over_reverse


# %% [markdown]
# All three give the analytic product: on the energy, whose Hessian is aᵀ·diag(1 − y²)·a with
# y = tanh(a·x), and on a logistic regression with weights w, whose Hessian is xᵀ·diag(p(1 − p))·x
# divided by the number of rows, p being the predicted chances.


# %% tags=["given"]
def logistic_loss(w, rows, labels):
    """Mean loss of a logistic regression. w: (n,), rows: (m, n), labels: (m,), 0 or 1."""
    logits = rows @ w
    return jnp.mean(jnp.logaddexp(0.0, logits) - labels * logits)


def logistic_hessian(w, rows):
    """Its Hessian in float64, (n, n)."""
    w, rows = to64((w, rows))
    chance = 1 / (1 + np.exp(-rows @ w))
    return rows.T @ ((chance * (1 - chance))[:, None] * rows) / len(rows)


HVPS = {
    "forward over reverse": hvp_forward_over_reverse,
    "reverse over forward": hvp_reverse_over_forward,
    "reverse over reverse": hvp_reverse_over_reverse,
}

# %% tags=["claim"]
rows, w, along = drawn((64, 6), 6, 6, seed=1)
labels = (drawn(64, seed=2)[0] > 0).astype(np.float32)

chance = 1 / (1 + np.exp(-to64(rows) @ w))
slope = jax.grad(logistic_loss)(w, rows, labels)
assert_close(slope, (chance - labels) @ rows / len(rows), rtol=1e-4, atol=1e-6)
assert logistic_hessian(w, rows).dtype == np.float64
for name, hvp in HVPS.items():
    both = jax.jit(
        lambda x, v, w, along: (
            hvp(partial(energy, a), x, v),
            hvp(lambda w: logistic_loss(w, rows, labels), w, along),
        )
    )(x, v, w, along)
    assert_close(both[0], exact(a, x)[2] @ v, rtol=1e-4, atol=1e-5, label=name)
    assert_close(both[1], logistic_hessian(w, rows) @ along, rtol=1e-4, atol=1e-6, label=name)
    print(f"{name}: equal to the analytic product, twice")

# %% [markdown]
# The third one hides an assumption. It pulls v back through the gradient, so what it computes is
# vᵀ·H; that is H·v because a Hessian is symmetric. The same two lines are often reused where the
# inner function is *not* a gradient.
#
# ❌ Two players: one moves p downhill on L(p, q), the other moves q uphill. The field of their
# moves, (∂L/∂p, −∂L/∂q), is the gradient of nothing, and its Jacobian is not symmetric. How does
# the field change along v? With L = 2pq a push gives J·v. The pull gives vᵀJ, which is its
# negative: right size, right shape, and every sign wrong.


# %% tags=["claim"]
def field(z):
    """Where the players of L = 2·p·q are going. z = (p, q)."""
    slopes = jax.grad(lambda z: 2 * z[0] * z[1])(z)
    return slopes * jnp.array([1.0, -1.0])


z, along = np.array([0.3, 0.7], np.float32), np.array([1.0, 2.0], np.float32)
J = np.array([[0.0, 2.0], [-2.0, 0.0]])

pushed = jax.jit(lambda z, v: jax.jvp(field, (z,), (v,))[1])(z, along)
pulled = jax.jit(lambda z, v: jax.vjp(field, z)[1](v)[0])(z, along)

print(f"J·v by a push: {pushed}   vᵀJ by a pull: {pulled}")
assert_close(pushed, J @ along, rtol=1e-6)
assert_close(pulled, along @ J, rtol=1e-6)
assert_equal(pulled, -pushed)

# %% [markdown]
# ✅ A push through whatever you have is J·v, symmetric or not. That is one more reason to begin
# with forward over reverse.
#
# 💡 **H·v is the derivative of the gradient along v: `jax.jvp(jax.grad(f), (x,), (v,))[1]`.**

# %% [markdown]
# ## 3.7 What curvature costs
#
# Does it matter which of the three you take? Measure before you believe. The logistic regression
# again, on 256 rows, with 32 to 2048 weights: time and memory of the three products, and of the
# full Hessian.

# %% tags=["given"]
WEIGHTS = (32, 128, 512, 2048)


def curvature_problem(n):
    """w, v (n,), rows (256, n) and labels (256,) of a logistic regression."""
    w, v, rows = drawn(n, n, (256, n), seed=n)
    return (w / np.sqrt(n)).astype(np.float32), v, rows, (rows[:, 0] > 0).astype(np.float32)


def product_by(hvp):
    """A function of w, v, rows and labels that multiplies with the loss's Hessian."""
    return lambda w, v, rows, labels: hvp(lambda w: logistic_loss(w, rows, labels), w, v)


def full_hessian(w, v, rows, labels):
    """The n × n matrix itself; v is not used."""
    return jax.hessian(logistic_loss)(w, rows, labels)


# %% tags=["claim"]
ways = {name: product_by(hvp) for name, hvp in HVPS.items()} | {"full Hessian": full_hessian}
curved = [curvature_problem(n) for n in WEIGHTS]
assert [rows.shape for _, _, rows, _ in curved] == [(256, n) for n in WEIGHTS]
curving = {name: [compiled(way, *problem) for problem in curved] for name, way in ways.items()}


def bytes_needed(program):
    """Temporary memory and result together."""
    memory = program.memory_analysis()
    return memory.temp_size_in_bytes + memory.output_size_in_bytes


needs = {name: [bytes_needed(program) for program in each] for name, each in curving.items()}
for name, each in needs.items():
    print(f"{name:21} {'less' if each[-1] < 1e5 else 'more'} than 100 kB for 2048 weights")
spread = max(max(each) / min(each) for each in zip(*(needs[name] for name in HVPS)))
hessian_bytes = [p.memory_analysis().output_size_in_bytes for p in curving["full Hessian"]]
assert hessian_bytes == [4 * n**2 for n in WEIGHTS]
assert needs["full Hessian"][-1] > 1e7 and spread < 2
assert all(needs[name][-1] < 1e5 for name in HVPS)

# %% tags=["figure"]
fig, ax = figure(
    "A product needs next to nothing, the Hessian n²",
    "weights n (log scale)",
    "memory (kB, log scale)",
)
for (name, each), color in zip(
    needs.items(), (COLORS.right, COLORS.third, COLORS.fourth, COLORS.wrong), strict=True
):
    (drawn_line,) = ax.loglog(WEIGHTS, np.array(each) / 1e3, "o-", color=color)
    if name == "full Hessian":
        label_line(drawn_line, name)
label_line(ax.lines[2], "three products" if spread < 1.2 else "products")
ax.loglog(WEIGHTS, 4e-3 * np.array(WEIGHTS) ** 2.0, ":", color=COLORS.ink, linewidth=1)
ax.annotate("4n² bytes", (128, 4e-3 * 128**2), (8, -10), textcoords="offset points")
ax.set_xticks(WEIGHTS, [str(n) for n in WEIGHTS])
ax.minorticks_off()
describe(
    fig,
    "Memory of a Hessian-vector product and of the full Hessian against the number of weights, "
    "both axes logarithmic. The Hessian follows 4n² bytes to 17 megabytes; the three products stay "
    "below a hundred kilobytes.",
)

# %% [markdown]
# With 2048 weights the Hessian's program holds over 10 megabytes, 4n² bytes of them for the matrix;
# a product's less than a tenth of one, and the three are within a factor of 2 of each other. Time
# goes the same way: the full matrix takes at least 10 times as long as one product. The cell says
# how many times it is on your machine.

# %% tags=["claim", "nbval-ignore-output"]
problem = curved[-1]
ratio = assert_faster(
    lambda: curving["forward over reverse"][-1](*problem),
    lambda: curving["full Hessian"][-1](*problem),
    by=10,
    repeats=3,
    label="a product with 2048 weights",
)
print(f"a product is {ratio:.0f} times as fast as the Hessian")

# %% tags=["figure", "nbval-ignore-output"]
clocked = {
    name: [1e3 * bench(p, *problem, repeats=5).best for p, problem in zip(each, curved)]
    for name, each in curving.items()
}
fig, ax = figure(
    "Three products in a tangle, the Hessian far above",
    "weights n (log scale)",
    "time (ms, log scale)",
)
colors = (COLORS.right, COLORS.third, COLORS.fourth, COLORS.wrong)
lines = [ax.loglog(WEIGHTS, clocked[name], "o-", color=c)[0] for name, c in zip(clocked, colors)]
from_below = sorted(lines[:3], key=lambda line: line.get_ydata()[-1])
for line, dy in zip([*from_below, lines[3]], (-14, 0, 14, 0), strict=True):
    label_line(line, list(clocked)[lines.index(line)], dy=dy)
ax.set_xticks(WEIGHTS, [str(n) for n in WEIGHTS])
ax.minorticks_off()
for place, n in enumerate(WEIGHTS):
    print(f"{n:4} weights: fastest is {min(HVPS, key=lambda name: clocked[name][place])}")
describe(
    fig,
    "Time of the three products and of the full Hessian against the number of weights, both axes "
    "logarithmic. The products lie close together and cross; at 2048 weights the Hessian is far "
    "slower than all of them.",
)

# %% [markdown]
# Run that cell a few times: which of the three is the fastest may change with n, and from run to
# run. "Forward over reverse is the fastest" stands in many tutorials; ask your own clock.
#
# Where they do differ is memory on a *deep* function. Reverse mode keeps states, and two nested
# reverse passes keep the states of a program that is itself a forward and a backward pass. Forward
# over reverse keeps those of one pass only, each with its push. Through 64 layers:


# %% tags=["claim"]
def deep_energy(weights, inputs):
    """64 layers of 16 units, in a scan. weights: (64, 16, 16), inputs: (32, 16)."""
    outputs, _ = jax.lax.scan(lambda h, w: (jnp.tanh(h @ w), None), inputs, weights)
    return jnp.mean(outputs**2)


weights, inputs = drawn((64, 16, 16), (32, 16))
deep_needs = {
    name: temporaries(
        lambda w, v, x: hvp(lambda w: deep_energy(w, x), w, v),
        weights / 4, weights, inputs,
    )
    for name, hvp in HVPS.items()
}  # fmt: skip

least = min(deep_needs.values())
for name, need in deep_needs.items():
    print(f"{name}: {'the least memory' if need < 1.05 * least else 'more memory'}")
assert deep_needs["forward over reverse"] < 1.05 * least

# %% [markdown]
# And what n² means: the Hessian of a million unknowns would be 4 terabytes. Its product with a
# vector is a matter of milliseconds.

# %% tags=["claim"]
n = 1_000_000
point, direction = np.linspace(-1, 1, n, dtype=np.float32), np.ones(n, np.float32)


def chain(x):
    """A million unknowns, each tied to its neighbours."""
    return jnp.sum(x**4) / 4 + jnp.sum((x[1:] - x[:-1]) ** 2) / 2


product = jax.jit(partial(hvp_forward_over_reverse, chain))(point, direction)

print(f"a Hessian of {4 * n**2 / 1e12:.0f} terabytes, multiplied")
assert_close(product, 3 * to64(point) ** 2, rtol=1e-5, atol=1e-6)  # the ties cancel along ones
assert 4 * n**2 == 4e12

# %% [markdown]
# 💡 **Never form a Hessian to multiply with it. Which HVP? Begin with forward over reverse, and
# measure yours.**

# %% [markdown]
# ## 3.8 Solving with nothing but products
#
# Newton's method asks for the step p that solves H·p = −∇f. It sounds as if you needed H after all.
# **Conjugate gradient** (CG) solves A·x = b for a symmetric, positive definite A from products A·p
# alone, one for each iteration.
#
# What can be reached with k products? Combinations of b, A·b, A²·b, … up to Aᵏ⁻¹·b: the **Krylov
# space**. Of all points in it CG returns the best one, that which minimises ½·xᵀA·x − bᵀx. Here is
# that best point, computed the clumsy way in NumPy: for 100 unknowns whose eigenvalues are spread
# out, and for 100 unknowns with 3 different eigenvalues.


# %% tags=["given"]
def best_in_krylov(a, b, k):
    """The minimiser of ½·xᵀax − bᵀx over the span of b, ab, …, aᵏ⁻¹b, in float64."""
    basis = []
    for _ in range(k):
        vector = a @ basis[-1] if basis else b
        for _ in range(2):  # orthogonal to the others, and once more for the rounding
            vector = vector - sum((vector @ other) * other for other in basis)
        basis.append(vector / np.linalg.norm(vector))
    space = np.stack(basis, axis=1)
    return space @ np.linalg.solve(space.T @ a @ space, space.T @ b)


def symmetric(eigenvalues, seed=0):
    """A symmetric float64 matrix with these eigenvalues."""
    n = len(eigenvalues)
    axes, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((n, n)))
    return (axes * eigenvalues) @ axes.T


# %% tags=["claim"]
b = np.random.default_rng(1).standard_normal(100)
spread_out = symmetric(np.linspace(1, 50, 100))
three = symmetric(np.repeat([1, 7, 50], [33, 33, 34]))
assert_close(np.unique(np.linalg.eigvalsh(three).round(9)), [1, 7, 50], rtol=1e-9)


def krylov_errors(a, products):
    """Relative distance to the solution after so many products."""
    solution = np.linalg.solve(a, b)
    return [
        np.linalg.norm(best_in_krylov(a, b, k) - solution) / np.linalg.norm(solution)
        for k in products
    ]


after_three = krylov_errors(three, [1, 2, 3])
after_thirty = krylov_errors(spread_out, [10, 30])
print(
    "3 eigenvalues:  ", *(f"{k} products {e:.0e}" for k, e in enumerate(after_three[:2], 1)), end=""
)
print(" 3 products below 1e-12" if after_three[2] < 1e-12 else " 3 products above 1e-12")
print("spread out:     ", *(f"{k} products {e:.0e}" for k, e in zip((10, 30), after_thirty)))
assert after_three[1] > 0.05 and after_three[2] < 1e-12
assert after_thirty[0] > 1e-2 and after_thirty[1] < 1e-4

# %% [markdown]
# 100 unknowns, solved to the last digit by 3 products, because there are only 3 eigenvalues; and
# to four digits by 30 where they are spread over a factor of 50. Few iterations go far, and that is
# why Newton steps with CG inside are practical at all.
#
# CG finds the same point without a basis: three vectors (x, the residual r = b − A·x, the direction
# p) and two numbers are enough. From x = 0, r = p = b, each iteration does
#
# $$\alpha = \frac{r^\top r}{p^\top A p},\qquad x \leftarrow x + \alpha p,\qquad
# r' = r - \alpha A p,\qquad \beta = \frac{r'^\top r'}{r^\top r},\qquad
# p \leftarrow r' + \beta p .$$
#
# ❌ Three ways to lose. **0/0**: once r = 0, the next α is 0/0, and a loop of fixed length turns a
# finished solution into NaN. **A tolerance without a scale**: gradients may be small, and "stop
# when r is below 10⁻⁶" stops at once where b is; compare r with b.

# %% tags=["claim"]
diagonal = jnp.float32([1, 2, 4])
b = 1e-7 * diagonal  # x is 1e-7 in all places
tolerances = {"1e-6": {"tol": 0.0, "atol": 1e-6}, "1e-6 · ‖b‖": {"tol": 1e-6}}
found = {
    name: jax.scipy.sparse.linalg.cg(lambda v: diagonal * v, b, **stop)[0]
    for name, stop in tolerances.items()
}
r = p = jnp.zeros(3)
alpha = (r @ r) / (p @ (diagonal * p))
print("once r is 0, the next α is", alpha)
for name, x in found.items():
    print(f"stopped when r is below {name:10} x is {np.round(x / 1e-7, 3)} · 1e-7")
assert np.isnan(alpha) and not np.any(found["1e-6"])
assert_close(found["1e-6 · ‖b‖"], np.full(3, 1e-7), rtol=1e-5)

# %% [markdown]
# And **curvature that is not positive**. CG believes that A is positive definite; away from a
# minimum a Hessian often is not. Then the solution of H·p = −∇f is where the slope vanishes, which
# may be a saddle or a maximum, and it may lie uphill:


# %% tags=["claim"]
def saddle(z):
    """Two valleys, at z[1] = ±√2, and a ridge between them."""
    return z[0] ** 2 - z[1] ** 2 + z[1] ** 4 / 4


@jax.jit
def newton_by_library(z):
    """f at z, and where the library's CG takes Newton's step; f there."""
    slope, hessian_times = jax.linearize(jax.grad(saddle), z)
    end = z + jax.scipy.sparse.linalg.cg(hessian_times, -slope)[0]
    return saddle(z), end, saddle(end)


for place, z in {"in the valley": [0.1, 1.3], "on the ridge": [0.1, 0.5]}.items():
    before, end, after = newton_by_library(np.array(z, np.float32))
    print(f"{place:13} f goes from {before:+.3f} to {after:+.3f}")
    slope, bend = -2 * z[1] + z[1] ** 3, 3 * z[1] ** 2 - 2
    assert_close(end, [0.0, z[1] - slope / bend], rtol=1e-4, atol=1e-5)
    assert (after < before) == (bend > 0)

# %% [markdown]
# `jax.scipy.sparse.linalg.cg` is a fine solver for positive definite systems, and takes every
# system for one. ✅ The curvature pᵀA·p is computed anyway. Where it is not positive, stop: return
# x as it is so far, and in the first iteration, where x is still zero, return b, which for Newton
# is −∇f: plain downhill. Every *direction* is then a way down. How far to go along it is another
# question (a line search): on 100·cos x, at 1.5, the step −∇f is 99.7 long, and lands uphill.

# %% tags=["claim"]
place = 1.5
downhill = 100 * np.sin(place)  # −∇f of 100·cos x, where its curvature is negative
before, after = 100 * np.cos(place), 100 * np.cos(place + downhill)

print(f"a step of {downhill:.1f}: f goes from {before:.1f} to {after:.1f}")
assert -100 * np.cos(place) < 0 and downhill * (-100 * np.sin(place)) < 0
assert after > before

# %% [markdown]
# 💡 **Newton needs products, not a matrix; stop where the curvature is not positive.**

# %% [markdown] exercise="3.2"
# Write two functions.
#
# **`conjugate_gradient(matvec, b, steps)`** solves A·x = b for a symmetric A, from x = 0.
#
# - `matvec(v)` is A·v; `b` is float32 of shape (n,); `steps` is a Python int ≥ 1, the most
#   iterations that are done. Returns x, (n,). Where A is positive definite, that is the best point
#   of the Krylov space of as many products.
# - It ends early when the residual is no longer than about 10⁻⁶ times `b`. After that x stays as it
#   is, however large `steps`. `b` may be tiny (10⁻⁷), or 0; then x is 0.
# - It ends early when pᵀA·p ≤ 0 for a direction p: then it returns x as it was *before* this
#   direction, and `b` if this happens in the first iteration.
# - It works inside `jax.jit`, where `b` is traced.
#
# **`newton_cg_step(f, x, steps)`** returns x + p, where p comes out of `conjugate_gradient` for
# H·p = −∇f(x).
#
# - `f` maps float32 (n,) to a number. No array of n² numbers may appear in the program: not the
#   Hessian, and not in disguise.


# %% tags=["starter"] exercise="3.2"
def conjugate_gradient(matvec, b, steps):
    """x, (n,), after at most `steps` iterations for A·x = b, where matvec(v) is A·v."""
    ### BEGIN SOLUTION
    limit = 1e-12 * jnp.vdot(b, b)

    def goes_on(state):
        step, _, r, _, bent = state
        return (step < steps) & (jnp.vdot(r, r) > limit) & ~bent

    def iteration(state):
        step, x, r, p, _ = state
        product = matvec(p)
        curvature = jnp.vdot(p, product)
        bent = curvature <= 0
        alpha = jnp.vdot(r, r) / jnp.where(bent, 1.0, curvature)
        fresh = r - alpha * product
        beta = jnp.vdot(fresh, fresh) / jnp.vdot(r, r)
        x = jnp.where(bent, jnp.where(step == 0, b, x), x + alpha * p)
        return step + 1, x, fresh, fresh + beta * p, bent

    return jax.lax.while_loop(goes_on, iteration, (0, jnp.zeros_like(b), b, b, False))[1]
    ### END SOLUTION


def newton_cg_step(f, x, steps):
    """Where one Newton step leads from x, (n,), solved by at most `steps` iterations."""
    ### BEGIN SOLUTION
    slope, hessian_times = jax.linearize(jax.grad(f), x)
    return x + conjugate_gradient(hessian_times, -slope, steps)
    ### END SOLUTION


# %% [markdown]
# ## 3.9 Curvature that is never negative
#
# Stopping at negative curvature is a repair. For losses of models there is something better: a
# matrix that is close to the Hessian where it matters, and positive semidefinite everywhere.
#
# A model maps weights w to outputs z, a loss maps z to a number. Differentiate twice, and the
# Hessian falls into two parts:
#
# $$H \;=\; \underbrace{J^\top H_\ell\, J}_{\text{Gauss–Newton } G} \;+\;
# \sum_k \frac{\partial \ell}{\partial z_k}\,\nabla^2 z_k(w) .$$
#
# J is the model's Jacobian, $H_\ell$ the Hessian of the *loss with respect to the outputs*. The
# first part is the curvature that the loss has, seen through a linearized model. The second is the
# curvature of the model, weighed by how wrong each output is. Losses are nearly always convex in
# the outputs, so G is never negative; whatever is negative in H comes from the second part, which
# vanishes where the fit is perfect.


# %% tags=["given"]
points = np.linspace(-2, 2, 7, dtype=np.float32)


def model(w):
    """A bump of height w[0] at the place w[1], at seven points."""
    return w[0] * jnp.exp(-((points - w[1]) ** 2))


targets = np.asarray(model(np.array([2.0, 0.5], np.float32)))


def misfit(z):
    """Half the squared error; its Hessian in z is the identity."""
    return jnp.sum((z - targets) ** 2) / 2


@jax.jit
def parts(w):
    """J, the loss's Hessian, the whole Hessian, and what the model's own curvature adds to it."""
    jacobian = jax.jacfwd(model)(w)
    second = jnp.tensordot(jax.grad(misfit)(model(w)), jax.hessian(model)(w), 1)
    return (
        jacobian,
        jax.hessian(misfit)(model(w)),
        jax.hessian(lambda w: misfit(model(w)))(w),
        second,
    )


# %% [markdown]
# ❌ Start at the wrong place, and the Hessian has an eigenvalue below −0.5: a Newton step climbs.
# ✅ G has none below 0, and the same step with G in place of H goes down. At the perfect fit the
# two are the same matrix.

# %% tags=["claim"]
bad_start = np.array([0.5, -1.0], np.float32)
model_slopes, curved_loss, whole, second = to64(parts(bad_start))
G = model_slopes.T @ curved_loss @ model_slopes
assert_close(G + second, whole, rtol=1e-4, atol=1e-4)

height, place = to64(bad_start)
bump = np.exp(-((to64(points) - place) ** 2))
assert_close(model_slopes.T, [bump, 2 * height * (points - place) * bump], rtol=1e-5, atol=1e-6)
assert_equal(curved_loss, np.eye(7))
slope = model_slopes.T @ to64(model(bad_start) - targets)
eigenvalues = {"H": np.linalg.eigvalsh(whole), "G": np.linalg.eigvalsh(G)}
steps = {"H": -np.linalg.solve(whole, slope), "G": -np.linalg.solve(G, slope)}
for name in "HG":
    print(f"{name}: eigenvalues {eigenvalues[name].round(2)}, slope along its step", end=" ")
    print(f"{slope @ steps[name]:+.2f}")
assert eigenvalues["H"][0] < -0.5 and slope @ steps["H"] > 0
assert eigenvalues["G"][0] > -1e-6 and slope @ steps["G"] < 0

model_slopes, curved_loss, whole, _ = to64(parts(np.array([2.0, 0.5], np.float32)))
assert_close(model_slopes.T @ curved_loss @ model_slopes, whole, rtol=1e-4, atol=1e-4)

# %% [markdown]
# With another loss, $H_\ell$ is no identity. For the cross-entropy of one example with chances p it
# is diag(p) − p·pᵀ, also without a negative direction. And as always nobody needs the matrices. G·v
# is three products, and the table in §3.1 has a row for each of them: push v through the model,
# multiply with the loss's Hessian at z, pull the result back to the weights.
#
# <details><summary>I don't understand why this is not the Fisher matrix.</summary>
#
# For the losses that are negative log-likelihoods of the usual kind (squares, cross-entropy) it is:
# $H_\ell$ does not depend on the labels, and G is the Fisher matrix of the model. The *empirical*
# Fisher, the mean of g·gᵀ over gradients, is something else: it has the labels in it, and vanishes
# where the gradients do.
# </details>
#
# 💡 **Gauss–Newton is the Hessian without the model's own curvature: push, curve, pull.**

# %% [markdown] exercise="3.3"
# Write `gauss_newton_product(predict, loss, w, v)`: G·v = Jᵀ·H·J·v, where J is the Jacobian of
# `predict` at `w`, and H the Hessian of `loss` at `predict(w)`.
#
# - `w` is a pytree of float32 arrays (in the check, a dict), `v` a pytree of the same structure and
#   shapes. `predict(w)` returns one float32 array of any shape; `loss` takes that array and returns
#   a number.
# - Returns a pytree of the structure and shapes of `w`.
# - Nothing as large as J, JᵀJ or H appears in the program. It works inside `jax.jit`.


# %% tags=["starter"] exercise="3.3"
def gauss_newton_product(predict, loss, w, v):
    """Jᵀ·H·J·v, like w; J: predict's Jacobian at w, H: loss's Hessian at predict(w)."""
    ### BEGIN SOLUTION
    z, pushed = jax.jvp(predict, (w,), (v,))
    curved = hvp_forward_over_reverse(loss, z, pushed)
    _, pull = jax.vjp(predict, w)
    (product,) = pull(curved)
    return product
    ### END SOLUTION


# %% [markdown]
# ## 3.10 A trace from random signs
#
# Sometimes you want numbers *of* the Hessian: its trace, which says how sharp a minimum is, or its
# diagonal, which scales the steps of some optimizers. Exactly, either takes n products. An estimate
# takes a handful, whatever n is.
#
# Draw a vector s whose entries are independent, with mean 0 and mean square 1. Then the products
# sᵢsⱼ with i ≠ j are 0 on average, and
#
# $$s^\top H s \;=\; \sum_{i} H_{ii}\,s_i^2 + \sum_{i \ne j} H_{ij}\,s_i s_j$$
#
# is the trace on average. That is **Hutchinson's estimate**. How good is it? With normal numbers,
# one probe has the variance 2·ΣᵢⱼHᵢⱼ². With random *signs*, sᵢ² is not 1 on average but always: the
# diagonal adds no noise, and the variance is 2·ΣHᵢⱼ² over i ≠ j only.


# %% tags=["claim"]
H = symmetric(np.linspace(0.5, 4, 8), seed=4)
rng = np.random.default_rng(0)
draws = {"signs": rng.choice([-1.0, 1.0], (40_000, 8)), "normal": rng.standard_normal((40_000, 8))}
off_diagonal = H - np.diag(np.diag(H))
promised = {"signs": 2 * np.sum(off_diagonal**2), "normal": 2 * np.sum(H**2)}

for name, probes in draws.items():
    estimates = np.einsum("ki,ij,kj->k", probes, H, probes)
    print(
        f"{name:6} mean {estimates.mean():.1f} of {np.trace(H):.1f}, variance {estimates.var():.0f}"
    )
    assert abs(estimates.mean() - np.trace(H)) < 6 * np.sqrt(promised[name] / 40_000)
    assert 0.9 < estimates.var() / promised[name] < 1.1
assert promised["signs"] < promised["normal"] / 2

# %% [markdown]
# The mean of k estimates has a k-th of the variance: four times the probes, half the error.
#
# ❌ If they are *independent*. A random key that is used in each round as it came draws the same
# signs each time, and the mean of k equal estimates is one estimate. The error stays where it was,
# and so does the cost of k.

# %% tags=["claim"]
counts = [1, 4, 16, 64, 256]


def typical_error(make_probes, count, repeats=300):
    """Root mean square error of the trace, as a share of it, over many repeats."""
    rng = np.random.default_rng(count)
    errors = []
    for _ in range(repeats):
        probes = make_probes(rng, count)
        errors.append(np.einsum("ki,ij,kj->k", probes, H, probes).mean() / np.trace(H) - 1)
    return np.sqrt(np.mean(np.square(errors)))


kinds = {
    "one key, used again": lambda rng, k: np.tile(rng.choice([-1.0, 1.0], (1, 8)), (k, 1)),
    "normal numbers": lambda rng, k: rng.standard_normal((k, 8)),
    "signs": lambda rng, k: rng.choice([-1.0, 1.0], (k, 8)),
}
falling = {name: [typical_error(make, k) for k in counts] for name, make in kinds.items()}

for name, errors in falling.items():
    print(f"{name:20} error with 256 probes: {errors[-1] / errors[0]:.0%} of that with 1")
assert falling["one key, used again"][-1] > 0.8 * falling["one key, used again"][0]
assert falling["signs"][-1] < 0.1 * falling["signs"][0]
assert all(a < b for a, b in zip(falling["signs"], falling["normal numbers"], strict=True))

# %% tags=["figure"]
fig, ax = figure(
    "Four times the probes, half the error, if they are independent",
    "probes (log scale)",
    "error (% of the trace, log scale)",
)
for (name, errors), color in zip(
    falling.items(), (COLORS.wrong, COLORS.third, COLORS.right), strict=True
):
    (drawn_line,) = ax.loglog(counts, 100 * np.array(errors), "o-", color=color)
    label_line(drawn_line, name)
ax.set_xticks(counts, [str(k) for k in counts])
ax.set_yticks([1, 3, 10, 30], ["1", "3", "10", "30"])
ax.minorticks_off()
describe(
    fig,
    "Error of the estimated trace against the number of probes, both axes logarithmic. With signs "
    "it falls as one over the square root, with normal numbers it does so from a higher start, and "
    "with one key used again it does not fall.",
)

# %% [markdown]
# Leave the products unsummed, and the same argument gives the whole diagonal: entry i of s times
# H·s, element by element, is Hᵢᵢ·sᵢ² plus terms that vanish on average, with the variance ΣHᵢⱼ²
# over j ≠ i. Its sum is the estimate of the trace. Where H is diagonal, one probe of signs is
# exact.
#
# 💡 **Numbers of a Hessian are means over products with random signs. Split the key for each.**

# %% [markdown] exercise="3.4"
# Write `hessian_diagonal(f, x, key, probes)`: the mean of `probes` independent estimates of the
# diagonal of f's Hessian at x, each from one vector of random signs and one product.
#
# - `f` maps a float32 array of any shape to a number; `x` is such an array. `key` is a
#   `jax.random` key of any implementation; `probes` is a Python int ≥ 1.
# - Returns an array of x's shape. The same key gives the same estimate; another key, another.
# - No array of n² numbers may appear in the program, n being the size of `x`. Arrays of `probes`
#   times n are fine. It works inside `jax.jit`.


# %% tags=["starter"] exercise="3.4"
def hessian_diagonal(f, x, key, probes):
    """An estimate of the diagonal of f's Hessian at x, of x's shape."""

    ### BEGIN SOLUTION
    def estimate(key):
        signs = jax.random.rademacher(key, x.shape, x.dtype)
        return signs * hvp_forward_over_reverse(f, x, signs)

    return jnp.mean(jax.vmap(estimate)(jax.random.split(key, probes)), axis=0)
    ### END SOLUTION


# %% [markdown]
# ## 3.11 Differentiate the answer, not the iteration
#
# Somewhere inside your loss an iteration solves an equation: an equilibrium, a calibration, an
# inner optimization. You need the gradient *through* it. The iteration is a loop, and a loop can be
# differentiated. Should it be?
#
# Kepler's equation is the oldest example: E = M + e·sin E. M tells the time in a planet's orbit, e
# how stretched the orbit is, and E, where the planet is, is found by putting the right side into
# itself until nothing changes. For the slope there is a closed form, dE/dM = 1/(1 − e·cos E).

# %% tags=["given"]
STRETCH = 0.8


def kepler(M, E):
    """The right side of Kepler's equation; the solution is its fixed point in E."""
    return M + STRETCH * jnp.sin(E)


def iterated(M, start, steps):
    """E after a fixed number of steps."""
    return jax.lax.fori_loop(0, steps, lambda _, E: kepler(M, E), start)


def until_it_rests(g, a, start):
    """g(a, x) for x until that changes by less than 1e-6 of itself; 1000 times at most."""
    return jax.lax.while_loop(
        lambda s: (s[0] < 1000) & (jnp.abs(s[2] - s[1]) > 1e-6 * jnp.abs(s[2])),
        lambda s: (s[0] + 1, s[2], g(a, s[2])),
        (0, start, g(a, start)),
    )[2]


def exact_orbit(M):
    """E and dE/dM in float64."""
    E = M
    for _ in range(500):
        E = M + STRETCH * np.sin(E)
    return E, 1 / (1 - STRETCH * np.cos(E))


# %% [markdown]
# Two things about such a loop. The tolerance is a share of the solution, which may be small. And
# there is a cap, for float32 need not rest at all: ❌ x = 35 − 0.95·x goes to and fro by 2e-6 of
# itself for ever, and a loop that waits for 1e-6 never ends. ✅ With the cap it ends, within 2e-6
# of the solution.

# %% tags=["claim"]
x = np.float32(0)
for _ in range(2000):
    last, x = x, np.float32(35) - np.float32(0.95) * x
capped = until_it_rests(lambda a, x: a - 0.95 * x, np.float32(35), np.float32(0))
small = until_it_rests(lambda a, x: a + 0.5 * x, np.float32(-1e-6), np.float32(0))

print(f"after 2000 steps x is {x:.4f}, and still moves by {abs(x - last) / x:.0e} of itself")
assert abs(x - last) > 1e-6 * x
assert_close([x, capped, small], [35 / 1.95, 35 / 1.95, -2e-6], rtol=2e-6)

# %% [markdown]
# ❌ **Going back through the loop** keeps every iterate: what `vjp` holds grows with the number of
# steps, at least one number for each. For a large state and many steps that is your whole memory.

# %% tags=["claim"]
M = np.float32(0.2)


def kept(solve):
    """How many numbers `vjp` keeps for the way back."""
    pull = jax.eval_shape(lambda M: jax.vjp(solve, M)[1], M)
    return sum(leaf.size for leaf in jax.tree.leaves(pull))


for steps in (10, 100, 1000):
    held = kept(partial(iterated, start=0.0, steps=steps))
    print(f"{steps:4} steps: at least {steps} numbers kept: {held >= steps}")
    assert steps <= held <= 5 * steps
ends = [iterated(M, 0.0, steps) for steps in (1, 1000)]
assert_close(ends, [M, exact_orbit(float(M))[0]], rtol=1e-6)

# %% [markdown]
# ❌ **Starting well makes the gradient worse.** A good solver begins at its last answer and stops
# as soon as it is there. Forward mode goes through the `while_loop` without complaint; but if the
# loop ends after the first look, the slope has been through g once. It says dE/dM = 1. The truth
# is more than 2.

# %% tags=["claim"]
E_exact, slope_exact = exact_orbit(float(M))


@jax.jit
def slope_of_loop(start):
    return jax.jvp(lambda M: until_it_rests(kepler, M, start), (M,), (jnp.ones_like(M),))


cold = slope_of_loop(np.float32(0.0))
warm = slope_of_loop(np.float32(E_exact))
print(f"exact {slope_exact:.3f}, from 0 {cold[1]:.3f}, from the solution {warm[1]:.3f}")
assert_close([cold[0], warm[0]], [E_exact, E_exact], rtol=1e-5)
assert_close(cold[1], slope_exact, rtol=1e-3)
assert warm[1] == 1.0 and slope_exact > 2

# %% [markdown]
# ✅ **The equation knows.** The solution satisfies x = g(a, x), not only at this a but at every one
# nearby. Differentiate both sides: if a moves, x moves by what g does with a *and* by what g does
# with x,
#
# $$\dot x = \frac{\partial g}{\partial a}\,\dot a + \frac{\partial g}{\partial x}\,\dot x
# \qquad\Longrightarrow\qquad
# \dot x = \Big(I - \frac{\partial g}{\partial x}\Big)^{-1}\frac{\partial g}{\partial a}\,\dot a .$$
#
# That is the **implicit function theorem**. Both slopes are taken at the solution; how it was found
# is nowhere to be seen. In reverse mode the same is read from the right: given a cotangent v of x,
# solve
#
# $$u = v + \Big(\frac{\partial g}{\partial x}\Big)^{\!\top} u ,\qquad
# \text{then}\qquad \bar a = \Big(\frac{\partial g}{\partial a}\Big)^{\!\top} u .$$
#
# Look at the first equation: u stands on both sides. It is a fixed point itself, its iteration
# contracts exactly as fast as the one for x, and each step of it is one pull. The start x₀ does not
# occur; its gradient is 0.
#
# To tell JAX, give the solver a rule of its own. `jax.custom_vjp` takes two functions: one that
# runs the solver and says what to keep, one that turns a cotangent into one for each argument.


# %% tags=["claim"]
@jax.custom_vjp
def eccentric_anomaly(M, start):
    """The solution E of Kepler's equation."""
    return until_it_rests(kepler, M, start)


def solve_and_keep(M, start):
    E = eccentric_anomaly(M, start)
    return E, E


def by_the_equation(E, cotangent):
    u = cotangent / (1 - STRETCH * jnp.cos(E))  # one unknown: solved by a division
    return u, jnp.zeros_like(E)


eccentric_anomaly.defvjp(solve_and_keep, by_the_equation)
value_and_slope = jax.jit(jax.value_and_grad(eccentric_anomaly, argnums=(0, 1)))

for start in (np.float32(0.0), np.float32(E_exact)):
    E, (slope, slope_of_start) = value_and_slope(M, start)
    assert_close([E, slope], exact_orbit(float(M)), rtol=1e-5)
    assert slope_of_start == 0.0
held = kept(partial(eccentric_anomaly, start=0.0))
print(f"slope {slope:.3f} from both starts, {held} number kept")
assert held == 1

# %% [markdown]
# The gradient is right from both starts, and one number is kept, whatever the loop did.
#
# One thing more for the exercise. Its solver gets the function g as an argument, and a function is
# no array and has no cotangent. Name its place, `nondiff_argnums=(0,)`: it then comes *first* in
# both rules, and the second one returns a cotangent for each of the *other* arguments. Here is a
# rule for "apply f to x" that says 10 for every slope:


# %% tags=["claim"]
@partial(jax.custom_vjp, nondiff_argnums=(0,))
def applied(f, x):
    return f(x)


def apply_and_keep(f, x):
    return f(x), x


def ten_times(f, kept, cotangent):
    return (10 * cotangent,)


applied.defvjp(apply_and_keep, ten_times)
value, slope = jax.value_and_grad(applied, argnums=1)(jnp.sin, 0.5)
print(f"value {value:.3f}, slope {slope}")
assert slope == 10.0
assert_close(value, np.sin(0.5), rtol=1e-6)

# %% [markdown]
# How far is each from the truth if you stop early? In float64, from 0: the iterate itself, the
# slope that has been through the loop, and the slope that the equation gives at that same iterate.
# The loop's slope carries the errors of all iterates before. At the tenth step it is off more than
# 4 times as much as the equation's, at the twentieth more than 10 times, and so on.

# %% tags=["claim"]
E, through_loop, history = 0.0, 0.0, []
for _ in range(40):
    E, through_loop = float(M) + STRETCH * np.sin(E), 1 + STRETCH * np.cos(E) * through_loop
    history.append([E, through_loop, 1 / (1 - STRETCH * np.cos(E))])
errors = np.abs(np.array(history) - [E_exact, slope_exact, slope_exact])
iterate_error, loop_error, equation_error = errors.T

behind = loop_error / equation_error
for steps in (10, 20, 40):
    print(f"{steps} steps: the loop's slope is off {behind[steps - 1]:.1f} times as much")
assert behind[9] > 4 and behind[19] > 10 and np.all(np.diff(behind[9:]) > 0)

# %% tags=["figure"]
fig, ax = figure("The equation knows the slope before the loop does", "steps", "error (log scale)")
for error, color, name, dy in (
    (loop_error, COLORS.wrong, "slope, loop", 0),
    (equation_error, COLORS.right, "slope, equation", 6),
    (iterate_error, COLORS.reference, "E itself", -6),
):
    (drawn_line,) = ax.semilogy(range(1, 41), error, color=color)
    label_line(drawn_line, name, dy=dy)
ax.set_xticks([1, 10, 20, 30, 40])
describe(
    fig,
    "Errors against the number of steps, on a logarithmic axis. From the tenth step on the error "
    "of the slope through the loop lies well above that by the equation, and the gap grows.",
)

# %% [markdown]
# 💡 **A solution is differentiated by the equation that it solves, where it was found.**

# %% [markdown] exercise="3.5"
# Write `fixed_point(g, a, x0)`: the x with x = g(a, x), which can be differentiated with respect to
# `a` in reverse mode.
#
# - `g(a, x)` returns an array like x and is a contraction in x; iterating it converges, slowly
#   perhaps (an error may shrink by 0.9 a step only). `a` is a float32 array of any shape, `x0` a
#   float32 (n,). `g` reads no traced values from outside.
# - x is right to 10⁻⁴. Iterate until it changes by less than 10⁻⁶ times its size, **and cap the
#   loop**: in float32 the last bits may go to and fro for ever. The same goes for the way back,
#   where the cotangent may be small.
# - The gradient with respect to `a` is that of the solution, from whatever `x0` the iteration
#   began, the solution included; with respect to `x0` it is 0.
# - Neither what `jax.vjp` keeps nor any array on the way back grows with the number of iterations.
#   It works inside `jax.jit`.


# %% tags=["starter"] exercise="3.5"
def fixed_point(g, a, x0):
    """The x, (n,), with x = g(a, x), found from x0 and differentiated by the equation."""
    ### BEGIN SOLUTION
    return _solved(g, a, x0)


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _solved(g, a, x0):
    def moves(state):
        moved, size = (jnp.max(jnp.abs(x)) for x in (state[2] - state[1], state[2]))
        return (state[0] < 1000) & (moved > 1e-6 * size)

    def again(state):
        return state[0] + 1, state[2], g(a, state[2])

    return jax.lax.while_loop(moves, again, (0, x0, g(a, x0)))[2]


def _forward(g, a, x0):
    x = _solved(g, a, x0)
    return x, (a, x)


def _backward(g, solved, cotangent):
    _, pull = jax.vjp(g, *solved)
    u = _solved(lambda v, u: v + pull(u)[1], cotangent, cotangent)
    return pull(u)[0], jnp.zeros_like(u)


_solved.defvjp(_forward, _backward)
### END SOLUTION


# %% [markdown]
# ## 3.12 What to keep
#
# 💡 **Count inputs and outputs first.** Fewer inputs: forwards. Fewer outputs: backwards. One
# direction: a single `jvp` or `vjp`, and no table.
#
# 💡 **Multiply by matrices that you never form.** Hessian, Gauss–Newton, inverse, diagonal, trace:
# all are made of products, and a product costs a few gradients.
#
# 💡 **Test a derivative against a closed form, on a function that is neither square nor symmetric,
# in the mode that you will use.** The mistakes of this chapter raise no errors.
#
# ### 🧪 Quiz
#
# Put a letter in place of the dots and run the cell. The answers are measured on your machine.

# %% tags=["quiz"] question="3.a"

# %% tags=["quiz"] question="3.b"

# %% tags=["quiz"] question="3.c"

# %% tags=["quiz"] question="3.d"

# %% tags=["quiz"] question="3.e"

# %% tags=["quiz"] question="3.f"

# %% tags=["quiz"] question="3.g"

# %% tags=["quiz"] question="3.h"

# %% [markdown]
# ### Cheat sheet
#
# | to | write |
# |---|---|
# | go downhill | `jax.grad(f)(x)`, `jax.value_and_grad(f)(x)` |
# | push one direction, J·v | `y, Jv = jax.jvp(f, (x,), (v,))` |
# | push many at one point | `y, push = jax.linearize(f, x)`, then `push(v)`, `jax.vmap(push)(vs)` |
# | pull weights back, uᵀJ | `y, pull = jax.vjp(f, x)`, then `(uJ,) = pull(u)` |
# | turn a push around | `jax.linear_transpose(push, x)` |
# | the table, few inputs | `jax.jacfwd(f)(x)` |
# | the table, few outputs | `jax.jacrev(f)(x)`, also called `jax.jacobian` |
# | know the shape beforehand | `jax.eval_shape(f, x)` |
# | Hessian times vector | `jax.jvp(jax.grad(f), (x,), (v,))[1]` |
# | the same, many times at one point | `g, Hv = jax.linearize(jax.grad(f), x)` |
# | the Hessian, small n | `jax.hessian(f)(x)` |
# | solve with products | `jax.scipy.sparse.linalg.cg(matvec, b)`, positive definite only |
# | random signs | `jax.random.rademacher(key, shape, dtype)` |
# | a rule for reverse mode | `@jax.custom_vjp`, `f.defvjp(forward, backward)` |
# | a rule for both | `@jax.custom_jvp`, `f.defjvp(rule)` |
# | solve an equation, rule included | `jax.lax.custom_root(…)` |
# | hide from differentiation | `jax.lax.stop_gradient(x)` |
# | count arithmetic | `jax.jit(f).lower(x).compile().cost_analysis()["flops"]` |
# | count memory | `jax.jit(f).lower(x).compile().memory_analysis()` |
