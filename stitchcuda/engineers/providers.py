"""Creates LangChain's client for `PROVIDER:NAME`; a missing package or key is an error, never another model instead.

PROVIDERS lists them. `openai` is also every server that speaks OpenAI's protocol at a base URL: vLLM, SGLang, Ollama,
llama.cpp. Local and private addresses need no key. No request is sent here.

Where to look next: `engineers/endpoint.py` (sends requests), `engineers/openai_chat.py` (OpenAI's protocol).
"""

from __future__ import annotations

import importlib.util
import ipaddress
import os
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import openai
from langchain_core.language_models import BaseChatModel

from stitchcuda import remedies
from stitchcuda.engineers.chat import Options
from stitchcuda.errors import BadInput, Unavailable

CONNECT_S = 10.0
REPLY_S = 600.0  # read timeout: the longest silence while a model thinks
RETRIES = 2  # retries by the client itself, for 408, 409, 429 (honouring retry-after), 5xx and lost connections


@dataclass(frozen=True)
class Provider:
    """A provider: LangChain's name for it, its package, and the environment variable with its key."""

    known_as: str
    package: str
    key: str
    also: tuple[str, ...] = ()             # further environment variables that it needs
    limit: str = "max_tokens"              # argument of a call that limits the answer's tokens


PROVIDERS = {
    "openai": Provider("openai", "langchain-openai", "OPENAI_API_KEY"),
    "azure": Provider(
        "azure_openai", "langchain-openai", "AZURE_OPENAI_API_KEY", ("AZURE_OPENAI_ENDPOINT", "OPENAI_API_VERSION")
    ),
    "anthropic": Provider("anthropic", "langchain-anthropic", "ANTHROPIC_API_KEY"),
    "google": Provider("google_genai", "langchain-google-genai", "GOOGLE_API_KEY", limit="max_output_tokens"),
}

ADDRESSES = {
    "openai": ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
    "azure": ("AZURE_OPENAI_ENDPOINT",),
    "anthropic": ("ANTHROPIC_API_URL", "ANTHROPIC_BASE_URL"),
}
"""Environment variables that name an address; the first that is set counts."""


def chat_model(model: str, base_url: str | None, options: Options) -> BaseChatModel:
    """Returns LangChain's client for `PROVIDER:NAME`. Raises BadInput for an unknown name or option, Unavailable for a missing
    package, key or variable."""
    kind, _, name = model.partition(":")
    provider = PROVIDERS.get(kind)
    if provider is None or not name:
        raise BadInput(f"--model {model!r} is not known: give PROVIDER:NAME, with one of {', '.join(PROVIDERS)}")
    if importlib.util.find_spec(provider.package.replace("-", "_")) is None:
        package = provider.package
        raise Unavailable(f"{model} needs the package {package}: {remedies.install(package)}, or use another --model")
    base_url = address(model, base_url)
    key = os.environ.get(provider.key, "").strip()
    elsewhere = {"AZURE_OPENAI_ENDPOINT": base_url, "OPENAI_API_VERSION": options.get("api_version")}
    missing = [variable for variable in provider.also if not (os.environ.get(variable, "").strip() or elsewhere[variable])]
    if missing:
        raise Unavailable(f"{model} needs {' and '.join(missing)}: set {'it' if len(missing) == 1 else 'them'}")
    if not key and not (base_url and is_local(base_url)):
        where = f" at {base_url}" if base_url else ""
        raise Unavailable(
            f"No key for {model}{where}: set {provider.key} (any text if the server wants none), "
            "or use --model builtin, which needs no key"
        )
    return _create(provider, name, base_url, key or "none", options)


def _create(provider: Provider, name: str, base_url: str | None, key: str, options: Options) -> BaseChatModel:
    given: dict[str, Any] = {"timeout": REPLY_S, "max_retries": RETRIES, "api_key": key}
    if base_url:
        given["base_url"] = base_url
    if provider.package == "langchain-openai":
        given |= {"timeout": openai.Timeout(REPLY_S, connect=CONNECT_S), "streaming": not options.get("disable_streaming")}
        given |= {"stream_usage": True, "use_responses_api": False}
    if provider.known_as == "azure_openai" and base_url and "/deployments/" not in base_url:
        given["azure_endpoint"] = given.pop("base_url").rstrip("/").removesuffix("/openai")  # the model is the deployment
    try:
        return _client(provider, name, given | dict(options))
    except (ValueError, TypeError) as error:  # raised by pydantic for an unknown option
        text = " ".join(str(error).split())[:200]
        raise BadInput(f"{provider.known_as}:{name} cannot be set up with {dict(options) or 'no options'} ({text})") from error


def _client(provider: Provider, name: str, given: dict[str, Any]) -> BaseChatModel:
    if provider.package == "langchain-openai":
        from stitchcuda.engineers.openai_chat import AzureChat, OpenAIChat

        return (AzureChat if provider.known_as == "azure_openai" else OpenAIChat)(model=name, **given)
    from langchain.chat_models import init_chat_model

    client = init_chat_model(name, model_provider=provider.known_as, **given)
    assert isinstance(client, BaseChatModel)
    return client


def address(model: str, base_url: str | None) -> str | None:
    """Returns the address that replaces the provider's own: as given, else from the environment; None for the provider's."""
    return base_url or next(filter(None, map(os.environ.get, ADDRESSES.get(model.partition(":")[0], ()))), None)


def is_local(base_url: str) -> bool:
    """Whether the address is on this machine or a private network, where servers commonly need no key."""
    host = urlsplit(base_url).hostname or ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return "." not in host or host.endswith((".local", ".localhost", ".internal"))
    return address.is_private or address.is_loopback
