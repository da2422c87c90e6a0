"""Generated kernels on the CPU simulator, compared with the interpreter: what the tests of code generation share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import tvm_ffi

from stitchcuda.compiler.codegen.emit import count_variants, emit
from stitchcuda.compiler.lower.ir import Kernel, KernelSource
from stitchcuda.simulator.build import build_simulated
from tests.compiler.interpreter import DTYPES, allocate, interpret
from tests.simulator.programs import HOME

TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
"""Of the output's scale: a few roundings of the type, and what CPU and CUDA math libraries differ by."""


def combined(texts: Sequence[str]) -> str:
    """Several generated files as one, each in a namespace of its own: headers are then read once."""
    includes: dict[str, None] = {}
    bodies = []
    for number, text in enumerate(texts):
        lines = text.splitlines()
        includes.update(dict.fromkeys(line for line in lines if line.startswith("#include")))
        body = "\n".join(line for line in lines if not line.startswith("#include"))
        bodies.append(f"namespace case_{number} {{\n{body}\n}}\n")
    return "\n".join([*includes, *bodies])


def all_variants(kernels: Sequence[Kernel]) -> list[tuple[Kernel, KernelSource]]:
    """Every strategy of every kernel, under names of their own."""
    out = []
    for kernel in kernels:
        for number in range(count_variants(kernel)):
            named = replace(kernel, name=f"{kernel.name}_v{number}")
            out.append((named, emit(named, number)))
    return out


def build(sources: Sequence[KernelSource], folder: Path) -> Any:
    """A loaded module with all kernels, running on the simulator. Builds of one test run share a cache beside `folder`."""
    files = []
    for part in range(2):  # two compilers at a time
        share = sources[part::2]
        if share:
            files += [folder / f"part{part}.cu", folder / f"part{part}_binding.cc"]
            files[-2].write_text(combined([source.cuda for source in share]))
            files[-1].write_text(combined([source.binding for source in share]))
    cache = folder.parent / "simulator"
    return tvm_ffi.load_module(str(build_simulated(files, name="kernels", cache=cache, home=HOME, flags=("-O0",))))


def filled(seed: int = 1) -> Callable[[tuple[int, ...], str], torch.Tensor]:
    """Fresh random elements of any type, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)

    def make(shape: tuple[int, ...], dtype: str) -> torch.Tensor:
        kind = DTYPES[dtype]
        if kind == torch.bool:
            return torch.rand(shape, generator=generator) < 0.1
        if kind.is_floating_point:
            return torch.randn(shape, generator=generator, dtype=torch.float64).to(kind)
        return torch.randint(0 if kind == torch.uint8 else -50, 50, shape, generator=generator, dtype=kind)

    return make


def tensors_of(
    kernel: Kernel, make: Callable[[tuple[int, ...], str], torch.Tensor], shift: int = 0
) -> dict[str, torch.Tensor]:
    """Arguments by name, `shift` elements into their memory. Outputs start as NaN or ones, so that a gap shows."""
    tensors = {argument.name: allocate(argument, make, shift) for argument in kernel.arguments}
    for argument in kernel.arguments:
        if argument.role == "out":
            tensor = tensors[argument.name]
            tensor.fill_(math.nan if tensor.dtype.is_floating_point else 1)
        elif argument.name == "running_var":
            tensors[argument.name].abs_()
    return tensors


def launch(module: Any, source: KernelSource, tensors: dict[str, torch.Tensor]) -> None:
    """Calls the binding as a program does; the workspace starts as garbage."""
    workspace = [torch.full((source.workspace_bytes,), 0xFF, dtype=torch.uint8)] if source.workspace_bytes else []
    getattr(module, source.name)(*tensors.values(), *workspace)


def difference(kernel: Kernel, source: KernelSource, module: Any, tensors: dict[str, torch.Tensor]) -> str:
    """Runs a kernel and says where its results differ from the interpreter's, or nothing."""
    want = interpret(kernel, tensors)
    launch(module, source, tensors)
    for name, expected in want.items():
        got = tensors[name]
        if not got.dtype.is_floating_point:
            if not torch.equal(got, expected):
                return f"{source.name} ({source.strategy}): {name} differs"
        elif got.numel():
            wide = expected.double()
            scale = max(1.0, float(wide[wide.isfinite()].abs().max())) if wide.isfinite().any() else 1.0
            if not torch.allclose(got.double(), wide, rtol=0.0, atol=TOLERANCE[got.dtype] * scale, equal_nan=True):
                worst = float((got.double() - wide).abs().max())
                return f"{source.name} ({source.strategy}): {name} is off by {worst} at scale {scale}"
    return ""
