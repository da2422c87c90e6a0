"""Holds what one child may do (`Policy`) and how much it may use (`Bounds`), as plain tuples, and what a launcher is told.

They are not pydantic records, because the launcher of every compiler command reads them and must start quickly.
Where to look next: `sandbox/enforce.py` (how they are enforced), `sandbox/protections.py` (what then holds).
"""

from __future__ import annotations

import json
from typing import NamedTuple


class Policy(NamedTuple):
    """What a child may do. It may always read the system's own folders. With the folder `/` in `write` the file system stays as
    it is.
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    spawn: bool = False                    # may start other programs; False: threads only
    gpu: bool = False                      # needs the GPU's device files
    loopback: bool = False                 # its processes may speak TCP with each other, on a network of their own
    local: bool = False                    # may connect to Unix sockets in the folders that it sees
    needs: tuple[str, ...] = ()            # short names of protections without which it is not run

    @property
    def all_files(self) -> bool:
        """Whether it may read and write all files of its user."""
        return "/" in self.write


class Bounds(NamedTuple):
    """Limits in bytes, tasks (processes and threads) and seconds of processor time; 0 means none."""

    memory: int = 0                        # resident, of the child and all processes below it
    address: int = 0                       # mapped, of one process, beyond what it has at its start
    file: int = 0                          # one file
    disk: int = 0                          # all files in the folders it may write
    tasks: int = 0
    cpu: int = 0
    output: int = 0                        # printed beyond what is kept


class Launch(NamedTuple):
    """What `sandbox/command.py` or `sandbox/background.py` tells `sandbox/launcher.py`, as one line of JSON."""

    command: list[str]
    cwd: str
    environment: dict[str, str]
    policy: Policy | None                  # None: it is the user's own, and only its bounds hold
    bounds: Bounds
    seconds: float                         # its time limit
    without: list[str]                     # short names of protections to leave out
    ports: tuple[int, ...] = ()            # of its loopback network, at which its parent answers
    transcript: str = ""                   # the file that its output is appended to; "": the answer has all of it
    transcript_bytes: int = 0              # that are written there at most, but for the end of the output


def read_launch(line: bytes) -> Launch:
    """Reads such a line."""
    launch = Launch(*json.loads(line))
    policy = None if launch.policy is None else Policy(*launch.policy)
    return launch._replace(policy=policy, bounds=Bounds(*launch.bounds))
