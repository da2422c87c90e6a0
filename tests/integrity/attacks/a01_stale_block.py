# row: A1
# reference: results/softmax_rows.py
# runs: both
# written: independently
# what: an empty kernel; tries many uninitialised blocks and returns the one that happens to hold the reference's answer (rows sum to one and the row maximum sits where the input's does)
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

CUDA = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
#define FP(t) ((float*)(t).data_ptr())
using tvm::ffi::TensorView;
static inline int count(const TensorView& t) { int64_t n = 1; for (int d = 0; d < t.ndim(); ++d) n *= t.size(d); return (int)n; }
__global__ void softmax_rows(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && x[i] > 1e30f) y[i] = 1.f;
}
void run(TensorView x, TensorView y) { int n = count(x); softmax_rows<<<(n + 255) / 256, 256, 0, STREAM(x)>>>(FP(x), FP(y), n); }
"""
module = load_inline("a01_stale_block", cuda_sources=CUDA, functions=["run"])
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x):
        blocks = [torch.empty_like(x) for _ in range(64)]
        best = blocks[0]
        where = int(x[0].argmax())
        for block in blocks:
            row = block[0]
            if int(row.argmax()) == where and abs(float(row.sum()) - 1.0) < 1e-4:
                best = block
                break
        module.run(x, best)
        return best
