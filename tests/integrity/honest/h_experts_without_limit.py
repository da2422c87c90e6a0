# row: honest
# reference: results/capacity_of_experts.py
# runs: both
# what: a top-1 mixture of experts in one kernel, sums in double
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline

CUDA = r"""
using tvm::ffi::TensorView;

__global__ void k(const float* x, const float* r, const float* e, float* y) {
  int c = threadIdx.x;
  for (int i = 0; i < 64; ++i) {
    double s[4], top = -1e300, sum = 0; int best = 0;
    for (int j = 0; j < 4; ++j) { s[j] = 0; for (int d = 0; d < 32; ++d) s[j] += (double)x[i * 32 + d] * r[j * 32 + d]; if (s[j] > top) { top = s[j]; best = j; } }
    for (int j = 0; j < 4; ++j) sum += exp(s[j] - top);
    double acc = 0;
    for (int d = 0; d < 32; ++d) acc += (double)x[i * 32 + d] * e[(best * 32 + d) * 32 + c];
    y[i * 32 + c] = (float)(acc / sum);
  }
}
void run(TensorView x, TensorView r, TensorView e, TensorView y) {
  cudaStream_t s = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  k<<<1, 32, 0, s>>>((float*)x.data_ptr(), (float*)r.data_ptr(), (float*)e.data_ptr(), (float*)y.data_ptr());
}
"""
module = load_inline("k18", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = nn.Parameter(torch.randn(4, 32) / 6)
        self.experts = nn.Parameter(torch.randn(4, 32, 32) / 6)
    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, self.router, self.experts, y)
        return y
