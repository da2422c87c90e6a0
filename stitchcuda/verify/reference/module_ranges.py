"""Names what a module does while it does it: a range around each call of a submodule and each torch function in it.

A profiler that sees the ranges can say which part of a program a kernel was launched for. Names are the module's path and the
function, such as `blocks.*.attention: scaled_dot_product_attention`; blocks that differ by a number alone share one, so a
reference and its stitched program, whose modules are named alike, can be held side by side. A program computes all in one flat
forward, on parameters of its modules: there a function that takes one is named after the module that the parameter belongs to.
It slows the host down, so times of the host are taken without it. It measures nothing.
Where to look next: `verify/program/profiled_process.py` (who runs it), `tools/profile/nsys_export.py`.
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
    """In force, every forward of `module` says by `push` and `pop` where it is. Leaving it takes the hooks away.

    A torch function is of the submodule whose forward calls it. One that `module`'s own forward calls is of the submodule that
    owns the first parameter or buffer among its arguments and in lists of them, by identity; if several own it, of the first.
    Who owns what is asked anew at the beginning of each call: parameters may be replaced between calls.
    """

    def __init__(self, module: torch.nn.Module, push: Push, pop: Pop) -> None:
        super().__init__()
        self._module, self._push, self._pop = module, push, pop
        self._scopes: list[str] = []
        self._owners: dict[int, tuple[torch.Tensor, str]] = {}
        self._hooks: list[Any] = []

    def __enter__(self) -> Regions:
        self._hooks = [hook for name, one in self._module.named_modules() for hook in self._around(one, scope(name))]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def _around(self, module: torch.nn.Module, name: str) -> Iterable[Any]:
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
        if not self._scopes or function.__name__ == "__get__":  # between calls: nobody's; attributes compute nothing
            return function(*args, **(kwargs or {}))
        place = self._place((*args, *(kwargs or {}).values()))
        self._push(f"{REGION_PREFIX}{place}: {function_name(function)}")
        try:
            return function(*args, **(kwargs or {}))
        finally:
            self._pop()

    def _place(self, given: Iterable[object]) -> str:
        """The scope of a function that is called now with these arguments."""
        if self._scopes[-1] == ROOT:
            for one in given:
                for tensor in one if isinstance(one, list | tuple) else (one,):
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
    """The scope of each submodule's tensors, by id; with the tensor, so that no other gets its id as long as this is kept."""
    owners: dict[int, tuple[torch.Tensor, str]] = {}
    for path, tensor in (*module.named_parameters(), *module.named_buffers()):
        if "." in path:
            owners.setdefault(id(tensor), (tensor, scope(path.rpartition(".")[0])))
    return owners


def scope(path: str) -> str:
    """`blocks.*.norm` for `blocks.3.norm`; `(root)` for the module itself."""
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", path) or ROOT


def function_name(function: Callable[..., Any]) -> str:
    """`linear` for torch.nn.functional.linear, `matmul` for Tensor.__matmul__, as people say it."""
    name = (resolve_name(function) or getattr(function, "__name__", "") or "call").rpartition(".")[2]
    plain = re.fullmatch(r"__i?(?:r(?=add|sub|mul|truediv|matmul|pow))?(\w+)__", name)
    return (plain.group(1) if plain else name).rstrip("_")
