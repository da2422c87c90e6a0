"""Programs that fail in every way a process can, for one reference: what each does, and which sentences may answer it.

Native faults (`native/`) are modes of one library, so that one build serves them all; mode 0 is honest. Nothing here decides or
asserts. Where to look next: `tests/integrity/test_faults.py` (one by one), `tests/integrity/hostile_runs.py` (hundreds in a
row).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

REFERENCE = '''
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return torch.relu(x * self.scale + x)

def get_inputs():
    return [torch.randn(48, 32)]

def get_init_inputs():
    return [32]
'''

_NATIVE = Path(__file__).resolve().parent / "native"

_MODEL = '''
import os
import sys
import threading
import time
from pathlib import Path

import torch
import tvm_ffi.cpp
from torch import nn
{imports}

FOLDER = Path(__file__).parent / "kernels"
SCRATCH = os.environ["TMPDIR"]


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(features))
        self.kernels = tvm_ffi.cpp.load(
            "gate", cpp_files=[str(FOLDER / "gate_binding.cc")], cuda_files=[str(FOLDER / "gate.cu")]
        )
        self.fault = self.kernels.fault
        {init}

    def forward(self, x):
        out = torch.empty_like(x)
        {before}
        self.kernels.gate(x, self.scale, out, {mode})
        {after}
        return out
{methods}
'''

# `state_dict` is called between the call and the writing of its outputs, when the worker holds the blocks for both.
_RESULTS = '''


def blocks():
    found = []
    for fd in range(3, 256):
        try:
            facts = os.fstat(fd)
        except OSError:
            continue
        found += [fd] if facts.st_nlink == 0 and facts.st_mode & 0o170000 == 0o100000 else []
    return found


def keep_writing():
    until = time.monotonic() + 0.5
    while time.monotonic() < until:
        for fd in blocks():
            try:
                os.pwrite(fd, bytes(6144), 0)
            except OSError:
                pass
'''

@dataclass(frozen=True)
class Fault:
    """One hostile program. One of `said` must be in its verdict; "" among them: it may also be accepted, and harms nobody."""

    name: str
    files: dict[str, str]
    said: tuple[str, ...]
    on: str = "both"                       # sim, cuda, both


def honest() -> Fault:
    return Fault("honest", _files(), ())


def expected(fault: Fault, *, ok: bool, said: str) -> bool:
    """Whether a verdict is what it should be: acceptance of an honest program, one of the sentences for a hostile one."""
    if fault.said == ():
        return ok
    return "" in fault.said if ok else any(one and one in said for one in fault.said) or fault.said == ("",)


def write(fault: Fault, folder: Path) -> Path:
    """The program's folder."""
    for name, text in fault.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def native(what: str, *said: str, place: str = "SCRATCH", on: str = "both") -> Fault:
    """A fault in C++, in the middle of a call."""
    return Fault(what, _files(before=f"self.fault({what!r}, {place})"), said, on)


def python(name: str, *said: str, on: str = "both", **hooks: str) -> Fault:
    """A fault in Python: statements at the import, in the constructor, before and after the kernel, or whole methods."""
    return Fault(name, _files(**hooks), said, on)


def kernel(name: str, mode: int, *said: str, on: str = "both") -> Fault:
    """A fault on the device."""
    return Fault(name, _files(mode=str(mode)), said, on)


def result(name: str, deed: str, *said: str) -> Fault:
    """Something done to the empty blocks of a call's answer, each with the descriptor `fd`, before it is written."""
    return Fault(name, _files(after=f"[{deed} for fd in blocks()]", methods=_RESULTS), said, "sim")


def forged(name: str, deed: str) -> Fault:
    """An answer, `message`, changed on its way to the judge, with the right token and no word of tampering."""
    # Roundabout, since the screen is not what is tried here.
    patch = f'''
import importlib
wire = [importlib.import_module(name) for name in ["stitchcuda.verify.messages.wire"]][0]
send = wire.Channel.send

def forge(channel, message, *rest):
    message = dict(message)
    if "id" in message and "error" not in message:
        message["tampered"] = []
        {deed}
    send(channel, message, *rest)

setattr(*(wire.Channel, "send", forge))
'''
    return Fault(name, _files(imports=patch), ("",))


def _files(
    *, imports: str = "", init: str = "pass", before: str = "pass", after: str = "pass", mode: str = "0", methods: str = ""
) -> dict[str, str]:
    text = _MODEL
    hooks = {"imports": imports, "init": init, "before": before, "after": after, "mode": mode, "methods": methods}
    for hook, value in hooks.items():
        text = text.replace("{" + hook + "}", value)
    return {
        "model_new.py": text.lstrip("\n"),
        "kernels/gate.cu": (_NATIVE / "gate.cu").read_text(),
        "kernels/gate_binding.cc": (_NATIVE / "gate_binding.cc").read_text(),
    }


_SLOW = ("did not finish running forward",)
_CRASH = ("crashed with", "ended by itself")
_FORGED = "an answer of its own making"

KERNELS = (
    kernel("a kernel that never ends", 1, *_SLOW),
    kernel("a wild pointer in a kernel", 2, "SIGSEGV", "illegal memory access", "CUDA error"),
    kernel("far beyond an array in a kernel", 3, "SIGSEGV", "illegal memory access", "CUDA error"),
)
NATIVE = (
    native("forks", *_SLOW, "more threads and processes"),
    native("threads", "more threads and processes", *_SLOW),
    native("daemon", "no daemon was born"),
    native("stops itself", *_SLOW),
    native("closes its channel", *_CRASH),
    native("closes and hangs", *_SLOW),
    native("garbage", "nonsense", *_CRASH),
    native("bytes", "nonsense", *_CRASH),
    native("nested", "nonsense", _FORGED, *_CRASH, *_SLOW),  # it also writes to a driver's pipes, which nobody may be reading
    native("nested objects", "nonsense", _FORGED, *_CRASH),
    native("floods its channel", "nonsense", *_CRASH, *_SLOW),
    native("orders", *_SLOW, _FORGED),
    native("strange orders", *_SLOW, _FORGED),
    native("fills", "more disk"),
    native("many files", "more disk", *_SLOW),
    native("deep folders", *_SLOW, "more disk", ""),
    native("one large file", "more disk", *_CRASH),
    native("nameless", "more disk", "more memory", *_SLOW),
    native("memory", "memory", *_SLOW),
    native("wild", "SIGSEGV"),
    native("jumps", "SIGSEGV"),
    native("aborts", "SIGABRT"),
    native("exits", "ended by itself"),
    native("kills itself", *_CRASH),
    native("spins", *_SLOW),
    native("kills all", *_CRASH),
)
PYTHON = (
    python("hangs at import", "did not finish building", imports="time.sleep(1000)"),
    python("hangs in the constructor", "did not finish building", init="time.sleep(1000)"),
    python("hangs at its end", "did not finish", after="out.__class__; threading.Event().wait()"),
    python("forks in Python", "process", before="[os.fork() for _ in iter(int, 1)]"),
    python("memory in Python", "memory", *_SLOW, before="self.kept = [bytearray(1 << 24) for _ in iter(int, 1)]"),
    python("a tensor too large", "memory", before="torch.ones(1 << 42, device=x.device)"),
    python(
        "all of the device", "memory", on="cuda",
        before="self.kept = [torch.ones(1 << 28, device='cuda') for _ in iter(int, 1)]",
    ),
    python("recursion", "RecursionError", "SIGSEGV", before="f = lambda g: g(g); f(f)"),
    python(
        "an exception that raises", "raised", "ended by itself",
        before="raise type('Odd', (BaseException,), {'__str__': lambda s: 1 / 0})()",
    ),
    python("an exception of megabytes", "raised", before="raise ValueError('x' * (1 << 26))"),
    python("leaves at its end", "ended by itself", after="threading.Timer(0.2, lambda: os._exit(3)).start(); time.sleep(1)"),
    python("threads that stay", "", before="[threading.Thread(target=time.sleep, args=(1000,)).start() for _ in range(20)]"),
)
RESULTS = (
    result("closes the blocks", "os.close(fd)", "raised", "cannot be", "Bad file descriptor"),
    result("another file for results", "os.dup2(os.open('/dev/null', os.O_RDWR), fd)", "were changed after", "raised"),
    result("a socket for results", "os.dup2(0, fd)", "were changed after", "raised", "cannot be", "crashed"),
    result("results cut short", "os.ftruncate(fd, 100)", "Operation not permitted"),
    result("results without end", "os.ftruncate(fd, 1 << 27)", "Operation not permitted"),
    result("results of its own", "os.pwrite(fd, bytes(64), 0)", ""),
    result("results nobody may read", "os.fchmod(fd, 0)", ""),
    result(
        "results that change", "threading.Thread(target=keep_writing, daemon=True).start()",
        "is wrong", "writes into", "were changed after", "",
    ),
    result("descriptors without end", "[os.dup(fd) for _ in range(100_000)]", "raised", "Too many open files"),
    result("a folder nobody may enter", "os.chmod(SCRATCH, 0)", "raised", ""),
    result("a scratch folder of its own", "os.rename(SCRATCH, SCRATCH + '-moved')", "raised", "tampers"),
)
FORGED = tuple(
    forged(f"forged: {deed}", deed)
    for deed in (
        "message['structure'] = {'tensor': 'x'}",
        "message['structure'] = {'tensor': -1}",
        "message['structure'] = {'tensor': 1 << 70}",
        "message['structure'] = {'tensor': 1e400}",
        "message['structure'] = {'tensor': None}",
        "message['structure'] = {'tuple': 5}",
        "message['structure'] = {'tuple': {'tensor': 0}}",
        "message['structure'] = {'dict': 7}",
        "message['structure'] = {'dict': [[1]]}",
        "message['structure'] = {'dict': [[{'a': 1}, {'tensor': 0}]]}",
        "message['structure'] = [0]",
        "message['tampered'] = 7",
        "message['tampered'] = {'a': [1]}",
        "message['note'] = ['a'] * 100000",
        "message['own'] = 1e400",
        "message['own'] = float('nan')",
        "message['launches'] = 1 << 200",
        "message['launches'] = True",
        "message['replays'] = -1",
        "message['calls'] = 'many'",
        "message['calls'] = None",
        "message.pop('structure', None)",
        "message['error'] = {'a': 1}",
        "message.update(error='x', kind='refused')",
        "message.update(error='x', kind='state')",
        "message.update(error='x', kind='bad_input')",
        "message.update(error='x', kind=['a'])",
        "message.update(error=chr(0xD800) * 10, kind='x')",
    )
)
