"""One page from the network into one file: politely, within limits, resumed where it was cut, and whole or not at all.

The standard library's urllib does it. It honours robots.txt, asks a host at most once a second, follows no link, and keeps the
older copy whatever goes wrong. Where to look next: `rag/download.py` (which pages), `rag/politeness.py`, `rag/copies.py`.
"""

from __future__ import annotations

import http.client
import os
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from email.message import Message
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urljoin, urlsplit

from stitchcuda.rag import copies
from stitchcuda.rag.politeness import AGENT, Failed, Hosts, Unreachable, site

LARGEST = 400_000_000                      # bytes of a file
TIMEOUT_S = 30.0                           # without a byte
LONGEST_S = 1_800.0                        # for one file
TRIES = 4                                  # without a byte gained
REDIRECTS = 5
PAUSE_S = 60.0                             # the longest that a host may have us wait
_PIECE = 1 << 16
_HEADERS = {"User-Agent": AGENT, "Accept-Encoding": "identity", "Accept": "text/html, application/pdf, text/*, */*;q=0.1"}
_MOVED = {301, 302, 303, 307, 308}
_PASSING = {408, 425, 429, 500, 502, 503, 504}
_SUFFIXES = {"text/html": ".html", "application/xhtml+xml": ".html", "application/pdf": ".pdf", "text/markdown": ".md",
             "text/x-rst": ".rst", "text/plain": ".txt", "application/octet-stream": "", "": ".html"}
_READ = (".html", ".htm", ".pdf", ".md", ".rst", ".txt")


class Got(NamedTuple):
    copy: copies.Copy
    fresh: bool                            # False: the copy that was here is the newest
    transferred: int                       # bytes


class _Cut(Exception):
    """The transfer ended early; another try may go on."""

    def __init__(self, why: str, pause: float | None = None) -> None:
        super().__init__(why)
        self.pause = pause


class Transfer:
    """Transfers into one folder; `wait` sleeps, in seconds, and `tell` is told of what takes long."""

    def __init__(self, into: Path, tell: Callable[[str], None], wait: Callable[[float], None] = time.sleep) -> None:
        self.into = into
        self._tell = tell
        self._wait = wait
        # Redirects are followed one by one here, so that each is checked.
        self._opener = urllib.request.build_opener(_NoRedirect)
        self._hosts = Hosts(self._robots, wait)

    def get(self, url: str) -> Got:
        """The newest copy of `url`. Raises Failed with a sentence, Unreachable if its host cannot be had at all."""
        stem = self.into / copies.name_of(url)
        copy = copies.known(stem, url)
        until = time.monotonic() + LONGEST_S
        transferred, tried = 0, 0
        while True:
            before = copies.size_of(copies.part_of(stem))
            try:
                got = self._try(url, stem, copy, until)
                return got._replace(transferred=transferred + got.transferred)
            except _Cut as cut:
                gained = max(copies.size_of(copies.part_of(stem)) - before, 0)
                transferred += gained
                tried = 1 if gained else tried + 1
                copy = copies.known(stem, url)
                if tried >= TRIES:
                    raise Failed(f"{url} was not fetched ({cut}): try again later") from cut
                pause = cut.pause if cut.pause is not None else 2.0 ** (tried - 1)
                if pause > PAUSE_S or time.monotonic() + pause > until:
                    raise Failed(f"{url} was not fetched ({cut}; it asks for {pause:.0f} s): try again later") from cut
                self._wait(pause)

    def _try(self, url: str, stem: Path, copy: copies.Copy, until: float) -> Got:
        at = url
        for _ in range(REDIRECTS + 1):
            self._hosts.ask(at)
            with self._opened(at, _conditions(stem, copy)) as reply:
                if reply.status in _MOVED:
                    at = _redirected(at, reply.headers.get("Location", ""))
                elif reply.status == 304 and copy.file:
                    return Got(copy, False, 0)
                elif reply.status == 416 and copy.part:
                    # The unfinished file is none of what the server has now.
                    copies.part_of(stem).unlink(missing_ok=True)
                    raise _Cut("its parts do not fit together")
                elif reply.status in {200, 206}:
                    return self._save(reply, url, at, stem, copy, until)
                else:
                    _refused(url, reply)
        raise Failed(f"{url} leads from redirect to redirect: correct its address in the list")

    def _save(self, reply: Any, url: str, final: str, stem: Path, copy: copies.Copy, until: float) -> Got:
        suffix = _suffix(reply.headers, final)
        if reply.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise Failed(f"{url} is sent compressed although it was asked for as it is: save it by hand into a listed folder")
        part = copies.part_of(stem)
        start = copies.size_of(part) if reply.status == 206 else 0
        if reply.status == 206 and not _continues(reply, start):
            part.unlink(missing_ok=True)
            raise _Cut("its parts do not fit together")
        total = _total(reply)
        if total is not None and total > LARGEST:
            raise Failed(f"{url} has {total / 1e6:.0f} MB, more than {LARGEST // 1_000_000}: take it out of the list")
        etag, modified = reply.headers.get("ETag", ""), reply.headers.get("Last-Modified", "")
        copies.remember(stem, copy.model_copy(update={"part": modified if not etag or etag.startswith("W/") else etag}))
        size = self._receive(reply, part, start, until, url)
        if total is not None and size != total:
            raise _Cut(f"it was cut after {size} of {total} bytes")
        if not size:
            raise Failed(f"{url} is empty: correct its address in the list")
        fresh = copies.Copy(url=url, final=final, file=stem.name + suffix, size=size, etag=etag, modified=modified)
        os.replace(part, self.into / fresh.file)
        copies.remember(stem, fresh)
        return Got(fresh, True, size - start)

    def _receive(self, reply: Any, part: Path, start: int, until: float, url: str) -> int:
        """Appends the reply's body to `part`; returns the size that it has now."""
        size, told = start, start
        with part.open("ab" if start else "wb") as file:
            while True:
                try:
                    piece = reply.read1(_PIECE)
                except (OSError, http.client.HTTPException) as error:
                    raise _Cut(_why(error)) from error
                if not piece:
                    return size
                size += file.write(piece)
                if size > LARGEST:
                    file.close()
                    part.unlink()
                    raise Failed(f"{url} does not end within {LARGEST // 1_000_000} MB: take it out of the list")
                if time.monotonic() > until:
                    raise Failed(f"{url} takes longer than {LONGEST_S / 60:.0f} minutes: run it again, it goes on from there")
                if size - told > 10_000_000:
                    told = size
                    self._tell(f"{url}: {size / 1e6:.0f} MB so far")

    def _opened(self, url: str, headers: dict[str, str]) -> Any:
        """A reply, whatever its status."""
        try:
            return self._opener.open(urllib.request.Request(url, headers=_HEADERS | headers), timeout=TIMEOUT_S)
        except urllib.error.HTTPError as error:
            return error
        except urllib.error.URLError as error:
            if isinstance(error.reason, ssl.SSLCertVerificationError):
                raise Unreachable(site(url), "its certificate is not trusted here") from error
            raise Unreachable(site(url), _why(error.reason)) from error
        except (ValueError, http.client.InvalidURL) as error:
            raise Failed(f"{url} cannot be asked for ({_why(error)}): correct its address in the list") from error
        except (OSError, http.client.HTTPException) as error:
            raise _Cut(_why(error)) from error

    def _robots(self, url: str) -> tuple[int, str]:
        """Status and text of a robots.txt; one that redirects for ever is none."""
        tried = redirects = 0
        while redirects <= REDIRECTS:
            try:
                with self._opened(url, {}) as reply:
                    if reply.status in _PASSING:
                        raise _Cut(f"robots.txt: HTTP {reply.status}")
                    if reply.status not in _MOVED:
                        return reply.status, reply.read(500_000).decode("utf-8", "replace")
                    url = _redirected(url, reply.headers.get("Location", ""))
                    redirects += 1
            except (_Cut, OSError, http.client.HTTPException) as error:
                tried += 1
                if tried >= TRIES:
                    raise Unreachable(site(url), _why(error)) from error
                self._wait(2.0 ** (tried - 1))
        return 404, ""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def _conditions(stem: Path, copy: copies.Copy) -> dict[str, str]:
    """Headers that ask for the rest of an unfinished file, or for one that is newer than the copy here."""
    unfinished = copies.size_of(copies.part_of(stem))
    if unfinished and copy.part:
        return {"Range": f"bytes={unfinished}-", "If-Range": copy.part}
    if not copy.file:
        return {}
    asked = {"If-None-Match": copy.etag, "If-Modified-Since": copy.modified}
    return {name: value for name, value in asked.items() if value}


def _redirected(at: str, location: str) -> str:
    there = urljoin(at, location).split("#", 1)[0]
    secure = urlsplit(there).scheme == "https" and bool(urlsplit(there).hostname)
    if not location or not (secure or site(there) == site(at)):
        raise Failed(f"{at} redirects to {there or 'nowhere'}, neither https nor the same site: correct it in the list")
    return there


def _refused(url: str, reply: Any) -> None:
    said = f"HTTP {reply.status} {' '.join(str(reply.reason or '').split())}".strip()[:80]
    if reply.status in _PASSING:
        raise _Cut(said, _retry_after(reply.headers.get("Retry-After", "")))
    raise Failed(f"{url} was not fetched ({said}): correct its address in the list, or take it out")


def _retry_after(value: str) -> float | None:
    """Seconds of a Retry-After, which is a number or a date; None without one."""
    value = value.strip()
    if value.isascii() and value.isdigit():
        return float(value[:9])
    try:
        return max(parsedate_to_datetime(value).timestamp() - time.time(), 0.0)
    except (ValueError, TypeError, OverflowError):
        return None


def _suffix(headers: Message, url: str) -> str:
    kind = headers.get("Content-Type", "").split(";")[0].strip().lower()
    own = os.path.splitext(urlsplit(url).path)[1].lower()
    if kind not in _SUFFIXES or (kind == "application/octet-stream" and own not in _READ):
        raise Failed(f"{url} is {kind}, which is no kind of document that is read: take it out of the list")
    return own if own in _READ and kind in {"", "text/plain", "application/octet-stream"} else _SUFFIXES[kind]


def _continues(reply: Any, start: int) -> bool:
    return str(reply.headers.get("Content-Range", "")).strip().startswith(f"bytes {start}-")


def _total(reply: Any) -> int | None:
    """Bytes that the whole file will have; None if the server does not say."""
    ranges = reply.headers.get("Content-Range", "") if reply.status == 206 else ""
    length = (ranges.rpartition("/")[2] if ranges else reply.headers.get("Content-Length", "")).strip()
    return int(length[:18]) if length.isascii() and length.isdigit() else None


def _why(error: object) -> str:
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(str(said).split())[:120].lower()
