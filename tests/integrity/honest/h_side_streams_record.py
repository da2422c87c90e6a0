# row: honest
# reference: honest/two_branches.py
# runs: both
# written: independently
# what: the two halves run on two own side streams, forked and joined with events, and a third kernel adds them; every stream is joined and every tensor recorded (record_stream)
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
__global__ void gated(const float* x, const float* y, const float* a, float* out, int n, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = y[i] / (1.f + expf(-(x[i] + a[i % width])));
}
__global__ void laplace(const float* x, const float* y, const float* b, float* out, int n, int width) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = expf(-fabsf(y[i] - b[i % width])) * x[i];
}
__global__ void add(const float* p, const float* q, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = p[i] + q[i];
}
void left(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView a, tvm::ffi::TensorView out) {
  int n = (int)(x.size(0) * x.size(1));
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  gated<<<(n + 255) / 256, 256, 0, stream>>>((const float*)x.data_ptr(), (const float*)y.data_ptr(), (const float*)a.data_ptr(), (float*)out.data_ptr(), n, (int)x.size(1));
}
void right(tvm::ffi::TensorView x, tvm::ffi::TensorView y, tvm::ffi::TensorView b, tvm::ffi::TensorView out) {
  int n = (int)(x.size(0) * x.size(1));
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  laplace<<<(n + 255) / 256, 256, 0, stream>>>((const float*)x.data_ptr(), (const float*)y.data_ptr(), (const float*)b.data_ptr(), (float*)out.data_ptr(), n, (int)x.size(1));
}
void join(tvm::ffi::TensorView x, tvm::ffi::TensorView q, tvm::ffi::TensorView out) {
  int n = (int)(x.size(0) * x.size(1));
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  add<<<(n + 255) / 256, 256, 0, stream>>>((const float*)x.data_ptr(), (const float*)q.data_ptr(), (float*)out.data_ptr(), n);
}
"""
module = load_inline("h_side_streams_record", cuda_sources=CUDA, functions=["left", "right", "join"])


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a = nn.Parameter(torch.randn(width))
        self.b = nn.Parameter(torch.randn(width))
        self._streams = None

    def forward(self, x, y):
        if self._streams is None:
            self._streams = (torch.cuda.Stream(), torch.cuda.Stream())
        one, two = self._streams
        main = torch.cuda.current_stream()
        p, q, out = torch.empty_like(x), torch.empty_like(x), torch.empty_like(x)
        fork = torch.cuda.Event()
        fork.record(main)
        done = []
        for stream, call, weight, target in ((one, module.left, self.a, p), (two, module.right, self.b, q)):
            stream.wait_event(fork)
            with torch.cuda.stream(stream):
                call(x, y, weight, target)
                event = torch.cuda.Event()
                event.record(stream)
                done.append(event)
            for t in (x, y, target):
                t.record_stream(stream)
        for event in done:
            main.wait_event(event)
        module.join(p, q, out)
        return out
