"""The protocol by which profiling has a reference or a program called behind a profiler's command.

Where to look next: `tools/profile/profiling.py`, which asks; `verify/client.py`, whose `Judge` is one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from stitchcuda.sandbox.command import Finished
from stitchcuda.state import Target


class Runner(Protocol):
    """Holds one reference, and knows which of its programs were judged correct."""

    @property
    def target(self) -> Target: ...

    def run_under(
        self,
        program: Path | None,
        under: Sequence[str],
        out: Path,
        *,
        how: str,
        calls: int,
        warm: int,
        seconds: float = 600.0,
        environment: Mapping[str, str] | None = None,
    ) -> tuple[Finished, tuple[str, ...]]:
        """Call the program (None: the reference) `warm` times and then `calls` times in a process of its own, behind the
        command `under`, which may write into the folder `out`. `how` is one of those of `verify/program/profiled_process.py`.

        Returns how the process ended, and the names of the program's own kernels. Raises `Unavailable` for a program that
        cannot be loaded.
        """
