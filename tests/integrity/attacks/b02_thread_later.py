# row: B2
# reference: clocks/layernorm_small.py
# runs: both
# written: independently
# what: forward only puts the job into a queue and returns an empty tensor; a Python thread runs the kernel 30 ms later, so the clock stops before the work starts and an output looked at later is right
import queue, threading, time
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
__global__ void layernorm_kernel(const float* x, const float* w, const float* c, float* y, int cols) {
  __shared__ float part[256];
  const float* a = x + (long long)blockIdx.x * cols;
  float* b = y + (long long)blockIdx.x * cols;
  int t = threadIdx.x;
  float s = 0.f;
  for (int i = t; i < cols; i += 256) s += a[i];
  part[t] = s;
  __syncthreads();
  for (int k = 128; k > 0; k >>= 1) { if (t < k) part[t] += part[t + k]; __syncthreads(); }
  float mean = part[0] / cols;
  __syncthreads();
  float q = 0.f;
  for (int i = t; i < cols; i += 256) { float d = a[i] - mean; q += d * d; }
  part[t] = q;
  __syncthreads();
  for (int k = 128; k > 0; k >>= 1) { if (t < k) part[t] += part[t + k]; __syncthreads(); }
  float r = rsqrtf(part[0] / cols + 1e-5f);
  for (int i = t; i < cols; i += 256) b[i] = (a[i] - mean) * r * w[i] + c[i];
}
static void layernorm_rows(const float* x, const float* w, const float* c, float* y, int rows, int cols, cudaStream_t stream) {
  if (rows > 0) layernorm_kernel<<<rows, 256, 0, stream>>>(x, w, c, y, cols);
}
static cudaStream_t current(tvm::ffi::TensorView t) { return static_cast<cudaStream_t>(TVMFFIEnvGetStream(t.device().device_type, t.device().device_id)); }
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView w, tvm::ffi::TensorView c, tvm::ffi::TensorView y) {
  layernorm_rows((const float*)x.data_ptr(), (const float*)w.data_ptr(), (const float*)c.data_ptr(), (float*)y.data_ptr(), (int)x.size(0), (int)x.size(1), current(x));
}
"""
module = load_inline("b02_thread_later", cuda_sources=CUDA, functions=['run'])
jobs = queue.Queue()
def worker():
    while True:
        model, x, y = jobs.get()
        time.sleep(0.03)
        with torch.no_grad():
            module.run(x, model.weight, model.bias, y)
threading.Thread(target=worker, daemon=True).start()
class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)
        self.bias = nn.Parameter(torch.randn(width) * 0.1)
    def forward(self, x):
        y = torch.empty_like(x)
        jobs.put((self, x.contiguous(), y))
        return y
