"""Turns an exception in a program worker into its answer to the judge: a kind and one sentence.

Kinds: "error" (the program's fault), "state" (it lacks some of the reference's parameters), "memory", "refused" (the simulator
cannot run it) and "unwatched" (torch cannot show what one of its operators does). It decides no verdict: the worker runs
generated code, so the judge does not have to believe either.
Where to look next: `verify/program/program_worker.py` (who sends it), `verify/processes/worker.py` (who reads it).
"""

from __future__ import annotations

import re
import traceback
from pathlib import Path

import torch

from stitchcuda.errors import Unavailable
from stitchcuda.simulator.unsupported import Unsupported
from stitchcuda.verify.messages import gpu_memory, out_of_memory
from stitchcuda.verify.messages.build_orders import BuildFailed
from stitchcuda.verify.messages.request import Failed
from stitchcuda.verify.messages.wire import WireError
from stitchcuda.verify.program import launch_failures, simulated_device
from stitchcuda.verify.reference.float64_truth import higher_order_operator
from stitchcuda.verify.timing.timed_calls import NotPlain

_FRAMES = 3                                # of a traceback: as many lines of the program are named
_ONE_BACKEND = re.compile(
    r"Could not run '([\w:.]{1,100})' with arguments from the 'CPU' backend.*backends: \[[^\]]*\bCUDA\b", re.DOTALL
)


class ProgramError(Exception):
    """Something is wrong with the program; the message says what, as one sentence."""


class OtherState(Exception):
    """A program lacks parameters or buffers of the reference (`missing`, by name). The judge may try again with secret inputs
    that leave these as the reference's constructor made them."""

    def __init__(self, reason: str, missing: list[str], held: int) -> None:
        super().__init__(reason)
        self.missing = missing
        self.held = held                   # how many numbers it holds that correspond to nothing in the reference


def describe_failure(error: BaseException, folder: Path) -> Failed:
    """Returns the answer for an exception. `folder`: the program's, whose lines in the traceback are named."""
    text = str(error).strip() or type(error).__name__
    if isinstance(error, ProgramError):
        return Failed(text)
    if isinstance(error, NotPlain):
        return Failed(f"forward returned {text}")
    if isinstance(error, OtherState):
        return Failed(text, "state", error.missing, error.held)
    if isinstance(error, BuildFailed):
        return Failed(f"the program's kernels do not build:\n{text}")
    if isinstance(error, WireError):
        return Failed(f"forward returned something that cannot be judged: {text}")
    if "nvmlInit" in text:                 # torch asks NVML when the device's memory is full; the sandbox forbids it
        return Failed(f"the program ran out of memory: the device's is full{_of_device(error, folder)}", "memory")
    if out_of_memory.is_out_of_memory(error):
        return Failed(f"the program ran out of memory: {text.splitlines()[0][:300]}", "memory")
    if isinstance(error, Unsupported | Unavailable):
        return Failed(text, "refused")
    if isinstance(error, NotImplementedError) and (answer := _describe_limit(text)):
        return answer
    where = _lines(error, folder)
    launch = launch_failures.find()
    cause = f"; {launch}" if launch and launch not in text else launch_failures.explain(text) if "CUDA error" in text else ""
    said = f": {text[:1500]}" if text != type(error).__name__ else ""
    return Failed(f"the program raised {type(error).__name__}{f' ({where})' if where else ''}{said}{cause}")


def _lines(error: BaseException, folder: Path) -> str:
    """The innermost lines in `folder` that an exception came through, or ""."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if folder in Path(frame.filename).parents]
    return ", ".join(f"{Path(frame.filename).name} line {frame.lineno}" for frame in frames[-_FRAMES:])


def _of_device(error: BaseException, folder: Path) -> str:
    """Where in the program memory of the GPU ran out, and how much there was."""
    free, total = (size / 2**30 for size in gpu_memory.free_and_total())
    held = torch.cuda.memory_allocated() / 2**30
    where = _lines(error, folder) or "outside of its own lines"
    return f" ({where}; its tensors hold {held:.1f} GiB, and {free:.1f} of {total:.1f} GiB are free)"


def _describe_limit(text: str) -> Failed | None:
    """Returns the answer for an exception that is a limit of ours and no fault of the program."""
    if operator := higher_order_operator(text):
        limit = f"it uses torch's operator {operator}, which runs other functions: what these do cannot be watched"
        return Failed(f"{limit}; write the choice or the loop in plain Python", "unwatched")
    if simulated_device.is_installed() and (found := _ONE_BACKEND.search(text)):
        limit = f"the operator {found[1]} has a kernel for CUDA tensors only, and on the simulator these are host memory"
        return Failed(limit, "refused")
    return None
