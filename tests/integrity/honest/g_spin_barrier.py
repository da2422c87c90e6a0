# row: honest
# reference: honest/gpu_global_norm.py
# runs: gpu
# written: independently
# what: one persistent kernel with an own spin barrier through atomics: partial sums, barrier, every block adds the partials in order and scales its share; a monotonic ticket counter is kept between calls
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
__device__ __forceinline__ void grid_barrier(unsigned* ticket) {     // at most one block per multiprocessor is launched, so all are resident
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    unsigned mine = atomicAdd(ticket, 1u);
    unsigned target = mine / gridDim.x * gridDim.x + gridDim.x;
    while ((int)(*(volatile unsigned*)ticket - target) < 0) __nanosleep(40);
    __threadfence();
  }
  __syncthreads();
}
__device__ float block_sum(float v) {
  __shared__ float part[32];
  for (int d = 16; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffffu, v, d);
  __syncthreads();
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
  __syncthreads();
  v = threadIdx.x % 32 < blockDim.x / 32 ? part[threadIdx.x % 32] : 0.f;
  for (int d = 16; d > 0; d >>= 1) v += __shfl_xor_sync(0xffffffffu, v, d);
  return v;
}
__global__ void __launch_bounds__(1024) normalise(const float4* x, float4* y, float* part, unsigned* ticket, int quads) {
  float s = 0.f;
  int step = gridDim.x * blockDim.x, first = blockIdx.x * blockDim.x + threadIdx.x;
  for (int i = first; i < quads; i += step) { float4 v = x[i]; s += (v.x * v.x + v.y * v.y) + (v.z * v.z + v.w * v.w); }
  s = block_sum(s);
  if (threadIdx.x == 0) __stcg(part + blockIdx.x, s);
  grid_barrier(ticket);
  s = 0.f;
  for (int i = threadIdx.x; i < gridDim.x; i += blockDim.x) s += __ldcg(part + i);
  float r = sqrtf(block_sum(s)) + 1e-6f;
  for (int i = first; i < quads; i += step) { float4 v = x[i]; y[i] = make_float4(v.x / r, v.y / r, v.z / r, v.w / r); }
}
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView part, tvm::ffi::TensorView ticket) {
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  normalise<<<(int)part.size(0), 1024, 0, stream>>>((const float4*)x.data_ptr(), (float4*)y.data_ptr(), (float*)part.data_ptr(), (unsigned*)ticket.data_ptr(), (int)(x.numel() / 4));
}
"""
module = load_inline("g_spin_barrier", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self._state = None

    def forward(self, x):
        assert x.is_contiguous() and x.numel() % 4 == 0
        if self._state is None or self._state[0].device != x.device:
            sms = torch.cuda.get_device_properties(x.device).multi_processor_count
            # the counter wraps consistently only for a power of two of blocks
            self._state = torch.empty(1 << (sms.bit_length() - 1), device=x.device), torch.zeros(1, dtype=torch.int32, device=x.device)
        y = torch.empty_like(x)
        module.run(x, y, *self._state)
        return y
