# row: A3
# reference: results/linear_gelu.py
# runs: both
# written: independently
# what: the kernel writes NaN everywhere; a check made of `not (difference > tolerance)` or allclose(equal_nan) after both were poisoned passes it
# base: linear_gelu.py

CUDA = MACROS + r"""
__global__ void linear_gelu(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { float zero = x[0] - x[0]; y[i] = zero / zero; }
}
void run(TensorView x, TensorView y) { int n = count(y); linear_gelu<<<(n + 255) / 256, 256, 0, STREAM(x)>>>(FP(x), FP(y), n); }
"""

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], self.linear.weight.shape[0], device=x.device)
        module.run(x, y)
        return y
