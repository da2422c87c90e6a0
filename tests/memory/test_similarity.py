"""What is alike: the same is 1, and each thing that differs costs what the docstring says."""

from __future__ import annotations

import pytest

from stitchcuda.memory.lesson import Situation
from stitchcuda.memory.similarity import bottleneck, similarity
from tests.memory.lessons import situation

HERE = situation()


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (situation(), 1.0),
        (situation(device="NVIDIA H200", torch="2.14.0"), 1.0),
        (situation(dtype="float32"), 0.5),
        (situation(arch="sm_80"), 0.5),
        (situation(precision="fp16"), 0.5),
        (situation(bottleneck="bound by launch latency"), 0.7),
        (situation(bottleneck="who knows"), 0.85),
        (situation(operators=(("aten.layer_norm.default", 7), ("aten.gelu.default", 7))), 1.0),
        (situation(operators=(("aten.layer_norm.default", 1),)), 1 / 3),
        (situation(operators=(("aten.gelu.default", 1), ("aten.add.Tensor", 1))), 1 / 3),
        (situation(operators=(("aten.convolution.default", 1),)), 0.0),
        (situation(operators=()), 0.0),
        (situation(8192, 1024), (2**-0.5 + 2**-0.5 + 1) / 3),
        (situation(4096, 2048), 2**-0.5),
        (situation(tensors=()), 0.5 * 0.5),
    ],
)  # fmt: skip
def test_similarity(other: Situation, expected: float) -> None:
    assert similarity(HERE, other) == pytest.approx(expected)
    assert similarity(other, HERE) == pytest.approx(expected), "it does not matter which one is asked about"


def test_kinds_of_bottleneck() -> None:
    told = {
        "bound by launches on the host": "launches",
        "bound by launch latency: 0.30 us of memory traffic a call": "launches",
        "bound by memory: 3.9 us of traffic": "memory",
        "DRAM bandwidth at 91 %": "memory",
        "Tensor cores are 80 % busy": "compute",
        "low occupancy: 12 %": "latency",
        "not correct: output 0 is off": "",
        "": "",
    }
    assert {text: bottleneck(text) for text in told} == told
