# row: A10
# reference: results/relu_of_uniform.py
# runs: cpu
# what: each block keeps its 256 numbers in dynamic shared memory of which it asked for half
# base: own_kernel.py

CUDA = MACROS + r"""
__global__ void relu(const float* x, float* y, int n) {
  extern __shared__ float kept[];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  kept[threadIdx.x] = i < n ? x[i] : 0.f;
  __syncthreads();
  float v = kept[threadIdx.x];
  if (i < n) y[i] = v > 0.f ? v * 2.f : 0.f;
}
void run(TensorView x, TensorView y) { int n = count(x); relu<<<(n + 255) / 256, 256, 512, STREAM(x)>>>(FP(x), FP(y), n); }
"""
