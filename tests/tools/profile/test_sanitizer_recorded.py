"""compute-sanitizer's own logs of a program with one fault for each tool, recorded on a GPU: each is found, with its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stitchcuda.sandbox.command import Finished
from stitchcuda.tools.profile.sanitizer import TOOLS, sanitize
from stitchcuda.tools.profile.sanitizer_log import Tool, errors, findings

LOGS = Path(__file__).parent / "fixtures" / "sanitizer"
SOURCE = (LOGS / "faulty.cu").read_text().splitlines()


def log(name: str) -> str:
    return (LOGS / f"{name}.log").read_text()


def line(code: str) -> int:
    (number,) = (number for number, text in enumerate(SOURCE, 1) if code in text)
    return number


def test_memcheck_finds_the_threads_past_the_end_and_the_launch_that_failed() -> None:
    write, launch = findings(log("memcheck"), "memcheck")
    assert (write.kind, write.kernel) == ("out of bounds write", "past_the_end(float *, int)")
    assert (write.size, write.space) == (4, "global")
    assert (write.file, write.line) == ("faulty.cu", line("past_the_end(float* x"))
    assert (write.count, write.thread, write.block) == (128 - 100, (100, 0, 0), (0, 0, 0))
    assert "1 bytes after the nearest allocation" in write.text
    assert "of size 400 bytes" in write.text
    assert (launch.kind, launch.count, launch.kernel) == ("API error", 1, "")
    assert "cudaErrorLaunchFailure" in launch.text
    assert errors(log("memcheck")) == write.count + launch.count


def test_racecheck_finds_both_lines() -> None:
    (race,) = findings(log("racecheck"), "racecheck")
    write, read = line("cells[threadIdx.x] = "), line("= cells[127")
    assert (race.kind, race.severity, race.kernel, race.count) == ("race", "error", "racing(int *)", 512)
    assert (race.file, race.line) == ("faulty.cu", write)
    assert race.text == f"race between the write at faulty.cu:{write} and the read at faulty.cu:{read}"
    assert errors(log("racecheck")) == 1


def test_initcheck_finds_the_read_of_what_was_never_written() -> None:
    (read,) = findings(log("initcheck"), "initcheck")
    assert (read.kind, read.kernel) == ("uninitialized read", "reads_unwritten(const int *, int *)")
    assert (read.file, read.line) == ("faulty.cu", line("= in[threadIdx.x]"))
    assert (read.count, read.thread, read.size) == (4, (0, 0, 0), 4)  # the log is cut, its sum is not
    assert errors(log("initcheck")) == 100


def test_synccheck_finds_the_barrier_that_half_a_warp_never_reaches() -> None:
    (barrier,) = findings(log("synccheck"), "synccheck")
    assert (barrier.kind, barrier.kernel) == ("barrier", "divergent(int *)")
    assert (barrier.file, barrier.line) == ("faulty.cu", line("__syncthreads"))
    assert (barrier.count, barrier.thread) == (48 - 32, (32, 0, 0))
    assert barrier.text == "Barrier error detected. Divergent thread(s) in warp"
    assert errors(log("synccheck")) == barrier.count


@pytest.mark.parametrize("tool", TOOLS)
def test_a_run_with_the_fault_is_not_clean_and_one_without_is(tool: Tool) -> None:
    def ran(name: str) -> Any:
        return lambda *_, **__: Finished(0, log(name), 1.0)

    faulty = sanitize(("faulty",), tool, run=ran(tool), sanitizer=LOGS)
    assert (faulty.clean, faulty.skipped, faulty.note) == (False, "", "")
    assert faulty.findings == findings(log(tool), tool)
    clean = sanitize(("faulty",), tool, run=ran("racecheck_clean" if tool == "racecheck" else "clean"), sanitizer=LOGS)
    assert (clean.clean, clean.findings, clean.errors) == (True, (), 0)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_log_that_was_cut_off_anywhere_gives_what_it_holds_and_is_not_clean(tool: Tool) -> None:
    whole = log(tool)
    most = sum(one.count for one in findings(whole, tool))
    end = whole.rindex("=========")
    for kept in range(0, end, 13):
        assert sum(one.count for one in findings(whole[:kept], tool)) <= most
        cut = Finished(-9, whole[:kept], 60.0, timed_out=True)
        assert not sanitize(("faulty",), tool, run=lambda *_, _cut=cut, **__: _cut, sanitizer=LOGS).clean
