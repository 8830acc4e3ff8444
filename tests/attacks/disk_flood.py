# tries: fills the disk
# exercise: 1.4
# verdict: error
# flagged: no

for number in range(200):
    with open(f"/box/{number}", "wb") as file:
        file.write(bytes(1 << 20))
