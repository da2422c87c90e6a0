"""Defines the graph's input, as Studio and the server show it, and refuses unknown keys.

Defaults are those of `state.Settings`. Values are checked elsewhere.

Where to look next: `graph/opening.py` (checks values), `state.py` (Settings).
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any, get_type_hints

from pydantic import Field
from typing_extensions import TypedDict

from stitchcuda.errors import BadInput
from stitchcuda.state import Approval, Effort, Policy, Precision, Role, State


class RequestedSettings(TypedDict, total=False):
    """The settings that an input may have; see `state.Settings`."""

    device: Annotated[str, Field(description="auto, cuda or sim", default="auto")]
    model: Annotated[str, Field(description="builtin, openai:NAME, azure:, anthropic:, google: or mailbox:", default="builtin")]
    roles: Annotated[dict[Role, tuple[str, ...]], Field(description="other models, by role", default={})]
    options: Annotated[dict[str, bool | int | float | str], Field(description="of chat models: temperature, …", default={})]
    from_scratch: Annotated[bool, Field(description="a chat model starts from nothing", default=False)]
    candidates: Annotated[int, Field(description="drafts side by side in each step; the best goes on", default=1)]
    approve: Annotated[tuple[Approval, ...], Field(description="a person is asked about each plan, each draft", default=())]
    base_url: Annotated[str | None, Field(description="an OpenAI-compatible endpoint", default=None)]
    predict_for: Annotated[str | None, Field(description="GPU of the simulator's predictions: h200, a100, …", default=None)]
    goal: Annotated[float | None, Field(description="stop once this speed-up is reached", default=None)]
    policy: Annotated[Policy, Field(description="stitched: torch's operators may remain", default="stitched")]
    precision: Annotated[Precision, Field(description="what the program may compute in", default="reference")]
    effort: Annotated[Effort, Field(description="of the built-in engineer: low or medium", default="medium")]
    budget_usd: Annotated[float, Field(description="most to spend on models whose price is known", default=5.0)]
    max_tokens: Annotated[int | None, Field(description="most tokens to read and write", default=None)]
    max_gpu_s: Annotated[float | None, Field(description="most seconds on the GPU", default=None)]
    max_attempts: Annotated[int, Field(description="most programs to try", default=30)]
    max_minutes: Annotated[float | None, Field(description="most minutes to run", default=None)]
    gpu_memory_gb: Annotated[float | None, Field(description="most gigabytes of the GPU's memory", default=None)]
    time_baselines: Annotated[bool, Field(description="the report also times a CUDA graph and torch.compile", default=False)]
    sanitize: Annotated[bool, Field(description="the report also has compute-sanitizer's findings", default=False)]


class Named(TypedDict, total=False):
    """Reference and name of a session. A form shows these first."""

    reference: Annotated[
        str,
        Field(
            description="needed: path of a file with Model, get_inputs and get_init_inputs, on the server's machine",
            examples=["examples/transformer_block.py"],
        ),
    ]
    session: Annotated[str, Field(description="the session's name; numbered after the reference by default")]


class GraphInput(Named, RequestedSettings, total=False):
    """The graph's input. Only `reference` is needed."""


def check_keys(given: Any) -> None:
    """Raises BadInput for an input with a key that `GraphInput` does not have, and names the key that was probably meant."""
    known = list(get_type_hints(GraphInput))
    unknown = next((key for key in given if key not in known), None) if isinstance(given, dict) else None
    if unknown is not None:
        near = get_close_matches(str(unknown), known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"it takes {', '.join(known)}"
        raise BadInput(f"the graph's input has no key {unknown!r}: {hint}")


class Opening(State, RequestedSettings, total=False):
    """What the first node reads: the input, and the state of a session that goes on."""
