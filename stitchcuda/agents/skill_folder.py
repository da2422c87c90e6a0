"""Writes the skill `stitchcuda`: a folder from which coding agents learn when and how to use workbenches.

How to work in a workbench is said by the workbench's own SKILL.md, which this one points to. A file that is there already is
replaced only if this file wrote it and nobody has changed it since: its last line has the digest of the rest.
Where to look next: `engineers/prompt_values.py` (templates), `cli/agent.py` (the command).
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from stitchcuda.engineers.prompt_values import render_prompt
from stitchcuda.errors import BadInput
from stitchcuda.store.files import replace_file

COMMANDS = (                               # of a workbench, the MCP tool that does the same, what it is for
    ("./check", "check", "is the program right; no attempt"),
    ("./bench [KERNEL]", "bench", "how long does a call take; on the simulator, how many bytes it moves"),
    ("./profile [WORD]", "profile", "on a GPU: what the profilers measured of the best program and of the last submission"),
    ("./docs QUERY", "docs_search", "documentation of CUDA, cuBLASLt and cuDNN"),
    ("./submit -m NOTE", "submit", "hands the program in as an attempt"),
    ("./status", "session_status", "the best program, and how many attempts are left"),
    ("./submit --done", "finish", "the last check of the best program; the session ends"),
)
AGENTS_TEXT = """\
To make a PyTorch program faster with CUDA, use StitchCUDA: `stitchcuda agent workbench REFERENCE.py FOLDER` makes a folder with
a verified program and commands that judge and time changes to it. Read SKILL.md and TASK.md in that folder first.
"""
_MARK = re.compile(r"\n<!-- Written by `stitchcuda agent skill` \(([0-9a-f]{16})\)\. -->\n\Z")


def skill_text() -> str:
    """Returns SKILL.md."""
    return render_prompt("agent_skill", {"commands": COMMANDS})


def write_skill(folder: Path) -> Path:
    """Writes `folder`/stitchcuda/SKILL.md and AGENTS.snippet.md beside it, and returns the skill's folder. Raises `BadInput` if
    one of them is there and is somebody else's, before anything is written."""
    skill = folder.expanduser() / "stitchcuda"
    texts = {skill / "SKILL.md": skill_text(), skill / "AGENTS.snippet.md": AGENTS_TEXT}
    for path in texts:
        _refuse_others(path)
    for path, text in texts.items():
        written = f"{text}\n<!-- Written by `stitchcuda agent skill` ({_digest(text)}). -->\n"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(path, written.encode(), 0o644)
        except OSError as error:
            raise BadInput(f"{path} cannot be written ({error.strerror or error}): give another --into") from error
    return skill


def _refuse_others(path: Path) -> None:
    try:
        there = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is in the way and cannot be read ({error}): move it, or give another --into") from error
    mark = _MARK.search(there)
    if mark is None or mark.group(1) != _digest(there[: mark.start()]):
        raise BadInput(f"{path} is there and was written or changed by somebody else: move it, or give another --into")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
