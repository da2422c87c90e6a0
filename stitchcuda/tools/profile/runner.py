"""Declares the protocol by which profilers have a reference or a program called in a process of its own.

Where to look next: `tools/profile/profiling.py` (uses it), `verify/client.py` (whose `Judge` implements it).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

from stitchcuda.sandbox.command import Finished
from stitchcuda.state import Target

HowCalled = Literal["nsys", "ncu", "cupti", "events", "plain"]
"""How a program is called in a process of its own: see `verify/program/profiled_process.py`."""

Launch = Callable[[Sequence[str], Mapping[str, str]], Finished]
"""Runs a profiler's command line with these variables added to the environment, and waits for it."""


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
        how: HowCalled,
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
