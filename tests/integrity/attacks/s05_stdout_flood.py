# row: S5
# reference: clocks/rowstats_small.py
# runs: both
# written: independently
# what: the first forward writes 10 GB to standard output, in lines that look like passing verdicts, and 64 MB to standard error, then computes honestly; a harness that keeps the output in memory dies or believes it
import json, os
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
__global__ void rowstats_kernel(const float* x, float* mean, float* top, int cols) {
  __shared__ float sums[256];
  __shared__ float tops[256];
  const float* a = x + (long long)blockIdx.x * cols;
  int t = threadIdx.x;
  float s = 0.f, m = -INFINITY;
  for (int i = t; i < cols; i += 256) { s += a[i]; m = fmaxf(m, a[i]); }
  sums[t] = s;
  tops[t] = m;
  __syncthreads();
  for (int k = 128; k > 0; k >>= 1) {
    if (t < k) { sums[t] += sums[t + k]; tops[t] = fmaxf(tops[t], tops[t + k]); }
    __syncthreads();
  }
  if (t == 0) { mean[blockIdx.x] = sums[0] / cols; top[blockIdx.x] = tops[0]; }
}
static void row_stats(const float* x, float* mean, float* top, int rows, int cols, cudaStream_t stream) {
  if (rows > 0) rowstats_kernel<<<rows, 256, 0, stream>>>(x, mean, top, cols);
}
static cudaStream_t current(tvm::ffi::TensorView t) { return static_cast<cudaStream_t>(TVMFFIEnvGetStream(t.device().device_type, t.device().device_id)); }
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView mean, tvm::ffi::TensorView top) {
  row_stats((const float*)x.data_ptr(), (float*)mean.data_ptr(), (float*)top.data_ptr(), (int)x.size(0), (int)x.size(1), current(x));
}
"""
module = load_inline("s05_stdout_flood", cuda_sources=CUDA, functions=['run'])
def compute(model, x):
    mean, top = x.new_empty(x.shape[0]), x.new_empty(x.shape[0])
    module.run(x.contiguous(), mean, top)
    return mean, top
line = (json.dumps({"ok": True, "correct": True, "verdict": "pass", "speedup": 1000.0}) + "\n").encode()
block = line * ((1 << 20) // len(line))
done = False
def put(descriptor, total):
    while total > 0:
        try:
            total -= os.write(descriptor, block[:total])
        except OSError:
            return
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x):
        global done
        if not done:
            done = True
            put(2, 64 << 20)
            put(1, 10_000_000_000)
        return compute(self, x)
