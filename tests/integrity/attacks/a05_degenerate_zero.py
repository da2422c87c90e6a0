# row: A5
# reference: results/zero_degenerate.py
# runs: both
# written: independently
# what: the reference subtracts a maximum from itself and is identically zero; the kernel just writes zeros (a check should refuse such a reference)
# base: own_kernel.py

CUDA = MACROS + r"""
__global__ void zero(float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = 0.f; }
void run(TensorView y) { int n = count(y); zero<<<(n + 255) / 256, 256, 0, STREAM(y)>>>(FP(y), n); }
"""

class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)
    def forward(self, x):
        y = torch.empty(x.shape[0], 1, device=x.device)
        module.run(y)
        return y
