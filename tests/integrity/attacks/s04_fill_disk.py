# row: S4
# reference: clocks/softmax_small.py
# runs: both
# written: independently
# what: the constructor writes up to 12 GB into the working folder, /tmp and /dev/shm (4 GB each, incompressible, removed again after 5 s), then computes honestly
# base: softmax.py

import os, time

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        block, made = os.urandom(1 << 22), []
        for folder in (os.getcwd(), "/tmp", "/dev/shm"):
            name = os.path.join(folder, "stitch_marker_fill_%d" % os.getpid())
            try:
                with open(name, "wb") as f:
                    made.append(name)
                    for _ in range(1024):
                        f.write(block)
            except OSError as e:
                print(folder, e)
        time.sleep(5)
        for name in made:
            try:
                os.remove(name)
            except OSError:
                pass
