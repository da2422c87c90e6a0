"""Whatever a program does to the process it runs in, the verdict is a sentence, the next program is judged as if nothing had
been, and nothing is left behind."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stitchcuda.errors import Unavailable
from stitchcuda.simulator.torch_extension import torch_memory
from stitchcuda.state import CheckResult, Settings
from stitchcuda.tools.device import device
from stitchcuda.verify.client import Judge
from tests.integrity import faults, hostile_runs, remains
from tests.integrity.faults import Fault
from tests.marks import more_but
from tests.simulator.programs import CACHE, HOME

NO_GPU = pytest.mark.skipif(device.gpu() is not None, reason="this machine has a GPU")
GPU = pytest.mark.gpu
FLOOD = 256 * 2**20
PTX = 'asm volatile("membar.gl;"); const float value'
CUBLAS = "#include <cublas_v2.h>\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a reference, an honest program, and caches that hold what it is built into, which are this module's own."""
    folder = tmp_path_factory.mktemp("faults")
    torch_memory(CACHE, HOME)
    with pytest.MonkeyPatch.context() as patch:
        shutil.copytree(HOME, folder / "runtime" / HOME.name)
        patch.setenv("STITCHCUDA_RUNTIME_CACHE", str(folder / "runtime"))
        yield _prepared(folder)


def _prepared(folder: Path) -> Path:
    (folder / "reference.py").write_text(faults.REFERENCE)
    honest = faults.write(faults.honest(), folder / "honest")
    (folder / "cache").mkdir()
    with Judge(folder / "reference.py", Settings(), cache=folder / "cache") as judge:
        result = judge.check(honest, seeds=1)
    assert result.ok, result.reasons
    return folder


@pytest.fixture(scope="module")
def mark() -> Iterator[str]:
    with remains.marked() as one:
        yield one


def opened(place: Path, **limits: float) -> Judge:
    bounds = hostile_runs.LIMITS.model_copy(update=limits)
    return Judge(place / "reference.py", Settings(), cache=place / "cache", bounds=bounds)


@pytest.fixture(scope="module")
def judge(place: Path, mark: str) -> Iterator[Judge]:
    """One judge for all faults, which must be gone with all below it in the end."""
    with opened(place) as one:
        assert one.check(place / "honest", seeds=1).ok
        yield one
    assert remains.soon(lambda: not remains.processes(mark))
    assert not remains.scratch()


class Untouched:
    """The judge and what it holds, before and after a fault."""

    def __init__(self, judge: Judge, place: Path, mark: str) -> None:
        self._judge = judge
        self._honest = place / "honest"
        self._mark = mark
        assert judge._process is not None
        self.pid = judge._process.pid
        self._processes = len(remains.processes(mark))
        self._scratch = len(remains.inside(judge._scratch))

    def check(self) -> None:
        """The next program is judged, and neither a process nor a file is left."""
        result = self._judge.check(self._honest, seeds=1)
        assert result.ok, result.reasons
        assert remains.soon(lambda: len(remains.processes(self._mark)) <= self._processes), self._left()
        assert len(remains.inside(self._judge._scratch)) == self._scratch
        assert remains.scratch() == {str(self._judge._scratch)}

    def _left(self) -> list[str]:
        return [(Path(f"/proc/{pid}/cmdline").read_text()) for pid in remains.processes(self._mark)]


@pytest.fixture
def untouched(judge: Judge, place: Path, mark: str) -> Untouched:
    return Untouched(judge, place, mark)


def named(group: tuple[Fault, ...], *quick: str) -> Callable[..., object]:
    cases = more_but([fault for fault in group if fault.on != "cuda"], *quick, key=lambda fault: fault.name)
    return pytest.mark.parametrize("fault", cases, ids=lambda fault: fault.name)


@pytest.mark.long
@named(
    (*faults.KERNELS, *faults.NATIVE, *faults.PYTHON, *faults.RESULTS),
    "forks", "daemon", "garbage", "floods its channel", "fills",
    "memory", "aborts", "exits", "kills all", "recursion", "an exception that raises",
    "threads that stay", "closes the blocks", "results that change", "results cut short",
)  # fmt: skip
def test_a_fault_is_a_sentence(judge: Judge, untouched: Untouched, tmp_path: Path, fault: Fault) -> None:
    result = judge.check(faults.write(fault, tmp_path), seeds=1)
    assert faults.expected(fault, ok=result.ok, said="; ".join(result.reasons)), result.reasons
    assert len("; ".join(result.reasons)) < 4000
    untouched.check()


@pytest.mark.long
@named(faults.FORGED, *(fault.name for fault in faults.FORGED[::7]))
def test_a_forged_answer_is_no_defect_of_ours(judge: Judge, tmp_path: Path, fault: Fault) -> None:
    """It may be accepted where nobody believes what was forged; also in the last verification, which asks more."""
    program = faults.write(fault, tmp_path)
    for result in (judge.check(program, seeds=1), judge.verify_final(program, seeds=2)):
        assert result.ok or result.reasons
        assert result.launches < 2**63
        assert sum(map(len, result.notes)) < 20_000
        json.loads(result.model_dump_json())


@pytest.mark.long
def test_forgeries_leave_nothing(judge: Judge, untouched: Untouched, tmp_path: Path) -> None:
    for number, fault in enumerate(faults.FORGED[:3]):
        judge.check(faults.write(fault, tmp_path / f"{number}"), seeds=1)
    untouched.check()


def _flood(judge: Judge, folder: Path, size: int) -> tuple[CheckResult, float, int, int]:
    """(verdict, seconds, most bytes of memory that anything of the judge held, most bytes of scratch)."""
    fault = faults.native("prints", place=repr(str(size)))
    program = faults.write(fault, folder)
    assert judge._process is not None
    pid, most, stored, done = judge._process.pid, 0, 0, threading.Event()

    def look() -> None:
        nonlocal most, stored
        while not done.wait(0.05):
            held = []
            for one in remains.below(pid) | {pid}:
                try:
                    held.append(remains.resident(one))
                except (OSError, KeyError):
                    continue
            most = max(most, max(held, default=0))
            stored = max(stored, sum(path.stat().st_blocks * 512 for path in judge._scratch.rglob("*") if path.exists()))

    watcher = threading.Thread(target=look)
    watcher.start()
    started = time.monotonic()
    try:
        result = judge.check(program, seeds=1)
    finally:
        done.set()
        watcher.join()
    return result, time.monotonic() - started, most, stored


def _cut_off(result: CheckResult) -> bool:
    return any(said in result.reasons[0] for said in ("printed more than it may", "did not finish"))


@pytest.mark.long
def test_output_costs_neither_memory_nor_disk(judge: Judge, untouched: Untouched, tmp_path: Path) -> None:
    quiet = _flood(judge, tmp_path / "quiet", 1)
    result, _, memory, stored = _flood(judge, tmp_path / "loud", FLOOD)
    assert result.ok or _cut_off(result), result.reasons
    assert memory < quiet[2] + 64 * 2**20
    assert stored < quiet[3] + 4 * 2**20
    untouched.check()


@pytest.mark.long
def test_ten_gigabytes_of_output(place: Path, tmp_path: Path) -> None:
    with opened(place, call_s=60, check_s=120) as judge:
        result, seconds, memory, stored = _flood(judge, tmp_path, 10 * 10**9)
    print(f"10 GB of output: {seconds:.1f} s, {memory / 2**20:.0f} MiB in the largest process, {stored / 2**20:.1f} MiB stored")
    assert result.ok or _cut_off(result), result.reasons
    assert seconds < 60
    assert memory < 600 * 2**20
    assert stored < 16 * 2**20


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()[1])


@pytest.mark.long
@pytest.mark.parametrize("whom", more_but(["worker", "supervisor", "everything"], "worker"))
def test_killed_from_outside(judge: Judge, untouched: Untouched, tmp_path: Path, whom: str) -> None:
    sleeper = faults.python("sleeps", before="Path(SCRATCH, 'asleep').touch(); time.sleep(100)")
    before = remains.below(untouched.pid)
    killed: list[int] = []

    def kill() -> None:
        assert remains.soon(lambda: any(judge._scratch.glob("program-*/asleep")))
        born = {pid: _parent(pid) for pid in remains.below(untouched.pid) - before}
        supervisors = {pid for pid, parent in born.items() if parent not in born}
        workers = {pid for pid, parent in born.items() if parent in supervisors}
        killed.extend({"worker": workers, "supervisor": supervisors, "everything": {*workers, *supervisors}}[whom])
        for pid in killed:
            os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        said = judge.check(faults.write(sleeper, tmp_path), seeds=1).reasons[0]
    except Unavailable as error:
        said = str(error)
    killer.join()
    assert killed
    crashed, lost = "the program crashed with SIGKILL while running", "the supervisor of the program was killed while running"
    assert any(one in said for one in {"worker": [crashed], "supervisor": [lost], "everything": [crashed, lost]}[whom]), said
    untouched.check()


SLEEPER = faults.python("sleeps", before="Path(SCRATCH, 'asleep').touch(); time.sleep(100)")


def _asleep(parent: int) -> bool:
    """Whether a program of a judge of this process is in the middle of a call."""
    places = (Path("/dev/shm"), Path(tempfile.gettempdir()))
    return any(any(place.glob(f"stitchcuda-{parent}-*/program-*/asleep")) for place in places)


@pytest.mark.more
@pytest.mark.parametrize("whom", ["judge", pytest.param("forkserver", marks=pytest.mark.more)])
def test_those_who_judge_are_killed_from_outside(place: Path, tmp_path: Path, whom: str) -> None:
    """No verdict, one sentence, and nothing is left."""
    program = faults.write(SLEEPER, tmp_path)
    with remains.marked() as mark:
        with opened(place, call_s=60, check_s=60) as judge:
            assert judge._process is not None
            pid = judge._process.pid

            def kill() -> None:
                assert remains.soon(lambda: any(judge._scratch.glob("program-*/asleep")), 30)
                forkserver = next(one for one in remains.below(pid) if _parent(one) == pid)
                os.kill(pid if whom == "judge" else forkserver, signal.SIGKILL)

            killer = threading.Thread(target=kill)
            killer.start()
            said = {"judge": r"the judge was killed \(SIGKILL\) while judging", "forkserver": "that makes workers was killed"}
            with pytest.raises(Unavailable, match=f"{said[whom]}.*; run the command again"):
                judge.check(program, seeds=1)
            killer.join()
            with pytest.raises(Unavailable):
                judge.check(program, seeds=1)
            scratch = judge._scratch
        assert remains.soon(lambda: not remains.processes(mark)), remains.processes(mark)
        assert not scratch.exists()


@pytest.mark.more
@NO_GPU
def test_a_killed_judge_by_the_command_line(place: Path, tmp_path: Path) -> None:
    program = faults.write(SLEEPER, tmp_path)
    with remains.marked() as mark:
        command = [sys.executable, "-m", "stitchcuda", "verify", str(program), "--reference", str(place / "reference.py")]
        environment = {**os.environ, "XDG_CACHE_HOME": str(_home(place))}
        running = subprocess.Popen(
            [*command, "--device", "sim"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
        )
        assert remains.soon(lambda: _asleep(running.pid), 60)
        os.kill(next(one for one in remains.below(running.pid) if _parent(one) == running.pid), signal.SIGKILL)
        out, err = running.communicate(timeout=30)
        assert (running.returncode, out) == (2, ""), err
        assert len(err.strip().splitlines()) == 1, err
        assert "the judge was killed (SIGKILL) while judging a program; run the command again" in err
        assert remains.soon(lambda: not remains.processes(mark))
    assert not list(Path("/dev/shm").glob(f"stitchcuda-{running.pid}-*"))


@pytest.mark.long
def test_a_source_that_does_not_compile(judge: Judge, untouched: Untouched, place: Path, tmp_path: Path) -> None:
    program = faults.write(faults.honest(), tmp_path)
    kernel = program / "kernels" / "gate.cu"
    kernel.write_text(kernel.read_text().replace("value > 0.0f", "valu > 0.0f"))
    before = {path for path in (place / "cache").rglob("*") if path.is_file()}
    result = judge.check(program, seeds=1)
    assert "do not build" in result.reasons[0]
    assert "kernels/gate.cu:" in result.reasons[0]
    made = {path for path in (place / "cache").rglob("*") if path.is_file()} - before
    assert not [path for path in made if path.suffix in (".so", ".o")], "nothing half built is kept"
    untouched.check()


@NO_GPU
@pytest.mark.parametrize(("old", "new", "said"), [
    ("const float value", PTX, "inline ptx"),
    ("#include <cuda_runtime.h>\n", f"#include <cuda_runtime.h>\n{CUBLAS}", "cublas"),
])  # fmt: skip
def test_what_needs_a_gpu_is_not_judged(
    judge: Judge, untouched: Untouched, tmp_path: Path, old: str, new: str, said: str
) -> None:
    program = faults.write(faults.honest(), tmp_path)
    kernel = program / "kernels" / "gate.cu"
    kernel.write_text(kernel.read_text().replace(old, new, 1))
    result = judge.check(program, seeds=1)
    assert (result.ok, result.tier) == (False, "compiled")
    assert "could not judge" in result.reasons[0]
    assert said in result.reasons[0].lower()
    untouched.check()


@pytest.mark.long
def test_a_changed_cache_is_built_again(judge: Judge, untouched: Untouched, place: Path) -> None:
    """Bytes of every cached library are turned over between two checks; what was changed is never loaded."""
    modules = [*(place / "cache" / "simulator" / "modules").rglob("*.so"), *(place / "runtime").rglob("*.so")]
    assert {path.name.split("-")[0] for path in modules} >= {"gate", "libstitchsim", "libstitchsim_torch"}
    for path in modules:
        text = bytearray(path.read_bytes())
        text[::97] = bytes(byte ^ 0xFF for byte in text[::97])
        path.chmod(0o644)
        path.write_bytes(text)
    result = judge.check(place / "honest", seeds=1)
    assert result.ok, result.reasons
    assert sum("had been changed" in note for note in result.notes) >= 3, result.notes
    untouched.check()


@pytest.mark.long
def test_a_program_that_changes_while_it_is_judged(judge: Judge, untouched: Untouched, place: Path, tmp_path: Path) -> None:
    """What is judged is what was there at the beginning, all of it."""
    program = faults.write(faults.python("slow", init="Path(SCRATCH, 'begun').touch(); time.sleep(0.7)"), tmp_path)
    wrong = faults.python("wrong", after="out.zero_()").files["model_new.py"]

    def change() -> None:
        assert remains.soon(lambda: any(judge._scratch.glob("program-*/begun")))
        (program / "model_new.py").write_text(wrong)
        (program / "kernels" / "gate.cu").write_text("nothing that compiles")

    changer = threading.Thread(target=change)
    changer.start()
    result = judge.check(program, seeds=2)
    changer.join()
    assert result.ok, result.reasons
    assert not judge.check(program, seeds=1).ok, "the next check takes the new one"
    untouched.check()


@pytest.fixture(scope="module")
def cramped(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    """A judge whose scratch folder lies on a file system of 64 MiB."""
    folder = tmp_path_factory.mktemp("disk")
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "none", str(folder)], capture_output=True).returncode:
        pytest.skip("this user may not mount")
    try:
        with pytest.MonkeyPatch.context() as patch:  # until it is made: other tests may run before the last that needs it
            patch.setattr(tempfile, "tempdir", str(folder))
            made = opened(place, scratch_gib=1e6, disk_gib=10, file_gib=10)
        with made as judge:
            assert judge._scratch.is_relative_to(folder)
            assert judge.check(place / "honest", seeds=1).ok
            yield judge
        assert not list(folder.iterdir())
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.parametrize("what", ["fills", "many files", "one large file"])
@pytest.mark.more
def test_a_full_disk(cramped: Judge, place: Path, tmp_path: Path, what: str) -> None:
    result = cramped.check(faults.write(faults.native(what), tmp_path), seeds=1)
    assert any(said in result.reasons[0] for said in ("more disk", "did not finish", "crashed with", "raised"))
    result = cramped.check(place / "honest", seeds=1)
    assert result.ok, result.reasons


@pytest.mark.more
def test_no_room_to_judge_in_is_no_verdict(cramped: Judge, place: Path) -> None:
    full = cramped._scratch / "full"
    with contextlib.suppress(OSError), open(full, "wb", buffering=0) as file:
        while file.write(bytes(2**16)):
            pass
    with pytest.raises(Unavailable, match="no room to judge in"):
        cramped.check(place / "honest", seeds=1)
    full.unlink()
    result = cramped.check(place / "honest", seeds=1)
    assert result.ok, result.reasons


def _home(place: Path) -> Path:
    """A user's folder for caches, in which the honest program is built already."""
    cache = place / "home" / "stitchcuda" / "verify"
    if not cache.is_symlink():
        cache.parent.mkdir(parents=True)
        cache.symlink_to(place / "cache")
    return place / "home"


def _verify(program: Path, place: Path, *more: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "stitchcuda", "verify", str(program), "--reference", str(place / "reference.py"), *more]
    environment = {**os.environ, "XDG_CACHE_HOME": str(_home(place))}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.more
@NO_GPU
def test_by_the_command_line(place: Path, mark: str, tmp_path: Path) -> None:
    """Exit codes: 1 refused, 2 could not judge; one sentence and no traceback."""
    code, out, err = _verify(faults.write(faults.native("jumps"), tmp_path / "crash"), place, "--device", "sim", "--json")
    assert code == 1, (out, err)
    assert "SIGSEGV" in json.loads(out)["reasons"][0]
    code, out, err = _verify(place / "honest", place, "--device", "cuda")
    assert (code, out) == (2, "")
    assert len(err.strip().splitlines()) == 1, err
    assert "GPU" in err
    program = faults.write(faults.honest(), tmp_path / "ptx")
    kernel = program / "kernels" / "gate.cu"
    kernel.write_text(kernel.read_text().replace("const float value", PTX, 1))
    code, out, err = _verify(program, place, "--device", "sim")
    assert (code, out) == (2, "")
    assert "could not judge" in err
    assert "inline PTX" in err
    assert "Traceback" not in err
    assert not [path for path in Path("/dev/shm").glob("stitchcuda-*") if _dead(path)]


def _dead(path: Path) -> bool:
    owner = path.name.split("-")[1]
    return owner.isdigit() and not Path(f"/proc/{owner}").exists()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_two_hundred_in_a_row(tmp_path: Path) -> None:
    _nothing_remains(hostile_runs.run("sim", 200, tmp_path), 200)


@GPU
@pytest.mark.timeout(600)
def test_a_rotation_on_the_gpu(tmp_path: Path) -> None:
    summary = hostile_runs.run("cuda", 12, tmp_path, programs=hostile_runs.SHORT)
    _nothing_remains(summary, 12)


@GPU
@pytest.mark.long
@pytest.mark.timeout(3600)
def test_two_hundred_in_a_row_on_the_gpu(tmp_path: Path) -> None:
    _nothing_remains(hostile_runs.run("cuda", 200, tmp_path), 200)


def _nothing_remains(summary: hostile_runs.Summary, runs: int) -> None:
    print("\n".join(summary.lines()))
    assert not summary.wrong
    assert (summary.hostile, summary.honest) == (runs, runs // 10 + 1)
    assert not summary.left
    assert summary.processes <= 0
    assert summary.scratch <= 1, "the exam for programs whose parameters have other names is drawn when first needed, and kept"
    assert summary.descriptors <= 0
    assert summary.memory < 200 * 2**20
    assert summary.device_memory <= 64 * 2**20
