# tries: raises an error of fifty megabytes
# exercise: 1.4
# verdict: error
# flagged: no

raise RuntimeError('A' * 50_000_000)
