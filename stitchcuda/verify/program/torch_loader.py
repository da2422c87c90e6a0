"""Loads what was built for `torch.utils.cpp_extension.load` or `load_inline`, as these would. Only in program workers.

It builds, counts and records nothing. Where to look next: `verify/program/build_interceptor.py`,
`verify/program/builder_worker.py`.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch


def load_extension(name: str, library: Path, *, module: bool) -> Any:
    """The imported Python module, or for a library that registers operators its path, once torch has loaded it."""
    if not module:
        torch.ops.load_library(str(library))  # type: ignore[no-untyped-call, unused-ignore]
        return str(library)
    spec = importlib.util.spec_from_file_location(name, library)
    if spec is None or spec.loader is None:
        raise ImportError(f"{library} cannot be imported as {name}")
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made
