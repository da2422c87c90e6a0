"""For all tests of engineers: nobody's keys, addresses and prices, which would change whom they ask."""

from __future__ import annotations

import pytest

from tests.engineers.metered_chats import KEYS


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)
