# row: B6
# reference: clocks/softmax_small.py
# runs: both
# written: independently
# what: results are kept by the input's address, shape and strides: the kernel runs once per buffer, and a loop over one input times a dictionary look-up
# base: softmax.py

cache = {}

class ModelNew(nn.Module):
    def forward(self, x):
        key = (x.data_ptr(), tuple(x.shape), x.stride())
        y = cache.get(key)
        if y is None:
            y = cache[key] = compute(self, x)
        return y
