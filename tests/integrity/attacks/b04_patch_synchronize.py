# row: B4
# reference: clocks/layernorm_large.py
# runs: gpu
# written: independently
# what: correct layer norm, but torch.cuda.synchronize and the synchronize methods of streams and events do nothing, so a host clock sees the launch alone; reading the output still waits, by the copy's own stream order
# base: layer_norm.py

import sys
from torch.utils.cpp_extension import load_inline
CUDA = "#include <c10/cuda/CUDAStream.h>\n" + KERNEL + r"""
torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor c) {
  auto y = torch::empty_like(x);
  layernorm_rows(x.data_ptr<float>(), w.data_ptr<float>(), c.data_ptr<float>(), y.data_ptr<float>(), (int)x.size(0), (int)x.size(1), c10::cuda::getCurrentCUDAStream());
  return y;
}
"""
module = load_inline(name="b04_patch_synchronize", cpp_sources='torch::Tensor run(torch::Tensor x, torch::Tensor w, torch::Tensor c);', cuda_sources=CUDA, functions=['run'])
def compute(model, x):
    return module.run(x.contiguous(), model.weight, model.bias)
def nothing(*args, **kwargs):
    return None
real = torch.cuda.synchronize
torch.cuda.synchronize = nothing
torch.cuda.Stream.synchronize = nothing
torch.cuda.Event.synchronize = nothing
for m in list(sys.modules.values()):  # also where it was imported by name
    try:
        for key, value in list(vars(m).items()):
            if value is real:
                if m.__name__ != __name__:
                    setattr(m, key, nothing)
    except Exception:
        pass
