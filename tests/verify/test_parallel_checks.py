"""Several programs at once: each has its own verdict, whatever the others do, and nothing of them is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from stitchcuda.errors import BadInput
from stitchcuda.sandbox.limits import Limits
from stitchcuda.state import CheckResult, Settings
from stitchcuda.verify.client import Judge
from stitchcuda.verify.judge.parallel_checks import MOST, FinishedCheck, parallel_count, retry_reason
from tests.verify import programs
from tests.verify.test_client import children, gone


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reference") / "gated.py"
    path.write_text(programs.REFERENCE)
    return path


@pytest.fixture(scope="module")
def judge(reference: Path, cache: Path) -> Iterator[Judge]:
    with Judge(reference, Settings(), cache=cache, bounds=Limits(call_s=3, start_s=60, memory_gib=6)) as one:
        yield one


@pytest.mark.more
def test_each_program_has_its_own_verdict(judge: Judge, tmp_path: Path) -> None:
    """In their order; one that hangs, one that crashes and one that is none at all are nobody else's matter."""
    linked = programs.model(tmp_path / "linked")
    (linked / "more.py").symlink_to("/etc/passwd")
    other = programs.KERNEL.replace("128, 0", "64, 0")
    given = [
        programs.kernel_program(tmp_path / "kernel"),
        programs.model(tmp_path / "slow", before="time.sleep(60)"),
        programs.model(tmp_path / "wrong", after="out = out + 1e-3"),
        linked,
        programs.model(tmp_path / "crash", before="os._exit(3)"),
        programs.kernel_program(tmp_path / "other", kernel=other),
        programs.model(tmp_path / "plain"),
    ]
    results = judge.check_many(given, seeds=2)
    said = ["; ".join(one.reasons) for one in results]
    assert [one.ok for one in results] == [True, False, False, False, False, True, True], said
    assert "did not finish running forward within 3 s" in said[1]
    assert "largest error" in said[2]
    assert "is a link" in said[3]
    assert "exit code 3" in said[4]
    assert results[0].launches == results[5].launches == 1
    assert results[6].own_share == 0.0
    assert judge.check(given[0], seeds=2).ok, "and the judge goes on as before"


@pytest.mark.more
def test_they_sit_one_exam(judge: Judge, tmp_path: Path) -> None:
    """Bounds are the same to the last bit, as for a program that is judged alone."""
    given = [programs.model(tmp_path / name) for name in "abc"]
    results = [*judge.check_many(given, seeds=3), judge.check(given[0], seeds=3)]
    assert all(one.ok for one in results)
    assert len({tuple(output.max_bound for output in one.outputs) for one in results}) == 1
    assert judge.check_many([given[1], given[1]], seeds=3)[1].ok
    assert judge.check_many([], seeds=3) == []


def test_who_lacks_memory_beside_others_is_judged_alone(judge: Judge, tmp_path: Path) -> None:
    large = programs.model(tmp_path / "large", before="torch.ones(3 * 2**30)")
    results = judge.check_many([large, programs.model(tmp_path / "small")], seeds=1)
    assert [one.ok for one in results] == [False, True]
    assert "out of memory" in results[0].reasons[0]
    if len(os.sched_getaffinity(0)) > 1:
        assert any(note.startswith("judged once more alone") for note in results[0].notes)


def test_a_reference_that_cannot_be_used_is_bad_input(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "reference.py"
    path.write_text(programs.REFERENCE.replace("* gain", "* gain + __import__('random').random()"))
    given = [programs.model(tmp_path / name) for name in "ab"]
    with Judge(path, Settings(), cache=cache) as judge, pytest.raises(BadInput, match="different results for the same inputs"):
        judge.check_many(given, seeds=1)


@pytest.mark.more
def test_an_interrupt_leaves_nothing(reference: Path, cache: Path, tmp_path: Path) -> None:
    before = "open(os.environ['HOME'] + '/started', 'w').close(); time.sleep(100)"
    given = [str(programs.model(tmp_path / name, before=before)) for name in "ab"]
    script = tmp_path / "client.py"
    script.write_text(
        "from pathlib import Path\nfrom stitchcuda.state import Settings\nfrom stitchcuda.verify.client import Judge\n"
        f"with Judge(Path({str(reference)!r}), Settings(), cache=Path({str(cache)!r})) as judge:\n"
        "    print(judge._scratch, flush=True)\n"
        f"    judge.check_many([Path(one) for one in {given!r}], seeds=1)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    client = subprocess.Popen(
        [sys.executable, script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, text=True
    )
    assert client.stdout is not None
    scratch = Path(client.stdout.readline().strip())
    deadline, wanted = time.monotonic() + 60, min(2, len(os.sched_getaffinity(0)))
    while len(list(scratch.rglob("started"))) < wanted:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    family = children(client.pid)
    client.send_signal(signal.SIGINT)
    client.wait(10)
    client.stdout.close()
    assert gone(family, 5), "a process survived"
    assert not scratch.exists()


def test_no_more_at_once_than_the_machine_bears() -> None:
    assert parallel_count(8, [], cores=16) == 8
    assert parallel_count(3, [], cores=16) == 3
    assert parallel_count(20, [], cores=64) == MOST
    assert parallel_count(8, [], cores=2) == 2
    assert parallel_count(8, [(100, 10), (50, 20)], cores=16) == 2, "what is scarcest counts"
    assert parallel_count(8, [(5, 10)], cores=16) == 1, "one is tried in any case"


def failed(reason: str, *, ended: float) -> FinishedCheck:
    return FinishedCheck(CheckResult(ok=False, tier="simulated", reasons=(reason,)), "", 0.0, ended)


def test_what_others_can_have_caused_counts_for_nothing() -> None:
    late = "the program did not finish running forward within 240 s"
    assert retry_reason(failed("the program ran out of memory", ended=10), 1, shared=False)
    assert retry_reason(failed(late, ended=240), 200, shared=True) == late
    assert not retry_reason(failed(late, ended=240), 20, shared=True), "it was alone for most of its time"
    assert not retry_reason(failed(late, ended=240), 200, shared=False), "a GPU's time is not what is short"
    assert not retry_reason(failed("output is wrong", ended=10), 10, shared=True)
    assert retry_reason(FinishedCheck(None, "the supervisor was killed", 0, 1), 0, shared=False) == "the supervisor was killed"
