"""Work is of the call that launched it; of a region by its launch or, in a CUDA graph, by its capture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from stitchcuda.tools.profile import profile_text
from stitchcuda.tools.profile.ranges import ROOT
from stitchcuda.tools.profile.system_profile import ELSEWHERE, GRAPH, SystemProfile
from stitchcuda.tools.profile.timeline import ApiCall, DeviceWork, GraphCapture, Range, Recording, profile_of

MAIN, OTHER = 65, 66
CAPTURED = (Range(ROOT, 0, 90, 1, MAIN), Range("norm", 10, 40, 1, MAIN), Range("norm: layer_norm", 20, 30, 1, MAIN))


def ran(launched: int, begin: int, *, name: str = "k(int)", **more: Any) -> tuple[ApiCall, DeviceWork]:
    """A graph's kernel with its launch."""
    number = begin
    launch = ApiCall("cudaGraphLaunch", launched, launched + 5, 1, MAIN, number)
    return launch, DeviceWork("kernel", name, "own", begin, begin + 10, 1, (0, 1, 7), number, of_graph=True, **more)


def profile(
    *placed: tuple[ApiCall, DeviceWork], regions: Sequence[Range] = (), lost: Sequence[DeviceWork] = ()
) -> SystemProfile:
    """Of one call that is as it is and one with ranges, at 1000 and 2000, 500 long."""
    calls, traced = [Range("call", 1000, 1500, 1, MAIN)], [Range("traced", 2000, 2500, 1, MAIN)]
    work = [*(one for _, one in placed), *lost]
    return profile_of(Recording(calls, traced, (*CAPTURED, *regions), [launch for launch, _ in placed], work))


@pytest.mark.parametrize(
    ("captured", "region"),
    [
        (GraphCapture(MAIN, 25), "norm: layer_norm"),
        (GraphCapture(MAIN, 35), "norm"),
        (GraphCapture(MAIN, 50), ROOT),
        (GraphCapture(MAIN, 95), GRAPH),
        (GraphCapture(OTHER, 25), GRAPH),
        (None, GRAPH),
    ],
)
def test_what_a_graph_launches_is_of_the_region_in_which_it_was_captured(captured: GraphCapture | None, region: str) -> None:
    for launched in ((), (Range(ROOT, 2000, 2400, 1, MAIN),)):
        found = profile(ran(2100, 2110, captured=captured), regions=launched)
        assert [(kernel.region, kernel.launches) for kernel in found.kernels] == [(region, 1)]
        assert {one.name: one.launches for one in found.regions if one.launches} == {region: 1}


def test_a_launch_in_a_region_of_its_own_counts_where_the_capture_is_not_known() -> None:
    replay = (Range("replay", 2000, 2400, 1, MAIN),)
    known, unknown = ran(2100, 2110, name="known(int)", captured=GraphCapture(MAIN, 25)), ran(2200, 2210, name="unknown(int)")
    late = ran(2300, 2310, name="late(int)", captured=GraphCapture(MAIN, 95))
    found = profile(known, unknown, late, regions=replay)
    assert {kernel.name: kernel.region for kernel in found.kernels} == {
        "known(int)": "norm: layer_norm", "unknown(int)": "replay", "late(int)": "replay",
    }  # fmt: skip


def test_the_call_is_that_of_the_launch_not_that_of_the_capture() -> None:
    regions = (Range("norm", 1100, 1200, 1, MAIN),)
    warm, timed, told = (ran(at, at + 10, captured=GraphCapture(MAIN, 1150)) for at in (500, 1300, 2100))
    found = profile(warm, timed, told, regions=regions)
    assert (found.calls, found.launches, found.graph_launches, found.graph_share) == (1, 1, 1, 1)
    assert [(kernel.region, kernel.launches) for kernel in found.kernels] == [("norm", 1)]


def test_a_graph_that_was_recorded_as_a_whole_stays_one() -> None:
    launch, work = ran(2100, 2110, name="CUDA graph 5, as a whole")
    found = profile((launch, work._replace(kind="graph", origin="graph")))
    assert [(kernel.origin, kernel.region) for kernel in found.kernels] == [("graph", GRAPH)]


def test_what_is_launched_outside_of_calls_enters_no_figure() -> None:
    """Calls before the profiled ones are recorded, too, with regions of their own."""
    counted = ran(1200, 1210), ran(2100, 2110)
    sync = ApiCall("cudaDeviceSynchronize", 600, 700, 1, MAIN, 9000)
    warm = ran(20, 30, name="warm(int)"), (sync, ran(600, 710, name="synchronised(int)")[1]._replace(correlation=9000))
    assert profile(*warm, *counted) == profile(*counted)


def test_only_what_could_be_of_a_call_is_missed() -> None:
    early, late = ([ran(0, begin)[1]._replace(correlation=9999) for begin in each] for each in ((100, 999), (1000, 1600)))
    counted = ran(1200, 1210), ran(2100, 2110)
    assert profile(*counted, lost=early).notes == ()
    (note,) = profile(*counted, lost=[*early, *late]).notes
    assert note == "left out: kernels and copies whose launch was not recorded, 2 in all"


def test_other_work_knows_nothing_of_captures() -> None:
    launch = ApiCall("cudaLaunchKernel", 2100, 2105, 1, MAIN, 1)
    found = profile((launch, DeviceWork("kernel", "k(int)", "own", 2110, 2120, 1, (0, 1, 7), 1)))
    assert [kernel.region for kernel in found.kernels] == [ELSEWHERE]


def launched(number: int, begin: int, end: int, name: str, stream: int = 7) -> tuple[ApiCall, DeviceWork]:
    call = ApiCall("cudaLaunchKernelExC", 2010 + number, 2011 + number, 1, MAIN, number)
    return call, DeviceWork("kernel", name, "own", begin, end, 1, (0, 1, stream), number)


def test_a_dependent_launch_that_waits_takes_no_time_while_it_does() -> None:
    """b starts at 2100 beside a, and waits until that ends at 2200; c, in a stream of its own, really runs beside both."""
    placed = [launched(1, 2050, 2200, "a()"), launched(2, 2100, 2250, "b()"), launched(3, 2060, 2160, "c()", stream=9)]
    found = profile_of(Recording([], [Range("traced", 2000, 2500, 1, MAIN)], (), *map(list, zip(*placed, strict=True))))
    assert {kernel.short: round(kernel.ms * 1e6) for kernel in found.kernels} == {"a": 150, "b": 50, "c": 100}
    calls = profile_of(Recording([Range("call", 2000, 2500, 1, MAIN)], [], (), *map(list, zip(*placed, strict=True))))
    assert calls.busy_ms == pytest.approx(200e-6), "the union of all three"
    assert sum(kernel.share for kernel in found.kernels) == pytest.approx(1.0)


def test_launches_of_one_kernel_are_told_in_their_order() -> None:
    placed = [launched(1, 2300, 2400, "a()"), launched(2, 2100, 2130, "a()"), launched(3, 2200, 2210, "b()")]
    found = profile_of(Recording([], [Range("traced", 2000, 2500, 1, MAIN)], (), *map(list, zip(*placed, strict=True))))
    assert {kernel.short: kernel.in_turn for kernel in found.kernels} == {"a": pytest.approx((30e-6, 100e-6)), "b": ()}
    assert "(0 ms, 0.0001 ms in order)" in "\n".join(profile_text.lines(found))
