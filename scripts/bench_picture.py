"""Takes docs/bench.png: the page of two made-up benchmark runs as Chromium shows it.

    python scripts/bench_picture.py [OUT.png]

Needs chromium on the PATH and the package's dev extra. The figures are examples (`tests/bench/example_runs.py`), not measured.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from playwright.sync_api import sync_playwright

from stitchcuda.bench.page import bench_page
from tests.bench.example_runs import example_tables


def main() -> None:
    out = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/bench.png")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit("no chromium on the PATH: install it first")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        page = Path(name) / "bench.html"
        page.write_bytes(bench_page(example_tables(), ("precision reference (example)", "precision tf32 (example)")))
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        tab = browser.new_page(viewport={"width": 1600, "height": 1000})
        tab.goto(page.as_uri())
        tab.screenshot(path=out, full_page=True)
        browser.close()
    print(f"{out}: {out.stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
