# tries: reads a null pointer
# exercise: 1.4
# verdict: crash
# flagged: yes

import ctypes

def train(w, b, x, y, rates):
    ctypes.string_at(0)
    return w, b
