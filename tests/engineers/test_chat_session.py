"""A whole session with a chat model: the first draft does not build, the second is wrong, the third is right.

The server decides from the text of the request alone which of three hand-written kernels it answers with: only a prompt
that carries the compiler's error gets the second, only one that carries the wrong output gets the third.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from stitchcuda.session import optimize

from .protocol_server import Failure, Request, serve

REFERENCE = """
import torch

class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.linspace(0.5, 1.5, width))

    def forward(self, x):
        return torch.relu(x * self.scale + 1.0) * 0.5

def get_inputs():
    return [torch.randn(64, 256)]

def get_init_inputs():
    return [256]
"""
KERNEL = """
#include <cuda_runtime.h>

__global__ void scale_relu_kernel(const float* x, const float* scale, float* y) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 64 * 256) y[i] = fmaxf(x[i] * scale[i % 256] + ADDEND, 0.0f) * 0.5f;
}

extern "C" int scale_relu(const float* x, const float* scale, float* y, void* stream) {
    scale_relu_kernel<<<64, 256, 0, static_cast<cudaStream_t>(stream)>>>(x, scale, y);
    return static_cast<int>(cudaGetLastError());
}
"""
BINDING = """
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>

extern "C" int scale_relu(const float* x, const float* scale, float* y, void* stream);

namespace {
void want(const tvm::ffi::TensorView& t, int64_t elements, const char* name) {
    if (t.device().device_type != kDLCUDA) TVM_FFI_THROW(ValueError) << name << " must be on a GPU";
    if (t.dtype().code != kDLFloat || t.dtype().bits != 32) TVM_FFI_THROW(TypeError) << name << " must be float32";
    if (t.numel() != elements || !t.IsContiguous()) TVM_FFI_THROW(ValueError) << name << " has another shape or strides";
}

void bound(tvm::ffi::TensorView x, tvm::ffi::TensorView scale, tvm::ffi::TensorView y) {
    want(x, 64 * 256, "x");
    want(scale, 256, "scale");
    want(y, 64 * 256, "y");
    void* stream = TVMFFIEnvGetStream(x.device().device_type, x.device().device_id);
    const int error = scale_relu(static_cast<const float*>(x.data_ptr()), static_cast<const float*>(scale.data_ptr()),
                                 static_cast<float*>(y.data_ptr()), stream);
    if (error != 0) TVM_FFI_THROW(RuntimeError) << "scale_relu: CUDA error " << error;
}
}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(scale_relu, bound)
"""
MODEL = '''
"""relu(x * scale + 1) / 2 in one kernel, for x of [64, 256] float32."""

from pathlib import Path

import torch
import tvm_ffi.cpp

KERNELS = Path(__file__).parent / "kernels"
scale_relu = tvm_ffi.cpp.load(
    "scale_relu", cpp_files=[str(KERNELS / "scale_relu_binding.cc")], cuda_files=[str(KERNELS / "scale_relu.cu")]
).scale_relu


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.linspace(0.5, 1.5, width))

    def forward(self, x):
        y = torch.empty_like(x)
        scale_relu(x, self.scale.detach(), y)
        return y
'''


def program(addend: str) -> str:
    files = {
        "model_new.py": MODEL,
        "kernels/scale_relu.cu": KERNEL.replace("ADDEND", addend),
        "kernels/scale_relu_binding.cc": BINDING,
    }
    listed = [{"path": path, "content": content} for path, content in files.items()]
    return json.dumps({"note": "one kernel", "exhausted": "", "files": listed})


def answer(request: Request) -> str | Failure:
    prompt = request.prompt
    if request.role == "planner":
        found = re.search(r"^### (\w+): .*\[fusible\]", prompt, re.MULTILINE)
        if found is None:
            return Failure(400, "the prompt names no fusible region")
        task = {
            "target": found[1],
            "title": "scale, shift, relu",
            "predicted_ms": 0.001,
            "why": "4 launches",
            "strategy": "one kernel",
        }
        return json.dumps({"summary": "One kernel does it all.", "tasks": [task]})
    if request.role == "verifier":
        review = {
            "bottleneck": "see the evidence",
            "suggestion": "none",
            "expected_gain": "",
            "route": "next_task",
            "citations": [],
        }
        return json.dumps(review)
    if "NOT correct" in prompt and "WRONG, worst error 0.5" in prompt and "+ 2.0f" in prompt:
        return program("1.0f")
    if 'identifier "one" is undefined' in prompt or "'one' was not declared" in prompt:
        return program("2.0f")
    return program("one")


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_API_BASE"):
        monkeypatch.delenv(name, raising=False)


def test_not_built_then_wrong_then_right(tmp_path: Path) -> None:
    reference = tmp_path / "scale_relu.py"
    reference.write_text(REFERENCE)
    with serve(answer) as server:
        session = optimize(
            reference, model="openai:local", base_url=server.url, device="sim", workspace=tmp_path / "ws", max_attempts=6
        )
    attempts = session.attempts()
    assert [(attempt.built, attempt.correct) for attempt in attempts] == [(False, False), (True, False), (True, True)]
    assert [attempt.route for attempt in attempts] == ["code", "code", "next_task"]
    outcome = session.outcome()
    assert outcome.accepted
    assert outcome.tier == "simulated"
    assert outcome.speedup is None, "nothing was timed"
    assert outcome.usage.calls == len(server.requests)
    assert outcome.usage.input_tokens > 1000
    assert outcome.usage.usd is None, "no price is known"
    assert server.roles()[:7] == ["planner", "coder", "verifier", "coder", "verifier", "coder", "verifier"]
    assert session.program is not None
    assert "+ 1.0f" in (session.program / "kernels" / "scale_relu.cu").read_text()
