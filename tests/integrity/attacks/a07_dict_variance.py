# row: A7
# reference: results/dict_stats.py
# runs: both
# written: independently
# what: mean and the normalised rows are right, but the returned variance is the unbiased one (0.4 % off); one entry of a dict that a lazy check skips or passes at 1 %
# base: own_kernel.py

CUDA = MACROS + r"""
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

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x); mean = torch.empty(x.shape[0], device=x.device); var = torch.empty(x.shape[0], device=x.device)
        module.run(x, mean, var, y)
        return {"mean": mean, "var": var, "normal": y}
