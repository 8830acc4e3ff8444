"""Scripts that notebooks were exported to are cut into code cells again."""

import pytest

from autograder.scripts import Piece, is_script, pieces

PERCENT = """# ---
# jupyter:
# ---

# %% [markdown]
# Text
# %% tags=["starter"] nbgrader={"grade_id": "answer-9-1", "grade": false}
# %%time
x = 1  # %% of it
# %% a title
y = 2
"""
LIGHT = """# # Title
#
# Text

# + tags=["setup"]
x = 1
# + b is a comment
# -

# Text

y = 2
"""
NBCONVERT = """#!/usr/bin/env python
# coding: utf-8

# # Title

# In[3]:


x = 1


# In[ ]:


y = 2
"""


def code(text: str) -> list[str]:
    return [piece.source.strip() for piece in pieces(text)]


@pytest.mark.parametrize(
    ("text", "cells"),
    [
        (PERCENT, ["# %%time\nx = 1  # %% of it", "y = 2"]),
        (PERCENT.replace("# %%", "#%%"), ["#%%time\nx = 1  #%% of it", "y = 2"]),
        (LIGHT, ["x = 1\n# + b is a comment", "# Text\n\ny = 2"]),
        (NBCONVERT, ["x = 1", "y = 2"]),
        ("x = 1\n\ny = 2\n", ["x = 1\n\ny = 2"]),
        ("# only\n# text\n", []),
    ],
)
def test_cells_are_found(text: str, cells: list[str]) -> None:
    assert code(text) == cells


def test_labels_of_nbgrader_are_kept() -> None:
    assert [piece.labels for piece in pieces(PERCENT)] == [("answer-9-1",), ()]
    assert next(iter(pieces("x = 1"))) == Piece("x = 1", ())


@pytest.mark.parametrize(
    ("call", "line"),
    [
        ("get_ipython().run_line_magic('matplotlib', 'inline')", "%matplotlib inline"),
        ("get_ipython().run_cell_magic('time', '', 'x = 1\\ny = 2')", "%%time\nx = 1\ny = 2"),
        ("get_ipython().system('pip install jax')", "!pip install jax"),
        ("files = get_ipython().getoutput('ls')", "files = !ls"),
        ("get_ipython().run_line_magic('time', f'{x}')", ""),
        ("get_ipython().ask(1)", ""),
        ("get_ipython().system('ls'", ""),
        ("f(get_ipython())", ""),
    ],
)
def test_what_nbconvert_made_of_ipython_s_own_lines_is_undone(call: str, line: str) -> None:
    assert code(f"a = 1\n{call}\nb = 2") == [f"a = 1\n{line or call}\nb = 2"]


def test_what_defines_something_is_a_script() -> None:
    assert is_script("import jax\n\n\ndef f(x):\n    return x")
    assert not is_script("I define nothing, class.\n  def f(x): pass")
