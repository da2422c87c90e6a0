"""Measures once which bandwidth and FLOP rates this GPU reaches, and caches them: `python -m stitchcuda.tools.device.ceilings`.

A process of its own measures (`tools/device/ceilings_worker.py`), so the caller needs no torch and holds no CUDA context. The
result is JSON in the user's cache, under GPU, driver, torch and its CUDA. Figures outside of the GPU's data sheet, and medians
whose interval is wider than `STEADY`, are refused; the caller then uses nominal figures and says why.
Where to look next: `tools/device/device.py` (uses them), `tools/device/data_sheets.py` (the bounds).
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
    """The key of a measurement: it is used until one of these changes."""

    name: str
    capability: str
    driver: str
    torch: str
    cuda: str                              # the version that torch was built for


class MeasuredCeilings(Record):
    """The rates that one GPU reached. GB/s count reads plus writes, 1e9 bytes per second; tflops are dense, 1e12 per second."""

    host: MeasuredHost
    sm_count: int
    memory_bytes: int
    l2_bytes: int
    bandwidth_gbs: Median                  # a copy far larger than L2
    tflops: dict[str, Median]              # torch's matrix products by dtype, at the best size
    operator_us: Median                    # host time of one eager pointwise operator, back to back
    kernel_us: Median | None = None        # device time of a tiny kernel inside a CUDA graph
    l2_gbs: Median | None = None           # a copy inside L2, launches included: at least so much
    seconds: float = 0.0
    notes: tuple[str, ...] = ()            # what was left out, and why


def torch_versions() -> tuple[str, str]:
    """Returns (torch's version, the CUDA version it was built for), read from its files; ("", "") without torch."""
    found = importlib.util.find_spec("torch")
    if found is None or found.origin is None:
        return "", ""
    text = (Path(found.origin).parent / "version.py").read_text()
    cuda = re.search(r"^cuda\b.*?=\s*'([\d.]+)'", text, re.MULTILINE)
    return importlib.metadata.version("torch"), cuda.group(1) if cuda else ""


def host_of(gpu: Gpu) -> MeasuredHost:
    """Returns the key under which measurements of this GPU are cached."""
    torch, cuda = torch_versions()
    return MeasuredHost(name=gpu.name, capability=gpu.capability, driver=gpu.driver, torch=torch, cuda=cuda)


def read_cached(host: MeasuredHost, cache: Path | None = None) -> MeasuredCeilings | None:
    """Returns what was measured on this host before; None where nothing was, or where the file is damaged or implausible.

    `cache`: a folder in place of the user's cache.
    """
    try:
        path = _place(host, cache)
        found = MeasuredCeilings.model_validate_json(path.read_bytes()) if path.is_file() else None
        whole = found is not None and found.host == host and plausible(found, sheet_of(host.name)) == found
    except (OSError, ValidationError, Unavailable):  # of another version, torn or changed: it is measured again
        return None
    return found if whole else None


def write_cached(reached: MeasuredCeilings, cache: Path | None = None) -> str:
    """Writes a measurement to the cache. Returns "", or why it could not be written."""
    try:
        write_atomically(_place(reached.host, cache), reached.model_dump_json(indent=1).encode())
    except (StitchError, OSError) as error:
        return f"the measured ceilings are not kept: {error}"
    return ""


def measure(host: MeasuredHost, *, limit_s: float = LIMIT_S, command: tuple[str, ...] = ()) -> MeasuredCeilings:
    """Measures in a new process. Raises `Unavailable` if it fails, takes longer than `limit_s`, or gives implausible figures.

    `command`: what to run instead of the worker, for tests.
    """
    run = command or (sys.executable, "-m", "stitchcuda.tools.device.ceilings_worker", host.name)
    try:
        done = subprocess.run(run, capture_output=True, text=True, errors="replace", timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"the GPU's ceilings could not be measured: no answer within {limit_s:.0f} s") from None
    if done.returncode != 0:
        why = (done.stderr.strip() or f"exit code {done.returncode}").splitlines()[-1]
        raise Unavailable(f"the GPU's ceilings could not be measured: {why}")
    try:
        reached = MeasuredCeilings(host=host, **json.loads(done.stdout))
    except (ValueError, TypeError) as error:
        raise Unavailable(f"the GPU's ceilings could not be measured: unreadable answer {done.stdout[:200]!r}") from error
    return plausible(reached, sheet_of(host.name))


def plausible(reached: MeasuredCeilings, sheet: DataSheet | None) -> MeasuredCeilings:
    """Returns the measurement without the FLOP rates that cannot be true; a note names each of them.

    Refused are figures that are not positive, medians whose interval is wider than `STEADY`, and figures outside of the data
    sheet's bounds (`tools/device/data_sheets.py`). Raises `Unavailable` where the bandwidth or a time is refused.
    """
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


def ceilings_of(
    gpu: Gpu, *, measuring: bool, again: bool = False, cache: Path | None = None
) -> tuple[MeasuredCeilings | None, str]:
    """Returns this GPU's cached ceilings; else, with `measuring`, measures and caches them. The text says what went wrong.

    `again`: measures even where there is a cached measurement.
    """
    host = host_of(gpu)
    found = None if again else read_cached(host, cache)
    if found is not None:
        return found, ""
    if not measuring:
        return None, "nothing was measured on this machine yet: python -m stitchcuda.tools.device.ceilings"
    try:
        found = measure(host)
    except Unavailable as failure:
        return None, str(failure)
    return found, write_cached(found, cache)


def table(reached: MeasuredCeilings) -> str:
    """Returns the figures of one GPU as lines for people."""

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
    """Measures and caches. JSON goes to stdout, a table and errors to stderr. Exits with 2 where nothing was measured."""
    parser = argparse.ArgumentParser(description="Measure what the first GPU reaches, once, and keep it.")
    parser.add_argument("--again", action="store_true", help="measure even where a measurement is kept")
    again = parser.parse_args().again
    gpu, why = first_gpu()
    found, why = ceilings_of(gpu, measuring=True, again=again) if gpu else (None, f"no GPU: {why}")
    if why:
        print(why if found else f"ceilings: {why}", file=sys.stderr)
    if found is None:
        sys.exit(2)
    print(table(found), file=sys.stderr)
    print(found.model_dump_json())


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
