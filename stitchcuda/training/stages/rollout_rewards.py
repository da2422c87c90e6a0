"""Judges the answers of one step of GRPO or PPO: the one reward function that TRL calls.

Each answer's program (of skill 2 perhaps edits of the one that was shown) goes to the reward service; of an accepted one the
rubric's judge is asked, if there is one, and the reward is computed from both by `training/rewards.py`. What was not judged for
no fault of the program is None, which TRL leaves out of its group. A step without any reward raises `Unavailable` before the
weights change. What each answer was worth, and why, is a line of rollouts.jsonl; programs that were refused as attacks are kept
in attacks.jsonl. It trains nothing.
Where to look next: `training/stages/grpo.py`, `training/stages/ppo.py` (the trainers), `training/stages/episode_rewards.py`
(episodes), `training/reward_service/trainers.py`, `training/rubric.py`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pydantic import Field

from stitchcuda.engineers.chat import Chat
from stitchcuda.errors import Unavailable
from stitchcuda.state import Record
from stitchcuda.training.completion_program import Program, completion_text
from stitchcuda.training.reward_service.jobs import place
from stitchcuda.training.reward_service.records import JobAnswer
from stitchcuda.training.reward_service.trainers import AsksRewards, judge_completion
from stitchcuda.training.rewards import Judged, reward
from stitchcuda.training.rubric import judge_program, vetoes
from stitchcuda.training.stages.config import AnswerStage, RolloutStage
from stitchcuda.training.stages.stage_rows import PromptRow
from stitchcuda.training.stages.stage_run import ATTACKS, ROLLOUTS, StageRun

AT_ONCE = 64                              # requests; the service limits the work
_EXAMPLES = 5                              # attacks of a step that are kept
_REASONS, _REASON = 3, 300                 # that are kept of an answer, and characters of each
_PLAIN = "accepted/1"                      # asked of the service where the reward is computed here


class JudgedRollout(Record):
    """One answer, and what it is worth."""

    row: str
    skill: int
    program: str = ""                      # SHA-256 of what was judged; "" where edits did not apply
    state: str                             # of the service's job
    kind: str                              # "ok", or why not
    reward: float | None
    no_score: str = ""
    reasons: tuple[str, ...] = ()          # of the verifier, shortened
    parts: dict[str, float | str] = Field(default_factory=dict)
    speedup: float | None = None
    attack: bool = False                   # the verifier's facts alone make it one
    rubric: float | None = None            # as a share from 0 to 1
    vetoed: bool = False


class StepRewards:
    """What both reward functions do with a step's answers. `update`: returns how many updates of the weights were made."""

    __name__ = "stitchcuda"

    def __init__(
        self, stage: RolloutStage, rows: Sequence[PromptRow], folder: StageRun, update: Callable[[], int]
    ) -> None:  # fmt: skip
        self.rollouts, self.folder, self.update = stage.rollouts, folder, update
        self.rows = {row.id: row for row in rows}

    def finish(self, judged: Sequence[JudgedRollout], texts: Sequence[str], columns: Mapping[str, Any]) -> None:
        """Keeps a step's answers and hands TRL their figures. Raises `Unavailable` if none has a reward."""
        self._keep(judged, texts)
        if all(rollout.reward is None for rollout in judged):
            why = judged[0].no_score or judged[0].kind
            raise Unavailable(f"none of the {len(judged)} answers of a step has a reward ({why}): nothing is trained on them")
        for name, value in step_metrics(judged, self.rollouts).items():
            columns["log_metric"](name, value)
        for name in ("state", "kind", "speedup", "rubric", "attack"):
            columns["log_extra"](name, [getattr(rollout, name) for rollout in judged])

    def _keep(self, judged: Sequence[JudgedRollout], texts: Sequence[str]) -> None:
        update = self.update() + 1         # the first one that these answers decide
        self.folder.append(ROLLOUTS, *({"update": update, **rollout.model_dump()} for rollout in judged))
        attacks = [pair for pair in zip(judged, texts, strict=True) if pair[0].attack or pair[0].vetoed]
        self.folder.append(ATTACKS, *(
            {"update": update, **rollout.model_dump(), "text": text[:20_000]} for rollout, text in attacks[:_EXAMPLES]
        ))  # fmt: skip


class RolloutRewards(StepRewards):
    """Callable as TRL's reward function, for answers of one turn."""

    def __init__(
        self, stage: AnswerStage, rows: Sequence[PromptRow], client: AsksRewards, chat: Chat | None, folder: StageRun,
        update: Callable[[], int],
    ) -> None:  # fmt: skip
        super().__init__(stage, rows, folder, update)
        self.reward, self.client, self.chat = stage.reward, client, chat

    async def __call__(self, completions: Sequence[Any], row: Sequence[str], **columns: Any) -> list[float | None]:
        loop, texts = asyncio.get_running_loop(), [completion_text(completion) for completion in completions]
        with ThreadPoolExecutor(min(len(texts), AT_ONCE)) as threads:
            judged = await asyncio.gather(*(
                loop.run_in_executor(threads, self._judge, self.rows[name], text)
                for name, text in zip(row, texts, strict=True)
            ))  # fmt: skip
        self.finish(judged, texts, columns)
        return [rollout.reward for rollout in judged]

    def _judge(self, row: PromptRow, text: str) -> JudgedRollout:
        schema = self.reward if self.chat is None else _PLAIN
        program, given_answer = judge_completion(self.client, row.task, text, schema, row.program)
        answer = complete_answer(given_answer, row.task, schema)
        found, verdict = judged_rollout(row, answer, program), answer.verdict
        if self.chat is None or answer.reward is None or verdict is None:
            return found
        rubric = None
        if verdict.accepted and program is not None:
            asked = "\n\n".join(turn.content for turn in row.messages) if row.skill == 2 else ""
            with tempfile.TemporaryDirectory() as folder:
                placed = place(program, Path(folder) / "program")
                rubric = judge_program(self.chat, placed, row.reference, verdict, skill=row.skill, evidence=asked)
        given = reward(self.reward, Judged(verdict=verdict, rubric=rubric, skill=row.skill))
        return found.model_copy(update={
            "reward": given.value, "no_score": given.no_score, "parts": given.parts,
            "rubric": rubric.scores.share if rubric is not None and rubric.scores is not None else None,
            "vetoed": rubric is not None and rubric.major_hacking,
        })  # fmt: skip


def judged_rollout(row: PromptRow, answer: JobAnswer, program: Program | None) -> JudgedRollout:
    """What the service said of an answer, without a rubric. `program`: what was judged."""
    verdict = answer.verdict
    return JudgedRollout(
        row=row.id, skill=row.skill, program=program_digest(program),
        state=answer.state, kind=answer.kind or answer.state, reward=answer.reward,
        no_score=answer.no_score or ("" if answer.reward is not None else "; ".join(answer.reasons)[:_REASON]),
        reasons=tuple(reason[:_REASON] for reason in answer.reasons[:_REASONS]),
        parts=answer.reward_parts, speedup=answer.speedup, attack=verdict is not None and bool(vetoes(verdict)),
    )  # fmt: skip


def step_metrics(judged: Sequence[JudgedRollout], rollouts: int) -> dict[str, float]:
    """Figures of one step.

    answers/KIND are shares of all answers and add up to 1; reward_part/KIND are what answers of a kind contribute to the mean
    reward of those that have one, and add up to it.
    """
    scored = [rollout for rollout in judged if rollout.reward is not None]
    found = {f"answers/{kind}": sum(rollout.kind == kind for rollout in judged) / len(judged) for kind in _kinds(judged)}
    for kind in _kinds(scored):
        found[f"reward_part/{kind}"] = sum(rollout.reward or 0.0 for rollout in scored if rollout.kind == kind) / len(scored)
    for skill in sorted({rollout.skill for rollout in scored}):
        found[f"reward/skill{skill}"] = statistics.fmean(rollout.reward or 0.0 for rollout in scored if rollout.skill == skill)
    groups = [judged[at : at + rollouts] for at in range(0, len(judged), rollouts)] if rollouts > 1 else []
    speedups = [rollout.speedup for rollout in judged if rollout.speedup is not None]
    rubrics = [rollout.rubric for rollout in judged if rollout.rubric is not None]
    return found | {
        "share/judged": len(scored) / len(judged),
        "share/attacks": sum(rollout.attack or rollout.vetoed for rollout in judged) / len(judged),
        **({"share/groups_without_signal": sum(map(_without_signal, groups)) / len(groups)} if groups else {}),
        **({"speedup": statistics.fmean(speedups)} if speedups else {}),
        **({"rubric": statistics.fmean(rubrics)} if rubrics else {}),
    }


def program_digest(program: Program | None) -> str:
    """SHA-256 of what was judged; "" for None."""
    return "" if program is None else hashlib.sha256(json.dumps(program, sort_keys=True).encode()).hexdigest()


def _kinds(judged: Sequence[JudgedRollout]) -> list[str]:
    return sorted({rollout.kind for rollout in judged})


def _without_signal(group: Sequence[JudgedRollout]) -> bool:
    """Whether all rewards of a group are the same, so that no answer is favoured."""
    return len({rollout.reward for rollout in group if rollout.reward is not None}) < 2


def complete_answer(answer: Mapping[str, Any], task: str, schema: str) -> JobAnswer:
    """An answer of the client, which has no id where the service was not reached."""
    return JobAnswer.model_validate({"id": "", "task": task[:80], "reward_schema": schema, **answer})
