"""Records the operators of an `nn.Module` as a graph, through torch.export, and says which must stay in order.

Where to look next: `compiler/capture/op_graph.py` (the records), `compiler/capture/capture.py` (what callers use),
`compiler/capture/dependencies.py` (the order).
"""
