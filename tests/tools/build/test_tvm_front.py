"""A source that is compiled with the light header does what it does with tvm-ffi's own, and errors are those of the latter."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import tvm_ffi

from stitchcuda.tools.build import bindings, nvcc, tvm_front
from stitchcuda.tools.device import toolkit

pytestmark = pytest.mark.skipif(toolkit.find_toolkit() is None, reason="needs nvcc")

SOURCE = """
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>
#include <vector>

using tvm::ffi::TensorView;

double sum(TensorView x, const TensorView& y, int64_t times, float scale, bool negative) {
  TVM_FFI_ICHECK_EQ(x.ndim(), 1) << "x must be flat";
  TVM_FFI_CHECK(x.device().device_type == kDLCPU, ValueError) << "x is not on the host";
  if (x.size(-1) != y.shape()[0]) TVM_FFI_THROW(ValueError) << "sizes " << x.numel() << " and " << y.numel();
  if (x.dtype() != DLDataType{kDLFloat, 32, 1}) TVM_FFI_THROW(TypeError) << "x has other numbers";
  double total = 0;
  for (int64_t i = 0; i < x.size(0); ++i) {
    total += static_cast<float*>(x.data_ptr())[i * x.stride(0)] * static_cast<float*>(y.data_ptr())[i * y.strides()[0]];
  }
  return total * times * scale * (negative ? -1 : 1) + (x.is_contiguous() ? 0.5 : 0.0);
}
void nothing() {}
bool axis(TensorView x, int place) { return x.size(place) > 2; }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(sum, sum)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(nothing, nothing)
TVM_FFI_DLL_EXPORT_TYPED_FUNC(axis, axis)
"""


def library(folder: Path, source: str) -> nvcc.Library:
    (folder / "program").mkdir(parents=True)
    (file := folder / "program" / "binding.cc").write_text(source)
    return nvcc.library([file], arch="sm_90a", cache=folder / "cache", root=file.parent, binding=bindings.tvm())


def answers(path: Path) -> list[str]:
    """What the functions of SOURCE answer to good and to bad arguments, as text."""
    module, x, y = tvm_ffi.load_module(str(path)), torch.arange(6.0), torch.arange(6.0) + 1
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("sum", (x, y, 2, 0.5, True)), ("sum", (x[::2], y[:3], True, 1, 0)), ("sum", (x, y[:2], 1, 1.0, False)),
        ("sum", (x.reshape(2, 3), y, 1, 1.0, False)), ("sum", (x.double(), y, 1, 1.0, False)), ("sum", (x, y, 1.5, 1.0, False)),
        ("sum", (x, y, 1, "a", False)), ("sum", (3, y, 1, 1.0, False)), ("sum", (x, y)), ("sum", (x, y, None, 1.0, False)),
        ("nothing", ()), ("axis", (x, 0)), ("axis", (x, -2)), ("axis", (x, True)),
    ]  # fmt: skip
    found = []
    for name, arguments in calls:
        try:
            found.append(repr(getattr(module, name)(*arguments)))
        except Exception as error:
            said = str(error).splitlines()[0].partition(" when calling")[0]  # tvm-ffi's goes on with the function's types
            found.append(f"{type(error).__name__}: {said}")
    return found


def test_answers_are_those_of_tvm_ffis_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tvm_front.light_order(("g++", "-c", "x.cc"), [SOURCE]) is not None
    light = library(tmp_path / "light", SOURCE)
    monkeypatch.setattr(tvm_front, "light_order", lambda order, texts: None)
    whole = library(tmp_path / "whole", SOURCE)
    assert light.path is not None, light.log
    assert whole.path is not None, whole.log
    assert b"stitchcuda" not in whole.path.read_bytes()
    assert light.path.stat().st_size < whole.path.stat().st_size
    found = answers(light.path)
    assert found == answers(whole.path)
    assert sum("Error" in text for text in found) == 10


def test_a_source_that_uses_more_is_compiled_with_all_headers(tmp_path: Path) -> None:
    more = SOURCE + """
    #include <tvm/ffi/string.h>
    tvm::ffi::String echo(tvm::ffi::String given) { return given; }
    TVM_FFI_DLL_EXPORT_TYPED_FUNC(echo, echo)
    """
    built = library(tmp_path, more)
    assert built.path is not None, built.log
    assert tvm_ffi.load_module(str(built.path)).echo("x") == "x"


def test_an_error_is_that_of_tvm_ffis_headers(tmp_path: Path) -> None:
    built = library(tmp_path, SOURCE.replace("x.numel()", "x.no_such()"))
    assert built.path is None
    assert "no_such" in built.log
    assert "stitchcuda_tvm_front" not in built.log


def test_a_source_that_asks_for_a_macro_gets_all_headers() -> None:
    assert tvm_front.light_order(("g++", "-c", "x.cc"), ["#ifdef TVM_FFI_FUNCTION_H_\n#endif\n" + SOURCE]) is None
    assert tvm_front.light_order(("g++", "-c", "x.cc"), ["int x;"]) is None
