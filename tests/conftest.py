"""For all tests: checkpoints are read back strictly, so a record that the state's schema does not name shows as a failure."""

from __future__ import annotations

import os
import signal

os.environ.setdefault("LANGGRAPH_STRICT_MSGPACK", "true")

# Started in the background by a shell, tests inherit a SIGINT that is ignored; the processes they interrupt must not.
signal.signal(signal.SIGINT, signal.default_int_handler)
