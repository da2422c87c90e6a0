"""An agent's episode: tools in a limited number of steps, and the service's reward at its end; none for what was not judged."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.reward_service import TOKEN, Server, free_port
from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.rag.playbook_pages import skeletons
from stitchcuda.training.openenv.episode import ProgramEpisode
from stitchcuda.training.openenv.server import app, app_over
from stitchcuda.training.reward_service.client import RewardRefused
from tests.training.reward_server import ScriptedPool, serving
from tests.verify import programs

TASKS = {"gate": "class Model: 'a gate'", "relu": "class Model: 'a relu'"}
TOOLS = ("write", "edit", "compile", "check", "docs", "submit")
RIGHT = {"state": "ok", "kind": "", "reward": 1.0, "reasons": []}
WRONG = {"state": "candidate_error", "kind": "wrong", "reward": -1.0, "reasons": ["output 0 is wrong: 3 of 9 elements differ"]}
LOST = {"state": "infra_error", "kind": "unavailable", "reward": None, "reasons": ["the judge was killed"]}
UNKNOWN = {"state": "candidate_error", "kind": "not_judged", "reward": None, "reasons": ["not here"], "no_score": "no GPU"}
REFUSED = RewardRefused(401, "give the token")


class ScriptedClient:
    """Answers as the script says, in turn, and keeps what it was asked."""

    def __init__(self, *script: dict[str, Any] | Exception) -> None:
        self.script, self.asked = list(script), list[tuple[str, dict[str, str], str]]()

    def judge(self, task: str, program: str | Mapping[str, str], *, schema: str) -> dict[str, Any]:
        assert not isinstance(program, str)
        self.asked.append((task, dict(program), schema))
        answer = self.script.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def begun(*script: dict[str, Any] | Exception, **options: Any) -> tuple[ProgramEpisode, ScriptedClient]:
    client = ScriptedClient(*script)
    episode = ProgramEpisode(TASKS, client, **options)
    episode.reset("gate")
    return episode, client


def test_an_episode_from_its_task_to_its_reward() -> None:
    client = ScriptedClient(WRONG, RIGHT)
    episode = ProgramEpisode(TASKS, client, schema="log-speedup/1", steps=9, checks=3)
    told = episode.reset("gate")
    assert "class Model: 'a gate'" in told
    assert "You have 9 calls of tools; 3 of them may be `check`" in told
    assert "a relu" not in told
    assert episode.write("model_new.py", "class ModelNew: 1\n") == "model_new.py has 1 line."
    assert "Not accepted (wrong).\n- output 0 is wrong" in episode.check()
    assert (episode.reward, episode.judged, episode.done) == (None, None, False)
    episode.edit("model_new.py", "1", "2")
    assert episode.submit() == "Accepted: the program is right."
    assert (episode.reward, episode.judged, episode.done) == (1.0, True, True)
    assert (episode.steps_left, episode.checks_left) == (5, 2)
    assert client.asked == [("gate", {"model_new.py": f"class ModelNew: {n}\n"}, "log-speedup/1") for n in (1, 2)]


@pytest.mark.parametrize(("answer", "words"), [(LOST, "the judge was killed"), (UNKNOWN, "no GPU"), (REFUSED, "give the token"),
                                               (TimeoutError("no answer"), "no answer")])  # fmt: skip
def test_what_was_not_judged_has_no_reward(answer: dict[str, Any] | Exception, words: str) -> None:
    episode, _ = begun(answer)
    said = episode.submit()
    assert words in said
    assert "There is no reward" in said
    assert (episode.reward, episode.judged, episode.done) == (None, False, True)


def test_checks_are_limited_and_one_that_failed_for_no_fault_of_the_program_does_not_count() -> None:
    episode, client = begun(LOST, WRONG, RIGHT, checks=2)
    for left in (2, 1, 0):
        episode.check()
        assert episode.checks_left == left
    assert episode.check() == "No check is left: submit, or go on without."
    assert len(client.asked) == 3


def test_the_last_call_submits_the_files_as_they_are() -> None:
    episode, client = begun(WRONG, steps=2)
    episode.write("model_new.py", "1")
    assert not episode.done
    assert "That was the last call" in episode.write("model_new.py", "2")
    assert (episode.reward, episode.done, client.asked) == (-1.0, True, [("gate", {"model_new.py": "2"}, "accepted/1")])
    for tool in (episode.submit, episode.check, episode.compile):
        with pytest.raises(ValueError, match="the episode is over"):
            tool()


def test_a_call_that_a_model_got_wrong_counts_too() -> None:
    episode, client = begun(WRONG, steps=1)
    with pytest.raises(TypeError, match="text"):
        episode.write(path="model_new.py")  # type: ignore[call-arg]
    assert "That was the last call" in episode.write("model_new.py", "1")
    assert (episode.done, client.asked) == (True, [("gate", {"model_new.py": "1"}, "accepted/1")])


def test_examples_of_the_documentation_are_shown_whole() -> None:
    episode, _ = begun()
    for name, text in skeletons().items():
        assert text.rstrip() in episode.docs(f"skeleton:{name}")
    assert "no dependent, cooperative or cluster launches" in episode.reset("gate")
    assert "simulator" not in begun(target="cuda")[0].reset("gate")


def test_a_trainer_gets_the_reward_of_files_that_were_not_submitted() -> None:
    episode, client = begun(WRONG)
    assert episode.get_reward() == episode.get_reward() == -1.0
    assert client.asked == [("gate", {}, "accepted/1")]


def test_nothing_is_left_of_the_episode_before() -> None:
    episode, _ = begun(WRONG, RIGHT, steps=5, checks=1)
    episode.write("model_new.py", "1")
    episode.check()
    episode.submit()
    episode.reset(seed=3, prompt="a column of the data set")
    assert (episode.files, episode.steps_left, episode.checks_left, episode.judged, episode.done) == ({}, 5, 1, None, False)
    drawn = episode.task
    episode.reset(seed=3)
    assert episode.task == drawn
    assert {(episode.reset(seed=seed), episode.task)[1] for seed in range(20)} == set(TASKS)
    with pytest.raises(BadInput, match="there is no task 'nothing': there are gate, relu"):
        episode.reset("nothing")
    with pytest.raises(ValueError, match="reset begins another"):
        ProgramEpisode(TASKS, ScriptedClient()).check()


@pytest.mark.parametrize(("path", "text"), [
    ("/etc/passwd", "1"), ("../model_new.py", "1"), ("", "1"), ("a" * 300, "1"), ("a.py", "\0"), ("a.py", "\ud800"),
    ("a.py", "1" * 2**20),
])  # fmt: skip
def test_what_can_be_no_file_is_not_written(path: str, text: str) -> None:
    episode, _ = begun()
    assert episode.write(path, text).startswith("Not written: ")
    assert episode.files == {}


def test_an_edit_needs_its_passage_once() -> None:
    episode, _ = begun()
    assert episode.edit("model_new.py", "1", "2") == "There is no 'model_new.py'; there are: none."
    episode.write("model_new.py", "1 1 3")
    assert [episode.edit("model_new.py", old, "2") for old in ("1", "4", "")] == [
        f"Not edited: the passage stands there {times} times." for times in (2, 0, 0)
    ]
    assert episode.files == {"model_new.py": "1 1 3"}


def test_compile_says_what_is_wrong_and_runs_nothing(tmp_path: Path) -> None:
    episode, _ = begun()
    ran = tmp_path / "ran"
    episode.write("model_new.py", f"open({str(ran)!r}, 'w')")
    assert "no CUDA source" in episode.compile()
    episode.write("kernels/a.cu", '__global__ void f() {\n  asm("trap;");\n}\n')
    assert "kernels/a.cu:2" in episode.compile()
    episode.write("kernels", "a file and a folder")
    assert "both a file and a folder" in episode.compile()
    assert not ran.exists()


def test_without_openenv_a_sentence_names_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "stitchcuda.training.openenv.environment", raising=False)
    monkeypatch.setitem(sys.modules, "openenv.core.env_server", None)
    with pytest.raises(Unavailable, match=r"the environment needs OpenEnv: .*pip install .*openenv"):
        app_over("http://127.0.0.1:1", tmp_path, None, "accepted/1")


def test_a_service_that_is_away_or_has_no_such_reward_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = SimpleNamespace(fastapi_app=lambda new_episode: new_episode().target)
    monkeypatch.setitem(sys.modules, "stitchcuda.training.openenv.environment", environment)
    monkeypatch.setattr("stitchcuda.training.openenv.server._PATIENCE_S", 0.1)
    (tmp_path / "relu.py").write_text(TASKS["relu"])
    with pytest.raises(Unavailable, match=r"http://127.0.0.1:1 is no reward service that answers \(no answer .* in 0 s"):
        app_over("http://127.0.0.1:1", tmp_path, None, "accepted/1")
    with serving(tmp_path / "store", ScriptedPool()) as server:
        with pytest.raises(BadInput, match="the service has no reward 'x/1': it has accepted/1, "):
            app_over(server.url, tmp_path, None, "x/1")
        target: object = app_over(server.url, tmp_path, None, "accepted/1")
    assert target == "cuda", "a service that is not on the simulator"


def test_a_server_that_cannot_serve_ends_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("STITCHCUDA_REWARD_URL", raising=False)
    with pytest.raises(SystemExit, match="2"):
        app()
    assert capsys.readouterr().err == "stitchcuda: STITCHCUDA_REWARD_URL is not set: it is the address of the reward service\n"


def test_a_service_says_what_it_can_and_takes_the_longest_program(tmp_path: Path) -> None:
    with serving(tmp_path, ScriptedPool()) as server:
        episode = ProgramEpisode({"relu": ""}, server.client)
        episode.reset()
        episode.write("a.py", "\U0001f600" * (2**20 - 4))
        assert episode.files
        episode.submit()
        assert (episode.reward, episode.answer["kind"]) == (0.0, "no_program")
        found = server.client.health()
        assert found["environment"] == "scripted"
        assert "accepted/1" in found["rewards"]


@pytest.mark.more
def test_tools_are_described_as_trl_wants_them() -> None:
    schema = pytest.importorskip("transformers.utils", reason="transformers is not installed").get_json_schema
    episode, _ = begun()
    made = {tool: schema(getattr(episode, tool))["function"] for tool in TOOLS}
    assert made["edit"]["parameters"]["required"] == ["path", "old", "new"]
    assert all(tool["description"] for tool in made.values())
    public = {name for name, member in vars(ProgramEpisode).items() if callable(member) and not name.startswith("_")}
    assert public == {*TOOLS, "reset", "get_reward"}


@contextmanager
def environment_server(url: str, tasks: Path) -> Iterator[str]:
    """The command of the documentation, as its own process."""
    port = free_port()
    variables = {"STITCHCUDA_REWARD_URL": url, "STITCHCUDA_REWARD_TASKS": str(tasks), "STITCHCUDA_REWARD_TOKEN": TOKEN}
    command = [sys.executable, "-m", "uvicorn", "--factory", "stitchcuda.training.openenv.server:app", "--port", str(port)]
    process = subprocess.Popen(command, env=os.environ | variables)
    try:
        address = f"http://127.0.0.1:{port}"
        while process.poll() is None:
            try:
                urllib.request.urlopen(f"{address}/health", timeout=5).close()
                break
            except OSError:
                time.sleep(0.2)
        assert process.poll() is None, "the server ended"
        yield address
    finally:
        process.terminate()
        process.wait(30)


@pytest.mark.more
def test_episodes_by_openenvs_client_over_http(tmp_path: Path) -> None:
    """The whole of it: both servers as they are documented, the verifier on the simulator, sessions side by side."""
    client = pytest.importorskip("openenv.core", reason="OpenEnv is not installed (extra openenv)").GenericEnvClient
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    (tasks / "gate.py").write_text(programs.REFERENCE)
    (tasks / "broken.py").write_text(programs.REFERENCE.replace("torch.relu(", "torch.no_such_function("))
    files = {"model_new.py": programs.KERNEL_MODEL, "kernels/gate_binding.cc": programs.BINDING,
             "kernels/gate.cu": programs.KERNEL.replace("const float value", "const no_type value")}  # fmt: skip

    def session(address: str, task: str, *actions: dict[str, str]) -> list[Any]:
        with client(base_url=address, message_timeout_s=300).sync() as env:
            begin = env.reset(task=task)
            return [begin, *map(env.step, actions), env.state()]

    writes = [{"tool": "write", "path": path, "text": text} for path, text in files.items()]
    mend = {"tool": "edit", "path": "kernels/gate.cu", "old": "no_type", "new": "float"}
    fast = {"tool": "write", "path": "model_new.py", "text": programs.REFERENCE.replace("class Model(", "class ModelNew(")}
    alone = [{"tool": name} for name in ("compile", "check", "submit")]
    server = Server(tmp_path, tasks, "sim", free_port())
    server.start()
    try:
        with environment_server(f"http://127.0.0.1:{server.port}", tasks) as address, ThreadPoolExecutor() as threads:
            honest = threads.submit(session, address, "gate", *writes, alone[0], mend, *alone)
            torch = threads.submit(session, address, "gate", fast, alone[2])
            broken = threads.submit(session, address, "broken", fast, alone[2])
            with pytest.raises(RuntimeError, match="there is no task 'nothing': there are broken, gate"):
                session(address, "nothing")
    finally:
        server.stop()

    begin, *_, failed, _, compiled, checked, end, state = honest.result()
    assert "class Model(nn.Module)" in begin.observation["text"]
    assert (begin.reward, begin.done) == (None, False)
    assert "no_type" in failed.observation["text"]
    assert compiled.observation["text"].startswith("Build: ok.")
    assert checked.observation["text"] == end.observation["text"] == "Accepted: the program is right."
    assert (checked.reward, checked.done, checked.observation["judged"]) == (None, False, None)
    assert (end.reward, end.done, end.observation["judged"], end.metadata["judged"]) == (1.0, True, True, True)
    assert (state["step_count"], state["task"], state["outcome"]["state"]) == (8, "gate", "ok")
    end = torch.result()[-2]
    assert (end.reward, end.done, end.metadata["judged"], end.metadata["kind"]) == (0.0, True, True, "refused")
    end = broken.result()[-2]
    assert (end.reward, end.done, end.metadata["judged"], end.metadata["kind"]) == (None, True, False, "task")
    assert "There is no reward" in end.observation["text"]
