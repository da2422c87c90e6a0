"""Gives a child its own file system: an empty root with mounts of only what it may see, read-only but for its scratch.

Every source is opened before anything is moved, so that a failure leaves the old view; then the protection counts as denied. It
needs Linux 5.12, and CAP_SYS_ADMIN in a mount namespace of its own. It does not choose what is visible.
Where to look next: `sandbox/files.py` (what is visible), `sandbox/namespaces.py` (who calls this).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

from stitchcuda.sandbox import files, kernel
from stitchcuda.sandbox.policy import Policy

# linux/mount.h, linux/fcntl.h, sys/mount.h
_CLONE, _RECURSIVE, _CLOSE_ON_EXEC, _EMPTY_PATH, _HERE = 0x1, 0x8000, 0o2000000, 0x1000, -100
_FROM_EMPTY_PATH = 0x4
_READ_ONLY, _NO_SETUID, _NO_DEVICES, _NO_CODE = 0x1, 0x2, 0x4, 0x8
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REC, _MS_PRIVATE = 0x2, 0x4, 0x8, 0x4000, 0x40000
_DETACH = 2
_PRIVATE_SIZE = "256m"                     # of the child's own /tmp and /dev/shm


class _Attributes(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "user_namespace"))


def detach() -> None:
    """Enters a mount namespace; what is mounted from here on does not show outside."""
    kernel.unshare(kernel.NEW_MOUNTS)
    kernel.mount("none", "/", "", _MS_REC | _MS_PRIVATE)


def enter(policy: Policy) -> None:
    """Swaps the root of this process' mount namespace. Raises `OSError` with the old one still in place."""
    base = next(place for place in ("/tmp", "/mnt", "/var", "/usr") if os.path.isdir(place))
    trees = _trees(policy)
    mounted = False
    try:
        kernel.mount("tmpfs", base, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755,size=1m")
        mounted = True
        _mount_trees(base, trees, _links(), code=policy.spawn)
        os.chdir(base)
        kernel.call("pivot_root", b".", b".")
    except OSError:
        if mounted:
            kernel.unmount(base, _DETACH)
        raise
    finally:
        for tree, _ in trees.values():
            os.close(tree)
    kernel.unmount(".", _DETACH)           # the old root lies on top of the new one now
    os.chdir("/")
    _restrict("/", _READ_ONLY)


def mount_proc() -> None:
    """Mounts a /proc that shows only this process namespace. Must be called from inside it."""
    kernel.mount("proc", "/proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)


def freeze_proc() -> None:
    """Makes /proc read-only: else a process with root's user id could write settings of the whole machine in /proc/sys."""
    _restrict("/proc", _READ_ONLY)


def freeze_proc_but_own() -> None:
    """Makes /proc read-only but for the caller's own folder: CUDA's driver names its threads there, and gives up if it cannot.
    A mount also pins that folder, so that landlock's rule for it holds."""
    with _mounted_again(os.path.realpath("/proc/self"), _Attributes(0, _READ_ONLY, 0, 0)):
        _restrict("/proc", _READ_ONLY)


def freeze_proc_but_processes() -> None:
    """Makes /proc read-only but for the folders of processes, also of later ones: all of them belong to the child."""
    for name in os.listdir("/proc"):
        if not name.isdigit() and not os.path.islink(f"/proc/{name}"):
            with _mounted_again(f"/proc/{name}", _Attributes(_READ_ONLY, 0, 0, 0)):
                pass


@contextlib.contextmanager
def _mounted_again(place: str, attributes: _Attributes) -> Iterator[None]:
    """Mounts a place on top of itself with other attributes, after the block has run on it as it was."""
    tree = kernel.call("open_tree", _HERE, os.fsencode(place), _CLONE | _RECURSIVE | _CLOSE_ON_EXEC)
    try:
        given = ctypes.byref(attributes), ctypes.sizeof(attributes)
        kernel.call("mount_setattr", tree, b"", _EMPTY_PATH | _RECURSIVE, *given)
        yield
        kernel.call("move_mount", tree, b"", _HERE, os.fsencode(place), _FROM_EMPTY_PATH)
    finally:
        os.close(tree)


def _trees(policy: Policy) -> dict[str, tuple[int, bool]]:
    """Returns detached copies of everything visible, by target: (descriptor, whether it is a folder)."""
    trees: dict[str, tuple[int, bool]] = {}
    written = files.writable(policy)
    plain = [place for place in files.readable(policy) if place not in _links() and place not in written]
    wanted = [(place, _READ_ONLY | _NO_SETUID | _NO_DEVICES) for place in plain]
    wanted += [(place, _NO_SETUID) for place in files.device_files(gpu=policy.gpu)]
    wanted += [("/proc", _READ_ONLY)]
    # A child that may start no programs may not load code that it wrote either.
    wanted += [(place, _NO_SETUID | _NO_DEVICES | (0 if policy.spawn else _NO_CODE)) for place in written]
    try:
        for place, attributes in wanted:
            tree = kernel.call("open_tree", _HERE, os.fsencode(place), _CLONE | _RECURSIVE | _CLOSE_ON_EXEC)
            trees[place] = (tree, os.path.isdir(place))
            if attributes:
                given = _Attributes(attributes, 0, 0, 0)
                kernel.call("mount_setattr", tree, b"", _EMPTY_PATH | _RECURSIVE, ctypes.byref(given), ctypes.sizeof(given))
    except OSError:
        for tree, _ in trees.values():
            os.close(tree)
        raise
    return trees


def _mount_trees(base: str, trees: dict[str, tuple[int, bool]], links: dict[str, str], *, code: bool) -> None:
    private_flags = _MS_NOSUID | _MS_NODEV | (0 if code else _MS_NOEXEC)
    for private in files.PRIVATE:
        os.makedirs(base + private, exist_ok=True)
        kernel.mount("tmpfs", base + private, "tmpfs", private_flags, f"mode=1777,size={_PRIVATE_SIZE},nr_inodes=10k")
    for link, to in links.items():
        os.symlink(to, base + link)
    for name, to in (("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")):
        os.symlink(to, f"{base}/dev/{name}")
    for place, (tree, folder) in sorted(trees.items()):
        target = base + place
        if not os.path.lexists(target):
            os.makedirs(target if folder else os.path.dirname(target), exist_ok=True)
            if not folder:
                os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
        kernel.call("move_mount", tree, b"", _HERE, os.fsencode(target), _FROM_EMPTY_PATH)


def _links() -> dict[str, str]:
    return {place: os.readlink(place) for place in files.LINKABLE if os.path.islink(place)}


def _restrict(place: str, attributes: int) -> None:
    given = _Attributes(attributes, 0, 0, 0)
    kernel.call("mount_setattr", _HERE, os.fsencode(place), 0, ctypes.byref(given), ctypes.sizeof(given))
