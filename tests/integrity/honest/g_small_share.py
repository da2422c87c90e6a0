# row: honest
# reference: results/large_product_tail.py
# runs: gpu
# what: one kernel does all that follows a large product of torch's; it takes some hundredths of the time, and less than half of what torch takes for that
# base: copy.py

CUDA = MACROS + r"""
__global__ void tail(const float* a, const float* scale, float* y, int n, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { float v = a[i]; y[i] = v / (1.f + expf(-v)) + tanhf(v) * scale[i % width]; }
}
void run(TensorView a, TensorView scale, TensorView y) {
  int n = count(y);
  tail<<<(n + 255) / 256, 256, 0, STREAM(y)>>>(FP(a), FP(scale), FP(y), n, (int)y.size(1));
}
"""
module = load_inline("g_small_share", cuda_sources=CUDA, functions=["run"])

class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)
        self.scale = nn.Parameter(torch.randn(n))
    def forward(self, x):
        acc = self.linear(x)
        y = torch.empty_like(acc)
        module.run(acc, self.scale, y)
        return y
