# tries: reads the memory of the process above it
# exercise: 1.4
# verdict: error
# flagged: yes

import ctypes

libc = ctypes.CDLL(None, use_errno=True)
tried = [libc.ptrace(16, 1, 0, 0), libc.process_vm_readv(1, 0, 0, 0, 0, 0)]
raise RuntimeError(tried)
