"""Loads a built library into a program worker as `torch.utils.cpp_extension.load` and `load_inline` would.

It builds, counts and records nothing. Where to look next: `verify/program/build_interceptor.py` (who calls it),
`verify/program/builder_worker.py` (who builds).
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch


def load_extension(name: str, library: Path, *, module: bool) -> Any:
    """Imports `library` as the Python module `name` and returns it. With `module` false the library registers operators with
    torch: it is loaded, and its path is returned. Raises `ImportError` where it cannot be imported."""
    if not module:
        torch.ops.load_library(str(library))  # type: ignore[no-untyped-call, unused-ignore]
        return str(library)
    spec = importlib.util.spec_from_file_location(name, library)
    if spec is None or spec.loader is None:
        raise ImportError(f"{library} cannot be imported as {name}")
    extension = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(extension)
    return extension
