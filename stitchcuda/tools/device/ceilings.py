"""Keeps the bandwidth and FLOP rates that this GPU reaches, measured once: `python -m stitchcuda.tools.device.ceilings`.

Measured in a process of its own (`tools/device/ceilings_worker.py`), so whoever asks needs no torch and holds no CUDA context.
Kept as JSON in the user's cache under GPU, driver, torch and its CUDA. What lies outside of the GPU's data sheet is refused and
what wavered is too; the caller then keeps its nominal figures and the reason. Where to look next: `tools/device/device.py`,
`tools/device/data_sheets.py`.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import importlib.util
import json
import math
import re
import subprocess
import sys
from pathlib import Path

from pydantic import ValidationError

from stitchcuda.errors import StitchError, Unavailable
from stitchcuda.state import Record
from stitchcuda.store import write_atomically
from stitchcuda.tools.device.data_sheets import DataSheet, objection, sheet_of
from stitchcuda.tools.device.interval import Median
from stitchcuda.tools.device.nvidia_smi import Gpu, first_gpu
from stitchcuda.tools.device.toolkit import user_cache

STEADY = 0.10                              # a wider interval, relative to the median, means that the GPU was busy
LIMIT_S = 120.0                            # about 10 s of measuring; importing torch on a cold disk and waiting for a turn


class MeasuredHost(Record):
    """What a measurement is kept under: it holds until one of these changes."""

    name: str
    capability: str
    driver: str
    torch: str
    cuda: str                              # that torch was built for


class MeasuredCeilings(Record):
    """What one GPU reached. GB/s count reads plus writes, 1e9 bytes per second; rates are dense, 1e12 per second."""

    host: MeasuredHost
    sm_count: int
    memory_bytes: int
    l2_bytes: int
    bandwidth_gbs: Median                  # a copy far larger than L2
    tflops: dict[str, Median]              # matrix products of torch by dtype, the best size
    operator_us: Median                    # host time of one eager pointwise operator, back to back
    kernel_us: Median | None = None        # device time of a tiny kernel inside a CUDA graph
    l2_gbs: Median | None = None           # a copy inside L2, launches included: at least so much
    seconds: float = 0.0
    notes: tuple[str, ...] = ()            # what was left out, and why


def torch_versions() -> tuple[str, str]:
    """(version of torch, version of CUDA it was built for), read from its files; "" where there is none."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return "", ""
    text = (Path(found.origin).parent / "version.py").read_text()
    cuda = re.search(r"^cuda\b.*?=\s*'([\d.]+)'", text, re.MULTILINE)
    return importlib.metadata.version("torch"), cuda.group(1) if cuda else ""


def host_of(gpu: Gpu) -> MeasuredHost:
    torch, cuda = torch_versions()
    return MeasuredHost(name=gpu.name, capability=gpu.capability, driver=gpu.driver, torch=torch, cuda=cuda)


def kept(host: MeasuredHost, cache: Path | None = None) -> MeasuredCeilings | None:
    """What was measured under the same names before; None where nothing was, or its file is not what was kept there."""
    try:
        path = _place(host, cache)
        found = MeasuredCeilings.model_validate_json(path.read_bytes()) if path.is_file() else None
        whole = found is not None and found.host == host and sound(found, sheet_of(host.name)) == found
    except (OSError, ValidationError, Unavailable):  # of another version, torn or changed: it is measured again
        return None
    return found if whole else None


def keep(reached: MeasuredCeilings, cache: Path | None = None) -> str:
    """Keeps a measurement and returns "", or the reason why it could not be kept."""
    try:
        write_atomically(_place(reached.host, cache), reached.model_dump_json(indent=1).encode())
    except (StitchError, OSError) as error:
        return f"the measured ceilings are not kept: {error}"
    return ""


def measure(host: MeasuredHost, *, limit_s: float = LIMIT_S, command: tuple[str, ...] = ()) -> MeasuredCeilings:
    """Measures in a new process. Raises `Unavailable` with the reason: no room, another GPU, a figure that cannot be.

    `command`: what to run instead of the worker, for tests.
    """
    run = command or (sys.executable, "-m", "stitchcuda.tools.device.ceilings_worker", host.name)
    try:
        done = subprocess.run(run, capture_output=True, text=True, errors="replace", timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"the GPU's ceilings could not be measured: no answer within {limit_s:.0f} s") from None
    if done.returncode != 0:
        said = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise Unavailable(f"the GPU's ceilings could not be measured: {said}")
    try:
        reached = MeasuredCeilings(host=host, **json.loads(done.stdout))
    except (ValueError, TypeError) as error:
        raise Unavailable(f"the GPU's ceilings could not be measured: unreadable answer {done.stdout[:200]!r}") from error
    return sound(reached, sheet_of(host.name))


def sound(reached: MeasuredCeilings, sheet: DataSheet | None) -> MeasuredCeilings:
    """The measurement less the rates that cannot be, each with a note. Raises `Unavailable` for what is always needed."""
    bandwidth = reached.bandwidth_gbs
    needed = {"copy bandwidth": bandwidth, "operator's time": reached.operator_us}
    optional = (("kernel's time", reached.kernel_us), ("L2 bandwidth", reached.l2_gbs))
    needed |= {name: figure for name, figure in optional if figure}
    wrong = next((why for name, figure in needed.items() if (why := _impossible(name, figure))), "")
    wrong = wrong or ("" if reached.sm_count > 0 else f"{reached.sm_count} SMs cannot be")
    wrong = wrong or _unsteady("copy bandwidth", bandwidth)
    wrong = wrong or (objection("a copy bandwidth in GB/s", bandwidth.value, sheet.bandwidth_gbs) if sheet else "")
    if wrong:
        raise Unavailable(f"the GPU's ceilings could not be measured: {wrong}")
    rates, notes = {}, list(reached.notes)
    for dtype, rate in reached.tflops.items():
        listed = sheet.tflops.get(dtype) if sheet else None
        wrong = _impossible(f"{dtype} rate", rate) or _unsteady(f"{dtype} rate", rate)
        wrong = wrong or (objection(f"a {dtype} rate in TFLOP/s", rate.value, listed) if listed else "")
        if wrong:
            notes.append(f"left out: {wrong}")
        else:
            rates[dtype] = rate
    return reached.model_copy(update={"tflops": rates, "notes": tuple(notes)})


def known(gpu: Gpu, *, measuring: bool, cache: Path | None = None) -> tuple[MeasuredCeilings | None, str]:
    """What this GPU reaches, and a sentence where it is not known or not kept. Measures, if asked to, where nothing is kept."""
    host = host_of(gpu)
    found = kept(host, cache)
    if found is not None:
        return found, ""
    if not measuring:
        return None, "nothing was measured on this machine yet: python -m stitchcuda.tools.device.ceilings"
    try:
        found = measure(host)
    except Unavailable as failure:
        return None, str(failure)
    return found, keep(found, cache)


def text(reached: MeasuredCeilings) -> str:
    """A few lines for people."""

    def line(name: str, rate: Median, unit: str) -> str:
        return f"{name:<12} {rate.value:10.4g} {unit:<8} {rate.low:.4g} to {rate.high:.4g}, {rate.samples} samples"

    host = reached.host
    lines = [f"{host.name}, driver {host.driver}, torch {host.torch} (CUDA {host.cuda}), {reached.seconds:.1f} s"]
    lines += [f"{reached.sm_count} SMs, {reached.memory_bytes / 2**30:.1f} GiB, L2 {reached.l2_bytes / 2**20:.0f} MiB"]
    lines.append(line("copy", reached.bandwidth_gbs, "GB/s"))
    lines += [line("copy in L2", reached.l2_gbs, "GB/s")] if reached.l2_gbs else []
    lines += [line(dtype, rate, "TFLOP/s") for dtype, rate in reached.tflops.items()]
    lines.append(line("operator", reached.operator_us, "us"))
    lines += [line("kernel", reached.kernel_us, "us")] if reached.kernel_us else []
    return "\n".join([*lines, *(f"note: {note}" for note in reached.notes)])


def main() -> None:
    """Measures and keeps; JSON on stdout, a table and what went wrong on stderr. Exit code 2 where nothing was measured."""
    parser = argparse.ArgumentParser(description="Measure what the first GPU reaches, once, and keep it.")
    parser.add_argument("--again", action="store_true", help="measure even where a measurement is kept")
    given = parser.parse_args()
    gpu, why = first_gpu()
    if gpu is None:
        sys.exit(_ended(f"no GPU: {why}"))
    host = host_of(gpu)
    found = None if given.again else kept(host)
    if found is None:
        try:
            found = measure(host)
        except Unavailable as failure:
            sys.exit(_ended(str(failure)))
        if note := keep(found):
            print(note, file=sys.stderr)
    print(text(found), file=sys.stderr)
    print(found.model_dump_json())


def _ended(why: str) -> int:
    print(f"ceilings: {why}", file=sys.stderr)
    return 2


def _impossible(what: str, rate: Median) -> str:
    if all(0 < figure < math.inf for figure in (rate.low, rate.value, rate.high)):
        return ""
    return f"the {what} of {rate.value:.4g} ({rate.low:.4g} to {rate.high:.4g}) cannot be"


def _unsteady(what: str, rate: Median) -> str:
    if rate.spread <= STEADY:
        return ""
    return f"the {what} wavers by {rate.spread:.0%} ({STEADY:.0%} may be): the GPU is busy with something else"


def _place(host: MeasuredHost, cache: Path | None) -> Path:
    name = hashlib.sha256(host.model_dump_json().encode()).hexdigest()[:24]
    return (cache or user_cache()) / "ceilings" / f"{name}.json"


if __name__ == "__main__":
    main()
