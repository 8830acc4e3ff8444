# tries: writes one file without an end
# exercise: 1.4
# verdict: error|crash
# flagged: no

with open("/box/big", "wb") as file:
    while True:
        file.write(bytes(1 << 20))
        file.flush()
