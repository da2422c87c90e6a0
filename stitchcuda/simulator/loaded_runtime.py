"""Calls the simulator's runtime by ctypes in a program worker: starts it, and reads what it counts below Python.

`start` loads it before anything of the program is imported. From then on its settings are fixed whatever the environment says,
and torch's tensors lie in device memory, where accesses by the program's host code are counted. Without `start` the runtime is
found once a kernel library has loaded it.
Where to look next: `simulator/runtime/device_memory.h` (the memory), `verify/program/kernel_switches.py` (who skips kernels).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

_NAME = "libstitchsim-"
_SETTINGS = "STITCHCUDA_SIM_"
_library: ctypes.PyDLL | None = None
_started = False


def start(runtime: Path, torch_memory: Path, settings: Mapping[str, str]) -> None:
    """Loads the runtime, fixes its settings (the user's STITCHCUDA_SIM_* win), and gives it torch's memory. Once a process."""
    global _library, _started
    library = _declare(ctypes.PyDLL(str(runtime)))
    for name, value in settings.items():
        os.environ.setdefault(f"{_SETTINGS}{name}", value)
    library.stitchsim_latch()
    for name in [name for name in os.environ if name.startswith(_SETTINGS)]:
        del os.environ[name]               # they would show a program in which of its workers it runs
    ctypes.CDLL(str(torch_memory)).stitchsim_take_over_torch()
    _library, _started = library, True


def allow_host_access() -> None:
    """Lets host code access device memory uncounted, until `end_host_access` was called as often."""
    if _started and _library is not None:
        _library.stitchsim_open()


def end_host_access() -> None:
    """Ends what `allow_host_access` began."""
    if _started and _library is not None:
        _library.stitchsim_close()


def count_host_access(on: bool) -> None:
    """Sets whether host code's accesses to device memory are counted from now on."""
    if _started and _library is not None:
        _library.stitchsim_guard(int(on))


def is_host_memory(address: int) -> bool:
    """Whether an address is the host's own memory, such as a numpy array's. Always False without `start`."""
    return _started and _library is not None and address != 0 and not _library.stitchsim_is_device(address)


def bound_access(address: int, size: int) -> None:
    """Lets kernels access only `size` bytes from `address` on of the block of device memory that these lie in."""
    if _library is not None:
        _library.stitchsim_bound(address, size)


def register_tensor(address: int, size: int) -> None:
    """Registers a tensor that kernels may be given, and the bytes that count for it."""
    if _library is not None:
        _library.stitchsim_know(address, size)


def protect(ranges: Sequence[tuple[int, int]]) -> None:
    """Refuses launches that change these (address, bytes) from now on, and no others."""
    if (found := library()) is not None:
        found.stitchsim_protect_nothing()
        for address, size in ranges:
            found.stitchsim_protect(address, size)


def launched_bytes() -> int:
    """Returns the bytes of registered tensors that launches were given since `take_bytes`."""
    return _read_counter(lambda found: int(found.stitchsim_bytes()))


def take_bytes() -> int:
    """Returns these bytes, forgets the tensors and counts anew."""
    return _read_counter(lambda found: int(found.stitchsim_take_bytes()))


def host_bytes() -> int:
    """Returns the bytes of device memory that the program's host code has touched or copied to the host."""
    return _read_counter(lambda found: int(found.stitchsim_host_bytes()))


def launches() -> int:
    """Returns how many grids have run."""
    return _read_counter(lambda found: int(found.stitchsim_launches()))


def take_failed_launch() -> str:
    """Says why the first launch failed that did so since the last call: its configuration was refused, or its kernel made a
    mistake; "" if none did."""
    found = library()
    return found.stitchsim_take_failed().decode(errors="replace") if found is not None else ""


def take_unwritten_read() -> str:
    """Says which kernel was the first since the last call to read shared memory that its block has not written; "" if none
    did."""
    found = library()
    return found.stitchsim_take_unwritten().decode(errors="replace") if found is not None else ""


def library() -> ctypes.PyDLL | None:
    """Returns the runtime, or None while no kernel library has loaded it."""
    global _library
    if _library is None:
        found = next((path for path in mapped_libraries() if Path(path).name.startswith(_NAME)), None)
        if found is not None:
            _library = _declare(ctypes.PyDLL(found))
    return _library


def mapped_libraries() -> list[str]:
    """Returns the paths of all shared libraries that this process has mapped."""
    found: dict[str, None] = {}
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line[73:].strip() if len(line) > 73 else ""
        if path.startswith("/") and ".so" in path:
            found[path] = None
    return list(found)


def _read_counter(read: Callable[[ctypes.PyDLL], int]) -> int:
    found = library()
    return read(found) if found is not None else 0


def _declare(found: ctypes.PyDLL) -> ctypes.PyDLL:
    found.stitchsim_kernels.restype = ctypes.c_uint
    for name in ("kernel_name", "take_failed", "take_unwritten"):
        getattr(found, f"stitchsim_{name}").restype = ctypes.c_char_p
    for name in ("take_launches", "bytes", "take_bytes", "host_bytes", "launches"):
        getattr(found, f"stitchsim_{name}").restype = ctypes.c_ulong
    for name in ("protect", "know", "bound"):
        getattr(found, f"stitchsim_{name}").argtypes = (ctypes.c_void_p, ctypes.c_ulong)
    found.stitchsim_is_device.argtypes = (ctypes.c_void_p,)
    for name in ("bound", "open", "close", "guard", "know", "latch", "protect", "protect_nothing"):
        getattr(found, f"stitchsim_{name}").restype = None
    return found
