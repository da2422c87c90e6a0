# row: B8
# reference: clocks/softmax_small.py
# runs: both
# written: independently
# what: a CUDA graph is captured on the first input's own memory and replayed ever after: right while inputs are refilled in place, stale for an input at another address
# base: softmax.py

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graph = None
    def forward(self, x):
        if self.graph is None:
            self.x = x
            self.y = torch.empty_like(x)
            module.run(self.x, self.y)  # warm-up outside of the capture
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                module.run(self.x, self.y)
        self.graph.replay()
        return self.y
