"""Holds the functions and the class that are copied word for word into every program that needs them.

`compiler/printing/program.py` reads this file as text; nothing imports it there, because a program is free of stitchcuda. So it
may use torch and the standard library only. As it is real code, it is linted, typed and tested here.

Where to look next: `compiler/printing/program.py` (which part goes into which program), `compiler/printing/constructor.py`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn


def container(program: nn.Module, path: Sequence[str]) -> nn.Module:
    """The submodule at `path`; what is missing on the way becomes a bare module (`fill_lists` finishes them)."""
    owner = program
    for part in path:
        if part not in owner._modules:
            owner.add_module(part, nn.Module())
        owner = owner.get_submodule(part)
    return owner


def place(program: nn.Module, key: str, tensor: Tensor, *, parameter: bool, persistent: bool = True) -> None:
    """Registers a tensor under its state_dict key."""
    *path, name = key.split(".")
    owner = container(program, path)
    if not parameter:
        owner.register_buffer(name, tensor, persistent=persistent)
    elif name in owner._parameters:  # of a recurrent layer, which keeps a list of its weights
        setattr(owner, name, nn.Parameter(tensor, requires_grad=False))
    else:
        owner.register_parameter(
            name, tensor if isinstance(tensor, nn.Parameter) else nn.Parameter(tensor, requires_grad=False)
        )


def unfilled(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """NaN (zero for integers) until load_state_dict brings the reference's values."""
    return torch.empty_strided(shape, strides, dtype=dtype).fill_(
        math.nan if dtype.is_floating_point or dtype.is_complex else 0
    )


def fill_lists(module: nn.Module) -> None:
    """Turns containers whose children are numbered into lists, so that `self.blocks[0]` works; keys do not change."""
    for name, child in list(module.named_children()):
        fill_lists(child)
        numbers = [int(part) for part in child._modules if part.isdigit()]
        if numbers and len(numbers) == len(child._modules) and not child._parameters and not child._buffers:
            parts = {str(index): nn.Module() for index in range(max(numbers) + 1)} | dict(child.named_children())
            module._modules[name] = nn.ModuleList(parts.values())


def read_constants() -> dict[str, Tensor]:
    """The tensors of constants.safetensors: a length, a JSON header, then the bytes."""
    data = Path(__file__).with_name("constants.safetensors").read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    dtypes = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64}
    dtypes |= {"C64": torch.complex64, "U16": torch.uint16, "U32": torch.uint32, "U64": torch.uint64}
    dtypes |= {"I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool}
    tensors = {}
    for key, entry in json.loads(data[8:start]).items():
        if key != "__metadata__":
            first, last = entry["data_offsets"]
            flat = torch.frombuffer(bytearray(data[start + first : start + last] or b"\0" * 16), dtype=dtypes[entry["dtype"]])
            tensors[key] = flat[: math.prod(entry["shape"])].reshape(entry["shape"])
    return tensors


def check_inputs(
    tensors: tuple[Tensor, ...], contracts: Sequence[tuple[str, tuple[int, ...], torch.dtype, tuple[int, ...]]]
) -> None:
    """Refuses what this program was not made for, in one sentence."""
    for tensor, (name, shape, dtype, strides) in zip(tensors, contracts, strict=True):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a tensor, not a {type(tensor).__name__}.")
        if tensor.shape != shape:
            raise ValueError(
                f"{name} has shape {tuple(tensor.shape)}; this program is for {shape} only: optimize again for others."
            )
        if tensor.dtype != dtype:
            raise TypeError(f"{name} is {tensor.dtype}; this program takes {dtype}: convert it with .to({dtype}).")
        if tensor.stride() != strides and any(
            size > 1 and one != other for size, one, other in zip(shape, tensor.stride(), strides, strict=True)
        ):
            compact = torch.empty(shape, device="meta").stride() == strides
            raise ValueError(
                f"{name} has strides {tensor.stride()}; this program takes "
                + (f"contiguous tensors: call {name}.contiguous() first." if compact else f"strides {strides} only.")
            )
        if tensor.requires_grad and torch.is_grad_enabled():
            raise RuntimeError("This program computes no gradients: call it under torch.no_grad() or detach the input.")
        if tensor.device != tensors[0].device:
            raise ValueError(
                f"{name} is on {tensor.device} and {contracts[0][0]} on {tensors[0].device}: put them on one device."
            )


def distinct(tensor: Tensor) -> Tensor:
    """A view of an expanded tensor that has each repeated element once: the part that can be copied into."""
    sizes = [size if stride else min(size, 1) for size, stride in zip(tensor.shape, tensor.stride(), strict=True)]
    return tensor.as_strided(sizes, tensor.stride())


def split_weight(weight: Tensor, pieces: int = 1) -> tuple[Tensor, Tensor]:
    """[N, K] fp32 as [N, 3K] fp16 (high, low and high parts of each piece of a row, scaled by a power of two), and [N, 1] that
    undoes the scales. Infinities and NaN are in the last part only."""
    largest = weight.abs().amax(-1, keepdim=True).clamp(2.0**-100, 2.0**127)
    scale = torch.exp2(14.0 - torch.floor(torch.log2(largest)))
    scaled = weight * scale
    high = scaled.half()
    finite = high.float().isfinite()
    low = torch.where(finite, scaled - high.float(), 0.0).half()
    parts = [part.view(len(weight), pieces, -1) for part in (torch.where(finite, high, 0.0), low, high)]
    return torch.cat(parts, -1).flatten(1), scale.reciprocal()


def channels_last(weight: Tensor) -> tuple[Tensor]:
    """A convolution's weight with its channels last in memory."""
    return (weight.contiguous(memory_format=torch.channels_last),)


class Prepared:
    """Tensors that follow from a parameter alone, as attributes beside it. They are made at the first call, and anew where the
    parameter has changed since: where it is another tensor, lies elsewhere, or was written to."""

    def __init__(
        self, program: nn.Module, table: Sequence[tuple[str, Callable[[Tensor], tuple[Tensor, ...]], tuple[str, ...]]]
    ) -> None:
        self.program, self.table = program, table
        self.owners: list[nn.Module] = []  # of the table's parameters
        self.seen: dict[str, tuple[Tensor, int, int]] = {}  # kept alive, so that no new tensor takes an old address

    def __getstate__(self) -> dict[str, Any]:
        """A copied or pickled program makes its own."""
        return {"program": self.program, "table": self.table, "owners": [], "seen": {}}

    def update(self) -> bool:
        """Makes what is missing or old, and says whether there was any."""
        made = False
        if not self.owners:                # found once: each call comes here
            self.owners = [self.program.get_submodule(key.rpartition(".")[0]) for key, _, _ in self.table]
        for owner, (key, make, names) in zip(self.owners, self.table, strict=True):
            source = owner._parameters[key.rpartition(".")[2]]
            assert source is not None
            version = -1 if source.is_inference() else source._version  # inference tensors do not count
            last = self.seen.get(key)
            if last and last[0] is source and last[1:] == (source.data_ptr(), version) and version >= 0:
                continue
            with torch.no_grad():
                for attribute, tensor in zip(names, make(source.detach()), strict=True):
                    setattr(owner, attribute, tensor)
            self.seen[key] = (source, source.data_ptr(), version)
            made = True
        return made


class GraphReplay:
    """Records one call as a CUDA graph and replays it: one launch instead of hundreds.

    Inputs are copied into static buffers; outputs are copied out by the caller. It records again when a parameter, a buffer
    or the device changes. What the call updates (state by key, inputs by position) and the state of the random generator are
    put back after warming up, so that one call is one update.
    """

    def __init__(
        self,
        program: nn.Module,
        compute: Callable[..., tuple[Tensor, ...]],
        state: Sequence[str] = (),
        inputs: Sequence[int] = (),
    ) -> None:
        self.program, self.compute, self.updated, self.written = program, compute, tuple(state), tuple(inputs)
        self.forget()

    def forget(self) -> None:
        self.graph: torch.cuda.CUDAGraph | None = None
        self.static: list[Tensor] = []
        self.targets: list[Tensor] = []
        self.outputs: tuple[Tensor, ...] = ()
        self.slots: list[tuple[Any, str]] = []
        self.seen: list[Tensor] = []
        self.pointers: list[int] = []

    def __getstate__(self) -> dict[str, Any]:
        """A copied or pickled program records for itself."""
        return {name: self.__dict__[name] for name in ("program", "compute", "updated", "written")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.forget()

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        graph = self.graph
        stale = self.static == [] or self.static[0].device != inputs[0].device or (bool(self.updated) and self.moved())
        if graph is not None and not stale:
            for target, given in zip(self.targets, inputs, strict=True):
                target.copy_(given if target.shape == given.shape else distinct(given))
            graph.replay()
            # Where nothing is updated, a replay on tensors that were replaced since does no harm: look while the device works.
            stale = not self.updated and self.moved()
        if graph is None or stale:
            graph = self.record(inputs)
            graph.replay()
            self.graph = graph
        for position in self.written:
            inputs[position].copy_(self.static[position])
        return self.outputs

    def moved(self) -> bool:
        """Whether a parameter or buffer is another tensor than the one in the graph."""
        return [holder[name].data_ptr() for holder, name in self.slots] != self.pointers

    def record(self, inputs: tuple[Tensor, ...]) -> torch.cuda.CUDAGraph:
        device = inputs[0].device
        if device.type != "cuda":
            raise RuntimeError(
                f"This program replays a CUDA graph: move it and its inputs to an NVIDIA GPU (they are on {device})."
            )
        self.forget()
        given = [distinct(t) for t in inputs]
        self.static = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=device) for t in inputs]
        self.targets = [distinct(t) for t in self.static]
        for target, value in zip(self.targets, given, strict=True):
            target.copy_(value)
        state = dict(self.program.named_parameters()) | dict(self.program.named_buffers())
        updated = [state[key].detach() for key in self.updated]
        saved = [tensor.clone() for tensor in updated]
        drawn = torch.cuda.get_rng_state(device)
        current, side = torch.cuda.current_stream(device), torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        side.wait_stream(current)
        with torch.cuda.stream(side):
            for _ in range(3):
                self.compute(*self.static)
        current.wait_stream(side)
        for tensor, value in zip([*updated, *self.targets], [*saved, *given], strict=True):
            tensor.copy_(value)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(device), torch.cuda.graph(graph):
            self.outputs = self.compute(*self.static)
        torch.cuda.set_rng_state(drawn, device)
        holders = [held for module in self.program.modules() for held in (module._parameters, module._buffers)]
        self.slots = [(held, name) for held in holders for name in held if held[name] is not None]
        self.seen = [held[name] for held, name in self.slots]  # kept alive, so that no new tensor takes an old address
        self.pointers = [tensor.data_ptr() for tensor in self.seen]
        return graph
