# tries: waits for a lock that it holds
# exercise: 1.4
# verdict: timeout
# flagged: no
# seconds: 1

import threading

lock = threading.Lock()

def train(w, b, x, y, rates):
    lock.acquire()
    lock.acquire()
    return w, b
