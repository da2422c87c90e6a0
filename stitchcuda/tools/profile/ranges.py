"""The names of the NVTX ranges that profiled calls are wrapped in.

Where to look next: `verify/program/profiled_process.py`, `verify/reference/module_ranges.py` (who make them),
`tools/profile/nsys_export.py`, `tools/profile/cupti_trace.py` (who look for them).
"""

from __future__ import annotations

CALL_RANGE = "stitchcuda:call"
"""The text of the NVTX range around each profiled call."""
TRACED_RANGE = "stitchcuda:traced"
"""The same around further calls in which regions have ranges, which slow the host down."""
REGION_PREFIX = "stitchcuda:region:"
"""What the text of a region's NVTX range begins with; its name follows."""
ROOT = "(root)"
"""The region of the module itself, for what no submodule of it does."""
