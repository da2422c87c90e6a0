"""Notices a program that changes or inspects the process it runs in. Only in program workers.

`TamperSeal` remembers, before the program is imported, which functions and classes the modules that measure are made of,
and says afterwards what was replaced. `watch` installs an audit hook (PEP 578), which cannot be removed, for the few events by
which Python code reaches objects that nobody gave it; it shares neither globals nor builtins with anybody. Native code can
defeat both; what it cannot forge is seen from outside (`verify/program/trial.py`, `verify/timing/rounds.py`). Where to look
next: `verify/integrity/screen.py`, the same question asked of the source.
"""

from __future__ import annotations

import builtins
import logging
import os
import signal
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator
from functools import cache
from os import PathLike, fsdecode, getpid
from os.path import abspath, realpath
from pathlib import Path
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    MethodDescriptorType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

import torch

# Modules that measure, compare, count or write. Matched with everything below them where the name ends with a dot.
_SEALED = (
    "stitchcuda.", "torch", "torch.cuda", "torch.cuda.", "torch._tensor", "torch._ops", "torch.overrides", "torch.autograd",
    "torch.autograd.", "torch.profiler", "torch.profiler.", "torch.utils._python_dispatch", "torch.utils._pytree",
    "torch.nn.functional", "torch.nn.modules.module", "torch.library", "torch.serialization", "safetensors", "safetensors.",
    "builtins", "time", "json", "json.", "socket", "select", "os", "posixpath", "io", "gc", "ctypes", "threading", "hashlib",
    "hmac", "random",
)  # fmt: skip
_PARTS = (
    FunctionType, BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType, type, staticmethod, classmethod, property,
)  # fmt: skip
_WATCHED = {
    "gc.get_objects": "lists the objects of the process",
    "gc.get_referrers": "looks for objects by what refers to them",
    "gc.get_referents": "looks for objects by what they refer to",
    "sys._current_frames": "reads the frames of the process",
    "sys._current_exceptions": "reads the exceptions of the process",
    "sys._getframe": "reads the frames of those who call it",
    "sys.settrace": "traces the process",
    "sys.setprofile": "traces the process",
    "code.__new__": "makes code that is not in its source",
    "marshal.loads": "makes code that is not in its source",
}
# Attempts at what the sandbox forbids anyway: a program that tries is no program to trust.
_ATTEMPTS = {
    "socket.connect": "reaches for the network",
    "socket.sendto": "reaches for the network",
    "socket.bind": "reaches for the network",
    "socket.getaddrinfo": "reaches for the network",
    "os.fork": "starts a process",
    "os.forkpty": "starts a process",
    "os.exec": "starts a process",
    "os.posix_spawn": "starts a process",
    "os.system": "starts a process",
    "os.kill": "signals processes",
    "os.killpg": "signals processes",
    "subprocess.Popen": "starts a process",
}
# What these are given as their first argument is a path that they change; `open` is looked at separately.
_WRITES = (
    "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "shutil.rmtree",
)  # fmt: skip
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# What programs ask the system about itself; all else there is memory, files or mounts that nobody gave them.
_TOLD = frozenset(("cpuinfo", "meminfo", "stat", "loadavg", "version", "uptime", "self/status", "self/stat", "self/statm",
                   "self/limits", "self/cgroup", "driver/nvidia/version"))  # fmt: skip
_MEMORY = "reads memory by its address"
_FREE = ("/tmp/", "/dev/null", "/dev/shm/", "/var/tmp/")  # private to the program, or nothing
# Whoever calls through these modules does what they do.
_THROUGH = (
    "inspect", "traceback", "subprocess", "socket", "os", "pathlib", "shutil", "tempfile", "io", "multiprocessing", "urllib",
    "http", "pty", "asyncio", "concurrent", "threading", "contextlib", "logging", "bdb", "pdb", "trace", "profile", "cProfile",
    "code", "codeop", "doctest", "timeit", "sched", "queue", "weakref", "functools", "pkgutil", "signal",
)  # fmt: skip
# Whoever reads these has a frame, and from there those of all callers.
_FRAMES = ("tb_frame", "gi_frame", "cr_frame", "ag_frame")
_READS_FRAMES = "reads the frames of an error or a generator"
# This looks at frames for anybody, and hands none on.
_TRUSTED = traceback.TracebackException.__init__.__code__
_LOADERS = ("<frozen importlib", "<frozen zipimport", "<frozen runpy")
_PYC_HEADER = 16                           # bytes before what `marshal.loads` is given
_ATTRIBUTES = ("__code__", "__defaults__", "__kwdefaults__", "__globals__", "__closure__")


# torch.compile wraps these two when it is first used.
_REPLACED_BY_TORCH = ("torch.nn.modules.module.Module.__init__", "torch.nn.modules.module.Module.__setstate__")


class TamperSeal:
    """What the measuring modules are made of at one moment."""

    def __init__(self) -> None:
        self._held = list(_pieces())
        self._names = frozenset(vars(torch.Tensor))  # a new one there would hide one of its base class

    def accept_changes(self) -> None:
        """Take what was replaced so far as the worker's own doing; called before anything of the program is imported."""
        self._held = [
            (holder, name, now, _code(now), full)
            for holder, name, _, _, full in self._held
            if (now := holder.get(name)) is not None
        ]
        self._names = frozenset(vars(torch.Tensor))

    def checker(self) -> Callable[[], list[str]]:
        """A function that says what was replaced since, such as "torch.cuda.synchronize was replaced"; the first ten.

        It looks nothing up where a program could put something else: no global, no builtin, no attribute of this object.
        """
        held = tuple(
            (holder, name, value, getattr(value, "__func__", value) if code else None, *(code or (None, None)), full)
            for holder, name, value, code, full in self._held
            if full not in _REPLACED_BY_TORCH
        )
        names, tensor = self._names, vars(torch.Tensor)

        def told() -> list[str]:
            changed = [
                full
                for holder, name, value, function, code, defaults, full in held
                if holder.get(name) is not value
                or (function is not None and (function.__code__ is not code or function.__defaults__ is not defaults))
            ]
            changed += [f"torch.Tensor.{name}" for name in tensor if name not in names]
            return [f"{name} was replaced" for name in changed[:10]]

        return told


def watch(program: Path, scratch: Path) -> Callable[[], list[str]]:
    """From now on, what code in `program` does to frames, collected objects or functions' code, and attempts to leave its
    `scratch` folder, start a process or reach a network, raise and are told by the function that is returned.

    Irreversible: the worker is thrown away. The hook is made of copies, in a namespace and with builtins that no module holds:
    what a program replaces, even for a moment, is not what it looks up.
    """
    apart = dict(globals())
    apart["__builtins__"] = dict(vars(builtins))
    for name, value in globals().items():
        if isinstance(value, FunctionType) and value.__module__ == __name__:
            apart[name] = FunctionType(value.__code__, apart, name, value.__defaults__)
    logging._srcfile = None                # as its documentation has it: no record looks for its caller
    for module in (signal, sys.modules["_signal"]):       # a handler is given the frame that it interrupts
        vars(module)["signal"] = _refuse_handlers
    told: Callable[[], list[str]] = apart["_install"](f"{program}", f"{scratch}/")
    return told


def _refuse_handlers(*_: object) -> None:
    raise PermissionError("a program under judgement may not do this: it handles signals")


def _install(root: str, own: str) -> Callable[[], list[str]]:
    getframe = sys._getframe
    busy = threading.local()               # the hook's own look at frames is an event too
    through = tuple(f"/{name}{end}" for name in _THROUGH for end in (".py", "/"))
    libraries = _libraries(root, own)
    others = ("<", *libraries)             # what code is called that is of no file, or of a library's
    python = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib"))
    claimed: set[str] = set()              # names of files under which the program compiled what does not stand there
    lent: dict[int, CodeType] = {}         # what a library runs under the program's names, such as C++ frames in a traceback
    watched = _WATCHED | _ATTEMPTS         # of its own: a program may empty those
    seen: list[str] = []

    def theirs(frame: FrameType) -> bool:  # all that is no library's, such as a file that the program wrote
        name = frame.f_code.co_filename
        outside = name.startswith(root) or name in claimed or not name.startswith(others)
        return outside and id(frame.f_code) not in lent

    def hook(event: str, args: tuple[Any, ...]) -> None:
        what = watched.get(event) or _other(event, args, own)
        if not what or getattr(busy, "now", False):
            return
        busy.now = True
        try:
            frame = getframe(1)
            means = what != _READS_FRAMES or _means(frame, args[1])
            if event in ("compile", "exec", "marshal.loads") and _stands(frame, event, args, libraries):
                return
            while frame is not None and not theirs(frame) and (
                what == _MEMORY or not means or _passes_on(frame, through)
                or (event == "sys._getframe" and _is_private(frame))
                or id(frame.f_code) in lent
                or (event in ("compile", "marshal.loads") and frame.f_code.co_filename.startswith(_LOADERS))
                or (event in ("compile", "exec") and _is_pythons(frame.f_code.co_filename, python))
            ):
                if means and frame.f_code is _TRUSTED:
                    return
                frame = frame.f_back  # type: ignore[assignment]
            charged = frame is None or theirs(frame)  # who has no caller at all was started by the program
            if event == "compile" and charged:
                claimed.add(args[1])
            if event == "exec" and frame is not None and not charged and not frame.f_code.co_filename.startswith("<"):
                lent[id(args[0])] = args[0]
            if event in ("compile", "exec") or not charged:
                return
            where = f"{frame.f_code.co_filename.rpartition('/')[2]} line {frame.f_lineno}" if frame else "a thread"
        finally:
            busy.now = False
        seen.append(f"{where} {what}")
        raise PermissionError(f"a program under judgement may not do this: it {what}")

    sys.addaudithook(hook)
    return lambda: [*seen]


def _means(frame: FrameType, name: str) -> bool:
    """Whether the code that reads an attribute says so itself, rather than for somebody who gave it the name."""
    return name in frame.f_code.co_names and not frame.f_code.co_filename.startswith("<")


def _libraries(root: str, own: str) -> tuple[str, ...]:
    """Where the code lies that is nobody's under judgement: no folder in which the program is or may write."""
    places = [*map(str, sysconfig.get_paths().values()), *sys.path]
    for name, module in list(sys.modules.items()):
        if "." not in name:                # what is installed in place lies in no folder of these
            places += [*map(str, getattr(module, "__path__", ()))] or [os.path.dirname(getattr(module, "__file__", None) or "")]
    kept: tuple[str, ...] = ()
    for place in sorted({f"{place.rstrip('/')}/" for place in places if place.startswith("/")}, key=len):
        if not place.startswith(kept) and not f"{root}/".startswith(place) and not own.startswith(place):
            kept = (*kept, place)
    return kept


def _is_private(frame: FrameType) -> bool:
    """Whether it is in a function that other code of its library calls: it works for its caller."""
    return frame.f_code.co_name.startswith("_") and not frame.f_code.co_name.startswith("__")


def _is_pythons(name: str, python: tuple[str, ...]) -> bool:
    """Whether it is a file of the standard library: what compiles there does it for somebody."""
    return name.startswith(python) and "-packages/" not in name


def _stands(frame: FrameType, event: str, args: tuple[Any, ...], libraries: tuple[str, ...]) -> bool:
    """Whether what becomes code is what its file holds, or is named after no file."""
    if event == "exec":
        from_file = args[0].co_filename if isinstance(args[0], CodeType) else "<"
        return from_file.startswith(("<", *libraries))
    if event == "compile":
        source, name, skipped = *args, 0
        if not isinstance(name, str) or (name.startswith("<") and not name.startswith("<frozen")):
            return True
    else:                                  # as importlib reads what it compiled earlier
        source, name, skipped = args[0], frame.f_locals.get("bytecode_path"), _PYC_HEADER
        if not frame.f_code.co_filename.startswith("<frozen importlib") or not isinstance(name, str):
            return False
    if not name.startswith(libraries) or "/../" in name:
        return False
    source = source.encode() if isinstance(source, str) else source
    try:
        with open(name, "rb") as file:
            return isinstance(source, bytes | bytearray | memoryview) and file.read()[skipped:] == source
    except OSError:
        return False


def _other(event: str, args: tuple[Any, ...], own: str) -> str:
    """What an event does that matters only with certain arguments; "" where it does not matter."""
    if event in ("compile", "exec"):
        return "makes code that is not in its source"
    if event in ("object.__setattr__", "object.__delattr__"):
        return f"changes the {args[1]} of a function" if args[1] in _ATTRIBUTES else ""
    if event == "object.__getattr__":
        return _READS_FRAMES if args[1] in _FRAMES else ""
    if event == "open":
        path, mode, flags = (*args, None, None, None)[:3]
        writes = (isinstance(mode, str) and any(letter in mode for letter in "wax+")) or bool((flags or 0) & _WRITING)
        return _of_process(path) or (_outside(path, own) if writes else "")
    return _outside(args[0], own) if event in _WRITES and args else ""


def _of_process(path: Any) -> str:
    """What opening a file of /proc is, however its path is written; "" for any other."""
    if not isinstance(path, str | bytes | PathLike):
        return ""
    for full in (abspath(path := fsdecode(path)), realpath(path)):
        if (inner := f"/{full.lstrip('/')}").startswith("/proc/"):
            inner = inner.removeprefix("/proc/")
            own = inner.replace(f"{getpid()}/", "self/", 1) if inner.startswith(f"{getpid()}/") else inner
            if own.endswith("/mem"):
                return _MEMORY
            if own not in _TOLD and not own.startswith(("sys/", "driver/")):
                return f"opens {full[:80]}"
    return ""


def _outside(path: Any, own: str) -> str:
    if not isinstance(path, str | bytes | PathLike):
        return ""                          # a descriptor that is open already
    full = abspath(fsdecode(path))
    return "" if f"{full}/".startswith(own) or full.startswith(_FREE) else f"writes to {full[:80]}, outside of its folder"


def _passes_on(frame: FrameType, library: tuple[str, ...]) -> bool:
    name = frame.f_code.co_filename
    if name.startswith("<"):               # made of a text, by whoever calls it
        return not name.startswith(_LOADERS)
    return "/site-packages/" not in name and any(part in name for part in library)


def _pieces() -> Iterator[tuple[dict[str, Any], str, Any, Any, str]]:
    """(namespace, name, value, code, full name) of every function and class of the sealed modules and of their classes."""
    for module_name, module in list(sys.modules.items()):
        if not isinstance(module, ModuleType) or not _is_sealed(module_name):
            continue
        held = vars(module)
        for name, value in list(held.items()):
            if isinstance(value, _PARTS):
                yield held, name, value, _code(value), f"{module_name}.{name}"
            if isinstance(value, type) and value.__module__.split(".")[0] == module_name.split(".")[0]:
                for part, inner in list(vars(value).items()):
                    if isinstance(inner, _PARTS):
                        yield vars(value), part, inner, _code(inner), f"{module_name}.{name}.{part}"  # type: ignore[misc]


def _is_sealed(name: str) -> bool:
    return name in _SEALED or any(name.startswith(prefix) for prefix in _SEALED if prefix.endswith("."))


def _code(value: Any) -> Any:
    function = getattr(value, "__func__", value)
    return (function.__code__, function.__defaults__) if isinstance(function, FunctionType) else None


@cache
def seal() -> TamperSeal:
    """This process's, made when first asked for: by the process that workers are forked from, so that no worker pays for it."""
    return TamperSeal()
