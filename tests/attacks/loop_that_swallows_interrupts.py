# tries: catches whatever would end it
# exercise: 1.4
# verdict: timeout
# flagged: yes
# seconds: 1

import signal

for number in set(signal.valid_signals()) - {signal.SIGKILL, signal.SIGSTOP}:
    try:
        signal.signal(number, signal.SIG_IGN)
    except OSError:
        pass
while True:
    try:
        while True:
            pass
    except BaseException:
        pass
