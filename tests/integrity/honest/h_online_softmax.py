# row: honest
# reference: honest/softmax_rows.py
# runs: both
# written: independently
# what: online softmax in one sweep, running maximum and sum per thread merged by shuffles; templated kernel in a namespace with dynamic shared memory for the row
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
#include <cuda_runtime.h>
namespace rows { namespace detail {
struct State { float m, s; };
__device__ __forceinline__ State merge(State a, State b) {
  float m = fmaxf(a.m, b.m);
  if (m == -INFINITY) return State{m, 0.f};
  return State{m, a.s * expf(a.m - m) + b.s * expf(b.m - m)};
}
template <int WARPS>
__global__ void softmax(const float* x, float* y, int width) {
  extern __shared__ float row[];
  __shared__ float ms[WARPS], ss[WARPS];
  const float* in = x + (size_t)blockIdx.x * width;
  State st{-INFINITY, 0.f};
  for (int i = threadIdx.x; i < width; i += WARPS * 32) { float v = in[i]; row[i] = v; st = merge(st, State{v, 1.f}); }
  for (int d = 16; d > 0; d >>= 1) {
    State o{__shfl_xor_sync(0xffffffffu, st.m, d), __shfl_xor_sync(0xffffffffu, st.s, d)};
    st = merge(st, o);
  }
  if (threadIdx.x % 32 == 0) { ms[threadIdx.x / 32] = st.m; ss[threadIdx.x / 32] = st.s; }
  __syncthreads();
  st = State{ms[0], ss[0]};
#pragma unroll
  for (int k = 1; k < WARPS; ++k) st = merge(st, State{ms[k], ss[k]});
  float inv = 1.f / st.s;
  for (int i = threadIdx.x; i < width; i += WARPS * 32) y[(size_t)blockIdx.x * width + i] = expf(row[i] - st.m) * inv;
}
} }
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  int n = (int)x.size(0), width = (int)x.size(1);
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  size_t bytes = width * sizeof(float);
  if (width <= 128) rows::detail::softmax<1><<<n, 32, bytes, stream>>>((const float*)x.data_ptr(), (float*)y.data_ptr(), width);
  else rows::detail::softmax<4><<<n, 128, bytes, stream>>>((const float*)x.data_ptr(), (float*)y.data_ptr(), width);
}
"""
module = load_inline("h_online_softmax", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, y)
        return y
