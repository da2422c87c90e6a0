"""Parts of PPO: which TRL it is for, what a critic is, what a step leaves out, and what is kept of importance ratios.

Each imports TRL and transformers, which takes seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from stitchcuda.errors import BadInput, Unavailable
from stitchcuda.training.stages.config import PpoStage
from stitchcuda.training.stages.stage_run import ROLLOUTS, TOKENS, StageRun
from tests.training.reward_server import ScriptedPool, program, serving
from tests.training.stages.test_rollout_rewards import POOL, ROWS
from tests.training.stages.tiny_model import tiny_model

pytestmark = pytest.mark.more
torch = pytest.importorskip("torch")
trainer = pytest.importorskip("stitchcuda.training.stages.ppo_trainer", exc_type=ImportError)
critics = pytest.importorskip("stitchcuda.training.stages.critic", exc_type=ImportError)


def test_another_trl_is_one_sentence() -> None:
    trainer.require_trl("1.16.3")
    for version in ("1.17.0", "1.1.16", "2.16"):
        with pytest.raises(Unavailable, match=rf"PPO needs TRL 1\.16, and {version} is installed: .*trl==1\.16"):
            trainer.require_trl(version)


def test_a_critic_begins_at_zero_on_the_policys_weights_and_is_read_again(tmp_path: Path) -> None:
    model = str(tiny_model(tmp_path / "model", ["answer"]))
    critic = critics.load_critic(model)
    ids, attention = torch.tensor([[1, 2, 3, 4], [0, 0, 5, 6]]), torch.tensor([[1, 1, 1, 1], [0, 0, 1, 1]])
    assert critics.values_of(critic, ids, attention, 2, 1).tolist() == [[0, 0], [0, 0]]
    with torch.no_grad():
        critic.score.weight.fill_(0.01)
    values = critics.values_of(critic, ids, attention, 2, 2)
    assert values.abs().min() > 0
    other = ids.clone()
    other[0, 3] = 99
    assert torch.equal(critics.values_of(critic, other, attention, 2, 2), values), "a value knows nothing of its own token"
    critic.save_pretrained(tmp_path / "critic")
    again = critics.load_critic(model, str(tmp_path / "critic"))
    assert torch.allclose(critics.values_of(again, ids, attention, 2, 1), values, atol=1e-6)


def test_what_is_no_critic_or_one_of_another_shape_is_refused(tmp_path: Path) -> None:
    model, wide = (str(tiny_model(tmp_path / name, ["answer"], hidden=size)) for name, size in (("model", 32), ("wide", 64)))
    critics.load_critic(wide).save_pretrained(tmp_path / "critic")
    for folder, words in ((model, "is no critic: give critic/"), (str(tmp_path / "none"), "cannot be loaded"),
                          (str(tmp_path / "critic"), "its hidden_size is 64, and the model's is 32")):  # fmt: skip
        with pytest.raises(BadInput, match=words):
            critics.require_critic(model, folder)


def test_importance_ratios_of_an_update_are_of_the_tokens_that_count() -> None:
    ratios = trainer._Ratios(0.8, 1.2)
    ratios.add(torch.tensor([[1.0, 1.5, 7.0]]).log(), torch.tensor([[1, 1, 0]]))
    ratios.add(torch.tensor([[0.5, 1.0]]).log(), torch.tensor([[1, 1]]))
    ratios.add(torch.zeros(1, 2), torch.zeros(1, 2))
    found = ratios.taken()
    assert (found["ratio/mean"], found["ratio/max"], found["ratio/clipped"]) == pytest.approx((1.0, 1.5, 0.5))
    assert found["kl_of_update"] == pytest.approx(sum(r - 1 - float(torch.tensor(r).log()) for r in (1, 1.5, 0.5, 1)) / 4)
    assert ratios.taken()["ratio/max"] == 0, "an update begins anew"


@contextmanager
def a_step(folder: Path, names: list[str]) -> Iterator[Any]:
    """A trainer of one step, whose model says these programs, with a service that judges as `POOL` says."""
    from stitchcuda.training.stages.ppo import _trainer
    from stitchcuda.training.stages.training import load_tokenizer

    said = [f"```python\n{program(name)}```" for name in names]
    stage = PpoStage.model_validate({
        "model": str(tiny_model(folder / "model", said)), "tasks": "t", "skill2_weight": 0, "lora_rank": 4, "steps": 1,
        "learning_rate": 1e-3, "prompts": len(names), "micro_batch": 2, "max_prompt": 99, "max_completion": 2, "kl": 0.1,
    })  # fmt: skip
    tokenizer, run = load_tokenizer(stage.model), StageRun(folder / "out")
    run.out.mkdir()
    with serving(folder / "store", ScriptedPool(POOL)) as server:
        made = _trainer(stage, ROWS[:1], 1, tokenizer, run, server.client, None)
        made._generate_single_turn = lambda ids, *more: ([tokenizer(text + "<|im_end|>")["input_ids"] for text in said], None)
        yield made


def test_what_was_not_judged_counts_in_no_loss_and_is_not_kept(tmp_path: Path) -> None:
    with a_step(tmp_path, ["fast", "wrong", "unavailable", "attack"]) as made:
        made.train()
    run = StageRun(tmp_path / "out")
    rewards = [line["reward"] for line in run.lines(ROLLOUTS)]
    assert rewards == [pytest.approx(1.263, abs=1e-3), -1.0, None, -1.0]
    assert [line["reward"] for line in run.lines(TOKENS)] == pytest.approx([rewards[0], -1.0, -1.0])
    mask, advantages = (torch.cat([part[name] for part in made._buffered_inputs]) for name in ("tool_mask", "advantages"))
    assert sorted(mask.sum(1).tolist()) == [0, 2, 2, 2]
    assert (advantages[mask == 0] == 0).all()
    assert float(advantages.sum()) == pytest.approx(0, abs=1e-5), "whitened over what counts"
    assert float(made._buffered_inputs[0]["num_items_in_batch"]) == 6


def test_a_critic_whose_values_are_no_numbers_stops_before_anything_is_learnt(tmp_path: Path) -> None:
    with a_step(tmp_path, ["fast", "wrong"]) as made:
        with torch.no_grad():
            made.critic.score.weight.fill_(torch.nan)
        with pytest.raises(Unavailable, match="the critic's value is no number at update 1"):
            made.train()
