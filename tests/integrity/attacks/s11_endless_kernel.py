# row: S11
# reference: clocks/layernorm_small.py
# runs: both
# written: independently
# what: the third call launches a kernel that never ends (it waits for a flag that nobody sets), after two right answers; a judge without a time limit on the device waits for ever
# base: layer_norm.py

CUDA = KERNEL + CURRENT + RUN + r"""
__global__ void endless_kernel(volatile int* flag) {
  while (*flag == 0) { }
  *flag = 2;
}
void endless(tvm::ffi::TensorView flag) {
  endless_kernel<<<1, 1, 0, current(flag)>>>((volatile int*)flag.data_ptr());
}
"""
module = load_inline("s11_endless_kernel", cuda_sources=CUDA, functions=['run', 'endless'])

class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)
        self.bias = nn.Parameter(torch.randn(width) * 0.1)
        self.calls = 0
    def forward(self, x):
        self.calls += 1
        y = compute(self, x)
        if self.calls >= 3:
            module.endless(x.new_zeros(1, dtype=torch.int32))
        return y
