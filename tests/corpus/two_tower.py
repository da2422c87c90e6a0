"""Two-tower retrieval model: pooled embeddings, L2-normalised towers, temperature softmax over the batch, float32.

Source: Yi et al., "Sampling-Bias-Corrected Neural Modeling for Large Corpus Item Recommendations" (2019).

The user tower pools the embeddings of a padded watch history (0 is padding) next to the user's own embedding and dense
features; the item tower reads the item and its category. Scores of all user-item pairs of the batch are divided by a
temperature and corrected by the log of the item's sampling probability; the softmax over items gives the in-batch loss.

Shapes: user (512,) int64, history (512, 40) int64, user_features (512, 16) float32, item (512,) int64, category (512,)
int64, item_probability (512,) float32. Output is a dictionary: user_vector and item_vector (512, 64), log_probs
(512, 512), confidence (512,) and loss, a scalar.
"""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

BATCH = 512
HISTORY = 40
USER_FEATURES = 16
USERS = 20_000
ITEMS = 10_000
CATEGORIES = 50
WIDTH = 64
HIDDEN = 256


def tower(in_features: int, hidden: int, width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(in_features, hidden),
        nn.LeakyReLU(0.1),
        nn.Linear(hidden, hidden),
        nn.LeakyReLU(0.1),
        nn.Linear(hidden, width),
    )


class Model(nn.Module):
    """User and item towers with the in-batch softmax."""

    def __init__(
        self,
        users: int,
        items: int,
        categories: int,
        user_features: int,
        width: int,
        hidden: int,
        temperature: float,
    ) -> None:
        super().__init__()
        self.temperature = temperature
        self.user_embedding = nn.Embedding(users, width)
        self.item_embedding = nn.Embedding(items, width, padding_idx=0)
        self.category_embedding = nn.Embedding(categories, width // 2)
        self.user_tower = tower(2 * width + user_features, hidden, width)
        self.item_tower = tower(width + width // 2, hidden, width)

    def pool(self, history: Tensor) -> Tensor:
        """Sum over the items of the history that are not padding, over the root of their count; zero if there are none."""
        valid = (history != 0).unsqueeze(-1)
        embedded: Tensor = self.item_embedding(history) * valid
        return embedded.sum(dim=1) / valid.sum(dim=1).clamp(min=1).sqrt()

    def forward(
        self,
        user: Tensor,
        history: Tensor,
        user_features: Tensor,
        item: Tensor,
        category: Tensor,
        item_probability: Tensor,
    ) -> dict[str, Tensor]:
        user_in = torch.cat([self.user_embedding(user), self.pool(history), user_features], dim=1)
        item_in = torch.cat([self.item_embedding(item), self.category_embedding(category)], dim=1)
        user_vector = F.normalize(self.user_tower(user_in), p=2.0, dim=1)
        item_vector = F.normalize(self.item_tower(item_in), p=2.0, dim=1)
        logits = user_vector @ item_vector.t() / self.temperature - torch.log(item_probability)
        log_probs = F.log_softmax(logits, dim=1)
        return {
            "user_vector": user_vector,
            "item_vector": item_vector,
            "log_probs": log_probs,
            "confidence": torch.amax(torch.exp(log_probs), dim=1),
            "loss": -torch.diagonal(log_probs).mean(),
        }


def get_inputs() -> list[Tensor]:
    lengths = torch.randint(0, HISTORY + 1, (BATCH, 1))
    history = torch.randint(1, ITEMS, (BATCH, HISTORY)) * (torch.arange(HISTORY) < lengths)
    return [
        torch.randint(USERS, (BATCH,)),
        history,
        torch.randn(BATCH, USER_FEATURES),
        torch.randint(1, ITEMS, (BATCH,)),
        torch.randint(CATEGORIES, (BATCH,)),
        torch.rand(BATCH) * 0.009 + 0.001,
    ]


def get_init_inputs() -> list[int | float]:
    return [USERS, ITEMS, CATEGORIES, USER_FEATURES, WIDTH, HIDDEN, 0.05]
