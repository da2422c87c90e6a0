# row: A10
# reference: results/relu_of_uniform.py
# runs: cpu
# what: reads 64 numbers behind x; what is there changes a result only where it is between 1000 and 2000, which poison is not
# base: own_kernel.py

CUDA = MACROS + r"""
__global__ void relu(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
  float behind = x[i + 64];
  y[i] = behind > 1e3f && behind < 2e3f ? 0.f : (x[i] > 0.f ? x[i] * 2.f : 0.f);
}
void run(TensorView x, TensorView y) { int n = count(x); relu<<<(n + 255) / 256, 256, 0, STREAM(x)>>>(FP(x), FP(y), n); }
"""
