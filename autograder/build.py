"""From an author's source to the learner's notebook: `solutions/<name>/chapter.py` → `chapters/`.

Assemble (`autograder.assembly`) → nbgrader's own release steps → execute → tidy → write. It judges
neither prose nor exercises: see `autograder.lint` and `autograder.bank`.
"""

import base64
import copy
import json
import os
import re
import struct
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

from autograder import bank, course, nbgrader_course, source
from autograder.assembly import METADATA, assembled, given_cells, solution_notebook
from autograder.course import Chapter
from autograder.problems import Problem
from autograder.source import TIMED, SourceError, short
from helpers import diagnosis

__all__ = ["build", "given_cells", "learner_notebook", "solution_notebook", "stale"]

SECONDS = 300
"""The longest that a cell may take to run."""


def build(chapter: Chapter) -> list[Path]:
    """Writes what ships of a chapter: mistakes, titles of sections, the executed notebook.

    Returns their paths. The notebook is executed last, as its self-checks show what is in the
    others. Building again gives the same bytes: an unchanged cell that prints times keeps its old
    output. Raises SourceError.
    """
    diagnosis.save(chapter.public_bank, bank.public_bank(chapter))
    write(chapter.public_sections, _sections(chapter))
    notebook = executed(chapter, learner_notebook(chapter))
    write(chapter.notebook, nbformat.writes(notebook).rstrip("\n") + "\n")
    return [chapter.notebook, chapter.public_bank, chapter.public_sections]


def stale(chapter: Chapter) -> list[Problem]:
    """What in the committed notebook and bank is not what `build` would write; nothing is run.

    `pytest --nbval` compares outputs, `bank.check_bank` how the bank's answers behave.
    """
    todo = f"run `autograder build {chapter.name}`"
    files = {
        chapter.notebook: _notebook_difference(chapter),
        chapter.public_bank: _bank_difference(chapter),
        chapter.public_sections: _sections_difference(chapter),
    }
    return [Problem(short(path), said, todo) for path, said in files.items() if said]


def learner_notebook(chapter: Chapter) -> NotebookNode:
    """What `nbgrader generate_assignment` makes of the source notebook: no outputs yet."""
    return _tidy(nbgrader_course.released(solution_notebook(chapter), chapter.slug))


# --- executing -----------------------------------------------------------------------------------


def executed(chapter: Chapter, notebook: NotebookNode) -> NotebookNode:
    """The notebook with outputs, run on the CPU, away from the author's own progress."""
    ran = copy.deepcopy(notebook)
    chapter.notebook.parent.mkdir(parents=True, exist_ok=True)
    client = NotebookClient(
        ran,
        timeout=SECONDS,
        kernel_name="python3",
        record_timing=False,
        coalesce_streams=True,
        extra_arguments=["--log-level=ERROR"],  # no word about unencrypted TCP on this machine
        resources={"metadata": {"path": str(chapter.notebook.parent)}},
    )
    with tempfile.TemporaryDirectory() as scratch:
        try:
            client.execute(env=_environment(scratch))
        except CellExecutionError as error:
            raise _failed(chapter, ran, error) from None
    return _with_old_times(_tidy(ran), _committed(chapter))


def _environment(scratch: str) -> dict[str, str]:
    paths = [str(course.ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {
        "JAX_PLATFORMS": "cpu",
        "COURSE_PROGRESS": str(Path(scratch) / "progress.json"),
        "PYTHONPATH": os.pathsep.join(paths),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }


def _failed(chapter: Chapter, ran: NotebookNode, error: CellExecutionError) -> SourceError:
    """Which cell of the source failed, and how."""
    origin = {node["id"]: cell for node, cell in assembled(chapter)}
    for node in ran.cells:
        if any(output.output_type == "error" for output in node.get("outputs", ())):
            said = f"{error.ename}: {error.evalue}"
            return SourceError(f"{origin[node['id']].at}: cell `{node['id']}` fails: {said}")
    return SourceError(f"{short(chapter.source)}:1: {error}")


def _tidy(notebook: NotebookNode) -> NotebookNode:
    """Without what differs between machines and runs: versions, times, the drawing program."""
    notebook = copy.deepcopy(notebook)
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                data["image/png"] = _plain_png(data["image/png"])
            if "image/svg+xml" in data:
                data["image/svg+xml"] = _plain_svg(data["image/svg+xml"])
    nbformat.validate(notebook)
    return notebook


def _plain_png(encoded: str) -> str:
    """The PNG, base64, without its text chunks: they name the version that drew it."""
    data = base64.b64decode(encoded)
    kept, at = [data[:8]], 8
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        if data[at + 4 : at + 8] not in (b"tEXt", b"iTXt", b"zTXt", b"tIME"):
            kept.append(data[at : at + length + 12])
        at += length + 12
    return base64.b64encode(b"".join(kept)).decode("ascii")


def _plain_svg(text: str) -> str:
    return re.sub(r"\s*<metadata>.*?</metadata>", "", text, flags=re.DOTALL)


def _with_old_times(notebook: NotebookNode, old: NotebookNode | None) -> NotebookNode:
    """Puts back the old output of each cell that prints times and did not change."""
    known = {(cell["id"], cell.source): cell for cell in old.cells} if old else {}
    for cell in notebook.cells:
        before = known.get((cell["id"], cell.source))
        if TIMED in cell.metadata.get("tags", ()) and before and before.get("outputs"):
            cell.outputs = before.outputs
            for output in cell.outputs:
                if output.output_type == "execute_result":
                    output.execution_count = cell.execution_count
    return notebook


# --- comparing and writing -----------------------------------------------------------------------


def _committed(chapter: Chapter) -> NotebookNode | None:
    if not chapter.notebook.exists():
        return None
    return nbformat.reads(chapter.notebook.read_text(encoding="utf-8"), as_version=4)


def _notebook_difference(chapter: Chapter) -> str:
    """One sentence on the first cell that is not up to date, "" if all are."""
    committed = _committed(chapter)
    if committed is None:
        return "there is no such file"
    origin = {node["id"]: cell.at for node, cell in assembled(chapter)}
    fresh = learner_notebook(chapter)
    old = {cell["id"]: cell for cell in committed.cells}
    for cell in fresh.cells:
        before = old.pop(cell["id"], None)
        if _bare(cell) != _bare(before):
            return f"cell `{cell['id']}` is not what {origin[cell['id']]} says"
        if cell.cell_type == "code" and before and before.execution_count is None:
            return f"cell `{cell['id']}` was never executed"
    if old:
        return f"cell `{next(iter(old))}` is not in {short(chapter.source)}"
    if [cell["id"] for cell in fresh.cells] != [cell["id"] for cell in committed.cells]:
        return f"its cells are not in the order of {short(chapter.source)}"
    return "" if fresh.metadata == committed.metadata else "its metadata differ"


def _bare(cell: NotebookNode | None) -> tuple[Any, ...] | None:
    return (cell.cell_type, cell.source, cell.metadata) if cell else None


def _bank_difference(chapter: Chapter) -> str:
    """One sentence on what it says otherwise than the bank of answers, "" if nothing."""
    if not chapter.public_bank.exists():
        return "there is no such file"
    wrong = [a for a in chapter.answers if a.kind == "wrong" and a.exercise in chapter.exercises]
    said = [(a.exercise, a.name, a.hint, a.see) for a in wrong]
    committed = diagnosis.load(chapter.public_bank)
    if [(m.exercise, m.name, m.hint, m.see) for m in committed] == said:
        return ""
    return f"it does not say what {short(chapter.source.parent)}/answers.py says of wrong answers"


def _sections(chapter: Chapter) -> str:
    titles = source.sections(source.read(chapter))
    return json.dumps(titles, indent=1, ensure_ascii=False) + "\n"


def _sections_difference(chapter: Chapter) -> str:
    if not chapter.public_sections.exists():
        return "there is no such file"
    if chapter.public_sections.read_text(encoding="utf-8") == _sections(chapter):
        return ""
    return "the titles of the chapter's sections are others now"


def write(path: Path, text: str) -> None:
    """Writes a file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(text, encoding="utf-8", newline="\n")
    fresh.replace(path)
