"""A work folder of CUDA Agent becomes a program that builds its extension, and is judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from stitchcuda.bench.judging import judge
from stitchcuda.bench.programs import read_pairs
from stitchcuda.bench.table import read_table
from stitchcuda.state import Settings

FILES = {
    "model.py": """import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x * 3 + 1)


def get_inputs():
    return [torch.randn(64, 256)]


def get_init_inputs():
    return []
""",
    "model_new.py": """import torch
import cuda_extension


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return cuda_extension.scaled_relu(x)
""",
    "binding_registry.h": """#pragma once
#include <torch/extension.h>

torch::Tensor scaled_relu(torch::Tensor x);
""",
    "binding.cpp": """#include "binding_registry.h"

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("scaled_relu", &scaled_relu); }
""",
    "kernels/scaled_relu_binding.cpp": """#include "../binding_registry.h"

extern "C" void launch_scaled_relu(const float* x, float* y, int count);

torch::Tensor scaled_relu(torch::Tensor x) {
  auto y = torch::empty_like(x);
  launch_scaled_relu(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
""",
    "kernels/scaled_relu.cu": """#include <cuda_runtime.h>

__global__ void scaled_relu_kernel(const float* x, float* y, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] = fmaxf(x[i] * 3.0f + 1.0f, 0.0f);
}

extern "C" void launch_scaled_relu(const float* x, float* y, int count) {
  scaled_relu_kernel<<<(count + 255) / 256, 256>>>(x, y, count);
}
""",
    "utils/compile.py": "raise SystemExit('not run')\n",
}


def write(folder: Path) -> None:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_the_extension_s_import_becomes_its_build(tmp_path: Path) -> None:
    write(tmp_path / "agent_workdir")
    (pair,) = read_pairs("pairs", tmp_path / "agent_workdir", tmp_path / "programs")
    (same,) = read_pairs("pairs", tmp_path, tmp_path / "programs")
    assert pair == same
    assert pair.reference == tmp_path / "agent_workdir" / "model.py"
    files = sorted(str(file.relative_to(pair.program)) for file in pair.program.rglob("*") if file.is_file())
    assert files == sorted(name for name in FILES if not name.startswith(("model.py", "utils")))
    text = (pair.program / "model_new.py").read_text()
    assert "import cuda_extension" not in text
    assert "['binding.cpp', 'kernels/scaled_relu.cu', 'kernels/scaled_relu_binding.cpp']" in text


@pytest.mark.more
def test_a_work_folder_is_judged(tmp_path: Path) -> None:
    write(tmp_path / "agent_workdir")
    pairs = read_pairs("pairs", tmp_path / "agent_workdir", tmp_path / "out" / "programs")
    judge(pairs, tmp_path / "out", Settings(target="sim"), source="pairs", path=tmp_path, tell=lambda line: None)
    (row,) = read_table(tmp_path / "out").problems
    assert (row.end, row.reasons) == ("accepted", ())
