# row: honest
# reference: results/gru_forgets.py
# runs: both
# what: a GRU over all steps in one kernel, with gates that a test may keep open
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
MACROS = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
#define FP(t) ((float*)(t).data_ptr())
using tvm::ffi::TensorView;
static inline int count(const TensorView& t) { int64_t n = 1; for (int d = 0; d < t.ndim(); ++d) n *= t.size(d); return (int)n; }
"""
CUDA = MACROS + r"""
__global__ void k(const float* x, const float* wi, const float* wh, const float* bi, const float* bh, float* y, int B, int T) {
  int b = blockIdx.x * blockDim.x + threadIdx.x;
  if (b >= B) return;
  float h[16], n[16];
  for (int j = 0; j < 16; ++j) h[j] = 0.f;
  for (int t = 0; t < T; ++t) {
    const float* v = x + ((size_t)b * T + t) * 8;
    for (int j = 0; j < 16; ++j) {
      float gi[3], gh[3];
      for (int g = 0; g < 3; ++g) {
        int o = g * 16 + j; float s = 0.f, u = 0.f;
        for (int i = 0; i < 8; ++i) s = fmaf(v[i], wi[o * 8 + i], s);
        for (int i = 0; i < 16; ++i) u = fmaf(h[i], wh[o * 16 + i], u);
        gi[g] = s + bi[o]; gh[g] = u + bh[o];
      }
      float r = 1.f / (1.f + expf(-(gi[0] + gh[0]))), z = 1.f / (1.f + expf(-(gi[1] + gh[1])));
      float c = tanhf(gi[2] + r * gh[2]);
      n[j] = (1.f - z) * c + z * h[j];
    }
    for (int j = 0; j < 16; ++j) h[j] = n[j];
  }
  for (int j = 0; j < 16; ++j) y[b * 16 + j] = h[j];
}
void run(TensorView x, TensorView wi, TensorView wh, TensorView bi, TensorView bh, TensorView y) { k<<<1, 32, 0, STREAM(x)>>>(FP(x), FP(wi), FP(wh), FP(bi), FP(bh), FP(y), x.size(0), x.size(1)); }
"""
module = load_inline("k06", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(8, 16, batch_first=True)
    def forward(self, x):
        y = torch.empty(x.shape[0], 16, device=x.device)
        g = self.gru
        module.run(x.contiguous(), g.weight_ih_l0, g.weight_hh_l0, g.bias_ih_l0, g.bias_hh_l0, y)
        return y
