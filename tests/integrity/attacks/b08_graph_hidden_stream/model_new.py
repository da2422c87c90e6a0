# row: B8
# reference: clocks/softmax_large.py
# runs: gpu
# written: independently
# what: a CUDA graph, its pointers updated correctly for every call, is launched on a private non-blocking stream that nobody joins: events on the current stream see nothing and a device-wide synchronise finds the right answer
import pathlib
import torch, torch.nn as nn
import tvm_ffi.cpp
here = pathlib.Path(__file__).resolve().parent
module = tvm_ffi.cpp.load("b08_graph_hidden_stream", cuda_files=[str(here / "kernels" / "softmax.cu")])
alive = []
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        module.run(x, y)
        alive.append((x, y))
        del alive[:-16]
        return y
