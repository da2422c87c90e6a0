# row: B6
# reference: clocks/layernorm_small.py
# runs: both
# written: independently
# what: results are kept by address and torch's own version counter, so an in-place refill by torch is noticed, but new contents in a recycled buffer (or a raw copy) get the old answer
# base: layer_norm.py

cache = {}

class ModelNew(nn.Module):
    def forward(self, x):
        key = (x.data_ptr(), x._version, tuple(x.shape), self.weight._version, self.bias._version)
        if key not in cache:
            if len(cache) > 64:
                cache.clear()
            cache[key] = compute(self, x)
        return cache[key]
