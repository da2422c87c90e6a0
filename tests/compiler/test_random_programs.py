"""Random small modules, whole: captured, partitioned, lowered, printed by a random strategy, run, and judged against float64.

Any mix of pointwise chains, broadcasting, reductions, softmaxes, normalisations, residuals, views, casts and updated buffers,
on inputs of any element type and memory layout. The bound is the judge's (`stitchcuda/verify/compare/bound.py`). On the
simulator all drawn programs share one build; on a GPU every program builds itself, as its user's would.
"""

from __future__ import annotations

import copy
import math
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from stitchcuda.compiler.capture.capture import capture
from stitchcuda.compiler.capture.op_graph import OpGraph
from stitchcuda.compiler.codegen.emit import count_variants, emit
from stitchcuda.compiler.lower.ir import Stitch
from stitchcuda.compiler.lower.lower import bind, lower
from stitchcuda.compiler.printing.program import write_program
from stitchcuda.compiler.regions.partition import partition
from stitchcuda.verify.compare import bound
from stitchcuda.verify.integrity.byte_traffic import Poison
from stitchcuda.verify.program.simulated_device import SimulatedDevice
from stitchcuda.verify.reference import float64_truth
from tests.compiler.eager import Function
from tests.compiler.pipeline import load
from tests.compiler.simulated import build
from tests.compiler.test_lower import programs

FLOATS = (torch.float32, torch.float32, torch.bfloat16, torch.float16, torch.float64)
INTEGERS = (torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool)
SIZES = (1, 2, 3, 4, 5, 7, 8, 12, 17, 33)
ELEMENTS = 4000                            # of the largest value: the simulator runs every thread
SETS = 3                                   # input sets per program, as in a session's check


@dataclass(frozen=True)
class Input:
    """A tensor that can be drawn again and again in its layout: any order of memory, gaps, an offset, repeated elements."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    order: tuple[int, ...]
    gaps: tuple[int, ...]
    steps: tuple[int, ...]
    repeated: tuple[bool, ...]

    def make(self, number: int, device: str) -> Tensor:
        sizes = [1 if r else n * s + g for n, g, s, r in zip(self.shape, self.gaps, self.steps, self.repeated, strict=True)]
        memory = _filled([sizes[axis] for axis in self.order], self.dtype, number).to(device)
        view = memory.permute([self.order.index(axis) for axis in range(len(sizes))])
        for axis, (n, gap, step, repeated) in enumerate(zip(self.shape, self.gaps, self.steps, self.repeated, strict=True)):
            if not repeated:
                view = view[(slice(None),) * axis + (slice(gap, gap + n * step, step),)]
        return view.expand(self.shape)


def _filled(sizes: Sequence[int], dtype: torch.dtype, number: int) -> Tensor:
    generator = torch.Generator().manual_seed(number)
    if dtype.is_floating_point:
        return torch.randn(*sizes, generator=generator, dtype=torch.float64).to(dtype)
    low, high = (0, 2) if dtype == torch.bool else (0, 9) if dtype == torch.uint8 else (-9, 9)
    return torch.randint(low, high, tuple(sizes), generator=generator).to(dtype)


@dataclass(frozen=True)
class Fixed:
    """An input of `test_lower.programs`, in the layout that it has there."""

    tensor: Tensor

    def __repr__(self) -> str:
        return f"Fixed({tuple(self.tensor.shape)}, {self.tensor.dtype}, strides {self.tensor.stride()})"

    def make(self, number: int, device: str) -> Tensor:
        memory = self.tensor.untyped_storage().nbytes() // self.tensor.element_size()
        return _filled([memory], self.tensor.dtype, number).to(device).as_strided(self.tensor.shape, self.tensor.stride())


class Stage(nn.Module):
    """One line of a drawn module: a function, or a layer, of earlier values."""

    def __init__(self, text: str, sources: tuple[int, ...], function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.text, self.sources, self.function = text, sources, function

    def forward(self, values: list[Tensor]) -> Tensor:
        return self.function(*[values[source] for source in self.sources])


class Drawn(nn.Module):
    """A drawn module: every stage may read the inputs and all values so far; some values are returned."""

    def __init__(self, stages: Sequence[Stage], results: Sequence[int]) -> None:
        super().__init__()
        self.stages, self.results = nn.ModuleList(stages), tuple(results)

    def forward(self, *inputs: Tensor) -> Any:
        values = list(inputs)
        for stage in self.stages:
            values.append(stage(values))
        return tuple(values[result] for result in self.results)


class Track(nn.Module):
    """Keeps a running mean, as a program's own buffer."""

    average: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("average", torch.tensor(0.25))

    def forward(self, x: Tensor) -> Tensor:
        self.average.mul_(0.9).add_(x.float().mean(), alpha=0.1)
        return x + self.average


class Affine(nn.Module):
    """Gain and bias over some axes."""

    def __init__(self, shape: Sequence[int], dtype: torch.dtype) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(tuple(shape), dtype=dtype))
        self.bias = nn.Parameter(torch.ones(tuple(shape), dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gain + self.bias


POINTWISE: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda a: F.gelu(a, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": F.relu,
    "relu_": lambda a: F.relu(a * 1.5, inplace=True),
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "softplus": F.softplus,
    "hardswish": F.hardswish,
    "clamp": lambda a: a.clamp(-0.7, 1.3),
    "square": lambda a: a * a * 0.25,
    "decay": lambda a: torch.exp(-a.abs()),
    "sin": torch.sin,
    "rational": lambda a: a / (1 + a.abs()),
    "scale": lambda a: 1.5 - a * 0.5,
    "log1p": lambda a: torch.log1p(a.abs()),
    "root": lambda a: (a.abs() + 0.5).sqrt(),
    "float": lambda a: a.float() * 0.75,
    "bfloat16": lambda a: a.to(torch.bfloat16) + 1,
    "half": lambda a: a.half() * 0.5,
    "there_and_back": lambda a: torch.sin(a.double()).to(a.dtype),
}
BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "sub": lambda a, b: a - b * 0.5,
    "gate": lambda a, b: a * torch.sigmoid(b),
    "maximum": torch.maximum,
    "lerp": lambda a, b: a + (b - a) * 0.3,
    "addcmul": lambda a, b: torch.addcmul(a, a, b.to(a.dtype), value=0.5),
}
WHOLE: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "masked_fill": lambda a, n: a.masked_fill(n > 2, -1.0),
    "where": lambda a, n: torch.where(n == 1, a * 0.5, a),
    "count": lambda a, n: a + (n * 3 + 1).to(a.dtype) * 0.125,
    "remainder": lambda a, n: a * (n.int() % 3),
}
REDUCTIONS: dict[str, Callable[[Tensor, tuple[int, ...]], Tensor]] = {
    "center": lambda a, d: a - a.mean(d, keepdim=True),
    "sum": lambda a, d: a.sum(d) * 0.1,
    "mean": lambda a, d: a.mean(d, keepdim=True),
    "amax": lambda a, d: a / (1 + a.abs().amax(d, keepdim=True)),
    "amin": lambda a, d: a.amin(d),
    "var": lambda a, d: a * a.var(d, keepdim=True, unbiased=False),
    "std": lambda a, d: a.std(d, unbiased=True),
    "norm": lambda a, d: a / (0.5 + a.norm(dim=d, keepdim=True)),
    "rms": lambda a, d: a * a.pow(2).mean(d, keepdim=True).add(1e-2).rsqrt(),
    "logsumexp": lambda a, d: a - torch.logsumexp(a, d, keepdim=True),
    "mean_float": lambda a, d: a.float().mean(d),
}
SOFTMAXES: dict[str, Callable[[Tensor, int], Tensor]] = {
    "softmax": torch.softmax,
    "log_softmax": torch.log_softmax,
    "softmin": F.softmin,
    "softmax_float": lambda a, d: torch.softmax(a, d, dtype=torch.float32).to(a.dtype),
}
VIEWS: dict[str, Callable[[Tensor, int, int], Tensor]] = {
    "transpose": lambda a, i, j: a.transpose(i, j),
    "transposed_copy": lambda a, i, j: a.transpose(i, j).contiguous(),
    "gated_halves": lambda a, i, j: F.silu(a.chunk(2, i)[0]) * a.chunk(2, i)[1],
    "slice": lambda a, i, j: a.narrow(i, a.shape[i] // 3, (a.shape[i] + 1) // 2),
    "every_other": lambda a, i, j: a[(slice(None),) * i + (slice(None, None, 2),)],
    "expand": lambda a, i, j: a.narrow(i, 0, 1).expand(a.shape) + a,
    "select": lambda a, i, j: a.select(i, a.shape[i] - 1),
    "flatten": lambda a, i, j: a.flatten(min(i, j), max(i, j)),
    "reshape": lambda a, i, j: a.transpose(i, j).reshape(a.shape) - a,
    "unsqueeze": lambda a, i, j: a.unsqueeze(i),
    "cat": lambda a, i, j: torch.cat([-a, a * 2], i),
    "rotate": lambda a, i, j: torch.cat([-a.chunk(2, i)[-1], a.chunk(2, i)[0]], i),
    "unfold_heads": lambda a, i, j: torch.unflatten(a, i, (-1, 2)),
}


def _norm(draw: st.DrawFn, shape: torch.Size) -> nn.Module:
    """A normalisation layer that may fit a value of this shape (some do not: those are not used)."""
    affine = draw(st.booleans())
    kind = draw(st.sampled_from(("layer", "rms", "group", "batch", "batch", "instance")))
    axes = draw(st.integers(1, max(1, len(shape) - 1)))
    channels = shape[1] if len(shape) > 1 else 1
    if kind == "layer":
        return nn.LayerNorm(shape[-axes:], elementwise_affine=affine)
    if kind == "rms":
        return nn.RMSNorm(shape[-axes:], eps=draw(st.sampled_from((None, 1e-3))), elementwise_affine=affine)
    if kind == "group":
        groups = draw(st.sampled_from([n for n in range(1, channels + 1) if channels % n == 0]))
        return nn.GroupNorm(groups, channels, affine=affine)
    if kind == "instance":
        return (nn.InstanceNorm2d if len(shape) == 4 else nn.InstanceNorm1d)(channels, affine=affine)
    momentum = draw(st.sampled_from((0.1, 0.3)))  # no running count: it would be read back to the host
    return (nn.BatchNorm2d if len(shape) == 4 else nn.BatchNorm1d)(channels, affine=affine, momentum=momentum)


def _stage(draw: st.DrawFn, values: Sequence[Tensor], integers: int) -> Stage:
    """One more stage, mostly of the newest value."""
    last = len(values) - 1
    newest = values[last]
    axis = st.integers(0, max(newest.ndim - 1, 0))
    kind = draw(st.sampled_from(("pointwise", "binary", "affine", "integer", "reduction", "softmax", "norm", "view", "other")))
    if kind == "binary":
        name = draw(st.sampled_from(sorted(BINARY)))
        fitting = [i for i, one in enumerate(values) if one.is_floating_point() and _spreads(one.shape, newest.shape)]
        other = draw(st.sampled_from(fitting))
        return Stage(f"{name}(v{last}, v{other})", (last, other), BINARY[name])
    if kind == "integer" and _spreads(values[integers].shape, newest.shape):
        name = draw(st.sampled_from(sorted(WHOLE)))
        return Stage(f"{name}(v{last}, v{integers})", (last, integers), WHOLE[name])
    if kind == "reduction" and newest.ndim:
        name = draw(st.sampled_from(sorted(REDUCTIONS)))
        dims = tuple(draw(st.lists(axis, min_size=1, max_size=2, unique=True)))
        return Stage(f"{name}(v{last}, {dims})", (last,), lambda a: REDUCTIONS[name](a, dims))
    if kind == "softmax" and newest.ndim:
        name, dim = draw(st.sampled_from(sorted(SOFTMAXES))), draw(axis)
        return Stage(f"{name}(v{last}, {dim})", (last,), lambda a: SOFTMAXES[name](a, dim))
    if kind == "view" and newest.ndim:
        name, i, j = draw(st.sampled_from(sorted(VIEWS))), draw(axis), draw(axis)
        return Stage(f"{name}(v{last}, {i}, {j})", (last,), lambda a: VIEWS[name](a, i, j))
    layer: nn.Module
    if kind == "norm" and newest.ndim > 1:
        layer = _norm(draw, newest.shape)
    elif kind == "other" and draw(st.booleans()):
        layer = Track()
    elif kind == "other" and newest.ndim and newest.shape[-1] > 1:
        layer = nn.Linear(newest.shape[-1], draw(st.sampled_from((4, 6, newest.shape[-1]))))
    elif kind != "affine":
        name = draw(st.sampled_from(sorted(POINTWISE)))
        return Stage(f"{name}(v{last})", (last,), POINTWISE[name])
    else:
        layer = Affine([draw(st.sampled_from((1, n))) for n in newest.shape], torch.float32)
    if not isinstance(layer, Track) and draw(st.integers(0, 3)):
        layer.to(newest.dtype)             # else float32 parameters beside whatever the value is
    return Stage(f"{layer}(v{last})".replace("\n", ""), (last,), layer)


def _spreads(shape: torch.Size, over: torch.Size) -> bool:
    """Whether a tensor of this shape broadcasts to `over`."""
    return len(shape) <= len(over) and all(n in (1, m) for n, m in zip(reversed(shape), reversed(over), strict=False))


@st.composite
def inputs(draw: st.DrawFn, shape: tuple[int, ...], dtypes: Sequence[torch.dtype], whole: bool) -> Input:
    """A tensor of this shape, or (unless `whole`) one that broadcasts to it, in any layout."""
    if not whole:
        shape = tuple(draw(st.sampled_from((n, n, 1))) for n in shape)[draw(st.integers(0, len(shape) - 1)) :]
    rank = len(shape)
    plain = draw(st.booleans())
    order = tuple(range(rank)) if plain else tuple(draw(st.permutations(range(rank))))
    gaps = tuple(0 if plain else draw(st.sampled_from((0, 0, 1, 3, 8))) for _ in shape)
    steps = tuple(1 if plain else draw(st.sampled_from((1, 1, 1, 2))) for _ in shape)
    repeated = tuple(not plain and draw(st.integers(0, 7)) == 7 for _ in shape)
    return Input(shape, draw(st.sampled_from(dtypes)), order, gaps, steps, repeated)


@dataclass
class Case:
    """A module and its inputs; `choices` decides which strategies print its kernels."""

    module: nn.Module
    inputs: tuple[Input | Fixed, ...]
    choices: int

    def __repr__(self) -> str:
        lines = [f"v{i} = {one}" for i, one in enumerate(self.inputs)]
        if isinstance(self.module, Drawn):
            count = len(lines)
            lines += [f"v{count + i} = {stage.text}" for i, stage in enumerate(self.module.stages)]
            lines += [f"return {', '.join(f'v{i}' for i in self.module.results)}"]
        return "\n".join([f"{'training' if self.module.training else 'evaluation'}, choices {self.choices}:", *lines])

    def args(self, number: int, device: str = "cpu") -> tuple[Tensor, ...]:
        return tuple(one.make(17 * number + position, device) for position, one in enumerate(self.inputs))


@st.composite
def drawn(draw: st.DrawFn) -> Case:
    """Three inputs (float of any layout, float that broadcasts, integers that broadcast) and two to eight stages."""
    small = st.lists(st.sampled_from(SIZES), min_size=1, max_size=4)
    shape = tuple(draw(small.filter(lambda sizes: math.prod(sizes) <= ELEMENTS // 4)))
    given = (draw(inputs(shape, FLOATS, True)), draw(inputs(shape, FLOATS, False)), draw(inputs(shape, INTEGERS, False)))
    training, weights = draw(st.booleans()), draw(st.integers(0, 99))
    args = [one.make(position, "cpu") for position, one in enumerate(given)]
    stages, values = [Stage("v0 * 1", (0,), lambda a: a * 1)], [*args, args[0] * 1]
    for _ in range(draw(st.integers(2, 8))):
        stage = _stage(draw, values, 2)
        _shake(stage, weights)
        longer = Drawn([*stages, stage], range(len(values) + 1)).train(training)
        if (result := _tried(longer, args)) is not None:
            stages, values = [*stages, stage], list(result)
    results = {len(values) - 1} | {i for i in range(3, len(values) - 1) if draw(st.integers(0, 4)) == 0}
    module = Drawn(stages, sorted(results)).train(training).requires_grad_(False)
    return Case(module, given, draw(st.integers(0, 999)))


def _shake(module: nn.Module, number: int) -> None:
    """Parameters and running statistics around one."""
    generator = torch.Generator().manual_seed(number)
    for tensor in [*module.parameters(), *module.buffers()]:
        if tensor.is_floating_point():
            tensor.data.copy_(torch.rand(tensor.shape, generator=generator) + (0.5 if tensor.ndim < 2 else -0.5))


def _tried(module: nn.Module, args: Sequence[Tensor]) -> tuple[Tensor, ...] | None:
    """What eager returns; None for what it refuses, and for values that are too many or too large to be judged."""
    try:
        with torch.no_grad():
            result: tuple[Tensor, ...] = copy.deepcopy(module)(*copy.deepcopy(args))
    except (RuntimeError, ValueError, NotImplementedError, IndexError):
        return None
    last = result[-1]
    fine = last.numel() <= ELEMENTS and last.numel() > 0 and bool(last.isfinite().all()) and float(last.abs().max()) < 50
    return result if fine else None


@st.composite
def functions(draw: st.DrawFn) -> Case:
    """The functions that lowering is tested with. Not in bfloat16: there `where(a > b, …)` of computed values jumps, and
    results that differ in the last place, rightly, land on either side."""
    function, tensors = draw(programs().filter(lambda program: program[1][0].dtype != torch.bfloat16))
    return Case(Function(function), tuple(Fixed(tensor) for tensor in tensors), draw(st.integers(0, 999)))


def collected(number: int, count: int) -> list[Case]:
    """`count` random cases, the same for the same number. Each has a run of its own, whose first example is the simplest one
    and whose second is drawn at large: a longer run would mostly vary what it has."""

    def one(position: int) -> Case:
        run: list[Case] = []

        @seed(1000 * number + position)
        @settings(
            max_examples=2, deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck)
        )
        @given(case=st.one_of(drawn(), drawn(), drawn(), functions()))
        def collect(case: Case) -> None:
            run.append(case)

        collect()
        return run[-1]

    return [one(position) for position in range(count)]


def graph_of(case: Case, device: str) -> OpGraph:
    """Captured with the strides that eager really has: torch's fake tensors have others after some operators on a CPU."""
    graph = capture(case.module, case.args(0, device), {}, observe=True)
    assert graph.opaque == "", f"{graph.opaque}\n{case!r}"
    return graph


def stitched(graph: OpGraph, prefix: str, choices: int) -> list[Stitch]:
    """Kernels for most fusible regions, each by a random strategy, under names that no other program has."""
    chance = random.Random(choices)
    stitches = []
    for region in partition(graph):
        if region.kind == "fusible" and chance.random() < 0.9:
            kernel = lower(graph, region)
            kernel = replace(kernel, name=f"{prefix}_{kernel.name}")
            source = emit(kernel, chance.randrange(count_variants(kernel)))
            stitches.append(Stitch(region.id, kernel, source, bind(graph, region, kernel)))
    return stitches


def problems(case: Case, program: nn.Module, device: str = "cpu") -> Iterator[str]:
    """Where the program's outputs, buffers and inputs are not what they should be: every input set judged as in a session."""
    sets = [case.args(number, device) for number in range(SETS)]
    expected = [_on_cpu(float64_truth.run(case.module, args, {})) for args in sets]
    exact = [_on_cpu(float64_truth.run64(case.module, args, {})) for args in sets]
    names = sorted(set().union(*expected))
    bounds = {
        name: bound.bound([own[name] for own in expected if name in own], [e[name] for e in exact if name in e])
        for name in names
    }
    for args, own, true in zip(sets, expected, exact, strict=True):
        given = copy.deepcopy(args)
        program.load_state_dict(case.module.state_dict())
        with torch.no_grad():
            found = float64_truth.name_outputs(program(*given))
        found |= {f"buffer:{key}": value for key, value in program.state_dict().items()}
        found |= {f"input:{position}": value for position, value in enumerate(given)}
        found = _on_cpu(found)
        for name in own:
            if not (verdict := bound.judge(name, found[name], own[name], true[name], bounds[name])).ok:
                yield f"{name} ({found[name].dtype}, {tuple(found[name].shape)}): {verdict.note}; {verdict}"
            if not _same_strides(found[name], own[name]):
                yield f"{name} has strides {found[name].stride()}, eager's has {own[name].stride()}"
        untouched = {f"input:{i}": value for i, value in enumerate(args)}
        untouched |= {f"buffer:{key}": value for key, value in case.module.state_dict().items()}
        untouched = _on_cpu(untouched)
        yield from (f"{name} is not its own to write" for name in untouched
                    if name not in own and not torch.equal(found[name], untouched[name]))  # fmt: skip


def _on_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.cpu() for name, tensor in tensors.items()}


def _same_strides(one: Tensor, other: Tensor) -> bool:
    return all(n <= 1 or a == b for n, a, b in zip(one.shape, one.stride(), other.stride(), strict=True))


def simulate(cases: Sequence[Case], folder: Path) -> int:
    """Runs every case's program on the simulator, all kernels from one build, and fails for what is wrong. Returns how many
    kernels there were."""
    written = []
    for number, case in enumerate(cases):
        graph = graph_of(case, "cpu")
        written.append((graph, stitched(graph, f"p{number}", case.choices)))
    kernels = build([stitch.source for _, stitches in written for stitch in stitches], folder)
    wrong = []
    for number, (case, (graph, stitches)) in enumerate(zip(cases, written, strict=True)):
        model = load(write_program(graph, stitches), folder / f"p{number}")
        model.load_kernels = lambda: kernels
        with SimulatedDevice(), Poison():
            program = model.ModelNew().train(graph.training)
            found = list(problems(case, program))
        if found:
            strategies = [f"{stitch.source.name}: {stitch.source.strategy}" for stitch in stitches]
            wrong.append("\n".join([f"program {number}, {case!r}", *strategies, *found]))
    assert not wrong, "\n\n".join(["", *wrong])
    return sum(len(stitches) for _, stitches in written)


@pytest.fixture
def simulated_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program with kernels asks for a GPU before anything else."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


@pytest.mark.more
@pytest.mark.usefixtures("simulated_gpu")
def test_random_programs_on_the_simulator(tmp_path: Path) -> None:
    cases = collected(0, 25)
    assert len({type(stage.function) for case in cases for stage in getattr(case.module, "stages", ())}) > 5
    assert simulate(cases, tmp_path) > 25


@pytest.mark.long
@pytest.mark.usefixtures("simulated_gpu")
@pytest.mark.parametrize("number", range(1, 13))
def test_many_random_programs_on_the_simulator(number: int, tmp_path: Path) -> None:
    assert simulate(collected(number, 50), tmp_path) > 50


@pytest.mark.gpu
def test_random_programs_on_a_gpu(tmp_path: Path) -> None:
    """Every program builds and loads its kernels itself; then it is judged as it is and as one replayed CUDA graph."""
    cases = collected(100, 24)
    models = []
    for number, case in enumerate(cases):
        case.module.to("cuda")
        graph = graph_of(case, "cuda")
        stitches = stitched(graph, f"p{number}", case.choices)
        models += [
            (case, graph, bool(stitches), load(write_program(graph, stitches, host), tmp_path / f"p{number}{''.join(host)}"))
            for host in ((), ("cuda_graph",))
        ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # the second of each two finds the first's builds
        list(pool.map(lambda entry: entry[3].load_kernels(), [entry for entry in models[::2] if entry[2]]))
    wrong = []
    for number, (case, graph, _, model) in enumerate(models):
        program = model.ModelNew().to("cuda").train(graph.training)
        found = list(problems(case, program, "cuda"))
        if found:
            wrong.append("\n".join([f"program {number // 2}, {'replayed' if number % 2 else 'plain'}, {case!r}", *found]))
    assert not wrong, "\n\n".join(["", *wrong])
