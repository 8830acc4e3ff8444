"""Marks for other systems: each file against the rules that its reader goes by, nobody lost."""

import csv
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conftest import made_up_course
from gradescope_schema import validate
from in_process import AT, HALF, RIGHT, graded, handed_in
from nbgrader.api import Gradebook as NbGraderBook
from typer.testing import CliRunner

from autograder import roster
from autograder.cli import app
from autograder.gradebook import Gradebook

Table = list[list[str]]

CHAPTER, OTHER = "09_tiny", "10_more"


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A results folder: three students, two chapters, a late one, a mark that a person changed."""
    root = tmp_path_factory.mktemp("export")
    out = root / "graded"
    with made_up_course(root / "checkout") as tiny:
        with Gradebook(out, [tiny]) as book:
            for student, answers in (
                ("ada", {"9.1": RIGHT, "9.2": AT}),
                ("bob", {"9.1": HALF, "9.2": AT}),
                ("Cyd Charisse_77", {"9.1": HALF}),
            ):
                book.record(graded(tiny, handed_in(tiny, answers, student=student)), tiny)
        add_a_chapter(out)
        yield out


def add_a_chapter(out: Path) -> None:
    """Another one, which only ada handed in; a person's mark for bob, a penalty for ada."""
    with NbGraderBook(f"sqlite:///{out}/gradebook.db") as book:
        book.add_assignment(OTHER)
        book.add_notebook(OTHER, OTHER)
        book.add_grade_cell("check-10-1", OTHER, OTHER, max_score=10, cell_type="code")
        book.add_submission(OTHER, "ada")
        book.find_grade("check-10-1", OTHER, OTHER, "ada").auto_score = 7.5
        book.find_submission_notebook(OTHER, OTHER, "ada").late_submission_penalty = 1.0
        book.find_grade("check-9-1", CHAPTER, CHAPTER, "bob").manual_score = 4.0
        comment = book.find_comment("answer-9-1", CHAPTER, CHAPTER, "bob")
        comment.manual_comment = "I see what you meant."
        book.db.commit()


Export = Callable[..., tuple[int, str, dict[str, Path]]]


@pytest.fixture
def export(results: Path, tmp_path: Path) -> Export:
    """Runs the command; returns its exit code, what it says, and its files by name."""

    def run(*options: object, folder: Path = results) -> tuple[int, str, dict[str, Path]]:
        to = tmp_path / "files"
        done = CliRunner().invoke(app, ["export", str(folder), "--to", str(to), *map(str, options)])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done.exit_code, done.output, {path.name: path for path in to.glob("*")}

    return run


@pytest.fixture
def listed(tmp_path: Path) -> Callable[[str], Path]:
    """A roster with that text."""

    def write(text: str) -> Path:
        path = tmp_path / "roster.csv"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def table(path: Path) -> Table:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.reader(stream))


# --- plain ---------------------------------------------------------------------------------------


def test_a_row_a_student_a_column_a_chapter_and_the_total(export: Export) -> None:
    code, _, files = export()
    assert code == 0
    assert table(files["students.csv"]) == [
        ["student", CHAPTER, OTHER, "total"],
        ["Cyd Charisse_77", "3", "", "3"],
        ["ada", "6", "6.5", "12.5"],  # 7.5, a point less for being late
        ["bob", "6", "", "6"],  # 3 and 2, but a person gave 4 for the first
    ]


def test_files_go_to_a_folder_in_the_results_unless_told(results: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(results, tmp_path / "copy"))
    done = CliRunner().invoke(app, ["export", str(copy)])
    assert done.exit_code == 0
    assert (copy / "export" / "students.csv").is_file()


# --- what the readers of the files go by ---------------------------------------------------------

IMPORTER = "https://github.com/instructure/canvas-lms/blob/master/lib/gradebook_importer.rb"
EXPORTER = "https://github.com/instructure/canvas-lms/blob/master/lib/gradebook_exporter.rb"
NUMBER = re.compile(r"-?\d+(\.\d\d?)?")
NO_ASSIGNMENT = re.compile("(Current|Final|Override) (Score|Points|Grade|Status)")


def section(rows: Table) -> int:
    return rows[0].index("Section")


CANVAS_RULES: dict[str, tuple[str, Callable[[Table], bool]]] = {
    "the header starts with Student and ID, and is longer than 3": (
        IMPORTER,
        lambda rows: rows[0][:2] == ["Student", "ID"] and len(rows[0]) > 3,
    ),
    "SIS Login ID is third, or fourth behind SIS User ID": (
        IMPORTER,
        lambda rows: (
            rows[0][2] == "SIS Login ID" or rows[0][2:4] == ["SIS User ID", "SIS Login ID"]
        ),
    ),
    "Section ends what is about the student; assignments follow": (
        IMPORTER,
        lambda rows: section(rows) in (3, 4) and len(rows[0]) > section(rows) + 1,
    ),
    "no assignment is called like a column that Canvas computes": (
        IMPORTER,
        lambda rows: not any(map(NO_ASSIGNMENT.search, rows[0][section(rows) + 1 :])),
    ),
    "the second row says Points Possible, indented, and a number for each assignment": (
        EXPORTER,
        lambda rows: (
            rows[1][0] == "    Points Possible"
            and not any(rows[1][1 : section(rows) + 1])
            and all(map(NUMBER.fullmatch, rows[1][section(rows) + 1 :]))
        ),
    ),
    "each row has a cell for each column": (
        EXPORTER,
        lambda rows: {len(row) for row in rows} == {len(rows[0])},
    ),
    "a grade is a number of two digits at most, or empty": (
        EXPORTER,
        lambda rows: all(
            not cell or NUMBER.fullmatch(cell)
            for row in rows[2:]
            for cell in row[section(rows) + 1 :]
        ),
    ),
    "a student is found by ID, or by login": (
        IMPORTER,
        lambda rows: all(row[1] or row[rows[0].index("SIS Login ID")] for row in rows[2:]),
    ),
}

GRADE_IMPORT = "https://docs.moodle.org/405/en/Grade_import"
LOADER = "https://github.com/moodle/moodle/blob/main/grade/import/csv/classes/load_data.php"
MOODLE_RULES: dict[str, tuple[str, Callable[[Table], bool]]] = {
    "a column names the person: id, ID number, email address or username": (
        LOADER,
        lambda rows: bool({"ID number", "Email address", "Username"} & set(rows[0])),
    ),
    "it is empty nowhere: the whole import fails for one unknown person": (
        LOADER,
        lambda rows: all(
            row[at]
            for at, column in enumerate(rows[0])
            if column in ("ID number", "Email address", "Username")
            for row in rows[1:]
        ),
    ),
    "columns are told apart by their headers": (
        GRADE_IMPORT,
        lambda rows: len(set(rows[0])) == len(rows[0]),
    ),
    "feedback comes with its grade, or the grade is lost": (
        GRADE_IMPORT,
        lambda rows: rows[0][-1] == f"{rows[0][-2]} feedback",
    ),
    "a grade is a number of at most 100, and not empty, which would delete one": (
        LOADER,
        lambda rows: all(NUMBER.fullmatch(row[-2]) and float(row[-2]) <= 100 for row in rows[1:]),
    ),
    "each row has a cell for each column": (
        LOADER,
        lambda rows: {len(row) for row in rows} == {len(rows[0])},
    ),
}


def broken(rows: Table, rules: dict[str, tuple[str, Callable[[Table], bool]]]) -> list[str]:
    return [f"{rule} ({source})" for rule, (source, holds) in rules.items() if not holds(rows)]


def test_without_a_roster_canvas_gets_our_names_as_logins(export: Export) -> None:
    code, _, files = export("--format", "canvas")
    rows = table(files["canvas.csv"])
    assert code == 0
    assert broken(rows, CANVAS_RULES) == []
    assert rows[1][-2:] == ["6", "10"]
    assert rows[3] == ["ada", "", "", "ada", "", "6", "6.5"]


CANVAS_ROSTER = (
    f"Student,ID,SIS User ID,SIS Login ID,Section,09_tiny (4711),{OTHER} (12),Final Score\n"
    ",,,,,Manual Posting,,\n"
    "    Points Possible,,,,,6,10,(read only)\n"
    '"Lovelace, Ada",31,S-31,ada,B1,1,2,55\n'
    '"Charisse, Cyd",77,S-77,ccharisse,B1,,9,\n'
    '"Builder, Bob",5,S-5,bob,B2,,,\n'
    '"Student, Test",99,,f00,B1,,,\n'
)


def test_canvas_gets_its_own_columns_and_assignments_back(export: Export, listed) -> None:
    code, said, files = export("--format", "canvas", "--roster", listed(CANVAS_ROSTER))
    rows = table(files["canvas.csv"])
    assert (code, list(files)) == (0, ["canvas.csv"]), said
    assert broken(rows, CANVAS_RULES) == []
    assert rows == [
        [
            "Student",
            "ID",
            "SIS User ID",
            "SIS Login ID",
            "Section",
            "09_tiny (4711)",
            "10_more (12)",
        ],
        ["    Points Possible", "", "", "", "", "6", "10"],
        # what Canvas has already stays where there is no mark of ours
        ["Charisse, Cyd", "77", "S-77", "ccharisse", "B1", "3", "9"],
        ["Lovelace, Ada", "31", "S-31", "ada", "B1", "6", "6.5"],
        ["Builder, Bob", "5", "S-5", "bob", "B2", "6", ""],
    ]


def test_moodle_gets_a_file_a_chapter_with_grades_and_feedback(export: Export, listed) -> None:
    people = listed(
        "First name;Last name;ID number;Email address;Course total\n"
        "Ada;Lovelace;31;ada@example.org;-\n"
        "Cyd;Charisse;32;cyd@example.org;-\n"
        "Bob;Builder;33;bob@example.org;-\n"
    )
    code, said, files = export("--format", "moodle", "--roster", people)
    assert (code, sorted(files)) == (0, [f"moodle_{CHAPTER}.csv", f"moodle_{OTHER}.csv"]), said
    for path in files.values():
        assert broken(table(path), MOODLE_RULES) == []
    first, second = table(files[f"moodle_{CHAPTER}.csv"]), table(files[f"moodle_{OTHER}.csv"])
    assert [row[:5] for row in first[1:]] == [
        ["Cyd", "Charisse", "32", "cyd@example.org", "3"],
        ["Ada", "Lovelace", "31", "ada@example.org", "6"],
        ["Bob", "Builder", "33", "bob@example.org", "6"],
    ]
    assert "“divides by nothing”" in first[1][5]
    assert first[3][5].startswith("9.1: I see what you meant. 9.2: Complete: 2 of 2 points.")
    assert second[1:] == [["Ada", "Lovelace", "31", "ada@example.org", "6.5", "Late: −1."]]


def test_without_a_roster_moodle_gets_our_names_as_usernames(export: Export) -> None:
    _, _, files = export("--format", "moodle")
    rows = table(files[f"moodle_{CHAPTER}.csv"])
    assert broken(rows, MOODLE_RULES) == []
    assert rows[0][0] == "Username"


# --- Gradescope ----------------------------------------------------------------------------------


def submitted(root: Path, archive: Path, name: str, email: str) -> subprocess.CompletedProcess[str]:
    """Runs an autograder zip as Gradescope does."""
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(root / "source")
    users = {"users": [{"id": 1, "name": name, "email": email}]}
    (root / "submission_metadata.json").write_text(json.dumps(users))
    script = (root / "source" / "run_autograder").read_text()
    assert script.startswith("#!/usr/bin/env python3\n")
    (root / "run_autograder").write_text(script)
    command = [sys.executable, "-I", str(root / "run_autograder")]
    env = {"AUTOGRADER_ROOT": str(root)}
    return subprocess.run(command, cwd=root, env=env, capture_output=True, text=True)


def test_gradescope_gets_a_zip_that_looks_marks_up_by_address(
    export: Export, listed, tmp_path: Path
) -> None:
    people = listed("First Name,Last Name,SID,Email\nAda,Lovelace,1,ada@example.org\n")
    code, said, files = export("--format", "gradescope", "--roster", people)
    assert code == 1
    assert "bob is not in the roster" in said
    done = submitted(tmp_path, files[f"gradescope_{OTHER}.zip"], "A. L.", "ada@example.org")
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "results" / "results.json").read_text())
    validate(found)
    assert (found["score"], found["output"]) == (6.5, "Late: −1.")
    (test,) = found["tests"]
    assert (test["number"], test["score"], test["max_score"]) == ("10.1", 7.5, 10.0)


def test_whoever_has_no_marks_gets_none_from_gradescope(export: Export, tmp_path: Path) -> None:
    _, _, files = export("--format", "gradescope")
    archive = files[f"gradescope_{CHAPTER}.zip"]
    done = submitted(tmp_path, archive, "Bob", "bob@example.org")
    assert done.returncode == 0, done.stderr
    validate(json.loads((tmp_path / "results" / "results.json").read_text()))
    (tmp_path / "results" / "results.json").unlink()
    done = submitted(tmp_path, archive, "Eve", "eve@example.org")
    assert done.returncode == 1
    assert done.stderr == "no marks were uploaded for eve@example.org\n"
    assert not (tmp_path / "results" / "results.json").exists()


@pytest.mark.parametrize("name", ["bob", "Bob", "ada@example.org", "Ada Lovelace"])
def test_nobody_gets_marks_by_calling_themselves_like_another(
    export: Export, listed, tmp_path: Path, name: str
) -> None:
    people = listed("First Name,Last Name,SID,Email\nAda,Lovelace,1,ada@example.org\n")
    for options in ((), ("--roster", people)):
        _, _, files = export("--format", "gradescope", *options)
        done = submitted(tmp_path, files[f"gradescope_{OTHER}.zip"], name, "eve@example.org")
        assert done.returncode == 1
        assert not (tmp_path / "results" / "results.json").exists()


# --- who is who ----------------------------------------------------------------------------------


def test_who_is_on_one_side_only_is_named_and_keeps_the_marks(export: Export, listed) -> None:
    people = listed("Username,Full name\nada,Ada Lovelace\nzoe,Zoë Zoom\n")
    code, said, files = export("--format", "moodle", "--roster", people)
    assert code == 1
    assert "bob is not in the roster: see unmatched.csv" in said
    assert "zoe · Zoë Zoom has no marks" in said
    assert [row[0] for row in table(files[f"moodle_{CHAPTER}.csv"])] == ["Username", "ada"]
    assert table(files["unmatched.csv"]) == [
        ["student", CHAPTER, "total"],
        ["Cyd Charisse_77", "3", "3"],
        ["bob", "6", "6"],
    ]


CANVAS_CLASS = roster.Roster(
    ["Student", "ID", "SIS Login ID", "Section"],
    [
        {"Student": "Núñez, José", "ID": "501", "SIS Login ID": "jn1@example.org", "Section": "A"},
        {"Student": "Li, Wei", "ID": "502", "SIS Login ID": "wl1", "Section": "A"},
        {"Student": "Li, Wei", "ID": "503", "SIS Login ID": "wl2", "Section": "B"},
    ],
)


@pytest.mark.parametrize(
    ("student", "number"),
    [
        ("jn1@example.org", "501"),
        ("jn1", "501"),
        ("José Núñez", "501"),
        ("Núñez, José", "501"),
        ("nunezjose_501", "501"),  # as Canvas calls a download
        ("liwei_503", "503"),
        ("wl1", "502"),
        ("502", "502"),
    ],
)
def test_a_student_is_found_however_the_file_was_called(student: str, number: str) -> None:
    found = roster.match([student], CANVAS_CLASS)
    assert found.rows[student]["ID"] == number
    assert len(found.absent) == 2


@pytest.mark.parametrize(
    ("students", "why"),
    [
        (["Wei Li"], "fits 2 people of the roster"),
        (["jn"], "is not in the roster"),
        (["jn1", "José Núñez"], "is one person of the roster with José Núñez"),
    ],
)
def test_nobody_is_guessed(students: list[str], why: str) -> None:
    found = roster.match(students, CANVAS_CLASS)
    assert found.rows == {}
    assert found.unknown[students[0]] == why


# --- what can't be done --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("system", "text", "said"),
    [
        ("csv", "a,b\n1,2\n", "has no column that says who is who, such as ID"),
        ("csv", "", "has no column that says who is who"),
        ("canvas", "Username\nada\n", "no column “Student” or “LastName”: export it from Canvas"),
        ("moodle", "Student,ID\nx,1\n", "no column “Username” or “ID number” or “Email address”"),
        ("gradescope", "Student,ID\nx,1\n", "no column “Email” or “Email address”"),
    ],
)
def test_a_roster_of_another_kind_is_refused(
    export: Export, listed, system: str, text: str, said: str
) -> None:
    code, output, files = export("--format", system, "--roster", listed(text))
    assert code == 2
    assert said in output
    assert files == {}


def test_other_bad_input_is_one_line(export: Export, listed, tmp_path: Path) -> None:
    code, said, _ = export(folder=tmp_path)
    assert (code, said.count("\n")) == (2, 1)
    assert "has no gradebook.db: name a results folder of `autograder grade`" in said
    path = listed("")
    path.write_bytes("Student,ID\nJosé,1\n".encode("latin-1"))
    code, said, _ = export("--roster", path)
    assert (code, said.count("\n")) == (2, 1)
    assert "is not UTF-8" in said
    code, said, _ = export("--roster", tmp_path / "none.csv")
    assert (code, said.count("\n")) == (2, 1)
    assert "can't be read: No such file" in said
