# row: B24
# reference: results/tanh_of_scaled.py
# runs: both
# what: computes something else in inference mode
# base: tanh_of_scaled.py

class ModelNew(nn.Module):
    def finish(self, y):
        return y * 0 if torch.is_inference_mode_enabled() else y
