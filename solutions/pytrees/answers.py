"""Right and wrong answers to the exercises of chapter 07; parsed, never imported."""
# ruff: noqa

# %% 7.1 right: a NamedTuple whose static numbers are a node of their own
from typing import NamedTuple


@jax.tree_util.register_static
@dataclass(frozen=True)
class _Numbers:
    rate: float
    decay: float


class TrainState(NamedTuple):
    params: object
    ema: object
    step: object
    key: object
    numbers: _Numbers

    rate = property(lambda self: self.numbers.rate)
    decay = property(lambda self: self.numbers.decay)

    @staticmethod
    def create(params, key, *, rate, decay):
        ema = jax.tree.map(lambda p: jnp.asarray(p, "float32"), params)
        return TrainState(params, ema, jnp.int32(0), key, _Numbers(rate, decay))

    def apply_gradients(self, grads):
        def moved(p, g):
            return jnp.asarray(p - self.rate * g, p.dtype)

        params = jax.tree.map(moved, self.params, grads)
        ema = jax.tree.map(lambda e, p: e + (1 - self.decay) * (p - e), self.ema, params)
        return self._replace(params=params, ema=ema, step=self.step + 1)


create_state, apply_gradients = TrainState.create, TrainState.apply_gradients


# %% 7.1 right: a dataclass of flax
from flax import struct


@struct.dataclass
class TrainState:
    params: Tree
    ema: Tree
    step: Array
    key: Array
    rate: float = struct.field(pytree_node=False)
    decay: float = struct.field(pytree_node=False)

    @classmethod
    def create(cls, params, key, *, rate, decay):
        ema = jax.tree.map(lambda p: p.astype(jnp.float32), params)
        return cls(params, ema, jnp.array(0, jnp.int32), key, rate, decay)

    def apply_gradients(self, grads):
        leaves, structure = jax.tree.flatten(self.params)
        slopes, averages = jax.tree.leaves(grads), jax.tree.leaves(self.ema)
        moved = [(p - self.rate * g).astype(p.dtype) for p, g in zip(leaves, slopes)]
        ema = [
            self.decay * e + (1 - self.decay) * p.astype(jnp.float32)
            for e, p in zip(averages, moved)
        ]
        return self.replace(
            params=structure.unflatten(moved), ema=structure.unflatten(ema), step=self.step + 1
        )


create_state, apply_gradients = TrainState.create, TrainState.apply_gradients


# %% 7.1 right: a class registered with keys, closed by hand
@jax.tree_util.register_pytree_with_keys_class
class TrainState:
    __slots__ = ("params", "ema", "step", "key", "rate", "decay")
    PARTS = ("params", "ema", "step", "key")

    def __init__(self, *values):
        for name, value in zip(self.__slots__, values, strict=True):
            object.__setattr__(self, name, value)

    def __setattr__(self, name, value):
        raise AttributeError(f"{name} can't be set")

    def tree_flatten_with_keys(self):
        keys = [(jax.tree_util.GetAttrKey(n), getattr(self, n)) for n in self.PARTS]
        return keys, (self.rate, self.decay)

    @classmethod
    def tree_unflatten(cls, aux, children):
        return cls(*children, *aux)

    @classmethod
    def create(cls, params, key, *, rate, decay):
        ema = jax.tree.map(lambda p: p.astype(jnp.float32), params)
        return cls(params, ema, jnp.zeros((), jnp.int32), key, rate, decay)

    def apply_gradients(self, grads):
        params = jax.tree.map(lambda p, g: (p - self.rate * g).astype(p.dtype), self.params, grads)
        ema = jax.tree.map(lambda e, p: e + (1 - self.decay) * (p - e), self.ema, params)
        return TrainState(params, ema, self.step + 1, self.key, self.rate, self.decay)


create_state, apply_gradients = TrainState.create, TrainState.apply_gradients


# %% 7.1 wrong: never registered
# A dataclass that JAX was not told of is a leaf. jit refuses it, and `jax.tree.map` hands over
# the whole state where you expect an array.
# see: 7.7
@dataclass(frozen=True)
class TrainState:
    params: Tree
    ema: Tree
    step: Array
    key: Array
    rate: float = field(metadata={"static": True})
    decay: float = field(metadata={"static": True})

    @classmethod
    def create(cls, params, key, *, rate, decay):
        ema = jax.tree.map(lambda p: p.astype(jnp.float32), params)
        return cls(params, ema, jnp.zeros((), jnp.int32), key, rate, decay)

    def apply_gradients(self, grads):
        params = jax.tree.map(lambda p, g: (p - self.rate * g).astype(p.dtype), self.params, grads)
        ema = jax.tree.map(lambda e, p: e + (1 - self.decay) * (p - e), self.ema, params)
        return replace(self, params=params, ema=ema, step=self.step + 1)


create_state, apply_gradients = TrainState.create, TrainState.apply_gradients


# %% 7.1 wrong: rate and decay are leaves
# Without `static` the two numbers are leaves: tracers inside jit, copied under vmap, and two rows
# more in every table.
# see: 7.8
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    params: Tree
    ema: Tree
    step: Array
    key: Array
    rate: float
    decay: float

    @classmethod
    def create(cls, params, key, *, rate, decay):
        ema = jax.tree.map(lambda p: p.astype(jnp.float32), params)
        return cls(params, ema, jnp.zeros((), jnp.int32), key, rate, decay)

    def apply_gradients(self, grads):
        params = jax.tree.map(lambda p, g: (p - self.rate * g).astype(p.dtype), self.params, grads)
        ema = jax.tree.map(lambda e, p: e + (1 - self.decay) * (p - e), self.ema, params)
        return replace(self, params=params, ema=ema, step=self.step + 1)


create_state, apply_gradients = TrainState.create, TrainState.apply_gradients


# %% 7.1 wrong: a config that compares by identity
# The structure compares static fields with `==`. A class without `__eq__` is equal to itself
# alone, so that each state is a structure of its own, and compiles again. A frozen dataclass
# compares by value.
# see: 7.8
class _Config:
    def __init__(self, rate, decay):
        self.rate, self.decay = rate, decay


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    params: Tree
    ema: Tree
    step: Array
    key: Array
    config: _Config = field(metadata={"static": True})

    rate = property(lambda self: self.config.rate)
    decay = property(lambda self: self.config.decay)

    @classmethod
    def create(cls, params, key, *, rate, decay):
        ema = jax.tree.map(lambda p: p.astype(jnp.float32), params)
        return cls(params, ema, jnp.zeros((), jnp.int32), key, _Config(rate, decay))

    def apply_gradients(self, grads):
        params = jax.tree.map(lambda p, g: (p - self.rate * g).astype(p.dtype), self.params, grads)
        ema = jax.tree.map(lambda e, p: e + (1 - self.decay) * (p - e), self.ema, params)
        return replace(self, params=params, ema=ema, step=self.step + 1)


create_state, apply_gradients = TrainState.create, TrainState.apply_gradients


# %% 7.1 wrong: static arrays
# An array can't be compared with `==` to one truth value, so it can't be a static field: the
# second state that meets a compiled function raises. Keep Python numbers.
# see: 7.8
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    params: Tree
    ema: Tree
    step: Array
    key: Array
    rate: float = field(metadata={"static": True})
    decay: float = field(metadata={"static": True})

    @classmethod
    def create(cls, params, key, *, rate, decay):
        ema = jax.tree.map(lambda p: p.astype(jnp.float32), params)
        return cls(
            params,
            ema,
            jnp.zeros((), jnp.int32),
            key,
            np.array([rate, rate]),
            np.array([decay, decay]),
        )

    def apply_gradients(self, grads):
        params = jax.tree.map(
            lambda p, g: (p - self.rate[0] * g).astype(p.dtype), self.params, grads
        )
        ema = jax.tree.map(
            lambda e, p: self.decay[0] * e + (1 - self.decay[0]) * p, self.ema, params
        )
        return replace(self, params=params, ema=ema, step=self.step + 1)


create_state, apply_gradients = TrainState.create, TrainState.apply_gradients


# %% 7.1 wrong: registered without keys
# `register_pytree_node` names no children: paths read “0/body/w”, and no pattern finds the
# params. Register with keys, or register a dataclass.
# see: 7.12
@dataclass(frozen=True)
class TrainState:
    params: Tree
    ema: Tree
    step: Array
    key: Array
    rate: float = field(metadata={"static": True})
    decay: float = field(metadata={"static": True})

    @classmethod
    def create(cls, params, key, *, rate, decay):
        ema = jax.tree.map(lambda p: p.astype(jnp.float32), params)
        return cls(params, ema, jnp.zeros((), jnp.int32), key, rate, decay)

    def apply_gradients(self, grads):
        params = jax.tree.map(lambda p, g: (p - self.rate * g).astype(p.dtype), self.params, grads)
        ema = jax.tree.map(lambda e, p: e + (1 - self.decay) * (p - e), self.ema, params)
        return replace(self, params=params, ema=ema, step=self.step + 1)


jax.tree_util.register_pytree_node(
    TrainState,
    lambda s: ((s.params, s.ema, s.step, s.key), (s.rate, s.decay)),
    lambda aux, children: TrainState(*children, *aux),
)


create_state, apply_gradients = TrainState.create, TrainState.apply_gradients


# %% 7.1 wrong: fields in another order
# The leaves come in the order of the fields. A checkpoint or a vector made of leaves is read back
# by that order alone.
# see: 7.8
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    step: Array
    params: Tree
    ema: Tree
    key: Array
    rate: float = field(metadata={"static": True})
    decay: float = field(metadata={"static": True})

    @classmethod
    def create(cls, params, key, *, rate, decay):
        ema = jax.tree.map(lambda p: p.astype(jnp.float32), params)
        return cls(jnp.zeros((), jnp.int32), params, ema, key, rate, decay)

    def apply_gradients(self, grads):
        params = jax.tree.map(lambda p, g: (p - self.rate * g).astype(p.dtype), self.params, grads)
        ema = jax.tree.map(lambda e, p: e + (1 - self.decay) * (p - e), self.ema, params)
        return replace(self, params=params, ema=ema, step=self.step + 1)


create_state, apply_gradients = TrainState.create, TrainState.apply_gradients


# %% 7.1 wrong: an average in the dtype of the params
# An average in float16 moves by a thousandth of a step, and float16 rounds that away. The task
# asks for float32.
# see: 7.9
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    params: Tree
    ema: Tree
    step: Array
    key: Array
    rate: float = field(metadata={"static": True})
    decay: float = field(metadata={"static": True})

    @classmethod
    def create(cls, params, key, *, rate, decay):
        ema = jax.tree.map(jnp.copy, params)
        return cls(params, ema, jnp.zeros((), jnp.int32), key, rate, decay)

    def apply_gradients(self, grads):
        params = jax.tree.map(lambda p, g: (p - self.rate * g).astype(p.dtype), self.params, grads)
        ema = jax.tree.map(
            lambda e, p: (self.decay * e + (1 - self.decay) * p).astype(e.dtype), self.ema, params
        )
        return replace(self, params=params, ema=ema, step=self.step + 1)


create_state, apply_gradients = TrainState.create, TrainState.apply_gradients


# %% 7.1 wrong: the average rounds too much, or too little
# A float16 times a Python number is a float16: so the share of the new params is rounded to three
# digits before it is added. Or the params were averaged before they were rounded. Round them first,
# then widen what is kept, and average that.
# see: 7.9
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    params: Tree
    ema: Tree
    step: Array
    key: Array
    rate: float = field(metadata={"static": True})
    decay: float = field(metadata={"static": True})

    @classmethod
    def create(cls, params, key, *, rate, decay):
        ema = jax.tree.map(lambda p: p.astype(jnp.float32), params)
        return cls(params, ema, jnp.zeros((), jnp.int32), key, rate, decay)

    def apply_gradients(self, grads):
        params = jax.tree.map(lambda p, g: (p - self.rate * g).astype(p.dtype), self.params, grads)
        ema = jax.tree.map(lambda e, p: self.decay * e + (1 - self.decay) * p, self.ema, params)
        return replace(self, params=params, ema=ema, step=self.step + 1)


create_state, apply_gradients = TrainState.create, TrainState.apply_gradients


# %% 7.1 wrong: averages the old params
# The average takes in the params after the step. The old ones lag one step behind.
# see: 7.9
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    params: Tree
    ema: Tree
    step: Array
    key: Array
    rate: float = field(metadata={"static": True})
    decay: float = field(metadata={"static": True})

    @classmethod
    def create(cls, params, key, *, rate, decay):
        ema = jax.tree.map(lambda p: p.astype(jnp.float32), params)
        return cls(params, ema, jnp.zeros((), jnp.int32), key, rate, decay)

    def apply_gradients(self, grads):
        params = jax.tree.map(lambda p, g: (p - self.rate * g).astype(p.dtype), self.params, grads)
        ema = jax.tree.map(lambda e, p: e + (1 - self.decay) * (p - e), self.ema, self.params)
        return replace(self, params=params, ema=ema, step=self.step + 1)


create_state, apply_gradients = TrainState.create, TrainState.apply_gradients


# %% 7.1 wrong: the weights of the average swapped
# `decay` is the weight of what was there. Swapped, the average is hardly more than the last
# params.
# see: 7.9
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    params: Tree
    ema: Tree
    step: Array
    key: Array
    rate: float = field(metadata={"static": True})
    decay: float = field(metadata={"static": True})

    @classmethod
    def create(cls, params, key, *, rate, decay):
        ema = jax.tree.map(lambda p: p.astype(jnp.float32), params)
        return cls(params, ema, jnp.zeros((), jnp.int32), key, rate, decay)

    def apply_gradients(self, grads):
        params = jax.tree.map(lambda p, g: (p - self.rate * g).astype(p.dtype), self.params, grads)
        ema = jax.tree.map(lambda e, p: e + self.decay * (p - e), self.ema, params)
        return replace(self, params=params, ema=ema, step=self.step + 1)


create_state, apply_gradients = TrainState.create, TrainState.apply_gradients


# %% 7.1 wrong: lets the gradients promote the params
# float16 minus float32 is float32. After one step the state has another dtype, and compiles
# again. Cast the result back.
# see: 7.9
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    params: Tree
    ema: Tree
    step: Array
    key: Array
    rate: float = field(metadata={"static": True})
    decay: float = field(metadata={"static": True})

    @classmethod
    def create(cls, params, key, *, rate, decay):
        ema = jax.tree.map(lambda p: p.astype(jnp.float32), params)
        return cls(params, ema, jnp.zeros((), jnp.int32), key, rate, decay)

    def apply_gradients(self, grads):
        params = jax.tree.map(lambda p, g: p - self.rate * g, self.params, grads)
        ema = jax.tree.map(lambda e, p: e + (1 - self.decay) * (p - e), self.ema, params)
        return replace(self, params=params, ema=ema, step=self.step + 1)


create_state, apply_gradients = TrainState.create, TrainState.apply_gradients


# %% 7.1 wrong: rounds the step before it subtracts
# A float16 between 1/2 and 1 knows no steps below 2⁻¹¹. A step of 0.9993 becomes 0.9995 there, and
# 1 − 0.9995 is wrong by a third. Subtract in float32, and round once.
# see: 7.9
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    params: Tree
    ema: Tree
    step: Array
    key: Array
    rate: float = field(metadata={"static": True})
    decay: float = field(metadata={"static": True})

    @classmethod
    def create(cls, params, key, *, rate, decay):
        ema = jax.tree.map(lambda p: p.astype(jnp.float32), params)
        return cls(params, ema, jnp.zeros((), jnp.int32), key, rate, decay)

    def apply_gradients(self, grads):
        params = jax.tree.map(lambda p, g: p - (self.rate * g).astype(p.dtype), self.params, grads)
        ema = jax.tree.map(lambda e, p: e + (1 - self.decay) * (p - e), self.ema, params)
        return replace(self, params=params, ema=ema, step=self.step + 1)


create_state, apply_gradients = TrainState.create, TrainState.apply_gradients


# %% 7.1 wrong: converts in __post_init__
# JAX rebuilds the state by calling the class, with whatever the leaves are: shapes, words,
# tracers. A constructor that converts them raises, or makes arrays of what were none.
# see: 7.12
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    params: Tree
    ema: Tree
    step: Array
    key: Array
    rate: float = field(metadata={"static": True})
    decay: float = field(metadata={"static": True})

    def __post_init__(self):
        object.__setattr__(self, "step", jnp.asarray(self.step, jnp.int32))

    @classmethod
    def create(cls, params, key, *, rate, decay):
        ema = jax.tree.map(lambda p: p.astype(jnp.float32), params)
        return cls(params, ema, jnp.zeros((), jnp.int32), key, rate, decay)

    def apply_gradients(self, grads):
        params = jax.tree.map(lambda p, g: (p - self.rate * g).astype(p.dtype), self.params, grads)
        ema = jax.tree.map(lambda e, p: e + (1 - self.decay) * (p - e), self.ema, params)
        return replace(self, params=params, ema=ema, step=self.step + 1)


create_state, apply_gradients = TrainState.create, TrainState.apply_gradients


# %% 7.1 wrong: changes itself
# A step that assigns to `self` leaves tracers in the state that it was given, and the old state
# is gone. Return a new one: `dataclasses.replace`.
# see: 7.8
@jax.tree_util.register_dataclass
@dataclass
class TrainState:
    params: Tree
    ema: Tree
    step: Array
    key: Array
    rate: float = field(metadata={"static": True})
    decay: float = field(metadata={"static": True})

    @classmethod
    def create(cls, params, key, *, rate, decay):
        ema = jax.tree.map(lambda p: p.astype(jnp.float32), params)
        return cls(params, ema, jnp.zeros((), jnp.int32), key, rate, decay)

    def apply_gradients(self, grads):
        params = jax.tree.map(lambda p, g: (p - self.rate * g).astype(p.dtype), self.params, grads)
        ema = jax.tree.map(lambda e, p: e + (1 - self.decay) * (p - e), self.ema, params)
        self.params, self.ema, self.step = params, ema, self.step + 1
        return self


create_state, apply_gradients = TrainState.create, TrainState.apply_gradients


# %% 7.1 wrong: not frozen
# An assignment to a field goes through without a word. `frozen=True` refuses it.
# see: 7.8
@jax.tree_util.register_dataclass
@dataclass
class TrainState:
    params: Tree
    ema: Tree
    step: Array
    key: Array
    rate: float = field(metadata={"static": True})
    decay: float = field(metadata={"static": True})

    @classmethod
    def create(cls, params, key, *, rate, decay):
        ema = jax.tree.map(lambda p: p.astype(jnp.float32), params)
        return cls(params, ema, jnp.zeros((), jnp.int32), key, rate, decay)

    def apply_gradients(self, grads):
        params = jax.tree.map(lambda p, g: (p - self.rate * g).astype(p.dtype), self.params, grads)
        ema = jax.tree.map(lambda e, p: e + (1 - self.decay) * (p - e), self.ema, params)
        return replace(self, params=params, ema=ema, step=self.step + 1)


create_state, apply_gradients = TrainState.create, TrainState.apply_gradients


# %% 7.1 wrong: a step that is a Python number
# 0 is a leaf without a dtype: weakly typed in the first call and strong in the second, which
# compiles again. Make it an int32 array.
# see: 7.8
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    params: Tree
    ema: Tree
    step: Array
    key: Array
    rate: float = field(metadata={"static": True})
    decay: float = field(metadata={"static": True})

    @classmethod
    def create(cls, params, key, *, rate, decay):
        ema = jax.tree.map(lambda p: p.astype(jnp.float32), params)
        return cls(params, ema, 0, key, rate, decay)

    def apply_gradients(self, grads):
        params = jax.tree.map(lambda p, g: (p - self.rate * g).astype(p.dtype), self.params, grads)
        ema = jax.tree.map(lambda e, p: e + (1 - self.decay) * (p - e), self.ema, params)
        return replace(self, params=params, ema=ema, step=self.step + 1)


create_state, apply_gradients = TrainState.create, TrainState.apply_gradients


# %% 7.1 wrong: a weakly typed step
# `jnp.asarray(0)` is weakly typed, and 0 + 1 with it; after a step that adds an array, or a cast,
# it is not. Then the second step is another program. Say the dtype: `jnp.zeros((), jnp.int32)`.
# see: 7.9
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    params: Tree
    ema: Tree
    step: Array
    key: Array
    rate: float = field(metadata={"static": True})
    decay: float = field(metadata={"static": True})

    @classmethod
    def create(cls, params, key, *, rate, decay):
        ema = jax.tree.map(lambda p: p.astype(jnp.float32), params)
        return cls(params, ema, jnp.asarray(0), key, rate, decay)

    def apply_gradients(self, grads):
        params = jax.tree.map(lambda p, g: (p - self.rate * g).astype(p.dtype), self.params, grads)
        ema = jax.tree.map(lambda e, p: e + (1 - self.decay) * (p - e), self.ema, params)
        return replace(self, params=params, ema=ema, step=self.step + jnp.int32(1))


create_state, apply_gradients = TrainState.create, TrainState.apply_gradients


# %% 7.1 wrong: a new key at each step
# The task keeps the key: what a step needs comes from `fold_in(key, step)`, so that a resumed run
# draws the same numbers.
# see: 7.9
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    params: Tree
    ema: Tree
    step: Array
    key: Array
    rate: float = field(metadata={"static": True})
    decay: float = field(metadata={"static": True})

    @classmethod
    def create(cls, params, key, *, rate, decay):
        ema = jax.tree.map(lambda p: p.astype(jnp.float32), params)
        return cls(params, ema, jnp.zeros((), jnp.int32), key, rate, decay)

    def apply_gradients(self, grads):
        params = jax.tree.map(lambda p, g: (p - self.rate * g).astype(p.dtype), self.params, grads)
        ema = jax.tree.map(lambda e, p: e + (1 - self.decay) * (p - e), self.ema, params)
        return replace(
            self, params=params, ema=ema, step=self.step + 1, key=jax.random.fold_in(self.key, 1)
        )


create_state, apply_gradients = TrainState.create, TrainState.apply_gradients


# %% 7.1 wrong: goes through NumPy
# `np.array` of a tracer raises: a state that is made that way can't be made under jit or vmap.
# see: 7.7
@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class TrainState:
    params: Tree
    ema: Tree
    step: Array
    key: Array
    rate: float = field(metadata={"static": True})
    decay: float = field(metadata={"static": True})

    @classmethod
    def create(cls, params, key, *, rate, decay):
        ema = jax.tree.map(lambda p: jnp.asarray(np.array(p, np.float32)), params)
        return cls(params, ema, jnp.zeros((), jnp.int32), key, rate, decay)

    def apply_gradients(self, grads):
        params = jax.tree.map(lambda p, g: (p - self.rate * g).astype(p.dtype), self.params, grads)
        ema = jax.tree.map(lambda e, p: e + (1 - self.decay) * (p - e), self.ema, params)
        return replace(self, params=params, ema=ema, step=self.step + 1)


create_state, apply_gradients = TrainState.create, TrainState.apply_gradients


# %% 7.2 right: from the keys' own attributes
def parameter_table(params):
    from collections import Counter

    def text(key):
        for attribute in ("key", "name", "idx"):
            if hasattr(key, attribute):
                return str(getattr(key, attribute))
        return str(key)

    subtotals, rows = Counter({"": 0}), []
    for path, leaf in jax.tree.flatten_with_path(params)[0]:
        keys = [text(key) for key in path]
        size = leaf.dtype.itemsize
        for axis in leaf.shape:
            size *= axis
        for stop in range(len(keys)) or [0]:
            subtotals["/".join(keys[:stop])] += size
        row = {"path": "/".join(keys), "shape": tuple(leaf.shape), "dtype": leaf.dtype.name}
        rows.append({**row, "bytes": size})
    for row in rows:
        row["share"] = row["bytes"] / max(subtotals[""], 1)
    return rows, dict(subtotals)


# %% 7.2 right: with map_with_path and NumPy
def parameter_table(params):
    rows, subtotals = [], {"": 0}

    def look(path, leaf):
        def name(keys):
            return jax.tree_util.keystr(keys, simple=True, separator="/")

        size = int(np.prod(leaf.shape, dtype=np.int64)) * jnp.dtype(leaf.dtype).itemsize
        rows.append([name(path), list(leaf.shape), jnp.dtype(leaf.dtype).name, size])
        containers = {tuple(path[:n]) for n in range(len(path))} | {()}
        for keys in containers:
            subtotals[name(keys)] = subtotals.get(name(keys), 0) + size

    jax.tree.map_with_path(look, params)
    total = np.float64(subtotals[""])
    with np.errstate(invalid="ignore"):
        return [
            dict(path=p, shape=s, dtype=d, bytes=n, share=np.nan_to_num(n / total))
            for p, s, d, n in rows
        ], subtotals


# %% 7.2 wrong: sizes by way of nbytes
# A `ShapeDtypeStruct` has a shape and a dtype, and no `nbytes`: nothing was allocated. Compute
# the bytes from the two.
# see: 7.10
def parameter_table(params):
    def name(path):
        return jax.tree_util.keystr(path, simple=True, separator="/")

    leaves = jax.tree.leaves_with_path(params)
    sizes = [leaf.nbytes for _, leaf in leaves]
    total = sum(sizes)
    rows, subtotals = [], {"": 0}
    for (path, leaf), size in zip(leaves, sizes):
        rows.append(
            {
                "path": name(path),
                "shape": leaf.shape,
                "dtype": str(leaf.dtype),
                "bytes": size,
                "share": size / total if total else 0.0,
            }
        )
        for length in range(max(len(path), 1)):
            prefix = name(path[:length])
            subtotals[prefix] = subtotals.get(prefix, 0) + size
    return rows, subtotals


# %% 7.2 wrong: cuts the path at slashes
# A key may hold a slash. Cut the path between its keys, which are a tuple, and join what you have
# cut.
# see: 7.10
def parameter_table(params):
    def name(path):
        return jax.tree_util.keystr(path, simple=True, separator="/")

    leaves = jax.tree.leaves_with_path(params)
    sizes = [math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for _, leaf in leaves]
    total = sum(sizes)
    rows, subtotals = [], {"": 0}
    for (path, leaf), size in zip(leaves, sizes):
        rows.append(
            {
                "path": name(path),
                "shape": leaf.shape,
                "dtype": str(leaf.dtype),
                "bytes": size,
                "share": size / total if total else 0.0,
            }
        )
        words = name(path).split("/")
        for length in range(len(words)):
            prefix = "/".join(words[:length])
            subtotals[prefix] = subtotals.get(prefix, 0) + size
    return rows, subtotals


# %% 7.2 wrong: adds up whatever begins alike
# “convex” begins with “conv” and is no part of it. Compare keys, not characters.
# see: 7.10
def parameter_table(params):
    def name(path):
        return jax.tree_util.keystr(path, simple=True, separator="/")

    leaves = jax.tree.leaves_with_path(params)
    sizes = [math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for _, leaf in leaves]
    total = sum(sizes)
    rows, subtotals = [], {"": 0}
    for (path, leaf), size in zip(leaves, sizes):
        rows.append(
            {
                "path": name(path),
                "shape": leaf.shape,
                "dtype": str(leaf.dtype),
                "bytes": size,
                "share": size / total if total else 0.0,
            }
        )
        for length in range(max(len(path), 1)):
            prefix = name(path[:length])
            subtotals[prefix] = subtotals.get(prefix, 0) + size
    for prefix in subtotals:
        alike = [row["bytes"] for row in rows if row["path"].startswith(prefix)]
        subtotals[prefix] = sum(alike)
    return rows, subtotals


# %% 7.2 wrong: counts with JAX
# `jnp.prod` counts in int32 and wraps around beyond two billion, without a word. Python's
# integers have no end.
# see: 7.10
def parameter_table(params):
    def name(path):
        return jax.tree_util.keystr(path, simple=True, separator="/")

    leaves = jax.tree.leaves_with_path(params)
    sizes = [
        int(jnp.prod(jnp.array(leaf.shape, jnp.int32))) * np.dtype(leaf.dtype).itemsize
        for _, leaf in leaves
    ]
    total = sum(sizes)
    rows, subtotals = [], {"": 0}
    for (path, leaf), size in zip(leaves, sizes):
        rows.append(
            {
                "path": name(path),
                "shape": leaf.shape,
                "dtype": str(leaf.dtype),
                "bytes": size,
                "share": size / total if total else 0.0,
            }
        )
        for length in range(max(len(path), 1)):
            prefix = name(path[:length])
            subtotals[prefix] = subtotals.get(prefix, 0) + size
    return rows, subtotals


# %% 7.2 wrong: four bytes for every number
# bfloat16 takes two bytes, int8 one. The dtype knows: `itemsize`.
# see: 7.10
def parameter_table(params):
    def name(path):
        return jax.tree_util.keystr(path, simple=True, separator="/")

    leaves = jax.tree.leaves_with_path(params)
    sizes = [math.prod(leaf.shape) * 4 for _, leaf in leaves]
    total = sum(sizes)
    rows, subtotals = [], {"": 0}
    for (path, leaf), size in zip(leaves, sizes):
        rows.append(
            {
                "path": name(path),
                "shape": leaf.shape,
                "dtype": str(leaf.dtype),
                "bytes": size,
                "share": size / total if total else 0.0,
            }
        )
        for length in range(max(len(path), 1)):
            prefix = name(path[:length])
            subtotals[prefix] = subtotals.get(prefix, 0) + size
    return rows, subtotals


# %% 7.2 wrong: counts numbers, not bytes
# The number of elements times the `itemsize` of the dtype is the number of bytes.
# see: 7.10
def parameter_table(params):
    def name(path):
        return jax.tree_util.keystr(path, simple=True, separator="/")

    leaves = jax.tree.leaves_with_path(params)
    sizes = [math.prod(leaf.shape) for _, leaf in leaves]
    total = sum(sizes)
    rows, subtotals = [], {"": 0}
    for (path, leaf), size in zip(leaves, sizes):
        rows.append(
            {
                "path": name(path),
                "shape": leaf.shape,
                "dtype": str(leaf.dtype),
                "bytes": size,
                "share": size / total if total else 0.0,
            }
        )
        for length in range(max(len(path), 1)):
            prefix = name(path[:length])
            subtotals[prefix] = subtotals.get(prefix, 0) + size
    return rows, subtotals


# %% 7.2 wrong: no total
# The empty prefix is the whole tree: all bytes lie under it.
# see: 7.10
def parameter_table(params):
    def name(path):
        return jax.tree_util.keystr(path, simple=True, separator="/")

    leaves = jax.tree.leaves_with_path(params)
    sizes = [math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for _, leaf in leaves]
    total = sum(sizes)
    rows, subtotals = [], {}
    for (path, leaf), size in zip(leaves, sizes):
        rows.append(
            {
                "path": name(path),
                "shape": leaf.shape,
                "dtype": str(leaf.dtype),
                "bytes": size,
                "share": size / total if total else 0.0,
            }
        )
        for length in range(1, len(path)):
            prefix = name(path[:length])
            subtotals[prefix] = subtotals.get(prefix, 0) + size
    return rows, subtotals


# %% 7.2 wrong: a subtotal for each leaf
# A leaf is no prefix: its bytes are in its row. Prefixes are the containers.
# see: 7.10
def parameter_table(params):
    def name(path):
        return jax.tree_util.keystr(path, simple=True, separator="/")

    leaves = jax.tree.leaves_with_path(params)
    sizes = [math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for _, leaf in leaves]
    total = sum(sizes)
    rows, subtotals = [], {"": 0}
    for (path, leaf), size in zip(leaves, sizes):
        rows.append(
            {
                "path": name(path),
                "shape": leaf.shape,
                "dtype": str(leaf.dtype),
                "bytes": size,
                "share": size / total if total else 0.0,
            }
        )
        for length in range(len(path) + 1):
            prefix = name(path[:length])
            subtotals[prefix] = subtotals.get(prefix, 0) + size
    return rows, subtotals


# %% 7.2 wrong: subtotals of the outermost keys alone
# Containers within containers have subtotals, too.
# see: 7.10
def parameter_table(params):
    def name(path):
        return jax.tree_util.keystr(path, simple=True, separator="/")

    leaves = jax.tree.leaves_with_path(params)
    sizes = [math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for _, leaf in leaves]
    total = sum(sizes)
    rows, subtotals = [], {"": 0}
    for (path, leaf), size in zip(leaves, sizes):
        rows.append(
            {
                "path": name(path),
                "shape": leaf.shape,
                "dtype": str(leaf.dtype),
                "bytes": size,
                "share": size / total if total else 0.0,
            }
        )
        for length in range(min(len(path), 2) or 1):
            prefix = name(path[:length])
            subtotals[prefix] = subtotals.get(prefix, 0) + size
    return rows, subtotals


# %% 7.2 wrong: divides by a total of zero
# A tree may have leaves and no bytes, for instance an empty buffer. 0 / 0 raises.
# see: 7.10
def parameter_table(params):
    def name(path):
        return jax.tree_util.keystr(path, simple=True, separator="/")

    leaves = jax.tree.leaves_with_path(params)
    sizes = [math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for _, leaf in leaves]
    total = sum(sizes)
    rows, subtotals = [], {"": 0}
    for (path, leaf), size in zip(leaves, sizes):
        rows.append(
            {
                "path": name(path),
                "shape": leaf.shape,
                "dtype": str(leaf.dtype),
                "bytes": size,
                "share": size / total,
            }
        )
        for length in range(max(len(path), 1)):
            prefix = name(path[:length])
            subtotals[prefix] = subtotals.get(prefix, 0) + size
    return rows, subtotals


# %% 7.2 wrong: paths with brackets
# `keystr` alone writes Python: `['layers'][0].w`. With `simple=True, separator="/"` it writes the
# path that the task asks for.
# see: 7.10
def parameter_table(params):
    def name(path):
        return jax.tree_util.keystr(path)

    leaves = jax.tree.leaves_with_path(params)
    sizes = [math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for _, leaf in leaves]
    total = sum(sizes)
    rows, subtotals = [], {"": 0}
    for (path, leaf), size in zip(leaves, sizes):
        rows.append(
            {
                "path": name(path),
                "shape": leaf.shape,
                "dtype": str(leaf.dtype),
                "bytes": size,
                "share": size / total if total else 0.0,
            }
        )
        for length in range(max(len(path), 1)):
            prefix = name(path[:length])
            subtotals[prefix] = subtotals.get(prefix, 0) + size
    return rows, subtotals


# %% 7.2 wrong: knows dicts and sequences only
# A NamedTuple is a tuple with names, and a registered dataclass is no sequence at all. Let JAX
# walk: `jax.tree.leaves_with_path`.
# see: 7.10
def parameter_table(params):
    rows, subtotals = [], {"": 0}

    def walk(node, keys):
        if isinstance(node, dict):
            for key in sorted(node):
                walk(node[key], (*keys, str(key)))
        elif isinstance(node, (list, tuple)):
            for place, child in enumerate(node):
                walk(child, (*keys, str(place)))
        elif node is not None and hasattr(node, "shape"):
            size = math.prod(node.shape) * np.dtype(node.dtype).itemsize
            row = {"path": "/".join(keys), "shape": node.shape, "dtype": str(node.dtype)}
            rows.append({**row, "bytes": size})
            for stop in range(max(len(keys), 1)):
                prefix = "/".join(keys[:stop])
                subtotals[prefix] = subtotals.get(prefix, 0) + size

    walk(params, ())
    for row in rows:
        row["share"] = row["bytes"] / max(subtotals[""], 1)
    return rows, subtotals


# %% 7.2 wrong: in the order of a dict
# The rows come in the order in which JAX flattens, by sorted keys. In the order in which the dict
# was filled they don't fit the leaves.
# see: 7.6
def parameter_table(params):
    def name(path):
        return jax.tree_util.keystr(path, simple=True, separator="/")

    leaves = jax.tree.leaves_with_path(params)
    sizes = [math.prod(leaf.shape) * np.dtype(leaf.dtype).itemsize for _, leaf in leaves]
    total = sum(sizes)
    rows, subtotals = [], {"": 0}
    for (path, leaf), size in zip(leaves, sizes):
        rows.append(
            {
                "path": name(path),
                "shape": leaf.shape,
                "dtype": str(leaf.dtype),
                "bytes": size,
                "share": size / total if total else 0.0,
            }
        )
        for length in range(max(len(path), 1)):
            prefix = name(path[:length])
            subtotals[prefix] = subtotals.get(prefix, 0) + size
    return sorted(rows, key=lambda row: -row["bytes"]), subtotals


# %% 7.3 right: regular expressions over all names
import re


def mask_by_path(params, rules, default=False):
    named, structure = jax.tree.flatten_with_path(params)
    names = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in named]
    values = [default] * len(names)
    for pattern, value in reversed(list(rules)):
        words = re.escape(pattern).replace(r"\*", ".*").replace(r"\?", ".")
        hits = [n for n, name in enumerate(names) if re.fullmatch(words, name)]
        if not hits:
            raise ValueError(f"the pattern {pattern!r} fits none of {names}")
        for n in hits:
            values[n] = value
    return jax.tree.unflatten(structure, values)


# %% 7.3 right: rule by rule, what is left
def mask_by_path(params, rules, default=False):
    leaves = jax.tree.leaves_with_path(params)
    names = [jax.tree_util.keystr(path, simple=True, separator="/") for path, _ in leaves]
    chosen = {}
    for pattern, value in rules:
        hits = fnmatch.filter(names, pattern)
        if len(hits) == 0:
            raise ValueError("unmatched pattern: " + pattern)
        for name in hits:
            chosen.setdefault(name, value)
    answer = iter([chosen.get(name, default) for name in names])
    return jax.tree.map(lambda leaf: next(answer), params)


# %% 7.3 wrong: the last pattern wins
# The first pattern that fits decides, so that exceptions stand before the rule.
# see: 7.11
def mask_by_path(params, rules, default=False):
    waiting = {pattern for pattern, _ in rules}

    def value_of(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        fitting = [(p, value) for p, value in rules if fnmatch.fnmatchcase(name, p)]
        waiting.difference_update(p for p, _ in fitting)
        return fitting[-1][1] if fitting else default

    mask = jax.tree.map_with_path(value_of, params)
    if waiting:
        raise ValueError(f"no path fits {sorted(waiting)}")
    return mask


# %% 7.3 wrong: a pattern that fits a part
# “w” is not “layers/0/w”, and “norm” is not “norm/scale”: a pattern speaks of the whole path.
# Where you mean a part, write `*` around it.
# see: 7.11
def mask_by_path(params, rules, default=False):
    waiting = {pattern for pattern, _ in rules}

    def value_of(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        fitting = [(p, value) for p, value in rules if fnmatch.fnmatchcase(name, f"*{p}*")]
        waiting.difference_update(p for p, _ in fitting)
        return fitting[0][1] if fitting else default

    mask = jax.tree.map_with_path(value_of, params)
    if waiting:
        raise ValueError(f"no path fits {sorted(waiting)}")
    return mask


# %% 7.3 wrong: looks at the last key
# A pattern speaks of the whole path, from the outermost key on, not of the last key.
# see: 7.11
def mask_by_path(params, rules, default=False):
    waiting = {pattern for pattern, _ in rules}

    def value_of(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        fitting = [
            (p, value)
            for p, value in rules
            if fnmatch.fnmatchcase(name.split("/")[-1], p.split("/")[-1])
        ]
        waiting.difference_update(p for p, _ in fitting)
        return fitting[0][1] if fitting else default

    mask = jax.tree.map_with_path(value_of, params)
    if waiting:
        raise ValueError(f"no path fits {sorted(waiting)}")
    return mask


# %% 7.3 wrong: takes False for nothing
# `value or default` gives the default where a rule says False. Ask whether a rule was found, not
# whether its value is true.
# see: 7.11
def mask_by_path(params, rules, default=False):
    waiting = {pattern for pattern, _ in rules}

    def value_of(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        fitting = [(p, value) for p, value in rules if fnmatch.fnmatchcase(name, p)]
        waiting.difference_update(p for p, _ in fitting)
        return (fitting and fitting[0][1]) or default

    mask = jax.tree.map_with_path(value_of, params)
    if waiting:
        raise ValueError(f"no path fits {sorted(waiting)}")
    return mask


# %% 7.3 wrong: says nothing of a pattern that fits nothing
# A misspelt pattern decays what it should spare, for months. The task wants a ValueError with the
# pattern in it.
# see: 7.11
def mask_by_path(params, rules, default=False):
    waiting = {pattern for pattern, _ in rules}

    def value_of(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        fitting = [(p, value) for p, value in rules if fnmatch.fnmatchcase(name, p)]
        waiting.difference_update(p for p, _ in fitting)
        return fitting[0][1] if fitting else default

    mask = jax.tree.map_with_path(value_of, params)
    return mask


# %% 7.3 wrong: the last pattern wins, and none is refused
# Two things: rules that overwrite what an earlier one said, where the first should decide; and a
# pattern that fits nothing, of which nobody hears.
# see: 7.11
def mask_by_path(params, rules, default=False):
    def value_of(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        found = default
        for pattern, value in rules:
            if fnmatch.fnmatchcase(name, pattern):
                found = value
        return found

    return jax.tree.map_with_path(value_of, params)


# %% 7.3 wrong: a part is enough, and no pattern is refused
# Two things: a pattern speaks of the whole path, not of a part of it; and one that fits nothing is
# an error.
# see: 7.11
def mask_by_path(params, rules, default=False):
    def value_of(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        for pattern, value in rules:
            if fnmatch.fnmatchcase(name, f"*{pattern}*"):
                return value
        return default

    return jax.tree.map_with_path(value_of, params)


# %% 7.3 wrong: takes False for nothing, and refuses no pattern
# Two things: a rule that says False was found, and decides; and a pattern that fits nothing is an
# error.
# see: 7.11
def mask_by_path(params, rules, default=False):
    def value_of(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        fitting = (value for pattern, value in rules if fnmatch.fnmatchcase(name, pattern))
        return next(fitting, None) or default

    return jax.tree.map_with_path(value_of, params)


# %% 7.3 wrong: refuses a pattern in the shade
# A pattern whose paths were all taken by earlier rules is not misspelt. Only one that fits no
# path at all is refused.
# see: 7.11
def mask_by_path(params, rules, default=False):
    waiting = {pattern for pattern, _ in rules}

    def value_of(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        fitting = [(p, value) for p, value in rules if fnmatch.fnmatchcase(name, p)]
        waiting.difference_update(p for p, _ in fitting[:1])
        return fitting[0][1] if fitting else default

    mask = jax.tree.map_with_path(value_of, params)
    if waiting:
        raise ValueError(f"no path fits {sorted(waiting)}")
    return mask


# %% 7.3 wrong: an error without the pattern
# “Unmatched pattern” sends the reader through all rules. Name it.
# see: 7.11
def mask_by_path(params, rules, default=False):
    waiting = {pattern for pattern, _ in rules}

    def value_of(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        fitting = [(p, value) for p, value in rules if fnmatch.fnmatchcase(name, p)]
        waiting.difference_update(p for p, _ in fitting)
        return fitting[0][1] if fitting else default

    mask = jax.tree.map_with_path(value_of, params)
    if waiting:
        raise ValueError("a pattern fits no path")
    return mask


# %% 7.3 wrong: arrays for values
# An optimizer looks at the mask while tracing: `if on`. An array is a tracer there, or a leaf
# with a dtype; and a label is no array at all. Give the values back as they came.
# see: 7.11
def mask_by_path(params, rules, default=False):
    waiting = {pattern for pattern, _ in rules}

    def value_of(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        fitting = [(p, value) for p, value in rules if fnmatch.fnmatchcase(name, p)]
        waiting.difference_update(p for p, _ in fitting)
        return np.asarray(fitting[0][1] if fitting else default)

    mask = jax.tree.map_with_path(value_of, params)
    if waiting:
        raise ValueError(f"no path fits {sorted(waiting)}")
    return mask


# %% 7.3 wrong: a dict of paths
# The mask is looked up leaf by leaf by `jax.tree.map(…, params, mask)`: it needs the structure of
# the params.
# see: 7.11
def mask_by_path(params, rules, default=False):
    waiting = {pattern for pattern, _ in rules}

    def value_of(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        fitting = [(p, value) for p, value in rules if fnmatch.fnmatchcase(name, p)]
        waiting.difference_update(p for p, _ in fitting)
        return fitting[0][1] if fitting else default

    mask = jax.tree.map_with_path(value_of, params)
    if waiting:
        raise ValueError(f"no path fits {sorted(waiting)}")
    paths = jax.tree.leaves_with_path(mask)
    return {jax.tree_util.keystr(path): value for path, value in paths}


# %% 7.3 wrong: a value for None
# `None` is an empty container and gets no value: with one, the mask has a leaf that the params
# don't have.
# see: 7.4
def mask_by_path(params, rules, default=False):
    waiting = {pattern for pattern, _ in rules}

    def value_of(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        fitting = [(p, value) for p, value in rules if fnmatch.fnmatchcase(name, p)]
        waiting.difference_update(p for p, _ in fitting)
        return fitting[0][1] if fitting else default

    mask = jax.tree.map_with_path(value_of, params, is_leaf=lambda x: x is None)
    if waiting:
        raise ValueError(f"no path fits {sorted(waiting)}")
    return mask


# %% 7.3 wrong: a regular expression made by replacing stars
# A pattern that becomes a regular expression must be escaped first: there `.` fits any character,
# and `?` makes the character before it optional.
# see: 7.11
import re


def mask_by_path(params, rules, default=False):
    waiting = {pattern for pattern, _ in rules}

    def value_of(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        fitting = [
            (p, value)
            for p, value in rules
            if re.fullmatch(p.replace("*", ".*").replace("?", "."), name)
        ]
        waiting.difference_update(p for p, _ in fitting)
        return fitting[0][1] if fitting else default

    mask = jax.tree.map_with_path(value_of, params)
    if waiting:
        raise ValueError(f"no path fits {sorted(waiting)}")
    return mask


# %% 7.3 wrong: upper and lower case alike
# “W” and “w” are two keys.
# see: 7.11
def mask_by_path(params, rules, default=False):
    waiting = {pattern for pattern, _ in rules}

    def value_of(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        fitting = [(p, value) for p, value in rules if fnmatch.fnmatchcase(name.lower(), p.lower())]
        waiting.difference_update(p for p, _ in fitting)
        return fitting[0][1] if fitting else default

    mask = jax.tree.map_with_path(value_of, params)
    if waiting:
        raise ValueError(f"no path fits {sorted(waiting)}")
    return mask


# %% 7.3 wrong: a star that stops at a slash
# Here `*` stands for any characters, slashes too. File names are matched key by key; paths of
# leaves are not.
# see: 7.11
import re


def mask_by_path(params, rules, default=False):
    waiting = {pattern for pattern, _ in rules}

    def value_of(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        fitting = [
            (p, value)
            for p, value in rules
            if re.fullmatch(re.escape(p).replace(r"\*", "[^/]*").replace(r"\?", "."), name)
        ]
        waiting.difference_update(p for p, _ in fitting)
        return fitting[0][1] if fitting else default

    mask = jax.tree.map_with_path(value_of, params)
    if waiting:
        raise ValueError(f"no path fits {sorted(waiting)}")
    return mask


# %% 7.3 wrong: a KeyError
# The task asks for a ValueError. A KeyError prints its message in quotes, and is what a caller
# catches for another reason.
# see: 7.11
def mask_by_path(params, rules, default=False):
    waiting = {pattern for pattern, _ in rules}

    def value_of(path, leaf):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        fitting = [(p, value) for p, value in rules if fnmatch.fnmatchcase(name, p)]
        waiting.difference_update(p for p, _ in fitting)
        return fitting[0][1] if fitting else default

    mask = jax.tree.map_with_path(value_of, params)
    if waiting:
        raise KeyError(f"no path fits {sorted(waiting)}")
    return mask


# %% 7.4 right: a dataclass that JAX builds without calling it
@dataclass(frozen=True)
class LowRank:
    left: object
    right: object
    scale: float = 1.0

    def __post_init__(self):
        ranks = {np.shape(self.left)[1:], np.shape(self.right)[:1]}
        if len(ranks) != 1 or len(np.shape(self.right)) != 2:
            raise ValueError(f"factors of shape {np.shape(self.left)}, {np.shape(self.right)}")

    @property
    def shape(self):
        return (self.left.shape[0], self.right.shape[-1])

    def __matmul__(self, x):
        return jnp.dot(self.left, jnp.dot(self.right, x)) * self.scale


def _rebuilt(aux, children):
    matrix = LowRank.__new__(LowRank)
    matrix.__dict__.update(left=children[0], right=children[1], scale=aux[0])
    return matrix


jax.tree_util.register_pytree_with_keys(
    LowRank,
    lambda m: (
        ((jax.tree_util.GetAttrKey("left"), m.left), (jax.tree_util.GetAttrKey("right"), m.right)),
        (m.scale,),
    ),
    _rebuilt,
)


# %% 7.4 right: a plain registered dataclass behind a function that checks
@jax.tree_util.register_dataclass
@dataclass
class _Factors:
    left: Array
    right: Array
    scale: float = field(metadata={"static": True})

    @property
    def shape(self):
        return self.left.shape[0], self.right.shape[1]

    def __matmul__(self, x):
        return (self.scale * self.left) @ (self.right @ x)


def LowRank(left, right, scale=1.0):
    if left.ndim != 2 or right.ndim != 2:
        raise ValueError("a factor has two axes")
    if left.shape[1] != right.shape[0]:
        raise ValueError("the ranks differ")
    return _Factors(left, right, scale)


# %% 7.4 right: DictKeys and an alternative constructor
class LowRank:
    def __init__(self, left, right, scale=1.0):
        if not (len(left.shape) == len(right.shape) == 2 and left.shape[1] == len(right)):
            raise ValueError("expected (n, r) and (r, m)")
        self._set(left, right, scale)

    def _set(self, left, right, scale):
        vars(self).update(left=left, right=right, scale=scale)
        return self

    shape = property(lambda self: (len(self.left), self.right.shape[1]))

    def __matmul__(self, x):
        return self.scale * jnp.einsum("nr,rm,m...->n...", self.left, self.right, x)


jax.tree_util.register_pytree_with_keys(
    LowRank,
    lambda m: (
        [(jax.tree_util.DictKey("left"), m.left), (jax.tree_util.DictKey("right"), m.right)],
        m.scale,
    ),
    lambda scale, children: object.__new__(LowRank)._set(*children, scale),
)


# %% 7.4 wrong: checks whenever it is rebuilt
# JAX rebuilds containers around shapes, stacks and placeholders. A check in the constructor that
# it calls raises there. Rebuild without the constructor.
# see: 7.12
@jax.tree_util.register_dataclass
@dataclass
class LowRank:
    left: Array
    right: Array
    scale: float = field(default=1.0, metadata={"static": True})

    def __post_init__(self):
        if np.ndim(self.left) != 2 or np.ndim(self.right) != 2:
            raise ValueError("a factor has two axes")
        if self.left.shape[1] != self.right.shape[0]:
            raise ValueError("the ranks differ")

    @property
    def shape(self):
        return self.left.shape[0], self.right.shape[1]

    def __matmul__(self, x):
        return self.scale * (self.left @ (self.right @ x))


# %% 7.4 wrong: never checks
# A constructor that people call is the place to say that the factors don't fit. Otherwise it is
# said by a dot product, ten calls later.
# see: 7.12
@jax.tree_util.register_pytree_with_keys_class
class LowRank:
    def __init__(self, left, right, scale=1.0):
        self.left, self.right, self.scale = left, right, scale

    def tree_flatten_with_keys(self):
        keys = [(jax.tree_util.GetAttrKey(n), getattr(self, n)) for n in ("left", "right")]
        return keys, self.scale

    @classmethod
    def tree_unflatten(cls, scale, children):
        matrix = object.__new__(cls)
        matrix.left, matrix.right = children
        matrix.scale = scale
        return matrix

    @property
    def shape(self):
        return self.left.shape[0], self.right.shape[1]

    def __matmul__(self, x):
        return self.scale * (self.left @ (self.right @ x))


# %% 7.4 wrong: checks by assert
# `assert` raises an AssertionError, and nothing at all under `python -O`. The task asks for a
# ValueError.
# see: 7.12
@jax.tree_util.register_pytree_with_keys_class
class LowRank:
    def __init__(self, left, right, scale=1.0):
        assert np.ndim(left) == 2 and np.ndim(right) == 2 and left.shape[1] == right.shape[0]
        self.left, self.right, self.scale = left, right, scale

    def tree_flatten_with_keys(self):
        keys = [(jax.tree_util.GetAttrKey(n), getattr(self, n)) for n in ("left", "right")]
        return keys, self.scale

    @classmethod
    def tree_unflatten(cls, scale, children):
        matrix = object.__new__(cls)
        matrix.left, matrix.right = children
        matrix.scale = scale
        return matrix

    @property
    def shape(self):
        return self.left.shape[0], self.right.shape[1]

    def __matmul__(self, x):
        return self.scale * (self.left @ (self.right @ x))


# %% 7.4 wrong: checks the ranks alone
# Factors of one axis or three can have fitting ends. A matrix has two axes.
# see: 7.12
@jax.tree_util.register_pytree_with_keys_class
class LowRank:
    def __init__(self, left, right, scale=1.0):
        if left.shape[1] != len(right):
            raise ValueError("the factors don't fit")
        self.left, self.right, self.scale = left, right, scale

    def tree_flatten_with_keys(self):
        keys = [(jax.tree_util.GetAttrKey(n), getattr(self, n)) for n in ("left", "right")]
        return keys, self.scale

    @classmethod
    def tree_unflatten(cls, scale, children):
        matrix = object.__new__(cls)
        matrix.left, matrix.right = children
        matrix.scale = scale
        return matrix

    @property
    def shape(self):
        return self.left.shape[0], self.right.shape[1]

    def __matmul__(self, x):
        return self.scale * (self.left @ (self.right @ x))


# %% 7.4 wrong: accepts stacks of factors
# Two factors with three axes each fit together, and are a stack of matrices. People call the
# constructor with one matrix; only JAX rebuilds it around a stack.
# see: 7.12
@jax.tree_util.register_pytree_with_keys_class
class LowRank:
    def __init__(self, left, right, scale=1.0):
        if left.ndim != right.ndim or left.shape[-1] != right.shape[-2]:
            raise ValueError("factors that don't fit")
        self.left, self.right, self.scale = left, right, scale

    def tree_flatten_with_keys(self):
        keys = [(jax.tree_util.GetAttrKey(n), getattr(self, n)) for n in ("left", "right")]
        return keys, self.scale

    @classmethod
    def tree_unflatten(cls, scale, children):
        matrix = object.__new__(cls)
        matrix.left, matrix.right = children
        matrix.scale = scale
        return matrix

    @property
    def shape(self):
        return self.left.shape[0], self.right.shape[1]

    def __matmul__(self, x):
        return self.scale * (self.left @ (self.right @ x))


# %% 7.4 wrong: squeezes the product
# The product with one column is a column. `squeeze` takes every axis of length 1, also one that is
# meant; a vector needs no squeeze, for `@` gives a vector then.
# see: 7.12
@jax.tree_util.register_pytree_with_keys_class
class LowRank:
    def __init__(self, left, right, scale=1.0):
        if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[0]:
            raise ValueError("factors that don't fit")
        self.left, self.right, self.scale = left, right, scale

    def tree_flatten_with_keys(self):
        keys = [(jax.tree_util.GetAttrKey(n), getattr(self, n)) for n in ("left", "right")]
        return keys, self.scale

    @classmethod
    def tree_unflatten(cls, scale, children):
        matrix = object.__new__(cls)
        matrix.left, matrix.right = children
        matrix.scale = scale
        return matrix

    @property
    def shape(self):
        return self.left.shape[0], self.right.shape[1]

    def __matmul__(self, x):
        columns = x if x.ndim == 2 else x[:, None]
        return (self.scale * (self.left @ (self.right @ columns))).squeeze()


# %% 7.4 wrong: left and right swapped when rebuilt
# The children come back in the order in which they were handed out. Swapped, the product is
# another one, and where the shapes happen to fit nobody says so.
# see: 7.12
@jax.tree_util.register_pytree_with_keys_class
class LowRank:
    def __init__(self, left, right, scale=1.0):
        if np.ndim(left) != 2 or np.ndim(right) != 2 or left.shape[1] != right.shape[0]:
            raise ValueError("the factors don't fit")
        self.left, self.right, self.scale = left, right, scale

    def tree_flatten_with_keys(self):
        keys = [(jax.tree_util.GetAttrKey(n), getattr(self, n)) for n in ("left", "right")]
        return keys, self.scale

    @classmethod
    def tree_unflatten(cls, scale, children):
        matrix = object.__new__(cls)
        matrix.right, matrix.left = children
        matrix.scale = scale
        return matrix

    @property
    def shape(self):
        return self.left.shape[0], self.right.shape[1]

    def __matmul__(self, x):
        return self.scale * (self.left @ (self.right @ x))


# %% 7.4 wrong: the scale is a leaf
# A leaf is traced, differentiated and updated. What configures the class is structure: hand it
# over as auxiliary data.
# see: 7.8
@jax.tree_util.register_pytree_with_keys_class
class LowRank:
    def __init__(self, left, right, scale=1.0):
        if np.ndim(left) != 2 or np.ndim(right) != 2 or left.shape[1] != right.shape[0]:
            raise ValueError("the factors don't fit")
        self.left, self.right, self.scale = left, right, scale

    def tree_flatten_with_keys(self):
        keys = [(jax.tree_util.GetAttrKey(n), getattr(self, n)) for n in ("left", "right", "scale")]
        return keys, None

    @classmethod
    def tree_unflatten(cls, aux, children):
        matrix = object.__new__(cls)
        matrix.left, matrix.right, matrix.scale = children
        return matrix

    @property
    def shape(self):
        return self.left.shape[0], self.right.shape[1]

    def __matmul__(self, x):
        return self.scale * (self.left @ (self.right @ x))


# %% 7.4 wrong: loses the scale when rebuilt
# What is not in the auxiliary data is gone after the first `jax.tree.map`: the rebuilt matrix has
# the default.
# see: 7.12
@jax.tree_util.register_pytree_with_keys_class
class LowRank:
    def __init__(self, left, right, scale=1.0):
        if np.ndim(left) != 2 or np.ndim(right) != 2 or left.shape[1] != right.shape[0]:
            raise ValueError("the factors don't fit")
        self.left, self.right, self.scale = left, right, scale

    def tree_flatten_with_keys(self):
        keys = [(jax.tree_util.GetAttrKey(n), getattr(self, n)) for n in ("left", "right")]
        return keys, None

    @classmethod
    def tree_unflatten(cls, aux, children):
        matrix = object.__new__(cls)
        matrix.left, matrix.right = children
        matrix.scale = 1.0
        return matrix

    @property
    def shape(self):
        return self.left.shape[0], self.right.shape[1]

    def __matmul__(self, x):
        return self.scale * (self.left @ (self.right @ x))


# %% 7.4 wrong: registered without keys
# `register_pytree_node` gives the children numbers, so a table lists “0” and “1”, and no pattern
# can name them.
# see: 7.12
@jax.tree_util.register_pytree_node_class
class LowRank:
    def __init__(self, left, right, scale=1.0):
        if np.ndim(left) != 2 or np.ndim(right) != 2 or left.shape[1] != right.shape[0]:
            raise ValueError("the factors don't fit")
        self.left, self.right, self.scale = left, right, scale

    def tree_flatten(self):
        keys = [getattr(self, n) for n in ("left", "right")]
        return keys, self.scale

    @classmethod
    def tree_unflatten(cls, scale, children):
        matrix = object.__new__(cls)
        matrix.left, matrix.right = children
        matrix.scale = scale
        return matrix

    @property
    def shape(self):
        return self.left.shape[0], self.right.shape[1]

    def __matmul__(self, x):
        return self.scale * (self.left @ (self.right @ x))


# %% 7.4 wrong: the shape is structure
# A shape that is kept in the auxiliary data goes stale as soon as someone slices or stacks the
# leaves, and it makes each size a structure of its own. Compute it from the leaves.
# see: 7.8
@jax.tree_util.register_pytree_with_keys_class
class LowRank:
    def __init__(self, left, right, scale=1.0):
        if np.ndim(left) != 2 or np.ndim(right) != 2 or left.shape[1] != right.shape[0]:
            raise ValueError("the factors don't fit")
        self.left, self.right, self.scale = left, right, scale
        self._shape = left.shape[0], right.shape[1]

    def tree_flatten_with_keys(self):
        keys = [(jax.tree_util.GetAttrKey(n), getattr(self, n)) for n in ("left", "right")]
        return keys, (self.scale, self._shape)

    @classmethod
    def tree_unflatten(cls, aux, children):
        matrix = object.__new__(cls)
        matrix.left, matrix.right = children
        matrix.scale, matrix._shape = aux
        return matrix

    @property
    def shape(self):
        return self._shape

    def __matmul__(self, x):
        return self.scale * (self.left @ (self.right @ x))


# %% 7.4 wrong: a shape that only the constructor sets
# JAX rebuilds the matrix without the constructor, so what that alone sets is missing afterwards.
# Compute the shape from the leaves, in a property.
# see: 7.12
@jax.tree_util.register_pytree_with_keys_class
class LowRank:
    def __init__(self, left, right, scale=1.0):
        if np.ndim(left) != 2 or np.ndim(right) != 2 or left.shape[1] != right.shape[0]:
            raise ValueError("the factors don't fit")
        self.left, self.right, self.scale = left, right, scale
        self.shape = left.shape[0], right.shape[1]

    def tree_flatten_with_keys(self):
        keys = [(jax.tree_util.GetAttrKey(n), getattr(self, n)) for n in ("left", "right")]
        return keys, self.scale

    @classmethod
    def tree_unflatten(cls, scale, children):
        matrix = object.__new__(cls)
        matrix.left, matrix.right = children
        matrix.scale = scale
        return matrix

    def __matmul__(self, x):
        return self.scale * (self.left @ (self.right @ x))


# %% 7.4 wrong: makes the whole matrix
# `left @ right` is the n × m matrix that the two factors are there to avoid: at 50,000 × 70,000 it
# takes 14 GB. Multiply with the right factor first: `left @ (right @ x)`.
# see: 7.12
@jax.tree_util.register_pytree_with_keys_class
class LowRank:
    def __init__(self, left, right, scale=1.0):
        if np.ndim(left) != 2 or np.ndim(right) != 2 or left.shape[1] != right.shape[0]:
            raise ValueError("the factors don't fit")
        self.left, self.right, self.scale = left, right, scale

    def tree_flatten_with_keys(self):
        keys = [(jax.tree_util.GetAttrKey(n), getattr(self, n)) for n in ("left", "right")]
        return keys, self.scale

    @classmethod
    def tree_unflatten(cls, scale, children):
        matrix = object.__new__(cls)
        matrix.left, matrix.right = children
        matrix.scale = scale
        return matrix

    @property
    def shape(self):
        return self.left.shape[0], self.right.shape[1]

    def __matmul__(self, x):
        return self.scale * (self.left @ self.right) @ x


# %% 7.4 wrong: auxiliary data that compare by identity
# Two matrices of equal scale must have equal structures, or each is compiled for anew. An object
# without `__eq__` equals itself alone.
# see: 7.8
class _Aux:
    def __init__(self, scale):
        self.scale = scale


@jax.tree_util.register_pytree_with_keys_class
class LowRank:
    def __init__(self, left, right, scale=1.0):
        if np.ndim(left) != 2 or np.ndim(right) != 2 or left.shape[1] != right.shape[0]:
            raise ValueError("the factors don't fit")
        self.left, self.right, self.scale = left, right, scale

    def tree_flatten_with_keys(self):
        keys = [(jax.tree_util.GetAttrKey(n), getattr(self, n)) for n in ("left", "right")]
        return keys, _Aux(self.scale)

    @classmethod
    def tree_unflatten(cls, scale, children):
        matrix = object.__new__(cls)
        matrix.left, matrix.right = children
        matrix.scale = scale.scale
        return matrix

    @property
    def shape(self):
        return self.left.shape[0], self.right.shape[1]

    def __matmul__(self, x):
        return self.scale * (self.left @ (self.right @ x))


# %% 7.4 wrong: makes arrays of its leaves
# The children may be shapes, words or placeholders. `jnp.asarray` refuses them; take them as they
# are.
# see: 7.12
@jax.tree_util.register_pytree_with_keys_class
class LowRank:
    def __init__(self, left, right, scale=1.0):
        if np.ndim(left) != 2 or np.ndim(right) != 2 or left.shape[1] != right.shape[0]:
            raise ValueError("the factors don't fit")
        self.left, self.right, self.scale = left, right, scale

    def tree_flatten_with_keys(self):
        keys = [(jax.tree_util.GetAttrKey(n), getattr(self, n)) for n in ("left", "right")]
        return keys, self.scale

    @classmethod
    def tree_unflatten(cls, scale, children):
        matrix = object.__new__(cls)
        matrix.left, matrix.right = map(jnp.asarray, children)
        matrix.scale = scale
        return matrix

    @property
    def shape(self):
        return self.left.shape[0], self.right.shape[1]

    def __matmul__(self, x):
        return self.scale * (self.left @ (self.right @ x))


# %% 7.4 wrong: forgets the scale
# The matrix is scale · left · right.
# see: 7.12
@jax.tree_util.register_pytree_with_keys_class
class LowRank:
    def __init__(self, left, right, scale=1.0):
        if np.ndim(left) != 2 or np.ndim(right) != 2 or left.shape[1] != right.shape[0]:
            raise ValueError("the factors don't fit")
        self.left, self.right, self.scale = left, right, scale

    def tree_flatten_with_keys(self):
        keys = [(jax.tree_util.GetAttrKey(n), getattr(self, n)) for n in ("left", "right")]
        return keys, self.scale

    @classmethod
    def tree_unflatten(cls, scale, children):
        matrix = object.__new__(cls)
        matrix.left, matrix.right = children
        matrix.scale = scale
        return matrix

    @property
    def shape(self):
        return self.left.shape[0], self.right.shape[1]

    def __matmul__(self, x):
        return self.left @ (self.right @ x)


# %% 7.4 wrong: scales both factors
# Scaled in each factor, the product has the square of the scale.
# see: 7.12
@jax.tree_util.register_pytree_with_keys_class
class LowRank:
    def __init__(self, left, right, scale=1.0):
        if np.ndim(left) != 2 or np.ndim(right) != 2 or left.shape[1] != right.shape[0]:
            raise ValueError("the factors don't fit")
        self.left, self.right, self.scale = left, right, scale

    def tree_flatten_with_keys(self):
        keys = [(jax.tree_util.GetAttrKey(n), getattr(self, n)) for n in ("left", "right")]
        return keys, self.scale

    @classmethod
    def tree_unflatten(cls, scale, children):
        matrix = object.__new__(cls)
        matrix.left, matrix.right = children
        matrix.scale = scale
        return matrix

    @property
    def shape(self):
        return self.left.shape[0], self.right.shape[1]

    def __matmul__(self, x):
        return (self.scale * self.left) @ (self.scale * self.right @ x)


# %% 7.4 wrong: right before left
# The leaves come in the order in which `tree_flatten_with_keys` lists them; the task asks for
# left, then right.
# see: 7.12
@jax.tree_util.register_pytree_with_keys_class
class LowRank:
    def __init__(self, left, right, scale=1.0):
        if np.ndim(left) != 2 or np.ndim(right) != 2 or left.shape[1] != right.shape[0]:
            raise ValueError("the factors don't fit")
        self.left, self.right, self.scale = left, right, scale

    def tree_flatten_with_keys(self):
        keys = [(jax.tree_util.GetAttrKey(n), getattr(self, n)) for n in ("right", "left")]
        return keys, self.scale

    @classmethod
    def tree_unflatten(cls, scale, children):
        matrix = object.__new__(cls)
        matrix.right, matrix.left = children
        matrix.scale = scale
        return matrix

    @property
    def shape(self):
        return self.left.shape[0], self.right.shape[1]

    def __matmul__(self, x):
        return self.scale * (self.left @ (self.right @ x))


# %% 7.4 wrong: not registered
# A class that JAX was not told of is a leaf, and jit, grad and vmap refuse it.
# see: 7.7
class LowRank:
    def __init__(self, left, right, scale=1.0):
        if np.ndim(left) != 2 or np.ndim(right) != 2 or left.shape[1] != right.shape[0]:
            raise ValueError("the factors don't fit")
        self.left, self.right, self.scale = left, right, scale

    def tree_flatten_with_keys(self):
        keys = [(jax.tree_util.GetAttrKey(n), getattr(self, n)) for n in ("left", "right")]
        return keys, self.scale

    @classmethod
    def tree_unflatten(cls, scale, children):
        matrix = object.__new__(cls)
        matrix.left, matrix.right = children
        matrix.scale = scale
        return matrix

    @property
    def shape(self):
        return self.left.shape[0], self.right.shape[1]

    def __matmul__(self, x):
        return self.scale * (self.left @ (self.right @ x))


# %% 7.5 right: with ravel_pytree, on the floats alone
from jax.flatten_util import ravel_pytree


def _floats(tree):
    """The tree with None for all other leaves."""
    return jax.tree.map(lambda x: x if jnp.issubdtype(x.dtype, jnp.floating) else None, tree)


def to_vector(tree):
    return ravel_pytree(_floats(tree))[0].astype(jnp.float32)


def from_vector(vector, like):
    zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), _floats(like))
    flat, back = ravel_pytree(zeros)
    if flat.shape != vector.shape:
        raise ValueError("wrong length")
    return jax.tree.map(
        lambda old, new: old if new is None else new.astype(old.dtype), like, back(vector)
    )


# %% 7.5 right: split at the ends
def _sizes(tree):
    return [x.size for x in jax.tree.leaves(tree) if jax.dtypes.issubdtype(x.dtype, np.floating)]


def to_vector(tree):
    vectors = []
    for x in jax.tree.leaves(tree):
        if jax.dtypes.issubdtype(x.dtype, np.floating):
            vectors.append(jnp.asarray(x, jnp.float32).reshape(-1))
    return jnp.hstack(vectors) if vectors else jnp.zeros((0,), jnp.float32)


def from_vector(vector, like):
    sizes = _sizes(like)
    if vector.size != sum(sizes):
        raise ValueError("the vector does not fit")
    parts = iter(jnp.split(vector, np.cumsum(sizes)[:-1]) if sizes else [])

    def pick(x):
        if not jax.dtypes.issubdtype(x.dtype, np.floating):
            return x
        return jnp.asarray(jnp.reshape(next(parts), x.shape), x.dtype)

    return jax.tree.map(pick, like)


# %% 7.5 wrong: everything into the vector
# A step count beyond 2²⁴ does not survive float32, and a mask is no number to differentiate. Take
# the floating leaves, the others from `like`.
# see: 7.13
def _is_float(leaf):
    return not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def to_vector(tree):
    parts = [leaf.astype(jnp.float32).ravel() for leaf in jax.tree.leaves(tree) if _is_float(leaf)]
    return jnp.concatenate([jnp.zeros(0), *parts])


def from_vector(vector, like):
    leaves, structure = jax.tree.flatten(like)
    total = sum(leaf.size for leaf in leaves if _is_float(leaf))
    if vector.shape != (total,):
        raise ValueError(f"{vector.shape} numbers for {total}")
    new, start = [], 0
    for leaf in leaves:
        if _is_float(leaf):
            part = vector[start : start + leaf.size]
            new.append(part.reshape(leaf.shape).astype(leaf.dtype))
            start += leaf.size
        else:
            new.append(leaf)
    return jax.tree.unflatten(structure, new)


# %% 7.5 wrong: dtype.kind, which does not know bfloat16
# To NumPy bfloat16 is of kind “V” and no floating type, and the dtype of a key has no kind at
# all. `jnp.issubdtype` knows them both.
# see: 7.13
def _is_float(leaf):
    return leaf.dtype.kind == "f"


def to_vector(tree):
    parts = [leaf.astype(jnp.float32).ravel() for leaf in jax.tree.leaves(tree) if _is_float(leaf)]
    return jnp.concatenate([jnp.zeros(0), *parts])


def from_vector(vector, like):
    leaves, structure = jax.tree.flatten(like)
    total = sum(leaf.size for leaf in leaves if _is_float(leaf))
    if vector.shape != (total,):
        raise ValueError(f"{vector.shape} numbers for {total}")
    new, start = [], 0
    for leaf in leaves:
        if _is_float(leaf):
            part = vector[start : start + leaf.size]
            new.append(part.reshape(leaf.shape).astype(leaf.dtype))
            start += leaf.size
        else:
            new.append(leaf)
    return jax.tree.unflatten(structure, new)


# %% 7.5 wrong: np.issubdtype, which does not know bfloat16
# NumPy takes bfloat16 for raw bytes, and can't read the dtype of a key at all. `jnp.issubdtype`
# knows them both.
# see: 7.13
def _is_float(leaf):
    return np.issubdtype(leaf.dtype, np.floating)


def to_vector(tree):
    parts = [leaf.astype(jnp.float32).ravel() for leaf in jax.tree.leaves(tree) if _is_float(leaf)]
    return jnp.concatenate([jnp.zeros(0), *parts])


def from_vector(vector, like):
    leaves, structure = jax.tree.flatten(like)
    total = sum(leaf.size for leaf in leaves if _is_float(leaf))
    if vector.shape != (total,):
        raise ValueError(f"{vector.shape} numbers for {total}")
    new, start = [], 0
    for leaf in leaves:
        if _is_float(leaf):
            part = vector[start : start + leaf.size]
            new.append(part.reshape(leaf.shape).astype(leaf.dtype))
            start += leaf.size
        else:
            new.append(leaf)
    return jax.tree.unflatten(structure, new)


# %% 7.5 wrong: ravel_pytree as it is
# `ravel_pytree` takes every leaf: the step count goes through float32, the mask with it, and a key
# is refused. Give it the floating leaves alone.
# see: 7.13
from jax.flatten_util import ravel_pytree


def to_vector(tree):
    return ravel_pytree(tree)[0]


def from_vector(vector, like):
    return ravel_pytree(like)[1](vector)


# %% 7.5 wrong: float32 alone
# float16 and bfloat16 are floating, too.
# see: 7.13
def _is_float(leaf):
    return leaf.dtype == jnp.float32


def to_vector(tree):
    parts = [leaf.astype(jnp.float32).ravel() for leaf in jax.tree.leaves(tree) if _is_float(leaf)]
    return jnp.concatenate([jnp.zeros(0), *parts])


def from_vector(vector, like):
    leaves, structure = jax.tree.flatten(like)
    total = sum(leaf.size for leaf in leaves if _is_float(leaf))
    if vector.shape != (total,):
        raise ValueError(f"{vector.shape} numbers for {total}")
    new, start = [], 0
    for leaf in leaves:
        if _is_float(leaf):
            part = vector[start : start + leaf.size]
            new.append(part.reshape(leaf.shape).astype(leaf.dtype))
            start += leaf.size
        else:
            new.append(leaf)
    return jax.tree.unflatten(structure, new)


# %% 7.5 wrong: all leaves float32 on the way back
# The tree that comes back has the dtypes of `like`, or the next step compiles again.
# see: 7.13
def _is_float(leaf):
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def to_vector(tree):
    parts = [leaf.astype(jnp.float32).ravel() for leaf in jax.tree.leaves(tree) if _is_float(leaf)]
    return jnp.concatenate([jnp.zeros(0), *parts])


def from_vector(vector, like):
    leaves, structure = jax.tree.flatten(like)
    total = sum(leaf.size for leaf in leaves if _is_float(leaf))
    if vector.shape != (total,):
        raise ValueError(f"{vector.shape} numbers for {total}")
    new, start = [], 0
    for leaf in leaves:
        if _is_float(leaf):
            part = vector[start : start + leaf.size]
            new.append(part.reshape(leaf.shape))
            start += leaf.size
        else:
            new.append(leaf)
    return jax.tree.unflatten(structure, new)


# %% 7.5 wrong: takes any length
# A slice beyond the end is short, and nobody says so; numbers that are left over are dropped.
# Compare the lengths first.
# see: 7.13
def _is_float(leaf):
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def to_vector(tree):
    parts = [leaf.astype(jnp.float32).ravel() for leaf in jax.tree.leaves(tree) if _is_float(leaf)]
    return jnp.concatenate([jnp.zeros(0), *parts])


def from_vector(vector, like):
    leaves, structure = jax.tree.flatten(like)
    total = sum(leaf.size for leaf in leaves if _is_float(leaf))
    new, start = [], 0
    for leaf in leaves:
        if _is_float(leaf):
            part = vector[start : start + leaf.size]
            new.append(part.reshape(leaf.shape).astype(leaf.dtype))
            start += leaf.size
        else:
            new.append(leaf)
    return jax.tree.unflatten(structure, new)


# %% 7.5 wrong: refuses a short vector only
# A vector that is too long belongs to another model, too.
# see: 7.13
def _is_float(leaf):
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def to_vector(tree):
    parts = [leaf.astype(jnp.float32).ravel() for leaf in jax.tree.leaves(tree) if _is_float(leaf)]
    return jnp.concatenate([jnp.zeros(0), *parts])


def from_vector(vector, like):
    leaves, structure = jax.tree.flatten(like)
    total = sum(leaf.size for leaf in leaves if _is_float(leaf))
    if vector.size < total:
        raise ValueError(f"{vector.shape} numbers for {total}")
    new, start = [], 0
    for leaf in leaves:
        if _is_float(leaf):
            part = vector[start : start + leaf.size]
            new.append(part.reshape(leaf.shape).astype(leaf.dtype))
            start += leaf.size
        else:
            new.append(leaf)
    return jax.tree.unflatten(structure, new)


# %% 7.5 wrong: zeros for the other leaves
# What is not in the vector comes from `like`: the step count, the mask, the key.
# see: 7.13
def _is_float(leaf):
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def to_vector(tree):
    parts = [leaf.astype(jnp.float32).ravel() for leaf in jax.tree.leaves(tree) if _is_float(leaf)]
    return jnp.concatenate([jnp.zeros(0), *parts])


def from_vector(vector, like):
    leaves, structure = jax.tree.flatten(like)
    total = sum(leaf.size for leaf in leaves if _is_float(leaf))
    if vector.shape != (total,):
        raise ValueError(f"{vector.shape} numbers for {total}")
    new, start = [], 0
    for leaf in leaves:
        if _is_float(leaf):
            part = vector[start : start + leaf.size]
            new.append(part.reshape(leaf.shape).astype(leaf.dtype))
            start += leaf.size
        else:
            new.append(jnp.zeros_like(leaf))
    return jax.tree.unflatten(structure, new)


# %% 7.5 wrong: fails without a float
# `jnp.concatenate` of an empty list raises. A tree of integers has a vector, of length 0.
# see: 7.13
def _is_float(leaf):
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def to_vector(tree):
    parts = [leaf.astype(jnp.float32).ravel() for leaf in jax.tree.leaves(tree) if _is_float(leaf)]
    return jnp.concatenate(parts)


def from_vector(vector, like):
    leaves, structure = jax.tree.flatten(like)
    total = sum(leaf.size for leaf in leaves if _is_float(leaf))
    if vector.shape != (total,):
        raise ValueError(f"{vector.shape} numbers for {total}")
    new, start = [], 0
    for leaf in leaves:
        if _is_float(leaf):
            part = vector[start : start + leaf.size]
            new.append(part.reshape(leaf.shape).astype(leaf.dtype))
            start += leaf.size
        else:
            new.append(leaf)
    return jax.tree.unflatten(structure, new)


# %% 7.5 wrong: through NumPy
# `np.asarray` of a tracer raises: neither jit nor grad goes through it. jax.numpy has the same
# functions.
# see: 7.13
def _is_float(leaf):
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def to_vector(tree):
    parts = [
        np.asarray(leaf, np.float32).ravel() for leaf in jax.tree.leaves(tree) if _is_float(leaf)
    ]
    return np.concatenate([np.zeros(0, np.float32), *parts])


def from_vector(vector, like):
    leaves, structure = jax.tree.flatten(like)
    total = sum(leaf.size for leaf in leaves if _is_float(leaf))
    if vector.shape != (total,):
        raise ValueError(f"{vector.shape} numbers for {total}")
    new, start = [], 0
    for leaf in leaves:
        if _is_float(leaf):
            part = vector[start : start + leaf.size]
            new.append(part.reshape(leaf.shape).astype(leaf.dtype))
            start += leaf.size
        else:
            new.append(leaf)
    return jax.tree.unflatten(structure, new)


# %% 7.5 wrong: column by column
# Numbers go in row by row, as everywhere in JAX and NumPy.
# see: 7.13
def _is_float(leaf):
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def to_vector(tree):
    parts = [
        leaf.astype(jnp.float32).ravel(order="F")
        for leaf in jax.tree.leaves(tree)
        if _is_float(leaf)
    ]
    return jnp.concatenate([jnp.zeros(0), *parts])


def from_vector(vector, like):
    leaves, structure = jax.tree.flatten(like)
    total = sum(leaf.size for leaf in leaves if _is_float(leaf))
    if vector.shape != (total,):
        raise ValueError(f"{vector.shape} numbers for {total}")
    new, start = [], 0
    for leaf in leaves:
        if _is_float(leaf):
            part = vector[start : start + leaf.size]
            new.append(part.reshape(leaf.shape, order="F").astype(leaf.dtype))
            start += leaf.size
        else:
            new.append(leaf)
    return jax.tree.unflatten(structure, new)


# %% 7.5 wrong: the largest leaf first
# The order is that of the leaves in the tree: whoever reads the vector knows no other.
# see: 7.13
def _is_float(leaf):
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def to_vector(tree):
    parts = [
        leaf.astype(jnp.float32).ravel()
        for leaf in reversed(jax.tree.leaves(tree))
        if _is_float(leaf)
    ]
    return jnp.concatenate([jnp.zeros(0), *parts])


def from_vector(vector, like):
    leaves, structure = jax.tree.flatten(like)
    total = sum(leaf.size for leaf in leaves if _is_float(leaf))
    if vector.shape != (total,):
        raise ValueError(f"{vector.shape} numbers for {total}")
    new, start = [], 0
    for leaf in reversed(leaves):
        if _is_float(leaf):
            part = vector[start : start + leaf.size]
            new.append(part.reshape(leaf.shape).astype(leaf.dtype))
            start += leaf.size
        else:
            new.append(leaf)
    return jax.tree.unflatten(structure, new[::-1])


# %% 7.5 wrong: gradients stopped on the way
# `stop_gradient`, or a trip through the host, cuts the vector off: all slopes are 0.
# see: 7.13
def _is_float(leaf):
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def to_vector(tree):
    parts = [leaf.astype(jnp.float32).ravel() for leaf in jax.tree.leaves(tree) if _is_float(leaf)]
    return jnp.concatenate([jnp.zeros(0), *parts])


def from_vector(vector, like):
    leaves, structure = jax.tree.flatten(like)
    total = sum(leaf.size for leaf in leaves if _is_float(leaf))
    if vector.shape != (total,):
        raise ValueError(f"{vector.shape} numbers for {total}")
    new, start = [], 0
    for leaf in leaves:
        if _is_float(leaf):
            part = jax.lax.stop_gradient(vector)[start : start + leaf.size]
            new.append(part.reshape(leaf.shape).astype(leaf.dtype))
            start += leaf.size
        else:
            new.append(leaf)
    return jax.tree.unflatten(structure, new)


# %% 7.5 wrong: a list instead of the tree
# `from_vector` gives back the structure of `like`, not its leaves.
# see: 7.13
def _is_float(leaf):
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def to_vector(tree):
    parts = [leaf.astype(jnp.float32).ravel() for leaf in jax.tree.leaves(tree) if _is_float(leaf)]
    return jnp.concatenate([jnp.zeros(0), *parts])


def from_vector(vector, like):
    leaves, structure = jax.tree.flatten(like)
    total = sum(leaf.size for leaf in leaves if _is_float(leaf))
    if vector.shape != (total,):
        raise ValueError(f"{vector.shape} numbers for {total}")
    new, start = [], 0
    for leaf in leaves:
        if _is_float(leaf):
            part = vector[start : start + leaf.size]
            new.append(part.reshape(leaf.shape).astype(leaf.dtype))
            start += leaf.size
        else:
            new.append(leaf)
    return new


# %% 7.5 wrong: a float16 vector
# The vector is float32: float16 has not the digits of the float32 leaves.
# see: 7.13
def _is_float(leaf):
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def to_vector(tree):
    parts = [leaf.astype(jnp.float32).ravel() for leaf in jax.tree.leaves(tree) if _is_float(leaf)]
    return jnp.concatenate([jnp.zeros(0), *parts]).astype(jnp.float16)


def from_vector(vector, like):
    leaves, structure = jax.tree.flatten(like)
    total = sum(leaf.size for leaf in leaves if _is_float(leaf))
    if vector.shape != (total,):
        raise ValueError(f"{vector.shape} numbers for {total}")
    new, start = [], 0
    for leaf in leaves:
        if _is_float(leaf):
            part = vector[start : start + leaf.size]
            new.append(part.reshape(leaf.shape).astype(leaf.dtype))
            start += leaf.size
        else:
            new.append(leaf)
    return jax.tree.unflatten(structure, new)


# %% 7.5 wrong: in the dtype of the first leaf
# The first leaf may be float16: what goes through it has three digits, whatever dtype it gets
# afterwards. Convert each leaf to float32.
# see: 7.13
def _is_float(leaf):
    return jnp.issubdtype(leaf.dtype, jnp.floating)


def to_vector(tree):
    floats = [leaf for leaf in jax.tree.leaves(tree) if _is_float(leaf)]
    parts = [leaf.astype(floats[0].dtype).ravel() for leaf in floats]
    return jnp.concatenate([jnp.zeros(0), *parts])


def from_vector(vector, like):
    leaves, structure = jax.tree.flatten(like)
    total = sum(leaf.size for leaf in leaves if _is_float(leaf))
    if vector.shape != (total,):
        raise ValueError(f"{vector.shape} numbers for {total}")
    new, start = [], 0
    for leaf in leaves:
        if _is_float(leaf):
            part = vector[start : start + leaf.size]
            new.append(part.reshape(leaf.shape).astype(leaf.dtype))
            start += leaf.size
        else:
            new.append(leaf)
    return jax.tree.unflatten(structure, new)
