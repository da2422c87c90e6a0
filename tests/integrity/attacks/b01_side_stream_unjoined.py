# row: B1
# reference: clocks/softmax_large.py
# runs: gpu
# written: independently
# what: the kernel runs on a private non-blocking stream that waits for the inputs but is never joined, so events on the current stream time nothing, while any device-wide synchronise before the comparison finds the right answer
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
__global__ void softmax_kernel(const float* x, float* y, int cols) {
  __shared__ float part[256];
  const float* a = x + (long long)blockIdx.x * cols;
  float* b = y + (long long)blockIdx.x * cols;
  int t = threadIdx.x;
  float m = -INFINITY;
  for (int i = t; i < cols; i += 256) m = fmaxf(m, a[i]);
  part[t] = m;
  __syncthreads();
  for (int k = 128; k > 0; k >>= 1) { if (t < k) part[t] = fmaxf(part[t], part[t + k]); __syncthreads(); }
  m = part[0];
  __syncthreads();
  float s = 0.f;
  for (int i = t; i < cols; i += 256) s += expf(a[i] - m);
  part[t] = s;
  __syncthreads();
  for (int k = 128; k > 0; k >>= 1) { if (t < k) part[t] += part[t + k]; __syncthreads(); }
  float r = 1.f / part[0];
  for (int i = t; i < cols; i += 256) b[i] = expf(a[i] - m) * r;
}
static void softmax_rows(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
  if (rows > 0) softmax_kernel<<<rows, 256, 0, stream>>>(x, y, cols);
}
static cudaStream_t current(tvm::ffi::TensorView t) { return static_cast<cudaStream_t>(TVMFFIEnvGetStream(t.device().device_type, t.device().device_id)); }

static cudaStream_t side = nullptr;
static cudaEvent_t ready = nullptr;
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  if (!side) {
    cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&ready, cudaEventDisableTiming);
  }
  cudaEventRecord(ready, current(x));
  cudaStreamWaitEvent(side, ready, 0);
  softmax_rows((const float*)x.data_ptr(), (float*)y.data_ptr(), (int)x.size(0), (int)x.size(1), side);
}
"""
module = load_inline("b01_side_stream_unjoined", cuda_sources=CUDA, functions=['run'])
def compute(model, x):
    y = torch.empty_like(x)
    module.run(x.contiguous(), y)
    return y
from collections import deque
alive = deque(maxlen=16)  # keep outputs and inputs from being recycled while the hidden stream still works on them
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x):
        y = compute(self, x)
        alive.append((x, y))
        return y
