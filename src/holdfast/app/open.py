"""From a URL to a backend, by table and by entry point: the composition root imports no backend."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import cast
from urllib.parse import urlsplit

from holdfast.errors import ConfigError
from holdfast.store.backend import Backend, BackendFactory

DEFAULT_URL = "sqlite:///holdfast.db"
_BUILT_IN = {"sqlite": "holdfast.backends.sqlite"}
_ENTRY_POINTS = "holdfast.backends"


def open_backend(url: str, *, clock: Callable[[], int] | None = None) -> Backend:
    """Return the unopened backend behind a URL.

    Third parties add schemes by an entry point of the group `holdfast.backends`, named by the scheme and leading to an
    `open_backend` function.
    """
    scheme = urlsplit(url).scheme
    return _factory(scheme, url)(url, clock=clock)


def _factory(scheme: str, url: str) -> BackendFactory:
    if scheme in _BUILT_IN:
        module = importlib.import_module(_BUILT_IN[scheme])
        return cast("BackendFactory", module.open_backend)
    for entry_point in entry_points(group=_ENTRY_POINTS, name=scheme):
        return cast("BackendFactory", entry_point.load())
    known = ", ".join(f"{name}://" for name in sorted(_BUILT_IN))
    shown = f"{scheme}://…" if scheme else repr(url)
    message = f"no store is known for {shown}: the URL must begin with one of {known}, for example {DEFAULT_URL}"
    raise ConfigError(message)
