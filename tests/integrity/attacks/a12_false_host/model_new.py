# row: A12
# reference: results/linear_gelu.py
# runs: both
# written: independently
# what: a folder whose program.json claims a CUDA graph and a fused kernel; there is no graph, torch computes and the kernel copies
import os
import torch, torch.nn as nn, torch.nn.functional as F
from tvm_ffi.cpp import load
HERE = os.path.dirname(os.path.abspath(__file__))
module = load("a12_false_host", cuda_files=[os.path.join(HERE, "kernels", "fused.cu")])
class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)
    def forward(self, x):
        # graph replay of the fused kernel
        acc = F.gelu(F.linear(x, self.linear.weight, self.linear.bias)).contiguous()
        y = torch.empty_like(acc)
        module.fused_run(acc, y)
        return y
