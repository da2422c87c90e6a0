"""Records a small torch program with Nsight Systems on a real GPU, and shows what is read out of it.

    python benchmarks/record_nsys.py [--out FILE.sqlite] [--nsys PATH]

Runs the program below under nsys, first as it is, then in the sandbox as a program's worker runs, and prints for each whether
it worked, how long it took and the profile. `--out` keeps the first export that could be made, reduced to the tables and texts
that are read (some ten kilobytes; no names of machines, users or folders), for tests without a GPU. Needs a GPU, torch, nsys.
"""

from __future__ import annotations

import argparse
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stitchcuda.errors import Unavailable
from stitchcuda.sandbox import command
from stitchcuda.sandbox.command import Finished
from stitchcuda.tools.profile import nsys_command
from stitchcuda.tools.profile.nsys_export import read_export
from stitchcuda.tools.profile.profile_table import table
from stitchcuda.tools.profile.profile_text import bottleneck, lines
from stitchcuda.tools.profile.ranges import CALL_RANGE, REGION_PREFIX, TRACED_RANGE

ROOT = Path(__file__).resolve().parent.parent
CALLS = 3
SECONDS = 240.0
TABLES = (
    "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET",
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", "CUDA_GRAPH_NODE_EVENTS", "ENUM_CUDA_MEMCPY_OPER",
)  # fmt: skip
TEXTS = ("nameId", "demangledName", "shortName", "mangledName", "textId")


def program() -> None:
    """Calls with a copy from the host, nested regions, a second stream, a CUDA graph and a kernel in no region.

    The graph was captured in a region, before the calls.
    """
    import torch

    nvtx: Any = torch.cuda.nvtx
    linear = torch.nn.Linear(2048, 2048, device="cuda")
    x, scratch = torch.randn(2048, 2048, device="cuda"), torch.ones(1 << 20, device="cuda")
    given, side = torch.randn(1 << 20).pin_memory(), torch.cuda.Stream()  # type: ignore[no-untyped-call, unused-ignore]

    def captured() -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            scratch.mul_(1.5)
            nvtx.range_push(f"{REGION_PREFIX}elementwise: tanh")
            scratch.add_(1.0).tanh_()
            nvtx.range_pop()
        return graph

    def call(push: bool) -> None:
        def region(name: str | None) -> None:
            if push:
                nvtx.range_push(REGION_PREFIX + name) if name else nvtx.range_pop()

        region("input")
        given.to("cuda", non_blocking=True)
        region(None)
        region("mlp")
        region("mlp: linear")
        y = linear(x)
        region(None)
        y = torch.nn.functional.gelu(y)
        region(None)
        region("side")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            x.sin()
        torch.cuda.current_stream().wait_stream(side)
        region(None)
        region("replay")
        graph.replay()
        region(None)
        y.sum()

    with torch.no_grad():
        scratch.mul_(1.5).add_(1.0).tanh_()
        torch.cuda.synchronize()
        torch.cuda.profiler.start()  # type: ignore[no-untyped-call, unused-ignore]
        nvtx.range_push(f"{REGION_PREFIX}elementwise")
        graph = captured()
        nvtx.range_pop()
        for _ in range(2):                 # few: they are recorded, too
            call(False)
        torch.cuda.synchronize()
        for text in (CALL_RANGE, TRACED_RANGE):
            for _ in range(CALLS):
                nvtx.range_push(text)
                call(text == TRACED_RANGE)
                nvtx.range_pop()
                torch.cuda.synchronize()
        torch.cuda.profiler.stop()  # type: ignore[no-untyped-call, unused-ignore]


def in_the_sandbox(
    line: Sequence[str],
    *,
    seconds: float,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    read: Sequence[Path] = (),
    write: Sequence[Path] = (),
) -> Finished:
    return command.run(line, seconds=seconds, cwd=cwd, env=env, read=(*read, ROOT), write=write, gpu=True, loopback=True)


def recorded(folder: Path, nsys: Path, *, sandboxed: bool) -> Path:
    """The export of one recording of the program above. Raises `Unavailable` where there is none."""
    env = dict(os.environ) | {"TMPDIR": str(folder)}
    if sandboxed:
        env |= {"HOME": str(folder)}
    line = [sys.executable, str(Path(__file__).resolve()), "--program"]
    run = in_the_sandbox if sandboxed else command.unconfined
    report, own = folder / "report", nsys.resolve().parent.parent
    order = [*nsys_command.under(nsys, report), *line]
    done = run(order, seconds=SECONDS, cwd=folder, env=env, read=(own,), write=(folder,))
    return nsys_command.exported(nsys, nsys_command.recorded(done, report), run, env=env)


def reduce(export: Path, out: Path) -> None:
    """A copy with nothing in it but what is read, and nothing of the machine."""
    out.unlink(missing_ok=True)
    with sqlite3.connect(out) as small:
        small.execute("ATTACH ? AS whole", (str(export),))
        here = dict(small.execute("SELECT name, sql FROM whole.sqlite_master WHERE type = 'table'"))
        conditions = dict.fromkeys((name for name in TABLES if name in here), "1")
        texts = "SELECT id FROM whole.StringIds WHERE value LIKE 'stitchcuda:%'"
        conditions["NVTX_EVENTS"] = f"text LIKE 'stitchcuda:%' OR textId IN ({texts})"
        conditions["META_DATA_EXPORT"] = "name IN ('EXPORT_PRODUCT_VERSION', 'EXPORT_SCHEMA_VERSION')"
        used = []
        for name, condition in conditions.items():
            small.execute(here[name])
            small.execute(f"INSERT INTO {name} SELECT * FROM whole.{name} WHERE {condition}")
            columns = {row[1] for row in small.execute(f"PRAGMA table_info({name})")}
            used += [f"SELECT {column} FROM {name}" for column in TEXTS if column in columns]
        small.execute(here["StringIds"])
        small.execute(f"INSERT INTO StringIds SELECT * FROM whole.StringIds WHERE id IN ({' UNION '.join(used)})")
    small.execute("DETACH whole")
    small.execute("VACUUM")
    small.close()


def facts(export: Path) -> str:
    """What tests and the reader take for granted of a version's files."""
    with sqlite3.connect(export) as file:
        meta = dict(file.execute("SELECT name, value FROM META_DATA_EXPORT"))
        graph = file.execute(
            "SELECT count(*), count(DISTINCT k.correlationId) FROM CUPTI_ACTIVITY_KIND_KERNEL k "
            "JOIN CUPTI_ACTIVITY_KIND_RUNTIME r ON r.correlationId = k.correlationId JOIN StringIds s ON s.id = r.nameId "
            "WHERE s.value LIKE '%GraphLaunch%'"
        ).fetchone()
        columns = [row[1] for row in file.execute("PRAGMA table_info(CUPTI_ACTIVITY_KIND_KERNEL)")]
        ranges = file.execute("SELECT count(text), count(textId) FROM NVTX_EVENTS").fetchone()
    file.close()
    return (
        f"nsys {meta.get('EXPORT_PRODUCT_VERSION')}, schema {meta.get('EXPORT_SCHEMA_VERSION')}; {graph[0]} kernels of "
        f"{graph[1]} graph launches; ranges with a text {ranges[0]}, with its number {ranges[1]}; "
        f"kernel columns: {' '.join(columns)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, help="keep a reduced export here")
    parser.add_argument("--nsys", type=Path, default=nsys_command.find_nsys())
    parser.add_argument("--program", action="store_true", help="be the program that is recorded")
    asked = parser.parse_args()
    if asked.program:
        return program()
    if asked.nsys is None:
        sys.exit("nsys was not found")
    version = subprocess.run([asked.nsys, "--version"], capture_output=True, text=True, check=False).stdout
    print(f"{asked.nsys}: {' '.join(re.findall(r'[0-9][0-9.]+[0-9]', version)[:1])}")
    kept = False
    for title, sandboxed in (("as it is", False), ("in the sandbox", True)):
        with tempfile.TemporaryDirectory(prefix="nsys-") as name:
            began = time.monotonic()
            try:
                export = recorded(Path(name), asked.nsys, sandboxed=sandboxed)
                profile = read_export(export)
            except (Unavailable, subprocess.TimeoutExpired) as error:
                print(f"\n== {title}: failed after {time.monotonic() - began:.1f} s: {error}")
                continue
            print(f"\n== {title}: {time.monotonic() - began:.1f} s, export of {export.stat().st_size} bytes; {facts(export)}")
            print("\n".join([bottleneck(profile), *lines(profile), "", table(profile)]))
            if asked.out and not kept:
                reduce(export, asked.out)
                kept = read_export(asked.out).model_copy(update={"notes": profile.notes}) == profile
                print(f"{asked.out}: {asked.out.stat().st_size} bytes, {'the same profile' if kept else 'ANOTHER PROFILE'}")


if __name__ == "__main__":
    main()
