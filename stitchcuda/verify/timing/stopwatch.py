"""Native clocks for a worker on a GPU: the CUDA driver and the C library, bound before any program is imported.

Nothing here looks up a Python attribute of torch or time while a program is loaded, so patching those changes nothing. Before
each call L2 is flushed, persisting lines are reset and the device is idle; after it the whole device is waited for. This
cannot withstand native code that rewrites the driver's memory: the judge's own clock does (`verify/timing/clock_agreement.py`).
Where to look next: `verify/timing/timed_calls.py` (what is timed), `verify/timing/rounds.py` (who asks).
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
_LEGACY = None                             # the stream that orders itself with every blocking one
_FLUSH_BYTES = 128 * 2**20


class Clock(Protocol):
    """What times one call: `settle`, `start`, the call, `returned`, `stop`."""

    def settle(self) -> None:
        """A cold L2 without persisting lines, and an idle device."""

    def start(self) -> None: ...

    def returned(self) -> None:
        """The call is back: what its stream holds so far is the call's work."""

    def copy(self, target: torch.Tensor, source: int, size: int) -> None:
        """Bytes at an address, in the order of the caller's stream."""

    def stop(self) -> tuple[float, float]:
        """Wait for the whole device; milliseconds of (the call on its stream, what goes on when that stream is done)."""


class DeviceClock:
    """The clock of a GPU. Needs a CUDA context; makes it current if there is none."""

    def __init__(self) -> None:
        torch.empty(1, device="cuda")      # the primary context, current in this thread
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
        """Bytes per second that the memory's own clock allows; 0 where the driver does not say."""
        return 2.0 * 1e3 * self._attribute_of(_MEMORY_KHZ) * self._attribute_of(_BUS_BITS) / 8

    def _attribute_of(self, which: int) -> int:
        value = ctypes.c_int()
        _checked(self._attribute, ctypes.byref(value), ctypes.c_int(which), ctypes.c_int(0))
        return value.value


class DeviceFault(RuntimeError):
    """The driver answers with an error: usually a kernel before it failed."""


class _Time(ctypes.Structure):
    """struct timespec."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


def _checked(function: Any, *arguments: Any) -> None:
    code = function(*arguments)
    if code:
        raise DeviceFault(f"the CUDA driver answers {function.__name__} with error {code}")


def eager(clock: Clock, call: Callable[[], object], calls: int) -> float:
    """Median milliseconds of a trusted call: the reference's time before anything is compared."""
    times = []
    for _ in range(calls):
        clock.settle()
        clock.start()
        result = call()
        clock.returned()
        times.append(clock.stop()[0])
        del result
    return median(times)
