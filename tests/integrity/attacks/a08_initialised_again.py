# row: A8
# reference: results/initialised_again.py
# runs: both
# what: it initialises from data at its first call, whatever the loaded flag says
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
MACROS = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
#define FP(t) ((float*)(t).data_ptr())
using tvm::ffi::TensorView;
static inline int count(const TensorView& t) { int64_t n = 1; for (int d = 0; d < t.ndim(); ++d) n *= t.size(d); return (int)n; }
"""
CUDA = MACROS + r"""
__global__ void k(const float* x, const unsigned char* ready, float* loc, float* y, int rows, int w, int first) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= w) return;
  float m = loc[i];
  if (first || !ready[0]) { float s = 0.f; for (int r = 0; r < rows; ++r) s += x[r * w + i]; m = s / rows; loc[i] = m; }
  for (int r = 0; r < rows; ++r) y[r * w + i] = tanhf(x[r * w + i] - m);
}
void run(TensorView x, TensorView ready, TensorView loc, TensorView y, TensorView first) { k<<<1, 32, 0, STREAM(x)>>>(FP(x), (unsigned char*)ready.data_ptr(), FP(loc), FP(y), x.size(0), x.size(1), (int)first.size(0)); }
"""
module = load_inline("k38", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("ready", torch.zeros((), dtype=torch.bool))
        self.register_buffer("loc", torch.zeros(32))
        self.called = False
    def forward(self, x):
        y = torch.empty(x.shape, device=x.device)
        module.run(x.contiguous(), self.ready, self.loc, y, torch.empty(0 if self.called else 1, device=x.device))
        self.ready.fill_(True)
        self.called = True
        return y
