"""Makes the sample class: a dozen submissions to chapter 01, as people hand them in.

`python tests/sample_class/make.py` writes `submitted/` anew from the released notebook and the bank
of answers. What each must earn is in `expected/`, written by hand; a test compares.
"""

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from autograder.assembly import dashed, reference_answers
from autograder.build import learner_notebook
from autograder.course import chapter

HERE = Path(__file__).parent
CHAPTER = chapter("recompilation")
REFERENCE = reference_answers(CHAPTER)


def bank(exercise: str, name: str) -> str:
    """The answer of that name in the chapter's bank."""
    return next(a.source for a in CHAPTER.answers if (a.exercise, a.name) == (exercise, name))


def answered(answers: dict[str, str]) -> NotebookNode:
    """The released notebook with these answers by exercise id, and nothing executed."""
    notebook = copy.deepcopy(learner_notebook(CHAPTER))
    for cell in notebook.cells:
        for exercise, source in answers.items():
            if cell["id"] == f"answer-{dashed(exercise)}":
                cell.source = source.rstrip("\n")
    return notebook


def perfect() -> NotebookNode:
    """The reference solutions, without the comments that mark them."""
    plain = {
        key: "\n".join(line for line in source.splitlines() if "###" not in line)
        for key, source in REFERENCE.items()
    }
    return answered(plain)


def other_style() -> NotebookNode:
    """Right answers that look nothing like the reference, in cells of the learner's own too."""
    firsts: dict[str, str] = {}
    for answer in CHAPTER.answers:
        if answer.kind == "right":
            firsts.setdefault(answer.exercise, answer.source)
    notebook = answered(firsts)
    notebook.cells.insert(
        3, new_code_cell("import warnings\nwarnings.warn('just trying')", id="x1")
    )
    notebook.cells.insert(9, new_code_cell("print('x' * 100_000)", id="x2"))
    return notebook


def partly() -> NotebookNode:
    """Two exercises done, the others left as they were."""
    return answered({key: REFERENCE[key] for key in ("1.1", "1.3")})


def with_answer(exercise: str, source: str) -> NotebookNode:
    """All right but for one exercise."""
    return answered({**REFERENCE, exercise: source})


def renamed() -> NotebookNode:
    """All right; one answer stands there twice, first unanswered, and a given cell is gone."""
    notebook = answered(REFERENCE)
    at = next(i for i, c in enumerate(notebook.cells) if c["id"] == f"answer-{dashed('1.3')}")
    twin = copy.deepcopy(learner_notebook(CHAPTER).cells[at])
    notebook.cells.insert(at, twin)
    gone = next(i for i, c in enumerate(notebook.cells) if "given" in c.metadata.get("tags", ()))
    del notebook.cells[gone]
    return notebook


CRASH = "import ctypes\n\nctypes.string_at(0)\n"
HANG = """

def train(*args, **kwargs):
    import time

    while True:  # for ever, and without a processor that the tests need
        time.sleep(1)
"""
PATCH = """import helpers.compiles

helpers.compiles.CompileCounter.count = property(lambda self: 1)
helpers.compiles.CompileCounter.count_of = lambda self, name: 1
"""

CLASS: dict[str, Callable[[], NotebookNode]] = {
    "ada": perfect,
    "bela": other_style,
    "carl": partly,
    "dora": lambda: answered({}),
    "emil": lambda: with_answer("1.1", bank("1.1", "masks the numerator only")),
    "fay": lambda: with_answer("1.3", bank("1.3", "a frozen dataclass that holds a list")),
    "gus": lambda: with_answer("1.4", bank("1.4", "the rate is static")),
    "hana": lambda: with_answer("1.2", CRASH + REFERENCE["1.2"]),
    "ivan": lambda: with_answer("1.4", REFERENCE["1.4"] + HANG),
    "jo": renamed,
    "kim": lambda: with_answer("1.2", PATCH + bank("1.2", "serves with a bare jit")),
    "lena": lambda: with_answer("1.5", "def make_server(fn, buckets, features:\n    return fn\n"),
}
FILES = {"jo": "my homework (final) v2.ipynb"}


def make(folder: Path) -> None:
    """Writes every submission below `folder`, in nbgrader's layout."""
    shutil.rmtree(folder, ignore_errors=True)
    for student, make_one in CLASS.items():
        place = folder / student / CHAPTER.slug
        place.mkdir(parents=True)
        text = json.dumps(make_one(), indent=1, ensure_ascii=False) + "\n"  # nbformat would mend it
        (place / FILES.get(student, f"{CHAPTER.slug}.ipynb")).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    make(HERE / "submitted")
