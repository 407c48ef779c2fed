"""The final dump of streams: every event, every effect, all parked events, and every share."""

from __future__ import annotations

from holdfast.torture.dump import Figures
from holdfast.torture.events import Dumped
from holdfast.torture.history import now_us
from holdfast.torture.log import Log
from holdfast.torture.streams.records import DumpedEvent, StreamEffectRow
from holdfast.torture.target import Target
from holdfast.torture.target.streams import DONE, WAITING


def dump_streams(target: Target, log: Log, *, processes: int) -> Figures:
    """Read the store; `processes` is the number of processes of the run that are still there."""
    events = effects = 0
    for row in target.streams.dumped():
        log.writer.write(row)
        events += isinstance(row, DumpedEvent)
        effects += isinstance(row, StreamEffectRow)
    left = target.leftovers()
    log.writer.write(
        Dumped(
            at_us=now_us(),
            rows=events,
            effects=effects,
            leases=left.leases,
            transactions=left.transactions,
            connections=left.connections,
            processes=processes,
            integrity=left.integrity,
        )
    )
    counts = target.streams.counts()
    waiting = min(events, counts[WAITING])
    return Figures(states={DONE: events - waiting, WAITING: waiting}, effects=effects)
