"""What the tokens of a chat model cost, and how many a budget still allows.

List prices, dated and cited in `prices.json`; a file named by STITCHCUDA_PRICES, of the same form, goes before them. Where
the bill cannot be known it is taken too high, never too low: a promotion that ends is not counted on, and input of which
the server does not say whether it was written to its cache is taken as written. Rates of long prompts apply to the whole
request, as all three providers bill it. Priority, batch and regional rates are left out, and so is any address but the
provider's own. This module asks no server, counts no tokens (`engineers/tokens.py`) and keeps no budget. It is also a program:
`python -m stitchcuda.engineers.prices [MODEL…]`.
"""

from __future__ import annotations

import functools
import json
import math
import os
import re
import sys
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, PositiveInt, ValidationError

from stitchcuda.errors import BadInput
from stitchcuda.state import Record

VARIABLE = "STITCHCUDA_PRICES"
TABLE = Path(__file__).with_name("prices.json")
HOSTS = {
    "openai": "api.openai.com",  # not eu. or us.: regional processing costs 10 % more
    "anthropic": "api.anthropic.com",
    "google": "generativelanguage.googleapis.com",
}
PREFIXES = re.compile(r"^(openai|azure|azure_openai|anthropic|google|google_genai):")
DATED = re.compile(r"^(.+)[-@](\d{4}-\d\d-\d\d|\d{8})$")
PICO = 10**12
NO_LIMIT = 2**31 - 1
"""What `affordable_output` says where output is free."""

Usd = Annotated[Decimal, Field(ge=0, le=1_000_000, decimal_places=6)]
"""USD per 1,000,000 tokens; six decimals, so that a token costs a whole number of pico-dollars and no cost is rounded."""


class Rates(Record):
    """USD per 1,000,000 tokens. Reasoning counts as output. Without `cached` or `written` such input costs as other input."""

    input: Usd
    output: Usd
    cached: Usd | None = None  # input that the server read from its cache
    written: Usd | None = None  # input that the server wrote to its cache, for the shortest time that it offers


class Surcharge(Rates):
    """The rates of a whole request whose input has more than `tokens` tokens."""

    tokens: PositiveInt


class Price(Rates):
    """A model's rates and its limits in tokens; None where not known."""

    over: Surcharge | None = None
    provider: str = ""
    context: PositiveInt | None = None
    """The most input. With some models output comes out of it too: input and output within it together is always safe."""
    max_output: PositiveInt | None = None
    note: str = ""

    def rates(self, input_tokens: int) -> Rates:
        return self.over if self.over is not None and input_tokens > self.over.tokens else self


class Table(Record):
    """The form of `prices.json` and of the user's file: prices by a model's name."""

    models: dict[str, Price]
    as_of: str = ""
    source: str = ""
    unit: Literal["USD per 1,000,000 tokens"] = "USD per 1,000,000 tokens"


def price_of(model: str, *, base_url: str | None = None) -> Price | None:
    """The price of a model, with or without its provider's prefix (`openai:gpt-5`) and the date of a release.

    None where it is not known, as for any `base_url` that is not the provider's own, unless the user's file names the model.
    Raises BadInput when that file cannot be used.
    """
    users = _find(users_table().models, model)
    if users is not None:
        return users
    price = _find(shipped().models, model)
    return price if price is not None and is_own(price.provider, base_url) else None


def cost_usd(
    price: Price, input_tokens: int, cached_tokens: int, output_tokens: int, *, written_tokens: int | None = None
) -> float:
    """What a request cost. `input_tokens` are all of the prompt's; of these `cached_tokens` were read from the server's cache
    and `written_tokens` written to it. None: the server does not say, and what was not read is taken as written, if that
    costs more."""
    rates = price.rates(input_tokens)
    cached = min(cached_tokens, input_tokens)
    plain = input_tokens - cached
    if written_tokens is None:
        uncached = plain * max(_pico(rates.input), _written(rates))
    else:
        written = min(written_tokens, plain)
        uncached = (plain - written) * _pico(rates.input) + written * _written(rates)
    return (uncached + cached * _cached(rates) + output_tokens * _pico(rates.output)) / PICO


def worst_case_usd(price: Price, input_tokens: int, output_limit: int) -> float:
    """The most that a request can cost: nothing read from a cache, and all the output that it may write."""
    rates = price.rates(input_tokens)
    return (input_tokens * _dearest(rates) + output_limit * _pico(rates.output)) / PICO


def affordable_output(price: Price, input_tokens: int, usd_left: float) -> int:
    """The most output tokens for which the worst case costs no more than `usd_left`; 0 if the input alone costs more.

    At most NO_LIMIT. The model's own `max_output` is not looked at.
    """
    if not usd_left >= 0:  # also what is not a number
        return 0
    if math.isinf(usd_left):
        return NO_LIMIT
    rates = price.rates(input_tokens)
    left = math.floor(Fraction(usd_left) * PICO) - input_tokens * _dearest(rates)
    if left < 0:
        return 0
    output = _pico(rates.output)
    return min(left // output, NO_LIMIT) if output else NO_LIMIT


def bare(model: str) -> str:
    """A model's name without its provider's prefix. Other colons belong to the name, as in `qwen3:8b`."""
    return PREFIXES.sub("", model.strip())


def is_own(provider: str, base_url: str | None) -> bool:
    """Whether an address is the provider's own; no address means that."""
    if not base_url:
        return True
    try:
        host = urlsplit(base_url).hostname
    except ValueError:
        return False
    return host is not None and host == HOSTS.get(provider)


@functools.cache
def shipped() -> Table:
    return _parsed(TABLE.read_text(encoding="utf-8"))


def users_table() -> Table:
    """The table that STITCHCUDA_PRICES names, or an empty one. Raises BadInput when it cannot be read."""
    path = os.environ.get(VARIABLE, "")
    if not path:
        return Table(models={})
    try:
        return _parsed(Path(path).read_text(encoding="utf-8"))
    except ValidationError as error:
        first = error.errors()[0]
        why = f"{'.'.join(map(str, first['loc'])) or 'it'}: {first['msg']}"
    except (OSError, ValueError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors
        why = str(error)
    raise BadInput(f"{VARIABLE} names {path}, which is no table of prices ({why}): give it the form of {TABLE}.")


def _parsed(text: str) -> Table:
    table = Table.model_validate(json.loads(text, parse_float=Decimal))
    return table.model_copy(update={"models": {bare(name): price for name, price in table.models.items()}})


def _find(models: dict[str, Price], model: str) -> Price | None:
    """By its whole name, else by its name before the date of a release; nothing else is taken off a name."""
    name = bare(model)
    if name in models:
        return models[name]
    dated = DATED.match(name)
    if dated is None or dated[1] not in models:
        return None
    try:
        date.fromisoformat(dated[2])
    except ValueError:
        return None
    return models[dated[1]]


def _pico(rate: Decimal) -> int:
    """Pico-dollars of one token."""
    return int(rate * (PICO // 1_000_000))


def _cached(rates: Rates) -> int:
    return _pico(rates.input if rates.cached is None else rates.cached)


def _written(rates: Rates) -> int:
    return _pico(rates.input if rates.written is None else rates.written)


def _dearest(rates: Rates) -> int:
    return max(_pico(rates.input), _cached(rates), _written(rates))


def listing(models: list[str] | None = None) -> str:
    """The table as text, the user's entries marked with `*`; given models are looked up as a request's would be."""
    users, ours = users_table(), shipped()
    names = models or [*users.models, *(name for name in ours.models if name not in users.models)]
    top = [f"USD per 1,000,000 tokens, as of {ours.as_of}; limits in tokens", f"Source: {ours.source}", ""]
    columns = " ".join(f"{name:>8}" for name in ("input", "cached", "written", "output"))
    rows = [f"{'model':24} {columns} {'context':>9} {'output':>8}  longer prompts, notes"]
    for name in names:
        price = price_of(name)
        if price is None:
            rows.append(f"{name:24} not known")
            continue
        figures = [price.input, price.cached, price.written, price.output]
        cells = " ".join(f"{'' if figure is None else format(figure, 'f'):>8}" for figure in figures)
        limits = f"{price.context or '':>9} {price.max_output or '':>8}"
        over = price.over
        more = f"over {over.tokens:,}: {over.input:f} in, {over.output:f} out" if over else ""
        mark = " *" if _find(users.models, name) else ""
        rows.append(f"{name + mark:24} {cells} {limits}  {'; '.join(filter(None, [more, price.note]))}".rstrip())
    return "\n".join([*top, *rows])


if __name__ == "__main__":
    try:
        print(listing(sys.argv[1:]))
    except BadInput as error:
        sys.exit(str(error))
