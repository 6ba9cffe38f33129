"""A port for participants in other languages: requests and answers as JSON over HTTP.

``GET /openapi.json`` describes it. All other paths need the token, as ``Authorization: Bearer TOKEN``.
"""

import asyncio
import hmac
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from secrets import token_hex
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, ValidationError
from pydantic.json_schema import models_json_schema
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from flyball.app.config import FrozenModel
from flyball.app.core import FlyballError, JsonObject, parse_json
from flyball.app.engine.relay import HandedJob, RelayEngine
from flyball.app.events.payload import Metrics, PositiveCount
from flyball.app.participation.requests import Request
from flyball.app.participation.tasks import TASKS, FailureReason, TaskKind, task_of

MOST_BYTES = 4 << 20
"""Most bytes of a body."""

SILENT_SECONDS = 300.0
"""Longest time between a worker's calls, unless it asks for another.

A batch of games takes seconds to minutes, and a training can report its epochs, so that a longer silence is most likely
a worker that died.
"""

LOOK_SECONDS = 0.1
REF = "#/components/schemas/{model}"


class NextRequest(FrozenModel):
    """Asks for a request. A worker that asks again before it has answered gets the same attempt again."""

    worker: str = Field(min_length=1, max_length=255, description="a name of the caller's own, which it keeps")
    kinds: tuple[TaskKind, ...] | None = Field(None, description="kinds of tasks; null: all that are served here")
    wait_seconds: float = Field(30.0, ge=0, le=60, description="longest wait for a request")
    silent_seconds: float = Field(
        SILENT_SECONDS,
        gt=0,
        description="longest time between the worker's calls; after it, another worker may get the request",
    )


class ProgressReport(FrozenModel):
    """Reports the progress of a training. For other tasks, it only shows that the worker lives."""

    epoch: PositiveCount
    epochs: PositiveCount
    metrics: Metrics = Field({})


class FailureReport(FrozenModel):
    """Answers that a task could not be done."""

    reason: FailureReason
    text: Annotated[str, Field(max_length=4000)]


class Handed(FrozenModel):
    """The fields that a request has in addition to those of its task."""

    attempt: str = Field(description="names this attempt at the request, in the paths of progress, answer and failure")
    deadline_seconds: float | None = Field(description="time to answer, from when the request was handed out")


class Refusal(FrozenModel):
    """A call was refused."""

    error: str
    hint: str


class CallRefused(FlyballError):
    """A call that is not understood, or names nothing."""

    def __init__(self, status: int, message: str, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.status = status


class AttemptOver(CallRefused):
    """A call about an attempt that is over, or never was."""

    def __init__(self, name: str) -> None:
        super().__init__(
            409,
            f"The attempt {name} is over, and this call changed nothing.",
            "It was answered, its time is over, or no call came for silent_seconds: ask for the next request.",
        )


M = TypeVar("M", bound=FrozenModel)
Endpoint = Callable[[HttpRequest], Awaitable[Response]]


@dataclass
class Attempt:
    """A request in the hands of a worker.

    Attributes:
        name: names this attempt alone, as the next attempt at the request has the same id. It is random, because a
            counter would begin again when the port does.
        worker: the caller's own name.
        request: what is to be done.
        silent_seconds: longest time between the worker's calls.
        heard: when its latest call came.
    """

    name: str
    worker: str
    request: Request
    silent_seconds: float
    heard: float

    @property
    def document(self) -> JsonObject:
        """The request as JSON, with the attempt's name."""
        return self.request.document | {"attempt": self.name}


class Port:
    """Hands requests out, and takes answers.

    Args:
        engine: has the jobs.
        token: every caller has to know it.
    """

    def __init__(self, engine: RelayEngine, token: str) -> None:
        self._engine, self._token = engine, token
        self._open: dict[str, Attempt] = {}  # by name

    def application(self) -> Starlette:
        """Return the port as an ASGI application."""
        calls: Mapping[str, Endpoint] = {
            "/requests": self._next,
            "/attempts/{attempt}/progress": self._progress,
            "/attempts/{attempt}/answer": self._answer,
            "/attempts/{attempt}/failure": self._failure,
        }
        routes = [Route(path, self._guarded(call), methods=["POST"]) for path, call in calls.items()]
        return Starlette(routes=[Route("/openapi.json", _openapi, methods=["GET"]), *routes])

    def _guarded(self, call: Endpoint) -> Endpoint:
        """Return the call for those who know the token; what it refuses becomes an answer."""

        @wraps(call)
        async def guarded(request: HttpRequest) -> Response:
            scheme, _, given = request.headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self._token.encode()):
                refused = {"error": "The token is missing or wrong.", "hint": "Send Authorization: Bearer TOKEN."}
                return JSONResponse(refused, 401, {"www-authenticate": "Bearer"})
            try:
                return await call(request)
            except FlyballError as error:
                status = error.status if isinstance(error, CallRefused) else 422
                return JSONResponse({"error": error.message, "hint": error.hint}, status)

        return guarded

    async def _next(self, request: HttpRequest) -> Response:
        asking = _read(NextRequest, await _body(request))

        def accepts(job: HandedJob) -> bool:
            return asking.kinds is None or task_of(job.function, job.spec).kind in asking.kinds

        loop = asyncio.get_running_loop()
        end = loop.time() + asking.wait_seconds
        while True:
            held = next((held for held in self._open.values() if held.worker == asking.worker), None)
            if held and held.request.is_wanted:  # perhaps taken by an earlier call, which was cut off
                held.silent_seconds, held.heard = asking.silent_seconds, loop.time()
                return JSONResponse(held.document)
            self._give_up(loop.time())
            if job := self._engine.take(0.0, accepts):
                attempt = Attempt(token_hex(8), asking.worker, Request(job), asking.silent_seconds, loop.time())
                self._open[attempt.name] = attempt
                return JSONResponse(attempt.document)
            if not self._engine.hands_out:
                raise CallRefused(503, "This participant ends, and hands out no more requests.", "Ask it again later.")
            if loop.time() >= end or await request.is_disconnected():
                return Response(status_code=204)
            await asyncio.sleep(LOOK_SECONDS)

    def _give_up(self, now: float) -> None:
        """Drop attempts that are over, and those of workers that were silent for too long; others may try then.

        It is enough to look while somebody asks for a request.
        """
        for name, attempt in list(self._open.items()):
            if now - attempt.heard > attempt.silent_seconds:
                attempt.request.give_up(f"worker {attempt.worker} was silent for {attempt.silent_seconds:g} s")
            elif attempt.request.is_wanted:
                continue
            del self._open[name]

    async def _progress(self, request: HttpRequest) -> Response:
        reported, attempt = _read(ProgressReport, await _body(request)), self._attempt(request)
        attempt.request.report(reported.epoch, reported.epochs, reported.metrics)
        return Response(status_code=204)

    async def _answer(self, request: HttpRequest) -> Response:
        answer, attempt = await _body(request), self._attempt(request)
        return self._ended(attempt, wanted=attempt.request.succeed(**answer))

    async def _failure(self, request: HttpRequest) -> Response:
        failure, attempt = _read(FailureReport, await _body(request)), self._attempt(request)
        return self._ended(attempt, wanted=attempt.request.fail(failure.reason, failure.text))

    def _ended(self, attempt: Attempt, *, wanted: bool) -> Response:
        del self._open[attempt.name]
        if not wanted:
            raise AttemptOver(attempt.name)
        return Response(status_code=204)

    def _attempt(self, request: HttpRequest) -> Attempt:
        """Return the attempt that a call names. Raises ``AttemptOver``."""
        name = request.path_params["attempt"]
        attempt = self._open.get(name)
        if attempt is None or not attempt.request.is_wanted:
            raise AttemptOver(name)
        attempt.heard = asyncio.get_running_loop().time()
        return attempt


async def _body(request: HttpRequest) -> JsonObject:
    """Return a body's JSON object. Raises ``CallRefused``."""
    raw = b""
    async for part in request.stream():
        raw += part
        if len(raw) > MOST_BYTES:
            raise CallRefused(413, f"The body has more than {MOST_BYTES:,} bytes.", "Send less.")
    try:
        body = parse_json(raw.decode())
    except ValueError as error:
        raise CallRefused(400, f"The body is not JSON: {error}.", "Send a JSON object.") from error
    if not isinstance(body, dict):
        raise CallRefused(400, "The body is not a JSON object.", "See /openapi.json.")
    return body


def _read(kind: type[M], body: JsonObject) -> M:
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise CallRefused(422, f"{where}: {first['msg']}.", "See /openapi.json.") from error


async def _openapi(_: HttpRequest) -> Response:
    return JSONResponse(openapi())


def openapi() -> dict[str, Any]:
    """Return the port's description, as OpenAPI 3.1 has it."""
    answers = tuple(task.answer for task in TASKS)
    taken: tuple[type[FrozenModel], ...] = (NextRequest, ProgressReport, FailureReport, *answers)
    sent: tuple[type[FrozenModel], ...] = (*TASKS, Refusal)
    modes: list[tuple[type[FrozenModel], Literal["validation", "serialization"]]] = [
        *((model, "validation") for model in taken),
        *((model, "serialization") for model in sent),
    ]
    named, definitions = models_json_schema(modes, ref_template=REF)

    def schema(*models: type[FrozenModel]) -> dict[str, Any]:
        schemas = [next(found for (model, _), found in named.items() if model is wanted) for wanted in models]
        return {"content": {"application/json": {"schema": schemas[0] if len(schemas) == 1 else {"anyOf": schemas}}}}

    refused = {status: {"description": "refused", **schema(Refusal)} for status in ("400", "401", "413", "422")}
    over = {"description": "the attempt is over, and nothing was changed", **schema(Refusal)}
    received = {"204": {"description": "received"}, "409": over, **refused}
    attempt = {"name": "attempt", "in": "path", "required": True, "schema": {"type": "string"}}

    def call(summary: str, body: dict[str, Any], responses: dict[str, Any], *parameters: dict[str, Any]) -> Any:
        operation = {"summary": summary, "requestBody": {"required": True, **body}, "responses": responses}
        return {"post": operation | ({"parameters": list(parameters)} if parameters else {})}

    handed = Handed.model_json_schema(mode="serialization")
    for task in TASKS:
        described = definitions["$defs"][task.__name__]
        described["properties"] |= handed["properties"]
        described["required"] += handed["required"]
    given = {"200": {"description": "a request", **schema(*TASKS)}, "204": {"description": "none yet"}, **refused}
    given["503"] = {"description": "the participant ends", **schema(Refusal)}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Participants of a Flyball run", "version": "1"},
        "security": [{"token": []}],
        "paths": {
            "/requests": call("Get the next request.", schema(NextRequest), given),
            "/attempts/{attempt}/progress": call("Report progress.", schema(ProgressReport), received, attempt),
            "/attempts/{attempt}/answer": call("Answer a request.", schema(*answers), received, attempt),
            "/attempts/{attempt}/failure": call("Report a failure.", schema(FailureReport), received, attempt),
        },
        "components": {
            "schemas": definitions.get("$defs", {}),
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }
