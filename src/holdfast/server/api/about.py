"""What the server offers, and what its problems mean: a client can adapt to it."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

import msgspec

from holdfast.server.api.fields import LONGEST_WAIT, NoFields
from holdfast.server.api.job_schemas import MAX_BATCH
from holdfast.server.api.lease_schemas import MAX_LEASES
from holdfast.server.api.operation import Answer, ApiCall, Need, Operation, by_id
from holdfast.server.problem_types import PROBLEM_TYPES, ProblemType
from holdfast.server.problems import Problem


class ServerLimits(msgspec.Struct, frozen=True):
    """The most that one request may have."""

    body_bytes: int
    jobs: int
    leases: int
    wait_seconds: float


class ServerFeatures(msgspec.Struct, frozen=True):
    """The version of the server and its store, whether it refuses changes, and its limits.

    `refusals` are the reasons for what the store cannot do, such as `keep streams`.
    """

    version: str
    store: str
    is_read_only: bool
    limits: ServerLimits
    refusals: dict[str, str]


class ProblemList(msgspec.Struct, frozen=True):
    """All types of problems."""

    problems: list[ProblemType]


async def show_features(call: ApiCall[NoFields, NoFields]) -> Answer:
    """Return what the server and its store can do.

    `/v1` only grows: clients ignore members that they do not know.
    """
    limits = ServerLimits(call.state.settings.max_body, MAX_BATCH, MAX_LEASES, LONGEST_WAIT)
    able = call.app.backend.capabilities
    is_read_only = call.state.settings.read_only
    return Answer(ServerFeatures(version("holdfast"), able.store, is_read_only, limits, dict(able.refusals)))


async def list_problems(_: ApiCall[NoFields, NoFields]) -> Answer:
    """List all types of problems."""
    return Answer(ProblemList([*PROBLEM_TYPES.values()]))


async def show_problem(call: ApiCall[NoFields, NoFields]) -> Answer:
    """Return what a type of problem means: its `type` is the URL of this."""
    known = PROBLEM_TYPES.get(call.path("problem"))
    if known is None:
        raise Problem(404, "not-found", f"there is no type of problem {call.path('problem')!r}")
    return Answer(known)


OPERATIONS: Final = (
    Operation("GET", "/v1", show_features, Need.NOTHING, {200: ServerFeatures}),
    Operation(
        "GET",
        "/v1/problems",
        list_problems,
        Need.NOTHING,
        {200: ProblemList},
        links=by_id("problem", "show_problem", at="problems/0/name"),
    ),
    Operation("GET", "/v1/problems/{problem}", show_problem, Need.NOTHING, {200: ProblemType}),
)
