"""Sets the limits of queues, tasks and keys."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from holdfast.model.limits import Limit, LimitKey, LimitUse, parsed_rate
from holdfast.store.job_lists import DeclaredLimit
from holdfast.store.job_rows import JobRows
from holdfast.store.steps import Steps, became_ready

_encode = msgspec.json.encode


def limits(rows: JobRows) -> Steps[list[LimitUse]]:
    """List the limits with their use."""
    return (yield from rows.page(LimitUse, "limits"))


def set_limit(rows: JobRows, key: LimitKey, limit: Limit | None) -> Steps[None]:
    """Set or remove a limit, and let waiting workers look."""
    yield from rows.act(f"limit_{key.kind}", name=key.name, **_columns(limit))
    yield from _changed(rows, key)
    yield from became_ready()


def declare(rows: JobRows, limits: Mapping[LimitKey, Limit | None]) -> Steps[list[LimitKey]]:
    """Set limits whose declaration is not the last one declared; a repeat changes nothing."""
    last = {LimitKey(*row[:2]): row.declared for row in (yield from rows.page(DeclaredLimit, "declared_limits"))}
    changed: list[LimitKey] = []
    for key, limit in sorted(limits.items()):
        declared = None if limit is None else _encode(limit).decode()
        if declared == last.get(key):
            continue
        if (yield from rows.act(f"declare_{key.kind}", name=key.name, declared=declared, **_columns(limit))):
            changed.append(key)
            yield from _changed(rows, key)
    if changed:
        yield from became_ready()
    return changed


def _changed(rows: JobRows, key: LimitKey) -> Steps[None]:
    """Let `promote` look at the keys of a task whose limit per key has changed."""
    if key.kind == "key":
        yield from rows.act("wake_limit_keys", task=key.name)


def _columns(limit: Limit | None) -> dict[str, int | None]:
    rate = None if limit is None or limit.rate is None else parsed_rate(limit.rate)
    return {
        "max_running": None if limit is None else limit.running,
        "rate_jobs": None if rate is None else rate.jobs,
        "rate_span": None if rate is None else rate.span,
        "rate_burst": None if rate is None or limit is None else limit.burst,
    }
