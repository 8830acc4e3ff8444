"""The same engine inside `nbgrader autograde`, in the place of its executor.

nbgrader goes on doing what it does: copying, restoring locked cells, late penalties, the gradebook.
It reads the points from the outputs that this preprocessor puts below the self-checks.
"""

import functools
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbgrader.preprocessors import NbGraderPreprocessor

from autograder import cells, course, gradebook, submission
from autograder.assembly import dashed
from autograder.collect import Found
from autograder.grade import Grader
from autograder.sandbox import missing


class Engine(NbGraderPreprocessor):
    """Runs a submission's answers in the sandbox and writes the verdicts as outputs."""

    def preprocess(
        self, nb: NotebookNode, resources: dict[str, Any]
    ) -> tuple[NotebookNode, dict[str, Any]]:
        """Called once a notebook. Raises UnknownChapter or Unreadable, which nbgrader logs."""
        chapter = course.chapter(resources["nbgrader"]["assignment"])
        found = Found(resources["nbgrader"]["student"], Path(f"{chapter.slug}.ipynb"))
        handed = submission.match(cells.parse(nbformat.writes(nb).encode()).cells, chapter, found)
        if missing():
            self.log.warning(missing())
        graded = _grader(chapter.name).grade(handed)
        for why in graded.person:
            self.log.warning("%s needs a person: %s", found.student, why)
        outputs = {
            f"check-{dashed(key)}": gradebook.outputs(graded, key) for key in graded.assessments
        }
        for cell in nb.cells:
            if cell.cell_type == "code":
                label = cell.metadata.get("nbgrader", {}).get("grade_id")
                cell.outputs = [nbformat.from_dict(each) for each in outputs.get(label, [])]
        return nb, resources


@functools.cache
def _grader(chapter: str) -> Grader:
    """One warm parent for all submissions of a run; it ends with nbgrader's process."""
    return Grader(course.chapter(chapter))
