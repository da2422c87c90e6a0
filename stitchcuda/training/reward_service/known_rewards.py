"""Names the rewards that the service can give, each a pure function of a verdict, with a version.

Where to look next: `training/reward_service/records.py` (`Reward`).
"""

from __future__ import annotations

from stitchcuda.training.reward_service.records import Reward
from stitchcuda.verify.api import Verdict


def accepted(verdict: Verdict) -> float:
    """1 for an accepted program, else 0."""
    return float(verdict.accepted)


REWARDS: dict[str, Reward] = {"accepted@1": accepted}
