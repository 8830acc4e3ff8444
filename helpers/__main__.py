"""`python -m helpers`: how far the learner is, in a terminal."""

from helpers.selfcheck import progress

if __name__ == "__main__":
    progress()
