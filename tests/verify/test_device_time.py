"""Kernels are told apart by name, and timing's arithmetic holds without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import comb
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch._C import _profiler

from stitchcuda.tools.build.kernel_names import classify, in_sources
from stitchcuda.tools.device.interval import median_of
from stitchcuda.verify.integrity import device_time
from stitchcuda.verify.messages.program_requests import DeviceRecording, Row, Traced
from stitchcuda.verify.messages.request import read
from stitchcuda.verify.timing import rounds
from tests.verify import programs


def test_own_kernels_are_found_in_every_spelling(tmp_path: Path) -> None:
    text = """
    __global__ void plain_kernel(float* x) {}
    template <typename T>
    __global__ void __launch_bounds__(256, 2) bounded_kernel(const T* __restrict__ x) {}
    static __global__ __launch_bounds__(kThreads) void
    broken_line_kernel(int n) {}
    """
    programs.write(tmp_path, {"kernels/a.cu": text, "model_new.py": 'CUDA = "__global__ void inline_kernel(int n) {}"'})
    (tmp_path / "notes.py").write_text("# __global__ void gemm(int n) {}\nNAME = 1\n")
    assert set(in_sources(tmp_path)) == {"plain_kernel", "bounded_kernel", "broken_line_kernel", "inline_kernel"}


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
    assert classify(name, ("bounded_kernel",)) == kind


def test_a_trace_is_summed_by_origin() -> None:
    copy = "Memcpy DtoD (Device -> Device)"
    rows = [("void scale<float>(float*)", 100, 30, 7), ("sm90_gemm_kernel", 140, 60, 7), (copy, 210, 10, 9)]
    found = device_time.summarize(recorded(rows, replays=1, replayed=[1]), ["void scale<float>(float*)"], calls_vendors=True)
    assert (found.own, found.vendor, found.framework, found.elsewhere) == (0.3, 0.6, 0.1, 70)
    assert (found.launches, found.replays) == (1, 1)
    assert found.own_launches == {"void scale<float>(float*)": 1}
    assert [(who, took) for who, _, took, *_ in found.steps] == [("own", 30), ("vendor", 60), ("framework", 10)]


def test_copies_to_the_host_that_the_reference_makes_too_count_for_nothing() -> None:
    sizes = [("Memcpy DtoH (Device -> Pageable)", 0, 2, 7)] * 3
    kernel = ("scale", 10, 94, 7)
    assert device_time.share_in_host_copies([*sizes, kernel], [*sizes, kernel]) == 0.0
    assert device_time.share_in_host_copies([kernel], [*sizes, kernel]) == 0.06
    assert device_time.share_in_host_copies(sizes, [("Memcpy DtoH", 0, 29, 7), ("scale", 30, 71, 7)]) == 0.2
    assert device_time.share_in_host_copies([], []) == 0.0


def test_a_graph_beside_the_work_is_not_seen_at_work() -> None:
    """What it replays has to be half of what goes on without it; copies into and out of it are nobody's."""
    rows = [(COPY, 0, 40, 7), ("gemm", 40, 60, 7), ("index_select", 100, 20, 7), (COPY, 120, 40, 7)]

    def replays(replayed: list[int], copies: Sequence[int] = ()) -> int:
        graphs = recorded(rows, replays=1, replayed=replayed, copies=list(copies))
        return device_time.summarize(graphs, (), calls_vendors=True).replays

    assert replays([2]) == replays([2], [0, 3]) == replays([]) == 0
    assert replays([1], [0, 3]) == replays([1, 2]) == 1
    assert replays([2, 2, 2, 2, 9]) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"rows": [["gemm", 40, -1, 7]]}, {"rows": [["gemm", 40, 60]]}, {"rows": [["gemm", "40", 60, 7]]},
        {"rows": [[None, 40, 60, 7]]}, {"rows": "gemm"}, {"replays": True}, {"replays": 2**63}, {"copies": [0, "2"]},
        {"copies": "02"}, {"replayed": [-1]}, {"late": [1]}, {"again": "gemm"}, {"digests": [0]}, {"more": 1},
    ],
)  # fmt: skip
def test_a_trace_that_is_none_is_not_taken(wrong: dict[str, Any]) -> None:
    """The worker's process may send anything."""
    said = {"rows": [["gemm", 40, 60, 7]], "replays": 1, "replayed": [0], "copies": [], "late": [], "again": None}
    said |= {"structure": {"tensor": 0}, "outputs": {}}
    assert read(Traced, said).rows == [("gemm", 40, 60, 7)]
    with pytest.raises(ValidationError):
        read(Traced, said | wrong)


def test_a_vendors_kernel_under_the_name_of_an_own_one_is_told() -> None:
    """A program may define a kernel named as cuBLAS names its own: the own switch counts other launches than the device."""
    seen = {"void sgemm_128x64(float*)": 3, "scale(float*)": 1}
    assert device_time.find_borrowed_names(seen, {"m1:scale": 1, "m1:sgemm_128x64": 0}) == (
        "the device ran 3 kernels named sgemm_128x64, the program launched its own of that name 0 times",
    )
    assert device_time.find_borrowed_names(seen, {"m1:scale": 1, "m1:sgemm_128x64": 2, "m2:sgemm_128x64#2": 1}) == ()


def test_what_is_taken_over_is_told_by_names_and_times() -> None:
    def taken(*program: tuple[str, int]) -> tuple[float, float]:
        reference = [("gemm_bias", 0, 80, 7), ("norm", 80, 20, 7)]
        return device_time.share_taken_over(reference, [(name, 0, took, 7) for name, took in program], ["mine"])

    assert taken(("mine", 50)) == (1.0, 0.0)
    assert taken(("gemm_bias", 130), ("mine", 20)) == (0.2, 0.0)        # however long the same kernel takes this time
    assert taken(("gemm_bias", 80), ("norm", 20), ("mine", 20)) == (0.0, 0.0)
    assert taken(("gemm", 75), ("norm", 20), ("mine", 5)) == (0.05, 75 / 80)
    assert taken(("gemm", 90), ("norm", 20), ("copy", 10)) == (0.0, 1.0)


def test_the_interval_of_a_saving_holds_95_percent() -> None:
    """Order statistics: both outer ranks lie on the same side of the median with the binomial's tail."""
    rank = int(median_of(range(rounds.ROUNDS)).low)
    tail = sum(comb(rounds.ROUNDS, count) for count in range(rank + 1)) / 2**rounds.ROUNDS
    assert 0.95 <= 1 - 2 * tail < 0.99


COPY = "Memcpy DtoD (Device -> Device)"


def recorded(rows: list[Row], *, replays: int = 0, replayed: Sequence[int] = (), copies: Sequence[int] = ()) -> DeviceRecording:
    return DeviceRecording(rows=rows, copies=list(copies), replayed=list(replayed), replays=replays, late=[])


def trace(*rows: tuple[str, int], copies: tuple[int, ...] = (), replays: int = 1) -> DeviceRecording:
    return recorded([(name, 0, took, 7) for name, took in rows], replays=replays, copies=copies)


def test_copies_around_a_replayed_graph_are_nobodys_work() -> None:
    """They count as exchanged for the reference's kernels, unless they are few, plain and outside of the graph."""
    reference = trace(("tanh_kernel", 20), ("mul_kernel", 20), replays=0)
    program = trace((COPY, 20), ("gate(float*)", 20), (COPY, 20), copies=(0, 2))
    assert device_time.share_taken_over(reference.rows, program.rows, ("gate",)) == (0.0, 1.0)
    assert device_time.share_without_copies(reference.rows, program, ("gate",), most=2) == (1.0, 0.0)
    others = [
        trace((COPY, 20), ("gate(float*)", 20), (COPY, 20), copies=(0, 2), replays=0),
        trace((COPY, 20), ("gate(float*)", 20), (COPY, 20)),                                # in the graph
        trace(("direct_copy_kernel", 20), ("gate(float*)", 20), (COPY, 20), copies=(0, 2)),  # it converts or rearranges
        trace(*[(COPY, 20)] * 3, ("gate(float*)", 20), copies=(0, 1, 2)),                   # pieces
        trace((COPY, 20), ("gate(float*)", 20), copies=(7,)),
    ]
    assert [device_time.share_without_copies(reference.rows, one, ("gate",), most=2) for one in others] == [(0.0, 0.0)] * 5
    fewer = replace(program, copies=[0, 9])
    assert device_time.share_without_copies(reference.rows, fewer, ("gate",), most=2) == (0.5, 0.5)


def test_what_a_reference_moves_is_not_taken_over_by_such_copies() -> None:
    reference = trace(("CatArrayBatchedCopy", 30), (COPY, 20), ("silu_kernel", 2), replays=0)
    program = trace((COPY, 20), (COPY, 10), ("column(float*)", 2), (COPY, 30), copies=(0, 1, 3))
    assert device_time.share_without_copies(reference.rows, program, ("column",), most=3)[0] == pytest.approx(2 / 52)
    library = trace((COPY, 20), ("gelu_kernel", 30), ("same(float*)", 5), (COPY, 20), copies=(0, 3))
    gelu = trace(("gelu_kernel", 30), replays=0).rows
    assert device_time.share_without_copies(gelu, library, ("same",), most=2) == (0.0, 0.0)


def test_who_records_a_graph_for_each_address_remembers_no_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trace compares contents that are new with the same again, at one address: two calls for a memo, one for a graph."""
    content, launched, graphs, results = [0], list[str](), set[int](), dict[int, int]()

    def record_call(call: Callable[[], object], keep: object = None) -> DeviceRecording:
        launched.clear()
        call()
        return recorded([(name, 0, 1, 7) for name in launched])

    def renew() -> None:
        content[0] += 1

    def recorder() -> None:
        launched.extend(["mine"] if id(content) in graphs else ["mine", "mine"])
        graphs.add(id(content))

    def memo() -> None:
        if content[0] not in results:
            launched.append("mine")
        results[content[0]] = 1

    monkeypatch.setattr(device_time, "_record_call", record_call)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    for call, again in ((recorder, ["mine"]), (memo, [])):
        found = device_time.record(call, restore=lambda: None, renew=renew)
        assert [row[0] for row in found.rows] == ["mine"]
        assert found.again == again


@pytest.mark.parametrize("anew", [False, True])
def test_a_recording_that_is_begun_anew_is_told(monkeypatch: pytest.MonkeyPatch, anew: bool) -> None:
    monkeypatch.setattr(device_time, "_ACTIVITIES", {torch.profiler.ProfilerActivity.CPU})
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    config = _profiler.ProfilerConfig(
        _profiler.ProfilerState.KINETO, False, False, False, False, False, _profiler._ExperimentalConfig()
    )

    def call() -> None:
        if anew and torch._C._autograd._profiler_enabled():
            torch._C._autograd._disable_profiler()
            torch._C._autograd._prepare_profiler(config, device_time._ACTIVITIES)
            torch._C._autograd._enable_profiler(config, device_time._ACTIVITIES)

    if anew:
        with pytest.raises(RuntimeError, match="was ended while it went on"):
            device_time.record(call, restore=lambda: None)
    else:
        assert device_time.record(call, restore=lambda: None) == recorded([])


def test_the_frame_of_a_recording_is_found_whatever_kernels_are_called() -> None:
    """Rows of (name, start, duration, stream): first and last of this name in the caller's stream; others are the program's."""
    torchs = "at::cuda::(anonymous namespace)::spin_kernel(long)"
    first, third, last = (torchs, 10, 5, 7), (torchs, 30, 1, 7), (torchs, 40, 1, 7)
    rows = [("mine", 20, 5, 7), first, ("spin_kernel(long long)", 5, 90, 13), last, third]
    assert device_time._find_spins(rows) == [1, 3]
    elsewhere = [("spin_kernel(long)", *one[1:]) for one in (first, third, last)]  # a torch that calls it otherwise
    assert device_time._find_spins(elsewhere) == [0, 2]
    assert device_time._find_spins([("mine", 20, 5, 7)]) == []
    assert device_time._find_spins([first, last]) == [0, 1]


def test_a_dependent_launch_that_waits_takes_no_time_while_it_does() -> None:
    """`second` starts 60 ns before `first` ends, in its stream; a copy in another stream really runs beside them."""
    rows = [("second", 40, 100, 7), ("first", 0, 100, 7), ("elementwise_kernel", 0, 60, 9)]
    recorded = DeviceRecording(rows=rows, copies=[], replayed=[], replays=0, late=[])
    found = device_time.summarize(recorded, ["first", "second"], calls_vendors=False)
    assert {name: took for _, name, took, *_ in found.steps} == {"first": 100, "elementwise_kernel": 60, "second": 40}
    assert (found.own, found.elsewhere) == (140 / 200, 60)
