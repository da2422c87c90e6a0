"""Kernels that a program needs are told from kernels that are only launched."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stitchcuda.state import CheckResult
from stitchcuda.verify.ablation import ablation
from stitchcuda.verify.ablation.own_work import apply_ablation
from stitchcuda.verify.messages.request import FailureKind
from stitchcuda.verify.processes.worker import WorkerFailed
from stitchcuda.verify.program.trial import Trial
from tests.verify import programs
from tests.verify.judge_parts import Bench

CACHED = programs.KERNEL.replace('extern "C"', '''
__global__ void idle_kernel(const float* y, float* sink, int n) { if (threadIdx.x < n) sink[threadIdx.x] = y[threadIdx.x]; }
__global__ void touch_kernel(float* x, int n) { for (int i = threadIdx.x; i < n; i += blockDim.x) x[i] *= 1.0f; }
__global__ void unused_kernel(float* x) { x[0] = 1.0f; }
template <int STEP> __global__ void halve_kernel(float* out, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] *= STEP == 1 ? 0.5f : 2.0f;
}
static float* sink;

extern "C"''', 1)
LAUNCH = "  gate_kernel<<<4, 128, 0, stream>>>(y, scale, x, out, gain, rows, columns);\n"


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("bench"), programs.REFERENCE)
    yield made
    made.close()


def statuses(bench: Bench, program: Path) -> dict[str, str]:
    found = ablation.leave_out_kernels(lambda: bench.load(program), bench.secret_inputs, 3)
    assert not any("answers differently" in note for note in found.notes), found.notes
    return {one.name: one.status for one in found.kernels}


def test_a_needed_kernel(bench: Bench, tmp_path: Path) -> None:
    found = ablation.leave_out_kernels(lambda: bench.load(programs.kernel_program(tmp_path)), bench.secret_inputs, 3)
    assert [(one.name, one.status, one.launches) for one in found.kernels] == [("gate_kernel", "needed", 1)], found.notes
    assert found.reasons == ()
    assert found.notes == ()


def test_idle_kernels_are_found_among_needed_ones(bench: Bench, tmp_path: Path) -> None:
    launch = f'''  static float room[64];
  idle_kernel<<<1, 32, 0, stream>>>(y, room, 32);
{LAUNCH}  halve_kernel<1><<<1, 64, 0, stream>>>(out, rows * columns);
  halve_kernel<2><<<1, 64, 0, stream>>>(out, rows * columns);
  touch_kernel<<<1, 64, 0, stream>>>(out, rows * columns);
  if (rows < 0) unused_kernel<<<1, 1, 0, stream>>>(out);
'''
    program = programs.kernel_program(tmp_path, kernel=CACHED.replace(LAUNCH, launch))
    found = ablation.leave_out_kernels(lambda: bench.load(program), bench.secret_inputs, 3)
    assert {one.name: one.status for one in found.kernels} == {
        "gate_kernel": "needed", "halve_kernel<1>": "needed", "halve_kernel<2>": "needed",
        "idle_kernel": "idle", "touch_kernel": "idle",
    }  # fmt: skip
    assert len(found.reasons) == 2
    assert "the kernel idle_kernel changes nothing" in found.reasons[0]


def test_what_no_time_was_left_for_is_left_out_all_at_once(bench: Bench, tmp_path: Path) -> None:
    """Only needed kernels hide behind the time limit, and what they do does not count."""
    launch = f'''  static float room[64];
  idle_kernel<<<1, 32, 0, stream>>>(y, room, 32);
  touch_kernel<<<1, 64, 0, stream>>>(y == nullptr ? out : const_cast<float*>(y), 0);
{LAUNCH}'''
    program = programs.kernel_program(tmp_path / "some", kernel=CACHED.replace(LAUNCH, launch))
    found = ablation.leave_out_kernels(lambda: bench.load(program), bench.secret_inputs, 3, seconds=-1.0)
    assert {one.status for one in found.kernels} == {"undecided"}, found.kernels
    program = programs.kernel_program(tmp_path / "all", kernel=CACHED.replace(LAUNCH, launch))
    text = (program / "model_new.py").read_text()
    (program / "model_new.py").write_text(text.replace("return out\n", "return torch.relu(y * self.scale + x) * gain\n"))
    found = ablation.leave_out_kernels(lambda: bench.load(program), bench.secret_inputs, 3, seconds=-1.0)
    assert {one.status for one in found.kernels if one.launches} == {"idle"}
    assert len(found.reasons) == 3


def test_kernels_that_hold_the_work_come_first() -> None:
    orders = [ablation._secret_order({"a": 1, "big": 500, "b": 1, "large": 450, "c": 0}) for _ in range(20)]
    assert all(set(order[:2]) == {"big", "large"} and sorted(order) == ["a", "b", "big", "c", "large"] for order in orders)
    assert len({tuple(order) for order in orders}) > 1


def test_only_kernels_that_are_known_to_be_needed_count() -> None:
    def seen(**statuses: str) -> ablation.AblationResult:
        return ablation.AblationResult(
            kernels=tuple(ablation.KernelNeed(name=name, status=status, launches=2) for name, status in statuses.items())  # type: ignore[arg-type]
        )

    check = CheckResult(ok=True, tier="timed", own_share=0.5, notes=("seen",))
    times = {"void work<4>(float*)": 10, "work(int)": 10, "ns::pad(float*)": 60, "cub::Scan(int)": 20}
    own = {kind: apply_ablation(check, seen(work="needed", pad=kind), {}, times) for kind in ("needed", "undecided")}
    assert own["needed"].own_share == 0.5
    assert own["undecided"].own_share == pytest.approx(0.2)  # 40 of 100: what has no switch counts
    assert any("40% is in kernels that are known to be needed" in note for note in own["undecided"].notes)
    assert any(note.startswith("limited: without a switch") and "Scan" in note for note in own["needed"].notes)
    twice = ablation.AblationResult(
        kernels=(
            ablation.KernelNeed(name="work", status="needed", launches=1),
            ablation.KernelNeed(name="work#2", status="undecided", launches=1),
        )
    )
    assert apply_ablation(check, twice, {}, {"work(int)": 10, "work(float)": 10}).own_share == 0.0  # no overloads there
    assert apply_ablation(check, seen(work="needed", pad="undecided"), {}).own_share == 0.25  # the simulator: by launches
    unknown = apply_ablation(check, ablation.AblationResult(notes=("why",)), {}, times)
    assert unknown.ok
    assert unknown.own_share == 0.5
    assert any(note.startswith("limited: no kernel could be left out") for note in unknown.notes)


def test_kernels_of_a_replayed_graph(bench: Bench, tmp_path: Path) -> None:
    assert statuses(bench, programs.graph_program(tmp_path)) == {"gate_kernel": "needed"}


def test_a_kernel_of_which_the_skipped_program_dies_is_needed(bench: Bench, tmp_path: Path) -> None:
    program = programs.kernel_program(tmp_path)
    text = (program / "model_new.py").read_text()
    death = "        if out.isnan().any():\n            __import__('os')._exit(3)\n        return out\n"
    (program / "model_new.py").write_text(text.replace("        return out\n", death))
    assert statuses(bench, program) == {"gate_kernel": "needed"}


def test_what_a_cache_answers_does_not_make_a_kernel_idle(bench: Bench, tmp_path: Path) -> None:
    """Results remembered by content hide that the kernel is needed; a new worker remembers nothing."""
    program = programs.kernel_program(tmp_path)
    text = (program / "model_new.py").read_text()
    text = text.replace("    def forward(self, x, gain):\n", '''    def forward(self, x, gain):
        known = self.__dict__.setdefault("known", {})
        key = float(x.double().sum())
        if key not in known:
            known[key] = self.compute(x, gain)
        return known[key].clone()

    def compute(self, x, gain):
''')
    (program / "model_new.py").write_text(text)
    assert set(statuses(bench, program).values()) <= {"needed", "unused"}


def test_what_the_worker_counts_below_python(bench: Bench, tmp_path: Path) -> None:
    """Honest programs hide no operator; replays and bytes of own kernels are seen."""
    makers: dict[str, Callable[[Path], Path]] = {
        "plain": programs.model, "kernel": programs.kernel_program, "graph": programs.graph_program,
    }  # fmt: skip
    for name, make in makers.items():
        with bench.load(make(tmp_path / name)) as loaded:
            for given in bench.secret_inputs.sets[:2]:
                said = loaded.trial.call(given, same_addresses=True).reply
                assert said.tampered == []
            assert said.replays == (name == "graph")
            assert (said.own > 0.2) == (name != "plain")


def test_a_tensor_that_no_launch_is_given_is_nobodys_work(bench: Bench, tmp_path: Path) -> None:
    """A function may be handed large tensors; what counts is what its kernels get."""
    nothing = "  gate_kernel<<<1, 1, 0, stream>>>(nullptr, nullptr, nullptr, nullptr, gain, 0, 0);\n"
    kernel = programs.KERNEL.replace(LAUNCH, nothing)
    shares = {}
    for name, text in {"honest": programs.KERNEL, "empty": kernel}.items():
        with bench.load(programs.kernel_program(tmp_path / name, kernel=text)) as loaded:
            shares[name] = loaded.trial.call(bench.secret_inputs.sets[0], same_addresses=True).reply.own
    assert shares["honest"] > 0.2
    assert shares["empty"] == 0.0


@pytest.mark.parametrize("kind", ["tampering", "crash"])
def test_who_tampers_while_a_kernel_is_left_out_is_refused(
    kind: FailureKind, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash shows that the kernel was needed; a forged answer does not."""
    program, calls, real = programs.kernel_program(tmp_path), [0], Trial.call

    def call(self: Trial, *given: Any, **named: Any) -> Any:
        calls[0] += 1
        if calls[0] > 2:                   # after the two that count launches
            raise WorkerFailed(kind, "the program sent an answer of its own making while running forward")
        return real(self, *given, **named)

    monkeypatch.setattr(Trial, "call", call)
    found = ablation.leave_out_kernels(lambda: bench.load(program), bench.secret_inputs, 3)
    assert bool(found.reasons) == (kind == "tampering")
    assert [need.status for need in found.kernels] == ([] if kind == "tampering" else ["needed"])


RARE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.empty = nn.Parameter(torch.randn(16))
        self.blank = nn.Parameter(torch.randn(16))

    def forward(self, x, mask):
        kept = mask[..., None] * x
        rows = torch.where(mask.any(1, keepdim=True), kept.sum(1), self.empty)
        return torch.where(x.abs().amax() > 0, rows, rows + self.blank)


def get_inputs():
    return [torch.randn(12, 6, 16), torch.rand(12, 6) < 0.9]


def get_init_inputs():
    return []
"""
RARE_PROGRAM = '''
import torch
import torch.nn as nn
from tvm_ffi.cpp import load_inline

SRC = r"""
__global__ void add_up(const float* x, const bool* mask, float* y, int* count, int tokens, int dim) {
  int b = blockIdx.x, n = 0;
  float s = 0.f;
  for (int t = 0; t < tokens; ++t) if (mask[b * tokens + t]) { s += x[(b * tokens + t) * dim + threadIdx.x]; ++n; }
  y[b * dim + threadIdx.x] = s;
  if (threadIdx.x == 0) count[b] = n;
}
__global__ void fill_empty(const int* count, const float* empty, float* y, int dim) {
  if (count[blockIdx.x] == 0) y[blockIdx.x * dim + threadIdx.x] = empty[threadIdx.x];
}
__global__ void add_blank(const float* x, const float* blank, float* y, int numbers, int dim) {
  for (int i = 0; i < numbers; ++i) if (x[i] != 0.f) return;
  y[blockIdx.x * dim + threadIdx.x] += blank[threadIdx.x];
}
void pool(tvm::ffi::TensorView x, tvm::ffi::TensorView mask, tvm::ffi::TensorView empty, tvm::ffi::TensorView blank,
          tvm::ffi::TensorView y, tvm::ffi::TensorView count) {
  int b = (int)x.size(0), t = (int)x.size(1), d = (int)x.size(2);
  auto st = (cudaStream_t)TVMFFIEnvGetStream(x.device().device_type, x.device().device_id);
  auto in = (const float*)x.data_ptr();
  auto out = (float*)y.data_ptr();
  add_up<<<b, d, 0, st>>>(in, (const bool*)mask.data_ptr(), out, (int*)count.data_ptr(), t, d);
  fill_empty<<<b, d, 0, st>>>((const int*)count.data_ptr(), (const float*)empty.data_ptr(), out, d);
  add_blank<<<b, d, 0, st>>>(in, (const float*)blank.data_ptr(), out, b * t * d, d);
}
"""
ops = load_inline("rarely_needed", cuda_sources=SRC, functions=["pool"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.empty = nn.Parameter(torch.randn(16))
        self.blank = nn.Parameter(torch.randn(16))

    def forward(self, x, mask):
        y = x.new_empty(x.shape[0], x.shape[2])
        ops.pool(x, mask, self.empty, self.blank, y, torch.empty(x.shape[0], dtype=torch.int32, device=x.device))
        return y
'''


class LastOfAll(random.SystemRandom):
    """Chance at its worst: where one set is chosen, it is the last one; where sets are put in order, they stay so."""

    def choice(self, seq: Any) -> Any:
        return seq[-1]

    def sample(self, population: Any, k: int, **_: Any) -> Any:
        return list(population)[:k]


@pytest.mark.more
def test_a_kernel_that_matters_for_few_rows_or_rare_inputs_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of empty masks are in one of four sets, inputs of zeros in none. A kernel that is wrong where it acts is no help."""
    made = Bench(tmp_path, RARE, sets=4)
    try:
        monkeypatch.setattr(random, "SystemRandom", LastOfAll)
        found = {}
        for name, text in {"right": RARE_PROGRAM, "wrong": RARE_PROGRAM.replace("+= blank", "-= blank")}.items():
            (program := tmp_path / f"{name}.py").write_text(text)
            found[name] = ablation.leave_out_kernels(lambda program=program: made.load(program), made.secret_inputs, 4)  # type: ignore[misc]
    finally:
        made.close()
    kernels = ("add_blank", "add_up", "fill_empty")
    assert [(one.name, one.status) for one in found["right"].kernels] == [(name, "needed") for name in kernels]
    assert found["right"].reasons == ()
    assert {one.name: one.status for one in found["wrong"].kernels}["add_blank"] == "idle"
    assert ["add_blank changes nothing" in reason for reason in found["wrong"].reasons] == [True]
