"""Extends LangChain's OpenAI clients by the fields that they drop: thinking text and refusals.

vLLM, SGLang, Ollama and DeepSeek send thinking as `reasoning_content` or `reasoning`, OpenAI a refusal as `refusal`;
LangChain's client drops both while a reply streams. Nothing else is changed.

Where to look next: `engineers/providers.py` (creates these clients), `engineers/endpoint.py` (reads the fields).
"""

from __future__ import annotations

from typing import Any

import openai
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_openai import AzureChatOpenAI, ChatOpenAI
from langchain_openai.chat_models.base import BaseChatOpenAI

FIELDS = {"reasoning_content": "reasoning_content", "reasoning": "reasoning_content", "refusal": "refusal"}


class _WithExtraFields(BaseChatOpenAI):
    def _convert_chunk_to_generation_chunk(
        self, chunk: dict[str, Any], default_chunk_class: type, base_generation_info: dict[str, Any] | None
    ) -> ChatGenerationChunk | None:
        found = super()._convert_chunk_to_generation_chunk(chunk, default_chunk_class, base_generation_info)
        choices = chunk.get("choices") or []
        if found is not None and choices:
            found.message.additional_kwargs |= _extra_fields(choices[0].get("delta"))
        return found

    def _create_chat_result(
        self, response: dict[str, Any] | openai.BaseModel, generation_info: dict[str, Any] | None = None
    ) -> ChatResult:
        result = super()._create_chat_result(response, generation_info)
        body = response if isinstance(response, dict) else response.model_dump(warnings=False)
        for generation, choice in zip(result.generations, body["choices"], strict=True):
            if isinstance(generation.message, AIMessage):
                generation.message.additional_kwargs |= _extra_fields(choice.get("message"))
        return result


class OpenAIChat(_WithExtraFields, ChatOpenAI):
    """Client of OpenAI and of every server that speaks its protocol."""


class AzureChat(_WithExtraFields, AzureChatOpenAI):
    """Client of OpenAI's models on Azure."""


def _extra_fields(message: dict[str, Any] | None) -> dict[str, str]:
    """Returns the texts of FIELDS in a message, under our names."""
    found = message or {}
    return {ours: found[name] for name, ours in FIELDS.items() if isinstance(found.get(name), str)}
