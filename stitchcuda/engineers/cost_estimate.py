"""Estimates calls, tokens and money of a session with chat models, before the first call.

The planner's prompt is counted; for drafts and reviews the medians of recorded sessions are assumed (READ, WRITTEN), and that
all allowed attempts are made. It limits nothing.

Where to look next: `engineers/budget.py` (limits what is spent), `engineers/prices.py` (prices).
"""

from __future__ import annotations

from stitchcuda.counts import counted
from stitchcuda.engineers import Brief
from stitchcuda.engineers.metered_chat import MeteredChat
from stitchcuda.engineers.prices import cost_usd
from stitchcuda.engineers.prompt import planner_prompt
from stitchcuda.engineers.prompt_values import PromptBudget
from stitchcuda.state import Role

WRITTEN: dict[Role, int] = {"planner": 4000, "coder": 6000, "verifier": 1000}
READ: dict[Role, int] = {"coder": 12_000, "verifier": 10_000}
"""Tokens of one call, thinking left out: about the medians of the recorded sessions (`python benchmarks/chat_sessions.py`)."""


def estimate_session(chats: dict[Role, MeteredChat], brief: Brief) -> str:
    """Returns one sentence: calls, tokens, money where all prices are known, and the cap. `chats`: one model for each role."""
    settings = brief.settings
    attempts, drafts = settings.max_attempts, settings.candidates
    steps = max(attempts // drafts, 1)
    plan = planner_prompt(brief, PromptBudget(chats["planner"].counter))
    counts: dict[Role, int] = {"planner": 2, "coder": attempts, "verifier": steps}
    read: dict[Role, int] = {**READ, "planner": chats["planner"].counter.count(plan)}
    tokens = [sum(counts[role] * each[role] for role in counts) for each in (read, WRITTEN)]
    costs = [
        cost_usd(chat.price, read[role], 0, WRITTEN[role]) * counts[role] if chat.price is not None else None
        for role, chat in chats.items()
    ]
    known = [cost for cost in costs if cost is not None]
    money = "at prices that are not known"
    if len(known) == len(costs):
        money = f"${sum(known):.2f}; the cap is ${settings.budget_usd:.2f}"
    calls = f"up to {counted(attempts, 'attempt')}, about {counted(sum(counts.values()), 'call')}"
    return f"estimate: {calls}, {tokens[0]:,} tokens to read and {tokens[1]:,} to write, {money}"
