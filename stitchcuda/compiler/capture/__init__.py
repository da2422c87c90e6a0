"""From an `nn.Module` to a graph of operators, by torch.export; and which operators must stay in order.

Where to look next: `compiler/capture/op_graph.py` (the records), `compiler/capture/capture.py`,
`compiler/capture/dependencies.py`.
"""
