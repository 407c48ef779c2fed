"""The layout shared by all pages: navigation, theme, the viewer; and the rendering of templates."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse

from holdfast.reports.text import block
from holdfast.server.access import Caller, Role
from holdfast.server.dashboard.assets import asset_path
from holdfast.server.dashboard.formats import FILTERS
from holdfast.server.problems import Problem
from holdfast.server.state import state_of

_WITHIN: Final = {"/preview": "/jobs", "/events": "/streams", "/consumer": "/streams"}
"""Pages that have no entry in the navigation, keyed by the page that links to them."""
THEMES: Final = ("light", "dark", "system")
THEME_COOKIE, KEYS_COOKIE, NOTICE_COOKIE = "holdfast_theme", "holdfast_keys", "holdfast_notice"


class NavItem(msgspec.Struct, frozen=True):
    """A page in the navigation."""

    title: str
    path: str
    icon: str


def _items(*titles: str) -> tuple[NavItem, ...]:
    return tuple(NavItem(title, f"/{title.lower()}", title.lower()) for title in titles)


NAV: Final = (
    (NavItem("Overview", "/", "overview"), *_items("Jobs", "Errors", "Queues", "Tasks", "Schedules")),
    _items("Workers", "Leases", "Streams"),
    _items("Operations", "Audit", "System"),
)


class ActionNotice(msgspec.Struct, frozen=True):
    """The result of the viewer's last action: `kind` is ok or warn."""

    kind: str
    text: str


class Frame(msgspec.Struct, frozen=True):
    """What a page needs besides its values: viewer, request URL and theme."""

    caller: Caller
    prefix: str
    store: str
    here: str
    theme: str = "system"
    keys: str = "on"
    notice: ActionNotice | None = None

    def url(self, path: str, **query: str | None) -> str:
        """Return the address of a page below the server's prefix."""
        parts = {name: value for name, value in query.items() if value}
        return self.prefix + quote(path) + (f"?{urlencode(parts)}" if parts else "")

    def asset(self, name: str) -> str:
        """Return the address of a static file."""
        return self.prefix + asset_path(name)

    def may(self, role: str) -> bool:
        """Whether the viewer has a role; pages hide what would be refused."""
        return self.caller.role is not None and self.caller.role >= Role[role.upper()]


def frame_of(request: Request, caller: Caller) -> Frame:
    """Return the frame of a request."""
    theme = request.cookies.get(THEME_COOKIE, "system")
    query = f"?{request.url.query}" if request.url.query else ""
    prefix = request.scope.get("root_path", "")
    return Frame(
        caller,
        prefix,
        "" if caller.role is None else state_of(request).app.backend.url,  # it may name hosts, users and paths
        request.url.path.removeprefix(prefix) + query,
        theme if theme in THEMES else "system",
        "off" if request.cookies.get(KEYS_COOKIE) == "off" else "on",
        _notice(request.cookies.get(NOTICE_COOKIE)),
    )


def _notice(cookie: str | None) -> ActionNotice | None:
    if not cookie:
        return None
    kind, _, text = unquote(cookie).partition(" ")
    return ActionNotice(kind if kind in {"ok", "warn"} else "warn", text)


@cache
def _environment() -> Environment:
    loader = PackageLoader("holdfast.server.dashboard")
    environment = Environment(
        loader=loader,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
        finalize=_visible,
    )
    environment.filters.update(FILTERS)
    return environment


def _visible(value: object) -> object:
    """Make characters visible that would reverse or hide the text around them."""
    if not isinstance(value, str) or isinstance(value, Markup) or (value.isascii() and value.isprintable()):
        return value
    return block(value)


def render(template: str, frame: Frame, values: Mapping[str, Any]) -> str:
    """Return a page as HTML."""
    role = frame.caller.role
    path = "/" + frame.here.split("?")[0].split("/")[1]
    around: dict[str, Any] = {
        "asset": frame.asset,
        "current": _WITHIN.get(path, path),
        "here": frame.here,
        "is_live": False,
        "keys": frame.keys,
        "may": frame.may,
        "nav": NAV,
        "notice": frame.notice,
        "prefix": frame.prefix,
        "role": "none" if role is None else role.name.lower(),
        "store": frame.store,
        "subject": frame.caller.subject,
        "theme": frame.theme,
        "url": frame.url,
    }
    return _environment().get_template(template).render({**around, **values})


def page_response(html: str, frame: Frame, status: int = 200) -> HTMLResponse:
    """Return the answer with a page; a notice that it shows is shown once."""
    # Under `no-referrer` a browser would send `Origin: null` with the forms of the page, and they would be refused.
    response = HTMLResponse(html, status, {"referrer-policy": "same-origin"})
    if frame.notice is not None:
        response.delete_cookie(NOTICE_COOKIE, path=frame.prefix or "/")
    return response


def problem_page(request: Request, problem: Problem) -> HTMLResponse:
    """Show a problem to a person."""
    caller = getattr(request.state, "caller", None) or Caller("unknown")
    frame = frame_of(request, caller)
    values = {"title": problem.title, "detail": problem.detail, "status": problem.status, "back": None}
    return page_response(render("problem.html", frame, values), frame, problem.status)
