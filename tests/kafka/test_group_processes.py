"""A member of a group that is killed: nothing is lost. How much is repeated is not judged."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest
from tests.servers.kafka import new_prefix

from holdfast import App

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
STREAMS, EACH, BATCH, PARTITIONS = 40, 50, 20, 4
WITHIN = 90.0
PROGRAM = dedent(
    f"""
    import os
    import sys
    import time

    from holdfast import App, Event

    app = App(streams=sys.argv[1])
    effects = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    @app.consumer("billing", category="orders", batch={BATCH}, commit_every={BATCH}, poll_interval=0.2)
    def billing(events: list[Event]) -> None:
        lines = [f"{{event.partition_id}} {{event.stream}} {{event.payload}}" for event in events]
        os.write(effects, "".join(line + chr(10) for line in lines).encode())
        time.sleep(0.02)

    sys.exit(app.run_worker())
    """
)


def test_the_partitions_of_a_killed_member_are_consumed_by_another_and_nothing_is_lost(tmp_path: Path):
    events, effects = new_prefix(), tmp_path / "effects"
    effects.touch()
    (tmp_path / "billing.py").write_text(PROGRAM)
    app = App(streams=events)
    app.sync.category("orders", partitions=PARTITIONS)
    for number in range(EACH):
        app.sync.append_many(
            "orders", [{"stream": f"order-{n}", "name": "placed", "payload": number} for n in range(STREAMS)]
        )
    app.sync.close()
    command = [sys.executable, str(tmp_path / "billing.py"), events, str(effects)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    processes = [subprocess.Popen(command, env=environment) for _ in range(2)]
    try:
        until(effects, lambda lines: len(lines) > STREAMS * EACH // 5)
        processes[0].kill()
        until(effects, lambda lines: len(set(lines)) == STREAMS * EACH)
    finally:
        for process in processes:
            process.kill()
            process.wait()

    handled: dict[str, list[int]] = defaultdict(list)
    for line in effects.read_text().splitlines():
        _, stream, payload = line.split()
        if int(payload) not in handled[stream]:
            handled[stream].append(int(payload))
    assert handled == {f"order-{n}": list(range(EACH)) for n in range(STREAMS)}  # none lost, each first time in order


def until(effects: Path, is_true: Callable[[list[str]], bool]) -> None:
    give_up = time.monotonic() + WITHIN
    while not is_true(effects.read_text().splitlines()):
        assert time.monotonic() < give_up, len(effects.read_text().splitlines())
        time.sleep(0.05)
