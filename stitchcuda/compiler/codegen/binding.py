"""Writes the tvm-ffi binding of a generated kernel: C++ that checks every tensor and then calls the launcher.

It is compiled by g++ with CUDA's include folder; nvcc is not needed. A tensor that does not fit raises ValueError or TypeError
with the argument's name, what was expected and what was given; a failed launch raises RuntimeError with CUDA's message.

Where to look next: `compiler/codegen/source_file.py` (the launcher that it calls), `compiler/codegen/emit.py` (the caller).
"""

from __future__ import annotations

from stitchcuda.compiler.codegen.canonical_nest import CanonicalNest
from stitchcuda.compiler.codegen.source_file import pointer_parameters
from stitchcuda.compiler.lower.ir import Argument

_DLPACK = {
    "float32": "kDLFloat, 32", "float64": "kDLFloat, 64", "float16": "kDLFloat, 16", "bfloat16": "kDLBfloat, 16",
    "int64": "kDLInt, 64", "int32": "kDLInt, 32", "int16": "kDLInt, 16", "int8": "kDLInt, 8", "uint8": "kDLUInt, 8",
    "bool": "kDLBool, 8",
}  # fmt: skip

_TEXT = """\
// Binding of @NAME@: checks its tensors and launches it on the caller's current stream.

#include <cuda_runtime_api.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/dtype.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/extra/cuda/device_guard.h>
#include <tvm/ffi/function.h>

#include <cstdint>
#include <initializer_list>
#include <sstream>
#include <string>

extern "C" int @NAME@_launch(@SIGNATURE@);

namespace {

using Sizes = std::initializer_list<std::int64_t>;

template <typename Range>
std::string text(const Range& values) {
  std::ostringstream out;
  const char* comma = "";
  for (const std::int64_t value : values) {
    out << comma << value;
    comma = ", ";
  }
  return "(" + out.str() + ")";
}

// Refuses a tensor that the kernel was not generated for.
void expect(const tvm::ffi::TensorView& tensor, const char* name, DLDataType dtype, Sizes shape, Sizes strides,
            DLDevice device) {
  const std::string where = std::string("@NAME@: argument ") + name + ": expected ";
  if (tensor.device().device_type != kDLCUDA)
    TVM_FFI_THROW(ValueError) << where << "a CUDA tensor, got one on device type " << tensor.device().device_type;
  if (tensor.device().device_id != device.device_id)
    TVM_FFI_THROW(ValueError) << where << "device " << device.device_id << " as the first argument, got device "
                              << tensor.device().device_id;
  const DLDataType got = tensor.dtype();
  if (got.code != dtype.code || got.bits != dtype.bits || got.lanes != dtype.lanes)
    TVM_FFI_THROW(TypeError) << where << "elements of type " << tvm::ffi::DLDataTypeToString(dtype) << ", got "
                             << tvm::ffi::DLDataTypeToString(got);
  bool same = static_cast<std::size_t>(tensor.ndim()) == shape.size();
  for (std::size_t axis = 0; same && axis < shape.size(); ++axis) same = tensor.size(axis) == shape.begin()[axis];
  if (!same) TVM_FFI_THROW(ValueError) << where << "shape " << text(shape) << ", got " << text(tensor.shape());
  for (std::size_t axis = 0; same && axis < shape.size(); ++axis)
    same = shape.begin()[axis] == 1 || tensor.stride(axis) == strides.begin()[axis];
  if (!same && tensor.numel() > 0)
    TVM_FFI_THROW(ValueError) << where << "strides " << text(strides) << ", got " << text(tensor.strides());
}

void* data(const tvm::ffi::TensorView& tensor) { return static_cast<char*>(tensor.data_ptr()) + tensor.byte_offset(); }
@WORKSPACE_CHECK@
void call(@VIEWS@) {
  const DLDevice device = @FIRST@.device();
@CHECKS@
@LAUNCH@}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(@NAME@, call);
"""

_WORKSPACE = """
// Scratch memory for partial results.
void expect_workspace(const tvm::ffi::TensorView& tensor, DLDevice device) {
  const std::string where = "@NAME@: argument workspace: expected ";
  if (tensor.device().device_type != kDLCUDA || tensor.device().device_id != device.device_id)
    TVM_FFI_THROW(ValueError) << where << "a tensor on CUDA device " << device.device_id << ", got device type "
                              << tensor.device().device_type << ", device " << tensor.device().device_id;
  const DLDataType got = tensor.dtype();
  if (got.code != kDLUInt || got.bits != 8 || got.lanes != 1)
    TVM_FFI_THROW(TypeError) << where << "elements of type uint8, got " << tvm::ffi::DLDataTypeToString(got);
  if (tensor.ndim() != 1 || tensor.size(0) < @BYTES@ || (tensor.size(0) > 1 && tensor.stride(0) != 1))
    TVM_FFI_THROW(ValueError) << where << "@BYTES@ contiguous bytes, got shape " << text(tensor.shape());
  if (reinterpret_cast<std::uintptr_t>(data(tensor)) % 16 != 0)
    TVM_FFI_THROW(ValueError) << where << "a start that is aligned to 16 bytes";
}
"""

_LAUNCH = """\
  const tvm::ffi::CUDADeviceGuard guard(device.device_id);
  const auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  if (const int error = @NAME@_launch(@POINTERS@))
    TVM_FFI_THROW(RuntimeError) << "@NAME@: " << cudaGetErrorString(static_cast<cudaError_t>(error));
"""


def _braces(values: tuple[int, ...]) -> str:
    return "{" + ", ".join(map(str, values)) + "}"


def _check(argument: Argument) -> str:
    return (
        f'  expect({argument.name}, "{argument.name}", DLDataType{{{_DLPACK[argument.dtype]}, 1}}, '
        f"{_braces(argument.shape)}, {_braces(argument.strides)}, device);"
    )


def binding_text(nest: CanonicalNest, workspace_bytes: int, empty: bool) -> str:
    """Returns the binding of `nest.name` as C++. With `empty` nothing is launched, but tensors are checked all the same."""
    names = [argument.name for argument in nest.arguments] + (["workspace"] if workspace_bytes else [])
    checks = [_check(argument) for argument in nest.arguments]
    if workspace_bytes:
        checks.append("  expect_workspace(workspace, device);")
    pointers = ", ".join([*(f"data({name})" for name in names), "stream"])
    parts = {
        "WORKSPACE_CHECK": _WORKSPACE if workspace_bytes else "",
        "LAUNCH": "  // The result has no elements: there is nothing to launch.\n" if empty else _LAUNCH,
        "SIGNATURE": ", ".join(pointer_parameters(nest, workspace_bytes > 0)),
        "VIEWS": ", ".join(f"tvm::ffi::TensorView {name}" for name in names),
        "FIRST": names[0],
        "CHECKS": "\n".join(checks),
        "POINTERS": pointers,
        "BYTES": str(workspace_bytes),
        "NAME": nest.name,
    }
    text = _TEXT
    for key, value in parts.items():
        text = text.replace(f"@{key}@", value)
    return text
