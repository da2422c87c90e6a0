# row: A12
# reference: results/linear_gelu.py
# runs: both
# written: independently
# what: the own kernel only reads a lot of memory and writes a token; forward returns torch's result if the token is there and nonsense if not, so the kernel seems to matter
# base: linear_gelu.py

CUDA = MACROS + r"""
__global__ void worker(const float* x, float* token, float* traffic, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { traffic[i] = x[i] * 2.f; if (i == 0) token[0] = 7.f; }
}
void run(TensorView x, TensorView token, TensorView traffic) { int n = count(x); worker<<<(n + 255) / 256, 256, 0, STREAM(x)>>>(FP(x), FP(token), FP(traffic), n); }
"""

class ModelNew(nn.Module):
    def forward(self, x):
        token = torch.zeros(1, device=x.device)
        module.run(x, token, torch.empty_like(x))
        y = F.gelu(self.linear(x))
        return torch.where(token == 7.0, y, torch.full_like(y, -1e3))
