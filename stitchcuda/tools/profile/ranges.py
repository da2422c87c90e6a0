"""Names the NVTX ranges that profiled calls are wrapped in.

Where to look next: `verify/program/profiled_process.py`, `verify/reference/module_ranges.py` (make them),
`tools/profile/timeline.py` (sorts recorded ranges by these names).
"""

from __future__ import annotations

CALL_RANGE = "stitchcuda:call"
"""The text of the NVTX range around each profiled call."""
TRACED_RANGE = "stitchcuda:traced"
"""The text of the range around each further call in which regions have ranges, which slow the host down."""
REGION_PREFIX = "stitchcuda:region:"
"""What the text of a region's NVTX range begins with; its name follows."""
ROOT = "(root)"
"""The region of the module itself, for work outside of its submodules."""
