"""Finds and runs Nsight Systems, and says in a sentence why it could not record.

`under` is put in front of a program's command line, `recorded` finds the report that this left, `exported` makes a SQLite file
of it. Every failure is one sentence with the remedy. It reads no report.
Where to look next: `tools/profile/nsys_export.py` (reads the SQLite file), `tools/profile/profiling.py` (the caller).
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from stitchcuda.errors import Unavailable
from stitchcuda.sandbox.command import Finished, Run

REPORT_SUFFIX = ".nsys-rep"
EXPORT_S = 300.0
"""Seconds for an export; one of a few hundred calls takes about two."""

_OPT, _LOCAL = Path("/opt/nvidia"), Path("/usr/local")
_OWN = (
    "nsight-systems*/*/bin/nsys", "nsight-systems*/*/target-*/nsys", "cuda*/nsight-systems-*/bin/nsys",
    "cuda*/nsight-systems-*/target-*/nsys", "cuda*/bin/nsys",
)  # fmt: skip
_BROUGHT = ("nsight-compute*/*/host/target-*/nsys", "cuda*/nsight-compute-*/host/target-*/nsys")
_BESIDE_NCU = ("host/target-*/nsys", "nsight-compute-*/host/target-*/nsys", "nsight-compute/*/host/target-*/nsys")
_SUFFIXES = (REPORT_SUFFIX, ".qdrep")      # before 2021.4 reports were called .qdrep
_LIBRARIES = {"libdw.so.1": "libdw1", "libelf.so.1": "libelf1"}  # what the importer loads, and Debian's packages of them
_PATH_IN_SCRIPT = re.compile(r"/[\w./+-]*nsight-compute[\w./+-]*")
_SCRIPT = 65536                            # bytes of a wrapper script that are looked at
_QUIET = re.compile(
    r"^\s*(?:$|/|Collecting data|Generating|Processing|Generated|\[\d+/\d+\]|No reports were|The target application returned)"
)
_PROGRAM_FAILED = re.compile(r"The target application returned non-zero exit code (-?\d+)")


def find_nsys(roots: Sequence[Path] = (_OPT, _LOCAL)) -> Path | None:
    """Finds nsys: on the PATH, in NVIDIA's usual folders, or in Nsight Compute's; None if there is none.

    Of several the newest is taken, Nsight Systems' own before those of Nsight Compute. Starts nothing.
    """
    if found := shutil.which("nsys"):
        return Path(found)
    for places in (_below(roots, _OWN), [*_below(roots, _BROUGHT), *_below(_around_ncu(), _BESIDE_NCU)]):
        usable = [place for place in places if place.is_file() and os.access(place, os.X_OK)]
        if usable:
            return max(usable, key=_version)
    return None


def _below(folders: Iterable[Path], patterns: Sequence[str]) -> list[Path]:
    return [place for folder in folders for pattern in patterns for place in folder.glob(pattern)]


def _version(place: Path) -> tuple[tuple[int, ...], str]:
    """Returns a sort key by the version in the path, such as 2025.3.1."""
    versions = re.findall(r"\d{4}(?:\.\d+)+", str(place.resolve()))
    return tuple(int(part) for part in versions[-1].split(".")) if versions else (), str(place)


def _around_ncu() -> Iterator[Path]:
    """Yields the folders above the real ncu: the one on the PATH is often a link, or a script that names the real one."""
    found = shutil.which("ncu")
    if found is None:
        return
    place = Path(found).resolve()
    yield from list(place.parents)[:4]
    with place.open("rb") as file:
        head = file.read(_SCRIPT)
    if head.startswith(b"#!"):
        for named in _PATH_IN_SCRIPT.findall(head.decode("utf-8", "replace")):
            yield from list(Path(named).resolve().parents)[:4]


def under(nsys: Path, report: Path) -> list[str]:
    """Returns the command to put before a program's: it records kernels, API calls and NVTX between cudaProfilerStart and Stop.

    `report` is the path of the report without its suffix. Nothing is sampled, since samples make a recording a thousand times
    larger. CUDA graphs are recorded kernel by kernel, which slows their launches down a little.
    """
    return [
        str(nsys),
        "profile",
        "--trace=cuda,nvtx",
        "--sample=none",
        "--cpuctxsw=none",
        "--cuda-graph-trace=node",
        "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop",
        "--force-overwrite=true",
        f"--output={str(report).replace('%', '%%')}",
    ]


def recorded(done: Finished, report: Path) -> Path:
    """Returns the report that a command behind `under` has left. Raises `Unavailable`, with reason and remedy, without one."""
    here = [report.with_name(report.name + suffix) for suffix in _SUFFIXES]
    found = next((place for place in here if place.is_file() and place.stat().st_size), None)
    if done.timed_out:
        raise Unavailable(f"nsys was ended after {done.seconds:.0f} s, its time limit: profile fewer calls or allow more time")
    said = done.output
    failed, nothing = _PROGRAM_FAILED.search(said), "No reports were generated" in said
    if found is not None and done.code == 0 and not failed and not nothing:
        return found
    if failed or (done.code and (nothing or found is not None)):
        raise Unavailable(f"the profiled program ended with code {failed.group(1) if failed else done.code}: {_last(said)}")
    if report.with_name(report.name + ".qdstrm").is_file() or "skipping importation" in said:
        raise Unavailable(f"nsys recorded, but cannot read its own recording: {_importing()}")
    if done.code == 127 and not said.strip():
        raise Unavailable("nsys is not there or does not start: install NVIDIA's nsight-systems")
    if re.search(r"unrecogni[sz]ed option|unknown option|Illegal (?:--)?[\w-]+ argument", said, re.IGNORECASE):
        raise Unavailable(f"nsys is too old for what is asked of it ({_last(said)}): install a newer nsight-systems")
    if re.search(r"permission denied|write permission|read-only file system|operation not permitted", said, re.IGNORECASE):
        raise Unavailable(f"nsys may not write or trace here ({_last(said)}): it needs to write {report.parent} and its TMPDIR")
    if re.search(r"no space left", said, re.IGNORECASE):
        raise Unavailable(f"no space left for a recording in {report.parent} or in TMPDIR: free some there")
    if nothing:
        raise Unavailable("nsys recorded nothing: the program never called cudaProfilerStart, or CUDA did not start in it")
    raise Unavailable(f"nsys ended with code {done.code} and left no report: {_last(said)}")


def exported(nsys: Path, report: Path, run: Run, *, env: Mapping[str, str] | None = None) -> Path:
    """Makes the SQLite file of a report, beside it. Raises `Unavailable` with the reason if that fails."""
    target = report.with_suffix(".sqlite")
    command = [str(nsys), "export", "--type=sqlite", "--force-overwrite=true", f"--output={target}", str(report)]
    own = nsys.resolve().parent.parent     # its folder, and that of its importer beside it
    done = run(command, seconds=EXPORT_S, cwd=report.parent, env=env, read=(own,), write=(report.parent,))
    if done.timed_out:
        raise Unavailable(f"nsys export was ended after {done.seconds:.0f} s, its time limit: profile fewer calls")
    if done.code == 0 and target.is_file() and target.stat().st_size:
        return target
    if "mporter" in done.output or missing_packages():
        raise Unavailable(f"nsys cannot export its report: {_importing()}")
    raise Unavailable(f"nsys export failed with code {done.code}: {_last(done.output)}")


def missing_packages() -> list[str]:
    """Returns the Debian packages of those libraries that the importer needs and that this machine lacks."""
    packages = []
    for library, package in _LIBRARIES.items():
        try:
            ctypes.CDLL(library)
        except OSError:
            packages.append(package)
    return packages


def _importing() -> str:
    """Returns why the importer fails, with the remedy; nsys only prints that it or a dependency was not found."""
    if packages := missing_packages():
        return f"its importer needs {' and '.join(packages)}; install them (apt install {' '.join(packages)})"
    return "its importer (QdstrmImporter) is not beside it or does not start; install NVIDIA's whole nsight-systems package"


def _last(output: str) -> str:
    """Returns the last line that is no progress message."""
    lines = [line.strip() for line in output.splitlines() if not _QUIET.search(line)]
    return lines[-1][:300] if lines else "it said nothing"
