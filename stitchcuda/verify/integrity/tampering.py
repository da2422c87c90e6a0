"""Notices a program that changes or inspects the process it runs in. Used only in program workers.

`TamperSeal` records, before the program is imported, the functions and classes of the modules that measure, and says afterwards
which were replaced. `watch` installs an audit hook (PEP 578), which cannot be removed, for the events by which Python code
reaches objects that it was not given; `_WATCHED` and `_WRITES` are the rules. The hook shares neither globals nor
builtins with any module. Native code can defeat both; what it cannot forge is measured from outside.
Where to look next: `verify/integrity/screen.py` (the same in the source), `verify/program/trial.py`, `verify/timing/rounds.py`.
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

# Modules that measure, compare, count or write. A name that ends with a dot stands for all modules below it.
_SEALED = (
    "stitchcuda.", "torch", "torch.cuda", "torch.cuda.", "torch._tensor", "torch._ops", "torch.overrides", "torch.autograd",
    "torch.autograd.", "torch.profiler", "torch.profiler.", "torch.utils._python_dispatch", "torch.utils._pytree",
    "torch.nn.functional", "torch.nn.modules.", "torch.library", "torch.serialization", "safetensors", "safetensors.",
    "builtins", "time", "json", "json.", "socket", "select", "os", "posixpath", "io", "gc", "ctypes", "threading", "hashlib",
    "hmac", "random",
)  # fmt: skip
_PARTS = (
    FunctionType, BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType, type, staticmethod, classmethod, property,
)  # fmt: skip
_WATCHED = {
    event: deed
    for deed, events in {
        "lists the objects of the process": ("gc.get_objects",),
        "looks for objects by what refers to them": ("gc.get_referrers",),
        "looks for objects by what they refer to": ("gc.get_referents",),
        "reads the frames of the process": ("sys._current_frames",),
        "reads the exceptions of the process": ("sys._current_exceptions",),
        "reads the frames of those who call it": ("sys._getframe",),
        "traces the process": ("sys.settrace", "sys.setprofile"),
        "makes code that is not in its source": ("code.__new__", "marshal.loads"),
        # The sandbox forbids these anyway, but a program that tries them is not to be trusted.
        "reaches for the network": ("socket.connect", "socket.sendto", "socket.bind", "socket.getaddrinfo"),
        "starts a process": ("os.fork", "os.forkpty", "os.exec", "os.posix_spawn", "os.system", "subprocess.Popen"),
        "signals processes": ("os.kill", "os.killpg"),
    }.items()
    for event in events
}
# Events whose first argument is a path that changes; `open` is checked separately.
_WRITES = (
    "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "shutil.rmtree",
)  # fmt: skip
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
# Files of /proc about the system or the process that a program may read. The others give access to memory, files or mounts.
_ALLOWED_PROC = frozenset((
    "cpuinfo", "meminfo", "stat", "loadavg", "version", "uptime", "self/status", "self/stat", "self/statm", "self/limits",
    "self/cgroup", "driver/nvidia/version",
))  # fmt: skip
_MEMORY = "reads memory by its address"
_FREE = ("/tmp/", "/dev/null", "/dev/shm/", "/var/tmp/")  # private to the program in its sandbox, or without effect
# What these modules do is attributed to the code that calls them.
_THROUGH = (
    "inspect", "traceback", "subprocess", "socket", "os", "pathlib", "shutil", "tempfile", "io", "multiprocessing", "urllib",
    "http", "pty", "asyncio", "concurrent", "threading", "contextlib", "logging", "bdb", "pdb", "trace", "profile", "cProfile",
    "code", "codeop", "doctest", "timeit", "sched", "queue", "weakref", "functools", "pkgutil", "signal",
)  # fmt: skip
# These attributes give a frame, and from there those of all callers.
_FRAMES = ("tb_frame", "gi_frame", "cr_frame", "ag_frame")
_READS_FRAMES = "reads the frames of an error or a generator"
# This function reads frames for its callers but gives none to them.
_TRUSTED = traceback.TracebackException.__init__.__code__
_LOADERS = ("<frozen importlib", "<frozen zipimport", "<frozen runpy")
_PYC_HEADER = 16                           # bytes before the code in a .pyc file
_ATTRIBUTES = ("__code__", "__defaults__", "__kwdefaults__", "__globals__", "__closure__")
# torch.compile wraps these two when it is first used.
_REPLACED_BY_TORCH = ("torch.nn.modules.module.Module.__init__", "torch.nn.modules.module.Module.__setstate__")


class TamperSeal:
    """The functions and classes of the measuring modules, as they are when this is made."""

    def __init__(self) -> None:
        self._held = list(_pieces())
        self._names = frozenset(vars(torch.Tensor))  # a new name there would hide that of its base class

    def accept_changes(self) -> None:
        """Accepts what the worker itself has replaced so far. Called before anything of the program is imported."""
        self._held = [
            (holder, name, now, _code(now), full)
            for holder, name, _, _, full in self._held
            if (now := holder.get(name)) is not None
        ]
        self._names = frozenset(vars(torch.Tensor))

    def checker(self) -> Callable[[], list[str]]:
        """Returns a function that lists what was replaced since, at most ten: ["torch.cuda.synchronize was replaced"].

        The function looks up no global, no builtin and no attribute of this object, since a program could replace them.
        """
        held = tuple(
            (holder, name, value, getattr(value, "__func__", value) if code else None, *(code or (None, None)), full)
            for holder, name, value, code, full in self._held
            if full not in _REPLACED_BY_TORCH
        )
        names, tensor = self._names, vars(torch.Tensor)

        def list_replaced() -> list[str]:
            changed = [
                full
                for holder, name, value, function, code, defaults, full in held
                if holder.get(name) is not value
                or (function is not None and (function.__code__ is not code or function.__defaults__ is not defaults))
            ]
            changed += [f"torch.Tensor.{name}" for name in tensor if name not in names]
            return [f"{name} was replaced" for name in changed[:10]]

        return list_replaced


def watch(program: Path, scratch: Path) -> Callable[[], list[str]]:
    """Watches the program in the folder `program` from now on; returns a function that lists what it did.

    PermissionError is raised in code that reads frames, lists objects, changes the code of functions, writes outside of
    `scratch`, starts a process or reaches for a network. It cannot be undone. The hook consists of copies of this file's
    functions, in a namespace and with builtins that no module holds, so that a program cannot replace what they look up.
    """
    apart = dict(globals())
    apart["__builtins__"] = dict(vars(builtins))
    for name, value in globals().items():
        if isinstance(value, FunctionType) and value.__module__ == __name__:
            apart[name] = FunctionType(value.__code__, apart, name, value.__defaults__)
    logging._srcfile = None                # documented: log records then do not look for their caller's frame
    for module in (signal, sys.modules["_signal"]):       # a signal handler would get the interrupted frame
        vars(module)["signal"] = _refuse_handlers
    list_deeds: Callable[[], list[str]] = apart["_install"](f"{program}", f"{scratch}/")
    return list_deeds


def _refuse_handlers(*_: object) -> None:
    raise PermissionError("a program under judgement may not do this: it handles signals")


def _install(root: str, own: str) -> Callable[[], list[str]]:
    """Installs the audit hook. `root`: the program's folder; `own`: its scratch folder. Returns a function that lists deeds.

    For each watched event the hook goes up the stack, past library code that works for its caller, to the code that is
    responsible. The event is refused if that code is the program's.
    """
    getframe = sys._getframe
    busy = threading.local()               # the hook's own use of frames raises events too
    through = tuple(f"/{name}{end}" for name in _THROUGH for end in (".py", "/"))
    libraries = _libraries(root, own)
    others = ("<", *libraries)             # how the file names of code without a file, or of a library, begin
    python = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib"))
    claimed: set[str] = set()              # file names under which the program compiled other code than the file's
    foreign: dict[int, CodeType] = {}      # code of libraries under the program's file names, such as C++ frames in a traceback
    watched = dict(_WATCHED)               # a copy: a program could empty it
    seen: list[str] = []

    def theirs(frame: FrameType) -> bool:  # the program's is all that is not a library's, such as a file that it wrote
        name = frame.f_code.co_filename
        outside = name.startswith(root) or name in claimed or not name.startswith(others)
        return outside and id(frame.f_code) not in foreign

    def hook(event: str, args: tuple[Any, ...]) -> None:
        what = watched.get(event) or _judge_event(event, args, own)
        if not what or getattr(busy, "now", False):
            return
        busy.now = True
        try:
            frame = getframe(1)
            by_name = what != _READS_FRAMES or _names_attribute(frame, args[1])
            if event in ("compile", "exec", "marshal.loads") and _is_code_of_file(frame, event, args, libraries):
                return
            while frame is not None and not theirs(frame) and (
                what == _MEMORY or not by_name or _passes_on(frame, through)
                or (event == "sys._getframe" and _is_private(frame))
                or id(frame.f_code) in foreign
                or (event in ("compile", "marshal.loads") and frame.f_code.co_filename.startswith(_LOADERS))
                or (event in ("compile", "exec") and _is_pythons(frame.f_code.co_filename, python))
            ):
                if by_name and frame.f_code is _TRUSTED:
                    return
                frame = frame.f_back  # type: ignore[assignment]
            charged = frame is None or theirs(frame)  # without a caller it is a thread that the program started
            if event == "compile" and charged:
                claimed.add(args[1])
            if event == "exec" and frame is not None and not charged and not frame.f_code.co_filename.startswith("<"):
                foreign[id(args[0])] = args[0]
            if event in ("compile", "exec") or not charged:
                return
            where = f"{frame.f_code.co_filename.rpartition('/')[2]} line {frame.f_lineno}" if frame else "a thread"
        finally:
            busy.now = False
        seen.append(f"{where} {what}")
        raise PermissionError(f"a program under judgement may not do this: it {what}")

    sys.addaudithook(hook)
    return lambda: [*seen]


def _names_attribute(frame: FrameType, name: str) -> bool:
    """Whether the code itself names the attribute that it reads, rather than getting the name from its caller."""
    return name in frame.f_code.co_names and not frame.f_code.co_filename.startswith("<")


def _libraries(root: str, own: str) -> tuple[str, ...]:
    """The folders with code of libraries: none that contains the program or its scratch folder."""
    places = [*map(str, sysconfig.get_paths().values()), *sys.path]
    for name, module in list(sys.modules.items()):
        if "." not in name:                # packages installed in development mode lie elsewhere
            places += [*map(str, getattr(module, "__path__", ()))] or [os.path.dirname(getattr(module, "__file__", None) or "")]
    kept: tuple[str, ...] = ()
    for place in sorted({f"{place.rstrip('/')}/" for place in places if place.startswith("/")}, key=len):
        if not place.startswith(kept) and not f"{root}/".startswith(place) and not own.startswith(place):
            kept = (*kept, place)
    return kept


def _is_private(frame: FrameType) -> bool:
    """Whether it runs a private function of a library, which works for its caller."""
    return frame.f_code.co_name.startswith("_") and not frame.f_code.co_name.startswith("__")


def _is_pythons(name: str, python: tuple[str, ...]) -> bool:
    """Whether it is a file of the standard library, which compiles code only for its callers."""
    return name.startswith(python) and "-packages/" not in name


def _is_code_of_file(frame: FrameType, event: str, args: tuple[Any, ...], libraries: tuple[str, ...]) -> bool:
    """Whether what is compiled or run is the content of the library file that it names, or names no file."""
    if event == "exec":
        from_file = args[0].co_filename if isinstance(args[0], CodeType) else "<"
        return from_file.startswith(("<", *libraries))
    if event == "compile":
        source, name, skipped = *args, 0
        if not isinstance(name, str) or (name.startswith("<") and not name.startswith("<frozen")):
            return True
    else:                                  # marshal.loads: importlib reads a .pyc file
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


def _judge_event(event: str, args: tuple[Any, ...], own: str) -> str:
    """Says what is wrong with an event that is refused only with certain arguments; "" if nothing is."""
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
    """Says what is wrong with opening this file of /proc, however its path is written; "" for allowed and other files."""
    if not isinstance(path, str | bytes | PathLike):
        return ""
    for full in (abspath(path := fsdecode(path)), realpath(path)):
        if (inner := f"/{full.lstrip('/')}").startswith("/proc/"):
            inner = inner.removeprefix("/proc/")
            own = inner.replace(f"{getpid()}/", "self/", 1) if inner.startswith(f"{getpid()}/") else inner
            if own.endswith("/mem"):
                return _MEMORY
            if own not in _ALLOWED_PROC and not own.startswith(("sys/", "driver/")):
                return f"opens {full[:80]}"
    return ""


def _outside(path: Any, own: str) -> str:
    if not isinstance(path, str | bytes | PathLike):
        return ""                          # a file descriptor that is already open
    full = abspath(fsdecode(path))
    return "" if f"{full}/".startswith(own) or f"{full}/".startswith(_FREE) else f"writes to {full[:80]}, outside of its folder"


def _passes_on(frame: FrameType, library: tuple[str, ...]) -> bool:
    """Whether it runs code that works for its caller: a module of `_THROUGH`, or code made from a string."""
    name = frame.f_code.co_filename
    if name.startswith("<"):
        return not name.startswith(_LOADERS)
    return "/site-packages/" not in name and any(part in name for part in library)


def _pieces() -> Iterator[tuple[dict[str, Any], str, Any, Any, str]]:
    """Yields (namespace, name, value, code, full name) of each function and class of the sealed modules and their classes."""
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
                        yield vars(value), part, inner, _code(inner), f"{value.__module__}.{name}.{part}"  # type: ignore[misc]


def _is_sealed(name: str) -> bool:
    return name in _SEALED or any(name.startswith(prefix) for prefix in _SEALED if prefix.endswith("."))


def _code(value: Any) -> Any:
    """A Python function's (code, defaults); None for anything else."""
    function = getattr(value, "__func__", value)
    return (function.__code__, function.__defaults__) if isinstance(function, FunctionType) else None


@cache
def seal() -> TamperSeal:
    """This process's seal. The forkserver makes it by its first call, so that no worker spends time on it."""
    return TamperSeal()
