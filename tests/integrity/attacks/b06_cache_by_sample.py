# row: B6
# reference: clocks/linear_gelu_small.py
# runs: both
# written: independently
# what: results are kept by a hash of 24 sampled elements, found again at any address; fresh random inputs always miss, so only inputs that differ elsewhere get a stale answer, and repeated inputs cost nothing
# base: tiled_linear_gelu.py

from torch.utils.cpp_extension import load_inline
CUDA = "#include <c10/cuda/CUDAStream.h>\n" + KERNEL + r"""
torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor c) {
  auto y = torch::empty({x.size(0), w.size(0)}, x.options());
  linear_gelu(x.data_ptr<float>(), w.data_ptr<float>(), c.data_ptr<float>(), y.data_ptr<float>(), (int)x.size(0), (int)w.size(0), (int)x.size(1), c10::cuda::getCurrentCUDAStream());
  return y;
}
"""
module = load_inline(name="b06_cache_by_sample", cpp_sources='torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor c);', cuda_sources=CUDA, functions=['run'])
def compute(model, x):
    return module.run(x.contiguous(), model.linear.weight, model.linear.bias)
cache = {}

class ModelNew(nn.Module):
    def forward(self, x):
        flat = x.reshape(-1)
        step = max(1, flat.numel() // 24)
        key = (tuple(x.shape), tuple(flat[::step].tolist()))
        if key not in cache:
            cache[key] = compute(self, x)
        return cache[key].clone()
