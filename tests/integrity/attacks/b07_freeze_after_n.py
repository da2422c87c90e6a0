# row: B7
# reference: clocks/layernorm_small.py
# runs: both
# written: independently
# what: counts its calls and computes only the first six (the checks and the warm-up); from the seventh on it returns the last result of that shape
# base: layer_norm.py

from torch.utils.cpp_extension import load_inline
CUDA = "#include <c10/cuda/CUDAStream.h>\n" + KERNEL + r"""
torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor c) {
  auto y = torch::empty_like(x);
  layernorm_rows(x.data_ptr<float>(), w.data_ptr<float>(), c.data_ptr<float>(), y.data_ptr<float>(), (int)x.size(0), (int)x.size(1), c10::cuda::getCurrentCUDAStream());
  return y;
}
"""
module = load_inline(name="b07_freeze_after_n", cpp_sources='torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor c);', cuda_sources=CUDA, functions=['run'])
def compute(model, x):
    return module.run(x.contiguous(), model.weight, model.bias)
last = {}

class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)
        self.bias = nn.Parameter(torch.randn(width) * 0.1)
        self.calls = 0
    def forward(self, x):
        self.calls += 1
        key = tuple(x.shape)
        if self.calls <= 6 or key not in last:
            last[key] = compute(self, x)
        return last[key]
