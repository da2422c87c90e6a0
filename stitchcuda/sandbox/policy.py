"""What one child may do and how much it may use. Plain data, no pydantic: the launcher of every compiler command reads it.

Where to look next: `sandbox/enforce.py` (how it is put in force), `sandbox/protections.py` (what then holds).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class Policy(NamedTuple):
    """Beyond the system's own folders, which may be read, and nothing, which may be written.

    The folder `/` in `write` leaves the file system as it is.
    """

    read: tuple[str | Path, ...] = ()
    write: tuple[str | Path, ...] = ()
    spawn: bool = False                    # may start other programs; False: threads only
    gpu: bool = False                      # needs the GPU's device files
    loopback: bool = False                 # its processes may speak TCP with each other, on a network that nobody else is on

    @property
    def all_files(self) -> bool:
        return any(os.fspath(place) == "/" for place in self.write)


class Bounds(NamedTuple):
    """Limits in bytes, tasks (processes and threads) and seconds of processor time; 0 means none."""

    memory: int = 0                        # resident, of the whole tree
    address: int = 0                       # mapped, of one process, beyond what it has at its start
    file: int = 0                          # one file
    disk: int = 0                          # all files in the folders it may write
    tasks: int = 0
    cpu: int = 0
    output: int = 0                        # printed, beyond what is kept


def policy_of(fields: dict[str, object]) -> Policy:
    """The inverse of `Policy._asdict()` after JSON."""
    plain = dict(fields)
    for name in ("read", "write"):
        places = plain.get(name, ())
        assert isinstance(places, list | tuple)
        plain[name] = tuple(os.fspath(place) for place in places)
    return Policy(**plain)  # type: ignore[arg-type]
