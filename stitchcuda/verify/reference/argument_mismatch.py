"""Whether what `get_inputs()` and `get_init_inputs()` give fits what takes it, in words.

Asked only after a call has raised: what Python cannot tell beforehand (hooks, wrappers) is then nobody's fault. It calls
nothing. Where to look next: `verify/reference/reference.py`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from stitchcuda.counts import counted


def misfit(given: tuple[tuple[Any, ...], dict[str, Any]], by: str, taker: Callable[..., Any], name: str, path: Path) -> str:
    """"get_inputs() gives 3 values, but forward takes (x, y) (line 9 of model.py)"; "" where they fit or nobody can tell.

    `by` is who gave the arguments ("": nobody), `taker` what took them, under that `name`.
    """
    args, kwargs = given
    try:
        signature = inspect.signature(taker)
    except (TypeError, ValueError):
        return ""
    takes, inner = list(signature.parameters.values()), inspect.unwrap(taker)
    if inspect.isclass(inner):
        inner = inner.__init__
        if inner is nn.Module.__init__:    # which says that it takes anything
            takes = []
    try:
        signature.replace(parameters=takes).bind(*args, **kwargs)
    except TypeError:
        code = getattr(inner, "__code__", None)
        where = f" (line {code.co_firstlineno} of {path.name})" if code is not None and code.co_filename == str(path) else ""
        said = f"{by} gives {_counted(args, kwargs)}" if by else "There is no get_init_inputs()"
        return f"{said}, but {name} takes {_shown(takes)}{where}"
    return ""


def _counted(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    parts = [counted(len(args), "value")] if args or not kwargs else []
    return " and ".join([*parts, *([f"values for {', '.join(kwargs)}"] if kwargs else [])])


def _shown(parameters: list[inspect.Parameter]) -> str:
    """"(x, y=…, *, scale=…)": without types and defaults, which may be long."""
    bare = [one.replace(annotation=one.empty, default=one.empty) for one in parameters]
    optional = {one.name for one in parameters if one.default is not one.empty}
    texts = str(inspect.Signature(bare)).strip("()").split(", ")
    return f"({', '.join(f'{text}=…' if text in optional else text for text in texts)})" if parameters else "nothing"
