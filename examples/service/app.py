"""A small service over the compiled graph, with its threads and its sessions in PostgreSQL: nothing in it needs a licence key.

    export STITCHCUDA_CHECKPOINT=postgresql://USER:PASSWORD@HOST/DATABASE
    python examples/service/app.py --port 8000         # pip install -e '.[service]'

    POST /sessions              the graph's input, such as {"reference": "model.py"}; "source" is a reference's text
    GET  /sessions/ID           where it stands, and what waits for a person
    GET  /sessions/ID/events    server-sent events: the custom stream of this process, from the start or after Last-Event-ID
    POST /sessions/ID/resume    {"answer": …} to what waits, or {} to go on after a crash
    GET  /drawing               the graph, as Mermaid

It runs what it is given and asks nobody who they are: keep it on 127.0.0.1, or behind something that does. One process
per GPU; several share a database, where one of them at a time runs a session and all of them know that it runs.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import logging
import math
import os
import re
import uuid
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import psycopg
import uvicorn
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.types import Command, StateSnapshot
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from stitchcuda.engineers.selection import check_models
from stitchcuda.errors import BadInput, SessionBusy, SessionLost, StitchError
from stitchcuda.graph.approval import questions, resume_command
from stitchcuda.graph.graph import Graph, build_graph, thread
from stitchcuda.graph.graph_input import GraphInput
from stitchcuda.graph.opening import WANTED, check_settings
from stitchcuda.store import Workspace, write_atomically
from stitchcuda.store.serializer import serializer
from stitchcuda.tools.device.device import resolve_target

SHOWN = ("session", "stop_reason", "attempts", "tasks_total", "tasks_done", "tasks_kept", "notes", "report")


LIFE = uuid.uuid4().hex[:8]                # of this process: an event's id is LIFE-NUMBER, and of no use to another process
KEPT = 5_000                               # events of a session; who comes too late for one is told of a gap
DEEPEST = 20                               # lists and objects within each other, in what is sent here
POLL_S = 1.0                               # for what another process does
SILENT: dict[str, Any] = {"keepalives_idle": 15, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 30_000}
KEEPALIVE = "SET tcp_keepalives_idle = 15; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3"
TAKEN = """SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (classid::bigint << 32 | objid::bigint) = %s"""


class Turn:
    """The right to run a session's thread: an advisory lock on a connection of its own. The database ends it when the process
    dies, and within a minute when its host or the network between them does."""

    def __init__(self, url: str, session: str) -> None:
        self.url, self.key, self.lost = url, key_of(session), False
        self.connection: psycopg.AsyncConnection[Any] | None = None

    async def take(self) -> bool:
        """Whether it is ours. Asked again it stays so, and is taken anew where the connection was lost."""
        if self.connection is None or self.connection.closed:
            self.connection = await psycopg.AsyncConnection.connect(self.url, autocommit=True, **SILENT)
            await self.connection.execute(KEEPALIVE)
        found = await (await self.connection.execute("SELECT pg_try_advisory_lock(%s)", (self.key,))).fetchone()
        return bool(found and found[0])

    async def keep(self) -> None:
        while True:
            await asyncio.sleep(POLL_S)
            with suppress(psycopg.Error):  # the database is away: nobody else can take it either
                self.lost = not await self.take()

    async def leave(self) -> None:
        if self.connection is not None:
            with suppress(psycopg.Error):
                await self.connection.execute("SELECT pg_advisory_unlock_all()")
            await self.connection.close()


@dataclass
class Live:
    """What this process has seen of a session: the events of its own runs."""

    next: int = 1                          # number of the next event; number 0 is one of another process, unless it began here
    events: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=KEPT))
    news: asyncio.Condition = field(default_factory=asyncio.Condition)
    run: asyncio.Task[None] | None = None
    turn: Turn | None = None
    error: str = ""

    @property
    def running(self) -> bool:
        return self.run is not None and not self.run.done()

    @property
    def oldest(self) -> int:
        return self.next - len(self.events)

    def after(self, last: str) -> int:
        """The number that follows on the event with the id `last`; -1 for an id that this process has not given."""
        found = re.fullmatch(rf"{LIFE}-(\d{{1,15}})", last, re.ASCII)
        return 0 if not last else int(found[1]) + 1 if found and int(found[1]) < self.next else -1

    async def tell(self, event: dict[str, Any] | None) -> None:
        """Another event, or None for the end of a run."""
        async with self.news:
            if event is None:
                self.run = self.turn = None
            else:
                self.events.append(event)
                self.next += 1
            self.news.notify_all()


class Service:
    """The graph, and the sessions that run in this process."""

    def __init__(self, graph: Graph, pool: AsyncConnectionPool[Any], url: str) -> None:
        self.graph, self.pool, self.url = graph, pool, url
        self.live: dict[str, Live] = {}

    async def start(self, session: str, given: Callable[[StateSnapshot], Any]) -> None:
        """Runs the session with what `given` makes of its state. Refused where any process runs it."""
        turn = Turn(self.url, session)
        try:
            if not await turn.take():
                raise HTTPException(409, "the session is running: wait until it is done or parked")
            handed = given(await self.graph.aget_state(thread(session)))
        except BaseException:
            await turn.leave()
            raise
        live = self.live.setdefault(session, Live())
        live.error, live.turn = "", turn
        live.run = asyncio.create_task(self._run(session, live, turn, handed))

    async def _run(self, session: str, live: Live, turn: Turn, given: Any) -> None:
        """A run that is cancelled has its turn until the process ends: so long its node goes on."""
        keeper = asyncio.create_task(turn.keep())
        try:
            await self._follow(session, live, turn, given)
        except StitchError as error:
            live.error = str(error)
        except Exception as error:
            live.error = f"{type(error).__name__}: {error}"
            logging.getLogger("uvicorn.error").exception("session %s", session)
        keeper.cancel()
        await turn.leave()
        await live.tell(None)

    async def _follow(self, session: str, live: Live, turn: Turn, given: Any) -> None:
        while True:
            try:
                async for event in self.graph.astream(given, thread(session), stream_mode="custom", durability="sync"):
                    if turn.lost:
                        raise SessionLost("another process has taken the session over while the database was away")
                    await live.tell(event)
                return
            except SessionLost:
                raise
            except SessionBusy:            # its process died a moment ago, and its lease ends some seconds later
                await asyncio.sleep(POLL_S)

    async def taken(self, session: str) -> bool:
        """Whether any process runs it."""
        async with self.pool.connection() as connection:
            return await (await connection.execute(TAKEN, (key_of(session),))).fetchone() is not None

    async def seen(self, session: str) -> tuple[StateSnapshot, str, str]:
        """A session's state; whether it is running, parked, done or failed; and why."""
        missing = HTTPException(404, f"there is no session {session!r}: POST /sessions starts one")
        if not session.isprintable():
            raise missing
        running = await self.taken(session)  # asked before and after: it may begin or end while the state is read
        state = await self.graph.aget_state(thread(session))
        live = self.live.get(session)
        if running or (live and live.running) or await self.taken(session):
            return state, "running", ""
        if not state.created_at and not live:
            raise missing
        if state.values.get("report") and not state.next:
            return state, "done", state.values.get("stop_reason") or ""
        if state.interrupts:
            return state, "parked", " and ".join(str(one.value.get("waiting_for", "a reply")) for one in state.interrupts)
        errors = [live.error if live else "", *(str(task.error or "") for task in state.tasks)]
        error = next((error for error in errors if error and not error.startswith("CancelledError")), "")
        return (state, "failed", error) if error else (state, "parked", "interrupted: resume it")


def key_of(session: str) -> int:
    """The number that stands for a thread among the database's advisory locks."""
    return int.from_bytes(hashlib.sha256(f"stitchcuda thread {session}".encode()).digest()[:8], "big", signed=True)


async def create(request: Request) -> Response:
    service, asked, session = service_of(request), await body_of(request), uuid.uuid4().hex
    try:
        given = await run_in_threadpool(checked, asked, session)
    except StitchError as error:
        raise HTTPException(400, str(error)) from error
    service.live[session] = Live(next=0)
    await service.start(session, lambda state: given)
    return JSONResponse({"id": session}, 202)


def checked(asked: dict[str, Any], session: str) -> dict[str, Any]:
    """The graph's input; a reference's text is stored as a file first. Raises StitchError for what cannot be meant."""
    named = [asked[key] for key in ("source", "reference") if key in asked]
    source, reference = asked.pop("source", None), str(asked.get("reference"))
    if unknown := asked.keys() - GraphInput.__annotations__.keys():
        raise BadInput(f"a session has no {', '.join(sorted(unknown))}: it has {', '.join(GraphInput.__annotations__)}")
    if len(named) != 1 or not isinstance(named[0], str):
        raise BadInput('give what to speed up: {"reference": PATH} or {"source": TEXT}')
    settings = {key: value for key, value in asked.items() if key not in ("reference", "session", "device")}
    check_models(check_settings(settings | {"target": resolve_target(asked.get("device", "auto"))}))
    with closing(Workspace()) as home:
        if "session" in asked:
            home.check_free(str(asked["session"]))
        if source is None:
            with suppress(OSError, UnicodeDecodeError):
                if os.path.isfile(reference) and Path(reference).read_text("utf-8") is not None:
                    return asked
            raise BadInput(f"there is no file {reference} that can be read as Python source: {WANTED}")
        path = home.root / "uploads" / f"{session[:8]}.py"
        write_atomically(path, source.encode())
        return asked | {"reference": str(path)}


async def show(request: Request) -> Response:
    service, session = service_of(request), request.path_params["session"]
    state, status, why = await service.seen(session)
    best = state.values.get("best")
    waiting = [{"id": one.id, **one.about} for one in questions(state.interrupts)] if status == "parked" else []
    told = {key: state.values.get(key) for key in SHOWN}
    return JSONResponse(
        {"id": session, "status": status, "why": why, "waiting": waiting, **told}
        | {"best": best.model_dump(mode="json") if best else None}
    )


async def events(request: Request) -> Response:
    service, session = service_of(request), request.path_params["session"]
    await service.seen(session)
    live = service.live.setdefault(session, Live())
    last = request.headers.get("last-event-id", "")

    async def told() -> AsyncIterator[str]:
        at, elsewhere = live.after(last), False
        while True:
            if at < live.oldest:
                yield sent("gap", why="events before this are gone")
                at = live.oldest
            for event in list(islice(live.events, at - live.oldest, None)):
                yield f"id: {LIFE}-{at}\ndata: {json.dumps(event)}\n\n"
                at += 1
            async with live.news:
                await live.news.wait_for(lambda: at < live.next or not live.running)  # noqa: B023
            if at < live.next:
                continue
            _, status, why = await service.seen(session)
            if status != "running":
                break
            if not live.running and not elsewhere:
                elsewhere = True
                yield sent("gap", why="another process runs the session, and tells its events")
            await asyncio.sleep(POLL_S)
        yield sent("end", status=status, why=why)

    return StreamingResponse(told(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


def sent(event: str, **told: str) -> str:
    return f"event: {event}\ndata: {json.dumps(told)}\n\n"


async def resume(request: Request) -> Response:
    service, session, asked = service_of(request), request.path_params["session"], await body_of(request)
    if unknown := asked.keys() - {"answer"}:
        raise HTTPException(400, f"an answer has no {', '.join(sorted(unknown))}: give {{\"answer\": …}}, or {{}} to go on")

    def given(state: StateSnapshot) -> Command[Any] | None:
        try:
            return resume_command(questions(state.interrupts), asked["answer"]) if asked else None
        except BadInput as error:
            raise HTTPException(400, str(error)) from error

    await service.seen(session)
    await service.start(session, given)
    return JSONResponse({"id": session}, 202)


async def drawing(request: Request) -> Response:
    return PlainTextResponse(service_of(request).graph.get_graph().draw_mermaid())


async def refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code)


def service_of(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


async def body_of(request: Request) -> dict[str, Any]:
    """The request's object. Only declared JSON is read: a web page elsewhere cannot send that without being asked first."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415, "send an object as application/json")
    try:
        found = await request.json()
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the body is no JSON ({error}): send an object") from error
    if not isinstance(found, dict):
        raise HTTPException(400, "the body is no object: send one such as {}")
    if trouble := unusable(found):
        raise HTTPException(400, f"the body holds {trouble}, which cannot be kept")
    return found


def unusable(value: Any, depth: int = 0) -> str:
    """What of a value in JSON the database or the checkpoints would not take; "" for none."""
    if isinstance(value, str) and (found := re.search("[\0\ud800-\udfff]", value)):
        return "a NUL" if found[0] == "\0" else "half a surrogate pair"
    if isinstance(value, float) and not math.isfinite(value):
        return f"the number {value}"
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return "a number of more than 64 bits"
    if not isinstance(value, dict | list):
        return ""
    if depth == DEEPEST:
        return f"lists or objects {DEEPEST} deep"
    parts = [*value, *value.values()] if isinstance(value, dict) else value
    return next(filter(None, (unusable(part, depth + 1) for part in parts)), "")


def app(url: str, hosts: list[str]) -> Starlette:
    """The service over the database at `url`, for clients that call it by one of `hosts`."""

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        how = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        async with AsyncConnectionPool(url, kwargs=how, min_size=1, max_size=8) as pool:
            saver = AsyncPostgresSaver(pool, serde=serializer())  # type: ignore[arg-type]
            await saver.setup()
            app.state.service = Service(build_graph(saver), pool, url)
            yield
            runs = [live.run for live in app.state.service.live.values() if live.run]
            for run in runs:
                run.cancel()               # the node under way ends with the process, and the session goes on from its start
            await asyncio.gather(*runs, return_exceptions=True)

    routes = [
        Route("/sessions", create, methods=["POST"]),
        Route("/sessions/{session}", show),
        Route("/sessions/{session}/events", events),
        Route("/sessions/{session}/resume", resume, methods=["POST"]),
        Route("/drawing", drawing),
    ]
    trusted = Middleware(TrustedHostMiddleware, allowed_hosts=hosts)
    return Starlette(routes=routes, middleware=[trusted], exception_handlers={HTTPException: refused}, lifespan=life)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    asked = parser.parse_args()
    url = os.environ.get("STITCHCUDA_CHECKPOINT", "")
    if not url:
        parser.error("set STITCHCUDA_CHECKPOINT to the database, such as postgresql://USER:PASSWORD@HOST/DATABASE")
    uvicorn.run(app(url, ["localhost", "127.0.0.1", asked.host]), host=asked.host, port=asked.port, timeout_graceful_shutdown=5)


if __name__ == "__main__":
    main()
