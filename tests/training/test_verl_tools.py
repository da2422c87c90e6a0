"""Episodes by verl's tools: one for each trajectory, the service's reward at its end, and none for what was not judged.

`call` does what `ToolAgentLoop._call_tool` of verl 0.9.1 does for each; benchmarks/agent_rollouts.py runs the loop.
"""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import inspect
import json
import pickle
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from benchmarks.agent_rollouts import EXPECTED, POLICIES, TASK, make_tasks
from benchmarks.reward_service import TOKEN, Server, free_port
from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.training.openenv.episode import ProgramEpisode
from stitchcuda.training.reward_service.client import RewardClient
from stitchcuda.training.reward_service.tasks import read_tasks
from stitchcuda.training.reward_service.trainers import EPISODE, episode_score
from stitchcuda.training.verl_files import task_rows, tool_schemas, tools_config, write_verl_files
from stitchcuda.verify.api import Verdict
from tests.training.reward_server import End, ScriptedPool, Served, program, serving

WRONG = Verdict(accepted=False, tier="simulated", reasons=("output 0 is wrong",), within_bound=False)
SCRIPT: dict[str, list[End]] = {"wrong": [WRONG], "lost": [Unavailable("the judge was killed")]}
INSTALLED = importlib.util.find_spec("verl") is not None
NAMES = ("write", "edit", "compile", "check", "docs", "submit")


class Tool:
    """In place of verl's `BaseTool` where verl is not installed."""

    def __init__(self, config: dict[str, Any], tool_schema: Any) -> None:
        self.config, self.tool_schema, self.name = config, tool_schema, tool_schema.function.name


def without_verl() -> dict[str, ModuleType]:
    base, schemas = ModuleType("verl.tools.base_tool"), ModuleType("verl.tools.schemas")
    vars(base)["BaseTool"] = Tool
    vars(schemas).update(OpenAIFunctionToolSchema=SimpleNamespace, ToolResponse=SimpleNamespace)
    return {"verl": ModuleType("verl"), "verl.tools": ModuleType("verl.tools"), base.__name__: base, schemas.__name__: schemas}


@pytest.fixture(scope="module")
def module() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        if not INSTALLED:
            for name, made in without_verl().items():
                patch.setitem(sys.modules, name, made)
        yield importlib.import_module("stitchcuda.training.verl_tools")
        patch.delitem(sys.modules, "stitchcuda.training.verl_tools")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    with serving(tmp_path / "store", ScriptedPool(SCRIPT)) as made:
        monkeypatch.setenv("STITCHCUDA_REWARD_URL", made.url)
        yield made


def tools_of(module: Any, config: Mapping[str, Any]) -> dict[str, Any]:
    """What verl's `initialize_tools_from_config` makes of the YAML."""
    made: dict[str, Any] = {}
    for entry in config["tools"]:
        schema = entry["tool_schema"]
        if not INSTALLED:
            read = SimpleNamespace(type="function", function=SimpleNamespace(**schema["function"]))
        else:
            read = module.OpenAIFunctionToolSchema.model_validate(schema)
        assert entry["class_name"] == f"{module.ProgramTool.__module__}.{module.ProgramTool.__qualname__}"
        tool = module.ProgramTool(config=dict(entry["config"]), tool_schema=read)
        made[tool.name] = tool
    return made


class AgentData:
    """The part of verl's that tools see."""

    def __init__(self, row: dict[str, Any]) -> None:
        self.tools_kwargs = row["extra_info"]["tools_kwargs"]
        self.extra_fields: dict[str, Any] = {}
        self.tool_rewards: list[float] = []


async def call(tools: dict[str, Any], agent_data: AgentData, name: str, arguments: dict[str, Any]) -> str:
    tool, instance_id = tools[name], None
    try:
        kwargs = agent_data.tools_kwargs.get(name, {})
        instance_id, _ = await tool.create(create_kwargs=kwargs.get("create_kwargs", {}))
        response, reward, _ = await tool.execute(instance_id, json.loads(json.dumps(arguments)), agent_data=agent_data)
    except Exception as error:
        return f"Error executing tool '{name}': {error}"
    finally:
        if instance_id:
            await tool.release(instance_id)
    if reward is not None:
        agent_data.tool_rewards.append(reward)
    return str(response.text)


async def calls(tools: dict[str, Any], agent_data: AgentData, *turns: tuple[str, dict[str, Any]]) -> list[str]:
    return [await call(tools, agent_data, name, arguments) for name, arguments in turns]


def write(name: str) -> tuple[str, dict[str, str]]:
    return "write", {"path": "model_new.py", "text": program(name)}


def score(row: dict[str, Any], agent_data: AgentData) -> dict[str, float | str]:
    """As verl's reward manager asks: the loop's `extra_fields` are added to the row's `extra_info`."""
    info = row["extra_info"] | pickle.loads(pickle.dumps(agent_data.extra_fields))
    return episode_score(row["data_source"], "```python\nclass ModelNew: ...\n```", row["reward_model"]["ground_truth"], info)


ROW = task_rows({"relu": "class Model: 'a relu'"}, steps=9, checks=3)[0]
NO_CALLS: tuple[tuple[str, dict[str, Any]], ...] = (("check", {}), ("submit", {}))


def test_the_tools_are_those_of_the_episode() -> None:
    schemas = {made["function"]["name"]: made["function"] for made in tool_schemas()}
    assert tuple(schemas) == NAMES
    for name, made in schemas.items():
        method = getattr(ProgramEpisode, name)
        assert made["description"] == inspect.cleandoc(method.__doc__).partition("\n\n")[0]
        assert made["parameters"]["required"] == list(inspect.signature(method).parameters)[1:]
        for argument in made["parameters"]["properties"].values():
            assert argument["type"] == "string"
            assert argument["description"]


def test_the_files_are_what_verl_reads(tmp_path: Path) -> None:
    write_verl_files(tmp_path / "out", make_tasks(tmp_path / "tasks"), url="http://127.0.0.1:1", target="sim", steps=7)
    rows = [json.loads(line) for line in (tmp_path / "out" / "rows.jsonl").read_text().splitlines()]
    assert [row["reward_model"]["ground_truth"] for row in rows] == ["broken", "gate"]
    assert "torch.relu(y * self.scale + x)" in rows[1]["prompt"][0]["content"]
    assert "You have 7 calls of tools; 4 of them may be `check`" in rows[1]["prompt"][0]["content"]
    assert {row["agent_name"] for row in rows} == {"tool_agent"}
    terms = {"task": "gate", "reward_schema": "accepted/1", "target": "sim", "steps": 7, "checks": 4}
    assert rows[1]["extra_info"]["tools_kwargs"] == {name: {"create_kwargs": terms} for name in NAMES}
    config = json.loads((tmp_path / "out" / "tools.yaml").read_text())
    assert config == tools_config("http://127.0.0.1:1")
    with pytest.raises(BadInput, match=r"tools\.yaml is a file: give a folder"):
        write_verl_files(tmp_path / "out" / "tools.yaml", tmp_path / "tasks")


def test_a_trajectory_is_an_episode(module: Any, server: Served) -> None:
    tools, agent_data = tools_of(module, tools_config()), AgentData(ROW)
    said = asyncio.run(calls(tools, agent_data, write("wrong"), ("check", {}), ("edit", {
        "path": "model_new.py", "old": "wrong", "new": "good"}), ("check", {})))  # fmt: skip
    assert said[1].startswith("Not accepted (wrong).\n- output 0 is wrong")
    assert said[3] == "Accepted: the program is right."
    assert agent_data.extra_fields == {EPISODE: {"files": {"model_new.py": program("good")}, "answer": {}}}
    assert asyncio.run(calls(tools, agent_data, ("submit", {}), write("wrong"))) == [
        "Accepted: the program is right.", "The episode is over; the program counts as it was submitted.",
    ]  # fmt: skip
    assert agent_data.tool_rewards == [0.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    judged = len(server.pool.judged)
    found = score(ROW, agent_data)
    assert (found["score"], found["judged"], found["state"]) == (1.0, 1.0, "ok")
    assert len(server.pool.judged) == judged, "what was submitted is not judged again"


def test_trajectories_share_nothing_and_end_with_their_agent_data(module: Any, server: Served) -> None:
    tools = tools_of(module, tools_config())

    async def at_once(several: Mapping[str, AgentData]) -> list[list[str]]:
        return await asyncio.gather(*(calls(tools, agent_data, write(name), *NO_CALLS) for name, agent_data in several.items()))

    several = {name: AgentData(ROW) for name in ("good", "wrong", "lost", "fine")}
    said = asyncio.run(at_once(several))
    assert [each[-1].partition("\n")[0] for each in said] == [
        "Accepted: the program is right.", "Not accepted (wrong).", "Not judged, for no fault of the program.",
        "Accepted: the program is right.",
    ]  # fmt: skip
    rewards = {name: agent_data.tool_rewards[2:] for name, agent_data in several.items()}
    assert rewards == {"good": [1.0], "wrong": [0.0], "lost": [], "fine": [1.0]}
    held = len(module._TRAJECTORIES)
    del several
    gc.collect()
    assert len(module._TRAJECTORIES) <= held - 4
    assert not any(tool._terms or tool._begun for tool in tools.values())


def test_calls_of_one_turn_happen_in_their_order(module: Any, server: Served) -> None:
    tools, agent_data = tools_of(module, tools_config()), AgentData(ROW)
    turn = [write("wrong"), ("edit", {"path": "model_new.py", "old": "wrong", "new": "good"}), *NO_CALLS]

    async def at_once() -> list[str]:
        return await asyncio.gather(*(call(tools, agent_data, *one) for one in turn))

    assert asyncio.run(at_once())[2:] == ["Accepted: the program is right."] * 2


def test_files_that_were_not_submitted_are_judged_for_the_reward(module: Any, server: Served) -> None:
    tools, agent_data = tools_of(module, tools_config()), AgentData(ROW)
    asyncio.run(calls(tools, agent_data, write("wrong")))
    assert (score(ROW, agent_data)["kind"], score(ROW, agent_data)["score"]) == ("wrong", 0.0)
    assert score(ROW, AgentData(ROW))["kind"] == "no_program", "text in the last message is no program"


@pytest.mark.parametrize("end", [(), (("submit", {}),)])
def test_what_was_not_judged_raises(module: Any, server: Served, end: tuple[tuple[str, dict[str, Any]], ...]) -> None:
    tools, agent_data = tools_of(module, tools_config()), AgentData(ROW)
    asyncio.run(calls(tools, agent_data, write("lost"), *end))
    with pytest.raises(Unavailable, match=r"no reward \(unavailable\): .*the judge was killed"):
        score(ROW, agent_data)
    error = Unavailable("no reward")
    assert str(pickle.loads(pickle.dumps(error))) == "no reward", "Ray sends it to the trainer"


def test_calc_reward_ends_the_episode(module: Any, server: Served) -> None:
    tools = tools_of(module, tools_config())

    async def reward(name: str) -> float:
        agent_data = AgentData(ROW)
        made, _ = await tools["write"].create(create_kwargs=ROW["extra_info"]["tools_kwargs"]["write"]["create_kwargs"])
        await tools["write"].execute(made, write(name)[1], agent_data=agent_data)
        return float(await tools["write"].calc_reward(made))

    assert asyncio.run(reward("good")) == 1.0
    with pytest.raises(Unavailable, match="the episode has no reward: unavailable"):
        asyncio.run(reward("lost"))


def test_a_call_that_a_model_got_wrong_is_told(module: Any, server: Served) -> None:
    tools, agent_data = tools_of(module, tools_config()), AgentData(ROW)
    said = asyncio.run(calls(tools, agent_data, ("write", {"path": "a.py"}), ("docs", {"words": "x"}), ("write", {
        "path": 3, "text": "x"}), write("good"), ("submit", {})))  # fmt: skip
    assert all(text.startswith("Error executing tool ") for text in said[:3])
    assert said[-1] == "Accepted: the program is right."


def test_what_is_set_up_wrong_is_a_sentence(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STITCHCUDA_REWARD_URL", raising=False)
    with pytest.raises(BadInput, match="STITCHCUDA_REWARD_URL is not set"):
        tools_of(module, tools_config())
    submit = tools_of(module, tools_config("http://127.0.0.1:1"))["submit"]
    with pytest.raises(BadInput, match=r"create_kwargs of submit are no terms of an episode \(task: Field required\)"):
        asyncio.run(submit.create(create_kwargs={}))
    made, _ = asyncio.run(submit.create(create_kwargs={"task": "relu"}))
    with pytest.raises(Unavailable, match="this verl gives tools no agent_data"):
        asyncio.run(submit.execute(made, {}))


@pytest.mark.more
def test_the_schemas_are_those_that_trl_shows_a_model() -> None:
    schema = pytest.importorskip("transformers.utils", reason="transformers is not installed").get_json_schema
    for made in tool_schemas():
        trl = schema(getattr(ProgramEpisode({}, RewardClient("")), made["function"]["name"]))["function"]
        trl["parameters"].setdefault("required", [])
        assert made["function"] == {name: value for name, value in trl.items() if name != "return"}


@pytest.mark.more
def test_a_scripted_policy_in_both_forms_against_the_real_service(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writes a wrong program, has it checked, repairs it, has it checked, submits; the verifier is on the simulator."""
    tasks = make_tasks(tmp_path / "tasks")
    known = read_tasks(tasks)
    server = Server(tmp_path, tasks, "sim", free_port())
    server.start()
    monkeypatch.setenv("STITCHCUDA_REWARD_TOKEN", TOKEN)
    try:
        url = f"http://127.0.0.1:{server.port}"
        monkeypatch.setenv("STITCHCUDA_REWARD_URL", url)
        tools, rows = tools_of(module, tools_config(url)), {row["extra_info"]["task"]: row for row in task_rows(known)}
        several = {policy: AgentData(rows[TASK[policy]]) for policy in POLICIES}

        async def at_once() -> list[list[str]]:
            return await asyncio.gather(*(calls(tools, several[policy], *POLICIES[policy]) for policy in POLICIES))

        said = dict(zip(POLICIES, asyncio.run(at_once()), strict=True))
        assert said["repair"][3].startswith("Not accepted (wrong).")
        assert said["repair"][5] == said["repair"][6] == "Accepted: the program is right."
        for policy, reward in EXPECTED.items():
            if reward is None:
                with pytest.raises(Unavailable, match=r"no reward \(task\)"):
                    score(rows[TASK[policy]], several[policy])
            else:
                assert score(rows[TASK[policy]], several[policy])["score"] == reward

        episode = ProgramEpisode(known, RewardClient(url, TOKEN), target="sim")  # as TRL's trainer calls it
        episode.reset(task="gate", prompt=[], policy="a column of the data set")
        assert [getattr(episode, name)(**arguments) for name, arguments in POLICIES["repair"]] == said["repair"]
        assert episode.get_reward() == EXPECTED["repair"]
    finally:
        server.stop()
