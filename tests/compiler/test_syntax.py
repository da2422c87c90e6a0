"""Source is parsed right in several threads at once, also on a CPython whose own `ast.parse` then fails."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from stitchcuda.compiler import syntax


@pytest.fixture
def often_interrupted() -> Iterator[None]:
    """While it lasts, another thread goes on during most garbage collections, and so in the middle of a parse."""
    def work(phase: str, info: dict[str, int]) -> None:
        for _ in range(300):
            pass

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    gc.callbacks.append(work)
    yield
    gc.callbacks.remove(work)
    sys.setswitchinterval(interval)


@pytest.mark.usefixtures("often_interrupted")
def test_threads_parse_at_once() -> None:
    source = "\n".join(f"def double_{index}(x):\n    return [x + {index}, (x * 2, -x)]" for index in range(500))
    with ThreadPoolExecutor(4) as pool:
        trees = list(pool.map(lambda _: syntax.parse_module(source), range(40)))
    assert {len(tree.body) for tree in trees} == {500}
