"""Each rule of `autograder.policy`, tried from inside a learner's process."""

import contextlib
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from autograder import policy, sandbox
from autograder.course import ROOT
from autograder.deadline import MOST_CROWDED, Deadline
from autograder.sandbox import WarmParent

pytestmark = pytest.mark.skipif(
    bool(sandbox.missing()), reason=f"no isolation on this machine: {sandbox.missing()}"
)


@pytest.fixture(scope="module")
def parent():
    with WarmParent() as warm:
        yield warm


@pytest.fixture
def inside(parent):
    """Runs code in a fresh jail and returns the text of the variable `said`."""
    learner = parent.start("recompilation")

    def run(code: str) -> str:
        source = f"{code}\nraise ValueError(str(said).replace(chr(10), ' '))"
        errors = learner.load([("cell", source)], Deadline(30))
        return errors["cell"].removeprefix("ValueError: ")

    yield run
    learner.close()


OUTCOME = """
def outcome(run):
    try:
        run()
    except OSError as error:
        import errno
        return errno.errorcode[error.errno]
    return "done"
"""


COMPILES = """
import gc, jax, numpy as np
jax.monitoring.clear_event_listeners()
for n in range({programs}):
    jax.jit(lambda x: x * 2 + n)(np.ones(3, np.float32))
    gc.collect()
"""


def test_the_environment_is_the_policys_and_nothing_else(inside):
    names = {*policy.ENVIRONMENT, "HOME", "TMPDIR", "PYTHONPATH", "XLA_FLAGS"}
    mine = {"PWD", "LC_CTYPE", "TPU_SKIP_MDS_QUERY"}  # set by bubblewrap, Python and JAX
    said = inside("import os\nsaid = ' '.join(os.environ)")
    assert names <= set(said.split()) <= names | mine


def test_a_learner_is_nobody_in_particular(inside):
    said = inside("import os\nsaid = *os.getresuid(), *os.getresgid(), *os.getgroups()")
    users = {int(user) for user in said.strip("()").split(",")}
    if os.getuid() == 0:
        assert len(users) == 1
        assert users.pop() in range(policy.FIRST_USER, policy.FIRST_USER + policy.USERS)
    else:
        assert os.getuid() in users


@pytest.mark.parametrize("kind", ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"])
def test_no_capability_is_left(inside, kind):
    said = inside("said = open('/proc/self/status').read().replace('\\t', '')")
    status = inside(
        f"said = [l.split()[1] for l in open('/proc/self/status') if l.startswith('{kind}')][0]"
    )
    assert int(status, 16) == 0, said


def test_no_new_privileges_and_a_filter_of_system_calls(inside):
    said = inside(
        "said = [l.split()[1] for l in open('/proc/self/status')"
        " if l.startswith(('NoNewPrivs:', 'Seccomp:'))]"
    )
    assert said == "['1', '2']"


@pytest.mark.parametrize("name", policy.LIMITS)
def test_resource_limits_are_the_policys(inside, name):
    said = inside(f"import resource\nsaid = resource.getrlimit(resource.{name})")
    assert said == str((policy.LIMITS[name],) * 2)


@pytest.mark.parametrize(
    "path",
    [ROOT / "solutions", ROOT / "chapters", ROOT / ".git", ROOT / "tests", Path.home() / "."],
)
def test_what_is_not_a_learners_is_not_there(inside, path):
    inside_python = any(path == Path(p) or path in Path(p).parents for p in sandbox.readable())
    listing = inside(f"import os\nsaid = os.listdir({str(path)!r}) if os.path.isdir({str(path)!r})"
                     " else 'absent'")  # fmt: skip
    if inside_python:  # a folder above Python's own: nothing but the way there
        assert len(listing.split(",")) == 1
    else:
        assert listing == "absent"


def test_of_the_grader_only_five_modules_are_there(inside):
    said = inside("import os\nsaid = sorted(os.listdir('/packages/autograder'))")
    assert said == str(sorted(f"{module}.py" for module in policy.MODULES))


@pytest.mark.parametrize("place", ["/", "/usr", "/dev", "/packages/helpers", "/etc", sys.prefix])
def test_nothing_outside_scratch_can_be_written(inside, place):
    said = inside(f"{OUTCOME}\nsaid = outcome(lambda: open('{place}/note', 'w'))")
    assert said in ("EROFS", "EACCES")


@pytest.mark.parametrize("place", [policy.SCRATCH, *policy.ALSO_EMPTY])
def test_scratch_places_are_empty_writable_and_small(inside, place):
    if any(path.startswith(f"{place}/") for path in sandbox.readable()):  # a clone below /tmp
        said = inside(f"{OUTCOME}\nsaid = outcome(lambda: open('{place}/note', 'w'))")
        assert said in ("EROFS", "EACCES")
        return
    size = policy.SCRATCH_BYTES if place == policy.SCRATCH else policy.MEGABYTE
    fill = (
        "import os\n"
        f"def fill():\n    for i in range({size} // 2**20 + 1):\n"
        f"        with open('{place}/%d' % i, 'wb') as f: f.write(bytes(2**20))\n"
    )
    assert inside(f"import os\nsaid = os.listdir('{place}')") == "[]"
    assert inside(f"{OUTCOME}\n{fill}\nsaid = outcome(fill)") == "ENOSPC"


def test_a_file_can_not_grow_beyond_its_limit(inside):
    write = "import signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n" + (
        f"def write():\n    with open('big', 'wb') as f:\n"
        f"        for _ in range({policy.LIMITS['RLIMIT_FSIZE'] // 2**20 + 1}):\n"
        "            f.write(bytes(2**20)); f.flush()\n"
    )
    assert inside(f"{OUTCOME}\n{write}\nsaid = outcome(write)") == "EFBIG"


def test_a_learner_sees_its_own_processes_only(inside):
    said = inside("import os\nsaid = sorted(int(p) for p in os.listdir('/proc') if p.isdigit())")
    assert said == "[1, 2]"


def test_no_descriptor_is_open_but_three_that_lead_nowhere_and_the_stream(inside):
    said = inside(
        "import os\nsaid = [os.readlink(f'/proc/self/fd/{n}').split(':')[0] for n in range(64)"
        " if os.path.lexists(f'/proc/self/fd/{n}')]"
    )
    assert said.startswith("['/dev/null', '/dev/null', '/dev/null', 'socket'")
    assert said.count(",") == 3


def test_the_host_has_no_name(inside):
    assert inside("import os\nsaid = os.uname().nodename") == "jail"


SYSCALLS = [name for names in policy.DENIED.values() for name in names]


@pytest.mark.parametrize("name", SYSCALLS)
def test_a_denied_system_call_is_refused(inside, name):
    import pyseccomp

    number = pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, name)
    if number < 0:
        pytest.skip(f"this architecture has no {name}")
    said = inside(
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        f"said = libc.syscall({number}, 0, 0, 0, 0, 0), ctypes.get_errno()"
    )
    assert said == f"(-1, {errno.EPERM})"


OPTIONS = {
    "a filter before ours": 22,
    "a filter, in more than 32 bits": 22 + 2**32,
    "memory that /proc opens": 4,
}


@pytest.mark.parametrize("option", OPTIONS.values(), ids=OPTIONS.keys())
def test_what_a_process_may_ask_for_itself_weakens_nothing(inside, option):
    import pyseccomp

    number = pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, "prctl")
    said = inside(
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        f"said = libc.syscall({number}, ctypes.c_ulong({option}), 1, 0, 0, 0), ctypes.get_errno()"
    )
    assert said == f"(-1, {errno.EPERM})"


def test_no_memory_is_written_through_proc(inside):
    assert inside(f"{OUTCOME}\nsaid = outcome(lambda: open('/proc/self/mem', 'r+b'))") == "EACCES"


@pytest.mark.parametrize("place", [policy.SCRATCH, *policy.ALSO_EMPTY, "/dev/shm"])
def test_a_file_that_a_learner_wrote_is_no_code(inside, place):
    """Its memory would be executable without a compilation that the parent sees."""
    own = f"{place}/code"
    said = inside(
        f"{OUTCOME}\nimport mmap\ndef run():\n"
        f"    with open({own!r}, 'w+b') as f:\n        f.write(bytes(4096)); f.flush()\n"
        "        mmap.mmap(f.fileno(), 4096, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC)\n"
        "said = outcome(run)"
    )
    assert said in ("EPERM", "EROFS", "EACCES")


@pytest.mark.parametrize("flags", ["MAP_SHARED", "MAP_PRIVATE"])
def test_memory_of_a_device_that_may_hold_code_is_counted(parent, flags):
    source = (
        f"import mmap, os\nm = mmap.mmap(os.open('/dev/zero', os.O_RDWR), 4096, mmap.{flags}, 7)"
    )
    with contextlib.closing(parent.start("recompilation")) as learner:
        before = learner.look().programs
        assert learner.load([("cell", source)], Deadline(30)) == {}
        assert learner.look().programs == before + 1


def test_the_children_of_all_threads_are_seen(parent):
    source = (
        "import os, threading, time\n"
        "def leave():\n    if os.fork() == 0: time.sleep(60)\n    time.sleep(60)\n"
        "threading.Thread(target=leave, daemon=True).start()\ntime.sleep(1)"
    )
    with contextlib.closing(parent.start("recompilation")) as learner:
        before = learner.look().processes
        assert learner.load([("cell", source)], Deadline(30)) == {}
        assert learner.look().processes == before + 1


def test_what_the_processes_of_a_learner_hold_together_is_limited(parent):
    flood = (
        "import mmap, time\nheld = []\n"
        f"for _ in range({policy.RESIDENT // 2**28 + 2}):\n"
        "    held.append(mmap.mmap(-1, 2**28))\n"
        "    for at in range(0, 2**28, 4096): held[-1][at] = 1\n"
        "time.sleep(1)"
    )
    greedy = contextlib.closing(parent.start("recompilation"))
    with greedy as learner, pytest.raises(sandbox.LearnerGone):
        learner.load([("cell", flood)], Deadline(60))


@pytest.mark.parametrize("flag", [0x10000000, 0x00020000, 0x20000000, 0x40000000])
def test_clone_makes_no_namespace(inside, flag):
    import pyseccomp

    number = pyseccomp.resolve_syscall(pyseccomp.Arch.NATIVE, "clone")
    said = inside(
        "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        f"said = libc.syscall({number}, {flag | 17}, 0, 0, 0, 0), ctypes.get_errno()"
    )
    assert said == f"(-1, {errno.EPERM})"


def test_the_number_of_processes_is_limited_and_a_fork_bomb_ends_with_its_learner(parent):
    learner = parent.start("recompilation")
    bomb = (
        "import os, time\nmade = 0\ntry:\n    while True:\n"
        "        if os.fork() == 0: time.sleep(60)\n        made += 1\n"
        "except OSError: pass\nraise ValueError(str(made))"
    )
    errors = learner.load([("cell", bomb)], Deadline(60))
    made = int(errors["cell"].removeprefix("ValueError: "))
    learner.close()
    assert 10 < made <= policy.LIMITS["RLIMIT_NPROC"]
    assert _processes_under(parent.process.pid) <= 3


STORM = """
import threading, time
try:
    while True:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
except RuntimeError:
    pass
"""


def test_a_learner_that_takes_all_its_threads_takes_none_of_its_neighbours(parent):
    greedy = parent.start("recompilation")
    assert greedy.load([("cell", STORM)], Deadline(30)) == {}
    with WarmParent() as beside:
        neighbour = beside.start("recompilation")
        code = COMPILES.format(programs=1)
        assert neighbour.load([("cell", code)], Deadline(30)) == {}
        neighbour.close()
    greedy.close()


def test_what_a_learner_starts_ends_with_it(parent):
    learner = parent.start("recompilation")
    daemon = (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        time.sleep(600)\n    os._exit(0)\n"
    )
    assert learner.load([("cell", daemon)], Deadline(30)) == {}
    learner.close()
    assert _processes_under(parent.process.pid) <= 3


def test_the_next_learner_finds_nothing_of_the_last(parent):
    first = parent.start("recompilation")
    leave = "open('note', 'w').write('x')\nopen('/dev/shm/a', 'w').write('x')\nimport helpers\n"
    leave += "helpers.left = 1\nimport numpy\nnumpy.left = 1"
    assert first.load([("cell", leave)], Deadline(30)) == {}
    first.close()
    second = parent.start("recompilation")
    look = (
        "import os, helpers, numpy\nassert not os.listdir('.') and not os.listdir('/dev/shm')\n"
        "assert not hasattr(helpers, 'left') and not hasattr(numpy, 'left')"
    )
    assert second.load([("cell", look)], Deadline(30)) == {}
    second.close()


def test_what_is_compiled_is_counted_from_outside_though_it_is_dropped_and_its_events_go_nowhere(
    parent,
):
    learner = parent.start("recompilation")
    seen = [learner.look().programs]
    for code in ("import jax", COMPILES.format(programs=3), COMPILES.format(programs=0)):
        assert learner.load([("cell", code)], Deadline(30)) == {}
        seen.append(learner.look().programs)
    learner.close()
    assert seen == [0, 0, 3, 3]


UNWATCHED = """
import os, socket
from autograder import jail
ours, theirs = socket.socketpair()
if os.fork() == 0:
    ours.close()
    jail._prctl(jail.PR_SET_NO_NEW_PRIVS, 1)
    seccomp = jail.seccomp_filter(watched=False)
    seccomp.load()
    jail._hand_over(theirs.detach(), seccomp)
    os._exit(0)
theirs.close()
watch = jail.Watch(ours)
print(watch.listeners, watch.programs, os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_where_the_kernel_tells_of_no_code_nothing_waits_for_it():
    ran = subprocess.run([sys.executable, "-c", UNWATCHED], capture_output=True, text=True)
    assert ran.stdout == "[] 0 0\n", ran.stderr


def test_a_learner_that_is_ended_while_it_compiles_holds_nobody_up(parent):
    learner = parent.start("recompilation")
    with pytest.raises(sandbox.LearnerLate):
        endless = COMPILES.format(programs=10**6)
        learner.load([("cell", endless)], Deadline(3))
    assert learner.look().programs > 3
    learner.close()
    assert parent.start("recompilation").close().cpu_seconds < 1


def test_the_cpu_time_of_a_learner_that_hangs_is_known(parent):
    learner = parent.start("recompilation")
    with pytest.raises(sandbox.LearnerLate):
        learner.load([("cell", "while True: pass")], Deadline(1.5))
    used = learner.close().cpu_seconds
    assert 0.3 < used < 1 + 1.5 * MOST_CROWDED


def test_a_missing_bubblewrap_is_a_sentence_that_says_what_to_do(monkeypatch):
    sandbox.missing.cache_clear()
    monkeypatch.setenv("PATH", "/nowhere")
    try:
        assert "apt install bubblewrap" in sandbox.missing()
    finally:
        sandbox.missing.cache_clear()


def test_without_isolation_the_limits_still_hold(monkeypatch):
    monkeypatch.setattr(sandbox, "missing", lambda: "as if it were missing")
    with WarmParent() as warm:
        assert not warm.isolated
        learner = warm.start("recompilation")
        code = "import resource\nraise ValueError(str(resource.getrlimit(resource.RLIMIT_FSIZE)))"
        said = learner.load([("cell", code)], Deadline(30))["cell"]
        learner.close()
    assert str(policy.LIMITS["RLIMIT_FSIZE"]) in said


def _processes_under(pid: int) -> int:
    """How many processes descend from a process, itself included."""
    found = [pid]
    for each in found:
        children = Path(f"/proc/{each}/task/{each}/children")
        if children.exists():
            found.extend(int(child) for child in children.read_text().split())
    return len(found)
