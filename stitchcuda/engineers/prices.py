"""Computes what a chat model's tokens cost, and how many output tokens a sum of money still allows.

List prices come from the table inside the library genai-prices, never from the network; the file that STITCHCUDA_PRICES names
comes first. An uncertain price is taken too high, never too low: the dearest hour and announced increases count, Azure costs
what a regional deployment does (REGIONAL), and input counts as written to the cache unless the server says otherwise. Priority,
batch and one-hour cache rates are ignored. No tokens are counted here. `python -m stitchcuda.engineers.prices MODEL…` prints
prices.

Where to look next: `engineers/budget.py` (limits calls by these prices), `engineers/tokens.py` (counts tokens).
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
"""Prefix of a model's name → the provider's id in genai-prices."""
REGIONAL = Decimal("1.1")
"""The table has Azure's global deployments. Those in a data zone or region cost 10 % more; the API does not say which it is."""
RELEASE = re.compile(r"[-@](\d{4}-\d\d-\d\d|\d{8})$")

Usd = Annotated[Decimal, Field(ge=0, le=1_000_000, decimal_places=6)]
"""USD per 1,000,000 tokens."""


@dataclass(frozen=True)
class Price:
    """What a model costs: the most expensive of several sets of rates, times `factor`. Limits are in tokens; None: unknown."""

    rates: tuple[ModelPrice, ...]
    factor: Decimal = Decimal(1)
    context: int | None = None             # input and output together
    max_output: int | None = None

    def usd(self, input_tokens: int, output_tokens: int, *, read: int = 0, written: int = 0) -> Decimal:
        """Returns the USD of one request. `read`, `written`: input tokens that were read from and written to the cache."""
        usage = Usage(
            input_tokens=input_tokens, cache_read_tokens=read, cache_write_tokens=written, output_tokens=output_tokens
        )
        return self.factor * max(rates.calc_price(usage)["total_price"] for rates in self.rates)

    def __str__(self) -> str:
        dearer = f"; times {self.factor}" if self.factor != 1 else ""
        return "; later ".join(map(str, self.rates)) + dearer


def price_of(model: str, *, base_url: str | None = None) -> Price | None:
    """Returns the price of a model, given with or without its provider's prefix (`openai:gpt-5`); None where it is unknown. The
    user's file comes first. At a `base_url` that is no known provider's the price is unknown. Raises BadInput where the user's
    file cannot be used."""
    users = _users_prices()
    name = strip_provider(model)
    if (entry := users.get(name) or users.get(RELEASE.sub("", name))) is not None:
        return entry.price
    now = datetime.now(UTC)
    hours = (now + timedelta(hours=hour) for hour in range(24))
    moments = (*hours, now + timedelta(days=3650))  # every hour of a day, and announced changes
    found = [_list_price(model, base_url, moment) for moment in moments]
    rates = [calculated.model_price for calculated in found if calculated is not None]
    if found[0] is None or any(price.input_mtok is None or price.output_mtok is None for price in rates):
        return None
    return Price(
        tuple(price for at, price in enumerate(rates) if price not in rates[:at]),
        REGIONAL if found[0].provider.id == "azure" else Decimal(1),
        found[0].model.context_window,
    )


def _list_price(model: str, base_url: str | None, moment: datetime) -> PriceCalculation | None:
    """Looks up a model in genai-prices by its address, or by its provider where no address is given."""
    name, provider = strip_provider(model), PROVIDERS.get(model.partition(":")[0])
    try:
        if base_url:
            return genai_prices.calc_price(
                Usage(), name, provider_api_url=_plain_address(base_url), genai_request_timestamp=moment
            )
        if provider is None and ":" in name:  # such as mailbox:DIR
            return None
        return genai_prices.calc_price(Usage(), name, provider_id=provider, genai_request_timestamp=moment)
    except LookupError:
        return None


def _plain_address(base_url: str) -> str:
    """Returns an address without user and port, its host in lower case; unchanged if it cannot be parsed."""
    try:
        parts = urlsplit(base_url)
    except ValueError:
        return base_url
    return f"{parts.scheme}://{parts.hostname}{parts.path}" if parts.hostname else base_url


def cost_usd(
    price: Price, input_tokens: int, cached_tokens: int, output_tokens: int, *, written_tokens: int | None = None
) -> float:
    """Returns the USD of a request that was made. Of its `input_tokens`, `cached_tokens` were read from the server's cache and
    `written_tokens` written to it. If the latter is None (the server does not say), either all or none of the rest counts as
    written, whichever costs more."""
    cached = min(cached_tokens, input_tokens)
    plain = input_tokens - cached
    guesses = (0, plain) if written_tokens is None else (min(written_tokens, plain),)
    return float(max(price.usd(input_tokens, output_tokens, read=cached, written=guess) for guess in guesses))


def worst_case_usd(price: Price, input_tokens: int, output_limit: int) -> float:
    """Returns the most USD that a request can cost: all input at the highest rate, and `output_limit` tokens of output."""
    return float(_worst_case(price, input_tokens, output_limit))


def affordable_output(price: Price, input_tokens: int, usd_left: float, most: int) -> int:
    """Returns the most output tokens, up to `most`, whose worst case costs no more than `usd_left`; 0 if there are none."""
    outputs = range(1, most + 1)
    return bisect.bisect_right(outputs, Decimal(usd_left), key=lambda output: _worst_case(price, input_tokens, output))


def strip_provider(model: str) -> str:
    """Returns a model's name without its provider's prefix. Other colons belong to the name, as in `qwen3:8b`."""
    prefix, _, name = model.strip().partition(":")
    return name if prefix in PROVIDERS else model.strip()


def _worst_case(price: Price, input_tokens: int, output: int) -> Decimal:
    cached = ((0, 0), (input_tokens, 0), (0, input_tokens))
    return max(price.usd(input_tokens, output, read=read, written=written) for read, written in cached)


class Rates(Record):
    """USD per 1,000,000 tokens. Reasoning counts as output. `cached` and `written` default to the rate of other input."""

    input: Usd
    output: Usd
    cached: Usd | None = None  # input read from the server's cache
    written: Usd | None = None  # input written to the server's cache


class Surcharge(Rates):
    """Rates that apply to a whole request if its input has more than `tokens` tokens."""

    tokens: PositiveInt


class OwnPrice(Rates):
    """The price of one model in the user's file."""

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
    """The user's file: model name → price."""

    models: dict[str, OwnPrice]


def _users_prices() -> dict[str, OwnPrice]:
    """Reads the file that STITCHCUDA_PRICES names; {} without one. Raises BadInput when it cannot be read."""
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
        return {strip_provider(name): entry for name, entry in table.models.items()}
    raise BadInput(f"{VARIABLE} names {path}, which is no table of prices ({why}): give it the form shown in docs/models.md.")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        try:
            print(f"{name}: {price_of(name) or 'not known'}")
        except BadInput as error:
            sys.exit(str(error))
