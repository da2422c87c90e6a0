# row: A12
# reference: results/linear_gelu.py
# runs: both
# what: torch does linear and gelu inside of a CUDA graph that is not declared, an identity kernel is captured after them: replayed libraries are libraries
# base: copy.py

class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)
        self.graph = None
    def forward(self, x):
        if self.graph is None or self.x.shape != x.shape:
            self.x = x.clone()
            self.out = torch.empty(x.shape[0], self.linear.weight.shape[0], device=x.device)
            module.epilogue_run(F.gelu(self.linear(self.x)), self.out)  # libraries start before they are captured
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.acc = F.gelu(self.linear(self.x))
                module.epilogue_run(self.acc, self.out)
        self.x.copy_(x)
        self.graph.replay()
        return self.out.clone()
