"""What a coder is told of exactness: figures by output, from checks, and the bits of convolutions from the kernels that ran."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from stitchcuda.compiler.regions.partition import partition
from stitchcuda.engineers.error_bounds import allowed_bits, error_bounds
from stitchcuda.engineers.operator_significand import ANY, bits_of_kernel, describe_significand
from stitchcuda.engineers.prompt import planner_prompt
from stitchcuda.engineers.prompt_values import PRECISIONS
from stitchcuda.state import Evidence, OutputError, Settings
from stitchcuda.verify.compare.bound import judge, measure_error, pool_measures
from tests.compiler.eager import captured
from tests.engineers.briefs import brief
from tests.engineers.test_prompts import ROOM
from tests.replay import Recording

RECORDED = Path(__file__).parents[1] / "recordings" / "dense_transition.json.gz"
FP32 = OutputError(
    name="y", max_error=1e-7, max_bound=3e-6, norm_error=1e-7, norm_bound=1e-6, ok=True, bits=23.0, bits_of_reference=23.9
)


def test_each_output_and_buffer_of_a_recorded_session_has_its_figures() -> None:
    recording = Recording(RECORDED)
    (final,) = [Evidence.model_validate(recording.data["final"])]
    assert final.check is not None
    output, mean, variance, count = error_bounds(final.check.outputs).split("; ")
    assert output.startswith("output: the reference's own error leaves 1")
    assert output.endswith("plain TF32 or fp16 products may pass"), "its convolution is TF32"
    assert mean.startswith("buffer:transition.0.running_mean: the reference's own error leaves 24.0 bits, at least 20.7 are")
    assert "fail and split ones (three fp16 terms) pass" in mean
    assert "running_var" in variance
    assert count == "buffer:transition.0.num_batches_tracked: exact"


def test_the_bits_that_are_needed_are_those_of_the_judges_bound() -> None:
    exact = torch.randn(64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    given = exact.float()
    bound = pool_measures([measure_error(given, exact)])
    found = judge("y", given, given, exact, bound)
    assert found.bits_allowed == pytest.approx(-torch.log2(torch.tensor(bound.norm_relative)).item(), abs=0.06)
    assert allowed_bits(found) == found.bits_allowed
    assert allowed_bits(FP32) == pytest.approx(23.9 - 3.3, abs=0.05), "records without it"


def test_equal_outputs_are_told_together_and_nothing_is_made_up() -> None:
    assert error_bounds([FP32, FP32.model_copy(update={"name": "z"})]).startswith("y, z: ")
    assert error_bounds([FP32.model_copy(update={"bits_of_reference": None})]) == ""
    assert error_bounds(()) == ""
    generic, known = (planner_prompt(brief(Settings(), bounds=bounds), ROOM) for bounds in ((), (FP32,)))
    assert PRECISIONS["reference"] in generic
    assert "split products (three fp16 terms) pass" in generic
    assert "By output" not in generic
    assert f"By output, on the last check's inputs: {error_bounds([FP32])}." in known


@pytest.mark.parametrize(
    ("kernel", "bits"),
    [
        ("sm90_xmma_fprop_implicit_gemm_f32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x32", 11),
        ("void cutlass__5x_cudnn::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32_128x128_16x4_nhwc_align4>", 11),
        ("sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nhwckrsc_nchw_tilesize128x128x8", 24),
        ("implicit_convolve_sgemm", 24), ("cudnn::winograd_nonfused::winogradForwardData4x4", 24),
        ("conv_depthwise2d_forward_kernel_generic", 24), ("Kernel2", None), ("nchwToNhwcKernel", None),
    ],
)  # fmt: skip
def test_a_convolutions_kernel_says_its_bits(kernel: str, bits: int | None) -> None:
    assert bits_of_kernel(kernel) == bits


def test_what_ran_counts_before_what_torch_does_by_default() -> None:
    graph = captured(torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3)), torch.empty(1, 3, 8, 8))
    (region,) = partition(graph)
    assert "24 in its convolutions (fp32, by the kernels that eager ran)" in describe_significand(region, {"*": 24, ANY: 11})
    assert "11 in its convolutions (TF32" in describe_significand(region, {"*": 11})
    assert "11 in the least exact" in describe_significand(region, {ANY: 11})
    assert "by torch's default" in describe_significand(region, {"other": 24})
