"""Creates a session's engineers from its settings: the built-in one, or chat models with transcript and budget.

With a chat model the built-in engineer works first (`starter`), unless `from_scratch` is set. A model that cannot be had is an
error: there is no fallback.

Where to look next: `engineers/providers.py` (PROVIDER:NAME), `engineers/mailbox.py` (mailbox:DIR), `engineers/builtin.py`.
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
    from stitchcuda.engineers.agents.agent_engineer import AgentEngineer
    from stitchcuda.engineers.budget import Budget
    from stitchcuda.engineers.chat import Chat
    from stitchcuda.engineers.metered_chat import MeteredChat, Transcript

ROLES: tuple[Role, ...] = ("planner", "coder", "verifier")
MAILBOX = "mailbox"
WORKBENCH, REACT, COMMAND = "workbench", "react", "agent"
AGENTS = (WORKBENCH, REACT, COMMAND)       # kinds of engineers that work with tools
AGENT_OPTIONS = ("turns", "room")          # of --model-option, that are not the chat model's but the agent's
POSSIBLE = (
    "builtin (no key, no network), openai:NAME (with --base-url for a server of your own), azure:NAME, anthropic:NAME, "
    "google:NAME, mailbox:DIR, react:PROVIDER:NAME (an agent with tools), agent:claude (or codex, opencode, gemini), or "
    'agent:"COMMAND {prompt_file}"'
)


@dataclass(frozen=True)
class Engineers:
    """The engineers of a session, with their transcript and budget. `starter` works first if there is one."""

    engineer: Engineer
    starter: Engineer | None = None
    transcript: Transcript | None = None   # None: no chat model is called
    budget: Budget | None = None
    estimate: Callable[[Brief], str] | None = None  # returns a sentence on the session's expected cost
    recorded: bool = False                 # a replay: replies and a person's answers come from the transcript alone
    agent: AgentEngineer | None = None     # `engineer`, if it works with tools until it says that it is done


def engineers_for(
    settings: Settings,
    *,
    store: Store,
    session: str,
    root: Path,
    progress: Callable[[Role, int], None] | None = None,
    on_call: Callable[[Call], None] = lambda call: None,
    recorded: bool = False,
) -> Engineers:
    """Returns the engineers that `settings` name.

    `store` holds the session's transcript, `root` is the workspace's folder. `progress` is called with a role and the number of
    chunks so far while a reply streams in, `on_call` with each call that was made. With `recorded` no model is called: replies
    come from the transcript. Raises `BadInput` for an unknown model, `Unavailable` for a missing key or package.
    """
    from stitchcuda.engineers.builtin import BuiltinEngineer

    check_models(settings)
    if settings.model == "builtin":
        return Engineers(BuiltinEngineer(), recorded=recorded)
    starter = None if settings.from_scratch else BuiltinEngineer()
    kind, _, rest = settings.model.partition(":")
    if kind in AGENTS and kind != REACT:
        from stitchcuda.engineers.agents.opening import open_agent_engineer

        agent = open_agent_engineer(settings, session, root, recorded=recorded)
        return Engineers(agent, starter=starter, recorded=recorded, agent=agent)

    from stitchcuda.engineers.budget import Budget
    from stitchcuda.engineers.chat_engineer import ChatEngineer
    from stitchcuda.engineers.cost_estimate import estimate_session
    from stitchcuda.engineers.metered_chat import MeteredChat, Transcript
    from stitchcuda.engineers.recorded_chat import RecordedChat

    transcript = Transcript(store, session)
    budget = Budget(settings, transcript.paid)
    options = {name: value for name, value in settings.options.items() if kind != REACT or name not in AGENT_OPTIONS}
    asked = settings.model_copy(update={"options": options})
    chats: dict[str, MeteredChat] = {}     # one for each model, so that all roles share its token estimates and notes

    def chat_for(model: str) -> MeteredChat:
        if model not in chats:
            chat = RecordedChat(model) if recorded else open_chat(model, asked, root, session, progress)
            where = getattr(chat, "base_url", settings.base_url)
            chats[model] = MeteredChat(chat, transcript, budget, base_url=where, options=options, on_call=on_call)
        return chats[model]

    if kind == REACT:
        from stitchcuda.engineers.agents.opening import open_agent_engineer

        agent = open_agent_engineer(settings, session, root, chat_for(rest), recorded=recorded)
        return Engineers(agent, starter=starter, transcript=transcript, budget=budget, recorded=recorded, agent=agent)
    by_role = {role: tuple(map(chat_for, models_of(settings, role))) for role in ROLES}
    return Engineers(
        engineer=ChatEngineer(by_role),
        starter=starter,
        transcript=transcript,
        budget=budget,
        estimate=lambda brief: estimate_session({role: chats[0] for role, chats in by_role.items()}, brief),
        recorded=recorded,
    )


def models_of(settings: Settings, role: Role) -> tuple[str, ...]:
    """Returns the models of a role: its own, else the session's."""
    return settings.roles.get(role) or (settings.model,)


def check_models(settings: Settings) -> None:
    """Raises `BadInput` for model names and roles that cannot be used; contacts no server."""
    if settings.model == "builtin" and settings.roles:
        raise BadInput("--model builtin has no roles to give to others: name a chat model for all roles first")
    for model in (settings.model, *(model for models in settings.roles.values() for model in models)):
        kind, _, name = model.partition(":")
        chat = name if kind == REACT else model
        known = model == "builtin" or kind in (MAILBOX, WORKBENCH, COMMAND) or _is_chat_model(chat)
        if not known or (model == "builtin" and settings.model != "builtin"):
            raise BadInput(f"--model {model!r} is not known: give {POSSIBLE}")
        if kind in AGENTS and (settings.roles or settings.candidates > 1 or settings.approve):
            raise BadInput(f"--model {model} takes no roles, --candidates or --approve: an agent works draft by draft")
    if settings.base_url and settings.model.partition(":")[0] in (WORKBENCH, COMMAND):
        raise BadInput(f"--base-url is for chat models, and --model {settings.model} calls none: leave it out")
    for role in ("planner", "verifier"):
        if len(settings.roles.get(role, ())) > 1:
            raise BadInput(f"the {role} is one model, not {len(settings.roles[role])}: only the coder's candidates take turns")


def _is_chat_model(model: str) -> bool:
    kind, _, name = model.partition(":")
    return kind in ("openai", "azure", "anthropic", "google") and bool(name)


def mailbox_folder(model: str, root: Path, session: str) -> Path:
    """Returns the folder of `mailbox:DIR`: DIR relative to the workspace, or the session's own folder if DIR is empty."""
    named = model.partition(":")[2]
    return root / named if named else root / "sessions" / session / MAILBOX


def open_chat(
    model: str, settings: Settings, root: Path, session: str, progress: Callable[[Role, int], None] | None = None
) -> Chat:
    """Returns the chat model `model`, with the address and options of `settings`; a mailbox's folder is relative to `root`.
    Raises `Unavailable` for a missing key or package."""
    if model.partition(":")[0] == MAILBOX:
        from stitchcuda.engineers.mailbox import Mailbox

        return Mailbox(mailbox_folder(model, root, session), session, settings.options, name=model)
    from stitchcuda.engineers.endpoint import Endpoint

    return Endpoint(model, settings.base_url, settings.options, progress=progress)
