"""How a program takes over the reference's parameters and buffers: by name, through its own load hooks, or by order and shape.

A foreign program may call them otherwise. What its hooks rename is taken as they say; the rest goes, parameters to parameters
and buffers to buffers, to what is left of the same shape, ones in a shape left out. This runs next to the program: what it says
is missing is kept as constructed only as far as the judge agrees (`verify/ablation/state_mismatch.py`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from stitchcuda.verify.inputs.reseeding import constant
from stitchcuda.verify.program.failures import OtherState, ProgramError

State = Mapping[str, torch.Tensor]
_FEWEST, _ONE_OF = 4, 64                   # numbers of a spare tensor that are changed at a time


class StateLoading:
    """One program's tensors under the reference's names."""

    def __init__(self, program: torch.nn.Module, values: State, message: Mapping[str, Any], *, strict: bool) -> None:
        """Load `values`. Raises `ProgramError`, and `OtherState` where the program lacks more than the judge keeps."""
        self._program = program
        self._values = dict(values)
        self._handed: dict[str, str] = {}  # name in what is loaded: the reference's
        self._places: dict[str, str] = {}  # the reference's name: that in the program's state_dict
        self._shapes: dict[str, torch.Size] = {}
        self.guessed: dict[str, str] = {}  # the same for what was matched by shape
        self.elsewhere: list[str] = []     # taken by a hook in another form, and not read back
        self.missing: list[str] = []
        self.spare: list[tuple[torch.Tensor, torch.Tensor]] = []  # what is the program's own: (tensor, as constructed)
        self.alike: list[str] = []         # what got the value of one that is alike, by its own names
        self._disturbed: int | None = None
        self._instead: dict[str, torch.Tensor] = {}
        own = _tensors(program)
        absent = [name for name in values if name not in own]
        if strict and (absent or own.keys() - values.keys()):
            raise ProgramError(_sentence(absent, [name for name in own if name not in values]))
        if not own and message["parameters"] and not strict:  # ones and zeros of the known seed would be as good as left out
            raise ProgramError(f"the program has no state, and the reference's {len(message['parameters'])} parameters matter")
        same = {name: name for name in values if name in own and own[name].shape == values[name].shape}
        self._handed |= same
        self._places |= same
        if len(same) < len(values):
            self._by_other_names(own, message, strict=strict)
        self.load(self._values)

    def load(self, values: State) -> None:
        """These instead, as somebody would who trained on."""
        self._values = {name: values[name] for name in self._values}
        given = {}
        for key, name in self._handed.items():
            given[key] = values[name].reshape(self._shapes[key]) if key in self._shapes else values[name]
        self._program.load_state_dict(given | self._instead, strict=False)  # buffers of its own stay as they are

    def current(self) -> dict[str, torch.Tensor]:
        """What the program holds now, by the reference's names and in their order."""
        state = self._program.state_dict()
        return {name: _as(state[self._places[name]], value) for name, value in self._values.items() if name in self._places}

    def changed(self) -> bool:
        """Whether it holds something else than was loaded."""
        return any(not torch.equal(one, self._values[name]) for name, one in self.current().items())

    def restore(self) -> None:
        self.load(self._values)

    def disturb(self, number: int) -> None:
        """Some other numbers in one tensor, the spare ones before those that are alike, and in the one before again its own."""
        with torch.no_grad():
            if self._disturbed is not None:
                tensor, was = self.spare[self._disturbed]
                tensor.copy_(was)
            self._disturbed = number if number < len(self.spare) else None
            if self._disturbed is not None:
                tensor, was = self.spare[number]
                tensor.copy_(_disturbed(was))
            else:
                key = self.alike[number - len(self.spare)]
                self._instead = {key: _disturbed(self._values[self._handed[key]].reshape(self._shapes[key]))}
                self.load(self._values)

    def names_of_alike(self) -> list[str]:
        """Whose value of the reference's those have that are alike."""
        return [self._handed[key] for key in self.alike]

    def tensors_to_restore(self, names: Sequence[str]) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
        """(what was loaded, what the program holds now), by the program's own names, of those of the reference's `names`."""
        own = _tensors(self._program) if names else {}
        places = {self._places[name]: name for name in names if name in self._places}
        return {key: _as(self._values[name], own[key]) for key, name in places.items()}, own

    def _by_other_names(self, own: dict[str, torch.Tensor], message: Mapping[str, Any], *, strict: bool) -> None:
        before = {key: tensor.detach().clone() for key, tensor in own.items() if key not in self._places}
        fed, left = self._by_hook(before, strict=strict)
        tied: dict[str, str] = message["tied"]
        wanted = [name for name in left if name not in message["kept"] and tied.get(name, name) == name]
        free = {key: tensor for key, tensor in before.items() if key not in fed}
        self._by_shape(wanted, free, set(message["parameters"]), set(message["alike"]))
        for name in left:                  # the same memory as another one in the reference, so one of them is enough
            if (place := self._places.get(tied.get(name, ""))) is not None:
                self._places[name] = place
            elif tied.get(name) in self.elsewhere:
                self.elsewhere.append(name)
        self.missing = [name for name in left if name not in self._places and name not in self.elsewhere]
        spare = [key for key, was in free.items() if key not in self._handed and _plain(was)]
        self.spare = [(own[key], before[key]) for key in spare]
        if not set(self.missing) <= set(message["kept"]):
            raise OtherState(_sentence(self.missing, spare), self.missing, sum(self.spare_sizes()))

    def spare_sizes(self) -> list[int]:
        """How many numbers of its own each spare tensor has, whatever its shape says: what shares memory counts once."""
        counted: dict[int, int] = {}       # by memory: how many are counted
        found = []
        for tensor, _ in self.spare:
            memory = tensor.untyped_storage()
            most = memory.nbytes() // tensor.element_size() - counted.get(memory.data_ptr(), 0)
            reached = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
            found.append(max(0, min(tensor.numel(), reached, most)))
            counted[memory.data_ptr()] = counted.get(memory.data_ptr(), 0) + found[-1]
        return found

    def _by_hook(self, before: dict[str, torch.Tensor], *, strict: bool) -> tuple[set[str], list[str]]:
        """(names of the program's that its hooks filled, names of the reference's that nothing took)."""
        rest = [name for name in self._values if name not in self._places]
        odd = [name for name in rest if name in before]
        try:
            if strict and odd:             # a folder promises the reference's own names and shapes
                raise RuntimeError
            said = self._program.load_state_dict(dict(self._values), strict=False)
        except RuntimeError:
            if not odd:
                raise
            has, wants = tuple(before[odd[0]].shape), tuple(self._values[odd[0]].shape)
            raise ProgramError(f"the program's {odd[0]} has shape {has}, the reference's {wants}") from None
        after = _tensors(self._program)
        unfed, unused = getattr(said, "missing_keys", None), getattr(said, "unexpected_keys", None)
        filled = {key for key, was in before.items() if not _equal(was, after.get(key))}
        if isinstance(unfed, list) and isinstance(unused, list):
            fed = [key for key in before if key not in unfed]
        else:                              # its own load_state_dict, which says nothing
            fed, unused = list(filled), rest if len(filled) < len(before) else []
        for name in rest:
            # What stayed as it was tells nothing unless a hook took the name: torch itself puts missing counters there.
            keys = [key for key in fed if name not in unused or key in filled]
            place = next((key for key in keys if _equal(self._values[name], after.get(key))), None)
            if place is not None:
                fed.remove(place)
                filled.add(place)
                self._places[name] = place
            elif name not in unused:
                self.elsewhere.append(name)
            else:
                continue
            self._handed[name] = name
        return filled, [name for name in rest if name not in self._handed]

    def _by_shape(self, wanted: list[str], free: dict[str, torch.Tensor], parameters: set[str], alike: set[str]) -> None:
        """Match in order what has one shape and is as many or more in the program; of those that are `alike` any is any."""
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
                plain = [key for key in keys if constant(free[key])]
                keys = plain if len(plain) >= len(names) else keys
            if len(keys) < len(names):
                continue
            equal = set(names) <= alike    # then more than there are names may be copies of one
            for number, key in enumerate(keys if equal else keys[: len(names)]):
                self._handed[key] = names[min(number, len(names) - 1)]
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


def _form(tensor: torch.Tensor) -> tuple[tuple[int, ...], bool]:
    """What must be the same: the shape but for ones, and whether it holds numbers with a fraction."""
    return tuple(size for size in tensor.shape if size != 1), tensor.is_floating_point()


def _as(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return tensor.reshape(like.shape) if tensor.shape != like.shape and _form(tensor) == _form(like) else tensor


def _equal(one: torch.Tensor, other: torch.Tensor | None) -> bool:
    return other is not None and one.shape == other.shape and torch.equal(one, other)


def _disturbed(was: torch.Tensor) -> torch.Tensor:
    """Few other numbers, at random places: a tensor of which hardly anything is read is told from one that is needed."""
    places = torch.randperm(was.numel())[: max(_FEWEST, was.numel() // _ONE_OF)].to(was.device)
    flat = was.flatten().clone()
    some = flat[places].float()
    flat[places] = (some + (0.5 + torch.rand_like(some)) * (1 + some.abs())).to(was.dtype)
    return flat.reshape(was.shape)


def _plain(tensor: torch.Tensor) -> bool:
    """Whether it holds numbers with a fraction in memory of its own."""
    return tensor.is_floating_point() and tensor.layout is torch.strided
