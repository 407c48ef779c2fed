"""Confirmation page for disruptive or irreversible actions, and those that enqueue: its form sends the action."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from holdfast.model.ids import is_id, new_id
from holdfast.server.access import Role, require
from holdfast.server.dashboard.actions import ON_JOBS, ON_NAMES, Action
from holdfast.server.dashboard.forms import Form
from holdfast.server.dashboard.frame import frame_of, page_response, render
from holdfast.server.dashboard.going import enter, own_path
from holdfast.server.problems import Problem
from holdfast.server.state import state_of

_JOB: Final = "/jobs/"
_FIELDS: Final = ("verb", "name", "seen", "to", "back")


async def ask(request: Request) -> Response:
    """Show what an action does, and the form that does it."""
    caller = await enter(request, Role.OPERATE)
    form = Form(request.query_params.multi_items())
    path = form.require("of")
    action = _asked(path, form.require("verb"))
    await require(action.role)(request)
    target = path.removeprefix(_JOB) if path.startswith(_JOB) else form.require("name")
    if path.startswith(_JOB) and not is_id(target):  # a browser resolves `/jobs/../streams` to another page
        raise Problem(422, "invalid-form", f"of={path[:80]!r} is not the page of a job")
    moves = None if action.moves is None else await action.moves(state_of(request).app, target, form)
    frame = frame_of(request, caller)
    values = {
        "title": action.question.format(target),
        "action": action,
        "path": path,
        "verb": form.get("verb"),
        "fields": {name: form.get(name) for name in _FIELDS if form.get(name)}
        | ({"id": new_id()} if action.has_id else {}),  # not in the pages themselves: tabs share what is rendered
        "moves": moves,
        "current": "/" + path.split("/")[1],
        "leave": frame.prefix + own_path(form.get("back") or path),
    }
    return page_response(render("ask.html", frame, values), frame)


def _asked(path: str, verb: str) -> Action:
    actions = ON_JOBS if path.startswith(_JOB) else ON_NAMES.get(path, {})
    action = actions.get(verb)
    if action is None or not action.question:
        raise Problem(422, "unknown-verb", f"no question is asked before verb={verb!r} on {path[:80]!r}")
    return action
