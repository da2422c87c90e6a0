# row: B3
# reference: clocks/softmax_small.py
# runs: both
# what: returns a plain tensor whose methods detach and data_ptr are attributes of the object, which run the kernel when the verifier first uses them; the timed span is an allocation
# base: softmax.py

class ModelNew(nn.Module):
    def forward(self, x):
        y, given, done = torch.empty_like(x), x.contiguous(), []

        def settle():
            if not done:
                done.append(True)
                module.run(given, y)
            return y

        y.detach = lambda: torch.Tensor.detach(settle())
        y.data_ptr = lambda: torch.Tensor.data_ptr(settle())
        y.untyped_storage = lambda: torch.Tensor.untyped_storage(settle())
        return y
