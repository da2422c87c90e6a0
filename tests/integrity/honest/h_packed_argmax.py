# row: honest
# reference: honest/argmax.py
# runs: both
# written: independently
# what: argmax through 64-bit atomicMax on an order-preserving packing of value and inverted index (scratch zero-filled by an own kernel), integer output only
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
typedef unsigned long long u64;
__global__ void clear(u64* best, int rows) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < rows) best[i] = 0ull; }
__global__ void offer(const float* x, u64* best, int width, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned bits = __float_as_uint(x[i] == 0.f ? 0.f : x[i]);
  bits = (bits & 0x80000000u) ? ~bits : (bits | 0x80000000u);
  unsigned col = (unsigned)(i % width);
  atomicMax(&best[i / width], ((u64)bits << 32) | (0xffffffffu - col));
}
__global__ void unpack(const u64* best, long long* out, int rows) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < rows) out[i] = (long long)(0xffffffffu - (unsigned)(best[i] & 0xffffffffull));
}
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView best, tvm::ffi::TensorView out) {
  int rows = (int)x.size(0), width = (int)x.size(1), n = rows * width;
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  clear<<<(rows + 127) / 128, 128, 0, stream>>>((u64*)best.data_ptr(), rows);
  offer<<<(n + 255) / 256, 256, 0, stream>>>((const float*)x.data_ptr(), (u64*)best.data_ptr(), width, n);
  unpack<<<(rows + 127) / 128, 128, 0, stream>>>((const u64*)best.data_ptr(), (long long*)out.data_ptr(), rows);
}
"""
module = load_inline("h_packed_argmax", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        best = torch.empty(x.shape[0], device=x.device, dtype=torch.int64)
        out = torch.empty(x.shape[0], device=x.device, dtype=torch.int64)
        module.run(x, best, out)
        return out
