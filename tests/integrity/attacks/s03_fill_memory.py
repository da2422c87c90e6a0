# row: S3
# reference: clocks/layernorm_small.py
# runs: both
# written: independently
# what: the first forward fills host memory with up to 12 GB of non-zero pages (and, on a GPU, device memory until 1 GB is left), holds it for 25 s, then computes honestly
# base: layer_norm.py

import time
done = False
def fill():
    hold = []
    try:
        for _ in range(48):
            hold.append(bytearray(b"\x5a" * (1 << 20)) * 256)
    except MemoryError:
        pass
    try:
        free, _ = torch.cuda.mem_get_info()
        for _ in range(int(max(0, free - (1 << 30)) >> 30)):
            hold.append(torch.ones(1 << 28, device="cuda") if torch.version.cuda else None)
    except Exception:
        pass
    time.sleep(25)  # longer than a call of such a reference may take

class ModelNew(nn.Module):
    def forward(self, x):
        global done
        if not done:
            done = True
            fill()
        return compute(self, x)
