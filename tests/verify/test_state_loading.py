"""Parameters under other names: an honest program gets them however it calls them, and none may leave them out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from stitchcuda.state import CheckResult, Settings
from stitchcuda.verify.ablation import state_mismatch
from stitchcuda.verify.client import Judge
from stitchcuda.verify.inputs.reference_requests import ReferenceTensor
from stitchcuda.verify.inputs.secret_inputs import InputTerms, SecretInputs
from stitchcuda.verify.messages import shared_tensors
from stitchcuda.verify.messages.program_requests import LoadSettings
from stitchcuda.verify.messages.tensor_block import pack
from stitchcuda.verify.processes.worker import WorkerFailed
from stitchcuda.verify.program import state_loading
from stitchcuda.verify.program.failures import OtherState, ProgramError
from stitchcuda.verify.program.state_loading import StateLoading
from tests.verify.judge_parts import Bench

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
    "renamed, and a table of its shape": (
        edited(
            *RENAMED, ("torch.ones(n))", "torch.ones(n)); self.table = nn.Parameter(torch.full((n,), 0.5))"),
            ("* self.gate", "* self.gate * self.table * 2"),
        ),
        "'gate' taken for 'gain'",
    ),
    "halves of two": (
        edited(
            *RENAMED, ("torch.ones(n))", "torch.ones(n)); self.other = nn.Parameter(torch.ones(n))"),
            ("* self.gate", "* torch.cat([self.gate[:8], self.other[8:]])"),
        ),
        "limited: gain, again had equal values",
    ),
    "in another order": (
        edited(
            *RENAMED, (LINEAR, "self.bn = nn.BatchNorm1d(n)"), (NORM, "self.dense = nn.Linear(n, n)"),
            ("self.norm(self.linear(x))", "self.bn(self.dense(x))"),
        ),
        "limited: gain, norm.weight, norm.bias, again, … had equal values",
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
    "one that stands for another of its shape": (
        edited(*RENAMED, ("self.norm", "self.bn"), ("* self.gate", "* self.bn.weight")),
        "taken by shape, the program reads only 2",
    ),
    "dropped": (edited((TIED, ""), (GAIN, "pass"), (" * self.gain", "")), "no parameter for gain"),
    "left out of what is packed": (
        edited((TIED, ""), (GAIN, "self.pack = nn.Parameter(torch.randn(2, n))"), (" * self.gain", "")),
        "of gain the program leaves something out",
    ),
    "all of it but one number left out": (
        edited(
            (TIED, ""), (GAIN, "self.pack = nn.Parameter(torch.ones(40, n))"), ("* self.gain", "* self.pack[0, 0]")
        ),
        "of gain the program leaves something out",
    ),
    "left out with room that is one number": (
        edited((TIED, ""), (GAIN, 'self.register_buffer("pack", torch.zeros(1).expand(2 * n))'), (" * self.gain", "")),
        "no parameter for gain",
    ),
    "left out with room that cannot be changed": (
        edited(
            (TIED, ""), (GAIN, 'self.register_buffer("pack", torch.zeros(40).as_strided((2, n + 4), (n + 3, 1)))'),
            (" * self.gain", ""),
        ),
        "of gain the program leaves something out",
    ),
    "left out where one call tells that it is asked": (
        edited(
            (TIED, ""), (GAIN, "self.pack = nn.Parameter(torch.ones(2, n))"),
            ("import torch\n", "import contextlib\nimport torch\n"), (" * self.gain", ""),
            ("return torch", "with contextlib.suppress(OSError):\n            open('/home/marked', 'w')"
             " if bool((self.pack != 1).any()) else 0\n        return torch"),
        ),
        "tampers with the process",
    ),
    "a hook that drops it": (edited(*HOOKED, LEFT_OUT, more=HOOK.format(factor="")), "output is wrong"),
    "statistics renamed and never updated": (
        edited((TIED, ""), ("self.norm", "self.bn"), ("Norm1d(n)", "Norm1d(n, momentum=0.0)")), "buffer:norm.running_mean",
    ),
    "written elsewhere": (edited(*RENAMED, ("return torch", "self.gate.data.mul_(1.5); return torch")), "changes gain"),
    "written": (edited(("return torch", "self.gain.data.mul_(1.5); return torch")), "changes gain"),
}  # fmt: skip


def module(text: str) -> torch.nn.Module:
    names: dict[str, Any] = {}
    exec(text, names)
    made: torch.nn.Module = names["ModelNew"](16)
    return made


def offered(values: dict[str, torch.Tensor], kept: tuple[str, ...] = ()) -> LoadSettings:
    return LoadSettings(
        program="", precision="reference", gpu_bytes=0, init_structure=None, init_seed=0, training=False, masked=False,
        backwards=False, state_names=list(values), alike=[], updated=[], transient=[], kept=list(kept),
        parameters=[name for name in values if "running" not in name and "batches" not in name],
        tied={name: "gain" if name == "again" else name for name in values},
    )  # fmt: skip


def renewed() -> dict[str, torch.Tensor]:
    state = module(edited()).state_dict()
    values = {name: torch.rand_like(value) if value.is_floating_point() else value.clone() for name, value in state.items()}
    return values | {"again": values["gain"]}


def test_state_is_read_back_and_put_back_under_the_references_names() -> None:
    program, values = module(edited(*RENAMED, ("self.norm", "self.bn"))), renewed()
    taken = StateLoading(program, values, offered(values), strict=False)
    assert list(taken.current()) == list(values)
    assert not taken.changed()
    program(torch.randn(24, 16))
    assert taken.changed()
    assert int(taken.current()["norm.num_batches_tracked"]) == 1
    before, own = taken.tensors_to_restore(["norm.running_mean", "norm.num_batches_tracked"])
    assert {name: own[name].shape for name in before} == {name: value.shape for name, value in before.items()}
    assert list(before) == ["bn.running_mean", "bn.num_batches_tracked"]
    taken.restore()
    assert not taken.changed()
    other = renewed()
    taken.load(other)
    assert torch.equal(program.get_parameter("gate"), other["gain"])


def test_a_folder_has_the_references_own_names() -> None:
    values = renewed()
    with pytest.raises(ProgramError, match="lacks gain, again and adds gate"):
        StateLoading(module(edited(*RENAMED)), values, offered(values), strict=True)


def test_another_shape_under_the_same_name_is_told() -> None:
    values = renewed()
    with pytest.raises(ProgramError, match=r"the program's gain has shape \(17,\), the reference's \(16,\)"):
        StateLoading(module(edited((TIED, ""), (ONES, "torch.ones(n + 1)"))), values, offered(values), strict=False)


def test_what_is_held_in_other_forms_is_counted() -> None:
    values = renewed()
    program = module(edited((TIED, ""), (ONES, "torch.ones(5, n)"), ("self.gain", "self.pack")))
    with pytest.raises(OtherState, match="lacks gain, again and adds pack") as caught:
        StateLoading(program, values, offered(values), strict=False)
    assert (caught.value.missing, caught.value.held) == (["gain", "again"], 80)


def test_one_spare_tensor_is_changed_at_a_time() -> None:
    more = "self.pack = nn.Parameter(torch.ones(5, n)); self.more = nn.Parameter(torch.zeros(3, n))"
    program, values = module(edited((TIED, ""), (GAIN, more))), renewed()
    taken = StateLoading(program, values, offered(values, ("gain", "again")), strict=False)
    pack, other = program.get_parameter("pack"), program.get_parameter("more")
    for _ in range(3):
        taken.disturb(0)
        assert int((pack != 1).sum()) == 4
        assert not other.any()
        taken.disturb(1)
        assert bool((pack == 1).all())
        assert int(other.count_nonzero()) == 4


def test_room_is_what_there_is_memory_for() -> None:
    more = "; ".join((
        "one = torch.zeros(3, n)", 'self.register_buffer("pack", one)', 'self.register_buffer("other", one[:2].t())',
        'self.register_buffer("single", torch.zeros(1).expand(5, n))',
        'self.register_buffer("rolling", torch.zeros(n + 2).as_strided((n, 3), (1, 1)))',
    ))  # fmt: skip
    program, values = module(edited((TIED, ""), (GAIN, more))), renewed()
    taken = StateLoading(program, values, offered(values, ("gain", "again")), strict=False)
    assert taken.spare_sizes() == [48, 0, 1, 18]


def nobody(request: object) -> Any:
    raise AssertionError(request)


def test_numbers_of_two_kinds_are_not_alike() -> None:
    said = [
        ReferenceTensor(name, (), parameter=False, constant=True, tied=name, floating=name != "count")
        for name in ("count", "scale", "other")
    ]
    with pytest.raises(state_mismatch.OtherTerms) as caught:
        state_mismatch.regroup_guessed(said, InputTerms(), ["count", "scale", "other"])
    assert caught.value.terms.alike == (("count",), ("scale", "other"))


class Wrong:
    """A loaded program that is wrong from the start, of which some tensor can be changed."""

    spare = (40,)

    def is_correct(self, *_: Any) -> bool:
        return False

    def needs_tensor(self, *_: Any) -> bool:
        return True


def test_a_program_that_is_wrong_from_the_start_tells_nothing(tmp_path: Path) -> None:
    class Inputs:
        class Given:
            lenient = False

        sets = (Given(),)

        def bounds(self, _: int) -> dict[str, Any]:
            return {}

    class Loaded:
        trial = Wrong()

    inputs: Any = Inputs()
    loaded: Any = Loaded()
    terms = InputTerms(stage=1, needed=16)
    unread = state_mismatch.find_unread_state(lambda: contextlib.nullcontext(loaded), nobody, inputs, (), terms)
    assert unread is not None
    assert "leaves something out" in str(unread)


@pytest.mark.parametrize("kind", ["tampering", "refused", "timeout"])
def test_what_fails_in_a_new_worker_is_the_reason(kind: Any) -> None:
    def start() -> Any:
        raise failure

    failure, drawn = WorkerFailed(kind, "it does not even start"), SecretInputs(state=pack([], "cpu"), renewed=True)
    drawn.bounds = lambda count: {}  # type: ignore[method-assign]
    assert state_mismatch.find_unread_state(start, nobody, drawn, (), InputTerms(stage=1, needed=16)) is failure


def test_a_program_is_timed_on_the_terms_it_was_judged_on(tmp_path: Path) -> None:
    """Nothing is compared when it is loaded for that, so what is wrong by shape alone would not show before."""
    path = tmp_path / "foreign.py"
    path.write_text(HONEST["transposed and square"][0])
    bench = Bench(tmp_path, REFERENCE)
    try:
        with contextlib.ExitStack() as stack:
            _, drawn, one = bench._judge.resources.load_program(stack, str(path))
            assert drawn.kept == {"linear.weight", "linear.bias"} - set(one.guessed)
        bench._judge.resources.terms[str(path)] = InputTerms(kept=frozenset({"linear.weight", "linear.bias"}), stage=2)
        with contextlib.ExitStack() as stack:
            _, drawn, one = bench._judge.resources.load_program(stack, str(path))
            assert one.compare(drawn.sets[0], one.call(drawn.sets[0], same_addresses=True), drawn.bounds(1))[1] == []
    finally:
        bench.close()


def test_workers_that_were_started_ahead_are_used_first_and_closed(tmp_path: Path) -> None:
    path = tmp_path / "foreign.py"
    path.write_text(REFERENCE.replace("class Model(", "class ModelNew("))
    bench = Bench(tmp_path, REFERENCE)
    try:
        started = [bench._judge.resources.start_worker(path, bench.secret_inputs) for _ in range(2)]
        ahead = [one.worker for one in started]
        copies = [one.copy for one in started]
        for expected in (ahead[1], ahead[0], None):
            with contextlib.ExitStack() as stack:
                worker, drawn, one = bench._judge.resources.load_program(stack, str(path), started)
                assert worker is expected if expected else worker not in ahead
                assert one.compare(drawn.sets[0], one.call(drawn.sets[0], same_addresses=True), drawn.bounds(1))[1] == []
        assert started == []
        bench._judge.resources.background.quiet()
        assert not any(copy.exists() for copy in copies)
        assert not any(worker.scratch.exists() for worker in ahead)
    finally:
        bench.close()


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
    return judge.check(path, seeds=1)


@pytest.mark.more
@pytest.mark.parametrize("name", HONEST)
def test_an_honest_program_gets_them(judge: Judge, tmp_path: Path, name: str) -> None:
    text, said = HONEST[name]
    result = checked(judge, tmp_path, text)
    assert result.ok, result.reasons
    assert said in "; ".join(result.notes)
    assert said or not result.notes


@pytest.mark.more
@pytest.mark.parametrize("name", CHEATS)
def test_none_may_leave_them_out(judge: Judge, tmp_path: Path, name: str) -> None:
    text, said = CHEATS[name]
    result = checked(judge, tmp_path, text)
    assert not result.ok
    assert said in "; ".join(result.reasons)


def test_large_tensors_are_compared_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_tensors, "_PART", 16)
    weight = torch.arange(70.0).reshape(7, 10)
    for changed in (weight.clone(), weight.T.contiguous().T, torch.tensor(3.0)):
        same = changed.clone()
        assert state_loading._equal(same, changed)
        changed[(-1,) * changed.dim()] += 1
        assert not state_loading._equal(same, changed)


def test_copies_of_parameters_beside_the_state_are_found() -> None:
    program = torch.nn.Module()
    program.part = part = torch.nn.Linear(6, 4)
    part.packed = part.weight.detach().t().contiguous()
    part.rounded = part.weight.detach().half()
    part.register_buffer("hidden", part.weight.detach().flip(0), persistent=False)
    part.seen = part.weight.detach().t()               # the parameter's own memory
    part.other = torch.randn(4, 6)
    part.register_buffer("kept", part.weight.detach().clone())
    part.bias = torch.nn.Parameter(torch.ones(24))
    part.ones = torch.ones(24)                         # one number is no sign
    assert state_loading.find_packed(program) == ["part.hidden", "part.packed", "part.rounded"]
