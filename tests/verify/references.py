"""A reference worker in this process, for tests of what it draws."""

from __future__ import annotations

from pathlib import Path

from stitchcuda.verify.inputs.reference_requests import Ask, Examine, LoadReference
from stitchcuda.verify.reference.reference_worker import ReferenceWorker

TEMPLATE = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, {names}):
        return {result}


def get_inputs():
    return {inputs}
"""


def source(result: str, inputs: str = "[torch.randn(4, 16)]", *, init: str = "pass", names: str = "x") -> str:
    return TEMPLATE.format(result=result, inputs=inputs, init=init, names=names)


def asking(folder: Path, text: str) -> Ask:
    """What `secret_inputs.draw` and the others ask: a loaded reference worker."""
    return loaded_worker(folder, text).answer


def loaded_worker(folder: Path, text: str) -> ReferenceWorker:
    """A reference worker, in this process, that has loaded and called the reference."""
    folder.mkdir(exist_ok=True)
    path = folder / "reference.py"
    path.write_text(text)
    worker = ReferenceWorker("sim")
    worker.answer(LoadReference(str(path), "reference", patience=0.0))
    worker.answer(Examine())
    return worker
