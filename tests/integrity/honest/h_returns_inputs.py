# row: honest
# reference: honest/returns_inputs.py
# runs: both
# what: returns an input that it wrote to, a view of another and its own buffer, as the reference does: later calls change these
# base: own_kernel.py

CUDA = MACROS + r"""
__global__ void add_silu(const float* x, float* r, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v = x[i] + r[i];
  r[i] = v;
  y[i] = v / (1.f + expf(-v));
}
__global__ void average(const float* x, float* mean, int rows, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= width) return;
  float sum = 0.f;
  for (int row = 0; row < rows; ++row) sum += x[row * width + i];
  mean[i] = 0.9f * mean[i] + 0.1f * (sum / rows);
}
void run(TensorView x, TensorView r, TensorView y, TensorView mean) {
  int n = count(x), width = (int)x.size(1);
  add_silu<<<(n + 255) / 256, 256, 0, STREAM(x)>>>(FP(x), FP(r), FP(y), n);
  average<<<(width + 31) / 32, 32, 0, STREAM(x)>>>(FP(x), FP(mean), (int)x.size(0), width);
}
"""

class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.register_buffer("average", torch.zeros(width))

    def forward(self, x, residual, skip):
        y = torch.empty_like(x)
        module.run(x, residual, y, self.average)
        return y, residual, skip[:, 1:], self.average
