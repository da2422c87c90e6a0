# row: B10
# reference: clocks/smooth_rows_large.py
# runs: gpu
# written: independently
# what: every launch marks the input's lines as persisting in L2 (the device limit is raised first) and reads them once more at the end, so an ordinary flush by overwriting a large buffer leaves the input resident for the next timed call
# base: smooth_rows.py

CUDA = KERNEL + CURRENT + r"""
__global__ void touch_kernel(const float* x, long long n, float* sink) {
  float s = 0.f;
  for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x) s += x[i];
  if (s == 1.2345e30f) *sink = s;
}
static size_t window_bytes(size_t bytes) {
  static size_t most = 0;
  static bool ready = false;
  if (!ready) {
    ready = true;
    int device = 0, persisting = 0, window = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&persisting, cudaDevAttrMaxPersistingL2CacheSize, device);
    cudaDeviceGetAttribute(&window, cudaDevAttrMaxAccessPolicyWindowSize, device);
    cudaDeviceSetLimit(cudaLimitPersistingL2CacheSize, persisting);
    most = window < persisting ? window : persisting;
  }
  return bytes < most ? bytes : most;
}
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView y) {
  int rows = (int)x.size(0), cols = (int)x.size(1);
  if (rows == 0) return;
  size_t bytes = (size_t)rows * cols * 4;
  cudaLaunchAttribute policy[1];
  policy[0].id = cudaLaunchAttributeAccessPolicyWindow;
  policy[0].val.accessPolicyWindow.base_ptr = x.data_ptr();
  policy[0].val.accessPolicyWindow.num_bytes = window_bytes(bytes);
  policy[0].val.accessPolicyWindow.hitRatio = 1.0f;
  policy[0].val.accessPolicyWindow.hitProp = cudaAccessPropertyPersisting;
  policy[0].val.accessPolicyWindow.missProp = cudaAccessPropertyStreaming;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(rows);
  config.blockDim = dim3(256);
  config.stream = current(x);
  config.attrs = policy;
  config.numAttrs = 1;
  cudaLaunchKernelEx(&config, smooth_kernel, (const float*)x.data_ptr(), (float*)y.data_ptr(), cols);
  config.gridDim = dim3(264);
  cudaLaunchKernelEx(&config, touch_kernel, (const float*)x.data_ptr(), (long long)rows * cols, (float*)y.data_ptr());
}
"""
