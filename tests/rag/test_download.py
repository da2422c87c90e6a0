"""Downloads, from a real server on this machine: what changed and nothing else, whole files or none, and a sentence."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stitchcuda.errors import Unavailable
from stitchcuda.rag import download as downloading
from stitchcuda.rag import transfer
from stitchcuda.rag.copies import name_of
from stitchcuda.rag.download import Report
from stitchcuda.rag.listing import Page
from stitchcuda.rag.politeness import AGENT
from tests.rag.site import Asked, Site, page, status


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with Site() as site:
        yield site


def listed(site: Site, path: str = "/manual/index.html", **more: Any) -> Page:
    return Page(**({"name": "The Manual", "library": "tiles", "version": "2.1", "url": site.url + path} | more))


def run(into: Path, *pages: Page, waits: list[float] | None = None, events: list[str] | None = None) -> Report:
    said: list[str] = [] if events is None else events
    return downloading.download(pages, into, said.append, wait=(waits if waits is not None else []).append)


def index(into: Path) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = json.loads((into / "pages.json").read_text())
    return found


def test_a_page_is_fetched_with_what_citations_need(site: Site, tmp_path: Path) -> None:
    site.replies["/manual/index.html"] = [page("Tiles are small.")]
    report = run(tmp_path / "new" / "folder", listed(site))
    assert report.fetched == (f"{site.url}/manual/index.html",)
    assert report.failed == ()
    ((file, entry),) = index(tmp_path / "new" / "folder").items()
    assert b"Tiles are small." in (tmp_path / "new" / "folder" / file).read_bytes()
    assert file.endswith(".html")
    assert "manual_index" in file
    assert (entry["url"], entry["library"], entry["version"], entry["title"]) == (
        f"{site.url}/manual/index.html", "tiles", "2.1", "The Manual",
    )  # fmt: skip
    assert all(headers["User-Agent"] == AGENT for _, headers in site.asked)


def test_a_second_run_transfers_nothing(site: Site, tmp_path: Path) -> None:
    site.replies["/manual/index.html"] = [page("Tiles are small.", etag='"one"')]
    assert run(tmp_path, listed(site)).transferred > 0
    before = index(tmp_path)
    again = run(tmp_path, listed(site))
    assert (again.fetched, again.unchanged, again.transferred) == ((), (f"{site.url}/manual/index.html",), 0)
    assert index(tmp_path) == before


def test_a_date_serves_as_well_as_a_tag_and_a_lost_file_is_fetched_again(site: Site, tmp_path: Path) -> None:
    date = "Mon, 01 Jun 2026 10:00:00 GMT"

    def reply(asked: Asked) -> None:
        known = asked.headers.get("If-Modified-Since") == date
        asked.say(304 if known else 200, b"" if known else b"<p>Tiles.</p>", Last_Modified=date)

    site.replies["/manual/index.html"] = [reply]
    run(tmp_path, listed(site))
    assert run(tmp_path, listed(site)).unchanged
    (file,) = index(tmp_path)
    (tmp_path / file).unlink()
    assert run(tmp_path, listed(site)).fetched
    (tmp_path / file).write_text("cut")
    assert run(tmp_path, listed(site)).fetched


def test_a_changed_page_replaces_the_older_copy(site: Site, tmp_path: Path) -> None:
    site.replies["/manual/index.html"] = [page("Old.", etag='"one"'), page("New.", etag='"two"')]
    run(tmp_path, listed(site))
    assert run(tmp_path, listed(site)).fetched
    (file,) = index(tmp_path)
    assert b"New." in (tmp_path / file).read_bytes()


WHOLE = bytes(range(256)) * 400


def cut_at(count: int, etag: str = '"book"') -> Any:
    """The first `count` bytes of a book, and the connection is gone."""
    return lambda asked: asked.say(200, WHOLE[:count], "application/pdf", length=str(len(WHOLE)), ETag=etag)


def rest(asked: Asked) -> None:
    start = int(asked.headers["Range"].removeprefix("bytes=").removesuffix("-"))
    ranges = f"bytes {start}-{len(WHOLE) - 1}/{len(WHOLE)}"
    asked.say(206, WHOLE[start:], "application/pdf", Content_Range=ranges, ETag='"book"')


def test_a_cut_file_goes_on_where_it_was_cut(site: Site, tmp_path: Path) -> None:
    site.replies["/book.pdf"] = [cut_at(70_000), rest]
    report = run(tmp_path, listed(site, "/book.pdf"))
    (file,) = index(tmp_path)
    assert (tmp_path / file).read_bytes() == WHOLE
    assert file.endswith(".pdf")
    assert (report.transferred, report.failed) == (len(WHOLE), ())
    _, headers = site.asked[-1]
    assert (headers["Range"], headers["If-Range"]) == ("bytes=70000-", '"book"')


def test_what_a_run_left_unfinished_the_next_one_finishes(site: Site, tmp_path: Path) -> None:
    site.replies["/book.pdf"] = [cut_at(70_000), *[status(503)] * 4, rest]
    first = run(tmp_path, listed(site, "/book.pdf"))
    assert len(first.failed) == 1
    assert index(tmp_path) == {}
    second = run(tmp_path, listed(site, "/book.pdf"))
    assert second.transferred == len(WHOLE) - 70_000
    (file,) = index(tmp_path)
    assert (tmp_path / file).read_bytes() == WHOLE
    assert not list(tmp_path.glob("*.part"))


def test_a_file_that_changed_between_the_parts_is_fetched_whole(site: Site, tmp_path: Path) -> None:
    other = WHOLE[::-1]
    site.replies["/book.pdf"] = [cut_at(70_000), lambda asked: asked.say(200, other, "application/pdf", ETag='"second"')]
    run(tmp_path, listed(site, "/book.pdf"))
    (file,) = index(tmp_path)
    assert (tmp_path / file).read_bytes() == other


@pytest.mark.parametrize("odd", ["bytes 5-9/10", "", "nonsense"])
def test_parts_that_do_not_fit_are_thrown_away(odd: str, site: Site, tmp_path: Path) -> None:
    wrong = lambda asked: asked.say(206, b"xxxxx", "application/pdf", Content_Range=odd)  # noqa: E731
    whole = lambda asked: asked.say(200, WHOLE, "application/pdf")  # noqa: E731
    site.replies["/book.pdf"] = [cut_at(70_000), wrong, whole]
    run(tmp_path, listed(site, "/book.pdf"))
    (file,) = index(tmp_path)
    assert (tmp_path / file).read_bytes() == WHOLE


def test_what_robots_txt_forbids_is_not_asked_for(site: Site, tmp_path: Path) -> None:
    rules = f"User-agent: {AGENT}\nDisallow: /manual/\n"
    site.replies["/robots.txt"] = [page(rules, kind="text/plain")]
    site.replies["/manual/index.html"] = site.replies["/open.html"] = [page("Tiles.")]
    report = run(tmp_path, listed(site), listed(site, "/open.html"))
    assert report.fetched == (f"{site.url}/open.html",)
    assert "robots.txt" in report.failed[0]
    assert site.paths == ["/open.html"]


def test_a_host_is_asked_once_a_second_or_as_it_wishes(site: Site, tmp_path: Path) -> None:
    paths = [f"/{number}.html" for number in range(4)]
    site.replies |= {path: [page(path)] for path in paths}
    waits: list[float] = []
    run(tmp_path, *(listed(site, path) for path in paths), waits=waits)
    assert len(waits) == len(paths)
    assert sum(waits) > len(paths) - 1
    site.replies["/robots.txt"] = [page("User-agent: *\nCrawl-delay: 7\n", kind="text/plain")]
    waits.clear()
    run(tmp_path, *(listed(site, path) for path in paths), waits=waits)
    assert max(waits) > 6


def test_a_busy_server_is_asked_again_when_it_says(site: Site, tmp_path: Path) -> None:
    site.replies["/manual/index.html"] = [status(429, Retry_After="17"), status(500), page("Tiles.")]
    waits: list[float] = []
    assert run(tmp_path, listed(site), waits=waits).fetched
    assert 17.0 in waits


@pytest.mark.parametrize(("code", "headers", "words"), [
    (500, {}, "HTTP 500"),
    (429, {"Retry_After": "86400"}, "asks for 86400 s"),
    (503, {"Retry_After": "Wed, 21 Oct 2099 07:28:00 GMT"}, "try again later"),
    (404, {}, "HTTP 404"),
    (410, {}, "take it out"),
    (204, {}, "HTTP 204"),
])  # fmt: skip
def test_a_page_that_fails_is_a_sentence_and_its_older_copy_stays(
    code: int, headers: dict[str, str], words: str, site: Site, tmp_path: Path
) -> None:
    site.replies["/manual/index.html"] = [page("Old."), status(code, **headers)]
    site.replies["/other.html"] = [page("Other.")]
    run(tmp_path, listed(site))
    before = index(tmp_path)
    report = run(tmp_path, listed(site), listed(site, "/other.html"))
    (sentence,) = report.failed
    assert words in sentence
    assert f"{site.url}/manual/index.html" in sentence
    assert report.fetched == (f"{site.url}/other.html",)
    assert before.items() <= index(tmp_path).items()
    (file,) = before
    assert b"Old." in (tmp_path / file).read_bytes()


def test_redirects_are_followed_on_the_site_but_neither_for_ever_nor_elsewhere(site: Site, tmp_path: Path) -> None:
    site.replies["/old"] = [status(301, Location="/new/index.html")]
    site.replies["/new/index.html"] = [page("Here.")]
    site.replies["/loop"] = [status(302, Location="/loop")]
    site.replies["/away"] = [status(302, Location="http://127.0.0.1:9/there")]
    site.replies["/file"] = [status(302, Location="file:///etc/hostname")]
    site.replies["/nowhere"] = [status(302)]
    report = run(tmp_path, *(listed(site, path) for path in ("/old", "/loop", "/away", "/file", "/nowhere")))
    assert [entry["url"] for entry in index(tmp_path).values()] == [f"{site.url}/new/index.html"]
    assert len(report.failed) == 4
    assert "from redirect to redirect" in report.failed[0]
    assert all("correct it" in sentence or "correct its address" in sentence for sentence in report.failed)


def test_a_body_without_end_is_given_up_and_leaves_nothing(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "LARGEST", 300_000)

    def endless(asked: Asked) -> None:
        asked.send_response(200)
        asked.send_header("Content-Type", "text/html")
        asked.end_headers()
        while True:
            asked.wfile.write(b"<p>and on</p>" * 1_000)

    site.replies["/manual/index.html"] = [endless]
    site.replies["/large.pdf"] = [lambda asked: asked.say(200, b"%PDF", "application/pdf", length="300001")]
    report = run(tmp_path, listed(site), listed(site, "/large.pdf"))
    assert "does not end" in report.failed[0]
    assert "take it out" in report.failed[1]
    assert not [path for path in tmp_path.iterdir() if path.stat().st_size > 2_000]


def _wait_for(done: threading.Event) -> None:
    done.wait(20)


def test_a_server_that_says_nothing_is_given_up(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "TIMEOUT_S", 0.05)
    monkeypatch.setattr(transfer, "TRIES", 2)
    done = threading.Event()
    site.replies["/manual/index.html"] = [lambda asked: _wait_for(done)]
    report = run(tmp_path, listed(site))
    done.set()
    assert "timed out" in report.failed[0]


def test_a_server_that_drips_has_an_end(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "LONGEST_S", 0.2)

    def drips(asked: Asked) -> None:
        asked.send_response(200)
        asked.send_header("Content-Type", "text/html")
        asked.end_headers()
        while True:
            asked.wfile.write(b"x" * 100)
            asked.wfile.flush()

    site.replies["/manual/index.html"] = [drips]
    assert "takes longer" in run(tmp_path, listed(site)).failed[0]


def test_without_a_network_there_is_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    pages = [Page(name="x", library="x", url=f"{url}/{number}.html") for number in range(30)]
    (sentence,) = run(tmp_path, *pages).failed
    assert url in sentence
    assert "30 pages" in sentence
    assert "check the network" in sentence


def test_a_manual_is_followed_below_its_path(site: Site, tmp_path: Path) -> None:
    links = "".join(
        f'<a href="{to}">x</a>'
        for to in ("a.html", "deep/b.html#part", "a.html?query=1", "../outside.html", "http://127.0.0.1:9/manual/c.html",
                   "mailto:a@b", "picture.png", "javascript:void(0)", "http://[bad", "search.html", "gone.html")
    )  # fmt: skip
    site.replies["/manual/index.html"] = [page(links, etag='"i"')]
    site.replies["/manual/a.html"] = [page("<a href='index.html'>back</a><a href='later.html'>on</a>")]
    site.replies["/manual/deep/b.html"] = site.replies["/manual/later.html"] = [page("Deep.")]
    report = run(tmp_path, listed(site, follow=True))
    wanted = ["/manual/index.html", "/manual/a.html", "/manual/deep/b.html", "/manual/gone.html", "/manual/later.html"]
    assert site.paths == wanted
    assert "gone.html" in report.failed[0]
    assert {entry["title"] for entry in index(tmp_path).values()} >= {"The Manual", "Deep."}
    # The first page did not change, and its links are known all the same.
    assert len(run(tmp_path, listed(site, follow=True)).fetched) == 3


def test_a_manual_has_a_limit_of_pages(site: Site, tmp_path: Path) -> None:
    site.replies |= {f"/{number}.html": [page(f"<a href='{number + 1}.html'>next</a>")] for number in range(20)}
    events: list[str] = []
    assert len(run(tmp_path, listed(site, "/0.html", follow=True, most=5), events=events).fetched) == 5
    assert any("`most`" in event for event in events)


def test_pages_that_the_manual_lost_or_the_list_dropped_leave_the_index(site: Site, tmp_path: Path) -> None:
    site.replies["/m/index.html"] = [page("<a href='a.html'>a</a>"), page("no more")]
    site.replies["/m/a.html"] = site.replies["/other.html"] = [page("Text.")]
    run(tmp_path, listed(site, "/m/index.html", follow=True), listed(site, "/other.html"))
    assert len(index(tmp_path)) == 3
    run(tmp_path, listed(site, "/m/index.html", follow=True))
    assert [entry["url"] for entry in index(tmp_path).values()] == [f"{site.url}/m/index.html"]


def test_what_is_no_document_is_not_fetched(site: Site, tmp_path: Path) -> None:
    site.replies["/a.zip"] = [page("PK", kind="application/zip")]
    site.replies["/b.html"] = [lambda asked: asked.say(200, b"\x1f\x8b", Content_Encoding="gzip")]
    site.replies["/c.html"] = [lambda asked: asked.say(200, b"")]
    report = run(tmp_path, *(listed(site, path) for path in ("/a.zip", "/b.html", "/c.html")))
    assert [sentence for sentence in report.failed if site.url in sentence] == list(report.failed)
    assert len(report.failed) == 3
    assert index(tmp_path) == {}


def test_a_damaged_index_or_note_is_made_anew(site: Site, tmp_path: Path) -> None:
    site.replies["/manual/index.html"] = [page("Tiles.", etag='"one"')]
    run(tmp_path, listed(site))
    for damaged in ("{", "[1]", '{"x": 1}', "\0"):
        for path in tmp_path.glob("*.json"):
            path.write_text(damaged)
        assert run(tmp_path, listed(site)).fetched
        assert len(index(tmp_path)) == 1


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(Unavailable, match="cannot write to"):
        run(tmp_path / "file" / "below")


def test_two_downloads_into_a_folder_do_not_mix(site: Site, tmp_path: Path) -> None:
    refused: list[str] = []

    def meanwhile(_: str) -> None:
        with pytest.raises(Unavailable) as caught:
            run(tmp_path, listed(site))
        refused.append(str(caught.value))

    site.replies["/manual/index.html"] = [page("Tiles.")]
    downloading.download([listed(site)], tmp_path, meanwhile, wait=lambda _: None)
    assert "another download" in refused[0]


def test_names_are_readable_and_differ() -> None:
    urls = ["https://a.b/c/d.html", "https://a.b/c/d.pdf", "https://a.b/c/d", "https://a.b/c_d", "https://a.b/%2e%2e/x", "https://a.b/"]
    names = [name_of(url) for url in urls] + [name_of(f"https://a.b/{'x' * 999}")]
    assert len(set(names)) == len(names)
    assert all("/" not in name and not name.startswith(".") and len(name) < 120 for name in names)
    assert names[0].startswith("a.b_c_d-")
