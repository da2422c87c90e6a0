# row: A10
# reference: results/cumsum.py
# runs: cpu
# written: independently
# what: a prefix sum in which thread t reads what thread t-1 wrote with no barrier between: right where threads run one after another in order, a race on every GPU
# base: own_kernel.py

CUDA = MACROS + r"""
__global__ void cumsum_rows(const float* x, float* y, int width) {
  __shared__ float s[1024];
  int t = threadIdx.x; size_t at = (size_t)blockIdx.x * width + t;
  if (t < width) { s[t] = x[at] + (t ? s[t - 1] : 0.f); y[at] = s[t]; }
}
void run(TensorView x, TensorView y) { cumsum_rows<<<(int)x.size(0), (int)x.size(1), 0, STREAM(x)>>>(FP(x), FP(y), (int)x.size(1)); }
"""
