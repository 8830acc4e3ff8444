"""The script for machines with an accelerator, on whatever this one has."""

import os
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

SCRIPT = Path(__file__).parent / "on_gpu.sh"


@pytest.mark.skipif(sys.platform == "win32", reason="a shell's script")
def test_it_prints_a_line_a_chapter_and_fails_where_an_assertion_does(tmp_path: Path) -> None:
    for name, claim in {"07_holds": "x == 2", "08_fails": "x == 3"}.items():
        cells = [new_code_cell("import jax.numpy as jnp\nx = jnp.ones(()) + 1"),
                 new_code_cell(f"assert {claim}")]  # fmt: skip
        nbformat.write(new_notebook(cells=cells), tmp_path / f"{name}.ipynb")
    paths = [str(tmp_path / f"{name}.ipynb") for name in ("07_holds", "08_fails", "09_missing")]
    env = os.environ | {"PYTHON": sys.executable}
    ran = subprocess.run([SCRIPT, *paths], env=env, capture_output=True, text=True, check=False)
    first, *lines = ran.stdout.splitlines()
    assert first.startswith("JAX ")
    assert [line.split()[:2] for line in lines] == [
        ["✅", "07_holds"],
        ["❌", "08_fails"],
        ["❌", "09_missing"],
    ]
    assert "2 passed" in lines[0] and "1 failed, 1 passed" in lines[1] and "09_missing" in lines[2]
    assert (ran.returncode, ran.stderr) == (1, "what failed: build/on_gpu/NAME.log\n")
