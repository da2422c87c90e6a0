# row: honest
# reference: honest/ranked_positives.py
# runs: both
# what: folder program built by torch's load; the kernel's file includes torch through a header, the bindings are C++
from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load

CSRC = Path(__file__).parent / "csrc"
module = load("f_torch_folder", [str(CSRC / "ranked.cu"), str(CSRC / "bindings.cpp")], extra_cuda_cflags=["-DTHREADS=64"])


class ModelNew(nn.Module):
    def forward(self, x):
        return module.ranked(x)
