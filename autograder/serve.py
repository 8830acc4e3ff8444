"""Formgrader on a results folder, in the browser of whoever sits at this machine."""

import os
from collections.abc import Sequence
from pathlib import Path

from jupyterlab.labapp import LabApp

from autograder.gradebook import DATABASE
from autograder.nbgrader_course import own_programs_first
from autograder.problems import UsageError

SETTINGS = (
    "--ServerApp.ip=127.0.0.1",
    "--ServerApp.root_dir=.",
    "--LabApp.default_url=/formgrader",
    "--ServerApp.answer_yes=True",  # Ctrl-C ends it at once
)


def serve(folder: Path, settings: Sequence[str] = ()) -> None:
    """Runs JupyterLab's server there until Ctrl-C; its port is free, its token secret.

    settings: JupyterLab's own options, after ours. Raises UsageError.
    """
    if not (folder / DATABASE).is_file():
        todo = f"`autograder grade PATH... --out {folder}` writes it"
        raise UsageError(f"{folder} has no {DATABASE}: {todo}")
    os.chdir(folder)  # nbgrader reads its settings from here
    with own_programs_first():
        LabApp.launch_instance([*SETTINGS, *settings])
