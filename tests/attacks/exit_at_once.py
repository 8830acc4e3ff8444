# tries: leaves Python without a word
# exercise: 1.4
# verdict: crash
# flagged: yes

import os

os._exit(0)
