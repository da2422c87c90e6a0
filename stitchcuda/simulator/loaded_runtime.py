"""The simulator's runtime in this process, by ctypes: what is counted and closed there, below Python. Only in program workers.

`start` loads it before anything of the program is imported: settings hold from then on whatever the environment says later, and
torch's tensors lie in device memory, which the host cannot touch uncounted while it is guarded. Without `start` the runtime is
found once a kernel library brought it. Where to look next: `stitchcuda/simulator/runtime/device_memory.h`,
`verify/program/kernel_switches.py`.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from pathlib import Path

_NAME = "libstitchsim-"
_SETTINGS = "STITCHCUDA_SIM_"
_library: ctypes.PyDLL | None = None
_started = False


def start(runtime: Path, torch_memory: Path, settings: Mapping[str, str]) -> None:
    """Load it, fix its settings (those that the user has set come first) and give it torch's memory. Once a process."""
    global _library, _started
    library = _declared(ctypes.PyDLL(str(runtime)))
    for name, value in settings.items():
        os.environ.setdefault(f"{_SETTINGS}{name}", value)
    library.stitchsim_latch()
    for name in [name for name in os.environ if name.startswith(_SETTINGS)]:
        del os.environ[name]               # they would tell a program which of its workers this is
    ctypes.CDLL(str(torch_memory)).stitchsim_take_over_torch()
    _library, _started = library, True


def opened() -> None:
    """From now on device memory may be touched, until `closed` is called as often."""
    if _started and _library is not None:
        _library.stitchsim_open()


def closed() -> None:
    """The end of what `opened` began."""
    if _started and _library is not None:
        _library.stitchsim_close()


def guard(on: bool) -> None:
    """Whether what host code touches of device memory is counted from now on."""
    if _started and _library is not None:
        _library.stitchsim_guard(int(on))


def outside(address: int) -> bool:
    """Whether memory is the host's own, such as an array's of numpy; without `start` nobody can tell."""
    return _started and _library is not None and address != 0 and not _library.stitchsim_is_device(address)


def know(address: int, size: int) -> None:
    """A tensor that kernels may be given, with the bytes that count for it."""
    if _library is not None:
        _library.stitchsim_know(address, size)


def launched_bytes() -> int:
    """Bytes of known tensors given to kernels since they were taken, launch by launch."""
    return _counted(lambda found: int(found.stitchsim_bytes()))


def take_bytes() -> int:
    """The same; the tensors are forgotten, and counting begins anew."""
    return _counted(lambda found: int(found.stitchsim_take_bytes()))


def host_bytes() -> int:
    """Bytes that host code of the program touched or copied to the host so far."""
    return _counted(lambda found: int(found.stitchsim_host_bytes()))


def launches() -> int:
    """Grids that were run so far."""
    return _counted(lambda found: int(found.stitchsim_launches()))


def library() -> ctypes.PyDLL | None:
    """The runtime; None while no kernel library was loaded that brings it."""
    global _library
    if _library is None:
        found = next((path for path in mapped() if Path(path).name.startswith(_NAME)), None)
        if found is not None:
            _library = _declared(ctypes.PyDLL(found))
    return _library


def mapped() -> list[str]:
    """Shared libraries that this process has mapped."""
    found: dict[str, None] = {}
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line[73:].strip() if len(line) > 73 else ""
        if path.startswith("/") and ".so" in path:
            found[path] = None
    return list(found)


def _counted(read: Callable[[ctypes.PyDLL], int]) -> int:
    found = library()
    return read(found) if found is not None else 0


def _declared(found: ctypes.PyDLL) -> ctypes.PyDLL:
    found.stitchsim_kernels.restype = ctypes.c_uint
    found.stitchsim_kernel_name.restype = ctypes.c_char_p
    for name in ("take_launches", "bytes", "take_bytes", "host_bytes", "launches"):
        getattr(found, f"stitchsim_{name}").restype = ctypes.c_ulong
    found.stitchsim_know.argtypes = (ctypes.c_void_p, ctypes.c_ulong)
    found.stitchsim_is_device.argtypes = (ctypes.c_void_p,)
    for name in ("open", "close", "guard", "latch"):
        getattr(found, f"stitchsim_{name}").restype = None
    return found
