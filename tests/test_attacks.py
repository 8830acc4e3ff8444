"""Every attack of `tests/attacks` through the real engine: what it earns, reads, reaches and shows.

An attack is one cell that answers an exercise, of chapter 01 where its header names no other. The
header says what it tries, the verdicts that it may get, whether a person must be told, and what its
honest part earns by itself. In each submission the reference answers one more exercise, which has
to stay complete.
"""

import copy
import functools
import json
import re
import zipfile
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from autograder import cells, collect, diagnose, sandbox, submission
from autograder.assembly import reference_answers
from autograder.build import learner_notebook
from autograder.collect import find
from autograder.course import SECRET, Chapter, chapter
from autograder.grade import Grader
from autograder.oddities import odd
from autograder.results import Graded, Submission
from helpers.exercise import Assessment

CHAPTER = chapter("recompilation")
RIGHT = reference_answers(CHAPTER)
BANK = {answer.name: answer.source for answer in CHAPTER.answers}
CANARY = "canary-that-only-the-judge-knows"
MARK = "# %% honest part\n"


@dataclass(frozen=True)
class Attack:
    """One file of the bank; `earns` is what its honest part gets alone."""

    name: str
    chapter: Chapter
    tries: str
    exercise: str
    verdicts: tuple[str, ...]
    flagged: bool
    source: str
    earns: float
    seconds: float | None


def attack(path: Path) -> Attack:
    text = path.read_text(encoding="utf-8")
    header, _, source = text.partition("\n\n")
    told = dict(line.removeprefix("# ").split(": ", 1) for line in header.splitlines())
    of = chapter(told.get("chapter", CHAPTER.name))
    bank = {answer.name: answer.source for answer in of.answers}
    bank["the reference"] = reference_answers(of)[told["exercise"]]
    return Attack(
        path.stem,
        of,
        told["tries"],
        told["exercise"],
        tuple(told["verdict"].split("|")),
        told["flagged"] == "yes",
        source.replace(MARK, bank[told.get("honest part", "the reference")]),
        float(told.get("earns", 0)),
        float(told["seconds"]) if "seconds" in told else None,
    )


ATTACKS = [attack(path) for path in sorted((Path(__file__).parent / "attacks").glob("*.py"))]


@pytest.fixture(scope="module")
def graders():
    """Graders by chapter, whose judge has a secret; how mistakes behave is of no interest here."""
    if missing := sandbox.missing():
        pytest.skip(f"no isolation on this machine: {missing}")
    with pytest.MonkeyPatch.context() as patch, ExitStack() as to_close:
        patch.setenv(SECRET, CANARY)
        patch.setattr(diagnose, "bank", lambda *args: [])
        yield functools.cache(lambda of: to_close.enter_context(Grader(of)))


@pytest.fixture(scope="module")
def grader(graders):
    return graders(CHAPTER)


def grade(grader: Grader, answers: Mapping[str, str], **more: object) -> Graded:
    of = grader.chapter
    return grader.grade(Submission("mallory", of.name, Path("nb"), answers, **more))


def told(assessments: Mapping[str, Assessment]) -> str:
    """All that an answer could have had a say in."""
    return "\n".join(
        f"{each.message} {[(f.seen, f.expected if not f.hidden else '') for f in each.findings]}"
        for each in assessments.values()
    )


def hidden_numbers(grader: Grader, exercise: str) -> set[str]:
    """The first number of each array in hidden cases, as the attacks write it."""
    return {
        f"{value.flat[0]:.4f}"
        for asked in grader.asking.cases[exercise]
        for value in asked.case.inputs
        if asked.hidden and isinstance(value, np.ndarray) and value.size
    }


def neighbour_of(attack: Attack) -> str:
    """Which exercise the reference answers beside the attack."""
    elsewhere = {"per_example": "4.2", "donation": "6.1", "spiral": "10.1"}
    first = "1.4" if attack.exercise in ("1.1", "1.5") else "1.5"
    return elsewhere.get(attack.chapter.name, first)


def test_the_bank_is_large():
    assert len(ATTACKS) >= 60


@pytest.mark.parametrize("attack", ATTACKS, ids=[each.name for each in ATTACKS])
def test_an_attack_gains_nothing_reads_nothing_and_reaches_nobody(graders, attack, monkeypatch):
    grader, neighbour = graders(attack.chapter), neighbour_of(attack)
    if attack.seconds:
        exercise = attack.chapter.exercises[attack.exercise]
        monkeypatch.setattr(type(exercise), "seconds", attack.seconds)
    answers = {attack.exercise: attack.source}
    answers[neighbour] = reference_answers(attack.chapter)[neighbour]
    graded = grade(grader, answers)
    got = graded.assessments[attack.exercise]
    assert got.verdict in attack.verdicts, (got.verdict, got.message, graded.person)
    assert got.points <= attack.earns
    assert bool(graded.person) or not attack.flagged
    after = graded.assessments[neighbour]
    assert after.verdict == "full" or attack.name == "precision_lowered", after
    secrets = {CANARY, *hidden_numbers(grader, attack.exercise)}
    said = told(graded.assessments)
    assert not [secret for secret in secrets if secret in said]
    assert all(each.message.isprintable() for each in graded.assessments.values())


def descendants(pid: int | str) -> int:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(1 + descendants(child) for child in children)


def test_after_all_of_them_an_honest_submission_earns_everything_and_nothing_is_left(grader):
    graded = grade(grader, RIGHT)
    assert graded.points == graded.max_points and not graded.person
    assert not Path("/tmp/attack-of-the-pickle").exists()
    assert descendants(grader.parent.process.pid) == 2  # bubblewrap's own, and the warm parent


@pytest.mark.parametrize("honest", [a for a in CHAPTER.answers if a.kind == "right"], ids=str)
def test_no_right_answer_of_the_bank_is_odd(honest):
    assert not odd(honest.source)


# --- whole notebooks -----------------------------------------------------------------------------


@pytest.fixture
def notebook():
    return copy.deepcopy(json.loads(json.dumps(learner_notebook(CHAPTER))))


def read(notebook: dict, tmp_path: Path) -> submission.Handed:
    path = tmp_path / f"{CHAPTER.slug}.ipynb"
    path.write_text(json.dumps(notebook), encoding="utf-8")
    return submission.read(path, CHAPTER)


def code(notebook: dict) -> list[dict]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def labelled(notebook: dict, label: str) -> dict:
    return next(cell for cell in notebook["cells"] if cell["id"] == label)


POINTS = {
    "output_type": "execute_result",
    "execution_count": 1,
    "metadata": {},
    "data": {"text/plain": "4"},
}


def forge_outputs(notebook):
    for cell in code(notebook):
        cell["outputs"] = [POINTS]


def forge_metadata(notebook):
    for cell in code(notebook):
        cell["metadata"].setdefault("nbgrader", {}).update(points=1000, locked=False, solution=True)
    notebook["metadata"]["nbgrader"] = {"score": 1000, "max_score": 1}


def skip_by_tags(notebook):
    for cell in code(notebook):
        cell["metadata"]["tags"] = ["skip-execution", "remove-cell", "raises-exception"]


def replace_checks(notebook):
    for cell in code(notebook):
        if cell["id"].startswith("check-"):
            cell["source"] = "4.0"


def replace_check(notebook):
    notebook["cells"].insert(0, {
        "cell_type": "code", "id": "a", "metadata": {}, "outputs": [], "execution_count": 1,
        "source": "import helpers.selfcheck\nhelpers.selfcheck.check = check = lambda key: 4.0",
    })  # fmt: skip


def checks_turned_to_text(notebook):
    for cell in code(notebook):
        if cell["id"].startswith("check-"):
            cell["cell_type"] = "raw"
            del cell["outputs"], cell["execution_count"]


def duplicate_labels(notebook):
    notebook["cells"] += [{**copy.deepcopy(c), "outputs": [POINTS]} for c in code(notebook)]


NOTHING_EARNED = [
    forge_outputs, forge_metadata, skip_by_tags, replace_checks, replace_check,
    checks_turned_to_text, duplicate_labels,
]  # fmt: skip


@pytest.mark.parametrize("change", NOTHING_EARNED, ids=lambda change: change.__name__)
def test_what_a_notebook_says_of_itself_earns_nothing(grader, notebook, change, tmp_path):
    change(notebook)
    graded = grader.grade(read(notebook, tmp_path))
    assert graded.points == 0
    assert graded.max_points == sum(each.points for each in CHAPTER.exercises.values())
    assert {each.verdict for each in graded.assessments.values()} == {"unanswered"}


def test_given_cells_are_the_courses_whatever_a_learner_made_of_them(grader, notebook, tmp_path):
    for cell in code(notebook):
        if cell["id"].partition("-")[0] not in ("answer", "check"):
            cell["source"] += "\nBUCKETS = (3, 4, 8, 11, 2, 16, 7, 9)\njax.jit = lambda fn: fn"
    labelled(notebook, "answer-1-4")["source"] = BANK["a jit in each training"]
    graded = grader.grade(read(notebook, tmp_path))
    assert graded.assessments["1.4"].points <= 2.4


def test_an_answer_under_another_exercises_label_earns_that_of_its_own(grader, notebook, tmp_path):
    labelled(notebook, "answer-1-4")["source"] = RIGHT["1.5"]
    labelled(notebook, "answer-1-5")["source"] = RIGHT["1.5"]
    graded = grader.grade(read(notebook, tmp_path))
    assert graded.assessments["1.4"].points == 0
    assert graded.points <= CHAPTER.exercises["1.5"].points


def test_a_cell_that_patches_beside_the_answers_is_seen_by_a_person(grader):
    graded = grade(grader, {"1.4": RIGHT["1.4"]}, extra=("import gc\njax.jit = gc.get_objects",))
    assert any("jax.jit" in why for why in graded.person)


BOMBS = {
    "JSON that nests without an end": b"[" * 1_000_000,
    "a million lists": b'{"cells": [' + b"[]," * 1_000_000 + b"[]]}",
    "cells that are none": b'{"cells": [1, null, "x", {"source": {"a": 1}}, {"source": [[2]]}]}',
    "an integer of a million digits": b'{"cells": [], "nbformat": ' + b"9" * 1_000_000 + b"}",
    "no bytes": b"",
    "zeros": bytes(100_000),
}


@pytest.mark.parametrize("data", BOMBS.values(), ids=BOMBS.keys())
def test_a_bomb_of_a_notebook_is_a_sentence(data, tmp_path, monkeypatch):
    monkeypatch.setattr(cells, "MAX_MEMORY", 50 << 20)
    path = tmp_path / "mallory.ipynb"
    path.write_bytes(data)
    handed = submission.read(path, CHAPTER)
    assert handed.problem and not handed.answers


def test_a_zip_bomb_is_not_opened(tmp_path, monkeypatch):
    monkeypatch.setattr(collect, "MAX_BYTES", 10 << 20)
    bomb = tmp_path / "mallory.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr(f"mallory/{CHAPTER.slug}.ipynb", bytes(11 << 20))
    handed = [submission.read(found, CHAPTER) for found in find([bomb])]
    assert handed and all(each.problem for each in handed)


def test_a_zip_that_lies_about_its_sizes_gives_no_more_than_it_says(tmp_path, monkeypatch):
    liar = tmp_path / "mallory.zip"
    with zipfile.ZipFile(liar, "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr(f"mallory/{CHAPTER.slug}.ipynb", bytes(4 << 20))
    size = (4 << 20).to_bytes(4, "little")
    liar.write_bytes(liar.read_bytes().replace(size, (100).to_bytes(4, "little")))
    handed = [submission.read(found, CHAPTER) for found in find([liar])]
    assert handed and all(each.problem for each in handed)


CLIMBING = [
    "../../escaped.ipynb",
    "/etc/escaped.ipynb",
    "C:\\escaped.ipynb",
    "a/../../escaped.ipynb",
]


@pytest.mark.parametrize("name", CLIMBING)
def test_a_name_in_a_zip_leads_nowhere(name, notebook, tmp_path):
    climbing = tmp_path / "mallory.zip"
    with zipfile.ZipFile(climbing, "w") as opened:
        opened.writestr(name, json.dumps(notebook))
    for found in find([climbing]):
        assert submission.read(found, CHAPTER).problem
        assert not re.search(r"[/\\:]|^\.", found.student)
    assert [path.name for path in tmp_path.iterdir()] == ["mallory.zip"]


def test_links_are_not_followed(tmp_path):
    secret = tmp_path / "secret.ipynb"
    secret.write_text(CANARY)
    folder = tmp_path / "class" / "mallory"
    folder.mkdir(parents=True)
    (folder / f"{CHAPTER.slug}.ipynb").symlink_to(secret)
    (tmp_path / "class" / "eve").symlink_to(tmp_path)
    handed = [submission.read(found, CHAPTER) for found in find([tmp_path / "class"])]
    assert handed and all(each.problem and CANARY not in repr(each) for each in handed)


def test_a_link_in_a_zip_is_not_followed(tmp_path):
    linking = tmp_path / "mallory.zip"
    link = zipfile.ZipInfo(f"mallory/{CHAPTER.slug}.ipynb")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(linking, "w") as opened:
        opened.writestr(link, "/etc/passwd")
    assert all(submission.read(found, CHAPTER).problem for found in find([linking]))
