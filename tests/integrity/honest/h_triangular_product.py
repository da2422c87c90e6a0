# row: honest
# reference: honest/triangular_product.py
# runs: both
# what: a product of triangular matrices that reads no element above the diagonals
# base: matmul.py

CUDA = MACROS + r"""
__global__ void triangular(const float* a, const float* b, float* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n * n) return;
  int row = i / n, column = i % n;
  float acc = 0.f;
  for (int j = column; j <= row; ++j) acc = fmaf(a[row * n + j], b[j * n + column], acc);
  c[i] = acc;
}
void run(TensorView a, TensorView b, TensorView c) {
  int n = (int)a.size(0);
  triangular<<<(n * n + 255) / 256, 256, 0, STREAM(a)>>>(FP(a), FP(b), FP(c), n);
}
"""
