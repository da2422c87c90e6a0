"""Calls the tools of a workbench from outside of its folder, over the same socket and with the same requests as its commands.

What is sent are the program's files as they are in the folder at that moment: regular files alone, and no more of them than a
program may have. Symbolic links are refused, so nothing outside of the folder is read. It judges nothing.
A call that is cancelled closes its connection at once; the session goes on with what it was asked.
Where to look next: `engineers/agents/workbench_server.py` (who answers), `engineers/agents/workbench_client.py` (the commands).
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream

from stitchcuda.counts import counted
from stitchcuda.engineers.agents.tools import MOST_CHARACTERS, ToolAnswer
from stitchcuda.engineers.agents.workbench_client import SUFFIXES
from stitchcuda.engineers.agents.workbench_folder import HIDDEN, opened, read_end
from stitchcuda.errors import BadInput, Unavailable

MOST_ENTRIES = 2_000                       # files and folders below kernels/ that are looked at
DEEPEST = 5                                # folders in each other, kernels/ among them
_MOST_ANSWER = 32 * 1024 * 1024            # bytes of an answer


def path_below(root: Path, named: str) -> Path:
    """Returns the path that a client names, from `root` if it is relative. Raises `BadInput` if it is outside of `root`, also
    by way of a symbolic link."""
    try:
        path = (root / named).resolve()
        inside = path.is_relative_to(root.resolve())
    except (OSError, ValueError, RuntimeError) as error:
        raise BadInput(f"{named[:200]!a} is no path ({error})") from error
    if not inside:
        raise BadInput(f"{named[:200]!a} is outside of {root}, the folder that this server works in: give a path in it")
    return path


def read_page(folder: Path, name: str) -> str:
    """Returns a text file of a workbench, such as TASK.md. Raises `BadInput`."""
    with _opened(folder) as place:
        return _Reading().text(place, name, name)


def read_sources(folder: Path) -> dict[str, str]:
    """Returns the program in a folder: model_new.py and the sources below kernels/. Raises `BadInput`."""
    reading = _Reading()
    with _opened(folder) as place:
        files = {"model_new.py": reading.text(place, "model_new.py", "model_new.py")}
        if "kernels" in os.listdir(place):
            files |= reading.below(place, "kernels", "kernels", 1)
    return files


async def ask(folder: Path, request: Mapping[str, object]) -> ToolAnswer:
    """Sends a request to the workbench's session and waits for the answer. Raises `Unavailable` if nobody answers."""
    line = json.dumps(request).encode() + b"\n"
    try:
        with opened(folder / HIDDEN) as hidden:
            if not stat.S_ISSOCK((hidden / "socket").lstat().st_mode):
                raise Unavailable(f"{folder} has no socket of a session: call analyse with its reference, which makes one")
            stream = await anyio.connect_unix(hidden / "socket")
    except OSError as error:
        if ended := read_end(folder):
            return _ended(request, ended)
        raise Unavailable(
            f"nobody serves a workbench in {folder} ({error.strerror or error}): call analyse with its reference, which makes "
            "the session go on"
        ) from error
    try:
        async with stream:
            with suppress(anyio.BrokenResourceError):  # a busy session answers before it has read all
                await stream.send(line)
            received = BufferedByteReceiveStream(stream)
            while True:
                answer = json.loads(await received.receive_until(b"\n", _MOST_ANSWER))
                if "code" in answer:
                    return ToolAnswer(answer["code"], str(answer["text"]), bool(answer.get("ended")))
    except (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.DelimiterNotFound, ValueError) as error:
        if ended := read_end(folder):
            return _ended(request, ended)
        raise Unavailable(
            "the session stopped before it answered: call analyse with its reference, which makes it go on, then this again"
        ) from error


def _ended(request: Mapping[str, object], text: str) -> ToolAnswer:
    return ToolAnswer(0 if request.get("tool") == "status" else 2, text, ended=True)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    try:
        place = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise BadInput(f"there is no workbench in {folder} ({error.strerror}): call analyse, which makes one") from error
    try:
        yield place
    finally:
        os.close(place)


class _Reading:
    """Reads files by folders that are open, and counts what was read."""

    def __init__(self) -> None:
        self._bytes_left = 4 * MOST_CHARACTERS  # UTF-8; the session counts the characters
        self._entries_left = MOST_ENTRIES

    def text(self, place: int, name: str, path: str) -> str:
        try:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place)
            with open(file, "rb") as opened:
                if not stat.S_ISREG(os.fstat(file).st_mode):
                    raise BadInput(f"{path} is no regular file: a program's files are regular files")
                data = opened.read(self._bytes_left + 1)
            self._bytes_left -= len(data)
            if self._bytes_left < 0:
                raise BadInput(f"the files are too long with {path}: a program has at most {MOST_CHARACTERS:,} characters")
            return data.decode("utf-8")
        except FileNotFoundError as error:
            raise BadInput(f"there is no {path} in the workbench") from error
        except UnicodeDecodeError as error:
            raise BadInput(f"{path} is no text in UTF-8 ({error})") from error
        except OSError as error:
            raise BadInput(f"{path} cannot be read ({error.strerror}); symbolic links are not followed") from error

    def below(self, place: int, name: str, path: str, depth: int) -> dict[str, str]:
        """Returns the sources below the folder `name` of the folder `place`."""
        if depth > DEEPEST:
            raise BadInput(f"{path} is too deep: put sources at most {counted(DEEPEST - 1, 'folder')} below kernels/")
        try:
            inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
        except OSError as error:
            raise BadInput(f"{path} is no folder that can be read ({error.strerror}); links are not followed") from error
        found: dict[str, str] = {}
        try:
            with os.scandir(inner) as entries:
                for entry in entries:
                    self._entries_left -= 1
                    if self._entries_left < 0:
                        raise BadInput(f"there are more than {MOST_ENTRIES:,} files and folders below kernels/: remove some")
                    if entry.is_dir(follow_symlinks=False):
                        found |= self.below(inner, entry.name, f"{path}/{entry.name}", depth + 1)
                    elif entry.name.endswith(SUFFIXES):
                        found[f"{path}/{entry.name}"] = self.text(inner, entry.name, f"{path}/{entry.name}")
        finally:
            os.close(inner)
        return dict(sorted(found.items()))
