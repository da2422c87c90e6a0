"""What to install, as a command for the Python that runs StitchCUDA.

StitchCUDA is on no package index: an extra of its own is told by the packages that it stands for, as its metadata lists them.
"""

from __future__ import annotations

import importlib.metadata
import re
import shlex
import shutil
import sys
from pathlib import Path


def pip() -> str:
    """How pip is called for this Python: "pip" where a shell finds its own, else by the interpreter's path."""
    found = shutil.which("pip")
    own = found is not None and Path(found).parent == Path(sys.executable).parent
    return "pip" if own else f"{shlex.quote(sys.executable)} -m pip"


def install(*requirements: str) -> str:
    """The command that installs these requirements (flags of pip may be among them), quoted for a shell."""
    return f"{pip()} install {' '.join(map(shlex.quote, requirements))}"


def extra(name: str) -> str:
    """The command that installs what StitchCUDA's extra `name` stands for."""
    marker = re.compile(rf"extra\s*==\s*['\"]{name}['\"]")
    listed = importlib.metadata.requires("stitchcuda") or []
    return install(*(requirement.partition(";")[0].strip() for requirement in listed if marker.search(requirement)))
