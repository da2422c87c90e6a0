"""The commands of a workbench: check, bench, profile, docs, submit and status. A copy of this file lies in each workbench.

It sends the program's files over the socket beside it and prints the answer. It judges nothing, and only needs Python.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

USAGE = {
    "check": "./check", "bench": "./bench [KERNEL]", "profile": "./profile [WORD]", "docs": "./docs QUERY",
    "submit": "./submit [-m NOTE] [--done]", "status": "./status",
}  # fmt: skip
SUFFIXES = (".py", ".cu", ".cuh", ".cc", ".cpp", ".h", ".hpp")  # of a program's files; others are left where they are
HERE = Path(__file__).resolve().parent     # .stitchcuda, in the workbench


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
    """Sends a request and prints the answer. The folder's path may be longer than a socket's may be, so it is entered."""
    os.chdir(HERE)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect("socket")
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as lines:
                for line in lines:
                    answer = json.loads(line)
                    if "code" in answer:
                        return say(int(answer["code"]), str(answer["text"]))
    except (OSError, ValueError) as error:
        return say(2, f"Nobody serves this workbench now ({error}): `stitchcuda agent workbench` makes it go on.")
    return say(2, "The session stopped before it answered: `stitchcuda agent workbench` makes it go on. Then call this again.")


def say(code: int, text: str) -> int:
    print(text, flush=True)
    return code


if __name__ == "__main__":
    try:
        raise SystemExit(main(sys.argv[1], sys.argv[2:]))
    except KeyboardInterrupt:
        raise SystemExit(130) from None
