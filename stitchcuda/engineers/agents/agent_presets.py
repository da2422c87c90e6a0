"""What is known of common coding agents: how to start each, and what it needs of the network, the environment and the home.

The flags let an agent work without asking anybody, since nobody is there to answer; the sandbox around it is StitchCUDA's own.
Sources: code.claude.com/docs/en/cli-reference and /network-config; developers.openai.com/codex/noninteractive; opencode.ai/docs
(cli, permissions, network); geminicli.com/docs/cli/headless. Each was started in the sandbox with these flags: claude 2.1.197,
codex 0.171.0, opencode 1.18.33, gemini 0.61.0.
Where to look next: `engineers/agents/agent_command.py` (reads settings with it), `tools/doctor/agents.py` (tries the commands).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

_ASK = '"Read {prompt_file} and do what it says."'


@dataclass(frozen=True)
class AgentPreset:
    """One agent's command line. `keys` are passed on if they are set; `config` is read from the user's home if it is there."""

    command: str
    endpoints: tuple[str, ...]             # HOST:PORT
    keys: tuple[str, ...]                  # names of environment variables
    config: tuple[str, ...] = ()           # files, relative to the user's home
    variables: Mapping[str, str] = field(default_factory=dict)  # set for it


PRESETS = {
    "claude": AgentPreset(
        command=f"claude -p {_ASK} --permission-mode bypassPermissions --output-format stream-json --verbose",
        endpoints=("api.anthropic.com:443", "platform.claude.com:443"),
        keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "ANTHROPIC_MODEL"),
        config=(".claude/.credentials.json",),
        variables={"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"},
    ),
    "codex": AgentPreset(
        command=f"codex exec --dangerously-bypass-approvals-and-sandbox --skip-git-repo-check {_ASK}",
        endpoints=("api.openai.com:443", "chatgpt.com:443", "auth.openai.com:443"),
        keys=("CODEX_API_KEY", "OPENAI_API_KEY"),
        config=(".codex/auth.json", ".codex/config.toml"),
    ),
    "opencode": AgentPreset(
        command=f"opencode run --auto {_ASK}",
        endpoints=(
            "models.dev:443", "models.opencode.ai:443", "opencode.ai:443", "api.anthropic.com:443", "api.openai.com:443",
        ),
        keys=("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENCODE_API_KEY"),
        config=(".local/share/opencode/auth.json", ".config/opencode/opencode.json"),
        variables={"OPENCODE_DISABLE_AUTOUPDATE": "1"},
    ),
    "gemini": AgentPreset(
        command=f"gemini -p {_ASK} --approval-mode=yolo --skip-trust",
        endpoints=("generativelanguage.googleapis.com:443", "cloudcode-pa.googleapis.com:443", "oauth2.googleapis.com:443"),
        keys=("GEMINI_API_KEY",),
        config=(".gemini/settings.json", ".gemini/oauth_creds.json", ".gemini/google_accounts.json"),
    ),
}
"""By the name of the command. A command line that starts with one of these gets the rest of its preset."""
