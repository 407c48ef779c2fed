"""Which records a demo keeps on a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.cli.demo.mysql_records import MysqlRecords
from holdfast.cli.demo.queued_records import QueuedRecords
from holdfast.cli.demo.records import Records
from holdfast.cli.demo.target import kind_of, refusal

if TYPE_CHECKING:
    from holdfast.app.app import App


def records_of(app: App) -> Records:
    """Return the records of a demo on an app's store; raises `ConfigError` if it cannot run one."""
    capabilities = app.backend.capabilities
    if not capabilities.shared or not capabilities.commits_effects:
        raise refusal()
    if capabilities.queues_effects:
        return QueuedRecords(app)
    kind = kind_of(app.backend.url)
    return Records(app) if kind is None or kind.creates_in_transactions else MysqlRecords(app)
