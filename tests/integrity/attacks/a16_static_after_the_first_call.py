# row: A16
# reference: results/relu_of_uniform.py
# runs: both
# what: fresh outputs in the first call, one static buffer in all later ones, as a CUDA graph after a warm-up
# base: own_kernel.py

CUDA = MACROS + r"""
__global__ void relu(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] > 0.f ? x[i] * 2.f : 0.f;
}
void run(TensorView x, TensorView y) { int n = count(x); relu<<<(n + 255) / 256, 256, 0, STREAM(x)>>>(FP(x), FP(y), n); }
"""
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = None
    def forward(self, x):
        y = torch.empty_like(x) if self.kept is None or self.kept.shape != x.shape else self.kept
        module.run(x, y)
        if y is not self.kept:
            self.kept = torch.empty_like(x)
        return y
