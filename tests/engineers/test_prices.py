"""What a model costs, when that is not known, and that a budget is never overstepped by rounding."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import date
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stitchcuda.engineers.prices import (
    HOSTS,
    NO_LIMIT,
    Price,
    Surcharge,
    affordable_output,
    cost_usd,
    listing,
    price_of,
    shipped,
    worst_case_usd,
)
from stitchcuda.errors import BadInput

RATE = st.decimals(min_value=0, max_value=200, places=6)
TOKENS = st.integers(0, 2_000_000)
PRICES = st.builds(
    Price,
    input=RATE,
    output=RATE,
    cached=RATE | st.none(),
    written=RATE | st.none(),
    over=st.none() | st.builds(Surcharge, tokens=st.integers(1, 1_000_000), input=RATE, output=RATE, written=RATE | st.none()),
)


@pytest.fixture(autouse=True)
def no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STITCHCUDA_PRICES", raising=False)


def use(path: Path, models: object, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text(json.dumps({"models": models}))
    monkeypatch.setenv("STITCHCUDA_PRICES", str(path))


def test_table_is_dated_cited_and_plausible() -> None:
    table = shipped()
    assert date.fromisoformat(table.as_of) >= date(2026, 11, 1)
    assert "BerriAI/litellm" in table.source
    for name, price in table.models.items():
        assert price.provider in HOSTS, name
        assert Decimal("0.01") <= price.input < price.output <= 200, f"{name}: USD per 1,000,000 tokens"
        assert 100_000 <= (price.context or 0) <= 2_000_000, name
        assert 4_096 <= (price.max_output or 0) <= (price.context or 0), name
        assert price.cached is None or price.cached < price.input, name
        assert price.written is None or price.written == price.input * Decimal("1.25"), name
        if price.over is not None:
            assert price.over.tokens < (price.context or 0), name
            assert price.over.input > price.input, name
            assert price.over.output > price.output, name
            assert (price.over.written is None) == (price.written is None), name


@pytest.mark.parametrize(
    ("model", "entry"),
    [
        ("gpt-5", "gpt-5"),
        ("openai:gpt-5-2025-08-07", "gpt-5"),
        ("gpt-5-mini", "gpt-5-mini"),
        ("gpt-5-mini-2025-08-07", "gpt-5-mini"),
        ("gpt-5.4-mini-2026-03-17", "gpt-5.4-mini"),
        ("azure:gpt-4o-2024-11-20", "gpt-4o"),
        ("gpt-4o-2024-05-13", "gpt-4o-2024-05-13"),  # dearer than gpt-4o
        ("anthropic:claude-haiku-4-5-20251001", "claude-haiku-4-5"),
        ("claude-opus-4-5@20251101", "claude-opus-4-5"),
        ("google:gemini-2.5-flash-lite", "gemini-2.5-flash-lite"),
    ],
)
def test_a_name_finds_its_own_price(model: str, entry: str) -> None:
    assert price_of(model) == shipped().models[entry]


@pytest.mark.parametrize(
    "model",
    [
        "gpt-5-turbo", "gpt-5-codex", "gpt-5.3", "gpt-50", "gpt-5-2025", "gpt-5-2025-13-40", "gpt-5-99999999", "5-2025-08-07",
        "gpt-4o-audio-preview", "ft:gpt-4o", "gemini-2.5-flash-preview-09-2025", "claude-opus-4-5-20251101-v1:0",
        "qwen3:8b", "openai:azure:gpt-5", "openai:", "",
    ],
)  # fmt: skip
def test_a_name_that_only_resembles_another_has_no_price(model: str) -> None:
    assert price_of(model) is None


@pytest.mark.parametrize(
    ("model", "base_url", "known"),
    [
        ("gpt-5", None, True),
        ("gpt-5", "", True),
        ("gpt-5", "https://api.openai.com/v1", True),
        ("gpt-5", "https://API.openai.com:443/v1/", True),
        ("claude-opus-5", "https://api.anthropic.com/v1/", True),
        ("gemini-2.5-pro", "https://generativelanguage.googleapis.com/v1beta/openai/", True),
        ("claude-opus-5", "https://api.openai.com/v1", False),
        ("gpt-5", "https://eu.api.openai.com/v1", False),  # 10 % dearer
        ("gpt-5", "https://api.openai.com.example.net/v1", False),
        ("gpt-5", "https://api.openai.com@example.net/v1", False),
        ("gpt-5", "http://localhost:8000/v1", False),
        ("gpt-5", "http://10.0.0.7/v1", False),
        ("gpt-5", "api.openai.com/v1", False),
        ("gpt-5", "http://[broken/v1", False),
    ],
)
def test_only_the_providers_own_address_has_its_prices(model: str, base_url: str | None, known: bool) -> None:
    assert (price_of(model, base_url=base_url) is not None) == known


def test_users_file_wins_adds_models_and_prices_local_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = {
        "openai:gpt-5": {"input": 0.7, "output": 9, "context": 100_000},
        "qwen3:8b": {"input": 0, "output": 0},
    }
    use(tmp_path / "prices.json", models, monkeypatch)
    ours = Price(input=Decimal("0.7"), output=Decimal(9), context=100_000)
    assert price_of("gpt-5") == ours
    assert price_of("openai:gpt-5-2025-08-07", base_url="http://localhost:8000/v1") == ours
    assert price_of("qwen3:8b", base_url="http://localhost:11434/v1") == Price(input=Decimal(0), output=Decimal(0))
    assert price_of("gpt-5-mini") == shipped().models["gpt-5-mini"]
    assert price_of("gpt-5-mini", base_url="http://localhost:8000/v1") is None
    assert "\ngpt-5 *  " in listing()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (None, "No such file"),
        ("{", "Expecting property name"),
        ("[]", "valid dictionary"),
        ('{"models": {"m": {"input": 1}}}', "models.m.output"),
        ('{"models": {"m": {"input": -1, "output": 1}}}', "models.m.input"),
        ('{"models": {"m": {"input": NaN, "output": 1}}}', "models.m.input"),
        ('{"models": {"m": {"input": 0.0000001, "output": 1}}}', "models.m.input"),
        ('{"models": {"m": {"input": 1, "output": 1, "ouput": 2}}}', "models.m.ouput"),
        ('{"models": {"m": {"input": 1, "output": 1}}, "unit": "USD per token"}', "unit"),
        ("\udcff", "utf-8"),
    ],
)
def test_a_broken_file_is_told_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, named: str
) -> None:
    path = tmp_path / "prices.json"
    if text is not None:
        path.write_bytes(text.encode(errors="surrogateescape"))
    monkeypatch.setenv("STITCHCUDA_PRICES", str(path))
    with pytest.raises(BadInput, match=r"^STITCHCUDA_PRICES names ") as caught:
        price_of("gpt-5")
    said = str(caught.value)
    assert str(path) in said
    assert named in said
    assert "\n" not in said


def test_costs_by_hand() -> None:
    price = Price(input=Decimal("1.25"), cached=Decimal("0.125"), output=Decimal(10))
    assert cost_usd(price, 1_000_000, 0, 0) == 1.25
    assert cost_usd(price, 10_000, 4_000, 2_000) == 0.028
    assert cost_usd(price, 100, 1_000, 0) == 0.0000125, "a server that reports more than all of it as cached"
    assert worst_case_usd(price, 10_000, 2_000) == 0.0325
    assert affordable_output(price, 10_000, 0.0325) == 2_000
    assert affordable_output(price, 10_000, 0.0125) == 0
    assert affordable_output(price, 10_000, 0.0124) == 0


def test_input_written_to_a_cache_costs_its_own_price_also_when_nothing_is_reported() -> None:
    price = Price(input=Decimal(2), cached=Decimal("0.1"), written=Decimal("2.5"), output=Decimal(10))
    assert cost_usd(price, 1_000_000, 200_000, 0, written_tokens=300_000) == 1.77
    assert cost_usd(price, 1_000_000, 200_000, 0, written_tokens=0) == 1.62
    assert cost_usd(price, 1_000_000, 200_000, 0) == 2.02
    assert worst_case_usd(price, 1_000_000, 0) == 2.5


def test_a_long_prompt_is_dearer_as_a_whole() -> None:
    price = price_of("gemini-2.5-pro")
    assert price is not None
    assert cost_usd(price, 200_000, 0, 1_000) == 0.26
    assert cost_usd(price, 200_001, 0, 1_000) == 0.5150025


def test_without_a_price_for_output_there_is_still_a_number() -> None:
    free = Price(input=Decimal(0), output=Decimal(0))
    assert affordable_output(free, 1_000, 0.0) == NO_LIMIT
    dear = Price(input=Decimal(1), output=Decimal(1))
    assert affordable_output(dear, 1_000, float("inf")) == NO_LIMIT
    assert affordable_output(dear, 0, -1.0) == 0
    assert affordable_output(dear, 0, float("nan")) == 0


@given(price=PRICES, input_tokens=TOKENS, output=TOKENS, data=st.data())
def test_no_request_costs_more_than_its_worst_case(price: Price, input_tokens: int, output: int, data: st.DataObject) -> None:
    cached = data.draw(st.integers(0, input_tokens))
    written = data.draw(st.none() | st.integers(0, input_tokens))
    assert cost_usd(price, input_tokens, cached, output, written_tokens=written) <= worst_case_usd(price, input_tokens, output)
    reported = cost_usd(price, input_tokens, cached, output, written_tokens=written)
    assert written is None or reported <= cost_usd(price, input_tokens, cached, output)


@given(price=PRICES, input_tokens=TOKENS, usd_left=st.floats(0, 50))
def test_affordable_output_is_the_greatest_within_the_budget(price: Price, input_tokens: int, usd_left: float) -> None:
    def exact(output: int) -> Fraction:
        rates = price.rates(input_tokens)
        dearest = max(rate for rate in (rates.input, rates.cached, rates.written) if rate is not None)
        return (input_tokens * Fraction(dearest) + output * Fraction(rates.output)) / 1_000_000

    output = affordable_output(price, input_tokens, usd_left)
    if output:
        assert exact(output) <= Fraction(usd_left)
        assert worst_case_usd(price, input_tokens, output) <= usd_left
    if output < NO_LIMIT:
        assert exact(output + 1) > Fraction(usd_left)


def test_the_program_prints_prices_and_where_they_are_from() -> None:
    command = [sys.executable, "-m", "stitchcuda.engineers.prices", "openai:gpt-4o-2024-05-13", "gpt-5-turbo"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"as of {shipped().as_of}" in done.stdout
    assert shipped().source in done.stdout
    assert done.stdout.splitlines()[-2].split() == ["openai:gpt-4o-2024-05-13", "5", "15", "128000", "4096"]
    assert done.stdout.splitlines()[-1].split() == ["gpt-5-turbo", "not", "known"]
