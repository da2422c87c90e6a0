"""What a model costs, when that is not known, and that a budget is never overstepped by rounding."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import genai_prices
import pytest
from genai_prices.types import Usage
from hypothesis import given
from hypothesis import strategies as st

from stitchcuda.engineers.prices import OwnPrice, Price, Surcharge, affordable_output, cost_usd, price_of, worst_case_usd
from stitchcuda.engineers.providers import address
from stitchcuda.errors import BadInput

RATE = st.decimals(min_value=0, max_value=200, places=6)
TOKENS = st.integers(0, 2_000_000)
PRICES = st.builds(
    OwnPrice,
    input=RATE,
    output=RATE,
    cached=RATE | st.none(),
    written=RATE | st.none(),
    over=st.none() | st.builds(Surcharge, tokens=st.integers(1, 1_000_000), input=RATE, output=RATE, written=RATE | st.none()),
).map(lambda entry: entry.price)


def use(path: Path, models: object, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text(json.dumps({"models": models}))
    monkeypatch.setenv("STITCHCUDA_PRICES", str(path))


def price(**rates: Any) -> Price:
    return OwnPrice.model_validate(rates).price


def known(model: str, base_url: str | None = None) -> Price:
    found = price_of(model, base_url=base_url)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("model", "million_in", "million_out"),
    [
        ("openai:gpt-5", 1.25, 10),
        ("gpt-5-2025-08-07", 1.25, 10),
        ("openai:gpt-5-mini-2025-08-07", 0.25, 2),
        ("gpt-4o-2024-05-13", 5, 15),  # dearer than gpt-4o
        ("anthropic:claude-haiku-4-5-20251001", 1.25, 5),  # all of the input written to the cache
        ("google:gemini-2.5-flash-lite", 0.1, 0.4),
        ("azure:gpt-5", 1.375, 11),  # 10 % more, as in a region
    ],
)
def test_a_name_finds_its_own_price(model: str, million_in: float, million_out: float) -> None:
    assert worst_case_usd(known(model), 1_000_000, 0) == million_in
    assert worst_case_usd(known(model), 0, 1_000_000) == million_out


@pytest.mark.parametrize(
    "model",
    [
        "gpt-5-turbo", "gpt-50", "gpt-5-2025", "gpt-5-99999999", "ft:gpt-4o", "qwen3:8b", "openai:azure:gpt-5", "openai:",
        "openai:claude-opus-5", "azure:my-deployment", "mailbox:claude-opus-5", "mailbox:", "",
    ],
)  # fmt: skip
def test_a_name_that_only_resembles_another_has_no_price(model: str) -> None:
    assert price_of(model) is None


@pytest.mark.parametrize(
    ("model", "base_url", "known"),
    [
        ("gpt-5", "", True),
        ("gpt-5", "https://api.openai.com/v1", True),
        ("gpt-5", "https://API.openai.com:443/v1/", True),
        ("claude-opus-5", "https://api.anthropic.com/v1/", True),
        ("gemini-2.5-pro", "https://generativelanguage.googleapis.com/v1beta/openai/", True),
        ("openai:deepseek-chat", "https://api.deepseek.com/v1", True),
        ("azure:gpt-5", "https://mine.openai.azure.com/", True),
        ("claude-opus-5", "https://api.openai.com/v1", False),
        ("gpt-5", "https://eu.api.openai.com/v1", False),  # 10 % dearer
        ("gpt-5", "https://api.openai.com@example.net/v1", False),
        ("gpt-5", "http://localhost:8000/v1", False),
        ("gpt-5", "http://10.0.0.7/v1", False),
        ("gpt-5", "api.openai.com/v1", False),
        ("gpt-5", "http://[broken/v1", False),
    ],
)
def test_only_a_known_providers_address_has_its_prices(model: str, base_url: str, known: bool) -> None:
    assert (price_of(model, base_url=base_url) is not None) == known


def test_an_address_in_the_environment_is_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://mine.openai.azure.com/")
    at = address("azure:any", None)
    assert worst_case_usd(known("gpt-5-2025-08-07", at), 0, 1_000_000) == 11, "whatever name the server gives the model"
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://gateway.example.com/")
    assert price_of("azure:gpt-5", base_url=address("azure:gpt-5", None)) is None


def test_a_promotion_that_ends_is_not_counted_on() -> None:
    """Whatever the table announces for later is in the price today."""
    later = datetime.now(UTC) + timedelta(days=3650)
    usage = Usage(input_tokens=1_000_000, output_tokens=1_000_000)
    for name in ("gemini-4-argon", "gemini-3.8-flash", "gpt-5.6-sol"):
        listed = [
            genai_prices.calc_price(usage, name, genai_request_timestamp=moment).total_price
            for moment in (datetime.now(UTC), later)
        ]
        assert cost_usd(known(name), 1_000_000, 0, 1_000_000, written_tokens=0) == float(max(listed))


def test_users_file_wins_adds_models_and_prices_local_servers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = {
        "openai:gpt-5": {"input": 0.7, "output": 9, "context": 100_000},
        "qwen3:8b": {"input": 0, "output": 0},
    }
    use(tmp_path / "prices.json", models, monkeypatch)
    ours = price(input="0.7", output=9, context=100_000)
    assert price_of("gpt-5") == ours
    assert price_of("openai:gpt-5-2025-08-07", base_url="http://localhost:8000/v1") == ours
    assert price_of("qwen3:8b", base_url="http://localhost:11434/v1") == price(input=0, output=0)
    assert worst_case_usd(known("gpt-5-mini"), 0, 1_000_000) == 2
    assert price_of("gpt-5-mini", base_url="http://localhost:8000/v1") is None


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (None, "No such file"),
        ("{", "Expecting property name"),
        ("[]", "valid dictionary"),
        ('{"models": {"m": {"input": 1}}}', "models.m.output"),
        ('{"models": {"m": {"input": -1, "output": 1}}}', "models.m.input"),
        ('{"models": {"m": {"input": NaN, "output": 1}}}', "models.m.input"),
        ('{"models": {"m": {"input": 1, "output": 1, "ouput": 2}}}', "models.m.ouput"),
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
    plain = price(input="1.25", cached="0.125", output=10)
    assert cost_usd(plain, 1_000_000, 0, 0) == 1.25
    assert cost_usd(plain, 10_000, 4_000, 2_000) == 0.028
    assert cost_usd(plain, 100, 1_000, 0) == 0.0000125, "a server that reports more than all of it as cached"
    assert worst_case_usd(plain, 10_000, 2_000) == 0.0325
    assert affordable_output(plain, 10_000, 0.0325, 32_000) == 2_000
    assert affordable_output(plain, 10_000, 0.0125, 32_000) == 0
    assert affordable_output(plain, 10_000, 0.0124, 32_000) == 0
    assert affordable_output(plain, 10_000, -1.0, 32_000) == 0
    assert affordable_output(price(input=0, output=0), 1_000, 0.0, 32_000) == 32_000
    assert affordable_output(plain, 1_000, float("inf"), 32_000) == 32_000


def test_input_written_to_a_cache_costs_its_own_price_also_when_nothing_is_reported() -> None:
    kept = price(input=2, cached="0.1", written="2.5", output=10)
    assert cost_usd(kept, 1_000_000, 200_000, 0, written_tokens=300_000) == 1.77
    assert cost_usd(kept, 1_000_000, 200_000, 0, written_tokens=0) == 1.62
    assert cost_usd(kept, 1_000_000, 200_000, 0) == 2.02
    assert worst_case_usd(kept, 1_000_000, 0) == 2.5


def test_a_long_prompt_is_dearer_as_a_whole() -> None:
    for found in (
        known("gemini-2.5-pro"),
        price(input="1.25", output=10, over={"tokens": 200_000, "input": Decimal("2.5"), "output": 15}),
    ):
        assert cost_usd(found, 200_000, 0, 1_000) == 0.26
        assert cost_usd(found, 200_001, 0, 1_000) == 0.5150025


@given(price=PRICES, input_tokens=TOKENS, output=TOKENS, data=st.data())
def test_no_request_costs_more_than_its_worst_case(price: Price, input_tokens: int, output: int, data: st.DataObject) -> None:
    cached = data.draw(st.integers(0, input_tokens))
    written = data.draw(st.none() | st.integers(0, input_tokens))
    reported = cost_usd(price, input_tokens, cached, output, written_tokens=written)
    assert reported <= worst_case_usd(price, input_tokens, output)
    assert written is None or reported <= cost_usd(price, input_tokens, cached, output)


@given(price=PRICES, input_tokens=TOKENS, usd_left=st.floats(0, 50), most=st.integers(0, 32_000))
def test_affordable_output_is_the_greatest_within_the_budget(
    price: Price, input_tokens: int, usd_left: float, most: int
) -> None:
    output = affordable_output(price, input_tokens, usd_left, most)
    assert not output or worst_case_usd(price, input_tokens, output) <= usd_left
    assert output <= most
    assert output == most or worst_case_usd(price, input_tokens, output + 1) >= usd_left


def test_the_program_says_what_a_name_costs() -> None:
    command = [sys.executable, "-m", "stitchcuda.engineers.prices", "openai:gpt-5-2025-08-07", "gpt-5-turbo"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "openai:gpt-5-2025-08-07: $1.25/input MTok, $10/output MTok" in done.stdout
    assert done.stdout.splitlines()[-1] == "gpt-5-turbo: not known"
