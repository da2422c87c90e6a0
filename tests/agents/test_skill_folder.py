"""The skill for coding agents: what it says is true, and no file of anybody else is replaced."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from stitchcuda.agents.mcp_server import McpTools, make_server
from stitchcuda.agents.openings import Openings
from stitchcuda.agents.skill_folder import AGENTS_TEXT, COMMANDS, skill_text, write_skill
from stitchcuda.engineers.agents.workbench_client import USAGE
from stitchcuda.errors import BadInput

DOCS = Path(__file__).resolve().parents[2] / "docs/agents.md"


def test_its_head_is_what_agents_expect() -> None:
    """As agentskills.io specifies it: a name like its folder's, a description of at most 1,024 characters."""
    head = re.match(r"---\nname: ([a-z0-9-]{1,64})\ndescription: (.{1,1024})\n---\n", skill_text())
    assert head is not None
    assert head.group(1) == "stitchcuda"
    assert "Use it when" in head.group(2)
    assert "Not for" in head.group(2)
    assert ": " not in head.group(2), "it would be no YAML"


def test_its_commands_and_tools_are_those_that_there_are(tmp_path: Path) -> None:
    assert {command.split()[0].removeprefix("./") for command, _, _ in COMMANDS} == set(USAGE)
    tools = make_server(McpTools(tmp_path, Openings(workspace=None, device="sim", settings={})))._tool_manager.list_tools()
    assert {tool for _, tool, _ in COMMANDS} | {"analyse"} == {tool.name for tool in tools}
    for text in (skill_text(), DOCS.read_text()):
        assert all(f"| `{command}` | `{tool}` |" in text for command, tool, _ in COMMANDS)
        assert "the same files are not judged twice" in " ".join(text.split())


def test_it_is_written_anew_unless_somebody_changed_it(tmp_path: Path) -> None:
    for _ in range(2):
        assert write_skill(tmp_path / "skills") == tmp_path / "skills/stitchcuda"
    skill, snippet = (tmp_path / "skills/stitchcuda" / name for name in ("SKILL.md", "AGENTS.snippet.md"))
    assert skill.read_text().startswith(skill_text())
    assert snippet.read_text().startswith(AGENTS_TEXT)
    snippet.write_text(snippet.read_text().replace("faster", "quicker"))
    skill.unlink()
    with pytest.raises(BadInput, match=r"AGENTS.snippet.md is there and was written or changed by somebody else"):
        write_skill(tmp_path / "skills")
    assert "quicker" in snippet.read_text()
    assert not skill.exists()


@pytest.mark.parametrize("there", [b"# Mine\n", b"\xff", None])
def test_another_file_is_not_replaced(tmp_path: Path, there: bytes | None) -> None:
    path = tmp_path / "stitchcuda/SKILL.md"
    path.parent.mkdir()
    path.mkdir() if there is None else path.write_bytes(there)
    with pytest.raises(BadInput, match=r"SKILL.md is (there|in the way)"):
        write_skill(tmp_path)
    assert [entry.name for entry in path.parent.iterdir()] == ["SKILL.md"]
    assert there is None or path.read_bytes() == there


def test_a_place_that_cannot_be_written_is_named_with_its_option(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"SKILL.md (cannot be written|is in the way).*give another --into"):
        write_skill(tmp_path / "file")
    with pytest.raises(BadInput, match=r"SKILL.md cannot be written .*give another --into"):
        write_skill(Path("/proc/x"))


def test_the_command_prints_the_text_for_agents_files(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stitchcuda", "agent", "skill", "--into", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert AGENTS_TEXT in done.stdout
    assert (tmp_path / "stitchcuda/SKILL.md").exists()
    (tmp_path / "stitchcuda/SKILL.md").write_text("mine")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
