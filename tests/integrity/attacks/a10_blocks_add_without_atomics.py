# row: A10
# reference: results/row_energy.py
# runs: cpu
# what: four blocks add their parts of a row's sum to one place without atomics, after a kernel that writes zeros: right where one runs after another
# base: own_kernel.py

CUDA = MACROS + r"""
__global__ void zero(float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = 0.f; }
__global__ void row_energy(const float* x, float* y, int width) {
  __shared__ float parts[64];
  const float* row = x + (size_t)blockIdx.x * width + blockIdx.y * (width / 4);
  float part = 0.f;
  for (int j = threadIdx.x; j < width / 4; j += 64) part = fmaf(row[j], row[j], part);
  parts[threadIdx.x] = part;
  __syncthreads();
  for (int half = 32; half > 0; half /= 2) {
    if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) y[blockIdx.x] += parts[0];
}
void run(TensorView x, TensorView y) {
  int rows = (int)x.size(0);
  zero<<<(rows + 63) / 64, 64, 0, STREAM(x)>>>(FP(y), rows);
  row_energy<<<dim3(rows, 4), 64, 0, STREAM(x)>>>(FP(x), FP(y), (int)x.size(1));
}
"""

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], device=x.device)
        module.run(x, y)
        return y
