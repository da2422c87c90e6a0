"""Children are bounded, leave nothing behind, and are told nothing that they need not know."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from stitchcuda.sandbox import limits
from stitchcuda.state import Settings
from stitchcuda.tools.check import Judge
from stitchcuda.tools.nursery import Nursery
from tests.tools import programs

from .prison import Prisoner


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


def test_no_key_reaches_a_program(nursery: Nursery, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in the environment nor in what the kernel remembers of it."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-not-for-programs")
    with Prisoner(nursery) as one:
        assert "sk-not" not in one.does("import os; out = repr(os.environ) + open('/proc/self/environ').read()")
        assert "sk-not" not in one.does("out = open('/proc/1/environ').read()")


def test_the_simulators_settings_reach_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was asked for is passed on; shared memory is poisoned unless asked otherwise."""
    monkeypatch.setenv("STITCHCUDA_SIM_SCHEDULE", "random:5")
    monkeypatch.setenv("STITCHCUDA_SIM_RETURNED", "refuse")
    monkeypatch.delenv("STITCHCUDA_SIM_CHECK", raising=False)
    reference = tmp_path / "gated.py"
    reference.write_text(programs.REFERENCE)
    names = ("SCHEDULE", "RETURNED", "CHECK")
    for asked, expected in ((None, "1"), ("0", "0")):
        if asked is not None:
            monkeypatch.setenv("STITCHCUDA_SIM_CHECK", asked)
        # By their ends: a program that names the verifier's own variables is refused before it runs.
        found = "next(text for key, text in os.environ.items() if key.endswith('_SIM_' + name))"
        seen = f"assert [{found} for name in {names}] == ['random:5', 'refuse', '{expected}']"
        with Judge(reference, Settings(target="sim"), cache=tmp_path / "cache") as judge:
            result = judge.check(programs.model(tmp_path / expected, before=seen), seeds=1)
        assert result.ok, result.reasons
