"""Measures one call on a GPU by native clocks: the CUDA driver's events and the C library's clock. Runs in a worker.

All functions are looked up before a program is imported, so that a program that patches torch or time changes nothing. Before
each call L2 is flushed, persisting lines are reset and the device is idle; after it the whole device is waited for. Native code
that rewrites the driver's memory can still forge it: against that the judge has its own clock.
Where to look next: `verify/timing/timed_calls.py` (what is timed), `verify/timing/clock_agreement.py` (the judge's clock).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from statistics import median
from typing import Any, Protocol

import torch

_MONOTONIC = 1                             # CLOCK_MONOTONIC of linux/time.h
_L2_BYTES, _MEMORY_KHZ, _BUS_BITS = 38, 36, 37  # CUdevice_attribute of cuda.h
_NOT_SUPPORTED = 801                       # CUDA_ERROR_NOT_SUPPORTED: no persisting lines before compute capability 8.0
_LEGACY = None                             # the legacy default stream, which waits for all blocking streams
_FLUSH_BYTES = 128 * 2**20


class Clock(Protocol):
    """Times one call. The order is `settle`, `start`, the call, `returned`, `stop`."""

    def settle(self) -> None:
        """Leaves L2 cold and without persisting lines, and the device idle."""

    def start(self) -> None: ...

    def returned(self) -> None:
        """Marks that the call has returned: what its stream holds so far is the call's work."""

    def copy(self, target: torch.Tensor, source: int, size: int) -> None:
        """Copies `size` bytes from the address `source` into `target`, in the order of the caller's stream."""

    def stop(self) -> tuple[float, float]:
        """Waits for the whole device. Returns milliseconds: (the call on its stream, other work after that stream was done)."""


class DeviceClock:
    """The clock of a GPU. Creates the primary CUDA context if there is none."""

    def __init__(self) -> None:
        torch.empty(1, device="cuda")      # makes the primary context current in this thread
        driver, library = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL(None)
        self._now = library.clock_gettime
        self._wait = driver.cuCtxSynchronize
        self._wait_stream = driver.cuStreamSynchronize
        self._record = driver.cuEventRecord
        self._elapsed = driver.cuEventElapsedTime
        self._fill = driver.cuMemsetD8Async
        self._copy = driver.cuMemcpyDtoDAsync_v2
        self._reset = driver.cuCtxResetPersistingL2Cache
        self._call: Callable[..., None] = _checked
        self._attribute = driver.cuDeviceGetAttribute
        self._began, self._ended = _Time(), _Time()
        self._before, self._after = ctypes.c_void_p(), ctypes.c_void_p()
        for event in (self._before, self._after):
            _checked(driver.cuEventCreate, ctypes.byref(event), ctypes.c_uint(0))
        self._flush_bytes = max(2 * self.l2_bytes(), _FLUSH_BYTES)
        self._flush = ctypes.c_uint64()
        _checked(driver.cuMemAlloc_v2, ctypes.byref(self._flush), ctypes.c_size_t(self._flush_bytes))
        self._persisting = self._reset() != _NOT_SUPPORTED

    def settle(self) -> None:
        if self._persisting:
            self._call(self._reset)
        self._call(self._fill, self._flush, ctypes.c_ubyte(0), ctypes.c_size_t(self._flush_bytes), _LEGACY)
        self._call(self._wait)

    def start(self) -> None:
        self._call(self._record, self._before, _LEGACY)

    def returned(self) -> None:
        self._call(self._record, self._after, _LEGACY)

    def copy(self, target: torch.Tensor, source: int, size: int) -> None:
        place = ctypes.c_uint64(target.data_ptr())
        self._call(self._copy, place, ctypes.c_uint64(source), ctypes.c_size_t(size), _LEGACY)

    def stop(self) -> tuple[float, float]:
        self._call(self._wait_stream, _LEGACY)
        self._now(_MONOTONIC, ctypes.byref(self._began))
        self._call(self._wait)
        self._now(_MONOTONIC, ctypes.byref(self._ended))
        took = ctypes.c_float()
        self._call(self._elapsed, ctypes.byref(took), self._before, self._after)
        seconds = self._ended.seconds - self._began.seconds
        return took.value, 1e3 * seconds + 1e-6 * (self._ended.nanoseconds - self._began.nanoseconds)

    def l2_bytes(self) -> int:
        return self._attribute_of(_L2_BYTES)

    def peak_bandwidth(self) -> float:
        """Bytes per second that the memory's clock and bus allow; 0 if the driver does not know them."""
        return 2.0 * 1e3 * self._attribute_of(_MEMORY_KHZ) * self._attribute_of(_BUS_BITS) / 8

    def _attribute_of(self, which: int) -> int:
        value = ctypes.c_int()
        _checked(self._attribute, ctypes.byref(value), ctypes.c_int(which), ctypes.c_int(0))
        return value.value


class DeviceFault(RuntimeError):
    """The CUDA driver returned an error; usually an earlier kernel failed."""


class _Time(ctypes.Structure):
    """struct timespec."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def _checked(function: Any, *arguments: Any) -> None:
    code = function(*arguments)
    if code:
        raise DeviceFault(f"the CUDA driver answers {function.__name__} with error {code}")


def median_ms(clock: Clock, call: Callable[[], object], calls: int) -> float:
    """Returns the median milliseconds of so many calls of trusted code."""
    times = []
    for _ in range(calls):
        clock.settle()
        clock.start()
        result = call()
        clock.returned()
        times.append(clock.stop()[0])
        del result
    return median(times)
