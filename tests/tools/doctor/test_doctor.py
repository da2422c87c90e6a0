"""What doctor says is true of this machine, and what is missing comes with a remedy."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stitchcuda.errors import Unavailable
from stitchcuda.sandbox.protections import NAMES as PROTECTIONS
from stitchcuda.sandbox.protections import WITHOUT
from stitchcuda.tools.device import toolkit
from stitchcuda.tools.doctor import doctor
from stitchcuda.tools.doctor.doctor import Check, examine
from stitchcuda.tools.doctor.finding import output_of, run_check
from tests.tools.device.test_toolkit import executable, homeless

NAMES = [
    "torch",
    "g++",
    "toolkit",
    "nvcc",
    "tvm-ffi",
    "simulator",
    "workspace",
    "cache",
    "driver",
    "gpu",
    "nvcc and torch",
    "nsys",
    "ncu",
    "ncu-report",
    "compute-sanitizer",
    "sandbox",
    "keys",
]


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="a machine with a GPU has more lines")
def test_everything_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in doctor.KEYS:
        monkeypatch.delenv(name, raising=False)
    checks = examine(tmp_path / "ws")
    found = by_name(checks)
    assert [check.name for check in checks] == NAMES
    for name in doctor.REQUIRED:
        assert found[name].ok, found[name]
    assert "a kernel was built and run" in found["simulator"].detail
    assert "GB free" in found["workspace"].detail
    assert not found["keys"].ok
    for check in checks:
        assert check.detail
        assert check.ok or check.remedy, f"{check.name} is missing and says nothing of what to do"
    assert not (tmp_path / "ws").exists(), "looking changes nothing"


def test_command_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "stitchcuda", "doctor", "--json", "--workspace", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    checks = json.loads(done.stdout)["checks"]
    assert {frozenset(check) for check in checks} == {frozenset({"name", "ok", "detail", "remedy"})}
    assert {check["name"] for check in checks} >= set(NAMES)
    command = [sys.executable, "-m", "stitchcuda", "doctor", "--workspace", "/proc/nowhere"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2, "a workspace is required"
    assert "simulator" in done.stdout


def test_a_machine_without_compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty PATH is a machine where nothing is installed; the toolkit's wheels need g++ too."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    found = by_name(examine(tmp_path))
    for name in ("g++", "toolkit", "simulator", "driver"):
        assert not found[name].ok, found[name]
        assert found[name].remedy
    assert found["torch"].ok


def test_each_protection_that_is_denied_has_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WITHOUT, "landlock,seccomp")
    whole, *denied = doctor._sandbox()
    assert not whole.ok
    assert whole.detail.endswith(f"of {len(PROTECTIONS)} protections in force")
    found = by_name(denied)
    for name in ("sandbox: files (landlock)", "sandbox: system calls"):
        assert (found[name].ok, found[name].remedy) == (False, f"unset {WITHOUT}")
        assert WITHOUT in found[name].detail
    assert len(denied) == len(PROTECTIONS) - int(whole.detail.split()[0])


def test_a_key_is_named_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in doctor.KEYS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-secret")
    assert doctor._keys() == Check(name="keys", ok=True, detail="set: ANTHROPIC_API_KEY")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_workspace_that_may_not_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert not doctor._folder("workspace", tmp_path, "choose another").ok


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (Path("/proc/nowhere"), tmp_path / "file", tmp_path / "file" / "ws"):
        check = doctor._folder("workspace", folder, "choose another")
        assert (check.ok, check.remedy) == (False, "choose another"), folder


def test_a_disk_without_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "ROOM", 2**60)
    check = doctor._folder("cache", tmp_path, "choose another")
    assert (check.ok, check.remedy.endswith(" GB, or choose another")) == (False, True)


@pytest.mark.more
def test_a_user_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    homeless(monkeypatch)
    check = by_name(examine(tmp_path))["cache"]
    assert (check.ok, check.detail, check.remedy[:18]) == (False, "this user has no home for a cache", "set XDG_CACHE_HOME")


def test_a_machine_where_no_child_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A namespace without /proc; the launcher's whole traceback was told for each protection once."""
    shut = ("unshare", "-rm", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh")
    if subprocess.run([*shut, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespace in which /proc can be covered")
    look = "from stitchcuda.tools.doctor.doctor import _sandbox; [print(check.model_dump_json()) for check in _sandbox()]"
    done = subprocess.run([*shut, sys.executable, "-c", look], capture_output=True, text=True, check=True)
    (line,) = done.stdout.splitlines()
    check = Check.model_validate_json(line)
    assert (check.name, check.ok, "Traceback" in check.detail) == ("sandbox", False, False)
    assert check.detail == "no child can be made: FileNotFoundError: [Errno 2] No such file or directory: 'self'"
    assert "mount /proc" in check.remedy


def test_a_protection_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WITHOUT, "landlok")
    (check,) = run_check("sandbox", doctor._sandbox)
    assert (check.ok, check.detail) == (False, f"{WITHOUT} names landlok")
    assert check.remedy.startswith("name some of user, network,")


@pytest.mark.parametrize(
    ("compiler", "detail"), [("ccache g++", "CXX names no program: ccache g++"), ("true", "tells no version: no output")]
)
def test_a_compiler_that_is_none(monkeypatch: pytest.MonkeyPatch, compiler: str, detail: str) -> None:
    monkeypatch.setenv("CXX", compiler)
    check = doctor._compiler()
    assert (check.ok, check.detail.endswith(detail), "set CXX" in check.remedy) == (False, True, True)


@pytest.mark.parametrize(
    ("version", "body", "detail"),
    [
        ("9.0.176", "exit 0", "9.0.176: too old, 12.0 is the oldest"),
        ("13.0.88", "echo gcc: fatal; exit 1", "13.0.88 does not compile an empty kernel: gcc: fatal"),
        ("13.0.88", "exit 0", "13.0.88 does not compile an empty kernel: no output"),
    ],
)
def test_an_nvcc_that_compiles_nothing(tmp_path: Path, version: str, body: str, detail: str) -> None:
    nvcc = executable(tmp_path / "nvcc", body)
    kit = toolkit.Toolkit(nvcc=nvcc, home=tmp_path, version=version, source="system", includes=())
    check = doctor._nvcc(kit)
    assert (check.ok, check.detail, "CUDA_HOME" in check.remedy) == (False, detail, True)


@pytest.mark.parametrize(
    ("importing", "detail", "remedy"),
    [
        ((True, ""), "CompileError: x", "fix what else is not ok first"),
        ((False, "Traceback\nRuntimeError: a stub"), "torch cannot be imported: RuntimeError: a stub", "pip install"),
        ((False, f"ValueError: {'no' * 300}"), f"torch cannot be imported: ValueError: {'no' * 94}", "pip install"),
    ],
)
def test_what_to_do_for_the_simulator(
    monkeypatch: pytest.MonkeyPatch, importing: tuple[bool, str], detail: str, remedy: str
) -> None:
    failing = (False, "CompileError: x")
    monkeypatch.setattr(doctor, "output_of", lambda *command, seconds: failing if "-m" in command else importing)
    check = doctor._simulator()
    assert (check.ok, check.detail, remedy in check.remedy) == (False, detail, True)


def test_a_check_that_fails_is_a_line() -> None:
    def unlucky() -> Check:
        raise KeyError("where")

    def refused() -> Check:
        raise Unavailable("no such thing here (really); make one")

    (line,) = run_check("one", unlucky)
    assert (line.name, line.ok) == ("one", False)
    assert line.detail == "this could not be looked at: KeyError: 'where'"
    assert "--debug" in line.remedy
    assert run_check("two", refused) == [Check(name="two", ok=False, detail="no such thing here (really)", remedy="make one")]


def test_a_command_that_does_not_answer(tmp_path: Path) -> None:
    assert output_of(executable(tmp_path / "hangs", "exec sleep 60"), seconds=0.2) == (False, "no answer within 0.2 s")
    assert output_of(tmp_path / "nothing") == (False, "it cannot be run (No such file or directory)")
