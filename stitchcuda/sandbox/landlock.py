"""Restricts this process and its children, by Linux's landlock, to the files in a list and to signals among themselves.

It makes the three system calls through ctypes: the wheels on PyPI (landlockpy, landlock) are young, and the launcher of every
compiler command, which has no site-packages, would have to find them. Numbers are those of linux/landlock.h; see
https://docs.kernel.org/userspace-api/landlock.html. It does not choose the files.
Where to look next: `sandbox/files.py` (the list), `sandbox/enforce.py` (who calls this).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

from stitchcuda.sandbox import kernel

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_REMOVE, _MAKE_NODES, _MAKE_DIR, _MAKE_FILE = 0b11 << 4, 1 << 6 | 1 << 9 | 1 << 11, 1 << 7, 1 << 8
_MAKE_FIFO, _MAKE_LINK, _REFER, _TRUNCATE, _DEVICE = 1 << 10, 1 << 12, 1 << 13, 1 << 14, 1 << 15
_ALL = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1, 5: (1 << 16) - 1}
READ = _EXECUTE | _READ_FILE | _READ_DIR
WRITE = READ | _WRITE_FILE | _REMOVE | _MAKE_DIR | _MAKE_FILE | _MAKE_FIFO | _MAKE_LINK | _REFER | _TRUNCATE
CHANGE = _WRITE_FILE | _TRUNCATE
DEVICE = _READ_FILE | _WRITE_FILE | _READ_DIR | _DEVICE
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _DEVICE
_TCP = 0b11                                # bind and connect, ABI 4
_SCOPES = 0b11                             # abstract sockets and signals, ABI 6


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"                        # Python 3.14 wants the layout of a packed structure named
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def abi() -> int:
    """Returns the version of the kernel's interface. Raises `OSError` if it has no landlock."""
    return kernel.call("landlock_create_ruleset", None, 0, 1)


def restrict_files(allowed: Iterable[tuple[str, int]], *, tcp: bool = False) -> None:
    """Allows the rights beneath each path and nothing else. Skips paths that do not exist. TCP only with `tcp`."""
    version = abi()
    handled = _ALL[min(version, 5)]
    rules = _Ruleset(handled, _TCP if version >= 4 and not tcp else 0, 0)
    ruleset = kernel.call("landlock_create_ruleset", ctypes.byref(rules), 24 if version >= 6 else 16 if version >= 4 else 8, 0)
    try:
        for path, rights in allowed:
            _allow(ruleset, path, rights & handled)
        kernel.call("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)


def restrict_scopes() -> None:
    """Lets signals and abstract sockets reach no process outside. A ruleset of its own, which holds if that of files fails."""
    if abi() < 6:
        raise OSError(95, f"landlock's interface is version {abi()}; scopes came with version 6")
    rules = _Ruleset(0, 0, _SCOPES)
    ruleset = kernel.call("landlock_create_ruleset", ctypes.byref(rules), 24, 0)
    try:
        kernel.call("landlock_restrict_self", ruleset, 0)
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            rights &= _OF_FILES
        rule = _PathBeneath(rights, parent)
        kernel.call("landlock_add_rule", ruleset, 1, ctypes.byref(rule), 0)
    finally:
        os.close(parent)
