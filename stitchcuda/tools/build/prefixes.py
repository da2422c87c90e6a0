"""Caches the precompiled headers that nvcc's generated host code begins with.

That file is the text of all headers, then the program. The first part, up to the first line of a file of the program's, is kept
as a precompiled header under the digest of its text and of the compiler's flags, so it means what the text means; gcc checks
that it fits, and reads the text that lies beside it where it does not. One is made when its text comes for the second time, and
the newest few are kept, 80 MB each. Where to look next: `tools/build/passes.py` (who hands over the file),
`tools/build/nvcc.py`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from stitchcuda.sandbox import digest_seal
from stitchcuda.sandbox.command import Finished
from stitchcuda.sandbox.removal import remove
from stitchcuda.tools.build import compilers

KEPT = 4
"""Precompiled headers in a cache; programs that include the same share one."""
WORTH = 500_000
"""Characters: what is shorter is read as quickly as its precompiled header."""

_SEEN = 100                                # folders of texts that came once
_LEFT_S = 3600.0                           # a folder that somebody works in is not older
_KEPT_IN = "kept"                          # below the folder of a digest: what else belongs to it goes with it
_REST = "without_headers"                  # beside what nvcc leaves, which is named after the source and the pass
_OF_THE_TEXT = re.compile(r":\d+:\d+: (fatal )?error: |internal compiler error")
_NOT_OF_IT = re.compile(r"No space left|Killed|error writing")
_DIAGNOSTIC = re.compile(r"(?m)^[ \t]*#[ \t]*pragma[ \t]+GCC[ \t]+diagnostic\b.*\n")
_STATE = re.compile(
    r"(?m)^[ \t]*#[ \t]*pragma[ \t]+"
    r"(?:GCC[ \t]+(?P<gcc>visibility|push_options|pop_options|optimize|target|poison)|(?P<pack>pack))\b(?P<rest>.*)$"
)
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
        # One header is read only now: `crt/host_runtime.h`. A program that has its own gets it.
        if unit is None or "-c" not in words or any((folder / "crt").exists() for folder in self.own):
            return None
        try:
            text = (scratch / unit).read_text("utf-8", "surrogateescape")
            prefix, rest = split(text, self.own)
            if len(prefix) < WORTH or not balanced(prefix):
                return None
            flags, output = _flags(words, unit, self.own), words[words.index("-o") + 1]
            digest = hashlib.sha256("\0".join((self.tool, *flags, prefix)).encode("utf-8", "surrogateescape")).hexdigest()
            header = self.folder / digest / _KEPT_IN / "prefix.h"
            if not self._ready(header, prefix, settings, flags):
                return None
            # gcc keeps everything of a precompiled header but what it said of warnings.
            rest = "".join(_DIAGNOSTIC.findall(prefix)) + rest
            (scratch / f"{_REST}.cpp").write_text(rest, "utf-8", "surrogateescape")
            order = [*flags, "-include", str(header), "-c", f"{_REST}.cpp", "-o", f"{_REST}.o"]
            done = self.run(("/bin/sh", "-c", f"{settings}\n{shlex.join(order)}"), scratch, (header.parent,))
            if done.code != 0 or done.timed_out:
                return None
            os.replace(scratch / f"{_REST}.o", output)
        except OSError:                    # no room, no permission, or trimmed by somebody: the whole text is there
            return None
        return done

    def _ready(self, header: Path, prefix: str, settings: str, flags: Sequence[str]) -> bool:
        """Whether there is a precompiled header by now. The first time it only leaves word that the text was seen."""
        compact, unfit = header.with_name("prefix.h.gch"), header.with_name("unfit")
        if not header.parent.is_dir():
            header.parent.mkdir(parents=True, exist_ok=True)
            self._trim()
            return False
        with compilers.sole(compact):
            if unfit.exists():
                return False
            if digest_seal.state(header) == "intact" and digest_seal.state(compact) == "intact":
                os.utime(header.parent.parent)
                return True
            with tempfile.TemporaryDirectory(dir=self.folder, prefix="reading-") as name:
                scratch = Path(name)
                (scratch / "prefix.h").write_text(prefix, "utf-8", "surrogateescape")
                order = ["c++-header" if word == "c++" else word for word in flags]
                line = shlex.join([*order, "prefix.h", "-o", "made.gch"])
                done = self.run(("/bin/sh", "-c", f"{settings}\n{line}"), scratch, ())
                if done.code != 0 or not (scratch / "made.gch").is_file():
                    if done.timed_out or (_OF_THE_TEXT.search(done.output) and not _NOT_OF_IT.search(done.output)):
                        unfit.touch()      # it ends in the middle of something, perhaps
                    return False
                digest_seal.put(scratch / "prefix.h", header)
                digest_seal.put(scratch / "made.gch", compact)
        self._trim()
        return True

    def _trim(self) -> None:
        """The oldest go, and what killed processes left. Who is reading one of them then reads the whole text."""
        made: list[tuple[float, Path]] = []
        seen: list[tuple[float, Path]] = []
        for folder in self.folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                changed = folder.stat().st_mtime
                if not folder.name.startswith("reading-"):
                    (made if (folder / _KEPT_IN / "prefix.h.gch").is_file() else seen).append((changed, folder))
                elif time.time() - changed > _LEFT_S:
                    remove(folder)
        for _, folder in (*sorted(made)[:-KEPT], *sorted(seen)[:-_SEEN]):
            remove(folder)


def _flags(words: Sequence[str], unit: str, own: Sequence[Path]) -> list[str]:
    """The compiler and what decides about the result: neither the files nor the program's folders, whose text is there."""
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


def balanced(text: str) -> bool:
    """Whether it leaves packing, visibility and options as it found them: gcc forgets these with a precompiled header."""
    depths = {"pack": 0, "visibility": 0, "options": 0}
    for pragma in _STATE.finditer(text):
        kind = pragma["gcc"] or pragma["pack"]
        if kind in ("optimize", "target", "poison"):
            if kind == "poison" or not depths["options"]:
                return False
            continue
        group = "options" if kind.endswith("_options") else kind
        push, pop = ("push" in f"{kind}{pragma['rest']}"), ("pop" in f"{kind}{pragma['rest']}")
        if not push and not pop and not depths[group] and not re.fullmatch(r"\s*\(\s*\)\s*", pragma["rest"]):
            return False
        depths[group] += push - pop
        if depths[group] < 0:
            return False
    return not any(depths.values())


def _is_own(name: str, own: Sequence[Path]) -> bool:
    path = Path(os.path.normpath(name))
    return not path.is_absolute() or any(path.is_relative_to(folder) for folder in own)
