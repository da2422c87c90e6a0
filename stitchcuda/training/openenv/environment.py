"""Episodes as OpenEnv has them: action, observation, state, and the environment that an OpenEnv server makes for each session.

Imports OpenEnv, which is in the extra `openenv`. The reward is of the last step alone; where nothing was judged it is None, and
`judged` is False in the observation and in its metadata.
Where to look next: `training/openenv/episode.py` (what the tools do), `training/openenv/server.py` (who serves it).
"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable
from typing import Any, Literal

from fastapi import FastAPI
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app
from pydantic import Field

from stitchcuda.training.openenv.episode import ProgramEpisode

SESSIONS = 64                              # at once; OpenEnv refuses more


class ProgramAction(Action):
    """One call of a tool: `write` needs path and text, `edit` path, old and new, `docs` a query; the others nothing."""

    tool: Literal["write", "edit", "compile", "check", "docs", "submit"]
    path: str = Field("", description="Of write and edit: the file, such as model_new.py or kernels/norm.cu.")
    text: str = Field("", description="Of write: the whole text of the file.")
    old: str = Field("", description="Of edit: the passage, which has to stand in the file exactly once.")
    new: str = Field("", description="Of edit: what stands there then.")
    query: str = Field("", description="Of docs: a name, skeleton:NAME, or words.")


class ProgramObservation(Observation):
    """What the agent is told."""

    text: str
    steps_left: int
    checks_left: int
    judged: bool | None = None             # None before the end; False: there is no reward, and the episode has to be masked


class ProgramState(State):
    """What is left of an episode, and its result, for the trainer."""

    task: str
    files: list[str]
    judged: bool | None
    outcome: dict[str, Any]                # state, kind and speedup of the service's answer; empty before the end


class ProgramEnvironment(Environment):
    """One session's episodes, one after the other."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, episode: ProgramEpisode) -> None:
        super().__init__()
        self._episode, self._id = episode, ""

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, task: str | None = None, **others: object
    ) -> ProgramObservation:
        self._id = episode_id or uuid.uuid4().hex
        return self._observed(self._episode.reset(task, seed))

    def step(self, action: ProgramAction, timeout_s: float | None = None, **others: object) -> ProgramObservation:
        tool = getattr(self._episode, action.tool)
        return self._observed(tool(**{name: getattr(action, name) for name in inspect.signature(tool).parameters}))

    @property
    def state(self) -> ProgramState:
        now = self._episode
        return ProgramState(
            episode_id=self._id, step_count=now.steps - now.steps_left, task=now.task, files=sorted(now.files),
            judged=now.judged, outcome=self._outcome(),
        )  # fmt: skip

    def _observed(self, text: str) -> ProgramObservation:
        now = self._episode
        return ProgramObservation(
            text=text, steps_left=now.steps_left, checks_left=now.checks_left, judged=now.judged, done=now.done,
            reward=now.reward, metadata={"judged": now.judged, **self._outcome()} if now.done else {},
        )  # fmt: skip

    def _outcome(self) -> dict[str, Any]:
        return {name: self._episode.answer.get(name) for name in ("state", "kind", "speedup") if self._episode.answer}


def fastapi_app(new_episode: Callable[[], ProgramEpisode], sessions: int = SESSIONS) -> FastAPI:
    """Returns OpenEnv's server, with a new episode for each of at most `sessions` sessions at once."""
    return create_fastapi_app(
        lambda: ProgramEnvironment(new_episode()), ProgramAction, ProgramObservation, max_concurrent_envs=sessions
    )
