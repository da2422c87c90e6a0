"""Defines what an operator of a synthesised task is: a few lines of PyTorch that map one layout of a tensor to another.

A layout names the dimensions of the tensor `x` that `forward` passes on. Templates refer to them by their letters: in `init`
as `{C}`, in `shape` and `inputs` bare. An operator may bring sizes of its own (`new`, letter=kind) and inputs of its own.
Where to look next: `training/tasks/operator_tables.py` (all of them), `training/tasks/composition.py` (puts them together).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

Family = Literal[
    "product", "convolution", "normalisation", "reduction", "attention", "scan", "element-wise", "several inputs", "movement"
]
Role = Literal["mix", "norm", "act", "pool", "join", "move", "head", "loss"]

LAYOUTS: dict[str, str] = {
    "sequence": "B L D", "image": "B C H W", "signal": "B C T", "volume": "B C Z H W", "rows": "B F", "matrices": "B M N",
    "points": "B P C",
}  # fmt: skip
SIZES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "batch_size": ((2, 3), (8, 16, 32, 64)),
    "rows": ((6, 8), (1024, 2048, 4096, 8192, 10000)),
    "features": ((32, 48, 64), (512, 1000, 1024, 2048, 3072, 4096)),
    "seq_len": ((64, 96), (196, 256, 512, 1000, 1024, 2048)),
    "context_len": ((48, 64), (77, 128, 512, 1024)),
    "embed_dim": ((32, 64), (256, 384, 512, 768, 1024)),
    "hidden_dim": ((48, 80, 96), (1024, 1536, 2048, 3072, 4096)),
    "num_heads": ((2, 4), (4, 8, 16)),
    "channels": ((8, 16), (32, 64, 96, 128, 192, 256)),
    "height": ((16,), (32, 56, 64, 96, 112, 128)),
    "width": ((16, 24), (32, 56, 64, 96, 112, 160)),
    "depth": ((8,), (8, 16, 24, 32)),
    "length": ((96, 128), (1024, 2000, 4096, 8192, 16000)),
    "cond_dim": ((10, 12), (128, 256, 512)),
    "rank": ((3, 4), (8, 16, 32)),
    "num_experts": ((3, 4), (4, 8)),
    "vocab_size": ((40, 56), (8192, 16384, 32000)),
    "num_classes": ((5, 10), (10, 100, 1000)),
    "num_points": ((64, 96), (1024, 2048, 4096)),
    "num_neighbors": ((8, 10), (16, 20, 32)),
    "matrix_rows": ((48, 64), (256, 384, 512, 1024)),
    "matrix_cols": ((24, 32), (128, 256, 512, 768)),
}
"""Sizes by kind: of the small stand-in that filters run, and of the task itself before it is scaled. All are such that groups
of 4 channels, halves of even sizes and 4, 8 or 16 heads come out even. What is averaged over is long in the stand-in too: an
average of a few values shows what precedes it, and one of a thousand may not."""


_NONLINEAR = re.compile(
    r"F\.(?!linear|conv|pad|interpolate|unfold|avg_pool)\w+\(|tanh|sigmoid|softmax|relu|gelu|silu|exp\(|pow\(|norm|abs\(|max\("
    r"|[a-z_)] \* [a-z_(]"
)
_TAKES_X = re.compile(
    r"self\.\w+\((F\.\w+\(|torch\.cat\(\[)?x\b(?!\.(mean|amax)\()|einsum\('[\w,>-]+', x\b|(bmm|baddbmm)\(.*\bx\b|\bx @ |@ x\b"
    r"|F\.conv\dd\(x\b"
)
_SUMMED = re.compile(r"\b(sum|mean|einsum)\(|avg_pool|AvgPool")
_AVERAGED = re.compile(r"mean\(|avg_pool|sum\(")
_ACTIVATED = re.compile(
    r"F\.relu\(|leaky_relu\(|tanh\(|sigmoid\(|softmax\(|exp\("
    r"|^x = (torch\.(logsumexp|clamp|square|linalg\.vector_norm)|x\.(pow|var|abs|amax))\("
)


@dataclass(frozen=True)
class Operator:
    """`name`: as the task's docstring calls it. `init` and `forward`: lines of Python. `shape`: dimensions of the result, ""
    for unchanged; `to`: its layout, "" for unchanged. `new`: sizes that it brings. `inputs`: such as "context=randn(B, S, D)",
    several with ";". `weight`: how often it is drawn within its role. `first`: it only makes sense on data as given, at the
    start of a task. `affine`: of `x`, though its text looks otherwise. `skips`: it adds `x` itself."""

    name: str
    family: Family
    role: Role
    forward: str
    init: str = ""
    shape: str = ""
    to: str = ""
    new: str = ""
    inputs: str = ""
    weight: float = 1.0
    first: bool = False
    affine: bool = False
    skips: bool = False

    @property
    def linear(self) -> bool:
        """Whether it is a plain product, convolution, sum or mean: two of these in a row are one."""
        plain = self.family in ("product", "convolution") and self.role in ("mix", "move", "head", "pool")
        summed = self.family == "reduction" and self.role in ("head", "pool", "move") and bool(_SUMMED.search(self.forward))
        return (plain or summed) and not _NONLINEAR.search(self.forward)

    @property
    def bends(self) -> bool:
        """Whether it is no affine function of `x`, so that a residual around it does not fold into it."""
        if self.affine or self.skips:
            return False
        plain = self.linear or self.role in ("move", "join", "pool") or self.family in ("scan", "several inputs")
        return not plain or bool(_NONLINEAR.search(self.forward))

    @property
    def starts_linear(self) -> bool:
        """Whether it takes `x` into a product or convolution first, so that one before it folds into its own."""
        return self.role not in ("norm", "act", "pool") and bool(_TAKES_X.search(self.forward))

    @property
    def ends_linear(self) -> bool:
        """Whether its last step is a product or convolution, which one that follows takes in."""
        layer = re.match(r"x = self\.\w+\(", self.forward.rsplit("\n", 1)[-1])
        kind = self.family in ("product", "convolution") or self.role == "join"
        return kind and (self.linear or layer is not None)

    @property
    def whole(self) -> bool:
        """Whether it is a block that has its own activations and ends in a projection or a residual."""
        return self.skips or (self.ends_linear and not self.linear and self.role != "join")

    @property
    def averages(self) -> bool:
        """Whether it makes means or sums of `x` over positions: an affine step before it could come after it, at less work."""
        return self.role == "head" and bool(_AVERAGED.search(self.forward)) and "amax(" not in self.forward

    @property
    def pools(self) -> bool:
        """Whether it makes one value of all positions. What is added to all of them could as well be added after it."""
        return self.role == "head" and self.family == "reduction"

    @property
    def levels(self) -> bool:
        """Whether it gives each channel of a sample, or each row, the same mean and size, so that an average says nothing."""
        return "instance" in self.name.lower() or "of the rows" in self.name

    @property
    def ends_affine(self) -> bool:
        """Whether its last step is affine for each channel or position: a layer, a norm, a sum or product with an input."""
        layer = re.match(r"x = (x \+ )?self\.\w+\(", self.forward.rsplit("\n", 1)[-1])
        return self.linear or layer is not None or self.role in ("norm", "join", "move")

    @property
    def sums_to_one(self) -> bool:
        """Whether it ends in a softmax, of which no sum, mean, norm or further softmax says much."""
        return self.forward.rsplit("\n", 1)[-1].startswith("x = F.softmax(") and "@" not in self.forward

    @property
    def activated(self) -> bool:
        """Whether it ends in a bounded, rectified or positive value, after which no activation follows."""
        return bool(_ACTIVATED.search(self.forward.rsplit("\n", 1)[-1]))
