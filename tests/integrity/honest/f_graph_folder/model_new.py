# row: honest
# reference: honest/two_branches.py
# runs: both
# written: independently
# what: folder program with a .cu file; declares a cuda_graph host task and replays a graph with inputs copied in and the output cloned
from pathlib import Path
import torch
import torch.nn as nn
import tvm_ffi.cpp

HERE = Path(__file__).resolve().parent
module = tvm_ffi.cpp.load("f_graph_folder", cuda_files=[str(HERE / "kernels" / "branches.cu")])


class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a = nn.Parameter(torch.randn(width))
        self.b = nn.Parameter(torch.randn(width))
        self._captured = {}

    def _capture(self, x, y):
        xs, ys, out = torch.empty_like(x), torch.empty_like(y), torch.empty_like(x)
        xs.copy_(x)
        ys.copy_(y)
        module.branches(xs, ys, self.a, self.b, out)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            module.branches(xs, ys, self.a, self.b, out)
        return graph, xs, ys, out

    def forward(self, x, y):
        key = (tuple(x.shape), x.device, self.a.data_ptr(), self.b.data_ptr())
        if key not in self._captured:
            self._captured[key] = self._capture(x, y)
        graph, xs, ys, out = self._captured[key]
        xs.copy_(x)
        ys.copy_(y)
        graph.replay()
        return out.clone()
