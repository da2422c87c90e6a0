"""Writes the `pip install` commands that error messages name, for the Python that runs StitchCUDA.

StitchCUDA is on no package index, so for one of its extras the command lists that extra's packages, from its metadata.

Where to look next: `tools/doctor/doctor.py` (what is missing on this machine).
"""

from __future__ import annotations

import importlib.metadata
import re
import shlex
import shutil
import sys
from pathlib import Path


def pip() -> str:
    """Returns the command that runs this Python's pip: "pip" if a shell finds it, else "PATH/python -m pip"."""
    found = shutil.which("pip")
    own = found is not None and Path(found).parent == Path(sys.executable).parent
    return "pip" if own else f"{shlex.quote(sys.executable)} -m pip"


def install(*requirements: str) -> str:
    """Returns the command that installs these requirements (flags of pip may be among them), quoted for a shell."""
    return f"{pip()} install {' '.join(map(shlex.quote, requirements))}"


def extra(name: str) -> str:
    """Returns the command that installs the packages of StitchCUDA's extra `name`.

    A checkout that is on the path and not installed has no metadata: there the command installs it, with the extra.
    """
    marker = re.compile(rf"extra\s*==\s*['\"]{name}['\"]")
    try:
        listed = importlib.metadata.requires("stitchcuda") or []
    except importlib.metadata.PackageNotFoundError:
        return install("-e", f"{Path(__file__).resolve().parent.parent}[{name}]")
    return install(*(requirement.partition(";")[0].strip() for requirement in listed if marker.search(requirement)))
