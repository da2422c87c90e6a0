"""One forkserver for all tests of a file: a fork each is enough."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from stitchcuda.verify.processes.forkserver import ForkServer
from tests.sandbox import prison


@pytest.fixture(scope="module")
def forkserver() -> Iterator[ForkServer]:
    with prison.forkserver() as one:
        yield one
