"""Members of a group that are killed and frozen: nothing is lost; a kill repeats at most a batch of each share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from tests.servers.kafka import new_prefix

from holdfast import App

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
STREAMS, EACH, BATCH, PARTITIONS = 40, 50, 20, 4
WITHIN = 150.0
EVERY_EVENT_IN_ORDER = {f"order-{n}": list(range(EACH)) for n in range(STREAMS)}
PROGRAM = dedent(
    f"""
    import os
    import sys
    import time

    from holdfast import App, Event

    app = App(streams=sys.argv[1])
    effects = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    @app.consumer("billing", category="orders", batch={BATCH}, commit_every=1, poll_interval=0.2)
    def billing(events: list[Event]) -> None:
        lines = [f"{{event.partition_id}} {{event.stream}} {{event.payload}}" for event in events]
        os.write(effects, "".join(line + chr(10) for line in lines).encode())
        time.sleep(0.02)

    sys.exit(app.run_worker())
    """
)


class Members:
    """Processes of one group, and what they have written."""

    def __init__(self, folder: Path) -> None:
        self.events, self.effects = new_prefix(), folder / "effects"
        self.effects.touch()
        self.app = App(streams=self.events)
        (folder / "billing.py").write_text(PROGRAM)
        self._command = [sys.executable, str(folder / "billing.py"), self.events, str(self.effects)]
        self._environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        self.app.sync.category("orders", partitions=PARTITIONS)
        self.processes += [subprocess.Popen(self._command, env=self._environment) for _ in range(2)]
        self.until(lambda _: self.lag_and_owners() == (0, 2))  # each of them is to be hurt while it handles events
        for number in range(EACH):
            made = [{"stream": f"order-{n}", "name": "placed", "payload": number} for n in range(STREAMS)]
            self.app.sync.append_many("orders", made)

    def lines(self) -> list[str]:
        return self.effects.read_text().splitlines()

    def until(self, is_true: Callable[[list[str]], bool]) -> None:
        give_up = time.monotonic() + WITHIN
        while not is_true(self.lines()):
            assert time.monotonic() < give_up, len(self.lines())
            time.sleep(0.1)

    def first_times(self) -> dict[str, list[int]]:
        """Return the events of each stream, in the order in which each was handled for the first time."""
        handled: dict[str, list[int]] = defaultdict(list)
        for line in dict.fromkeys(self.lines()):
            _, stream, payload = line.split()
            handled[stream].append(int(payload))
        return handled

    def lag_and_owners(self) -> tuple[int, int]:
        """Return how many events are left, and how many members own partitions."""
        shares = [share for view in self.app.consumers.sync.list() for share in view.shares]
        return sum(share.lag for share in shares), len({share.owner for share in shares if share.owner})

    def positions(self) -> list[int]:
        """Return the committed position of each partition."""
        return [share.position for view in self.app.consumers.sync.list() for share in view.shares]

    def repeated(self) -> Counter[str]:
        """Return how many events of each partition were handled again."""
        lines = self.lines()
        return Counter(line.split()[0] for line in lines) - Counter(line.split()[0] for line in set(lines))

    def end(self) -> None:
        for process in self.processes:
            process.send_signal(signal.SIGCONT)
            process.kill()
            process.wait()
        self.app.sync.close()


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    members = Members(tmp_path)
    try:
        members.start()
        yield members
    finally:
        members.end()


def test_the_partitions_of_a_killed_member_are_consumed_by_another_and_nothing_is_lost(members: Members):
    members.until(lambda lines: len(lines) > STREAMS * EACH // 5)
    members.processes[0].kill()
    members.until(lambda lines: len(set(lines)) == STREAMS * EACH)

    assert members.first_times() == EVERY_EVENT_IN_ORDER
    assert all(number <= BATCH for number in members.repeated().values()), members.repeated()


def test_a_member_that_was_frozen_past_its_session_commits_nothing_and_consumes_again(members: Members):
    members.until(lambda lines: len(lines) > STREAMS * EACH // 5)
    frozen, other = members.processes
    frozen.send_signal(signal.SIGSTOP)
    members.until(lambda lines: len(set(lines)) == STREAMS * EACH)
    members.until(lambda _: members.lag_and_owners() == (0, 1))
    before = members.positions()
    frozen.send_signal(signal.SIGCONT)  # what it writes now is doubled, as documented; its offsets are refused
    members.until(lambda _: members.lag_and_owners() == (0, 2))  # it has joined again
    assert members.positions() == before
    other.kill()
    members.app.sync.append_many(
        "orders", [{"stream": f"order-{n}", "name": "placed", "payload": EACH} for n in range(STREAMS)]
    )
    members.until(lambda lines: len(set(lines)) == STREAMS * (EACH + 1))

    assert members.first_times() == {f"order-{n}": list(range(EACH + 1)) for n in range(STREAMS)}
