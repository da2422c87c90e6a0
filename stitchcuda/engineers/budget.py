"""What a session may still spend, asked before every call: money, tokens, GPU seconds and minutes.

A call is admitted only if its most expensive outcome stays within what is left, so the cap on money is one: where less is left
than a whole answer may cost, the answer is bounded, and where that leaves too little for an answer, the session ends. Calls
under way hold their share. A model without a known price is bounded by the rest alone. It never asks a model.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from stitchcuda.engineers.prices import Price, affordable_output, worst_case_usd
from stitchcuda.errors import OutOfBudget
from stitchcuda.state import Role, Settings, Usage

MOST_WRITTEN = 32_000  # tokens of one answer, thinking included, where a budget bounds it
LEAST_WRITTEN: dict[Role, int] = {"planner": 1500, "coder": 2500, "verifier": 500}  # below that no answer is to be had


class Budget:
    """One session's. `spent` is its usage so far, with what is known of the money; several threads may be admitted at once."""

    def __init__(self, settings: Settings, spent: Callable[[], Usage]) -> None:
        self._settings = settings
        self._spent = spent
        self._elsewhere = Usage()
        self._guard = threading.Lock()
        self._held_usd = 0.0
        self._held_tokens = 0

    def note(self, usage: Usage) -> None:
        """What the session's state knows beside its calls: seconds on the GPU and altogether."""
        self._elsewhere = usage

    def exhausted(self) -> str | None:
        """The budget that is spent, in a few words; None while each has something left."""
        settings, spent, elsewhere = self._settings, self._spent(), self._elsewhere
        if spent.usd and spent.usd >= settings.budget_usd:
            return f"${spent.usd:.2f} of ${settings.budget_usd:.2f}"
        if settings.max_tokens is not None and spent.input_tokens + spent.output_tokens >= settings.max_tokens:
            return f"{spent.input_tokens + spent.output_tokens:,} of {settings.max_tokens:,} tokens"
        if settings.max_gpu_s is not None and elsewhere.gpu_s >= settings.max_gpu_s:
            return f"{elsewhere.gpu_s:.0f} of {settings.max_gpu_s:.0f} GPU seconds"
        if settings.max_minutes is not None and elsewhere.wall_s >= 60 * settings.max_minutes:
            return f"{elsewhere.wall_s / 60:.1f} minutes"
        return None

    @contextmanager
    def admitted(self, price: Price | None, input_tokens: int, role: Role) -> Iterator[int | None]:
        """Holds what a call may cost while it runs, and gives the most tokens that its answer may have; None: the model's own
        limit. Raises `OutOfBudget`, and then nothing was asked."""
        with self._guard:
            limit, usd, tokens = self._allow(price, input_tokens, role)
            self._held_usd += usd
            self._held_tokens += tokens
        try:
            yield limit
        finally:
            with self._guard:
                self._held_usd -= usd
                self._held_tokens -= tokens

    def _allow(self, price: Price | None, input_tokens: int, role: Role) -> tuple[int | None, float, int]:
        if (over := self.exhausted()) is not None:
            raise OutOfBudget(over)
        spent, least = self._spent(), LEAST_WRITTEN[role]
        limit: int | None = None
        if price is not None:
            left = self._settings.budget_usd - (spent.usd or 0.0) - self._held_usd
            most = min(price.max_output or MOST_WRITTEN, MOST_WRITTEN)
            if price.context is not None:  # what does not fit at all is the model's to refuse
                most = min(most, max(price.context - input_tokens, least))
            limit = affordable_output(price, input_tokens, left, most)
            if limit < min(least, most):
                least_usd = worst_case_usd(price, input_tokens, least)
                raise OutOfBudget(
                    f"the next call ({role}) may cost ${least_usd:.3f} or more, and ${max(left, 0.0):.3f} of "
                    f"${self._settings.budget_usd:.2f} is left"
                )
        if self._settings.max_tokens is not None:
            room = self._settings.max_tokens - spent.input_tokens - spent.output_tokens - self._held_tokens - input_tokens
            if room < least:
                raise OutOfBudget(
                    f"the next call ({role}) reads {input_tokens:,} tokens, and {max(room + input_tokens, 0):,} of "
                    f"{self._settings.max_tokens:,} are left"
                )
            limit = min(limit or MOST_WRITTEN, room)
        usd = worst_case_usd(price, input_tokens, limit) if price is not None and limit is not None else 0.0
        return limit, usd, input_tokens + (limit or 0)
