"""`python -m autograder`: the same as the `autograder` command."""

from autograder.cli import app

app(prog_name="autograder")
