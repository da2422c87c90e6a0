"""Makes the reward service's client into what trainers call: TRL's reward function, verl's `compute_score` and `episode_score`.

Neither trainer is imported. What is no program's fault is None for TRL, which leaves such a completion out if all its reward
functions say None. verl has no such value: `compute_score` says `judged` 0.0, and the row has to be masked; `episode_score`,
and `compute_score` with `must_judge`, raise, and verl's V1 trainer (0.9) leaves such a trajectory out of its group.
An answer whose edits do not apply to the program that its prompt showed is the candidate's failure, not one of the service.
Where to look next: `training/completion_program.py` (what is the program in an answer), `training/reward_service/client.py`
(who asks), `training/verl_tools.py` (rollouts with tools), `docs/learning.md` (all in use).
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from stitchcuda.engineers.reply import Malformed
from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.training.completion_program import Program, program_in, shown_files
from stitchcuda.training.reward_service.client import RewardClient, RewardRefused
from stitchcuda.training.reward_service.known_rewards import REWARDS
from stitchcuda.training.reward_service.records import JobAnswer
from stitchcuda.training.reward_service.verdicts import answer, no_program

_AT_ONCE = 256                             # requests of one call; the server limits the work
EPISODE = "stitchcuda_episode"             # in verl's extra_fields, and so in `extra_info`: a trajectory's files and answer
TrlReward = Callable[..., Coroutine[Any, Any, list[float | None]]]


def trl_reward(
    url: str, token: str | None = None, *, schema: str = "accepted/1", task_column: str = "task",
    program_column: str = "program", patience_s: float = 7200.0,
) -> TrlReward:  # fmt: skip
    """Returns an async reward function for TRL. The data set's column `task_column` has each row's task (a name, or the text of
    a reference), `program_column`, if there is one, the files of the program that its prompt shows (see `shown_files`). Beside
    the rewards it logs states, kinds and speed-ups where TRL offers `log_extra`."""
    client = RewardClient(url, token, patience_s=patience_s)

    async def stitchcuda_reward(completions: Sequence[Any], **columns: Any) -> list[float | None]:
        loop, tasks = asyncio.get_running_loop(), columns[task_column]
        shown = map(shown_files, columns.get(program_column) or [None] * len(tasks))
        with ThreadPoolExecutor(max(1, min(len(completions), _AT_ONCE))) as threads:
            answers = await asyncio.gather(*(
                loop.run_in_executor(threads, judge_completion, client, task, completion, schema, files)
                for task, completion, files in zip(tasks, completions, shown, strict=True)
            ))  # fmt: skip
        if log_extra := columns.get("log_extra"):
            for name in ("state", "kind", "speedup"):
                log_extra(f"stitchcuda_{name}", [given.get(name) for _, given in answers])
        return [given["reward"] for _, given in answers]

    return stitchcuda_reward


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Mapping[str, Any] | None = None, *,
    url: str | None = None, token: str | None = None, schema: str = "accepted/1", patience_s: float = 7200.0,
    must_judge: bool = False,
) -> dict[str, float | str]:  # fmt: skip
    """verl's reward function, for `reward.custom_reward_function`; the rest by its `reward_kwargs`.

    The task is `extra_info["task"]` if there is one, else `ground_truth`, else the text `extra_info["reference"]`, which the
    service takes from clients with a token. `extra_info["program"]`, if there is one, are the files that edits apply to, as
    JSON. `url`, `token`: by default the environment's STITCHCUDA_REWARD_URL and
    STITCHCUDA_REWARD_TOKEN. The same keys come back each time; a score of 0.0 with `judged` 0.0 is none: with `must_judge` it
    raises `Unavailable` instead.
    """
    info = extra_info or {}
    task = info.get("task") or ground_truth or info.get("reference") or ""
    shown = shown_files(info.get("program"))
    _, given = judge_completion(client_for(url, token, patience_s), task, solution_str, schema, shown)
    return _verl_answer(_judged(given) if must_judge else given)


def episode_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Mapping[str, Any] | None = None, *,
    url: str | None = None, token: str | None = None, patience_s: float = 7200.0,
) -> dict[str, float | str]:  # fmt: skip
    """verl's reward function for rollouts with tools, whose rows `task_rows` made; `extra_info` says what came of the episode.

    Submits files that the agent did not submit; an agent that called no tool submits none. What was said in `solution_str`
    counts for nothing. Returns the keys of `compute_score`. Raises `Unavailable` where the episode has no reward.
    """
    info = extra_info or {}
    held = info.get(EPISODE) or {"files": {}, "answer": {}}
    given = held["answer"] or ask_for_reward(
        client_for(url, token, patience_s), info.get("task") or ground_truth, held["files"], info["reward_schema"]
    )
    return _verl_answer(_judged(given))


def client_for(url: str | None, token: str | None, patience_s: float) -> RewardClient:
    """`url`, `token`: by default the environment's STITCHCUDA_REWARD_URL and STITCHCUDA_REWARD_TOKEN. Raises `BadInput`."""
    given = url or os.environ.get("STITCHCUDA_REWARD_URL")
    if not given:
        raise BadInput("STITCHCUDA_REWARD_URL is not set: it is the address of the reward service")
    return RewardClient(given, token or os.environ.get("STITCHCUDA_REWARD_TOKEN"), patience_s=patience_s)


def _judged(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The answer. Raises `Unavailable` if it has no reward."""
    if given["reward"] is None:
        why = "; ".join(filter(None, [*given["reasons"], given.get("no_score")]))
        raise Unavailable(f"no reward ({given['kind']}): {why}")
    return given


def _verl_answer(given: Mapping[str, Any]) -> dict[str, float | str]:
    reward = given["reward"]
    return {
        "score": 0.0 if reward is None else float(reward), "judged": float(reward is not None),
        "state": str(given["state"]), "kind": str(given["kind"]), "speedup": float(given.get("speedup") or 0.0),
    }  # fmt: skip


class AsksRewards(Protocol):
    """What is needed of a `RewardClient`."""

    def judge(self, task: str, program: str | Mapping[str, str], *, schema: str) -> dict[str, Any]: ...


def ask_for_reward(client: AsksRewards, task: str, program: str | Mapping[str, str], schema: str) -> dict[str, Any]:
    """The answer, or one without a reward where the service gives none: an exception would end the training."""
    try:
        return client.judge(task, program, schema=schema)
    except (RewardRefused, TimeoutError) as error:
        logging.getLogger(__name__).warning("no reward: %s", error)
        return {"state": "infra_error", "kind": "unavailable", "reward": None, "reasons": [str(error)]}


def judge_completion(
    client: AsksRewards, task: str, completion: str | Sequence[Mapping[str, Any]], schema: str,
    shown: Mapping[str, str] | None = None,
) -> tuple[Program | None, dict[str, Any]]:  # fmt: skip
    """The program in a completion, and the answer to it. `shown`: the files that its edits apply to. Where they do not apply
    there is no program, and the answer is the one to a text that is no program: of kind "no_program", with the reason."""
    try:
        program = program_in(completion, shown)
    except Malformed as why:
        known = JobAnswer(id="", state="queued", task=task[:80], reward_schema=schema)
        return None, answer(known, no_program(str(why)), REWARDS.get(schema)).model_dump()
    return program, ask_for_reward(client, task, program, schema)
