# tries: fills the stack
# exercise: 1.4
# verdict: error
# flagged: no

def train(w, b, x, y, rates):
    return train(w, b, x, y, rates)
    return w, b
