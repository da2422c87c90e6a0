"""A session on the simulator in which a review names a race that no tool finds: the next round repairs it.

The draft adds up block sums in the last block, with its memory fence behind the atomic counter instead of before it. The
simulator runs blocks one after another and does not follow fences, so it finds the draft correct; on a GPU the last block may
read sums that are not there yet. The server decides from the text of the request alone: only a reviewer who is shown the
misplaced fence names it, and only a coder who is told of it repairs it.
"""

from __future__ import annotations

import itertools
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
        return torch.relu(x * self.scale).sum()

def get_inputs():
    return [torch.randn(64, 256)]

def get_init_inputs():
    return [256]
"""
RACY = "last = atomicAdd(count, 1u) == gridDim.x - 1;\n        __threadfence();"
SAFE = "__threadfence();\n        last = atomicAdd(count, 1u) == gridDim.x - 1;"
KERNEL = """
#include <cuda_runtime.h>

__global__ void total_kernel(const float* x, const float* scale, float* partial, unsigned* count, float* y) {
    __shared__ float row[8];
    __shared__ bool last;
    const int i = blockIdx.x * 256 + threadIdx.x;
    float value = fmaxf(x[i] * scale[threadIdx.x], 0.0f);
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    if (threadIdx.x % 32 == 0) row[threadIdx.x / 32] = value;
    __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0.0f;
        for (int warp = 0; warp < 8; warp++) sum += row[warp];
        partial[blockIdx.x] = sum;
        FENCED
    }
    __syncthreads();
    if (last && threadIdx.x == 0) {
        float sum = 0.0f;
        for (int block = 0; block < 64; block++) sum += partial[block];
        y[0] = sum;
    }
}

extern "C" int total(const float* x, const float* scale, float* partial, unsigned* count, float* y, void* stream) {
    total_kernel<<<64, 256, 0, static_cast<cudaStream_t>(stream)>>>(x, scale, partial, count, y);
    return static_cast<int>(cudaGetLastError());
}
"""
BINDING = """
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>

extern "C" int total(const float* x, const float* scale, float* partial, unsigned* count, float* y, void* stream);

namespace {
void want(const tvm::ffi::TensorView& t, int64_t elements, const char* name) {
    if (t.device().device_type != kDLCUDA) TVM_FFI_THROW(ValueError) << name << " must be on a GPU";
    if (t.dtype().bits != 32) TVM_FFI_THROW(TypeError) << name << " must have 32 bits";
    if (t.numel() != elements || !t.IsContiguous()) TVM_FFI_THROW(ValueError) << name << " has another shape or strides";
}

void bound(tvm::ffi::TensorView x, tvm::ffi::TensorView scale, tvm::ffi::TensorView partial, tvm::ffi::TensorView count,
           tvm::ffi::TensorView y) {
    want(x, 64 * 256, "x");
    want(scale, 256, "scale");
    want(partial, 64, "partial");
    want(count, 1, "count");
    want(y, 1, "y");
    void* stream = TVMFFIEnvGetStream(x.device().device_type, x.device().device_id);
    const int error = total(static_cast<const float*>(x.data_ptr()), static_cast<const float*>(scale.data_ptr()),
                            static_cast<float*>(partial.data_ptr()), static_cast<unsigned*>(count.data_ptr()),
                            static_cast<float*>(y.data_ptr()), stream);
    if (error != 0) TVM_FFI_THROW(RuntimeError) << "total: CUDA error " << error;
}
}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(total, bound)
"""
MODEL = '''
"""The sum of relu(x * scale) in one kernel, for x of [64, 256] float32."""

from pathlib import Path

import torch
import tvm_ffi.cpp

KERNELS = Path(__file__).parent / "kernels"
total = tvm_ffi.cpp.load(
    "total", cpp_files=[str(KERNELS / "total_binding.cc")], cuda_files=[str(KERNELS / "total.cu")]
).total


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.linspace(0.5, 1.5, width))

    def forward(self, x):
        partial, y = x.new_empty(64), x.new_empty(())
        count = torch.zeros(1, dtype=torch.int32, device=x.device)
        total(x, self.scale.detach(), partial, count, y)
        return y
'''
DEFECT = "kernels/total.cu: the fence stands behind atomicAdd, so the last block may read sums that are not written yet"


def draft() -> str:
    files = {"model_new.py": MODEL, "kernels/total.cu": KERNEL.replace("FENCED", RACY), "kernels/total_binding.cc": BINDING}
    return "One kernel.\n" + "".join(f"```{path}\n{text.strip()}\n```\n" for path, text in files.items())


def repair() -> str:
    edit = f"<<<<<<< SEARCH\n        {RACY}\n=======\n        {SAFE}\n>>>>>>> REPLACE\n"
    return f"Moved the fence.\n```kernels/total.cu\n{edit}```\n"


def planned(request: Request) -> str | Failure:
    found = re.search(r"^### (\w+): .*\[fusible\]", request.prompt, re.MULTILINE)
    if found is None:
        return Failure(400, "the prompt names no fusible region")
    task = {"name": "one-kernel", "regions": [found[1]], "title": "scale, relu, sum", "predicted_ms": 0.001}
    task |= {"why": "3 launches", "strategy": "one kernel"}
    tasks = [] if "taken: " in request.prompt else [task]
    return json.dumps({"summary": "One kernel does it all.", "host": "", "tasks": tasks})


def answer(request: Request) -> str | Failure:
    prompt = request.prompt
    if request.role == "planner":
        return planned(request)
    if request.role == "coder":
        return repair() if f"which the tools did not find: {DEFECT}" in prompt else draft()
    shown = [line[1:].strip() for line in prompt.splitlines() if not line.startswith("-")]
    racy = not any("__threadfence" in line and "atomicAdd" in after for line, after in itertools.pairwise(shown))
    return json.dumps(REVIEW | ({"defect": DEFECT, "route": "code"} if racy else {"defect": "none"}))


@pytest.mark.more
def test_a_race_that_a_review_names_is_repaired_in_the_next_round(tmp_path: Path) -> None:
    reference = tmp_path / "total.py"
    reference.write_text(REFERENCE)
    with serve(answer) as server:
        session = optimize(
            reference, model="openai:local", base_url=server.url, device="sim", workspace=tmp_path / "ws", max_attempts=4,
            from_scratch=True,
        )  # fmt: skip
    first, second = session.attempts()
    evidence = Evidence.model_validate_json(session.home.store.get(first.evidence))
    assert evidence.check is not None
    assert (first.correct, evidence.check.reasons) == (True, ()), "no tool finds the race"
    assert (first.defect, first.route, first.kept) == (DEFECT, "code", True)
    assert (second.defect, second.route, second.kept) == ("", "next_task", True)
    assert server.roles() == ["planner", "coder", "verifier", "coder", "verifier", "planner"]
    assert session.program is not None
    assert SAFE in (session.program / "kernels" / "total.cu").read_text()
    told, again = [request.prompt for request in server.requests if request.role == "verifier"]
    assert "in device memory where a kernel has memory fences" in told, "what nobody looked for is said"
    assert "+        __threadfence();" in again
    assert "kernels/total.cu: 1 added, 1 removed, " in again
    assert 'want(y, 1, "y");' in told, "a review of the whole program shows the binding"
    outcome = session.outcome()
    assert outcome.accepted
    assert "Defects that reviews named" not in Path(outcome.report or "").read_text(), "it is repaired"
