# row: A7
# reference: results/dict_stats.py
# runs: both
# written: independently
# what: mean and the normalised rows are right, but the returned variance is the unbiased one (0.4 % off); one entry of a dict that a lazy check skips or passes at 1 %
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load_inline

CUDA = r"""
#define STREAM(t) static_cast<cudaStream_t>(TVMFFIEnvGetStream((t).device().device_type, (t).device().device_id))
#define FP(t) ((float*)(t).data_ptr())
using tvm::ffi::TensorView;
static inline int count(const TensorView& t) { int64_t n = 1; for (int d = 0; d < t.ndim(); ++d) n *= t.size(d); return (int)n; }
__global__ void stats(const float* x, float* mean, float* var, float* y, int width) {
  __shared__ float part[64];
  int t = threadIdx.x; const float* row = x + (size_t)blockIdx.x * width; float s = 0.f;
  for (int j = t; j < width; j += 64) s += row[j];
  part[t] = s; __syncthreads();
  for (int k = 32; k; k >>= 1) { if (t < k) part[t] += part[t + k]; __syncthreads(); }
  float m = part[0] / width; __syncthreads();
  s = 0.f;
  for (int j = t; j < width; j += 64) s += (row[j] - m) * (row[j] - m);
  part[t] = s; __syncthreads();
  for (int k = 32; k; k >>= 1) { if (t < k) part[t] += part[t + k]; __syncthreads(); }
  float total = part[0], scale = rsqrtf(total / width + 1e-5f);
  for (int j = t; j < width; j += 64) y[(size_t)blockIdx.x * width + j] = (row[j] - m) * scale;
  if (t == 0) { mean[blockIdx.x] = m; var[blockIdx.x] = total / (width - 1); }
}
void run(TensorView x, TensorView mean, TensorView var, TensorView y) { stats<<<(int)x.size(0), 64, 0, STREAM(x)>>>(FP(x), FP(mean), FP(var), FP(y), (int)x.size(1)); }
"""
module = load_inline("a07_dict_variance", cuda_sources=CUDA, functions=["run"])
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x):
        y = torch.empty_like(x); mean = torch.empty(x.shape[0], device=x.device); var = torch.empty(x.shape[0], device=x.device)
        module.run(x, mean, var, y)
        return {"mean": mean, "var": var, "normal": y}
