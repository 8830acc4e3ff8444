# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # 10 · Capstone: the spiral
#
# Three arms of points wind around the origin, and a network has to tell which arm a point is on.
# It is a toy, and that is its use: a run takes seconds, so every claim about it can be checked,
# on ten data sets instead of one. All the rest is real. Data are drawn, split and batched; a
# state is donated from step to step; a loss stays finite; an epoch is one program; the model is
# evaluated against float64, and asked which examples it finds hard.
#
# None of it needs a framework. The pieces are those that you built: the compile budget of
# chapter 01, the stable loss of chapter 02, the gradient norms of chapter 04, the optimizer of
# chapter 05, the donation of chapter 06, the trees of chapter 07. What is new here are the seams.
# Runs go wrong where one piece hands over to the next: a key that two pieces use, a last batch
# that is smaller than the others, an average that is one step late.
#
# Afterwards you can
#
# - give a run one seed, and keep its data, weights and order apart;
# - write a run down as a value, so that ten runs share one program;
# - average losses, accuracies and parameters over batches of unequal size;
# - say how sure an accuracy is, and find the examples that it hides;
# - put your own six pieces together, and see them learn.
#
# Reading and running takes about an hour, the six milestones two and a half. Each milestone is
# checked by itself: the check brings all that it needs from the others, so you can begin anywhere.
#
# | mark | means |
# |---|---|
# | ❌ | a mistake, and what it costs |
# | ✅ | the way to do it, and the proof |
# | ✍️ | your turn |
# | 🧪 | a check, or a question of the quiz |
# | 💡 | a rule to keep |

# %% tags=["setup"]
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

# %% tags=["setup"]
from helpers import (
    COLORS,
    CompileBudget,
    CompileCounter,
    assert_close,
    assert_equal,
    check,
    data,
    describe,
    figure,
    label_line,
    losses,
    nn,
    per_example,
    quiz,
    show_error,
    to64,
    training,
    use_course_style,
)
from helpers.buffers import TWICE, addresses, deleted, refusal
from helpers.losses import cross_entropy
from helpers.optim import apply_updates
from helpers.training import Loss, TrainState, init_state
from helpers.trees import Tree, global_norm

# %% [markdown]
# ## 10.1 The task, and what is easy about it
#
# `spiral` draws 240 points for each of three arms. The radius is uniform, the angle grows with
# it, and the noise is one of angle: far out the arms lie apart, and in the origin they meet.

# %% tags=["figure"]
ARMS = [COLORS.right, COLORS.wrong, COLORS.third]

x, labels = (np.array(part) for part in data.spiral(jax.random.key(0)))
fig, ax = figure("Three arms meet in the origin", "x₁", "x₂", size=(4.4, 4.0))
for arm, color in enumerate(ARMS):
    own = x[labels == arm]
    ax.scatter(own[:, 0], own[:, 1], s=7, color=color)
    far = own[np.argmax(np.linalg.norm(own, axis=1))]
    ax.annotate(f"arm {arm}", 1.2 * far, color=color, fontweight="bold", ha="center", va="center")
ax.set_aspect("equal")
ax.set(xlim=(-1.35, 1.35), ylim=(-1.35, 1.35))
assert x.shape == (720, 2) and np.bincount(labels).tolist() == [240, 240, 240]
describe(fig, "720 points in the plane: three arms in three colours, each turning by 4 radians.")

# %% [markdown]
# How good is good? Know the two numbers below it before you train. Whoever guesses is right for a
# third of the points. The best straight borders, by least squares on one-hot labels, are right
# for about half of them: less than 0.6 here, on points that they were fitted to. So an accuracy
# above 0.95 says that the network has found the curves.

# %% tags=["claim"]
plane = np.column_stack([x, np.ones(720)]).astype(np.float64)
straight, *_ = np.linalg.lstsq(plane, np.eye(3)[labels], rcond=None)
accuracy_of_lines = np.mean(np.argmax(plane @ straight, axis=1) == labels)

print(f"straight borders: {accuracy_of_lines:.2f}")
assert 1 / 3 < accuracy_of_lines < 0.6

# %% [markdown]
# 💡 **Know what guessing and what a straight line achieve, before you praise a curve.**

# %% [markdown]
# ## 10.2 One seed, many keys
#
# A run draws four things: training points, test points, weights, and the order of the examples.
# Each gets a key of its own, split from the seed's.


# %% tags=["given"]
def keys_of(seed):
    """Four keys of a run: training points, test points, weights, order."""
    return jax.random.split(jax.random.key(seed), 4)


# %% [markdown]
# ❌ A key is no generator that moves on. Drawn with the same one, the test set *is* the training
# set: every test point has been trained on, and nothing says so, for shapes and labels are right.
# ✅ With keys of their own the sets share no point.

# %% tags=["claim"]
for_training, for_test, *_ = keys_of(0)
points, _ = data.spiral(for_training)
for what, key in (("same key", for_training), ("its own key", for_test)):
    test_points, _ = data.spiral(key)
    known = {tuple(point) for point in np.array(points).tolist()}
    again = sum(tuple(point) in known for point in np.array(test_points).tolist())
    print(f"{what:12} {again} of 720 test points were trained on")
    assert again == (720 if key is for_training else 0)

# %% [markdown]
# Real data can't be drawn anew; some are **held out**. ❌ Cutting off the end of the file is a
# sample only if the file is in no order. This one comes arm after arm: the last fifth of it is
# one arm alone, a third of what has to be learnt about.
#
# A random cut is fair on average. It is not fair in each draw: the classes of 144 points out of
# 720 come out unequal, and with few examples of a class its accuracy is a matter of luck.

# %% tags=["claim"]
print("the last 144:  ", np.bincount(labels[-144:], minlength=3), "points of each arm")
for seed in range(3):
    order = np.array(jax.random.permutation(jax.random.key(seed), 720))
    counts = np.bincount(labels[order[:144]], minlength=3)
    print(f"random, seed {seed}:", counts)
    assert counts.sum() == 144 and len(set(counts.tolist())) > 1

assert np.bincount(labels[-144:], minlength=3).tolist() == [0, 0, 144]
assert 144 * 5 == 720

# %% [markdown]
# ✅ A **stratified** split draws inside each class, so that every class holds out its share. That
# is yours to write, after the next section.
#
# 💡 **One seed for the run, one key for each thing that is drawn, and no key twice.**

# %% [markdown]
# ## 10.3 Batches that lose nothing
#
# An epoch is one pass over the examples, in batches of 72. Does their order matter? Everybody says
# that data must be shuffled. Measure it. First the recipe of all runs in this chapter; §10.4 says
# what is in it. Then `pass_over`, which takes one step on each batch, in the order in which they
# come; one program serves both orders. Its state and its step are the library's, known from
# chapters 06 and 07 and quoted in §10.6.

# %% tags=["given"]
# quote: helpers.exercises.spiral.Recipe


# %% tags=["given"]
LAYERS = 2, 32, 32, 3


def mean_loss(params, x, labels):
    """Mean cross-entropy of the network. x: (n, 2), labels: (n,)."""
    return jnp.mean(cross_entropy(nn.apply_mlp(params, x), labels))


@jax.jit
def pass_over(state, batches):
    """A step on each batch, in order. batches: x (steps, 72, 2) and labels (steps, 72)."""
    return jax.lax.scan(
        lambda state, batch: training.step(mean_loss, state, *batch), state, batches
    )


new_weights = jax.jit(nn.init_mlp, static_argnums=1)
optimizer = Recipe().optimizer()


def accuracies(x, labels, shuffled, epochs=100):
    """Accuracy on the training points after each epoch."""
    rng, found = np.random.default_rng(0), []
    state = init_state(new_weights(jax.random.key(1), LAYERS), optimizer)
    for _ in range(epochs):
        order = rng.permutation(720) if shuffled else np.arange(720)
        state, _ = pass_over(state, (x[order].reshape(10, 72, 2), labels[order].reshape(10, 72)))
        found.append(float(losses.accuracy(nn.apply_mlp(state.params, x), labels)))
    return found


# %% [markdown]
# ❌ In the order of the data each batch is of one arm, or of two. Each step pulls the network
# towards that arm, and the next arm's steps pull it back. After 10 epochs the mixed batches are
# ahead by more than 0.1. And yet after 100 epochs both are above 0.99. The order costs time, and a
# final accuracy says nothing of it.

# %% tags=["claim"]
kinds = [len(np.unique(labels[start : start + 72])) for start in range(0, 720, 72)]
curves = {name: accuracies(x, labels, name == "mixed") for name in ("mixed", "in order")}
for name, curve in curves.items():
    print(
        f"{name:9} after 10 epochs above {0.85 if name == 'mixed' else 0.5}, at the end above 0.99"
    )
    assert curve[9] > (0.85 if name == "mixed" else 0.5) and curve[-1] > 0.99

assert max(kinds) == 2 and kinds.count(1) == 8
assert curves["mixed"][9] - curves["in order"][9] > 0.1

# %% tags=["figure"]
fig, ax = figure(
    "Batches of one arm learn late, and end as high",
    "epoch (log scale)",
    "accuracy on the training points",
)
for (name, curve), color in zip(curves.items(), (COLORS.right, COLORS.wrong), strict=True):
    (drawn,) = ax.semilogx(range(1, 101), curve, color=color)
    ax.annotate(
        name,
        (9, curve[8]),
        xytext=(-8, 6) if name == "mixed" else (10, -10),
        textcoords="offset points",
        color=color,
        fontweight="bold",
        ha="right" if name == "mixed" else "left",
    )
ax.set_xticks([1, 3, 10, 30, 100], ["1", "3", "10", "30", "100"])
ax.minorticks_off()
ax.set_ylim(0.3, 1.02)
passes = {name: int(np.argmax(np.array(curve) > 0.85)) + 1 for name, curve in curves.items()}
assert passes["mixed"] <= 10 < passes["in order"]
describe(
    fig,
    "Accuracy over 100 epochs. Mixed batches pass 0.85 within 10 epochs; batches in the order of "
    "the data need more, and end as high.",
)

# %% [markdown]
# The other question is the rest. Hold out 18 points of each arm, and 666 are left: nine batches
# of 72, and 18 points. Another shape would be another program (chapter 01), so the library's
# `train_epoch` refuses:

# %% tags=["claim"]
state = init_state(new_weights(jax.random.key(1), LAYERS), optimizer)
order_key = jax.random.key(2)
show_error(
    lambda: training.train_epoch(mean_loss, state, order_key, (x[:666], labels[:666]), 72),
    expect=ValueError,
    contains="666 examples can't be cut into batches of 72",
)
assert divmod(666, 72) == (9, 18) and 720 - 3 * 18 == 666

# %% [markdown]
# ❌ Two ways out are wrong in silence. *Dropping* the rest takes other points away in each epoch,
# so no accuracy suffers much, but an epoch is no pass over the data any more. *Filling up* with
# examples from the front lets these count twice.
#
# ✅ Fill up with rows that are marked as padding, and let the **mask** go with the batch. What
# stands in the padding should be harmless and easy to recognise: zeros for x, and for a label `-1`,
# which no class has.
#
# 💡 **Every example once an epoch: mix them, pad the last batch, and carry the mask along.**

# %% [markdown] exercise="10.1"
# Write two functions.
#
# `split(key, labels, held_out)` returns two arrays of indices, `(train, test)`.
#
# - `labels` is a NumPy array of shape (n,), int32, in any order; the classes 0, 1, … may have
#   different numbers of examples, all more than `held_out`.
# - `test` holds `held_out` indices of each class, `train` all others; the order inside each does
#   not matter.
# - The same key gives the same split, another key another one. Each example of a class may be held
#   out beside any other, and the draw inside one class does not depend on that inside another: two
#   classes of equal size don't hold out the same places.
#
# `batches(key, x, labels, batch_size)` returns `(x, labels, mask)` of shapes (steps, B, 2),
# (steps, B) and (steps, B), where B is the batch size and steps is n / B, rounded up.
#
# - `x` is float32 of shape (n, 2), `labels` int32 of shape (n,). The results keep these dtypes,
#   and the mask is bool.
# - Every example stands in exactly one place, with its own label, and the mask is true there. All
#   other places are padding: zeros in x, −1 in labels, mask false. Where the padding lies is up
#   to you.
# - Each key mixes the examples anew, so that other examples come together in a batch.
# - It can be jitted: the check calls `jax.jit(batches, static_argnums=3)`.


# %% tags=["starter"] exercise="10.1"
def split(key, labels, held_out):
    """Indices of the examples to train on, and of `held_out` of each class to test on."""
    ### BEGIN SOLUTION
    draws = np.array(jax.random.uniform(key, labels.shape))
    members = [np.flatnonzero(labels == c) for c in np.unique(labels)]
    members = [rows[np.argsort(draws[rows])] for rows in members]
    test = np.concatenate([rows[:held_out] for rows in members])
    train = np.concatenate([rows[held_out:] for rows in members])
    return train, test
    ### END SOLUTION


def batches(key, x, labels, batch_size):
    """x, labels and mask of an epoch's batches, in an order that the key decides."""
    ### BEGIN SOLUTION
    steps = -(-len(x) // batch_size)
    rest = (0, steps * batch_size - len(x))
    places = jnp.pad(jax.random.permutation(key, len(x)), rest).reshape(steps, batch_size)
    mask = jnp.pad(jnp.ones(len(x), bool), rest).reshape(steps, batch_size)
    return jnp.where(mask[..., None], x[places], 0), jnp.where(mask, labels[places], -1), mask
    ### END SOLUTION


# %% [markdown]
# ## 10.4 A run is a value
#
# `Recipe` above holds five numbers, and makes an optimizer from them: gradients clipped to a
# length of 1, AdamW with a warm-up and half a cosine, and a decay of the matrices alone.

# %% tags=["claim"]
ones = {"b": jnp.ones(3), "w": jnp.ones((2, 3))}
steep = jax.tree.map(lambda p: 100 * p, ones)
flat = jax.tree.map(jnp.zeros_like, ones)
_, state = optimizer.update(steep, optimizer.init(ones), ones)
mean_gradient = state[1][0].mu
print(f"a gradient of 300 counts as one of {10 * float(global_norm(mean_gradient)):.1f}")
assert_close(global_norm(steep), 300, rtol=1e-6)
assert_close(global_norm(mean_gradient), 0.1 * 1.0, rtol=1e-5)

# %% tags=["claim"]
_, state = optimizer.update(flat, optimizer.init(ones), ones)
second, _ = optimizer.update(flat, state, ones)
rates = np.array(Recipe().schedule()(np.arange(1001)))
print(f"the rate is highest at step {np.argmax(rates)}: {rates.max():.2f}")
lost = -float(second["w"][0, 0])
print(f"where gradients are 0, a weight of 1 loses {lost:.0e} in the second step")
assert_close(rates[[0, 1, 100, 1000]], [0, 0.02 / 100, 0.02, 0], rtol=1e-5, atol=1e-9)
assert_close(second, {"b": np.zeros(3), "w": np.full((2, 3), -0.02 / 100 * 1e-3)}, rtol=1e-5)

# %% [markdown]
# Why not pass the optimizer itself around? It is a pair of functions, and functions are compared
# by identity. ❌ Two calls with the same numbers make two optimizers, and whatever has them as a
# static part compiles twice. A loop over seeds pays for each round.


# %% tags=["claim"]
def length(params):
    """A loss that needs no data."""
    return jnp.sum(params["w"] ** 2)


def programs_of(make_optimizer, runs=3):
    """How many programs so many runs of one step compile for it."""
    with CompileCounter(only="train_step") as counter:
        for _ in range(runs):
            state = init_state({"w": jnp.ones((2, 2))}, make_optimizer())
            training.train_step(length, state)
    return counter.count


each_anew = programs_of(lambda: Recipe(peak=0.01).optimizer())
print("an optimizer for each of 3 runs:", each_anew, "programs")
assert each_anew == 3

# %% [markdown]
# ✅ A frozen dataclass of numbers compares by value. Keep the recipe, and make the optimizer from
# it where it is used. In a function that is jitted, that happens while tracing, once a program;
# outside, `functools.cache` gives back the same optimizer for an equal recipe.


# %% tags=["claim"]
@cache
def optimizer_of(recipe):
    """The same optimizer for equal recipes."""
    return recipe.optimizer()


by_value = programs_of(lambda: optimizer_of(Recipe(peak=0.01)))
print("one recipe, 3 runs:", by_value, "program")
assert by_value == 1
assert Recipe() == Recipe() and hash(Recipe()) == hash(Recipe())
assert optimizer_of(Recipe()) is optimizer_of(Recipe()) is not optimizer_of(Recipe(peak=0.1))

# %% [markdown]
# What else is in a run? The parameters, their **moving average** (which is evaluated, and changes
# less from step to step), the optimizer's state, the number of steps, and a key from which each
# epoch takes its order. All of it is donated, and donation has its rules (chapter 06). ❌ Three
# ways to break them when a state begins:

# %% tags=["claim"]
donating = jax.jit(
    lambda tree: {**tree, "params": tree["params"] + 1, "ema": tree["ema"] * 2}, donate_argnums=0
)
w, key = jnp.arange(3.0), jax.random.key(5)

twice = refusal(lambda: donating({"params": w, "ema": w}))
print("the average is the params:", twice)
assert twice == TWICE

donating({"params": jnp.copy(w), "ema": jnp.copy(w), "key": key})
print("the key that was passed in is gone:", deleted(key)[0])
assert deleted(key) == [True]

weak = jnp.asarray(1.0)
print("a copy of a weakly typed array is weakly typed:", jnp.copy(weak).weak_type)
assert jnp.copy(weak).weak_type and not jnp.array(weak, weak.dtype).weak_type

# %% [markdown]
# The second one is easily forgotten. A key is an array with a buffer like any other, and it goes
# with the state that it was put into: the second run that wants to start from it finds it
# deleted. The third one does not break a run. It makes two programs of it, for the first step gets
# a weakly typed array and returns one that is not (chapter 01).
#
# 💡 **What a run changes goes into its state, in buffers of its own. What it never changes goes
# beside it, as a value.**

# %% [markdown] exercise="10.2"
# Write `new_state(recipe, params, key)`, and the class of the state that it returns.
#
# - The state has the attributes `params`, `ema`, `opt_state`, `step`, `key` and `recipe`. It is a
#   pytree: what a jitted function gets and returns. Its leaves are those of the first five.
# - `params` and `ema` have the numbers and the structure of the given params, which are any nest
#   of dicts and lists of float32 arrays, some of them perhaps weakly typed. `opt_state` is what
#   `recipe.optimizer().init(params)` returns, `step` is an int32 scalar of 0, and `key` is a key
#   equal to the given one.
# - A program that donates the whole state accepts it; the given params and key stay alive. No
#   leaf is weakly typed.
# - `recipe` is a static part: inside a jitted function `state.recipe.peak` is a Python number. It
#   is any object that is hashable and compares by value; in the check, a `Recipe`. States of two
#   equal recipes go through the same program, those of different recipes don't.


# %% tags=["starter"] exercise="10.2"
def new_state(recipe, params, key):
    """The state of a run before its first step."""
    ### BEGIN SOLUTION
    own, ema = (jax.tree.map(lambda p: jnp.array(p, p.dtype), params) for _ in range(2))
    opt_state = recipe.optimizer().init(own)
    return Run(own, ema, opt_state, jnp.zeros((), jnp.int32), jnp.copy(key), recipe)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Run:
    """What changes during a run, and the recipe, which does not."""

    params: Any
    ema: Any
    opt_state: Any
    step: Array
    key: Array
    recipe: Any = field(metadata={"static": True})
    ### END SOLUTION


# %% [markdown]
# ## 10.5 A loss that survives its batch
#
# The first number of a run can be known before the run. A new network has small logits, so it
# gives each of three classes about a third, and its cross-entropy is near log 3 = 1.10. A first
# loss of 5 says that something is wrong with the labels or the scale; one of 0.1 says that the
# answer is in the input. Here all ten first losses are within 0.3 of it.

# %% tags=["claim"]
first_losses = []
for seed in range(10):
    for_training, _, for_weights, _ = keys_of(seed)
    first = mean_loss(new_weights(for_weights, LAYERS), *data.spiral(for_training))
    first_losses.append(float(first))

print(f"log 3 = {np.log(3):.2f}; all first losses between 0.8 and 1.4")
assert all(abs(first - np.log(3)) < 0.3 for first in first_losses)
assert round(np.log(3), 2) == 1.10

# %% [markdown]
# The library's `cross_entropy` is the stable one of chapter 02. ✅ Its gradient with respect to
# the logits is softmax minus one-hot, divided by the number of rows, and logits of ±10,000 cost
# it nothing: float64 has the same numbers. ❌ The logarithm of a softmax is infinite there.


# %% tags=["claim"]
def exact_cross_entropy(logits, labels):
    """Rows of cross-entropy, and softmax minus one-hot, in float64."""
    below = logits - logits.max(axis=1, keepdims=True)
    log_p = below - np.log(np.exp(below).sum(axis=1, keepdims=True))
    rows = np.arange(len(labels))
    return -log_p[rows, labels], np.exp(log_p) - np.eye(logits.shape[1])[labels]


logits = np.array([[2.0, -1.0, 0.5], [-1e4, 1e4, 0.0]], np.float32)
truth = np.array([0, 2])
rows, slopes = exact_cross_entropy(logits.astype(np.float64), truth)
value, slope = jax.value_and_grad(lambda z: jnp.mean(cross_entropy(z, truth)))(logits)
naive = -jnp.log(jax.nn.softmax(logits))[jnp.arange(2), truth]

stable = cross_entropy(logits, truth)
print(f"ordinary logits: {stable[0]:.3f}, naive {naive[0]:.3f}")
print(f"logits of ±10,000: {stable[1]:.0f}, naive {naive[1]}")
assert_close(value, rows.mean(), rtol=1e-6)
assert_close(slope, slopes / 2, rtol=1e-5, atol=1e-7)
assert np.isinf(naive[1])

# %% [markdown]
# A padded batch asks for more. ❌ The label −1 raises nothing: an index of −1 is the last class,
# in JAX as in NumPy, so every padded row is trained as one of arm 2. And a mean over the rows of
# the batch divides by the padding, too. With 18 real rows out of 72 the loss is then a quarter of
# what it should be.

# %% tags=["claim"]
some = np.random.default_rng(0).standard_normal((72, 3)).astype(np.float32)
assert_equal(cross_entropy(some, np.full(72, -1)), np.array(cross_entropy(some, np.full(72, 2))))

real = np.arange(72) < 18
padded_rows = jnp.where(real, cross_entropy(some, np.zeros(72, np.int32)), 0.0)
share = float(jnp.mean(padded_rows) / losses.masked_mean(padded_rows, real))
print(f"mean over all rows: {share:.2f} of the mean over the real ones")
assert_close(share, 0.25, rtol=1e-6)

# %% [markdown]
# **Label smoothing** changes the target. Instead of the whole probability, the label gets
# 1 − s, and the remaining s is dealt out evenly to all C classes, the label's own among them: its
# share is 1 − s + s/C in the end. A network can't win by ever larger logits any more, for the
# loss is smallest at a finite distance, and it is not 0 there: it is the entropy of the target.
# With s = 0.1 and three classes that is 0.29, at a distance of 3.3 between the logits.

# %% tags=["claim"]
target = 0.9 * np.array([1.0, 0.0, 0.0]) + 0.1 / 3
distances = np.linspace(0, 12, 1201)
lead = distances[:, None] * np.array([1.0, 0.0, 0.0])
losses_there = lead @ -target + np.log(np.exp(lead).sum(axis=1))
best = np.argmin(losses_there)

print(f"smallest loss {losses_there[best]:.2f} at a distance of {distances[best]:.1f}")
assert_close(losses_there[best], -np.sum(target * np.log(target)), rtol=1e-4)
assert_close(distances[best], np.log(target[0] / target[1]), rtol=0, atol=0.01)
assert (round(losses_there[best], 2), round(distances[best], 1)) == (0.29, 3.3)

# %% [markdown]
# 💡 **Know the first loss before the run. Divide by what is real.**

# %% [markdown] exercise="10.3"
# Write `smoothed_loss(logits, labels, mask, smoothing)`: the mean cross-entropy of the real rows,
# with smoothed labels, as a float32 scalar.
#
# - `logits` is float32 of shape (B, C), `labels` int32 of shape (B,), and `mask` bool of shape
#   (B,). Where the mask is false, the label is −1, and the logits are some finite numbers.
# - The target of a real row is (1 − s) · onehot(label) + s / C, with s = `smoothing`, a scalar
#   from 0 up to 1 that may be traced.
# - The gradient with respect to the logits is right as well, and 0 in rows of padding.
# - Value and gradient are right for logits of ±10,000.
# - A batch of nothing but padding has the loss 0, and a gradient of 0.
# - The check jits it and differentiates it, with one program for all values of s. For a batch of
#   padding it also looks at the gradient that is found without XLA's simplifications.


# %% tags=["starter"] exercise="10.3"
def smoothed_loss(logits, labels, mask, smoothing):
    """Mean cross-entropy over the rows whose mask is true, with smoothed labels."""
    ### BEGIN SOLUTION
    log_p = jax.nn.log_softmax(logits)
    own = jnp.take_along_axis(log_p, jnp.maximum(labels, 0)[:, None], axis=1)[:, 0]
    rows = -(1 - smoothing) * own - smoothing * jnp.mean(log_p, axis=1)
    return losses.masked_mean(rows, mask)
    ### END SOLUTION


# %% [markdown]
# ## 10.6 An epoch is one program
#
# A loop in Python starts a program for each batch. A `scan` over the batches is one program for
# the epoch, with the state as its carry; XLA keeps the carry in place, and donation covers the
# border. This is the library's, with the order drawn inside:

# %% tags=["given"]
# quote: helpers.training.descend


# quote: helpers.training.step


# quote: helpers.training.train_epoch


# %% [markdown]
# ✅ Three epochs compile one program, delete every buffer that they were given, and write each new
# state into the old one's memory. The order depends on the key and on the steps done, so one key
# serves all epochs, and each has an order of its own.

# %% tags=["claim"]
# 5 batches of 144: the ten runs below have other shapes, and their own compilation
state = init_state(new_weights(jax.random.key(3), LAYERS), optimizer)
with CompileBudget(1, only="train_epoch"):
    for epoch in range(3):
        before, old = set(addresses(state)), state
        state, batch_losses = train_epoch(mean_loss, state, order_key, (x, labels), 144)
        assert all(deleted(old)) and set(addresses(state)) == before

print("3 epochs: 1 program, every buffer reused,", int(state.step), "steps")
assert batch_losses.shape == (5,) and int(state.step) == 15

# %% [markdown]
# What is the loss of an epoch? ❌ The mean of its batches' means, if they are of equal size. If the
# last one has 18 real rows and the others have 72, each of its rows counts four times as much.
# Let those 18 rows have a loss of 2, and all others one of 1: the mean over the 666 rows is 1.03,
# the mean of the means 1.10. ✅ Weight each batch's mean by its real rows.

# %% tags=["claim"]
row_losses = np.where(np.arange(666) < 648, 1.0, 2.0)
cuts = np.split(row_losses, range(72, 666, 72))
means, counts = np.array([cut.mean() for cut in cuts]), np.array([len(cut) for cut in cuts])
print(f"mean of means {means.mean():.2f}, weighted {means @ counts / counts.sum():.2f}")
assert counts.tolist() == [72] * 9 + [18]
assert round(means.mean(), 2) == 1.10 and round(row_losses.mean(), 2) == 1.03
assert_close(means @ counts / counts.sum(), row_losses.mean(), rtol=1e-12)

# %% [markdown]
# The **moving average** of the parameters goes along: after each step, ema ← d · ema +
# (1 − d) · params, with the *new* params. It forgets at the rate of d a step. With d = 0.9 less
# than 1 % of the start is left after 44 steps. ❌ Moved once an epoch instead, it lags by as many
# epochs as it should lag steps: 90 steps in place of 9, in epochs of 10. With the params from
# *before* the step, it is one step late. Nothing fails in either case: only a check against exact
# numbers sees it.


# %% tags=["claim"]
def averaged(values, decay, start=0.0):
    """The moving average after each of the values."""
    found = [start]
    for value in values:
        found.append(decay * found[-1] + (1 - decay) * value)
    return np.array(found[1:])


ramp = np.arange(1.0, 1001.0)  # params that move by 1 with each step
lags = {
    "after each step": ramp[-1] - averaged(ramp, 0.9)[-1],
    "with the old params": ramp[-1] - averaged(ramp - 1, 0.9)[-1],
    "once in 10 steps": ramp[-1] - averaged(ramp[9::10], 0.9)[-1],
}
for name, lag in lags.items():
    print(f"{name:20} {lag:.0f} steps behind params that move")
assert 0.9**43 > 0.01 > 0.9**44
assert_close(list(lags.values()), [9.0, 10.0, 90.0], rtol=1e-3)

# %% [markdown]
# 💡 **Inside an epoch everything moves with the step: params, average, count. Outside of it there
# is one program, and one mean over rows.**

# %% [markdown] exercise="10.4"
# Write `run_epoch(loss, state, data)`: one step on each batch, in order. It returns the new state
# and the mean loss of the epoch.
#
# - `loss(params, x, labels, mask)` is the mean loss of one batch over its real rows. The check
#   uses one function for all epochs of a run.
# - `state` is a pytree as in exercise 10.2, with `params`, `ema`, `opt_state`, `step`, `key` and
#   the static `recipe`. The check brings a dataclass of its own, so `replace(state, step=…)`
#   makes the next one. `state.recipe.optimizer()` makes the optimizer, a GradientTransformation.
# - `data` is `(x, labels, mask)` as in exercise 10.1, of shapes (steps, B, …), (steps, B),
#   (steps, B): JAX arrays, and the last batch may have padding. Every batch has a real row.
# - Each step is one of the optimizer; then `ema` ← 0.9 · ema + 0.1 · params, with the new params,
#   and `step` goes up by 1. `key` and `recipe` stay as they are.
# - The mean loss is that over all real rows of the epoch, each taken before the step on its batch.
# - Every buffer of the state is reused; nothing else is donated. A run compiles in its first epoch
#   only: at most three programs, and later none.
#
# The check also lets it train a network on a spiral, for a hundred epochs of three steps, and asks
# the network for 1,500 hidden points of the same spiral. More than 95 % have to be right.


# %% tags=["starter"] exercise="10.4"
def run_epoch(loss, state, data):
    """A step on each batch. Returns the new state and the mean loss over all real rows."""
    ### BEGIN SOLUTION
    return _run_epoch(loss, state, data)


@partial(jax.jit, static_argnums=0, donate_argnums=1)
def _run_epoch(loss, state, data):
    optimizer = state.recipe.optimizer()

    def one(state, batch):
        value, grads = jax.value_and_grad(loss)(state.params, *batch)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = apply_updates(state.params, updates)
        ema = jax.tree.map(lambda e, p: 0.9 * e + 0.1 * p, state.ema, params)
        new = replace(state, params=params, ema=ema, opt_state=opt_state, step=state.step + 1)
        return new, (value, jnp.sum(batch[2]))

    state, (values, counts) = jax.lax.scan(one, state, data)
    return state, jnp.sum(values * counts) / jnp.sum(counts)
    ### END SOLUTION


# %% [markdown]
# ## 10.7 Ten runs, one program
#
# One run proves little: another draw of the points, or of the weights, might do worse. So here
# are ten, each with points, weights and order of its own, from its seed.


# %% tags=["given"]
def train(seed, epochs=100, batch_size=72):
    """A whole run: params, losses before each step, (x, labels) to train and to test on."""
    for_training, for_test, for_weights, for_order = keys_of(seed)
    train_set, test_set = data.spiral(for_training), data.spiral(for_test)
    state = init_state(new_weights(for_weights, LAYERS), optimizer)
    history = []
    for _ in range(epochs):
        state, batch_losses = train_epoch(mean_loss, state, for_order, train_set, batch_size)
        history.append(batch_losses)
    return state.params, np.concatenate(history), train_set, test_set


# %% [markdown]
# ✅ All ten runs together compile `train_epoch` once. Every one of them names more than 95 % of its
# training points and of 720 points that it has never seen; in fact more than 98 %.

# %% tags=["claim"]
with CompileCounter(only="train_epoch") as counter:
    runs = [train(seed) for seed in range(10)]

scores = np.array([
    [float(training.evaluate(nn.apply_mlp, params, *part)["accuracy"]) for part in parts]
    for params, _, *parts in runs
])  # fmt: skip
print(f"10 runs of {len(runs[0][1])} steps, {counter.count} compilation of train_epoch")
print(f"training and test accuracy above 0.98 in {np.sum(np.all(scores > 0.98, axis=1))} runs")
assert counter.count == 1 and len(runs[0][1]) == 1000
assert scores.shape == (10, 2) and np.all(scores > 0.98)
assert all(losses_of[-10:].mean() < 0.05 for _, losses_of, *_ in runs)

# %% [markdown]
# 💡 **A claim about training is one about seeds. Run several, and assert the worst.**

# %% [markdown]
# ## 10.8 How good it is
#
# Whatever comes out of an evaluation can be checked. `to64` takes the trained parameters to NumPy,
# and a few lines there compute the network, its loss and its accuracy in float64. (On a GPU,
# matrix products have ten bits of mantissa unless told otherwise; `highest` asks for all of them,
# and changes nothing on a CPU.)

# %% tags=["claim"]
params, _, train_set, (test_x, test_labels) = runs[0]
hidden = to64(test_x)
*inner, last = to64(params)
for layer in inner:
    hidden = np.tanh(hidden @ layer["w"] + layer["b"])
exact_logits = hidden @ last["w"] + last["b"]
exact_rows, _ = exact_cross_entropy(exact_logits, np.array(test_labels))
exact_accuracy = np.mean(np.argmax(exact_logits, axis=1) == np.array(test_labels))

with jax.default_matmul_precision("highest"):
    logits = nn.apply_mlp(params, test_x)
    score = training.evaluate(nn.apply_mlp, params, test_x, test_labels)
print("logits, loss and accuracy agree with float64")
assert_close(logits, exact_logits, rtol=1e-4, atol=1e-4)
assert_close(score["loss"], exact_rows.mean(), rtol=1e-3)
assert_close(score["accuracy"], exact_accuracy, rtol=1e-6)

# %% [markdown]
# How much does an accuracy say? It is a mean of n coin flips, so its standard error is √(a (1 − a)
# / n). For a = 0.995 and n = 720 that is 0.0026: by these numbers alone, two models at 0.993 and
# 0.997 can't be told apart. (Asked about the same points, they can be compared where they disagree,
# which says more.) The ten runs, each with test points of its own, scatter by about as much as
# that. ❌ Choosing the best of ten by their test points would choose luck.

# %% tags=["claim"]
error = np.sqrt(0.995 * 0.005 / 720)
scatter = np.std(scores[:, 1])
print(f"standard error {error:.4f}; the runs scatter by 0.5 to 2 of it:", 0.5 < scatter / error < 2)
assert round(error, 4) == 0.0026 and 0.997 - 0.993 < 2 * error
assert 0.5 * error < scatter < 2 * error

# %% tags=["figure"]
fig, ax = figure(
    "Ten runs scatter as test sets of 720 points do",
    "accuracy",
    "",
    size=(6.4, 2.6),
)
middle = scores[:, 1].mean()
reach = 2 * np.sqrt(middle * (1 - middle) / 720)
ax.axvspan(middle - reach, min(middle + reach, 1.0), color=COLORS.reference, alpha=0.25, lw=0)
for place, (name, color) in enumerate((("test", COLORS.right), ("training", COLORS.reference))):
    jitter = np.linspace(-0.18, 0.18, 10)
    ax.plot(scores[:, 1 - place], place + jitter, "o", color=color)
ax.annotate("± 2 standard errors", (middle, 1.45), color=COLORS.ink, ha="center")
ax.set_yticks([0, 1], ["test", "training"])
ax.tick_params(axis="y", length=0)
ax.set(xlim=(0.988, 1.001), ylim=(-0.4, 1.7), xticks=[0.990, 0.995, 1.000])
assert np.mean(np.abs(scores[:, 1] - middle) < reach) >= 0.8 and scores.min() > 0.988
describe(
    fig,
    "Accuracies of ten runs as dots. Those on test points lie, but for two at most, inside a band "
    "of two standard errors around their mean; those on training points lie to the right.",
)

# %% [markdown]
# One number also hides which arm is taken for which. The **confusion matrix** counts it: rows are
# labels, columns are predictions, and what is right lies on the diagonal.

# %% tags=["claim"]
named = np.argmax(exact_logits, axis=1)
confusion = np.zeros((3, 3), int)
np.add.at(confusion, (np.array(test_labels), named), 1)
print("rows sum to", confusion.sum(axis=1), "and the diagonal to the accuracy")
assert confusion.sum(axis=1).tolist() == [240, 240, 240]
assert_close(np.trace(confusion) / 720, exact_accuracy, rtol=1e-12)

# %% [markdown]
# ❌ The library's `evaluate` takes all points at once. For each number of points that is another
# program, and the memory grows with it: a million points through this network are 128 MB for one
# hidden layer.

# %% tags=["claim"]
with CompileCounter(only="evaluate") as counter:
    for n in (100, 200, 300):
        training.evaluate(nn.apply_mlp, params, test_x[:n], test_labels[:n])
print("3 numbers of points:", counter.count, "programs")
assert counter.count == 3
assert 1_000_000 * 32 * 4 == 128e6

# %% [markdown]
# ✅ Cut the points into chunks of one size, pad the last, and add up **sums**: of losses, of right
# answers, of the confusion. Divide once, at the end, by the number of points. The cutting is done
# in NumPy, on the host: a slice of a JAX array is a program of its own for each shape.
#
# 💡 **Evaluate in chunks of one size, add sums, divide once, and say how sure the result is.**

# %% [markdown] exercise="10.5"
# Write `evaluate_in_chunks(predict, params, x, labels, chunk)`. It returns a dict with three
# entries for all n points: `"loss"`, the mean cross-entropy; `"accuracy"`, the share of points for
# which the model names the label; and `"confusion"`, an array of counts of shape (C, C), whose row
# is the label and whose column the class that the model names: the one with the largest logit, the
# first one if several are equal. Logits may be as large as ±1,000.
#
# - `predict(params, x)` gives the logits (rows, C) of x (rows, 2). It can be jitted, and is the
#   same function in all calls.
# - `x` is a NumPy array of shape (n, 2), float32; `labels` one of shape (n,), int32. n is any
#   number from 1 up, and not always a multiple of `chunk`.
# - `predict` never gets more than `chunk` rows at once, in one array of two axes.
# - Nothing is compiled after the first call, whatever n is, and at most four programs in it.


# %% tags=["starter"] exercise="10.5"
def evaluate_in_chunks(predict, params, x, labels, chunk):
    """Mean loss, accuracy and confusion matrix of a classifier, a chunk at a time."""
    ### BEGIN SOLUTION
    loss, confusion = 0.0, 0
    for start in range(0, len(x), chunk):
        rows, names = x[start : start + chunk], labels[start : start + chunk]
        rest = (0, chunk - len(rows))
        rows, names = np.pad(rows, (rest, (0, 0))), np.pad(names, rest, constant_values=-1)
        total, counts = _evaluate_chunk(predict, params, rows, names)
        loss, confusion = loss + float(total), confusion + np.array(counts)
    right = np.trace(confusion)
    return {"loss": loss / len(x), "accuracy": right / len(x), "confusion": confusion}


@partial(jax.jit, static_argnums=0)
def _evaluate_chunk(predict, params, x, labels):
    logits = predict(params, x)
    classes = jnp.arange(logits.shape[1])
    rows = cross_entropy(logits, jnp.maximum(labels, 0))
    truth = labels[:, None] == classes
    named = jnp.argmax(logits, axis=1)[:, None] == classes
    confusion = jnp.sum(truth[:, :, None] & named[:, None, :], axis=0)
    return jnp.sum(jnp.where(labels >= 0, rows, 0.0)), confusion
    ### END SOLUTION


# %% [markdown]
# ## 10.9 Where it is hard
#
# Which examples does a trained network still struggle with? Those whose gradient is long: they
# would move the parameters most if they had their way. `grad_norms` of chapter 04 has them in
# chunks. ✅ Its numbers are those of all gradients at once.


# %% tags=["claim"]
def example_loss(params, x, label):
    """Cross-entropy of one example. x: (2,), label: ()."""
    return cross_entropy(nn.apply_mlp(params, x), label)


@jax.jit
def whole(params, x, labels):
    """Length of every example's gradient, with all gradients in memory together."""
    return jax.vmap(global_norm)(per_example.grads(example_loss, params, x, labels))


with jax.default_matmul_precision("highest"):
    norms = per_example.grad_norms(example_loss, params, *train_set, chunk=60)
    at_once = whole(params, *train_set)
print("720 lengths in chunks of 60 equal those of all at once")
assert_close(norms, to64(at_once), rtol=1e-3, atol=1e-5)

# %% [markdown]
# Where do the hardest lie? In every one of the ten runs, the five training examples with the
# longest gradients are within 0.1 of the origin, where the arms meet and no border can be right.
# A disc of that radius holds about a tenth of the points.

# %% tags=["claim"]
hard = []
for params_of, _, (points, names), _ in runs:
    norms_of = per_example.grad_norms(example_loss, params_of, points, names, chunk=60)
    hard.append(np.argsort(-np.array(norms_of), kind="stable")[:5])

radii = [np.linalg.norm(np.array(run[2][0]), axis=1) for run in runs]
farthest = max(radius[five].max() for radius, five in zip(radii, hard, strict=True))
inside = np.mean([np.mean(radius < 0.1) for radius in radii])
print(f"the hardest lie within 0.1 of the origin: {farthest < 0.1}; {inside:.1f} of all points do")
assert farthest < 0.1 and 0.08 < inside < 0.12

# %% [markdown]
# It is tempting to go on: so the mistakes sit there, too. ❌ They don't all. On new points, some
# are made near the rim, where the arms end. Of one or another of these the network is sure, which
# is another kind of hard.

# %% tags=["claim"]
wrong_radii, sureness = [], []
for params_of, _, _, (points, names) in runs:
    p = np.array(jax.nn.softmax(nn.apply_mlp(params_of, points)))
    wrong = p.argmax(axis=1) != np.array(names)
    wrong_radii.extend(np.linalg.norm(np.array(points)[wrong], axis=1).tolist())
    sureness.extend(p.max(axis=1)[wrong].tolist())

surest = max(s for s, radius in zip(sureness, wrong_radii, strict=True) if radius > 0.9)
print("test mistakes of ten runs, by radius: some below 0.1, some above 0.9")
print("the surest of those near the rim has a probability above 0.95:", surest > 0.95)
assert min(wrong_radii) < 0.1 and max(wrong_radii) > 0.9 and surest > 0.95

# %% [markdown]
# One picture of the whole run. The colours in the plane are what the network names there; the
# rings in the zoom mark the five hardest.


# %% tags=["given"]
def draw_plane(ax, params, x, labels, reach):
    """What the network names within `reach` of the origin, and the points that lie there."""
    grid = np.linspace(-reach, reach, 301, dtype=np.float32)
    places = np.stack(np.meshgrid(grid, grid), axis=-1)
    named = np.argmax(np.array(nn.apply_mlp(params, places)), axis=-1)
    colors = ListedColormap(ARMS)
    extent = (-reach, reach, -reach, reach)
    ax.imshow(
        named, origin="lower", extent=extent, cmap=colors, vmin=0, vmax=2, alpha=0.22,
        interpolation="nearest",
    )  # fmt: skip
    near = np.max(np.abs(x), axis=1) < reach
    ax.scatter(x[near, 0], x[near, 1], s=9, c=labels[near], cmap=colors, vmin=0, vmax=2)


# %% tags=["figure"]
use_course_style()
fig = Figure(figsize=(7.6, 6.6), layout="constrained")
(loss_ax, rate_ax), (plane_ax, zoom_ax) = fig.subplots(2, 2)
params, loss_curve, (points, names), _ = runs[0]
points, names = np.array(points), np.array(names)

loss_ax.semilogy(loss_curve, color=COLORS.right, lw=0.8)
loss_ax.set(
    title="The loss falls by two orders", xlabel="step", ylabel="loss of a batch (log scale)"
)
rate_ax.plot(np.array(Recipe().schedule()(np.arange(1000))), color=COLORS.right)
rate_ax.set(title="Warm-up, then half a cosine", xlabel="step", ylabel="learning rate")
draw_plane(plane_ax, params, points, names, 1.15)
plane_ax.set(title="The borders follow the arms", xlabel="x₁", ylabel="x₂")
draw_plane(zoom_ax, params, points, names, 0.05)
zoom_ax.set(title="Hardest where arms meet", xlabel="x₁", ylabel="x₂")
five = points[hard[0]]
zoom_ax.plot(five[:, 0], five[:, 1], "o", ms=12, mfc="none", mec=COLORS.fourth, mew=2)
assert loss_curve[:10].mean() > 100 * loss_curve[-10:].mean()
assert np.abs(five).max() < 0.05
describe(
    fig,
    "Four panels of one run: the loss falls from 1 to below 0.01 in 1000 steps; the learning rate "
    "rises to 0.02 in 100 steps and falls to 0 like a cosine; the borders wind along the three "
    "arms; in the zoom, the five hardest examples lie in the origin.",
)

# %% [markdown]
# Finding the k hardest of *any* number of examples has three traps. ❌ Padding has gradients, too,
# and may well be the hardest of all: here a row of zeros, which lies in the origin, is harder than
# nearly all the data. ❌ `top_k` on the device wants k while it compiles, so each k is a program.
# ❌ And equal lengths need an order: `argsort`, turned round, puts the last of equals first, so
# that the list depends on how you sorted.

# %% tags=["claim"]
zero_row = per_example.grad_norms(example_loss, params, np.zeros((1, 2)), np.zeros(1, int), chunk=1)
harder_than = np.mean(np.array(norms) < float(zero_row[0]))
print(f"a row of padding is harder than nine tenths of the data: {harder_than > 0.9}")
assert harder_than > 0.9

with CompileCounter() as counter:
    for k in (3, 4, 5):
        jax.lax.top_k(norms, k)
print("programs for three values of k:", counter.count)
assert counter.count == 3

equal = np.array([2.0, 7.0, 7.0, 1.0])
assert np.argsort(equal, kind="stable")[::-1].tolist() == [2, 1, 0, 3]
assert np.argsort(-equal, kind="stable").tolist() == [1, 2, 0, 3]

# %% [markdown]
# 💡 **Look at the hardest examples before you look at the model.** They are the edge of the task,
# a wrong label, or a mistake in the data.

# %% [markdown] exercise="10.6"
# Write `hardest(loss, params, x, labels, k, chunk)`: the k examples with the longest gradients. It
# returns `(indices, norms)`, the longest first; both are arrays of shape (min(k, n),).
#
# - `loss(params, x, label)` is the loss of *one* example, a scalar: x (2,), label (). It is the
#   same function in all calls. The length of a gradient is over all leaves of `params`, which is
#   any nest of float32 arrays.
# - `x` is a NumPy array of shape (n, 2), float32, `labels` one of shape (n,), int32. n and k are
#   any numbers from 1 up, k may exceed n, and n need not be a multiple of `chunk`.
# - Of equal lengths the lower index comes first.
# - The gradients are computed for `chunk` examples at a time, never for more. Nothing is compiled
#   after the first call, whatever n and k are, and at most four programs in it.


# %% tags=["starter"] exercise="10.6"
def hardest(loss, params, x, labels, k, chunk):
    """Indices and gradient lengths of the k hardest examples, the hardest first."""
    ### BEGIN SOLUTION
    rest = -len(x) % chunk
    rows = np.pad(x, ((0, rest), (0, 0))).reshape(-1, chunk, x.shape[1])
    names = np.pad(labels, (0, rest)).reshape(-1, chunk)
    parts = [_lengths(loss, params, *each) for each in zip(rows, names, strict=True)]
    lengths = np.concatenate(parts)[: len(x)]
    order = np.argsort(-lengths, kind="stable")[:k]
    return order, lengths[order]


@partial(jax.jit, static_argnums=0)
def _lengths(loss, params, x, labels):
    return jax.vmap(global_norm)(per_example.grads(loss, params, x, labels))
    ### END SOLUTION


# %% [markdown]
# ## 10.10 Your six pieces, together
#
# The ten runs above were made by the library. This one is made by you, out of the six milestones,
# with all that the library's run leaves out: a split, batches with a rest, smoothed labels, a
# moving average, an evaluation in chunks.


# %% tags=["given"]
def assembled_loss(params, x, labels, mask):
    """What your network is trained on."""
    return smoothed_loss(nn.apply_mlp(params, x), labels, mask, 0.05)


def assemble(seed, epochs=100):
    """A run made of your pieces. Returns what can be said of it when it has ended."""
    for_points, for_split, for_weights, for_order = keys_of(seed)
    x, labels = (np.array(part) for part in data.spiral(for_points))
    train_rows, test_rows = split(for_split, labels, 40)
    cut = jax.jit(batches, static_argnums=3)
    recipe = Recipe(total_steps=9 * epochs)
    state = new_state(recipe, nn.init_mlp(for_weights, LAYERS), for_order)
    for _ in range(epochs):
        order = jax.random.fold_in(state.key, state.step)
        state, _ = run_epoch(
            assembled_loss, state, cut(order, x[train_rows], labels[train_rows], 72)
        )
    report = evaluate_in_chunks(nn.apply_mlp, state.ema, x[test_rows], labels[test_rows], 50)
    five, _ = hardest(example_loss, state.ema, x[train_rows], labels[train_rows], 5, 64)
    return report | {
        "examples held out": len(test_rows),
        "steps": int(state.step),
        "learning rate at the end": float(recipe.schedule()(state.step)),
        "the five hardest reach out to": np.linalg.norm(x[train_rows][five], axis=1).max(),
    }


# %% [markdown]
# Until all of them are there, the cell says that one is missing. When they are, it trains for some
# seconds, and the network names more than 95 % of the held-out points, which no step has seen. Its
# hardest examples lie about the origin, like those of the library's runs, and the learning rate has
# come down to 0 with the last step.

# %% tags=["claim"]
try:
    mine = assemble(seed=0)
except NotImplementedError as error:  # a piece that is missing
    mine = None
    print(f"✍️ not yet: {type(error).__name__}: {error}")

if mine is not None:
    for what, found in mine.items():
        print(f"{what}: {found}")
    assert mine["accuracy"] > 0.95 and mine["the five hardest reach out to"] < 0.2
    assert mine["examples held out"] == 120 and mine["steps"] == 100 * 9
    assert mine["learning rate at the end"] == 0

# %% [markdown]
# ## 10.11 What to keep
#
# 💡 **Pieces are tested alone, seams are tested together.** Most mistakes of this chapter lay
# between two pieces that were right.
#
# 💡 **A run is a value: a seed, a recipe, and nothing else.** Then ten runs are a loop, and one
# program.
#
# 💡 **Assert the worst of several seeds, against numbers that you knew before.** Guessing,
# straight lines, the first loss, the error of the test set.
#
# ### 🧪 Quiz
#
# Put a letter in place of the dots and run the cell. The answers are measured on your machine.

# %% tags=["quiz"] question="10.a"

# %% tags=["quiz"] question="10.b"

# %% tags=["quiz"] question="10.c"

# %% tags=["quiz"] question="10.d"

# %% tags=["quiz"] question="10.e"

# %% tags=["quiz"] question="10.f"

# %% tags=["quiz"] question="10.g"

# %% [markdown]
# ### Cheat sheet
#
# | to | write |
# |---|---|
# | keep the keys of a run apart | `a, b, c = jax.random.split(jax.random.key(seed), 3)` |
# | a new order for each epoch | `jax.random.permutation(jax.random.fold_in(key, step), n)` |
# | round up to whole batches | `-(-n // batch_size)` |
# | describe a run by value | `@dataclass(frozen=True)` of numbers, static in the state |
# | one optimizer for equal recipes | `@functools.cache def optimizer_of(recipe)` |
# | copy into buffers of one's own | `jnp.array(p, p.dtype)`, for keys `jnp.copy(key)` |
# | an epoch as one program | `jax.lax.scan(step, state, batches)` in a jit with `donate_argnames` |
# | count the programs of a run | `with CompileBudget(1, only="train_epoch"):` |
# | average over unequal batches | `jnp.sum(means * counts) / jnp.sum(counts)` |
# | move an average | `jax.tree.map(lambda e, p: d * e + (1 - d) * p, ema, params)` |
# | all bits of a product on a GPU | `with jax.default_matmul_precision("highest"):` |
# | the error of an accuracy | `√(a (1 − a) / n)` |
# | a stable order, longest first | `np.argsort(-norms, kind="stable")` |
