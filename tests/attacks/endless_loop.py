# tries: never comes back
# exercise: 1.4
# verdict: timeout
# flagged: no
# seconds: 1

while True:
    pass
