"""nbgrader's side of the course: its settings, its release steps, and a course folder for it.

One place for the settings, so that our build and `nbgrader generate_assignment` can't differ.
"""

import copy
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import nbformat
from nbformat import NotebookNode
from nbgrader.apps import NbGraderAPI
from nbgrader.converters import Autograde, GenerateAssignment
from nbgrader.coursedir import CourseDirectory
from nbgrader.preprocessors import Execute, SaveCells
from traitlets.config import Config
from traitlets.config.loader import PyFileConfigLoader

from autograder import assembly
from autograder.course import Chapter
from helpers.exercise import STUB

TEMPLATE = Path(__file__).with_name("nbgrader_config.py")
ENGINE = "autograder.nbgrader_plugin.Engine"
"""The preprocessor that takes the place of nbgrader's executor."""

SECONDS = 120
"""The longest that a cell may take where nbgrader runs the notebook itself."""


class CourseFolderError(Exception):
    """The folder can't become, or go on being, a course folder; the message is one line."""


def configure(config: Config, *, engine: bool = True) -> None:
    """Sets what the course needs of nbgrader.

    engine: grade with the course's own engine; without, with nbgrader's and its trust in what a
    learner's notebook does.
    """
    config.ClearSolutions.code_stub = {"python": f'raise NotImplementedError("{STUB}")  # ✍️'}
    # Graders restore the course's own cells anyway, so learners may play with them.
    config.LockCells.lock_readonly_cells = False
    config.Execute.timeout = SECONDS
    if engine:
        steps = Autograde().autograde_preprocessors
        config.Autograde.autograde_preprocessors = [
            ENGINE if step is Execute else step for step in steps
        ]


def settings(directory: Path) -> Config:
    """What the instructor's nbgrader_config.py in a course folder says; it is run for that."""
    return PyFileConfigLoader(TEMPLATE.name, path=str(directory)).load_config()


def released(notebook: NotebookNode, name: str) -> NotebookNode:
    """What `nbgrader generate_assignment` writes for a source notebook; no gradebook is needed."""
    config = Config()
    configure(config, engine=False)
    notebook = copy.deepcopy(notebook)
    resources = {"metadata": {"name": name}, "nbgrader": {"assignment": name, "notebook": name}}
    for step in GenerateAssignment().preprocessors:
        if step is not SaveCells:
            notebook, resources = step(config=config)(notebook, resources)
    return notebook


def lay_out(directory: Path, chapters: Sequence[Chapter], *, engine: bool = True) -> list[Path]:
    """Makes, or updates, a folder in which nbgrader's commands and formgrader work.

    It gets source/ with solutions, release/ for learners, gradebook.db, and nbgrader_config.py
    unless there is one: an instructor's settings stay. Returns the files and folders written.
    Raises CourseFolderError, SourceError and OSError.
    """
    directory = directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    chosen = directory / TEMPLATE.name
    if not chosen.exists():
        text = TEMPLATE.read_text(encoding="utf-8").replace("ENGINE = True", f"ENGINE = {engine}")
        chosen.write_text(text, encoding="utf-8")
        written.append(chosen)
    for chapter in chapters:
        source = directory / "source" / chapter.slug / f"{chapter.slug}.ipynb"
        source.parent.mkdir(parents=True, exist_ok=True)
        text = nbformat.writes(assembly.solution_notebook(chapter)).rstrip("\n") + "\n"
        source.write_text(text, encoding="utf-8")
        written.append(source)
    for chapter in chapters:
        _release(directory, chapter)
        written.append(directory / "release" / chapter.slug)
    return [*written, directory / "gradebook.db"]


def _release(directory: Path, chapter: Chapter) -> None:
    """`nbgrader generate_assignment`: release/ for learners, and the gradebook's entries."""
    config = Config()
    configure(config, engine=False)
    config.CourseDirectory.root = str(directory)
    with own_programs_first():
        api = NbGraderAPI(CourseDirectory(config=config), config=config)
        result = api.generate_assignment(chapter.slug)
    if not result["success"]:
        said = [line for line in (result.get("error") or result["log"]).splitlines() if line]
        raise CourseFolderError(f"nbgrader can't release {chapter.slug}: {said[-1]}")


@contextmanager
def own_programs_first() -> Iterator[None]:
    """nbgrader calls `alembic` by name: the one beside this Python, whatever PATH says."""
    before = os.environ.get("PATH", "")
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), before])
    try:
        yield
    finally:
        os.environ["PATH"] = before
