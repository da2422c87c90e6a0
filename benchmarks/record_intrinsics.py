"""Records what CUDA's intrinsics return on a real GPU, for the simulator's tests to compare with.

    python benchmarks/record_intrinsics.py [--nvcc PATH] [--arch native]

Builds every tests/simulator/intrinsics/*.cu with nvcc, runs all cases on the first GPU and writes
tests/simulator/intrinsics_recorded.json: where and when it was recorded, and the raw result words of each case as fixed-width
hexadecimal. Needs nothing but Python, nvcc and a GPU. It never looks at the simulator.
"""

from __future__ import annotations

import argparse
import ctypes
import datetime
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ROOT / "tests" / "simulator" / "intrinsics"
RECORD = ROOT / "tests" / "simulator" / "intrinsics_recorded.json"
DIGITS = {"u8": 2, "u16": 4, "f16": 4, "bf16": 4, "u32": 8, "f32": 8, "f16x2": 8, "bf16x2": 8, "u64": 16, "f64": 16}


def build(nvcc: str, arch: str, source: Path, folder: Path) -> Path:
    library = folder / f"{source.stem}.so"
    command = [nvcc, "-std=c++17", "-O2", f"-arch={arch}", "-shared", "-Xcompiler", "-fPIC", "-o", str(library), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"nvcc failed on {source.name}:\n{done.stderr[-4000:]}")
    return library


def run_cases(library: Path) -> dict[str, dict[str, str]]:
    """Runs every case of one library; exits with the case's name when CUDA reports an error."""
    module = ctypes.CDLL(str(library))
    for function in (module.case_name, module.case_result, module.case_error):
        function.restype = ctypes.c_char_p
    recorded: dict[str, dict[str, str]] = {}
    for i in range(module.case_count()):
        name, kind = module.case_name(i).decode(), module.case_result(i).decode()
        words = (ctypes.c_ulonglong * module.case_words(i))()
        status = module.case_run(i, words)
        if status != 0:
            sys.exit(f"{library.stem}/{name}: {module.case_error(status).decode()}")
        recorded[name] = {"result": kind, "words": "".join(f"{word:0{DIGITS[kind]}x}" for word in words)}
    return recorded


def output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvcc", default=shutil.which("nvcc") or "nvcc")
    parser.add_argument("--arch", default="native")
    parser.add_argument("--out", type=Path, default=RECORD)
    options = parser.parse_args()
    sources = sorted(SOURCES.glob("*.cu"))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        libraries = list(pool.map(lambda source: build(options.nvcc, options.arch, source, Path(folder)), sources))
        cases = {library.stem: run_cases(library) for library in libraries}
    devices = output_of("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader")
    gpu, driver = devices.splitlines()[0].split(", ")
    release = re.search(r"release ([\d.]+)", output_of(options.nvcc, "--version"))
    record = {
        "date": datetime.date.today().isoformat(),
        "gpu": gpu,
        "driver": driver,
        "cuda": release.group(1) if release else "unknown",
        "cases": cases,
    }
    options.out.write_text(json.dumps(record, indent=1) + "\n")
    print(f"{sum(map(len, cases.values()))} cases recorded on {gpu}, driver {driver}: {options.out}")


if __name__ == "__main__":
    main()
