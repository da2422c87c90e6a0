# row: B7
# reference: clocks/softmax_small.py
# runs: both
# written: independently
# what: calls are put into a queue and every fourth call runs the kernel for all of them: the median call is an allocation, and whoever compares after the whole loop (in multiples of four) finds everything right
# base: softmax.py

waiting = []
calls = 0

class ModelNew(nn.Module):
    def forward(self, x):
        global calls
        y = torch.empty_like(x)
        waiting.append((x.contiguous(), y))
        if calls % 4 == 0:
            for job in waiting:
                module.run(*job)
            waiting.clear()
        calls += 1
        return y
