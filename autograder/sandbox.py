"""The judge's end: starts a warm parent in a sandbox, and talks to the learners that it forks.

A warm parent is a process that has imported JAX. On Linux it runs under bubblewrap, where it sees
Python, `helpers` and five modules of `autograder`, no network and no other process; each learner
that it forks then makes a jail of its own (`autograder.jail`). The judge talks to a learner through
a socket of its own; the parent's control socket never reaches it.
"""

import functools
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import numpy as np
from packaging.version import Version

from autograder import policy, wire
from autograder.deadline import Deadline
from helpers.exercise import Observation

PACKAGES = Path(__file__).resolve().parent.parent
"""Where `autograder` and `helpers` lie: a learner gets the judge's own, whatever is installed."""

START_SECONDS = 120.0
"""How long a warm parent may take to import JAX: slow disks, no bytecode."""


class LearnerGone(Exception):
    """The learner's process ended before it answered."""


class LearnerForged(LearnerGone):
    """What came back is no answer of the harness: learner's code wrote into its channel."""


class LearnerLate(Exception):
    """The deadline passed before the learner's process answered."""


@dataclass(frozen=True)
class Usage:
    """What a learner's processes cost: CPU seconds, peak resident megabytes of the largest."""

    cpu_seconds: float
    peak_mb: float


@dataclass(frozen=True)
class Look:
    """What can be seen of a learner from outside its process, at one moment.

    processes: how many there are, those around the learner included. programs: how often they
    have made memory executable; XLA does so at least once for each program with code of its own.
    cpu_seconds: what they have used so far. 0 where the system does not tell.
    """

    processes: int
    programs: int
    cpu_seconds: float


class WarmParent:
    """A process with JAX imported and no backend started; starts one learner at a time.

    modules: what it imports besides. A context manager. Raises RuntimeError where the process does
    not come up or has more than one thread, since a fork of several threads can hang.
    """

    def __init__(self, modules: Sequence[str] = ()) -> None:
        self.isolated = not missing()
        self.scratch = tempfile.mkdtemp(prefix="learner-")
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            mode = "isolated" if self.isolated else "limited"
            run = [sys.executable, "-P", "-m", "autograder.student", str(theirs.fileno()), mode]
            run += modules
            self.process = subprocess.Popen(
                [*bubblewrap(), *run] if self.isolated else run,
                pass_fds=[theirs.fileno()],
                env=environment(self.isolated, self.scratch),
                cwd=self.scratch,
                stdin=subprocess.DEVNULL,
            )
        self.control.settimeout(START_SECONDS)
        try:
            ready = self._hear()
        except (OSError, ValueError) as error:
            self.close()
            raise RuntimeError(f"the warm parent did not start: {error}") from None
        if ready["threads"] != 1:
            self.close()
            raise RuntimeError(f"the warm parent has {ready['threads']} threads, forking is unsafe")

    def start(self, chapter: str) -> "Learner":
        """Forks a learner; it is in its jail when this returns. Raises RuntimeError if not."""
        ours, theirs = socket.socketpair()
        with theirs:
            job = json.dumps({"chapter": chapter}).encode()
            socket.send_fds(self.control, [job], [theirs.fileno()])
        self._hear()
        learner = Learner(self, ours)
        try:
            learner.ready(Deadline(START_SECONDS))
        except (LearnerGone, LearnerLate) as error:
            raise RuntimeError(f"a learner's process could not be jailed: {error}") from None
        return learner

    def look(self) -> Look:
        """What there is of the learner now; none of its code has a say in it."""
        self.control.send(b'{"look": true}')
        return Look(**self._hear())

    def finish(self) -> Usage:
        """Kills the learner with all its children, waits until they are gone, empties scratch."""
        self.control.send(b'{"finish": true}')
        told = self._hear()
        for entry in os.scandir(self.scratch):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                os.unlink(entry.path)
        return Usage(told["cpu_seconds"], told["peak_mb"])

    def close(self) -> None:
        """Ends the parent; its learner, if any, ends with it."""
        self.control.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _hear(self) -> dict[str, Any]:
        message = self.control.recv(4096)
        if not message:
            raise OSError("the warm parent is gone")
        told: dict[str, Any] = json.loads(message)
        return told


class Learner:
    """The judge's end of one learner's process."""

    def __init__(self, parent: WarmParent, stream: socket.socket) -> None:
        self.parent = parent
        self.stream = stream

    def ready(self, deadline: Deadline) -> None:
        """Waits until the process is in its jail. Raises LearnerGone or LearnerLate."""
        jailed = self._receive(deadline)
        if jailed.get("jailed") is not True:
            raise LearnerGone(str(jailed.get("error"))[:300])

    def load(self, cells: Sequence[tuple[str, str]], deadline: Deadline) -> dict[str, str]:
        """Runs cells, given as (name, source), and returns the errors by the cells' names.

        Raises LearnerGone or LearnerLate.
        """
        reply = self._ask({"do": "load", "cells": [list(cell) for cell in cells]}, deadline)
        errors = reply.get("errors")
        if not isinstance(errors, dict):
            raise LearnerForged("no list of errors")
        return {_line(name): _line(text) for name, text in errors.items()}

    def observe(self, exercise: str, inputs: Sequence[Any], deadline: Deadline) -> Observation:
        """One call of the probe. Raises LearnerGone or LearnerLate."""
        question = {"do": "case", "exercise": exercise, "inputs": portable(list(inputs))}
        reply = self._ask(question, deadline)
        values, fault, message = reply.get("values"), reply.get("fault"), reply.get("message")
        if not isinstance(values, dict) or not isinstance(message, str):
            raise LearnerForged("no observation")
        if fault not in ("", "unanswered", "error", "tampered"):
            raise LearnerForged("no fault of ours")
        return Observation(values, fault, _line(message))

    def look(self) -> Look:
        """What the warm parent sees of it from outside."""
        return self.parent.look()

    def close(self) -> Usage:
        """Ends the process with all its children."""
        self.stream.close()
        return self.parent.finish()

    def _ask(self, question: Mapping[str, Any], deadline: Deadline) -> dict[str, Any]:
        turn = secrets.token_hex(8)  # a frame that was written before the question can't know it
        try:
            self.stream.settimeout(max(deadline.left(), 0.01))
            self.stream.sendall(wire.encode({**question, "turn": turn}))
        except TimeoutError:
            raise LearnerLate from None
        except OSError as error:
            raise LearnerGone(str(error)) from None
        reply = self._receive(deadline)
        if reply.get("turn") != turn:
            raise LearnerForged("a frame that answers no question")
        return reply

    def _receive(self, deadline: Deadline) -> dict[str, Any]:
        try:
            return wire.decode(lambda n: self._read(n, deadline))
        except TimeoutError:
            raise LearnerLate from None
        except wire.WireError as error:
            raise LearnerForged(str(error)) from None
        except OSError as error:
            raise LearnerGone(str(error)) from None

    def _read(self, n: int, deadline: Deadline) -> bytes:
        """Exactly n bytes, in memory that grows with what arrives."""
        parts = bytearray()
        while len(parts) < n:
            if not (left := deadline.left()):
                raise TimeoutError
            self.stream.settimeout(left)
            try:
                part = self.stream.recv(min(n - len(parts), 1 << 16))
            except TimeoutError:
                continue
            if not part:
                raise OSError("the process ended before it answered")
            parts += part
        return bytes(parts)


# --- the sandbox ---------------------------------------------------------------------------------


@functools.cache
def missing() -> str:
    """What this machine lacks for isolation, with what to do about it; "" if it lacks nothing."""
    if sys.platform != "linux":
        return f"{sys.platform} has no bubblewrap: learners' code runs under resource limits only"
    if not shutil.which("bwrap"):
        return (
            "bubblewrap is missing (`apt install bubblewrap`): learners' code can read files here"
        )
    try:
        from autograder import jail

        jail.seccomp_filter()
    except (ImportError, RuntimeError, OSError) as error:
        return f"libseccomp is missing (`apt install libseccomp2`): {error}"
    tried = subprocess.run(
        [*bubblewrap(), "/usr/bin/true"], stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    if tried.returncode:
        said = tried.stderr.strip() or "bwrap failed"
        return f"bubblewrap can't make namespaces here ({said}): learners' code can read files"
    return ""


def bubblewrap() -> list[str]:
    """The command that runs what follows it in the warm parent's sandbox."""
    command = ["bwrap", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
    command += ["--unshare-cgroup-try", "--die-with-parent", "--new-session", "--hostname", "jail"]
    if os.getuid() == 0:
        command += ["--cap-drop", "ALL"]
        for capability in policy.ROOT_KEEPS:
            command += ["--cap-add", capability]
    else:
        command += ["--unshare-user"]
    binds = {path: path for path in readable()}
    binds["/packages/helpers"] = str(PACKAGES / "helpers")
    for module in policy.MODULES:
        binds[f"/packages/autograder/{module}.py"] = str(PACKAGES / f"autograder/{module}.py")
    folders = {str(folder) for path in binds for folder in Path(path).parents} - {"/"}
    for folder in sorted(folders | {policy.SCRATCH, *policy.ALSO_EMPTY}):
        command += ["--perms", "0755", "--dir", folder]  # bwrap's own are for their owner only
    for inside, outside in binds.items():
        command += ["--ro-bind", outside, inside]
    command += ["--proc", "/proc", "--dev", "/dev", "--remount-ro", "/dev", "--remount-ro", "/"]
    return [*command, "--chdir", policy.SCRATCH, "--"]


def readable() -> list[str]:
    """Folders and files that Python and JAX need, each that exists once, outermost first."""
    scheme = sysconfig.get_paths()
    python = {sys.base_prefix, sys.prefix, scheme["purelib"], scheme["platlib"]}
    python |= {str(Path(sys.executable).resolve().parent.parent)}
    paths = [path for path in (*policy.SYSTEM, *sorted(python)) if os.path.exists(path)]
    return [p for p in paths if not any(p.startswith(f"{other}/") for other in paths)]


def environment(isolated: bool, scratch: str) -> dict[str, str]:
    """The whole environment of a warm parent and its learners."""
    home = policy.SCRATCH if isolated else scratch
    packages = "/packages" if isolated else str(PACKAGES)
    own = {"HOME": home, "TMPDIR": home, "PYTHONPATH": packages, "XLA_FLAGS": xla_flags()}
    return {**policy.ENVIRONMENT, **own}


def xla_flags() -> str:
    """How learners' programs are compiled with the installed jaxlib."""
    older = Version(version("jaxlib")) < Version("0.11")
    return " ".join(policy.XLA_FLAGS + (policy.XLA_FLAGS_BEFORE_0_11 if older else ()))


def _line(text: Any) -> str:
    """What a learner's process says, as one printable line."""
    shown = "".join(c if c.isprintable() else " " for c in str(text)[:600])
    return " ".join(shown.split())[:300]


def portable(value: Any) -> Any:
    """Inputs as the wire takes them: NumPy scalars become arrays, tuples lists."""
    if isinstance(value, np.generic):
        return np.asarray(value)
    if isinstance(value, list | tuple):
        return [portable(item) for item in value]
    if isinstance(value, Mapping):
        return {key: portable(item) for key, item in value.items()}
    return value
