"""Programs of several references at once get the verdicts that they get alone, whatever happens to a judge meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, wait
from pathlib import Path

import pytest

from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.verify.pool import VerifierPool
from tests.integrity import remains
from tests.verify import programs

pytestmark = pytest.mark.more


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("pool")
    (made / "one.py").write_text(programs.REFERENCE)
    (made / "other.py").write_text(programs.REFERENCE.replace("torch.relu", "torch.sigmoid"))
    (made / "third.py").write_text(programs.REFERENCE + "\n# in a file of its own\n")
    (made / "right.py").write_text(programs.REFERENCE.replace("class Model(", "class ModelNew("))
    programs.kernel_program(made / "kernel")
    return made


@pytest.fixture
def pool(folder: Path) -> Iterator[VerifierPool]:
    with remains.marked() as mark:
        with VerifierPool(at_once=2, target="sim", cache=folder / "cache", seeds=2) as made:
            yield made
        assert remains.soon(lambda: not remains.processes(mark))


def judging(pool: VerifierPool) -> int:
    """The process of a judge that is at work. Waits for one."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for job in list(pool._running):
            if job.verifier is not None and (process := job.verifier.judge._process) is not None:
                return process.pid
        time.sleep(0.01)
    raise AssertionError("nothing is judged")


def test_each_gets_its_own_verdict(pool: VerifierPool, folder: Path) -> None:
    asked = [
        pool.submit(folder / program, folder / reference)
        for reference in ("one.py", "other.py") for program in ("kernel", "right.py", "no such file", "kernel")
    ]  # fmt: skip
    right, torch_only, missing, again, *others = asked
    assert right.result().accepted
    assert again.result().accepted
    assert not torch_only.result().accepted
    assert "own kernels hold 0.0%" in torch_only.result().reasons[0]
    with pytest.raises(BadInput, match="is no program"):
        missing.result()
    for wrong in (others[0], others[3]):
        assert "output is wrong" in wrong.result().reasons[0]
    wait(others)
    open_now = {reference.name for reference, _, _ in pool._idle}
    assert open_now == {"one.py", "other.py"}
    pool.most_open = 1                     # the next one takes the place of all that are idle
    assert pool.submit(folder / "kernel", folder / "third.py").result().accepted
    assert [reference.name for reference, _, _ in pool._idle] == ["third.py"]


def test_a_judge_that_dies_is_replaced_once(pool: VerifierPool, folder: Path) -> None:
    asked = pool.submit(folder / "kernel", folder / "one.py")
    pid = judging(pool)
    time.sleep(2)
    for job in list(pool._running):
        assert job.verifier is not None
        job.verifier.judge.kill()
    assert asked.result().accepted
    assert not Path(f"/proc/{pid}").exists()
    asked = pool.submit(folder / "kernel", folder / "one.py")
    killed = set[int]()
    while not asked.done():
        for job in list(pool._running):
            if job.verifier is not None and (process := job.verifier.judge._process) is not None and process.pid not in killed:
                killed.add(process.pid)
                job.verifier.judge.kill()
        time.sleep(0.01)
    with pytest.raises(Unavailable, match="the judge was killed"):
        asked.result()
    assert len(killed) == 2
    assert pool.submit(folder / "kernel", folder / "one.py").result().accepted


def test_what_is_cancelled_ends_at_once(pool: VerifierPool, folder: Path) -> None:
    asked = [pool.submit(folder / "kernel", folder / reference) for reference in ("one.py", "other.py", "one.py")]
    judging(pool)
    started = time.monotonic()
    for verdict in (asked[0], asked[2]):
        pool.cancel(verdict)
        with pytest.raises(CancelledError):
            verdict.result()
    assert time.monotonic() - started < 5
    assert not asked[1].result().accepted


def test_a_closed_pool_takes_nothing(folder: Path) -> None:
    pool = VerifierPool(at_once=1, target="sim", cache=folder / "cache", seeds=2)
    asked = [pool.submit(folder / "kernel", folder / "one.py") for _ in range(3)]
    judging(pool)
    pool.close()
    for verdict in asked:
        with pytest.raises(CancelledError):
            verdict.result()
    with pytest.raises(Unavailable, match="is closed"):
        pool.submit(folder / "kernel", folder / "one.py")
