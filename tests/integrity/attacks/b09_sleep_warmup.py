# row: B9
# reference: clocks/softmax_large.py
# runs: gpu
# written: independently
# what: sleeps 1.5 s in each of the first four calls so that a harness with a time budget settles for very few repeats; afterwards every second call on the same buffer returns the last answer, so a median of two or three is that of a look-up
import time
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
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  softmax_rows((const float*)x.data_ptr(), (float*)y.data_ptr(), (int)x.size(0), (int)x.size(1), current(x));
}
"""
module = load_inline("b09_sleep_warmup", cuda_sources=CUDA, functions=['run'])
def compute(model, x):
    y = torch.empty_like(x)
    module.run(x.contiguous(), y)
    return y
calls = 0
last = {}
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x):
        global calls
        calls += 1
        if calls <= 4:
            torch.cuda.synchronize()
            time.sleep(1.5)
            return compute(self, x)
        key = (x.data_ptr(), x._version)
        if calls % 2 and key in last:
            return last[key]
        last.clear()
        y = last[key] = compute(self, x)
        return y
