"""Chooses nvcc's target for a GPU: its own machine code where the toolkit knows it, else PTX that the driver compiles.

The suffix `a` (`sm_90a`), without which wgmma does not assemble, costs nothing: nvcc 13.0 compiled ten different kernels to the
same instructions as for `sm_90`. Such code runs on that one generation only, which is the one that a program is built for.
Where to look next: `tools/device/device.py` (which GPU), `tools/build/nvcc.py` (which compiles).
"""

from __future__ import annotations

import functools
import re
from pathlib import Path

from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.sandbox import command, digest_seal
from stitchcuda.tools.device.toolkit import Toolkit


def flags(kit: Toolkit, arch: str, *, cubin: bool) -> tuple[str, ...]:
    """Returns nvcc's flags for `arch` ("sm_90a"). A GPU that is newer than the toolkit gets PTX, and a note.

    A `cubin` is always machine code: for a newer GPU that of the newest older one. Raises `Unavailable` for a GPU that the
    toolkit does not build for any more, `BadInput` for what is no architecture.
    """
    if not re.fullmatch(r"sm_[1-9]\d{1,3}[af]?", arch):
        raise BadInput(f"{arch[:100]!r} is no architecture of a GPU; name it as nvcc does, such as sm_90a")
    number = arch.removeprefix("sm_")
    known = _known(kit.nvcc)
    if known and (generation := int(re.sub(r"\D", "", number))) not in known:
        older = [target for target in known if target < generation]
        if not older:
            oldest = f"the oldest is sm_{min(known)}"
            raise Unavailable(f"nvcc {kit.version} does not build for {arch} any more, {oldest}; install an older CUDA toolkit")
        number = str(max(older))
        ptx = f"kernels are PTX for compute_{number}, which the driver compiles"
        digest_seal.note(f"nvcc {kit.version} does not know {arch}: {ptx}")
        if not cubin:
            return (f"-gencode=arch=compute_{number},code=compute_{number}",)
    return (f"-arch=sm_{number}",) if cubin else (f"-gencode=arch=compute_{number},code=sm_{number}",)


@functools.cache
def _known(nvcc: Path) -> tuple[int, ...]:
    """The generations that this nvcc builds for, without suffixes, such as 90; () if it does not list them."""
    done = command.run((str(nvcc), "--list-gpu-code"), seconds=60)
    return tuple(int(number) for number in re.findall(r"\bsm_(\d+)", done.output)) if done.code == 0 else ()
