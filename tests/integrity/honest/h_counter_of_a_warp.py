# row: honest
# reference: honest/ranked_positives.py
# runs: both
# what: some lanes of a warp read a counter in shared memory; after __syncwarp() one of them reads and raises it

import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
using tvm::ffi::TensorView;
__global__ void ranked(const float* x, float* y, int width) {
  __shared__ int n;
  const int lane = threadIdx.x, row = blockIdx.x;
  if (lane == 0) n = 0;
  __syncwarp();
  for (int i = lane; i - lane < width; i += 32) {
    const float v = i < width ? x[row * width + i] : 0.f;
    const unsigned votes = __ballot_sync(0xffffffffu, v > 0.f);
    const int rank = v > 0.f ? n + __popc(votes & (0xffffffffu >> (31 - lane))) : 1;
    if (i < width) y[row * width + i] = v * rank;
    __syncwarp();
    if (lane == 0) n += __popc(votes);
    __syncwarp();
  }
}
void run(TensorView x, TensorView y) {
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  ranked<<<x.size(0), 32, 0, stream>>>((const float*)x.data_ptr(), (float*)y.data_ptr(), x.size(1));
}
"""
module = load_inline("h_counter_of_a_warp", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x.contiguous(), y)
        return y
