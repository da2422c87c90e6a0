"""Writes the pages of a workbench: SKILL.md (how to work, what is allowed) and TASK.md (how the session stands).

Rules, policy, precision and what is known to pay are those of the coder's prompt, from the same templates.
Where to look next: `engineers/agents/workbench_folder.py` (who writes them), `engineers/prompt_values.py` (templates).
"""

from __future__ import annotations

from typing import Any

from stitchcuda.engineers import Assignment
from stitchcuda.engineers.agents.tools import describe_status, describe_submissions, describe_verdict
from stitchcuda.engineers.diagnosis import describe_unchecked
from stitchcuda.engineers.prompt_values import PromptBudget, common_values, render_prompt
from stitchcuda.engineers.tokens import TokenCounter
from stitchcuda.state import Tier


def skill_page(assignment: Assignment) -> str:
    """Returns SKILL.md, which stays the same for the whole session."""
    values = _values(assignment)
    tier: Tier = "timed" if assignment.brief.settings.target == "cuda" else "simulated"
    return render_prompt("workbench_skill", values | {
        "program": str(assignment.program.get("model_new.py", "")), "form": True, "unchecked": describe_unchecked(tier),
    })  # fmt: skip


def task_page(assignment: Assignment) -> str:
    """Returns TASK.md for the assignment that is open now."""
    submitted = any(attempt.engineer != "builtin" for attempt in assignment.brief.history[-1:])
    return render_prompt("workbench_task", _values(assignment) | {
        "status": describe_status(assignment),
        "verdict": describe_verdict(assignment).text if submitted else "",
        "submissions": describe_submissions(assignment),
        "floor_ms": assignment.brief.baseline.floor_ms,
    })  # fmt: skip


def _values(assignment: Assignment) -> dict[str, Any]:
    brief = assignment.brief
    return common_values(brief, PromptBudget(TokenCounter(brief.settings.model)))
