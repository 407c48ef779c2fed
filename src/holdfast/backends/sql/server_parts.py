"""What the parts of a server store have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.store.backend_over_parts import StoreParts
from holdfast.store.claim_floor import Floors
from holdfast.store.local_notifier import LocalNotifier
from holdfast.store.steps import Place

_LAST_WAIT = 2.0  # seconds for threads whose server does not answer; they are daemons, and end by themselves later


class ServerParts(StoreParts):
    """Pools of connections, a notifier, and the floors of claims."""

    _pools: Sequence[Any]
    _floors: Floors
    _notifier: LocalNotifier

    def _became_ready(self, places: Sequence[Place]) -> None:
        """Lower the claim floors to these places, and notify waiting workers."""
        self._floors.lower(places)
        self._notifier.notify()

    def _drop_idle(self) -> None:
        for pool in self._pools:
            pool.drop_idle()

    async def close(self) -> None:
        """Close everything."""
        self._notifier.close()
        for pool in self._pools:
            pool.close()
        await self._notifier.ended(_LAST_WAIT)
