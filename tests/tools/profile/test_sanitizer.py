"""compute-sanitizer: what its logs say, in the wording of several versions, and what it means when it cannot run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from stitchcuda.sandbox.command import Finished
from stitchcuda.tools.profile import sanitizer
from stitchcuda.tools.profile.sanitizer import sanitize
from stitchcuda.tools.profile.sanitizer_log import Tool, errors, findings
from tests.tools.profile.test_ncu_command import fake, run

MEMCHECK = """\
========= COMPUTE-SANITIZER
Mallocing memory
========= Invalid __global__ write of size 4 bytes
=========     at unaligned_kernel()+0x100 in /work/demo/memcheck_demo.cu:34
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x7cc43aa00001 is misaligned
=========     and is inside the nearest allocation at 0x7cc43aa00000 of size 4 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: main [0xae61] in memcheck_demo
=========
========= Invalid __global__ read of size 4 bytes
=========     at out_of_bounds_function(float const*)+0xb0 in /work/demo/memcheck_demo.cu:39
=========     by thread (31,2,0) in block (7,0,1)
=========     Address 0x7cc43a800400 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7cc43a800000 of size 1,024 bytes
=========     Device Frame: out_of_bounds_kernel(float const*)+0x30 in /work/demo/memcheck_demo.cu:44
=========
========= Invalid __global__ read of size 4 bytes
=========     at out_of_bounds_function(float const*)+0xb0 in /work/demo/memcheck_demo.cu:39
=========     by thread (30,2,0) in block (7,0,1)
=========     Address 0x7cc43a800404 is out of bounds
=========     and is 5 bytes after the nearest allocation at 0x7cc43a800000 of size 1,024 bytes
=========     Device Frame: out_of_bounds_kernel(float const*)+0x30 in /work/demo/memcheck_demo.cu:44
=========
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure" on CUDA API call to cudaMemcpy.
=========     Saved host backtrace up to driver entry point at error
=========
========= ERROR SUMMARY: 4 errors
"""

OLD_MEMCHECK = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 2 bytes
=========     at 0xd80 in /data/src/kernels/attention.cu:162:void add_bias<(bool)1, __half>(T2 *, int)
=========     by thread (63,0,0) in block (506,0,0)
=========     Address 0x7fcd07a0312c is out of bounds
=========     and is 12589 bytes after the nearest allocation at 0x7fcd079ffc00 of size 1024 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========     Host Frame: [0x2ea231]
=========                in /usr/lib/x86_64-linux-gnu/libcuda.so.1
=========
========= ERROR SUMMARY: 1 error
"""

RACECHECK = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at sumKernel(int *, int *)+0x90 in /work/demo/block_error.cu:41
=========     and Read access at sumKernel(int *, int *)+0x100 in /work/demo/block_error.cu:51 [508 hazards]
=========     and Write access at sumKernel(int *, int *)+0x110 in /work/demo/block_error.cu:53 [1,024 hazards]
=========
========= Warning: Race reported between Read access at 0x1f20 in /work/demo/range.hpp:249:reduce()
=========     and Write access at 0x14b0 in /work/demo/range.hpp:349:scan(int) [4 hazards]
=========
========= Warning: (Warp Level Programming) Potential RAW hazard detected at __shared__ 0x8c in block (0,0,0) :
=========     Write Thread (35,0,0) at sumKernel(int *, int *)+0x90 in /work/demo/warp_error.cu:44
=========     Read Thread (32,0,0) at sumKernel(int *, int *)+0x120 in /work/demo/warp_error.cu:56
=========     Current Value : 35
=========
========= RACECHECK SUMMARY: 3 hazards displayed (1 error, 2 warnings)
"""

INITCHECK = """\
========= COMPUTE-SANITIZER
out shape: 2 x 2
========= Uninitialized __global__ memory read of size 4 bytes
=========     at vectorAdd(int *)+0x70 in /work/demo/memset_error.cu:41
=========     by thread (31,0,0) in block (1,0,0)
=========     Address 0x7f3c7ec000fc
=========
========= Uninitialized __global__ memory read of size 1 bytes
=========     at 0x150 in void cudf::count_bits<int=256>(unsigned int const *,int,int,int*)
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x7fc406200400
=========
========= Host API memory access error at host access to 0x7f7fcdc01200 of size 400 bytes
=========     Uninitialized access at 0x7f7fcdc01300 on access by cudaMemcpy source
=========     Saved host backtrace up to driver entry point at error
=========
========= ERROR SUMMARY: 3 errors
"""

SYNCCHECK = """\
========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in block.
=========     at [clone myKernel(int *, int *)] outlineSync()+0x11f0 in /work/demo/test.cu:42
=========     by thread (32,0,0) in block (0,0,0)
=========     Device Frame: myKernel(int *, int *)+0xe40 in /work/demo/test.cu:60
=========
========= Barrier error detected. Invalid arguments
=========     at __cuda_sm70_warpsync+0x30
=========     by thread (0,0,0) in block (0,0,0)
=========     Device Frame:__syncwarp(unsigned int)+0xf0 in /usr/local/cuda/include/sm_30_intrinsics.hpp:110
=========     Device Frame:myKernel(int *)+0x3c0 in /work/demo/illegal_syncwarp.cu:48
=========
========= Barrier error detected. Divergent thread(s) in warp
=========     at 0x00000058 in test(int*, int*)
=========     by thread (1,0,0) in block (0,0,0)
=========     Device Frame:test(int*, int*) (test(int*, int*) : 0x60)
=========
========= ERROR SUMMARY: 3 errors
"""
ROOT = Path("/work/demo")


def test_memcheck_says_which_access_of_which_thread_was_wrong() -> None:
    found = findings(MEMCHECK, "memcheck", ROOT)
    assert errors(MEMCHECK) == 4
    read, write, api = found
    assert (read.kind, read.count, read.size, read.space) == ("out of bounds read", 2, 4, "global")
    assert (read.kernel, read.file, read.line) == ("out_of_bounds_kernel(float const*)", "memcheck_demo.cu", 39)
    assert (read.thread, read.block, read.address) == ((31, 2, 0), (7, 0, 1), 0x7CC43A800400)  # of the first time
    assert (write.kind, write.kernel, write.line) == ("misaligned write", "unaligned_kernel()", 34)
    assert (api.kind, api.kernel) == ("API error", "")
    assert "cudaErrorLaunchFailure" in api.text
    assert str(read) == (
        "memcheck: Invalid __global__ read of size 4 bytes, out of bounds, 1 bytes after the nearest allocation at "
        "0x7cc43a800000 of size 1,024 bytes in out_of_bounds_kernel(float const*) at memcheck_demo.cu:39 (2 times)"
    )


def test_logs_of_older_versions_read_the_same() -> None:
    (found,) = findings(OLD_MEMCHECK, "memcheck")
    assert (found.kind, found.size, found.thread, found.block) == ("out of bounds write", 2, (63, 0, 0), (506, 0, 0))
    assert (found.file, found.line) == ("/data/src/kernels/attention.cu", 162)
    assert found.kernel == "add_bias<(bool)1, __half>(T2 *, int)"


def test_racecheck_names_both_sides_and_counts_hazards() -> None:
    block, reduce, warp = findings(RACECHECK, "racecheck", ROOT)
    assert errors(RACECHECK) == 3
    assert (block.kind, block.severity, block.count, block.space) == ("race", "error", 1532, "shared")
    assert (block.kernel, block.file, block.line) == ("sumKernel(int *, int *)", "block_error.cu", 41)
    assert block.text == (
        "race between the write at block_error.cu:41 and the read at block_error.cu:51 and the write at block_error.cu:53"
    )
    assert (reduce.severity, reduce.count, reduce.file, reduce.line) == ("warning", 4, "range.hpp", 249)
    assert (warp.thread, warp.block, warp.address, warp.line) == ((35, 0, 0), (0, 0, 0), 0x8C, 44)
    assert warp.text == "RAW hazard between warp_error.cu:44 and warp_error.cu:56"


def test_initcheck_names_the_read_and_the_copy() -> None:
    read, bits, copy = findings(INITCHECK, "initcheck", ROOT)
    assert (read.kind, read.kernel, read.file, read.line) == ("uninitialized read", "vectorAdd(int *)", "memset_error.cu", 41)
    assert (read.thread, read.address, read.size) == ((31, 0, 0), 0x7F3C7EC000FC, 4)
    assert (bits.kernel, bits.file, bits.line) == ("cudf::count_bits<int=256>(unsigned int const *,int,int,int*)", "", None)
    assert copy.kind == "uninitialized copy"


def test_synccheck_names_the_kernel_and_its_own_line_and_not_the_header_s() -> None:
    divergent, arguments, old = findings(SYNCCHECK, "synccheck", ROOT)
    assert {divergent.kind, arguments.kind, old.kind} == {"barrier"}
    assert (divergent.kernel, divergent.file, divergent.line) == ("myKernel(int *, int *)", "test.cu", 42)
    assert (arguments.kernel, arguments.file, arguments.line) == ("myKernel(int *)", "illegal_syncwarp.cu", 48)
    assert arguments.text == "Barrier error detected. Invalid arguments"
    assert (old.kernel, old.thread) == ("test(int*, int*)", (1, 0, 0))


def test_what_the_program_prints_is_no_finding() -> None:
    log = "Invalid __global__ read of size 4 bytes\nRace reported between\n========= ERROR SUMMARY: 0 errors\n"
    assert findings(log, "memcheck") == ()
    assert errors(log) == 0


READ = "========= Invalid __global__ read of size 4 bytes\n=========     "


@pytest.mark.parametrize(
    "log",
    [
        f"========= Potential RAW hazard detected at __shared__ 0xqq in block ({'1,' * 3}) :\n",
        "========= ERROR SUMMARY: , errors\n",
        f"========= ERROR SUMMARY: {'9' * 5000} errors\n",
        f"{READ}Address 0xqq is out of bounds\n",
        f"{READ}by thread (1,2) in block (,,)\n",
        f"{READ}at kernel(int)+0x10 in /{'a' * 300}.cu:3\n",
        f"{READ}at kernel(int)+0x10 in {'a/' * 100_000}a.cu:3\n",
        f"{READ}at kernel+0x10 in a.cu:{'9' * 5000}\n",
        f"{READ}at {' (' * 100_000}\n",
    ],
)
def test_what_the_program_prints_in_the_tool_s_manner_is_no_end_of_it(log: str, tmp_path: Path) -> None:
    assert errors(log) is None
    assert all(one.address is None and one.block is None for one in findings(log, "memcheck", tmp_path))


@pytest.mark.parametrize("log", [MEMCHECK, RACECHECK, INITCHECK, SYNCCHECK])
def test_a_log_that_was_cut_off_anywhere_gives_what_it_holds(log: str) -> None:
    whole = sum(one.count for one in findings(log, "memcheck"))
    for end in range(0, len(log), 7):
        assert sum(one.count for one in findings(log[:end], "memcheck")) <= whole
    assert errors(log[: log.rindex("=========")]) is None


@pytest.mark.parametrize(
    ("tool", "log"), [("memcheck", MEMCHECK), ("racecheck", RACECHECK), ("initcheck", INITCHECK), ("synccheck", SYNCCHECK)]
)
def test_a_run_gives_the_findings_of_its_tool(tmp_path: Path, tool: Tool, log: str) -> None:
    (tmp_path / "log").write_text(log)
    where = fake(tmp_path, f'case "$all" in *"--tool {tool} "*"program --flag") cat {tmp_path}/log;; esac', "compute-sanitizer")
    said = sanitize(("program", "--flag"), tool, run=run, sanitizer=where, root=ROOT)
    assert (said.tool, said.skipped, said.note) == (tool, "", "")
    assert said.findings == findings(log, tool, ROOT)
    assert (said.errors, said.clean) == (errors(log), False)


def test_a_run_without_findings_is_clean(tmp_path: Path) -> None:
    where = fake(tmp_path, "echo '========= COMPUTE-SANITIZER'; echo '========= ERROR SUMMARY: 0 errors'", "compute-sanitizer")
    assert sanitize(("program",), run=run, sanitizer=where).clean


def test_an_entry_point_that_the_driver_lacks_is_not_the_program_s_fault(tmp_path: Path) -> None:
    log = ("========= Program hit CUDA_ERROR_NOT_FOUND (error 500) due to \"named symbol not found\" on CUDA API call to "
           "cuGetProcAddress_v2.\n========= ERROR SUMMARY: 1 error\n")  # fmt: skip
    (tmp_path / "log").write_text(log)
    said = sanitize(("program",), run=run, sanitizer=fake(tmp_path, f"cat {tmp_path}/log", "compute-sanitizer"))
    assert [one.severity for one in said.findings] == ["info"]
    assert said.clean


def test_a_summary_without_a_good_end_is_not_clean(tmp_path: Path) -> None:
    """The program may have failed, or have printed the summary of a tool that did."""
    where = fake(tmp_path, "echo '========= ERROR SUMMARY: 0 errors'; exit 3", "compute-sanitizer")
    said = sanitize(("program",), run=run, sanitizer=where)
    assert (said.clean, said.note) == (False, "memcheck or the program under it ended with 3; there may be more")


def test_reads_in_kernels_of_others_are_not_told(tmp_path: Path) -> None:
    """Everything is looked at, since what others write is written; of their reads nothing is told."""
    log = (Path(__file__).parent / "fixtures" / "sanitizer" / "initcheck.log").read_text()
    (kernel,) = {one.kernel for one in findings(log, "initcheck")}
    (tmp_path / "log").write_text(log)
    where = fake(tmp_path, f'echo "$all" > {tmp_path}/asked; cat {tmp_path}/log', "compute-sanitizer")
    own = sanitize(("program",), "initcheck", run=run, sanitizer=where, kernels=(kernel.split("(")[0],))
    assert own.findings == findings(log, "initcheck") != ()
    assert "--kernel-name" not in (tmp_path / "asked").read_text()
    others = sanitize(("program",), "initcheck", run=run, sanitizer=where, kernels=("own_kernel",))
    assert others.findings == ()


def test_reports_that_were_not_printed_are_said(tmp_path: Path) -> None:
    rest = "echo '========= ERROR SUMMARY: 3321 errors were not printed. Use --print-limit option to adjust the number of them'"
    where = fake(tmp_path, f"echo '========= ERROR SUMMARY: 4321 errors'; {rest}", "compute-sanitizer")
    said = sanitize(("program",), "initcheck", run=run, sanitizer=where, kernels=("own",))
    assert (said.errors, said.note) == (4321, "initcheck has 4321 reports and printed 1000 of them")
    assert not said.clean


def test_a_run_that_was_cut_off_is_not_clean(tmp_path: Path) -> None:
    log = MEMCHECK[: MEMCHECK.rindex("=========")]
    said = sanitize(("program",), run=lambda *_, **__: Finished(-9, log, 600.0, timed_out=True), sanitizer=tmp_path)
    assert len(said.findings) == 3
    assert (said.clean, said.note) == (False, "memcheck did not come to its end; there may be more")
    nothing = sanitize(("program",), run=lambda *_, **__: Finished(-9, "", 600.0, timed_out=True), sanitizer=tmp_path)
    assert nothing.skipped == "memcheck did not finish within its 600 s"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("========= Error: Target application terminated before first instrumented API call", "before it used CUDA"),
        ("========= Error: No attachable process found. compute-sanitizer timed-out.", "cannot be followed"),
        ("========= Unable to find injection library libsanitizer-collection.so", "install it again"),
        ("Segmentation fault", "compute-sanitizer ended with 1: Segmentation fault"),
    ],
)
def test_a_tool_that_could_not_run_says_why(tmp_path: Path, said: str, why: str) -> None:
    where = fake(tmp_path, f"echo '{said}'; exit 1", "compute-sanitizer")
    came = sanitize(("program",), run=run, sanitizer=where)
    assert why in came.skipped
    assert (came.clean, came.findings, came.errors) == (False, (), None)


def test_memcheck_sees_every_tensor_s_border(tmp_path: Path) -> None:
    """torch hands out parts of one allocation; with its pool off each tensor is one of its own."""
    seen: list[Mapping[str, str]] = []

    def watched(order: Sequence[str], environment: Mapping[str, str]) -> Finished:
        seen.append(environment)
        return Finished(0, "========= ERROR SUMMARY: 0 errors\n", 1.0)

    sanitize(("program",), run=watched, sanitizer=tmp_path)
    assert seen == [{"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}]


def test_a_program_that_records_graphs_gets_a_memory_pool(tmp_path: Path) -> None:
    """Without one nothing can be allocated while a graph is recorded; the next tool begins with what worked."""
    settings: list[dict[str, str]] = []

    def recording(order: Sequence[str], environment: Mapping[str, str]) -> Finished:
        settings.append(dict(environment))
        if "PYTORCH_NO_CUDA_MEMORY_CACHING" in settings[-1]:
            said = "RuntimeError: CUDA error: operation not permitted when stream is capturing\n"
            return Finished(1, f"{said}========= ERROR SUMMARY: 0 errors\n", 1.0)
        return Finished(0, "========= ERROR SUMMARY: 0 errors\n", 1.0)

    first = sanitize(("program",), run=recording, sanitizer=tmp_path)
    assert settings == [{"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, {}]
    assert (first.clean, first.pool) == (True, 1)
    assert "in torch's memory pool, in which no border between them is seen" in first.note
    sanitize(("program",), run=recording, sanitizer=tmp_path, pool=first.pool)
    assert settings[2:] == [{}]


def test_without_compute_sanitizer_it_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitizer, "find_sanitizer", lambda: None)
    assert "comes with the CUDA toolkit" in sanitize(("program",), run=run).skipped
