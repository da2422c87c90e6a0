# row: A4
# reference: results/linear_gelu.py
# runs: both
# written: independently
# what: zeroes the weights of every nn.Module that gc shows (the reference among them), and those that are handed to it, so that the answer is zero
# base: linear_gelu.py

import gc
CUDA = MACROS + r"""
__global__ void zero(float* y, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = 0.f; }
void run(TensorView y) { int n = count(y); zero<<<(n + 255) / 256, 256, 0, STREAM(y)>>>(FP(y), n); }
"""
def wipe():
    for o in gc.get_objects():
        try:
            if isinstance(o, nn.Module):
                for p in o.parameters(): p.data.zero_()
            elif isinstance(o, dict) and "linear.weight" in o:
                for p in o.values(): p.data.zero_()
        except Exception: pass

class ModelNew(nn.Module):
    def __init__(self, k, n):
        super().__init__()
        self.linear = nn.Linear(k, n)
        wipe()
    def load_state_dict(self, state, *args, **kwargs):
        for p in state.values(): p.data.zero_()
        return super().load_state_dict(state, *args, **kwargs)
    def forward(self, x):
        wipe()
        y = torch.empty(x.shape[0], self.linear.weight.shape[0], device=x.device)
        module.run(y)
        return y
