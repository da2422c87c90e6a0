"""What the tokens of a chat model cost, and how many a budget still allows.

List prices come from the library genai-prices and the table inside it, which is never updated over the network; a file named
by STITCHCUDA_PRICES goes before them. Where the bill cannot be known it is taken too high, never too low: a promotion that
ends is not counted on, a deployment of Azure costs what a regional one does, and input of which the server does not say
whether it was written to its cache is taken as written. Priority, batch and one-hour cache rates are left out. This module
asks no server, counts no tokens (`engineers/tokens.py`) and keeps no budget. It is also a program that says what a name would
be priced as: `python -m stitchcuda.engineers.prices MODEL…`.
"""

from __future__ import annotations

import bisect
import json
import os
import re
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import genai_prices
from genai_prices.types import ModelPrice, PriceCalculation, Tier, TieredPrices, Usage
from pydantic import Field, PositiveInt, ValidationError

from stitchcuda.errors import BadInput
from stitchcuda.state import Record

VARIABLE = "STITCHCUDA_PRICES"
PROVIDERS = {
    "openai": "openai", "azure": "azure", "azure_openai": "azure", "anthropic": "anthropic", "google": "google",
    "google_genai": "google",
}  # fmt: skip
"""A name's prefix, and what genai-prices calls that provider."""
REGIONAL = Decimal("1.1")
"""The table has Azure's global deployments; one in a data zone or a region costs 10 % more, and which it is nobody tells."""
RELEASE = re.compile(r"[-@](\d{4}-\d\d-\d\d|\d{8})$")

Usd = Annotated[Decimal, Field(ge=0, le=1_000_000, decimal_places=6)]
"""USD per 1,000,000 tokens."""


@dataclass(frozen=True)
class Price:
    """What a model costs: of several sets of rates the most expensive counts. Limits are in tokens; None where not known."""

    rates: tuple[ModelPrice, ...]
    factor: Decimal = Decimal(1)
    context: int | None = None             # input and output together
    max_output: int | None = None

    def usd(self, input_tokens: int, output_tokens: int, *, read: int = 0, written: int = 0) -> Decimal:
        """USD of one request; `read` and `written` are the parts of its input that a cache gave or took."""
        usage = Usage(
            input_tokens=input_tokens, cache_read_tokens=read, cache_write_tokens=written, output_tokens=output_tokens
        )
        return self.factor * max(rates.calc_price(usage)["total_price"] for rates in self.rates)

    def __str__(self) -> str:
        dearer = f"; times {self.factor}" if self.factor != 1 else ""
        return "; later ".join(map(str, self.rates)) + dearer


def price_of(model: str, *, base_url: str | None = None) -> Price | None:
    """The price of a model, with or without its provider's prefix (`openai:gpt-5`).

    None where it is not known, as at any `base_url` that is no known provider's, unless the user's file names the model.
    Raises BadInput when that file cannot be used.
    """
    users = _users_prices()
    name = bare(model)
    if (entry := users.get(name) or users.get(RELEASE.sub("", name))) is not None:
        return entry.price
    now = datetime.now(UTC)
    hours = (now + timedelta(hours=hour) for hour in range(24))
    found = [_listed(model, base_url, moment) for moment in (*hours, now + timedelta(days=3650))]  # also what is announced
    rates = [calculated.model_price for calculated in found if calculated is not None]
    if found[0] is None or any(price.input_mtok is None or price.output_mtok is None for price in rates):
        return None
    return Price(
        tuple(price for at, price in enumerate(rates) if price not in rates[:at]),
        REGIONAL if found[0].provider.id == "azure" else Decimal(1),
        found[0].model.context_window,
    )


def _listed(model: str, base_url: str | None, moment: datetime) -> PriceCalculation | None:
    """What genai-prices has of a model at an address, or with its provider where no address is given."""
    name, provider = bare(model), PROVIDERS.get(model.partition(":")[0])
    try:
        if base_url:
            return genai_prices.calc_price(Usage(), name, provider_api_url=_plain(base_url), genai_request_timestamp=moment)
        if provider is None and ":" in name:  # a mailbox, for one
            return None
        return genai_prices.calc_price(Usage(), name, provider_id=provider, genai_request_timestamp=moment)
    except LookupError:
        return None


def _plain(base_url: str) -> str:
    """An address without user, port and capital letters in its host; as it is where it is no address."""
    try:
        parts = urlsplit(base_url)
    except ValueError:
        return base_url
    return f"{parts.scheme}://{parts.hostname}{parts.path}" if parts.hostname else base_url


def cost_usd(
    price: Price, input_tokens: int, cached_tokens: int, output_tokens: int, *, written_tokens: int | None = None
) -> float:
    """What a request cost. `input_tokens` are all of the prompt's; of these `cached_tokens` were read from the server's cache
    and `written_tokens` written to it. None: the server does not say, and what was not read is taken as written, if that
    costs more."""
    cached = min(cached_tokens, input_tokens)
    plain = input_tokens - cached
    guesses = (0, plain) if written_tokens is None else (min(written_tokens, plain),)
    return float(max(price.usd(input_tokens, output_tokens, read=cached, written=guess) for guess in guesses))


def worst_case_usd(price: Price, input_tokens: int, output_limit: int) -> float:
    """The most that a request can cost: all of its input at the highest rate, and all the output that it may write."""
    return float(_worst(price, input_tokens, output_limit))


def affordable_output(price: Price, input_tokens: int, usd_left: float, most: int) -> int:
    """The most output tokens, up to `most`, for which the worst case costs no more than `usd_left`; 0 if there is none."""
    outputs = range(1, most + 1)
    return bisect.bisect_right(outputs, Decimal(usd_left), key=lambda output: _worst(price, input_tokens, output))


def bare(model: str) -> str:
    """A model's name without its provider's prefix. Other colons belong to the name, as in `qwen3:8b`."""
    prefix, _, name = model.strip().partition(":")
    return name if prefix in PROVIDERS else model.strip()


def _worst(price: Price, input_tokens: int, output: int) -> Decimal:
    cached = ((0, 0), (input_tokens, 0), (0, input_tokens))
    return max(price.usd(input_tokens, output, read=read, written=written) for read, written in cached)


class Rates(Record):
    """USD per 1,000,000 tokens. Reasoning counts as output. Without `cached` or `written` such input costs as other input."""

    input: Usd
    output: Usd
    cached: Usd | None = None  # input that the server read from its cache
    written: Usd | None = None  # input that the server wrote to its cache


class Surcharge(Rates):
    """The rates of a whole request whose input has more than `tokens` tokens."""

    tokens: PositiveInt


class OwnPrice(Rates):
    """A model in the user's file."""

    over: Surcharge | None = None
    context: PositiveInt | None = None
    max_output: PositiveInt | None = None

    @property
    def price(self) -> Price:
        def rate(name: str) -> Decimal | TieredPrices | None:
            usual: Decimal | None = getattr(self, name)
            if self.over is None:
                return usual
            longer: Decimal | None = getattr(self.over, name)
            base, dearer = (self.input if usual is None else usual), (self.over.input if longer is None else longer)
            return TieredPrices(base, [Tier(self.over.tokens, dearer)])

        units = {"input": "input_mtok", "output": "output_mtok", "cached": "cache_read_mtok", "written": "cache_write_mtok"}
        rates = ModelPrice(**{unit: rate(name) for name, unit in units.items()})
        return Price((rates,), context=self.context, max_output=self.max_output)


class Table(Record):
    """The user's file: prices by a model's name."""

    models: dict[str, OwnPrice]


def _users_prices() -> dict[str, OwnPrice]:
    """The entries of the file that STITCHCUDA_PRICES names. Raises BadInput when it cannot be read."""
    path = os.environ.get(VARIABLE, "")
    if not path:
        return {}
    try:
        table = Table.model_validate(json.loads(Path(path).read_text(encoding="utf-8"), parse_float=Decimal))
    except ValidationError as error:
        first = error.errors()[0]
        why = f"{'.'.join(map(str, first['loc'])) or 'it'}: {first['msg']}"
    except (OSError, ValueError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        why = str(error)
    else:
        return {bare(name): entry for name, entry in table.models.items()}
    raise BadInput(f"{VARIABLE} names {path}, which is no table of prices ({why}): give it the form shown in docs/models.md.")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        try:
            print(f"{name}: {price_of(name) or 'not known'}")
        except BadInput as error:
            sys.exit(str(error))
