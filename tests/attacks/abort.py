# tries: aborts in C
# exercise: 1.4
# verdict: crash
# flagged: no

import os

def train(w, b, x, y, rates):
    os.abort()
    return w, b
