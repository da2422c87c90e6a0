"""References that any answer would satisfy are refused with the numbers; ordinary ones are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from stitchcuda.state import Settings
from stitchcuda.verify.client import Judge
from stitchcuda.verify.inputs import secret_inputs
from tests.verify.references import asking, source

LINEAR = "self.linear = nn.Linear(16, 8)"


def judged(folder: Path, text: str) -> tuple[str, list[str]]:
    ask = asking(folder, text)
    one = secret_inputs.draw(ask)
    secret_inputs.extend(ask, one, 2)
    return secret_inputs.check_reference(ask, one)


@pytest.mark.parametrize(
    ("result", "init", "said"),
    [
        ("x * 0", "pass", "is constant (0 in all of its 64 elements)"),
        ("torch.softmax(x.sum(-1, keepdim=True), -1)", "pass", "is constant (1 in all of its 4 elements)"),
        ("torch.ones_like(x).cumsum(-1)", "pass", "is the same for different inputs"),
        ("self.linear(x) * 0 + x[:, :8]", LINEAR, "does not depend on the reference's 2 parameters"),
        ("self.linear(torch.ones_like(x))", LINEAR, "is the same for different inputs"),
        ("(self.linear(x) - self.linear(x).mean(-1, True)).mean(-1)", LINEAR, "is smaller than what rounding may change"),
        ("(x.clamp(-1, 1) * 1e30 / 1e30 - x.clamp(-1, 1)).sum(-1)", "pass", "is smaller than what rounding may change"),
        ("(x * 0 > 1, x.argmax(-1) * 0)", "pass", "output.0 is constant"),
        ("torch.log(-x.abs() - 1)", "pass", "output is NaN in all of its 64 elements (buffers that nothing initialised?"),
    ],
)
def test_degenerate_references(result: str, init: str, said: str, tmp_path: Path) -> None:
    reason, _ = judged(tmp_path, source(result, init=init))
    assert said in reason
    assert len(reason.splitlines()) == 1


@pytest.mark.parametrize(
    ("result", "init", "inputs"),
    [
        ("self.linear(x)", LINEAR, "[torch.randn(4, 16)]"),
        ("torch.relu(x).mean()", "pass", "[torch.randn(4, 16)]"),
        ("x.argmax(-1)", "pass", "[torch.randn(64, 16)]"),
        ("self.linear(x).argmax(-1)", LINEAR, "[torch.randn(64, 16)]"),
        ("self.norm(x)", "self.norm = nn.BatchNorm1d(16)", "[torch.randn(4, 16)]"),
        ("self.table(x)", "self.table = nn.Embedding(9, 4)", "[torch.randint(9, (32,))]"),
        ("nn.functional.layer_norm(x, (16,))", "pass", "[torch.rand(4, 16)]"),
        ("self.linear(torch.ones(2, 16))", LINEAR, "[]"),
        ("x.bfloat16() @ self.w", "self.w = nn.Parameter(torch.randn(16, 8).bfloat16())", "[torch.randn(4, 16)]"),
        ("torch.softmax(x, -1)", "pass", "[torch.randn(2, 50000)]"),
        ("torch.log(x)", "pass", "[torch.randn(4, 16)]"),
        ("x * self.w", "self.w = nn.Parameter(torch.randn(16, dtype=torch.cfloat))", "[torch.randn(4, 16)]"),
    ],
)
def test_ordinary_references(result: str, init: str, inputs: str, tmp_path: Path) -> None:
    names = "x" if inputs != "[]" else "x=None"
    assert judged(tmp_path, source(result, inputs, init=init, names=names)) == ("", [])


def test_one_output_of_several_is_a_note(tmp_path: Path) -> None:
    reason, notes = judged(tmp_path, source("(x * 2, x * 0)"))
    assert reason == ""
    assert notes == ["the check of output.1 says little: it is constant (0 in all of its 64 elements)"]


DEEP = "self.deep = nn.Sequential(*[part for _ in range(40) for part in (nn.Linear(64, 64), nn.ReLU())])"


def test_a_deep_reference_is_judged_with_weights_that_preserve_the_signal(tmp_path: Path) -> None:
    text = source("self.deep(x)", "[torch.randn(4, 64)]", init=DEEP)
    reason, _ = judged(tmp_path, text)
    assert "is the same for different inputs (it changes by " in reason
    ask = asking(tmp_path, text)
    one = secret_inputs.draw(ask, amplified=True)
    secret_inputs.extend(ask, one, 2)
    assert secret_inputs.check_reference(ask, one) == ("", [])
    assert one.renewed


@pytest.mark.more
def test_a_deep_reference_is_judged_with_larger_weights(tmp_path: Path) -> None:
    text = source("self.deep(x)", "[torch.randn(4, 64)]", init=DEEP)
    (reference := tmp_path / "reference.py").write_text(text)
    (program := tmp_path / "program.py").write_text(text.replace("class Model(", "class ModelNew("))
    (wrong := tmp_path / "wrong.py").write_text(program.read_text().replace("self.deep(x)", "self.deep(x * 1.01)"))
    with Judge(reference, Settings(target="sim"), cache=tmp_path, arch="sm_90a") as judge:
        found = judge.check(program, seeds=2)
        assert found.ok
        assert any("weights were scaled up" in note for note in found.notes)
        assert not judge.check(wrong, seeds=2).ok


def test_one_number_that_never_changes(tmp_path: Path) -> None:
    _, notes = judged(tmp_path, source("(x * 2, (x * 0).sum())"))
    assert notes == ["the check of output.1 says little: it is always 0"]


def test_what_follows_from_random_draws_only_is_said(tmp_path: Path) -> None:
    _, notes = judged(tmp_path, source("(x * 2, torch.rand(8))"))
    assert len(notes) == 1
    assert notes[0].endswith(", and follows from the random numbers that a call draws")
