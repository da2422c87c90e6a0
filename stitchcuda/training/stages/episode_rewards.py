"""Judges the episodes of one step of PPO: submits what agents did not submit, all at once, and keeps what each was worth.

A step without any reward raises `Unavailable` before the weights change. It trains nothing.
Where to look next: `training/openenv/episode.py`, `training/stages/rollout_rewards.py` (what both reward functions share).
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from stitchcuda.training.openenv.episode import ProgramEpisode
from stitchcuda.training.stages.rollout_rewards import AT_ONCE, StepRewards, complete_answer, judged_rollout


class TrainedEpisode(ProgramEpisode):
    """An episode whose reward TRL does not ask for itself, one after the other: `EpisodeRewards` does."""

    get_reward = None  # type: ignore[assignment]  # TRL looks for a method of this name


class EpisodeRewards(StepRewards):
    """Callable as TRL's reward function."""

    def __call__(
        self, completions: Sequence[Any], row: Sequence[str], environments: Sequence[TrainedEpisode], **columns: Any
    ) -> list[float | None]:
        with ThreadPoolExecutor(min(len(environments), AT_ONCE)) as threads:
            rewards = list(threads.map(ProgramEpisode.get_reward, environments))
        judged = [
            judged_rollout(self.rows[name], complete_answer(episode.answer, episode.task, episode.schema), episode.files)
            for name, episode in zip(row, environments, strict=True)
        ]
        texts = ["\n\n".join(f"{path}\n{text}" for path, text in sorted(episode.files.items())) for episode in environments]
        self.finish(judged, texts, columns)
        columns["log_metric"]("episode/calls", sum(episode.steps - episode.steps_left for episode in environments) / len(row))
        return rewards
