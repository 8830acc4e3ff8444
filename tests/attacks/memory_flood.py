# tries: takes all memory
# exercise: 1.4
# verdict: error|crash
# flagged: no

hoard = []
while True:
    hoard.append(bytearray(1 << 26))
