"""A whole session with a chat model: the first draft does not build, the second is wrong, the third is right.

The server decides from the text of the request alone which of three hand-written kernels it answers with: only a prompt
that carries the compiler's error gets the second, only one that carries the wrong output gets the third.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from stitchcuda.sessions.session import optimize
from stitchcuda.state import Evidence
from tests.engineers.metered_chats import REVIEW
from tests.engineers.protocol_server import Failure, Request, serve

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


DELETES = """
#include <cstdio>
namespace { struct Early { Early() { std::remove("MARKER"); } } early; }
"""


def program(addend: str, *, marker: Path | None = None, openly: bool = False) -> str:
    """A coder's reply. With a marker, host code and Python remove that file as soon as they are loaded; `openly`: as the source
    says, so that it comes to no loading."""
    kernel, model = KERNEL.replace("ADDEND", addend), MODEL
    if marker is not None:
        kernel = DELETES.replace("MARKER", str(marker)) + kernel
        remove = "os.remove" if openly else "vars(os)['remove']"
        gone = f"import contextlib, os\nwith contextlib.suppress(OSError):\n    {remove}({str(marker)!r})"
        model = MODEL.replace("import torch\n", f"import torch\n{gone}\n", 1)
    files = {"model_new.py": model, "kernels/scale_relu.cu": kernel, "kernels/scale_relu_binding.cc": BINDING}
    return "One kernel.\n" + "".join(f"```{path}\n{text.strip()}\n```\n" for path, text in files.items())


def planned(request: Request) -> str | Failure:
    found = re.search(r"^### (\w+): .*\[fusible\]", request.prompt, re.MULTILINE)
    if found is None:
        return Failure(400, "the prompt names no fusible region")
    task = {"name": "one-kernel", "regions": [found[1]], "title": "scale, shift, relu", "predicted_ms": 0.001}
    task |= {"why": "4 launches", "strategy": "one kernel"}
    tasks = [] if "taken: " in request.prompt else [task]
    return json.dumps({"summary": "One kernel does it all.", "host": "", "tasks": tasks})


def answer(request: Request, marker: Path) -> str | Failure:
    prompt = request.prompt
    if request.role == "planner":
        return planned(request)
    if request.role == "verifier":
        return json.dumps(REVIEW)
    if "NOT correct" in prompt and "WRONG, worst error 0.5" in prompt and "+ 2.0f" in prompt:
        return f"base: program\n{program('1.0f')}"
    if "removes files (os.remove)" in prompt:
        return f"base: program\n{program('2.0f', marker=marker)}"
    if 'identifier "one" is undefined' in prompt or "'one' was not declared" in prompt:
        return program("2.0f", marker=marker, openly=True)
    return program("one")


@pytest.mark.more
def test_not_built_then_refused_then_wrong_then_right(tmp_path: Path) -> None:
    """The refused one removes a file, as anybody can read; the wrong one tries it in a way that only the sandbox holds."""
    reference, marker = tmp_path / "scale_relu.py", tmp_path / "marker"
    reference.write_text(REFERENCE)
    marker.write_text("here")
    with serve(lambda request: answer(request, marker)) as server:
        session = optimize(
            reference, model="openai:local", base_url=server.url, device="sim", workspace=tmp_path / "ws", max_attempts=6,
            from_scratch=True,
        )  # fmt: skip
    attempts = session.attempts()
    assert [(attempt.built, attempt.correct) for attempt in attempts] == [
        (False, False), (True, False), (True, False), (True, True),
    ]  # fmt: skip
    assert [attempt.route for attempt in attempts] == ["code", "code", "code", "next_task"]
    outcome = session.outcome()
    assert outcome.accepted
    assert outcome.tier == "simulated"
    assert outcome.speedup is None, "nothing was timed"
    assert (outcome.usage.calls, outcome.usage.usd) == (len(server.requests), None), "no price is known"
    assert (outcome.usage.input_tokens, outcome.usage.output_tokens) == (server.read, server.written)
    assert server.roles() == ["planner", *["coder", "verifier"] * 4, "planner"]
    assert session.program is not None
    assert "+ 1.0f" in (session.program / "kernels" / "scale_relu.cu").read_text()
    checks = [Evidence.model_validate_json(session.home.store.get(attempt.evidence)).check for attempt in attempts]
    refused, wrong = checks[1:3]
    assert refused is not None
    assert (refused.launches, "removes files (os.remove)" in refused.reasons[0]) == (0, True), "it was not loaded"
    assert wrong is not None
    assert wrong.launches == 1, "it was loaded and has run"
    unheld = any(one.startswith("files") for one in wrong.unprotected)
    assert marker.exists() or unheld, "where nothing holds it, that is said"
