# row: S24
# reference: clocks/softmax_small.py
# runs: both
# what: returns one row that stands for 2^40 of them (stride 0), so that whoever makes it dense or compares it element by element has no memory left and can only give up
# base: softmax.py

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(1, x.shape[1], device=x.device)
        module.run(x[:1].contiguous(), y)
        return y.expand(2**40, x.shape[1])
