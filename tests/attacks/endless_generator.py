# tries: returns a generator that never ends
# exercise: 1.4
# verdict: error|crash|timeout
# flagged: no
# seconds: 1

import itertools


def train(w, b, x, y, rates):
    return itertools.count()
    return w, b
