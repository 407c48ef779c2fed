"""The settings of an app, checked."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.errors import ConfigError
from holdfast.model.limits import Limit, check_limited
from holdfast.model.names import check_name
from holdfast.store.values import Retention


def check_retention(retention: object) -> Retention:
    """Return the retention, or the default; raises `ConfigError`."""
    if retention is None or isinstance(retention, Retention):
        return retention or Retention()
    remedy = "pass Retention(completed=timedelta(days=7)), or leave it out"
    raise ConfigError(f"retention must be a Retention, not {retention!r}: {remedy}")


def check_queue_limits(limits: Mapping[str, Limit | None] | None) -> dict[str, Limit | None]:
    """Return the limits of queues by name; raises `ConfigError`."""
    return {check_name("queue", name): check_limited(limit) for name, limit in (limits or {}).items()}
