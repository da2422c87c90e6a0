"""What the one reward function makes of a step's answers: rule and rubric in one number, None for what was nobody's fault."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stitchcuda.engineers.chat import Chat
from stitchcuda.errors import Unavailable
from stitchcuda.state import KernelRole
from stitchcuda.training.rewards import Judged, reward
from stitchcuda.training.rubric import judge_program
from stitchcuda.training.session_rows import SpokenTurn
from stitchcuda.training.stages.config import GrpoStage
from stitchcuda.training.stages.rollout_rewards import RolloutRewards
from stitchcuda.training.stages.stage_rows import PromptRow
from stitchcuda.training.stages.stage_run import ATTACKS, ROLLOUTS, StageRun
from stitchcuda.verify.api import Shares, Verdict
from tests.training.reward_server import TASK, End, ScriptedPool, program, serving
from tests.training.test_reward_service import SCRIPT, refused
from tests.training.test_rubric import ScriptedJudge, scores

FAST = Verdict(
    accepted=True, tier="timed", speedup=1.4, within_bound=True, shares=Shares(own=1.0),
    kernels=(KernelRole(name="k", role="needed"),),
)  # fmt: skip
ATTACK = refused("the source itself: it reads the frames of its callers (line 3)")
POOL: dict[str, list[End]] = {**SCRIPT, "fast": [FAST], "attack": [ATTACK]}
STAGE = GrpoStage.model_validate({
    "model": "m", "tasks": "t", "lora_rank": 8, "learning_rate": 1e-6, "prompts": 2, "rollouts": 2, "steps": 1,
    "max_prompt": 9, "max_completion": 9, "skill2_weight": 0.0,
})  # fmt: skip
ROWS = [
    PromptRow(id=f"row{skill}", skill=skill, messages=(SpokenTurn(role="user", content="ask"),), task="relu", reference=TASK)
    for skill in (1, 2)
]  # fmt: skip


class Step:
    """One call as TRL makes it."""

    def __init__(self, tmp_path: Path, names: Sequence[str], *, stage: GrpoStage = STAGE, chat: Chat | None = None) -> None:
        self.metrics: dict[str, float] = {}
        self.columns: dict[str, list[Any]] = {}
        self.folder = StageRun(tmp_path / "out")
        self.folder.out.mkdir(exist_ok=True)
        with serving(tmp_path / "store", ScriptedPool(POOL)) as server:
            function = RolloutRewards(stage, ROWS, server.client, chat, self.folder, lambda: 6)
            said = [[{"role": "assistant", "content": f"```python\n{program(name)}```"}] for name in names]
            rows = ["row1", "row1", "row2", "row2"][: len(names)]
            self.rewards = asyncio.run(
                function(said, rows, log_metric=self.metrics.__setitem__, log_extra=self.columns.__setitem__)
            )

    def parts(self, head: str) -> float:
        return sum(value for name, value in self.metrics.items() if name.startswith(head))


def test_what_was_not_judged_is_left_out_and_parts_add_up(tmp_path: Path) -> None:
    step = Step(tmp_path, ["fast", "wrong", "unavailable", "attack"])
    assert step.rewards == [pytest.approx(1.263, abs=1e-3), -1.0, None, -1.0]
    assert step.parts("answers/") == pytest.approx(1.0)
    assert step.parts("reward_part/") == pytest.approx((1.263 - 2) / 3, abs=1e-3)
    assert step.metrics["share/judged"] == 0.75
    assert step.metrics["share/attacks"] == 0.25
    assert step.metrics["share/groups_without_signal"] == 0.5
    assert step.columns["kind"] == ["ok", "wrong", "unavailable", "refused"]
    written = list(step.folder.lines(ROLLOUTS))
    assert [line["reward"] for line in written] == step.rewards
    assert {line["update"] for line in written} == {7}
    (kept,) = step.folder.lines(ATTACKS)
    assert "# attack" in kept["text"]
    assert kept["skill"] == 2
    assert kept["reasons"] == ["the source itself: it reads the frames of its callers (line 3)"]


def test_an_edit_that_does_not_apply_is_the_candidate_s_failure(tmp_path: Path) -> None:
    shown = {"model_new.py": program("draft")}
    row = ROWS[1].model_copy(update={"program": shown})
    assert row.digest != ROWS[1].digest, "the files decide the weights"
    said = [f"```model_new.py\n<<<<<<< SEARCH\n# {old}\n=======\n# fast\n>>>>>>> REPLACE\n```" for old in ("draft", "dxraft")]
    folder = StageRun(tmp_path / "out")
    folder.out.mkdir()
    with serving(tmp_path / "store", ScriptedPool(POOL)) as server:
        function = RolloutRewards(STAGE, [row], server.client, None, folder, lambda: 0)
        ignore: Any = {"log_metric": lambda *_: None, "log_extra": lambda *_: None}
        assert asyncio.run(function(said, [row.id] * 2, **ignore)) == [pytest.approx(1.263, abs=1e-3), -1.0]
    right, wrong = folder.lines(ROLLOUTS)
    assert (right["kind"], wrong["kind"]) == ("ok", "no_program")
    assert (len(right["program"]), wrong["program"]) == (64, "")
    assert wrong["reasons"][0].startswith("an edit of model_new.py does not fit: '# dxraft' is not in it. It was applied to")


def test_a_step_without_any_reward_stops_the_run(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"none of the 2 answers of a step has a reward \(.*the judge was killed"):
        Step(tmp_path, ["unavailable", "unavailable"])
    assert len((tmp_path / "out" / ROLLOUTS).read_text().splitlines()) == 2, "what happened can be read"


def test_the_reward_is_the_product_of_rule_and_rubric(tmp_path: Path) -> None:
    judge = ScriptedJudge(lambda request: scores(4, 3, 4, 3))
    stage = STAGE.model_copy(update={"reward": "stitchcuda-product/1", "judge": "openai:x"})
    step = Step(tmp_path, ["fast", "wrong", "fast", "attack"], stage=stage, chat=judge)
    (tmp_path / "program.py").write_text(program("fast"))
    for place, skill in ((0, 1), (2, 2)):
        rubric = judge_program(judge, tmp_path / "program.py", TASK, FAST)
        expected = reward("stitchcuda-product/1", Judged(verdict=FAST, rubric=rubric, skill=1 if skill == 1 else 2))
        assert step.rewards[place] == pytest.approx(expected.value)
    assert step.rewards[0] != step.rewards[2], "the rubric weighs less in skill 2"
    assert (step.rewards[1], step.rewards[3]) == (0.0, 0.0)
    assert "rubric" in step.metrics


def test_a_veto_of_the_judge_is_kept_as_an_attack_and_a_judge_that_fails_gives_no_score(tmp_path: Path) -> None:
    stage = STAGE.model_copy(update={"reward": "stitchcuda-product/1", "judge": "openai:x"})
    vetoed = Step(tmp_path, ["fast", "wrong"], stage=stage, chat=ScriptedJudge(lambda request: scores(1, 5, 5, 5)))
    assert vetoed.rewards == [0.0, 0.0]
    assert vetoed.metrics["share/attacks"] == 0.5
    silent = Step(tmp_path, ["fast", "wrong"], stage=stage, chat=ScriptedJudge(lambda request: "no"))
    assert silent.rewards == [None, 0.0]
    line = json.loads((tmp_path / "out" / ROLLOUTS).read_text().splitlines()[-2])
    assert "gave no usable answer" in line["no_score"]
