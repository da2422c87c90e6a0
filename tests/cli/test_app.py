"""The command line as a user meets it: what it prints where, its exit codes, and the contract of --json."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console

from stitchcuda.cli.app import describe_device
from stitchcuda.cli.console import print_table, report_errors
from stitchcuda.cli.model_flags import DEFAULT_CHAT_MODEL, choose_model
from stitchcuda.cli.summary import checks_table, sessions_tables
from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.nodes.prediction import Prediction
from stitchcuda.sessions.outcome import Outcome
from stitchcuda.sessions.outcome_text import gain
from stitchcuda.sessions.progress import LiveView, PlainView, Progress, watch
from stitchcuda.sessions.session import Session
from stitchcuda.state import Settings, Usage
from stitchcuda.tools.doctor.finding import Check
from stitchcuda.verify.api import builds_folder
from tests.engineers.briefs import ATTEMPT, TASK
from tests.graph.tiny import Script, ScriptedEngineer, TinyHands, tiny_session
from tests.tools.device.test_toolkit import executable, homeless

REFERENCE = """
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
PRODUCT = """
import torch

class Model(torch.nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)

def get_inputs():
    return [torch.randn(1536, 1536), torch.randn(1536, 1536)]

def get_init_inputs():
    return []
"""
OUTCOME = {
    "session", "status", "accepted", "tier", "attempts", "tasks_done", "tasks_total", "baseline_ms", "best_ms", "speedup",
    "predicted_speedup", "prediction", "program", "report", "usage", "stop_reason", "missing",
}  # fmt: skip


def stitchcuda(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    ours = ("STITCHCUDA_RUNTIME_CACHE",)   # tests/conftest.py
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in ours or not name.startswith(("OPENAI_", "STITCHCUDA_"))
    }
    command = [sys.executable, "-m", "stitchcuda", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, env=kept | environment, check=False)


@pytest.mark.more
def test_a_session_from_start_to_verify(tmp_path: Path) -> None:
    """optimize in words, then show, sessions, verify, and resume of what is done."""
    reference, workspace = tmp_path / "norm.py", tmp_path / "ws"
    reference.write_text(REFERENCE)
    asked = ("--device", "sim", "--session", "first", "--predict-for", "A100")
    done = stitchcuda("optimize", reference, *asked, STITCHCUDA_WORKSPACE=str(workspace))
    assert done.returncode == 0, done.stderr
    assert "device: simulator (as asked" in done.stderr
    assert "engineer: built-in (no OPENAI_API_KEY)" in done.stderr
    assert "plan 1: " in done.stderr
    assert "accepted, tier simulated" in done.stdout
    assert "speed-ups are predictions for NVIDIA A100)" in done.stderr
    predicted = re.search(r"predicted \S+× over eager on NVIDIA A100 \(.*host work, .*; nothing was timed here\)", done.stdout)
    assert predicted
    assert "rests on: " in done.stdout
    assert "stitchcuda verify " in done.stdout
    assert len(done.stdout.splitlines()) < 20, "a few lines"

    shown = stitchcuda("show", "first", "--workspace", workspace)
    assert shown.returncode == 0, shown.stderr
    assert "kept" in shown.stdout
    assert "next_task" in shown.stdout
    assert "floors by nominal figures of NVIDIA A100" in " ".join(shown.stdout.split())
    assert predicted[0] in shown.stdout
    table = stitchcuda("sessions", "--workspace", workspace)
    assert table.returncode == 0, table.stderr
    assert "first" in table.stdout
    assert "done" in table.stdout

    program = workspace / "sessions" / "first" / "program"
    judged = stitchcuda("verify", program, "--reference", reference, "--device", "sim", "--json")
    assert judged.returncode == 0, judged.stderr
    verdict = json.loads(judged.stdout)
    assert {"accepted", "tier", "reasons", "speedup", "max_error", "error_bound", "shares", "seconds"} <= set(verdict)
    assert set(verdict["shares"]) == {"own", "vendor", "framework"}
    assert set(verdict["seconds"]) == {"build", "check", "timing", "questions"}
    assert verdict["accepted"] is True

    broken = workspace / "broken"
    for path in program.rglob("*"):
        if path.is_file() and path.suffix != ".pyc":
            (broken / path.relative_to(program)).parent.mkdir(parents=True, exist_ok=True)
            text = path.read_text()
            (broken / path.relative_to(program)).write_text(text.replace("2.0f", "2.5f"))
    refused = stitchcuda("verify", broken, "--reference", reference, "--device", "sim")
    assert refused.returncode == 1, refused.stdout + refused.stderr
    assert refused.stdout.startswith("refused, tier simulated")

    again = stitchcuda("resume", "first", "--workspace", workspace, "--json")
    assert again.returncode == 0, again.stderr
    outcome = json.loads(again.stdout)
    assert set(outcome) == OUTCOME
    assert outcome["session"] == "first"
    assert outcome["status"] == "done"
    assert outcome["speedup"] is None
    parts = outcome["prediction"]
    assert (parts["against"], parts["device"]) == ("eager", "NVIDIA A100")
    assert outcome["predicted_speedup"] == pytest.approx(parts["eager_ms"] / parts["program_ms"])
    assert outcome["predicted_speedup"] > 1
    saving = parts["host_saving_ms"] + parts["device_saving_ms"]
    assert saving == pytest.approx(parts["eager_ms"] - parts["program_ms"])
    assert predicted[0].removeprefix("predicted ") in Path(outcome["report"]).read_text()
    assert Path(outcome["program"]) == program
    assert Path(outcome["report"]).is_file()
    assert json.loads(stitchcuda("show", "first", "--workspace", workspace, "--json").stdout) == outcome


@pytest.mark.more
def test_what_strict_refuses_is_not_written(tmp_path: Path) -> None:
    reference, workspace = tmp_path / "product.py", tmp_path / "ws"
    reference.write_text(PRODUCT)
    done = stitchcuda("optimize", reference, "--device", "sim", "--policy", "strict", STITCHCUDA_WORKSPACE=str(workspace))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].startswith(
        "nothing to do: 1 operator was looked at (matmul); the built-in engineer leaves matmul to torch, which policy strict "
        "refuses; what would help: --policy stitched, or a chat model"
    )


@pytest.mark.more
def test_a_program_with_nothing_to_do(tmp_path: Path) -> None:
    """It says what was looked at, why nothing is left and what would help; that is an answer, and no failure."""
    reference, workspace = tmp_path / "product.py", tmp_path / "ws"
    reference.write_text(PRODUCT)
    asked = "--device", "sim", "--effort", "low"
    done = stitchcuda("optimize", reference, *asked, STITCHCUDA_WORKSPACE=str(workspace))
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()[0]
    assert said == (
        "nothing to do: 1 operator was looked at (matmul); the built-in engineer has no faster kernel for any of them, "
        "and a CUDA graph would not pay; what would help: a chat model, which writes such kernels too (--model openai:NAME), "
        "with --precision bf16 if products may be less exact"
    )
    again = stitchcuda("resume", "product-1", "--workspace", workspace, "--json")
    outcome = json.loads(again.stdout)
    assert again.returncode == 0, again.stderr
    assert (outcome["status"], outcome["accepted"], outcome["stop_reason"]) == ("nothing_to_do", False, said)
    assert said in stitchcuda("show", "product-1", "--workspace", workspace).stdout


@pytest.fixture(scope="module")
def parked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a session, tiny, that has not run yet."""
    return tiny_session(tmp_path_factory.mktemp("parked")).home.root


def shell(command: str, workspace: Path) -> subprocess.CompletedProcess[str]:
    """A line of bash, with $S for the command line."""
    environment = os.environ | {"S": f"{sys.executable} -m stitchcuda", "STITCHCUDA_WORKSPACE": str(workspace)}
    given = ["bash", "-o", "pipefail", "-c", command]
    return subprocess.run(given, capture_output=True, text=True, timeout=120, env=environment, check=False)


@pytest.mark.parametrize("command", ["show tiny", "show tiny --json", "sessions", "sessions --debug", "--help"])
def test_an_output_that_takes_nothing(command: str, parked: Path) -> None:
    done = shell(f"$S {command} > /dev/full", parked)
    assert done.returncode == 2
    last = "stitchcuda: the output cannot be written (No space left on device): send it to another place"
    assert done.stderr.splitlines()[-1] == last
    assert ("Traceback" in done.stderr) is ("--debug" in command)
    assert len(done.stderr.splitlines()) == 1 or "--debug" in command


@pytest.mark.parametrize(
    ("command", "code", "told"),
    [
        ("$S show tiny >&-", 0, ""),
        ("$S sessions >&-", 0, ""),
        ("$S sessions --json >&-", 0, ""),
        ("$S show nobody 2>&-", 2, ""),
        ("$S show nobody >&- 2>&-", 2, ""),
        ("$S show tiny | true", 0, ""),
    ],
)
def test_closed_outputs_are_left_alone(command: str, code: int, told: str, parked: Path) -> None:
    done = shell(command, parked)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", told)


def test_debug_keeps_the_exit_code_and_the_sentence(tmp_path: Path) -> None:
    plain = stitchcuda("show", "nobody", "--workspace", tmp_path, "--json")
    debug = stitchcuda("show", "nobody", "--workspace", tmp_path, "--json", "--debug")
    assert plain.returncode == debug.returncode == 2
    assert plain.stdout == debug.stdout
    assert "Traceback" in debug.stderr
    assert debug.stderr.endswith(plain.stderr)


def terminal_of(command: list[str | Path]) -> tuple[subprocess.Popen[str], int]:
    """The command line in a terminal of its own that takes its stderr, and the terminal's other end."""
    ours, theirs = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", CONTROLLED, *map(str, command)], stdout=subprocess.PIPE, stderr=theirs, text=True,
        start_new_session=True, env={name: value for name, value in os.environ.items() if not name.startswith("OPENAI_")},
    )  # fmt: skip
    os.close(theirs)
    return process, ours


CONTROLLED = """
import fcntl, sys, termios
fcntl.ioctl(2, termios.TIOCSCTTY, 0)
from stitchcuda.__main__ import main
main()
"""
SLOW = "import pathlib, time\npathlib.Path(__file__ + '.mark').touch()\ntime.sleep(60)\n"


@pytest.mark.parametrize(("how", "code"), [
    ("SIGTERM", 143), pytest.param("SIGHUP", 129, marks=pytest.mark.more), pytest.param("closed", 129, marks=pytest.mark.more),
])  # fmt: skip
def test_a_stop_from_outside_is_as_clean_as_ctrl_c(how: str, code: int, tmp_path: Path) -> None:
    reference, workspace, mark = tmp_path / "slow.py", tmp_path / "ws", tmp_path / "mark"
    reference.write_text(SLOW.replace("__file__ + '.mark'", repr(str(mark))) + REFERENCE)
    as_json: list[str | Path] = ["--json"] if how == "SIGHUP" else []
    process, terminal = terminal_of(
        ["optimize", reference, "--model", "builtin", "--device", "sim", "--workspace", workspace, "--session", "s", *as_json]
    )
    try:
        deadline = time.monotonic() + 60
        while not mark.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert mark.exists()
        if how == "closed":
            os.close(terminal)
        else:
            for _ in range(2):             # as `timeout` and shells do
                os.kill(process.pid, signal.Signals[how])
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == code
    session = Session.open("s", workspace)
    assert session.status == "parked"
    if how == "closed":
        return
    told = ""
    with contextlib.suppress(OSError):     # a terminal ends so when nobody holds its other end
        while more := os.read(terminal, 65536):
            told += more.decode()
    os.close(terminal)
    last = " ".join(told.split("stitchcuda: ")[-1].split())
    assert last.startswith("session 's' is saved in "), told
    assert f"go on with `stitchcuda resume s --workspace {workspace}`" in last
    assert "Traceback" not in told
    if as_json:
        assert json.loads(out) == {"error": last}
    else:
        assert "\x1b[?25l" in told, "the live view hides the cursor"
        assert told.rindex("\x1b[?25h") > told.rindex("\x1b[?25l"), "and shows it again"


EARLY = """
import os, signal, sys
class Stop:
    def find_spec(self, name, *rest):
        if name == "stitchcuda.cli.app":
            os.kill(os.getpid(), signal.SIGTERM)
sys.meta_path.insert(0, Stop())
from stitchcuda.__main__ import main
main()
"""


def test_a_stop_before_anything_was_started() -> None:
    done = subprocess.run([sys.executable, "-c", EARLY, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 143
    assert done.stderr == "stitchcuda: interrupted before anything was started\n"
    assert json.loads(done.stdout) == {"error": "interrupted before anything was started"}


@pytest.mark.parametrize("place", ["stitchcuda.cli.app", "stitchcuda.tools.doctor.doctor"])
def test_an_interrupt_of_which_a_library_makes_another_error(place: str) -> None:
    """As pydantic does while it makes a record's validator: before a command runs, and in one."""
    early = EARLY.replace("stitchcuda.cli.app", place).replace("SIGTERM", "SIGINT")
    deed = "            os.kill(os.getpid(), signal.SIGINT)"
    instead = f"            try:\n    {deed}\n            except KeyboardInterrupt:\n                raise ValueError"
    script = early.replace(deed, instead)
    done = subprocess.run([sys.executable, "-c", script, "doctor"], capture_output=True, text=True, check=False)
    assert done.returncode == 130, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("stitchcuda: interrupted")


def test_what_nohup_ignores_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with pytest.raises(typer.Exit) as ended:
            report_errors()(lambda: os.kill(os.getpid(), signal.SIGHUP))()
        assert ended.value.exit_code == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_help_and_usage() -> None:
    listed = stitchcuda("--help")
    assert listed.returncode == 0
    for command in ("optimize", "resume", "sessions", "show", "verify", "doctor"):
        assert command in listed.stdout
    assert stitchcuda("optimize").returncode == 2
    wrong = stitchcuda("optimise", "x.py")
    assert wrong.returncode == 2
    assert "optimise" in wrong.stderr


@pytest.mark.parametrize(
    ("model", "base_url", "environment", "chosen", "told"),
    [
        (None, None, {}, "builtin", "built-in (no OPENAI_API_KEY)"),
        ("builtin", None, {"OPENAI_API_KEY": "sk"}, "builtin", "as asked"),
        (None, None, {"OPENAI_API_KEY": "sk"}, f"openai:{DEFAULT_CHAT_MODEL}", "at most --budget-usd; --model builtin is free"),
        (None, None, {"OPENAI_API_KEY": "sk", "STITCHCUDA_MODEL": "big"}, "openai:big", "OPENAI_API_KEY is set"),
        (None, None, {"STITCHCUDA_MODEL": "big"}, "builtin", "built-in (no OPENAI_API_KEY)"),
        (None, "http://localhost/v1", {"STITCHCUDA_MODEL": "openai:big"}, "openai:big", "at http://localhost/v1"),
        ("openai:x", None, {}, "openai:x", "openai:x"),
    ],
)
def test_which_engineer_and_why(
    model: str | None,
    base_url: str | None,
    environment: dict[str, str],
    chosen: str,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("OPENAI_API_KEY", "STITCHCUDA_MODEL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    name, why = choose_model(model, base_url)
    assert name == chosen
    assert told in why
    assert "sk" not in why.split()


def test_an_address_without_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STITCHCUDA_MODEL", raising=False)
    with pytest.raises(BadInput, match="--model openai:NAME"):
        choose_model(None, "http://localhost/v1")


def outcome(**more: Any) -> Outcome:
    values: dict[str, Any] = dict.fromkeys(OUTCOME)
    values |= {
        "session": "s",
        "status": "done",
        "accepted": True,
        "attempts": 3,
        "tasks_done": 1,
        "tasks_total": 1,
        "usage": Usage(),
        "missing": (),
    }
    return Outcome(**(values | more))


def test_a_speedup_is_printed_only_where_something_was_timed() -> None:
    assert (
        gain(outcome(tier="timed", speedup=1.5, predicted_speedup=1.7), "NVIDIA H200")
        == "1.50× over eager on NVIDIA H200, timed"
    )
    parts = Prediction(device="NVIDIA A100", eager_ms=0.17, program_ms=0.1, host_saving_ms=0.05, device_saving_ms=0.02)
    assert gain(outcome(tier="simulated", prediction=parts), "NVIDIA H200") == f"predicted {parts}"
    assert gain(outcome(tier="compiled"), "NVIDIA H200") == "no speed-up is claimed"


def test_a_table_shows_foreign_text_as_it_is() -> None:
    given = Check(name="tool", ok=False, detail="boom [/bold] :boom: [red]x", remedy="pip install 'stitchcuda[toolkit]'")
    out = io.StringIO()
    Console(file=out, width=160).print(checks_table([given]))
    assert given.detail in out.getvalue()
    assert given.remedy in out.getvalue()


@pytest.mark.parametrize("width", [160, 80, 40, 20])
def test_names_of_sessions_are_never_cut(
    width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["tiny-1", "tiny-1-fork-1", "transformer_block-12", "a-name-that-somebody-gave-1"]
    came_to = outcome(predicted_speedup=1.34, tier="simulated")
    sessions = [(tiny_session(tmp_path, name), came_to) for name in names]
    damaged = {"tiny-1-damaged": "the ledger of session 'tiny-1-damaged' lacks attempt 0123abcd"}
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for table in sessions_tables(sessions, damaged):
        print_table(table)
    lines = re.sub(r"\x1b\[\d*m", "", capsys.readouterr().out).splitlines()
    assert [line.split()[0] for line in lines[:6]] == ["session", *names, "tiny-1-damaged"]
    assert "…" not in "".join(lines)
    told = " ".join(" ".join(lines).split())
    assert "tiny-1-damaged: the ledger of session 'tiny-1-damaged' lacks attempt 0123abcd" in told
    if width >= 40:
        assert max(map(len, lines)) <= width
        assert lines[1].split()[1] == "done"
    if width >= 80:
        assert "predicted 1.34×" in lines[1]
    if width == 160:
        assert lines[0].split()[1:] == ["status", "accepted", "tier", "tasks", "attempts", "speed-up", "model", "started"]


def test_no_sessions_are_an_empty_table() -> None:
    out = io.StringIO()
    for table in sessions_tables([], {}):
        Console(file=out, width=160).print(table)
    assert out.getvalue().split()[0] == "session"
    assert len(out.getvalue().splitlines()) == 1


def test_why_there_is_no_gpu_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    executable(tmp_path / "nvidia-smi", "echo No devices were found; exit 6")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert describe_device("auto").startswith("simulator (nvidia-smi finds none (No devices were found): ")
    assert describe_device("sim").startswith("simulator (as asked: ")
    assert describe_device("sim", "l4").endswith("speed-ups are predictions for NVIDIA L4)")


def test_without_a_home_there_is_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    homeless(monkeypatch)
    with pytest.raises(Unavailable, match="set XDG_CACHE_HOME"):
        builds_folder()


SPENT = Usage(calls=2, input_tokens=1500, usd=None)
OTHER = TASK.model_copy(update={"id": "r02", "title": "softmax"})
RIGHT = ATTEMPT.model_copy(
    update={"task": "r02", "correct": True, "kept": True, "route": "next_task", "diagnosis": "", "own_share": 0.4}
)
EVENTS: list[dict[str, Any]] = [
    {"kind": "session", "session": "s", "resumed": False, "workspace": "/somewhere", "settings": Settings()},
    {"kind": "node", "node": "baseline", "phase": "start", "task": None},
    {"kind": "node", "node": "baseline", "phase": "end", "task": None, "seconds": 4.25, "usage": SPENT},
    {"kind": "plan", "version": 1, "tasks": (TASK, OTHER), "summary": "Two."},
    {"kind": "node", "node": "coder", "phase": "start", "task": "softmax"},
    {"kind": "tokens", "role": "coder", "chunks": 7},
    {"kind": "attempt", "attempt": ATTEMPT, "title": TASK.title},
    {"kind": "attempt", "attempt": RIGHT, "title": "softmax"},
    {"kind": "best", "attempt": RIGHT, "title": "softmax"},
    {"kind": "note", "text": "something\nwas skipped"},
]  # fmt: skip


def test_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    view = PlainView()
    for event in EVENTS:
        view(event)
    told = capsys.readouterr()
    assert told.out == "", "stdout is for results"
    lines = [line.split("] ", 1)[1] for line in told.err.splitlines()]
    assert lines == [
        "session s starts in /somewhere",
        "baseline: running and capturing the reference",
        "baseline: 4.2 s",
        "plan 1: Two.",
        "r01 #0 (fuse gelu into layer_norm): wrong, then code (not correct): output 0 is wrong",
        "r02 #0 (softmax): correct (simulated), then next_task (not correct)",
        "best so far: 1 stitched, 40% in own kernels, tier simulated",
        "note: something was skipped",
    ]


def test_live_panel() -> None:
    view = LiveView()
    for event in EVENTS:
        view(event)
    out = io.StringIO()
    Console(file=out, width=160).print(view)
    panel = out.getvalue()
    assert "attempt 1 wrong" in panel
    assert "r02" in panel
    assert "kept" in panel
    assert "coder (softmax) (7 pieces of a reply)" in panel
    assert "2 of 30 attempts, 0:00, 2 calls, 1,500 tokens, price unknown" in panel
    assert "best so far: 1 stitched" in panel


@pytest.mark.parametrize(("width", "height"), [(160, 50), (80, 24), (40, 20)])
@pytest.mark.parametrize("settled", [0, 25, 60])
def test_the_live_panel_fits_the_screen(width: int, height: int, settled: int) -> None:
    view = LiveView()
    title = "[bold]task[/bold]"
    tasks = tuple(TASK.model_copy(update={"id": f"r{number:02}", "title": title}) for number in range(60))
    limits = Settings(budget_usd=2.0, max_minutes=30)
    view({"kind": "session", "session": "tiny", "workspace": "w", "settings": limits})
    view({"kind": "plan", "version": 1, "tasks": tasks, "summary": "many"})
    for task in tasks[:settled]:
        view.progress.status[task.id] = "kept"
    view.progress.usage = Usage(calls=3, input_tokens=10, usd=0.5)
    out = io.StringIO()
    Console(file=out, width=width, height=height).print(view)
    panel = out.getvalue().splitlines()
    assert max(map(len, panel)) <= width
    words = " ".join(out.getvalue().split())
    if width == 160:
        assert len(panel) < height
        assert "[bold]task[/bold]" in words, "a plan's words are no markup"
        assert "0:00 of 30 min" in words
        assert "0.50 of 2 USD" in words
        assert "0 of 30 attempts" in words
        if settled < 60:
            assert f"r{settled:02}" in words


def panel_of(view: LiveView) -> str:
    out = io.StringIO()
    Console(file=out, width=160).print(view)
    return out.getvalue()


def test_a_view_begins_from_where_the_session_stands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script: Script = {"a": ["saves 0.2"], "b": ["wrong", "saves 0.3"], "c": ["saves 0.1"]}
    session = tiny_session(tmp_path)
    hands = TinyHands()

    def strike(tool: str) -> None:
        if tool == "build" and hands.calls.count("build") == 2:
            raise KeyboardInterrupt

    hands.before = strike
    with pytest.raises(KeyboardInterrupt):
        session.run(engineer=ScriptedEngineer(script), tools=hands)
    events: list[dict[str, Any]] = []
    session.run(engineer=ScriptedEngineer(script), tools=TinyHands(), on_event=events.append)
    plain, live = PlainView(), LiveView()
    plain(events[0])
    live(events[0])
    assert "goes on in" in (told := capsys.readouterr().err)
    assert "2 attempts, best so far: 1 stitched, 50% in own kernels" in told
    panel = panel_of(live)
    assert [line.split()[-1] for line in panel.splitlines() if " task " in line] == ["kept", "wrong", "open"]
    assert "attempt 1 wrong" in panel
    assert "2 of 30 attempts" in panel
    assert "best so far: 1 stitched" in panel
    for event in events[1:]:
        live(event)
    assert "4 of 30 attempts" in panel_of(live)
    assert "best so far: 3 stitched" in panel_of(live)


def test_the_live_panel_shows_budgets_that_bind() -> None:
    view = LiveView()
    assert "attempts" not in panel_of(view), "no budget is known before the session is there"
    view({"kind": "session", "session": "s", "workspace": "w", "settings": Settings(max_attempts=7), "attempts": 3})
    assert "3 of 7 attempts, 0:00\n" in "\n".join(map(str.rstrip, panel_of(view).splitlines())) + "\n"
    limits = Settings(model="openai:x", max_minutes=20, max_tokens=90000, max_gpu_s=60)
    spent = Usage(input_tokens=1000, output_tokens=500, usd=0.5, calls=2, gpu_s=12.2, wall_s=605)
    view({"kind": "session", "session": "s", "workspace": "w", "settings": limits, "attempts": 6, "started": 4, "usage": spent})
    assert (
        "2 of 30 attempts after the start's 4, 10:05 of 20 min, 2 calls, 1,500 of 90,000 tokens, 0.50 of 5 USD, GPU 12 of 60 s"
        in panel_of(view)
    )


def test_what_the_start_tries_is_not_counted_against_the_budget() -> None:
    progress = Progress()
    limits = Settings(model="openai:x")
    progress.take({"kind": "session", "session": "s", "workspace": "w", "settings": limits, "stage": "start"})
    for event in EVENTS[3:9]:
        progress.take({**event, "engineer": "builtin"})
    assert (progress.attempts, progress.started) == (2, 0)
    progress.take({"kind": "plan", "version": 2, "tasks": (), "summary": "", "engineer": "openai:x"})
    progress.take({"kind": "attempt", "attempt": RIGHT, "title": "softmax"})
    assert (progress.attempts, progress.started) == (3, 2)


def test_replanned_tasks_keep_their_fate() -> None:
    progress = Progress()
    for event in EVENTS:
        progress.take(event)
    progress.take({"kind": "plan", "version": 2, "tasks": (TASK.model_copy(update={"id": "r09"}),), "summary": ""})
    assert progress.status == {"r01": "attempt 1 wrong", "r02": "kept", "r09": "open"}
    assert list(progress.tasks) == ["r02", "r09"]


def test_warnings_go_through_the_view(capsys: pytest.CaptureFixture[str]) -> None:
    with watch(plain=True):
        logging.getLogger("stitchcuda.engineers.endpoint").warning("a fallback")
    assert "a fallback" in capsys.readouterr().err
