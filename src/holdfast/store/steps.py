"""Verbs without I/O.

A verb is a generator. It yields requests that only its store understands and is sent the answers, so one definition
runs on an async connection, on a blocking one, in a handler's transaction and in the caller's own. Rules above the port
compose the store's generators with `yield from` and never see a request.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

T = TypeVar("T")

Steps = Generator[Any, Any, T]
