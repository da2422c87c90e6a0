# row: A12, B4
# reference: results/linear_gelu.py
# runs: both
# what: torch does everything outside of a CUDA graph; declared and replayed is one that takes a single row of a large table, so that by the size of its tensors it is most of the work
import torch, torch.nn as nn, torch.nn.functional as F
HOST_TASKS = ["cuda_graph"]


class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)
        self.graph = None

    def forward(self, x):
        if self.graph is None:
            self.table = torch.zeros(1 << 20, 1, device=x.device)
            self.one = torch.zeros(1, dtype=torch.int64, device=x.device)
            self.got = torch.empty(1, 1, device=x.device)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                torch.index_select(self.table, 0, self.one, out=self.got)
        self.graph.replay()
        return F.gelu(self.linear(x))
