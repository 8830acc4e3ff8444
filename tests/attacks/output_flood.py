# tries: prints twenty megabytes, on both streams
# exercise: 1.4
# verdict: full
# flagged: no
# earns: 4

import sys

for _ in range(200):
    print('A' * 100_000)
    print('A' * 100_000, file=sys.stderr)


# %% honest part
