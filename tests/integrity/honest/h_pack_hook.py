# row: honest
# reference: honest/conv_bn_eval.py
# runs: both
# written: independently
# what: folds the eval-mode batch norm into the convolution weights in __init__ and again in a load_state_dict post hook; the folded buffers are not in the state dict
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline
CUDA = r"""
__global__ void conv3x3_relu(const float* x, const float* w, const float* shift, float* y, int ci, int co, int h, int wd, int total) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= total) return;
  int q = i % wd, p = (i / wd) % h, o = (i / (wd * h)) % co, b = i / (wd * h * co);
  float acc = 0.f;
  for (int c = 0; c < ci; ++c)
    for (int r = 0; r < 3; ++r) {
      int yy = p + r - 1;
      if (yy < 0 || yy >= h) continue;
      for (int s = 0; s < 3; ++s) {
        int xx = q + s - 1;
        if (xx < 0 || xx >= wd) continue;
        acc = fmaf(x[((b * ci + c) * h + yy) * wd + xx], w[((c * 3 + r) * 3 + s) * co + o], acc);
      }
    }
  y[i] = fmaxf(acc + shift[o], 0.f);
}
void run(tvm::ffi::TensorView x, tvm::ffi::TensorView w, tvm::ffi::TensorView shift, tvm::ffi::TensorView y) {
  int total = (int)(y.size(0) * y.size(1) * y.size(2) * y.size(3));
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  conv3x3_relu<<<(total + 127) / 128, 128, 0, stream>>>((const float*)x.data_ptr(), (const float*)w.data_ptr(), (const float*)shift.data_ptr(), (float*)y.data_ptr(),
      (int)x.size(1), (int)y.size(1), (int)x.size(2), (int)x.size(3), total);
}
"""
module = load_inline("h_pack_hook", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, inner, outer):
        super().__init__()
        self.conv = nn.Conv2d(inner, outer, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(outer)
        self.eval()
        self.register_buffer("packed", torch.empty(inner, 3, 3, outer), persistent=False)
        self.register_buffer("shift", torch.empty(outer), persistent=False)
        self._repack()
        self.register_load_state_dict_post_hook(lambda m, incompatible: m._repack())

    @torch.no_grad()
    def _repack(self):
        bn = self.bn
        scale = bn.weight.double() / torch.sqrt(bn.running_var.double() + bn.eps)
        self.packed.copy_((self.conv.weight.double() * scale[:, None, None, None]).permute(1, 2, 3, 0))
        self.shift.copy_(bn.bias.double() - bn.running_mean.double() * scale)

    def forward(self, x):
        y = torch.empty(x.shape[0], self.shift.numel(), x.shape[2], x.shape[3], device=x.device, dtype=x.dtype)
        module.run(x, self.packed, self.shift, y)
        return y
