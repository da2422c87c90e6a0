"""Options that several commands have, with their help, and what `--gpus` means.

Where to look next: `cli/console.py` (options of all commands), `cli/app.py`, `cli/bench.py` and `cli/agent.py` (who has them).
"""

from __future__ import annotations

from typing import Annotated

import typer

from stitchcuda.errors import BadInput
from stitchcuda.state import Effort, Policy, Precision

Device = Annotated[str, typer.Option("--device", help="auto, cuda or sim (the CPU simulator).")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="One line per event, also in a terminal.")]
Tokens = Annotated[int | None, typer.Option("--max-tokens", min=1, help="Most tokens to read and write.")]
GpuSeconds = Annotated[float | None, typer.Option("--max-gpu-seconds", help="Most seconds on the GPU.")]
Minutes = Annotated[float | None, typer.Option("--max-minutes", help="Most minutes to run.")]
GpuMemory = Annotated[float | None, typer.Option("--gpu-memory-gb", metavar="GB", help="Most of the GPU's memory to use.")]
USD = typer.Option("--budget-usd", min=0, help="Most to spend on models whose price is known.")
ATTEMPTS = typer.Option("--max-attempts", min=1, help="Most programs to try.")
_POLICY = "stitched: torch's operators may remain; strict: none may compute, products only by cuBLASLt and cuDNN from own C++."
PolicyOption = Annotated[Policy, typer.Option("--policy", help=_POLICY)]
EffortOption = Annotated[
    Effort, typer.Option("--effort", help="Of the built-in engineer; low: operators keep the reference's form.")
]
PrecisionOption = Annotated[Precision, typer.Option("--precision", help="What the program may compute in.")]


def first_gpus(count: int) -> list[str]:
    """The first so many visible GPUs, as in CUDA_VISIBLE_DEVICES. Raises `BadInput` if there are fewer."""
    from stitchcuda.tools.device.nvidia_smi import visible_gpus

    found = visible_gpus()
    if count > len(found):
        raise BadInput(f"--gpus {count}: this machine has {len(found)} that can be used")
    return found[:count]
