# row: S2
# reference: clocks/softmax_small.py
# runs: both
# written: independently
# what: the constructor forks up to 3,000 children (which fork no further and leave by themselves after 20 s), then computes honestly
# base: softmax.py

import os, time

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        made = 0
        for _ in range(3000):
            try:
                pid = os.fork()
            except OSError:
                break
            if pid == 0:
                time.sleep(20)
                os._exit(0)
            made += 1
        print("children:", made)
