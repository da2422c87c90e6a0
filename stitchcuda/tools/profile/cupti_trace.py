"""Reads the trace that torch.profiler writes (CUPTI from inside the process) into a `SystemProfile`, where nsys cannot run.

The file is in Chrome's trace event format; times are microseconds with three decimals. Operators, flows, and annotations that
are repeated on the device's side are ignored. It starts nothing.
Where to look next: `tools/profile/timeline.py` (makes the profile), `verify/program/profiled_process.py` (writes the trace).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from stitchcuda.errors import Unavailable
from stitchcuda.tools.build.kernel_names import classify
from stitchcuda.tools.profile.ranges import CALL_RANGE
from stitchcuda.tools.profile.system_profile import SystemProfile
from stitchcuda.tools.profile.timeline import ApiCall, DeviceWork, Range, Recording, profile_of, recording_of
from stitchcuda.tools.profile.untrusted_file import MOST_BYTES, open_foreign

_NS = 1e3                                  # in a microsecond
_COPIES = {"HtoD": "Host-to-Device", "DtoH": "Device-to-Host", "DtoD": "Device-to-Device", "PtoP": "Peer-to-Peer"}


def read_trace(path: Path, *, own: Iterable[str] = (), why: str) -> SystemProfile:
    """Returns the profile of the calls in a trace. `own`: the program's kernels; `why`: why there is no better source.

    Raises `Unavailable` for a file that is missing or damaged, and for one without a call or without a kernel.
    """
    try:
        with open_foreign(path) as file:
            events = json.loads(file.read(MOST_BYTES))["traceEvents"]
        complete = [event for event in events if event.get("ph") == "X"]
        recording = _recording(complete, frozenset(own))
        profile = profile_of(recording, source="cupti", why=why)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        why_not = f"{type(error).__name__}: {str(error)[:200]}"
        raise Unavailable(f"{path} is no trace of torch.profiler, or was cut short ({why_not})") from error
    if not recording.work:
        raise Unavailable(f"{path}: torch.profiler recorded no kernel; CUPTI may be in use by another profiler")
    if not profile.kernels:
        raise Unavailable(f'{path}: nothing was launched in the {len(recording.calls)} ranges "{CALL_RANGE}"')
    return profile


def _recording(events: Sequence[Mapping[str, Any]], own: frozenset[str]) -> Recording:
    def within(*categories: str) -> list[Mapping[str, Any]]:
        return [event for event in events if event.get("cat") in categories]

    def host(event: Mapping[str, Any]) -> Range:
        return Range(event["name"], *_times(event), process=0, thread=_thread(event))

    return recording_of(
        [host(event) for event in within("user_annotation")],
        [ApiCall(*host(event), int(event["args"].get("correlation", -1))) for event in within("cuda_runtime", "cuda_driver")],
        [_work(event, own) for event in within("kernel", "gpu_memcpy", "gpu_memset")],
    )


def _work(event: Mapping[str, Any], own: frozenset[str]) -> DeviceWork:
    arguments, name = event["args"], event["name"]
    kind: Literal["kernel", "copy"] = "kernel" if event["cat"] == "kernel" else "copy"
    origin: Any = classify(name, own) if kind == "kernel" else "copy"
    if event["cat"] == "gpu_memset":
        name = "memset"
    elif kind == "copy":                   # "Memcpy HtoD (Pageable -> Device)"
        short = re.search(r"\b([HDP]to[HDP])\b", name)
        name = f"copy {_COPIES.get(short.group(1), short.group(1)) if short else name}"
    return DeviceWork(
        kind, name, origin, *_times(event), process=0,
        stream=(int(arguments.get("device", 0)), int(arguments.get("context", 0)), int(arguments.get("stream", 0))),
        correlation=int(arguments.get("correlation", -1)), of_graph=bool(arguments.get("graph node id")),
        size=int(arguments.get("bytes", 0)),
    )  # fmt: skip


def _times(event: Mapping[str, Any]) -> tuple[int, int]:
    start, took = round(float(event["ts"]) * _NS), round(float(event.get("dur", 0)) * _NS)
    if took < 0:
        raise ValueError("something ends before it begins")
    return start, start + took


def _thread(event: Mapping[str, Any]) -> int:
    """Returns a thread's number; torch.profiler gives some threads names instead, which launch nothing."""
    return event["tid"] if isinstance(event["tid"], int) else hash(event["tid"])
