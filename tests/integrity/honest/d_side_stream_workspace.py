# row: honest
# reference: honest/rms_of_rows.py
# runs: both
# what: keeps a workspace between calls, which a kernel fills on a side stream; the stream waits for the caller's, the caller's waits for it, and the second kernel reads it there
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
using tvm::ffi::TensorView;
static cudaStream_t current(TensorView t) { return static_cast<cudaStream_t>(TVMFFIEnvGetStream(t.device().device_type, t.device().device_id)); }
__global__ void scales(const float* x, float* scale, int rows, int cols) {
  int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
  float s = 0.f;
  if (row < rows) for (int i = lane; i < cols; i += 32) s = fmaf(x[(size_t)row * cols + i], x[(size_t)row * cols + i], s);
  for (int d = 16; d > 0; d >>= 1) s += __shfl_xor_sync(0xffffffffu, s, d);
  if (row < rows && lane == 0) scale[row] = rsqrtf(s / cols + 1e-6f);
}
__global__ void apply(const float* x, const float* scale, const float* w, float* y, int n, int cols) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * scale[i / cols] * w[i % cols];
}
void run_scales(TensorView x, TensorView scale) {
  int rows = (int)x.size(0);
  scales<<<(rows + 3) / 4, 128, 0, current(x)>>>((const float*)x.data_ptr(), (float*)scale.data_ptr(), rows, (int)x.size(1));
}
void run_apply(TensorView x, TensorView scale, TensorView w, TensorView y) {
  int n = (int)(x.size(0) * x.size(1));
  apply<<<(n + 127) / 128, 128, 0, current(x)>>>((const float*)x.data_ptr(), (const float*)scale.data_ptr(), (const float*)w.data_ptr(), (float*)y.data_ptr(), n, (int)x.size(1));
}
"""
module = load_inline("d_side_stream_workspace", cuda_sources=CUDA, functions=["run_scales", "run_apply"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(96))
        self._side = self._workspace = None

    def forward(self, x):
        main, y = torch.cuda.current_stream(), torch.empty_like(x)
        if self._side is None or self._workspace.numel() < x.shape[0]:
            self._side, self._workspace = torch.cuda.Stream(), torch.empty(max(1024, x.shape[0]), device=x.device)
        self._side.wait_stream(main)           # x is there, and the last call has read the workspace
        with torch.cuda.stream(self._side):
            module.run_scales(x, self._workspace)
        main.wait_stream(self._side)
        module.run_apply(x, self._workspace, self.weight, y)
        return y
