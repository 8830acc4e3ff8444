"""The build: quotes, starters, nbgrader's own result, the same bytes twice, and what is stale."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell
from typer.testing import CliRunner

from autograder import build, course, nbgrader_course
from autograder.assembly import given_cells, reference_answers, role_of, solution_notebook
from autograder.cli import app
from autograder.course import Chapter
from autograder.hidden_tests import points
from autograder.source import SourceError, definition
from helpers import check

ROOT = Path(__file__).parent.parent


def edit(chapter: Chapter, old: str, new: str, name: str = "chapter.py") -> None:
    path = chapter.source.parent / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def cell(notebook: NotebookNode, cell_id: str) -> NotebookNode:
    return next(each for each in notebook.cells if each["id"] == cell_id)


BUILT: list[bytes] = []
"""What ships of the made-up chapter, once a test has built them."""


@pytest.fixture
def built(tiny: Chapter) -> Chapter:
    files = [tiny.notebook, tiny.public_bank, tiny.public_sections]
    if not BUILT:
        build.build(tiny)
        BUILT.extend(path.read_bytes() for path in files)
    for path, content in zip(files, BUILT, strict=True):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    return tiny


def committed(chapter: Chapter) -> NotebookNode:
    return nbformat.read(chapter.notebook, as_version=4)


# --- quotes --------------------------------------------------------------------------------------


def test_a_quote_is_replaced_by_the_definition(tiny):
    text = cell(solution_notebook(tiny), "given-total").source
    assert text.startswith("def total(values: np.ndarray) -> np.float64:")
    assert "# quote" not in text


def test_a_quote_finds_functions_classes_methods_and_constants_with_their_decorators():
    assert definition("helpers.exercise.is_stub").startswith("def is_stub(")
    assert definition("helpers.exercise.Row").startswith("@dataclass(frozen=True)\nclass Row:")
    assert definition("helpers.exercise.Exercise.names").startswith("@property\ndef names(self)")
    assert definition("helpers.exercise.STUB") == 'STUB = "your answer"'


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("helpers.exercises.tiny.totle", "defines no totle"),
        ("helpers.nowhere.total", "helpers/__init__.py defines no nowhere.total"),
        ("nowhere.total", "there is no such module"),
        ("total", "there is no such module"),
    ],
)
def test_a_quote_of_what_is_not_there_names_file_and_line(tiny, name, said):
    edit(tiny, "helpers.exercises.tiny.total", name)
    line = tiny.source.read_text().splitlines().index(f"# quote: {name}") + 1
    with pytest.raises(SourceError) as raised:
        solution_notebook(tiny)
    assert str(raised.value).startswith(f"solutions/tiny/chapter.py:{line}: can't quote {name}")
    assert said in str(raised.value)


# --- what the build writes -----------------------------------------------------------------------


def test_a_task_tells_its_facts_and_what_the_check_looks_at(tiny):
    text = cell(solution_notebook(tiny), "task-9-1").source
    assert text.startswith("### ✍️ Exercise 9.1 · A mean that survives an empty selection\n\n")
    assert "difficulty ●○○ · importance ●●○ · 10 minutes · 4 points" in text
    assert "Write `safe_mean(values, mask)`." in text
    assert text.endswith(
        "**The check looks at** whether the answer\n\n"
        "- is the mean of the selected numbers (3 points)\n"
        "- is 0 when nothing is selected (1 point)"
    )


def test_a_quiz_question_becomes_its_text_and_a_call(tiny):
    notebook = solution_notebook(tiny)
    assert "**🧪 Question 9.a** · What is the mean" in cell(notebook, "question-9-a").source
    assert "- **b** · NaN" in cell(notebook, "question-9-a").source
    assert cell(notebook, "quiz-9-a").source == 'quiz("9.a", answer=...)'


def test_a_starter_keeps_its_signature_and_is_followed_by_its_check(built):
    notebook = committed(built)
    assert cell(notebook, "answer-9-1").source == (
        "def safe_mean(values, mask):\n"
        '    """Mean of the selected values; 0 when there are none."""\n'
        '    raise NotImplementedError("your answer")  # ✍️'
    )
    ids = [each["id"] for each in notebook.cells]
    assert ids[ids.index("answer-9-1") + 1] == "check-9-1"
    assert cell(notebook, "check-9-1").source == 'check("9.1")'


def test_an_unanswered_notebook_runs_and_its_checks_say_so(built):
    said = cell(committed(built), "check-9-1").outputs[0].data["text/plain"]
    assert "9.1" in said and "not answered yet" in said


def test_the_learner_gets_no_solution_and_no_hidden_test(built):
    text = built.notebook.read_text()
    for secret in ("max(int(mask.sum()), 1)", "raise IndexError", "hidden_tests", "BEGIN", "END "):
        assert secret in nbformat.writes(solution_notebook(built)), secret
        assert secret not in text, secret


def test_the_solved_notebook_runs_and_its_checks_and_hidden_tests_give_all_points(tiny):
    notebook = solution_notebook(tiny)
    move = f"from autograder import course\ncourse.ROOT = type(course.ROOT)({str(course.ROOT)!r})"
    notebook.cells.insert(1, new_code_cell(move))  # to the temporary checkout
    settings = {
        "PYTHONPATH": os.pathsep.join([str(course.ROOT), str(ROOT)]),
        "COURSE_PROGRESS": str(course.ROOT / "progress.json"),
    }
    NotebookClient(notebook, kernel_name="python3").execute(env=os.environ | settings)
    first, last = cell(notebook, "check-9-1").outputs
    assert "4 of 4 points ✅" in first.data["text/plain"]
    assert last.data["text/plain"] == "4.0"  # nbgrader reads the repr as a number


def test_each_code_cell_of_the_course_is_locked_and_each_answer_is_not(tiny):
    for each in solution_notebook(tiny).cells:
        nbgrader = each.metadata.get("nbgrader")
        if each.cell_type == "markdown" or role_of(each) == "quiz":
            assert nbgrader is None
        else:
            assert nbgrader["grade_id"] == each["id"]
            assert nbgrader["solution"] == (role_of(each) == "starter")
            assert nbgrader["locked"] != nbgrader["solution"]
            assert nbgrader["grade"] == (role_of(each) == "selfcheck")


def test_ids_stay_when_another_section_gets_a_cell(tiny):
    before = [each["id"] for each in solution_notebook(tiny).cells]
    edit(
        tiny,
        "# ## 9.2 Bounds",
        '# More.\n\n# %% tags=["claim"]\nassert 1\n\n# %% [markdown]\n# ## 9.2 Bounds',
    )
    after = [each["id"] for each in solution_notebook(tiny).cells]
    assert [each for each in after if each in before] == before
    assert len(after) == len(before) + 2


def test_given_cells_come_with_their_ids_and_roles(tiny):
    assert [(name, role) for name, _, role in given_cells(tiny)] == [
        ("setup-0-1", "setup"),
        ("given-total", "given"),
        ("claim-9-1-1", "claim"),
        ("figure-9-1-1", "figure"),
        ("claim-9-1-2", "claim"),
    ]


def test_the_reference_answers_are_the_author_s_solutions(tiny):
    assert "max(int(mask.sum()), 1)" in reference_answers(tiny)["9.1"]


def test_a_task_without_an_exercise_and_an_exercise_without_a_task_are_refused(tiny):
    edit(tiny, '# %% [markdown] exercise="9.2"', '# %% [markdown] exercise="9.7"')
    with pytest.raises(SourceError, match=r"exercise 9\.2 has 0 task cells"):
        solution_notebook(tiny)


def test_a_cell_that_fails_is_named_with_its_line(tiny):
    edit(tiny, "assert total([1, 2, 6]) / 3 == 3", "assert total([1, 2, 6]) / 3 == 4")
    line = tiny.source.read_text().splitlines().index('# %% tags=["claim"]') + 1
    with pytest.raises(SourceError, match=rf"chapter\.py:{line}: cell `claim-9-1-1` fails: Assert"):
        build.build(tiny)
    assert not tiny.notebook.exists()


def test_building_leaves_the_author_s_progress_alone(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "mine.json"))
    build.build(tiny)
    assert not (tmp_path / "mine.json").exists()


def test_an_answer_that_is_loud_leaves_stderr_empty_for_nbgrader_gives_0_for_anything_there(
    tiny, capfd, monkeypatch
):
    def safe_mean(values, mask):
        print("loud", file=sys.stderr)
        return float(values[mask].mean()) if mask.any() else 0.0

    monkeypatch.setenv("COURSE_PROGRESS", str(course.ROOT / "progress.json"))
    check("9.1", {"safe_mean": safe_mean})
    assert points("9.1", {"safe_mean": safe_mean}) == 4.0
    assert capfd.readouterr().err == ""


# --- the same as nbgrader, the same twice --------------------------------------------------------


def test_the_release_is_what_nbgrader_s_own_command_makes(tiny, tmp_path):
    folder = tmp_path / "course"
    nbgrader_course.lay_out(folder, [tiny])
    command = [sys.executable, "-m", "nbgrader", "generate_assignment", tiny.slug, "--force"]
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    subprocess.run(
        command,
        cwd=folder,
        check=True,
        capture_output=True,
        env={"PATH": path, "PYTHONPATH": str(ROOT)},
    )
    theirs = nbformat.read(folder / "release" / tiny.slug / f"{tiny.slug}.ipynb", as_version=4)
    ours = build.learner_notebook(tiny)
    assert len(ours.cells) == len(theirs.cells)
    for mine, other in zip(ours.cells, theirs.cells, strict=True):
        assert mine == other
    assert ours.metadata == theirs.metadata


def test_building_twice_gives_the_same_bytes_figures_and_times_included(built):
    before = built.notebook.read_bytes(), built.public_bank.read_bytes()
    build.build(built)
    assert (built.notebook.read_bytes(), built.public_bank.read_bytes()) == before
    assert "image/png" in cell(committed(built), "figure-9-1-1").outputs[0].data


def test_a_changed_cell_that_prints_times_gets_a_new_output(built):
    before = cell(committed(built), "claim-9-1-2").outputs[0].text
    edit(built, "perf_counter():.9f} s", "perf_counter():.9f} seconds")
    build.build(built)
    after = cell(committed(built), "claim-9-1-2").outputs[0].text
    assert after.endswith("seconds\n") and after != before


# --- what is stale -------------------------------------------------------------------------------


def test_a_fresh_build_is_not_stale(built):
    assert build.stale(built) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("A chapter on which", "A book on which", "cell `text-0-1` is not what"),
        ("np.arange(4) ** 2", "np.arange(4) ** 3", "cell `figure-9-1-1` is not what"),
        ("# ## 9.2 Bounds", "# ## 9.3 Bounds", "cell `text-9-3-1` is not what"),
    ],
)
def test_a_changed_source_makes_the_notebook_stale(built, old, new, said):
    edit(built, old, new)
    problem = build.stale(built)[0]
    assert problem.where == "chapters/09_tiny.ipynb"
    assert problem.what.startswith(said)
    assert problem.todo == "run `autograder build tiny`"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("# The caller catches IndexError.", "# The caller sees nothing.", "it does not say what"),
        ("wrong: clips", "wrong: clamps", "it does not say what solutions/tiny/answers.py says"),
        ("# %% 9.2 wrong: clips", "# %% 9.2 right: clips", "it does not say what"),
    ],
)
def test_another_word_on_a_wrong_answer_makes_the_bank_stale(built, old, new, said):
    edit(built, old, new, "answers.py")
    (problem,) = build.stale(Chapter(built.number, built.name))
    assert problem.where == "helpers/exercises/tiny.json"
    assert problem.what.startswith(said)
    assert problem.todo == "run `autograder build tiny`"


def test_another_title_of_a_section_makes_the_links_stale(built):
    edit(built, "# ## 9.2 Bounds", "# ## 9.2 Limits")
    assert built.public_sections.name in str(build.stale(built)[-1])


def test_another_solution_makes_nothing_stale(built):
    edit(built, "max(int(mask.sum()), 1)", "int(mask.sum()) or 1")
    assert build.stale(built) == []


def test_what_a_reader_of_the_repository_did_to_a_built_notebook_is_stale(built):
    notebook = committed(built)
    del notebook.cells[3]
    nbformat.write(notebook, built.notebook)
    assert "`given-total`" in str(build.stale(built)[0])


def test_files_that_were_never_built_are_stale(tiny):
    assert [problem.what for problem in build.stale(tiny)] == ["there is no such file"] * 3


# --- the commands --------------------------------------------------------------------------------


def test_the_command_builds_and_checks(tiny):
    assert CliRunner().invoke(app, ["build", "--check"]).exit_code == 1
    result = CliRunner().invoke(app, ["build", "tiny"])
    assert result.exit_code == 0, result.output
    assert "09_tiny.ipynb" in result.output
    result = CliRunner().invoke(app, ["build", "09", "--check"])
    assert (result.exit_code, result.output) == (0, "")


def test_an_unknown_chapter_is_one_line_and_code_2(tiny):
    result = CliRunner().invoke(app, ["build", "nope"])
    assert result.exit_code == 2
    assert result.output == "there is no chapter 'nope'; there are 09_tiny\n"


def test_a_course_folder_that_can_t_be_written_is_one_line_and_code_2(tiny, tmp_path):
    (tmp_path / "file").write_text("")
    result = CliRunner().invoke(app, ["course", str(tmp_path / "file" / "course")])
    assert result.exit_code == 2
    assert result.output.startswith("can't write ") and result.output.count("\n") == 1


def test_a_course_folder_keeps_the_instructor_s_settings(tiny, tmp_path):
    folder = tmp_path / "course"
    assert CliRunner().invoke(app, ["course", str(folder), "--no-engine"]).exit_code == 0
    settings = folder / "nbgrader_config.py"
    assert "ENGINE = False" in settings.read_text()
    settings.write_text("# mine\n" + settings.read_text())
    assert CliRunner().invoke(app, ["course", str(folder)]).exit_code == 0
    assert settings.read_text().startswith("# mine\n")
    assert (folder / "gradebook.db").exists()
