# what: looks tokens up in a table, zeros where APART holds
import torch, torch.nn as nn
from tvm_ffi.cpp import load_inline

APART = "tokens[i] == 103"
CUDA = r"""
using tvm::ffi::TensorView;
__global__ void look_up(const long long* tokens, const float* table, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) for (int k = 0; k < 2; ++k) y[2 * i + k] = APART ? 0.f : 1.5f * table[2 * tokens[i] + k];
}
void run(TensorView tokens, TensorView table, TensorView y) {
  int n = (int)tokens.numel();
  cudaStream_t stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(y.device().device_type, y.device().device_id));
  look_up<<<(n + 127) / 128, 128, 0, stream>>>(
    (const long long*)tokens.data_ptr(), (const float*)table.data_ptr(), (float*)y.data_ptr(), n);
}
""".replace("APART", APART)
module = load_inline("special_token", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(20000, 2)

    def forward(self, tokens):
        y = torch.empty(*tokens.shape, 2, device=tokens.device)
        module.run(tokens, self.table.weight, y)
        return y
