"""Sphinx's settings for the book, `uv run noxfile.py -s book`; the front page is the README.

Nothing is executed (the outputs are the committed ones, which `tests` compares), nothing is fetched
while it is built, and no page asks another host for anything.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

from sphinx.errors import ConfigError

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "book")]  # the modules that are described; the book's own


def repository() -> str:
    """`https://github.com/OWNER/NAME`, or "": then no page has links to GitHub, Colab and Binder.

    COURSE_REPOSITORY says it; without that it is where this checkout was cloned from.
    """
    said = os.environ.get("COURSE_REPOSITORY", "")
    git = ["git", "-C", str(ROOT), "remote", "get-url", "origin"]
    address = said or subprocess.run(git, capture_output=True, text=True).stdout
    found = re.fullmatch(
        r"(?:https://|git@)github\.com[/:]([\w.-]+/[\w.-]+?)(\.git)?/?", address.strip()
    )
    if said and not found:
        raise ConfigError(f"COURSE_REPOSITORY={said}: write https://github.com/OWNER/NAME")
    return f"https://github.com/{found[1]}" if found else ""


project = "Practical JAX"
author = "the authors of Practical JAX"
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "pages",
]
root_doc = "README"
include_patterns = ["README.md", "SECURITY.md", "CONTRIBUTING.md", "docs/*.md", "chapters/*.ipynb"]
include_patterns += ["book/**.md", "book/**.rst"]
exclude_patterns = [".*", "build", "book/templates"]
measured = str(ROOT / "build" / "measured")  # what tests and benches found: see measured.py
nitpicky = True
# a type that has no page here is no link: other projects' names would be a download
nitpick_ignore_regex = [("py:.*", ".*")]

# --- chapters and guides

nb_execution_mode = "off"
nb_custom_formats = {".ipynb": ["pages.read", {}, False]}
nb_mime_priority_overrides = [("html", "application/vnd.jupyter.widget-view+json", None)]
nb_code_prompt_show = "Show the code"
nb_code_prompt_hide = "Hide the code"
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
myst_heading_slug_func = "pages.anchor"
html_math_renderer = "mathml"

# --- the reference

templates_path = [str(ROOT / "book" / "templates")]
autodoc_default_options = {
    "members": True,
    "member-order": "bysource",
    "exclude-members": "better",  # of trainer.Best: its default, `min`, is taken for a method
}
autodoc_typehints_format = "short"
napoleon_use_rtype = False  # "Returns:" says what it is, not its type
python_use_unqualified_type_names = True
default_role = "literal"  # docstrings write code as Markdown does, in single backticks

# --- the looks

html_theme = "sphinx_book_theme"
html_title = project
html_static_path = ["static"]
html_css_files = ["book.css"]
html_js_files = ["book.js"]
html_favicon = "static/favicon.svg"
html_context = {"default_mode": "auto"}  # light or dark as the reader's system is
html_show_copyright = False
html_theme_options = {
    "collapse_navbar": True,
    "home_page_in_toc": True,
    "navbar_persistent": [],  # the search field stands in the sidebar
    "repository_url": repository(),
    "repository_branch": "main",
    "use_repository_button": bool(repository()),
    "use_source_button": bool(repository()),
    "launch_buttons": {
        "notebook_interface": "jupyterlab",
        "binderhub_url": "https://mybinder.org",
        "colab_url": "https://colab.research.google.com",
    }
    if repository()
    else {},
}
