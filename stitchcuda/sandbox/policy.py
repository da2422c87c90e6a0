"""Holds what one child may do (`Policy`) and how much it may use (`Bounds`), as plain tuples.

They are not pydantic records, because the launcher of every compiler command reads them and must start quickly.
Where to look next: `sandbox/enforce.py` (how they are enforced), `sandbox/protections.py` (what then holds).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class Policy(NamedTuple):
    """What a child may do. It may always read the system's own folders. With the folder `/` in `write` the file system stays as
    it is.
    """

    read: tuple[str | Path, ...] = ()
    write: tuple[str | Path, ...] = ()
    spawn: bool = False                    # may start other programs; False: threads only
    gpu: bool = False                      # needs the GPU's device files
    loopback: bool = False                 # its processes may speak TCP with each other, on a network of their own

    @property
    def all_files(self) -> bool:
        """Whether it may read and write all files of its user."""
        return any(os.fspath(place) == "/" for place in self.write)


class Bounds(NamedTuple):
    """Limits in bytes, tasks (processes and threads) and seconds of processor time; 0 means none."""

    memory: int = 0                        # resident, of the child and all processes below it
    address: int = 0                       # mapped, of one process, beyond what it has at its start
    file: int = 0                          # one file
    disk: int = 0                          # all files in the folders it may write
    tasks: int = 0
    cpu: int = 0
    output: int = 0                        # printed beyond what is kept


def policy_of(fields: dict[str, object]) -> Policy:
    """Returns the policy from `Policy._asdict()` after JSON."""
    plain = dict(fields)
    for name in ("read", "write"):
        places = plain.get(name, ())
        assert isinstance(places, list | tuple)
        plain[name] = tuple(os.fspath(place) for place in places)
    return Policy(**plain)  # type: ignore[arg-type]
