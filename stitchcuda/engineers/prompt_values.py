"""What all prompts share: budgets of tokens, the values that every template gets, and rendering.

The wording is in `prompts/*.md.j2`; an undefined field is an error. SHARES limits every section. It calls no model.

Where to look next: `engineers/prompt.py` (the prompts of the roles), `engineers/agents/workbench_text.py` (pages of a
workbench), `engineers/tokens.py` (cutting to a number of tokens).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from stitchcuda.engineers import Brief
from stitchcuda.engineers.attempt_history import milliseconds
from stitchcuda.engineers.error_bounds import error_bounds
from stitchcuda.engineers.folding import fold_lines
from stitchcuda.engineers.markdown_templates import render_markdown
from stitchcuda.engineers.present_text import present_text, steps_text
from stitchcuda.engineers.tokens import TokenCounter, fit, fit_log
from stitchcuda.state import Policy, Precision

PRECISIONS: dict[Precision, str] = {
    "reference": "outputs have the reference's dtypes; inside, anything is allowed whose error against float64 is at most 10 "
    "times the reference's own. Where the reference computes in fp32, plain TF32 and half products leave about 2^-11 and fail, "
    "split products (three fp16 terms) pass",
    "tf32": "TF32 matrix products are allowed",
    "fp16": "fp16 is allowed inside",
    "bf16": "bf16 is allowed inside",
}
POLICIES: dict[Policy, str] = {
    "stitched": "library operators of torch may remain; what counts is that each own kernel is needed and saves time",
    "strict": "no framework compute: own kernels, cuBLASLt for GEMM and cuDNN for convolution from own C++; no operator of "
    "torch may compute, not even F.linear, or copy_ around a graph. Earlier drafts may have some; the last check refuses it",
}
SHARES = {
    "reference": 3000, "regions": 3500, "task regions": 2000, "program": 6000, "overview": 3500, "generated": 2200,
    "present": 1300, "steps": 700, "tree": 900, "record": 1800, "tried": 1400, "last": 8000, "diagnosis": 2200, "changed": 6000,
    "lessons": 600, "docs": 1600, "techniques": 1000, "note": 150, "tool": 2500, "read": 9000, "profile": 600, "strategy": 1700,
    "structure": 600, "host": 1000, "findings": 500,
    "local error": 700, "local file": 2400, "local docs": 500,
}  # fmt: skip
"""The most tokens of each section. A coder's sections and the fixed text are about 22,000; what it looks up comes on top:
`tool` for each result of a tool, `read` for all files of one look together."""


@dataclass(frozen=True)
class PromptBudget:
    """How many tokens a prompt may have. `scale` multiplies every section's share, for models with a small context window;
    `beyond` are tokens that the program or the last draft gets on top of its share."""

    counter: TokenCounter
    scale: float = 1.0
    beyond: int = 0

    def fit(self, text: str, section: str) -> str:
        return fit(text.strip(), self.tokens(section), self.counter)

    def fold(self, text: str, section: str) -> str:
        """Cuts code or a list; what repeats in it is folded first where it does not fit as it is."""
        text, most = text.strip(), self.tokens(section)
        return text if self.counter.count(text) <= most else fit(fold_lines(text), most, self.counter)

    def log(self, text: str, section: str) -> str:
        """Cuts a compiler's output, keeping the lines around errors first."""
        return fit_log(text.strip(), self.tokens(section), self.counter)

    def tokens(self, section: str) -> int:
        return int(SHARES[section] * self.scale)


def common_values(brief: Brief, budget: PromptBudget) -> dict[str, Any]:
    return {
        "settings": brief.settings,
        "device": brief.baseline.device,
        "precision": _precision(brief),
        "precision_name": brief.settings.precision,
        "policy": f"{brief.settings.policy} ({POLICIES[brief.settings.policy]}).",
        "reference": budget.fold(brief.reference, "reference"),
        "skeletons": brief.skeletons,
        "cuda": brief.cuda,
        "convolves": any("conv" in operator for region in brief.regions for operator in region.operators),
        "dtypes": {spec.dtype for region in brief.regions for spec in region.inputs},
        "program_ms": brief.program_ms,
        "present": _present(brief, budget),
        "profile": budget.fit("\n".join(brief.profile), "profile").splitlines(),
        "lessons": budget.fit("\n".join(brief.lessons), "lessons").splitlines(),
        "defects": budget.fit("\n".join(brief.defects), "findings").splitlines(),
        "suggestions": budget.fit("\n".join(brief.suggestions), "findings").splitlines(),
    }


def render_prompt(name: str, values: dict[str, Any]) -> str:
    template = Path(__file__).parent / "prompts" / f"{name}.md.j2"
    return render_markdown(template, **values, ms=milliseconds).strip() + "\n"


def _precision(brief: Brief) -> str:
    """Returns what is allowed, with the figures of each output where a check has found them."""
    text = f"{brief.settings.precision} ({PRECISIONS[brief.settings.precision]})."
    bounds = error_bounds(brief.bounds)
    return f"{text} By output, on the last check's inputs: {bounds}." if bounds else text


def _present(brief: Brief, budget: PromptBudget) -> str:
    """Returns the program as it is: what is in it and what is left, then what a call ran."""
    if brief.present is None:              # the reference could not be captured, or an agent has changed the program
        took = f"A call takes {milliseconds(brief.program_ms)} measured." if brief.program_ms is not None else ""
        tasks = f"Tasks in it: {', '.join(brief.kept) or 'none'}." if brief.graph.opaque else ""
        text = " ".join(filter(None, [tasks, took]))
    else:
        text = present_text(brief.present, brief.baseline.device, brief.program_ms, brief.speedup)
    steps = steps_text(brief.steps, "timed" if brief.program_ms is not None else None)
    return "\n".join(filter(None, [budget.fit(text, "present"), budget.fit(steps, "steps")]))
