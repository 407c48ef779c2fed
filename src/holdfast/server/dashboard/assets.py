"""The static files: served under a path that contains their hash, so that a browser may keep them forever."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.server.problems import Problem

_TYPES: Final = {
    "dashboard.css": "text/css",
    "dashboard.js": "text/javascript",
    "favicon.svg": "image/svg+xml",
    "icons.svg": "image/svg+xml",
}
_FOREVER: Final = "public, max-age=31536000, immutable"


class Asset(msgspec.Struct, frozen=True):
    """A static file."""

    content: bytes
    media_type: str
    version: str


@cache
def assets() -> dict[str, Asset]:
    """Return the files by name."""
    folder = files("holdfast.server.dashboard") / "static"
    found: dict[str, Asset] = {}
    for name, media_type in _TYPES.items():
        content = (folder / name).read_bytes()
        found[name] = Asset(content, media_type, hashlib.sha256(content).hexdigest()[:12])
    return found


def asset_path(name: str) -> str:
    """Return the path of a file below the server's prefix."""
    return f"/static/{assets()[name].version}/{name}"


async def serve_asset(request: Request) -> Response:
    """Answer with a file; one of another version, as a tab of an older server asks for, is not found."""
    asset = assets().get(request.path_params["name"])
    if asset is None or asset.version != request.path_params["version"]:
        raise Problem(404, "not-found", "there is no such file in this version: load the page again")
    return Response(asset.content, media_type=asset.media_type, headers={"cache-control": _FOREVER})
