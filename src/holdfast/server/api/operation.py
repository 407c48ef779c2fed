"""An operation of the API: its path, what it needs, what it takes and answers. Routes and OpenAPI are made from it.

```text
   Origin ─▶ caller ─▶ scope ─▶ path and query ─▶ body (size, type, fields) ─▶ handler ─▶ JSON
```

Whatever fails on the way is answered with a problem.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.server.access import SAFE_METHODS, Caller, Role, caller_of, forbidden
from holdfast.server.api.bodies import read_body
from holdfast.server.api.fields import NOTHING, PATH_FIELDS, UUID, NoFields
from holdfast.server.auditing import AuditNote, record, recording_doubt
from holdfast.server.problems import Problem
from holdfast.server.state import ServerState, state_of
from holdfast.server.time_limit import within_time

if TYPE_CHECKING:
    from holdfast.app.app import App

Q = TypeVar("Q")
B = TypeVar("B")
_TRACE: Final = ("traceparent", "tracestate")
_encode = msgspec.json.Encoder().encode


class Need(StrEnum):
    """What the caller of an operation must be allowed."""

    NOTHING = "nothing"
    ENQUEUE = "enqueue"
    WORK = "work"
    READ = "read"
    OPERATE = "operate"
    ADMIN = "admin"

    def is_met_by(self, caller: Caller) -> bool:
        """Whether the caller may do it; which queues a worker may use is checked later."""
        match self:
            case Need.NOTHING:
                return True
            case Need.ENQUEUE:
                return caller.enqueues
            case Need.WORK:
                return caller.works
            case Need.READ | Need.OPERATE | Need.ADMIN:
                return caller.role is not None and caller.role >= Role[self.name]


class ApiCall(Generic[Q, B]):
    """One call of an operation, checked."""

    def __init__(self, request: Request, state: ServerState, caller: Caller, query: Q, body: B) -> None:
        self.request = request
        self.state = state
        self.caller = caller
        self.query = query
        self.body = body

    @property
    def app(self) -> App:
        """The app."""
        return self.state.app

    def path(self, name: str) -> str:
        """Return a parameter of the path."""
        value: str = self.request.path_params[name]
        return value

    @property
    def sees_contents(self) -> bool:
        """Whether the caller may see results and the payloads of events: it operates, or it also enqueues."""
        role = self.caller.role
        return role is not None and (self.caller.enqueues or role >= Role.OPERATE)

    def check_role(self, role: Role) -> None:
        """Raise `Problem` 403 if the caller lacks a role that only some calls of the operation need."""
        if self.caller.role is None or self.caller.role < role:
            raise forbidden(self.request, f"this needs the scope {role.name.lower()}")


class Answer(msgspec.Struct, frozen=True):
    """The answer to a call; None as the value: no content.

    `note`: what the audit log says of a change whose target is not in the path.
    """

    value: Any
    status: int = 200
    headers: Mapping[str, str] = {}
    note: AuditNote | None = None
    is_change: bool = True
    """Whether an operation that changes something did so, or only asked."""


Handler = Callable[[Any], Awaitable[Answer]]


class Operation(msgspec.Struct, frozen=True):
    """An operation. `answers` are the values by status; `problems` the statuses beyond those that all may have."""

    method: str
    path: str
    handler: Handler
    needs: Need
    answers: Mapping[int, Any]
    query: type[Any] = NoFields
    body: type[Any] | None = None
    problems: tuple[int, ...] = ()
    wait_field: str | None = None
    """The field of the query or the body by which the caller asks to wait, in seconds."""
    links: Mapping[str, Mapping[str, Any]] = {}
    """By the names of other operations: what of an answer they take, as OpenAPI writes it."""

    @property
    def name(self) -> str:
        """The name, unique in the API: that of the handler."""
        return self.handler.__name__

    @property
    def summary(self) -> str:
        """The first line of the handler's docstring."""
        return (self.handler.__doc__ or "").partition("\n")[0]

    @property
    def description(self) -> str:
        """The rest of the handler's docstring, in paragraphs without line breaks."""
        rest = (self.handler.__doc__ or "").partition("\n")[2]
        paragraphs = [" ".join(part.split()) for part in rest.split("\n\n")]
        return "\n\n".join(part for part in paragraphs if part)

    @property
    def is_audited(self) -> bool:
        """Whether it is recorded who did it: what operators change, not the work of producers and workers."""
        return self.method not in SAFE_METHODS and self.needs in {Need.OPERATE, Need.ADMIN}

    @property
    def action(self) -> str:
        """The name in the audit log: `queue.pause` for `pause_queue`."""
        verb, _, noun = self.name.partition("_")
        return f"{noun}.{verb}"

    async def answer(self, request: Request) -> Response:
        """Answer a request."""
        state = state_of(request)
        caller = await caller_of(request)
        if not self.needs.is_met_by(caller):
            raise forbidden(request, f"this needs the scope {self.needs}")
        _check_path(request)
        query = _convert(dict(_single(request)), self.query)
        body = NOTHING if self.method in {"GET", "DELETE"} else await read_body(request, self.body or NoFields)
        call = ApiCall(request, state, caller, query, body)
        async with within_time(self._wait_of(call)):
            await state.opened()
            target = " ".join(map(str, request.path_params.values()))
            doubt = recording_doubt(request, caller, self.action, target) if self.is_audited else nullcontext()
            async with doubt:
                answer = await self.handler(call)
        if self.is_audited and answer.is_change:
            note = answer.note or AuditNote(self.action, target)
            await record(request, caller, note.action, note.target, note.detail)
        if answer.value is None:
            return Response(status_code=204, headers=dict(answer.headers))
        return Response(_encode(answer.value), answer.status, dict(answer.headers), media_type="application/json")

    def _wait_of(self, call: ApiCall[Any, Any]) -> float:
        if self.wait_field is None:
            return 0.0
        wait: float = getattr(call.query, self.wait_field, None) or getattr(call.body, self.wait_field, None) or 0.0
        return wait


def routes_of(operations: Sequence[Operation]) -> list[Route]:
    """Return one route for each path: so the refusal of a method names all that there are. GET answers HEAD, too."""
    paths: dict[str, dict[str, Operation]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method] = operation
    return [
        Route(path.replace("{job_id}", "{job_id:job}"), _dispatched(by_method), methods=list(by_method))
        for path, by_method in paths.items()
    ]


class _JobConvertor(StringConvertor):
    """Keeps `/v1/jobs/batch` from being taken for a job."""

    regex = UUID


register_url_convertor("job", _JobConvertor())


def _dispatched(by_method: Mapping[str, Operation]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        return await by_method["GET" if request.method == "HEAD" else request.method].answer(request)

    return answer


def _single(request: Request) -> list[tuple[str, str]]:
    pairs = request.query_params.multi_items()
    names = [name for name, _ in pairs]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise invalid(f"the parameter {twice!r} is given twice")
    return pairs


def _check_path(request: Request) -> None:
    for name, value in request.path_params.items():
        try:
            msgspec.convert(value, PATH_FIELDS[name])
        except msgspec.ValidationError as error:
            raise Problem(404, "not-found", f"nothing has the {name} {value!r}: {error}") from None


def _convert(values: Mapping[str, str], kind: type[Any]) -> Any:
    try:
        query = msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(f"the query is invalid: {error}") from None
    absent = next((name for name in values if getattr(query, name) is None), None)  # `null`, for a number
    if absent is not None:
        raise invalid(f"the query is invalid: the parameter {absent!r} has no value; leave it out")
    return query


def check_queues(call: ApiCall[Any, Any], queues: Sequence[str]) -> None:
    """Raise `Problem` 403 if the caller may not work on all of these queues."""
    refused = sorted({queue for queue in queues if not call.caller.may_work_on(queue)})
    if refused:
        raise Problem(403, "forbidden", f"this token does not allow to work on {', '.join(refused)}")


async def check_worker(call: ApiCall[Any, Any], worker_id: str) -> None:
    """Raise `Problem` 403 if this is the name of a worker for which the caller may not speak."""
    if not await call.state.extending.may_speak_for(worker_id, call.caller):
        raise Problem(
            403, "forbidden", f"worker {worker_id} serves queues that this token does not allow: use another id"
        )


def by_id(field: str, *names: str, at: str = "id") -> dict[str, Mapping[str, Any]]:
    """Return links to operations that take a member of an answer as a parameter of their path."""
    return {name: {"parameters": {field: f"$response.body#/{at}"}} for name in names}


def trace_of(request: Request) -> dict[str, str]:
    """Return the context of the trace that a request belongs to: it goes into the headers of what is stored."""
    return {name: request.headers[name] for name in _TRACE if name in request.headers}


def invalid(detail: str) -> Problem:
    """Return the problem of a request that can be read, but asks for something that is not allowed."""
    return Problem(422, "invalid-request", detail)
