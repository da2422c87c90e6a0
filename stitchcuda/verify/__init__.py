"""Gives the verdict on a program: the main process asks a judge process, which questions one worker for each side.

`verify/client.py` and `verify/api.py` run in the main process and import no torch. The judge process (`verify/judge/judge.py`)
owns the secret seeds and decides. The reference worker (`verify/reference/reference_worker.py`) is trusted. The program worker
(`verify/program/program_worker.py`) runs generated code; of what it sends, only the tensors are believed.
The package can be called: `stitchcuda.verify(program, reference)` is `verify/api.py`'s function of that name.
Where to look next: `verify/api.py` (the function), `verify/judge/examination.py` (the order of questions).
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stitchcuda.verify.api import Verdict


class _CallableRoom(ModuleType):
    def __call__(self, program: Path, reference: Path, **options: Any) -> Verdict:
        """Judges a program; see `stitchcuda.verify.api.verify` for the options and what is raised."""
        from stitchcuda.verify import api

        return api.verify(program, reference, **options)


sys.modules[__name__].__class__ = _CallableRoom
