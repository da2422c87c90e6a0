"""A program imports the module that registers an operator of its reference."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from stitchcuda.compiler.capture.capture import capture
from stitchcuda.compiler.printing.program import write_program

MODULE = '''
import torch

@torch.library.custom_op("registered_here::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2

@twice.register_fake
def _(x):
    return torch.empty_like(x)
'''


class Twice(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.ops.registered_here.twice(x))


@pytest.mark.parametrize("importable", [True, False])
def test_the_module_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, importable: bool) -> None:
    (tmp_path / "registers.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    try:
        import registers  # type: ignore[import-not-found, unused-ignore]

        if not importable:
            monkeypatch.setattr(registers.twice._init_fn, "__module__", "__main__")
        graph = capture(Twice(), (torch.randn(4),), {})
    finally:
        sys.modules.pop("registers", None)
        torch._library.custom_ops.OPDEFS.pop("registered_here::twice")._lib._destroy()
    if importable:
        assert graph.packages == ("registers",)
        assert "import registers  # registers operators" in write_program(graph, [])["model_new.py"]
    else:
        assert "the operator registered_here::twice, which '__main__' registers" in graph.opaque


def test_operators_of_torch_need_no_import() -> None:
    graph = capture(nn.Sequential(nn.Linear(4, 4), nn.GELU()), (torch.randn(2, 4),), {})
    assert not graph.opaque
    assert graph.packages == ()
