"""Compiles one C++ file to an object in a cache, or takes it from there if nothing that went into it has changed.

The key is the source text, the headers of its folder, the flags and the compiler, but not the folder, so that an unchanged
kernel in a new copy of a program is not built again. A list of all other headers that it read, with sizes and times, is kept
beside the object and checked before it is used. Compilers run in the sandbox and see only what they need; objects are sealed
and moved into the cache by an atomic rename, so that any number of processes may build into the same cache.
Where to look next: `simulator/build.py` (who links the objects), `sandbox/command.py`, `sandbox/digest_seal.py`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from stitchcuda.counts import counted
from stitchcuda.errors import StitchError, Unavailable
from stitchcuda.sandbox import command, digest_seal, limits
from stitchcuda.simulator.headers import HERE, cuda_includes

_SECONDS = 300.0                           # for one compiler command; torch's headers take half a minute on two cores
_SHOWN_LINES = 60
_NOISE = re.compile(r"In file included from|^\s+from |note: in (?:expansion|definition) of macro|In instantiation of")


class CompileError(StitchError):
    """The compiler refused a program. `log` holds its errors in the program's own files and lines."""

    def __init__(self, what: str, log: str) -> None:
        first = next((line for line in log.splitlines() if "error" in line or "undefined" in line), log.strip().split("\n")[0])
        super().__init__(f"{what} does not compile for the simulator: {first.strip()}")
        self.log = log


@dataclass(frozen=True)
class CompileUnit:
    """A file to compile: `text` is compiled as if it were `file`."""

    file: Path  # for messages and quoted includes
    text: str
    flags: tuple[str, ...]
    read: tuple[Path, ...] = ()  # folders of headers that the compiler may see beyond its own and ours


@cache
def compiler() -> tuple[str, str]:
    """Returns the C++ compiler's path and the first line of its --version. Raises `Unavailable` if there is none."""
    path = next((found for name in (os.environ.get("CXX"), "g++", "c++") if name and (found := shutil.which(name))), None)
    if path is None:
        raise Unavailable("the simulator compiles kernels with a C++ compiler and found none; install g++, or set CXX")
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    return path, version


def compile_unit(unit: CompileUnit, cache_folder: Path) -> Path:
    """Returns the object file of a unit, from the cache if nothing it depends on has changed. Raises `CompileError`."""
    path, _ = compiler()
    record = _record_path(unit, cache_folder)
    key = record.stem
    known = _read_record(record)
    if known is not None:
        return known
    record.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=record.parent, prefix="building-") as scratch:
        folder = Path(scratch) / "source"       # the file has its own name in a table of lines
        folder.mkdir()
        source, made, depends = folder / unit.file.name, Path(scratch) / "made.o", Path(scratch) / "made.d"
        source.write_text(f'#line 1 "{unit.file}"\n{unit.text}', encoding="utf-8")
        order = [path, "-c", *unit.flags, "-iquote", str(unit.file.parent), "-MMD", "-MF", str(depends)]
        read = (unit.file.parent, *unit.read, cache_folder / "headers", cache_folder / "precompiled")
        run_compiler([*order, "-o", str(made), "-x", "c++", str(source)], unit.file.name, scratch=Path(scratch), read=read)
        if _record_path(unit, cache_folder) != record:
            raise CompileError(unit.file.name, f"{unit.file}:1: error: the program's files changed while they were compiled")
        own = {os.path.normpath(header) for header in (source, *_own_headers(unit))}
        names = [name for name in _dependencies(depends) if os.path.normpath(name) not in own]
        headers = [stamp for name in names if (stamp := _stamp(name)) is not None]
        target = record.parent / f"{key}-{digest(json.dumps(headers))[:12]}.o"
        digest_seal.put(made, target)
        listing = Path(scratch) / "record.json"
        listing.write_text(json.dumps({"object": target.name, "headers": headers}), encoding="utf-8")
        os.replace(listing, record)
    return target


def find_compiled(unit: CompileUnit, cache_folder: Path) -> Path | None:
    """Returns the object file of a unit from the cache, or None if it has to be compiled."""
    return _read_record(_record_path(unit, cache_folder))


def localize_shared_symbols(objects: Sequence[Path]) -> list[Path]:
    """Returns objects of several .cu files in which symbols that more than one of them defines are private to each.

    Under nvcc every file has device code of its own, so two files may define different device functions of one name.
    """
    if len(objects) < 2:
        return list(objects)
    defined = [_defined_symbols(made) for made in objects]
    shared = sorted(symbol for symbol in set().union(*defined) if sum(symbol in own for own in defined) > 1)
    if not shared:
        return list(objects)
    private = []
    for made in objects:
        target = made.with_name(f"{made.stem}-{digest(*shared)[:12]}.o")
        if digest_seal.state(target) != "intact":
            with tempfile.TemporaryDirectory(dir=made.parent, prefix="building-") as scratch:
                copy = Path(scratch) / "made.o"
                names = [part for symbol in shared for part in ("--localize-symbol", symbol)]
                run_compiler(["objcopy", *names, str(made), str(copy)], made.name, scratch=Path(scratch), read=(made.parent,))
                digest_seal.put(copy, target)
        private.append(target)
    return private


def _defined_symbols(made: Path) -> set[str]:
    """Returns the strong symbols that an object defines: templates and inline functions are weak and may be defined often."""
    listing = made.with_name(f"{made.stem}-{digest_seal.sha256(made)[:12]}.symbols")
    if digest_seal.state(listing) != "intact":
        with tempfile.TemporaryDirectory(dir=made.parent, prefix="building-") as scratch:
            order = ["nm", "--defined-only", "--extern-only", str(made)]
            listed = Path(scratch) / "symbols"
            listed.write_text(run_compiler(order, made.name, scratch=Path(scratch), read=(made.parent,)), encoding="utf-8")
            digest_seal.put(listed, listing)
    rows = (line.split() for line in listing.read_text(encoding="utf-8").splitlines())
    return {row[2] for row in rows if len(row) == 3 and row[1] in "TDBR"}


def run_compiler(order: Sequence[str], what: str, *, scratch: Path, read: Sequence[Path] = ()) -> str:
    """Runs the compiler or linker in the sandbox, where it writes to `scratch` only. Returns what it printed.

    Raises `CompileError` with a log trimmed for reading.
    """
    done = command.run(
        order,
        seconds=_SECONDS,
        cwd=scratch,
        env=limits.clean_environment({"TMPDIR": str(scratch)}),
        read=tuple(dict.fromkeys(path for path in (HERE, *cuda_includes(), *read) if path.exists())),
        write=(scratch,),
    )
    if done.timed_out:
        raise CompileError(what, f"{what}:1: error: the compiler did not finish within {_SECONDS:.0f} s")
    if done.code != 0:
        ended = f"{what}:1: error: the compiler ended with {limits.signal_name(done.code)}"
        raise CompileError(what, trim_log(done.output) or ended)
    return done.output


def trim_log(log: str) -> str:
    """Returns a compiler's or linker's log, cut to `_SHOWN_LINES`, without lines on where headers were included from and the
    like."""
    lines = [line for line in log.splitlines() if not _NOISE.search(line)]
    missing = sorted(set(re.findall(r"undefined reference to `([^']+)'", log)))
    if missing:
        lines = [f"undefined reference to {name}: not defined in the program, nor by the simulator" for name in missing]
    if len(lines) > _SHOWN_LINES:
        lines = [*lines[:_SHOWN_LINES], f"... {counted(len(lines) - _SHOWN_LINES, 'more line')}"]
    return "\n".join(lines)


def digest(*parts: str) -> str:
    """Returns the SHA-256 of the parts: ("a", "b") and ("ab",) differ."""
    made = hashlib.sha256()
    for part in parts:
        data = part.encode()
        made.update(f"{len(data)}:".encode() + data)
    return made.hexdigest()


def _record_path(unit: CompileUnit, cache_folder: Path) -> Path:
    key = digest(unit.file.name, *_header_texts(unit), unit.text, *unit.flags, *compiler())
    return cache_folder / "objects" / f"{key}.json"


def _header_texts(unit: CompileUnit) -> list[str]:
    """Returns names and texts of the unit's own headers, for the key."""
    return [f"{header.name}\0{header.read_text(encoding='utf-8', errors='replace')}" for header in _own_headers(unit)]


def _own_headers(unit: CompileUnit) -> list[Path]:
    """Returns the headers of the unit's folder that it includes by quoted names, directly or not."""
    found: dict[Path, None] = {}
    waiting = [(unit.text, unit.file.parent)]
    while waiting:
        text, folder = waiting.pop()
        for name in re.findall(r'(?m)^[ \t]*#[ \t]*include[ \t]*"([^"/\n][^"\n]*)"', text):
            header = next((place / name for place in (folder, unit.file.parent) if (place / name).is_file()), None)
            if header is not None and header not in found:
                found[header] = None
                waiting.append((header.read_text(encoding="utf-8", errors="replace"), header.parent))
    return list(found)


def _read_record(record: Path) -> Path | None:
    try:
        found = json.loads(record.read_text(encoding="utf-8"))
        target = record.parent / str(found["object"])
        unchanged = all(_stamp(header[0]) == header for header in found["headers"])
    except (OSError, ValueError, KeyError):
        return None
    return target if unchanged and digest_seal.state(target) == "intact" else None


def _stamp(name: str) -> list[str | int] | None:
    try:
        status = os.stat(name)
    except OSError:
        return None
    return [name, status.st_size, status.st_mtime_ns]


def _dependencies(rule: Path) -> list[str]:
    """Returns the names on the right side of a make rule that the compiler wrote."""
    text = rule.read_text(encoding="utf-8").replace("\\\n", " ").split(":", 1)[1]
    return [name.replace("\\ ", " ") for name in re.findall(r"(?:\\ |\S)+", text)]
