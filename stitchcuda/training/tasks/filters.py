"""Puts a task through its filters, on small inputs on the CPU, and says which one refuses it and why.

Each filter is a question about the program as text: does it run, is every part of it needed, can a verdict on it mean anything.
"Same" and "differs" are the verifier's own bound throughout: a change that would pass as rounding counts as none.
Where to look next: `verify/compare/degenerate_outputs.py`, `verify/compare/bound.py` (the verifier's tests that are used here),
`training/tasks/candidate.py` (who asks), `training/tasks/decontamination.py`.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from stitchcuda.training.tasks.scaling import define
from stitchcuda.verify.compare import bound
from stitchcuda.verify.compare.degenerate_outputs import find_degenerate

FILTERS = (
    "duplicate", "held out", "runs", "finite", "deterministic", "constant", "degenerate", "every input", "exports",
    "no dead operator", "compiles", "does not fold", "size", "not trivial",
)  # fmt: skip
"""In the order in which they are asked; a task counts for the first that refuses it. The first two and the last three are asked
in `training/tasks/candidate.py`."""
LARGEST = 1e6                              # magnitude of an output
_SEEDS = (11, 12)
_LEAST = 0.01                              # share of an output that a node or other inputs have to change, in norm
_LEAST_WHOLE = 0.2                         # that a whole composed operator, or an input of a composed task, has to change
_TINY = 1e-3                               # a constant that is added against division by zero


class Refused(Exception):
    """A filter refuses the task. `filter`: one of FILTERS."""

    def __init__(self, filter_: str, why: str) -> None:
        super().__init__(why)
        self.filter = filter_
        self.why = " ".join(why.split())[:300]


def examine(source: str, *, without: Sequence[tuple[str, str]] | None = None, inductor: bool = False) -> None:
    """Asks the filters from "runs" to "compiles" about a task's text. Raises Refused.

    `without`: of a composed task, (name, text without it) for each operator that may be left out; its inputs matter more.
    `inductor`: torch.compile with its code generation, which takes seconds; else only what precedes it (Dynamo's capture and
    the functional graph, `aot_eager`).
    """
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        task = _Task(source)
        task.ask_for_values()
        task.ask_for_every_input(_LEAST if without is None else _LEAST_WHOLE)
        program = task.export()
        task.ask_for_operators(without or ())
        task.ask_for_dead_nodes(program)
        task.ask_torch_compile("inductor" if inductor else "aot_eager")


class _Task:
    """A task's text, called several times: in its own precision (`own`) and in float64 (`exact`), for two sets of inputs."""

    def __init__(self, source: str) -> None:
        try:
            self.names = define(source)
            self.inputs = [self._draw(seed) for seed in _SEEDS]
            self.own = [self._outputs(self.build(), given) for given in self.inputs]
        except Exception as error:         # whatever the text does
            raise Refused("runs", f"{type(error).__name__}: {error}") from error
        if not self.own[0]:
            raise Refused("runs", "returns no tensor")

    def build(self, names: Mapping[str, Any] | None = None) -> nn.Module:
        """The model with parameters drawn from one seed. `names`: of another text with the same parameters."""
        names = self.names if names is None else names
        torch.manual_seed(1)
        model: nn.Module = names["Model"](*names.get("get_init_inputs", list)())
        for parameter in model.parameters():  # as the verifier does: a scale of ones would look like an operator without effect
            parameter.add_(torch.randn_like(parameter) * (0.1 * parameter.abs().mean() + 0.01))
        torch.manual_seed(99)              # of what `forward` may draw
        return model

    def _draw(self, seed: int) -> list[Any]:
        torch.manual_seed(seed)
        return list(self.names["get_inputs"]())

    def _outputs(self, model: Callable[..., Any], given: Sequence[Any]) -> list[Tensor]:
        result = model(*pytree.tree_map_only(Tensor, Tensor.clone, list(given)))
        return [leaf.clone() for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]

    def ask_for_values(self) -> None:
        for tensor in self.own[0]:
            if tensor.is_floating_point() and not bool(tensor.isfinite().all() and tensor.abs().max() <= LARGEST):
                raise Refused("finite", f"an output reaches {tensor.abs().max():.3g}")
        rebuilt = self.build()
        torch.manual_seed(12345)
        again = self._outputs(rebuilt, self.inputs[0])
        if not all(torch.equal(a, b) for a, b in zip(self.own[0], again, strict=True)):
            raise Refused("deterministic", "other outputs when it is built again and the generator is in another state")
        self.exact = [self._in_float64(self.build(), given, own) for given, own in zip(self.inputs, self.own, strict=True)]
        pairs = [*zip(self.own, self.exact, strict=True)]
        places = range(len(self.own[0]))
        self.bounds = [bound.bound([own[at] for own, _ in pairs], [exact[at] for _, exact in pairs]) for at in places]
        other = self.build()
        torch.manual_seed(7)
        for parameter in other.parameters():
            parameter.add_(torch.randn_like(parameter) * (0.3 * parameter.abs().mean() + 0.01))
        names = [f"output {place}" for place in places]
        reweighed = dict(zip(names, self._in_float64(other, self.inputs[0], self.own[0]), strict=True))
        parameters = sum(parameter.numel() for parameter in other.parameters())
        _, found = find_degenerate(names, pairs, reweighed, dict(zip(names, self.bounds, strict=True)), parameters, "cpu")
        for name, why in found.items():
            raise Refused("constant" if why.startswith("is constant") else "degenerate", f"{name} {why}")

    def _in_float64(self, model: nn.Module, given: Sequence[Any], own: Sequence[Tensor]) -> list[Tensor]:
        """The outputs in float64; where the text holds to fp32, its own outputs stand for them."""
        wide = pytree.tree_map_only(Tensor, lambda leaf: leaf.double() if leaf.is_floating_point() else leaf, list(given))
        try:
            return [tensor.double() if tensor.is_floating_point() else tensor for tensor in self._outputs(model.double(), wide)]
        except (RuntimeError, TypeError):
            return [tensor.double() if tensor.is_floating_point() else tensor for tensor in own]

    def same(self, outputs: Sequence[Tensor]) -> bool:
        """Whether all outputs would pass as those of the first set of inputs."""
        return all(
            bound.judge("output", given, own, exact, allowed).ok
            for given, own, exact, allowed in zip(outputs, self.own[0], self.exact[0], self.bounds, strict=True)
        )

    def nearly_same(self, outputs: Sequence[Tensor], least: float = _LEAST) -> bool:
        """Whether all outputs have the shapes of those of the first set of inputs, and differ from them by less than a share of
        what varies in them."""
        return self._are_close(outputs, least, _change)

    def _are_close(self, outputs: Sequence[Tensor], least: float, change: Callable[[Tensor, Tensor], float]) -> bool:
        shapes = [leaf.shape for leaf in outputs] == [leaf.shape for leaf in self.own[0]]
        return shapes and all(change(given, own) < least for given, own in zip(outputs, self.own[0], strict=True))

    def ask_for_every_input(self, least: float) -> None:
        tensors = [place for place, value in enumerate(self.inputs[0]) if isinstance(value, Tensor)]
        for place in tensors[1:] if len(tensors) > 1 else ():  # a single one was exchanged before
            self._ask_for_input(place, least)
        if len(tensors) > 1:
            self._ask_for_input(tensors[0], least)

    def _ask_for_input(self, place: int, least: float) -> None:
        mixed = [*self.inputs[0]]
        mixed[place] = self.inputs[1][place]
        if self.nearly_same(self._outputs(self.build(), mixed), least):
            raise Refused("every input", f"outputs hardly depend on input {place}")

    def export(self) -> torch.export.ExportedProgram:
        try:
            return torch.export.export(self.build(), tuple(self.inputs[0]), strict=False)
        except Exception as error:         # torch.export has no common base class for what it cannot do
            raise Refused("exports", f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}") from error

    def ask_for_operators(self, without: Sequence[tuple[str, str]]) -> None:
        for name, text in without:
            names = define(text)
            try:
                outputs = self._outputs(self.build(names=names), self.inputs[0])
            except (NameError, UnboundLocalError, RuntimeError):  # later lines need what it makes
                continue
            if self._are_close(outputs, _LEAST_WHOLE, _change_of_form):
                raise Refused("no dead operator", f"without the {name}, less than {_LEAST_WHOLE:.0%} of the output changes")

    def ask_for_dead_nodes(self, program: torch.export.ExportedProgram) -> None:
        module = program.module()
        assert isinstance(module, fx.GraphModule)
        state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
        for node in _candidates(module, self.inputs[0]):
            module.load_state_dict(state)  # batch norm updates it
            without = _Without(module, node)
            results = pytree.tree_leaves(without.run(*pytree.tree_leaves(self.inputs[0])))
            outputs = [leaf for leaf in results if isinstance(leaf, Tensor)]
            if self.nearly_same(outputs):
                raise Refused("no dead operator", f"leaving out {node.target} ({node.name}) changes next to nothing")

    def ask_torch_compile(self, backend: str) -> None:
        torch._dynamo.reset()
        try:
            outputs = self._outputs(torch.compile(self.build(), backend=backend, fullgraph=True), self.inputs[0])
        except Exception as error:         # whatever torch.compile cannot do
            raise Refused("compiles", f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}") from error
        finally:
            torch._dynamo.reset()
        if not self.same(outputs):
            raise Refused("compiles", "torch.compile gives other outputs")


def _change(given: Tensor, own: Tensor) -> float:
    """The norm of the difference over that of what varies in `own`: its distance from its mean, or itself if it is one number.
    Of integers and booleans, the share of those that differ."""
    if not own.is_floating_point():
        return float((given != own).double().mean())
    own, given = own.double(), given.double()
    varying = own - own.mean() if own.numel() > 1 else own
    return float((given - own).norm() / varying.norm().clamp(min=1e-300))


def _change_of_form(given: Tensor, own: Tensor) -> float:
    """The change that is left when the best factor and the best summand are applied to all of `given`: a gate that is the same
    everywhere changes nothing."""
    if not own.is_floating_point() or own.numel() == 1:
        return _change(given, own)
    given, varying = given.double() - given.double().mean(), own.double() - own.double().mean()
    factor = (given * varying).sum() / given.square().sum().clamp(min=1e-300)
    return _change(factor * given, varying)


class _Without(fx.Interpreter):
    """Runs a graph without one node: what it takes is passed on where shape and dtype allow, else zeros (or the opposite)."""

    def __init__(self, module: fx.GraphModule, left_out: fx.Node) -> None:
        super().__init__(module)
        self.left_out = left_out

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n is not self.left_out:
            return result
        taken = [self.env[argument] for argument in n.all_input_nodes]
        alike = [t for t in taken if isinstance(t, Tensor) and t.shape == result.shape and t.dtype == result.dtype]
        if result.dtype is torch.bool:
            return ~result
        return alike[0].clone() if alike else torch.zeros_like(result)


class _Recorded(fx.Interpreter):
    """Runs a graph and keeps every value."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)


def _candidates(module: fx.GraphModule, given: Sequence[Any]) -> list[fx.Node]:
    """Returns the nodes that compute a tensor of numbers: no views, copies, updates in place, guards against
    zero (clamping, a tiny constant added), or operators without inputs."""
    recorded = _Recorded(module)
    recorded.run(*pytree.tree_leaves(list(given)))
    found = []
    for node in module.graph.nodes:
        value = recorded.env.get(node)
        if node.op != "call_function" or not isinstance(value, Tensor) or not node.all_input_nodes:
            continue
        name = getattr(getattr(node.target, "_schema", None), "name", str(node.target)).rpartition("::")[2]
        tiny = name in ("add", "sub") and isinstance(node.args[1], float) and abs(node.args[1]) <= _TINY
        kept = tiny or name.startswith(("clamp", "_to_copy")) or name.endswith("_")
        kept = kept or name in ("contiguous", "clone", "to", "alias", "detach", "expand")
        memory = {taken.untyped_storage().data_ptr() for taken in _taken(recorded, node)}
        numbers = value.is_floating_point() or value.dtype is torch.bool
        if numbers and not kept and value.untyped_storage().data_ptr() not in memory:
            found.append(node)
    return found


def _taken(recorded: fx.Interpreter, node: fx.Node) -> list[Tensor]:
    values = [recorded.env[argument] for argument in node.all_input_nodes]
    if node.target is operator.getitem:    # a part of what a split returned is a view of what was split
        values += [recorded.env[inner] for argument in node.all_input_nodes for inner in argument.all_input_nodes]
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor)]
