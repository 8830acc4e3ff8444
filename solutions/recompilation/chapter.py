# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # 01 · Recompilation
#
# A jitted function is fast from its second call on. The first call compiles, and so does every
# call that JAX takes for a first one. This chapter is about the second kind: the training step
# that stalls whenever a short batch comes by, the server that is slow for its first hundred
# customers, the notebook that gets slower the longer it runs. None of them raises an error. They
# only wait.
#
# Afterwards you can
#
# - say before a call whether it will compile, and prove it with a count;
# - find the argument that made a program compile again;
# - serve any batch size with a handful of programs, and get the numbers that you would get
#   without padding;
# - give your code a budget of compilations, which a test or a running job enforces;
# - start a server that has everything compiled before the first request.
#
# Reading and running takes about an hour, the five exercises another hour and a half. You need
# `jax.jit` and a little NumPy. Every statement with a number in it is asserted in a cell beside
# it, on your machine, when you run it.
#
# | mark | means |
# |---|---|
# | ❌ | a mistake, and what it costs |
# | ✅ | the way to do it, and the proof |
# | ✍️ | your turn |
# | 🧪 | a check, or a question of the quiz |
# | 💡 | a rule to keep |

# %% tags=["setup"]
import os
import re
import tempfile
import time
import warnings
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, Self

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.compilation_cache import compilation_cache

from helpers import (
    COLORS,
    CompileBudget,
    CompileBudgetExceeded,
    CompileCounter,
    TraceCounter,
    assert_close,
    captured_logs,
    check,
    compile_budget,
    count_compiles,
    describe,
    figure,
    label_line,
    quiz,
    show_error,
    stable,
)

# %% [markdown]
# ## 1.1 Twenty batch sizes, twenty programs
#
# The last batch of an epoch is short. So are many batches of a loader that groups sentences by
# their length, and most of the requests that a server gets at night. The function below could not
# care less: it scores each row by itself, for any number of rows.

# %% tags=["given"]
weights = np.random.default_rng(0).standard_normal(8).astype(np.float32)


def score(weights, x):
    """A score for each row. weights: (d,), x: (n, d); returns (n,)."""
    return jnp.tanh(x @ weights)


def requests(sizes):
    """One float32 array of shape (n, 8) for each size n."""
    rng = np.random.default_rng(1)
    return [rng.standard_normal((n, 8)).astype(np.float32) for n in sizes]


# %% [markdown]
# `jax.jit` cares a great deal. Here are twenty requests of one size, then twenty of all sizes
# from 1 to 20. `CompileCounter` listens to the event with which JAX announces each compilation;
# what it is made of comes in §1.4.

# %% tags=["claim"]
jitted = jax.jit(score)

with CompileCounter() as one_size:
    for batch in requests([32] * 20):
        jitted(weights, batch)
with CompileCounter() as all_sizes:
    for batch in requests(range(1, 21)):
        jitted(weights, batch)

print(f"20 requests of one size:    {one_size.count:2} compiled")
print(f"20 requests of 20 sizes:    {all_sizes.count:2} compiled")
assert one_size.count == 1
assert all_sizes.count == 20

# %% [markdown]
# XLA builds a program for exact shapes. It lays out memory, picks loop bounds and fuses
# operations for *these* numbers of rows and columns, and that is where the speed comes from. A
# program for 19 rows is of no use for 20.
#
# What does it cost? The two streams again, on fresh functions, with a clock. A call that compiles
# takes at least 20 times as long as one that does not; often it is thousands of times.


# %% tags=["given"]
def milliseconds(fn, batches):
    """How long `fn` takes for each batch, until the result is there; compilation included."""
    times = []
    for batch in batches:
        start = time.perf_counter()
        jax.block_until_ready(fn(batch))
        times.append(1e3 * (time.perf_counter() - start))
    return times


# %% tags=["claim", "nbval-ignore-output"]
begin = time.perf_counter()
steady = milliseconds(jax.jit(lambda x: score(weights, x)), requests([32] * 20))
ragged = milliseconds(jax.jit(lambda x: score(weights, x)), requests(range(1, 21)))
elapsed = 1e3 * (time.perf_counter() - begin)

ratio = np.median(ragged) / np.median(steady)
print(f"one size: {np.median(steady):7.3f} ms a call, after the first of {steady[0]:.0f} ms")
print(f"20 sizes: {np.median(ragged):7.3f} ms a call, {ratio:.0f} times as long")
assert ratio > 20
assert sum(steady) + sum(ragged) <= elapsed

# %% tags=["figure", "nbval-ignore-output"]
fig, ax = figure("Every new batch size waits for a compiler", "request", "time (ms, log scale)")
calls = np.arange(1, 21)
(bad,) = ax.semilogy(calls, ragged, "o-", color=COLORS.wrong)
(good,) = ax.semilogy(calls, steady, "o-", color=COLORS.right)
label_line(bad, "20 sizes")
label_line(good, "one size")
ax.set_xticks([1, 5, 10, 15, 20])
describe(
    fig,
    "Time of twenty requests. With one size only the first is slow; with twenty sizes all of them "
    "are as slow as that first one.",
)

# %% [markdown]
# The function above compiles in a fraction of a second. A real model takes seconds to minutes,
# and with a loader that yields a few hundred distinct lengths it spends its first epoch in the
# compiler.
#
# 💡 **A jitted function is as many programs as it has seen shapes.**

# %% [markdown]
# ## 1.2 What a call is looked up by
#
# If you could see the key under which JAX files a program, you would never have to guess. Most of
# it can be written down. When a jitted function is called, JAX looks at
#
# 1. the **function**: the object that was given to `jax.jit`, not its source text;
# 2. the **static arguments**, by equality; equal ones must have equal hashes (§1.7);
# 3. the **structure** of everything else: how the arguments are nested in tuples, lists and
#    dicts, and which of them were passed by name;
# 4. the **type of each leaf**: its shape, its dtype, and whether it is *weakly* typed;
# 5. where the arrays **live**: device, sharding, and whether they were put there on purpose;
# 6. the **configuration** that changes what a program computes, such as 64-bit mode.
#
# Together they are the **cache key**. If a program is filed under it, the program runs. If not,
# three things happen: the Python body runs once with placeholders in place of arrays
# (**tracing**), what it did is written down for XLA (**lowering**), and XLA turns that into
# machine code (**compiling**). The numbers in the arrays appear nowhere in the list.
#
# The structure and the types are what the arguments add to the key. A function can compute them:

# %% tags=["given"]
vector = np.arange(8, dtype=np.float32)


def key_of(*args, **kwargs):
    """What the arguments of a call add to its cache key: their structure, and each leaf's type."""
    leaves, structure = jax.tree.flatten((args, kwargs))
    return structure, [(t.shape, t.dtype, t.weak_type) for t in map(jax.typeof, leaves)]


# %% [markdown]
# A **weakly typed** number is one whose precision nobody chose: a Python `2.0` takes on the dtype
# of whatever it meets. On its own it is a float32, but JAX remembers the difference, and prints
# it as a tilde.

# %% tags=["claim"]
print("2.0             is", jax.typeof(2.0))
print("np.float32(2.0) is", jax.typeof(np.float32(2.0)))

assert jax.typeof(2.0).dtype == jax.typeof(np.float32(2.0)).dtype
assert jax.typeof(2.0).weak_type and not jax.typeof(np.float32(2.0)).weak_type
assert (jnp.float16(1) * 2.0).dtype == jnp.float16
assert (jnp.float16(1) * np.float32(2.0)).dtype == jnp.float32

# %% [markdown]
# If `key_of` is right, it predicts compilations. Each row below calls a fresh function twice, and
# compares what the two keys say with what the second call does.

# %% tags=["claim"]
second_calls = {
    "other numbers": (vector + 1, 3.0),
    "a JAX array": (jnp.asarray(vector), 2.0),
    "another shape": (vector[:4], 2.0),
    "another dtype": (vector.astype(np.float16), 2.0),
    "an int for a float": (vector, 2),
    "no longer weak": (vector, np.float32(2.0)),
    "None for a number": (vector, None),
    "a list around it": (vector, [2.0]),
}
for what, second in second_calls.items():
    f = jax.jit(lambda x, _: x * 2)
    f(vector, 2.0)
    predicted = int(key_of(*second) != key_of(vector, 2.0))
    measured = count_compiles(f, *second)
    print(f"{what:18}  predicted {predicted}  measured {measured}")
    assert predicted == measured

# %% [markdown]
# The function ignores its second argument. JAX does not know that before it has traced, so the
# key covers what a call *brings*, not what the function uses.
#
# 💡 **Same function, same structure, same shapes and dtypes: same program. Numbers never
# matter.**

# %% [markdown]
# ## 1.3 A table of triggers
#
# A profile says "compiling" where you expected training, and nothing in sight changes its shape.
# There are more ways to miss a cache than shapes. This section collects fourteen of them, and
# four suspects that are innocent. Each gets a fresh function and two or more calls; the table
# fills up with how many programs they took.

# %% tags=["given"]
table = {}


def measure(what, *calls):
    """Runs each call on one fresh jitted function; notes and returns how often it compiled."""

    def f(x, scale=2.0):
        return jax.tree.leaves(x)[0] * scale

    f = jax.jit(f)
    with CompileCounter() as counter:
        for call in calls:
            call(f)
    table[what] = (len(calls), counter.count)
    return counter.count


# %% [markdown]
# **The arguments.** A scalar can differ in its weak type alone: a learning rate that is a Python
# float in the first epoch and `np.float32` once a schedule computes it. A pytree can differ in
# its structure alone, and `None` is structure: an optional mask that is sometimes there makes two
# programs. And how an argument is *passed* is structure, too.


# %% tags=["claim"]
class Pair(NamedTuple):
    first: Any
    second: Any


assert measure("shape", lambda f: f(vector), lambda f: f(vector[:4])) == 2
assert measure("dtype", lambda f: f(vector), lambda f: f(vector.astype(int))) == 2
v = vector
assert measure("weak type", lambda f: f(v, 2.0), lambda f: f(v, np.float32(2.0))) == 2
trees = [(v, v), [v, v], {"a": v, "b": v}, Pair(v, v), (v, None)]
assert measure("pytree structure", *[lambda f, tree=tree: f(tree) for tree in trees]) == 5
assert measure("a mask or None", lambda f: f((v, v)), lambda f: f((v, None))) == 2
passed = [lambda f: f(v, 2.0), lambda f: f(v, scale=2.0), lambda f: f(v)]
assert measure("by place, name, default", *passed) == 3

# %% [markdown]
# **The function.** What is given to `jax.jit` is remembered as an object. A lambda, a `partial`
# or an inner function that is made anew is a new object each time. So is a method: Python builds
# `model.step` whenever it is looked up, even on the same model; two of them are equal, but not
# the same. And a static argument that compares by identity is a new key for every object,
# whatever is in it.


# %% tags=["claim"]
class Model:
    def __init__(self, scale):
        self.scale = scale

    def step(self, x):
        return x * self.scale

    @partial(jax.jit, static_argnums=0)
    def jitted_step(self, x):
        return x * self.scale


model = Model(2.0)
static = jax.jit(lambda x, n: x * n, static_argnums=1)
by_object = jax.jit(lambda model, x: x * model.scale, static_argnums=0)
assert model.step == model.step and model.step is not model.step

assert measure("static value", lambda f: static(vector, 2), lambda f: static(vector, 3)) == 2
assert measure("jit in a loop", *3 * [lambda f: jax.jit(lambda x: x * 2)(vector)]) == 3
assert measure("jit of a method", *3 * [lambda f: jax.jit(model.step)(vector)]) == 3
assert measure("jitted method, new self", *3 * [lambda f: Model(2.0).jitted_step(vector)]) == 3
assert measure("static, by identity", *3 * [lambda f: by_object(Model(2.0), vector)]) == 3

# %% [markdown]
# **The surroundings.** An array that was put on a device on purpose (`device_put` with a device)
# is *committed* to it; one that merely ended up there is not, and the two need different
# programs. Options that change results are part of the key: here the precision of matrix
# products, which on a GPU is the difference between float32 and TF32, and 64-bit mode.


# %% tags=["claim"]
def with_precision(f, precision):
    with jax.default_matmul_precision(precision):
        f(vector)


def with_x64(f, enabled):
    with jax.enable_x64(enabled):
        f(vector)


put = jax.device_put(vector, jax.devices()[0])
assert measure("committed array", lambda f: f(jnp.asarray(vector)), lambda f: f(put)) == 2
precisions = [lambda f: with_precision(f, "default"), lambda f: with_precision(f, "highest")]
assert measure("matmul precision", *precisions) == 2
assert measure("64-bit mode", lambda f: with_x64(f, False), lambda f: with_x64(f, True)) == 2

# %% [markdown]
# **The controls.** A table of culprits is worth little without those that are not. New numbers, a
# NumPy array in place of a JAX array, another Python float: nothing compiles. And three separate
# `jax.jit` of *one* function share its programs, because the key holds the function, not the
# wrapper.


# %% tags=["claim"]
def triple(x):
    return x * 3


assert measure("new numbers", lambda f: f(vector), lambda f: f(-vector)) == 1
assert measure("NumPy or JAX", lambda f: f(vector), lambda f: f(jnp.asarray(vector))) == 1
assert measure("another Python float", lambda f: f(vector, 2.0), lambda f: f(vector, 3.0)) == 1
assert measure("one function, three jits", *3 * [lambda f: jax.jit(triple)(vector)]) == 1

for what, (calls, compiled) in table.items():
    print(f"{what:25} {calls} calls  {compiled} compiled")
triggers = {what for what, (_, compiled) in table.items() if compiled > 1}
assert len(triggers) == 14
assert len(table) - len(triggers) == 4

# %% tags=["figure"]
fig, ax = figure("Fourteen triggers, four innocents", "programs compiled", "", size=(6.4, 5.0))
for place, (what, (calls, compiled)) in enumerate(reversed(table.items())):
    color = COLORS.wrong if what in triggers else COLORS.right
    ax.barh(place, calls, height=0.7, color="none", edgecolor=COLORS.ink, linewidth=0.8)
    ax.barh(place, compiled, height=0.7, color=color)
ax.set_yticks(range(len(table)), list(reversed(table)))
ax.set_xticks(range(6))
ax.tick_params(axis="y", length=0)
ax.annotate("outline: calls made", (3.1, 0), va="center", color=COLORS.ink)
describe(
    fig,
    "Bars of programs compiled inside outlines of calls made. Fourteen bars fill their outline; "
    "the four controls compile one program, however often they are called.",
)

# %% [markdown]
# The trigger that people meet most often is not exotic: it is `jax.jit(lambda …)` inside a
# function that is called in a loop. The one that they find last is the weak type, because it does
# not show when a number is printed.
#
# 💡 **When something compiles again, ask what is new: the function, the structure, or a type.**

# %% [markdown]
# ## 1.4 Four ways to see it
#
# "It got slow" is a symptom of a hundred diseases. Four tools, from the loudest to the most
# precise, tell whether this is the one.
#
# **The log.** `jax_log_compiles` makes JAX report each compilation as a warning. In a script, set
# the environment variable `JAX_LOG_COMPILES=1` and read stderr; here `captured_logs` collects the
# messages. A compilation gives four of them, one for each stage and one that names the function
# and its argument types: exactly one of the four starts with "Compiling".


# %% tags=["claim"]
def normalize(x, scale):
    return x / jnp.max(x) * scale


with captured_logs("jax_log_compiles") as messages:
    jax.jit(normalize)(vector, 2.0)

for message in messages:
    print(stable(message.split(".")[0] if message.startswith("Compiling") else message))
assert len(messages) == 4
assert sum(message.startswith("Compiling jit(normalize)") for message in messages) == 1

# %% [markdown]
# **The explanation.** The log says *that* something compiled, `jax_explain_cache_misses` says
# *why*: it finds the known key that is closest and names what differs. Two calls miss below: one
# with a scale that is no longer a Python float, one with a shorter array. This is the line to
# look for in each explanation:

# %% tags=["claim"]
normalized = jax.jit(normalize)
normalized(vector, 3.0)
with captured_logs("jax_explain_cache_misses") as messages:
    normalized(vector, np.float32(2.0))
    normalized(vector[:4], np.float32(2.0))

differences = [line for text in messages for line in text.splitlines() if "* at " in line]
for line in differences:
    print(line.split("https")[0].strip())
assert "at scale, now f32[]{weak_type=False} and before f32[]{weak_type=True}" in differences[0]
assert "at x, now f32[4] and before f32[8]" in differences[1]

# %% [markdown]
# **The counters.** Logs are for people. A test needs a number, and the number must come from JAX
# itself: `jax.monitoring` announces every compilation as an event, with the name of the function
# and the seconds that it took. This is all there is to the counter that you have been using:

# %% tags=["given"]
# quote: helpers.compiles.CompileCounter

# %% [markdown]
# It counts *compilations*. That is not the same as counting how often the Python body runs, which
# is what a `print` or a counter inside the function shows. Five ways to push a function through
# JAX differ in exactly this:

# %% tags=["claim"]
ways = {
    "jax.eval_shape(f, x)": lambda f: jax.eval_shape(f, vector),
    "jax.make_jaxpr(f)(x)": lambda f: jax.make_jaxpr(f)(vector),
    "jax.jit(f).lower(x)": lambda f: jax.jit(f).lower(vector),
    "jax.jit(f).lower(x).compile()": lambda f: jax.jit(f).lower(vector).compile(),
    "jax.jit(f)(x)": lambda f: jax.jit(f)(vector),
}
counts = {}
for name, way in ways.items():
    f = TraceCounter(lambda x: x * 2)
    compiled = count_compiles(way, f)
    counts[name] = (f.count, compiled)
    print(f"{name:30} {f.count} traced  {compiled} compiled")

assert all(traced == 1 for traced, _ in counts.values())
assert [compiled for _, compiled in counts.values()] == [0, 0, 0, 1, 1]

# %% [markdown]
# Each traces once, and only the last two compile. So a counter in the body raises false alarms:
# every `eval_shape` of a set-up looks like a compilation. It also misses real ones. A committed
# array needs a second program, but the same trace serves both:

# %% tags=["claim"]
f = TraceCounter(lambda x: x * 2)
doubled = jax.jit(f)
doubled(jnp.asarray(vector))
recompiled = count_compiles(doubled, jax.device_put(vector, jax.devices()[0]))

print(f"{f.count} trace, {1 + recompiled} compilations")
assert f.count == 1
assert recompiled == 1

# %% [markdown]
# **The stages.** The steps behind a call can be taken one at a time, and each leaves an object
# that you can look into. `trace` gives the jaxpr, JAX's own listing of what the function does;
# `lower` gives StableHLO, which is what XLA reads; `compile` gives the program, which knows what
# memory it will need: 32 bytes for an argument of 8 numbers. To know *what* was compiled, look
# here.


# %% tags=["claim"]
def logistic(x):
    return 1 / (1 + jnp.exp(-x))


traced = jax.jit(logistic).trace(vector)
lowered = traced.lower()
with CompileCounter() as counter:
    compiled = lowered.compile()

print(traced.jaxpr.pretty_print(use_color=False))
print(*re.findall(r"stablehlo\.\w+", lowered.as_text()))
print("arguments:", compiled.memory_analysis().argument_size_in_bytes, "bytes")
assert counter.count == 1
assert [op.primitive.name for op in traced.jaxpr.eqns] == ["neg", "exp", "add", "div"]
assert "stablehlo.exponential" in lowered.as_text()
assert compiled.memory_analysis().argument_size_in_bytes == vector.nbytes == 32

# %% [markdown]
# <details><summary>I don't understand why the counter sees programs that I never wrote.</summary>
#
# Outside `jit`, each operation on a JAX array is a program of its own: adding two arrays compiles
# `jit(add)` the first time it meets their shape. The counter counts those, too, and §1.5 shows
# why it should. `counter.names` lists them all, and `CompileCounter(only="score")` looks at one
# function alone.
#
# </details>
#
# 💡 **Count compilations, not traces; ask `jax_explain_cache_misses` for the reason.**

# %% [markdown]
# ## 1.5 Buckets and a mask
#
# You can't stop batches from having different sizes. You can stop JAX from seeing that. Round
# each size up to one of a few **buckets**, fill the rest with rows of zeros, and there are only
# as many programs as buckets.

# %% tags=["given"]
BUCKETS = (4, 8, 16)


def bucket_for(n):
    """The smallest bucket that holds n rows. Raises ValueError where none does."""
    for rows in BUCKETS:
        if n <= rows:
            return rows
    raise ValueError(f"{n} rows are more than the largest bucket, {BUCKETS[-1]}")


def pad_rows(x, rows):
    """NumPy array (n, …) → (rows, …): zeros behind the n rows."""
    return np.concatenate([x, np.zeros((rows - len(x), *x.shape[1:]), x.dtype)])


# %% [markdown]
# For a result per row that is nearly all: pad, call, drop the rows that were added. A *mean* is
# another matter. The zeros that you added have a score as well, and it takes part. There are
# three ways to write this; the first two are popular.


# %% tags=["given"]
def logits(x):
    """One number a row, and not 0 for a row of zeros. (n, 8) → (n,)."""
    return x @ weights + 1.0


@jax.jit
def mean_no_mask(x, mask):
    return jnp.mean(logits(x))


@jax.jit
def mean_half_masked(x, mask):
    return jnp.mean(jnp.where(mask, logits(x), 0.0))


@jax.jit
def mean_masked(x, mask):
    total = jnp.sum(jnp.where(mask, logits(x), 0.0))
    return total / jnp.maximum(jnp.sum(mask), 1)


def threes(n):
    """n rows whose logits are all 3."""
    return np.tile(2 * weights / (weights @ weights), (n, 1))


# %% [markdown]
# ❌ Without a mask, padded rows enter both the sum and the count. With `jnp.mean` of a masked
# array they are gone from the sum, but `mean` divides by the length that it sees, which is the
# bucket's: the result shrinks by exactly the share of padding. Take 5 rows whose logits are all
# 3, in a bucket of 8: the true mean is 3, and the two mistakes give 2.25 and 1.875.

# %% tags=["claim"]
padded, mask = pad_rows(threes(5), 8), np.arange(8) < 5

for mean in (mean_no_mask, mean_half_masked, mean_masked):
    print(f"{mean.__name__:16} {float(mean(padded, mask)):.4f}")
assert_close(mean_no_mask(padded, mask), (5 * 3 + 3 * 1) / 8, rtol=1e-6)
assert_close(mean_half_masked(padded, mask), 5 * 3 / 8, rtol=1e-6)
assert_close(mean_masked(padded, mask), 3.0, rtol=1e-6)
assert (5 * 3 + 3 * 1) / 8 == 2.25 and 5 * 3 / 8 == 1.875

# %% [markdown]
# ✅ The third version masks the numerator *and* the denominator. It agrees with NumPy's float64
# mean of the unpadded rows for every size from 1 to 16, gives 0 and not NaN for none, and all of
# them together take three programs.


# %% tags=["claim"]
def errors_of(mean, batches):
    """How far `mean` on padded batches is from the float64 mean of their real rows."""
    errors = []
    for batch in batches:
        n, rows = len(batch), bucket_for(len(batch))
        exact = np.mean(batch.astype(np.float64) @ weights + 1.0) if n else 0.0
        errors.append(abs(float(mean(pad_rows(batch, rows), np.arange(rows) < n)) - exact))
    return np.array(errors)


mean_masked.clear_cache()
with CompileCounter() as counter:
    errors = errors_of(mean_masked, requests(range(17)))

print(f"{len(errors)} sizes, {counter.count} programs, no error above 1e-6")
assert counter.count == 3
assert errors.max() < 1e-6

# %% tags=["figure"]
sizes = np.arange(1, 17)
mistakes = {"no mask": mean_no_mask, "numerator only": mean_half_masked, "both": mean_masked}
errors = {name: errors_of(mean, map(threes, sizes)) for name, mean in mistakes.items()}

fig, ax = figure("The error grows with the share of padding", "rows", "error of the mean")
for (name, error), color in zip(
    errors.items(), (COLORS.wrong, COLORS.fourth, COLORS.right), strict=True
):
    ax.plot(sizes, error, "o-", color=color)
    shift = (8, -38) if name == "no mask" else (8, 4)
    ax.annotate(name, (9, error[8]), shift, textcoords="offset points", color=color, weight="bold")
ax.set_xticks([1, *BUCKETS])
describe(
    fig,
    "Error of the mean against the number of rows, all with logits of 3. Without a mask, or with "
    "one in the numerator only, it is zero at 4, 8 and 16 rows, highest at one row and high again "
    "just behind 4 and 8; with both masked it is always zero.",
)
for name in ("no mask", "numerator only"):
    full, behind = errors[name][[3, 7, 15]], errors[name][[4, 8]]
    assert np.argmax(errors[name]) == 0 and max(full) < 1e-6 < 0.1 < min(behind)
assert np.all(errors["both"] < 1e-6)

# %% [markdown]
# A mistake that vanishes at full buckets passes every test that was written with full buckets.
# Test with a size that isn't one.
#
# ❌ There is one more way to lose. A bucket saves nothing if *padding* compiles for each size.
# With `jnp.pad` it does, because outside `jit` each operation on a JAX array is a small program
# with a key of its own; so does `[:n]` on the way out, and so does `jnp.asarray` of what NumPy has
# cut. Here are six sizes in one bucket:

# %% tags=["claim"]
six = requests([9, 10, 11, 12, 13, 14])
scores = jax.jit(partial(score, weights))
scores(np.zeros((16, 8), np.float32))


def through_jax(x):
    padded = jnp.pad(x, ((0, 16 - len(x)), (0, 0)))
    return scores(padded)[: len(x)]


def through_numpy(x):
    return np.asarray(scores(pad_rows(x, 16)))[: len(x)]


def and_back(x):
    return jnp.asarray(through_numpy(x))


programs = {
    way.__name__: sum(count_compiles(way, batch) for batch in six)
    for way in (through_jax, through_numpy, and_back)
}
print("programs:", programs)
assert programs["through_jax"] >= 2 * len(six)
assert programs["through_numpy"] == 0 and programs["and_back"] >= len(six)

# %% [markdown]
# ✅ Padding and cutting in NumPy compiles nothing, and the bucket's program was there already. On
# a GPU the results must be copied to the host for it, where most servers need them anyhow.
#
# **How many buckets?** Few programs, little padding: choose one. Powers of two are the usual
# compromise. For sizes up to 1024 they are 11 programs, and in the worst case not quite half of
# the rows are padding; on average, over all sizes, a quarter.


# %% tags=["claim"]
def padding(buckets):
    """Share of padded rows for each size from 1 to the largest bucket."""
    sizes = np.arange(1, buckets[-1] + 1)
    rows = np.array(buckets)[np.searchsorted(buckets, sizes)]
    return 1 - sizes / rows


choices = {
    "one": [1024],
    "powers of two": [2**k for k in range(11)],
    "every 128": [128 * k for k in range(1, 9)],
}
for name, buckets in choices.items():
    share = padding(buckets)
    amount = f"{share.mean():.1%} padding, {share.max():.1%} at worst"
    print(f"{name:14} {len(buckets):2} programs, {amount}")
powers = padding(choices["powers of two"])
assert len(choices["powers of two"]) == 11
assert 0.49 < powers.max() < 0.5
assert 0.24 < powers.mean() < 0.26

# %% [markdown]
# <details><summary>I don't understand why it must be <code>where</code>. Why not multiply by the
# mask?</summary>
#
# Because zero times infinity is NaN. As long as the function is tame on rows of zeros, both work.
# Take the logarithm of a padded row, and one infinite value, multiplied by a mask of zero, spoils
# the sum. `where` selects; it never computes with what it drops. (Its *gradient* can: that is
# chapter 2.)
#
# </details>
#
# 💡 **Pad in NumPy, mask the sum and the count, and test with a bucket that isn't full.**

# %% [markdown] exercise="1.1"
# Write `bucketed_loss(w, b, x, y)`, the mean squared error of the linear model `x @ w + b`, for
# batches of any size up to the largest bucket.
#
# - `w` (3,) and `b` () are float32 parameters; the loss is differentiated with respect to them.
# - `x` (n, 3) and `y` (n,) are NumPy arrays, float32, with 0 ≤ n ≤ 16 rows. A label may be 0.
# - It returns a scalar: the mean of `(x @ w + b - y) ** 2` over the n rows; 0 if there are none.
# - Once one batch of each bucket in `BUCKETS` was seen, no other size compiles anything.


# %% tags=["starter"] exercise="1.1"
def bucketed_loss(w, b, x, y):
    """Mean of (x @ w + b - y)² over the rows of x, computed at the shape of a bucket.

    w: (3,), b: (), x: (n, 3), y: (n,), float32, 0 ≤ n ≤ 16. Returns a scalar.
    """
    ### BEGIN SOLUTION
    rows = bucket_for(len(y))
    return _masked_loss(w, b, pad_rows(x, rows), pad_rows(y, rows), np.arange(rows) < len(y))


@jax.jit
def _masked_loss(w, b, x, y, mask):
    error = jnp.where(mask, x @ w + b - y, 0.0)
    return jnp.sum(error**2) / jnp.maximum(jnp.sum(mask), 1)
    ### END SOLUTION


# %% [markdown]
# ## 1.6 A budget for compilations
#
# You fixed it. Three weeks later somebody passes a Python list where there was a tuple, the step
# compiles twice, and nobody notices, because nothing fails. What is not tested comes back.
#
# A **compile budget** is a number and a block of code: if the block compiles more than that, it
# fails, and says which functions were to blame. It is a counter with an opinion:

# %% tags=["given"]
# quote: helpers.compiles.CompileBudget

# %% [markdown]
# ✅ As a context manager it guards a stretch of code. Three batches of three buckets are within a
# budget of 3; the same buckets again are within a budget of 0, the strictest and the most useful
# one: *whatever comes now has been compiled already*.

# %% tags=["claim"]
guarded = jax.jit(lambda x: score(weights, x))

with CompileBudget(3, label="warm-up") as budget:
    for batch in requests([4, 8, 16]):
        guarded(batch)
with CompileBudget(0, label="serving"):
    for batch in requests([16, 4, 8, 8]):
        guarded(batch)

print(f"warm-up: {budget.count} of {budget.limit} compilations used")
assert budget.count == 3

# %% [markdown]
# ❌ A batch of 5 rows that nobody padded exceeds it. The message names the program and the time
# that it took to compile, so that a failing test tells you where to look.

# %% tags=["claim", "nbval-ignore-output"]
(unpadded,) = requests([5])


def serve_unpadded():
    with CompileBudget(0, label="serving"):
        guarded(unpadded)


error = show_error(serve_unpadded, expect=CompileBudgetExceeded, contains="jit(<lambda>)")
assert "serving: budget of 0 compilations exceeded: 1 compiled" in str(error)
assert isinstance(error, AssertionError)

# %% [markdown]
# In production you would rather serve slowly than not at all. With `on_excess="warn"` the budget
# writes a `RuntimeWarning` and goes on. As a decorator it gives *each call* a fresh budget of
# its own, which is right for a step that must not compile, and wrong for a loop that may do so
# once. A negative limit, and any third word for `on_excess`, is refused on the spot.


# %% tags=["claim"]
@compile_budget(0, on_excess="warn")
def step(x):
    return guarded(x)


(six_rows,) = requests([6])
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    step(six_rows)
    step(six_rows)

print(f"2 calls, {len(caught)} warning, about", str(caught[0].message).split(":")[0])
assert [warning.category for warning in caught] == [RuntimeWarning]
assert str(caught[0].message).startswith("step: budget of 0 compilations exceeded: 1 compiled")

(seven_rows,) = requests([7])
show_error(compile_budget(0)(guarded), seven_rows, expect=CompileBudgetExceeded, lines=0)
assert count_compiles(compile_budget(0)(guarded), seven_rows) == 0  # the next call is fine
for limit, on_excess in ((-1, "raise"), (0, "ignore")):
    show_error(CompileBudget, limit, on_excess, expect=ValueError, lines=0)

# %% [markdown]
# ❌ Two budgets that never fail. The first is opened after the warm-up has served the very
# requests that it should judge. The second is per call, where every call compiles once and stays
# within its limit of 1. Both wave through a function that compiles for each of 4 sizes; one
# budget of 2 around all requests doesn't.


# %% tags=["claim"]
def stream_compiles_too_much(serve):
    with CompileBudget(2):
        for batch in requests([1, 2, 3, 4]):
            serve(batch)


warmed = jax.jit(lambda x: score(weights, x))
for batch in requests([1, 2, 3, 4]):
    warmed(batch)
stream_compiles_too_much(warmed)  # too late: passes

each_call = compile_budget(1)(jax.jit(lambda x: score(weights, x)))
with CompileCounter() as counter:
    for batch in requests([1, 2, 3, 4]):
        each_call(batch)  # too narrow: passes
assert counter.count == 4

fresh = jax.jit(lambda x: score(weights, x))
error = show_error(stream_compiles_too_much, fresh, expect=CompileBudgetExceeded, lines=0)
assert "budget of 2 compilations exceeded: 4 compiled" in str(error)

# %% [markdown]
# 💡 **Write the budget next to the code that it protects; zero is the best number.**

# %% [markdown] exercise="1.2"
# First the test, then the function that passes it.
#
# `assert_budget(serve, requests, limit)` serves the requests one after another with `serve(x)`,
# and raises an AssertionError (or a subclass) if that compiled more than `limit` programs in all.
# `requests` is a list of arrays; `serve` is any Python function that returns an array. At the
# limit it raises nothing.
#
# `serve(x)` takes a request, a NumPy array of shape (n, 3) and dtype float32 with 1 ≤ n ≤ 16, and
# returns an array of shape (n,): the log-sum-exp of each row, `log(sum(exp(row)))`. Requests of
# all sizes together may compile **two** programs at most, padding and cutting included.


# %% tags=["starter"] exercise="1.2"
def assert_budget(serve, requests, limit):
    """Serves all requests; raises AssertionError if that compiles more than `limit` programs."""
    ### BEGIN SOLUTION
    with CompileBudget(limit):
        for request in requests:
            serve(request)
    ### END SOLUTION


def serve(x):
    """Log-sum-exp of each row. x: (n, 3) float32, 1 ≤ n ≤ 16. Returns (n,)."""
    ### BEGIN SOLUTION
    rows = 4 if len(x) <= 4 else 16
    return np.asarray(_logsumexp(pad_rows(x, rows)))[: len(x)]


@jax.jit
def _logsumexp(x):
    return jax.nn.logsumexp(x, axis=1)
    ### END SOLUTION


# %% [markdown]
# ## 1.7 Static arguments that compare by value
#
# Some things can't be arrays. A width decides a shape, a flag decides which branch of an `if` is
# traced, a name decides which activation is used. While JAX traces, an array is a placeholder and
# has no value that Python could branch on:


# %% tags=["claim"]
def layer(x, squash):
    return jnp.tanh(x) if squash else x


row = np.arange(4, dtype=np.float32)
show_error(jax.jit(layer), row, True, expect=jax.errors.TracerBoolConversionError)

chosen = jax.jit(layer, static_argnames="squash")
assert count_compiles(chosen, row, squash=True) == 1
assert count_compiles(chosen, row, squash=False) == 1
assert count_compiles(chosen, row, squash=True) == 0

# %% [markdown]
# A **static argument** is handed to the function as it is, and becomes part of the key: one
# program for each value. To find a key, a cache asks for its hash; to accept it, for equality. So
# objects that are equal must have equal hashes, which Python does not check, and some versions of
# JAX don't notice. A flag has both. A settings object that you wrote yourself may have neither.
#
# ❌ Here are three configs that people write first. The plain class compares by identity: three
# equal objects, three programs. The dataclass compares by value, but can be changed, so Python
# takes its hash away; the frozen one hashes its fields, and a list has no hash.


# %% tags=["claim"]
class PlainConfig:
    def __init__(self, width, scales):
        self.width, self.scales = width, scales


@dataclass
class OpenConfig:
    width: int
    scales: tuple


@dataclass(frozen=True)
class FrozenConfig:
    width: int
    scales: tuple


apply = jax.jit(lambda config, x: config.width * x + sum(config.scales), static_argnums=0)

plain = sum(count_compiles(apply, PlainConfig(2, (1.0,)), row) for _ in range(3))
print(f"a plain class: {plain} programs for 3 equal configs")
show_error(apply, OpenConfig(2, (1.0,)), row, expect=ValueError, contains="OpenConfig")
show_error(apply, FrozenConfig(2, [1.0]), row, expect=ValueError, contains="FrozenConfig")
assert plain == 3

# %% [markdown]
# ✅ Frozen, and with a tuple in it, the same class does all that is asked: equal settings share a
# program, and one that differs in a single field gets its own.

# %% tags=["claim"]
equal = sum(count_compiles(apply, FrozenConfig(2, (1.0,)), row) for _ in range(3))
other = count_compiles(apply, FrozenConfig(2, (1.5,)), row)

print(f"a frozen dataclass: {equal} program for 3 equal configs, {other} more for another")
assert (equal, other) == (1, 1)
assert_close(apply(FrozenConfig(2, (1.5,)), row), 2.0 * row + 1.5, rtol=1e-6)

# %% [markdown]
# Why insist on frozen? Because a key that changes after it was filed no longer says what was
# compiled. The config below is hashable and mutable, an easy mistake with `unsafe_hash=True`. Its
# width is changed between two calls with the same object. Whether the second call uses the new
# width depends on the version of JAX: some look at the object again, some recognize it and run
# the program that they have. Neither is promised.


# %% tags=["claim", "nbval-ignore-output"]
@dataclass(unsafe_hash=True)
class MutableConfig:
    width: int
    scales: tuple = ()


config = MutableConfig(2)
one = np.ones((), np.float32)
before = float(apply(config, one))
config.width = 5
after = float(apply(config, one))

print(f"JAX {jax.__version__}: width 2 gives {before}, then width 5 gives {after}")
assert before == 2.0
assert after in (2.0, 5.0)

# %% [markdown]
# A config rarely travels alone; it sits in a model's state among the arrays. `register_static`
# makes a class a pytree without leaves: all of it is structure, and structure is part of the key
# (§1.2). No `static_argnums` is needed, at whatever depth it sits, and the rules for its hash are
# the same.


# %% tags=["claim"]
@jax.tree_util.register_static
@dataclass(frozen=True)
class Activation:
    name: str


@jax.jit
def activate(state):
    return getattr(jnp, state["activation"].name)(state["x"])


def state(name):
    return {"x": row, "activation": Activation(name)}


counts = [count_compiles(activate, state(name)) for name in ("tanh", "tanh", "sin", "tanh")]
print("tanh, tanh, sin, tanh:", counts)
assert counts == [1, 0, 1, 0]
assert len(jax.tree.leaves(state("sin"))) == 1
assert_close(activate(state("sin")), np.sin(row.astype(np.float64)), rtol=1e-6, atol=1e-6)

# %% [markdown]
# 💡 **What is static must be frozen, and equal when it means the same.**

# %% [markdown] exercise="1.3"
# Settings arrive from a JSON file: numbers, strings, and *lists* where your code would have
# tuples. Write `make_config(width, activation="tanh", scales=())`, which turns them into an
# object for `static_argnums`.
#
# - It has the attributes `width` (int), `activation` ("tanh" or "relu") and `scales` (a tuple of
#   floats, whether a list or a tuple came in).
# - Two configs with equal settings are one key: they are equal, have one hash, and the second call
#   compiles nothing. If any setting differs, the order of the scales included, it is another key.
# - It can't be changed afterwards: not by setting an attribute (that may raise whatever you
#   like), not through `scales`, and not by the caller who still holds the list.
#
# Define whatever classes you need in the same cell.


# %% tags=["starter"] exercise="1.3"
def make_config(width, activation="tanh", scales=()):
    """A config that can be a static argument: frozen, hashable, compared by value.

    width: int, activation: str, scales: list or tuple of floats.
    """
    ### BEGIN SOLUTION
    return _Config(width, activation, tuple(scales))


@dataclass(frozen=True)
class _Config:
    width: int
    activation: str
    scales: tuple[float, ...]
    ### END SOLUTION


# %% [markdown]
# ## 1.8 What changes at every step is an argument
#
# A schedule lowers the learning rate at every step. If the rate is part of the key, each step is
# a program of its own, and training never leaves the compiler.
#
# ❌ `static_argnames` for a number that varies: ten rates, ten programs.


# %% tags=["given"]
def descend(w, rate):
    """One step down the slope of sum(w²) / 2."""
    return w - rate * w


def run(step, w, rates):
    """All steps, one for each rate."""
    for rate in rates:
        w = step(w, rate=rate)
    return w


rates = [0.1 / (1 + step) for step in range(10)]

# %% tags=["claim"]
static_step = jax.jit(descend, static_argnames="rate")
dynamic_step = jax.jit(descend)
start = np.ones(4, np.float32)

with CompileCounter(only="descend") as static_count:
    slow = run(static_step, start, rates)
with CompileCounter(only="descend") as dynamic_count:
    fast = run(dynamic_step, start, rates)

print(f"10 rates: static {static_count.count} programs, dynamic {dynamic_count.count}")
assert (static_count.count, dynamic_count.count) == (10, 1)
exact = np.prod(1 - np.array(rates)) * np.ones(4)
assert_close(slow, exact, rtol=1e-6)
assert_close(fast, exact, rtol=1e-6)

# %% [markdown]
# ✅ The numbers agree, the programs don't. As an ordinary argument, a Python float is a weakly
# typed scalar: one key for all rates. With fresh rates and everything else compiled, the static
# version takes at least 10 times as long for 10 steps.


# %% tags=["claim", "nbval-ignore-output"]
def seconds(step, rates):
    begin = time.perf_counter()
    jax.block_until_ready(run(step, start, rates))
    return time.perf_counter() - begin


fresh_rates = [0.05 / (1 + step) for step in range(10)]
ratio = seconds(static_step, fresh_rates) / seconds(dynamic_step, fresh_rates)
print(f"static takes {ratio:.0f} times as long")
assert ratio > 10

# %% [markdown]
# ❌ A rate can also get into a program unseen. A function that *reads* it from outside, from a
# global name or an attribute of `self`, is traced with the value of the moment; afterwards the
# value is a constant in the program. Nothing compiles again, and nothing changes any more.

# %% tags=["claim"]
rate = 0.5


@jax.jit
def step_with_global(w):
    return w - rate * w


first = step_with_global(np.float32(1.0))
rate = 0.25
second = step_with_global(np.float32(1.0))

print(f"rate 0.5 gives {first}, rate 0.25 gives {second}")
assert first == second == 0.5

# %% [markdown]
# ❌ The third classic is `jax.jit` in the wrong place. A step that is made inside the training
# function is a new function in each training, and an old cache is of no use to it. ✅ At module
# level it is made once. Three trainings:


# %% tags=["claim"]
def run_with_own_step(w, rates):
    own_step = jax.jit(lambda w, rate: w - rate * w)
    return run(own_step, w, rates)


inside = [count_compiles(run_with_own_step, start, rates) for _ in range(3)]
outside = [count_compiles(run, dynamic_step, start, rates) for _ in range(3)]

print("jit inside the training function:", inside)
print("jit at module level:             ", outside)
assert inside == [1, 1, 1]
assert outside == [0, 0, 0]

# %% [markdown]
# ❌ The last one is small and everywhere. A running value starts as a Python `0.0`, goes through
# the step, and comes back as a float32 array: the first call had a weak type, the second has not,
# so there are two programs. The same happens when one caller passes `0.1` and another
# `np.float32(0.1)`. ✅ Choose a dtype once, where the value is made.


# %% tags=["claim"]
def running_total(total):
    """Adds 4 five times; returns how many programs that took."""
    add = jax.jit(lambda total, x: total + jnp.sum(x))
    with CompileCounter() as counter:
        for _ in range(5):
            total = add(total, np.ones(4, np.float32))
    assert total == 20.0
    return counter.count


weak, strong = running_total(0.0), running_total(np.float32(0.0))
print(f"from 0.0: {weak} programs, from np.float32(0.0): {strong}")
assert (weak, strong) == (2, 1)

# %% [markdown]
# 💡 **Static is for what decides shapes and branches. What varies goes in as an array, through a
# function that was jitted once.**

# %% [markdown] exercise="1.4"
# Write `train(w, b, x, y, rates)`: gradient descent on the mean of `(x @ w + b - y) ** 2`, one
# step for each rate, and return the last `(w, b)`.
#
# - `w` (2,), `x` (5, 2) and `y` (5,) are float32 NumPy arrays; `b` is a Python float; `rates` is
#   a list of Python floats, of any length. With no rates, `w` and `b` come back as they are.
# - The first training compiles the step as one program (two small conversions beside it are
#   tolerated). A later one compiles **nothing**, whatever its rates, and however many there are.


# %% tags=["starter"] exercise="1.4"
def train(w, b, x, y, rates):
    """Gradient descent with one step a rate. Returns the last w, (2,), and b, ()."""
    ### BEGIN SOLUTION
    b = np.float32(b)
    for rate in rates:
        w, b = _gradient_step(w, b, x, y, rate)
    return w, b


@jax.jit
def _gradient_step(w, b, x, y, rate):
    def loss(w, b):
        return jnp.mean((x @ w + b - y) ** 2)

    slope_w, slope_b = jax.grad(loss, argnums=(0, 1))(w, b)
    return w - rate * slope_w, b - rate * slope_b
    ### END SOLUTION


# %% [markdown]
# ## 1.9 Compile before you serve
#
# With buckets, a server compiles a handful of programs and then no more. But it compiles them at
# the first request of each bucket, and that customer waits. Since all shapes are known
# beforehand, so can the programs be: **ahead-of-time** (AOT) compilation runs the stages of §1.4
# at start-up, on shapes in place of arrays.


# %% tags=["given"]
def compile_buckets(fn, buckets, features):
    """A compiled program for each number of rows. fn: (n, features) → (n,)."""
    program = jax.jit(fn)
    return {
        rows: program.lower(jax.ShapeDtypeStruct((rows, features), jnp.float32)).compile()
        for rows in buckets
    }


# %% [markdown]
# ✅ Three buckets are three compilations at start-up. Then requests of all sizes are served
# within a budget of 0, and the results are those of NumPy in float64.

# %% tags=["claim"]
with CompileBudget(3, label="start-up") as start_up:
    programs = compile_buckets(partial(score, weights), BUCKETS, features=8)

with CompileBudget(0, label="serving") as serving:
    for batch in requests(range(1, 17)):
        rows = bucket_for(len(batch))
        answer = np.asarray(programs[rows](pad_rows(batch, rows)))[: len(batch)]
        assert_close(answer, np.tanh(batch.astype(np.float64) @ weights), rtol=1e-5, atol=1e-6)

print(f"start-up: {start_up.count} compilations, serving: {serving.count}")
assert (start_up.count, serving.count) == (3, 0)

# %% [markdown]
# A compiled program is not a jitted function: it has no compiler behind it. What does not fit, it
# refuses, and that is a virtue. A server that compiles in silence for a malformed request is slow
# for everybody behind it; one that raises tells you.

# %% tags=["claim"]
four_rows = programs[4]
five_rows = np.zeros((5, 8), np.float32)
integers = np.zeros((4, 8), np.int32)

show_error(four_rows, five_rows, expect=TypeError, lines=2)
error = show_error(four_rows, integers, expect=TypeError, lines=0)
assert "compiled with float32[4,8] and called with int32[4,8]" in str(error)

jitted = jax.jit(partial(score, weights))  # takes both, and compiles for each
assert count_compiles(jitted, five_rows) == count_compiles(jitted, integers) == 1

# %% [markdown]
# ❌ Mind what stands in front of the program. `padded[:n] = x` copies a request into a buffer,
# and NumPy broadcasts: a request with a single column is repeated into all eight, and the
# program, which sees the right shape, answers with numbers that mean nothing. Compare the shape
# *before* you pad.

# %% tags=["claim"]
one_column = np.ones((3, 1), np.float32)
buffer = np.zeros((4, 8), np.float32)
buffer[:3] = one_column  # no error
nonsense = np.asarray(four_rows(buffer))[:3]

print("a request of the wrong width is answered:", nonsense.round(4))
assert np.all(np.isfinite(nonsense))
assert_close(nonsense, np.full(3, np.tanh(weights.astype(np.float64).sum())), rtol=1e-5)

# %% [markdown]
# What does a customer notice? The same 24 requests in three ways: a jit on whatever comes, a jit
# on buckets, and the table of compiled programs.

# %% tags=["claim", "nbval-ignore-output"]
mixed = requests(np.random.default_rng(2).integers(1, 17, 24))


def bucketed(program_for):
    def serve(x):
        rows = bucket_for(len(x))
        return np.asarray(program_for(rows)(pad_rows(x, rows)))[: len(x)]

    return serve


any_shape = jax.jit(lambda x: score(weights, x))
any_bucket = jax.jit(lambda x: score(weights, x))
waits = {
    "jit": milliseconds(any_shape, mixed),
    "jit on buckets": milliseconds(bucketed(lambda rows: any_bucket), mixed),
    "compiled ahead": milliseconds(bucketed(programs.get), mixed),
}
for name, times in waits.items():
    print(f"{name:15} slowest request {max(times):8.3f} ms, all {sum(times):8.3f} ms")
third_slowest = sorted(waits["jit on buckets"])[-3]  # three buckets, three compilations
assert third_slowest > 5 * np.median(waits["compiled ahead"])

# %% tags=["figure", "nbval-ignore-output"]
fig, ax = figure("Compiled ahead of time, no request waits", "request", "time (ms, log scale)")
for (name, times), color in zip(
    waits.items(), (COLORS.wrong, COLORS.third, COLORS.right), strict=True
):
    (drawn,) = ax.semilogy(range(1, 25), times, "o", color=color)
    label_line(drawn, name, dy={"jit": 0, "jit on buckets": 7, "compiled ahead": -7}[name])
ax.set_xticks([1, 6, 12, 18, 24])
describe(
    fig,
    "Time of 24 requests of mixed sizes. A bare jit compiles for each new size; with buckets three "
    "requests wait; compiled ahead of time none does.",
)

# %% [markdown]
# And after a restart? A new process knows no programs. With `jax_compilation_cache_dir` set, JAX
# keeps them in a folder, and the next process loads what the last one compiled. `CompileCounter`
# counts a program that was loaded like any other, because the process did ask for one; what
# shrinks is its duration. So keep budgets on counts, and watch durations in the log.
# (`jax.clear_caches` stands in for the restart here.)


# %% tags=["given"]
@contextmanager
def programs_kept_in(folder):
    """Turns the persistent cache on for a block, and keeps even what compiles in no time."""
    options = {"compilation_cache_dir": folder, "persistent_cache_min_compile_time_secs": 0.0}
    before = {name: getattr(jax.config, f"jax_{name}") for name in options}
    try:
        for name, value in options.items():
            jax.config.update(f"jax_{name}", value)
        compilation_cache.reset_cache()
        yield
    finally:
        for name, value in before.items():
            jax.config.update(f"jax_{name}", value)
        compilation_cache.reset_cache()


# %% tags=["claim", "nbval-ignore-output"]
def deep(x):
    for _ in range(30):
        x = jnp.tanh(x @ x)
    return x


square = np.eye(20, dtype=np.float32)
with tempfile.TemporaryDirectory() as folder, programs_kept_in(folder):
    with CompileCounter(only="deep") as counter:
        jax.jit(deep)(square)
        jax.clear_caches()
        jax.jit(deep)(square)
    kept = os.listdir(folder)

compiled, loaded = (1e3 * duration for duration in counter.durations)
print(f"counted {counter.count} times: compiled in {compiled:.0f} ms, loaded in {loaded:.0f} ms")
assert counter.count == 2
assert loaded < compiled
assert any(name.startswith("jit_deep") for name in kept)

# %% [markdown]
# 💡 **If the shapes are known at start-up, so are the programs.**

# %% [markdown] exercise="1.5"
# Write `make_server(fn, buckets, features)`, which compiles everything at once and returns
# `serve(x)`.
#
# - `fn` maps (n, features) to (n,) or (n, k), row by row, and is not jitted. `buckets` is a list
#   of row counts in any order.
# - When `make_server` returns, a program for each bucket is compiled.
# - `serve(x)` takes a float32 NumPy array of shape (n, features), 1 ≤ n ≤ the largest bucket, and
#   returns an array of the n results. It compiles nothing. (For n = 0 it may do what it likes.)
# - For any other shape (more rows, more or fewer columns, one dimension) it raises ValueError or
#   TypeError, and compiles nothing either.


# %% tags=["starter"] exercise="1.5"
def make_server(fn, buckets, features):
    """Compiles `fn` for each bucket; returns serve(x) for x of shape (n, features), float32."""
    ### BEGIN SOLUTION
    programs = compile_buckets(fn, sorted(buckets), features)

    def serve(x):
        rows = next((rows for rows in programs if rows >= len(x)), None)
        if rows is None or x.shape != (len(x), features):
            raise ValueError(f"can't serve shape {x.shape}: at most {max(programs)} × {features}")
        return np.asarray(programs[rows](pad_rows(x, rows)))[: len(x)]

    return serve
    ### END SOLUTION


# %% [markdown]
# ## 1.10 What to keep
#
# 💡 **One function, jitted once, at module level.** A `jit` inside a function or a loop is a new
# function each time.
#
# 💡 **Few shapes: buckets, a mask in the sum and in the count, padding in NumPy.** Static is for
# what decides shapes and branches, and it is frozen; whatever varies is an array of a fixed
# dtype.
#
# 💡 **A budget on compilations, in a test and around the server.** It is the only part of this
# chapter that still works when you have forgotten the rest.
#
# ### 🧪 Quiz
#
# Put a letter in place of the dots and run the cell. The answers are measured on your machine.

# %% tags=["quiz"] question="1.a"

# %% tags=["quiz"] question="1.b"

# %% tags=["quiz"] question="1.c"

# %% tags=["quiz"] question="1.d"

# %% tags=["quiz"] question="1.e"

# %% tags=["quiz"] question="1.f"

# %% tags=["quiz"] question="1.g"

# %% tags=["quiz"] question="1.h"

# %% [markdown]
# ### Cheat sheet
#
# | to | write |
# |---|---|
# | count compilations | `with CompileCounter() as c: …`, then `c.count`, `c.names`, `c.durations` |
# | count them for one call | `count_compiles(f, *args)` |
# | count traces | `f = TraceCounter(f)`, then `f.count` |
# | see each compilation | `JAX_LOG_COMPILES=1`, or `jax.config.update("jax_log_compiles", True)` |
# | see why it missed | `jax.config.update("jax_explain_cache_misses", True)` |
# | see an argument's type | `jax.typeof(x)`: shape, dtype, `~` for weak |
# | keep a limit | `with CompileBudget(n): …`, `@compile_budget(n, on_excess="warn")` |
# | look into the stages | `t = jax.jit(f).trace(x)`, `l = t.lower()`, `c = l.compile()` |
# | compile ahead of time | `jax.jit(f).lower(jax.ShapeDtypeStruct(shape, dtype)).compile()` |
# | make an argument static | `jax.jit(f, static_argnames="config")` |
# | make a class static | `@jax.tree_util.register_static` on `@dataclass(frozen=True)` |
# | mask a mean | `jnp.sum(jnp.where(mask, x, 0.0)) / jnp.maximum(jnp.sum(mask), 1)` |
# | pad and cut for free | `np.concatenate([x, np.zeros(…)])`, `np.asarray(y)[:n]` |
# | forget all programs | `jax.clear_caches()`, or `f.clear_cache()` for one function |
# | keep programs across restarts | `jax.config.update("jax_compilation_cache_dir", folder)` |
