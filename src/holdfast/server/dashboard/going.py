"""What precedes a page and follows a form: the check of the role, the open store, and the redirect with a notice."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse

from holdfast.server.access import Caller, Role, require
from holdfast.server.dashboard.frame import NOTICE_COOKIE, ActionNotice, frame_of
from holdfast.server.dashboard.pages import page_at
from holdfast.server.state import state_of

_NOTICE_SECONDS: Final = 30
_LONGEST_NOTICE: Final = 1000


async def enter(request: Request, role: Role) -> Caller:
    """Check the role, and open the store."""
    caller = await require(role)(request)
    await state_of(request).opened()
    return caller


def redirect(url: str) -> RedirectResponse:
    """Lead the browser to another page of this server; it asks for it by GET."""
    return RedirectResponse(url, 303)


def own_path(path: str) -> str:
    """Return a path if it is that of a page of this server, else that of the first page."""
    is_own = path.startswith("/") and page_at(path.partition("?")[0]) is not None
    return path if is_own else "/"


def go_back(request: Request, caller: Caller, path: str, notice: ActionNotice | None) -> RedirectResponse:
    """Return to the page of a form, which shows the notice: to a page of this server only."""
    frame = frame_of(request, caller)
    response = redirect(frame.prefix + own_path(path))
    if notice is not None:
        text = quote(f"{notice.kind} {notice.text[:_LONGEST_NOTICE]}")
        response.set_cookie(
            NOTICE_COOKIE, text, _NOTICE_SECONDS, path=frame.prefix or "/", httponly=True, samesite="strict"
        )
    return response
