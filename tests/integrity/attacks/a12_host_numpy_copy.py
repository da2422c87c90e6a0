# row: A12
# reference: results/linear_gelu.py
# runs: both
# what: torch copies the inputs into arrays of numpy, which computes; a copy kernel hands the result out
import numpy as np
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline

CUDA = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
#define FP(t) ((float*)(t).data_ptr())
using tvm::ffi::TensorView;
__global__ void copy(const float* from, float* to, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) to[i] = from[i];
}
void run(TensorView from, TensorView to) {
  const int n = (int)(to.size(0) * to.size(1));
  copy<<<(n + 255) / 256, 256, 0, STREAM(to)>>>(FP(from), FP(to), n);
}
"""
module = load_inline("a12_host_numpy_copy", cuda_sources=CUDA, functions=["run"])


def landed(tensor):
    place = np.empty(tuple(tensor.shape), dtype=np.float32)
    torch.from_numpy(place).copy_(tensor)
    return place


def product(x, w, b):
    acc = x @ w.T + b
    t = 1.0 / (1.0 + 0.3275911 * np.abs(acc) * 0.70710678)
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    erf = np.sign(acc) * (1.0 - poly * np.exp(-0.5 * acc * acc))
    return (0.5 * acc * (1.0 + erf)).astype(np.float32)


class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)

    def forward(self, x):
        w, b = self.linear.weight, self.linear.bias
        y = torch.empty(x.shape[0], w.shape[0], device=x.device)
        module.run(torch.from_numpy(product(*(landed(t.detach()) for t in (x, w, b)))).to(x.device), y)
        return y
