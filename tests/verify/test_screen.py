"""The screen refuses what no program needs, however it is named, and lets honest oddities pass."""

from __future__ import annotations

import ast
import builtins
import re
import textwrap
import time
from pathlib import Path

import pytest

from stitchcuda.compiler.printing.program import write_program
from stitchcuda.verify.integrity.screen import screen
from tests.compiler.pipeline import captured, case, stitched
from tests.compiler.pipeline import write as write_files
from tests.verify import programs

REFUSED = {
    "frames": "import sys\nframe = sys._getframe(1)",
    "frames by getattr": "import sys\nframe = getattr(sys, '_get' + 'frame')(1)",
    "frames of an error": "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    up = error.__traceback__.tb_frame",
    "inspect": "from inspect import currentframe as where\nhere = where()",
    "objects": "import gc\nheld = gc.get_objects()",
    "subclasses": "found = object.__subclasses__()",
    "modes": "from torch.utils._python_dispatch import _disable_current_modes\nwith _disable_current_modes():\n    pass",
    "recording": "import torch\nseen = torch._C._autograd._disable_profiler()",
    "patch": "import torch\ntorch.cuda.synchronize = lambda *a: None",
    "patch through an alias": "import torch\nevents = torch.cuda\nevents.Event = None",
    "patch by setattr": "import time\nsetattr(time, 'perf_counter', lambda: 0.0)",
    "patch by vars": "import torch\nvars(torch.cuda)['synchronize'] = None",
    "patch by __dict__": "import torch\ntorch.Tensor.__dict__['add'] = None",
    "patch of an imported module": "import importlib\nt = importlib.import_module('torch')\nt.allclose = None",
    "a builtin": "real = getattr\n__builtins__['getattr'] = lambda *given: real(*given)",
    "a builtin as an attribute": "__builtins__.getattr = print",
    "a builtin taken away": "del __builtins__['getattr']",
    "a builtin in a loop": "for __builtins__['getattr'] in (print,):\n    pass",
    "a builtin by its dictionary": "held = __builtins__.__dict__\nheld['len'] = print",
    "a builtin of globals": "globals()['__builtins__']['len'] = print",
    "builtins at once": "__builtins__.update(len=print)",
    "a builtin by setattr": "setattr(__builtins__, 'len', print)",
    "modules": "import sys\nsys.modules['torch'] = None",
    "mock": "from unittest import mock",
    "exec": "import base64\nexec(base64.b64decode('cHJpbnQoMSk='))",
    "blob": f"data = '{'QUJD' * 600}'",
    "the verifier": "import stitchcuda.verify.judge.judge",
    "two slashes": "text = open('//proc/self/mounts').read()",
    "down and up": "text = open('/usr/../proc/self/mem').read()",
    "a dot on the way": "text = open('/./dev//shm/x').read()",
    "no name": "import os\nplace = os.memfd_create('a')",
    "other processes": "text = open('/proc/self/maps').read()",
    "aten": "import torch\nlibrary = torch.library.Library('aten', 'IMPL')",
    "assembler": "SOURCE = '#include <cuda.h>\\nasm(\".incbin \\\\\"weights\\\\\"\");'",
    "private file": "SOURCE = '#include \"/root/expected.h\"'",
    "constructor": "TEXT = '#include <cuda.h>\\n__attribute__((constructor)) void f() {}'",
    "builtin under another name": "run = eval\nrun('1 + 1')",
    "builtin in a list": "list(map(exec, ['x = 1']))",
    "builtin after a method of its name": "class A:\n    def eval(self):\n        return eval('1')",
    "builtin where a name was taken away": "def eval(x): return x\ndel eval\neval('1')",
    "builtin where a name may be bound": "if False:\n    def compile(x): return x\ncompile('1', '', 'exec')",
    "a file removed": "import os\nos.remove('notes.txt')",
    "a folder removed": "from shutil import rmtree as tidy\ntidy('/home')",
    "a removal handed on": "import glob, os\nlist(map(os.remove, glob.glob('*')))",
    "a removal under another name": "from os import unlink as tidy\nwipe = tidy\nwipe('notes.txt')",
    "a path's own removal": "from pathlib import Path\nPath('notes.txt').unlink()",
    "a file removed in C++": "SOURCE = '#include <filesystem>\\nvoid f() { std::filesystem::remove_all(\"/home\"); }'",
    "a file removed in C": "SOURCE = '#include <unistd.h>\\nvoid f() { unlink(\"notes.txt\"); }'",
    "documentation as code": "def f():\n    '/proc/self/maps'\ntext = open(f.__doc__).read()",
    "a path in a command": "import os\nos.system('cat </proc/self/maps')",
    "a harmless path and up": "text = open('/proc/cpuinfo/../self/maps').read()",
    "mock through its package": "import unittest.mock\nunittest.mock.patch('torch.allclose')",
    "decoded": "import zlib\ncode = zlib.decompress(b'x')",
    "interposed": "TEXT = '#include <cuda.h>\\ncudaError_t cudaEventElapsedTime(float* t, cudaEvent_t, cudaEvent_t) {}'",
}
NATIVE_REFUSED = {
    "recording": "auto seen = torch::autograd::profiler::disableProfiler();",
    "C's linkage": 'extern "C" int select(int a, int b) { return a; }',
    "C's linkage in a block": 'extern "C" {\nint read(int a, char* b) { return a; }\n}',
    "the system's parameters": "int select(int n, fd_set* a, fd_set* b, fd_set* c, struct timeval* t) { return 0; }",
    "a clock": "int clock_gettime(clockid_t which, struct timespec* now) noexcept { return 0; }",
    "write": "#define INNOCENT static\nssize_t write(int file, const void* from, size_t size) { return size; }",
    "an event": "cudaError_t CUDARTAPI cudaEventRecord(cudaEvent_t event, cudaStream_t stream) { return cudaSuccess; }",
    "cudaMalloc": "inline cudaError_t cudaMalloc(void** at, size_t size) { return cudaSuccess; }",
    "its own memory": 'void f() { fopen("//proc/self/mem", "r"); }',
    "its own memory by a detour": 'void f() { fopen("/usr/../proc/self/mem", "r"); }',
    "ptrace": "void f() { ptrace(PTRACE_ATTACH, 1, 0, 0); }",
    "a switch": "extern StitchcudaMask* stitchcuda_masks;",
    "the simulator": 'extern "C" void stitchsim_skip(const char*, int);',
    "out of the folder": '#include "../../expected.h"',
    "out and in again": '#include "sub/../../../program/a.h"',
    "absolute": '#include "/root/a.h"',
    "a table": f"const unsigned char code[] = {{{'0x7f, ' * 2000}}};",
    "Python": "void f() { PyRun_SimpleString(0); }",
    "between comments": 'int a; /* " */ void f() { mprotect(0, 0, 0); } /* " */',
    "after a raw string": 'const char* t = R"x( " )x"; void f() { mprotect(0, 0, 0); }',
    "after no raw string": '#define aR\nconst char* t = aR"x("; void f() { mprotect(0, 0, 0); }',
}
NATIVE_HONEST = {
    "select": "__device__ int select(int a, int b, bool c) { return c ? a : b; }\nstatic int poll(int x) { return x; }",
    "select on the host": "int select(int a, int b, float c) { return c > 0 ? a : b; }",
    "device functions beside C's linkage":
        "template <int N>\n__device__ __forceinline__ int read(const int* at) { return at[N]; }\n"
        'struct Ring { __device__ int write(int at) { return at; } };\nextern "C" { void launch(float* x); }',
    "calls": "void f(int s, char* b) { int n = read(s, b, 4); if (int m = select(1, 2, 0.f)) { n = m; } }",
    "a helper for errors":
        "inline cudaError_t cudaCheck(cudaError_t e) { return e; }\n"
        "static cudaError_t cudaMallocChecked(void** p, size_t n) { return cudaMalloc(p, n); }",
    "the trace of a matrix": "__global__ void k(const float* x, float* ptrace) { ptrace[0] = x[0]; }",
    "comments": "/* mprotect, .incbin, /proc/self/maps */ // LD_PRELOAD \\\n and cuptiActivityEnable() too\nint a;",
    "the interpreter's lock": "void f() { PyThreadState* s = PyEval_SaveThread(); PyEval_RestoreThread(s); }",
    "named after us": "__global__ void stitchcuda_masked_softmax(float* x) {}\nvoid stitchcuda_set_scale(float x) {}",
    "a header above": '#include "../common.cuh"\n#include "../ops/./scan.cuh"',
    "where a line is from": '#line 12 "/home/me/kernels/scan.cu"\n# 3 "/root/x.cu"\nint a;',
    "a table": f"__constant__ unsigned char decode[512] = {{{'0x7f, ' * 512}}};",
    "other times": "float time(float t) { return t; }\nint time(int steps, float dt) { return steps; }",
}
HONEST = {
    "own functions":
        "def compile(source):\n    return source\ndef run():\n    eval = lambda x: x\n    return eval(1)\nx = compile('a')",
    "own parameters": "def build(name, compile=True, exec=None):\n    return name if compile else exec(name)",
    "own methods": "class A:\n    def compile(self): ...\n    def eval(self): self.compile()\nA().eval()",
    "another's compile":
        "import torch\nfrom re import compile\nrule = compile('a')\nfast = torch.compile(torch.nn.Linear(2, 2)).eval()",
    "prose":
        "def f(x):\n    'Unlike torch.compile, never reads /proc/self/maps or f_back; eval() is not exec().'\n"
        "    raise MemoryError('no room in /dev/shm, see /proc/meminfo')",
    "what is documented": '"""/proc/ and /dev/shm are explained elsewhere. STITCHCUDA_SIM_CHECK=0 helps."""',
    "an address": "URL = 'https://proc.example.org/kernels'",
    "harmless figures": "text = open('/proc/cpuinfo').read() + open('/proc/meminfo').read()",
    "checksums":
        "import zlib, base64, pickle\nname = f'k{zlib.crc32(bytes(3)):x}'\nkey = base64.b32encode(pickle.dumps((1, 2)))",
    "what is there": "import sys\nfast = 'triton' in sys.modules and 'xformers' not in sys.modules",
    "its own tests":
        "import unittest\nclass Cases(unittest.TestCase): ...\nif __name__ == '__main__':\n    unittest.main()",
    "a decorator's memory": "import torch\nrun = torch.relu\ndef memo(run):\n    run.kept = {}\n    return run",
    "own names": "class Pool:\n    def get_objects(self): return []\n    def all(self): return self.get_objects()",
    "named after us": "NAME = 'stitchcuda_layer_norm'",
    "settings": "import os, torch\nos.environ['TORCH_CUDA_ARCH_LIST'] = '9'\ntorch.backends.cudnn.allow_tf32 = False",
    "names": "import torch\ndtype = getattr(torch, 'float16')\nboth = {n: getattr(torch, n) for n in ('float16', 'half')}",
    "logging": "import logging, warnings, threading\nlog = logging.getLogger(__name__)\nlock = threading.Lock()",
    "builtins that are read":
        "import builtins\nkinds = [getattr(builtins, name) for name in ('int', 'float')]\nheld = {}\nheld['len'] = len\n"
        "n = __builtins__['len'] if isinstance(__builtins__, dict) else __builtins__.len\nprint(builtins.len(kinds))",
    "own module": "import sys\nme = sys.modules[__name__]",
    "own class": "class Cache:\n    pass\nCache.module = None\nCache.__doc__ = 'x'",
    "evaluation mode": "import torch\nmodel = torch.nn.Linear(2, 2).eval()",
    "regular expressions": "import re\nrule = re.compile('a')",
    "a comment": "TEXT = '''#include <a.h>\n// .incbin would be wrong, so would mprotect(0)\n__global__ void k() {}'''",
}


def write(folder: Path, text: str) -> Path:
    path = folder / "model_new.py"
    path.write_text(textwrap.dedent(text))
    return path


def kernel(folder: Path, text: str) -> Path:
    (folder / "kernels").mkdir()
    (folder / "kernels" / "a.cu").write_text(text)
    return folder


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str, tmp_path: Path) -> None:
    found = screen(write(tmp_path, REFUSED[name]))
    assert [one.severity for one in found][:1] == ["refused"]
    assert found[0].sentence.startswith("model_new.py")


@pytest.mark.parametrize("name", REFUSED)
def test_other_names_change_nothing(name: str, tmp_path: Path) -> None:
    renamed = ast.unparse(_Renamed().visit(ast.parse(REFUSED[name])))
    assert [one.severity for one in screen(write(tmp_path, renamed))][:1] == ["refused"]


@pytest.mark.parametrize("name", HONEST)
def test_honest(name: str, tmp_path: Path) -> None:
    assert [one for one in screen(write(tmp_path, HONEST[name])) if one.severity == "refused"] == []


@pytest.mark.parametrize("name", NATIVE_REFUSED)
def test_native_refused(name: str, tmp_path: Path) -> None:
    found = screen(kernel(tmp_path, NATIVE_REFUSED[name]))
    assert [one.severity for one in found][:1] == ["refused"]
    assert found[0].sentence.startswith("kernels/a.cu line")


@pytest.mark.parametrize("name", NATIVE_HONEST)
def test_native_honest(name: str, tmp_path: Path) -> None:
    assert [one for one in screen(kernel(tmp_path, NATIVE_HONEST[name])) if one.severity == "refused"] == []


@pytest.mark.parametrize("text", ["text = " + " + ".join(["'a'"] * 1500), "x = 1\n" * 400_000], ids=["deep", "long"])
def test_what_cannot_be_read_is_refused(text: str, tmp_path: Path) -> None:
    assert screen(write(tmp_path, text))[0].severity == "refused"


def test_modules_beside_the_program_are_its_own(tmp_path: Path) -> None:
    (tmp_path / "my_ops.py").write_text("module = None")
    write(tmp_path, "import my_ops\nmy_ops.module = 3\nsetattr(my_ops, 'other', 4)")
    assert screen(tmp_path) == ()
    (tmp_path / "torch.py").write_text("")     # not the one that is imported
    for text in ("import my_ops\nmy_ops.torch.allclose = None", "import torch\ntorch.allclose = None"):
        write(tmp_path, text)
        assert screen(tmp_path)[0].severity == "refused"


@pytest.mark.parametrize("piece", [
    "/* ", 'R"( ', "int time(", "cudaError_t cudaFree(", "int time(int a){", "A" * 2999 + " ", "0x00," * 399 + ";", 'extern "',
    "#\\\n", "'\\'", '"\\"', " ", '#include "../a"\n',
])  # fmt: skip
def test_its_time_grows_with_the_length_alone(piece: str, tmp_path: Path) -> None:
    """A quarter of a megabyte takes a tenth of a second; where each place looks to the text's end it would take minutes."""
    text = piece * (2**18 // len(piece))
    started = time.process_time()
    screen(kernel(tmp_path, text))
    assert time.process_time() - started < 5


@pytest.mark.more
@pytest.mark.parametrize("piece", [
    "sys.modules\n", "'a' in sys.modules\n", f"sys{'.a' * 100}\n", f"x{'.a' * 900}\n", f"x{'.a()' * 300}\n",
    f"'a'{' + x' * 900}\n", f"x{' + y' * 900}\n", "'a'" + " + 'b'" * 900 + "\n", "x" + " + 'b'" * 900 + "\n",
], ids=["found", "harmless", "names", "attributes", "calls", "string", "sum", "strings", "sum of strings"])  # fmt: skip
def test_its_time_grows_with_the_length_of_python_alone(piece: str, tmp_path: Path) -> None:
    """Expressions within each other are read once, not once for each part, and the tree is not read again for each finding."""
    started = time.process_time()
    screen(write(tmp_path, "import sys\n" + piece * (2**16 // len(piece))))
    assert time.process_time() - started < 4


def test_the_first_findings_of_a_file_are_said(tmp_path: Path) -> None:
    write(tmp_path, "import sys, ctypes\n" + "sys.modules\n" * 2500)
    found = screen(tmp_path)
    assert [one.severity for one in found] == ["refused"] * 21 + ["noted"]
    assert found[0].sentence == "model_new.py line 2 looks through the modules of the process it runs in"
    assert found[20].sentence == "model_new.py has 2,480 more lines of the kind"
    assert found[21].sentence == "model_new.py line 1 imports ctypes"


def test_printed_programs_are_clean_and_their_loader_alone_may_use_threads(tmp_path: Path) -> None:
    graph = captured(*case("reductions"))
    written = write_program(graph, stitched(graph))
    assert screen(write_files(written, tmp_path / "a")) == ()
    text = str(written["model_new.py"])
    assert "ThreadPoolExecutor() as pool" in text
    for number, (old, new) in enumerate([
        ("import torch\n", "import torch\nRUN = ThreadPoolExecutor().submit\n"),            # used elsewhere too
        ("    with ThreadPoolExecutor() as pool:", "    held = 1\n    with ThreadPoolExecutor() as pool:"),
        ("import ThreadPoolExecutor\n", "import ThreadPoolExecutor, thread\n"),
        ("import torch\n", "import torch\nimport threading\n"),
    ]):  # fmt: skip
        changed = text.replace(old, new, 1)
        assert changed != text
        found = screen(write_files({**written, "model_new.py": changed}, tmp_path / str(number)))
        assert [one.severity for one in found] == ["noted"], new
        assert re.search(r"imports (concurrent|threading)$", found[0].sentence)


def test_generated_programs_are_clean(tmp_path: Path) -> None:
    assert screen(programs.kernel_program(tmp_path / "a")) == ()
    assert screen(programs.graph_program(tmp_path / "b")) == ()


def test_a_binary_in_the_folder_is_refused(tmp_path: Path) -> None:
    program = programs.kernel_program(tmp_path)
    (program / "kernels" / "gate.cubin").write_bytes(b"\x7fELF")
    assert screen(program)[0].sentence.startswith("kernels/gate.cubin is not source")


class _Renamed(ast.NodeTransformer):
    """Every name that the file itself binds gets another one."""

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name(id=node.id if node.id in {*vars(builtins), "__builtins__"} else f"q_{node.id}", ctx=node.ctx)

    def visit_Import(self, node: ast.Import) -> ast.Import:
        plain = [alias for alias in node.names if "." not in alias.name or alias.asname]
        dotted = [alias for alias in node.names if alias not in plain]
        return ast.Import(names=[*(ast.alias(one.name, f"q_{one.asname or one.name}") for one in plain), *dotted])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        names = [ast.alias(alias.name, f"q_{alias.asname or alias.name}") for alias in node.names]
        return ast.ImportFrom(module=node.module, names=names, level=node.level)
