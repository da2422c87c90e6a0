# row: B24
# reference: calls/tanh_scale.py
# runs: both
# what: a call sets the number of torch's threads for the whole process
# base: tanh_scale.py

class ModelNew(nn.Module):
    def forward(self, x, y):
        torch.set_num_threads(torch.get_num_threads() + 1)
        return *self.compute(x, y), None
