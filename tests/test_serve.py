"""`autograder serve` without a browser: what it takes for a folder, and what for JupyterLab's."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from typer.testing import CliRunner

from autograder.cli import app
from autograder.gradebook import DATABASE


def test_an_option_in_the_place_of_the_folder_is_jupyterlabs(tmp_path: Path) -> None:
    (tmp_path / DATABASE).touch()
    code = "import sys, pathlib; from autograder import cli; "
    code += "cli.SAMPLE_RESULTS = pathlib.Path(sys.argv[1]); cli.app(['serve', '--version'])"
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip()) == (0, version("jupyterlab")), done.stderr


def test_a_folder_without_a_gradebook_is_one_line(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["serve", str(tmp_path)])
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert f"`autograder grade PATH... --out {tmp_path}` writes it" in done.stderr
