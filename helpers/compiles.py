"""Counts what JAX compiles and traces, and fails where a budget of compilations is exceeded.

It listens to `jax.monitoring` and to Python itself; it never changes what JAX does.
"""

import functools
import warnings
from collections.abc import Callable
from typing import Generic, Literal, ParamSpec, Self, TypeVar

import jax

P = ParamSpec("P")
R = TypeVar("R")


class CompileCounter:
    """Counts the compilations inside a `with` block.

    JAX announces each one as the event `/jax/core/compile/backend_compile_duration`. It fires for
    the first call of a jitted function, for `.lower(...).compile()` and for the tiny programs
    behind operations outside jit (`jit(add)`, `jit(broadcast_in_dim)`); it also fires when a
    program comes from the persistent compilation cache. It never fires for a program that this
    process already has, nor for tracing alone.

    Counters nest, and each sees every event. A counter used again goes on counting.

    Args:
        only: count this function alone: "step" for what JAX calls `jit(step)`. Default: all.

    Attributes:
        names: what was compiled, in order: "jit(step)".
        durations: seconds each compilation took, in the same order.
    """

    EVENT = "/jax/core/compile/backend_compile_duration"

    def __init__(self, only: str | None = None) -> None:
        self.only = only
        self.names: list[str] = []
        self.durations: list[float] = []
        self._depth = 0

    @property
    def count(self) -> int:
        """How many compilations there have been."""
        return len(self.names)

    def count_of(self, name: str) -> int:
        """How many of them were of the function `name`: "step" for `jit(step)`."""
        return self.names.count(f"jit({name})")

    def __enter__(self) -> Self:
        if self._depth == 0:
            jax.monitoring.register_event_duration_secs_listener(self._record)
        self._depth += 1
        return self

    def __exit__(self, *exception: object) -> None:
        self._depth -= 1
        if self._depth == 0:
            jax.monitoring.unregister_event_duration_listener(self._record)

    def _record(self, event: str, duration_secs: float, **details: str | int) -> None:
        if event != self.EVENT:
            return
        name = str(details["fun_name"])
        if self.only is None or name == f"jit({self.only})":
            self.names.append(name)
            self.durations.append(duration_secs)


def count_compiles(fn: Callable[..., object], *args: object, **kwargs: object) -> int:
    """How many compilations the call `fn(*args, **kwargs)` causes, eager operations included."""
    with CompileCounter() as counter:
        fn(*args, **kwargs)
    return counter.count


class TraceCounter(Generic[P, R]):
    """A function that counts how often Python runs its body.

    Under a transformation that happens once a trace: `jax.jit(TraceCounter(step))` counts the
    traces of `step`. Tracing is not compiling: `eval_shape`, `make_jaxpr` and `lower` trace and
    compile nothing. JAX has an event for tracing too (`/jax/core/compile/jaxpr_trace_duration`),
    but only the outermost trace of a call fires it, so it misses a jit inside a grad or a vmap.

    Attributes:
        count: how often the body was entered, failed attempts included.
    """

    def __init__(self, fn: Callable[P, R]) -> None:
        functools.update_wrapper(self, fn)
        self.fn = fn
        self.count = 0

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        self.count += 1
        return self.fn(*args, **kwargs)


class CompileBudgetExceeded(AssertionError):
    """More was compiled than the budget allows."""


class CompileBudget(CompileCounter):
    """A `with` block that may compile at most `limit` times.

    The block runs to its end first; an exception raised in it goes through untouched.

    Args:
        limit: compilations allowed; 0 for code that must already be compiled.
        on_excess: "raise" raises CompileBudgetExceeded, "warn" gives a RuntimeWarning.
        label: opens the message.
        only: count this function alone, as in CompileCounter.

    Raises:
        ValueError: for a negative limit or another word for `on_excess`.
        CompileBudgetExceeded: on leaving the block; it names what was compiled, and how long each
            took in milliseconds.
    """

    def __init__(
        self,
        limit: int,
        on_excess: Literal["raise", "warn"] = "raise",
        label: str = "",
        *,
        only: str | None = None,
    ) -> None:
        super().__init__(only)
        if limit < 0 or on_excess not in ("raise", "warn"):
            raise ValueError(f"limit must be 0 or more ({limit}), on_excess raise or warn")
        self.limit = limit
        self.on_excess = on_excess
        self.label = label

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)
        if self.count <= self.limit or exception[0] is not None:
            return
        if self.on_excess == "raise":
            raise CompileBudgetExceeded(self.message())
        warnings.warn(self.message(), RuntimeWarning, stacklevel=2)

    def message(self) -> str:
        """`serve: budget of 1 compilation exceeded: 2 compiled: jit(f) 12 ms, jit(f) 11 ms`."""
        prefix = f"{self.label}: " if self.label else ""
        plural = "" if self.limit == 1 else "s"
        compiled = ", ".join(
            f"{name} {seconds * 1e3:.0f} ms"
            for name, seconds in zip(self.names, self.durations, strict=True)
        )
        return (
            f"{prefix}budget of {self.limit} compilation{plural} exceeded: "
            f"{self.count} compiled: {compiled}"
        )


def compile_budget(
    limit: int,
    on_excess: Literal["raise", "warn"] = "raise",
    label: str = "",
    *,
    only: str | None = None,
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator: every call of the function gets a fresh `CompileBudget`, labelled by its name."""

    def decorate(fn: Callable[P, R]) -> Callable[P, R]:
        name = label or getattr(fn, "__name__", "")

        @functools.wraps(fn)
        def within_budget(*args: P.args, **kwargs: P.kwargs) -> R:
            with CompileBudget(limit, on_excess, name, only=only):
                return fn(*args, **kwargs)

        return within_budget

    return decorate
