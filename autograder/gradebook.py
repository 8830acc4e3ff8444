"""Marks where nbgrader keeps them: its gradebook, through its own API, and the autograded notebook.

The results folder is a course folder of nbgrader's, so that formgrader and `nbgrader export` work
in it. Neither references nor hidden cases are written here.
"""

import datetime
import functools
import json
import logging
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from nbformat import NotebookNode
from nbformat.v4 import new_notebook
from nbgrader.api import Gradebook as NbGraderBook
from nbgrader.preprocessors import AssignLatePenalties

from autograder import nbgrader_course
from autograder.assembly import dashed
from autograder.build import learner_notebook, write
from autograder.course import Chapter
from autograder.results import Graded, Submission
from autograder.submission import Handed
from autograder.wording import BADGES, clean_code, report, score

DATABASE = "gradebook.db"


class Gradebook:
    """The gradebook of a results folder; a context manager.

    A grade is committed whole or not at all, and a later one replaces it. A person's own marks
    and comments stay, as nbgrader keeps them.
    """

    def __init__(self, folder: Path, chapters: Sequence[Chapter]) -> None:
        """Lays the folder out as nbgrader wants it. Raises CourseFolderError and OSError."""
        self.folder = folder.resolve()
        nbgrader_course.lay_out(self.folder, chapters)
        self.address = f"sqlite:///{self.folder / DATABASE}"
        self.book = NbGraderBook(self.address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.book.close()

    def record(self, graded: Graded, chapter: Chapter) -> None:
        """Writes the notebook as formgrader wants it, then commits the grade.

        In submitted/ it is there for formgrader to count, and to grade again: without outputs and
        remarks, and never in the place of a file that somebody else put there.
        """
        student, name = graded.submission.student, chapter.slug
        place = Path(student, name, f"{name}.ipynb")
        notebook = autograded(graded, chapter)
        _write(self.folder / "autograded" / place, notebook)
        submitted = self.folder / "submitted" / place
        if graded.judged and _may_write(submitted):
            _write(submitted, _as_handed_in(notebook))
        with self._one_commit():
            self._commit(graded, student, name)
        self._assign_late_penalty(student, name)

    def _commit(self, graded: Graded, student: str, name: str) -> None:
        self.book.update_or_create_student(student)
        self.book.update_or_create_submission(name, student, **_handed_in(graded))
        for key, assessment in graded.assessments.items():
            grade = self.book.find_grade(f"check-{dashed(key)}", name, name, student)
            grade.auto_score = assessment.points
            grade.needs_manual_grade = grade.manual_score is not None
            comment = self.book.find_comment(f"answer-{dashed(key)}", name, name, student)
            comment.auto_comment = _comment(graded, key)
        notebook = self.book.find_submission_notebook(name, name, student)
        notebook.flagged = bool(graded.person)

    def _assign_late_penalty(self, student: str, name: str) -> None:
        """Has nbgrader do it, with the plugin that the folder's settings name."""
        submission = self.book.find_submission(name, student)
        if not submission.total_seconds_late and not submission.late_submission_penalty:
            return
        step = AssignLatePenalties(config=nbgrader_course.settings(self.folder), log=_QUIET)
        about = {"notebook": name, "assignment": name, "student": student, "db_url": self.address}
        step.preprocess(new_notebook(), {"nbgrader": about})

    @contextmanager
    def _one_commit(self) -> Iterator[None]:
        """nbgrader's API commits after each of its steps; in here, once at the end or never."""
        session = self.book.db()
        commit = session.commit
        session.commit = session.flush
        try:
            with session.no_autoflush:
                yield
            commit()
        except BaseException:
            session.rollback()
            raise
        finally:
            del session.commit


_QUIET = logging.getLogger("autograder.late")
_QUIET.setLevel(logging.ERROR)  # nbgrader warns of each late submission


def _handed_in(graded: Graded) -> dict[str, Any]:
    """nbgrader's timestamp, which late penalties go by: only where the time is known."""
    found = graded.submission.found if isinstance(graded.submission, Handed) else None
    if not found or not found.stamped:
        return {}
    return {"timestamp": datetime.datetime.fromtimestamp(found.when, datetime.UTC)}


def _comment(graded: Graded, key: str) -> str:
    """What formgrader shows below the answer."""
    assessment, known = graded.assessments[key], graded.diagnoses.get(key)
    said = f"{BADGES[assessment.verdict].words}: {score(assessment.points, assessment.max_points)}."
    return f"{said} This looks like “{known.name}”. {known.hint}" if known else said


# --- the notebook that formgrader shows ----------------------------------------------------------


def autograded(graded: Graded, chapter: Chapter) -> dict[str, Any]:
    """The learner's notebook (nbformat 4.5) with the course's own cells, and verdicts as outputs.

    Cells stand in the course's order, the learner's behind those that they followed. A self-check
    prints its verdict and ends in the points, so that nbgrader's own rule reads the same mark.
    """
    submission = graded.submission
    edited = submission.edited if isinstance(submission, Handed) else {}
    own = _own(submission)
    keys = {dashed(key): key for key in graded.assessments}
    cells = [*_remarks(graded), *own.get("", [])]
    for node in _released(chapter, str(chapter.source)):
        kind, label = node["cell_type"], node["id"]
        role, _, whose = label.partition("-")
        source = _harmless(kind, edited[label]) if label in edited else node["source"]
        if role == "answer" and keys.get(whose) in submission.answers:
            source = submission.answers[keys[whose]]
        cell = _cell(kind, label, node["metadata"], source)
        if role == "check" and whose in keys:
            cell["outputs"] = outputs(graded, keys[whose])
        cells += [cell, *own.get(label, [])]
    return {
        "cells": cells,
        "metadata": {"kernelspec": _KERNEL, "language_info": {"name": "python"}, **_OURS},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _as_handed_in(notebook: dict[str, Any]) -> dict[str, Any]:
    cells = [
        cell | ({"outputs": []} if cell["cell_type"] == "code" else {})
        for cell in notebook["cells"]
        if cell["id"] != _REMARKS
    ]
    return notebook | {"cells": cells}


def _may_write(path: Path) -> bool:
    """Whether nothing is there, or what an earlier run wrote."""
    try:
        metadata = json.loads(path.read_text(encoding="utf-8"))["metadata"]
        return bool(metadata.get("written_by") == _OURS["written_by"])
    except FileNotFoundError:
        return True
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return False


def _write(path: Path, notebook: dict[str, Any]) -> None:
    write(path, json.dumps(notebook, ensure_ascii=False, indent=1) + "\n")


def _own(submission: Submission) -> dict[str, list[dict[str, Any]]]:
    """The learner's own cells by the course's cell that they stood behind."""
    found: dict[str, list[dict[str, Any]]] = {}
    for number, each in enumerate(getattr(submission, "own", ()), 1):
        cell = _cell(each.kind, f"own-{number}", {}, _harmless(each.kind, each.source))
        found.setdefault(each.after, []).append(cell)
    return found


_OURS = {"written_by": "autograder grade"}
_REMARKS = "grader-remarks"
_KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}


@functools.lru_cache(maxsize=32)
def _released(chapter: Chapter, _source: str) -> list[NotebookNode]:
    return list(learner_notebook(chapter).cells)


def _cell(kind: str, label: str, metadata: Any, source: str) -> dict[str, Any]:
    cell = {"cell_type": kind, "id": label, "metadata": metadata, "source": source}
    return cell | ({"execution_count": None, "outputs": []} if kind == "code" else {})


def _remarks(graded: Graded) -> list[dict[str, Any]]:
    """A first cell with what a person should know, if there is anything."""
    submission = graded.submission
    said = [f"**For a person to look at:** {why}" for why in graded.person]
    said += [f"Mended: {note}" for note in submission.notes]
    text = "\n".join(f"- {_harmless('markdown', clean_code(each))}" for each in said)
    return [_cell("markdown", _REMARKS, {}, text)] if said else []


def outputs(graded: Graded, key: str) -> list[dict[str, Any]]:
    """What the self-check of an exercise prints, and its points: nbgrader reads them from here."""
    assessment = graded.assessments[key]
    lines = report(assessment, graded.diagnoses.get(key)).splitlines()
    text = "".join(f"{_wrapped(line)}\n" for line in lines)
    value = {"text/plain": f"{assessment.points:g}"}
    return [
        {"output_type": "stream", "name": "stdout", "text": text},
        {"output_type": "execute_result", "execution_count": None, "metadata": {}, "data": value},
    ]


def _wrapped(line: str, width: int = 90) -> str:
    """The line as lines that formgrader shows without scrolling, indented as it is and more."""
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.fill(line, width, subsequent_indent=indent, break_on_hyphens=False)


def _harmless(kind: str, source: str) -> str:
    """Prose of a learner's in which no HTML is left: formgrader shows it in a person's browser."""
    return source if kind == "code" else re.sub(r"<(?=[A-Za-z/!?])", "<\u200b", source)
