"""Says which kernel launch of a program failed, where its configuration or its resources were refused.

Such a launch runs nothing, and a program that does not ask for the error goes on with memory that nothing wrote. The simulator
keeps what was refused; on a GPU the CUDA runtime keeps the last error, which is only read here, never cleared.
Where to look next: `simulator/runtime/grid.cpp` (what the simulator refuses), `verify/program/trial.py` (who tells it).
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from stitchcuda.simulator import loaded_runtime

_CAUSES = {
    "too many resources requested for launch": "a block of so many threads needs more registers than there are",
    "invalid configuration argument": "a block has 1 to 1024 threads (64 along z), a grid 1 to 65535 blocks along y and z",
    "invalid argument": "a launch with over 48 KiB of dynamic shared memory needs cudaFuncSetAttribute",
}
_runtime: Any = None                       # the CUDA runtime that torch and the program's libraries share


def watch_gpu() -> None:
    """Finds the CUDA runtime in this process (GPU only), before there is a program that could replace it."""
    global _runtime
    path = next((path for path in loaded_runtime.mapped_libraries() if Path(path).name.startswith("libcudart.so")), None)
    if path is not None:
        library = ctypes.CDLL(path)
        library.cudaGetErrorString.restype = ctypes.c_char_p
        library.cudaPeekAtLastError()
        _runtime = library


def find() -> str:
    """Returns a sentence on a launch that failed since the last call of this function, or "". On a GPU the error remains until
    somebody takes it, such as torch after its next kernel."""
    if _runtime is None:
        return loaded_runtime.take_failed_launch()
    if not (code := int(_runtime.cudaPeekAtLastError())):
        return ""
    text = _runtime.cudaGetErrorString(code).decode(errors="replace")
    return f"a kernel launch, or another CUDA call, failed ({text}){explain(text)}" if explain(text) else ""


def explain(text: str) -> str:
    """Returns ": " and the cause of a CUDA error that a launch gives; "" for any other text."""
    return next((f": {cause}" for phrase, cause in _CAUSES.items() if phrase in text), "")
