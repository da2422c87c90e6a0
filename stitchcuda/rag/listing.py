"""The user's list of documentation: pages that may be downloaded, and folders or files of their own. A TOML file.

Until the user has one, the package's `docs.toml` is the list. Nothing is fetched or parsed here. Where to look next:
`rag/download.py` (fetches the pages), `rag/sources.py` (puts the folders beside headers and playbook).
"""

from __future__ import annotations

import json
import os
import tomllib
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from pydantic import ValidationError

from stitchcuda.errors import BadInput
from stitchcuda.state import Record
from stitchcuda.store import write_atomically

DEFAULT = Path(__file__).with_name("docs.toml")
MOST_PAGES = 2_000                         # that one entry may ask for
Entry = TypeVar("Entry", bound=Record)


class Page(Record):
    """An entry `[[page]]`."""

    name: str
    library: str                           # what `--library` filters by
    url: str                               # http or https
    version: str = ""
    follow: bool = False                   # fetch the pages below the same path that it links to
    most: int = 200                        # pages of this entry


class Folder(Record):
    """An entry `[[folder]]`; `path` is absolute, and a file is fine."""

    path: str
    library: str
    version: str = ""


class Listing(Record):
    pages: tuple[Page, ...] = ()
    folders: tuple[Folder, ...] = ()


def path() -> Path:
    """The user's list, which need not be there: $STITCHCUDA_DOCS_LIST, else docs.toml among the user's settings."""
    given = os.environ.get("STITCHCUDA_DOCS_LIST", "").strip()
    try:
        if given:
            return Path(given).expanduser().absolute()
        settings = os.environ.get("XDG_CONFIG_HOME", "").strip() or "~/.config"
        return (Path(settings).expanduser() / "stitchcuda" / "docs.toml").absolute()
    except RuntimeError as error:
        raise BadInput(f"there is no home folder for the list of documentation ({error}): set STITCHCUDA_DOCS_LIST") from error


def read() -> Listing:
    """The user's list, or the package's. Raises BadInput with file, entry and what to do."""
    own = path()
    here = own if os.path.lexists(own) else DEFAULT
    return _parsed(here, _text(here))


def copy_default() -> Path:
    """The user's own list for editing, made from the package's if there is none. Raises BadInput where it cannot be written."""
    own = path()
    try:
        own.parent.mkdir(parents=True, exist_ok=True)
        with own.open("xb") as file:
            file.write(DEFAULT.read_bytes())
    except FileExistsError as error:
        if not own.is_file():
            what = "a folder on its way is a file" if not os.path.lexists(own) else "it is no file"
            raise BadInput(f"cannot write {own} ({what}): move that away, or set STITCHCUDA_DOCS_LIST") from error
    except OSError as error:
        raise BadInput(f"cannot write {own} ({_why(error)}): name a list that you may write in STITCHCUDA_DOCS_LIST") from error
    return own


def add_folder(folder: Path, library: str, version: str) -> None:
    """Appends a folder or file to the user's list, whose comments stay; one that is listed just so is not listed twice.

    Raises BadInput, with the list as it was.
    """
    try:
        place = os.path.abspath(folder.expanduser())
    except RuntimeError as error:
        raise BadInput(f"--add: {error}: write the path in full") from error
    _check_folder(place, "--add")
    if not place.isprintable():
        raise BadInput(f"--add: {place!r} has letters that a list cannot hold: rename it, or list the folder around it")
    wanted = Folder(path=place, library=library, version=version)
    own = copy_default()
    text = _text(own)
    before = _parsed(own, text)
    same = next((listed for listed in before.folders if listed.path == wanted.path), None)
    if same == wanted:
        return
    if same:
        told = f"{same.library} {same.version}".strip()
        raise BadInput(f"{own} lists {wanted.path} as {told} already: change it there")
    fields = "".join(f"{name} = {_quoted(value)}\n" for name, value in wanted.model_dump().items() if value)
    text = f"{text.rstrip()}\n\n[[folder]]\n{fields}".lstrip()
    after = _parsed(own, text)
    if after.folders != (*before.folders, wanted) or after.pages != before.pages:
        raise BadInput(f"{own} cannot be added to as it is written: add [[folder]] with path and library there by hand")
    # The list may be a link into the user's own collection of settings, and stays one.
    write_atomically(own.resolve(), text.encode())


def _text(here: Path) -> str:
    try:
        return here.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(f"{here} is not UTF-8 text: save it as UTF-8") from error
    except OSError as error:
        raise BadInput(f"cannot read {here} ({_why(error)}): it should be a list of documentation in TOML") from error


def _parsed(here: Path, text: str) -> Listing:
    try:
        tables = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise BadInput(f"{here} is not TOML ({error}): correct it there") from error
    unknown = sorted(set(tables) - {"page", "folder"})
    if unknown:
        raise BadInput(f"{here} has {unknown[0]!r}, which means nothing here: entries are [[page]] and [[folder]]")
    pages = tuple(_page(here, number, table) for number, table in _entries(here, tables, "page"))
    folders = tuple(_folder(here, number, table) for number, table in _entries(here, tables, "folder"))
    return Listing(pages=pages, folders=folders)


def _entries(here: Path, tables: dict[str, Any], kind: str) -> list[tuple[int, dict[str, Any]]]:
    entries = tables.get(kind, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise BadInput(f"{here} writes {kind!r} as something else than entries: begin each with [[{kind}]]")
    return list(enumerate(entries, 1))


def _page(here: Path, number: int, table: dict[str, Any]) -> Page:
    where = _where(here, "page", number, table.get("name"))
    page = _record(Page, where, table)
    try:
        parts = urlsplit(page.url)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or any(letter.isspace() or not letter.isprintable() for letter in page.url):
        raise BadInput(f"{where}: {page.url!r} is no address of a page: give one that begins with https:// or http://")
    if not 1 <= page.most <= MOST_PAGES:
        raise BadInput(f"{where}: most = {page.most} pages cannot be: give 1 to {MOST_PAGES}")
    return page


def _folder(here: Path, number: int, table: dict[str, Any]) -> Folder:
    where = _where(here, "folder", number, table.get("path"))
    folder = _record(Folder, where, table)
    try:
        place = Path(folder.path).expanduser()
    except RuntimeError as error:
        raise BadInput(f"{where}: {error}: write the path in full") from error
    if "\0" in folder.path:
        raise BadInput(f"{where}: a path has no NUL in it: correct it, or take the entry out")
    # A relative path is relative to the list, wherever the command is run.
    place = Path(os.path.abspath(here.parent / place))
    return folder.model_copy(update={"path": str(place)})


def _check_folder(place: str, where: str) -> None:
    try:
        os.stat(place)
    except (OSError, ValueError) as error:
        raise BadInput(f"{where}: {place} cannot be looked at ({_why(error)}): correct it, or take the entry out") from error


def _record(kind: type[Entry], where: str, table: dict[str, Any]) -> Entry:
    try:
        return kind.model_validate(table, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        known = ", ".join(kind.model_fields)
        wrong = f"is wrong ({first['msg'].lower()})"
        what = {"missing": "is missing", "extra_forbidden": "is unknown"}.get(first["type"], wrong)
        raise BadInput(f"{where}: {field} {what}: its fields are {known}") from error


def _where(here: Path, kind: str, number: int, name: object) -> str:
    return f"{here}, [[{kind}]] {number}" + (f" ({name})" if isinstance(name, str) and name else "")


def _quoted(text: str) -> str:
    """A basic string of TOML: JSON's, but for a control character that JSON lets through."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _why(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()
