"""Foreign programs: one file in KernelBench's style that builds a torch extension, judged on the simulator."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from stitchcuda.state import CheckResult, Settings
from stitchcuda.verify.client import Judge
from stitchcuda.verify.policy import policy_reasons

# The first build for a cache compiles torch's headers: half a minute and more.
pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]
REFERENCE = '''
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)

    def forward(self, x):
        return torch.tanh(self.linear(x)).sum(dim=1) * 2

def get_inputs():
    return [torch.randn(33, 40)]

def get_init_inputs():
    return [40]
'''
# It returns early, as such programs do: 40 columns do not fill two warps, and threads beyond them skip the barrier.
CUDA = '''
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void tanh_sum(const float* __restrict__ x, float* out, int columns, int mode) {
  __shared__ float part[64];
  const int i = threadIdx.x;
  if (i >= columns) return;
  const float value = x[blockIdx.x * columns + i];
  part[i] = mode == 1 ? sinhf(value) : tanhf(value);
  __syncthreads();
  if (i == 0) {
    float sum = 0.0f;
    for (int k = 0; k < (mode == 2 ? 64 : columns); k++) sum += part[k];
    if (mode != 3 || blockIdx.x != 0) out[blockIdx.x] = sum;
  }
}

torch::Tensor row_sums(torch::Tensor x, double factor, int64_t mode) {
  TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
  TORCH_CHECK(mode < 4, "x must not be this one");
  x = x.contiguous();
  auto out = torch::empty({x.size(0)}, x.options());
  tanh_sum<<<x.size(0), 64>>>(x.data_ptr<float>(), out.data_ptr<float>(), static_cast<int>(x.size(1)), (int)mode);
  out.mul_(factor);
  return out;
}
'''
PROGRAM = '''
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""{cuda}"""
rows = load_inline(
    name="rows",
    cpp_sources="torch::Tensor row_sums(torch::Tensor x, double factor, int64_t mode);",
    cuda_sources=CUDA,
    functions=["row_sums"],
    extra_cuda_cflags=["-O3", "--use_fast_math"],
    verbose=False,
)


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features).cuda()
        self.rows = rows

    def compute(self, x, mode=0):
        return self.rows.row_sums(self.linear(x.cuda()), 2.0, mode)

    def forward(self, x):
        {forward}
'''
GRAPH = '''
        if not hasattr(self, "graph"):
            self.static = x.clone()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.out = self.compute(self.static)
        {copies}
        self.graph.replay()
        return self.out.clone()
'''


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """Its simulator's cache is that of the simulator's own tests: torch's headers take half a minute to compile, once."""
    folder = tmp_path_factory.mktemp("foreign")
    kept = Path(tempfile.gettempdir()) / "stitchcuda-simulator-tests"
    kept.mkdir(exist_ok=True)
    (folder / "simulator").symlink_to(kept)
    reference = folder / "reference.py"
    reference.write_text(REFERENCE)
    with Judge(reference, Settings(), cache=folder) as one:
        yield one


def checked(judge: Judge, folder: Path, *, forward: str = "return self.compute(x)", cuda: str = CUDA) -> CheckResult:
    path = folder / "foreign.py"
    path.write_text(PROGRAM.replace("{cuda}", cuda).replace("{forward}", forward.strip()))
    return judge.check(path, seeds=2)


def test_an_honest_one_is_correct_and_its_kernel_is_own_work(judge: Judge, tmp_path: Path) -> None:
    result = checked(judge, tmp_path)
    assert result.ok, result.reasons
    assert result.tier == "simulated"
    assert result.launches == 1
    assert 0.2 < result.own_share < 0.8
    assert 0.0 < result.framework_share < 0.2, "operators called from C++ count as what they are"
    assert policy_reasons(tmp_path / "foreign.py", "stitched", result) == ((), "")


def test_graphs_record_its_functions(judge: Judge, tmp_path: Path) -> None:
    """Once each: the multiplication inside the function is not replayed a second time."""
    result = checked(judge, tmp_path, forward=GRAPH.replace("{copies}", "self.static.copy_(x)"))
    assert result.ok, result.reasons
    assert result.launches == 1, "a replay launches its kernel again"
    stale = checked(judge, tmp_path, forward=GRAPH.replace("{copies}", "pass"))
    assert not stale.ok
    assert "output is wrong" in stale.reasons[0]


@pytest.mark.parametrize(
    ("mode", "said"),
    [(1, "output is wrong"), (2, "NaN in 33 of 33 elements"), (3, "NaN in 1 of 33 elements"), (4, "x must not be this one")],
)
def test_wrong_ones_are_refused(judge: Judge, tmp_path: Path, mode: int, said: str) -> None:
    """A wrong function, shared memory that nobody wrote, an output that nobody writes, an exception."""
    result = checked(judge, tmp_path, forward=f"return self.compute(x, {mode})")
    assert not result.ok
    assert result.tier == "simulated"
    assert said in "; ".join(result.reasons)


def test_what_does_not_compile_names_its_line(judge: Judge, tmp_path: Path) -> None:
    result = checked(judge, tmp_path, cuda=CUDA.replace("tanhf(", "tanhh("))
    assert not result.ok
    assert "do not build" in result.reasons[0]
    assert "\ncuda.cu:13:" in result.reasons[0]


@pytest.mark.parametrize(
    ("cpp", "change", "said"),
    [
        ("", ("", ""), "the bindings that load_inline('rows') writes: "),
        (None, ("tanhf(", "tanhh("), "foreign.py line {line}: "),
        (None, ("return out;", "return out"), "foreign.py line {line}: expected"),
        (None, ("torch::Tensor row_", "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}\ntorch::Tensor row_"), "defined twice"),
        (None, ("torch::Tensor row_sums(", "torch::Tensor other("), "ImportError: rows"),
    ],
    ids=["undeclared", "unknown name", "syntax", "module twice", "undefined"],
)  # fmt: skip
def test_a_build_that_fails_and_is_caught_is_told(
    judge: Judge, tmp_path: Path, cpp: str | None, change: tuple[str, str], said: str
) -> None:
    """They fall back to torch, and are refused for that."""
    text = PROGRAM.replace("{cuda}", CUDA.replace(*change) if change[0] else CUDA)
    text = text.replace("{forward}", "return torch.tanh(self.linear(x)).sum(dim=1) * 2")
    text = text.replace("CUDA = ", "try:\n  CUDA = ", 1).replace("rows = load", "  rows = load")
    text = text.replace("\n\nclass", "\nexcept Exception:\n  rows = None\n\nclass")
    if cpp is not None:
        text = text.replace('"torch::Tensor row_sums(torch::Tensor x, double factor, int64_t mode);"', repr(cpp))
    path = tmp_path / "foreign.py"
    path.write_text(text)
    result = judge.check(path, seeds=2)
    assert result.ok, result.reasons
    assert len(result.caught) == 1
    line = next((number for number, row in enumerate(text.splitlines(), 1) if change[1] and change[1] in row), 0)
    assert said.replace("{line}", str(line)) in result.caught[0]
    assert "(try in line 6, except in line " in result.caught[0]
    reasons, _ = policy_reasons(path, "stitched", result)
    assert reasons[0] == result.caught[0]


def test_what_cannot_run_was_not_judged(judge: Judge, tmp_path: Path) -> None:
    result = checked(judge, tmp_path, cuda=CUDA + "\nTORCH_LIBRARY(foreign, m) { m.def(\"row_sums\", &row_sums); }\n")
    assert not result.ok
    assert result.tier == "compiled"
    assert "an operator registered with torch's dispatcher" in result.reasons[0]
