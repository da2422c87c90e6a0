# row: honest
# reference: honest/mixed_integers.py
# runs: both
# what: integer outputs over the whole range of 64 bits, of which a float64 holds no more than 53; each must be right to the last bit
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
using tvm::ffi::TensorView;
__global__ void mix(const long long* keys, long long* out, int* high, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned long long v = (unsigned long long)keys[i] * 6364136223846793005ull + 1442695040888963407ull;
  v = (v ^ (unsigned long long)((long long)v >> 29)) * 3202034522624059733ull;
  out[i] = (long long)v;
  high[i] = (int)((long long)v >> 40);
}
void run(TensorView keys, TensorView out, TensorView high) {
  int n = (int)(keys.size(0) * keys.size(1));
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(keys.device().device_type, keys.device().device_id));
  mix<<<(n + 127) / 128, 128, 0, stream>>>((const long long*)keys.data_ptr(), (long long*)out.data_ptr(), (int*)high.data_ptr(), n);
}
"""
module = load_inline("d_large_integers", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, keys):
        out, high = torch.empty_like(keys), torch.empty(keys.shape, dtype=torch.int32, device=keys.device)
        module.run(keys.contiguous(), out, high)
        return out, high
