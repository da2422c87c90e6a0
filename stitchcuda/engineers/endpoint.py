"""Sends requests to a chat model over the network, streams its answers, and turns every failure into one sentence.

A server without `json_schema` is asked in plain text from then on, with a warning and a note. An answer is cut at
MOST_CHARACTERS. Errors are told apart by HTTP status and text: context window exceeded, broken off, no answer, unavailable. It
never chooses another model, stores nothing and counts no money.

Where to look next: `engineers/providers.py` (clients and keys), `engineers/metered_chat.py` (stores, pays, tries again).
"""

from __future__ import annotations

import importlib.util
import json
import logging
from collections.abc import Callable
from typing import Any

import openai
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    ToolCallChunk,
    message_chunk_to_message,
    message_to_dict,
)
from langchain_core.messages.tool import invalid_tool_call

from stitchcuda.engineers.chat import (
    AnswerInterrupted,
    ChatAnswer,
    ChatRequest,
    ContextWindowExceeded,
    NoAnswer,
    Options,
    response_format,
)
from stitchcuda.engineers.providers import PROVIDERS, RETRIES, address, chat_model
from stitchcuda.engineers.reply import Reply
from stitchcuda.engineers.tool_request import ToolRequest
from stitchcuda.errors import StitchError, Unavailable
from stitchcuda.state import Role

log = logging.getLogger(__name__)

Progress = Callable[[Role, int], None]
"""Called while a reply streams in, with the role and the number of chunks so far."""

MOST_CHARACTERS = 1_000_000
"""The most characters of one reply; a longer one is cut here, since no useful program is as long."""
SHORT_ANSWER = 8000
"""Limit of an answer's tokens for the second try, where the server refused the first limit as too long for its window."""
TRANSPORT: tuple[type[Exception], ...] = tuple(
    importlib.import_module(module).TransportError for module in ("httpx", "httpx2") if importlib.util.find_spec(module)
)
"""Errors of lost connections, which clients do not wrap while a body streams. Which library is used depends on the client."""
FINISHES = {
    "completed": "stop", "end_turn": "stop", "STOP": "stop", "max_tokens": "length", "max_output_tokens": "length",
    "MAX_TOKENS": "length", "tool_calls": "stop", "tool_use": "stop",
}  # fmt: skip
"""Other providers' finish reasons → OpenAI's."""
TOO_LONG = (
    "context_length", "context length", "maximum context", "context window", "prompt is too long", "too many tokens",
    "maximum number of tokens", "tokens is too large", "number of output tokens",
)  # fmt: skip


class Endpoint:
    """Implements `Chat` for `PROVIDER:NAME`, at `base_url` if given. Raises `Unavailable` when a key or package is missing."""

    def __init__(
        self, model: str, base_url: str | None = None, options: Options | None = None, *, progress: Progress | None = None
    ) -> None:
        self.name = model
        self.notes: list[str] = []
        self.base_url = address(model, base_url)
        self._chat = chat_model(model, base_url, options or {})
        self._where = model + (f" at {self.base_url}" if self.base_url else "")
        self._provider = PROVIDERS[model.partition(":")[0]]
        self._structured = model.startswith(("openai:", "azure:"))
        self._times = 1 + int(getattr(self._chat, "max_retries", None) or 0)
        self._progress = progress

    def answer(self, request: ChatRequest, *, limit: int | None) -> ChatAnswer:
        if limit is None:
            return self._answer_in_form(request, {})
        try:
            return self._answer_in_form(request, {self._provider.limit: limit})
        except ContextWindowExceeded:
            if limit <= SHORT_ANSWER:
                raise
        # Some servers count the answer's limit towards the context window.
        return self._answer_in_form(request, {self._provider.limit: SHORT_ANSWER})

    def _answer_in_form(self, request: ChatRequest, bounds: dict[str, int]) -> ChatAnswer:
        if isinstance(request, ToolRequest):
            return self._stream(request, list(request.conversation), **bounds)
        if request.schema is not None and self._structured:
            try:
                return self._stream(request, self._messages(request, plain=False), **self._form(request.schema), **bounds)
            except _Unstructured as error:
                note = f"{self._where} does not offer json_schema: replies are read from plain text"
                if note not in self.notes:
                    log.warning("%s (%s)", note, error)
                    self.notes.append(note)
                self._structured = False
        return self._stream(request, self._messages(request, plain=True), **bounds)

    def _form(self, schema: type[Reply]) -> dict[str, Any]:
        # As an argument the client would parse the answer itself, and lose the token counts of one that is cut.
        form = {"response_format": response_format(schema)}
        return form if getattr(self._chat, "use_responses_api", False) else {"extra_body": form}

    def _messages(self, request: ChatRequest, *, plain: bool) -> list[BaseMessage]:
        """Returns the request's messages; with `plain` the first one ends with the form of the answer."""
        kinds: dict[str, type[HumanMessage | AIMessage]] = {"user": HumanMessage, "assistant": AIMessage}
        texts = [message.text for message in request.messages]
        if plain and request.schema is not None:
            texts[0] = f"{texts[0]}\n\n{request.schema.instructions()}"
        return [kinds[message.speaker](text) for message, text in zip(request.messages, texts, strict=True)]

    def _stream(self, request: ChatRequest, messages: list[BaseMessage], **options: Any) -> ChatAnswer:
        pieces: list[AIMessage] = []
        characters = 0
        tools = list(request.tools) if isinstance(request, ToolRequest) else []
        try:
            for chunk in (self._chat.bind_tools(tools) if tools else self._chat).stream(messages, **options):
                pieces.append(chunk)
                characters += len(chunk.text) + _called_characters(chunk)
                if self._progress is not None:
                    self._progress(request.role, len(pieces))
                if characters > MOST_CHARACTERS:
                    return _read_answer(_joined(pieces), "long", with_calls=bool(tools))
        except (StitchError, KeyboardInterrupt):
            raise
        except Exception as error:         # each provider's client has errors of its own
            raise self._translate(error, _joined(pieces) if pieces else None) from error
        whole = _joined(pieces) if pieces else None
        if whole is None or (isinstance(whole, AIMessageChunk) and not _finish_reason(whole)):
            raise AnswerInterrupted(f"{self._where} broke off its answer (the stream ends before it)", _received_text(whole))
        return _read_answer(whole, "", with_calls=bool(tools))

    def _translate(self, error: Exception, whole: AIMessage | None) -> Exception:
        """Returns the error to raise for a client's error, by its status and text; `whole` is what came of the answer."""
        status = _status(error)
        text = one_line(f"{error} {json.dumps(getattr(error, 'body', None), default=str)}", 2000).lower()
        if status in {None, 400, 413, 422} and any(sign in text for sign in TOO_LONG):
            return ContextWindowExceeded(error_text(error))
        if status in {400, 422, 501} and any(
            sign in text for sign in ("response_format", "json_schema", "structured output", "guided")
        ):
            return _Unstructured(error_text(error))
        # An error without a status that is not about the connection came as an event of the stream.
        event = isinstance(error, openai.APIError) and not isinstance(error, openai.APIConnectionError)
        if status is None and (whole is not None or event):
            return AnswerInterrupted(f"{self._where} broke off its answer ({error_text(error)})", _received_text(whole))
        words = f"{self._where} {explain_error(error, self._provider.key)}"
        return NoAnswer(words, self._times) if status is None and _was_sent(error) else Unavailable(words)


class _Unstructured(Exception):
    """The server does not take a JSON schema."""


def _joined(pieces: list[AIMessage]) -> AIMessage:
    """Returns the whole answer. All pieces are joined at once: each time, LangChain reads all arguments of calls anew. A client
    with streaming disabled yields one whole message."""
    chunks = [piece for piece in pieces if isinstance(piece, AIMessageChunk)]
    return chunks[0] + chunks[1:] if len(chunks) == len(pieces) else pieces[-1]


def _finish_reason(whole: AIMessage) -> str:
    """Returns why the answer ended, in the server's word; "" if the stream did not get that far."""
    facts = whole.response_metadata
    incomplete = (facts.get("incomplete_details") or {}).get("reason")
    return str(facts.get("finish_reason") or facts.get("stop_reason") or incomplete or facts.get("status") or "")


def _received_text(whole: AIMessage | None) -> str:
    found = _read_answer(whole, "") if whole is not None else None
    return found.thinking + found.text if found else ""


def _was_sent(error: BaseException) -> bool:
    """Whether the request reached the server before the connection was lost or timed out."""
    found: BaseException | None = error
    while found is not None:
        if isinstance(found, TRANSPORT):
            return type(found).__name__ in {"ReadTimeout", "ReadError", "RemoteProtocolError"}
        found = found.__cause__
    return False


def _with_calls(whole: AIMessage) -> dict[str, Any]:
    """Returns a message as it can be stored. Calls whose arguments are no JSON are invalid: LangChain reads the beginning of
    JSON as if it were all. Halves of characters, as JSON can escape them, become "?"."""
    message = message_chunk_to_message(whole) if isinstance(whole, AIMessageChunk) else whole
    assert isinstance(message, AIMessage)
    chunks = whole.tool_call_chunks if isinstance(whole, AIMessageChunk) else []
    broken = [invalid_tool_call(name=call["name"], args=call["args"], id=call["id"]) for call in chunks if _broken(call)]
    message = message.model_copy(update={"invalid_tool_calls": broken or message.invalid_tool_calls})
    found: dict[str, Any] = json.loads(json.dumps(message_to_dict(message), ensure_ascii=False).encode("utf-8", "replace"))
    return found


def _broken(call: ToolCallChunk) -> bool:
    try:
        return not isinstance(json.loads(call["args"] or "{}"), dict)
    except ValueError:
        return True


def _called_characters(chunk: AIMessage) -> int:
    """Returns the characters of calls of tools in a piece of an answer."""
    return sum(len(call["args"] or "") for call in chunk.tool_call_chunks) if isinstance(chunk, AIMessageChunk) else 0


def _read_answer(whole: AIMessage, finish: str, *, with_calls: bool = False) -> ChatAnswer:
    facts, extra = whole.response_metadata, whole.additional_kwargs
    used = whole.usage_metadata
    reason = _finish_reason(whole)
    finish = finish or FINISHES.get(reason, reason) or "stop"
    refusal = str(extra.get("refusal") or "")
    thinking = str(extra.get("reasoning_content") or "")
    for block in whole.content_blocks:
        if block["type"] == "reasoning":
            thinking += str(block.get("reasoning") or "")
        elif block["type"] == "non_standard" and block["value"].get("type") == "refusal":
            refusal = refusal or str(block["value"].get("refusal") or "refused")
    if finish in {"content_filter", "refusal", "SAFETY"}:
        refusal = refusal or f"stopped by a filter ({finish})"
    return ChatAnswer(
        text=whole.text[:MOST_CHARACTERS],
        thinking=thinking,
        refusal=refusal,
        finish=finish,
        model=str(facts.get("model_name") or facts.get("model") or ""),
        input_tokens=used["input_tokens"] if used else None,
        cached_tokens=(used.get("input_token_details") or {}).get("cache_read") or 0 if used else 0,
        written_tokens=(used.get("input_token_details") or {}).get("cache_creation") if used else None,
        output_tokens=used["output_tokens"] if used else None,
        message=_with_calls(whole) if with_calls else None,
    )


def _status(error: Exception) -> int | None:
    """Returns the HTTP status of a client's error or of an error that it wraps; None without one."""
    found: BaseException | None = error
    while found is not None:
        for name in ("status_code", "code"):
            status = getattr(found, name, None)
            if isinstance(status, int):
                return status
        found = found.__cause__
    return None


def error_text(error: Exception) -> str:
    """Returns the server's message, else the error's own, in one line."""
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else None
    words = str(inner.get("message", "")) if isinstance(inner, dict) else ""
    cause: BaseException = error
    while not words and cause.__cause__ is not None and _status(error) is None:  # "Connection refused" is wrapped twice
        cause = cause.__cause__
    return one_line(words) or one_line(str(getattr(cause, "message", "") or cause)) or type(cause).__name__


def explain_error(error: Exception, key: str) -> str:
    """Returns what went wrong and what to do: the rest of a sentence that starts with the endpoint's name. `key` is the
    environment variable of the provider's key."""
    status, words = _status(error), error_text(error)
    if "timeout" in type(error).__name__.lower():
        return "did not answer in time: check that the server is up, or resume later"
    if status is None:
        if isinstance(error, (OSError, *TRANSPORT)) or "connection" in type(error).__name__.lower():
            return f"cannot be reached ({words}): check --base-url and that the server is up"
        return f"cannot be used ({type(error).__name__}: {words}): try another model with --model"
    if status == 401:
        return f"refused the key (401: {words}): check {key}"
    if status == 403:
        return f"does not allow this (403: {words}): check what the key may use"
    if status == 404:
        return f"is not there (404: {words}): check the model's name and --base-url"
    if status == 429:
        return f"still refuses for rate or quota after {RETRIES} retries (429: {words}): resume later"
    if status >= 500:
        return f"fails after {RETRIES} retries ({status}: {words}): resume later"
    return f"refused the request ({status}: {words}): another model may accept it"


def one_line(text: str, limit: int = 200) -> str:
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= limit else line[: limit - 1] + "…"
