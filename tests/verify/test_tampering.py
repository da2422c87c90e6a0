"""A program that replaces what measures it, or looks through its process, is told by name; ordinary code is not."""

from __future__ import annotations

import json
import logging
import marshal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.marks import more_but

START = """
import sys, torch, torch._dynamo, time, json  # as in a worker
from pathlib import Path
from stitchcuda.verify.integrity.tampering import TamperSeal, watch
seal = TamperSeal()
looked = watch(Path(sys.argv[1]).parent, Path.cwd())
import importlib.util
spec = importlib.util.spec_from_file_location("model_new", sys.argv[1])
module = importlib.util.module_from_spec(spec)
try:
    spec.loader.exec_module(module)
except Exception as error:
    print("raised", type(error).__name__)
print(json.dumps(seal.checker()() + looked()))
"""
CASES = {
    "torch.cuda.synchronize": "import torch\ntorch.cuda.synchronize = print",
    "json.dumps": "import json\nold = json.dumps\njson.__dict__['dumps'] = lambda *a, **k: old(*a, **k)",
    "torch.utils._python_dispatch.TorchDispatchMode.__enter__":
        "import torch.utils._python_dispatch as p\np.TorchDispatchMode.__enter__ = None",
    "lists the objects of the process": "import gc\ntry:\n    gc.get_objects()\nexcept Exception:\n    pass",
    "reads the frames of those who call it": "import sys\ntry:\n    sys._getframe(1)\nexcept Exception:\n    pass",
    "reads the frames": "import inspect\ntry:\n    inspect.currentframe()\nexcept Exception:\n    pass",
    "reaches for the network":
        "import socket\ntry:\n    socket.create_connection(('127.0.0.1', 9), 1)\nexcept Exception:\n    pass",
    "starts a process": "import subprocess\ntry:\n    subprocess.run(['true'])\nexcept Exception:\n    pass",
    "writes to /etc/folder": "import os\ntry:\n    os.makedirs('/etc/folder')\nexcept Exception:\n    pass",
    "model_new.py line 3 starts a process": "import os\ntry:\n    os.popen('true')\nexcept Exception:\n    pass",
    "writes to /etc/marker": "try:\n    open('/etc/marker', 'w')\nexcept Exception:\n    pass",
    "reads memory by its address":
        "try:\n    open('/'.join(('', '', 'proc', 'self', 'mem')), 'rb')\nexcept Exception:\n    pass",
    "model_new.py line 5 reads memory by its address":
        "import numpy\nname = '//proc/self/mem'\n\ntry:\n    numpy.memmap(name)\nexcept Exception:\n    pass",
    "opens //proc/self/mounts": "import os\ntry:\n    os.open('//proc/self/mounts', 0)\nexcept Exception:\n    pass",
    "model_new.py line 3 reads memory by its address":
        "import os\ntry:\n    os.open('/dev/fd/../mem', 0)\nexcept Exception:\n    pass",
    "signals processes": "import os\ntry:\n    os.kill(os.getppid(), 0)\nexcept Exception:\n    pass",
    "changes the __code__ of a function":
        "import json\ntry:\n    json.dumps.__code__ = (lambda *a, **k: '[]').__code__\nexcept Exception:\n    pass",
}
FRAMES = """
import inspect, json, gc, logging, sys, torch, traceback
def rows(): yield 1
try: 1 / 0
except ZeroDivisionError as error: held = error.__traceback__
run, real = eval, getattr
def first():
    getattr(held, "tb_" + "frame")
def second():
    next(traceback.walk_tb(held))
def third():
    torch.nn.Module.get_submodule(held, "tb_frame")
def fourth():
    rows().gi_frame
def fifth():
    inspect.getinnerframes(held)
def sixth():
    logging.currentframe()
def seventh():
    run("sys._getframe(0)")
def eighth():                              # what it puts in the way of the watch, it takes away again
    __builtins__["getattr"] = lambda thing, name, *other: name == "now" or real(thing, name, *other)
    try: gc.get_objects()
    finally: __builtins__["getattr"] = real
def ninth():
    watch = vars(sys.modules["stitchcuda.verify.integrity.tampering"])
    other, watch["_judge_event"] = watch["_judge_event"], lambda *given: ""
    try: json.dumps.__code__ = other.__code__
    finally: watch["_judge_event"] = other
def tenth():
    import tvm_ffi.error
    tvm_ffi.error.TracebackManager()._create_frame("kernel.cc", 1, "run").f_back
for way in (first, second, third, fourth, fifth, sixth, seventh, eighth, ninth, tenth):
    try: way()
    except PermissionError: pass
    else: print("not stopped", way)
"""
CLAIMED = """
import importlib.machinery, importlib.util, logging, marshal, os, sys, tempfile, types, zipfile
WANTED = "import gc\\ndef run():\\n    gc.get_objects()\\n"
NAME = logging.__file__.replace("__init__", "handlers")
folder = tempfile.mkdtemp()
def forged():                              # code that says it is of `logging`, written down before
    return open(sys.argv[1] + ".forged", "rb").read()
def first():
    names = {}
    exec(compile(WANTED, NAME, "exec"), names)
    names["run"]()
def second():                              # a file of its own, outside of its folder
    place = os.path.join(folder, "written.py")
    open(place, "w").write(WANTED)
    sys.path.append(folder)
    import written
    written.run()
def third():
    loader = importlib.machinery.SourceFileLoader("x", NAME.replace("handlers", "none"))
    code = loader.source_to_code(WANTED.encode(), "<frozen os>")
    names = {}
    exec(code, names)
    names["run"]()
def fourth():
    place = os.path.join(folder, "bytes.pyc")
    open(place, "wb").write(importlib.util.MAGIC_NUMBER + bytes(12) + forged())
    module = types.ModuleType("bytes")
    importlib.machinery.SourcelessFileLoader("bytes", place).exec_module(module)
    module.run()
def fifth():
    with zipfile.ZipFile(os.path.join(folder, "held.zip"), "w") as held:
        held.writestr("zipped.pyc", importlib.util.MAGIC_NUMBER + bytes(12) + forged())
    sys.path.append(held.filename)
    import zipped
    zipped.run()
def sixth():
    importlib._bootstrap_external._compile_bytecode(forged(), bytecode_path=logging.__cached__)
for way in (first, second, third, fourth, fifth, sixth):
    try: way()
    except PermissionError: pass
    except ImportError as error: print(error)
    else: print("not stopped", way)
import statistics, wave                    # a library's own files, compiled or not, are no one's forgery
"""
CLAIMED_TOLD = [*("lists the objects of the process",) * 3, *("makes code that is not in its source",) * 3]
FRAMES_TOLD = [
    *("reads the frames of an error or a generator",) * 5, *("reads the frames of those who call it",) * 2,
    "lists the objects of the process", "changes the __code__ of a function", "reads the frames of those who call it",
]
HONEST = """
import logging, warnings, functools, collections, dataclasses, typing, torch
Pair = collections.namedtuple("Pair", "a b")
@dataclasses.dataclass
class Point:
    x: int
class Named(typing.NamedTuple):
    a: int
@functools.lru_cache
def f(x): return x
logging.getLogger("p").warning("hello %s", f(1))
import os, tempfile, pathlib
os.makedirs(os.path.join(os.getcwd(), "build"), exist_ok=True)
pathlib.Path(tempfile.mkdtemp(), "kernel.cu").write_text("// mine")
with tempfile.TemporaryFile() as unnamed:
    unnamed.write(b"mine")
open("/proc/cpuinfo").read() + open("/proc/self/status").read()
warnings.warn("careful")
import inspect, traceback, contextlib
def rows():
    yield 1
try:
    with contextlib.contextmanager(rows)():
        {}["a"]
except KeyError as error:
    traceback.format_exc(), traceback.format_exception(error), traceback.print_exc()
    logging.exception("no such key")
torch.nn.Linear(2, 2)(torch.ones(1, 2))
torch.compile(lambda x: x * 2, backend="eager")(torch.ones(2))
import tvm_ffi
try:
    tvm_ffi.convert(lambda: {}["a"])()     # the way of an error through C++, whose frames become Python's
except KeyError as error:
    traceback.format_exception(error)
tvm_ffi.error.TracebackManager().append_traceback(None, "kernel.cc", 7, "run")
"""


def run(folder: Path, text: str) -> str:
    (folder / "model_new.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", START, str(folder / "model_new.py")],
        capture_output=True, text=True, check=True, timeout=120, cwd=folder,
    )
    return done.stdout.strip().splitlines()[-1]


@pytest.mark.parametrize("told", more_but(
    CASES, "json.dumps", "starts a process", "writes to /etc/marker",
))  # fmt: skip
def test_told(told: str, tmp_path: Path) -> None:
    assert told in run(tmp_path, CASES[told])


def test_honest_code_is_not(tmp_path: Path) -> None:
    assert run(tmp_path, HONEST) == "[]"


def test_code_under_the_name_of_a_library_is_the_programs(tmp_path: Path) -> None:
    made = compile("import gc\ndef run():\n    gc.get_objects()\n", logging.__file__, "exec")
    (tmp_path / "model_new.py.forged").write_bytes(marshal.dumps(made))
    told = json.loads(run(tmp_path, CLAIMED))
    assert [one.split(" line ")[1].split(" ", 1)[1] for one in told] == CLAIMED_TOLD


def test_every_way_to_frames_and_past_the_watch_is_told(tmp_path: Path) -> None:
    told = json.loads(run(tmp_path, FRAMES))
    assert [one.split(" ", 3)[3] for one in told] == FRAMES_TOLD
