"""When a host may be asked for a page: what its robots.txt allows, and at most one request a second. It fetches nothing itself.

Where to look next: `rag/transfer.py`, which asks here before every request.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from urllib.parse import urlsplit
from urllib.robotparser import RobotFileParser

AGENT = "stitchcuda-docs"
GAP_S = 1.0                                # between two requests to a host
LONGEST_GAP_S = 30.0                       # that a robots.txt may ask for


class Failed(Exception):
    """A page was not fetched; the message is a sentence with its address and what to do. Any older copy is as it was."""


class Unreachable(Failed):
    """No page of a site can be fetched: no network, no such host, no trust."""

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where} cannot be reached ({why}): check the network, or set HTTPS_PROXY if there is a proxy")
        self.site = where


class Hosts:
    """What is known of the sites that were asked. `robots(url)` fetches a robots.txt: its status and text."""

    def __init__(self, robots: Callable[[str], tuple[int, str]], wait: Callable[[float], None]) -> None:
        self._robots = robots
        self._wait = wait
        self._rules: dict[str, RobotFileParser] = {}
        self._asked: dict[str, float] = {}

    def ask(self, url: str) -> None:
        """Returns when `url` may be asked for. Raises Failed if robots.txt forbids it, Unreachable if that cannot be had."""
        where = site(url)
        if where not in self._rules:
            self._pause(where, GAP_S)
            self._rules[where] = self._read(where)
        rules = self._rules[where]
        if not rules.can_fetch(AGENT, url):
            raise Failed(f"{url} is not for programs, says {where}/robots.txt: save it by hand into a listed folder")
        asked_for = rules.crawl_delay(AGENT)
        self._pause(where, min(max(float(asked_for or 0), GAP_S), LONGEST_GAP_S))

    def _read(self, where: str) -> RobotFileParser:
        status, text = self._robots(f"{where}/robots.txt")
        if status >= 500:
            raise Unreachable(where, f"its robots.txt is not to be had now, HTTP {status}")
        rules = RobotFileParser()
        # 401 and 403 forbid all, as urllib's own reader has it; any other refusal means that there are no rules.
        forbidden = status in {401, 403}
        rules.parse(["User-agent: *", "Disallow: /"] if forbidden else text.splitlines() if status == 200 else [])
        return rules

    def _pause(self, where: str, gap: float) -> None:
        now = time.monotonic()
        due = self._asked.get(where, now - gap) + gap
        if due > now:
            self._wait(due - now)
        self._asked[where] = max(due, now)


def site(url: str) -> str:
    """Scheme, host and port."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rsplit('@', 1)[-1].lower()}"
