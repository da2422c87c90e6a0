"""References that draw random numbers in forward: both sides get the same ones, in float64 too; programs that draw otherwise
are wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from stitchcuda.compiler.capture.capture import capture
from stitchcuda.compiler.capture.dependencies import dependencies
from stitchcuda.compiler.printing.statement_order import schedule
from stitchcuda.errors import BadInput
from stitchcuda.verify.inputs import secret_inputs
from stitchcuda.verify.inputs.draw_seeds import seed_for_inputs, seed_for_turn, seed_generators
from stitchcuda.verify.inputs.variants import BEYOND, GIVEN
from stitchcuda.verify.judge import correctness
from stitchcuda.verify.messages.tensor_block import unpack
from stitchcuda.verify.messages.timing_requests import LayRow, MoveTensors, PrepareTiming, TimeBlock
from stitchcuda.verify.reference.float64_truth import run, run64, run_in_precision
from stitchcuda.verify.reference.random_draws import RandomDraws
from stitchcuda.verify.reference.reference import load_reference
from stitchcuda.verify.reference.trusted_reference import TrustedReference
from stitchcuda.verify.timing.timed_calls import TimedCalls
from tests.verify.judge_parts import Bench
from tests.verify.timing_stage import Stage, VirtualClock

SOURCE = """
import torch
from torch import nn

class CLASS(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(32, 32)
        self.drop = nn.Dropout(0.4)

    def forward(self, x):
        start = torch.randn(x.shape[0], 32, device=x.device)
        return FORWARD

def get_inputs():
    return [torch.randn(8, 32)]
"""
FORWARD = "self.drop(torch.tanh(self.linear(x))) + 0.5 * start"


def source(name: str, forward: str = FORWARD) -> str:
    return SOURCE.replace("CLASS", name).replace("FORWARD", forward)


class Drawing(nn.Module):
    def __init__(self, draw: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.draw = draw

    def forward(self, x: Tensor) -> Tensor:
        return self.draw(torch.sin(x))


DRAWS: dict[str, Callable[[Tensor], Tensor]] = {
    "randn": lambda x: x * torch.randn(40, 9),
    "rand_like": lambda x: x * torch.rand_like(x),
    "dropout": lambda x: F.dropout(x, 0.3, True),
    "no_dropout": lambda x: F.dropout(x, 0.3, False) * torch.rand(9),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None], dropout_p=0.2),
    "in_place": lambda x: x * torch.empty(40, 9).normal_(1, 2) + x.clone().exponential_(),
    "bernoulli": lambda x: x * torch.bernoulli(x.abs()),
    "normal": lambda x: torch.normal(x, 0.5),
    "out": lambda x: torch.rand(40, 9, out=torch.empty(40, 9)) + x,
    "integers": lambda x: x[torch.randperm(40)] + x[torch.randint(40, (40,))] + x[torch.multinomial(x[:, 0].abs(), 40)],
    "alpha": lambda x: F.alpha_dropout(x, 0.3, True) + F.dropout1d(x[None], 0.3)[0],
    "written_later": lambda x: torch.rand_like(x).mul_(2).add_(x),
}


@pytest.mark.parametrize("name", DRAWS)
def test_float64_has_the_same_draws(name: str) -> None:
    module, x = Drawing(DRAWS[name]), torch.randn(40, 9)
    found = {}
    for seed in (3, 4):
        drawn = RandomDraws(seed)
        own = run_in_precision(module, (x,), {}, "reference", "cpu", drawn)["output"]
        exact = run64(module, (x,), {}, drawn=drawn)["output"]
        assert exact.dtype == torch.float64
        torch.testing.assert_close(own, exact.float(), rtol=1e-5, atol=1e-5)
        seed_generators(seed)
        assert torch.equal(own, run(module, (x,), {})["output"]), "recording changes nothing"
        found[seed] = own
    assert not torch.equal(found[3], found[4])


@pytest.mark.parametrize(
    ("draw", "said"),
    [
        (lambda x: x + torch.rand(9 if x.dtype == torch.float64 else 1), "draws other random numbers in float64"),
        (lambda x: x + (0 if x.dtype == torch.float64 else torch.rand(9)), "draws other random numbers in float64"),
        (lambda x: x + (torch.rand(9) if x.dtype == torch.float64 else 0), "draws other random numbers in float64"),
        (lambda x: F.rrelu(x, 0.1, 0.9, True), "inside of torch's operator rrelu"),
    ],
)
def test_draws_that_have_no_float64_counterpart_are_refused(draw: Callable[[Tensor], Tensor], said: str) -> None:
    module, drawn = Drawing(draw), RandomDraws(3)
    x = torch.randn(40, 9)

    def compute() -> None:
        run_in_precision(module, (x,), {}, "reference", "cpu", drawn)
        run64(module, (x,), {}, drawn=drawn)

    with pytest.raises(BadInput, match=said):
        compute()


def test_only_a_reference_that_draws_is_called_one(tmp_path: Path) -> None:
    still = source("Model", "self.linear(x)").replace("start =", "start = x #")
    for text, draws in ((source("Model"), ("randn", "bernoulli_")), (still, ())):
        (tmp_path / "reference.py").write_text(text)
        loaded = load_reference(tmp_path / "reference.py")
        loaded.examine()
        assert loaded.draws == draws


def test_ways_to_run_a_reference_are_compared_with_its_draws(tmp_path: Path) -> None:
    (tmp_path / "reference.py").write_text(source("Model"))
    subject = TrustedReference(tmp_path / "reference.py", "cpu", "reference")
    assert subject.disagreement(subject.module) == ""
    assert subject.disagreement(lambda x: (torch.rand(1), subject.module(x))[1])


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    held = Bench(tmp_path_factory.mktemp("bench"), source("Model"))
    yield held
    held.close()


@pytest.mark.parametrize(
    ("forward", "right"),
    [
        (FORWARD, True),
        ("torch.tanh(self.linear(x)) * 0.6 * self.drop(torch.ones_like(x)) / 0.6 + start / 2", True),
        (FORWARD.replace("start", "self.__dict__.setdefault('start', start)"), False),
        (FORWARD.replace("start", "torch.randn_like(start)"), False),
        (FORWARD.replace("start", "0 * start"), False),
        ("torch.tanh(self.linear(x)) + 0.5 * start", False),
        ("(torch.manual_seed(0), " + FORWARD + ")[1]", False),
    ],
)
def test_a_program_must_draw_the_same_numbers(bench: Bench, forward: str, right: bool, tmp_path: Path) -> None:
    assert len({given.draw_seed for given in bench.secret_inputs.sets} - {None}) == 3
    (tmp_path / "new.py").write_text(source("ModelNew", forward))
    with bench.load(tmp_path / "new.py") as loaded:
        result = correctness.check(loaded.trial, bench.secret_inputs, 3, final=True)
    assert result.ok == right, result.reasons
    assert any("draws random numbers (randn, bernoulli_) in forward: torch's generators were" in note for note in result.notes)
    if not right:
        assert "a program must draw the same ones" in result.reasons[-1]


def test_its_inputs_may_leave_the_range_shown(tmp_path: Path) -> None:
    held = Bench(tmp_path, source("Model").replace("[torch.randn(8, 32)]", "[torch.rand(8, 32)]"))
    found, given = held.secret_inputs, held.secret_inputs.sets[1]
    assert given.variant.endswith(BEYOND)
    again = secret_inputs.draw_set(held.ask, found, variants=[given.variant, GIVEN], seed=given.seed)
    assert again.variant == given.variant, "drawn again by its name, it is the same"
    assert all(map(torch.equal, unpack(again.inputs, "cpu"), unpack(given.inputs, "cpu")))
    held.close()


def test_a_timed_call_has_a_seed_of_its_own(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    request = stage.timed_inputs().preparation(trusted=False)
    assert set(request.draw_seeds) == {None}
    draws: list[float] = []
    held = TimedCalls(
        PrepareTiming(**vars(request) | {"draw_seeds": [5] * len(request.inputs)}),
        lambda *given: draws.append(float(torch.rand(()))), VirtualClock(stage.time), device="cpu",
    )  # fmt: skip
    with torch.no_grad():
        held.move(MoveTensors(spacer=0, call=[0, 12, 0], fresh=0))
        held.block(TimeBlock(calls=[[0, 11, 0], [0, 12, 0], [0, 11, 0]], run=True))
        held.lay(LayRow(calls=[[0, 13, 0], [0, 12, 0]]))
        held.row()
    assert draws[1] == draws[3] != draws[2]
    assert draws[0] == draws[2] == draws[-1], "also the last call of a row"
    assert seed_for_turn(None, 7) is None
    assert seed_for_inputs(1) != seed_for_inputs(2)


class Ordered(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        late = torch.rand(4)
        torch.rand(3)                      # nobody uses it, but draws after it depend on it
        early = torch.randn_like(x)
        attention = F.scaled_dot_product_attention(x, x, x)
        return torch.relu(early) + late + attention


def test_draws_of_a_captured_program_keep_their_order() -> None:
    graph = capture(Ordered(), (torch.randn(4, 4),), {})
    drawing = [node.name for node in graph.nodes if node.draws]
    assert [node.op.split(".")[1] for node in graph.nodes if node.draws] == ["rand", "rand", "randn_like"]
    assert [unit.name for unit in schedule(graph) if unit.name in drawing] == drawing
    needed = dependencies(graph)
    assert drawing[1] in needed[drawing[2]]
    assert drawing[0] in needed[drawing[1]]
