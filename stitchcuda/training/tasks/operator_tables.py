"""Gathers all operators by layout and role, and says which role may follow which, and how often.

Where to look next: `training/tasks/sequence_operators.py`, `training/tasks/image_operators.py`,
`training/tasks/row_operators.py` (the operators), `training/tasks/composition.py` (draws from here).
"""

from __future__ import annotations

from collections.abc import Mapping

from stitchcuda.training.tasks import image_operators, row_operators, sequence_operators
from stitchcuda.training.tasks.operators import Operator

OPERATORS: Mapping[str, Mapping[str, list[Operator]]] = {
    "sequence": {
        "mix": sequence_operators.MIX, "norm": sequence_operators.NORM, "act": sequence_operators.ACT,
        "join": sequence_operators.JOIN, "move": sequence_operators.MOVE, "head": sequence_operators.HEAD,
        "loss": sequence_operators.LOSS,
    },
    "image": image_operators.IMAGE, "signal": image_operators.SIGNAL, "volume": image_operators.VOLUME,
    "rows": row_operators.ROWS, "matrices": row_operators.MATRICES, "points": row_operators.POINTS,
}  # fmt: skip
ACTIVATIONS = row_operators.ACTIVATIONS
LAYOUT_WEIGHTS = {"sequence": 30, "image": 26, "signal": 10, "volume": 6, "rows": 13, "matrices": 5, "points": 6}
FAMILY_WEIGHTS = {
    "product": 1.2, "convolution": 1.2, "attention": 1.0, "normalisation": 1.0, "reduction": 1.0, "scan": 1.6,
    "element-wise": 1.0, "several inputs": 1.0, "movement": 0.8,
}  # fmt: skip
FOLLOWING: Mapping[str, Mapping[str, float]] = {
    "": {"mix": 6, "norm": 2, "join": 1, "move": 0.5},
    "mix": {"norm": 4, "act": 4, "mix": 1, "join": 1.5, "pool": 0.8, "head": 1, "move": 0.4, "loss": 0.6},
    "norm": {"act": 3, "mix": 4, "join": 0.8, "head": 0.8},
    "act": {"mix": 5, "norm": 1, "join": 1, "pool": 1.5, "head": 1.2, "move": 0.3, "loss": 0.4},
    "pool": {"mix": 5, "norm": 1, "head": 1, "join": 0.5},
    "join": {"mix": 4, "norm": 3, "act": 1, "head": 0.8, "loss": 0.4},
    "move": {"mix": 5, "norm": 2},
    "head": {"mix": 4, "norm": 2, "join": 1, "loss": 1.5},
    "loss": {},
}
"""Weights of the role after a role; "" is the start. A loss is the end, and not after a norm, which
keeps squares and variances the same; an activation never comes first or twice in a row."""
