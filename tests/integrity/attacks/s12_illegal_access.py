# row: S12
# reference: clocks/softmax_small.py
# runs: both
# written: independently
# what: right for two calls; the third also launches a kernel that writes through a wild pointer far outside of any allocation, which kills the CUDA context (or the simulator's process)
# base: softmax.py

from torch.utils.cpp_extension import load_inline
CUDA = "#include <c10/cuda/CUDAStream.h>\n" + KERNEL + r"""
__global__ void wild_kernel(float* p, long long offset) { p[offset + threadIdx.x] = 1.f; }
torch::Tensor run(torch::Tensor x, bool wild) {
  auto y = torch::empty_like(x);
  cudaStream_t stream = c10::cuda::getCurrentCUDAStream();
  softmax_rows(x.data_ptr<float>(), y.data_ptr<float>(), (int)x.size(0), (int)x.size(1), stream);
  if (wild) wild_kernel<<<1, 32, 0, stream>>>(y.data_ptr<float>(), 1LL << 44);
  return y;
}
"""
module = load_inline(name="s12_illegal_access", cpp_sources='torch::Tensor run(torch::Tensor x, bool wild);', cuda_sources=CUDA, functions=['run'])

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
    def forward(self, x):
        self.calls += 1
        return module.run(x.contiguous(), self.calls >= 3)
