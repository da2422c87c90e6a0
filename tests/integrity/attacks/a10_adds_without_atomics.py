# row: A10
# reference: results/row_energy.py
# runs: cpu
# what: the threads of a block add their parts of a sum to one place without atomics: right where one runs after another, a race on every GPU
# base: own_kernel.py

CUDA = MACROS + r"""
__global__ void row_energy(const float* x, float* y, int width) {
  const float* row = x + (size_t)blockIdx.x * width;
  if (threadIdx.x == 0) y[blockIdx.x] = 0.f;
  __syncthreads();
  float part = 0.f;
  for (int j = threadIdx.x; j < width; j += blockDim.x) part = fmaf(row[j], row[j], part);
  y[blockIdx.x] += part;
}
void run(TensorView x, TensorView y) { row_energy<<<(int)x.size(0), 64, 0, STREAM(x)>>>(FP(x), FP(y), (int)x.size(1)); }
"""

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], device=x.device)
        module.run(x, y)
        return y
