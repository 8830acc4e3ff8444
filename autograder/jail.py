"""How a forked learner gives up what its parent had: namespaces, mounts, limits, system calls.

Runs in the learner's process, before any of its code. What it gives up is in `autograder.policy`.
Linux only, but for the limits.
"""

import contextlib
import ctypes
import errno
import fcntl
import os
import resource
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from autograder import policy

CLONE_NEW: Mapping[str, int] = {
    "user": 0x10000000,
    "mount": 0x00020000,
    "pid": 0x20000000,
    "ipc": 0x08000000,
    "network": 0x40000000,
    "uts": 0x04000000,
}
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 2, 4, 8, 1 << 14, 1 << 18
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 4, 22, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
CAPABILITIES = 41
CAPABILITY_VERSION_3 = 0x20080522
PROT_WRITE, PROT_EXEC, MAP_SHARED, MAP_ANONYMOUS = 2, 4, 1, 0x20
SECCOMP_IOCTL_NOTIF_RECV, SECCOMP_IOCTL_NOTIF_SEND = 0xC0502100, 0xC0182101
SECCOMP_USER_NOTIF_FLAG_CONTINUE = 1
NOTIFICATION_BYTES = 80
EVERY_SECONDS = 0.1
NOTIFIES = 6  # libseccomp's level of Linux 5.7; CONTINUE came with 5.5

Filter = Any
"""A `pyseccomp.SyscallFilter`; the library has no type to name without its C part."""


def enter(stream_fd: int, watch_fd: int, seccomp: Filter | None) -> None:
    """Leaves this process in a jail of its own, with descriptor 3 as its only way out.

    watch_fd: of a socket whose other end is a `Watch`; it is closed when this returns.
    seccomp: None where there are no namespaces either (`sandbox` says so loudly); then only the
    descriptors and the limits hold. Returns in the learner's process; the processes in between
    wait and vanish with it. Raises OSError where the kernel refuses a step.
    """
    os.setsid()
    die_with_parent()
    keep_only(stream_fd, watch_fd)
    if seccomp is not None:
        unshare()
        _fork_and_wait()  # the parent of a new pid namespace stays outside
        die_with_parent()
        empty_mounts()
        _fork_and_wait()  # init of that namespace: all in it ends with its child
        drop_privileges()
    apply_limits(policy.LIMITS)
    if seccomp is not None:
        _prctl(PR_SET_DUMPABLE, 0)  # its memory can't be written through /proc, code included
        _prctl(PR_SET_NO_NEW_PRIVS, 1)
        seccomp.load()
    _hand_over(4, seccomp)


def die_with_parent() -> None:
    """The kernel kills this process when its parent ends."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """What this process's descendants leave behind becomes its child."""
    _prctl(PR_SET_CHILD_SUBREAPER, 1)


def keep_only(*streams: int) -> None:
    """Standard descriptors go nowhere, the streams become 3, 4, ...; everything else is closed.

    Nothing that a learner prints can fill a disk or a pipe.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    out_of_the_way = [fcntl.fcntl(fd, fcntl.F_DUPFD, 64) for fd in (nowhere,) * 3 + streams]
    for place, fd in enumerate(out_of_the_way):
        os.dup2(fd, place)
    os.closerange(len(out_of_the_way), resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def unshare() -> None:
    """New namespaces. Root needs no user namespace to make the others; nobody else can without."""
    user = os.getuid() != 0
    uid, gid = os.getuid(), os.getgid()
    flags = sum(CLONE_NEW[name] for name in policy.NAMESPACES if user or name != "user")
    _checked(_libc().unshare(flags), "unshare")
    if user:
        maps = {"setgroups": "deny", "uid_map": f"{uid} {uid} 1", "gid_map": f"{gid} {gid} 1"}
        for file, text in maps.items():
            with open(f"/proc/self/{file}", "w") as stream:
                stream.write(text)


def empty_mounts() -> None:
    """Fresh, small file systems where a learner may write, and a /proc of its own processes."""
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    # what a learner wrote is no code: machine code in a file would be seen by no `Watch`
    data_only = MS_NOSUID | MS_NODEV | MS_NOEXEC
    mount("tmpfs", policy.SCRATCH, "tmpfs", data_only, policy.SCRATCH_BYTES)
    for place in filter(_is_empty, policy.ALSO_EMPTY):
        mount("tmpfs", place, "tmpfs", data_only, policy.MEGABYTE)
    mount("proc", "/proc", "proc", data_only)
    os.chdir(policy.SCRATCH)


def _is_empty(place: str) -> bool:
    """Not so where Python itself lies in it, as in a clone below /tmp: then it stays read-only."""
    return not os.listdir(place)


def mount(
    source: str | None, target: str, kind: str | None, flags: int, size: int | None = None
) -> None:
    """mount(2). size: of a tmpfs, in bytes. Raises OSError."""
    options = f"size={size},mode=1777" if size else None
    words = (word.encode() if word else None for word in (source, target, kind))
    status = _libc().mount(*words, ctypes.c_ulong(flags), options and options.encode())
    _checked(status, f"mount {target}")


def drop_privileges() -> None:
    """Root becomes a user who owns nothing; no capability now, and none to be had from a file.

    No two learners are the same user at a time, on the whole machine: the kernel gives each pid
    namespace a number of its own.
    """
    for capability in range(CAPABILITIES):
        _libc().prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    if os.getuid() == 0:
        nobody = policy.FIRST_USER + os.stat("/proc/self/ns/pid").st_ino % policy.USERS
        os.setgroups([])
        os.setresgid(nobody, nobody, nobody)
        os.setresuid(nobody, nobody, nobody)
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    _checked(_libc().capset(header, (ctypes.c_uint32 * 6)()), "capset")
    die_with_parent()  # a change of user clears it


def apply_limits(limits: Mapping[str, int]) -> None:
    """Sets the calling process's resource limits, where this system knows them."""
    for name, value in limits.items():
        if hasattr(resource, name):
            resource.setrlimit(getattr(resource, name), (value, value))


def seccomp_filter(watched: bool = True) -> Filter:
    """The filter of `policy.DENIED`, which also tells a `Watch` of new machine code.

    watched: False for one that doesn't, as on a Linux before 5.7. Raises ImportError or
    RuntimeError without libseccomp.
    """
    import pyseccomp

    allow_all_but = pyseccomp.SyscallFilter(pyseccomp.ALLOW)
    refuse = pyseccomp.ERRNO(errno.EPERM)
    for names in policy.DENIED.values():
        for name in names:
            allow_all_but.add_rule(refuse, name)
    for flag in CLONE_NEW.values():
        allow_all_but.add_rule(refuse, "clone", pyseccomp.Arg(0, pyseccomp.MASKED_EQ, flag, flag))
    # its flags lie in memory, where a filter can't look; libc then takes clone
    allow_all_but.add_rule(pyseccomp.ERRNO(errno.ENOSYS), "clone3")
    # the kernel looks at 32 bits of the option, a filter at 64
    for option in (PR_SET_SECCOMP, PR_SET_DUMPABLE):
        asked = pyseccomp.Arg(0, pyseccomp.MASKED_EQ, 0xFFFFFFFF, option)
        allow_all_but.add_rule(refuse, "prctl", asked)
    if not watched or pyseccomp.get_api() < NOTIFIES:
        return allow_all_but
    executable = pyseccomp.Arg(2, pyseccomp.MASKED_EQ, PROT_EXEC, PROT_EXEC)
    writable = PROT_WRITE | PROT_EXEC
    also_writable = pyseccomp.Arg(2, pyseccomp.MASKED_EQ, writable, writable)
    of_no_file = pyseccomp.Arg(3, pyseccomp.MASKED_EQ, MAP_ANONYMOUS, MAP_ANONYMOUS)
    shared = pyseccomp.Arg(3, pyseccomp.MASKED_EQ, MAP_SHARED, MAP_SHARED)
    allow_all_but.add_rule(pyseccomp.NOTIFY, "mprotect", executable)
    allow_all_but.add_rule(pyseccomp.NOTIFY, "pkey_mprotect", executable)
    # not of a file's own code, as a library is loaded: no learner can write a file that has any
    allow_all_but.add_rule(pyseccomp.NOTIFY, "mmap", executable, of_no_file)
    allow_all_but.add_rule(pyseccomp.NOTIFY, "mmap", executable, shared)
    allow_all_but.add_rule(pyseccomp.NOTIFY, "mmap", also_writable)
    return allow_all_but


class Watch:
    """Counts from outside how often a jailed process, or a child of it, makes memory executable.

    XLA does so at least once for every program with code of its own; unlike the memory itself,
    which a dropped program gives back, the system call can't be taken back. The kernel holds the
    process in it until `receive` lets it go on (seccomp_unotify(2)), so nothing is ever uncounted.

    ours: a socket whose other end `enter` gets. Waits until the process is in its jail, or gone.
    """

    def __init__(self, ours: socket.socket) -> None:
        _, self.listeners, _, _ = socket.recv_fds(ours, 1, 1)  # one, or none without a filter
        self.programs = 0

    def receive(self, control: socket.socket, often: Callable[[], None]) -> bytes:
        """The next message from `control`; counts until then, and calls `often`."""
        waiting = select.poll()
        for each in (control.fileno(), *self.listeners):
            waiting.register(each, select.POLLIN)
        due = 0.0
        while True:
            if time.monotonic() >= due:
                often()
                due = time.monotonic() + EVERY_SECONDS
            for ready, event in waiting.poll(1000 * EVERY_SECONDS):
                if ready == control.fileno():
                    return control.recv(1 << 16)
                if event & select.POLLIN:
                    self._note(ready)
                else:  # nobody is left to watch
                    waiting.unregister(ready)

    def _note(self, listener: int) -> None:
        """Counts a call, and lets it go on."""
        seen = bytearray(NOTIFICATION_BYTES)
        with contextlib.suppress(FileNotFoundError):  # who called has been killed meanwhile
            fcntl.ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, seen)
            self.programs += 1
            call = struct.unpack_from("=Q", seen)[0]
            go_on = struct.pack("=QqiI", call, 0, 0, SECCOMP_USER_NOTIF_FLAG_CONTINUE)
            fcntl.ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, go_on)

    def close(self) -> None:
        """Calls that still wait fail, and so do later ones."""
        for listener in self.listeners:
            os.close(listener)


def _hand_over(watch_fd: int, seccomp: Filter | None) -> None:
    """Sends the filter's listener, if it has one, and keeps nothing of it."""
    listener = -1
    if seccomp is not None:
        import pyseccomp

        listener = pyseccomp._libseccomp.seccomp_notify_fd(seccomp._filter)
    with socket.socket(fileno=watch_fd) as watch:
        socket.send_fds(watch, [b"."], [listener] if listener >= 0 else [])
    if listener >= 0:
        os.close(listener)


def _fork_and_wait() -> None:
    """Returns in a child. The caller waits for it and ends as it ended."""
    child = os.fork()
    if child:
        while True:
            pid, status = os.wait()
            if pid == child:
                os._exit(min(abs(os.waitstatus_to_exitcode(status)), 255))


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        _checked(_libc().prctl(option, value, 0, 0, 0), "prctl")


def _checked(status: int, what: str) -> None:
    if status < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
