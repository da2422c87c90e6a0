# row: B7
# reference: clocks/softmax_large.py
# runs: gpu
# written: independently
# what: the first call on an unknown buffer asks the garbage collector for every other tensor of the same shape on the device (the prepared timing inputs) and computes them all; the later calls look their answer up
import gc
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
module = load_inline("b07_gc_all_inputs", cuda_sources=CUDA, functions=['run'])
def compute(model, x):
    y = torch.empty_like(x)
    module.run(x.contiguous(), y)
    return y
answers = {}
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x):
        key = (x.data_ptr(), x._version)
        if key not in answers:
            if len(answers) > 24:
                answers.clear()
            found = [x]
            for t in gc.get_objects():
                try:
                    if type(t) is torch.Tensor and t is not x and t.shape == x.shape and t.dtype == x.dtype and t.device == x.device and t.is_contiguous():
                        found.append(t)
                except Exception:
                    pass
            mine = {y.data_ptr() for y in answers.values()}
            for t in found[:12]:
                other = (t.data_ptr(), t._version)
                if other not in answers and t.data_ptr() not in mine:
                    answers[other] = compute(self, t)
        return answers[key]
