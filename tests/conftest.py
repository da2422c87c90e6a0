"""For all tests: checkpoints are read back strictly, so a record that the state's schema does not name shows as a failure; and
the simulator's own libraries are kept apart from the user's, built once for all tests and runs. Documentation is switched off:
what tests it makes an index of its own. Torch gets one thread in each process, since tests run beside each other, and threads
that wait for each other on cores that are taken cost up to twenty times as much."""

from __future__ import annotations

import os
import signal
import tempfile

os.environ.setdefault("LANGGRAPH_STRICT_MSGPACK", "true")
os.environ["STITCHCUDA_RUNTIME_CACHE"] = os.path.join(tempfile.gettempdir(), f"stitchcuda-runtime-tests-{os.getuid()}")
os.environ["STITCHCUDA_DOCS"] = "off"
os.environ.setdefault("OMP_NUM_THREADS", "1")  # read when torch is imported

# Started in the background by a shell, tests inherit a SIGINT that is ignored; the processes they interrupt must not.
signal.signal(signal.SIGINT, signal.default_int_handler)
