# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # 09 · The trainer
#
# A training loop is ten lines. Then the batch no longer fits, so gradients are added up. Then the
# run is moved to float16 and some steps have to be skipped. Someone wants a moving average of the
# weights, someone else a checkpoint every hour, and one night the machine restarts. Half a year
# later the loop has four hundred lines, and it is wrong in ways that raise no error: the
# accumulated gradient is not the gradient of the large batch, the average still remembers its
# random start, and the resumed run is not the run that was interrupted.
#
# This chapter grows a trainer feature by feature and proves each of them. It stays small because
# of two decisions. **A loss returns a total and a count**, never a mean: totals can be added up
# over micro-batches, devices and evaluation sets, and means can't. And **all that a run needs in
# order to go on is one pytree**, which one compiled step moves: what is in it is saved, resumed and
# put on several devices without further code.
#
# Afterwards you can
#
# - accumulate gradients over unequal micro-batches, and get exactly those of the large batch;
# - train in float16 with a loss scale that finds its own level, and never take a broken step;
# - average weights without a trace of their start;
# - evaluate, keep the best model, stop early, and watch, all from small callbacks;
# - interrupt a run and have it end, bit for bit, where it would have ended;
# - split the batch over eight devices without changing a line of the step.
#
# Reading and running takes about an hour, the five exercises two hours more. You need `jax.jit`
# (chapter 01), donation (chapter 06) and the optimizers of `helpers.optim`.
#
# | mark | means |
# |---|---|
# | ❌ | a mistake, and what it costs |
# | ✅ | the way to do it, and the proof |
# | ✍️ | your turn |
# | 🧪 | a check, or a question of the quiz |
# | 💡 | a rule to keep |

# %% tags=["setup"]
import importlib.util
import inspect
import io
import itertools
import math
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TextIO, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax import Array
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jax.typing import ArrayLike
from tensorboardX import SummaryWriter

jax.config.update("jax_num_cpu_devices", 8)  # for section 9.11; before anything is computed

# %% tags=["setup"]
from helpers import (
    COLORS,
    CompileBudget,
    CompileCounter,
    assert_close,
    assert_equal,
    assert_faster,
    check,
    describe,
    figure,
    label_line,
    quiz,
    show_error,
    to64,
)
from helpers.buffers import deleted
from helpers.checkpoints import open_checkpoints, restore, restore_weights, save, saving
from helpers.data import spiral
from helpers.losses import cross_entropy
from helpers.nn import apply_mlp, init_mlp
from helpers.optim import (
    GradientTransformation,
    adam,
    apply_updates,
    chain,
    clip_by_global_norm,
    sgd,
)
from helpers.trainer import Data, Loss, Metrics, OutOfData, Sums
from helpers.training import TrainState, init_state, train_step
from helpers.trees import Tree, clip_to_norm, global_norm

T = TypeVar("T")

# %% [markdown]
# ## 9.1 A total and a count
#
# The chapter trains one small network on three spiral arms: two coordinates in, sixteen hidden
# units, three classes out. Beside each example lies a flag that says whether it is *real*. It is
# true for all of them now, and will not be once batches have to be padded to a common size.


# %% tags=["given"]
x, labels = map(np.asarray, spiral(jax.random.key(0), per_arm=80))
examples = {"x": x, "label": labels, "real": np.ones(240, bool)}
params = jax.jit(init_mlp, static_argnums=1)(jax.random.key(1), (2, 16, 3))


def loss(params, batch):
    """Total cross-entropy of the real examples, and how many there are."""
    values = cross_entropy(apply_mlp(params, batch["x"]), batch["label"])
    return jnp.sum(jnp.where(batch["real"], values, 0.0)), jnp.sum(batch["real"])


def reference(params, batch):
    """Mean loss and its gradient in NumPy float64, from the formulas."""
    (first, last), rows = to64(params), batch["real"]
    x, labels = batch["x"][rows].astype(np.float64), batch["label"][rows]
    hidden = np.tanh(x @ first["w"] + first["b"])
    logits = hidden @ last["w"] + last["b"]
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    value = -np.mean(np.log(shares[np.arange(len(x)), labels]))
    error = (shares - np.eye(3)[labels]) / len(x)
    inner = (error @ last["w"].T) * (1 - hidden**2)
    grads = [{"w": x.T @ inner, "b": inner.sum(0)}, {"w": hidden.T @ error, "b": error.sum(0)}]
    return value, grads


# %% [markdown]
# Why not return the mean, as everybody does? Because the next thing that happens to a mean is that
# it is averaged again: over micro-batches, over the batches of an evaluation set, over devices.
# ❌ A mean of means is the mean only if all parts have the same size. The last batch hardly ever
# has. Here the examples are sorted by their loss, the forty hardest last.

# %% tags=["claim"]
values = to64(jax.jit(lambda p: cross_entropy(apply_mlp(p, x), labels))(params))
parts = np.split(np.sort(values), [100, 200])
sizes = [len(part) for part in parts]
mean_of_means = np.mean([part.mean() for part in parts])
total, count = jax.jit(loss)(params, examples)

print("parts of", *sizes, "· off by more than 2 percent:", mean_of_means > 1.02 * values.mean())
assert sizes == [100, 100, 40]
assert mean_of_means > 1.02 * values.mean()
assert_close(total / count, values.mean(), rtol=1e-6)
assert_close(sum(map(np.sum, parts)) / sum(sizes), values.mean(), rtol=1e-12)

# %% [markdown]
# ✅ Totals and counts are added up, and divided once, at the very end. That is all. It settles
# §9.3, §9.8 and §9.11 in advance. What counts as an example is up to the loss: rows, tokens,
# pixels.
#
# Some losses draw random numbers: dropout, noise, sampling. They have a parameter `rng`, others do
# not, and the trainer looks at the signature once, while it traces.

# %% tags=["given"]
# quote: helpers.trainer.with_rng


def noisy_loss(params, batch, rng):
    """The loss on inputs of which one half is dropped."""
    kept = jax.random.bernoulli(rng, 0.5, batch["x"].shape)
    return loss(params, batch | {"x": 2 * kept * batch["x"]})


# %% tags=["claim"]
keys = [jax.random.key(seed) for seed in (3, 3, 4)]
drawn, plain = (
    [float(program(params, examples, key)[0]) for key in keys]
    for program in (jax.jit(with_rng(noisy_loss)), jax.jit(with_rng(loss)))
)

print("with rng, keys 3, 3, 4: same, other  ", drawn[0] == drawn[1], drawn[1] != drawn[2])
print("without:                same, same   ", plain[0] == plain[1], plain[1] == plain[2])
assert drawn[0] == drawn[1] != drawn[2]
assert plain[0] == plain[1] == plain[2]
kept = np.asarray(jax.random.bernoulli(keys[0], 0.5, x.shape))
by_hand, _ = reference(params, examples | {"x": np.where(kept, 2 * x, 0)})
assert_close(drawn[0] / 240, by_hand, rtol=1e-6)

# %% [markdown]
# 💡 **A loss returns a total and a count. Divide once, at the end.**

# %% [markdown]
# ## 9.2 Any iterable
#
# Data come as a list, as a loader object, as a generator. The last one is a trap. ❌ A generator
# can be read once, and a loop over it ends early without a word:


# %% tags=["claim"]
def ten_batches():
    """A generator of ten batches."""
    yield from range(10)


generator, steps_taken = ten_batches(), 0
while steps_taken < 25:
    before = steps_taken
    for _ in generator:
        steps_taken += 1
    if steps_taken == before:
        break
print(f"asked for 25 steps, took {steps_taken}")
assert steps_taken == 10

# %% [markdown]
# A trainer that counts epochs does not even notice: its second epoch is empty, and so are all
# others. ✅ So a stream of batches has no end. It reads an iterable once more for each epoch, and
# says so when that gives nothing:

# %% tags=["given"]
# quote: helpers.trainer.stream


# quote: helpers.trainer._epochs


# %% tags=["claim"]
twelve = list(itertools.islice(stream(list(range(5))), 12))
print("a list, twelve batches:", *twelve)
assert twelve == [0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0, 1]

squares = list(itertools.islice(stream(lambda number: number**2, 3), 4))
print("a function, from number 3 on:", *squares)
assert squares == [9, 16, 25, 36]
caught = show_error(
    lambda: list(itertools.islice(stream(ten_batches()), 25)),
    expect=OutOfData,
    contains="after 10 batches",
)

# %% [markdown]
# The second kind of data, a *function from a batch's number to the batch*, is the better one. It
# has no state, so nothing needs to be saved, and whoever resumes at batch 9000 asks for number
# 9000. Shuffling fits into it: the order of an epoch is a function of the seed and the epoch.

# %% tags=["given"]
# quote: helpers.trainer.shuffled


# %% tags=["claim"]
batches = shuffled(np.arange(12), 4)
epochs = [[batches(3 * epoch + place).tolist() for place in range(3)] for epoch in range(2)]
for epoch in epochs:
    print(epoch)
    assert sorted(sum(epoch, [])) == list(range(12))
assert epochs[0] != epochs[1]
assert_equal(shuffled(np.arange(12), 4)(5), epochs[1][2])
caught = show_error(shuffled, np.arange(10), 4, expect=ValueError)

# %% [markdown]
# Where a step takes several batches, they are stacked on a new leading axis. The groups run across
# the end of an epoch, so there are never leftovers to be applied or dropped.

# %% tags=["given"]
# quote: helpers.trainer.grouped


# %% tags=["claim"]
groups = grouped(stream([np.full(2, i) for i in range(5)]), 3)
first, second = next(groups), next(groups)
print("groups of three from five batches:", first[:, 0], second[:, 0])
assert first.shape == (3, 2)
assert_equal(second[:, 0], [3, 4, 0])

# %% [markdown]
# 💡 **Count steps, not epochs; and treat data that end as an error.**

# %% [markdown]
# ## 9.3 Gradients that are added up
#
# A batch that does not fit is cut into **micro-batches**. The gradient of the whole is the sum of
# the gradients of the totals, over the sum of the counts: no approximation, just another order of
# additions.

# %% tags=["given"]
# quote: helpers.trainer._wide_zeros


# quote: helpers.trainer.accumulated


# %% [markdown]
# `lax.scan` traces the loss once, however many micro-batches there are, and holds one of them at a
# time. Four micro-batches give what one batch gives, and what float64 gives:


# %% tags=["claim"]
@partial(jax.jit, static_argnames="loss")
def gradient(loss, params, micro_batches, scale=1.0):
    """Mean loss and gradient, with keys that nobody uses."""
    keys = jax.random.split(jax.random.key(0), len(micro_batches["real"]))
    return accumulated(loss, params, micro_batches, keys, scale)


def cut(batch, count):
    """The rows of a batch as `count` equal micro-batches."""
    return jax.tree.map(lambda leaf: leaf.reshape(count, -1, *leaf.shape[1:]), batch)


for count in (1, 4):
    value, grads = gradient(loss, params, cut(examples, count))
    want_value, want_grads = reference(params, examples)
    print(f"{count} micro-batches: loss {value:.4f}")
    assert_close(value, want_value, rtol=1e-6)
    assert_close(grads, want_grads, rtol=1e-4, atol=1e-7)

# %% [markdown]
# The sums are float32 even where the parameters are narrower, and only the end is rounded. Here one
# micro-batch has a slope of 2048 and the 384 behind it have slopes of 1. In float16, 2048 + 1 is
# 2048, so all of these would be lost. The other end is the batch in which nothing is real: its
# gradient is zero, not 0/0.


# %% tags=["claim"]
def slopes(params, batch):
    """A loss whose gradient is the sum of the slopes, and a count of one for the first."""
    return jnp.sum(params["w"] * batch["slope"]), jnp.sum(batch["real"])


micro_batches = {"slope": np.ones((385, 1), np.float32), "real": np.arange(385)[:, None] == 0}
micro_batches["slope"][0] = 2048
_, grads = gradient(slopes, {"w": jnp.float16(0)}, micro_batches)
print(f"slopes added up: {float(grads['w']):.0f}, in {grads['w'].dtype}")
assert grads["w"] == 2048 + 384 and grads["w"].dtype == jnp.float16
assert np.float16(2048) + np.float16(1) == 2048

unreal = cut(examples | {"real": np.zeros(240, bool)}, 4)
assert_close(gradient(loss, params, unreal), (0.0, jax.tree.map(np.zeros_like, params)), rtol=0)

# %% [markdown]
# Now the unequal case. A hundred examples in micro-batches of at most thirty-two: the last one has
# four rows and is padded. The padding is not real, so it is neither in the total nor in the count.


# %% tags=["given"]
def padded(batch, rows):
    """The batch with rows that are not real, up to `rows`."""
    missing = rows - len(batch["real"])
    return jax.tree.map(
        lambda leaf: np.pad(leaf, [(0, missing)] + [(0, 0)] * (leaf.ndim - 1)), batch
    )


def rows_from(batch, start, count):
    """Up to `count` rows of a batch."""
    return jax.tree.map(lambda leaf: leaf[start : start + count], batch)


def micro_batches_of(batch, rows):
    """The batch cut into micro-batches of `rows`, the last one padded, on a new leading axis."""
    starts = range(0, len(batch["real"]), rows)
    parts = [padded(rows_from(batch, start, rows), rows) for start in starts]
    return jax.tree.map(lambda *leaves: np.stack(leaves), *parts)


def mean_loss(params, batch):
    """A loss as most are: a mean. For the trainer it counts as one example."""
    total, count = loss(params, batch)
    return total / count, 1


# %% [markdown]
# ❌ A loss that returns a mean makes each micro-batch count as much as any other: four rows weigh
# as much as thirty-two. One of the most used trainers did this (transformers#34191). ✅ With totals
# and counts the gradient is that of the hundred rows.

# %% tags=["claim"]
shuffle = np.random.default_rng(0).permutation(240)
hundred = jax.tree.map(lambda leaf: leaf[shuffle[:100]], examples)
cut_up = micro_batches_of(hundred, 32)
print("real rows of each:", cut_up["real"].sum(axis=1))
assert_equal(cut_up["real"].sum(axis=1), [32, 32, 32, 4])


def distance(grads, want):
    """How far a gradient is from another, in lengths of the other."""
    flat = [np.concatenate([np.ravel(to64(x)) for x in jax.tree.leaves(t)]) for t in (grads, want)]
    return np.linalg.norm(flat[0] - flat[1]) / np.linalg.norm(flat[1])


_, want = reference(params, hundred)
for name, fn in (("totals and counts", loss), ("mean of means", mean_loss)):
    off = distance(gradient(fn, params, cut_up)[1], want)
    print(f"{name:18} {'right' if off < 1e-5 else 'wrong'}")
    assert (off < 1e-5) == (fn is loss)
    assert off < 1e-5 or off > 0.02

# %% tags=["figure"]
fig, ax = figure(
    "A small last micro-batch spoils the mean of means",
    "rows in the last of four micro-batches, the others have 32",
    "error of the gradient (share of its length)",
)
last_rows = [1, 2, 4, 8, 12, 16, 20, 24, 28, 32]
errors = {loss: [], mean_loss: []}
for rows in last_rows:
    some = jax.tree.map(lambda leaf: leaf[shuffle[: 96 + rows]], examples)
    for fn, found in errors.items():
        grads = gradient(fn, params, micro_batches_of(some, 32))[1]
        found.append(distance(grads, reference(params, some)[1]))
for fn, name, color in (
    (mean_loss, "mean of means", COLORS.wrong),
    (loss, "totals and counts", COLORS.right),
):
    ax.plot(last_rows, errors[fn], "o-", color=color)
    ax.annotate(
        name, (last_rows[3], errors[fn][3]), xytext=(8, 6), textcoords="offset points",
        color=color, fontweight="bold",
    )  # fmt: skip
ax.set_ylim(bottom=-0.03)
assert max(errors[loss]) < 1e-5 < 0.02 < max(errors[mean_loss])
assert errors[mean_loss][-1] < 1e-5 and errors[mean_loss][0] > 4 * errors[mean_loss][5]
describe(
    fig,
    "Error of the accumulated gradient against the rows of the last micro-batch. The mean of means "
    "is far off for one row and right only for 32; totals and counts are right throughout.",
)

# %% [markdown]
# What it buys is memory: activations of one micro-batch in place of all. The compiled programs say
# how much, here for four thousand rows and a wider network.


# %% tags=["claim"]
def side_memory(count):
    """Bytes of temporary memory of the gradient of 4096 rows in `count` micro-batches."""
    wide = jax.eval_shape(partial(init_mlp, sizes=(2, 256, 3)), jax.random.key(0))
    rows = {"x": (np.float32, (2,)), "label": (np.int32, ()), "real": (bool, ())}
    batch = {
        name: jax.ShapeDtypeStruct((count, 4096 // count, *shape), dtype)
        for name, (dtype, shape) in rows.items()
    }
    return gradient.lower(loss, wide, batch).compile().memory_analysis().temp_size_in_bytes


ratio = side_memory(1) / side_memory(16)
print("one batch needs more than eight times the memory of sixteen micro-batches:", ratio > 8)
assert ratio > 8

# %% [markdown]
# 💡 **Accumulated equals large, if totals and counts are what is added up.**

# %% [markdown] exercise="9.1"
# Most losses you meet return a mean, and have no mask. Write
# `accumulated_grad(loss, params, batch, rows)` for them.
#
# - `batch` is a pytree of arrays with a leading axis of n rows each, n ≥ 1; `loss(params, batch)`
#   is the mean over the rows of the batch it gets, a scalar.
# - The result is `(value, grads)`, that of `jax.value_and_grad(loss)(params, batch)`. The gradient
#   has the structure and the dtypes of `params`.
# - The loss is never called with more than `rows` rows, and no more than that is held in memory:
#   the temporary memory of the compiled program stays below one hidden layer for all n rows, which
#   has no room for a gradient of each micro-batch.
# - n may be a multiple of `rows` or not, or smaller than `rows`. There is no mask, so nothing can
#   be padded.
# - Where params are float16, everything is added up in float32.
# - It is called inside a `jax.jit` of the check, with `loss` and `rows` fixed. The loss may be
#   traced eight times at most, whatever n.


# %% tags=["starter"] exercise="9.1"
def accumulated_grad(loss, params, batch, rows):
    """Value and gradient of a mean loss on the whole batch, `rows` rows at a time."""
    ### BEGIN SOLUTION
    n = len(jax.tree.leaves(batch)[0])
    full = n // rows

    def add(sums, part):
        share = len(jax.tree.leaves(part)[0]) / n
        found = jax.value_and_grad(loss)(params, part)
        return jax.tree.map(lambda s, f: s + share * f.astype(s.dtype), sums, found), None

    sums = jnp.zeros(()), jax.tree.map(lambda p: jnp.zeros(p.shape, jnp.float32), params)
    if full:
        head = jax.tree.map(lambda x: x[: full * rows].reshape(full, rows, *x.shape[1:]), batch)
        sums, _ = jax.lax.scan(add, sums, head)
    if n % rows:
        sums, _ = add(sums, jax.tree.map(lambda x: x[full * rows :], batch))
    value, grads = sums
    return value, jax.tree.map(lambda g, p: g.astype(p.dtype), grads, params)
    ### END SOLUTION


# %% [markdown]
# ## 9.4 One step, one state
#
# Here is all that a run remembers. `train` holds the parameters, the optimizer's state and the
# number of its steps, as in chapter 06. The key is never changed: each batch gets
# `fold_in(key, its number)`, so the randomness of a step is a function of where the run stands.
# `batches` is where it stands in the data. `average` and `scale` are there only if they are wanted.

# %% tags=["given"]
# quote: helpers.trainer.Run


# quote: helpers.trainer.start


# %% [markdown]
# `start` copies everything. The step donates the run, and it is your parameters that would be gone.
#
# The step itself adds up gradients, looks whether they are finite, and decides **on the device**
# whether anything moves. All of that is one jitted function; no number comes to the host for it.

# %% tags=["given"]
# quote: helpers.training.descend


# quote: helpers.trainer.all_finite


# quote: helpers.trainer.select


# quote: helpers.trainer.run_step


# %% [markdown]
# First proof: one step of gradient descent is float64's, and everything that came out is in the
# buffers of what went in.

# %% tags=["claim"]
descent = sgd(0.5, momentum=0.9)
run = start(params, descent, jax.random.key(2))
given_run = run
run, logs = run_step(loss, run, cut(examples, 1))

value, grads = reference(params, examples)
stepped = jax.tree.map(lambda p, g: to64(p) - 0.5 * g, params, grads)
print("logs:", *sorted(logs), "· steps", run.train.step, "· batches", run.batches)
assert_close(run.train.params, stepped, rtol=1e-5, atol=1e-7)
assert_close(logs["loss"], value, rtol=1e-6)
assert (int(run.train.step), int(run.batches)) == (1, 1)
assert all(deleted(given_run)) and not any(deleted(params))

# %% [markdown]
# Each batch got a key of its own. A run that stands at batch six takes two at once, and these two
# draw with the keys of six and seven:

# %% tags=["claim"]
halves, key = cut(examples, 2), jax.random.key(2)
by_hand = [
    noisy_loss(params, {name: leaf[i] for name, leaf in halves.items()}, jax.random.fold_in(key, n))
    for i, n in enumerate((6, 7))
]
run = replace(start(params, descent, key), batches=jnp.int32(6))
run, logs = run_step(noisy_loss, run, halves)
print("the loss of batches 6 and 7, each with its key · next is batch", run.batches)
assert_close(logs["loss"], sum(to64(total) for total, _ in by_hand) / 240, rtol=1e-6)
assert int(run.batches) == 8

# %% [markdown]
# **Clipping** needs no option of the trainer, for it is a link of the optimizer. What is logged is
# the length before it, for that is what you want to see.

# %% tags=["claim"]
clipped = chain(clip_by_global_norm(0.01), sgd(1.0))
run, logs = run_step(loss, start(params, clipped, jax.random.key(2)), cut(examples, 1))
moved = jax.tree.map(lambda new, old: new - old, run.train.params, params)
length = float(global_norm(reference(params, examples)[1]))

print(f"gradient longer than 0.01: {length > 0.01}, moved by {float(global_norm(moved)):.4f}")
assert_close(logs["grad_norm"], length, rtol=1e-4)
assert_close(global_norm(moved), 0.01, rtol=1e-3)

# %% [markdown]
# ❌ **One broken batch.** A single NaN among the inputs makes the loss NaN, all gradients NaN, and
# all parameters NaN from then on. Clipping does not help. This is what the plain step of chapter 06
# does with it, because nobody looks:

# %% tags=["claim"]
broken = jax.tree.map(np.copy, examples)
broken["x"][17] = np.nan


def mean_of(params, batch):
    """The mean alone."""
    return mean_loss(params, batch)[0]


plain_state, _ = train_step(mean_of, init_state(jax.tree.map(np.array, params), descent), broken)
ruined = [bool(jnp.all(jnp.isnan(leaf))) for leaf in jax.tree.leaves(plain_state.params)]
print("leaves that are NaN throughout:", sum(ruined), "of", len(ruined))
assert ruined == [True] * 4

# %% [markdown]
# ✅ The trainer's step moves nothing: parameters and momentum stay bit for bit as they were. Only
# the place in the data goes on, for this batch has been seen.

# %% tags=["claim"]
run = start(params, descent, jax.random.key(2))
run, _ = run_step(loss, run, cut(examples, 1))
before = jax.tree.map(np.array, run.train)
run, logs = run_step(loss, run, cut(broken, 1))

print("finite:", bool(logs["finite"]), "· steps", run.train.step, "· batches", run.batches)
after = jax.tree.map(np.array, run.train)
for old, new in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
    assert_equal(new, old)
assert (bool(logs["finite"]), int(run.train.step), int(run.batches)) == (False, 1, 2)

# %% [markdown]
# It is a choice between whole trees. A product with zero would not do, since 0 · NaN is NaN; and it
# looks at each entry, not at the norm, which can overflow where no entry does.

# %% tags=["claim"]
large = {"w": jnp.array([1e25, 1.0])}
entries, norm = bool(all_finite(large)), bool(jnp.isfinite(global_norm(large)))
print("entries finite:", entries, "· norm finite:", norm)
assert entries and not norm
assert np.isnan(0.0 * float("nan"))

# %% [markdown]
# 💡 **What a run needs in order to go on is in the run; what is broken moves nothing.**

# %% [markdown]
# ## 9.5 Half precision
#
# A float16 takes half the memory of a float32. Its numbers end at 65504, and the smallest one above
# zero is 6e-8. It is the lower end that hurts: gradients *underflow*. Late in training they are
# small, and what is below half of the smallest number is zero.


# %% tags=["given"]
def half_loss(params, batch):
    """The loss with the network in float16. Exponentials and sums are float32's business."""
    params, x = jax.tree.map(lambda leaf: leaf.astype(jnp.float16), (params, batch["x"]))
    logits = apply_mlp(params, x).astype(jnp.float32)
    return jnp.sum(cross_entropy(logits, batch["label"])), len(logits)


# %% [markdown]
# ❌ A linear classifier that has learnt its task shows it: its margins are around nineteen, so the
# slopes towards the wrong class are around 1e-9. In float16 nothing is left of them. ✅ Multiplied
# by 2¹⁵ before it goes backward, and divided by it in float32 afterwards, the gradient is there.

# %% tags=["claim"]
sure = [{"w": jnp.array([[19.0, 0.0], [0.0, 19.0]]), "b": jnp.zeros(2)}]
easy = {"x": np.eye(2, dtype=np.float32), "label": np.arange(2), "real": np.ones(2, bool)}
slope = 0.5 / (1 + np.exp(19.0))  # in float64, for the weights of the wrong class
for scale in (1.0, 2.0**15):
    grads = gradient(half_loss, sure, cut(easy, 1), scale)[1]
    wrong_class = to64(grads[0]["w"])[[0, 1], [1, 0]]
    print(f"scale {scale:7.0f}: slopes that are zero {np.sum(wrong_class == 0)} of 2")
    assert np.sum(wrong_class == 0) == (2 if scale == 1 else 0)
assert 1e-9 < slope < 1e-8
assert_close(wrong_class, [slope, slope], rtol=2e-3)
limits = np.finfo(np.float16)
assert float(limits.max) == 65504 and f"{float(limits.smallest_subnormal):.0e}" == "6e-08"
assert float(np.float16(0.49 * float(limits.smallest_subnormal))) == 0

# %% [markdown]
# A power of two only moves the exponent. Where nothing under- or overflows it does not change a
# single bit:

# %% tags=["claim"]
bare = gradient(loss, params, cut(examples, 4), 1.0)
scaled = gradient(loss, params, cut(examples, 4), 2.0**10)
print("float32 gradients, scaled by 1024: the same bits")
for a, b in zip(jax.tree.leaves(bare), jax.tree.leaves(scaled), strict=True):
    assert_equal(a, np.asarray(b))

# %% [markdown]
# Which power? As large as it goes without overflow, and that changes during a run. So the scale is
# **dynamic**: part of the state, halved whenever a gradient was not finite, and doubled after a
# long series of good steps, of 2000 if nothing else is said. The step that overflowed is skipped,
# which §9.4 already does.

# %% tags=["given"]
# quote: helpers.trainer.LossScale


# quote: helpers.trainer.loss_scale


# quote: helpers.trainer.adjusted


# %% tags=["claim"]
adjust = jax.jit(adjusted)
scale, history = loss_scale(initial=8.0, interval=3), []
for finite in (*6 * [True], False, True, True, False, True, True, True):
    scale = adjust(scale, finite)
    history.append(float(scale.value))
print(history)
assert history == [8, 8, 16, 16, 16, 32, 16, 16, 16, 8, 8, 8, 16]
assert (float(loss_scale().value), loss_scale().interval) == (2.0**15, 2000)

# %% [markdown]
# The limits matter as much as the rule. ❌ Without an upper one the scale of a run that never
# overflows doubles on until it is infinite, and then no step is good any more (flax#2547).

# %% tags=["claim"]
scale = loss_scale(2.0**23, interval=1)
for _ in range(200):
    scale = adjust(scale, True)
unlimited = float(jnp.float32(2.0**100) * jnp.float32(2.0**100))
print("after 200 good steps:", int(scale.value), "· without a limit:", unlimited)
assert unlimited == math.inf
assert float(scale.value) == 2.0**24
for _ in range(200):
    scale = adjust(scale, False)
assert float(scale.value) == 1

# %% [markdown]
# Now a whole run in float16, on purpose with a first scale that is far too large. The steps that
# overflow are skipped, the scale comes down by itself, and from then on it tries a larger one every
# twenty good steps.

# %% tags=["claim", "nbval-ignore-output"]
momentum = chain(clip_by_global_norm(1.0), adam(0.01))
run = start(params, momentum, jax.random.key(2), scale=loss_scale(2.0**24, interval=20))
seen = []
for number in range(120):
    batch = jax.tree.map(lambda leaf: leaf[None], shuffled(examples, 60)(number))
    run, logs = run_step(half_loss, run, batch)
    seen.append({name: float(value) for name, value in logs.items()})
scales, finite = ([entry[name] for entry in seen] for name in ("scale", "finite"))

want = loss_scale(2.0**24, interval=20)
for used, good in zip(scales, finite, strict=True):
    assert float(want.value) == used
    want = adjust(want, good)
print("skipped:", finite.count(0), "of 120 steps, the first", finite.index(1), "of them in a row")
assert not finite[0] and 0 < finite.count(0) < 30
assert int(run.train.step) == finite.count(1) and int(run.batches) == 120
assert bool(all_finite(run.train.params))
assert reference(run.train.params, examples)[0] < 0.9 * reference(params, examples)[0]

# %% tags=["figure"]
fig, ax = figure(
    "The scale finds its own level",
    "step",
    "loss scale (log scale)",
)
ax.semilogy(range(120), scales, color=COLORS.right, base=2, drawstyle="steps-post")
skipped = [number for number, good in enumerate(finite) if not good]
ax.plot(skipped, [scales[number] for number in skipped], "o", color=COLORS.wrong)
ax.annotate(
    "skipped steps",
    (skipped[0], scales[skipped[0]]),
    xytext=(10, -2),
    textcoords="offset points",
    color=COLORS.wrong,
    fontweight="bold",
    va="center",
)
ax.set_yticks([2.0**p for p in (12, 16, 20, 24)], ["2¹²", "2¹⁶", "2²⁰", "2²⁴"])
assert scales[0] == 2.0**24 and min(scales) < 2.0**24
describe(
    fig,
    "Loss scale over 120 steps: it starts at 2²⁴, is halved by each of the first, skipped steps, "
    "and then stays at a level, which it leaves upwards every 20 good steps.",
)

# %% [markdown]
# ❌ One thing must not be changed: the order. A limit that is applied to a *scaled* gradient clips
# nearly everything, to a length that nobody asked for. Unscale, then look whether it is finite,
# then clip. The trainer's optimizer only ever sees unscaled gradients.

# %% tags=["claim"]
vector = {"w": jnp.array([3.0, 4.0])}
scaled = jax.tree.map(lambda g: 1024 * g, vector)
clipped_first = jax.tree.map(lambda g: g / 1024, clip_to_norm(scaled, 10.0))
unscaled_first = clip_to_norm(jax.tree.map(lambda g: g / 1024, scaled), 10.0)
print(f"clipped, then unscaled: length {float(global_norm(clipped_first)):.4f}")
print(f"unscaled, then clipped: length {float(global_norm(unscaled_first)):.4f}")
assert_close(global_norm(clipped_first), 10 / 1024, rtol=1e-6)
assert_equal(global_norm(unscaled_first), np.array(5.0))

# %% [markdown]
# 💡 **Scale by powers of two; unscale in float32; then look, then clip, then step.**

# %% [markdown] exercise="9.2"
# A single odd batch should not halve the scale. Write a machine with patience, in three functions.
#
# - `start_scale(initial)` returns a state, a dict with the scale under `"scale"`, a float32 scalar;
#   what else is in it is yours. `initial` lies between 1 and 2²⁴.
# - `next_scale(state, finite, interval, patience)` returns the state after a step. `interval`
#   finite steps in a row double the scale; `patience` steps in a row that are not finite halve it.
#   Each such change starts both counts anew; so does, for the other series, every step that breaks
#   it. The scale never leaves the range from 1 to 2²⁴: a change that would leads to its end.
# - `unscale(state, grads)` returns `(fair, finite)`: the gradients divided by the scale, all in
#   float32, and a bool scalar that says whether *all* entries of all leaves are finite. If they are
#   not, all entries of all leaves of `fair` are zero. Leaves are float16 or float32; no finite
#   entry may vanish or overflow that float32 could hold.
#
# All of it may be traced: `next_scale` inside a `lax.scan`, where `finite`, `interval` and
# `patience` are tracers.


# %% tags=["starter"] exercise="9.2"
def start_scale(initial):
    """The state before the first step."""
    ### BEGIN SOLUTION
    return {"scale": jnp.float32(initial), "good": jnp.int32(0), "bad": jnp.int32(0)}
    ### END SOLUTION


def next_scale(state, finite, interval, patience):
    """The state after a step that was finite or not."""
    ### BEGIN SOLUTION
    good = jnp.where(finite, state["good"] + 1, 0)
    bad = jnp.where(finite, 0, state["bad"] + 1)
    up, down = good >= interval, bad >= patience
    factor = jnp.where(up, 2.0, jnp.where(down, 0.5, 1.0))
    return {
        "scale": jnp.clip(state["scale"] * factor, 1.0, 2.0**24),
        "good": jnp.where(up, 0, good),
        "bad": jnp.where(down, 0, bad),
    }
    ### END SOLUTION


def unscale(state, grads):
    """(gradients without the scale or zeros, whether all of them are finite)."""
    ### BEGIN SOLUTION
    fair = jax.tree.map(lambda g: g.astype(jnp.float32) / state["scale"], grads)
    finite = jnp.all(jnp.array([jnp.all(jnp.isfinite(g)) for g in jax.tree.leaves(fair)]))
    return jax.tree.map(lambda g: jnp.where(finite, g, 0.0), fair), finite
    ### END SOLUTION


# %% [markdown]
# ## 9.6 An average that forgets its start
#
# The parameters of a run jitter around where they are going. An **exponential moving average**,
# `average ← decay · average + (1 − decay) · params`, jitters less. It is two lines, and there are
# three ways to get it wrong.
#
# ❌ *Start at the parameters*, and the random start keeps a weight of decayᵗ. ❌ *Start at zero*,
# and the average is too short by the factor 1 − decayᵗ. With a decay of 0.99, after fifty steps:

# %% tags=["claim"]
decay, t = 0.99, 50
weights_of_steps = (1 - decay) * decay ** np.arange(t - 1, -1, -1)
print(f"the random start weighs {decay**t:.1%}, all steps together {weights_of_steps.sum():.1%}")
assert 0.60 < decay**t < 0.61
assert_close(weights_of_steps.sum(), 1 - decay**t, rtol=1e-12)

# %% [markdown]
# ✅ Start at zero and divide by what the weights add up to. Adam does the same with its moments.
# The parameters below are bfloat16; their average is float32, and float64's but for its rounding.

# %% tags=["given"]
# quote: helpers.trainer.Average


# quote: helpers.trainer.average_of


# quote: helpers.trainer.averaged


# quote: helpers.trainer.corrected


# %% tags=["claim"]
path = jnp.asarray(np.random.default_rng(0).normal(size=(20, 3)), jnp.bfloat16)
average, update = average_of({"w": path[0]}, 0.9), jax.jit(averaged)
for number, point in enumerate(path, 1):
    average = update(average, {"w": point})
    shares = 0.9 ** np.arange(number - 1, -1, -1)
    want = shares @ to64(path[:number]) / shares.sum()
    assert_close(corrected(average)["w"], want, rtol=1e-5, atol=1e-6)
    if number == 1:
        assert_close(average.total["w"], 0.1 * to64(point), rtol=1e-6)
print("20 updates: each corrected average is float64's weighted mean")

# %% tags=["figure"]
fig, ax = figure(
    "Only the corrected average forgets its start",
    "step",
    "a parameter",
)
noisy = 2.0 + 0.5 * np.random.default_rng(3).standard_normal(80)
curves = {"params": noisy, "starts at params": [], "starts at zero, corrected": []}
poor, fair = -1.0, 0.0
for step_number, point in enumerate(noisy, 1):
    poor, fair = 0.97 * poor + 0.03 * point, 0.97 * fair + 0.03 * point
    curves["starts at params"].append(poor)
    curves["starts at zero, corrected"].append(fair / (1 - 0.97**step_number))
colors = (COLORS.reference, COLORS.wrong, COLORS.right)
for (name, curve), color in zip(curves.items(), colors, strict=True):
    (drawn_line,) = ax.plot(curve, color=color, lw=1 if name == "params" else 2)
    label_line(drawn_line, name, dy={"params": -8, "starts at params": -4}.get(name, 5))
ax.set_ylim(-1.2, 4.0)
assert np.std(curves["starts at zero, corrected"][20:]) < 0.5 * np.std(noisy[20:])
assert max(abs(value - 2) for value in curves["starts at zero, corrected"][9:]) < 0.4
assert min(abs(value - 2) for value in curves["starts at params"][:30]) > 1
describe(
    fig,
    "A noisy parameter around 2 over 80 steps. The average that starts at the untrained value -1 "
    "needs the whole run to come near; the corrected one is there from the beginning.",
)

# %% [markdown]
# ❌ *Keep it in bfloat16*, "because the parameters are", and it never moves at all: at a decay of
# 0.999 an update is a thousandth of the distance, and bfloat16 has two to three digits.


# %% tags=["claim"]
def drift(dtype):
    """How far an average at 1 comes towards parameters of 2 in 100 updates."""

    def update(_, average):
        return (0.999 * average + 0.001 * jnp.asarray(2.0, dtype)).astype(dtype)

    return float(jax.lax.fori_loop(0, 100, update, jnp.ones((), dtype))) - 1


print(f"float32 moved by {drift(jnp.float32):.4f}, bfloat16 by {drift(jnp.bfloat16):.4f}")
assert drift(jnp.bfloat16) == 0
assert_close(drift(jnp.float32), 1 - 0.999**100, rtol=1e-4)

# %% [markdown]
# One detail of `corrected`: the weights add up to 1 − decayᵗ, and written like that float32 loses
# digits to cancellation at the first steps. `expm1` does not.

# %% tags=["claim"]
exact = 1 - 0.9999
naive = float(np.float32(1) - np.float32(0.9999))
careful = float(-jnp.expm1(jnp.float32(math.log(0.9999))))
print("1 − decay is off by more than 1e-5:", abs(naive / exact - 1) > 1e-5)
assert abs(naive / exact - 1) > 1e-5 > 1e-6 > abs(careful / exact - 1)

# %% [markdown]
# Averaged weights are what is evaluated and kept, if there are any; otherwise the parameters
# themselves. `weights` is jitted, so what it returns has buffers of its own, also where nothing is
# computed: later steps leave it alone.

# %% tags=["given"]
# quote: helpers.trainer.weights


# %% tags=["claim"]
sixty = cut(rows_from(examples, 90, 60), 1)
run = start(params, momentum, jax.random.key(2), average=0.95)
at_first = weights(run)
run, _ = run_step(loss, run, sixty)
after_one = weights(run)
run, _ = run_step(loss, run, sixty)

no_average = start(params, momentum, jax.random.key(2))
as_they_are = weights(no_average)
run_step(loss, no_average, sixty)

alive = not any(deleted((at_first, after_one))), not any(deleted(as_they_are))
print("alive after donating steps, with an average and without:", *alive)
assert alive == (True, True) and all(deleted(no_average))
assert_close(at_first, to64(params), rtol=0)
shares = np.array([0.95, 1.0]) / 1.95
both = to64(after_one), to64(run.train.params)
want = jax.tree.map(lambda a, b: shares[0] * a + shares[1] * b, *both)
assert_close(weights(run), want, rtol=1e-5, atol=1e-6)

# %% [markdown]
# A step that is not taken leaves no trace in the average either. And the weights have the dtypes of
# the parameters: who evaluates in bfloat16 goes on doing so.

# %% tags=["claim"]
settled = to64(weights(run))
run, logs = run_step(loss, run, cut(rows_from(broken, 0, 60), 1))
assert not logs["finite"]
assert_close(weights(run), settled, rtol=0)

narrow = jax.tree.map(lambda p: p.astype(jnp.bfloat16), params)
dtypes = {
    leaf.dtype for leaf in jax.tree.leaves(weights(start(narrow, momentum, key, average=0.9)))
}
print("after a broken step the same average; bfloat16 parameters are read as", *dtypes)
assert dtypes == {jnp.dtype(jnp.bfloat16)}

# %% [markdown]
# 💡 **Average in float32, from zero, and divide by the sum of the weights.**

# %% [markdown] exercise="9.3"
# Many recipes let the decay grow during a run. Then 1 − decayᵗ is no longer the sum of the weights.
# Write an average in three functions.
#
# - `start_average(params)` returns a state, any pytree.
# - `update_average(state, params, decay, used)` returns the state after one update. `decay` is a
#   float32 scalar in (0, 1), another one at each call; `used` a bool scalar. Where it is false the
#   params, which may be NaN, leave no trace.
# - `read_average(state)` returns a tree like the params. Let the updates that were used have decays
#   d₁ … dₜ. Then update i weighs (1 − dᵢ) · dᵢ₊₁ · … · dₜ, and a floating leaf is the weighted mean
#   of that leaf, its weights divided by their sum. It is read in float32, whatever the dtype of the
#   parameter, and computed in float32 too. An integer leaf is that of the latest params that were
#   used, in its dtype.
# - Before the first used update it reads the params that it was started with, floating leaves in
#   float32; they have no weight afterwards.
#
# All three are traced, `update_average` inside a `lax.scan`. The check uses decays up to 0.98.


# %% tags=["starter"] exercise="9.3"
def start_average(params):
    """The state before any update."""
    ### BEGIN SOLUTION
    return {"mean": jax.tree.map(_wide, params), "weight": jnp.zeros(())}


def _wide(leaf):
    return leaf.astype(jnp.float32) if jnp.issubdtype(leaf.dtype, jnp.floating) else leaf
    ### END SOLUTION


def update_average(state, params, decay, used):
    """The state with one more set of parameters in it, if they are used."""
    ### BEGIN SOLUTION
    weight = decay * state["weight"] + (1 - decay)
    share = (1 - decay) / weight

    def one(mean, p):
        new = mean + share * (_wide(p) - mean) if mean.dtype == jnp.float32 else p
        return jnp.where(used, new, mean)

    mean = jax.tree.map(one, state["mean"], params)
    return {"mean": mean, "weight": jnp.where(used, weight, state["weight"])}
    ### END SOLUTION


def read_average(state):
    """The weighted mean of all that was used."""
    ### BEGIN SOLUTION
    return state["mean"]
    ### END SOLUTION


# %% [markdown]
# ## 9.7 The loop and those who are told
#
# Around the step goes a loop. It takes a run to a step *number*, counted from the beginning of the
# run, so a resumed run needs no arithmetic. After each step it tells a list of **callbacks**, plain
# functions that get a report. One that returns True ends the run.

# %% tags=["given"]
# quote: helpers.trainer.Report


Callback = Callable[[Report], object]


# quote: helpers.trainer.every


# quote: helpers.trainer.fit


# %% [markdown]
# `prefetch` in it makes batches ahead and is the subject of §9.9. Until then it is enough
# that it gives what comes:

# %% tags=["given"]
# quote: helpers.trainer.prefetch


# %% [markdown]
# A whole run is **one compilation**: no Python number changes from step to step, and the shapes
# don't either.


# %% tags=["claim"]
def begin():
    """A run with an average."""
    return start(params, momentum, jax.random.key(2), average=0.95)


losses = []
jax.clear_caches()
with CompileCounter(only="run_step") as counter:
    run = fit(begin(), loss, shuffled(examples, 60), steps=100,
              callbacks=[lambda report: losses.append(report.logs["loss"])])  # fmt: skip
assert counter.count == 1

print(f"100 steps, 1 compilation, loss down: {losses[-1] < 0.9 * losses[0]}")
assert len(losses) == 100 and int(run.train.step) == 100
assert float(losses[-1]) < 0.9 * float(losses[0])

# %% [markdown]
# A callback that ends the run silences nobody: the others hear of that step too. And what was ended
# can go on, to a later number.

# %% tags=["claim"]
heard = []
tell = [lambda report: report.step == 3, lambda report: heard.append(report.step)]
ended = fit(begin(), loss, [examples], steps=100, callbacks=tell)
assert int(ended.train.step) == 3 and heard == [1, 2, 3]

longer = fit(ended, loss, [examples], steps=5, callbacks=tell)
print("steps that were told:", heard)
assert int(longer.train.step) == 5 and heard == [1, 2, 3, 4, 5]

# %% [markdown]
# A callback runs between two steps, so the run that it gets is alive, all of it: it was returned by
# one step and not yet given to the next. Here one reads the parameters after every step, while the
# step donates them.

# %% tags=["claim"]
read = []
fit(start(params, descent, jax.random.key(2)), loss, [examples], steps=3,
    callbacks=[lambda report: read.append(to64(report.run.train.params))])  # fmt: skip

want = to64(params)
trace = jax.tree.map(np.zeros_like, want)
for got in read:
    trace = jax.tree.map(lambda t, g: 0.9 * t + g, trace, reference(want, examples)[1])
    want = jax.tree.map(lambda p, t: p - 0.5 * t, want, trace)
    assert_close(got, want, rtol=1e-4, atol=1e-5)
print("read after each of 3 steps: float64's parameters")

# %% [markdown]
# ❌ What it must not do is *keep* what it was given. The next step takes the buffers, and the list
# holds handles on nothing. ✅ `weights(run)` and `jnp.copy` make copies.

# %% tags=["claim"]
kept_runs, kept_weights = [], []
fit(start(params, descent, jax.random.key(2)), loss, [examples], steps=3,
    callbacks=[lambda report: kept_runs.append(report.run),
               lambda report: kept_weights.append(weights(report.run))])  # fmt: skip

for what, kept in (("run", kept_runs), ("copy of the weights", kept_weights)):
    fates = ("gone" if any(deleted(each)) else "alive" for each in kept)
    print(f"{what} kept at steps 1, 2, 3:", ", ".join(fates))
assert [any(deleted(run)) for run in kept_runs] == [True, True, False]
assert not any(deleted(kept_weights))
caught = show_error(
    lambda: kept_runs[0].train.params[0]["w"] + 1, expect=RuntimeError, contains="deleted"
)

# %% [markdown]
# What is in the logs are arrays that may not be computed yet. A callback that turns one into a
# number waits for the step; `every` keeps that rare. A progress bar is such a one:

# %% tags=["given"]
# quote: helpers.trainer.progress_bar


# %% tags=["claim"]
screen = io.StringIO()
fit(begin(), loss, shuffled(examples, 60), steps=30,
    callbacks=[every(10, progress_bar(30, out=screen))])  # fmt: skip
frames = screen.getvalue().split("\r")[1:]
for frame in frames:
    print(frame.split(" loss")[0])
bars = "█" * 6 + "·" * 14, "█" * 13 + "·" * 7, "█" * 20
assert [frame.split()[:2] for frame in frames] == [
    [bar, f"{step}/30"] for bar, step in zip(bars, (10, 20, 30), strict=True)
]
assert [frame.endswith("\n") for frame in frames] == [False, False, True]

# %% [markdown]
# And TensorBoard is a writer that is handed every number in the logs. To see that they arrive, the
# file is read back: a record is a length, a checksum, a message and another checksum.

# %% tags=["given"]
# quote: helpers.trainer.ScalarWriter


# quote: helpers.trainer.tensorboard


def scalars_in(folder):
    """(step, name, value) of all scalars in TensorBoard's file in a folder."""
    from tensorboardX.proto.event_pb2 import Event

    (path,) = Path(folder).glob("events*")
    data = path.read_bytes()
    while data:
        length = int.from_bytes(data[:8], "little")
        event, data = Event.FromString(data[12 : 12 + length]), data[16 + length :]
        yield from ((event.step, v.tag, v.simple_value) for v in event.summary.value)


# %% tags=["claim"]
losses = {}
with tempfile.TemporaryDirectory() as folder:
    writer = SummaryWriter(folder)
    fit(begin(), loss, shuffled(examples, 60), steps=8,
        callbacks=[lambda report: losses.update({report.step: float(report.logs["loss"])}),
                   every(2, tensorboard(writer))])  # fmt: skip
    writer.close()
    written = list(scalars_in(folder))

points = {step: value for step, name, value in written if name == "loss"}
print("steps:", *points, "· names:", *sorted({name for _, name, _ in written}))
assert list(points) == [2, 4, 6, 8]
assert points == {step: losses[step] for step in points}

# %% [markdown]
# 💡 **A callback may read everything and keep copies.**

# %% [markdown]
# ## 9.8 Evaluation, and the best model
#
# Evaluation batches come in all sizes, so metrics are totals and counts as well. They are summed on
# the host, in float64, and divided once.

# %% tags=["given"]
# quote: helpers.trainer._measured


# quote: helpers.trainer.evaluate


def metrics(params, batch):
    """Loss and accuracy as totals and counts."""
    total, count = loss(params, batch)
    hits = jnp.argmax(apply_mlp(params, batch["x"]), axis=-1) == batch["label"]
    return {"loss": (total, count), "accuracy": (jnp.sum(hits & batch["real"]), count)}


# %% [markdown]
# The run goes on to step 300, and is evaluated on three batches of 100, 100 and 40 rows. The last
# one is padded, so that all have one shape and one program. ❌ Averaging the accuracies of the
# batches gives another number.

# %% tags=["claim"]
run = fit(run, loss, shuffled(examples, 60), steps=300)
trained = weights(run)
parts = [rows_from(examples, start, 100) for start in (0, 100, 200)]
hits = np.argmax(np.asarray(apply_mlp(trained, x)), axis=1) == labels
with CompileBudget(1, only="_measured"):
    found = evaluate(metrics, trained, [padded(part, 100) for part in parts])

by_batch = np.mean([hits[:100].mean(), hits[100:200].mean(), hits[200:].mean()])
print("the mean of three accuracies is off by more than 0.01:", abs(by_batch - hits.mean()) > 0.01)
assert_close(found["accuracy"], hits.mean(), rtol=1e-12)
assert_close(found["loss"], reference(trained, examples)[0], rtol=1e-5)
assert abs(by_batch - hits.mean()) > 0.01

# %% [markdown]
# During a run it is a callback that adds to the logs; those behind it in the list see what it
# added. *By steps* is `every(5, …)`, *by epochs* is `every(steps of an epoch, …)`: here four.

# %% tags=["given"]
# quote: helpers.trainer.evaluation


test_x, test_labels = map(np.asarray, spiral(jax.random.key(9), per_arm=80))
test_set = [{"x": test_x, "label": test_labels, "real": np.ones(240, bool)}]

# %% tags=["claim"]
evaluated, raw = {}, {}


def note(report):
    """What was evaluated, and the same for the parameters that are not averaged."""
    if "eval/loss" in report.logs:
        evaluated[report.step] = report.logs["eval/loss"]
        raw[report.step] = evaluate(metrics, report.run.train.params, test_set)["loss"]


per_epoch = 240 // 60
fit(begin(), loss, shuffled(examples, 60), steps=12,
    callbacks=[every(per_epoch, evaluation(metrics, test_set)), note])  # fmt: skip
print("evaluated after steps", *evaluated, "· of the averaged weights:", evaluated != raw)
assert list(evaluated) == [4, 8, 12]
assert all(evaluated[step] != raw[step] for step in (8, 12))

# %% [markdown]
# An evaluation set that is a generator would be empty the second time, and a mean over nothing is
# not 0. It is an error:

# %% tags=["claim"]
once_only = (batch for batch in test_set)
evaluate(metrics, trained, once_only)
caught = show_error(
    evaluate, metrics, trained, once_only, expect=ValueError, contains="used-up generator"
)

# %% [markdown]
# **The best model** is a callback with a memory: it keeps a copy of the weights whenever a metric
# is better than ever before. A NaN is never better.

# %% tags=["given"]
# quote: helpers.trainer.Best


# %% [markdown]
# To have a run whose best model is not its last one, the next one trains too fast on too few
# examples, and overfits.

# %% tags=["claim"]
few = jax.tree.map(lambda leaf: leaf[shuffle[:24]], examples)
hasty = adam(0.05)
best, curve = Best("eval/loss"), {}
callbacks = [
    every(10, evaluation(metrics, test_set)),
    best,
    lambda report: curve.update({report.step: report.logs.get("eval/loss")}),
]
overfit = fit(start(params, hasty, jax.random.key(2)), loss, [few], steps=300, callbacks=callbacks)
curve = {step: value for step, value in curve.items() if value is not None}

last = curve[300]
worse = last > 1.1 * best.value
print("best before the end:", best.step < 300, "· the last is worse by a tenth:", worse)
assert best.value == min(curve.values()) == curve[best.step]
assert best.step < 300 and worse
assert_close(evaluate(metrics, best.params, test_set)["loss"], best.value, rtol=1e-6)

# %% [markdown]
# Most steps of that run were wasted. Stopping is a callback that returns True. ❌ The obvious
# one, "stop as soon as it gets worse", trips over the first bump:


# %% tags=["claim"]
def stop_when_worse(metric):
    """A callback that ends the run at the first value that is worse than the one before."""
    seen = []

    def look(report):
        if metric in report.logs:
            seen.append(report.logs[metric])
        return len(seen) > 1 and seen[-1] > seen[-2]

    return look


bumpy = [1.0, 0.8, 0.83, 0.6, 0.5, 0.52, 0.4, 0.45, 0.44, 0.46]
look = stop_when_worse("eval/loss")
stops = [look(Report(step, run, {"eval/loss": value})) for step, value in enumerate(bumpy, 1)]
print(f"stops at evaluation {stops.index(True) + 1}, the best is number {np.argmin(bumpy) + 1}")
assert (stops.index(True) + 1, int(np.argmin(bumpy)) + 1) == (3, 7)

# %% tags=["figure"]
fig, ax = figure(
    "The best model comes long before the last one",
    "step",
    "loss on new data",
)
(drawn_line,) = ax.plot(list(curve), list(curve.values()), color=COLORS.wrong)
label_line(drawn_line, "overfits")
ax.plot(best.step, best.value, "o", color=COLORS.right, ms=9)
ax.annotate(
    "kept",
    (best.step, best.value),
    xytext=(0, -14),
    textcoords="offset points",
    color=COLORS.right,
    fontweight="bold",
    ha="center",
)
ax.set_ylim(bottom=0)
assert best.step < 150
describe(
    fig,
    "Loss on new data over 300 steps: it falls to its lowest value within the first half, which is "
    "kept, and then rises.",
)

# %% [markdown]
# 💡 **Evaluate averaged weights with totals and counts; keep the best; stop with patience.**

# %% [markdown] exercise="9.4"
# Write the callback with patience, a class `EarlyStopping(metric, patience, margin=0.0,
# mode="min")`.
#
# - `stopper(report)` looks up `report.logs[metric]`, a number or a scalar array. A report without
#   it is ignored; otherwise it is an *evaluation*. It returns True at the `patience`-th evaluation
#   in a row that is no better, and something else before.
# - The first finite value is better than nothing. After that a value is better if it is
#   lower than the best by more than `margin` (with `mode="max"`: higher). NaN never is.
# - `stopper.best` is the best value, `stopper.step` the `report.step` it came at, and
#   `stopper.kept` a copy of `report.run` at that step, any pytree of arrays and typed keys. It can
#   be read after later steps have donated the run.
# - `stopper.state()` returns what a resumed run needs, as data that `json.dumps(…,
#   allow_nan=False)` can write. `stopper.restore(state)` makes a new object with the same arguments
#   go on as this one would have; `kept` need not be restored.
# - Two objects have nothing in common.


# %% tags=["starter"] exercise="9.4"
class EarlyStopping:
    """Ends a run that gets no better. Has `best`, `step`, `kept`, `state()`, `restore(state)`."""

    def __init__(self, metric, patience, margin=0.0, mode="min"):
        ### BEGIN SOLUTION
        self.metric, self.patience, self.margin = metric, patience, margin
        self.sign = 1.0 if mode == "min" else -1.0
        self.best, self.step, self.waited, self.kept = self.sign * math.inf, 0, 0, None
        ### END SOLUTION

    def __call__(self, report):
        """True to stop."""
        ### BEGIN SOLUTION
        value = float(report.logs.get(self.metric, math.nan))
        if self.sign * (self.best - value) > self.margin:
            self.best, self.step, self.waited = value, report.step, 0
            self.kept = jax.tree.map(jnp.copy, report.run)
        else:
            self.waited += self.metric in report.logs
        return self.waited >= self.patience
        ### END SOLUTION

    def state(self):
        """What a resumed run needs, as data for JSON."""
        ### BEGIN SOLUTION
        return [str(self.best), self.step, self.waited]
        ### END SOLUTION

    def restore(self, state):
        """Goes on from such data."""
        ### BEGIN SOLUTION
        self.best, self.step, self.waited = float(state[0]), *state[1:]
        ### END SOLUTION


# %% [markdown]
# ## 9.9 Batches that are made ahead
#
# A step is dispatched and runs on the device while Python goes on. If Python then *makes* the next
# batch, both happen at once; if it waits for the step first, they take turns. A loop that looks at
# a loss waits. So the next batches are made by a thread, which is all that `prefetch` does.
#
# ❌ Not everything that is called prefetching runs ahead. A queue that is filled by the same thread
# which empties it has batches in store, and makes each new one while everybody waits:


# %% tags=["given"]
def stored(items, ahead=2):
    """Keeps `ahead` items in store. There is no thread, so nothing happens ahead."""
    iterator = iter(items)
    store = deque(itertools.islice(iterator, ahead))
    while store:
        yield store.popleft()
        store.extend(itertools.islice(iterator, 1))


def slow_items(count, made=None):
    """Items that take five milliseconds to make. made: a list of what was made so far."""
    for number in range(count):
        time.sleep(0.005)
        if made is not None:
            made.append(number)
        yield number


def consume(items):
    """Uses each item for five milliseconds."""
    for _ in items:
        time.sleep(0.005)


# %% [markdown]
# Making and using twenty items takes five milliseconds each. In turns that is forty times five; at
# once it is half of that at best.

# %% tags=["claim", "nbval-ignore-output"]
gain = {}
for name, way in (("stored", stored), ("prefetch", partial(prefetch, place=lambda item: item))):
    started = time.perf_counter()
    consume(way(slow_items(20)))
    gain[name] = time.perf_counter() - started
    print(f"{name:9} {1e3 * gain[name]:4.0f} ms")
ratio = assert_faster(
    lambda: consume(prefetch(slow_items(20), place=lambda item: item)),
    lambda: consume(stored(slow_items(20))),
    by=1.15,
    repeats=2,
)

# %% [markdown]
# The proof needs no clock. Ask the store for one item, then for another, and count what is made: a
# new one only when somebody waits for it.

# %% tags=["claim"]
made = []
items = stored(slow_items(5, made))
counts = [len(made) for _ in items]
print("made when each of 5 items is there:", *counts, "·", made)
assert counts == [2, 3, 4, 5, 5] and made == [0, 1, 2, 3, 4]

# %% [markdown]
# ✅ With the thread, *one* item is asked for, nobody asks any more, and three are made. And no more
# than that, for otherwise a fast loader fills the memory. With `ahead=0` there is no thread.

# %% tags=["claim"]
made = []
items = prefetch(slow_items(50, made), place=lambda item: item)
first = next(items)
deadline = time.monotonic() + 10
while len(made) < 3 and time.monotonic() < deadline:
    time.sleep(0.01)
time.sleep(0.05)
print(f"asked for 1 item, got {first}; made: {made}")
assert made == [0, 1, 2]
items.close()
assert not any(thread.name.startswith("prefetch") for thread in threading.enumerate())
assert list(prefetch(slow_items(4), ahead=0, place=lambda item: 10 * item)) == [0, 10, 20, 30]

# %% [markdown]
# A thread that fails must not fail alone. The error comes out where the item would have:


# %% tags=["claim"]
def failing():
    """Two items and an error."""
    yield from (1, 2)
    raise OSError("the disk is gone")


received = []
with closing(prefetch(failing(), place=lambda item: item)) as items:
    show_error(lambda: received.extend(items), expect=OSError, contains="the disk is gone")
print("received before it:", received)
assert received == [1, 2]

# %% [markdown]
# Where a run is interrupted, batches that were made ahead were not *used*. The place in the data is
# counted in the step, not in the loader, so it does not matter: `run.batches` is right.
#
# 💡 **Ahead means: in another thread, by a fixed number, with its errors.**

# %% [markdown]
# ## 9.10 Checkpoints, and an exact resume
#
# Orbax writes a pytree to disk, whole or not at all. What is left to decide is what to save, what
# to keep, and what to do with a directory that is not empty. Each has a default that goes wrong.
#
# ❌ *Keep the best, drop the others.* A manager that keeps the one best checkpoint deletes the
# latest one as soon as it is not the best (orbax#526). The machine restarts, and the run goes on
# from the best: every step since then is lost.


# %% tags=["claim"]
def keeps(manager, losses):
    """Saves a number for each loss, at steps 1, 2, …; the steps that are still there."""
    for step, value in enumerate(losses, 1):
        args = ocp.args.StandardSave({"w": np.float32([value])})
        manager.save(step, args=args, metrics={"loss": value})
    manager.wait_until_finished()
    return list(manager.all_steps())


with tempfile.TemporaryDirectory() as folder:
    options = ocp.CheckpointManagerOptions(
        max_to_keep=1, best_fn=lambda metrics: metrics["loss"], best_mode="min"
    )
    with ocp.CheckpointManager(Path(folder) / "a", options=options) as manager:
        only_best = keeps(manager, [3.0, 1.0, 2.0, 2.5])
    with open_checkpoints(Path(folder) / "b", keep=1, best="loss") as manager:
        both = keeps(manager, [3.0, 1.0, 2.0, 2.5])
    with open_checkpoints(Path(folder) / "c") as manager:
        latest = keeps(manager, [3.0, 1.0, 2.0, 2.5])
print("best of four:", only_best, "· best and latest:", both, "· as it stands:", latest)
assert only_best == [2] and both == [2, 4] and latest == [3, 4]

# %% [markdown]
# ✅ `open_checkpoints` keeps the latest ones, and the best beside them. It is a few lines around
# Orbax's own policies:

# %% tags=["given"]
# quote: helpers.checkpoints.open_checkpoints


# %% [markdown]
# ❌ *A used directory.* A second run that writes into the first one's directory mixes two runs.
# To go on from there must be said; nothing else may write there.

# %% tags=["claim"]
folder = tempfile.TemporaryDirectory()
place = Path(folder.name) / "spiral"
run = begin()
with open_checkpoints(place) as manager:
    save(manager, run, 0)

show_error(open_checkpoints, place, expect=FileExistsError, contains="resume=True")
with open_checkpoints(place, resume=True) as manager:
    print("with resume=True, the latest is step", manager.latest_step())
    assert manager.latest_step() == 0

# %% [markdown]
# **Saving takes place in a thread**, so that the run does not wait for the disk. But the next step
# donates the run that is being written. Orbax has taken the numbers before `save` returns, and what
# is restored is the run as it was then, bit for bit:


# %% tags=["claim"]
def bits(tree):
    """The bytes of each leaf, keys included."""
    keys_as_numbers = [
        jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
        for x in jax.tree.leaves(tree)
    ]
    return [np.array(leaf).tobytes() for leaf in keys_as_numbers]


before = bits(run)
with open_checkpoints(place, resume=True) as manager:
    save(manager, run, 1)
    for _ in range(5):
        run, _ = run_step(loss, run, sixty)
    manager.wait_until_finished()
    back = restore(manager, start(params, momentum, jax.random.key(99), average=0.95))

print("saved while five steps ran, restored bit for bit:", bits(back) == before)
assert bits(back) == before != bits(run)

# %% [markdown]
# `restore` takes a run that was started in the same way, for its structure, its dtypes and its
# optimizer; code is not saved. Above it was started with another key, to show that its numbers do
# not matter.
#
# **With or without the optimizer's state.** Adam's is twice the parameters and a count, and who
# only wants to *use* the model does not need it. Such a checkpoint can't be resumed, and says so.

# %% tags=["claim"]
with open_checkpoints(place, resume=True) as manager:
    save(manager, run, 2, weights_only=True)
    manager.wait_until_finished()
    like = start(params, momentum, jax.random.key(99), average=0.95)
    show_error(restore, manager, like, expect=FileNotFoundError, contains="weights only")
    used = restore_weights(manager, params)
assert bits(used) == bits(weights(run))


def numbers_in(tree):
    """How many numbers a tree holds."""
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


assert numbers_in(adam(0.01).init(params)) == 2 * numbers_in(params) + 1

# %% [markdown]
# ### Resumed equals uninterrupted
#
# Now the promise of the section. The loss is the one with dropout, the data are shuffled, and the
# run has all that a run can have. One run takes forty steps. Another takes twenty-five, is saved,
# and is gone; a third one restores it and goes on to forty.


# %% tags=["given"]
def fresh_run(seed=2):
    """A run with an average and a loss scale."""
    return start(
        params, momentum, jax.random.key(seed), average=0.95, scale=loss_scale(256.0, interval=7)
    )


def interrupted(data, at=25, mend=lambda run: run):
    """The run after 40 steps, with a break after step `at` in which `mend` may change it."""
    with tempfile.TemporaryDirectory() as folder:
        with open_checkpoints(folder) as manager:
            callbacks = [every(at, saving(manager))]
            fit(fresh_run(), noisy_loss, data(), at, accumulate=2, callbacks=callbacks)
        with open_checkpoints(folder, resume=True) as manager:
            run = mend(restore(manager, fresh_run(seed=77)))
    run = jax.device_put(run, jax.local_devices()[0])  # what `mend` made lies where the rest does
    return fit(run, noisy_loss, data(), 40, accumulate=2)


class Reshuffles:
    """A loader that draws a new order from its own generator each time it is read."""

    def __init__(self):
        self.rng = np.random.default_rng(5)

    def __iter__(self):
        order = self.rng.permutation(240)
        mixed = jax.tree.map(lambda leaf: leaf[order], examples)
        yield from (rows_from(mixed, start, 40) for start in range(0, 240, 40))


# %% tags=["claim"]
sources = {
    "a function of the number": lambda: shuffled(examples, 40),
    "a list": lambda: [rows_from(examples, start, 40) for start in range(0, 240, 40)],
    "a loader that reshuffles": Reshuffles,
}
uninterrupted = {}
with CompileBudget(1, only="run_step"):
    for name, data in sources.items():
        uninterrupted[name] = fit(fresh_run(), noisy_loss, data(), 40, accumulate=2)
        same = bits(interrupted(data)) == bits(uninterrupted[name])
        print(f"{name:25} resumed equals uninterrupted: {same}")
        assert same

# %% [markdown]
# Even the loader that reshuffles itself, in the middle of its ninth epoch: `stream` reads it from
# the very start, in the new process as in the old one, and drops what was used. And all six runs
# share one compiled step, the restored ones too.
#
# ❌ What if a part is forgotten? The next cell resumes without one part after the other. The figure
# says how far the averaged weights are from the uninterrupted run's in the end, in lengths of the
# way that the run has gone.


# %% tags=["claim"]
def forget_optimizer(run):
    return replace(run, train=init_state(run.train.params, momentum))


forgotten = {
    "nothing": lambda run: run,
    "the optimizer's state": forget_optimizer,
    "the key": lambda run: replace(run, key=jax.random.key(77)),
    "the last two batches": lambda run: replace(run, batches=run.batches - 2),
    "the average's count": lambda run: replace(
        run, average=replace(run.average, updates=jnp.int32(0))
    ),
}
target = uninterrupted["a function of the number"]
moved = jax.tree.map(lambda a, b: a - b, to64(weights(target)), to64(params))
off = {}
for name, mend in forgotten.items():
    end = interrupted(sources["a function of the number"], mend=mend)
    apart = jax.tree.map(lambda a, b: a - b, to64(weights(end)), to64(weights(target)))
    off[name] = float(global_norm(apart) / global_norm(moved))
    print(f"{name:22} {'exact' if off[name] == 0 else 'another run'}")
assert off.pop("nothing") == 0
assert all(distance > 1e-3 for distance in off.values())

# %% tags=["figure"]
fig, ax = figure(
    "Forget one part, and it is another run",
    "distance from the uninterrupted run\n(share of the way gone, log scale from 0.01 on)",
    "",
    size=(6.4, 2.6),
)
names = ["nothing", *off]
distances = [0.0, *off.values()]
ax.barh(names[::-1], distances[::-1], color=[COLORS.wrong] * len(off) + [COLORS.right], height=0.6)
ax.tick_params(axis="y", length=0)
ax.set_xscale("symlog", linthresh=0.01)
ax.set_xticks([0, 0.01, 0.1, 1], ["0", "0.01", "0.1", "1"])
ax.minorticks_off()
ax.annotate("0, bit for bit", (0, len(off)), xytext=(4, 0), textcoords="offset points", va="center",
            color=COLORS.right, fontweight="bold")  # fmt: skip
assert min(off.values()) > 1e-3
describe(
    fig,
    "Distance of a resumed run from the uninterrupted one, after forgetting nothing (zero), the "
    "optimizer's state, the key, the last two batches, or the average's count (all above zero).",
)

# %% [markdown]
# 💡 **Everything that decides the next step is in the run: parameters, optimizer, key, place in the
# data, average, scale.**

# %% [markdown] exercise="9.5"
# Write the two halves of an exact resume without Orbax.
#
# `rows_of(seed, number, n, size)` says which of n rows batch `number` holds, counted from 0 over
# the whole run, as a NumPy array of `size` integers. Think of all epochs one after the other, each
# a permutation of 0 … n − 1: the batches are this series, cut into pieces of `size`. So every batch
# is full, and a batch may begin in one epoch and end in the next, or span several if n < size. The
# permutations of different epochs have nothing to do with each other, and neither have those of
# different seeds, whichever epochs you compare (n! orders are all there is: for 7 rows equal ones
# are rare). What a number gives does not depend on what was asked before. Numbers stay below 1000.
#
# `pack(run)` turns a pytree into a dict from names to NumPy arrays; `unpack(arrays, like)` makes
# the run again.
#
# - A run is any nest of dicts, lists, NamedTuples and None, with any strings as keys; its leaves
#   are JAX arrays: floating, bfloat16 included, integers, bools, or typed keys of any kind.
# - The arrays go through `np.savez` and `np.load` with `allow_pickle=False`: only NumPy's own
#   dtypes.
# - `like` is a run of the same structure, dtypes and kinds of keys, with other numbers. The result
#   has its structure, and every leaf is a JAX array with the bits that were packed.
# - A run that is packed, unpacked and trained on ends bit for bit where it would have ended. The
#   check does that with momentum in bfloat16, a key that is split at each step, and your `rows_of`.


# %% tags=["starter"] exercise="9.5"
def rows_of(seed, number, n, size):
    """The rows of a batch, by its number."""
    ### BEGIN SOLUTION
    epochs = range(number * size // n, (number * size + size - 1) // n + 1)
    series = np.concatenate([np.random.default_rng([seed, e]).permutation(n) for e in epochs])
    return series[number * size % n :][:size]
    ### END SOLUTION


def pack(run):
    """A run as named NumPy arrays."""
    ### BEGIN SOLUTION
    leaves = jax.tree.leaves(run)
    leaves = [x if isinstance(x.dtype, np.dtype) else jax.random.key_data(x) for x in leaves]
    leaves = [x.astype(jnp.float32) if x.dtype == jnp.bfloat16 else x for x in leaves]
    return {str(i): np.array(x) for i, x in enumerate(leaves)}
    ### END SOLUTION


def unpack(arrays, like):
    """The run that was packed, in the form of another one."""
    ### BEGIN SOLUTION
    leaves, structure = jax.tree.flatten(like)
    found = [jnp.asarray(arrays[str(i)]) for i in range(len(leaves))]
    for i, leaf in enumerate(leaves):
        is_key = not isinstance(leaf.dtype, np.dtype)
        wrap = partial(jax.random.wrap_key_data, impl=jax.random.key_impl(leaf)) if is_key else None
        found[i] = wrap(found[i]) if is_key else found[i].astype(leaf.dtype)
    return structure.unflatten(found)
    ### END SOLUTION


# %% [markdown]
# ## 9.11 Eight devices
#
# The set-up cell made eight devices out of one CPU (`jax_num_cpu_devices`). They are no faster than
# one, but everything behaves as it would on eight accelerators. **Data parallel** training puts a
# copy of the run on each, and an eighth of the rows of every batch. The step does not change; only
# where its arguments lie does.

# %% tags=["given"]
# quote: helpers.trainer.split_over


# quote: helpers.trainer.replicated


# %% tags=["claim"]
mesh = Mesh(np.array(jax.devices("cpu")[:8]), ("data",))
batch = split_over(mesh)(cut(examples, 1))
run = replicated(start(params, momentum, jax.random.key(2)), mesh)
shards = [shard.data.shape for shard in batch["x"].addressable_shards]

print(len(shards), "shards of", shards[0], "from", batch["x"].shape)
assert shards == [(1, 30, 2)] * 8
copies = run.train.params[0]["w"].addressable_shards
assert [copy.data.shape for copy in copies] == [(2, 16)] * 8

# %% [markdown]
# Why is the gradient right, without a word about communication? Under `jax.jit` a program says what
# is computed of the *whole* arrays; `jnp.sum` over split rows is the sum over all rows, and XLA
# adds the transfer that it takes. Totals and counts are such sums.
#
# ❌ Where code runs *per device* (`shard_map`), that is not so: there each device has its own mean,
# and the mean of these is right only if all have the same number of real rows.


# %% tags=["claim"]
uneven = examples | {"real": np.arange(240) < 100}
per_device = {
    "the mean of means": lambda total, count: jax.lax.pmean(total / jnp.maximum(count, 1), "data"),
    "totals and counts": lambda total, count: (
        jax.lax.psum(total, "data") / jax.lax.psum(count, "data")
    ),
}
want = reference(params, uneven)[0]
for name, combine in per_device.items():
    mapped = jax.shard_map(
        lambda batch, combine=combine: combine(*loss(params, batch)),
        mesh=mesh,
        in_specs=PartitionSpec("data"),
        out_specs=PartitionSpec(),
    )
    off = abs(float(jax.jit(mapped)(uneven)) / want - 1)
    print(f"100 of 240 rows are real, {name}: {'right' if off < 1e-5 else 'wrong'}")
    assert (off < 1e-5) == (name == "totals and counts")
    assert off < 1e-5 or off > 0.1

# %% [markdown]
# A whole run on eight devices, with accumulation, an average and a scale, is the run on one device,
# up to the order in which sums are taken. The step compiles once for the new layout (for one device
# it was compiled in §9.10); what comes out is replicated as what went in, or the second step
# would be another program.

# %% tags=["claim"]
ends = {}
for name, first, placed in (
    ("one device", fresh_run(), jax.device_put),
    ("eight devices", replicated(fresh_run(), mesh), split_over(mesh)),
):
    with CompileCounter(only="run_step") as counter:
        ends[name] = fit(first, noisy_loss, shuffled(examples, 40), 40, accumulate=2, place=placed)
    assert counter.count == (1 if name == "eight devices" else 0)

one, eight = (to64(weights(end)) for end in ends.values())
print("40 steps on eight devices: one compilation, and the weights of one device")
assert_close(eight, one, rtol=1e-3, atol=1e-4)
assert all(leaf.sharding.is_fully_replicated for leaf in jax.tree.leaves(ends["eight devices"]))

# %% [markdown]
# 💡 **Say where the data lie; the step stays as it is.**

# %% [markdown]
# ## 9.12 Side by side
#
# taktiny is a library with a trainer that has all the features of this chapter and more: models,
# loaders, a progress bar. It needs Python 3.12 and is part of the course's extra (`uv run
# noxfile.py -s kauldron`); without it the second column below is empty. Both get the same
# small task, a line through points, and the same questions. Nothing in the table is known in
# advance: each entry is the outcome of a run.


# %% tags=["given"]
points = np.random.default_rng(0).normal(size=(240, 2)).astype(np.float32)
heights = points @ np.float32([1, -2]) + np.float32(0.5)
thirties = [(points[s : s + 30], heights[s : s + 30]) for s in range(0, 240, 30)]
four = [(points[:3], heights[:3]), (points[3:4], heights[3:4])]
pace = sgd(0.1, momentum=0.9)


def line(params, x):
    return x @ params["w"] + params["b"]


def line_loss(params, batch):
    """Squared errors of a line: total and count."""
    x, y = batch[:2]
    real = batch[2] if len(batch) > 2 else np.ones(len(y), bool)
    return jnp.sum(jnp.where(real, (line(params, x) - y) ** 2, 0.0)), jnp.sum(real)


def edge_loss(params, batch):
    """A finite loss whose gradient is not: the slope of the root at zero."""
    return jnp.sum(1.0 + jnp.sqrt(0.0 * line(params, batch[0]) ** 2)), len(batch[1])


# %% tags=["given"]
def mixed(rng):
    """The batches in new orders, from a generator that moves on."""
    for rows in rng.permutation(240).reshape(-1, 30):
        yield points[rows], heights[rows]


class Mixed:
    """A loader that reshuffles itself."""

    def __init__(self):
        self.rng = np.random.default_rng(5)

    def __iter__(self):
        return mixed(self.rng)


def error_of(call):
    """The class of the error that a call ends in."""
    try:
        call()
    except Exception as error:
        return type(error).__name__
    return "no error"


def same_bits(a, b):
    return "exact" if bits(a) == bits(b) else "another run"


# %% tags=["given"]
def ours(data, steps, loss=line_loss, average=None, **options):
    """A run of this chapter's trainer on the line."""
    flat = {"w": jnp.array([-1.2, -1.1]), "b": jnp.zeros(())}
    return fit(start(flat, pace, jax.random.key(0), average=average), loss, data, steps, **options)


def our_answers():
    """What this chapter's trainer does, question by question."""
    masked = [(np.resize(x, (3, 2)), np.resize(y, 3), np.arange(3) < len(x)) for x, y in four]
    together = ours([(points[:4], heights[:4])], 1).train.params
    off = distance(ours(masked, 1, accumulate=2).train.params, to64(together))
    with CompileCounter(only="run_step") as counter:
        ours(thirties, 24, accumulate=4)
    broken_run = ours(thirties, 2, edge_loss)

    def read(report):
        return to64(report.run.train.params)

    resumed = fit(ours(Mixed(), 12), line_loss, Mixed(), 20).train.params
    return {
        "unequal micro-batches, error": f"{off:.0e}" if off > 1e-6 else "none",
        "programs for 24 steps": str(counter.count),
        "8 batches once, 25 steps wanted": error_of(lambda: ours((b for b in thirties), 25)),
        "gradient NaN, loss finite": "kept" if all_finite(broken_run.train.params) else "NaN",
        "read params in a callback": error_of(lambda: ours(thirties, 2, callbacks=[read])),
        "resume, reshuffling loader": same_bits(resumed, ours(Mixed(), 20).train.params),
    }


# %% tags=["given"]
def theirs(data, steps, loss=None, callbacks=None, resume=None, **config):
    """The same with taktiny's trainer, which says nothing on the screen."""
    import optax
    import rich.console
    import taktiny.trainer.trainer as module
    from taktiny.nn import Linear, Rngs
    from taktiny.trainer import DatasetConfig, Trainer, TrainingConfig

    module.Console = lambda: rich.console.Console(file=io.StringIO(), force_jupyter=False)

    def mean(model, batch):
        return jnp.mean((model(batch[0])[:, 0] - batch[1]) ** 2)

    settings = TrainingConfig(
        max_steps=steps, log_interval=10**6, optimizer=optax.sgd(0.1, momentum=0.9), **config
    )
    trainer = Trainer(
        Linear(2, 1, rngs=Rngs(0)),
        settings,
        DatasetConfig(train_dataloader=data),
        loss_fn=loss or mean,
        callbacks=callbacks,
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


# %% tags=["given"]
def their_edge(model, batch):
    return jnp.mean(1 + jnp.sqrt(0 * model(batch[0]) ** 2))


def model_of(trainer):
    return jax.tree.leaves(trainer.model)


class Reader:
    """A callback that reads the model, as taktiny's are written."""

    said = "no error"

    def on_step_end(self, trainer, logs):
        self.said = error_of(lambda: to64(model_of(trainer)))


# %% tags=["given"]
def their_answers():
    """What taktiny's trainer does, question by question; nothing where it is not installed."""
    if importlib.util.find_spec("taktiny") is None:
        return {}
    together = model_of(theirs([(points[:4], heights[:4])], 1))
    apart = model_of(theirs(four, 1, gradient_accumulation_steps=2))
    with CompileCounter() as counter:
        theirs(thirties, 24, gradient_accumulation_steps=4)
    broken_run = theirs(thirties, 2, their_edge, compute_grad_norm=False)
    reader = Reader()
    theirs(thirties, 2, callbacks=[reader])
    with tempfile.TemporaryDirectory() as folder:
        theirs(Mixed(), 12, output_dir=folder, save_steps=12)
        resumed = theirs(Mixed(), 20, output_dir=folder, resume="latest")
    return {
        "unequal micro-batches, error": f"{distance(apart, to64(together)):.0e}",
        "programs for 24 steps": str(sum("step" in name for name in counter.names)),
        "8 batches once, 25 steps wanted": f"{theirs(iter(thirties), 25).global_step} steps",
        "gradient NaN, loss finite": "kept" if all_finite(model_of(broken_run)) else "NaN",
        "read params in a callback": reader.said,
        "resume, reshuffling loader": same_bits(model_of(resumed), model_of(theirs(Mixed(), 20))),
    }


# %% tags=["claim", "nbval-ignore-output"]
here, there = our_answers(), their_answers()
print(f"{'':33}{'here':14}taktiny")
for question, answer in here.items():
    print(f"{question:33}{answer:14}{there.get(question, '·')}")
assert list(here.values()) == ["none", "1", "OutOfData", "kept", "no error", "exact"]

# %% [markdown]
# What differs follows from two decisions and is no matter of care. Where a loss returns a mean and
# keeps to itself how many rows were real, no trainer can weigh micro-batches by it. Where the state
# of a run is spread over objects, each has to be saved, restored and protected by code of its own.
#
# 💡 **Before you trust a trainer, ask it these questions. Each takes ten lines.**

# %% [markdown]
# ## 9.13 What to keep
#
# 💡 **Totals and counts, divided once.** Then accumulated, sharded and padded batches give what one
# large batch gives, and so do metrics.
#
# 💡 **One pytree for all that decides the next step**, the key and the place in the data included,
# and one jitted step that moves it or leaves it as it is.
#
# 💡 **Prove a resume by its bits.** A loss curve that looks alike proves nothing.
#
# ### 🧪 Quiz
#
# Put a letter in place of the dots and run the cell. The answers are measured on your machine.

# %% tags=["quiz"] question="9.a"

# %% tags=["quiz"] question="9.b"

# %% tags=["quiz"] question="9.c"

# %% tags=["quiz"] question="9.d"

# %% tags=["quiz"] question="9.e"

# %% tags=["quiz"] question="9.f"

# %% tags=["quiz"] question="9.g"

# %% [markdown]
# ### Cheat sheet
#
# All of it is in `helpers.trainer` and `helpers.checkpoints`.
#
# | to | write |
# |---|---|
# | begin a run | `run = start(params, optimizer, key, average=0.999, scale=loss_scale())` |
# | train it to step 1000 | `run = fit(run, loss, data, 1000, accumulate=4, callbacks=[…])` |
# | take one step | `run, logs = run_step(loss, run, micro_batches)` |
# | write a loss | `def loss(params, batch, rng): return total, count` |
# | shuffle | `data = shuffled(arrays, size, seed)`, a function of the batch's number |
# | clip | `chain(clip_by_global_norm(1.0), adam(1e-3))` |
# | have the weights to evaluate | `weights(run)`, a copy |
# | evaluate | `evaluate(metrics, weights(run), batches)` |
# | evaluate each epoch | `every(steps_per_epoch, evaluation(metrics, batches))` |
# | keep the best | `best = Best("eval/loss")`, then `best.params` |
# | see it | `every(10, progress_bar(1000))`, `every(10, tensorboard(SummaryWriter(folder)))` |
# | stop | a callback that returns `True` |
# | save | `every(100, saving(manager))`, in `with open_checkpoints(folder) as manager:` |
# | go on | `open_checkpoints(folder, resume=True)`, `run = restore(manager, like)` |
# | run ahead | `fit(…, ahead=2)`; `prefetch(batches, ahead=2)` |
# | use eight devices | `fit(replicated(run, mesh), …, place=split_over(mesh))` |
# | have eight devices on a CPU | `jax.config.update("jax_num_cpu_devices", 8)`, first of all |
