"""Makes the reward service's client into what trainers call: TRL's reward function, and verl's `compute_score`.

Neither trainer is imported. What is no program's fault is None for TRL, which leaves such a completion out if all its reward
functions say None; verl has no such value, so there its answer says `judged` 0.0, and the row has to be masked.
Where to look next: `training/reward_service/client.py` (who asks), `docs/learning.md` (both in use).
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from stitchcuda.training.reward_service.client import RewardClient, RewardRefused

_AT_ONCE = 256                             # requests of one call; the server limits the work
_BLOCK = re.compile(r"^```[ \t]*(?:python|py|python3)?[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL | re.IGNORECASE)
TrlReward = Callable[..., Coroutine[Any, Any, list[float | None]]]


def program_in(completion: str | Sequence[Mapping[str, Any]]) -> str:
    """The program in a completion, which is a text or a list of messages: its last block of Python, or all of it."""
    text = completion if isinstance(completion, str) else str((completion[-1].get("content") if completion else "") or "")
    blocks: list[str] = _BLOCK.findall(text)
    return blocks[-1] if blocks else text


def trl_reward(
    url: str, token: str | None = None, *, schema: str = "accepted/1", task_column: str = "task", patience_s: float = 7200.0
) -> TrlReward:
    """Returns an async reward function for TRL. The data set's column `task_column` has each row's task (a name, or the text of
    a reference). Beside the rewards it logs states, kinds and speed-ups where TRL offers `log_extra`."""
    client = RewardClient(url, token, patience_s=patience_s)

    async def stitchcuda_reward(completions: Sequence[Any], **columns: Any) -> list[float | None]:
        loop, tasks = asyncio.get_running_loop(), columns[task_column]
        with ThreadPoolExecutor(max(1, min(len(completions), _AT_ONCE))) as threads:
            answers = await asyncio.gather(*(
                loop.run_in_executor(threads, ask_for_reward, client, task, program_in(completion), schema)
                for task, completion in zip(tasks, completions, strict=True)
            ))  # fmt: skip
        if log_extra := columns.get("log_extra"):
            for name in ("state", "kind", "speedup"):
                log_extra(f"stitchcuda_{name}", [answer.get(name) for answer in answers])
        return [answer["reward"] for answer in answers]

    return stitchcuda_reward


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: Mapping[str, Any] | None = None, *,
    url: str | None = None, token: str | None = None, schema: str = "accepted/1", patience_s: float = 7200.0,
) -> dict[str, float | str]:  # fmt: skip
    """verl's reward function, for `reward.custom_reward_function`; the rest by its `reward_kwargs`.

    The task is `extra_info["task"]` if there is one, else `ground_truth`. `url`, `token`: by default the environment's
    STITCHCUDA_REWARD_URL and STITCHCUDA_REWARD_TOKEN. The same keys come back each time; a score of 0.0 with `judged` 0.0 is
    none.
    """
    client = RewardClient(
        url or os.environ["STITCHCUDA_REWARD_URL"], token or os.environ.get("STITCHCUDA_REWARD_TOKEN"), patience_s=patience_s
    )
    answer = ask_for_reward(client, (extra_info or {}).get("task") or ground_truth, program_in(solution_str), schema)
    reward = answer["reward"]
    return {
        "score": 0.0 if reward is None else float(reward), "judged": float(reward is not None),
        "state": str(answer["state"]), "kind": str(answer["kind"]), "speedup": float(answer.get("speedup") or 0.0),
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
