"""An episode's tools as verl's agents call them: one `BaseTool` for each tool, one episode for each trajectory.

Imports verl. Written for 0.9.1: its `ToolAgentLoop` calls `create`, `execute` and `release` around each single call and never
`calc_reward`, so an episode belongs to the `agent_data` that `execute` is given, and ends with it. After each call the files,
and at the end the service's answer, are in `agent_data.extra_fields`, where `episode_score` finds them: that is the reward.
Nothing that an agent wrote is run here, and no agent is shown a reward.
Where to look next: `training/verl_files.py` (rows and the tools' YAML), `training/openenv/episode.py` (what the tools do),
`training/reward_service/trainers.py` (`episode_score`).
"""

from __future__ import annotations

import asyncio
import functools
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from pydantic import ValidationError
from verl.tools.base_tool import BaseTool
from verl.tools.schemas import OpenAIFunctionToolSchema, ToolResponse

from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.training.openenv.episode import ProgramEpisode
from stitchcuda.training.reward_service.trainers import EPISODE, client_for
from stitchcuda.training.verl_files import EpisodeTerms

_AT_ONCE = 64                              # calls of one process; the others wait
_THREADS = ThreadPoolExecutor(_AT_ONCE, "stitchcuda-episode")
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class _Trajectory:
    """An episode, and the lock that lets calls of one turn happen one after the other, as they were written."""

    episode: ProgramEpisode
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def record(self) -> dict[str, Any]:
        """What `episode_score` needs: the files until the end, then the service's answer."""
        answer = self.episode.answer
        kept = ("state", "kind", "reward", "speedup", "reasons", "no_score")
        return {"files": {} if answer else self.episode.files, "answer": {name: answer.get(name) for name in kept if answer}}


_TRAJECTORIES: WeakKeyDictionary[Any, _Trajectory] = WeakKeyDictionary()  # by verl's `agent_data`


class ProgramTool(BaseTool):
    """One tool; its name in the schema says which. `config`: `url` of the reward service, by default the environment's
    STITCHCUDA_REWARD_URL, and `patience_s`. The token is STITCHCUDA_REWARD_TOKEN and stands in no file."""

    def __init__(self, config: dict[str, Any], tool_schema: OpenAIFunctionToolSchema) -> None:
        super().__init__(config, tool_schema)
        self._client = client_for(config.get("url"), None, config.get("patience_s", 7200.0))
        self._terms: dict[str, EpisodeTerms] = {}
        self._begun: dict[str, _Trajectory] = {}

    async def create(
        self, instance_id: str | None = None, create_kwargs: Mapping[str, Any] | None = None, **others: object
    ) -> tuple[str, ToolResponse]:
        """Takes a row's `create_kwargs`: the fields of `EpisodeTerms`. Raises `BadInput` where they are not."""
        try:
            terms = EpisodeTerms.model_validate(create_kwargs or {})
        except ValidationError as error:
            why = "; ".join(f"{'.'.join(map(str, part['loc']))}: {part['msg']}" for part in error.errors())
            raise BadInput(f"the row's create_kwargs of {self.name} are no terms of an episode ({why})") from error
        instance_id = instance_id or uuid.uuid4().hex
        self._terms[instance_id] = terms
        return instance_id, ToolResponse()

    async def execute(
        self, instance_id: str, parameters: dict[str, Any], agent_data: Any = None, **others: object
    ) -> tuple[ToolResponse, float | None, dict[str, Any]]:
        """Calls the tool. The reward is that of the episode for the call that ends it, None if it was not judged; else 0.0."""
        if agent_data is None:
            raise Unavailable("this verl gives tools no agent_data: 0.9 or newer does")
        trajectory = _TRAJECTORIES.get(agent_data)
        if trajectory is None:
            trajectory = _TRAJECTORIES[agent_data] = _Trajectory(self._terms[instance_id].episode(self._client))
        self._begun[instance_id] = trajectory
        episode = trajectory.episode
        async with trajectory.lock:
            if episode.done:
                return ToolResponse(text="The episode is over; the program counts as it was submitted."), 0.0, {}
            try:
                said = await _in_thread(functools.partial(getattr(episode, self.name), **parameters))
            finally:
                agent_data.extra_fields[EPISODE] = trajectory.record()
        if not episode.done:
            return ToolResponse(text=said), 0.0, {}
        metrics = {name: episode.answer.get(name) for name in ("state", "kind", "speedup")}
        return ToolResponse(text=said), episode.reward, metrics

    async def calc_reward(self, instance_id: str, **others: object) -> float:
        """Ends the episode of a call that was not released yet, and returns its reward. Raises `Unavailable` if it has none."""
        trajectory = self._begun[instance_id]
        async with trajectory.lock:
            reward = await _in_thread(trajectory.episode.get_reward)
        if reward is None:
            raise Unavailable(f"the episode has no reward: {trajectory.episode.answer['kind']}")
        return reward

    async def release(self, instance_id: str, **others: object) -> None:
        """Forgets a call. The episode stays as long as its trajectory."""
        self._terms.pop(instance_id, None)
        self._begun.pop(instance_id, None)


async def _in_thread(call: Callable[[], _Result]) -> _Result:
    """A verdict takes seconds to minutes, in which other trajectories of the same loop go on."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, call)
