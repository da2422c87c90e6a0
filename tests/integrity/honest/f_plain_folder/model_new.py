# row: honest
# reference: honest/layer_norm.py
# runs: both
# written: independently
# what: folder program with two .cu files and a shared .cuh header; statistics and normalisation in separate translation units with equal helper names
import os
import torch
import torch.nn as nn
from tvm_ffi.cpp import load

KERNELS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kernels")
module = load("f_plain_folder", cuda_files=[os.path.join(KERNELS, name) for name in ("moments.cu", "apply.cu")], extra_include_paths=[KERNELS])


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)

    def forward(self, x):
        stats = torch.empty(x.shape[0], 2, device=x.device)
        y = torch.empty_like(x)
        module.moments(x, stats, self.norm.eps)
        module.apply(x, stats, self.norm.weight, self.norm.bias, y)
        return y
