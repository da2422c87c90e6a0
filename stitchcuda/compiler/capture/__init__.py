"""From an `nn.Module` to a graph of operators: records (`op_graph.py`), torch.export (`capture.py`), order (`dependencies.py`).

Where to look next: `compiler/capture/op_graph.py`.
"""
