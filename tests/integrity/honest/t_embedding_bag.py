# row: honest
# reference: honest/embedding_bag.py
# runs: both
# written: independently
# what: integer input; gathers and averages rows of the table, kernel and launcher in an anonymous namespace
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <c10/cuda/CUDAStream.h>
namespace {
__device__ __forceinline__ float gather(const float* table, long long row, int width, int col) { return __ldg(table + row * width + col); }
__global__ void bag_mean(const long long* index, const float* table, float* y, int per, int width) {
  for (int col = threadIdx.x; col < width; col += blockDim.x) {
    float s = 0.f;
    for (int k = 0; k < per; ++k) s += gather(table, index[(size_t)blockIdx.x * per + k], width, col);
    y[(size_t)blockIdx.x * width + col] = s / per;
  }
}
void launch(const long long* index, const float* table, float* y, int bags, int per, int width, cudaStream_t stream) {
  bag_mean<<<bags, 64, 0, stream>>>(index, table, y, per, width);
}
}
torch::Tensor run(torch::Tensor index, torch::Tensor table) {
  auto y = torch::empty({index.size(0), table.size(1)}, table.options());
  launch((const long long*)index.data_ptr<int64_t>(), table.data_ptr<float>(), y.data_ptr<float>(), index.size(0), index.size(1), table.size(1), c10::cuda::getCurrentCUDAStream());
  return y;
}
"""
ops = load_inline(name="t_embedding_bag", cpp_sources="torch::Tensor run(torch::Tensor index, torch::Tensor table);", cuda_sources=CUDA, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self, rows, width):
        super().__init__()
        self.bag = nn.EmbeddingBag(rows, width, mode="mean")

    def forward(self, index):
        return ops.run(index, self.bag.weight)
