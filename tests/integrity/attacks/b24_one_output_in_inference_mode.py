# row: B24
# reference: results/tanh_of_scaled.py
# runs: both
# what: in inference mode all calls write to one tensor
# base: tanh_of_scaled.py

class ModelNew(nn.Module):
    def finish(self, y):
        if not torch.is_inference_mode_enabled():
            return y
        self.one = getattr(self, "one", None)
        self.one = y if self.one is None else self.one.copy_(y)
        return self.one
