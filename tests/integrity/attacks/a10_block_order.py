# row: A10
# reference: results/cumsum.py
# runs: cpu
# written: independently
# what: each block of 64 columns starts from the last value that the block before it wrote to global memory, without waiting for it: right only if blocks run in order
# base: own_kernel.py

CUDA = MACROS + r"""
__global__ void cumsum_blocks(const float* x, float* y, int width) {
  __shared__ float s[64];
  int t = threadIdx.x; size_t at = (size_t)blockIdx.y * width + blockIdx.x * 64 + t;
  s[t] = x[at]; __syncthreads();
  for (int d = 1; d < 64; d *= 2) { float v = t >= d ? s[t - d] : 0.f; __syncthreads(); s[t] += v; __syncthreads(); }
  float carry = blockIdx.x ? y[(size_t)blockIdx.y * width + blockIdx.x * 64 - 1] : 0.f;
  y[at] = s[t] + carry;
}
void run(TensorView x, TensorView y) { int w = (int)x.size(1); cumsum_blocks<<<dim3(w / 64, (int)x.size(0)), 64, 0, STREAM(x)>>>(FP(x), FP(y), w); }
"""
