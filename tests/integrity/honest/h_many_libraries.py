# row: honest
# reference: honest/swish.py
# runs: both
# what: uses what engineers use around a kernel: logging, enums, slots, weak references, profiler ranges, NVTX
import os, sys, json, logging, warnings, threading, weakref, atexit, inspect, functools, contextlib, enum, hashlib, importlib.util
from collections import OrderedDict, namedtuple
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, Optional
import torch, torch.nn as nn, torch.nn.functional as F
import tvm_ffi.cpp

log = logging.getLogger("swish")
HAS_TRITON = importlib.util.find_spec("triton") is not None
try:
    import triton
except ImportError:
    triton = None

class Act(enum.Enum):
    SWISH = "swish"

class Launch(NamedTuple):
    grid: int
    block: int

Shape = namedtuple("Shape", "rows cols")

@dataclass(slots=True)
class Plan:
    act: Act = Act.SWISH
    threads: int = 256
    extra: dict = field(default_factory=dict)

BODY = {Act.SWISH: "v / (1.f + __expf(-v))"}

def source(plan: Plan) -> str:
    return f"""
#include <cuda_runtime.h>
__global__ void __launch_bounds__({plan.threads}) act_kernel(const float* __restrict__ x, float* __restrict__ y, long long n) {{
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x) {{
    float v = x[i];
    y[i] = {BODY[plan.act]};
  }}
}}
void act(tvm::ffi::TensorView x, tvm::ffi::TensorView y, int64_t grid) {{
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  act_kernel<<<grid, {plan.threads}, 0, stream>>>(static_cast<const float*>(x.data_ptr()), static_cast<float*>(y.data_ptr()), x.numel());
}}
"""

_lock = threading.Lock()
_modules = {}
_per_module = weakref.WeakKeyDictionary()

def timed(fn):
    @functools.wraps(fn)
    def inner(*a, **k):
        with torch.profiler.record_function("swish"):
            return fn(*a, **k)
    return inner

def get_module(plan):
    key = hashlib.sha256(source(plan).encode()).hexdigest()[:8]
    with _lock:
        if key not in _modules:
            _modules[key] = tvm_ffi.cpp.load_inline(f"act_{key}", cuda_sources=source(plan), functions=["act"], extra_cuda_cflags=["-O3", "--use_fast_math", "-lineinfo"])
    return _modules[key]

@atexit.register
def _bye():
    _modules.clear()

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.plan = Plan()
        self.sms = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count if torch.cuda.is_available() else 1
        if torch.cuda.get_device_capability()[0] < 7:
            warnings.warn("old GPU")
        log.warning("plan %s, %s", self.plan, inspect.signature(self.forward))
        print(json.dumps({"sms": self.sms}), file=sys.stderr)
    @timed
    @torch.inference_mode()
    def forward(self, x):
        assert x.is_cuda and x.dtype is torch.float32, "float32 CUDA only"
        x = x.contiguous()
        shape = Shape(*x.shape)
        launch = Launch(min((x.numel() + 255) // 256, self.sms * 8), 256)
        y = torch.empty_like(x)
        with torch.cuda.device(x.device), torch.cuda.nvtx.range("swish"):
            try:
                get_module(self.plan).act(x, y, launch.grid)
            except RuntimeError:
                log.exception("falling back")
                return x * torch.sigmoid(x)
        return y.view(shape)

if __name__ == "__main__":
    import subprocess
    print(subprocess.run(["nvidia-smi"]))
