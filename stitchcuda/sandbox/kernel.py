"""Calls the Linux functions that Python does not wrap: namespaces, mounts, capabilities, prctl. Each raises `OSError`.

It imports little, because the launcher of every compiler command imports it.
Where to look next: `sandbox/namespaces.py`, `sandbox/mounts.py` (who calls these).
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.syscall.restype = ctypes.c_long

# linux/sched.h
NEW_MOUNTS, NEW_UTS, NEW_IPC, NEW_USER, NEW_PID, NEW_NET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
# linux/prctl.h
DEATH_SIGNAL, DUMPABLE, DROP_BOUNDING, SUBREAPER, NO_NEW_PRIVILEGES, SECCOMP = 1, 4, 24, 36, 38, 22

_SET_FLAGS, _UP_AND_RUNNING = 0x8914, 0x41  # linux/sockios.h: SIOCSIFFLAGS; linux/if.h: IFF_UP, IFF_RUNNING
_CAPABILITY_VERSION = 0x20080522           # linux/capability.h: version 3, two words of 32 bits
_LAST_CAPABILITY = 63
_NUMBERS = {                               # x86-64, the common table: calls that glibc may lack
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "mount_setattr": (442, 442),
    "landlock_create_ruleset": (444, 444),
    "landlock_add_rule": (445, 445),
    "landlock_restrict_self": (446, 446),
    "pivot_root": (155, 41),
    "capset": (126, 91),
}


def column() -> int:
    """Returns this processor's column in tables of call numbers: 0 for x86-64, 1 for the common table, -1 if it is unknown."""
    return {"x86_64": 0, "aarch64": 1, "riscv64": 1}.get(os.uname().machine, -1)


def call(name: str, *arguments: Any) -> int:
    """Makes a system call by name. Integers are passed as 64 bits, other arguments as ctypes passes them."""
    if column() < 0:
        raise OSError(38, f"{name}: not known for {os.uname().machine}")
    given = [ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments]
    return _checked(name, _LIBC.syscall(ctypes.c_long(_NUMBERS[name][column()]), *given))


def prctl(option: int, first: int = 0, second: int = 0) -> int:
    given = [ctypes.c_ulong(value) for value in (first, second, 0, 0)]
    return _checked("prctl", _LIBC.prctl(option, *given))


def prctl_pointer(option: int, first: int, pointer: Any) -> int:
    zero = ctypes.c_ulong(0)
    return _checked("prctl", _LIBC.prctl(option, ctypes.c_ulong(first), pointer, zero, zero))


def unshare(flags: int) -> None:
    _checked("unshare", _LIBC.unshare(ctypes.c_int(flags)))


def mount(source: str, target: str, kind: str, flags: int = 0, data: str = "") -> None:
    options = (source.encode(), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), data.encode())
    _checked(f"mount {kind} {target}".strip(), _LIBC.mount(*options))


def unmount(target: str, flags: int = 0) -> None:
    _checked(f"umount {target}", _LIBC.umount2(os.fsencode(target), ctypes.c_int(flags)))


def raise_loopback() -> None:
    """Switches on `lo`, which is off in a new network namespace. Needs CAP_NET_ADMIN there."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", _UP_AND_RUNNING))


def set_capabilities(kept: int = 0) -> None:
    """Drops all capabilities but those of the mask `kept`, for this process and after any exec."""
    for number in range(_LAST_CAPABILITY + 1):
        if not kept >> number & 1:
            try:
                prctl(DROP_BOUNDING, number)
            except OSError:                # the kernel has no such capability, or we may not drop what we do not hold
                break
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    low, high = kept & 0xFFFFFFFF, kept >> 32
    call("capset", header, (ctypes.c_uint32 * 6)(low, low, 0, high, high, 0))


def _checked(name: str, result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number).lower()}")
    return result
