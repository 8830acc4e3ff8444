"""Right and wrong answers to the exercises of chapter 10; parsed, never imported."""
# ruff: noqa


# %% 10.1 right: NumPy splits, and the padding is shuffled with the rest
def split(key, labels, held_out):
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
    test = np.concatenate(
        [
            rng.choice(np.flatnonzero(labels == c), held_out, replace=False)
            for c in np.unique(labels)
        ]
    )
    return np.setdiff1d(np.arange(len(labels)), test), test


def batches(key, x, labels, batch_size):
    steps = (len(x) + batch_size - 1) // batch_size
    total = steps * batch_size
    places = jax.random.permutation(key, total).reshape(steps, batch_size)
    mask = places < len(x)
    places = jnp.where(mask, places, 0)
    return jnp.where(mask[..., None], x[places], 0), jnp.where(mask, labels[places], -1), mask


# %% 10.1 right: a permutation for each class; the rest is appended
def split(key, labels, held_out):
    train, test = [], []
    for c in np.unique(labels):
        members = np.flatnonzero(labels == c)
        order = np.array(jax.random.permutation(jax.random.fold_in(key, int(c)), len(members)))
        test += members[order[:held_out]].tolist()
        train += members[order[held_out:]].tolist()
    return np.array(train), np.array(test)


@partial(jax.jit, static_argnums=3)
def batches(key, x, labels, batch_size):
    n = x.shape[0]
    rest = -n % batch_size
    order = jnp.argsort(jax.random.uniform(key, (n,)))
    x = jnp.concatenate([x[order], jnp.zeros((rest, *x.shape[1:]), x.dtype)])
    labels = jnp.concatenate([labels[order], jnp.full(rest, -1, labels.dtype)])
    mask = jnp.concatenate([jnp.ones(n, bool), jnp.zeros(rest, bool)])
    cut = lambda a: a.reshape(-1, batch_size, *a.shape[1:])
    return cut(x), cut(labels), cut(mask)


# %% 10.1 wrong: one class can lose more than another
# A plain permutation, cut in two: how many of each class are held out is left to chance. Draw inside
# each class.
# see: 10.2
def split(key, labels, held_out):
    order = np.array(jax.random.permutation(key, len(labels)))
    cut = held_out * len(np.unique(labels))
    return order[cut:], order[:cut]


def batches(key, x, labels, batch_size):
    steps = -(-len(x) // batch_size)
    order = jax.random.permutation(key, len(x))
    rest = (0, steps * batch_size - len(x))
    places = jnp.pad(order, rest).reshape(steps, batch_size)
    mask = jnp.pad(jnp.ones(len(x), bool), rest).reshape(places.shape)
    return jnp.where(mask[..., None], x[places], 0), jnp.where(mask, labels[places], -1), mask


# %% 10.1 wrong: holds out the first of each class
# The first ones of each class are held out whatever the key is. If the file was in any order, they are
# no sample of it.
# see: 10.2
def split(key, labels, held_out):
    test = np.concatenate([np.flatnonzero(labels == c)[:held_out] for c in np.unique(labels)])
    return np.setdiff1d(np.arange(len(labels)), test), test


def batches(key, x, labels, batch_size):
    steps = -(-len(x) // batch_size)
    order = jax.random.permutation(key, len(x))
    rest = (0, steps * batch_size - len(x))
    places = jnp.pad(order, rest).reshape(steps, batch_size)
    mask = jnp.pad(jnp.ones(len(x), bool), rest).reshape(places.shape)
    return jnp.where(mask[..., None], x[places], 0), jnp.where(mask, labels[places], -1), mask


# %% 10.1 wrong: one key for the draws of all classes
# The same key gives the same permutation, so two classes of equal size hold out the same places. Fold
# the class into the key.
# see: 10.2
def split(key, labels, held_out):
    train, test = [], []
    for c in np.unique(labels):
        members = np.flatnonzero(labels == c)
        order = np.array(jax.random.permutation(key, len(members)))
        test.append(members[order[:held_out]])
        train.append(members[order[held_out:]])
    return np.concatenate(train), np.concatenate(test)


def batches(key, x, labels, batch_size):
    steps = -(-len(x) // batch_size)
    order = jax.random.permutation(key, len(x))
    rest = (0, steps * batch_size - len(x))
    places = jnp.pad(order, rest).reshape(steps, batch_size)
    mask = jnp.pad(jnp.ones(len(x), bool), rest).reshape(places.shape)
    return jnp.where(mask[..., None], x[places], 0), jnp.where(mask, labels[places], -1), mask


# %% 10.1 wrong: holds out a window of each class
# The window begins at a random place, but what is in it are neighbours. In a file that is in any order
# they are no sample. Draw each example by itself.
# see: 10.2
def split(key, labels, held_out):
    test = []
    for c in np.unique(labels):
        members = np.flatnonzero(labels == c)
        last = len(members) - held_out + 1
        start = int(jax.random.randint(jax.random.fold_in(key, int(c)), (), 0, last))
        test.append(members[start : start + held_out])
    test = np.concatenate(test)
    return np.setdiff1d(np.arange(len(labels)), test), test


def batches(key, x, labels, batch_size):
    steps = -(-len(x) // batch_size)
    order = jax.random.permutation(key, len(x))
    rest = (0, steps * batch_size - len(x))
    places = jnp.pad(order, rest).reshape(steps, batch_size)
    mask = jnp.pad(jnp.ones(len(x), bool), rest).reshape(places.shape)
    return jnp.where(mask[..., None], x[places], 0), jnp.where(mask, labels[places], -1), mask


# %% 10.1 wrong: masks in place of indices
# The task asks for the indices of the two sides, not for which examples are on them. `np.flatnonzero`
# makes the one of the other.
# see: 10.2
def split(key, labels, held_out):
    order = np.array(jax.random.permutation(key, len(labels)))
    held = np.zeros(len(labels), bool)
    for c in np.unique(labels):
        held[order[labels[order] == c][:held_out]] = True
    return ~held, held


def batches(key, x, labels, batch_size):
    steps = -(-len(x) // batch_size)
    order = jax.random.permutation(key, len(x))
    rest = (0, steps * batch_size - len(x))
    places = jnp.pad(order, rest).reshape(steps, batch_size)
    mask = jnp.pad(jnp.ones(len(x), bool), rest).reshape(places.shape)
    return jnp.where(mask[..., None], x[places], 0), jnp.where(mask, labels[places], -1), mask


# %% 10.1 wrong: trains on the held-out examples too
# The training side is everything. The accuracy on the held-out side is then one on points that were
# trained on.
# see: 10.2
def split(key, labels, held_out):
    order = np.array(jax.random.permutation(key, len(labels)))
    by_class = [order[labels[order] == c] for c in np.unique(labels)]
    return np.arange(len(labels)), np.concatenate([each[:held_out] for each in by_class])


def batches(key, x, labels, batch_size):
    steps = -(-len(x) // batch_size)
    order = jax.random.permutation(key, len(x))
    rest = (0, steps * batch_size - len(x))
    places = jnp.pad(order, rest).reshape(steps, batch_size)
    mask = jnp.pad(jnp.ones(len(x), bool), rest).reshape(places.shape)
    return jnp.where(mask[..., None], x[places], 0), jnp.where(mask, labels[places], -1), mask


# %% 10.1 wrong: draws with replacement
# With replacement an example can be held out twice, and then fewer are held out than asked.
# see: 10.2
def split(key, labels, held_out):
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).tolist())
    test = np.concatenate(
        [rng.choice(np.flatnonzero(labels == c), held_out) for c in np.unique(labels)]
    )
    test[1] = test[0]
    return np.setdiff1d(np.arange(len(labels)), test), test


def batches(key, x, labels, batch_size):
    steps = -(-len(x) // batch_size)
    order = jax.random.permutation(key, len(x))
    rest = (0, steps * batch_size - len(x))
    places = jnp.pad(order, rest).reshape(steps, batch_size)
    mask = jnp.pad(jnp.ones(len(x), bool), rest).reshape(places.shape)
    return jnp.where(mask[..., None], x[places], 0), jnp.where(mask, labels[places], -1), mask


# %% 10.1 wrong: drops the rest
# What does not fill a batch is left out. With a new order in each epoch every example gets its turn, but
# no epoch sees all of them. Pad the last batch.
# see: 10.3
def split(key, labels, held_out):
    order = np.array(jax.random.permutation(key, len(labels)))
    by_class = [order[labels[order] == c] for c in np.unique(labels)]
    cut = [np.concatenate([e[s] for e in by_class]) for s in (np.s_[held_out:], np.s_[:held_out])]
    return cut[0], cut[1]


def batches(key, x, labels, batch_size):
    steps = len(x) // batch_size
    order = jax.random.permutation(key, len(x))[: steps * batch_size]
    places = order.reshape(steps, batch_size)
    return x[places], labels[places], jnp.ones(places.shape, bool)


# %% 10.1 wrong: fills up with examples from the front
# The last batch is filled with examples that were there already, and the mask calls them real: they count
# twice.
# see: 10.3
def split(key, labels, held_out):
    order = np.array(jax.random.permutation(key, len(labels)))
    by_class = [order[labels[order] == c] for c in np.unique(labels)]
    cut = [np.concatenate([e[s] for e in by_class]) for s in (np.s_[held_out:], np.s_[:held_out])]
    return cut[0], cut[1]


def batches(key, x, labels, batch_size):
    steps = -(-len(x) // batch_size)
    order = jax.random.permutation(key, len(x))
    places = jnp.resize(order, (steps, batch_size))
    return x[places], labels[places], jnp.ones(places.shape, bool)


# %% 10.1 wrong: fills up with the first example
# Padding an order of indices with zeros pads with example 0. The mask is right, but a loss that looks at
# labels before it masks meets a real label there. Put zeros and −1 where the mask is false.
# see: 10.3
def split(key, labels, held_out):
    order = np.array(jax.random.permutation(key, len(labels)))
    by_class = [order[labels[order] == c] for c in np.unique(labels)]
    cut = [np.concatenate([e[s] for e in by_class]) for s in (np.s_[held_out:], np.s_[:held_out])]
    return cut[0], cut[1]


def batches(key, x, labels, batch_size):
    steps = -(-len(x) // batch_size)
    order = jax.random.permutation(key, len(x))
    rest = (0, steps * batch_size - len(x))
    places = jnp.pad(order, rest).reshape(steps, batch_size)
    mask = jnp.pad(jnp.ones(len(x), bool), rest).reshape(places.shape)
    return x[places], labels[places], mask


# %% 10.1 wrong: always one batch more
# `n // batch_size + 1` adds a batch of nothing but padding when n is a multiple. It costs a step, and a
# step on nothing still moves a momentum.
# see: 10.3
def split(key, labels, held_out):
    order = np.array(jax.random.permutation(key, len(labels)))
    by_class = [order[labels[order] == c] for c in np.unique(labels)]
    cut = [np.concatenate([e[s] for e in by_class]) for s in (np.s_[held_out:], np.s_[:held_out])]
    return cut[0], cut[1]


def batches(key, x, labels, batch_size):
    steps = len(x) // batch_size + 1
    order = jax.random.permutation(key, len(x))
    rest = (0, steps * batch_size - len(x))
    places = jnp.pad(order, rest).reshape(steps, batch_size)
    mask = jnp.pad(jnp.ones(len(x), bool), rest).reshape(places.shape)
    return jnp.where(mask[..., None], x[places], 0), jnp.where(mask, labels[places], -1), mask


# %% 10.1 wrong: shuffles points and labels apart
# Two shuffles with two keys: every point gets the label of another. Draw one order, and take both by it.
# see: 10.3
def split(key, labels, held_out):
    order = np.array(jax.random.permutation(key, len(labels)))
    by_class = [order[labels[order] == c] for c in np.unique(labels)]
    cut = [np.concatenate([e[s] for e in by_class]) for s in (np.s_[held_out:], np.s_[:held_out])]
    return cut[0], cut[1]


def batches(key, x, labels, batch_size):
    steps = -(-len(x) // batch_size)
    for_x, for_labels = jax.random.split(key)
    x, labels = jax.random.permutation(for_x, x), jax.random.permutation(for_labels, labels)
    rest = (0, steps * batch_size - len(x))
    cut = lambda a: a.reshape(steps, batch_size, *a.shape[1:])
    mask = jnp.pad(jnp.ones(len(x), bool), rest)
    return (
        cut(jnp.pad(x, (rest, (0, 0)))),
        cut(jnp.pad(labels, rest, constant_values=-1)),
        cut(mask),
    )


# %% 10.1 wrong: shuffles the batches, not the examples
# The batches come in another order, but the same examples are together every time, as they lay in the
# data.
# see: 10.3
def split(key, labels, held_out):
    order = np.array(jax.random.permutation(key, len(labels)))
    by_class = [order[labels[order] == c] for c in np.unique(labels)]
    cut = [np.concatenate([e[s] for e in by_class]) for s in (np.s_[held_out:], np.s_[:held_out])]
    return cut[0], cut[1]


def batches(key, x, labels, batch_size):
    steps = -(-len(x) // batch_size)
    rest = (0, steps * batch_size - len(x))
    places = jnp.pad(jnp.arange(len(x)), rest).reshape(steps, batch_size)
    mask = jnp.pad(jnp.ones(len(x), bool), rest).reshape(places.shape)
    order = jax.random.permutation(key, steps)
    places, mask = places[order], mask[order]
    return jnp.where(mask[..., None], x[places], 0), jnp.where(mask, labels[places], -1), mask


# %% 10.1 wrong: turns the data like a ring
# The examples begin at another place, and neighbours stay together. Mixing takes a permutation.
# see: 10.3
def split(key, labels, held_out):
    order = np.array(jax.random.permutation(key, len(labels)))
    by_class = [order[labels[order] == c] for c in np.unique(labels)]
    cut = [np.concatenate([e[s] for e in by_class]) for s in (np.s_[held_out:], np.s_[:held_out])]
    return cut[0], cut[1]


def batches(key, x, labels, batch_size):
    steps = -(-len(x) // batch_size)
    order = (jnp.arange(len(x)) + jax.random.randint(key, (), 1, len(x))) % len(x)
    rest = (0, steps * batch_size - len(x))
    places = jnp.pad(order, rest).reshape(steps, batch_size)
    mask = jnp.pad(jnp.ones(len(x), bool), rest).reshape(places.shape)
    return jnp.where(mask[..., None], x[places], 0), jnp.where(mask, labels[places], -1), mask


# %% 10.1 wrong: a key of its own
# The order comes from a key made inside, so every epoch has the same one. Use the key that is passed.
# see: 10.3
def split(key, labels, held_out):
    order = np.array(jax.random.permutation(key, len(labels)))
    by_class = [order[labels[order] == c] for c in np.unique(labels)]
    cut = [np.concatenate([e[s] for e in by_class]) for s in (np.s_[held_out:], np.s_[:held_out])]
    return cut[0], cut[1]


def batches(key, x, labels, batch_size):
    steps = -(-len(x) // batch_size)
    order = jax.random.permutation(jax.random.key(0), len(x))
    rest = (0, steps * batch_size - len(x))
    places = jnp.pad(order, rest).reshape(steps, batch_size)
    mask = jnp.pad(jnp.ones(len(x), bool), rest).reshape(places.shape)
    return jnp.where(mask[..., None], x[places], 0), jnp.where(mask, labels[places], -1), mask


# %% 10.2 right: a class that flattens itself
@jax.tree_util.register_pytree_node_class
class Training:
    def __init__(self, params, ema, opt_state, step, key, recipe):
        self.params, self.ema, self.opt_state = params, ema, opt_state
        self.step, self.key, self.recipe = step, key, recipe

    def tree_flatten(self):
        return (self.params, self.ema, self.opt_state, self.step, self.key), self.recipe

    @classmethod
    def tree_unflatten(cls, recipe, children):
        return cls(*children, recipe)


def new_state(recipe, params, key):
    own = lambda: jax.tree.map(lambda p: jnp.array(p, dtype=p.dtype, copy=True), params)
    first = own()
    return Training(
        first,
        own(),
        recipe.optimizer().init(first),
        jnp.array(0, jnp.int32),
        jax.random.clone(key),
        recipe,
    )


# %% 10.2 right: one program makes it
@partial(
    jax.tree_util.register_dataclass,
    data_fields=["params", "ema", "opt_state", "step", "key"],
    meta_fields=["recipe"],
)
@dataclass
class RunState:
    params: Any
    ema: Any
    opt_state: Any
    step: Any
    key: Any
    recipe: Any


@partial(jax.jit, static_argnums=0)
def new_state(recipe, params, key):
    params = jax.tree.map(lambda p: jax.lax.convert_element_type(p, np.dtype(p.dtype)), params)
    return RunState(
        params, params, recipe.optimizer().init(params), jnp.zeros((), "int32"), key, recipe
    )


# %% 10.2 wrong: the average is the params
# `ema = params` is a second name for the same buffers, and a step can't write two results into one. Copy
# for each role.
# see: 10.4
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Run:
    params: Any
    ema: Any
    opt_state: Any
    step: Any
    key: Any
    recipe: Any = field(metadata={"static": True})


def new_state(recipe, params, key):
    params = jax.tree.map(lambda p: jnp.array(p, p.dtype), params)
    opt_state = recipe.optimizer().init(params)
    return Run(params, params, opt_state, jnp.zeros((), jnp.int32), jnp.copy(key), recipe)


# %% 10.2 wrong: takes over the caller's params
# The first donated step deletes the arrays that were passed in, and no second run can start from them.
# Copy them.
# see: 10.4
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Run:
    params: Any
    ema: Any
    opt_state: Any
    step: Any
    key: Any
    recipe: Any = field(metadata={"static": True})


def new_state(recipe, params, key):
    params = jax.tree.map(lambda p: jnp.asarray(p, p.dtype), params)
    ema = jax.tree.map(jnp.copy, params)
    opt_state = recipe.optimizer().init(params)
    return Run(params, ema, opt_state, jnp.zeros((), jnp.int32), jnp.copy(key), recipe)


# %% 10.2 wrong: takes over the caller's params, weak types and all
# `jnp.asarray` copies nothing: the first donated step deletes the arrays that were passed in. And a
# weakly typed one stays so, which makes another program of the second step.
# see: 10.4
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Run:
    params: Any
    ema: Any
    opt_state: Any
    step: Any
    key: Any
    recipe: Any = field(metadata={"static": True})


def new_state(recipe, params, key):
    params = jax.tree.map(jnp.asarray, params)
    ema = jax.tree.map(jnp.copy, params)
    opt_state = recipe.optimizer().init(params)
    return Run(params, ema, opt_state, jnp.zeros((), jnp.int32), jnp.copy(key), recipe)


# %% 10.2 wrong: takes over the caller's key
# A key is an array like others: it goes with the state that is donated, and the caller's next use of it
# fails. Copy the key too.
# see: 10.4
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Run:
    params: Any
    ema: Any
    opt_state: Any
    step: Any
    key: Any
    recipe: Any = field(metadata={"static": True})


def new_state(recipe, params, key):
    params = jax.tree.map(lambda p: jnp.array(p, p.dtype), params)
    ema = jax.tree.map(jnp.copy, params)
    opt_state = recipe.optimizer().init(params)
    return Run(params, ema, opt_state, jnp.zeros((), jnp.int32), key, recipe)


# %% 10.2 wrong: the optimizer is a static field
# An optimizer is made of functions, and functions compare by identity: each run compiles its own
# programs. Keep the recipe, and make the optimizer from it where it is used.
# see: 10.4
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Run:
    params: Any
    ema: Any
    opt_state: Any
    step: Any
    key: Any
    recipe: Any = field(metadata={"static": True})
    optimizer: Any = field(metadata={"static": True})


def new_state(recipe, params, key):
    params = jax.tree.map(lambda p: jnp.array(p, p.dtype), params)
    ema = jax.tree.map(jnp.copy, params)
    optimizer = recipe.optimizer()
    step, key = jnp.zeros((), jnp.int32), jnp.copy(key)
    return Run(params, ema, optimizer.init(params), step, key, recipe, optimizer)


# %% 10.2 wrong: the recipe is a field like any other
# A recipe is no array, so it can't be a leaf of what is passed to a jitted function. Declare the field
# static.
# see: 10.4
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Run:
    params: Any
    ema: Any
    opt_state: Any
    step: Any
    key: Any
    recipe: Any


def new_state(recipe, params, key):
    params = jax.tree.map(lambda p: jnp.array(p, p.dtype), params)
    ema = jax.tree.map(jnp.copy, params)
    opt_state = recipe.optimizer().init(params)
    return Run(params, ema, opt_state, jnp.zeros((), jnp.int32), jnp.copy(key), recipe)


# %% 10.2 wrong: the recipe's numbers are leaves
# Numbers that are leaves are traced: inside the step they are no Python numbers, and they would be donated
# and changed with everything else. A recipe does not change during a run.
# see: 10.4
from typing import NamedTuple


class _Numbers(NamedTuple):
    peak: Any


class Run(NamedTuple):
    params: Any
    ema: Any
    opt_state: Any
    step: Any
    key: Any
    recipe: Any


def new_state(recipe, params, key):
    params = jax.tree.map(lambda p: jnp.array(p, p.dtype), params)
    ema = jax.tree.map(jnp.copy, params)
    opt_state = recipe.optimizer().init(params)
    recipe = _Numbers(jnp.float32(recipe.peak))
    return Run(params, ema, opt_state, jnp.zeros((), jnp.int32), jnp.copy(key), recipe)


# %% 10.2 wrong: the recipe compares by identity
# Wrapped in an object without `__eq__` and `__hash__`, two equal recipes are two: a program for each run.
# Keep what compares by value as it is.
# see: 10.4
class _Wrapped:
    def __init__(self, recipe):
        self.__dict__.update(vars(recipe))


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Run:
    params: Any
    ema: Any
    opt_state: Any
    step: Any
    key: Any
    recipe: Any = field(metadata={"static": True})


def new_state(recipe, params, key):
    params = jax.tree.map(lambda p: jnp.array(p, p.dtype), params)
    ema = jax.tree.map(jnp.copy, params)
    opt_state = recipe.optimizer().init(params)
    wrapped = _Wrapped(recipe)
    return Run(params, ema, opt_state, jnp.zeros((), jnp.int32), jnp.copy(key), wrapped)


# %% 10.2 wrong: keeps the weak type
# `jnp.copy` of a weakly typed array is weakly typed, and what a step returns may not be: the second step
# is another program. Give each leaf its dtype outright.
# see: 10.4
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Run:
    params: Any
    ema: Any
    opt_state: Any
    step: Any
    key: Any
    recipe: Any = field(metadata={"static": True})


def new_state(recipe, params, key):
    params, ema = jax.tree.map(jnp.copy, params), jax.tree.map(jnp.copy, params)
    opt_state = recipe.optimizer().init(params)
    return Run(params, ema, opt_state, jnp.zeros((), jnp.int32), jnp.copy(key), recipe)


# %% 10.2 wrong: a step that is a Python number
# A Python 0 has no buffer, and comes back from the first step as an array of another type: the second step
# compiles again.
# see: 10.4
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Run:
    params: Any
    ema: Any
    opt_state: Any
    step: Any
    key: Any
    recipe: Any = field(metadata={"static": True})


def new_state(recipe, params, key):
    params = jax.tree.map(lambda p: jnp.array(p, p.dtype), params)
    ema = jax.tree.map(jnp.copy, params)
    opt_state = recipe.optimizer().init(params)
    return Run(params, ema, opt_state, 0, jnp.copy(key), recipe)


# %% 10.2 wrong: the average starts at zero
# The task asks for an average that starts at the params; one that starts at zero is too small until it has
# seen many steps.
# see: 10.4
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Run:
    params: Any
    ema: Any
    opt_state: Any
    step: Any
    key: Any
    recipe: Any = field(metadata={"static": True})


def new_state(recipe, params, key):
    params = jax.tree.map(lambda p: jnp.array(p, p.dtype), params)
    ema = jax.tree.map(jnp.zeros_like, params)
    opt_state = recipe.optimizer().init(params)
    return Run(params, ema, opt_state, jnp.zeros((), jnp.int32), jnp.copy(key), recipe)


# %% 10.3 right: one-hot labels, summed
def smoothed_loss(logits, labels, mask, smoothing):
    classes = logits.shape[-1]
    targets = (1 - smoothing) * jax.nn.one_hot(labels, classes) + smoothing / classes
    rows = -jnp.sum(targets * jax.nn.log_softmax(logits), axis=-1)
    return jnp.sum(rows * mask) / jnp.maximum(jnp.sum(mask), 1)


# %% 10.3 right: a mixture of two losses
@jax.jit
def smoothed_loss(logits, labels, mask, smoothing):
    total = jax.nn.logsumexp(logits, axis=1)
    own = logits[jnp.arange(logits.shape[0]), labels]
    rows = (1 - smoothing) * (total - own) + smoothing * (total - logits.mean(axis=1))
    return jnp.where(mask, rows, 0).sum() / jnp.where(mask.any(), mask.sum(), 1)


# %% 10.3 wrong: divides by all rows
# The padded rows are left out of the sum, but the denominator counts them: the loss is too small, and so is
# every step.
# see: 10.5
def smoothed_loss(logits, labels, mask, smoothing):
    targets = (1 - smoothing) * jax.nn.one_hot(labels, logits.shape[1])
    targets = targets + smoothing / logits.shape[1]
    rows = -jnp.sum(targets * jax.nn.log_softmax(logits), axis=-1)
    return jnp.mean(jnp.where(mask, rows, 0.0))


# %% 10.3 wrong: no mask
# A label of −1 is no class, but it raises nothing: the padded rows count, too.
# see: 10.5
def smoothed_loss(logits, labels, mask, smoothing):
    log_p = jax.nn.log_softmax(logits)
    own = jnp.take_along_axis(log_p, labels[:, None], axis=1)[:, 0]
    return -jnp.mean((1 - smoothing) * own + smoothing * log_p.mean(axis=1))


# %% 10.3 wrong: leaves the mask to the one-hot
# `one_hot(-1)` is a row of zeros, so without smoothing the padding adds nothing; with smoothing its targets
# are all smoothing/classes. Mask the rows.
# see: 10.5
def smoothed_loss(logits, labels, mask, smoothing):
    targets = (1 - smoothing) * jax.nn.one_hot(labels, logits.shape[1])
    targets = targets + smoothing / logits.shape[1]
    rows = -jnp.sum(targets * jax.nn.log_softmax(logits), axis=-1)
    return jnp.sum(rows) / jnp.maximum(jnp.sum(mask), 1)


# %% 10.3 wrong: the logarithm of a softmax
# The probability of a class far below the best one is 0 in float32, and its logarithm −∞. `log_softmax`
# never makes the detour.
# see: 10.5
def smoothed_loss(logits, labels, mask, smoothing):
    log_p = jnp.log(jax.nn.softmax(logits))
    targets = (1 - smoothing) * jax.nn.one_hot(labels, logits.shape[1])
    targets = targets + smoothing / logits.shape[1]
    rows = -jnp.sum(targets * log_p, axis=-1)
    return jnp.sum(jnp.where(mask, rows, 0.0)) / jnp.maximum(jnp.sum(mask), 1)


# %% 10.3 wrong: adds a small number before the logarithm
# log(p + 1e-7) is finite, and wrong: the loss can't exceed 16, and a row that is sure of the wrong class has
# no gradient to mend it.
# see: 10.5
def smoothed_loss(logits, labels, mask, smoothing):
    log_p = jnp.log(jax.nn.softmax(logits) + 1e-7)
    targets = (1 - smoothing) * jax.nn.one_hot(labels, logits.shape[1])
    targets = targets + smoothing / logits.shape[1]
    rows = -jnp.sum(targets * log_p, axis=-1)
    return jnp.sum(jnp.where(mask, rows, 0.0)) / jnp.maximum(jnp.sum(mask), 1)


# %% 10.3 wrong: a much smaller number before the logarithm
# log(p + 1e-12) is finite, and wrong: the loss can't exceed 28, and a row that is sure of the wrong class
# has no gradient to mend it.
# see: 10.5
def smoothed_loss(logits, labels, mask, smoothing):
    log_p = jnp.log(jax.nn.softmax(logits) + 1e-12)
    targets = (1 - smoothing) * jax.nn.one_hot(labels, logits.shape[1])
    targets = targets + smoothing / logits.shape[1]
    rows = -jnp.sum(targets * log_p, axis=-1)
    return jnp.sum(jnp.where(mask, rows, 0.0)) / jnp.maximum(jnp.sum(mask), 1)


# %% 10.3 wrong: the maximum of the whole batch
# One maximum for all rows saves only the row that has it: in a row far below it every exponential is 0, and
# the logarithm of their sum −∞. Take each row's own maximum: `axis=1, keepdims=True`.
# see: 10.5
def smoothed_loss(logits, labels, mask, smoothing):
    below = logits - logits.max()
    log_p = below - jnp.log(jnp.exp(below).sum(1, keepdims=True))
    targets = (1 - smoothing) * jax.nn.one_hot(labels, logits.shape[1])
    targets = targets + smoothing / logits.shape[1]
    rows = -jnp.sum(targets * log_p, axis=-1)
    return losses.masked_mean(rows, mask)


# %% 10.3 wrong: an `if` on the smoothing
# Under jit the smoothing is a tracer, and a Python `if` can't ask for its value. The formula holds for 0,
# too.
# see: 10.5
def smoothed_loss(logits, labels, mask, smoothing):
    targets = jax.nn.one_hot(labels, logits.shape[1])
    if smoothing > 0:
        targets = (1 - smoothing) * targets + smoothing / logits.shape[1]
    rows = -jnp.sum(targets * jax.nn.log_softmax(logits), axis=-1)
    return losses.masked_mean(rows, mask)


# %% 10.3 wrong: smooths over the other classes only
# The smoothing is shared by all classes, the label's own included; here the others get all of it.
# see: 10.5
def smoothed_loss(logits, labels, mask, smoothing):
    classes = logits.shape[1]
    onehot = jax.nn.one_hot(labels, classes)
    targets = (1 - smoothing) * onehot + smoothing * (1 - onehot) / (classes - 1)
    rows = -jnp.sum(targets * jax.nn.log_softmax(logits), axis=-1)
    return jnp.sum(jnp.where(mask, rows, 0.0)) / jnp.maximum(jnp.sum(mask), 1)


# %% 10.3 wrong: targets that sum to more than one
# `smoothing / classes` was added and nothing taken away: the targets are no probabilities any more.
# see: 10.5
def smoothed_loss(logits, labels, mask, smoothing):
    targets = jax.nn.one_hot(labels, logits.shape[1]) + smoothing / logits.shape[1]
    rows = -jnp.sum(targets * jax.nn.log_softmax(logits), axis=-1)
    return jnp.sum(jnp.where(mask, rows, 0.0)) / jnp.maximum(jnp.sum(mask), 1)


# %% 10.3 wrong: smooths the probabilities
# The labels are to be smoothed, not what the model says: −log of a mixed probability is another loss, and
# bounded.
# see: 10.5
def smoothed_loss(logits, labels, mask, smoothing):
    p = (1 - smoothing) * jax.nn.softmax(logits) + smoothing / logits.shape[1]
    own = jnp.take_along_axis(p, jnp.maximum(labels, 0)[:, None], axis=1)[:, 0]
    rows = -jnp.log(own)
    return jnp.sum(jnp.where(mask, rows, 0.0)) / jnp.maximum(jnp.sum(mask), 1)


# %% 10.3 wrong: divides by the count without a guard
# A batch of padding has a count of 0, and 0/0 is NaN, which one such batch brings into all parameters.
# see: 10.5
def smoothed_loss(logits, labels, mask, smoothing):
    targets = (1 - smoothing) * jax.nn.one_hot(labels, logits.shape[1])
    targets = targets + smoothing / logits.shape[1]
    rows = -jnp.sum(targets * jax.nn.log_softmax(logits), axis=-1)
    return jnp.sum(jnp.where(mask, rows, 0.0)) / jnp.sum(mask)


# %% 10.3 wrong: one `where` behind the division
# The value is 0, as it should be. But the gradient goes through the division that was not chosen, and 0
# times infinity is NaN. Make the denominator harmless before you divide.
# see: 10.5
def smoothed_loss(logits, labels, mask, smoothing):
    targets = (1 - smoothing) * jax.nn.one_hot(labels, logits.shape[1])
    targets = targets + smoothing / logits.shape[1]
    rows = -jnp.sum(targets * jax.nn.log_softmax(logits), axis=-1) * mask
    return jnp.where(mask.any(), rows.sum() / mask.sum(), 0.0)


# %% 10.3 wrong: the sum of the rows
# A sum grows with the number of real rows, and with it the step; a mean does not.
# see: 10.5
def smoothed_loss(logits, labels, mask, smoothing):
    targets = (1 - smoothing) * jax.nn.one_hot(labels, logits.shape[1])
    targets = targets + smoothing / logits.shape[1]
    rows = -jnp.sum(targets * jax.nn.log_softmax(logits), axis=-1)
    return jnp.sum(jnp.where(mask, rows, 0.0))


# %% 10.3 wrong: masks the logits
# Logits of zero are no absent row: it still has a loss of log(classes), which is added and divided.
# see: 10.5
def smoothed_loss(logits, labels, mask, smoothing):
    logits = jnp.where(mask[:, None], logits, 0.0)
    log_p = jax.nn.log_softmax(logits)
    own = jnp.take_along_axis(log_p, jnp.maximum(labels, 0)[:, None], axis=1)[:, 0]
    return -jnp.mean((1 - smoothing) * own + smoothing * log_p.mean(axis=1))


# %% 10.4 right: a loop over jitted steps
@partial(jax.jit, static_argnums=0, donate_argnums=1)
def _one_step(loss, state, x, labels, mask):
    optimizer = state.recipe.optimizer()
    value, grads = jax.value_and_grad(loss)(state.params, x, labels, mask)
    updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
    params = jax.tree.map(jnp.add, state.params, updates)
    ema = jax.tree.map(lambda e, p: e + 0.1 * (p - e), state.ema, params)
    new = replace(state, params=params, ema=ema, opt_state=opt_state, step=state.step + 1)
    return new, value


def run_epoch(loss, state, data):
    x, labels, mask = (np.asarray(each) for each in data)
    total = 0.0
    for batch in zip(x, labels, mask):
        state, value = _one_step(loss, state, *batch)
        total += float(value) * batch[2].sum()
    return state, total / mask.sum()


# %% 10.4 right: the loop unrolled in one program
@partial(jax.jit, static_argnames="loss", donate_argnames="state")
def run_epoch(loss, state, data):
    optimizer = state.recipe.optimizer()
    params, ema, opt_state = state.params, state.ema, state.opt_state
    losses, counts = [], []
    for batch in zip(*data):
        value, grads = jax.value_and_grad(loss)(params, *batch)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        params = jax.tree.map(lambda p, u: p + u, params, updates)
        ema = jax.tree.map(lambda e, p: 0.9 * e + 0.1 * p, ema, params)
        losses.append(value)
        counts.append(jnp.sum(batch[2]))
    mean = jnp.average(jnp.stack(losses), weights=jnp.stack(counts))
    step = state.step + len(losses)
    return replace(state, params=params, ema=ema, opt_state=opt_state, step=step), mean


# %% 10.4 right: a carry of its own
@partial(jax.jit, static_argnums=0, donate_argnums=1)
def run_epoch(loss, state, data):
    update = state.recipe.optimizer().update

    def one(carry, batch):
        (params, ema, opt_state), total = carry
        value, grads = jax.value_and_grad(loss)(params, *batch)
        updates, opt_state = update(grads, opt_state, params)
        params = jax.tree.map(jnp.add, params, updates)
        ema = jax.tree.map(lambda e, p: 0.9 * e + 0.1 * p, ema, params)
        return ((params, ema, opt_state), total + value * jnp.sum(batch[2])), None

    start = (state.params, state.ema, state.opt_state), jnp.zeros(())
    ((params, ema, opt_state), total), _ = jax.lax.scan(one, start, data)
    step = state.step + data[0].shape[0]
    new = replace(state, params=params, ema=ema, opt_state=opt_state, step=step)
    return new, total / jnp.sum(data[2])


# %% 10.4 wrong: the mean of the batches' means
# Three means of different weight: the last batch has fewer rows, and each of them counts more than one
# of the others. Weight each batch's mean by its real rows.
# see: 10.6
@partial(jax.jit, static_argnums=0, donate_argnums=1)
def run_epoch(loss, state, data):
    optimizer = state.recipe.optimizer()

    def one(state, batch):
        value, grads = jax.value_and_grad(loss)(state.params, *batch)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = apply_updates(state.params, updates)
        ema = jax.tree.map(lambda e, p: 0.9 * e + 0.1 * p, state.ema, params)
        new = replace(state, params=params, ema=ema, opt_state=opt_state, step=state.step + 1)
        return new, (value, jnp.sum(batch[2]))

    state, (losses, counts) = jax.lax.scan(one, state, data)
    return state, jnp.mean(losses)


# %% 10.4 wrong: the loss of the last batch
# What comes back is the loss of one batch, the last. That is noise: the epoch's loss is the mean over all
# rows.
# see: 10.6
@partial(jax.jit, static_argnums=0, donate_argnums=1)
def run_epoch(loss, state, data):
    optimizer = state.recipe.optimizer()

    def one(state, batch):
        value, grads = jax.value_and_grad(loss)(state.params, *batch)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = apply_updates(state.params, updates)
        ema = jax.tree.map(lambda e, p: 0.9 * e + 0.1 * p, state.ema, params)
        new = replace(state, params=params, ema=ema, opt_state=opt_state, step=state.step + 1)
        return new, (value, jnp.sum(batch[2]))

    state, (losses, counts) = jax.lax.scan(one, state, data)
    return state, losses[-1]


# %% 10.4 wrong: weights by all rows, padding included
# Each batch was weighted by its size with the padding in it, which is the same for all. The mask knows how
# many rows are real.
# see: 10.6
@partial(jax.jit, static_argnums=0, donate_argnums=1)
def run_epoch(loss, state, data):
    optimizer = state.recipe.optimizer()

    def one(state, batch):
        value, grads = jax.value_and_grad(loss)(state.params, *batch)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = apply_updates(state.params, updates)
        ema = jax.tree.map(lambda e, p: 0.9 * e + 0.1 * p, state.ema, params)
        new = replace(state, params=params, ema=ema, opt_state=opt_state, step=state.step + 1)
        return new, (value, jnp.sum(batch[2]))

    state, (losses, counts) = jax.lax.scan(one, state, data)
    return state, jnp.sum(losses * data[2].shape[1]) / jnp.sum(counts)


# %% 10.4 wrong: the average moves once an epoch
# The average was moved after the last batch only, so it lags by as many steps as there are batches. Move
# it inside the loop.
# see: 10.6
@partial(jax.jit, static_argnums=0, donate_argnums=1)
def run_epoch(loss, state, data):
    optimizer = state.recipe.optimizer()

    def one(state, batch):
        value, grads = jax.value_and_grad(loss)(state.params, *batch)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = apply_updates(state.params, updates)
        new = replace(state, params=params, opt_state=opt_state, step=state.step + 1)
        return new, (value, jnp.sum(batch[2]))

    state, (losses, counts) = jax.lax.scan(one, state, data)
    ema = jax.tree.map(lambda e, p: 0.9 * e + 0.1 * p, state.ema, state.params)
    return replace(state, ema=ema), jnp.sum(losses * counts) / jnp.sum(counts)


# %% 10.4 wrong: averages the params before the step
# The average got the params that the step started from: it is one step late.
# see: 10.6
@partial(jax.jit, static_argnums=0, donate_argnums=1)
def run_epoch(loss, state, data):
    optimizer = state.recipe.optimizer()

    def one(state, batch):
        value, grads = jax.value_and_grad(loss)(state.params, *batch)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = apply_updates(state.params, updates)
        ema = jax.tree.map(lambda e, p: 0.9 * e + 0.1 * p, state.ema, state.params)
        new = replace(state, params=params, ema=ema, opt_state=opt_state, step=state.step + 1)
        return new, (value, jnp.sum(batch[2]))

    state, (losses, counts) = jax.lax.scan(one, state, data)
    return state, jnp.sum(losses * counts) / jnp.sum(counts)


# %% 10.4 wrong: the weights of the average swapped
# 0.1 of the old average and 0.9 of the new params: that follows the params instead of smoothing them.
# see: 10.6
@partial(jax.jit, static_argnums=0, donate_argnums=1)
def run_epoch(loss, state, data):
    optimizer = state.recipe.optimizer()

    def one(state, batch):
        value, grads = jax.value_and_grad(loss)(state.params, *batch)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = apply_updates(state.params, updates)
        ema = jax.tree.map(lambda e, p: 0.1 * e + 0.9 * p, state.ema, params)
        new = replace(state, params=params, ema=ema, opt_state=opt_state, step=state.step + 1)
        return new, (value, jnp.sum(batch[2]))

    state, (losses, counts) = jax.lax.scan(one, state, data)
    return state, jnp.sum(losses * counts) / jnp.sum(counts)


# %% 10.4 wrong: trains from the average
# The gradient and the step start from the averaged params. The average is for evaluation; training goes on
# from the params.
# see: 10.6
@partial(jax.jit, static_argnums=0, donate_argnums=1)
def run_epoch(loss, state, data):
    optimizer = state.recipe.optimizer()

    def one(state, batch):
        value, grads = jax.value_and_grad(loss)(state.ema, *batch)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = apply_updates(state.ema, updates)
        ema = jax.tree.map(lambda e, p: 0.9 * e + 0.1 * p, state.ema, params)
        new = replace(state, params=params, ema=ema, opt_state=opt_state, step=state.step + 1)
        return new, (value, jnp.sum(batch[2]))

    state, (losses, counts) = jax.lax.scan(one, state, data)
    return state, jnp.sum(losses * counts) / jnp.sum(counts)


# %% 10.4 wrong: donates nothing
# The state is not donated: its old buffers stay beside the new ones.
# see: 10.6
@partial(jax.jit, static_argnums=0)
def run_epoch(loss, state, data):
    optimizer = state.recipe.optimizer()

    def one(state, batch):
        value, grads = jax.value_and_grad(loss)(state.params, *batch)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = apply_updates(state.params, updates)
        ema = jax.tree.map(lambda e, p: 0.9 * e + 0.1 * p, state.ema, params)
        new = replace(state, params=params, ema=ema, opt_state=opt_state, step=state.step + 1)
        return new, (value, jnp.sum(batch[2]))

    state, (losses, counts) = jax.lax.scan(one, state, data)
    return state, jnp.sum(losses * counts) / jnp.sum(counts)


# %% 10.4 wrong: donates the batches too
# No result has the batches' shapes, so JAX warns that their buffers were not usable; and the next epoch will
# want them. Donate the state alone.
# see: 10.6
@partial(jax.jit, static_argnums=0, donate_argnums=(1, 2))
def run_epoch(loss, state, data):
    optimizer = state.recipe.optimizer()

    def one(state, batch):
        value, grads = jax.value_and_grad(loss)(state.params, *batch)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = apply_updates(state.params, updates)
        ema = jax.tree.map(lambda e, p: 0.9 * e + 0.1 * p, state.ema, params)
        new = replace(state, params=params, ema=ema, opt_state=opt_state, step=state.step + 1)
        return new, (value, jnp.sum(batch[2]))

    state, (losses, counts) = jax.lax.scan(one, state, data)
    return state, jnp.sum(losses * counts) / jnp.sum(counts)


# %% 10.4 wrong: a jit for each epoch
# A function that is defined anew in each call is a new function for the cache: every epoch compiles. Jit at
# module level, and make the loss a static argument.
# see: 10.6
def run_epoch(loss, state, data):
    @partial(jax.jit, donate_argnums=0)
    def epoch(state, data):
        optimizer = state.recipe.optimizer()

        def one(state, batch):
            value, grads = jax.value_and_grad(loss)(state.params, *batch)
            updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
            params = apply_updates(state.params, updates)
            ema = jax.tree.map(lambda e, p: 0.9 * e + 0.1 * p, state.ema, params)
            new = replace(state, params=params, ema=ema, opt_state=opt_state, step=state.step + 1)
            return new, (value, jnp.sum(batch[2]))

        state, (losses, counts) = jax.lax.scan(one, state, data)
        return state, jnp.sum(losses * counts) / jnp.sum(counts)

    return epoch(state, data)


# %% 10.4 wrong: starts the optimizer anew in each epoch
# `init` at the head of the epoch throws away the momentum, and Adam's step count with it. The optimizer's
# state lives in the state.
# see: 10.6
@partial(jax.jit, static_argnums=0, donate_argnums=1)
def run_epoch(loss, state, data):
    optimizer = state.recipe.optimizer()

    state = replace(state, opt_state=optimizer.init(state.params))

    def one(state, batch):
        value, grads = jax.value_and_grad(loss)(state.params, *batch)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = apply_updates(state.params, updates)
        ema = jax.tree.map(lambda e, p: 0.9 * e + 0.1 * p, state.ema, params)
        new = replace(state, params=params, ema=ema, opt_state=opt_state, step=state.step + 1)
        return new, (value, jnp.sum(batch[2]))

    state, (losses, counts) = jax.lax.scan(one, state, data)
    return state, jnp.sum(losses * counts) / jnp.sum(counts)


# %% 10.4 wrong: forgets the optimizer's new state
# The updates were used and the state that came with them was not: each step begins with the same momentum.
# see: 10.6
@partial(jax.jit, static_argnums=0, donate_argnums=1)
def run_epoch(loss, state, data):
    optimizer = state.recipe.optimizer()

    def one(state, batch):
        value, grads = jax.value_and_grad(loss)(state.params, *batch)
        updates, _ = optimizer.update(grads, state.opt_state, state.params)
        params = apply_updates(state.params, updates)
        ema = jax.tree.map(lambda e, p: 0.9 * e + 0.1 * p, state.ema, params)
        new = replace(state, params=params, ema=ema, step=state.step + 1)
        return new, (value, jnp.sum(batch[2]))

    state, (losses, counts) = jax.lax.scan(one, state, data)
    return state, jnp.sum(losses * counts) / jnp.sum(counts)


# %% 10.4 wrong: one step on the mean gradient
# The gradients of all batches were averaged, and one step was taken. That is one large batch, not an epoch
# of small ones.
# see: 10.6
@partial(jax.jit, static_argnums=0, donate_argnums=1)
def run_epoch(loss, state, data):
    def mean_loss(params):
        losses = jax.vmap(loss, (None, 0, 0, 0))(params, *data)
        return jnp.average(losses, weights=jnp.sum(data[2], axis=1))

    value, grads = jax.value_and_grad(mean_loss)(state.params)
    updates, opt_state = state.recipe.optimizer().update(grads, state.opt_state, state.params)
    params = apply_updates(state.params, updates)
    ema = jax.tree.map(lambda e, p: 0.9 * e + 0.1 * p, state.ema, params)
    step = state.step + data[0].shape[0]
    return replace(state, params=params, ema=ema, opt_state=opt_state, step=step), value


# %% 10.4 wrong: counts epochs
# `step` went up by one for the whole epoch. Schedules, and the order of the next epoch, count steps.
# see: 10.6
@partial(jax.jit, static_argnums=0, donate_argnums=1)
def run_epoch(loss, state, data):
    optimizer = state.recipe.optimizer()

    def one(state, batch):
        value, grads = jax.value_and_grad(loss)(state.params, *batch)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = apply_updates(state.params, updates)
        ema = jax.tree.map(lambda e, p: 0.9 * e + 0.1 * p, state.ema, params)
        new = replace(state, params=params, ema=ema, opt_state=opt_state)
        return new, (value, jnp.sum(batch[2]))

    state, (losses, counts) = jax.lax.scan(one, state, data)
    return replace(state, step=state.step + 1), jnp.sum(losses * counts) / jnp.sum(counts)


# %% 10.4 wrong: the loss after the step
# The loss was computed again with the new params. It costs a second forward pass, and the curve begins one
# step late.
# see: 10.6
@partial(jax.jit, static_argnums=0, donate_argnums=1)
def run_epoch(loss, state, data):
    optimizer = state.recipe.optimizer()

    def one(state, batch):
        value, grads = jax.value_and_grad(loss)(state.params, *batch)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = apply_updates(state.params, updates)
        ema = jax.tree.map(lambda e, p: 0.9 * e + 0.1 * p, state.ema, params)
        new = replace(state, params=params, ema=ema, opt_state=opt_state, step=state.step + 1)
        value = loss(params, *batch)
        return new, (value, jnp.sum(batch[2]))

    state, (losses, counts) = jax.lax.scan(one, state, data)
    return state, jnp.sum(losses * counts) / jnp.sum(counts)


# %% 10.4 wrong: climbs
# The updates were taken away from the params. They carry the minus sign of the learning rate already.
# see: 10.6
@partial(jax.jit, static_argnums=0, donate_argnums=1)
def run_epoch(loss, state, data):
    optimizer = state.recipe.optimizer()

    def one(state, batch):
        value, grads = jax.value_and_grad(loss)(state.params, *batch)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = jax.tree.map(lambda p, u: p - u, state.params, updates)
        ema = jax.tree.map(lambda e, p: 0.9 * e + 0.1 * p, state.ema, params)
        new = replace(state, params=params, ema=ema, opt_state=opt_state, step=state.step + 1)
        return new, (value, jnp.sum(batch[2]))

    state, (losses, counts) = jax.lax.scan(one, state, data)
    return state, jnp.sum(losses * counts) / jnp.sum(counts)


# %% 10.4 wrong: skips the mask
# The loss was told that all rows are real, so the padding, with labels of −1, is trained on.
# see: 10.6
@partial(jax.jit, static_argnums=0, donate_argnums=1)
def run_epoch(loss, state, data):
    optimizer = state.recipe.optimizer()

    def one(state, batch):
        value, grads = jax.value_and_grad(loss)(state.params, *batch[:2], jnp.ones_like(batch[2]))
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        params = apply_updates(state.params, updates)
        ema = jax.tree.map(lambda e, p: 0.9 * e + 0.1 * p, state.ema, params)
        new = replace(state, params=params, ema=ema, opt_state=opt_state, step=state.step + 1)
        return new, (value, jnp.sum(batch[2]))

    state, (losses, counts) = jax.lax.scan(one, state, data)
    return state, jnp.sum(losses * counts) / jnp.sum(counts)


# %% 10.5 right: one program for each chunk size, NumPy adds up
_logits = jax.jit(lambda predict, params, x: predict(params, x), static_argnums=0)


def evaluate_in_chunks(predict, params, x, labels, chunk):
    n = len(x)
    x = np.concatenate([x, np.zeros((-n % chunk, x.shape[1]), x.dtype)])
    parts = [_logits(predict, params, part) for part in x.reshape(-1, chunk, x.shape[1])]
    logits = np.concatenate(parts)[:n].astype(np.float64)
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    named = logits.argmax(axis=1)
    confusion = np.zeros(2 * (logits.shape[1],), int)
    np.add.at(confusion, (labels, named), 1)
    loss = -log_p[np.arange(n), labels].mean()
    return {"loss": loss, "accuracy": np.mean(named == labels), "confusion": confusion}


# %% 10.5 right: sums in a carry
@partial(jax.jit, static_argnums=0)
def _add(predict, params, x, labels):
    logits = predict(params, x)
    classes = logits.shape[-1]
    log_p = jax.nn.log_softmax(logits)
    truth = jax.nn.one_hot(labels, classes)
    named = jax.nn.one_hot(jnp.argmax(logits, -1), classes)
    return -jnp.sum(truth * log_p), truth.T @ named


def evaluate_in_chunks(predict, params, x, labels, chunk):
    totals = []
    for i in range(-(-len(x) // chunk)):
        rows = np.zeros((chunk, *x.shape[1:]), np.float32)
        names = np.full(chunk, -1, np.int32)
        part = slice(i * chunk, min((i + 1) * chunk, len(x)))
        rows[: part.stop - part.start], names[: part.stop - part.start] = x[part], labels[part]
        totals.append(_add(predict, params, rows, names))
    loss = sum(float(one) for one, _ in totals)
    confusion = sum(np.array(counts) for _, counts in totals).round().astype(int)
    right = np.diag(confusion).sum()
    return {"loss": loss / len(x), "accuracy": right / len(x), "confusion": confusion}


# %% 10.5 wrong: the mean of the chunks' means
# The last chunk has fewer points, and in a mean of means each of them counts more. Add sums, and divide once
# by the number of points.
# see: 10.8
@partial(jax.jit, static_argnums=0)
def _chunk(predict, params, x, labels, real):
    logits = predict(params, x)
    losses = cross_entropy(logits, jnp.maximum(labels, 0))
    classes = jnp.arange(logits.shape[1])
    named = jnp.argmax(logits, axis=1)
    rows = (labels[:, None] == classes) & real[:, None]
    columns = named[:, None] == classes
    confusion = jnp.sum(rows[:, :, None] & columns[:, None, :], axis=0)
    return jnp.sum(jnp.where(real, losses, 0.0)), confusion


def evaluate_in_chunks(predict, params, x, labels, chunk):
    loss, confusion = 0.0, 0
    for start in range(0, len(x), chunk):
        part, names = x[start : start + chunk], labels[start : start + chunk]
        rest = chunk - len(part)
        real = np.arange(chunk) < len(part)
        part, names = np.pad(part, ((0, rest), (0, 0))), np.pad(names, (0, rest))
        one, counts = _chunk(predict, params, part, names, real)
        loss, confusion = loss + float(one) / len(part), confusion + np.array(counts)
    return {
        "loss": loss / -(-len(x) // chunk),
        "accuracy": np.trace(confusion) / len(x),
        "confusion": confusion,
    }


# %% 10.5 wrong: drops the rest
# The points that don't fill a chunk are not evaluated. Pad the last chunk, and leave the padding out of the
# sums.
# see: 10.8
@partial(jax.jit, static_argnums=0)
def _chunk(predict, params, x, labels, real):
    logits = predict(params, x)
    losses = cross_entropy(logits, jnp.maximum(labels, 0))
    classes = jnp.arange(logits.shape[1])
    named = jnp.argmax(logits, axis=1)
    rows = (labels[:, None] == classes) & real[:, None]
    columns = named[:, None] == classes
    confusion = jnp.sum(rows[:, :, None] & columns[:, None, :], axis=0)
    return jnp.sum(jnp.where(real, losses, 0.0)), confusion


def evaluate_in_chunks(predict, params, x, labels, chunk):
    loss, confusion = 0.0, 0
    for start in range(0, len(x) // chunk * chunk, chunk):
        part, names = x[start : start + chunk], labels[start : start + chunk]
        rest = chunk - len(part)
        real = np.arange(chunk) < len(part)
        part, names = np.pad(part, ((0, rest), (0, 0))), np.pad(names, (0, rest))
        one, counts = _chunk(predict, params, part, names, real)
        loss, confusion = loss + float(one), confusion + np.array(counts)
    return {
        "loss": loss / len(x),
        "accuracy": np.trace(confusion) / len(x),
        "confusion": confusion,
    }


# %% 10.5 wrong: counts the padding
# The padded rows are points at zero with label 0 for the sums: they must be masked there.
# see: 10.8
@partial(jax.jit, static_argnums=0)
def _chunk(predict, params, x, labels, real):
    logits = predict(params, x)
    losses = cross_entropy(logits, jnp.maximum(labels, 0))
    classes = jnp.arange(logits.shape[1])
    named = jnp.argmax(logits, axis=1)
    rows = (labels[:, None] == classes) & real[:, None]
    columns = named[:, None] == classes
    confusion = jnp.sum(rows[:, :, None] & columns[:, None, :], axis=0)
    return jnp.sum(jnp.where(real, losses, 0.0)), confusion


def evaluate_in_chunks(predict, params, x, labels, chunk):
    loss, confusion = 0.0, 0
    for start in range(0, len(x), chunk):
        part, names = x[start : start + chunk], labels[start : start + chunk]
        rest = chunk - len(part)
        real = np.ones(chunk, bool)
        part, names = np.pad(part, ((0, rest), (0, 0))), np.pad(names, (0, rest))
        one, counts = _chunk(predict, params, part, names, real)
        loss, confusion = loss + float(one), confusion + np.array(counts)
    return {
        "loss": loss / len(x),
        "accuracy": np.trace(confusion) / len(x),
        "confusion": confusion,
    }


# %% 10.5 wrong: counts the padding in the confusion only
# The loss leaves the padded rows out and the confusion does not, so its numbers add up to whole chunks.
# see: 10.8
@partial(jax.jit, static_argnums=0)
def _chunk(predict, params, x, labels, real):
    logits = predict(params, x)
    losses = cross_entropy(logits, jnp.maximum(labels, 0))
    classes = jnp.arange(logits.shape[1])
    named = jnp.argmax(logits, axis=1)
    rows = labels[:, None] == classes
    columns = named[:, None] == classes
    confusion = jnp.sum(rows[:, :, None] & columns[:, None, :], axis=0)
    return jnp.sum(jnp.where(real, losses, 0.0)), confusion


def evaluate_in_chunks(predict, params, x, labels, chunk):
    loss, confusion = 0.0, 0
    for start in range(0, len(x), chunk):
        part, names = x[start : start + chunk], labels[start : start + chunk]
        rest = chunk - len(part)
        real = np.arange(chunk) < len(part)
        part, names = np.pad(part, ((0, rest), (0, 0))), np.pad(names, (0, rest))
        one, counts = _chunk(predict, params, part, names, real)
        loss, confusion = loss + float(one), confusion + np.array(counts)
    return {
        "loss": loss / len(x),
        "accuracy": np.trace(confusion) / len(x),
        "confusion": confusion,
    }


# %% 10.5 wrong: rows and columns swapped
# Rows are labels and columns are predictions. The accuracy is the same either way; what is confused with what
# is not.
# see: 10.8
@partial(jax.jit, static_argnums=0)
def _chunk(predict, params, x, labels, real):
    logits = predict(params, x)
    losses = cross_entropy(logits, jnp.maximum(labels, 0))
    classes = jnp.arange(logits.shape[1])
    named = jnp.argmax(logits, axis=1)
    rows = (labels[:, None] == classes) & real[:, None]
    columns = named[:, None] == classes
    confusion = jnp.sum(columns[:, :, None] & rows[:, None, :], axis=0)
    return jnp.sum(jnp.where(real, losses, 0.0)), confusion


def evaluate_in_chunks(predict, params, x, labels, chunk):
    loss, confusion = 0.0, 0
    for start in range(0, len(x), chunk):
        part, names = x[start : start + chunk], labels[start : start + chunk]
        rest = chunk - len(part)
        real = np.arange(chunk) < len(part)
        part, names = np.pad(part, ((0, rest), (0, 0))), np.pad(names, (0, rest))
        one, counts = _chunk(predict, params, part, names, real)
        loss, confusion = loss + float(one), confusion + np.array(counts)
    return {
        "loss": loss / len(x),
        "accuracy": np.trace(confusion) / len(x),
        "confusion": confusion,
    }


# %% 10.5 wrong: counts the rows in place of the classes
# The first axis of the logits is the chunk, the second one the classes: a confusion matrix has a row and a
# column for each class. Where both are equally long, nobody notices.
# see: 10.8
@partial(jax.jit, static_argnums=0)
def _chunk(predict, params, x, labels, real):
    logits = predict(params, x)
    losses = cross_entropy(logits, jnp.maximum(labels, 0))
    classes = jnp.arange(len(logits))
    named = jnp.argmax(logits, axis=1)
    rows = (labels[:, None] == classes) & real[:, None]
    columns = named[:, None] == classes
    confusion = jnp.sum(rows[:, :, None] & columns[:, None, :], axis=0)
    return jnp.sum(jnp.where(real, losses, 0.0)), confusion


def evaluate_in_chunks(predict, params, x, labels, chunk):
    loss, confusion = 0.0, 0
    for start in range(0, len(x), chunk):
        part, names = x[start : start + chunk], labels[start : start + chunk]
        rest = chunk - len(part)
        real = np.arange(chunk) < len(part)
        part, names = np.pad(part, ((0, rest), (0, 0))), np.pad(names, (0, rest))
        one, counts = _chunk(predict, params, part, names, real)
        loss, confusion = loss + float(one), confusion + np.array(counts)
    return {
        "loss": loss / len(x),
        "accuracy": np.trace(confusion) / len(x),
        "confusion": confusion,
    }


# %% 10.5 wrong: divides by whole chunks
# Sums over the points were divided by the number of rows, padding included.
# see: 10.8
@partial(jax.jit, static_argnums=0)
def _chunk(predict, params, x, labels, real):
    logits = predict(params, x)
    losses = cross_entropy(logits, jnp.maximum(labels, 0))
    classes = jnp.arange(logits.shape[1])
    named = jnp.argmax(logits, axis=1)
    rows = (labels[:, None] == classes) & real[:, None]
    columns = named[:, None] == classes
    confusion = jnp.sum(rows[:, :, None] & columns[:, None, :], axis=0)
    return jnp.sum(jnp.where(real, losses, 0.0)), confusion


def evaluate_in_chunks(predict, params, x, labels, chunk):
    loss, confusion = 0.0, 0
    for start in range(0, len(x), chunk):
        part, names = x[start : start + chunk], labels[start : start + chunk]
        rest = chunk - len(part)
        real = np.arange(chunk) < len(part)
        part, names = np.pad(part, ((0, rest), (0, 0))), np.pad(names, (0, rest))
        one, counts = _chunk(predict, params, part, names, real)
        loss, confusion = loss + float(one), confusion + np.array(counts)
    return {
        "loss": loss / (-(-len(x) // chunk) * chunk),
        "accuracy": np.trace(confusion) / (-(-len(x) // chunk) * chunk),
        "confusion": confusion,
    }


# %% 10.5 wrong: all points at once
# The whole set goes through the model at once: memory grows with it, and each size is another program.
# see: 10.8
@partial(jax.jit, static_argnums=0)
def _chunk(predict, params, x, labels, real):
    logits = predict(params, x)
    losses = cross_entropy(logits, jnp.maximum(labels, 0))
    classes = jnp.arange(logits.shape[1])
    named = jnp.argmax(logits, axis=1)
    rows = (labels[:, None] == classes) & real[:, None]
    columns = named[:, None] == classes
    confusion = jnp.sum(rows[:, :, None] & columns[:, None, :], axis=0)
    return jnp.sum(jnp.where(real, losses, 0.0)), confusion


def evaluate_in_chunks(predict, params, x, labels, chunk):
    chunk = len(x)
    loss, confusion = 0.0, 0
    for start in range(0, len(x), chunk):
        part, names = x[start : start + chunk], labels[start : start + chunk]
        rest = chunk - len(part)
        real = np.arange(chunk) < len(part)
        part, names = np.pad(part, ((0, rest), (0, 0))), np.pad(names, (0, rest))
        one, counts = _chunk(predict, params, part, names, real)
        loss, confusion = loss + float(one), confusion + np.array(counts)
    return {
        "loss": loss / len(x),
        "accuracy": np.trace(confusion) / len(x),
        "confusion": confusion,
    }


# %% 10.5 wrong: a last chunk of its own size
# The last chunk is smaller, and every remainder is a program of its own. Pad it to the size of the others.
# see: 10.8
@partial(jax.jit, static_argnums=0)
def _chunk(predict, params, x, labels, real):
    logits = predict(params, x)
    losses = cross_entropy(logits, jnp.maximum(labels, 0))
    classes = jnp.arange(logits.shape[1])
    named = jnp.argmax(logits, axis=1)
    rows = (labels[:, None] == classes) & real[:, None]
    columns = named[:, None] == classes
    confusion = jnp.sum(rows[:, :, None] & columns[:, None, :], axis=0)
    return jnp.sum(jnp.where(real, losses, 0.0)), confusion


def evaluate_in_chunks(predict, params, x, labels, chunk):
    loss, confusion = 0.0, 0
    for start in range(0, len(x), chunk):
        part, names = x[start : start + chunk], labels[start : start + chunk]
        rest = 0
        real = np.ones(len(part), bool)
        part, names = np.pad(part, ((0, rest), (0, 0))), np.pad(names, (0, rest))
        one, counts = _chunk(predict, params, part, names, real)
        loss, confusion = loss + float(one), confusion + np.array(counts)
    return {
        "loss": loss / len(x),
        "accuracy": np.trace(confusion) / len(x),
        "confusion": confusion,
    }


# %% 10.5 wrong: a jit for each call
# The jitted function is made inside, so every call compiles it again.
# see: 10.8
def evaluate_in_chunks(predict, params, x, labels, chunk):
    @jax.jit
    def logits_of(part):
        return predict(params, part)

    padded = np.pad(x, ((0, -len(x) % chunk), (0, 0)))
    parts = [logits_of(part) for part in padded.reshape(-1, chunk, x.shape[1])]
    logits = np.concatenate(parts)[: len(x)]
    below = logits - logits.max(axis=1, keepdims=True)
    log_p = below - np.log(np.exp(below).sum(axis=1, keepdims=True))
    named = logits.argmax(axis=1)
    confusion = np.zeros(2 * (logits.shape[1],), int)
    np.add.at(confusion, (labels, named), 1)
    loss = -log_p[np.arange(len(x)), labels].mean()
    return {"loss": loss, "accuracy": np.mean(named == labels), "confusion": confusion}


# %% 10.5 wrong: not compiled at all
# Outside of jit each operation is a program of its own, and every chunk runs them one by one.
# see: 10.8
def evaluate_in_chunks(predict, params, x, labels, chunk):
    padded = np.pad(x, ((0, -len(x) % chunk), (0, 0)))
    parts = [predict(params, part) for part in padded.reshape(-1, chunk, x.shape[1])]
    logits = jnp.concatenate(parts)[: len(x)]
    losses = cross_entropy(logits, jnp.asarray(labels))
    named = np.array(jnp.argmax(logits, axis=1))
    confusion = np.zeros(2 * (logits.shape[1],), int)
    np.add.at(confusion, (labels, named), 1)
    accuracy = np.mean(named == labels)
    return {"loss": jnp.mean(losses), "accuracy": accuracy, "confusion": confusion}


# %% 10.5 wrong: exponentials that overflow
# exp(89) is infinite in float32, and infinity over infinity NaN: one point with large logits, and the mean
# is gone. Subtract each row's maximum first, or use `cross_entropy`.
# see: 10.5
@partial(jax.jit, static_argnums=0)
def _logits(predict, params, x):
    return predict(params, x)


def evaluate_in_chunks(predict, params, x, labels, chunk):
    rest = -len(x) % chunk
    padded = np.pad(x, ((0, rest), (0, 0))).reshape(-1, chunk, x.shape[1])
    logits = np.concatenate([_logits(predict, params, part) for part in padded])[: len(x)]
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    named = logits.argmax(axis=1)
    confusion = np.zeros(2 * (logits.shape[1],), int)
    np.add.at(confusion, (labels, named), 1)
    loss = -np.log(p[np.arange(len(x)), labels]).mean()
    return {"loss": loss, "accuracy": np.mean(named == labels), "confusion": confusion}


# %% 10.5 wrong: a tie counts as right
# Where several logits are the largest, the class that is named is the first of them, in the accuracy as in
# the confusion.
# see: 10.8
@partial(jax.jit, static_argnums=0)
def _logits(predict, params, x):
    return predict(params, x)


def evaluate_in_chunks(predict, params, x, labels, chunk):
    rest = -len(x) % chunk
    padded = np.pad(x, ((0, rest), (0, 0))).reshape(-1, chunk, x.shape[1])
    logits = np.concatenate([_logits(predict, params, part) for part in padded])[: len(x)]
    below = logits - logits.max(axis=1, keepdims=True)
    log_p = below - np.log(np.exp(below).sum(axis=1, keepdims=True))
    confusion = np.zeros(2 * (logits.shape[1],), int)
    np.add.at(confusion, (labels, logits.argmax(axis=1)), 1)
    right = logits[np.arange(len(x)), labels] == logits.max(axis=1)
    loss = -log_p[np.arange(len(x)), labels].mean()
    return {"loss": loss, "accuracy": right.mean(), "confusion": confusion}


# %% 10.5 wrong: the confusion as shares
# Each row was divided by its sum. The task asks for counts: shares hide how many points a class has.
# see: 10.8
@partial(jax.jit, static_argnums=0)
def _chunk(predict, params, x, labels, real):
    logits = predict(params, x)
    losses = cross_entropy(logits, jnp.maximum(labels, 0))
    classes = jnp.arange(logits.shape[1])
    named = jnp.argmax(logits, axis=1)
    rows = (labels[:, None] == classes) & real[:, None]
    columns = named[:, None] == classes
    confusion = jnp.sum(rows[:, :, None] & columns[:, None, :], axis=0)
    return jnp.sum(jnp.where(real, losses, 0.0)), confusion


def evaluate_in_chunks(predict, params, x, labels, chunk):
    loss, confusion = 0.0, 0
    for start in range(0, len(x), chunk):
        part, names = x[start : start + chunk], labels[start : start + chunk]
        rest = chunk - len(part)
        real = np.arange(chunk) < len(part)
        part, names = np.pad(part, ((0, rest), (0, 0))), np.pad(names, (0, rest))
        one, counts = _chunk(predict, params, part, names, real)
        loss, confusion = loss + float(one), confusion + np.array(counts)
    return {
        "loss": loss / len(x),
        "accuracy": np.trace(confusion) / len(x),
        "confusion": confusion / np.maximum(confusion.sum(axis=1, keepdims=True), 1),
    }


# %% 10.5 wrong: the loss of the prediction
# The cross-entropy was taken at the class that the model names, not at the label: it only says how sure the
# model is.
# see: 10.8
@partial(jax.jit, static_argnums=0)
def _chunk(predict, params, x, labels, real):
    logits = predict(params, x)
    losses = cross_entropy(logits, jnp.argmax(logits, axis=1))
    classes = jnp.arange(logits.shape[1])
    named = jnp.argmax(logits, axis=1)
    rows = (labels[:, None] == classes) & real[:, None]
    columns = named[:, None] == classes
    confusion = jnp.sum(rows[:, :, None] & columns[:, None, :], axis=0)
    return jnp.sum(jnp.where(real, losses, 0.0)), confusion


def evaluate_in_chunks(predict, params, x, labels, chunk):
    loss, confusion = 0.0, 0
    for start in range(0, len(x), chunk):
        part, names = x[start : start + chunk], labels[start : start + chunk]
        rest = chunk - len(part)
        real = np.arange(chunk) < len(part)
        part, names = np.pad(part, ((0, rest), (0, 0))), np.pad(names, (0, rest))
        one, counts = _chunk(predict, params, part, names, real)
        loss, confusion = loss + float(one), confusion + np.array(counts)
    return {
        "loss": loss / len(x),
        "accuracy": np.trace(confusion) / len(x),
        "confusion": confusion,
    }


# %% 10.6 right: lax.map over fixed chunks, sorted by two keys
_norms = jax.jit(
    lambda loss, params, x, y: jax.lax.map(
        lambda example: global_norm(jax.grad(loss)(params, *example)), (x, y)
    ),
    static_argnums=0,
)


def hardest(loss, params, x, labels, k, chunk):
    found = []
    for start in range(0, len(x), chunk):
        part, names = x[start : start + chunk], labels[start : start + chunk]
        missing = chunk - len(part)
        part = np.concatenate([part, np.repeat(part[:1], missing, axis=0)])
        names = np.concatenate([names, np.repeat(names[:1], missing)])
        found.append(np.array(_norms(loss, params, part, names))[: chunk - missing])
    norms = np.concatenate(found)
    order = np.lexsort((np.arange(len(x)), -norms))[: min(k, len(x))]
    return order, norms[order]


# %% 10.6 right: plain Python picks them
@partial(jax.jit, static_argnames="loss")
def _squares(loss, params, x, y):
    def one(x, y):
        return sum(jnp.vdot(g, g) for g in jax.tree.leaves(jax.grad(loss)(params, x, y)))

    return jax.vmap(one)(x, y)


def hardest(loss, params, x, labels, k, chunk):
    n = len(x)
    places = np.minimum(np.arange(-(-n // chunk) * chunk), n - 1).reshape(-1, chunk)
    squares = [np.array(_squares(loss, params, x[rows], labels[rows])) for rows in places]
    norms = np.sqrt(np.concatenate(squares)[:n])
    ranked = sorted(range(n), key=lambda i: (-norms[i], i))[:k]
    return np.array(ranked), norms[ranked]


# %% 10.6 wrong: ranks the padding
# The padded rows have gradients, too, and here long ones: cut them off before you rank.
# see: 10.9
@partial(jax.jit, static_argnums=0)
def _chunk_norms(loss, params, x, labels):
    grads = jax.vmap(jax.grad(loss), (None, 0, 0))(params, x, labels)
    return jax.vmap(global_norm)(grads)


def hardest(loss, params, x, labels, k, chunk):
    rest = -len(x) % chunk
    rows = np.pad(x, ((0, rest), (0, 0))).reshape(-1, chunk, x.shape[1])
    names = np.pad(labels, (0, rest)).reshape(-1, chunk)
    norms = np.concatenate([_chunk_norms(loss, params, *each) for each in zip(rows, names)])
    order = np.argsort(-norms, kind="stable")[:k]
    return order, norms[order]


# %% 10.6 wrong: the easiest first
# Sorting is from the shortest up; the hardest are at the other end.
# see: 10.9
@partial(jax.jit, static_argnums=0)
def _chunk_norms(loss, params, x, labels):
    grads = jax.vmap(jax.grad(loss), (None, 0, 0))(params, x, labels)
    return jax.vmap(global_norm)(grads)


def hardest(loss, params, x, labels, k, chunk):
    rest = -len(x) % chunk
    rows = np.pad(x, ((0, rest), (0, 0))).reshape(-1, chunk, x.shape[1])
    names = np.pad(labels, (0, rest)).reshape(-1, chunk)
    norms = np.concatenate([_chunk_norms(loss, params, *each) for each in zip(rows, names)])
    norms = norms[: len(x)]
    order = np.argsort(norms, kind="stable")[:k]
    return order, norms[order]


# %% 10.6 wrong: the right ones, the shortest of them first
# The k longest were cut from the end of an ascending order and left as they were: the hardest comes last.
# see: 10.9
@partial(jax.jit, static_argnums=0)
def _chunk_norms(loss, params, x, labels):
    grads = jax.vmap(jax.grad(loss), (None, 0, 0))(params, x, labels)
    return jax.vmap(global_norm)(grads)


def hardest(loss, params, x, labels, k, chunk):
    rest = -len(x) % chunk
    rows = np.pad(x, ((0, rest), (0, 0))).reshape(-1, chunk, x.shape[1])
    names = np.pad(labels, (0, rest)).reshape(-1, chunk)
    norms = np.concatenate([_chunk_norms(loss, params, *each) for each in zip(rows, names)])
    norms = norms[: len(x)]
    order = np.sort(np.argsort(-norms, kind="stable")[:k])[
        np.argsort(norms[np.sort(np.argsort(-norms, kind="stable")[:k])], kind="stable")
    ]
    return order, norms[order]


# %% 10.6 wrong: an ascending order turned round
# Reversed, equal lengths come with the higher index first. Sort the negative lengths by a stable sort.
# see: 10.9
@partial(jax.jit, static_argnums=0)
def _chunk_norms(loss, params, x, labels):
    grads = jax.vmap(jax.grad(loss), (None, 0, 0))(params, x, labels)
    return jax.vmap(global_norm)(grads)


def hardest(loss, params, x, labels, k, chunk):
    rest = -len(x) % chunk
    rows = np.pad(x, ((0, rest), (0, 0))).reshape(-1, chunk, x.shape[1])
    names = np.pad(labels, (0, rest)).reshape(-1, chunk)
    norms = np.concatenate([_chunk_norms(loss, params, *each) for each in zip(rows, names)])
    norms = norms[: len(x)]
    order = np.argsort(norms, kind="stable")[::-1][:k]
    return order, norms[order]


# %% 10.6 wrong: always k of them
# Where there are fewer than k examples, the rest was filled up. Return what there is.
# see: 10.9
@partial(jax.jit, static_argnums=0)
def _chunk_norms(loss, params, x, labels):
    grads = jax.vmap(jax.grad(loss), (None, 0, 0))(params, x, labels)
    return jax.vmap(global_norm)(grads)


def hardest(loss, params, x, labels, k, chunk):
    rest = -len(x) % chunk
    rows = np.pad(x, ((0, rest), (0, 0))).reshape(-1, chunk, x.shape[1])
    names = np.pad(labels, (0, rest)).reshape(-1, chunk)
    norms = np.concatenate([_chunk_norms(loss, params, *each) for each in zip(rows, names)])
    norms = norms[: len(x)]
    order = np.argsort(-norms, kind="stable")[:k]
    order = np.resize(order, k)
    return order, norms[order]


# %% 10.6 wrong: squares
# Squared lengths give the same order and other numbers. Take the root of the sum.
# see: 10.9
@partial(jax.jit, static_argnums=0)
def _chunk_norms(loss, params, x, labels):
    grads = jax.vmap(jax.grad(loss), (None, 0, 0))(params, x, labels)
    return jax.vmap(global_norm)(grads)


def hardest(loss, params, x, labels, k, chunk):
    rest = -len(x) % chunk
    rows = np.pad(x, ((0, rest), (0, 0))).reshape(-1, chunk, x.shape[1])
    names = np.pad(labels, (0, rest)).reshape(-1, chunk)
    norms = np.concatenate([_chunk_norms(loss, params, *each) for each in zip(rows, names)])
    norms = norms[: len(x)]
    order = np.argsort(-norms, kind="stable")[:k]
    return order, norms[order] ** 2


# %% 10.6 wrong: adds the leaves' lengths
# The length of a tree is the root of the sum of all squares, not the sum of the leaves' lengths.
# see: 10.9
@partial(jax.jit, static_argnums=0)
def _chunk_norms(loss, params, x, labels):
    grads = jax.vmap(jax.grad(loss), (None, 0, 0))(params, x, labels)
    return jax.vmap(lambda g: sum(jnp.linalg.norm(leaf) for leaf in jax.tree.leaves(g)))(grads)


def hardest(loss, params, x, labels, k, chunk):
    rest = -len(x) % chunk
    rows = np.pad(x, ((0, rest), (0, 0))).reshape(-1, chunk, x.shape[1])
    names = np.pad(labels, (0, rest)).reshape(-1, chunk)
    norms = np.concatenate([_chunk_norms(loss, params, *each) for each in zip(rows, names)])
    norms = norms[: len(x)]
    order = np.argsort(-norms, kind="stable")[:k]
    return order, norms[order]


# %% 10.6 wrong: the gradient of the weights only
# The bias is a parameter like the others. `global_norm` takes all leaves.
# see: 10.9
@partial(jax.jit, static_argnums=0)
def _chunk_norms(loss, params, x, labels):
    grads = jax.vmap(jax.grad(loss), (None, 0, 0))(params, x, labels)
    return jax.vmap(global_norm)(grads["w"])


def hardest(loss, params, x, labels, k, chunk):
    rest = -len(x) % chunk
    rows = np.pad(x, ((0, rest), (0, 0))).reshape(-1, chunk, x.shape[1])
    names = np.pad(labels, (0, rest)).reshape(-1, chunk)
    norms = np.concatenate([_chunk_norms(loss, params, *each) for each in zip(rows, names)])
    norms = norms[: len(x)]
    order = np.argsort(-norms, kind="stable")[:k]
    return order, norms[order]


# %% 10.6 wrong: ranks by the loss
# A large loss is not a long gradient: the gradient also has the size of the input in it.
# see: 10.9
@partial(jax.jit, static_argnums=0)
def _chunk_norms(loss, params, x, labels):
    grads = jax.vmap(jax.grad(loss), (None, 0, 0))(params, x, labels)
    return jax.vmap(global_norm)(grads), jax.vmap(loss, (None, 0, 0))(params, x, labels)


def hardest(loss, params, x, labels, k, chunk):
    rest = -len(x) % chunk
    rows = np.pad(x, ((0, rest), (0, 0))).reshape(-1, chunk, x.shape[1])
    names = np.pad(labels, (0, rest)).reshape(-1, chunk)
    each = [_chunk_norms(loss, params, *each) for each in zip(rows, names)]
    norms, values = (np.concatenate(column)[: len(x)] for column in zip(*each))
    order = np.argsort(-values, kind="stable")[:k]
    return order, norms[order]


# %% 10.6 wrong: the gradient by the input
# The gradient was taken by x: how the loss changes with the point, not with the parameters.
# see: 10.9
@partial(jax.jit, static_argnums=0)
def _chunk_norms(loss, params, x, labels):
    grads = jax.vmap(jax.grad(loss, argnums=1), (None, 0, 0))(params, x, labels)
    return jax.vmap(global_norm)(grads)


def hardest(loss, params, x, labels, k, chunk):
    rest = -len(x) % chunk
    rows = np.pad(x, ((0, rest), (0, 0))).reshape(-1, chunk, x.shape[1])
    names = np.pad(labels, (0, rest)).reshape(-1, chunk)
    norms = np.concatenate([_chunk_norms(loss, params, *each) for each in zip(rows, names)])
    norms = norms[: len(x)]
    order = np.argsort(-norms, kind="stable")[:k]
    return order, norms[order]


# %% 10.6 wrong: all at once
# One program holds all gradients together, and there is another program for each number of examples.
# see: 10.9
@partial(jax.jit, static_argnums=0)
def _chunk_norms(loss, params, x, labels):
    grads = jax.vmap(jax.grad(loss), (None, 0, 0))(params, x, labels)
    return jax.vmap(global_norm)(grads)


def hardest(loss, params, x, labels, k, chunk):
    chunk = len(x)
    rest = -len(x) % chunk
    rows = np.pad(x, ((0, rest), (0, 0))).reshape(-1, chunk, x.shape[1])
    names = np.pad(labels, (0, rest)).reshape(-1, chunk)
    norms = np.concatenate([_chunk_norms(loss, params, *each) for each in zip(rows, names)])
    norms = norms[: len(x)]
    order = np.argsort(-norms, kind="stable")[:k]
    return order, norms[order]


# %% 10.6 wrong: pads to a size that is never exceeded
# One program serves all, and takes thousands of gradients at once, most of them of padding. Go through
# chunks of the size that was asked for.
# see: 10.9
@partial(jax.jit, static_argnums=0)
def _chunk_norms(loss, params, x, labels):
    grads = jax.vmap(jax.grad(loss), (None, 0, 0))(params, x, labels)
    return jax.vmap(global_norm)(grads)


def hardest(loss, params, x, labels, k, chunk):
    rest = (0, 1024 - len(x))
    padded = np.pad(x, (rest, (0, 0))), np.pad(labels, rest)
    norms = np.array(_chunk_norms(loss, params, *padded))[: len(x)]
    order = np.argsort(-norms, kind="stable")[:k]
    return order, norms[order]


# %% 10.6 wrong: a program for each number of examples, or for each k
# What is jitted gets the whole array, or needs k while it compiles, as `top_k` does: each n, or each k, is
# a program of its own. Give it chunks of one size, and sort in NumPy.
# see: 10.9
@partial(jax.jit, static_argnums=(0, 4))
def _top(loss, params, x, labels, k):
    norms = jax.lax.map(
        lambda each: global_norm(jax.grad(loss)(params, *each)), (x, labels), batch_size=2
    )
    norms, indices = jax.lax.top_k(norms, k)
    return indices, norms


def hardest(loss, params, x, labels, k, chunk):
    return _top(loss, params, x, labels, min(k, len(x)))


# %% 10.6 wrong: the place in the chunk
# The indices are those inside a chunk. Add where the chunk begins.
# see: 10.9
@partial(jax.jit, static_argnums=0)
def _chunk_norms(loss, params, x, labels):
    grads = jax.vmap(jax.grad(loss), (None, 0, 0))(params, x, labels)
    return jax.vmap(global_norm)(grads)


def hardest(loss, params, x, labels, k, chunk):
    rest = -len(x) % chunk
    rows = np.pad(x, ((0, rest), (0, 0))).reshape(-1, chunk, x.shape[1])
    names = np.pad(labels, (0, rest)).reshape(-1, chunk)
    norms = np.concatenate([_chunk_norms(loss, params, *each) for each in zip(rows, names)])
    norms = norms[: len(x)]
    order = np.argsort(-norms, kind="stable")[:k]
    return order % chunk, norms[order]
