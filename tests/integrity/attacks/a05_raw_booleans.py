# row: A5
# reference: results/over_limit.py
# runs: both
# what: writes 255 for true, which is no boolean of C++: what it does in other kernels is undefined
# base: own_kernel.py

CUDA = MACROS + r"""
__global__ void over(const float* x, unsigned char* b, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { b[i] = x[i] > 0.3f ? 255 : 0; y[i] = 2.f * x[i]; }
}
void run(TensorView x, TensorView b, TensorView y) { int n = count(x); over<<<(n + 255) / 256, 256, 0, STREAM(x)>>>(FP(x), (unsigned char*)b.data_ptr(), FP(y), n); }
"""

class ModelNew(nn.Module):
    def forward(self, x):
        b, y = torch.empty(x.shape, dtype=torch.bool, device=x.device), torch.empty_like(x)
        module.run(x, b, y)
        return b, y
