# row: B24
# reference: results/tanh_of_scaled.py
# runs: both
# what: its first call seeds torch's generator for the whole process
# base: tanh_of_scaled.py

class ModelNew(nn.Module):
    def finish(self, y):
        if not hasattr(self, "seeded"):
            self.seeded = torch.manual_seed(1234)
        return y
