"""Each role is shown what it needs, and a template that names a missing field fails."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest
import tvm_ffi
from jinja2 import UndefinedError

from stitchcuda.engineers import Draft
from stitchcuda.engineers.diagnosis import diagnosis
from stitchcuda.engineers.prompt import _environment, coder_prompt, planner_prompt, verifier_prompt
from stitchcuda.state import BuildResult, Evidence, KernelUsage, ProfileResult, Review, Settings, TimingResult
from stitchcuda.tools.machine.toolkit import find_toolkit, missing

from .briefs import ATTEMPT, NOT_BUILT, PLAN, PROGRAM, REFERENCE, RIGHT, WRONG, assignment, brief


def test_planner_sees_program_costs_and_record() -> None:
    settings = Settings(policy="strict", precision="bf16", goal=1.5)
    text = planner_prompt(brief(settings, history=(ATTEMPT,), plans=(PLAN,), kept=("r07",)))
    for needed in (
        "the reference's own words",
        "NVIDIA H200", "132 SMs", "4300 GB/s",
        "r01: gelu + layer_norm [fusible]", "x [8, 64] float32 strides [64, 1]", "8.45 kB → 4.35 kB", "12 kFLOP", "2 launches",
        "Eager: not timed; 0.02 ms predicted", "floor: 0.8 µs for the whole program as one kernel, bound by launch",
        "12 kFLOP; floor 0.8 µs, bound by launch", "Nominal figures",
        "strict (no framework compute", "bf16 is allowed", "Goal: 1.5×",
        "In the program now: r07", "Plan 1: r01. one region",
        "r01 #0: predicted 5 µs, saving not timed; not kept, then code (not correct). output 0 is wrong",
        "simulator",
    ):  # fmt: skip
        assert needed in text, needed
    assert "None" not in text


def test_planner_compares_prediction_with_measurement() -> None:
    measured = ATTEMPT.model_copy(update={"saving_ms": 0.02, "correct": True, "kept": True, "diagnosis": ""})
    assert "predicted 5 µs, saved 0.02 ms; kept" in planner_prompt(brief(history=(measured,)))


def test_planner_reads_why_a_gpu_was_not_measured() -> None:
    plain = brief()
    device = plain.baseline.device.model_copy(update={"note": "the GPU is busy with something else"})
    text = planner_prompt(dataclasses.replace(plain, baseline=plain.baseline.model_copy(update={"device": device})))
    assert "nothing was measured. (the GPU is busy with something else)\n" in text


def test_coder_starts_from_the_program_and_the_region() -> None:
    text = coder_prompt(assignment(kept=("r07",)))
    for needed in (
        'gelu = aten.gelu.default(x, approximate="tanh")  # [8, 64] float32',
        "layer_norm = aten.layer_norm.default(gelu, [64], self.norm.weight)",
        "### model_new.py\n```python\nclass ModelNew: ...",
        "tasks in it: r07",
        "TVM_FFI_DLL_EXPORT_TYPED_FUNC",
        'never write `"cuda"`',
        "## Answer",
    ):
        assert needed in text, needed
    assert "last draft" not in text
    assert "What the tools say" not in text


@pytest.mark.parametrize(
    ("evidence", "needed"),
    [
        (NOT_BUILT, ['kernels/r01.cu(7): error: identifier "xs" is undefined']),
        (WRONG, ["WRONG, worst error 0.5 (allowed 1e-05, 50,000.0 times too much)", "worst at [3, 63]", "NOT correct"]),
    ],
)
def test_coder_sees_why_the_last_draft_failed(evidence: Evidence, needed: list[str]) -> None:
    draft = Draft(files=PROGRAM | {"kernels/r01.cu": "// last draft"}, note="first try")
    review = Review(bottleneck="it does not build", suggestion="declare xs", route="code", expected_gain="a build")
    text = coder_prompt(assignment(last=draft, evidence=evidence, review=review, ordinal=1))
    for wanted in [*needed, "// last draft", "first try", "Suggestion: declare xs (expected: a build)", "(attempt 1)"]:
        assert wanted in text, wanted
    assert text.count("class ModelNew: ...") == 1, "unchanged files of the draft are not repeated"


def test_coder_is_given_a_generated_kernel_to_start_from() -> None:
    text = coder_prompt(assignment())
    assert "### kernels/gelu_layer_norm_r01.cu" in text
    assert "__global__ void __launch_bounds__" in text
    later = coder_prompt(assignment(last=Draft(files=PROGRAM | {"kernels/r01.cu": "// mine"}), evidence=WRONG, ordinal=1))
    assert "gelu_layer_norm_r01.cu" not in later, "its own draft takes the place"


def test_verifier_sees_evidence_by_tier() -> None:
    draft = Draft(files=PROGRAM | {"kernels/r01.cu": "// the change"}, note="fused")
    text = verifier_prompt(assignment(), draft, RIGHT)
    for needed in ("tier simulated", "Nothing was timed", "own kernels 90%", "// the change", "exactly one"):
        assert needed in text, needed
    timing = TimingResult(
        reference_ms=2.0, previous_ms=1.5, program_ms=1.0, saving_ms=0.5, saving_low_ms=0.4, saving_high_ms=0.6, samples=50
    )
    timed = Evidence(build=BuildResult(ok=True), check=RIGHT.check, timing=timing, tier="timed")
    text = verifier_prompt(assignment(), draft, timed)
    assert "2.00× over eager" in text
    assert "Saved against the program before it: 0.5 ms (95 % interval 0.4 to 0.6" in text
    assert "do not claim a speed" not in text


def test_diagnosis_tells_resources_and_profiles() -> None:
    usage = KernelUsage(name="k", registers=255, shared_bytes=1024, spill_bytes=64)
    text = diagnosis(
        Evidence(
            build=BuildResult(ok=True, kernels=(usage,)),
            system=ProfileResult(tool="nsys", skipped="no GPU"),
            kernels=ProfileResult(tool="ncu", bottleneck="memory throughput 31 %", lines=("k: 12 µs",)),
            tier="compiled",
        )
    )
    assert "k: 255 registers, 1024 B shared, 64 B spilled" in text
    assert "nsys: skipped (no GPU)." in text
    assert "ncu: memory throughput 31 %\n- k: 12 µs" in text


def test_a_field_that_nobody_gives_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="nobody_gives_this"):
        _environment().from_string("{{ nobody_gives_this }}").render()


def test_an_opaque_program_is_said_to_be_one() -> None:
    plain = brief()
    opaque = dataclasses.replace(plain, baseline=plain.baseline.model_copy(update={"opaque": "control flow depends on data"}))
    text = planner_prompt(opaque)
    assert "could not be captured (control flow depends on data)" in text
    assert REFERENCE in text


def test_the_example_in_the_prompt_builds_and_runs(tmp_path: Path) -> None:
    """On this machine's own compilers: what the model is told to write must be right."""
    kit = find_toolkit()
    assert kit is not None, missing()
    text = coder_prompt(assignment()).split("The form, for one launcher")[1]
    for fence, name in (("cuda", "scale.cu"), ("cpp", "scale_binding.cc")):
        (tmp_path / name).write_text(text.split(f"```{fence}\n")[1].split("```")[0])
    command: list[str | Path] = [kit.nvcc, "-cubin", "-arch=sm_90a", "-o", tmp_path / "scale.cubin", tmp_path / "scale.cu"]
    subprocess.run(command, check=True)
    folders = [*kit.includes, tvm_ffi.libinfo.find_include_path(), tvm_ffi.libinfo.find_dlpack_include_path()]
    includes = [f"-I{folder}" for folder in folders]
    subprocess.run(["g++", "-std=c++17", "-fsyntax-only", *includes, tmp_path / "scale_binding.cc"], check=True)
