"""The mangled bank: notebooks and archives as they arrive in real classes, and what each must earn.

Each case is a function of a perfect submission to the made-up chapter 09, named after its student.
It spoils the notebook it gets, or returns the file's bytes, or files by their place in the class.
"""

import copy
import gzip
import io
import json
import re
import tarfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from in_process import AT, HALF, RIGHT
from notebooks import Notebook, new_cell

Files = Mapping[str, bytes]
Mangle = Callable[[Notebook], Files | bytes | None]

ALL, NONE = (4.0, 2.0), (0.0, 0.0)
"""Points for 9.1 and 9.2."""


@dataclass(frozen=True)
class Case:
    """One submission as it came.

    student: whose it is. what: what happened to the file. points: what 9.1 and 9.2 must earn.
    verdicts: theirs; "error" for what can't be read. told: words that the learner's page must hold.
    problem: words of the sentence for a person, "" where none is needed. name: the file's.
    """

    student: str
    what: str
    mangle: Mangle
    points: tuple[float, float]
    verdicts: tuple[str, str]
    told: Sequence[str]
    problem: str
    name: str

    def files(self, notebook: Notebook) -> Files:
        """Files by their place below the folder of the class."""
        made = self.mangle(notebook)
        if isinstance(made, Mapping):
            return made
        return {f"folders/{self.student}/{self.name}": notebook.bytes() if made is None else made}


CASES: list[Case] = []


def case(
    what: str,
    points: tuple[float, float] = ALL,
    verdicts: tuple[str, str] = ("full", "full"),
    told: Sequence[str] = (),
    student: str = "",
    name: str = "09_tiny.ipynb",
) -> Callable[[Mangle], Mangle]:
    """Adds a file whose answers are found."""

    def add(mangle: Mangle) -> Mangle:
        who = student or mangle.__name__
        CASES.append(Case(who, what, mangle, points, verdicts, told, "", name))
        return mangle

    return add


def unreadable(
    what: str, problem: str, student: str = "", name: str = "09_tiny.ipynb"
) -> Callable[[Mangle], Mangle]:
    """Adds a file that a person has to ask for again."""

    def add(mangle: Mangle) -> Mangle:
        who = student or mangle.__name__
        CASES.append(Case(who, what, mangle, NONE, ("error", "error"), (problem,), problem, name))
        return mangle

    return add


# --- cells deleted, doubled, moved, cut, merged ---------------------------------------------------


@case("nothing happened to it")
def untouched(notebook: Notebook) -> None:
    pass


@case("a given cell was deleted", told=["given cell with total was missing; the course's own"])
def given_cell_deleted(notebook: Notebook) -> None:
    notebook.remove("given-")


@case(
    "all but the answers was deleted",
    told=["given cells were missing, such as", "the course's own were used"],
)
def only_answers_left(notebook: Notebook) -> None:
    notebook.cells[:] = [cell for cell in notebook.cells if cell["id"].startswith("answer")]


@case(
    "one answer cell was deleted",
    points=(0, 2),
    verdicts=("unanswered", "full"),
    told=["The answer cell of 9.1 was missing; no other cell answers it."],
)
def answer_deleted(notebook: Notebook) -> None:
    notebook.remove("answer-9-1")


@case(
    "the answer cell was copied, id and all, and the copy mended",
    told=["safe_mean was defined in 2 cells; the last that its self-check saw counts."],
)
def answer_twice_with_one_id(notebook: Notebook) -> None:
    right = notebook.cell("answer-9-1")
    wrong = copy.deepcopy(right) | {"source": HALF}
    notebook.cells.insert(notebook.cells.index(right), wrong)


@case(
    "every cell stands there twice, with the same ids: nbgrader stops a class for this",
    told=["was defined in 2 cells"],
)
def every_cell_twice(notebook: Notebook) -> None:
    notebook.cells[:] = [twin for cell in notebook.cells for twin in (cell, copy.deepcopy(cell))]


@case("all cells have the same id, and lost nbgrader's labels", told=["had lost their labels"])
def one_id_for_all(notebook: Notebook) -> None:
    for cell in notebook.cells:
        cell |= {"id": "same", "metadata": {}}


@case("the cells stand in reverse order")
def reversed_order(notebook: Notebook) -> None:
    notebook.cells.reverse()


@case(
    "the answers were written into each other's cells",
    told=["answer to 9.1 was found in another cell", "answer to 9.2 was found in another cell"],
)
def answers_swapped(notebook: Notebook) -> None:
    notebook.put("answer-9-1", AT).put("answer-9-2", RIGHT)


@case(
    "both answers stand in the first answer's cell, and the second is still the starter",
    told=["The answer to 9.2 was found in another cell than its own."],
)
def both_in_the_first(notebook: Notebook) -> None:
    starter = next(c for c in fresh(notebook).cells if c["id"] == "answer-9-2")["source"]
    notebook.put("answer-9-1", f"{RIGHT}\n\n\n{AT}").put("answer-9-2", starter)


@case(
    "the answer is in a cell without a label, the answer cell is gone",
    told=["The answer cell of 9.1 was missing; its answer was found in another cell."],
)
def answer_in_an_own_cell(notebook: Notebook) -> None:
    notebook.remove("answer-9-1").insert(RIGHT, before="check-9-1", id="mine")


@case("the answer was written into the self-check", told=["found in another cell than its own"])
def answer_in_the_self_check(notebook: Notebook) -> None:
    starter = next(c for c in fresh(notebook).cells if c["id"] == "answer-9-1")["source"]
    notebook.put("check-9-1", f'{RIGHT}\n\n\ncheck("9.1")').put("answer-9-1", starter)


@case("an answer was cut in the middle of its body", told=["had been cut in two"])
def cut_in_the_body(notebook: Notebook) -> None:
    head, tail = AT.split("\n", 1)
    notebook.put("answer-9-2", head).insert(tail, before="check-9-2", id="tail")


@case("an answer was cut in three, with an empty cell between", told=["had been cut"])
def cut_in_three(notebook: Notebook) -> None:
    head, condition, error, tail = AT.split("\n")
    notebook.put("answer-9-2", head)
    for part in (f"{condition}\n{error}", "", tail):
        notebook.insert(part, before="check-9-2")


@case("an answer was cut behind its decorator", told=["had been cut in two"])
def cut_behind_a_decorator(notebook: Notebook) -> None:
    doubled = "def half(function):\n    return lambda *both: function(*both) / 2\n\n\n"
    body = RIGHT.replace("return float", "return 2 * float")
    notebook.put("answer-9-1", f"{doubled}@half")
    notebook.insert(body.replace("else 0.0", "else 0"), before="check-9-1", id="tail")


@case("an answer and its helper stand in two cells")
def helper_in_its_own_cell(notebook: Notebook) -> None:
    notebook.put("answer-9-2", "def at(values, index):\n    return int(values[allowed(index)])")
    helper = "def allowed(index):\n    if index < 0:\n        raise IndexError\n    return index"
    notebook.insert(helper, before="answer-9-2", id="helper")


@case("the answer cell and the self-check were merged")
def merged_with_the_check(notebook: Notebook) -> None:
    notebook.put("answer-9-1", f'{RIGHT}\n\n\ncheck("9.1")').remove("check-9-1")


@case("a whole exam in one cell, magics and prints included", told=["were merged into one"])
def everything_in_one_cell(notebook: Notebook) -> None:
    code = [cell["source"] for cell in notebook.cells if cell["cell_type"] == "code"]
    source = "\n\n".join(["%matplotlib inline", *code, "print('done')"])
    notebook.cells[:] = [new_cell(source, id="one")]


@case("two exercises in one cell, the second's own is gone", told=["The answer cell of 9.2"])
def merged_answers(notebook: Notebook) -> None:
    notebook.put("answer-9-1", f"{RIGHT}\n\n\n{AT}").remove("answer-9-2")


# --- text and code --------------------------------------------------------------------------------


@case("an answer cell became markdown", told=["answer cell of 9.1 had become a text cell"])
def answer_became_markdown(notebook: Notebook) -> None:
    notebook.cell("answer-9-1")["cell_type"] = "markdown"


@case("an answer cell became raw", told=["answer cell of 9.2 had become a text cell"])
def answer_became_raw(notebook: Notebook) -> None:
    notebook.cell("answer-9-2")["cell_type"] = "raw"


@case("an answer stands in a code fence of a text cell", told=["had become a text cell"])
def answer_in_a_fence(notebook: Notebook) -> None:
    notebook.put("answer-9-1", f"```python\n{RIGHT}\n```")
    notebook.cell("answer-9-1")["cell_type"] = "markdown"


@case("all text cells became code")
def all_text_became_code(notebook: Notebook) -> None:
    for cell in notebook.cells:
        cell["cell_type"] = "code"


@case("all cells became markdown", told=["had become a text cell"])
def all_became_markdown(notebook: Notebook) -> None:
    for cell in notebook.cells:
        cell["cell_type"] = "markdown"


@case("the answer is indented by a paste")
def indented(notebook: Notebook) -> None:
    notebook.put("answer-9-1", "\n".join(f"    {line}" for line in RIGHT.split("\n")))


@case(
    "a syntax error in one answer",
    points=(0, 2),
    verdicts=("error", "full"),
    told=["SyntaxError"],
)
def syntax_error(notebook: Notebook) -> None:
    notebook.put("answer-9-1", RIGHT.replace("):", ")", 1))


# --- IPython's own lines --------------------------------------------------------------------------


@case("cell magics above the answers", told=["only a notebook understands", "%%time"])
def cell_magics(notebook: Notebook) -> None:
    notebook.put("answer-9-1", f"%%time\n{RIGHT}").put("answer-9-2", f"%%capture out\n{AT}")


@case("%%timeit above an answer", told=["only a notebook understands", "%%timeit"])
def timeit(notebook: Notebook) -> None:
    notebook.put("answer-9-1", f"\n%%timeit -n 10\n{RIGHT}")


@case("line magics, shell commands and help in the answers", told=["%time"])
def line_magics(notebook: Notebook) -> None:
    notebook.put("answer-9-1", f"{RIGHT}\n%time safe_mean(np.ones(3), np.ones(3, bool))")
    notebook.put("answer-9-2", f"!pip install jax\nfiles = !ls\nnp.sum?\n{AT}\n%timeit at([1], 0)")


@case("an answer needs what %time assigned")
def assigned_by_time(notebook: Notebook) -> None:
    notebook.put("answer-9-2", f"%time lowest = 0\n{AT.replace('< 0', '< lowest')}")


@case("pip without a mark, as Jupyter allows it", told=["pip install jax"])
def pip_alone(notebook: Notebook) -> None:
    notebook.put("answer-9-1", f"pip install jax\n{RIGHT}")


@case("cells in other languages", told=["%%bash"])
def other_languages(notebook: Notebook) -> None:
    notebook.insert("%%bash\nrm -r build", before="answer-9-1")
    notebook.insert("%%html\n<b>safe_mean</b>", before="check-9-1")


# --- formats and other people's metadata ----------------------------------------------------------


@case("metadata of other tools everywhere, some of it of the wrong kind")
def foreign_metadata(notebook: Notebook) -> None:
    notebook.data["metadata"] = {"toc": [], "kernelspec": None, "celltoolbar": 3, "rise": {"a": 1}}
    for number, cell in enumerate(notebook.cells):
        cell["metadata"] |= {"slideshow": {"slide_type": "slide"}, "collapsed": None, "x": [number]}
        cell |= {"attachments": {}, "execution_count": "five", "prompt_number": 7}


@case("nbformat 3: worksheets, input, headings", told=["had lost their labels"])
def format_3(notebook: Notebook) -> None:
    cells = [old_cell(cell) for cell in notebook.cells]
    notebook.data = {
        "nbformat": 3,
        "nbformat_minor": 0,
        "metadata": {"name": "09_tiny"},
        "worksheets": [{"cells": cells, "metadata": {}}],
    }


@case("nbformat 4.0: no ids, sources as lists of lines")
def format_4_0(notebook: Notebook) -> None:
    notebook.data["nbformat_minor"] = 0
    for cell in notebook.cells:
        cell.pop("id", None)
        cell["source"] = cell["source"].splitlines(keepends=True)


@case("nbformat 4.0 from another tool: no ids and no labels", told=["had lost their labels"])
def format_4_0_without_labels(notebook: Notebook) -> None:
    format_4_0(notebook)
    for cell in notebook.cells:
        cell["metadata"] = {}


@case(
    "saved by Colab: ids in the metadata, forms, a mounted drive in the answer",
    told=["only a notebook"],
)
def colab(notebook: Notebook) -> None:
    mount = "from google.colab import drive\ndrive.mount('/content/drive')\n"
    notebook.put("answer-9-1", f"#@title The mean {{ run: 'auto' }}\n{mount}{RIGHT}")
    notebook.insert("%pip install -q flax", before="setup-")
    notebook.data["metadata"] |= {"colab": {"provenance": []}, "accelerator": "GPU"}
    notebook.data["nbformat_minor"] = 0
    for number, cell in enumerate(notebook.cells):
        cell.pop("id", None)
        cell["metadata"] |= {"id": f"a1B2c{number}", "colab": {"base_uri": "https://localhost/"}}
        cell["metadata"] |= {"executionInfo": {"user": {"displayName": "Ada"}}, "outputId": "f00"}


@case("saved by VS Code: its metadata, fresh ids, no labels", told=["had lost their labels"])
def vs_code(notebook: Notebook) -> None:
    for number, cell in enumerate(notebook.cells):
        cell |= {"id": f"{number:08x}", "metadata": {"vscode": {"languageId": "python"}}}
    notebook.data["metadata"]["orig_nbformat"] = 4


@case("widgets: their state in the metadata, their views in the outputs")
def widgets(notebook: Notebook) -> None:
    state = {"model_id": {"model_name": "FloatProgressModel", "state": {"value": 1.0}}}
    mime = "application/vnd.jupyter.widget"
    notebook.data["metadata"]["widgets"] = {f"{mime}-state+json": {"state": state}}
    view = {f"{mime}-view+json": {"model_id": "model_id", "version_major": 2}}
    output = {"output_type": "display_data", "data": view, "metadata": {}}
    notebook.cell("answer-9-1")["outputs"] = [output]
    notebook.insert("import ipywidgets\nipywidgets.IntSlider()", before="answer-9-1")


@case("20 MB of outputs: a picture and a print without end")
def huge_outputs(notebook: Notebook) -> None:
    picture = {"output_type": "display_data", "data": {"image/png": "A" * 10_000_000}}
    lines = {"output_type": "stream", "name": "stdout", "text": ["step\n"] * 1_000_000}
    notebook.cell("answer-9-1")["outputs"] = [picture, lines]


@case("NaN and Infinity in the JSON, which JSON does not know")
def nan_in_json(notebook: Notebook) -> None:
    notebook.cell("answer-9-1")["outputs"] = [{"data": {"x": [float("nan"), float("inf")]}}]


@case("cells that are null, numbers and lists among the others")
def cells_that_are_none(notebook: Notebook) -> None:
    notebook.cells[1:1] = [None, 3, [], {}, {"cell_type": None, "source": None}]  # type: ignore[list-item]


@case("null where cells are, and the real ones below: a broken tool's", told=["lost their labels"])
def cells_null_beside_worksheets(notebook: Notebook) -> None:
    format_3(notebook)
    notebook.data["cells"] = None


# --- bytes ----------------------------------------------------------------------------------------


@case("saved by an editor with a byte order mark")
def byte_order_mark(notebook: Notebook) -> bytes:
    return b"\xef\xbb\xbf" + notebook.bytes()


@case("saved as UTF-16")
def utf_16(notebook: Notebook) -> bytes:
    return json.dumps(notebook.data, ensure_ascii=False).encode("utf-16")


@case("saved as UTF-16 without a mark, as PowerShell's `>` may")
def utf_16_unmarked(notebook: Notebook) -> bytes:
    return json.dumps(notebook.data, ensure_ascii=False).encode("utf-16-le")


@case("saved in a Windows code page", told=["characters that could not be read"])
def windows_code_page(notebook: Notebook) -> bytes:
    notebook.put("answer-9-1", f"# größer als ein Mittelwert\n{RIGHT}")
    return json.dumps(notebook.data, ensure_ascii=False).encode("cp1252", errors="replace")


@case("CRLF in the file and in the sources")
def crlf(notebook: Notebook) -> bytes:
    for cell in notebook.cells:
        cell["source"] = cell["source"].replace("\n", "\r\n")
    return json.dumps(notebook.data, indent=1).replace("\n", "\r\n").encode()


@case("names in the code that are no ASCII")
def unicode_code(notebook: Notebook) -> None:
    answer = RIGHT.replace("values", "werte_größe").replace("mask", "μάσκα")
    notebook.put("answer-9-1", f"# 平均 🙂\n{answer}")


@case("a conflict of Git in an output only", told=["marks of a merge conflict"])
def conflict_in_an_output(notebook: Notebook) -> bytes:
    return conflicting(notebook, '   "execution_count": 3,', '   "execution_count": 7,')


@unreadable("a conflict of Git in an answer", "resolve it and hand it in again")
def conflict_in_an_answer(notebook: Notebook) -> bytes:
    other = copy.deepcopy(notebook).put("answer-9-1", HALF)
    return conflict(notebook.bytes().decode(), other.bytes().decode())


@case(
    "a conflict of Git that was committed inside an answer",
    points=(0, 2),
    verdicts=("error", "full"),
    told=["SyntaxError"],
)
def conflict_in_the_code(notebook: Notebook) -> None:
    notebook.put("answer-9-1", conflict(RIGHT, HALF).decode())


@unreadable("the download broke off", "breaks off in the middle: hand it in again")
def truncated(notebook: Notebook) -> bytes:
    return notebook.bytes()[:3000]


@unreadable("a comma was lost when the file was edited by hand", "hand it in again")
def comma_lost(notebook: Notebook) -> bytes:
    return notebook.bytes().replace(b'", "', b'" "', 1)


@unreadable("an empty file", "The file is empty")
def empty(notebook: Notebook) -> bytes:
    return b""


@unreadable("only zeros: a disk was full", "hand it in again")
def zeros(notebook: Notebook) -> bytes:
    return bytes(4096)


@unreadable("a web page saved as a notebook", "download the notebook itself")
def page_called_notebook(notebook: Notebook) -> bytes:
    return b"<!DOCTYPE html>\n<html><body>Sign in</body></html>"


@unreadable("the notebook of another course", "Hand in this course's notebook")
def another_course(notebook: Notebook) -> None:
    notebook.cells[:] = [new_cell("import torch"), new_cell("def f(x):\n    return x")]


@unreadable("a notebook without cells", "hand it in again")
def no_cells(notebook: Notebook) -> None:
    notebook.cells.clear()


# --- what is no .ipynb ----------------------------------------------------------------------------


@case("jupytext's percent format", told=["Python script"], name="09_tiny.py")
def script_percent(notebook: Notebook) -> bytes:
    return script(notebook, "# %% [markdown]", "# %% tags=[]", magic="# %%time")


@case("jupytext's light format", told=["Python script"], name="09_tiny.py")
def script_light(notebook: Notebook) -> bytes:
    return script(notebook, "# -\n", "# + tags=[]", magic="# %%time")


@case(
    "`jupyter nbconvert --to script`",
    told=["Python script", "%matplotlib inline"],
    name="09_tiny.py",
)
def script_nbconvert(notebook: Notebook) -> bytes:
    notebook.put("setup-", f"get_ipython().run_line_magic('matplotlib', 'inline')\n{SETUP}")
    notebook.put("answer-9-1", f"get_ipython().run_cell_magic('time', '', {RIGHT + chr(10)!r})")
    return b"#!/usr/bin/env python\n" + script(notebook, "", "# In[ ]:\n\n", magic="")


@case("VS Code's export to a script", told=["Python script"], name="09_tiny.py")
def script_vs_code(notebook: Notebook) -> bytes:
    return script(notebook, "# %% [markdown]", "# %%", magic="")


@case(
    "`nbconvert --to script` of a notebook that was never run: bare code",
    told=["Python script", "%%time"],
    name="09_tiny.txt",
)
def script_bare(notebook: Notebook) -> bytes:
    notebook.put("answer-9-1", f"%%time\n{RIGHT}")
    code = [cell["source"] for cell in notebook.cells if cell["cell_type"] == "code"]
    return "\n\n".join(code).encode()


@case("a script that was renamed to .ipynb", told=["Python script"])
def script_called_notebook(notebook: Notebook) -> bytes:
    return f"import numpy as np\n\n\n{RIGHT}\n\n\n{AT}\n".encode()


@unreadable("a page printed from the notebook", "hand in the file that ends in .ipynb")
def web_page(notebook: Notebook) -> Files:
    return {"folders/web_page/09_tiny.html": b"<!DOCTYPE html><pre>def safe_mean</pre>"}


@unreadable("a PDF", "hand in the file that ends in .ipynb", name="09_tiny.pdf")
def pdf(notebook: Notebook) -> bytes:
    return b"%PDF-1.7"


@case("saved by a browser as .ipynb.txt", name="09_tiny.ipynb.txt")
def ipynb_txt(notebook: Notebook) -> None:
    pass


@case("saved by a browser as .ipynb.json", name="09_tiny.ipynb.json")
def ipynb_json(notebook: Notebook) -> None:
    pass


@case("renamed to .json", name="homework.json")
def json_file(notebook: Notebook) -> None:
    pass


@case("renamed, without an extension", name="homework")
def no_extension(notebook: Notebook) -> None:
    pass


# --- archives -------------------------------------------------------------------------------------


@case("a zip made by macOS", name="09_tiny.zip")
def zip_of_macos(notebook: Notebook) -> bytes:
    return archive(
        {
            "homework/09_tiny.ipynb": notebook.bytes(),
            "__MACOSX/homework/._09_tiny.ipynb": b"\x00\x05\x16\x07",
            "homework/.DS_Store": b"\x00",
            "homework/.ipynb_checkpoints/09_tiny-checkpoint.ipynb": b"{}",
        }
    )


@case("a zip in a zip", name="homework.zip")
def zip_in_a_zip(notebook: Notebook) -> bytes:
    return archive({"week 9/all.zip": archive({"09_tiny.ipynb": notebook.bytes()})})


@unreadable("a zip with a password", "locked by a password: hand in", name="homework.zip")
def zip_with_a_password(notebook: Notebook) -> bytes:
    return locked(archive({"09_tiny.ipynb": notebook.bytes()}))


@unreadable("an empty zip", "Hand in the notebook itself", name="homework.zip")
def zip_with_nothing(notebook: Notebook) -> bytes:
    return archive({})


@unreadable("a zip that broke off", "Hand in the notebook itself", name="homework.zip")
def zip_broken(notebook: Notebook) -> bytes:
    return archive({"09_tiny.ipynb": notebook.bytes()})[:500]


@unreadable("a tar", "hand in the file that ends in .ipynb", name="homework.tar.gz")
def tar(notebook: Notebook) -> bytes:
    return gzip.compress(tarred(notebook))


@unreadable("a tar that is called a notebook", "archive: hand in the file that ends in .ipynb")
def tar_called_notebook(notebook: Notebook) -> bytes:
    return tarred(notebook)


# --- names of files, people and attempts ----------------------------------------------------------


@case("Canvas, late, the second file of that name", student="lovelaceada_1815")
def canvas(notebook: Notebook) -> Files:
    return {"canvas/lovelaceada_LATE_1815_424242_09_tiny-1.ipynb": notebook.bytes()}


@unreadable(
    "Canvas, a text document", "hand in the file that ends in .ipynb", student="bashmaria_77"
)
def canvas_document(notebook: Notebook) -> Files:
    return {"canvas/bashmaria_77_424243_essay.docx": b"PK\x03\x04"}


@case("Moodle, a folder a student", student="Łukasz Żółć_1234")
def moodle(notebook: Notebook) -> Files:
    return {"moodle/Łukasz Żółć_1234_assignsubmission_file_/my hw.ipynb": notebook.bytes()}


@case("Moodle, files without folders", student="Mary Ann O'Neill_99")
def moodle_flat(notebook: Notebook) -> Files:
    return {"canvas/Mary Ann O'Neill_99_assignsubmission_file_09_tiny.ipynb": notebook.bytes()}


@case(
    "Blackboard, two attempts and its own text file for each",
    told=["was set aside: a later one was handed in"],
    student="turing",
)
def blackboard(notebook: Notebook) -> Files:
    first, second = (f"blackboard/HW 9_turing_attempt_2026-01-0{day}-12-00-00" for day in (1, 2))
    wrong = copy.deepcopy(notebook).put("answer-9-1", HALF)
    return {
        f"{first}.txt": b"Name: Alan",
        f"{first}_09_tiny.ipynb": wrong.bytes(),
        f"{second}.txt": b"Name: Alan",
        f"{second}_09_tiny.ipynb": notebook.bytes(),
    }


@unreadable(
    "Blackboard, nothing attached", "Hand in the file that ends in .ipynb", student="hopper"
)
def blackboard_without_file(notebook: Notebook) -> Files:
    return {"blackboard/HW 9_hopper_attempt_2026-01-02-12-00-00.txt": b"Name: Grace"}


@case(
    "two attempts in one folder, the later one broken off",
    told=["was set aside: The file breaks off in the middle"],
)
def later_attempt_broken(notebook: Notebook) -> Files:
    return {
        "folders/later_attempt_broken/09_tiny.ipynb": notebook.bytes(),
        "folders/later_attempt_broken/09_tiny (1).ipynb": notebook.bytes()[:2000],
    }


@case("a notebook, and a script and notes beside it")
def notes_beside(notebook: Notebook) -> Files:
    place = "folders/notes_beside"
    return {
        f"{place}/09_tiny.ipynb": notebook.bytes(),
        f"{place}/old.py": f"{HALF}\n".encode(),
        f"{place}/notes.txt": b"I tried",
    }


@case("a name of another alphabet, with an emoji", student="Ἀριστοτέλης 李 🙂")
def unicode_name(notebook: Notebook) -> Files:
    return {"canvas/Ἀριστοτέλης 李 🙂.ipynb": notebook.bytes()}


@case("a name as macOS writes it, accents apart", student="Zoë Müller")
def decomposed_name(notebook: Notebook) -> Files:
    return {"canvas/Zoe\u0308 Mu\u0308ller.ipynb": notebook.bytes()}


@case("a zip of a class with a zip of a student", student="noether")
def class_zip(notebook: Notebook) -> Files:
    inner = archive({"09_tiny.ipynb": notebook.bytes()})
    return {"class.zip": archive({"noether.zip": inner, "__MACOSX/._noether.zip": b"\x00"})}


@case("a script among notebooks without folders", told=["Python script"], student="kovalevskaya")
def script_among_notebooks(notebook: Notebook) -> Files:
    return {"canvas/kovalevskaya.py": f"{RIGHT}\n\n\n{AT}\n".encode()}


@unreadable("an archive among notebooks without folders", "is no notebook", student="germain")
def archive_among_notebooks(notebook: Notebook) -> Files:
    return {"canvas/germain.tar.gz": gzip.compress(tarred(notebook)), "canvas/roster.csv": b"a,b"}


# --- what answers do ------------------------------------------------------------------------------


@case("an answer that warns and writes to stderr")
def warns_on_stderr(notebook: Notebook) -> None:
    loud = "import sys\nimport warnings\n\n\ndef at(values, index):\n"
    loud += "    warnings.warn('slow', stacklevel=1)\n    print('look', file=sys.stderr)\n"
    notebook.put("answer-9-2", loud + AT.split("\n", 1)[1])


@case("an answer that prints a megabyte at each call")
def prints_a_megabyte(notebook: Notebook) -> None:
    loud = "def at(values, index):\n    print('x' * 1_000_000)\n"
    notebook.put("answer-9-2", loud + AT.split("\n", 1)[1])


@case("an answer that plots")
def plots(notebook: Notebook) -> None:
    drawn = "def at(values, index):\n    plt.plot([1, 2])\n    plt.show()\n"
    notebook.put("answer-9-2", drawn + AT.split("\n", 1)[1] + "\n\n\nplt.plot([1, 2])\nplt.show()")


@case("an answer cell that fails behind the answer")
def fails_behind_the_answer(notebook: Notebook) -> None:
    notebook.put("answer-9-2", f"{AT}\n\n\nopen('my data.csv')")


@case(
    "an answer that never ends",
    points=(0, 2),
    verdicts=("timeout", "full"),
    told=["It was stopped"],
)
def never_ends(notebook: Notebook) -> None:
    notebook.put("answer-9-1", "def safe_mean(values, mask):\n    while True:\n        pass")


# --- tools ----------------------------------------------------------------------------------------

SETUP = "import matplotlib.pyplot as plt\nimport numpy as np\n\nfrom helpers import check, quiz"


def perfect(notebook: Notebook) -> Notebook:
    """With both answers right."""
    return notebook.put("answer-9-1", RIGHT).put("answer-9-2", AT)


def fresh(notebook: Notebook) -> Notebook:
    """As it was released."""
    return Notebook(notebook.chapter)


def old_cell(cell: Mapping[str, Any]) -> dict[str, Any]:
    """A cell as nbformat 3 had it."""
    if cell["cell_type"] == "code":
        return {
            "cell_type": "code",
            "language": "python",
            "collapsed": False,
            "input": cell["source"].splitlines(keepends=True),
            "outputs": [{"output_type": "pyout", "prompt_number": 1, "text": ["3"]}],
        }
    if cell["source"].startswith("# "):
        return {"cell_type": "heading", "level": 1, "source": cell["source"][2:]}
    return {"cell_type": "markdown", "source": cell["source"]}


def conflict(ours: str, theirs: str) -> bytes:
    """What Git writes where both sides changed all."""
    return f"<<<<<<< HEAD\n{ours}\n=======\n{theirs}\n>>>>>>> origin/main\n".encode()


def conflicting(notebook: Notebook, ours: str, theirs: str) -> bytes:
    """The file with a conflict over the first line of its kind."""
    text = json.dumps(notebook.data, indent=1)
    line = re.search(r'^ +"execution_count": null,$', text, re.MULTILINE)
    assert line
    return text.replace(line[0], conflict(ours, theirs).decode().rstrip("\n"), 1).encode()


def script(notebook: Notebook, text_mark: str, code_mark: str, magic: str) -> bytes:
    """The notebook as a script. magic: stands above each answer."""
    parts = ["# ---\n# jupyter:\n#   jupytext:\n#     formats: ipynb,py\n# ---"]
    for cell in notebook.cells:
        if cell["cell_type"] == "code":
            above = f"{magic}\n" if magic and cell["id"].startswith("answer") else ""
            parts.append(f"{code_mark}\n{above}{cell['source']}\n")
        else:
            lines = (f"# {line}".rstrip() for line in cell["source"].split("\n"))
            parts.append("\n".join([text_mark, *lines]) + "\n")
    return "\n\n".join(parts).encode()


def archive(members: Files) -> bytes:
    """A zip."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, member in members.items():
            opened.writestr(name, member)
    return data.getvalue()


def locked(data: bytes) -> bytes:
    """The zip with its only member marked as encrypted, in both of its headers."""
    for header, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = data.index(header) + at
        data = data[:place] + bytes([data[place] | 1]) + data[place + 1 :]
    return data


def tarred(notebook: Notebook) -> bytes:
    """A tar, not compressed."""
    data = io.BytesIO()
    member = tarfile.TarInfo("09_tiny.ipynb")
    member.size = len(notebook.bytes())
    with tarfile.open(fileobj=data, mode="w") as opened:
        opened.addfile(member, io.BytesIO(notebook.bytes()))
    return data.getvalue()
