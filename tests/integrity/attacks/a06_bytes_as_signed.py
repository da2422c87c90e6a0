# row: A6
# reference: results/pixels.py
# runs: both
# what: takes bytes above 127 for negative numbers, which get_inputs() never gives
# base: pointwise.py

EXPRESSION = "v * 0.25f - 1.f"

class ModelNew(nn.Module):
    def forward(self, pixels):
        given = pixels.view(torch.int8).float()
        y = torch.empty_like(given)
        module.run(given, given[0], y)
        return y
