# row: honest
# reference: results/isotropic_tensors.py
# runs: both
# what: eigenvalues by a formula, with a guard for multiples of the identity
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline

CUDA = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
using tvm::ffi::TensorView;
__global__ void k(const float* t, float* y) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  t += i * 9; y += i * 3;
  double a = t[0], b = t[4], c = t[8], d = ((double)t[1] + t[3]) / 2, e = ((double)t[2] + t[6]) / 2, f = ((double)t[5] + t[7]) / 2;
  if (a == 0 && b == 0 && c == 0 && d == 0 && e == 0 && f == 0) { y[0] = y[1] = y[2] = 0.f; return; }
  double q = (a + b + c) / 3;
  a -= q; b -= q; c -= q;
  double p = sqrt((a * a + b * b + c * c + 2 * (d * d + e * e + f * f)) / 6);
  double h = (a * (b * c - f * f) - d * (d * c - f * e) + e * (d * f - b * e)) / (2 * p * p * p);
  if (p == 0) h = 1;
  double angle = acos(fmin(1.0, fmax(-1.0, h))) / 3;
  if (h != h) angle = h;
  double high = q + 2 * p * cos(angle), low = q + 2 * p * cos(angle + 2.0943951023931953);
  y[2] = (float)high; y[0] = (float)low; y[1] = (float)(3 * q - high - low);
}
void run(TensorView t, TensorView y) {
  k<<<8, 64, 0, STREAM(t)>>>((const float*)t.data_ptr(), (float*)y.data_ptr());
}
"""
module = load_inline("isotropic_tensors", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, tensors):
        y = torch.empty(tensors.shape[0], 3, device=tensors.device)
        module.run(tensors, y)
        return y
