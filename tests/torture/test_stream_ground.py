"""What a run of streams reads of a store, and what it leaves alone."""

from __future__ import annotations

import pytest

from holdfast import App, ConfigError
from holdfast.torture.run import require_alone
from holdfast.torture.streams.names import MAIN, PARTITIONS
from holdfast.torture.streams.records import EventRow
from holdfast.torture.streams.target import DONE, WAITING, stream_ground_of
from holdfast.torture.target import ground_of


@pytest.mark.parametrize("of", [ground_of, stream_ground_of])
async def test_a_store_with_streams_of_others_is_refused_and_never_removed(of, tmp_path):
    url = f"sqlite:///{tmp_path}/orders.db"
    async with App(url) as app:
        await app.append("orders", stream="order-1", name="placed")
    ground = of(url)

    assert ground.foreign() == 1
    with pytest.raises(ConfigError, match="not of a torture run"):
        require_alone(ground, among_others=False)
    ground.wipe()
    assert (tmp_path / "orders.db").exists()


async def test_the_ground_reads_the_events_of_a_run(tmp_path):
    url = f"sqlite:///{tmp_path}/run.db"
    async with App(url) as app:
        for name, partitions in PARTITIONS.items():
            await app.category(name, partitions=partitions)
        await app.append(MAIN, stream="s", name="happened")
    ground = stream_ground_of(url)
    ground.prepare()

    (event,) = [row for row in ground.dumped() if isinstance(row, EventRow)]
    assert (event.category, event.stream, event.version) == (MAIN, "s", 1)
    assert {state: ground.counts()[state] for state in (WAITING, DONE)} == {WAITING: 1, DONE: 0}
    assert ground.shares().shares == ()
    assert ground.transitions(0) == []
    assert ground.effects_seen(0) == (0, 0)
    assert ground.foreign() == 0
    ground.wipe()
    ground.prepare()
    assert list(ground.dumped()) == []
