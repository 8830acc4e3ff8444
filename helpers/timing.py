"""Measures how long JAX functions take, and asserts that one is faster than another.

It times the work, not its dispatch: every call is awaited. It is no profiler.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import jax


@dataclass(frozen=True)
class Timing:
    """Wall times of repeated calls.

    times: seconds, in the order they were measured; never empty.
    """

    times: tuple[float, ...]

    @property
    def median(self) -> float:
        """Seconds; half of the calls were faster."""
        return statistics.median(self.times)

    @property
    def best(self) -> float:
        """Seconds of the fastest call: the least disturbed one."""
        return min(self.times)

    def __str__(self) -> str:
        return f"{format_seconds(self.median)} (median of {len(self.times)})"


def bench(fn: Callable[..., object], *args: object, repeats: int = 7, warmup: int = 2) -> Timing:
    """Times `fn(*args)` after warming it up, so that compilation is not in the figure.

    JAX returns before the work is done; each call is timed until its result is ready
    (`jax.block_until_ready`).

    Args:
        repeats: measured calls, at least 1.
        warmup: calls before them that are not measured; 0 measures the compilation too.

    Raises:
        ValueError: for fewer than one repeat or a negative warmup.
    """
    if repeats < 1 or warmup < 0:
        raise ValueError(f"needs repeats ≥ 1 and warmup ≥ 0, got {repeats} and {warmup}")
    for _ in range(warmup):
        jax.block_until_ready(fn(*args))
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        jax.block_until_ready(fn(*args))
        times.append(time.perf_counter() - start)
    return Timing(tuple(times))


def assert_faster(
    fast: Callable[[], object],
    slow: Callable[[], object],
    *,
    by: float = 1.0,
    retries: int = 3,
    repeats: int = 7,
    label: str = "",
) -> float:
    """Asserts that `fast` is at least `by` times as fast as `slow`, by the medians of both.

    A busy machine can spoil one measurement, so it is repeated up to `retries` times more. A
    claim that isn't true by a wide margin needs a smaller `by`, not more retries.

    Args:
        fast, slow: functions of no arguments.
        repeats: measured calls of each, every time (see `bench`).
        label: opens the message.

    Returns:
        How many times as fast it was, in the measurement that passed.

    Raises:
        AssertionError: with both medians of the best attempt.
    """
    best_ratio, report = 0.0, ""
    for _ in range(retries + 1):
        quick, lengthy = bench(fast, repeats=repeats), bench(slow, repeats=repeats)
        ratio = lengthy.median / quick.median
        if ratio >= by:
            return ratio
        if ratio > best_ratio:
            best_ratio = ratio
            report = f"{format_seconds(quick.median)} against {format_seconds(lengthy.median)}"
    prefix = f"{label}: " if label else ""
    raise AssertionError(
        f"{prefix}expected at least {by:g}× as fast, got {best_ratio:.2f}× ({report}) "
        f"in the best of {retries + 1} attempts"
    )


def format_seconds(seconds: float) -> str:
    """Three digits and a unit: "412 ns", "1.23 ms", "20.1 s"."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"
