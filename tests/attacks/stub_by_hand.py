# tries: says that it is unanswered
# exercise: 1.4
# verdict: unanswered
# flagged: no

def train(w, b, x, y, rates):
    raise NotImplementedError("your answer")
    return w, b
