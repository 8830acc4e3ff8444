# tries: ends the cell as a program ends
# exercise: 1.4
# verdict: error
# flagged: no

raise SystemExit(0)
