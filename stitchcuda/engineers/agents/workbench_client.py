"""The commands of a workbench: check, bench, profile, docs, submit and status. A copy of this file lies in each workbench.

It sends the program's files over the socket beside it and prints the answer. It judges nothing, and only needs Python.
"""

from __future__ import annotations

import io
import json
import os
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

USAGE = {
    "check": "./check", "bench": "./bench [KERNEL]", "profile": "./profile [WORD]", "docs": "./docs QUERY",
    "submit": "./submit [-m NOTE] [--done]", "status": "./status",
}  # fmt: skip
SUFFIXES = (".py", ".cu", ".cuh", ".cc", ".cpp", ".h", ".hpp")  # of a program's files; others are left where they are
MOST_END = 65_536                          # bytes of the text on a session that has ended
HERE = Path(__file__).resolve().parent     # .workbench, in the workbench


def main(tool: str, words: list[str]) -> int:
    request: dict[str, object] = {"tool": tool}
    if words and words[0] in ("-h", "--help"):
        print(f"usage: {USAGE[tool]}")
        return 0
    if tool == "submit":
        if "--done" in words:
            words.remove("--done")
            request["tool"] = "finish"
        if words[:1] == ["-m"] and len(words) > 1:
            request["note"], words = words[1], words[2:]
    elif tool in ("bench", "profile") and words:
        request["kernel"], words = words[0], words[1:]
    elif tool == "docs" and words:
        request["query"], words = " ".join(words), []
    if words or (tool == "docs" and "query" not in request):
        return say(2, f"usage: {USAGE[tool]}")
    try:
        if request["tool"] in ("check", "bench", "submit"):
            request["files"] = read_program(HERE.parent)
    except (OSError, UnicodeDecodeError) as error:
        return say(2, f"The program cannot be read: {error}")
    return ask(request)


def read_program(folder: Path) -> dict[str, str]:
    """Returns model_new.py and what is below kernels/, without files that editors and Python leave behind."""
    paths = [folder / "model_new.py", *sorted((folder / "kernels").rglob("*"))]
    kept = [path for path in paths if path.is_file() and path.suffix in SUFFIXES]
    return {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in kept}


def ask(request: dict[str, object]) -> int:
    """Sends a request and prints the answer."""
    again = "`stitchcuda agent workbench` makes it go on"
    try:
        answer = exchange(request)
    except (OSError, ValueError) as error:
        told = f"Nobody serves this workbench now ({error}): {again}."
    else:
        if answer is not None:
            return say(int(answer["code"]), str(answer["text"]))
        told = f"The session stopped before it answered: {again}. Then call this again."
    if ended := read_end():
        return say(0 if request["tool"] == "status" else 2, ended)
    return say(2, told)


def exchange(request: dict[str, object]) -> dict[str, Any] | None:
    """Returns the session's answer; None if the connection ends without one. The folder's path may be longer than a socket's
    may be, so it is entered."""
    os.chdir(HERE)
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect("socket")
        with suppress(BrokenPipeError, ConnectionResetError):  # a busy session answers before it has read all
            connection.sendall(json.dumps(request).encode() + b"\n")
        with connection.makefile("rb") as lines:
            return next((answer for answer in map(json.loads, lines) if "code" in answer), None)


def read_end() -> str:
    """Returns what came of the session, if it has ended."""
    end = HERE / "ended"
    return end.read_bytes()[:MOST_END].decode("utf-8", "replace") if end.is_file() else ""


def say(code: int, text: str) -> int:
    try:
        print(text, flush=True)
    except BrokenPipeError:                # whoever reads has read enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


if __name__ == "__main__":
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # whatever the terminal's encoding is
    try:
        raise SystemExit(main(sys.argv[1], sys.argv[2:]))
    except KeyboardInterrupt:
        raise SystemExit(130) from None
