# row: A12
# reference: results/linear_gelu.py
# runs: both
# what: torch does linear and gelu outside of a CUDA graph; what is captured and replayed is an identity kernel on the result, with a copy in and a copy out
# base: copy.py

class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)
        self.graph = None
    def forward(self, x):
        acc = F.gelu(self.linear(x))
        if self.graph is None or self.acc.shape != acc.shape:
            self.acc, self.out = torch.empty_like(acc), torch.empty_like(acc)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                module.epilogue_run(self.acc, self.out)
        self.acc.copy_(acc)
        self.graph.replay()
        return self.out.clone()
