"""A recording by Nsight Systems on a real GPU: what is read out of it, as other versions would have exported it, and cut off.

fixtures/README.md says how it was made. What must come out is known from the program that was recorded (launches, copies,
regions, streams, the graph), from the profile as it was printed there (times), and from plain SQL on the file.
"""

from __future__ import annotations

import random
import re
import shutil
import sqlite3
from pathlib import Path

import pytest

from stitchcuda.errors import Unavailable
from stitchcuda.tools.profile.nsys_export import read_export
from stitchcuda.tools.profile.system_profile import ELSEWHERE, SystemProfile, short_name

RECORDED = Path(__file__).parent / "fixtures" / "nsys_recorded.sqlite"
KERNEL, RUNTIME, COPY, SET, RANGES = (
    "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET",
    "NVTX_EVENTS",
)  # fmt: skip
GEMM = (
    "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_stage3_warpsize2x2x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas"
)
WORK = " UNION ALL ".join(f"SELECT start, end, correlationId FROM {table}" for table in (KERNEL, COPY, SET))
LAUNCHED = (
    f"(SELECT w.start, w.end, n.start AS call FROM ({WORK}) w JOIN {RUNTIME} r ON r.correlationId = w.correlationId "
    f"JOIN {RANGES} n ON n.text = ? AND r.start BETWEEN n.start AND n.end)"
)


@pytest.fixture
def export(tmp_path: Path) -> Path:
    return Path(shutil.copy(RECORDED, tmp_path / "report.sqlite"))


def asked(query: str, *values: str) -> tuple[float, ...]:
    with sqlite3.connect(RECORDED) as file:
        (row,) = file.execute(query, values).fetchall()
    file.close()
    return tuple(row)


def changed(path: Path, *lines: str) -> Path:
    with sqlite3.connect(path) as file:
        for line in lines:
            file.execute(line)
    file.close()
    return path


def dropped(table: str, *columns: str) -> list[str]:
    """SQL that takes columns away from a table, in any version of SQLite."""
    with sqlite3.connect(RECORDED) as file:
        here = [row[1] for row in file.execute(f"PRAGMA table_info({table})")]
    file.close()
    assert set(columns) <= set(here)
    left = ", ".join(name for name in here if name not in columns)
    return [
        f"CREATE TABLE left_over AS SELECT {left} FROM {table}",
        f"DROP TABLE {table}",
        f"ALTER TABLE left_over RENAME TO {table}",
    ]


def tried(path: Path) -> SystemProfile | str:
    try:
        return read_export(path)
    except Unavailable as refused:
        return str(refused)


OLDER = [                                  # what files of 2022 (schema 2.9) lack or have under another name
    *dropped(KERNEL, "greenContextId"),
    *dropped(COPY, "greenContextId", "copyCount"),
    *dropped(SET, "greenContextId"),
    *dropped(RANGES, "binaryData"),
    "DROP TABLE ENUM_CUDA_MEMCPY_OPER",
    "ALTER TABLE META_DATA_EXPORT RENAME TO EXPORT_META_DATA",
]
NEWER = [                                  # texts of ranges among the strings, graphs by name, a table more
    "INSERT INTO StringIds SELECT DISTINCT 900000000 + min(rowid), text FROM NVTX_EVENTS GROUP BY text",
    "UPDATE NVTX_EVENTS SET textId = (SELECT id FROM StringIds WHERE value = NVTX_EVENTS.text AND id > 900000000), text = NULL",
    f"ALTER TABLE {KERNEL} ADD COLUMN graphId INTEGER",
    f"UPDATE {KERNEL} SET graphId = 5 WHERE graphNodeId IS NOT NULL AND graphNodeId != 0",
    "CREATE TABLE CUPTI_ACTIVITY_KIND_SOMETHING_NEW (start INTEGER)",
]


def test_what_the_program_did_in_one_call(export: Path) -> None:
    profile = read_export(export)
    assert (profile.source, profile.calls) == ("nsys", 3)
    assert (profile.launches, profile.streams, profile.graph_launches) == (7, 2, 1)
    assert profile.graph_share == pytest.approx(3 / 7)
    assert profile.syncs == 0
    assert [(copy.kind, copy.count, copy.size) for copy in profile.copies] == [("Host-to-Device", 1, 4 << 20), ("memset", 1, 4)]
    assert {(region.name, region.launches) for region in profile.regions} == {
        ("input", 1), ("mlp", 1), ("mlp: linear", 1), ("side", 1), (ELSEWHERE, 2), ("replay", 0),
        ("elementwise", 1), ("elementwise: tanh", 2),  # where the graph was captured
    }  # fmt: skip
    assert {(kernel.short, kernel.origin, kernel.region) for kernel in profile.kernels} == {
        (GEMM, "vendor", "mlp: linear"),
        ("copy Host-to-Device", "copy", "input"),
        ("vectorized_elementwise_kernel<GeluCUDAKernelImpl>", "framework", "mlp"),
        ("vectorized_elementwise_kernel<sin_kernel_cuda>", "framework", "side"),
        ("vectorized_elementwise_kernel<MulFunctor>", "framework", "elementwise"),
        ("vectorized_elementwise_kernel<CUDAFunctorOnSelf_add>", "framework", "elementwise: tanh"),
        ("vectorized_elementwise_kernel<tanh_kernel_cuda>", "framework", "elementwise: tanh"),
        ("reduce_kernel<sum_functor>", "framework", ELSEWHERE),
        ("memset", "copy", ELSEWHERE),
    }
    assert all(kernel.launches == 1 for kernel in profile.kernels)
    assert profile.notes == ()


def test_times_are_those_that_were_seen_when_it_was_recorded(export: Path) -> None:
    profile = read_export(export)
    assert profile.gaps is not None
    assert (profile.gaps.count, profile.gaps.before) == (8, GEMM)
    found = (profile.busy_ms, profile.span_ms, profile.idle_ms, profile.gaps.longest_ms, sum(call.ms for call in profile.host))
    assert found == pytest.approx((0.464, 0.494, 0.031, 0.037, 0.108), abs=0.0006)
    assert [(call.name, call.calls) for call in profile.host[:3]] == [
        ("cudaLaunchKernel", 3), ("cudaGraphLaunch", 1), ("cudaMemcpyAsync", 1),
    ]  # fmt: skip
    device = {region.name: region.device_ms for region in profile.regions}
    assert device == pytest.approx(
        {
            "mlp: linear": 0.349, "input": 0.079, ELSEWHERE: 0.011, "side": 0.010, "mlp": 0.007, "elementwise: tanh": 0.004,
            "elementwise": 0.003, "replay": 0.0,
        }, abs=0.0006,
    )  # fmt: skip
    host = {region.name: region.host_ms for region in profile.regions}
    assert host == pytest.approx(
        {
            "mlp: linear": 0.076, "input": 0.046, ELSEWHERE: 0.050, "side": 0.115, "replay": 0.024, "mlp": 0.025,
            "elementwise: tanh": 0.0, "elementwise": 0.0,
        }, abs=0.0006,
    )  # fmt: skip
    assert [round(profile.share_of(origin), 2) for origin in ("vendor", "framework", "copy")] == [0.75, 0.08, 0.17]


def test_times_are_those_that_sql_adds_up(export: Path) -> None:
    profile = read_export(export)
    count, total = asked(f"SELECT count(*), sum(end - start) / 1e6 FROM {LAUNCHED}", "stitchcuda:traced")
    assert sum(kernel.launches for kernel in profile.kernels) == count / 3
    assert sum(kernel.ms for kernel in profile.kernels) == pytest.approx(total / 3)
    spans = f"SELECT sum(span) / 3e6 FROM (SELECT max(end) - min(start) AS span FROM {LAUNCHED} GROUP BY call)"
    assert (profile.span_ms,) == pytest.approx(asked(spans, "stitchcuda:call"))
    assert profile.busy_ms is not None
    assert profile.busy_ms + (profile.idle_ms or 0) == pytest.approx(profile.span_ms)
    (pure,) = asked(f"SELECT sum(end - start) / 3e6 FROM {LAUNCHED}", "stitchcuda:call")
    assert profile.busy_ms + (profile.overlap_ms or 0) == pytest.approx(pure)


def test_a_file_of_an_older_or_a_newer_version_gives_the_same_profile(export: Path, tmp_path: Path) -> None:
    recorded = read_export(export)
    for version in (OLDER, NEWER):
        other = Path(shutil.copy(RECORDED, tmp_path / "other.sqlite"))
        assert read_export(changed(other, *version)) == recorded


def test_without_symbols_the_same_kernels_have_the_names_that_nsys_gave_them(export: Path) -> None:
    """As the oldest files that are documented have them."""
    recorded, old = read_export(export), read_export(changed(export, *OLDER, *dropped(KERNEL, "greenContextId", "mangledName")))

    def facts(profile: SystemProfile) -> list[tuple[object, ...]]:
        return [(kernel.region, kernel.origin, kernel.ms, short_name(kernel.name).split("<")[0]) for kernel in profile.kernels]

    assert facts(old) == facts(recorded)
    assert {kernel.name for kernel in old.kernels} != {kernel.name for kernel in recorded.kernels}
    assert old.model_copy(update={"kernels": recorded.kernels}) == recorded


@pytest.mark.parametrize(
    ("table", "column"),
    [(KERNEL, "demangledName"), (KERNEL, "correlationId"), (RUNTIME, "nameId"), (COPY, "bytes"), (RANGES, "end"),
     ("StringIds", "value")],
)  # fmt: skip
def test_a_version_in_which_a_needed_column_has_another_name_is_said(export: Path, table: str, column: str) -> None:
    changed(export, f'ALTER TABLE {table} RENAME COLUMN "{column}" TO "{column}2"')
    with pytest.raises(Unavailable) as refused:
        read_export(export)
    assert str(refused.value) == f"{export}: {table} has no {column}: this version of Nsight Systems is not known here"


def test_a_file_that_was_cut_off_anywhere_is_refused_in_one_sentence(export: Path) -> None:
    whole = RECORDED.read_bytes()
    chance = random.Random(20261122)
    pages = range(4096, len(whole), 4096)
    for kept in [1, 15, 16, 99, 100, len(whole) - 1, *pages, *chance.choices(range(100, len(whole)), k=60)]:
        export.write_bytes(whole[:kept])
        with pytest.raises(Unavailable) as refused:
            read_export(export)
        said = str(refused.value)
        assert "export the recording again" in said or (kept < 16 and "is no SQLite file" in said)
        assert "\n" not in said


def test_a_page_that_was_lost_is_never_taken_for_fewer_kernels(export: Path) -> None:
    whole, recorded = RECORDED.read_bytes(), read_export(export)
    for at in range(0, len(whole), 4096):
        export.write_bytes(whole[:at] + b"\xaa" * 4096 + whole[at + 4096 :])
        came = tried(export)
        if isinstance(came, str):
            assert re.search(r"export the recording again \([^\n]+\)$|is no SQLite file: [^\n]+$", came)
        else:
            assert came == recorded, "a page that is not read"


def test_the_recording_is_small_and_names_nobody() -> None:
    content = RECORDED.read_bytes()
    assert len(content) < 120_000
    assert not [word for word in (b"/home/", b"/root/", b"/tmp/", b"HOST", b"USER") if word in content]
