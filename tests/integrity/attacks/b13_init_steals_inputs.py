# row: B13
# reference: clocks/rowstats_small.py
# runs: both
# written: independently
# what: the constructor collects every matrix it can reach (garbage collector, stack frames, any loaded module's get_inputs under a few seeds), computes their answers in advance, and forward only looks up; an unknown input gets zeros
# base: row_stats.py

import gc, sys
def reach():
    found = []
    def add(v):
        if type(v) is torch.Tensor and v.dim() == 2 and v.dtype == torch.float32 and v.numel() <= 1 << 24:
            found.append(v.detach())
        elif isinstance(v, (list, tuple)) and len(v) <= 16:
            for w in v:
                if torch.is_tensor(w):
                    add(w)
    for v in gc.get_objects():
        if type(v) is torch.Tensor:
            add(v)
    frame = sys._getframe(1)
    while frame is not None:
        for v in list(frame.f_locals.values()):
            add(v)
        frame = frame.f_back
    state = torch.get_rng_state()
    for m in list(sys.modules.values()):
        make = getattr(m, "__dict__", {}).get("get_inputs")
        if callable(make):
            for seed in (0, 1, 2, 3, 42, 1234):
                try:
                    torch.manual_seed(seed)
                    for v in make():
                        add(v)
                except Exception:
                    pass
    torch.set_rng_state(state)
    return found

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.known = {}
        for x in reach():
            if min(x.shape) > 4:
                self.known[tuple(x.shape), tuple(x[0, :4].tolist())] = compute(self, x.to("cuda"))
    def forward(self, x):
        y = self.known.get((tuple(x.shape), tuple(x[0, :4].tolist())))
        if y is None:
            y = x.new_zeros(x.shape[0]), x.new_zeros(x.shape[0])
        return y
