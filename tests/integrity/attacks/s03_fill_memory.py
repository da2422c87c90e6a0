# row: S3
# reference: clocks/layernorm_small.py
# runs: both
# written: independently
# what: the first forward fills host memory with up to 12 GB of non-zero pages (and, on a GPU, device memory until 1 GB is left), holds it for 10 s, then computes honestly
import time
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
module = load_inline("s03_fill_memory", cuda_sources=CUDA, functions=['run'])
def compute(model, x):
    y = torch.empty_like(x)
    module.run(x.contiguous(), model.weight, model.bias, y)
    return y
done = False
def fill():
    hold = []
    try:
        for _ in range(48):
            hold.append(bytearray(b"\x5a" * (1 << 20)) * 256)
    except MemoryError:
        pass
    try:
        free, _ = torch.cuda.mem_get_info()
        for _ in range(int(max(0, free - (1 << 30)) >> 30)):
            hold.append(torch.ones(1 << 28, device="cuda") if torch.version.cuda else None)
    except Exception:
        pass
    time.sleep(10)
class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)
        self.bias = nn.Parameter(torch.randn(width) * 0.1)
    def forward(self, x):
        global done
        if not done:
            done = True
            fill()
        return compute(self, x)
