"""StitchCUDA turns a PyTorch program into a faster, verified, end-to-end GPU program.

The public API is the five names below. They are imported on first use, so that a worker process, which only runs a program,
does not import langgraph.

Where to look next: `sessions/session.py` (`optimize`, `Session`), `verify/api.py` (`Verifier`, `verify`),
`graph/graph.py` (`build_graph`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from stitchcuda.version import VERSION

__version__ = VERSION

if TYPE_CHECKING:
    from stitchcuda.graph.graph import build_graph
    from stitchcuda.sessions.session import Session, optimize
    from stitchcuda.verify.api import Verifier, verify

__all__ = ["Session", "Verifier", "build_graph", "optimize", "verify"]

_HOMES = {
    "Session": "stitchcuda.sessions.session",
    "Verifier": "stitchcuda.verify.api",
    "build_graph": "stitchcuda.graph.graph",
    "optimize": "stitchcuda.sessions.session",
    "verify": "stitchcuda.verify.api",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'stitchcuda' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
