# tries: returns a gigabyte that was never touched
# exercise: 1.4
# verdict: error
# flagged: no

def train(w, b, x, y, rates):
    return np.zeros(1 << 27), b
    return w, b
