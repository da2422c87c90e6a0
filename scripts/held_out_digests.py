"""Writes the structures of KernelBench's problems, as digests only, for `training/tasks/decontamination.py`.

    python scripts/held_out_digests.py CHECKOUT

CHECKOUT is a copy of KernelBench; its levels 1 to 4 are read, and nothing of their text is kept.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from stitchcuda.bench.problems import LEVELS, read_problems
from stitchcuda.errors import BadInput
from stitchcuda.training.tasks import decontamination


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    checkout = parser.parse_args().checkout
    found = []
    for level in LEVELS:
        try:
            problems = read_problems("kernelbench", checkout, checkout, levels=(level,))
        except BadInput as error:
            print(f"level {level}: {error}", file=sys.stderr)
            return 2
        found += [decontamination.structure_of(entry.reference.read_text(encoding="utf-8"), entry.name) for entry in problems]
    data = decontamination.pack(found)
    target = Path(decontamination.__file__).with_name(decontamination.SHIPPED)
    target.write_bytes(data)
    print(f"{target}: {len(found)} problems, {len({entry.digest for entry in found})} structures, {len(data):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
