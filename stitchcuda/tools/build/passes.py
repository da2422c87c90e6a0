"""Runs nvcc's host and device passes for one object side by side, from the commands of nvcc's dry run.

nvcc runs six programs in a row; its dry run prints them as a shell would take them. One script runs the two halves at once,
which takes about a third less time on two cores and more. What the passes read, print and make is the same. A dry run that
does not look as expected is left to nvcc itself.
Where to look next: `tools/build/extension_build.py`, `tools/build/nvcc.py` (which call this).
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from stitchcuda.sandbox.command import Finished

Run = Callable[[Sequence[str], Path], Finished]
"""run(command, folder) runs a command in `folder`, in the sandbox, where it may write."""

_PLAIN = re.compile(r"[\w@%+=:,./ -]*")    # words that need no quotes, in what nvcc prints and in a shell
_ASSIGNED = re.compile(r"(PATH|LD_LIBRARY_PATH|CICC_PATH|NVVMIR_LIBRARY_DIR)=(.*)")
_MARK = "@@{}@@"                           # stands for a path in a cached dry run
_dry_runs: dict[tuple[str, ...], str] = {}  # by order, without the folders of its files
_MODULE = "--gen_module_id_file"           # makes cudafe++ write the file that both halves read


class NvccCommands(NamedTuple):
    """The commands of one dry run, each a line for a shell."""

    settings: tuple[tuple[str, str], ...]
    host: tuple[str, ...]                  # preprocessor, cudafe++
    device: tuple[str, ...]                # preprocessor, cicc, ptxas, fatbinary
    last: str                              # the host's compiler, which reads what both halves made
    module: str                            # the path of the file with the translation unit's name


def compile_object(order: Sequence[str], made: Path, scratch: Path, run: Run) -> Finished | None:
    """Runs what nvcc would run for `order` (compiler, flags, `-c`, source) to make the object `made`.

    Returns None where nvcc has to do it itself. `scratch` is an empty folder. If both halves fail, the errors are those of the
    half that nvcc runs first.
    """
    if not all(_PLAIN.fullmatch(word) for word in (*order, str(made), str(scratch))):
        return None
    found = _plan(order, made, scratch, run)
    if found is None:
        return None
    name = hashlib.sha256("\0".join((*order, Path(order[-1]).read_text("utf-8", "replace"))).encode()).hexdigest()
    stem = re.sub(r"\W", "_", Path(order[-1]).name)
    Path(found.module).write_text(f"_{name[:8]}_{len(stem)}_{stem}_{name[8:16]}")
    return run(("/bin/sh", "-c", _script(found)), scratch)


def _plan(order: Sequence[str], made: Path, scratch: Path, run: Run) -> NvccCommands | None:
    """Returns the passes of a dry run. A dry run is used again for other files of the same name: only three paths differ."""
    places = (str(scratch), str(made), order[-1])
    key = (*order[:-1], Path(order[-1]).name, made.name)
    if key not in _dry_runs:
        done = run((order[0], "--dryrun", "--keep", "--keep-dir", str(scratch), *order[1:], "-o", str(made)), scratch)
        if done.code != 0:
            return None
        dry = done.output
        for number, place in enumerate(places):
            dry = dry.replace(place, _MARK.format(number))
        _dry_runs[key] = dry
    dry = _dry_runs[key]
    for number, place in enumerate(places):
        dry = dry.replace(_MARK.format(number), place)
    return parse_dry_run(dry)


def parse_dry_run(dry: str) -> NvccCommands | None:
    """Returns the passes in a dry run's output; None unless they are the seven known ones, each of them once."""
    lines = [line.removeprefix("#$ ").strip() for line in dry.splitlines() if line.startswith("#$ ")]
    settings = tuple((hit[1], hit[2].strip()) for line in lines if (hit := _ASSIGNED.fullmatch(line)))
    commands = [line for line in lines if not re.match(r"\w+=", line) and not line.startswith("rm ")]
    kinds: dict[str, list[str]] = {}
    for line in commands:
        kinds.setdefault(_kind(line), []).append(line)
    wanted = ("host", "cudafe++", "device", "cicc", "ptxas", "fatbinary", "object")
    if sorted(kinds) != sorted(wanted) or any(len(found) != 1 for found in kinds.values()):
        return None
    command_by_kind = {kind: found[0] for kind, found in kinds.items()}
    module = re.search(r'--module_id_file_name "([^"]+)"', command_by_kind["cudafe++"])
    if module is None or _MODULE not in command_by_kind["cudafe++"]:
        return None
    front = command_by_kind["cudafe++"].replace(f"{_MODULE} ", "")
    device = tuple(command_by_kind[kind] for kind in ("device", "cicc", "ptxas", "fatbinary"))
    return NvccCommands(settings, (command_by_kind["host"], front), device, command_by_kind["object"], module[1])


def _script(passes: NvccCommands) -> str:
    """The whole build for /bin/sh in an empty folder. It prints what the passes print, the host's half first."""
    settings = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in passes.settings)
    host, device = " &&\n".join(passes.host), " &&\n".join(passes.device)
    return f"""\
{settings}
( {host} ) >host.log 2>&1 & host=$!
( {device} ) >device.log 2>&1 & device=$!
wait $host || {{ cat host.log; exit 1; }}
wait $device || {{ cat device.log; exit 1; }}
cat host.log device.log
{passes.last}
"""


def _kind(line: str) -> str:
    words = line.split(maxsplit=1)
    program = Path(words[0].strip('"')).name
    if program in ("cudafe++", "cicc", "ptxas", "fatbinary"):
        return program
    if " -E " in line:
        return "device" if "-D__CUDA_ARCH__=" in line else "host"
    return "object" if " -c " in line else "other"
