"""The book's own part of Sphinx: notebooks as pages, formulas as MathML, docstrings, contents."""

import re
import shutil
from pathlib import Path
from typing import Any, NoReturn

import measured
import nbformat
from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging

from helpers.card import sections
from helpers.exercises import CHAPTERS

log = logging.getLogger(__name__)

FOLDED = {"setup", "figure"}
"""Roles of cells whose code a reader asks for: imports, drawing."""


def read(text: str) -> nbformat.NotebookNode:
    """A notebook as a page: folds, linked sections, described figures, no empty output."""
    notebook = nbformat.reads(text, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            cell.source = re.sub(r"§(\d+)\.\d+", _section_link, cell.source)
        elif cell.cell_type == "code":
            _prepare(cell)
    return notebook


def _prepare(cell: nbformat.NotebookNode) -> None:
    if FOLDED & set(cell.metadata.get("tags", [])):
        cell.metadata.tags.append("hide-input")
    cell.outputs = [output for output in cell.outputs if output.get("text", "…").strip()]
    for output in cell.outputs:
        if described := output.get("metadata", {}).get("image/png"):
            # "dark-light": reads on both, see helpers/plotting.py; others get a white ground
            image = {"alt": described["alt"], "classes": "dark-light"}
            cell.metadata["mystnb"] = {"image": image}


def _section_link(found: re.Match[str]) -> str:
    number = found[0][1:]
    name = CHAPTERS.get(int(found[1]))
    title = sections(name).get(number) if name else None
    if title is None:
        return found[0]
    target = anchor(f"{number} {title}".replace("`", ""))
    return f"[{found[0]}](<{int(found[1]):02d}_{name}.ipynb#{target}>)"


def anchor(title: str) -> str:
    """The id that JupyterLab gives a heading: the one that a self-check's links name."""
    return title.replace(" ", "-")


def _formula(translator: Any, node: nodes.math | nodes.math_block) -> NoReturn:
    """MathML, which browsers and screen readers know by themselves."""
    display = "block" if isinstance(node, nodes.math_block) else "inline"
    written = convert(node.astext(), display=display)
    if "\\" in written:
        log.warning("MathML lacks a command of this formula: %s", node.astext(), location=node)
    # where it is too wide it scrolls, which must work with the keys, too
    translator.body.append(written.replace('display="block"', 'display="block" tabindex="0"'))
    raise nodes.SkipNode


def _make_pages(app: Sphinx, config: Any) -> None:
    """Those that nobody writes. The page of a module that was renamed would stay: all goes first.

    autosummary writes `api`.
    """
    for folder in ("api", "made"):
        shutil.rmtree(Path(app.confdir, folder), ignore_errors=True)
    made = Path(app.confdir, "made")
    made.mkdir()
    measured.page(Path(config.measured), made)


def _only_backticks(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]
) -> None:
    """Docstrings have code in backticks, and no other markup: `|x|` and `*` are what they are."""
    text = re.sub(r"(`[^`]*`)|([*|])", lambda m: m[1] or f"\\{m[2]}", "\n".join(lines))
    lines[:] = text.split("\n")


def _add_contents(app: Sphinx, docname: str, source: list[str]) -> None:
    """GitHub would show a table of contents in the README as code; so it is kept beside it."""
    if docname == app.config.root_doc:
        source[0] += (Path(app.confdir) / "contents.txt").read_text(encoding="utf-8")


def _add_index(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        shutil.copy(Path(app.outdir, "README.html"), Path(app.outdir, "index.html"))


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.add_html_math_renderer("mathml", (_formula, None), (_formula, None))
    app.add_config_value("measured", "", "env", str)
    app.connect("config-inited", _make_pages)
    app.connect("autodoc-process-docstring", _only_backticks, priority=400)  # napoleon: 500
    app.connect("source-read", _add_contents)
    app.connect("build-finished", _add_index)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
