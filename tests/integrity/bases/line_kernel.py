# what: BODY, by a thread for each line of `width` numbers: from a to b, and `place`, a number for the line
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline

BODY = "for (int i = 0; i < width; ++i) b[i] = a[i];"
NUMBER = "float"
CUDA = r"""
using tvm::ffi::TensorView;
__global__ void line(const NUMBER* x, NUMBER* y, long long* places, int lines, int width) {
  int own = blockIdx.x * blockDim.x + threadIdx.x;
  if (own >= lines) return;
  const NUMBER* a = x + (size_t)own * width;
  NUMBER* b = y + (size_t)own * width;
  long long place = 0;
  BODY
  places[own] = place;
}
void run(TensorView x, TensorView y, TensorView places, int64_t width) {
  int lines = (int)places.size(0);
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(x.device().device_type, x.device().device_id));
  line<<<(lines + 31) / 32, 32, 0, stream>>>((NUMBER*)x.data_ptr(), (NUMBER*)y.data_ptr(), (long long*)places.data_ptr(), lines, (int)width);
}
""".replace("BODY", BODY).replace("NUMBER", NUMBER)
module = load_inline("line_kernel", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def lines(self, x, width):
        y, places = torch.empty_like(x), torch.empty(x.numel() // width, dtype=torch.int64, device=x.device)
        module.run(x, y, places, width)
        return y, places

    def forward(self, x):
        return self.lines(x, x.shape[-1])[0]
