"""The list of documentation: the package's until there is one of the user's; a sentence with file and entry for a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from stitchcuda.errors import BadInput
from stitchcuda.rag import listing
from stitchcuda.rag.listing import Folder


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "settings" / "docs.toml"
    monkeypatch.setenv("STITCHCUDA_DOCS_LIST", str(path))
    return path


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_without_a_list_of_ones_own_the_packages_names_nvidias_manuals(own: Path) -> None:
    listed = listing.read()
    assert not own.exists()
    assert {"CUDA", "cuBLAS", "cuDNN", "PTX", "CUTLASS", "Nsight Compute"} == {page.library for page in listed.pages}
    assert all(page.url.startswith("https://docs.nvidia.com/") for page in listed.pages)
    assert len({page.url for page in listed.pages}) == len(listed.pages)
    assert listed.folders == ()


def test_the_place_follows_the_users_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("STITCHCUDA_DOCS_LIST", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert listing.path() == tmp_path / "stitchcuda" / "docs.toml"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    assert listing.path() == tmp_path / "me" / ".config" / "stitchcuda" / "docs.toml"


def test_a_copy_for_editing_is_made_once(own: Path) -> None:
    assert listing.copy_default() == own
    assert own.read_bytes() == listing.DEFAULT.read_bytes()
    own.write_text("# mine\n")
    assert listing.copy_default() == own
    assert own.read_text() == "# mine\n"
    assert listing.read().pages == ()


def test_a_list_of_ones_own_replaces_the_packages(own: Path, tmp_path: Path) -> None:
    written(own, """
        [[page]]
        name = "Tiles"
        library = "tiles"
        url = "http://localhost:8000/index.html"
        follow = true
        most = 3
        [[folder]]
        path = "../notes"
        library = "notes"
    """)
    (tmp_path / "notes").mkdir()
    listed = listing.read()
    assert [(page.name, page.follow, page.most, page.version) for page in listed.pages] == [("Tiles", True, 3, "")]
    assert listed.folders == (Folder(path=str(tmp_path / "notes"), library="notes"),)


def test_a_folder_is_added_and_comments_stay(own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(own, "# my own remark\n[[page]]\nname = 'x'\nlibrary = 'x'\nurl = 'https://x/'  # why")
    odd = tmp_path / 'a "folder" with \\ ünd more'
    odd.mkdir()
    monkeypatch.chdir(tmp_path)
    listing.add_folder(Path(odd.name), "my notes", "2.1")
    listing.add_folder(own, "lists", "")
    assert listing.read().folders == (
        Folder(path=str(odd), library="my notes", version="2.1"), Folder(path=str(own), library="lists"),
    )  # fmt: skip
    assert "# my own remark" in own.read_text()
    assert "# why" in own.read_text()


def test_the_first_folder_starts_from_the_packages_list(own: Path, tmp_path: Path) -> None:
    listing.add_folder(tmp_path, "notes", "")
    listed = listing.read()
    assert len(listed.pages) > 5
    assert [folder.path for folder in listed.folders] == [str(tmp_path)]


def test_a_folder_is_not_listed_twice(own: Path, tmp_path: Path) -> None:
    listing.add_folder(tmp_path, "notes", "1")
    before = own.read_text()
    listing.add_folder(tmp_path / "settings" / "..", "notes", "1")
    assert own.read_text() == before
    with pytest.raises(BadInput, match=r"lists .* as notes 1 already"):
        listing.add_folder(tmp_path, "other", "1")
    assert own.read_text() == before


def test_a_list_that_is_a_link_stays_one(own: Path, tmp_path: Path) -> None:
    target = written(tmp_path / "dotfiles" / "docs.toml", "# kept elsewhere\n")
    own.parent.mkdir()
    own.symlink_to(target)
    listing.add_folder(tmp_path, "notes", "")
    assert own.is_symlink()
    assert "# kept elsewhere" in target.read_text()
    assert "notes" in target.read_text()


PAGE = '[[page]]\nname = "Tiles"\nlibrary = "tiles"\nurl = "https://x/"\n'
WRONG = {
    "no TOML": ("[[page", "is not TOML"),
    "an unknown table": (PAGE + "[extra]\nx = 1", "'extra'"),
    "an unknown field": (PAGE + "depth = 3", "depth is unknown"),
    "no address": ('[[page]]\nname = "Tiles"\nlibrary = "tiles"', "[[page]] 1 (Tiles): url is missing"),
    "no library": (PAGE + '[[page]]\nname = "More"\nurl = "https://x/"', "[[page]] 2 (More): library is missing"),
    "a file's address": (PAGE.replace("https://x/", "file:///etc/passwd"), "is no address"),
    "an address without a host": (PAGE.replace("https://x/", "https:///x"), "is no address"),
    "an address with a bad port": (PAGE.replace("https://x/", "https://x:port/"), "is no address"),
    "an address of two lines": (PAGE.replace("https://x/", "https://x/\\nHost: y"), "is no address"),
    "too many pages": (PAGE + "most = 1000000", "most = 1000000"),
    "words for a number": (PAGE + 'most = "many"', "most is wrong"),
    "one table for many": ('[page]\nname = "Tiles"', "begin each with [[page]]"),
    "words for a table": ("page = 'x'", "begin each with [[page]]"),
    "a folder of nobody": ('[[folder]]\npath = "~nobody-by-this-name/x"\nlibrary = "x"', "write the path in full"),
    "a folder with a NUL": ('[[folder]]\npath = "a\\u0000b"\nlibrary = "x"', "a path has no NUL in it"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_one_sentence_with_the_file(case: str, own: Path) -> None:
    text, words = WRONG[case]
    written(own, text)
    with pytest.raises(BadInput) as caught:
        listing.read()
    assert words in str(caught.value)
    assert str(own) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_wrong_list_is_not_added_to(own: Path, tmp_path: Path) -> None:
    for text in ("[[page", "folder = []\n", PAGE + "[[folder]]\npath='/'\n"):
        written(own, text)
        with pytest.raises(BadInput, match=r"docs\.toml"):
            listing.add_folder(tmp_path, "notes", "")
        assert own.read_text() == text


def test_a_file_that_cannot_be_a_list_is_a_sentence(own: Path, tmp_path: Path) -> None:
    own.parent.mkdir()
    own.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="UTF-8"):
        listing.read()
    own.unlink()
    own.mkdir()
    for ask in (listing.read, listing.copy_default):
        with pytest.raises(BadInput, match=r"docs\.toml"):
            ask()


def test_where_nothing_can_be_written_is_a_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("STITCHCUDA_DOCS_LIST", str(tmp_path / "file" / "docs.toml"))
    with pytest.raises(BadInput, match="STITCHCUDA_DOCS_LIST"):
        listing.add_folder(tmp_path, "notes", "")


def test_a_folder_that_is_not_there_is_not_added(own: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--add"):
        listing.add_folder(tmp_path / "none", "notes", "")
    assert not own.exists()
    odd = tmp_path / "a\nb"
    odd.mkdir()
    with pytest.raises(BadInput, match="rename it"):
        listing.add_folder(odd, "notes", "")
