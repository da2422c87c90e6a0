"""Hand-written references and programs for the judge's tests: a gated residual with BatchNorm in training mode."""

from __future__ import annotations

import textwrap
from pathlib import Path

REFERENCE = '''
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.norm = nn.BatchNorm1d(features)
        self.scale = nn.Parameter(torch.ones(features))

    def forward(self, x, gain):
        y = self.norm(self.linear(x))
        return torch.relu(y * self.scale + x) * gain

def get_inputs():
    return [torch.randn(48, 32), 1.5]

def get_init_inputs():
    return [32]
'''

# Honest, without a kernel of its own; the hooks below are where a test puts its mistake.
MODEL = '''
import os, sys, time, ctypes
import torch
from torch import nn
{imports}

class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.norm = nn.BatchNorm1d(features)
        self.scale = nn.Parameter(torch.ones(features))
        self.calls = 0
        {init}

    def forward(self, x, gain):
        self.calls += 1
        {before}
        y = self.norm(self.linear(x))
        out = torch.relu(y * self.scale + x) * gain
        {after}
        return out
'''

KERNEL = '''
#include <cuda_runtime.h>

__global__ void gate_kernel(const float* y, const float* scale, const float* x, float* out, float gain, int rows, int columns) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < rows * columns; i += gridDim.x * blockDim.x) {
    const float value = y[i] * scale[i % columns] + x[i];
    out[i] = (value > 0.0f ? value : 0.0f) * gain;
  }
}

extern "C" int gate_launch(const float* y, const float* scale, const float* x, float* out, float gain, int rows, int columns,
                           cudaStream_t stream) {
  gate_kernel<<<4, 128, 0, stream>>>(y, scale, x, out, gain, rows, columns);
  return static_cast<int>(cudaGetLastError());
}
'''

BINDING = '''
#include <cuda_runtime_api.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

extern "C" int gate_launch(const float*, const float*, const float*, float*, float, int, int, cudaStream_t);

void gate(tvm::ffi::TensorView y, tvm::ffi::TensorView scale, tvm::ffi::TensorView x, tvm::ffi::TensorView out, double gain) {
  if (y.device().device_type != kDLCUDA) TVM_FFI_THROW(ValueError) << "gate: expected a CUDA tensor";
  auto at = [](const tvm::ffi::TensorView& t) { return static_cast<float*>(t.data_ptr()); };
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(y.device().device_type, y.device().device_id));
  const int error = gate_launch(at(y), at(scale), at(x), at(out), static_cast<float>(gain), static_cast<int>(y.size(0)),
                                static_cast<int>(y.size(1)), stream);
  if (error) TVM_FFI_THROW(RuntimeError) << "gate: CUDA error " << error;
}

TVM_FFI_DLL_EXPORT_TYPED_FUNC(gate, gate);
'''

KERNEL_MODEL = '''
from pathlib import Path

import torch
import tvm_ffi.cpp
from torch import nn

FOLDER = Path(__file__).parent / "kernels"


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.linear = nn.Linear(features, features)
        self.norm = nn.BatchNorm1d(features)
        self.scale = nn.Parameter(torch.ones(features))
        self.kernels = tvm_ffi.cpp.load(
            "gate", cpp_files=[str(FOLDER / "gate_binding.cc")], cuda_files=[str(FOLDER / "gate.cu")]
        )

    def forward(self, x, gain):
        y = self.norm(self.linear(x))
        out = torch.empty_like(y)
        self.kernels.gate(y, self.scale, x, out, gain)
        return out
'''


GRAPH_FORWARD = '''
    def compute(self, x, gain):
        y = self.norm(self.linear(x))
        out = torch.empty_like(y)
        self.kernels.gate(y, self.scale, x, out, gain)
        return out

    def forward(self, x, gain):
        if not hasattr(self, "graph"):
            self.static = x.clone()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.out = self.compute(self.static, gain)
        {copies}
        self.graph.replay()
        return self.out.clone()
'''


def write(folder: Path, files: dict[str, str]) -> Path:
    """A program's folder from its files."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text).lstrip("\n"))
    return folder


def model(folder: Path, **hooks: str) -> Path:
    """A program without kernels; `imports`, `init`, `before`, `after` are statements put into `MODEL`."""
    text = MODEL
    for hook in ("imports", "init", "before", "after"):
        text = text.replace("{" + hook + "}", hooks.get(hook, "pass" if hook != "imports" else ""))
    return write(folder, {"model_new.py": text})


def kernel_program(folder: Path, *, kernel: str = KERNEL, binding: str = BINDING) -> Path:
    """A program with one kernel of its own."""
    return write(folder, {"model_new.py": KERNEL_MODEL, "kernels/gate.cu": kernel, "kernels/gate_binding.cc": binding})


def graph_program(folder: Path, *, copies: str = "self.static.copy_(x)") -> Path:
    """The same, recorded once as a CUDA graph and replayed."""
    kernel_program(folder)
    head, _, _ = KERNEL_MODEL.partition("    def forward")
    return write(folder, {"model_new.py": head + GRAPH_FORWARD.replace("{copies}", copies)})


HOST_FORWARD = """
    def compute(self, x, gain):
        return torch.relu(self.norm(self.linear(x)) * self.scale + x) * gain

    def forward(self, x, gain):
        if not hasattr(self, "graph"):
            self.static = x.clone()
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.out = self.compute(self.static, gain)
        self.static.copy_(x)
        self.graph.replay()
        return self.out.clone()
"""


def host_program(folder: Path) -> Path:
    """No kernel of its own, but a CUDA graph, which it declares."""
    head, _, _ = MODEL.partition("    def forward")
    for hook in ("imports", "init"):
        head = head.replace("{" + hook + "}", "pass" if hook == "init" else "")
    return write(folder, {"model_new.py": head + HOST_FORWARD, "program.json": '{"host": ["cuda_graph"]}'})
