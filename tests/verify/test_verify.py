"""The verdict of `stitchcuda verify`, the device it is for, and foreign programs, without a GPU."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from stitchcuda.cli import summary
from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.state import BuildResult, CheckResult, KernelRole
from stitchcuda.tools.build import nvcc
from stitchcuda.tools.device import device
from stitchcuda.tools.device.device import device_facts, resolve_target
from stitchcuda.tools.profile import ncu, nsys
from stitchcuda.verify.api import Verdict, Verifier, require_program, shorten, verify
from stitchcuda.verify.policy import host_tasks, policy_reasons
from tests.verify import programs
from tests.verify.test_timing import timed_result

NO_GPU = pytest.mark.skipif(device.gpu() is not None, reason="this machine has a GPU")

BRIDGE = """
void gate(tvm::ffi::TensorView y, tvm::ffi::TensorView scale, tvm::ffi::TensorView x, tvm::ffi::TensorView out, double gain) {
  TVM_FFI_ICHECK(y.device().device_type == kDLCUDA);
  auto at = [](const tvm::ffi::TensorView& t) { return static_cast<float*>(t.data_ptr()); };
  gate_launch(at(y), at(scale), at(x), at(out), float(gain), int(y.size(0)), int(y.size(1)), nullptr);
}
"""
FORWARD = "return torch.relu(y * self.scale + x) * gain"
INLINE = (
    programs.REFERENCE.replace("class Model(", "class ModelNew(").replace(
        FORWARD, "out = torch.empty_like(y); MODULE.gate(y, self.scale, x, out, gain); return out"
    )
    + f"""
import tvm_ffi.cpp
MODULE = tvm_ffi.cpp.load_inline("gate_inline", cuda_sources={programs.KERNEL + BRIDGE!r}, functions=["gate"])
"""
)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reference") / "gated.py"
    path.write_text(programs.REFERENCE)
    return path


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def verifier(reference: Path, cache: Path) -> Iterator[Verifier]:
    with Verifier(reference, target="sim", cache=cache, seeds=2) as made:
        yield made


def verified(program: Path, reference: Path, cache: Path) -> Verdict:
    return verify(program, reference, target="sim", policy="stitched", precision="reference", cache=cache, seeds=2)


def test_a_stitched_program_is_accepted(tmp_path: Path, reference: Path, cache: Path) -> None:
    found = verified(programs.kernel_program(tmp_path), reference, cache)
    assert found.accepted, found.reasons
    assert found.tier == "simulated"
    assert any("only a GPU shows" in note for note in found.notes)
    assert {"source", "inputs", "build and load", "values", "kernels"} <= found.seconds.questions.keys()
    assert 0 < sum(found.seconds.questions.values()) <= found.seconds.check
    assert re.fullmatch(r"[\d.]+ s: build [\d.]+, check [\d.]+ \([\w ]+ [\d.]+, .*\)", summary.verdict_lines(found)[-1])
    assert found.speedup is None
    assert found.shares.own > 0.05
    assert found.max_error is not None
    assert found.error_bound is not None
    assert found.max_error <= found.error_bound
    assert set(json.loads(found.model_dump_json())) >= {
        "accepted", "tier", "reasons", "speedup", "max_error", "error_bound", "shares", "seconds",
    }  # fmt: skip


@pytest.mark.more
def test_inline_sources_of_a_foreign_file_run_too(tmp_path: Path, verifier: Verifier) -> None:
    path = tmp_path / "foreign.py"
    path.write_text(INLINE)
    found = verifier.verify(path)
    assert found.accepted, found.reasons
    assert found.shares.own > 0.05


@pytest.mark.more
def test_torch_alone_is_correct_and_refused(tmp_path: Path, verifier: Verifier) -> None:
    found = verifier.verify(programs.model(tmp_path))
    assert not found.accepted
    assert "policy stitched" in found.reasons[0]
    (tmp_path / "program.json").write_text('{"host": ["cuda_graph"]}')
    found = verifier.verify(tmp_path)
    assert not found.accepted
    assert "was not seen at work" in found.reasons[0]


@pytest.mark.more
def test_a_host_side_task_counts_when_it_is_seen(tmp_path: Path, verifier: Verifier) -> None:
    found = verifier.verify(programs.host_program(tmp_path))
    assert found.accepted, found.reasons
    assert found.label == "host-only"


def test_a_program_that_needs_its_own_small_kernel_is_not_called_host_only(tmp_path: Path) -> None:
    (tmp_path / "program.json").write_text('{"host": ["cuda_graph"]}')
    check = CheckResult(ok=True, tier="simulated", own_share=0.01, framework_share=0.9, host_seen=("cuda_graph",))
    assert policy_reasons(tmp_path, "stitched", check) == ((), "host-only")
    for role, label in (("idle", "host-only"), ("unused", "host-only"), ("needed", "small own share")):
        kernels = (KernelRole.model_validate({"name": "gate_kernel", "role": role}),)
        assert policy_reasons(tmp_path, "stitched", check.model_copy(update={"kernels": kernels})) == ((), label)


@pytest.mark.parametrize("text", ["x = 1\n", "# ModelNew\nclass Model: ...\n", "class ModelNewer: ...\n"])
def test_where_nothing_could_be_judged_it_is_no_verdict(text: str, tmp_path: Path, reference: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(text)
    with pytest.raises(BadInput, match=r"program\.py defines no class ModelNew, so that nothing can be judged"):
        verify(program, reference)


@pytest.mark.parametrize("text", [
    "class ModelNew: ...", "ModelNew = build()", "from parts import ModelNew", "from parts import Model as ModelNew",
    "from parts import *", 'globals()["ModelNew"] = 1', "class ModelNew(", "x = 1\n" * 400_000,
])  # fmt: skip
def test_what_may_define_the_model_is_judged(text: str, tmp_path: Path) -> None:
    (tmp_path / "model_new.py").write_text(text)
    require_program(tmp_path)


@pytest.mark.more
def test_strict_wants_no_framework(tmp_path: Path, verifier: Verifier) -> None:
    found = verifier.verify(programs.kernel_program(tmp_path), policy="strict")
    assert not found.accepted
    assert "policy strict" in found.reasons[0]


def test_a_program_that_does_not_build_is_refused(tmp_path: Path, verifier: Verifier) -> None:
    program = programs.kernel_program(tmp_path, kernel=programs.KERNEL.replace("blockIdx.x", "blokIdx.x"))
    found = verifier.verify(program)
    assert (found.accepted, found.tier) == (False, "compiled")
    assert "blokIdx" in found.reasons[0]


@pytest.mark.more
def test_a_build_with_flags_of_the_programs_own_is_the_judges(tmp_path: Path, verifier: Verifier) -> None:
    """A kernel that needs a macro and a folder of headers, which only the program's own call of `load` names."""
    kernel = '#include "gate.cuh"\n' + programs.KERNEL.replace("blockIdx.x", "OF_BLOCK(blockIdx)")
    program = programs.kernel_program(tmp_path, kernel=kernel)
    programs.write(program, {"include/gate.cuh": "#define OF_BLOCK(index) index.AXIS\n"})
    given = 'extra_cuda_cflags=["-DAXIS=x"], extra_include_paths=[str(FOLDER.parent / "include")]'
    programs.write(program, {"model_new.py": programs.KERNEL_MODEL.replace("cuda_files=", f"{given}, cuda_files=")})
    found = verifier.verify(program)
    assert found.accepted, found.reasons


@pytest.mark.parametrize(("beside", "needs"), [
    ("scan.cu", "load_inline('scan', cuda_sources=(Path(__file__).parent / 'scan.cu').read_text(), functions=['run'])"),
    ("csrc/scan.cu", "load('scan', cuda_files=[str(Path(__file__).parent / 'csrc' / 'scan.cu')])"),
    ("scan.cuh", "load_inline('scan', cuda_sources='#include <scan.cuh>', functions=['run'])"),
    ("scan.py", "__import__('scan')"),
])  # fmt: skip
def test_a_single_file_that_needs_others_is_no_verdict(beside: str, needs: str, tmp_path: Path, verifier: Verifier) -> None:
    programs.write(tmp_path, {"new.py": f"""
        from pathlib import Path
        from tvm_ffi.cpp import load, load_inline
        from torch.nn import Identity as ModelNew
        {needs}
    """})  # fmt: skip
    assert not verifier.verify(tmp_path / "new.py").accepted
    programs.write(tmp_path, {beside: ""})
    with pytest.raises(BadInput, match=rf"needs {Path(beside).name}, which lies beside it, .* give a folder that holds both"):
        verifier.verify(tmp_path / "new.py")


def test_could_not_judge_is_no_verdict(tmp_path: Path, verifier: Verifier) -> None:
    kernel = programs.KERNEL.replace("const float value", 'asm volatile("membar.gl;"); const float value')
    with pytest.raises(Unavailable, match="could not judge"):
        verifier.verify(programs.kernel_program(tmp_path, kernel=kernel))


@pytest.mark.more
def test_a_limit_of_the_simulator_that_a_program_catches_is_no_verdict(tmp_path: Path, verifier: Verifier) -> None:
    """It computes with torch then, and would be refused for having no kernels."""
    kernel = programs.KERNEL.replace("const float value", 'asm("");\n    const float value')
    text = INLINE.replace(repr(programs.KERNEL + BRIDGE), repr(kernel + BRIDGE))
    text = text.replace("MODULE = ", "try:\n    MODULE = ") + "except Exception:\n    MODULE = None\n"
    fallback = FORWARD.replace("return", "if MODULE is None: return")
    text = text.replace("out = torch.empty_like(y);", f"{fallback}\n        out = torch.empty_like(y);")
    (tmp_path / "new.py").write_text(text)
    with pytest.raises(Unavailable, match=r"cannot run inline PTX .*and the program catches that .*: a GPU can judge it"):
        verifier.verify(tmp_path / "new.py")


def test_what_is_no_program_is_bad_input(tmp_path: Path, verifier: Verifier) -> None:
    with pytest.raises(BadInput, match="is no program"):
        verifier.verify(tmp_path)


def test_what_vanishes_while_it_is_built_is_bad_input(
    tmp_path: Path, reference: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = programs.kernel_program(tmp_path / "program")
    real = nvcc.build

    def late(given: Path, **options: Any) -> BuildResult:
        held = Path.read_text

        def read(path: Path, *arguments: Any, **more: Any) -> str:
            if path.name == "gate.cu":
                path.unlink(missing_ok=True)
            return held(path, *arguments, **more)

        with monkeypatch.context() as patched:
            patched.setattr(Path, "read_text", read)
            return real(given, **options)

    monkeypatch.setattr(nvcc, "build", late)
    with pytest.raises(BadInput, match=r"gate\.cu in the program has vanished"):
        verified(program, reference, tmp_path / "cache")


def test_a_reason_has_an_end() -> None:
    assert shorten("a" * 2000) == "a" * 2000
    long = shorten("a" * 10**7 + "the end")
    assert len(long) < 2100
    assert long.endswith("the end")


def test_policies_by_share(tmp_path: Path) -> None:
    def result(own: float, framework: float) -> CheckResult:
        return CheckResult(ok=True, tier="simulated", own_share=own, framework_share=framework)

    assert policy_reasons(tmp_path, "stitched", result(0.05, 0.5)) == ((), "")
    assert policy_reasons(tmp_path, "stitched", result(0.04, 0.5))[0]
    assert policy_reasons(tmp_path, "strict", result(0.5, 0.01)) == ((), "")
    assert policy_reasons(tmp_path, "strict", result(0.9, 0.1))[0]
    read = result(0.9, 0.0).model_copy(update={"host_bytes": 5000, "whole": 60_000})
    said = "policy stitched: 5000 bytes of device memory are touched by the host in one call: it computes there"
    assert policy_reasons(tmp_path, "stitched", read) == ((said,), "")


def test_copies_around_a_replayed_graph_are_nobodys_work(tmp_path: Path) -> None:
    check = CheckResult(
        ok=True, tier="simulated", own_share=0.3, vendor_share=0.1, framework_share=0.6, elsewhere=70, boundary=60, whole=70
    )
    assert policy_reasons(tmp_path, "stitched", check) == ((), "")
    assert "100% of the reference's" in policy_reasons(tmp_path, "stitched", check.model_copy(update={"boundary": 0}))[0][0]
    assert policy_reasons(tmp_path, "strict", check) == ((), "")
    assert "strict: 10%" in policy_reasons(tmp_path, "strict", check.model_copy(update={"boundary": 50}))[0][0]


@pytest.mark.more
def test_a_single_file_declares_host_side_tasks(tmp_path: Path, verifier: Verifier) -> None:
    program = programs.host_program(tmp_path) / "model_new.py"
    (tmp_path / "program.json").unlink()
    assert not verifier.verify(program).accepted
    text = program.read_text()
    program.write_text(f'{text}\nHOST_TASKS = ["cuda_graph"]\n')
    found = verifier.verify(program)
    assert (found.accepted, found.label) == (True, "host-only"), found.reasons
    for said, tasks in [('("cuda_graph", "streams")', ("cuda_graph", "streams")), ("[]", ()), ("[]\nHOST = [1]", ())]:
        program.write_text(f"HOST_TASKS = {said}\n")
        assert host_tasks(program) == tasks
    for said in ("class A:\n    HOST_TASKS = 1\n", 'if 1:\n    HOST_TASKS = ["cuda_graph"]\n', "def (", "\0"):
        program.write_text(said)
        assert host_tasks(program) == ()
    for said in ("list(TASKS)", '"cuda_graph"', '["cuda_graph", 1]', "[name for name in TASKS]", "{}"):
        program.write_text(f"HOST_TASKS = {said}\n")
        with pytest.raises(BadInput, match="no list of names"):
            host_tasks(program)


def test_libraries_exchanged_for_others_have_to_gain_something(tmp_path: Path) -> None:
    def reasons(ratio: float, exchanged: float) -> tuple[str, ...]:
        check = CheckResult(ok=True, tier="timed", own_share=0.2, replaced=0.1, exchanged=exchanged)
        return policy_reasons(tmp_path, "stitched", check, timed_result(1.0).model_copy(update={"ratio": ratio}))[0]

    assert reasons(1.1, 0.9) == reasons(0.9, 0.5) == ()
    assert "exchanged: library kernels that the reference does not run take 90%" in reasons(0.9, 0.9)[0]
    assert "gains nothing (0.90x)" in reasons(0.9, 0.9)[0]


@NO_GPU
def test_without_a_gpu() -> None:
    assert resolve_target("auto") == "sim"
    assert resolve_target("sim") == "sim"
    with pytest.raises(Unavailable, match="--device sim"):
        resolve_target("cuda")
    facts = device_facts("sim")
    assert (facts.name, facts.arch, facts.measured) == ("NVIDIA H200", "sm_90a", False)
    assert facts.bandwidth_gbs == 4300.0


@NO_GPU
def test_profiles_say_why_they_are_skipped(tmp_path: Path, verifier: Verifier) -> None:
    assert nsys.profile_system(programs.model(tmp_path), verifier.judge)[0].skipped.startswith("no GPU")
    assert ncu.profile_kernels(tmp_path, verifier.judge, None)[0].skipped.startswith("without a system profile")


def test_a_gpu_is_read_from_nvidia_smi(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text('#!/bin/sh\necho "NVIDIA H100 80GB HBM3, 9.0, 580.65.06"\n')
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert resolve_target("auto") == "cuda"
    facts = device_facts("cuda")
    assert (facts.name, facts.arch, facts.driver, facts.sm_count) == ("NVIDIA H100 80GB HBM3", "sm_90a", "580.65.06", 132)
