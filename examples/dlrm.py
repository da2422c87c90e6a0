"""DLRM: bottom MLP, embedding tables, pairwise dot interaction, top MLP and sigmoid, float32.

Source: Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation Systems" (2019), in
the configuration its authors publish for the Criteo Kaggle data: 13 dense features, 26 categorical features,
embedding width 16, bottom MLP 512-256-64-16, top MLP 512-256-1. Table sizes follow that data set, hashed to at most
20,000 rows.

Shapes: dense (2048, 13) float32, categorical (2048, 26) int64, output (2048,) click probabilities.

Linear layers start as in the authors' code. Embeddings are normal with variance 1/sqrt(width), so that a dot product
of two of them has unit variance; the authors' uniform range of 1/sqrt(rows) would leave the interaction near zero
until trained.
"""

import itertools

import torch
import torch.nn as nn
from torch import Tensor

BATCH = 2048
DENSE_FEATURES = 13
EMBEDDING_WIDTH = 16
MAX_ROWS = 20_000
CARDINALITIES = [
    1460, 583, 10131227, 2202608, 305, 24, 12517, 633, 3, 93145, 5683, 8351593, 3194,
    27, 14992, 5461306, 10, 5652, 2173, 4, 7046547, 18, 15, 286181, 105, 142572,
]  # fmt: skip
TABLE_ROWS = [min(rows, MAX_ROWS) for rows in CARDINALITIES]
BOTTOM_WIDTHS = [512, 256, 64]
TOP_WIDTHS = [512, 256]


def linear(in_features: int, out_features: int) -> nn.Linear:
    layer = nn.Linear(in_features, out_features)
    nn.init.normal_(layer.weight, std=(2.0 / (in_features + out_features)) ** 0.5)
    nn.init.normal_(layer.bias, std=(1.0 / out_features) ** 0.5)
    return layer


def table(rows: int, width: int) -> nn.Embedding:
    embedding = nn.Embedding(rows, width)
    nn.init.normal_(embedding.weight, std=width**-0.25)
    return embedding


def mlp(widths: list[int]) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for in_features, out_features in itertools.pairwise(widths):
        layers += [linear(in_features, out_features), nn.ReLU()]
    return layers


class Model(nn.Module):
    """Dense and categorical features in, click probability out."""

    pair_rows: Tensor
    pair_columns: Tensor

    def __init__(
        self,
        dense_features: int,
        table_rows: list[int],
        embedding_width: int,
        bottom_widths: list[int],
        top_widths: list[int],
    ) -> None:
        super().__init__()
        self.bottom = nn.Sequential(*mlp([dense_features, *bottom_widths, embedding_width]))
        self.tables = nn.ModuleList(table(rows, embedding_width) for rows in table_rows)
        features = len(table_rows) + 1
        rows, columns = torch.tril_indices(features, features, offset=-1)
        self.register_buffer("pair_rows", rows, persistent=False)
        self.register_buffer("pair_columns", columns, persistent=False)
        top_in = embedding_width + features * (features - 1) // 2
        self.top = nn.Sequential(*mlp([top_in, *top_widths]), linear(top_widths[-1], 1))

    def interact(self, dense: Tensor, embedded: list[Tensor]) -> Tensor:
        """Dot products of all pairs of distinct feature vectors, next to the dense vector."""
        features = torch.stack([dense, *embedded], dim=1)
        products = torch.bmm(features, features.transpose(1, 2))
        pairs = products[:, self.pair_rows, self.pair_columns]
        return torch.cat([dense, pairs], dim=1)

    def forward(self, dense: Tensor, categorical: Tensor) -> Tensor:
        x = self.bottom(dense)
        embedded = [lookup(categorical[:, i]) for i, lookup in enumerate(self.tables)]
        z = self.top(self.interact(x, embedded))
        return torch.sigmoid(z).squeeze(1)


def get_inputs() -> list[Tensor]:
    dense = torch.log1p(torch.rand(BATCH, DENSE_FEATURES) * 20.0)
    categorical = torch.stack([torch.randint(rows, (BATCH,)) for rows in TABLE_ROWS], dim=1)
    return [dense, categorical]


def get_init_inputs() -> list[int | list[int]]:
    return [DENSE_FEATURES, TABLE_ROWS, EMBEDDING_WIDTH, BOTTOM_WIDTHS, TOP_WIDTHS]
