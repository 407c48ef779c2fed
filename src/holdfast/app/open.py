"""From a URL to a backend, by table or entry point: no backend is imported before it is needed."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Collection
from importlib.metadata import entry_points
from typing import cast
from urllib.parse import urlsplit

from holdfast.errors import ConfigError
from holdfast.store.backend import Backend, BackendFactory
from holdfast.store.url_settings import DEFAULT_URL

_BUILT_IN = {
    "mariadb": "holdfast.backends.mysql",
    "mysql": "holdfast.backends.mysql",
    "postgres": "holdfast.backends.postgres",
    "postgresql": "holdfast.backends.postgres",
    "sqlite": "holdfast.backends.sqlite",
    "unix": "holdfast.backends.redis",
    **{
        f"{server}{way}": "holdfast.backends.redis"
        for server in ("redis", "rediss", "valkey", "valkeys")
        for way in ("", "+cluster", "+sentinel")
    },
}
_ENTRY_POINTS = "holdfast.backends"
_OTHER_STORES = frozenset({"kafka"})


def store_of(url: str) -> str:
    """Return which of the built-in stores a URL names, for example `postgres`; empty for another."""
    return _BUILT_IN.get(_scheme(url), "").rpartition(".")[2]


def open_for_app(url: str | None, events: str | None, in_store: Collection[str]) -> Backend:
    """Return the unopened backend of an app: by these URLs, by default those of the environment."""
    if url is None:
        url = os.environ.get("HOLDFAST_URL") or DEFAULT_URL
    return open_backend(url, events=events or os.environ.get("HOLDFAST_EVENTS_URL"), in_store=in_store)


def open_streams(url: str) -> Backend:
    """Return the unopened backend of streams in Kafka without a store."""
    if _scheme(url) != "kafka":
        raise ConfigError(
            f"streams={url.partition(':')[0]}://…: pass kafka://…; a store has its streams with it: App(url)"
        )
    return cast("Backend", importlib.import_module("holdfast.backends.kafka").open_streams(url))


def open_backend(
    url: str,
    *,
    clock: Callable[[], int] | None = None,
    events: str | None = None,
    in_store: Collection[str] = (),
) -> Backend:
    """Return the unopened backend behind a URL.

    With `events`, a URL of Kafka, new categories have their events there, except those named in `in_store`.
    Other packages add schemes by an entry point of the group `holdfast.backends`, named after the scheme, that points
    to an `open_backend` function.
    """
    backend = _factory(_scheme(url), url)(url, clock=clock)
    if not events:
        return backend
    if _scheme(events) != "kafka":
        raise ConfigError(f"events={events.partition(':')[0]}://…: only Kafka keeps events next to a store: kafka://…")
    return cast("Backend", importlib.import_module("holdfast.backends.kafka").open_events(backend, events, in_store))


def _scheme(url: object) -> str:
    if not isinstance(url, str):
        message = f"the URL of a store is a string, for example {DEFAULT_URL!r}, not {url!r}"
        raise ConfigError(message)
    if not url:
        message = (
            f"the URL of the store is empty (an unset variable?): give one, for example {DEFAULT_URL}, or leave it out "
            f"for $HOLDFAST_URL and, without that, {DEFAULT_URL} in the current directory"
        )
        raise ConfigError(message)
    try:
        return urlsplit(url).scheme
    except ValueError:  # neither the text nor Python's message is shown: either may contain a password
        message = (
            f"the URL of the store cannot be parsed: it must look like {DEFAULT_URL}; percent-encode everything "
            "but letters and digits in a user name and a password: @ is %40, / is %2F, [ is %5B"
        )
        raise ConfigError(message) from None


def _factory(scheme: str, url: str) -> BackendFactory:
    if scheme in _BUILT_IN:
        module = importlib.import_module(_BUILT_IN[scheme])
        return cast("BackendFactory", module.open_backend)
    for entry_point in entry_points(group=_ENTRY_POINTS, name=scheme):
        return cast("BackendFactory", entry_point.load())
    name, _, driver = scheme.partition("+")
    if driver and name in _BUILT_IN:
        message = f"{scheme}://… names a driver, and Holdfast chooses its own: drop +{driver}, so that it is {name}://…"
        raise ConfigError(message)
    if name in _OTHER_STORES:
        message = (
            f"{scheme}://… keeps events, not jobs: name a SQL store, and Kafka next to it, as in "
            f"App('postgresql://…', events='{name}://…')"
        )
        raise ConfigError(message)
    known = ", ".join(f"{name}://" for name in sorted(_BUILT_IN))
    shown = f"{scheme}://…" if scheme else "a URL without a scheme" if "@" in url else repr(url)
    message = f"no store is known for {shown}: the URL must begin with one of {known}, for example {DEFAULT_URL}"
    raise ConfigError(message)
