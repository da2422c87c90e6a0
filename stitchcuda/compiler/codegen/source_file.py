"""Assembles a generated `.cu` file: heading, constants, device functions, kernels, and the launcher on raw pointers.

The launcher returns a `cudaError_t` as int and never synchronises. Where kernels use wide accesses, it calls the instance with
16-byte accesses when every pointer is aligned to 16 bytes, and the element-by-element instance otherwise. It checks no tensor.

Where to look next: `compiler/codegen/binding.py` (checks the tensors first), `compiler/codegen/device_functions.py`.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass, field

from stitchcuda.compiler.codegen.canonical_nest import CanonicalNest
from stitchcuda.compiler.codegen.device_functions import function_texts
from stitchcuda.compiler.codegen.expressions import STORAGE
from stitchcuda.compiler.lower.ir import Argument

_WIDTH = 120


@dataclass
class KernelFunction:
    """One `__global__` function: its tensors, body, launch and what it calls. `parameters` are further pointers, as written in
    its signature, with their values in `extras` (texts in the launcher)."""

    name: str
    arguments: list[Argument]
    lines: list[str]
    threads: int
    blocks: int
    functions: set[str]
    templated: bool
    parameters: list[str] = field(default_factory=list)
    shared_bytes: int = 0
    extras: list[str] = field(default_factory=list)


def indent(lines: list[str]) -> list[str]:
    """Returns the lines indented by two spaces; preprocessor lines stay at the margin."""
    return [f"  {line}" if line and not line.startswith("#") else line for line in lines]


def comment_lines(text: str) -> list[str]:
    """Returns `text` as C++ comment lines."""
    return ["// " + line for part in text.splitlines() for line in textwrap.wrap(part, _WIDTH - 3)]


def _wrapped(head: str, items: list[str], tail: str) -> list[str]:
    """Returns `head(items)tail` on a single line if it fits, else with the items on indented lines of their own."""
    line = f"{head}({', '.join(items)}){tail}"
    if len(line) <= _WIDTH:
        return [line]
    margin = " " * (len(head) - len(head.lstrip()) + 4)
    lines, current = [f"{head}("], margin + items[0]
    for item in items[1:]:
        if len(current) + len(item) + 3 > _WIDTH:
            lines.append(current + ",")
            current = margin + item
        else:
            current += f", {item}"
    return [*lines, f"{current}){tail}"]


def _parameter(argument: Argument) -> str:
    kind = STORAGE[argument.dtype]
    if argument.role == "inout":
        return f"{kind}* {argument.name}"
    return f"{'const ' if argument.role == 'in' else ''}{kind}* __restrict__ {argument.name}"


def _kernel(function: KernelFunction) -> list[str]:
    parameters = [_parameter(a) for a in function.arguments] + function.parameters
    head = f"__global__ void __launch_bounds__({function.threads}) {function.name}"
    lines = ["template <bool kAligned>"] if function.templated else []
    return [*lines, *_wrapped(head, parameters, " {"), *function.lines, "}"]


def _cast(argument: Argument) -> str:
    kind = STORAGE[argument.dtype]
    return f"static_cast<{kind if argument.role != 'in' else f'const {kind}'}*>({argument.name})"


def _launch(function: KernelFunction) -> list[str]:
    name = f"{function.name}<kAligned>" if function.templated else function.name
    values = [_cast(argument) for argument in function.arguments] + function.extras
    lines = []
    if function.shared_bytes > 48 * 1024:
        lines += [
            f"  if (const cudaError_t error = cudaFuncSetAttribute({name}, cudaFuncAttributeMaxDynamicSharedMemorySize, "
            f"{function.shared_bytes}))",
            "    return static_cast<int>(error);",
        ]
    shape = f"{function.blocks}, {function.threads}, {function.shared_bytes}, stream"
    return lines + _wrapped(f"  {name}<<<{shape}>>>", values, ";")


def _headers(nest: CanonicalNest, templated: bool) -> list[str]:
    types = {argument.dtype for argument in nest.arguments} | {step.dtype for step in nest.steps}
    lines = ["#include <cuda_runtime.h>"]
    if "float16" in types:
        lines.insert(0, "#include <cuda_fp16.h>")
    if "bfloat16" in types:
        lines.insert(0, "#include <cuda_bf16.h>")
    return [*lines, "", *(["#include <cmath>", "#include <cstdint>"] if templated else ["#include <cmath>"])]


def pointer_parameters(nest: CanonicalNest, workspace: bool) -> list[str]:
    """Returns the launcher's parameters in C++: a pointer per tensor, the workspace if there is one, the stream."""
    out = [f"{'const ' if argument.role == 'in' else ''}void* {argument.name}" for argument in nest.arguments]
    return out + (["void* workspace"] if workspace else []) + ["cudaStream_t stream"]


def assemble(
    nest: CanonicalNest,
    functions: list[KernelFunction],
    constants: list[str],
    strategy: str,
    workspace: bool,
    packed: list[str],
) -> str:
    """Returns the text of the `.cu` file. `packed` names the tensors that are accessed 16 bytes at a time."""
    templated = any(function.templated for function in functions)
    shape = " x ".join(map(str, nest.sizes[: nest.kept])) or "1"
    if nest.kept < len(nest.sizes):
        shape += f" rows, reduced over {' x '.join(map(str, nest.sizes[nest.kept :]))}"
    lines = comment_lines(f"{nest.name}: {nest.comment}" if nest.comment else nest.name)
    lines += comment_lines(f"Loops: {shape}. Strategy: {strategy}.")
    lines += ["", *_headers(nest, templated), "", "namespace {", ""]
    written = " ".join(line for function in functions for line in function.lines)
    lines += [line for line in constants if re.search(rf"\b{line.split()[2]}\b", written)]
    for text in function_texts(set().union(*(function.functions for function in functions))):
        lines += ["", *text.splitlines()]
    for function in functions:
        lines += ["", *_kernel(function)]
    parameters = pointer_parameters(nest, workspace)
    names = [parameter.split()[-1].lstrip("*") for parameter in parameters]
    body = [line for function in functions for line in _launch(function)]
    body.append("  return static_cast<int>(cudaGetLastError());")
    if templated:
        lines += ["", "template <bool kAligned>", *_wrapped("int launch", parameters, " {"), *body, "}"]
    lines += ["", "}  // namespace", ""]
    lines += _wrapped(f'extern "C" int {nest.name}_launch', parameters, " {")
    if templated:
        lines.append("  // Wide accesses need aligned tensors; others are handled element by element.")
        lines.append("  const auto address = [](const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); };")
        union = " | ".join(f"address({name})" for name in packed)
        joined = textwrap.wrap(f"const bool aligned = ({union}) % 16 == 0;", _WIDTH - 6)
        lines += [("  " if number == 0 else "      ") + text for number, text in enumerate(joined)]
        call = ", ".join(names)
        lines.append(f"  return aligned ? launch<true>({call}) : launch<false>({call});")
    else:
        lines += body
    return "\n".join([*lines, "}", ""])
