# row: A7
# reference: results/layer_norm.py
# runs: both
# written: independently
# what: normalises with the row's own mean but with the variance of the row two before (the first two rows with their own), saving half the passes; off by a few per cent for rows of one distribution
# base: own_kernel.py

CUDA = MACROS + r"""
__global__ void layer_norm(const float* x, const float* w, const float* b, float* y, int width) {
  __shared__ float part[128];
  int r = blockIdx.x, v = r < 2 ? r : (r & 1 ? r : r - 2);           // every second row borrows its neighbour's variance
  const float* row = x + (size_t)r * width; const float* other = x + (size_t)v * width;
  float s = 0.f;
  for (int j = threadIdx.x; j < width; j += 128) s += row[j];
  part[threadIdx.x] = s; __syncthreads();
  for (int k = 64; k; k >>= 1) { if (threadIdx.x < k) part[threadIdx.x] += part[threadIdx.x + k]; __syncthreads(); }
  float mean = part[0] / width; __syncthreads();
  s = 0.f; float t = 0.f;
  for (int j = threadIdx.x; j < width; j += 128) { s += other[j]; t += other[j] * other[j]; }
  part[threadIdx.x] = s; __syncthreads();
  for (int k = 64; k; k >>= 1) { if (threadIdx.x < k) part[threadIdx.x] += part[threadIdx.x + k]; __syncthreads(); }
  float m2 = part[0] / width; __syncthreads();
  part[threadIdx.x] = t; __syncthreads();
  for (int k = 64; k; k >>= 1) { if (threadIdx.x < k) part[threadIdx.x] += part[threadIdx.x + k]; __syncthreads(); }
  float scale = rsqrtf(part[0] / width - m2 * m2 + 1e-5f);
  for (int j = threadIdx.x; j < width; j += 128) y[(size_t)r * width + j] = (row[j] - mean) * scale * w[j] + b[j];
}
void run(TensorView x, TensorView w, TensorView b, TensorView y) { layer_norm<<<(int)x.size(0), 128, 0, STREAM(x)>>>(FP(x), FP(w), FP(b), FP(y), (int)x.size(1)); }
"""

class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, self.norm.weight, self.norm.bias, y)
        return y
