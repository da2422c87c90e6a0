"""Opens a profiler range around each call of a submodule and each torch function in it, named by the module's path.

A profiler that records the ranges can say for which part of a program a kernel was launched. Names are the module's path and
the function, such as `blocks.*.attention: scaled_dot_product_attention`. Blocks that differ by a number alone share a name, so
a reference and a program generated for it, whose modules have the same names, can be compared. A generated program computes in
one flat forward on parameters of its modules: there a function is named after the module that owns the first parameter among
its arguments. Ranges slow the host down, so times of the host are taken without them. This file measures nothing.
Where to look next: `verify/program/profiled_process.py` (who uses it), `tools/profile/nsys_export.py` (who reads the ranges).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name

from stitchcuda.tools.profile.ranges import REGION_PREFIX, ROOT

Push = Callable[[str], object]
Pop = Callable[[], object]


class Regions(TorchFunctionMode):
    """A context in which every forward of `module` calls `push(name)` and `pop()` around its parts. Its hooks are removed when
    the context ends.

    A torch function belongs to the submodule whose forward calls it. A function that `module`'s own forward calls belongs to
    the submodule that owns the first parameter or buffer among its arguments and in lists of them, by identity; if several own
    it, to the first of these. Owners are looked up at the beginning of each call: parameters may be replaced between calls.
    """

    def __init__(self, module: torch.nn.Module, push: Push, pop: Pop) -> None:
        super().__init__()
        self._module, self._push, self._pop = module, push, pop
        self._scopes: list[str] = []
        self._owners: dict[int, tuple[torch.Tensor, str]] = {}
        self._hooks: list[Any] = []

    def __enter__(self) -> Regions:
        self._hooks = [
            hook for name, module in self._module.named_modules() for hook in self._register_hooks(module, scope(name))
        ]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def _register_hooks(self, module: torch.nn.Module, name: str) -> Iterable[Any]:
        def enter(*_: object) -> None:
            if not self._scopes:
                self._owners = _owners(self._module)
            self._scopes.append(name)
            self._push(REGION_PREFIX + name)

        def leave(*_: object) -> None:
            self._scopes.pop()
            self._pop()
            if not self._scopes:
                self._owners = {}

        yield module.register_forward_pre_hook(enter)
        yield module.register_forward_hook(leave, always_call=True)

    def __torch_function__(
        self, function: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if not self._scopes or function.__name__ == "__get__":  # outside of a forward, or an attribute: it computes nothing
            return function(*args, **(kwargs or {}))
        owner = self._find_owner((*args, *(kwargs or {}).values()))
        self._push(f"{REGION_PREFIX}{owner}: {function_name(function)}")
        try:
            return function(*args, **(kwargs or {}))
        finally:
            self._pop()

    def _find_owner(self, arguments: Iterable[object]) -> str:
        """The scope of a function that is called now with these arguments."""
        if self._scopes[-1] == ROOT:
            for argument in arguments:
                for tensor in argument if isinstance(argument, list | tuple) else (argument,):
                    if id(tensor) in self._owners:
                        return self._owners[id(tensor)][1]
        return self._scopes[-1]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        for hook in self._hooks:
            hook.remove()
        self._hooks = []


def _owners(module: torch.nn.Module) -> dict[int, tuple[torch.Tensor, str]]:
    """Returns (tensor, scope) of each submodule's parameters and buffers, by the tensor's id.

    The tensor is held too, so that no other object can get its id meanwhile.
    """
    owners: dict[int, tuple[torch.Tensor, str]] = {}
    for path, tensor in (*module.named_parameters(), *module.named_buffers()):
        if "." in path:
            owners.setdefault(id(tensor), (tensor, scope(path.rpartition(".")[0])))
    return owners


def scope(path: str) -> str:
    """Returns a submodule's name in ranges: `blocks.*.norm` for the path `blocks.3.norm`, `(root)` for the module itself."""
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", path) or ROOT


def function_name(function: Callable[..., Any]) -> str:
    """Returns a short name: `linear` for nn.functional.linear, `matmul` for Tensor.__matmul__, `relu` for Tensor.relu_."""
    name = (resolve_name(function) or getattr(function, "__name__", "") or "call").rpartition(".")[2]
    plain = re.fullmatch(r"__i?(?:r(?=add|sub|mul|truediv|matmul|pow))?(\w+)__", name)
    return (plain.group(1) if plain else name).rstrip("_")
