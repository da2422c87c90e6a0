"""How `--model agent:COMMAND` and its options are read, and what is refused before anything starts."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from stitchcuda.engineers.agents.agent_command import AgentCommand, installation, read_agent_command
from stitchcuda.engineers.agents.agent_presets import PRESETS
from stitchcuda.engineers.agents.opening import open_agent_engineer
from stitchcuda.engineers.selection import check_models
from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.sandbox.protections import WITHOUT
from stitchcuda.sandbox.proxy import NetworkEndpoint, read_endpoint
from stitchcuda.state import Settings


def settings(model: str, **options: Any) -> Settings:
    limits = {name: options.pop(name) for name in ("max_minutes",) if name in options}
    return Settings(model=model, options=options, **limits)


def read(asked: Settings) -> AgentCommand:
    return read_agent_command(asked, Path("/no/workspace"))


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of PATH with a command for each preset, and an empty home."""
    folder, home = tmp_path / "prefix" / "bin", tmp_path / "home"
    folder.mkdir(parents=True)
    home.mkdir()
    for name in PRESETS:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("HOME", str(home))
    return folder


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_whole(tools: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    preset = PRESETS[name]
    for key in preset.keys:
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv(preset.keys[0], "sk-1")
    (Path.home() / preset.config[0]).parent.mkdir(parents=True)
    (Path.home() / preset.config[0]).write_text("{}")
    check_models(settings(f"agent:{name}"))
    made = read(settings(f"agent:{name}"))
    assert (made.name, made.words[0]) == (name, str(tools / name))
    assert "Read {prompt_file} and do what it says." in made.words
    assert made.endpoints == tuple(map(read_endpoint, preset.endpoints))
    assert dict(made.variables) == {**preset.variables, preset.keys[0]: "sk-1"}
    assert made.config == preset.config[:1]
    assert "sk-1" not in repr(made)


def test_own_arguments_keep_the_rest_of_a_preset(tools: Path) -> None:
    made = read(settings('agent:claude -p "go on" --model opus', endpoints="127.0.0.1:8000, [::1]:81"))
    assert made.words[1:] == ("-p", "go on", "--model", "opus")
    assert made.endpoints == (NetworkEndpoint("127.0.0.1", 8000), NetworkEndpoint("::1", 81))
    assert made.variables == PRESETS["claude"].variables


def test_limits(tools: Path) -> None:
    assert read(settings("agent:codex")).minutes == 480
    assert read(settings("agent:codex", max_minutes=20)).minutes == 20
    made = read(settings("agent:codex", max_minutes=20, minutes=30, memory_gb=2, disk_gb=0.5, processes=99))
    assert (made.minutes, made.limits.memory_gib, made.limits.disk_gib, made.limits.tasks) == (20, 2, 0.5, 99)


@pytest.mark.parametrize(
    ("model", "options", "why"),
    [
        ("agent:", {}, "names no command: write agent:claude"),
        ("agent:'open", {}, "cannot be split into words"),
        ("agent:no-such-agent-here {prompt_file}", {}, "there is no command 'no-such-agent-here' here"),
        ("agent:codex", {"temperature": 0.5}, "temperature is not known for an agent: it takes endpoints"),
        ("agent:codex", {"unconfined": "yes"}, "give true or false"),
        ("agent:codex", {"processes": 1.5}, "give a whole number"),
        ("agent:codex", {"memory_gb": True}, "give a number"),
        ("agent:codex", {"minutes": 0}, "give a number above 0"),
        ("agent:codex", {"endpoints": "api.example.com"}, "write it as HOST:PORT"),
        ("agent:codex", {"endpoints": "localhost:3128"}, "choose another port"),
        ("agent:codex", {"env": "NOT_SET_ANYWHERE"}, "NOT_SET_ANYWHERE, which is not set"),
        ("agent:codex", {"read": "/no/such/place"}, "/no/such/place, which does not exist"),
        ("agent:codex", {"read": "/"}, "which holds your whole home"),
    ],
)
def test_what_cannot_be_used_is_refused(tools: Path, tmp_path: Path, model: str, options: dict[str, Any], why: str) -> None:
    with pytest.raises((BadInput, Unavailable)) as caught:
        open_agent_engineer(settings(model, **options), "name", tmp_path, recorded=False)
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "sessions").exists()


@pytest.mark.parametrize("left_out", ["network", "mounts", "processes"])
def test_without_a_sandbox_it_is_refused(tools: Path, monkeypatch: pytest.MonkeyPatch, left_out: str) -> None:
    monkeypatch.setenv(WITHOUT, left_out)
    with pytest.raises(Unavailable, match=f"denies the sandbox's .*{WITHOUT}.*unconfined=true"):
        read(settings("agent:codex"))
    assert not read(settings("agent:codex", unconfined=True)).confined


@pytest.mark.parametrize(
    "text", ["", "host", "host:", ":80", "host:port", "host:70000", "host:0", "a@host:80", "host:80/", "ho st:80", "http://host:80"]
)
def test_bad_endpoints(text: str) -> None:
    with pytest.raises(BadInput, match="is no endpoint"):
        read_endpoint(text)


def test_an_endpoint_is_one_however_it_is_written() -> None:
    assert read_endpoint("API.Example.com.:443") == NetworkEndpoint("api.example.com", 443)
    assert str(read_endpoint("[::1]:80")) == "[::1]:80"


def test_what_a_command_needs_is_read_and_not_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    bin_folder, package = home / ".local" / "bin", home / ".local" / "lib" / "node_modules" / "@scope" / "agent"
    bin_folder.mkdir(parents=True)
    package.mkdir(parents=True)
    (package / "cli.js").write_text(f"#!/usr/bin/env {Path(sys.executable).name}\n")
    (package / "cli.js").chmod(0o755)
    (bin_folder / "agent").symlink_to(package / "cli.js")
    monkeypatch.setenv("HOME", str(home))
    places = installation(str(bin_folder / "agent"), tmp_path / "workspace")
    assert str(bin_folder) in places
    assert str(home / ".local" / "lib" / "node_modules") in places
    assert not {str(home), str(home / ".local"), str(home / ".local" / "lib")} & set(places)


def test_a_workspace_is_not_read_however_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, root = tmp_path / "project", tmp_path / "project" / ".stitchcuda"
    (root / "sessions" / "other").mkdir(parents=True)
    script = project / "agent.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    assert read_agent_command(settings(f"agent:{script}"), root).read[0] == str(script)
    monkeypatch.setenv("HOME", str(project))
    assert read_agent_command(settings(f"agent:{script}"), tmp_path / "elsewhere").read[0] == str(script)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for place in (project, root, root / "sessions" / "other"):
        with pytest.raises(BadInput, match="where sessions are kept"):
            read_agent_command(settings(f"agent:{script}", read=str(place)), root)


def test_a_file_that_is_not_executable_is_named_so(tmp_path: Path) -> None:
    (tmp_path / "agent.sh").write_text("#!/bin/sh\n")
    with pytest.raises(Unavailable, match=r"agent.sh is not executable: chmod \+x it"):
        read(settings(f"agent:{tmp_path / 'agent.sh'}"))


@pytest.mark.parametrize("model", ["agent:claude", "workbench:bench"])
def test_an_address_is_for_chat_models(model: str) -> None:
    with pytest.raises(BadInput, match="--base-url is for chat models"):
        check_models(Settings(model=model, base_url="http://127.0.0.1:1"))
    check_models(Settings(model="react:openai:x", base_url="http://127.0.0.1:1"))
