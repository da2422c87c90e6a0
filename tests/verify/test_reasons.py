"""A refusal says what its author has to know: what failed and was caught, what nobody wrote, which launch was not made."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from stitchcuda.state import CheckResult, Settings
from stitchcuda.verify.client import Judge
from stitchcuda.verify.inputs import variants
from stitchcuda.verify.policy import policy_reasons
from stitchcuda.verify.program import launch_failures
from tests.verify import programs
from tests.verify.test_verify import BRIDGE

# Falls back to torch where its kernels cannot be built, or a call of them fails.
CATCHES = programs.REFERENCE.replace("class Model(", "class ModelNew(").replace(
    "return torch.relu(y * self.scale + x) * gain",
    """try:
            out = torch.empty_like(y)
            KERNELS.gate(y, self.scale, x, out, {gain})
            return out
        except Exception:
            return torch.relu(y * self.scale + x) * gain""",
)
INLINE = '''
import tvm_ffi.cpp

CUDA = """{source}"""

def build():
    return tvm_ffi.cpp.load_inline("gate", cuda_sources=CUDA, functions=["gate"])

try:
    KERNELS = build()
except Exception as error:
    KERNELS = None
'''
FILES = '''
import tvm_ffi.cpp
from pathlib import Path

try:
    KERNELS = tvm_ffi.cpp.load("gate", cuda_files=[str(Path(__file__).parent / "gate.cu")])
except Exception as error:
    KERNELS = None
'''


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    folder = tmp_path_factory.mktemp("reasons")
    (folder / "gated.py").write_text(programs.REFERENCE)
    with Judge(folder / "gated.py", Settings(), cache=folder / "cache") as one:
        yield one


def line_of(text: str, part: str) -> int:
    """The first line of `text` that holds `part`."""
    return next(number for number, line in enumerate(text.splitlines(), 1) if part in line)


def caught(judge: Judge, file: Path, text: str) -> CheckResult:
    """The check of a program that computes with torch in the end, and is refused with what it caught as the first reason."""
    file.write_text(text)
    result = judge.check(file, seeds=1)
    assert result.ok, result.reasons
    reasons, _ = policy_reasons(file, "stitched", result)
    assert reasons[:-1] == result.caught
    assert "own kernels hold 0.0% of the work" in reasons[-1]
    return result


@pytest.mark.more
def test_a_caught_build_of_inline_sources_is_told(judge: Judge, tmp_path: Path) -> None:
    source = (programs.KERNEL + BRIDGE).replace("value > 0.0f", "valu > 0.0f")
    text = INLINE.replace("{source}", source) + CATCHES.replace("{gain}", "gain")
    (said,) = caught(judge, tmp_path / "new.py", text).caught[:1]
    places = f"(try in line {line_of(text, 'try:')}, except in line {line_of(text, 'except')} of new.py)"
    assert said.startswith(f"the program's kernels do not build, and it catches that {places}: ")
    assert f": new.py line {line_of(text, 'valu > 0.0f')}: " in said
    assert "valu" in said.rpartition("line")[2]


def test_weights_packed_in_the_constructor_are_told(judge: Judge, tmp_path: Path) -> None:
    text = programs.REFERENCE.replace("class Model(", "class ModelNew(")
    text = text.replace("self.linear(x)", "x @ self.packed + self.linear.bias")
    made = "self.packed = self.linear.weight.detach().t().contiguous()"
    (file := tmp_path / "packed.py").write_text(text.replace("self.norm =", f"{made}\n        self.norm ="))
    result = judge.check(file, seeds=1)
    assert not result.ok
    assert result.reasons[-1].startswith("its constructor made packed of parameters and keeps it beside them")
    (file := tmp_path / "wrong.py").write_text(text.replace("x @ self.packed + self.linear.bias", "-self.linear(x)"))
    assert not any("its constructor" in reason for reason in judge.check(file, seeds=1).reasons)


def test_a_caught_build_of_files_is_told(judge: Judge, tmp_path: Path) -> None:
    programs.write(tmp_path, {"gate.cu": "#include <cuda_runtime.h>\n\n__global__ void k() { int x = 1 }\n"})
    (tmp_path / "program.json").write_text("{}")
    text = FILES + CATCHES.replace("{gain}", "gain")
    (tmp_path / "model_new.py").write_text(text)
    result = judge.check(tmp_path, seeds=1)
    places = f"(try in line {line_of(text, 'try:')}, except in line {line_of(text, 'except')} of model_new.py)"
    assert places in result.caught[0]
    assert ": gate.cu line 3: expected" in result.caught[0]


def test_a_caught_call_is_told(judge: Judge, tmp_path: Path) -> None:
    """The function takes a number and gets a text."""
    text = INLINE.replace("{source}", programs.KERNEL + BRIDGE) + CATCHES.replace("{gain}", "'one'")
    said = caught(judge, tmp_path / "new.py", text).caught
    assert len(said) == 1
    places = f"(try in line {line_of(text, '        try:')}, except in line {line_of(text, '        except')} of new.py)"
    assert said[0].startswith(f"gate fails, and the program catches that {places}: ")
    assert "TypeError" in said[0]


def test_what_was_caught_is_told_with_other_reasons(judge: Judge, tmp_path: Path) -> None:
    text = INLINE.replace("{source}", "nothing") + CATCHES.replace("{gain}", "gain").replace(" * gain\n", " * gain + 1\n")
    (tmp_path / "new.py").write_text(text)
    reasons = judge.check(tmp_path / "new.py", seeds=1).reasons
    assert "output is wrong" in reasons[0]
    assert "do not build" in reasons[1]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("i < rows * columns;", "i < 0;"), "nothing writes this output: all of it still holds the NaN"),
        (("i < rows * columns;", "i < rows * columns - 37;"), "nothing writes these elements: they still hold the NaN"),
        (("i < rows * columns;", "i < rows * columns - 37;"), "all wrong elements are among the last 37 of 1536 elements"),
        (("y[i] * scale[i % columns]", "(y[i] + out[i]) * scale[i % columns]"), "computed from memory that nothing wrote"),
        (("y[i] * scale", "(y[i] - y[i]) / (y[i] - y[i]) * scale"), "computed, as by 0/0 or inf - inf, or from memory"),
    ],
)
def test_nan_that_nobody_wrote_is_told_from_nan_that_was_computed(
    judge: Judge, tmp_path: Path, change: tuple[str, str], said: str
) -> None:
    kernel = programs.KERNEL.replace(*change).replace("(value > 0.0f ? value : 0.0f)", "(value < 0.0f ? 0.0f : value)")
    reasons = judge.check(programs.kernel_program(tmp_path, kernel=kernel), seeds=1).reasons
    assert said in reasons[0]
    assert "allowed" not in reasons[0]


def test_a_read_of_unwritten_shared_memory_is_told_with_its_line(judge: Judge, tmp_path: Path) -> None:
    """A tile of which the last element is not loaded; a ReLU makes zeros of the NaN that it holds here."""
    load = "__shared__ float tile[128]; if (threadIdx.x < 127) tile[threadIdx.x] = scale[0]; __syncthreads();\n"
    body = programs.KERNEL.replace("y[i] * scale[i % columns]", "y[i] * scale[i % columns] + 0.0f * tile[threadIdx.x]")
    start = body.index("{", body.index("__global__")) + 1
    kernel = f"{body[:start]} {load}{body[start:]}".lstrip()
    reasons = judge.check(programs.kernel_program(tmp_path, kernel=kernel), seeds=1).reasons
    assert "output is wrong" in reasons[0]
    said = "kernel gate_kernel reads shared memory that its block has not written: thread 127 of block "
    assert re.fullmatch(rf"{said}\(\d, 0, 0\), at gate.cu line {line_of(kernel, '0.0f * tile')}", reasons[1]), reasons


@pytest.mark.more
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("<<<4, 2048, 0", "a grid of (4, 1, 1) blocks of (2048, 1, 1) threads; a block has 1 to 1024 threads"),
        ("<<<4, 128, 65536", "it asks for 65536 bytes of dynamic shared memory where 49152 are allowed"),
    ],
)
@pytest.mark.parametrize("asks", [True, False])
def test_a_launch_that_was_not_made_is_told(judge: Judge, tmp_path: Path, change: str, said: str, asks: bool) -> None:
    """Whether the program asks for the error and raises, or goes on with an output that nothing wrote."""
    kernel = programs.KERNEL.replace("<<<4, 128, 0", change)
    if not asks:
        kernel = kernel.replace("static_cast<int>(cudaGetLastError())", "0")
    reasons = "; ".join(judge.check(programs.kernel_program(tmp_path, kernel=kernel), seeds=1).reasons)
    assert f"the launch of kernel gate_kernel failed: {said}" in reasons
    assert ("gate: CUDA error" if asks else "nothing writes this output") in reasons


def test_an_earlier_refused_launch_is_not_told_of_a_right_program(judge: Judge, tmp_path: Path) -> None:
    """It tries a large block first and takes a smaller one where that is refused."""
    kernel = programs.KERNEL.replace(
        "  gate_kernel<<<4, 128", "  gate_kernel<<<4, 2048, 0, stream>>>(y, scale, x, out, gain, rows, columns);\n"
        "  cudaGetLastError();\n  gate_kernel<<<4, 128",
    )  # fmt: skip
    result = judge.check(programs.kernel_program(tmp_path, kernel=kernel), seeds=1)
    assert result.ok, result.reasons
    assert result.caught == ()


class Runtime:
    """Stands for the CUDA runtime with a last error."""

    def __init__(self, code: int, text: bytes) -> None:
        self.cudaPeekAtLastError = lambda: code
        self.cudaGetErrorString = lambda given: text


@pytest.mark.parametrize(
    ("code", "text", "said"),
    [
        (0, b"no error", ""),
        (9, b"invalid configuration argument", "failed (invalid configuration argument): a block has 1 to 1024 threads"),
        (701, b"too many resources requested for launch", "needs more registers than there are"),
        (1, b"invalid argument", "cudaFuncSetAttribute"),
        (600, b"device not ready", ""),
    ],
)
def test_the_last_error_of_a_gpu(code: int, text: bytes, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_failures, "_runtime", Runtime(code, text))
    found = launch_failures.find()
    assert said in found
    assert bool(said) == bool(found)


def test_kinds_of_inputs_are_described() -> None:
    assert variants.describe("patchwork").startswith("inputs with rows of several kinds (large, small, negative, sparse, ")
    assert variants.describe("sorted, masks as given") == "inputs whose rows are sorted, masks as given"
    assert variants.describe("negative" + variants.BEYOND).endswith("of one value, outside of the range of get_inputs()")
    for variant in (*variants.VALUES, *variants.SMALL, *variants.LIKE_ANOTHER):
        assert variants.describe(variant) != f"inputs {variant}"


BEHIND = programs.KERNEL.replace("value > 0.0f", "x[i + 1] * 0.0f + value > 0.0f")


@pytest.mark.more
def test_a_read_out_of_bounds_is_told_with_its_line(judge: Judge, tmp_path: Path) -> None:
    """Of a source in a string, and where the program catches what the simulator says."""
    assert BEHIND != programs.KERNEL
    text = INLINE.replace("{source}", BEHIND + BRIDGE)
    plain = CATCHES.replace("{gain}", "gain").replace("except Exception:", "except KeyError:")
    goes_on = CATCHES.replace("{gain}", "gain").replace("return torch.relu(y * self.scale + x) * gain", "return out", 2)
    (tmp_path / "new.py").write_text(text + plain)
    at = rf"kernel gate\w* reads out of bounds: .*, at new.py line {line_of(text, 'x[i + 1]')}"
    (reason,) = judge.check(tmp_path / "new.py", seeds=1).reasons
    assert re.search(at, reason)
    (tmp_path / "new.py").write_text(text + goes_on)
    assert any(re.search(at, reason) for reason in judge.check(tmp_path / "new.py", seeds=1).reasons)
