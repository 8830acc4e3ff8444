"""Runs the course's own code in forked children of a warm process: what it leaves dies with it.

For trusted code only; learners' code runs in `autograder.sandbox`.
"""

import contextlib
import gc
import json
import math
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal

from autograder import jail, policy

Tell = Callable[[Any], None]
End = Literal["", "timeout", "crash"]

ENVIRONMENT = {name: value for name, value in policy.ENVIRONMENT.items() if name != "PATH"}
"""What a warm process must be started with: as a learner's, but for its programs."""


@contextlib.contextmanager
def environment(settings: Mapping[str, str]) -> Iterator[None]:
    """Processes started meanwhile have these settings, and those that all need."""
    before = dict(os.environ)
    os.environ.update({**ENVIRONMENT, **settings})
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def warm(imports: Iterable[str]) -> None:
    """Runs import statements, so that no child has to. Those that fail are left to the children.

    Raises RuntimeError where one of them started a thread or JAX's backend.
    """
    for statement in imports:
        with contextlib.suppress(Exception):
            exec(statement, {})
    require_cold()
    gc.collect()
    gc.freeze()


def require_cold() -> None:
    """Raises RuntimeError where this process has threads or started JAX's backend.

    A fork would have locks that nobody frees.
    """
    threads = len(os.listdir("/proc/self/task")) if sys.platform == "linux" else 1
    bridge = sys.modules.get("jax._src.xla_bridge")
    if threads > 1 or (bridge and bridge.backends_are_initialized()):
        raise RuntimeError(f"{threads} threads run here, or JAX's backend: no fork is safe")


def in_child(
    run: Callable[[Tell], None], cpu_seconds: float, wall_seconds: float
) -> tuple[list[Any], End]:
    """Runs in a fork of this process; returns what it told, and how it ended ("": by itself).

    run: is given a function that takes whatever JSON can hold. What it prints goes nowhere.
    """
    require_cold()
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reader)
            _prepare(cpu_seconds)
            run(lambda message: _write(writer, message))
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writer)
    data, in_time = _read(reader, time.monotonic() + wall_seconds)
    os.close(reader)
    if not in_time:
        os.kill(pid, signal.SIGKILL)
    status = os.waitpid(pid, 0)[1]
    late = not in_time or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU)
    end: End = "timeout" if late else "crash" if status else ""
    return [json.loads(line) for line in data.split(b"\n")[:-1]], end


def _prepare(cpu_seconds: float) -> None:
    if sys.platform == "linux":
        jail.die_with_parent()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nowhere, standard)
    limit = math.ceil(cpu_seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 1))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


MEMORY = 6 << 30
"""Bytes that a child may take: a changed number may ask for any array."""


def _write(writer: int, message: Any) -> None:
    data = json.dumps(message).encode() + b"\n"
    while data:
        data = data[os.write(writer, data) :]


def _read(reader: int, deadline: float) -> tuple[bytes, bool]:
    """What was written until the writer closed it, and whether that was before the deadline."""
    data = b""
    while select.select([reader], [], [], max(0.0, deadline - time.monotonic()))[0]:
        more = os.read(reader, 1 << 16)
        if not more:
            return data, True
        data += more
    return data, False
