"""Makes GPU memory that another process can be given as a file descriptor, and maps such memory (CUDA driver, by ctypes).

A descriptor names one allocation and nothing beside it. Who holds it may map the memory and write to it too: what must stay
unchanged is a copy. The memory lives until the last descriptor and the last mapping of it are gone, in whichever process. Call
`device_memory` before a program is loaded: the driver's functions are looked up then.
Where to look next: `verify/messages/tensor_block.py` (the tensors in it), `verify/timing/stopwatch.py` (the other calls of the
driver).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable
from typing import Any

import torch

_PINNED, _ON_DEVICE, _DESCRIPTOR, _READ, _READ_WRITE = 1, 1, 1, 1, 3      # cuda.h: CU_MEM_…
_OUT_OF_MEMORY = 2                         # CUDA_ERROR_OUT_OF_MEMORY


class DeviceMemoryError(RuntimeError):
    """The CUDA driver refused a call on shared memory."""


class _Location(ctypes.Structure):
    """CUmemLocation."""

    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Properties(ctypes.Structure):
    """CUmemAllocationProp."""

    _fields_ = (
        ("type", ctypes.c_int), ("handles", ctypes.c_int), ("location", _Location), ("windows", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )  # fmt: skip


class _Access(ctypes.Structure):
    """CUmemAccessDesc."""

    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


class DeviceMemory:
    """The driver's calls for the GPU of this process. Creates the primary CUDA context if there is none."""

    def __init__(self) -> None:
        torch.empty(1, device="cuda")
        driver = ctypes.CDLL("libcuda.so.1")
        self._create, self._release = driver.cuMemCreate, driver.cuMemRelease
        self._export, self._import = driver.cuMemExportToShareableHandle, driver.cuMemImportFromShareableHandle
        self._reserve, self._free = driver.cuMemAddressReserve, driver.cuMemAddressFree
        self._map, self._unmap, self._access = driver.cuMemMap, driver.cuMemUnmap, driver.cuMemSetAccess
        self._properties = driver.cuMemGetAllocationPropertiesFromHandle
        self._location = _Location(_ON_DEVICE, 0)
        self._wanted = _Properties(type=_PINNED, handles=_DESCRIPTOR, location=self._location)
        unit = ctypes.c_size_t()
        _check("asking for the unit", driver.cuMemGetAllocationGranularity, ctypes.byref(unit), ctypes.byref(self._wanted), 0)
        self._unit = unit.value

    def create(self, size: int) -> int:
        """Returns the descriptor of new memory for `size` bytes, whose contents are undefined. Raises
        `torch.OutOfMemoryError`."""
        handle, descriptor = ctypes.c_uint64(), ctypes.c_int()
        wanted, whole = ctypes.byref(self._wanted), ctypes.c_size_t(self.rounded(size))
        _check("allocating", self._create, ctypes.byref(handle), whole, wanted, ctypes.c_uint64(0))
        try:
            _check("exporting", self._export, ctypes.byref(descriptor), handle, _DESCRIPTOR, ctypes.c_uint64(0))
        finally:
            self._release(handle)          # the descriptor keeps the memory
        return descriptor.value

    def map(self, descriptor: int, size: int, *, write: bool) -> MappedMemory:
        """Maps the memory of a descriptor, which stays the caller's. Raises `DeviceMemoryError` if it is no such memory of
        this GPU, or smaller than `size`."""
        handle, found = ctypes.c_uint64(), _Properties()
        place, length = ctypes.c_uint64(), ctypes.c_size_t(self.rounded(size))
        _check("importing", self._import, ctypes.byref(handle), ctypes.c_void_p(descriptor), _DESCRIPTOR)
        try:
            _check("looking at it", self._properties, ctypes.byref(found), handle)
            if (found.type, found.location.type, found.location.id) != (_PINNED, _ON_DEVICE, 0):
                raise DeviceMemoryError("the memory is not this GPU's own")
            _check("reserving addresses", self._reserve, ctypes.byref(place), length, ctypes.c_size_t(0), ctypes.c_uint64(0),
                   ctypes.c_uint64(0))  # fmt: skip
            undo: list[Callable[[], object]] = [functools.partial(self._free, place, length)]
            try:
                _check("mapping", self._map, place, length, ctypes.c_size_t(0), handle, ctypes.c_uint64(0))
                undo.insert(0, functools.partial(self._unmap, place, length))
                access = _Access(self._location, _READ_WRITE if write else _READ)
                _check("opening", self._access, place, length, ctypes.byref(access), ctypes.c_size_t(1))
            except BaseException:
                for step in undo:
                    step()
                raise
        finally:
            self._release(handle)          # the mapping keeps the memory
        return MappedMemory(place.value, size, undo)

    def rounded(self, size: int) -> int:
        """Returns the bytes that an allocation for `size` bytes really has."""
        return max(1, -(-size // self._unit)) * self._unit


class MappedMemory:
    """Memory at `address` until it is collected; a tensor made by `bytes_of` keeps it."""

    def __init__(self, address: int, size: int, undo: list[Callable[[], object]]) -> None:
        self._undo = undo
        self.__cuda_array_interface__ = {"version": 3, "typestr": "|u1", "shape": (size,), "data": (address, False)}

    def __del__(self) -> None:
        with contextlib.suppress(RuntimeError):  # a context that is lost works on nothing
            torch.cuda.synchronize()
        for step in self._undo:
            step()


def bytes_of(memory: MappedMemory) -> torch.Tensor:
    """Returns the memory as a tensor of bytes on the GPU, without copying."""
    return torch.as_tensor(memory, device="cuda")


@functools.cache
def device_memory() -> DeviceMemory:
    """Returns this process' `DeviceMemory`, made when it is first asked for."""
    return DeviceMemory()


def _check(doing: str, function: Any, *arguments: Any) -> None:
    code = function(*arguments)
    if code == _OUT_OF_MEMORY:
        raise torch.OutOfMemoryError(f"CUDA out of memory while {doing} shared memory")
    if code:
        raise DeviceMemoryError(f"the CUDA driver answers {function.__name__} with error {code} while {doing}")
