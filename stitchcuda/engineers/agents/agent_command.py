"""Reads `--model agent:COMMAND` and its `--model-option`s: what to start, and what it may read, reach and use.

It starts nothing but a trial of the sandbox. Everything wrong is said here, before a session does anything.
Where to look next: `engineers/agents/agent_presets.py` (common commands), `engineers/agents/command_agent.py` (starts it).
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stitchcuda.engineers.agents.agent_presets import PRESETS, AgentPreset
from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.sandbox import command
from stitchcuda.sandbox.limits import Limits
from stitchcuda.sandbox.protections import PROTECTIONS
from stitchcuda.sandbox.proxy import NetworkEndpoint, local_ports, read_endpoint
from stitchcuda.state import Settings

NEEDS = ("network", "mounts", "processes")
"""Short names of the protections without which an agent is confined to nothing."""

_OPTIONS: Mapping[str, tuple[type, ...]] = {
    "endpoints": (str,), "env": (str,), "read": (str,), "unconfined": (bool,), "memory_gb": (int, float),
    "disk_gb": (int, float), "processes": (int,), "minutes": (int, float),
}  # fmt: skip
_MEMORY_GB, _DISK_GB, _PROCESSES = 8.0, 8.0, 512
_MINUTES = 480.0                           # where neither `minutes` nor --max-minutes is given: an agent that hangs ends too


@dataclass(frozen=True)
class AgentCommand:
    """A command line, with all that it is given. `words` may have {workdir} and {prompt_file}."""

    name: str                              # of the program, without its folder
    words: tuple[str, ...]
    minutes: float                         # its time limit
    limits: Limits
    endpoints: tuple[NetworkEndpoint, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)  # they may be keys
    config: tuple[str, ...] = ()           # files that exist, relative to the user's home
    read: tuple[str, ...] = ()             # its installation, and places that the user names
    confined: bool = True


def read_agent_command(settings: Settings, root: Path) -> AgentCommand:
    """Returns what `settings` ask for. `root`: the workspace's folder, which no agent may read. Raises `BadInput`, and
    `Unavailable` if the command or the sandbox is not there."""
    options = _options(settings)
    template = settings.model.partition(":")[2]
    try:
        words = shlex.split(template)
    except ValueError as error:
        raise BadInput(f"--model {settings.model!r} cannot be split into words ({error}): write it as for a shell") from error
    if not words or "\0" in template:
        names = ", ".join(f"agent:{name}" for name in PRESETS)
        raise BadInput(f'--model {settings.model} names no command: write {names}, or agent:"COMMAND {{prompt_file}}"')
    name = os.path.basename(words[0])
    preset = PRESETS.get(name, AgentPreset("", (), ()))
    if len(words) == 1 and preset.command:
        words += shlex.split(preset.command)[1:]
    found = shutil.which(words[0])
    if found is None and os.path.dirname(words[0]) and os.path.isfile(words[0]):
        raise Unavailable(f"--model {settings.model}: {words[0]} is not executable: chmod +x it, or name what runs it first")
    if found is None:
        raise Unavailable(f"--model {settings.model}: there is no command {words[0]!r} here; install it, or give its path")
    confined = not options.get("unconfined", False)
    endpoints = tuple(map(read_endpoint, _list(options, "endpoints") or preset.endpoints))
    local_ports(endpoints)
    made = AgentCommand(
        name=name,
        words=(os.path.abspath(found), *words[1:]),
        minutes=min(float(options.get("minutes", settings.max_minutes or _MINUTES)), settings.max_minutes or float("inf")),
        limits=Limits(
            memory_gib=float(options.get("memory_gb", _MEMORY_GB)), disk_gib=float(options.get("disk_gb", _DISK_GB)),
            file_gib=float(options.get("disk_gb", _DISK_GB)), tasks=int(options.get("processes", _PROCESSES)),
        ),
        endpoints=endpoints,
        variables={**preset.variables, **_passed_on(_list(options, "env"), preset)},
        config=tuple(path for path in preset.config if (Path.home() / path).is_file()),
        read=(*installation(found, root), *_readable(_list(options, "read"), root)),
        confined=confined,
    )  # fmt: skip
    if confined:
        _refuse_without_sandbox(settings.model)
    return made


def installation(found: str, root: Path) -> list[str]:
    """Returns the places that a command needs to run: its own folder or package, and its interpreter's if it is a script. Of a
    folder that holds the user's home or the workspace `root`, it needs the command alone."""
    real = os.path.realpath(found)
    places = [
        place if not _holds(place, Path.home()) and not _holds(place, root) else found
        for place in command.folders_of_command(found, None)
    ]
    if "/node_modules/" in real:           # what it imports lies in other folders there
        places.append(real[: real.index("/node_modules/")] + "/node_modules")
    try:
        with open(real, "rb") as file:
            first = file.readline(4096)
    except OSError:
        return places
    if first.startswith(b"#!"):
        words = first[2:].decode("utf-8", "replace").split()
        names = [word for word in words if not word.startswith("-")]
        if names and os.path.basename(names[0]) == "env":
            names = names[1:]
        if names:
            places += command.folders_of_command(names[0], None)
    return places


def _options(settings: Settings) -> Mapping[str, bool | int | float | str]:
    for name, value in settings.options.items():
        kinds = _OPTIONS.get(name)
        if kinds is None:
            raise BadInput(f"--model-option {name} is not known for an agent: it takes {', '.join(_OPTIONS)}")
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise BadInput(f"--model-option {name}={value} cannot be used: give {_wanted(kinds)}")
        if isinstance(value, int | float) and not isinstance(value, bool) and not 0 < value < 1e6:
            raise BadInput(f"--model-option {name}={value} cannot be used: give a number above 0")
    return settings.options


def _wanted(kinds: tuple[type, ...]) -> str:
    if bool in kinds:
        return "true or false"
    return "a text, with commas between several" if str in kinds else "a whole number" if kinds == (int,) else "a number"


def _list(options: Mapping[str, bool | int | float | str], name: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in str(options.get(name, "")).split(",") if part.strip())


def _passed_on(named: tuple[str, ...], preset: AgentPreset) -> dict[str, str]:
    for name in named:
        if name not in os.environ:
            raise BadInput(f"--model-option env names {name}, which is not set: set it, or leave it out")
    return {name: os.environ[name] for name in (*preset.keys, *named) if name in os.environ}


def _holds(place: str | Path, inner: Path) -> bool:
    return inner.resolve().is_relative_to(Path(place).resolve())


def _readable(named: tuple[str, ...], root: Path) -> list[str]:
    places = [Path(name).expanduser() for name in named]
    for place in places:
        if not place.exists():
            raise BadInput(f"--model-option read names {place}, which does not exist: give files and folders that do")
        if _holds(place, Path.home()):
            raise BadInput(f"--model-option read names {place}, which holds your whole home: name what the agent needs")
        if _holds(place, root) or _holds(root, place):
            raise BadInput(f"--model-option read names {place}, where sessions are kept: copy what the agent needs elsewhere")
    return [str(place.absolute()) for place in places]


def _refuse_without_sandbox(model: str) -> None:
    found = command.available()
    for short in NEEDS:
        protection = PROTECTIONS[short]
        if protection.name not in found.on:
            why = dict(found.denied).get(protection.name, "not granted")
            raise Unavailable(
                f"--model {model} does not start, since this machine denies the sandbox's {protection.name} ({why}): "
                f"{protection.remedy}; or let it do what you may do, with --model-option unconfined=true"
            )
