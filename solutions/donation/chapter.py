# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # 06 · Donation
#
# The model fits on the device, and the training step does not. A generated token costs as much as
# the whole cache that it is added to. Both have the same cause: a program writes its results
# before it lets go of its arguments, so for a moment there are two copies of everything that
# changes.
#
# **Donation** ends that. You tell JAX that an argument will not be needed again, and the result
# is written where the argument was. It costs one word, and your old arrays. Code that still
# counts on them fails: there are four ways to do that, and three errors. Code that stands in the
# way of the donation does not fail: it runs, slower and larger than it should.
#
# Afterwards you can
#
# - prove that a buffer was reused, in three ways;
# - tell from shapes and dtypes which arguments are worth donating;
# - know the four mistakes by the errors that they end in, and find the line that is to blame;
# - keep snapshots, caches and frozen layers beside a donated state;
# - find what silently keeps a donation back.
#
# Reading and running takes about an hour, the five exercises another hour and a half. You need
# `jax.jit` and the compile budget of chapter 01.
#
# | mark | means |
# |---|---|
# | ❌ | a mistake, and what it costs |
# | ✅ | the way to do it, and the proof |
# | ✍️ | your turn |
# | 🧪 | a check, or a question of the quiz |
# | 💡 | a rule to keep |

# %% tags=["setup"]
import copy
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

# %% tags=["setup"]
from helpers import (
    COLORS,
    CompileBudget,
    CompileCounter,
    assert_close,
    assert_equal,
    assert_faster,
    bench,
    check,
    describe,
    figure,
    format_seconds,
    label_line,
    quiz,
    show_error,
)
from helpers.buffers import AFTER, BESIDE, TWICE, live_bytes
from helpers.logs import captured_stderr
from helpers.optim import GradientTransformation, adam, apply_updates, sgd
from helpers.trees import Tree

on_cpu = jax.default_backend() == "cpu"

# %% [markdown]
# ## 6.1 Two copies of the state
#
# Adam keeps two moments for each parameter. Add the gradients, and a step holds four times the
# parameters before it has computed anything. Where does it put its results? A function is pure:
# it may not overwrite what it was given. So the new parameters and the new moments go into fresh
# memory, and until the step ends the old ones lie beside them.
#
# `update` is the end of every training step, for any optimizer:


# %% tags=["given"]
def update(optimizer, params, opt_state, grads):
    """New params and optimizer state."""
    updates, opt_state = optimizer.update(grads, opt_state, params)
    return apply_updates(params, updates), opt_state


def memory_needed(program, *args):
    """Bytes of a call's arguments and results; a buffer that serves as both counts once."""
    memory = program.lower(*args).compile().memory_analysis()
    return memory.argument_size_in_bytes + memory.output_size_in_bytes - memory.alias_size_in_bytes


def size(tree):
    """Bytes of all leaves."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


# %% [markdown]
# A compiled program knows what it will need. `memory_analysis` asks it, without allocating a
# byte: shapes are enough. Here is the step of three optimizers on one megabyte of parameters,
# counted in copies of them. What is donated are the parameters and the optimizer's state.

# %% tags=["claim"]
params = {"w": jax.ShapeDtypeStruct((512, 512), jnp.float32)}
optimizers = {"SGD": sgd(0.1), "momentum": sgd(0.1, momentum=0.9), "Adam": adam(1e-3)}
copies = {}
for name, optimizer in optimizers.items():
    opt_state = jax.eval_shape(optimizer.init, params)
    last_part = partial(update, optimizer)
    needs = [
        memory_needed(jax.jit(last_part, donate_argnums=donated), params, opt_state, params)
        for donated in ((), (0, 1))
    ]
    copies[name] = [round(need / size(params)) for need in needs]
    print(f"{name:9} {copies[name][0]} copies of the params, donated {copies[name][1]}")
    assert needs[0] - needs[1] == size(params) + size(opt_state)

assert copies == {"SGD": [3, 2], "momentum": [5, 3], "Adam": [7, 4]}

# %% [markdown]
# What donation saves is exactly one copy of what was donated: for Adam three copies of the
# parameters out of seven. For a model of 7 billion parameters in float32 that is 84 GB.

# %% tags=["figure"]
fig, ax = figure(
    "Donation takes one copy of the state off each step",
    "memory of a step (copies of the params)",
    "",
    size=(6.4, 3.0),
)
for place, (twice, once) in enumerate(reversed(copies.values())):
    ax.barh(place + 0.19, twice, height=0.34, color=COLORS.wrong)
    ax.barh(place - 0.19, once, height=0.34, color=COLORS.right)
ax.set_yticks(range(len(copies)), list(reversed(copies)))
ax.tick_params(axis="y", length=0)
ax.annotate("not donated", (7.1, 0.19), color=COLORS.wrong, fontweight="bold", va="center")
ax.annotate("donated", (4.1, -0.19), color=COLORS.right, fontweight="bold", va="center")
ax.set_xticks(range(8))
ax.set_xlim(0, 8.5)
assert 7e9 * 4 * (copies["Adam"][0] - copies["Adam"][1]) == 84e9
describe(
    fig,
    "Memory of one step in copies of the params: SGD 3, with donation 2; momentum 5, with donation "
    "3; Adam 7, with donation 4.",
)

# %% [markdown]
# What lies between arguments and results, such as the activations of a backward pass, comes on
# top in both cases; that is the business of chapter 03 and chapter 04.
#
# 💡 **A step without donation holds everything that it changes twice.**

# %% [markdown]
# ## 6.2 Three proofs that a buffer was reused
#
# A **buffer** is the piece of memory in which an array's numbers lie; the array that you see in
# Python is a handle on it. To **donate** an argument is to hand its buffer over to the program.
# It is one argument of `jax.jit`:


# %% tags=["given"]
def decay(x):
    """Everything is half as far from 2."""
    return 0.5 * x + 1.0


plain = jax.jit(decay)
donating = jax.jit(decay, donate_argnums=0)


def numbers(n=1024):
    """0, 1, … in float32, in a buffer that nobody else has."""
    return jnp.arange(n, dtype=jnp.float32)


# %% [markdown]
# Is it done? You can look at three levels. **In StableHLO**, the program's text before XLA gets
# it, the argument is marked with the number of the result that takes its place.


# %% tags=["claim"]
def signature(program):
    """How the program's text declares its first argument."""
    text = program.lower(numbers()).as_text()
    return re.search(r"%arg0: tensor<\w+>( \{.*?\})?", text)[0]


print("plain:   ", signature(plain))
print("donating:", signature(donating))
assert "tf.aliasing_output = 0" in signature(donating)
assert "tf.aliasing_output" not in signature(plain)

# %% [markdown]
# That is a wish. **In the compiled program**, it has become a plan: `alias_size_in_bytes` says
# how many bytes of the arguments serve as results, and the peak of memory is lower by as many.

# %% tags=["claim"]
x = numbers()
planned = [program.lower(x).compile().memory_analysis() for program in (plain, donating)]
for name, memory in zip(("plain:", "donating:"), planned, strict=True):
    shared_bytes, peak = memory.alias_size_in_bytes, memory.peak_memory_in_bytes
    print(f"{name:9} {shared_bytes / x.nbytes:.0f} of 1 copy shared, peak {peak / x.nbytes:.0f}")

assert [memory.alias_size_in_bytes for memory in planned] == [0, x.nbytes]
if on_cpu:  # what counts as the peak is up to the compiler of each device
    assert planned[0].peak_memory_in_bytes - planned[1].peak_memory_in_bytes == x.nbytes
assert memory_needed(plain, x) - memory_needed(donating, x) == x.nbytes

# %% [markdown]
# **In memory**, it is a fact: the result starts at the address at which the argument started, and
# the argument is deleted. `helpers.buffers` looks at both. Addresses are for comparing, so none
# is ever printed: they are different tomorrow.

# %% tags=["given"]
# quote: helpers.buffers.addresses


# quote: helpers.buffers.deleted


# %% tags=["claim"]
for program, expected in ((plain, False), (donating, True)):
    x = numbers()
    before = addresses(x)
    y = program(x)
    assert_equal(y, 0.5 * np.arange(1024) + 1)
    reused = addresses(y) == before
    print(f"in the same place: {reused!s:5}  argument deleted: {deleted(x)[0]}")
    assert reused == expected
    assert deleted(x) == [expected]

# %% [markdown]
# If you ran this on a CPU, you have just seen what many texts deny: donation works there, too.
# For years it did nothing on a CPU, and advice lives longer than code.
#
# Arguments can be donated by place or by name, and it does not matter how the caller passes them.
# A program compiled ahead of time donates too, and so do the transformed versions: `jax.grad` and
# `jax.vmap` of a donating function delete their argument.

# %% tags=["claim"]
by_name = jax.jit(lambda rate, x: x * rate, donate_argnames="x")
ways = {
    "by place, passed by name": lambda x: donating(x=x),
    "by name, passed by place": lambda x: by_name(np.float32(2.0), x),
    "ahead of time": donating.lower(numbers()).compile(),
    "under vmap": jax.vmap(donating),
    "under grad": jax.grad(lambda x: jnp.sum(donating(x))),
}
for what, call in ways.items():
    x = numbers()
    call(x)
    print(f"{what:25} argument deleted: {deleted(x)[0]}")
    assert deleted(x) == [True]

# %% [markdown]
# 💡 **Believe a donation when the argument is deleted and the result lies where it lay.**

# %% [markdown]
# ## 6.3 What it buys in time
#
# Memory that is not allocated need not be fetched, zeroed and filled. How much that is depends on
# what the program does with the rest. The extreme case is a program that changes one row of a
# large buffer.


# %% tags=["given"]
def write_row(buffer, row, place):
    """The buffer with one row replaced. buffer: (rows, 64), row: (64,), place: an integer."""
    return buffer.at[place].set(row)


write_copying = jax.jit(write_row)
write_in_place = jax.jit(write_row, donate_argnums=0)


def writer(program, rows):
    """A function of no arguments that writes one row into a buffer, over and over."""
    held = [program(jnp.zeros((rows, 64)), row, 0)]

    def write():
        held[0] = program(held[0], row, 5)
        return held[0]

    return write


row = np.ones(64, np.float32)

# %% [markdown]
# ❌ Without donation the old buffer has to stay as it is, so all other rows are copied first. ✅
# With donation nothing is copied: one row is written. In a buffer of 16 MiB that is at least 10
# times as fast; measured here it is usually hundreds of times.

# %% tags=["claim", "nbval-ignore-output"]
rows_tried = [1024, 4096, 16384, 65536]
times = {
    name: [bench(writer(program, rows)).median for rows in rows_tried]
    for name, program in (("copied", write_copying), ("in place", write_in_place))
}
for rows, slow, fast in zip(rows_tried, *times.values(), strict=True):
    megabytes = rows * 256 / 2**20
    print(f"{megabytes:5.2f} MiB: {format_seconds(slow)} copied, {format_seconds(fast)} in place")

copying, in_place = writer(write_copying, 65536), writer(write_in_place, 65536)
assert 65536 * row.nbytes == 16 * 2**20
if on_cpu:  # a GPU copies 16 MiB in less time than it takes to start a program
    assert_faster(in_place, copying, by=10)

# %% tags=["figure"]
fig, ax = figure(
    "In place, a write costs the same in a buffer of any size",
    "size of the buffer (MiB, log scale)",
    "time of one write (ms, log scale)",
)
sizes = [rows * 256 / 2**20 for rows in rows_tried]
for (name, measured), color in zip(times.items(), (COLORS.wrong, COLORS.right), strict=True):
    (drawn,) = ax.loglog(sizes, [1e3 * t for t in measured], "o-", color=color)
    label_line(drawn, name)
ax.set_xticks(sizes, [f"{megabytes:g}" for megabytes in sizes])
ax.set_yticks([0.01, 0.1, 1, 10], ["0.01", "0.1", "1", "10"])
ax.minorticks_off()
assert sizes[-1] == 16
describe(
    fig,
    "Time to write one row into buffers of 0.25 to 16 MiB. Copied, it grows with the buffer; in "
    "place, it stays where it was.",
)

# %% [markdown]
# A step that touches every number gains less, for it has to write all of them anyway. It still
# saves the allocation: fresh memory costs page faults on a CPU, and a search through the pool on
# a GPU. Measure it; what you get depends on the allocator more than on JAX.


# %% tags=["claim", "nbval-ignore-output"]
def stepper(program):
    """A function of no arguments that takes step after step on 8 MiB."""
    held = [program(numbers(2**21))]

    def step():
        held[0] = program(held[0])
        return held[0]

    return step


assert size(stepper(donating)()) == 8 * 2**20
kept, reused = bench(stepper(plain)), bench(stepper(donating))
print(f"every number of 8 MiB: {kept} plain, {reused} donated")

# %% [markdown]
# ❌ **It buys nothing inside a program.** Within one jit there are no buffers yet, only values,
# and XLA lets values share memory as it sees fit. So a donating function that is called *inside
# another jit* donates nothing, and nobody says so:

# %% tags=["claim"]
outer = jax.jit(lambda x: donating(x) + 1)

x = numbers()
y = outer(x)
print("inside another jit, argument deleted:", deleted(x)[0])
assert deleted(x) == [False]
assert "tf.aliasing_output" not in signature(outer)

# %% [markdown]
# Nor does it need to. The carry of a `scan` is overwritten in place without being told: a
# thousand rounds take as much memory as ten. Donation is about the *border* of a program, where
# its arguments are yours and XLA may not touch them.


# %% tags=["claim"]
def rounds(x, count):
    """`decay`, count times."""
    return jax.lax.scan(lambda x, _: (decay(x), None), x, None, length=count)[0]


def side_memory(count):
    """Bytes that the rounds need beside argument and result."""
    program = jax.jit(partial(rounds, count=count), donate_argnums=0)
    return program.lower(numbers()).compile().memory_analysis().temp_size_in_bytes


print("more memory for 1000 rounds than for 10:", side_memory(1000) > side_memory(10))
assert side_memory(1000) == side_memory(10)
assert side_memory(10) < numbers().nbytes or not on_cpu

# %% [markdown]
# 💡 **Donate at the outermost jit: only there are buffers to give.**

# %% [markdown]
# ## 6.4 What can't be reused
#
# You may donate whatever you like. It helps if some *result* can lie in the buffer: it needs as
# many bytes as the argument. The same shape and dtype always do. If no result has as many
# *numbers*, JAX warns, once, while it lowers the program:


# %% tags=["given"]
def warnings_of(program, *args):
    """The warnings that a call gives, first lines only."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program(*args)
    return [str(each.message).splitlines()[0] for each in caught]


# %% tags=["claim"]
total = jax.jit(jnp.sum, donate_argnums=0)
x = numbers()
first, second = warnings_of(total, x), warnings_of(total, x)

print("first call: ", *first)
print("second call:", *second or ["nothing"])
assert first == ["Some donated buffers were not usable: float32[1024]."]
assert second == []
assert deleted(x) == [False]

# %% [markdown]
# The array stays alive, and nothing is lost but the saving. That makes the warning easy to get
# used to. Two things make it worth a look: it means that memory which you counted on is not
# there, and it is not given in every such case.
#
# Below, the same array is donated to programs whose results differ in form.

# %% tags=["claim"]
programs = {
    "same shape and dtype": lambda x: x * 2,
    "another shape, same size": lambda x: jnp.sin(x).reshape(32, 32),
    "one half of it": lambda x: x[:512] * 2,
    "two of it": lambda x: jnp.concatenate([x, x]),
    "float16": lambda x: x.astype(jnp.float16),
    "two of it in float16": lambda x: jnp.concatenate([x, x]).astype(jnp.float16),
    "argument not used": lambda x: jnp.zeros(1024),
    "inside another jit": outer,
}
fate = {}
for what, fn in programs.items():
    x = numbers()
    program = fn if fn is outer else jax.jit(fn, donate_argnums=0)
    fate[what] = (len(warnings_of(program, x)) == 1, deleted(x)[0])
    print(f"{what:25} warns: {fate[what][0]!s:5}  reused: {fate[what][1]}")

assert fate["same shape and dtype"] == fate["another shape, same size"] == (False, True)
assert fate["one half of it"] == fate["two of it"] == (True, False)
assert fate["two of it in float16"] == (True, False)
silent = {what for what, (warns, reused) in fate.items() if not warns and not reused}
assert silent >= {"float16", "argument not used", "inside another jit"}

# %% [markdown]
# A reshape lies in the old buffer as well as the same shape does. JAX warns by numbers, not by
# bytes: it does of as many bytes in twice as many numbers, and does not of half as many bytes in as
# many numbers. Where both agree and the dtypes differ, it leaves the choice to XLA (§6.13 tries
# float32 to int32); count on nothing.
#
# Three of the failures are silent. The one that costs the most is the dtype, because it happens by
# itself. ❌ A float16 state meets a float32 learning rate, and promotion does the rest: the result
# is float32, the donation has no effect, and the state is twice as large from then on. The next
# step gets a float32 state and compiles again.


# %% tags=["claim"]
def shrink(w, rate):
    """One step down the slope of sum(w²) / 2."""
    return w - rate * w


promoting = jax.jit(shrink, donate_argnums=0)
w, rate = jnp.ones(8, jnp.float16), np.float32(0.5)
with CompileCounter(only="shrink") as counter:
    said = warnings_of(promoting, w, rate)
    larger = promoting(w, rate)
    promoting(larger, rate)

print(f"{w.dtype} becomes {larger.dtype}, {counter.count} compiled, warnings: {said}")
assert (w.dtype, larger.dtype) == (jnp.float16, jnp.float32)
assert (said, deleted(w), counter.count) == ([], [False], 2)

# %% [markdown]
# ✅ Give each result the dtype of the leaf that it replaces. That is one `astype`, and it belongs
# into every optimizer.

# %% tags=["claim"]
casting = jax.jit(lambda w, rate: shrink(w, rate).astype(w.dtype), donate_argnums=0)
w = jnp.ones(8, jnp.float16)
before = addresses(w)
new = casting(w, rate)

print(f"{w.dtype} stays {new.dtype}, reused: {addresses(new) == before}")
assert_equal(new, np.full(8, 0.5))
assert (new.dtype, addresses(new), deleted(w)) == (jnp.float16, before, [True])

# %% [markdown]
# ❌ The batch is the other classic. "Donate everything" sounds thorough, but in a training step no
# result has the form of a batch, so JAX warns. That is the better case. If one day the step
# returns something of that form, the residuals say, there is no warning any more, and the next
# epoch finds its data deleted. Donate what comes back changed, and nothing else.

# %% tags=["claim"]
steps = {
    "returns the weights": lambda w, x: w - jnp.mean(x, axis=0),
    "returns the residuals too": lambda w, x: (w - jnp.mean(x, axis=0), x - w),
}
ends = []
for what, fn in steps.items():
    w, x = jnp.ones(4), jnp.ones((8, 4))
    said = warnings_of(jax.jit(fn, donate_argnums=(0, 1)), w, x)
    ends.append((len(said), deleted(x)[0]))
    print(f"{what:26} warnings: {len(said)}  batch deleted: {deleted(x)[0]}")
assert ends == [(1, False), (0, True)]

# %% [markdown]
# 💡 **A result of the same shape and dtype reuses the buffer; count on no other. The warning is a
# proof that none did; no warning is no proof that one did.**

# %% [markdown]
# ## 6.5 Used after it was donated
#
# Now for what it takes. Of the four mistakes, this is the one that everybody makes first: the old
# name is still there, and someone uses it.

# %% tags=["claim"]
x = numbers()
y = donating(x)

show_error(lambda: x + 1, expect=RuntimeError, contains="Array has been deleted")
show_error(np.asarray, x, expect=RuntimeError, contains="Array has been deleted")
print("still known:", x.shape, x.dtype)
assert (x.shape, x.dtype) == ((1024,), jnp.float32)

# %% [markdown]
# The Python object outlives its buffer, and remembers its shape and dtype. That is why an error
# can come late, in the line that prints or plots.
#
# Passing the array to a jitted function again is refused by the runtime, not by Python, and there
# the class and the words differ between versions of JAX. So do not catch a class; look at the
# text, as `refusal` does.

# %% tags=["given"]
# quote: helpers.buffers.refusal


# %% [markdown]
# It looks for these texts, each of which belongs to one broken rule:

# %% tags=["claim"]
# quote: helpers.buffers._TEXTS


y = donating(x := numbers())
print("passed again:", refusal(lambda: donating(x)))
print("added to:    ", refusal(lambda: x + 1))
print("its shape:   ", refusal(lambda: x.shape) or "no error")
assert refusal(lambda: donating(x)) == refusal(lambda: x + 1) == AFTER
assert refusal(lambda: x.shape) == ""

# %% [markdown]
# ✅ The cure is an idiom: bind the result to the name of the argument. Then the old array has no
# name left, and nobody can use it.

# %% tags=["claim"]
x = numbers(4)
for _ in range(3):
    x = donating(x)

print(np.array(x))
assert_equal(x, 2 + (np.arange(4) - 2) / 8)

# %% [markdown]
# One use remains that no name protects: going back. "If the loss is NaN, keep the old parameters"
# can't be decided after a donating step, for there are no old parameters. ✅ Decide inside the
# program, where old and new are both values. It costs no copy:


# %% tags=["claim"]
@partial(jax.jit, donate_argnums=0)
def guarded_step(w, grad):
    """One step, or none where the gradient is not finite."""
    good = jnp.all(jnp.isfinite(grad))
    return jnp.where(good, w - 0.5 * grad, w)


w = jnp.ones(3)
before = addresses(w)
w = guarded_step(w, np.ones(3, np.float32))
w = guarded_step(w, np.array([1, np.nan, 1], np.float32))

print("after a good and a bad gradient:", np.array(w), "reused:", addresses(w) == before)
assert_equal(w, np.full(3, 0.5))
assert addresses(w) == before

# %% [markdown]
# 💡 **`state = step(state, …)`: the old name does not survive the line.**

# %% [markdown]
# ## 6.6 One buffer in two places
#
# The second mistake is made when the state is made. A moving average of the parameters starts as
# the parameters:


# %% tags=["given"]
@partial(jax.jit, donate_argnums=0)
def averaging_step(state):
    """A step of some kind on "params", and its moving average in "ema"."""
    params = decay(state["params"])
    return {"params": params, "ema": 0.9 * state["ema"] + 0.1 * params}


# %% [markdown]
# ❌ `"ema": params` does not copy anything: the state has two names for one buffer. The program is
# asked to put two results into it, and refuses. XLA also writes a line to stderr on its own
# account, which a notebook would show in red; `captured_stderr` collects it.

# %% tags=["claim"]
params = numbers(4)
state = {"params": params, "ema": params}

with captured_stderr() as noise:
    try:
        averaging_step(state)
    except (RuntimeError, ValueError) as error:
        said = str(error)

print(re.search(r"Attempt to .*?\(\)", said)[0])
assert "donate the same buffer twice" in said
assert not noise or "donate the same buffer twice" in "".join(noise)
assert refusal(lambda: averaging_step(state)) == TWICE
assert deleted(params) == [False]

# %% [markdown]
# Nothing is deleted; the call was refused before it ran. The message counts arguments in
# flattened order ("flattened argument 1, first use: 0"), which in a state of two hundred leaves
# is no help. Ask the state itself:

# %% tags=["given"]
# quote: helpers.buffers.shared


# %% tags=["claim"]
print(shared(state))
assert shared(state) == [["['ema']", "['params']"]]
assert shared({"params": params, "ema": jnp.copy(params)}) == []

# %% [markdown]
# Which operations copy? Not those that look as if they did. Here are fourteen ways to write
# "another x", and whether there is another buffer behind it.

# %% tags=["claim"]
ways = {
    "jnp.asarray(x)": jnp.asarray,
    "jax.device_put(x)": jax.device_put,
    "x[...]": lambda x: x[...],
    "x.reshape(x.shape)": lambda x: x.reshape(x.shape),
    "x.astype(x.dtype)": lambda x: x.astype(x.dtype),
    "jax.lax.stop_gradient(x)": jax.lax.stop_gradient,
    "jax.tree.map(lambda x: x, x)": lambda x: jax.tree.map(lambda x: x, x),
    "jnp.array(x)": jnp.array,
    "jnp.copy(x)": jnp.copy,
    "x + 0": lambda x: x + 0,
    "x.copy()": lambda x: x.copy(),
    "copy.copy(x)": copy.copy,
    "copy.deepcopy(x)": copy.deepcopy,
    "jax.jit(lambda x: x)(x)": jax.jit(lambda x: x),
}
x = numbers()
copied = {what: addresses(way(x)) != addresses(x) for what, way in ways.items()}
for what, fresh in copied.items():
    print(f"{what:30}{'its own buffer' if fresh else 'the same buffer'}")
assert len(ways) == 14
assert copied["jnp.array(x)"] and copied["jnp.copy(x)"] and copied["jax.jit(lambda x: x)(x)"]
assert not copied["jnp.asarray(x)"] and not copied["jax.tree.map(lambda x: x, x)"]

# %% [markdown]
# The last line is worth remembering: what comes out of a jit has always a buffer of its own. Two
# equal results of one program do not share, not even one that is returned twice; and an argument
# that is returned as it is was copied, unless it was donated.


# %% tags=["claim"]
def several(x):
    y = 2 * x
    return y, y, 2 * x, x


results = jax.jit(several)(x)
print("shared among results and argument:", shared((*results, x)))
assert len(results) == 4 and shared((*results, x)) == []

# %% [markdown]
# ❌ Look out for the tree that shares with *itself*. Language models tie their last layer to the
# embedding: one array in two places, on purpose. And zeros that are made once and used for both
# of Adam's moments are one buffer as well. `copy.deepcopy` of such a tree keeps it as it is,
# because it remembers what it has already copied.

# %% tags=["claim"]
table = jnp.ones((4, 3))
tied = {"embed": table, "head": table}
print("deepcopy of a tied tree shares:", shared(copy.deepcopy(tied)))
print("tree.map of jnp.copy shares:   ", shared(jax.tree.map(jnp.copy, tied)))
assert shared(copy.deepcopy(tied)) == [["['embed']", "['head']"]]
assert shared(jax.tree.map(jnp.copy, tied)) == []

# %% [markdown]
# ✅ So copy leaf by leaf, once for each role that the numbers have. Zeros are made with
# `jnp.zeros_like`, once for each tree. The step then runs, and the caller's array is still there:

# %% tags=["claim"]
state = {"params": jnp.copy(params), "ema": jnp.copy(params)}
state = averaging_step(state)

print("params:", np.array(state["params"]), "the caller's:", np.array(params))
assert_equal(state["params"], 0.5 * np.arange(4) + 1)
assert_close(state["ema"], 0.9 * np.arange(4) + 0.1 * (0.5 * np.arange(4) + 1), rtol=1e-6)
assert_equal(params, np.arange(4))

# %% [markdown]
# 💡 **A state that will be donated has a buffer for each leaf, and none of anybody else's.**

# %% [markdown] exercise="6.1"
# Write `fresh_state(params)`. It returns a dict with five entries:
#
# - `"params"` and `"ema"`: the given parameters, both with the same numbers;
# - `"mu"` and `"nu"`: zeros, for each leaf of the params one of the same shape and dtype;
# - `"count"`: 0, an int32 scalar.
#
# `params` is any nest of dicts and lists of JAX arrays, of any floating dtypes, and one array may
# stand in two of its places. All leaves of the state are JAX arrays. A program that donates the
# whole state accepts it, and the params that were passed in are alive afterwards.


# %% tags=["starter"] exercise="6.1"
def fresh_state(params):
    """The state before the first step: "params", "ema", "mu", "nu" and "count"."""
    ### BEGIN SOLUTION
    return {
        "params": jax.tree.map(jnp.copy, params),
        "ema": jax.tree.map(jnp.copy, params),
        "mu": jax.tree.map(jnp.zeros_like, params),
        "nu": jax.tree.map(jnp.zeros_like, params),
        "count": jnp.zeros((), jnp.int32),
    }
    ### END SOLUTION


# %% [markdown]
# ## 6.7 Donated and used in one call
#
# The third mistake needs two arguments. A target network, a teacher, a reference policy: the step
# takes the parameters that it moves, and parameters to compare them with. At the beginning the
# two are the same, and ❌ so are their buffers. One argument is donated, the other one is not, and
# JAX refuses to overwrite what it is also supposed to read.

# %% tags=["claim"]
towards = jax.jit(lambda params, target: 0.5 * (params + target), donate_argnums=0)
away = jax.jit(lambda target, params: 1.5 * params - 0.5 * target, donate_argnums=1)

params = numbers(4)
print("donated, then used:", refusal(lambda: towards(params, params)))
print("used, then donated:", refusal(lambda: away(params, params)))
assert refusal(lambda: towards(params, params)) == BESIDE
assert refusal(lambda: away(params, params)) == BESIDE
assert deleted(params) == [False]

# %% [markdown]
# ✅ A copy makes two of them. And if both arguments are always the same array, there should be
# only one argument.

# %% tags=["claim"]
target = jnp.copy(params)
for _ in range(3):
    params = towards(params, target)

print("params:", np.array(params), "target:", np.array(target))
assert_equal(params, np.arange(4))
assert_equal(target, np.arange(4))

# %% [markdown]
# The same error can come out of one state: an optimizer that keeps a reference to the first
# parameters (elastic averaging, L2-SP) and gets them beside the state. `shared` finds it: it
# takes any tree, so give it all arguments of the call.

# %% tags=["claim"]
params = numbers(4)
arguments = ({"params": params, "step": jnp.int32(0)}, {"reference": params})
print(shared(arguments))
assert shared(arguments) == [["[0]['params']", "[1]['reference']"]]

# %% [markdown]
# 💡 **Within one call a buffer is either donated or used.**

# %% [markdown]
# ## 6.8 The training step
#
# Everything so far fits into one template. It is the one that the capstone trains with, so here
# is its source, in full. What changes from step to step is in one dataclass, the state; what does
# not (the optimizer) is a static field of it.

# %% tags=["given"]
Loss = Callable[..., Array]


# quote: helpers.training.TrainState


# quote: helpers.training.init_state


# %% [markdown]
# The step itself is pure and not jitted, so that it can also be the body of a `scan`. What the
# optimizer does with a gradient is a function of its own, for whoever has one already. The jit
# around them donates the state, and nothing but the state.

# %% tags=["given"]
# quote: helpers.training.descend


# quote: helpers.training.step


# quote: helpers.training.train_step


# %% [markdown]
# Twenty steps of momentum on a linear model, with targets that it can fit. What must hold? One
# compilation, whatever the batch holds. Every buffer of the first state is in use at the end. The
# batch is alive, and there is not one byte more in memory. And the numbers are those of NumPy in
# float64.


# %% tags=["given"]
def squared_error(params, x, y):
    """Mean of (x @ w + b − y)². x: (n, d), y: (n,)."""
    return jnp.mean((x @ params["w"] + params["b"] - y) ** 2)


def momentum_by_numpy(w, b, x, y, steps, rate=0.1, decay=0.9):
    """The losses before each step; all is float64, for w is."""
    slope_w, slope_b, losses = 0.0, 0.0, []
    for _ in range(steps):
        error = x @ w + b - y
        losses.append(np.mean(error**2))
        slope_w = decay * slope_w + 2 * error @ x / len(y)
        slope_b = decay * slope_b + 2 * np.mean(error)
        w, b = w - rate * slope_w, b - rate * slope_b
    return losses


# %% tags=["claim"]
rng = np.random.default_rng(0)
x = rng.standard_normal((32, 8)).astype(np.float32)
y = (x @ np.linspace(-1, 1, 8) + 0.5).astype(np.float32)
batch = (jnp.array(x), jnp.array(y))
first_params = {"w": jnp.ones(8), "b": jnp.zeros(())}
state = init_state(first_params, sgd(0.1, momentum=0.9))
at_first, bytes_at_first = addresses(state), live_bytes()

losses = []
with CompileBudget(1, only="train_step"):
    for _ in range(20):
        state, loss = train_step(squared_error, state, *batch)
        losses.append(loss)

print(f"20 steps, {int(state.step)} counted, loss {losses[0]:.2f} to {losses[-1]:.2f}")
print("buffers of the first state in use:", sorted(addresses(state)) == sorted(at_first))
assert sorted(addresses(state)) == sorted(at_first)
assert not any(deleted(batch))
assert live_bytes() - bytes_at_first == size(losses) == 20 * 4
assert (state.step, state.step.dtype) == (20, jnp.int32)
assert_close(losses, momentum_by_numpy(np.ones(8), 0.0, x, y, steps=20), rtol=1e-3, atol=1e-5)

# %% [markdown]
# What is new in memory after twenty steps are the twenty losses, four bytes each. They are
# results that nobody donates, so a list of them is fine.
#
# ❌ Two traps are in the template, both on purpose, and both in its documentation. `init_state`
# takes the parameters over: they are gone after the first step. Copy them beforehand if you need
# them. And the optimizer is compared by identity: a second `sgd(0.1)` is another one, and another
# program. What costs no program is a weakly typed parameter, such as `jnp.asarray(0.0)`:
# `init_state` makes an ordinary one of it, or the second step would be compiled anew.

# %% tags=["claim"]
print("the params that init_state was given are deleted:", deleted(first_params))
assert deleted(first_params) == [True, True]

state = init_state({"w": jnp.zeros(8), "b": jnp.asarray(0.0)}, sgd(0.1, momentum=0.9))
with CompileCounter(only="train_step") as counter:
    for _ in range(2):
        state, _ = train_step(squared_error, state, *batch)
print("another optimizer, as good as the first:", counter.count, "more compiled")
assert counter.count == 1

# %% [markdown]
# 💡 **One jit around the whole step. It donates the state and returns the next one: every leaf in,
# every leaf out, same shape, same dtype.**

# %% [markdown] exercise="6.2"
# Write `momentum_step(state, x, y, rate)`. It returns the next state and the loss.
#
# - `state` is `{"params": {"w": …, "b": …}, "step": …, "trace": {"w": …, "b": …}}` with `w` of
#   shape (d,), `b` and `step` scalars; all are JAX arrays, and the returned state has the same
#   form. `x` (n, d) and `y` (n,) are float32 JAX arrays, `rate` is an `np.float32`, another one
#   at each step.
# - The loss is the mean of `(x @ w + b - y) ** 2`, *before* the params move. Then
#   `trace ← 0.9 · trace + slope` and `params ← params − rate · trace` (the new one).
# - If any entry of any slope is NaN or infinite, no parameter and no trace moves. `step` goes up by
#   one in any case. (Slopes may be computed in float32 or in the dtype of their leaf, where one of
#   float16 overflows at 65,504; in the check's cases both are finite, or neither is.)
# - Every leaf of the state that comes in is donated, and its buffer reused. Every leaf keeps its
#   dtype: `w`, `b` and their traces may be float32 or float16, while batch and rate are float32.
# - The batch stays alive, JAX warns of nothing, and all rates share one compilation.


# %% tags=["starter"] exercise="6.2"
def momentum_step(state, x, y, rate):
    """One step of momentum. Returns the next state, and the loss before it."""
    ### BEGIN SOLUTION
    return _momentum_step(state, x, y, rate)


@partial(jax.jit, donate_argnums=0)
def _momentum_step(state, x, y, rate):
    loss, slopes = jax.value_and_grad(squared_error)(state["params"], x, y)
    good = jax.tree.reduce(jnp.logical_and, jax.tree.map(lambda g: jnp.isfinite(g).all(), slopes))

    def keep_or(new, old):
        return jnp.where(good, new, old).astype(old.dtype)

    trace = jax.tree.map(lambda t, g: keep_or(0.9 * t + g, t), state["trace"], slopes)
    params = jax.tree.map(lambda p, t: keep_or(p - rate * t, p), state["params"], trace)
    return {"params": params, "step": state["step"] + 1, "trace": trace}, loss
    ### END SOLUTION


# %% [markdown]
# ## 6.9 A history of references
#
# The fourth mistake looks harmless and runs for hours. Somebody wants to plot how the parameters
# moved, or to keep the best ones:

# %% tags=["claim"]
state, history = numbers(4), []
for _ in range(10):
    history.append(state)
    state = donating(state)

readable = deleted(history).count(False)
print(f"{len(history)} states kept, {readable} readable")
show_error(lambda: np.stack(history), expect=RuntimeError, contains="Array has been deleted")
assert (len(history), readable) == (10, 0)

# %% [markdown]
# ❌ The list holds ten handles on buffers that were given away, one after the other; the error
# comes at the end of the run, in the plot. `best = state` is the same mistake with a single
# handle. So are a default argument, a closure and, in a notebook, the variable `Out`, in which
# IPython keeps what a cell's last line was.
#
# Taking donation away makes the list readable, and expensive: now each entry is a whole copy of
# the state. ✅ Keep donating, and copy what you want to keep, when you want to keep it. Here are
# three runs of twelve steps on a state of 4 MiB. They keep every state by reference without
# donation, every state by reference with donation, and a copy of every fourth.


# %% tags=["given"]
def train_and_keep(program, keep, steps=12):
    """Runs the steps; returns what was kept, and the memory taken before each step, in states."""
    before = live_bytes()
    state, kept, taken = numbers(2**20), [], []
    for step in range(steps):
        keep(kept, step, state)
        taken.append((live_bytes() - before) / state.nbytes)
        state = program(state)
    return kept, taken


def keep_reference(kept, step, state):
    kept.append(state)


def keep_every_fourth(kept, step, state):
    if step % 4 == 0:
        kept.append(jnp.copy(state))


# %% tags=["claim"]
runs = {}
for name, program, keep in (
    ("references, not donated", plain, keep_reference),
    ("references, donated", donating, keep_reference),
    ("copies of every fourth", donating, keep_every_fourth),
):
    kept, runs[name] = train_and_keep(program, keep)
    readable = deleted(kept).count(False)
    print(f"{name:24} {readable:2} readable, {runs[name][-1]:2.0f} states in memory")
    assert {each.nbytes for each in kept} == {4 * 2**20}
    del kept

assert list(runs.values()) == [[*range(1, 13)], [1] * 12, [2] * 4 + [3] * 4 + [4] * 4]

# %% tags=["figure"]
fig, ax = figure(
    "A list of states costs memory, or holds nothing", "step", "memory (copies of the state)"
)
for (name, taken), color in zip(
    runs.items(), (COLORS.wrong, COLORS.fourth, COLORS.right), strict=True
):
    (drawn,) = ax.step(range(1, 13), taken, where="post", color=color)
    label_line(drawn, name)
ax.set_xticks([1, 4, 8, 12])
ax.set_ylim(0, 12.5)
describe(
    fig,
    "Memory over twelve steps. References without donation grow by one state a step; references "
    "with donation stay at one state, and none can be read; copies of every fourth reach four.",
)

# %% [markdown]
# 💡 **A name is not a copy. What shall outlive the next step is copied before it.**

# %% [markdown]
# ## 6.10 Views that block in silence
#
# The opposite of a dead reference is a view that is too much alive. `np.asarray(x)` on a CPU
# copies nothing: it looks at JAX's buffer through NumPy's eyes. Whether it does here, a probe can
# tell:

# %% tags=["claim"]
x = numbers()
looks_in = np.asarray(x).ctypes.data == addresses(x)[0]
print("np.asarray looks into the buffer:", looks_in)
assert looks_in or not on_cpu

# %% [markdown]
# What should JAX do when you donate a buffer that NumPy is looking at? If it were overwritten,
# numbers that you hold would change under your hands. So it is not. ❌ The step copies, the
# argument stays alive, and there is no error and no warning: everything is right, and half of the
# memory is gone, and with it the speed of §6.3.

# %% tags=["claim"]
x = numbers()
before = addresses(x)
view = np.asarray(x)
y = donating(x)

reused = addresses(y) == before
print("reused while a view lives:", reused, " the view still reads:", view[:3])
assert_equal(view, np.arange(1024))
assert_equal(y, 0.5 * np.arange(1024) + 1)
if looks_in:
    assert not reused
    assert deleted(x) == [False]

# %% [markdown]
# Who looks into a buffer? The obvious ones, and whoever calls them for you: a progress bar that
# formats the loss, a logger, a `repr`. Some let go when their result is dropped. What each does
# differs between versions of JAX, so it is measured here, on yours; asserted is only what holds
# on all of them.


# %% tags=["given"]
def donated_after(peek, x, keep):
    """Whether a step still reuses the buffer of x after `peek(x)`, its result kept or dropped."""
    seen = peek(x)
    if not keep:
        del seen
    donating(x)
    return deleted(x)[0]


peeks = {
    "np.asarray(x)": np.asarray,
    "jax.device_get(x)": jax.device_get,
    "np.from_dlpack(x)": np.from_dlpack,
    "repr(x)": repr,
    "x.tolist()": lambda x: x.tolist(),
    "float(x.sum())": lambda x: float(x.sum()),
    "np.asarray(x).copy()": lambda x: np.asarray(x).copy(),
    "np.array(x)": np.array,
    "np.array(x), bfloat16": np.array,
    "jnp.copy(x)": jnp.copy,
}

# %% tags=["claim", "nbval-ignore-output"]
fates = {}
for what, peek in peeks.items():
    if what == "np.from_dlpack(x)" and not on_cpu:
        continue  # NumPy reads a CPU's memory only
    dtype = jnp.bfloat16 if "bfloat16" in what else jnp.float32
    fates[what] = [donated_after(peek, numbers().astype(dtype), keep) for keep in (True, False)]
    words = ["reused" if free else "blocked" for free in fates[what]]
    print(f"JAX {jax.__version__}: {what:22} result kept: {words[0]:8} dropped: {words[1]}")

assert fates["jnp.copy(x)"] == fates["np.array(x)"] == [True, True]
if looks_in:
    assert not fates["np.asarray(x)"][0]
if looks_in and jax.__version__ == "0.11.2":
    for what in ("repr(x)", "x.tolist()", "np.array(x), bfloat16"):
        assert fates[what] == [False, False]
if jax.__version__.startswith(("0.10.2", "0.12.0")):
    assert all(dropped for _, dropped in fates.values())

# %% tags=["figure"]
fig, ax = figure(
    "Views block a donation, jnp.copy never does"
    if looks_in
    else "Where NumPy can't look in, nothing blocks a donation",
    "what was done to x before the step, and its result",
    "",
    size=(6.4, 3.6),
)
for place, (what, free) in enumerate(reversed(fates.items())):
    for column, reused in enumerate(free):
        color, marker = (COLORS.right, "o") if reused else (COLORS.wrong, "X")
        ax.plot(column, place, marker, color=color, markersize=11)
        ax.annotate(
            "reused" if reused else "blocked", (column + 0.07, place), color=color, va="center"
        )
ax.set_yticks(range(len(fates)), list(reversed(fates)), family="monospace")
ax.set_xticks([0, 1], ["while its result is kept", "after it was dropped"])
ax.set_xlim(-0.3, 1.6)
ax.tick_params(length=0)
assert all(fates["jnp.copy(x)"])
describe(
    fig,
    "For ten ways to look at an array: whether the next step reuses its buffer while the result "
    "of the look is kept, and after it was dropped. Copies leave it free in both cases.",
)

# %% [markdown]
# On JAX 0.10.2 and 0.12.0 only a view that is kept blocks. What follows is 0.11.2: there a look is
# remembered in the array itself. After a single `print(x)`, `x.tolist()` or, for a scalar,
# `float(x)`, the buffer is blocked for as long as the array lives, although nobody holds anything.
# Even `np.array(x)` does it there to a bfloat16 array: NumPy has no such dtype, and asks JAX to
# convert. So `np.array` answers exercise 6.3 on the other versions, and not on that one.
#
# ✅ `jnp.copy(x)` copies, on all of them and for all dtypes, and leaves the array free. If you
# want NumPy, make it of the copy: `np.array(jnp.copy(x))`. (What you only *compute* from an
# array, such as `x.sum()`, was never a view.)

# %% tags=["claim"]
x = numbers()
before = addresses(x)
kept = np.array(jnp.copy(x))
y = donating(x)

print("reused after a copy:", addresses(y) == before, " the copy still reads:", kept[:3])
assert addresses(y) == before
assert_equal(kept, np.arange(1024))

# %% [markdown]
# It works the other way round, too: `jax.device_put` of a NumPy array takes over *NumPy's* memory
# where it can, which on a CPU is a matter of alignment. A step that donates such an array must
# not write there, for you still have the NumPy array. It deletes what it was given, and writes
# its result elsewhere; this is why the proof of §6.2 compares addresses, too. `jnp.array` always
# copies.


# %% tags=["given"]
def aligned(n):
    """0, 1, … in float32, in NumPy memory that starts at a multiple of 64 bytes."""
    raw = np.empty(4 * n + 64, np.uint8)
    start = -raw.ctypes.data % 64
    array = raw[start : start + 4 * n].view(np.float32)
    array[:] = np.arange(n)
    return array


# %% tags=["claim"]
mine = aligned(1000)
assert mine.ctypes.data % 64 == 0
for make in (jax.device_put, jnp.array):
    x = make(mine)
    taken_over = mine.ctypes.data in addresses(x)
    before = addresses(x)
    y = donating(x)
    gone, reused = deleted(x)[0], addresses(y) == before
    print(
        f"{make.__name__:10} in NumPy's memory: {taken_over!s:5}  deleted: {gone}  reused: {reused}"
    )
    assert reused != taken_over
    assert not taken_over or make is jax.device_put
assert_equal(mine, np.arange(1000))

# %% [markdown]
# 💡 **Look at a state that will be donated through a copy: `jnp.copy` first, NumPy second.**

# %% [markdown] exercise="6.3"
# Write `snapshot(state)`: a copy of the whole state, to be looked at later.
#
# - `state` is any pytree of JAX arrays: dicts, lists, tuples, `None`; there are scalars among the
#   leaves, and float32, bfloat16, float16 and int32. The snapshot has the same structure, and
#   each leaf the same shape and dtype. Its leaves may be NumPy or JAX arrays.
# - Several snapshots are taken, each before another step that donates the state. All can be read
#   after the last step, and each reads as the state did when it was taken.
# - Each of those steps reuses every buffer of the state, although all snapshots are kept.


# %% tags=["starter"] exercise="6.3"
def snapshot(state):
    """A copy of the state that later steps leave alone, and that leaves them alone."""
    ### BEGIN SOLUTION
    return jax.tree.map(jnp.copy, state)
    ### END SOLUTION


# %% [markdown]
# ## 6.11 A cache that is written in place
#
# A language model keeps keys and values of all tokens that it has read, and adds one row for each
# new token. ❌ Written as it is thought, the **KV cache** grows:


# %% tags=["claim"]
@jax.jit
def grow(cache, row):
    """The cache with one row more. cache: (n, 64), row: (64,)."""
    return jnp.concatenate([cache, row[None]])


cache = jnp.zeros((8, 64))
with CompileCounter(only="grow") as counter:
    for _ in range(5):
        cache = grow(cache, row)
print(f"5 tokens: {counter.count} programs, shape {cache.shape}")
assert counter.count == 5

# %% [markdown]
# Each token has another shape, so each compiles, and none can lie where the last one lay: its
# buffer is one row too short. ✅ Make the cache as large as it will ever be, write at a position,
# and donate it. The position is an array, not a static number; then one program serves all of
# them.


# %% tags=["claim"]
@partial(jax.jit, donate_argnums=0)
def write(cache, row, place):
    """The cache with its row number `place` replaced."""
    return jax.lax.dynamic_update_slice_in_dim(cache, row[None], place, axis=0)


cache = jnp.zeros((16, 64))
before = addresses(cache)
with CompileBudget(1, only="write"):
    for place in range(5):
        cache = write(cache, row * place, np.int32(place))

print("5 tokens: 1 program, in the same place:", addresses(cache) == before)
assert addresses(cache) == before
assert_equal(cache[:, 0], np.where(np.arange(16) < 5, np.arange(16), 0))

# %% [markdown]
# Two things happen at the end of the buffer, and neither is an error. A slice that would stick
# out is **clamped**: `dynamic_update_slice` moves it back until it fits, over rows that you did
# not mean. And `.at[index].set` **drops** what it has no row for. Neither wraps around; if you
# want a ring, compute the slot of each row.

# %% tags=["claim"]
four = jnp.zeros(4)
two = jnp.array([1.0, 2.0])
clamped = jax.lax.dynamic_update_slice_in_dim(four, two, 3, axis=0)
dropped = four.at[jnp.array([3, 4])].set(two)

print("two numbers from place 3 on, of 4 places")
print("dynamic_update_slice:", np.array(clamped))
print(".at[…].set:          ", np.array(dropped))
assert_equal(clamped, [0, 0, 1, 2])
assert_equal(dropped, [0, 0, 0, 1])

# %% [markdown]
# One question is left: a donated argument and its result share a buffer, but does the program in
# between work in place? ❌ Not if it moves everything. A window that shifts its rows by one
# donates as properly as the ring does, and puts a whole copy on the side. `temp_size_in_bytes`
# shows it:


# %% tags=["claim"]
def shift(cache, row, place):
    """The cache without its first row, and with a new last one."""
    return jnp.roll(cache, -1, axis=0).at[-1].set(row)


for fn in (write_row, shift):
    program = jax.jit(fn, donate_argnums=0)
    memory = program.lower(cache, row, np.int32(0)).compile().memory_analysis()
    in_place = memory.temp_size_in_bytes < cache.nbytes / 2
    shares = memory.alias_size_in_bytes == cache.nbytes
    print(f"{fn.__name__:9} shares the buffer: {shares}  works in place: {in_place}")
    assert shares
    assert in_place == (fn is write_row) or not on_cpu

# %% [markdown]
# 💡 **Donation gives a program the right to work in place. Write few rows, at a computed place,
# and it does.**

# %% [markdown] exercise="6.4"
# Write `append(cache, k, v)` for a cache that forgets its oldest rows.
#
# - `cache` is `{"k": …, "v": …, "count": …}`: two JAX arrays of shape (length, width), float32,
#   and an int32 scalar, the number of rows that were ever written. `k` and `v` are NumPy arrays
#   of shape (rows, width), 1 ≤ rows ≤ length.
# - Row number n (counted from 0 over all appends) goes into slot n mod length; all other slots
#   stay as they are. `append` returns the new cache, its count increased by rows.
# - The cache is donated, and every buffer of it is reused.
# - It compiles once for each number of rows, wherever they go.
# - It can be traced: the check also calls it inside a `jax.jit` of its own, and looks at the
#   temporary memory of that program. It must stay below half the size of `cache["k"]`.


# %% tags=["starter"] exercise="6.4"
def append(cache, k, v):
    """The cache with the rows of k and v in the next slots of its ring."""
    ### BEGIN SOLUTION
    return _append(cache, k, v)


@partial(jax.jit, donate_argnums=0)
def _append(cache, k, v):
    slots = (cache["count"] + jnp.arange(len(k))) % len(cache["k"])
    return {
        "k": cache["k"].at[slots].set(k),
        "v": cache["v"].at[slots].set(v),
        "count": cache["count"] + len(k),
    }
    ### END SOLUTION


# %% [markdown]
# ## 6.12 What must not be donated
#
# Fine-tuning trains a small head on a large body that stays as it is. Where does the body go?
#
# ❌ **Into the state**, because "the model" is one thing. Donated, it is gone for everybody else:
# a second run can't start from it. Not donated, it is copied out at every step, because what
# comes out of a jit has a buffer of its own (§6.6), and that is so for an argument that was only
# passed through, too.


# %% tags=["claim"]
def pass_through(state, body):
    """A step on the state; the body comes back as it was."""
    return decay(state), body


body = numbers(2**18)
for donated, expected in (((0, 1), "deleted"), ((0,), "copied")):
    program = jax.jit(pass_through, donate_argnums=donated)
    state, returned = program(numbers(8), given_body := jnp.copy(body))
    found = "deleted" if deleted(given_body)[0] else "copied"
    print(f"donated {donated!s:7} the body that was passed in is {found}")
    assert found == expected
    assert found == "deleted" or addresses(returned) != addresses(given_body)

# %% [markdown]
# ❌ **Into the program**, by reading it from outside. Then its numbers are constants, and another
# body is another program.


# %% tags=["claim"]
def head_on(body):
    """A jitted step that reads the body from outside."""
    return jax.jit(lambda head: head - 0.1 * head * jnp.mean(body), donate_argnums=0)


with CompileCounter() as counter:
    for fill in (1.0, 2.0, 3.0):
        head_on(np.full(8, fill, np.float32))(numbers(8))
print(f"3 bodies, {counter.count_of('<lambda>')} programs")
assert counter.count_of("<lambda>") == 3

# %% [markdown]
# ✅ **Beside the state**: an argument that is neither donated nor returned. It is read where it
# lies. Any number of runs can share it, and each holds no more than its own head. The gradient is
# taken with respect to the head alone, so there is no gradient of the body to store either.


# %% tags=["claim"]
@partial(jax.jit, donate_argnums=0)
def head_step(head, body):
    """One step on the head; the body is only read."""
    return head - 0.1 * head * jnp.mean(body)


heads = [numbers(8), numbers(8)]
place, before = addresses(body), live_bytes()
with CompileBudget(1, only="head_step"):
    for _ in range(3):
        heads = [head_step(head, body) for head in heads]

print("two runs, one body: alive", not deleted(body)[0], " more bytes:", live_bytes() - before)
assert (addresses(body), deleted(body), live_bytes()) == (place, [False], before)
scale = (1 - 0.1 * np.mean(np.arange(2**18, dtype=np.float64))) ** 3
assert_close(heads[1], scale * np.arange(8), rtol=1e-4)

# %% [markdown]
# So a step has three kinds of arguments. What it changes goes into the state, and is donated.
# What it only reads (frozen layers, batch, reference) stands beside it. What never changes and is
# no array (the optimizer, the loss) is static.
#
# The split also settles who owns what. The state was copied when the run began, for the
# pretrained head will be needed by the next run; the body was not, for nobody will ever write to
# it.
#
# 💡 **Donate what comes back changed. What is only read stays outside the state, and exists
# once.**

# %% [markdown] exercise="6.5"
# Write two functions for a pretrained model `params`, which is
# `{"body": {"w": (d, h), "b": (h,)}, "head": {"w": (h,), "b": ()}}`, all float32 JAX arrays. It
# predicts `tanh(x @ body_w + body_b) @ head_w + head_b`.
#
# - `start(params)` returns `(state, frozen)`. `state["head"]` is the head that is trained, of the
#   same form as `params["head"]`; what else the state holds is yours, up to the size of a head
#   and 16 bytes more. `frozen` is what the step reads, in any form you like.
# - `finetune_step(state, frozen, x, y)` returns the next state and the loss, the mean squared
#   error of the prediction on x (n, d) and y (n,), before the step. Then, for the head alone,
#   `trace ← 0.9 · trace + slope` from a trace of zeros, and `head ← head − 0.1 · trace`.
# - Several trainings start from one `params`, which stay alive and unchanged. The frozen layers
#   exist once: no copy of them is made, and none is in the state.
# - Each step reuses every buffer of the state; nothing else is donated.
# - The check starts all trainings and then lets them take turns, step by step. After the very
#   first step nothing compiles any more, not even for another body.


# %% tags=["starter"] exercise="6.5"
def start(params):
    """(state, frozen) of a new fine-tuning."""
    ### BEGIN SOLUTION
    head = jax.tree.map(jnp.copy, params["head"])
    return {"head": head, "trace": jax.tree.map(jnp.zeros_like, head)}, params["body"]
    ### END SOLUTION


def finetune_step(state, frozen, x, y):
    """One step on the head. Returns the next state, and the loss before it."""
    ### BEGIN SOLUTION
    return _finetune_step(state, frozen, x, y)


@partial(jax.jit, donate_argnums=0)
def _finetune_step(state, frozen, x, y):
    def loss(head):
        hidden = jnp.tanh(x @ frozen["w"] + frozen["b"])
        return jnp.mean((hidden @ head["w"] + head["b"] - y) ** 2)

    value, slopes = jax.value_and_grad(loss)(state["head"])
    trace = jax.tree.map(lambda t, g: 0.9 * t + g, state["trace"], slopes)
    head = jax.tree.map(lambda p, t: p - 0.1 * t, state["head"], trace)
    return {"head": head, "trace": trace}, value
    ### END SOLUTION


# %% [markdown]
# ## 6.13 What your version does
#
# Some of this changes from one JAX to the next, and between a CPU and a GPU. The table below is
# measured when you run it. It asserts only what the chapter relies on.


# %% tags=["given"]
def class_raised(run):
    """The class of the error that `run()` raises; what XLA writes to stderr is dropped."""
    try:
        with captured_stderr():
            run()
    except Exception as error:
        return type(error).__name__
    return "no error"


def donates(debugging):
    """Whether a program donates that is compiled with or without `jax.debug_nans`."""
    x = numbers()
    with jax.debug_nans(debugging):
        jax.jit(lambda x: decay(x), donate_argnums=0)(x)
    return deleted(x)[0]


def blocked_by(peek):
    """Whether a scalar is blocked by a look at it of which nothing was kept."""
    x = jnp.zeros(())
    peek(x)
    donating(x)
    return not deleted(x)[0]


# %% tags=["claim", "nbval-ignore-output"]
both = jax.jit(lambda x, y: (x + 1, y + 2), donate_argnums=(0, 1))
donating(x := numbers())
y = numbers()
int_of = jax.jit(lambda x: x.astype(jnp.int32), donate_argnums=0)
int_of(as_float := numbers())
facts = {
    "JAX, device": f"{jax.__version__}, {jax.default_backend()}",
    "a donated array passed again": class_raised(lambda: donating(x)),
    "one buffer donated twice": class_raised(lambda: both(y, y)),
    "np.asarray looks into the buffer": looks_in,
    "float(scalar) blocks it for good": blocked_by(float),
    "repr(scalar) blocks it for good": blocked_by(repr),
    "a float32 buffer serves for int32": deleted(as_float)[0],
    "donates under jax.debug_nans": donates(debugging=True),
}
for what, found in facts.items():
    print(f"{what:34} {found}")
assert donates(debugging=False) and not facts["donates under jax.debug_nans"]
assert not blocked_by(lambda x: None)
assert facts["a donated array passed again"] in ("RuntimeError", "ValueError", "JaxRuntimeError")
assert refusal(lambda: donating(x)) == AFTER and refusal(lambda: both(y, y)) == TWICE
if looks_in and jax.__version__ == "0.11.2":
    assert facts["float(scalar) blocks it for good"] and facts["repr(scalar) blocks it for good"]

# %% [markdown]
# The last line deserves a word. To say where a NaN came from, `jax.debug_nans` runs a step again,
# operation by operation, and for that it needs the arguments. So programs that are compiled under
# it do not donate: debugging takes the memory back that donation had saved, and a model that only
# just fits will not fit.
#
# 💡 **Match the text of these errors, never their class.**

# %% [markdown]
# ## 6.14 What to keep
#
# 💡 **One jit around the step, the state donated and returned, bound to the same name.** Every
# leaf has a buffer of its own, and comes back with the same shape and dtype.
#
# 💡 **A name is not a copy, and a view is not one either.** What shall outlive a step is copied by
# `jnp.copy` before it.
#
# 💡 **Prove it: `deleted(state)` and equal `addresses`, in a test.** What blocks a donation says
# nothing, and no warning is no proof.
#
# ### 🧪 Quiz
#
# Put a letter in place of the dots and run the cell. The answers are measured on your machine.

# %% tags=["quiz"] question="6.a"

# %% tags=["quiz"] question="6.b"

# %% tags=["quiz"] question="6.c"

# %% tags=["quiz"] question="6.d"

# %% tags=["quiz"] question="6.e"

# %% tags=["quiz"] question="6.f"

# %% tags=["quiz"] question="6.g"

# %% tags=["quiz"] question="6.h"

# %% [markdown]
# ### Cheat sheet
#
# | to | write |
# |---|---|
# | donate by place, by name | `jax.jit(step, donate_argnums=0)`, `donate_argnames="state"` |
# | see the wish | `"tf.aliasing_output" in step.lower(…).as_text()` |
# | see the plan | `step.lower(…).compile().memory_analysis().alias_size_in_bytes` |
# | see what lies on the side | `….memory_analysis().temp_size_in_bytes` |
# | see the fact | `x.is_deleted()`, `x.unsafe_buffer_pointer()` |
# | see it for a tree | `deleted(tree)`, `addresses(tree)` of `helpers.buffers` |
# | find leaves that share a buffer | `shared((state, *other_arguments))` |
# | know which rule was broken | `refusal(lambda: step(state))` |
# | copy | `jnp.copy(x)`, `jnp.array(x)`; to NumPy `np.array(jnp.copy(x))` |
# | *not* copy | `jnp.asarray`, `jax.device_put`, `x[...]`; on a CPU `np.asarray`, `device_get` |
# | keep a dtype | `(p - rate * g).astype(p.dtype)` |
# | undo a step | decide inside: `jnp.where(good, new, old)` |
# | write one row | `jax.lax.dynamic_update_slice_in_dim(buffer, row[None], place, axis=0)` |
# | count what is alive | `live_bytes()`, `jax.live_arrays()` |
# | let go of a buffer by hand | `x.delete()` |
