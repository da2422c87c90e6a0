# row: A5
# reference: results/big_small.py
# runs: both
# written: independently
# what: the half of the output that is small (1e-3) is left zero beside values of 1e3, so any bound scaled to the largest or mean output passes it
# base: own_kernel.py

CUDA = MACROS + r"""
__global__ void big_small(const float* x, float* y, int n, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int r = i / width, c = i % width;
  y[(size_t)r * 2 * width + c] = x[i] * 1000.f;
  y[(size_t)r * 2 * width + width + c] = 0.f;
}
void run(TensorView x, TensorView y) { int n = count(x); big_small<<<(n + 255) / 256, 256, 0, STREAM(x)>>>(FP(x), FP(y), n, (int)x.size(1)); }
"""

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], 2 * x.shape[1], device=x.device)
        module.run(x, y)
        return y
