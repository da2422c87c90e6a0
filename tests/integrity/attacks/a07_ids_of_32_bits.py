# row: A7
# reference: results/ids_of_32_bits.py
# runs: both
# what: the upper half of 64-bit ids is not read
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline

CUDA = r"""
using tvm::ffi::TensorView;

__global__ void k(const int* ids, const float* t, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
  long long h = ((long long)ids[2 * i] * 31 + 7) % 97; y[i] = t[h < 0 ? h + 97 : h];
}
void run(TensorView ids, TensorView t, TensorView y) {
  cudaStream_t s = static_cast<cudaStream_t>(TVMFFIEnvGetStream(ids.device().device_type, ids.device().device_id));
  int n = 64 * 64; k<<<n / 256, 256, 0, s>>>((int*)ids.data_ptr(), (float*)t.data_ptr(), (float*)y.data_ptr(), n);
}
"""
module = load_inline("k23", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(97))
    def forward(self, ids):
        y = torch.empty(ids.shape, device=ids.device)
        module.run(ids, self.table, y)
        return y
