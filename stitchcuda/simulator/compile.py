"""One C++ file to one object, never twice: objects are named by what went into them.

The key is the source text, its own headers, the flags and the compiler, not the folder, so that an unchanged kernel in a new
copy of a program is not built again; a list of the other headers it read, with their sizes and times, is kept beside it and
checked before an object is used again. Compilers run in the sandbox and see nothing but what they need; what they made is moved
into the cache by us, sealed, by an atomic rename, so any number of processes may build into the same cache.
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

_SECONDS = 300.0                           # torch's headers take half a minute on two cores
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
    """Path of the C++ compiler and what it says of its version. Raises `Unavailable`."""
    path = next((found for name in (os.environ.get("CXX"), "g++", "c++") if name and (found := shutil.which(name))), None)
    if path is None:
        raise Unavailable("the simulator compiles kernels with a C++ compiler and found none; install g++, or set CXX")
    version = subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]
    return path, version


def compile_unit(unit: CompileUnit, cache_folder: Path) -> Path:
    """The object file of a unit, from the cache when nothing it depends on has changed. Raises `CompileError`."""
    path, _ = compiler()
    record = _record_of(unit, cache_folder)
    key = record.stem
    known = _recorded(record)
    if known is not None:
        return known
    record.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=record.parent, prefix="building-") as scratch:
        source, made, depends = (Path(scratch) / name for name in ("source.cpp", "made.o", "made.d"))
        source.write_text(f'#line 1 "{unit.file}"\n{unit.text}', encoding="utf-8")
        asked = [path, "-c", *unit.flags, "-iquote", str(unit.file.parent), "-MMD", "-MF", str(depends)]
        read = (unit.file.parent, *unit.read, cache_folder / "headers", cache_folder / "precompiled")
        run_compiler([*asked, "-o", str(made), str(source)], unit.file.name, scratch=Path(scratch), read=read)
        if _record_of(unit, cache_folder) != record:
            raise CompileError(unit.file.name, f"{unit.file}:1: error: the program's files changed while they were compiled")
        own = {os.path.normpath(header) for header in (source, *_quoted(unit))}
        names = [name for name in _dependencies(depends) if os.path.normpath(name) not in own]
        headers = [stamp for name in names if (stamp := _stamp(name)) is not None]
        target = record.parent / f"{key}-{digest(json.dumps(headers))[:12]}.o"
        digest_seal.put(made, target)
        listing = Path(scratch) / "record.json"
        listing.write_text(json.dumps({"object": target.name, "headers": headers}), encoding="utf-8")
        os.replace(listing, record)
    return target


def compiled(unit: CompileUnit, cache_folder: Path) -> Path | None:
    """The object file of a unit if the cache has it."""
    return _recorded(_record_of(unit, cache_folder))


def separated(objects: Sequence[Path]) -> list[Path]:
    """The objects of several .cu files, with functions and variables that more than one of them defines made private to each.

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
    """Strong symbols: templates and inline functions are weak and may be defined often."""
    listing = made.with_name(f"{made.stem}-{digest_seal.sha256(made)[:12]}.symbols")
    if digest_seal.state(listing) != "intact":
        with tempfile.TemporaryDirectory(dir=made.parent, prefix="building-") as scratch:
            asked = ["nm", "--defined-only", "--extern-only", str(made)]
            said = Path(scratch) / "symbols"
            said.write_text(run_compiler(asked, made.name, scratch=Path(scratch), read=(made.parent,)), encoding="utf-8")
            digest_seal.put(said, listing)
    rows = (line.split() for line in listing.read_text(encoding="utf-8").splitlines())
    return {row[2] for row in rows if len(row) == 3 and row[1] in "TDBR"}


def run_compiler(order: Sequence[str], what: str, *, scratch: Path, read: Sequence[Path] = ()) -> str:
    """Runs the compiler or linker in the sandbox, where it writes to `scratch` only; what it printed.

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
        raise CompileError(what, trimmed(done.output) or ended)
    return done.output


def trimmed(log: str) -> str:
    """A compiler's or linker's log without the noise: where headers were included, instantiated or expanded from."""
    lines = [line for line in log.splitlines() if not _NOISE.search(line)]
    missing = sorted(set(re.findall(r"undefined reference to `([^']+)'", log)))
    if missing:
        lines = [f"undefined reference to {name}: not defined in the program, nor by the simulator" for name in missing]
    if len(lines) > _SHOWN_LINES:
        lines = [*lines[:_SHOWN_LINES], f"... {counted(len(lines) - _SHOWN_LINES, 'more line')}"]
    return "\n".join(lines)


def digest(*parts: str) -> str:
    """SHA-256 of the parts, which are told apart from their concatenation."""
    made = hashlib.sha256()
    for part in parts:
        data = part.encode()
        made.update(f"{len(data)}:".encode() + data)
    return made.hexdigest()


def _record_of(unit: CompileUnit, cache_folder: Path) -> Path:
    key = digest(unit.file.name, *_own_headers(unit), unit.text, *unit.flags, *compiler())
    return cache_folder / "objects" / f"{key}.json"


def _own_headers(unit: CompileUnit) -> list[str]:
    """The headers of the unit's folder that it includes, themselves and what they include: the key holds their text."""
    return [f"{header.name}\0{header.read_text(encoding='utf-8', errors='replace')}" for header in _quoted(unit)]


def _quoted(unit: CompileUnit) -> list[Path]:
    """Files of the unit's folder that it takes in by quoted names, directly or not."""
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


def _recorded(record: Path) -> Path | None:
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
    """Names on the right side of a make rule as the compiler writes it."""
    text = rule.read_text(encoding="utf-8").replace("\\\n", " ").split(":", 1)[1]
    return [name.replace("\\ ", " ") for name in re.findall(r"(?:\\ |\S)+", text)]
