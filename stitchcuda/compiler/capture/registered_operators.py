"""Finds the Python modules that register operators which are not torch's own, such as `torchvision::nms`.

A program that calls such an operator must import the module first. It imports nothing itself.
Where to look next: `compiler/capture/walk.py` (who asks), `compiler/printing/program.py` (which prints the imports).
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable

from torch._library.custom_ops import OPDEFS

from stitchcuda.compiler.capture.op_graph import Node


class NotImportable(Exception):
    """An operator is registered by code that a program cannot import. The text is a sentence."""


def find_packages(nodes: Iterable[Node]) -> tuple[str, ...]:
    """Returns the names of the modules to import, each once. Raises `NotImportable`."""
    found: dict[str, None] = {}
    for namespace, name in (node.op.split(".")[:2] for node in nodes if node.op.count(".") >= 2):
        definition = OPDEFS.get(f"{namespace}::{name}")
        if definition is None and (namespace not in sys.modules or namespace in sys.stdlib_module_names):
            continue                       # torch's own, or one of Python
        module = definition._init_fn.__module__ if definition is not None else namespace
        if module == "torch" or module.startswith("torch."):
            continue
        if not _can_import(module):
            raise NotImportable(
                f"It calls the operator {namespace}::{name}, which {module!r} registers; no program can import that: "
                "put it into a module that can be imported, or call torch's operators."
            )
        found[module] = None
    return tuple(found)


def _can_import(module: str) -> bool:
    try:
        return module != "__main__" and importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):      # loaded from a file, and no part of a package
        return False
