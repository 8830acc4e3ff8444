"""The book, built once: no warning, no link that leads nowhere, nothing that asks another host."""

import functools
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal
from urllib.parse import unquote

import nbformat
import pytest
from chromium import barriers, keep_picture, needs_chromium, opened
from nbformat.v4 import new_code_cell, new_notebook
from playwright.sync_api import Browser

from autograder import course
from autograder.course import ROOT

REPOSITORY = "https://github.com/somebody/practical-jax"
CHAPTER = "chapters/00_start_here.html"
PAGES = ["index.html", CHAPTER, "book/api/helpers.oracle.html"]

pytestmark = pytest.mark.slow


def sphinx(out: Path, repository: str, *more: str) -> subprocess.CompletedProcess[str]:
    """The book's session, but for the folder that it writes to."""
    command = [sys.executable, "-m", "sphinx", "-c", "book", "-d", str(out / "doctrees")]
    command += ["--fail-on-warning", "--keep-going", "--quiet", *more, ".", str(out / "html")]
    own = {"COURSE_REPOSITORY": repository, "JAX_PLATFORMS": "cpu"}
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | own, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What sessions leave in build/measured: nbval's own report, and numbers like the bench's."""
    folder = tmp_path_factory.mktemp("results")
    (folder / "chapters").mkdir()
    code = [new_code_cell("1 + 1"), new_code_cell("assert False")]
    nbformat.write(new_notebook(cells=code), folder / "chapters" / "00_start.ipynb")
    run = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbval-lax"]
    run += ["--nbval-current-env", "-o", "junit_suite_name=Python 3.11, JAX 0.10.2", "chapters"]
    run += ["--rootdir", ".", "--junitxml=chapters-3.11.xml"]
    subprocess.run(run, cwd=folder, capture_output=True, check=False)
    cost = {"cpu_seconds": 1.25, "wall_seconds": 1.5, "peak_mb": 180.4}
    ways = {"autograder grade": cost, "nbgrader autograde": {**cost, "cpu_seconds": 25}}
    where = {"day": "2026-11-30", "processors": 2}
    bench = {**where, "chapter": "01_recompilation", "submissions": 5, "ways": ways}
    (folder / "bench.json").write_text(json.dumps(bench))
    each = {"students": 1000, "cpu_seconds": 1.3, "wall_seconds": 0.7, "busy": 0.934}
    (folder / "scale.json").write_text(
        json.dumps({**where, "classes": [{**each, "grader_mb": 190.2}]})
    )
    report = {"chapter": "01_recompilation", "part": "text", "mutants": 74, "equivalent": 4}
    (folder / "strength.json").write_text(json.dumps([{**report, "killed": 66, "share": 0.9429}]))
    return folder


@pytest.fixture(scope="module")
def book(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of it, built once."""
    out = tmp_path_factory.mktemp("book")
    built = sphinx(out, REPOSITORY, "-D", f"measured={results}")
    assert built.stderr == ""
    assert built.returncode == 0
    return out / "html"


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def links(html: str) -> list[str]:
    return [unescape(link) for link in re.findall(r"<a\b[^>]*?\bhref=[\"']([^\"']*)", html)]


def pages_of(book: Path) -> list[Path]:
    """The pages that somebody wrote: without the listings of source and Sphinx's own."""
    return [
        page
        for folder in (".", "chapters", "docs", "book/api")
        for page in book.glob(f"{folder}/*.html")
    ]


def test_it_holds_the_chapters_the_guides_and_every_module(book: Path) -> None:
    wanted = [f"chapters/{chapter.slug}" for chapter in course.chapters()]
    wanted += [f"docs/{guide.stem}" for guide in (ROOT / "docs").glob("*.md")]
    wanted += ["index", "SECURITY", "CONTRIBUTING", "book/reference"]
    for package in ("helpers", "autograder"):
        modules = [path.stem for path in (ROOT / package).glob("*.py")]
        hidden = {"__init__", "__main__", "nbgrader_config"}
        wanted += [f"book/api/{package}.{name}" for name in modules if name not in hidden]
    assert [name for name in wanted if not (book / f"{name}.html").is_file()] == []


def test_each_chapter_leads_to_its_notebook_to_colab_and_to_binder(book: Path) -> None:
    for chapter in course.chapters():
        found = links(text_of(book / "chapters" / f"{chapter.slug}.html"))
        path = f"chapters/{chapter.slug}.ipynb"
        assert f"../_sources/{path}" in found
        assert (book / "_sources" / path).read_bytes() == chapter.notebook.read_bytes()
        gh = REPOSITORY.removeprefix("https://github.com/")
        assert f"https://colab.research.google.com/github/{gh}/blob/main/{path}" in found
        assert f"https://mybinder.org/v2/gh/{gh}/main?urlpath=lab/tree/{path}" in found


def test_every_link_inside_leads_somewhere(book: Path) -> None:
    ids: dict[Path, set[str]] = {}
    dead = []
    for page in pages_of(book):
        for link in links(text_of(page)):
            if re.match(r"[a-z]+:", link):
                continue
            path, _, fragment = link.partition("#")
            target = (page.parent / unquote(path)).resolve() if path else page
            if target not in ids and target.is_file():
                named = (
                    re.findall(r"\bid=[\"']([^\"']*)", text_of(target))
                    if target.suffix == ".html"
                    else []
                )
                ids[target] = set(map(unescape, named))
            if target not in ids or (fragment and unquote(fragment) not in ids[target]):
                dead.append(f"{page.relative_to(book)}: {link}")
    assert dead == []


def test_no_page_loads_anything_from_elsewhere(book: Path) -> None:
    loads = r"<(?:script|img|iframe|source|link)\b[^>]*\b(?:src|href)=\"(?:https?:)?//[^\"]*"
    assert {
        page.name: found
        for page in book.rglob("*.html")
        if (found := re.findall(loads, text_of(page)))
    } == {}


def test_every_picture_says_what_it_shows(book: Path) -> None:
    silent = []
    for page in pages_of(book):
        for image in re.findall(r"<img\b[^>]*>", text_of(page)):
            alt = re.search(r"\balt=\"([^\"]*)\"", image)
            if "_static" not in image and (alt is None or len(alt[1]) < 20):
                silent.append(f"{page.name}: {image}")
    assert silent == []


def test_a_section_that_the_prose_names_is_a_link(book: Path) -> None:
    html = text_of(book / "chapters" / "01_recompilation.html")
    assert re.search(r'<a [^>]*href="#[^"]*"[^>]*>(?:<span[^>]*>)?§1\.4', html)
    assert 'id="1.4-Four-ways-to-see-it"' in html  # where a self-check's links lead


# --- the repository's address --------------------------------------------------------------------


def test_what_was_measured_stands_in_tables_and_a_figure(book: Path) -> None:
    html = text_of(book / "book/made/measured.html")
    rows = [re.findall(r"<p>(.*?)</p>", row) for row in re.findall(r"(?s)<tr.*?</tr>", html)]
    plain = [" ".join(re.sub(r"<.*?>", "", cell) for cell in row) for row in rows]
    assert any(re.fullmatch(r"00_start ❌ 1 of 2 cells, \d+ s", row) for row in plain), plain
    assert "nbgrader autograde 25.00 1.50 180 20.0" in plain
    assert "1000 1.30 0.70 93% 190" in plain
    assert "01_recompilation text 74 4 66 94.3%" in plain
    (picture,) = re.findall(r'<img alt="(Bars: [^"]*)"[^>]*src="([^"]*cost\.png)"', html)
    assert (book / "book/made" / picture[1]).resolve().exists()


def test_what_was_not_measured_is_named_with_its_command(tmp_path: Path) -> None:
    measure = "import pathlib, measured; here = pathlib.Path(); measured.page(here / 'no', here)"
    env = os.environ | {"PYTHONPATH": f"{ROOT / 'book'}{os.pathsep}{ROOT}"}
    subprocess.run([sys.executable, "-c", measure], cwd=tmp_path, env=env, check=True)
    said = (tmp_path / "measured.md").read_text()
    commands = ["chapters", "bench", "bench -- scale 10 100 1000", "strength"]
    assert re.findall(r"`uv run noxfile.py -s (.*?)`", said) == commands


def repository(**env: str) -> subprocess.CompletedProcess[str]:
    """What book/conf.py takes for it."""
    code = "import runpy; print(runpy.run_path('book/conf.py')['repository']())"
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=os.environ | env, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    "said", ["git@github.com:somebody/practical-jax.git", f"{REPOSITORY}/", REPOSITORY]
)
def test_the_repository_is_said_in_any_of_gits_ways(said: str) -> None:
    assert repository(COURSE_REPOSITORY=said).stdout.strip() == REPOSITORY


def test_another_address_is_refused_and_the_form_is_said(tmp_path: Path) -> None:
    elsewhere = "https://example.org/practical-jax"
    built = sphinx(tmp_path, elsewhere)
    assert built.returncode == 2
    assert f"COURSE_REPOSITORY={elsewhere}: write https://github.com/OWNER/NAME" in built.stderr


def test_without_one_nothing_leads_to_it() -> None:
    assert repository(COURSE_REPOSITORY="", GIT_DIR="nowhere").stdout.strip() == ""


# --- in a browser --------------------------------------------------------------------------------


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(book: Path) -> Iterator[str]:
    handler = functools.partial(Quiet, directory=str(book))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@needs_chromium
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
@pytest.mark.parametrize("path", PAGES)
def test_a_page_fits_the_screen_and_can_be_read_by_all(
    browser: Browser, site: str, path: str, width: int, scheme: Literal["light", "dark"]
) -> None:
    with opened(browser, f"{site}/{path}", width, scheme) as (page, _):
        assert page.locator("article h1").is_visible()
        assert page.locator("html").get_attribute("data-theme") == scheme
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        keep_picture(page, f"book_{Path(path).stem}_{width}_{scheme}")
        assert barriers(page) == []


@needs_chromium
def test_a_search_finds_the_chapter(browser: Browser, site: str) -> None:
    with opened(browser, f"{site}/search.html?q=recompilation") as (page, _):
        page.locator("#search-results a", has_text="01 · Recompilation").first.wait_for()
