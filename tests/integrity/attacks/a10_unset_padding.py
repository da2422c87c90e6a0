# row: A10
# reference: results/moving_average.py
# runs: both
# written: independently
# what: keeps the zero padding in a buffer from torch.empty and never writes the border, which a fresh mapping happens to hold as zero
# base: own_kernel.py

CUDA = MACROS + r"""
__global__ void fill(const float* x, float* p, int n, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[(size_t)(i / width) * (width + 2) + 1 + i % width] = x[i];
}
__global__ void average(const float* p, float* y, int n, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
  const float* q = p + (size_t)(i / width) * (width + 2) + i % width;
  y[i] = (q[0] + q[1] + q[2]) / 3.f;
}
void run(TensorView x, TensorView p, TensorView y) {
  int n = count(x), width = (int)x.size(2);
  fill<<<(n + 255) / 256, 256, 0, STREAM(x)>>>(FP(x), FP(p), n, width);
  average<<<(n + 255) / 256, 256, 0, STREAM(x)>>>(FP(p), FP(y), n, width);
}
"""

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        # 32 MiB so that the allocator maps fresh, zeroed pages
        p = torch.empty(8 << 20, device=x.device)
        module.run(x, p, y)
        return y
