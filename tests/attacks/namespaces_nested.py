# tries: makes itself root in a namespace of its own
# exercise: 1.4
# verdict: error
# flagged: yes

import ctypes

libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x10000000) == 0 or libc.mount(b"tmpfs", b"/box", b"tmpfs", 0, None) == 0:
    raise SystemExit("it is root")
raise RuntimeError(ctypes.get_errno())
