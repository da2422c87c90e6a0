"""A small service over the compiled graph, with its threads and its sessions in PostgreSQL: nothing in it needs a licence key.

    export STITCHCUDA_CHECKPOINT=postgresql://USER:PASSWORD@HOST/DATABASE
    python examples/service/app.py --port 8000         # pip install 'stitchcuda[service]'

    POST /sessions              the graph's input, such as {"reference": "model.py"}; "source" is a reference's text
    GET  /sessions/ID           where it stands, and what waits for a person
    GET  /sessions/ID/events    server-sent events: the custom stream, from the start or after Last-Event-ID
    POST /sessions/ID/resume    {"answer": …} to what waits, or {} to go on after a crash
    GET  /drawing               the graph, as Mermaid

It runs what it is given and asks nobody who they are: keep it on 127.0.0.1, or behind something that does. One process per GPU.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.types import Command, StateSnapshot
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from stitchcuda.errors import BadInput, StitchError
from stitchcuda.graph.approval import commanded, questions
from stitchcuda.graph.checkpoints import serializer
from stitchcuda.graph.graph import Graph, build_graph, thread
from stitchcuda.graph.request import Request as Asked
from stitchcuda.workspace import Workspace, write_atomically

SHOWN = ("session", "stop_reason", "attempts", "tasks_total", "tasks_done", "tasks_kept", "notes", "report")


@dataclass
class Live:
    """What this process has seen of a session."""

    events: list[dict[str, Any]] = field(default_factory=list)
    news: asyncio.Condition = field(default_factory=asyncio.Condition)
    run: asyncio.Task[None] | None = None
    error: str = ""

    @property
    def running(self) -> bool:
        return self.run is not None and not self.run.done()


class Service:
    """The graph, and the sessions that run in this process."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.live: dict[str, Live] = {}

    def start(self, session: str, given: Any) -> None:
        live = self.live.setdefault(session, Live())
        if live.running:
            raise HTTPException(409, "the session is running: wait until it is done or parked")
        live.error = ""
        live.run = asyncio.create_task(self._run(session, live, given))

    async def _run(self, session: str, live: Live, given: Any) -> None:
        try:
            async for event in self.graph.astream(given, thread(session), stream_mode="custom", durability="sync"):
                async with live.news:
                    live.events.append(event)
                    live.news.notify_all()
        except StitchError as error:
            live.error = str(error)
        except Exception as error:
            live.error = f"{type(error).__name__}: {error}"
            raise
        finally:
            async with live.news:
                live.run = None
                live.news.notify_all()

    async def state(self, session: str) -> StateSnapshot:
        found = await self.graph.aget_state(thread(session))
        if not found.created_at and session not in self.live:
            raise HTTPException(404, f"there is no session {session}: POST /sessions starts one")
        return found

    def status(self, session: str, state: StateSnapshot) -> tuple[str, str]:
        """running, parked, done or failed, and why."""
        live = self.live.get(session, Live())
        if live.running:
            return "running", ""
        if state.values.get("report") and not state.next:
            return "done", state.values.get("stop_reason") or ""
        if state.interrupts:
            return "parked", " and ".join(str(one.value.get("waiting_for", "a reply")) for one in state.interrupts)
        error = live.error or next((str(task.error) for task in state.tasks if task.error), "")
        return ("failed", error) if error else ("parked", "interrupted: resume it")


async def create(request: Request) -> Response:
    service, asked, session = service_of(request), await body_of(request), uuid.uuid4().hex
    if isinstance(source := asked.pop("source", None), str):
        path = Workspace().root / "uploads" / f"{session[:8]}.py"
        write_atomically(path, source.encode())
        asked["reference"] = str(path)
    if unknown := asked.keys() - Asked.__annotations__.keys():
        raise HTTPException(400, f"a session has no {', '.join(sorted(unknown))}: it has {', '.join(Asked.__annotations__)}")
    if not isinstance(asked.get("reference"), str):
        raise HTTPException(400, 'give what to speed up: {"reference": PATH} or {"source": TEXT}')
    service.start(session, asked)
    return JSONResponse({"id": session}, 202)


async def show(request: Request) -> Response:
    service, session = service_of(request), request.path_params["session"]
    state = await service.state(session)
    status, why = service.status(session, state)
    best = state.values.get("best")
    waiting = [{"id": one.id, **one.about} for one in questions(state.interrupts)] if status == "parked" else []
    told = {key: state.values.get(key) for key in SHOWN}
    return JSONResponse(
        {"id": session, "status": status, "why": why, "waiting": waiting, **told}
        | {"best": best.model_dump(mode="json") if best else None}
    )


async def events(request: Request) -> Response:
    service, session = service_of(request), request.path_params["session"]
    await service.state(session)
    live = service.live.get(session, Live())
    last = request.headers.get("last-event-id", "")

    async def told() -> AsyncIterator[str]:
        at = int(last) + 1 if last.isdigit() else 0
        while live.running or at < len(live.events):
            for number, event in enumerate(live.events[at:], at):
                yield f"id: {number}\ndata: {json.dumps(event)}\n\n"
                at = number + 1
            async with live.news:
                await live.news.wait_for(lambda: at < len(live.events) or not live.running)  # noqa: B023
        status, why = service.status(session, await service.state(session))
        yield f"event: end\ndata: {json.dumps({'status': status, 'why': why})}\n\n"

    return StreamingResponse(told(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


async def resume(request: Request) -> Response:
    service, session, asked = service_of(request), request.path_params["session"], await body_of(request)
    state = await service.state(session)
    given: Command[Any] | None = None
    if "answer" in asked:
        try:
            given = commanded(questions(state.interrupts), asked["answer"])
        except BadInput as error:
            raise HTTPException(400, str(error)) from error
    service.start(session, given)
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
    except ValueError as error:
        raise HTTPException(400, f"the body is no JSON ({error}): send an object") from error
    if not isinstance(found, dict):
        raise HTTPException(400, "the body is no object: send one such as {}")
    return found


def app(url: str, hosts: list[str]) -> Starlette:
    """The service over the database at `url`, for clients that call it by one of `hosts`."""

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        how = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
        async with AsyncConnectionPool(url, kwargs=how, min_size=1, max_size=8) as pool:
            saver = AsyncPostgresSaver(pool, serde=serializer())  # type: ignore[arg-type]
            await saver.setup()
            app.state.service = Service(build_graph(saver))
            yield
            runs = [live.run for live in app.state.service.live.values() if live.run]
            for run in runs:
                run.cancel()               # the node under way ends by itself; the session goes on from the one before it
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
