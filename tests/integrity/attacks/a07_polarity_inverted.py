# row: A7
# reference: results/polarity_inverted.py
# runs: both
# what: silence where both channels are silent, not where their sum is
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline

CUDA = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
using tvm::ffi::TensorView;
__global__ void k(const float* l, const float* r, float* y) {
  int i = threadIdx.x, b = blockIdx.x;
  l += b * 1024; r += b * 1024; y += b * 1024;
  double mid = 0, loud = 0;
  for (int j = 0; j < 1024; ++j) {
    double m = ((double)l[j] + r[j]) / 2;
    mid += m * m; loud += fabs((double)l[j]) + fabs((double)r[j]);
  }
  float scale = loud / 2048 < 1e-8 ? 0.f : (float)(1 / sqrt(mid / 1024));   // silence
  for (int j = i; j < 1024; j += 64) y[j] = (l[j] + r[j]) / 2 * scale;
}
void run(TensorView l, TensorView r, TensorView y) {
  k<<<4, 64, 0, STREAM(l)>>>((const float*)l.data_ptr(), (const float*)r.data_ptr(), (float*)y.data_ptr());
}
"""
module = load_inline("polarity_inverted", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, left, right):
        y = torch.empty_like(left)
        module.run(left, right, y)
        return y
