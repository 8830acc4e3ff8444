"""Collects what JAX and XLA log while a block runs, in place of printing it in red.

It reads the logger named "jax", or the process's standard error; warnings and `print` take their
usual way.
"""

import logging
import os
import sys
import tempfile
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


@contextmanager
def captured_stderr() -> Iterator[list[str]]:
    """Collects what compiled code writes to file descriptor 2 while a block runs.

    XLA is C++ and writes some errors there itself, beside the exception that it raises; a notebook
    shows both. Warnings of Python go through `sys.stderr`, which a notebook keeps apart; where
    `sys.stderr` is that descriptor, they are collected too. Threads share a descriptor.

    Yields:
        The lines, in order; the list is empty until the block has ended.
    """
    lines: list[str] = []
    sys.stderr.flush()
    before = os.dup(2)
    with tempfile.TemporaryFile() as file:
        os.dup2(file.fileno(), 2)
        try:
            yield lines
        finally:
            sys.stderr.flush()
            os.dup2(before, 2)
            os.close(before)
            file.seek(0)
            lines.extend(file.read().decode(errors="replace").splitlines())
