"""Kernels are told apart by name, and timing's arithmetic holds without a GPU."""

from __future__ import annotations

from math import comb
from pathlib import Path

import pytest

from stitchcuda.tools import origin, timing
from tests.tools import programs


def test_own_kernels_are_found_in_every_spelling(tmp_path: Path) -> None:
    text = """
    __global__ void plain_kernel(float* x) {}
    template <typename T>
    __global__ void __launch_bounds__(256, 2) bounded_kernel(const T* __restrict__ x) {}
    static __global__ __launch_bounds__(kThreads) void
    broken_line_kernel(int n) {}
    """
    programs.write(tmp_path, {"kernels/a.cu": text, "model_new.py": 'CUDA = "__global__ void inline_kernel(int n) {}"'})
    assert set(origin.own_kernels(tmp_path)) == {"plain_kernel", "bounded_kernel", "broken_line_kernel", "inline_kernel"}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("void bounded_kernel<float>(float const*)", "own"),
        ("(anonymous namespace)::bounded_kernel(float*)", "own"),
        ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNN", "vendor"),
        ("void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_tn_align1>(Params)", "vendor"),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int>(...)", "vendor"),
        ("void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)", "framework"),
        ("Memcpy DtoD (Device -> Device)", "framework"),
    ],
)
def test_classes(name: str, kind: str) -> None:
    assert origin.classify(name, ("bounded_kernel",)) == kind


def test_the_interval_of_a_saving_holds_95_percent() -> None:
    """Order statistics: both outer ranks lie on the same side of the median with the binomial's tail."""
    tail = sum(comb(timing.ROUNDS, count) for count in range(timing._RANK + 1)) / 2**timing.ROUNDS
    assert 0.95 <= 1 - 2 * tail < 0.99
