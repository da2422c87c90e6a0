# row: B2
# reference: clocks/layernorm_small.py
# runs: both
# written: independently
# what: forward only puts the job into a queue and returns an empty tensor; a Python thread runs the kernel 30 ms later, so the clock stops before the work starts and an output looked at later is right
# base: layer_norm.py

import queue, threading, time
jobs = queue.Queue()
def worker():
    while True:
        model, x, y = jobs.get()
        time.sleep(0.03)
        with torch.no_grad():
            module.run(x, model.weight, model.bias, y)
threading.Thread(target=worker, daemon=True).start()

class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        jobs.put((self, x.contiguous(), y))
        return y
