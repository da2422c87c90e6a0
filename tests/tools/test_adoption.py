"""Parameters under other names: an honest program gets them however it calls them, and none may leave them out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stitchcuda.state import CheckResult, Settings
from stitchcuda.tools.check import Judge

REFERENCE = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.linear = nn.Linear(n, n)
        self.norm = nn.BatchNorm1d(n)
        self.gain = nn.Parameter(torch.ones(n))
        self.again = self.gain

    def forward(self, x):
        return torch.tanh(self.norm(self.linear(x))) * self.gain

def get_inputs():
    return [torch.randn(24, 16)]

def get_init_inputs():
    return [16]
"""
TIED = "        self.again = self.gain\n"
LINEAR, NORM, ONES = "self.linear = nn.Linear(n, n)", "self.norm = nn.BatchNorm1d(n)", "torch.ones(n)"
GAIN = f"self.gain = nn.Parameter({ONES})"
HOOK = """
    def rename(self, state, prefix, *rest):
        state[prefix + "gate"] = state.pop(prefix + "gain"){factor}
        state.pop(prefix + "again", None)
"""


def edited(*pairs: tuple[str, str], more: str = "") -> str:
    text = REFERENCE.replace("class Model(", "class ModelNew(")
    for one, other in pairs:
        assert one in text, one
        text = text.replace(one, other)
    return text.replace("def get_inputs", more + "\ndef get_inputs")


RENAMED = [(TIED, ""), ("self.gain", "self.gate")]
HOOKED = [*RENAMED, ("self.norm =", "self.register_load_state_dict_pre_hook(ModelNew.rename); self.norm =")]
HONEST = {
    "one of two names for the same memory": (edited((TIED, "")), ""),
    "renamed": (edited(*RENAMED), "'gate' taken for 'gain', by shape"),
    "with a one in its shape": (edited(*RENAMED, (ONES, "torch.ones(1, n)")), "'gate' taken for 'gain'"),
    "everything renamed": (edited(*RENAMED, ("self.norm", "self.bn"), ("self.linear", "self.dense")), "'dense.weight' taken"),
    "in another order": (
        edited(
            *RENAMED, (LINEAR, "self.bn = nn.BatchNorm1d(n)"), (NORM, "self.dense = nn.Linear(n, n)"),
            ("self.norm(self.linear(x))", "self.bn(self.dense(x))"),
        ),
        "limited: gain, norm.weight, norm.bias, norm.running_mean, … had equal values",
    ),
    "by a hook": (edited(*HOOKED, more=HOOK.format(factor="")), ""),
    "by a hook, in another form": (
        edited(
            *HOOKED, (ONES, "torch.full((n,), 2.0)"), ("* self.gate", "* (self.gate / 2)"), more=HOOK.format(factor=" * 2")
        ),
        "",
    ),
    "by its own load_state_dict": (
        edited(*RENAMED, more="""
    def load_state_dict(self, state, strict=True):
        state = {name.replace("gain", "gate"): value for name, value in state.items() if name != "again"}
        super().load_state_dict(state, strict=False)
"""),
        "",
    ),
    "transposed and square": (
        edited(
            (TIED, ""),
            (LINEAR, "one = nn.Linear(n, n); self.turned = nn.Parameter(one.weight.detach().t().contiguous())\n"
             "        self.bias = nn.Parameter(one.bias.detach())"),
            ("self.linear(x)", "(x @ self.turned + self.bias)"),
        ),
        "limited: the program's state_dict is not the reference's: it lacks linear.weight",
    ),
    "two in one": (
        edited(
            (TIED, ""), (GAIN, "self.pack = nn.Parameter(torch.ones(2, n))"),
            ("* self.gain", "* self.pack.mean(dim=0)")
        ),
        "limited: the program's state_dict is not the reference's: it lacks gain",
    ),
    "packed": (
        edited(
            (TIED, ""),
            (LINEAR, "one = nn.Linear(n, n); self.packed = nn.Parameter("
             "torch.cat([one.weight.detach(), one.bias.detach()[None]]))"),
            ("self.linear(x)", "(x @ self.packed[:-1].t() + self.packed[-1])"),
        ),
        "limited: the program's state_dict is not the reference's: it lacks linear.weight, linear.bias",
    ),
}  # fmt: skip
LEFT_OUT = ("* self.gate", "* 1.0")
CHEATS = {
    "renamed and left out": (edited(*RENAMED, LEFT_OUT), "output is wrong"),
    "the same with a one in its shape": (edited(*RENAMED, (ONES, "torch.ones(n, 1)"), LEFT_OUT), "output is wrong"),
    "the same with anything in it": (edited(*RENAMED, (ONES, "torch.randn(n)"), LEFT_OUT), "output is wrong"),
    "the same and one more": (
        edited(*RENAMED, LEFT_OUT, ("self.norm =", "self.more = nn.Parameter(torch.ones(n)); self.norm =")),
        "output is wrong",
    ),
    "dropped": (edited((TIED, ""), (GAIN, "pass"), (" * self.gain", "")), "no parameter for gain"),
    "left out of what is packed": (
        edited((TIED, ""), (GAIN, "self.pack = nn.Parameter(torch.randn(2, n))"), (" * self.gain", "")),
        "no parameter for gain",
    ),
    "a hook that drops it": (edited(*HOOKED, LEFT_OUT, more=HOOK.format(factor="")), "output is wrong"),
    "statistics renamed and never updated": (
        edited((TIED, ""), ("self.norm", "self.bn"), ("Norm1d(n)", "Norm1d(n, momentum=0.0)")), "buffer:norm.running_mean",
    ),
    "written elsewhere": (edited(*RENAMED, ("return torch", "self.gate.data.mul_(1.5); return torch")), "changes gain"),
    "written": (edited(("return torch", "self.gain.data.mul_(1.5); return torch")), "changes gain"),
}  # fmt: skip


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    folder = tmp_path_factory.mktemp("adoption")
    reference = folder / "reference.py"
    reference.write_text(REFERENCE)
    with Judge(reference, Settings(), cache=folder) as one:
        yield one


def checked(judge: Judge, folder: Path, text: str) -> CheckResult:
    path = folder / "foreign.py"
    path.write_text(text)
    return judge.check(path, seeds=2)


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_program_gets_them(judge: Judge, tmp_path: Path, name: str) -> None:
    text, said = HONEST[name]
    result = checked(judge, tmp_path, text)
    assert result.ok, result.reasons
    assert said in "; ".join(result.notes)
    assert said or not result.notes


@pytest.mark.parametrize("name", CHEATS)
def test_none_may_leave_them_out(judge: Judge, tmp_path: Path, name: str) -> None:
    text, said = CHEATS[name]
    result = checked(judge, tmp_path, text)
    assert not result.ok
    assert said in "; ".join(result.reasons)
