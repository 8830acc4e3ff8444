# tries: closes the channel
# exercise: 1.4
# verdict: crash
# flagged: yes

import os

os.closerange(0, 256)
