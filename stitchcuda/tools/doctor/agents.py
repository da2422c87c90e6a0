"""Checks for `stitchcuda doctor` the coding agents that are installed here: each must say its version.

None is asked for anything else, so nothing is paid and no account is used. What is not installed is not mentioned one by one.
Where to look next: `tools/doctor/doctor.py` (all checks), `engineers/agents/agent_presets.py` (the agents that are known).
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable

from stitchcuda.tools.doctor.finding import Check, output_of

_VERSION_S = 20.0                          # some start slowly on a cold disk


def check_agents(names: Iterable[str]) -> list[Check]:
    """Returns one check for all agents that are installed and run, and one for each that does not run. `names`: of commands."""
    known = list(names)
    there = {name: found for name in known if (found := shutil.which(name))}
    if not there:
        detail = f"none of {', '.join(known)} is installed"
        return [Check(name="agents", ok=False, detail=detail, remedy="nothing to do, unless --model agent:NAME is wanted")]
    told = {name: output_of(found, "--version", seconds=_VERSION_S) for name, found in there.items()}
    versions = {name: re.search(r"\d+\.\d+[\w.-]*", text) for name, (ok, text) in told.items() if ok}
    working = [f"{name} {version.group()}" for name, version in versions.items() if version]
    broken = [
        Check(
            name=f"agent: {name}",
            ok=False,
            detail=f"{there[name]} tells no version: {' '.join(text.split())[-200:] or 'no output'}",
            remedy=f"install {name} anew, or take it out of PATH",
        )
        for name, (_, text) in told.items()
        if not versions.get(name)
    ]
    return [*([Check(name="agents", ok=True, detail=", ".join(working))] if working else []), *broken]
