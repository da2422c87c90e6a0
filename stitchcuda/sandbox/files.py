"""Lists which files a child process sees: the system's folders, Python's, devices, and what its policy names.

It enforces nothing. Of /etc only a few files are listed, since root's own (keys, shadow) lie there.
Where to look next: `sandbox/mounts.py` and `sandbox/landlock.py`, which enforce the lists independently of each other.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from stitchcuda.sandbox.policy import Policy

LINKABLE = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
"""Folders that are links into /usr on most systems."""

_SYSTEM = ("/usr", "/opt", "/nix/store", "/gnu/store", "/run/opengl-driver", "/sys")
_ETC = (
    "alternatives", "debian_version", "group", "hosts", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime",
    "nsswitch.conf", "nv_tegra_release", "nvidia", "OpenCL", "os-release", "passwd", "timezone", "vulkan",
)  # fmt: skip
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
PRIVATE = ("/tmp", "/dev/shm")
"""A child gets empty and small folders of its own here; if mounts are denied, it cannot use them at all."""


def system_files() -> list[str]:
    """Returns folders and files of the system that any child may read."""
    places = [*LINKABLE, *_SYSTEM, *(f"/etc/{name}" for name in _ETC)]
    return [place for place in places if os.path.exists(place)]


def device_files(*, gpu: bool) -> list[str]:
    """Returns the device files that a child may use. `gpu`: NVIDIA's too."""
    found = [device for device in DEVICES if os.path.exists(device)]
    if gpu:
        found += sorted(f"/dev/{name}" for name in os.listdir("/dev") if name.startswith("nvidia") or name == "dxg")
    return found


def python_folders() -> list[str]:
    """Returns the folders of Python itself, of installed packages, and of LD_LIBRARY_PATH."""
    roots = [sys.prefix, sys.base_prefix]
    for entry in sys.path:
        if os.path.isdir(entry) and any(name.endswith(".dist-info") for name in os.listdir(entry)):
            roots.append(entry)
    roots += [path for path in os.environ.get("LD_LIBRARY_PATH", "").split(":") if os.path.isdir(path) and path != "/"]
    return outermost(roots)


def python_files() -> list[str]:
    """Returns these and the top-level modules that this process has imported from elsewhere.

    Other folders of `sys.path` are left out, since one of them may be the user's home.
    """
    roots = python_folders()
    for name, module in list(sys.modules.items()):
        origin = getattr(module, "__file__", None)
        if "." not in name and name != "__main__" and isinstance(origin, str) and os.path.isabs(origin):
            roots.append(os.path.dirname(origin) if os.path.basename(origin).startswith("__init__.") else origin)
    return outermost(roots)


def readable(policy: Policy) -> list[str]:
    """Returns all places that a child under this policy may read."""
    return outermost([*system_files(), *(os.fspath(place) for place in policy.read)])


def writable(policy: Policy) -> list[str]:
    """Returns all places that a child under this policy may write."""
    return outermost(os.fspath(place) for place in policy.write)


def outermost(places: Iterable[str]) -> list[str]:
    """Returns the places that exist, by their given and their real names, without those that lie beneath another."""
    names: set[str] = set()
    for place in places:
        if os.path.exists(place):
            names |= {os.path.abspath(place), os.path.realpath(place)}
    kept: list[str] = []
    for name in sorted(names):
        if not any(name.startswith(f"{above.rstrip('/')}/") for above in kept):
            kept.append(name)
    return kept
