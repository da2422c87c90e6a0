"""Admits or refuses each model call by what the session may still spend: money, tokens, GPU seconds, minutes.

A call is admitted only if its most expensive outcome fits into what is left. Where less is left than a whole answer may cost,
the answer's length is limited; where fewer than LEAST_WRITTEN tokens would remain for it, the call is refused and the session
ends. Calls in flight reserve what they may cost. Without a known price only tokens, time and attempts are limited. It calls no
model.

Where to look next: `engineers/prices.py` (what a call may cost), `engineers/metered_chat.py` (who asks before each call).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stitchcuda.engineers.prices import Price, affordable_output, worst_case_usd
from stitchcuda.errors import OutOfBudget
from stitchcuda.state import Role, Settings, Usage

MOST_WRITTEN = 32_000  # tokens that one answer may have, thinking included, where a budget limits it
LEAST_WRITTEN: dict[Role, int] = {"planner": 1500, "coder": 2500, "verifier": 500}  # tokens; a shorter answer is useless


class Budget:
    """The budget of one session. `spent` returns its usage so far, unknown prices counted as 0. Threads may share it."""

    def __init__(self, settings: Settings, spent: Callable[[], Usage]) -> None:
        self._settings = settings
        self._spent = spent
        self._elapsed = Usage()
        self._guard = threading.Lock()
        self._reserved_usd = 0.0
        self._reserved_tokens = 0

    def note(self, usage: Usage) -> None:
        """Takes over the seconds (GPU and wall clock) that the session's state has counted so far."""
        self._elapsed = usage

    def exhausted(self) -> str | None:
        """Returns which budget is used up, such as "12.0 minutes"; None while each has something left."""
        settings, spent, elapsed = self._settings, self._spent(), self._elapsed
        if spent.usd and spent.usd >= settings.budget_usd:
            return f"${spent.usd:.2f} of ${settings.budget_usd:.2f}"
        if settings.max_tokens is not None and spent.input_tokens + spent.output_tokens >= settings.max_tokens:
            return f"{spent.input_tokens + spent.output_tokens:,} of {settings.max_tokens:,} tokens"
        gpu_s = elapsed.with_looks(spent.looks_gpu_s)
        if settings.max_gpu_s is not None and gpu_s >= settings.max_gpu_s:
            return f"{gpu_s:.0f} of {settings.max_gpu_s:.0f} GPU seconds"
        if settings.max_minutes is not None and elapsed.wall_s >= 60 * settings.max_minutes:
            return f"{elapsed.wall_s / 60:.1f} minutes"
        return None

    @contextmanager
    def admit(self, price: Price | None, input_tokens: int, role: Role) -> Iterator[int | None]:
        """Reserves what a call may cost while it runs, and yields the most tokens that its answer may have (None: no limit).
        Raises `OutOfBudget` before the call where its worst case does not fit."""
        with self._guard:
            limit, usd, tokens = self._allow(price, input_tokens, role)
            self._reserved_usd += usd
            self._reserved_tokens += tokens
        try:
            yield limit
        finally:
            with self._guard:
                self._reserved_usd -= usd
                self._reserved_tokens -= tokens

    def _allow(self, price: Price | None, input_tokens: int, role: Role) -> tuple[int | None, float, int]:
        if (over := self.exhausted()) is not None:
            raise OutOfBudget(over)
        spent, least = self._spent(), LEAST_WRITTEN[role]
        limit: int | None = None
        if price is not None:
            left = self._settings.budget_usd - (spent.usd or 0.0) - self._reserved_usd
            most = min(price.max_output or MOST_WRITTEN, MOST_WRITTEN)
            if price.context is not None:  # a prompt that does not fit at all is left for the server to refuse
                most = min(most, max(price.context - input_tokens, least))
            limit = affordable_output(price, input_tokens, left, most)
            if limit < min(least, most):
                least_usd = worst_case_usd(price, input_tokens, least)
                raise OutOfBudget(
                    f"the next call ({role}) may cost ${least_usd:.3f} or more, and ${max(left, 0.0):.3f} of "
                    f"${self._settings.budget_usd:.2f} is left"
                )
        if self._settings.max_tokens is not None:
            left_tokens = self._settings.max_tokens - spent.input_tokens - spent.output_tokens
            left_tokens -= self._reserved_tokens + input_tokens
            if left_tokens < least:
                raise OutOfBudget(
                    f"the next call ({role}) reads {input_tokens:,} tokens, and {max(left_tokens + input_tokens, 0):,} of "
                    f"{self._settings.max_tokens:,} are left"
                )
            limit = min(limit or MOST_WRITTEN, left_tokens)
        usd = worst_case_usd(price, input_tokens, limit) if price is not None and limit is not None else 0.0
        return limit, usd, input_tokens + (limit or 0)
