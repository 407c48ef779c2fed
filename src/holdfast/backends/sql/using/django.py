"""Django: `connections["default"]`, inside `transaction.atomic()`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from holdfast.backends.sql.using.kinds import ConnectionKind, comes_from, has_failed, no_transaction
from holdfast.errors import ConfigError


class DjangoConnections(NamedTuple):
    """Recognises Django's connections to a store: `vendor` is its name in Django, `store` the one for messages.

    `check` returns the driver's connection underneath, or raises if it cannot be used.
    """

    vendor: str
    store: str
    check: Callable[[Any], Any]

    def recognise(self, using: Any) -> ConnectionKind | None:
        """Return how to reach its connection; None for objects of other libraries."""
        if comes_from(using, "django.utils.connection", "ConnectionProxy"):
            message = (
                "django.db.connection, given as using=, is a different connection in each thread: pass the connection "
                'itself, `using=connections["default"]` (from django.db import connections)'
            )
            raise ConfigError(message)
        if not comes_from(using, "django.db.backends.base.base", "BaseDatabaseWrapper"):
            return None
        raw = self._checked(using)

        def reach() -> Any:
            if self._checked(using) is not raw:
                raise ConfigError("the Django connection given as using= has reconnected since the call")
            return raw

        return ConnectionKind(reach, is_async=False)

    def _checked(self, using: Any) -> Any:
        if using.vendor != self.vendor:
            raise ConfigError(f"the Django connection given as using= leads to {using.vendor}, not to {self.store}")
        if not using.in_atomic_block:
            raise no_transaction("open `with transaction.atomic():`")
        if using.needs_rollback:
            raise has_failed()
        return self.check(using.connection)
