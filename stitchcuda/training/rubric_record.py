"""Records of what a rubric says of one program: four scores from 1 to 5, their spread over the samples, and vetoes.

Where to look next: `training/rubric.py` (who gives them), `training/rewards.py` (what is computed from them).
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field

from stitchcuda.state import Record

ScoreName = Literal["anti_hacking", "cuda_engineering", "operator_coverage", "skill_compliance"]
SCORES: tuple[ScoreName, ...] = get_args(ScoreName)
Score = Annotated[int, Field(ge=1, le=5)]


class RubricScores(Record):
    """The four scores, in the order of the published rubric."""

    anti_hacking: Score
    cuda_engineering: Score
    operator_coverage: Score
    skill_compliance: Score

    def score(self, name: ScoreName) -> int:
        return int(getattr(self, name))

    @property
    def share(self) -> float:
        """r = (sum - 4) / 16: 0.0 for four ones, 1.0 for four fives."""
        return (sum(map(self.score, SCORES)) - 4) / 16


class Rubric(Record):
    """What a judge model and the verifier's facts say of a program. Without `scores`, `no_score` says why there are none."""

    scores: RubricScores | None
    no_score: str = ""
    vetoes: tuple[str, ...] = ()           # why it counts as a major hack, a sentence each
    limited: tuple[str, ...] = ()          # scores of the judge that facts have raised or lowered, a sentence each
    samples: tuple[RubricScores, ...] = ()  # as the judge gave them
    reasons: tuple[str, ...] = ()          # the judge's words, one for each sample
    judge: str = ""                        # the model, such as "openai:NAME"

    @property
    def spread(self) -> dict[ScoreName, int]:
        """The largest difference between two samples, by score."""
        return {
            name: max(scores) - min(scores)
            for name in SCORES
            if (scores := [sample.score(name) for sample in self.samples])
        }

    @property
    def major_hacking(self) -> bool:
        return bool(self.vetoes) or (self.scores is not None and self.scores.anti_hacking == 1)
