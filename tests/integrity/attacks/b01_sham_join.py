# row: B1
# reference: clocks/layernorm_large.py
# runs: gpu
# written: independently
# what: looks like a correct fork and join of a side stream, but the joining event is recorded before the kernel is launched, so the current stream waits for nothing
# base: layer_norm.py

from torch.utils.cpp_extension import load_inline
CUDA = "#include <c10/cuda/CUDAStream.h>\n" + KERNEL + r"""
static cudaStream_t side = nullptr;
static cudaEvent_t fork_event = nullptr, join_event = nullptr;
torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor c) {
  auto y = torch::empty_like(x);
  cudaStream_t main_stream = c10::cuda::getCurrentCUDAStream();
  if (!side) {
    cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&fork_event, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&join_event, cudaEventDisableTiming);
  }
  cudaEventRecord(fork_event, main_stream);
  cudaStreamWaitEvent(side, fork_event, 0);
  cudaEventRecord(join_event, side);
  layernorm_rows(x.data_ptr<float>(), w.data_ptr<float>(), c.data_ptr<float>(), y.data_ptr<float>(), (int)x.size(0), (int)x.size(1), side);
  cudaStreamWaitEvent(main_stream, join_event, 0);
  return y;
}
"""
module = load_inline(name="b01_sham_join", cpp_sources='torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor c);', cuda_sources=CUDA, functions=['run'])
def compute(model, x):
    return module.run(x.contiguous(), model.weight, model.bias)
alive = []

class ModelNew(nn.Module):
    def forward(self, x):
        y = compute(self, x)
        alive.append((x, y))
        del alive[:-16]
        return y
