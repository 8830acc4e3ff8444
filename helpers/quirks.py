"""What differs between versions of JAX and between machines: quirks, each found out by running it.

Later chapters hold with or without them. Nothing here fails: a probe says whether a quirk is there.
"""

import os
import subprocess
import sys
import warnings
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from helpers.oracle import to64

Probe = Callable[[], bool]
"""Says whether the quirk is present."""


# --- numbers: the first two look for a wrong result of jax.jit -----------------------------------


def constant_summed_wrong() -> bool:
    """Sums over arrays that jit closes over: random numbers, and a mask that is true throughout."""
    numbers = jnp.asarray(np.random.default_rng(0).random(100_000, dtype=np.float32))
    mask = jnp.ones(32, bool)
    total, count = jax.jit(lambda: (jnp.sum(numbers), jnp.sum(mask)))()
    return bool(count != 32 or abs(float(total) / np.sum(to64(numbers)) - 1) > 1e-3)


def jit_moves_rows() -> bool:
    """Squares of 40 000 numbers, each taken from its own row (jax#39103)."""
    rows = np.zeros((40_000, 3), np.float32)
    rows[:, 0] = np.arange(40_000)
    squares = jax.vmap(lambda row: jnp.sum((jnp.eye(3) @ row) ** 2))
    with jax.default_matmul_precision("highest"):
        got = jax.jit(squares)(rows)
    return not np.allclose(got, to64(rows[:, 0]) ** 2, rtol=3e-3, atol=0)


def matmul_drops_digits() -> bool:
    """Whether 1 + 2⁻¹² survives a matrix product; TF32 keeps ten binary digits, bfloat16 seven."""
    x = jnp.full((64, 64), 1 + 2.0**-12, jnp.float32)
    return float(jnp.max(jnp.abs(x @ x / 64 - (1 + 2.0**-12) ** 2))) > 1e-4


def denormals_are_zero() -> bool:
    """1e-40 is a float32 number, if one of the smallest kind."""
    return not bool(jnp.float32(1e-40) > 0)


# --- memory: JAX and NumPy may share a buffer ----------------------------------------------------


def address_after_donation(look: Callable[[jax.Array], object] = lambda x: None) -> tuple[int, int]:
    """The addresses of an array that was looked at and donated, and of the result."""
    x = jnp.arange(1024.0) + 1
    before, held = x.unsafe_buffer_pointer(), look(x)
    with warnings.catch_warnings(action="ignore"):
        y = jax.jit(lambda x: x + 1, donate_argnums=0)(x)
    del held
    return before, y.unsafe_buffer_pointer()


def donation_reuses_memory() -> bool:
    """The result lies where the donated argument was."""
    return len({*address_after_donation()}) == 1


def a_view_blocks_donation() -> bool:
    """A NumPy array that looks at the argument keeps its buffer."""
    return donation_reuses_memory() and len({*address_after_donation(np.asarray)}) == 2


def printing_blocks_donation() -> bool:
    """Printing makes such a view, and JAX keeps it."""
    return donation_reuses_memory() and len({*address_after_donation(repr)}) == 2


def asarray_is_a_view() -> bool:
    """The NumPy array starts where the JAX array does."""
    x = jnp.arange(1024.0) + 1
    return np.asarray(x).ctypes.data == x.unsafe_buffer_pointer()


def device_put_is_a_view() -> bool:
    """Whether a JAX array changes with the NumPy array that it was made from."""
    room = np.zeros(1024 + 16, np.float32)
    start = -room.ctypes.data % 64 // 4  # XLA takes over memory that is aligned to 64 bytes
    numbers = room[start : start + 1024]
    x = jax.block_until_ready(jax.device_put(numbers))
    numbers[0] = 7
    return float(x[0]) == 7


# --- caches and checks ---------------------------------------------------------------------------


class Settings:
    """Compared and hashed by value, and not frozen."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settings) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


def changed_static_is_stale() -> bool:
    """A static argument that is changed in place between two calls."""
    settings, read = Settings(1), jax.jit(lambda settings: settings.value, static_argnums=0)
    first = int(read(settings))
    settings.value = 100
    return int(read(settings)) == first


BLIND = """
import jax, jax.numpy as jnp
jax.config.update("jax_debug_nans", True)
log = jax.vmap(lambda x: jnp.log(x))
log(jnp.ones(3))
try:
    log(-jnp.ones(3))
    print("missed")
except FloatingPointError:
    print("caught")
"""
"""A `vmap` is called with good numbers, then with bad ones, while the switch is on."""


def debug_nans_is_blind() -> bool:
    """`BLIND` in a process of its own, for the switch is one for the whole process."""
    environment = os.environ | {"JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", BLIND]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    return {"missed": True, "caught": False}[ran.stdout.split()[-1]]


PROBES: dict[str, Probe] = {
    "a sum over a constant of jit is wrong": constant_summed_wrong,
    "jit returns the wrong rows": jit_moves_rows,
    "matrix products drop digits (TF32)": matmul_drops_digits,
    "denormal numbers count as zero": denormals_are_zero,
    "donation reuses memory": donation_reuses_memory,
    "a NumPy view blocks donation": a_view_blocks_donation,
    "printing blocks donation": printing_blocks_donation,
    "np.asarray(x) is a view of x": asarray_is_a_view,
    "device_put(a) is a view of a": device_put_is_a_view,
    "a static argument, changed, is stale": changed_static_is_stale,
    "jax_debug_nans is blind after vmap": debug_nans_is_blind,
}


def verdict(probe: Probe) -> str:
    """ "present" or "absent", or which error kept the probe from finding out."""
    try:
        return "present" if probe() else "absent"
    except Exception as error:
        return f"can't tell: {type(error).__name__}"
