"""A kernel's own name out of what profilers and demanglers print."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from stitchcuda.tools.build.kernel_names import base_name, calls_vendors


@pytest.mark.parametrize(
    ("printed", "name"),
    [
        ("void ns::scale<float>(float*)", "scale"),
        ("scale(float const*, int)", "scale"),
        ("scale", "scale"),
        ("scale#2", "scale#2"),
        ("(anonymous namespace)::scale(float*)", "scale"),
        ("void at::native::(anonymous namespace)::k<4>(int)", "k"),
        ("at::native::<unnamed>::k", "k"),
        ("void at::native::<unnamed>::k<4, at::native::<unnamed>::Op<float>>(int)", "k"),
        ("std::enable_if<true, void>::type kern<float>(float*)", "kern"),
        ("std::enable_if<((3)>(2)), void>::type ns::kern<float>(float*)", "kern"),
        ("decltype (f(x)) kern<float>(float*)", "kern"),
        ("void kern<&(ns::add(float, float)), (bool)1>(float*)", "kern"),
        ("void outer<float>::inner<int>(float*)", "inner"),
        ("Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD"),
        ("[CUDA memcpy HtoD]", "[CUDA memcpy HtoD]"),
        ("", ""),
    ],
)
def test_the_base_name_has_no_types_and_namespaces(printed: str, name: str) -> None:
    assert base_name(printed) == name


def test_a_name_without_end_takes_time_in_proportion() -> None:
    assert base_name(") " * 1_000_000) == ") " * 999_999 + ")"


@pytest.mark.parametrize(("called", "vendors"), [("cublasLtMatmul", True), ("cudnnCreate", True), ("my_cublas", False)])
def test_a_library_that_calls_a_vendors_names_its_functions(called: str, vendors: bool, tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text(f"int {called}(void); int run(void) {{ return {called}(); }}")
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", tmp_path / "a.so", tmp_path / "a.c"], check=True)
    assert calls_vendors(tmp_path / "a.so") is vendors
