# tries: ends its own process by a signal
# exercise: 1.4
# verdict: crash
# flagged: no

import os

os.kill(os.getpid(), 9)
