"""Keeps the host compiler's reading of headers: what nvcc hands it begins with the same hundred thousand lines each time.

That file is the text of all headers, then the program. The first part, up to the first line of a file of the program's, is kept
as a precompiled header under the digest of its text and of the compiler's flags, so it means what the text means; gcc checks
that it fits, and reads the text that lies beside it where it does not. One is made when its text comes for the second time, and
the newest few are kept, 80 MB each. Where to look next: `passes.py` (who hands over the file), `nvcc.py`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stitchcuda.sandbox import seal
from stitchcuda.sandbox.command import Finished
from stitchcuda.sandbox.removal import remove
from stitchcuda.tools.building import compilers

KEPT = 4
"""Precompiled headers in a cache; programs that include the same share one."""
WORTH = 500_000
"""Characters: what is shorter is read as quickly as its precompiled header."""

_SEEN = 100                                # folders of texts that came once
_MARKER = re.compile(r'(?m)^# \d+ "([^"\n]+)".*\n')


@dataclass(frozen=True)
class Prefixes:
    """Those of one cache, for programs in the folders `own`. `run` takes an order, a folder to write to, folders to read."""

    folder: Path
    tool: str                              # the compiler and its version
    own: tuple[Path, ...]
    run: Callable[[Sequence[str], Path, Sequence[Path]], Finished]

    def compiled(self, settings: str, line: str, scratch: Path) -> Finished | None:
        """What the line, a gcc -c in the shell's words, makes of a file in the folder `scratch`; None where nothing kept fits.

        Also None where it fails: who reads the whole text then has the compiler's own words.
        """
        words = shlex.split(line)
        unit = next((word for word in words if word.endswith(".cudafe1.cpp")), None)
        if unit is None or "-c" not in words:
            return None
        text = (scratch / unit).read_text("utf-8", "surrogateescape")
        prefix, rest = split(text, self.own)
        if len(prefix) < WORTH:
            return None
        flags, output = _flags(words, unit, self.own), words[words.index("-o") + 1]
        digest = hashlib.sha256("\0".join((self.tool, *flags, prefix)).encode("utf-8", "surrogateescape")).hexdigest()
        home = self.folder / digest
        header = home / "prefix.h"
        if not self._ready(header, prefix, settings, flags):
            return None
        (scratch / "rest.cudafe1.cpp").write_text(rest, "utf-8", "surrogateescape")
        order = [*flags, "-include", str(header), "-c", "rest.cudafe1.cpp", "-o", "rest.o"]
        done = self.run(("/bin/sh", "-c", f"{settings}\n{shlex.join(order)}"), scratch, (home,))
        if done.code != 0 or done.timed_out:
            return None
        os.replace(scratch / "rest.o", output)
        return done

    def _ready(self, header: Path, prefix: str, settings: str, flags: Sequence[str]) -> bool:
        """Whether there is a precompiled header by now. The first time it only leaves word that the text was seen."""
        compact, unfit = header.with_name("prefix.h.gch"), header.with_name("unfit")
        if not header.parent.is_dir():
            header.parent.mkdir(parents=True, exist_ok=True)
            return False
        with compilers.sole(compact):
            if unfit.exists():
                return False
            if seal.state(header) == "intact" and seal.state(compact) == "intact":
                os.utime(header.parent)
                return True
            with tempfile.TemporaryDirectory(dir=self.folder, prefix="reading-") as name:
                scratch = Path(name)
                (scratch / "prefix.h").write_text(prefix, "utf-8", "surrogateescape")
                order = ["c++-header" if word == "c++" else word for word in flags]
                line = shlex.join([*order, "prefix.h", "-o", "made.gch"])
                done = self.run(("/bin/sh", "-c", f"{settings}\n{line}"), scratch, ())
                if done.code != 0 or not (scratch / "made.gch").is_file():
                    if " error: " in done.output:  # of the text: it ends in the middle of something
                        unfit.touch()
                    return False
                seal.put(scratch / "prefix.h", header)
                seal.put(scratch / "made.gch", compact)
        self._trim()
        return True

    def _trim(self) -> None:
        """The oldest go. Who is reading one of them then reads the whole text."""
        made: list[tuple[int, Path]] = []
        seen: list[tuple[int, Path]] = []
        for folder in self.folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                if folder.is_dir() and not folder.name.startswith("reading-"):
                    (made if (folder / "prefix.h.gch").is_file() else seen).append((folder.stat().st_mtime_ns, folder))
        for _, folder in (*sorted(made)[:-KEPT], *sorted(seen)[:-_SEEN]):
            remove(folder)


def _flags(words: Sequence[str], unit: str, own: Sequence[Path]) -> list[str]:
    """The compiler and what decides about the result: neither the files nor the program's folders, whose text is there already.

    Of NVIDIA's headers one is not: `crt/host_runtime.h`, which the text includes.
    """
    output = words.index("-o")
    return [
        word for at, word in enumerate(words)
        if at not in (output, output + 1) and word not in (unit, "-c")
        and not (word.startswith("-I") and _is_own(word[2:], own))
    ]  # fmt: skip


def split(text: str, own: Sequence[Path]) -> tuple[str, str]:
    """(what comes from headers alone, the rest) of a file whose line markers say where each part is from.

    The first marker of all names the file itself, also where its first line includes something.
    """
    first = _MARKER.match(text)
    start = first.end() if first else 0
    for marker in _MARKER.finditer(text, start):
        if _is_own(marker[1], own):
            return text[start:marker.start()], text[marker.start():]
    return "", text


def _is_own(name: str, own: Sequence[Path]) -> bool:
    path = Path(os.path.normpath(name))
    return not path.is_absolute() or any(path.is_relative_to(folder) for folder in own)
