# row: A5, A7
# reference: results/topk.py
# runs: both
# written: independently
# what: the four largest values are right but the indices are 0..3 in every row (a check of the first or of the floating outputs only passes it)
# base: own_kernel.py

CUDA = MACROS + r"""
__global__ void topk_rows(const float* x, float* v, int64_t* at, int rows, int width) {
  int r = blockIdx.x * blockDim.x + threadIdx.x; if (r >= rows) return;
  float best[4] = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
  for (int j = 0; j < width; ++j) {
    float u = x[(size_t)r * width + j];
    for (int k = 0; k < 4; ++k) if (u > best[k]) { float o = best[k]; best[k] = u; u = o; }
  }
  for (int k = 0; k < 4; ++k) { v[r * 4 + k] = best[k]; at[r * 4 + k] = k; }
}
void run(TensorView x, TensorView v, TensorView at) { int rows = (int)x.size(0); topk_rows<<<(rows + 63) / 64, 64, 0, STREAM(x)>>>(FP(x), FP(v), (int64_t*)at.data_ptr(), rows, (int)x.size(1)); }
"""

class ModelNew(nn.Module):
    def forward(self, x):
        v = torch.empty(x.shape[0], 4, device=x.device); at = torch.empty(x.shape[0], 4, dtype=torch.int64, device=x.device)
        module.run(x, v, at)
        return v, at
