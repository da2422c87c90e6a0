# row: A10
# reference: results/moving_average.py
# runs: both
# written: independently
# what: reads x[-1] and x[n] beyond the tensor's two ends and multiplies them by zero, so that only NaN beyond the end or a memory checker shows it
# base: own_kernel.py

CUDA = MACROS + r"""
__global__ void average(const float* x, float* y, int n, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
  float left = i % width == 0 ? 0.f : 1.f, right = i % width == width - 1 ? 0.f : 1.f;
  y[i] = (left * x[i - 1] + x[i] + right * x[i + 1]) / 3.f;
}
void run(TensorView x, TensorView y) { int n = count(x); average<<<(n + 255) / 256, 256, 0, STREAM(x)>>>(FP(x), FP(y), n, (int)x.size(2)); }
"""
