"""Collects what JAX logs while a block runs, in place of printing it in red.

It reads the logger named "jax" only; warnings and `print` take their usual way.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import jax


class _Collector(logging.Handler):
    """Appends the message of every record to a list."""

    def __init__(self, messages: list[str]) -> None:
        super().__init__()
        self.messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@contextmanager
def captured_logs(*flags: str) -> Iterator[list[str]]:
    """Turns JAX's logging flags on for a block and collects the messages.

    `jax_log_compiles` gives four messages a compilation, of which one starts with "Compiling
    jit(f)"; `jax_explain_cache_misses` gives one a miss, which starts with "TRACING CACHE MISS".
    They hold times, ids and file names: print them through `helpers.stable`.

    Afterwards the flags and the logger are as before, also when the block raises.

    Args:
        flags: names of boolean options of `jax.config`.

    Yields:
        The messages so far, in order; the list grows while the block runs.

    Raises:
        AttributeError: for an option that this JAX does not have.
    """
    messages: list[str] = []
    logger = logging.getLogger("jax")
    before = {flag: getattr(jax.config, flag) for flag in flags}
    handlers, propagate = logger.handlers, logger.propagate
    try:
        logger.handlers, logger.propagate = [_Collector(messages)], False
        for flag in flags:
            jax.config.update(flag, True)
        yield messages
    finally:
        for flag, value in before.items():
            jax.config.update(flag, value)
        logger.handlers, logger.propagate = handlers, propagate
