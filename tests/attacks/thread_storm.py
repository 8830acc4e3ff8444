# tries: starts threads until there are no more
# exercise: 1.4
# verdict: timeout|crash
# flagged: no
# seconds: 1

import threading
import time

try:
    while True:
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
except RuntimeError:
    time.sleep(600)
