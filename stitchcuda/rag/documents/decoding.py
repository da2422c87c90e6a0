"""The bytes of a file as text, or one sentence that says why not. Knows no format; guesses no encoding without a sign of it.

Where to look next: `rag/documents/__init__.py`, which calls it before any reader.
"""

from __future__ import annotations

import codecs
import os
import re
import stat
from pathlib import Path
from typing import BinaryIO

_MARKS = ((codecs.BOM_UTF8, "utf-8"), (codecs.BOM_UTF32_LE, "utf-32-le"), (codecs.BOM_UTF32_BE, "utf-32-be"),
          (codecs.BOM_UTF16_LE, "utf-16-le"), (codecs.BOM_UTF16_BE, "utf-16-be"))
_DECLARED = re.compile(rb"""<(?:meta|\?xml)[^>]{0,200}?(?:charset|encoding)\s*=\s*["']?\s*([A-Za-z0-9_.:-]{2,40})""", re.I)
_ENCODINGS = re.compile(r"iso-8859-\d+|windows-125\d|cp125\d|koi8-[ru]|gbk|gb2312|gb18030|big5|shift_jis|euc-(?:jp|kr)")
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1a\x1c-\x1f]")


class Unreadable(Exception):
    """A document cannot be read: why and what to do, to be said behind its name ("is empty: …"). The caller records it."""


def opened(path: Path) -> BinaryIO:
    """`path` for reading, if it is a file: a pipe or a device would never end. Raises Unreadable."""
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except (OSError, ValueError) as error:
        raise Unreadable(f"cannot be read ({why(error)}): check its name and its permissions") from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise Unreadable("is not a file: name a document, or the folder that it is in")
    return file


def text_of(path: Path, most: int, *, declares: bool) -> tuple[str, list[str]]:
    """The text of the first `most` bytes of `path`, and notes. `declares`: the text may name its encoding, as HTML does.

    Raises Unreadable for what is no text: NUL bytes, bytes that are not of the encoding, many control characters.
    """
    with opened(path) as file:
        try:
            data = file.read(most + 1)
        except (OSError, MemoryError) as error:
            raise Unreadable(f"cannot be read ({why(error)}): check the disk that it is on") from error
    cut = len(data) > most
    notes = [f"{path} has more than {most // 1_000_000} MB: only the start was read; split it to have all"] if cut else []
    encoding, skip = _encoding(data, declares)
    binary = Unreadable("is binary, whatever its name says: save it as text, or leave it out")
    if not skip and b"\0" in data:
        raise binary
    try:
        text = codecs.getincrementaldecoder(encoding)("strict").decode(data[skip:most], not cut)
    except (UnicodeError, LookupError) as error:
        raise Unreadable(f"is not {encoding.upper()} text: save it as UTF-8, or leave it out") from error
    if "\0" in text or len(_CONTROL.findall(text)) > len(text) / 20:
        raise binary
    return text, notes


def why(error: BaseException) -> str:
    """The words of an error of the system or of a library, in a line."""
    said = getattr(error, "strerror", None) or str(error) or type(error).__name__
    return " ".join(said.split())[:200].lower().rstrip(".")


def _encoding(data: bytes, declares: bool) -> tuple[str, int]:
    """Encoding and length of the mark that says so."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return encoding, len(mark)
    found = _DECLARED.search(data[:4_096]) if declares else None
    name = found[1].decode("ascii").lower() if found else "utf-8"
    # Browsers read these two as Windows-1252, and so were the pages written.
    name = "cp1252" if name in {"iso-8859-1", "us-ascii"} else name
    return (name, 0) if _ENCODINGS.fullmatch(name) else ("utf-8", 0)
