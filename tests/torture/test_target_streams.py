"""What a run of streams reads of its target."""

from __future__ import annotations

from holdfast import App
from holdfast.torture.streams.names import MAIN, PARTITIONS
from holdfast.torture.streams.records import EventRow
from holdfast.torture.target import target_of
from holdfast.torture.target.streams import DONE, WAITING


async def test_the_target_reads_the_events_of_a_run(tmp_path):
    target = target_of(f"sqlite:///{tmp_path}/run.db")
    target.create()
    async with App(target.url) as app:
        for name, partitions in PARTITIONS.items():
            await app.category(name, partitions=partitions)
        await app.append(MAIN, stream="s", name="happened")
    target.prepare()

    (event,) = [row for row in target.streams.dumped() if isinstance(row, EventRow)]
    assert (event.category, event.stream, event.version) == (MAIN, "s", 1)
    assert {state: target.streams.counts()[state] for state in (WAITING, DONE)} == {WAITING: 1, DONE: 0}
    assert target.streams.shares().shares == ()
    assert target.streams.transitions(0) == []
    assert target.streams.effects_seen(0) == (0, 0)
    target.require_own()
