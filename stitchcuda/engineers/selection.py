"""Chooses the engineers of a session by its settings. It never falls back: what cannot be had is an error.

A chat model goes on from what the built-in engineer has verified, unless the settings say from scratch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from stitchcuda.engineers import Brief, Engineer
from stitchcuda.errors import BadInput
from stitchcuda.state import Call, Role, Settings
from stitchcuda.store import Store

if TYPE_CHECKING:
    from stitchcuda.engineers.budget import Budget
    from stitchcuda.engineers.metered_chat import MeteredChat, Transcript

ROLES: tuple[Role, ...] = ("planner", "coder", "verifier")
MAILBOX = "mailbox"
POSSIBLE = (
    "builtin (no key, no network), openai:NAME (with --base-url for a server of your own), azure:NAME, anthropic:NAME, "
    "google:NAME, or mailbox:DIR"
)


@dataclass(frozen=True)
class Engineers:
    """Who works on a session, and what they have spent. `starter` goes first where there is one."""

    engineer: Engineer
    starter: Engineer | None = None
    transcript: Transcript | None = None   # None: nobody is asked
    budget: Budget | None = None
    estimate: Callable[[Brief], str] | None = None  # of what is to come, one sentence
    recorded: bool = False                 # nobody is asked, no model and no person: all is in the record


def engineers_for(
    settings: Settings,
    *,
    store: Store,
    session: str,
    root: Path,
    progress: Callable[[Role, int], None] | None = None,
    heard: Callable[[Call], None] = lambda call: None,
    recorded: bool = False,
) -> Engineers:
    """Raises `BadInput` for a model this version does not know and `Unavailable` for a missing key or package.

    `store` keeps the session's transcript, `root` is the workspace's folder. `progress` is called with a role and a count of
    chunks while a reply streams in, `heard` with each call that was made. `recorded`: nobody is asked, replies are in the
    transcript.
    """
    from stitchcuda.engineers.builtin import BuiltinEngineer

    check_models(settings)
    if settings.model == "builtin":
        return Engineers(BuiltinEngineer(), recorded=recorded)

    from stitchcuda.engineers.budget import Budget
    from stitchcuda.engineers.chat_engineer import ChatEngineer
    from stitchcuda.engineers.cost_estimate import estimate
    from stitchcuda.engineers.metered_chat import MeteredChat, Transcript
    from stitchcuda.engineers.recorded_chat import RecordedChat

    transcript = Transcript(store, session)
    budget = Budget(settings, transcript.paid)
    desks: dict[str, MeteredChat] = {}            # one for each model, so that what was learnt of it is learnt once

    def desk(model: str) -> MeteredChat:
        if model not in desks:
            chat = RecordedChat(model) if recorded else _chat(model, settings, root, session, progress)
            where = getattr(chat, "base_url", settings.base_url)
            desks[model] = MeteredChat(chat, transcript, budget, base_url=where, options=settings.options, heard=heard)
        return desks[model]

    by_role = {role: tuple(map(desk, models_of(settings, role))) for role in ROLES}
    return Engineers(
        engineer=ChatEngineer(by_role),
        starter=None if settings.from_scratch else BuiltinEngineer(),
        transcript=transcript,
        budget=budget,
        estimate=lambda brief: estimate({role: desks[0] for role, desks in by_role.items()}, brief),
        recorded=recorded,
    )


def models_of(settings: Settings, role: Role) -> tuple[str, ...]:
    """The models of one role: its own, else the session's."""
    return settings.roles.get(role) or (settings.model,)


def check_models(settings: Settings) -> None:
    """Raises `BadInput` for a name that no model can have; asks nobody."""
    if settings.model == "builtin" and settings.roles:
        raise BadInput("--model builtin has no roles to give to others: name a chat model for all roles first")
    for model in (settings.model, *(model for models in settings.roles.values() for model in models)):
        kind, _, name = model.partition(":")
        known = model == "builtin" or kind == MAILBOX or (kind in ("openai", "azure", "anthropic", "google") and name)
        if not known or (model == "builtin" and settings.model != "builtin"):
            raise BadInput(f"--model {model!r} is not known: give {POSSIBLE}")
    for role in ("planner", "verifier"):
        if len(settings.roles.get(role, ())) > 1:
            raise BadInput(f"the {role} is one model, not {len(settings.roles[role])}: only the coder's candidates take turns")


def mailbox_folder(model: str, root: Path, session: str) -> Path:
    """Where `mailbox:DIR` is: relative to the workspace, and without DIR in the session's own folder."""
    named = model.partition(":")[2]
    return root / named if named else root / "sessions" / session / MAILBOX


def _chat(
    model: str, settings: Settings, root: Path, session: str, progress: Callable[[Role, int], None] | None
) -> Mailbox | Endpoint:
    if model.partition(":")[0] == MAILBOX:
        from stitchcuda.engineers.mailbox import Mailbox

        return Mailbox(mailbox_folder(model, root, session), session, settings.options, name=model)
    from stitchcuda.engineers.endpoint import Endpoint

    return Endpoint(model, settings.base_url, settings.options, progress=progress)


if TYPE_CHECKING:
    from stitchcuda.engineers.endpoint import Endpoint
    from stitchcuda.engineers.mailbox import Mailbox
