# tries: stops its own process
# exercise: 1.4
# verdict: timeout
# flagged: yes
# seconds: 1

import os
import signal

os.kill(os.getpid(), signal.SIGSTOP)
