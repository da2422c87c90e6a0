"""Takes docs/report.png: the report of a recorded session as Chromium shows it, light beside dark.

    python scripts/report_picture.py [OUT.png] [--recording tests/recordings/convnext_block.json.gz]

Needs chromium on the PATH and the package's dev extra. The session is replayed (`tests/replay.py`); the reference's whole
profile is not in the recording, so it is not asked for.
"""

from __future__ import annotations

import argparse
import base64
import os
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from playwright.sync_api import Page, sync_playwright

from stitchcuda.report.page import session_page
from stitchcuda.report.report_facts import findings_of
from stitchcuda.sessions.session import Session
from stitchcuda.state import ProfileResult
from stitchcuda.store import Workspace
from stitchcuda.tools.profile.system_profile import SystemProfile
from tests.replay import RecordedHands, Recording, engineers

WIDE, TALL = 1180, 1560
BESIDE = """<body style="margin:0;display:flex;background:#fff"><img src="data:image/png;base64,{light}" width="{wide}">
<img src="data:image/png;base64,{dark}" width="{wide}"></body>"""


class WithoutReference(RecordedHands):
    """Has of the reference's profile what is recorded: its words."""

    def profile_system(self, program: Path | None) -> tuple[ProfileResult, SystemProfile | None]:
        result, whole = super().profile_system(program)
        return (result if program else result.model_copy(update={"digest": None})), whole


def replayed(recording: Recording, folder: Path) -> Session:
    home = Workspace(folder)
    record = recording.reopened(home)
    crew, _ = engineers(recording, home, record.name, record.settings)
    return Session(home, record).run(engineer=crew, tools=WithoutReference(recording))


def drawn(page: Page) -> None:
    """Waits until the figures are there."""
    while not page.evaluate("document.documentElement.dataset.drawn || ''"):
        page.wait_for_timeout(100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?", default=Path("docs/report.png"))
    parser.add_argument("--recording", type=Path, default=Path("tests/recordings/convnext_block.json.gz"))
    options = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("no chromium on the PATH: install it first")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        report = Path(name) / "report.html"
        report.write_bytes(session_page(findings_of(replayed(Recording(options.recording), Path(name) / "workspace"))))
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        page = browser.new_page(viewport={"width": WIDE, "height": TALL}, reduced_motion="reduce")
        page.goto(report.as_uri())
        drawn(page)
        page.locator("#next").evaluate("element => element.remove()")  # commands with this machine's folders in them
        shots = {}
        for scheme, place in (("light", 0), ("dark", 1)):
            if place:
                page.locator("#theme").click()
                page.wait_for_timeout(1500)
                page.locator("#figure-savings").evaluate("element => scrollTo(0, element.offsetTop - 80)")
            page.mouse.move(5, 5)
            page.wait_for_timeout(300)
            shots[scheme] = base64.b64encode(page.screenshot()).decode()
        both = browser.new_page(viewport={"width": WIDE, "height": TALL // 2}, device_scale_factor=1.5)
        both.set_content(BESIDE.format(wide=WIDE // 2, **shots))
        both.wait_for_timeout(500)
        both.screenshot(path=options.out)
        browser.close()
    print(f"{options.out}: {options.out.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
