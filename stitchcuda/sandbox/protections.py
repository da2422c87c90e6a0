"""Names the protections of the sandbox with their remedies, and records which of them are in force for a child.

A protection that this machine denies, or that STITCHCUDA_SANDBOX_WITHOUT (short names separated by commas) leaves out, is
recorded with its reason; the others stay. Only trusted code writes the record, never the child's own.
Where to look next: `sandbox/enforce.py` (who tries them), `tools/doctor/doctor.py` (who prints them).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from stitchcuda.errors import BadInput

WITHOUT = "STITCHCUDA_SANDBOX_WITHOUT"


class Protection(NamedTuple):
    """`name`: for people and evidence. `remedy`: what to do on a machine that denies it."""

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
"""By short name, as in STITCHCUDA_SANDBOX_WITHOUT, in the order in which they are put in force."""

NAMES = {short: protection.name for short, protection in PROTECTIONS.items()}


class Protections(NamedTuple):
    """The names of the protections in force for one child, and (name, reason) of the others."""

    on: tuple[str, ...] = ()
    denied: tuple[tuple[str, str], ...] = ()


class ProtectionLog:
    """Records which protections could be put in force while a child is made."""

    def __init__(self, without: frozenset[str] = frozenset()) -> None:
        self.on: list[str] = []            # short names
        self.denied: dict[str, str] = {}
        self._without = without

    def attempt(self, name: str, put_in_force: Callable[[], object]) -> bool:
        """Tries one protection. Returns whether it is in force; an `OSError` is recorded, and the child goes on without it."""
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
        """Whether the user has not left the protection out."""
        return name not in self._without

    def deny(self, name: str, why: str) -> None:
        """Records that a protection is not in force, without trying it."""
        self.denied[name] = f"left out by {WITHOUT}" if name in self._without else why

    def found(self) -> Protections:
        """Returns the record with the names that people read."""
        denied = tuple((NAMES[name], why) for name, why in self.denied.items())
        return Protections(tuple(NAMES[name] for name in self.on), denied)


def protections_of(plain: list[list[Any]]) -> Protections:
    """Returns what `ProtectionLog.found()` was before it became JSON."""
    on, denied = plain
    return Protections(tuple(on), tuple((name, why) for name, why in denied))


def disabled_protections() -> frozenset[str]:
    """Returns the short names that STITCHCUDA_SANDBOX_WITHOUT leaves out. Raises `BadInput` for one that does not exist."""
    names = frozenset(name.strip() for name in os.environ.get(WITHOUT, "").split(",") if name.strip())
    if unknown := sorted(names - set(NAMES)):
        raise BadInput(f"{WITHOUT} names {', '.join(unknown)}; name some of {', '.join(NAMES)}, or unset it")
    return names
