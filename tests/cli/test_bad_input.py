"""Whatever goes wrong from outside is one clear sentence, the right exit code, no traceback, and nothing lost.

Everything runs through the real command line in processes of its own.
"""

from __future__ import annotations

import json
import os
import resource
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.engineers.protocol_server import Failure, serve
from tests.marks import more_but

GOOD = """
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(64)

    def forward(self, x):
        return torch.relu(self.norm(x) * 2.0 + x)

def get_inputs():
    return [torch.randn(8, 64)]

def get_init_inputs():
    return []
"""
COMMAND = [sys.executable, "-m", "stitchcuda"]


def environment(**more: str) -> dict[str, str]:
    """Ours without keys and addresses, which would choose another engineer."""
    ours = ("STITCHCUDA_RUNTIME_CACHE",)   # tests/conftest.py
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in ours or not name.startswith(("OPENAI_", "STITCHCUDA_"))
    }
    return kept | more


@pytest.fixture(autouse=True)
def shared_builds(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """All workspaces of these tests keep their builds in one place: what they build is mostly the same."""
    builds = tmp_path_factory.getbasetemp() / "builds"
    builds.mkdir(exist_ok=True)
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws" / "cache").symlink_to(builds)


def stitchcuda(*arguments: object, preexec: Callable[[], None] | None = None) -> subprocess.CompletedProcess[str]:
    command = [*COMMAND, *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=240, env=environment(), preexec_fn=preexec, check=False
    )


def refused(done: subprocess.CompletedProcess[str], *words: str, code: int = 2) -> str:
    """Asserts one clear sentence with `words`, `code`, and no traceback; returns the sentence."""
    assert done.returncode == code, done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    told = [line for line in done.stderr.splitlines() if line.startswith("stitchcuda: ")]
    assert len(told) == 1, done.stderr
    assert done.stderr.rstrip().endswith(told[0]), "the sentence comes last"
    sentence = told[0].removeprefix("stitchcuda: ")
    for word in words:
        assert word in sentence, sentence
    assert len(sentence) < 600
    return sentence


def optimize(folder: Path, source: str, *options: str | Path) -> subprocess.CompletedProcess[str]:
    (folder / "reference.py").write_text(source)
    return stitchcuda("optimize", folder / "reference.py", "--device", "sim", "--workspace", folder / "ws", *options)


def sessions(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "ws" / "sessions").glob("*") if not path.name.startswith("."))


def model(forward: str, inputs: str = "[torch.randn(8, 64)]", init: str = "pass") -> str:
    return f"""
import torch

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        {forward}

def get_inputs():
    return {inputs}

def get_init_inputs():
    return []
"""


def test_missing_file(tmp_path: Path) -> None:
    refused(stitchcuda("optimize", tmp_path / "nothing.py", "--workspace", tmp_path / "ws"), "nothing.py", "there is no file")
    refused(stitchcuda("optimize", tmp_path, "--workspace", tmp_path / "ws"), str(tmp_path))
    refused(stitchcuda("verify", tmp_path / "program", "--reference", tmp_path / "x.py"), "there is no program")


@pytest.mark.parametrize("command", ["optimize", "profile", "verify"])
def test_what_is_no_file(command: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    more = [tmp_path / "pipe", "--reference"] if command == "verify" else []
    refused(stitchcuda(command, *more, tmp_path / "pipe"), str(tmp_path / "pipe"), "neither a file nor a folder")
    more = ["x" * 300, "--reference"] if command == "verify" else []
    refused(stitchcuda(command, *more, "x" * 300), "cannot be looked at (File name too long)")


BAD_REFERENCES = {
    "syntax error": ("import torch\n\nclass Model(:\n    pass\n", ["reference.py", "line 3"]),
    "no Model": ("import torch\n\ndef get_inputs():\n    return []\n", ["Model"]),
    "no get_inputs": (GOOD.replace("def get_inputs", "def get_some_inputs"), ["get_inputs"]),
    "get_inputs raises": (model("return x * 2", "[torch.randn(8, -1)]"), ["get_inputs", "negative dimension"]),
    "constructor raises": (model("return x * 2", init="raise KeyError('width')"), ["width"]),
    "forward raises": (model("return x @ torch.randn(3, 3)"), ["shapes cannot be multiplied"]),
    "outputs are no tensors": (model("return x.shape[0]"), ["tensor"]),
    "control flow that cannot be captured": (
        model("return x * 2 if x.sum() > 0 else x + 1"),
        ["builtin engineer", "--model openai:NAME"],
    ),
    "stochastic": (model("import random; return x * random.random() + 1"), ["different results"]),
    "imports what is not there": ("import nothing_of_that_name\n" + GOOD, ["nothing_of_that_name"]),
}


@pytest.mark.parametrize("case", more_but(BAD_REFERENCES, "no Model"))
def test_bad_reference(case: str, tmp_path: Path) -> None:
    source, words = BAD_REFERENCES[case]
    sentence = refused(optimize(tmp_path, source), *words)
    assert ":" in sentence or ";" in sentence, "it says what, then what to do"
    assert sessions(tmp_path) == [], "nothing half-made is left behind: the name is free"


STRANGE_BUT_FINE = {
    "nested, integer and empty outputs": model(
        "return {'a': torch.relu(x * 2 + 1), 'b': [(x > 0).to(torch.int64) * 3 + 1, x[:, :0] * 2 + 1]}"
    ),
    "float64": model("return torch.relu(x * 2 + 1) * x", "[torch.randn(8, 64, dtype=torch.float64)]"),
}


@pytest.mark.parametrize("case", STRANGE_BUT_FINE)
@pytest.mark.more
def test_strange_but_fine(case: str, tmp_path: Path) -> None:
    done = optimize(tmp_path, STRANGE_BUT_FINE[case], "--json")
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["accepted"] is True
    assert outcome["tier"] == "simulated"
    assert outcome["speedup"] is None


def test_options_that_cannot_be_meant(tmp_path: Path) -> None:
    reference = tmp_path / "reference.py"
    reference.write_text(GOOD)
    start = ["optimize", reference, "--workspace", tmp_path / "ws"]
    refused(stitchcuda(*start, "--device", "tpu"), "tpu", "auto, cuda, sim")
    refused(stitchcuda(*start, "--model", "letterbox:box"), "letterbox:box", "builtin")
    refused(stitchcuda(*start, "--session", "../x"), "../x")
    assert "Traceback" not in (usage := stitchcuda(*start, "--policy", "loose")).stderr
    assert usage.returncode == 2
    assert "--policy" in usage.stderr


def test_workspace_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    reference = tmp_path / "reference.py"
    reference.write_text(GOOD)
    refused(stitchcuda("optimize", reference, "--workspace", tmp_path / "file"), str(tmp_path / "file"), "--workspace")
    refused(stitchcuda("optimize", reference, "--workspace", "/proc/ws"), "/proc/ws", "--workspace")


@pytest.mark.more
def test_workspace_without_room(tmp_path: Path) -> None:
    """Files may not grow beyond a few kB, as on a full disk: what exists stays readable and the session goes on later."""

    def limit(size: int) -> Callable[[], None]:
        return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    reference = tmp_path / "reference.py"
    reference.write_text(GOOD)
    start = ["optimize", reference, "--device", "sim", "--workspace", tmp_path / "ws", "--session", "s"]
    refused(stitchcuda(*start, preexec=limit(16)), "space")
    refused(stitchcuda(*start, preexec=limit(20_000)), "space")
    again = stitchcuda(*(["resume", "s", "--workspace", tmp_path / "ws"] if "s" in sessions(tmp_path) else start))
    assert again.returncode == 0, again.stderr


@pytest.mark.more
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small file system")
def test_full_file_system(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", small], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount here: {mounted.stderr.strip()}")
    try:
        reference = tmp_path / "reference.py"
        reference.write_text(GOOD)
        refused(stitchcuda("optimize", reference, "--device", "sim", "--workspace", small / "ws"), "space", str(small))
    finally:
        subprocess.run(["umount", "-l", small], check=True)


@pytest.mark.more
def test_unknown_session(tmp_path: Path) -> None:
    for command in ("resume", "show"):
        refused(stitchcuda(command, "nobody", "--workspace", tmp_path / "ws"), str(tmp_path / "ws"))
    (tmp_path / "ws" / "sessions").mkdir(parents=True)
    for command in ("resume", "show"):
        refused(stitchcuda(command, "nobody", "--workspace", tmp_path / "ws"), "'nobody'")


class Running:
    """A session under way in a process group of its own, as a terminal would start it."""

    def __init__(self, folder: Path, *arguments: object) -> None:
        self.log = folder / "stderr.txt"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*COMMAND, *map(str, arguments)],
                stdout=subprocess.DEVNULL,
                stderr=log,
                env=environment(PYTHONUNBUFFERED="1"),
                start_new_session=True,
            )

    def wait_for(self, text: str, seconds: float = 120) -> None:
        deadline = time.monotonic() + seconds
        while text not in self.log.read_text():
            assert self.process.poll() is None, f"it ended before {text!r}: {self.log.read_text()}"
            assert time.monotonic() < deadline, f"no {text!r}: {self.log.read_text()}"
            time.sleep(0.02)

    def wait_for_modules(self) -> None:
        """Until our own modules are being loaded: before that, nobody but the interpreter could catch anything."""
        while "pydantic_core" not in Path(f"/proc/{self.process.pid}/maps").read_text():
            time.sleep(0.005)

    def interrupt(self) -> int:
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(timeout=60)

    def kill(self) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def program_of(folder: Path, name: str) -> dict[str, Any]:
    program = folder / "ws" / "sessions" / name / "program"
    return {str(path.relative_to(program)): path.read_bytes() for path in sorted(program.rglob("*")) if path.is_file()}


MOMENTS = {
    "at once": (None, 0.0),
    "while it starts": (None, 0.4),
    "in the baseline": ("baseline: running", 0.0),
    "in the baseline, later": ("baseline: running", 2.0),
    "after the plan": ("plan 1", 0.0),
    "after an attempt": ("then next_task", 0.0),
}


@pytest.mark.parametrize(
    "moment",
    ["at once", *(pytest.param(one, marks=pytest.mark.more) for one in ("in the baseline", "after an attempt")),
     *(pytest.param(one, marks=pytest.mark.long) for one in ("while it starts", "in the baseline, later", "after the plan"))],
)
def test_ctrl_c_at_any_moment(moment: str, tmp_path: Path) -> None:
    text, seconds = MOMENTS[moment]
    (tmp_path / "reference.py").write_text(GOOD)
    start = ["optimize", tmp_path / "reference.py", "--device", "sim", "--workspace", tmp_path / "ws", "--session", "s"]
    running = Running(tmp_path, *start)
    try:
        if text:
            running.wait_for(text)
        else:
            running.wait_for_modules()
        time.sleep(seconds)
        code = running.interrupt()
    finally:
        running.kill()
    told = running.log.read_text()
    assert code == 130, told
    assert "Traceback" not in told
    last = told.rstrip().splitlines()[-1]
    assert last.startswith("stitchcuda: "), told
    started = "s" in sessions(tmp_path)
    if started:
        again = stitchcuda(*shlex.split(last.split("`stitchcuda ")[1].split("`")[0]))  # as the sentence says
        assert again.returncode == 0, again.stderr
        assert "model_new.py" in program_of(tmp_path, "s")


def test_ctrl_c_in_a_verification(tmp_path: Path) -> None:
    mark = tmp_path / "started"
    (tmp_path / "reference.py").write_text(f"import pathlib, time\npathlib.Path({str(mark)!r}).touch()\ntime.sleep(60)\n{GOOD}")
    (tmp_path / "program.py").write_text(GOOD.replace("class Model(", "class ModelNew("))
    running = Running(tmp_path, "verify", tmp_path / "program.py", "--reference", tmp_path / "reference.py", "--device", "sim")
    try:
        deadline = time.monotonic() + 60
        while not mark.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert mark.exists()
        assert running.interrupt() == 130
    finally:
        running.kill()
    assert running.log.read_text() == "stitchcuda: interrupted: nothing was judged\n"


@pytest.mark.long
def test_resume_with_a_changed_reference_and_two_processes(tmp_path: Path) -> None:
    reference = tmp_path / "reference.py"
    reference.write_text(GOOD)
    workspace = ["--workspace", tmp_path / "ws"]
    running = Running(tmp_path, "optimize", reference, "--device", "sim", *workspace, "--session", "s")
    try:
        running.wait_for("baseline: running")
        running.process.send_signal(signal.SIGSTOP)  # or it might be done before the others have looked
        refused(stitchcuda("resume", "s", *workspace), str(running.process.pid), "'s'")
        refused(stitchcuda("optimize", reference, "--device", "sim", *workspace, "--session", "s"), "'s'", "exists already")
        assert stitchcuda("show", "s", *workspace).returncode == 0, "looking is allowed"
        running.process.send_signal(signal.SIGCONT)
        assert running.interrupt() == 130
    finally:
        running.kill()
    reference.write_text(GOOD.replace("2.0", "3.0"))
    refused(stitchcuda("resume", "s", *workspace), "reference.py", "changed")
    reference.write_text(GOOD)
    done = stitchcuda("resume", "s", *workspace, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["accepted"] is True


@pytest.mark.more
def test_endpoint_that_cannot_be_had(tmp_path: Path) -> None:
    reference = tmp_path / "reference.py"
    reference.write_text(GOOD)
    start = ["optimize", reference, "--device", "sim", "--workspace", tmp_path / "ws"]
    refused(stitchcuda(*start, "--model", "openai:m"), "OPENAI_API_KEY", "--model builtin")
    assert sessions(tmp_path) == [], "refused before anything was started"
    refused(stitchcuda(*start, "--base-url", "http://127.0.0.1:9/v1"), "--model")
    with serve(lambda request: Failure(403, "not for you")) as server:
        done = stitchcuda(*start, "--model", "openai:m", "--base-url", server.url, "--session", "s")
        refused(done, "403", "not for you")
    assert sessions(tmp_path) == ["s"], "the baseline is kept: resume goes on from there"
    refused(stitchcuda("resume", "s", "--workspace", tmp_path / "ws"), server.url, "cannot be reached")


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    done = stitchcuda("show", "nobody", "--workspace", tmp_path, "--debug")
    assert done.returncode != 0
    assert "Traceback" in done.stderr
    assert "BadInput" in done.stderr


def test_errors_are_json_too(tmp_path: Path) -> None:
    done = stitchcuda("optimize", tmp_path / "nothing.py", "--json")
    sentence = refused(done, "nothing.py")
    assert json.loads(done.stdout) == {"error": sentence}
