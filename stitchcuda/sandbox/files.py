"""Which files a child sees: the system's own folders, Python's, devices, and what its policy names. It enforces nothing.

/etc is read in part: root's own files (keys, shadow) lie there. Where to look next: `sandbox/mounts.py` and
`sandbox/landlock.py`, which enforce the lists, each on its own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from stitchcuda.sandbox.policy import Policy

LINKABLE = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""On most systems links into /usr."""

_SYSTEM = ("/usr", "/opt", "/nix/store", "/gnu/store", "/run/opengl-driver", "/sys")
_ETC = (
    "alternatives", "debian_version", "group", "hosts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime",
    "nsswitch.conf", "nv_tegra_release", "nvidia", "OpenCL", "os-release", "passwd", "timezone", "vulkan",
)  # fmt: skip
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
PRIVATE = ("/tmp", "/dev/shm")
"""Where mounts are possible, a child has these to itself, empty and small; without mounts it cannot touch them."""


def system() -> list[str]:
    """Folders and files of the system that any child may read."""
    places = [*LINKABLE, *_SYSTEM, *(f"/etc/{name}" for name in _ETC)]
    return [place for place in places if os.path.exists(place)]


def devices(*, gpu: bool) -> list[str]:
    found = [device for device in DEVICES if os.path.exists(device)]
    if gpu:
        found += sorted(f"/dev/{name}" for name in os.listdir("/dev") if name.startswith("nvidia") or name == "dxg")
    return found


def prefixes() -> list[str]:
    """Where Python's own files and installed packages are."""
    roots = [sys.prefix, sys.base_prefix]
    for entry in sys.path:
        if os.path.isdir(entry) and any(name.endswith(".dist-info") for name in os.listdir(entry)):
            roots.append(entry)
    roots += [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if os.path.isdir(path) and path != "/"]
    return outermost(roots)


def python() -> list[str]:
    """The same and whatever else this process has imported.

    Other folders of the path are left out: one of them is often where somebody keeps everything.
    """
    roots = prefixes()
    for name, module in list(sys.modules.items()):
        origin = getattr(module, "__file__", None)
        if "." not in name and name != "__main__" and isinstance(origin, str) and os.path.isabs(origin):
            roots.append(os.path.dirname(origin) if os.path.basename(origin).startswith("__init__.") else origin)
    return outermost(roots)


def readable(policy: Policy) -> list[str]:
    return outermost([*system(), *(os.fspath(place) for place in policy.read)])


def writable(policy: Policy) -> list[str]:
    return outermost(os.fspath(place) for place in policy.write)


def outermost(places: Iterable[str]) -> list[str]:
    """The places that exist, by their literal and their real names, without those that lie beneath another."""
    names: set[str] = set()
    for place in places:
        if os.path.exists(place):
            names |= {os.path.abspath(place), os.path.realpath(place)}
    kept: list[str] = []
    for name in sorted(names):
        if not any(name.startswith(f"{above.rstrip('/')}/") for above in kept):
            kept.append(name)
    return kept
