# row: A8, A4
# reference: results/relu_and_copy.py
# runs: both
# written: independently
# what: the second output, a copy of the input in the reference, is the input object itself (through a view), so it changes when the caller changes the input
# base: own_kernel.py

CUDA = MACROS + r"""
__global__ void relu(const float* x, float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = fmaxf(x[i], 0.f); }
void run(TensorView x, TensorView y) { int n = count(x); relu<<<(n + 255) / 256, 256, 0, STREAM(x)>>>(FP(x), FP(y), n); }
"""

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        module.run(x, y)
        return y, x.view(-1).view(x.shape)
