"""What the untrusted side may touch, as data; `sandbox` and `jail` carry it out.

Nothing here decides or does anything, so that each rule can be read, and tested, alone.
"""

from collections.abc import Mapping

MEGABYTE = 1 << 20

LIMITS: Mapping[str, int] = {
    "RLIMIT_CPU": 120,  # seconds, all exercises of a submission together
    "RLIMIT_DATA": 3072 * MEGABYTE,  # JAX needs address space, not data: AS would stop it
    "RLIMIT_FSIZE": 16 * MEGABYTE,
    "RLIMIT_NOFILE": 256,
    "RLIMIT_NPROC": 96,  # threads count; JAX on two cores starts about twenty
    "RLIMIT_CORE": 0,
    "RLIMIT_MEMLOCK": 0,
    "RLIMIT_MSGQUEUE": 0,
}
"""Resource limits of a learner's process, soft and hard alike, set before any of its code runs."""

RESIDENT = 4096 * MEGABYTE
"""Memory of all processes of a learner together, what they share included, which no limit of one
process counts. The warm parent looks every tenth of a second, and ends a learner with more."""

ENVIRONMENT: Mapping[str, str] = {
    "PATH": "/usr/bin:/bin",
    "JAX_PLATFORMS": "cpu",
    "OPENBLAS_NUM_THREADS": "1",  # one thread: only then is a fork safe
    "PYTHONHASHSEED": "0",
    "PYTHONDONTWRITEBYTECODE": "1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "MPLBACKEND": "agg",
}
"""The whole environment, but for HOME, TMPDIR, PYTHONPATH and XLA_FLAGS."""

XLA_FLAGS = ("--xla_backend_optimization_level=0", "--xla_llvm_disable_expensive_passes=true")
"""An answer's programs run for microseconds and compile for tens of milliseconds: the compiler
optimizes less. `tests/test_engine.py` grades with them every reference and chapter 01's bank."""

XLA_FLAGS_BEFORE_0_11 = ("--xla_cpu_use_fusion_emitters=false",)
"""Makes compiling another third cheaper; XLA refuses to start where it no longer knows a flag."""

MODULES = ("__init__", "jail", "policy", "student", "wire")
"""Modules of `autograder` that a learner's process can read, beside all of `helpers`."""

SYSTEM = (
    "/usr",
    "/lib",
    "/lib64",
    "/bin",
    "/sbin",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/localtime",
)
"""Read-only, where they exist; Python's own folders are added."""

SCRATCH, SCRATCH_BYTES = "/box", 64 * MEGABYTE
"""Where a learner may write: an empty file system in memory that goes with the process."""

ALSO_EMPTY = ("/tmp", "/dev/shm")
"""Writable places of every Linux; each learner gets an empty one of a megabyte.

One in which Python itself lies is read-only instead.
"""

NAMESPACES = ("user", "mount", "pid", "ipc", "network", "uts")
"""What each learner has of its own."""

FIRST_USER, USERS = 20_000, 40_000
"""Users and groups of learners' processes where the grader runs as root, each its own: the limits
on a user's processes and threads hold for each learner, and not for all that run at a time."""

ROOT_KEEPS = ("CAP_SYS_ADMIN", "CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_KILL")
"""Capabilities of a warm parent that root started: to make jails, and to end what is in them."""

DENIED: Mapping[str, tuple[str, ...]] = {
    "look into or steer other processes": (
        "ptrace", "process_vm_readv", "process_vm_writev", "kcmp", "pidfd_getfd", "pidfd_open",
    ),
    "make namespaces and mounts": (
        "unshare", "setns", "mount", "umount2", "pivot_root", "chroot", "open_tree", "move_mount",
        "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr",
    ),
    "reach the kernel's less trodden parts": (
        "bpf", "perf_event_open", "userfaultfd", "io_uring_setup", "io_uring_enter",
        "io_uring_register", "keyctl", "add_key", "request_key", "open_by_handle_at",
        "name_to_handle_at", "personality", "quotactl", "acct", "swapon", "swapoff", "reboot",
        "kexec_load", "kexec_file_load", "init_module", "finit_module", "delete_module", "syslog",
    ),
    "answer system calls before the grader's filter": ("seccomp",),
    "become another program, whose memory /proc would open": ("execve", "execveat"),
    "take what the whole machine has a number of": ("io_setup",),
    "take memory that is no process's own": (
        "memfd_create", "memfd_secret", "shmget", "shmat", "semget", "msgget",
    ),
    "talk to the network": ("socket", "socketpair", "connect", "bind", "listen", "accept4"),
}  # fmt: skip
"""System calls that fail with EPERM, by what they would allow."""
