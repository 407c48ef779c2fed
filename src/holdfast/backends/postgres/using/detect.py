"""Detect the kind of a caller's connection."""

from __future__ import annotations

from holdfast.backends.postgres.using import asyncpg, django, psycopg, sqlalchemy
from holdfast.backends.postgres.using.adapter import Kind
from holdfast.errors import ConfigError

KINDS = (
    "a psycopg connection or cursor (also async), an asyncpg connection, a SQLAlchemy Session or Connection (also "
    "async), or a Django connection"
)
_RECOGNISE = (psycopg.recognise, asyncpg.recognise, sqlalchemy.recognise, django.recognise)


def recognise(using: object) -> Kind:
    """Return how to reach the driver's connection; raises `ConfigError` if there is none or it is unusable."""
    for recognise_one in _RECOGNISE:
        kind = recognise_one(using)
        if kind is not None:
            return kind
    cls = type(using)
    name = cls.__name__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__name__}"
    raise ConfigError(f"using= must be {KINDS}; not {name}")
