# tries: starts processes until there are no more
# exercise: 1.4
# verdict: timeout|crash
# flagged: yes
# seconds: 1

import os
import time

try:
    while True:
        if os.fork() == 0:
            time.sleep(600)
except OSError:
    time.sleep(600)
