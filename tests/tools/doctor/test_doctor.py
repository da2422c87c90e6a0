"""What doctor says is true of this machine, and what is missing comes with a remedy."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import socket
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
from stitchcuda.tools.doctor.finding import said, tried
from tests.tools.device.test_toolkit import executable, homeless

NAMES = [
    "python",
    "torch",
    "g++",
    "toolkit",
    "nvcc",
    "tvm-ffi",
    "simulator",
    "workspace",
    "cache",
    "runtime",
    "driver",
    "gpu",
    "nvcc and torch",
    "nsys",
    "ncu",
    "ncu-report",
    "compute-sanitizer",
    "disassemblers",
    "sandbox",
    "endpoint",
]


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="a machine with a GPU has more lines")
def test_everything_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    checks = examine(tmp_path / "ws")
    found = by_name(checks)
    assert [check.name for check in checks] == NAMES
    for name in doctor.REQUIRED:
        assert found[name].ok, found[name]
    assert "a kernel was built and run" in found["simulator"].detail
    assert "GB free" in found["workspace"].detail
    assert not found["endpoint"].ok
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


def test_a_key_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    assert doctor._endpoint() == Check(name="endpoint", ok=True, detail="OPENAI_API_KEY is set, for api.openai.com")


def test_an_endpoint_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", f"http://127.0.0.1:{server.getsockname()[1]}/v1")
        assert doctor._endpoint().ok
    assert not doctor._endpoint().ok, "now nobody listens there"
    assert "does not answer" in doctor._endpoint().detail


def test_an_address_is_shown_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    for address in ("http://me:secret@127.0.0.1:9/v1?key=secret", "http://[::1", "http://me:secret@h:99999/", "secret"):
        monkeypatch.setenv("OPENAI_BASE_URL", address)
        check = doctor._endpoint()
        assert (check.ok, "secret" in str(check)) == (False, False)
        assert check.detail.startswith(("OPENAI_BASE_URL http://127.0.0.1:9 does not answer", "OPENAI_BASE_URL is no address"))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_workspace_that_may_not_be_written(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert not doctor._workspace(tmp_path).ok


def test_a_workspace_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (Path("/proc/nowhere"), tmp_path / "file", tmp_path / "file" / "ws"):
        check = doctor._workspace(folder)
        assert not check.ok, folder
        assert "--workspace" in check.remedy


def test_a_cache_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    check = doctor._cache()
    assert (check.ok, "XDG_CACHE_HOME" in check.remedy) == (False, True)


def test_where_the_simulators_libraries_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STITCHCUDA_RUNTIME_CACHE", str(tmp_path / "kept"))
    found = doctor._runtime(toolkit.runtime_cache())
    assert (found.ok, found.detail) == (True, f"the simulator's libraries are kept in {tmp_path}/kept, versions there: 0")
    assert not (tmp_path / "kept").exists()
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept").chmod(0o777)
    found = doctor._runtime(toolkit.runtime_cache())
    assert (found.ok, "others may write to" in found.detail) == (False, True)
    assert "STITCHCUDA_RUNTIME_CACHE" in found.remedy
    monkeypatch.delenv("STITCHCUDA_RUNTIME_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert toolkit.runtime_cache() == tmp_path / "stitchcuda" / "runtime"


def test_libraries_are_not_kept_where_nothing_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nope")
    monkeypatch.delenv("STITCHCUDA_RUNTIME_CACHE", raising=False)
    assert (doctor._cache().ok, doctor._runtime(toolkit.runtime_cache()).ok) == (False, False)


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    homeless(monkeypatch)
    (check,) = tried("cache", doctor._cache)
    assert (check.ok, check.detail, check.remedy[:18]) == (False, "this user has no home for a cache", "set XDG_CACHE_HOME")
    assert not doctor._runtime(toolkit.runtime_cache()).ok


def test_a_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for look in (lambda: doctor._workspace(Path(".stitchcuda")), doctor._simulator):
        (check,) = tried("it", look)
        assert (check.ok, check.detail, check.remedy) == (False, "the current folder is gone", "cd to one that is there")


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
    (check,) = tried("sandbox", doctor._sandbox)
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


def test_a_tvm_ffi_that_is_not_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", gone)
    assert (doctor._tvm_ffi().ok, "pip install" in doctor._tvm_ffi().remedy) == (False, True)


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
    monkeypatch.setattr(doctor, "said", lambda *command, seconds: (False, "CompileError: x") if "-m" in command else importing)
    check = doctor._simulator()
    assert (check.ok, check.detail, remedy in check.remedy) == (False, detail, True)


def test_a_check_that_fails_is_a_line() -> None:
    def unlucky() -> Check:
        raise KeyError("where")

    def refused() -> Check:
        raise Unavailable("no such thing here (really); make one")

    (line,) = tried("one", unlucky)
    assert (line.name, line.ok) == ("one", False)
    assert line.detail == "this could not be looked at: KeyError: 'where'"
    assert "--debug" in line.remedy
    assert tried("two", refused) == [Check(name="two", ok=False, detail="no such thing here (really)", remedy="make one")]


def test_a_command_that_does_not_answer(tmp_path: Path) -> None:
    assert said(executable(tmp_path / "hangs", "exec sleep 60"), seconds=0.2) == (False, "no answer within 0.2 s")
    assert said(tmp_path / "nothing") == (False, "it cannot be run (No such file or directory)")
