# row: honest
# reference: honest/batch_norm_train.py
# runs: both
# written: independently
# what: batch norm in training mode: the kernel writes the module's running statistics and the batch counter in place as torch does, state really changes between calls
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
__global__ void statistics(const float* x, float* mean, float* inverse, float* running_mean, float* running_var, long long* batches,
                           int b, int c, int hw, float eps, float momentum) {
  __shared__ float p[128], q[128];
  int ch = blockIdx.x, n = b * hw;
  float s = 0.f;
  for (int i = threadIdx.x; i < n; i += 128) s += x[((size_t)(i / hw) * c + ch) * hw + i % hw];
  p[threadIdx.x] = s;
  __syncthreads();
  for (int h = 64; h > 0; h >>= 1) { if (threadIdx.x < h) p[threadIdx.x] += p[threadIdx.x + h]; __syncthreads(); }
  float m = p[0] / n;
  s = 0.f;
  for (int i = threadIdx.x; i < n; i += 128) { float d = x[((size_t)(i / hw) * c + ch) * hw + i % hw] - m; s += d * d; }
  q[threadIdx.x] = s;
  __syncthreads();
  for (int h = 64; h > 0; h >>= 1) { if (threadIdx.x < h) q[threadIdx.x] += q[threadIdx.x + h]; __syncthreads(); }
  if (threadIdx.x == 0) {
    mean[ch] = m;
    inverse[ch] = 1.f / sqrtf(q[0] / n + eps);
    running_mean[ch] = (1.f - momentum) * running_mean[ch] + momentum * m;
    running_var[ch] = (1.f - momentum) * running_var[ch] + momentum * (q[0] / (n - 1));
    if (ch == 0) batches[0] += 1;
  }
}
__global__ void normalise_relu(const float* x, const float* mean, const float* inverse, const float* w, const float* bias, float* y, int c, int hw, int total) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= total) return;
  int ch = (i / hw) % c;
  y[i] = fmaxf((x[i] - mean[ch]) * inverse[ch] * w[ch] + bias[ch], 0.f);
}
void stats(tvm::ffi::TensorView x, tvm::ffi::TensorView mean, tvm::ffi::TensorView inverse, tvm::ffi::TensorView rm, tvm::ffi::TensorView rv, tvm::ffi::TensorView nb, double eps, double momentum) {
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  statistics<<<(int)x.size(1), 128, 0, stream>>>((const float*)x.data_ptr(), (float*)mean.data_ptr(), (float*)inverse.data_ptr(), (float*)rm.data_ptr(), (float*)rv.data_ptr(),
      (long long*)nb.data_ptr(), (int)x.size(0), (int)x.size(1), (int)(x.size(2) * x.size(3)), (float)eps, (float)momentum);
}
void apply(tvm::ffi::TensorView x, tvm::ffi::TensorView mean, tvm::ffi::TensorView inverse, tvm::ffi::TensorView w, tvm::ffi::TensorView b, tvm::ffi::TensorView y) {
  int hw = (int)(x.size(2) * x.size(3)), c = (int)x.size(1), total = (int)x.size(0) * c * hw;
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  normalise_relu<<<(total + 255) / 256, 256, 0, stream>>>((const float*)x.data_ptr(), (const float*)mean.data_ptr(), (const float*)inverse.data_ptr(),
      (const float*)w.data_ptr(), (const float*)b.data_ptr(), (float*)y.data_ptr(), c, hw, total);
}
"""
module = load_inline("h_batch_norm_running", cuda_sources=CUDA, functions=["stats", "apply"])


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.bn = nn.BatchNorm2d(channels)

    def forward(self, x):
        bn = self.bn
        if bn.training:
            mean, inverse = torch.empty_like(bn.running_mean), torch.empty_like(bn.running_var)
            module.stats(x, mean, inverse, bn.running_mean, bn.running_var, bn.num_batches_tracked.view(1), bn.eps, bn.momentum)
        else:
            mean, inverse = bn.running_mean, torch.rsqrt(bn.running_var + bn.eps)
        y = torch.empty_like(x)
        module.apply(x, mean, inverse, bn.weight, bn.bias, y)
        return y
