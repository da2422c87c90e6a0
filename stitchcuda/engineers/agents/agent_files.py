"""The folder that an agent works in: it writes, edits, reads and searches files there, and never beyond.

A path that leads out of the folder, through a symbolic link too, is refused. Only regular files are read, so that a pipe or a
device that a command left behind stops nobody. Whatever is refused is a `RefusedPath` with one sentence.

Where to look next: `engineers/agents/react_tools.py` (who uses it), `engineers/agents/tools.py` (takes the program's files).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from stitchcuda.counts import counted
from stitchcuda.engineers import Files
from stitchcuda.engineers.agents.tools import MOST_CHARACTERS
from stitchcuda.sandbox.removal import clear
from stitchcuda.store.files import replace_file

SHOWN = 24_000                             # characters of a file, or of a search's result, that are shown at once
MOST_FILES, DEEPEST = 500, 8               # of the folder that are listed and searched
_LINE = 300                                # characters of a line that a search shows


class RefusedPath(Exception):
    """A file cannot be read or written as asked; the message says why."""


class AgentFiles:
    """The files below `root`, which is made when needed. Paths are relative to it."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def begin(self, program: Files, reference: str) -> None:
        """Makes the folder anew, with a program's files and the reference."""
        clear(self.root)
        self.root.mkdir(parents=True)
        self._write(self.root / "reference.py", reference)
        self.put_program(program)

    def put_program(self, program: Files) -> None:
        """Replaces model_new.py and kernels/ by those of a program."""
        clear(self.root / "kernels")
        for path, text in program.items():
            if isinstance(text, str) and (path == "model_new.py" or path.startswith("kernels/")):
                self.write(path, text)

    def write(self, path: str, text: str) -> None:
        if len(text) > MOST_CHARACTERS:
            raise RefusedPath(f"It has {len(text):,} characters: a file may have {MOST_CHARACTERS:,}.")
        place = self._place(path)
        if place.is_dir():
            raise RefusedPath(f"{path} is a folder.")
        self._write(place, text)

    def edit(self, path: str, old: str, new: str) -> str:
        """Replaces `old`, which must be in the file once, by `new`; returns what was done."""
        text = self.text(path)
        if not old:
            raise RefusedPath("`old` is empty: use write_file for a whole file.")
        times = text.count(old)
        if times == 0 and new and text.count(new) == 1:
            return f"{path} has the new lines already."
        if times == 0:
            raise RefusedPath(f"{path} is unchanged: `old` is not in it. Read the file for its present lines.")
        if times > 1:
            raise RefusedPath(f"{path} is unchanged: `old` is in it {times} times. Give more lines.")
        self.write(path, text.replace(old, new))
        return f"{path} is changed."

    def text(self, path: str) -> str:
        """Returns a file's text."""
        return self._text(self._place(path), path)

    def show(self, path: str, first: int, last: int) -> str:
        """Returns lines `first` to `last` of a file, counted from 1 (0: to its end), as many as may be shown; the names of
        files for a folder."""
        if self._place(path).is_dir():
            return "\n".join(name for name in self._names() if path in (".", "", "./") or name.startswith(path.strip("./")))
        lines = self.text(path).splitlines()
        first, last = max(first, 1), min(last or len(lines), len(lines))
        if first > max(last, 1):
            return f"{path} has {counted(len(lines), 'line')}."
        shown, size = [], 0
        for line in lines[first - 1 : last]:
            size += len(line) + 1
            if size > SHOWN:
                break
            shown.append(line)
        end = first - 1 + len(shown)
        cut = first > 1 or end < len(lines)
        return "\n".join([*shown, f"(Lines {first} to {end} of {len(lines)}.)"] if cut else shown) or "(empty)"

    def search(self, words: str) -> str:
        """Returns the lines that contain `words`, each as PATH:NUMBER: LINE."""
        if not words.strip():
            raise RefusedPath("There is nothing to search for.")
        found, size = [], 0
        for name in self._names():
            try:
                lines = self.text(name).splitlines()
            except RefusedPath:            # not text, or too long: nothing in it can be shown
                continue
            for number, line in enumerate(lines, 1):
                if words in line:
                    found.append(f"{name}:{number}: {line.strip()[:_LINE]}")
                    size += len(found[-1])
                    if size > SHOWN:
                        return "\n".join([*found, "(There are more: search for something longer.)"])
        return "\n".join(found) or f"No line has {words[:_LINE]!r}."

    def program(self) -> Files:
        """Returns model_new.py, if it is there, and all files below kernels/."""
        names = [name for name in self._names() if name == "model_new.py" or name.startswith("kernels/")]
        return {name: self.text(name) for name in names}

    def _names(self) -> list[str]:
        """The names of all files but folders."""
        found = []
        for name in _walk(self.root, "", DEEPEST):
            found.append(name)
            if len(found) > MOST_FILES:
                raise RefusedPath(f"There are more than {MOST_FILES} files in the folder: remove what is not needed.")
        return found

    def _place(self, path: str) -> Path:
        """Returns where a path leads. Raises `RefusedPath` for one that leads out of the folder."""
        try:
            found = (self.root / path).resolve()
        except (OSError, RuntimeError, ValueError) as error:
            raise RefusedPath(f"{path[:200]!a} is no path: {error}.") from error
        if not found.is_relative_to(self.root.resolve()):
            raise RefusedPath(f"{path[:200]!a} leads out of your folder: only files in it can be read and written.")
        return found

    def _text(self, place: Path, path: str) -> str:
        try:
            facts = place.lstat()
            if not stat.S_ISREG(facts.st_mode):
                raise RefusedPath(f"{path} is no file.")
            if facts.st_size > 4 * MOST_CHARACTERS:
                raise RefusedPath(f"{path} has {facts.st_size:,} bytes, too many to read.")
            return place.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise RefusedPath(f"There is no file {path[:200]!a}.") from None
        except UnicodeDecodeError:
            raise RefusedPath(f"{path} is no text.") from None
        except OSError as error:
            raise RefusedPath(f"{path[:200]!a} cannot be read: {error.strerror}.") from error

    def _write(self, place: Path, text: str) -> None:
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            replace_file(place, text.encode())
        except (OSError, UnicodeEncodeError) as error:
            raise RefusedPath(f"It cannot be written: {error}.") from error


def _walk(folder: Path, above: str, deepest: int) -> Iterator[str]:
    with os.scandir(folder) as entries:
        listed = sorted(entries, key=lambda entry: entry.name)
    for entry in listed:
        name = f"{above}{entry.name}"
        if not entry.is_dir(follow_symlinks=False):
            yield name
        elif deepest:
            yield from _walk(Path(entry.path), f"{name}/", deepest - 1)
        else:
            raise RefusedPath(f"{name} lies too deep: remove it.")
