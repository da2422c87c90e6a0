"""For all tests: checkpoints are read back strictly, so a record that the state's schema does not name shows as a failure."""

from __future__ import annotations

import os

os.environ.setdefault("LANGGRAPH_STRICT_MSGPACK", "true")
