# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # 07 · Pytrees
#
# A model is two hundred arrays in a nest of dicts, lists and classes. You want to halve them all,
# count their bytes, spare the biases from decay, write them to a file. Nothing of that should know
# the nest, and with pytrees nothing does: one call goes through whatever there is.
#
# The price is that JAX decides what the nest *is*. It opens tuples that you meant as shapes. It
# closes its eyes to `None`. It sorts your dicts. It takes a class that it does not know for a
# number, and says so ten calls later, or never. Most of these mistakes raise no error.
#
# Afterwards you can
#
# - use the whole of `jax.tree`, and know what became of `jax.tree_map`;
# - say for any object whether it is a leaf, a container, or nothing at all;
# - write a training state of your own whose static part does not compile at every step;
# - name the leaves of any model by path: for a table, for a mask, for a checkpoint;
# - register a container that survives all that JAX puts into it.
#
# Reading and running takes about an hour, the five exercises another hour and a half. You need
# `jax.jit`, and from chapter 01 that a pytree's structure is part of the cache key.
#
# | mark | means |
# |---|---|
# | ❌ | a mistake, and what it costs |
# | ✅ | the way to do it, and the proof |
# | ✍️ | your turn |
# | 🧪 | a check, or a question of the quiz |
# | 💡 | a rule to keep |

# %% tags=["setup"]
import fnmatch
import math
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.flatten_util import ravel_pytree

# %% tags=["setup"]
from helpers import (
    COLORS,
    CompileCounter,
    TraceCounter,
    assert_close,
    assert_equal,
    bench,
    check,
    describe,
    figure,
    label_line,
    quiz,
    show_error,
)
from helpers.optim import GradientTransformation, adamw, apply_updates, matrices
from helpers.trees import Tree

keystr = jax.tree_util.keystr

# %% [markdown]
# ## 7.1 A nest of arrays
#
# Here are the parameters of a small model. Where it comes to trees, NumPy's arrays are as good as
# JAX's, so this chapter uses them where nothing is computed: they compile nothing.


# %% tags=["given"]
def make_model(seed):
    """Parameters of a small model: float32 arrays in dicts and a list."""
    rng = np.random.default_rng(seed)

    def normal(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    layers = [{"w": normal(4, 8), "b": normal(8)}, {"w": normal(8, 8), "b": normal(8)}]
    return {"layers": layers, "head": {"w": normal(8, 3), "b": normal(3)}}


model, slopes = make_model(0), make_model(1)

# %% [markdown]
# A **pytree** is a nest of containers that JAX knows. What hangs in it and is no such container is
# a **leaf**. The nest without its leaves is the **structure**, a `PyTreeDef`, printed with a star
# for each leaf. The two together are everything: taken apart and put together again, the model is
# the same, down to the very arrays.

# %% tags=["claim"]
leaves, structure = jax.tree.flatten(model)
again = jax.tree.unflatten(structure, leaves)

print(structure)
print(len(leaves), "leaves:", [leaf.shape for leaf in leaves])
assert len(leaves) == structure.num_leaves == 6
assert [leaf.shape for leaf in leaves] == [(3,), (8, 3), (8,), (4, 8), (8,), (8, 8)]
assert again["layers"][1]["w"] is model["layers"][1]["w"]
assert jax.tree.structure(again) == structure

# %% tags=["figure"]
fig, ax = figure("Containers are structure, and what hangs in them is data", "", "", (6.4, 3.2))
places = {}
for x, (path, _) in enumerate(jax.tree.leaves_with_path(model)):
    for depth in range(len(path) + 1):
        places.setdefault(path[:depth], []).append(x)
for path, xs in places.items():
    x, y = np.mean(xs), -len(path)
    name = keystr(path[-1:], simple=True) if path else "model"
    if path:
        above = places[path[:-1]]
        ax.plot([np.mean(above), x], [y + 1, y], color=COLORS.reference, lw=1.2, zorder=1)
    leaf = sum(other[: len(path)] == path for other in places) == 1
    color = COLORS.right if leaf else COLORS.wrong
    ax.scatter(x, y, s=70, color=color, zorder=2)
    ax.annotate(name, (x, y), (9, 0), textcoords="offset points", va="center", color=color)
ax.set(xlim=(-0.5, 5.9), xticks=[], yticks=[])
ax.spines[:].set_visible(False)
ax.annotate("containers", (-0.4, 0), color=COLORS.wrong, fontweight="bold", va="center")
ax.annotate("leaves", (-0.4, -2.9), color=COLORS.right, fontweight="bold", va="center")
describe(
    fig,
    "The model as a tree. The dicts and the list are its inner nodes; w and b of two layers and of "
    "the head hang at the ends as leaves.",
)

# %% [markdown]
# What is gained: a function of one array becomes a function of a model. Here is a step of gradient
# descent, against one that spells out each name.

# %% tags=["claim"]
stepped = jax.tree.map(lambda p, g: p - 0.1 * g, model, slopes)

spelled = make_model(0)
for part, slope in zip(spelled["layers"], slopes["layers"], strict=True):
    part["w"] = part["w"] - 0.1 * slope["w"]
    part["b"] = part["b"] - 0.1 * slope["b"]
spelled["head"]["w"] = spelled["head"]["w"] - 0.1 * slopes["head"]["w"]
spelled["head"]["b"] = spelled["head"]["b"] - 0.1 * slopes["head"]["b"]

print("one line, and the same numbers:", jax.tree.structure(stepped) == structure)
assert_equal(stepped, spelled)

# %% [markdown]
# All of JAX works on pytrees: the arguments and results of `jit`, `grad`, `vmap` and `scan` are
# taken apart in this way before anything else happens, and are put together again behind it.
#
# 💡 **Write functions of arrays; let `jax.tree.map` go through the nest.**

# %% [markdown]
# ## 7.2 What was removed
#
# ❌ Much of what has been written about pytrees calls `jax.tree_map`. It is gone, and so are its
# siblings. ✅ They are all in the module `jax.tree`, without the prefix. This is measured on the
# JAX that you run:

# %% tags=["claim"]
error = show_error(
    lambda: jax.tree_map(np.negative, model),
    expect=AttributeError,
    contains="has no attribute 'tree_map'",
)

MOVED = ["all", "flatten", "leaves", "map", "reduce", "structure", "transpose", "unflatten"]
for name in MOVED:
    assert not hasattr(jax, f"tree_{name}")
    assert hasattr(jax.tree, name) and hasattr(jax.tree_util, f"tree_{name}")
print("no jax.tree_…, but jax.tree.… for", ", ".join(MOVED))

for name in ("tree_multimap", "register_keypaths"):
    assert not hasattr(jax, name) and not hasattr(jax.tree_util, name)

# %% [markdown]
# The old module `jax.tree_util` is still there, with long names for the same functions and with
# what concerns *classes*: keys, paths, registering. Two names are gone for good: `tree_multimap` is
# `jax.tree.map` with several trees, and `register_keypaths` became `register_pytree_with_keys`
# (§7.12).
#
# 💡 **Write `jax.tree.map`. Where you read `jax.tree_map`, mistrust the rest of the page, too.**

# %% [markdown]
# ## 7.3 The whole of `jax.tree`
#
# There are fourteen functions. Four take apart and put together. `map` takes any number of trees
# and gives one. Three fold: `reduce` goes from left to right, `reduce_associative` may group the
# leaves as it likes, and `all` asks whether every leaf is true. A fold of an empty tree needs to be
# told what nothing comes to.

# %% tags=["claim"]
tree = {"a": [1, 2], "b": 3}
assert jax.tree.leaves(tree) == [1, 2, 3]
assert jax.tree.structure(tree) == jax.tree.structure({"a": ["x", "y"], "b": "z"})
assert jax.tree.flatten(tree) == (jax.tree.leaves(tree), jax.tree.structure(tree))
assert jax.tree.unflatten(jax.tree.structure(tree), "xyz") == {"a": ["x", "y"], "b": "z"}

assert jax.tree.map(lambda x, y: 10 * x + y, tree, tree) == {"a": [11, 22], "b": 33}
assert jax.tree.reduce(lambda total, x: 10 * total + x, tree) == 123
assert jax.tree.reduce(max, {}, 0) == 0
assert jax.tree.reduce_associative(lambda x, y: x + y, tree) == 6
assert jax.tree.reduce_associative(lambda x, y: x + y, {}, identity=0) == 0
assert jax.tree.all({"a": [True, True], "b": 3}) and jax.tree.all([])

error = show_error(jax.tree.reduce, max, {}, expect=TypeError, contains="no initial value")

# %% [markdown]
# `transpose` turns a list of dicts, one from each of ten steps, into a dict of lists. It needs the
# outer structure, and finds the inner one by itself. `broadcast` spreads the leaves of a small tree
# over a larger one with the same top: one rate for each module becomes one for each leaf (§7.5).

# %% tags=["claim"]
losses = [{"train": 3, "test": 4}, {"train": 1, "test": 2}]
outer = jax.tree.structure([0, 0])
assert jax.tree.transpose(outer, None, losses) == {"train": [3, 1], "test": [4, 2]}

rates = {"head": 1.0, "layers": 0.1}
spread = jax.tree.broadcast(rates, model)
print(spread)
assert jax.tree.structure(spread) == jax.tree.structure(model)
assert jax.tree.leaves(spread) == [1.0, 1.0, 0.1, 0.1, 0.1, 0.1]

# %% [markdown]
# Three say where a leaf hangs (§7.10), and the last is for the fields of a dataclass (§7.8). The
# next cell asks your JAX whether it has more.

# %% tags=["claim", "nbval-ignore-output"]
with_path = jax.tree.leaves_with_path(tree)
assert [(keystr(path), leaf) for path, leaf in with_path] == [
    ("['a'][0]", 1), ("['a'][1]", 2), ("['b']", 3)
]  # fmt: skip
assert jax.tree.flatten_with_path(tree) == (with_path, jax.tree.structure(tree))
named = jax.tree.map_with_path(lambda path, leaf: f"{keystr(path)} = {leaf}", tree)
print(named)
assert named["b"] == "['b'] = 3"
assert jax.tree.static().metadata == {"static": True}

TAUGHT = {
    "all", "broadcast", "flatten", "flatten_with_path", "leaves", "leaves_with_path", "map",
    "map_with_path", "reduce", "reduce_associative", "static", "structure", "transpose",
    "unflatten",
}  # fmt: skip
there = {name for name in dir(jax.tree) if not name.startswith("_")}
print(f"JAX {jax.__version__}: beyond these {len(TAUGHT)} there are {sorted(there - TAUGHT)}")
assert len(TAUGHT) == 14 and there >= TAUGHT

# %% [markdown]
# 💡 **Fourteen functions; nine times out of ten it is `map`.**

# %% [markdown]
# ## 7.4 What is a leaf
#
# The containers that JAX knows are `dict`, `list`, `tuple`, NamedTuples, `OrderedDict`,
# `defaultdict`, `None`, and what has been registered. *Everything else is a leaf*, whatever it is.
# Three surprises follow.
#
# ❌ **A shape is a tuple, and a tuple is a container.** Someone keeps a model's shapes in a tree
# and makes zeros of them:

# %% tags=["claim"]
shapes = {"w": (4, 8), "b": (8,)}
zeros = jax.tree.map(np.zeros, shapes)

print("b:", [part.shape for part in zeros["b"]], "  w:", [part.shape for part in zeros["w"]])
assert type(zeros["w"]) is tuple
assert [part.shape for part in zeros["w"]] == [(4,), (8,)]
assert len(jax.tree.leaves(shapes)) == 3

# %% [markdown]
# No error, and nothing that looks like a weight: w became two vectors, of 4 and of 8 numbers.
#
# ✅ `is_leaf` is asked at every node, and what it takes for a leaf is not opened. Better still,
# keep shapes in what JAX itself uses for them: a `ShapeDtypeStruct` is a leaf, and has the dtype,
# too. `jax.eval_shape` makes a tree of them from any function, without computing anything.

# %% tags=["claim"]
zeros = jax.tree.map(np.zeros, shapes, is_leaf=lambda node: isinstance(node, tuple))
assert zeros["w"].shape == (4, 8) and zeros["b"].shape == (8,)

planned = jax.eval_shape(lambda p: jax.tree.map(jnp.square, p), model)
made = jax.tree.map(lambda plan: np.zeros(plan.shape, plan.dtype), planned)
print(planned["head"])
for plan, leaf in zip(jax.tree.leaves(made), jax.tree.leaves(model), strict=True):
    assert (plan.shape, plan.dtype) == (leaf.shape, leaf.dtype)

# %% [markdown]
# ❌ **`None` is a container with nothing in it.** So it is no leaf: it is not counted, `map` walks
# past it, and a function that was to fill the gap is never called.

# %% tags=["claim"]
tree = [1, None, 1]
untouched = jax.tree.map(lambda x: 0 if x is None else x, tree)

print("leaves of [1, None, 1]:", jax.tree.leaves(tree), "  gap filled:", untouched)
assert jax.tree.leaves(tree) == [1, 1]
assert untouched == [1, None, 1]
assert jax.tree.leaves({"empty": {}, "none": None, "nothing": ()}) == []

# %% [markdown]
# ✅ `is_leaf` again:


# %% tags=["claim"]
def is_none(node):
    return node is None


filled = jax.tree.map(lambda x: 0 if x is None else x, tree, is_leaf=is_none)
print("gap filled:", filled)
assert filled == [1, 0, 1]
assert jax.tree.leaves(tree, is_leaf=is_none) == [1, None, 1]

# %% [markdown]
# This has a good side. A `None` says "nothing here" to all of JAX at once: a layer without a bias,
# a parameter without a gradient. It costs nothing and needs no case of its own, so long as
# *both* trees have it in the same place.
#
# ❌ **A string is a leaf, and so is a function.** `jax.tree` does not mind. `jit`, `grad` and
# `vmap` do: to them a leaf is an array.

# %% tags=["claim"]
w = np.ones((2, 2), np.float32)
with_string, with_function = {"w": w, "activation": "tanh"}, {"w": w, "activation": math.tanh}
assert jax.tree.leaves(with_string)[0] == "tanh"
assert jax.tree.leaves(with_function)[0] is math.tanh


def total(layer):
    return jnp.sum(layer["w"])


for transform in (jax.grad, jax.vmap):
    error = show_error(transform(total), with_string, expect=TypeError, contains="class 'str'")
for layer, kind in ((with_string, "class 'str'"), (with_function, "class 'builtin_function")):
    error = show_error(jax.jit(total), layer, expect=TypeError, contains=kind)

# %% [markdown]
# Such things belong into the structure. How they get there is §7.8.
#
# 💡 **A leaf is what JAX does not know how to open. Shapes are opened; `None` is skipped; strings
# are leaves, and no arrays.**

# %% [markdown]
# ## 7.5 Two trees at once
#
# `jax.tree.map(f, first, second)` needs the second tree to fit the first. Where it does not, the
# error names the place. Only its first line is printed here; read the others when it is yours.


# %% tags=["claim"]
def pair(x, y):
    return x, y


for first, second, why in (
    ([1, 2], (1, 2), "different types"),
    ([1, 2], [1, 2, 3], "different lengths of list"),
    ({"w": 1, "b": 2}, {"w": 1}, "different numbers of pytree children"),
    ({"w": 1, "b": None}, {"w": 1, "b": 2}, "different types"),
):
    print(f"{first} and {second}")
    error = show_error(jax.tree.map, pair, first, second, expect=ValueError, contains=why)
    print()

# %% [markdown]
# A list is no tuple, although it looks like one after a detour by JSON. And the last case is the
# bias that has no gradient: the *first* tree has `None` where the second has a number.
#
# ❌ Turned around, the same pair raises nothing. The first tree alone says where the leaves are;
# what the others have in that place is handed over as it is. It may be a `None`, or a whole nest:

# %% tags=["claim"]
found = [
    jax.tree.map(pair, {"w": 1, "b": 2}, {"w": 1, "b": None}),
    jax.tree.map(pair, [1, 2], [1, {"mu": 3, "nu": 4}]),
]
for each in found:
    print(each)
assert found == [{"b": (2, None), "w": (1, 1)}, [(1, 1), (2, {"mu": 3, "nu": 4})]]

# %% [markdown]
# In other words, the first tree may be a **prefix** of the others: the same nest, cut off earlier.
# That is a feature where you mean it. `in_axes=({"w": 0, "b": None}, 0)` of `vmap` is one, and so
# is one rate for each module:

# %% tags=["claim"]
stepped = jax.tree.map(
    lambda rate, part, slope: jax.tree.map(lambda p, g: p - rate * g, part, slope),
    rates, model, slopes,
)  # fmt: skip
moved = jax.tree.map(lambda new, old: round(float(np.abs(new - old).max()), 4), stepped, model)
largest = jax.tree.map(lambda g: round(float(np.abs(g).max()), 4), slopes)
print("head moved by", moved["head"], "\nlargest slopes ", largest["head"])
assert_close(moved["head"], largest["head"], rtol=1e-3)
assert_close(moved["layers"], jax.tree.map(lambda g: 0.1 * g, largest["layers"]), rtol=1e-2)

# %% [markdown]
# ❌ **Structure says nothing about shapes.** A gradient of shape (8, 1) for a bias of shape (8,)
# passes every check of the nest, and broadcasting makes a matrix of it:

# %% tags=["claim"]
bias, column = {"b": np.ones(8)}, {"b": np.ones((8, 1))}
wrong = jax.tree.map(lambda p, g: p - 0.1 * g, bias, column)

print("new bias:", wrong["b"].shape)
assert jax.tree.structure(bias) == jax.tree.structure(column)
assert wrong["b"].shape == (8, 8)

# %% [markdown]
# ✅ Compare both, once, at the border of your code: the structures, and the trees of shapes.


# %% tags=["given"]
def shapes_in(tree):
    return [np.shape(leaf) for leaf in jax.tree.leaves(tree)]


def assert_alike(first, second):
    """Both trees have one structure, and leaves of the same shapes."""
    assert jax.tree.structure(first) == jax.tree.structure(second), "the nests differ"
    assert shapes_in(first) == shapes_in(second), "shapes differ"


# %% tags=["claim"]
assert_alike(model, slopes)
error = show_error(assert_alike, bias, column, expect=AssertionError, contains="shapes")
error = show_error(assert_alike, {"b": 1}, {"b": None}, expect=AssertionError, contains="nests")

# %% [markdown]
# 💡 **The first tree decides. Compare structures and shapes before you map over two trees.**

# %% [markdown]
# ## 7.6 The order of a dict
#
# Python's dicts remember in which order they were filled. JAX's don't: a dict is flattened by
# *sorted* keys, and what comes back is sorted, too. That is on purpose. Two dicts with the same
# keys shall be the same structure, whoever filled them.

# %% tags=["claim"]
filled = {"w": 1, "b": 2}
print("filled as", list(filled), "  mapped:", list(jax.tree.map(abs, filled)))
assert list(jax.tree.map(abs, filled)) == ["b", "w"]
assert jax.tree.structure(filled) == jax.tree.structure({"b": 0, "w": 0})

# %% [markdown]
# ❌ So whoever pairs `params.values()` with leaves pairs wrongly. And texts sort by characters:
# "layer10" stands before "layer2". Here are twelve layers, filled in order.

# %% tags=["claim"]
tower = {f"layer{number}": number for number in range(12)}
order = jax.tree.leaves(tower)
at_home = [number for place, number in enumerate(order) if place == number]

print("in the order of their leaves:", order)
print("at their own place:", at_home)
assert order == [0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9]
assert at_home == [0, 1]

# %% [markdown]
# Two of the twelve are where one would look for them. A rate that grows with depth, computed by
# place, gives the eleventh layer what is meant for the third:

# %% tags=["figure"]
fig, ax = figure(
    "By place, ten of twelve layers get another layer's rate",
    "layer",
    "place among the leaves",
)
place_of = [order.index(number) for number in range(12)]
ax.plot(range(12), range(12), "--", color=COLORS.reference, lw=1.2)
(drawn,) = ax.plot(range(12), place_of, "o", color=COLORS.wrong)
label_line(drawn, "in a dict", dy=9)
ax.annotate("in a list", (11.15, 11), color=COLORS.reference, fontweight="bold", va="center")
ax.set(xticks=range(12), yticks=range(0, 12, 2), xlim=(-0.4, 12.6))
assert sum(place != number for number, place in enumerate(place_of)) == 10
describe(
    fig,
    "Place among the leaves against number of the layer. Layers 0 and 1 are on the diagonal, 10 "
    "and 11 come third and fourth, and 2 to 9 are two places late.",
)

# %% [markdown]
# ✅ What has an order goes into a list. What has names goes into a dict, and is found by name
# (§7.10), never by place. If you need both, an `OrderedDict` keeps the order in which it was
# filled; then the order is part of its structure, and two that were filled differently don't fit.

# %% tags=["claim"]
first, second = OrderedDict(w=1, b=2), OrderedDict(b=2, w=1)
assert jax.tree.leaves(first) == [1, 2]
error = show_error(jax.tree.map, pair, first, second, expect=ValueError, contains="metadata")

error = show_error(jax.tree.leaves, {"w": 1, 0: 2}, expect=ValueError, contains="sorting")

# %% [markdown]
# The last line is a dict whose keys can't be sorted, a text and a number. A dict that was a list
# of layers and got an extra entry is how one comes by it.
#
# 💡 **Lists for what has an order, dicts for what has names; never zip names with leaves.**

# %% [markdown]
# ## 7.7 A class of your own
#
# A dataclass reads better than a dict. ❌ But JAX has not been told of it, so it is a leaf:


# %% tags=["given"]
@dataclass
class Stranger:
    """A layer that JAX does not know."""

    w: Array
    b: Array


class Busy:
    """Stands for an array that is still being computed, and counts who waits for it."""

    waited = 0

    def block_until_ready(self):
        self.waited += 1
        return self


stranger = Stranger(np.ones((2, 3), np.float32), np.ones(3, np.float32))
in_stranger, in_list = Busy(), Busy()

# %% tags=["claim"]
assert jax.tree.leaves(stranger) == [stranger]
assert jax.tree.map(type, stranger) is Stranger
print("leaves:", [type(leaf).__name__ for leaf in jax.tree.leaves(stranger)])

jax.block_until_ready([in_list, Stranger(in_stranger, in_stranger)])
print("waited for in a list:", in_list.waited, "  in a stranger:", in_stranger.waited)
assert (in_list.waited, in_stranger.waited) == (1, 0)


def use(layer):
    return jnp.sum(layer.w)


error = show_error(jax.tree.map, lambda x: 2 * x, stranger, expect=TypeError)
error = show_error(jax.jit(use), stranger, expect=TypeError, contains="Stranger")
error = show_error(jax.grad(use), Stranger(1.0, 2.0), expect=TypeError, contains="valid JAX type")

# %% [markdown]
# Three errors, and three that are none: it counts as one leaf, it is handed to your function whole,
# and `block_until_ready` does not wait for the arrays in it, so that a benchmark stops its clock
# too early.
#
# ✅ `register_dataclass` makes it a container. Its fields are its children, in the order in which
# they stand.


# %% tags=["given"]
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Dense:
    """A layer that JAX knows. w: (inputs, outputs), b: (outputs,)."""

    w: Array
    b: Array

    def __call__(self, x):
        return x @ self.w + self.b


# %% tags=["claim"]
dense = Dense(np.float32([[1, 2], [3, 4]]), np.float32([5, 6]))
slope = jax.grad(lambda layer, x: jnp.sum(layer(x)))(dense, np.float32([1, 10]))

print("paths: ", [keystr(path) for path, _ in jax.tree.leaves_with_path(dense)])
print("slopes:", type(slope).__name__, slope.w.tolist(), slope.b.tolist())
assert_equal(slope, Dense([[1, 1], [10, 10]], [1, 1]))

# %% [markdown]
# JAX rebuilds the class by *calling* it, with whatever the leaves are by then. In the next cell
# these are shapes, words and arrays with an axis more. So a class must be able to hold anything;
# what a constructor that checks or converts does to that is §7.12.

# %% tags=["claim"]
words = jax.tree.map(lambda leaf: "anything", dense)
stack = jax.tree.map(lambda *leaves: np.stack(leaves), dense, dense, dense)

print(jax.tree.map(np.shape, dense), "\n" + str(words))
assert words == Dense("anything", "anything")
assert (stack.w.shape, stack.b.shape) == ((3, 2, 2), (3, 2))

# %% [markdown]
# A **NamedTuple** needs no registration, for it is a tuple, and JAX keeps its type. That it is a
# tuple is also what is wrong with it: it has a length, it can be added to another one, and it
# unpacks into places. A class *derived from dict*, on the other hand, is no dict to JAX.


# %% tags=["given"]
class Moments(NamedTuple):
    """A NamedTuple: a container with names, known to JAX as it is."""

    mu: Array
    nu: Array


class Params(dict):
    """A dict with a name."""


# %% tags=["claim"]
moments = Moments(1, 2)
print("mapped:", jax.tree.map(lambda x: 10 * x, moments), "  added:", moments + moments)
assert jax.tree.map(lambda x: 10 * x, moments) == Moments(10, 20)
assert moments + moments == (1, 2, 1, 2)
assert jax.tree.structure(moments) != jax.tree.structure((1, 2))

derived = Params(w=1)
print("leaves of a derived dict:", jax.tree.leaves(derived))
assert jax.tree.leaves(derived) == [derived]

# %% [markdown]
# 💡 **Register every class that carries arrays, on the line above it.**

# %% [markdown]
# ## 7.8 Data and static fields
#
# Not all of a state is data. The optimizer is a pair of functions, the name of an activation is a
# string: no tracer can stand for either. Such fields are **static**: no leaves, but part of the
# structure. This is the state with which this course's `training` module trains:

# %% tags=["given"]
# quote: helpers.training.TrainState

# %% tags=["claim"]
optimizer = adamw(0.01)
state = TrainState(dense, optimizer.init(dense), np.zeros((), np.int32), optimizer)

paths = [keystr(path) for path, _ in jax.tree.leaves_with_path(state)]
print("first:", paths[:2], "  last:", paths[-1], "  leaves:", len(paths))
assert paths[:2] == [".params.w", ".params.b"] and paths[-1] == ".step"
assert not any("optimizer" in path for path in paths)
assert jax.tree.map(lambda leaf: leaf, state).optimizer is optimizer

# %% [markdown]
# Before you had classes for it, the state was a dict, or a NamedTuple. What do they give?


# %% tags=["given"]
class TupleState(NamedTuple):
    """The same as a NamedTuple."""

    params: Tree
    epoch: Array


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ClassState:
    """The same as a dataclass, with a static field."""

    params: Tree
    epoch: Array
    name: str = field(default="run", metadata={"static": True})


def refused(change):
    """Whether a change is refused, whatever the class of the error."""
    try:
        change()
    except Exception:
        return True
    return False


# %% tags=["claim"]
as_dict, as_tuple, as_class = {"params": 1, "epoch": 0}, TupleState(1, 0), ClassState(1, 0)
table = {
    "keeps the order of its fields": [
        jax.tree.leaves(each) == [1, 0] for each in (as_dict, as_tuple, as_class)
    ],
    "refuses a misspelt field": [
        refused(lambda: as_dict | {"stpe": 1}),
        refused(lambda: as_tuple._replace(stpe=1)),
        refused(lambda: replace(as_class, stpe=1)),
    ],
    "refuses to be changed": [
        refused(lambda: as_dict.copy().update(epoch=1)),
        refused(lambda: setattr(as_tuple, "epoch", 1)),
        refused(lambda: setattr(as_class, "epoch", 1)),
    ],
    "holds a string that is no leaf": [
        all(type(leaf) is not str for leaf in jax.tree.leaves(each))
        for each in (as_dict | {"name": "run"}, (as_tuple, "run"), as_class)
    ],
}
print(f"{'':32}dict   NamedTuple  dataclass")
for what, row in table.items():
    print(f"{what:32}" + "".join(f"{'yes' if each else 'no':9}" for each in row))
assert [sum(row) for row in table.values()] == [2, 2, 2, 1]
assert [all(column) for column in zip(*table.values(), strict=True)] == [False, False, True]

# %% [markdown]
# The frozen dataclass is the only one with a "yes" in every row.
#
# ❌ **What is static is part of the cache key.** A field that changes at every step compiles at
# every step. The epoch looks like a harmless number:


# %% tags=["given"]
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Counting:
    """A state whose epoch is static, or data."""

    w: Array
    epoch: int = field(metadata={"static": True})
    seen: Array = 0


def decayed(state):
    """Half as much in each epoch."""
    return replace(state, w=state.w * 0.5 ** (state.epoch + state.seen))


# %% tags=["claim"]
programs = {}
for name, made in (("static", lambda n: {"epoch": n}), ("data", lambda n: {"seen": np.int32(n)})):
    jitted = jax.jit(decayed)
    jax.clear_caches()
    with CompileCounter(only="decayed") as counter:
        for number in range(5):
            new = jitted(Counting(np.ones(3, np.float32), **{"epoch": 0, **made(number)}))
            assert_equal(new.w, np.full(3, 0.5**number))
    programs[name] = counter.count
print("programs for five epochs:", programs)
assert programs == {"static": 5, "data": 1}

# %% tags=["figure"]
times = {"static": [], "data": []}
for name, durations in times.items():
    jitted = jax.jit(decayed)
    for number in range(12):
        changing = {"epoch": number + 100} if name == "static" else {"seen": np.int32(number)}
        counting = Counting(np.ones(3, np.float32), **{"epoch": 99, **changing})
        durations.append(1e3 * bench(jitted, counting, repeats=1, warmup=0).median)

fig, ax = figure(
    "Static, a field that changes costs a compilation a step",
    "step",
    "time of the step (ms, log scale)",
)
for name, color in (("static", COLORS.wrong), ("data", COLORS.right)):
    (drawn,) = ax.semilogy(range(12), times[name], "o-", color=color)
    label_line(drawn, name)
ax.set_xlim(-0.3, 12.8)
ax.set_yticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
ax.minorticks_off()
assert np.median(times["static"]) > 3 * np.median(times["data"])
describe(
    fig,
    "Time of twelve steps. With a static epoch each takes as long as a compilation; with the epoch "
    "as data only the first one does.",
)

# %% [markdown]
# ❌ **An array can't be static.** The structures of two arguments are compared by `==`, and for
# arrays that is no truth value. The nasty part is *when* it shows: the first call has nothing to
# compare with, and works.


# %% tags=["given"]
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Normalizer:
    """❌ Its scale is an array, and static."""

    w: Array
    scale: Array = field(metadata={"static": True})


# %% tags=["claim", "nbval-ignore-output"]
@jax.jit
def normalize(layer):
    return layer.w / layer.scale


def a_layer():
    return Normalizer(np.ones(3, np.float32), np.float32([1, 2, 4]))


assert_equal(normalize(a_layer()), [1, 0.5, 0.25])
print("the first call works; the second:")
error = show_error(normalize, a_layer(), expect=ValueError, contains="arrays cannot be passed")
print("mapped over two:")
error = show_error(jax.tree.map, np.add, a_layer(), a_layer(), expect=ValueError, contains="truth")

# %% [markdown]
# ❌ **And a static object that compares by identity is always another one.** Chapter 01 has the
# whole story (§1.7 there); here is its form for trees. A plain class without `__eq__` equals
# itself alone, so two states made in the same way don't even fit each other, and a jitted function
# is traced for each. A frozen dataclass compares by value.


# %% tags=["given"]
class Plain:
    """Settings that compare by identity."""

    def __init__(self, width):
        self.width = width


@dataclass(frozen=True)
class Valued:
    """Settings that compare by value."""

    width: int


# %% tags=["claim"]
for settings in (Plain, Valued):
    one, two = (ClassState(1, 0, name=settings(8)) for _ in range(2))
    fits = jax.tree.structure(one) == jax.tree.structure(two)
    traces = TraceCounter(lambda state: state.params * state.name.width)
    jitted = jax.jit(traces)
    assert jitted(one) == jitted(two) == 8
    print(f"{settings.__name__:7} equal settings, two states fit: {fits}, traces: {traces.count}")
    assert (fits, traces.count) == ((True, 1) if settings is Valued else (False, 2))

# %% [markdown]
# A NamedTuple has no static fields, but it can hold a *node* that is static as a whole: a class
# under `jax.tree_util.register_static` has no leaves. So can a dict.

# %% tags=["claim"]
static_settings = jax.tree_util.register_static(Valued)(8)
with_settings = (TupleState(1, 0), static_settings)
in_a_dict = as_dict | {"settings": static_settings}
print("leaves:", jax.tree.leaves(with_settings), jax.tree.leaves(in_a_dict))
assert jax.tree.leaves(with_settings) == [1, 0] and jax.tree.leaves(in_a_dict) == [0, 1]
assert jax.tree.structure(with_settings) == jax.tree.structure((TupleState(3, 4), Valued(8)))
assert jax.tree.structure(with_settings) != jax.tree.structure((TupleState(1, 0), Valued(9)))

# %% [markdown]
# 💡 **Static is what Python must know while tracing: hashable, compared by value, the same at every
# step. All else is data.**

# %% [markdown]
# ## 7.9 Differentiate the parameters alone
#
# `jax.grad` takes any pytree, so why not the whole state? ❌ Because a state has more in it than
# parameters: a step count is an integer, and an integer has no slope.


# %% tags=["given"]
def squared_error(params, x, y):
    """Mean squared error of a dense layer. x: (n, 2), y: (n, 2)."""
    return jnp.mean((params(x) - y) ** 2)


x = np.float32([[1, 0], [0, 1], [1, 1]])
y = np.float32([[1, 0], [0, 2], [3, 0]])

# %% tags=["claim"]
error = show_error(
    jax.grad(lambda state: squared_error(state.params, x, y)),
    state,
    expect=TypeError,
    contains="got int32",
)

# %% [markdown]
# The error offers `allow_int=True`. ❌ It silences the error, and makes gradients that fit
# nothing: the count gets a slope of dtype `float0`, which can't be added to it, and the optimizer's
# moments get slopes of zero, a second copy of the state in memory.

# %% tags=["claim"]
whole = jax.grad(lambda state: squared_error(state.params, x, y), allow_int=True)(state)
moments_slopes = [float(abs(leaf).max()) for leaf in jax.tree.leaves(whole.opt_state[0].mu)]

print("slope of the step: float0 of", whole.step.dtype.itemsize, "bytes", end="; ")
print("slopes of the moments:", moments_slopes)
assert whole.step.dtype == jax.dtypes.float0
assert moments_slopes == [0, 0]
assert len(jax.tree.leaves(whole)) == len(jax.tree.leaves(state))

# %% [markdown]
# ✅ Differentiate a function of the parameters, and put the new ones into the state by `replace`:
# a frozen one can't be changed in any other way. This is the library's step, without the comments:


# %% tags=["claim"]
def step(state, x, y):
    loss, grads = jax.value_and_grad(squared_error)(state.params, x, y)
    updates, opt_state = state.optimizer.update(grads, state.opt_state, state.params)
    params = apply_updates(state.params, updates)
    return replace(state, params=params, opt_state=opt_state, step=state.step + 1), loss


new, loss = jax.jit(step)(state, x, y)
w, b = dense.w.astype(np.float64), dense.b.astype(np.float64)
error64 = x @ w + b - y
print(f"loss {loss:.4f}, step {new.step}, the old state is at step {state.step}")
assert_close(loss, np.mean(error64**2), rtol=1e-6)
assert_close(new.params.b, b - 0.01 * (np.sign(error64.sum(0)) + 1e-4 * b), rtol=1e-5)
assert (new.step, state.step) == (1, 0)
assert refused(lambda: setattr(state, "step", 1)) and refused(lambda: setattr(dense, "w", 0))

# %% [markdown]
# **The state must come back as it went in**: the same structure, the same shapes, the same dtypes.
# Structure alone is not enough. ❌ Gradients that were accumulated are float32 where parameters are
# narrower. Then `p - rate * g` is float32, and the next step is another program:

# %% tags=["claim"]
half, grads32 = {"w": np.ones(3, np.float16)}, {"w": np.ones(3, np.float32)}


def promoting(params, grads):
    return jax.tree.map(lambda p, g: p - 0.5 * g, params, grads)


def keeping(params, grads):
    return jax.tree.map(lambda p, g: (p - 0.5 * g).astype(p.dtype), params, grads)


for fn in (promoting, keeping):
    params = half
    with CompileCounter(only=fn.__name__) as counter:
        for _ in range(3):
            params = jax.jit(fn)(params, grads32)
    print(f"{fn.__name__:10} dtype {params['w'].dtype}, programs: {counter.count}")
    assert counter.count == (2 if fn is promoting else 1)
    assert (params["w"].dtype == np.float16) == (fn is keeping)

# %% [markdown]
# The same happens to a leaf that is **weakly typed**, which is a dtype that gives way: a Python
# number, or the array that is made of one. A step count that begins as `jnp.asarray(0)` and comes
# back as an ordinary int32 is another argument in the second step (chapter 01).

# %% tags=["claim"]
starts = {"jnp.asarray(0)": jnp.asarray(0), "np.zeros((), …)": np.zeros((), np.int32)}
for name, count in starts.items():
    traces = TraceCounter(lambda count: count + np.int32(1))
    jitted = jax.jit(traces)
    jitted(jitted(jitted(count)))
    print(f"{name:15} traces in three steps: {traces.count}")
    assert traces.count == (2 if name.startswith("jnp") else 1)

# %% [markdown]
# Some leaves are meant to be wider than the parameters. An **average** of the parameters is one,
# `ema ← decay · ema + (1 − decay) · params`. With a decay of 0.999 it goes a thousandth of the way
# in each step. ❌ float16 has three digits, so an average in float16 stands still; ✅ in float32 it
# moves:

# %% tags=["claim"]
averages = {}
for dtype in (np.float16, np.float32):
    ema, target = np.ones((), dtype), np.asarray(1.25, np.float16)
    for _ in range(100):
        ema = (0.999 * ema.astype(np.float32) + 0.001 * target.astype(np.float32)).astype(dtype)
    averages[dtype.__name__] = round(float(ema), 4)
print("after 100 steps towards 1.25:", averages)
assert averages["float16"] == 1.0
assert_close(averages["float32"], 1.25 - 0.25 * 0.999**100, rtol=1e-3)

# %% [markdown]
# And a state often carries a **key** for its random numbers, of a dtype of its own. It can't be
# scaled, averaged or differentiated, and it need not be split either: `fold_in(key, step)` is a new
# key for each step, and the key itself never changes, so that a resumed run draws what an
# uninterrupted one would have drawn.

# %% tags=["claim"]
key = jax.random.wrap_key_data(np.uint32([0, 7]))
print("dtype:", key.dtype, "  shape:", key.shape)
assert jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
assert not jnp.issubdtype(key.dtype, jnp.floating)
error = show_error(
    jax.tree.map, lambda leaf: 0.5 * leaf, {"key": key}, expect=(TypeError, ValueError)
)

# %% [markdown]
# 💡 **Differentiate params, replace them in the state, and give each leaf back in its own dtype.**

# %% [markdown] exercise="7.1"
# Write a training state of your own, as any class that you like: a registered dataclass, a
# NamedTuple with a static node, a class of flax. Two functions make it and move it on:
#
# - `create_state(params, key, *, rate, decay)` → state. `params` is a pytree of floating JAX
#   arrays (float16, bfloat16 or float32; none weakly typed), `key` a typed key as from
#   `jax.random.key`; `rate` and `decay` are Python floats.
# - `apply_gradients(state, grads)` → the next state. `grads` has the structure of the params, all
#   float32. For each leaf `p ← p − rate · g`, in float32 and rounded once, to the dtype of p; then,
#   with the *new* params and in float32 too, `ema ← decay · ema + (1 − decay) · p`; the step counts
#   one more; the key stays. A jitted step is traced once: no leaf changes its dtype, and none is
#   weakly typed at first only (§7.9).
#
# In particular:
#
# - The attributes `params`, `ema`, `step`, `key`, `rate` and `decay` can be read. The leaves are
#   those of the first four, in this order, and their paths begin with these names. `ema` starts
#   equal to params, and is float32 whatever they are; `step` starts as an int32 array of shape ().
# - `rate` and `decay` are no leaves; inside jit they are the Python numbers that came in. States
#   with equal numbers have equal structures, others don't.
# - `create_state` can be called under `vmap`, and `jax.tree.map` may put anything, such as words,
#   in the place of the leaves.
# - An assignment to an attribute raises (AttributeError, or a class derived from it, or
#   TypeError). A step leaves the state that it was given as it is.


# %% tags=["starter"] exercise="7.1"
def create_state(params, key, *, rate, decay):
    """The state before any step."""
    ### BEGIN SOLUTION
    ema = jax.tree.map(lambda p: p.astype(jnp.float32), params)
    return _State(params, ema, jnp.zeros((), jnp.int32), key, rate, decay)
    ### END SOLUTION


def apply_gradients(state, grads):
    """The state after a step of gradient descent, with its average."""
    ### BEGIN SOLUTION
    params = jax.tree.map(lambda p, g: (p - state.rate * g).astype(p.dtype), state.params, grads)
    ema = jax.tree.map(lambda e, p: e + (1 - state.decay) * (p - e), state.ema, params)
    return replace(state, params=params, ema=ema, step=state.step + 1)


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class _State:
    params: Tree
    ema: Tree
    step: Array
    key: Array
    rate: float = field(metadata={"static": True})
    decay: float = field(metadata={"static": True})
    ### END SOLUTION


# %% [markdown]
# ## 7.10 Names by path
#
# A leaf has no name of its own. What it has is a **path**: the keys from the outermost container
# to the leaf. Each kind of container has its kind of key, and `keystr` writes them in two ways: as
# the Python that reaches the leaf, or plainly, with a separator of your choice.


# %% tags=["given"]
def name_of(path):
    """`layers/0/w`."""
    return keystr(path, simple=True, separator="/")


mixed = {"layers": [dense], "moments": Moments(1, 2)}

# %% tags=["claim"]
for path, _ in jax.tree.leaves_with_path(mixed):
    kinds = ", ".join(type(key).__name__ for key in path)
    print(f"{name_of(path):13} {keystr(path):20} {kinds}")
names = [name_of(path) for path, _ in jax.tree.leaves_with_path(mixed)]
assert names == ["layers/0/w", "layers/0/b", "moments/mu", "moments/nu"]
assert eval("mixed" + keystr(jax.tree.leaves_with_path(mixed)[0][0])) is dense.w

# %% [markdown]
# So a list of all parameters with their shapes is one line. It works for any model, also for one
# that does not fit into this machine: `jax.eval_shape` runs the function that makes it, computes
# nothing, and gives shapes and dtypes. This is a small language model:


# %% tags=["given"]
def init_language_model(vocabulary=32_000, width=512, layers=6):
    """Parameters of a decoder, all zeros: embedding, blocks, norm."""

    def block():
        return {
            "attention": {"qkv": jnp.zeros((width, 3 * width)), "out": jnp.zeros((width, width))},
            "mlp": {"up": jnp.zeros((width, 4 * width)), "down": jnp.zeros((4 * width, width))},
            "norm": {"scale": jnp.zeros(width)},
        }

    blocks = [block() for _ in range(layers)]
    return {"blocks": blocks, "embed": jnp.zeros((vocabulary, width)), "norm": jnp.zeros(width)}


# %% tags=["claim"]
planned = jax.eval_shape(init_language_model)
listed = [(name_of(path), leaf.shape) for path, leaf in jax.tree.leaves_with_path(planned)]
for name, shape in listed[:3]:
    print(f"{name:24} {shape}")
numbers = sum(math.prod(shape) for _, shape in listed)
print(f"… {len(listed)} in all, {numbers:,} numbers")
assert listed[0] == ("blocks/0/attention/out", (512, 512))
assert len(listed) == 6 * 5 + 2
assert numbers == 32_000 * 512 + 6 * (3 + 1 + 4 + 4) * 512**2 + (6 + 1) * 512
assert all(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in jax.tree.leaves(planned))

# %% tags=["figure"]
by_size = sorted(listed, key=lambda entry: -math.prod(entry[1]))[:8]
fig, ax = figure(
    "Nearly half of this model is one array",
    "numbers (millions)",
    "",
    size=(6.4, 3.4),
)
for place, (name, shape) in enumerate(reversed(by_size)):
    color = COLORS.wrong if name == "embed" else COLORS.right
    ax.barh(place, math.prod(shape) / 1e6, height=0.7, color=color)
ax.set_yticks(range(8), [name for name, _ in reversed(by_size)])
ax.tick_params(axis="y", length=0)
total = sum(math.prod(shape) for _, shape in listed)
ax.annotate(f"{math.prod(by_size[0][1]) / total:.0%} of all", (16.7, 7), va="center")
ax.set(xlim=(0, 21), xticks=[0, 5, 10, 15])
assert 0.4 < math.prod(by_size[0][1]) / total < 0.5
describe(
    fig,
    "The eight largest arrays of the model. The embedding holds 16 million numbers, 46 % of all; "
    "each of the others about one million.",
)

# %% [markdown]
# Two traps on the way to a table. ❌ **Counting with JAX.** Sizes are Python's business: an int32
# ends at two billion, and then begins again from below.

# %% tags=["claim"]
shape = (70_000, 70_000)
by_jax, by_python = int(jnp.prod(jnp.array(shape))), math.prod(shape)

print(f"jnp.prod: {by_jax:,}   math.prod: {by_python:,}")
assert by_python == 4_900_000_000
assert by_jax == by_python % 2**32 - (2**32 if by_python % 2**32 >= 2**31 else 0)

# %% [markdown]
# ❌ **Cutting the text.** To add up what lies under a prefix, one is tempted to split the name at
# its slashes, or to ask `startswith`. But a key may hold a slash (names of layers in old
# checkpoints do), and "conv" begins "convex".

# %% tags=["claim"]
tricky = {"conv": {"w": 1}, "conv/1": {"w": 2}, "convex": 4}
named = {name_of(path): leaf for path, leaf in jax.tree.leaves_with_path(tricky)}
print(named)
under = {
    "startswith": sum(leaf for name, leaf in named.items() if name.startswith("conv")),
    "split": sum(leaf for name, leaf in named.items() if name.split("/")[0] == "conv"),
    "path": sum(leaf for path, leaf in jax.tree.leaves_with_path(tricky) if path[0].key == "conv"),
}
print("under conv:", under)
assert under == {"startswith": 7, "split": 3, "path": 1}

# %% [markdown]
# ✅ A path is a tuple of keys. Cut the tuple, `path[:1]`, and write *that* as text. It works for
# every kind of container, and `name_of(())` is the empty text: the tree as a whole.

# %% tags=["claim"]
path, _ = jax.tree.leaves_with_path(mixed)[0]
print([name_of(path[:length]) for length in range(len(path) + 1)])
assert [name_of(path[:n]) for n in range(4)] == ["", "layers", "layers/0", "layers/0/w"]

# %% [markdown]
# 💡 **A path is a tuple. Cut it between keys, and make it text last.**

# %% [markdown] exercise="7.2"
# Write `parameter_table(params)`, which returns `(rows, subtotals)`.
#
# - `params` is any pytree whose leaves have a shape and a dtype: arrays of JAX or NumPy, or
#   `ShapeDtypeStruct`s, which may describe more than this machine can hold. Containers are of any
#   kind, registered classes included. Keys may hold any characters, slashes too.
# - `rows`: a list with a dict for each leaf, in the order in which JAX flattens. `"path"`: the
#   keys joined by "/", such as "layers/0/w"; a tree that is one array has the path "". `"shape"`: a
#   tuple. `"dtype"`: its name, "bfloat16". `"bytes"`: an integer. `"share"`: the bytes as a
#   fraction of the total, from 0 to 1; 0 if the total is 0.
# - `subtotals`: a dict from each prefix to the bytes of all leaves under it. Prefixes are the paths
#   of the containers in which leaves hang, at any depth: for a leaf "layers/0/w" they are "",
#   "layers" and "layers/0". "" is the whole tree, and is always there. Should two containers have
#   the same path as text, add them up.


# %% tags=["starter"] exercise="7.2"
def parameter_table(params):
    """(rows, subtotals): what is in a model, leaf by leaf and container by container."""
    ### BEGIN SOLUTION
    rows, subtotals = [], {"": 0}
    for path, leaf in jax.tree.leaves_with_path(params):
        size = math.prod(leaf.shape) * leaf.dtype.itemsize
        about = {"path": name_of(path), "shape": leaf.shape, "dtype": leaf.dtype.name}
        rows.append(about | {"bytes": size})
        for length in range(len(path) or 1):
            prefix = name_of(path[:length])
            subtotals[prefix] = subtotals.get(prefix, 0) + size
    for row in rows:
        row["share"] = row["bytes"] / (subtotals[""] or 1)
    return rows, subtotals
    ### END SOLUTION


# %% [markdown]
# ## 7.11 A mask says who is meant
#
# Weight decay pulls parameters towards zero. For matrices that is what one wants; a norm's scale
# should be near one. ❌ Decayed like the others, it shrinks with nothing to stop it. Here gradients
# are zero, so that decay is all that happens:


# %% tags=["given"]
def run(mask, steps=100):
    """The parameters after each step of AdamW with gradients of zero."""
    params = {"norm": {"scale": np.ones(4, np.float32)}, "w": np.ones((4, 4), np.float32)}
    optimizer = adamw(0.1, weight_decay=0.1, mask=mask)
    zeros, opt_state = jax.tree.map(np.zeros_like, params), optimizer.init(params)

    def one(carry, _):
        params, opt_state = carry
        updates, opt_state = optimizer.update(zeros, opt_state, params)
        params = apply_updates(params, updates)
        return (params, opt_state), params

    start = jax.tree.map(jnp.asarray, (params, opt_state))
    return jax.jit(lambda c: jax.lax.scan(one, c, None, steps)[1])(start)


# %% tags=["claim"]
runs = {"no mask": run(None), "masked": run({"norm": {"scale": False}, "w": True})}
scales = {name: params["norm"]["scale"][:, 0] for name, params in runs.items()}
for name, scale in scales.items():
    print(f"{name:8} the scale after 100 steps: {scale[-1]:.3f}")
decay = 0.99 ** np.arange(1, 101)
assert_close(scales["no mask"], decay, rtol=1e-4)
assert_equal(scales["masked"], np.ones(100))
assert_close(runs["masked"]["w"][:, 0, 0], decay, rtol=1e-4)

# %% tags=["figure"]
fig, ax = figure("Without a mask, decay takes most of the norm's scale", "step", "scale")
for (name, scale), color in zip(scales.items(), (COLORS.wrong, COLORS.right), strict=True):
    (drawn,) = ax.plot(range(1, 101), scale, color=color)
    label_line(drawn, name)
ax.set(ylim=(0, 1.08), xlim=(0, 118))
assert 0.6 < 1 - scales["no mask"][-1] < 0.67
describe(
    fig,
    "The scale of a norm over 100 steps of weight decay. Without a mask it falls to 0.37; masked, "
    "it stays at 1.",
)

# %% [markdown]
# ✅ A **mask** is a tree of Python bools with the structure of the parameters. The usual one goes
# by rank: `optim.matrices` is true for leaves of two axes or more. ❌ That works until somebody
# stacks the layers, to scan over them, or trains an ensemble. Then a bias has two axes:

# %% tags=["claim"]
layer = {"w": np.ones((4, 4)), "b": np.ones(4)}
stacked = jax.tree.map(lambda leaf: np.stack([leaf] * 6), layer)

print("one layer:", matrices(layer), "  six, stacked:", matrices(stacked))
assert matrices(layer) == {"w": True, "b": False}
assert matrices(stacked) == {"w": True, "b": True}

# %% [markdown]
# ✅ The name of a bias does not change when it is stacked. A mask by name takes one call:


# %% tags=["claim"]
def by_name(params):
    """True for all leaves but biases, by their last key."""
    return jax.tree.map_with_path(lambda path, leaf: name_of(path[-1:]) != "b", params)


print(by_name(stacked))
assert by_name(stacked) == by_name(layer) == {"w": True, "b": False}
assert jax.tree.structure(by_name(model)) == jax.tree.structure(model)

# %% [markdown]
# More than one name makes rules, and rules want patterns. Python's own `fnmatch` has the simplest:
# `*` stands for any characters, slashes too, and `?` for exactly one. A pattern speaks of the
# whole path.

# %% tags=["claim"]
fits = fnmatch.fnmatchcase
for name, pattern, expected in (
    ("layers/0/b", "*/b", True),
    ("layers/0/b", "layers/?/b", True),
    ("layers/10/b", "layers/?/b", False),
    ("layers/0/norm/scale", "layers/*/scale", True),
    ("layers/0/norm/scale", "norm", False),
    ("b", "*/b", False),
    ("layers/0/B", "*/b", False),
):
    print(f"{name:20} {pattern:15} {fits(name, pattern)}")
    assert fits(name, pattern) == expected

# %% [markdown]
# ❌ The danger of patterns is the one that fits nothing. It raises no error, and a year later
# someone finds that the norms were decayed after all. Here a letter is missing:

# %% tags=["claim"]
names = [name_of(path) for path, _ in jax.tree.leaves_with_path(planned)]
spared = {pattern: sum(fits(name, pattern) for name in names) for pattern in ("*norm*", "*nrom*")}
print("leaves spared:", spared)
assert spared == {"*norm*": 7, "*nrom*": 0}

# %% [markdown]
# ❌ And a mask's leaves must be Python's `True` and `False`, not arrays. An optimizer looks at them
# while tracing, to leave code away. An array that was made in the same trace has no value yet:


# %% tags=["claim"]
def masked_step(params, make):
    mask = jax.tree.map(lambda p: make(p.ndim > 1), params)
    return jax.tree.map(lambda p, on: 0.9 * p if on else p, params, mask)


layer32 = jax.tree.map(np.float32, layer)
shrunk = jax.jit(partial(masked_step, make=bool))(layer32)
assert_close(shrunk, {"w": 0.9 * layer["w"], "b": layer["b"]}, rtol=1e-6)
error = show_error(
    jax.jit(partial(masked_step, make=jnp.asarray)),
    layer32,
    expect=jax.errors.TracerBoolConversionError,
)

# %% [markdown]
# 💡 **Masks by name, of Python's bools; and a pattern that fits nothing is an error.**

# %% [markdown] exercise="7.3"
# Write `mask_by_path(params, rules, default=False)`.
#
# - `params` is any pytree, of arrays, tracers or `ShapeDtypeStruct`s; `None` may stand in it.
#   `rules` is a list of pairs `(pattern, value)`.
# - It returns a tree with the structure of `params`. Each leaf is the value of the *first* rule
#   whose pattern fits its path, or `default` if none does. The path is written as in §7.10
#   ("layers/0/w"), and fits as in this section: as a whole, `*` for any characters, slashes too,
#   `?` for one, upper and lower case apart. All other characters stand for themselves (`[` and `]`
#   do not occur).
# - A value is `True`, `False` or a label such as "slow", and comes back as it is: the same type, no
#   array.
# - A pattern that fits no path at all raises a ValueError whose text has the pattern in it. One
#   whose paths were all taken by earlier rules is fine.


# %% tags=["starter"] exercise="7.3"
def mask_by_path(params, rules, default=False):
    """A tree like params, each leaf the value of the first rule that fits its path."""
    ### BEGIN SOLUTION
    names = [name_of(path) for path, _ in jax.tree.leaves_with_path(params)]
    for pattern, _ in rules:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in names):
            raise ValueError(f"the pattern {pattern!r} fits no path")

    def value_of(path, leaf):
        name = name_of(path)
        fitting = (value for pattern, value in rules if fnmatch.fnmatchcase(name, pattern))
        return next(fitting, default)

    return jax.tree.map_with_path(value_of, params)
    ### END SOLUTION


# %% [markdown]
# ## 7.12 Constructors that stand in the way
#
# JAX takes a registered dataclass apart and *calls the class* to put it together. So its
# constructor meets everything that ever passes for a leaf.
#
# ❌ **A check in the constructor** sees shapes, sums, tracers and placeholders, and refuses:


# %% tags=["given"]
@jax.tree_util.register_dataclass
@dataclass
class Checked:
    """❌ A layer that checks its weights whenever it is built."""

    w: Array

    def __post_init__(self):
        if np.ndim(self.w) != 2:
            raise ValueError("w needs two axes")


@dataclass
class Sized:
    """❌ A layer whose constructor takes a size."""

    w: Array

    def __init__(self, size):
        self.w = np.zeros((size, size))


# %% tags=["claim"]
checked = Checked(np.ones((2, 2)))
error = show_error(jax.tree.map, np.sum, checked, expect=ValueError, contains="two axes")

# %% [markdown]
# ❌ **A constructor with arguments of its own** is never called rightly: JAX calls it with the
# fields. Registering such a class works, and so does taking it apart. It is the way back that
# fails.

# %% tags=["claim"]
jax.tree_util.register_dataclass(Sized)
sized = Sized(2)
assert len(jax.tree.leaves(sized)) == 1
error = show_error(
    jax.tree.map, np.negative, sized, expect=TypeError, contains="unexpected keyword argument 'w'"
)

# %% [markdown]
# ✅ The simplest cure is a class that takes its fields and does nothing else, with a function
# beside it that makes a good one: `Dense` and `make_dense(key, sizes)`. ✅ Where the constructor
# has to check, register the class by hand: `register_pytree_with_keys` takes the class and two
# functions, one that takes an object apart into keyed **children** and static **auxiliary data**,
# and one that puts it together *without* the constructor.


# %% tags=["given"]
class Interval:
    """Numbers from low to high, elementwise. closed: whether the ends belong to it; static."""

    def __init__(self, low, high, closed=True):
        if np.any(low > high):
            raise ValueError("low is above high")
        self.low, self.high, self.closed = low, high, closed

    def contains(self, x):
        inside = (self.low < x) & (x < self.high)
        return inside | (x == self.low) | (x == self.high) if self.closed else inside


def take_apart(interval):
    """Children with their keys, and what is static."""
    key = jax.tree_util.GetAttrKey
    return [(key("low"), interval.low), (key("high"), interval.high)], interval.closed


def put_together(closed, children):
    """An interval around any children: no constructor, no check."""
    interval = object.__new__(Interval)
    interval.low, interval.high = children
    interval.closed = closed
    return interval


# %% tags=["claim"]
jax.tree_util.register_pytree_with_keys(Interval, take_apart, put_together)

interval = Interval(np.float32([0, 2]), np.float32([1, 3]))
print([name_of(path) for path, _ in jax.tree.leaves_with_path(interval)])
points = np.float32([-1, 0, 0.5, 1, 2])
for closed in (True, False):
    inside = jax.jit(Interval.contains)(Interval(0.0, 1.0, closed), points)
    assert_equal(inside, [False, closed, True, closed, False])
assert Interval(1.0, 1.0).contains(1.0)
shapes = jax.tree.map(np.shape, interval)
assert (shapes.low, shapes.high, shapes.closed) == ((2,), (2,), True)
error = show_error(Interval, np.ones(1), np.zeros(1), expect=ValueError, contains="above high")

# %% [markdown]
# A gradient with respect to an interval is an interval too, with `low` above `high` as often as
# not. It is not checked, and must not be: what JAX puts together is not always what the class
# stands for.
#
# Two mistakes are made in those two functions. Each passes `jax.tree.leaves`:


# %% tags=["claim"]
def rebuilt_by(put):
    """The interval (0, 1), open, flattened and then rebuilt by another function."""
    keyed, aux = take_apart(Interval(0.0, 1.0, closed=False))
    return put(aux, [child for _, child in keyed])


swapped = rebuilt_by(lambda closed, children: put_together(closed, children[::-1]))
forgetful = rebuilt_by(lambda closed, children: Interval(*children))
right = rebuilt_by(put_together)
for name, each in {"swapped": swapped, "forgetful": forgetful, "right": right}.items():
    print(f"{name:10} low {each.low}, high {each.high}, closed {each.closed}")
assert (swapped.low, swapped.high) == (1.0, 0.0)
assert forgetful.closed is True
assert (right.low, right.high, right.closed) == (0.0, 1.0, False)

# %% [markdown]
# The children come back in the order in which they were handed out. What is in neither children
# nor auxiliary data is lost at the first `map`. And auxiliary data that don't compare by value
# (§7.8) make each object a structure of its own. A test for all of it is short: map the identity,
# and compare.
#
# ❌ What follows from the leaves, such as a shape, belongs to neither. Kept as auxiliary data it is
# stale after the first slice, and each size is a structure of its own. ✅ Compute it when asked, in
# a property.


# %% tags=["claim"]
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Counted:
    """❌ A vector that keeps its own length as structure."""

    values: Array
    length: int = field(metadata={"static": True})


half = jax.tree.map(lambda leaf: leaf[:2], Counted(np.ones(4), 4))
fits = jax.tree.structure(half) == jax.tree.structure(Counted(np.ones(2), 2))
print(f"half has {half.values.size} numbers and says {half.length}; fits one of 2: {fits}")
assert (half.values.size, half.length) == (2, 4)
assert not fits

# %% [markdown]
# Without keys, by `register_pytree_node`, it all works as well, but the leaves have numbers for
# names:


# %% tags=["claim"]
class Keyless(Interval):
    """An interval registered without keys."""


jax.tree_util.register_pytree_node(
    Keyless, lambda k: ((k.low, k.high), None), lambda aux, children: Keyless(*children)
)
paths = [keystr(path) for path, _ in jax.tree.leaves_with_path(Keyless(0.0, 1.0))]
print(paths)
assert paths == ["[<flat index 0>]", "[<flat index 1>]"]

# %% [markdown]
# 💡 **Check where people call, not where JAX rebuilds. Map the identity, and compare.**

# %% [markdown] exercise="7.4"
# Write a class `LowRank(left, right, scale=1.0)`: the matrix scale · left · right, kept as two
# factors. `left` is (n, r), `right` is (r, m), both arrays of NumPy or JAX; `scale` is a Python
# float.
#
# - It has the attributes `left`, `right`, `scale`, and `shape`, which is `(n, m)`. `matrix @ x`
#   multiplies it with an x of shape (m,) or (m, k), also under `jit`, `grad` and `vmap`. It never
#   makes an array of n × m numbers, which is what the factors are there for.
# - It is a pytree with the leaves `left` and `right`, in this order, whose paths are these names.
# - `scale` is static. Matrices of equal scale have equal structures, whatever their sizes; others
#   don't.
# - `LowRank(…)` raises a ValueError unless both factors have two axes and the same rank r.
# - JAX may rebuild it around anything: stacks of factors, words, factors that don't fit. `shape`
#   then is `(left.shape[0], right.shape[1])` of the new leaves, where they have these.


# %% tags=["starter"] exercise="7.4"
class LowRank:
    """The matrix scale · left · right. left: (n, r), right: (r, m)."""

    def __init__(self, left, right, scale=1.0):
        ### BEGIN SOLUTION
        if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[0]:
            raise ValueError(f"factors of shape {left.shape} and {right.shape} don't fit")
        self.left, self.right, self.scale = left, right, scale

    @property
    def shape(self):
        return self.left.shape[0], self.right.shape[1]

    def __matmul__(self, x):
        return self.scale * (self.left @ (self.right @ x))


def _factors(matrix):
    key = jax.tree_util.GetAttrKey
    return [(key("left"), matrix.left), (key("right"), matrix.right)], matrix.scale


def _from_factors(scale, factors):
    matrix = object.__new__(LowRank)
    matrix.left, matrix.right, matrix.scale = *factors, scale
    return matrix


jax.tree_util.register_pytree_with_keys(LowRank, _factors, _from_factors)
### END SOLUTION


# %% [markdown]
# ## 7.13 One long vector
#
# Solvers, line searches and covariances want a vector, not a tree. `ravel_pytree` makes one, with a
# function that leads back:

# %% tags=["claim"]
vector, back = ravel_pytree(slope)
print("vector:", vector, "  dtype:", vector.dtype)
assert_equal(vector, [1, 1, 10, 10, 1, 1])
assert_equal(back(2 * vector), Dense([[2, 2], [20, 20]], [2, 2]))

# %% [markdown]
# For a tree of float32 parameters that is all you need. ❌ For a *state* it is not. A vector has
# one dtype, and float32 has 24 bits for an integer. A step count of 16,777,217 goes in, and comes
# back as another number:

# %% tags=["claim"]
count = np.int32(2**24 + 1)
vector, back = ravel_pytree({"w": jnp.ones(2), "step": jnp.asarray(count)})
returned = back(vector)["step"]
print(f"in: {count:,}   out: {returned:,}   dtype: {returned.dtype}")
assert count == 16_777_217 and returned == 16_777_216
assert (vector.dtype, returned.dtype) == (np.float32, np.int32)

# %% [markdown]
# It is an int32 again, so nobody looks twice. A vector that shall be differentiated has no business
# with integers anyway: the entry of the count has a slope of 0, whatever the loss makes of it. And
# a key does not go in at all.

# %% tags=["claim"]
slope_of_all = jax.grad(lambda v: back(v)["step"] * 1.0 + jnp.sum(back(v)["w"]))(vector)
print("slopes of step and w:", slope_of_all)
assert_equal(slope_of_all, [0, 1, 1])
error = show_error(ravel_pytree, {"key": key, "w": jnp.ones(2)}, expect=TypeError)

# %% [markdown]
# Whoever picks out the floating leaves by dtype meets the next one. ❌ NumPy does not know
# bfloat16: it comes from a package of its own, and to NumPy it is raw bytes. ✅ `jnp.issubdtype`
# knows it.

# %% tags=["claim"]
print("dtype     kind  np.issubdtype  jnp.issubdtype")
for dtype in map(jnp.dtype, ("float32", "float16", "bfloat16", "int32")):
    by_numpy, by_jax = np.issubdtype(dtype, np.floating), jnp.issubdtype(dtype, jnp.floating)
    print(f"{dtype.name:9} {dtype.kind:5} {by_numpy!s:14} {by_jax}")
    assert by_jax == (dtype.name != "int32")
    assert (dtype.kind == "V") == (dtype.name == "bfloat16")
    assert by_numpy == (by_jax and dtype.name != "bfloat16")

# %% [markdown]
# ❌ The last trap is on the way back. A slice that reaches beyond the end is no error, neither in
# NumPy nor in JAX: it is short. And numbers that are left over at the end are not missed. A vector
# of another model passes for this one, unless lengths are compared:

# %% tags=["claim"]
vector = jnp.arange(6.0)
print("vector[4:9] has", vector[4:9].shape[0], "numbers; vector[9:] has", vector[9:].shape[0])
assert vector[4:9].shape == (2,)
assert vector[9:].shape == (0,)
error = show_error(back, vector, expect=(TypeError, ValueError))

# %% [markdown]
# 💡 **Only floating leaves are numbers of a vector. The rest stays in the tree.**

# %% [markdown] exercise="7.5"
# Write `to_vector(tree)` and `from_vector(vector, like)`.
#
# - `tree` and `like` are pytrees of JAX arrays of any dtype: floating ones of 16 or 32 bits,
#   bfloat16 included, integers, bools, keys; `None` and arrays without elements may stand in them.
# - `to_vector` returns a float32 vector of all numbers in floating leaves: leaf after leaf in the
#   order in which JAX flattens, each row by row. If there are none it has the shape (0,).
# - `from_vector` returns a tree with the structure of `like`. Its floating leaves have the shape
#   and dtype of those of `like`, and their numbers come from the vector; all other leaves are those
#   of `like`, exactly.
# - `from_vector` raises a ValueError if the vector is too short or too long.
# - Both run under `jit` (the check calls them there), and `from_vector` can be differentiated with
#   respect to the vector.


# %% tags=["starter"] exercise="7.5"
def to_vector(tree):
    """All numbers of floating leaves as one float32 vector."""
    ### BEGIN SOLUTION
    floats = [leaf for leaf in jax.tree.leaves(tree) if _floating(leaf)]
    return jnp.concatenate([jnp.zeros(0), *(leaf.astype(jnp.float32).ravel() for leaf in floats)])
    ### END SOLUTION


def from_vector(vector, like):
    """The tree `like`, with the numbers of its floating leaves from the vector."""
    ### BEGIN SOLUTION
    floats = [leaf for leaf in jax.tree.leaves(like) if _floating(leaf)]
    ends = np.cumsum([leaf.size for leaf in floats])
    if vector.shape != (sum(leaf.size for leaf in floats),):
        raise ValueError(f"a vector of shape {vector.shape} for {ends[-1:]} numbers")
    parts = iter(jnp.split(vector, ends[:-1]))

    def pick(leaf):
        return next(parts).reshape(leaf.shape).astype(leaf.dtype) if _floating(leaf) else leaf

    return jax.tree.map(pick, like)


def _floating(leaf):
    return jnp.issubdtype(leaf.dtype, jnp.floating)
    ### END SOLUTION


# %% [markdown]
# ## 7.14 What to keep
#
# 💡 **Know your leaves.** Tuples are opened, `None` is skipped, strangers are leaves; and the first
# tree of a `map` decides for all.
#
# 💡 **A frozen, registered dataclass for every state.** Static is what Python must know, and
# compares by value; no checks where JAX rebuilds.
#
# 💡 **Find leaves by path, never by place,** and refuse a pattern that fits nothing.
#
# ### 🧪 Quiz
#
# Put a letter in place of the dots and run the cell. The answers are measured on your machine.

# %% tags=["quiz"] question="7.a"

# %% tags=["quiz"] question="7.b"

# %% tags=["quiz"] question="7.c"

# %% tags=["quiz"] question="7.d"

# %% tags=["quiz"] question="7.e"

# %% tags=["quiz"] question="7.f"

# %% tags=["quiz"] question="7.g"

# %% tags=["quiz"] question="7.h"

# %% [markdown]
# ### Cheat sheet
#
# | to | write |
# |---|---|
# | take apart | `leaves, structure = jax.tree.flatten(t)` |
# | put together | `jax.tree.unflatten(structure, leaves)` |
# | change every leaf | `jax.tree.map(f, t)`, `jax.tree.map(f, t, other)` |
# | fold, ask all | `jax.tree.reduce(f, t, start)`, `jax.tree.all(t)` |
# | list of dicts → dict of lists | `jax.tree.transpose(jax.tree.structure([0] * n), None, t)` |
# | one value a module → one a leaf | `jax.tree.broadcast(prefix, t)` |
# | stop at shapes | `is_leaf=lambda x: isinstance(x, tuple)` |
# | see `None` | `is_leaf=lambda x: x is None` |
# | compare nests | `jax.tree.structure(a) == jax.tree.structure(b)` |
# | compare shapes | `[np.shape(x) for x in jax.tree.leaves(a)] == …`, after the structures |
# | register a dataclass | `@jax.tree_util.register_dataclass` above `@dataclass(frozen=True)` |
# | a static field | `field(metadata={"static": True})`, or `jax.tree.static()` |
# | a class without leaves | `@jax.tree_util.register_static` |
# | a constructor that checks | `jax.tree_util.register_pytree_with_keys(cls, apart, together)` |
# | change a field | `dataclasses.replace(state, step=…)` |
# | name a leaf | `jax.tree_util.keystr(path, simple=True, separator="/")` |
# | go by name | `jax.tree.map_with_path(lambda path, leaf: …, t)` |
# | match a name | `fnmatch.fnmatchcase(name, "*/b")` |
# | shapes without numbers | `jax.eval_shape(init, …)` |
# | ask for a floating dtype | `jnp.issubdtype(leaf.dtype, jnp.floating)` |
# | one vector, and back (`import jax.flatten_util`) | `jax.flatten_util.ravel_pytree(t)` |
