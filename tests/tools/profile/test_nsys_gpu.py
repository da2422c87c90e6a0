"""On a GPU with Nsight Systems: a program is recorded in the sandbox, and what is read is what it did."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stitchcuda.sandbox import command
from stitchcuda.tools.profile.nsys_command import find_nsys
from stitchcuda.tools.profile.nsys_export import read_export
from stitchcuda.tools.profile.system_profile import ELSEWHERE
from tests.tools.profile.test_nsys_command import record

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = ROOT / "benchmarks" / "record_nsys.py"


def _run(readable: Path, line: Sequence[str], *, read: Sequence[Path] = (), **more: Any) -> command.Finished:
    """In the sandbox, with the GPU and what the program is imported from."""
    return command.run(line, read=(*read, readable), gpu=True, loopback=True, **more)


def test_a_program_with_a_copy_a_graph_and_two_streams(tmp_path: Path) -> None:
    nsys = find_nsys()
    if nsys is None:
        pytest.skip("no nsys on this machine")

    run: Any = partial(_run, ROOT)
    export = record([sys.executable, str(PROGRAM), "--program"], tmp_path, run, nsys=nsys, seconds=240)
    profile = read_export(export)
    assert (profile.calls, profile.graph_launches) == (3, 1)
    assert (profile.streams or 0) >= 2
    assert profile.launches >= 7, "linear, gelu, sin, three of the graph, the sum"
    assert profile.graph_share == pytest.approx(3 / profile.launches)
    assert profile.syncs == 0, "waiting for the device is no part of a call"
    copied = {copy.kind: copy.size for copy in profile.copies}
    assert copied["Host-to-Device"] == 4 << 20
    regions = {region.name: region for region in profile.regions}
    assert set(regions) == {"input", "mlp", "mlp: linear", "side", "replay", "elementwise", "elementwise: tanh", ELSEWHERE}
    launches = {name: regions[name].launches for name in ("input", "mlp", "side")}
    assert launches == {"input": 1, "mlp": 1, "side": 1}
    captured = {name: regions[name].launches for name in ("replay", "elementwise", "elementwise: tanh")}
    assert captured == {"replay": 0, "elementwise": 1, "elementwise: tanh": 2}, "a graph's kernels are where it was captured"
    assert "vendor" in {kernel.origin for kernel in profile.kernels if kernel.region == "mlp: linear"}
    assert sum(region.device_ms for region in profile.regions) == pytest.approx(sum(kernel.ms for kernel in profile.kernels))
    assert not [note for note in profile.notes if note.startswith("left out")]
