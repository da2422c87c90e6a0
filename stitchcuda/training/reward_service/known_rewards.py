"""Names the rewards that the service can give, each a pure function of a verdict, with a version.

Where to look next: `training/rewards.py` (the formulas), `training/reward_service/records.py` (`RewardFunction`).
"""

from __future__ import annotations

from pydantic import Field

from stitchcuda.state import Record
from stitchcuda.training import rewards
from stitchcuda.training.reward_service.records import RewardFunction
from stitchcuda.verify.api import Verdict


class GivenReward(Record):
    """See `HasValue`."""

    value: float | None
    no_score: str = ""
    parts: dict[str, float | str] = Field(default_factory=dict)


def accepted(verdict: Verdict) -> GivenReward:
    """1 for an accepted program, else 0."""
    return GivenReward(value=float(verdict.accepted))


def _of_verdict(name: str) -> RewardFunction:
    """A reward of `training/rewards.py`, without rubric and baselines."""
    return lambda verdict: rewards.reward(name, rewards.Judged(verdict=verdict))


REWARDS: dict[str, RewardFunction] = {"accepted/1": accepted, **{name: _of_verdict(name) for name in rewards.REWARDS}}
