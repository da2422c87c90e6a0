"""Reads an Nsight Compute report in a sandboxed process, since a program's own code ran beside its writing.

NVIDIA's reader is a native library that was not made for untrusted files: in the sandbox it can crash without harm.
Where to look next: `tools/profile/ncu_report.py` (which reads).
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

import stitchcuda
from stitchcuda.errors import Unavailable
from stitchcuda.sandbox import command
from stitchcuda.sandbox.limits import clean_environment
from stitchcuda.tools.profile import ncu_report
from stitchcuda.tools.profile.kernel_profile import KernelProfile
from stitchcuda.tools.profile.ncu_command import find_ncu

_SECONDS = 120.0                           # reports of a dozen launches take one or two
_READ, _REFUSED = "profiles: ", "unavailable: "
_PROFILES = TypeAdapter(tuple[KernelProfile, ...])


def read_apart(
    report: Path,
    *,
    shares: Mapping[str, float] | None = None,
    origins: Mapping[str, str] | None = None,
    root: Path | None = None,
) -> tuple[KernelProfile, ...]:
    """Returns and raises what `ncu_report.read` does; raises `Unavailable` as well if the reader crashes."""
    given = {"shares": dict(shares or {}), "origins": dict(origins or {}), "root": str(root) if root is not None else None}
    package = Path(stitchcuda.__file__).parent
    path = [str(package.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    ncu = find_ncu()
    beside = [ncu.parent, *ncu.resolve().parents[:1]] if ncu is not None else []
    with tempfile.TemporaryDirectory() as scratch:
        finished = command.run(
            (sys.executable, "-m", "stitchcuda.tools.profile.report_reader", str(report.absolute()), json.dumps(given)),
            seconds=_SECONDS,
            env=clean_environment({"PYTHONPATH": os.pathsep.join(path), "TMPDIR": scratch}),
            read=(report.absolute().parent, package, *beside, *([root] if root is not None else [])),
            write=(Path(scratch),),
        )
    said = finished.output.strip().splitlines()
    if said and said[-1].startswith(_REFUSED):
        raise Unavailable(said[-1].removeprefix(_REFUSED))
    try:
        return _PROFILES.validate_json(next(line for line in said if line.startswith(_READ)).removeprefix(_READ))
    except (StopIteration, ValidationError) as why:
        last = said[-1] if said else "without a word"
        raise Unavailable(f"the reader of {report} ended with {finished.code} ({last}); profile the kernels again") from why


def main(report: str, given: str) -> None:
    """Runs in the sandboxed process: prints the profiles as one line of JSON, or the reason why there are none."""
    asked = json.loads(given)
    root = Path(asked["root"]) if asked["root"] is not None else None
    try:
        profiles = ncu_report.read(Path(report), shares=asked["shares"], origins=asked["origins"], root=root)
        print(f"{_READ}{_PROFILES.dump_json(profiles).decode()}", flush=True)
    except Unavailable as why:
        print(f"{_REFUSED}{' '.join(str(why).split())}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
