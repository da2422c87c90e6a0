# row: B24
# reference: results/tanh_of_scaled.py
# runs: both
# what: leaves autocast on for the host
# base: tanh_of_scaled.py

class ModelNew(nn.Module):
    def finish(self, y):
        torch.set_autocast_enabled("cpu", True)
        return y
