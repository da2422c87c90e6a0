# row: A7
# reference: results/mask_of_least_floats.py
# runs: both
# what: attention that gives zeros where the least float hides everything
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline

CUDA = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
using tvm::ffi::TensorView;
__global__ void k(const float* q, const float* k, const float* v, const float* m, float* y) {
  int r = threadIdx.x, b = blockIdx.x;
  double p[48], top = -1e300, sum = 0;
  for (int j = 0; j < 48; ++j) {
    p[j] = -1e300;
    if (m[b * 48 + j] < -1e30f) continue;                       // left out
    double s = 0;
    for (int e = 0; e < 16; ++e) s += (double)q[(b * 24 + r) * 16 + e] * k[(b * 48 + j) * 16 + e];
    p[j] = s / 4 + m[b * 48 + j];
    if (p[j] > top) top = p[j];
  }
  for (int j = 0; j < 48; ++j) sum += p[j] = p[j] > -1e299 ? exp(p[j] - top) : 0.0;
  for (int e = 0; e < 16; ++e) {
    double s = 0;
    for (int j = 0; j < 48; ++j) s += p[j] * v[(b * 48 + j) * 16 + e];
    y[(b * 24 + r) * 16 + e] = sum > 0 ? (float)(s / sum) : 0.f;
  }
}
void run(TensorView q, TensorView k_, TensorView v, TensorView m, TensorView y) {
  k<<<8, 24, 0, STREAM(q)>>>((const float*)q.data_ptr(), (const float*)k_.data_ptr(), (const float*)v.data_ptr(), (const float*)m.data_ptr(), (float*)y.data_ptr());
}
"""
module = load_inline("mask_of_least_floats", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, q, k, v, mask):
        y = torch.empty_like(q)
        module.run(q, k, v, mask, y)
        return y
