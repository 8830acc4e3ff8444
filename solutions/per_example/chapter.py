# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # 04 · Per-example gradients
#
# A batch has one gradient, and it is an average. What is averaged is gone: which example pulled
# the hardest, which pulled the wrong way because its label is wrong, how far the examples agree,
# how much of the step is owed to one person's data. Each of these questions has the same answer.
# Take the gradient of every example by itself, and look.
#
# In JAX that is one line. This chapter is about what the line leaves open: the axis that you
# forget and that fits by chance, the memory, and what to do with the gradients once you have
# them.
#
# Afterwards you can
#
# - get the gradient of each example, and prove that you did;
# - take the norms of any number of them in a fixed amount of memory;
# - train with differential privacy, and catch the mistake that ruins it and the one that undoes
#   it;
# - find labels that are wrong, and tell them from examples that are hard;
# - compute the norms of a dense network's gradients without the gradients.
#
# Reading and running takes about an hour, the five exercises more than two. You need `jax.grad`,
# `jax.vmap` and `jax.jit`.
#
# | mark | means |
# |---|---|
# | ❌ | a mistake, and what it costs |
# | ✅ | the way to do it, and the proof |
# | ✍️ | your turn |
# | 🧪 | a check, or a question of the quiz |
# | 💡 | a rule to keep |

# %% tags=["setup"]
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.typing import ArrayLike

from helpers import (
    COLORS,
    CompileCounter,
    assert_close,
    assert_equal,
    assert_faster,
    bench,
    check,
    describe,
    figure,
    label_line,
    losses,
    nn,
    per_example,
    privacy,
    quiz,
    show_error,
    to64,
)
from helpers.per_example import ExampleLoss
from helpers.trees import Tree, clip_to_norm, global_norm

# %% [markdown]
# ## 4.1 One gradient for each example
#
# Start from a loss of *one* example: no batch axis, no mean. Everything in this chapter does.


# %% tags=["given"]
def squared_error(params, x, y):
    """Half the squared error of one example. x: (3,), y: (); returns a scalar."""
    return (x @ params["w"] + params["b"] - y) ** 2 / 2


def regression(examples):
    """Parameters w (3,) and b (), inputs (n, 3) and targets (n,), all float32."""
    rng = np.random.default_rng(0)
    params = {"w": rng.standard_normal(3, np.float32), "b": rng.standard_normal((), np.float32)}
    inputs = rng.standard_normal((examples, 3), np.float32)
    return params, inputs, rng.standard_normal(examples, np.float32)


# %% [markdown]
# `jax.grad` makes of it the gradient of one example; `jax.vmap` makes of that a function of many.
# It has to be told what to go along: the batch, and not the parameters. The course's library
# packs this up for any number of inputs:

# %% tags=["given"]
# quote: helpers.per_example.grads

# %% [markdown]
# ✅ The result is a tree like the parameters, with a leading axis of B examples on each leaf. For
# this loss the gradient can be written down: the error times the input. Float64 agrees, row by
# row.

# %% tags=["claim"]
params, inputs, targets = regression(256)
each = grads(squared_error, params, inputs, targets)

exact, x64, y64 = to64(params), to64(inputs), to64(targets)
errors = x64 @ exact["w"] + exact["b"] - y64
print("w:", each["w"].shape, " b:", each["b"].shape)
assert_close(each["w"], errors[:, None] * x64, rtol=1e-4, atol=1e-6)
assert_close(each["b"], errors, rtol=1e-4, atol=1e-6)

# %% [markdown]
# Differentiating is linear, so the mean of the gradients is the gradient of the mean loss: what
# an ordinary training step computes. That makes it the cheapest proof that your per-example
# gradients are what you think.


# %% tags=["claim"]
def mean_loss(params, x, y):
    return jnp.mean(jax.vmap(squared_error, (None, 0, 0))(params, x, y))


batch_gradient = jax.grad(mean_loss)(params, inputs, targets)
mean_gradient = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), each)
assert_close(mean_gradient, to64(batch_gradient), rtol=1e-5, atol=1e-6)

# %% [markdown]
# A loop over the examples computes the same numbers, with one call for each. Even when the
# function in the loop is jitted, starting it costs more than the work. `vmap` is at least 10
# times as fast for 256 examples; here it is usually hundreds of times.

# %% tags=["claim", "nbval-ignore-output"]
one_gradient = jax.jit(jax.grad(squared_error))
all_gradients = jax.jit(partial(grads, squared_error))


def in_a_loop():
    return [one_gradient(params, x, y) for x, y in zip(inputs, targets, strict=True)]


def by_vmap():
    return all_gradients(params, inputs, targets)


assert_close(by_vmap()["w"], to64(np.stack([g["w"] for g in in_a_loop()])), rtol=1e-4, atol=1e-6)
ratio = assert_faster(by_vmap, in_a_loop, by=10, repeats=3)
print(f"vmap is {ratio:.0f} times as fast as a loop over {len(inputs)} examples")

# %% [markdown]
# ❌ The order matters. `grad` of a batch of losses fails, because a gradient needs one number to
# differentiate. The usual way out, a sum, makes the error go away and the answer with it: it is
# the gradient of the batch. Two examples that pull with all their might in opposite directions
# leave nothing behind.

# %% tags=["claim"]
batch_of_losses = jax.vmap(squared_error, (None, 0, 0))
refused = show_error(jax.grad(batch_of_losses), params, inputs, targets, expect=TypeError, lines=0)
assert "scalar-output functions" in str(refused) and "(256,)" in str(refused)
print("grad of 256 losses:", type(refused).__name__)

start = {"w": np.zeros(3, np.float32), "b": np.float32(0)}
same_input, opposite_targets = np.ones((2, 3), np.float32), np.array([5, -5], np.float32)
together = jax.grad(lambda p: jnp.sum(batch_of_losses(p, same_input, opposite_targets)))(start)
apart = jax.vmap(global_norm)(grads(squared_error, start, same_input, opposite_targets))

print(f"norm of the sum: {float(global_norm(together)):.0f}, norms of the two: {apart}")
assert global_norm(together) == 0
assert_close(apart, [10.0, 10.0], rtol=1e-6)

# %% [markdown]
# 💡 **`vmap` of `grad` is a gradient for each; `grad` of a sum over `vmap` is one for all.**

# %% [markdown]
# ## 4.2 The axis you forgot
#
# `vmap` maps *every* argument over its first axis unless told otherwise, the parameters too.
# Forget `in_axes`, and each example gets a slice of the model. Mostly the sizes disagree, and
# JAX says so. A dense layer of 3 inputs and 3 outputs, and 5 examples:


# %% tags=["given"]
def layer_error(params, x, y):
    """Half the squared error of a dense layer. x: (d,), y: (k,); returns a scalar."""
    return jnp.sum((x @ params["w"] + params["b"] - y) ** 2) / 2


def square_layer(examples):
    """A layer of 3 inputs and 3 outputs, inputs (n, 3) and targets (n, 3), float32."""
    rng = np.random.default_rng(1)
    params = {"w": rng.standard_normal((3, 3), np.float32), "b": rng.standard_normal(3, np.float32)}
    inputs, targets = rng.standard_normal((2, examples, 3), np.float32)
    return params, inputs, targets


# %% tags=["claim"]
forgetful = jax.vmap(jax.grad(layer_error))
error = show_error(forgetful, *square_layer(5), expect=ValueError, lines=1)
assert "inconsistent sizes for array axes" in str(error)

# %% [markdown]
# ❌ Mostly. Now the layer meets a batch of 3, as it will in the short test that you write for it.
# Example 0 is scored with row 0 of the weights and entry 0 of the bias, and NumPy's broadcasting
# makes a vector of the rest. Nothing raises. The numbers are finite, of a plausible size, and
# wrong.

# %% tags=["claim"]
layer, three_inputs, three_targets = square_layer(3)
right = grads(layer_error, layer, three_inputs, three_targets)
silent = jax.vmap(jax.grad(layer_error))(layer, three_inputs, three_targets)

w64, b64 = to64(layer["w"]), to64(layer["b"])
assert_close(right["b"], to64(three_inputs) @ w64 + b64 - three_targets, rtol=1e-4, atol=1e-6)
for name in ("w", "b"):
    print(f"{name}: right {right[name].shape}, in silence {silent[name].shape}")
off = abs(jax.vmap(global_norm)(silent) / jax.vmap(global_norm)(right) - 1)
print(f"norms are off by up to {float(off.max()):.0%}")
assert right["w"].shape == (3, 3, 3) and silent["w"].shape == (3, 3)
assert np.all(np.isfinite(silent["w"]))
assert off.max() > 0.2

# %% [markdown]
# Here the shape gives it away: a leaf must have the shape (B, *leaf.shape*). The second way to
# forget an axis keeps even the shapes. With `None` for the targets, each example is compared with
# *all* of them; a loss that takes a mean, as losses that were written for batches do, hides it.
# What comes out is the gradient for the average target.


# %% tags=["claim"]
def batch_minded_error(params, x, y):
    return jnp.mean((x @ params["w"] + params["b"] - y) ** 2) / 2


in_axes = (None, 0, None)  # ❌ the targets belong to the batch
wrong = jax.vmap(jax.grad(batch_minded_error), in_axes)(params, inputs, targets)

exact_errors = x64 @ exact["w"] + exact["b"] - np.mean(y64)
assert {name: leaf.shape for name, leaf in wrong.items()} == {"w": (256, 3), "b": (256,)}
assert_close(wrong["b"], exact_errors, rtol=1e-4, atol=1e-5)

# %% [markdown]
# ✅ One test catches all of this. It compares the shapes and the mean.


# %% tags=["claim"]
def assert_per_example(each, loss, params, *batch):
    """Asserts that `each` holds one gradient an example: by its shapes, and by its mean."""
    examples = len(batch[0])
    shapes = jax.tree.map(lambda leaf: (examples, *np.shape(leaf)), params)
    assert jax.tree.map(jnp.shape, each) == shapes, "not one gradient an example"
    in_axes = (None, *(0 for _ in batch))
    whole = jax.grad(lambda p: jnp.mean(jax.vmap(loss, in_axes)(p, *batch)))(params)
    mean = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), each)
    assert_close(mean, to64(whole), rtol=1e-4, atol=1e-6, label="mean")


assert_per_example(each, squared_error, params, inputs, targets)
bad = (silent, layer_error, layer, three_inputs, three_targets)
error = show_error(assert_per_example, *bad, expect=AssertionError)
bad = (wrong, squared_error, params, inputs, targets)
error = show_error(assert_per_example, *bad, expect=AssertionError, lines=0)
assert "mean['w']" in str(error)

# %% [markdown]
# 💡 **Check two things: leaves of shape (B, …), and a mean that is the batch gradient.**

# %% [markdown]
# ## 4.3 B × P numbers, and how to do without
#
# A model of P parameters has a gradient of P numbers. B gradients are B × P, and that is the
# price of `vmap(grad)`: a model that trains happily on batches of 4096 may not fit a hundred of
# its own gradients. Usually you don't want them. You want something small about each: its
# length, its angle to another vector, its clipped contribution to a sum.
#
# The network for this section has 2128 parameters. Small, but not for 4096 examples:

# %% tags=["given"]
BATCH = 4096


def example_loss(params, x, label):
    """Cross-entropy of one example. x: (d,), label: (); returns a scalar."""
    return losses.cross_entropy(nn.apply_mlp(params, x), label)


wide = jax.jit(nn.init_mlp, static_argnums=1)(jax.random.key(0), (16, 64, 16))
many_x = np.random.default_rng(2).standard_normal((BATCH, 16)).astype(np.float32)
many_labels = np.arange(BATCH, dtype=np.int32) % 16
parameters = sum(leaf.size for leaf in jax.tree.leaves(wide))

# %% [markdown]
# Four ways to the norms. The first makes all gradients and measures them. The second measures
# inside `vmap`, which looks as if it needed one gradient at a time. The third and the fourth go
# through the examples with `jax.lax.map`, in chunks of 128 and one by one.


# %% tags=["given"]
def norm_of_one(params, x, label):
    return global_norm(jax.grad(example_loss)(params, x, label))


def all_then_norms(params, x, labels):
    return jax.vmap(global_norm)(grads(example_loss, params, x, labels))


def norms_inside(params, x, labels):
    return jax.vmap(norm_of_one, (None, 0, 0))(params, x, labels)


def in_chunks(params, x, labels, chunk=128):
    return jax.lax.map(lambda e: norm_of_one(params, *e), (x, labels), batch_size=chunk)


def one_by_one(params, x, labels):
    return jax.lax.map(lambda e: norm_of_one(params, *e), (x, labels))


# %% [markdown]
# How much memory does each take? You need not run them to know. A compiled program tells what it
# will allocate beside its arguments and its results: `memory_analysis().temp_size_in_bytes`.

# %% tags=["claim", "nbval-ignore-output"]
ways = {}
for way in (all_then_norms, norms_inside, in_chunks, one_by_one):
    program = jax.jit(way).lower(wide, many_x, many_labels).compile()
    megabytes = program.memory_analysis().temp_size_in_bytes / 2**20
    timing = bench(program, wide, many_x, many_labels, repeats=3, warmup=1)
    ways[way.__name__] = megabytes, program(wide, many_x, many_labels)
    print(f"{way.__name__:15} {megabytes:7.3f} MiB  {1e3 * timing.median:6.1f} ms")

everything = 4 * BATCH * parameters / 2**20
print(f"{BATCH} gradients of {parameters} numbers: {everything:.1f} MiB")
assert parameters == 2128
assert ways["all_then_norms"][0] > 0.9 * everything
assert ways["norms_inside"][0] > 0.9 * everything
assert ways["in_chunks"][0] < everything / 10
assert ways["one_by_one"][0] < everything / 1000
for _, norms in ways.values():
    assert_close(norms, to64(ways["one_by_one"][1]), rtol=1e-4)

# %% [markdown]
# ❌ The second way is no better than the first. `vmap` is not a loop: it gives every operation a
# batch axis, so the gradient inside it has one, too. That the norm is taken at once does not
# help, because the operation before it has already made B gradients.
#
# ✅ `jax.lax.map` is a loop, and what a pass of it needs is used again by the next. With
# `batch_size`, a pass is a small `vmap`: less than a tenth of the memory. The library's
# `grad_norms` is this third way.
#
# Does the loop cost time? One by one, often. In chunks, on a CPU, it is usually the fastest of
# the four: a chunk fits the processor's cache, and B × P numbers don't.

# %% tags=["given"]
# quote: helpers.per_example.grad_norms

# %% tags=["figure", "nbval-ignore-output"]
chunks = [16, 128, 1024, 4096]
costs = []
for chunk in chunks:
    way = partial(in_chunks, chunk=chunk)
    program = jax.jit(way).lower(wide, many_x, many_labels).compile()
    memory = program.memory_analysis().temp_size_in_bytes / 2**20
    time = bench(program, wide, many_x, many_labels, repeats=3, warmup=1).median
    costs.append((memory, 1e3 * time))
memory, time = np.array(costs).T

fig, ax = figure("Memory grows with the chunk; speed does not", "chunk", "MiB, ms (log scale)")
(used,) = ax.loglog(chunks, memory, "o-", color=COLORS.wrong)
(took,) = ax.loglog(chunks, time, "o-", color=COLORS.right)
label_line(used, "memory")
label_line(took, "time")
ax.set_xticks(chunks, [str(chunk) for chunk in chunks])
ax.minorticks_off()
describe(
    fig,
    "Memory and time of 4096 gradient norms against the size of a chunk. Memory rises by a factor "
    "of more than a hundred from chunks of 16 to all at once; the smaller chunks are no slower.",
)
assert memory[-1] > 100 * memory[0]
assert time[:-1].min() < 1.5 * time[-1]

# %% [markdown]
# There is one thing that `grad_norms` does not solve. It is jitted for exactly B examples: three
# sizes, three programs, as in chapter 01. Data sets have sizes that nobody chose.

# %% tags=["claim"]
with CompileCounter(only="grad_norms") as counter:
    for examples in (100, 101, 102):
        part = many_x[:examples], many_labels[:examples]
        norms = grad_norms(example_loss, wide, *part, chunk=50)
        assert_close(norms, to64(ways["one_by_one"][1][:examples]), rtol=1e-4)

print(f"3 sizes: {counter.count} programs")
assert counter.count == 3

# %% [markdown]
# 💡 **`vmap` inside is not a loop inside. What must not be B × P goes through `lax.map`, in
# chunks.**

# %% [markdown] exercise="4.1"
# Write `chunked_norms(loss, params, x, y, chunk)`: the length of each example's gradient, for any
# number of examples, by one program.
#
# - `loss(params, x, y)` is the loss of one example, a scalar; `params` is any pytree of float32
#   arrays. `x` and `y` are NumPy arrays with a leading axis of B examples and any number of axes
#   behind it, float32. `chunk` is a Python int ≥ 1.
# - Return an array of shape (B,), for any B: fewer than `chunk`, no multiple of it, thousands, 0.
# - The first call compiles one program (two small ones beside it are tolerated). Later calls with
#   the same `loss` and `chunk` compile nothing, whatever B and whatever the numbers in `params`.
# - `chunk` examples are differentiated at once: no more, and no fewer, however small B is. (The
#   loss that the check hands you notes how many examples the `vmap` around it holds.)
#
# `chunked_norms` itself is called outside `jit`.


# %% tags=["starter"] exercise="4.1"
def chunked_norms(loss, params, x, y, chunk):
    """Gradient norms (B,) of B examples, `chunk` at a time. x: (B, …), y: (B, …), NumPy."""
    ### BEGIN SOLUTION
    norms = [np.zeros(0, np.float32)]
    for start in range(0, len(x), chunk):
        part = [np.asarray(a[start : start + chunk]) for a in (x, y)]
        rows = len(part[0])
        full = [np.concatenate([a, np.repeat(a[-1:], chunk - rows, axis=0)]) for a in part]
        norms.append(np.asarray(_norms_of_chunk(loss, params, *full))[:rows])
    return np.concatenate(norms)


@partial(jax.jit, static_argnames="loss")
def _norms_of_chunk(loss, params, x, y):
    return jax.vmap(global_norm)(per_example.grads(loss, params, x, y))
    ### END SOLUTION


# %% [markdown]
# ## 4.4 Clip, sum, noise
#
# Whoever sees a trained model sees the data a little. One unusual example pulls a step with all
# its weight, and with it the model; from the difference that one person's record made, something
# about the record can be worked out. Averaging protects nobody: an average moves, too.
#
# **Differentially private SGD** bounds that pull, and then drowns it. Every gradient is
# shortened to at most a length C, so that no example can move the *sum* by more than C. Then the
# sum gets normal noise of standard deviation σ·C, so that a move of C is lost in it. Three lines,
# each of which needs the gradients one by one:

# %% tags=["given"]
# quote: helpers.trees.clip_to_norm


# %% tags=["given"]
# quote: helpers.privacy.clip_each


# quote: helpers.privacy.add_noise


# quote: helpers.privacy.private_mean


# %% [markdown]
# What a number of such steps is worth is told by ε, the bound on what an attacker can learn about
# any one example: 0 is nothing. To find ε is a matter of accounting, which needs σ, the share of
# the data in a batch, and the number of steps; this chapter makes the steps. But accounting trusts
# the code. None of its mistakes raises an error or slows the training, so each of the
# three lines needs a proof. Here is a problem, three classes in the plane, and five proofs.


# %% tags=["given"]
def clusters(seed, examples=600):
    """Three clusters around the origin: x (n, 2) float32, labels (n,) int32."""
    rng = np.random.default_rng(seed)
    labels = (np.arange(examples) % 3).astype(np.int32)
    angles = 2 * np.pi * labels / 3
    centres = 2 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    return (centres + 0.7 * rng.standard_normal((examples, 2))).astype(np.float32), labels


points, classes = clusters(0)
fresh = jax.jit(nn.init_mlp, static_argnums=1)(jax.random.key(0), (2, 16, 3))
fifty = jax.jit(partial(grads, example_loss))(fresh, points[:50], classes[:50])
norms_of = jax.jit(jax.vmap(global_norm))
lengths = np.asarray(norms_of(fifty))
clip, private = jax.jit(clip_each), jax.jit(private_mean)
key = jax.random.key(7)

# %% [markdown]
# **Proof 1: without clipping and without noise, it is the plain gradient.** This catches a sum
# that was never divided, a leaf that was forgotten, a factor of 2.

# %% tags=["claim"]
no_limit = private(key, fifty, np.float32(1e6), np.float32(0))
plain = jax.tree.map(lambda leaf: np.mean(leaf, axis=0), to64(fifty))
assert_close(no_limit, plain, rtol=1e-4, atol=1e-7)

# %% [markdown]
# **Proof 2: no length exceeds C.** Clipping is not normalizing: a gradient within the limit stays
# as it is, to the last bit, and one beyond it keeps its direction. A gradient of zero stays zero,
# even where C is 0, and float16 stays float16.

# %% tags=["claim"]
limit = np.float32(np.median(lengths))
clipped = clip(fifty, limit)
new_lengths = np.asarray(norms_of(clipped))
within = lengths <= limit

print(f"longest: {lengths.max() / limit:.2f} C before, {new_lengths.max() / limit:.4f} C after")
assert np.sum(within) == 25
assert np.all(new_lengths <= limit * (1 + 1e-5))
for before, after in zip(jax.tree.leaves(fifty), jax.tree.leaves(clipped), strict=True):
    assert_equal(after[within], np.asarray(before)[within])
factors = np.minimum(1, limit / lengths.astype(np.float64))
bias, clipped_bias = (np.asarray(tree[-1]["b"]) for tree in (fifty, clipped))
assert_close(clipped_bias, factors[:, None] * bias, rtol=1e-4, atol=1e-7)
nothing = clip_to_norm(np.zeros(3, np.float16), 0.0)
assert nothing.dtype == np.float16 and not nothing.any()

# %% [markdown]
# **Proof 3: chunked is whole.** The sum over a batch is the sum over its parts, clipped apart.
# If it isn't, something in the clipping looks across examples. Clipping the sum of a part does
# exactly that, and is popular because it needs no per-example gradients at all.


# %% tags=["claim"]
@jax.jit
def total(tree):
    return jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), tree)


halves = [jax.tree.map(lambda leaf: leaf[rows], fifty) for rows in (slice(25), slice(25, 50))]
right = [to64(total(clip(half, limit))) for half in halves]
wrong = [to64(jax.jit(clip_to_norm)(total(half), limit)) for half in halves]  # ❌

whole = to64(total(clipped))
assert_close(jax.tree.map(np.add, *right), whole, rtol=1e-4, atol=1e-6)
length = jax.jit(global_norm)
shrunk = length(jax.tree.map(np.add, *wrong)) / length(whole)
print(f"clipping the sums of two halves leaves {float(shrunk):.0%} of the sum of clipped gradients")
assert shrunk < 0.5

# %% [markdown]
# **Proof 4: the noise is standard normal in units of σ·C, on the sum.** Gradients of zero leave
# nothing but noise. Undo the division by B, divide by σ·C, and 10,000 numbers must have mean 0
# and variance 1, and be distributed like a normal variable: the largest distance between the two
# distribution functions is below 0.02. The two leaves must not share their noise.

# %% tags=["claim"]
zeros = {"a": np.zeros((4, 5000), np.float32), "b": np.zeros((4, 5000), np.float32)}
noise = private(key, zeros, np.float32(0.5), np.float32(3.0))
units = {name: np.asarray(leaf, np.float64) * 4 / (3.0 * 0.5) for name, leaf in noise.items()}
both = np.sort(np.concatenate(list(units.values())))
normal = (1 + np.asarray(jax.lax.erf(both / np.sqrt(2)), np.float64)) / 2
distance = np.max(np.abs(normal - np.arange(1, 10_001) / 10_000))

print(f"mean {abs(both.mean()):.2f}, variance {both.var():.2f}, distance {distance:.2f}")
assert abs(both.mean()) < 0.04
assert abs(both.var() - 1) < 0.06
assert distance < 0.02
assert abs(np.corrcoef(units["a"], units["b"])[0, 1]) < 0.06

# %% [markdown]
# **Proof 5: keys decide.** The same key gives the same step, bit by bit, or no run could be
# repeated. Another key gives other noise everywhere. And a key that is used for two steps gives
# both the same noise, which their difference removes. ❌ It is the mistake that leaves the loss
# curve as smooth as ever.

# %% tags=["claim"]
one, other = np.float32(1), jax.random.key(8)
step, again = (private(key, fifty, limit, one) for _ in range(2))
elsewhere = private(other, fifty, limit, one)
assert_equal(again, step)
assert np.all(np.asarray(step[0]["w"]) != np.asarray(elsewhere[0]["w"]))

next_batch = jax.tree.map(lambda leaf: -np.asarray(leaf), fifty)
reused = private(key, next_batch, limit, one)
leak = jax.tree.map(np.subtract, to64(reused), to64(step))
no_noise = [to64(private(key, tree, limit, np.float32(0))) for tree in (next_batch, fifty)]
assert_close(leak, jax.tree.map(np.subtract, *no_noise), rtol=1e-3, atol=1e-6)

# %% [markdown]
# What the limit is worth shows in the worst case. One record that was entered in the wrong unit
# moves an unclipped sum by as much as it likes, here by more than 100 C; clipped, by C.


# %% tags=["claim"]
def scaled_record(factor):
    """The fifty gradients, the first of them multiplied by a factor."""
    scale = np.where(np.arange(50) == 0, np.float32(factor), np.float32(1))
    return jax.tree.map(lambda g: np.asarray(g) * scale.reshape(50, *[1] * (g.ndim - 1)), fifty)


moved = {}
for name, bound in (("unclipped", np.float32(1e6)), ("clipped", limit)):
    with_it, without = (to64(total(clip(scaled_record(f), bound))) for f in (1000, 0))
    moved[name] = float(length(jax.tree.map(np.subtract, with_it, without)) / limit)
    print(f"{name:9}: one record moves the sum by {moved[name]:.0f} C")
assert moved["unclipped"] > 100
assert_close(np.float32(moved["clipped"]), 1.0, rtol=1e-3)

# %% [markdown]
# <details><summary>I don't understand why the length is taken over all leaves together.</summary>
#
# Because an attacker sees all of them. With each leaf clipped to C by itself, a model of two
# layers, which has four leaves, may move by twice C: the noise is then half of what was
# promised. One can clip by leaf, with a limit of C divided by the root of the number of leaves.
#
# </details>
#
# 💡 **Clip each, sum, add noise of σ·C to the sum, divide. In this order.**

# %% [markdown] exercise="4.2"
# Write `clipped_sum(loss, params, x, y, mask, max_norm)`: the sum of the clipped gradients of the
# rows in the mask, as a tree like `params`, in little memory. It is what DP-SGD needs when a
# batch is drawn at random and padded to a fixed size.
#
# - `loss(params, x, y)` is the loss of one example, a scalar; `params` is a list of dicts of
#   float32 arrays. `x` (B, d) and `y` (B, k) are float32, `mask` (B,) is bool.
# - Each example's gradient is scaled down to length `max_norm`, over all leaves together, where
#   it is longer, and stays as it is where it is not; a gradient of 0 stays 0. `max_norm` is a
#   positive float32 scalar; `inf` means no clipping.
# - A row outside the mask adds nothing, even if its `x` is NaN. With no row in the mask, the sum
#   is 0.
# - It works inside `jax.jit`, with all arguments but `loss` traced.
# - Never B gradients at once: for 32 rows and layers of 48, 48 and 48 the check compiles it, and
#   its `temp_size_in_bytes` stays below a quarter of what the 32 gradients would take.


# %% tags=["starter"] exercise="4.2"
def clipped_sum(loss, params, x, y, mask, max_norm):
    """Sum of clipped gradients, a tree like params. x: (B, d), y: (B, k), mask: (B,) bool."""
    ### BEGIN SOLUTION

    def add(total, example):
        x, y, real = example
        gradient = clip_to_norm(jax.grad(loss)(params, x, y), max_norm)
        return jax.tree.map(lambda t, g: t + jnp.where(real, g, 0.0), total, gradient), None

    total, _ = jax.lax.scan(add, jax.tree.map(jnp.zeros_like, params), (x, y, mask))
    return total
    ### END SOLUTION


# %% [markdown]
# ## 4.5 Noise in the wrong place
#
# The noise is measured for the sum. Most training code works with means. Between the two stands
# a factor of B, and it gets lost in both directions, not only by beginners: an example that came
# with jax_privacy, a library made for this, added the noise of the sum to the mean (its issue 383).
#
# ❌ Too much: noise of σ·C is added to the *mean*. ❌ Too little: the noise is divided by B, as
# is right for a mean, and then added to the sum. They look alike:


# %% tags=["given"]
def noise_on_the_mean(key, grads, max_norm, noise_multiplier):
    mean = jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), clip_each(grads, max_norm))
    return add_noise(key, mean, noise_multiplier * max_norm)


def noise_divided_twice(key, grads, max_norm, noise_multiplier):
    batch = jax.tree.leaves(grads)[0].shape[0]
    total = jax.tree.map(lambda leaf: jnp.sum(leaf, axis=0), clip_each(grads, max_norm))
    noisy = add_noise(key, total, noise_multiplier * max_norm / batch)
    return jax.tree.map(lambda leaf: leaf / batch, noisy)


# %% [markdown]
# Proof 4 is a test for both. It finds the first one B times too loud, the second B times too
# quiet.

# %% tags=["claim"]
loudness = {}
for make in (private_mean, noise_on_the_mean, noise_divided_twice):
    noise = jax.jit(make)(key, zeros["a"], np.float32(0.5), np.float32(3.0))
    loudness[make.__name__] = 4 * np.asarray(noise).std() / (3.0 * 0.5)
    print(f"{make.__name__:20} {loudness[make.__name__]:.2f} of σC, for 4 examples")
assert_close(np.array(list(loudness.values())), [1.0, 4.0, 0.25], rtol=0.05)

# %% [markdown]
# Would you have noticed while training? Here is a private training: random batches of 100, 60
# steps. One program does all four trainings that we compare. With a huge C and σ = 0 it is the
# plain one, by proof 1; with σ·B and with σ/B it makes the two mistakes, as the cell after it
# proves.


# %% tags=["given"]
@jax.jit
def train(key, labels, max_norm, noise_multiplier):
    """60 steps from `fresh`. Returns the parameters and the loss before each step, (60,)."""
    x = jnp.asarray(points)

    def step(params, key):
        rows_key, noise_key = jax.random.split(key)
        rows = jax.random.randint(rows_key, (100,), 0, len(points))
        each = grads(example_loss, params, x[rows], labels[rows])
        slope = private_mean(noise_key, each, max_norm, noise_multiplier)
        loss = jnp.mean(losses.cross_entropy(nn.apply_mlp(params, x), labels))
        return jax.tree.map(lambda p, g: p - 0.5 * g, params, slope), loss

    return jax.lax.scan(step, fresh, jax.random.split(key, 60))


# %% tags=["claim"]
for make, factor in ((noise_on_the_mean, 50), (noise_divided_twice, 1 / 50)):
    mistake = jax.jit(make)(key, fifty, np.float32(0.7), np.float32(2.0))
    same = private(key, fifty, np.float32(0.7), np.float32(2.0 * factor))
    assert_close(mistake, to64(same), rtol=1e-3, atol=1e-4)

# %% [markdown]
# The private training reaches a loss within 20 % of the plain one. With the noise on the mean
# the loss ends up more than 5 times as high. With too little noise it is as good as without any:
# a mistake that pays, and so nobody looks for it. What you published as private is not.

# %% tags=["claim"]
runs = {
    "plain": (1e6, 0.0),
    "private, σ = 1": (1.0, 1.0),
    "noise on the mean": (1.0, 100.0),
    "noise divided twice": (1.0, 0.01),
}
curves, trained = {}, {}
for name, (max_norm, multiplier) in runs.items():
    arguments = np.float32(max_norm), np.float32(multiplier)
    trained[name], curves[name] = train(jax.random.key(1), classes, *arguments)
last = {name: float(np.mean(curve[-10:])) for name, curve in curves.items()}

for name, loss in last.items():
    times = loss / last["plain"]
    print(f"{name:20} {'more than 5' if times > 5 else f'{times:.1f}'} times the plain loss")
assert last["private, σ = 1"] < 1.2 * last["plain"]
assert last["noise on the mean"] > 5 * last["plain"]
assert last["noise divided twice"] < 1.2 * last["plain"]

# %% tags=["figure"]
fig, ax = figure("Privacy is cheap, a misplaced B is not", "step", "loss (log scale)")
colors = COLORS.reference, COLORS.right, COLORS.wrong, COLORS.fourth
shifts = -4, 12, 0, 28
for (name, curve), color, dy in zip(curves.items(), colors, shifts, strict=True):
    (line,) = ax.semilogy(range(60), np.asarray(curve), color=color)
    label_line(line, name, dy=dy)
describe(
    fig,
    "Loss over 60 steps of four trainings. Plain, private and too quiet noise fall together; with "
    "the noise on the mean the loss stays high and jumps about.",
)

# %% [markdown]
# Privacy is not always this cheap. The noise on the mean is σ·C / B in each of P directions, so
# it needs large batches, and large models pay more.
#
# 💡 **Test the noise, not the training: zeros in, σ·C / B out.**

# %% [markdown]
# ## 4.6 Which examples pull
#
# A step of gradient descent on one example alone lowers that example's loss by η·‖g‖², to first
# order. So the norm says how much an example still has to teach, or how much the model resists.
# For the network that you just trained, and a step of 0.001:

# %% tags=["claim"]
params = trained["plain"]
each = jax.jit(partial(grads, example_loss))(params, points[:100], classes[:100])
rate = 1e-3


def loss_after_own_step(gradient, x, label):
    moved = jax.tree.map(lambda p, g: p - rate * g, params, gradient)
    return example_loss(moved, x, label)


with jax.enable_x64(True):  # the differences are small
    batch = to64(points[:100]), classes[:100]
    before = jax.jit(jax.vmap(partial(example_loss, to64(params))))(*batch)
    after = jax.jit(jax.vmap(loss_after_own_step))(to64(each), *batch)
predicted = rate * to64(jax.jit(jax.vmap(global_norm))(each)) ** 2
assert_close(np.asarray(before - after), predicted, rtol=0.02)

# %% [markdown]
# A wrong label resists for ever. In the data below 30 of 600 labels are flipped, one in twenty.
# The network is trained on them as they are. It learns the clusters all the same, because the
# right labels outvote the wrong ones, and then each flipped example pulls at it in vain. Among
# the 30 longest gradients at least 24 are flipped ones.

# %% tags=["claim", "nbval-ignore-output"]
flipped = np.random.default_rng(3).choice(len(classes), 30, replace=False)
noisy = classes.copy()
noisy[flipped] = (noisy[flipped] + 1) % 3

params, _ = train(jax.random.key(1), noisy, np.float32(1e6), np.float32(0))
norms = np.asarray(grad_norms(example_loss, params, points, noisy, chunk=100))
longest = np.argsort(-norms)[:30]
found = len(set(longest) & set(flipped))

print("flipped among the 30 longest gradients:", found)
assert found >= 24

# %% tags=["figure"]
honest = np.setdiff1d(np.arange(len(noisy)), flipped)
fig, ax = figure("Most of the longest gradients have a wrong label", "rank", "gradient norm")
rank = np.argsort(np.argsort(-norms)) + 1
ax.plot(rank[honest], norms[honest], "o", color=COLORS.right, markersize=3)
ax.plot(rank[flipped], norms[flipped], "o", color=COLORS.wrong, markersize=5)
ax.annotate("flipped", (40, 4.6), color=COLORS.wrong, weight="bold")
ax.annotate("honest", (300, 0.5), color=COLORS.right, weight="bold")
describe(
    fig,
    "Gradient norms of 600 examples by rank. Nearly all of the thirty longest belong to flipped "
    "labels; then the norms fall off steeply.",
)
assert np.median(norms[flipped]) > 5 * np.median(norms[honest])

# %% [markdown]
# ❌ But a long gradient is no proof of a wrong label. To the network a hard example *is* a flipped
# one. Relabel ten points of class 0, and say that the new label is the truth about them: they are
# hard, lie deep in another class's cluster, and are right. The norm can't tell. A length has no
# direction. Whether an example pulls *well* can only be said against something that you trust.

# %% tags=["claim"]
hard_x = points[classes == 0][:10]
hard_labels = np.ones(10, np.int32)  # what these ten are in truth, if we say so
hard = np.asarray(grad_norms(example_loss, params, hard_x, hard_labels, chunk=100))

ratio = np.median(hard) / np.median(norms[flipped])
print(f"hard examples: {ratio:.1f} times the norm of flipped ones")
assert 0.5 < ratio < 2

# %% [markdown]
# 💡 **The norm tells who pulls, not whether in the right direction.**

# %% [markdown] exercise="4.3"
# Some labels of a data set were flipped. You also have a few examples whose labels you trust.
# Write `find_flipped(loss, params, x, y, trusted_x, trusted_y, k)`, which returns the indices of
# the k most harmful examples, the most harmful first.
#
# - The **harm** of an example: take a step of gradient descent of length η on that example alone,
#   `params − η · gradient`. Its harm is the rate at which the *mean* loss over the trusted
#   examples rises with η, at η = 0. It is negative where the step helps.
# - `loss(params, x, y)` is the loss of one example, a scalar; `params` is a dict of float32
#   arrays, and all its leaves count. `x` (B, d), `y` (B,), `trusted_x` (T, d) and `trusted_y`
#   (T,) are float32.
# - Return an array of k integers, of shape (k,), 1 ≤ k ≤ B. No two harms are equal.
# - It works inside `jax.jit`, with `loss` and `k` static.
#
# In the data of the check, the flipped examples are the k most harmful ones, but neither the
# longest gradients nor the largest losses.


# %% tags=["starter"] exercise="4.3"
def find_flipped(loss, params, x, y, trusted_x, trusted_y, k):
    """Indices (k,) of the examples that harm the trusted loss most, most harmful first."""
    ### BEGIN SOLUTION

    def all_losses(params, x, y):
        return jax.vmap(loss, (None, 0, 0))(params, x, y)

    trusted = jax.grad(lambda p: jnp.mean(all_losses(p, trusted_x, trusted_y)))(params)
    _, helps = jax.jvp(lambda p: all_losses(p, x, y), (params,), (trusted,))
    return jnp.argsort(helps)[:k]
    ### END SOLUTION


# %% [markdown]
# ## 4.7 How far the gradients agree
#
# The mean of the gradients is what you step along. Their scatter says how much to trust it. A
# batch of B examples, drawn at random, estimates the true gradient with a variance of tr Σ / B,
# where Σ is the covariance of the gradients and its trace the sum of their variances. Compare
# that with ‖G‖², the squared length of the true one: at a batch size of tr Σ / ‖G‖², the **gradient
# noise scale**, noise and signal are equal. Below it, a larger batch is a better step; far above
# it, one pays for precision that the next step does not need.
#
# During a training both shrink, the signal far faster. Here the noise tr Σ falls to less than a
# tenth, the signal ‖G‖² to less than a thousandth, and the noise scale rises more than 100 times.
# A batch that was large enough at the start is far too small at the end.


# %% tags=["given"]
def gradient_rows(params):
    """Each example's gradient as one row of a float64 matrix, (600, P)."""
    each = jax.jit(partial(grads, example_loss))(params, points, classes)
    return np.concatenate([leaf.reshape(600, -1) for leaf in jax.tree.leaves(to64(each))], axis=1)


def noise_and_signal(rows):
    """tr Σ and ‖G‖² of gradients (B, P)."""
    return np.sum(np.var(rows, axis=0)), np.sum(np.mean(rows, axis=0) ** 2)


# %% tags=["claim", "nbval-ignore-output"]
rows_before, rows_after = gradient_rows(fresh), gradient_rows(trained["plain"])
(noise_before, signal_before), (noise_after, signal_after) = (
    noise_and_signal(rows) for rows in (rows_before, rows_after)
)
scale_before, scale_after = noise_before / signal_before, noise_after / signal_after
print(f"before: noise {noise_before:.2f}, signal {signal_before:.2f}, scale {scale_before:.1f}")
print(f"after:  noise {noise_after:.2f}, signal {signal_after:.5f}, scale {scale_after:.0f}")
assert noise_after < noise_before / 10
assert signal_after < signal_before / 1000
assert scale_after > 100 * scale_before

# %% [markdown]
# That tr Σ / B is the squared error of a batch's gradient can be measured: draw 2000 batches of 20,
# and see how far they are from the true one.

# %% tags=["claim"]
rng = np.random.default_rng(4)
batches = rows_after[rng.integers(0, 600, (2000, 20))].mean(axis=1)
squared_error_of_batches = np.mean(np.sum((batches - rows_after.mean(axis=0)) ** 2, axis=1))
assert_close(squared_error_of_batches, noise_after / 20, rtol=0.1)

# %% [markdown]
# ❌ Second moments have an old trap. The square of the mean is not the mean of the squares: in
# the first, gradients that disagree cancel *before* they are squared. From a batch gradient you
# can compute only the first. Their ratio is the noise scale plus 1, so after the training they
# differ by more than 100 times.

# %% tags=["claim", "nbval-ignore-output"]
mean_of_squares = np.sum(np.mean(rows_after**2, axis=0))
print(f"square of the mean {signal_after:.5f}, mean of the squares {mean_of_squares:.5f}")
assert mean_of_squares > 100 * signal_after
assert_close(mean_of_squares / signal_after, 1 + scale_after, rtol=1e-9)

# %% [markdown]
# The mean of squares has a famous relative. A classifier gives each label c a probability $p_c$.
# The derivative of $\log p_c$ is the label's **score**, and the expected square of the score is
# the **Fisher information**: how sharply the data pin a parameter down. It protects weights from
# being overwritten, prunes them, and preconditions steps. *Expected* means: over labels that the
# model itself would draw, each with its own probability.
#
# The smallest model is a coin with logit θ, p = 1 / (1 + exp(−θ)). Its scores are 1 − p for heads
# and −p for tails. Their expectation is 0, for every model that there is; the expectation of
# their squares is p·(1 − p).


# %% tags=["claim"]
def log_prob(theta, heads):
    return jnp.where(heads, jax.nn.log_sigmoid(theta), jax.nn.log_sigmoid(-theta))


theta = np.float32(1.5)
score_heads, score_tails = (float(jax.grad(log_prob)(theta, heads)) for heads in (True, False))
p = 1 / (1 + np.exp(-1.5))
expected = p * score_heads + (1 - p) * score_tails
information = p * score_heads**2 + (1 - p) * score_tails**2

print(f"expected score {abs(expected):.3f}, information {information:.3f}")
assert_close(np.array([score_heads, score_tails]), [1 - p, -p], rtol=1e-5)
assert abs(expected) < 1e-6
assert_close(information, p * (1 - p), rtol=1e-5)

# %% [markdown]
# ❌ Two things go by the same name and are something else. With the labels of the data in place
# of the model's, it is the *empirical* Fisher: for a coin that fell heads every time, the square
# of 1 − p. With the likeliest label alone it is the same here. Both miss the rare label, whose
# score is the largest. At p = 0.82 they are less than a quarter of the information.

# %% tags=["claim"]
empirical = score_heads**2
print(f"p = {p:.2f}: empirical {empirical:.3f}, information {information:.3f}")
assert 0.81 < p < 0.82
assert empirical < information / 4

# %% [markdown]
# 💡 **Square first, then average; and average over the labels that you mean.**

# %% [markdown] exercise="4.4"
# Write `diagonal_fisher(logits, params, x)`: the diagonal of the Fisher information of a
# classifier, exactly, with no label drawn and none given.
#
# - `logits(params, x)` maps one example (d,) to C logits; p = softmax(logits) are the model's
#   probabilities of its labels. `params` is a pytree of float32 arrays, `x` (B, d) is float32.
# - For each parameter θ, return the mean over the B examples of
#   $\sum_c p_c \, (\partial \log p_c / \partial \theta)^2$, as a tree like `params`. The weights
#   $p_c$ are the model's.
# - It stays right where a label is very unlikely: to 1 % for a probability of 1e-14, also in the
#   parameters that only this label sees; and finite where a logit lies 200 below the others, so
#   that the probability is 0 in float32.
# - It works inside `jax.jit`, with `logits` static.


# %% tags=["starter"] exercise="4.4"
def diagonal_fisher(logits, params, x):
    """Mean over x (B, d) of the expected squared score, a tree like params."""
    ### BEGIN SOLUTION

    def log_probs(params, x):
        return jax.nn.log_softmax(logits(params, x))

    def of_one(x):
        probs = jnp.exp(log_probs(params, x))
        scores = jax.jacrev(log_probs)(params, x)  # leaves (C, …)
        return jax.tree.map(lambda score: jnp.tensordot(probs, score**2, 1), scores)

    return jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), jax.vmap(of_one)(x))
    ### END SOLUTION


# %% [markdown]
# ## 4.8 The norm of an outer product
#
# A gradient of a dense layer is a large object with very little in it. The layer maps an input a
# of d numbers to z = a W + b, of k numbers, and the loss sees W and b through z alone. Write δ
# for the derivative of the example's loss by z. Since $z_j = \sum_i a_i W_{ij} + b_j$, the chain
# rule gives
#
# $$\frac{\partial \ell}{\partial W_{ij}} = a_i\,\delta_j, \qquad
# \frac{\partial \ell}{\partial b_j} = \delta_j.$$
#
# The gradient of W is an **outer product**: a matrix of rank one, d × k numbers made of d + k.
# Its squared length factors:
#
# $$\sum_{ij} (a_i \delta_j)^2 = \sum_i a_i^2 \sum_j \delta_j^2 = \|a\|^2\,\|\delta\|^2,
# \qquad \|\nabla_W\|^2 + \|\nabla_b\|^2 = \|\delta\|^2\,(\|a\|^2 + 1).$$
#
# ✅ For a single layer under a softmax, δ is the probabilities minus the label's one-hot vector,
# and the formula can be held against the gradients themselves.

# %% tags=["claim"]
single = jax.jit(nn.init_mlp, static_argnums=1)(jax.random.key(2), (12, 8))
a = np.random.default_rng(5).standard_normal((20, 12)).astype(np.float32)
y = np.arange(20, dtype=np.int32) % 8
each = jax.jit(partial(grads, example_loss))(single, a, y)

exact = to64(single)[0]
odds = np.exp(a.astype(np.float64) @ exact["w"] + exact["b"])
delta = odds / odds.sum(axis=1, keepdims=True) - np.eye(8)[y]
by_formula = np.sqrt(np.sum(delta**2, axis=1) * (np.sum(a.astype(np.float64) ** 2, axis=1) + 1))

ranks = np.linalg.matrix_rank(each[0]["w"], tol=1e-4)
print(f"20 gradients of {12 * 8} weights, ranks {sorted(set(ranks.tolist()))}")
assert set(ranks.tolist()) == {1}
assert_close(each[0]["w"], a[:, :, None] * delta[:, None, :], rtol=1e-4, atol=1e-5)
assert_close(norms_of(each), by_formula, rtol=1e-4)

# %% [markdown]
# For a layer of 1000 by 1000, that is 2000 numbers an example in place of a million. Both a and δ
# are made anyway: the forward pass computes every layer's input, and the backward pass every
# layer's δ, for the whole batch, before it folds them into the one gradient that you see. And
# the δ of one example is not touched by the others, as long as the batch's loss is the *sum* of
# theirs. (A mean divides every δ by B.) A layer that looks across the batch breaks this: with
# batch normalization the δ of example 0 depends on who else is there, with layer normalization it
# doesn't.


# %% tags=["claim"]
def delta_of_first(z, axis):
    """Derivative by row 0 of z (B, k) of a summed loss that normalizes z along an axis."""

    def normalized(z):
        return (z - z.mean(axis, keepdims=True)) / z.std(axis, keepdims=True)

    return jax.grad(lambda z: jnp.sum(jnp.tanh(normalized(z))))(z)[0]


other_company = np.concatenate([a[:1], 2 * a[1:]])
by_layer = [delta_of_first(z, 1) for z in (a, other_company)]
by_batch = [delta_of_first(z, 0) for z in (a, other_company)]
assert_equal(by_layer[1], np.asarray(by_layer[0]))
assert np.linalg.norm(by_batch[1] - by_batch[0]) > 0.1 * np.linalg.norm(by_batch[0])

# %% [markdown]
# ❌ The formula holds where a weight is used *once* for an example. In a sequence or an image,
# the same W meets many positions t, and the gradient is a sum of outer products. Lengths don't
# add up, and neither do their squares. The right square pairs every two positions, T² inner
# products instead of T:
#
# $$\left\|\sum_t a_t \delta_t^\top\right\|^2
# = \sum_{t,s} (a_t \cdot a_s)(\delta_t \cdot \delta_s).$$

# %% tags=["claim"]
rng = np.random.default_rng(6)
positions, outputs = rng.uniform(0, 1, (10, 12)), rng.uniform(0, 1, (10, 8))
true_norm = np.linalg.norm(positions.T @ outputs)
once_each = np.sqrt(np.sum(np.sum(positions**2, axis=1) * np.sum(outputs**2, axis=1)))
all_pairs = np.sqrt(np.sum((positions @ positions.T) * (outputs @ outputs.T)))

print(f"10 positions: the formula for one use gives {once_each / true_norm:.0%} of the norm")
assert once_each < 0.5 * true_norm
assert_close(all_pairs, true_norm, rtol=1e-12)

# %% [markdown]
# 💡 **A dense layer's gradient is a times δ: keep the two vectors, not their product.**

# %% [markdown] exercise="4.5"
# Write `mlp_grad_norms(params, x, labels)`: the length of each example's gradient over *all*
# layers of an MLP, without any example's gradient.
#
# - `params` is what `nn.init_mlp` makes: a list of dicts with "w" (inputs, outputs) and "b"
#   (outputs,), of one layer or more, float32. Between layers stands `tanh`, behind the last one
#   nothing, as in `nn.apply_mlp`.
# - `x` (B, d) is float32, `labels` (B,) int32. The loss of an example is
#   `losses.cross_entropy(nn.apply_mlp(params, x), label)`.
# - Return shape (B,), float32. It works inside `jax.jit`.
# - For 4 examples and layers of 128, 128 and 128, the check compiles it, and its
#   `temp_size_in_bytes` stays below half of one weight matrix, 32 KiB. One example's gradient is
#   four times that.


# %% tags=["starter"] exercise="4.5"
def mlp_grad_norms(params, x, labels):
    """Gradient norms (B,) of the cross-entropy of an MLP. x: (B, d), labels: (B,)."""
    ### BEGIN SOLUTION

    def total_loss(offsets):
        inputs, a = [], x
        for layer, offset in zip(params, offsets, strict=True):
            inputs.append(a)
            z = a @ layer["w"] + layer["b"] + offset
            a = jnp.tanh(z)
        return jnp.sum(losses.cross_entropy(z, labels)), inputs

    offsets = [jnp.zeros((len(x), *layer["b"].shape)) for layer in params]
    deltas, inputs = jax.grad(total_loss, has_aux=True)(offsets)
    squares = [
        jnp.sum(delta**2, axis=1) * (jnp.sum(a**2, axis=1) + 1)
        for delta, a in zip(deltas, inputs, strict=True)
    ]
    return jnp.sqrt(sum(squares))
    ### END SOLUTION


# %% [markdown]
# ## 4.9 What to keep
#
# 💡 **A loss of one example, `grad` inside, `vmap` outside, `None` for the parameters.** Then
# check the shapes, and that the mean is the batch gradient.
#
# 💡 **Never hold B × P numbers for the sake of B.** Go in chunks, carry a sum, or take the norm
# from the two vectors of a layer.
#
# 💡 **Clip each, sum, noise, divide; and test the noise on zeros.** Nothing else will tell you.
#
# ### 🧪 Quiz
#
# Put a letter in place of the dots and run the cell. What can be measured is measured on your
# machine.

# %% tags=["quiz"] question="4.a"

# %% tags=["quiz"] question="4.b"

# %% tags=["quiz"] question="4.c"

# %% tags=["quiz"] question="4.d"

# %% tags=["quiz"] question="4.e"

# %% tags=["quiz"] question="4.f"

# %% tags=["quiz"] question="4.g"

# %% tags=["quiz"] question="4.h"

# %% [markdown]
# ### Cheat sheet
#
# | to | write |
# |---|---|
# | get each example's gradient | `jax.vmap(jax.grad(loss), (None, 0, 0))(params, x, y)` |
# | the same, from the library | `per_example.grads(loss, params, x, y)` |
# | with the losses as well | `jax.vmap(jax.value_and_grad(loss), (None, 0, 0))` |
# | the length of a tree | `global_norm(tree)`; of each in a stack `jax.vmap(global_norm)(each)` |
# | norms in chunks | `jax.lax.map(norm, (x, y), batch_size=128)`, `per_example.grad_norms` |
# | the memory of a program | `jax.jit(f).lower(*args).compile().memory_analysis()` |
# | clip one gradient | `clip_to_norm(gradient, C)`; each in a stack `privacy.clip_each(each, C)` |
# | a private gradient | `privacy.private_mean(key, each, C, sigma)`, a fresh key for each step |
# | the norm for a dense layer | $\sqrt{\|\delta\|^2 (\|a\|^2 + 1)}$, δ at what goes into `tanh` |
# | a batch's best size | tr Σ / ‖G‖², from the variances of the gradients |
