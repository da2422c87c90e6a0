"""The HTTP side of the reward service: POST /jobs, GET /jobs/ID, /metrics, /openapi.json, /healthz. Needs the extra `service`.

Requests are checked here, and what cannot be meant is refused with one sentence as {"error": …}. What a program holds is not
looked at: a bad program is a job with a bad answer.
Where to look next: `training/reward_service/jobs.py` (who works), `training/reward_service/client.py` (the other end).
"""

from __future__ import annotations

import asyncio
import hmac
import json
import re
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from pydantic import ValidationError
from pydantic.json_schema import models_json_schema
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from stitchcuda.errors import StitchError
from stitchcuda.training.reward_service.job_store import JobStore, KeyTaken, QueueFull
from stitchcuda.training.reward_service.jobs import RewardJobs
from stitchcuda.training.reward_service.metrics import Metrics
from stitchcuda.training.reward_service.records import JobAnswer, JobRequest, RewardFunction, ServiceError
from stitchcuda.version import VERSION

MOST_CONNECTIONS = 600                     # at once; more get 503. A verifier's pipes need descriptors below 1024
MOST_WAIT_S = 60.0                         # of one GET; a client asks again
_MOST_BODY = 16 * 2**20
_RETRY_AFTER_S = "1"                       # in answers 429 and 503
_SENTENCES = {400: "The request cannot be meant", 401: "No token, or a wrong one", 404: "Unknown", 409: "Key used before",
              413: "Too long", 415: "Not JSON", 429: "The queue is full: ask again", 503: "Not now: ask again"}  # fmt: skip
_Handler = Callable[[Request], Awaitable[Response]]


class RewardService:
    """What the handlers share. `token`: None lets everybody in."""

    def __init__(
        self, store: JobStore, jobs: RewardJobs, tasks: Mapping[str, str], rewards: Mapping[str, RewardFunction],
        metrics: Metrics, token: str | None,
    ) -> None:  # fmt: skip
        self.store, self.jobs, self.tasks, self.rewards, self.metrics, self.token = store, jobs, tasks, rewards, metrics, token
        self._waiting: dict[str, set[asyncio.Event]] = {}
        jobs.finished = self._tell

    def begin(self) -> None:
        """Begins to work, in the event loop of the caller."""
        self._loop = asyncio.get_running_loop()
        self.jobs.start()

    def add(self, asked: JobRequest) -> JobAnswer:
        """The job for a request. Raises `HTTPException` for what cannot be done."""
        if asked.reward not in self.rewards:
            raise HTTPException(400, f"there is no reward {asked.reward[:80]!a}: there are {', '.join(sorted(self.rewards))}")
        name, source = self._task(asked.task)
        try:
            answer, fresh = self.store.add(asked, name, source)
        except QueueFull as error:
            self.metrics.turn_away()
            raise HTTPException(429, str(error), {"Retry-After": _RETRY_AFTER_S}) from error
        except KeyTaken as error:
            raise HTTPException(409, str(error)) from error
        except (StitchError, sqlite3.Error) as error:
            raise HTTPException(503, f"the job cannot be kept: {error}", {"Retry-After": _RETRY_AFTER_S}) from error
        if fresh:
            self.jobs.wake()
        else:
            self.metrics.duplicate()
        return answer

    async def answer(self, id: str, wait_s: float) -> JobAnswer:
        """A job when it is finished, or as it is after `wait_s`. Raises `HTTPException` if there is none of this id."""
        event = asyncio.Event()
        self._waiting.setdefault(id, set()).add(event)
        try:
            found = await run_in_threadpool(self.store.read, id)
            if found and not found.finished and wait_s > 0:
                try:
                    await asyncio.wait_for(event.wait(), wait_s)
                except TimeoutError:
                    return found
                found = await run_in_threadpool(self.store.read, id)
        finally:
            self._waiting[id].discard(event)
            if not self._waiting[id]:
                del self._waiting[id]
        if found is None:
            raise HTTPException(404, "there is no such job: POST /jobs makes one")
        return found

    def _task(self, asked: str) -> tuple[str, str]:
        if asked in self.tasks:
            return asked, self.tasks[asked]
        if "\n" not in asked:
            raise HTTPException(404, f"there is no task {asked[:80]!a}: give one of the server's, or the text of a reference")
        if self.token is None:             # a reference is code that runs here
            raise HTTPException(403, "a server without a token takes only its own tasks: give the name of one")
        try:
            asked.encode()
        except UnicodeEncodeError as error:
            raise HTTPException(400, "the reference is not UTF-8 text") from error
        return "(given)", asked

    def _tell(self, id: str) -> None:
        with suppress(RuntimeError):       # the loop is closed: the server ends, and nobody waits any more
            self._loop.call_soon_threadsafe(self._wake, id)

    def _wake(self, id: str) -> None:
        for event in self._waiting.get(id, ()):
            event.set()


async def add_job(request: Request) -> Response:
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise HTTPException(415, "send an object as application/json")
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MOST_BODY:
            raise HTTPException(413, f"a request has at most {_MOST_BODY >> 20} MiB")
    try:
        asked = JobRequest.model_validate(json.loads(body))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise HTTPException(400, f"{'.'.join(map(str, first['loc'])) or 'the request'}: {first['msg']}") from error
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, f"the body is no JSON ({type(error).__name__}): send an object") from error
    answer = await run_in_threadpool(_service(request).add, asked)
    return _json(answer, 200 if answer.finished else 202)


async def show_job(request: Request) -> Response:
    wait = request.query_params.get("wait", "0")
    if not re.fullmatch(r"\d{1,6}(\.\d{1,6})?", wait, re.ASCII):
        raise HTTPException(400, "wait is a number of seconds, such as 30")
    return _json(await _service(request).answer(request.path_params["id"], min(float(wait), MOST_WAIT_S)), 200)


async def show_metrics(request: Request) -> Response:
    service = _service(request)
    text = service.metrics.text(await run_in_threadpool(service.store.counts))
    return PlainTextResponse(text, media_type="text/plain; version=0.0.4")


async def show_health(request: Request) -> Response:
    service = _service(request)
    failure = service.jobs.failure
    told = {"ok": failure is None, "environment": service.store.environment, "rewards": sorted(service.rewards)}
    return JSONResponse(told | ({"error": str(failure)} if failure else {}), 503 if failure else 200)


async def show_schema(request: Request) -> Response:
    return JSONResponse(openapi())


def openapi() -> dict[str, Any]:
    """The service in OpenAPI's form."""
    models = models_json_schema(
        [(JobRequest, "validation"), (JobAnswer, "serialization"), (ServiceError, "serialization")],
        ref_template="#/components/schemas/{model}",
    )[1]["$defs"]

    def says(name: str, *errors: int, **good: str) -> dict[str, Any]:
        def one_of(what: str, model: str) -> dict[str, Any]:
            return {"description": what, "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{model}"}}}}

        found = {code.removeprefix("_"): one_of(what, name) for code, what in good.items()}
        return found | {str(code): one_of(_SENTENCES[code], "ServiceError") for code in errors}

    post = {
        "summary": "Has a program judged. A request that was made before gets the job that it had.",
        "requestBody": {
            "required": True, "content": {"application/json": {"schema": {"$ref": "#/components/schemas/JobRequest"}}},
        },
        "responses": says(
            "JobAnswer", 400, 401, 404, 409, 413, 415, 429, 503, _200="It is answered already.", _202="It is in the queue."
        ),
    }  # fmt: skip
    get = {
        "summary": f"A job, as soon as it is finished, or after `wait` seconds (at most {MOST_WAIT_S:.0f}).",
        "parameters": [
            {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}},
            {"name": "wait", "in": "query", "schema": {"type": "number", "default": 0}},
        ],
        "responses": says("JobAnswer", 400, 401, 404, _200="The job."),
    }
    plain = {name: {"get": {"summary": told, "responses": {"200": {"description": told}}}} for name, told in {
        "/metrics": "Counters in Prometheus' text form.", "/healthz": "Whether the service works.", "/openapi.json": "This.",
    }.items()}  # fmt: skip
    return {
        "openapi": "3.1.0",
        "info": {"title": "StitchCUDA's reward service", "version": VERSION},
        "paths": {"/jobs": {"post": post}, "/jobs/{id}": {"get": get}, **plain},
        "components": {"schemas": models, "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }


def app(service: RewardService, hosts: list[str]) -> Starlette:
    """The service for clients that call it by one of `hosts`."""

    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        service.begin()
        yield

    made = Starlette(
        routes=[
            Route("/jobs", _with_token(add_job), methods=["POST"]),
            Route("/jobs/{id}", _with_token(show_job)),
            Route("/metrics", _with_token(show_metrics)),
            Route("/healthz", show_health),
            Route("/openapi.json", show_schema),
        ],
        middleware=[Middleware(TrustedHostMiddleware, allowed_hosts=hosts)],
        exception_handlers={HTTPException: _refused},
        lifespan=life,
    )
    made.state.service = service
    return made


def _with_token(handle: _Handler) -> _Handler:
    async def checked(request: Request) -> Response:
        token = _service(request).token
        given = request.headers.get("authorization", "")
        if token is not None and not hmac.compare_digest(given.encode(), f"Bearer {token}".encode()):
            raise HTTPException(401, "send the server's token: Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"})
        return await handle(request)

    return checked


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


def _service(request: Request) -> RewardService:
    found: RewardService = request.app.state.service
    return found


def _json(answer: JobAnswer, code: int) -> Response:
    return Response(answer.model_dump_json(), code, media_type="application/json")
