"""Records every operator that torch's dispatcher runs in a call, from below Python, and finds those that no mode counted.

`ByteTraffic` counts as a dispatch mode. A mode can be left (`_disable_current_modes`), belongs to one thread, and is a Python
object that a program can change. Torch's record functions inside the dispatcher fire for every operator of every thread. What
a mode handles runs inside a mark, so an operator that neither lies in a mark nor contains one escaped the mode. Counts are
written into the same recording, as names of events, so that no object holds a sum that a program could change. It decides
nothing, and does not see what code computes without torch. Where to look next: `verify/integrity/byte_traffic.py` (the mode),
`simulator/loaded_runtime.py` (computing without torch).
"""

from __future__ import annotations

import itertools
import secrets
import sys
from bisect import bisect_left
from collections.abc import Collection
from functools import cache
from types import TracebackType
from typing import Any, Literal

import torch
from torch._C import _profiler

from stitchcuda.simulator import loaded_runtime
from stitchcuda.verify.integrity.graph_boundary import Note, Range, free_copies
from stitchcuda.verify.messages.program_requests import Step

# Bound before a program is imported, so that it cannot replace them.
_prepare = torch._C._autograd._prepare_profiler
_enable = torch._C._autograd._enable_profiler
_disable = torch._C._autograd._disable_profiler
_Mark = _profiler._RecordFunctionFast
_MARK = f"stitchcuda {secrets.token_hex(8)}"
_STEERING = (
    "_prepare_profiler", "_enable_profiler", "_disable_profiler", "_enable_profiler_legacy", "_disable_profiler_legacy",
    "_toggle_collection_dynamic", "_enable_record_function", "_set_empty_test_observer",
)  # fmt: skip
_numbers = itertools.count()               # numbers the notes, so that a missing or repeated one is noticed
_CPU = {torch.profiler.ProfilerActivity.CPU}
_SHOWN = 5                                 # operators that are named in a reason
_known: frozenset[str] | None = None       # operators that existed before the program; None before `close_recordings`
_MOVED = ("vendor", "framework", "copy", "launched")
_IN_ORDER = ("copy", "replay", "touch", "replayed")
_STEPS: dict[str, Literal["own", "vendor", "framework"]] = {
    "own": "own", "vendor": "vendor", "framework": "framework", "copy": "framework",
}  # fmt: skip


class mark:
    """A context for what the worker itself does with tensors and for each operator that a mode passes on: they count as seen,
    and the host may access simulated device memory."""

    __slots__ = ("_event",)

    def __enter__(self) -> None:
        loaded_runtime.allow_host_access()
        self._event = _Mark(_MARK)
        self._event.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._event.__exit__(kind, error, trace)
        loaded_runtime.end_host_access()


def mark_seen() -> None:
    """Marks the running operator, but none that it calls, as handled by a mode."""
    with _Mark(_MARK):
        pass


def note(kind: str, count: int, what: str = "") -> int:
    """Writes a count into the recording that is running, if any. Returns the note's number."""
    number = next(_numbers)
    with _Mark(f"{_MARK} {number} {kind} {count} {what}"):
        pass
    return number


def is_builtin_operator(name: str) -> bool:
    """Whether an operator existed before the program was imported, so that its name and schema say what it does."""
    return _known is None or name in _known


def close_recordings() -> None:
    """Lets only this module and `verify/integrity/device_time.py` start, end or interrupt recordings in this process from now
    on, and stops programs from giving torch's own operators other kernels below the level of modes."""
    global _known
    _known = frozenset(torch._C._dispatch_get_all_op_names())
    spaces = {name.partition("::")[0] for name in _known}
    library = torch._C._dispatch_library

    def guarded(kind: str, space: str, key: str, *where: Any) -> Any:
        made = library(kind, space, key, *where)
        return _Guarded(made, space, key) if space in spaces or space == "_" else made

    vars(torch._C)["_dispatch_library"] = guarded

    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("recordings are the verifier's while a program is judged")

    steering = {id(getattr(torch._C._autograd, name, None)) for name in _STEERING} - {id(None)}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == "torch":
            for word, value in list(vars(module).items()):
                if id(value) in steering:
                    setattr(module, word, refuse)


class _Guarded:
    """Wraps a torch.library library: to torch's own operators it may add kernels for shapes (Meta) and vmap (FuncTorch) only:
    torch itself adds these when they are first wanted."""

    def __init__(self, made: Any, space: str, key: str) -> None:
        self._made, self._space, self._key = made, space, key

    def __getattr__(self, name: str) -> Any:
        return getattr(self._made, name)

    def impl(self, name: str, key: str, *given: Any) -> Any:
        if is_builtin_operator(name if "::" in name else f"{self._space}::{name}"):
            self._allow(key or self._key)
        return self._made.impl(name, key, *given)

    def fallback(self, key: str, *given: Any) -> Any:
        self._allow(key or self._key)
        return self._made.fallback(key, *given)

    def _allow(self, key: str) -> None:
        if key != "Meta" and not key.startswith("FuncTorch"):
            raise PermissionError("a program under judgement may not do this: it gives torch's own operators other kernels")


class DispatchRecorder:
    """A context for one call. Its results are known afterwards. With `watch` false it does nothing."""

    def __init__(self, *, watch: bool = True) -> None:
        self._watch = watch
        self.hidden: tuple[str, ...] = ()  # operators that computed something without a mode that saw it
        self.noted: dict[str, dict[str, int]] = {}  # sums by kind, then by what was noted
        self.trouble = ""                  # why the recording is worthless: the program ended it or began another
        self.steps: list[Step] = []        # what the call ran, in order
        self.replayed = 0                  # bytes that operators and launches of replayed graphs moved
        self._notes: list[Note] = []       # of copies and replays, in order
        self._first = 0                    # number of the note at the begin of the recording

    def __enter__(self) -> DispatchRecorder:
        if not self._watch:
            return self
        try:
            _prepare(_config(), _CPU)
            _enable(_config(), _CPU)
            self._first = note("begin", 0)
        except RuntimeError as error:
            self.trouble = f"the call could not be recorded: {str(error).splitlines()[0]}"
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.trouble or not self._watch:
            return
        secret = secrets.token_hex(8)      # made only now: a recording that the program ended before does not contain it
        try:
            last = note("end", 0, secret)
            events = _disable().events()
        except RuntimeError as failure:
            self.trouble = f"the program ended the recording of its own call ({str(failure).splitlines()[0]})"
            return
        spans = [(str(event.name()), event.start_ns(), event.end_ns(), event.start_thread_id()) for event in events]
        self.hidden = find_hidden(spans, _MARK)
        texts = [name[len(_MARK) + 1 :].split(" ", 3) for event in events if (name := event.name()).startswith(f"{_MARK} ")]
        numbered = sorted((int(text[0]), text[1], text[2], text[3]) for text in texts if text[0].isdecimal())
        in_replay = False
        for _, sort, count, what in numbered:
            moved = int(count) if count.isdecimal() else 0
            in_replay = sort == "replay" or (in_replay and sort != "replayed")
            self.replayed += moved if in_replay and sort in _MOVED else 0
            if sort in _IN_ORDER:
                self._notes.append((sort, moved, what))
            if sort in _STEPS:
                what, _, line = what.partition("\t")
                name, _, layouts = what.partition(" ")
                who = _STEPS[sort]
                self.steps.append((who, name, moved, "" if sort == "copy" else layouts, line))
                self._add(who, moved, name)
            else:
                self._add(sort, moved, what)
        numbers = [number for number, *_ in numbered]
        if numbers != list(range(self._first, last + 1)) or list(self.noted.get("end", ())) != [secret]:
            self.trouble = "the program ended the recording of its own call"

    def total(self, kind: str) -> int:
        """The sum of all notes of a kind."""
        return sum(self.noted.get(kind, {}).values())

    def at_boundary(self, inputs: Collection[Range], outputs: Collection[Range]) -> int:
        """The bytes, counted as framework, that copies into and out of replayed graphs moved. Forging such a note gains
        nothing, since it adds as much to the framework's sum."""
        return sum(copy.moved for copy in free_copies(self._notes, inputs, outputs))

    def _add(self, kind: str, count: int, what: str) -> None:
        sums = self.noted.setdefault(kind, {})
        sums[what] = sums.get(what, 0) + count

    @property
    def reasons(self) -> list[str]:
        """Why the program is refused, as sentences; [] if nothing speaks against it."""
        if self.trouble:
            return [self.trouble]
        if not self.hidden:
            return []
        more = f" and {len(self.hidden) - _SHOWN} more" if len(self.hidden) > _SHOWN else ""
        where = "outside of the dispatch modes, or in a thread of its own"
        return [f"operators ran where they are not counted: {', '.join(self.hidden[:_SHOWN])}{more} ({where})"]


def find_hidden(events: list[tuple[str, int, int, int]], marked: str) -> tuple[str, ...]:
    """Names of the outermost computing operators outside of marks. `events`: (name, start, end, thread); `marked`: a mark's
    name."""
    found: dict[str, None] = {}
    for thread in {event[3] for event in events}:
        own = sorted((event for event in events if event[3] == thread), key=lambda event: (event[1], -event[2]))
        marks = [start for name, start, _, _ in own if name == marked]
        until = -1                         # end of the mark or hidden operator that covers the next events
        for name, start, end, _ in own:
            if name == marked or start < until:
                until = max(until, end) if name == marked else until
                continue
            inside = bisect_left(marks, start)
            if (inside < len(marks) and marks[inside] < end) or not computes(name):
                continue                   # it contains what a mode saw, or does nothing by itself
            found[name] = None
            until = end
    return tuple(found)


@cache
def computes(name: str) -> bool:
    """Whether an operator works on data itself, so that it is no view, no allocation and no mere composition of others."""
    space, _, operator = name.partition("::")
    if not operator or space in ("profiler", "c10d"):
        return False
    try:
        packet = getattr(getattr(torch.ops, space), operator)
        overloads = [getattr(packet, overload) for overload in packet.overloads()]
    except (AttributeError, RuntimeError):
        return False                       # the name of an annotation, not of an operator
    if operator.startswith(("empty", "new_empty", "detach", "alias", "resolve_", "lift", "set_", "record_stream", "_has_")):
        return False
    return any(_own_work(overload) for overload in overloads)


def _own_work(operator: Any) -> bool:
    name = operator.name()
    if operator.is_view or not torch._C._dispatch_has_kernel(name):
        return False
    return not torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")


def _config() -> Any:
    try:
        extra = _profiler._ExperimentalConfig(profile_all_threads=True)
    except TypeError:                      # an older torch can record the calling thread only
        extra = _profiler._ExperimentalConfig()
    return _profiler.ProfilerConfig(_profiler.ProfilerState.KINETO, False, False, False, False, False, extra)


