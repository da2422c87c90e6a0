"""Parts of PPO that need no run: which TRL it is for, what a critic is, and what is kept of importance ratios.

Each imports TRL and transformers, which takes seconds.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from stitchcuda.errors import BadInput, Unavailable
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
