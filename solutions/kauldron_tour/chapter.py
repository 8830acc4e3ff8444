# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # 08 · A walk through Kauldron
#
# Ten scripts train ten models, and each has a loop, a log, a checkpoint and a bug of its own.
# **Kauldron** is Google DeepMind's library for research on vision models, and its answer is to
# write the loop once. Yours is the description: a *config* that says which data, model, losses,
# metrics and optimizer to put into it.
#
# A library that does everything for you also hides everything from you. So this chapter takes it
# apart, and holds each piece against numbers of its own: the schedule, the loss, the metric, the
# training, step by step, in NumPy float64. You will also meet what no tutorial mentions: the
# reference that dies in a file, the key that is taken for a method, the examples that an evaluation
# never sees, the resumed run that trains on the same data twice.
#
# Afterwards you can
#
# - write a config, change it in one place, and send it through JSON;
# - read its errors, and know which of them come late;
# - write a loss and a metric that survive masks, batches of any size and large numbers;
# - train, sweep, evaluate and resume, and say which step a checkpoint holds.
#
# Reading and running takes about an hour, the five exercises another hour and a half. You need
# flax and optax a little, and nothing of Kauldron. It brings TensorFlow, which is why this is the
# one chapter that installs apart from the rest.
#
# | mark | means |
# |---|---|
# | ❌ | a mistake, and what it costs |
# | ✅ | the way to do it, and the proof |
# | ✍️ | your turn |
# | 🧪 | a check, or a question of the quiz |
# | 💡 | a rule to keep |

# %% tags=["setup"]
from helpers.optional import quiet, require

require("kauldron")

# %% tags=["setup"]
import copy
import dataclasses
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping

os.environ["TQDM_DISABLE"] = "1"  # a progress bar is no output to keep
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import etils
import flax
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from kauldron import kd, konfig
from kauldron.ktyping import Float, Int, typechecked
from typeguard import TypeCheckError

from helpers import (
    COLORS,
    assert_close,
    assert_equal,
    check,
    describe,
    figure,
    label_line,
    quiz,
    show_error,
)

# %% [markdown]
# ## 8.1 What is loaded, and when
#
# `from kauldron import kd` costs little: each part of `kd` is imported when you first touch it.
# Configs, key paths, losses and metrics are light. The trainer and its data pipelines bring
# TensorFlow. We touch them here, once, and drop what they print.

# %% tags=["claim", "nbval-ignore-output"]
was_there = "tensorflow" in sys.modules  # when this cell is run a second time
kd.konfig, kd.kontext, kd.losses, kd.metrics
light = "tensorflow" not in sys.modules
started = time.perf_counter()
with quiet():
    kd.train, kd.evals, kd.data, kd.ckpts
seconds = time.perf_counter() - started
print(f"the light half needs no TensorFlow: {light}; the other half took {seconds:.0f} s to import")
assert light or was_there
assert "tensorflow" in sys.modules

# %% [markdown]
# Kauldron, JAX and `etils` are released on days of their own, and some pairs do not fit. In etils
# 1.14 the function that describes arrays looks for a module that JAX has moved; its next release
# looks elsewhere. ❌ A patch that is copied from a forum is applied for good. ✅ Try the thing that
# would break, and mend it only if it does:


# %% tags=["given"]
def describes_arrays():
    """Whether etils can describe an array of this JAX, as each data pipeline of Kauldron asks."""
    from etils.etree import jax as etree

    try:
        return etree.spec_like({"x": jnp.ones(3)})["x"].shape == (3,)
    except AttributeError:
        return False


def put_back_the_module():
    """Gives JAX's module of random keys its old name back."""
    import jax._src.random.prng

    jax._src.prng = jax._src.random.prng


# %% tags=["claim", "nbval-ignore-output"]
needed = not describes_arrays()
if needed:
    put_back_the_module()
assert describes_arrays()
versions = f"etils {etils.__version__} with JAX {jax.__version__}"
print(f"{versions}: {'patched' if needed else 'no patch needed'}")

# %% [markdown]
# 💡 **Test for the symptom, patch, test again. A patch without a test outlives its reason.**

# %% [markdown]
# ## 8.2 A config is a call that was not made
#
# A trainer is one large object made of other objects. To compare two runs you need to know what
# they were made of; to repeat one, you need that in a file. An optimizer can't tell: it is a pair
# of functions. So Kauldron writes down the *call*. Inside `konfig.imports()` an import gives
# **proxies**, names without code behind them. Calling one records the call.

# %% tags=["given"]
with konfig.imports():
    import optax as optax_cfg
    from kauldron import kd as kd_cfg

# %% tags=["claim"]
described = optax_cfg.adam(learning_rate=1e-3, b1=0.8)

print(described)
print(json.loads(described.to_json()))
assert isinstance(described, konfig.ConfigDict)
assert described["__qualname__"] == "optax:adam" and described.b1 == 0.8

# %% [markdown]
# A call is a dict with the name of what to call. Keys are arguments; values are numbers, strings,
# lists and further calls, so a config is a **call tree** and a nest of dicts at once. As a dict it
# can be edited and saved. `konfig.resolve` turns it into what it describes, from the leaves up.
#
# ✅ Does anything get lost on the way through JSON? Two optimizers can't be compared, but their
# updates can:


# %% tags=["given"]
def updates_of(optimizer, grads):
    """The updates that an optimizer makes of one gradient after the other, from zero parameters."""
    params = jnp.zeros(grads.shape[1:])
    state = optimizer.init(params)
    updates = []
    for grad in grads:
        update, state = optimizer.update(grad, state, params)
        updates.append(update)
    return np.stack(updates)


def adam_by_hand(grads, rate, b1, b2=0.999, eps=1e-8):
    """The same for Adam, in float64."""
    mu, nu, updates = 0.0, 0.0, []
    for step, grad in enumerate(np.asarray(grads, np.float64), 1):
        mu, nu = b1 * mu + (1 - b1) * grad, b2 * nu + (1 - b2) * grad**2
        updates.append(-rate * (mu / (1 - b1**step)) / (np.sqrt(nu / (1 - b2**step)) + eps))
    return np.stack(updates)


# %% tags=["claim"]
grads = np.random.default_rng(8).standard_normal((5, 3)).astype(np.float32)
returned = konfig.ConfigDict(json.loads(described.to_json()))
original = updates_of(konfig.resolve(described), grads)

assert_equal(updates_of(konfig.resolve(returned), grads), original)
assert_equal(updates_of(optax.adam(1e-3, b1=0.8), grads), original)
assert_close(original, adam_by_hand(grads, 1e-3, 0.8), rtol=1e-4)
tiny = np.full((3, 1), 1e-8, np.float32)  # as small as eps, which halves its updates
assert_close(updates_of(konfig.resolve(returned), tiny), adam_by_hand(tiny, 1e-3, 0.8), rtol=1e-4)

returned.learning_rate = 2e-3
twice = updates_of(konfig.resolve(returned), grads)
assert_close(twice, 2 * original, rtol=1e-5)
print("through JSON: the same updates, bit for bit; edited: twice the updates")

# %% [markdown]
# 💡 **Configs are edited, saved and compared; objects are made from them, late, by
# `konfig.resolve`.**

# %% [markdown]
# ## 8.3 A number that is written once
#
# A cosine schedule must know how long the training is, and the trainer must know it too. ❌ Written
# twice, the two drift apart: someone shortens the run to try something, and the rate never comes
# down. Reading the one from the other does not help, for it is read once:

# %% tags=["claim"]
cfg = konfig.ConfigDict({"num_train_steps": 200})
cfg.schedule = optax_cfg.cosine_decay_schedule(init_value=0.1, decay_steps=cfg.num_train_steps)
cfg.num_train_steps = 50

schedule = konfig.resolve(cfg.schedule)
left = float(schedule(cfg.num_train_steps)) / 0.1
print(f"a run of {cfg.num_train_steps} steps ends at {left:.0%} of the rate it started with")
assert cfg.schedule.decay_steps == 200
assert_close(left, (1 + np.cos(np.pi / 4)) / 2, rtol=1e-5)

# %% [markdown]
# ✅ **`cfg.ref`** is the config read later. `cfg.ref.num_train_steps` is no number but a
# **reference**: a note to look the number up. Arithmetic on it makes further references, and
# `konfig.ref_fn` makes one of any function:

# %% tags=["claim"]
cfg = konfig.ConfigDict({"num_train_steps": 200, "warmup": 0.1})
cfg.decay_steps = cfg.ref.num_train_steps - 10
cfg.warmup_steps = konfig.ref_fn(
    lambda total, share: round(total * share), cfg.ref.num_train_steps, cfg.ref.warmup
)
for cfg.num_train_steps in (200, 50):
    print(cfg.num_train_steps, cfg.decay_steps, cfg.warmup_steps)
assert (cfg.decay_steps, cfg.warmup_steps) == (40, 5)

# %% [markdown]
# With references, the schedule follows, and so does whatever holds the schedule. We check it at
# every step, and for three lengths.


# %% tags=["given"]
def following_config():
    """A config whose cosine schedule ends when the training does."""
    cfg = konfig.ConfigDict({"num_train_steps": 200})
    cfg.schedule = optax_cfg.cosine_decay_schedule(
        init_value=0.1, decay_steps=cfg.ref.num_train_steps
    )
    cfg.optimizer = optax_cfg.sgd(learning_rate=cfg.ref.schedule)
    return cfg


def cosine(steps, total):
    """The same schedule in float64."""
    return 0.1 * (1 + np.cos(np.pi * np.minimum(steps / total, 1))) / 2


# %% tags=["claim"]
cfg, steps = following_config(), np.arange(201)
rates = {}
for cfg.num_train_steps in (200, 100, 50):
    rates[cfg.num_train_steps] = jax.jit(konfig.resolve(cfg.schedule))(steps)
    assert_close(rates[cfg.num_train_steps], cosine(steps, cfg.num_train_steps), rtol=0, atol=1e-7)
    step = updates_of(konfig.resolve(cfg.optimizer), np.ones((3, 1), np.float32))
    assert_close(step[:, 0], -cosine(np.arange(3), cfg.num_train_steps), rtol=1e-5)
print("schedule and optimizer follow at each of", len(steps), "steps")

# %% tags=["figure"]
fig, ax = figure("With a reference, the rate comes down when the run ends", "step", "learning rate")
for total, color in zip(rates, (COLORS.reference, COLORS.third, COLORS.right), strict=True):
    (drawn,) = ax.plot(steps[: total + 1], rates[total][: total + 1], color=color)
    ax.annotate(f"{total} steps", (total + 2, 0.001), color=color, fontweight="bold")
stuck = cosine(steps, 200)[:51]
(drawn,) = ax.plot(steps[:51], stuck, "--", color=COLORS.wrong)
label_line(drawn, "50 steps, a copied number")
assert stuck[-1] > 0.08 and rates[50][50] < 1e-8
describe(
    fig,
    "Cosine schedules of runs of 200, 100 and 50 steps: each ends at zero. A run of 50 steps whose "
    "schedule holds a copied number ends at 85 % of the rate.",
)

# %% [markdown]
# ❌ **References live in memory only.** JSON has no such thing, so each is written as the value
# that it had. What comes back trains like the original, and no longer follows. A copy keeps them,
# if it is `copy.deepcopy`:

# %% tags=["claim"]
cfg = following_config()
ways = {
    "copy.deepcopy": copy.deepcopy(cfg),
    "JSON": konfig.ConfigDict(json.loads(cfg.to_json())),
    "to_dict": konfig.ConfigDict(cfg.to_dict()),
}
for name, other in ways.items():
    other.num_train_steps = 50
    print(f"{name:14} follows: {other.schedule.decay_steps == 50}")
    assert (other.schedule.decay_steps == 50) == (name == "copy.deepcopy")
assert cfg.schedule.decay_steps == 200

# %% [markdown]
# So a JSON file is the record of a run, good for repeating it. It is not the source to edit: that
# is the Python function that made it. One thing JSON does keep is *sameness*: `cfg.schedule` and
# the optimizer's rate carry the same `__id__` and come back as one object.

# %% tags=["claim"]
as_json = json.loads(cfg.to_json())
print("schedule:", as_json["schedule"])
assert as_json["schedule"]["__id__"] == as_json["optimizer"]["learning_rate"]["__id__"]
back = ways["JSON"]
assert back.optimizer.learning_rate is back.schedule
back.schedule.init_value = 0.3
assert back.optimizer.learning_rate.init_value == 0.3
print("shared before JSON, shared after")

# %% [markdown]
# 💡 **Write a number once, refer to it everywhere with `cfg.ref`, and edit before you save.**

# %% [markdown] exercise="8.1"
# Write `training_config()`, which returns a `konfig.ConfigDict` with these fields:
#
# - `num_train_steps`, `peak` and `warmup`: 100, 0.1 and 0.1. They stay plain numbers.
# - `schedule`: a description of `optax.warmup_cosine_decay_schedule`, or of something equal to it.
#   The rate rises in a line from 0 to `peak` in the first `round(num_train_steps * warmup)` steps,
#   and falls from there, in half a cosine, to 0 at step `num_train_steps`. (optax counts
#   `decay_steps` from the start of the run.)
# - `optimizer`: a description of `optax.sgd` that refers to this schedule: where `cfg.schedule` is
#   replaced by the description of another one, it uses that.
#
# The check changes some of the three numbers of the config it got, or replaces its schedule. Then
# it resolves `schedule` and `optimizer`, and compares their rates with float64 at several steps; in
# one case it sends the changed config through JSON first. Each call returns a config of its own.
# `optax_cfg` and `konfig` are those of this notebook.


# %% tags=["starter"] exercise="8.1"
def training_config():
    """A config whose schedule and optimizer follow its three numbers."""
    ### BEGIN SOLUTION
    cfg = konfig.ConfigDict({"num_train_steps": 100, "peak": 0.1, "warmup": 0.1})
    cfg.schedule = optax_cfg.warmup_cosine_decay_schedule(
        init_value=0.0,
        peak_value=cfg.ref.peak,
        warmup_steps=konfig.ref_fn(
            lambda total, share: round(total * share), cfg.ref.num_train_steps, cfg.ref.warmup
        ),
        decay_steps=cfg.ref.num_train_steps,
    )
    cfg.optimizer = optax_cfg.sgd(learning_rate=cfg.ref.schedule)
    return cfg
    ### END SOLUTION


# %% [markdown]
# ## 8.4 What a config refuses, and when
#
# A config that held a function or an array could not be saved. So it takes descriptions only, and
# refuses the rest at once, with the name of the field. ❌ The usual way to meet this error is an
# import outside `konfig.imports()`: the same line, with `optax` in place of `optax_cfg`.

# %% tags=["claim"]
cfg = konfig.ConfigDict()
error = show_error(setattr, cfg, "rate", jnp.ones(3), expect=ValueError, contains="cfg.rate")

resolved = {
    "a schedule": optax.constant_schedule(0.1),
    "a layer": nn.Dense(3),
    "NumPy's float32": np.float32(0.1),
    "a class": nn.Dense,
}
refused = {}
for name, thing in resolved.items():
    try:
        cfg.rate = thing
    except ValueError as error:
        refused[name] = "resolved python object" in str(error)
print("refused as well:", ", ".join(refused))
assert refused == dict.fromkeys(resolved, True) and "rate" not in cfg

# %% [markdown]
# ❌ The most likely object of all gets another error. An optax optimizer is a named tuple; a config
# takes tuples for lists, tries to build one from the elements, and what you read says nothing of
# configs:

# %% tags=["claim"]
show_error(setattr, cfg, "optimizer", optax.adam(1e-3), expect=TypeError, contains="__new__")
assert isinstance(optax.adam(1e-3), tuple)

# %% [markdown]
# Values are checked too, against the type that a field already has. An int may become a float, and
# not the other way round; a number is never made of a string. But beware of `True`, which Python
# takes for an int.

# %% tags=["claim"]
cfg = konfig.ConfigDict({"steps": 100, "rate": 0.1})
cfg.rate = 1
assert type(cfg.rate) is float
for value in (2.5, 3.0, "3"):
    show_error(setattr, cfg, "steps", value, expect=TypeError, contains="steps")
cfg.steps = True
print("steps =", cfg.steps)
assert cfg.steps is True

# %% [markdown]
# What is *not* checked are the names. ❌ A config takes any argument, for it does not know the
# function yet. A misspelt one is found when the config is resolved, which may be minutes later, on
# another machine. And a misspelt field of your own is never found: nobody asks for it.

# %% tags=["claim"]
cfg = konfig.ConfigDict({"optimizer": optax_cfg.adam(learning_rate=1e-3)})
cfg.optimizer.beta1 = 0.8
cfg.optimiser = optax_cfg.sgd(learning_rate=1.0)
print("accepted:", [name for name in cfg.optimizer if name != "__qualname__"], list(cfg))

try:
    konfig.resolve(cfg.optimizer)
except TypeError as error:
    said = re.search(r"adam\(\) got .*?'beta1'", str(error))[0]
print("resolving:", said)
assert said == "adam() got an unexpected keyword argument 'beta1'"
del cfg.optimizer["beta1"]
assert_equal(updates_of(konfig.resolve(cfg.optimizer), grads), updates_of(optax.adam(1e-3), grads))

# %% [markdown]
# ✅ Resolve a config in the process that writes it, before it is sent anywhere: it is the only test
# of its names.
#
# 💡 **A config checks kinds when you write it, and names when you resolve it. Resolve early.**

# %% [markdown]
# ## 8.5 Shapes that have names
#
# Broadcasting turns many mistakes into numbers. ❌ Targets of shape (4,) against predictions of
# shape (4, 1) give a loss that is a plain mean of 16 differences, 12 of which compare one example
# with another:

# %% tags=["claim"]
predictions, targets = jnp.arange(4.0)[:, None], jnp.arange(4.0)

silent = jnp.mean((predictions - targets) ** 2)
print(
    f"perfect predictions, a loss of {silent:.1f} over {(predictions - targets).size} differences"
)
assert (predictions - targets).size == 16 and silent == 2.5
assert np.count_nonzero(predictions - targets) == 12

# %% [markdown]
# ✅ Kauldron's functions say in their signatures what they take, and `@typechecked` holds them to
# it. `Float["*a"]` is an array of floats of any shape, and the next `*a` must be the same shape.
# The error says which argument, and what the axes were known to be:

# %% tags=["claim"]
l2 = kd.losses.L2(preds="preds", targets="targets")
error = show_error(l2, preds=predictions, targets=targets, expect=TypeCheckError)
print(str(error).splitlines()[-1].strip())
assert "targets" in str(error) and "{*a: (4, 1)}" in str(error)
assert l2(preds=predictions, targets=targets[:, None]) == 0

# %% [markdown]
# The same works for functions of your own. Give each axis a name: it is bound by the first argument
# that has it, checked in the others and in the result, and named by the error. Dtypes are checked
# along with it.


# %% tags=["claim"]
@typechecked
def scores(
    query: Float["batch query dim"], key: Float["batch key dim"]
) -> Float["batch query key"]:
    """Dot products of all queries with all keys."""
    return jnp.einsum("bqd,bkd->bqk", query, key)


query, key = jnp.ones((2, 3, 8)), jnp.ones((2, 5, 8))
assert scores(query, key).shape == (2, 3, 5)

error = show_error(scores, query, key[..., :4], expect=TypeCheckError)
print(str(error).splitlines()[-1].strip())
assert "{batch: 2, query: 3, dim: 8}" in str(error)
error = show_error(scores, query.astype(int), key, expect=TypeCheckError)
assert "has dtype 'int32'" in str(error)

# %% [markdown]
# Under `jax.jit` the check runs when the function is traced, once for each shape. Afterwards it
# costs nothing, for the compiled program has no Python in it.

# %% tags=["claim"]
plain = jax.jit(lambda q, k: jnp.einsum("bqd,bkd->bqk", q, k))
checked = jax.jit(lambda q, k: scores(q, k))
texts = [f.lower(query, key).compile().as_text().count(" = ") for f in (plain, checked)]
print("as many operations with the check as without:", texts[0] == texts[1])
assert texts[0] == texts[1]

# %% [markdown]
# 💡 **One name for each axis, `@typechecked` on each function at a border: then broadcasting asks
# you first.**

# %% [markdown]
# ## 8.6 A loss of your own
#
# Squared errors let one bad label rule the batch. The **log-cosh** loss is quadratic near zero
# and linear far out, and smooth in between: log(cosh(x)). ❌ As written, it is no loss at all
# beyond 89: cosh overflows in float32, though its logarithm is a small number. The slope, whose
# true value is tanh, is NaN then. Just before that it fails in silence: at 89 the value is right
# and the slope 0, for 1 / cosh(x) is so small that a CPU takes it for nothing.


# %% tags=["given"]
def naive_log_cosh(x):
    """log(cosh(x)) as one writes it."""
    return jnp.log(jnp.cosh(x))


def log_cosh(x):
    """The same, from |x| + log1p(exp(−2|x|)) − log 2, which never overflows."""
    return jnp.abs(x) + jnp.log1p(jnp.exp(-2 * jnp.abs(x))) - jnp.log(2.0)


def exact_log_cosh(x):
    """The same in float64."""
    x = np.abs(np.asarray(x, np.float64))
    return x + np.log1p(np.exp(-2 * x)) - np.log(2)


# %% tags=["claim"]
x = np.array([0.5, 88, 89, 90, -1000], np.float32)
both = [jax.vmap(jax.value_and_grad(fn))(x) for fn in (naive_log_cosh, log_cosh)]
print("      x      naive  slope     stable  slope")
for row in zip(x, *both[0], *both[1], strict=True):
    print("{:7} {:10.3f} {:6.3f} {:10.3f} {:6.3f}".format(*(float(each) for each in row)))

(naive, naive_slope), (stable, slope) = both
assert list(np.isinf(naive)) == [False, False, False, True, True]
assert np.all(np.isnan(naive_slope[3:]))
if jax.default_backend() == "cpu":
    assert naive_slope[2] == 0
    assert_close(naive[2], exact_log_cosh(x)[2], rtol=1e-5)
assert_close(stable, exact_log_cosh(x), rtol=1e-5)
assert_close(slope, np.tanh(x.astype(np.float64)), rtol=1e-6)

# %% [markdown]
# Where exactly does it overflow? cosh(x) is about exp(x)/2, so it holds out a little longer than
# `exp` (chapter 02): to 89.4, which is log of twice the largest float32.

# %% tags=["claim"]
edge = float(np.log(2) + np.log(np.float64(np.finfo(np.float32).max)))
print(f"float32 cosh overflows at {edge:.2f}")
assert round(edge, 1) == 89.4
assert np.isfinite(naive_log_cosh(jnp.float32(edge - 0.01)))
assert np.isinf(naive_log_cosh(jnp.float32(edge + 0.01)))

# %% tags=["figure"]
far = np.linspace(60, 120, 241)
fig, ax = figure("log(cosh(x)) ends at 89.4, its stable form does not", "error x", "loss")
naive = naive_log_cosh(np.float32(far))
ax.plot(far, log_cosh(np.float32(far)), color=COLORS.right)
ax.plot(far[np.isfinite(naive)], naive[np.isfinite(naive)], ":", lw=4, color=COLORS.wrong)
ax.annotate("stable", (108, 100), color=COLORS.right, fontweight="bold")
ax.annotate("naive: inf from here on", (90.5, 86), color=COLORS.wrong, fontweight="bold")
ax.plot([89.4], [89.4 - np.log(2)], "o", color=COLORS.wrong)
assert far[np.isfinite(naive)][-1] == 89.25 and np.all(np.isfinite(log_cosh(far)))
describe(fig, "The naive log-cosh ends at 89.4, where it becomes infinite; the stable one goes on.")

# %% [markdown]
# ✅ In Kauldron a loss is a frozen dataclass with one method. `get_values` returns one value for
# each element; the base class multiplies by a mask, takes the mean over what is selected, and
# applies a weight. Fields of type `Key` say where the arguments come from (§8.8); here we pass them
# ourselves.


# %% tags=["given"]
@dataclasses.dataclass(frozen=True, kw_only=True)
class LogCosh(kd.losses.Loss):
    """Log-cosh of the error, over a scale below which errors count as small."""

    preds: kd.kontext.Key = kd.kontext.REQUIRED
    targets: kd.kontext.Key = kd.kontext.REQUIRED
    scale: float = 1.0

    @typechecked
    def get_values(self, preds: Float["*a"], targets: Float["*a"]) -> Float["*a"]:
        return self.scale * log_cosh((preds - targets) / self.scale)


# %% tags=["claim"]
rng = np.random.default_rng(0)
preds, targets = (rng.normal(0, 50, (6, 2)).astype(np.float32) for _ in range(2))
mask = np.ones((6, 1), np.float32)
mask[4:] = 0

exact = 2 * exact_log_cosh((preds.astype(np.float64) - targets) / 2)
loss = LogCosh(preds="p", targets="t", scale=2.0, weight=0.5)
assert_close(loss(preds=preds, targets=targets), 0.5 * np.mean(exact), rtol=1e-5)
unscaled = np.mean(exact_log_cosh(preds.astype(np.float64) - targets))
assert_close(LogCosh(preds="p", targets="t")(preds=preds, targets=targets), unscaled, rtol=1e-5)
masked = loss.get_state(preds=preds, targets=targets, mask=mask).compute()
assert_close(masked, 0.5 * np.mean(exact[:4]), rtol=1e-5)
print("weight, mean and mask as in float64")

# %% [markdown]
# ❌ A loss that takes the mean itself looks the same in every test without a mask. With one, there
# is nothing left to select from, and Kauldron says so. ❌ Worse is the sum over the outputs of each
# example: the mask still fits, and the mean, now over half as many values, is twice as large.


# %% tags=["claim"]
class MeanTooEarly(LogCosh):
    """The same, averaged before the base class can apply a mask."""

    def get_values(self, preds, targets):
        return jnp.mean(super().get_values(preds, targets))


class SumOfOutputs(LogCosh):
    """The same, summed over the outputs of each example."""

    def get_values(self, preds, targets):
        return jnp.sum(super().get_values(preds, targets), axis=-1, keepdims=True)


options = {"preds": "p", "targets": "t", "scale": 2.0, "weight": 0.5}
data = {"preds": preds, "targets": targets}
assert_close(MeanTooEarly(**options)(**data), loss(**data), rtol=1e-6)
show_error(MeanTooEarly(**options).get_state, **data, mask=mask, expect=ValueError)

summed = SumOfOutputs(**options).get_state(**data, mask=mask).compute()
assert_close(summed, 2 * masked, rtol=1e-5)
print(f"summed over outputs: {summed / masked:.1f} times the loss")

# %% [markdown]
# 💡 **A loss returns values, one an element, and leaves mean, mask and weight to its base class.**

# %% [markdown] exercise="8.2"
# The **focal loss** plays down what the model knows already. For a logit z and a label y of 0 or
# 1, let p be the probability that the model gives to the label: σ(z) for y = 1, 1 − σ(z) for y =
# 0. The loss is −(1 − p)^γ · log p.
#
# Complete `FocalLoss`. `get_values(logits, labels)` takes float32 logits and int32 labels of the
# same shape, whatever it is, and returns the loss of each element, in that shape.
#
# - Values and gradients (with respect to the logits) are finite and right for logits up to ±200
#   and any γ ≥ 0, also where γ is no integer.
# - Labels of another shape than the logits are refused with an error, before anything is computed.
# - Mask, mean and weight are the base class's business. The check calls `get_values`, and the loss
#   with a context, a mask and a weight of 2, under `jax.jit`.


# %% tags=["starter"] exercise="8.2"
@dataclasses.dataclass(frozen=True, kw_only=True)
class FocalLoss(kd.losses.Loss):
    """Cross-entropy of binary labels, times (1 − p) to the power gamma."""

    logits: kd.kontext.Key = kd.kontext.REQUIRED
    labels: kd.kontext.Key = kd.kontext.REQUIRED
    gamma: float = 2.0

    def get_values(self, logits, labels):
        ### BEGIN SOLUTION
        return self._values(logits, labels)

    @typechecked
    def _values(self, logits: Float["*a"], labels: Int["*a"]) -> Float["*a"]:
        u = jnp.where(labels == 1, logits, -logits)
        return -jnp.exp(self.gamma * jax.nn.log_sigmoid(-u)) * jax.nn.log_sigmoid(u)
        ### END SOLUTION


# %% [markdown]
# ## 8.7 A metric that can be merged
#
# A test set comes in batches, and its last batch is smaller. ❌ The mean of the batches' error
# rates is not the error rate, unless all batches are equal. Here the last one has 8 of 32 examples,
# and as many votes as the first:

# %% tags=["claim"]
first, last = np.zeros(24), np.ones(8)
first[:6], last[:] = 1, np.arange(8) < 6
wrong = np.concatenate([first, last])

of_rates = np.mean([np.mean(first), np.mean(last)])
of_all = np.mean(wrong)
print(f"mean of the rates {of_rates}, rate of all {of_all}: {int(wrong.sum())} of {wrong.size}")
assert (of_rates, of_all, wrong.sum(), wrong.size) == (0.5, 0.375, 12, 32)

# %% [markdown]
# ✅ A metric of Kauldron returns no number but a **state**: what has to be kept of a batch. States
# are merged, and the number is computed once, at the end. For a rate the state is two sums. Then
# merging is addition, and neither order nor split can matter.


# %% tags=["given"]
@dataclasses.dataclass(frozen=True, kw_only=True)
class ErrorRate(kd.metrics.Metric):
    """The share of examples whose largest score is not at the label."""

    scores: kd.kontext.Key = kd.kontext.REQUIRED
    labels: kd.kontext.Key = kd.kontext.REQUIRED

    @flax.struct.dataclass
    class State(kd.metrics.AutoState):
        """How many were wrong, of how many."""

        wrong: Int[""] = kd.metrics.sum_field()
        seen: Int[""] = kd.metrics.sum_field()

        def compute(self):
            return self.wrong / self.seen

    @typechecked
    def get_state(self, scores: Float["n classes"], labels: Int["n"]):
        wrong = jnp.argmax(scores, axis=-1) != labels
        return self.State(wrong=jnp.sum(wrong), seen=jnp.size(wrong))


# %% tags=["claim"]
rng = np.random.default_rng(1)
batch_scores = rng.standard_normal((32, 3)).astype(np.float32)
batch_labels = rng.integers(0, 3, 32)
exact = np.mean(np.argmax(batch_scores, axis=1) != batch_labels)
metric = ErrorRate(scores="s", labels="y")

for sizes in ([32], [24, 8], [1, 30, 1], [10, 10, 12]):
    cuts = np.cumsum(sizes)[:-1]
    parts = zip(np.split(batch_scores, cuts), np.split(batch_labels, cuts), strict=True)
    states = [metric.get_state(scores=s, labels=y) for s, y in parts]
    for order in (states, states[::-1]):
        merged = metric.empty()
        for state in order:
            merged = merged.merge(state)
        assert merged.compute() == exact
print(f"{exact} in every split and order")

again = ErrorRate(scores="s", labels="y")
assert metric == again and hash(metric) == hash(again)
print("two metrics of the same fields are equal, and have the same hash")

# %% [markdown]
# A frozen dataclass equals every other one with the same fields, and has its hash.
#
# `metric.empty()` is the state of nothing, which a loop starts with. Fields made with
# `concat_field` keep the values themselves, for metrics that need all of them at once, such as the
# area under a curve; their states grow with the data.
#
# Not every number is made of sums that behave. ❌ The mean of squares, minus the square of the
# mean, is the variance on paper. In float32 it is the difference of two large numbers of seven
# digits. For values near 10,000 with a spread of 1, nothing is left of it:

# %% tags=["claim"]
values = (10_000 + np.random.default_rng(2).standard_normal(1024)).astype(np.float32)
on_paper = jnp.mean(jnp.square(values)) - jnp.square(jnp.mean(values))
from_the_mean = jnp.mean(jnp.square(values - jnp.mean(values)))
exact = np.var(values.astype(np.float64))

digits = np.spacing(np.float32(10_000**2))
print(f"the squares are known to {digits:.0f}, the variance is {exact:.1f}")
print(f"on paper it is off by more than a half: {abs(on_paper / exact - 1) > 0.5}")
assert digits == 8 and round(exact) == 1
assert abs(on_paper / exact - 1) > 0.5
assert_close(from_the_mean, exact, rtol=1e-3)

# %% [markdown]
# 💡 **Keep what can be added up, merge, and divide last. If it can't be added up safely, keep
# something that can be moved.**

# %% [markdown] exercise="8.3"
# Complete `Spread`, a metric for the standard deviation of all values that it has seen (divided by
# their number, as `np.std` does).
#
# - `get_state(values, mask)` gets a float32 array and a mask of the same shape, float32 zeros and
#   ones, or no mask. It runs under `jax.jit`. What is masked out may be anything, NaN and infinity
#   included; all of it may be masked out.
# - States merge in any order and any grouping, with the same result; `empty()` changes nothing.
# - It keeps its precision for values near 10,000 with a spread of about 1 (to a percent).
# - However much was merged, a state has at most eight numbers in it.
# - `compute()` returns one number; 0 for nothing.
#
# `merge` and `compute` run outside of jit. The fields of the state are yours: `numbers` is a
# proposal, and `kd.metrics.State` or `kd.metrics.AutoState` are both fine as its base. (The empty
# state of an `AutoState` holds placeholders that only its own `merge` understands: who writes a
# `merge` writes `empty`, too.)


# %% tags=["starter"] exercise="8.3"
@dataclasses.dataclass(frozen=True, kw_only=True)
class Spread(kd.metrics.Metric):
    """The standard deviation of all values seen."""

    values: kd.kontext.Key = kd.kontext.REQUIRED
    mask: kd.kontext.Key | None = None

    @flax.struct.dataclass
    class State(kd.metrics.State):
        numbers: jax.Array

        @classmethod
        def empty(cls):
            ### BEGIN SOLUTION
            return cls(numbers=np.zeros(3, np.float32))  # count, mean, squared distances from it
            ### END SOLUTION

        def merge(self, other):
            ### BEGIN SOLUTION
            (n, mean, squares), (m, other_mean, other_squares) = map(
                np.asarray, (self.numbers, other.numbers)
            )
            share, gap = m / np.maximum(n + m, 1), other_mean - mean
            squares = squares + other_squares + gap**2 * n * share
            return type(self)(numbers=np.stack([n + m, mean + gap * share, squares]))
            ### END SOLUTION

        def compute(self):
            ### BEGIN SOLUTION
            n, _, squares = np.asarray(self.numbers)
            return np.sqrt(squares / np.maximum(n, 1))
            ### END SOLUTION

    def get_state(self, values, mask=None):
        ### BEGIN SOLUTION
        mask = jnp.ones(values.shape, bool) if mask is None else mask > 0
        n = jnp.sum(mask, dtype=jnp.float32)
        mean = jnp.sum(jnp.where(mask, values, 0)) / jnp.maximum(n, 1)
        squares = jnp.sum(jnp.where(mask, values - mean, 0) ** 2)
        return self.State(numbers=jnp.stack([n, mean, squares]))
        ### END SOLUTION


# %% [markdown]
# ## 8.8 Who passes the arguments: key paths
#
# A loss wants predictions and targets; a step has a batch, parameters, outputs, gradients. Kauldron
# puts all of them into one nest, the **context**, and each loss and metric says with **key paths**
# what it takes from there. The loss above becomes part of a training without a line of code that
# passes anything:

# %% tags=["claim"]
context = {
    "step": 0,
    "batch": {"image": jnp.ones((6, 4)), "target": targets},
    "preds": {"value": preds},
    "layers": [{"kernel": jnp.ones((4, 2))}, {"kernel": jnp.ones((2, 2))}],
}
loss = LogCosh(preds="preds.value", targets="batch.target", scale=2.0)
assert loss(context=context) == loss(preds=preds, targets=targets)

paths = kd.kontext.flatten_with_path(context)
print(*paths)
assert all(kd.kontext.get_by_path(context, path) is leaf for path, leaf in paths.items())

# %% [markdown]
# A path is read as Python would: names after dots, places and quoted keys in brackets. A name is a
# key or an attribute, so paths go through dataclasses and shapes too.

# %% tags=["claim"]
examples = {
    "layers[-1].kernel.shape": (2, 2),
    "batch['target'].dtype": np.float32,
    "batch.image[0].shape[0]": 4,
}
for path, expected in examples.items():
    assert kd.kontext.get_by_path(context, path) == expected
    print(f"{path:25} {expected if isinstance(expected, (int, tuple)) else expected.__name__}")

# %% [markdown]
# ❌ Paths are strings, and strings have typing errors. What are you told? It depends on who looks.
# `get_by_path` names the part that is missing, and nothing of what was there. A loss looks up all
# its keys and proposes up to six paths for each that fails; here the one that was meant is among
# them.

# %% tags=["claim"]
show_error(kd.kontext.get_by_path, context, "batch.targets", expect=KeyError)
misspelt = LogCosh(preds="preds.valeu", targets="batch.target")
error = show_error(misspelt, context=context, expect=KeyError, lines=3)

proposed = re.findall(r"^  '(\S+)'$", str(error.args[0]), re.MULTILINE)[1:]
print("proposed:", *proposed)
assert "preds.value" in proposed and len(proposed) <= 6
assert len(paths) > len(proposed), "not all that there is"

# %% [markdown]
# ❌ Two traps have nothing to do with spelling. Every loss also looks for `step`, for its weight
# may be a schedule; a context without one is refused. And dicts have attributes: their methods. A
# path of a single name is tried as an attribute *first*, so a key "values" or "items" at the top
# of the context is never found. Further down the key comes first, and the method where there is
# no key.

# %% tags=["claim"]
no_step = {name: part for name, part in context.items() if name != "step"}
error = show_error(loss, context=no_step, expect=KeyError, lines=3)
assert "'step'" in str(error.args[0])

shadowed = {"values": targets, "batch": {"values": targets}}
for path, is_method in (("values", True), ("batch.values", False), ("batch.items", True)):
    found = kd.kontext.get_by_path(shadowed, path)
    print(f"{path:13} leads to", "a method of dict" if callable(found) else "the key")
    assert callable(found) == is_method

# %% [markdown]
# ✅ Inside a Trainer the context is a dataclass with fixed fields (`batch`, `params`, `preds`,
# `interms`, `grads`, …), so only your own dicts are in danger. Before a run, print the paths that
# there are: `kd.kontext.flatten_with_path(context)`.
#
# 💡 **A key path is a promise about a nest. List the nest before you make it.**

# %% [markdown] exercise="8.4"
# Write a resolver whose errors help: `lookup(context, path)`.
#
# - A path starts with a name. Behind it come `.name`, `[3]`, `[-1]`, `['any key']` or `["any
#   key"]`, in any number and order; a name is an identifier, a quoted key any text without its
#   own quotation mark in it. Anything else, spaces outside of quotes included, raises
#   `ValueError`, and nothing in a path is ever executed.
# - On a mapping, a name or quoted key is a key, and nothing else: never a method of the mapping. On
#   any other object it is one of its own attributes, those in `vars(object)`. A number is a place
#   in a list, tuple or array, counted from the end where it is negative.
# - A value may be anything, also 0, False and None.
# - If a part is not there, raise `KeyError`. Its message contains the whole path, the part that is
#   missing, and what there was in its place: every key of the mapping, or every attribute in
#   `vars(object)`, or the length of the sequence. Numbers, strings and None have nothing in them.


# %% tags=["starter"] exercise="8.4"
def lookup(context, path):
    """What a path leads to. KeyError says what there was; ValueError: that is no path."""
    ### BEGIN SOLUTION
    part_form = (
        r"""\.?(?P<name>[^\W\d]\w*)|\[(?P<place>-?\d+)\]|\[(?P<mark>['"])(?P<key>.*?)(?P=mark)\]"""
    )
    at, parts = 0, []
    while at < len(path) or not parts:
        found = re.compile(part_form).match(path, at)
        dotted = found and found[0].startswith(".")
        if not found or (found["name"] and dotted == (at == 0)) or (at == 0 and not found["name"]):
            raise ValueError(f"{path!r} is no path from character {at} on")
        parts.append(int(found["place"]) if found["place"] else found["name"] or found["key"])
        at = found.end()
    for part in parts:
        mapping, by_place = isinstance(context, Mapping), isinstance(part, int)
        there = list(context) if mapping else list(getattr(context, "__dict__", ()))
        if by_place and not mapping:
            size = len(context) if isinstance(context, list | tuple | np.ndarray) else 0
            there = [f"{size} places"] if size else []
            known = -size <= part < size
        else:
            known = part in there
        if not known:
            raise KeyError(
                f"{path}: no {part!r}; there is {', '.join(map(str, there)) or 'nothing'}"
            )
        context = context[part] if mapping or by_place else vars(context)[part]
    return context
    ### END SOLUTION


# %% [markdown]
# ## 8.9 A trainer
#
# Now the whole. The data is a function of two variables, in memory; the model one hidden layer. A
# `Key` field of the model says what it gets from the context. Kauldron keeps the output of every
# layer, under its name, in `interms`.

# %% tags=["given"]
points = np.random.default_rng(9).uniform(-1, 1, (300, 2)).astype(np.float32)
heights = np.sin(3 * points[:, :1]) * points[:, 1:]


@dataclasses.dataclass
class Examples:
    """Some of the points, one at a time: all that a data source has to have."""

    start: int
    stop: int

    def __len__(self):
        return self.stop - self.start

    def __getitem__(self, index):
        return {"x": points[self.start + index], "y": heights[self.start + index]}


class Net(nn.Module):
    """A hidden layer of tanh."""

    width: int
    x: kd.kontext.Key = "batch.x"

    @nn.compact
    def __call__(self, x):
        hidden = nn.tanh(nn.Dense(self.width, name="hidden")(x))
        return {"height": nn.Dense(1, name="head")(hidden)}


# %% [markdown]
# A Trainer writes its numbers through a **writer**: by default to TensorBoard, here into a list. It
# hands over states, so the numbers are computed there. The classes of this notebook have no module
# that a config could import; they live in `__main__`, and `here` names them.

# %% tags=["given"]
recorded = []
folders = tempfile.TemporaryDirectory()


class Recorder(kd.train.metric_writer.NoopWriter):
    """Appends (collection, step, numbers) to the list `recorded`."""

    def write_step_metrics(self, *, step, aux, **rest):
        numbers = aux.compute()
        recorded.append((self.collection, step, numbers.loss_values | numbers.metric_values))


def here(cls, **arguments):
    """The description of a call of one of this notebook's classes."""
    return konfig.ConfigDict({"__qualname__": f"__main__:{cls.__name__}", **arguments})


def source(start, stop, **options):
    """The description of a pipeline that reads Examples in batches of 32."""
    return kd_cfg.data.py.DataSource(
        data_source=here(Examples, start=start, stop=stop),
        batch_size=32,
        num_workers=0,
        **options,
    )


# %% tags=["given"]
def run_config():
    """A training of 40 steps on the first 256 points."""
    cfg = kd_cfg.train.Trainer(seed=0, num_train_steps=40)
    cfg.workdir = tempfile.mkdtemp(dir=folders.name)
    cfg.train_ds = source(0, 256, shuffle=True)
    cfg.model = here(Net, width=16)
    cfg.train_losses = {"fit": kd_cfg.losses.L2(preds="preds.height", targets="batch.y")}
    cfg.train_metrics = {"hidden": kd_cfg.metrics.Norm(tensor="interms.hidden.__call__[0]")}
    cfg.schedules = {
        "rate": optax_cfg.cosine_decay_schedule(0.1, decay_steps=cfg.ref.num_train_steps)
    }
    cfg.optimizer = optax_cfg.sgd(learning_rate=cfg.ref.schedules["rate"], momentum=0.9)
    cfg.writer, cfg.profiler = here(Recorder), None
    cfg.log_metrics_every = cfg.log_summaries_every = 1
    return cfg


def trained(cfg):
    """Resolves a config and trains: the trainer, the last state, and the numbers by collection."""
    recorded.clear()
    with quiet():
        trainer = konfig.resolve(cfg)
        state, _ = trainer.train()
    by_collection = {}
    for collection, step, numbers in recorded:
        by_collection.setdefault(collection, {})[step] = numbers
    return trainer, state, by_collection


# %% [markdown]
# The line to look at is the metric: one string, `"interms.hidden.__call__[0]"`, watches a layer
# deep inside the model, whose code knows nothing of it.

# %% tags=["claim"]
trainer, state, numbers = trained(run_config())

log = numbers["train"]
for step in (0, 20, 40):
    print(
        f"step {step:2}: loss {log[step]['losses/fit']:.3f}, norm {log[step]['metrics/hidden']:.2f}"
    )
assert log[40]["losses/fit"] < log[0]["losses/fit"] / 2
assert list(log) == list(range(41)) and int(state.step) == 41
assert state.params["hidden"]["kernel"].shape == (2, 16)

# %% [markdown]
# Two things in this log are worth a look. 40 steps were asked for, and 41 updates were made: step 0
# to step 40, the last one included. And the numbers of a step describe the parameters *before* its
# update.
#
# ✅ Is that all the trainer did? Here is the same training without it, in NumPy float64: the same
# start, the same batches, slopes by hand, momentum, the schedule. Each loss and each norm must come
# out.


# %% tags=["given"]
def train_by_hand(params, batches, rates):
    """Losses and norms of each step, and the last parameters, in float64."""
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    trace = jax.tree.map(np.zeros_like, p)
    losses, norms = [], []
    for batch, rate in zip(batches, rates, strict=True):
        x, y = (np.asarray(batch[name], np.float64) for name in ("x", "y"))
        before = x @ p["hidden"]["kernel"] + p["hidden"]["bias"]
        hidden = np.tanh(before)
        error = hidden @ p["head"]["kernel"] + p["head"]["bias"] - y
        losses.append(np.mean(error**2))
        norms.append(np.mean(np.linalg.norm(before, axis=-1)))
        d_out = 2 * error / error.size
        d_hidden = (d_out @ p["head"]["kernel"].T) * (1 - hidden**2)
        grads = {
            "head": {"bias": d_out.sum(0), "kernel": hidden.T @ d_out},
            "hidden": {"bias": d_hidden.sum(0), "kernel": x.T @ d_hidden},
        }
        trace = jax.tree.map(lambda t, g: 0.9 * t + g, trace, grads)
        p = jax.tree.map(lambda leaf, t, rate=rate: leaf - rate * t, p, trace)
    return np.array(losses), np.array(norms), p


# %% tags=["claim"]
with quiet():
    start = trainer.init_state().params
    batches = [batch for batch, _ in zip(trainer.train_ds, range(41), strict=False)]
epoch = np.concatenate([batch["x"] for batch in batches[:8]])
assert_equal(np.sort(epoch, axis=0), np.sort(points[:256], axis=0))
assert not np.array_equal(epoch, points[:256]), "shuffled"

rates = 0.1 * (1 + np.cos(np.pi * np.arange(41) / 40)) / 2
losses, norms, params = train_by_hand(start, batches, rates)

assert_close([log[step]["losses/fit"] for step in log], losses, rtol=1e-4)
assert_close([log[step]["metrics/hidden"] for step in log], norms, rtol=1e-4)
assert_close(state.params, params, rtol=1e-3, atol=1e-5)
print(f"{len(log)} losses and norms as in float64; 8 batches hold each example once")

# %% [markdown]
# Nothing was added, and nothing was left out. What you do not see here is what you would have to
# write yourself: devices and sharding, random streams for dropout, writers, checkpoints.
#
# 💡 **A trainer is a loop you did not write. Write it once by hand, and believe the library
# after.**

# %% [markdown]
# ## 8.10 A sweep is a loop over overrides
#
# Which rate is best? ❌ A script for each variant is five scripts. ✅ With configs, a variant is a
# dict of key paths and values, and a sweep is a loop. `kd.kontext.set_by_path` refuses a path whose
# parents are not there.


# %% tags=["given"]
def variant(overrides):
    """A fresh config with some values set by their paths."""
    cfg = run_config()
    for path, value in overrides.items():
        kd.kontext.set_by_path(cfg, path, value)
    return cfg


# %% tags=["claim"]
sweep = [{"schedules.rate[0]": rate} for rate in (0.01, 0.03, 0.1, 0.3)]
sweep += [{"schedules.rate[0]": 0.1, "optimizer.momentum": 0.0}]
curves = {}
for overrides in sweep:
    _, _, numbers = trained(variant(overrides))
    curves[tuple(overrides.values())] = [each["losses/fit"] for each in numbers["train"].values()]

print("rate  momentum  mean loss of the last 8 steps")
final = {values: float(np.mean(curve[-8:])) for values, curve in curves.items()}
for (rate, *rest), loss_value in final.items():
    print(f"{rate:<5} {rest[0] if rest else 0.9:<9} {loss_value:.3f}")
assert len(final) == 5 and final[0.3,] < final[0.1,] < final[0.03,] < final[0.01,]
assert_close(curves[0.1,], [log[step]["losses/fit"] for step in log], rtol=1e-5)

# %% tags=["figure"]
fig, ax = figure(
    "In 40 steps only the two largest rates learn, with momentum",
    "step",
    "loss (mean of 8 steps)",
)
colors = (COLORS.reference, COLORS.third, COLORS.right, COLORS.fourth, COLORS.wrong)
shifts = {(0.01,): 9, (0.1, 0.0): 1, (0.03,): -6}
for (values, curve), color in zip(curves.items(), colors, strict=True):
    smooth = np.convolve(curve, np.ones(8) / 8, mode="valid")
    (drawn,) = ax.plot(np.arange(7, 41), smooth, color=color)
    name = f"{values[0]}, no momentum" if len(values) > 1 else f"{values[0]}"
    label_line(drawn, name, shifts.get(values, 0))
assert max(final[0.3,], final[0.1,]) < 0.7 * min(final[0.03,], final[0.01,], final[0.1, 0.0])
describe(
    fig,
    "Losses of five variants: rates 0.01, 0.03, 0.1 and 0.3 with momentum end lower the larger "
    "they are; 0.1 without momentum stays above 0.1 with it.",
)

# %% [markdown]
# A misspelt path is refused, if it is not the last part that is misspelt (§8.4), and this error
# does say what there was:

# %% tags=["claim"]
try:
    variant({"scheduls.rate[0]": 0.1})
except KeyError as error:
    said = str(error)
print(re.search(r"Available keys: .{34}", said)[0], "…")
assert "Available keys" in said and "'schedules'" in said
assert variant({"optimizer.momentun": 0.5}).optimizer.momentun == 0.5

# %% [markdown]
# The variant with the values of `run_config` came out like the first run, step for step: a
# config is all there is to a run. ❌ Which is why a sweep must start from a fresh config each time.
# An override that is written into the base config is still there in the next variant:

# %% tags=["claim"]
shared = run_config()
tried = []
for overrides in ({"optimizer.momentum": 0.0}, {"schedules.rate[0]": 0.3}):
    for path, value in overrides.items():
        kd.kontext.set_by_path(shared, path, value)
    tried.append((shared.schedules.rate[0], shared.optimizer.momentum))
print("rate and momentum of the second variant:", tried[1])
assert tried[1] == (0.3, 0.0) and variant({"schedules.rate[0]": 0.3}).optimizer.momentum == 0.9

# %% [markdown]
# 💡 **A variant is a fresh config and a few overrides. Keep the overrides: they are the name of the
# run.**

# %% [markdown] exercise="8.5"
# On a command line a sweep is a list of strings. Write `override(cfg, assignments)` for a config of
# nested dicts and lists, as `json.loads(cfg.to_json())` gives it, and a list of strings such as
# `"model.width=64"`. It returns a new config; the one it was given stays as it is, at every depth.
#
# - A path is made of names with dots between them, and places in lists: `layers[1].width`,
#   `layers[-1].act`. Everything behind the first `=` is the value. Later assignments win.
# - A field that holds a string takes the text as it is. For all others the text is read as a Python
#   literal (a number, `True`, `None`, `[3, 4]`), and as a string where it is none. Nothing is
#   executed.
# - The new value must be of the type of the old one, or `TypeError`. An int is fine for a float,
#   and becomes one; a bool is no number. A field that holds None takes anything.
# - A path that is not there raises `KeyError`. Its message contains the path and, where a key of a
#   dict was not found, all the keys of that dict.


# %% tags=["starter"] exercise="8.5"
def override(cfg, assignments):
    """A copy of the config with the assignments made."""
    ### BEGIN SOLUTION
    import ast

    cfg = copy.deepcopy(cfg)
    for assignment in assignments:
        path, _, text = assignment.partition("=")
        steps = re.findall(r"([^.\[\]]+)|\[(-?\d+)\]", path)
        parent, old, last = None, cfg, None
        for name, place in steps:
            parent, last = old, int(place) if place else name
            try:
                old = parent[last] if isinstance(parent, dict | list) else {}[last]
            except (KeyError, IndexError, TypeError):
                there = ", ".join(parent) if isinstance(parent, dict) else "no such place"
                raise KeyError(f"{path}: no {last!r}; there is {there}") from None
        try:
            new = text if isinstance(old, str) else ast.literal_eval(text)
        except (ValueError, SyntaxError):
            new = text
        if type(old) is float and type(new) is int:
            new = float(new)
        if old is not None and type(new) is not type(old):
            raise TypeError(f"{path} is of type {type(old).__name__}: {text!r} is not")
        parent[last] = new
    return cfg
    ### END SOLUTION


# %% [markdown]
# ## 8.11 An evaluation that sees everything
#
# An evaluator runs the model on a dataset, merges the states of all batches, and writes the result.
# It needs a pipeline that ends. ❌ And one that does not lose the end: with 44 examples and batches
# of 32, the default pipeline yields one batch. The other 12 are dropped, for a training needs
# batches of one shape, and nothing says so:

# %% tags=["claim"]
ways = {"the default": True, "keep": False, "pad": "pad"}
seen = {}
for name, drop in ways.items():
    pipeline = source(256, 300, shuffle=False, seed=0, num_epochs=1, batch_drop_remainder=drop)
    with quiet():
        seen[name] = [len(batch["x"]) for batch in konfig.resolve(pipeline)]
    print(f"{name:12} batches of {seen[name]}: {sum(seen[name])} of 44 examples")
assert seen == {"the default": [32], "keep": [32, 12], "pad": [32, 32]}

# %% [markdown]
# ✅ `batch_drop_remainder=False` keeps the smaller batch: another shape, and so another
# compilation. `"pad"` fills it up with zeros, which count as examples unless a mask says
# otherwise (chapter 01). An `InMemoryPipeline`, the other way to hold data in memory, can only
# drop. (Outside of a Trainer, which has one to lend, a pipeline that shuffles also needs a seed
# of its own.)

# %% tags=["claim"]
examples = {"x": points[256:], "y": heights[256:]}
options = {"loader": lambda: examples, "batch_size": 32, "num_epochs": 1}
pipeline = kd.data.InMemoryPipeline(**options, seed=0, drop_remainder=False)
show_error(list, pipeline, expect=NotImplementedError)

dropping = dataclasses.replace(pipeline, drop_remainder=True)
assert sum(len(batch["x"]) for batch in dropping) == 32
try:
    next(iter(kd.data.InMemoryPipeline(**options, shuffle=True)))
except TypeError as error:
    said = str(error)
print("shuffled, outside of a Trainer, without a seed: refused")
assert "_FakeRootCfg" in said

# %% [markdown]
# With every example seen, the merged loss is the loss of the test set, however it was cut. We hold
# it against float64 on all 44 at once, and against the mean of the two batches' losses, which is
# something else.

# %% tags=["claim"]
cfg = run_config()
cfg.evals = {
    "test": kd_cfg.evals.Evaluator(
        run=kd_cfg.evals.EveryNSteps(20),
        ds=source(256, 300, shuffle=False, num_epochs=1, batch_drop_remainder=False),
    )
}
with quiet():
    evaluator = konfig.resolve(cfg).evals["test"]
    merged = evaluator.evaluate(state, step=41).compute().loss_values["losses/fit"]


def squared_errors(x, y):
    """The squared errors of the trained network in float64."""
    p = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), state.params)
    hidden = np.tanh(x @ p["hidden"]["kernel"] + p["hidden"]["bias"])
    return (hidden @ p["head"]["kernel"] + p["head"]["bias"] - y) ** 2


of_all = squared_errors(points[256:], heights[256:])
of_batches = (np.mean(of_all[:32]) + np.mean(of_all[32:])) / 2
assert_close(merged, np.mean(of_all), rtol=1e-4)
off = abs(of_batches / np.mean(of_all) - 1)
print(f"merged {merged:.4f}; the mean of the batches' means is off by more than 2 %: {off > 0.02}")
assert off > 0.02

# %% [markdown]
# 💡 **Count the examples that an evaluation saw. A loss over most of the test set looks like a loss
# over the test set.**

# %% [markdown]
# ## 8.12 Checkpoint and resume
#
# Machines stop. A checkpointer saves the state every so many steps; started again with the same
# working directory, the trainer goes on from the last one. Is the resumed run the run that would
# have been? We let one training go through, take its last checkpoint away as if the machine had
# stopped between steps 20 and 40, and start it again.


# %% tags=["given"]
def load():
    """All training examples at once, for an InMemoryPipeline."""
    return {"x": points[:256], "y": heights[:256]}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Sum(kd.metrics.Metric):
    """The sum of an array: one number that tells batches apart."""

    of: kd.kontext.Key = kd.kontext.REQUIRED

    @flax.struct.dataclass
    class State(kd.metrics.AutoState):
        """The sum so far."""

        total: Float[""] = kd.metrics.sum_field()

        def compute(self):
            return self.total

    def get_state(self, of):
        return self.State(total=jnp.sum(of))


# %% tags=["given"]


def checkpointed(train_ds):
    """A config that saves every 20 steps, and writes down which batch each step saw."""
    cfg = run_config()
    cfg.train_ds = train_ds
    cfg.train_metrics = {"batch": here(Sum, of="batch.x")}
    cfg.checkpointer = kd_cfg.ckpts.Checkpointer(save_interval_steps=20)
    return cfg


def interrupted(cfg):
    """Trains; loses the last checkpoint; trains again. Both states, and both logs."""
    trainer, whole, whole_log = trained(cfg)
    assert list(trainer.checkpointer.all_steps) == [0, 20, 40]
    shutil.rmtree(os.path.join(cfg.workdir, "checkpoints", "ckpt_40"))
    _, resumed, resumed_log = trained(cfg)
    return whole, resumed, whole_log["train"], resumed_log["train"]


def farthest(a, b):
    """The largest difference of any parameter."""
    pairs = zip(jax.tree.leaves(a.params), jax.tree.leaves(b.params), strict=True)
    return max(float(np.max(np.abs(x - y))) for x, y in pairs)


# %% [markdown]
# ❌ First with an `InMemoryPipeline`, the obvious choice for data in memory. The resumed run
# starts at step 20, as it should, and ends elsewhere. Our metric, which tells batches apart,
# shows why: from step 20 on, the resumed run saw the batches of steps 0, 1, 2, … once more. This
# pipeline has no memory, so the checkpoint has none of it, and the data starts anew.

# %% tags=["claim"]
in_memory = kd_cfg.data.InMemoryPipeline(
    loader=konfig.ConfigDict({"__const__": f"__main__:{load.__name__}"}),
    batch_size=32,
    shuffle=True,
)
whole, resumed, memory_log, memory_again = interrupted(checkpointed(in_memory))

assert list(memory_again) == list(range(20, 41))
apart = farthest(whole, resumed)
print(
    f"resumed at step {min(memory_again)}; the parameters are further apart than 0.001:",
    apart > 1e-3,
)
assert apart == farthest(resumed, whole) > 1e-3
assert memory_again[20]["losses/fit"] != memory_log[20]["losses/fit"]
for step in range(21):
    assert memory_again[20 + step]["metrics/batch"] == memory_log[step]["metrics/batch"]
print("its steps 20 to 40 saw the batches of steps 0 to 20")

# %% [markdown]
# For a run that is stopped often that is no small matter. Each time it goes back to the first batch
# of the first epoch; examples late in the shuffled order may never be seen.
#
# ✅ The other pipeline, `kd.data.py.DataSource`, is built on PyGrain, whose iterators know where
# they are. Kauldron saves that beside the parameters. Now the two runs are the same, to the last
# bit:

# %% tags=["claim"]
cfg = checkpointed(source(0, 256, shuffle=True))
whole, resumed, grain_log, grain_again = interrupted(cfg)

print("parameters apart by:", farthest(whole, resumed))
assert farthest(whole, resumed) == 0
for step in grain_again:
    assert grain_again[step]["metrics/batch"] == grain_log[step]["metrics/batch"]
    assert grain_again[step]["losses/fit"] == grain_log[step]["losses/fit"]

# %% tags=["figure"]
fig, ax = figure(
    "Resumed without its place in the data, a run starts over",
    "step",
    "sum of the batch (tells batches apart)",
    size=(6.8, 3.6),
)
ax.plot([memory_log[step]["metrics/batch"] for step in range(41)], color=COLORS.reference)
ax.plot(
    range(20, 41),
    [memory_again[step]["metrics/batch"] for step in range(20, 41)],
    color=COLORS.wrong,
)
ax.axvline(20, color=COLORS.ink, lw=1, ls=":")
ax.set_ylim(top=14)
ax.annotate("never stopped", (1, 12.5), color=COLORS.reference, fontweight="bold")
ax.annotate("resumed: steps 0 to 20 again", (20.7, 12.5), color=COLORS.wrong, fontweight="bold")
assert memory_again[21]["metrics/batch"] == memory_log[1]["metrics/batch"]
describe(
    fig,
    "The sum of each step's batch in a run with an in-memory pipeline. From step 20 on, the "
    "resumed run repeats the values of steps 0 to 20.",
)

# %% [markdown]
# One more number. `num_train_steps` was 40, the checkpoints are called 0, 20 and 40, and 41 updates
# were made. The resumed run began with the loss that step 20 had *before* its update: a checkpoint
# is saved before the step of its number. So the last one holds 40 updates, the state that
# `train()` returns has 41, and no file has the last one.

# %% tags=["claim"]
print(
    "updates in the returned state:", int(whole.step), "after the last checkpoint,", max(grain_log)
)
assert int(whole.step) == int(resumed.step) == 41 and max(grain_log) == 40
assert min(grain_again) == 20
assert grain_again[20]["losses/fit"] == grain_log[20]["losses/fit"]

# %% [markdown]
# And a warning. A trainer resumes whenever its working directory has checkpoints, without being
# asked, whatever the config says by then. A new idea in an old directory is not a new run:

# %% tags=["claim"]
cfg.optimizer.momentum, cfg.num_train_steps = 0.5, 44
_, _, new_idea = trained(cfg)
print("another momentum, 44 steps; the steps that were taken:", *new_idea["train"])
assert list(new_idea["train"]) == [40, 41, 42, 43, 44]

# %% [markdown]
# 💡 **A run is resumed exactly if everything that moves is in the checkpoint: parameters,
# optimizer, step, and the place in the data.**

# %% [markdown]
# ## 8.13 What to keep
#
# 💡 **A config describes, `resolve` makes. Write each number once, refer to it with `cfg.ref`, and
# resolve before you send.**
#
# 💡 **Return what can be merged, and divide at the end**: values from a loss, states from a metric,
# and count what an evaluation saw.
#
# 💡 **Hold a library against a few lines of your own before you trust it with a week of compute.**
#
# ### 🧪 Quiz
#
# Put a letter in place of the dots and run the cell. Most answers are measured on your machine.

# %% tags=["quiz"] question="8.a"

# %% tags=["quiz"] question="8.b"

# %% tags=["quiz"] question="8.c"

# %% tags=["quiz"] question="8.d"

# %% tags=["quiz"] question="8.e"

# %% tags=["quiz"] question="8.f"

# %% tags=["quiz"] question="8.g"

# %% tags=["quiz"] question="8.h"

# %% [markdown]
# ### Cheat sheet
#
# | to | write |
# |---|---|
# | describe a call | `with konfig.imports(): import optax as optax_cfg`, `optax_cfg.adam(1e-3)` |
# | describe a class of a notebook | `konfig.ConfigDict({"__qualname__": "__main__:Net"})` |
# | describe a function itself, not its call | `konfig.ConfigDict({"__const__": "__main__:load"})` |
# | make what is described | `konfig.resolve(cfg)` |
# | refer to a number | `cfg.ref.num_train_steps`, `konfig.ref_fn(fn, cfg.ref.a, cfg.ref.b)` |
# | save, load | `cfg.to_json()`, `konfig.ConfigDict(json.loads(text))` (values, no references) |
# | copy with references | `copy.deepcopy(cfg)` |
# | set by path | `kd.kontext.set_by_path(cfg, "optimizer.momentum", 0.0)` |
# | list what there is | `kd.kontext.flatten_with_path(context)` |
# | check shapes | `@typechecked`, `Float["batch dim"]`, `Int["*b 1"]` of `kauldron.ktyping` |
# | write a loss | subclass `kd.losses.Loss`: `Key` fields and `get_values` |
# | write a metric | subclass `kd.metrics.Metric`: `Key` fields, a `State`, `get_state` |
# | fields of an `AutoState` | `kd.metrics.sum_field()`, `max_field()`, `concat_field()` |
# | watch a layer | `kd.metrics.Norm(tensor="interms.hidden.__call__[0]")` |
# | see every example once | `num_epochs=1, batch_drop_remainder=False` |
# | save and resume | `kd.ckpts.Checkpointer(save_interval_steps=100)`, the same `workdir` |
# | resume exactly | a pipeline of `kd.data.py` |
