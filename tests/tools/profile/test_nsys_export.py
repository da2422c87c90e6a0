"""What is read out of a recording by Nsight Systems, from an old and a current version's file; what is said of a bad one."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from stitchcuda.errors import Unavailable
from stitchcuda.tools.profile.nsys_export import read_export
from stitchcuda.tools.profile.ranges import CALL_RANGE, REGION_PREFIX, TRACED_RANGE
from stitchcuda.tools.profile.system_profile import ELSEWHERE, GRAPH, SystemProfile
from tests.tools.profile.nsys_files import MAIN, OTHER, STRANGER, Export, Version

VERSIONS: tuple[Version, ...] = ("2022", "2026")
GEMM = "nvjet_tst_128x256_64x4_1x2_h_bz_coopA_TNN"


def region(name: str) -> str:
    return REGION_PREFIX + name


@pytest.fixture(params=VERSIONS)
def export(request: pytest.FixtureRequest, tmp_path: Path) -> Export:
    return Export(tmp_path / "report.sqlite", request.param)


def two_calls(export: Export) -> SystemProfile:
    """Each: a copy, an own kernel in `norm`, a GEMM in `attention: linear` within `attention`, one kernel elsewhere, a sync."""
    for at in (0, 1000):
        export.range(CALL_RANGE, at, at + 200)
        export.copy(1, 4_000_000, at + 2, at + 10, at + 30)
        export.range(region("norm"), at + 10, at + 30)
        export.kernel("void scale<float>(float*)", at + 12, at + 30, at + 50, symbol="_Z5scaleIfEvPf")
        export.range(region("attention"), at + 40, at + 100)
        export.range(region("attention: linear"), at + 50, at + 70)
        export.kernel(GEMM, at + 60, at + 80, at + 180)
        export.kernel("softmax_warp_forward(float*)", at + 110, at + 190, at + 200)
        export.api("cudaStreamSynchronize_v3020", at + 120, at + 200)
        export.api("cudaDeviceSynchronize_v3020", at + 210, at + 250)  # after the call: nobody's
    return read_export(export.close(), own=["void scale<float>(float*)"])


def test_times_of_one_call(export: Export) -> None:
    profile = two_calls(export)
    assert (profile.source, profile.calls) == ("nsys", 2)
    assert (profile.span_ms, profile.busy_ms, profile.idle_ms) == pytest.approx((0.190, 0.150, 0.040))
    assert profile.elapsed_ms == pytest.approx(0.198), "from the copy's call to the last kernel's end"
    assert profile.gaps is not None
    assert (profile.gaps.count, profile.gaps.before) == (2, GEMM)
    assert (profile.gaps.total_ms, profile.gaps.longest_ms) == pytest.approx((0.040, 0.030))
    assert (profile.launches, profile.host_launches, profile.streams, profile.overlap_ms) == (3, 3, 1, 0)
    assert (profile.syncs, profile.sync_ms) == pytest.approx((1, 0.080))
    assert [(call.name, call.calls) for call in profile.host] == [
        ("cudaStreamSynchronize", 1), ("cudaLaunchKernel", 3), ("cudaMemcpyAsync", 1),
    ]  # fmt: skip
    assert [(copy.kind, copy.count, copy.size) for copy in profile.copies] == [("Host-to-Device", 1, 4e6)]
    assert (profile.graph_launches, profile.graph_share, profile.notes) == (0, 0, ())


def test_kernels_are_told_by_region_and_owner(export: Export) -> None:
    profile = two_calls(export)
    assert [(kernel.short, kernel.origin, kernel.region, kernel.launches) for kernel in profile.kernels] == [
        (GEMM, "vendor", "attention: linear", 1),
        ("scale", "own", "norm", 1),
        ("copy Host-to-Device", "copy", ELSEWHERE, 1),
        ("softmax_warp_forward", "framework", ELSEWHERE, 1),
    ]
    assert [kernel.ms for kernel in profile.kernels] == pytest.approx([0.1, 0.02, 0.02, 0.01])
    assert profile.share_of("vendor") == pytest.approx(2 / 3)


def test_regions_sum_to_the_busy_time_and_to_the_time_of_the_call(export: Export) -> None:
    profile = two_calls(export)
    assert [one.name for one in profile.regions] == ["attention: linear", ELSEWHERE, "norm", "attention"]
    assert sum(one.device_ms for one in profile.regions) == pytest.approx(profile.busy_ms)
    assert sum(one.share for one in profile.regions) == pytest.approx(1)
    host = {one.name: one.host_ms for one in profile.regions}
    assert host == pytest.approx({"attention: linear": 0.02, "attention": 0.04, "norm": 0.02, ELSEWHERE: 0.12})


def test_streams_that_overlap_count_once(export: Export) -> None:
    export.range(CALL_RANGE, 0, 100)
    export.range(region("left"), 1, 10)
    export.kernel("a(int)", 2, 20, 60, stream=7)
    export.range(region("right"), 11, 20)
    export.kernel("b(int)", 12, 40, 90, stream=13)
    profile = read_export(export.close())
    assert (profile.span_ms, profile.busy_ms, profile.overlap_ms) == pytest.approx((0.070, 0.070, 0.020))
    assert profile.streams == 2
    assert {one.name: one.device_ms for one in profile.regions if one.device_ms} == pytest.approx({"left": 0.04, "right": 0.05})


def test_kernels_of_a_graph_are_of_the_range_that_launched_it(export: Export) -> None:
    export.range(CALL_RANGE, 0, 100)
    export.kernel("before(int)", 2, 10, 20)
    export.range(region("replay"), 20, 40)
    launch = export.api("cudaGraphLaunch_v10000", 25, 30)
    for node, at in enumerate((40, 50, 60), 7):
        export.ran(f"k{node}(int)", at, at + 10, launch, node=node)
    profile = read_export(export.close())
    assert (profile.launches, profile.graph_launches, profile.graph_share, profile.host_launches) == (4, 1, 0.75, 2)
    assert {kernel.name: kernel.region for kernel in profile.kernels} == {
        "before(int)": ELSEWHERE, "k7(int)": "replay", "k8(int)": "replay", "k9(int)": "replay",
    }  # fmt: skip


def test_a_graph_that_was_recorded_as_a_whole_is_not_lost(tmp_path: Path) -> None:
    export = Export(tmp_path / "report.sqlite", "2026")
    export.range(CALL_RANGE, 0, 100)
    export.kernel("before(int)", 2, 10, 20)
    launch = export.api("cudaGraphLaunch_v10000", 25, 30)
    export.put(
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", start=155_357_040_000, end=155_357_100_000, deviceId=0, contextId=1, streamId=7,
        correlationId=launch, globalPid=MAIN & ~0xFFFFFF, graphId=5, graphExecId=6,
    )  # fmt: skip
    profile = read_export(export.close())
    assert (profile.busy_ms, profile.launches) == pytest.approx((0.070, 1))
    assert profile.kernels[0].origin == "graph"
    assert "--cuda-graph-trace=node" in profile.notes[0]


def replayed(export: Export, *nodes: int) -> SystemProfile:
    """Nodes are kernels in a graph that a plain call and one with regions launch: k7(int), k8(int) and so on."""
    for begin, text in ((1000, CALL_RANGE), (2000, TRACED_RANGE)):
        export.range(text, begin, begin + 100)
        if text == TRACED_RANGE:
            export.range(region("(root)"), begin + 1, begin + 90)
        launch = export.api("cudaGraphLaunch_v10000", begin + 25, begin + 30)
        for place, node in enumerate(nodes):
            export.ran(f"k{node}(int)", begin + 40 + place, begin + 41 + place, launch, node=node)
    return read_export(export.close())


def first_call(export: Export) -> None:
    """It captures nodes 1 and 2 in `attention: linear`, 3 in `norm`, 4 in the module itself, then instantiates the graph."""
    export.range(region("(root)"), 0, 400)
    export.range(region("attention: linear"), 10, 30)
    export.range(region("norm"), 30, 50)
    for number, at in ((1, 15), (2, 20), (3, 35), (4, 60)):
        export.kernel("warm(int)", at, at + 500, at + 510)
        export.node(number, at)
    export.api("cudaGraphInstantiateWithFlags_v11040", 100, 120)


def regions_of(profile: SystemProfile) -> dict[str, str]:
    return {kernel.name: kernel.region for kernel in profile.kernels}


def test_kernels_of_a_graph_are_of_the_region_in_which_they_were_captured(export: Export) -> None:
    first_call(export)
    for number in (1, 2, 3, 4):
        export.node(10 + number, 110, of=number)
    profile = replayed(export, 11, 12, 13, 14)
    assert regions_of(profile) == {
        "k11(int)": "attention: linear", "k12(int)": "attention: linear", "k13(int)": "norm", "k14(int)": "(root)",
    }  # fmt: skip
    assert {one.name: one.launches for one in profile.regions} == {
        "attention: linear": 2, "norm": 1, "(root)": 1, ELSEWHERE: 0,
    }  # fmt: skip
    assert (profile.launches, profile.graph_launches, profile.graph_share, profile.notes) == (4, 1, 1, ())
    assert [call.name for call in profile.host] == ["cudaGraphLaunch"], "what the first call did is no part"


def test_captures_that_are_not_known(export: Export) -> None:
    first_call(export)
    export.range(region("late"), 210, 220)
    for number, of in ((11, 9), (12, 13), (13, 12), (14, 14)):  # of a node without a row, in a circle, of itself
        export.node(number, 215, of=of)
    export.node(15, 500)                   # in a call without ranges
    export.node(16, 215, name="Graph Node Destruction")
    export.node(1, 215, thread=STRANGER)
    export.node(17, 215, of=1, thread=STRANGER)
    profile = replayed(export, 11, 12, 13, 14, 15, 16, 17, 18)
    assert set(regions_of(profile).values()) == {GRAPH}
    assert len(profile.kernels) == 8


def test_clones_of_clones_were_captured_where_the_first_was(export: Export) -> None:
    first_call(export)
    for number, of in ((300, 30), (30, 3), (40, 4), (400, 40)):  # in any order
        export.node(number, 35 if number >= 40 else 300, of=of)
    export.node(30, 15)                    # told of once more, without an original
    assert regions_of(replayed(export, 300, 30, 3, 400)) == {
        "k300(int)": "norm", "k30(int)": "norm", "k3(int)": "norm", "k400(int)": "(root)",
    }  # fmt: skip


def test_another_thread_captures(export: Export) -> None:
    first_call(export)
    export.range(region("helper: sum"), 12, 18, thread=OTHER)
    export.node(5, 15, thread=OTHER)
    export.node(15, 110, of=5)
    assert regions_of(replayed(export, 15)) == {"k15(int)": "helper: sum"}


def test_copies_in_a_graph_are_of_their_capture(export: Export) -> None:
    first_call(export)
    for number in (1, 3):
        export.node(10 + number, 110, of=number)
    export.range(CALL_RANGE, 1000, 1100)
    launch = export.api("cudaGraphLaunch_v10000", 1025, 1030)
    export.copied(8, 4096, 1040, 1050, launch, node=11)
    export.put(
        "CUPTI_ACTIVITY_KIND_MEMSET", start=155_358_060_000, end=155_358_070_000, deviceId=0, contextId=1, streamId=7,
        correlationId=launch, globalPid=MAIN & ~0xFFFFFF, bytes=64, value=0, graphNodeId=13,
    )  # fmt: skip
    export.copied(8, 4096, 1080, 1090, launch, node=99)
    profile = read_export(export.close())
    assert {(kernel.name, kernel.region) for kernel in profile.kernels} == {
        ("copy Device-to-Device", "attention: linear"), ("memset", "norm"), ("copy Device-to-Device", GRAPH),
    }  # fmt: skip


NODES = "CUDA_GRAPH_NODE_EVENTS"


def with_nodes(path: Path, **values: str | None) -> Path:
    """Other expressions in columns of the nodes' table, which then refuses nothing; None: the column is not there."""
    with sqlite3.connect(path) as database:
        names = [row[1] for row in database.execute(f"PRAGMA table_info({NODES})")]
        said = {name: values.get(name, name) for name in names}
        columns = ", ".join(f"{value} AS {name}" for name, value in said.items() if value is not None)
        database.execute(f"CREATE TABLE other AS SELECT {columns} FROM {NODES}")
        database.execute(f"DROP TABLE {NODES}")
        database.execute(f"ALTER TABLE other RENAME TO {NODES}")
    database.close()
    return path


@pytest.mark.parametrize("value", [None, "NULL"])
@pytest.mark.parametrize("column", ["start", "nameId", "globalTid", "graphNodeId", "originalGraphNodeId"])
def test_without_what_tells_a_capture_all_is_as_it_was_without_captures(
    column: str, value: str | None, export: Export
) -> None:
    first_call(export)
    for number in (1, 3):
        export.node(10 + number, 450, of=number)
    replayed(export, 11, 13)
    assert set(regions_of(read_export(with_nodes(export.path, **{column: value}))).values()) == {GRAPH}


@pytest.mark.parametrize("column", ["end", "eventClass"])
def test_columns_of_nodes_that_are_not_read_may_be_missing(column: str, export: Export) -> None:
    first_call(export)
    export.node(11, 110, of=1)
    replayed(export, 11)
    assert regions_of(read_export(with_nodes(export.path, **{column: None}))) == {"k11(int)": "attention: linear"}


@pytest.mark.parametrize("column", ["start", "nameId", "globalTid", "graphNodeId", "originalGraphNodeId"])
@pytest.mark.parametrize("value", ["'soon'", "1.5", "x'00'"])
def test_nodes_with_values_of_another_kind_are_damage(column: str, value: str, export: Export) -> None:
    first_call(export)
    export.node(11, 110, of=1)
    replayed(export, 11)
    with pytest.raises(Unavailable, match="cut short or damaged: export the recording again"):
        read_export(with_nodes(export.path, **{column: value}))


def test_times_come_from_calls_without_regions_where_there_are_some(export: Export) -> None:
    export.range(CALL_RANGE, 0, 50)
    export.kernel("a(int)", 2, 10, 40)
    export.range(TRACED_RANGE, 1000, 1400)  # slowed down by its ranges
    export.range(region("r"), 1100, 1300)
    export.kernel("a(int)", 1200, 1300, 1330)
    export.kernel("late(int)", 1350, 1800, 1801)
    profile = read_export(export.close())
    assert (profile.calls, profile.launches, profile.span_ms) == pytest.approx((1, 1, 0.030))
    assert [(one.name, one.region) for one in profile.kernels] == [("a(int)", "r"), ("late(int)", ELSEWHERE)]
    assert sum(call.calls for call in profile.host) == 1


def test_other_threads_and_other_processes(export: Export) -> None:
    """What another thread launches is the call's, but in no region; another process with the same correlations is no part."""
    export.range(CALL_RANGE, 0, 100)
    export.range(region("r"), 1, 90)
    export.kernel("main(int)", 2, 10, 20)
    export.kernel("helper(int)", 5, 30, 40, thread=OTHER)
    number = export.api("cudaLaunchKernel_v7000", 3, 4, thread=STRANGER, correlation=101)
    export.ran("stranger(int)", 10, 90, number, thread=STRANGER)
    profile = read_export(export.close())
    assert {kernel.name: kernel.region for kernel in profile.kernels} == {"main(int)": "r", "helper(int)": ELSEWHERE}
    assert profile.busy_ms == pytest.approx(0.020)


def test_only_what_is_launched_in_calls_counts(export: Export) -> None:
    export.kernel("warm(int)", 0, 5, 500)
    export.range(CALL_RANGE, 600, 700)
    export.kernel("counted(int)", 610, 800, 900)
    export.range(CALL_RANGE, 1000, None)   # never closed
    export.range(CALL_RANGE, 1000, 1100, kind=60)  # started and ended, not pushed and popped
    export.kernel("after(int)", 1010, 1020, 1030)
    profile = read_export(export.close())
    assert profile.calls == 1
    assert [kernel.name for kernel in profile.kernels] == ["counted(int)"]
    assert profile.regions == (), "no region was ever named"


def test_work_whose_launch_was_not_recorded_is_said(export: Export) -> None:
    export.range(CALL_RANGE, 0, 100)
    export.kernel("known(int)", 2, 10, 20)
    export.ran("unknown(int)", 20, 90, 99_999)
    profile = read_export(export.close())
    assert [kernel.name for kernel in profile.kernels] == ["known(int)"]
    assert "whose launch was not recorded, 1 in all" in profile.notes[0]


def test_an_own_kernel_is_told_from_a_namesake_where_the_file_has_symbols(tmp_path: Path) -> None:
    """A current file has the symbol, which compares with the library's; an old one has a spelling of nsys's own."""
    origins: dict[Version, list[str]] = {}
    for version in VERSIONS:
        export = Export(tmp_path / f"{version}.sqlite", version)
        export.range(CALL_RANGE, 0, 100)
        export.kernel("void scale<(int)4>(float *)", 2, 10, 30, symbol="_Z5scaleILi4EEvPf")
        export.kernel("void lib::scale<(int)4>(float *)", 5, 30, 40, symbol="_ZN3lib5scaleILi4EEEvPf")
        profile = read_export(export.close(), own=["void scale<4>(float*)"])
        origins[version] = [kernel.origin for kernel in profile.kernels]
    assert origins == {"2022": ["own", "own"], "2026": ["own", "framework"]}


def test_what_nsys_warns_of_is_passed_on(tmp_path: Path) -> None:
    export = Export(tmp_path / "report.sqlite", "2026")
    said = ((1, "Number of CUDA events collected: 12."), (2, "Some CUDA events may be missing:\n buffers were full."))
    for severity, text in said:
        export.put("DIAGNOSTIC_EVENT", timestamp=0, timestampType=2, source=1, severity=severity, text=text)
    assert two_calls(export).notes == ("nsys says: Some CUDA events may be missing: buffers were full.",)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "report.sqlite"
    with pytest.raises(Unavailable, match="cannot be read: no such file"):
        read_export(path)
    path.write_bytes(b"")
    with pytest.raises(Unavailable, match="is empty"):
        read_export(path)
    path.write_bytes(b"NVIDIA report, not exported")
    with pytest.raises(Unavailable, match="nsys export --type=sqlite"):
        read_export(path)


@pytest.mark.parametrize("share", [0.002, 0.3, 0.6, 0.95, 0.9999])
def test_a_truncated_file(export: Export, share: float) -> None:
    two_calls(export)
    data = export.path.read_bytes()
    export.path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(Unavailable, match="cut short or damaged: export the recording again"):
        read_export(export.path)


def test_a_file_with_a_damaged_page(export: Export) -> None:
    two_calls(export)
    data = bytearray(export.path.read_bytes())
    data[4096:] = b"\xaa" * (len(data) - 4096)
    export.path.write_bytes(bytes(data))
    with pytest.raises(Unavailable, match="cut short or damaged"):
        read_export(export.path)


@pytest.mark.parametrize(
    "change",
    [
        "CUPTI_ACTIVITY_KIND_KERNEL SET end = NULL",
        "CUPTI_ACTIVITY_KIND_KERNEL SET end = start - 1",
        "CUPTI_ACTIVITY_KIND_KERNEL SET end = 9e300",
        "CUPTI_ACTIVITY_KIND_KERNEL SET start = 'soon'",
        "CUPTI_ACTIVITY_KIND_RUNTIME SET end = start - 1",
        "CUPTI_ACTIVITY_KIND_MEMCPY SET end = start - 1",
        "NVTX_EVENTS SET text = x'ff00'",
        "NVTX_EVENTS SET globalTid = 'main'",
        "StringIds SET value = NULL",
    ],
)
def test_values_that_are_none_are_damage(change: str, tmp_path: Path) -> None:
    export = Export(tmp_path / "report.sqlite", "2026")
    two_calls(export)
    with sqlite3.connect(export.path) as database:
        database.execute(f"UPDATE {change}")
    database.close()
    with pytest.raises(Unavailable, match="cut short or damaged: export the recording again"):
        read_export(export.path)


def test_a_link_is_no_export(export: Export, tmp_path: Path) -> None:
    """A program can have put it there."""
    two_calls(export)
    (link := tmp_path / "link.sqlite").symlink_to(export.path)
    with pytest.raises(Unavailable, match="cannot be read"):
        read_export(link)


def test_a_recording_without_kernels_says_what_nsys_says(tmp_path: Path) -> None:
    export = Export(tmp_path / "report.sqlite", "2026")
    export.range(CALL_RANGE, 0, 100)
    text = "CUDA profiling might not have been started correctly: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
    export.put("DIAGNOSTIC_EVENT", timestamp=0, timestampType=2, source=1, severity=3, text=text)
    with pytest.raises(Unavailable, match=r"no kernel was recorded .*CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"):
        read_export(export.close())


def test_a_recording_without_calls(export: Export) -> None:
    export.kernel("a(int)", 0, 5, 10)
    with pytest.raises(Unavailable, match='no range "stitchcuda:call" was recorded'):
        read_export(export.close())


def test_a_recording_with_nothing_in_its_calls(export: Export) -> None:
    export.kernel("a(int)", 0, 5, 10)
    export.range(CALL_RANGE, 100, 200)
    with pytest.raises(Unavailable, match='nothing was launched in any range "stitchcuda:call", of which there are 1'):
        read_export(export.close())


def test_a_schema_that_is_not_known(tmp_path: Path) -> None:
    path = tmp_path / "report.sqlite"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (begin INTEGER, finish INTEGER)")
    database.close()
    with pytest.raises(Unavailable, match=r"CUPTI_ACTIVITY_KIND_KERNEL has no start, end.*not known here"):
        read_export(path)


def test_reading_leaves_nothing_behind(export: Export) -> None:
    two_calls(export)
    assert [path.name for path in export.path.parent.iterdir()] == ["report.sqlite"]
