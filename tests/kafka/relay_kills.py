"""Kill relays while they work, and compare the topic with the store: every event once, in the order of its partition.

```console
$ python -m tests.kafka.relay_kills --events 200000 --kills 60
$ python -m tests.kafka.relay_kills --events 200000 --kills 60 --stops 10 --url postgresql://localhost/shop
```

It starts its own broker unless --kafka names one, and keeps the store in a temporary file unless --url names one. Nodes
are frozen (--stops) only on a server: on SQLite a frozen writer holds up all others.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Self
from urllib.parse import urlsplit

from tests.kafka.records import records_of

from holdfast import App
from holdfast.testing.kafka_server import kafka_server

_PORTION = 500
_FROZEN = 6.0  # seconds: past the time after which the shares of a silent node are seized
_WITHIN = 300.0
_PROGRAM = dedent(
    """
    import sys

    from holdfast import App, Timing

    app = App()
    app.relay("orders", topic=sys.argv[2], batch=200, poll_interval=0.2)
    sys.exit(app.run_worker(node_id=sys.argv[1], timing=Timing.for_recovery(3)))
    """
)


@dataclass(frozen=True)
class Outcome:
    """What was found in the topic; `seconds` from the first append to the last event there."""

    events: int
    kills: int
    stops: int
    lost: int
    doubled: int
    partitions_in_order: int
    partitions: int
    seconds: float

    @property
    def is_good(self) -> bool:
        return not self.lost and not self.doubled and self.partitions_in_order == self.partitions

    def __str__(self) -> str:
        return (
            f"{self.events} events, {self.kills} kills, {self.stops} stops: {self.lost} lost, {self.doubled} doubled, "
            f"{self.partitions_in_order} of {self.partitions} partitions in order, {self.seconds:.0f} s"
        )


class RelayRun:
    """Relays in processes of their own, over one store and one topic."""

    def __init__(self, folder: Path, url: str, kafka: str, partitions: int = 4) -> None:
        self.topic = f"relayed-{secrets.token_hex(4)}"
        self._partitions = partitions
        self._servers = urlsplit(kafka).netloc
        self._program = folder / "relay.py"
        self._program.write_text(_PROGRAM)
        self._environment = {**os.environ, "HOLDFAST_URL": url, "HOLDFAST_EVENTS_URL": kafka}
        self._app = App(url)
        self._app.relay("orders", topic=self.topic, to=kafka)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._appended = 0

    def __enter__(self) -> Self:
        self._app.sync.category("orders", partitions=self._partitions)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
        self._app.sync.close()

    def start(self, name: str) -> None:
        command = [sys.executable, str(self._program), name, self.topic]
        self._processes[name] = subprocess.Popen(command, env=self._environment)

    def kill(self, name: str) -> None:
        self._processes[name].kill()
        self._processes[name].wait()

    def freeze(self, name: str) -> None:
        self._processes[name].send_signal(signal.SIGSTOP)
        time.sleep(_FROZEN)
        self._processes[name].send_signal(signal.SIGCONT)

    def append(self, number: int) -> None:
        for begin in range(self._appended, self._appended + number, _PORTION):
            end = min(begin + _PORTION, self._appended + number)
            made = [{"stream": f"order-{n % 500}", "name": "placed", "payload": n} for n in range(begin, end)]
            self._app.sync.append_many("orders", made)
        self._appended += number

    def until_relayed(self) -> None:
        until = time.monotonic() + _WITHIN
        while True:
            (view,) = [view for view in self._app.sync.consumers.list() if view.name == "relay:orders"]
            if view.lag == 0 and view.shares:
                return
            assert time.monotonic() < until, f"{view.lag} events are not relayed"
            time.sleep(0.2)

    def until_owning(self, name: str) -> None:
        """Wait until this process, not a former one of the node, owns a partition."""
        until, pid = time.monotonic() + _WITHIN, self._processes[name].pid
        while not any(view.pid == pid and view.shares for view in self._app.sync.nodes()):
            assert time.monotonic() < until, f"{name} owns no partition"
            time.sleep(0.05)

    def check(self, kills: int, stops: int, seconds: float) -> Outcome:
        found: dict[int, list[str]] = defaultdict(list)
        for record in records_of(self._servers, self.topic):
            found[record.partition_id].append(record.headers["holdfast-id"])
        appended = asyncio.run(self._stored())
        seen = sum(len(set(ids)) for ids in found.values())
        return Outcome(
            self._appended,
            kills,
            stops,
            lost=sum(len(set(appended[number]) - set(found[number])) for number in appended),
            doubled=sum(len(ids) for ids in found.values()) - seen,
            partitions_in_order=sum(appended[number] == found[number] for number in appended),
            partitions=self._partitions,
            seconds=seconds,
        )

    async def _stored(self) -> dict[int, list[str]]:
        app = App(self._environment["HOLDFAST_URL"])
        events = (await app.opened()).streams.events
        stored: dict[int, list[str]] = defaultdict(list)
        try:
            for number in range(self._partitions):
                while portion := await events.read("orders", number, after=len(stored[number]), limit=5000):
                    stored[number] += [event.id for event in portion]
        finally:
            await app.close()
        return stored


def hurt(run: RelayRun, events: int, kills: int, stops: int, *, seed: int = 0) -> Outcome:
    """Append while two relays run, and kill and freeze them in between."""
    chance = random.Random(seed)
    names = ("one", "two")
    begun = time.monotonic()
    run.append(min(_PORTION, events))
    for name in names:
        run.start(name)
    faults = ["kill"] * kills + ["stop"] * stops
    chance.shuffle(faults)
    left = events - min(_PORTION, events)
    for index, fault in enumerate(faults):
        part = left // (len(faults) - index)
        name = chance.choice(names)
        run.until_owning(name)
        run.append(part)
        left -= part
        time.sleep(chance.uniform(0.0, 0.3))  # some are hit before their first batch, some after it
        if fault == "kill":
            run.kill(name)
            run.start(name)
        else:
            run.freeze(name)
    run.append(left)
    run.until_relayed()
    return run.check(kills, stops, time.monotonic() - begun)


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Kill relays while they work, and compare the topic with the store.")
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--stops", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--url", help="the store; by default a temporary SQLite file")
    parser.add_argument("--kafka", help="a broker; by default a throw-away one")
    given = parser.parse_args(words)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        kafka = given.kafka or stack.enter_context(kafka_server()).url
        url = given.url or f"sqlite:///{folder / 'shop.db'}?synchronous=normal"
        run = stack.enter_context(RelayRun(folder, url, kafka))
        outcome = hurt(run, given.events, given.kills, given.stops, seed=given.seed)
        sys.stdout.write(f"{outcome}\n")
        return 0 if outcome.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
