"""Whatever is handed in is read: matched, mended, or refused with a sentence. Nothing is run."""

import io
import json
import os
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from notebooks import Notebook, labelled, new_cell, zipped

from autograder import collect
from autograder.collect import find, safe_name
from autograder.course import Chapter
from autograder.submission import read

RIGHT = "def safe_mean(values, mask):\n    return values[mask].mean() if mask.any() else 0.0"
OTHER = "def safe_mean(values, mask):\n    return 7.0"
AT = "def at(values, index):\n    return values[index]"


@pytest.fixture
def notebook(tiny: Chapter, tmp_path: Path) -> Notebook:
    folder = tmp_path / "handed in"
    folder.mkdir()
    return Notebook(tiny, folder)


# --- matching ------------------------------------------------------------------------------------


def test_an_answer_is_found_by_its_label(notebook: Notebook) -> None:
    handed = notebook.put("answer-9-1", RIGHT).read()
    assert handed.student == "ada"
    assert handed.chapter == "tiny"
    assert handed.answers["9.1"] == RIGHT
    assert (handed.extra, handed.notes, handed.problem) == ((), (), "")


def test_an_untouched_notebook_hands_in_the_starters(notebook: Notebook) -> None:
    handed = notebook.read()
    assert list(handed.answers) == ["9.1", "9.2"]
    assert all("NotImplementedError" in source for source in handed.answers.values())
    assert (handed.extra, handed.notes) == ((), ())


def test_outputs_and_reordered_cells_make_no_difference(notebook: Notebook) -> None:
    before = notebook.put("answer-9-1", RIGHT).read()
    for cell in notebook.cells:
        if cell["cell_type"] == "code":
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "4 of 4 points"}]
    notebook.cells.reverse()
    after = notebook.read()
    assert (after.answers, after.extra) == (before.answers, before.extra)


def test_cells_that_lost_their_labels_are_told_by_what_they_define(notebook: Notebook) -> None:
    notebook.put("answer-9-1", RIGHT)
    for cell in notebook.cells:
        cell["metadata"] = {}
        del cell["id"]
    handed = notebook.read()
    assert handed.answers["9.1"] == RIGHT
    assert handed.extra == ()
    assert handed.notes == ("The cells had lost their labels; they were told by what they define.",)


def test_an_answer_in_another_cell_counts_when_its_own_is_deleted(notebook: Notebook) -> None:
    handed = notebook.remove("answer-9-1").insert(RIGHT).read()
    assert handed.answers["9.1"] == RIGHT
    assert handed.notes == (
        "The answer cell of 9.1 was missing; its answer was found in another cell.",
    )


def test_a_deleted_answer_is_absent(notebook: Notebook) -> None:
    handed = notebook.remove("answer-9-1").read()
    assert list(handed.answers) == ["9.2"]
    assert handed.notes == ("The answer cell of 9.1 was missing; no other cell answers it.",)


def test_an_emptied_answer_cell_is_absent(notebook: Notebook) -> None:
    assert list(notebook.put("answer-9-1", " \n").read().answers) == ["9.2"]


def test_the_last_of_duplicated_answers_counts(notebook: Notebook) -> None:
    notebook.put("answer-9-1", OTHER).insert(RIGHT, **labelled("answer-9-1"))
    handed = notebook.read()
    assert handed.answers["9.1"] == RIGHT
    assert handed.extra == ()
    assert "defined in 2 cells" in handed.notes[0]


def test_a_duplicate_that_is_still_the_starter_does_not_count(notebook: Notebook) -> None:
    starter = notebook.cell("answer-9-1")["source"]
    notebook.put("answer-9-1", RIGHT).insert(starter, **labelled("answer-9-1"))
    assert notebook.read().answers["9.1"] == RIGHT


def test_an_experiment_behind_the_self_check_does_not_count(notebook: Notebook) -> None:
    notebook.put("answer-9-1", RIGHT).insert(OTHER, before="text-9-2-1")
    assert notebook.read().answers["9.1"] == RIGHT


def test_a_later_cell_counts_when_the_answer_cell_was_left_alone(notebook: Notebook) -> None:
    assert notebook.insert(RIGHT).read().answers["9.1"] == RIGHT


def test_an_answer_written_into_the_self_check_counts(notebook: Notebook) -> None:
    handed = notebook.put("check-9-1", f'{RIGHT}\n\n\ncheck("9.1")').read()
    assert "values[mask].mean()" in handed.answers["9.1"]


def test_helpers_beside_a_losing_duplicate_are_kept(notebook: Notebook) -> None:
    helper = "def count(mask):\n    return int(mask.sum())"
    notebook.put("answer-9-1", f"{helper}\n\n\n{OTHER}").insert(RIGHT, before="check-9-1")
    handed = notebook.read()
    assert handed.answers["9.1"] == RIGHT
    assert handed.extra == (helper,)


def test_a_cell_cut_in_two_is_put_together(notebook: Notebook) -> None:
    head, tail = "def safe_mean(values, mask):\n    n = 2", "    return n"
    notebook.put("answer-9-1", head).insert(tail, before="check-9-1", **labelled("answer-9-1"))
    handed = notebook.read()
    assert handed.answers["9.1"] == f"{head}\n{tail}"
    assert "cut in two" in handed.notes[0]


def test_an_indented_cell_is_read_as_ipython_does(notebook: Notebook) -> None:
    indented = "\n".join(f"    {line}" for line in RIGHT.split("\n"))
    assert notebook.put("answer-9-1", indented).read().answers["9.1"] == RIGHT


@pytest.mark.parametrize("kind", ["markdown", "raw"])
def test_an_answer_that_became_a_text_cell_is_read_as_code(notebook: Notebook, kind: str) -> None:
    notebook.put("answer-9-1", RIGHT).cell("answer-9-1")["cell_type"] = kind
    handed = notebook.read()
    assert handed.answers["9.1"] == RIGHT
    assert handed.notes == ("The answer cell of 9.1 had become a text cell; it was read as code.",)


def test_a_text_cell_without_label_is_read_as_code_where_no_cell_answers(
    notebook: Notebook,
) -> None:
    notebook.remove("answer-9-1").insert(RIGHT, kind="markdown", before="check-9-1")
    assert notebook.read().answers["9.1"] == RIGHT


def test_code_in_the_fences_of_a_text_cell_is_read(notebook: Notebook) -> None:
    fenced = f"Mine:\n```python\n{RIGHT}\n```\nand\n```\nb = 2\n```"
    notebook.remove("answer-9-1").insert(fenced, kind="markdown", before="check-9-1")
    assert notebook.read().answers["9.1"] == f"{RIGHT}\n\nb = 2"


def test_a_syntax_error_stays_in_the_answer(notebook: Notebook) -> None:
    broken = "def safe_mean(values, mask):\n    return values[mask.mean("
    assert notebook.put("answer-9-1", broken).read().answers["9.1"] == broken


def test_a_renamed_function_stays_in_the_answer(notebook: Notebook) -> None:
    renamed = RIGHT.replace("safe_mean", "my_mean")
    assert notebook.put("answer-9-1", renamed).read().answers["9.1"] == renamed


def test_names_defined_by_assignment_count(notebook: Notebook) -> None:
    source = "def _mean(v, m):\n    return 0.0\n\n\nif True:\n    safe_mean, other = _mean, 1"
    assert notebook.remove("answer-9-1").insert(source).read().answers["9.1"] == source


def test_missing_given_cells_are_told_in_one_sentence(notebook: Notebook) -> None:
    assert notebook.remove("given-").read().notes == (
        "The given cell with `total` was missing; the course's own was used.",
    )
    first = "such as the given cell with `plt`"
    assert notebook.remove("setup-").read().notes == (
        f"2 given cells were missing, {first}; the course's own were used.",
    )


def test_of_cells_merged_into_one_the_course_s_part_is_left_out(notebook: Notebook) -> None:
    code = [cell["source"] for cell in notebook.put("answer-9-1", RIGHT).cells[1:]]
    code = [source for source in code if not source.startswith(("#", "*"))]
    notebook.data["cells"] = [new_cell("\n".join(code), **labelled("setup-0-1"))]
    handed = notebook.read()
    assert "plt" not in handed.answers["9.1"]
    assert "check(" not in handed.answers["9.1"]
    assert handed.answers["9.1"].startswith(RIGHT)
    assert "Several cells were merged into one" in handed.notes[0]


def test_an_answer_that_quotes_given_code_is_left_whole(notebook: Notebook) -> None:
    quoting = f"import numpy as np\n{notebook.cell('given-')['source']}\n\n\n{RIGHT}"
    handed = notebook.put("answer-9-1", quoting).read()
    assert (handed.answers["9.1"], handed.notes) == (quoting, ())


def test_a_decorator_that_was_cut_off_is_put_back(notebook: Notebook) -> None:
    notebook.put("answer-9-1", "@round_up").insert(RIGHT, before="check-9-1")
    handed = notebook.read()
    assert handed.answers["9.1"] == f"@round_up\n{RIGHT}"
    assert "cut in two" in handed.notes[0]


def test_own_cells_are_extra_in_order(notebook: Notebook) -> None:
    notebook.insert("a = 1", before="answer-9-1").insert("b = 2").insert("(", before="check-9-2")
    assert notebook.read().extra == ("a = 1", "(", "b = 2")


def test_a_changed_given_cell_is_ignored_with_a_note(notebook: Notebook) -> None:
    handed = notebook.put("given-", "def total(values):\n    return 0.0").read()
    assert handed.extra == ()
    assert handed.notes == ("The given cell with `total` was changed; the course's own was used.",)


def test_what_a_given_cell_was_given_besides_is_kept(notebook: Notebook) -> None:
    setup = notebook.cell("setup-0-1")["source"]
    added = "import functools\n@functools.cache\ndef helper(n):\n    return n"
    handed = notebook.put("setup-0-1", f"{setup}\nnp = None\n{added}").read()
    assert handed.extra == (added,)
    assert "(what you added was kept) was changed" in handed.notes[0]


def test_many_changed_cells_are_told_in_one_sentence(notebook: Notebook) -> None:
    notebook.put("given-", "1").put("claim-9-1-1", "2")
    assert notebook.read().notes == (
        "2 given cells were changed, such as the given cell with `total`; "
        "the course's own were used.",
    )


def test_reformatting_a_given_cell_is_no_change(notebook: Notebook) -> None:
    source = notebook.cell("setup-0-1")["source"]
    assert notebook.put("setup-0-1", f"# mine\n\n{source}\n\n").read().notes == ()


def test_quiz_answers_and_prose_may_be_changed(notebook: Notebook) -> None:
    notebook.put("quiz-9-a", 'quiz("9.a", answer="b")').put("text-9-1-1", "## 9.1 Mine")
    handed = notebook.read()
    assert (handed.extra, handed.notes) == ((), ())
    assert handed.edited == {"quiz-9-a": 'quiz("9.a", answer="b")', "text-9-1-1": "## 9.1 Mine"}


def test_own_cells_know_where_they_stood(notebook: Notebook) -> None:
    notebook.insert("a = 1", before="check-9-1").insert("note", kind="markdown")
    assert [(own.after, own.kind) for own in notebook.read().own] == [
        ("answer-9-1", "code"),
        ("quiz-9-a", "markdown"),
    ]


# --- IPython's own lines -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("%matplotlib inline\nx = 1", "pass  # %matplotlib inline\nx = 1"),
        ("!pip install jax\nx = 1", "pass  # !pip install jax\nx = 1"),
        ("%%time\nx = 1", "x = 1"),
        ("if True:\n    %time f()", "if True:\n    pass  # %time f()"),
        ("files = !ls", "pass  # files = !ls"),
        ("jax.jit?", "pass  # jax.jit?"),
        (
            "x = (7\n% 4)\ns = '''\n!not a command\n'''",
            "x = (7\n% 4)\ns = '''\n!not a command\n'''",
        ),
        ("%%bash\nrm -r build", ""),
        ("pip install jax\nx = 1", "pass  # pip install jax\nx = 1"),
        ("if True:\n    %time x = f()", "if True:\n    x = f()"),
        ("%time %time x = 1", "pass  # %time %time x = 1"),
        (
            "from google.colab import drive\ndrive.mount(\n    '/d')\nx = 1",
            "pass  # from google.colab import drive\npass  # drive.mount(\n\nx = 1",
        ),
    ],
)
def test_magics_are_left_out(notebook: Notebook, written: str, kept: str) -> None:
    handed = notebook.insert(written).read()
    assert handed.extra == ((kept,) if kept else ())


def test_magics_are_told(notebook: Notebook) -> None:
    handed = notebook.put("answer-9-1", f"%%time\n{RIGHT}").read()
    assert handed.answers["9.1"] == RIGHT
    assert handed.notes == (
        "Lines that only a notebook understands were left out, such as `%%time`.",
    )


# --- formats and damage --------------------------------------------------------------------------


@pytest.mark.parametrize("version", [2, 3])
def test_worksheets_of_old_formats_are_read(notebook: Notebook, version: int) -> None:
    notebook.put("answer-9-1", RIGHT)
    old = [
        {"cell_type": "code", "language": "python", "input": cell["source"].splitlines(True)}
        if cell["cell_type"] == "code"
        else {"cell_type": "heading", "level": 1, "source": cell["source"]}
        for cell in notebook.cells
    ]
    notebook.data = {"nbformat": version, "metadata": {}, "worksheets": [{"cells": old}]}
    assert notebook.read().answers["9.1"] == RIGHT


def test_a_format_of_the_future_is_read(notebook: Notebook) -> None:
    notebook.put("answer-9-1", RIGHT).data |= {"nbformat": 5, "nbformat_minor": 0}
    assert notebook.read().answers["9.1"] == RIGHT


def test_malformed_cells_are_passed_over(notebook: Notebook) -> None:
    notebook.put("answer-9-1", RIGHT)
    notebook.cells[1:1] = [None, 3, [], {}, {"cell_type": 7, "source": {"a": 1}}, {"source": [1]}]
    notebook.cells.append({"cell_type": "code", "metadata": [], "id": 4, "source": ["a = ", "1"]})
    handed = notebook.read()
    assert handed.answers["9.1"] == RIGHT
    assert handed.extra == ("a = 1",)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_every_encoding_of_unicode_is_read(notebook: Notebook, encoding: str) -> None:
    data = json.dumps(notebook.put("answer-9-1", f"# é\n{RIGHT}").data, ensure_ascii=False)
    (notebook.folder / "ada.ipynb").write_bytes(data.encode(encoding))
    handed = read(notebook.folder / "ada.ipynb")
    assert (handed.answers["9.1"], handed.notes) == (f"# é\n{RIGHT}", ())


def conflict(ours: str, theirs: str, base: str = "") -> str:
    before = f"||||||| 0a1b\n{base}\n" if base else ""
    return f"<<<<<<< HEAD\n{ours}\n{before}=======\n{theirs}\n>>>>>>> main\n"


@pytest.mark.parametrize("base", ["", "  3"])
def test_a_conflict_that_no_cell_depends_on_is_resolved(notebook: Notebook, base: str) -> None:
    text = json.dumps(notebook.put("answer-9-1", RIGHT).data)
    text = text.replace('"nbformat": 4', f'"nbformat":\n{conflict("  4", "  5", base)}')
    (notebook.folder / "ada.ipynb").write_text(text)
    handed = read(notebook.folder / "ada.ipynb")
    assert handed.answers["9.1"] == RIGHT
    assert handed.notes == ("The marks of a merge conflict were left out: no cell had any.",)


@pytest.mark.parametrize("text", [conflict("1", "2"), "<<<<<<< HEAD\n{}", ">>>>>>> x\n<<<<<<< y\n"])
def test_a_conflict_in_the_cells_is_not_resolved(notebook: Notebook, text: str) -> None:
    for there in (text, json.dumps(notebook.data).replace('"cells": [', f'"cells": [\n{text}', 1)):
        (notebook.folder / "ada.ipynb").write_text(there)
        assert "merge conflict: resolve it" in read(notebook.folder / "ada.ipynb").problem


def test_text_that_is_no_text_can_be_written_again(notebook: Notebook) -> None:
    handed = notebook.insert("s = '\ud800\x00'\r\nt = 1").read()
    assert handed.extra == ("s = '?'\nt = 1",)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "The file is empty"),
        (b" \n", "The file is empty"),
        (b"%PDF-1.4", "The file is not a notebook but a PDF"),
        (b"<!DOCTYPE html>", "The file is not a notebook but a web page"),
        (b"import jax", "The file is not a notebook: it is no JSON"),
        (b"\xff\x00\x9f", "The file is not a notebook: it is no JSON"),
        (b"[1, 2]", "The file is not a notebook: it is JSON, but has no cells"),
        (b'{"a": 1}', "The file is not a notebook: it is JSON, but has no cells"),
        (b'{"cells": [{"cell_type": "co', "The file breaks off in the middle"),
        (
            b'{"cells": [}]}',
            "The file is a damaged notebook: its JSON makes no sense from line 1 on",
        ),
        (b"{\n<<<<<<< HEAD\n", "The file holds the marks of a merge conflict"),
        (b'{"cells": []}', "The notebook has no cells"),
        (b"[" * 100_000, "The file is not a notebook: it is no JSON"),
        (b"1" * 10_000, "The file is not a notebook: it is no JSON"),
        (
            b'{"cells": [{"cell_type": "code", "source": "import antigravity"}]}',
            "None of the notebook's cells belongs to a chapter of this course",
        ),
    ],
)
def test_a_file_that_is_no_notebook_of_ours_gets_a_sentence(
    tiny: Chapter, tmp_path: Path, data: bytes, sentence: str
) -> None:
    path = tmp_path / "ada.ipynb"
    path.write_bytes(data)
    handed = read(path)
    assert handed.problem.startswith(sentence)
    assert handed.problem.endswith(".")
    assert (handed.answers, handed.student) == ({}, "ada")


def test_a_notebook_of_50_mb_of_outputs_is_read(notebook: Notebook) -> None:
    picture = {"output_type": "display_data", "data": {"image/png": "A" * 50_000_000}}
    notebook.put("answer-9-1", RIGHT).cell("claim-9-1-1")["outputs"] = [picture]
    started = time.process_time()
    assert notebook.read().answers["9.1"] == RIGHT
    assert time.process_time() - started < 5


def test_a_larger_file_is_refused_unread(tiny: Chapter, tmp_path: Path) -> None:
    path = tmp_path / "ada.ipynb"
    with path.open("wb") as file:
        file.truncate(300 << 20)
    handed = read(path)
    assert handed.problem == (
        "A file of 300 MB is too large: clear its outputs and hand it in again."
    )


def test_json_that_would_fill_the_memory_is_refused_unparsed(tiny: Chapter, tmp_path: Path) -> None:
    path = tmp_path / "ada.ipynb"
    path.write_bytes(b'{"cells": [' + b"{}," * 5_000_000 + b"{}]}")
    assert "is too large" in read(path).problem


def test_a_notebook_with_nothing_of_the_expected_chapter_is_refused(notebook: Notebook) -> None:
    assert notebook.read(chapter=Chapter(9, "tiny")).problem == ""
    notebook.data["cells"] = [new_cell("import jax")]
    assert notebook.read(chapter=Chapter(9, "tiny")).problem == (
        "None of the notebook's cells belongs to chapter 09_tiny: hand in its notebook."
    )


def test_too_much_code_is_left_out(notebook: Notebook) -> None:
    notebook.put("answer-9-1", RIGHT).put("answer-9-2", f"{AT}\n# {'x' * 70_000}")
    for number in range(5):
        notebook.insert(f"a{number} = '{'x' * 50_000}'")
    handed = notebook.read()
    assert list(handed.answers) == ["9.1"]
    assert len(handed.extra) == 2
    assert "The answer to 9.2 is too long: 70 kB of 60 kB." in handed.notes
    assert "3 cells of yours were left out: too much code." in handed.notes


def test_nothing_is_executed(notebook: Notebook, tmp_path: Path) -> None:
    evil = f"open({str(tmp_path / 'ran')!r}, 'w')"
    notebook.put("answer-9-1", f"{RIGHT}\n{evil}").insert(evil).put("setup-0-1", evil).read()
    assert not (tmp_path / "ran").exists()


# --- places and names ----------------------------------------------------------------------------


@pytest.fixture
def drop(tiny: Chapter, tmp_path: Path) -> Callable[[str], Path]:
    """Writes an empty file at a place below the folder that is searched."""

    def write(place: str, data: bytes = b"{}") -> Path:
        path = tmp_path / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    return write


@pytest.mark.parametrize(
    ("place", "student"),
    [
        ("submitted/ada/09_tiny/09_tiny.ipynb", "ada"),
        ("submitted/ada/09_tiny/my renamed one.ipynb", "ada"),
        ("submitted/ada/solution.ipynb", "ada"),
        ("ada/09_tiny.ipynb", "ada"),
        ("ada/week 3/solution.ipynb", "ada"),
        ("ada/09_tiny/solution.ipynb", "ada"),
        ("09_tiny/ada.ipynb", "ada"),
        ("ada.ipynb", "ada"),
        ("ada_09_tiny.ipynb", "ada"),
        ("09_tiny-ada (1).ipynb", "ada"),
        ("09_tiny_ada-Copy1.ipynb", "ada"),
        ("ada.ipynb.txt", "ada"),
        ("ADA.IPYNB", "ADA"),
        ("Ada Lovelace_1815_assignsubmission_file_/hw.ipynb", "Ada Lovelace_1815"),
        ("lovelaceada_LATE_1815_424242_09_tiny.ipynb", "lovelaceada_1815"),
        ("Ada Lovelace_1815_assignsubmission_file_hw.ipynb", "Ada Lovelace_1815"),
        ("Homework 1_ada_attempt_2026-01-31-12-00-00_09_tiny.ipynb", "ada"),
        ("ada+09_tiny+2026-01-31 12:00:00.000000 UTC+0a1b/09_tiny.ipynb", "ada"),
        ("=cmd()/09_tiny.ipynb", "cmd()"),
    ],
)
def test_a_student_is_known_by_place_or_name(
    drop: Callable[[str], Path], tmp_path: Path, place: str, student: str
) -> None:
    drop(f"class/{place}")
    drop("class/zoe/09_tiny.ipynb" if "submitted" not in place else "class/submitted/zoe/x.ipynb")
    assert [each.student for each in find([tmp_path / "class"])] == [student, "zoe"]


@pytest.mark.parametrize(
    ("place", "student"),
    [
        ("submitted/ada/09_tiny/09_tiny.ipynb", "ada"),
        ("ada/09_tiny.ipynb", "ada"),
        ("downloads/ada.ipynb", "ada"),
    ],
)
def test_a_single_file_is_known_by_name_else_by_its_folder(
    drop: Callable[[str], Path], place: str, student: str
) -> None:
    assert [each.student for each in find([drop(place)])] == [student]


def test_a_name_is_safe_as_a_file_name() -> None:
    assert safe_name("../../etc/passwd") == "_.._etc_passwd"
    assert safe_name("a\x00b\n\u202ec") == "a b c"
    assert safe_name("...") == "unnamed"
    assert len(safe_name("é" * 500).encode()) <= 100


def test_without_folders_a_file_by_its_sender_s_name_is_no_instructor_s(
    drop: Callable[..., Path], tmp_path: Path
) -> None:
    drop("class/bob.ipynb")
    drop("class/ada.pdf")
    drop("class/lovelaceada_1815_4242_essay.odt")
    drop("class/grades_2026_10_export.csv")
    drop("class/README.md")
    assert [each.student for each in find([tmp_path / "class"])] == [
        "ada",
        "bob",
        "lovelaceada_1815",
    ]


def test_with_folders_a_file_beside_them_is_the_instructor_s(
    drop: Callable[..., Path], tmp_path: Path
) -> None:
    drop("class/bob/x.ipynb")
    drop("class/collect.py")
    assert [each.student for each in find([tmp_path / "class"])] == ["bob"]


def test_a_wrapping_folder_is_not_a_student(drop: Callable[[str], Path], tmp_path: Path) -> None:
    drop("class/all of them/ada/x.ipynb")
    drop("class/all of them/bob/x.ipynb")
    assert [each.student for each in find([tmp_path / "class"])] == ["ada", "bob"]


def test_nbgrader_s_timestamp_says_when(drop: Callable[..., Path], tmp_path: Path) -> None:
    drop("submitted/ada/09_tiny/09_tiny.ipynb")
    drop("submitted/ada/09_tiny/timestamp.txt", b"2026-01-31 12:00:00.5 UTC")
    assert find([tmp_path])[0].when == 1769860800.5


def test_what_stands_in_a_folder_without_a_notebook_is_reported(
    drop: Callable[..., Path], tmp_path: Path
) -> None:
    drop("class/ada/answers.odt")
    drop("class/bob/x.ipynb")
    drop("class/bob/notes.txt")
    drop("class/README.md")
    found = {each.student: each.problem for each in find([tmp_path / "class"])}
    assert found == {
        "ada": "“answers.odt” is no notebook: hand in the file that ends in .ipynb.",
        "bob": "",
    }


def test_links_are_not_followed(drop: Callable[..., Path], tmp_path: Path) -> None:
    secret = drop("solutions/09_tiny.ipynb")
    drop("class/bob/x.ipynb")
    (tmp_path / "class" / "ada").mkdir()
    (tmp_path / "class" / "ada" / "x.ipynb").symlink_to(secret)
    (tmp_path / "class" / "eve").symlink_to(secret.parent)
    found = {each.student: each.problem for each in find([tmp_path / "class"])}
    assert found == {
        "ada": "“x.ipynb” is a link: hand in the notebook itself.",
        "bob": "",
    }


def test_a_pipe_does_not_block(drop: Callable[..., Path], tmp_path: Path) -> None:
    drop("class/bob/x.ipynb")
    os.mkfifo(tmp_path / "class" / "ada.ipynb")
    assert "no ordinary file" in find([tmp_path / "class"])[0].problem


def test_checkpoints_results_and_duplicate_paths_are_passed_over(
    drop: Callable[..., Path], tmp_path: Path
) -> None:
    path = drop("class/ada/x.ipynb")
    drop("class/ada/.ipynb_checkpoints/x-checkpoint.ipynb")
    drop("class/out/autograded/ada/09_tiny/09_tiny.ipynb")
    drop("class/marks/x.ipynb")
    found = find([tmp_path / "class", path], skip=tmp_path / "class" / "marks")
    assert [each.path for each in found] == [path]


# --- zips ----------------------------------------------------------------------------------------


def test_a_zip_of_a_class_is_read(notebook: Notebook, tmp_path: Path) -> None:
    notebook.put("answer-9-1", RIGHT)
    data = json.dumps(notebook.data).encode()
    path = zipped(
        tmp_path / "class.zip",
        ("class/ada/09_tiny.ipynb", data),
        ("class/bob.ipynb", data),
        ("__MACOSX/class/._bob.ipynb", b"junk"),
    )
    found = find([path])
    assert [each.student for each in found] == ["ada", "bob"]
    assert [read(each).answers["9.1"] for each in found] == [RIGHT, RIGHT]
    assert not (tmp_path / "class").exists()


def test_a_zip_in_a_students_folder_is_read(notebook: Notebook, tmp_path: Path) -> None:
    data = json.dumps(notebook.put("answer-9-1", RIGHT).data).encode()
    zipped(tmp_path / "class" / "ada" / "homework.zip", ("a/b/09_tiny.ipynb", data))
    zipped(tmp_path / "class" / "bob.zip", ("09_tiny.ipynb", data))
    found = find([tmp_path / "class"])
    assert [each.student for each in found] == ["ada", "bob"]
    assert [read(each).answers["9.1"] for each in found] == [RIGHT, RIGHT]


def test_zips_in_a_zip_are_read(notebook: Notebook, tmp_path: Path) -> None:
    data = json.dumps(notebook.put("answer-9-1", RIGHT).data).encode()
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("09_tiny.ipynb", data)
    path = zipped(tmp_path / "moodle.zip", ("ada.zip", inner.getvalue()), ("bob/x.ipynb", data))
    found = find([path])
    assert [each.student for each in found] == ["ada", "bob"]
    assert [read(each).answers["9.1"] for each in found] == [RIGHT, RIGHT]


def test_a_learner_s_zips_lie_in_each_other_twice_at_most(tiny: Chapter, tmp_path: Path) -> None:
    name, data = "x.ipynb", b"{}"
    for depth in range(4):
        zipped(tmp_path / "class" / f"s{depth}.zip", (name, data))
        data, name = (tmp_path / "class" / f"s{depth}.zip").read_bytes(), f"{depth}.zip"
    problems = {each.student: each.problem for each in find([tmp_path / "class"])}
    assert (problems["s1"], problems["s2"]) == ("", "")
    assert "“0.zip” is no notebook" in problems["s3"]
    zipped(tmp_path / "many" / "eve.zip", *((f"{n}.zip", data) for n in range(4)))
    assert "too much" in find([tmp_path / "many"])[0].problem


def test_an_empty_zip_is_named(tiny: Chapter, tmp_path: Path) -> None:
    zipped(tmp_path / "class" / "ada.zip", ("__MACOSX/._x.ipynb", b""))
    (found,) = find([tmp_path / "class"])
    assert (found.student, found.problem[:27]) == ("ada", "The zip has no file in it. ")


def link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = 0o120777 << 16
    return info


@pytest.mark.parametrize(
    ("member", "sentence"),
    [
        ("../../eve.ipynb", "“../../eve.ipynb” would climb out of the zip: it was not opened."),
        ("/etc/eve.ipynb", "“/etc/eve.ipynb” would climb out of the zip: it was not opened."),
        ("..\\eve.ipynb", "“..\\eve.ipynb” would climb out of the zip: it was not opened."),
        ("C:\\eve.ipynb", "“C:\\eve.ipynb” would climb out of the zip: it was not opened."),
        (link("eve.ipynb"), "“eve.ipynb” is a link: hand in the notebook itself."),
    ],
)
def test_a_zip_that_attacks_is_not_opened(
    tiny: Chapter, tmp_path: Path, member: str | zipfile.ZipInfo, sentence: str
) -> None:
    path = zipped(tmp_path / "class.zip", (member, b"/etc/passwd"), ("zoe/x.ipynb", b"{}"))
    if isinstance(member, str) and "\\" in member:  # ZipInfo mends it on writing
        path.write_bytes(
            path.read_bytes().replace(member.replace("\\", "/").encode(), member.encode())
        )
    found = {each.student: read(each).problem for each in find([path])}
    assert sentence in found.values()
    assert "zoe" in found


def test_a_zip_bomb_is_refused(
    tiny: Chapter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collect, "MAX_BYTES", 10 << 20)
    monkeypatch.setattr(collect, "MAX_EXPANDED", 50 << 20)
    zeros = bytes(collect.MAX_BYTES + 1)
    zipped(tmp_path / "class" / "ada.zip", ("x.ipynb", zeros))
    zipped(tmp_path / "class" / "bob.zip", *((f"{n}.ipynb", b"{}") for n in range(60)))
    zipped(tmp_path / "class" / "eve.zip", *((f"{n}.ipynb", zeros) for n in range(6)))
    problems = {each.student: read(each).problem for each in find([tmp_path / "class"])}
    assert problems["ada"].startswith("A file of 10 MB is too large")
    hand_in = collect.HAND_IN
    assert problems["bob"] == f"The zip holds too much: 60 files, 60 notebooks of 0 MB. {hand_in}"
    assert problems["eve"] == f"The zip holds too much: 6 files, 6 notebooks of 60 MB. {hand_in}"


def test_a_member_larger_than_it_says_is_not_expanded(tiny: Chapter, tmp_path: Path) -> None:
    path = zipped(tmp_path / "ada.zip", ("x.ipynb", bytes(5_000_000)))
    size = (5_000_000).to_bytes(4, "little")
    path.write_bytes(path.read_bytes().replace(size, (10).to_bytes(4, "little")))
    assert read(find([path])[0]).problem


def test_a_damaged_zip_gets_a_sentence(tiny: Chapter, tmp_path: Path) -> None:
    folder = tmp_path / "class"
    zipped(folder / "ada.zip", ("x.ipynb", b"{}"))
    data = (folder / "ada.zip").read_bytes()
    (folder / "bob.zip").write_bytes(data[:40])
    (folder / "eve.zip").write_bytes(data[:30] + bytes(20) + data[50:])
    (folder / "fay.zip").write_bytes(b"")
    problems = {each.student: read(each).problem for each in find([folder])}
    assert problems["bob"].startswith("The zip")
    assert problems["eve"].startswith("The zip")
    assert problems["fay"].startswith("The zip")


# --- anything at all -----------------------------------------------------------------------------

MANY = settings(
    max_examples=150,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
SOURCES = st.one_of(
    st.sampled_from(
        [RIGHT, OTHER, AT, "(", "%%time", "!", "%x", "    return 1", "def at(", 'check("9.1")', ""]
    ),
    st.text(max_size=40),
    st.lists(st.one_of(st.text(max_size=10), st.integers()), max_size=3),
)
LABELS = ["answer-9-1", "answer-9-2", "check-9-1", "given-total", "setup-0-1", "text-9-1-1"]
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(["cells", "worksheets", "source", "metadata", "nbgrader", "id"]),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=20,
)
CELLS = st.fixed_dictionaries(
    {
        "cell_type": st.sampled_from(["code", "markdown", "raw", "heading", None]),
        "source": SOURCES,
        "metadata": st.one_of(
            JSON, st.sampled_from(LABELS).map(lambda label: {"nbgrader": {"grade_id": label}})
        ),
        "id": st.one_of(st.sampled_from(LABELS), JSON),
    }
)


@MANY
@given(st.binary(max_size=200))
def test_bytes_never_make_it_raise(tiny: Chapter, tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "ada.ipynb"
    path.write_bytes(data)
    assert read(path).problem


@MANY
@given(JSON)
def test_json_never_makes_it_raise(tiny: Chapter, tmp_path: Path, data: Any) -> None:
    path = tmp_path / "ada.ipynb"
    path.write_text(json.dumps(data), encoding="utf-8")
    assert read(path).problem or data["cells"] or data["worksheets"]


@MANY
@given(st.lists(CELLS, max_size=8))
def test_cells_never_make_it_raise(tiny: Chapter, tmp_path: Path, cells: list[Any]) -> None:
    path = tmp_path / "ada.ipynb"
    path.write_text(json.dumps({"cells": cells}), encoding="utf-8")
    handed = read(path, tiny)
    assert handed.problem or set(handed.answers) <= {"9.1", "9.2"}
    json.dumps([dict(handed.answers), handed.extra, handed.notes]).encode()


@MANY
@given(st.binary(max_size=300))
def test_zips_never_make_it_raise(tiny: Chapter, tmp_path: Path, noise: bytes) -> None:
    path = zipped(tmp_path / "class" / "ada.zip", ("x.ipynb", b'{"cells": []}'))
    data = path.read_bytes()
    at = len(noise) * 7 % len(data)
    path.write_bytes(data[:at] + noise + data[at + len(noise) // 2 :])
    assert all(read(each).problem for each in find([path.parent]))
