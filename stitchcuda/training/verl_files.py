"""Writes what verl needs for rollouts with tools: rows of tasks, and the tools' YAML. Does not import verl.

    write_verl_files(Path("verl-episodes"), Path("examples"), target="sim")

    OUT/rows.jsonl    a row for each task: the prompt, and in `extra_info` the terms of its episode, which the tools and the
                      reward function read; there is no second place for them
    OUT/tools.yaml    for `multi_turn.tool_config_path`: the tools with their names, descriptions and arguments, as the
                      docstrings and signatures of `ProgramEpisode` have them; JSON, which is YAML

Where to look next: `training/verl_tools.py` (the class that the YAML names), `training/openenv/episode.py` (the tools),
`training/verl_config.py` (a whole run of verl over these files).
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import BaseModel, ConfigDict, Field

from stitchcuda.errors import BadInput
from stitchcuda.state import Target
from stitchcuda.store import write_atomically
from stitchcuda.training.openenv.episode import CHECKS, STEPS, ProgramEpisode, task_prompt
from stitchcuda.training.reward_service.tasks import read_tasks
from stitchcuda.training.reward_service.trainers import AsksRewards

TOOL_CLASS = "stitchcuda.training.verl_tools.ProgramTool"


class EpisodeTerms(BaseModel):
    """What one episode is about. A row holds it for each tool, because verl keeps `create_kwargs` by a tool's name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task: str                              # a name that the reward service knows
    reward_schema: str = "accepted/1"
    target: Target = "sim"
    steps: int = Field(STEPS, ge=1)
    checks: int = Field(CHECKS, ge=0)

    def episode(self, client: AsksRewards) -> ProgramEpisode:
        """An episode that has begun. Its prompt is in the row, so no reference is needed."""
        begun = ProgramEpisode(
            {self.task: ""}, client, schema=self.reward_schema, target=self.target, steps=self.steps, checks=self.checks
        )
        begun.reset(self.task)
        return begun


def tool_schemas() -> list[dict[str, Any]]:
    """OpenAI's form of the tools: the public methods of `ProgramEpisode` but `reset` and `get_reward`, in its order."""
    schemas = [
        convert_to_openai_tool(member)
        for name, member in vars(ProgramEpisode).items()
        if inspect.isfunction(member) and not name.startswith("_") and name not in ("reset", "get_reward")
    ]
    for schema in schemas:
        schema["function"]["parameters"].setdefault("required", [])
    return schemas


def tools_config(url: str | None = None) -> dict[str, Any]:
    """verl's `tools`. Without `url` the tools read STITCHCUDA_REWARD_URL."""
    config = {"type": "native"} | ({} if url is None else {"url": url})
    return {"tools": [{"class_name": TOOL_CLASS, "config": config, "tool_schema": schema} for schema in tool_schemas()]}


def task_rows(
    tasks: Mapping[str, str], *, schema: str = "accepted/1", target: Target = "sim", steps: int = STEPS, checks: int = CHECKS
) -> list[dict[str, Any]]:
    """A row of verl's data set for each task (names with references), for the agent loop `tool_agent`."""
    rows = []
    names = [made["function"]["name"] for made in tool_schemas()]
    for index, (task, reference) in enumerate(sorted(tasks.items())):
        terms = EpisodeTerms(task=task, reward_schema=schema, target=target, steps=steps, checks=checks).model_dump()
        rows.append({
            "data_source": "stitchcuda/episode", "agent_name": "tool_agent", "ability": "CUDA",
            "prompt": [{"role": "user", "content": task_prompt(reference, target, steps, checks)}],
            "reward_model": {"style": "rule", "ground_truth": task},
            "extra_info": {
                "index": index, "task": task, "reward_schema": schema, "need_tools_kwargs": True,
                "tools_kwargs": {name: {"create_kwargs": terms} for name in names},
            },
        })  # fmt: skip
    return rows


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Writes rows as JSON lines, which verl reads as it does parquet."""
    write_atomically(path, "".join(json.dumps(row) + "\n" for row in rows).encode())


def write_tools(path: Path, url: str | None) -> None:
    write_atomically(path, (json.dumps(tools_config(url), indent=2, ensure_ascii=False) + "\n").encode())


def write_verl_files(
    out: Path, tasks: Path, *, url: str | None = None, schema: str = "accepted/1", target: Target = "sim", steps: int = STEPS,
    checks: int = CHECKS,
) -> None:  # fmt: skip
    """Writes both files. `tasks`: what the service has as `--tasks`. Raises `BadInput` for tasks that cannot be read."""
    rows = task_rows(read_tasks(tasks), schema=schema, target=target, steps=steps, checks=checks)
    if out.exists() and not out.is_dir():
        raise BadInput(f"{out} is a file: give a folder")
    out.mkdir(parents=True, exist_ok=True)
    write_rows(out / "rows.jsonl", rows)
    write_tools(out / "tools.yaml", url)

