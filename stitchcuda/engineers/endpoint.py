"""A chat model behind an address: asks, streams, and says in one sentence why it could not.

A server without `json_schema` is asked in plain text from then on; that is announced and kept in `notes`. It never chooses
another model, keeps nothing and counts no money (`desk.py` does). Which models there are is in `providers.py`.
"""

from __future__ import annotations

import importlib.util
import json
import logging
from collections.abc import Callable
from typing import Any

import openai
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage

from stitchcuda.engineers.chat import Answer, Ask, Broken, Options, Overflow, response_format
from stitchcuda.engineers.providers import PROVIDERS, RETRIES, chat_model
from stitchcuda.errors import StitchError, Unavailable
from stitchcuda.state import Role

log = logging.getLogger(__name__)

Progress = Callable[[Role, int], None]
"""Called while a reply streams in, with the role and the number of chunks so far."""

MOST_CHARACTERS = 1_000_000
"""Of one reply. What is longer is no program that anybody would read: it is broken off there."""
TRANSPORT: tuple[type[Exception], ...] = tuple(
    importlib.import_module(module).TransportError for module in ("httpx", "httpx2") if importlib.util.find_spec(module)
)
"""Lost connections that a client does not wrap while a body streams; which library it uses depends on its version."""
TOO_LONG = ("context_length", "context length", "maximum context", "context window", "prompt is too long", "too many tokens")


class Endpoint:
    """`PROVIDER:NAME`, at `base_url` where that is given. Raises `Unavailable` at once when a key or a package is missing."""

    def __init__(
        self, model: str, base_url: str | None = None, options: Options | None = None, *, progress: Progress | None = None
    ) -> None:
        self.name = model
        self.notes: list[str] = []
        self._chat = chat_model(model, base_url, options or {})
        self._where = model + (f" at {base_url}" if base_url else "")
        self._key = PROVIDERS[model.partition(":")[0]].key
        self._structured = model.startswith(("openai:", "azure:"))
        self._progress = progress

    def answer(self, ask: Ask, *, limit: int | None) -> Answer:
        bounds = {} if limit is None else {"max_tokens": limit}
        if ask.schema is not None and self._structured:
            try:
                return self._stream(ask, self._messages(ask, plain=False), response_format=response_format(ask.schema), **bounds)
            except _Unstructured as error:
                note = f"{self._where} does not offer json_schema: replies are read from plain text"
                if note not in self.notes:
                    log.warning("%s (%s)", note, error)
                    self.notes.append(note)
                self._structured = False
        return self._stream(ask, self._messages(ask, plain=True), **bounds)

    def _messages(self, ask: Ask, *, plain: bool) -> list[BaseMessage]:
        """In plain text the first message ends with how to answer."""
        kinds: dict[str, type[HumanMessage | AIMessage]] = {"user": HumanMessage, "assistant": AIMessage}
        texts = [message.text for message in ask.messages]
        if plain and ask.schema is not None:
            texts[0] = f"{texts[0]}\n\n{ask.schema.instructions()}"
        return [kinds[message.speaker](text) for message, text in zip(ask.messages, texts, strict=True)]

    def _stream(self, ask: Ask, messages: list[BaseMessage], **options: Any) -> Answer:
        whole: AIMessageChunk | None = None
        chunks, characters = 0, 0
        try:
            for chunk in self._chat.stream(messages, **options):
                assert isinstance(chunk, AIMessageChunk)
                whole = chunk if whole is None else whole + chunk
                chunks, characters = chunks + 1, characters + len(chunk.text)
                if self._progress is not None:
                    self._progress(ask.role, chunks)
                if characters > MOST_CHARACTERS:
                    return _answer(whole, "long")
        except openai.LengthFinishReasonError:
            return _answer(whole, "length")
        except openai.ContentFilterFinishReasonError:
            return _answer(whole, "content_filter")
        except (StitchError, KeyboardInterrupt):
            raise
        except Exception as error:         # of whichever client: told apart by what it says, never passed over
            raise self._told(error, begun=chunks > 0) from error
        return _answer(whole, "")

    def _told(self, error: Exception, *, begun: bool) -> Exception:
        status = _status(error)
        text = one_line(f"{error} {json.dumps(getattr(error, 'body', None), default=str)}", 2000).lower()
        if status in {400, 413, 422} and any(sign in text for sign in TOO_LONG):
            return Overflow(said(error))
        if status in {400, 422, 501} and any(
            sign in text for sign in ("response_format", "json_schema", "structured output", "guided")
        ):
            return _Unstructured(said(error))
        if begun and status is None:
            return Broken(f"{self._where} broke off its answer ({said(error)})")
        return Unavailable(f"{self._where} {complaint(error, self._key)}")


class _Unstructured(Exception):
    """The server does not take a JSON schema."""


def _answer(whole: AIMessageChunk | None, finish: str) -> Answer:
    if whole is None:
        return Answer(text="", finish=finish or "stop")
    facts, extra = whole.response_metadata, whole.additional_kwargs
    used = whole.usage_metadata
    told = facts.get("finish_reason") or facts.get("stop_reason") or "stop"
    if (facts.get("incomplete_details") or {}).get("reason") == "max_output_tokens":
        told = "length"
    finish = finish or {"max_tokens": "length", "MAX_TOKENS": "length", "end_turn": "stop", "STOP": "stop"}.get(told, str(told))
    refusal = str(extra.get("refusal") or "")
    thinking = str(extra.get("reasoning_content") or "")
    for block in whole.content_blocks:
        if block["type"] == "reasoning":
            thinking += str(block.get("reasoning") or "")
        elif block["type"] == "non_standard" and block["value"].get("type") == "refusal":
            refusal = refusal or str(block["value"].get("refusal") or "refused")
    if finish in {"content_filter", "refusal", "SAFETY"}:
        refusal = refusal or f"stopped by a filter ({finish})"
    return Answer(
        text=whole.text[:MOST_CHARACTERS],
        thinking=thinking,
        refusal=refusal,
        finish=finish,
        model=str(facts.get("model_name") or facts.get("model") or ""),
        input_tokens=used["input_tokens"] if used else None,
        cached_tokens=(used.get("input_token_details") or {}).get("cache_read") or 0 if used else 0,
        written_tokens=(used.get("input_token_details") or {}).get("cache_creation") if used else None,
        output_tokens=used["output_tokens"] if used else None,
    )


def _status(error: Exception) -> int | None:
    """The HTTP status that a client's error carries, by any of the names that they use."""
    for name in ("status_code", "code"):
        found = getattr(error, name, None)
        if isinstance(found, int):
            return found
    return None


def said(error: Exception) -> str:
    """The server's own words, else the error's, in one line."""
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, dict) else None
    words = str(inner.get("message", "")) if isinstance(inner, dict) else ""
    cause: BaseException = error
    while not words and cause.__cause__ is not None and _status(error) is None:  # "Connection refused" is wrapped twice
        cause = cause.__cause__
    return one_line(words) or one_line(str(getattr(cause, "message", "") or cause)) or type(cause).__name__


def complaint(error: Exception, key: str) -> str:
    """What went wrong and what to do, as the rest of a sentence that starts with the endpoint's name."""
    status, words = _status(error), said(error)
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
