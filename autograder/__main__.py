"""`python -m autograder`: the same as the `autograder` command."""

from autograder.cli import app

if __name__ == "__main__":
    app(prog_name="autograder")
