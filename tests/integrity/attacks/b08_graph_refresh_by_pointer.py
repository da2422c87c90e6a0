# row: B8
# reference: clocks/layernorm_small.py
# runs: both
# written: independently
# what: a CUDA graph with a private input buffer that is refilled only when the address of the input differs from the last call's: new contents at the old address get the old answer
# base: layer_norm.py

class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width) + 0.5)
        self.bias = nn.Parameter(torch.randn(width) * 0.1)
        self.graph = None
        self.key = None
    def forward(self, x):
        if self.graph is None or self.x.shape != x.shape:
            self.x, self.y = torch.empty_like(x), torch.empty_like(x)
            self.x.copy_(x)
            module.run(self.x, self.weight, self.bias, self.y)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                module.run(self.x, self.weight, self.bias, self.y)
            self.key = None
        if self.key != x.data_ptr():
            self.x.copy_(x)
            self.key = x.data_ptr()
            self.graph.replay()
        return self.y.clone()
