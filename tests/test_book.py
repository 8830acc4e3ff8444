"""The book, built once: no warning, no link that leads nowhere, nothing that asks another host."""

import functools
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

import pytest
from chromium import barriers, keep_picture, needs_chromium, opened
from playwright.sync_api import Browser

from autograder import course
from autograder.course import ROOT

REPOSITORY = "https://github.com/somebody/practical-jax"
CHAPTER = "chapters/00_start_here.html"
PAGES = ["index.html", CHAPTER, "book/api/helpers.oracle.html"]

pytestmark = pytest.mark.slow


def sphinx(out: Path, repository: str) -> subprocess.CompletedProcess[str]:
    """The book's session, but for the folder that it writes to."""
    command = [sys.executable, "-m", "sphinx", "-c", "book", "-d", str(out / "doctrees")]
    command += ["--fail-on-warning", "--keep-going", "--quiet", ".", str(out / "html")]
    own = {"COURSE_REPOSITORY": repository, "JAX_PLATFORMS": "cpu"}
    return subprocess.run(
        command, cwd=ROOT, env=os.environ | own, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All of it, built once."""
    out = tmp_path_factory.mktemp("book")
    built = sphinx(out, REPOSITORY)
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
