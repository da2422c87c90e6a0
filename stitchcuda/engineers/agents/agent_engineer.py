"""The engineer of a session in which an agent works with tools. It opens assignments for the agent, and takes its drafts.

An agent decides itself what to change, so a plan is one open task; each kept draft ends it and the next plan has another. The
session ends when the agent says so, when it is gone, or by its budgets. Routes, verdicts and ledger are as for any engineer.

Where to look next: `engineers/agents/tools.py` (what an agent can call), `graph/routes.py` (the rules).
"""

from __future__ import annotations

from typing import Protocol

from stitchcuda.engineers import Assignment, Brief, Draft
from stitchcuda.engineers.agents.tools import AgentTools, Code
from stitchcuda.engineers.builtin_review import review_by_rule
from stitchcuda.state import Evidence, Plan, Review, Task


class Agent(Protocol):
    """Who works with a session's tools: a folder that somebody works in, a command in the sandbox, a chat model."""

    name: str

    def start(self, tools: AgentTools, assignment: Assignment) -> None:
        """Begins to work, or goes on if it works already. Called before each draft is waited for. Raises StitchError."""

    def gone(self) -> str:
        """Returns why it works no more, in one sentence; "" while it works. Raises the error or `OutOfBudget` that ended it, if
        the session should end or stop with that."""

    def stop(self) -> None:
        """Ends its work at once. May be called several times, and before `start`."""


class AgentEngineer:
    """Implements `Engineer` for an agent. `close` is called at the end of every run of the session."""

    reads_docs = False
    reads_profiles = True

    def __init__(self, agent: Agent, tools: AgentTools) -> None:
        self.name = agent.name
        self._agent, self._tools = agent, tools

    def plan(self, brief: Brief) -> Plan:
        number = 1 + sum(task.kind == "open" for plan in brief.plans for task in plan.tasks)
        why = "An agent chooses what to change, and hands in programs until it is done."
        task = Task(id=f"agent-{number}", kind="open", title="what the agent chooses", why=why)
        summary = f"{self.name} works with tools; each kept program is a task."
        return Plan(version=len(brief.plans) + 1, tasks=(task,), summary=summary)

    def write(self, assignment: Assignment) -> Draft:
        self._agent.start(self._tools, assignment)
        return self._tools.next_draft(assignment, self._agent.gone)

    def review(self, assignment: Assignment, draft: Draft, evidence: Evidence) -> Review:
        found = review_by_rule(assignment, None, evidence)
        return found.model_copy(update={"suggestion": "none", "expected_gain": ""})  # the agent has all that it rests on

    def close(self, text: str, code: Code) -> None:
        """Tells the agent what came of the session (`code` as a tool's), and stops it."""
        self._tools.end(text, code)
        self._agent.stop()
