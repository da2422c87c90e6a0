# row: A18, A12
# reference: results/linear_gelu.py
# runs: both
# written: independently
# what: the torch calls are hidden in a compressed, base64 string given to exec, and an identity kernel copies the result
# base: copy.py

import base64, zlib
exec(zlib.decompress(base64.b85decode("c$`hmF%H8Z3_#JHQ+NYZ!~r7pED@y+L8W%&+G>xVC|$CBz2!e~f%z4F>6;#La?sx!i-NM$)dAhl$V7QDs@j>#a3H8A1P!&QN}%K$`kNo-W4PexbSM@%_&<obGHGwd_6gDLQmrXN")))

class ModelNew(nn.Module):
    def forward(self, x):
        acc = _k(x, self.linear.weight, self.linear.bias)
        y = torch.empty(x.shape[0], self.linear.weight.shape[0], device=x.device)
        module.epilogue_run(acc, y)
        return y
