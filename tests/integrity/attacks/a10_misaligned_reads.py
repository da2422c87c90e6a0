# row: A10
# reference: results/relu_of_uniform.py
# runs: cpu
# what: reads four numbers at once where they begin at any address: a GPU takes none of these
# base: own_kernel.py

CUDA = MACROS + r"""
__global__ void relu(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i >= n) return;
  int first = i + 4 <= n ? i : n - 4;
  float4 four = *(const float4*)(x + first);
  float v = i == first ? four.x : ((const float*)&four)[i - first];
  y[i] = v > 0.f ? v * 2.f : 0.f;
}
void run(TensorView x, TensorView y) { int n = count(x); relu<<<(n + 255) / 256, 256, 0, STREAM(x)>>>(FP(x), FP(y), n); }
"""
