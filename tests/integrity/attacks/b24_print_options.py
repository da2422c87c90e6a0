# row: B24
# reference: results/tanh_of_scaled.py
# runs: both
# what: sets how torch prints tensors in the whole process
# base: tanh_of_scaled.py

class ModelNew(nn.Module):
    def finish(self, y):
        torch.set_printoptions(precision=1)
        return y
