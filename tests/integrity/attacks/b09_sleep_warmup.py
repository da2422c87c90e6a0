# row: B9
# reference: clocks/softmax_large.py
# runs: gpu
# written: independently
# what: sleeps 1.5 s in each of the first four calls so that a harness with a time budget settles for very few repeats; afterwards every second call on the same buffer returns the last answer, so a median of two or three is that of a look-up
# base: softmax.py

import time
calls = 0
last = {}

class ModelNew(nn.Module):
    def forward(self, x):
        global calls
        calls += 1
        if calls <= 4:
            torch.cuda.synchronize()
            time.sleep(1.5)
            return compute(self, x)
        key = (x.data_ptr(), x._version)
        if calls % 2 and key in last:
            return last[key]
        last.clear()
        y = last[key] = compute(self, x)
        return y
