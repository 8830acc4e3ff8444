"""The released notebook of a chapter, to be mistreated: for tests of what is handed in."""

import json
import zipfile
from pathlib import Path
from typing import Any

from autograder.build import learner_notebook
from autograder.course import Chapter
from autograder.submission import Handed, read


class Notebook:
    """The released notebook of a chapter, and a folder in which it may be written."""

    def __init__(self, chapter: Chapter, folder: Path = Path()) -> None:
        self.chapter = chapter
        self.data: dict[str, Any] = json.loads(json.dumps(learner_notebook(chapter)))
        self.folder = folder

    @property
    def cells(self) -> list[dict[str, Any]]:
        return self.data["cells"]

    def cell(self, label: str) -> dict[str, Any]:
        return next(cell for cell in self.cells if cell.get("id", "").startswith(label))

    def put(self, label: str, source: str) -> "Notebook":
        self.cell(label)["source"] = source
        return self

    def remove(self, label: str) -> "Notebook":
        self.cells.remove(self.cell(label))
        return self

    def insert(self, source: str, before: str = "", **more: Any) -> "Notebook":
        """A new code cell before the one with that label, at the end by default."""
        at = self.cells.index(self.cell(before)) if before else len(self.cells)
        self.cells.insert(at, new_cell(source, **more))
        return self

    def bytes(self) -> bytes:
        """The file."""
        return json.dumps(self.data).encode()

    def read(self, name: str = "ada.ipynb", chapter: Chapter | None = None) -> Handed:
        path = self.folder / name
        path.write_bytes(self.bytes())
        return read(path, chapter)


def new_cell(source: str, kind: str = "code", **more: Any) -> dict[str, Any]:
    return {"cell_type": kind, "metadata": {}, "source": source, "outputs": [], **more}


def labelled(label: str) -> dict[str, Any]:
    return {"metadata": {"nbgrader": {"grade_id": label}}}


def zipped(path: Path, *members: tuple[str | zipfile.ZipInfo, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return path
