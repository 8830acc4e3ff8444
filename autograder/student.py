"""The untrusted side: a warm parent that forks learners, and what a learner's process does.

It never sees a reference, a hidden case's expectation, a seed or a mark. What it reports can be
forged by the code that it runs; `Tampering` makes that visible where it is clumsy.
Run as `python -m autograder.student FD isolated|limited`, FD being the control socket.
"""

import contextlib
import functools
import gc
import glob
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
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter, is_
from typing import Any, NamedTuple

import jax._src.monitoring
import jax.flatten_util
import jax.monitoring

import helpers
from autograder import jail, policy, wire
from helpers.exercise import Case, Exercise, Observation, is_stub, observe, one_line
from helpers.exercises import exercises_of

NOT_PRELOADED = ("helpers.plotting", "helpers.checkpoints")
"""Modules of `helpers` that no probe uses and that are slow to import, or start threads."""

GRACE_SECONDS = 0.5
"""How long a learner whose judge has hung up may take to end by itself."""

OURS = ("helpers", "autograder")
WATCHED = (
    "builtins", "numpy", "warnings", "json", "json.encoder", "json.decoder", "struct", "socket",
    "jax", "jax.numpy", "jax.lax", "jax.monitoring", "jax.stages", "jax._src.monitoring",
    "jax._src.array", "jax._src.basearray", "jax._src.core", "jax._src.api", "jax._src.pjit",
    "jax._src.compiler", "jax._src.dispatch", "jax._src.interpreters.pxla",
)  # fmt: skip
"""Modules whose functions and classes an honest answer has no reason to replace."""

PARTS = ("__code__", "__defaults__", "__kwdefaults__")
"""What a function does, whatever it is called."""

MISSING = object()
"""What stands for a thing that is no longer there; None may be somebody's value."""


# --- the warm parent -----------------------------------------------------------------------------


def main(control_fd: int, isolated: bool, modules: Sequence[str]) -> None:
    """Forks one learner for each job that arrives; ends when the judge closes the socket.

    modules: what else to import once, for all of them.
    """
    control = socket.socket(fileno=control_fd)
    jail.die_with_parent()
    jail.adopt_orphans()
    seccomp = jail.seccomp_filter() if isolated else None
    preload(modules)
    tampering = Tampering()
    gc.collect()
    gc.freeze()
    _tell(control, threads=len(os.listdir("/proc/self/task")) if sys.platform == "linux" else 1)
    while True:
        message, fds, _, _ = socket.recv_fds(control, 1 << 16, 1)
        if not message:
            return
        job = json.loads(message)
        ours, theirs = socket.socketpair()
        child = os.fork()
        if child == 0:
            control.close()
            ours.close()
            try:
                be_learner(fds[0], theirs.detach(), job["chapter"], seccomp, tampering)
            finally:
                os._exit(1)
        os.close(fds[0])
        theirs.close()
        with ours, contextlib.closing(jail.Watch(ours)) as watch:
            _tell(control, started=True)
            bound = functools.partial(end_if_large, child)
            while (asked := watch.receive(control, bound)) and "look" in json.loads(asked):
                _tell(control, **look(os.getpid()), programs=watch.programs)
        if not asked:
            return
        _tell(control, **end_all(child))


def preload(modules: Sequence[str] = ()) -> None:
    """Imports what learners will need, so that their processes have it from the start."""
    ours = (module.name for module in pkgutil.walk_packages(helpers.__path__, "helpers."))
    for name in (*ours, *modules):
        if name not in NOT_PRELOADED:
            importlib.import_module(name)


def look(pid: int) -> dict[str, float]:
    """How many processes descend from a process, and what they have used."""
    found = _descendants(pid)
    return {"processes": len(found), "cpu_seconds": sum(_cpu_seconds(each) for each in found)}


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
    """Of all its threads: a process is the child of the thread that forked it."""
    found: list[int] = []
    for place in glob.glob(f"/proc/{pid}/task/*/children"):
        with contextlib.suppress(OSError), open(place) as listed:  # it may be gone
            found.extend(int(each) for each in listed.read().split())
    return found


def end_if_large(child: int) -> None:
    """Kills a learner, and all its processes with it, where they hold more than they may.

    Beyond what this process has, which they share until they write into it.
    """
    shared = _resident_bytes(os.getpid())
    own = (_resident_bytes(pid) - shared for pid in _descendants(child))
    if sum(max(each, 0) for each in own) > policy.RESIDENT:
        os.kill(child, signal.SIGKILL)


def _resident_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _cpu_seconds(pid: int) -> float:
    """What a process has used that still runs or waits to be reaped, and what it has reaped."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            fields = stat.read().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _tell(control: socket.socket, **message: Any) -> None:
    control.send(json.dumps(message).encode())


# --- a learner's process -------------------------------------------------------------------------


def be_learner(
    fd: int, watch_fd: int, chapter: str, seccomp: jail.Filter, tampering: "Tampering"
) -> None:
    """Enters the jail, says so, and serves the judge until it hangs up."""
    try:
        jail.enter(fd, watch_fd, seccomp)
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
    incoming, send = stream.makefile("rb"), stream.sendall
    decode, run, ask, found = wire.decode, run_cells, observe, tampering.found
    reply_of, framed, exactly = _reply, _framed, _exactly  # ours, whatever becomes of the names
    while True:
        try:
            question = decode(lambda n: exactly(incoming, n))
        except EOFError:
            return
        if question["do"] == "load":
            reply: dict[str, Any] = {"errors": dict(run(question["cells"], vars(notebook)))}
        else:
            exercise = exercises[question["exercise"]]
            case = Case("", *question["inputs"])
            seen = ask(exercise, vars(notebook), case)
            reply = reply_of(seen, found(exercise))
        send(framed(reply, question["turn"]))


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


def _framed(reply: dict[str, Any], turn: str) -> bytes:
    try:
        return wire.encode({**reply, "turn": turn})
    except (wire.WireError, ValueError) as error:
        text = str(error)[:300]
        return wire.encode({"values": {}, "fault": "error", "message": text, "turn": turn})


def _exactly(stream: io.BufferedReader, n: int) -> bytes:
    data = stream.read(n)
    if len(data) < n:
        raise EOFError
    return data


# --- tampering -----------------------------------------------------------------------------------


class Held(NamedTuple):
    """One watched thing: `thing` is `holder[key]`. own: its code and defaults are watched too."""

    name: str
    holder: Mapping[str, Any]
    key: str
    thing: Any
    own: bool


class Tampering:
    """Remembers what observations rest on; tells what was replaced.

    Of our modules everything; of others the functions, classes and modules in them, and the insides
    of their own classes. Additions are no tampering, and neither are changed settings. Code that
    takes this class apart is not seen by it: DESIGN says what an observation cannot prove.
    """

    def __init__(self) -> None:
        self.ours = {name for name in sys.modules if name.split(".")[0] in OURS}
        self.modules = {name: importlib.import_module(name) for name in {*WATCHED, *self.ours}}
        self.held = list(self._held())
        self.functions = [
            each for each in self.held if each.own and isinstance(each.thing, types.FunctionType)
        ]
        self.code = list(self._code())
        self.classes = {
            each.thing: set(vars(each.thing)) for each in self.held if _has_insides(each.thing)
        }

    def found(self, exercise: Exercise) -> str:
        """The first replaced thing as a sentence; "" if there is none."""
        if sys.gettrace() or sys.getprofile():
            return "a tracing function was set"
        if vars(exercise):
            return f"{next(iter(vars(exercise)))} of the exercise was replaced"
        packers = (getattr(json, name) for name in ("_default_encoder", "_default_decoder"))
        if any({"encode", "decode"} & vars(packer).keys() for packer in packers):
            return "what json packs with was replaced"
        for cls, keys in self.classes.items():
            for key in set(vars(cls)) - keys:
                if any(key in vars(base) for base in cls.__mro__[1:]):
                    return f"{cls.__name__}.{key} was replaced"
        for name, module in self.modules.items():
            if sys.modules.get(name) is not module:
                return f"the module {name} was replaced"
        for each in self.held:
            if each.holder.get(each.key, MISSING) is not each.thing:
                return f"{each.name} was replaced"
        for place, same in enumerate(map(is_, self._code(), self.code)):
            if not same:
                return f"the code of {self.functions[place // len(PARTS)].name} was replaced"
        return ""

    def _code(self) -> Iterator[Any]:
        """What the functions are made of, part after part; there are thousands, so all in C."""
        return chain.from_iterable(map(attrgetter(*PARTS), (each.thing for each in self.functions)))

    def _held(self) -> Iterator[Held]:
        for module_name, module in self.modules.items():
            for key, thing in list(vars(module).items()):
                own = getattr(thing, "__module__", None) == module_name
                ours = module_name in self.ours and not key.startswith("__")
                if callable(thing) or isinstance(thing, types.ModuleType) or ours:
                    yield Held(f"{module_name}.{key}", vars(module), key, thing, own)
                if isinstance(thing, type) and (own or _has_insides(thing)):
                    yield from _insides(f"{module_name}.{key}", thing)
        listeners = jax._src.monitoring._event_duration_secs_listeners
        held = vars(jax._src.monitoring), "_event_duration_secs_listeners", listeners
        yield Held("the listeners", *held, own=False)


def _has_insides(thing: Any) -> bool:
    """Whether it is a class that is watched wherever it is met."""
    return isinstance(thing, type) and thing.__module__.split(".")[0] in (*OURS, "jax", "jaxlib")


def _insides(name: str, cls: type) -> Iterator[Held]:
    """What a class holds."""
    for key, item in list(vars(cls).items()):
        if callable(item) or not key.startswith("_"):
            yield Held(f"{name}.{key}", vars(cls), key, item, own=True)


if __name__ == "__main__":
    # by its own name, so that learners' `__main__` is theirs and ours is watched like the rest
    from autograder import student

    student.main(int(sys.argv[1]), isolated=sys.argv[2] == "isolated", modules=sys.argv[3:])
