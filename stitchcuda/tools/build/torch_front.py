"""Writes a lighter header in place of torch's for one source, with only the declarations that the source can use.

`torch/types.h` comes to 370,000 lines, which nvcc reads three times; a kernel's host code uses about a hundred. The lighter
header ("front") has torch's own `ATen/core/Tensor.h`, the operators whose names occur in the source, the factories of namespace
`torch` that it names (`torch::empty` is not `at::empty`: it sets requires_grad), the names that `torch/types.h` adds, and
pybind11's casters if it uses that. A source that needs more does not compile with it, and the caller compiles it with the whole
headers. A source whose `#if` depends on a macro that torch may define gets no front. No compiler runs here.
Where to look next: `tools/build/extension_build.py` (which compiles with it), `tools/build/bindings.py`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from stitchcuda.simulator.source import masked as blanked

VERSION = "front 1"                        # part of the key of a cached object
# The factories need one function of autograd's headers, which are half of all of them: so it is compiled once, as a source.
VARIABLE = """\
#include <torch/csrc/autograd/variable.h>
namespace stitchcuda {
__attribute__((used, visibility("hidden")))
at::Tensor (*make_variable)(at::Tensor, bool, bool) = &torch::autograd::make_variable;
}
"""
_WHOLE = ("torch/types.h", "torch/extension.h", "torch/all.h", "torch/torch.h", "ATen/ATen.h")
# Every operator's header includes these two and uses neither; they take three times as long as everything else.
_GUARD, _CONTEXT = "ATen/DeviceGuard.h", "ATen/Context.h"
_OF_LISTS = re.compile(r"(?ms)^#include <ATen/core/IListRef.h>\n|^inline [^\n]*\(ITensorListRef \w+\) \{.*?^\}\n")
_FRONT = "stitchcuda_torch_front.h"
_BASE = (
    "ATen/core/Tensor.h", "ATen/DeviceGuard.h", "ATen/Dispatch.h", "ATen/TracerMode.h", "ATen/core/LegacyTypeDispatch.h",
    "c10/util/Exception.h", "algorithm", "cfloat", "climits", "cmath", "functional", "limits", "memory", "optional", "string",
    "tuple", "vector",
)  # fmt: skip
# The headers of every caster in torch/extension.h (a test compares them), and of wrap_pybind_function.
_PYTHON = (
    "torch/csrc/Device.h", "torch/csrc/Dtype.h", "torch/csrc/DynamicTypes.h", "torch/csrc/Exceptions.h",
    "torch/csrc/python_headers.h", "torch/csrc/utils/pybind.h",
)  # fmt: skip
_LISTS = {"ITensorListRef": "ATen/core/IListRef.h", "c10::List<": "ATen/core/List.h"}
_INCLUDE = re.compile(r'(?m)^[ \t]*#[ \t]*include[ \t]*[<"](?P<name>[^>"\n]+)[>"]')
_CONDITION = re.compile(r"(?m)^[ \t]*#[ \t]*(?:if|ifdef|ifndef|elif|elifdef|elifndef)\b(?P<rest>(?:[^\\\n]+|\\\n?)*+)")
_DEFINED = re.compile(r"(?m)^[ \t]*#[ \t]*define[ \t]+(?P<name>\w+)")
_WORD = re.compile(r"\b[A-Za-z_]\w*")
_FACTORY = re.compile(r"(?ms)^inline at::Tensor (?P<name>\w+)\(.*?^\}\n")
_NAMES = re.compile(r"(?ms)^namespace torch \{.*?^\} // namespace torch$")
_MAKE_VARIABLE = re.compile(
    r"inline Variable make_variable\(\s*at::Tensor data,\s*bool requires_grad = false,"
    r"\s*bool allow_tensor_metadata_change = true\)"
)
_BOUND = re.compile(r"\bPYBIND11_\w+|\bpy(?:bind11)?\b")
_BEYOND = re.compile(
    r"\bTORCH_LIBRARY|\bTORCH_VERSION|\bTHPVariable"
    r"|\btorch::(?:nn|autograd|jit|optim|data|serialize|indexing|special|fft|linalg|cuda|utils|tensor|RegisterOperators|NoGradGuard)\b"
)
_KNOWN = frozenset((
    "defined", "__CUDA_ARCH__", "__CUDACC__", "__NVCC__", "__cplusplus", "CUDA_VERSION", "CUDART_VERSION",
    "__CUDACC_VER_MAJOR__", "__CUDACC_VER_MINOR__", "NDEBUG", "USE_ROCM", "__HIPCC__", "__HIP_PLATFORM_AMD__", "_WIN32",
    "_MSC_VER", "__linux__", "__GNUC__", "__clang__", "TORCH_EXTENSION_NAME", "__CUDA_NO_HALF_OPERATORS__", "STITCHCUDA_MASKS",
))  # fmt: skip


def write_front(texts: Sequence[str], headers: Path, folder: Path, defined: Collection[str] = ()) -> bool:
    """Writes the front for a source into `folder`, which has to be searched before torch's own headers.

    Returns False if the source needs all of torch's headers. `texts`: the source and its own headers; `headers`: torch's
    `include`; `defined`: macros of the command line.
    """
    codes = [blanked(text) for text in texts]
    included = {found["name"] for text in texts for found in _INCLUDE.finditer(text)}
    words = {word for code in codes for word in _WORD.findall(code)}
    if not included.intersection(_WHOLE) or included.intersection((_GUARD, _CONTEXT)):
        return False
    if any(_BEYOND.search(code) for code in codes):
        return False
    own = {found["name"] for code in codes for found in _DEFINED.finditer(code)}
    asked = {word for code in codes for found in _CONDITION.finditer(code) for word in _WORD.findall(found["rest"])}
    if {word for word in asked - own - _KNOWN - set(defined) if not word.startswith("STITCHCUDA_MASK_")}:
        return False
    python = "torch/extension.h" in included and any(_BOUND.search(code) for code in codes)
    made = _front(words, headers, _PYTHON if python else ())
    if made is None:
        return False
    guard = _OF_LISTS.sub("", (headers / _GUARD).read_text(encoding="utf-8"))      # device_of(tensor) is in it
    texts_of = {_FRONT: made, _GUARD: guard, _CONTEXT: "#pragma once\n"}
    texts_of |= dict.fromkeys(_WHOLE, f"#pragma once\n#include <{_FRONT}>\n")
    for name, text in texts_of.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return True


def may_use_front(texts: Sequence[str]) -> bool:
    """Whether one of these sources may be compiled with the front, so that `VARIABLE` has to be linked with it."""
    return any(found["name"] in _WHOLE for text in texts for found in _INCLUDE.finditer(text))


def _front(words: Collection[str], headers: Path, python: Sequence[str]) -> str | None:
    """Returns the front for a source with these words; None if torch's headers are not written as is expected here."""
    try:
        names = _NAMES.search((headers / "torch/csrc/api/include/torch/types.h").read_text(encoding="utf-8"))
        factories = (headers / "torch/csrc/autograd/generated/variable_factories.h").read_text(encoding="utf-8")
        known = _MAKE_VARIABLE.search((headers / "torch/csrc/autograd/variable.h").read_text(encoding="utf-8"))
    except OSError:
        return None
    if names is None or known is None:
        return None
    whole = [found.group() for found in _FACTORY.finditer(factories)]
    if factories.count("\ninline ") != len(whole):
        return None                        # a factory that is written otherwise would be taken for the operator of its name
    operators = [word for word in sorted(words) if (headers / "ATen/ops" / f"{word}.h").is_file()]
    declared = "".join((headers / "ATen/ops" / f"{word}.h").read_text(encoding="utf-8") for word in operators)
    includes = [*_BASE, *python, *(header for mark, header in _LISTS.items() if mark in declared)]
    includes += [f"ATen/ops/{word}.h" for word in operators]
    return "\n".join((
        "#pragma once",
        "#pragma push_macro(\"AT_PER_OPERATOR_HEADERS\")",
        "#undef AT_PER_OPERATOR_HEADERS",
        "#define AT_PER_OPERATOR_HEADERS",
        *(f"#include <{name}>" for name in includes),
        "#pragma pop_macro(\"AT_PER_OPERATOR_HEADERS\")",
        names.group(),
        "namespace torch::autograd {",
        "at::Tensor make_variable(at::Tensor data, bool requires_grad = false, bool allow_tensor_metadata_change = true);",
        "}",
        "namespace torch {",
        "using Deleter = std::function<void(void*)>;",
        "using at::MemoryFormat;",
        *(found.group() for found in _FACTORY.finditer(factories) if found["name"] in words),
        "}  // namespace torch",
        "",
    ))  # fmt: skip
