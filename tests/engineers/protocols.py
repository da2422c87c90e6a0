"""What providers send for one and the same reply: OpenAI's chat completions and responses, Anthropic's messages.

Each form comes whole and as the events of a stream. Plain dictionaries, as their documentation has them; who sends them, and
what breaks on the way, is `tests/engineers/protocol_server.py`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Body = dict[str, Any]
_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Reply:
    """What a model answers, and how the sending of it goes."""

    text: str = ""
    thinking: str = ""                     # apart from the text: `reasoning_content`, a summary, a thinking block
    refusal: str = ""                      # in the field that is meant for it
    finish: str = "stop"                   # OpenAI's word: stop, length, content_filter
    lost: bool = False                     # the connection breaks after the text, before its end
    trouble: str = ""                      # an event after the text that says what went wrong there; it is the last one
    silence_s: float = 0.0                 # before the first byte
    cached: int = 0                        # tokens of the prompt that a cache held
    calls: tuple[tuple[str, Any], ...] = ()  # of tools: name, and arguments (a text as it is, else as JSON)


@dataclass(frozen=True)
class Counts:
    """Tokens of a prompt and its reply."""

    read: int
    written: int
    cached: int = 0


@dataclass(frozen=True)
class Form:
    """One provider's way of sending: `pieces` is `text` cut, `counts` None where the server tells none."""

    whole: Callable[[str, Reply, Counts | None], Body]
    events: Callable[[str, Reply, list[str], Counts | None], Iterator[Body]]
    last: str = ""                         # what follows the events


def completion(model: str, reply: Reply, counts: Counts | None) -> Body:
    message: Body = {"role": "assistant", "content": reply.text, "refusal": reply.refusal or None}
    if reply.thinking:
        message["reasoning_content"] = reply.thinking
    if reply.calls:
        message["tool_calls"] = _tool_calls(reply)
    choice = {"index": 0, "message": message, "finish_reason": reply.finish}
    return {"id": "c", "object": "chat.completion", "created": 0, "model": model, "choices": [choice]} | _usage(counts)


def completion_chunks(model: str, reply: Reply, pieces: list[str], counts: Counts | None) -> Iterator[Body]:
    def chunk(delta: Body, finish: str | None = None) -> Body:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": model, "choices": [choice]}

    if reply.thinking:
        yield chunk({"role": "assistant", "content": "", "reasoning_content": reply.thinking})
    if reply.refusal:
        yield chunk({"role": "assistant", "refusal": reply.refusal})
    for piece in pieces if reply.text or not reply.trouble else ():
        yield chunk({"role": "assistant", "content": piece})
    for at, call in enumerate(_tool_calls(reply)):
        function, text = call["function"], call["function"]["arguments"]
        yield chunk({"tool_calls": [call | {"index": at, "function": function | {"arguments": ""}}]})
        for begin in range(0, len(text), 200):
            yield chunk({"tool_calls": [{"index": at, "function": {"arguments": text[begin : begin + 200]}}]})
    if reply.trouble:
        yield {"error": {"message": reply.trouble, "type": "server_error", "code": None}}
    if reply.lost or reply.trouble:
        return
    yield chunk({}, reply.finish)
    if counts:
        yield chunk({}) | {"choices": []} | _usage(counts)


def response(model: str, reply: Reply, counts: Counts | None) -> Body:
    part: Body = {"type": "output_text", "text": reply.text, "annotations": []}
    if reply.refusal:
        part = {"type": "refusal", "refusal": reply.refusal}
    output: list[Body] = []
    if reply.thinking:
        output.append({"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": reply.thinking}]})
    output.append({"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]})
    reason = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(reply.finish)
    body: Body = {
        "id": "r", "object": "response", "created_at": 0, "model": model, "output": output, "parallel_tool_calls": False,
        "tool_choice": "auto", "tools": [], "status": "incomplete" if reason else "completed",
        "incomplete_details": {"reason": reason} if reason else None,
    }  # fmt: skip
    if counts:
        body["usage"] = {
            "input_tokens": counts.read, "input_tokens_details": {"cached_tokens": counts.cached},
            "output_tokens": counts.written, "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": counts.read + counts.written,
        }  # fmt: skip
    return body


def response_events(model: str, reply: Reply, pieces: list[str], counts: Counts | None) -> Iterator[Body]:
    whole = response(model, reply, counts)
    yield {"type": "response.created", "response": whole | {"output": [], "status": "in_progress", "usage": None}}
    for at, item in enumerate(whole["output"]):
        place = {"output_index": at, "item_id": item["id"]}
        empty: Body = {"summary": []} if item["type"] == "reasoning" else {"content": []}
        yield {"type": "response.output_item.added", "output_index": at, "item": item | empty}
        if item["type"] == "reasoning":
            place |= {"summary_index": 0}
            yield place | {"type": "response.reasoning_summary_part.added", "part": {"type": "summary_text", "text": ""}}
            yield place | {"type": "response.reasoning_summary_text.delta", "delta": reply.thinking}
        elif reply.refusal:
            yield place | {"type": "response.refusal.delta", "content_index": 0, "delta": reply.refusal}
            yield place | {"type": "response.refusal.done", "content_index": 0, "refusal": reply.refusal}
        else:
            for piece in pieces:
                yield place | {"type": "response.output_text.delta", "content_index": 0, "delta": piece}
            if reply.lost:
                return
            yield place | {"type": "response.output_text.done", "content_index": 0, "text": reply.text}
        yield {"type": "response.output_item.done", "output_index": at, "item": item}
    yield {"type": f"response.{whole['status']}", "response": whole}


def message(model: str, reply: Reply, counts: Counts | None) -> Body:
    thought = [{"type": "thinking", "thinking": reply.thinking, "signature": "s"}] if reply.thinking else []
    content = [*thought, {"type": "text", "text": reply.text}]
    calls = _numbered(reply)
    content += [{"type": "tool_use", "id": f"toolu_{at}", "name": name, "input": given} for at, (name, given) in calls]
    body = {"id": "m", "type": "message", "role": "assistant", "model": model, "content": content, "stop_sequence": None}
    return body | {"stop_reason": _stop_reason(reply), "usage": _tokens(counts)}


def message_events(model: str, reply: Reply, pieces: list[str], counts: Counts | None) -> Iterator[Body]:
    whole = message(model, reply, counts)
    yield {"type": "message_start", "message": whole | {"content": [], "stop_reason": None}}
    blocks: list[tuple[Body, list[Body]]] = []
    if reply.thinking:
        thought = [{"type": "thinking_delta", "thinking": reply.thinking}, {"type": "signature_delta", "signature": "s"}]
        blocks.append(({"type": "thinking", "thinking": "", "signature": ""}, thought))
    blocks.append(({"type": "text", "text": ""}, [{"type": "text_delta", "text": piece} for piece in pieces]))
    for at, (name, given) in _numbered(reply):
        use = {"type": "tool_use", "id": f"toolu_{at}", "name": name, "input": {}}
        blocks.append((use, [{"type": "input_json_delta", "partial_json": json.dumps(given)}]))
    for at, (block, deltas) in enumerate(blocks):
        yield {"type": "content_block_start", "index": at, "content_block": block}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": at, "delta": delta}
        if not reply.lost:
            yield {"type": "content_block_stop", "index": at}
    if reply.lost:
        return
    delta = {"stop_reason": _stop_reason(reply), "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": _tokens(counts)}
    yield {"type": "message_stop"}


FORMS = {
    "/chat/completions": Form(completion, completion_chunks, "[DONE]"),
    "/responses": Form(response, response_events),
    "/messages": Form(message, message_events),
}


def _numbered(reply: Reply) -> list[tuple[int, tuple[str, Any]]]:
    """The calls with numbers that no other reply has."""
    return [(next(_NUMBERS), call) for call in reply.calls]


def _tool_calls(reply: Reply) -> list[Body]:
    texts = ((at, name, given if isinstance(given, str) else json.dumps(given)) for at, (name, given) in _numbered(reply))
    return [{"id": f"call_{at}", "type": "function", "function": {"name": name, "arguments": text}} for at, name, text in texts]


def _usage(counts: Counts | None) -> Body:
    if counts is None:
        return {}
    return {"usage": {
        "prompt_tokens": counts.read, "prompt_tokens_details": {"cached_tokens": counts.cached},
        "completion_tokens": counts.written, "total_tokens": counts.read + counts.written,
    }}  # fmt: skip


def _stop_reason(reply: Reply) -> str:
    return {"stop": "end_turn", "length": "max_tokens", "content_filter": "refusal"}[reply.finish]


def _tokens(counts: Counts | None) -> Body:
    counts = counts or Counts(0, 0)
    return {
        "input_tokens": counts.read - counts.cached, "cache_read_input_tokens": counts.cached, "cache_creation_input_tokens": 0,
        "output_tokens": counts.written,
    }  # fmt: skip
