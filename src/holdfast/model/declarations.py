"""Which declaration of a schedule applies while several versions of an app run.

```text
   a worker starts            its code replaces other definitions of the same names, and removes nothing
   every minute               each worker confirms what its code declares
   not confirmed for 5 min    by any worker, while this one watched: its code replaces or removes it
```

So the schedules of a newer deployment are not removed by older workers, because newer ones confirm them; and what was
removed from the code disappears when the last worker with the old code has gone. What no worker declares does not fire.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from holdfast.model.schedule_definition import ScheduleDefinition

PERIOD = 60.0
"""Seconds after which a worker confirms its declarations again."""
PATIENCE = 300.0
"""Seconds for which a worker watches a schedule that no worker confirms before it overrules it."""
SILENT = timedelta(seconds=PATIENCE)
_GAP = 2.5 * PERIOD  # after a longer pause other workers may have been as unable to confirm as this one


class Declarations:
    """What the code of an app declares."""

    def __init__(self, owner: str, definitions: Mapping[str, ScheduleDefinition]) -> None:
        self.owner = owner
        self.definitions = definitions


class Disputes:
    """The schedules that the code of this worker does not declare, or not so, and since when no worker confirms them.

    Times are those of this worker's monotonic clock: the store's may jump.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, float]] = {}
        self._looked_at = float("-inf")

    def overruled(self, now: float) -> dict[str, int]:
        """Return the schedules to overrule, each with the instant of its last confirmation."""
        if now - self._looked_at > _GAP:
            return {}
        return {name: declared_at for name, (declared_at, since) in self._seen.items() if now - since >= PATIENCE}

    def observed(self, now: float, disputed: Mapping[str, int]) -> None:
        """Process an answer of the store: the disputed schedules, each with the instant of its last confirmation."""
        before = self._seen if now - self._looked_at <= _GAP else {}
        self._looked_at = now
        self._seen = {
            name: before[name] if before.get(name, (None, 0.0))[0] == declared_at else (declared_at, now)
            for name, declared_at in disputed.items()
        }

    def failed(self) -> None:
        """Process a call that failed: perhaps no worker could confirm anything."""
        self._seen = {}
