"""Calls the reference and names what it returns and writes in place, in its own precision or in float64 from end to end.

Every error bound is measured against the float64 run, so no float32 rounding may hide in its middle: a dispatch mode turns
explicit casts inside the forward pass (`x.float()`, `dtype=torch.float32`, float32 constants) into float64 too. Module and
inputs stay as they were. It compares nothing.
Where to look next: `verify/compare/bound.py` (the bound), `verify/reference/reference.py` (how a reference is loaded).
"""

from __future__ import annotations

import copy
import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from stitchcuda.compiler.capture.kept_attributes import kept_attributes
from stitchcuda.errors import BadInput
from stitchcuda.state import Precision
from stitchcuda.verify.inputs.reference_requests import CallHabits
from stitchcuda.verify.integrity.call_effects import CallEffects, output_marks, overlapping
from stitchcuda.verify.messages import gpu_memory, wire
from stitchcuda.verify.messages.shared_tensors import group_by_memory, is_dense, replace_tensors
from stitchcuda.verify.reference.random_draws import RandomDraws, ReplayedDraws, draws
from stitchcuda.verify.reference.running_sums import Float32RunningSums

_WIDER = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
    torch.complex32: torch.complex128,
}

Row = Sequence[tuple[tuple[Any, ...], dict[str, Any]]]
"""(args, kwargs) of calls one after the other."""

AUTOCAST: dict[Precision, torch.dtype] = {"fp16": torch.float16, "bf16": torch.bfloat16}

_HIGHER_ORDER = re.compile(r"There was no rule registered for HigherOrderOperator (\w{1,60}) and mode")


def name_outputs(result: Any, name: str = "output") -> dict[str, Tensor]:
    """Returns the tensors of a nested result by path: `output`, `output.0`, `output.logits.1`. A part that is None is skipped.

    Raises `BadInput` for sparse, nested or quantised tensors, and for anything that is no tensor and no nested tuple, list,
    dict or dataclass of tensors.
    """
    if result is None:
        return {}
    if isinstance(result, Tensor):
        if not is_dense(result):
            raise BadInput(f"The reference returns a sparse, nested or quantised tensor as {name}: return dense ones.")
        return {name: result}
    if isinstance(result, dict):
        parts = [(str(key), part) for key, part in result.items()]
    elif dataclasses.is_dataclass(result) and not isinstance(result, type):
        parts = [(field.name, getattr(result, field.name)) for field in dataclasses.fields(result)]
    elif isinstance(result, tuple | list):
        parts = [(str(position), part) for position, part in enumerate(result)]
    else:
        raise BadInput(
            f"The reference gives an object of type {type(result).__name__} as {name}; "
            "return tensors or nested tuples, lists, dicts or dataclasses of them."
        )
    return {key: value for label, part in parts for key, value in name_outputs(part, f"{name}.{label}").items()}


def run(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Tensor]:
    """Returns the named outputs of one call, without gradients, plus the new values of what the call wrote: `buffer:KEY` for
    buffers and parameters (such as BatchNorm's running statistics), `input:N` for the N-th input tensor."""
    return _run_row(module, [(args, kwargs)])[0]


def _run_row(
    module: nn.Module, row: Row, convert: Callable[[Tensor], Tensor] | None = None,
    around: Sequence[AbstractContextManager[Any]] = (),
) -> list[dict[str, Tensor]]:  # fmt: skip
    """Returns for each call of a row what `run` returns for the first, each on the state that the one before left; later calls
    have at least the first one's names. `convert`: of state and inputs. `around`: a context for each call."""
    found: list[dict[str, Tensor]] = []
    with private_state(module, convert):
        for number, arguments in enumerate(row):
            given, named = copy_arguments(arguments)
            if convert:
                given, named = replace_tensors((given, named), convert)
            with around[number] if around else nullcontext():
                outputs = _call_and_compare(module, given, named)
            if found:                      # state that only some calls write
                state = {f"buffer:{key}": tensor for key, tensor in _state(module).items()}
                outputs |= {name: state[name] for name in found[0] if name not in outputs and name in state}
                outputs = {name: outputs[name] for name in dict.fromkeys((*found[0], *outputs)) if name in outputs}
            last = number + 1 == len(row)
            found.append(outputs if last else {name: _apart(name, value) for name, value in outputs.items()})
    return found


def _apart(name: str, value: Tensor) -> Tensor:
    """A copy of what a later call may write to."""
    return copy.deepcopy(value) if name.startswith("buffer:") else value


def allow_tf32(precision: Precision) -> None:
    """Lets products and convolutions of this process use TF32 if that is the session's precision."""
    if precision == "tf32":
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True


def in_precision(precision: Precision, device: str) -> AbstractContextManager[Any]:
    """A context with autocast to the session's precision: the reference's own error sets the bound, so it runs as the user
    would run it."""
    return torch.autocast(device, dtype=AUTOCAST[precision]) if precision in AUTOCAST else nullcontext()


def run_in_precision(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], precision: Precision, device: str,
    drawn: RandomDraws | None = None,
) -> dict[str, Tensor]:  # fmt: skip
    """`run_row_in_precision` for a single call."""
    return run_row_in_precision(module, [(args, kwargs)], precision, device, [drawn] if drawn else ())[0]


def run_row_in_precision(
    module: nn.Module, row: Row, precision: Precision, device: str, drawn: Sequence[RandomDraws] = (),
    watch: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> list[dict[str, Tensor]]:  # fmt: skip
    """Returns what `run` returns for each of the calls in a row, each on the state that the one before left, with
    autocast to `precision`, in the dtypes that the outputs have without it. `drawn`: records the random numbers that each call
    draws, after its seed. `watch`: makes a context for each call, within all others. On the CPU, running sums are added as a
    GPU adds them."""
    given: Sequence[RandomDraws | None] = drawn or [None] * len(row)
    around = [_nested(draws.recorded() if draws else nullcontext(), watch()) for draws in given]
    with in_precision(precision, device), Float32RunningSums() if device == "cpu" else nullcontext():
        found = _run_row(module, row, around=around)
    if precision not in AUTOCAST:
        return found
    plain = _run_row(module, row)
    return [
        {name: value.to(other[name].dtype) for name, value in outputs.items()}
        for outputs, other in zip(found, plain, strict=True)
    ]


@contextmanager
def _nested(outer: AbstractContextManager[Any], inner: AbstractContextManager[Any]) -> Iterator[None]:
    with outer, inner:
        yield


def second_run(
    module: nn.Module, first: tuple[Any, Any], second: tuple[Any, Any], seed: Callable[[], None] = lambda: None
) -> tuple[dict[str, Tensor], CallHabits]:
    """Returns what `run` returns for `second` (args, kwargs), after a call with `first`, and what else such a call does. `seed`
    is called between the two.

    Parameters and buffers are put back in between, so the result differs from `run(module, *second)` only where the module
    keeps state elsewhere, such as in an attribute.
    """
    with private_state(module) as renew:
        given, named = copy_arguments(first)
        with torch.no_grad():
            module(*given, **named)
        del given, named
        renew()
        seed()
        habits: list[CallHabits] = []
        given, named = copy_arguments(second)
        return _call_and_compare(module, given, named, habits), habits[0]


def run64(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], *, on_cpu: bool = False, drawn: RandomDraws | None = None
) -> dict[str, Tensor]:
    """`run_row64` for a single call."""
    return run_row64(module, [(args, kwargs)], on_cpu=on_cpu, drawn=[drawn] if drawn else ())[0]


def run_row64(
    module: nn.Module, row: Row, *, on_cpu: bool = False, drawn: Sequence[RandomDraws] = ()
) -> list[dict[str, Tensor]]:
    """Returns what `run` returns for each of the calls (args, kwargs) in a row, each on the state that the one before left,
    computed in float64 (complex128) throughout. Integer and boolean tensors keep their types.

    `on_cpu`: it is computed there, wherever module and inputs are, and stays there. `drawn`: random numbers that were recorded
    in the reference's own precision; they are used in place of new ones. Raises `BadInput` where the forward
    reinterprets bits (`view(dtype)`) or uses a higher-order operator such as `torch.cond`.
    """
    def convert(tensor: Tensor) -> Tensor:
        return _widen(tensor.cpu() if on_cpu else tensor)

    replays = [draws.replay() for draws in drawn]
    try:
        with _default_dtype(torch.float64):
            modes = [_Promotion(replays[number] if replays else None) for number in range(len(row))]
            outputs = _run_row(module, row, convert, modes)
        for replay in replays:
            replay.check_all_used()
        return outputs
    except NotImplementedError as error:
        if operator := higher_order_operator(str(error)):
            raise BadInput(
                f"The reference uses torch's operator {operator}, which runs other functions: what these do has no float64 "
                "counterpart here. Write the choice or the loop in plain Python."
            ) from error
        raise


def higher_order_operator(complaint: str) -> str:
    """Returns the operator's name, such as "cond", if `complaint` is torch's message that a dispatch mode cannot look into a
    higher-order operator; "" for other messages."""
    found = _HIGHER_ORDER.search(complaint)
    return found[1] if found else ""


@contextmanager
def private_state(module: nn.Module, convert: Callable[[Tensor], Tensor] | None = None) -> Iterator[Callable[[], None]]:
    """A context in which the module's parameters and buffers hold copies, converted if that is asked for. Afterwards they hold
    what they held, and the modules have the attributes that they had. Yields what gives them fresh copies again.

    The module itself is called and not a copy of it, since a function that it keeps may refer to it. Where two copies of its
    state have no room on the GPU, the one that is kept lies on the host.
    """
    tensors = list({id(tensor): tensor for tensor in _state(module).values()}.values())
    values = [tensor.data for tensor in tensors]
    kept = [value.to("cpu", copy=True) for value in values] if convert is None and _is_scarce(values) else None

    def renew() -> None:
        for tensor, value in zip(tensors, values, strict=True):
            tensor.data = value            # the copy before is free before the next one is made
        if kept is not None:
            with torch.no_grad():
                for value, own in zip(values, kept, strict=True):
                    value.copy_(own)
            return
        for tensor, copied in zip(tensors, _copies(values), strict=True):
            tensor.data = convert(copied) if convert else copied

    try:
        with kept_attributes(module):
            if kept is None:
                renew()
            yield renew
    finally:
        if kept is not None:
            renew()
        for tensor, value in zip(tensors, values, strict=True):
            tensor.data = value


def _is_scarce(tensors: Sequence[Tensor]) -> bool:
    """Whether the GPU has too little memory left for two copies of these tensors."""
    sizes = [tensor.nbytes for tensor in tensors if tensor.is_cuda]
    if not sizes or not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # tensors of a simulated GPU
        return False
    return 2 * sum(sizes) > gpu_memory.free_and_total()[0] + gpu_memory.unused()


def _copies(tensors: Sequence[Tensor]) -> Iterator[Tensor]:
    """Yields deep copies, which have the same strides and share memory as the tensors do."""
    storages = Counter(tensor.untyped_storage()._cdata for tensor in tensors)
    memo: dict[int, Any] = {}
    for tensor in tensors:
        alone = storages[tensor.untyped_storage()._cdata] == 1 and tensor.is_contiguous()
        yield tensor.clone() if alone else copy.deepcopy(tensor, memo)


def copy_arguments(arguments: Any) -> Any:
    """Returns deep copies that keep strides (`clone` alone would compact a sliced or expanded tensor) and shared memory."""
    return replace_tensors(arguments, lambda tensor: copy.deepcopy(tensor.detach()))


def _widen(tensor: Tensor) -> Tensor:
    wider = _WIDER.get(tensor.dtype)
    return tensor if wider is None else tensor.to(wider)


def _call_and_compare(
    module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], habits: list[CallHabits] | None = None
) -> dict[str, Tensor]:
    """Calls `module` itself and returns its outputs, and what differs afterwards from before among its state and inputs.
    `habits` gets what else the call does."""
    leaves = [value for value in pytree.tree_leaves((args, kwargs)) if isinstance(value, Tensor)]
    given = name_outputs(leaves, "input")
    before = {key: (tensor, tensor._version) for key, tensor in _state(module).items()}
    # BatchNorm's kernels do not bump the version of the statistics they write, so buffers are compared by value.
    values = {key: tensor.detach().clone() for key, tensor in module.named_buffers()}
    versions = {key: tensor._version for key, tensor in given.items()}
    with torch.no_grad():
        effects = CallEffects(module, (args, kwargs)) if habits is not None else None
        result = module(*args, **kwargs)
        settings = effects.settings() if effects else []
        results = name_outputs(result)
        outputs = {name: value.detach() for name, value in results.items()}
        returned = tuple(outputs)
    for key, tensor in _state(module).items():
        replaced = key not in before or before[key][0] is not tensor or before[key][1] != tensor._version
        if replaced or (key in values and not _same(values[key], tensor)):
            outputs[f"buffer:{key}"] = tensor.detach()
    # What is put back, or changes in the next call.
    states = (*(tensor for tensor, _ in before.values()), *_state(module).values())
    held = {tensor.untyped_storage()._cdata for tensor in states}
    if habits is not None and effects is not None:
        memories = held | {leaf.untyped_storage()._cdata for leaf in leaves}
        habits.append(CallHabits(
            structure=_encode(result),
            lent=tuple(name for name in returned if outputs[name].untyped_storage()._cdata in memories),
            overlapping=tuple(
                (returned[left], returned[right]) for left, right in overlapping([outputs[name] for name in returned])
            ),
            marks=tuple((name, mark) for name, value in results.items() for mark in output_marks(value)),
            module_changed=tuple(effects.module_changed()),
            changes_arguments=effects.arguments_changed(),
            settings=tuple(settings),
            moves_generators=effects.generators_moved(),
        ))  # fmt: skip
    outputs = {
        name: copy.deepcopy(value) if value.untyped_storage()._cdata in held else value for name, value in outputs.items()
    }
    written = {int(key.removeprefix("input.")) for key, tensor in given.items() if tensor._version != versions[key]}
    for sharing in group_by_memory(leaves):         # inputs that share memory: a write to any of them changes the others
        if written.intersection(sharing):
            written.update(sharing)
    outputs |= {f"input:{position}": leaves[position] for position in sorted(written)}
    return outputs


def _encode(result: Any) -> Any:
    """A result's structure; None where no program could return the same."""
    try:
        return wire.encode(result, [])
    except wire.WireError:
        return None


def _same(left: Tensor, right: Tensor) -> bool:
    """Whether the values are equal, NaN being equal to NaN."""
    return torch.equal(left, right) or bool(torch.allclose(left, right, rtol=0, atol=0, equal_nan=True))


def _state(module: nn.Module) -> dict[str, Tensor]:
    return dict(module.named_parameters()) | dict(module.named_buffers())


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    previous = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(previous)


class _Promotion(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that hands every operator float64 tensors and dtypes only, whatever the module asked for.

    Arguments that an operator writes to are left as they are: a copy would be written to in their place. With a `replay`,
    operators that draw random numbers give those of a call that was recorded.
    """

    def __init__(self, replay: ReplayedDraws | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._replay = replay

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.view.dtype:
            raise BadInput("The reference reinterprets a tensor's bits (view with a dtype), which has no float64 counterpart.")
        written = {argument.name for argument in func._schema.arguments if argument.alias_info and argument.alias_info.is_write}
        names = [argument.name for argument in func._schema.arguments]
        wide = [item if name in written else self._wide(item) for name, item in zip(names, args, strict=False)]
        named = {name: item if name in written else self._wide(item) for name, item in (kwargs or {}).items()}
        if self._replay and draws(func, wide):
            return self._wide(self._replay.draw(func, wide, named))
        if func is torch.ops.aten._grouped_mm.default:
            return _grouped_products(*wide, **named)
        return func(*wide, **named)

    def _wide(self, item: Any) -> Any:
        if isinstance(item, Tensor):
            return _widen(item)
        if isinstance(item, torch.dtype):
            return _WIDER.get(item, item)
        if isinstance(item, tuple | list):
            return type(item)(self._wide(part) for part in item)
        return item


def _grouped_products(
    left: Tensor, right: Tensor, ends: Tensor | None = None, bias: Tensor | None = None, out_dtype: torch.dtype | None = None
) -> Tensor:
    """What torch's `_grouped_mm`, of which it has no float64, computes of a batch of matrices or of groups of rows; rows in no
    group are zero. `left`: [rows, inner] or [groups, rows, inner]; `right`: [groups, inner, columns]; `ends` [groups]."""
    if bias is not None or right.dim() != 3:
        raise BadInput("torch._grouped_mm of groups of columns, or with a bias, has no float64 counterpart here.")
    if ends is None or left.dim() == 3:
        return left @ right
    made, begin = left.new_zeros(left.shape[0], right.shape[2]), 0
    for group, end in enumerate(ends.tolist()):
        made[begin:end] = left[begin:end] @ right[group]
        begin = end
    return made
