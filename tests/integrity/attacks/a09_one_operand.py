# row: A9
# reference: results/matmul.py
# runs: both
# written: independently
# what: only the second factor is rounded, to fp16's eleven bits (the way a quantised weight would be); errors of 2e-4 of the output
# base: matmul.py

CUDA = MACROS + r"""
__device__ __forceinline__ float keep(float v, int drop) {      // round to nearest even at bit `drop`
  unsigned u = __float_as_uint(v); unsigned half = (1u << (drop - 1)) - 1u + ((u >> drop) & 1u);
  return __uint_as_float((u + half) & ~((1u << drop) - 1u));
}
__global__ void matmul(const float* a, const float* b, float* c, int m, int n, int k) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= m * n) return;
  int r = i / n, col = i % n; float acc = 0.f;
  for (int j = 0; j < k; ++j) {
    float u = a[(size_t)r * k + j], v = b[(size_t)j * n + col];
    acc = fmaf(u, keep(v, 13), acc);
  }
  c[i] = acc;
}
void run(TensorView a, TensorView b, TensorView c) {
  int m = (int)a.size(0), k = (int)a.size(1), n = (int)b.size(1);
  matmul<<<(m * n + 255) / 256, 256, 0, STREAM(a)>>>(FP(a), FP(b), FP(c), m, n, k);
}
"""
