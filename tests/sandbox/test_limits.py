"""Children are bounded, leave nothing behind, and are told nothing that they need not know."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stitchcuda.sandbox import limits
from stitchcuda.state import Settings
from stitchcuda.verify.client import Judge
from stitchcuda.verify.processes.forkserver import ForkServer
from tests.sandbox.prison import Prisoner
from tests.verify import programs


def test_scratch_of_a_dead_process_is_swept() -> None:
    left = subprocess.run(
        [sys.executable, "-c", "from stitchcuda.sandbox import limits; print(limits.make_scratch())"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    old = Path(left.stdout.strip())
    assert old.is_dir()
    fresh = limits.make_scratch()
    assert fresh.is_dir()
    assert not old.exists()
    fresh.rmdir()


def test_signals_have_names() -> None:
    assert limits.signal_name(-11) == "SIGSEGV"
    assert limits.signal_name(3) == "exit code 3"


def test_no_key_reaches_a_program(forkserver: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in the environment nor in what the kernel remembers of it."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-programs")
    with Prisoner(forkserver) as one:
        assert "sk-not" not in one.does("import os; out = repr(os.environ) + open('/proc/self/environ').read()")
        assert "sk-not" not in one.does("out = open('/proc/1/environ').read()")


@pytest.mark.more
def test_the_simulators_settings_reach_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was asked for holds in its worker, whose environment does not tell it."""
    barrier = "  if (threadIdx.x >= 100) return;\n  __syncthreads();\n  for (int i ="
    kernel = programs.KERNEL.replace("  for (int i =", barrier).replace("blockDim.x", "100")
    program = programs.kernel_program(tmp_path / "program", kernel=kernel)
    source = program / "model_new.py"
    source.write_text(f"import os\nassert not [key for key in os.environ if '_SIM_' in key]\n{source.read_text()}")
    reference = tmp_path / "gated.py"
    reference.write_text(programs.REFERENCE)
    for asked in ("allow", "refuse"):
        monkeypatch.setenv("STITCHCUDA_SIM_RETURNED", asked)
        with Judge(reference, Settings(target="sim"), cache=Path("/tmp/stitchcuda-simulator-tests")) as judge:
            result = judge.check(program, seeds=1)
        assert result.ok == (asked == "allow"), result.reasons
    assert "never reach" in result.reasons[0]
