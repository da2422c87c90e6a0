"""Says in a sentence why the values of `get_inputs()` or `get_init_inputs()` do not fit the function that takes them.

Arguments count as fitting when `inspect.signature` can bind them. It is used only after a call has raised a TypeError, since a
signature does not show everything that a call accepts (hooks, wrappers). It calls neither function.
Where to look next: `verify/reference/reference.py` (who uses it).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from stitchcuda.counts import counted


def explain_mismatch(
    given: tuple[tuple[Any, ...], dict[str, Any]], source: str, function: Callable[..., Any], name: str, path: Path
) -> str:
    """Returns "get_inputs() gives 3 values, but forward takes (x, y) (line 9 of model.py)", or "" where they fit or the
    signature cannot be read.

    `given`: (args, kwargs). `source`: the function that returned them, such as "get_inputs()"; "" where the reference has no
    get_init_inputs(). `function`: what was called with them, `name`: how the sentence calls it. `path`: the reference's file;
    the line is named only where `function` is defined in it.
    """
    args, kwargs = given
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return ""
    takes, inner = list(signature.parameters.values()), inspect.unwrap(function)
    if inspect.isclass(inner):
        inner = inner.__init__
        if inner is nn.Module.__init__:    # its signature is (*args, **kwargs), but it raises when given any
            takes = []
    try:
        signature.replace(parameters=takes).bind(*args, **kwargs)
    except TypeError:
        code = getattr(inner, "__code__", None)
        where = f" (line {code.co_firstlineno} of {path.name})" if code is not None and code.co_filename == str(path) else ""
        gives = f"{source} gives {_count_values(args, kwargs)}" if source else "There is no get_init_inputs()"
        return f"{gives}, but {name} takes {_list_parameters(takes)}{where}"
    return ""


def _count_values(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    parts = [counted(len(args), "value")] if args or not kwargs else []
    return " and ".join([*parts, *([f"values for {', '.join(kwargs)}"] if kwargs else [])])


def _list_parameters(parameters: list[inspect.Parameter]) -> str:
    """Returns "(x, y=…, *, scale=…)": without types and defaults, which may be long."""
    bare = [parameter.replace(annotation=parameter.empty, default=parameter.empty) for parameter in parameters]
    optional = {parameter.name for parameter in parameters if parameter.default is not parameter.empty}
    texts = str(inspect.Signature(bare)).strip("()").split(", ")
    return f"({', '.join(f'{text}=…' if text in optional else text for text in texts)})" if parameters else "nothing"
