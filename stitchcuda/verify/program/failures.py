"""What went wrong in a program worker, as an answer to the judge: a kind and one sentence.

Nothing is decided here; the judge takes both as words of a stranger. Where to look next: `verify/program/program_worker.py`,
`verify/processes/worker.py`.
"""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import Any

from stitchcuda.errors import Unavailable
from stitchcuda.simulator.unsupported import Unsupported
from stitchcuda.verify.messages import out_of_memory
from stitchcuda.verify.messages.build_orders import BuildFailed
from stitchcuda.verify.messages.wire import WireError
from stitchcuda.verify.program import simulated_device
from stitchcuda.verify.reference.float64_truth import higher_order_operator
from stitchcuda.verify.timing.timed_calls import NotPlain

_FRAMES = 3
_ONE_BACKEND = re.compile(
    r"Could not run '([\w:.]{1,100})' with arguments from the 'CPU' backend.*backends: \[[^\]]*\bCUDA\b", re.DOTALL
)


class ProgramError(Exception):
    """What is wrong with the program, as one sentence."""


class OtherState(Exception):
    """A foreign program that lacks some of the reference's state: it must sit an exam in which that is as constructed."""

    def __init__(self, reason: str, missing: list[str], held: int) -> None:
        super().__init__(reason)
        self.missing = missing
        self.held = held                   # numbers of its own that are nothing of the reference's


def describe_failure(error: BaseException, folder: Path) -> dict[str, Any]:
    """The answer that says what went wrong; `folder` holds the program, whose lines are named."""
    text = str(error).strip() or type(error).__name__
    if isinstance(error, ProgramError):
        return {"error": text, "kind": "error"}
    if isinstance(error, NotPlain):
        return {"error": f"forward returned {text}", "kind": "error"}
    if isinstance(error, OtherState):
        return {"error": text, "kind": "state", "missing": error.missing, "held": error.held}
    if isinstance(error, BuildFailed):
        return {"error": f"the program's kernels do not build:\n{text}", "kind": "error"}
    if isinstance(error, WireError):
        return {"error": f"forward returned something that cannot be judged: {text}", "kind": "error"}
    if "nvmlInit" in text:                 # torch asks NVML when the device is full; the sandbox does not let it
        return {"error": "the program ran out of memory: the device's is full", "kind": "memory"}
    if out_of_memory.ran_out(error):
        return {"error": f"the program ran out of memory: {text.splitlines()[0][:300]}", "kind": "memory"}
    if isinstance(error, Unsupported | Unavailable):
        return {"error": text, "kind": "refused"}
    if isinstance(error, NotImplementedError) and (why := _unjudged(text)):
        return why
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if folder in Path(frame.filename).parents]
    where = ", ".join(f"{Path(frame.filename).name} line {frame.lineno}" for frame in frames[-_FRAMES:])
    return {
        "error": f"the program raised {type(error).__name__}{f' ({where})' if where else ''}: {text[:1500]}",
        "kind": "error",
    }


def _unjudged(text: str) -> dict[str, Any]:
    """The answer for what says nothing about the program, or nothing."""
    if operator := higher_order_operator(text):
        told = f"it uses torch's operator {operator}, which runs other functions: what these do cannot be watched"
        return {"error": f"{told}; write the choice or the loop in plain Python", "kind": "unwatched"}
    if simulated_device.is_installed() and (found := _ONE_BACKEND.search(text)):
        told = f"the operator {found[1]} has a kernel for CUDA tensors only, and on the simulator these are host memory"
        return {"error": told, "kind": "refused"}
    return {}
