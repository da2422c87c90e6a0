# row: B23
# reference: results/relu_of_uniform.py
# runs: both
# what: a hook of its own runs in all modules of the process from the first call on
# base: own_kernel.py

CUDA = MACROS + r"""
__global__ void relu(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] > 0.f ? x[i] * 2.f : 0.f;
}
void run(TensorView x, TensorView y) { int n = count(x); relu<<<(n + 255) / 256, 256, 0, STREAM(x)>>>(FP(x), FP(y), n); }
"""
def double(part, given, result):
    return result

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.hooked = False
    def forward(self, x):
        if not self.hooked:
            self.hooked = torch.nn.modules.module.register_module_forward_hook(double)
        y = torch.empty_like(x)
        module.run(x, y)
        return y
