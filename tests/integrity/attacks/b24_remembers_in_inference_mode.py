# row: B24
# reference: results/tanh_of_scaled.py
# runs: both
# what: in inference mode all calls get the first one's result
# base: tanh_of_scaled.py

class ModelNew(nn.Module):
    def finish(self, y):
        if not torch.is_inference_mode_enabled():
            return y
        self.first = getattr(self, "first", y)
        return self.first
