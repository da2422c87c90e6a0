"""The page of a benchmark in a real browser: it draws, loads nothing, fits a narrow screen, and axe finds nothing serious."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, sync_playwright

from stitchcuda.bench.page import bench_page
from tests.bench.example_runs import example_tables

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
Scheme = Literal["light", "dark"]

pytestmark = [
    pytest.mark.more,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium was not found on the PATH: a benchmark's page is not looked at"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield started
        started.close()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("page") / "bench.html"
    place.write_bytes(bench_page(example_tables(), ("exact", "narrow")))
    return place


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figures_are_drawn_nothing_is_loaded_and_axe_is_content(scheme: Scheme, browser: Browser, page: Path) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, color_scheme=scheme)
    tab = context.new_page()
    asked: list[str] = []
    said: list[str] = []
    tab.on("request", lambda request: asked.append(request.url))
    tab.on("console", lambda message: said.append(message.text))
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.goto(page.as_uri())
    assert (asked, said) == ([page.as_uri()], [])
    for drawing in tab.locator("svg.curve").all():
        box = drawing.bounding_box()
        assert box is not None
        assert box["height"] > 150
        strokes = drawing.locator("polyline").evaluate_all(
            "lines => lines.map(line => [getComputedStyle(line).stroke, line.getTotalLength()])"
        )
        assert len(strokes) == len({colour for colour, _ in strokes}) == 6, "each baseline has a colour of its own"
        assert all(colour.startswith("rgb(") and length > 200 for colour, length in strokes)
    assert tab.locator("svg.curve").count() == 2
    found = Axe().run(tab).response["violations"]
    grave = [violation for violation in found if violation["impact"] in ("serious", "critical")]
    assert {violation["id"]: [node["html"][:200] for node in violation["nodes"][:3]] for violation in grave} == {}
    context.close()


def test_a_narrow_screen_needs_no_sideways_scrolling_and_paper_is_light(browser: Browser, page: Path) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 800}, color_scheme="dark")
    tab = context.new_page()
    tab.goto(page.as_uri())
    assert tab.evaluate("document.documentElement.scrollWidth") <= 360
    tab.emulate_media(media="print")
    assert tab.evaluate("getComputedStyle(document.body).color") == "rgb(23, 33, 29)"
    assert len(tab.pdf(format="A4", landscape=True)) > 10_000
    context.close()
