"""Loads the reference's parameters and buffers into a program: by name, through its load hooks, or by order and shape.

A program in a folder must have the reference's names and shapes. A program that is a single file may name its tensors
otherwise: what its load hooks rename is taken as they say. The rest goes, in order, parameters to parameters and buffers to
buffers, to tensors that are left over and have the same shape (sizes of 1 not counted). What nothing takes is reported as
missing; whether a program may lack it, the judge decides. This code runs in the process of the program.
Where to look next: `verify/ablation/state_mismatch.py` (the judge's decision), `verify/program/program_worker.py` (who calls
it).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from stitchcuda.counts import counted
from stitchcuda.verify.inputs.integer_values import SMALLEST
from stitchcuda.verify.inputs.reseeding import is_constant, random_places
from stitchcuda.verify.messages.program_requests import LoadSettings
from stitchcuda.verify.messages.shared_tensors import as_real, flat_parts
from stitchcuda.verify.program.buffer_restoring import held_tensor
from stitchcuda.verify.program.failures import OtherState, ProgramError

State = Mapping[str, torch.Tensor]
_SAME_SUM = 1e-9                           # sums of the same numbers in another order differ by less, relative to their size
_FEWEST, _ONE_OF = 4, 64                   # how many numbers of a tensor `disturb` changes: 4, or 1 of 64 if that is more


class StateLoading:
    """A program's tensors under the reference's names.

    `guessed`: names matched by shape alone, the reference's to the program's. `elsewhere`: names that a load hook took in
    another form, which cannot be read back. `missing`: names that nothing took. `spare`: floating-point tensors of the program
    that correspond to nothing in the reference, each as (tensor, copy of it as constructed). `updated`: names of the
    reference's state that its calls change. `alike`: the program's names that were matched within a group of interchangeable
    constants. `packed`: names of tensors beside the state that the constructor made of parameters (`find_packed`).
    """

    def __init__(self, program: torch.nn.Module, values: State, settings: LoadSettings, *, strict: bool) -> None:
        """Loads `values`, by the reference's names; they may lie on the host. `strict`: names and shapes must be the
        reference's. Raises `ProgramError`, and `OtherState` where the program lacks more than `kept` of the settings."""
        self._program = program
        self.packed = find_packed(program)
        self.updated = frozenset(settings.updated)
        self._values = dict(values)
        self._sources: dict[str, str] = {}  # key given to load_state_dict: the reference's name whose value it gets
        self._places: dict[str, str] = {}  # the reference's name: the name in the program's state_dict
        self._shapes: dict[str, torch.Size] = {}  # shape in the program of keys that were matched by shape
        self.guessed: dict[str, str] = {}
        self.elsewhere: list[str] = []
        self.missing: list[str] = []
        self.spare: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.alike: list[str] = []
        self._disturbed: int | None = None  # position in `spare` of the tensor that is disturbed now
        self._instead: dict[str, torch.Tensor] = {}  # disturbed value of one key of `alike`
        own = _tensors(program)
        absent = [name for name in values if name not in own]
        if strict and (absent or own.keys() - values.keys()):
            raise ProgramError(_sentence(absent, [name for name in own if name not in values]))
        if not own and settings.parameters and not strict:  # it could have constants of the reference compiled in
            parameters = counted(len(settings.parameters), "parameter")
            matter = "matters" if len(settings.parameters) == 1 else "matter"
            raise ProgramError(f"the program has no state, and the reference's {parameters} {matter}")
        same = {name: name for name in values if name in own and own[name].shape == values[name].shape}
        self._sources |= same
        self._places |= same
        if len(same) < len(values):
            self._match_other_names(own, settings, strict=strict)
        self.load(self._values)

    def load(self, values: State) -> None:
        """Loads other values, by the reference's names, as a user does after more training."""
        self._values = {name: values[name] for name in self._values}
        given = {}
        for key, name in self._sources.items():
            given[key] = values[name].reshape(self._shapes[key]) if key in self._shapes else values[name]
        self._program.load_state_dict(given | self._instead, strict=False)  # buffers of its own stay as they are

    def held(self) -> dict[str, torch.Tensor]:
        """Returns what the program keeps in parameters and buffers, by the reference's names, found without its code."""
        held = {name: held_tensor(self._program, place) for name, place in self._places.items()}
        return {name: tensor for name, tensor in held.items() if tensor is not None}

    def left_alone(self) -> dict[str, torch.Tensor]:
        """Those of them that the reference's calls leave alone."""
        return {name: tensor for name, tensor in self.held().items() if name not in self.updated}

    def current(self) -> dict[str, torch.Tensor]:
        """Returns what the program holds now, by the reference's names, in their order and shapes; without what is missing or
        elsewhere.

        It is looked up without code of the program, which might compute it only when asked. Only what the reference's calls
        leave alone may come from a state_dict of the program's own; raises `ProgramError` for the rest.
        """
        held = self.held()
        lacking = [name for name in self._places if name not in held]
        if unheld := sorted(self.updated.intersection(lacking)):
            raise ProgramError(f"the program keeps {unheld[0]}, which the reference updates, in no buffer or parameter")
        state = self._program.state_dict() if lacking else {}
        found = {name: held[name] if name in held else state[place] for name, place in self._places.items()}
        return {name: _reshape_as(found[name], value) for name, value in self._values.items() if name in found}

    def changed(self) -> bool:
        """Whether the program holds something else than was loaded."""
        return any(not _equal(tensor, self._values[name]) for name, tensor in self.current().items())

    def restore(self) -> None:
        """Loads the values of the last `load` again."""
        self.load(self._values)

    def disturb(self, number: int) -> None:
        """Changes some numbers of one tensor at random, and gives the tensor disturbed before its own numbers back.

        `number` counts through `spare` and then through `alike`.
        """
        with torch.no_grad():
            if self._disturbed is not None:
                tensor, was = self.spare[self._disturbed]
                tensor.copy_(was)
            self._disturbed = number if number < len(self.spare) else None
            if self._disturbed is not None:
                tensor, was = self.spare[number]
                tensor.copy_(_change_some(was))
            else:
                key = self.alike[number - len(self.spare)]
                self._instead = {key: _change_some(self._values[self._sources[key]].reshape(self._shapes[key]))}
                self.load(self._values)

    def names_of_alike(self) -> list[str]:
        """Returns for each tensor of `alike` the reference's name whose value it got."""
        return [self._sources[key] for key in self.alike]

    def tensors_to_restore(self, names: Sequence[str]) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """Returns, by the program's own names, (the values loaded for the reference's `names`, all tensors that the program
        holds now)."""
        own = _tensors(self._program) if names else {}
        places = {self._places[name]: name for name in names if name in self._places}
        return {key: _reshape_as(self._values[name], own[key]).to(own[key].device) for key, name in places.items()}, own

    def _match_other_names(self, own: dict[str, torch.Tensor], settings: LoadSettings, *, strict: bool) -> None:
        before = {key: tensor.detach().clone() for key, tensor in own.items() if key not in self._places}
        filled, left = self._match_by_hook(before, strict=strict)
        tied = settings.tied
        wanted = [name for name in left if name not in settings.kept and tied.get(name, name) == name]
        free = {key: tensor for key, tensor in before.items() if key not in filled}
        self._match_by_shape(wanted, free, set(settings.parameters), set(settings.alike))
        for name in left:                  # a second name of the same memory in the reference: the first is enough
            if (place := self._places.get(tied.get(name, ""))) is not None:
                self._places[name] = place
            elif tied.get(name) in self.elsewhere:
                self.elsewhere.append(name)
        self.missing = [name for name in left if name not in self._places and name not in self.elsewhere]
        spare = [key for key, was in free.items() if key not in self._sources and _is_plain(was)]
        self.spare = [(own[key], before[key]) for key in spare]
        if not set(self.missing) <= set(settings.kept):
            raise OtherState(_sentence(self.missing, spare), self.missing, sum(self.spare_sizes()))

    def spare_sizes(self) -> list[int]:
        """Returns how many numbers each spare tensor really has: numbers that share memory count once, whatever shapes say."""
        counted: dict[int, int] = {}       # by address of the memory: how many numbers of it are counted already
        found = []
        for tensor, _ in self.spare:
            memory = tensor.untyped_storage()
            most = memory.nbytes() // tensor.element_size() - counted.get(memory.data_ptr(), 0)
            reached = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
            found.append(max(0, min(tensor.numel(), reached, most)))
            counted[memory.data_ptr()] = counted.get(memory.data_ptr(), 0) + found[-1]
        return found

    def _match_by_hook(self, before: dict[str, torch.Tensor], *, strict: bool) -> tuple[set[str], list[str]]:
        """Loads all values and looks which of the program's tensors changed. Returns (the program's names that its hooks
        filled, the reference's names that nothing took)."""
        rest = [name for name in self._values if name not in self._places]
        misshapen = [name for name in rest if name in before]
        try:
            if strict and misshapen:       # a program in a folder must have the reference's own names and shapes
                raise RuntimeError
            report = self._program.load_state_dict(dict(self._values), strict=False)
        except RuntimeError:
            if not misshapen:
                raise
            has, wants = tuple(before[misshapen[0]].shape), tuple(self._values[misshapen[0]].shape)
            raise ProgramError(f"the program's {misshapen[0]} has shape {has}, the reference's {wants}") from None
        after = _tensors(self._program)
        missing, unused = getattr(report, "missing_keys", None), getattr(report, "unexpected_keys", None)
        filled = {key for key, was in before.items() if not _equal(was, after.get(key))}
        if isinstance(missing, list) and isinstance(unused, list):
            loaded = [key for key in before if key not in missing]
        else:                              # the program's own load_state_dict, which reports nothing
            loaded, unused = list(filled), rest if len(filled) < len(before) else []
        for name in rest:
            # A tensor that did not change counts only if a hook took the name: torch reports BatchNorm's counters as loaded,
            # even where they were missing.
            keys = [key for key in loaded if name not in unused or key in filled]
            place = next((key for key in keys if _equal(self._values[name], after.get(key))), None)
            if place is not None:
                loaded.remove(place)
                filled.add(place)
                self._places[name] = place
            elif name not in unused:
                self.elsewhere.append(name)
            else:
                continue
            self._sources[name] = name
        return filled, [name for name in rest if name not in self._sources]

    def _match_by_shape(self, wanted: list[str], free: dict[str, torch.Tensor], parameters: set[str], alike: set[str]) -> None:
        """Matches names in order within each shape, where the program has at least as many tensors of it as are wanted.

        Names in `alike` have equal values, so any of their tensors may be any other; surplus tensors of their shape get the
        value too, as they may be copies.
        """
        own = {name for name, _ in self._program.named_parameters(remove_duplicate=False)}
        theirs: dict[Any, list[str]] = defaultdict(list)
        ours: dict[Any, list[str]] = defaultdict(list)
        for name in wanted:
            theirs[name in parameters, *_form(self._values[name])].append(name)
        for key, tensor in free.items():
            ours[key in own, *_form(tensor)].append(key)
        for form, names in theirs.items():
            keys = ours[form]
            if set(names) <= alike:
                plain = [key for key in keys if is_constant(free[key])]
                keys = plain if len(plain) >= len(names) else keys
            if len(keys) < len(names):
                continue
            equal = set(names) <= alike
            for number, key in enumerate(keys if equal else keys[: len(names)]):
                self._sources[key] = names[min(number, len(names) - 1)]
                self._shapes[key] = free[key].shape
                self.alike += [key] if equal else []
            self.guessed |= dict(zip(names, keys, strict=False))
        self._places |= self.guessed


def _sentence(lacks: Sequence[str], adds: Sequence[str]) -> str:
    parts = [f"lacks {', '.join(lacks[:4])}"] if lacks else []
    parts += [f"adds {', '.join(adds[:4])}"] if adds else []
    return f"the program's state_dict is not the reference's: it {' and '.join(parts)}"


def _tensors(program: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: value for name, value in program.state_dict().items() if isinstance(value, torch.Tensor)}


def _form(tensor: torch.Tensor) -> tuple[tuple[int, ...], bool, bool]:
    """What must be equal to match by shape: the sizes other than 1, and whether it holds floats, complex numbers or others."""
    return tuple(size for size in tensor.shape if size != 1), tensor.is_floating_point(), tensor.is_complex()


def _reshape_as(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(like.shape) if tensor.shape != like.shape and _form(tensor) == _form(like) else tensor


def _equal(left: torch.Tensor, right: torch.Tensor | None) -> bool:
    """Whether shapes and values are the same. Compares a part at a time: there may be no memory for a copy of all."""
    if right is None or left.shape != right.shape:
        return False
    parts = zip(flat_parts(left), flat_parts(right), strict=True)
    return all(torch.equal(part, other.to(part.device)) for part, other in parts)


def _change_some(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a copy with few numbers changed, at random places: outputs are then right if hardly any number is read."""
    some = max(_FEWEST, tensor.numel() // _ONE_OF)
    places = random_places(tensor.numel(), some, torch.default_generator).to(tensor.device)
    flat = tensor.flatten().clone()
    old = flat[places] if flat.is_complex() else flat[places].float()
    flat[places] = (old + (0.5 + torch.rand_like(old.abs())) * (1 + old.abs())).to(tensor.dtype)
    return flat.reshape(tensor.shape)


def _is_plain(tensor: torch.Tensor) -> bool:
    """Whether it is a dense tensor of floats or complex numbers."""
    return (tensor.is_floating_point() or tensor.is_complex()) and tensor.layout is torch.strided


def find_packed(program: torch.nn.Module) -> list[str]:
    """Names of a constructed program's attributes and non-persistent buffers that hold the numbers of one of its parameters, in
    any order and rounded to any dtype, in memory of their own: what is loaded later does not reach them."""
    parameters = [as_real(tensor) for _, tensor in torch.nn.Module.named_parameters(program)]
    memory = {tensor.untyped_storage().data_ptr() for tensor in parameters}
    found = []
    for prefix, module in torch.nn.Module.named_modules(program):
        for name, value in {**module._buffers, **vars(module)}.items():
            persistent = name in module._buffers and name not in module._non_persistent_buffers_set
            if persistent or not isinstance(value, torch.Tensor) or not _is_plain(value) or value.numel() < SMALLEST:
                continue
            if value.untyped_storage().data_ptr() in memory:
                continue
            value = as_real(value)
            if any(value.numel() == other.numel() and _same_numbers(value, other) for other in parameters):
                found.append(f"{prefix}.{name}" if prefix else name)
    return found


def _same_numbers(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors hold the same numbers in some order, of which one number alone is no sign."""
    left, right = left.detach().double(), right.detach().to(left.dtype).double()
    sums = [(float(tensor.sum()), float(tensor.abs().sum())) for tensor in (left, right)]
    return not is_constant(left) and all(abs(a - b) <= _SAME_SUM * sums[0][1] for a, b in zip(*sums, strict=True))
