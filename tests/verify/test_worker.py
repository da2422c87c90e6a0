"""How a worker's end is told, and what comes of nonsense that it sends."""

from __future__ import annotations

import socket
import threading
import time
from types import SimpleNamespace

import pytest

from stitchcuda.sandbox.limits import Limits
from stitchcuda.verify.messages.program_requests import SkipKernels
from stitchcuda.verify.messages.wire import Channel
from stitchcuda.verify.processes.worker import Worker, WorkerFailed


def test_whoever_is_stopped_for_its_memory_is_told_the_limit() -> None:
    worker = object.__new__(Worker)
    worker._what, worker._bounds = "the reference", Limits(memory_gib=6)
    worker.child = SimpleNamespace(end=lambda seconds: SimpleNamespace(code=-9, output="", reason="memory"))  # type: ignore[assignment]
    said = "the reference used more memory than it may (limit 6 GiB) while loading and was stopped"
    assert str(worker._crashed("loading")) == said


NUMBERS = b", ".join(b'"%d": "x"' % number for number in range(400_000))


@pytest.mark.parametrize(
    "said", [NUMBERS, b'"launches": {%s}' % NUMBERS, b'"error": "", "missing": [%s0]' % (b"0," * 3_000_000)]
)
def test_nonsense_without_end_is_refused_at_its_first_word(said: bytes) -> None:
    ours, theirs = socket.socketpair()
    worker = object.__new__(Worker)
    worker._what, worker._bounds, worker._deadline, worker._builder = "the program", Limits(), None, None
    worker._channel, worker.kill = Channel(ours), lambda: None  # type: ignore[method-assign]

    def answer() -> None:
        token = Channel(theirs).receive(5)["id"]
        theirs.sendall(b'{"id": "%s", %s}\n' % (token.encode(), said))

    threading.Thread(target=answer).start()
    before = time.process_time()
    with pytest.raises(WorkerFailed, match="answered with nonsense"):
        worker.ask(SkipKernels(kernels=[]), seconds=60, doing="x")
    assert time.process_time() - before < 5
