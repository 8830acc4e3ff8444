"""The untrusted side: a warm parent that forks learners, and what a learner's process does.

It never sees a reference, a hidden case's expectation, a seed or a mark. What it reports can be
forged by the code that it runs; `Tampering` makes that visible where it is clumsy.
Run as `python -m autograder.student FD isolated|limited`, FD being the control socket.
"""

import contextlib
import gc
import importlib
import io
import json
import linecache
import os
import pkgutil
import signal
import socket
import sys
import time
import types
from collections.abc import Iterator
from typing import Any

import jax.flatten_util
import jax.monitoring  # noqa: F401  imported before the first fork, for every learner

import helpers
from autograder import jail, wire
from helpers.exercise import Case, Observation, is_stub, observe, one_line
from helpers.exercises import exercises_of

NOT_PRELOADED = ("helpers.plotting",)
"""Modules of `helpers` that no probe uses and that are slow to import."""

GRACE_SECONDS = 0.5
"""How long a learner whose judge has hung up may take to end by itself."""

WATCHED = ("builtins", "numpy", "jax", "jax.numpy", "jax.lax", "jax.monitoring", "json", "struct")
"""Modules whose functions and classes an honest answer has no reason to replace."""


# --- the warm parent -----------------------------------------------------------------------------


def main(control_fd: int, isolated: bool) -> None:
    """Forks one learner for each job that arrives; ends when the judge closes the socket."""
    control = socket.socket(fileno=control_fd)
    jail.die_with_parent()
    jail.adopt_orphans()
    seccomp = jail.seccomp_filter() if isolated else None
    for module in pkgutil.walk_packages(helpers.__path__, "helpers."):
        if module.name not in NOT_PRELOADED:
            importlib.import_module(module.name)
    tampering = Tampering()
    gc.collect()
    gc.freeze()
    _tell(control, threads=len(os.listdir("/proc/self/task")) if sys.platform == "linux" else 1)
    while True:
        message, fds, _, _ = socket.recv_fds(control, 1 << 16, 1)
        if not message:
            return
        job = json.loads(message)
        child = os.fork()
        if child == 0:
            control.close()
            try:
                be_learner(fds[0], job["chapter"], seccomp, tampering)
            finally:
                os._exit(1)
        os.close(fds[0])
        _tell(control, started=True)
        if not control.recv(1 << 16):
            return
        _tell(control, **end_all(child))


def end_all(child: int) -> dict[str, float]:
    """Waits a moment for the child to end by itself, then kills it and whatever it left behind.

    Returns when nothing is left. Orphans of the child become children of this process, which is
    their subreaper. The kernel may forget what processes used that die with their pid namespace, so
    what still runs is read before it is killed.
    """
    ended_seconds, peak_mb = 0.0, 0.0
    patience = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < patience and not os.waitid(
        os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT
    ):
        time.sleep(0.002)
    running_seconds = sum(_cpu_seconds(pid) for pid in _descendants(os.getpid()))
    while True:
        for pid in _children(os.getpid()) or [child]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            _, _, usage = os.wait4(-1, 0)
        except ChildProcessError:
            return {"cpu_seconds": max(ended_seconds, running_seconds), "peak_mb": peak_mb}
        ended_seconds += usage.ru_utime + usage.ru_stime
        peak_mb = max(peak_mb, usage.ru_maxrss / 1024)


def _descendants(pid: int) -> list[int]:
    found = _children(pid)
    for each in found:
        found.extend(_children(each))
    return found


def _children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as listed:
            return [int(each) for each in listed.read().split()]
    except OSError:  # gone, or no Linux
        return []


def _cpu_seconds(pid: int) -> float:
    """What a process has used that still runs or waits to be reaped."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    user, system = int(fields[11]), int(fields[12])
    return (user + system) / os.sysconf("SC_CLK_TCK")


def _tell(control: socket.socket, **message: Any) -> None:
    control.send(json.dumps(message).encode())


# --- a learner's process -------------------------------------------------------------------------


def be_learner(fd: int, chapter: str, seccomp: jail.Filter, tampering: "Tampering") -> None:
    """Enters the jail, says so, and serves the judge until it hangs up."""
    try:
        jail.enter(fd, seccomp)
    except OSError as error:
        os.write(3, wire.encode({"jailed": False, "error": str(error)}))
        return
    stream = socket.socket(fileno=3)
    stream.sendall(wire.encode({"jailed": True}))
    serve(stream, chapter, tampering)


def serve(stream: socket.socket, chapter: str, tampering: "Tampering") -> None:
    """Answers "load" and "case" frames; a notebook's namespace lives as long as the process."""
    exercises = exercises_of(chapter)
    notebook = types.ModuleType("__main__")
    notebook.__dict__["display"] = lambda *things: None
    sys.modules["__main__"] = notebook
    incoming = stream.makefile("rb")
    while True:
        try:
            question = wire.decode(lambda n: _exactly(incoming, n))
        except EOFError:
            return
        if question["do"] == "load":
            reply: dict[str, Any] = {"errors": dict(run_cells(question["cells"], vars(notebook)))}
        else:
            exercise = exercises[question["exercise"]]
            case = Case("", *question["inputs"])
            seen = observe(exercise, vars(notebook), case)
            reply = _reply(seen, tampering.found())
        stream.sendall(_framed(reply))


def run_cells(cells: Any, namespace: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Runs (name, source) cells in the namespace; yields the errors. Tracebacks find the source."""
    for name, source in cells:
        file = f"<{name}>"
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        try:
            exec(compile(source, file, "exec"), namespace)
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            yield name, "" if is_stub(error) else one_line(error)


def _reply(seen: Observation, tampered: str) -> dict[str, Any]:
    if tampered:
        return {"values": {}, "fault": "tampered", "message": tampered}
    return {"values": dict(seen.values), "fault": seen.fault, "message": seen.message}


def _framed(reply: dict[str, Any]) -> bytes:
    try:
        return wire.encode(reply)
    except (wire.WireError, ValueError) as error:
        return wire.encode({"values": {}, "fault": "error", "message": str(error)[:300]})


def _exactly(stream: io.BufferedReader, n: int) -> bytes:
    data = stream.read(n)
    if len(data) < n:
        raise EOFError
    return data


# --- tampering -----------------------------------------------------------------------------------


class Tampering:
    """Remembers the functions and classes that observations rest on; tells which were replaced.

    Additions are no tampering, and neither are changed settings. Code that takes this class apart
    is not seen by it: DESIGN says what an observation cannot prove.
    """

    def __init__(self) -> None:
        ours = [name for name in sys.modules if name.split(".")[0] in ("helpers", "autograder")]
        self.modules = [importlib.import_module(name) for name in (*WATCHED, *ours)]
        self.before = dict(self._now())

    def found(self) -> str:
        """The first replaced thing as a sentence; "" if there is none."""
        now = dict(self._now())
        for name, thing in self.before.items():
            if now.get(name) is not thing:
                return f"{name} was replaced"
        return ""

    def _now(self) -> Iterator[tuple[str, Any]]:
        for module in self.modules:
            for name, thing in list(vars(module).items()):
                if callable(thing):
                    yield f"{module.__name__}.{name}", thing
                if getattr(thing, "__module__", None) == module.__name__:
                    yield from _insides(f"{module.__name__}.{name}", thing)


def _insides(name: str, thing: Any) -> Iterator[tuple[str, Any]]:
    """The code of a function; the methods of a class, and their code."""
    if isinstance(thing, types.FunctionType):
        yield f"the code of {name}", thing.__code__
    elif isinstance(thing, type):
        for key, item in list(vars(thing).items()):
            if callable(item) or isinstance(item, property):
                yield f"{name}.{key}", item
            if isinstance(item, types.FunctionType):
                yield f"the code of {name}.{key}", item.__code__


if __name__ == "__main__":
    # by its own name, so that learners' `__main__` is theirs and ours is watched like the rest
    from autograder import student

    student.main(int(sys.argv[1]), isolated=sys.argv[2] == "isolated")
