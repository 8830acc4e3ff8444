"""`python -m helpers`: how far the learner is, in a terminal."""

from helpers.selfcheck import progress

progress()
