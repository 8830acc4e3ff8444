"""The lint: each rule finds a planted fault and says where, and the chapters have none."""

import base64
import io
from pathlib import Path

import nbformat
import numpy as np
import pytest
from matplotlib.image import imsave
from nbformat.v4 import new_code_cell, new_notebook, new_output

from autograder import build, course
from autograder.lint import figures_are_whole, lint
from autograder.numbers import EXCEPTIONS, evidence_of, numbers_in
from autograder.source import Cell


@pytest.mark.parametrize("chapter", course.chapters(), ids=lambda chapter: chapter.slug)
def test_a_chapter_is_clean(chapter):
    problems = lint(chapter)
    assert not problems, "\n".join(str(problem) for problem in problems)


def test_the_made_up_chapter_is_clean(tiny):
    assert lint(tiny) == []


# --- the source ----------------------------------------------------------------------------------


CLAIM = '# %% tags=["claim"]\nassert total([1, 2, 6]) / 3 == 3\n'
FIGURE = 'ax.set(title="Squares grow faster than numbers", xlabel="number", ylabel="square")'
FAULTS = {
    "a cell without a role": ('# %% tags=["setup"]', "# %%", ":6: the cell has no role"),
    "a cell with two roles": (
        '# %% tags=["setup"]',
        '# %% tags=["setup", "claim"]',
        ":6: the cell has `setup` and `claim`",
    ),
    "a tag that nobody knows": (
        '# %% tags=["claim", "nbval-ignore-output"]',
        '# %% tags=["claim", "nbval-ignore-outputs"]',
        "unknown tags ['nbval-ignore-outputs']",
    ),
    "a cell that is no Python": ("import numpy as np", "%matplotlib inline", ":8: invalid syntax"),
    "a claim that asserts nothing": (
        CLAIM,
        CLAIM.replace("assert ", ""),
        "a claim cell that asserts nothing",
    ),
    "a cell that is too long": (CLAIM, CLAIM + "x = 1\n" * 40, "42 lines in a cell, 30 at most"),
    "a figure without labels": (
        FIGURE,
        'ax.set_title("Squares grow")',
        "a figure without xlabel and ylabel",
    ),
    "a definition that nothing reaches": (
        "# quote: helpers.exercises.tiny.total\n",
        "# quote: helpers.exercises.tiny.total\ndef unused(x):\n    return total(x)\n",
        "no later assertion reaches `unused`",
    ),
    "a name that is an answer's": (
        CLAIM,
        '# %% tags=["claim"]\nat = total([1, 2, 6])\nassert at / 3 == 3\n',
        "binds `at`, which is the answer to 9.2: call it something else",
    ),
    "a quote of nothing": (
        "helpers.exercises.tiny.total",
        "helpers.exercises.tiny.totle",
        "can't quote helpers.exercises.tiny.totle",
    ),
    "a heading without a number": (
        "# ## 9.2 Bounds",
        "# ## Bounds",
        "the heading '## Bounds' has not the number that is next: write `## 9.2 Title`",
    ),
    "a heading that skips a number": ("# ## 9.2 Bounds", "# ## 9.3 Bounds", "write `## 9.2 Title`"),
    "a title of another chapter": ("# # 09 · Tiny", "# # 08 · Tiny", "write `# 09 · Title`"),
    "a reference to no section": ("as §9.1 did not", "as §9.5 did not", "§9.5 is no section"),
    "a mark without a meaning": ("A look-up says no", "A look-up says no 🚀", "the mark 🚀"),
    "a number without a claim": (
        "A look-up says no",
        "A look-up says no 17 times",
        ":52: no claim backs “17”",
    ),
    "a number in the opening that no section backs": (
        "# A chapter on which",
        "# A chapter of 17 exercises on which",
        ":4: no claim backs “17”",
    ),
    "a number whose claim is in another section": (
        "A look-up says no, as §9.1 did not.",
        "A look-up says\n# no to 3.",
        ":53: no claim backs “3”",
    ),
    "a number in words": (
        "A look-up says no",
        "A look-up says no exactly twelve\n# times",
        ":52: no claim backs “exactly twelve”",
    ),
    "a comparative that nothing orders": (
        "A look-up says no, as §9.1 did not.",
        "The fastest look-up says no.",
        ":52: no claim backs “fastest”",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(said, fault):
    old, new, what = FAULTS[fault]
    problems = said(old, new)
    assert any(what in problem for problem in problems), problems
    assert all(problem.startswith("solutions/tiny/chapter.py:") for problem in problems)


@pytest.mark.parametrize(
    "text",
    [
        "as §9.1 says, and chapter 05 and exercise 9.2 ask",
        "float32 has what `np.float64(2**53)` has not, and $2^{24}$ neither",
        "on JAX 0.10 to 0.12 and Python 3.11",
        "a 32-bit number, see [the table](https://example.org/2024/3)",
        "batch 9000, step 1, 2 and 3, in 2019 (jax#123), at half an hour, and 2D",
        "longer than 3, as §9.1 says, and no longer than that",
        "to 3, as in the section that it refers to",
    ],
)
def test_what_has_digits_and_claims_nothing_is_left_alone(said, text):
    assert said("A look-up says no", text) == []


@pytest.mark.parametrize(
    "assertion",
    [
        "assert_close(total([1]), 1.0)",
        "helpers.assert_equal(total([1]), 1.0)",
        'show_error(total, 3, expect=TypeError, contains="x")',
        "with CompileBudget(1):\n    total([1])",
        "with pytest.raises(TypeError):\n    total(3)",
        "for x in [1]:\n    assert total([x]) == x",
    ],
)
def test_each_way_to_assert_counts(said, assertion):
    assert said("assert total([1, 2, 6]) / 3 == 3", assertion) == []


@pytest.mark.parametrize(
    "code", ["show_error(total, 3)", "with CompileCounter() as c:\n    total([1])"]
)
def test_looking_is_not_asserting(said, code):
    problems = said("assert total([1, 2, 6]) / 3 == 3", code)
    assert any("asserts nothing" in problem for problem in problems)


def test_a_definition_is_reached_through_another_or_by_a_starter(said):
    quote = "# quote: helpers.exercises.tiny.total\n"
    bodies = {"outer": "inner(x)", "inner": "x", "used": "x"}
    own = [f"def {name}(x):\n    return {body}\n" for name, body in bodies.items()]
    unreached = "no later assertion reaches `{}`".format
    whats = [problem.split(": ")[1] for problem in said(quote, quote + "\n".join(own))]
    assert whats == [unreached("outer"), unreached("inner"), unreached("used")]
    whats = [problem.split(": ")[1] for problem in said(CLAIM, CLAIM + "assert outer(1) == 1\n")]
    assert whats == [unreached("used")]
    assert said("max(int(mask.sum()), 1)", "used(max(int(mask.sum()), 1))") == []


NUMBERS = {
    "about 8×, and 0.5 of it": [8, 0.5],
    "1,000 or 2.5 million": [1000, 2.5e6],
    "| 2000 rows | of 8 |": [2000, 8],
    "10⁻⁶, 2²⁴, 1.2e-3 and −7": [1e-6, 2**24, 1.2e-3, 7],
    "float32, 3D and v0.10.2": [],
    "exactly one copy, two copies, two ways": [1, 2],
    "twice, a quarter": [2, 4],
    "24 kilobytes": [24],
}


@pytest.mark.parametrize("text", NUMBERS)
def test_numbers_are_read_as_they_are_written(text):
    assert [number.values[0] for number in numbers_in(text)] == pytest.approx(NUMBERS[text])


BACKED = {
    "8.1": "assert ratio == 8.13",
    "1.875": "assert_close(mean, 5 * 3 / 8, rtol=1e-6)",
    "3 %": "assert share < 0.03",
    "0.14": "assert 0.13 < moved < 0.15",
    "a half": "assert small < large / 2",
    "12": "show_error(f, expect=ValueError, contains='got 12 rows')",
    "two programs": "with CompileBudget(2):\n    f()",
    "24 kilobytes": "assert size == 24_000",
}


@pytest.mark.parametrize("text", BACKED)
def test_a_number_is_backed_by_what_an_assertion_says(text):
    (number,) = numbers_in(text)
    claim = Cell("code", BACKED[text], Path(), 1, ("claim",))
    assert evidence_of(claim, "").backs(number, beside=False)
    other = Cell(
        "code", "assert f(99) == g(98)\nwith CompileBudget(97):\n    h()", Path(), 1, ("claim",)
    )
    assert not evidence_of(other, "").backs(number, beside=True)


def test_what_is_merely_written_backs_a_number_only_beside_it_and_output_in_its_section():
    (number,) = numbers_in("17")
    written = evidence_of(Cell("code", "f(17)", Path(), 1, ("given",)), "")
    assert written.backs(number, beside=True)
    assert not written.backs(number, beside=False)
    assert evidence_of(Cell("code", "f()", Path(), 1, ("claim",)), "17.0").backs(
        number, beside=False
    )
    solution = evidence_of(Cell("code", "assert f() == 17", Path(), 1, ("starter",)), "")
    assert not solution.backs(number, beside=True)


def test_an_assertion_that_orders_is_known_from_one_that_does_not():
    orders = ["assert a < b", "assert x == max(y)", "assert_faster(f, g, by=2)"]
    none = ["assert a == b", "fast = a < b", "assert_close(a, b, rtol=1e-6)"]
    for code in orders + none:
        claim = Cell("code", code, Path(), 1, ("claim",))
        assert evidence_of(claim, "").ordered is (code in orders), code


def test_an_exception_excuses_what_it_quotes_and_one_without_need_is_reported(said, tiny):
    listed = course.ROOT / EXCEPTIONS
    listed.write_text('[tiny]\n"says no 17 times" = "a joke"\n')
    assert said("A look-up says no", "A look-up says\n# no 17 times") == []
    assert said("no 17 times", "no 18 times and says no 17 times") == [
        "solutions/tiny/chapter.py:53: no claim backs “18”: assert it in a claim cell beside it, "
        "say it otherwise, or give the reason in solutions/unbacked.toml"
    ]
    assert said("no 18 times and says no 17 times", "no") == [
        "solutions/unbacked.toml: “says no 17 times” needs no exception: take it out"
    ]


# --- the built notebook --------------------------------------------------------------------------

OUTPUTS = {
    "an error": (new_output("error", ename="ValueError", evalue="", traceback=[]), "ends in Value"),
    "a warning": (
        new_output("stream", name="stderr", text="UserWarning: x"),
        "writes to stderr: 'UserWarning: x'",
    ),
    "an address": (
        new_output("execute_result", data={"text/plain": "<object at 0x7f0012345678>"}),
        "prints a memory address: '0x7f0012345678'",
    ),
    "a path": (
        new_output("stream", text=f"{course.ROOT}/helpers/nn.py"),
        "prints a path of one machine",
    ),
    "a time": (new_output("stream", text="took 3.5 ms"), "prints the time '3.5 ms'"),
    "a picture": (
        new_output("display_data", data={"image/png": "", "text/plain": "Figure"}),
        "a picture without a description",
    ),
}


def drawn(*, to_the_rim: bool) -> str:
    pixels = np.zeros((20, 30, 4))
    pixels[5:15, 5 : 30 if to_the_rim else 25] = 1.0
    file = io.BytesIO()
    imsave(file, pixels, format="png")
    return base64.b64encode(file.getvalue()).decode()


@pytest.mark.parametrize(
    ("to_the_rim", "said"), [(True, ["a picture that is cut off at its rim"]), (False, [])]
)
def test_a_picture_that_is_cut_off_is_found(tiny, to_the_rim, said):
    picture = new_output("display_data", data={"image/png": drawn(to_the_rim=to_the_rim)})
    notebook = new_notebook(cells=[new_code_cell("draw()", id="x", outputs=[picture])])
    assert [problem.what for problem in figures_are_whole(tiny.notebook, notebook)] == said


@pytest.mark.parametrize("kind", OUTPUTS)
def test_an_output_that_must_not_be_is_found(tiny, kind):
    output, what = OUTPUTS[kind]
    notebook = build.learner_notebook(tiny)
    notebook.cells[4].outputs = [output]
    tiny.notebook.parent.mkdir()
    nbformat.write(notebook, tiny.notebook)
    (problem,) = lint(tiny)
    assert problem.where == "chapters/09_tiny.ipynb: cell `claim-9-1-1`"
    assert problem.what.startswith(what)


def test_a_time_in_a_cell_with_the_tag_is_fine(tiny):
    notebook = build.learner_notebook(tiny)
    timed = next(cell for cell in notebook.cells if cell["id"] == "claim-9-1-2")
    timed.outputs = [OUTPUTS["a time"][0]]
    tiny.notebook.parent.mkdir()
    nbformat.write(notebook, tiny.notebook)
    assert lint(tiny) == []
