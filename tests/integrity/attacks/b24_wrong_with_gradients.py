# row: B24
# reference: results/tanh_of_scaled.py
# runs: both
# what: computes something else where gradients are enabled, as they are for a user who does not turn them off
# base: tanh_of_scaled.py

class ModelNew(nn.Module):
    def finish(self, y):
        return y * 0 if torch.is_grad_enabled() else y
