"""Names what a module does while it does it: a range around each call of a submodule and each torch function in it.

A profiler that sees the ranges can say which part of a program a kernel was launched for. Names are the module's path and the
function, such as `blocks.*.attention: scaled_dot_product_attention`; blocks that differ by a number alone share one, so a
reference and its stitched program, whose modules are named alike, can be held side by side. It slows the host down, so times
of the host are taken without it. It measures nothing. Where to look next: `profiled.py` (who runs it), `nsys_export.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

import torch
from torch.overrides import TorchFunctionMode, resolve_name

from stitchcuda.tools.running.ranges import REGION_PREFIX, ROOT

Push = Callable[[str], object]
Pop = Callable[[], object]


class Regions(TorchFunctionMode):
    """In force, every forward of `module` says by `push` and `pop` where it is. Leaving it takes the hooks away."""

    def __init__(self, module: torch.nn.Module, push: Push, pop: Pop) -> None:
        super().__init__()
        self._push, self._pop = push, pop
        self._scopes: list[str] = []
        names = {id(one): scope(name) for name, one in module.named_modules()}
        self._hooks = [hook for one in module.modules() for hook in self._around(one, names[id(one)])]

    def _around(self, module: torch.nn.Module, name: str) -> Iterable[Any]:
        def enter(*_: object) -> None:
            self._scopes.append(name)
            self._push(REGION_PREFIX + name)

        def leave(*_: object) -> None:
            self._scopes.pop()
            self._pop()

        yield module.register_forward_pre_hook(enter)
        yield module.register_forward_hook(leave, always_call=True)

    def __torch_function__(
        self, function: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if not self._scopes or function.__name__ == "__get__":  # between calls: nobody's; attributes compute nothing
            return function(*args, **(kwargs or {}))
        self._push(f"{REGION_PREFIX}{self._scopes[-1]}: {function_name(function)}")
        try:
            return function(*args, **(kwargs or {}))
        finally:
            self._pop()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)  # type: ignore[no-untyped-call]
        for hook in self._hooks:
            hook.remove()
        self._hooks = []


def scope(path: str) -> str:
    """`blocks.*.norm` for `blocks.3.norm`; `(root)` for the module itself."""
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", path) or ROOT


def function_name(function: Callable[..., Any]) -> str:
    """`linear` for torch.nn.functional.linear, `matmul` for Tensor.__matmul__, as people say it."""
    name = (resolve_name(function) or getattr(function, "__name__", "") or "call").rpartition(".")[2]
    plain = re.fullmatch(r"__i?(?:r(?=add|sub|mul|truediv|matmul|pow))?(\w+)__", name)
    return (plain.group(1) if plain else name).rstrip("_")
