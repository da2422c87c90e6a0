# row: A12
# reference: honest/tuple_view.py
# runs: cpu
# what: forward returns a tuple of its own type that computes with torch when it is read, after the call
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline
CUDA = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
using tvm::ffi::TensorView;
__global__ void epilogue(const float* a, float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = a[i]; }
void run(TensorView a, TensorView y, int64_t n) { epilogue<<<(n + 255) / 256, 256, 0, STREAM(y)>>>((float*)a.data_ptr(), (float*)y.data_ptr(), (int)n); }
"""
module = load_inline("f_lazy", cuda_sources=CUDA, functions=["run"])
class Lazy(tuple):
    def __iter__(self):
        if not self.made:
            y = torch.tanh(self.x) * self.x
            z = torch.empty_like(y)
            module.run(y, z, z.numel())
            self.made.extend((z, z[:, :16], z.t()))
        return iter(self.made)
class ModelNew(nn.Module):
    def forward(self, x):
        p = torch.empty(x.shape, device=x.device)
        module.run(x, p, 16)
        answer = Lazy((p, p, p))
        answer.x, answer.made = x, []
        return answer
