# tries: returns an array of objects
# exercise: 1.4
# verdict: error
# flagged: no

def train(w, b, x, y, rates):
    return np.array([object()] * 2), b
    return w, b
