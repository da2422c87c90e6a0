"""One OpenAI-compatible chat endpoint: asks, streams, counts, and says in one sentence why it could not.

A reply is checked against its schema here, and a malformed one gets one repair in which the model sees the error. A server
without `json_schema` is asked in plain text from then on; that is announced and kept in `notes`. It never chooses another
model or another path. What is asked stands in `llm.py` and `prompts/`; how text becomes a reply in `reply.py`.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import logging
import os
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

import openai
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from stitchcuda.engineers.reply import Malformed, Reply
from stitchcuda.errors import Unavailable
from stitchcuda.state import Usage

log = logging.getLogger(__name__)

R = TypeVar("R", bound=Reply)
Progress = Callable[[str, int], None]
"""Called while a reply streams in, with the role and the number of chunks so far."""

CONNECT_S = 10.0
REPLY_S = 600.0  # the longest silence while a model thinks
RETRIES = 2  # the client's own, for 408, 409, 429 (honouring retry-after), 5xx and lost connections
TRANSPORT: tuple[type[Exception], ...] = tuple(
    importlib.import_module(module).TransportError for module in ("httpx", "httpx2") if importlib.util.find_spec(module)
)
"""Lost connections that the client does not wrap while a body streams; which library it uses depends on its version."""
FAILURES: tuple[type[Exception], ...] = (openai.OpenAIError, OSError, *TRANSPORT)


class Endpoint:
    """A chat model behind an address. Raises `Unavailable` at once when a key is needed and missing."""

    def __init__(self, model: str, base_url: str | None = None, *, progress: Progress | None = None) -> None:
        self.model = model
        self.base_url = base_url or os.environ.get("OPENAI_BASE_URL") or None
        self.notes: list[str] = []
        self.usage = Usage()
        self._structured = True
        self._progress = progress
        key = os.environ.get("OPENAI_API_KEY", "").strip()
        if not key and not (self.base_url and is_local(self.base_url)):
            where = self.base_url or "api.openai.com"
            raise Unavailable(
                f"No key for openai:{model} at {where}: set OPENAI_API_KEY (any text if the server wants none), "
                "or use --model builtin, which needs no key."
            )
        self._chat = ChatOpenAI(
            model=model,
            base_url=self.base_url,
            api_key=SecretStr(key or "none"),
            streaming=True,
            stream_usage=True,
            use_responses_api=False,
            timeout=openai.Timeout(REPLY_S, connect=CONNECT_S),
            max_retries=RETRIES,
        )

    @property
    def name(self) -> str:
        return f"openai:{self.model}" + (f" at {self.base_url}" if self.base_url else "")

    def ask(self, role: str, prompt: str, schema: type[R], check: Callable[[R], None]) -> R:
        """One reply of `schema` that `check` accepts (it raises `Malformed` otherwise).

        Raises `Unavailable` when the endpoint does not answer, refuses, or answers twice with something else.
        """
        messages: list[BaseMessage] = [HumanMessage(prompt)]
        problem = ""
        for _ in range(2):
            text = self._complete(role, messages, schema)
            try:
                reply = schema.from_text(text)
                check(reply)
                return reply
            except Malformed as error:
                problem = str(error)
                log.info("%s: malformed reply as %s, asking once more: %s", self.name, role, problem)
                repair = f"Your reply could not be used: {problem}\nReply again, complete and in the required form."
                messages = [*messages[:1], AIMessage(text or "(empty)"), HumanMessage(repair)]
        raise Unavailable(
            f"{self.name} answered as {role} twice in a form that cannot be used ({one_line(problem)}): "
            "try another model with --model."
        )

    def _complete(self, role: str, messages: list[BaseMessage], schema: type[Reply]) -> str:
        if self._structured:
            try:
                return self._stream(role, messages, response_format=response_format(schema))
            except openai.APIStatusError as error:
                if not lacks_json_schema(error):
                    raise self._unavailable(error) from error
                note = f"{self.name} does not offer json_schema: replies are read from plain text"
                log.warning("%s (%s)", note, one_line(error.message))
                self.notes.append(note)
                self._structured = False
        instructed = [HumanMessage(f"{messages[0].text}\n\n{schema.instructions()}"), *messages[1:]]
        try:
            return self._stream(role, instructed)
        except openai.APIStatusError as error:
            raise self._unavailable(error) from error

    def _stream(self, role: str, messages: list[BaseMessage], **options: Any) -> str:
        whole: AIMessageChunk | None = None
        chunks = 0
        try:
            for chunk in self._chat.stream(messages, **options):
                assert isinstance(chunk, AIMessageChunk)
                whole = chunk if whole is None else whole + chunk
                chunks += 1
                if self._progress is not None:
                    self._progress(role, chunks)
        except openai.APIStatusError:
            raise
        except openai.LengthFinishReasonError as error:
            raise self._cut_off(role) from error
        except FAILURES as error:
            raise self._unavailable(error) from error
        finally:
            self._count(whole)
        if whole is None:
            return ""
        if whole.response_metadata.get("finish_reason") == "length":
            raise self._cut_off(role)
        return whole.text

    def _count(self, whole: AIMessageChunk | None) -> None:
        used = whole.usage_metadata if whole is not None else None
        if used is None and whole is not None and not any("no usage" in note for note in self.notes):
            self.notes.append(f"{self.name} reports no usage: tokens are not counted")
            log.warning(self.notes[-1])
        self.usage = self.usage.model_copy(
            update={
                "calls": self.usage.calls + 1,
                "input_tokens": self.usage.input_tokens + (used["input_tokens"] if used else 0),
                "output_tokens": self.usage.output_tokens + (used["output_tokens"] if used else 0),
                "usd": None,  # no price is known for any model yet
            }
        )

    def _cut_off(self, role: str) -> Unavailable:
        return Unavailable(f"{self.name} stopped at its output limit as {role}: use a model with a longer output.")

    def _unavailable(self, error: Exception) -> Unavailable:
        return Unavailable(f"{self.name} {complaint(error)}")


def response_format(schema: type[Reply]) -> dict[str, Any]:
    return {
        "type": "json_schema",
        "json_schema": {"name": schema.__name__, "strict": True, "schema": schema.model_json_schema()},
    }


def lacks_json_schema(error: openai.APIStatusError) -> bool:
    """Servers without structured output answer 400, 422 or 501 and name the field."""
    text = f"{error.message} {error.body}".lower()
    return error.status_code in {400, 422, 501} and any(
        word in text for word in ("response_format", "json_schema", "structured output", "guided")
    )


def complaint(error: Exception) -> str:
    """What went wrong and what to do, as the rest of a sentence that starts with the endpoint's name."""
    if isinstance(error, openai.APITimeoutError):
        return "did not answer in time: check that the server is up, or resume later."
    if isinstance(error, (openai.APIConnectionError, OSError, *TRANSPORT)):
        cause: BaseException = error
        while cause.__cause__ is not None:  # the client wraps "Connection refused" twice
            cause = cause.__cause__
        why = one_line(str(cause)) or type(cause).__name__
        return f"cannot be reached ({why}): check --base-url and that the server is up."
    if isinstance(error, openai.APIStatusError):
        said = one_line(str(error.body.get("message", "")) if isinstance(error.body, dict) else "") or one_line(error.message)
        if error.status_code == 401:
            return f"refused the key (401: {said}): check OPENAI_API_KEY."
        if error.status_code == 403:
            return f"does not allow this (403: {said}): check what the key may use."
        if error.status_code == 404:
            return f"is not there (404: {said}): check the model's name and --base-url."
        if error.status_code == 429:
            return f"still refuses for rate or quota after {RETRIES} retries (429: {said}): resume later."
        if error.status_code >= 500:
            return f"fails after {RETRIES} retries ({error.status_code}: {said}): resume later."
        return f"refused the request ({error.status_code}: {said}): another model may accept it."
    return f"broke off its answer ({one_line(str(error)) or type(error).__name__}): resume later."


def is_local(base_url: str) -> bool:
    """Whether the address is this machine or a private network, where servers commonly want no key."""
    host = urlsplit(base_url).hostname or ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or host.endswith((".local", ".localhost", ".internal"))
    return address.is_private or address.is_loopback


def one_line(text: str, limit: int = 200) -> str:
    line = " ".join(text.split()).rstrip(".")
    return line if len(line) <= limit else line[: limit - 1] + "…"
