"""The routes of the dashboard."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from holdfast.errors import JobNotFound
from holdfast.model.ids import is_id
from holdfast.server.access import Role, require
from holdfast.server.auditing import record, recording_doubt
from holdfast.server.dashboard.actions import ON_JOBS, ON_NAMES, Action
from holdfast.server.dashboard.asking import ask
from holdfast.server.dashboard.assets import serve_asset
from holdfast.server.dashboard.bulk import ON_OPERATIONS, preview, start
from holdfast.server.dashboard.export import export_audit
from holdfast.server.dashboard.forms import Form, read_form
from holdfast.server.dashboard.frame import (
    KEYS_COOKIE,
    THEME_COOKIE,
    THEMES,
    frame_of,
    page_response,
    render,
)
from holdfast.server.dashboard.going import enter, go_back, redirect
from holdfast.server.dashboard.live import LiveHub
from holdfast.server.dashboard.pages import PAGES, Page, PageRequest, page_at
from holdfast.server.dashboard.read.query import searched
from holdfast.server.problems import Problem
from holdfast.server.state import state_of
from holdfast.server.time_limit import within_time

Endpoint = Callable[[Request], Awaitable[Response]]
_YEAR: Final = 365 * 86400


def routes() -> list[BaseRoute]:
    """Return the routes: the pages, their actions, live updates and static files."""
    endpoints: list[tuple[str, Endpoint, str]] = [
        *((page.path, _page(page), "GET") for page in PAGES),
        ("/jobs/{job_id}", _act_on_job, "POST"),
        *((path, _act_on_name(path), "POST") for path in ON_NAMES),
        ("/operations", _act_on_operation, "POST"),
        ("/audit/export", export_audit, "GET"),
        ("/ask", ask, "GET"),
        ("/preview", preview, "GET"),
        ("/preview", start, "POST"),
        ("/preferences", _prefer, "POST"),
        ("/live", _live(LiveHub()), "GET"),
        ("/static/{version}/{name}", serve_asset, "GET"),
    ]
    return [Route(path, _limited(endpoint), methods=[method]) for path, endpoint, method in endpoints]


def _limited(endpoint: Endpoint) -> Endpoint:
    async def answer(request: Request) -> Response:
        async with within_time():
            return await endpoint(request)

    return answer


# --- pages ------------------------------------------------------------------------------------------------------------


def _page(page: Page) -> Endpoint:
    async def show(request: Request) -> Response:
        caller = await enter(request, Role.READ)
        app = state_of(request).app
        query = dict(request.query_params)
        if page.path == "/jobs" and query.get("q", "").strip():
            return await _search(request, query.pop("q"))
        if page.path == "/jobs/{job_id}" and not is_id(request.path_params["job_id"]):
            return await _whole_id(request, request.path_params["job_id"])
        values = await page.read(app, PageRequest(request.path_params, query))
        if "reveal" in query and page.reveal is not None:
            await require(Role.OPERATE)(request)
            values["revealed"] = page.reveal.read(state_of(request).settings, values["screen"])
            await record(request, caller, page.reveal.action, page.reveal.target(values["screen"]))
        frame = frame_of(request, caller)
        html = render(page.template, frame, {"title": page.title, "is_live": "reveal" not in query, **values})
        return page_response(html, frame)

    return show


async def _search(request: Request, text: str) -> Response:
    """Redirect to the search result: a job by its id, or the list with a filter."""
    parts, words = searched(text)
    wanted = parts.pop("id", words[0] if len(words) == 1 and not parts else None)
    if wanted is not None:
        return await _whole_id(request, wanted)
    if words:
        remedy = "write an id, or state: queue: task: order_key: worker:"
        raise Problem(422, "search", f"cannot search for {' '.join(words)!r}: {remedy}")
    query = {"state": request.query_params.get("state"), **parts}
    return redirect(frame_of(request, request.state.caller).url("/jobs", **query))


async def _whole_id(request: Request, text: str) -> Response:
    """Redirect to the job with this short id, or with this id prefix."""
    found = await state_of(request).app.backend.insight.find(text.lower(), 2)
    if len(found) != 1:
        how = "no job" if not found else "more than one job"
        raise JobNotFound(f"{how} has an id like {text[:40]!r}: give the id that a list shows")
    return redirect(frame_of(request, request.state.caller).url(f"/jobs/{found[0]}"))


# --- actions ----------------------------------------------------------------------------------------------------------


async def _act_on_job(request: Request) -> Response:
    return await _act(request, ON_JOBS, lambda _: request.path_params["job_id"])


async def _act_on_operation(request: Request) -> Response:
    return await _act(request, ON_OPERATIONS, lambda form: form.require("name"))


def _act_on_name(path: str) -> Endpoint:
    async def act(request: Request) -> Response:
        return await _act(request, ON_NAMES[path], lambda form: form.require("name"))

    return act


async def _act(request: Request, actions: Mapping[str, Action], target_of: Callable[[Form], str]) -> Response:
    caller = await enter(request, Role.OPERATE)
    form = await read_form(request)
    action = actions.get(form.get("verb"))
    if action is None:
        raise Problem(422, "unknown-verb", f"verb={form.get('verb')!r} is not one of {', '.join(actions)}")
    await require(action.role)(request)
    target = target_of(form)
    async with recording_doubt(request, caller, action.name, target):
        notice = await action.run(state_of(request).app, target, form)
    await record(request, caller, action.name, target, action.detail(form, notice))
    is_gone = action.name == "job.delete"
    return go_back(request, caller, "/jobs" if is_gone else form.get("back"), notice)


async def _prefer(request: Request) -> Response:
    """Keep the viewer's theme, and whether single keys do something, in cookies."""
    caller = await enter(request, Role.READ)
    form = await read_form(request)
    response = go_back(request, caller, form.get("back"), None)
    path = frame_of(request, caller).prefix or "/"
    if form.get("theme") in THEMES:
        response.set_cookie(THEME_COOKIE, form.get("theme"), _YEAR, path=path, samesite="lax", httponly=True)
    if form.get("keys") in {"on", "off"}:
        response.set_cookie(KEYS_COOKIE, form.get("keys"), _YEAR, path=path, samesite="lax", httponly=True)
    return response


# --- live updates -----------------------------------------------------------------------------------------------------


def _live(hub: LiveHub) -> Endpoint:
    async def stream(request: Request) -> Response:
        caller = await enter(request, Role.READ)
        address = request.query_params.get("of", "/")
        if page_at(address.partition("?")[0]) is None:
            raise Problem(404, "not-found", "there is no such page")
        frame = msgspec.structs.replace(frame_of(request, caller), here=address, notice=None)
        events = hub.events(state_of(request).app, address, frame)
        headers = {"x-accel-buffering": "no"}  # a proxy that collects the answer would hold the events back
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)

    return stream
