"""The report in a real browser: it draws, loads nothing, is read by keyboard, in light and dark; hostile text never runs."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, expect, sync_playwright
from playwright.sync_api import Page as Tab

from stitchcuda.report.page import comparison_page, session_page
from stitchcuda.report.report_facts import findings_of
from stitchcuda.sessions.session import Session
from stitchcuda.store import Workspace
from tests.graph.tiny import ScriptedEngineer, TinyHands, tiny_session
from tests.replay import RecordedHands, Recording, engineers
from tests.report.hostile import hostile_session
from tests.sessions.test_session import THREE

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
RECORDED = Path(__file__).parent.parent / "recordings" / "convnext_block.json.gz"
PAGES = ("recorded", "simulated", "hostile", "comparison")
Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
OWN = "chromium was not found on the PATH: the report's page is not looked at in a browser"

pytestmark = [pytest.mark.more, pytest.mark.skipif(CHROMIUM is None, reason=OWN)]

COLOURS = """async (data) => {
  const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
  const image = await createImageBitmap(new Blob([bytes], { type: "image/png" }));
  const canvas = new OffscreenCanvas(image.width, image.height);
  const context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const pixels = new Uint32Array(context.getImageData(0, 0, image.width, image.height).data.buffer);
  const counts = new Map();
  for (const pixel of pixels) counts.set(pixel, (counts.get(pixel) || 0) + 1);
  return [...counts.values()].map((count) => count / pixels.length).sort((a, b) => b - a);
}"""

INK = "rgb(23, 33, 29)"                    # of text, in light colours
LOOKS = """() => {
  const all = (what, from = document) => [...from.querySelectorAll(what)];
  const open = (one) => all("pre", one).filter((pre) => pre.checkVisibility()).length;
  return {
    inks: [...new Set([document.body, ...all(".drawing .xtick text, .drawing .legendtext")].map((one) => {
      const style = getComputedStyle(one);
      return one === document.body ? style.color : style.fill;
    }))],
    widths: all(".drawing .main-svg").map((one) => one.clientWidth),
    tables: all(".figures table").filter((one) => one.checkVisibility()).length,
    diffs: Object.fromEntries(all("details.attempt").map((one) => [one.id, open(one)]).filter(([, count]) => count)),
  };
}"""
NAMED = """(which) => {
  const place = document.querySelector(which);
  const names = [...place.querySelectorAll(".annotation-text")];
  const bars = [...place.querySelectorAll(".bars .point path")].map((one) => one.getBoundingClientRect());
  const struck = names.filter((name) => {
    const box = name.getBoundingClientRect();
    return bars.some((bar) => bar.top < box.bottom - 3 && bar.bottom > box.top + 3);
  });
  return [place._fullLayout._size.w / place.clientWidth, names.length, struck.map((one) => one.textContent)];
}"""


@dataclass
class Seen:
    """A page that is open, and what it has said and asked for."""

    tab: Tab
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def drawn(self, *, until: str = "") -> str:
        """How the figures are drawn, once they are, or are as `until` says; playwright's own waiting is against the policy."""
        for _ in range(600):
            found = str(self.tab.evaluate("document.documentElement.dataset.drawn || ''"))
            if found and until in ("", found):
                return found
            self.tab.wait_for_timeout(100)
        return ""

    @property
    def focused(self) -> str:
        """What the keyboard is on, by its words."""
        return str(self.tab.evaluate("document.activeElement.innerText"))


Opened = Callable[..., Seen]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield started
        started.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One page of each kind."""
    folder = tmp_path_factory.mktemp("pages")
    for name in PAGES:
        (folder / name).mkdir()
    recording, home = Recording(RECORDED), Workspace(folder / "recorded")
    record = recording.reopened(home)
    crew, _ = engineers(recording, home, record.name, record.settings)
    recorded = Session(home, record).run(engineer=crew, tools=RecordedHands(recording))
    simulated = tiny_session(folder / "simulated").run(engineer=ScriptedEngineer(THREE), tools=TinyHands())
    hostile = findings_of(hostile_session(folder / "hostile"))
    made = {
        "recorded": session_page(findings_of(recorded)),
        "simulated": session_page(findings_of(simulated)),
        "hostile": session_page(hostile),
        "comparison": comparison_page(findings_of(recorded), hostile, home.store),
    }
    for name, data in made.items():
        (folder / f"{name}.html").write_bytes(data)
    return {name: folder / f"{name}.html" for name in made}


@pytest.fixture
def opened(browser: Browser, pages: dict[str, Path]) -> Iterator[Opened]:
    """Opens a page of a kind."""
    contexts = []

    def open_(
        name: str, scheme: Scheme = "light", *, width: int = 1280, before: str = "", at: str = "", scripts: bool = True
    ) -> Seen:
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce", java_script_enabled=scripts
        )
        contexts.append(context)
        tab = context.new_page()
        seen = Seen(tab)
        tab.on("console", lambda message: seen.said.append(message.text))
        tab.on("pageerror", lambda error: seen.said.append(str(error)))
        tab.on("request", lambda request: seen.asked.append(request.url))
        if before:
            tab.add_init_script(before)
        tab.goto(pages[name].as_uri() + at)
        return seen

    yield open_
    for context in contexts:
        context.close()


def colours(seen: Seen, place: Locator) -> list[float]:
    """Shares of the colours of an element's pixels, the most frequent first."""
    image = base64.b64encode(place.screenshot()).decode()
    blank = seen.tab.context.new_page()
    found: list[float] = blank.evaluate(COLOURS, image)
    blank.close()
    return found


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", PAGES)
def test_every_figure_is_drawn_and_nothing_is_said_or_loaded(name: str, scheme: Scheme, opened: Opened) -> None:
    seen = opened(name, scheme)
    assert seen.drawn() == scheme
    drawings = seen.tab.locator(".drawing").all()
    assert len(drawings) == {"recorded": 6, "simulated": 3, "hostile": 6, "comparison": 1}[name]
    for drawing in drawings:
        shares = colours(seen, drawing)
        assert len(shares) > 3
        assert sum(shares[1:]) > 0.01
    assert seen.said == []
    assert [url for url in seen.asked if not url.startswith("file:")] == []
    assert len(seen.asked) == 1
    assert seen.tab.evaluate("document.documentElement.dataset.ran") is None


def test_hostile_names_are_text_in_plots_and_below_the_mouse(opened: Opened) -> None:
    seen = opened("hostile")
    assert seen.drawn() == "light"
    assert "<script>" in str(seen.tab.locator("#figure-savings .drawing").text_content())
    bar = seen.tab.locator("#figure-timeline .drawing .bars .point path").first
    bar.scroll_into_view_if_needed()
    box = bar.bounding_box()
    assert box is not None
    seen.tab.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2, steps=3)
    seen.tab.wait_for_timeout(300)
    assert "<script>" in str(seen.tab.locator("#figure-timeline .hoverlayer").text_content())
    assert seen.tab.locator(".drawing a").count() == 0
    assert seen.tab.evaluate("document.documentElement.dataset.ran") is None
    assert len(seen.asked) == 1


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing_serious(name: str, scheme: Scheme, opened: Opened) -> None:
    seen = opened(name, scheme)
    assert seen.drawn() == scheme
    seen.tab.evaluate("for (const one of document.querySelectorAll('details:not(.file)')) one.open = true")
    seen.tab.evaluate("for (const one of [...document.querySelectorAll('details.file')].slice(0, 4)) one.open = true")  # alike
    found = Axe().run(seen.tab).response["violations"]
    grave = [one for one in found if one["impact"] in ("serious", "critical")]
    assert {one["id"]: [node["html"][:200] for node in one["nodes"][:3]] for one in grave} == {}


def test_links_lead_to_what_they_name_and_open_it(opened: Opened) -> None:
    seen = opened("recorded")
    assert seen.drawn() == "light"
    for link in seen.tab.locator("header nav a").all():
        link.click()
        target = seen.tab.locator(str(link.get_attribute("href")))
        box = target.bounding_box()
        assert box is not None
        assert box["y"] < 900
    seen.tab.locator("a.step").nth(3).click()
    attempt = seen.tab.locator("#attempt-4")
    expect(attempt).to_have_attribute("open", "")
    assert attempt.locator("pre.diff").count() > 0
    again = opened("recorded", at="#attempt-2")
    assert again.drawn() == "light"
    expect(again.tab.locator("#attempt-2")).to_have_attribute("open", "")


def test_a_link_that_was_followed_opens_its_attempt_again(opened: Opened) -> None:
    seen = opened("simulated")
    assert seen.drawn() == "light"
    link, attempt = seen.tab.locator("a.step").first, seen.tab.locator("#attempt-1")
    for hide in ("Close all", "wrong 2"):
        link.click()
        seen.tab.get_by_role("button", name=hide).click()
        link.click()
        expect(attempt).to_be_visible()
        expect(attempt).to_have_attribute("open", "")
        assert seen.tab.evaluate("document.activeElement.parentElement.id") == "attempt-1"
    seen.tab.get_by_role("button", name="Close all").click()
    link.press("Enter")
    expect(attempt).to_have_attribute("open", "")


def test_everything_can_be_done_by_keyboard(opened: Opened) -> None:
    seen = opened("recorded")
    assert seen.drawn() == "light"
    keys = seen.tab.keyboard
    keys.press("Tab")
    assert seen.focused == "Skip to the content"
    walked = []
    for _ in range(9):
        keys.press("Tab")
        walked.append(seen.focused)
    names = ["Summary", "Times", "Profile", "Path", "Tasks", "Attempts", "Citations", "Notes"]
    assert walked == [*names, "Dark colours"]
    keys.press("Enter")
    assert seen.drawn(until="dark")
    assert seen.tab.locator("#theme").get_attribute("aria-pressed") == "true"
    reached: set[str] = set()
    for _ in range(200):
        keys.press("Tab")
        place = str(seen.tab.evaluate("document.activeElement.closest('[id]')?.id + ' ' + document.activeElement.tagName"))
        if place == "figure-best SUMMARY" and place not in reached:
            keys.press("Enter")
            expect(seen.tab.locator("#figure-best details")).to_have_attribute("open", "")
        if place == "attempt-1 SUMMARY" and place not in reached:
            keys.press("Enter")
            expect(seen.tab.locator("#attempt-1")).to_have_attribute("open", "")
        reached.add(place)
        if place == "notes SUMMARY":
            break
    assert {"figure-best SUMMARY", "figure-best DIV", "path DIV", "path A", "attempts BUTTON", "attempt-1 SUMMARY"} <= reached
    assert "attempt-1 PRE" not in reached  # inside a file that is still closed
    assert "notes SUMMARY" in reached


def test_figures_follow_the_system_and_the_button(opened: Opened) -> None:
    seen = opened("simulated", "light")
    assert seen.drawn() == "light"
    light = seen.tab.locator("#figure-best .drawing").screenshot()
    seen.tab.emulate_media(color_scheme="dark")
    assert seen.drawn(until="dark")
    dark = seen.tab.locator("#figure-best .drawing").screenshot()
    assert dark != light
    seen.tab.locator("#theme").click()
    assert seen.drawn(until="light")
    seen.tab.locator("h1").hover()
    assert seen.tab.locator("#figure-best .drawing").screenshot() != dark
    assert seen.said == []


def test_attempts_are_filtered(opened: Opened) -> None:
    seen = opened("simulated")
    attempts = seen.tab.locator("details.attempt")
    seen.tab.get_by_role("button", name="wrong 2").click()
    expect(attempts.filter(visible=True)).to_have_count(2)
    assert [one.is_visible() for one in attempts.all()] == [False, False, False, True, True, False]
    seen.tab.get_by_role("button", name="Open all").click()
    expect(attempts.nth(3)).to_have_attribute("open", "")
    seen.tab.locator("a.step").first.click()  # a link to one that is filtered out shows it
    expect(attempts.first).to_be_visible()


@pytest.mark.parametrize("name", PAGES)
def test_a_narrow_screen_needs_no_sideways_scrolling(name: str, opened: Opened) -> None:
    seen = opened(name, width=360)
    assert seen.drawn() == "light"
    assert seen.tab.evaluate("document.documentElement.scrollWidth") <= 360


def test_on_a_phone_bars_have_the_room_and_names_stand_above_them(opened: Opened) -> None:
    seen = opened("recorded", width=390)
    assert seen.drawn() == "light"
    for name in ("timeline", "savings", "peaks", "shares"):
        share, names, struck = seen.tab.evaluate(NAMED, f"#figure-{name} .drawing")
        assert share > 0.8
        assert names > 1
        assert struck == []


@pytest.mark.parametrize(("scheme", "button"), [("light", False), ("dark", False), ("light", True)])
def test_paper_is_light_and_figures_fit_it(scheme: Scheme, button: bool, opened: Opened) -> None:
    seen = opened("recorded", scheme)
    assert seen.drawn() == scheme
    if button:
        seen.tab.locator("#theme").click()
        assert seen.drawn(until="dark")
    before = seen.tab.evaluate(LOOKS)
    seen.tab.emulate_media(media="print")
    assert seen.tab.evaluate("getComputedStyle(document.body).color") == INK
    seen.tab.emulate_media(media="screen")
    seen.tab.locator("#attempt-5 > summary").click()
    closed = seen.tab.locator("details:not([open])").count()
    seen.tab.evaluate(f"addEventListener('beforeprint', () => {{ window.printed = ({LOOKS})(); }})")  # after the page's own
    seen.tab.pdf(format="A4")
    printed = seen.tab.evaluate("window.printed")
    assert printed["inks"] == [INK]
    assert max(printed["widths"]) <= 661   # pixels between A4's margins
    assert printed["tables"] == 6
    assert printed["diffs"] == {"attempt-5": seen.tab.locator("#attempt-5 pre").count()}
    assert seen.drawn(until="dark" if button or scheme == "dark" else "light")
    for _ in range(100):
        after = seen.tab.evaluate(LOOKS)
        if after["widths"] == before["widths"]:
            break
        seen.tab.wait_for_timeout(50)
    assert (after["inks"], after["widths"]) == (before["inks"], before["widths"])
    assert seen.tab.locator("details:not([open])").count() == closed
    assert seen.tab.evaluate("document.documentElement.dataset.theme || ''") == ("dark" if button else "")
    assert seen.said == []


def test_without_javascript_a_sentence_says_what_to_do(opened: Opened) -> None:
    seen = opened("recorded", scripts=False)
    told = seen.tab.locator("main noscript p")  # which Playwright's search for text leaves out
    assert told.is_visible()
    assert told.inner_text().startswith("JavaScript is off, so no figure is drawn here: open the table")
    assert [one for one in seen.tab.locator(".drawing, button").all() if one.is_visible()] == []
    seen.tab.locator("#figure-best summary").click()
    assert seen.tab.locator("#figure-best table").is_visible()
    seen.tab.locator("#attempt-1 > summary").click()
    assert seen.tab.locator("#attempt-1 h4").first.is_visible()
    assert seen.said == []
    with_it = opened("recorded")
    assert with_it.drawn() == "light"
    assert "JavaScript is off" not in with_it.tab.locator("body").inner_text()


def test_without_the_means_to_draw_the_tables_are_shown(opened: Opened) -> None:
    seen = opened("simulated", before="delete window.DecompressionStream")
    assert seen.drawn() == "failed"
    assert "cannot draw the figure" in seen.tab.locator("#figure-best .drawing").inner_text()
    assert seen.tab.locator("#figure-best table").is_visible()
