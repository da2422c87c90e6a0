"""The screen refuses what no program needs, however it is named, and lets honest oddities pass."""

from __future__ import annotations

import ast
import builtins
import textwrap
from pathlib import Path

import pytest

from stitchcuda.tools.screen import screen
from tests.tools import programs

REFUSED = {
    "frames": "import sys\nframe = sys._getframe(1)",
    "frames by getattr": "import sys\nframe = getattr(sys, '_get' + 'frame')(1)",
    "frames of an error": "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    up = error.__traceback__.tb_frame",
    "inspect": "from inspect import currentframe as where\nhere = where()",
    "objects": "import gc\nheld = gc.get_objects()",
    "subclasses": "found = object.__subclasses__()",
    "modes": "from torch.utils._python_dispatch import _disable_current_modes\nwith _disable_current_modes():\n    pass",
    "patch": "import torch\ntorch.cuda.synchronize = lambda *a: None",
    "patch through an alias": "import torch\nevents = torch.cuda\nevents.Event = None",
    "patch by setattr": "import time\nsetattr(time, 'perf_counter', lambda: 0.0)",
    "patch by vars": "import torch\nvars(torch.cuda)['synchronize'] = None",
    "patch by __dict__": "import torch\ntorch.Tensor.__dict__['add'] = None",
    "patch of an imported module": "import importlib\nt = importlib.import_module('torch')\nt.allclose = None",
    "modules": "import sys\nsys.modules['torch'] = None",
    "mock": "from unittest import mock",
    "exec": "import base64\nexec(base64.b64decode('cHJpbnQoMSk='))",
    "blob": f"data = '{'QUJD' * 600}'",
    "the verifier": "import stitchcuda.tools.judge",
    "other processes": "text = open('/proc/self/maps').read()",
    "aten": "import torch\nlibrary = torch.library.Library('aten', 'IMPL')",
    "assembler": "SOURCE = '#include <cuda.h>\\nasm(\".incbin \\\\\"weights\\\\\"\");'",
    "private file": "SOURCE = '#include \"/root/expected.h\"'",
    "constructor": "TEXT = '#include <cuda.h>\\n__attribute__((constructor)) void f() {}'",
    "interposed": "TEXT = '#include <cuda.h>\\ncudaError_t cudaEventElapsedTime(float* t, cudaEvent_t, cudaEvent_t) {}'",
}
HONEST = {
    "settings": "import os, torch\nos.environ['TORCH_CUDA_ARCH_LIST'] = '9'\ntorch.backends.cudnn.allow_tf32 = False",
    "names": "import torch\ndtype = getattr(torch, 'float16')\nboth = {n: getattr(torch, n) for n in ('float16', 'half')}",
    "logging": "import logging, warnings, threading\nlog = logging.getLogger(__name__)\nlock = threading.Lock()",
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
        return ast.Name(id=node.id if node.id in vars(builtins) else f"q_{node.id}", ctx=node.ctx)

    def visit_Import(self, node: ast.Import) -> ast.Import:
        plain = [alias for alias in node.names if "." not in alias.name or alias.asname]
        dotted = [alias for alias in node.names if alias not in plain]
        return ast.Import(names=[*(ast.alias(one.name, f"q_{one.asname or one.name}") for one in plain), *dotted])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.ImportFrom:
        names = [ast.alias(alias.name, f"q_{alias.asname or alias.name}") for alias in node.names]
        return ast.ImportFrom(module=node.module, names=names, level=node.level)
