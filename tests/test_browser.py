"""What people see, in a real browser: a chapter in JupyterLab, formgrader, feedback pages."""

import csv
import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import platformdirs
import pytest
from chromium import PATIENCE, Heard, barriers, keep_picture, needs_chromium, opened
from nbgrader.api import Gradebook
from playwright.sync_api import Browser, Page, expect

from autograder import classroom, report
from autograder.assembly import dashed, reference_answers
from autograder.course import ROOT, chapter

CHAPTER = chapter("recompilation")
SUBMITTED = ROOT / "tests" / "sample_class" / "submitted"
STUDENTS = ["ada", "emil", "kim"]

pytestmark = [pytest.mark.slow, needs_chromium]


@contextmanager
def jupyterlab(folder: Path, home: Path) -> Iterator[str]:
    """JupyterLab in a folder, for somebody who has never used it; yields its address."""
    settings = home / "config" / "lab" / "user-settings" / "@jupyterlab" / "apputils-extension"
    settings.mkdir(parents=True)
    news = {"fetchNews": "false", "checkForUpdates": False}
    (settings / "notification.jupyterlab-settings").write_text(json.dumps(news))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "jupyter", "lab", "--no-browser", "--allow-root"]
    command += [f"--port={port}", "--ServerApp.port_retries=0", "--ip=127.0.0.1"]
    command += ["--IdentityProvider.token=", "--ServerApp.password="]
    command += ["--LabApp.expose_app_in_browser=True"]
    with running(command, folder, home) as server:
        yield _when_up(f"http://127.0.0.1:{port}", server, home / "server.log")


@contextmanager
def running(command: list[str], folder: Path, home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A server of Jupyter's with settings of its own; what it says is in <home>/server.log."""
    paths = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    own = {
        "HOME": str(home),
        "XDG_CACHE_HOME": str(platformdirs.user_cache_path()),  # how known mistakes behave
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "JUPYTER_DATA_DIR": str(home / "data"),
        "JUPYTER_RUNTIME_DIR": str(home / "run"),
        "COURSE_PROGRESS": str(home / "progress.json"),
        "PATH": os.pathsep.join(paths),
    }
    keyboard, terminal = pty.openpty()  # Jupyter handles Ctrl-C itself where there is a terminal
    with (home / "server.log").open("w") as log:
        server = subprocess.Popen(
            command,
            cwd=folder,
            env={**os.environ, **own},
            stdin=terminal,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            yield server
        finally:
            server.terminate()
            server.wait(30)
            os.close(terminal)
            os.close(keyboard)


def _when_up(address: str, server: subprocess.Popen[bytes], log: Path) -> str:
    for _ in range(600):
        assert server.poll() is None, log.read_text()[-2000:]
        try:
            urllib.request.urlopen(f"{address}/api", timeout=2).close()
            return address
        except OSError:
            time.sleep(0.2)
    raise AssertionError(log.read_text()[-2000:])


# --- a learner -----------------------------------------------------------------------------------

IDLE = """() => {
  const panel = window.jupyterapp.shell.currentWidget;
  return panel?.sessionContext?.session?.kernel?.status === 'idle';
}"""
ALL_RUN = """() => {
  const panel = window.jupyterapp.shell.currentWidget;
  const code = [...panel.content.model.cells].filter(cell => cell.type === 'code');
  return code.some(cell => cell.executionCount !== null)
    && code.every(cell => (cell.executionState ?? 'idle') === 'idle')
    && panel.sessionContext.session.kernel.status === 'idle';
}"""
WRITE_AND_RUN = """async ([id, source]) => {
  const { content, sessionContext } = window.jupyterapp.shell.currentWidget;
  const cells = content.widgets;
  for (const [at, text] of [[cells.findIndex(c => c.model.id === 'answer-' + id), source],
                            [cells.findIndex(c => c.model.id === 'check-' + id), null]]) {
    if (text !== null) cells[at].model.sharedModel.setSource(text);
    content.activeCellIndex = at;
    await window.jupyterapp.commands.execute('notebook:run-cell');
  }
}"""

CHANGE_THEME = """async theme => {
  await window.jupyterapp.commands.execute('apputils:change-theme', { theme });
  while (document.body.dataset.jpThemeName !== theme) await new Promise(requestAnimationFrame);
}"""
CARD = ".jp-Cell.jp-mod-active .jp-RenderedHTML"

VALIDATED = "() => /Success|failed/i.test(document.querySelector('.jp-Dialog')?.innerText)"


def test_a_learner_runs_a_chapter_answers_wrongly_is_told_why_and_answers_rightly(
    browser: Browser, tmp_path: Path
) -> None:
    folder = tmp_path / "course"
    shutil.copytree(ROOT / "chapters", folder / "chapters")
    (tmp_path / "home").mkdir()
    wrong = next(a for a in CHAPTER.answers if a.exercise == "1.3" and a.kind == "wrong")
    with (
        jupyterlab(folder, tmp_path / "home") as address,
        opened(browser, f"{address}/lab/tree/chapters/{CHAPTER.notebook.name}?reset") as (page, _),
    ):
        page.wait_for_selector("#jupyterlab-splash", state="detached")
        page.wait_for_function(IDLE)
        page.get_by_role("menuitem", name="Run", exact=True).first.click()
        page.get_by_text("Run All Cells", exact=True).first.click()
        page.wait_for_function(ALL_RUN)

        page.evaluate(WRITE_AND_RUN, [dashed("1.3"), wrong.source])
        card = page.locator(CARD)
        card.get_by_text("This looks like").wait_for()
        assert wrong.name in card.inner_text()
        card.get_by_text("a hint").first.click()
        assert "saw" in card.inner_text() and "❌" in card.inner_text()
        keep_picture(page, "card_wrong")
        for theme in ("JupyterLab Dark", "JupyterLab Light"):
            page.evaluate(CHANGE_THEME, theme)
            assert barriers(page, CARD) == [], theme
        link = card.get_by_role("link").first
        section = link.inner_text().removeprefix("§")
        link.click()
        heading = page.locator(".jp-MarkdownCell h2", has_text=section).first
        expect(heading).to_be_in_viewport(timeout=20_000)
        keep_picture(page, "after_link")

        page.evaluate(WRITE_AND_RUN, [dashed("1.3"), reference_answers(CHAPTER)["1.3"]])
        card.get_by_text("✅ Complete").wait_for()
        assert "❌" not in card.inner_text()
        keep_picture(page, "card_right")

        page.get_by_role("button", name=re.compile("Validate")).first.click()
        dialog = page.locator(".jp-Dialog")
        dialog.wait_for()
        page.wait_for_function(VALIDATED)
        assert "Success" in dialog.inner_text()


# --- an instructor -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graded class of three."""
    out = tmp_path_factory.mktemp("graded")
    paths = [str(SUBMITTED / student) for student in STUDENTS]
    command = [sys.executable, "-m", "autograder", "grade", *paths, "--out", str(out)]
    assert subprocess.run(command, cwd=ROOT, capture_output=True).returncode == 1  # kim
    return out


@dataclass
class Formgrader:
    """`autograder serve`, running. address: without the token."""

    address: str
    token: str
    process: subprocess.Popen[bytes]


@pytest.fixture(scope="module")
def formgrader(results: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Formgrader]:
    home = tmp_path_factory.mktemp("home")
    command = [sys.executable, "-m", "autograder", "serve", str(results)]
    command += ["--no-browser", "--allow-root"]
    with running(command, ROOT, home) as process:
        for _ in range(600):
            log = (home / "server.log").read_text()
            if found := re.search(r"(http://127\.0\.0\.1:\d+)/formgrader\?token=(\w{40,})", log):
                yield Formgrader(found[1], found[2], process)
                return
            assert process.poll() is None, log[-2000:]
            time.sleep(0.2)
        raise AssertionError(log[-2000:])


def in_formgrader(
    browser: Browser, formgrader: Formgrader
) -> AbstractContextManager[tuple[Page, Heard]]:
    """A page that came in by the address which the terminal shows."""
    return opened(browser, f"{formgrader.address}/formgrader?token={formgrader.token}")


@pytest.mark.parametrize("place", ["gradebook", "api/assignments"])
def test_nobody_without_the_token_sees_the_marks(formgrader: Formgrader, place: str) -> None:
    asked = urllib.request.urlopen(f"{formgrader.address}/formgrader/{place}", timeout=30)
    assert asked.url.startswith(f"{formgrader.address}/login?")


def test_formgrader_shows_the_class_and_its_marks(
    browser: Browser, results: Path, formgrader: Formgrader
) -> None:
    with in_formgrader(browser, formgrader) as (page, _):
        assignment = page.locator("tbody tr", has_text=CHAPTER.slug)
        expect(assignment.locator("td.num-submissions")).to_have_text(
            str(len(STUDENTS)), timeout=PATIENCE
        )
        keep_picture(page, "formgrader_assignments")
        page.goto(f"{formgrader.address}/formgrader/gradebook/{CHAPTER.slug}/{CHAPTER.slug}")
        page.get_by_text("Submission #").first.wait_for()
        shown = page.locator("table").inner_text()
        keep_picture(page, "formgrader")
    totals: Counter[str] = Counter()
    with (results / "marks.csv").open(newline="", encoding="utf-8") as stream:
        for row in csv.DictReader(stream):
            totals[row["student"]] += float(row["points"])
    most = sum(exercise.points for exercise in CHAPTER.exercises.values())
    found = re.findall(rf"#\d+\t([\d.]+) / {most}\t", shown)
    assert sorted(found) == sorted(f"{totals[student]:g}" for student in STUDENTS)  # without names


MATHJAX = """window.MathJax = {Hub: {Config() {}, Queue() {},
  Startup: {signal: {Interest(told) { told("End"); }}}}};"""
"""Formgrader loads MathJax from a CDN: this stands in for it, as nothing may be asked of others."""


def test_a_submission_shows_our_feedback_and_what_a_person_adds_stays(
    browser: Browser, results: Path, formgrader: Formgrader
) -> None:
    with in_formgrader(browser, formgrader) as (page, heard):
        page.goto(f"{formgrader.address}/formgrader/manage_students/emil/{CHAPTER.slug}")
        page.route("**/mathjax/**", lambda route: route.fulfill(body=MATHJAX))
        page.locator("tbody td a").first.click()
        check = page.locator("#check-1-1")
        comment = page.locator("#answer-1-1-comment")
        told = re.compile("“masks the numerator only”")
        expect(comment).to_have_attribute("placeholder", told, timeout=PATIENCE)
        assert page.get_by_text("◐ Partly right: 2 of 4 points").is_visible()
        with page.expect_response(re.compile("/api/comment/")):
            comment.fill("Nearly: see me.")
            comment.press("Tab")
        with page.expect_response(re.compile("/api/grade/")):
            check.fill("3")
            check.press("Tab")
        page.reload()
        expect(comment).to_have_value("Nearly: see me.", timeout=PATIENCE)
        expect(check).to_have_value("3")
        comment.scroll_into_view_if_needed()
        keep_picture(page, "formgrader_submission")
        heard.outside = [url for url in heard.outside if "/mathjax/" not in url]

    again = classroom.grade([SUBMITTED / student for student in STUDENTS], results)
    assert again.kept == len(STUDENTS)
    with Gradebook(f"sqlite:///{results}/gradebook.db") as book:
        at = CHAPTER.slug, CHAPTER.slug, "emil"
        assert book.find_comment("answer-1-1", *at).comment == "Nearly: see me."
        assert book.find_grade("check-1-1", *at).score == 3
        assert book.find_submission(CHAPTER.slug, "emil").score == 21


def test_formgraders_own_buttons_grade_again_and_write_feedback(
    browser: Browser, results: Path, formgrader: Formgrader
) -> None:
    with in_formgrader(browser, formgrader) as (page, _):
        page.goto(f"{formgrader.address}/formgrader/manage_submissions/{CHAPTER.slug}")
        row = page.locator("tbody tr", has_text="ada")
        for button, said in (("autograde", "autograded"), ("generate-feedback", "generated")):
            row.locator(f"td.{button} a").click()
            dialog = page.locator(".modal-dialog")
            expect(dialog.locator(".modal-title")).to_have_text("Success", timeout=PATIENCE)
            assert said in dialog.inner_text()
            dialog.get_by_role("button", name="OK").click()
            dialog.wait_for(state="detached")
        keep_picture(page, "formgrader_submissions")
    with Gradebook(f"sqlite:///{results}/gradebook.db") as book:
        assert book.find_submission(CHAPTER.slug, "ada").score == 22
    page_of_nbgrader = results / "feedback" / "ada" / CHAPTER.slug / f"{CHAPTER.slug}.html"
    assert "✓ Complete: 4 of 4 points" in page_of_nbgrader.read_text(encoding="utf-8")


def test_ctrl_c_ends_it(formgrader: Formgrader) -> None:
    formgrader.process.send_signal(signal.SIGINT)
    assert formgrader.process.wait(60) == 0


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
def test_the_class_report_fits_the_screen_and_can_be_read_by_all(
    browser: Browser, results: Path, width: int, scheme: Literal["light", "dark"]
) -> None:
    path, _ = report.write(results)
    with opened(browser, path.as_uri(), width, scheme) as (page, _):
        assert page.get_by_role("img", name="distribution of marks").is_visible()
        page.get_by_text("Each submission").click()
        assert page.get_by_role("table", name="Wall-clock").is_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert barriers(page) == []
        keep_picture(page, f"report_{width}")
        page.get_by_role("link", name="kim").first.click()
        assert page.get_by_text("Feedback for kim").is_visible()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (400, "dark")])
@pytest.mark.parametrize("student", STUDENTS)
def test_a_feedback_page_fits_the_screen_and_can_be_read_by_all(
    browser: Browser, results: Path, student: str, width: int, scheme: Literal["light", "dark"]
) -> None:
    (path,) = (results / "feedback" / student).glob("*.html")
    with opened(browser, path.as_uri(), width, scheme) as (page, _):
        assert page.locator("h1").is_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert barriers(page) == []
        keep_picture(page, f"feedback_{student}_{width}_{scheme}")
