"""Chromium for tests of what people see: a page, what it complains of, whether all can read it."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), ""
)
QUIET = "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking"
QUIET += " --disable-component-update --disable-sync"
PATIENCE = 90_000
"""Milliseconds; a chapter runs in a quarter of a minute where nothing else does."""

needs_chromium = pytest.mark.skipif(not CHROMIUM, reason="no Chromium here: apt install chromium")


@contextmanager
def launched() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET.split())
        yield browser
        browser.close()


@dataclass
class Heard:
    """What a page complained of, and whom it asked besides its own server."""

    errors: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)


@contextmanager
def opened(
    browser: Browser, url: str, width: int = 1280, scheme: Literal["light", "dark"] = "light"
) -> Iterator[tuple[Page, Heard]]:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.set_default_timeout(PATIENCE)
    heard = Heard()
    own = re.compile(r"(http|ws)://127\.0\.0\.1|data:|blob:|file:|about:")
    page.on("console", lambda said: heard.errors.append(said.text) if said.type == "error" else 0)
    page.on("pageerror", lambda error: heard.errors.append(str(error)))
    page.on("request", lambda asked: own.match(asked.url) or heard.outside.append(asked.url))
    page.goto(url)
    yield page, heard
    page.close()
    assert heard == Heard()


def barriers(page: Page, within: str | None = None) -> list[str]:
    """What axe-core calls a serious or critical barrier on a page, or in one part of it."""
    options = {"resultTypes": ["violations"], "preload": False}  # it would load imports of styles
    found = Axe().run(page, context=within, options=options).response["violations"]
    return [
        f"{rule['id']}: {node['target']} {node['failureSummary']}"
        for rule in found
        if rule["impact"] in ("serious", "critical")
        for node in rule["nodes"]
    ]


def keep_picture(page: Page, name: str) -> None:
    """For people, where COURSE_PICTURES names a folder."""
    if folder := os.environ.get("COURSE_PICTURES"):
        page.screenshot(path=Path(folder) / f"{name}.png")
