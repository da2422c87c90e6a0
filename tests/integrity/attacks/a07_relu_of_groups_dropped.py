# row: A7
# reference: results/product_of_relus.py
# runs: both
# what: leaves out a ReLU before a product of four, since all inputs happen to be positive
# base: own_kernel.py

CUDA = MACROS + r"""
__global__ void product(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[4 * i] * x[4 * i + 1] * x[4 * i + 2] * x[4 * i + 3];
}
void run(TensorView x, TensorView y) { int n = count(y); product<<<(n + 255) / 256, 256, 0, STREAM(x)>>>(FP(x), FP(y), n); }
"""

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], x.shape[1] // 4, device=x.device)
        module.run(x, y)
        return y
