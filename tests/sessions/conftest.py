"""For all tests of what people do with sessions: a workspace that is a folder, and one whose sessions are in PostgreSQL."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from stitchcuda.store import Workspace
from tests.engineers.metered_chats import KEYS
from tests.memory.postgres_server import Server, programs

_numbers = itertools.count(1)


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """Started by the first test that asks for it."""
    found = programs()
    if found is None:
        pytest.skip("this machine has no PostgreSQL server (Debian: apt install postgresql)")
    if importlib.util.find_spec("psycopg") is None:
        pytest.skip("stitchcuda[postgres] is not installed")
    with Server(found) as server:
        yield server


@pytest.fixture
def database(server: Server) -> str:
    """The URL of a database of this test's own."""
    import psycopg

    name = f"test{next(_numbers)}"
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
    return server.url.removesuffix("postgres") + name


@pytest.fixture(params=["folder", pytest.param("postgres", marks=pytest.mark.more)])
def home(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workspace]:
    url = request.getfixturevalue("database") if request.param == "postgres" else None
    home = Workspace(tmp_path / "workspace", checkpoint=url)
    yield home
    home.close()
