"""What an app without a SQL store cannot do, with the reason and the remedy."""

from __future__ import annotations

from typing import Any, Final, NoReturn

from holdfast.backends.kafka.events import REFUSALS
from holdfast.errors import Unsupported
from holdfast.store.capabilities import CHILD_PROCESSES, JOBS, PARK

_REMEDY: Final = 'give the app a SQL store: App("postgresql://…", events="kafka://…")'
_NO_STORE: Final = f"Kafka keeps events and offsets; {_REMEDY}"
GROUP_REFUSALS: Final = {
    **{what: reason for what, reason in REFUSALS.items() if not what.startswith("trim")},
    JOBS: _NO_STORE,
    PARK: f"there is no place for parked events; let it block or skip, or {_REMEDY}",
    CHILD_PROCESSES: f"they commit through a store; run the handler in a thread, or {_REMEDY}",
    "commit effects": f"an effect and an offset cannot commit together; {_REMEDY}",
    "join a transaction": f"a record is written at once, or in a transaction of Kafka; {_REMEDY}",
    "read the log": f"it reads categories by their names; name one, or {_REMEDY}",
    "pause and reset consumers": "the group's offsets belong to Kafka: stop the nodes and use "
    f"kafka-consumer-groups --reset-offsets, after which ctx.fence begins at 1 again, or {_REMEDY}",
    "trim": "set retention.ms of the topic",
}


def refuse(what: str) -> NoReturn:
    """Raise `Unsupported` for something that needs a store."""
    raise Unsupported(f"Kafka alone cannot {what}: {GROUP_REFUSALS[what]}")


class NeedsStore:
    """A part of the port that needs a store: every use of it raises `Unsupported`."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __getattr__(self, name: str) -> Any:
        """Refuse."""
        refuse(self._what)
