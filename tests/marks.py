"""Marks for tests with many cases."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def more_but(cases: Iterable[Any], *quick: Any, key: Callable[[Any], Any] = lambda case: case) -> list[Any]:
    """Cases for `parametrize`: all but the quick ones are marked `more`. Raises ValueError for a quick one that is no case.

    `key` makes of a case what `quick` names it by.
    """
    cases = list(cases)
    unknown = [name for name in quick if name not in [key(case) for case in cases]]
    if unknown:
        raise ValueError(f"no such case: {unknown}")
    return [case if key(case) in quick else pytest.param(case, marks=pytest.mark.more) for case in cases]
