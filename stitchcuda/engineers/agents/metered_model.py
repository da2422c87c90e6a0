"""A LangChain chat model for agents whose calls go through the session's transcript and budget, as other models' do.

The place of a call is the open attempt and the turn, so a turn that is made again after a kill gets its recorded reply, and
costs nothing. What it shows the model is cut to `room` tokens: results of older calls of tools are left out, and what those
calls were given; the first message and the newest results stay. A reply that was cut off is shown to the agent as a text
without calls. A call whose arguments are no JSON stays a call, with BROKEN for arguments, and the others are made.

Where to look next: `engineers/metered_chat.py` (stores and pays), `engineers/agents/react_agent.py` (whose model it is).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from langchain.agents.middleware import ClearToolUsesEdit
from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, ToolCall, messages_from_dict
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_core.utils.json import parse_partial_json

from stitchcuda.engineers.chat import ChatAnswer, ContextWindowExceeded
from stitchcuda.engineers.metered_chat import MeteredChat
from stitchcuda.engineers.tool_request import ToolRequest
from stitchcuda.errors import Unavailable

LEFT_OUT = "(Left out to save room. Call the tool again if you need it.)"
KEPT = (6, 1)
"""How many results of tools are always shown: usually, and after the model's context window was exceeded."""
BROKEN = "no_json"                         # the argument of a call whose arguments could not be read: their text
_BROKEN_SHOWN = 200                        # characters of that text
PROBLEM = "problem"                        # in a reply's metadata: why its calls cannot be made
_CUT = {"length", "long"}


class MeteredModel(BaseChatModel):
    """`chat`: a MeteredChat. `about` returns the id of the open attempt; `admit` raises what ends the agent, before and after
    each call. `room`: tokens of a request above which older results are left out."""

    chat: Any
    about: Callable[[], str]
    admit: Callable[[], None]
    room: int

    @property
    def _llm_type(self) -> str:
        return "metered"

    def bind_tools(
        self, tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool], *, tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:  # fmt: skip
        return self.bind(tools=[convert_to_openai_tool(tool) for tool in tools])

    def _generate(
        self, messages: list[BaseMessage], stop: list[str] | None = None, run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:  # fmt: skip
        self.admit()
        reply = _message(self._ask(messages, kwargs.get("tools", [])))
        self.admit()
        return ChatResult(generations=[ChatGeneration(message=reply)])

    def _ask(self, messages: list[BaseMessage], tools: list[dict[str, Any]]) -> ChatAnswer:
        chat: MeteredChat = self.chat
        turn = sum(isinstance(message, AIMessage) for message in messages)
        why = ""
        for number, keep in enumerate(KEPT):
            shown = shorten(messages, 0 if number else self.room, keep, chat)
            try:
                return chat.ask(ToolRequest.from_conversation("coder", self.about(), len(KEPT) * turn + number, shown, tools))
            except ContextWindowExceeded as error:
                why = str(error)
        raise Unavailable(
            f"{chat.name} cannot take the agent's conversation even when it is shortened ({why}): use a model with a larger "
            "context window"
        )


def shorten(messages: Sequence[BaseMessage], room: int, keep: int, chat: MeteredChat) -> list[BaseMessage]:
    """Returns the messages; where they have more than `room` tokens, without the results of all but the last `keep` calls."""
    shown: list[Any] = list(messages)

    def count(conversation: Sequence[BaseMessage]) -> int:
        texts = ToolRequest.from_conversation("coder", "", 0, conversation, ()).messages
        return sum(chat.counter.count(message.text) for message in texts)

    edit = ClearToolUsesEdit(trigger=room, keep=keep, clear_tool_inputs=True, placeholder=LEFT_OUT)
    edit.apply(shown, count_tokens=count)
    return shown


def _message(answer: ChatAnswer) -> AIMessage:
    """Returns the reply for the agent, without calls where they cannot be made."""
    assert answer.message is not None
    (message,) = messages_from_dict([answer.message])
    assert isinstance(message, AIMessage)
    problem = ""
    if answer.refusal:
        problem = f"It was refused ({' '.join(answer.refusal.split())[:200]})."
    elif answer.finish in _CUT:
        problem = "It was cut off at the output limit: write less at once, and change files by edit_file."
    elif message.invalid_tool_calls and not _whole_calls(message):
        problem = "The arguments of a call were no JSON."
    elif not message.tool_calls:
        problem = "It called no tool."
    if not problem:
        return message if not message.invalid_tool_calls else _with_broken(message)
    return AIMessage(answer.text or "(no text)", response_metadata={PROBLEM: problem})


def _whole_calls(message: AIMessage) -> list[ToolCall]:
    """Returns the calls whose arguments could be read. LangChain lists one of which it guessed the end there too."""
    cut = [(call["id"], call["name"], _guessed(call["args"])) for call in message.invalid_tool_calls]
    return [call for call in message.tool_calls if (call["id"], call["name"], call["args"]) not in cut]


def _guessed(arguments: str | None) -> Any:
    try:
        return parse_partial_json(arguments or "")
    except ValueError:                     # there is nothing to guess
        return None


def _with_broken(message: AIMessage) -> AIMessage:
    """Returns the reply with its unreadable calls as calls of their own, so that each gets an answer."""
    broken = [
        ToolCall(
            name=call["name"] or "unknown", id=call["id"] or f"broken-{number}",
            args={BROKEN: (call["args"] or "")[:_BROKEN_SHOWN]},
        )
        for number, call in enumerate(message.invalid_tool_calls)
    ]  # fmt: skip
    return AIMessage(message.content, tool_calls=[*_whole_calls(message), *broken], id=message.id)
