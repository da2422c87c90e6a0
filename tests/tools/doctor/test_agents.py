"""What doctor says of coding agents: one line for those that work, one for each that does not, one if there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from stitchcuda.engineers.agents.agent_presets import PRESETS
from stitchcuda.tools.doctor import agents
from stitchcuda.tools.doctor.agents import check_agents


def put(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    (check,) = check_agents(PRESETS)
    assert (check.name, check.ok) == ("agents", False)
    assert check.detail == "none of claude, codex, opencode, gemini is installed"


def test_working_broken_and_hanging_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(agents, "_VERSION_S", 0.5)
    put(tmp_path, "claude", 'test "$*" = --version && echo "2.1.197 (Claude Code)"')
    put(tmp_path, "codex", "echo codex-cli 0.171.0")
    put(tmp_path, "opencode", "printf '\\033[31mcannot find node\\033[0m\\n' >&2; exit 1")
    put(tmp_path, "gemini", "sleep 20")
    working, *broken = check_agents(PRESETS)
    assert (working.ok, working.detail) == (True, "claude 2.1.197, codex 0.171.0")
    assert [check.name for check in broken] == ["agent: opencode", "agent: gemini"]
    assert broken[0].detail.endswith("tells no version: cannot find node"), "without its colours"
    assert "no answer within 0.5 s" in broken[1].detail
    assert not any(check.ok for check in broken)
