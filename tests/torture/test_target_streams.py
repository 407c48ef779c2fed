"""What a run of streams reads of its target."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast import App
from holdfast.torture.streams.names import MAIN, PARTITIONS
from holdfast.torture.streams.records import DumpedEvent, DumpedShare, ParkedRow, StreamEffectRow
from holdfast.torture.target import target_of
from holdfast.torture.target.streams import _DUMPED, DONE, WAITING

SHARE: dict[str, Any] = {"at_us": 0, "consumer": "billing", "category": "main", "partition": 1}


async def test_the_target_reads_the_events_of_a_run(tmp_path):
    target = target_of(f"sqlite:///{tmp_path}/run.db")
    target.create()
    async with App(target.url) as app:
        for name, partitions in PARTITIONS.items():
            await app.category(name, partitions=partitions)
        await app.append(MAIN, stream="s", name="happened")
    target.prepare()

    (event,) = [row for row in target.streams.dumped() if isinstance(row, DumpedEvent)]
    assert (event.category, event.stream, event.version) == (MAIN, "s", 1)
    assert {state: target.streams.counts()[state] for state in (WAITING, DONE)} == {WAITING: 1, DONE: 0}
    assert target.streams.shares().shares == ()
    assert target.streams.transitions(0) == []
    assert target.streams.effects_seen(0) == (0, 0)
    target.require_own()


@pytest.mark.parametrize(
    ("statement", "row", "record"),
    [
        (
            "all_stream_effects",
            ("billing", "main", 1, 7, 3, "e", "n", 9),
            StreamEffectRow(**SHARE, generation=7, position=3, event="e", node="n", number=9),
        ),
        (
            "all_parked",
            ("billing", "main", 1, 3, "e", "s", '{"error_class": "ValueError"}'),
            ParkedRow(**SHARE, position=3, event="e", stream="s", failure="ValueError"),
        ),
        (
            "all_parked",
            ("billing", "main", 1, 3, "e", "s", None),
            ParkedRow(**SHARE, position=3, event="e", stream="s"),
        ),
        (
            "all_shares",
            ("billing", "main", 1, 7, "granted", 3, 5),
            DumpedShare(**SHARE, generation=7, state="granted", position=3, head=5),
        ),
    ],
)
def test_a_row_of_the_final_dump_is_recorded_under_the_names_of_its_columns(statement, row, record):
    assert msgspec.structs.replace(_DUMPED[statement](row), at_us=0) == record
