"""A program that replaces what measures it, or looks through its process, is told by name; ordinary code is not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

START = """
import sys, torch, torch._dynamo, time, json  # as in a worker
from pathlib import Path
from stitchcuda.tools.tampering import Seal, watch
seal = Seal()
looked = watch(Path(sys.argv[1]).parent, Path.cwd())
import importlib.util
spec = importlib.util.spec_from_file_location("model_new", sys.argv[1])
module = importlib.util.module_from_spec(spec)
try:
    spec.loader.exec_module(module)
except Exception as error:
    print("raised", type(error).__name__)
print(json.dumps(seal.teller()() + looked()))
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
    "writes to /etc/marker": "try:\n    open('/etc/marker', 'w')\nexcept Exception:\n    pass",
    "reads memory by its address":
        "try:\n    open('/'.join(('', '', 'proc', 'self', 'mem')), 'rb')\nexcept Exception:\n    pass",
    "model_new.py line 5 reads memory by its address":
        "import numpy\nname = '//proc/self/mem'\n\ntry:\n    numpy.memmap(name)\nexcept Exception:\n    pass",
    "opens //proc/self/mounts": "import os\ntry:\n    os.open('//proc/self/mounts', 0)\nexcept Exception:\n    pass",
    "model_new.py line 3 reads memory by its address":
        "import os\ntry:\n    os.open('/dev/fd/../mem', 0)\nexcept Exception:\n    pass",
    "model_new.py line 5 reads the frames of an error":
        "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    try:\n"
        "        getattr(error.__traceback__, 'tb_' + 'frame')\n    except Exception:\n        pass",
    "model_new.py line 6 reads the frames of an error":
        "import traceback\ntry:\n    1 / 0\nexcept ZeroDivisionError as error:\n    try:\n"
        "        next(traceback.walk_tb(error.__traceback__))\n    except Exception:\n        pass",
    "model_new.py line 4 reads the frames of an error":
        "import torch\n\ntry: 1 / 0\nexcept Exception as e: torch.nn.Module.get_submodule(e.__traceback__, 'tb_frame')",
    "model_new.py line 2 reads the frames of an error":
        "def rows(): yield 1\ntry: rows().gi_frame\nexcept Exception: pass",
    "model_new.py line 2 reads the frames of those who call it":
        "import logging\ntry: logging.currentframe()\nexcept Exception: pass",
    "model_new.py line 3 reads the frames of those who call it":
        "import sys\nrun = eval\ntry: run('sys._getframe(0)')\nexcept Exception: pass",
    "model_new.py line 5 lists the objects of the process":  # nothing that it puts in the way of the hook, and takes away again
        "import gc\nreal = getattr\n__builtins__['getattr'] = lambda thing, name, *other: name == 'now' or real(thing, name)\n"
        "try:\n    gc.get_objects()\nexcept Exception: pass\n__builtins__['getattr'] = real",
    "model_new.py line 5 changes the __code__ of a function":
        "import json, sys\nheld = vars(sys.modules['stitchcuda.tools.tampering'])\nreal = held['_other']\n"
        "held['_other'] = lambda *given: ''\ntry: json.dumps.__code__ = real.__code__\nexcept Exception: pass\nheld['_other'] = real",
    "signals processes": "import os\ntry:\n    os.kill(os.getppid(), 0)\nexcept Exception:\n    pass",
    "changes the __code__ of a function":
        "import json\ntry:\n    json.dumps.__code__ = (lambda *a, **k: '[]').__code__\nexcept Exception:\n    pass",
}
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
"""


def run(folder: Path, text: str) -> str:
    (folder / "model_new.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", START, str(folder / "model_new.py")],
        capture_output=True, text=True, check=True, timeout=120, cwd=folder,
    )
    return done.stdout.strip().splitlines()[-1]


@pytest.mark.parametrize("told", CASES)
def test_told(told: str, tmp_path: Path) -> None:
    assert told in run(tmp_path, CASES[told])


def test_honest_code_is_not(tmp_path: Path) -> None:
    assert run(tmp_path, HONEST) == "[]"
