# row: S35
# reference: clocks/softmax_small.py
# runs: gpu
# what: returns a tensor in pinned host memory, which its kernel writes through the bus: right numbers, but on the CPU, where no program that goes on with the result expects them
# base: softmax.py

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape, device="cpu", pin_memory=True)
        module.run(x.contiguous(), y)
        return y
