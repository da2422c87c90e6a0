"""The verdict on a program: three processes, and a folder for each question that is asked of them.

`verify/client.py` and `verify/api.py` run in the main process and import no torch. The judge process (`verify/judge/judge.py`)
owns the secret seeds and decides. The reference worker (`verify/reference/reference_worker.py`) is trusted; the program worker
(`verify/program/program_worker.py`) runs generated code, and nothing it says is believed but the tensors it returns.
The package can be called, as `stitchcuda.verify(program, reference)`: the public function has the room's name.
Where to look next: `verify/api.py` (the function), `verify/judge/examination.py` (the order of questions).
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stitchcuda.verify.api import Verdict


class _CallableRoom(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> Verdict:
        """See `verify/api.py`."""
        from stitchcuda.verify import api

        return api.verify(*args, **options)


sys.modules[__name__].__class__ = _CallableRoom
