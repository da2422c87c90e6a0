"""The names of the protections, and the record of which are in force for a child. Said by trusted code, never by the child.

A protection that this machine does not grant, or that STITCHCUDA_SANDBOX_WITHOUT (a list of the short names, with commas)
leaves out, is named with its reason; the others stay. Where to look next: `sandbox/enforce.py` (who tries them),
`tools/doctor/doctor.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from stitchcuda.errors import BadInput

WITHOUT = "STITCHCUDA_SANDBOX_WITHOUT"


class Protection(NamedTuple):
    """`name` is what people and evidence read; `remedy` is what to do where a machine does not grant it."""

    name: str
    remedy: str


_CONTAINER = "allow user namespaces (above), or run in a container of its own"
_SETTINGS = "nothing in a usual Linux denies this; look at the container's settings"

PROTECTIONS = {
    "user": Protection(
        "user namespace",
        "allow unprivileged user namespaces (kernel.unprivileged_userns_clone=1, "
        "kernel.apparmor_restrict_unprivileged_userns=0, user.max_user_namespaces); in a container, also its seccomp profile",
    ),
    "network": Protection("network", "allow user namespaces (above), or run without network"),
    "processes": Protection("processes", _CONTAINER),
    "ipc": Protection("shared memory", _CONTAINER),
    "mounts": Protection(
        "files (mounts)", "allow user namespaces (above) on Linux 5.12 or newer, or run in a container of its own"
    ),
    "proc": Protection(
        "own /proc",
        "a container that masks parts of /proc forbids a fresh one: start it with an unmasked /proc, or ignore this",
    ),
    "landlock": Protection(
        "files (landlock)", "Linux 5.13 or newer with landlock in its list of security modules (boot with lsm=landlock,...)"
    ),
    "scopes": Protection(
        "signals (landlock)",
        "Linux 6.12 or newer; without it other processes are out of reach through the process namespace alone",
    ),
    "privileges": Protection("no new privileges", _SETTINGS),
    "capabilities": Protection("no capabilities", _SETTINGS),
    "seccomp": Protection("system calls", "a kernel with CONFIG_SECCOMP_FILTER, on x86-64 or 64-bit Arm"),
    "limits": Protection("limits", "raise the hard limits of this shell (ulimit -H)"),
    "watch": Protection("memory and disk watch", "mount /proc"),
}
"""By the short names of STITCHCUDA_SANDBOX_WITHOUT, in the order in which they are put in force."""

NAMES = {short: protection.name for short, protection in PROTECTIONS.items()}


class Protections(NamedTuple):
    """What holds for one child, and what does not, as (name, reason)."""

    on: tuple[str, ...] = ()
    denied: tuple[tuple[str, str], ...] = ()


class ProtectionLog:
    """Collects what was tried while a child is made."""

    def __init__(self, without: frozenset[str] = frozenset()) -> None:
        self.on: list[str] = []            # short names
        self.denied: dict[str, str] = {}
        self._without = without

    def attempt(self, name: str, put_in_force: Callable[[], object]) -> bool:
        """Try one protection; a refusal by the system is recorded and the rest goes on without it."""
        if name in self._without:
            self.denied[name] = f"left out by {WITHOUT}"
            return False
        try:
            put_in_force()
        except OSError as error:
            self.denied[name] = error.strerror or str(error)
            return False
        self.on.append(name)
        return True

    def wants(self, name: str) -> bool:
        return name not in self._without

    def deny(self, name: str, why: str) -> None:
        self.denied[name] = f"left out by {WITHOUT}" if name in self._without else why

    def plain(self) -> dict[str, object]:
        return {"on": self.on, "denied": self.denied}


def protections_of(plain: dict[str, object]) -> Protections:
    """From `ProtectionLog.plain()` after JSON, with the names that people read."""
    on, denied = plain["on"], plain["denied"]
    assert isinstance(on, list)
    assert isinstance(denied, dict)
    return Protections(tuple(NAMES[name] for name in on), tuple((NAMES[name], why) for name, why in denied.items()))


def left_out() -> frozenset[str]:
    """The short names that the environment leaves out; one that does not exist raises `BadInput`."""
    asked = frozenset(name.strip() for name in os.environ.get(WITHOUT, "").split(",") if name.strip())
    if unknown := sorted(asked - set(NAMES)):
        raise BadInput(f"{WITHOUT} names {', '.join(unknown)}; name some of {', '.join(NAMES)}, or unset it")
    return asked
